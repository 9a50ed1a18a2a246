//! The cuckoo filter: a small fingerprint per key, in one of two buckets.
//!
//! **Idea.** A key is kept as a fingerprint of w bits in one of two buckets of four slots. If both
//! are full, an entry of theirs is moved to its own other bucket, and so on, until an empty slot is
//! found. The other bucket follows from the first one and the fingerprint, so entries can be moved
//! without their keys. Each key has an entry of its own, so it can be removed, and it can be
//! present several times.
//!
//! **Two buckets.** With B buckets, of which i is the key's by its place, and a fingerprint f:
//!
//!   f = 1 + print * (2^w - 1) / 2^64,  other(i) = (H(f) - i) mod B
//!
//! 0 is an empty slot. Fan et al. take i xor H(f), which needs a power of two; a difference is its
//! own inverse for every B. For even B the values of H are odd, so an even bucket's partner is odd
//! and the two never coincide. For odd B they coincide for one key in B. That matters in small
//! tables: one of two buckets would soon need room for five entries that fit nowhere else. So plans
//! have an even number of buckets, or one.
//!
//! **Layout.** Buckets of four slots of w bits, packed: see `buckets.rs`. Which slot of its two
//! buckets an entry is in depends on the order of the calls; two filters are the same if they have
//! the same entries.
//!
//! **Room.** An insert first searches for a chain of moves, breadth first, which finds the
//! shortest. It moves entries only when the chain ends in an empty slot. So a full filter stays as
//! it was, to the bit, and no entry is ever dropped. The search sees every bucket of a table of up
//! to 512, and some 2000 of a larger one; 256 once the filter has refused a key above its plan. The
//! first refusal comes at 97 to 98% of the slots (means of 98.0% for 1000 items, 97.5 for 40,000,
//! 97.2 for a million; the theory's limit is 98.0). Tables are planned for 95%, and small ones for
//! less: see `capacity`.
//!
//! **Cost.** A query always looks into both buckets: a branch between them could not be predicted,
//! and both cache lines are fetched at the same time. An insert does the same while the table is
//! half empty. At 80% one insert in four must move an entry, at 95% three in four, 1.3 entries
//! each, after a look at 23 full buckets. Over all inserts up to 95% that is 0.15 moves each. Bits
//! per key are w / 0.95 with w = log2(1 / rate) + 2.93 rounded up: 10.5 at 1%, 13.7 at 0.1%, 17.9
//! at 0.01%.
//!
//! **When not.** Never remove a key that was not inserted: the removed entry may be that of another
//! key, which is then reported as absent. A key fits at most 8 times. If keys are never removed,
//! use blocked: it takes one line, is never full, and has fewer bits at rates from 1% up.
//!
//! Source: Fan, Andersen, Kaminsky, Mitzenmacher, "Cuckoo Filter: Practically Better Than Bloom",
//! CoNEXT 2014.

mod plan;
mod row;

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::kernels::scalar::fold;
use crate::kernels::{FITS_IN_L2, SECOND_LINE, Towards};
use crate::kind::Kind;
use crate::kinds::buckets::{Place, SLOTS, Slots};
use crate::math;
use crate::membership::Membership;
use crate::plan::{Plan, mean_of_growth};
use crate::profile::{Count, Slice, Spread, divide, slices_of};
use crate::state::{Array, ArrayKind, Intersecting, Positioned, Removable, State};
use crate::storage::{Bits, Order};
use plan::CuckooShape;
pub(crate) use row::ROW;

/// A cuckoo filter.
pub struct Cuckoo {
    plan: Plan,
    table: BucketTable,
    /// The slots, and how many of them are taken.
    pub(crate) bits: Bits,
    /// The least number of entries, above the planned one, at which there was no room for another.
    refused_at: u64,
}

impl fmt::Debug for Cuckoo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::state::debug("Cuckoo", self, f)
    }
}

impl Cuckoo {
    /// An empty filter. Panics if the plan is for another kind.
    pub fn new(plan: Plan) -> Result<Cuckoo> {
        Ok(Cuckoo::with_bits(plan, Bits::zeroed(plan.bytes())?))
    }

