//! What the filters that somebody looks at were asked and given: for a page that draws it.
//!
//! A server may have a million filters, and a page shows one. So a filter is *watched* from the moment that
//! somebody looks at it, and 64 are watched at most: the one that nobody has looked at for longest makes
//! room. A watched filter has counters of its own and two rings of samples: one each second for 15
//! minutes, and one each minute for 24 hours. That is 75 KiB for each, and 4.7 MiB in all.
//!
//! **Cost.** An entry holds the number of its counters in a byte that the entry had to spare. Commands for a
//! filter that is not watched read that byte, which lies in a cache line that they need anyway, and do nothing else.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::keyspace::Entry;
use crate::value::summary::{Summary, rate_by_count};

/// Filters that are watched at most.
pub const MOST_WATCHED: usize = 64;

/// The filters that are watched.
pub struct History {
    /// Beside the others, as commands count here while samples are taken.
    counters: Box<[Counters]>,
    watched: Mutex<Vec<Option<WatchedFilter>>>,
}

/// What is counted of a watched filter. A line of its own, so that threads which count for different
/// filters do not wait for each other.
#[repr(align(128))]
#[derive(Default)]
struct Counters {
    added: AtomicU64,
    new: AtomicU64,
    asked: AtomicU64,
    hits: AtomicU64,
}

/// What was counted of a filter since it is watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Items given to it.
    pub added: u64,
    /// Those of them that were new.
    pub new: u64,
    /// Items that it was asked for.
    pub asked: u64,
    /// Those of them that it reported present.
    pub hits: u64,
}

impl Counts {
    fn since(self, before: Counts) -> Counts {
        Counts {
            added: self.added.saturating_sub(before.added),
            new: self.new.saturating_sub(before.new),
            asked: self.asked.saturating_sub(before.asked),
            hits: self.hits.saturating_sub(before.hits),
        }
    }
}

struct WatchedFilter {
    entry: Weak<Entry>,
    id: u64,
    /// When somebody looked last, in milliseconds since 1970.
    looked: u64,
    since: u64,
    seconds: Ring,
    minutes: Ring,
}

/// How far back a series of samples goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// 15 minutes, by the second.
    Quarter,
    /// 24 hours, by the minute.
    Day,
}

impl Reach {
    /// Seconds from one sample to the next.
    pub fn step(self) -> u64 {
        match self {
            Reach::Quarter => 1,
            Reach::Day => 60,
        }
    }

    fn samples(self) -> usize {
        match self {
            Reach::Quarter => 900,
            Reach::Day => 1440,
        }
    }
}

/// What a filter did in a step, and what it was at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Items given to it.
    pub added: u32,
    /// Items that it was asked for.
    pub asked: u32,
    /// Those of them that it reported present.
    pub hits: u32,
    /// Its rate. Below zero: the server took no sample here, and the other numbers are zero.
    pub rate: f32,
    /// Its keys.
    pub keys: u64,
}

impl Sample {
    const MISSING: Sample = Sample { added: 0, asked: 0, hits: 0, rate: -1.0, keys: 0 };

    /// Returns whether the server took it.
    pub fn is_there(&self) -> bool {
        self.rate >= 0.0
    }
}

/// Samples in order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The number of the first; the next one has the next number.
    pub first: u64,
    /// When the last was taken, in milliseconds since 1970.
    pub time: u64,
    /// The samples.
    pub samples: Vec<Sample>,
}

/// The last samples of one span.
struct Ring {
    span: Reach,
    /// The step of the last sample, counted from 1970.
    step: u64,
    /// The number of the next sample.
    next: u64,
    before: Counts,
    samples: VecDeque<Sample>,
}

impl Ring {
    fn new(span: Reach, now: u64, counts: Counts) -> Ring {
        let step = now / 1000 / span.step();
        let samples = VecDeque::with_capacity(span.samples());
        Ring { span, step, next: 0, before: counts, samples }
    }

