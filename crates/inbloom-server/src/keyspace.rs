//! The keys of the server: sixteen databases of names and what they stand for.
//!
//! A database is divided into 1,280 parts by the upper bits of a name's hash. Each part is a hash
//! table with its own lock, which is held for a look-up or a change of the table, never during the
//! work of a filter. A name leads to an [`Entry`] with a reference count. If another client removes
//! the name while a thread uses the entry, the thread continues with it, as if its command had come
//! a moment earlier.
//!
//! **Cost.** For a filter of 100 keys at 1%, beside its name: 192 bytes of cells, 128 of entry and
//! 30 to 60 of table; a million of them were measured at 395 each. Creation, look-up and expiry
//! take the same time for any number of filters.
//!
//! **Scanning** follows the order of the upper 48 bits of the hashes, not the layout of the tables.
//! A cursor is the place in this order where the next call continues. So a name that exists during
//! the whole scan is returned exactly once, even if tables grow or shrink meanwhile. A call reads
//! the whole part that its cursor points into. 48 bits, because some clients keep cursors as
//! doubles, which are exact to 53.
//!
//! **Changes.** [`Keyspace::apply`] changes the content of an entry; `create`, `replace`, `remove`,
//! `rename`, `expire` and `flush` change what names stand for. Each of them locks, changes, calls
//! the [`Journal`] and accounts for the memory. Recovery runs before there is a journal. It also
//! adds and removes items by `apply`, merges by [`Value::merge_alone`], and sets all names at once,
//! by `restore`, after the last record.
//!
//! **Locks.** A thread that locks two parts takes them in the order of database and part; the
//! calendar's lock comes after them, that of the log last. No filter is queried, changed or freed
//! under any of these locks. Changes of names are logged under the lock of their part, so they are
//! in the log in the order in which they happen.

mod entry;
mod expiry;
pub mod journal;
mod reaper;
mod scan;
mod visit;

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::HashTable;
use parking_lot::{Mutex, RwLock};

use crate::value::Value;
use crate::value::change::{Change, Effect, Refusal};
use entry::GONE;
use expiry::Calendar;
use journal::{Journal, Record};
use reaper::Reaper;
use scan::{cursor_of, part_of_cursor};
use visit::Moved;

pub use entry::{Entry, New, Restored, Stamp};

/// Databases that SELECT chooses from, as many as Redis has by default.
pub const DATABASES: usize = 16;
/// So many that a table of a million keys is well filled: tables double when they are 7/8 full.
pub const PARTS: u64 = 1280;
/// Entry, table slot and the like, beside name and cells: what a small filter was measured to take.
const ENTRY_BYTES: u64 = 192;
/// A table is made smaller when less than one of so many slots is taken.
const SPARSE: usize = 8;

/// All databases.
pub struct Keyspace {
    databases: [Database; DATABASES],
    hasher: RandomState,
    calendar: Calendar,
    reaper: Reaper,
    used: AtomicI64,
    expired: AtomicU64,
    numbers: AtomicU64,
    /// Where changes are written down, if they are.
    journal: OnceLock<Arc<dyn Journal>>,
    /// While all are visited, entries that were renamed or removed and might be missed. See
    /// [`Keyspace::visit_changed`].
    moved: Mutex<Option<Moved>>,
}

/// The parts of a database come into being with its first key: most servers use one database.
#[derive(Default)]
struct Database {
    parts: OnceLock<Box<[Part]>>,
    len: AtomicU64,
}

#[derive(Default)]
struct Part(RwLock<HashTable<Slot>>);

struct Slot {
    name: Box<[u8]>,
    entry: Arc<Entry>,
}

/// A name, in one of the databases.
#[derive(Clone, Copy)]
pub struct Key<'a> {
    /// Below [`DATABASES`].
    pub database: usize,
    /// Any bytes.
    pub name: &'a [u8],
}

/// What came of an attempt to create a key.
pub enum Created {
    /// It is there now.
    New(Arc<Entry>),
    /// Somebody else was faster, or it was there before; the value is given back.
    Taken(Arc<Entry>, Value),
}