    /// A filter over slots that are there already, of which `bits.ones` are taken.
    pub(crate) fn with_bits(plan: Plan, bits: Bits) -> Cuckoo {
        assert_eq!(plan.kind(), Kind::Cuckoo, "a plan for another kind");
        assert_eq!(bits.cells.bytes().len() as u64, plan.bytes());
        Cuckoo {
            plan,
            table: BucketTable::new(CuckooShape { buckets: plan.buckets(), width: plan.width() }),
            bits,
            refused_at: u64::MAX,
        }
    }

    /// The plan it was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The number of entries: of keys, each as often as it was inserted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.bits.ones
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the digest may be there: false is certain, true is probable.
    #[inline]
    #[must_use]
    pub fn contains(&self, digest: Digest) -> bool {
        self.table.contains(self.bits.cells.bytes(), self.table.entry(digest))
    }

    /// How often the digest may be there: at least as often as it was inserted and not removed, and
    /// more often if other keys look the same. At most 8.
    #[must_use]
    pub fn count(&self, digest: Digest) -> u64 {
        self.table.count(self.bits.cells.bytes(), self.table.entry(digest))
    }

    /// Inserts the digest once more, and tells whether it was certainly not there before.
    ///
    /// If there is no room the answer is [`Error::Full`], and nothing has changed. That happens at
    /// about 97% of the slots. If the digest is there 8 times already (4 times if the table has a
    /// single bucket), the answer is [`Error::Copies`].
    #[inline]
    pub fn insert(&mut self, digest: Digest) -> Result<bool> {
        self.add(self.table.entry(digest))
    }

    /// Takes the digest out once, and tells whether it was there; if not, nothing has changed.
    ///
    /// Remove only keys that were inserted. Removing a key with the same fingerprint removes the
    /// entry of another key, which is then reported as absent.
    #[inline]
    pub fn remove(&mut self, digest: Digest) -> Result<bool> {
        let removed = self.table.take(self.bits.cells.bytes_mut()?, self.table.entry(digest));
        // A file may have a wrong number of entries, which must not cause a panic.
        self.bits.ones = self.bits.ones.saturating_sub(u64::from(removed));
        Ok(removed)
    }

    /// Keeps of each entry as many as both filters of the same shape have. What is in both stays;
    /// of keys that look the same, one in each, an entry stays too.
    fn keep_common(&mut self, other: &Cuckoo) -> Result<()> {
        let (table, there) = (self.table, other.bits.cells.bytes());
        let here = self.bits.cells.bytes_mut()?;
        let mut kept = 0;
        for bucket in 0..table.buckets {
            for slot in 0..SLOTS {
                let place = table.slots.place(bucket, slot);
                let print = table.slots.get(here, place);
                if print == 0 {
                    continue;
                }
                // One by one until they are few enough: each of them comes by.
                let entry = table.entry_at(bucket, print);
                if table.count(here, entry) > table.count(there, entry) {
                    table.slots.set(here, place, 0);
                } else {
                    kept += 1;
                }
            }
        }
        self.bits.ones = kept;
        Ok(())
    }

    /// Every entry, each as often as it is there.
    fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let (table, bytes) = (self.table, self.bits.cells.bytes());
        (0..table.buckets).flat_map(move |bucket| {
            let taken = table.slots.bucket(bytes, bucket).into_iter().filter(|print| *print != 0);
            taken.map(move |print| table.entry_at(bucket, print))
        })
    }

    #[inline]
    fn add(&mut self, entry: Entry) -> Result<bool> {
        let reach = self.reach();
        // Not by `?`, which makes and drops an error for each insert.
        let Some(bytes) = self.bits.cells.writable() else { return Err(Error::ReadOnly) };
        match self.table.add(bytes, entry, reach) {
            Some(new) => {
                self.bits.ones = self.bits.ones.saturating_add(1);
                Ok(new)
            }
            None => Err(self.refused(entry)),
        }
    }

    /// Full buckets that a search for room may remember. Before the first refusal the search is
    /// thorough. A filter that has refused keys above its plan will refuse more, and should not
    /// take long for each.
    #[inline]
    fn reach(&self) -> usize {
        if self.bits.ones >= self.refused_at { SHORT_REACH } else { REACH }
    }

    /// Why there is no room for an entry.
    #[cold]
    fn refused(&mut self, entry: Entry) -> Error {
        let copies = self.table.count(self.bits.cells.bytes(), entry);
        if copies == entry.slots() {
            return Error::Copies { copies };
        }
        if self.bits.ones >= self.plan.items() {
            self.refused_at = self.refused_at.min(self.bits.ones);
        }
        self.full()
    }

    fn full(&self) -> Error {
        Error::Full { items: self.bits.ones, planned: self.plan.items() }
    }
}

