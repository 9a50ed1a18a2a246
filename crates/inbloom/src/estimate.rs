//! A number of keys with its standard deviation.

use crate::math;

/// An estimate of how many distinct keys a filter holds.
///
/// ```
/// use inbloom::BloomFilter;
///
/// let mut seen = BloomFilter::new(10_000, 0.01);
/// seen.extend(0..5_000_u64);
/// let estimate = seen.estimated_items();
/// assert!((estimate.items - 5_000.0).abs() < 4.0 * estimate.error);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The expected number.
    pub items: f64,
    /// One standard deviation. In 19 of 20 cases the true number is within two of them.
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
