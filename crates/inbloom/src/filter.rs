//! The filter of the public interface: content of some kind, its hash, and what is known about it.

mod content;
mod merge;
mod parts;
#[cfg(feature = "serde")]
mod serde;
mod shards;
#[cfg(feature = "std")]
mod shared_kinds;
mod texts;
mod view;

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

use crate::compose::grown;
use crate::compose::sharded::Sharded;
use crate::digest::{Digest, Hasher, Scheme};
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::key::AsKey;
use crate::kind::Kind;
use crate::kinds::bitmap::Bitmap;
use crate::kinds::ribbon::Ribbon;
use crate::kinds::window::{Window, WindowStep};
use crate::membership::{Membership, contains_keys, insert_keys};
use crate::memory::allocated;
use crate::paging::Paging;
use crate::plan::Plan;
use crate::profile::Slice;
#[cfg(feature = "std")]
use crate::shared::SharedFilter;
use crate::state::{Measured, cannot_advance, cannot_change, cannot_remove, has_no_positions};
use crate::storage::{self, Cells, Order};

pub(crate) use content::Content;
pub(crate) use texts::{MAX_TEXT, Texts};
pub use view::{View, blocked_bytes};

/// The largest count of inserts in a file. It leaves room to count further inserts.
#[cfg(feature = "std")]
pub(crate) const MAX_INSERTED: u64 = 1 << 63;

/// A set of keys that answers "certainly not" or "probably yes", in a fraction of their memory.
///
/// ```
/// use inbloom::{Filter, Kind, Plan};
///
/// let plan = Plan::builder(Kind::Blocked).items(1_000_000).rate(0.001).build()?;
/// let mut seen = Filter::new(plan)?;
/// assert!(seen.insert("/8/8217/5159455.html")?); // new
/// assert!(!seen.insert("/8/8217/5159455.html")?); // seen before
/// assert!(seen.contains("/8/8217/5159455.html"));
/// assert!(!seen.contains("/8/8217/5159456.html"));
/// # Ok::<(), inbloom::Error>(())
/// ```
///
/// It never reports an inserted key as absent. With the planned number of keys, it reports absent
/// keys as present at the rate of the [`Plan`]. Keys are bytes, text and integers:
/// `filter.insert(42)`.
pub struct Filter {
    pub(crate) hasher: Hasher,
    pub(crate) content: Content,
    /// How many inserts were new. In a filter of shards, each shard counts its own.
    pub(crate) inserted: u64,
    pub(crate) auto_clear: Option<f64>,
    pub(crate) texts: Texts,
}

impl Filter {
    /// Creates an empty filter that hashes with XXH3-128 under seed 0. A bitmap does not hash.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Memory`] if there is not enough memory. [`Plan::bytes`] is the amount.
    pub fn new(plan: Plan) -> Result<Filter> {
        Filter::with_hasher(plan, plan.kind().default_hasher())
    }

    /// Creates an empty filter with a hash of your choice.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::new`] does, and if the hash does not fit the kind: [`Hasher::integers`]
    /// is for bitmaps, and only for them.
    pub fn with_hasher(plan: Plan, hasher: Hasher) -> Result<Filter> {
        check_hasher(&plan, &hasher)?;
        Ok(Filter::from_parts(hasher, Content::new(plan)?, 0))
    }

    /// Creates a classic filter from the bits of these words, with `probes` bits per key. Use it in
    /// programs that keep the bits themselves, as with `From` of Go's bits-and-blooms. The words
    /// are copied. Keys are hashed by XXH3-128 under seed 0.
    ///
    /// # Errors
    ///
    /// Refuses an empty slice, and a number of probes that the kind cannot have: see
    /// [`Plan::exact`].
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::Filter;
    ///
    /// let mut filter = Filter::from_words(&[0; 16], 4)?;
    /// filter.insert("alice")?;
    /// let words = filter.to_words().expect("a classic filter is an array of bits");
    /// assert!(Filter::from_words(&words, 4)?.contains("alice"));
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn from_words(words: &[u64], probes: u32) -> Result<Filter> {
        let plan = Plan::exact(Kind::Classic, words.len() as u64 * 64, probes)?;
        let mut cells = Cells::zeroed(plan.bytes())?;
        for (bytes, word) in cells.bytes_mut()?.as_chunks_mut().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        let ones = cells.count_ones();
        let content = Content::from_cells(plan, cells, ones)?;
        let inserted = content.measured().estimate(None).rounded();
        Ok(Filter::from_parts(plan.kind().default_hasher(), content, inserted))
    }

