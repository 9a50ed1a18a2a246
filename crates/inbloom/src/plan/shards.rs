//! From the plan of a filter to the plans of its shards, and back.
//!
//! Kinds that are arrays of blocks have shards that are ranges of it, see [`lines`](super::lines).
//! The others get shards of their own, each for its share of the keys and a margin, because shares
//! are uneven: of n keys in s shards one gets m = n/s on average, with a deviation of sqrt(m).

use alloc::vec::Vec;

use super::{MAX_SHARDS, MIN_RATE, Plan, Span, parameter};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::math;

impl Plan {
    /// Returns the plan of one shard, counted from 0, when the keys of this plan are divided among
    /// this number of shards.
    ///
    /// The shard's items are its share of the keys. Its bits have a margin, because shares are
    /// uneven. [`Filter::sharded`](crate::Filter::sharded) uses these plans. A filter with such a
    /// plan takes only keys of that shard.
    ///
    /// # Errors
    ///
    /// Refuses a kind that cannot be divided, and numbers out of range.
    ///
    /// ```
    /// use inbloom::{Kind, Plan};
    ///
    /// let whole = Plan::builder(Kind::Blocked).items(1_000_000).rate(0.001).build()?;
    /// let part = whole.for_shard(3, 16)?;
    /// assert_eq!(part.shard(), Some((3, 16)));
    /// assert_eq!(part.items(), 62_500);
    /// assert!(part.bytes() * 16 - whole.bytes() < 16 * 64);
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn for_shard(&self, shard: u32, shards: u32) -> Result<Plan> {
        if shard >= shards.max(1) {
            let expected = format_args!("below the number of shards, {shards}");
            return parameter("shard", shard, expected);
        }
        Ok(self.any_shard(shards)?.nth(shard, self))
    }

    /// Returns the plans of all shards, in order.
    pub(crate) fn for_shards(&self, shards: u32) -> Result<Vec<Plan>> {
        let any = self.any_shard(shards)?;
        Ok((0..shards).map(|shard| any.nth(shard, self)).collect())
    }

    /// Returns what [`Plan::for_shards`] has divided: items and bits of all shards together. For
    /// blocks it is the plan of the filter whose bytes the shards' are.
    pub(crate) fn of_shards<'a>(plans: impl IntoIterator<Item = &'a Plan>) -> Option<Plan> {
        let one = |plan: &Plan| Plan { shard: 0, shards: 1, ..*plan };
        let add = |sum: Plan, next: Plan| Plan {
            items: sum.items.saturating_add(next.items),
            bits: sum.bits.saturating_add(next.bits),
            ..sum
        };
        let whole = plans.into_iter().map(one).reduce(add)?;
        let span = match whole.span {
            // A shard's window has a margin, its items have none.
            Some(Span::Items(_)) => Some(Span::Items(whole.items)),
            other => other,
        };
        Some(Plan { span, ..whole })
    }

    /// Returns the plan of what a shard keeps its keys in.
    pub(crate) fn without_shard(&self) -> Plan {
        Plan { shard: 0, shards: 1, ..*self }
    }

    /// Returns whether the cells of shards of this plan, one after the other, are those of one
    /// filter.
    pub(crate) fn concatenates(&self) -> bool {
        self.shards == 1 || self.kind.planner().concatenates(self)
    }

    fn nth(&self, shard: u32, whole: &Plan) -> Plan {
        let shards = u64::from(self.shards);
        let more = u64::from(u64::from(shard) < whole.items % shards);
        // Tables that grow depend on their items, and are to be the same in all shards.
        let items = if self.kind.can_grow() { self.items } else { whole.items / shards + more };
        Plan { shard, items, ..*self }
    }

    /// Returns the plan of the first shard: the others have the same shape.
    fn any_shard(&self, shards: u32) -> Result<Plan> {
        if !(1..=MAX_SHARDS).contains(&shards) {
            return parameter("shards", shards, "1 to 2^20");
        }
        if let Some((shard, shards)) = self.shard() {
            let got = format_args!("given for shard {shard} of {shards}");
            return parameter("shards", got, "given for a whole filter");
        }
        self.kind.check_divisible()?;
        let plan = match shards {
            1 => *self,
            _ => self.kind.planner().shard(self, shards)?,
        };
        Plan { shard: 0, shards, ..plan }.check()
    }

    /// A plan made from bytes may have a lower rate than plans offer.
    pub(crate) fn offered_rate(&self) -> f64 {
        self.rate.max(MIN_RATE)
    }

    /// Returns the plan of a shard of a kind that takes more keys than planned, at a higher rate,
    /// and whose cells fill in so many steps. `plan` makes it for a number of items; `part` gives
    /// the plan of what fills in a step.
    ///
    /// The rate is to hold on average over the shards. It is convex in the keys, so that shards
    /// above the mean cost more than those below save: about k^2 / 2m of the rate. A margin of two
    /// deviations saves 2k / sqrt(m) of it, which is more from m = k^2 / 16 on, that is from 100
    /// keys for the lowest rates. Below 256 the mean is computed, and the margin raised until it
    /// holds.
    pub(crate) fn roomy_shard(
        &self,
        shards: u32,
        steps: u32,
        plan: impl Fn(u64) -> Result<Plan>,
        part: impl Fn(&Plan) -> Plan,
    ) -> Result<Plan> {
        let steps = f64::from(steps);
        let mean_of_one = self.items as f64 / f64::from(shards) / steps;
        let mut of_one = mean_of_one + 2.0 * math::sqrt(mean_of_one);
        loop {
            let plan = plan(math::ceil(of_one * steps) as u64)?;
            let part = part(&plan);
            let small = mean_of_one < 256.0 && self.items > 0;
            if !small || part.mean_rate(mean_of_one) <= part.rate {
                return Ok(plan);
            }
            of_one += (of_one / 16.0).max(1.0);
        }
    }

    /// Returns the rate on average over shards that are expected to have `mean` keys each: numbers
    /// of keys are Poisson. For small means only: it goes through all numbers that matter.
    fn mean_rate(&self, mean: f64) -> f64 {
        let most = (mean + 12.0 * math::sqrt(mean) + 40.0) as u32;
        let mut chance = math::exp(-mean);
        let mut sum = 0.0;
        for keys in 0..most {
            sum += chance * self.rate_at(f64::from(keys));
            chance *= mean / f64::from(keys + 1);
        }
        sum
    }

    /// Returns the keys that a shard gets of this plan's, but for a chance of less than one in a
    /// million: five deviations, and five more because small shares are Poisson, whose tail is
    /// longer.
    pub(crate) fn most_of_a_share(&self, shards: u32) -> u64 {
        let mean = self.items as f64 / f64::from(shards);
        (math::ceil(mean + 5.0 * math::sqrt(mean)) as u64 + 5).min(self.items)
    }
}

