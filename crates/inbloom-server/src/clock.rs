//! The time of day, as commands and snapshots read it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub fn now() -> u64 {
    since_1970().as_millis() as u64
}

/// Returns the time since 1970.
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
