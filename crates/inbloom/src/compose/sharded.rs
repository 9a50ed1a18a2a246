//! A filter in shards, which are filled, saved, sent, locked and merged independently.
//!
//! **Idea.** The first pick from a digest is the shard, `digest.pick(shards)`, and the shard gets
//! only the rest of the digest. So all positions of a key are in one shard, and shards share
//! nothing. Threads, processes or machines can each work on one shard without a lock.
//!
//! ```text
//! digest.pick(3):      0                        1                        2
//! blocked, whole:   | block 0 ... block 333 | block 334 ... block 667 | block 668 ... block 1001 |
//! in shards:        | block 0 ... block 333 | block 0   ... block 333 | block 0   ... block 333  |
//! ```
//!
//! **The same bytes.** Picking one of s shards and then one of b blocks is the same as picking one
//! of s * b blocks ([`Digest::pick`]). So shards of blocked and counting filters are ranges of the
//! whole filter's blocks, and their bytes, one after the other, are its bytes.
//! [`Filter::into_whole`] and [`Filter::cut_into`] convert between the two. The other kinds mix the
//! whole place into their positions, so their shards are separate filters.
//!
//! **The trap.** A shard by `hash % 16` and a block by `hash % blocks` use the same bits twice. A
//! shard's keys then fall on only every 16th of its blocks, and nearly every query returns "yes".
//! The rest of a digest after a pick is independent of the pick, so here a shard fills as evenly as
//! the whole filter.
//!
//! **Sizes.** Keys fall on shards unevenly, so shards that are no ranges of blocks have a margin
//! (`plan/shards.rs`). A shard's [`rate`](Filter::rate) is that for queries of its own keys. Each
//! shard gets the same number of queries, so the rate of the whole is the mean.
//!
//! **Windows.** A window of time is the same in every shard. A window of a number of keys has in
//! every shard its share of the keys and five deviations more. So a key is present for at least the
//! planned number of keys, with a chance of failure below one in a million. It may be present for
//! up to a step and those deviations longer.
//!
//! **Cost.** A query takes one more multiplication and a second call: 50 ns instead of 30. A batch
//! is first sorted by shard, 8 ns per key. Shards that would fit into the cache alone are evicted
//! between their turns: 15 to 40 ns instead of 6 (4 million keys, 1 to 256 shards, on two otherwise
//! busy cores). A parallel build gives the same bytes on any number of threads, because each shard
//! gets its keys in their order. **When not.** For threads that insert into one filter of bits,
//! [`Filter::into_shared`] needs no shards.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
#[cfg(feature = "std")]
use std::panic::resume_unwind;
#[cfg(feature = "std")]
use std::sync::{Mutex, PoisonError};
#[cfg(feature = "std")]
use std::thread;

use crate::digest::{Digest, Hasher};
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::filter::Filter;
use crate::key::AsKey;
use crate::membership::Membership;
use crate::memory::allocated;
use crate::paging::Paging;
use crate::plan::Plan;
use crate::profile::Slice;
use crate::state::{
    Clocked, Intersecting, Measured, Positioned, Removable, State, has_no_positions,
};
use crate::storage::{Bits, Order};

/// The content of a filter whose keys are divided among shards, see [`Filter::sharded`].
pub(crate) struct Sharded {
    /// That of all shards together.
    plan: Plan,
    /// All shards of one plan and hash, in order: two or more. They count their own keys.
    shards: Vec<Filter>,
}

/// Keys that a batch sorts at a time: with their digests and answers they stay in L2.
const BATCH: usize = 1 << 15;
/// Keys that a parallel insert hashes before it inserts them: 40 MiB of digests.
const ROUND: usize = 1 << 20;
/// More threads than this are asked for by mistake.
const MAX_THREADS: usize = 1024;
/// Keys whose memory is asked for together, where they are inserted one by one.
const RUN: usize = 128;

impl Sharded {
    /// Returns the content of shards that belong together, all of them and in order.
    pub(crate) fn new(shards: Vec<Filter>) -> Sharded {
        let plan = Plan::of_shards(shards.iter().map(Filter::plan)).expect("never empty");
        Sharded { plan, shards }
    }

