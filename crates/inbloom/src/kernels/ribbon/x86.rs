//! Sums and solutions in AVX2 and in AVX-512.

use core::arch::x86_64::*;

use super::band::{self, Band, Filling};
use super::{
    AsksAhead, BumpedKeys, Digest, Equation, FirstAnswer, Planes, RibbonKernel, Run, SlotWindow,
    contains_one, contains_run,
};

pub(super) fn available(width: u32) -> impl Iterator<Item = RibbonKernel> {
    let has_avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2");
    let has_avx512 = has_avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bitalg");
    let (avx512, avx2) = if width <= 16 {
        (avx512_narrow::KERNEL, avx2_narrow::KERNEL)
    } else {
        (avx512_wide::KERNEL, avx2_wide::KERNEL)
    };
    has_avx512.then_some(avx512).into_iter().chain(has_avx2.then_some(avx2))
}

/// The operations of an instruction set, around its sum.
macro_rules! kernel {
    ($module:ident, $name:literal, $features:literal, $shape:literal, $sum:path, $solve:path) => {
        mod $module {
            use super::*;

            pub(super) const KERNEL: RibbonKernel = RibbonKernel {
                name: $name,
                holds,
                contains_one: one,
                contains_run: run,
                solve: $solve,
                fill,
            };

            #[target_feature(enable = $features)]
            unsafe fn holds(columns: *const u8, width: u32, equation: Equation) -> bool {
                // SAFETY: guaranteed by the caller.
                equation.is(unsafe { $sum(equation.window(columns, width)) }, width)
            }

            #[target_feature(enable = $features)]
            fn one(planes: &Planes, digest: Digest) -> FirstAnswer {
                // SAFETY: windows of these planes are there to be read.
                contains_one::<$shape>(planes, digest, |window| unsafe { $sum(window) })
            }

            #[target_feature(enable = $features)]
            fn run(
                planes: &Planes,
                run: Run<'_>,
                asks_ahead: AsksAhead,
                found: &mut [bool],
                bumped: &mut BumpedKeys,
            ) {
                // SAFETY: as in `one`.
                contains_run::<$shape>(planes, run, asks_ahead, found, bumped, |window| unsafe {
                    $sum(window)
                });
            }

            #[target_feature(enable = $features)]
            fn fill(filling: Filling<'_>) {
                band::fill(filling);
            }
        }
    };
}

kernel!(avx2_narrow, "avx2", "avx2,bmi1,bmi2", 1, avx2::sum_narrow, avx2::solve_narrow);
kernel!(avx2_wide, "avx2", "avx2,bmi1,bmi2", 2, avx2::sum_wide, avx2::solve_wide);
kernel!(
    avx512_narrow,
    "avx512",
    "avx2,bmi1,bmi2,avx512f,avx512bw,avx512vl,avx512bitalg",
    1,
    avx512_16::sum,
    avx512_16::solve
);
kernel!(
    avx512_wide,
    "avx512",
    "avx2,bmi1,bmi2,avx512f,avx512bw,avx512vl,avx512bitalg",
    2,
    avx512_32::sum,
    avx512_32::solve
);

/// Which bytes of a piece of the coefficients go to every word: of piece n bytes 2n and 2n + 1.
const fn piece(number: i16) -> i16 {
    0x0100 + 0x0202 * number
}

mod avx2 {
    use super::*;

    /// The parity of each nibble.
    static PARITIES: [u8; 16] = [0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0];
    /// The same as a sign.
    static SIGNS: [u8; 16] = {
        let mut signs = PARITIES;
        let mut nibble = 0;
        while nibble < signs.len() {
            signs[nibble] <<= 7;
            nibble += 1;
        }
        signs
    };

