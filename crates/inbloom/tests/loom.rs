//! Shared filters under every interleaving of small cases, and under every order in which the
//! memory model lets relaxed operations be seen. Run with
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p inbloom --test loom --target-dir target/loom
//! ```
//!
//! Real threads on large filters are in `shared.rs`.

#![cfg(loom)]

use inbloom::{Filter, Kind, Plan, SharedFilter};
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
        Plan::new(Kind::Bitmap).universe(64).build().unwrap(),
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
    let ones = shared.ones();
    let filter = shared.into_exclusive();
    let mut expected = Filter::new(*filter.plan()).unwrap();
    for key in keys {
        expected.insert(key).unwrap();
        assert!(filter.contains(key), "an inserted key is lost");
    }
    assert!(filter == expected, "bits differ");
    assert_eq!(ones, expected.ones());
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
fn of_two_racing_inserts_once_exactly_one_is_told_new() {
    for plan in plans() {
        explore(3, move || {
            let filter = shared(plan);
            let other = thread::spawn({
                let filter = filter.clone();
                move || filter.insert_once([1]).unwrap()
            });
            let here = filter.insert_once([1]).unwrap();
            let there = other.join().unwrap();
            assert!(here != there, "told new: {here} here, {there} there");
            assert_eq!(filter.inserted(), 1);
            assert_same_as_exclusive(filter, &[[1]]);
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
    [[0], [(1..=255).find(near).expect("128 counters, four of each key")]]
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

/// And both may be: that is why there is `insert_once`, and shows that the models above get to the
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
        assert_eq!(both, plan.kind() != Kind::Bitmap, "{}: told new twice", plan.kind());
    }
}
