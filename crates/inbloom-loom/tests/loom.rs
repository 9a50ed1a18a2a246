//! Shared filters under every interleaving of small cases, and under every order in which the
//! memory model lets relaxed operations be seen. Run with
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p inbloom-loom --target-dir target/loom
//! ```
//!
//! Real threads on large filters are in the library's `tests/it/shared.rs`.

#![cfg(loom)]

use inbloom::internals::kinds::blocked::{Shape, SharedBlocked};
use inbloom::{Digest, Filter, Hasher, Kind, Plan, SharedFilter};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

/// Explores a model with up to so many preemptions: without a bound it takes hours.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// The smallest filters of each kind: an insert touches one word, up to three, and up to four.
fn plans() -> [Plan; 3] {
    [
        Plan::builder(Kind::Bitmap).universe(64).build().unwrap(),
        Plan::exact(Kind::Classic, 192, 3).unwrap(),
        Plan::exact(Kind::Blocked, 512, 4).unwrap(),
    ]
}

fn shared(plan: Plan) -> Arc<SharedFilter> {
    Arc::new(Filter::new(plan).unwrap().into_shared().unwrap())
}

/// What a single thread would have made of the same keys.
fn assert_same_as_exclusive(shared: Arc<SharedFilter>, keys: &[[u8; 1]]) {
    let shared = Arc::try_unwrap(shared).ok().expect("every other thread has ended");
    let ones = shared.occupied();
    let filter = shared.into_exclusive();
    let mut expected = Filter::new(*filter.plan()).unwrap();
    for key in keys {
        expected.insert(key).unwrap();
        assert!(filter.contains(key), "an inserted key is lost");
    }
    assert!(filter == expected, "bits differ");
    assert_eq!(ones, expected.occupied());
}

#[test]
fn two_inserters_lose_nothing() {
    for plan in plans() {
        explore(3, move || {
            let filter = shared(plan);
            let other = thread::spawn({
                let filter = filter.clone();
                move || filter.insert([1]).unwrap()
            });
            assert!(filter.insert([2]).unwrap());
            assert!(filter.contains([2]), "what this thread inserted, it finds");
            assert!(other.join().unwrap());
            assert!(filter.contains([1]) && filter.contains([2]));
            assert_eq!(filter.inserted(), 2);
            assert_same_as_exclusive(filter, &[[1], [2]]);
        });
    }
}

#[test]
fn a_key_inserted_before_a_flag_is_found_after_it() {
    for plan in plans() {
        explore(3, move || {
            let filter = shared(plan);
            let published = Arc::new(AtomicBool::new(false));
            let inserter = thread::spawn({
                let (filter, published) = (filter.clone(), published.clone());
                move || {
                    filter.insert([1]).unwrap();
                    published.store(true, Ordering::Release);
                }
            });
            if published.load(Ordering::Acquire) {
                assert!(filter.contains([1]), "a published key is denied");
            }
            inserter.join().unwrap();
            assert!(filter.contains([1]));
        });
    }
}

#[test]
fn a_reader_of_two_racing_inserters_finds_what_each_has_published() {
    for plan in plans() {
        explore(2, move || {
            let filter = shared(plan);
            let published = [1, 2].map(|key| {
                let flag = Arc::new(AtomicBool::new(false));
                let (filter, set) = (filter.clone(), flag.clone());
                thread::spawn(move || {
                    filter.insert([key]).unwrap();
                    set.store(true, Ordering::Release);
                });
                (key, flag)
            });
            for (key, flag) in published {
                if flag.load(Ordering::Acquire) {
                    assert!(filter.contains([key]), "a published key is denied");
                }
            }
        });
    }
}

#[test]
fn of_two_racing_inserts_if_absent_exactly_one_is_told_new() {
    for plan in plans().into_iter().chain([counting()]) {
        explore(if plan.kind() == Kind::Counting { 2 } else { 3 }, move || {
            let filter = shared(plan);
            let other = thread::spawn({
                let filter = filter.clone();
                move || filter.insert_if_absent([1]).unwrap()
            });
            let here = filter.insert_if_absent([1]).unwrap();
            let there = other.join().unwrap();
            assert!(here != there, "told new: {here} here, {there} there");
            assert_eq!(filter.inserted(), 1);
            assert_same_as_exclusive(filter, &[[1]]);
        });
    }
}

#[test]
fn a_snapshot_has_what_was_inserted_before_and_no_lock() {
    for plan in plans().into_iter().chain([counting()]) {
        explore(2, move || {
            let filter = shared(plan);
            let published = Arc::new(AtomicBool::new(false));
            let inserter = thread::spawn({
                let (filter, published) = (filter.clone(), published.clone());
                move || {
                    filter.insert([1]).unwrap();
                    published.store(true, Ordering::Release);
                    filter.insert([2]).unwrap();
                }
            });
            let is_published = published.load(Ordering::Acquire);
            let copy = filter.snapshot().unwrap();
            assert!(!is_published || copy.contains([1]), "a published key is not in the copy");
            // A lock that was copied would be refused, or its line could never be changed.
            copy.into_shared().unwrap().insert([3]).unwrap();
            inserter.join().unwrap();
            assert_same_as_exclusive(filter, &[[1], [2]]);
        });
    }
}

