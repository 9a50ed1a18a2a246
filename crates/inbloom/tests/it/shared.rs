//! One filter, many threads: nothing is lost, counts are exact, and of racing inserts of one key
//! exactly one is told "new" where that is promised. Every interleaving of small cases is in
//! `loom.rs`; here are real threads, on filters large enough for them to be at different places.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use crate::common::{key, keys, shapes, shapes_for, used_cells};
use inbloom::{Error, Filter, Kind, Plan, SharedFilter, Span, file};
use inbloom_testing::mix;
#[cfg(target_os = "linux")]
use inbloom_testing::{alone, peak_memory};

fn exclusive(plan: Plan, keys: &[[u8; 8]]) -> Filter {
    let mut filter = Filter::new(plan).unwrap();
    filter.insert_many(keys, &mut Vec::new()).unwrap();
    filter
}

/// The shared filter is, to the last bit and count, the one that a single thread would have made of
/// the same inserts, in whatever order: but for a window of several generations, which knows it.
#[track_caller]
fn assert_same_as_exclusive(shared: SharedFilter, keys: &[[u8; 8]], told_new: u64, name: &str) {
    assert_eq!(shared.inserted(), told_new, "{name}: inserts that were told new");
    let (ones, fill) = (shared.occupied(), shared.fill());
    let filter = shared.into_exclusive();
    let plan = *filter.plan();
    if !matches!(plan.span(), Some(Span::Items(_))) && !plan.kind().can_grow() {
        assert!(filter == exclusive(plan, keys), "{name}: bits differ");
    }
    if !plan.is_sparse() && !plan.kind().can_grow() {
        assert_eq!(ones, used_cells(&filter).len() as u64, "{name}: cells in use");
    }
    assert_eq!((ones, fill), (filter.occupied(), filter.fill()), "{name}");
    assert!(keys.iter().all(|key| filter.contains(key)), "{name}: a key is lost");
}

#[test]
fn a_shared_filter_can_be_sent_and_shared() {
    fn check<T: Send + Sync>() {}
    check::<SharedFilter>();
    check::<Filter>();
}

