//! One filter for many threads: inserts and queries through `&self`.
//!
//! Kinds whose state is an array of cells (bitmap, classic, counting) are shared without locks. A
//! blocked filter has a lock in each of its lines, for writers only (`kinds/blocked/shared.rs`). A
//! scalable filter has a lock for each of its tables, see [`SharedScalable`]. The other kinds move
//! their entries. There a writer locks the whole filter, and readers share the lock. If that is too
//! slow, use several shards.
//!
//! **What holds.** Every query that starts after an insert has returned finds the key. "After"
//! means happens-before: the inserting thread notified the querying one in some way. Threads change
//! cells by atomic read-modify-write, or with the line locked, and only a removal lowers what its
//! own key has raised. So no change is lost. Relaxed ordering is enough, because a filter's cells
//! carry no other data.
//!
//! **What does not.** In a classic or counting filter [`SharedFilter::insert`] changes a key's
//! cells one by one. Several words cannot be updated in one atomic step. If two threads insert the
//! same new key at the same instant, each may change some of the cells, and both inserts return
//! "new". Where that matters, [`SharedFilter::insert_if_absent`] takes a lock that racing inserts
//! of one key share: exactly one of them returns "new", and only that one changes anything. Queries
//! never wait for the lock, nor do inserts of most other keys. In the other kinds exactly one
//! insert returns "new" in any case.
//!
//! **Clearing.** A filter that clears itself ([`Filter::set_auto_clear`]) has a gate, a lock that
//! inserts share. An insert that finds too many cells in use closes the gate, waits until the
//! inserts under way have returned, and empties the filter. So a clear and an insert never overlap.
//! All keys that were inserted before the clear are removed, and a key whose insert begins later is
//! kept. Queries do not pass the gate: a query that overlaps with a clear may still find an old
//! key. So may [`SharedFilter::insert_if_absent`]. It then changes nothing, as if it had run before
//! the clear.

use std::any::Any;
use std::fmt;
#[cfg(feature = "file")]
use std::path::Path;

use crate::digest::{Digest, Hasher};
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::filter::{Content, Filter, Texts};
use crate::kernels::Run;
use crate::kernels::lock::RESERVED;
use crate::key::AsKey;
use crate::kinds::blocked;
use crate::kinds::racing::Racing;
use crate::kinds::scalable::{Scalable, SharedScalable};
use crate::membership::{Membership, RUN, contains_keys, insert_keys};
use crate::plan::Plan;
use crate::state::{State, cannot_advance, cannot_remove};
use crate::storage::{Bits, Cells, Shared};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, RwLock, RwLockReadGuard, unpoisoned};

/// A filter for many threads, which insert and query at the same time.
///
/// # What holds
///
/// - **No key is lost.** A query that starts after an insert has returned finds the key. "After"
///   means happens-before: the inserting thread has notified the querying one, by a channel, a lock,
///   a join or an atomic.
/// - **`insert` returns `Ok(true)` to exactly one** of several threads that insert the same new key,
///   in all kinds but classic and counting. In those two, threads that insert it at the same instant
///   may all get `Ok(true)`.
/// - **[`SharedFilter::insert_if_absent`] returns `Ok(true)` to exactly one**, in every kind. The
///   other threads change nothing.
/// - A query that runs at the same time as an insert, a removal or a clear of its key may see it done
///   or not done.
///
/// # Who waits
///
/// | kind | an insert locks | a query waits |
/// |---|---|---|
/// | blocked | one cache line, or two | never |
/// | bitmap, classic, counting | nothing | never |
/// | scalable | one of its tables | never |
/// | cuckoo, window, sparse bitmap | the whole filter | for inserts |
///
/// Shards, growing filters, overlays and filters of other programs are locked as a whole. If that is
/// too slow, use several filters, and pick one by [`Digest::pick`]. Inserts into a filter that
/// [clears itself](Filter::set_auto_clear) also wait while it is cleared.
///
/// ```
/// use inbloom::{Filter, Kind, Plan};
///
/// let plan = Plan::builder(Kind::Blocked).items(10_000).build()?;
/// let shared = Filter::new(plan)?.into_shared()?;
/// std::thread::scope(|scope| {
///     for thread in 0..4u64 {
///         let shared = &shared;
///         scope.spawn(move || {
///             for i in 0..1000u64 {
///                 shared.insert((thread * 1000 + i).to_le_bytes()).unwrap();
///             }
///         });
///     }
/// });
/// let filter = shared.into_exclusive();
/// assert!((0..4000u64).all(|i| filter.contains(i.to_le_bytes())));
/// # Ok::<(), inbloom::Error>(())
/// ```
pub struct SharedFilter {
    plan: Plan,
    hasher: Hasher,
    content: SharedContent,
    inserted: Counter,
    texts: Texts,
    auto_clear: Option<Box<AutoClear>>,
    /// Locks that serialize [`SharedFilter::insert_if_absent`] and removals of one key. The key's
    /// digest picks the lock.
    locks: Box<[Mutex<()>]>,
}

