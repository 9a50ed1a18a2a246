//! RedisBloom's cuckoo filter: fingerprints of a byte, in sub-filters that are added as they fill.
//!
//! **Idea.** An item is kept as one byte, its fingerprint, in one of two buckets. If both are full
//! in every sub-filter, entries of the newest are moved to their other bucket, at most
//! `max_iterations` of them; if that leads to no empty slot all are moved back, and another
//! sub-filter is added, `expansion` times as large as the one before. The other bucket of an entry
//! follows from the one it is in, so entries can be moved without their items.
//!
//! **Two buckets.** Of n buckets, a power of two, with h = MurmurHash64A(item, 0):
//!
//!   fingerprint f = h mod 255 + 1,  home = h mod n,  away = (h xor f * 0x5bd1e995) mod n
//!
//! and f is in one of the two. 0 is an empty slot. "hello" has h = 1e68d17c457bf117, f = 0x9f, and
//! in 512 buckets home 279, away 156.
//!
//! **Layout.** Sub-filter j has n * expansion^j buckets of `bucket_size` bytes. The header is 38
//! bytes, little-endian and packed:
//!
//!   0 u64 items, 8 u64 buckets of the first sub-filter, 16 u64 deletes, 24 u64 sub-filters,
//!   32 u16 bucket size, 34 u16 iterations, 36 u16 expansion
//!
//! and the sub-filters' bytes follow in chunks.
//!
//! **Orders**, which decide where each byte is. Insert: the newest sub-filter first, home before
//! away, the first empty slot; else moves, in the newest only, from home, of slot 0, then 1, and so
//! on around. Remove: the same order, the first match. Compaction: the newest sub-filter first,
//! slot by slot, each entry to the oldest sub-filter that has an empty slot for it, in the bucket
//! of its number before the other.
//!
//! **4 GiB.** RedisBloom computes a bucket's offset in 32 bits. In a sub-filter of more than 2^32
//! bytes its entries lie elsewhere than their buckets say, and most of the memory is never used.
//! Here no sub-filter is larger: it is neither loaded, nor made, nor grown. Offsets are 64 bits
//! wide.
//!
//! **Cost.** A query waits for two cache lines of each sub-filter. Calls with many hashes request
//! the lines of the next items while they work on an item. A bucket of 1, 2, 4 or 8 slots is one
//! word: both buckets are compared at once, without a branch. A wrong yes is as probable as
//! 2 * bucket_size / 255, times the share of slots in use, for each sub-filter.
//!
//! **When not.** Never remove an item that was not added: the removed entry may belong to another
//! item. With many sub-filters, queries are slow and often wrong. Reserve enough, or expand by 2.

use std::borrow::Borrow;
use std::convert::Infallible;
use std::fmt;
use std::io::{self, Read, Write};
use std::ops::Range;

use super::MAX_COUNT;
use super::error::{ForeignError, LoadError, Refused};
use super::memory::{self, Short, ZeroedArray, check};
use super::murmur::{MULTIPLIER_32, murmur64a};
use crate::codec::Decoder;
use crate::kernels::{FITS_IN_L2, Towards, prefetch};

/// The largest number of sub-filters of a filter: the maximum of RedisBloom's setting
/// `cf-max-expansions`, whose default is 32. A query looks into each.
pub const MAX_FILTERS: u64 = 1 << 16;

/// The largest size of a sub-filter in bytes: RedisBloom computes the offset of a bucket in 32
/// bits.
pub const MAX_SUB_FILTER: u64 = 1 << 32;

/// Up to this many slots a removal compacts at once, as RedisBloom does at any size: 1.4 ms for
/// five sub-filters that are nearly full, measured on a machine that was busy fivefold.
const COMPACTED_AT_ONCE: u64 = 1 << 16;

/// Items whose memory is requested ahead, where there is one sub-filter.
const MOST_AHEAD: usize = 32;

pub(super) const HEADER: usize = 38;

/// A cuckoo filter of RedisBloom.
pub struct CuckooChain {
    items: u64,
    deletes: u64,
    bucket_size: u16,
    max_iterations: u16,
    expansion: u16,
    /// At least one, the oldest first.
    filters: Vec<SubFilter>,
    compaction: Option<Progress>,
}

/// The 64-bit hash of an item of a cuckoo filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash(pub u64);

impl Hash {
    /// Returns the hash of an item.
    #[must_use]
    pub fn of(item: &[u8]) -> Hash {
        Hash(murmur64a(item, 0))
    }

    fn entry(self) -> Occupant {
        Occupant::at((self.0 % 255) as u8 + 1, self.0)
    }
}

