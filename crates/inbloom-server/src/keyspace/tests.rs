use std::collections::HashMap;
use std::sync::LazyLock;

use inbloom::{Filter, Kind, Plan};

use super::*;

const NOW: u64 = 1_700_000_000_000;

fn value() -> Value {
    // Planned once: most of the time of a small filter is its plan.
    static SMALL: LazyLock<Plan> =
        LazyLock::new(|| Plan::builder(Kind::Blocked).items(10).build().expect("a small plan"));
    Value::filter(Filter::new(*SMALL).expect("a small filter"))
}

fn key(name: &str) -> Key<'_> {
    Key { database: 0, name: name.as_bytes() }
}

fn create(keyspace: &Keyspace, name: &str) -> Arc<Entry> {
    match keyspace.create(key(name), value(), NOW) {
        Created::New(entry) => entry,
        Created::Taken(..) => panic!("{name} was there"),
    }
}

#[test]
fn a_scan_returns_each_lasting_key_exactly_once_whatever_comes_and_goes() {
    let keyspace = Keyspace::new();
    for at in 0..3000 {
        create(&keyspace, &format!("lasting{at}"));
        create(&keyspace, &format!("leaving{at}"));
    }
    let (mut cursor, mut calls, mut seen) = (0, 0, HashMap::<Vec<u8>, usize>::new());
    loop {
        let visit = |name: &[u8], _: &Arc<Entry>| *seen.entry(name.into()).or_default() += 1;
        cursor = keyspace.scan(0, cursor, 7, NOW, visit);
        assert!(cursor < 1 << 53, "{cursor} is not exact as a double");
        if cursor == 0 {
            break;
        }
        // The tables grow and shrink between the calls.
        for at in 0..20 {
            create(&keyspace, &format!("coming{}", calls * 20 + at));
        }
        for at in (calls * 5..calls * 5 + 5).filter(|at| *at < 3000) {
            assert!(keyspace.remove(key(&format!("leaving{at}")), NOW));
        }
        calls += 1;
    }
    assert!(calls > 300, "{calls} calls are too few for changes in between");
    for at in 0..3000 {
        let name = format!("lasting{at}");
        assert_eq!(seen.get(name.as_bytes()), Some(&1), "{name}");
    }
    assert!(seen.values().all(|times| *times == 1), "a name was returned twice");
}