/// When a filter clears itself.
struct AutoClear {
    share: f64,
    /// The largest number of cells in use at which the filter does not clear itself.
    most: u64,
    /// Inserts share it. The thread that clears the filter holds it alone.
    gate: RwLock<()>,
}

enum SharedContent {
    Words(Words),
    Scalable(Box<SharedScalable>),
    Locked(RwLock<Box<dyn State>>),
}

/// Cells that threads change word by word.
struct Words {
    shape: Racing,
    cells: Shared,
    ones: Counter,
}

/// Refuses a filter that clears itself, for types without a gate.
pub(crate) fn refuse_auto_clear(filter: &Filter) -> Result<()> {
    match filter.auto_clear() {
        None => Ok(()),
        Some(_) => Err(Error::Unsupported {
            kind: filter.plan().kind(),
            verb: "clear itself while it is shared",
            remedy: "switch auto-clear off, or keep the filter behind a lock",
        }),
    }
}

/// Locks of [`SharedFilter::insert_if_absent`]: far more than threads, so that two rarely meet.
const LOCKS: u64 = if cfg!(loom) { 2 } else { 256 };

impl SharedFilter {
    pub(crate) fn from_exclusive(filter: Filter) -> Result<SharedFilter> {
        if filter.shards().len() > 1 {
            refuse_auto_clear(&filter)?; // Each shard would clear itself alone.
        }
        let inserted = filter.inserted();
        let auto_clear = filter.auto_clear().map(|share| {
            Box::new(AutoClear { share, most: filter.auto_clear_ones(), gate: RwLock::new(()) })
        });
        let Filter { hasher, content, texts, .. } = filter;
        let state = content.into_state();
        let plan = *state.plan();
        // The words of a shard are those of a filter that sees what is left of a digest.
        let shape = match plan.shard() {
            Some(_) => None,
            None => (plan.kind().row().racing)(plan)?,
        };
        let content = match shape.filter(|_| state.measured().bits().is_some()) {
            Some(shape) => {
                let bits = state.into_bits().expect("just seen");
                let cells = match shape {
                    Racing::Blocked(_) => blocked::share(bits.cells)?,
                    _ => bits.cells.into_shared()?,
                };
                SharedContent::Words(Words { shape, cells, ones: Counter::new(bits.ones) })
            }
            None if (state.as_ref() as &dyn Any).is::<Scalable>() => {
                SharedContent::Scalable(Box::new(SharedScalable::from_state(state)?))
            }
            // What is open read-only has to be copied, as above; but not what takes no inserts.
            None if state.measured().is_read_only() && !plan.kind().is_static() => {
                SharedContent::Locked(RwLock::new(state.copy()?))
            }
            None => SharedContent::Locked(RwLock::new(state)),
        };
        Ok(SharedFilter {
            plan,
            hasher,
            content,
            inserted: Counter::new(inserted),
            texts,
            auto_clear,
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
        })
    }

    /// Turns the filter back into a [`Filter`], without copying. It consumes the only handle, so no
    /// other thread can use the filter any more. Behind an `Arc`, use `Arc::into_inner` first.
    #[must_use]
    pub fn into_exclusive(self) -> Filter {
        let content = match self.content {
            SharedContent::Words(Words { cells, ones, .. }) => {
                let cells = cells.into_cells().expect("memory that is ours already");
                Content::with_bits(self.plan, Bits { cells, ones: ones.total() })
            }
            SharedContent::Scalable(scalable) => Content::other(scalable.into_scalable()),
            SharedContent::Locked(lock) => Content::from_state(unpoisoned(lock.into_inner())),
        };
        Filter {
            hasher: self.hasher,
            content,
            inserted: self.inserted.total(),
            auto_clear: self.auto_clear.map(|auto| auto.share),
            texts: self.texts,
        }
    }

