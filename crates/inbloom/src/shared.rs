//! One filter for many threads: inserts and queries through `&self`, without locks.
//!
//! **What holds.** A key whose insert has returned is found by every query that starts later, in the
//! sense of happens-before: the inserting thread told the querying one, by whatever means. Bits are
//! set by atomic read-modify-write and never unset while the filter is shared, so that nothing is
//! lost, and relaxed ordering is enough: a filter's bits carry no other data.
//!
//! **What does not.** [`SharedFilter::insert`] sets a key's bits one by one. Of two threads that
//! insert the same new key at the same instant, each may set some of the words, and both are told
//! "new". (No order of atomic operations on several words can elect one winner without more.) Where
//! that matters, [`SharedFilter::insert_once`] takes a lock that racing inserts of one key share:
//! exactly one of them is told "new". Queries never wait for it, nor do inserts of most other keys.

use crate::cells::Shared;
use crate::digest::{Digest, Hasher};
use crate::error::{Error, Result};
use crate::filter::{Any, Estimate, Filter, Texts, estimate};
use crate::kinds::{bitmap, blocked, classic};
use crate::membership::{Membership, contains_keys, insert_keys};
use crate::plan::{Kind, Plan};
use crate::simd::Run;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// A filter that many threads insert into and query at once.
///
/// ```
/// use inbloom::{Filter, Kind, Plan};
///
/// let plan = Plan::new(Kind::Blocked).items(10_000).build()?;
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
    shape: Shape,
    cells: Shared,
    ones: Counter,
    inserted: Counter,
    texts: Texts,
    /// Serialise [`SharedFilter::insert_once`] of one key: its digest picks the lock.
    locks: Box<[Mutex<()>]>,
}

enum Shape {
    Bitmap(bitmap::Racing),
    Classic(classic::Racing),
    Blocked(blocked::Racing),
}

/// Locks of [`SharedFilter::insert_once`]: far more than threads, so that two rarely meet.
const LOCKS: u64 = if cfg!(loom) { 2 } else { 256 };

impl SharedFilter {
    pub(crate) fn from_exclusive(filter: Filter) -> Result<SharedFilter> {
        let refused =
            |verb, remedy| Err(Error::Unsupported { kind: filter.plan().kind(), verb, remedy });
        if filter.auto_clear.is_some() {
            let remedy = "a key inserted while another thread clears could be lost; switch \
                          auto-clear off, or keep the filter behind a lock";
            return refused("clear itself while it is shared", remedy);
        }
        if filter.any.bits().is_none() {
            let remedy = "plan it dense, by giving items close to the universe";
            return refused("be shared while it is sparse", remedy);
        }
        let Filter { hasher, any, inserted, auto_clear: _, texts } = filter;
        let (plan, bits) = any.into_bits().expect("just checked");
        let shape = match plan.kind() {
            Kind::Bitmap => Shape::Bitmap(bitmap::Racing::new(&plan)),
            Kind::Classic => Shape::Classic(classic::Racing::new(&plan)),
            Kind::Blocked => Shape::Blocked(blocked::Racing::new(&plan)),
        };
        Ok(SharedFilter {
            plan,
            hasher,
            shape,
            cells: bits.cells.into_shared()?,
            ones: Counter::new(bits.ones),
            inserted: Counter::new(inserted),
            texts,
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
        })
    }

    /// Turns the filter back, without copying. It takes the only handle, so that no thread is still
    /// at it: behind an `Arc`, use `Arc::into_inner` first.
    #[must_use]
    pub fn into_exclusive(self) -> Filter {
        let bits = crate::cells::Bits {
            cells: self.cells.into_cells().expect("memory that is ours already"),
            ones: self.ones.total(),
        };
        Filter {
            hasher: self.hasher,
            any: Any::with_bits(self.plan, bits),
            inserted: self.inserted.total(),
            auto_clear: None,
            texts: self.texts,
        }
    }

    /// Records a key. `Ok(true)`: it is certainly new, though another thread that inserts it at this
    /// very instant may be told the same. Refused only if a bitmap cannot hold the key.
    pub fn insert(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.insert_digest(self.hasher.digest(key))
    }

    /// Records a key. Of several threads that insert a new key at once through this call, exactly one
    /// is told `Ok(true)`.
    pub fn insert_once(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.insert_digest_once(self.hasher.digest(key))
    }

    /// Whether a key may have been inserted: false is certain, true is probable.
    #[must_use]
    pub fn contains(&self, key: impl AsRef<[u8]>) -> bool {
        self.contains_digest(self.hasher.digest(key))
    }

    /// [`SharedFilter::insert`] for many keys, in order. `new` is emptied first.
    pub fn insert_many<K: AsRef<[u8]>>(&self, keys: &[K], new: &mut Vec<bool>) -> Result<()> {
        insert_keys(&mut &*self, &self.hasher, keys, new)
    }

