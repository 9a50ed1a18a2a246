//! Contents that are one array of cells.
//!
//! A blocked, classic, counting or cuckoo filter is its plan and its [`Bits`], and most of what a filter
//! asks of its content follows from the two. Such a kind implements [`ArrayKind`], which has only what
//! differs between them, and is given [`State`] and [`Measured`]. [`ArrayKind`] has no defaults either,
//! and what wraps another content cannot use it: a wrapper has no array of its own.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;

use super::{Clocked, Intersecting, Measured, Positioned, Removable, State};
use crate::digest::Digest;
use crate::error::Result;
use crate::estimate::Estimate;
use crate::membership::Membership;
use crate::paging::Paging;
use crate::plan::Plan;
use crate::profile::Slice;
use crate::storage::{self, Bits, Order};

/// A kind whose whole content is an array of cells. Two of them that meet are of one plan.
pub(crate) trait ArrayKind: Membership + Any + Send + Sync + Sized {
    /// Makes a filter of cells that are there already.
    fn from_bits(plan: Plan, bits: Bits) -> Self;

    fn array(&self) -> Array<'_>;

    fn into_array(self) -> Bits;

    /// Removes every digest.
    fn empty(&mut self) -> Result<()>;

    /// Returns whether both have the same digests.
    fn equals(&self, other: &Self) -> bool;

    /// Keeps what either has.
    fn add_all(&mut self, other: &Self) -> Result<()>;

    /// Returns how often a digest was inserted, as far as the cells can tell.
    fn copies(&self, digest: Digest) -> u64;

    /// Counts the cells in use again: see [`Measured::recount`].
    fn count_cells(&self) -> Option<u64>;

    /// Returns how full each slice of the array is: see [`Measured::profile`].
    fn fills(&self, slices: usize) -> Vec<Slice>;

    /// Estimates how many distinct digests there are: see [`Measured::estimate`].
    fn distinct(&self, inserted: Option<u64>) -> Estimate;

    /// Returns how many more distinct keys fit at the target rate.
    fn keys_left(&self) -> u64;

    /// Returns what `info` shows of this kind alone.
    fn particulars(&self) -> Vec<(&'static str, String)>;

    fn as_removable(&mut self) -> Option<&mut dyn Removable>;
    fn as_intersecting(&mut self) -> Option<&mut dyn Intersecting>;
    fn as_positioned(&self) -> Option<&dyn Positioned>;
}

impl<T: ArrayKind> State for T {
    fn plan(&self) -> &Plan {
        self.array().plan
    }

    fn measured(&self) -> &dyn Measured {
        self
    }

    fn clear(&mut self) -> Result<()> {
        self.empty()
    }

    fn copy(&self) -> Result<Box<dyn State>> {
        let Array { plan, bits } = self.array();
        Ok(Box::new(T::from_bits(*plan, bits.copy()?)))
    }

    fn same(&self, other: &dyn State) -> bool {
        self.equals(other.of())
    }

    fn unite(&mut self, other: &dyn State) -> Result<()> {
        self.add_all(other.of())
    }

    fn count(&self, digest: Digest) -> u64 {
        self.copies(digest)
    }

    /// An array takes any digest.
    fn check(&self, _digest: Digest) -> Result<()> {
        Ok(())
    }

    fn into_bits(self: Box<Self>) -> Option<Bits> {
        Some(self.into_array())
    }

    fn expect(&self, order: Order) {
        self.array().bits.cells.expect(order);
    }

    /// Its pages come in as they are touched.
    fn set_paging(&mut self, _paging: Paging) {}

    fn removable(&mut self) -> Option<&mut dyn Removable> {
        self.as_removable()
    }

    fn intersecting(&mut self) -> Option<&mut dyn Intersecting> {
        self.as_intersecting()
    }

    fn clocked(&mut self) -> Option<&mut dyn Clocked> {
        None
    }

    fn positioned(&self) -> Option<&dyn Positioned> {
        self.as_positioned()
    }
}

impl<T: ArrayKind> Measured for T {
    fn occupied(&self) -> u64 {
        self.array().bits.ones
    }

    fn fill(&self) -> f64 {
        self.array().fill()
    }

    fn recount(&self) -> Option<u64> {
        self.count_cells()
    }

    fn profile(&self, slices: usize) -> Vec<Slice> {
        self.fills(slices)
    }

    fn bytes(&self) -> u64 {
        self.array().plan.bytes()
    }

    fn memory(&self) -> u64 {
        storage::allocated(self.array().plan.bytes())
    }

    fn rate(&self) -> f64 {
        let array = self.array();
        array.plan.rate_at_fill(array.fill())
    }

    fn estimate(&self, inserted: Option<u64>) -> Estimate {
        self.distinct(inserted)
    }

    fn room(&self) -> u64 {
        self.keys_left()
    }

    fn next_growth(&self) -> Option<u64> {
        None
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        self.particulars()
    }

    fn bits(&self) -> Option<&Bits> {
        Some(self.array().bits)
    }

    fn payload(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.array().bits.cells.bytes())
    }

    fn is_read_only(&self) -> bool {
        !self.array().bits.cells.is_writable()
    }
}

/// The content of an [`ArrayKind`], and answers that hold for most of them.
pub(crate) struct Array<'a> {
    pub plan: &'a Plan,
    pub bits: &'a Bits,
}

impl Array<'_> {
    fn fill(&self) -> f64 {
        self.plan.fill_of(self.bits.ones)
    }

    /// Estimates distinct digests from the cells in use.
    pub(crate) fn estimate(&self) -> Estimate {
        self.plan.estimate(self.bits.ones)
    }

    /// Returns how many more keys fit, going by [`Array::estimate`].
    pub(crate) fn room(&self) -> u64 {
        self.plan.items_at(self.plan.rate()).saturating_sub(self.estimate().rounded())
    }

    /// Returns whether the bit at a position is set.
    pub(crate) fn is_set(&self, position: u64) -> bool {
        let byte = usize::try_from(position / 8).ok();
        let byte = byte.and_then(|at| self.bits.cells.bytes().get(at));
        byte.is_some_and(|byte| byte >> (position % 8) & 1 == 1)
    }
}
