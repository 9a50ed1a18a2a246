//! A filter in borrowed bytes, queried in place.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;

use super::{Content, Filter};
use crate::kinds::blocked::Blocked;
use crate::storage::{Bits, Cells};

/// A filter in borrowed bytes: see [`Filter::view`]. It has all calls of a `&Filter`. `clone`
/// returns a filter with its own copy of the bytes.
pub struct View<'a> {
    filter: Filter,
    lender: PhantomData<&'a [u8]>,
}

impl<'a> View<'a> {
    /// Creates a view of a filter whose cells `_lender` may own. The filter cannot be moved out of
    /// the view.
    pub(crate) fn new(filter: Filter, _lender: &'a [u8]) -> View<'a> {
        View { filter, lender: PhantomData }
    }
}

impl<'a> View<'a> {
    /// Returns a view of a blocked filter, from which `filter` makes a `Filter`. Counts the set
    /// bits, so it reads all of them.
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

/// Returns the bytes of a whole filter of kind blocked without a growing part.
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
