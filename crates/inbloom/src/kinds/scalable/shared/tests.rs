use crate::digest::Hasher;
use crate::filter::Filter;
use crate::kind::Kind;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::kinds::scalable::table::Claim;
use crate::state::Measured;

const GROWING: Plan =
    Plan { items: 100, rate: 0.01, growth: 2, tightening: 0.8, ..Plan::blank(Kind::Scalable) };
/// Keys of queries start here, and those that are inserted end before.
const FOREIGN: u64 = 1 << 40;
const THREADS: u64 = 4;

fn digest(key: u64) -> Digest {
    Hasher::default().digest(key.to_le_bytes())
}

fn digests(keys: std::ops::Range<u64>) -> Vec<Digest> {
    keys.map(digest).collect()
}

fn grown(plan: Plan, keys: u64) -> SharedScalable {
    let shared = SharedScalable::new(plan).unwrap();
    shared.insert_digests(&digests(0..keys), &mut Vec::new()).unwrap();
    shared
}

fn snapshot(shared: &SharedScalable) -> Scalable {
    *(shared.snapshot(Hasher::default()).unwrap().content.into_state() as Box<dyn Any>)
        .downcast()
        .unwrap()
}

#[track_caller]
fn assert_same(shared: &SharedScalable, exclusive: &Scalable) {
    let copy = snapshot(shared);
    assert!(copy.payload() == exclusive.payload(), "bytes differ");
    assert!(copy.recount().is_some());
    assert_eq!(shared.len(), exclusive.len());
    assert_eq!(shared.bytes(), exclusive.bytes);
    assert_eq!(shared.rate(), exclusive.rate());
    assert_eq!(shared.expansions(), exclusive.expansions());
    assert_eq!((shared.occupied(), shared.fill()), (exclusive.occupied(), exclusive.fill()));
}

#[test]
fn one_thread_makes_the_bytes_and_gets_the_answers_of_the_exclusive_filter() {
    for plan in [
        GROWING,
        Plan { items: 1, rate: 1e-3, ..GROWING },
        Plan { items: 1, rate: 0.5, growth: 8, ..GROWING },
        Plan { items: 50_000, rate: 1e-6, ..GROWING },
    ] {
        let shared = SharedScalable::new(plan).unwrap();
        let mut exclusive = Scalable::new(plan).unwrap();
        let (mut new, mut expected) = (Vec::new(), Vec::new());
        let mut first = 0;
        for size in [1, 50, 127, 128, 129, 3000, 10_000, 40_000, 150_000] {
            // A third of each batch is there already, and some are in it twice.
            let mut batch = digests(first - first.min(size / 3)..first + size);
            batch.extend(digests(first..first + size / 5));
            first += size;
            shared.insert_digests(&batch, &mut new).unwrap();
            exclusive.insert_digests(&batch, &mut expected).unwrap();
            assert_eq!(new, expected);
            let alone = digest(first);
            assert_eq!(shared.insert(alone).unwrap(), exclusive.insert(alone).unwrap());
            assert_same(&shared, &exclusive);
            let queries = [batch, digests(FOREIGN..FOREIGN + 20_000)].concat();
            shared.contains_digests(&queries, &mut new);
            exclusive.contains_digests(&queries, &mut expected);
            assert_eq!(new, expected);
            assert!(queries.iter().zip(expected.iter()).all(|(d, is)| shared.contains(*d) == *is));
        }
        assert!(shared.divided.get().is_some());
    }
}

/// Counts a thread that has ended, also if it has panicked: else the others would wait forever.
struct Ended<'a>(&'a AtomicU64);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// Inserts as many keys as there are threads times `each`, half of them in batches, and publishes
/// how many each thread has done, while `query` is called over and over in two more with these
/// numbers.
fn insert_and_query(
    shared: &SharedScalable,
    each: u64,
    query: impl Fn(&mut dyn FnMut(u64) -> u64) + Sync,
) {
    let done: [AtomicU64; THREADS as usize] = Default::default();
    let finished = AtomicU64::new(0);
    thread::scope(|scope| {
        for inserter in 0..THREADS {
            let (done, finished) = (&done[inserter as usize], &finished);
            scope.spawn(move || {
                let _ended = Ended(finished);
                let mut new = Vec::new();
                let mut next = 0;
                while next < each {
                    let now = if inserter % 2 == 0 { 1 } else { (each - next).min(300) };
                    let first = inserter * each + next;
                    match now {
                        1 => drop(shared.insert(digest(first)).unwrap()),
                        _ => shared.insert_digests(&digests(first..first + now), &mut new).unwrap(),
                    }
                    next += now;
                    done.store(next, Ordering::Release);
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let last = finished.load(Ordering::Acquire) == THREADS;
                    query(&mut |inserter| done[inserter as usize].load(Ordering::Acquire));
                    if last {
                        break;
                    }
                }
            });
        }
    });
}

