//! A number of keys that is known within an error.

use crate::math;

/// How many distinct keys were inserted into a filter, as far as it can tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The expected number.
    pub items: f64,
    /// One standard deviation: the truth is within two of them 19 times in 20.
    pub error: f64,
}

impl Estimate {
    /// Returns the number as a count.
    pub(crate) fn rounded(self) -> u64 {
        math::round(self.items) as u64
    }

    /// Adds up estimates that are independent.
    pub(crate) fn sum(estimates: impl Iterator<Item = Estimate>) -> Estimate {
        let (items, variance) = estimates.fold((0.0, 0.0), |(items, variance), one| {
            (items + one.items, variance + one.error * one.error)
        });
        Estimate { items, error: math::sqrt(variance) }
    }
}
