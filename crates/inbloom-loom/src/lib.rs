//! Nothing: a crate of tests, see `tests/loom.rs`.
