//! The atomics and locks of shared filters: loom's when its model checker runs, the standard ones
//! otherwise.

#[cfg(feature = "std")]
use std::sync::PoisonError;

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicU64, Ordering},
};
#[cfg(all(feature = "std", not(loom)))]
pub(crate) use std::sync::{
    Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// Lets the thread that is waited for go on: first by pauses, for it should be done in a few
/// nanoseconds; after about a microsecond it may have lost its processor, and is given this one.
pub(crate) fn pause(attempt: u32) {
    #[cfg(not(loom))]
    if attempt < 32 || cfg!(not(feature = "std")) {
        core::hint::spin_loop();
    } else {
        #[cfg(feature = "std")]
        std::thread::yield_now();
    }
    #[cfg(loom)]
    {
        let _ = attempt;
        loom::thread::yield_now();
    }
}

/// A thread that panicked holding a lock has left a state that answers: every change is whole or
/// none.
#[cfg(feature = "std")]
pub(crate) fn unpoisoned<T>(result: Result<T, PoisonError<T>>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(loom)]
pub(crate) use once::OnceLock;

/// loom has no such lock, and does not see what the standard one orders: a flag of its own tells it.
#[cfg(loom)]
mod once {
    use loom::sync::atomic::{AtomicBool, Ordering};

    pub(crate) struct OnceLock<T> {
        value: std::sync::OnceLock<T>,
        is_set: AtomicBool,
    }

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> OnceLock<T> {
            OnceLock { value: std::sync::OnceLock::new(), is_set: AtomicBool::new(false) }
        }

        pub(crate) fn get(&self) -> Option<&T> {
            self.is_set.load(Ordering::Acquire).then(|| self.value.get()).flatten()
        }

        pub(crate) fn get_or_init(&self, value: impl FnOnce() -> T) -> &T {
            let value = self.value.get_or_init(value);
            self.is_set.store(true, Ordering::Release);
            value
        }

        pub(crate) fn into_inner(self) -> Option<T> {
            self.value.into_inner()
        }
    }
}