#[test]
fn nothing_published_is_denied_while_it_grows_from_a_hundred_to_a_million() {
    const EACH: u64 = 250_000;
    let shared = SharedScalable::new(GROWING).unwrap();
    let rounds = AtomicU64::new(0);
    insert_and_query(&shared, EACH, |done| {
        let round = rounds.fetch_add(1, Ordering::Relaxed);
        let mut found = Vec::new();
        for inserter in 0..THREADS {
            let known = done(inserter);
            // The newest, and older ones of everywhere.
            let newest = known.saturating_sub(100)..known;
            let older = (0..400.min(known)).map(|i| (i * 7919 + round * 104_729) % known);
            let wanted: Vec<Digest> =
                newest.chain(older).map(|key| digest(inserter * EACH + key)).collect();
            shared.contains_digests(&wanted, &mut found);
            assert!(found.iter().all(|found| *found), "denied in a batch");
            assert!(wanted.iter().all(|digest| shared.contains(*digest)), "denied alone");
        }
    });
    let copy = snapshot(&shared);
    assert!((0..THREADS * EACH).all(|key| copy.contains(digest(key))));
    assert!(copy.recount().is_some() && copy.rate() <= 0.01);
    assert_eq!((copy.len(), copy.bytes), (shared.len(), shared.bytes()));
    assert!(shared.expansions() >= 12 && shared.len() > THREADS * EACH * 98 / 100);
}

#[test]
fn a_snapshot_taken_during_inserts_has_all_that_was_published_before() {
    const EACH: u64 = 30_000;
    let shared = SharedScalable::new(GROWING).unwrap();
    let (small, divided) = (AtomicU64::new(0), AtomicU64::new(0));
    insert_and_query(&shared, EACH, |done| {
        let known: Vec<u64> = (0..THREADS).map(done).collect();
        let before = shared.len();
        let copy = snapshot(&shared);
        for (inserter, known) in known.iter().enumerate() {
            let first = inserter as u64 * EACH;
            assert!((first..first + known).all(|key| copy.contains(digest(key))), "lost");
        }
        assert!(copy.recount().is_some());
        assert!((before..=shared.len()).contains(&copy.len()), "{before}, {}", copy.len());
        let count = if copy.tables.len() == 1 { &small } else { &divided };
        count.fetch_add(1, Ordering::Relaxed);
    });
    assert!(divided.into_inner() > 0, "{small:?} of a small one");
}

