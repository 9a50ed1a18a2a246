use crate::digest::Hasher;
use crate::filter::{Content, Filter};
use crate::storage::Bits;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use super::*;
use crate::kinds::blocked::Blocked;
use crate::state::{Measured, Positioned};

fn plan(items: u64, rate: f64, lines: u32) -> Plan {
    Plan::builder(Kind::Blocked).items(items).rate(rate).lines(lines).build().unwrap()
}

/// One line and two; a single block, a few, and more than stay in L2 by themselves.
fn plans() -> Vec<Plan> {
    let sizes = [(10, 0.1, 1), (100, 0.01, 1), (2000, 1e-3, 1), (400_000, 1e-4, 1)];
    let two_lines = [(10, 1e-3, 2), (2000, 1e-6, 2), (200_000, 1e-7, 2)];
    let plans = sizes.into_iter().chain(two_lines);
    plans.map(|(items, rate, lines)| plan(items, rate, lines)).collect()
}

fn empty(plan: Plan) -> SharedBlocked {
    SharedBlocked::new(&Shape::new(plan).unwrap()).unwrap()
}

fn digests(numbers: Range<u64>) -> Vec<Digest> {
    numbers.map(|number| Hasher::default().digest(number.to_le_bytes())).collect()
}

fn bytes_of(filter: &SharedBlocked) -> Vec<u8> {
    let mut bytes = vec![0xff; filter.bytes() as usize];
    filter.copy_to(0, &mut bytes);
    bytes
}

/// Returns what one thread makes of the digests.
fn exclusive(plan: Plan, digests: &[Digest]) -> Blocked {
    let mut filter = Blocked::new(plan).unwrap();
    for digest in digests {
        filter.insert(*digest);
    }
    filter
}

#[track_caller]
fn assert_same_bits(shared: &SharedBlocked, exclusive: &Blocked) {
    assert!(bytes_of(shared) == exclusive.bits.cells.bytes(), "{:?}", shared.plan());
    assert_eq!(shared.occupied(), exclusive.occupied(), "{:?}", shared.plan());
    let locked =
        shared.lines().iter().filter(|line| line[7].load(Ordering::Relaxed) & RESERVED != 0);
    assert_eq!(locked.count(), 0, "lines that stay locked");
}

#[test]
fn a_filter_is_its_cells_and_forty_bytes() {
    fn sent_and_shared<T: Send + Sync>() {}
    sent_and_shared::<SharedBlocked>();
    assert!(size_of::<SharedBlocked>() <= 40, "{} bytes", size_of::<SharedBlocked>());
    let shape = Shape::new(plan(100, 0.01, 1)).unwrap();
    let filters: Vec<_> = (0..1000).map(|_| SharedBlocked::new(&shape).unwrap()).collect();
    assert_eq!(Arc::strong_count(&shape), 1001);
    assert!(filters.iter().all(|filter| filter.bytes() == shape.plan().bytes()));
    assert!(filters.iter().all(|filter| filter.words().as_ptr().addr().is_multiple_of(16)));
}

#[test]
fn bits_and_answers_are_those_of_the_exclusive_filter() {
    for plan in plans() {
        let keys = digests(0..plan.items());
        // Every key comes twice, the second time within the same batch and in a later one.
        let stream: Vec<Digest> =
            keys.chunks(50).flat_map(|keys| keys.iter().chain(keys)).copied().collect();
        let (one_by_one, at_once) = (empty(plan), empty(plan));
        let mut twin = Blocked::new(plan).unwrap();
        let expected: Vec<bool> = stream.iter().map(|digest| twin.insert(*digest)).collect();
        let told: Vec<bool> = stream.iter().map(|digest| one_by_one.insert(*digest)).collect();
        assert!(told == expected, "{plan:?}");
        assert_same_bits(&one_by_one, &twin);
        let mut new = vec![true; 3];
        for (batch, expected) in stream.chunks(1000).zip(expected.chunks(1000)) {
            at_once.insert_digests(batch, &mut new);
            assert!(new == expected, "{plan:?}");
        }
        assert_same_bits(&at_once, &twin);

        let asked = digests(0..2 * plan.items());
        let mut found = Vec::new();
        at_once.contains_digests(&asked, &mut found);
        for (digest, found) in asked.iter().zip(&found) {
            assert_eq!(at_once.contains(*digest), twin.contains(*digest), "{plan:?}");
            assert_eq!(*found, twin.contains(*digest), "{plan:?}");
        }
    }
}

