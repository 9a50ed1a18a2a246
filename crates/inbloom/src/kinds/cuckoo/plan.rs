//! The sizes of a cuckoo filter: how many keys fit into its buckets, and how often an absent key is
//! a false positive.

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::kinds::buckets::{MAX_WIDTH, SLOTS, Slots};
use crate::math;
use crate::plan::planner::Planner;
use crate::plan::search::{self, Search, too_few_bytes};
use crate::plan::{MAX_BITS, MAX_ITEMS, Plan, PlanBuilder, largest, parameter};

/// The narrowest fingerprint: with one bit all keys would look the same.
pub(crate) const MIN_WIDTH: u32 = 2;

/// How many buckets there are, and the bits of a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CuckooShape {
    pub buckets: u64,
    pub width: u32,
}

impl CuckooShape {
    pub(crate) fn slots(self) -> u64 {
        self.buckets * SLOTS as u64
    }

    pub(crate) fn bits(self) -> u64 {
        self.slots() * u64::from(self.width)
    }

    pub(crate) fn bytes(self) -> u64 {
        Slots::new(self.width).bytes(self.buckets)
    }
}

/// The rate of a table of `buckets` with `items` distinct keys.
///
/// It does not matter in which of its buckets an entry is: a foreign key meets a member if they
/// have the same fingerprint, one of F = 2^w - 1, and the same two buckets. Its first bucket then
/// is either of the member's two, so that this has probability 2 / BF, or 1 / BF for a key whose
/// buckets coincide, which for odd B is one in B.
pub(crate) fn rate(items: f64, buckets: u64, width: u32) -> f64 {
    let prints = (math::powi(2.0, width as i32) - 1.0) * buckets as f64;
    let meets = |chance: f64| -math::exp_m1(items * math::ln_1p(-chance));
    let coincide = if buckets.is_multiple_of(2) { 0.0 } else { 1.0 / buckets as f64 };
    let one = if coincide > 0.0 { coincide * meets(1.0 / prints) } else { 0.0 };
    let two = if coincide < 1.0 { (1.0 - coincide) * meets(2.0 / prints) } else { 0.0 };
    one + two
}

/// Items that fit into so many buckets, but for a chance of 10^-6.
///
/// By Hall's theorem keys fit unless more than 4s of them have both their buckets among some s. For
/// a even and b odd ones, s = a + b, of m each, that has at most the probability C(m,a) C(m,b)
/// P[Binomial(n, ab/m^2) > 4s]. The sum over all a and b is below 10^-6 for the numbers n given
/// here, and a search for room sees all of such a table. (Measured: 7 refusals in 16 million tables
/// of 6 to 32 buckets, with 8 and 12 bits.) From 200 buckets on the sum allows 95%; larger tables
/// were measured to take more, see the top.
pub(crate) fn capacity(buckets: u64) -> u64 {
    /// For 2, 4, 6, ... 32 buckets.
    const FEW: [u64; 16] = [8, 8, 10, 15, 20, 26, 33, 40, 48, 56, 65, 73, 80, 88, 95, 103];
    match buckets {
        0 => 0,
        1 => 4,
        // With C(B,s) P[Binomial(n, s^2/B^2) > 4s]: five keys may have one and the same bucket
        // twice.
        _ if buckets % 2 == 1 => {
            capacity(buckets - 1).min(buckets.saturating_mul(buckets) / 12).max(4)
        }
        2..=32 => FEW[buckets as usize / 2 - 1],
        // The largest difference to 95% is 27, at 80 buckets.
        _ => (buckets * 19 / 5 - 28).max(FEW[15]),
    }
}

/// The fewest buckets into which so many items fit: one, or an even number.
pub(crate) fn buckets_for(items: u64) -> u64 {
    if items <= 4 {
        return 1;
    }
    // At most two less than needed, by the slope of `capacity`, or in the small ones a few.
    let mut buckets = if items <= 103 { 2 } else { (items + 28) / 19 * 5 / 2 * 2 };
    while capacity(buckets) < items {
        buckets += 2;
    }
    buckets
}

/// The shape of the fewest bits that takes so many items and then has at most this rate, between 0
/// and 1 and no lower than plans offer.
///
/// A wider fingerprint in as few buckets as the items need, or a narrower one in some more: the
/// latter if the rate is only just missed.
pub(crate) fn shape_for(items: u64, rate: f64) -> CuckooShape {
    let items = items.max(1);
    let fewest = buckets_for(items);
    // The largest chance that a foreign key may have to meet a given member.
    let chance = -math::exp_m1(math::ln_1p(-rate) / items as f64);
    let shapes = (MIN_WIDTH..=MAX_WIDTH).filter_map(|width| {
        let prints = math::powi(2.0, width as i32) - 1.0;
        if fewest == 1 && 1.0 / prints <= chance {
            return Some(CuckooShape { buckets: 1, width });
        }
        let needed = 2.0 / (prints * chance);
        // With so many, one more bit would halve them.
        if needed > 2.0 * (fewest + 1) as f64 {
            return None;
        }
        let mut buckets = (math::ceil(needed) as u64).max(fewest).next_multiple_of(2);
        while self::rate(items as f64, buckets, width) > rate {
            buckets += 2;
        }
        (width >= narrowest(buckets)).then_some(CuckooShape { buckets, width })
    });
    shapes.min_by_key(|shape| shape.bits()).expect("56 bits reach the lowest rate")
}

