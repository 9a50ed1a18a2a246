//! The specification of the blocked layout, and the kernel for processors without wide vectors.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Geometry, Kernel, NEAR, Towards, WORDS, prefetch};
use crate::digest::Digest;

/// The bit that keys never set: bit 63 of word 7.
const RESERVED: u64 = 1 << 63;
/// Digest bits that a round takes, 7 for each of the four sectors.
const ROUND_BITS: u32 = 28;

/// What a key sets in one of its lines: the block, and the bits in each of its eight words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    pub block: u64,
    pub mask: [u64; 8],
}

/// Everything a key touches: one or two lines.
#[inline]
pub(crate) fn touches(geometry: &Geometry, digest: Digest) -> impl Iterator<Item = Touch> + use<> {
    let geometry = *geometry;
    (0..geometry.lines).map(move |line| {
        let block = match line {
            0 => geometry.first_block(digest),
            _ => geometry.second_block(digest),
        };
        let mut mask = [0; 8];
        for round in line * geometry.rounds..(line + 1) * geometry.rounds {
            for (sector, position) in positions(digest.print, round).into_iter().enumerate() {
                mask[sector + 4 * (position / 64)] |= 1 << (position % 64);
            }
        }
        mask[7] &= !RESERVED;
        Touch { block, mask }
    })
}

/// The positions of a round within each of the four sectors.
#[inline]
fn positions(print: u64, round: u32) -> [usize; 4] {
    let bits = word(print, round / 2) >> (ROUND_BITS * (round % 2));
    std::array::from_fn(|sector| (bits >> (7 * sector)) as usize % 128)
}

/// The words that rounds take their bits from, two rounds each. The first is `print`; the others are
/// derived from it, which adds no entropy and need not: the 64 bits of `print` tell the few dozen
/// keys of a line apart.
#[inline(always)]
pub(crate) fn word(print: u64, index: u32) -> u64 {
    if index == 0 { print } else { fold(print, WORDS[index as usize]) }
}

/// The two halves of the 128-bit product, xored: every bit of it depends on every bit of `print`.
#[inline(always)]
pub(crate) fn fold(print: u64, factor: u64) -> u64 {
    let product = u128::from(print) * u128::from(factor);
    (product >> 64) as u64 ^ product as u64
}

/// Whether all bits of a key are set, where `load` gives the word at an index.
#[inline]
pub(crate) fn contains(load: impl Fn(usize) -> u64, geometry: &Geometry, digest: Digest) -> bool {
    touches(geometry, digest).all(|touch| {
        let at = touch.block as usize * 8;
        (0..8).all(|i| touch.mask[i] & !load(at + i) == 0)
    })
}

pub(super) static KERNEL: Kernel = Kernel {
    name: "scalar",
    contains_one,
    contains_run,
    insert_one,
    insert_run,
    racing_contains_one,
    racing_contains_run,
};

/// SAFETY: `base` is the first of `geometry.bytes()` readable bytes, and `at` a word of them.
#[inline(always)]
unsafe fn plain(base: *const u8, at: usize) -> u64 {
    // SAFETY: by the contract; the read may be at any alignment.
    u64::from_le(unsafe { base.cast::<u64>().add(at).read_unaligned() })
}

/// SAFETY: as `plain`; and the words are aligned, and written by others only atomically.
#[inline(always)]
unsafe fn racing(base: *const u8, at: usize) -> u64 {
    // SAFETY: by the contract.
    let word = unsafe { AtomicU64::from_ptr(base.cast::<u64>().add(at).cast_mut()) };
    u64::from_le(word.load(Ordering::Relaxed))
}

unsafe fn contains_one(base: *const u8, geometry: &Geometry, digest: Digest) -> bool {
    // SAFETY: blocks are below `geometry.blocks`, so that every word asked for is in the array.
    contains(|at| unsafe { plain(base, at) }, geometry, digest)
}

unsafe fn racing_contains_one(base: *const u8, geometry: &Geometry, digest: Digest) -> bool {
    // SAFETY: as above.
    contains(|at| unsafe { racing(base, at) }, geometry, digest)
}

unsafe fn contains_run(
    base: *const u8,
    geometry: &Geometry,
    digests: &[Digest],
    found: &mut [bool],
) {
    for (at, found) in found.iter_mut().enumerate() {
        near(base, geometry, digests, at, Towards::Near);
        // SAFETY: the caller's contract.
        *found = unsafe { contains_one(base, geometry, digests[at]) };
    }
}

unsafe fn racing_contains_run(
    base: *const u8,
    geometry: &Geometry,
    digests: &[Digest],
    found: &mut [bool],
) {
    for (at, found) in found.iter_mut().enumerate() {
        near(base, geometry, digests, at, Towards::Near);
        // SAFETY: the caller's contract.
        *found = unsafe { racing_contains_one(base, geometry, digests[at]) };
    }
}

/// Asks for the first line of the key that comes `NEAR` keys later.
#[inline(always)]
pub(super) fn near(
    base: *const u8,
    geometry: &Geometry,
    digests: &[Digest],
    at: usize,
    towards: Towards,
) {
    if let Some(later) = digests.get(at + NEAR) {
        prefetch(base.wrapping_add(geometry.first_block(*later) as usize * 64), towards);
        if geometry.lines == 2 {
            prefetch(base.wrapping_add(geometry.second_block(*later) as usize * 64), towards);
        }
    }
}

unsafe fn insert_one(base: *mut u8, geometry: &Geometry, digest: Digest) -> u32 {
    let mut changed = 0;
    for touch in touches(geometry, digest) {
        for (i, mask) in touch.mask.into_iter().enumerate() {
            // SAFETY: as in `contains_one`; the caller lets us write.
            unsafe {
                let at = touch.block as usize * 8 + i;
                let old = plain(base, at);
                base.cast::<u64>().add(at).write_unaligned((old | mask).to_le());
                changed += (mask & !old).count_ones();
            }
        }
    }
    changed
}

unsafe fn insert_run(
    base: *mut u8,
    geometry: &Geometry,
    digests: &[Digest],
    new: &mut [bool],
) -> u64 {
    let mut total = 0;
    for (at, new) in new.iter_mut().enumerate() {
        near(base, geometry, digests, at, Towards::NearToWrite);
        // SAFETY: the caller's contract.
        let changed = unsafe { insert_one(base, geometry, digests[at]) };
        *new = changed != 0;
        total += u64::from(changed);
    }
    total
}
