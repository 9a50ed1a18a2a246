//! The specification of the layout of lines, and the kernel for processors without wide vectors.

use core::sync::atomic::{AtomicU64, Ordering};

use super::lock::{Locked, SharedLine, has_all, set_locked};
use super::{Geometry, Kernel, Run, Towards, WORDS};
use crate::digest::Digest;
use crate::plan::Rounds;

/// What a key sets in one of its lines: the block, and the bits in each of its eight words, or the
/// lowest bits of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    pub block: u64,
    pub mask: [u64; 8],
}

/// All bits that a key touches, in one or two lines.
#[inline]
pub(crate) fn touches(geometry: &Geometry, digest: Digest) -> impl Iterator<Item = Touch> + use<> {
    touches_of::<false>(geometry, digest)
}

/// All counters that a key touches, in one or two lines.
#[inline]
pub(crate) fn touched_counters(
    geometry: &Geometry,
    digest: Digest,
) -> impl Iterator<Item = Touch> + use<> {
    touches_of::<true>(geometry, digest)
}

#[inline]
fn touches_of<const COUNTERS: bool>(
    geometry: &Geometry,
    digest: Digest,
) -> impl Iterator<Item = Touch> + use<COUNTERS> {
    let geometry = *geometry;
    (0..geometry.lines).map(move |line| {
        let mut mask = [0; 8];
        let mark = |word: usize, bit: u64| mask[word] |= 1_u64 << bit;
        if COUNTERS {
            for_each_counter(&geometry, digest, line, mark);
        } else {
            for_each_bit(&geometry, digest, line, mark);
        }
        Touch { block: block(&geometry, digest, line), mask }
    })
}

/// The block that holds a key's line.
#[inline]
pub(crate) fn block(geometry: &Geometry, digest: Digest, line: u32) -> u64 {
    if line == 0 { geometry.first_block(digest) } else { geometry.second_block(digest) }
}

/// Visits the bits that a key sets in a line, as the word and the bit in it. A bit may come twice.
#[inline]
pub(crate) fn for_each_bit(
    geometry: &Geometry,
    digest: Digest,
    line: u32,
    mut visit: impl FnMut(usize, u64),
) {
    let mut probe = |word: usize, position: u64| {
        // Positions count from the top. The highest bit of word 7 is reserved, so that they start one
        // lower there, and the last of them has no room.
        let top = if word == 7 { 62 } else { 63 };
        if position <= top {
            visit(word, top - position);
        }
    };
    let Rounds { full, half } = geometry.rounds;
    let first = line * (full + half);
    for round in first..first + full {
        let bits = word(digest.print, round);
        for i in 0..8 {
            probe(i, bits >> (6 * i) & 63);
        }
    }
    for round in first + full..first + full + half {
        let bits = word(digest.print, round);
        for pair in 0..4 {
            let position = bits >> (7 * pair) & 127;
            probe(if position < 64 { pair } else { pair + 4 }, position % 64);
        }
    }
}

/// As [`for_each_bit`], for counters: visits the lowest bit of each.
#[inline]
fn for_each_counter(
    geometry: &Geometry,
    digest: Digest,
    line: u32,
    mut visit: impl FnMut(usize, u64),
) {
    if geometry.counters.width == 3 {
        return for_each_third(geometry.rounds, digest, line, visit);
    }
    // An index moved up by this much is the place of the counter's lowest bit.
    let up = geometry.counters.width.trailing_zeros();
    let (index_bits, places) = (6 - up as usize, u64::from(64 - geometry.counters.width));
    let Rounds { full, half } = geometry.rounds;
    let first = line * (full + half);
    for round in first..first + full {
        let bits = word(digest.print, round) << up;
        for i in 0..8 {
            visit(i, bits >> (index_bits * i) & places);
        }
    }
    for round in first + full..first + full + half {
        let bits = word(digest.print, round) << up;
        for pair in 0..4 {
            let place = bits >> ((index_bits + 1) * pair);
            visit(if place & 64 == 0 { pair } else { pair + 4 }, place & places);
        }
    }
}

