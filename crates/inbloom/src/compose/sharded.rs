//! A filter in shards: pieces that are filled, saved, sent, locked and merged alone.
//!
//! **Idea.** The first thing that is taken from a digest is the shard, `digest.pick(shards)`, and
//! the shard sees only what is left of it. So all positions of a key are in one shard, shards share
//! nothing, and threads, processes or machines each work on their own without a lock.
//!
//! ```text
//! digest.pick(3):      0                        1                        2
//! blocked, whole:   | block 0 ... block 333 | block 334 ... block 667 | block 668 ... block 1001 |
//! in shards:        | block 0 ... block 333 | block 0   ... block 333 | block 0   ... block 333  |
//! ```
//!
//! **The same bytes.** To pick one of s shards and then one of b blocks is to pick one of s * b
//! blocks ([`Digest::pick`]). So shards of blocked and counting filters are ranges of the whole
//! one's blocks, and their bytes, one after the other, are its bytes: [`Sharded::into_filter`] and
//! [`Sharded::from_filter`] go to and fro. The other kinds mix the whole place into their
//! positions; their shards are filters of their own.
//!
//! **The trap.** A shard by `hash % 16` and a block by `hash % blocks` use the same bits twice: a
//! shard's keys then fall on every 16th of its blocks only, and nearly every query is answered
//! "yes". What is left after a pick is independent of it, so that here a shard is as even as the
//! whole.
//!
//! **Sizes.** Keys fall on shards unevenly, which costs shards of their own a margin;
//! `plan/shards.rs` has it. A shard's [`rate`](Filter::rate) is that for keys that belong to it; as
//! they are equally many for every shard, the rate of all is the mean.
//!
//! **Windows.** A window in time is one in every shard. A window in keys is in every shard its
//! share of the keys and five deviations more, so that a key is found for at least as many keys as
//! planned, but for a chance of less than one in a million, and for up to a step and those
//! deviations longer.
//!
//! **Cost.** A query takes one multiplication more and a second call: 50 ns instead of 30. A batch
//! is sorted by shard first, 8 ns per key, and shards that would fit into the cache alone come back
//! to it cold: 15 to 40 ns instead of 6 (4 million keys, 1 to 256 shards, on two cores that were
//! busy otherwise). A parallel build gives the same bytes on any number of threads: each shard gets
//! its keys in their order.
//! **When not.** For threads that insert into one filter of bits, [`Filter::into_shared`] needs no
//! shards.

use std::io::{Read, Write};
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::compose::grown::is_not_its_bits;
use crate::digest::{Digest, Hasher, SecretKey};
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::filter::{Content, Filter};
use crate::format;
use crate::key::AsKey;
use crate::kind::Kind;
use crate::membership::Membership;
use crate::paging::Paging;
use crate::plan::Plan;
use crate::state::{
    Clocked, Intersecting, Measured, Positioned, Removable, State, cannot_intersect, cannot_remove,
    has_no_positions,
};
use crate::storage::{Bits, Cells, Order};