#[test]
fn what_is_inserted_after_a_clear_is_found_and_counts_are_right() {
    for plan in plans().into_iter().chain([counting()]) {
        explore(2, move || {
            let filter = shared(plan);
            filter.insert([1]).unwrap();
            let inserter = thread::spawn({
                let filter = filter.clone();
                move || filter.insert([2]).unwrap()
            });
            filter.clear().unwrap();
            filter.insert([3]).unwrap();
            assert!(filter.contains([3]), "what this thread inserted after the clear, it finds");
            inserter.join().unwrap();
            // The key that came meanwhile may be lost, in part too, and can be inserted again.
            filter.insert_if_absent([2]).unwrap();
            assert!(filter.contains([2]) && filter.contains([3]));
            assert_eq!(filter.occupied(), filter.snapshot().unwrap().occupied(), "cells in use");
        });
    }
}

/// Two keys of a counting filter that have a counter in common, and each one of its own.
fn neighbours(filter: &Filter) -> [[u8; 1]; 2] {
    let positions = |key: u8| filter.positions([key]).unwrap();
    let first = positions(0);
    let near = |key: &u8| {
        let shared = positions(*key).iter().filter(|place| first.contains(place)).count();
        shared > 0 && shared < first.len()
    };
    [[0], [(1..=255).find(near).expect("168 counters, four of each key")]]
}

fn counting() -> Plan {
    Plan::exact(Kind::Counting, 512, 4).unwrap()
}

#[test]
fn inserts_of_keys_that_share_counters_lose_no_count() {
    explore(3, || {
        let filter = Filter::new(counting()).unwrap();
        let keys @ [one, other] = neighbours(&filter);
        let filter = Arc::new(filter.into_shared().unwrap());
        let inserter = thread::spawn({
            let filter = filter.clone();
            move || filter.insert(other).unwrap()
        });
        filter.insert(one).unwrap();
        assert!(filter.contains(one), "what this thread inserted, it finds");
        inserter.join().unwrap();
        assert_same_as_exclusive(filter, &keys);
    });
}

#[test]
fn an_insert_beside_a_removal_of_a_key_that_shares_counters_loses_no_count() {
    explore(2, || {
        let mut filter = Filter::new(counting()).unwrap();
        let [gone, kept] = neighbours(&filter);
        filter.insert(gone).unwrap();
        let filter = Arc::new(filter.into_shared().unwrap());
        let inserter = thread::spawn({
            let filter = filter.clone();
            move || {
                filter.insert(kept).unwrap();
                assert!(filter.contains(kept), "what this thread inserted, it finds");
            }
        });
        assert!(filter.remove(gone).unwrap(), "it was in");
        inserter.join().unwrap();
        assert_same_as_exclusive(filter, &[kept]);
    });
}

