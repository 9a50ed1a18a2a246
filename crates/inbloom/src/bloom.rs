//! The Bloom filter for most programs: sized by two numbers, it takes keys and cannot fail.
//!
//! It is the blocked kind without the layers of [`Filter`]. At every insert, a [`Filter`] checks
//! its kind, whether it is writable and whether it clears itself, and it counts bits and new keys.
//! A call here is only the hash and one call of the kernel, which was chosen when the filter was
//! made. Counts are computed on request.

use alloc::vec::Vec;
use core::fmt;
#[cfg(feature = "file")]
use std::path::Path;

use crate::digest::{Digest, Hasher};
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::filter::{Content, Filter, Texts, View, check_hasher};
use crate::kernels::SingleCalls;
use crate::key::AsKey;
use crate::kind::Kind;
use crate::kinds::blocked::Blocked;
use crate::membership::{Membership, contains_keys, insert_keys};
use crate::plan::Plan;
#[cfg(feature = "std")]
use crate::shared::SharedFilter;
use crate::state::{Measured, State};

/// A Bloom filter: reports whether a key was seen before, in a fraction of the memory of the keys.
///
/// ```
/// use inbloom::BloomFilter;
///
/// let mut seen = BloomFilter::new(1_000_000, 0.001); // 1 million keys, 0.1% false positives
/// assert!(seen.insert("https://example.org/a")); // true: certainly new
/// assert!(!seen.insert("https://example.org/a")); // false: probably seen before
/// assert!(seen.contains("https://example.org/a"));
/// assert!(!seen.contains("https://example.org/b")); // false is certain, true is probable
/// ```
///
/// A key that was inserted is always reported as present. Of all other keys, at most a share of
/// `rate` is reported as present while the filter holds at most `items` keys. It takes more keys,
/// at a higher rate. ([`Filter`] has kinds that grow, that remove keys, or that take fewer bits.)
///
/// Keys are bytes, text or integers: see [`AsKey`]. If you hash keys yourself, pass a [`Digest`].
/// There is no `FromIterator`, because a filter must know its number of keys before the first one.
/// Create it with [`BloomFilter::new`], then [`extend`](BloomFilter::extend) it.
///
/// # Save and open
///
/// ```
/// use inbloom::BloomFilter;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("seen.ib");
/// let mut seen = BloomFilter::new(1000, 0.01);
/// seen.extend(["alice", "bob"]);
/// seen.save(&path)?;
///
/// let mut seen = BloomFilter::open(&path)?;
/// assert!(!seen.insert("alice"));
/// # Ok::<(), inbloom::Error>(())
/// ```
///
/// [`BloomFilter::as_filter`] gives access to everything else that a [`Filter`] can report: its
/// plan, its size, its current rate. [`BloomFilter::into_shared`] serves many threads.
pub struct BloomFilter {
    hasher: Hasher,
    /// Its cells are writable. Its count of bits is not kept up to date.
    blocked: Blocked,
    calls: SingleCalls,
    texts: Texts,
    counted: Counted,
}

/// How many keys had been inserted when this many bits were set. Later inserts are estimated.
#[derive(Clone, Copy, Default)]
struct Counted {
    inserted: u64,
    occupied: u64,
}

impl BloomFilter {
    /// Creates an empty filter for this number of keys and this false-positive rate.
    ///
    /// # Panics
    ///
    /// Panics if `rate` is below 10^-12, not below 1 or not a number, or if there is not enough
    /// memory. [`Filter::new`] returns an error instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::BloomFilter;
    ///
    /// assert_eq!(BloomFilter::new(1_000_000, 0.01).bytes(), 1_265_408); // 10.1 bits per key
    /// ```
    #[must_use]
    #[track_caller]
    pub fn new(items: usize, rate: f64) -> BloomFilter {
        BloomFilter::with_hasher(items, rate, Hasher::default())
    }