    /// [`SharedFilter::contains`] for many keys, in order. `found` is emptied first.
    pub fn contains_many<K: AsRef<[u8]>>(&self, keys: &[K], found: &mut Vec<bool>) {
        contains_keys(&self, &self.hasher, keys, found);
    }

    /// [`SharedFilter::insert`] for a key that is hashed already.
    pub fn insert_digest(&self, digest: Digest) -> Result<bool> {
        let changed = self.set(digest)?;
        if changed != 0 {
            self.ones.add(u64::from(changed));
            self.inserted.add(1);
        }
        Ok(changed != 0)
    }

    /// [`SharedFilter::insert_once`] for a key that is hashed already.
    pub fn insert_digest_once(&self, digest: Digest) -> Result<bool> {
        // Most inserts in a stream with repetitions end here.
        if self.contains_digest(digest) {
            return Ok(false);
        }
        let lock = &self.locks[digest.pick(LOCKS).0 as usize];
        // The lock guards no data, so a thread that panicked while holding it has broken nothing.
        let _guard = lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.insert_digest(digest)
    }

    /// [`SharedFilter::contains`] for a key that is hashed already.
    #[must_use]
    pub fn contains_digest(&self, digest: Digest) -> bool {
        match &self.shape {
            Shape::Bitmap(bitmap) => bitmap.contains(self.cells.words(), digest),
            Shape::Classic(classic) => classic.contains(self.cells.words(), digest),
            Shape::Blocked(blocked) => blocked.contains(self.cells.words(), digest),
        }
    }

    /// [`SharedFilter::insert_many`] for keys that are hashed already.
    pub fn insert_digests(&self, digests: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        Membership::insert_digests(&mut &*self, digests, new)
    }

    /// [`SharedFilter::contains_many`] for keys that are hashed already.
    pub fn contains_digests(&self, digests: &[Digest], found: &mut Vec<bool>) {
        Membership::contains_digests(&self, digests, found);
    }

    /// Sets the digest's bits and returns how many of them this call has set.
    fn set(&self, digest: Digest) -> Result<u32> {
        match &self.shape {
            Shape::Bitmap(bitmap) => bitmap.insert(self.cells.words(), digest),
            Shape::Classic(classic) => Ok(classic.insert(self.cells.words(), digest)),
            Shape::Blocked(blocked) => Ok(blocked.insert(self.cells.words(), digest)),
        }
    }

    /// The shape of the filter and what it promises.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The hash of the filter.
    #[must_use]
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// The number of bits that are set: exact whenever no insert is under way.
    #[must_use]
    pub fn ones(&self) -> u64 {
        self.ones.total()
    }

    /// The share of bits that are set, from 0 to 1.
    #[must_use]
    pub fn fill(&self) -> f64 {
        self.ones() as f64 / self.plan.usable_bits() as f64
    }

    /// How many inserts were told "new".
    #[must_use]
    pub fn inserted(&self) -> u64 {
        self.inserted.total()
    }

    /// How many distinct keys the set bits speak for.
    #[must_use]
    pub fn estimated_items(&self) -> Estimate {
        estimate(&self.plan, self.ones())
    }

    /// The rate at which a foreign key is claimed now, from the bits that are really set.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.plan.rate_at_fill(self.fill())
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
        let (words, keys) = (self.cells.words(), run);
        match &self.shape {
            Shape::Bitmap(bitmap) => {
                for (digest, found) in run.iter().zip(found) {
                    *found = bitmap.contains(words, *digest);
                }
            }
            Shape::Classic(classic) => classic.contains_run(words, Run { keys, next }, found),
            Shape::Blocked(blocked) => blocked.contains_run(words, Run { keys, next }, found),
        }
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        // The counters are shared too: one addition for a run.
        let (mut ones, mut inserted) = (0, 0);
        let mut done = |changed| {
            ones += u64::from(changed);
            inserted += u64::from(changed != 0);
            new.push(changed != 0);
        };
        let (words, keys) = (self.cells.words(), run);
        let result = match &self.shape {
            Shape::Bitmap(bitmap) => keys.iter().try_for_each(|digest| {
                done(bitmap.insert(words, *digest)?);
                Ok(())
            }),
            Shape::Classic(classic) => {
                classic.insert_run(words, Run { keys, next }, done);
                Ok(())
            }
            Shape::Blocked(blocked) => {
                blocked.insert_run(words, Run { keys, next }, done);
                Ok(())
            }
        };
        self.ones.add(ones);
        self.inserted.add(inserted);
        result
    }
}

/// A number that many threads add to: each thread to a stripe of its own, most of the time, so that
/// they do not pass one cache line back and forth.
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

    fn total(&self) -> u64 {
        self.stripes.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

/// The stripe of this thread: threads take them in turn.
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
