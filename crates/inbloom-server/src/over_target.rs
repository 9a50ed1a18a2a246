//! The filters whose rate has passed its target: the server finds them by itself, logs them and counts
//! them. It also counts the filters that are full, which refuse new items instead.
//!
//! A filter of BF.RESERVE is full at its capacity, or grows, and keeps its rate either way. A window that
//! gets more keys than it is for, a filter that clears itself late, and a file that was overfilled before it
//! was opened do not. So a walk through all filters looks at those, a little at a time: at most two
//! milliseconds of each tenth of a second, and all filters within a minute or as soon as that allows.
//! Commands do nothing for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::keyspace::{DATABASES, Entry, Keyspace};
use crate::reply_error::excerpt;
use crate::value::Value;
use crate::value::summary::{Summary, rate_by_count};

/// Filters above their target.
#[derive(Default)]
pub struct OverTarget {
    walk: Mutex<Walk>,
    found: Mutex<BTreeMap<u64, Overfull>>,
    count: AtomicU64,
    full: AtomicU64,
    passed: AtomicU64,
}

/// Where the walk is.
#[derive(Default)]
struct Walk {
    database: usize,
    cursor: u64,
    /// When it began, in milliseconds since 1970.
    began: u64,
    /// Filters that it found above their target.
    count: u64,
    /// Filters that it found full.
    full: u64,
    /// Lines of the log that it has written.
    logged: u32,
    /// Filters that are above their target for the first time, and not in the log.
    unsaid: u64,
}

/// A filter above its target.
#[derive(Clone, Debug, PartialEq)]
pub struct Overfull {
    /// Its database.
    pub database: usize,
    /// Its name when it was seen first, or the beginning of a long one.
    pub name: Box<[u8]>,
    /// Whether the name is all of it.
    pub has_name: bool,
    /// Its rate when it was seen last.
    pub rate: f64,
    /// The rate that it is to keep.
    pub target: f64,
    /// When it was first seen above it, in milliseconds since 1970.
    pub since: u64,
    /// When it was seen last.
    seen: u64,
}

/// A walk through all filters begins at most so often, in milliseconds.
const PAUSE: u64 = 1000;
/// What a step may take.
const STEP: Duration = Duration::from_millis(2);
/// Filters that are visited between two looks at the clock.
const STRIDE: usize = 64;
/// Filters that are remembered; of more, only the number is known.
const MOST: usize = 1000;
/// Bytes of their names that are kept.
const NAME: usize = 1024;
/// Lines of the log that one walk writes.
const MOST_LINES: u32 = 10;

impl OverTarget {
    /// Goes on with the walk. Called ten times a second.
    pub fn step(&self, keyspace: &Keyspace, now: u64) {
        let (begin, mut walk) = (Instant::now(), self.walk.lock());
        if walk.database == 0 && walk.cursor == 0 {
            if now < walk.began.saturating_add(PAUSE) && walk.began <= now {
                return;
            }
            *walk = Walk { began: now, ..Walk::default() };
        }
        while begin.elapsed() < STEP {
            if keyspace.len(walk.database) > 0 {
                let (database, cursor) = (walk.database, walk.cursor);
                walk.cursor = keyspace.scan(database, cursor, STRIDE, now, |name, entry| {
                    self.visit(&mut walk, name, entry, now);
                });
            }
            if walk.cursor == 0 {
                walk.database += 1;
            }
            if walk.database == DATABASES {
                self.finish(&mut walk);
                return;
            }
        }
    }

    fn visit(&self, walk: &mut Walk, name: &[u8], entry: &Entry, now: u64) {
        if entry.value.is_busy() {
            return;
        }
        let summary = Summary::of(&entry.value);
        walk.full += u64::from(summary.is_full());
        // By its construction such a filter keeps its rate: see the top.
        if matches!(entry.value, Value::Bloom(_) | Value::Cuckoo(_)) {
            return;
        }
        let rate = rate_by_count(&entry.value);
        if !summary.is_over_target(rate) {
            return;
        }
        walk.count += 1;
        let mut found = self.found.lock();
        if let Some(known) = found.get_mut(&entry.id) {
            (known.rate, known.seen) = (rate, now);
            return;
        }
        if found.len() == MOST {
            return;
        }
        let target = summary.target_rate.unwrap_or(0.0);
        let (database, has_name) = (walk.database, name.len() <= NAME);
        let name = &name[..name.len().min(NAME)];
        let kept = name.into();
        let it = Overfull { database, name: kept, has_name, rate, target, since: now, seen: now };
        found.insert(entry.id, it);
        self.passed.fetch_add(1, Ordering::Relaxed);
        if walk.logged == MOST_LINES {
            walk.unsaid += 1;
            return;
        }
        walk.logged += 1;
        tracing::warn!(
            filter = excerpt(name, 128),
            database = walk.database,
            kind = summary.kind,
            keys = summary.keys,
            capacity = summary.capacity,
            rate,
            target,
            "filter passed its target rate"
        );
    }