/// A fingerprint and its two buckets, not yet reduced to a number of buckets.
#[derive(Clone, Copy)]
struct Occupant {
    print: u8,
    home: u64,
    away: u64,
}

impl Occupant {
    /// The entry of a fingerprint that is in this bucket, for sub-filters up to the size of the one
    /// that the bucket's number is from.
    fn at(print: u8, bucket: u64) -> Occupant {
        Occupant { print, home: bucket, away: other(print, bucket) }
    }
}

/// The other bucket of a fingerprint.
fn other(print: u8, bucket: u64) -> u64 {
    bucket ^ (u64::from(print) * u64::from(MULTIPLIER_32))
}

/// One table of buckets.
struct SubFilter {
    /// One less than the number of buckets.
    mask: u64,
    bucket_size: usize,
    slots: ZeroedArray,
}

impl SubFilter {
    /// The numbers were checked by [`ChainShape::bytes`].
    fn new(buckets: u64, bucket_size: u16) -> Result<SubFilter, Short> {
        let slots = ZeroedArray::zeroed(buckets * u64::from(bucket_size))?;
        Ok(SubFilter { mask: buckets - 1, bucket_size: bucket_size.into(), slots })
    }

    /// Returns the number of slots of a bucket.
    #[inline]
    fn bucket(&self, bucket: u64) -> Range<usize> {
        let start = (bucket & self.mask) as usize * self.bucket_size;
        start..start + self.bucket_size
    }

    /// The first slot of an entry's buckets that holds this byte.
    #[inline]
    fn find(&self, entry: Occupant, byte: u8) -> Option<usize> {
        match self.bucket_size {
            1 => self.find_in_words::<1>(entry, byte),
            2 => self.find_in_words::<2>(entry, byte),
            4 => self.find_in_words::<4>(entry, byte),
            8 => self.find_in_words::<8>(entry, byte),
            _ => self.find_in_slots(entry, byte),
        }
    }

    /// As [`find`](SubFilter::find), for buckets of any size: the specification.
    fn find_in_slots(&self, entry: Occupant, byte: u8) -> Option<usize> {
        let slots = self.slots.bytes();
        let find = |bucket: Range<usize>| {
            let start = bucket.start;
            slots[bucket].iter().position(|slot| *slot == byte).map(|at| start + at)
        };
        find(self.bucket(entry.home)).or_else(|| find(self.bucket(entry.away)))
    }

    /// As [`find`](SubFilter::find), for buckets of `N` slots: which of the two buckets holds the byte
    /// decides no branch.
    #[inline]
    fn find_in_words<const N: usize>(&self, entry: Occupant, byte: u8) -> Option<usize> {
        let (home, away) = (self.bucket(entry.home).start, self.bucket(entry.away).start);
        let [at_home, at_away] = [home, away].map(|start| self.equal_slots::<N>(start, byte));
        let matches = at_home | at_away << N;
        if matches == 0 {
            return None;
        }
        let first = matches.trailing_zeros() as usize;
        Some(if at_home != 0 { home + first } else { away + first - N })
    }

    /// Bit i is set if slot i of the `N` from `start` on holds this byte.
    #[inline]
    fn equal_slots<const N: usize>(&self, start: usize, byte: u8) -> u32 {
        let slots = &self.slots.bytes()[start..start + N];
        (0..N).fold(0, |bits, slot| bits | u32::from(slots[slot] == byte) << slot)
    }

    /// Whether one of the entry's buckets holds its fingerprint.
    #[inline]
    fn holds(&self, entry: Occupant) -> bool {
        self.find(entry, entry.print).is_some()
    }

    /// How often the entry is in its buckets.
    #[inline]
    fn count(&self, entry: Occupant) -> u64 {
        match self.bucket_size {
            1 => self.count_in_words::<1>(entry),
            2 => self.count_in_words::<2>(entry),
            4 => self.count_in_words::<4>(entry),
            8 => self.count_in_words::<8>(entry),
            _ => self.count_in_slots(entry),
        }
    }

    /// As [`count`](SubFilter::count), for buckets of any size: the specification.
    fn count_in_slots(&self, entry: Occupant) -> u64 {
        let count = |bucket: Range<usize>| {
            self.slots.bytes()[bucket].iter().filter(|slot| **slot == entry.print).count() as u64
        };
        let (home, away) = (self.bucket(entry.home), self.bucket(entry.away));
        if home == away { count(home) } else { count(home) + count(away) }
    }

