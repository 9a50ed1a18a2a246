//! The sizes and rates of a split-block filter.
//!
//! A key sets one bit in each of the eight words, of 32 bits, of its block. With n keys in b blocks, the
//! number K of keys in a block is binomial, and given K keys a bit of a word is free with probability
//! q^K, q = 31/32. So a non-member is reported at the rate E[(1 - q^K)^8], and the share of free bits
//! is E[q^K] = (1 - 1/32b)^n, which gives n back.
//!
//! How far that estimate is off: the free share of one column of words varies as that of 32b cells
//! with n throws, and the eight columns vary together as far as keys crowd into the same blocks.

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::math;
use crate::plan::planner::Planner;
use crate::plan::{Plan, PlanBuilder, parameter};

/// Bits of a block.
pub(super) const BLOCK_BITS: u64 = 256;
/// The most bytes that the length in the header can say, and the multiply-shift can address, rounded
/// down to a block.
pub(super) const MAX_BYTES: u64 = i32::MAX as u64 / 32 * 32;
/// The sizes that arrow's writers choose.
const WRITTEN_BYTES: std::ops::RangeInclusive<u64> = 32..=128 << 20;

const FREE: f64 = 31.0 / 32.0;

pub(super) struct SplitBlockPlan;

/// Plans a filter as the Rust crate `parquet` does before it folds: a power of two of bytes.
///
/// # Errors
///
/// Refuses rates of 0 and of 1 and more.
pub(super) fn planned(kind: Kind, items: u64, rate: f64) -> Result<Plan> {
    if !(rate > 0.0 && rate < 1.0) {
        return parameter("rate", rate, "strictly between 0 and 1 for Parquet");
    }
    let bits = -8.0 * items as f64 / math::ln(1.0 - math::powf(rate, 1.0 / 8.0));
    // Saturates; the largest size is far below.
    let bytes = (bits as u64 / 8).min(*WRITTEN_BYTES.end()).next_power_of_two();
    let bits = bytes.max(*WRITTEN_BYTES.start()) * 8;
    Ok(Plan { items, rate, bits, probes: 8, ..Plan::blank(kind) })
}

impl Planner for SplitBlockPlan {
    fn check(&self, plan: &Plan) -> Result<()> {
        if plan.bits == 0 || !plan.bits.is_multiple_of(BLOCK_BITS) || plan.bits / 8 > MAX_BYTES {
            return parameter("bits", plan.bits, "a multiple of 256, below 2^34, for Parquet");
        }
        if plan.probes != 8 {
            return parameter("probes", plan.probes, "8 for Parquet");
        }
        if plan.lines != 1 {
            return parameter("lines", plan.lines, "1 for Parquet");
        }
        Ok(())
    }

    fn solve(&self, given: &PlanBuilder) -> Result<Plan> {
        Err(Error::Unsupported {
            kind: given.kind,
            verb: "be planned here",
            remedy: "use Filter::for_format, where the other program decides the size",
        })
    }

    fn exact(&self, kind: Kind, bits: u64, probes: u32) -> Result<Plan> {
        Plan { bits, probes, ..Plan::blank(kind) }.half_full()
    }

    fn cache_lines(&self, _plan: &Plan) -> u32 {
        1
    }

    fn rate_at(&self, plan: &Plan, items: f64) -> f64 {
        let blocks = blocks(plan);
        let mean = items / blocks;
        if mean <= 0.0 {
            return 0.0;
        }
        if mean > FULL {
            return 1.0;
        }
        if blocks <= 1.0 {
            return passes(items);
        }
        // Over the number of keys in a block, as far as it has any weight.
        let most = mean + 12.0 * math::sqrt(mean) + 40.0;
        let mut weight = math::exp(items * math::ln_1p(-1.0 / blocks));
        let (mut rate, mut keys) = (0.0, 0.0);
        while keys <= most {
            rate += weight * passes(keys);
            weight *= (items - keys).max(0.0) / ((keys + 1.0) * (blocks - 1.0));
            keys += 1.0;
        }
        rate.min(1.0)
    }

