//! What a plan asks of its kind.

use super::{MAX_ITEMS, Plan, PlanBuilder, largest};
use crate::error::{Error, Result};
use crate::kind::Kind;

/// The sizes and rates of one kind: gives the numbers of a [`Plan`] their meaning.
///
/// Each kind implements it in its `plan.rs`. What most kinds have in common is written here, or in
/// [`lines`](super::lines) and [`search`](super::search).
pub(crate) trait Planner: Sync {
    /// Refuses fields from which no filter can be built. [`Plan::check_shape`] sees to it that
    /// fields which the kind does not have are absent.
    fn check(&self, plan: &Plan) -> Result<()>;

    /// Refuses what was asked for, beyond what holds for every kind.
    fn check_given(&self, _given: &PlanBuilder) -> Result<()> {
        Ok(())
    }

    /// Finds the plan for what was asked for, which has been checked.
    fn solve(&self, given: &PlanBuilder) -> Result<Plan>;

    /// Makes the plan of so many bits and probes.
    fn exact(&self, kind: Kind, _bits: u64, _probes: u32) -> Result<Plan> {
        let remedy = "give the number of keys and the rate";
        Err(Error::Unsupported { kind, verb: "be planned from bits and probes", remedy })
    }

    /// Makes the plan of the first of so many shards, two or more, for a kind that has shards.
    fn shard(&self, plan: &Plan, _shards: u32) -> Result<Plan> {
        plan.kind.check_divisible().map(|()| *plan)
    }

    /// Returns whether the cells of all shards, one after the other, are those of one filter.
    fn concatenates(&self, _plan: &Plan) -> bool {
        false
    }

    /// Returns the bytes of the payload.
    fn bytes(&self, plan: &Plan) -> u64 {
        plan.bits.div_ceil(64) * 8
    }

    /// Returns whether that is what it takes exactly.
    fn has_fixed_size(&self, _plan: &Plan) -> bool {
        true
    }

    /// All bits, of which [`Plan::bits`] may be a part.
    fn all_bits(&self, plan: &Plan) -> f64 {
        plan.bits as f64
    }

    /// Returns the slots, which positions number.
    fn positions(&self, plan: &Plan) -> u64 {
        plan.bits / u64::from(plan.width)
    }

    /// Returns the cells that keys can use.
    fn cells(&self, plan: &Plan) -> u64 {
        self.positions(plan)
    }

    /// Returns the cache lines that a query of a member touches.
    fn cache_lines(&self, plan: &Plan) -> u32;

    /// Returns the rate with `items` distinct keys.
    fn rate_at(&self, plan: &Plan, items: f64) -> f64;

    /// Returns the most items at which the rate is at most `rate`.
    fn items_at(&self, plan: &Plan, rate: f64) -> u64 {
        largest(MAX_ITEMS, |items| self.rate_at(plan, items as f64) <= rate)
    }

    /// Returns the share of cells expected to be in use with `items` distinct keys, more than none.
    fn fill_at(&self, plan: &Plan, items: f64) -> f64;

    /// Returns the number of keys at which a share of cells is in use, less than all, and one
    /// standard deviation.
    fn items_at_fill(&self, plan: &Plan, fill: f64) -> (f64, f64);

    /// Returns the rate when this share of cells is in use.
    fn rate_at_fill(&self, plan: &Plan, fill: f64) -> f64 {
        self.rate_at(plan, plan.items_at_fill(fill).0)
    }

    /// Returns the number of distinct keys when so many cells are in use, and one standard
    /// deviation.
    fn estimate(&self, plan: &Plan, occupied: u64) -> (f64, f64) {
        plan.items_at_fill(occupied as f64 / self.cells(plan) as f64)
    }

    /// Returns the share of counters expected at their maximum.
    fn saturation(&self, _plan: &Plan) -> f64 {
        0.0
    }

    /// Returns the most keys that are sure to fit, in a kind that refuses more.
    fn capacity(&self, _plan: &Plan) -> Option<u64> {
        None
    }

    /// Returns whether keys may be refused once so many cells are in use.
    fn is_full(&self, plan: &Plan, occupied: u64) -> bool {
        self.capacity(plan).is_some_and(|capacity| occupied > capacity)
    }
}
