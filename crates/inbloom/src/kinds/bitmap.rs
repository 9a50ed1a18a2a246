//! The exact set of integers: one bit per possible value.
//!
//! **Idea.** Value v is bit v % 64 of word v / 64. Nothing is hashed, nothing is wrong, and walking the
//! words in order gives the values in order: setting the bits of {4, 7, 2, 5, 3} and reading them
//! back is a sort. Ten million possible values take 1.25 MB, whatever the number of members.
//!
//! If few of many values are present, one bit per possible value is too much: a set of a million
//! 64-bit identifiers would take 2 EB. The plan then chooses a roaring bitmap (Lemire et al.,
//! "Roaring bitmaps", 2016), with the same operations. It takes about 2 bytes per member where
//! members lie close, and up to some 260 where each is alone. It cannot be queried in place in a
//! file; it is rebuilt when it is read. Threads share it behind a lock, see
//! [`Filter::into_shared`](crate::Filter::into_shared).

mod plan;
mod row;
mod sparse;

use alloc::borrow::{Cow, ToOwned};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::digest::{Digest, NOT_AN_INTEGER};
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::kernels::{Towards, prefetch};
use crate::kind::Kind;
use crate::membership::Membership;
use crate::paging::Paging;
use crate::plan::Plan;
use crate::profile::{Count, Slice, Spread, divide, slices_of};
use crate::state::{Clocked, Intersecting, Measured, Positioned, Removable, State};
use crate::storage::{self, Bits, Cells, Order, words};
use crate::sync::{AtomicU64, Ordering};
pub(crate) use row::ROW;
use sparse::Sparse;

/// An exact set of unsigned integers below a bound.
///
/// ```
/// use inbloom::Bitmap;
/// use inbloom::{Kind, Plan};
///
/// let mut bitmap = Bitmap::new(Plan::builder(Kind::Bitmap).universe(10).build()?)?;
/// for value in [4, 7, 2, 5, 3, 7] {
///     bitmap.insert(value)?;
/// }
/// assert_eq!(bitmap.iter().collect::<Vec<_>>(), [2, 3, 4, 5, 7]);
/// # Ok::<(), inbloom::Error>(())
/// ```
pub struct Bitmap {
    plan: Plan,
    pub(crate) store: Store,
}

impl fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::state::debug("Bitmap", self, f)
    }
}

pub(crate) enum Store {
    Dense(Bits),
    Sparse(Sparse),
}

impl Bitmap {
    /// Creates an empty set.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Memory`] if there is not enough memory.
    ///
    /// # Panics
    ///
    /// Panics if the plan is for another kind.
    pub fn new(plan: Plan) -> Result<Bitmap> {
        let store = match plan.is_sparse() {
            true => Store::Sparse(Sparse::new()?),
            false => Store::Dense(Bits::zeroed(plan.bytes())?),
        };
        Ok(Bitmap::with_store(plan, store))
    }

    pub(crate) fn with_store(plan: Plan, store: Store) -> Bitmap {
        assert_eq!(plan.kind(), Kind::Bitmap, "a plan for another kind");
        Bitmap { plan, store }
    }

    /// From a roaring treemap in its portable format, from untrusted input.
    pub(crate) fn read_sparse(plan: Plan, cells: &Cells) -> Result<Bitmap> {
        let sparse = Sparse::read(cells.bytes(), plan.bits())?;
        Ok(Bitmap::with_store(plan, Store::Sparse(sparse)))
    }

