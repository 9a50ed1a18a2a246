//! The row of the classic filter in the table of kinds.

use alloc::boxed::Box;

use super::Classic;
use super::plan::ClassicPlan;
use crate::digest::Hasher;
use crate::kind::{Abilities, Kind, Labels};
use crate::kinds::Row;
use crate::kinds::racing::Racing;
use crate::storage::Bits;

impl Kind {
    /// A Bloom filter: k probes anywhere in m bits. The fewest bits of the kinds that can grow full
    /// one key at a time, and k cache misses per key.
    #[expect(non_upper_case_globals, reason = "reads as the variant that it stands for")]
    pub const Classic: Kind = Kind::new(2);
}

pub(crate) static ROW: Row = Row {
    kind: Kind::Classic,
    name: "classic",
    abilities: Abilities { merges: true, outgrows: true, probes: true, ..Abilities::NONE },
    labels: Labels { letter: 'c', ..Labels::BITS },
    planner: &ClassicPlan,
    hasher: Hasher::default,
    new: |plan| Ok(Box::new(Classic::new(plan)?)),
    read: |plan, cells, occupied| {
        Ok(Box::new(Classic::with_bits(plan, Bits { cells, ones: occupied })))
    },
    build: None,
    racing: |plan| Ok(Some(Racing::Classic(super::RacingClassic::new(&plan)))),
};
