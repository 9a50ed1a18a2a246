//! Laws of every filter: batches, copies, equality, merges, intersections, positions, cells.

use super::*;

#[test]
fn batches_of_keys_leave_the_bits_counts_and_answers_of_single_calls() {
    for shape in every_shape(2000, 2000) {
        let name = &shape.name;
        let mut single = shape.filter();
        let mut of_keys = shape.filter();
        let mut of_digests = shape.filter();
        let (mut new, mut new_too) = (Vec::new(), Vec::new());
        let mut first = 0;
        for size in [0, 1, 127, 128, 129, 1000] {
            // A third of the keys has been there before.
            let keys = keys(first..first + size);
            first += size * 2 / 3;
            let expected: Vec<bool> = keys.iter().map(|key| single.insert(key).unwrap()).collect();
            of_keys.insert_many(&keys, &mut new).unwrap();
            let digests: Vec<Digest> = keys.iter().map(|key| of_digests.digest(key)).collect();
            of_digests.insert_digests(&digests, &mut new_too).unwrap();
            assert_eq!((&new, &new_too), (&expected, &expected), "{name}, batch of {size}");
            for filter in [&of_keys, &of_digests] {
                assert!(*filter == single, "{name}, batch of {size}: bits differ");
                assert_eq!(filter.inserted(), single.inserted(), "{name}");
                assert_eq!(filter.occupied(), single.occupied(), "{name}");
            }
        }
        let all = keys(0..4000);
        let expected: Vec<bool> = all.iter().map(|key| single.contains(key)).collect();
        let (mut found, mut found_too) = (vec![true; 9], vec![true; 9]);
        for size in [0, 1, 127, 128, 129, 1000, 4000] {
            single.contains_many(&all[..size], &mut found);
            let digests: Vec<Digest> = all[..size].iter().map(|key| single.digest(key)).collect();
            single.contains_digests(&digests, &mut found_too);
            assert_eq!(found, expected[..size], "{name}, batch of {size}");
            assert_eq!(found_too, expected[..size], "{name}, batch of {size}");
        }
    }
}

#[test]
fn a_clone_is_equal_and_goes_its_own_way() {
    for shape in every_shape(1000, 1000) {
        let name = &shape.name;
        let mut filter = shape.with_keys(&keys(0..500));
        filter.set_note("a note").unwrap();
        let clone = filter.clone();
        assert!(clone == filter, "{name}");
        assert_eq!(
            (clone.inserted(), clone.occupied()),
            (filter.inserted(), filter.occupied()),
            "{name}"
        );
        assert_eq!(clone.note(), "a note");
        let before = filter.contains(key(5000));
        filter.insert(key(5000)).unwrap();
        assert!(clone != filter || before, "{name}");
        assert_eq!(clone.contains(key(5000)), before, "{name}");
        assert_members(&clone, &keys(0..500), name);
    }
}

#[test]
fn filters_are_equal_if_plan_hash_and_bits_are() {
    for shape in every_shape(1000, 1000) {
        let (name, plan) = (&shape.name, shape.plan);
        let one = shape.with_keys(&keys(0..500));
        let mut reversed = keys(0..500);
        reversed.reverse();
        let mut other = shape.with_keys(&reversed);
        other.set_note("counts and notes may differ").unwrap();
        let same = one == other;
        assert!(same || shape.knows_the_order(), "{name}: the order of inserts does not matter");
        assert!(one != shape.with_keys(&keys(0..501)), "{name}");
        if plan.kind() != Kind::Bitmap {
            let seeded = |seed| shape.with_hasher(Hasher::xxh3(seed));
            assert!(seeded(1) != seeded(2), "{name}: other hashes, other filters");
        }
    }
}

