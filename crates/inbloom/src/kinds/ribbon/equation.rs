//! The linear algebra of a ribbon: equations over bits, brought into a band, and solved from the
//! end.

use alloc::vec;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::kernels::bits::{Columns, RibbonKernel};
use crate::kernels::scalar::fold;
use crate::kinds::ribbon::plan::{BLOCK, MAX_WIDTH, starts};

/// Fractional digits of pi, after those of `kernels.rs`; the second was made odd.
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
///
/// The solution depends on which equations there are, and not on the order in which they came:
/// taken are the slots at which any sum of them begins, and the others become 0.
pub(super) struct Band {
    /// 0 where there is none.
    coefficients: Vec<u64>,
    prints: Vec<u32>,
    /// The slots that the last equations took.
    taken: Vec<usize>,
}

/// Equations that are added side by side. The 19 steps that one takes on average wait for each
/// other: 68 ns per key. With 2 lanes it is 63, with 4 it is 57, with 8 again 63 (in a layer of
/// 600,000 keys, on the machine of bench/record).
const LANES: usize = 4;

impl Band {
    pub(super) fn new(blocks: u64) -> Band {
        let slots = (blocks * BLOCK) as usize;
        Band { coefficients: vec![0; slots], prints: vec![0; slots], taken: Vec::new() }
    }

    /// Adds equations, and says whether they can hold together with those that are there. If not,
    /// none of them is added.
    pub(super) fn add(&mut self, equations: &[Equation]) -> bool {
        self.taken.clear();
        let hold = match equations.split_first_chunk() {
            Some((first, others)) => self.add_side_by_side(*first, others),
            None => equations.iter().all(|equation| self.add_one(*equation)),
        };
        if !hold {
            // They were the last to come, so that no other depends on them.
            for at in &self.taken {
                (self.coefficients[*at], self.prints[*at]) = (0, 0);
            }
        }
        hold
    }

    /// The lanes take steps in turns. Where an equation is done, another begins in its lane.
    fn add_side_by_side(&mut self, mut lanes: [Equation; LANES], others: &[Equation]) -> bool {
        let mut others = others.iter();
        let done = 'turns: loop {
            for (number, lane) in lanes.iter_mut().enumerate() {
                match self.step(lane) {
                    None => {}
                    Some(false) => return false,
                    Some(true) => match others.next() {
                        Some(next) => *lane = *next,
                        None => break 'turns number,
                    },
                }
            }
        };
        lanes.iter().enumerate().all(|(number, lane)| number == done || self.add_one(*lane))
    }

    fn add_one(&mut self, mut equation: Equation) -> bool {
        loop {
            if let Some(holds) = self.step(&mut equation) {
                return holds;
            }
        }
    }

    /// Stores the equation if its slot is free, and otherwise adds the one that is there. Says
    /// whether it holds, as soon as that is known; one that follows from others needs no slot.
    #[inline(always)]
    fn step(&mut self, equation: &mut Equation) -> Option<bool> {
        let at = equation.start as usize;
        let there = self.coefficients[at];
        if there == 0 {
            (self.coefficients[at], self.prints[at]) = (equation.coefficients, equation.print);
            self.taken.push(at);
            return Some(true);
        }
        // Both begin here: their sum begins later, and reaches no further.
        equation.coefficients ^= there;
        equation.print ^= self.prints[at];
        if equation.coefficients == 0 {
            return Some(equation.print == 0);
        }
        let skipped = equation.coefficients.trailing_zeros();
        equation.start += u64::from(skipped);
        equation.coefficients >>= skipped;
        None
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
    let kernel = RibbonKernel::select();
    let blocks = band.coefficients.chunks(BLOCK as usize).zip(band.prints.chunks(BLOCK as usize));
    for ((coefficients, prints), out) in blocks.zip(solution.chunks_mut(width)).rev() {
        kernel.solve(coefficients, prints, &mut state[..groups]);
        out.copy_from_slice(&state.as_flattened()[..width]);
    }
}
