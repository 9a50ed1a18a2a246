//! What the tests of all crates share: one random generator, damaged and forged filter files, skips
//! that nobody overlooks, and processes of their own for tests that measure theirs.

pub mod forge;
mod process;
mod random;
mod skip;

pub use process::{alone, peak_memory, resident_memory};
pub use random::{Random, mix};
pub use skip::{program, skip};