#[test]
fn a_cleared_filter_is_empty_and_every_key_is_new_again() {
    for shape in every_shape(1000, 1000) {
        let name = &shape.name;
        let mut filter = shape.with_keys(&keys(0..1000));
        filter.set_note("stays").unwrap();
        if shape.is_overlay() {
            assert!(filter.clear().is_err(), "{name}: what was built stays");
            assert_members(&filter, &keys(0..1000), name);
            continue;
        }
        filter.clear().unwrap();
        assert!(filter == shape.filter(), "{name}");
        assert_eq!((filter.occupied(), filter.fill(), filter.inserted()), (0, 0.0, 0), "{name}");
        assert_eq!(filter.note(), "stays");
        assert!(filter.insert(key(0)).unwrap(), "{name}");
        let again = keys(0..1000);
        assert!(!again[1..].iter().all(|key| filter.contains(key)), "{name}");
        filter.clear().unwrap();
        let mut first = shape.filter();
        for key in &again {
            assert_eq!(filter.insert(key).unwrap(), first.insert(key).unwrap(), "{name}");
        }
    }
}

#[test]
fn a_merge_contains_both_and_equals_inserting_both() {
    for shape in every_shape(2000, 2400) {
        let (name, plan) = (&shape.name, shape.plan);
        let mut left = shape.with_keys(&keys(0..1200));
        let right = shape.with_keys(&keys(800..2000));
        if shape.is_overlay() {
            let before = left.clone();
            assert!(left.merge(&right).is_err() && left == before, "{name}");
            continue;
        }
        if !merge_or_refuse(&mut left, &right) {
            continue;
        }
        assert_members(&left, &keys(0..2000), name);
        assert!(right == shape.with_keys(&keys(800..2000)), "{name}: the other is as it was");
        if shape.knows_the_order() {
            continue;
        }
        let both = shape.with_keys(&[keys(0..1200), keys(800..2000)].concat());
        assert!(left == both, "{name}");
        assert_eq!(left.occupied(), both.occupied(), "{name}");
        if plan.kind().counts() {
            let twice = keys(800..1200);
            assert!(twice.iter().all(|key| left.count(key) >= 2), "{name}: copies add up");
        }
    }
}

#[test]
fn an_intersection_contains_the_common_keys() {
    for shape in every_shape(2000, 2000) {
        let (name, plan) = (&shape.name, shape.plan);
        let mut left = shape.with_keys(&keys(0..1200));
        let right = shape.with_keys(&keys(800..2000));
        if matches!(plan.kind(), Kind::Scalable | Kind::Window | Kind::Ribbon) {
            assert_eq!(
                left.intersect(&right).expect_err("a refusal").to_string(),
                format!("kind {} cannot intersect; query both filters instead", plan.kind())
            );
            assert_members(&left, &keys(0..1200), name);
            continue;
        }
        left.intersect(&right).unwrap();
        assert_members(&left, &keys(800..1200), name);
        if plan.kind() == Kind::Bitmap {
            assert!(left == shape.with_keys(&keys(800..1200)), "{name} is exact");
        } else {
            let most = right.rate() * 1.5 + 0.02;
            let foreign = keys(2000..12_000);
            let claimed = foreign.iter().filter(|key| left.contains(key)).count() as f64 / 1e4;
            assert!(claimed <= most, "{name}: {claimed} of foreign keys are claimed");
        }
        assert!(left.inserted() <= 1200, "{name}");
    }
}