#[test]
fn what_an_inserter_has_published_is_found_by_everyone() {
    const INSERTERS: u64 = 4;
    const EACH: u64 = 10_000;
    for (name, plan) in shapes(INSERTERS * EACH) {
        let shared = Filter::new(plan).unwrap().into_shared().unwrap();
        let published: [AtomicU64; INSERTERS as usize] = Default::default();
        let (done, told_new, asked) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for inserter in 0..INSERTERS {
                let (shared, published, done, told_new) = (&shared, &published, &done, &told_new);
                scope.spawn(move || {
                    for number in 0..EACH {
                        let new = shared.insert(key(inserter * EACH + number)).unwrap();
                        told_new.fetch_add(u64::from(new), Ordering::Relaxed);
                        published[inserter as usize].store(number + 1, Ordering::Release);
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }
            for querier in 0..3_u64 {
                let (shared, published, done, asked) = (&shared, &published, &done, &asked);
                let name = &name;
                scope.spawn(move || {
                    let mut found = Vec::new();
                    for round in 0.. {
                        let last_round = done.load(Ordering::Relaxed) == INSERTERS;
                        for inserter in 0..INSERTERS {
                            let known = published[inserter as usize].load(Ordering::Acquire);
                            let first = inserter * EACH;
                            // The newest ones, and some of the older ones.
                            let mut wanted = keys(first + known.saturating_sub(20)..first + known);
                            for step in 0..known.min(20) {
                                let older = mix(querier << 40 | round << 8 | step) % known;
                                wanted.push(key(first + older));
                            }
                            for key in &wanted {
                                assert!(shared.contains(key), "{name}: a published key is denied");
                            }
                            shared.contains_many(&wanted, &mut found);
                            assert!(found.iter().all(|found| *found), "{name}: denied in a batch");
                            asked.fetch_add(wanted.len() as u64, Ordering::Relaxed);
                        }
                        if last_round {
                            break;
                        }
                    }
                });
            }
        });
        assert!(asked.into_inner() > 0);
        assert_same_as_exclusive(shared, &keys(0..INSERTERS * EACH), told_new.into_inner(), &name);
    }
}

#[test]
fn batches_from_many_threads_lose_nothing() {
    const THREADS: u64 = 6;
    // Every key four times at most.
    for (name, plan) in shapes_for(20_000, 200_000) {
        let shared = Filter::new(plan).unwrap().into_shared().unwrap();
        let told_new = AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (shared, told_new, name) = (&shared, &told_new, &name);
                scope.spawn(move || {
                    let (mut new, mut found) = (Vec::new(), Vec::new());
                    // Every key is inserted by two threads, in batches of all sizes.
                    let mut first = thread * 3000;
                    let end = first + 6000;
                    for size in [1, 127, 128, 129, 1000, 0].into_iter().cycle() {
                        let batch = keys(first..(first + size).min(end));
                        first += batch.len() as u64;
                        shared.insert_many(&batch, &mut new).unwrap();
                        assert_eq!(new.len(), batch.len());
                        let count = new.iter().filter(|new| **new).count();
                        told_new.fetch_add(count as u64, Ordering::Relaxed);
                        shared.contains_many(&batch, &mut found);
                        assert!(found.iter().all(|found| *found), "{name}: own keys are denied");
                        let digests: Vec<_> =
                            batch.iter().map(|key| shared.hasher().digest(key)).collect();
                        shared.contains_digests(&digests, &mut found);
                        assert!(found.iter().all(|found| *found), "{name}: digests are denied");
                        shared.insert_digests(&digests, &mut new).unwrap();
                        assert!(new.iter().all(|new| !new), "{name}: own keys are new again");
                        if first == end {
                            break;
                        }
                    }
                });
            }
        });
        let twice = |thread: u64| keys(thread * 3000..thread * 3000 + 6000).repeat(2);
        let inserted: Vec<[u8; 8]> = (0..THREADS).flat_map(twice).collect();
        assert_same_as_exclusive(shared, &inserted, told_new.into_inner(), &name);
    }
}

/// Threads that race.
const THREADS: u64 = 4;

/// Threads that walk over the same keys meet: whoever is behind finds the keys there, goes faster,
/// and catches up. Returns how often each key was told "new".
fn race(
    shared: &SharedFilter,
    keys: u64,
    insert: impl Fn(&SharedFilter, [u8; 8]) -> bool + Sync,
) -> Vec<u8> {
    let told: Vec<AtomicU8> = (0..keys).map(|_| AtomicU8::new(0)).collect();
    let start = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !start.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                for (number, told) in told.iter().enumerate() {
                    if insert(shared, key(number as u64)) {
                        told.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        start.store(true, Ordering::Release);
    });
    told.into_iter().map(AtomicU8::into_inner).collect()
}

/// Filters in which none of so many keys is claimed before it is inserted.
fn racing_plans(keys: u64) -> Vec<Plan> {
    let low = |kind: Kind| Plan::builder(kind).items(keys).rate(1e-11);
    vec![
        Plan::builder(Kind::Bitmap).universe(crate::common::UNIVERSE).build().unwrap(),
        low(Kind::Classic).build().unwrap(),
        low(Kind::Blocked).lines(1).build().unwrap(),
        low(Kind::Blocked).lines(2).build().unwrap(),
        low(Kind::Counting).build().unwrap(),
        // Room for what every thread inserts: a key that comes again in a later step counts again.
        low(Kind::Cuckoo).items(2 * THREADS * keys).build().unwrap(),
        Plan::builder(Kind::Window).last(THREADS * keys).rate(1e-11).build().unwrap(),
    ]
}

