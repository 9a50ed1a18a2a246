//! The kernels for AVX2, and of blocked for AVX-512. See `kernels.rs` for the layout they implement.
//!
//! One source per instruction set, monomorphised over the rounds of a line, the lines of a key, the
//! width of counters (1 is a bit), and whether other threads may be writing. A vector load that
//! races with an atomic store is undefined behavior in Rust's memory model, so racing loads are
//! written in assembly, where the processor's model holds: on x86 every aligned 64-bit part of a
//! vector load is read as a whole, and a bit that was set before, in the sense of happens-before,
//! is seen. So are racing stores, which only the holder of a line's lock makes: an ordinary store
//! of a vector is ordered before the store that unlocks, as any two stores on x86 are; and since it
//! only adds bits, a reader that sees it in parts sees nothing that was not so before or will be.
//!
//! The functions over whole runs stand twice, once per instruction set: a body is compiled for the
//! instruction set only inside a function that enables it, which a shared generic one cannot.

use core::arch::asm;
use core::arch::x86_64::*;

use super::lock::{Locked, SharedLine};
use super::scalar::word;
use super::{Geometry, Kernel, Run, Towards, WIDTHS, row};
use crate::digest::Digest;
use crate::plan::Rounds;

/// The kernels that this processor runs for this shape, fastest first.
pub(super) fn available(geometry: &Geometry) -> impl Iterator<Item = &'static Kernel> + use<> {
    let Rounds { full, half } = geometry.rounds;
    let shape = (geometry.lines * 4 - 4 + full * 2 + half - 1) as usize;
    let counts = is_x86_feature_detected!("popcnt");
    let narrow = counts && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2");
    // Some of its operations are AVX2's.
    let wide = narrow && is_x86_feature_detected!("avx512f");
    let width = geometry.counters.width;
    let wide = (wide && width == 1).then(|| &AVX512[shape]);
    let narrow = narrow.then(|| &AVX2[row(width)][shape]);
    wide.into_iter().chain(narrow)
}

/// By the width of counters: see [`row`].
static AVX2: [[Kernel; 8]; WIDTHS.len()] = [
    avx2_shapes::<1>(),
    avx2_shapes::<2>(),
    avx2_shapes::<3>(),
    avx2_shapes::<4>(),
    avx2_shapes::<8>(),
];

/// By lines, then by probes of a line.
const fn avx2_shapes<const WIDTH: u32>() -> [Kernel; 8] {
    [
        avx2::kernel::<0, 1, 1, WIDTH>(),
        avx2::kernel::<1, 0, 1, WIDTH>(),
        avx2::kernel::<1, 1, 1, WIDTH>(),
        avx2::kernel::<2, 0, 1, WIDTH>(),
        avx2::kernel::<0, 1, 2, WIDTH>(),
        avx2::kernel::<1, 0, 2, WIDTH>(),
        avx2::kernel::<1, 1, 2, WIDTH>(),
        avx2::kernel::<2, 0, 2, WIDTH>(),
    ]
}