    /// Creates an empty filter with another hash: with a seed, or under a
    /// [secret key](Hasher::sip13) where others choose the keys.
    ///
    /// # Panics
    ///
    /// Panics as [`BloomFilter::new`] does, and for [`Hasher::integers`], which is no hash.
    ///
    /// A file of a filter under a [`SecretKey`](crate::SecretKey) is opened by
    /// [`OpenOptions::secret`](crate::OpenOptions::secret) and [`BloomFilter::from_filter`].
    #[must_use]
    #[track_caller]
    pub fn with_hasher(items: usize, rate: f64, hasher: Hasher) -> BloomFilter {
        let plan = Plan::builder(Kind::Blocked).items(items.max(1) as u64).rate(rate).build();
        let filter = plan.and_then(|plan| {
            check_hasher(&plan, &hasher)?;
            let blocked = Blocked::new(plan)?;
            Ok(BloomFilter::of_blocked(hasher, blocked, Texts::default(), Counted::default()))
        });
        match filter {
            Ok(filter) => filter,
            Err(error) => {
                panic!("cannot create a Bloom filter of {items} keys at a rate of {rate}: {error}")
            }
        }
    }

    /// Creates an empty filter from a [`Plan`], as [`Filter::new`] does. A plan can be for a number
    /// of bytes, for two lines per key, or with other options.
    ///
    /// # Errors
    ///
    /// Refuses a plan of another kind than [`Kind::Blocked`], and fails with [`Error::Memory`] if
    /// there is not enough memory.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::{BloomFilter, Kind, Plan};
    ///
    /// let plan = Plan::builder(Kind::Blocked).bytes(1 << 20).rate(0.01).build()?; // in 1 MiB
    /// assert_eq!(plan.items(), 828_658);
    /// let mut seen = BloomFilter::with_plan(plan)?;
    /// assert!(seen.insert("alice"));
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn with_plan(plan: Plan) -> Result<BloomFilter> {
        BloomFilter::from_filter(Filter::new(plan)?)
    }

    /// The cells must be writable.
    fn of_blocked(hasher: Hasher, blocked: Blocked, texts: Texts, counted: Counted) -> BloomFilter {
        let calls = blocked.single_calls();
        BloomFilter { hasher, blocked, calls, texts, counted }
    }

    /// Inserts a key. Returns true if it is certainly new, false if it was probably present.
    #[inline]
    pub fn insert(&mut self, key: impl AsKey) -> bool {
        self.insert_digest(self.hasher.digest(key))
    }

    /// Returns whether a key may have been inserted: false is certain, true is probable.
    #[inline]
    #[must_use]
    pub fn contains(&self, key: impl AsKey) -> bool {
        self.contains_digest(self.hasher.digest(key))
    }

    /// Inserts many keys, in order. `new` is emptied first, and then has the result of
    /// [`BloomFilter::insert`] for each key.
    ///
    /// On a filter larger than the processor's cache it is several times as fast as single calls,
    /// because it fetches the memory of one key while it works on others. If you do not need the
    /// results, [`extend`](BloomFilter::extend) is as fast.
    pub fn insert_many<K: AsKey>(&mut self, keys: &[K], new: &mut Vec<bool>) {
        insert_keys(&mut self.blocked, &self.hasher, keys, new).expect(WRITABLE);
    }

    /// Queries many keys, in order. `found` is emptied first, and then has the result of
    /// [`BloomFilter::contains`] for each key. It is faster than single calls for the same reason
    /// as [`BloomFilter::insert_many`].
    pub fn contains_many<K: AsKey>(&self, keys: &[K], found: &mut Vec<bool>) {
        contains_keys(&self.blocked, &self.hasher, keys, found);
    }

    /// Returns the digest of a key under this filter's hash.
    #[inline]
    #[must_use]
    pub fn digest(&self, key: impl AsKey) -> Digest {
        self.hasher.digest(key)
    }