    /// Lets those go that the walk has not seen above their target.
    fn finish(&self, walk: &mut Walk) {
        let mut found = self.found.lock();
        let before = found.len();
        found.retain(|_, it| it.seen >= walk.began);
        let filters = before - found.len();
        if filters > 0 {
            tracing::info!(filters, "filters back below their target rate");
        }
        self.count.store(walk.count, Ordering::Relaxed);
        self.full.store(walk.full, Ordering::Relaxed);
        if walk.unsaid > 0 {
            tracing::warn!(more = walk.unsaid, "more filters passed their target rate");
        }
        *walk = Walk { began: walk.began, ..Walk::default() };
    }

    /// Returns how often a filter has passed its target.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Returns how many were above it when all were visited last.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns how many were full when all were visited last.
    pub fn full(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }

    /// Returns some of those above their target, those that are furthest above it first.
    pub fn worst(&self, most: usize) -> Vec<Overfull> {
        let mut all: Vec<Overfull> = self.found.lock().values().cloned().collect();
        let excess = |it: &Overfull| it.rate / it.target;
        all.sort_by(|one, other| excess(other).total_cmp(&excess(one)));
        all.truncate(most);
        all
    }
}

#[cfg(test)]
mod tests {
    use inbloom::{Filter, Kind, Plan};

    use super::*;
    use crate::keyspace::Key;

    /// A window for so many keys, with some.
    fn window(capacity: u64, keys: u64) -> Value {
        let plan = Plan::builder(Kind::Window).last(capacity).items(capacity).rate(0.01);
        let mut filter = Filter::new(plan.build().unwrap()).unwrap();
        for key in 0..keys {
            filter.insert(key.to_le_bytes()).unwrap();
        }
        Value::filter(filter)
    }

    /// A filter that was filled beyond its plan, as a file may be.
    fn overfilled(keys: u64) -> Value {
        let plan = Plan::builder(Kind::Classic).items(1000).rate(0.01).build().unwrap();
        let mut filter = Filter::new(plan).unwrap();
        for key in 0..keys {
            filter.insert(key.to_le_bytes()).unwrap();
        }
        Value::filter(filter)
    }

    #[test]
    fn filters_above_their_target_are_found_once_and_let_go() {
        let (watch, keyspace) = (OverTarget::default(), Keyspace::new());
        let key = |name| Key { database: 3, name };
        // Some of these are taken for others, and at least 1000 are new.
        keyspace.replace(key(b"full"), overfilled(1010));
        keyspace.replace(key(b"window"), window(1000, 5000));
        watch.step(&keyspace, 10_000);
        assert_eq!((watch.count(), watch.passed()), (0, 0), "at capacity is not above the target");
        assert_eq!(watch.full(), 1, "a window is never full");
        keyspace.replace(key(b"over"), overfilled(2000));
        watch.step(&keyspace, 10_500);
        assert_eq!(watch.count(), 0, "not yet visited again");
        for now in [11_000, 12_000, 13_000] {
            watch.step(&keyspace, now);
            assert_eq!((watch.count(), watch.passed()), (1, 1));
        }
        let worst = watch.worst(5);
        let Overfull { database, name, rate, target, since, .. } = &worst[0];
        assert_eq!((worst.len(), *database, &**name, *since), (1, 3, &b"over"[..], 11_000));
        assert!(*target == 0.01 && *rate > 0.05, "{rate}");
        keyspace.remove(key(b"over"), 13_000);
        watch.step(&keyspace, 14_000);
        assert_eq!((watch.count(), watch.passed(), watch.worst(5)), (0, 1, vec![]));
    }
}
