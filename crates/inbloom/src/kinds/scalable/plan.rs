//! The sizes of a scalable filter: those of its first tables, and of the next one whenever one is full.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::table::{HEAD, MAX_LANES, MAX_LEVEL, TAG, TableShape};
use super::{ClaimLengths, LOAD, MAX_SMALL_LEVEL, SHARDS, SMALL_PART, SPARE, half_to, share_of};
use crate::error::{Error, Result};
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
                remedy: "it grows; give the items to start with, and the rate",
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

/// The sizes of its tables, which depend on what is in them already.
impl Plan {
    /// How many bits an address gets when a table is multiplied.
    pub(super) fn growth_bits(&self) -> u32 {
        self.growth.max(2).ilog2()
    }

    /// The most words of a bucket: small steps are for small growth.
    pub(super) fn max_words(&self, lanes: u32) -> u32 {
        if self.growth > 2 { TableShape::min_words(lanes) } else { TableShape::max_words(lanes) }
    }

    /// Slots of a word for the next generation of a table: the most with whose fingerprints errors
    /// are within what it may take, when every slot that it can have is in use.
    pub(super) fn lanes(&self, level: u32, tagged: bool, present: &ClaimLengths) -> u32 {
        self.lanes_for(level, tagged, present, |lanes| self.max_words(lanes))
    }

    fn lanes_for(
        &self,
        level: u32,
        tagged: bool,
        present: &ClaimLengths,
        max_words: impl Fn(u32) -> u32,
    ) -> u32 {
        let (shortest, tag) = match (self.growth, tagged) {
            (_, true) => (TAG, TAG),
            (0, false) => (HEAD, 0),
            (_, false) => (HEAD + SPARE, 0),
        };
        // Among tagged entries, only those of the same shard count.
        let same = |shard: usize| share_of(shard) * share_of(shard);
        let same: f64 = if tagged { (0..SHARDS).map(same).sum() } else { 1.0 };
        let spent = present.rate(127) * same;
        let allowed = match (self.growth, tagged) {
            (0, _) => self.rate - spent,
            (_, false) => (self.rate - spent) * (1.0 - self.tightening),
            (_, true) => self.rate * (1.0 - self.tightening) * SMALL_PART,
        };
        let buckets = math::powi(2.0, level as i32);
        let taken = |lanes: u32| {
            let slots = f64::from(max_words(lanes) * lanes) * buckets;
            let more = (slots - present.count() as f64).max(0.0);
            let length = level + TableShape::print_of(lanes) - tag;
            (present.rate(length) + more * half_to(length)) * same - spent
        };
        let mut possible =
            (2..=MAX_LANES).rev().filter(|lanes| TableShape::print_of(*lanes) >= shortest);
        possible.find(|lanes| taken(*lanes) <= allowed).unwrap_or(1)
    }

    /// The smallest table with room for `items` more, beside what is `present`.
    pub(super) fn shape(
        &self,
        items: f64,
        tagged: bool,
        present: &ClaimLengths,
    ) -> Result<TableShape> {
        let items = items + present.count() as f64;
        // One that cannot grow has to be lucky with the first keys: four deviations of slack.
        let fixed = self.growth == 0;
        let slots =
            if fixed { (items + 4.0 * math::sqrt(items) + 4.0) / LOAD } else { items / LOAD };
        for level in 0..=MAX_LEVEL {
            let most = self.lanes(level, tagged, present);
            for words in TableShape::min_words(most)..=self.max_words(most) {
                // One that cannot grow gets no more slots later.
                let lanes = match fixed {
                    true => self.lanes_for(level, tagged, present, |_| words),
                    false => most,
                };
                let shape = TableShape { level, words, lanes, tagged };
                if shape.is_valid() && shape.all_slots() as f64 >= slots {
                    return Ok(shape);
                }
            }
        }
        Err(Error::TooLarge { bits: slots * SHARDS as f64, max: MAX_BITS })
    }
}

/// The tables of an empty filter: one, or as many as there are shards.
pub(super) fn first_shapes(plan: &Plan) -> Result<Vec<TableShape>> {
    let none = ClaimLengths([0; 128]);
    let items = plan.items() as f64;
    let small = plan.shape(items, true, &none)?;
    if small.level <= MAX_SMALL_LEVEL {
        return Ok(vec![small]);
    }
    (0..SHARDS).map(|i| plan.shape(items * share_of(i), false, &none)).collect()
}

/// The bytes of an empty filter.
fn first_bytes(plan: &Plan) -> Result<u64> {
    Ok(first_shapes(plan)?.into_iter().map(TableShape::bytes).sum())
}