    /// Returns the words from which [`Filter::from_words`] creates this filter again. Only a whole
    /// classic filter with the default hash has such words. For other filters the result is `None`,
    /// because their words would give a filter that lacks their keys.
    #[must_use]
    pub fn to_words(&self) -> Option<Vec<u64>> {
        let plan = self.plan();
        if plan.kind() != Kind::Classic
            || plan.shard().is_some()
            || self.hasher != Hasher::default()
        {
            return None;
        }
        let bits = self.content.measured().bits()?;
        Some(storage::words(bits.cells.bytes()).collect())
    }

    /// Returns a filter of existing content. The caller has checked the hasher.
    pub(crate) fn from_parts(hasher: Hasher, content: Content, inserted: u64) -> Filter {
        Filter { hasher, content, inserted, auto_clear: None, texts: Texts::default() }
    }

    /// Builds a filter from all these digests, which must come from the given hasher. The static
    /// kinds ([`Kind::is_static`]) are made in this way, and take no inserts. The other kinds start
    /// empty, and the digests are inserted.
    ///
    /// Use it for keys that are hashed already. [`Filter::build_from`] takes keys, hashes them
    /// itself, and says more.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::with_hasher`] and [`Filter::insert_digests`] do.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::{Filter, Hasher, Kind, Plan};
    ///
    /// let (keys, hasher) = (["alice", "bob", "carol"], Hasher::default());
    /// let plan = Plan::builder(Kind::Ribbon).items(3).rate(1e-6).build()?;
    /// let digests: Vec<_> = keys.iter().map(|key| hasher.digest(key)).collect();
    /// let filter = Filter::build(plan, hasher, &digests)?;
    /// assert!(filter.contains("carol") && !filter.contains("dave"));
    /// assert!(filter == Filter::build_from(plan, hasher, &keys)?);
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    ///
    /// This call cannot detect digests of another hasher: the filter then reports its own keys as
    /// absent. For digests of your own hash, see [`Digest`](Digest#digests-of-your-own-hash).
    pub fn build(plan: Plan, hasher: Hasher, digests: &[Digest]) -> Result<Filter> {
        let Some(build) = plan.kind().row().build else {
            let mut filter = Filter::with_hasher(plan, hasher)?;
            filter.insert_digests(digests, &mut Vec::new())?;
            return Ok(filter);
        };
        check_hasher(&plan, &hasher)?;
        let content = Content::from_state(build(plan, digests)?);
        let inserted = content.state().measured().occupied();
        Ok(Filter::from_parts(hasher, content, inserted))
    }

    /// Builds a filter from all these keys. The static kinds ([`Kind::is_static`]) are made in this
    /// way, and take no inserts. The other kinds start empty, and the keys are inserted.
    ///
    /// A ribbon filter counts a key that is given several times once, and is as large as its
    /// distinct keys need. It ignores the planned items, except that a plan of more items splits it
    /// into more shards: pass about the right number. The call first hashes all keys, into 16 bytes
    /// each.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::build`] does.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::{Filter, Hasher, Kind, Plan};
    ///
    /// let words = ["alice", "bob", "carol"];
    /// let plan = Plan::builder(Kind::Ribbon).items(3).rate(0.001).build()?;
    /// let mut list = Filter::build_from(plan, Hasher::default(), &words)?;
    /// assert!(list.contains("carol"));
    /// assert!(list.insert("dave").is_err()); // see Filter::into_overlay
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn build_from<K: AsKey>(plan: Plan, hasher: Hasher, keys: &[K]) -> Result<Filter> {
        let mut digests = Vec::with_capacity(keys.len() * hasher.digests_per_key());
        hasher.append_all(keys, &mut digests);
        Filter::build(plan, hasher, &digests)
    }

