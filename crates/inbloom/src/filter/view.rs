//! A filter in bytes that somebody else holds, queried where they are.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;

use super::{Content, Filter};
use crate::kinds::blocked::Blocked;
use crate::storage::{Bits, Cells};

/// A filter in bytes that somebody else holds, see [`Filter::view`]. It answers everything that a
/// `&Filter` does; `clone` gives a filter of its own.
pub struct View<'a> {
    filter: Filter,
    lender: PhantomData<&'a [u8]>,
}

impl<'a> View<'a> {
    /// The filter's cells may be lent by `_lender`; the view lets nobody move the filter out.
    pub(crate) fn new(filter: Filter, _lender: &'a [u8]) -> View<'a> {
        View { filter, lender: PhantomData }
    }
}

impl<'a> View<'a> {
    /// Returns a filter over the bits of a blocked one, which are counted anew: reads everything.
    /// `filter` makes it from these.
    pub(crate) fn of_blocked(
        blocked: &'a Blocked,
        filter: impl FnOnce(Blocked) -> Filter,
    ) -> View<'a> {
        let bytes = blocked.bits.cells.bytes();
        // SAFETY: the cells go into a filter that the view ties to the lifetime of `bytes`.
        let cells = unsafe { Cells::lent(bytes) };
        let lent = Blocked::with_bits(*blocked.plan(), Bits { cells, ones: 0 }).recounted();
        View::new(filter(lent), bytes)
    }
}

/// Returns the bytes of a filter of kind blocked that is nothing more: it has no growing part and is
/// no shard of another.
#[must_use]
pub fn blocked_bytes(filter: &Filter) -> Option<&[u8]> {
    match &filter.content {
        Content::Blocked(blocked) => Some(blocked.bits.cells.bytes()),
        Content::Other(_) => None,
    }
}

impl Deref for View<'_> {
    type Target = Filter;

    fn deref(&self) -> &Filter {
        &self.filter
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("View").field(&self.filter).finish()
    }
}
