//! Measures the false-positive rate, with its confidence interval.

use crate::digest::{Digest, Hasher};
use crate::error::Result;
use crate::filter::Filter;
use crate::key::AsKey;
use crate::math;
use crate::plan::{Plan, Span};

/// A measured rate beside the target rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Keys that were inserted.
    pub inserted: u64,
    /// Absent keys that were queried.
    pub probed: u64,
    /// How many of the queried keys were false positives.
    pub false_positives: u64,
    /// The target rate of the plan.
    pub target: f64,
    /// The share of absent keys that were reported as present.
    pub rate: f64,
    /// The lower end of the 99% confidence interval of the rate.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Measurement {
    /// Computes the rate and its interval from counts. Use it in a program that queries the keys
    /// itself, or that combines several measurements of one plan.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::Measurement;
    ///
    /// let measured = Measurement::new(1000, 100_000, 1010, 0.01);
    /// assert_eq!(measured.rate, 0.0101);
    /// assert!(measured.low < 0.01 && measured.meets_target());
    /// assert!(!Measurement::new(1000, 100_000, 1200, 0.01).meets_target());
    /// ```
    #[must_use]
    pub fn new(inserted: u64, probed: u64, false_positives: u64, target: f64) -> Measurement {
        // Wilson's score interval: holds for few hits and for none.
        const Z: f64 = 2.5758; // 99%
        let n = probed.max(1) as f64;
        let rate = false_positives as f64 / n;
        let centre = rate + Z * Z / (2.0 * n);
        let spread = Z * math::sqrt(rate * (1.0 - rate) / n + Z * Z / (4.0 * n * n));
        let scale = 1.0 + Z * Z / n;
        let (low, high) = ((centre - spread) / scale, (centre + spread) / scale);
        let low = if false_positives == 0 { 0.0 } else { low.max(0.0) };
        let high = if probed == 0 { 1.0 } else { high };
        Measurement { inserted, probed, false_positives, target, rate, low, high: high.min(1.0) }
    }

    /// Returns whether the measurement is consistent with the target rate: it is within the
    /// interval or above it.
    #[must_use]
    pub fn meets_target(&self) -> bool {
        self.low <= self.target
    }
}

/// Builds a filter from the plan, fills it with its planned number of keys, and queries `probes`
/// absent keys. Returns the measured rate. Another `seed` gives other keys.
///
/// # Errors
///
/// Fails as [`Filter::new`] does.
///
/// # Examples
///
/// ```
/// use inbloom::{Kind, Plan, measure};
///
/// let plan = Plan::builder(Kind::Classic).items(10_000).rate(0.01).build()?;
/// let measured = measure(&plan, 100_000, 1)?;
/// assert!(measured.meets_target());
/// assert!(measured.rate > 0.008);
/// # Ok::<(), inbloom::Error>(())
/// ```
pub fn measure(plan: &Plan, probes: u64, seed: u64) -> Result<Measurement> {
    let hasher = plan.kind().default_hasher();
    let keys = |first: u64, count: u64| {
        (first..first.saturating_add(count)).map(move |number| digest(&hasher, plan, seed, number))
    };
    let (mut digests, mut answers) = (Vec::new(), Vec::new());
    let mut filter = if plan.kind().is_static() {
        // It has checked that none of them is absent.
        Filter::build(*plan, hasher, &keys(0, plan.items()).collect::<Vec<_>>())?
    } else {
        Filter::new(*plan)?
    };
    // A bitmap has room for no more foreign keys than its universe has values left.
    let (items, probes) = match plan.kind().is_exact() {
        true => {
            let items = plan.items().min(plan.bits() / 2);
            (items, probes.min(plan.bits() - items))
        }
        false => (plan.items(), probes),
    };
    // The keys of a window of time come evenly, so many in each of its steps; others come at once.
    let (each, step) = match plan.span() {
        Some(Span::Millis(span)) => {
            let steps = u64::from(plan.generations());
            (items.div_ceil(steps), span.div_ceil(steps))
        }
        _ => (items, 0),
    };
    let (mut first, mut now) = (0, 0);
    while first < items && !plan.kind().is_static() {
        if step > 0 {
            filter.advance(now)?;
        }
        let mut inserted = keys(first, each.min(items - first));
        while fill_batch(&mut inserted, &mut digests) {
            filter.insert_digests(&digests, &mut answers)?;
            // A false negative is a bug in inbloom; nothing measured beside one would mean
            // anything.
            filter.contains_digests(&digests, &mut answers);
            assert!(answers.iter().all(|found| *found), "a key just inserted is denied");
        }
        (first, now) = (first + each, now.saturating_add(step));
    }
    let mut foreign = keys(items, probes);
    let mut claimed = 0;
    while fill_batch(&mut foreign, &mut digests) {
        filter.contains_digests(&digests, &mut answers);
        claimed += count(&answers);
    }
    Ok(Measurement::new(items, probes, claimed, plan.rate()))
}

/// Queries keys that are known to be absent, and returns the measured rate.
///
/// # Examples
///
/// ```
/// use inbloom::{Filter, Kind, Plan, measure_absent};
///
/// let mut seen = Filter::new(Plan::builder(Kind::Blocked).items(10_000).rate(0.01).build()?)?;
/// seen.insert_many(&Vec::from_iter(0..10_000_u64), &mut Vec::new())?;
/// let measured = measure_absent(&seen, 10_000..110_000_u64);
/// assert!(measured.probed == 100_000 && measured.meets_target());
/// # Ok::<(), inbloom::Error>(())
/// ```
pub fn measure_absent<K: AsKey>(
    filter: &Filter,
    absent: impl IntoIterator<Item = K>,
) -> Measurement {
    let mut keys = absent.into_iter().map(|key| filter.digest(key));
    let (mut digests, mut answers) = (Vec::new(), Vec::new());
    let (mut probed, mut claimed) = (0, 0);
    while fill_batch(&mut keys, &mut digests) {
        filter.contains_digests(&digests, &mut answers);
        probed += digests.len() as u64;
        claimed += count(&answers);
    }
    Measurement::new(filter.inserted(), probed, claimed, filter.plan().rate())
}

/// Returns the digest of the key that a number stands for: the number and the seed, or, for a
/// bitmap, which takes integers below a bound, the number itself.
fn digest(hasher: &Hasher, plan: &Plan, seed: u64, number: u64) -> Digest {
    if plan.kind().is_exact() {
        return hasher.digest(number.to_le_bytes());
    }
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key[8..].copy_from_slice(&seed.to_le_bytes());
    hasher.digest(key)
}

fn fill_batch(keys: &mut impl Iterator<Item = Digest>, digests: &mut Vec<Digest>) -> bool {
    digests.clear();
    digests.extend(keys.by_ref().take(1 << 16));
    !digests.is_empty()
}

fn count(answers: &[bool]) -> u64 {
    answers.iter().map(|found| u64::from(*found)).sum()
}