    /// The five pieces, each in all words.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn pieces(low: u64, high: u64) -> [__m256i; 5] {
        let all = _mm256_broadcastsi128_si256(_mm_set_epi64x(high as i64, low as i64));
        [
            _mm256_shuffle_epi8(all, _mm256_set1_epi16(piece(0))),
            _mm256_shuffle_epi8(all, _mm256_set1_epi16(piece(1))),
            _mm256_shuffle_epi8(all, _mm256_set1_epi16(piece(2))),
            _mm256_shuffle_epi8(all, _mm256_set1_epi16(piece(3))),
            _mm256_shuffle_epi8(all, _mm256_set1_epi16(piece(4))),
        ]
    }

    /// What the pieces choose of five groups, added up.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn chosen(groups: [__m256i; 5], pieces: [__m256i; 5]) -> __m256i {
        let [a, b, c, d, e] = groups;
        let [a, b] = [_mm256_and_si256(a, pieces[0]), _mm256_and_si256(b, pieces[1])];
        let [c, d] = [_mm256_and_si256(c, pieces[2]), _mm256_and_si256(d, pieces[3])];
        let later = _mm256_xor_si256(_mm256_xor_si256(c, d), _mm256_and_si256(e, pieces[4]));
        _mm256_xor_si256(_mm256_xor_si256(b, later), a)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn lookup(table: &'static [u8; 16], nibbles: __m256i) -> __m256i {
        // SAFETY: the table has 16 bytes.
        let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
        _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles)
    }

    /// The parity of each word of five groups, as a bit of a number.
    ///
    /// # Safety
    ///
    /// The groups, and what of a vector is behind the last, are there to be read.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn parities(window: SlotWindow, pieces: [__m256i; 5]) -> u64 {
        let SlotWindow { at, stride, last, .. } = window;
        // SAFETY: guaranteed by the caller; the loads take any alignment.
        let groups = unsafe {
            [
                _mm256_loadu_si256(at.cast()),
                _mm256_loadu_si256(at.add(stride).cast()),
                _mm256_loadu_si256(at.add(2 * stride).cast()),
                _mm256_loadu_si256(at.add(3 * stride).cast()),
                _mm256_loadu_si256(at.add(last).cast()),
            ]
        };
        let x = chosen(groups, pieces);
        // The parity of a word in the low half of its upper byte.
        let x = _mm256_xor_si256(x, _mm256_slli_epi16::<8>(x));
        let x = _mm256_xor_si256(x, _mm256_srli_epi16::<4>(x));
        let x = _mm256_and_si256(x, _mm256_set1_epi8(15));
        let x = lookup(&SIGNS, x);
        // The sign of a word is the sign of its upper byte, and outlives the packing.
        let (low, high) = (_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
        u64::from(_mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32)
    }

    /// # Safety
    ///
    /// As that of `parities`.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn sum_narrow(window: SlotWindow) -> u64 {
        // SAFETY: guaranteed by the caller.
        unsafe { parities(window, pieces(window.low, window.high)) }
    }

    /// # Safety
    ///
    /// As that of `parities`, for vectors of 64 bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn sum_wide(window: SlotWindow) -> u64 {
        let pieces = pieces(window.low, window.high);
        let upper = SlotWindow { at: window.at.wrapping_add(32), ..window };
        // SAFETY: guaranteed by the caller.
        unsafe { parities(window, pieces) | parities(upper, pieces) << 16 }
    }

    #[target_feature(enable = "avx2,bmi1,bmi2")]
    pub(super) fn solve_narrow(band: &Band, width: u32, columns: &mut [u8]) {
        solve::<1>(band, width, columns);
    }

    #[target_feature(enable = "avx2,bmi1,bmi2")]
    pub(super) fn solve_wide(band: &Band, width: u32, columns: &mut [u8]) {
        solve::<2>(band, width, columns);
    }

    /// Slot by slot from the end. The parity of what a row chooses and of its print, of which word j
    /// gets bit j, is the slot's value.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn solve<const VECTORS: usize>(band: &Band, width: u32, columns: &mut [u8]) {
        // SAFETY: there are 32 bytes.
        let one_bit = unsafe { _mm256_loadu_si256(ONE_BIT.as_ptr().cast()) };
        let stride = 2 * width as usize;
        let zero = _mm256_setzero_si256();
        // This group and the four after it.
        let mut groups = [[zero; 5]; VECTORS];
        for ((coefficients, prints), out) in
            band.groups().zip(columns.chunks_exact_mut(stride)).rev()
        {
            for groups in &mut groups {
                let [a, b, c, d, _] = *groups;
                *groups = [zero, a, b, c, d];
            }
            for (slot, (coefficients, print)) in coefficients.iter().zip(prints).enumerate().rev() {
                let high = coefficients >> 1 >> (63 - slot);
                let pieces = pieces(coefficients << slot, high);
                for (vector, groups) in groups.iter_mut().enumerate() {
                    let print = _mm256_set1_epi16((print >> (32 + 16 * vector)) as i16);
                    let print = _mm256_and_si256(print, one_bit);
                    let x = _mm256_xor_si256(chosen(*groups, pieces), print);
                    let x = _mm256_xor_si256(x, _mm256_srli_epi16::<8>(x));
                    let x = _mm256_xor_si256(x, _mm256_srli_epi16::<4>(x));
                    let x = lookup(&PARITIES, _mm256_and_si256(x, _mm256_set1_epi16(15)));
                    let x = _mm256_sll_epi16(x, _mm_cvtsi32_si128(slot as i32));
                    groups[0] = _mm256_or_si256(groups[0], x);
                }
            }
            let mut solved = [[0_u8; 32]; VECTORS];
            for (bytes, groups) in solved.iter_mut().zip(&groups) {
                // SAFETY: there are 32 bytes, and the store takes any alignment.
                unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), groups[0]) };
            }
            out.copy_from_slice(&solved.as_flattened()[..stride]);
        }
    }
}