/// By lines, then by probes of a line. Each operation is the faster one of both instruction sets, as
/// measured: AVX-512's, but for shared inserts of keys with four rounds, whose masks it does not
/// keep in registers while it takes the locks.
///
/// Nanoseconds for a key in 128 KiB, on an EPYC with AVX-512 (November 2026, the best of 60 rounds
/// in turns, as the tests are compiled): single inserts and in batches, then shared ones. "Counted"
/// is AVX-512 as it was, which counted bits and not comparisons.
///
/// | lines, probes | AVX-512 | AVX2 | counted |
/// |---|---|---|---|
/// | 1, 4 | 4.2, 2.9; 12.4, 11.6 | 6.5, 5.3; 14.1, 14.6 | 4.1, 4.8; 12.2, 11.6 |
/// | 1, 8 | 4.2, 2.9; 13.1, 12.2 | 6.9, 5.5; 14.7, 14.8 | 4.0, 4.7; 13.0, 12.3 |
/// | 1, 12 | 5.1, 5.7; 15.3, 14.9 | 7.7, 6.4; 15.4, 15.7 | 6.3, 6.8; 17.8, 18.1 |
/// | 1, 16 | 5.1, 5.5; 15.0, 14.8 | 7.9, 6.6; 15.5, 15.8 | 6.1, 6.6; 17.7, 17.8 |
/// | 2, 4 each | 9.1, 9.4; 17.8, 18.5 | 13.3, 12.0; 19.0, 20.5 | 11.0, 11.2; 23.2, 23.5 |
/// | 2, 8 each | 8.9, 9.2; 17.3, 17.9 | 13.6, 12.2; 18.3, 20.5 | 11.0, 11.1; 22.9, 23.2 |
/// | 2, 12 each | 11.0, 11.2; 22.2, 32.0 | 15.7, 13.9; 19.5, 21.6 | 12.9, 13.0; 24.2, 24.6 |
/// | 2, 16 each | 10.7, 10.9; 22.0, 32.3 | 16.2, 14.3; 19.6, 21.7 | 12.4, 12.5; 24.0, 24.4 |
///
/// In 32 MiB the order is the same in batches (shared, two lines of 12: 43, 37 and 40); of single
/// calls, which wait for memory, noise decides. Queries are faster with AVX-512 in every shape.
static AVX512: [Kernel; 8] = [
    avx512::kernel::<0, 1, 1>(),
    avx512::kernel::<1, 0, 1>(),
    avx512::kernel::<1, 1, 1>(),
    avx512::kernel::<2, 0, 1>(),
    avx512::kernel::<0, 1, 2>(),
    avx512::kernel::<1, 0, 2>(),
    avx512::kernel::<1, 1, 2>().with_racing_inserts_of(avx2::kernel::<1, 1, 2, 1>()),
    avx512::kernel::<2, 0, 2>().with_racing_inserts_of(avx2::kernel::<2, 0, 2, 1>()),
];

impl Kernel {
    const fn with_racing_inserts_of(self, other: Kernel) -> Kernel {
        let Kernel { racing_insert_one, racing_insert_run, .. } = other;
        Kernel { racing_insert_one, racing_insert_run, ..self }
    }
}

/// The line's block: the first one or the second one of the key.
#[inline(always)]
fn block<const LINE: u32>(geometry: &Geometry, digest: Digest) -> usize {
    (if LINE == 0 { geometry.first_block(digest) } else { geometry.second_block(digest) }) as usize
}

mod avx2 {
    use super::super::counters::lowest;
    use super::*;

