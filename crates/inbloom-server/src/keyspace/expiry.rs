//! When which key expires: a calendar with a page for each second.
//!
//! An entry is on one page at a time, even if its time is set anew with every request: a page that
//! comes up too early sends it on to a later one. An entry that loses its name is struck off, so
//! nothing is left behind by keys that are gone or renamed, however far away their time was. Every
//! one of these steps costs the same whatever there is.
//!
//! Who lists or strikes an entry holds the lock of the table that has its name: so an entry is
//! never listed under a name that it has just lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;
use inbloom::internals::memory::allocated;
use parking_lot::Mutex;

use super::{Entry, Key};

#[derive(Default)]
pub(super) struct Calendar {
    /// The entries of a page, found by where they are in memory.
    pages: Mutex<BTreeMap<u32, HashTable<DueEntry>>>,
    /// What all of it takes.
    bytes: AtomicU64,
}

/// What a page takes: its place in the tree, and the smallest table.
const PAGE: u64 = 240;

/// Returns what an entry takes on its page: a place in a table that is half full, and its name once
/// more.
fn item_bytes(item: &DueEntry) -> u64 {
    64 + allocated(item.name.len() as u64)
}

/// An entry that may be due, and its name.
pub(super) struct DueEntry {
    pub database: usize,
    pub name: Box<[u8]>,
    pub entry: Arc<Entry>,
}

impl Calendar {
    /// Enters an entry on the page of a time (in milliseconds), unless it is on an earlier one.
    pub(super) fn list(&self, key: Key<'_>, entry: &Arc<Entry>, at: u64) {
        // A page is looked at when its second is over. The last one is far away: the year 2106.
        let page = u32::try_from(at / 1000 + 1).unwrap_or(u32::MAX);
        let mut pages = self.pages.lock();
        let listed = entry.listed.load(Ordering::Relaxed);
        if listed != 0 && listed <= page {
            return;
        }
        self.take_off(&mut pages, entry);
        entry.listed.store(page, Ordering::Relaxed);
        let item =
            DueEntry { database: key.database, name: key.name.into(), entry: Arc::clone(entry) };
        let place = |item: &DueEntry| place(&item.entry);
        let taken = item_bytes(&item) + if pages.contains_key(&page) { 0 } else { PAGE };
        self.bytes.fetch_add(taken, Ordering::Relaxed);
        pages.entry(page).or_default().insert_unique(place(&item), item, place);
    }

    /// Strikes an entry off.
    pub(super) fn strike(&self, entry: &Arc<Entry>) {
        if entry.listed.load(Ordering::Relaxed) != 0 {
            self.take_off(&mut self.pages.lock(), entry);
        }
    }

    /// Takes at most `most` entries off the pages that are over.
    pub(super) fn due(&self, now: u64, most: usize) -> Vec<DueEntry> {
        let mut due = Vec::new();
        let mut pages = self.pages.lock();
        while due.len() < most {
            let Some(mut page) = pages.first_entry() else { break };
            if u64::from(*page.key()) * 1000 > now {
                break;
            }
            let missing = most - due.len();
            due.extend(page.get_mut().extract_if(|_| true).take(missing));
            if page.get().is_empty() {
                page.remove();
                self.bytes.fetch_sub(PAGE, Ordering::Relaxed);
            }
        }
        for item in &due {
            self.bytes.fetch_sub(item_bytes(item), Ordering::Relaxed);
            item.entry.listed.store(0, Ordering::Relaxed);
        }
        due
    }

    /// Returns the bytes that all of it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn take_off(&self, pages: &mut BTreeMap<u32, HashTable<DueEntry>>, entry: &Arc<Entry>) {
        let listed = entry.listed.swap(0, Ordering::Relaxed);
        let Some(page) = pages.get_mut(&listed) else { return };
        if let Ok(found) = page.find_entry(place(entry), |item| Arc::ptr_eq(&item.entry, entry)) {
            let (item, _) = found.remove();
            self.bytes.fetch_sub(item_bytes(&item), Ordering::Relaxed);
        }
        if page.is_empty() {
            pages.remove(&listed);
            self.bytes.fetch_sub(PAGE, Ordering::Relaxed);
        }
    }

    /// Returns how many entries are on its pages.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pages.lock().values().map(HashTable::len).sum()
    }
}

/// Returns a hash of where an entry is. An allocator's choice, not a client's: nobody can make them
/// collide.
fn place(entry: &Arc<Entry>) -> u64 {
    let address = Arc::as_ptr(entry) as u64;
    // The golden ratio's bits spread the address over the upper half; the table uses both halves.
    let spread = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    spread ^ (spread >> 32)
}