    /// As [`count`](SubFilter::count), for buckets of `N` slots.
    #[inline]
    fn count_in_words<const N: usize>(&self, entry: Occupant) -> u64 {
        let (home, away) = (self.bucket(entry.home).start, self.bucket(entry.away).start);
        let [at_home, at_away] =
            [home, away].map(|start| self.equal_slots::<N>(start, entry.print).count_ones());
        u64::from(at_home) + if home == away { 0 } else { u64::from(at_away) }
    }

    /// Requests the cache lines of the entry's buckets.
    #[inline]
    fn prefetch(&self, entry: Occupant) {
        let base = self.slots.bytes().as_ptr();
        for bucket in [entry.home, entry.away] {
            prefetch(base.wrapping_add(self.bucket(bucket).start), Towards::Near);
        }
    }

    /// Makes room for the entry by moving others, and puts it there: the slot that was empty
    /// before. None if no move leads to an empty slot; all is then as it was.
    fn insert_by_moves(&mut self, entry: Occupant, max_iterations: u16) -> Option<usize> {
        let (mut print, mut bucket, mut victim) = (entry.print, entry.home, 0);
        for _ in 0..max_iterations {
            let slot = self.bucket(bucket).start + victim;
            std::mem::swap(&mut print, &mut self.slots.bytes_mut()[slot]);
            bucket = other(print, bucket);
            let range = self.bucket(bucket);
            let slots = &mut self.slots.bytes_mut()[range.clone()];
            if let Some(empty) = slots.iter().position(|slot| *slot == 0) {
                slots[empty] = print;
                return Some(range.start + empty);
            }
            victim = (victim + 1) % self.bucket_size;
        }
        // The same steps backwards: `other` is its own inverse.
        for _ in 0..max_iterations {
            victim = victim.checked_sub(1).unwrap_or(self.bucket_size - 1);
            bucket = other(print, bucket);
            let slot = self.bucket(bucket).start + victim;
            std::mem::swap(&mut print, &mut self.slots.bytes_mut()[slot]);
        }
        None
    }
}

/// The sizes of a filter's sub-filters, as its header has them.
#[derive(Clone, Copy)]
pub(super) struct ChainShape {
    /// Buckets of the first sub-filter.
    pub buckets: u64,
    pub bucket_size: u16,
    pub expansion: u16,
}

impl ChainShape {
    /// The buckets of sub-filter `at`. None if they cannot be counted.
    fn buckets(self, at: u64) -> Option<u64> {
        if at == 0 || self.expansion == 1 {
            return Some(self.buckets);
        }
        let times = u64::from(self.expansion).checked_pow(u32::try_from(at).ok()?)?;
        self.buckets.checked_mul(times)
    }

    /// The bytes of sub-filter `at`, or the error that says how many are too many.
    fn bytes(self, at: u64) -> Result<u64, Short> {
        let bytes = self.buckets(at).and_then(|n| n.checked_mul(self.bucket_size.into()));
        match bytes {
            Some(bytes) if bytes <= MAX_SUB_FILTER => Ok(bytes),
            bytes => {
                let bytes = bytes.unwrap_or(u64::MAX);
                Err(Short::TooLarge { bytes, most: MAX_SUB_FILTER })
            }
        }
    }
}

/// How far a compaction has come: the sub-filter it empties, the next slot of it, and whether an
/// entry remains in a slot before that.
#[derive(Clone, Copy)]
struct Progress {
    filter: usize,
    slot: usize,
    remains: bool,
}

impl Progress {
    fn of(filter: usize) -> Progress {
        Progress { filter, slot: 0, remains: false }
    }
}