#[test]
fn of_racing_inserts_if_absent_exactly_one_is_told_new_and_inserts() {
    const KEYS: u64 = 100_000;
    // Losers take no room: this one is not planned for them.
    let cuckoo = Plan::builder(Kind::Cuckoo).items(KEYS).rate(1e-11).build().unwrap();
    let scalable = Plan::builder(Kind::Scalable).rate(1e-11).build().unwrap();
    for plan in racing_plans(KEYS).into_iter().chain([cuckoo, scalable]) {
        let shared = Filter::new(plan).unwrap().into_shared().unwrap();
        let told = race(&shared, KEYS, |shared, key| shared.insert_if_absent(key).unwrap());
        let wrong = told.iter().filter(|told| **told != 1).count();
        assert_eq!(wrong, 0, "{plan:?}: keys that were told new by none or by several");
        assert!((0..KEYS).all(|number| shared.count(key(number)) == 1), "{plan:?}: copies");
        assert_same_as_exclusive(shared, &keys(0..KEYS), KEYS, plan.kind().name());
    }
}

#[test]
fn a_snapshot_is_the_filter_and_can_be_saved_while_others_insert() {
    const KEYS: u64 = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared.ib");
    for (name, plan) in shapes_for(2 * KEYS, 2 * KEYS) {
        let mut filter = exclusive(plan, &keys(0..KEYS));
        filter.set_note("a note").unwrap();
        let copy = filter.clone();
        let shared = filter.into_shared().unwrap();
        let snapshot = shared.snapshot().unwrap();
        assert!(snapshot == copy, "{name}");
        assert_eq!(
            (snapshot.occupied(), snapshot.inserted()),
            (copy.occupied(), copy.inserted()),
            "{name}"
        );
        assert_eq!(snapshot.note(), "a note");
        thread::scope(|scope| {
            scope.spawn(|| shared.insert_many(&keys(KEYS..2 * KEYS), &mut Vec::new()).unwrap());
            for _ in 0..3 {
                shared.save(&path).unwrap();
                file::verify(&path).unwrap();
                let saved = Filter::open(&path).unwrap();
                let found = |key: &[u8; 8]| saved.contains(key);
                let lost = keys(0..KEYS).iter().filter(|key| !found(key)).count();
                // A window of keys may have forgotten some by then.
                let is_window = plan.kind() == Kind::Window;
                assert!(lost == 0 || is_window, "{name}: {lost} keys are not in the file");
            }
        });
    }
}

#[test]
fn a_cleared_filter_is_as_a_new_one() {
    for (name, plan) in shapes_for(2_000, 40_000) {
        let shared = exclusive(plan, &keys(0..20_000)).into_shared().unwrap();
        shared.clear().unwrap();
        assert_eq!((shared.occupied(), shared.inserted(), shared.rate()), (0, 0, 0.0), "{name}");
        assert_eq!(shared.estimated_items().items, 0.0, "{name}");
        assert!(!keys(0..20_000).iter().any(|key| shared.contains(key)), "{name}");
        shared.insert_many(&keys(100..200), &mut Vec::new()).unwrap();
        assert_same_as_exclusive(shared, &keys(100..200), 100, &name);
    }
}