    /// Returns the filter of a ribbon that was built shard by shard (see `kinds::ribbon::Layout`)
    /// from digests of this hasher.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn from_ribbon(ribbon: Ribbon, hasher: Hasher) -> Result<Filter> {
        check_hasher(ribbon.plan(), &hasher)?;
        let inserted = ribbon.occupied();
        Ok(Filter::from_parts(hasher, Content::other(ribbon), inserted))
    }

    /// Creates an empty filter, unless it would take more than `limit` bytes. Use it for plans from
    /// untrusted input.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Limit`] above the limit, and as [`Filter::with_hasher`] does.
    pub fn new_within(plan: Plan, limit: u64) -> Result<Filter> {
        if plan.bytes() > limit {
            return Err(Error::Limit { bytes: plan.bytes(), limit });
        }
        Filter::new(plan)
    }

    /// Inserts a key. `Ok(true)`: it is certainly new. `Ok(false)`: it was probably present.
    ///
    /// # Errors
    ///
    /// - [`Error::ReadOnly`] if the filter is open read-only.
    /// - [`Error::Full`] if a cuckoo filter, or a scalable one that may not grow, has no room.
    /// - [`Error::Copies`] if a cuckoo filter holds the key 8 times.
    /// - Another error if a bitmap cannot hold the key, or a static kind takes no inserts.
    #[inline]
    pub fn insert(&mut self, key: impl AsKey) -> Result<bool> {
        if let Content::Other(_) = self.content
            && let Some(pair) = self.hasher.pair(&key)
        {
            return self.insert_pair(pair);
        }
        self.insert_digest(self.hasher.digest(key))
    }

    /// Inserts a key that two digests stand for.
    fn insert_pair(&mut self, pair: [Digest; 2]) -> Result<bool> {
        self.clear_if_over(pair[0])?;
        let mut new = Vec::with_capacity(1);
        self.content.members_mut().insert_run(&pair, &[], &mut new)?;
        self.count_new(&new);
        Ok(new == [true])
    }

    /// Inserts a key unless it is probably present, and returns what [`Filter::insert`] returns. It
    /// never adds a second copy.
    ///
    /// For most kinds the two calls are the same. A counting or cuckoo filter counts every insert,
    /// and a key must be removed as often. A window keeps a key for another full time when it is
    /// inserted again. Use this call where keys come repeatedly and neither is wanted.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::insert`] does.
    pub fn insert_if_absent(&mut self, key: impl AsKey) -> Result<bool> {
        if self.hasher.digests_per_key() != 1 {
            return self.insert(key); // Those of several digests keep no copies.
        }
        self.insert_digest_if_absent(self.hasher.digest(key))
    }

    /// Does the same as [`Filter::insert_if_absent`], for a key that is hashed already.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::insert`] does.
    pub fn insert_digest_if_absent(&mut self, digest: Digest) -> Result<bool> {
        if self.contains_digest(digest) {
            return Ok(false);
        }
        self.insert_digest(digest)
    }

    /// Returns whether a key may have been inserted: false is certain, true is probable.
    #[inline]
    #[must_use]
    pub fn contains(&self, key: impl AsKey) -> bool {
        if let Content::Other(state) = &self.content
            && let Some(pair) = self.hasher.pair(&key)
        {
            let mut found = [false];
            state.contains_run(&pair, &[], &mut found);
            return found[0];
        }
        self.contains_digest(self.hasher.digest(key))
    }

    /// Removes a key. `Ok(false)`: it was absent, and nothing has changed.
    ///
    /// Bitmap, counting and cuckoo filters can remove keys. In other kinds keys share bits.
    ///
    /// **Remove only what you have inserted.** A key that was never inserted may match by chance.
    /// Removing it takes bits away from members, and later queries report those members as absent.
    /// This is the one way to a false negative. An overlay ([`Filter::into_overlay`]) is safe: it
    /// excludes the key and no other.
    ///
    /// **Remove a key as often as you inserted it**, or insert it with
    /// [`Filter::insert_if_absent`]. Counting and cuckoo filters count every insert, so a key that
    /// was inserted twice is still present after one removal.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::{Filter, Kind, Plan};
    ///
    /// let mut sessions = Filter::new(Plan::builder(Kind::Cuckoo).items(1000).build()?)?;
    /// sessions.insert("alice")?;
    /// sessions.insert("alice")?;
    /// assert!(sessions.remove("alice")? && sessions.contains("alice"));
    /// assert!(sessions.remove("alice")? && !sessions.contains("alice"));
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Unsupported`] if the kind cannot remove keys, and with
    /// [`Error::ReadOnly`] if the filter is open read-only.
    pub fn remove(&mut self, key: impl AsKey) -> Result<bool> {
        self.remove_digest(self.hasher.digest(key))
    }

    /// Does the same as [`Filter::remove`], for a key that is hashed already.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::remove`] does.
    pub fn remove_digest(&mut self, digest: Digest) -> Result<bool> {
        let plan = *self.plan();
        let removable = self.content.state_mut().removable();
        let removed = removable.ok_or_else(|| cannot_remove(&plan))?.remove(digest)?;
        // What is left may have been inserted before: a copy is no distinct key.
        let gone = removed && !self.contains_digest(digest);
        self.inserted = self.inserted.saturating_sub(u64::from(gone));
        Ok(removed)
    }

    /// Removes many keys, in order, and returns how many were present.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::remove`] does. The keys before the failing one are removed then.
    pub fn remove_digests(&mut self, digests: &[Digest]) -> Result<u64> {
        let mut removed = 0;
        match self.as_overlay_mut() {
            Some(list) => {
                removed = list.exclude(digests, "remove")?;
                self.inserted = self.inserted.saturating_sub(removed);
            }
            None => {
                for digest in digests {
                    removed += u64::from(self.remove_digest(*digest)?);
                }
            }
        }
        Ok(removed)
    }

    /// Returns how many copies of a key the filter holds: inserts less removals. Counting filters
    /// count up to the maximum of a counter, which is 7 unless the plan has another width. Cuckoo
    /// filters count up to 8. Other kinds return 0 or 1.
    ///
    /// Below that maximum the result is never too low. It is too high at most at the false-positive
    /// rate.
    #[must_use]
    pub fn count(&self, key: impl AsKey) -> u64 {
        if self.hasher.digests_per_key() != 1 {
            return u64::from(self.contains(key));
        }
        self.content.state().count(self.hasher.digest(key))
    }

    /// Sets the clock of a window to `now`, in milliseconds since any moment that you choose. Keys
    /// that were inserted longer ago than the window's length expire, at most one generation late.
    /// Only this call moves the clock, and only forward: a `now` that is not later changes nothing.
    /// Call it before every insert and every query.
    ///
    /// Use Unix time if the filter is saved. A file has the clock, and a clock that begins anew with
    /// each process would stand still until it passes the old one. Keys that were inserted before
    /// the first call count as inserted at the time of that call.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Unsupported`] for other kinds, which have no clock, and with
    /// [`Error::ReadOnly`] if the filter is open read-only.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use inbloom::{Filter, Kind, Plan};
    ///
    /// let hour = Duration::from_secs(3600);
    /// let mut seen = Filter::new(Plan::builder(Kind::Window).items(1000).window(hour).build()?)?;
    /// let now = UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    /// seen.advance(now)?;
    /// seen.insert("alice")?;
    /// seen.advance(now + 60 * 60_000)?;
    /// assert!(seen.contains("alice"));
    /// seen.advance(now + 75 * 60_000)?;
    /// assert!(!seen.contains("alice"));
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn advance(&mut self, now: u64) -> Result<()> {
        let plan = *self.plan();
        let clocked = self.content.state_mut().clocked();
        clocked.ok_or_else(|| cannot_advance(&plan))?.advance(now)
    }

    /// Inserts many keys, in order. `new` is emptied first, and then has the result of
    /// [`Filter::insert`] for each key.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::insert`] does. The length of `new` is then the number of inserted keys.
    pub fn insert_many<K: AsKey>(&mut self, keys: &[K], new: &mut Vec<bool>) -> Result<()> {
        if self.auto_clear.is_some() {
            let mut digests = Vec::with_capacity(keys.len() * self.hasher.digests_per_key());
            keys.iter().for_each(|key| self.hasher.append_digests(key, &mut digests));
            return self.insert_digests(&digests, new);
        }
        let hasher = self.hasher;
        if let Some(sharded) = self.as_sharded_mut() {
            return sharded.insert_keys(&hasher, keys, new);
        }
        let result = insert_keys(self.content.members_mut(), &hasher, keys, new);
        self.count_new(new);
        result
    }

    /// Queries many keys, in order. `found` is emptied first, and then has the result of
    /// [`Filter::contains`] for each key.
    ///
    /// It is several times as fast as single calls on filters that do not fit into the processor's
    /// cache.
    pub fn contains_many<K: AsKey>(&self, keys: &[K], found: &mut Vec<bool>) {
        match self.as_sharded() {
            Some(sharded) => sharded.contains_keys(&self.hasher, keys, found),
            None => contains_keys(self.content.members(), &self.hasher, keys, found),
        }
    }

    /// Returns the digest of a key under this filter's hash. Use it to query several filters of one
    /// hash and hash only once. If two digests stand for a key, this is the first: see
    /// [`Hasher::append_digests`].
    #[inline]
    #[must_use]
    pub fn digest(&self, key: impl AsKey) -> Digest {
        self.hasher.digest(key)
    }

    /// Does the same as [`Filter::insert`], for a key that is hashed already.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::insert`] does.
    #[inline]
    pub fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        // The default kind in line, the others by a call, here and in `contains_digest`.
        if let Content::Blocked(blocked) = &mut self.content
            && self.auto_clear.is_none()
            && let Some(new) = blocked.try_insert(digest)
        {
            self.inserted += u64::from(new);
            return Ok(new);
        }
        self.insert_digest_otherwise(digest)
    }

    #[inline(never)]
    fn insert_digest_otherwise(&mut self, digest: Digest) -> Result<bool> {
        self.clear_if_over(digest)?;
        let new = self.content.members_mut().insert_digest(digest)?;
        self.inserted += u64::from(new);
        Ok(new)
    }

    /// Does the same as [`Filter::contains`], for a key that is hashed already.
    #[inline]
    #[must_use]
    pub fn contains_digest(&self, digest: Digest) -> bool {
        match &self.content {
            Content::Blocked(blocked) => blocked.contains(digest),
            _ => self.contains_digest_otherwise(digest),
        }
    }

    #[inline(never)]
    fn contains_digest_otherwise(&self, digest: Digest) -> bool {
        self.content.members().contains_digest(digest)
    }

    /// Does the same as [`Filter::insert_many`], for keys that are hashed already.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::insert_many`] does.
    pub fn insert_digests(&mut self, digests: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        if self.auto_clear.is_none() {
            let result = self.content.members_mut().insert_digests(digests, new);
            self.count_new(new);
            return result;
        }
        new.clear();
        let mut rest = digests;
        let mut answers = Vec::new();
        while let Some(first) = rest.first() {
            self.clear_if_over(*first)?;
            // As many keys as cannot, whatever they set, take the fill above the share before the
            // last of them: so the answers are those of single inserts.
            let room = self.auto_clear_ones().saturating_sub(self.occupied());
            let width = self.hasher.digests_per_key();
            let keys = (rest.len() / width).max(1) as u64;
            let sure = (room / u64::from(self.plan().probes())).clamp(1, keys) as usize;
            let (now, later) = rest.split_at((sure * width).min(rest.len()));
            let result = self.content.members_mut().insert_digests(now, &mut answers);
            self.count_new(&answers);
            new.extend_from_slice(&answers);
            result?;
            rest = later;
        }
        Ok(())
    }

    /// Does the same as [`Filter::contains_many`], for keys that are hashed already.
    pub fn contains_digests(&self, digests: &[Digest], found: &mut Vec<bool>) {
        self.content.members().contains_digests(digests, found);
    }

    /// Returns what [`Filter::contains_digests`] returns, in one pass over the filter from front to
    /// back. Use it for a file that is larger than memory, and for so many keys that they touch
    /// most of its pages. It takes 16 bytes of memory per digest, beside the digests and the
    /// results.
    ///
    /// Ribbon filters, and blocked ones with one line, lie in the order of their digests. Other
    /// kinds scatter them, and gain nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::{Filter, Hasher, Kind, Plan};
    ///
    /// let hasher = Hasher::default();
    /// let digests: Vec<_> = (0..1000_u64).map(|key| hasher.digest(key.to_le_bytes())).collect();
    /// let plan = Plan::builder(Kind::Ribbon).items(500).rate(1e-9).build()?;
    /// let filter = Filter::build(plan, hasher, &digests[..500])?;
    /// let mut found = Vec::new();
    /// filter.sweep_digests(&digests, &mut found);
    /// assert!(found[..500].iter().all(|found| *found) && !found[500..].contains(&true));
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn sweep_digests(&self, digests: &[Digest], found: &mut Vec<bool>) {
        if self.hasher.digests_per_key() != 1 {
            return self.contains_digests(digests, found);
        }
        found.clear();
        found.resize(digests.len(), false);
        let places = digests.iter().enumerate().map(|(number, digest)| (digest.place, number));
        let mut order: Vec<(u64, usize)> = places.collect();
        order.sort_unstable();
        self.content.state().expect(Order::Ascending);
        let (mut batch, mut answers) = (Vec::new(), Vec::new());
        for numbers in order.chunks(SWEPT_AT_ONCE) {
            batch.clear();
            batch.extend(numbers.iter().map(|(_, number)| digests[*number]));
            self.contains_digests(&batch, &mut answers);
            for ((_, number), answer) in numbers.iter().zip(&answers) {
                found[*number] = *answer;
            }
        }
        self.content.state().expect(Order::Random);
    }

    /// Sets how batches of queries bring the pages of a mapped file into memory. It has an effect
    /// only on a ribbon filter that was opened from a file, also as the base of an overlay.
    pub fn set_paging(&mut self, paging: Paging) {
        self.content.state_mut().set_paging(paging);
    }

    fn count_new(&mut self, new: &[bool]) {
        self.inserted += new.iter().map(|new| u64::from(*new)).sum::<u64>();
    }

    /// Returns the plan: the sizes of the filter and its target rate.
    #[inline]
    #[must_use]
    pub fn plan(&self) -> &Plan {
        self.content.state().plan()
    }

    /// Returns the hash of the filter.
    #[must_use]
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// Returns the share of bits that are set, from 0 to 1. The filter keeps it up to date, so this
    /// call reads no bits.
    #[must_use]
    pub fn fill(&self) -> f64 {
        self.content.measured().fill()
    }

    /// Returns how full each of a number of slices of the filter's array is. It reads all of the
    /// array.
    ///
    /// A good hash fills all slices alike, within chance. A broken one leaves bands, which
    /// [`Slice::stands_out`] finds. In a filter of several arrays (the generations of a window, the
    /// tables of a scalable filter) the slices come one array after another, at least four of a
    /// generation and one of a table. There are fewer slices if there are fewer blocks, buckets or
    /// bits. A bitmap does not hash: its slices show where its members are.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::{Filter, Kind, Plan};
    ///
    /// let mut filter = Filter::new(Plan::builder(Kind::Blocked).items(10_000).build()?)?;
    /// for key in 0..10_000_u64 {
    ///     filter.insert(key.to_le_bytes())?;
    /// }
    /// let slices = filter.profile(8);
    /// assert_eq!(slices.len(), 8);
    /// assert!(!slices.iter().any(|slice| slice.stands_out()));
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    #[must_use]
    pub fn profile(&self, slices: usize) -> Vec<Slice> {
        self.content.measured().profile(slices.max(1))
    }

    /// Returns the number of occupied slots: bits that are set, counters above 0, or entries.
    #[must_use]
    pub fn occupied(&self) -> u64 {
        self.content.measured().occupied()
    }

    /// Returns how many inserts reported a new key. This is a lower bound of the number of distinct
    /// keys, short by the false positives among them. After a merge it is an estimate within what
    /// is possible.
    #[must_use]
    pub fn inserted(&self) -> u64 {
        self.as_sharded().map_or(self.inserted, Sharded::inserted)
    }

    /// Estimates how many distinct keys were inserted. A key that was inserted repeatedly counts
    /// once. The result is exact for bitmaps and ribbons.
    ///
    /// Most kinds compute it from the share of set bits. Cuckoo and scalable filters and overlays
    /// ([`Filter::into_overlay`]) count the keys that were new. They add an estimate of the keys
    /// that were false positives when they came, from the rate at each moment of their growth.
    /// After a merge of scalable filters, keys of both may count twice. A window counts a key once
    /// for each generation that has it.
    #[must_use]
    pub fn estimated_items(&self) -> Estimate {
        self.content.measured().estimate(Some(self.inserted))
    }

    /// Returns about how many more distinct keys fit before the rate passes its target, or before
    /// the filter is full. The result is `u64::MAX` for a filter that grows: see
    /// [`Filter::next_growth`].
    #[must_use]
    pub fn room(&self) -> u64 {
        self.content.measured().room()
    }

    /// Returns about how many keys a scalable filter will hold when it grows next. The result is
    /// `None` for a filter that does not grow.
    #[must_use]
    pub fn next_growth(&self) -> Option<u64> {
        self.content.measured().next_growth()
    }

    /// Returns the current false-positive rate, from the bits that are set.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.content.measured().rate()
    }

    /// Removes all keys. The note, the normalization and the key encoding stay.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::ReadOnly`] if the filter is open read-only, and for static kinds.
    pub fn clear(&mut self) -> Result<()> {
        self.content.state_mut().clear()?;
        self.inserted = 0;
        Ok(())
    }

    /// Returns the share of set bits above which the next insert clears the filter first, if there
    /// is one.
    #[must_use]
    pub fn auto_clear(&self) -> Option<f64> {
        self.shards()[0].auto_clear
    }

    /// Lets the filter clear itself when an insert finds more than this share of bits set. The
    /// filter then keeps the key of that insert and removes the older ones. Every shard clears only
    /// itself.
    ///
    /// # Errors
    ///
    /// Refuses shares that are not between 0 and 1, and kinds that cannot clear themselves.
    pub fn set_auto_clear(&mut self, share: Option<f64>) -> Result<()> {
        if let Some(sharded) = self.as_sharded_mut() {
            return sharded.shards_mut().iter_mut().try_for_each(|one| one.set_auto_clear(share));
        }
        if let Some(share) = share {
            check_auto_clear(self.plan(), share)?;
            if self.as_grown().is_some() {
                return Err(grown::clears_itself(self.plan().kind()));
            }
        }
        self.auto_clear = share;
        Ok(())
    }

    /// Clears a filter that is too full before an insert, unless the filter would refuse the
    /// digest.
    fn clear_if_over(&mut self, digest: Digest) -> Result<()> {
        if self.auto_clear.is_some() && self.occupied() > self.auto_clear_ones() {
            self.content.state().check(digest)?;
            self.clear()?;
        }
        Ok(())
    }

    /// Returns the largest number of set bits at which the filter does not clear itself.
    pub(crate) fn auto_clear_ones(&self) -> u64 {
        self.auto_clear.map_or(u64::MAX, |share| (share * self.plan().cells() as f64) as u64)
    }

    /// Returns the positions of the slots that stand for a key. Other filters of the same plan and
    /// hash have the same positions.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Unsupported`] for kinds that move their entries.
    pub fn positions(&self, key: impl AsKey) -> Result<Vec<u64>> {
        let positioned = self.content.state().positioned();
        let positioned = positioned.ok_or_else(|| has_no_positions(self.plan()))?;
        positioned.positions(self.hasher.digest(key))
    }

    /// Returns whether the bits at all these positions are set. A position outside the filter is
    /// not set.
    #[must_use]
    pub fn contains_positions(&self, positions: &[u64]) -> bool {
        let positioned = self.content.state().positioned();
        let is_set = |position: &u64| positioned.is_some_and(|content| content.is_set(*position));
        positions.iter().all(is_set)
    }

    /// Returns the bitmap, if the filter is one. It lists its integers in order.
    #[must_use]
    pub fn as_bitmap(&self) -> Option<&Bitmap> {
        (self.content.state() as &dyn Any).downcast_ref()
    }

    /// Returns what each generation of a window holds, the newest first. The result is empty for
    /// other kinds.
    #[must_use]
    pub fn window_steps(&self) -> Vec<WindowStep> {
        let window = (self.content.state() as &dyn Any).downcast_ref::<Window>();
        window.map_or(Vec::new(), |window| window.steps().collect())
    }

    /// Returns the figures that only this kind has, as names and values: for example the load of a
    /// cuckoo filter, or the saturated counters of a counting filter.
    #[must_use]
    pub fn details(&self) -> Vec<(&'static str, String)> {
        self.content.measured().details()
    }

    /// Returns the bytes that the slots take now. For kinds that do not grow they are those of the
    /// plan.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.content.measured().bytes()
    }

    /// Returns the bytes of memory that the filter takes: the slots ([`bytes`](Filter::bytes)), the
    /// structures around them, and what an allocator adds by rounding up. A window counts all its
    /// generations, also future ones. Slots in a mapped file do not count.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let measured = self.content.measured();
        let structure = match &self.content {
            Content::Blocked(_) => 0,
            Content::Other(state) => allocated(size_of_val(&**state) as u64),
        };
        structure + if measured.is_read_only() { 0 } else { measured.memory() }
    }

    /// Returns whether the filter was opened read-only, over the bytes of a file or of the caller.
    /// It then refuses inserts. A static kind always refuses them.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.content.measured().is_read_only()
    }

    /// Turns the filter into one for many threads, without copying. A read-only filter is copied if
    /// its kind takes inserts. [`SharedFilter::into_exclusive`] turns it back.
    ///
    /// # Errors
    ///
    /// Refuses a filter whose shards clear themselves. Refuses a blocked filter in which a reserved
    /// bit is set: no key sets that bit, and it locks its cache line. To check this, the call reads
    /// all of a blocked filter.
    #[cfg(feature = "std")]
    pub fn into_shared(self) -> Result<SharedFilter> {
        SharedFilter::from_exclusive(self)
    }

    /// Builds a filter with another plan from the keys of this one. It has the hash, note,
    /// normalization and key encoding of this one. Use it to compact a filter that has grown, or to
    /// change its kind or its rate.
    ///
    /// # Errors
    ///
    /// Fails if this filter lacks one of the keys, because it was then not made from them.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::{Filter, Kind, Plan};
    ///
    /// let mut grown = Filter::new(Plan::builder(Kind::Scalable).items(100).rate(0.01).build()?)?;
    /// let keys: Vec<String> = (0..50_000).map(|i| format!("key {i}")).collect();
    /// grown.insert_many(&keys, &mut Vec::new())?;
    ///
    /// let plan = Plan::builder(Kind::Blocked).items(grown.inserted()).rate(0.01).build()?;
    /// let compact = grown.rebuild(plan, &keys)?;
    /// assert!(keys.iter().all(|key| compact.contains(key)));
    /// assert!(compact.bytes() < grown.bytes() * 2 / 3);
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn rebuild<K: AsKey>(
        &self,
        plan: Plan,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Filter> {
        let mut keys = keys.into_iter();
        let (mut batch, mut answers) = (Vec::new(), Vec::new());
        // What a static kind is built from, all at once.
        let mut collected = Vec::new();
        let is_static = plan.kind().is_static();
        let start = |collected: &[Digest]| {
            let mut filter = Filter::build(plan, self.hasher, collected)?;
            filter.texts = self.texts.clone();
            Ok(filter)
        };
        let mut rebuilt = if is_static { None } else { Some(start(&[])?) };
        loop {
            batch.clear();
            let some = keys.by_ref().take(REBUILT_AT_ONCE);
            some.for_each(|key| self.hasher.append_digests(key, &mut batch));
            if batch.is_empty() {
                return rebuilt.map_or_else(|| start(&collected), Ok);
            }
            self.contains_digests(&batch, &mut answers);
            if answers.contains(&false) {
                return Err(Error::Parameter {
                    name: "keys",
                    got: "one that is not in this filter".to_owned(),
                    expected: "those that the filter was made from".to_owned(),
                });
            }
            match &mut rebuilt {
                Some(filter) => filter.insert_digests(&batch, &mut answers)?,
                None => collected.extend_from_slice(&batch),
            }
        }
    }

    /// Clones the filter. If there is not enough memory, it returns an error instead of stopping
    /// the program.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Memory`] if there is not enough memory.
    pub fn try_clone(&self) -> Result<Filter> {
        Ok(Filter {
            hasher: self.hasher,
            content: Content::from_state(self.content.state().copy()?),
            inserted: self.inserted,
            auto_clear: self.auto_clear,
            texts: self.texts.clone(),
        })
    }
}

