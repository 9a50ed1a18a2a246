//! Filters that go on past the keys they were planned for: what they owe to their keys, to their
//! target rate, and to whoever reads their file.

use crate::common::{digest, digests, file_of, payload, reopened};
use inbloom::internals::compose::grown::base_share;
use inbloom::internals::format;
use inbloom::internals::kinds::blocked::SharedBlocked;
use inbloom::{Digest, Error, Filter, Kind, MIN_RATE, OpenOptions, Plan, PlanBuilder};
use inbloom_testing::mix;

fn plan(kind: Kind, items: u64, rate: f64) -> PlanBuilder {
    Plan::builder(kind).items(items).rate(rate)
}

fn growing(kind: Kind, items: u64, rate: f64) -> Filter {
    let plan = plan(kind, items, rate).growing().build().unwrap();
    Filter::new(plan).unwrap().into_growing().unwrap()
}

/// A growing filter of these numbers.
fn grown(kind: Kind, items: u64, rate: f64, numbers: std::ops::Range<u64>) -> Filter {
    let mut filter = growing(kind, items, rate);
    filter.insert_digests(&digests(numbers), &mut Vec::new()).unwrap();
    filter
}

fn has_all(filter: &Filter, numbers: std::ops::Range<u64>) -> bool {
    let digests = digests(numbers);
    let mut found = Vec::new();
    filter.contains_digests(&digests, &mut found);
    digests.iter().zip(&found).all(|(digest, found)| *found && filter.contains_digest(*digest))
}

/// Every shape of the kinds that can grow: one line, two lines, and bits anywhere.
const SHAPES: [(Kind, f64); 4] =
    [(Kind::Blocked, 0.01), (Kind::Blocked, 1e-6), (Kind::Classic, 0.1), (Kind::Classic, 1e-4)];

#[test]
fn every_key_is_found_however_many_come_past_the_planned_ones() {
    for (kind, rate) in SHAPES {
        for items in [1, 100, 12_000] {
            let mut filter = growing(kind, items, rate);
            let mut new = Vec::new();
            for start in (0..40_000).step_by(1000) {
                filter.insert_digests(&digests(start..start + 1000), &mut new).unwrap();
            }
            let shown = format!("{kind} for {items} at {rate}");
            assert!(has_all(&filter, 0..40_000), "{shown}");
            assert!(filter.as_grown().unwrap().beyond() > 0, "{shown}");
            for filter in reopened(&filter) {
                assert!(has_all(&filter, 0..40_000), "{shown}, opened again");
            }
        }
    }
}

#[test]
fn the_rate_of_both_parts_stays_within_the_target_at_any_number_of_keys() {
    for (kind, rate) in SHAPES {
        for items in [1, 30, 1000, 20_000] {
            let mut filter = growing(kind, items, rate);
            let (mut from, mut to) = (0, 16);
            while to <= 200_000 {
                filter.insert_digests(&digests(from..to), &mut Vec::new()).unwrap();
                let now = filter.rate();
                assert!(now <= rate, "{kind} for {items}, with {to}: {now} above {rate}");
                (from, to) = (to, to * 3 / 2);
            }
            // What is reported is what is there.
            let absent = digests(1 << 40..(1 << 40) + 200_000);
            let mut found = Vec::new();
            filter.contains_digests(&absent, &mut found);
            let hits = found.iter().filter(|found| **found).count() as f64;
            let expected = rate * found.len() as f64;
            let most = expected + 5.0 * expected.sqrt() + 1.0;
            assert!(hits <= most, "{kind} for {items}: {hits} false positives, {most} at most");
        }
    }
}

#[test]
fn a_plan_that_grows_takes_its_share_of_the_rate_and_reports_the_target() {
    for items in [100, 10_000, 10_001, 1_000_000] {
        for rate in [0.1, 0.001, 1e-6] {
            let alone = plan(Kind::Blocked, items, rate * base_share(items)).build().unwrap();
            let plan = plan(Kind::Blocked, items, rate).growing().build().unwrap();
            assert_eq!((plan.rate(), plan.items()), (rate, items));
            assert_eq!((plan.bits(), plan.probes()), (alone.bits(), alone.probes()));
        }
    }
    let by_memory =
        Plan::builder(Kind::Blocked).bytes(1 << 20).rate(0.01).growing().build().unwrap();
    assert!(by_memory.bytes() <= 1 << 20 && by_memory.rate() == 0.01);
    assert!(by_memory.rate_at(by_memory.items() as f64) <= 0.005);
    let told =
        Plan::builder(Kind::Blocked).bytes(1 << 20).items(500_000).growing().build().unwrap();
    let reached = told.rate_at(500_000.0);
    assert!((told.rate() / reached - 2.0).abs() < 1e-9, "{} and {reached}", told.rate());
    let error = plan(Kind::Blocked, 100, MIN_RATE).growing().build().unwrap_err();
    assert!(matches!(error, Error::Rate { .. }), "{error}");
    let error = plan(Kind::Cuckoo, 100, 0.01).growing().build().unwrap_err();
    assert!(matches!(error, Error::Unsupported { verb: "grow", .. }), "{error}");
}

