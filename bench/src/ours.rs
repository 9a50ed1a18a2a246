//! inbloom's filters, through the type that users hold: one by one, and in batches.
//!
//! Their size comes from the plan, as a user's would: the measured rate is that of the plan.

use std::fs;
use std::hint::black_box;
use std::path::PathBuf;

use inbloom::{AsKey, BloomFilter, Digest, Filter, Hasher, Kind, Plan};

use crate::clock::Clock;
use crate::layers::Layers;
use crate::race::{BATCH, Batch, Contestant, count};
use crate::sizing::Candidate;
use crate::workload::Key;

/// The name of the blocked kind in reports.
pub(crate) const BLOCKED: &str = "inbloom blocked";

/// The name of the type that is this kind by itself.
pub(crate) const BLOOM: &str = "inbloom BloomFilter";

const CLASSIC: &str = "inbloom classic";

/// The blocked kind first: it is the one that large races keep.
pub(crate) fn of_digests(rate: f64) -> Vec<Candidate<Digest>> {
    let filter =
        |who, kind| Candidate::planned(who, "", move |items| Digests(Ours::new(kind, items, rate)));
    vec![
        filter(BLOCKED, Kind::Blocked),
        Candidate::planned(BLOOM, "", move |items| Single(BloomFilter::new(items as usize, rate))),
        filter(CLASSIC, Kind::Classic),
    ]
}

/// The kinds that can remove, and the default one, which cannot, to compare with.
pub(crate) fn removable(rate: f64) -> Vec<Candidate<Digest>> {
    let counting = |who, width| {
        Candidate::planned(who, "", move |items| {
            let plan = Plan::builder(Kind::Counting).items(items).rate(rate).width(width);
            Digests(Ours::of(plan.build().expect("a plan for these sizes")))
        })
    };
    vec![
        Candidate::planned(BLOCKED, "cannot remove", move |items| {
            Digests(Ours::new(Kind::Blocked, items, rate))
        }),
        counting("inbloom counting", 3),
        counting("inbloom counting, 4 bits", 4),
        Candidate::stepped("inbloom cuckoo", "", move |items| {
            Digests(Ours::new(Kind::Cuckoo, items, rate))
        }),
    ]
}

/// The kind that grows, from 100 keys on, and the default one planned for all keys, to compare with.
pub(crate) fn growing(rate: f64) -> Vec<Candidate<Digest>> {
    vec![
        Candidate::planned(BLOCKED, "planned for all", move |items| {
            Digests(Ours::new(Kind::Blocked, items, rate))
        }),
        Candidate::stepped("inbloom scalable", "grown from 100", move |_| {
            Digests(Ours::new(Kind::Scalable, 100, rate))
        }),
        Candidate::stepped("layers of blocked", "grown from 100; a prototype", move |_| {
            Layers::new(100, rate)
        }),
    ]
}

/// As [`of_digests`], for keys that inbloom hashes.
pub(crate) fn of_keys<K: Key + AsKey + 'static>(rate: f64) -> Vec<Candidate<K>> {
    let filter = |who, kind| {
        Candidate::planned(who, "xxh3-128", move |items| Keys(Ours::new(kind, items, rate)))
    };
    vec![
        filter(BLOCKED, Kind::Blocked),
        Candidate::planned(BLOOM, "xxh3-128", move |items| {
            SingleKeys(BloomFilter::new(items as usize, rate))
        }),
        filter(CLASSIC, Kind::Classic),
    ]
}

/// A filter that is made from all its keys at once, be it of a kind that can do without.
pub(crate) fn built(who: &'static str, plan: Plan) -> Candidate<Digest> {
    Candidate::planned(who, "", move |_| Built {
        plan,
        filter: None,
        answers: Vec::new(),
        file: None,
    })
}

/// The same in a file that is mapped, all of which is in memory. To build it is also to save it.
pub(crate) fn mapped(who: &'static str, plan: Plan) -> Candidate<Digest> {
    Candidate::planned(who, "a mapped file; build includes saving it", move |_| {
        let file = std::env::temp_dir().join(format!("inbloom-bench-{}.ib", std::process::id()));
        Built { plan, filter: None, answers: Vec::new(), file: Some(file) }
    })
}

/// The plan for so many keys.
pub(crate) fn plan(kind: Kind, items: u64, rate: f64) -> Plan {
    Plan::builder(kind).items(items).rate(rate).build().expect("a plan for these sizes")
}

/// The empty filter of a plan.
pub(crate) fn filter(kind: Kind, items: u64, rate: f64) -> Filter {
    Filter::new(plan(kind, items, rate)).expect("memory for the filter")
}

struct Ours {
    filter: Filter,
    answers: Vec<bool>,
}

impl Ours {
    fn new(kind: Kind, items: u64, rate: f64) -> Ours {
        Ours::of(plan(kind, items, rate))
    }

    fn of(plan: Plan) -> Ours {
        let filter = Filter::new(plan).expect("memory for the filter");
        Ours { filter, answers: Vec::new() }
    }

    fn bits(&self) -> u64 {
        self.filter.bytes() * 8
    }

    fn clear(&mut self) {
        self.filter.clear().expect("a filter in memory can be written");
    }
}

struct Digests(Ours);

