//! The structures themselves, one file each. They hold digests and know nothing of keys.

pub mod bitmap;
pub mod blocked;
pub(crate) mod buckets;
pub mod classic;
pub mod counting;
pub mod cuckoo;
pub mod ribbon;
pub mod scalable;
pub mod window;

use std::any::Any;
use std::borrow::Cow;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::filter::Estimate;
use crate::membership::Membership;
use crate::paging::Paging;
use crate::plan::Plan;
use crate::profile::Slice;
use crate::storage::{self, Bits, Cells, Order};

/// What a filter asks of its kind, beyond membership. Where two of them meet, they are of one plan.
pub(crate) trait State: Membership + Any + Send + Sync {
    fn plan(&self) -> &Plan;

    /// The cells that are in use: set bits, counters above zero, fingerprints.
    fn occupied(&self) -> u64;

    /// The share of cells in use, from 0 to 1.
    fn fill(&self) -> f64 {
        self.plan().fill_of(self.occupied())
    }

    /// Counts the cells in use anew: reads everything. None if one is in use that no digest uses.
    fn recount(&self) -> Option<u64>;

    /// How full each slice of the array is, of about so many: reads everything.
    fn profile(&self, slices: usize) -> Vec<Slice>;

    /// Forgets every digest.
    fn clear(&mut self) -> Result<()>;

    /// A copy in memory of its own.
    fn copy(&self) -> Result<Box<dyn State>>;

    /// Whether both have the same content.
    fn same(&self, other: &dyn State) -> bool;

    /// Keeps what either has.
    fn unite(&mut self, other: &dyn State) -> Result<()>;

    /// Keeps what both have.
    fn intersect(&mut self, _other: &dyn State) -> Result<()> {
        Err(cannot_intersect(self.plan()))
    }

    /// Takes a digest out, and tells whether it was in.
    fn remove(&mut self, _digest: Digest) -> Result<bool> {
        Err(cannot_remove(self.plan()))
    }

    /// How often a digest was inserted, as far as the kind can tell.
    fn count(&self, digest: Digest) -> u64 {
        u64::from(self.contains_digest(digest))
    }

    /// Says why it would refuse a digest, if it would whatever else it holds.
    fn check(&self, _digest: Digest) -> Result<()> {
        Ok(())
    }

    /// The array of cells, if that is all of the state.
    fn bits(&self) -> Option<&Bits> {
        None
    }

    /// The cells that a pass over the payload reads, where they are the payload.
    fn cells(&self) -> Option<&Cells> {
        self.bits().map(|bits| &bits.cells)
    }

    /// As [`State::bits`], taken out.
    fn into_bits(self: Box<Self>) -> Option<Bits> {
        None
    }

    /// Whether the cells are not ours to change: those of a file that is mapped to read, or lent.
    /// (A static kind takes no inserts in any case; whoever accounts for memory asks it too.)
    fn is_read_only(&self) -> bool {
        self.cells().is_some_and(|cells| !cells.is_writable())
    }

    /// The positions of a digest's cells, if they are always the same.
    fn positions(&self, _digest: Digest) -> Option<Vec<u64>> {
        None
    }

    /// Whether the cell at a position is in use; there is none outside.
    fn is_set(&self, position: u64) -> bool {
        let width = u64::from(self.plan().width());
        let cell = position.checked_mul(width).and_then(|bit| usize::try_from(bit / 8).ok());
        let byte = cell.and_then(|at| self.bits()?.cells.bytes().get(at));
        byte.is_some_and(|byte| {
            let mask = ((1_u32 << width.min(8)) - 1) << (position * width % 8);
            u32::from(*byte) & mask != 0
        })
    }

    /// The bytes that a file keeps.
    fn payload(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.bits().expect("a kind of another state says so").cells.bytes())
    }

    /// The memory that the cells take.
    fn bytes(&self) -> u64 {
        self.plan().bytes()
    }

    /// The memory that is allocated beside the state itself.
    fn memory(&self) -> u64 {
        storage::allocated(self.bytes())
    }

    /// The rate at which a foreign key is claimed now.
    fn rate(&self) -> f64 {
        self.plan().rate_at_fill(self.plan().fill_of(self.occupied()))
    }

    /// How many distinct digests were inserted, of which `inserted` were new when they came and
    /// were not removed. Most kinds tell it from their cells alone.
    fn estimate(&self, _inserted: u64) -> Estimate {
        self.plan().estimate(self.occupied())
    }

    /// How many distinct digests there are after a merge or an intersection, which leave no count of
    /// those that were new.
    fn recount_distinct(&self) -> u64 {
        self.estimate(self.occupied()).items.round() as u64
    }

    /// How many more distinct keys it takes at the promised rate.
    fn room(&self) -> u64 {
        let items = self.estimate(self.occupied()).items.round() as u64;
        self.plan().items_at(self.plan().rate()).saturating_sub(items)
    }

    /// How many keys there will be, about, when it grows next, if it does.
    fn next_growth(&self) -> Option<u64> {
        None
    }

    /// Lets time pass, for what forgets.
    fn advance(&mut self, _now: u64) -> Result<()> {
        Err(cannot_advance(self.plan()))
    }

    /// Says in which order the cells are going to be read: see [`Cells::expect`].
    ///
    /// [`Cells::expect`]: crate::storage::Cells::expect
    fn expect(&self, order: Order) {
        if let Some(cells) = self.cells() {
            cells.expect(order);
        }
    }

    /// Says how pages come in, where the kind can look ahead: see
    /// [`Filter::set_paging`](crate::Filter::set_paging).
    fn set_paging(&mut self, _paging: Paging) {}

    /// What `info` tells of the state beyond what holds for every kind: names and values.
    fn details(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

impl dyn State {
    /// The other one of a pair that is of one plan, and so of one type.
    pub(crate) fn of<T: State>(&self) -> &T {
        (self as &dyn Any).downcast_ref().expect("one plan, one kind")
    }
}

pub(crate) fn cannot_remove(plan: &Plan) -> Error {
    Error::Unsupported {
        kind: plan.kind(),
        verb: "remove",
        remedy: "its keys share cells, and to clear one key's would deny others; the kinds that can \
                 are bitmap, counting and cuckoo",
    }
}

pub(crate) fn cannot_intersect(plan: &Plan) -> Error {
    let remedy = "ask both filters instead";
    Error::Unsupported { kind: plan.kind(), verb: "intersect", remedy }
}

pub(crate) fn cannot_advance(plan: &Plan) -> Error {
    let remedy = "only a window forgets; plan one with Kind::Window";
    Error::Unsupported { kind: plan.kind(), verb: "follow a clock", remedy }
}