#[test]
fn the_base_holds_what_a_filter_of_its_plan_alone_would() {
    let plan = plan(Kind::Blocked, 2000, 0.01).growing().build().unwrap();
    let (mut alone, mut filter) =
        (Filter::new(plan).unwrap(), Filter::new(plan).unwrap().into_growing().unwrap());
    alone.insert_digests(&digests(0..1900), &mut Vec::new()).unwrap();
    filter.insert_digests(&digests(0..1900), &mut Vec::new()).unwrap();
    assert!(alone == filter && payload(&alone) == payload(&filter), "it has not grown yet");
    filter.insert_digests(&digests(1900..5000), &mut Vec::new()).unwrap();
    alone.insert_digests(&digests(1900..2000), &mut Vec::new()).unwrap();
    assert!(alone != filter);
    assert!(payload(&alone) == payload(&filter), "the base was closed at its planned keys");
}

#[test]
fn inserts_in_batches_give_the_answers_and_the_bits_of_single_ones() {
    for (kind, rate) in SHAPES {
        for items in [1, 200, 900] {
            let keys: Vec<Digest> = (0..4000).map(|step| digest(mix(step) % 2500)).collect();
            let (mut single, mut batch) = (growing(kind, items, rate), growing(kind, items, rate));
            let one_by_one: Vec<bool> =
                keys.iter().map(|key| single.insert_digest(*key).unwrap()).collect();
            let (mut answers, mut new) = (Vec::new(), Vec::new());
            for keys in keys.chunks(777) {
                batch.insert_digests(keys, &mut new).unwrap();
                answers.extend_from_slice(&new);
            }
            assert!(answers == one_by_one && batch == single, "{kind} for {items} at {rate}");
            assert_eq!(batch.inserted(), answers.iter().filter(|new| **new).count() as u64);
        }
    }
}

#[test]
fn a_file_goes_on_growing_where_it_left_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seen.ib");
    let mut at_once = growing(Kind::Blocked, 1000, 0.001);
    at_once.save(&path).unwrap();
    for start in (0..10_000).step_by(500) {
        let keys = digests(start..start + 500);
        at_once.insert_digests(&keys, &mut Vec::new()).unwrap();
        let mut filter = OpenOptions::new().writable(true).open(&path).unwrap();
        filter.insert_digests(&keys, &mut Vec::new()).unwrap();
        filter.save(&path).unwrap();
    }
    let filter = Filter::open(&path).unwrap();
    assert!(filter == at_once && file_of(&filter) == file_of(&at_once));
    assert!(has_all(&filter, 0..10_000));
    assert_eq!(filter.inserted(), at_once.inserted());
    let estimate = filter.estimated_items();
    assert!((estimate.items - 10_000.0).abs() <= 4.0 * estimate.error + 10.0, "{estimate:?}");
}

#[test]
fn a_filter_with_a_growing_part_needs_no_word_to_grow_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seen.ib");
    grown(Kind::Classic, 100, 0.01, 0..300).save(&path).unwrap();
    let mut filter = OpenOptions::new().writable(true).open(&path).unwrap();
    filter.insert_digests(&digests(300..5000), &mut Vec::new()).unwrap();
    assert!(has_all(&filter, 0..5000) && filter.rate() <= 0.01);
}

#[test]
fn what_is_open_to_read_takes_no_insert() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seen.ib");
    grown(Kind::Blocked, 100, 0.01, 0..300).save(&path).unwrap();
    let mut filter = Filter::open(&path).unwrap();
    assert!(filter.is_read_only());
    // Neither a key of the base, nor one of the growing part, nor a new one.
    for number in [0, 299, 1000] {
        assert!(matches!(filter.insert_digest(digest(number)), Err(Error::ReadOnly)));
    }
    let mut new = Vec::new();
    assert!(matches!(filter.insert_digests(&digests(0..9), &mut new), Err(Error::ReadOnly)));
    assert!(new.is_empty());
    // A full base that is mapped does not get a growing part in memory either.
    grown(Kind::Blocked, 100, 0.01, 0..100).save(&path).unwrap();
    let mut filter = Filter::open(&path).unwrap();
    assert!(matches!(filter.insert_digest(digest(1000)), Err(Error::ReadOnly)));
}