#[test]
fn what_is_inserted_after_a_clear_returned_is_found_whatever_others_do() {
    for (name, plan) in shapes_for(20_000, 200_000) {
        let shared = Filter::new(plan).unwrap().into_shared().unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in (0..20_000).cycle() {
                    shared.insert_if_absent(key(number)).unwrap();
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            for round in 0..50 {
                shared.clear().unwrap();
                let own = keys(30_000 + round * 10..30_010 + round * 10);
                shared.insert_many(&own, &mut Vec::new()).unwrap();
                assert!(own.iter().all(|key| shared.contains(key)), "{name}: round {round}");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let copy = shared.snapshot().unwrap();
        assert_eq!(shared.occupied(), copy.occupied(), "{name}: cells in use");
    }
}

#[test]
fn debug_output_names_the_plan_and_the_counts() {
    let plan = Plan::builder(Kind::Blocked).items(100).build().unwrap();
    let shared = exclusive(plan, &keys(0..3)).into_shared().unwrap();
    let text = format!("{shared:?}");
    assert!(
        text.starts_with("SharedFilter { plan: Plan") && text.contains("inserted: 3"),
        "{text}"
    );
}

#[test]
fn of_racing_plain_inserts_at_least_one_is_told_new() {
    const KEYS: u64 = 100_000;
    for plan in racing_plans(KEYS) {
        let shared = Filter::new(plan).unwrap().into_shared().unwrap();
        let told = race(&shared, KEYS, |shared, key| shared.insert(key).unwrap());
        let none = told.iter().filter(|told| **told == 0).count();
        let several = told.iter().filter(|told| **told > 1).count();
        assert_eq!(none, 0, "{plan:?}: keys that nobody was told to be new");
        if !matches!(plan.kind(), Kind::Classic | Kind::Counting) {
            assert_eq!(several, 0, "one word or one lock, one winner");
        }
        println!("{}: {several} of {KEYS} keys told new to several threads", plan.kind());
        let total = told.iter().map(|told| u64::from(*told)).sum();
        let all = keys(0..KEYS).repeat(THREADS as usize);
        assert_same_as_exclusive(shared, &all, total, plan.kind().name());
    }
}

#[test]
fn a_filter_comes_back_from_sharing_as_it_went() {
    for (name, plan) in shapes(1000) {
        let mut filter = exclusive(plan, &keys(0..500));
        filter.set_note("a note").unwrap();
        filter.set_normalization("lower case").unwrap();
        let copy = filter.clone();
        let shared = filter.into_shared().unwrap();
        assert_eq!(shared.plan(), copy.plan());
        assert_eq!(shared.hasher(), copy.hasher());
        assert_eq!(
            (shared.occupied(), shared.inserted()),
            (copy.occupied(), copy.inserted()),
            "{name}"
        );
        assert_eq!(shared.estimated_items(), copy.estimated_items(), "{name}");
        assert_eq!(shared.rate(), copy.rate(), "{name}");
        let back = shared.into_exclusive();
        assert!(back == copy, "{name}");
        assert_eq!(
            (back.occupied(), back.inserted()),
            (copy.occupied(), copy.inserted()),
            "{name}"
        );
        assert_eq!((back.note(), back.normalization()), ("a note", "lower case"));
    }
}

#[test]
fn what_cannot_be_shared_says_so() {
    let refusal = |filter: Filter| filter.into_shared().expect_err("a refusal").to_string();
    let plan = Plan::builder(Kind::Blocked).items(10).build().unwrap();
    let mut filter = Filter::sharded(plan, 2).unwrap();
    filter.set_auto_clear(Some(0.5)).unwrap();
    assert_eq!(
        refusal(filter),
        "kind blocked cannot clear itself while it is shared; switch auto-clear off, or keep the filter behind a lock"
    );
}

/// A small filter of each content that can clear itself, above three tenths.
fn clearing() -> impl Iterator<Item = Filter> {
    let kinds = [Kind::Bitmap, Kind::Blocked, Kind::Classic, Kind::Counting, Kind::Cuckoo];
    kinds.into_iter().map(|kind| {
        let plan = match kind {
            Kind::Bitmap => Plan::builder(kind).universe(1 << 10).build(),
            _ => Plan::builder(kind).items(200).build(),
        };
        let mut filter = Filter::new(plan.unwrap()).unwrap();
        filter.set_auto_clear(Some(0.3)).unwrap();
        filter
    })
}

/// Keys that come in this order: spread, each for the first time until all 1024 have come.
fn spread(number: u64) -> u64 {
    number.wrapping_mul(389) % 1024
}

#[test]
fn a_shared_filter_clears_itself_when_one_thread_alone_would() {
    for filter in clearing() {
        let name = filter.plan().kind();
        let (one_by_one, at_once) = (filter.clone(), filter.clone());
        let [one_by_one, at_once, if_absent] =
            [one_by_one, at_once, filter.clone()].map(|filter| filter.into_shared().unwrap());
        let (mut alone, mut alone_if_absent) = (filter.clone(), filter);
        let keys: Vec<u64> = (0..900).map(spread).collect();
        let expected: Vec<bool> = keys.iter().map(|key| alone.insert(key).unwrap()).collect();
        assert!(alone.inserted() < 600, "{name} never cleared itself");
        let answers: Vec<bool> = keys.iter().map(|key| one_by_one.insert(key).unwrap()).collect();
        assert_eq!(answers, expected, "{name}");
        let mut answers = Vec::new();
        at_once.insert_many(&keys, &mut answers).unwrap();
        assert_eq!(answers, expected, "{name}");
        for key in &keys {
            let expected = alone_if_absent.insert_if_absent(key).unwrap();
            assert_eq!(if_absent.insert_if_absent(key).unwrap(), expected, "{name}");
        }
        for shared in [one_by_one, at_once] {
            assert_eq!(shared.snapshot().unwrap().auto_clear(), Some(0.3));
            let back = shared.into_exclusive();
            assert!(back == alone, "{name}");
            assert_eq!(
                (back.occupied(), back.inserted(), back.auto_clear()),
                (alone.occupied(), alone.inserted(), Some(0.3)),
                "{name}"
            );
        }
        assert!(if_absent.into_exclusive() == alone_if_absent, "{name}");
    }
}

/// In each phase the filter is too full when all threads insert one key each at once. Whoever comes
/// first clears it; so all keys of the phase come after the clear, and are there at its end.
#[test]
fn no_key_is_lost_that_comes_while_another_thread_clears() {
    const THREADS: u64 = 4;
    const PHASES: u64 = 300;
    for filter in clearing() {
        let name = filter.plan().kind();
        let shared = filter.into_shared().unwrap();
        let barrier = Barrier::new(THREADS as usize);
        let lost = AtomicUsize::new(0);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (shared, barrier, lost) = (&shared, &barrier, &lost);
                scope.spawn(move || {
                    for phase in 0..PHASES {
                        if thread == 0 {
                            let mut others = (0..1000).map(|number| spread(number + phase));
                            while shared.fill() <= 0.3 {
                                shared.insert(others.next().unwrap()).unwrap();
                            }
                        }
                        barrier.wait();
                        let key = 1000 + thread;
                        let inserted = match phase % 2 {
                            0 => shared.insert(key).map(drop),
                            _ => shared.insert_many(&[key], &mut Vec::new()),
                        };
                        inserted.unwrap();
                        barrier.wait();
                        if !shared.contains(key) {
                            lost.fetch_add(1, Ordering::Relaxed);
                        }
                        barrier.wait();
                    }
                });
            }
        });
        assert_eq!(lost.into_inner(), 0, "{name}");
    }
}