impl ArrayKind for Cuckoo {
    fn from_bits(plan: Plan, bits: Bits) -> Cuckoo {
        Cuckoo::with_bits(plan, bits)
    }

    fn array(&self) -> Array<'_> {
        Array { plan: &self.plan, bits: &self.bits }
    }

    fn into_array(self) -> Bits {
        self.bits
    }

    fn empty(&mut self) -> Result<()> {
        self.refused_at = u64::MAX;
        self.bits.clear()
    }

    /// Returns whether both have the same entries, each as often, in whatever slots.
    fn equals(&self, other: &Cuckoo) -> bool {
        let (here, there) = (self.bits.cells.bytes(), other.bits.cells.bytes());
        // Equally many in all, and of each that is here: then there is no other one there.
        self.bits.ones == other.bits.ones
            && self
                .entries()
                .all(|entry| self.table.count(here, entry) == self.table.count(there, entry))
    }

    /// Adds every entry of another filter of the same shape: a key is then there as often as in
    /// both together. If they do not all fit the answer is [`Error::Full`] or [`Error::Copies`], and
    /// nothing has changed.
    fn add_all(&mut self, other: &Cuckoo) -> Result<()> {
        // Too many by number alone: not worth a copy.
        if self.bits.ones.saturating_add(other.bits.ones) > self.plan.cells() {
            return Err(self.full());
        }
        self.bits.cells.bytes_mut()?; // Before the copy takes the place of what is not ours.
        let before = self.bits.copy()?;
        other.bits.cells.expect(Order::Ascending);
        let added = other.entries().try_for_each(|entry| self.add(entry).map(drop));
        other.bits.cells.expect(Order::Random);
        if added.is_err() {
            self.bits = before;
        }
        added
    }

    fn copies(&self, digest: Digest) -> u64 {
        self.count(digest)
    }

    fn count_cells(&self) -> Option<u64> {
        let bytes = self.bits.cells.bytes();
        let (used, rest) = bytes.split_at((self.plan.bits() / 8) as usize);
        let shared = self.plan.bits() % 8;
        let stray = rest.iter().skip(usize::from(shared > 0)).any(|byte| *byte != 0)
            || (shared > 0 && rest[0] >> shared != 0);
        debug_assert!(used.len() < bytes.len());
        (!stray).then(|| self.entries().count() as u64)
    }

    fn fills(&self, slices: usize) -> Vec<Slice> {
        let (table, bytes) = (self.table, self.bits.cells.bytes());
        self.bits.cells.expect(Order::Ascending);
        let counts = divide(table.buckets, slices).map(|slice| {
            let cells = (slice.end - slice.start) * SLOTS as u64;
            let prints = slice.flat_map(|bucket| table.slots.bucket(bytes, bucket));
            Count { used: prints.filter(|print| *print != 0).count() as u64, cells }
        });
        let counts: Vec<Count> = counts.collect();
        self.bits.cells.expect(Order::Random);
        let (mut entries, mut squares) = (0_u64, 0);
        for entry in self.entries() {
            entries += 1;
            squares += table.count(bytes, entry);
        }
        slices_of(&counts, Spread::Entries(squares as f64 / entries.max(1) as f64))
    }

    /// Not from the entries, of which a key may have several: those that were new are counted, and
    /// the others were taken for one of them, at the rate of that moment. Where nobody has counted,
    /// entries that look the same count once.
    fn distinct(&self, inserted: Option<u64>) -> Estimate {
        let Some(inserted) = inserted else {
            let (table, bytes) = (self.table, self.bits.cells.bytes());
            let shares = self.entries().map(|entry| 1.0 / table.count(bytes, entry) as f64);
            return Estimate { items: shares.sum(), error: 0.0 };
        };
        let new = inserted.min(self.bits.ones) as f64;
        let mut items = new;
        // Each step corrects the one before by the rate: the third by a thousandth at 10%.
        for _ in 0..3 {
            let missed = mean_of_growth(|part| self.plan.rate_at(items * part));
            items = new / (1.0 - missed).max(f64::EPSILON);
        }
        Estimate { items, error: math::sqrt(items - new) }
    }

    /// A copy takes a slot as a key does.
    fn keys_left(&self) -> u64 {
        self.plan.items_at(self.plan.rate()).saturating_sub(self.bits.ones)
    }

    fn particulars(&self) -> Vec<(&'static str, String)> {
        let (taken, slots) = (self.bits.ones, self.plan.cells());
        let load = taken as f64 / slots as f64 * 100.0;
        vec![
            ("fingerprints", format!("{} bits each, in buckets of {SLOTS}", self.plan.width())),
            ("load", format!("{taken} of {slots} slots, {load:.1}%; full at about 97%")),
        ]
    }

    fn as_removable(&mut self) -> Option<&mut dyn Removable> {
        Some(self)
    }

    fn as_intersecting(&mut self) -> Option<&mut dyn Intersecting> {
        Some(self)
    }

    fn as_positioned(&self) -> Option<&dyn Positioned> {
        None
    }
}

