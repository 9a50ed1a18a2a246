//! What a filter asks of its content: of a kind, or of filters that answer as one.
//!
//! **No method has a default.** Some contents wrap another: a shard, an overlay, a filter that has
//! grown. A default would answer in the place of what is wrapped, and nobody would notice; a method
//! that is missing does not compile. What only some contents can do is behind an `Option`.
//!
//! - [`State`]: what changes a content, copies it and compares it.
//! - [`Measured`]: what it holds and takes. A wrapper that changes none of that hands over the
//!   `Measured` of what it wraps, all questions at once.
//! - [`Removable`], [`Intersecting`], [`Clocked`], [`Positioned`]: what only some can do.
//!
//! Kinds whose whole content is an array of cells answer most questions alike: they say only what is
//! their own, as [`ArrayKind`].

mod array;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::membership::Membership;
use crate::paging::Paging;
use crate::plan::Plan;
use crate::profile::Slice;
use crate::storage::{Bits, Order};
pub(crate) use array::{Array, ArrayKind};

/// What a filter asks of its content, beyond membership. Where two of them meet, they are of one
/// plan.
pub(crate) trait State: Membership + Any + Send + Sync {
    fn plan(&self) -> &Plan;

    /// Returns what is known about the content.
    fn measured(&self) -> &dyn Measured;

    /// Removes every digest.
    fn clear(&mut self) -> Result<()>;

    /// Copies the content into memory of its own.
    fn copy(&self) -> Result<Box<dyn State>>;

    /// Returns whether both have the same content.
    fn same(&self, other: &dyn State) -> bool;

    /// Keeps what either has.
    fn unite(&mut self, other: &dyn State) -> Result<()>;

    /// Returns how often a digest was inserted, as far as the content can tell.
    fn count(&self, digest: Digest) -> u64;

    /// Returns why an insert of this digest would be refused, if it would whatever else is held.
    fn check(&self, digest: Digest) -> Result<()>;

    /// Returns [`Measured::bits`], taken out.
    fn into_bits(self: Box<Self>) -> Option<Bits>;

    /// Announces in which order the cells are going to be read: see [`Cells::expect`].
    ///
    /// [`Cells::expect`]: crate::storage::Cells::expect
    fn expect(&self, order: Order);

    /// Sets how pages come in, where the content can look ahead: see
    /// [`Filter::set_paging`](crate::Filter::set_paging).
    fn set_paging(&mut self, paging: Paging);

    fn removable(&mut self) -> Option<&mut dyn Removable>;
    fn intersecting(&mut self) -> Option<&mut dyn Intersecting>;
    fn clocked(&mut self) -> Option<&mut dyn Clocked>;
    fn positioned(&self) -> Option<&dyn Positioned>;
}

impl dyn State {
    /// Returns the other one of a pair that is of one plan, and so of one type.
    pub(crate) fn of<T: State>(&self) -> &T {
        (self as &dyn Any).downcast_ref().expect("one plan, one kind")
    }
}

/// Writes what `Debug` shows of a content: its plan, and how many cells are in use.
pub(crate) fn debug(name: &str, content: &dyn State, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.debug_struct(name)
        .field("plan", content.plan())
        .field("occupied", &content.measured().occupied())
        .finish_non_exhaustive()
}

/// What is known about a content.
pub(crate) trait Measured {
    /// Returns how many cells are in use: set bits, counters above zero, fingerprints.
    fn occupied(&self) -> u64;

    /// Returns the share of cells in use, from 0 to 1.
    fn fill(&self) -> f64;

    /// Counts the cells in use again: reads everything. None if one is in use that no digest uses.
    fn recount(&self) -> Option<u64>;

    /// Returns how full each slice of the array is, of about so many: reads everything.
    fn profile(&self, slices: usize) -> Vec<Slice>;

    /// Returns the memory that the cells take.
    fn bytes(&self) -> u64;

    /// Returns the memory that is allocated beside the content itself.
    fn memory(&self) -> u64;

    /// Returns the rate at which a non-member is reported as present now.
    fn rate(&self) -> f64;

    /// Estimates how many distinct digests there are. `inserted` were new when they came and were
    /// not removed; None after a merge or an intersection, which leave no such count. Most kinds
    /// estimate from their cells alone.
    fn estimate(&self, inserted: Option<u64>) -> Estimate;

    /// Returns how many more distinct keys fit at the target rate.
    fn room(&self) -> u64;

    /// Returns how many keys there will be, about, when the content grows next, if it does.
    fn next_growth(&self) -> Option<u64>;

    /// Returns what `info` shows beyond what holds for every content: names and values.
    fn details(&self) -> Vec<(&'static str, String)>;

    /// Returns the array of cells, if that is all of the content.
    fn bits(&self) -> Option<&Bits>;

    /// Returns the bytes that a file keeps.
    fn payload(&self) -> Cow<'_, [u8]>;

    /// Returns whether the cells must not be changed: those of a file that is mapped to read, or
    /// lent. (A static kind takes no inserts in any case; accounts of memory call it too.)
    fn is_read_only(&self) -> bool;
}

/// A content that digests can be removed from.
pub(crate) trait Removable {
    /// Removes a digest, and returns whether it was in.
    fn remove(&mut self, digest: Digest) -> Result<bool>;
}

/// A content that can keep what it shares with another.
pub(crate) trait Intersecting {
    /// Keeps what both have.
    fn intersect(&mut self, other: &dyn State) -> Result<()>;
}

/// A content that forgets as time passes.
pub(crate) trait Clocked {
    /// Lets time pass.
    fn advance(&mut self, now: u64) -> Result<()>;
}

/// A content in which the cells of a digest are always the same.
pub(crate) trait Positioned {
    /// Returns the positions of a digest's cells.
    fn positions(&self, digest: Digest) -> Result<Vec<u64>>;

    /// Returns whether the cell at a position is in use; there is none outside.
    fn is_set(&self, position: u64) -> bool;
}

pub(crate) fn cannot_remove(plan: &Plan) -> Error {
    if plan.kind().is_static() {
        return cannot_change(plan, "remove keys");
    }
    Error::Unsupported {
        kind: plan.kind(),
        verb: "remove keys",
        remedy: "build it with kind counting, cuckoo or bitmap, which can",
    }
}

pub(crate) fn cannot_intersect(plan: &Plan) -> Error {
    let remedy = "query both filters instead";
    Error::Unsupported { kind: plan.kind(), verb: "intersect", remedy }
}

pub(crate) fn cannot_advance(plan: &Plan) -> Error {
    let remedy = "use kind window, the only one whose keys expire";
    Error::Unsupported { kind: plan.kind(), verb: "follow a clock", remedy }
}

pub(crate) fn has_no_positions(plan: &Plan) -> Error {
    Error::Unsupported {
        kind: plan.kind(),
        verb: "report the positions of a key",
        remedy: "use kind bitmap, classic, blocked or counting, which can",
    }
}

/// Why a static kind does not do this.
pub(crate) fn cannot_change(plan: &Plan, verb: &'static str) -> Error {
    let remedy = "build it again from all its keys, or keep the changes in an overlay ('inbloom build \
                  --base', Filter::into_overlay)";
    Error::Unsupported { kind: plan.kind(), verb, remedy }
}
