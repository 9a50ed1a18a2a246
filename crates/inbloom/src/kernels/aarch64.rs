//! The kernels for NEON, which every 64-bit ARM processor has. See `kernels.rs` for the layout that
//! they implement.
//!
//! They are checked against the scalar kernel under qemu (`scripts/other-machines`). Their speed
//! has not been measured: no ARM processor was available, and qemu's times mean nothing. The
//! instructions below were chosen by their number.
//!
//! - **One shift makes a word's bit.** USHL shifts each lane by the signed lowest byte of another
//!   lane, and ignores the other seven bytes. A count of 64 to 127 leaves 0. So a half round needs no
//!   comparison: it shifts 1 by the place, and by the place with bit 6 inverted, and one of the two
//!   words of a pair gets the bit. (Arm Architecture Reference Manual, "USHL (vector)".)
//! - **Whether anything is missing** is one UMAXP and one move to a general register, as in memchr
//!   (`src/vector.rs`, `movemask_will_have_non_zero`). UMAXV, which reduces all lanes, takes longer on
//!   most processors (Arm Neoverse N1 Software Optimization Guide, "ASIMD max/min, reduce").
//! - **Inserts count bits**, where AVX2 has to count comparisons for each round: CNT counts the bits
//!   of 16 bytes in one instruction, so a line takes four CNT and one ADDV for any number of rounds.
//!
//! Fields could also be found by one byte shuffle and one shift of eight 16-bit lanes. That saves one
//! instruction in twelve and makes the path to the first bit longer, so the plain way stays.
//!
//! A vector load that races with an atomic store is undefined behavior in Rust's memory model, so
//! racing loads and stores are written in assembly, where the processor's model holds. Every byte is
//! loaded and stored as a whole. Shared bits are only ever added, and a counter lies within one byte,
//! so a reader that sees a line in parts sees nothing that was not so before or will be. Counters of
//! three bits cross bytes: their words are loaded by LD1 as elements of 64 bits, each of which is read
//! as a whole (Arm Architecture Reference Manual, "Single-copy atomicity of Advanced SIMD"). Only the
//! holder of a line's lock stores, and the store that unlocks is a release (STLR), which orders the
//! vector stores before itself.

use core::arch::aarch64::*;
use core::arch::asm;

use super::counters::lowest;
use super::lock::{Locked, SharedLine};
use super::scalar::word;
use super::{Geometry, Kernel, Run, Towards, WIDTHS, row};
use crate::digest::Digest;
use crate::plan::Rounds;

/// The kernel for this shape.
pub(super) fn available(geometry: &Geometry) -> impl Iterator<Item = &'static Kernel> + use<> {
    let Rounds { full, half } = geometry.rounds;
    let shape = (geometry.lines * 4 - 4 + full * 2 + half - 1) as usize;
    let width = geometry.counters.width;
    core::iter::once(&NEON[row(width)][shape])
}

/// By the width of counters: see [`row`].
static NEON: [[Kernel; 8]; WIDTHS.len()] =
    [shapes::<1>(), shapes::<2>(), shapes::<3>(), shapes::<4>(), shapes::<8>()];

/// By lines, then by probes of a line.
const fn shapes<const WIDTH: u32>() -> [Kernel; 8] {
    [
        kernel::<0, 1, 1, WIDTH>(),
        kernel::<1, 0, 1, WIDTH>(),
        kernel::<1, 1, 1, WIDTH>(),
        kernel::<2, 0, 1, WIDTH>(),
        kernel::<0, 1, 2, WIDTH>(),
        kernel::<1, 0, 2, WIDTH>(),
        kernel::<1, 1, 2, WIDTH>(),
        kernel::<2, 0, 2, WIDTH>(),
    ]
}

const fn kernel<const FULL: u32, const HALF: u32, const LINES: u32, const WIDTH: u32>() -> Kernel {
    Kernel {
        name: "neon",
        contains_one: contains_one::<FULL, HALF, LINES, WIDTH, false>,
        contains_run: contains_run::<FULL, HALF, LINES, WIDTH, false>,
        insert_one: insert_one::<FULL, HALF, LINES, WIDTH>,
        set_one: set_one::<FULL, HALF, LINES, WIDTH>,
        insert_run: insert_run::<FULL, HALF, LINES, WIDTH>,
        racing_contains_one: contains_one::<FULL, HALF, LINES, WIDTH, true>,
        racing_contains_run: contains_run::<FULL, HALF, LINES, WIDTH, true>,
        racing_insert_one: racing_insert_one::<FULL, HALF, LINES>,
        racing_insert_run: racing_insert_run::<FULL, HALF, LINES>,
    }
}