    /// Inserts a key. `Ok(true)`: it is certainly new. In a classic or counting filter, another
    /// thread that inserts the key at the same instant may get the same result: see
    /// [above](SharedFilter#what-holds).
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::insert`] does.
    pub fn insert(&self, key: impl AsKey) -> Result<bool> {
        match self.hasher.pair(&key) {
            None => self.insert_digest(self.hasher.digest(key)),
            Some(pair) => self.insert_pair(pair),
        }
    }

    /// Inserts a key that two digests stand for.
    fn insert_pair(&self, pair: [Digest; 2]) -> Result<bool> {
        let mut new = Vec::with_capacity(1);
        (&mut &*self).insert_run(&pair, &[], &mut new)?;
        Ok(new == [true])
    }

    /// Inserts a key unless it is probably present, as [`Filter::insert_if_absent`] does. If
    /// several threads insert a new key at once through this call, exactly one gets `Ok(true)`. The
    /// others change nothing, so a counting or cuckoo filter has the key once.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::insert`] does.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::{Filter, Kind, Plan};
    ///
    /// let plan = Plan::builder(Kind::Cuckoo).items(1000).build()?;
    /// let seen = Filter::new(plan)?.into_shared()?;
    /// let new: usize = std::thread::scope(|scope| {
    ///     let threads = [(); 4].map(|()| scope.spawn(|| seen.insert_if_absent("alice").unwrap()));
    ///     threads.map(|thread| usize::from(thread.join().unwrap())).iter().sum()
    /// });
    /// assert_eq!((new, seen.count("alice")), (1, 1));
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn insert_if_absent(&self, key: impl AsKey) -> Result<bool> {
        if let Some(pair) = self.hasher.pair(&key) {
            return self.insert_pair(pair); // Behind a lock, and without copies.
        }
        self.insert_digest_if_absent(self.hasher.digest(key))
    }

    /// Removes a key. Remove only keys that were inserted: see [`Filter::remove`]. When the key is
    /// absent from a counting filter, the call undoes what it has done. Until then, the filter may
    /// report other keys as absent for an instant.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::remove`] does.
    pub fn remove(&self, key: impl AsKey) -> Result<bool> {
        self.remove_digest(self.hasher.digest(key))
    }

    /// Returns how many copies of a key the filter holds: see [`Filter::count`].
    #[must_use]
    pub fn count(&self, key: impl AsKey) -> u64 {
        if self.hasher.digests_per_key() != 1 {
            return u64::from(self.contains(key));
        }
        let digest = self.hasher.digest(key);
        match &self.content {
            SharedContent::Words(Words { shape: Racing::Counting(counting), cells, .. }) => {
                counting.count(cells.words(), digest)
            }
            SharedContent::Words(_) | SharedContent::Scalable(_) => {
                u64::from(self.contains_digest(digest))
            }
            SharedContent::Locked(lock) => unpoisoned(lock.read()).count(digest),
        }
    }

    /// Returns whether a key may have been inserted: false is certain, true is probable.
    #[must_use]
    pub fn contains(&self, key: impl AsKey) -> bool {
        match self.hasher.pair(&key) {
            None => self.contains_digest(self.hasher.digest(key)),
            Some(pair) => {
                let mut found = [false];
                (&self).contains_run(&pair, &[], &mut found);
                found[0]
            }
        }
    }

    /// Inserts many keys, in order, as [`SharedFilter::insert`] does. `new` is emptied first.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::insert_many`] does.
    pub fn insert_many<K: AsKey>(&self, keys: &[K], new: &mut Vec<bool>) -> Result<()> {
        insert_keys(&mut &*self, &self.hasher, keys, new)
    }

    /// Queries many keys, in order, as [`SharedFilter::contains`] does. `found` is emptied first.
    pub fn contains_many<K: AsKey>(&self, keys: &[K], found: &mut Vec<bool>) {
        contains_keys(&self, &self.hasher, keys, found);
    }

    /// Does the same as [`SharedFilter::insert`], for a key that is hashed already.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::insert`] does.
    pub fn insert_digest(&self, digest: Digest) -> Result<bool> {
        let _gate = self.make_room(digest)?;
        self.insert_inside(digest)
    }

    /// Inserts a digest. The caller has passed the gate.
    fn insert_inside(&self, digest: Digest) -> Result<bool> {
        let new = match &self.content {
            SharedContent::Words(words) => words.insert(digest)?,
            SharedContent::Scalable(scalable) => scalable.insert(digest)?,
            SharedContent::Locked(lock) => unpoisoned(lock.write()).insert_digest(digest)?,
        };
        if new {
            self.inserted.add(1);
        }
        Ok(new)
    }

    /// Does the same as [`SharedFilter::remove`], for a key that is hashed already.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::remove`] does.
    pub fn remove_digest(&self, digest: Digest) -> Result<bool> {
        let (removed, is_left) = match &self.content {
            SharedContent::Words(words) => {
                // Two threads that took out one key at once could lower what is others' for an instant.
                let _guard = self.lock_of(digest);
                (words.remove(&self.plan, digest)?, words.contains(digest))
            }
            SharedContent::Scalable(_) => return Err(cannot_remove(&self.plan)),
            SharedContent::Locked(lock) => {
                let mut state = unpoisoned(lock.write());
                let removable = state.removable().ok_or_else(|| cannot_remove(&self.plan))?;
                (removable.remove(digest)?, state.contains_digest(digest))
            }
        };
        if removed && !is_left {
            self.inserted.change(-1);
        }
        Ok(removed)
    }

    /// Sets the clock of a window: see [`Filter::advance`].
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::advance`] does.
    pub fn advance(&self, now: u64) -> Result<()> {
        match &self.content {
            SharedContent::Words(_) | SharedContent::Scalable(_) => Err(cannot_advance(&self.plan)),
            SharedContent::Locked(lock) => {
                let mut state = unpoisoned(lock.write());
                state.clocked().ok_or_else(|| cannot_advance(&self.plan))?.advance(now)
            }
        }
    }

    /// Does the same as [`SharedFilter::insert_if_absent`], for a key that is hashed already.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::insert`] does.
    pub fn insert_digest_if_absent(&self, digest: Digest) -> Result<bool> {
        // Most inserts in a stream with repetitions end here.
        if self.contains_digest(digest) {
            return Ok(false);
        }
        let _gate = self.make_room(digest)?;
        match &self.content {
            // One word, the locks of the lines, or the lock of the table elect one winner; the
            // others change nothing.
            SharedContent::Words(Words {
                shape: Racing::Blocked(_) | Racing::Bitmap(_), ..
            })
            | SharedContent::Scalable(_) => self.insert_inside(digest),
            SharedContent::Words(_) => {
                let _guard = self.lock_of(digest);
                if self.contains_digest(digest) {
                    return Ok(false);
                }
                self.insert_inside(digest)
            }
            SharedContent::Locked(lock) => {
                let mut state = unpoisoned(lock.write());
                let new = !state.contains_digest(digest) && state.insert_digest(digest)?;
                self.inserted.add(u64::from(new));
                Ok(new)
            }
        }
    }

    /// Passes the gate of a filter that clears itself. Clears a filter that is too full first,
    /// unless it would refuse the digest. An insert holds the returned guard until it is done.
    #[inline]
    fn make_room(&self, digest: Digest) -> Result<Option<RwLockReadGuard<'_, ()>>> {
        match &self.auto_clear {
            None => Ok(None),
            Some(auto) => self.pass(auto, digest).map(Some),
        }
    }

    #[inline(never)]
    fn pass<'a>(&'a self, auto: &'a AutoClear, digest: Digest) -> Result<RwLockReadGuard<'a, ()>> {
        loop {
            let gate = unpoisoned(auto.gate.read());
            if self.occupied() <= auto.most {
                return Ok(gate);
            }
            drop(gate);
            match &self.content {
                SharedContent::Words(words) => words.check(digest)?,
                SharedContent::Scalable(_) => {}
                SharedContent::Locked(lock) => unpoisoned(lock.read()).check(digest)?,
            }
            let _alone = unpoisoned(auto.gate.write());
            // Another thread may have cleared it meanwhile.
            if self.occupied() > auto.most {
                self.clear_inside()?;
            }
        }
    }

    /// The lock guards no data, so a thread that panicked while holding it has broken nothing.
    fn lock_of(&self, digest: Digest) -> MutexGuard<'_, ()> {
        unpoisoned(self.locks[digest.pick(LOCKS).0 as usize].lock())
    }

    /// Stops removals until the guards are dropped, in the kinds where a removal changes several
    /// words one by one. This call takes the locks in order, and no other code takes two of them.
    fn stop_removals(&self) -> Vec<MutexGuard<'_, ()>> {
        match &self.content {
            SharedContent::Words(Words { shape: Racing::Counting(_), .. }) => {
                self.locks.iter().map(|lock| unpoisoned(lock.lock())).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Copies the filter while other threads continue. The copy has every key that an insert
    /// returned for before the call, and some of those that are inserted meanwhile.
    ///
    /// Inserts wait in the kinds in which a writer locks the whole filter. In a scalable filter,
    /// they wait while their table is copied.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Memory`] if there is no memory for a second copy.
    pub fn snapshot(&self) -> Result<Filter> {
        let _gate = self.auto_clear.as_ref().map(|auto| unpoisoned(auto.gate.read()));
        let mut filter = match &self.content {
            SharedContent::Words(words) => {
                let _guards = self.stop_removals();
                let inserted = self.inserted.total();
                Filter::from_parts(self.hasher, words.copy(&self.plan)?, inserted)
            }
            SharedContent::Scalable(scalable) => scalable.snapshot(self.hasher)?,
            SharedContent::Locked(lock) => {
                let state = unpoisoned(lock.read());
                let inserted = self.inserted.total();
                Filter::from_parts(self.hasher, Content::from_state(state.copy()?), inserted)
            }
        };
        filter.texts = self.texts.clone();
        filter.auto_clear = self.auto_clear.as_ref().map(|auto| auto.share);
        Ok(filter)
    }

    /// Saves a [snapshot](SharedFilter::snapshot) to a file, as [`Filter::save`] does, while other
    /// threads continue.
    ///
    /// # Errors
    ///
    /// Fails as [`SharedFilter::snapshot`] and [`Filter::save`] do.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::{Filter, Kind, Plan};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("seen.ib");
    /// let seen = Filter::new(Plan::builder(Kind::Blocked).items(1000).build()?)?.into_shared()?;
    /// seen.insert("alice")?;
    /// seen.save(&path)?;
    /// assert!(Filter::open(&path)?.contains("alice"));
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    #[cfg(feature = "file")]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.snapshot()?.save(path)
    }

    /// Removes every key that was inserted before the call. The note, the normalization and the key
    /// encoding stay.
    ///
    /// A key that is inserted during the call may be lost or present. Insert it again after the
    /// call, and do not remove it before. If your program must not lose such keys, put the filter
    /// behind a lock. A filter that clears itself has such a lock, and keeps the keys that are
    /// inserted after the clearing began.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::clear`] does.
    pub fn clear(&self) -> Result<()> {
        let _alone = self.auto_clear.as_ref().map(|auto| unpoisoned(auto.gate.write()));
        self.clear_inside()
    }

    /// Clears behind the gate, if there is one.
    fn clear_inside(&self) -> Result<()> {
        let _guards = self.stop_removals();
        match &self.content {
            SharedContent::Words(words) => {
                words.clear();
                if self.auto_clear.is_some() {
                    // Nobody inserts now. The count began as a file has it, which may be wrong, and
                    // a filter that stayed full by it would be cleared without end.
                    words.ones.reset();
                }
            }
            SharedContent::Scalable(scalable) => scalable.clear()?,
            SharedContent::Locked(lock) => {
                let mut state = unpoisoned(lock.write());
                state.clear()?;
                // While nobody can insert.
                self.inserted.reset();
                return Ok(());
            }
        }
        self.inserted.reset();
        Ok(())
    }

    /// Does the same as [`SharedFilter::contains`], for a key that is hashed already.
    #[must_use]
    pub fn contains_digest(&self, digest: Digest) -> bool {
        match &self.content {
            SharedContent::Words(words) => words.contains(digest),
            SharedContent::Scalable(scalable) => scalable.contains(digest),
            SharedContent::Locked(lock) => unpoisoned(lock.read()).contains_digest(digest),
        }
    }

    /// Does the same as [`SharedFilter::insert_many`], for keys that are hashed already.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::insert_many`] does.
    pub fn insert_digests(&self, digests: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        Membership::insert_digests(&mut &*self, digests, new)
    }

    /// Does the same as [`SharedFilter::contains_many`], for keys that are hashed already.
    pub fn contains_digests(&self, digests: &[Digest], found: &mut Vec<bool>) {
        let width = self.hasher.digests_per_key();
        if width == 1 {
            return Membership::contains_digests(&self, digests, found);
        }
        found.clear();
        found.resize(digests.len() / width, false);
        let mut runs = digests.chunks(RUN * width).peekable();
        (&self).prefetch(runs.peek().copied().unwrap_or_default());
        for found in found.chunks_mut(RUN) {
            let run = runs.next().expect("a run for each chunk of results");
            (&self).contains_run(run, runs.peek().copied().unwrap_or_default(), found);
        }
        // Half of a key's digests cannot tell that it is absent.
        found.resize(digests.len().div_ceil(width), true);
    }

    /// Returns the plan: the sizes of the filter and its target rate.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the hash of the filter.
    #[must_use]
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// Returns the number of occupied slots. It is exact while no insert is under way.
    #[must_use]
    pub fn occupied(&self) -> u64 {
        match &self.content {
            SharedContent::Words(words) => words.ones.total(),
            SharedContent::Scalable(scalable) => scalable.occupied(),
            SharedContent::Locked(lock) => unpoisoned(lock.read()).measured().occupied(),
        }
    }

    /// Returns the share of occupied slots, from 0 to 1.
    #[must_use]
    pub fn fill(&self) -> f64 {
        match &self.content {
            SharedContent::Words(words) => self.plan.fill_of(words.ones.total()),
            SharedContent::Scalable(scalable) => scalable.fill(),
            SharedContent::Locked(lock) => unpoisoned(lock.read()).measured().fill(),
        }
    }

    /// Returns how many inserts reported a new key, less the keys that were removed.
    #[must_use]
    pub fn inserted(&self) -> u64 {
        self.inserted.total()
    }

    /// Estimates how many distinct keys were inserted: see [`Filter::estimated_items`].
    #[must_use]
    pub fn estimated_items(&self) -> Estimate {
        match &self.content {
            SharedContent::Words(words) => self.plan.estimate(words.ones.total()),
            SharedContent::Scalable(scalable) => scalable.estimated_items(),
            SharedContent::Locked(lock) => {
                unpoisoned(lock.read()).measured().estimate(Some(self.inserted.total()))
            }
        }
    }

    /// Returns the current false-positive rate, from the slots that are occupied.
    #[must_use]
    pub fn rate(&self) -> f64 {
        match &self.content {
            SharedContent::Words(_) => self.plan.rate_at_fill(self.fill()),
            SharedContent::Scalable(scalable) => scalable.rate(),
            SharedContent::Locked(lock) => unpoisoned(lock.read()).measured().rate(),
        }
    }
}