    pub(crate) fn shards(&self) -> &[Filter] {
        &self.shards
    }

    pub(crate) fn shards_mut(&mut self) -> &mut [Filter] {
        &mut self.shards
    }

    pub(crate) fn into_shards(self) -> Vec<Filter> {
        self.shards
    }

    #[inline]
    fn index(&self, digest: Digest) -> usize {
        digest.pick(self.shards.len() as u64).0 as usize
    }

    /// Inserts many keys: see [`Filter::insert_many`].
    pub(crate) fn insert_keys<K: AsKey>(
        &mut self,
        hasher: &Hasher,
        keys: &[K],
        new: &mut Vec<bool>,
    ) -> Result<()> {
        new.clear();
        let (mut digests, mut sorted) = (Vec::new(), ByShard::default());
        for keys in keys.chunks(BATCH) {
            digest_all(hasher, keys, &mut digests);
            self.insert_batch(&digests, &mut sorted, new)?;
        }
        Ok(())
    }

    /// Queries many keys: see [`Filter::contains_many`].
    pub(crate) fn contains_keys<K: AsKey>(
        &self,
        hasher: &Hasher,
        keys: &[K],
        found: &mut Vec<bool>,
    ) {
        found.clear();
        let (mut digests, mut sorted) = (Vec::new(), ByShard::default());
        for keys in keys.chunks(BATCH) {
            digest_all(hasher, keys, &mut digests);
            self.contains_batch(&digests, &mut sorted, found);
        }
    }

    /// Inserts many keys on several threads: see [`Filter::insert_many_parallel`].
    #[cfg(feature = "std")]
    pub(crate) fn insert_parallel<K: AsKey + Sync>(
        &mut self,
        hasher: Hasher,
        keys: &[K],
        threads: usize,
    ) -> Result<()> {
        self.check_writable()?;
        let threads = match threads {
            0 => thread::available_parallelism().map_or(1, usize::from),
            given => given.min(MAX_THREADS),
        };
        let shards = self.shards.len();
        for round in keys.chunks(ROUND) {
            let parts = round.chunks(round.len().div_ceil(threads));
            let sort = |keys: &[K]| {
                let digests: Vec<Digest> = keys.iter().map(|key| hasher.digest(key)).collect();
                let mut sorted = ByShard::default();
                sorted.sort(&digests, shards);
                sorted
            };
            let sorted = on_threads(parts.map(|keys| move || sort(keys)));
            self.insert_sorted(&sorted, threads)?;
        }
        Ok(())
    }

    /// Inserts what was sorted, part after part, so that each shard gets its keys in order. The
    /// error is that of the first shard that has one.
    #[cfg(feature = "std")]
    fn insert_sorted(&mut self, parts: &[ByShard], threads: usize) -> Result<()> {
        let threads = threads.min(self.shards.len());
        let queue = Mutex::new(self.shards.iter_mut().enumerate());
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            let mut new = Vec::new();
            let mut errors = Vec::new();
            while let Some((at, shard)) = next() {
                let mut inserts =
                    parts.iter().map(|sorted| shard.insert_digests(sorted.of(at).0, &mut new));
                if let Some(Err(error)) = inserts.find(Result::is_err) {
                    errors.push((at, error));
                }
            }
            errors
        };
        let errors = on_threads((0..threads).map(|_| &work)).into_iter().flatten();
        errors.min_by_key(|(at, _)| *at).map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Inserts a batch and appends the answers.
    fn insert_batch(
        &mut self,
        digests: &[Digest],
        sorted: &mut ByShard,
        new: &mut Vec<bool>,
    ) -> Result<()> {
        self.check_writable()?;
        if self.may_refuse() || self.is_few(digests) {
            // One by one, so that the answers tell how many were inserted before a refusal.
            for run in digests.chunks(RUN) {
                self.prefetch(run);
                for digest in run {
                    new.push(self.insert_digest(*digest)?);
                }
            }
            return Ok(());
        }
        sorted.sort(digests, self.shards.len());
        let before = new.len();
        new.resize(before + digests.len(), false);
        let mut answers = Vec::new();
        for (at, shard) in self.shards.iter_mut().enumerate() {
            let (digests, from) = sorted.of(at);
            shard.insert_digests(digests, &mut answers)?;
            scatter(&answers, from, &mut new[before..]);
        }
        Ok(())
    }