impl Removable for Cuckoo {
    fn remove(&mut self, digest: Digest) -> Result<bool> {
        self.remove(digest)
    }
}

impl Intersecting for Cuckoo {
    fn intersect(&mut self, other: &dyn State) -> Result<()> {
        self.keep_common(other.of())
    }
}

impl Membership for Cuckoo {
    #[inline]
    fn contains_digest(&self, digest: Digest) -> bool {
        self.contains(digest)
    }

    #[inline]
    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        self.insert(digest)
    }

    fn prefetch(&self, digests: &[Digest]) {
        self.contains_run(&[], digests, &mut []);
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        let bytes = self.bits.cells.bytes();
        let all_answered = self.table.for_each(bytes.as_ptr(), run, next, |at, entry| {
            found[at] = self.table.contains(bytes, entry);
            Ok(())
        });
        all_answered.expect("a query is never refused");
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        let (table, base) = (self.table, self.bits.cells.bytes().as_ptr());
        table.for_each(base, run, next, |_, entry| {
            new.push(self.add(entry)?);
            Ok(())
        })
    }
}

/// A key as the table sees it: a fingerprint, and the two buckets that it may be in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    print: u64,
    buckets: [u64; 2],
}

impl Entry {
    /// The slots that it may be in: no more copies of it fit.
    fn slots(self) -> u64 {
        let [first, second] = self.buckets;
        SLOTS as u64 * if first == second { 1 } else { 2 }
    }
}

/// What must be known of a table to find entries in its bytes.
#[derive(Clone, Copy, Debug)]
struct BucketTable {
    buckets: u64,
    slots: Slots,
}

/// The increment of wyrand.
const STEP: u64 = 0xa076_1d64_78bd_642f;

impl BucketTable {
    fn new(CuckooShape { buckets, width }: CuckooShape) -> BucketTable {
        BucketTable { buckets, slots: Slots::new(width) }
    }

    #[inline]
    fn entry(self, digest: Digest) -> Entry {
        let (bucket, _) = digest.pick(self.buckets);
        let (print, _) = Digest { place: digest.print, print: 0 }.pick(self.slots.max());
        self.entry_at(bucket, 1 + print)
    }

    /// The entry of a fingerprint that is in this bucket.
    #[inline]
    fn entry_at(self, bucket: u64, print: u64) -> Entry {
        Entry { print, buckets: [bucket, self.other(bucket, print)] }
    }

