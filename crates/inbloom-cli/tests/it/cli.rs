//! The `inbloom` binary as a person or a script meets it: arguments and bytes in; bytes, messages
//! and an exit code out.

mod add;
mod arguments;
mod at_once;
mod build;
mod check;
mod completions;
mod dedup;
mod errors;
mod folder;
mod r#gen;
mod info;
mod input;
mod interop;
#[cfg(feature = "example-kind")]
mod kinds;
mod lines;
mod links;
mod man;
mod measure;
mod merge;
mod mutated;
mod out_of_core;
mod overfull;
mod overlay;
mod plan;
mod power_loss;
mod remove;
mod seeds;
mod serve;
mod shards;
mod sort_ints;