    /// Takes a sample if a step has passed. Steps in which nobody took one are left empty.
    fn take(&mut self, now: u64, counts: Counts, keys: u64, rate: f64) {
        let step = now / 1000 / self.span.step();
        let steps = step.saturating_sub(self.step);
        if steps == 0 {
            return;
        }
        for _ in 1..steps.min(self.span.samples() as u64) {
            self.push(Sample::MISSING);
        }
        let Counts { added, asked, hits, .. } = counts.since(self.before);
        let [added, asked, hits] =
            [added, asked, hits].map(|count| count.min(u32::MAX.into()) as u32);
        self.push(Sample { added, asked, hits, rate: rate as f32, keys });
        (self.step, self.before) = (step, counts);
    }

    fn push(&mut self, sample: Sample) {
        if self.samples.len() == self.span.samples() {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        self.next += 1;
    }

    fn series(&self, since: u64) -> Series {
        let first = self.next - self.samples.len() as u64;
        let skipped = since.saturating_sub(first).min(self.samples.len() as u64);
        Series {
            first: first + skipped,
            time: self.step * self.span.step() * 1000,
            samples: self.samples.iter().skip(skipped as usize).copied().collect(),
        }
    }
}

/// What a filter did a second, lately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Items given to it.
    pub added: f64,
    /// Items that it was asked for.
    pub asked: f64,
    /// The share of them that it reported present; None if it was asked for none.
    pub hit_share: Option<f64>,
    /// Over so many seconds.
    pub seconds: u64,
}

/// How fast a filter gets keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Keys a second, below 0 if it loses some.
    pub keys_per_second: f64,
    /// Over so many seconds.
    pub seconds: u64,
}

/// What is known of a watched filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Activity {
    /// Since when it is watched, in milliseconds since 1970.
    pub since: u64,
    /// What was counted.
    pub counts: Counts,
    /// Over the last ten seconds.
    pub speed: Speed,
    /// Over the last 15 minutes; None for the first ten seconds.
    pub growth: Option<Growth>,
}

impl Default for History {
    fn default() -> History {
        History {
            counters: (0..MOST_WATCHED).map(|_| Counters::default()).collect(),
            watched: Mutex::new((0..MOST_WATCHED).map(|_| None).collect()),
        }
    }
}

impl History {
    /// Counts items that were given to a filter, if it is watched: `new` says which were new.
    #[inline]
    pub fn count_added(&self, entry: &Entry, new: &[bool]) {
        if let Some(slot) = entry.watched() {
            let Counters { added, new: fresh, .. } = &self.counters[slot];
            added.fetch_add(new.len() as u64, Ordering::Relaxed);
            fresh.fetch_add(trues(new), Ordering::Relaxed);
        }
    }

    /// Counts items that a filter was asked for, if it is watched: `found` has the answers.
    #[inline]
    pub fn count_asked(&self, entry: &Entry, found: &[bool]) {
        if let Some(slot) = entry.watched() {
            let Counters { asked, hits, .. } = &self.counters[slot];
            asked.fetch_add(found.len() as u64, Ordering::Relaxed);
            hits.fetch_add(trues(found), Ordering::Relaxed);
        }
    }

    fn counts(&self, slot: usize) -> Counts {
        let Counters { added, new, asked, hits } = &self.counters[slot];
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts { added: load(added), new: load(new), asked: load(asked), hits: load(hits) }
    }

    /// Somebody looks at a filter: from now on it is watched.
    pub fn look(&self, entry: &Arc<Entry>, now: u64) -> Activity {
        let mut watched = self.watched.lock();
        let found = watched.iter().position(|it| it.as_ref().is_some_and(|it| it.id == entry.id));
        let slot = found.unwrap_or_else(|| self.watch(&mut watched, entry, now));
        let it = watched[slot].as_mut().expect("found, or just made");
        it.looked = now;
        Activity {
            since: it.since,
            counts: self.counts(slot),
            speed: speed(&it.seconds.samples),
            growth: growth(&it.seconds.samples),
        }
    }