    /// The other bucket of a fingerprint that is in this one; its own inverse.
    #[inline]
    fn other(self, bucket: u64, print: u64) -> u64 {
        // The output of wyrand number `print`. The sums of a product alone are evenly spaced, so
        // that the moves of narrow fingerprints lead back to the same few buckets: a million slots
        // of 6 bits fill to 95.4% then, not 97.2.
        let state = print.wrapping_mul(STEP);
        let draw = Digest { place: fold(state, state ^ SECOND_LINE), print: 0 };
        let even = !self.buckets & 1;
        let sum = draw.pick(self.buckets).0 | even;
        if bucket <= sum { sum - bucket } else { sum + self.buckets - bucket }
    }

    #[inline]
    fn contains(self, bytes: &[u8], Entry { print, buckets }: Entry) -> bool {
        self.slots.any(bytes, buckets, print)
    }

    fn count(self, bytes: &[u8], Entry { print, buckets: [first, second] }: Entry) -> u64 {
        let count = |bucket| {
            let prints = self.slots.bucket(bytes, bucket);
            prints.into_iter().filter(|other| *other == print).count() as u64
        };
        count(first) + if first == second { 0 } else { count(second) }
    }

    /// Adds the entry once, and tells whether it was not there before; or changes nothing if there
    /// is no room.
    #[inline]
    fn add(self, bytes: &mut [u8], entry: Entry, reach: usize) -> Option<bool> {
        let Entry { print, buckets } = entry;
        let new = !self.contains(bytes, entry);
        let place = match self.slots.first(bytes, buckets, EMPTY) {
            Some(place) => place,
            None => self.make_room(bytes, buckets, reach)?,
        };
        self.slots.set(bytes, place, print);
        Some(new)
    }

    /// Takes the entry out once, and tells whether it was there.
    #[inline]
    fn take(self, bytes: &mut [u8], Entry { print, buckets }: Entry) -> bool {
        let place = self.slots.first(bytes, buckets, print);
        if let Some(place) = place {
            self.slots.set(bytes, place, EMPTY);
        }
        place.is_some()
    }

    /// Frees a slot in one of two full buckets by moving entries to their other buckets, along the
    /// shortest chain that ends at an empty slot; or finds none and changes nothing. What was in
    /// the slot is there still, and now elsewhere too: it is to be overwritten. The search remembers
    /// `reach` full buckets at most.
    #[cold]
    #[inline(never)]
    fn make_room(self, bytes: &mut [u8], roots: [u64; 2], reach: usize) -> Option<Place> {
        // Most searches are short, and clearing the memory of a long one would take most of their
        // time. If a short search finds a chain, a long one would find the same.
        let found = self.search::<SHORT_REACH, { SHORT_REACH / 16 }>(bytes, roots);
        if found.is_some() || reach <= SHORT_REACH {
            return found;
        }
        self.search::<REACH, { REACH / 16 }>(bytes, roots)
    }

