//! One filter used by several threads at once: inbloom's shared form against fastbloom's atomic one.
//!
//! The keys of an operation are split evenly among the threads, and the time until the last one is
//! done is divided by all keys: with two threads and no interference it halves.

use std::hint::black_box;
use std::thread;

use fastbloom::AtomicBloomFilter;
use inbloom::{Digest, Kind, SharedFilter};

use crate::clock::Clock;
use crate::ours;
use crate::race::{BATCH, Batch, Contestant, count};
use crate::sizing::{Candidate, Size};

/// inbloom's, with one thread and with two.
pub(crate) fn ours(rate: f64) -> Vec<Candidate<Digest>> {
    [("inbloom shared, 1 thread", 1), ("inbloom shared, 2 threads", 2)]
        .map(|(who, threads)| {
            Candidate::planned(who, "", move |items| {
                let filter = ours::filter(Kind::Blocked, items, rate);
                let shared = filter.into_shared().expect("a filter in memory can be shared");
                Threads { set: Inbloom(Some(shared)), threads }
            })
        })
        .into()
}

/// fastbloom's, with one thread and with two.
pub(crate) fn peers() -> Vec<Candidate<Digest>> {
    [("fastbloom atomic, 1 thread", 1), ("fastbloom atomic, 2 threads", 2)]
        .map(|(who, threads)| {
            Candidate::tuned(who, "pre-hashed calls", move |size: Size| Threads {
                set: AtomicBloomFilter::with_num_bits(size.bits()).expected_items(size.items()),
                threads,
            })
        })
        .into()
}

/// A set that threads use through a shared reference.
trait Shared: Sync {
    /// Whether the batch calls are more than the single ones in a loop.
    const HAS_BATCH: bool;

    fn bits(&self) -> u64;
    fn clear(&mut self);
    fn insert(&self, digests: &[Digest]);
    fn contains(&self, digests: &[Digest]) -> usize;

    fn insert_batch(&self, digests: &[Digest]) {
        self.insert(digests);
    }

    fn contains_batch(&self, digests: &[Digest]) -> usize {
        self.contains(digests)
    }
}

/// Runs every operation on so many threads.
struct Threads<S> {
    set: S,
    threads: usize,
}

impl<S: Shared> Threads<S> {
    /// Splits the digests, works on all parts at once, and adds up the results.
    fn each(&self, digests: &[Digest], work: impl Fn(&S, &[Digest]) -> usize + Sync) -> usize {
        let part = digests.len().div_ceil(self.threads).max(1);
        thread::scope(|scope| {
            let workers: Vec<_> = digests
                .chunks(part)
                .map(|digests| scope.spawn(|| work(&self.set, digests)))
                .collect();
            workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
        })
    }
}

impl<S: Shared> Contestant<Digest> for Threads<S> {
    fn bits(&self) -> u64 {
        self.set.bits()
    }

    fn clear(&mut self) {
        self.set.clear();
    }

    fn insert(&mut self, digests: &[Digest]) {
        self.each(digests, |set, digests| {
            set.insert(digests);
            digests.len()
        });
    }

    fn contains(&mut self, digests: &[Digest]) -> usize {
        self.each(digests, S::contains)
    }

    fn clock(&self) -> Clock {
        Clock::Wall
    }

    fn batch(&mut self) -> Option<&mut dyn Batch<Digest>> {
        if S::HAS_BATCH { Some(self) } else { None }
    }
}

impl<S: Shared> Batch<Digest> for Threads<S> {
    fn insert_batch(&mut self, digests: &[Digest]) {
        self.each(digests, |set, digests| {
            set.insert_batch(digests);
            digests.len()
        });
    }

    fn contains_batch(&mut self, digests: &[Digest]) -> usize {
        self.each(digests, S::contains_batch)
    }
}

/// A filter is emptied in its exclusive form, so that it is taken out for a moment.
struct Inbloom(Option<SharedFilter>);

impl Inbloom {
    fn get(&self) -> &SharedFilter {
        self.0.as_ref().expect("only taken out while it is emptied")
    }
}

impl Shared for Inbloom {
    const HAS_BATCH: bool = true;

    fn bits(&self) -> u64 {
        self.get().plan().bits()
    }

    fn clear(&mut self) {
        let mut filter = self.0.take().expect("it is put back below").into_exclusive();
        filter.clear().expect("a filter in memory can be written");
        self.0 = Some(filter.into_shared().expect("it was shared before"));
    }

    fn insert(&self, digests: &[Digest]) {
        let filter = self.get();
        for &digest in digests {
            black_box(filter.insert_digest(digest).expect("a Bloom filter is never full"));
        }
    }

    fn contains(&self, digests: &[Digest]) -> usize {
        let filter = self.get();
        digests.iter().filter(|&&digest| filter.contains_digest(digest)).count()
    }

    fn insert_batch(&self, digests: &[Digest]) {
        let mut answers = Vec::new();
        for batch in digests.chunks(BATCH) {
            self.get().insert_digests(batch, &mut answers).expect("a Bloom filter is never full");
        }
    }

    fn contains_batch(&self, digests: &[Digest]) -> usize {
        let mut answers = Vec::new();
        let mut found = 0;
        for batch in digests.chunks(BATCH) {
            self.get().contains_digests(batch, &mut answers);
            found += count(&answers);
        }
        found
    }
}

impl Shared for AtomicBloomFilter {
    const HAS_BATCH: bool = false;

    fn bits(&self) -> u64 {
        self.num_bits() as u64
    }

    fn clear(&mut self) {
        AtomicBloomFilter::clear(self);
    }

    fn insert(&self, digests: &[Digest]) {
        for digest in digests {
            black_box(self.insert_hash(digest.place));
        }
    }

    fn contains(&self, digests: &[Digest]) -> usize {
        digests.iter().filter(|digest| self.contains_hash(digest.place)).count()
    }
}
