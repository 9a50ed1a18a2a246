//! The library as its users see it. One program for all files: it links once, and keeps all cores busy.
//! `crates/inbloom-loom` is apart, because it is compiled with another implementation of atomics.

mod common;
mod estimates;
mod file;
mod format;
mod golden;
mod grown;
mod house;
mod interop;
mod laws;
mod overlay;
mod parquet;
mod plans;
mod rates;
mod redisbloom;
mod ribbon;
mod shared;
mod together;