/// Keys that [`Filter::sweep_digests`] looks up in one call: enough for the batch pipeline, and few
/// enough for the nearer caches.
const SWEPT_AT_ONCE: usize = 8192;

/// Keys that [`Filter::rebuild`] inserts in one call.
const REBUILT_AT_ONCE: usize = 8192;

pub(crate) fn check_auto_clear(plan: &Plan, share: f64) -> Result<()> {
    if plan.kind().is_static() {
        return Err(cannot_change(plan, "clear itself when it is full"));
    }
    if plan.kind().can_grow() {
        let remedy = "use another kind, or clear it yourself";
        return Err(Error::Unsupported {
            kind: plan.kind(),
            verb: "clear itself when it is full",
            remedy,
        });
    }
    if share > 0.0 && share < 1.0 {
        return Ok(());
    }
    let expected = "a share strictly between 0 and 1".to_owned();
    Err(Error::Parameter { name: "auto-clear", got: share.to_string(), expected })
}

pub(crate) fn check_hasher(plan: &Plan, hasher: &Hasher) -> Result<()> {
    let kind = plan.kind();
    if kind.is_foreign() || matches!(hasher.0, Scheme::Foreign { .. }) {
        return match hasher.0 {
            Scheme::Foreign { hash, .. } if hash.kinds.contains(&kind) => Ok(()),
            _ => Err(Error::Unsupported {
                kind,
                verb: "use this hash",
                remedy: "use the hash of the program that the filter is for",
            }),
        };
    }
    match (kind.is_exact(), hasher.0) {
        (true, Scheme::Integers) => Ok(()),
        (true, _) => Err(Error::Unsupported {
            kind,
            verb: "hash its keys",
            remedy: "use Hasher::integers()",
        }),
        (false, Scheme::Integers) => Err(Error::Unsupported {
            kind,
            verb: "do without a hash",
            remedy: "use Hasher::xxh3 or Hasher::sip13",
        }),
        _ => Ok(()),
    }
}