#[test]
fn of_racing_inserts_of_one_key_exactly_one_is_told_new() {
    const KEYS: u64 = 60_000;
    let shared = SharedScalable::new(GROWING).unwrap();
    let told: Vec<AtomicU8> = (0..KEYS).map(|_| AtomicU8::new(0)).collect();
    // Whoever is behind finds the keys there, goes faster, and catches up.
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (shared, told) = (&shared, &told);
            scope.spawn(move || {
                let mut new = Vec::new();
                for first in (0..KEYS).step_by(100) {
                    // Every key of a batch twice.
                    let keys = (0..200).map(|i| first + i % 100);
                    if thread % 2 == 0 {
                        let batch: Vec<Digest> = keys.clone().map(digest).collect();
                        shared.insert_digests(&batch, &mut new).unwrap();
                        assert!(new[100..].iter().all(|new| !new), "a duplicate told new");
                    } else {
                        new.clear();
                        new.extend(keys.clone().map(|key| shared.insert(digest(key)).unwrap()));
                    }
                    for (key, new) in keys.zip(&new) {
                        told[key as usize].fetch_add(u8::from(*new), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let told: Vec<u8> = told.into_iter().map(AtomicU8::into_inner).collect();
    assert!(told.iter().all(|told| *told <= 1), "told new twice");
    let all: u64 = told.iter().map(|told| u64::from(*told)).sum();
    assert_eq!(shared.len(), all);
    // Nobody is told so of a key that was claimed by chance.
    assert!(all > KEYS * 99 / 100, "{all} of {KEYS}");
}

#[test]
fn a_limit_refuses_growth_and_loses_nothing() {
    for keys in [2000, 100_000] {
        let shared = grown(GROWING, keys);
        let limit = shared.bytes() + shared.bytes() / 20;
        shared.set_limit(limit);
        let more = digests(keys..3 * keys);
        let (mut new, mut rest) = (Vec::new(), Vec::new());
        let error = shared.insert_digests(&more, &mut new).unwrap_err();
        let Error::Memory { bytes, cause } = &error else { panic!("{error}") };
        let in_use = shared.bytes();
        assert!(in_use <= limit && in_use + bytes > limit, "{in_use} + {bytes}, {limit}");
        let expected = format!("the limit is {limit} bytes, and {in_use} are in use");
        assert_eq!(cause.to_string(), expected);
        // The answers are those of the keys before the one that was refused.
        let before = keys + new.len() as u64;
        let (refused, len) = (digest(before), shared.len());
        assert!(new.len() < more.len() && !shared.contains(refused));
        assert!(shared.insert(refused).is_err());
        assert_eq!((shared.len(), shared.bytes()), (len, in_use));
        assert!((0..before).all(|key| shared.contains(digest(key))));
        // Keys that find room are taken.
        let taken = (FOREIGN..FOREIGN + 500).filter(|key| shared.insert(digest(*key)).is_ok());
        assert!(taken.count() > 0);
        assert!(shared.bytes() <= limit);
        // And with more memory it goes on where it stopped.
        shared.set_limit(u64::MAX);
        shared.insert_digests(&more[new.len()..], &mut rest).unwrap();
        assert!((0..3 * keys).all(|key| shared.contains(digest(key))));
        let copy = snapshot(&shared);
        assert!(copy.recount().is_some());
        assert_eq!(copy.bytes, shared.bytes());
    }
}

#[test]
fn a_limit_holds_at_every_moment_for_racing_growths() {
    let shared = grown(GROWING, 20_000);
    let limit = shared.bytes() * 3;
    shared.set_limit(limit);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let inserters = [0, 1, 2].map(|inserter| {
            let shared = &shared;
            scope.spawn(move || {
                let keys = (1 + inserter) << 32..;
                keys.take_while(|key| shared.insert(digest(*key)).is_ok()).count()
            })
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert!(shared.bytes() <= limit);
                thread::yield_now();
            }
        });
        let kept = inserters.map(|inserter| inserter.join());
        is_over.store(true, Ordering::Relaxed);
        for (inserter, kept) in (0..).zip(kept) {
            let (first, kept): (u64, u64) = ((1 + inserter) << 32, kept.unwrap() as u64);
            assert!((first..first + kept).all(|key| shared.contains(digest(key))));
        }
    });
    assert_eq!(snapshot(&shared).bytes, shared.bytes());
}

#[test]
fn a_fixed_filter_is_full_at_the_same_key_as_the_exclusive_one() {
    for items in [100, 30_000] {
        let plan = Plan { items, growth: 0, ..GROWING };
        let shared = SharedScalable::new(plan).unwrap();
        let mut exclusive = Scalable::new(plan).unwrap();
        let more = digests(0..items * 2);
        let (mut new, mut expected) = (Vec::new(), Vec::new());
        let error = shared.insert_digests(&more, &mut new).unwrap_err();
        let other = exclusive.insert_digests(&more, &mut expected).unwrap_err();
        assert_eq!((new, error.to_string()), (expected, other.to_string()));
        assert_same(&shared, &exclusive);
    }
}

/// A plan puts that off until there are 10^9 keys. This one was for a higher rate.
#[test]
fn lanes_become_wider_before_the_rate_is_spent() {
    let mut exclusive = Scalable::new(GROWING).unwrap();
    exclusive.insert_digests(&digests(0..20_000), &mut Vec::new()).unwrap();
    exclusive.plan.rate = 0.002;
    let shared = SharedScalable::from_scalable(exclusive.duplicate().unwrap());
    for digest in digests(20_000..200_000) {
        assert_eq!(shared.insert(digest).unwrap(), exclusive.insert(digest).unwrap());
    }
    assert!(exclusive.tables.iter().all(|table| table.slots().is_wide));
    assert!(exclusive.rate() <= 0.002, "{}", exclusive.rate());
    assert!(digests(0..200_000).into_iter().all(|digest| exclusive.contains(digest)));
    assert_same(&shared, &exclusive);
    assert_readable(&shared);
}

#[test]
fn a_filter_goes_in_and_comes_out_as_it_was() {
    for keys in [0, 1000, 50_000] {
        let mut filter = Filter::new(GROWING).unwrap();
        filter.insert_digests(&digests(0..keys), &mut Vec::new()).unwrap();
        let mut bytes = Vec::new();
        filter.write_to(&mut bytes).unwrap();
        let back = |filter: Filter| {
            let shared = SharedScalable::from_filter(filter).unwrap();
            shared.into_filter(Hasher::default()).unwrap()
        };
        let same = back(filter.clone());
        assert!(same == filter && same.inserted() == filter.inserted());
        // What is read-only is copied, and can be changed then.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("filter.ib");
        filter.save(&path).unwrap();
        let shared = SharedScalable::from_filter(Filter::open(&path).unwrap()).unwrap();
        shared.insert_digests(&digests(keys..3 * keys + 1), &mut Vec::new()).unwrap();
        filter.insert_digests(&digests(keys..3 * keys + 1), &mut Vec::new()).unwrap();
        assert!(shared.snapshot(Hasher::default()).unwrap() == filter);
        assert!(shared.snapshot(Hasher::integers()).is_err());
    }
    let blocked = Filter::new(Plan::builder(Kind::Blocked).items(100).build().unwrap()).unwrap();
    let error = SharedScalable::from_filter(blocked).err().unwrap();
    assert!(matches!(error, Error::Unsupported { kind: Kind::Blocked, .. }));
}

/// The rule of the locks. A growth, or a copy, reads its table for long, and an insert waits for
/// it: a query must not wait behind that.
#[test]
fn a_query_passes_a_growth_and_the_insert_that_waits_for_it() {
    for keys in [1000, 50_000] {
        let shared = grown(GROWING, keys);
        let number = route(digest(0));
        let foreign = (FOREIGN..).map(digest).find(|digest| {
            route(*digest) == number && !shared.contains(*digest) // The same shard.
        });
        let foreign = foreign.unwrap();
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            let (guarded, writer) = shared.writer(number);
            let table = unpoisoned(guarded.table.read());
            let inserter = scope.spawn(|| shared.insert(foreign).unwrap());
            thread::sleep(Duration::from_millis(50)); // Now it waits, most probably.
            scope.spawn(|| {
                let mut found = Vec::new();
                shared.contains_digests(&[digest(0), foreign], &mut found);
                tell.send((shared.contains(digest(0)), found)).unwrap();
            });
            let answer = told.recv_timeout(Duration::from_secs(60));
            assert!(!inserter.is_finished());
            drop((table, writer));
            assert_eq!(answer.expect("no answer while a table grows"), (true, vec![true, false]));
            assert!(inserter.join().unwrap());
        });
    }
}