    pub(super) const fn kernel<
        const FULL: u32,
        const HALF: u32,
        const LINES: u32,
        const WIDTH: u32,
    >() -> Kernel {
        Kernel {
            name: "avx2",
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

    /// Words 0 to 3 of a line, and words 4 to 7.
    type Line = (__m256i, __m256i);

    /// The bits that a full or half round sets, or the highest bits of the counters that it raises.
    #[inline]
    #[target_feature(enable = "avx2,bmi2")]
    fn round_mask<const FULL: bool, const WIDTH: u32>(print: u64, round: u32) -> Line {
        if WIDTH > 1 {
            return round_counters::<FULL, WIDTH>(print, round);
        }
        let top = _mm256_set1_epi64x(i64::MIN);
        let top_high = _mm256_setr_epi64x(i64::MIN, i64::MIN, i64::MIN, 1 << 62);
        let bits = _mm256_set1_epi64x(word(print, round) as i64);
        if FULL {
            // Each field of 6 bits to the top of its lane, and down again.
            let low = _mm256_sllv_epi64(bits, _mm256_setr_epi64x(58, 52, 46, 40));
            let high = _mm256_sllv_epi64(bits, _mm256_setr_epi64x(34, 28, 22, 16));
            (
                _mm256_srlv_epi64(top, _mm256_srli_epi64::<58>(low)),
                _mm256_srlv_epi64(top_high, _mm256_srli_epi64::<58>(high)),
            )
        } else {
            let fields = _mm256_sllv_epi64(bits, _mm256_setr_epi64x(57, 50, 43, 36));
            let position = _mm256_srli_epi64::<57>(fields);
            // A shift by 64 or more (or, unsigned, by less than 0) gives 0: the bit lands in one of
            // the pair's two words.
            let other = _mm256_sub_epi64(position, _mm256_set1_epi64x(64));
            (_mm256_srlv_epi64(top, position), _mm256_srlv_epi64(top_high, other))
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn round_counters<const FULL: bool, const WIDTH: u32>(print: u64, round: u32) -> Line {
        if WIDTH == 3 {
            return round_thirds::<FULL>(print, round);
        }
        // An index moved up by this much is the place of its counter.
        let up = WIDTH.trailing_zeros();
        let index_bits = i64::from(6 - up);
        let mark = _mm256_set1_epi64x(1 << (WIDTH - 1));
        let at = |bits| {
            let places = _mm256_set1_epi64x(i64::from(64 - WIDTH));
            _mm256_sllv_epi64(mark, _mm256_and_si256(bits, places))
        };
        let bits = _mm256_set1_epi64x((word(print, round) << up) as i64);
        let fields = |size, first| {
            let shifts = [first, first + 1, first + 2, first + 3].map(|field: i64| size * field);
            let [a, b, c, d] = shifts;
            _mm256_srlv_epi64(bits, _mm256_setr_epi64x(a, b, c, d))
        };
        if FULL {
            return (at(fields(index_bits, 0)), at(fields(index_bits, 4)));
        }
        let fields = fields(index_bits + 1, 0);
        // The bit above the index, moved to the sign, chooses the word of the pair.
        let sign = _mm256_slli_epi64::<57>(fields);
        let second = _mm256_cmpgt_epi64(_mm256_setzero_si256(), sign);
        (_mm256_andnot_si256(second, at(fields)), _mm256_and_si256(second, at(fields)))
    }

    /// As [`round_counters`], of three bits.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn round_thirds<const FULL: bool>(print: u64, round: u32) -> Line {
        let bits = _mm256_set1_epi64x(word(print, round) as i64);
        // Two bytes of the word into each lane.
        let fields = |a, b, c, d| {
            let which =
                _mm256_setr_epi64x(bytes_from(a), bytes_from(b), bytes_from(c), bytes_from(d));
            _mm256_shuffle_epi8(bits, which)
        };
        let scaled = |fields, by| _mm256_mulhi_epu16(fields, _mm256_set1_epi64x(by));
        let at = |places| _mm256_sllv_epi64(_mm256_set1_epi64x(4), places);
        // The place of a counter is three times its index: in full rounds by a product, which is fewer
        // instructions (1.36 ns for a query in cache, and 1.81 by sums), in half rounds by sums, which
        // are there sooner (6.1 ns for two lines, and 6.9 by a product; bench/record, counting).
        if FULL {
            let (low, high) = (fields(0, 1, 2, 3), fields(4, 5, 6, 7));
            let places = |fields| _mm256_mullo_epi16(scaled(fields, 21), _mm256_set1_epi64x(3));
            return (at(places(low)), at(places(high)));
        }
        // The mark of counter 21 or more falls off the first word, and by 63 less it lands in the second;
        // the mark of one below has no place there, since shifts are unsigned.
        let index = scaled(fields(0, 2, 4, 6), 42);
        let (twice, less) =
            (_mm256_slli_epi64::<1>(index), _mm256_sub_epi64(index, _mm256_set1_epi64x(63)));
        (at(_mm256_add_epi64(twice, index)), at(_mm256_add_epi64(twice, less)))
    }

    /// A lane in the control of a shuffle: two bytes, of which the second may be the first of the next
    /// word, and six zeros. (Of a vector that has the same word everywhere.)
    const fn bytes_from(first: i64) -> i64 {
        first | (first + 1) << 8 | 0x8080_8080_8080_0000_u64 as i64
    }

    /// The highest bits of the counters above zero, and anything in their other bits. See
    /// `Counters::above_zero`. Of bits, all that are set.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn above_zero<const WIDTH: u32>(words: __m256i) -> __m256i {
        if WIDTH == 1 {
            return words;
        }
        let highest = _mm256_set1_epi64x(highest(WIDTH));
        // Of three bits also the spare one: nothing carries into it, and no key asks for it.
        let others = _mm256_set1_epi64x(!self::highest(WIDTH));
        _mm256_or_si256(_mm256_add_epi64(_mm256_andnot_si256(highest, words), others), words)
    }

    /// The highest bit of every counter.
    const fn highest(width: u32) -> i64 {
        (lowest(width) << (width - 1)) as i64
    }

    /// Raises the counters whose highest bits are in `mask`, except at their maximum, and except
    /// those that this key has `raised` before.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn raise<const WIDTH: u32>(line: Line, mask: Line, raised: Line) -> Line {
        if WIDTH == 1 {
            return or(line, mask);
        }
        let mask = missing::<1>(raised, mask);
        let raise = |words, mask| {
            let inverse = _mm256_xor_si256(words, _mm256_set1_epi64x(-1));
            let below_maximum = _mm256_and_si256(above_zero::<WIDTH>(inverse), mask);
            let down = _mm_cvtsi32_si128(WIDTH as i32 - 1);
            _mm256_add_epi64(words, _mm256_srl_epi64(below_maximum, down))
        };
        (raise(line.0, mask.0), raise(line.1, mask.1))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn or(one: Line, other: Line) -> Line {
        (_mm256_or_si256(one.0, other.0), _mm256_or_si256(one.1, other.1))
    }

    /// What `wanted` has and `here` has not.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn missing<const WIDTH: u32>(here: Line, wanted: Line) -> Line {
        let here = (above_zero::<WIDTH>(here.0), above_zero::<WIDTH>(here.1));
        (_mm256_andnot_si256(here.0, wanted.0), _mm256_andnot_si256(here.1, wanted.1))
    }

    /// The bits that a key sets in a line.
    #[inline]
    #[target_feature(enable = "avx2,bmi2")]
    fn mask<const FULL: u32, const HALF: u32, const LINE: u32, const WIDTH: u32>(
        print: u64,
    ) -> Line {
        let first = LINE * (FULL + HALF);
        let mut mask = (_mm256_setzero_si256(), _mm256_setzero_si256());
        for round in first..first + FULL {
            mask = or(mask, round_mask::<true, WIDTH>(print, round));
        }
        for round in first + FULL..first + FULL + HALF {
            mask = or(mask, round_mask::<false, WIDTH>(print, round));
        }
        mask
    }

    /// SAFETY: `at` is the first of 32 readable bytes. If RACING is false, nobody writes them.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load<const RACING: bool>(at: *const u8) -> __m256i {
        if RACING {
            let vector;
            // SAFETY: by the contract; a load has no other effect.
            unsafe {
                asm!("vmovdqu {}, [{}]", out(ymm_reg) vector, in(reg) at,
                     options(nostack, readonly, preserves_flags));
            }
            vector
        } else {
            // SAFETY: by the contract.
            unsafe { _mm256_loadu_si256(at.cast()) }
        }
    }

