//! From the plan of a filter to the plans of its shards, and back.
//!
//! Blocked and counting filters are arrays of blocks, and their shards are ranges of it: the number
//! of blocks is rounded up until it divides, and nothing else changes. The other kinds get shards
//! of their own, each for its share of the keys and a margin, because shares are uneven: of n keys
//! in s shards one gets m = n/s on average, with a deviation of sqrt(m).

use super::builder::round_up_to_ranges;
use super::{
    BLOCK_BITS, Kind, MAX_BITS, MAX_SHARDS, MIN_RATE, Plan, RANGE_BLOCKS, Span, cuckoo, ranges,
};
use crate::error::{Error, Result};

impl Plan {
    /// The plan of one shard, counted from 0, of the filter that this plan is for, if its keys are
    /// divided among so many.
    ///
    /// The shard's items are its share; its bits have a margin, as shares are uneven. What
    /// [`Sharded`](crate::Sharded) makes its shards from; a filter made from it takes only keys of
    /// that shard.
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
            return Err(Error::Parameter {
                name: "shard",
                got: shard.to_string(),
                expected: format!("below the number of shards, {shards}"),
            });
        }
        Ok(self.any_shard(shards)?.nth(shard, self))
    }

    /// The plans of all shards, in order.
    pub(crate) fn for_shards(&self, shards: u32) -> Result<Vec<Plan>> {
        let any = self.any_shard(shards)?;
        Ok((0..shards).map(|shard| any.nth(shard, self)).collect())
    }

    /// What [`Plan::for_shards`] has divided: items and bits of all shards together. For blocks it
    /// is the plan of the filter whose bytes the shards' are.
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

    /// The plan of what a shard keeps its keys in.
    pub(crate) fn without_shard(&self) -> Plan {
        Plan { shard: 0, shards: 1, ..*self }
    }

    /// Whether the cells of shards of this plan, one after the other, are those of one filter:
    /// picking a shard and then its block is picking the block at once. With two lines per key the
    /// ranges must be the same too, since the second line is another block of the range.
    pub(crate) fn concatenates(&self) -> bool {
        let shards = u64::from(self.shards);
        let one_array = matches!(self.kind, Kind::Blocked | Kind::Counting);
        let same_ranges = || {
            let whole = self.blocks().saturating_mul(shards);
            ranges(self.blocks()) * shards == ranges(whole)
        };
        shards == 1 || (one_array && (self.lines == 1 || same_ranges()))
    }

    fn nth(&self, shard: u32, whole: &Plan) -> Plan {
        let shards = u64::from(self.shards);
        let more = u64::from(u64::from(shard) < whole.items % shards);
        let items = match self.kind {
            // Its tables depend on them, and are to be the same in all shards.
            Kind::Scalable => self.items,
            _ => whole.items / shards + more,
        };
        Plan { shard, items, ..*self }
    }

    /// The plan of the first shard: the others have the same shape.
    fn any_shard(&self, shards: u32) -> Result<Plan> {
        let parameter = |got: String, expected: &str| {
            Err(Error::Parameter { name: "shards", got, expected: expected.to_owned() })
        };
        if !(1..=MAX_SHARDS).contains(&shards) {
            return parameter(shards.to_string(), "1 to 2^20");
        }
        if let Some((shard, shards)) = self.shard() {
            return parameter(
                format!("given for shard {shard} of {shards}"),
                "given for a whole filter",
            );
        }
        let plan = match self.kind {
            Kind::Bitmap | Kind::Ribbon => return Err(cannot_shard(self.kind)),
            _ if shards == 1 => *self,
            Kind::Blocked | Kind::Counting => {
                let whole = self.dividing_into(shards)?;
                Plan { bits: whole.bits / u64::from(shards), ..whole }
            }
            Kind::Cuckoo => self.cuckoo_shard(shards)?,
            Kind::Scalable => self.scalable_shard(shards)?,
            Kind::Classic | Kind::Window => self.roomy_shard(shards)?,
        };
        Plan { shard: 0, shards, ..plan }.check()
    }

    /// This plan of blocks with as many more as let it divide evenly into so many shards. Where two
    /// lines per key would take more bits that way than one line, it has one.
    fn dividing_into(&self, shards: u32) -> Result<Plan> {
        let with_blocks = |blocks: u64| {
            let bits = blocks * BLOCK_BITS;
            if bits > MAX_BITS {
                return Err(Error::TooLarge { bits: bits as f64, max: MAX_BITS });
            }
            Ok(Plan { bits, ..*self })
        };
        let count = u64::from(shards);
        let each = self.blocks().div_ceil(count);
        if self.lines == 1 {
            return with_blocks(each * count);
        }
        let two_lines = with_blocks(round_up_to_shard(each.max(2), count) * count);
        if two_lines.as_ref().is_ok_and(|plan| plan.bits == self.bits) {
            return two_lines;
        }
        let mut one_line =
            Plan::builder(self.kind).items(self.items).rate(self.offered_rate()).lines(1);
        if self.kind == Kind::Counting {
            one_line = one_line.width(self.width);
        }
        let one_line = one_line.build().and_then(|plan| plan.dividing_into(shards));
        match (one_line, two_lines) {
            (Ok(one), Ok(two)) => Ok(if one.bits < two.bits { one } else { two }),
            (Ok(plan), Err(_)) | (Err(_), Ok(plan)) => Ok(plan),
            (Err(_), Err(error)) => Err(error),
        }
    }

    /// A plan made from bytes may promise less than plans offer.
    fn offered_rate(&self) -> f64 {
        self.rate.max(MIN_RATE)
    }

    /// A shard of a kind that takes more keys than planned, at a higher rate.
    ///
    /// The rate is to hold on average over the shards. It is convex in the keys, so that shards
    /// above the mean cost more than those below save: about k^2 / 2m of the rate. A margin of two
    /// deviations saves 2k / sqrt(m) of it, which is more from m = k^2 / 16 on, that is from 100
    /// keys for the lowest rates. Below 256 the mean is computed, and the margin raised until it
    /// holds.
    fn roomy_shard(&self, shards: u32) -> Result<Plan> {
        let mean = self.items as f64 / f64::from(shards);
        // A window's generations fill one by one, and unevenly each.
        let steps = f64::from(self.generations.max(1));
        let mean_of_one = mean / steps;
        let fixed = match self.span {
            // It begins the next generation after so many keys of its own. That must not be too
            // soon: a key would be forgotten before as many as the window came to all shards.
            Some(Span::Items(_)) => Some(self.most_of_a_share(shards)),
            _ => None,
        };
        let mut of_one = mean_of_one + 2.0 * mean_of_one.sqrt();
        loop {
            let items = fixed.unwrap_or((of_one * steps).ceil() as u64);
            let plan = self.roomy_plan(items, shards)?;
            let part = if self.kind == Kind::Window { plan.generation() } else { plan };
            let small = mean_of_one < 256.0 && self.items > 0 && fixed.is_none();
            if !small || part.mean_rate(mean_of_one) <= part.rate {
                return Ok(plan);
            }
            of_one += (of_one / 16.0).max(1.0);
        }
    }

    /// The fewest bits for a shard of so many items, but no fewer than its share.
    fn roomy_plan(&self, items: u64, shards: u32) -> Result<Plan> {
        let mut builder = Plan::builder(self.kind).rate(self.offered_rate()).probes(self.probes);
        if self.kind == Kind::Window {
            builder = builder.lines(self.lines).generations(self.generations);
        }
        builder = match self.span {
            None => builder.items(items),
            Some(Span::Items(_)) => builder.last(items.max(u64::from(self.generations))),
            Some(Span::Millis(millis)) => {
                builder.items(items).window(std::time::Duration::from_millis(millis))
            }
        };
        let plan = builder.build()?;
        let share = self.bits.div_ceil(u64::from(shards));
        let share = match (self.kind, self.lines) {
            (Kind::Window, 1) => share.next_multiple_of(BLOCK_BITS),
            (Kind::Window, _) => round_up_to_ranges(share.div_ceil(BLOCK_BITS).max(2)) * BLOCK_BITS,
            _ => share,
        };
        Ok(Plan { bits: plan.bits.max(share), ..plan })
    }

    /// The rate on average over shards that are expected to have `mean` keys each: numbers of keys
    /// are Poisson. For small means only: it goes through all numbers that matter.
    fn mean_rate(&self, mean: f64) -> f64 {
        let most = (mean + 12.0 * mean.sqrt() + 40.0) as u32;
        let mut chance = (-mean).exp();
        let mut sum = 0.0;
        for keys in 0..most {
            sum += chance * self.rate_at(f64::from(keys));
            chance *= mean / f64::from(keys + 1);
        }
        sum
    }

    /// The keys that a shard gets of this plan's, but for a chance of less than one in a million:
    /// five deviations, and five more because small shares are Poisson, whose tail is longer.
    fn most_of_a_share(&self, shards: u32) -> u64 {
        let mean = self.items as f64 / f64::from(shards);
        ((mean + 5.0 * mean.sqrt()).ceil() as u64 + 5).min(self.items)
    }

    /// A shard that can fill up.
    fn cuckoo_shard(&self, shards: u32) -> Result<Plan> {
        let items = self.most_of_a_share(shards);
        let plan = Plan::builder(self.kind).items(items).rate(self.offered_rate()).build()?;
        let share = self.bits / u64::from(shards);
        // Whoever gave it more bits than it needs has wider fingerprints.
        let shape = cuckoo::widest(items, share).filter(|shape| shape.bits() > plan.bits);
        Ok(shape.map_or(plan, |shape| Plan { bits: shape.bits(), width: shape.width, ..plan }))
    }

    /// A shard that grows, and so needs no margin, unless it was told not to.
    fn scalable_shard(&self, shards: u32) -> Result<Plan> {
        let items = match self.growth {
            0 => self.most_of_a_share(shards),
            _ => self.items.div_ceil(u64::from(shards)),
        };
        Plan::builder(self.kind)
            .items(items)
            .rate(self.rate)
            .growth(self.growth)
            .tightening(self.tightening)
            .build()
    }
}