#[test]
fn after_a_merge_the_count_is_an_estimate_within_what_is_possible() {
    for shape in every_shape(2000, 2400) {
        let (name, plan) = (&shape.name, shape.plan);
        if shape.is_overlay() {
            continue; // it does not merge
        }
        let (left, right) = (shape.with_keys(&keys(0..1200)), shape.with_keys(&keys(800..2000)));
        let mut merged = left.clone();
        if !merge_or_refuse(&mut merged, &right) {
            continue;
        }
        let count = merged.inserted();
        assert!(count >= left.inserted().max(right.inserted()), "{name}: {count}");
        assert!(count <= left.inserted() + right.inserted(), "{name}: {count}");
        // A key that is in both counts twice for a cuckoo filter, and in two generations of a
        // window; one that grows may refuse to say.
        if plan.kind() == Kind::Cuckoo || shape.knows_the_order() {
            continue;
        }
        let estimate = merged.estimated_items();
        let off = (count as f64 - 2000.0).abs();
        assert!(off <= 4.0 * estimate.error + 0.5, "{name}: {count} of 2000, {estimate:?}");
        // Merging what is there already adds nothing.
        let mut twice = left.clone();
        twice.merge(&left).unwrap();
        assert!(twice == left || plan.kind().counts(), "{name}");
        let off = (twice.inserted() as f64 - 1200.0).abs();
        assert!(off <= 4.0 * left.estimated_items().error + 0.5, "{name}: off by {off}");
    }
}

#[test]
fn a_merge_of_filters_that_differ_is_refused_with_the_field_and_both_values() {
    let plan = |bits: u64, probes: u32| Plan::exact(Kind::Classic, bits, probes).unwrap();
    let lines = |lines: u32| {
        let plan = Plan::builder(Kind::Blocked).items(100).bytes(1024);
        plan.lines(lines).probes(8).build().unwrap()
    };
    let bitmap = |items: u64| Plan::builder(Kind::Bitmap).universe(1 << 20).items(items);
    let new = |plan: Plan| Filter::new(plan).unwrap();
    let hashed = |hasher: Hasher| Filter::with_hasher(plan(1024, 4), hasher).unwrap();
    let check = |left: Filter, right: Filter, expected: &str| {
        let before = left.clone();
        for (verb, result) in
            [("merge", left.clone().merge(&right)), ("intersect", left.clone().intersect(&right))]
        {
            let error = result.expect_err("a refusal");
            assert!(matches!(error, Error::Mismatch { .. }));
            assert_eq!(
                error.to_string(),
                format!(
                    "the filters differ in {expected}; \
                     build both from the same plan with the same hash"
                ),
                "{verb}"
            );
        }
        assert!(left == before && left != right);
    };
    check(new(plan(512, 4)), new(lines(1)), "kind: classic here, blocked there");
    check(
        new(plan(512, 4)),
        new(plan(1024, 4)),
        "bits: 512 (88 keys at 6.15e-2) here, 1024 (177 keys at 6.23e-2) there",
    );
    check(new(plan(512, 4)), new(plan(512, 5)), "probes: 4 here, 5 there");
    check(new(lines(1)), new(lines(2)), "lines: 1 here, 2 there");
    check(
        new(bitmap(10).build().unwrap()),
        new(bitmap(1 << 19).build().unwrap()),
        "layout: sparse here, dense there",
    );
    let counters = |width: u32| {
        let plan = Plan::builder(Kind::Counting).items(100).bytes(4096).width(width);
        plan.lines(1).probes(8).build().unwrap()
    };
    check(new(counters(2)), new(counters(8)), "width: 2 here, 8 there");
    check(new(counters(4)), new(counters(3)), "width: 4 here, 3 there");
    let cuckoo = |items| Plan::builder(Kind::Cuckoo).items(items).rate(0.01).build().unwrap();
    check(
        new(cuckoo(8)),
        new(cuckoo(16)),
        "bits: 80 (8 keys at 1.00e-2) here, 360 (16 keys at 1.00e-2) there",
    );
    // Of the same bits in every generation.
    let window = |generations: u32| {
        let plan = Plan::builder(Kind::Window).bytes(128 * (1 + u64::from(generations)));
        plan.lines(1).probes(8).generations(generations)
    };
    let built = |plan: inbloom::PlanBuilder| new(plan.build().unwrap());
    check(
        built(window(2).last(100)),
        built(window(2).last(101)),
        "window: the last 100 keys here, the last 101 keys there",
    );
    check(
        built(window(2).last(1000)),
        built(window(2).window(Duration::from_secs(1)).items(1000)),
        "window: the last 1000 keys here, 1 s there",
    );
    check(built(window(2).last(100)), built(window(5).last(100)), "generations: 2 here, 5 there");
    let scalable = |rate| Plan::builder(Kind::Scalable).items(100).rate(rate);
    check(built(scalable(0.01)), built(scalable(0.5)), "rate: 0.01 here, 0.5 there");
    check(
        built(scalable(0.01).tightening(0.5)),
        built(scalable(0.01).tightening(0.75)),
        "tightening: 0.5 here, 0.75 there",
    );
    check(hashed(Hasher::xxh3(1)), hashed(Hasher::xxh3(2)), "hash seed: 1 here, 2 there");
    let (one, two) = (SecretKey::new([1; 16]), SecretKey::new([2; 16]));
    check(
        hashed(Hasher::xxh3(0)),
        hashed(Hasher::sip13(one)),
        "hash: xxh3-128 here, siphash-1-3-128 (keyed) there",
    );
    let error =
        hashed(Hasher::sip13(one)).merge(&hashed(Hasher::sip13(two))).expect_err("a refusal");
    let text = error.to_string();
    // The check values are what the files keep; the keys themselves are not shown.
    assert!(text.starts_with("the filters differ in secret key: check "), "{text}");
    assert_eq!(text.matches("check ").count(), 2, "{text}");
    let shown: Vec<&str> = text.split("check ").skip(1).map(|rest| &rest[..16]).collect();
    assert!(
        shown[0] != shown[1] && shown[0].chars().all(|digit| digit.is_ascii_hexdigit()),
        "{text}"
    );
}

