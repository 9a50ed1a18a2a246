//! What a name stands for, and what is to become of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::value::Value;

/// No time: the key does not expire.
const NEVER: u64 = u64::MAX;
/// Instead of the bytes of an entry that no name leads to, not yet or not any more.
pub(super) const GONE: u64 = u64::MAX;

/// What a name stands for.
pub struct Entry {
    /// Its number, which no other entry has had.
    pub id: u64,
    /// Milliseconds since 1970, or `NEVER`.
    pub(super) expires: AtomicU64,
    /// The bytes of the value that are on the keyspace's account, or `GONE`.
    pub(super) accounted: AtomicU64,
    /// The second of the calendar that has this entry, 0 if none does.
    pub(super) listed: AtomicU32,
    /// How often it was given another name.
    pub(super) moves: AtomicU16,
    /// Whether anything of it was changed since the last snapshot.
    pub(super) changed: AtomicBool,
    /// One more than the number of its counters, if it is watched: see `history.rs`. 0: it is not.
    watched: AtomicU8,
    /// The filter.
    pub value: Value,
}

/// A filter that is to have a name.
pub struct New {
    pub(super) value: Value,
    /// What the log says of it: see `value::spec`.
    pub(super) birth: Vec<u8>,
    pub(super) expires: Option<u64>,
}

impl New {
    /// One with its birth, until some time.
    pub fn with(value: Value, birth: Vec<u8>, expires: Option<u64>) -> New {
        New { value, birth, expires }
    }
}

impl From<Value> for New {
    fn from(value: Value) -> New {
        New::with(value, Vec::new(), None)
    }
}

/// An entry that is not in a table, with its name.
pub struct Restored {
    pub(super) database: usize,
    pub(super) name: Box<[u8]>,
    /// What the name stands for.
    pub entry: Arc<Entry>,
}

impl Restored {
    /// Of this database and name.
    pub fn new(database: usize, name: &[u8], entry: Arc<Entry>) -> Restored {
        Restored { database, name: name.into(), entry }
    }

    /// Its database and name.
    pub fn key(&self) -> (usize, &[u8]) {
        (self.database, &self.name)
    }

    /// Gives it another name.
    pub fn rename(&mut self, database: usize, name: &[u8]) {
        (self.database, self.name) = (database, name.into());
    }
}

/// What differs when an entry was changed in between, as WATCH needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub(super) expires: u64,
    pub(super) moves: u16,
    value: u64,
}

impl Entry {
    /// Returns a filter with its number, and until when it lives. It is on no account before it has
    /// a name.
    pub fn new(id: u64, value: Value, expires: Option<u64>) -> Entry {
        Entry {
            id,
            expires: AtomicU64::new(expires.unwrap_or(NEVER)),
            accounted: AtomicU64::new(GONE),
            listed: AtomicU32::new(0),
            moves: AtomicU16::new(0),
            changed: AtomicBool::new(false),
            watched: AtomicU8::new(0),
            value,
        }
    }

    /// Notes that it is not as the last snapshot has it. Always after the change, and before it is
    /// written down.
    pub fn set_changed(&self) {
        self.changed.store(true, Ordering::Release);
    }

    /// Returns whether it is not as the last snapshot has it; from now on it counts as if.
    pub fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::AcqRel)
    }

    /// Sets until when it lives, while no table has it.
    pub fn set_expires(&self, at: Option<u64>) {
        self.expires.store(at.unwrap_or(NEVER), Ordering::Relaxed);
    }

    /// Returns whether it can still be reached by its name at this time.
    pub fn is_live(&self, now: u64) -> bool {
        self.accounted.load(Ordering::Acquire) != GONE && now < self.expires.load(Ordering::Relaxed)
    }

    /// When it expires, in milliseconds since 1970.
    pub fn expires(&self) -> Option<u64> {
        Some(self.expires.load(Ordering::Relaxed)).filter(|at| *at != NEVER)
    }

    /// Returns the number of its counters, if it is watched.
    #[inline]
    pub fn watched(&self) -> Option<usize> {
        usize::from(self.watched.load(Ordering::Relaxed)).checked_sub(1)
    }

    /// Gives it counters of a number below 255, or none.
    pub fn set_watched(&self, counters: Option<usize>) {
        let number = counters.map_or(0, |number| number as u8 + 1);
        self.watched.store(number, Ordering::Relaxed);
    }

    /// Differs when the content, the time of expiry or the name has changed.
    pub fn stamp(&self) -> Stamp {
        Stamp {
            expires: self.expires.load(Ordering::Relaxed),
            moves: self.moves.load(Ordering::Relaxed),
            value: self.value.stamp(),
        }
    }
}
