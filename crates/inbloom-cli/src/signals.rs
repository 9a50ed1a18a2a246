//! Ctrl-C and its kin, where a file is to be finished first.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// From the first call of [`Signals::catch`] on, a signal that asks to stop does not end the
/// program: it is remembered. A second one ends it at once. What was ignored before, as `nohup` has
/// it, stays ignored.
pub struct Signals {
    /// The number of the first one, 0 before it came.
    first: Arc<AtomicUsize>,
}

impl Signals {
    pub fn catch() -> Result<&'static Signals> {
        static SIGNALS: OnceLock<Signals> = OnceLock::new();
        if let Some(signals) = SIGNALS.get() {
            return Ok(signals);
        }
        let first = Arc::new(AtomicUsize::new(0));
        let came = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)) {
            // Actions run in this order: so the first signal does not find itself.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&came))
                .and_then(|_| flag::register(signal, Arc::clone(&came)))
                .and_then(|_| flag::register_usize(signal, Arc::clone(&first), signal as usize))
                .context("cannot listen for signals")?;
        }
        Ok(SIGNALS.get_or_init(|| Signals { first }))
    }

    /// Returns the signal that came, if one did.
    pub fn came(&self) -> Option<u8> {
        let signal = self.first.load(Ordering::Relaxed);
        (signal != 0).then_some(signal as u8)
    }
}

/// Returns whether the system ignores a signal. Where that is unknown, the answer is no.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0) >> (signal - 1) & 1 == 1
}