#[test]
fn plans_for_other_items_and_rates_merge_if_their_bits_agree() {
    let wished = Plan::builder(Kind::Classic).items(1000).bytes(2000).probes(7).build().unwrap();
    let other = Plan::builder(Kind::Classic).items(1500).bytes(2000).probes(7).build().unwrap();
    let mut filter = with_keys(wished, &keys(0..100));
    filter.merge(&with_keys(other, &keys(100..200))).unwrap();
    assert_members(&filter, &keys(0..200), "classic");
}

/// Whether the kind can tell where a key's cells are: always at the same places.
fn has_positions(plan: &Plan) -> bool {
    matches!(plan.kind(), Kind::Bitmap | Kind::Classic | Kind::Blocked | Kind::Counting)
}

#[test]
fn the_positions_of_a_key_are_the_cells_that_its_insert_takes() {
    for shape in every_shape(200, 200) {
        let (name, plan) = (&shape.name, shape.plan);
        if !has_positions(&plan) || plan.is_sparse() {
            continue;
        }
        for number in 0..200 {
            let key = key(number);
            let mut filter = shape.filter();
            let mut positions = filter.positions(key).unwrap();
            assert!(!filter.contains_positions(&positions), "{name}");
            filter.insert(key).unwrap();
            assert!(filter.contains_positions(&positions), "{name}");
            let used = used_cells(&filter);
            positions.sort_unstable();
            positions.dedup();
            assert_eq!(positions, used, "{name}");
            assert_eq!(filter.occupied(), used.len() as u64, "{name}");
            let cells = slots(&plan);
            if let Some(absent) = (0..cells).find(|position| !used.contains(position)) {
                positions.push(absent);
                assert!(!filter.contains_positions(&positions), "{name}");
            }
        }
    }
}

#[test]
fn positions_answer_as_keys_do_and_there_are_none_outside() {
    for shape in every_shape(1000, 1000) {
        let (name, plan) = (&shape.name, shape.plan);
        let filter = shape.with_keys(&keys(0..1000));
        for outside in [plan.bits().max(plan.bytes() * 8), u64::MAX] {
            assert!(!filter.contains_positions(&[outside]), "{name}");
        }
        assert!(filter.contains_positions(&[]), "{name}: of nothing, all is there");
        if !has_positions(&plan) {
            assert_eq!(
                filter.positions(key(0)).expect_err("a refusal").to_string(),
                format!(
                    "kind {} cannot report the positions of a key; use kind bitmap, classic, blocked or \
                     counting, which can",
                    plan.kind()
                )
            );
            continue;
        }
        for key in keys(0..3000) {
            let found = filter.contains_positions(&filter.positions(key).unwrap());
            assert_eq!(found, filter.contains(key), "{name}");
        }
    }
}