/// The eight words of a line, two in each vector.
type Line = [uint64x2_t; 4];

/// The line's block: the first one or the second one of the key.
#[inline(always)]
fn block<const LINE: u32>(geometry: &Geometry, digest: Digest) -> usize {
    (if LINE == 0 { geometry.first_block(digest) } else { geometry.second_block(digest) }) as usize
}

/// Two lanes to shift by: positive to the left, negative to the right.
#[inline]
#[target_feature(enable = "neon")]
fn counts(low: i64, high: i64) -> int64x2_t {
    vcombine_s64(vcreate_s64(low as u64), vcreate_s64(high as u64))
}

/// The bits that a full or half round sets, or the highest bits of the counters that it raises.
///
/// Of bits, those of word 7 are one too high: [`mask`] moves them.
#[inline]
#[target_feature(enable = "neon")]
fn round_mask<const FULL: bool, const WIDTH: u32>(print: u64, round: u32) -> Line {
    if WIDTH == 3 {
        return round_thirds::<FULL>(print, round);
    }
    // An index moved up by this much is the place of its counter.
    let up = WIDTH.trailing_zeros();
    let size = i64::from(6 - up) + i64::from(!FULL);
    // Positions of bits count from the top of a word: 63 minus a position is its place.
    let from_top = if WIDTH > 1 {
        0
    } else if FULL {
        u64::MAX
    } else {
        63 * (1 | 1 << 7 | 1 << 14 | 1 << 21)
    };
    let bits = vdupq_n_u64((word(print, round) ^ from_top) << up);
    let places = u64::from(64 - WIDTH) | if FULL { 0 } else { 64 };
    // The places of two neighboring fields.
    let fields = |first: i64| {
        let down = counts(-size * first, -size * (first + 1));
        vandq_u64(vshlq_u64(bits, down), vdupq_n_u64(places))
    };
    let at = |place| vshlq_u64(vdupq_n_u64(1 << (WIDTH - 1)), vreinterpretq_s64_u64(place));
    if FULL {
        return [at(fields(0)), at(fields(2)), at(fields(4)), at(fields(6))];
    }
    // Places from 64 on are in the second word of a pair.
    let second = |place| at(veorq_u64(place, vdupq_n_u64(64)));
    let [low, high] = [fields(0), fields(2)];
    [at(low), at(high), second(low), second(high)]
}

/// As [`round_mask`], for counters of three bits.
#[inline]
#[target_feature(enable = "neon")]
fn round_thirds<const FULL: bool>(print: u64, round: u32) -> Line {
    let bits = vreinterpretq_u8_u64(vdupq_n_u64(word(print, round)));
    // Two bytes of the word into each lane: an index beyond the table gives zero.
    let fields = |low: u64, high: u64| {
        let both = |from: u64| NONE | from | (from + 1) % 8 << 8;
        let which = vcombine_u64(vcreate_u64(both(low)), vcreate_u64(both(high)));
        vreinterpretq_u32_u8(vqtbl1q_u8(bits, vreinterpretq_u8_u64(which)))
    };
    // Scaled, and three times as much.
    let places = |fields, counters| {
        let index = vshrq_n_u32::<16>(vmulq_n_u32(fields, counters));
        vreinterpretq_u64_u32(vmulq_n_u32(index, 3))
    };
    let at = |place| vshlq_u64(vdupq_n_u64(4), vreinterpretq_s64_u64(place));
    if FULL {
        let line = [fields(0, 1), fields(2, 3), fields(4, 5), fields(6, 7)];
        return line.map(|fields| at(places(fields, 21)));
    }
    // The mark of counter 21 or more falls off the first word, and 63 lower it lands in the second. That of
    // one below is then shifted to the right, by 3 or more, and falls off too.
    let [low, high] = [fields(0, 2), fields(4, 6)].map(|fields| places(fields, 42));
    let second = |place| at(vsubq_u64(place, vdupq_n_u64(63)));
    [at(low), at(high), second(low), second(high)]
}