impl Membership for Filter {
    fn contains_digest(&self, digest: Digest) -> bool {
        Filter::contains_digest(self, digest)
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        Filter::insert_digest(self, digest)
    }

    fn prefetch(&self, digests: &[Digest]) {
        self.content.members().prefetch(digests);
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        self.content.members().contains_run(run, next, found);
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        if self.auto_clear.is_some() {
            self.prefetch(next);
            for digest in run {
                new.push(self.insert_digest(*digest)?);
            }
            return Ok(());
        }
        let before = new.len();
        let result = self.content.members_mut().insert_run(run, next, new);
        self.count_new(&new[before..]);
        result
    }

    fn contains_digests(&self, digests: &[Digest], found: &mut Vec<bool>) {
        Filter::contains_digests(self, digests, found);
    }

    fn insert_digests(&mut self, digests: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        Filter::insert_digests(self, digests, new)
    }
}

/// Copies the bits. Stops the program if there is not enough memory, as `Vec` does;
/// [`Filter::try_clone`] returns an error instead.
impl Clone for Filter {
    fn clone(&self) -> Filter {
        self.try_clone().expect("memory for a second copy of the filter")
    }
}

/// Filters are equal if they have the same plan, hash and bits. Counts and notes may differ.
impl PartialEq for Filter {
    fn eq(&self, other: &Filter) -> bool {
        self.check_compatible(other).is_ok()
            && grown::same(self.content.state(), other.content.state())
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("kind", &self.plan().kind())
            .field("items", &self.plan().items())
            .field("rate", &self.plan().rate())
            .field("bytes", &self.bytes())
            .field("hasher", &self.hasher)
            .field("inserted", &self.inserted())
            .finish_non_exhaustive()
    }
}