impl CuckooChain {
    /// Creates an empty filter for about `capacity` items. The number of buckets is the smallest
    /// power of two that is at least `capacity / bucket_size`. `expansion` is rounded up to a power
    /// of two; with 0 the filter does not grow.
    ///
    /// # Errors
    ///
    /// Refuses values out of range, and a filter of more than `limit` bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::interop::redisbloom::CuckooChain;
    ///
    /// let mut filter = CuckooChain::new(1000, 2, 20, 1, 1 << 20)?;
    /// assert_eq!((filter.buckets(), filter.bytes()), (512, 1024));
    /// filter.insert(b"alice", 1 << 20)?;
    /// assert!(filter.contains(b"alice") && filter.remove(b"alice"));
    /// assert!(!filter.contains(b"alice"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(
        capacity: u64,
        bucket_size: u16,
        max_iterations: u16,
        expansion: u16,
        limit: u64,
    ) -> Result<CuckooChain, ForeignError> {
        let wrong = |name, got: u64, expected| {
            Err(ForeignError::Parameter { name, got: got.to_string(), expected })
        };
        if !(1..=255).contains(&bucket_size) {
            return wrong("bucket size", bucket_size.into(), "from 1 to 255");
        }
        if max_iterations == 0 {
            return wrong("max iterations", 0, "at least 1");
        }
        if expansion > 1 << 15 {
            return wrong("expansion", expansion.into(), "at most 32768");
        }
        if capacity < 2 * u64::from(bucket_size) {
            return wrong("capacity", capacity, "at least twice the bucket size");
        }
        let expansion = if expansion == 0 { 0 } else { expansion.next_power_of_two() };
        let buckets = (capacity / u64::from(bucket_size)).checked_next_power_of_two();
        let Some(buckets) = buckets.filter(|buckets| *buckets <= MAX_SUB_FILTER) else {
            return Err(ForeignError::TooLarge { bytes: capacity, most: MAX_SUB_FILTER });
        };
        let shape = ChainShape { buckets, bucket_size, expansion };
        let mut builder = CuckooBuilder::new(
            Counts { items: 0, deletes: 0, filters: 1 },
            shape,
            max_iterations,
            limit,
        )?;
        builder.push()?;
        Ok(builder.finish())
    }

    fn shape(&self) -> ChainShape {
        ChainShape {
            buckets: self.buckets(),
            bucket_size: self.bucket_size,
            expansion: self.expansion,
        }
    }

    /// Adds an item, also if it is present. The filter may grow, to at most `limit` bytes and
    /// [`MAX_FILTERS`] sub-filters.
    ///
    /// # Errors
    ///
    /// Fails if there is no room for the item.
    pub fn insert(&mut self, item: &[u8], limit: u64) -> Result<(), Refused> {
        self.insert_hash(Hash::of(item), limit)
    }

    /// Adds an item unless it is probably present, and returns whether it was added.
    ///
    /// # Errors
    ///
    /// Fails as [`insert`](CuckooChain::insert) does.
    pub fn insert_unique(&mut self, item: &[u8], limit: u64) -> Result<bool, Refused> {
        self.insert_unique_hash(Hash::of(item), limit)
    }

    /// Does the same as [`insert_unique`](CuckooChain::insert_unique), for an item that is hashed
    /// already.
    ///
    /// # Errors
    ///
    /// Fails as [`insert`](CuckooChain::insert) does.
    pub fn insert_unique_hash(&mut self, hash: Hash, limit: u64) -> Result<bool, Refused> {
        if self.contains_hash(hash) {
            return Ok(false);
        }
        self.insert_hash(hash, limit).map(|()| true)
    }

    /// Does the same as [`insert`](CuckooChain::insert), for an item that is hashed already.
    ///
    /// # Errors
    ///
    /// Fails as [`insert`](CuckooChain::insert) does.
    pub fn insert_hash(&mut self, hash: Hash, limit: u64) -> Result<(), Refused> {
        if self.items >= MAX_COUNT {
            return Err(Refused::Full);
        }
        let entry = hash.entry();
        let (filter, slot) = match self.insert_here(entry) {
            Some(place) => place,
            None => {
                self.grow(limit)?;
                self.insert_here(entry).expect("a sub-filter that is empty")
            }
        };
        // An entry behind the back of a compaction.
        if let Some(progress) = &mut self.compaction {
            progress.remains |= progress.filter == filter && slot < progress.slot;
        }
        self.items += 1;
        Ok(())
    }

    /// Puts the entry into the sub-filters there are, and tells where a slot was empty before.
    fn insert_here(&mut self, entry: Occupant) -> Option<(usize, usize)> {
        for (at, filter) in self.filters.iter_mut().enumerate().rev() {
            if let Some(slot) = filter.find(entry, 0) {
                filter.slots.bytes_mut()[slot] = entry.print;
                return Some((at, slot));
            }
        }
        let newest = self.filters.len() - 1;
        let slot = self.filters[newest].insert_by_moves(entry, self.max_iterations)?;
        Some((newest, slot))
    }

    fn grow(&mut self, limit: u64) -> Result<(), Refused> {
        let filters = self.filters();
        if self.expansion == 0 || filters == MAX_FILTERS {
            return Err(Refused::Full);
        }
        let bytes = self.bytes().checked_add(self.shape().bytes(filters)?);
        check(filters + 1, bytes, limit)?;
        let buckets = self.shape().buckets(filters).expect("its bytes were counted");
        memory::reserve(&mut self.filters, 1)?;
        self.filters.push(SubFilter::new(buckets, self.bucket_size)?);
        Ok(())
    }

    /// Returns whether the item may be present: false is certain, true is probable.
    #[must_use]
    pub fn contains(&self, item: &[u8]) -> bool {
        self.contains_hash(Hash::of(item))
    }

    /// Does the same as [`contains`](CuckooChain::contains), for an item that is hashed already.
    #[inline]
    #[must_use]
    pub fn contains_hash(&self, hash: Hash) -> bool {
        let entry = hash.entry();
        self.filters.iter().rev().any(|filter| filter.holds(entry))
    }

    /// Queries many items that are hashed already. `found` is emptied first, and then has a result
    /// for each.
    pub fn contains_hashes(&self, hashes: &[Hash], found: &mut Vec<bool>) {
        found.clear();
        let Ok(()) = each_run(self, hashes, |chain, run| {
            found.extend(run.iter().map(|hash| chain.contains_hash(*hash)));
            Ok::<(), Infallible>(())
        });
    }

    /// Calls `work` for one hash after another until it fails. Meanwhile it prefetches the memory
    /// of the following hashes.
    ///
    /// # Errors
    ///
    /// Returns the error of `work`.
    pub fn try_each<E>(
        &mut self,
        hashes: &[Hash],
        mut work: impl FnMut(&mut CuckooChain, Hash) -> Result<(), E>,
    ) -> Result<(), E> {
        each_run(self, hashes, |chain, run| run.iter().try_for_each(|hash| work(chain, *hash)))
    }

    /// Requests the memory of items, so that it is near when they are looked up or changed.
    fn prefetch(&self, hashes: &[Hash]) {
        for filter in &self.filters {
            if filter.slots.bytes().len() > FITS_IN_L2 {
                hashes.iter().for_each(|hash| filter.prefetch(hash.entry()));
            }
        }
    }

    /// Returns how many copies of the item the filter may hold: at least the number of adds less
    /// removals.
    #[must_use]
    pub fn count(&self, item: &[u8]) -> u64 {
        self.count_hash(Hash::of(item))
    }

    /// Does the same as [`count`](CuckooChain::count), for an item that is hashed already.
    #[must_use]
    pub fn count_hash(&self, hash: Hash) -> u64 {
        let entry = hash.entry();
        self.filters.iter().map(|filter| filter.count(entry)).sum()
    }

    /// Counts many items that are hashed already. `counts` is emptied first, and then has a number
    /// for each.
    pub fn count_hashes(&self, hashes: &[Hash], counts: &mut Vec<u64>) {
        counts.clear();
        let Ok(()) = each_run(self, hashes, |chain, run| {
            counts.extend(run.iter().map(|hash| chain.count_hash(*hash)));
            Ok::<(), Infallible>(())
        });
    }

    /// Removes one copy of an item, and returns whether it was probably present.
    ///
    /// When the number of removed items exceeds a tenth of those that remain, a small filter
    /// compacts itself. For a large one, call [`compact_step`](CuckooChain::compact_step) when
    /// [`is_compaction_due`](CuckooChain::is_compaction_due) returns true.
    pub fn remove(&mut self, item: &[u8]) -> bool {
        self.remove_hash(Hash::of(item))
    }

    /// Does the same as [`remove`](CuckooChain::remove), for an item that is hashed already.
    pub fn remove_hash(&mut self, hash: Hash) -> bool {
        let entry = hash.entry();
        for filter in self.filters.iter_mut().rev() {
            if let Some(slot) = filter.find(entry, entry.print) {
                filter.slots.bytes_mut()[slot] = 0;
                // Counts are those of the header it was made from, which may be too low.
                self.items = self.items.saturating_sub(1);
                self.deletes = (self.deletes + 1).min(MAX_COUNT);
                if self.is_compaction_due() && self.bytes() <= COMPACTED_AT_ONCE {
                    self.compact();
                }
                return true;
            }
        }
        false
    }

    /// Returns whether RedisBloom would compact the filter after a removal: it has several
    /// sub-filters, and the number of removed items exceeds a tenth of those that remain.
    #[must_use]
    pub fn is_compaction_due(&self) -> bool {
        self.filters.len() > 1 && self.deletes > self.items / 10
    }

    /// Moves entries to older sub-filters where there is room, and frees the newest ones that
    /// become empty. Reads the whole filter.
    pub fn compact(&mut self) {
        self.compaction = None;
        while !self.compact_step(usize::MAX) {}
    }

    /// Does a part of a compaction, of about `budget` slots and buckets. Returns true when the
    /// compaction is complete; the next call begins a new one.
    ///
    /// The filter may be used and changed between steps: no entry is ever missing. If it was not
    /// changed, the result is that of [`compact`](CuckooChain::compact).
    pub fn compact_step(&mut self, budget: usize) -> bool {
        let mut left = budget.max(1);
        let newest = self.filters.len() - 1;
        let mut progress = self.compaction.take().unwrap_or(Progress::of(newest));
        while progress.filter > 0 {
            while progress.slot < self.filters[progress.filter].slots.bytes().len() {
                if left == 0 {
                    self.compaction = Some(progress);
                    return false;
                }
                let (looked_at, remains) = self.relocate(progress.filter, progress.slot);
                progress.remains |= remains;
                progress.slot += 1;
                left = left.saturating_sub(looked_at);
            }
            if !progress.remains && progress.filter == self.filters.len() - 1 {
                self.filters.pop();
                self.filters.shrink_to_fit();
            }
            progress = Progress::of(progress.filter - 1);
        }
        self.deletes = 0;
        true
    }

    /// Moves what is in a slot to an older sub-filter, if one has room. Returns how many slots and
    /// buckets were looked at, and whether an entry remains.
    fn relocate(&mut self, filter: usize, slot: usize) -> (usize, bool) {
        let (older, rest) = self.filters.split_at_mut(filter);
        let from = &mut rest[0];
        let print = from.slots.bytes()[slot];
        if print == 0 {
            return (1, false);
        }
        // An older sub-filter is no larger, and both numbers of buckets are powers of two: so the
        // number of the bucket here is all that is needed of the hash.
        let entry = Occupant::at(print, (slot / from.bucket_size) as u64);
        // The oldest first: it is the last to be freed.
        for (at, filter) in older.iter_mut().enumerate() {
            if let Some(empty) = filter.find(entry, 0) {
                filter.slots.bytes_mut()[empty] = print;
                from.slots.bytes_mut()[slot] = 0;
                return (1 + 2 * (at + 1), false);
            }
        }
        (1 + 2 * filter, true)
    }

    /// Removes every item, and all sub-filters but the first.
    pub fn clear(&mut self) {
        self.compaction = None;
        self.filters.truncate(1);
        self.filters[0].slots.bytes_mut().fill(0);
        (self.items, self.deletes) = (0, 0);
    }

    /// Copies the filter.
    ///
    /// # Errors
    ///
    /// Fails if there is not enough memory.
    pub fn try_clone(&self) -> Result<CuckooChain, ForeignError> {
        let mut filters = Vec::new();
        memory::reserve(&mut filters, self.filters.len())?;
        for SubFilter { mask, bucket_size, slots } in &self.filters {
            filters.push(SubFilter {
                mask: *mask,
                bucket_size: *bucket_size,
                slots: slots.copy()?,
            });
        }
        // A compaction that has begun begins anew.
        Ok(CuckooChain { filters, compaction: None, ..*self })
    }

    /// Returns the number of items.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Returns the number of items removed since the last compaction.
    #[must_use]
    pub fn deletes(&self) -> u64 {
        self.deletes
    }

    /// Returns the number of sub-filters.
    #[must_use]
    pub fn filters(&self) -> u64 {
        self.filters.len() as u64
    }

    /// Returns the number of buckets of the first sub-filter.
    #[must_use]
    pub fn buckets(&self) -> u64 {
        self.filters[0].mask + 1
    }

    /// Returns the number of slots of a bucket.
    #[must_use]
    pub fn bucket_size(&self) -> u16 {
        self.bucket_size
    }

    /// Returns the largest number of entries that one insert moves.
    #[must_use]
    pub fn max_iterations(&self) -> u16 {
        self.max_iterations
    }

    /// Returns how many times as large as the last sub-filter the next one is, or 0 if the filter
    /// does not grow.
    #[must_use]
    pub fn expansion(&self) -> u16 {
        self.expansion
    }

    /// Returns the bytes of all sub-filters, which is also the number of slots.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.arrays().map(|slots| slots.len() as u64).sum()
    }

    /// Returns the bytes of memory on the heap: all sub-filters and their list, as an allocator
    /// rounds them up.
    #[must_use]
    pub fn memory(&self) -> u64 {
        memory::of(&self.filters, |filter| &filter.slots)
    }

    /// The slots, oldest sub-filter first.
    pub(super) fn arrays(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.filters.iter().map(|filter| filter.slots.bytes())
    }

    /// Returns the reply of `CF.SCANDUMP` for position 0. (For an empty filter RedisBloom returns
    /// nothing.)
    #[must_use]
    pub fn header(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER);
        for field in [self.items, self.buckets(), self.deletes, self.filters()] {
            header.extend(field.to_le_bytes());
        }
        for field in [self.bucket_size, self.max_iterations, self.expansion] {
            header.extend(field.to_le_bytes());
        }
        header
    }

    /// Returns the reply of `CF.SCANDUMP` for a position from 1 on: the next position, and at most
    /// `most` bytes. The result is `None` at the end. RedisBloom returns at most
    /// [`CHUNK`](super::CHUNK) bytes.
    ///
    /// # Panics
    ///
    /// Panics if `most` is 0.
    #[must_use]
    pub fn chunk(&self, position: u64, most: usize) -> Option<(u64, &[u8])> {
        memory::chunk(self.arrays(), position, most)
    }

    /// Writes all bytes that `CF.SCANDUMP` returns in chunks.
    ///
    /// # Errors
    ///
    /// Fails if the writer fails.
    pub fn write_body(&self, mut writer: impl Write) -> io::Result<()> {
        self.arrays().try_for_each(|array| writer.write_all(array))
    }

    /// Replaces all bytes by those that [`write_body`](CuckooChain::write_body) has written for a
    /// filter of the same header.
    ///
    /// # Errors
    ///
    /// Fails if the reader fails or ends too early.
    pub fn read_body(&mut self, mut reader: impl Read) -> io::Result<()> {
        // What a compaction has seen so far is no longer so.
        self.compaction = None;
        self.filters.iter_mut().try_for_each(|filter| reader.read_exact(filter.slots.bytes_mut()))
    }

    /// Creates the filter that a header describes, without its entries. [`load`](CuckooChain::load)
    /// adds them.
    ///
    /// # Errors
    ///
    /// Refuses a header that describes no filter, and a filter of more than `limit` bytes.
    pub fn from_header(header: &[u8], limit: u64) -> Result<CuckooChain, LoadError> {
        let length = header.len() as u64;
        let Some((counts, shape, max_iterations)) = fields_of(header) else {
            return Err(LoadError::BadHeader { length, expected: HEADER as u64 });
        };
        let mut builder = CuckooBuilder::new(counts, shape, max_iterations, limit)?;
        for _ in 0..counts.filters {
            builder.push()?;
        }
        Ok(builder.finish())
    }

    /// Loads a chunk with its position, as `CF.SCANDUMP` returned them. Chunks may come in any
    /// order.
    ///
    /// # Errors
    ///
    /// Fails if the chunk does not fit the filter.
    pub fn load(&mut self, position: u64, data: &[u8]) -> Result<(), LoadError> {
        let length = data.len() as u64;
        let misfit = || LoadError::CannotLoad { position, length };
        if data.is_empty() {
            return Err(misfit());
        }
        let place = position.checked_sub(length).and_then(|end| end.checked_sub(1));
        let (at, start) =
            place.and_then(|place| memory::locate(self.arrays(), place)).ok_or_else(misfit)?;
        let rest = &mut self.filters[at].slots.bytes_mut()[start..];
        rest.get_mut(..data.len()).ok_or_else(misfit)?.copy_from_slice(data);
        // What a compaction has seen so far is no longer so.
        self.compaction = None;
        Ok(())
    }
}