    /// Does the work of [`make_room`](BucketTable::make_room), and remembers `REACH` full buckets.
    /// `MARKS` are the words of its marks, which are bits, four for each of these buckets.
    fn search<const REACH: usize, const MARKS: usize>(
        self,
        bytes: &mut [u8],
        roots: [u64; 2],
    ) -> Option<Place> {
        // Full buckets in the order in which they were reached, and for each the slot whose entry
        // leads to it, as 4 * (place in `reached` of that slot's bucket) + slot.
        let mut reached = [0; REACH];
        let mut via = [0; REACH];
        reached[..2].copy_from_slice(&roots);
        // A bit for each bucket that was reached, by its hash: most others need not be compared.
        let mut marks = [0_u64; MARKS];
        let mark = |bucket: u64| {
            let bit = bucket.wrapping_mul(STEP) >> (64 - (64 * MARKS).ilog2());
            (bit as usize / 64, 1 << (bit % 64))
        };
        let starts = if roots[0] == roots[1] { 1 } else { 2 };
        for (word, bit) in roots.map(mark) {
            marks[word] |= bit;
        }
        // The other buckets of the entries in the next full buckets. They are asked for at once, so
        // that the search waits for memory once for each step, and not once for each bucket.
        let mut ways = [[0; SLOTS]; AHEAD];
        let (mut at, mut asked, mut end) = (0, 0, starts);
        while at < end {
            while asked < end.min(at + AHEAD) {
                let prints = self.slots.bucket(bytes, reached[asked]);
                for (way, print) in ways[asked % AHEAD].iter_mut().zip(prints) {
                    *way = self.other(reached[asked], print);
                    self.slots.prefetch(bytes.as_ptr(), *way, Towards::Near);
                }
                asked += 1;
            }
            for (slot, other) in ways[at % AHEAD].into_iter().enumerate() {
                if let Some(empty) = self.slots.first(bytes, [other; 2], EMPTY) {
                    // From the end of the chain: each entry goes where the one before has left.
                    let mut hole = empty;
                    let (mut from, mut slot) = (at, slot);
                    loop {
                        let place = self.slots.place(reached[from], slot);
                        self.slots.set(bytes, hole, self.slots.get(bytes, place));
                        hole = place;
                        if from < starts {
                            break;
                        }
                        let step = usize::from(via[from]);
                        (from, slot) = (step / SLOTS, step % SLOTS);
                    }
                    return Some(hole);
                }
                // A bucket comes once, so that no chain crosses itself.
                let (word, bit) = mark(other);
                let is_marked = marks[word] & bit != 0;
                if end < REACH && !(is_marked && reached[..end].contains(&other)) {
                    marks[word] |= bit;
                    reached[end] = other;
                    via[end] = (at * SLOTS + slot) as u16;
                    end += 1;
                }
            }
            at += 1;
        }
        None
    }

    /// Calls `work` for each key of a run, and asks [`KEYS_AHEAD`] keys before for its buckets, at
    /// the end of the run for those of the next one. Stops at the first error.
    ///
    /// The entries on the way are kept: to find one takes 1.4 of the 4.4 ns of a query in cache.
    #[inline]
    fn for_each(
        self,
        base: *const u8,
        run: &[Digest],
        next: &[Digest],
        mut work: impl FnMut(usize, Entry) -> Result<()>,
    ) -> Result<()> {
        let is_far = self.slots.bytes(self.buckets) as usize > FITS_IN_L2;
        let ask = |entry: Entry| {
            if is_far {
                for bucket in entry.buckets {
                    self.slots.prefetch(base, bucket, Towards::Near);
                }
            }
        };
        let mut entries = [Entry::default(); KEYS_AHEAD];
        for (entry, digest) in entries.iter_mut().zip(run) {
            *entry = self.entry(*digest);
        }
        let mut later = run.iter().skip(KEYS_AHEAD).chain(next);
        for at in 0..run.len() {
            let entry = entries[at % KEYS_AHEAD];
            if let Some(digest) = later.next() {
                entries[at % KEYS_AHEAD] = self.entry(*digest);
                ask(entries[at % KEYS_AHEAD]);
            }
            work(at, entry)?;
        }
        if run.is_empty() {
            next.iter().for_each(|digest| ask(self.entry(*digest)));
        }
        Ok(())
    }
}

/// How many keys ahead of its use a batch asks for a bucket. Of 16, 24, 32 and 64 measured fastest, in
/// tables of 13 and 80 MB (EPYC, Zen 5, 2026-11-18). To ask for L2 instead of L1 took 6.0 ns for 5.6
/// in the smaller one and as long in the larger one.
const KEYS_AHEAD: usize = 32;

/// Full buckets that a search for room remembers; it looks at up to four times as many others.
/// While a million slots fill from 93 to 95% searches remember 23 on average, and 308 at most. They
/// take 5 KiB of the stack. A search that fails takes 40 to 140 us, with a million slots and with 16
/// million (half of that if others leave the processor alone).
const REACH: usize = 512;
/// The same for a filter that has refused a key before. A search that fails takes 4 to 11 us. For
/// all searches it would be too few: the first refusal came at 94.6% of a million slots with 64, at
/// 95.9 with 128, 96.7 with 256, and 97.3 with 512.
const SHORT_REACH: usize = 64;
/// How many full buckets ahead a search asks for the other buckets of their entries.
const AHEAD: usize = 2;

/// What an empty slot holds.
const EMPTY: u64 = 0;

#[cfg(test)]
mod tests;