/// The upper six bytes of a lane, as indexes into a table: none.
const NONE: u64 = 0xffff_ffff_ffff_0000;

/// The bits that a key sets in a line, or the highest bits of the counters that it raises.
#[inline]
#[target_feature(enable = "neon")]
fn mask<const FULL: u32, const HALF: u32, const LINE: u32, const WIDTH: u32>(print: u64) -> Line {
    let first = LINE * (FULL + HALF);
    let mut mask = [vdupq_n_u64(0); 4];
    for round in first..first + FULL {
        mask = or(mask, round_mask::<true, WIDTH>(print, round));
    }
    for round in first + FULL..first + FULL + HALF {
        mask = or(mask, round_mask::<false, WIDTH>(print, round));
    }
    if WIDTH == 1 {
        // Positions in word 7 start one lower, and the last one falls off.
        mask[3] = vshlq_u64(mask[3], counts(0, -1));
    }
    mask
}

#[inline]
#[target_feature(enable = "neon")]
fn or(one: Line, other: Line) -> Line {
    let [a, b, c, d] = one;
    let [e, f, g, h] = other;
    [vorrq_u64(a, e), vorrq_u64(b, f), vorrq_u64(c, g), vorrq_u64(d, h)]
}

/// The highest bit of every counter.
const fn highest(width: u32) -> u64 {
    lowest(width) << (width - 1)
}

/// The highest bits of the counters above zero, and anything in their other bits. See
/// `Counters::above_zero`. Of bits, all that are set.
#[inline]
#[target_feature(enable = "neon")]
fn above_zero<const WIDTH: u32>(words: uint64x2_t) -> uint64x2_t {
    if WIDTH == 1 {
        return words;
    }
    let low = vbicq_u64(words, vdupq_n_u64(highest(WIDTH)));
    vorrq_u64(vaddq_u64(low, vdupq_n_u64(!highest(WIDTH))), words)
}

/// What `wanted` has and `here` has not.
#[inline]
#[target_feature(enable = "neon")]
fn missing<const WIDTH: u32>(here: Line, wanted: Line) -> Line {
    let [a, b, c, d] = here;
    let [e, f, g, h] = wanted;
    [
        vbicq_u64(e, above_zero::<WIDTH>(a)),
        vbicq_u64(f, above_zero::<WIDTH>(b)),
        vbicq_u64(g, above_zero::<WIDTH>(c)),
        vbicq_u64(h, above_zero::<WIDTH>(d)),
    ]
}

/// Sets the bits of `mask`, or raises the counters whose highest bits these are, except at their
/// maximum.
#[inline]
#[target_feature(enable = "neon")]
fn raise<const WIDTH: u32>(line: Line, mask: Line) -> Line {
    if WIDTH == 1 {
        return or(line, mask);
    }
    let raise = |words, mask| {
        let inverse = veorq_u64(words, vdupq_n_u64(u64::MAX));
        let below_maximum = vandq_u64(above_zero::<WIDTH>(inverse), mask);
        let down = 1 - i64::from(WIDTH);
        vaddq_u64(words, vshlq_u64(below_maximum, vdupq_n_s64(down)))
    };
    let [a, b, c, d] = line;
    let [e, f, g, h] = mask;
    [raise(a, e), raise(b, f), raise(c, g), raise(d, h)]
}

/// Whether any bit is set.
#[inline]
#[target_feature(enable = "neon")]
fn any([a, b, c, d]: Line) -> bool {
    let either = vreinterpretq_u32_u64(vorrq_u64(vorrq_u64(a, b), vorrq_u64(c, d)));
    vgetq_lane_u64::<0>(vreinterpretq_u64_u32(vpmaxq_u32(either, either))) != 0
}

/// The number of set bits, of which there are at most 255: a key has at most 32 in its lines.
#[inline]
#[target_feature(enable = "neon")]
fn count([a, b, c, d]: Line) -> u32 {
    let bits = |words| vcntq_u8(vreinterpretq_u8_u64(words));
    let sum = vaddq_u8(vaddq_u8(bits(a), bits(b)), vaddq_u8(bits(c), bits(d)));
    u32::from(vaddvq_u8(sum))
}