/// What rename does with a name that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Its entry is gone.
    Any,
    /// Nothing is renamed.
    Free,
}

/// What came of an attempt to rename a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renamed {
    /// The entry has its new name.
    Done,
    /// There is no such key.
    Missing,
    /// The new name is taken.
    Taken,
}

impl Keyspace {
    pub(crate) fn new() -> Keyspace {
        Keyspace {
            databases: Default::default(),
            hasher: RandomState::new(),
            calendar: Calendar::default(),
            reaper: Reaper::default(),
            used: AtomicI64::new(0),
            expired: AtomicU64::new(0),
            numbers: AtomicU64::new(1),
            journal: OnceLock::new(),
            moved: Mutex::new(None),
        }
    }

    /// Writes changes down from now on.
    pub fn set_journal(&self, journal: Arc<dyn Journal>) {
        let _ = self.journal.set(journal);
    }

    /// Returns a number that was never given before.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes in what was found on the disk. Numbers begin with `next`.
    pub fn restore(&self, next: u64, all: impl Iterator<Item = Restored>) {
        self.numbers.store(next, Ordering::Relaxed);
        for Restored { database, name, entry } in all {
            let hash = self.hash(&name);
            let mut table = self.part(database, hash).0.write();
            self.open_account(&name, &entry);
            self.list(Key { database, name: &name }, &entry);
            let slot = Slot { name, entry };
            table.insert_unique(hash, slot, |slot| self.hash(&slot.name));
            self.databases[database].len.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Changes the content of an entry: locks it, changes it, writes down what was done, and enters
    /// what it has grown or shrunk by. The answers are those of [`Value::apply`].
    ///
    /// # Errors
    ///
    /// What was refused, and why. What was done before is done, written down and entered.
    pub fn apply(
        &self,
        entry: &Entry,
        change: &Change<'_>,
        answers: &mut Vec<bool>,
    ) -> Result<(), Refusal> {
        let note = |effect: Effect<'_>| self.note(entry, &Record::Change { id: entry.id, effect });
        let result = entry.value.apply(change, answers, note);
        self.settle(entry);
        result
    }

    /// Writes down what was done to an entry, if anything is written down at all. Called after the
    /// change, under the lock that makes both one step where order matters.
    fn note(&self, entry: &Entry, record: &Record<'_>) {
        if let Some(journal) = self.journal.get() {
            entry.set_changed();
            journal.record(record);
        }
    }

    /// Writes down that an entry is gone.
    fn note_removed(&self, key: Key<'_>, entry: &Arc<Entry>) {
        if let Some(journal) = self.journal.get() {
            let ids = Cow::Borrowed(std::slice::from_ref(&entry.id));
            journal.record(&Record::Remove { ids });
            self.note_moved(key, entry);
        }
    }

    fn note_created(
        &self,
        key: Key<'_>,
        entry: &Entry,
        birth: &[u8],
        replaced: Option<&Arc<Entry>>,
    ) {
        let record = Record::Create {
            id: entry.id,
            replaced: replaced.map_or(0, |entry| entry.id),
            database: key.database,
            expires: entry.expires(),
            name: key.name,
            birth,
        };
        self.note(entry, &record);
        if let Some(replaced) = replaced {
            self.note_moved(key, replaced);
        }
    }

    /// Returns the entry of a name, if there is one that has not expired.
    pub fn get(&self, key: Key<'_>, now: u64) -> Option<Arc<Entry>> {
        let hash = self.hash(key.name);
        let table = self.existing_part(key.database, hash)?.0.read();
        let slot = table.find(hash, |slot| *slot.name == *key.name)?;
        slot.entry.is_live(now).then(|| Arc::clone(&slot.entry))
    }

    /// Puts a value under a name that has none.
    pub fn create(&self, key: Key<'_>, new: impl Into<New>, now: u64) -> Created {
        let hash = self.hash(key.name);
        let mut table = self.part(key.database, hash).0.write();
        let New { value, birth, expires } = new.into();
        let found = table.find(hash, |slot| *slot.name == *key.name);
        if let Some(slot) = found.filter(|slot| slot.entry.is_live(now)) {
            return Created::Taken(Arc::clone(&slot.entry), value);
        }
        let entry = Arc::new(Entry::new(self.number(), value, expires));
        self.open_account(key.name, &entry);
        // What has expired is replaced as if it had been removed in time.
        let old = self.put(&mut table, key, hash, Arc::clone(&entry));
        self.list(key, &entry);
        self.note_created(key, &entry, &birth, old.as_ref());
        drop(table);
        if let Some(old) = old {
            self.expired.fetch_add(1, Ordering::Relaxed);
            self.reaper.take(vec![old]);
        }
        Created::New(entry)
    }

    /// Puts a value under a name, whatever was there.
    pub fn replace(&self, key: Key<'_>, new: impl Into<New>) -> Arc<Entry> {
        let New { value, birth, expires } = new.into();
        let entry = Arc::new(Entry::new(self.number(), value, expires));
        self.open_account(key.name, &entry);
        let hash = self.hash(key.name);
        let mut table = self.part(key.database, hash).0.write();
        let old = self.put(&mut table, key, hash, Arc::clone(&entry));
        self.list(key, &entry);
        self.note_created(key, &entry, &birth, old.as_ref());
        drop(table);
        self.reaper.take(old.into_iter().collect());
        entry
    }

    /// Puts an entry under a name, and returns the one that was there, which is discarded.
    fn put(
        &self,
        table: &mut HashTable<Slot>,
        key: Key<'_>,
        hash: u64,
        entry: Arc<Entry>,
    ) -> Option<Arc<Entry>> {
        let Some(slot) = table.find_mut(hash, |slot| *slot.name == *key.name) else {
            self.insert_slot(table, key, hash, entry);
            return None;
        };
        let old = std::mem::replace(&mut slot.entry, entry);
        self.discard(key, &old);
        Some(old)
    }

    fn insert_slot(&self, table: &mut HashTable<Slot>, key: Key<'_>, hash: u64, entry: Arc<Entry>) {
        let slot = Slot { name: key.name.into(), entry };
        table.insert_unique(hash, slot, |slot| self.hash(&slot.name));
        self.databases[key.database].len.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a name away. False if it had no entry, or one that has expired.
    pub fn remove(&self, key: Key<'_>, now: u64) -> bool {
        let hash = self.hash(key.name);
        let Some(part) = self.existing_part(key.database, hash) else { return false };
        let mut table = part.0.write();
        let Some(entry) = self.take_slot(&mut table, key, hash) else { return false };
        let was_live = entry.is_live(now);
        self.discard(key, &entry);
        self.note_removed(key, &entry);
        drop(table);
        if !was_live {
            self.expired.fetch_add(1, Ordering::Relaxed);
        }
        self.reaper.take(vec![entry]);
        was_live
    }

    /// Takes a name out of its table. Its entry is left as it is.
    fn take_slot(
        &self,
        table: &mut HashTable<Slot>,
        key: Key<'_>,
        hash: u64,
    ) -> Option<Arc<Entry>> {
        let found = table.find_entry(hash, |slot| *slot.name == *key.name).ok()?;
        let (slot, _) = found.remove();
        self.databases[key.database].len.fetch_sub(1, Ordering::Relaxed);
        if table.len() < table.capacity() / SPARSE {
            table.shrink_to(table.len() * 2, |slot| self.hash(&slot.name));
        }
        Some(slot.entry)
    }

    /// Gives the entry of one name to another, in the same or another database, at once: a client
    /// that looks finds it under one of them. Its time of expiry goes with it.
    pub fn rename(&self, from: Key<'_>, to: Key<'_>, target: Target, now: u64) -> Renamed {
        let (from_hash, to_hash) = (self.hash(from.name), self.hash(to.name));
        if self.existing_part(from.database, from_hash).is_none() {
            return Renamed::Missing;
        }
        let from_place = (from.database, part_of(from_hash));
        let to_place = (to.database, part_of(to_hash));
        let mut places = vec![from_place, to_place];
        places.sort_unstable();
        places.dedup();
        let mut tables: Vec<_> =
            places.iter().map(|(database, part)| self.parts(*database)[*part].0.write()).collect();
        let from_table = usize::from(places[0] != from_place);
        let to_table = usize::from(places[0] != to_place);

        let live = |table: &HashTable<Slot>, key: Key<'_>, hash| {
            let slot = table.find(hash, |slot| *slot.name == *key.name);
            slot.is_some_and(|slot| slot.entry.is_live(now))
        };
        if !live(&tables[from_table], from, from_hash) {
            return Renamed::Missing;
        }
        if target == Target::Free && live(&tables[to_table], to, to_hash) {
            return Renamed::Taken;
        }
        if from.database == to.database && from.name == to.name {
            return Renamed::Done;
        }
        let entry = self.take_slot(&mut tables[from_table], from, from_hash);
        let entry = entry.expect("it was there a moment ago, under the same lock");
        self.account(to.name.len() as i64 - from.name.len() as i64);
        entry.moves.fetch_add(1, Ordering::Relaxed);
        self.calendar.strike(&entry);
        self.list(to, &entry);
        let old = self.put(&mut tables[to_table], to, to_hash, Arc::clone(&entry));
        let record = Record::Rename {
            id: entry.id,
            replaced: old.as_ref().map_or(0, |entry| entry.id),
            database: to.database,
            name: to.name,
        };
        self.note(&entry, &record);
        self.note_moved(to, &entry);
        if let Some(old) = &old {
            self.note_moved(to, old);
        }
        drop(tables);
        self.reaper.take(old.into_iter().collect());
        Renamed::Done
    }

    /// Marks an entry that no name leads to any more, takes it off the account and the calendar.
    /// Its table is locked.
    fn discard(&self, key: Key<'_>, entry: &Arc<Entry>) {
        let accounted = entry.accounted.swap(GONE, Ordering::AcqRel);
        debug_assert_ne!(accounted, GONE, "an entry loses its name once");
        self.account(-((overhead(key.name) + accounted) as i64));
        self.calendar.strike(entry);
    }

    /// Sets the time at which an entry expires, or that it does not. False if the key has another
    /// entry by now, or none: then nothing is done.
    pub fn expire(&self, key: Key<'_>, entry: &Arc<Entry>, at: Option<u64>) -> bool {
        let hash = self.hash(key.name);
        let Some(part) = self.existing_part(key.database, hash) else { return false };
        // Alone, so that the last time that is set is the last that is written down.
        let table = part.0.write();
        let slot = table.find(hash, |slot| *slot.name == *key.name);
        if !slot.is_some_and(|slot| Arc::ptr_eq(&slot.entry, entry)) {
            return false;
        }
        entry.set_expires(at);
        self.list(key, entry);
        self.note(entry, &Record::Expire { id: entry.id, at });
        true
    }

    /// Enters the time of expiry into the calendar, unless an earlier one is there already: when
    /// that comes, it is seen that it is not yet time. The table with the name is locked.
    fn list(&self, key: Key<'_>, entry: &Arc<Entry>) {
        if let Some(at) = entry.expires() {
            self.calendar.list(key, entry, at);
        }
    }

    /// Removes what has expired, having looked at `most` entries at most, and tells at how many.
    pub fn expire_due(&self, now: u64, most: usize) -> usize {
        let due = self.calendar.due(now, most);
        let count = due.len();
        let mut removed = Vec::new();
        for item in due {
            let key = Key { database: item.database, name: &item.name };
            let hash = self.hash(key.name);
            let mut table = self.part(key.database, hash).0.write();
            let slot = table.find(hash, |slot| *slot.name == *key.name);
            if !slot.is_some_and(|slot| Arc::ptr_eq(&slot.entry, &item.entry)) {
                continue; // It was renamed or removed a moment ago.
            }
            if item.entry.expires().is_none_or(|at| now < at) {
                self.list(key, &item.entry);
                continue;
            }
            self.take_slot(&mut table, key, hash);
            self.discard(key, &item.entry);
            self.note_removed(key, &item.entry);
            self.expired.fetch_add(1, Ordering::Relaxed);
            removed.push(item.entry);
        }
        self.reaper.take(removed);
        count
    }

    /// Returns the keys of a database. Expired ones are counted until they are removed, a second or
    /// so later.
    pub fn len(&self, database: usize) -> u64 {
        self.databases[database].len.load(Ordering::Relaxed)
    }

    /// Removes all keys of these databases.
    ///
    /// All tables are locked at once, in the order that `rename` keeps too, so that one record says
    /// it: a kill at any time leaves all keys or none.
    pub fn flush(&self, databases: Range<usize>) {
        let existing = databases.filter_map(|database| {
            let parts = self.databases[database].parts.get()?;
            Some(parts.iter().map(move |part| (database, part.0.write())))
        });
        let mut tables: Vec<_> = existing.flatten().collect();
        let mut ids = Vec::new();
        for (database, table) in &tables {
            for slot in &**table {
                self.discard(Key { database: *database, name: &slot.name }, &slot.entry);
                ids.push(slot.entry.id);
            }
        }
        if let Some(journal) = self.journal.get().filter(|_| !ids.is_empty()) {
            journal.record(&Record::Remove { ids: Cow::Borrowed(&ids) });
        }
        let mut removed = Vec::with_capacity(ids.len());
        for (database, table) in &mut tables {
            let slots = mem::take(&mut **table);
            self.databases[*database].len.fetch_sub(slots.len() as u64, Ordering::Relaxed);
            for slot in slots {
                self.note_moved(Key { database: *database, name: &slot.name }, &slot.entry);
                removed.push(slot.entry);
            }
        }
        drop(tables);
        self.reaper.take(removed);
    }

    /// Returns the bytes that all keys take.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed).max(0) as u64
    }

    /// Returns the bytes of the calendar in which those that expire are.
    pub fn calendar_bytes(&self) -> u64 {
        self.calendar.bytes()
    }

    /// Keys that were removed because their time had come.
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// Counts them from zero again, as CONFIG RESETSTAT wants.
    pub fn forget_expired(&self) {
        self.expired.store(0, Ordering::Relaxed);
    }

    /// Enters what an entry's value has grown or shrunk by since it was last entered. What others do at
    /// the same time is neither lost nor counted twice, and an entry without a name has no account.
    fn settle(&self, entry: &Entry) {
        let mut accounted = entry.accounted.load(Ordering::Relaxed);
        loop {
            let bytes = entry.value.memory();
            if accounted == GONE || accounted == bytes {
                return;
            }
            let entered = entry.accounted.compare_exchange_weak(
                accounted,
                bytes,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            accounted = match entered {
                Ok(_) => {
                    self.account(bytes as i64 - accounted as i64);
                    bytes // And once more: it may have changed since it was asked.
                }
                Err(found) => found,
            };
        }
    }

    /// Enters an entry that gets its first name. Nobody else has it yet.
    fn open_account(&self, name: &[u8], entry: &Entry) {
        let bytes = entry.value.memory();
        entry.accounted.store(bytes, Ordering::Release);
        self.account((overhead(name) + bytes) as i64);
    }

    fn account(&self, bytes: i64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes that a key takes, its name included.
    pub fn bytes_of(&self, name: &[u8], entry: &Entry) -> u64 {
        overhead(name) + entry.value.memory()
    }

    fn part(&self, database: usize, hash: u64) -> &Part {
        &self.parts(database)[part_of(hash)]
    }

    fn existing_part(&self, database: usize, hash: u64) -> Option<&Part> {
        Some(&self.databases[database].parts.get()?[part_of(hash)])
    }

    fn parts(&self, database: usize) -> &[Part] {
        let new = || (0..PARTS).map(|_| Part::default()).collect();
        self.databases[database].parts.get_or_init(new)
    }

    fn hash(&self, name: &[u8]) -> u64 {
        self.hasher.hash_one(name)
    }
}

fn part_of(hash: u64) -> usize {
    part_of_cursor(cursor_of(hash))
}

/// Returns what a key takes beside its filter.
fn overhead(name: &[u8]) -> u64 {
    ENTRY_BYTES + name.len() as u64
}

#[cfg(test)]
mod tests;
