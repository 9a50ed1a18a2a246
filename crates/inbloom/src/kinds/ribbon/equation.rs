//! The linear algebra of a ribbon: equations over bits, brought into a band, and solved from the
//! end.

use crate::digest::Digest;
use crate::plan::ribbon::{BLOCK, MAX_WIDTH, starts};
use crate::simd::bits::{Columns, Kernel};
use crate::simd::scalar::fold;

/// Fractional digits of pi, after those of `simd.rs`; the second was made odd.
const MIX: [u64; 3] = [0x4528_21e6_38d0_1377, 0xbe54_66cf_34e9_0c6c | 1, 0xc0ac_29b7_c97c_50dd];

/// What a key asks of the solution in one layer: that the slots from `start` on that `coefficients`
/// chooses add up (by xor) to its fingerprint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Equation {
    pub start: u64,
    /// Bit i is for slot `start + i`. Bit 0 is set.
    pub coefficients: u64,
    pub print: u32,
}

/// Where a key's equation begins in a layer of `starts` places to begin at.
#[inline(always)]
pub(super) fn start_in(key: u64, layer: u64, starts: u64) -> u64 {
    // In the first layer in the order of the keys: sorting them sorts the equations, and neighbours
    // in a sorted batch of queries are neighbours in memory.
    let place = match layer {
        0 => key,
        _ => fold(key ^ (2 * layer + 1).wrapping_mul(MIX[0]), MIX[1]),
    };
    Digest { place, print: 0 }.pick(starts).0
}

impl Equation {
    pub(super) fn new(key: u64, layer: u64, blocks: u64, width: u32) -> Equation {
        Equation::at(start_in(key, layer, starts(blocks)), key, layer, width)
    }

    /// The equation of a key that is known to begin at `start`.
    #[inline(always)]
    pub(super) fn at(start: u64, key: u64, layer: u64, width: u32) -> Equation {
        let mixed = fold(key ^ (2 * layer + 1).wrapping_mul(MIX[1]), MIX[2]);
        let print = (mixed.wrapping_mul(MIX[0]) >> (64 - width)) as u32;
        Equation { start, coefficients: mixed | 1, print }
    }

    /// Where the solution's columns are that the equation reaches, and what it asks of them.
    #[inline(always)]
    pub(super) fn columns(&self) -> (u64, Columns) {
        let (block, shift) = (self.start / BLOCK, self.start % BLOCK);
        let next = if shift == 0 { 0 } else { self.coefficients >> (BLOCK - shift) };
        (block, Columns { here: self.coefficients << shift, next, print: self.print })
    }
}

/// Equations in echelon form: at each slot at most one whose first coefficient is there.
pub(super) struct Band {
    /// 0 where there is none.
    coefficients: Vec<u64>,
    prints: Vec<u32>,
}

impl Band {
    pub(super) fn new(blocks: u64) -> Band {
        let slots = (blocks * BLOCK) as usize;
        Band { coefficients: vec![0; slots], prints: vec![0; slots] }
    }

    /// Adds an equation, and says whether it can hold together with those that are there. If it
    /// takes a slot, that is appended to `stored`; if it follows from the others, it needs none.
    #[inline]
    pub(super) fn add(&mut self, equation: Equation, stored: &mut Vec<usize>) -> bool {
        let Equation { start, mut coefficients, mut print } = equation;
        let mut at = start as usize;
        loop {
            let there = self.coefficients[at];
            if there == 0 {
                (self.coefficients[at], self.prints[at]) = (coefficients, print);
                stored.push(at);
                return true;
            }
            // Both begin here: their sum begins later, and reaches no further.
            coefficients ^= there;
            print ^= self.prints[at];
            if coefficients == 0 {
                return print == 0;
            }
            let skipped = coefficients.trailing_zeros();
            at += skipped as usize;
            coefficients >>= skipped;
        }
    }

    /// Takes out equations that were the last to be added.
    pub(super) fn take_out(&mut self, stored: &[usize]) {
        for at in stored {
            (self.coefficients[*at], self.prints[*at]) = (0, 0);
        }
    }
}

/// Solves the band from its last slot to its first, and appends the solution: for each block of 64
/// slots one word for each bit of a fingerprint. Slots without an equation are 0.
pub(super) fn back_substitute(band: &Band, width: u32, columns: &mut Vec<u64>) {
    let first = columns.len();
    let width = width as usize;
    columns.resize(first + band.coefficients.len() / BLOCK as usize * width, 0);
    let solution = &mut columns[first..];
    // Bit i of a column's word is slot `at + i`.
    let mut state = [[0; 8]; MAX_WIDTH as usize / 8];
    let groups = width.div_ceil(8);
    let kernel = Kernel::select();
    let blocks = band.coefficients.chunks(BLOCK as usize).zip(band.prints.chunks(BLOCK as usize));
    for ((coefficients, prints), out) in blocks.zip(solution.chunks_mut(width)).rev() {
        kernel.solve(coefficients, prints, &mut state[..groups]);
        out.copy_from_slice(&state.as_flattened()[..width]);
    }
}