/// A stranger's header may say that a table is for more items than it ever had room for.
#[test]
fn clear_leaves_tables_that_can_be() {
    for (buckets, items) in [(1, 7000), (1, 100), (1, 1 << 40), (900, 100)] {
        let plan = Plan { items, ..GROWING };
        let slots = SlotShape { is_wide: true, planes: 0, is_tagged: true };
        let table = Table::new(slots, buckets, Cells::zeroed).unwrap();
        let shared = SharedScalable::from_scalable(Scalable::of(plan, vec![table], 0));
        shared.clear().unwrap();
        shared.insert_digests(&digests(0..3000), &mut Vec::new()).unwrap();
        assert!((0..3000).all(|key| shared.contains(digest(key))));
        assert_readable(&shared);
    }
}

#[track_caller]
fn assert_readable(shared: &SharedScalable) {
    let bytes = snapshot(shared).payload().into_owned();
    let mut cells = Cells::zeroed(bytes.len() as u64).unwrap();
    cells.bytes_mut().unwrap().copy_from_slice(&bytes);
    let read = Scalable::from_cells(shared.plan, cells).unwrap();
    assert!(read.recount().is_some());
}

/// A merge has left tables with fewer planes than the plan says, and some are smaller than it says.
#[test]
fn clear_leaves_all_tables_with_as_many_planes() {
    let mut filter = Scalable::new(Plan { rate: 2e-4, ..GROWING }).unwrap();
    filter.insert_digests(&digests(0..40_000), &mut Vec::new()).unwrap();
    let mut coarse = Scalable::new(Plan { rate: 1e-3, ..GROWING }).unwrap();
    coarse.insert(digest(0)).unwrap();
    filter.unite(&coarse).unwrap();
    let sizes: Vec<u64> = filter.shards().map(|shard| shard.buckets).collect();
    let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
    // More than the smallest shard has room for, and less than the largest has.
    let plan = Plan { items: (least + most) / 2 * SHARDS as u64 * 36 / 5, ..*filter.plan() };
    let (first, each) = first_tables(&plan).unwrap();
    assert!((least + 1..=*most).contains(&each[0]) && first != filter.tables[0].slots());
    let before = filter.shards().map(|shard| shard.print_bits).next().unwrap();
    let tables = filter.payload().into_owned();
    let mut cells = Cells::zeroed(tables.len() as u64).unwrap();
    cells.bytes_mut().unwrap().copy_from_slice(&tables);
    let shared = SharedScalable::from_scalable(Scalable::from_cells(plan, cells).unwrap());
    shared.clear().unwrap();
    assert!(shared.look(ShardDetails::new).iter().all(|shard| shard.print_bits == before));
    assert_readable(&shared);
}