impl fmt::Debug for SharedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedFilter")
            .field("plan", &self.plan)
            .field("hasher", &self.hasher)
            .field("inserted", &self.inserted())
            .field("ones", &self.occupied())
            .finish_non_exhaustive()
    }
}

impl Words {
    /// Returns the cells as a filter of one thread, without the locks of lines.
    fn copy(&self, plan: &Plan) -> Result<Content> {
        let words = self.cells.words();
        let mut cells = Cells::zeroed(words.len() as u64 * 8)?;
        let is_blocked = matches!(self.shape, Racing::Blocked(_));
        for (at, (bytes, word)) in cells.bytes_mut()?.chunks_exact_mut(8).zip(words).enumerate() {
            let locks = if is_blocked && at % 8 == 7 { RESERVED } else { 0 };
            bytes.copy_from_slice(&(word.load(Ordering::Relaxed) & !locks).to_ne_bytes());
        }
        let content = Content::with_bits(*plan, Bits { cells, ones: 0 });
        // A file that nobody has verified may have bits that no key sets: then what it says counts.
        let ones = content.measured().recount().unwrap_or_else(|| self.ones.total());
        let cells = content.into_state().into_bits().expect("cells are all there is").cells;
        Ok(Content::with_bits(*plan, Bits { cells, ones }))
    }