    /// Does the same as [`BloomFilter::insert`], for a key that is hashed already.
    #[inline]
    pub fn insert_digest(&mut self, digest: Digest) -> bool {
        self.calls.set(self.blocked.bits.cells.writable().expect(WRITABLE), digest)
    }

    /// Does the same as [`BloomFilter::contains`], for a key that is hashed already.
    #[inline]
    #[must_use]
    pub fn contains_digest(&self, digest: Digest) -> bool {
        self.calls.contains(self.blocked.bits.cells.bytes(), digest)
    }

    /// Does the same as [`BloomFilter::insert_many`], for keys that are hashed already.
    pub fn insert_digests(&mut self, digests: &[Digest], new: &mut Vec<bool>) {
        self.blocked.insert_digests(digests, new).expect(WRITABLE);
    }

    /// Does the same as [`BloomFilter::contains_many`], for keys that are hashed already.
    pub fn contains_digests(&self, digests: &[Digest], found: &mut Vec<bool>) {
        self.blocked.contains_digests(digests, found);
    }

    /// Estimates how many distinct keys were inserted, from the bits that are set. Reads all bits.
    #[must_use]
    pub fn estimated_items(&self) -> Estimate {
        self.as_filter().estimated_items()
    }

    /// Removes every key.
    pub fn clear(&mut self) {
        self.blocked.clear().expect(WRITABLE);
        self.counted = Counted::default();
    }

    /// Adds the keys of another filter.
    ///
    /// # Errors
    ///
    /// Refuses a filter of another size or hash. The error names what differs.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::BloomFilter;
    ///
    /// let [mut one, mut other] = [(); 2].map(|()| BloomFilter::new(1000, 0.01));
    /// one.insert("alice");
    /// other.insert("bob");
    /// one.merge(&other)?;
    /// assert!(one.contains("alice") && one.contains("bob"));
    /// assert!(one.merge(&BloomFilter::new(2000, 0.01)).is_err());
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn merge(&mut self, other: &BloomFilter) -> Result<()> {
        self.check_same(other)?;
        self.blocked.unite(&other.blocked)
    }

    fn check_same(&self, other: &BloomFilter) -> Result<()> {
        match self.plan().difference(other.plan()) {
            Some((field, left, right)) => Err(Error::Mismatch { field, left, right }),
            None => self.hasher.check_same(&other.hasher),
        }
    }

