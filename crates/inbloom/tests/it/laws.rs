//! What holds for every kind in every shape.

mod auto_clear;
mod bitmaps;
mod estimates;
mod filters;
mod hashes;
mod measurement;
mod operations;
mod removal;
mod same_by_another_way;
mod sets;
mod windows;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::common::{
    UNIVERSE, cuckoos, every_shape, file_of, insert_over_time, key, keys, max_count,
    mean_and_deviation, read, seeded, shapes, shapes_for, slots, used_cells,
};
use inbloom::internals::kinds::window::Window;
use inbloom::internals::kinds::{
    bitmap::Bitmap, blocked::Blocked, classic::Classic, counting::Counting, cuckoo::Cuckoo,
    scalable::Scalable,
};
use inbloom::{
    Digest, Error, Filter, Hasher, Kind, Membership, Plan, SecretKey, SharedFilter, file, measure,
    measure_absent,
};
use inbloom_testing::mix;
use proptest::prelude::*;

/// Whether a law holds, or how it was broken.
type Verdict = Result<(), String>;

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(otherwise()) }
}

#[track_caller]
fn assert_members(filter: &Filter, keys: &[[u8; 8]], what: &str) {
    let mut found = Vec::new();
    filter.contains_many(keys, &mut found);
    let missing = found.iter().filter(|found| !**found).count();
    assert_eq!((found.len(), missing), (keys.len(), 0), "{what}: missing keys");
}

fn with_keys(plan: Plan, keys: &[[u8; 8]]) -> Filter {
    let mut filter = Filter::new(plan).unwrap();
    filter.insert_many(keys, &mut Vec::new()).unwrap();
    filter
}

/// Digests as the set's filter would make them: integers for a bitmap, hashes for the others.
fn digests(set: &str, count: u64) -> Vec<Digest> {
    let hasher = if set.contains("bitmap") { Hasher::integers() } else { Hasher::default() };
    (0..count).map(|number| hasher.digest(key(number))).collect()
}

/// Merges, unless the kind may refuse that so as to keep its rate: then nothing has changed.
fn merge_or_refuse(filter: &mut Filter, other: &Filter) -> bool {
    let before = filter.clone();
    match filter.merge(other) {
        Ok(()) => true,
        Err(error) if before.plan().kind() == Kind::Scalable => {
            assert!(*filter == before, "refused, and changed: {error}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}
