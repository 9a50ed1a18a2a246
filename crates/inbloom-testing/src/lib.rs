//! What the tests of all crates share. It depends on nothing, so that every crate can depend on it.

mod process;

pub use process::{alone, peak_memory, resident_memory};