/// A key that has a bit to itself is certainly new, in whatever order keys come; another one is new
/// in some orders, and once at most.
#[test]
fn profile_and_positions_are_those_of_the_exclusive_filter() {
    for plan in plans() {
        let keys = digests(0..plan.items());
        let (shared, exclusive) = (empty(plan), exclusive(plan, &keys));
        shared.insert_digests(&keys, &mut Vec::new());
        assert_eq!(shared.profile(64), exclusive.profile(64), "{plan:?}");
        for digest in digests(0..5).into_iter().chain(digests(1_000_000..1_000_050)) {
            let positions = shared.positions(digest);
            let expected = exclusive.positions(digest).unwrap();
            let expected = expected.into_iter().map(|at| (at, exclusive.is_set(at)));
            assert_eq!(positions, expected.collect::<Vec<_>>(), "{plan:?}");
            assert_eq!(positions.iter().all(|(_, set)| *set), shared.contains(digest));
        }
    }
}

#[test]
fn of_racing_inserts_exactly_one_is_told_new() {
    const THREADS: usize = 4;
    const KEYS: u64 = 40_000;
    for plan in [plan(KEYS, 0.01, 1), plan(KEYS, 1e-3, 2)] {
        let keys = digests(0..KEYS);
        let twin = exclusive(plan, &keys);
        let mut users = vec![0_u8; plan.bits() as usize];
        let positions = |key: &Digest| twin.positions(*key).unwrap();
        for position in keys.iter().flat_map(positions) {
            users[position as usize] = users[position as usize].saturating_add(1);
        }
        let certain: Vec<bool> = keys
            .iter()
            .map(|key| positions(key).iter().any(|position| users[*position as usize] == 1))
            .collect();
        let shared = empty(plan);
        let told: Vec<AtomicU64> = keys.iter().map(|_| AtomicU64::new(0)).collect();
        let start = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (shared, keys, told, start) = (&shared, &keys, &told, &start);
                scope.spawn(move || {
                    while !start.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                    // All in one order, so that they meet; each leaves out keys of its own; two
                    // work in batches.
                    let mine: Vec<usize> = (0..keys.len()).filter(|at| at % 7 != thread).collect();
                    let mut new = Vec::new();
                    for run in mine.chunks(300) {
                        let batch: Vec<Digest> = run.iter().map(|at| keys[*at]).collect();
                        if thread % 2 == 0 {
                            shared.insert_digests(&batch, &mut new);
                        } else {
                            new = batch.iter().map(|digest| shared.insert(*digest)).collect();
                        }
                        for (at, new) in run.iter().zip(&new) {
                            told[*at].fetch_add(u64::from(*new), Ordering::Relaxed);
                        }
                    }
                });
            }
            start.store(true, Ordering::Release);
        });
        let told: Vec<u64> = told.into_iter().map(AtomicU64::into_inner).collect();
        for (told, certain) in told.iter().zip(&certain) {
            assert!(*told == 1 || (*told == 0 && !certain), "told new {told} times");
        }
        let (certain, total) =
            (certain.iter().filter(|certain| **certain).count(), told.iter().sum());
        assert!((certain as u64..=KEYS).contains(&total), "{total} of {KEYS}, {certain} certain");
        assert!(certain > KEYS as usize * 9 / 10, "{certain}");
        assert_same_bits(&shared, &twin);
    }
}

#[test]
fn a_copy_taken_while_others_insert_has_every_key_inserted_before() {
    const KEYS: u64 = 60_000;
    for lines in [1, 2] {
        let plan = plan(KEYS, 1e-4, lines);
        let (keys, shared) = (digests(0..KEYS), empty(plan));
        let published = [AtomicU64::new(0), AtomicU64::new(0)];
        let mut copies = 0;
        thread::scope(|scope| {
            for (number, published) in published.iter().enumerate() {
                let (keys, shared) = (&keys, &shared);
                scope.spawn(move || {
                    for (count, key) in keys.iter().skip(number).step_by(2).enumerate() {
                        shared.insert(*key);
                        published.store(count as u64 + 1, Ordering::Release);
                    }
                });
            }
            let mut is_last = false;
            while !is_last {
                let known = [0, 1].map(|at: usize| published[at].load(Ordering::Acquire));
                is_last = known.iter().sum::<u64>() == KEYS;
                let copy = shared.snapshot(Hasher::default(), known[0] + known[1]).unwrap();
                assert!(copy.content.measured().recount().is_some(), "a lock is in the copy");
                for (number, known) in known.into_iter().enumerate() {
                    let known = keys.iter().skip(number).step_by(2).take(known as usize);
                    assert!(
                        known.into_iter().all(|key| copy.contains_digest(*key)),
                        "a key is lost"
                    );
                }
                copies += 1;
            }
        });
        println!("{copies} copies");
        assert_same_bits(&shared, &exclusive(plan, &keys));
    }
}