    /// Returns the plan: the numbers that the filter was made from, and its sizes.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        self.blocked.plan()
    }

    /// Returns the hash.
    #[must_use]
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// Returns the bytes of memory that the bits take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.plan().bytes()
    }

    /// Saves the filter to a file, as [`Filter::save`] does: the file is the old one or the new
    /// one, never half of it.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Io`] if the file cannot be written.
    #[cfg(feature = "file")]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.as_filter().save(path)
    }

    /// Returns the current false-positive rate, from the bits that are set. Reads all bits.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.as_filter().rate()
    }

    /// Lends the filter as a [`Filter`], for example to write it or to compare it with another
    /// filter. Reads all bits, because it counts those that are set.
    #[must_use]
    pub fn as_filter(&self) -> View<'_> {
        View::of_blocked(&self.blocked, |lent| self.described(lent))
    }

    /// Turns it into a [`Filter`], without copying. Reads all bits, because it counts those that
    /// are set.
    ///
    /// A `Filter` counts the keys that were new. For keys that were inserted before this call, the
    /// count is an estimate.
    #[must_use]
    pub fn into_filter(self) -> Filter {
        let BloomFilter { hasher, blocked, texts, counted, .. } = self;
        filter_of(hasher, blocked.recounted(), texts, counted)
    }

    /// Turns it into a filter for many threads, without copying, as [`Filter::into_shared`] does.
    ///
    /// # Errors
    ///
    /// Fails if the filter was opened from a damaged file, in which a reserved bit is set.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::BloomFilter;
    ///
    /// let seen = BloomFilter::new(1000, 0.01).into_shared()?;
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| seen.insert("alice").unwrap());
    ///     scope.spawn(|| seen.insert("bob").unwrap());
    /// });
    /// let seen = BloomFilter::from_filter(seen.into_exclusive())?;
    /// assert!(seen.contains("alice") && seen.contains("bob"));
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    #[cfg(feature = "std")]
    pub fn into_shared(self) -> Result<SharedFilter> {
        self.into_filter().into_shared()
    }

    fn described(&self, lent: Blocked) -> Filter {
        filter_of(self.hasher, lent, self.texts.clone(), self.counted)
    }

    /// Creates a `BloomFilter` from a [`Filter`] of the blocked kind, without copying. A filter
    /// that is open read-only is copied.
    ///
    /// # Errors
    ///
    /// Refuses the other kinds, shards, filters with a growing part, and filters that clear
    /// themselves.
    pub fn from_filter(filter: Filter) -> Result<BloomFilter> {
        let refused =
            |kind, remedy| Err(Error::Unsupported { kind, verb: "become a BloomFilter", remedy });
        let kind = filter.plan().kind();
        let Filter { hasher, content, inserted, auto_clear, texts } = filter;
        if auto_clear.is_some() {
            return refused(kind, "switch auto-clear off, or use it as a Filter");
        }
        let Content::Blocked(mut blocked) = content else {
            return refused(kind, "use it as a Filter, or build one of kind blocked");
        };
        if !blocked.bits.cells.is_writable() {
            blocked = Blocked::with_bits(*blocked.plan(), blocked.bits.copy()?);
        }
        let counted = Counted { inserted, occupied: blocked.occupied() };
        Ok(BloomFilter::of_blocked(hasher, blocked, texts, counted))
    }
}

/// Only filters whose cells are writable get here.
const WRITABLE: &str = "cells that were checked to be writable";

fn filter_of(hasher: Hasher, blocked: Blocked, texts: Texts, counted: Counted) -> Filter {
    let inserted = match blocked.occupied() == counted.occupied {
        true => counted.inserted,
        false => blocked.estimate(None).rounded().max(counted.inserted),
    };
    Filter { texts, ..Filter::from_parts(hasher, Content::Blocked(blocked), inserted) }
}

/// Inserts all keys, as fast as [`BloomFilter::insert_many`].
impl<K: AsKey> Extend<K> for BloomFilter {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        let BloomFilter { hasher, blocked, .. } = self;
        let mut digests = keys.into_iter().map(|key| hasher.digest(key));
        let (mut batch, mut answers) = (Vec::new(), Vec::new());
        loop {
            batch.clear();
            batch.extend(digests.by_ref().take(EXTENDED_AT_ONCE));
            if batch.is_empty() {
                return;
            }
            blocked.insert_digests(&batch, &mut answers).expect(WRITABLE);
        }
    }
}

/// Keys that [`BloomFilter::extend`] inserts in one call: many runs of the batch pipeline, and few
/// enough for the nearer caches.
const EXTENDED_AT_ONCE: usize = 4096;

/// Copies the bits. Stops the program if there is not enough memory, as `Vec` does.
impl Clone for BloomFilter {
    fn clone(&self) -> BloomFilter {
        let bits = self.blocked.bits.copy().expect("memory for a second copy of the filter");
        let blocked = Blocked::with_bits(*self.plan(), bits);
        BloomFilter::of_blocked(self.hasher, blocked, self.texts.clone(), self.counted)
    }
}

/// Filters are equal if they have the same size, hash and bits.
impl PartialEq for BloomFilter {
    fn eq(&self, other: &BloomFilter) -> bool {
        self.check_same(other).is_ok()
            && self.blocked.bits.cells.bytes() == other.blocked.bits.cells.bytes()
    }
}