    fn fill_at(&self, plan: &Plan, items: f64) -> f64 {
        -math::exp_m1(items * math::ln_1p(-1.0 / (32.0 * blocks(plan))))
    }

    fn items_at_fill(&self, plan: &Plan, fill: f64) -> (f64, f64) {
        let (blocks, cells) = (blocks(plan), 32.0 * blocks(plan));
        let items = math::ln_1p(-fill) / math::ln_1p(-1.0 / cells);
        let (load, crowd) = (items / cells, items / blocks / 1024.0);
        // Variances, each times e^(2 load): of one column, and what two columns have in common.
        let column = (math::exp(load) - 1.0 - load).max(0.0) / cells;
        let common = (math::exp(crowd) - 1.0 - crowd).max(0.0) / blocks;
        (items, cells * math::sqrt((column + 7.0 * common) / 8.0))
    }
}

/// From so many keys in a block on, on average, all its bits are set but for one in 10^7. Up to here an
/// empty block has a weight that a number can hold: 2^-1000 with two blocks, which is the least.
const FULL: f64 = 500.0;

fn blocks(plan: &Plan) -> f64 {
    (plan.bits / BLOCK_BITS) as f64
}

/// The probability that a non-member passes in a block with so many keys.
fn passes(keys: f64) -> f64 {
    math::powi(-math::exp_m1(keys * math::ln(FREE)), 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(blocks: u64) -> Plan {
        Plan { bits: blocks * BLOCK_BITS, probes: 8, ..Plan::blank(super::super::SPLIT_BLOCK) }
    }

    #[test]
    fn sizes_are_those_of_the_rust_crate() {
        // new_with_ndv_fpp of the crate parquet 60.1, from its golden file and its own tests.
        for (items, rate, bytes) in
            [(100_000, 0.001, 262_144), (1, 0.01, 32), (1_000_000, 0.1, 1 << 20), (0, 0.5, 32)]
        {
            let plan = planned(super::super::SPLIT_BLOCK, items, rate).unwrap();
            assert_eq!(plan.bits / 8, bytes, "{items} at {rate}");
        }
        let most = planned(super::super::SPLIT_BLOCK, u64::MAX, 1e-9).unwrap();
        assert_eq!(most.bits / 8, 128 << 20);
        assert!(planned(super::super::SPLIT_BLOCK, 1, 0.0).is_err());
    }

    #[test]
    fn rates_are_those_of_the_sum_over_all_subsets() {
        // Inclusion and exclusion over the eight words, exact but for what cancels.
        for (blocks, items) in
            [(1, 5.0), (1, 100.0), (2, 30.0), (64, 1000.0), (4096, 100_000.0), (1 << 20, 3e6)]
        {
            let mut expected = 0.0;
            let mut ways = 1.0;
            for set in 0..=8 {
                let spared = f64::from(1 - 2 * (set % 2)) * ways;
                let missed = (FREE.powi(set) - 1.0) / blocks as f64;
                expected += spared * (items * missed.ln_1p()).exp();
                ways = ways * f64::from(8 - set) / f64::from(set + 1);
            }
            let got = SplitBlockPlan.rate_at(&plan(blocks), items);
            assert!((got / expected - 1.0).abs() < 1e-4, "{blocks} {items}: {got} {expected}");
        }
    }

    #[test]
    fn the_rate_grows_with_the_keys_and_ends_at_one() {
        for blocks in [1, 3, 1000] {
            let plan = plan(blocks);
            let mut last = 0.0;
            for step in 0..200 {
                let rate = SplitBlockPlan.rate_at(&plan, (blocks * step * 4) as f64);
                assert!(rate >= last && rate <= 1.0, "{blocks} {step}: {rate}");
                last = rate;
            }
            assert!(last > 0.999);
            // Not so many that the share of free bits is lost beside 1.
            let fill = SplitBlockPlan.fill_at(&plan, 100.0);
            let (items, error) = SplitBlockPlan.items_at_fill(&plan, fill);
            assert!((items - 100.0).abs() < 0.01 && error > 0.0, "{items} {error}");
        }
    }
}