#[test]
fn nobody_waits_for_the_lock_of_a_line_but_who_changes_it() {
    for lines in [1, 2] {
        let filter = empty(plan(1000, 1e-3, lines));
        let keys = digests(0..101);
        let (key, others) = keys.split_first().unwrap();
        filter.insert_digests(others, &mut Vec::new());
        let geometry = &filter.shape.geometry;
        let block = [geometry.first_block(*key), geometry.second_block(*key)][lines as usize - 1];
        let before = (bytes_of(&filter), filter.occupied());
        let inserted = AtomicBool::new(false);
        let lock = Locked::new(&filter.lines()[block as usize]);
        thread::scope(|scope| {
            let inserter = scope.spawn(|| {
                let new = filter.insert(*key);
                inserted.store(true, Ordering::Release);
                new
            });
            for round in 0..20 {
                thread::sleep(Duration::from_millis(1));
                assert!(!inserted.load(Ordering::Acquire), "a locked line was changed");
                assert!(others.iter().all(|other| filter.contains(*other)));
                assert!(!filter.contains(*key));
                // What is in needs no lock.
                assert!(!filter.insert(others[round]));
                assert_eq!((bytes_of(&filter), filter.occupied()), before);
            }
            drop(lock);
            assert!(inserter.join().unwrap(), "it is new");
        });
        assert_same_bits(&filter, &exclusive(*filter.plan(), &keys));
    }
}

#[test]
fn bytes_go_from_one_filter_to_another_in_pieces_of_any_size() {
    for plan in plans().into_iter().filter(|plan| plan.bytes() < 1 << 16) {
        let keys = digests(0..plan.items());
        let from = empty(plan);
        from.insert_digests(&keys, &mut Vec::new());
        let whole = bytes_of(&from);
        for size in [1, 7, 8, 63, 64, 65, 1000, whole.len()] {
            let (to, mut copied) = (empty(plan), Vec::new());
            for at in (0..whole.len()).step_by(size) {
                let mut piece = vec![0xff; size.min(whole.len() - at)];
                from.copy_to(at as u64, &mut piece);
                to.or_from(at as u64, &piece).unwrap();
                copied.extend(piece);
            }
            assert!(copied == whole, "{plan:?} in pieces of {size}");
            assert_same_bits(&to, &exclusive(plan, &keys));
        }
        // What is loaded is added to what is there.
        let (more, to) = (digests(5..plan.items() + 5), empty(plan));
        to.insert_digests(&more, &mut Vec::new());
        to.or_from(0, &whole).unwrap();
        let union: Vec<Digest> = keys.into_iter().chain(more).collect();
        assert_same_bits(&to, &exclusive(plan, &union));
    }
}

#[test]
fn bytes_that_do_not_belong_are_refused_and_change_nothing() {
    let filter = empty(plan(100, 0.01, 1));
    assert_eq!(filter.bytes(), 128);
    let mut bytes = vec![0xff; 128];
    bytes[63] = 0x7f;
    let refusal = |at: u64, bytes: &[u8]| filter.or_from(at, bytes).unwrap_err().to_string();
    let reserved = "unused bits: expected zeros, got set bits; ";
    assert!(refusal(0, &bytes).starts_with(reserved), "{}", refusal(0, &bytes));
    assert!(refusal(127, &bytes[127..]).starts_with(reserved));
    assert!(refusal(63, &[0x80]).starts_with(reserved));
    assert_eq!(
        refusal(1, &bytes),
        "offset is 1, for 128 bytes, but must be such that they end within the filter's 128 bytes"
    );
    assert!(refusal(u64::MAX, &bytes).starts_with("offset is "));
    assert_eq!(filter.occupied(), 0, "nothing has changed");
    bytes[127] = 0x7f;
    filter.or_from(0, &bytes).unwrap();
    assert_eq!(filter.occupied(), 2 * 511);
    filter.or_from(128, &[]).unwrap();
}

#[test]
#[should_panic(expected = "a range within the filter")]
fn a_copy_from_beyond_the_end_panics() {
    empty(plan(100, 0.01, 1)).copy_to(127, &mut [0; 2]);
}

