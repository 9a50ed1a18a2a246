//! A Bloom filter that can remove keys: counters instead of bits, all counters of a key in one
//! cache line.
//!
//! **Idea.** A Bloom filter cannot remove a key, because other keys may share its bits. Here every
//! bit is a small counter. An insert raises the key's counters by one, a removal lowers them, and a
//! query checks whether all of them are above zero. After a removal the filter is as if the key had
//! never been inserted.
//!
//! **REMOVE ONLY WHAT WAS INSERTED.** A key that was never inserted, but matches by chance (at the
//! rate of the filter), has counters that belong to others. Removing it lowers those, **and then
//! keys that are in the filter are reported as absent.** The same holds for removing a key more
//! often than it was inserted. This is the only way to a false negative, and no filter can detect
//! it. A caller who is not sure that a key was inserted must look it up where the keys are stored.
//!
//! **Layout.** The lines of [`blocked`](super::blocked), with nothing reserved: a line is eight
//! little-endian words, and a word is 64 / w counters of w bits (2, 3, 4 or 8), counter 0 in the
//! lowest bits. A full round raises one counter in each word, a half round one in each pair of
//! words (i, i+4). An index takes log2(64 / w) bits of the digest's word for the round, from the
//! lowest; in a half round one more, the highest, which chooses the word of the pair.
//!
//! ```text
//! w = 4, a full round of the bits ...0011 0101:   word 0: counter 5 (bits 20-23)
//!                                                 word 1: counter 3 (bits 12-15), ...
//! ```
//!
//! Three bits, the default, make 21 counters to a word, and its highest bit is spare: always zero.
//! An index is a product then: 16 bits of the digest's word, times 21, over 2^16. A full round takes
//! the bytes i and i+1 of it for word i (in word 7 the last byte and the first), a half round the
//! bytes 2i and 2i+1 for pair i, times 42 instead of 21: the upper half is in the second word.
//!
//! A key's counters are a set: two of its probes that fall on one counter raise it once, and lower
//! it once.
//!
//! **Saturation.** A counter that has reached its maximum stays there: it does not record how often
//! it was raised, and lowering it could lose a key. That raises the rate slightly and permanently,
//! but never causes a false negative. At half of the counters above zero a share of 2 * 10^-15 of
//! them is at the maximum of 4 bits, 8 * 10^-6 at that of 3 bits, and 3% at that of 2 bits. A key
//! that is inserted again and again gets there by itself: with 3 bits after seven inserts, and then
//! no removal takes it out. Where all keys are replaced by others again and again, more and more
//! counters stay. At a target of 1% the rate with 3 bits is 1.0% after 100 such turnovers, 1.1%
//! after 300, 1.4% after 1000 and 2.5% after 3000. With 4 bits it is 1.0% after 3000 (measured).
//!
//! **Cost.** As fast as blocked, with more than w times its bits, because a line holds w times
//! fewer cells and fills less evenly. Bits per key at 10%, 1%, 0.1%, 0.01%:
//!
//! | | one line | two lines |
//! |---|---|---|
//! | w = 3 | 15.2, 33.5, 55.4, 87.1 | 17.8, 30.4, 46.8, 67.0 |
//! | w = 4 | 20.1, 45.7, 77.6, 128 | 23.5, 40.2, 62.3, 91.4 |
//! | blocked | 4.9, 10.1, 15.8, 22.2 | |
//!
//! **When not.** If keys are only added, use blocked. To count keys, use a map: counts here end at
//! the maximum, and include those of other keys.
//!
//! Sources: Fan, Cao, Almeida, Broder, "Summary cache: a scalable wide-area web cache sharing
//! protocol", IEEE/ACM Transactions on Networking 8(3), 2000 (counters, and why 4 bits); Putze,
//! Sanders, Singler, "Cache-, hash- and space-efficient Bloom filters", 2007 (blocks).

mod plan;
mod racing;
mod row;

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::kernels::scalar::touched_counters;
use crate::kernels::{Counters, Geometry, Kernel, Run};
use crate::kind::Kind;
use crate::membership::Membership;
use crate::plan::Plan;
use crate::profile::{Slice, Spread, slices_of};
use crate::state::{Array, ArrayKind, Intersecting, Positioned, Removable, State};
use crate::storage::{Bits, words};
pub(crate) use racing::RacingCounting;
pub(crate) use row::ROW;

/// A Bloom filter with counters, one cache line per key or two. Keys can be removed again.
///
/// **Remove only what was inserted**: to remove a key that was never inserted, but matches by
/// chance, takes others away with it.
pub struct Counting {
    plan: Plan,
    geometry: Geometry,
    kernel: &'static Kernel,
    /// The counters; `ones` is the number of those above zero.
    pub(crate) bits: Bits,
}

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::state::debug("Counting", self, f)
    }
}

