//! The row of the set of fingerprints in the table of kinds.

use super::Prints;
use super::plan::PrintsPlan;
use crate::digest::Hasher;
use crate::kind::{Abilities, Kind, Labels};
use crate::kinds::Row;

impl Kind {
    /// Fingerprints of 64 bits in a tree: an example of a kind. Its number is one of those from 0xf000 on,
    /// which no released kind gets.
    #[expect(non_upper_case_globals, reason = "reads as the variant that it stands for")]
    pub const Prints: Kind = Kind::new(0xf000);
}

pub(crate) static ROW: Row = Row {
    kind: Kind::Prints,
    name: "prints",
    abilities: Abilities { merges: true, wide: true, is_experimental: true, ..Abilities::NONE },
    labels: Labels { letter: 'p', in_use: "slots in use", ..Labels::BITS },
    planner: &PrintsPlan,
    hasher: Hasher::default,
    new: |plan| Ok(Box::new(Prints::new(plan))),
    read: |plan, cells, _| Ok(Box::new(Prints::read(plan, &cells)?)),
    build: None,
    racing: |_| Ok(None),
};
