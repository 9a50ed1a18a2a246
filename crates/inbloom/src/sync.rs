//! The atomics and locks of shared filters: loom's when its model checker runs, the standard ones
//! otherwise.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, RwLock,
    atomic::{AtomicU64, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, RwLock,
    atomic::{AtomicU64, Ordering},
};
