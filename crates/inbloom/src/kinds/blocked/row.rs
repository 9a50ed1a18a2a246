//! The row of the blocked filter in the table of kinds.

use alloc::boxed::Box;

use super::plan::BlockedPlan;
use super::{Blocked, Shape};
use crate::digest::Hasher;
use crate::kind::{Abilities, Kind, Labels};
use crate::kinds::Row;
use crate::kinds::racing::Racing;
use crate::storage::Bits;

impl Kind {
    /// A Bloom filter whose probes share one cache line (or two, from about 2 * 10^-5 down). The default.
    #[expect(non_upper_case_globals, reason = "reads as the variant that it stands for")]
    pub const Blocked: Kind = Kind::new(3);
}

/// The fastest kind, for anything that is not known to need another.
impl Default for Kind {
    fn default() -> Kind {
        Kind::Blocked
    }
}

pub(crate) static ROW: Row = Row {
    kind: Kind::Blocked,
    name: "blocked",
    abilities: Abilities {
        merges: true,
        outgrows: true,
        builds_in_parts: true,
        probes: true,
        lines: true,
        ..Abilities::NONE
    },
    labels: Labels { letter: 'b', ..Labels::BITS },
    planner: &BlockedPlan,
    hasher: Hasher::default,
    new: |plan| Ok(Box::new(Blocked::new(plan)?)),
    read: |plan, cells, occupied| {
        Ok(Box::new(Blocked::with_bits(plan, Bits { cells, ones: occupied })))
    },
    build: None,
    racing: |plan| Ok(Some(Racing::Blocked(Shape::new(plan)?))),
};