/// As [`for_each_counter`], for counters of three bits. No field of bits has 21 values, so 16 bits are
/// scaled to an index; the likeliest counter is chosen 0.03% more often than the rarest.
#[inline]
fn for_each_third(rounds: Rounds, digest: Digest, line: u32, mut visit: impl FnMut(usize, u64)) {
    let scaled = |bits: u64, by: u64| ((bits & 0xffff) * by) >> 16;
    let Rounds { full, half } = rounds;
    let first = line * (full + half);
    for round in first..first + full {
        let bits = word(digest.print, round);
        for i in 0..8 {
            // Two bytes from the i-th on, of which the upper one has most of the say.
            visit(i, 3 * scaled(bits.rotate_right(8 * i as u32), THIRDS));
        }
    }
    for round in first + full..first + full + half {
        let bits = word(digest.print, round);
        for pair in 0..4 {
            let index = scaled(bits >> (16 * pair), 2 * THIRDS);
            let (word, index) =
                if index < THIRDS { (pair, index) } else { (pair + 4, index - THIRDS) };
            visit(word, 3 * index);
        }
    }
}

/// Counters of three bits in a word.
const THIRDS: u64 = super::counters::per_word(3) as u64;

/// The words of the digest that rounds take their bits from, each its own. The first is `print`; the
/// others are derived from it, which adds no entropy and need not: the 64 bits of `print` tell the
/// few dozen keys of a line apart.
#[inline(always)]
pub(crate) fn word(print: u64, round: u32) -> u64 {
    if round == 0 { print } else { fold(print, WORDS[round as usize]) }
}

/// The two halves of the 128-bit product, xored: every bit of it depends on every bit of `print`.
#[inline(always)]
pub(crate) fn fold(print: u64, factor: u64) -> u64 {
    let product = u128::from(print) * u128::from(factor);
    (product >> 64) as u64 ^ product as u64
}

/// Whether all bits of a key are set, or its counters above zero, where `load` gives the word at an
/// index.
#[inline]
pub(crate) fn contains<const COUNTERS: bool>(
    load: impl Fn(usize) -> u64,
    geometry: &Geometry,
    digest: Digest,
) -> bool {
    let counters = geometry.counters;
    let set = |word| if COUNTERS { counters.above_zero(word) } else { word };
    touches_of::<COUNTERS>(geometry, digest).all(|touch| {
        let at = touch.block as usize * 8;
        (0..8).all(|i| touch.mask[i] & !set(load(at + i)) == 0)
    })
}

/// The kernel of bits, which are counters of width 1, or of wider ones.
pub(super) fn kernel(width: u32) -> &'static Kernel {
    static BITS: Kernel = of::<false>();
    static COUNTERS: Kernel = of::<true>();
    if width == 1 { &BITS } else { &COUNTERS }
}

const fn of<const COUNTERS: bool>() -> Kernel {
    Kernel {
        name: "scalar",
        contains_one: contains_one::<COUNTERS>,
        contains_run: contains_run::<COUNTERS>,
        insert_one: insert_one::<COUNTERS>,
        set_one: set_one::<COUNTERS>,
        insert_run: insert_run::<COUNTERS>,
        racing_contains_one: racing_contains_one::<COUNTERS>,
        racing_contains_run: racing_contains_run::<COUNTERS>,
        racing_insert_one,
        racing_insert_run,
    }
}

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

unsafe fn contains_one<const COUNTERS: bool>(
    base: *const u8,
    geometry: &Geometry,
    digest: Digest,
) -> bool {
    // SAFETY: blocks are below `geometry.blocks`, so that every word asked for is in the array.
    contains::<COUNTERS>(|at| unsafe { plain(base, at) }, geometry, digest)
}

unsafe fn racing_contains_one<const COUNTERS: bool>(
    base: *const u8,
    geometry: &Geometry,
    digest: Digest,
) -> bool {
    // SAFETY: as above.
    contains::<COUNTERS>(|at| unsafe { racing(base, at) }, geometry, digest)
}