impl Kind {
    /// Refuses a kind that cannot be divided into shards.
    pub(crate) fn check_divisible(self) -> Result<()> {
        match self.undivided() {
            None => Ok(()),
            Some(remedy) => {
                Err(Error::Unsupported { kind: self, verb: "be divided into shards", remedy })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for kind in [Kind::Classic, Kind::Blocked, Kind::Counting, Kind::Cuckoo] {
            for (items, shards) in [(0, 3), (1, 3), (100, 7), (1_000_003, 16)] {
                let whole = Plan::builder(kind).items(items).rate(1e-4).build().unwrap();
                let plans = whole.for_shards(shards).unwrap();
                assert_eq!(plans.len(), shards as usize);
                assert!(plans.iter().all(|plan| plan.bits == plans[0].bits));
                let sum = Plan::of_shards(&plans).unwrap();
                assert_eq!(sum.items, items, "{kind}");
                assert!(sum.bits >= whole.bits, "{kind}: {} of {}", sum.bits, whole.bits);
                assert_eq!(plans[1], whole.for_shard(1, shards).unwrap());
                assert_eq!(whole.for_shards(1).unwrap(), [whole]);
            }
        }
    }

    /// What has been divided once divides again without change.
    #[test]
    fn a_rounded_plan_is_left_alone() {
        for (items, rate) in [(10_000, 0.01), (2_000_000, 1e-6), (50_000_000, 1e-6)] {
            let plan = Plan::builder(Kind::Blocked).items(items).rate(rate).build().unwrap();
            for shards in [2, 7, 16] {
                let whole = Plan::of_shards(&plan.for_shards(shards).unwrap()).unwrap();
                let again = Plan::of_shards(&whole.for_shards(shards).unwrap()).unwrap();
                assert_eq!(whole, again);
                assert!(whole.bits as f64 <= plan.bits as f64 * 1.4, "{items} in {shards}");
            }
        }
    }

    #[test]
    fn what_cannot_be_divided_says_so() {
        let plan = Plan::builder(Kind::Blocked).items(1000).build().unwrap();
        let text = |result: Result<Plan>| result.unwrap_err().to_string();
        assert_eq!(text(plan.for_shard(0, 0)), "shards is 0, but must be 1 to 2^20");
        assert!(text(plan.for_shard(5, 5)).contains("shard is 5, but must be below"));
        let part = plan.for_shard(1, 4).unwrap();
        assert!(text(part.for_shard(0, 2)).contains("shard 1 of 4"));
        let bitmap = Plan::builder(Kind::Bitmap).universe(1000).build().unwrap();
        assert!(text(bitmap.for_shard(0, 2)).contains("integers are not hashed"));
        let strange = Plan { shards: 3, ..bitmap };
        assert!(strange.check().is_err());
    }
}