/// SAFETY: `at` is the first of 64 readable bytes. If RACING is false, nobody writes them.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load<const RACING: bool>(at: *const u8) -> Line {
    if RACING {
        let (a, b, c, d);
        // SAFETY: by the contract; loads have no other effect.
        unsafe {
            asm!("ldp {a:q}, {b:q}, [{at}]", "ldp {c:q}, {d:q}, [{at}, #32]", at = in(reg) at,
                 a = out(vreg) a, b = lateout(vreg) b, c = lateout(vreg) c, d = lateout(vreg) d,
                 options(nostack, readonly, preserves_flags));
        }
        [a, b, c, d]
    } else {
        // SAFETY: by the contract. Bytes may be at any alignment.
        unsafe {
            let part = |start| vreinterpretq_u64_u8(vld1q_u8(at.add(start)));
            [part(0), part(16), part(32), part(48)]
        }
    }
}

/// As `load` of words that others write, each of which is read as a whole.
///
/// SAFETY: `at` is the first of 64 readable bytes, and aligned to 8.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load_words(at: *const u8) -> Line {
    let part = |start: usize| {
        let words;
        // SAFETY: by the contract; loads have no other effect.
        unsafe {
            asm!("ld1 {{{words:v}.2d}}, [{at}]", at = in(reg) at.add(start), words = out(vreg) words,
                 options(nostack, readonly, preserves_flags));
        }
        words
    };
    [part(0), part(16), part(32), part(48)]
}

/// SAFETY: `base` is the first of `geometry.bytes()` readable bytes.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn line_contains<
    const FULL: u32,
    const HALF: u32,
    const LINE: u32,
    const WIDTH: u32,
    const RACING: bool,
>(
    base: *const u8,
    geometry: &Geometry,
    digest: Digest,
) -> bool {
    let wanted = mask::<FULL, HALF, LINE, WIDTH>(digest.print);
    // SAFETY: the block is below `geometry.blocks`.
    let here = unsafe {
        let at = base.add(block::<LINE>(geometry, digest) * 64);
        if RACING && WIDTH == 3 { load_words(at) } else { load::<RACING>(at) }
    };
    !any(missing::<WIDTH>(here, wanted))
}

#[target_feature(enable = "neon")]
unsafe fn contains_one<
    const FULL: u32,
    const HALF: u32,
    const LINES: u32,
    const WIDTH: u32,
    const RACING: bool,
>(
    base: *const u8,
    geometry: &Geometry,
    digest: Digest,
) -> bool {
    // SAFETY: the caller's contract.
    unsafe {
        line_contains::<FULL, HALF, 0, WIDTH, RACING>(base, geometry, digest)
            && (LINES == 1 || line_contains::<FULL, HALF, 1, WIDTH, RACING>(base, geometry, digest))
    }
}

#[target_feature(enable = "neon")]
unsafe fn contains_run<
    const FULL: u32,
    const HALF: u32,
    const LINES: u32,
    const WIDTH: u32,
    const RACING: bool,
>(
    base: *const u8,
    geometry: &Geometry,
    run: Run<'_>,
    found: &mut [bool],
) {
    run.for_each::<LINES>(base, geometry, Towards::Near, |at, digest| {
        // SAFETY: the caller's contract: there are as many answers as keys.
        unsafe {
            *found.get_unchecked_mut(at) =
                contains_one::<FULL, HALF, LINES, WIDTH, RACING>(base, geometry, digest);
        }
    });
}

/// Sets a key's bits in a line, and returns how many were not set before.
///
/// SAFETY: `base` is the first of `geometry.bytes()` bytes that are ours to write.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn line_insert<const FULL: u32, const HALF: u32, const LINE: u32, const WIDTH: u32>(
    base: *mut u8,
    geometry: &Geometry,
    digest: Digest,
) -> u32 {
    let mask = mask::<FULL, HALF, LINE, WIDTH>(digest.print);
    // SAFETY: the block is below `geometry.blocks`. Bytes may be at any alignment.
    unsafe {
        let at = base.add(block::<LINE>(geometry, digest) * 64);
        let here = load::<false>(at);
        for (part, words) in raise::<WIDTH>(here, mask).into_iter().enumerate() {
            vst1q_u8(at.add(16 * part), vreinterpretq_u8_u64(words));
        }
        count(missing::<WIDTH>(here, mask))
    }
}

