//! Windows of a time follow the clock of the system, which the library leaves to its users.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use inbloom::{Plan, Span};

/// When the clock of a window was last set.
pub struct Clock {
    /// Milliseconds since 1970.
    told: AtomicU64,
    /// How often it is set: a small part of a generation, which is what it forgets at once.
    every: u64,
}

impl Clock {
    /// A clock for the filters that need one: windows of a time.
    pub fn for_plan(plan: &Plan) -> Option<Clock> {
        match plan.span()? {
            Span::Millis(length) => {
                let step = length / u64::from(plan.generations().max(1));
                Some(Clock { told: AtomicU64::new(0), every: (step / 64).max(1) })
            }
            Span::Items(_) => None,
        }
    }

    /// Returns the time, if the window's clock has to be set.
    pub fn due(&self) -> Option<u64> {
        let now = now();
        let told = self.told.load(Ordering::Relaxed);
        (now >= told.saturating_add(self.every) || told == 0).then_some(now)
    }

    /// Notes that the window's clock was set.
    pub fn tell(&self, now: u64) {
        self.told.fetch_max(now, Ordering::Relaxed);
    }
}

/// Milliseconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