    /// SAFETY: `base` is the first of `geometry.bytes()` readable bytes.
    #[inline]
    #[target_feature(enable = "avx2,bmi2")]
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
            (load::<RACING>(at), load::<RACING>(at.add(32)))
        };
        let (low, high) = missing::<WIDTH>(here, wanted);
        let any = _mm256_or_si256(low, high);
        _mm256_testz_si256(any, any) == 1
    }

    #[target_feature(enable = "avx2,bmi2")]
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
                && (LINES == 1
                    || line_contains::<FULL, HALF, 1, WIDTH, RACING>(base, geometry, digest))
        }
    }

    #[target_feature(enable = "avx2,bmi2")]
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

    /// Sets a key's bits in a line, and returns two counts in parts: the sum of the lanes of the first
    /// is minus the number of probes that found their bit set; the second is zero if all did.
    ///
    /// Probes of one round fall into different lanes, so that a comparison counts them. Counting the
    /// bits themselves takes three times the instructions.
    ///
    /// SAFETY: `base` is the first of `geometry.bytes()` bytes that are ours to write.
    #[inline]
    #[target_feature(enable = "avx2,bmi2")]
    unsafe fn line_insert<const FULL: u32, const HALF: u32, const LINE: u32, const WIDTH: u32>(
        base: *mut u8,
        geometry: &Geometry,
        digest: Digest,
    ) -> (__m256i, __m256i) {
        let zero = _mm256_setzero_si256();
        let (mut found, mut changed) = (zero, zero);
        let mut raised = (zero, zero);
        let first = LINE * (FULL + HALF);
        // SAFETY: the block is below `geometry.blocks`.
        unsafe {
            let at = base.add(block::<LINE>(geometry, digest) * 64);
            let mut line = (load::<false>(at), load::<false>(at.add(32)));
            for round in first..first + FULL {
                let mask = round_mask::<true, WIDTH>(digest.print, round);
                let (low, high) = missing::<WIDTH>(line, mask);
                found = _mm256_add_epi64(found, _mm256_cmpeq_epi64(low, zero));
                found = _mm256_add_epi64(found, _mm256_cmpeq_epi64(high, zero));
                changed = _mm256_or_si256(changed, _mm256_or_si256(low, high));
                line = raise::<WIDTH>(line, mask, raised);
                raised = or(raised, mask);
            }
            for round in first + FULL..first + FULL + HALF {
                let mask = round_mask::<false, WIDTH>(digest.print, round);
                let (low, high) = missing::<WIDTH>(line, mask);
                let either = _mm256_or_si256(low, high);
                found = _mm256_add_epi64(found, _mm256_cmpeq_epi64(either, zero));
                changed = _mm256_or_si256(changed, either);
                line = raise::<WIDTH>(line, mask, raised);
                raised = or(raised, mask);
            }
            _mm256_storeu_si256(at.cast(), line.0);
            _mm256_storeu_si256(at.add(32).cast(), line.1);
        }
        (found, changed)
    }

    /// As [`line_insert`], over all lines of a key.
    #[inline]
    #[target_feature(enable = "avx2,bmi2")]
    unsafe fn key_insert<const FULL: u32, const HALF: u32, const LINES: u32, const WIDTH: u32>(
        base: *mut u8,
        geometry: &Geometry,
        digest: Digest,
    ) -> (__m256i, __m256i) {
        // SAFETY: the caller's contract.
        let (found, changed) =
            unsafe { line_insert::<FULL, HALF, 0, WIDTH>(base, geometry, digest) };
        if LINES == 1 {
            return (found, changed);
        }
        // SAFETY: the caller's contract.
        let second = unsafe { line_insert::<FULL, HALF, 1, WIDTH>(base, geometry, digest) };
        (_mm256_add_epi64(found, second.0), _mm256_or_si256(changed, second.1))
    }

    /// The probes of a number of keys, less those that found their bit set.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn changes<const FULL: u32, const HALF: u32, const LINES: u32>(
        keys: usize,
        found: __m256i,
    ) -> u64 {
        // SAFETY: both are 32 bytes without padding.
        let lanes: [i64; 4] = unsafe { core::mem::transmute(found) };
        let probes = u64::from((8 * FULL + 4 * HALF) * LINES) * keys as u64;
        probes.wrapping_add_signed(lanes.iter().sum())
    }

    #[target_feature(enable = "avx2,bmi2")]
    unsafe fn insert_one<const FULL: u32, const HALF: u32, const LINES: u32, const WIDTH: u32>(
        base: *mut u8,
        geometry: &Geometry,
        digest: Digest,
    ) -> u32 {
        // SAFETY: the caller's contract.
        let (found, _) = unsafe { key_insert::<FULL, HALF, LINES, WIDTH>(base, geometry, digest) };
        changes::<FULL, HALF, LINES>(1, found) as u32
    }

    #[target_feature(enable = "avx2,bmi2")]
    unsafe fn set_one<const FULL: u32, const HALF: u32, const LINES: u32, const WIDTH: u32>(
        base: *mut u8,
        geometry: &Geometry,
        digest: Digest,
    ) -> bool {
        // SAFETY: the caller's contract.
        let (_, changed) =
            unsafe { key_insert::<FULL, HALF, LINES, WIDTH>(base, geometry, digest) };
        _mm256_testz_si256(changed, changed) == 0
    }

    #[target_feature(enable = "avx2,bmi2")]
    unsafe fn insert_run<const FULL: u32, const HALF: u32, const LINES: u32, const WIDTH: u32>(
        base: *mut u8,
        geometry: &Geometry,
        run: Run<'_>,
        new: &mut [bool],
    ) -> u64 {
        let mut total = _mm256_setzero_si256();
        run.for_each::<LINES>(base, geometry, Towards::NearToWrite, |at, digest| {
            // SAFETY: the caller's contract: there are as many answers as keys.
            let found = unsafe {
                let (found, changed) =
                    key_insert::<FULL, HALF, LINES, WIDTH>(base, geometry, digest);
                *new.get_unchecked_mut(at) = _mm256_testz_si256(changed, changed) == 0;
                found
            };
            total = _mm256_add_epi64(total, found);
        });
        changes::<FULL, HALF, LINES>(run.keys.len(), total)
    }

    /// The number of set bits.
    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    fn count(line: Line) -> u32 {
        // SAFETY: both are 64 bytes without padding.
        let words: [u64; 8] = unsafe { core::mem::transmute([line.0, line.1]) };
        words.iter().map(|word| word.count_ones()).sum()
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn any((low, high): Line) -> bool {
        let either = _mm256_or_si256(low, high);
        _mm256_testz_si256(either, either) == 0
    }

    /// The bits of a mask that a line has not.
    #[inline]
    #[target_feature(enable = "avx2,bmi2,popcnt")]
    fn racing_missing(line: &SharedLine, mask: Line) -> Line {
        let at = line.as_ptr().cast();
        // SAFETY: the line has 64 bytes.
        let here = unsafe { (load::<true>(at), load::<true>(at.add(32))) };
        missing::<1>(here, mask)
    }

    /// Sets the bits of a mask in a line whose lock we hold, and returns those that were not set
    /// before.
    #[inline]
    #[target_feature(enable = "avx2,bmi2,popcnt")]
    fn set_locked(line: &SharedLine, mask: Line) -> Line {
        let at: *mut u8 = line.as_ptr().cast_mut().cast();
        // SAFETY: the line has 64 bytes, which are atomics and may be written through a reference.
        // The lock is ours, so that no store of another thread is undone.
        unsafe {
            let here = (load::<true>(at), load::<true>(at.add(32)));
            let (low, high) = or(here, mask);
            asm!("vmovdqu [{at}], {low}", "vmovdqu [{at} + 32], {high}", at = in(reg) at,
                 low = in(ymm_reg) low, high = in(ymm_reg) high,
                 options(nostack, preserves_flags));
            missing::<1>(here, mask)
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi2,popcnt")]
    fn racing_insert_one<const FULL: u32, const HALF: u32, const LINES: u32>(
        lines: &[SharedLine],
        geometry: &Geometry,
        digest: Digest,
    ) -> u32 {
        // As the scalar kernel does.
        let first = &lines[block::<0>(geometry, digest)];
        let first_mask = mask::<FULL, HALF, 0, 1>(digest.print);
        if LINES == 1 {
            if !any(racing_missing(first, first_mask)) {
                return 0;
            }
            let lock = Locked::new(first);
            let new = set_locked(first, first_mask);
            drop(lock);
            return count(new);
        }
        let second = &lines[block::<1>(geometry, digest)];
        let second_mask = mask::<FULL, HALF, 1, 1>(digest.print);
        if !any(racing_missing(first, first_mask)) && !any(racing_missing(second, second_mask)) {
            return 0;
        }
        let locks = Locked::both(first, second);
        let (new, second_new) = (set_locked(first, first_mask), set_locked(second, second_mask));
        drop(locks);
        count(new) + count(second_new)
    }

    #[target_feature(enable = "avx2,bmi2,popcnt")]
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
}

mod avx512 {
    use super::*;

    pub(super) const fn kernel<const FULL: u32, const HALF: u32, const LINES: u32>() -> Kernel {
        Kernel {
            name: "avx512",
            contains_one: contains_one::<FULL, HALF, LINES, false>,
            contains_run: contains_run::<FULL, HALF, LINES, false>,
            insert_one: insert_one::<FULL, HALF, LINES>,
            set_one: set_one::<FULL, HALF, LINES>,
            insert_run: insert_run::<FULL, HALF, LINES>,
            racing_contains_one: contains_one::<FULL, HALF, LINES, true>,
            racing_contains_run: contains_run::<FULL, HALF, LINES, true>,
            racing_insert_one: racing_insert_one::<FULL, HALF, LINES>,
            racing_insert_run: racing_insert_run::<FULL, HALF, LINES>,
        }
    }

    /// The bits that the rounds of a key set in a line, each as eight words. There are one or two;
    /// the second of one sets nothing.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn round_masks<const FULL: u32, const HALF: u32, const LINE: u32>(print: u64) -> [__m512i; 2] {
        const TOP: i64 = i64::MIN;
        let top = _mm512_setr_epi64(TOP, TOP, TOP, TOP, TOP, TOP, TOP, 1 << 62);
        let first = LINE * (FULL + HALF);
        let mut masks = [_mm512_setzero_si512(); 2];
        for round in 0..FULL {
            let bits = _mm512_set1_epi64(word(print, first + round) as i64);
            // Each field of 6 bits to the top of its lane, and down again.
            let shifts = _mm512_setr_epi64(58, 52, 46, 40, 34, 28, 22, 16);
            let position = _mm512_srli_epi64::<58>(_mm512_sllv_epi64(bits, shifts));
            masks[round as usize] = _mm512_srlv_epi64(top, position);
        }
        for round in FULL..FULL + HALF {
            let bits = _mm512_set1_epi64(word(print, first + round) as i64);
            let shifts = _mm512_setr_epi64(57, 50, 43, 36, 57, 50, 43, 36);
            let position = _mm512_srli_epi64::<57>(_mm512_sllv_epi64(bits, shifts));
            // A shift by 64 or more gives 0: the bit lands in one of the pair's two words.
            let halves = _mm512_setr_epi64(0, 0, 0, 0, 64, 64, 64, 64);
            let here = _mm512_xor_si512(position, halves);
            masks[round as usize] = _mm512_srlv_epi64(top, here);
        }
        masks
    }

    /// The bits that a key sets in a line.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn mask<const FULL: u32, const HALF: u32, const LINE: u32>(print: u64) -> __m512i {
        let [first, second] = round_masks::<FULL, HALF, LINE>(print);
        _mm512_or_si512(first, second)
    }

    /// A line with the bits of the rounds, and how many of these it had not.
    ///
    /// A round sets at most one bit of a word, so that a comparison of words counts them. To count
    /// the bits themselves, words go through memory, which made inserts of 12 and more probes slower
    /// than AVX2's: see [`AVX512`](super::AVX512).
    #[inline]
    #[target_feature(enable = "avx512f,popcnt")]
    fn with_rounds(mut line: __m512i, masks: [__m512i; 2]) -> (__m512i, u32) {
        let mut changed = 0;
        for mask in masks {
            let new = _mm512_andnot_si512(line, mask);
            changed += _mm512_test_epi64_mask(new, new).count_ones();
            line = _mm512_or_si512(line, mask);
        }
        (line, changed)
    }

    /// SAFETY: `at` is the first of 64 readable bytes. If RACING is false, nobody writes them.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load<const RACING: bool>(at: *const u8) -> __m512i {
        if RACING {
            let vector;
            // SAFETY: by the contract; a load has no other effect.
            unsafe {
                asm!("vmovdqu64 {}, [{}]", out(zmm_reg) vector, in(reg) at,
                     options(nostack, readonly, preserves_flags));
            }
            vector
        } else {
            // SAFETY: by the contract.
            unsafe { _mm512_loadu_si512(at.cast()) }
        }
    }

    /// SAFETY: `base` is the first of `geometry.bytes()` readable bytes.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn line_contains<
        const FULL: u32,
        const HALF: u32,
        const LINE: u32,
        const RACING: bool,
    >(
        base: *const u8,
        geometry: &Geometry,
        digest: Digest,
    ) -> bool {
        let mask = mask::<FULL, HALF, LINE>(digest.print);
        // SAFETY: the block is below `geometry.blocks`.
        let here = unsafe { load::<RACING>(base.add(block::<LINE>(geometry, digest) * 64)) };
        let missing = _mm512_andnot_si512(here, mask);
        _mm512_test_epi64_mask(missing, missing) == 0
    }

    #[target_feature(enable = "avx512f")]
    unsafe fn contains_one<
        const FULL: u32,
        const HALF: u32,
        const LINES: u32,
        const RACING: bool,
    >(
        base: *const u8,
        geometry: &Geometry,
        digest: Digest,
    ) -> bool {
        // SAFETY: the caller's contract.
        unsafe {
            line_contains::<FULL, HALF, 0, RACING>(base, geometry, digest)
                && (LINES == 1 || line_contains::<FULL, HALF, 1, RACING>(base, geometry, digest))
        }
    }

    #[target_feature(enable = "avx512f")]
    unsafe fn contains_run<
        const FULL: u32,
        const HALF: u32,
        const LINES: u32,
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
                    contains_one::<FULL, HALF, LINES, RACING>(base, geometry, digest);
            }
        });
    }

    /// SAFETY: `base` is the first of `geometry.bytes()` bytes that are ours to write.
    #[inline]
    #[target_feature(enable = "avx512f,popcnt")]
    unsafe fn line_insert<const FULL: u32, const HALF: u32, const LINE: u32>(
        base: *mut u8,
        geometry: &Geometry,
        digest: Digest,
    ) -> u32 {
        let masks = round_masks::<FULL, HALF, LINE>(digest.print);
        // SAFETY: the block is below `geometry.blocks`.
        unsafe {
            let at = base.add(block::<LINE>(geometry, digest) * 64);
            let (line, changed) = with_rounds(load::<false>(at), masks);
            _mm512_storeu_si512(at.cast(), line);
            changed
        }
    }

    #[target_feature(enable = "avx512f,popcnt")]
    unsafe fn insert_one<const FULL: u32, const HALF: u32, const LINES: u32>(
        base: *mut u8,
        geometry: &Geometry,
        digest: Digest,
    ) -> u32 {
        // SAFETY: the caller's contract.
        unsafe {
            let mut changed = line_insert::<FULL, HALF, 0>(base, geometry, digest);
            if LINES == 2 {
                changed += line_insert::<FULL, HALF, 1>(base, geometry, digest);
            }
            changed
        }
    }

    /// Sets a key's bits in a line, and returns those that were not set before.
    ///
    /// SAFETY: `base` is the first of `geometry.bytes()` bytes that are ours to write.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn line_set<const FULL: u32, const HALF: u32, const LINE: u32>(
        base: *mut u8,
        geometry: &Geometry,
        digest: Digest,
    ) -> __m512i {
        let mask = mask::<FULL, HALF, LINE>(digest.print);
        // SAFETY: the block is below `geometry.blocks`.
        unsafe {
            let at = base.add(block::<LINE>(geometry, digest) * 64);
            let line = load::<false>(at);
            _mm512_storeu_si512(at.cast(), _mm512_or_si512(line, mask));
            _mm512_andnot_si512(line, mask)
        }
    }

    #[target_feature(enable = "avx512f")]
    unsafe fn set_one<const FULL: u32, const HALF: u32, const LINES: u32>(
        base: *mut u8,
        geometry: &Geometry,
        digest: Digest,
    ) -> bool {
        // SAFETY: the caller's contract.
        unsafe {
            let mut new = line_set::<FULL, HALF, 0>(base, geometry, digest);
            if LINES == 2 {
                new = _mm512_or_si512(new, line_set::<FULL, HALF, 1>(base, geometry, digest));
            }
            any(new)
        }
    }

    #[target_feature(enable = "avx512f,popcnt")]
    unsafe fn insert_run<const FULL: u32, const HALF: u32, const LINES: u32>(
        base: *mut u8,
        geometry: &Geometry,
        run: Run<'_>,
        new: &mut [bool],
    ) -> u64 {
        let mut total = 0;
        run.for_each::<LINES>(base, geometry, Towards::NearToWrite, |at, digest| {
            // SAFETY: the caller's contract.
            let changed = unsafe { insert_one::<FULL, HALF, LINES>(base, geometry, digest) };
            new[at] = changed != 0;
            total += u64::from(changed);
        });
        total
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn any(line: __m512i) -> bool {
        // Not by a mask register: the two instructions after it cost 0.2 of 1.7 ns (Zen 5).
        let high = _mm512_extracti64x4_epi64::<1>(line);
        let either = _mm256_or_si256(_mm512_castsi512_si256(line), high);
        _mm256_testz_si256(either, either) == 0
    }

    /// The bits of the rounds that a line has not.
    #[inline]
    #[target_feature(enable = "avx512f,popcnt")]
    fn racing_missing(line: &SharedLine, [first, second]: [__m512i; 2]) -> __m512i {
        // SAFETY: the line has 64 bytes.
        let here = unsafe { load::<true>(line.as_ptr().cast()) };
        _mm512_andnot_si512(here, _mm512_or_si512(first, second))
    }

    /// Sets the bits of the rounds in a line whose lock we hold, and returns how many were not set
    /// before.
    #[inline]
    #[target_feature(enable = "avx512f,popcnt")]
    fn set_locked(line: &SharedLine, masks: [__m512i; 2]) -> u32 {
        let at: *mut u8 = line.as_ptr().cast_mut().cast();
        // SAFETY: the line has 64 bytes, which are atomics and may be written through a reference.
        // The lock is ours, so that no store of another thread is undone.
        unsafe {
            let (line, changed) = with_rounds(load::<true>(at), masks);
            asm!("vmovdqu64 [{}], {}", in(reg) at, in(zmm_reg) line,
                 options(nostack, preserves_flags));
            changed
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,popcnt")]
    fn racing_insert_one<const FULL: u32, const HALF: u32, const LINES: u32>(
        lines: &[SharedLine],
        geometry: &Geometry,
        digest: Digest,
    ) -> u32 {
        // As the scalar kernel does.
        let first = &lines[block::<0>(geometry, digest)];
        let first_masks = round_masks::<FULL, HALF, 0>(digest.print);
        if LINES == 1 {
            if !any(racing_missing(first, first_masks)) {
                return 0;
            }
            let _lock = Locked::new(first);
            return set_locked(first, first_masks);
        }
        let second = &lines[block::<1>(geometry, digest)];
        let second_masks = round_masks::<FULL, HALF, 1>(digest.print);
        if !any(racing_missing(first, first_masks)) && !any(racing_missing(second, second_masks)) {
            return 0;
        }
        let _locks = Locked::both(first, second);
        set_locked(first, first_masks) + set_locked(second, second_masks)
    }

    #[target_feature(enable = "avx512f,popcnt")]
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
}
