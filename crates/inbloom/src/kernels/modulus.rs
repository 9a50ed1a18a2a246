//! The remainder by a number that stays the same, without a division.
//!
//! Other programs reduce a hash of 64 bits by `% m`. A division of 64 bits takes 10 to 40 cycles,
//! and a key has as many as it has probes. The multiplier is found once for a filter, and two
//! multiplications give the same remainder.
//!
//! Source: Granlund and Montgomery, "Division by Invariant Integers using Multiplication", PLDI
//! 1994, figure 4.1.
//!
//! AVX-512 has no product of 128 bits, but it converts between integers and f64. Eight numbers at
//! once are multiplied by 1 / m, rounded down and multiplied back. Three roundings of at most 2^-53
//! each make the quotient of a number below 2^64 wrong by less than 2^13 / m. So from m = 2^13 on it is
//! at most one off, and one m more or less corrects the remainder.

/// Replaces numbers by their remainders.
type Reduce = unsafe fn(&Modulus, &mut [u64]);

/// A divisor, with its multiplier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Modulus {
    divisor: u64,
    multiplier: u64,
    first: u32,
    second: u32,
    reduce: Reduce,
}

impl Modulus {
    /// Panics if the divisor is 0.
    pub(crate) fn new(divisor: u64) -> Modulus {
        assert!(divisor > 0, "a division by zero");
        // The smallest power of two that is at least the divisor.
        let log = u64::BITS - (divisor - 1).leading_zeros();
        let above = ((1_u128 << log) - u128::from(divisor)) << 64;
        // Below 2^64: the power is less than twice the divisor.
        let multiplier = (above / u128::from(divisor)) as u64 + 1;
        let (first, second) = (log.min(1), log.saturating_sub(1));
        Modulus { divisor, multiplier, first, second, reduce: select(divisor) }
    }

    /// Returns `number % divisor`.
    #[inline(always)]
    pub(crate) fn of(&self, number: u64) -> u64 {
        let high = ((u128::from(self.multiplier) * u128::from(number)) >> 64) as u64;
        let quotient = (high + ((number - high) >> self.first)) >> self.second;
        number - quotient * self.divisor
    }

    /// Replaces all of these numbers by their remainders.
    #[inline]
    pub(crate) fn reduce(&self, numbers: &mut [u64]) {
        // SAFETY: `select` gave out only what this processor runs, for this divisor.
        unsafe { (self.reduce)(self, numbers) }
    }
}

/// The fastest implementation for this divisor that this processor runs.
fn select(divisor: u64) -> Reduce {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    if avx512::DIVISORS.contains(&divisor)
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512dq")
    {
        return avx512::reduce;
    }
    let _ = divisor;
    one_by_one
}

fn one_by_one(modulus: &Modulus, numbers: &mut [u64]) {
    for number in numbers {
        *number = modulus.of(*number);
    }
}

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod avx512 {
    use core::arch::x86_64::*;
    use core::ops::RangeInclusive;

    use super::Modulus;

    /// For smaller ones a quotient may be off by more than one; above, a remainder that is one
    /// divisor too large or too small does not fit.
    pub(super) const DIVISORS: RangeInclusive<u64> = 1 << 13..=1 << 62;

    #[target_feature(enable = "avx512f,avx512dq")]
    pub(super) fn reduce(modulus: &Modulus, numbers: &mut [u64]) {
        let divisor = _mm512_set1_epi64(modulus.divisor as i64);
        let inverse = _mm512_set1_pd(1.0 / modulus.divisor as f64);
        let (eights, rest) = numbers.as_chunks_mut::<8>();
        for eight in eights {
            // SAFETY: eight numbers are 64 bytes, and the load takes any alignment.
            let number = unsafe { _mm512_loadu_si512(eight.as_ptr().cast()) };
            let quotient = _mm512_mul_pd(_mm512_cvtepu64_pd(number), inverse);
            let back = _mm512_mullo_epi64(_mm512_cvttpd_epu64(quotient), divisor);
            // From -m to 2 m - 1. Of a number and one that is m more or less, the smaller one without
            // a sign is the one that is not negative.
            let left = _mm512_sub_epi64(number, back);
            let left = _mm512_min_epu64(left, _mm512_add_epi64(left, divisor));
            let left = _mm512_min_epu64(left, _mm512_sub_epi64(left, divisor));
            // SAFETY: as above; they are ours to write.
            unsafe { _mm512_storeu_si512(eight.as_mut_ptr().cast(), left) };
        }
        super::one_by_one(modulus, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splitmix::finalize as mix;

    #[test]
    fn remainders_are_those_of_a_division() {
        let mut divisors = vec![1, 2, 3, 5, 7, 64, 9585, u64::MAX, u64::MAX - 1, 1 << 63];
        divisors.extend((0..64).map(|bit| 1 << bit));
        divisors.extend((0..64).map(|bit| (1 << bit) + 1));
        divisors.extend((1..64).map(|bit| (1 << bit) - 1));
        divisors.extend((0..2000).map(|at| (mix(at) >> (at % 64)).max(1)));
        for divisor in divisors {
            let modulus = Modulus::new(divisor);
            let near = [0, 1, divisor - 1, divisor, divisor.wrapping_add(1), u64::MAX];
            let far = (0..200).map(|at| mix(at ^ divisor));
            let multiples = (0..20).map(|at| (u64::MAX / divisor).saturating_sub(at) * divisor);
            for number in near.into_iter().chain(far).chain(multiples.clone()) {
                assert_eq!(modulus.of(number), number % divisor, "{number} by {divisor}");
            }
            let below = multiples.clone().filter_map(|number| number.checked_sub(1));
            for number in below.clone() {
                assert_eq!(modulus.of(number), number % divisor, "{number} by {divisor}");
            }
            // All at once, in whole vectors and with numbers left over.
            let far = (0..203).map(|at| mix(at ^ divisor));
            let numbers: Vec<u64> =
                near.into_iter().chain(multiples).chain(below).chain(far).collect();
            let mut reduced = numbers.clone();
            modulus.reduce(&mut reduced);
            let remainders = numbers.iter().map(|number| number % divisor);
            assert!(remainders.eq(reduced), "by {divisor}");
        }
    }
}
