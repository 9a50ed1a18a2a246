//! Keys in the order of their hashes, and any of them. See the top of `keyspace.rs`.

use std::hash::BuildHasher;
use std::sync::Arc;

use super::{Entry, Keyspace, PARTS, Slot};

/// Of a place in the order of scanning.
const CURSOR_BITS: u32 = 48;

impl Keyspace {
    /// Names of a database in the order of their hashes, from a cursor on, about as many as asked
    /// for, and the cursor to go on with: 0 at the end. They are visited without a lock.
    pub fn scan(
        &self,
        database: usize,
        cursor: u64,
        count: usize,
        now: u64,
        mut visit: impl FnMut(&[u8], &Arc<Entry>),
    ) -> u64 {
        let Some(parts) = self.databases[database].parts.get() else { return 0 };
        if cursor >> CURSOR_BITS != 0 {
            return 0; // Beyond the last.
        }
        let mut left = count.max(1);
        for (index, part) in parts.iter().enumerate().skip(part_of_cursor(cursor)) {
            let table = part.0.read();
            let mut found: Vec<(u64, &Slot)> = table
                .iter()
                .map(|slot| (cursor_of(self.hash(&slot.name)), slot))
                .filter(|(place, _)| *place >= cursor)
                .collect();
            let mut next = None;
            if found.len() > left {
                // Names of one place are returned together, or the rest of them would be lost.
                let (_, (last, _), _) =
                    found.select_nth_unstable_by_key(left - 1, |(place, _)| *place);
                let last = *last;
                found.retain(|(place, _)| *place <= last);
                next = Some(last + 1);
            }
            left = left.saturating_sub(found.len());
            let live = found.iter().filter(|(_, slot)| slot.entry.is_live(now));
            let live: Vec<(Box<[u8]>, Arc<Entry>)> =
                live.map(|(_, slot)| (slot.name.clone(), Arc::clone(&slot.entry))).collect();
            drop(table);
            for (name, entry) in live {
                visit(&name, &entry);
            }
            let after = ((index as u64 + 1) << CURSOR_BITS).div_ceil(PARTS);
            let next = next.unwrap_or(after);
            if left == 0 && next >> CURSOR_BITS == 0 {
                return next;
            }
        }
        0
    }

    /// Returns a key of a database, if there is one, each as likely as the others.
    pub fn any(&self, database: usize, seed: u64, now: u64) -> Option<Vec<u8>> {
        /// So often is an expired key drawn only if there is hardly another.
        const TRIES: u64 = 100;
        let parts = self.databases[database].parts.get()?;
        for attempt in 0..TRIES {
            let drawn = self.hasher.hash_one((seed, attempt));
            let mut at = drawn.checked_rem(self.len(database))? as usize;
            for part in parts {
                let table = part.0.read();
                if let Some(rest) = at.checked_sub(table.len()) {
                    at = rest;
                    continue;
                }
                let slot = table.iter().nth(at).expect("fewer than there are");
                if slot.entry.is_live(now) {
                    return Some(slot.name.to_vec());
                }
                break;
            }
        }
        let (mut name, mut cursor) = (None, 0);
        loop {
            cursor = self.scan(database, cursor, 1, now, |found, _| name = Some(found.into()));
            if cursor == 0 || name.is_some() {
                return name;
            }
        }
    }
}

/// Returns the place of a hash in the order of scanning.
pub(super) fn cursor_of(hash: u64) -> u64 {
    hash >> (64 - CURSOR_BITS)
}

pub(super) fn part_of_cursor(cursor: u64) -> usize {
    ((cursor * PARTS) >> CURSOR_BITS) as usize
}