    /// Empties all cells, and counts those that were in use.
    fn clear(&self) {
        let words = self.cells.words();
        let emptied = match &self.shape {
            Racing::Bitmap(_) | Racing::Classic(_) => empty(words, |word| word),
            Racing::Blocked(blocked) => blocked.clear(words),
            Racing::Counting(counting) => empty(words, |word| counting.above_zero(word)),
        };
        self.ones.change(-(emptied as i64));
    }

    /// Returns the error of an insert, if it would be refused.
    fn check(&self, digest: Digest) -> Result<()> {
        match &self.shape {
            Racing::Bitmap(bitmap) => bitmap.check(digest),
            Racing::Classic(_) | Racing::Blocked(_) | Racing::Counting(_) => Ok(()),
        }
    }

    fn contains(&self, digest: Digest) -> bool {
        let words = self.cells.words();
        match &self.shape {
            Racing::Bitmap(bitmap) => bitmap.contains(words, digest),
            Racing::Classic(classic) => classic.contains(words, digest),
            Racing::Blocked(blocked) => blocked.contains(words, digest),
            Racing::Counting(counting) => counting.contains(words, digest),
        }
    }

    /// Inserts a digest, and returns whether any of its cells was free before.
    fn insert(&self, digest: Digest) -> Result<bool> {
        let words = self.cells.words();
        let taken = match &self.shape {
            Racing::Bitmap(bitmap) => bitmap.insert(words, digest)?,
            Racing::Classic(classic) => classic.insert(words, digest),
            Racing::Blocked(blocked) => blocked.insert(words, digest),
            Racing::Counting(counting) => counting.insert(words, digest),
        };
        if taken != 0 {
            self.ones.add(u64::from(taken));
        }
        Ok(taken != 0)
    }

