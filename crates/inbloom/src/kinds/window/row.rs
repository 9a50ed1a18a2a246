//! The row of the window in the table of kinds.

use alloc::boxed::Box;

use super::Window;
use super::plan::WindowPlan;
use crate::digest::Hasher;
use crate::kind::{Abilities, Kind, Labels};
use crate::kinds::Row;

impl Kind {
    /// Forgets: a key is found for as long as the window, in time or in keys, and little longer.
    #[expect(non_upper_case_globals, reason = "reads as the variant that it stands for")]
    pub const Window: Kind = Kind::new(7);
}

pub(crate) static ROW: Row = Row {
    kind: Kind::Window,
    name: "window",
    abilities: Abilities {
        merges: true,
        forgets: true,
        may_refuse: true,
        probes: true,
        lines: true,
        ..Abilities::NONE
    },
    labels: Labels {
        letter: 'w',
        bits: Some(" in a generation"),
        arrays: ", generation by generation",
        never_overfull: Some("drops old keys by itself"),
        above_target: ": more keys than planned in a step",
        ..Labels::BITS
    },
    planner: &WindowPlan,
    hasher: Hasher::default,
    new: |plan| Ok(Box::new(Window::new(plan)?)),
    read: |plan, cells, _| Ok(Box::new(Window::from_cells(plan, cells)?)),
    build: None,
    racing: |_| Ok(None),
};
