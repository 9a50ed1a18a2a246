//! Counts of what the server does, and the slow log.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// What INFO counts.
#[derive(Default)]
pub struct Statistics {
    /// Connections ever accepted.
    pub connections: AtomicU64,
    /// Connections refused because there were too many, or because of protected mode.
    pub rejected: AtomicU64,
    /// Connections ended because the client did not read its replies.
    pub unread: AtomicU64,
    /// Attempts of AUTH that failed.
    pub failed_logins: AtomicU64,
    /// Commands refused because the user may not run them.
    pub forbidden: AtomicU64,
    /// Commands carried out.
    pub commands: AtomicU64,
    /// Bytes read from clients.
    pub bytes_in: AtomicU64,
    /// Bytes written to clients.
    pub bytes_out: AtomicU64,
    /// Errors replied.
    pub errors: AtomicU64,
    /// Look-ups of keys that were there, by reading commands.
    pub hits: AtomicU64,
    /// Those of keys that were not.
    pub misses: AtomicU64,
    /// Items given to filters, whether they were new or not.
    pub items_added: AtomicU64,
    /// Items that filters were asked for.
    pub items_asked: AtomicU64,
    /// Calls and time of each command.
    pub by_command: Mutex<HashMap<&'static str, Calls>>,
    /// Errors by their code.
    pub by_error: Mutex<BTreeMap<String, u64>>,
}

impl Statistics {
    /// Counts that a reading command found its key, or did not.
    pub fn count_lookup(&self, found: bool) {
        let count = if found { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts items that were given to filters.
    pub fn count_added(&self, items: usize) {
        self.items_added.fetch_add(items as u64, Ordering::Relaxed);
    }

    /// Counts items that filters were asked for.
    pub fn count_asked(&self, items: usize) {
        self.items_asked.fetch_add(items as u64, Ordering::Relaxed);
    }

    /// Counts an error by its code, as `errorstat_ERR`. A text without a code counts by its first
    /// word, as in Redis.
    pub fn count_error(&self, text: &str) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let code = text.split(' ').next().unwrap_or(text);
        let mut by_error = self.by_error.lock();
        match by_error.get_mut(code) {
            Some(count) => *count += 1,
            // Codes are ours and few: a client cannot make new ones.
            None => drop(by_error.insert(code.to_owned(), 1)),
        }
    }
}

/// How often a command was called.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calls {
    /// Times.
    pub calls: u64,
    /// Nanoseconds spent in it.
    pub nanos: u64,
    /// Errors replied.
    pub failed: u64,
    /// Refused before they began, and not counted among the calls.
    pub rejected: u64,
}

impl Calls {
    /// Counts more.
    pub fn add(&mut self, more: Calls) {
        self.calls += more.calls;
        self.nanos += more.nanos;
        self.failed += more.failed;
        self.rejected += more.rejected;
    }
}

/// Commands that took long.
#[derive(Default)]
pub struct SlowLog {
    next: u64,
    /// The newest first.
    pub entries: VecDeque<SlowCommand>,
}

impl SlowLog {
    /// Remembers a command.
    pub fn remember(&mut self, mut slow: SlowCommand, most: usize) {
        slow.id = self.next;
        self.next += 1;
        self.entries.push_front(slow);
        self.entries.truncate(most);
    }
}

/// A command that took long.
#[derive(Clone, Debug)]
pub struct SlowCommand {
    /// Its number.
    pub id: u64,
    /// Seconds since 1970.
    pub at: u64,
    /// How long it took.
    pub micros: u64,
    /// Its words, the first of many, and the beginning of long ones.
    pub words: Vec<Vec<u8>>,
    /// Whose it was.
    pub address: String,
    /// And its name.
    pub name: String,
}