    fn remove(&self, plan: &Plan, digest: Digest) -> Result<bool> {
        let words = self.cells.words();
        let (removed, change) = match &self.shape {
            Racing::Bitmap(bitmap) => bitmap.remove(words, digest),
            Racing::Counting(counting) => counting.remove(words, digest),
            Racing::Classic(_) | Racing::Blocked(_) => return Err(cannot_remove(plan)),
        };
        self.ones.change(i64::from(change));
        Ok(removed)
    }
}

/// A handle is enough to insert, as a `&File` is enough to write.
impl Membership for &SharedFilter {
    fn contains_digest(&self, digest: Digest) -> bool {
        SharedFilter::contains_digest(self, digest)
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        SharedFilter::insert_digest(self, digest)
    }

    fn prefetch(&self, digests: &[Digest]) {
        self.contains_run(&[], digests, &mut []);
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        let run = Run { keys: run, next };
        match &self.content {
            SharedContent::Words(Words { shape, cells, .. }) => match shape {
                Racing::Bitmap(bitmap) => {
                    for (digest, found) in run.keys.iter().zip(found) {
                        *found = bitmap.contains(cells.words(), *digest);
                    }
                }
                Racing::Classic(classic) => classic.contains_run(cells.words(), run, found),
                Racing::Blocked(blocked) => blocked.contains_run(cells.words(), run, found),
                Racing::Counting(counting) => counting.contains_run(cells.words(), run, found),
            },
            SharedContent::Scalable(scalable) => {
                (&**scalable).contains_run(run.keys, run.next, found)
            }
            SharedContent::Locked(lock) => {
                unpoisoned(lock.read()).contains_run(run.keys, run.next, found);
            }
        }
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        let Some(auto) = &self.auto_clear else { return self.insert_run_inside(run, next, new) };
        let mut rest = run;
        while let Some(first) = rest.first() {
            let _gate = self.pass(auto, *first)?;
            let sure = auto.sure(&self.plan, self.occupied());
            let sure = sure.saturating_mul(self.hasher.digests_per_key()).min(rest.len());
            let (now, later) = rest.split_at(sure);
            self.insert_run_inside(now, if later.is_empty() { next } else { later }, new)?;
            rest = later;
        }
        Ok(())
    }
}

