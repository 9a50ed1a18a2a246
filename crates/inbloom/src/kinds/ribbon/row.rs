//! The row of the ribbon filter in the table of kinds.

use alloc::boxed::Box;

use super::Ribbon;
use super::plan::RibbonPlan;
use crate::digest::Hasher;
use crate::error::Error;
use crate::kind::{Abilities, Kind, Labels};
use crate::kinds::Row;

impl Kind {
    /// Solved equations: the fewest bits, built once from all keys and not to be changed.
    #[expect(non_upper_case_globals, reason = "reads as the variant that it stands for")]
    pub const Ribbon: Kind = Kind::new(8);
}

pub(crate) static ROW: Row = Row {
    kind: Kind::Ribbon,
    name: "ribbon",
    abilities: Abilities {
        is_static: true,
        keeps_rate: true,
        may_refuse: true,
        builds_in_parts: true,
        foresees_pages: true,
        wide: true,
        undivided: Some("it has shards of its own, which are built one by one already"),
        // 0 was planes of 64 slots.
        layout: 1,
        ..Abilities::NONE
    },
    labels: Labels {
        letter: 'r',
        bits: None,
        in_use: "slots in use",
        never_overfull: Some("keeps its rate for any number of keys"),
        above_target: ": build it again, with the keys that were added",
        ..Labels::BITS
    },
    planner: &RibbonPlan,
    hasher: Hasher::default,
    new: |plan| {
        Err(Error::Unsupported {
            kind: plan.kind(),
            verb: "start empty",
            remedy: "call Filter::build with the digests of all its keys",
        })
    },
    read: |plan, cells, _| Ok(Box::new(Ribbon::from_cells(plan, cells)?)),
    build: Some(|plan, digests| Ok(Box::new(Ribbon::build(plan, digests)?))),
    racing: |_| Ok(None),
};
