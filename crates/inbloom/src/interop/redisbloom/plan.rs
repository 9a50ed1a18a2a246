//! The sizes and rates of RedisBloom's filters, as plans have them.
//!
//! A plan is that of the filter as it was reserved: of its first link or sub-filter. What has grown
//! since, and by which factor it grows, only the filter knows.

use super::bloom::{Bloom, Link};
use super::cuckoo::CuckooChain;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::math;
use crate::plan::model::{classic_fill, classic_items, classic_rate};
use crate::plan::planner::Planner;
use crate::plan::{MAX_BITS, Plan, PlanBuilder, RATE_RANGE, parameter};

/// Fingerprints of a cuckoo filter: 8 bits, of which 0 is an empty slot.
const PRINTS: f64 = 255.0;

fn cannot_be_planned(given: &PlanBuilder) -> Error {
    Error::Unsupported {
        kind: given.kind,
        verb: "be planned here",
        remedy: "use Filter::for_format, where the other program decides the size",
    }
}

/// The plan of BF.RESERVE with these numbers, if there is a link for them.
pub(super) fn reserved(kind: Kind, items: u64, rate: f64) -> Result<Plan> {
    // The filter grows: its first link has half of the rate.
    let link = Link::plan(items, rate * 0.5);
    match link {
        Some(link) if rate > 0.0 && rate < 1.0 && items > 0 && link.bits <= MAX_BITS => {
            Ok(Plan { items, rate, bits: link.bits, ..Plan::blank(kind) })
        }
        _ if items == 0 => parameter("items", items, "at least 1 for RedisBloom"),
        _ => parameter("rate", rate, "strictly between 0 and 1, with bits that can be counted"),
    }
}

/// The plan of a filter that is there.
pub(super) fn of_bloom(kind: Kind, bloom: &Bloom) -> Plan {
    let first = bloom.links().next().expect("at least one link");
    // What the links of one that grows take together.
    let rate = match bloom.growth() {
        Some(_) if first.rate < 0.5 => first.rate * 2.0,
        _ => first.rate,
    };
    Plan { items: first.entries, rate, bits: first.bits.min(MAX_BITS), ..Plan::blank(kind) }
}

/// The plan of a filter that is there.
pub(super) fn of_cuckoo(kind: Kind, cuckoo: &CuckooChain) -> Plan {
    let slots = cuckoo.buckets() * u64::from(cuckoo.bucket_size());
    let rate = cuckoo_rate(2.0 * f64::from(cuckoo.bucket_size()));
    Plan { items: slots, rate, bits: slots * 8, ..Plan::blank(kind) }
}

/// The rate of a cuckoo filter in which a query meets so many fingerprints.
pub(super) fn cuckoo_rate(met: f64) -> f64 {
    -math::exp_m1(met * math::ln_1p(-1.0 / PRINTS))
}

/// The rate of a chain whose links have these sizes: that any of them reports a non-member.
pub(super) fn bloom_rate(bloom: &Bloom) -> f64 {
    let missed = bloom
        .links()
        .map(|link| 1.0 - classic_rate(link.size as f64, link.bits as f64, link.hashes));
    1.0 - missed.product::<f64>()
}

fn check(plan: &Plan) -> Result<()> {
    if plan.items == 0 {
        return parameter("items", plan.items, "at least 1 for RedisBloom");
    }
    if !(1..=MAX_BITS).contains(&plan.bits) {
        return parameter("bits", plan.bits, crate::plan::BITS_RANGE);
    }
    if !(plan.rate > 0.0 && plan.rate < 1.0) {
        return Err(Error::Rate { got: plan.rate, reason: RATE_RANGE });
    }
    Ok(())
}

/// Of a Bloom filter.
pub(super) struct BloomPlan;

impl BloomPlan {
    /// The bits that an item sets in a filter of this plan.
    fn hashes(plan: &Plan) -> u32 {
        Link::plan(plan.items, plan.rate * 0.5).map_or(1, |link| link.hashes)
    }
}

impl Planner for BloomPlan {
    fn check(&self, plan: &Plan) -> Result<()> {
        check(plan)
    }

    fn solve(&self, given: &PlanBuilder) -> Result<Plan> {
        Err(cannot_be_planned(given))
    }

    fn has_fixed_size(&self, _plan: &Plan) -> bool {
        false
    }

    fn cells(&self, plan: &Plan) -> u64 {
        plan.items
    }

    fn cache_lines(&self, plan: &Plan) -> u32 {
        BloomPlan::hashes(plan)
    }

    fn rate_at(&self, plan: &Plan, items: f64) -> f64 {
        // From its capacity on, the filter grows, and keeps the rate.
        classic_rate(items, plan.bits as f64, BloomPlan::hashes(plan)).min(plan.rate)
    }

    fn fill_at(&self, plan: &Plan, items: f64) -> f64 {
        classic_fill(items, plan.bits as f64, BloomPlan::hashes(plan))
    }

    fn items_at_fill(&self, plan: &Plan, fill: f64) -> (f64, f64) {
        classic_items(fill, plan.bits as f64, BloomPlan::hashes(plan))
    }

    /// An insert that took its item for one that was there did not count it.
    fn estimate(&self, plan: &Plan, occupied: u64) -> (f64, f64) {
        let half = occupied as f64 * plan.rate / 2.0;
        (occupied as f64 + half, half)
    }
}

/// Of a cuckoo filter.
pub(super) struct CuckooChainPlan;

impl Planner for CuckooChainPlan {
    fn check(&self, plan: &Plan) -> Result<()> {
        check(plan)
    }

    fn solve(&self, given: &PlanBuilder) -> Result<Plan> {
        Err(cannot_be_planned(given))
    }

    fn has_fixed_size(&self, _plan: &Plan) -> bool {
        false
    }

    fn cells(&self, plan: &Plan) -> u64 {
        plan.items
    }

    fn cache_lines(&self, _plan: &Plan) -> u32 {
        2
    }

    fn rate_at(&self, plan: &Plan, items: f64) -> f64 {
        plan.rate * (items / plan.items as f64).min(1.0)
    }

    fn fill_at(&self, plan: &Plan, items: f64) -> f64 {
        (items / plan.items as f64).min(1.0)
    }

    fn items_at_fill(&self, plan: &Plan, fill: f64) -> (f64, f64) {
        (fill * plan.items as f64, 0.0)
    }

    fn estimate(&self, _plan: &Plan, occupied: u64) -> (f64, f64) {
        (occupied as f64, 0.0)
    }
}