#[test]
fn the_count_of_cells_in_use_is_that_of_the_payload_after_every_verb() {
    for shape in every_shape(1000, 2000) {
        let (name, plan) = (&shape.name, shape.plan);
        if plan.is_sparse() || matches!(plan.kind(), Kind::Scalable | Kind::Ribbon) {
            continue; // no array of cells
        }
        let mut filter = shape.filter();
        let check = |filter: &Filter, after: &str| {
            let counted = used_cells(filter).len() as u64;
            assert_eq!(filter.occupied(), counted, "{name}, after {after}");
            let usable = match plan.kind() {
                Kind::Blocked => plan.bits() / 512 * 511,
                Kind::Window => plan.bits() / 512 * 511 * (u64::from(plan.generations()) + 1),
                _ => slots(&plan),
            };
            let off = (filter.fill() - counted as f64 / usable as f64).abs();
            assert!(off < 1e-12, "{name}, after {after}: {}", filter.fill());
        };
        check(&filter, "nothing");
        for key in keys(0..100) {
            filter.insert(key).unwrap();
        }
        check(&filter, "single inserts");
        filter.insert_many(&keys(50..700), &mut Vec::new()).unwrap();
        check(&filter, "a batch");
        filter.merge(&shape.with_keys(&keys(500..1200))).unwrap();
        check(&filter, "a merge");
        let has_grown = filter.as_grown().is_some_and(|grown| grown.beyond() > 0);
        if plan.kind() != Kind::Window && !has_grown {
            filter.intersect(&shape.with_keys(&keys(100..800))).unwrap();
            check(&filter, "an intersection");
        }
        if plan.kind().can_remove() {
            assert!(filter.remove(key(300)).unwrap(), "{name}");
            check(&filter, "a removal");
        }
        let shared = filter.into_shared().unwrap();
        shared.insert(key(2000)).unwrap();
        shared.insert_many(&keys(1900..2100), &mut Vec::new()).unwrap();
        if plan.kind().can_remove() {
            assert!(shared.remove(key(2000)).unwrap(), "{name}");
        }
        let ones = shared.occupied();
        filter = shared.into_exclusive();
        assert_eq!(filter.occupied(), ones, "{name}");
        check(&filter, "sharing");
        check(&read(&file_of(&filter)), "writing and reading");
        filter.clear().unwrap();
        check(&filter, "clearing");
    }
}

#[test]
fn full_filters_stay_full_and_claim_everything() {
    for plan in [
        Plan::exact(Kind::Classic, 1, 1).unwrap(),
        Plan::exact(Kind::Classic, 77, 3).unwrap(),
        Plan::exact(Kind::Blocked, 512, 8).unwrap(),
        Plan::exact(Kind::Blocked, 1024, 32).unwrap(),
        Plan::exact(Kind::Counting, 512, 8).unwrap(),
        Plan::exact(Kind::Counting, 1024, 32).unwrap(),
    ] {
        let filter = with_keys(plan, &keys(0..20_000));
        assert_eq!(filter.fill(), 1.0, "{plan:?}");
        assert!(keys(20_000..21_000).iter().all(|key| filter.contains(key)), "{plan:?}");
        assert!(filter.rate() > 0.9, "{plan:?}: {}", filter.rate());
        let estimate = filter.estimated_items();
        assert!(estimate.items.is_finite() && estimate.items < 20_000.0, "{estimate:?}");
    }
}