    /// Queries a batch and appends the answers.
    fn contains_batch(&self, digests: &[Digest], sorted: &mut ByShard, found: &mut Vec<bool>) {
        if self.is_few(digests) {
            self.prefetch(digests);
            found.extend(digests.iter().map(|digest| self.contains_digest(*digest)));
            return;
        }
        sorted.sort(digests, self.shards.len());
        let before = found.len();
        found.resize(before + digests.len(), false);
        let mut answers = Vec::new();
        for (at, shard) in self.shards.iter().enumerate() {
            let (digests, from) = sorted.of(at);
            shard.contains_digests(digests, &mut answers);
            scatter(&answers, from, &mut found[before..]);
        }
    }

    /// Returns whether a batch is too small to be worth sorting.
    fn is_few(&self, digests: &[Digest]) -> bool {
        digests.len() < self.shards.len().max(RUN)
    }

    /// Returns whether an insert may be refused though the shards can be written: they fill up, or need
    /// memory.
    fn may_refuse(&self) -> bool {
        self.plan.kind().may_refuse()
    }

    fn check_writable(&self) -> Result<()> {
        if self.is_read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Changes every shard by its pair in the other, or none: what may be refused is done on copies.
    fn combine(
        &mut self,
        other: &dyn State,
        change: impl Fn(&mut Filter, &Filter) -> Result<()>,
    ) -> Result<()> {
        self.check_writable()?;
        let others = &other.of::<Sharded>().shards;
        let combine = |shards: &mut [Filter]| {
            shards.iter_mut().zip(others).try_for_each(|(here, there)| change(here, there))
        };
        if !self.may_refuse() {
            return combine(&mut self.shards);
        }
        let copies = self.shards.iter().map(Filter::try_clone);
        let mut changed = copies.collect::<Result<Vec<Filter>>>()?;
        combine(&mut changed)?;
        self.shards = changed;
        Ok(())
    }

    fn sum(&self, of: impl Fn(&Filter) -> u64) -> u64 {
        self.shards.iter().map(of).fold(0, u64::saturating_add)
    }

    fn mean(&self, of: impl Fn(&Filter) -> f64) -> f64 {
        self.shards.iter().map(of).sum::<f64>() / self.shards.len() as f64
    }

    /// Returns how many positions a shard has.
    fn positions_each(&self) -> u64 {
        self.shards[0].plan().positions()
    }

    /// Returns how many inserts were new, over all shards.
    pub(crate) fn inserted(&self) -> u64 {
        self.sum(Filter::inserted)
    }
}

fn digest_all<K: AsKey>(hasher: &Hasher, keys: &[K], digests: &mut Vec<Digest>) {
    digests.clear();
    digests.extend(keys.iter().map(|key| hasher.digest(key)));
}

/// Runs each task on a thread of its own, and gives their results in order.
#[cfg(feature = "std")]
fn on_threads<T: Send>(tasks: impl Iterator<Item = impl FnOnce() -> T + Send>) -> Vec<T> {
    thread::scope(|scope| {
        let running: Vec<_> = tasks.map(|task| scope.spawn(task)).collect();
        // A panic is the caller's: only its keys can.
        running.into_iter().map(|task| task.join().unwrap_or_else(|p| resume_unwind(p))).collect()
    })
}

/// Digests sorted by shard, in their order within each. Kept from batch to batch: new memory for
/// each would cost more than the sorting.
#[derive(Default)]
struct ByShard {
    digests: Vec<Digest>,
    /// Where each came from.
    from: Vec<u32>,
    /// Where each shard starts; one more, for the end.
    starts: Vec<usize>,
}

impl ByShard {
    fn sort(&mut self, digests: &[Digest], shards: usize) {
        let shard = |digest: &Digest| digest.pick(shards as u64).0 as usize;
        self.starts.clear();
        self.starts.resize(shards + 1, 0);
        for digest in digests {
            self.starts[shard(digest) + 1] += 1;
        }
        for at in 0..shards {
            self.starts[at + 1] += self.starts[at];
        }
        let mut ends = self.starts.clone();
        self.digests.resize(digests.len(), Digest::default());
        self.from.resize(digests.len(), 0);
        for (at, digest) in digests.iter().enumerate() {
            let end = &mut ends[shard(digest)];
            self.digests[*end] = *digest;
            self.from[*end] = at as u32; // batches and rounds are far shorter
            *end += 1;
        }
    }

