//! All entries that have changed, for a snapshot, while names come and go.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Entry, Key, Keyspace, Restored};

/// What [`Keyspace::visit_changed`] has to look at beside the tables.
pub(super) struct Moved {
    pub(super) entries: Vec<Restored>,
    /// Entries with this number and larger ones are in the log from their beginning.
    pub(super) fence: u64,
}

impl Keyspace {
    /// Remembers an entry that leaves its place while all are visited. After that was written down.
    pub(super) fn note_moved(&self, key: Key<'_>, entry: &Arc<Entry>) {
        if let Some(moved) = &mut *self.moved.lock()
            && entry.id < moved.fence
        {
            moved.entries.push(Restored::new(key.database, key.name, Arc::clone(entry)));
        }
    }

    /// From now on no entry is missed by [`Keyspace::visit_changed`], which is to follow.
    pub fn prepare_visit(&self) {
        *self.moved.lock() = Some(Moved { entries: Vec::new(), fence: u64::MAX });
    }

    /// The log has begun anew: entries that come from now on need no visit.
    pub fn begin_visit(&self) {
        let fence = self.number();
        if let Some(moved) = &mut *self.moved.lock() {
            moved.fence = fence;
        }
    }

    /// There will be no visit.
    pub fn abandon_visit(&self) {
        *self.moved.lock() = None;
    }

    /// Visits all entries that have changed since the last snapshot, without a lock. Some may be
    /// visited twice, under two names: the second is right, or the log has a later one.
    ///
    /// Those that were renamed since the visit was prepared are visited too, as they may have gone from
    /// where it was still to be looked to where it was looked already. And so are those that were
    /// removed: until that is in the log, they may come back, and then must have all their changes.
    pub fn visit_changed(&self, mut visit: impl FnMut(usize, &[u8], &Arc<Entry>)) {
        for (database, content) in self.databases.iter().enumerate() {
            for part in content.parts.get().into_iter().flatten() {
                let table = part.0.read();
                let changed =
                    table.iter().filter(|slot| slot.entry.changed.load(Ordering::Acquire));
                let changed: Vec<(Box<[u8]>, Arc<Entry>)> =
                    changed.map(|slot| (slot.name.clone(), Arc::clone(&slot.entry))).collect();
                drop(table);
                changed.iter().for_each(|(name, entry)| visit(database, name, entry));
            }
        }
        let moved = self.moved.lock().take().map_or(Vec::new(), |moved| moved.entries);
        // Of an entry that was renamed more than once, only the last name. The log does not have the
        // renames from before it began anew, so an image under an earlier name would stay wrong.
        let mut visited = HashSet::new();
        for Restored { database, name, entry } in moved.iter().rev() {
            if visited.insert(entry.id) {
                visit(*database, name, entry);
            }
        }
    }

    /// Lets all entries count as changed.
    pub fn set_all_changed(&self) {
        for content in &self.databases {
            for part in content.parts.get().into_iter().flatten() {
                part.0.read().iter().for_each(|slot| slot.entry.set_changed());
            }
        }
    }
}
