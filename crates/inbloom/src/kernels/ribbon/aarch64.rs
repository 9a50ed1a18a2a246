//! Sums in NEON, which every 64-bit ARM processor has. They are checked against the scalar kernel under
//! qemu (`scripts/other-machines`); nobody has measured them.
//!
//! Solutions are those of the scalar kernel: to build takes place on larger machines.

use core::arch::aarch64::*;

use super::band;
use super::scalar;
use super::{
    AsksAhead, BumpedKeys, Digest, Equation, FirstAnswer, Planes, RibbonKernel, Run, SlotWindow,
    contains_one, contains_run,
};

pub(super) fn available(width: u32) -> impl Iterator<Item = RibbonKernel> {
    core::iter::once(if width <= 16 { kernel::<2>() } else { kernel::<4>() })
}

/// For columns of so many vectors of eight words.
fn kernel<const VECTORS: usize>() -> RibbonKernel {
    RibbonKernel {
        name: "neon",
        holds: holds::<VECTORS>,
        contains_one: if VECTORS == 2 { one::<2, 1> } else { one::<4, 2> },
        contains_run: if VECTORS == 2 { run::<2, 1> } else { run::<4, 2> },
        solve: scalar::solve,
        fill: band::fill,
    }
}

/// # Safety
///
/// The groups, and what of the vectors is behind the last, are there to be read.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn sum<const VECTORS: usize>(window: SlotWindow) -> u64 {
    const PLACES: [i16; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
    let SlotWindow { at, stride, last, low, high } = window;
    let pieces = [
        vdupq_n_u16(low as u16),
        vdupq_n_u16((low >> 16) as u16),
        vdupq_n_u16((low >> 32) as u16),
        vdupq_n_u16((low >> 48) as u16),
        vdupq_n_u16(high as u16),
    ];
    // SAFETY: there are eight words.
    let places = unsafe { vld1q_s16(PLACES.as_ptr()) };
    let mut sum = 0;
    for vector in 0..VECTORS {
        // By bytes: these take any alignment.
        let load = |offset: usize| {
            // SAFETY: guaranteed by the caller.
            vreinterpretq_u16_u8(unsafe { vld1q_u8(at.add(offset + 16 * vector)) })
        };
        let mut x = vandq_u16(load(last), pieces[4]);
        for (group, piece) in pieces[..4].iter().enumerate() {
            x = veorq_u16(x, vandq_u16(load(group * stride), *piece));
        }
        let counts = vpaddlq_u8(vcntq_u8(vreinterpretq_u8_u16(x)));
        let bits = vshlq_u16(vandq_u16(counts, vdupq_n_u16(1)), places);
        sum |= u64::from(vaddvq_u16(bits)) << (8 * vector);
    }
    sum
}

#[target_feature(enable = "neon")]
unsafe fn holds<const VECTORS: usize>(columns: *const u8, width: u32, equation: Equation) -> bool {
    // SAFETY: guaranteed by the caller.
    equation.is(unsafe { sum::<VECTORS>(equation.window(columns, width)) }, width)
}

#[target_feature(enable = "neon")]
fn one<const VECTORS: usize, const SHAPE: usize>(planes: &Planes, digest: Digest) -> FirstAnswer {
    // SAFETY: windows of these planes are there to be read.
    contains_one::<SHAPE>(planes, digest, |window| unsafe { sum::<VECTORS>(window) })
}

#[target_feature(enable = "neon")]
fn run<const VECTORS: usize, const SHAPE: usize>(
    planes: &Planes,
    run: Run<'_>,
    asks_ahead: AsksAhead,
    found: &mut [bool],
    bumped: &mut BumpedKeys,
) {
    // SAFETY: as in `one`.
    contains_run::<SHAPE>(planes, run, asks_ahead, found, bumped, |window| unsafe {
        sum::<VECTORS>(window)
    });
}