impl Counting {
    /// An empty filter. Panics if the plan is for another kind.
    pub fn new(plan: Plan) -> Result<Counting> {
        Ok(Counting::with_bits(plan, Bits::zeroed(plan.bytes())?))
    }

    pub(crate) fn with_bits(plan: Plan, bits: Bits) -> Counting {
        assert_eq!(plan.kind(), Kind::Counting, "a plan for another kind");
        let geometry = Geometry::new(&plan);
        assert_eq!(bits.cells.bytes().len(), geometry.bytes());
        Counting { plan, geometry, kernel: Kernel::select(&geometry), bits }
    }

    /// The plan it was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether the digest may be in: false is certain, true is probable.
    #[inline]
    #[must_use]
    pub fn contains(&self, digest: Digest) -> bool {
        self.kernel.contains(self.bits.cells.bytes(), &self.geometry, digest)
    }

    /// Inserts, and tells whether the digest is certainly new. Inserted again it counts again, and
    /// has to be removed as often.
    #[inline]
    pub fn insert(&mut self, digest: Digest) -> bool {
        self.try_insert(digest).expect("a filter by itself has memory of its own")
    }

    /// Inserts, and tells whether the digest is certainly new; None if the cells are read-only.
    #[inline]
    pub(crate) fn try_insert(&mut self, digest: Digest) -> Option<bool> {
        let raised = self.kernel.insert(self.bits.cells.writable()?, &self.geometry, digest);
        self.bits.ones += u64::from(raised);
        Some(raised != 0)
    }

    /// Takes the digest out once. `Ok(false)`: it was certainly not in, and nothing has changed.
    /// `Ok(true)`: its counters were lowered, but for those at their maximum, which stay.
    ///
    /// **Remove only what was inserted, and no more often.** "Probably in" is not enough: to remove
    /// a key that matches by chance lowers the counters of other keys, which are then lost.
    pub fn remove(&mut self, digest: Digest) -> Result<bool> {
        let Counting { geometry, kernel, bits, .. } = self;
        let bytes = bits.cells.bytes_mut()?;
        if !kernel.contains(bytes, geometry, digest) {
            return Ok(false);
        }
        let (words, counters) = (bytes.as_chunks_mut::<8>().0, geometry.counters);
        for touch in touched_counters(geometry, digest) {
            let line = &mut words[touch.block as usize * 8..][..8];
            for (word, which) in line.iter_mut().zip(touch.mask) {
                let after = counters.lower(u64::from_le_bytes(*word), which);
                let zeroed = which & !counters.above_zero(after);
                // Not below zero, even if the header of a damaged file has counted wrong.
                bits.ones = bits.ones.saturating_sub(zeroed.count_ones().into());
                *word = after.to_le_bytes();
            }
        }
        Ok(true)
    }

    /// How often the digest is in, at most: the smallest of its counters. Never less than it was
    /// inserted and not removed, except that it ends at [`Counting::max_count`], which means "that
    /// often or more". Other keys on the same counters can make it more.
    #[must_use]
    pub fn count(&self, digest: Digest) -> u32 {
        let (words, _) = self.bits.cells.bytes().as_chunks::<8>();
        smallest(&self.geometry, digest, |at| u64::from_le_bytes(words[at]))
    }

    /// Where a counter ends: 3, 7, 15 or 255.
    #[must_use]
    pub fn max_count(&self) -> u32 {
        self.geometry.counters.maximum() as u32
    }

    /// The number of counters at their maximum, which no removal lowers: reads everything.
    #[must_use]
    pub fn saturated(&self) -> u64 {
        self.count_marks(Counters::at_maximum)
    }

    fn count_marks(&self, mut marks: impl FnMut(Counters, u64) -> u64) -> u64 {
        let words = words(self.bits.cells.bytes());
        words.map(|word| u64::from(marks(self.geometry.counters, word).count_ones())).sum()
    }

    fn combine(
        &mut self,
        other: &Counting,
        operation: impl Fn(Counters, u64, u64) -> u64,
    ) -> Result<()> {
        let counters = self.geometry.counters;
        let operation = |here, there| operation(counters, here, there);
        self.bits.combine(&other.bits, operation, |word| counters.above_zero(word))
    }
}

impl ArrayKind for Counting {
    fn from_bits(plan: Plan, bits: Bits) -> Counting {
        Counting::with_bits(plan, bits)
    }