/// The narrowest fingerprint with which items fit up to the capacity.
///
/// Keys of one fingerprint and one pair of buckets fit only 8 times. There are BF/2 such classes
/// with L = 8 * 0.95 / F keys each, and BF/2 * L^9 / 9! is to be below 10^-6: w > (log2 B + 27) /
/// 8. In small tables few fingerprints also mean few, uneven pairs. With 6 bits at most 1 table in
/// 10^5 was refused a key before its capacity, with 4 bits it was 1 in 6000.
pub(crate) fn narrowest(buckets: u64) -> u32 {
    match buckets {
        ..=2 => MIN_WIDTH, // There is one pair only, and room for 8 of anything.
        _ => math::floor((math::log2(buckets as f64) + 27.0) / 8.0).max(5.0) as u32 + 1,
    }
}

/// The shape with the fewest bits that takes so many items at all.
pub(crate) fn narrowest_shape(items: u64) -> CuckooShape {
    let buckets = buckets_for(items.max(1));
    CuckooShape { buckets, width: narrowest(buckets) }
}

/// The shape with the widest fingerprints that takes so many items in so many bits; None if there is none.
pub(crate) fn widest(items: u64, bits: u64) -> Option<CuckooShape> {
    let narrow = narrowest_shape(items);
    let fits = |width: &u32| CuckooShape { width: *width, ..narrow }.bytes() <= bits / 8;
    (narrow.width..=MAX_WIDTH).rev().find(fits).map(|width| CuckooShape { width, ..narrow })
}

impl Plan {
    /// The buckets of a cuckoo filter.
    pub(crate) fn buckets(&self) -> u64 {
        self.bits / (u64::from(self.width) * SLOTS as u64)
    }
}

fn plan(items: u64, rate: f64, shape: CuckooShape) -> Result<Plan> {
    let bits = shape.bits();
    if bits > MAX_BITS {
        return Err(Error::TooLarge { bits: bits as f64, max: MAX_BITS });
    }
    Ok(Plan { items, rate, bits, width: shape.width, ..Plan::blank(Kind::Cuckoo) })
}

pub(crate) struct CuckooPlan;

impl Search for CuckooPlan {
    fn fewest_bits(&self, items: u64, rate: f64) -> Result<Plan> {
        plan(items, rate, shape_for(items, rate))
    }

    fn lowest_rate(&self, given: &PlanBuilder, items: u64, bits: u64) -> Result<Plan> {
        let Some(shape) = widest(items, bits) else {
            return too_few_bytes(bits, narrowest_shape(items).bytes(), Some(items));
        };
        let reached = rate(items.max(1) as f64, shape.buckets, shape.width);
        plan(items, search::reached(given, items, bits, reached)?, shape)
    }

    fn most_items(&self, _given: &PlanBuilder, bits: u64, rate: f64) -> Result<Plan> {
        let fits = |items| shape_for(items, rate).bytes() <= bits / 8;
        match largest(MAX_ITEMS, fits) {
            0 => too_few_bytes(bits, shape_for(1, rate).bytes(), None),
            items => self.fewest_bits(items, rate),
        }
    }
}

impl Planner for CuckooPlan {
    fn check(&self, plan: &Plan) -> Result<()> {
        if !(MIN_WIDTH..=MAX_WIDTH).contains(&plan.width) {
            return parameter("width", plan.width, "2 to 56 for kind cuckoo");
        }
        let bucket = u64::from(plan.width) * SLOTS as u64;
        if !plan.bits.is_multiple_of(bucket) || !(bucket..=MAX_BITS).contains(&plan.bits) {
            return parameter("bits", plan.bits, "whole buckets of four fingerprints");
        }
        Ok(())
    }

    fn solve(&self, given: &PlanBuilder) -> Result<Plan> {
        search::solve(given, self)
    }

    /// A shard can fill up.
    fn shard(&self, plan: &Plan, shards: u32) -> Result<Plan> {
        let items = plan.most_of_a_share(shards);
        let fewest = Plan::builder(plan.kind).items(items).rate(plan.offered_rate()).build()?;
        let share = plan.bits / u64::from(shards);
        // A caller that gave it more bits than it needs has wider fingerprints.
        let shape = widest(items, share).filter(|shape| shape.bits() > fewest.bits);
        Ok(shape.map_or(fewest, |shape| Plan { bits: shape.bits(), width: shape.width, ..fewest }))
    }

    fn bytes(&self, plan: &Plan) -> u64 {
        Slots::new(plan.width).bytes(plan.buckets())
    }

    fn cache_lines(&self, _plan: &Plan) -> u32 {
        2
    }

    fn rate_at(&self, plan: &Plan, items: f64) -> f64 {
        rate(items, plan.buckets(), plan.width)
    }

    fn items_at(&self, plan: &Plan, rate: f64) -> u64 {
        let fits = largest(MAX_ITEMS, |items| self.rate_at(plan, items as f64) <= rate);
        fits.min(capacity(plan.buckets()))
    }

    fn fill_at(&self, plan: &Plan, items: f64) -> f64 {
        (items / self.cells(plan) as f64).min(1.0)
    }

    fn items_at_fill(&self, plan: &Plan, fill: f64) -> (f64, f64) {
        (fill * self.cells(plan) as f64, 0.0)
    }

    /// A fingerprint for every insert, also of a key that looks like one that was there.
    fn estimate(&self, _plan: &Plan, occupied: u64) -> (f64, f64) {
        (occupied as f64, 0.0)
    }

    fn capacity(&self, plan: &Plan) -> Option<u64> {
        Some(capacity(plan.buckets()))
    }
}