#[test]
fn entries_that_double_with_their_table_do_not_make_it_grow_without_end() {
    let slots = SlotShape { is_wide: true, planes: 0, is_tagged: false };
    let table = |_| {
        let mut table = Table::new(slots, 1, Cells::zeroed).unwrap();
        for head in 0..8 {
            let claim = Claim { tag: 0, head, extra: 0, address: 0, known: 0 };
            assert!(table.absorb(claim));
        }
        table
    };
    let hostile = Scalable::of(GROWING, (0..SHARDS).map(table).collect(), 1);
    let shared = SharedScalable::from_scalable(hostile);
    let refused = (0..2000).filter(|key| shared.insert(digest(*key)).is_err()).count();
    assert!(refused > 0 && shared.bytes() < 1 << 20, "{} bytes", shared.bytes());
}

/// Growth that has failed is not tried at every insert.
#[test]
fn at_the_limit_growth_is_put_off() {
    for keys in [2000, 100_000] {
        let shared = grown(GROWING, keys);
        shared.set_limit(shared.bytes());
        let is_crowded = |key| {
            let (guarded, _writer) = shared.writer(route(digest(key)));
            unpoisoned(guarded.table.read()).is_crowded()
        };
        let (mut inserted, mut crowded) = (0, 0);
        for key in FOREIGN.. {
            match shared.insert(digest(key)) {
                Ok(_) => inserted += 1,
                Err(_) => break,
            }
            crowded += u64::from(is_crowded(key));
        }
        assert!(inserted > 100 && crowded == 0, "{crowded} of {inserted}");
    }
}

#[test]
fn a_run_is_sorted_by_shard_and_keeps_its_order_there() {
    for count in [0, 1, 2, 127, 128] {
        let run = digests(0..count);
        let sorted = RunOrder::new(&run);
        let mut expected: Vec<u8> = (0..count as u8).collect();
        expected.sort_by_key(|at| route(run[usize::from(*at)]));
        let order: Vec<u8> = sorted.groups().flat_map(|(_, group)| group.to_vec()).collect();
        assert_eq!(order, expected);
        for (number, group) in sorted.groups() {
            assert!(group.iter().all(|at| route(run[usize::from(*at)]) == number));
        }
    }
}
