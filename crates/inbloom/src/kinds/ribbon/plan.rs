//! The sizes of a ribbon filter: how many slots a number of keys gets, and how often an
//! absent key is a false positive.
//!
//! Integers only, where a size decides bits: they must come out the same everywhere.

use crate::error::{Error, Result};
use crate::kernels::ribbon::BUCKET;
use crate::kind::Kind;
use crate::math;
use crate::plan::planner::Planner;
use crate::plan::search::{self, Search, too_few_bytes};
use crate::plan::{BITS_RANGE, MAX_BITS, MAX_ITEMS, Plan, PlanBuilder, largest, parameter};

/// The widest fingerprint. The 64 bits of a place that tell keys apart would not bear much more.
pub(crate) const MAX_WIDTH: u32 = 32;
/// Slots that a key's coefficients reach over. A layer has a whole number of so many.
pub(crate) const BLOCK: u64 = 64;
/// The layers that may bump keys, before the last, which may not.
pub(crate) const LAYERS: usize = 4;
/// So many keys fit into one block, whose coefficients all begin at one slot, but for a chance of
/// 2^-16.
const FIT_A_BLOCK: u64 = 48;
/// Bytes of the directory for each shard, and of the number of shards behind it.
pub(crate) const ENTRY: u64 = 32;
pub(crate) const TAIL: u64 = 8;
/// Planned keys of a shard at most: 20 bytes each are needed to build it, besides the keys
/// themselves.
const SHARD_ITEMS: u64 = 1 << 21;
/// Shards at most; from 2 * 10^12 keys on they get larger instead.
pub(crate) const MAX_SHARDS: u64 = 1 << 20;

/// From so many shards on some have narrower fingerprints; among fewer the steps would be coarse.
const MIXED_FROM: u64 = 16;
/// From so many planned keys on there are that many shards, if smaller ones. With shards of half a
/// million keys a filter takes 0.02% more bits than with 2 million, and mixed widths save nearly a
/// bit per key at best: at 10^-4 ten million keys take 13.42 bits each instead of 14.04.
pub(crate) const MIXED_ITEMS: u64 = 1 << 23;

/// The shards of a filter that is planned for so many keys.
pub(crate) fn shards(items: u64) -> u64 {
    let fewest = if items < MIXED_ITEMS { 1 } else { MIXED_FROM };
    items.div_ceil(SHARD_ITEMS).clamp(fewest, MAX_SHARDS)
}

/// The blocks of a layer for so many keys, more than it has slots: 97%. What does not fit is
/// bumped, and a layer that is short of slots leaves few of them empty (measured: 0.3% in all
/// layers together; with as many slots as keys it is 1.1%, with 2% more 2.5%).
pub(crate) fn layer_blocks(keys: u64) -> u64 {
    let fewest = if keys <= FIT_A_BLOCK { 1 } else { 2 };
    (keys * 97).div_ceil(100).div_ceil(BLOCK).max(fewest)
}

/// The blocks of the last layer for so many keys, which all have to fit, after so many failures.
pub(crate) fn last_blocks(keys: u64, failures: u64) -> u64 {
    match keys {
        0 => 0,
        _ => (keys * (117 + 2 * failures) / 100 + BLOCK).div_ceil(BLOCK),
    }
}

/// The slots of so many blocks at which a key's coefficients can begin.
#[inline]
pub(crate) fn starts(blocks: u64) -> u64 {
    (blocks * BLOCK).saturating_sub(BLOCK - 1)
}

/// The words that hold the thresholds of a layer, two bits for each bucket.
pub(crate) fn threshold_words(blocks: u64) -> u64 {
    starts(blocks).div_ceil(BUCKET).div_ceil(32)
}

/// The rate of fingerprints of `width` bits: a foreign key has the right one by chance, or shares
/// all 64 bits with a member, which is left out where it is no thousandth.
pub(crate) fn rate(items: f64, width: u32) -> f64 {
    if items <= 0.0 {
        return 0.0;
    }
    let (chance, shared) = (math::powi(2.0, -(width as i32)), items / math::powi(2.0, 64));
    if shared * 1000.0 < chance { chance } else { chance + shared }
}

/// The narrowest fingerprint with at most this rate.
pub(crate) fn width_for(items: u64, wanted: f64) -> Result<u32> {
    let fits = |width: &u32| rate(items.max(1) as f64, *width) <= wanted;
    (1..=MAX_WIDTH).find(fits).ok_or(Error::Rate {
        got: wanted,
        reason: "kind ribbon reaches 2.4e-10 at best, or 6e-20 times the number of keys if that is \
                 more; use kind cuckoo",
    })
}

/// How many shards, the first ones, have fingerprints that are a bit narrower than `width`: as many
/// as the rate allows, which a whole number of bits undercuts by up to a half.
///
/// With S shards, of which k err at 2^(1-w) and the others at 2^-w, the mean is (S + k) / S * 2^-w.
pub(crate) fn narrow_shards(items: u64, wanted: f64, width: u32) -> u64 {
    let shards = shards(items);
    let chance = math::powi(2.0, -(width as i32));
    let shared = rate(items as f64, width) - chance;
    // A little less, so that no rounding makes it more. Below 0 it becomes 0.
    let allowed = (((wanted - shared) / chance - 1.0) * shards as f64 - 1e-6) as u64;
    // If all could be narrower, it was not the rate that the width was chosen for.
    if shards < MIXED_FROM || width == 1 || allowed >= shards { 0 } else { allowed }
}