    fn array(&self) -> Array<'_> {
        Array { plan: &self.plan, bits: &self.bits }
    }

    fn into_array(self) -> Bits {
        self.bits
    }

    fn empty(&mut self) -> Result<()> {
        self.bits.clear()
    }

    fn equals(&self, other: &Counting) -> bool {
        self.bits == other.bits
    }

    /// Counts add up, and end at the maximum: a key that is in both has to be removed from the union as
    /// often as from both.
    fn add_all(&mut self, other: &Counting) -> Result<()> {
        self.combine(other, Counters::add)
    }

    fn copies(&self, digest: Digest) -> u64 {
        self.count(digest).into()
    }

    /// None if a bit is set that no counter has.
    fn count_cells(&self) -> Option<u64> {
        let (counters, mut any) = (self.geometry.counters, 0);
        let used = self.count_marks(|counters, word| {
            any |= word;
            counters.above_zero(word)
        });
        (any & counters.spare() == 0).then_some(used)
    }

    fn fills(&self, slices: usize) -> Vec<Slice> {
        let counters = self.geometry.counters;
        let cells = u64::from(8 * counters.per_word());
        let counts = self.bits.block_counts(slices, cells, |word| counters.above_zero(word));
        slices_of(&counts, Spread::in_lines(&self.plan, counts.len()))
    }

    fn distinct(&self, _inserted: Option<u64>) -> Estimate {
        self.array().estimate()
    }

    fn keys_left(&self) -> u64 {
        self.array().room()
    }

    fn particulars(&self) -> Vec<(&'static str, String)> {
        let (saturated, all) = (self.saturated(), self.plan.cells());
        vec![
            ("counters", format!("{all} of {} bits", self.plan.width())),
            (
                "saturated",
                format!("{saturated} at the maximum of {}; they stay there", self.max_count()),
            ),
        ]
    }

    fn as_removable(&mut self) -> Option<&mut dyn Removable> {
        Some(self)
    }

    fn as_intersecting(&mut self) -> Option<&mut dyn Intersecting> {
        Some(self)
    }

    fn as_positioned(&self) -> Option<&dyn Positioned> {
        Some(self)
    }
}

impl Removable for Counting {
    fn remove(&mut self, digest: Digest) -> Result<bool> {
        self.remove(digest)
    }
}

impl Intersecting for Counting {
    /// The smaller count of each counter, so that a key which is in both, a times and b times, is found
    /// and can be removed min(a, b) times.
    fn intersect(&mut self, other: &dyn State) -> Result<()> {
        self.combine(other.of(), Counters::min)
    }
}

impl Positioned for Counting {
    /// In ascending order within a line; counters are numbered through.
    fn positions(&self, digest: Digest) -> Result<Vec<u64>> {
        let Counters { width, .. } = self.geometry.counters;
        let per_word = u64::from(self.geometry.counters.per_word());
        let mut positions = Vec::new();
        for touch in touched_counters(&self.geometry, digest) {
            for (word, marks) in touch.mask.into_iter().enumerate() {
                let first = (touch.block * 8 + word as u64) * per_word;
                let marked = (0..per_word).filter(|i| marks >> (i * u64::from(width)) & 1 == 1);
                positions.extend(marked.map(|i| first + i));
            }
        }
        Ok(positions)
    }

    fn is_set(&self, position: u64) -> bool {
        let (counters, words) =
            (self.geometry.counters, self.bits.cells.bytes().as_chunks::<8>().0);
        let per_word = u64::from(counters.per_word());
        let word = usize::try_from(position / per_word).ok().and_then(|at| words.get(at));
        word.is_some_and(|word| {
            let lowest = position % per_word * u64::from(counters.width);
            counters.above_zero(u64::from_le_bytes(*word)) >> lowest & 1 == 1
        })
    }
}

impl Membership for Counting {
    #[inline]
    fn contains_digest(&self, digest: Digest) -> bool {
        self.contains(digest)
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        self.try_insert(digest).ok_or(Error::ReadOnly)
    }

    fn prefetch(&self, digests: &[Digest]) {
        self.contains_run(&[], digests, &mut []);
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        let run = Run { keys: run, next };
        self.kernel.contains_all(self.bits.cells.bytes(), &self.geometry, run, found);
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        let bytes = self.bits.cells.bytes_mut()?;
        let before = new.len();
        new.resize(before + run.len(), false);
        let run = Run { keys: run, next };
        self.bits.ones += self.kernel.insert_all(bytes, &self.geometry, run, &mut new[before..]);
        Ok(())
    }
}

/// The smallest of a digest's counters, where `load` gives the word at an index.
fn smallest(geometry: &Geometry, digest: Digest, load: impl Fn(usize) -> u64) -> u32 {
    let counts = touched_counters(geometry, digest).flat_map(|touch| {
        let words = (touch.block as usize * 8..).zip(touch.mask);
        words.map(|(at, which)| geometry.counters.smallest(load(at), which))
    });
    counts.min().expect("a key has a line, and a line eight words")
}

#[cfg(all(test, not(loom)))]
mod tests;