#[test]
fn a_filter_planned_without_growing_grows_within_its_rate_or_is_refused() {
    for items in [1000, 50_000] {
        let mut early = Filter::new(plan(Kind::Blocked, items, 0.01).build().unwrap()).unwrap();
        early.insert_digests(&digests(0..items / 10), &mut Vec::new()).unwrap();
        let mut early = early.into_growing().unwrap();
        early.insert_digests(&digests(items / 10..3 * items), &mut Vec::new()).unwrap();
        assert!(has_all(&early, 0..3 * items) && early.rate() <= 0.01, "{}", early.rate());

        let mut full = Filter::new(plan(Kind::Blocked, items, 0.01).build().unwrap()).unwrap();
        full.insert_digests(&digests(0..items), &mut Vec::new()).unwrap();
        let error = full.into_growing().unwrap_err();
        assert!(matches!(error, Error::Unsupported { verb: "grow", .. }), "{error}");
        assert!(error.to_string().contains("its rate is used up"), "{error}");
    }
}

#[test]
fn kinds_that_cannot_grow_refuse_and_name_those_that_can() {
    for kind in [Kind::Counting, Kind::Cuckoo] {
        let filter = Filter::new(plan(kind, 100, 0.01).build().unwrap()).unwrap();
        let error = filter.into_growing().unwrap_err();
        assert!(error.to_string().contains("blocked or classic"), "{error}");
    }
    let scalable = Filter::new(plan(Kind::Scalable, 100, 0.01).build().unwrap()).unwrap();
    assert!(scalable.into_growing().unwrap().as_grown().is_none(), "it grows by itself");
    let plan = plan(Kind::Blocked, 1000, 0.01).build().unwrap();
    let shard = Filter::new(plan.for_shard(0, 2).unwrap()).unwrap();
    assert!(matches!(shard.into_growing(), Err(Error::Unsupported { .. })));
    let mut clearing = Filter::new(plan).unwrap();
    clearing.set_auto_clear(Some(0.5)).unwrap();
    assert!(matches!(clearing.into_growing(), Err(Error::Unsupported { .. })));
    let mut growing = Filter::new(plan).unwrap().into_growing().unwrap();
    assert!(matches!(growing.set_auto_clear(Some(0.5)), Err(Error::Unsupported { .. })));
}

#[test]
fn a_merge_has_the_keys_of_both_whichever_of_them_has_grown() {
    // What each has: fewer keys than planned, or more.
    for (left, right) in [(300, 300), (300, 3000), (3000, 300), (3000, 3000)] {
        for opened in [false, true] {
            let mut one = grown(Kind::Blocked, 1000, 0.01, 0..left);
            let other = grown(Kind::Blocked, 1000, 0.01, 10_000..10_000 + right);
            if opened {
                one = Filter::read_from(&file_of(&one)[..]).unwrap();
            }
            let shown = format!("{left} and {right}, opened: {opened}");
            one.merge(&other).unwrap();
            assert!(has_all(&one, 0..left) && has_all(&one, 10_000..10_000 + right), "{shown}");
            let (items, all) = (one.inserted() as f64, (left + right) as f64);
            assert!((items - all).abs() < all / 20.0, "{shown}: {items}");
            for one in reopened(&one) {
                assert!(has_all(&one, 0..left) && has_all(&one, 10_000..10_000 + right), "{shown}");
            }
            let nothing = Filter::new(*other.plan()).unwrap();
            let mut merged = nothing.clone();
            merged.merge(&other).unwrap();
            assert!(merged == other, "{shown}: nothing and the other are the other");
        }
    }
    let mut clearing = Filter::new(*growing(Kind::Blocked, 1000, 0.01).plan()).unwrap();
    clearing.set_auto_clear(Some(0.5)).unwrap();
    let other = grown(Kind::Blocked, 1000, 0.01, 0..3000);
    assert!(matches!(clearing.merge(&other), Err(Error::Unsupported { .. })));
}