    /// Takes a free place, or that of the filter that nobody has looked at for longest.
    fn watch(&self, watched: &mut [Option<WatchedFilter>], entry: &Arc<Entry>, now: u64) -> usize {
        let order = |slot: &usize| watched[*slot].as_ref().map_or(0, |it| it.looked);
        let slot = (0..watched.len()).min_by_key(order).expect("there are places");
        if let Some(old) = watched[slot].take().and_then(|old| old.entry.upgrade()) {
            old.set_watched(None);
        }
        // A thread that has read the old number may still count a few items here.
        let Counters { added, new, asked, hits } = &self.counters[slot];
        for counter in [added, new, asked, hits] {
            counter.store(0, Ordering::Relaxed);
        }
        let none = Counts::default();
        watched[slot] = Some(WatchedFilter {
            entry: Arc::downgrade(entry),
            id: entry.id,
            looked: now,
            since: now,
            seconds: Ring::new(Reach::Quarter, now, none),
            minutes: Ring::new(Reach::Day, now, none),
        });
        entry.set_watched(Some(slot));
        slot
    }

    /// Takes a sample of every watched filter for which a second has passed. Filters that are gone are
    /// watched no longer.
    pub fn sample(&self, now: u64) {
        let mut watched = self.watched.lock();
        for (slot, place) in watched.iter_mut().enumerate() {
            let Some(it) = place else { continue };
            let Some(entry) = it.entry.upgrade().filter(|entry| entry.is_live(now)) else {
                *place = None;
                continue;
            };
            // Nobody waits here for a filter that is locked for long.
            if entry.value.is_busy() {
                continue;
            }
            let (counts, keys) = (self.counts(slot), Summary::of(&entry.value).keys);
            let rate = rate_by_count(&entry.value);
            it.seconds.take(now, counts, keys, rate);
            it.minutes.take(now, counts, keys, rate);
        }
    }

    /// Returns the samples of a watched filter from a number on.
    pub fn series(&self, entry: &Entry, span: Reach, since: u64) -> Option<Series> {
        let watched = self.watched.lock();
        let it = watched.iter().flatten().find(|it| it.id == entry.id)?;
        Some(match span {
            Reach::Quarter => it.seconds.series(since),
            Reach::Day => it.minutes.series(since),
        })
    }
}

fn trues(answers: &[bool]) -> u64 {
    answers.iter().filter(|answer| **answer).count() as u64
}

fn speed(samples: &VecDeque<Sample>) -> Speed {
    const SECONDS: usize = 10;
    let last = samples.iter().rev().take(SECONDS);
    let (added, asked, hits) = last.clone().fold((0, 0, 0), |(added, asked, hits), sample| {
        let more = [sample.added, sample.asked, sample.hits].map(u64::from);
        (added + more[0], asked + more[1], hits + more[2])
    });
    let seconds = last.len() as u64;
    let per_second = |count: u64| count as f64 / seconds.max(1) as f64;
    Speed {
        added: per_second(added),
        asked: per_second(asked),
        hit_share: (asked > 0).then(|| hits as f64 / asked as f64),
        seconds,
    }
}

fn growth(samples: &VecDeque<Sample>) -> Option<Growth> {
    const LEAST: u64 = 10;
    let first = samples.iter().position(Sample::is_there)?;
    let last = samples.iter().rposition(Sample::is_there)?;
    let seconds = (last - first) as u64;
    let gained = samples[last].keys as f64 - samples[first].keys as f64;
    let keys_per_second = gained / seconds.max(1) as f64;
    (seconds >= LEAST).then_some(Growth { keys_per_second, seconds })
}

#[cfg(test)]
mod tests {
    use inbloom::{Filter, Kind, Plan};

    use super::*;
    use crate::keyspace::{Created, Key, Keyspace};
    use crate::value::Value;

    const BEGIN: u64 = 1_700_000_000_000;

    fn entry(keyspace: &Keyspace, name: &str) -> Arc<Entry> {
        let plan = Plan::builder(Kind::Classic).items(100).build().unwrap();
        let value = Value::filter(Filter::new(plan).unwrap());
        let key = Key { database: 0, name: name.as_bytes() };
        match keyspace.create(key, value, BEGIN) {
            Created::New(entry) => entry,
            Created::Taken(..) => panic!("{name} is taken"),
        }
    }