#[test]
fn a_merged_filter_has_the_bits_of_both() {
    for plan in plans() {
        let (here, there) = (digests(0..plan.items()), digests(1000..1000 + plan.items()));
        let (one, other) = (empty(plan), empty(plan));
        one.insert_digests(&here, &mut Vec::new());
        other.insert_digests(&there, &mut Vec::new());
        one.merge(&other).unwrap();
        one.merge(&one).unwrap();
        let union: Vec<Digest> = here.iter().chain(&there).copied().collect();
        assert_same_bits(&one, &exclusive(plan, &union));
        assert_same_bits(&other, &exclusive(plan, &there));
    }
    let (small, large) = (empty(plan(100, 0.01, 1)), empty(plan(1000, 0.01, 1)));
    let error = small.merge(&large).unwrap_err().to_string();
    assert_eq!(
        error,
        "the filters differ in bits: 1024 (100 keys at 1.00e-2) here, 10240 (1000 keys at 1.00e-2) there; build both from the same plan with \
         the same hash"
    );
}

#[test]
fn filters_become_shared_and_come_back_the_same() {
    for plan in plans() {
        let keys = digests(0..plan.items());
        let filter = Filter::build(plan, Hasher::xxh3(7), &keys).unwrap();
        let (copy, inserted) = (filter.clone(), filter.inserted());
        let mut shared = SharedBlocked::from_filter(filter).unwrap();
        assert_same_bits(&shared, &exclusive(plan, &keys));
        let back = shared.snapshot(Hasher::xxh3(7), inserted).unwrap();
        assert!(back == copy, "{plan:?}");
        assert_eq!((back.occupied(), back.inserted()), (copy.occupied(), inserted));
        let refused = shared.snapshot(Hasher::integers(), inserted).err().unwrap();
        assert!(matches!(refused, Error::Unsupported { kind: Kind::Blocked, .. }), "{refused}");

        let shape = Shape::new(plan).unwrap();
        shared.share_shape(&shape);
        assert!(Arc::ptr_eq(shared.shape(), &shape));
        let other = Plan::builder(Kind::Blocked).items(77).build().unwrap();
        shared.share_shape(&Shape::new(other).unwrap());
        assert!(Arc::ptr_eq(shared.shape(), &shape), "a shape of another plan is left alone");
    }
}

#[test]
fn a_filter_in_a_file_is_shared_and_the_file_stays_what_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seen.ib");
    let (plan, keys, more) = (plan(5000, 1e-3, 1), digests(0..4000), digests(4000..5000));
    let filter = Filter::build(plan, Hasher::default(), &keys).unwrap();
    filter.save(&path).unwrap();
    for mapped in [
        Filter::open(&path).unwrap(),
        crate::OpenOptions::new().writable(true).open(&path).unwrap(),
    ] {
        let shared = SharedBlocked::from_filter(mapped).unwrap();
        assert_same_bits(&shared, &exclusive(plan, &keys));
        shared.insert_digests(&more, &mut Vec::new());
        assert_same_bits(&shared, &exclusive(plan, &digests(0..5000)));
    }
    assert!(Filter::open(&path).unwrap() == filter);
}

#[test]
fn what_is_no_blocked_filter_or_has_a_lock_set_is_refused() {
    let refusal = |filter: Filter| match SharedBlocked::from_filter(filter) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("taken"),
    };
    let classic = Plan::builder(Kind::Classic).items(100).build().unwrap();
    assert_eq!(
        refusal(Filter::new(classic).unwrap()),
        "kind classic cannot be shared line by line; use kind blocked, or Filter::into_shared"
    );
    let plan = plan(100, 0.01, 1);
    let shard = plan.for_shard(1, 2).unwrap();
    assert!(refusal(Filter::new(shard).unwrap()).contains("cannot share one shard line by line"));
    let mut clears = Filter::new(plan).unwrap();
    clears.set_auto_clear(Some(0.5)).unwrap();
    assert!(refusal(clears).contains("cannot clear itself while it is shared"));

    // What an untrusted file may hold, if it is opened without verification.
    let stray = || {
        let mut bits = Bits::zeroed(plan.bytes()).unwrap();
        bits.cells.bytes_mut().unwrap()[127] = 0x80;
        Filter::from_parts(Hasher::default(), Content::with_bits(plan, bits), 0)
    };
    assert!(refusal(stray()).starts_with("unused bits: expected zeros"));
    assert!(stray().into_shared().is_err(), "it would wait for ever");
}