#[test]
fn a_scan_returns_about_as_many_keys_as_it_is_asked_for_and_ends() {
    let keyspace = Keyspace::new();
    (0..5000).for_each(|at| drop(create(&keyspace, &at.to_string())));
    for count in [1, 10, 1000, usize::MAX] {
        let (mut cursor, mut total) = (0, 0);
        loop {
            let mut found = 0;
            cursor = keyspace.scan(0, cursor, count, NOW, |_, _| found += 1);
            // More only if names share a place among 2^48.
            assert!(found <= count.saturating_add(1));
            total += found;
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(total, 5000, "count {count}");
    }
    assert_eq!(keyspace.scan(0, u64::MAX, 10, NOW, |_, _| panic!("beyond the end")), 0);
    assert_eq!(keyspace.scan(3, 0, 10, NOW, |_, _| panic!("of another database")), 0);
}

#[test]
fn an_expired_key_is_invisible_at_once_and_gone_after_its_second() {
    let keyspace = Keyspace::new();
    let entry = create(&keyspace, "a");
    assert!(keyspace.expire(key("a"), &entry, Some(NOW + 100)));
    assert!(keyspace.get(key("a"), NOW + 99).is_some());
    assert!(keyspace.get(key("a"), NOW + 100).is_none());
    keyspace.scan(0, 0, 10, NOW + 100, |_, _| panic!("it has expired"));
    assert!(keyspace.any(0, 7, NOW + 100).is_none());
    assert_eq!(keyspace.expire_due(NOW + 100, 10), 0, "its page is not over");
    assert_eq!(keyspace.expire_due(NOW + 1000, 10), 1);
    assert_eq!((keyspace.len(0), keyspace.used(), keyspace.expired()), (0, 0, 1));
}

#[test]
fn a_time_that_is_set_again_and_again_takes_one_line_of_the_calendar() {
    let keyspace = Keyspace::new();
    let entry = create(&keyspace, "a");
    for seconds in (1..100).chain((1..100).rev()) {
        assert!(keyspace.expire(key("a"), &entry, Some(NOW + seconds * 1000)));
        assert_eq!(keyspace.calendar.len(), 1);
    }
    assert!(keyspace.expire(key("a"), &entry, Some(NOW + 50_000)));
    assert_eq!(keyspace.expire_due(NOW + 10_000, 10), 1, "too early: it is sent on");
    assert!(keyspace.get(key("a"), NOW + 49_999).is_some());
    assert_eq!(keyspace.calendar.len(), 1);
    assert_eq!(keyspace.expire_due(NOW + 51_000, 10), 1);
    assert_eq!((keyspace.len(0), keyspace.calendar.len()), (0, 0));
}

#[test]
fn keys_that_go_before_their_time_leave_nothing_in_the_calendar() {
    let keyspace = Keyspace::new();
    let far = Some(NOW + 1_000_000_000);
    for round in 0..6 {
        let entry = create(&keyspace, "a");
        assert!(keyspace.expire(key("a"), &entry, far));
        match round {
            0 => drop(keyspace.remove(key("a"), NOW)),
            1 => keyspace.flush(0..1),
            2 => drop(keyspace.replace(key("a"), value())),
            3 => drop(keyspace.create(key("a"), value(), NOW + 2_000_000_000)),
            4 => {
                create(&keyspace, "b");
                keyspace.rename(key("b"), key("a"), Target::Any, NOW);
            }
            _ => {
                for _ in 0..100 {
                    keyspace.rename(key("a"), key("b"), Target::Any, NOW);
                    keyspace.rename(key("b"), key("a"), Target::Any, NOW);
                    assert_eq!(keyspace.calendar.len(), 1);
                }
                keyspace.remove(key("a"), NOW);
            }
        }
        assert_eq!(keyspace.calendar.len(), 0, "round {round}");
        keyspace.flush(0..1);
    }
    assert_eq!(keyspace.used(), 0);
}

#[test]
fn a_renamed_key_keeps_its_time_and_expires_under_its_new_name() {
    let keyspace = Keyspace::new();
    let entry = create(&keyspace, "a");
    keyspace.expire(key("a"), &entry, Some(NOW + 5000));
    let there = Key { database: 3, name: b"b" };
    assert_eq!(keyspace.rename(key("a"), there, Target::Any, NOW), Renamed::Done);
    assert_eq!((keyspace.len(0), keyspace.len(3)), (0, 1));
    assert!(keyspace.get(key("a"), NOW).is_none());
    let found = keyspace.get(there, NOW).expect("renamed");
    assert!(Arc::ptr_eq(&found, &entry));
    assert_eq!(found.expires(), Some(NOW + 5000));
    assert!(!keyspace.expire(key("a"), &entry, None), "it is not there any more");
    assert_eq!(keyspace.expire_due(NOW + 7000, 10), 1);
    assert_eq!((keyspace.len(3), keyspace.used()), (0, 0));
}

#[test]
fn rename_refuses_what_is_missing_expired_or_taken() {
    let keyspace = Keyspace::new();
    let (free, any) = (Target::Free, Target::Any);
    assert_eq!(keyspace.rename(key("a"), key("b"), any, NOW), Renamed::Missing);
    let entry = create(&keyspace, "a");
    create(&keyspace, "b");
    assert_eq!(keyspace.rename(key("a"), key("b"), free, NOW), Renamed::Taken);
    assert_eq!(keyspace.rename(key("a"), key("a"), free, NOW), Renamed::Taken);
    assert_eq!(keyspace.rename(key("a"), key("a"), any, NOW), Renamed::Done);
    keyspace.expire(key("a"), &entry, Some(NOW + 10));
    assert_eq!(keyspace.rename(key("a"), key("c"), any, NOW + 10), Renamed::Missing);
    // A name whose entry has expired is free.
    assert_eq!(keyspace.rename(key("b"), key("a"), free, NOW + 10), Renamed::Done);
    assert_eq!(keyspace.len(0), 1);
    keyspace.flush(0..1);
    assert_eq!((keyspace.used(), keyspace.calendar.len()), (0, 0));
}

/// Keeps nothing.
struct NoJournal;

impl Journal for NoJournal {
    fn record(&self, _record: &Record<'_>) {}
}

#[test]
fn an_entry_is_visited_under_its_last_name_however_often_it_was_renamed() {
    let keyspace = Keyspace::new();
    keyspace.set_journal(Arc::new(NoJournal));
    let entry = create(&keyspace, "a");
    keyspace.prepare_visit();
    // The log begins anew behind these: it cannot correct a name.
    for (from, to) in [("a", "b"), ("b", "c"), ("c", "d")] {
        assert_eq!(keyspace.rename(key(from), key(to), Target::Any, NOW), Renamed::Done);
    }
    keyspace.begin_visit();
    let mut names = Vec::new();
    keyspace.visit_changed(|database, name, visited| {
        assert_eq!((database, visited.id), (0, entry.id));
        names.push(String::from_utf8_lossy(name).into_owned());
        // A client inserts a key while its image is written.
        assert!(visited.take_changed());
        visited.set_changed();
    });
    assert!(!names.is_empty() && names.iter().all(|name| name == "d"), "{names:?}");
}

#[test]
fn renames_against_each_other_neither_lose_the_key_nor_wait_for_ever() {
    let keyspace = Keyspace::new();
    let entry = create(&keyspace, "a");
    // In opposite directions: locks taken in the order of the names would never come free.
    let circles = [["a", "b", "c"], ["c", "b", "a"]];
    std::thread::scope(|scope| {
        for names in &circles {
            let keyspace = &keyspace;
            scope.spawn(move || {
                for at in 0..60_000 {
                    let (from, to) = (key(names[at % 3]), key(names[(at + 1) % 3]));
                    keyspace.rename(from, to, Target::Any, NOW);
                }
            });
        }
    });
    let found: Vec<_> =
        ["a", "b", "c"].iter().filter_map(|name| keyspace.get(key(name), NOW)).collect();
    assert!(found.len() == 1 && Arc::ptr_eq(&found[0], &entry));
    assert_eq!(keyspace.used(), keyspace.bytes_of(b"a", &entry));
    keyspace.flush(0..1);
    assert_eq!(keyspace.used(), 0);
}

#[test]
fn a_hundred_thousand_keys_of_one_second_go_in_turns() {
    let keyspace = Keyspace::new();
    for at in 0..100_000 {
        let name = at.to_string();
        let entry = create(&keyspace, &name);
        keyspace.expire(key(&name), &entry, Some(NOW + at % 1000));
    }
    for turn in 1..=10 {
        assert_eq!(keyspace.expire_due(NOW + 2000, 10_000), 10_000);
        assert_eq!(keyspace.len(0), 100_000 - turn * 10_000);
    }
    assert_eq!(keyspace.expire_due(NOW + 2000, 10_000), 0);
    assert_eq!((keyspace.used(), keyspace.expired(), keyspace.calendar.len()), (0, 100_000, 0));
}

#[test]
fn tables_shrink_when_their_keys_are_gone() {
    let keyspace = Keyspace::new();
    let names: Vec<String> = (0..200_000).map(|at| at.to_string()).collect();
    names.iter().for_each(|name| drop(create(&keyspace, name)));
    let slots = || -> usize { keyspace.parts(0).iter().map(|part| part.0.read().capacity()).sum() };
    let full = slots();
    names[1000..].iter().for_each(|name| assert!(keyspace.remove(key(name), NOW)));
    assert!(slots() < full / 4, "{} of {full} slots are left for 1000 keys", slots());
    assert!(names[..1000].iter().all(|name| keyspace.get(key(name), NOW).is_some()));
}

#[test]
fn a_flush_takes_one_database_only() {
    let keyspace = Keyspace::new();
    let other = Key { database: 5, name: b"a" };
    for at in 0..5000 {
        create(&keyspace, &at.to_string());
    }
    assert!(matches!(keyspace.create(other, value(), NOW), Created::New(_)));
    keyspace.flush(0..1);
    assert_eq!((keyspace.len(0), keyspace.len(5)), (0, 1));
    assert_eq!(keyspace.used(), keyspace.bytes_of(b"a", &keyspace.get(other, NOW).unwrap()));
}

#[test]
fn every_key_is_as_likely_to_be_the_random_one() {
    let keyspace = Keyspace::new();
    assert!(keyspace.any(0, 0, NOW).is_none());
    (0..10).for_each(|at| drop(create(&keyspace, &at.to_string())));
    let mut drawn = HashMap::<Vec<u8>, u32>::new();
    for seed in 0..10_000 {
        *drawn.entry(keyspace.any(0, seed, NOW).expect("a key")).or_default() += 1;
    }
    // 1000 each, give or take 30: six deviations.
    let (least, most) = (drawn.values().min().unwrap(), drawn.values().max().unwrap());
    assert!(drawn.len() == 10 && *least > 820 && *most < 1180, "{least} to {most} times");
    // One that has not expired is found among many that have.
    for at in 0..9 {
        let name = at.to_string();
        let entry = keyspace.get(key(&name), NOW).unwrap();
        keyspace.expire(key(&name), &entry, Some(NOW + 1));
    }
    (0..100).for_each(|seed| assert_eq!(keyspace.any(0, seed, NOW + 1).unwrap(), b"9"));
}

#[test]
fn a_large_filter_is_freed_by_nobody_who_serves_clients() {
    let keyspace = Keyspace::new();
    let plan = Plan::builder(Kind::Blocked).bytes(8 << 20).build().unwrap();
    let large = Value::filter(Filter::new(plan).unwrap());
    let Created::New(entry) = keyspace.create(key("large"), large, NOW) else { panic!() };
    let alive = Arc::downgrade(&entry);
    assert!(keyspace.remove(key("large"), NOW));
    assert_eq!(keyspace.used(), 0);
    // Somebody still asks it: the reaper waits, and is the last to have it.
    assert_eq!(Arc::strong_count(&entry), 2, "the reaper has it too");
    drop(entry);
    let begin = std::time::Instant::now();
    while alive.strong_count() > 0 {
        assert!(begin.elapsed().as_secs() < 10, "the reaper does not free it");
        std::thread::yield_now();
    }
}

#[test]
fn growth_is_neither_lost_nor_counted_twice_when_many_see_it() {
    let keyspace = Keyspace::new();
    let entry = create(&keyspace, "a");
    let Value::Filter(guarded) = &entry.value else { panic!("a filter") };
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (keyspace, entry) = (&keyspace, &entry);
            scope.spawn(move || {
                for round in 0..5000 {
                    guarded.count_memory(1000 * (round * 4 + thread));
                    keyspace.settle(entry);
                }
            });
        }
    });
    assert_eq!(keyspace.used(), keyspace.bytes_of(b"a", &entry));
    assert!(keyspace.remove(key("a"), NOW));
    assert_eq!(keyspace.used(), 0);
    // Somebody has looked it up before and adds to it now: it has no account any more.
    guarded.count_memory(123);
    keyspace.settle(&entry);
    assert_eq!(keyspace.used(), 0);
}

#[test]
fn an_entry_is_not_larger_than_the_million_small_filters_allow() {
    // With the two counts of its Arc it takes 128 bytes, a size that allocators have.
    assert!(size_of::<Entry>() + 16 <= 128);
}
