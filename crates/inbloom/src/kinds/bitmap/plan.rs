//! The sizes of a bitmap: one bit per possible value, or, where few are present, what a roaring
//! bitmap takes.

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::plan::planner::Planner;
use crate::plan::{BITS_RANGE, MAX_BITS, Plan, PlanBuilder, parameter};

/// Up to this many possible values a bitmap of unknown content is kept dense: 1 GiB.
const DENSE_UNIVERSE: u64 = 1 << 33;

pub(crate) struct BitmapPlan;

impl Planner for BitmapPlan {
    fn check(&self, plan: &Plan) -> Result<()> {
        if plan.bits == 0 || (!plan.sparse && plan.bits > MAX_BITS) {
            return parameter("bits", plan.bits, BITS_RANGE);
        }
        if plan.probes != 1 || plan.lines != 1 {
            return parameter("probes", plan.probes, "1 for kind bitmap");
        }
        Ok(())
    }

    fn solve(&self, given: &PlanBuilder) -> Result<Plan> {
        let universe = match (given.universe, given.bytes) {
            (Some(universe), _) => universe,
            (None, Some(bytes)) => bytes.saturating_mul(8),
            (None, None) => {
                return Err(Error::Underspecified {
                    kind: given.kind,
                    needs: "the universe, which is the number of possible integers",
                });
            }
        };
        if let Some(items) = given.items.filter(|items| *items > universe) {
            return parameter("items", items, format_args!("at most the universe, {universe}"));
        }
        let dense = universe.div_ceil(64).saturating_mul(8);
        let sparse = match given.items {
            Some(items) => sparse_bytes(items, universe) < dense,
            None => universe > DENSE_UNIVERSE,
        };
        let items = given.items.unwrap_or(universe);
        let plan = Plan { items, bits: universe, sparse, ..Plan::blank(given.kind) };
        self.check(&plan)?;
        match given.bytes {
            Some(limit) if plan.bytes() > limit => Err(Error::Limit { bytes: plan.bytes(), limit }),
            _ => Ok(plan),
        }
    }

    fn exact(&self, kind: Kind, bits: u64, _probes: u32) -> Result<Plan> {
        Plan::builder(kind).universe(bits).build()
    }

    fn bytes(&self, plan: &Plan) -> u64 {
        match plan.sparse {
            true => sparse_bytes(plan.items, plan.bits),
            false => plan.bits.div_ceil(64) * 8,
        }
    }

    fn has_fixed_size(&self, plan: &Plan) -> bool {
        !plan.sparse
    }

    fn all_bits(&self, plan: &Plan) -> f64 {
        if plan.sparse { self.bytes(plan) as f64 * 8.0 } else { plan.bits as f64 }
    }

    fn cache_lines(&self, plan: &Plan) -> u32 {
        plan.lines
    }

    fn rate_at(&self, _plan: &Plan, _items: f64) -> f64 {
        0.0
    }

    fn items_at(&self, plan: &Plan, _rate: f64) -> u64 {
        plan.bits
    }

    fn fill_at(&self, plan: &Plan, items: f64) -> f64 {
        items / plan.bits as f64
    }

    fn items_at_fill(&self, plan: &Plan, fill: f64) -> (f64, f64) {
        (fill * self.cells(plan) as f64, 0.0)
    }

    fn estimate(&self, _plan: &Plan, occupied: u64) -> (f64, f64) {
        (occupied as f64, 0.0)
    }
}

/// Returns the memory of a roaring bitmap of `items` integers that are scattered over the universe:
/// three bytes each (two, and the slack of growing vectors), and what it keeps for every range of
/// 2^16 and of 2^32 values that has a member, a container and a bitmap in a tree. Measured, roaring
/// 0.11, within 15%.
fn sparse_bytes(items: u64, universe: u64) -> u64 {
    let ranges = |size: u64, bytes: u64| universe.div_ceil(size).min(items).saturating_mul(bytes);
    items.saturating_mul(3).saturating_add(ranges(1 << 16, 72)).saturating_add(ranges(1 << 32, 184))
}