/// Bit j in word j, and again for the columns from 16 on.
static ONE_BIT: [u16; 32] = {
    let mut bits = [0; 32];
    let mut column = 0;
    while column < bits.len() {
        bits[column] = 1 << (column % 16);
        column += 1;
    }
    bits
};

/// AVX-512 with vectors of 32 bytes: all columns of up to 16.
mod avx512_16 {
    use super::*;

    /// What the pieces of a row choose of five groups, added up.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn chosen(groups: [__m256i; 5], low: u64, high: u64) -> __m256i {
        let all = _mm256_broadcastsi128_si256(_mm_set_epi64x(high as i64, low as i64));
        let in_all = |number| _mm256_shuffle_epi8(all, _mm256_set1_epi16(piece(number)));
        let x = _mm256_and_si256(groups[4], in_all(4));
        // sum ^ (group & piece)
        let x = _mm256_ternarylogic_epi64::<0x78>(x, groups[3], in_all(3));
        let x = _mm256_ternarylogic_epi64::<0x78>(x, groups[2], in_all(2));
        let x = _mm256_ternarylogic_epi64::<0x78>(x, groups[1], in_all(1));
        _mm256_ternarylogic_epi64::<0x78>(x, groups[0], in_all(0))
    }

    /// # Safety
    ///
    /// The groups, and what of a vector is behind the last, are there to be read.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bitalg")]
    pub(super) unsafe fn sum(window: SlotWindow) -> u64 {
        let SlotWindow { at, stride, last, low, high } = window;
        // SAFETY: guaranteed by the caller; the load takes any alignment.
        let load = |offset| unsafe { _mm256_loadu_epi16(at.add(offset).cast()) };
        let groups = [load(0), load(stride), load(2 * stride), load(3 * stride), load(last)];
        let counts = _mm256_popcnt_epi16(chosen(groups, low, high));
        u64::from(_mm256_test_epi16_mask(counts, _mm256_set1_epi16(1)))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bitalg,bmi1,bmi2")]
    pub(super) fn solve(band: &Band, width: u32, columns: &mut [u8]) {
        // SAFETY: the table has as many bytes as a vector.
        let one_bit = unsafe { _mm256_loadu_epi16(ONE_BIT.as_ptr().cast()) };
        let stride = 2 * width as usize;
        let zero = _mm256_setzero_si256();
        // This group and the four after it.
        let mut groups = [zero; 5];
        let in_group = ((1_u64 << width) - 1) as __mmask16;
        for ((coefficients, prints), out) in
            band.groups().zip(columns.chunks_exact_mut(stride)).rev()
        {
            let [a, b, c, d, _] = groups;
            groups = [zero, a, b, c, d];
            for (slot, (coefficients, print)) in coefficients.iter().zip(prints).enumerate().rev() {
                let high = coefficients >> 1 >> (63 - slot);
                let x = chosen(groups, coefficients << slot, high);
                let print = _mm256_and_si256(_mm256_set1_epi16((print >> 32) as i16), one_bit);
                let x = _mm256_popcnt_epi16(_mm256_xor_si256(x, print));
                let x = _mm256_sll_epi16(x, _mm_cvtsi32_si128(slot as i32));
                let bit = _mm256_set1_epi16((1_u16 << slot) as i16);
                // group | (count & bit)
                groups[0] = _mm256_ternarylogic_epi64::<0xf8>(groups[0], x, bit);
            }
            // SAFETY: the words of the mask are as many as `out` has.
            unsafe { _mm256_mask_storeu_epi16(out.as_mut_ptr().cast(), in_group, groups[0]) };
        }
    }
}

