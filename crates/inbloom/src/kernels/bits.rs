//! The kernels of the ribbon: sums (by xor) of the bits that a mask chooses, over the columns of a
//! solution.
//!
//! [`plain`] is the specification, and compiled once more for each instruction set that counts
//! bits: what these do is the same by construction. (A query written out in AVX2, which folds words
//! by xor, was no faster than what the compiler makes of it.) On 64-bit ARM the plain one has the
//! instruction that counts bits already, since every processor has it.

/// What a query asks of the columns of two neighbouring blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns {
    /// The slots of the first block that are added up, and those of the second.
    pub here: u64,
    pub next: u64,
    /// The sums: bit j is that of column j.
    pub print: u32,
}

/// The columns of a block, as little-endian words.
type Block<'a> = &'a [[u8; 8]];

/// One implementation of both operations.
#[derive(Clone, Copy)]
pub(crate) struct RibbonKernel {
    #[cfg_attr(not(test), expect(dead_code, reason = "tests say which one failed"))]
    pub name: &'static str,
    matches: unsafe fn(Block<'_>, Block<'_>, Columns) -> bool,
    solve: unsafe fn(&[u64], &[u32], &mut [[u64; 8]]),
}

impl RibbonKernel {
    /// The fastest that this processor runs.
    pub(crate) fn select() -> RibbonKernel {
        RibbonKernel::available().next().expect("the plain kernel runs everywhere")
    }

    /// Every kernel that this processor runs, fastest first. The last is the plain one.
    pub(crate) fn available() -> impl Iterator<Item = RibbonKernel> {
        #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
        let vectors = x86::available();
        #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
        let vectors = core::iter::empty();
        let plain = RibbonKernel { name: "plain", matches: plain::matches, solve: plain::solve };
        vectors.chain([plain])
    }

    /// Whether the columns of a block and the next add up to the fingerprint.
    #[inline(always)]
    pub(crate) fn matches(self, here: Block<'_>, next: Block<'_>, asked: Columns) -> bool {
        debug_assert_eq!(here.len(), next.len());
        // SAFETY: `available` gave out only kernels that this processor runs.
        unsafe { (self.matches)(here, next, asked) }
    }

    /// Goes on with a solution from a block of slots to the one before: `columns` has the words of
    /// that block, then those of this, in groups of eight, of which the last is filled up with
    /// columns of zeros. Slot by slot from the end, each gets the bits that make its equation hold.
    pub(crate) fn solve(self, coefficients: &[u64], prints: &[u32], columns: &mut [[u64; 8]]) {
        // SAFETY: as in `matches`.
        unsafe { (self.solve)(coefficients, prints, columns) }
    }
}

mod plain {
    use super::{Block, Columns};

    #[inline(always)]
    pub(super) fn matches(here: Block<'_>, next: Block<'_>, asked: Columns) -> bool {
        let mut differ = 0;
        for (column, (here, next)) in here.iter().zip(next).enumerate() {
            let chosen =
                (u64::from_le_bytes(*here) & asked.here) ^ (u64::from_le_bytes(*next) & asked.next);
            differ |= chosen.count_ones() ^ (asked.print >> column);
        }
        differ & 1 == 0
    }

    #[inline(always)]
    pub(super) fn solve(coefficients: &[u64], prints: &[u32], columns: &mut [[u64; 8]]) {
        for (coefficients, print) in coefficients.iter().zip(prints).rev() {
            for (group, columns) in columns.iter_mut().enumerate() {
                let print = u64::from(*print) >> (8 * group);
                for (column, word) in columns.iter_mut().enumerate() {
                    // Bit i is slot i from here on; this slot's own is not known yet.
                    let later = *word << 1;
                    let sum = u64::from((later & coefficients).count_ones()) ^ (print >> column);
                    *word = later | (sum & 1);
                }
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod x86 {
    use super::{Block, Columns, RibbonKernel, plain};

    pub(super) fn available() -> impl Iterator<Item = RibbonKernel> {
        let counts = is_x86_feature_detected!("popcnt") && is_x86_feature_detected!("avx2");
        let wide = counts
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vpopcntdq");
        let avx512 = RibbonKernel { name: "avx512", matches: matches_wide, solve: solve_wide };
        let avx2 = RibbonKernel { name: "avx2", matches: matches_counting, solve: solve_counting };
        wide.then_some(avx512).into_iter().chain(counts.then_some(avx2))
    }

    #[target_feature(enable = "avx2,popcnt")]
    fn matches_counting(here: Block<'_>, next: Block<'_>, asked: Columns) -> bool {
        plain::matches(here, next, asked)
    }

    #[target_feature(enable = "avx2,popcnt")]
    fn solve_counting(coefficients: &[u64], prints: &[u32], columns: &mut [[u64; 8]]) {
        plain::solve(coefficients, prints, columns);
    }

    #[target_feature(enable = "avx512f,avx512vpopcntdq,popcnt")]
    fn solve_wide(coefficients: &[u64], prints: &[u32], columns: &mut [[u64; 8]]) {
        plain::solve(coefficients, prints, columns);
    }

    #[target_feature(enable = "avx512f,avx512vpopcntdq,popcnt")]
    fn matches_wide(here: Block<'_>, next: Block<'_>, asked: Columns) -> bool {
        plain::matches(here, next, asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hasher;

    fn random(number: u64) -> u64 {
        Hasher::default().digest(number.to_le_bytes()).place
    }

    #[test]
    fn every_kernel_solves_and_answers_like_the_plain_one() {
        for width in 1..=32 {
            let mut solutions = Vec::new();
            for kernel in RibbonKernel::available() {
                let coefficients: Vec<u64> = (0..64).map(|at| random(at) | 1).collect();
                let prints: Vec<u32> =
                    (0..64).map(|at| (random(100 + at) >> (64 - width)) as u32).collect();
                let mut columns = [[0; 8]; 4];
                let words = |columns: &[[u64; 8]]| -> Vec<[u8; 8]> {
                    let words = columns.as_flattened()[..width as usize].iter();
                    words.map(|word| word.to_le_bytes()).collect()
                };
                for (number, word) in (0..width).zip(columns.as_flattened_mut()) {
                    *word = random(number);
                }
                let next = words(&columns);
                kernel.solve(&coefficients, &prints, &mut columns);
                let here = words(&columns);
                assert!(columns.as_flattened()[width as usize..].iter().all(|word| *word == 0));
                for at in 0..64 {
                    let next_mask = if at == 0 { 0 } else { coefficients[at] >> (64 - at) };
                    let asked = Columns {
                        here: coefficients[at] << at,
                        next: next_mask,
                        print: prints[at],
                    };
                    let context = format!("{} width {width} slot {at}", kernel.name);
                    assert!(kernel.matches(&here, &next, asked), "{context}");
                    for bit in 0..width {
                        let other = Columns { print: asked.print ^ 1 << bit, ..asked };
                        assert!(!kernel.matches(&here, &next, other), "{context}");
                    }
                }
                solutions.push(columns);
            }
            assert!(solutions.windows(2).all(|pair| pair[0] == pair[1]));
        }
    }
}
