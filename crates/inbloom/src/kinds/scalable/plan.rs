//! The sizes of a scalable filter: those of its first tables, and how wide their slots are.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::table::{MAX_LEVEL, MAX_PLANES, SlotShape, Table};
use super::{LOAD, SHARDS, SMALL_BUCKETS, half_to};
use crate::error::{Error, Result};
use crate::kernels::lanes::LANES;
use crate::math;
use crate::plan::planner::Planner;
use crate::plan::search::DEFAULT_RATE;
use crate::plan::{
    MAX_BITS, MAX_ITEMS, MIN_RATE, Plan, PlanBuilder, RATE_RANGE, largest, parameter,
};

/// Items that a plan is for if it is given none, as RedisBloom has it.
pub(crate) const FIRST_ITEMS: u64 = 100;
/// Factors by which a part of a scalable filter can grow; 0 is not at all.
const GROWTHS: [u32; 4] = [0, 2, 4, 8];
/// The share of the unspent rate that a growth leaves to later ones, unless told.
const DEFAULT_TIGHTENING: f64 = 0.8;
const TIGHTENINGS: RangeInclusive<f64> = 0.5..=0.99;

pub(crate) struct ScalablePlan;

impl Planner for ScalablePlan {
    fn check(&self, plan: &Plan) -> Result<()> {
        if !(1..=MAX_ITEMS).contains(&plan.items) {
            return parameter("items", plan.items, "1 to 10^15 for kind scalable");
        }
        if !(MIN_RATE..1.0).contains(&plan.rate) {
            return Err(Error::Rate { got: plan.rate, reason: RATE_RANGE });
        }
        check_growth(plan.growth, plan.tightening)
    }

    fn check_given(&self, given: &PlanBuilder) -> Result<()> {
        let growth = given.growth.unwrap_or(0);
        check_growth(growth, given.tightening.unwrap_or(DEFAULT_TIGHTENING))
    }

    fn solve(&self, given: &PlanBuilder) -> Result<Plan> {
        if given.bytes.is_some() || given.bits_per_key.is_some() {
            return Err(Error::Unsupported {
                kind: given.kind,
                verb: "be planned from its memory",
                remedy: "give the number of keys to start with, and the rate",
            });
        }
        let items = given.items.unwrap_or(FIRST_ITEMS).max(1);
        let plan = Plan {
            items,
            rate: given.rate.unwrap_or(DEFAULT_RATE),
            growth: given.growth.unwrap_or(2),
            tightening: given.tightening.unwrap_or(DEFAULT_TIGHTENING),
            ..Plan::blank(given.kind)
        };
        Plan { bits: first_bytes(&plan)? * 8, ..plan }.check()
    }

    /// A shard that grows needs no margin.
    fn shard(&self, plan: &Plan, shards: u32) -> Result<Plan> {
        let items = match plan.growth {
            0 => plan.most_of_a_share(shards),
            _ => plan.items.div_ceil(u64::from(shards)),
        };
        Plan::builder(plan.kind)
            .items(items)
            .rate(plan.rate)
            .growth(plan.growth)
            .tightening(plan.tightening)
            .build()
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
        if items <= 0.0 { 0.0 } else { plan.rate }
    }

    fn items_at(&self, plan: &Plan, rate: f64) -> u64 {
        match plan.growth {
            _ if rate < plan.rate => 0,
            0 => plan.items,
            _ => largest(MAX_ITEMS, |items| self.rate_at(plan, items as f64) <= rate),
        }
    }

    fn fill_at(&self, plan: &Plan, items: f64) -> f64 {
        (items / self.cells(plan) as f64).min(1.0)
    }

    fn items_at_fill(&self, plan: &Plan, fill: f64) -> (f64, f64) {
        (fill * self.cells(plan) as f64, 0.0)
    }

    /// A fingerprint each, but for those that an insert took for one that was there: none at first,
    /// and the share of the rate at most.
    fn estimate(&self, plan: &Plan, occupied: u64) -> (f64, f64) {
        let half = occupied as f64 * plan.rate / 2.0;
        (occupied as f64 + half, half)
    }

    fn capacity(&self, plan: &Plan) -> Option<u64> {
        (plan.growth == 0).then_some(plan.items)
    }

    fn is_full(&self, plan: &Plan, occupied: u64) -> bool {
        self.capacity(plan).is_some_and(|capacity| occupied >= capacity)
    }
}