#[test]
fn what_takes_the_bits_for_all_of_a_filter_is_refused() {
    let even = Plan::builder(Kind::Blocked).items(1000).bytes(1 << 12).lines(1).growing();
    let even = even.build().unwrap();
    let mut alone = Filter::new(even).unwrap();
    let mut one = alone.clone().into_growing().unwrap();
    one.insert_digests(&digests(0..3000), &mut Vec::new()).unwrap();
    let refused = |result: inbloom::Result<()>, verb: &str| match result {
        Err(Error::Unsupported { verb: named, .. }) => assert_eq!(named, verb),
        other => panic!("{verb}: {other:?}"),
    };
    refused(alone.intersect(&one), "intersect");
    refused(one.intersect(&alone), "intersect");
    refused(one.remove("key").map(drop), "remove keys");
    refused(one.cut_into(2).map(drop), "be cut into shards");
    refused(SharedBlocked::from_filter(one.clone()).map(drop), "be shared by its blocks");
    assert!(one.positions("key").is_err());
    let positions = alone.positions(2999_u64.to_le_bytes()).unwrap();
    assert!(one.contains_positions(&positions), "no false negative by positions");
}

#[test]
fn many_threads_share_a_filter_that_grows() {
    let shared = growing(Kind::Blocked, 1000, 0.01).into_shared().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let shared = &shared;
            scope.spawn(move || {
                for number in thread * 1000..(thread + 1) * 1000 {
                    shared.insert(u64::to_le_bytes(number)).unwrap();
                }
            });
        }
    });
    let filter = shared.into_exclusive();
    assert!(has_all(&filter, 0..4000) && filter.as_grown().unwrap().beyond() > 0);
    assert!(filter.rate() <= 0.01);
}

#[test]
fn a_cleared_filter_starts_again_with_its_base() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seen.ib");
    grown(Kind::Blocked, 1000, 0.01, 0..3000).save(&path).unwrap();
    let mut filter = OpenOptions::new().writable(true).open(&path).unwrap();
    filter.clear().unwrap();
    assert_eq!((filter.inserted(), filter.occupied()), (0, 0));
    assert!(!filter.contains_digest(digest(2999)));
    filter.insert_digests(&digests(0..900), &mut Vec::new()).unwrap();
    assert_eq!(filter.as_grown().unwrap().beyond(), 0);
    assert!(filter == grown(Kind::Blocked, 1000, 0.01, 0..900));
}

/// A file with another field in its header, and the checksum that it then has.
fn with_field(bytes: &[u8], at: usize, value: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + value.len()].copy_from_slice(value);
    let length = 128 + 32 * u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    bytes[120..128].fill(0);
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..length]);
    bytes[120..128].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn a_file_that_lies_about_its_keys_gets_no_memory_for_them() {
    let bytes = file_of(&grown(Kind::Blocked, 100, 0.01, 0..100));
    let many = 1_000_000_000_000_000_u64.to_le_bytes();
    // Offsets of docs/format.md: items, rate, inserted.
    for (rate, inserted) in [(0.01, 0), (1.0, 0), (1e-9, u64::MAX >> 1), (0.0, 100)] {
        let lie = with_field(&bytes, 24, &many);
        let lie = with_field(&lie, 32, &f64::to_le_bytes(rate));
        let lie = with_field(&lie, 72, &u64::to_le_bytes(inserted));
        let mut filter = Filter::read_from(&lie[..]).unwrap();
        filter.insert_digests(&digests(100..3000), &mut Vec::new()).unwrap();
        assert!(has_all(&filter, 0..3000), "rate {rate}, {inserted} keys");
        assert!(filter.bytes() < 100_000, "rate {rate}, {inserted} keys: {}", filter.bytes());
    }
}

#[test]
fn a_section_more_is_refused_where_no_filter_can_have_one() {
    let bytes = file_of(&grown(Kind::Blocked, 100, 0.01, 0..300));
    format::verify(&bytes).unwrap();
    // Offsets of docs/format.md.
    for (bytes, what) in [
        (with_field(&bytes, 88, &0.5_f64.to_le_bytes()), "auto-clear"),
        (with_field(&bytes, 116, &2_u32.to_le_bytes()), "a shard"),
    ] {
        let error = Filter::view(&bytes).err().unwrap_or_else(|| panic!("{what} was accepted"));
        assert!(matches!(error, Error::Format { what: "section", .. }), "{what}: {error}");
        assert!(Filter::read_from(&bytes[..]).is_err() && format::verify(&bytes).is_err());
    }
}
