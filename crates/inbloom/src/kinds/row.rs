//! What the table of kinds has in each row, and [`Kind`]'s answers from it.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use super::KINDS;
use super::racing::Racing;
use crate::digest::{Digest, Hasher};
use crate::error::{Error, Result};
use crate::kind::{Abilities, Kind, Labels};
use crate::plan::planner::Planner;
use crate::plan::{Plan, one_of};
use crate::state::State;
use crate::storage::Cells;

/// Everything that is known about a kind. Each kind has one, in its folder.
pub(crate) struct Row {
    pub kind: Kind,
    /// The name on the command line, in messages and in replies.
    pub name: &'static str,
    pub abilities: Abilities,
    pub labels: Labels,
    pub planner: &'static dyn Planner,
    /// Makes the hash of a filter that is given none.
    pub hasher: fn() -> Hasher,
    /// Makes an empty filter.
    pub new: fn(Plan) -> Result<Box<dyn State>>,
    /// Makes a filter of the payload of a file, which may hold anything, and its count of occupied
    /// cells. A kind that is nothing but an array of cells takes any.
    pub read: fn(Plan, Cells, u64) -> Result<Box<dyn State>>,
    /// Makes a filter of all its digests, where it takes no others.
    pub build: Option<Build>,
    /// Makes what many threads change without a lock, if a filter of the plan is such.
    pub racing: fn(Plan) -> Result<Option<Racing>>,
}

pub(crate) type Build = fn(Plan, &[Digest]) -> Result<Box<dyn State>>;

#[cfg(not(feature = "std"))]
impl Row {
    /// Foreign formats need std, so that there are no kinds of other programs.
    fn foreign(_id: u16) -> Option<&'static Row> {
        None
    }
}