impl AutoClear {
    /// Returns how many keys can be inserted before the filter can pass its limit, whatever they
    /// set; at least one. So one thread gets the same results as from single inserts.
    fn sure(&self, plan: &Plan, occupied: u64) -> usize {
        let room = self.most.saturating_sub(occupied);
        (room / u64::from(plan.probes())).max(1) as usize
    }
}

impl SharedFilter {
    /// Inserts a run that has passed the gate.
    fn insert_run_inside(
        &self,
        run: &[Digest],
        next: &[Digest],
        new: &mut Vec<bool>,
    ) -> Result<()> {
        let before = new.len();
        let result = match &self.content {
            SharedContent::Words(words) => words.insert_run(Run { keys: run, next }, new),
            SharedContent::Scalable(scalable) => (&mut &**scalable).insert_run(run, next, new),
            SharedContent::Locked(lock) => unpoisoned(lock.write()).insert_run(run, next, new),
        };
        // The counters are shared too: one addition for a run.
        self.inserted.add(new[before..].iter().map(|new| u64::from(*new)).sum());
        result
    }
}

impl Words {
    fn insert_run(&self, run: Run<'_>, new: &mut Vec<bool>) -> Result<()> {
        let mut ones = 0;
        let mut done = |taken| {
            ones += u64::from(taken);
            new.push(taken != 0);
        };
        let words = self.cells.words();
        let result = match &self.shape {
            Racing::Bitmap(bitmap) => run.keys.iter().try_for_each(|digest| {
                done(bitmap.insert(words, *digest)?);
                Ok(())
            }),
            Racing::Classic(classic) => {
                classic.insert_run(words, run, done);
                Ok(())
            }
            Racing::Blocked(blocked) => {
                ones = blocked.insert_run(words, run, new);
                Ok(())
            }
            Racing::Counting(counting) => {
                counting.insert_run(words, run, done);
                Ok(())
            }
        };
        self.ones.add(ones);
        result
    }
}

