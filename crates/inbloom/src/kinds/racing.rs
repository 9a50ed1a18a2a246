//! The kinds that many threads change without a lock: arrays of cells in words of 64 bits.

use alloc::sync::Arc;

use super::{bitmap, blocked, classic, counting};

/// How the words of one of them are read and changed, while others do it too.
pub(crate) enum Racing {
    Bitmap(bitmap::RacingBitmap),
    Classic(classic::RacingClassic),
    Blocked(Arc<blocked::Shape>),
    Counting(counting::RacingCounting),
}
