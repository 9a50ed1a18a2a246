//! Three clocks: what a thread worked, what all of them did, and what passed.
//!
//! One thread's operations are timed by the processor time of that thread, so that another guest on a
//! busy machine costs only the cache that it takes, not the milliseconds in which it runs instead of
//! us. What starts threads of its own to build something is timed by the work of all of them.
//! Operations of several threads that get in each other's way are timed by the clock on the wall:
//! there the waiting is part of the matter.

use std::time::Duration;

/// Which time counts.
#[derive(Clone, Copy)]
pub(crate) enum Clock {
    /// The processor time of the calling thread, where the system tells it.
    Thread,
    /// The processor time of all threads together, where the system tells it.
    Process,
    /// The time that passes.
    Wall,
}

impl Clock {
    /// Runs `work` and returns its result with the time it took.
    pub(crate) fn time<T>(self, work: impl FnOnce() -> T) -> (T, Duration) {
        let start = self.now();
        let result = work();
        (result, self.now().saturating_sub(start))
    }

    #[cfg(unix)]
    fn now(self) -> Duration {
        use rustix::time::{ClockId, clock_gettime};
        let clock = match self {
            Clock::Thread => ClockId::ThreadCPUTime,
            Clock::Process => ClockId::ProcessCPUTime,
            Clock::Wall => ClockId::Monotonic,
        };
        clock_gettime(clock).try_into().expect("these clocks do not show less than nothing")
    }

    /// Elsewhere the time that passed since the first call stands in for all.
    #[cfg(not(unix))]
    fn now(self) -> Duration {
        use std::sync::OnceLock;
        use std::time::Instant;
        static FIRST: OnceLock<Instant> = OnceLock::new();
        FIRST.get_or_init(Instant::now).elapsed()
    }
}
