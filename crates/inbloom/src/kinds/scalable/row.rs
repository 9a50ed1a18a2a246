//! The row of the scalable filter in the table of kinds.

use alloc::boxed::Box;

use super::Scalable;
use super::plan::ScalablePlan;
use crate::digest::Hasher;
use crate::kind::{Abilities, Kind, Labels};
use crate::kinds::Row;

impl Kind {
    /// Fingerprints in tables that grow with the keys, at the promised rate whatever their number.
    #[expect(non_upper_case_globals, reason = "reads as the variant that it stands for")]
    pub const Scalable: Kind = Kind::new(6);
}

pub(crate) static ROW: Row = Row {
    kind: Kind::Scalable,
    name: "scalable",
    abilities: Abilities {
        merges: true,
        grows: true,
        keeps_rate: true,
        may_refuse: true,
        layout: 1,
        ..Abilities::NONE
    },
    labels: Labels {
        letter: 's',
        bits: None,
        in_use: "entries",
        arrays: ", table by table",
        never_overfull: Some("always grows past -n"),
        above_target: "",
    },
    planner: &ScalablePlan,
    hasher: Hasher::default,
    new: |plan| Ok(Box::new(Scalable::new(plan)?)),
    read: |plan, cells, _| Ok(Box::new(Scalable::from_cells(plan, cells)?)),
    build: None,
    racing: |_| Ok(None),
};