    fn of(&self, shard: usize) -> (&[Digest], &[u32]) {
        let range = self.starts[shard]..self.starts[shard + 1];
        (&self.digests[range.clone()], &self.from[range])
    }
}

/// Puts answers back to where their digests came from.
fn scatter(answers: &[bool], from: &[u32], to: &mut [bool]) {
    for (answer, from) in answers.iter().zip(from) {
        to[*from as usize] = *answer;
    }
}

impl Membership for Sharded {
    fn contains_digest(&self, digest: Digest) -> bool {
        self.shards[self.index(digest)].contains_digest(digest)
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        let shard = self.index(digest);
        self.shards[shard].insert_digest(digest)
    }

    fn prefetch(&self, digests: &[Digest]) {
        for digest in digests {
            self.shards[self.index(*digest)].prefetch(core::slice::from_ref(digest));
        }
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        self.prefetch(next);
        for (digest, found) in run.iter().zip(found) {
            *found = self.contains_digest(*digest);
        }
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        self.prefetch(next);
        for digest in run {
            new.push(self.insert_digest(*digest)?);
        }
        Ok(())
    }

    fn contains_digests(&self, digests: &[Digest], found: &mut Vec<bool>) {
        found.clear();
        let mut sorted = ByShard::default();
        for batch in digests.chunks(BATCH) {
            self.contains_batch(batch, &mut sorted, found);
        }
    }

    fn insert_digests(&mut self, digests: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        new.clear();
        let mut sorted = ByShard::default();
        let mut batches = digests.chunks(BATCH);
        batches.try_for_each(|batch| self.insert_batch(batch, &mut sorted, new))
    }
}

impl State for Sharded {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn measured(&self) -> &dyn Measured {
        self
    }

    fn clear(&mut self) -> Result<()> {
        self.check_writable()?;
        self.shards.iter_mut().try_for_each(Filter::clear)
    }

    fn copy(&self) -> Result<Box<dyn State>> {
        let shards = self.shards.iter().map(Filter::try_clone).collect::<Result<_>>()?;
        Ok(Box::new(Sharded { plan: self.plan, shards }))
    }

    fn same(&self, other: &dyn State) -> bool {
        self.shards == other.of::<Sharded>().shards
    }

    fn unite(&mut self, other: &dyn State) -> Result<()> {
        self.combine(other, Filter::merge)
    }

    fn count(&self, digest: Digest) -> u64 {
        self.shards[self.index(digest)].content.state().count(digest)
    }

    fn check(&self, digest: Digest) -> Result<()> {
        self.shards[self.index(digest)].content.state().check(digest)
    }

    fn into_bits(self: Box<Self>) -> Option<Bits> {
        None
    }

    fn expect(&self, order: Order) {
        self.shards.iter().for_each(|shard| shard.content.state().expect(order));
    }

    fn set_paging(&mut self, paging: Paging) {
        self.shards.iter_mut().for_each(|shard| shard.set_paging(paging));
    }

    fn removable(&mut self) -> Option<&mut dyn Removable> {
        match self.shards[0].content.state_mut().removable() {
            Some(_) => Some(self),
            None => None,
        }
    }

    fn intersecting(&mut self) -> Option<&mut dyn Intersecting> {
        match self.shards[0].content.state_mut().intersecting() {
            Some(_) => Some(self),
            None => None,
        }
    }

