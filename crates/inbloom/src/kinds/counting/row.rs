//! The row of the counting filter in the table of kinds.

use alloc::boxed::Box;

use super::Counting;
use super::plan::CountingPlan;
use crate::digest::Hasher;
use crate::kind::{Abilities, Kind, Labels};
use crate::kinds::Row;
use crate::kinds::racing::Racing;
use crate::storage::Bits;

impl Kind {
    /// A blocked filter of counters instead of bits: keys can be removed and counted.
    #[expect(non_upper_case_globals, reason = "reads as the variant that it stands for")]
    pub const Counting: Kind = Kind::new(4);
}

pub(crate) static ROW: Row = Row {
    kind: Kind::Counting,
    name: "counting",
    abilities: Abilities {
        removes: true,
        merges: true,
        counts: true,
        probes: true,
        lines: true,
        wide: true,
        chooses_width: true,
        ..Abilities::NONE
    },
    labels: Labels { letter: 'n', in_use: "counters in use", ..Labels::BITS },
    planner: &CountingPlan,
    hasher: Hasher::default,
    new: |plan| Ok(Box::new(Counting::new(plan)?)),
    read: |plan, cells, occupied| {
        Ok(Box::new(Counting::with_bits(plan, Bits { cells, ones: occupied })))
    },
    build: None,
    racing: |plan| Ok(Some(Racing::Counting(super::RacingCounting::new(&plan)))),
};