    #[test]
    fn only_filters_that_were_looked_at_are_counted_and_sampled() {
        let (history, keyspace) = (History::default(), Keyspace::new());
        let (one, other) = (entry(&keyspace, "one"), entry(&keyspace, "other"));
        history.count_asked(&one, &[true]);
        assert_eq!(history.look(&one, BEGIN).counts, Counts::default());
        for second in 1..=20 {
            history.count_asked(&one, &[true, false, true]);
            history.count_added(&one, &[true, false]);
            history.count_asked(&other, &[true]);
            history.sample(BEGIN + second * 1000);
        }
        let look = history.look(&one, BEGIN + 20_000);
        assert_eq!(look.counts, Counts { added: 40, new: 20, asked: 60, hits: 40 });
        assert_eq!((look.speed.added, look.speed.asked, look.speed.seconds), (2.0, 3.0, 10));
        assert!((look.speed.hit_share.unwrap() - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(look.growth, Some(Growth { keys_per_second: 0.0, seconds: 19 }));
        assert!(history.series(&other, Reach::Quarter, 0).is_none());

        let series = history.series(&one, Reach::Quarter, 0).unwrap();
        assert_eq!((series.first, series.time, series.samples.len()), (0, BEGIN + 20_000, 20));
        let sample = Sample { added: 2, asked: 3, hits: 2, rate: 0.0, keys: 0 };
        assert!(series.samples.iter().all(|it| *it == sample), "{series:?}");
        let later = history.series(&one, Reach::Quarter, 15).unwrap();
        assert_eq!((later.first, later.samples.len()), (15, 5));
        assert_eq!(history.series(&one, Reach::Quarter, 99).unwrap().samples, []);
        assert_eq!(history.series(&one, Reach::Day, 0).unwrap().samples, []);
    }

    #[test]
    fn rings_are_of_fixed_size_and_have_gaps_where_no_sample_was_taken() {
        let mut ring = Ring::new(Reach::Quarter, BEGIN, Counts::default());
        let counts = |added| Counts { added, ..Counts::default() };
        ring.take(BEGIN + 999, counts(5), 5, 0.1);
        assert_eq!(ring.next, 0, "no second has passed");
        ring.take(BEGIN + 1000, counts(5), 5, 0.1);
        ring.take(BEGIN + 4000, counts(9), 9, 0.2);
        let there: Vec<bool> = ring.samples.iter().map(Sample::is_there).collect();
        assert_eq!(there, [true, false, false, true]);
        assert_eq!(ring.samples[3].added, 4);
        // A clock that goes back takes no samples until it is where it was.
        ring.take(BEGIN + 1000, counts(10), 10, 0.2);
        assert_eq!(ring.next, 4);
        for second in 5..5000 {
            ring.take(BEGIN + second * 1000, counts(9), 9, 0.2);
        }
        assert_eq!((ring.samples.len(), ring.samples.capacity()), (900, 900));
        let series = ring.series(0);
        assert_eq!((series.first, series.first + 900), (ring.next - 900, ring.next));
        ring.take(BEGIN + 9_000_000_000, counts(9), 9, 0.2);
        assert_eq!(ring.samples.len(), 900);
    }

    #[test]
    fn who_was_not_looked_at_for_longest_makes_room() {
        let (history, keyspace) = (History::default(), Keyspace::new());
        let entries: Vec<_> = (0..MOST_WATCHED as u64 + 1)
            .map(|number| (number, entry(&keyspace, &number.to_string())))
            .collect();
        for (number, entry) in &entries {
            history.look(entry, BEGIN + number);
            if *number > 0 {
                history.look(&entries[0].1, BEGIN + number);
            }
        }
        let watched: Vec<bool> = entries.iter().map(|(_, it)| it.watched().is_some()).collect();
        assert_eq!(watched.iter().filter(|it| **it).count(), MOST_WATCHED);
        assert!(watched[0] && !watched[1]);
        history.count_asked(&entries[1].1, &[true]);
        assert_eq!(history.look(&entries[1].1, BEGIN + 100).counts, Counts::default());

        // What is gone is let go.
        let weak = Arc::downgrade(&entries[0].1);
        keyspace.remove(Key { database: 0, name: b"0" }, BEGIN);
        drop(entries);
        history.sample(BEGIN + 1000);
        assert!(history.watched.lock().iter().flatten().all(|it| it.entry.strong_count() > 0));
        drop(weak);
    }
}