/// Works on hashes run by run, until the work fails. The memory of a run is requested before the
/// work on the run before it.
fn each_run<C: Borrow<CuckooChain>, E>(
    mut chain: C,
    hashes: &[Hash],
    mut work: impl FnMut(&mut C, &[Hash]) -> Result<(), E>,
) -> Result<(), E> {
    // An item has two lines in each sub-filter.
    let length = (MOST_AHEAD / chain.borrow().filters.len()).max(1);
    let mut runs = hashes.chunks(length).peekable();
    runs.peek().into_iter().for_each(|first| chain.borrow().prefetch(first));
    while let Some(run) = runs.next() {
        runs.peek().into_iter().for_each(|next| chain.borrow().prefetch(next));
        work(&mut chain, run)?;
    }
    Ok(())
}

fn fields_of(header: &[u8]) -> Option<(Counts, ChainShape, u16)> {
    let mut fields = Decoder(header);
    let (items, buckets) = (fields.u64()?, fields.u64()?);
    let (deletes, filters) = (fields.u64()?, fields.u64()?);
    let (bucket_size, max_iterations, expansion) = (fields.u16()?, fields.u16()?, fields.u16()?);
    let shape = ChainShape { buckets, bucket_size, expansion };
    fields.0.is_empty().then_some((Counts { items, deletes, filters }, shape, max_iterations))
}