fn check_growth(growth: u32, tightening: f64) -> Result<()> {
    if !GROWTHS.contains(&growth) {
        return parameter("growth", growth, "2, 4 or 8, or 0 for none");
    }
    if !TIGHTENINGS.contains(&tightening) {
        return parameter("tightening", tightening, "0.5 to 0.99");
    }
    Ok(())
}

/// Slots of a bucket.
const SLOTS: f64 = LANES as f64;
/// The keys up to which a filter that grows is to do without wider slots, as a power of two of
/// buckets: 2^27 buckets, 10^9 keys.
const FORESEEN: u32 = 27;
/// The part of the share that a growth takes by the tightening which is kept for the time after that.
const KEPT: f64 = 1.0 / 8.0;

impl Plan {
    /// What tables may spend of the rate as long as their slots can still become wider.
    fn spendable(&self) -> f64 {
        self.rate * (1.0 - (1.0 - self.tightening) * KEPT)
    }

    /// Whether what is left of the rate is enough for another generation of a table: as many entries
    /// as it has slots now, or as many as it is for.
    pub(super) fn has_rate_left(&self, table: &Table) -> bool {
        let slots = table.slots();
        slots.is_wide || table.rate() + generation_rate(slots) <= self.spendable()
    }

    /// The slots of an empty filter: as few planes as the rate allows for all generations that are
    /// foreseen.
    fn slots(&self, buckets: u64) -> SlotShape {
        let is_small = buckets <= SMALL_BUCKETS;
        let mut slots = SlotShape { is_wide: is_small, planes: 0, is_tagged: is_small };
        let narrow = SlotShape { is_wide: false, is_tagged: false, ..slots };
        let later = FORESEEN.saturating_sub(buckets.max(SMALL_BUCKETS).ilog2());
        // The first may have nearly twice the buckets of the power of two that decides its lengths.
        let (first, generations) = match (self.growth, is_small) {
            (0, true) => (SlotShape { is_tagged: false, ..slots }, 2),
            (0, false) => (narrow, 2),
            _ => (narrow, 2 + later),
        };
        let taken =
            |planes: u32| f64::from(generations) * generation_rate(SlotShape { planes, ..first });
        slots.planes =
            (0..MAX_PLANES).find(|planes| taken(*planes) <= self.spendable()).unwrap_or(MAX_PLANES);
        slots
    }
}

/// What the entries of one generation claim: as many as there are slots at its beginning.
fn generation_rate(slots: SlotShape) -> f64 {
    SLOTS * half_to(slots.print())
}

/// The fewest buckets that so many entries leave uncrowded.
pub(super) fn buckets_for(entries: f64) -> u64 {
    math::ceil(entries / (SLOTS * LOAD)).max(1.0) as u64
}

/// The tables of an empty filter: how slots are laid out, and the buckets of one table or of as many
/// as there are shards.
pub(super) fn first_tables(plan: &Plan) -> Result<(SlotShape, Vec<u64>)> {
    // One that cannot grow has to be lucky with the first keys: four deviations of slack.
    let with_slack = |items: f64| match plan.growth {
        0 => items + 4.0 * math::sqrt(items) + 4.0,
        _ => items,
    };
    let items = plan.items() as f64;
    let all = buckets_for(with_slack(items));
    let each = buckets_for(with_slack(items / SHARDS as f64));
    let slots = plan.slots(all);
    let buckets = if slots.is_tagged { vec![all] } else { vec![each; SHARDS] };
    let bytes = slots.bytes(each).and_then(|bytes| bytes.checked_mul(SHARDS as u64));
    if each >= 1 << MAX_LEVEL || bytes.is_none_or(|bytes| bytes > MAX_BITS / 8) {
        let bits = each as f64 * (slots.stride() * SHARDS * 8) as f64;
        return Err(Error::TooLarge { bits, max: MAX_BITS });
    }
    Ok((slots, buckets))
}

/// The bytes of an empty filter.
pub(super) fn first_bytes(plan: &Plan) -> Result<u64> {
    let (slots, buckets) = first_tables(plan)?;
    // Whole chunks are multiples of 64 bytes, so that a table in chunks takes no more than in one.
    Ok(buckets.iter().filter_map(|buckets| slots.bytes(*buckets)).sum())
}
