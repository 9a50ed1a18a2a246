//! The sizes of a set of fingerprints: a word for each key.

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::plan::planner::Planner;
use crate::plan::search::{self, Search, too_few_bytes};
use crate::plan::{MAX_BITS, MAX_ITEMS, Plan, PlanBuilder, parameter};

/// Bits of a fingerprint.
const WIDTH: u32 = 64;

pub(crate) struct PrintsPlan;

fn rate(items: f64) -> f64 {
    items.max(0.0) / 2f64.powi(WIDTH as i32)
}

fn plan(items: u64, rate: f64) -> Plan {
    let bits = items.max(1) * u64::from(WIDTH);
    Plan { items, rate, bits, width: WIDTH, ..Plan::blank(Kind::Prints) }
}

impl Search for PrintsPlan {
    fn fewest_bits(&self, items: u64, wanted: f64) -> Result<Plan> {
        match rate(items as f64) <= wanted {
            true => Ok(plan(items, wanted)),
            false => Err(Error::Rate {
                got: wanted,
                reason: "must be at least 5.4e-20 times the number of keys for kind prints",
            }),
        }
    }

    fn lowest_rate(&self, given: &PlanBuilder, items: u64, bits: u64) -> Result<Plan> {
        let fewest = plan(items, 0.0);
        if fewest.bits > bits {
            return too_few_bytes(bits, fewest.bits / 8, Some(items));
        }
        let reached = search::reached(given, items, bits, rate(items.max(1) as f64))?;
        Ok(plan(items, reached))
    }

    fn most_items(&self, _given: &PlanBuilder, bits: u64, wanted: f64) -> Result<Plan> {
        match bits / u64::from(WIDTH) {
            0 => too_few_bytes(bits, u64::from(WIDTH / 8), None),
            items => self.fewest_bits(items.min(MAX_ITEMS), wanted),
        }
    }
}

impl Planner for PrintsPlan {
    fn check(&self, plan: &Plan) -> Result<()> {
        if plan.width != WIDTH {
            return parameter("width", plan.width, "64 for kind prints");
        }
        let bucket = u64::from(WIDTH);
        if !plan.bits.is_multiple_of(bucket) || !(bucket..=MAX_BITS).contains(&plan.bits) {
            return parameter("bits", plan.bits, "whole fingerprints");
        }
        Ok(())
    }

    fn solve(&self, given: &PlanBuilder) -> Result<Plan> {
        search::solve(given, self)
    }

    fn shard(&self, plan: &Plan, shards: u32) -> Result<Plan> {
        self.fewest_bits(plan.most_of_a_share(shards), plan.offered_rate())
    }

    fn has_fixed_size(&self, _plan: &Plan) -> bool {
        false
    }

    /// Returns the steps from the root of the tree to a leaf.
    fn cache_lines(&self, plan: &Plan) -> u32 {
        plan.items.max(1).ilog(6) + 1
    }

    fn rate_at(&self, _plan: &Plan, items: f64) -> f64 {
        rate(items)
    }

    fn fill_at(&self, plan: &Plan, items: f64) -> f64 {
        (items / self.cells(plan) as f64).min(1.0)
    }

    fn items_at_fill(&self, plan: &Plan, fill: f64) -> (f64, f64) {
        (fill * self.cells(plan) as f64, 0.0)
    }

    fn estimate(&self, _plan: &Plan, occupied: u64) -> (f64, f64) {
        (occupied as f64, 0.0)
    }
}
