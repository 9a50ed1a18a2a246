//! Equal measured rate: each contestant gets the memory at which it really has the target rate.
//!
//! Formulas in a crate's documentation are goals; some are missed by a factor of two, and a
//! structure that reaches its rate with too many bits is slower for it. So structures of a free
//! size are built several times over one million members and asked for absent keys, until the
//! measured rate is the target. Bits per key found this way hold for every number of members.

use std::collections::HashMap;

use crate::race::{Contestant, Entrant};
use crate::workload::{Key, absent_runs};

/// Members of a trial.
const TRIAL: u64 = 1 << 20;

/// Absent keys that are asked for when a rate is measured: enough for 2000 false positives, where
/// that is not more than 8 million.
pub(crate) fn absent_keys(rate: f64) -> u64 {
    ((2000.0 / rate) as u64).clamp(1 << 20, 1 << 23)
}

/// Whether a measured rate is the target, up to the tolerance of the search and four standard
/// deviations of the measurement.
pub(crate) fn is_near(measured: f64, target: f64) -> bool {
    const DEVIATIONS: f64 = 4.0;
    const TOLERANCE: f64 = 0.1;
    let deviation = 1.0 / (target * absent_keys(target) as f64).sqrt();
    (measured / target - 1.0).abs() < TOLERANCE + DEVIATIONS * deviation
}

/// What a tuned structure is made from.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    items: u64,
    bits_per_key: f64,
}

impl Size {
    pub(crate) fn items(self) -> usize {
        self.items as usize
    }

    pub(crate) fn bits(self) -> usize {
        (self.items as f64 * self.bits_per_key).ceil() as usize
    }
}

/// A contestant that is yet to be sized.
pub(crate) struct Candidate<K> {
    pub(crate) who: &'static str,
    note: &'static str,
    sizing: Sizing,
    make: Box<dyn Fn(Size) -> Box<dyn Contestant<K>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sizing {
    /// Of a free size, which is searched for.
    Tuned,
    /// Of the size that a plan gives for the target rate; held to it.
    Planned,
    /// Of a size that comes in steps.
    Stepped,
}

impl<K: Key> Candidate<K> {
    /// A structure of a free size.
    pub(crate) fn tuned<C: Contestant<K> + 'static>(
        who: &'static str,
        note: &'static str,
        make: impl Fn(Size) -> C + 'static,
    ) -> Candidate<K> {
        let make = Box::new(move |size| Box::new(make(size)) as Box<dyn Contestant<K>>);
        Candidate { who, note, sizing: Sizing::Tuned, make }
    }

    /// A structure that computes its size from the target rate, and is held to it.
    pub(crate) fn planned<C: Contestant<K> + 'static>(
        who: &'static str,
        note: &'static str,
        make: impl Fn(u64) -> C + 'static,
    ) -> Candidate<K> {
        let candidate = Candidate::tuned(who, note, move |size| make(size.items));
        Candidate { sizing: Sizing::Planned, ..candidate }
    }

    /// A structure whose rate comes in steps.
    pub(crate) fn stepped<C: Contestant<K> + 'static>(
        who: &'static str,
        note: &'static str,
        make: impl Fn(u64) -> C + 'static,
    ) -> Candidate<K> {
        let candidate = Candidate::tuned(who, note, move |size| make(size.items));
        Candidate { sizing: Sizing::Stepped, ..candidate }
    }

    /// Makes the contestant, empty, at a size that yields `rate`.
    pub(crate) fn enter(self, items: u64, rate: f64, sizes: &mut Sizes) -> Entrant<K> {
        let bits_per_key = match self.sizing {
            Sizing::Tuned => *sizes
                .found
                .entry((self.who, rate.to_bits()))
                .or_insert_with(|| search(self.make.as_ref(), rate)),
            Sizing::Planned | Sizing::Stepped => f64::NAN,
        };
        let contestant = (self.make)(Size { items, bits_per_key });
        let expected = (self.sizing != Sizing::Stepped).then_some(rate);
        Entrant::new(self.who, self.note, expected, contestant)
    }
}

/// Bits per key that were found, by contestant and rate: they depend neither on the number of
/// members nor on the hash.
#[derive(Default)]
pub(crate) struct Sizes {
    found: HashMap<(&'static str, u64), f64>,
}

/// Finds the bits per key at which the measured rate is the target, by the secant method on the
/// logarithm of the rate, which is nearly a straight line.
fn search<K: Key>(make: &dyn Fn(Size) -> Box<dyn Contestant<K>>, rate: f64) -> f64 {
    const STEPS: usize = 6;
    let members: Vec<K> = (0..TRIAL).map(K::of).collect();
    let excess = |bits_per_key: f64| {
        let mut contestant = make(Size { items: TRIAL, bits_per_key });
        contestant.insert(&members);
        let absent = absent_keys(rate);
        let mut found = 0;
        absent_runs(absent, |keys| found += contestant.contains(keys));
        (found.max(1_usize) as f64 / absent as f64 / rate).log2()
    };
    // The classic filter's size, and the slope d log2(rate) / d bits that it has there.
    let mut slope = -std::f64::consts::LN_2;
    let mut bits_per_key = -rate.log2() / std::f64::consts::LN_2;
    let mut best = (f64::INFINITY, bits_per_key);
    let mut last: Option<(f64, f64)> = None;
    for _ in 0..STEPS {
        let now = excess(bits_per_key);
        if now.abs() < best.0 {
            best = (now.abs(), bits_per_key);
        }
        if now.abs() < 0.03 {
            break;
        }
        if let Some((before_bits, before)) = last {
            let secant = (now - before) / (bits_per_key - before_bits);
            // Noise can turn the secant around when the two sizes are close.
            slope = if secant < -0.1 { secant } else { slope };
        }
        last = Some((bits_per_key, now));
        bits_per_key -= now / slope;
    }
    best.1
}
