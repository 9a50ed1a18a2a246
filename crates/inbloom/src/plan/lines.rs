//! Arrays of cache lines: what the kinds have in common of which a key's probes lie in one line, or
//! in two.
//!
//! A line is a block of 512 bits. Both lines of a two-line key lie in one range of blocks.

use super::model::{Lines, Rounds};
use super::search::{ProbeLayout, Shapes};
use super::{BITS_RANGE, MAX_BITS, Plan, PlanBuilder, parameter};
use crate::error::{Error, Result};
use crate::kind::Kind;

/// Bits of a block: one cache line.
pub(crate) const BLOCK_BITS: u64 = 512;
/// Blocks of a range at most. Both lines of a two-line key lie in one range, so that a range can be
/// one value of a Redis string: just below 1 MiB, because 2^20 itself costs 25% more there.
pub(crate) const RANGE_BLOCKS: u64 = 16_383;

const PROBES: &str = "4, 8, 12 or 16, or 8, 16, 24 or 32 with two lines per key";
const TWO_LINE_BITS: &str = "two blocks or more that divide evenly into ranges of at most 16383 \
     blocks, for two lines per key";

/// Returns the fewest ranges of at most [`RANGE_BLOCKS`] blocks.
pub(crate) fn ranges(blocks: u64) -> u64 {
    blocks.div_ceil(RANGE_BLOCKS)
}

/// Returns the fewest blocks, at least `blocks`, that divide evenly into their ranges.
pub(crate) fn round_up_to_ranges(blocks: u64) -> u64 {
    blocks.next_multiple_of(ranges(blocks))
}

/// Returns the most blocks, at most `blocks`, that divide evenly into their ranges; at least 2.
pub(super) fn round_down_to_ranges(mut blocks: u64) -> u64 {
    while !blocks.is_multiple_of(ranges(blocks)) {
        blocks -= blocks % ranges(blocks); // which may make one range fewer do
    }
    blocks.max(2)
}

impl Plan {
    /// Returns the number of 64-byte blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.bits / BLOCK_BITS
    }

    /// Returns the rounds of probes that a key takes in each of its lines.
    pub(crate) fn rounds(&self) -> Rounds {
        Rounds::of(self.probes / self.lines)
    }

    /// Returns the model of its rate.
    pub(crate) fn as_lines(&self) -> Lines {
        Lines::new(self.blocks() as f64, self.lines, self.rounds(), self.width)
    }
}

/// Refuses bits, lines and probes that do not fit together.
pub(crate) fn check(plan: &Plan) -> Result<()> {
    if !plan.bits.is_multiple_of(BLOCK_BITS) {
        return parameter("bits", plan.bits, "a multiple of 512, which is a block");
    }
    if !(BLOCK_BITS..=MAX_BITS).contains(&plan.bits) {
        return parameter("bits", plan.bits, BITS_RANGE);
    }
    if !(1..=2).contains(&plan.lines) {
        return parameter("lines", plan.lines, "1 or 2");
    }
    if !plan.probes.is_multiple_of(plan.lines)
        || !Rounds::PROBES.contains(&(plan.probes / plan.lines))
    {
        return parameter("probes", plan.probes, PROBES);
    }
    let blocks = plan.blocks();
    if plan.lines == 2 && (blocks < 2 || !blocks.is_multiple_of(ranges(blocks))) {
        return parameter("bits", plan.bits, TWO_LINE_BITS);
    }
    Ok(())
}

/// Refuses lines and probes that no shape has.
pub(crate) fn check_given(given: &PlanBuilder) -> Result<()> {
    if let Some(lines) = given.lines.filter(|lines| !(1..=2).contains(lines)) {
        return parameter("lines", lines, format_args!("1 or 2 for kind {}", given.kind));
    }
    shapes(given, 1).check_probes(given, PROBES)
}

/// Returns the shapes of cells of so many bits.
pub(crate) fn shapes(given: &PlanBuilder, width: u32) -> Shapes {
    let lines =
        |lines| Rounds::PROBES.map(move |per_line| ProbeLayout::Lines { lines, per_line, width });
    Shapes::new(given, (1..=2).flat_map(lines))
}

/// Returns the plan of so many bits and probes, for the items at which half of the cells are in
/// use. Probes that one line cannot have are those of two.
pub(crate) fn exact(kind: Kind, bits: u64, probes: u32, width: u32) -> Result<Plan> {
    let lines = if Rounds::PROBES.contains(&probes) { 1 } else { 2 };
    Plan { bits, probes, lines, width, ..Plan::blank(kind) }.half_full()
}

/// Returns the plan of the first of so many shards, which are ranges of the array: the number of
/// blocks is rounded up until it divides, and nothing else changes.
pub(crate) fn shard(plan: &Plan, shards: u32) -> Result<Plan> {
    let whole = dividing_into(plan, shards)?;
    Ok(Plan { bits: whole.bits / u64::from(shards), ..whole })
}

/// Returns whether picking a shard and then its block is picking the block at once. With two lines
/// per key the ranges must be the same too, since the second line is another block of the range.
pub(crate) fn concatenates(plan: &Plan) -> bool {
    let shards = u64::from(plan.shards);
    let whole = plan.blocks().saturating_mul(shards);
    plan.lines == 1 || ranges(plan.blocks()) * shards == ranges(whole)
}

/// This plan with as many more blocks as let it divide evenly into so many shards. Where two lines
/// per key would take more bits that way than one line, it has one.
fn dividing_into(plan: &Plan, shards: u32) -> Result<Plan> {
    let with_blocks = |blocks: u64| {
        let bits = blocks * BLOCK_BITS;
        if bits > MAX_BITS {
            return Err(Error::TooLarge { bits: bits as f64, max: MAX_BITS });
        }
        Ok(Plan { bits, ..*plan })
    };
    let count = u64::from(shards);
    let each = plan.blocks().div_ceil(count);
    if plan.lines == 1 {
        return with_blocks(each * count);
    }
    let two_lines = with_blocks(round_up_to_shard(each.max(2), count) * count);
    if two_lines.as_ref().is_ok_and(|two| two.bits == plan.bits) {
        return two_lines;
    }
    let mut one_line =
        Plan::builder(plan.kind).items(plan.items).rate(plan.offered_rate()).lines(1);
    if plan.width > 1 {
        one_line = one_line.width(plan.width);
    }
    let one_line = one_line.build().and_then(|plan| dividing_into(&plan, shards));
    match (one_line, two_lines) {
        (Ok(one), Ok(two)) => Ok(if one.bits < two.bits { one } else { two }),
        (Ok(plan), Err(_)) | (Err(_), Ok(plan)) => Ok(plan),
        (Err(_), Err(error)) => Err(error),
    }
}

/// Returns the fewest blocks of a shard, at least `blocks`, with which all shards together divide
/// into as many ranges as the shards have, each of the same length.
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
}