/// What a header counts.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    pub items: u64,
    pub deletes: u64,
    pub filters: u64,
}

/// Makes a filter from what a header or a payload says of it.
pub(super) struct CuckooBuilder {
    cuckoo: CuckooChain,
    shape: ChainShape,
}

impl CuckooBuilder {
    /// Checks the numbers, and that there may be memory for all sub-filters.
    pub(super) fn new(
        counts: Counts,
        shape: ChainShape,
        max_iterations: u16,
        limit: u64,
    ) -> Result<CuckooBuilder, ForeignError> {
        let Counts { items, deletes, filters } = counts;
        let ChainShape { buckets, bucket_size, expansion } = shape;
        if !(1..=255).contains(&bucket_size) {
            return Err(ForeignError::damaged("bucket size", "from 1 to 255", bucket_size));
        }
        if max_iterations == 0 {
            return Err(ForeignError::damaged("max iterations", "at least 1", 0));
        }
        if expansion != 0 && !expansion.is_power_of_two() {
            return Err(ForeignError::damaged("expansion", "0 or a power of two", expansion));
        }
        if !buckets.is_power_of_two() {
            return Err(ForeignError::damaged("number of buckets", "a power of two", buckets));
        }
        let most = if expansion == 0 { 1 } else { MAX_FILTERS };
        if !(1..=most).contains(&filters) {
            return Err(ForeignError::damaged(
                "number of sub-filters",
                format!("from 1 to {most}"),
                filters,
            ));
        }
        if items > MAX_COUNT || deletes > MAX_COUNT {
            let expected = format!("at most {MAX_COUNT} each");
            return Err(ForeignError::damaged("items and deletes", expected, items.max(deletes)));
        }
        let mut bytes: Option<u64> = Some(0);
        for at in 0..filters {
            let more = shape.bytes(at)?;
            bytes = bytes.and_then(|bytes| bytes.checked_add(more));
        }
        check(filters, bytes, limit)?;
        let mut room = Vec::new();
        memory::reserve(&mut room, filters as usize)?;
        let cuckoo = CuckooChain {
            items,
            deletes,
            bucket_size,
            max_iterations,
            expansion,
            filters: room,
            compaction: None,
        };
        Ok(CuckooBuilder { cuckoo, shape })
    }