unsafe fn contains_run<const COUNTERS: bool>(
    base: *const u8,
    geometry: &Geometry,
    run: Run<'_>,
    found: &mut [bool],
) {
    run.for_each_line(base, geometry, Towards::Near, |at, digest| {
        // SAFETY: the caller's contract.
        found[at] = unsafe { contains_one::<COUNTERS>(base, geometry, digest) };
    });
}

unsafe fn racing_contains_run<const COUNTERS: bool>(
    base: *const u8,
    geometry: &Geometry,
    run: Run<'_>,
    found: &mut [bool],
) {
    run.for_each_line(base, geometry, Towards::Near, |at, digest| {
        // SAFETY: the caller's contract.
        found[at] = unsafe { racing_contains_one::<COUNTERS>(base, geometry, digest) };
    });
}

unsafe fn insert_one<const COUNTERS: bool>(
    base: *mut u8,
    geometry: &Geometry,
    digest: Digest,
) -> u32 {
    let counters = geometry.counters;
    let mut changed = 0;
    for touch in touches_of::<COUNTERS>(geometry, digest) {
        for (i, mask) in touch.mask.into_iter().enumerate() {
            // SAFETY: as in `contains_one`; the caller lets us write.
            unsafe {
                let at = touch.block as usize * 8 + i;
                let old = plain(base, at);
                let (set, new) = if COUNTERS {
                    (counters.above_zero(old), counters.raise(old, mask))
                } else {
                    (old, old | mask)
                };
                base.cast::<u64>().add(at).write_unaligned(new.to_le());
                changed += (mask & !set).count_ones();
            }
        }
    }
    changed
}

unsafe fn set_one<const COUNTERS: bool>(
    base: *mut u8,
    geometry: &Geometry,
    digest: Digest,
) -> bool {
    // SAFETY: the caller's contract.
    unsafe { insert_one::<COUNTERS>(base, geometry, digest) != 0 }
}

unsafe fn insert_run<const COUNTERS: bool>(
    base: *mut u8,
    geometry: &Geometry,
    run: Run<'_>,
    new: &mut [bool],
) -> u64 {
    let mut total = 0;
    run.for_each_line(base, geometry, Towards::NearToWrite, |at, digest| {
        // SAFETY: the caller's contract.
        let changed = unsafe { insert_one::<COUNTERS>(base, geometry, digest) };
        new[at] = changed != 0;
        total += u64::from(changed);
    });
    total
}

/// Sets a key's bits with its lines locked, and returns how many were not set before.
fn racing_insert_one(lines: &[SharedLine], geometry: &Geometry, digest: Digest) -> u32 {
    let mut touches = touches(geometry, digest)
        .map(|touch| (&lines[touch.block as usize], touch.mask.map(u64::to_le)));
    let (first, first_mask) = touches.next().expect("a key has a line");
    // Most inserts in a stream with repetitions end at the first look, without a locked
    // instruction. Bits are never unset while the words are shared, so that what was seen holds.
    let Some((second, second_mask)) = touches.next() else {
        if has_all(first, &first_mask) {
            return 0;
        }
        let _lock = Locked::new(first);
        return set_locked(first, &first_mask);
    };
    if has_all(first, &first_mask) && has_all(second, &second_mask) {
        return 0;
    }
    // Both are locked before either is changed: so one of several threads finds the key missing.
    let _locks = Locked::both(first, second);
    set_locked(first, &first_mask) + set_locked(second, &second_mask)
}

fn racing_insert_run(
    lines: &[SharedLine],
    geometry: &Geometry,
    run: Run<'_>,
    new: &mut [bool],
) -> u64 {
    let mut total = 0;
    run.for_each_line(lines.as_ptr().cast(), geometry, Towards::NearToWrite, |at, digest| {
        let changed = racing_insert_one(lines, geometry, digest);
        new[at] = changed != 0;
        total += u64::from(changed);
    });
    total
}