/// What a filter says about its growth, and what it does: one that never fills up grows, and tells
/// when.
#[test]
fn a_filter_has_room_without_end_exactly_if_it_tells_when_it_grows() {
    for shape in every_shape(1000, 2000) {
        let name = &shape.name;
        for filled in [0, 500, 1500] {
            let filter = shape.with_keys(&keys(0..filled));
            let endless = filter.room() == u64::MAX;
            assert_eq!(endless, filter.next_growth().is_some(), "{name} with {filled} keys");
            assert!(filter.next_growth().is_none_or(|next| next >= filled), "{name}");
        }
    }
}

#[test]
fn texts_and_auto_clear_are_kept_by_every_content() {
    for shape in every_shape(1000, 1000) {
        let name = &shape.name;
        let mut filter = shape.filter();
        filter.set_note("a note").unwrap();
        filter.set_normalization("lower").unwrap();
        let clears = filter.set_auto_clear(Some(0.75)).is_ok();
        let again = read(&file_of(&filter));
        for filter in [&filter, &again] {
            assert_eq!((filter.note(), filter.normalization()), ("a note", "lower"), "{name}");
            assert_eq!(filter.auto_clear(), clears.then_some(0.75), "{name}");
        }
        assert_eq!(again.plan(), filter.plan(), "{name}");
    }
}

/// For blocks, whose shards are ranges of one array.
#[test]
fn a_filter_in_shards_answers_every_question_as_the_one_array_would() {
    for kind in [Kind::Blocked, Kind::Counting] {
        let plan = Plan::builder(kind).items(3000).rate(1e-3).build().unwrap();
        let mut sharded = Filter::sharded(plan, 3).unwrap();
        sharded.insert_many(&keys(0..3000), &mut Vec::new()).unwrap();
        let whole = sharded.clone().into_whole().unwrap();
        assert_eq!((whole.shards().len(), sharded.shards().len()), (1, 3));
        assert_eq!(sharded.plan(), whole.plan(), "{kind}");
        assert_eq!(sharded.inserted(), whole.inserted(), "{kind}");
        assert_eq!(sharded.occupied(), whole.occupied(), "{kind}");
        assert_eq!(sharded.bytes(), whole.bytes(), "{kind}");
        assert_eq!(sharded.next_growth(), whole.next_growth(), "{kind}");
        let near = |here: f64, there: f64| (here / there - 1.0).abs() < 0.02;
        assert!(near(sharded.fill(), whole.fill()), "{kind}");
        assert!(near(sharded.rate(), whole.rate()), "{kind}");
        let (here, there) = (sharded.estimated_items(), whole.estimated_items());
        assert!(near(here.items, there.items) && near(here.error, there.error), "{kind}");
        assert!(sharded.room().abs_diff(whole.room()) < 300, "{kind}");
        for key in keys(0..5000) {
            assert_eq!(sharded.contains(key), whole.contains(key), "{kind}");
            assert_eq!(sharded.count(key), whole.count(key), "{kind}");
            assert_eq!(sharded.positions(key).unwrap(), whole.positions(key).unwrap(), "{kind}");
        }
        // They have the same bits, and do not meet.
        let error = sharded.clone().merge(&whole).unwrap_err().to_string();
        assert!(error.contains("number of shards: 3 here, 1 there"), "{error}");
        assert!(sharded != whole && whole.clone().intersect(&sharded).is_err());
        assert!(whole.cut_into(3).unwrap() == sharded, "{kind}");
        assert!(sharded.into_growing().is_err(), "{kind}: shards do not grow");
    }
}

/// Of the first shard that is full, those before it would have been merged.
#[test]
fn a_merge_of_shards_that_is_refused_changes_none_of_them() {
    let plan = Plan::builder(Kind::Cuckoo).items(2000).rate(1e-3).build().unwrap();
    let filled = |keys: &[[u8; 8]]| {
        let mut filter = Filter::sharded(plan, 3).unwrap();
        filter.insert_many(keys, &mut Vec::new()).unwrap();
        filter
    };
    let (mut left, right) = (filled(&keys(0..1900)), filled(&keys(1900..3800)));
    let before = left.clone();
    assert!(matches!(left.merge(&right), Err(Error::Full { .. })));
    assert!(left == before && left.inserted() == before.inserted());
}