#[target_feature(enable = "neon")]
unsafe fn insert_one<const FULL: u32, const HALF: u32, const LINES: u32, const WIDTH: u32>(
    base: *mut u8,
    geometry: &Geometry,
    digest: Digest,
) -> u32 {
    // SAFETY: the caller's contract.
    unsafe {
        let mut changed = line_insert::<FULL, HALF, 0, WIDTH>(base, geometry, digest);
        if LINES == 2 {
            changed += line_insert::<FULL, HALF, 1, WIDTH>(base, geometry, digest);
        }
        changed
    }
}

#[target_feature(enable = "neon")]
unsafe fn set_one<const FULL: u32, const HALF: u32, const LINES: u32, const WIDTH: u32>(
    base: *mut u8,
    geometry: &Geometry,
    digest: Digest,
) -> bool {
    // SAFETY: the caller's contract.
    unsafe { insert_one::<FULL, HALF, LINES, WIDTH>(base, geometry, digest) != 0 }
}

#[target_feature(enable = "neon")]
unsafe fn insert_run<const FULL: u32, const HALF: u32, const LINES: u32, const WIDTH: u32>(
    base: *mut u8,
    geometry: &Geometry,
    run: Run<'_>,
    new: &mut [bool],
) -> u64 {
    let mut total = 0;
    run.for_each::<LINES>(base, geometry, Towards::NearToWrite, |at, digest| {
        // SAFETY: the caller's contract: there are as many answers as keys.
        unsafe {
            let changed = insert_one::<FULL, HALF, LINES, WIDTH>(base, geometry, digest);
            *new.get_unchecked_mut(at) = changed != 0;
            total += u64::from(changed);
        }
    });
    total
}

/// Whether a line lacks any bit of a mask.
#[inline]
#[target_feature(enable = "neon")]
fn racing_lacks(line: &SharedLine, mask: Line) -> bool {
    // SAFETY: the line has 64 bytes.
    any(missing::<1>(unsafe { load::<true>(line.as_ptr().cast()) }, mask))
}

/// Sets the bits of a mask in a line whose lock we hold, and returns how many were not set before.
#[inline]
#[target_feature(enable = "neon")]
fn set_locked(line: &SharedLine, mask: Line) -> u32 {
    let at: *mut u8 = line.as_ptr().cast_mut().cast();
    // SAFETY: the line has 64 bytes, which are atomics and may be written through a reference. The
    // lock is ours, so no store of another thread is undone.
    unsafe {
        let here = load::<true>(at);
        let [a, b, c, d] = or(here, mask);
        asm!("stp {a:q}, {b:q}, [{at}]", "stp {c:q}, {d:q}, [{at}, #32]", at = in(reg) at,
             a = in(vreg) a, b = in(vreg) b, c = in(vreg) c, d = in(vreg) d,
             options(nostack, preserves_flags));
        count(missing::<1>(here, mask))
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn racing_insert_one<const FULL: u32, const HALF: u32, const LINES: u32>(
    lines: &[SharedLine],
    geometry: &Geometry,
    digest: Digest,
) -> u32 {
    // As the scalar kernel does.
    let first = &lines[block::<0>(geometry, digest)];
    let first_mask = mask::<FULL, HALF, 0, 1>(digest.print);
    if LINES == 1 {
        if !racing_lacks(first, first_mask) {
            return 0;
        }
        let _lock = Locked::new(first);
        return set_locked(first, first_mask);
    }
    let second = &lines[block::<1>(geometry, digest)];
    let second_mask = mask::<FULL, HALF, 1, 1>(digest.print);
    if !racing_lacks(first, first_mask) && !racing_lacks(second, second_mask) {
        return 0;
    }
    let _locks = Locked::both(first, second);
    set_locked(first, first_mask) + set_locked(second, second_mask)
}

#[target_feature(enable = "neon")]
fn racing_insert_run<const FULL: u32, const HALF: u32, const LINES: u32>(
    lines: &[SharedLine],
    geometry: &Geometry,
    run: Run<'_>,
    new: &mut [bool],
) -> u64 {
    let mut total = 0;
    let base = lines.as_ptr().cast();
    run.for_each::<LINES>(base, geometry, Towards::NearToWrite, |at, digest| {
        let changed = racing_insert_one::<FULL, HALF, LINES>(lines, geometry, digest);
        new[at] = changed != 0;
        total += u64::from(changed);
    });
    total
}
