//! The row of the bitmap in the table of kinds.

use alloc::boxed::Box;

use super::plan::BitmapPlan;
use super::{Bitmap, Store};
use crate::digest::Hasher;
use crate::kind::{Abilities, Kind, Labels};
use crate::kinds::Row;
use crate::kinds::racing::Racing;
use crate::storage::Bits;

impl Kind {
    /// One bit per possible integer: exact, ordered. Keys are integers, not text: `insert("7")`
    /// inserts the byte 55.
    #[expect(non_upper_case_globals, reason = "reads as the variant that it stands for")]
    pub const Bitmap: Kind = Kind::new(1);
}

pub(crate) static ROW: Row = Row {
    kind: Kind::Bitmap,
    name: "bitmap",
    abilities: Abilities {
        removes: true,
        merges: true,
        is_exact: true,
        keeps_rate: true,
        probes: true,
        undivided: Some(
            "integers are not hashed, so they would not spread evenly; use one bitmap for each \
             range of integers",
        ),
        ..Abilities::NONE
    },
    labels: Labels {
        letter: 'b',
        never_overfull: Some("is exact, however many integers it holds"),
        ..Labels::BITS
    },
    planner: &BitmapPlan,
    hasher: Hasher::integers,
    new: |plan| Ok(Box::new(Bitmap::new(plan)?)),
    read: |plan, cells, occupied| match plan.is_sparse() {
        true => Ok(Box::new(Bitmap::read_sparse(plan, &cells)?)),
        false => {
            let bits = Bits { cells, ones: occupied };
            Ok(Box::new(Bitmap::with_store(plan, Store::Dense(bits))))
        }
    },
    build: None,
    racing: |plan| Ok((!plan.is_sparse()).then(|| Racing::Bitmap(super::RacingBitmap::new(&plan)))),
};