pub(crate) fn cannot_shard(kind: Kind) -> Error {
    let remedy = match kind {
        Kind::Ribbon => "it has shards of its own, which are built one by one already",
        _ => {
            "an integer is not hashed, so that keys would not spread; use one bitmap for each \
             range of integers"
        }
    };
    Error::Unsupported { kind, verb: "be divided into shards", remedy }
}

/// The fewest blocks of a shard, at least `blocks`, with which all shards together divide into as
/// many ranges as the shards have, each of the same length.
///
/// With r blocks at most to a range, b = qr - d blocks have q ranges (0 <= d < r). They divide
/// evenly if q divides d, and s times as many blocks have s times as many ranges if sd < r.
fn round_up_to_shard(blocks: u64, shards: u64) -> u64 {
    let ranges = ranges(blocks);
    let most = ranges * RANGE_BLOCKS;
    let short = (most - blocks).min((RANGE_BLOCKS - 1) / shards);
    most - short / ranges * ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By trying all.
    #[test]
    fn shards_of_two_lines_are_the_smallest_that_divide() {
        for shards in [1, 2, 3, 7, 16, 100, 5000, 20_000] {
            for blocks in [2, 3, 1000, 8191, 16_000, 16_383, 16_384, 30_000, 32_766, 50_000] {
                let divides = |each: &u64| {
                    each.is_multiple_of(ranges(*each))
                        && ranges(each * shards) == shards * ranges(*each)
                };
                let naive = (blocks..).find(divides).expect("a multiple of the range does");
                assert_eq!(round_up_to_shard(blocks, shards), naive, "{blocks} blocks, {shards}");
            }
        }
    }

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
        assert!(text(bitmap.for_shard(0, 2)).contains("an integer is not hashed"));
        let strange = Plan { shards: 3, ..bitmap };
        assert!(strange.check().is_err());
    }
}
