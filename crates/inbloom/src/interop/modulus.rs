//! The remainder by a number that stays the same, without a division.
//!
//! Other programs reduce a hash of 64 bits by `% m`. A division of 64 bits takes 10 to 40 cycles,
//! and a key has as many as it has probes. The multiplier is found once for a filter, and two
//! multiplications give the same remainder.
//!
//! Source: Granlund and Montgomery, "Division by Invariant Integers using Multiplication", PLDI
//! 1994, figure 4.1.

/// A divisor, with its multiplier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Modulus {
    divisor: u64,
    multiplier: u64,
    first: u32,
    second: u32,
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
        Modulus { divisor, multiplier, first: log.min(1), second: log.saturating_sub(1) }
    }

    /// Returns `number % divisor`.
    #[inline(always)]
    pub(crate) fn of(&self, number: u64) -> u64 {
        let high = ((u128::from(self.multiplier) * u128::from(number)) >> 64) as u64;
        let quotient = (high + ((number - high) >> self.first)) >> self.second;
        number - quotient * self.divisor
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
            for number in multiples.filter_map(|number| number.checked_sub(1)) {
                assert_eq!(modulus.of(number), number % divisor, "{number} by {divisor}");
            }
        }
    }
}