impl Contestant<Digest> for Digests {
    fn bits(&self) -> u64 {
        self.0.bits()
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn insert(&mut self, digests: &[Digest]) {
        for &digest in digests {
            black_box(self.0.filter.insert_digest(digest).expect("room for all members"));
        }
    }

    fn contains(&mut self, digests: &[Digest]) -> usize {
        digests.iter().filter(|&&digest| self.0.filter.contains_digest(digest)).count()
    }

    fn batch(&mut self) -> Option<&mut dyn Batch<Digest>> {
        Some(self)
    }
}

impl Batch<Digest> for Digests {
    fn insert_batch(&mut self, digests: &[Digest]) {
        let Ours { filter, answers } = &mut self.0;
        for batch in digests.chunks(BATCH) {
            filter.insert_digests(batch, answers).expect("room for all members");
        }
    }

    fn contains_batch(&mut self, digests: &[Digest]) -> usize {
        let Ours { filter, answers } = &mut self.0;
        let mut found = 0;
        for batch in digests.chunks(BATCH) {
            filter.contains_digests(batch, answers);
            found += count(answers);
        }
        found
    }
}

struct Keys(Ours);

impl<K: AsKey> Contestant<K> for Keys {
    fn bits(&self) -> u64 {
        self.0.bits()
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn insert(&mut self, keys: &[K]) {
        for key in keys {
            black_box(self.0.filter.insert(key).expect("room for all members"));
        }
    }

    fn contains(&mut self, keys: &[K]) -> usize {
        keys.iter().filter(|key| self.0.filter.contains(key)).count()
    }

    fn batch(&mut self) -> Option<&mut dyn Batch<K>> {
        Some(self)
    }
}

impl<K: AsKey> Batch<K> for Keys {
    fn insert_batch(&mut self, keys: &[K]) {
        let Ours { filter, answers } = &mut self.0;
        for batch in keys.chunks(BATCH) {
            filter.insert_many(batch, answers).expect("room for all members");
        }
    }

    fn contains_batch(&mut self, keys: &[K]) -> usize {
        let Ours { filter, answers } = &mut self.0;
        let mut found = 0;
        for batch in keys.chunks(BATCH) {
            filter.contains_many(batch, answers);
            found += count(answers);
        }
        found
    }
}

/// [`BloomFilter`], one by one: its batches are those of [`Digests`].
struct Single(BloomFilter);

impl Contestant<Digest> for Single {
    fn bits(&self) -> u64 {
        self.0.bytes() * 8
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn insert(&mut self, digests: &[Digest]) {
        for &digest in digests {
            black_box(self.0.insert_digest(digest));
        }
    }

    fn contains(&mut self, digests: &[Digest]) -> usize {
        digests.iter().filter(|&&digest| self.0.contains_digest(digest)).count()
    }
}

/// As [`Single`], for keys that inbloom hashes.
struct SingleKeys(BloomFilter);

impl<K: AsKey> Contestant<K> for SingleKeys {
    fn bits(&self) -> u64 {
        self.0.bytes() * 8
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn insert(&mut self, keys: &[K]) {
        for key in keys {
            black_box(self.0.insert(key));
        }
    }

    fn contains(&mut self, keys: &[K]) -> usize {
        keys.iter().filter(|key| self.0.contains(key)).count()
    }
}

struct Built {
    plan: Plan,
    filter: Option<Filter>,
    answers: Vec<bool>,
    /// Where it is saved, to be asked from there.
    file: Option<PathBuf>,
}

impl Drop for Built {
    fn drop(&mut self) {
        if let Some(path) = &self.file {
            // There is none if it was not built.
            let _ = fs::remove_file(path);
        }
    }
}

impl Built {
    fn filter(&self) -> &Filter {
        self.filter.as_ref().expect("built before it is asked")
    }
}

impl Contestant<Digest> for Built {
    fn bits(&self) -> u64 {
        self.filter().bytes() * 8
    }

    fn clear(&mut self) {
        self.filter = None;
    }

    fn insert(&mut self, digests: &[Digest]) {
        let filter = if self.plan.kind().is_static() {
            Filter::build(self.plan, Hasher::default(), digests).expect("memory for the filter")
        } else {
            let mut filter = Filter::new(self.plan).expect("memory for the filter");
            for batch in digests.chunks(BATCH) {
                filter.insert_digests(batch, &mut self.answers).expect("room for all members");
            }
            filter
        };
        self.filter = Some(match &self.file {
            Some(path) => {
                filter.save(path).expect("room for the file");
                Filter::open(path).expect("the file that was just saved")
            }
            None => filter,
        });
    }

    fn contains(&mut self, digests: &[Digest]) -> usize {
        let filter = self.filter();
        digests.iter().filter(|&&digest| filter.contains_digest(digest)).count()
    }

    /// It may be built by several threads.
    fn clock(&self) -> Clock {
        Clock::Process
    }

    fn batch(&mut self) -> Option<&mut dyn Batch<Digest>> {
        Some(self)
    }
}

impl Batch<Digest> for Built {
    /// Building is one call in any case.
    fn insert_batch(&mut self, digests: &[Digest]) {
        self.insert(digests);
    }

    fn contains_batch(&mut self, digests: &[Digest]) -> usize {
        let filter = self.filter.as_ref().expect("built before it is asked");
        let mut found = 0;
        for batch in digests.chunks(BATCH) {
            filter.contains_digests(batch, &mut self.answers);
            found += count(&self.answers);
        }
        found
    }
}
