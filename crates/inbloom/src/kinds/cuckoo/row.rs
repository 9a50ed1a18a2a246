//! The row of the cuckoo filter in the table of kinds.

use alloc::boxed::Box;

use super::Cuckoo;
use super::plan::CuckooPlan;
use crate::digest::Hasher;
use crate::kind::{Abilities, Kind, Labels};
use crate::kinds::Row;
use crate::storage::Bits;

impl Kind {
    /// Fingerprints in buckets, each in one of two: keys can be removed, in less than half of the bits
    /// that counters take.
    #[expect(non_upper_case_globals, reason = "reads as the variant that it stands for")]
    pub const Cuckoo: Kind = Kind::new(5);
}

pub(crate) static ROW: Row = Row {
    kind: Kind::Cuckoo,
    name: "cuckoo",
    abilities: Abilities {
        removes: true,
        merges: true,
        counts: true,
        may_refuse: true,
        wide: true,
        ..Abilities::NONE
    },
    labels: Labels { letter: 'k', in_use: "slots in use", ..Labels::BITS },
    planner: &CuckooPlan,
    hasher: Hasher::default,
    new: |plan| Ok(Box::new(Cuckoo::new(plan)?)),
    read: |plan, cells, occupied| {
        Ok(Box::new(Cuckoo::with_bits(plan, Bits { cells, ones: occupied })))
    },
    build: None,
    racing: |_| Ok(None),
};
