//! How much is done a second: what INFO calls instantaneous.
//!
//! The counters are looked at ten times a second, and the last sixteen looks are kept, as Redis does:
//! a rate is what was counted between the first and the last of them.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::Mutex;

use crate::statistics::Statistics;

/// Looks that are kept.
const LOOKS: usize = 16;

/// The last looks at the counters.
#[derive(Default)]
pub struct Rates {
    looks: Mutex<VecDeque<Look>>,
}

#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    counts: [u64; 3],
}

/// Each a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PerSecond {
    /// Commands carried out.
    pub commands: f64,
    /// Bytes of requests.
    pub bytes_in: f64,
    /// Bytes of replies.
    pub bytes_out: f64,
}

impl Rates {
    /// Looks at the counters.
    pub fn look(&self, statistics: &Statistics, at: Instant) {
        let counters = [&statistics.commands, &statistics.bytes_in, &statistics.bytes_out];
        let counts = counters.map(|counter| counter.load(Ordering::Relaxed));
        let mut looks = self.looks.lock();
        // Counters that were set to zero begin anew.
        if looks.back().is_some_and(|last| last.counts.iter().zip(&counts).any(|(a, b)| a > b)) {
            looks.clear();
        }
        if looks.len() == LOOKS {
            looks.pop_front();
        }
        looks.push_back(Look { at, counts });
    }

    /// Returns the rates over the last looks.
    pub fn now(&self) -> PerSecond {
        let looks = self.looks.lock();
        let (Some(first), Some(last)) = (looks.front(), looks.back()) else {
            return PerSecond::default();
        };
        let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
        if seconds == 0.0 {
            return PerSecond::default();
        }
        let rate = |at: usize| (last.counts[at] - first.counts[at]) as f64 / seconds;
        PerSecond { commands: rate(0), bytes_in: rate(1), bytes_out: rate(2) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_looks() {
        let (rates, statistics, begin) = (Rates::default(), Statistics::default(), Instant::now());
        assert_eq!(rates.now(), PerSecond::default());
        for look in 0..40 {
            rates.look(&statistics, begin + Duration::from_millis(100 * look));
            // Nothing at first, then 5 commands of 100 bytes each time.
            if look >= 20 {
                statistics.commands.fetch_add(5, Ordering::Relaxed);
                statistics.bytes_in.fetch_add(500, Ordering::Relaxed);
            }
        }
        let PerSecond { commands, bytes_in, bytes_out } = rates.now();
        assert!((commands - 50.0).abs() < 0.01 && (bytes_in - 5000.0).abs() < 1.0, "{commands}");
        assert_eq!(bytes_out, 0.0);
        statistics.commands.store(0, Ordering::Relaxed);
        rates.look(&statistics, begin + Duration::from_secs(5));
        assert_eq!(rates.now(), PerSecond::default());
    }
}