/// The rate of a plan: a foreign key meets each of its shards with the same chance.
pub(crate) fn mean_rate(plan: &Plan, items: f64) -> f64 {
    let narrow = narrow_shards(plan.items, plan.rate, plan.width);
    let wide = rate(items, plan.width);
    if narrow == 0 {
        return wide;
    }
    let share = narrow as f64 / shards(plan.items) as f64;
    wide + share * (rate(items, plan.width - 1) - wide)
}

/// The widest fingerprint for so many keys in so many bits; None if there is none.
pub(crate) fn widest(items: u64, bits: u64) -> Option<u32> {
    (1..=MAX_WIDTH).rev().find(|width| self::bits(items, *width, 0) <= bits)
}

/// A bound of the bits of a filter, directory included, that chance does not break; so many of its
/// shards are narrower.
///
/// What is bumped depends on the keys: 3.2% of them on average, and in the sets of 1 to 5 million
/// keys that were measured never more than is assumed here.
pub(crate) fn bits(items: u64, width: u32, narrow: u64) -> u64 {
    let shards = shards(items);
    let (mut keys, mut blocks, mut words) = (items.div_ceil(shards), 0, 0);
    // Shards have unequal shares of the keys, and each rounds its layers up to blocks.
    let uneven = u64::from(shards > 1);
    for _ in 0..LAYERS {
        if keys > 0 {
            let more = layer_blocks(keys) + uneven;
            blocks += more;
            words += threshold_words(more) + uneven;
        }
        keys = most_bumped(keys);
    }
    blocks += last_blocks(keys, 0);
    let columns = blocks * (u64::from(width) * shards - narrow);
    (columns + words * shards) * 64 + (shards * ENTRY + TAIL) * 8
}

/// One bucket bumps all of its keys once in a while, which is much in a small layer.
fn most_bumped(keys: u64) -> u64 {
    if keys <= FIT_A_BLOCK {
        0
    } else if keys <= 120 {
        FIT_A_BLOCK
    } else {
        keys * 34 / 1000 + 11 * keys.isqrt() / 5 + 24
    }
}

fn plan(items: u64, rate: f64, width: u32) -> Result<Plan> {
    let bits = bits(items, width, narrow_shards(items, rate, width));
    if bits > MAX_BITS {
        return Err(Error::TooLarge { bits: bits as f64, max: MAX_BITS });
    }
    Ok(Plan { items, rate, bits, width, ..Plan::blank(Kind::Ribbon) })
}

pub(crate) struct RibbonPlan;

impl Search for RibbonPlan {
    fn fewest_bits(&self, items: u64, rate: f64) -> Result<Plan> {
        plan(items, rate, width_for(items, rate)?)
    }

    fn lowest_rate(&self, given: &PlanBuilder, items: u64, bits: u64) -> Result<Plan> {
        let Some(width) = widest(items, bits) else {
            return too_few_bytes(bits, self::bits(items, 1, 0).div_ceil(8), Some(items));
        };
        let reached = rate(items.max(1) as f64, width);
        plan(items, search::reached(given, items, bits, reached)?, width)
    }

    fn most_items(&self, _given: &PlanBuilder, bits: u64, rate: f64) -> Result<Plan> {
        let width = width_for(1, rate)?;
        let fits = |items| self.fewest_bits(items, rate).is_ok_and(|plan| plan.bits <= bits);
        // Where widths begin to be mixed, more keys may take fewer bits.
        let mixed_fit = fits(MIXED_ITEMS);
        let fits = |items| items < MIXED_ITEMS && mixed_fit || fits(items);
        match largest(MAX_ITEMS, fits) {
            0 => too_few_bytes(bits, self::bits(1, width, 0).div_ceil(8), None),
            items => self.fewest_bits(items, rate),
        }
    }
}

impl Planner for RibbonPlan {
    fn check(&self, plan: &Plan) -> Result<()> {
        if !(1..=MAX_WIDTH).contains(&plan.width) {
            return parameter("width", plan.width, "1 to 32 for kind ribbon");
        }
        if !(1..=MAX_BITS).contains(&plan.bits) {
            return parameter("bits", plan.bits, BITS_RANGE);
        }
        Ok(())
    }

    fn solve(&self, given: &PlanBuilder) -> Result<Plan> {
        search::solve(given, self)
    }

    fn has_fixed_size(&self, _plan: &Plan) -> bool {
        false
    }

    /// Five neighboring groups of a word of 16 bits for each column, and a threshold.
    fn cache_lines(&self, plan: &Plan) -> u32 {
        (10 * plan.width).div_ceil(64) + 1
    }

    fn rate_at(&self, plan: &Plan, items: f64) -> f64 {
        mean_rate(plan, items)
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