/// A filter whose keys are divided among shards. It answers as one filter does; each shard is a
/// [`Filter`] that can be taken out, saved, sent, and merged with the same shard of another.
///
/// ```
/// use inbloom::{Hasher, Kind, Plan, Sharded};
///
/// let keys: Vec<String> = (0..10_000).map(|i| format!("key {i}")).collect();
/// let plan = Plan::builder(Kind::Blocked).items(10_000).rate(0.001).build()?;
/// let mut seen = Sharded::build(plan, 16, Hasher::default(), &keys, 4)?; // on 4 threads
/// assert!(keys.iter().all(|key| seen.contains(key)));
/// assert!(seen.insert("another")?);
///
/// // One shard alone knows its own keys, and refuses others.
/// let shard = seen.shard_of("another") as usize;
/// let mut shards = seen.into_shards();
/// assert!(shards[shard].contains("another"));
/// assert!(shards[(shard + 1) % 16].insert("another").is_err());
///
/// // In any order they are the whole again; of this kind, even one filter.
/// shards.reverse();
/// let whole = Sharded::from_shards(shards)?.into_filter()?;
/// assert!(whole.contains("another"));
/// # Ok::<(), inbloom::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Sharded {
    /// All shards of one plan and hash, in order. Never empty.
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
    /// Empty shards, hashing with XXH3-128 under seed 0. The plan is that of the whole: how many
    /// keys all shards are for, and at which rate.
    ///
    /// Refused for a bitmap, whose integers are not hashed and would not spread.
    pub fn new(plan: Plan, shards: u32) -> Result<Sharded> {
        Sharded::with_hasher(plan, shards, plan.kind().default_hasher())
    }

    /// Empty shards with a hash of your choice.
    pub fn with_hasher(plan: Plan, shards: u32, hasher: Hasher) -> Result<Sharded> {
        let plans = plan.for_shards(shards)?;
        let shards = plans.into_iter().map(|plan| Filter::with_hasher(plan, hasher));
        Ok(Sharded { shards: shards.collect::<Result<_>>()? })
    }

    /// Shards that hold all these keys, made by several threads: see
    /// [`Sharded::insert_many_parallel`].
    pub fn build<K: AsKey + Sync>(
        plan: Plan,
        shards: u32,
        hasher: Hasher,
        keys: &[K],
        threads: usize,
    ) -> Result<Sharded> {
        let mut sharded = Sharded::with_hasher(plan, shards, hasher)?;
        sharded.insert_many_parallel(keys, threads)?;
        Ok(sharded)
    }

    /// Makes a whole of all shards of one plan and hash, given in any order.
    ///
    /// The error names what differs between them, or which are missing or come twice.
    pub fn from_shards(mut shards: Vec<Filter>) -> Result<Sharded> {
        let place = |filter: &Filter| filter.plan().shard().unwrap_or((0, 1));
        let Some(first) = shards.first() else {
            let (got, expected) = ("none".to_owned(), "given".to_owned());
            return Err(Error::Parameter { name: "shards", got, expected });
        };
        let (shard, count) = place(first);
        first.plan().kind().check_divisible()?;
        for other in &shards[1..] {
            let (_, their_count) = place(other);
            if their_count != count {
                let (left, right) = (count.to_string(), their_count.to_string());
                return Err(Error::Mismatch { field: "number of shards", left, right });
            }
            let same_shard = Plan { shard, ..*other.plan() };
            if let Some((field, left, right)) = first.plan().difference(&same_shard) {
                return Err(Error::Mismatch { field, left, right });
            }
            first.check_same_hash(other)?;
        }
        shards.sort_by_key(|filter| place(filter).0);
        let (mut missing, mut twice) = (Vec::new(), Vec::new());
        let mut next = 0;
        for (shard, _) in shards.iter().map(place) {
            missing.extend(next..shard);
            if shard < next && twice.last() != Some(&shard) {
                twice.push(shard);
            }
            next = shard + 1;
        }
        missing.extend(next..count);
        if !missing.is_empty() || !twice.is_empty() {
            return Err(Error::Shards { shards: count, missing, twice });
        }
        Ok(Sharded { shards })
    }

    /// The shards, in order.
    #[must_use]
    pub fn shards(&self) -> &[Filter] {
        &self.shards
    }

    /// Takes the whole apart: to give each shard a lock, a thread or a machine of its own.
    #[must_use]
    pub fn into_shards(self) -> Vec<Filter> {
        self.shards
    }

    /// Cuts a blocked or counting filter into shards, which are copies of ranges of its blocks.
    /// Refused unless the blocks divide evenly.
    pub fn from_filter(filter: &Filter, shards: u32) -> Result<Sharded> {
        let whole = filter.plan();
        let plans = whole.for_shards(shards)?;
        if shards == 1 {
            return Ok(Sharded { shards: vec![filter.try_clone()?] });
        }
        let part = plans[0];
        if !part.concatenates() {
            return Err(not_concatenated(whole.kind(), "be cut into shards"));
        }
        if Plan::of_shards(&plans).is_none_or(|sum| sum.difference(whole).is_some()) {
            return Err(Error::Parameter {
                name: "shards",
                got: shards.to_string(),
                expected: format!("a divisor of the filter's {} blocks and ranges", whole.blocks()),
            });
        }
        let bits = filter.content.measured().bits();
        let bits = bits.ok_or_else(|| is_not_its_bits(whole.kind(), "be cut into shards"))?;
        let mut made = Vec::new();
        let (mut ones_before, mut inserted_before) = (0, 0);
        for (plan, bytes) in plans.iter().zip(bits.cells.bytes().chunks(part.bytes() as usize)) {
            let mut cells = Cells::zeroed(bytes.len() as u64)?;
            cells.bytes_mut()?.copy_from_slice(bytes);
            let uncounted = Content::with_bits(*plan, Bits { cells, ones: 0 });
            let ones = uncounted
                .measured()
                .recount()
                .ok_or_else(|| format::mismatch("unused bits", "zeros", "some that are set"))?;
            let cells = uncounted.into_state().into_bits().expect("blocks").cells;
            // Nobody knows how many keys were inserted into this part: they are shared out by bits.
            ones_before += ones;
            let inserted = u128::from(filter.inserted) * u128::from(ones_before);
            let inserted = (inserted / u128::from(bits.ones.max(1))) as u64;
            made.push(Filter {
                hasher: filter.hasher,
                content: Content::with_bits(*plan, Bits { cells, ones }),
                inserted: inserted.saturating_sub(inserted_before),
                auto_clear: filter.auto_clear,
                texts: filter.texts.clone(),
            });
            inserted_before = inserted;
        }
        Ok(Sharded { shards: made })
    }

    /// The one filter that has what all shards have: a blocked or counting filter of the plan
    /// [`Sharded::whole_plan`], whose bytes are the shards' one after the other. Its notes are
    /// those of the first shard. The other kinds cannot, unless there is only one shard.
    pub fn into_filter(mut self) -> Result<Filter> {
        if self.shards.len() == 1 {
            return Ok(self.shards.remove(0));
        }
        let first = &self.shards[0];
        if !first.plan().concatenates() {
            return Err(not_concatenated(first.plan().kind(), "become one filter of its shards"));
        }
        let plan = self.whole_plan().check()?;
        let mut cells = Cells::zeroed(plan.bytes())?;
        let mut rest = cells.bytes_mut()?;
        for shard in &self.shards {
            let bytes = shard.content.measured().payload();
            let (here, later) = rest.split_at_mut(bytes.len());
            here.copy_from_slice(&bytes);
            rest = later;
        }
        let bits = Bits { cells, ones: self.occupied() };
        Ok(Filter {
            hasher: first.hasher,
            content: Content::with_bits(plan, bits),
            inserted: self.inserted(),
            auto_clear: first.auto_clear,
            texts: first.texts.clone(),
        })
    }

    /// The plan of all shards together: their items and bits, at their rate. For blocked and
    /// counting it is the plan of the one filter with the same bytes, that is the plan that was
    /// given, with its blocks rounded up so that they divide.
    #[must_use]
    pub fn whole_plan(&self) -> Plan {
        Plan::of_shards(self.shards.iter().map(Filter::plan)).expect("never empty")
    }

    /// The hash of all shards.
    #[must_use]
    pub fn hasher(&self) -> &Hasher {
        self.shards[0].hasher()
    }

    /// The digest of a key under this hash.
    #[inline]
    #[must_use]
    pub fn digest(&self, key: impl AsKey) -> Digest {
        self.hasher().digest(key)
    }

    /// The number of the shard that a key belongs to, from 0.
    #[must_use]
    pub fn shard_of(&self, key: impl AsKey) -> u32 {
        self.index(self.digest(key)) as u32
    }

    #[inline]
    fn index(&self, digest: Digest) -> usize {
        digest.pick(self.shards.len() as u64).0 as usize
    }

    /// Records a key: see [`Filter::insert`].
    pub fn insert(&mut self, key: impl AsKey) -> Result<bool> {
        self.insert_digest(self.digest(key))
    }

    /// Records a key unless it is probably there: see [`Filter::insert_if_absent`].
    pub fn insert_if_absent(&mut self, key: impl AsKey) -> Result<bool> {
        let digest = self.digest(key);
        if self.contains_digest(digest) {
            return Ok(false);
        }
        self.insert_digest(digest)
    }

    /// Whether a key may have been inserted: false is certain, true is probable.
    #[must_use]
    pub fn contains(&self, key: impl AsKey) -> bool {
        self.contains_digest(self.digest(key))
    }

    /// Takes a key out: see [`Filter::remove`], also for what must not be removed.
    pub fn remove(&mut self, key: impl AsKey) -> Result<bool> {
        self.remove_digest(self.digest(key))
    }

    /// How often a key was inserted and not removed: see [`Filter::count`].
    #[must_use]
    pub fn count(&self, key: impl AsKey) -> u64 {
        let digest = self.digest(key);
        self.shards[self.index(digest)].content.state().count(digest)
    }

    /// Records many keys, in order: the answers of [`Sharded::insert`], one for each. `new` is
    /// emptied first. On an error its length says how many keys were recorded.
    pub fn insert_many<K: AsKey>(&mut self, keys: &[K], new: &mut Vec<bool>) -> Result<()> {
        new.clear();
        self.check_writable()?;
        let (mut digests, mut sorted) = (Vec::new(), Sorted::default());
        for keys in keys.chunks(BATCH) {
            self.digest_all(keys, &mut digests);
            self.insert_batch(&digests, &mut sorted, new)?;
        }
        Ok(())
    }

    /// Asks for many keys, in order: the answers of [`Sharded::contains`], one for each. `found` is
    /// emptied first.
    pub fn contains_many<K: AsKey>(&self, keys: &[K], found: &mut Vec<bool>) {
        found.clear();
        let (mut digests, mut sorted) = (Vec::new(), Sorted::default());
        for keys in keys.chunks(BATCH) {
            self.digest_all(keys, &mut digests);
            self.contains_batch(&digests, &mut sorted, found);
        }
    }

    fn digest_all<K: AsKey>(&self, keys: &[K], digests: &mut Vec<Digest>) {
        digests.clear();
        digests.extend(keys.iter().map(|key| self.digest(key)));
    }

    /// Records many keys on several threads; 0 are as many as the machine has for us.
    ///
    /// Threads first hash each a part of the keys and sort them by shard, and then insert each
    /// whole shards, so that there are no locks, and the result is that of [`Sharded::insert_many`]
    /// to the byte whatever their number. Up to a million keys are under way at a time. More
    /// threads than shards are of little use.
    ///
    /// On an error some later keys may have been recorded too, in other shards.
    pub fn insert_many_parallel<K: AsKey + Sync>(
        &mut self,
        keys: &[K],
        threads: usize,
    ) -> Result<()> {
        self.check_writable()?;
        let threads = match threads {
            0 => thread::available_parallelism().map_or(1, usize::from),
            given => given.min(MAX_THREADS),
        };
        let (hasher, shards) = (*self.hasher(), self.shards.len());
        for round in keys.chunks(ROUND) {
            let parts = round.chunks(round.len().div_ceil(threads));
            let sort = |keys: &[K]| {
                let digests: Vec<Digest> = keys.iter().map(|key| hasher.digest(key)).collect();
                let mut sorted = Sorted::default();
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
    fn insert_sorted(&mut self, parts: &[Sorted], threads: usize) -> Result<()> {
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

    /// [`Sharded::insert`] for a key that is hashed already.
    pub fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        let shard = self.index(digest);
        self.shards[shard].insert_digest(digest)
    }

    /// [`Sharded::contains`] for a key that is hashed already.
    #[must_use]
    pub fn contains_digest(&self, digest: Digest) -> bool {
        self.shards[self.index(digest)].contains_digest(digest)
    }

    /// [`Sharded::remove`] for a key that is hashed already.
    pub fn remove_digest(&mut self, digest: Digest) -> Result<bool> {
        let shard = self.index(digest);
        self.shards[shard].remove_digest(digest)
    }

    /// [`Sharded::insert_many`] for keys that are hashed already.
    pub fn insert_digests(&mut self, digests: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        new.clear();
        self.check_writable()?;
        let mut sorted = Sorted::default();
        let mut batches = digests.chunks(BATCH);
        batches.try_for_each(|batch| self.insert_batch(batch, &mut sorted, new))
    }

    /// Inserts a batch and appends the answers.
    fn insert_batch(
        &mut self,
        digests: &[Digest],
        sorted: &mut Sorted,
        new: &mut Vec<bool>,
    ) -> Result<()> {
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

    /// [`Sharded::contains_many`] for keys that are hashed already.
    pub fn contains_digests(&self, digests: &[Digest], found: &mut Vec<bool>) {
        found.clear();
        let mut sorted = Sorted::default();
        for batch in digests.chunks(BATCH) {
            self.contains_batch(batch, &mut sorted, found);
        }
    }

    /// Asks for a batch and appends the answers.
    fn contains_batch(&self, digests: &[Digest], sorted: &mut Sorted, found: &mut Vec<bool>) {
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

    /// Whether a batch is too small to be worth sorting.
    fn is_few(&self, digests: &[Digest]) -> bool {
        digests.len() < self.shards.len().max(RUN)
    }

    /// Whether an insert may be refused though the shards can be written: they fill up, or need
    /// memory.
    fn may_refuse(&self) -> bool {
        self.shards[0].plan().kind().may_refuse()
    }

    /// Whether inserts are refused because a shard was opened read-only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.shards.iter().any(Filter::is_read_only)
    }

    fn check_writable(&self) -> Result<()> {
        if self.is_read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Keeps in this what either has. Both must have the same shards and hash; the error names what
    /// differs, and nothing has changed then. If a cuckoo filter's shard becomes full, those before
    /// it have been merged.
    pub fn merge(&mut self, other: &Sharded) -> Result<()> {
        if self.shards.len() != other.shards.len() {
            let (left, right) = (self.shards.len().to_string(), other.shards.len().to_string());
            return Err(Error::Mismatch { field: "number of shards", left, right });
        }
        self.shards[0].check_compatible(&other.shards[0])?;
        self.check_writable()?;
        self.shards.iter_mut().zip(&other.shards).try_for_each(|(here, there)| here.merge(there))
    }

    /// Forgets every key. Notes stay.
    pub fn clear(&mut self) -> Result<()> {
        self.check_writable()?;
        self.shards.iter_mut().try_for_each(Filter::clear)
    }

    /// Lets the clocks of windows go on: see [`Filter::advance`].
    pub fn advance(&mut self, now: u64) -> Result<()> {
        self.check_writable()?;
        self.shards.iter_mut().try_for_each(|shard| shard.advance(now))
    }

    /// How many inserts were told "new", over all shards.
    #[must_use]
    pub fn inserted(&self) -> u64 {
        self.shards.iter().map(Filter::inserted).fold(0, u64::saturating_add)
    }

    /// The number of cells in use, over all shards.
    #[must_use]
    pub fn occupied(&self) -> u64 {
        self.shards.iter().map(Filter::occupied).fold(0, u64::saturating_add)
    }

    /// The share of cells in use, from 0 to 1, over all shards.
    #[must_use]
    pub fn fill(&self) -> f64 {
        self.mean(Filter::fill)
    }

    /// The rate at which a foreign key is claimed now: the mean of the shards', as it falls on each
    /// with the same chance.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.mean(Filter::rate)
    }

    fn mean(&self, of: impl Fn(&Filter) -> f64) -> f64 {
        self.shards.iter().map(of).sum::<f64>() / self.shards.len() as f64
    }

    /// The bytes that the cells of all shards take now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(Filter::bytes).fold(0, u64::saturating_add)
    }

    /// How many distinct keys the cells in use speak for: the sum of what the shards say.
    #[must_use]
    pub fn estimated_items(&self) -> Estimate {
        let (mut items, mut variance) = (0.0, 0.0);
        for estimate in self.shards.iter().map(Filter::estimated_items) {
            items += estimate.items;
            variance += estimate.error * estimate.error;
        }
        Estimate { items, error: variance.sqrt() }
    }

    /// Writes the shards one after the other, each as [`Filter::write_to`] does.
    pub fn write_to(&self, mut writer: impl Write) -> Result<()> {
        self.shards.iter().try_for_each(|shard| shard.write_to(&mut writer))
    }

    /// Reads what [`Sharded::write_to`] has written: as many shards as the first one says there
    /// are.
    pub fn read_from(reader: impl Read) -> Result<Sharded> {
        Sharded::read(reader, None)
    }

    /// As [`Sharded::read_from`], for shards with a secret key.
    pub fn read_from_keyed(reader: impl Read, key: &SecretKey) -> Result<Sharded> {
        Sharded::read(reader, Some(key))
    }

    fn read(mut reader: impl Read, key: Option<&SecretKey>) -> Result<Sharded> {
        let first = format::read(&mut reader, key)?;
        let (_, count) = first.plan().shard().unwrap_or((0, 1));
        // The number is a stranger's claim: no memory is taken before a shard has arrived.
        let mut shards = vec![first];
        for _ in 1..count {
            shards.push(format::read(&mut reader, key)?);
        }
        Sharded::from_shards(shards)
    }
}

fn not_concatenated(kind: Kind, verb: &'static str) -> Error {
    Error::Unsupported {
        kind,
        verb,
        remedy: "only blocked and counting shards whose blocks divide evenly are ranges of one \
                 filter; the others answer together, in Sharded",
    }
}

/// Runs each task on a thread of its own, and gives their results in order.
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
struct Sorted {
    digests: Vec<Digest>,
    /// Where each came from.
    from: Vec<u32>,
    /// Where each shard starts; one more, for the end.
    starts: Vec<usize>,
}

impl Sorted {
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
        Sharded::contains_digest(self, digest)
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        Sharded::insert_digest(self, digest)
    }

    fn prefetch(&self, digests: &[Digest]) {
        for digest in digests {
            let shard = &self.shards[self.index(*digest)];
            shard.content.members().prefetch(std::slice::from_ref(digest));
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
        Sharded::contains_digests(self, digests, found);
    }

    fn insert_digests(&mut self, digests: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        Sharded::insert_digests(self, digests, new)
    }
}

/// What a shard's filter holds: the kind, behind the pick of the shard.
pub(crate) struct Piece {
    /// That of the kind, and which shard this is.
    plan: Plan,
    shard: u64,
    shards: u64,
    /// Sees what the pick has left of digests.
    inner: Box<dyn State>,
}

impl Piece {
    /// The plan says which shard it is, and is otherwise that of the state.
    pub(crate) fn new(plan: Plan, inner: Box<dyn State>) -> Piece {
        debug_assert_eq!(plan.without_shard(), *inner.plan());
        let (shard, shards) = plan.shard().expect("a plan for a shard");
        Piece { plan, shard: shard.into(), shards: shards.into(), inner }
    }

    /// What the kind sees of a digest; None if it belongs to another shard.
    #[inline]
    fn ours(&self, digest: Digest) -> Option<Digest> {
        let (shard, rest) = digest.pick(self.shards);
        (shard == self.shard).then_some(rest)
    }

    fn own(&self, digest: Digest) -> Result<Digest> {
        self.ours(digest).ok_or_else(|| Error::OtherShard {
            key_shard: digest.pick(self.shards).0 as u32,
            shard: self.shard as u32,
            shards: self.shards as u32,
        })
    }

    /// What the kind would see of digests, if all were ours.
    fn rests(&self, digests: &[Digest]) -> Vec<Digest> {
        digests.iter().map(|digest| digest.pick(self.shards).1).collect()
    }
}

impl Membership for Piece {
    fn contains_digest(&self, digest: Digest) -> bool {
        self.ours(digest).is_some_and(|rest| self.inner.contains_digest(rest))
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        let rest = self.own(digest)?;
        self.inner.insert_digest(rest)
    }

    fn prefetch(&self, digests: &[Digest]) {
        if let [digest] = digests {
            self.inner.prefetch(&[digest.pick(self.shards).1]);
        } else {
            self.inner.prefetch(&self.rests(digests));
        }
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        self.inner.contains_run(&self.rests(run), &self.rests(next), found);
        for (digest, found) in run.iter().zip(found) {
            *found &= self.ours(*digest).is_some();
        }
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        let foreign = run.iter().position(|digest| self.ours(*digest).is_none());
        let ours = &run[..foreign.unwrap_or(run.len())];
        let (rests, next) = (self.rests(ours), self.rests(next));
        self.inner.insert_run(&rests, &next, new)?;
        foreign.map_or(Ok(()), |at| self.own(run[at]).map(drop))
    }
}

impl State for Piece {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn measured(&self) -> &dyn Measured {
        self.inner.measured()
    }

    fn clear(&mut self) -> Result<()> {
        self.inner.clear()
    }

    fn copy(&self) -> Result<Box<dyn State>> {
        Ok(Box::new(Piece { inner: self.inner.copy()?, ..*self }))
    }

    fn same(&self, other: &dyn State) -> bool {
        self.inner.same(other.of::<Piece>().inner.as_ref())
    }

    fn unite(&mut self, other: &dyn State) -> Result<()> {
        self.inner.unite(other.of::<Piece>().inner.as_ref())
    }

    fn count(&self, digest: Digest) -> u64 {
        self.ours(digest).map_or(0, |rest| self.inner.count(rest))
    }

    fn check(&self, digest: Digest) -> Result<()> {
        self.inner.check(self.own(digest)?)
    }

    fn into_bits(self: Box<Self>) -> Option<Bits> {
        self.inner.into_bits()
    }

    fn expect(&self, order: Order) {
        self.inner.expect(order);
    }

    fn set_paging(&mut self, paging: Paging) {
        self.inner.set_paging(paging);
    }

    fn removable(&mut self) -> Option<&mut dyn Removable> {
        match self.inner.removable() {
            Some(_) => Some(self),
            None => None,
        }
    }

    fn intersecting(&mut self) -> Option<&mut dyn Intersecting> {
        match self.inner.intersecting() {
            Some(_) => Some(self),
            None => None,
        }
    }

    fn clocked(&mut self) -> Option<&mut dyn Clocked> {
        self.inner.clocked()
    }

    fn positioned(&self) -> Option<&dyn Positioned> {
        self.inner.positioned().map(|_| self as &dyn Positioned)
    }
}

impl Removable for Piece {
    fn remove(&mut self, digest: Digest) -> Result<bool> {
        let rest = self.own(digest)?;
        self.inner.removable().ok_or_else(|| cannot_remove(&self.plan))?.remove(rest)
    }
}

impl Intersecting for Piece {
    fn intersect(&mut self, other: &dyn State) -> Result<()> {
        let inner = self.inner.intersecting().ok_or_else(|| cannot_intersect(&self.plan))?;
        inner.intersect(other.of::<Piece>().inner.as_ref())
    }
}

impl Positioned for Piece {
    fn positions(&self, digest: Digest) -> Result<Vec<u64>> {
        let rest = self.own(digest)?;
        self.inner.positioned().ok_or_else(|| has_no_positions(&self.plan))?.positions(rest)
    }

    fn is_set(&self, position: u64) -> bool {
        self.inner.positioned().is_some_and(|inner| inner.is_set(position))
    }
}

#[cfg(test)]
mod tests;