/// Every thread inserts and removes keys of its own, in filters in which they share counters,
/// buckets and words, while others ask for keys that stay.
#[test]
fn removals_by_many_threads_take_nothing_but_their_own() {
    const EACH: u64 = 3000;
    const STAY: u64 = 4000;
    for (name, plan) in shapes_for(8000, 24_000) {
        if !plan.kind().can_remove() {
            continue;
        }
        let filter = exclusive(plan, &keys(0..STAY));
        let before = filter.inserted();
        let shared = filter.into_shared().unwrap();
        let done = AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (shared, done, name) = (&shared, &done, &name);
                scope.spawn(move || {
                    let first = STAY + thread * EACH;
                    for round in 0..4 {
                        for key in keys(first..first + EACH) {
                            shared.insert(key).unwrap();
                        }
                        let mut found = Vec::new();
                        shared.contains_many(&keys(first..first + EACH), &mut found);
                        assert!(found.iter().all(|found| *found), "{name}: own keys are denied");
                        // In the last round a third of them stays.
                        let stay = if round == 3 { EACH / 3 } else { 0 };
                        for key in keys(first + stay..first + EACH) {
                            assert!(shared.remove(key).unwrap(), "{name}: own keys are not in");
                        }
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }
            let (shared, done, name) = (&shared, &done, &name);
            scope.spawn(move || {
                let (stay, mut found) = (keys(0..STAY), Vec::new());
                loop {
                    let last_round = done.load(Ordering::Relaxed) == THREADS;
                    shared.contains_many(&stay, &mut found);
                    assert!(found.iter().all(|found| *found), "{name}: a key that stays is denied");
                    if last_round {
                        break;
                    }
                }
            });
        });
        let kept = |thread| keys(STAY + thread * EACH..STAY + thread * EACH + EACH / 3);
        let mut all = keys(0..STAY);
        all.extend((0..THREADS).flat_map(kept));
        assert!(all.iter().all(|key| shared.contains(key)), "{name}: a key is lost");
        assert!(shared.inserted() >= before, "{name}: {} inserted", shared.inserted());
        let (ones, filter) = (shared.occupied(), shared.into_exclusive());
        if !plan.is_sparse() {
            assert_eq!(ones, used_cells(&filter).len() as u64, "{name}: cells in use");
        }
        // Counters that have been at their maximum stay there; two or three bits are soon.
        let exact = plan.kind() != Kind::Counting || plan.width() > 3;
        assert!(filter == exclusive(plan, &all) || !exact, "{name}: other than without them");
    }
}