    /// The buckets of the next sub-filter.
    pub(super) fn next_buckets(&self) -> u64 {
        self.shape.buckets(self.cuckoo.filters()).expect("checked for all sub-filters")
    }

    /// Adds the next sub-filter, and gives its slots to be filled.
    pub(super) fn push(&mut self) -> Result<&mut [u8], ForeignError> {
        let filter = SubFilter::new(self.next_buckets(), self.shape.bucket_size)?;
        self.cuckoo.filters.push(filter);
        Ok(self.cuckoo.filters.last_mut().expect("just pushed").slots.bytes_mut())
    }

    /// The filter, once all its sub-filters were pushed.
    pub(super) fn finish(self) -> CuckooChain {
        self.cuckoo
    }
}

/// Equal are filters that dump the same bytes.
impl PartialEq for CuckooChain {
    fn eq(&self, other: &CuckooChain) -> bool {
        self.header() == other.header() && self.arrays().eq(other.arrays())
    }
}

impl fmt::Debug for CuckooChain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("CuckooChain");
        fields.field("items", &self.items).field("deletes", &self.deletes);
        fields.field("filters", &self.filters()).field("buckets", &self.buckets());
        fields.field("bucket_size", &self.bucket_size).field("expansion", &self.expansion);
        fields.field("max_iterations", &self.max_iterations).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splitmix::finalize;

    #[test]
    fn both_buckets_at_once_are_answered_as_slot_by_slot() {
        // The empty slot, and fingerprints of which two have one bucket of 16 for both.
        const PRINTS: [u8; 6] = [0, 16, 32, 1, 2, 3];
        for bucket_size in [1, 2, 3, 4, 5, 8, 9] {
            let (mut shared, mut found) = (0, 0);
            let mut filter = SubFilter::new(16, bucket_size).expect("some bytes");
            for round in 0..200_u64 {
                for (at, slot) in filter.slots.bytes_mut().iter_mut().enumerate() {
                    *slot = PRINTS[finalize(round << 32 | at as u64) as usize % 6];
                }
                for number in 0..40 {
                    let bits = finalize(number << 48 | round);
                    let entry = Occupant::at(PRINTS[1 + (bits >> 60) as usize % 5], bits);
                    for byte in [entry.print, 0] {
                        assert_eq!(filter.find(entry, byte), filter.find_in_slots(entry, byte));
                    }
                    assert_eq!(filter.count(entry), filter.count_in_slots(entry));
                    shared += u32::from(filter.bucket(entry.home) == filter.bucket(entry.away));
                    found += u32::from(filter.holds(entry));
                }
            }
            assert!(shared > 100 && (100..7900).contains(&found), "{shared} and {found} of 8000");
        }
    }
}