    fn clocked(&mut self) -> Option<&mut dyn Clocked> {
        match self.shards[0].content.state_mut().clocked() {
            Some(_) => Some(self),
            None => None,
        }
    }

    fn positioned(&self) -> Option<&dyn Positioned> {
        self.shards[0].content.state().positioned().map(|_| self as &dyn Positioned)
    }
}

impl Measured for Sharded {
    fn occupied(&self) -> u64 {
        self.sum(Filter::occupied)
    }

    fn fill(&self) -> f64 {
        self.mean(Filter::fill)
    }

    fn recount(&self) -> Option<u64> {
        self.shards.iter().map(|shard| shard.content.measured().recount()).sum()
    }

    /// One array after another, at least one slice of each.
    fn profile(&self, slices: usize) -> Vec<Slice> {
        let each = (slices / self.shards.len()).max(1);
        self.shards.iter().flat_map(|shard| shard.profile(each)).collect()
    }

    fn bytes(&self) -> u64 {
        self.sum(Filter::bytes)
    }

    fn memory(&self) -> u64 {
        allocated(size_of_val(&self.shards[..]) as u64).saturating_add(self.sum(Filter::memory))
    }

    /// Returns the mean of the shards', as a non-member falls on each with the same chance.
    fn rate(&self) -> f64 {
        self.mean(Filter::rate)
    }

    fn estimate(&self, _inserted: Option<u64>) -> Estimate {
        Estimate::sum(self.shards.iter().map(Filter::estimated_items))
    }

    fn room(&self) -> u64 {
        self.sum(Filter::room)
    }

    /// Keys come to all shards alike, and the first that is full grows.
    fn next_growth(&self) -> Option<u64> {
        let next = self.shards.iter().map(Filter::next_growth).min()??;
        Some(next.saturating_mul(self.shards.len() as u64))
    }

    /// Texts have no sum: what the first shard shows stands for all.
    fn details(&self) -> Vec<(&'static str, String)> {
        let first = self.shards[0].details();
        if first.is_empty() {
            return Vec::new();
        }
        let shown = first.into_iter().map(|(name, value)| format!("{name} {value}"));
        vec![("first shard", shown.collect::<Vec<_>>().join("; "))]
    }

    fn bits(&self) -> Option<&Bits> {
        None
    }

    fn payload(&self) -> Cow<'_, [u8]> {
        let payloads = self.shards.iter().map(|shard| shard.content.measured().payload());
        Cow::Owned(payloads.collect::<Vec<_>>().concat())
    }

    fn is_read_only(&self) -> bool {
        self.shards.iter().any(Filter::is_read_only)
    }
}

impl Removable for Sharded {
    fn remove(&mut self, digest: Digest) -> Result<bool> {
        let shard = self.index(digest);
        self.shards[shard].remove_digest(digest)
    }
}

impl Intersecting for Sharded {
    fn intersect(&mut self, other: &dyn State) -> Result<()> {
        self.combine(other, Filter::intersect)
    }
}

impl Clocked for Sharded {
    fn advance(&mut self, now: u64) -> Result<()> {
        self.check_writable()?;
        self.shards.iter_mut().try_for_each(|shard| shard.advance(now))
    }
}

/// The positions of the shards are numbered through. For blocks that is what the whole filter has.
impl Positioned for Sharded {
    fn positions(&self, digest: Digest) -> Result<Vec<u64>> {
        let shard = self.index(digest);
        let positioned = self.shards[shard].content.state().positioned();
        let positioned = positioned.ok_or_else(|| has_no_positions(&self.plan))?;
        let first = shard as u64 * self.positions_each();
        let positions = positioned.positions(digest)?;
        Ok(positions.into_iter().map(|position| first + position).collect())
    }

    fn is_set(&self, position: u64) -> bool {
        let shard = usize::try_from(position / self.positions_each()).ok();
        let shard = shard.and_then(|at| self.shards.get(at)?.content.state().positioned());
        shard.is_some_and(|shard| shard.is_set(position % self.positions_each()))
    }
}

#[cfg(test)]
mod tests;