    /// Returns the plan that it was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns whether the value is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, value: u64) -> bool {
        if value >= self.plan.bits() {
            return false;
        }
        match &self.store {
            Store::Dense(bits) => {
                let (words, _) = bits.cells.bytes().as_chunks::<8>();
                u64::from_le_bytes(words[(value / 64) as usize]) >> (value % 64) & 1 == 1
            }
            Store::Sparse(sparse) => sparse.contains(value),
        }
    }

    /// Adds a value, and returns whether it is new.
    ///
    /// # Errors
    ///
    /// Refuses a value that is not below the bound.
    #[inline]
    pub fn insert(&mut self, value: u64) -> Result<bool> {
        let value = in_universe(value, self.plan.bits())?;
        match &mut self.store {
            Store::Dense(bits) => {
                let (words, _) = bits.cells.bytes_mut()?.as_chunks_mut::<8>();
                let word = &mut words[(value / 64) as usize];
                let (old, mask) = (u64::from_le_bytes(*word), 1 << (value % 64));
                *word = (old | mask).to_le_bytes();
                bits.ones += u64::from(old & mask == 0);
                Ok(old & mask == 0)
            }
            Store::Sparse(sparse) => Ok(sparse.insert(value)),
        }
    }

    /// Removes a value, and returns whether it was present.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::ReadOnly`] if the bitmap is open read-only.
    pub fn remove(&mut self, value: u64) -> Result<bool> {
        if !self.contains(value) {
            return Ok(false);
        }
        match &mut self.store {
            Store::Dense(bits) => {
                let (words, _) = bits.cells.bytes_mut()?.as_chunks_mut::<8>();
                let word = &mut words[(value / 64) as usize];
                *word = (u64::from_le_bytes(*word) & !(1 << (value % 64))).to_le_bytes();
                // Not below zero, even if the header of a damaged file has counted wrong.
                bits.ones = bits.ones.saturating_sub(1);
                Ok(true)
            }
            Store::Sparse(sparse) => Ok(sparse.remove(value)),
        }
    }

    /// Returns the number of members.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.store {
            Store::Dense(bits) => bits.ones,
            Store::Sparse(sparse) => sparse.len(),
        }
    }

    /// Returns whether there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let (dense, sparse) = match &self.store {
            Store::Dense(bits) => (Some(bits), None),
            Store::Sparse(sparse) => (None, Some(sparse)),
        };
        let dense = dense.into_iter().flat_map(|bits| {
            (0..).step_by(64).zip(words(bits.cells.bytes())).flat_map(|(first, word)| {
                let lowest_unset = |word: &u64| word & word.wrapping_sub(1);
                core::iter::successors(Some(word), move |word| Some(lowest_unset(word)))
                    .take_while(|word| *word != 0)
                    .map(move |word| first + u64::from(word.trailing_zeros()))
            })
        });
        dense.chain(sparse.into_iter().flat_map(Sparse::iter))
    }
}

impl State for Bitmap {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn measured(&self) -> &dyn Measured {
        self
    }

    fn clear(&mut self) -> Result<()> {
        match &mut self.store {
            Store::Dense(bits) => bits.clear()?,
            Store::Sparse(sparse) => sparse.clear(),
        }
        Ok(())
    }

    fn copy(&self) -> Result<Box<dyn State>> {
        let store = match &self.store {
            Store::Dense(bits) => Store::Dense(bits.copy()?),
            Store::Sparse(sparse) => Store::Sparse(sparse.clone()),
        };
        Ok(Box::new(Bitmap { plan: self.plan, store }))
    }

    fn same(&self, other: &dyn State) -> bool {
        match (&self.store, &other.of::<Bitmap>().store) {
            (Store::Dense(here), Store::Dense(there)) => here == there,
            (Store::Sparse(here), Store::Sparse(there)) => here == there,
            _ => false,
        }
    }

    fn unite(&mut self, other: &dyn State) -> Result<()> {
        match (&mut self.store, &other.of::<Bitmap>().store) {
            (Store::Dense(here), Store::Dense(there)) => here.unite(there)?,
            (Store::Sparse(here), Store::Sparse(there)) => here.unite(there),
            _ => unreachable!("one plan, one layout"),
        }
        Ok(())
    }

    fn count(&self, digest: Digest) -> u64 {
        u64::from(self.contains_digest(digest))
    }

    fn check(&self, digest: Digest) -> Result<()> {
        value(digest, self.plan.bits()).map(drop)
    }

    fn into_bits(self: Box<Self>) -> Option<Bits> {
        match self.store {
            Store::Dense(bits) => Some(bits),
            Store::Sparse(_) => None,
        }
    }

    fn expect(&self, order: Order) {
        if let Store::Dense(bits) = &self.store {
            bits.cells.expect(order);
        }
    }

    /// Its pages come in as they are touched.
    fn set_paging(&mut self, _paging: Paging) {}

    fn removable(&mut self) -> Option<&mut dyn Removable> {
        Some(self)
    }

    fn intersecting(&mut self) -> Option<&mut dyn Intersecting> {
        Some(self)
    }

    fn clocked(&mut self) -> Option<&mut dyn Clocked> {
        None
    }

    fn positioned(&self) -> Option<&dyn Positioned> {
        Some(self)
    }
}

impl Measured for Bitmap {
    fn occupied(&self) -> u64 {
        self.len()
    }

    fn fill(&self) -> f64 {
        self.plan.fill_of(self.len())
    }

    fn recount(&self) -> Option<u64> {
        match &self.store {
            Store::Dense(bits) => bits.recount(self.plan.bits()),
            Store::Sparse(sparse) => Some(sparse.len()),
        }
    }

    fn profile(&self, slices: usize) -> Vec<Slice> {
        let universe = self.plan.bits();
        let counts = match &self.store {
            Store::Dense(bits) => bits.counts(universe, slices),
            Store::Sparse(sparse) => divide(universe, slices)
                .map(|Range { start, end }| Count {
                    used: sparse.below(end) - sparse.below(start),
                    cells: end - start,
                })
                .collect(),
        };
        slices_of(&counts, Spread::Probes(1.0))
    }

    fn bytes(&self) -> u64 {
        self.plan.bytes()
    }

    fn memory(&self) -> u64 {
        storage::allocated(self.plan.bytes())
    }