/// AVX-512 with vectors of 64 bytes: all columns of up to 32.
mod avx512_32 {
    use super::*;

    /// What the pieces of a row choose of five groups, added up.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn chosen(groups: [__m512i; 5], low: u64, high: u64) -> __m512i {
        let all = _mm512_broadcast_i32x4(_mm_set_epi64x(high as i64, low as i64));
        let in_all = |number| _mm512_shuffle_epi8(all, _mm512_set1_epi16(piece(number)));
        let x = _mm512_and_si512(groups[4], in_all(4));
        // sum ^ (group & piece)
        let x = _mm512_ternarylogic_epi64::<0x78>(x, groups[3], in_all(3));
        let x = _mm512_ternarylogic_epi64::<0x78>(x, groups[2], in_all(2));
        let x = _mm512_ternarylogic_epi64::<0x78>(x, groups[1], in_all(1));
        _mm512_ternarylogic_epi64::<0x78>(x, groups[0], in_all(0))
    }

    /// # Safety
    ///
    /// The groups, and what of a vector is behind the last, are there to be read.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bitalg")]
    pub(super) unsafe fn sum(window: SlotWindow) -> u64 {
        let SlotWindow { at, stride, last, low, high } = window;
        // SAFETY: guaranteed by the caller; the load takes any alignment.
        let load = |offset| unsafe { _mm512_loadu_epi16(at.add(offset).cast()) };
        let groups = [load(0), load(stride), load(2 * stride), load(3 * stride), load(last)];
        let counts = _mm512_popcnt_epi16(chosen(groups, low, high));
        u64::from(_mm512_test_epi16_mask(counts, _mm512_set1_epi16(1)))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bitalg,bmi1,bmi2")]
    pub(super) fn solve(band: &Band, width: u32, columns: &mut [u8]) {
        // SAFETY: the table has as many bytes as a vector.
        let one_bit = unsafe { _mm512_loadu_epi16(ONE_BIT.as_ptr().cast()) };
        // Columns below 16 take the lower word of each pair, the others the upper one.
        let halves = _mm512_set_epi32(
            0x0001_0001,
            0x0001_0001,
            0x0001_0001,
            0x0001_0001,
            0x0001_0001,
            0x0001_0001,
            0x0001_0001,
            0x0001_0001,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        );
        let stride = 2 * width as usize;
        let zero = _mm512_setzero_si512();
        // This group and the four after it.
        let mut groups = [zero; 5];
        let in_group = ((1_u64 << width) - 1) as __mmask32;
        for ((coefficients, prints), out) in
            band.groups().zip(columns.chunks_exact_mut(stride)).rev()
        {
            let [a, b, c, d, _] = groups;
            groups = [zero, a, b, c, d];
            for (slot, (coefficients, print)) in coefficients.iter().zip(prints).enumerate().rev() {
                let high = coefficients >> 1 >> (63 - slot);
                let x = chosen(groups, coefficients << slot, high);
                // Both halves of the print, each in the words of its columns.
                let print = _mm512_and_si512(
                    _mm512_permutexvar_epi16(halves, _mm512_set1_epi32((print >> 32) as i32)),
                    one_bit,
                );
                let x = _mm512_popcnt_epi16(_mm512_xor_si512(x, print));
                let x = _mm512_sll_epi16(x, _mm_cvtsi32_si128(slot as i32));
                let bit = _mm512_set1_epi16((1_u16 << slot) as i16);
                // group | (count & bit)
                groups[0] = _mm512_ternarylogic_epi64::<0xf8>(groups[0], x, bit);
            }
            // SAFETY: the words of the mask are as many as `out` has.
            unsafe { _mm512_mask_storeu_epi16(out.as_mut_ptr().cast(), in_group, groups[0]) };
        }
    }
}
