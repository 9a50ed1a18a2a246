//! Two clocks: what a thread worked, and what passed.
//!
//! One thread's operations are timed by the processor time of that thread, so that a neighbour on a
//! busy machine costs only the cache that it takes, not the milliseconds in which it runs instead of
//! us. Operations of several threads are timed by the clock on the wall: there the waiting is part of
//! the matter.

use std::time::{Duration, Instant};

/// Which time counts.
#[derive(Clone, Copy)]
pub(crate) enum Clock {
    /// The processor time of the calling thread, where the system tells it.
    Thread,
    /// The time that passes.
    Wall,
}

impl Clock {
    /// Runs `work` and returns its result with the time it took.
    pub(crate) fn time<T>(self, work: impl FnOnce() -> T) -> (T, Duration) {
        match self {
            Clock::Thread => {
                let start = worked();
                let result = work();
                (result, worked().saturating_sub(start))
            }
            Clock::Wall => {
                let start = Instant::now();
                let result = work();
                (result, start.elapsed())
            }
        }
    }
}

/// What this thread has worked so far.
#[cfg(unix)]
fn worked() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("no thread works for less than nothing")
}

/// Elsewhere the time that passed since the first call stands in for it.
#[cfg(not(unix))]
fn worked() -> Duration {
    use std::sync::OnceLock;
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}
