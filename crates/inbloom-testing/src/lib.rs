//! What the tests of all crates share: one random generator, damaged and forged filter files, skips
//! that nobody overlooks, processes of their own for tests that measure theirs, and Redis servers.

pub mod forge;
mod process;
mod random;
pub mod redis;
mod skip;

pub use process::{alone, peak_memory, resident_memory};
pub use random::{Random, mix};
pub use skip::{program, skip};
