//! The specification: sums and solutions word by word.

use super::band::{self, Band};
use super::{
    AsksAhead, BumpedKeys, Digest, Equation, FirstAnswer, Planes, RibbonKernel, Run, SlotWindow,
    contains_one, contains_run,
};

pub(super) fn kernel(width: u32) -> RibbonKernel {
    RibbonKernel {
        name: "scalar",
        holds,
        contains_one: if width <= 16 { one::<1> } else { one::<2> },
        contains_run: if width <= 16 { run::<1> } else { run::<2> },
        solve,
        fill: band::fill,
    }
}

/// The sum of the slots that a window chooses: bit j is that of column j.
///
/// # Safety
///
/// The groups of the window are there to be read.
#[inline(always)]
unsafe fn sum(window: SlotWindow) -> u64 {
    let pieces = (u128::from(window.high) << 64) | u128::from(window.low);
    let mut sum = 0;
    for column in 0..window.stride / 2 {
        let mut chosen = 0;
        for piece in 0..5 {
            let group = if piece < 4 { piece * window.stride } else { window.last };
            // SAFETY: a word of an existing group, guaranteed by the caller.
            let word = unsafe { window.at.add(group + 2 * column).cast::<[u8; 2]>().read() };
            chosen ^= u16::from_le_bytes(word) & (pieces >> (16 * piece)) as u16;
        }
        sum |= u64::from(chosen.count_ones() & 1) << column;
    }
    sum
}

unsafe fn holds(columns: *const u8, width: u32, equation: Equation) -> bool {
    // SAFETY: guaranteed by the caller.
    equation.is(unsafe { sum(equation.window(columns, width)) }, width)
}

fn one<const SHAPE: usize>(planes: &Planes, digest: Digest) -> FirstAnswer {
    // SAFETY: windows of these planes are there to be read.
    contains_one::<SHAPE>(planes, digest, |window| unsafe { sum(window) })
}

fn run<const SHAPE: usize>(
    planes: &Planes,
    run: Run<'_>,
    asks_ahead: AsksAhead,
    found: &mut [bool],
    bumped: &mut BumpedKeys,
) {
    // SAFETY: as in `one`.
    contains_run::<SHAPE>(planes, run, asks_ahead, found, bumped, |window| unsafe { sum(window) });
}

pub(super) fn solve(band: &Band, width: u32, columns: &mut [u8]) {
    let stride = 2 * width as usize;
    for (group, (coefficients, prints)) in band.groups().enumerate().rev() {
        for (slot, (coefficients, print)) in coefficients.iter().zip(prints).enumerate().rev() {
            let pieces = u128::from(*coefficients) << slot;
            for column in 0..width as usize {
                let mut sum = (print >> (32 + column)) as u32;
                // No equation reaches beyond the last group.
                let groups = columns[group * stride..].chunks_exact(stride).take(5);
                for (piece, group) in groups.enumerate() {
                    let word = u16::from_le_bytes([group[2 * column], group[2 * column + 1]]);
                    sum ^= (word & (pieces >> (16 * piece)) as u16).count_ones();
                }
                let bit = ((sum & 1) as u8) << (slot % 8);
                columns[group * stride + 2 * column + slot / 8] |= bit;
            }
        }
    }
}