/// And both may be: that is why there is `insert_if_absent`, and shows that the models above get to the
/// interleavings that matter.
#[test]
fn of_two_racing_plain_inserts_at_least_one_is_told_new() {
    for plan in plans() {
        let both = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = both.clone();
        explore(3, move || {
            let filter = shared(plan);
            let other = thread::spawn({
                let filter = filter.clone();
                move || filter.insert([1]).unwrap()
            });
            let here = filter.insert([1]).unwrap();
            let there = other.join().unwrap();
            assert!(here || there, "nobody is told that the key is new");
            if here && there {
                seen.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            assert_same_as_exclusive(filter, &[[1]]);
        });
        let both = both.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(both, plan.kind() == Kind::Classic, "{}: told new twice", plan.kind());
    }
}

/// Blocked filters of one block, and of two with a line of every key in each.
fn shapes() -> [Plan; 2] {
    let two_lines = Plan::builder(Kind::Blocked).items(2).bytes(128).lines(2).probes(8);
    [Plan::exact(Kind::Blocked, 512, 4).unwrap(), two_lines.build().unwrap()]
}

fn digest(key: u8) -> Digest {
    Hasher::default().digest([key])
}

fn shared_lines(plan: Plan) -> Arc<SharedBlocked> {
    Arc::new(SharedBlocked::new(&Shape::new(plan).unwrap()).unwrap())
}

/// What a single thread would have made of the same keys, with all lines unlocked.
fn assert_lines_of(shared: &SharedBlocked, keys: &[u8]) {
    let mut expected = Filter::new(*shared.plan()).unwrap();
    for key in keys {
        expected.insert([*key]).unwrap();
        assert!(shared.contains(digest(*key)), "an inserted key is lost");
        // It would wait for ever for a line that is left locked.
        assert!(!shared.insert(digest(*key)), "an inserted key is new");
    }
    let copy = shared.snapshot(Hasher::default(), expected.inserted()).unwrap();
    assert!(copy == expected, "bits differ");
}

#[test]
fn of_two_racing_inserts_of_one_key_exactly_one_is_told_new() {
    for plan in shapes() {
        explore(3, move || {
            let filter = shared_lines(plan);
            let other = thread::spawn({
                let filter = filter.clone();
                move || filter.insert(digest(1))
            });
            let here = filter.insert(digest(1));
            assert!(filter.contains(digest(1)), "what this thread was told to be in, it finds");
            let there = other.join().unwrap();
            assert!(here != there, "told new: {here} here, {there} there");
            assert_lines_of(&filter, &[1]);
        });
    }
}

#[test]
fn two_racing_inserts_into_one_line_lose_nothing() {
    for plan in shapes() {
        explore(3, move || {
            let filter = shared_lines(plan);
            let other = thread::spawn({
                let filter = filter.clone();
                move || filter.insert(digest(1))
            });
            assert!(filter.insert(digest(2)));
            assert!(filter.contains(digest(2)), "what this thread inserted, it finds");
            assert!(other.join().unwrap());
            assert_lines_of(&filter, &[1, 2]);
        });
    }
}

#[test]
fn a_copy_that_begins_after_an_insert_has_its_key_and_no_lock() {
    let [one_line, _] = shapes();
    let positions = Filter::new(one_line).unwrap().positions([1]).unwrap();
    explore(2, move || {
        let filter = shared_lines(one_line);
        let published = Arc::new(AtomicBool::new(false));
        let inserter = thread::spawn({
            let (filter, published) = (filter.clone(), published.clone());
            move || {
                filter.insert(digest(1));
                published.store(true, Ordering::Release);
                filter.insert(digest(2));
            }
        });
        if published.load(Ordering::Acquire) {
            let mut bytes = [0; 64];
            filter.copy_to(0, &mut bytes);
            let is_set = |at: u64| bytes[at as usize / 8] >> (at % 8) & 1 == 1;
            assert!(positions.iter().all(|at| is_set(*at)), "a published key is not in the copy");
            assert!(!is_set(511), "a lock is in the copy");
        }
        inserter.join().unwrap();
        assert_lines_of(&filter, &[1, 2]);
    });
}

/// A scalable filter that grows when the key is inserted: a step within its one table, or the step
/// from that to its shards.
fn about_to_grow(to_shards: bool) -> (Filter, Vec<[u8; 8]>, [u8; 8]) {
    let plan = Plan::builder(Kind::Scalable).items(1).rate(0.01).build().unwrap();
    let mut filter = Filter::new(plan).unwrap();
    let mut keys = Vec::new();
    for key in (0_u64..).map(u64::to_le_bytes) {
        let before = filter.try_clone().unwrap();
        filter.insert(key).unwrap();
        // A profile has a slice for each table at least.
        let has_shards = || filter.profile(1).len() > 1;
        if filter.bytes() != before.bytes() && keys.len() > 5 && to_shards == has_shards() {
            return (before, keys, key);
        }
        keys.push(key);
    }
    unreachable!("it grows sooner or later")
}

#[test]
fn a_query_beside_growth_finds_what_is_in() {
    for to_shards in [false, true] {
        let (filter, keys, next) = about_to_grow(to_shards);
        let keys: Vec<_> = keys.into_iter().step_by(if to_shards { 5000 } else { 3 }).collect();
        explore(2, move || {
            let filter = Arc::new(filter.try_clone().unwrap().into_shared().unwrap());
            let inserter = thread::spawn({
                let filter = filter.clone();
                move || {
                    assert!(filter.insert(next).unwrap());
                    assert!(filter.contains(next), "what this thread inserted, it finds");
                }
            });
            assert!(filter.contains(keys[0]), "denied while the filter grows");
            let mut found = Vec::new();
            filter.contains_many(&keys, &mut found);
            assert!(found.iter().all(|found| *found), "denied while the filter grows");
            inserter.join().unwrap();
            assert!(filter.contains(next));
        });
    }
}

#[test]
fn of_two_inserts_of_the_key_that_makes_it_grow_exactly_one_is_told_new() {
    for to_shards in [false, true] {
        let (filter, _, next) = about_to_grow(to_shards);
        explore(2, move || {
            let mut expected = filter.try_clone().unwrap();
            let filter = Arc::new(filter.try_clone().unwrap().into_shared().unwrap());
            let other = thread::spawn({
                let filter = filter.clone();
                move || filter.insert(next).unwrap()
            });
            let here = filter.insert(next).unwrap();
            let there = other.join().unwrap();
            assert!(here != there, "told new: {here} here, {there} there");
            let filter = Arc::try_unwrap(filter).ok().expect("the other thread has ended");
            expected.insert(next).unwrap();
            assert!(filter.into_exclusive() == expected, "not as one thread makes it");
        });
    }
}