/// A filter that may grow and has not, an overlay without changes, and a shard that is the only one.
#[test]
fn a_wrapper_answers_every_question_as_what_it_wraps_while_it_adds_nothing() {
    let numbers = keys(0..1000);
    let hasher = Hasher::default();
    let digests: Vec<Digest> = numbers.iter().map(|key| hasher.digest(key)).collect();
    let planned = |kind: Kind| Plan::builder(kind).items(2000).rate(1e-3);
    let mut pairs = Vec::new();
    for kind in [Kind::Blocked, Kind::Classic] {
        let plan = planned(kind).growing().build().unwrap();
        let wrapped = Filter::build(plan, hasher, &digests).unwrap();
        pairs.push((wrapped.clone(), wrapped.into_growing().unwrap()));
    }
    let ribbon = Filter::build(planned(Kind::Ribbon).build().unwrap(), hasher, &digests).unwrap();
    pairs.push((ribbon.clone(), ribbon.into_overlay(1e-3).unwrap()));
    let cuckoo = Filter::build(planned(Kind::Cuckoo).build().unwrap(), hasher, &digests).unwrap();
    pairs.push((cuckoo.clone(), Filter::from_shards(vec![cuckoo]).unwrap()));
    for (wrapped, wrapper) in pairs {
        let kind = wrapped.plan().kind();
        assert!(wrapped == wrapper, "{kind}");
        assert!(wrapper == wrapped, "{kind}");
        assert_eq!(wrapper.plan(), wrapped.plan(), "{kind}");
        assert_eq!(wrapper.inserted(), wrapped.inserted(), "{kind}");
        assert_eq!(wrapper.occupied(), wrapped.occupied(), "{kind}");
        assert_eq!(wrapper.fill(), wrapped.fill(), "{kind}");
        assert_eq!(wrapper.rate(), wrapped.rate(), "{kind}");
        assert_eq!(wrapper.estimated_items().items, wrapped.estimated_items().items, "{kind}");
        assert_eq!(wrapper.profile(8), wrapped.profile(8), "{kind}");
        assert!(wrapper.bytes() >= wrapped.bytes() && wrapper.memory() > 0, "{kind}");
        let details = wrapper.details();
        assert!(wrapped.details().iter().all(|detail| details.contains(detail)), "{kind}");
        for key in keys(0..3000) {
            assert_eq!(wrapper.contains(key), wrapped.contains(key), "{kind}");
            assert_eq!(wrapper.count(key), wrapped.count(key), "{kind}");
            assert_eq!(wrapper.positions(key).ok(), wrapped.positions(key).ok(), "{kind}");
        }
        assert!(wrapper.clone() == wrapped && wrapper.shards().len() == 1, "{kind}");
    }
}

#[test]
fn a_filter_from_words_has_the_bits_of_the_words() {
    let mut filter = Filter::from_words(&[0; 40], 5).unwrap();
    assert_eq!((filter.plan().bits(), filter.plan().probes(), filter.inserted()), (2560, 5, 0));
    for key in 0..200 {
        filter.insert(key).unwrap();
    }
    let words = filter.to_words().unwrap();
    let bits: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
    assert_eq!(bits, filter.occupied());
    let again = Filter::from_words(&words, 5).unwrap();
    assert!(again == filter && (0..200).all(|key| again.contains(key)));
    let estimated = again.inserted() as f64;
    assert!((estimated - filter.estimated_items().items).abs() <= 0.5, "{estimated}");
    assert!(Filter::from_words(&[], 5).is_err() && Filter::from_words(&[0], 0).is_err());
}
