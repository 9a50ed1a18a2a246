//! Throttles log lines about what clients can make happen a thousand times a second.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Logs something at most every ten seconds, and then says how often it happened since.
#[derive(Debug, Default)]
pub struct LogThrottle {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    logged: Option<Instant>,
    unsaid: u64,
}

/// Between two lines: few enough for any disk, often enough for who looks at the log.
const PAUSE: Duration = Duration::from_secs(10);

impl LogThrottle {
    /// It happened: a warning now, or a higher number in the next one.
    pub fn warn(&self, what: &str) {
        if let Some(times) = self.count(Instant::now()) {
            tracing::warn!(times, "{what}");
        }
    }

    /// Returns how often it happened since the last line, if one is due.
    fn count(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        state.unsaid += 1;
        if state.logged.is_some_and(|logged| now.saturating_duration_since(logged) < PAUSE) {
            return None;
        }
        state.logged = Some(now);
        Some(std::mem::take(&mut state.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_logged_at_once_and_the_others_are_counted_together() {
        let seldom = LogThrottle::default();
        let begin = Instant::now();
        assert_eq!(seldom.count(begin), Some(1));
        for seconds in 1..10 {
            assert_eq!(seldom.count(begin + Duration::from_secs(seconds)), None);
        }
        assert_eq!(seldom.count(begin + PAUSE), Some(10));
        assert_eq!(seldom.count(begin + PAUSE * 2), Some(1));
    }
}
