//! From filters to the kinds that threads share by themselves, and back.

use alloc::sync::Arc;

use super::{Content, Filter, check_hasher};
use crate::compose::grown::is_not_its_bits;
use crate::digest::Hasher;
use crate::error::{Error, Result};
use crate::kinds::blocked::{Shape, SharedBlocked, share};
use crate::kinds::scalable::{Scalable, SharedScalable};
use crate::shared::refuse_auto_clear;
use crate::storage::{Bits, Cells};

impl SharedBlocked {
    /// Takes over the bits of a filter, without copying unless it is open read-only, and with a
    /// shape of its own: see [`SharedBlocked::share_shape`]. Its hash, its texts and its count of
    /// inserts are the caller's to keep.
    ///
    /// Reads everything: a reserved bit that is set, in a file that nobody has verified, is
    /// refused, since it would lock its line forever. So is what [`Shape::new`] refuses, and a
    /// filter that clears itself.
    pub fn from_filter(filter: Filter) -> Result<SharedBlocked> {
        let (shape, cells) = taken_over(filter)?;
        Ok(SharedBlocked::with_cells(shape, share(cells)?))
    }

    /// Returns the same without reading anything, for those who have seen that no reserved bit is
    /// set.
    pub(crate) fn from_checked(filter: Filter) -> Result<SharedBlocked> {
        let (shape, cells) = taken_over(filter)?;
        Ok(SharedBlocked::with_cells(shape, cells.into_shared()?))
    }

    /// Returns a copy as a filter of its own, with the hash that the digests come from and the
    /// number of inserts that reported a new key: what this type does not know. As
    /// [`SharedBlocked::copy_to`] copies.
    pub fn snapshot(&self, hasher: Hasher, inserted: u64) -> Result<Filter> {
        check_hasher(self.plan(), &hasher)?;
        let mut cells = Cells::zeroed(self.bytes())?;
        self.copy_to(0, cells.bytes_mut()?);
        let ones = cells.count_ones();
        let content = Content::with_bits(*self.plan(), Bits { cells, ones });
        Ok(Filter::from_parts(hasher, content, inserted))
    }
}

/// Returns the cells of a blocked filter that may be shared, and a shape for them.
fn taken_over(filter: Filter) -> Result<(Arc<Shape>, Cells)> {
    refuse_auto_clear(&filter)?;
    let shape = Shape::new(*filter.plan())?;
    let bits = filter.content.into_state().into_bits();
    let bits =
        bits.ok_or_else(|| is_not_its_bits(shape.plan().kind(), "be shared by its blocks"))?;
    Ok((shape, bits.cells))
}

impl SharedScalable {
    /// Turns a filter of the scalable kind over to many threads, without copying, unless it is open
    /// read-only. Its hash and its notes are not kept: digests come from the caller.
    ///
    /// Refused for other kinds, and for shards, one or all.
    pub fn from_filter(filter: Filter) -> Result<SharedScalable> {
        let plan = *filter.plan();
        let is_whole = plan.shard().is_none() && filter.shards().len() == 1;
        if !plan.kind().can_grow() || !is_whole {
            return Err(Error::Unsupported {
                kind: plan.kind(),
                verb: "become a SharedScalable",
                remedy: "give a whole filter of kind scalable, or use Filter::into_shared",
            });
        }
        SharedScalable::from_state(filter.content.into_state())
    }

    /// Turns the filter back, without copying. It takes the only handle, so that no thread is still
    /// at it. Refused if the hash is not one for this kind; it must be the one that the digests are
    /// from.
    pub fn into_filter(self, hasher: Hasher) -> Result<Filter> {
        filter(self.into_scalable(), hasher)
    }

    /// Returns a copy, made shard by shard while others go on. It has every digest whose insert had
    /// returned when the call began, and some of those that came in meanwhile. An insert waits
    /// while its shard is copied; queries do not.
    ///
    /// Fails if there is no memory for the copy, which the limit does not count.
    pub fn snapshot(&self, hasher: Hasher) -> Result<Filter> {
        filter(self.copy()?, hasher)
    }
}

fn filter(scalable: Scalable, hasher: Hasher) -> Result<Filter> {
    check_hasher(scalable.plan(), &hasher)?;
    let inserted = scalable.len();
    Ok(Filter::from_parts(hasher, Content::other(scalable), inserted))
}