    fn rate(&self) -> f64 {
        self.plan.rate_at_fill(self.fill())
    }

    fn estimate(&self, _inserted: Option<u64>) -> Estimate {
        self.plan.estimate(self.len())
    }

    fn room(&self) -> u64 {
        self.plan.items_at(self.plan.rate()).saturating_sub(self.len())
    }

    fn next_growth(&self) -> Option<u64> {
        None
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn bits(&self) -> Option<&Bits> {
        match &self.store {
            Store::Dense(bits) => Some(bits),
            Store::Sparse(_) => None,
        }
    }

    /// Returns the words, or the roaring bitmap in its portable format, padded to whole words.
    fn payload(&self) -> Cow<'_, [u8]> {
        match &self.store {
            Store::Dense(bits) => Cow::Borrowed(bits.cells.bytes()),
            Store::Sparse(sparse) => Cow::Owned(sparse.write()),
        }
    }

    fn is_read_only(&self) -> bool {
        self.bits().is_some_and(|bits| !bits.cells.is_writable())
    }
}

impl Removable for Bitmap {
    fn remove(&mut self, digest: Digest) -> Result<bool> {
        Ok(self.contains_digest(digest) && self.remove(digest.place)?)
    }
}

impl Intersecting for Bitmap {
    fn intersect(&mut self, other: &dyn State) -> Result<()> {
        match (&mut self.store, &other.of::<Bitmap>().store) {
            (Store::Dense(here), Store::Dense(there)) => here.intersect(there)?,
            (Store::Sparse(here), Store::Sparse(there)) => here.intersect(there),
            _ => unreachable!("one plan, one layout"),
        }
        Ok(())
    }
}

impl Positioned for Bitmap {
    /// What is no integer is at a position that no bitmap has.
    fn positions(&self, digest: Digest) -> Result<Vec<u64>> {
        Ok(vec![value(digest, self.plan.bits()).unwrap_or(u64::MAX)])
    }

    fn is_set(&self, position: u64) -> bool {
        self.contains(position)
    }
}

fn in_universe(value: u64, universe: u64) -> Result<u64> {
    if value < universe {
        return Ok(value);
    }
    Err(Error::NotInUniverse { universe, got: value.to_string() })
}

/// Returns the value that a digest stands for: the scheme of a bitmap does not hash.
fn value(digest: Digest, universe: u64) -> Result<u64> {
    if digest.print == NOT_AN_INTEGER {
        let got = "a key of more than 8 bytes".to_owned();
        return Err(Error::NotInUniverse { universe, got });
    }
    in_universe(digest.place, universe)
}

impl Membership for Bitmap {
    fn contains_digest(&self, digest: Digest) -> bool {
        digest.print != NOT_AN_INTEGER && self.contains(digest.place)
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        self.insert(value(digest, self.plan.bits())?)
    }

    fn prefetch(&self, digests: &[Digest]) {
        if let Store::Dense(bits) = &self.store {
            let base = bits.cells.bytes().as_ptr();
            for digest in digests {
                prefetch(base.wrapping_add((digest.place / 8) as usize), Towards::Far);
            }
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
}

/// A dense bitmap on words that many threads use at once.
pub(crate) struct RacingBitmap {
    universe: u64,
}

impl RacingBitmap {
    pub(crate) fn new(plan: &Plan) -> RacingBitmap {
        RacingBitmap { universe: plan.bits() }
    }

    pub(crate) fn contains(&self, words: &[AtomicU64], digest: Digest) -> bool {
        let value = digest.place;
        digest.print != NOT_AN_INTEGER
            && value < self.universe
            && u64::from_le(words[(value / 64) as usize].load(Ordering::Relaxed)) >> (value % 64)
                & 1
                == 1
    }

    /// Returns the error of an insert, if it would be refused.
    pub(crate) fn check(&self, digest: Digest) -> Result<()> {
        value(digest, self.universe).map(drop)
    }

    /// Sets the value's bit and returns how many bits this call has set.
    pub(crate) fn insert(&self, words: &[AtomicU64], digest: Digest) -> Result<u32> {
        let value = value(digest, self.universe)?;
        let mask = 1 << (value % 64);
        let word = &words[(value / 64) as usize];
        let old = u64::from_le(word.fetch_or(u64::to_le(mask), Ordering::Relaxed));
        Ok(u32::from(old & mask == 0))
    }

    /// Unsets the value's bit and returns whether it was set, and how the number of set bits changed.
    pub(crate) fn remove(&self, words: &[AtomicU64], digest: Digest) -> (bool, i32) {
        let Ok(value) = value(digest, self.universe) else { return (false, 0) };
        let mask = 1 << (value % 64);
        let word = &words[(value / 64) as usize];
        let old = u64::from_le(word.fetch_and(u64::to_le(!mask), Ordering::Relaxed));
        (old & mask != 0, -i32::from(old & mask != 0))
    }
}