impl fmt::Debug for BloomFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BloomFilter")
            .field("items", &self.plan().items())
            .field("rate", &self.plan().rate())
            .field("bytes", &self.bytes())
            .field("hasher", &self.hasher)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(range: std::ops::Range<u64>) -> impl Iterator<Item = String> {
        range.map(|number| format!("key {number}"))
    }

    /// Rates that take one line and two, and each number of probes.
    const RATES: [f64; 6] = [0.3, 0.1, 0.01, 0.001, 1e-4, 1e-6];

    #[test]
    fn answers_and_bits_are_those_of_a_filter_of_the_same_plan() {
        for rate in RATES {
            let mut bloom = BloomFilter::new(1000, rate);
            let mut filter = Filter::new(*bloom.plan()).unwrap();
            for key in keys(0..1500).chain(keys(700..2000)) {
                assert_eq!(bloom.insert(&key), filter.insert(&key).unwrap(), "{rate}: {key}");
            }
            for key in keys(0..4000) {
                assert_eq!(bloom.contains(&key), filter.contains(&key), "{rate}: {key}");
            }
            assert_eq!(*bloom.as_filter(), filter);
            assert_eq!(bloom.as_filter().occupied(), filter.occupied());
            assert_eq!(bloom.estimated_items(), filter.estimated_items());
            assert_eq!(bloom.into_filter(), filter);
        }
    }

    #[test]
    fn single_calls_batches_digests_and_extend_set_the_same_bits() {
        let keys: Vec<String> = keys(0..3000).chain(keys(1000..1500)).collect();
        for rate in RATES {
            let [mut single, mut many, mut digests, mut extended] =
                [(); 4].map(|()| BloomFilter::new(2000, rate));
            let expected: Vec<bool> = keys.iter().map(|key| single.insert(key)).collect();
            let mut answers = vec![true];
            many.insert_many(&keys, &mut answers);
            assert_eq!(answers, expected);
            let hashed: Vec<Digest> = keys.iter().map(|key| single.digest(key)).collect();
            digests.insert_digests(&hashed, &mut answers);
            assert_eq!(answers, expected);
            extended.extend(&keys);
            assert!(single == many && many == digests && digests == extended);

            let others: Vec<u64> = (0..5000).collect();
            let expected: Vec<bool> = others.iter().map(|key| single.contains(key)).collect();
            single.contains_many(&others, &mut answers);
            assert_eq!(answers, expected);
            let hashed: Vec<Digest> = others.iter().map(|key| single.digest(key)).collect();
            single.contains_digests(&hashed, &mut answers);
            assert_eq!(answers, expected);
            assert!(hashed.iter().zip(expected).all(|(d, yes)| single.contains_digest(*d) == yes));
        }
    }

    #[test]
    fn a_filter_that_was_saved_opens_with_all_its_keys_and_takes_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seen.ib");
        let mut seen = BloomFilter::with_hasher(1000, 0.001, Hasher::xxh3(7));
        seen.extend(keys(0..500));
        seen.save(&path).unwrap();
        crate::file::verify(&path).unwrap();
        let mut opened = BloomFilter::open(&path).unwrap();
        assert_eq!(opened, seen);
        assert!(opened.insert("another one"));
        opened.save(&path).unwrap();
        assert!(BloomFilter::open(&path).unwrap().contains("another one"));
        assert!(!seen.contains("another one"));
    }

    #[test]
    fn counts_and_notes_come_through_unless_bits_changed() {
        let plan = *BloomFilter::new(1000, 0.01).plan();
        let mut filter = Filter::new(plan).unwrap();
        for key in keys(0..800) {
            filter.insert(&key).unwrap();
        }
        filter.set_note("from the list of Monday").unwrap();
        let inserted = filter.inserted();
        let mut bloom = BloomFilter::from_filter(filter).unwrap();
        bloom.insert("key 7");
        assert_eq!(bloom.as_filter().inserted(), inserted);
        bloom.extend(keys(800..900));
        let filter = bloom.into_filter();
        assert_eq!(filter.note(), "from the list of Monday");
        let estimated = filter.inserted();
        assert!((inserted + 70..inserted + 130).contains(&estimated), "{estimated}");
    }

    #[test]
    fn filters_that_do_more_are_refused_and_read_only_ones_copied() {
        let blocked = *BloomFilter::new(1000, 0.01).plan();
        let mut clearing = Filter::new(blocked).unwrap();
        clearing.set_auto_clear(Some(0.5)).unwrap();
        let growing = Filter::new(Plan::builder(Kind::Blocked).items(9).growing().build().unwrap());
        let classic = Filter::new(Plan::builder(Kind::Classic).items(9).build().unwrap());
        for filter in [clearing, growing.unwrap().into_growing().unwrap(), classic.unwrap()] {
            BloomFilter::from_filter(filter).unwrap_err();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seen.ib");
        BloomFilter::new(1000, 0.01).save(&path).unwrap();
        let mut copied = BloomFilter::from_filter(Filter::open(&path).unwrap()).unwrap();
        assert!(copied.insert("alice"));
    }

    #[test]
    fn merging_and_clearing_are_those_of_sets() {
        let [mut one, mut other] = [(); 2].map(|()| BloomFilter::new(100, 0.01));
        let mut both = one.clone();
        one.extend(keys(0..50));
        other.extend(keys(40..90));
        both.extend(keys(0..90));
        one.merge(&other).unwrap();
        assert_eq!(one, both);
        one.clear();
        assert_eq!(one, BloomFilter::new(100, 0.01));
        assert_eq!(one.estimated_items().items, 0.0);
        let other_hash = BloomFilter::with_hasher(100, 0.01, Hasher::xxh3(1));
        assert!(one.merge(&other_hash).unwrap_err().to_string().contains("hash seed"));
        assert_ne!(one, other_hash);
    }

    #[test]
    fn a_plan_makes_the_filter_that_its_numbers_make() {
        let bloom = BloomFilter::new(1000, 0.001);
        assert_eq!(BloomFilter::with_plan(*bloom.plan()).unwrap(), bloom);
        let cuckoo = Plan::builder(Kind::Cuckoo).items(9).build().unwrap();
        let error = BloomFilter::with_plan(cuckoo).unwrap_err().to_string();
        assert!(error.contains("kind cuckoo cannot become a BloomFilter"), "{error}");
    }

    #[test]
    fn a_shared_filter_has_its_keys_and_comes_back() {
        let mut seen = BloomFilter::new(1000, 0.01);
        seen.insert("alice");
        let shared = seen.clone().into_shared().unwrap();
        assert!(!shared.insert("alice").unwrap() && shared.insert("bob").unwrap());
        seen.insert("bob");
        assert_eq!(BloomFilter::from_filter(shared.into_exclusive()).unwrap(), seen);
    }

    #[test]
    fn no_keys_and_any_rate_below_one_make_a_filter() {
        for (items, rate) in [(0, 0.01), (1, 0.999), (1, 1e-12), (1000, 0.5)] {
            let mut bloom = BloomFilter::new(items, rate);
            bloom.insert("alice");
            assert!(bloom.contains("alice"));
        }
    }

    #[test]
    fn nonsense_panics_with_the_number_and_what_is_possible() {
        for rate in [0.0, -1.0, 1.0, f64::NAN, f64::INFINITY] {
            let panic = std::panic::catch_unwind(|| BloomFilter::new(10, rate)).unwrap_err();
            let text = panic.downcast::<String>().unwrap();
            assert!(text.contains(&rate.to_string()), "{text}");
        }
        let integers = || BloomFilter::with_hasher(10, 0.1, Hasher::integers());
        assert!(std::panic::catch_unwind(integers).is_err());
    }
}
