//! Frees large filters on a thread of its own: to give a gigabyte back takes the kernel tens of
//! milliseconds, which no client should wait for.
//!
//! A filter that was deleted while it is in use is freed by its last user. So the
//! reaper waits until it is the last itself.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::Entry;

/// A filter this large is not freed by those who serve clients.
const LARGE: u64 = 1 << 20;
/// Small ones together take as long.
const MANY: usize = 1000;
/// Commands let go of a filter after some milliseconds; then it is looked whether they have.
const PAUSE: Duration = Duration::from_millis(20);

/// The thread comes with the first large filter, and ends with the keyspace.
#[derive(Default)]
pub(super) struct Reaper {
    /// None inside: there was no thread to be had.
    entries: OnceLock<Option<Sender<Vec<Arc<Entry>>>>>,
}

impl Reaper {
    /// Frees entries that no name leads to any more.
    pub(super) fn take(&self, entries: Vec<Arc<Entry>>) {
        if entries.len() < MANY && entries.iter().all(|entry| entry.value.memory() < LARGE) {
            return;
        }
        let sender = self.entries.get_or_init(|| {
            let (sender, receiver) = channel();
            let reaper = std::thread::Builder::new().name("reaper".into());
            reaper.spawn(move || reap(&receiver)).ok().map(|_| sender)
        });
        if let Some(sender) = sender {
            // The thread runs as long as there is a sender. If it did not, the entries would be
            // freed here, and the caller would have to wait after all.
            let _ = sender.send(entries);
        }
    }
}

fn reap(entries: &Receiver<Vec<Arc<Entry>>>) {
    let mut held = Vec::new();
    loop {
        let more = if held.is_empty() {
            entries.recv().map_err(RecvTimeoutError::from)
        } else {
            entries.recv_timeout(PAUSE)
        };
        match more {
            Ok(more) => held.extend(more),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        held.retain(|entry| Arc::strong_count(entry) > 1);
        if held.is_empty() {
            held = Vec::new();
        }
    }
}