/// Empties words, and returns how many cells were in use. `marks` has one bit for each cell in use.
fn empty(words: &[AtomicU64], marks: impl Fn(u64) -> u64) -> u64 {
    let emptied = words.iter().map(|word| u64::from_le(word.swap(0, Ordering::Relaxed)));
    emptied.map(|word| u64::from(marks(word).count_ones())).sum()
}

/// A number that many threads add to. Most of the time each thread adds to a stripe of its own, so
/// the threads do not contend for one cache line.
struct Counter {
    stripes: Box<[Stripe]>,
}

#[repr(align(64))]
struct Stripe(AtomicU64);

const STRIPES: usize = if cfg!(loom) { 1 } else { 16 };

impl Counter {
    fn new(start: u64) -> Counter {
        let stripes =
            (0..STRIPES as u64).map(|i| Stripe(AtomicU64::new(if i == 0 { start } else { 0 })));
        Counter { stripes: stripes.collect() }
    }

    fn add(&self, amount: u64) {
        self.stripes[stripe()].0.fetch_add(amount, Ordering::Relaxed);
    }

    /// A stripe may fall below zero, that is, wrap around.
    fn change(&self, amount: i64) {
        self.add(amount as u64);
    }

    fn reset(&self) {
        self.stripes.iter().for_each(|stripe| stripe.0.store(0, Ordering::Relaxed));
    }

    fn total(&self) -> u64 {
        let stripes = self.stripes.iter().map(|stripe| stripe.0.load(Ordering::Relaxed));
        // Below zero if more keys were removed than were reported as new: some were taken for
        // others.
        let total = stripes.fold(0, u64::wrapping_add);
        if total > i64::MAX as u64 { 0 } else { total }
    }
}

/// Returns the stripe of this thread: threads take them in turn.
#[cfg(not(loom))]
fn stripe() -> usize {
    use std::sync::atomic::AtomicUsize;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static STRIPE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
    STRIPE.with(|stripe| *stripe)
}

#[cfg(loom)]
fn stripe() -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Content;
    use crate::kind::Kind;
    use crate::storage::Cells;

    /// The count of a file that is opened without being verified may be anything.
    #[test]
    fn a_wrong_count_of_cells_ends_with_the_first_clearing() {
        for kind in [Kind::Bitmap, Kind::Classic, Kind::Blocked, Kind::Counting] {
            let builder = Plan::builder(kind);
            let plan = match kind {
                Kind::Bitmap => builder.universe(1000).build().unwrap(),
                _ => builder.items(1000).build().unwrap(),
            };
            let mut filter = Filter::new(plan).unwrap();
            let cells = Cells::zeroed(plan.bytes()).unwrap();
            filter.content = Content::from_cells(plan, cells, plan.cells() * 9 / 10).unwrap();
            filter.set_auto_clear(Some(0.5)).unwrap();
            let shared = filter.into_shared().unwrap();
            assert!(shared.insert(7_u64).unwrap(), "{kind}");
            assert!(shared.contains(7_u64) && !shared.contains(8_u64), "{kind}");
        }
    }
}