impl Kind {
    /// Every kind of ours, in the order of their numbers. Filters of other programs have further
    /// ones: see [`interop`](crate::interop).
    pub const ALL: &'static [Kind] = &{
        let mut all = [Kind::new(0); KINDS.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = KINDS[at].kind;
            at += 1;
        }
        all
    };

    pub(crate) fn row(self) -> &'static Row {
        // Numbers from 1 on are in order; the others are after them.
        match KINDS.get(usize::from(self.id()).wrapping_sub(1)) {
            Some(row) if row.kind == self => row,
            _ => {
                let ours = KINDS.iter().copied().find(|row| row.kind == self);
                ours.or_else(|| Row::foreign(self.id())).expect("every kind has a row")
            }
        }
    }

    pub(crate) fn from_id(id: u16) -> Option<Kind> {
        let ours = Kind::ALL.iter().copied().find(|kind| kind.id() == id);
        ours.or_else(|| Row::foreign(id).map(|row| row.kind))
    }

    pub(crate) fn planner(self) -> &'static dyn Planner {
        self.row().planner
    }

    /// Returns the hash of a filter that is given none.
    pub(crate) fn default_hasher(self) -> Hasher {
        (self.row().hasher)()
    }

    /// Returns the kind's name on the command line and in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns whether lists and messages leave the kind out. It works if its name is given.
    #[must_use]
    pub fn is_experimental(self) -> bool {
        self.abilities().is_experimental
    }

    /// Returns the kinds that lists and messages name, in the order of their numbers.
    pub fn offered() -> impl Iterator<Item = Kind> {
        Kind::ALL.iter().copied().filter(|kind| !kind.is_experimental())
    }

    /// Returns the words that describe filters of this kind.
    #[must_use]
    pub fn labels(self) -> &'static Labels {
        &self.row().labels
    }

    /// Returns the layout of its payload in files.
    pub(crate) fn layout(self) -> u16 {
        self.abilities().layout
    }

    fn abilities(self) -> &'static Abilities {
        &self.row().abilities
    }

    /// Returns whether keys can be removed.
    #[must_use]
    pub fn can_remove(self) -> bool {
        self.abilities().removes
    }

    /// Returns whether two filters of one plan can be merged into one that has what either has.
    #[must_use]
    pub fn can_merge(self) -> bool {
        self.abilities().merges
    }

    /// Returns whether a filter is built once from all its keys, by
    /// [`Filter::build`](crate::Filter::build), and never changed. With an overlay it takes
    /// changes: see [`Filter::into_overlay`](crate::Filter::into_overlay).
    #[must_use]
    pub fn is_static(self) -> bool {
        self.abilities().is_static
    }

    /// Returns whether it keeps its rate beyond the planned items, by growing.
    #[must_use]
    pub fn can_grow(self) -> bool {
        self.abilities().grows
    }

    /// Returns whether a filter of this kind can go on past its planned items, in a growing part
    /// beside it: see [`Filter::into_growing`](crate::Filter::into_growing).
    #[must_use]
    pub fn can_outgrow(self) -> bool {
        self.abilities().outgrows
    }

    /// Returns whether the insert of a present key adds another copy. The key is then absent only
    /// after as many removals.
    #[must_use]
    pub fn counts(self) -> bool {
        self.abilities().counts
    }

    /// Returns whether the kind stores integers without hashing them. It then has no false
    /// positives, and the number of possible values determines its size.
    #[must_use]
    pub fn is_exact(self) -> bool {
        self.abilities().is_exact
    }

    /// Returns whether keys expire, either as [`Filter::advance`](crate::Filter::advance) moves the
    /// clock or as new keys come.
    #[must_use]
    pub fn forgets(self) -> bool {
        self.abilities().forgets
    }

    /// Returns whether its rate does not rise with the number of keys.
    #[must_use]
    pub fn keeps_rate(self) -> bool {
        self.abilities().keeps_rate
    }

    /// Returns whether a writable filter may refuse an insert, because it is full or needs memory.
    #[must_use]
    pub fn may_refuse(self) -> bool {
        self.abilities().may_refuse
    }

    /// Returns whether a filter larger than memory can be built and written part by part.
    #[must_use]
    pub fn can_build_in_parts(self) -> bool {
        self.abilities().builds_in_parts
    }

    /// Returns whether a batch of queries requests the pages of a mapped file before it reads them.
    #[must_use]
    pub fn foresees_pages(self) -> bool {
        self.abilities().foresees_pages
    }

    /// Returns whether keys can be divided among shards by their hash.
    #[must_use]
    pub fn can_shard(self) -> bool {
        self.undivided().is_none()
    }

    pub(crate) fn undivided(self) -> Option<&'static str> {
        self.abilities().undivided
    }

    /// Returns whether a key sets bits and a query tests them. The other kinds compare
    /// fingerprints.
    #[must_use]
    pub fn has_probes(self) -> bool {
        self.abilities().probes
    }

    pub(crate) fn has_lines(self) -> bool {
        self.abilities().lines
    }

    /// Returns whether its cells have more than one bit, as many as [`Plan::width`].
    #[must_use]
    pub fn has_wide_cells(self) -> bool {
        self.abilities().wide
    }

    /// Returns whether that width can be chosen.
    #[must_use]
    pub fn chooses_width(self) -> bool {
        self.abilities().chooses_width
    }
}

/// Prints the name with a capital letter.
impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, rest) = self.name().split_at(1);
        write!(f, "{}{rest}", first.to_ascii_uppercase())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.name() == text).ok_or_else(|| Error::Parameter {
            name: "kind",
            got: text.to_owned(),
            expected: one_of(Kind::offered().map(Kind::name)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_of_kinds_are_their_own() {
        for (at, row) in KINDS.iter().enumerate() {
            assert!(KINDS[..at].iter().all(|other| other.kind < row.kind), "{}", row.name);
            assert!(KINDS[..at].iter().all(|other| other.name != row.name), "{}", row.name);
            assert_eq!(row.kind.row().name, row.name);
            assert_eq!(row.build.is_some(), row.abilities.is_static, "{}", row.name);
        }
    }
}