/// Behind its lock, a cuckoo filter refuses what one thread alone would be refused.
#[test]
fn a_cuckoo_filter_fills_up_under_many_threads_and_loses_nothing() {
    for (name, plan) in crate::common::cuckoos(4000) {
        let shared = Filter::new(plan).unwrap().into_shared().unwrap();
        let taken: Vec<AtomicBool> = (0..8000).map(|_| AtomicBool::new(false)).collect();
        thread::scope(|scope| {
            for thread in 0..THREADS as usize {
                let (shared, taken, name) = (&shared, &taken, &name);
                scope.spawn(move || {
                    for (number, taken) in taken.iter().enumerate().skip(thread).step_by(4) {
                        match shared.insert(key(number as u64)) {
                            Ok(_) => taken.store(true, Ordering::Relaxed),
                            Err(Error::Full { planned, .. }) => assert_eq!(planned, 4000),
                            Err(error) => panic!("{name}: {error}"),
                        }
                    }
                });
            }
        });
        let taken = taken.into_iter().map(AtomicBool::into_inner);
        let taken: Vec<[u8; 8]> = keys(0..8000)
            .into_iter()
            .zip(taken)
            .filter(|(_, taken)| *taken)
            .map(|(k, _)| k)
            .collect();
        assert!(taken.len() >= 4000, "{name}: {} keys taken", taken.len());
        let filter = shared.into_exclusive();
        assert_eq!(filter.occupied(), taken.len() as u64, "{name}");
        assert!(taken.iter().all(|key| filter.contains(key)), "{name}: a key is lost");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn sharing_and_taking_back_copies_nothing() {
    alone(|| {
        const SIZE: u64 = 256 << 20;
        let plan = Plan::builder(Kind::Blocked).bytes(SIZE).build().unwrap();
        let mut filter = Filter::new(plan).unwrap();
        // Touches every page: 65,536 of them, or 128 huge ones.
        for first in (0..2_000_000_u64).step_by(1000) {
            let keys: Vec<[u8; 8]> = (first..first + 1000).map(u64::to_le_bytes).collect();
            filter.insert_many(&keys, &mut Vec::new()).unwrap();
        }
        let before = peak_memory();
        assert!(before >= SIZE * 9 / 10, "the filter is resident: {before}");
        let shared = filter.into_shared().unwrap();
        assert!(shared.contains(7_u64.to_le_bytes()));
        let filter = shared.into_exclusive();
        assert!(filter.contains(7_u64.to_le_bytes()));
        let more = peak_memory() - before;
        assert!(more < SIZE / 2, "{more} bytes more than before sharing");
    });
}

/// A key that was taken for others when it came is not counted, but removed like them.
#[test]
fn a_shared_filter_that_was_filled_and_emptied_counts_no_keys() {
    for kind in [Kind::Counting, Kind::Cuckoo] {
        let plan = Plan::builder(kind).items(4000).rate(0.1).build().unwrap();
        let shared = Filter::new(plan).unwrap().into_shared().unwrap();
        for number in 0..4000 {
            shared.insert(key(number)).unwrap();
        }
        for number in 0..4000 {
            assert!(shared.remove(key(number)).unwrap());
        }
        assert!(shared.inserted() < 400, "{kind}: {}", shared.inserted());
        let mut filter = shared.into_exclusive();
        assert!(filter.insert(key(0)).unwrap() && filter.occupied() > 0);
    }
}
