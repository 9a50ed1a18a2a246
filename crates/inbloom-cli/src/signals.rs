//! Ctrl-C and its kin, where a file is to be finished first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// From its making on, a signal that asks to stop does not end the program: it is remembered. A
/// second one ends it at once.
pub struct Signals {
    /// The number of the first one, 0 before it came.
    first: Arc<AtomicUsize>,
}

impl Signals {
    pub fn catch() -> Result<Signals> {
        let first = Arc::new(AtomicUsize::new(0));
        let came = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Actions run in this order: so the first signal does not find itself.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&came))
                .and_then(|_| flag::register(signal, Arc::clone(&came)))
                .and_then(|_| flag::register_usize(signal, Arc::clone(&first), signal as usize))
                .context("cannot listen for signals")?;
        }
        Ok(Signals { first })
    }

    /// The signal that came, if one did.
    pub fn came(&self) -> Option<u8> {
        let signal = self.first.load(Ordering::Relaxed);
        (signal != 0).then_some(signal as u8)
    }
}
