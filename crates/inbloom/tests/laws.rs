//! What holds for every kind in every shape. A law is a function over [`Membership`] that says how
//! it was broken, so that it can be shown to notice: the last test of the first section breaks one.

mod common;

use std::collections::HashSet;

use common::{
    UNIVERSE, count_ones, dense_shapes, key, keys, mean_and_deviation, payload, seeded, shapes,
};
use inbloom::kinds::{bitmap::Bitmap, blocked::Blocked, classic::Classic};
use inbloom::{
    Digest, Error, Filter, Hasher, Key, Kind, Membership, Plan, SharedFilter, measure,
    measure_absent,
};
use proptest::prelude::*;

// -------------------------------------------------------------------- laws of every set of digests

type Verdict = Result<(), String>;

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn insert_all(members: &mut dyn Membership, digests: &[Digest]) -> Vec<bool> {
    let mut new = Vec::new();
    members.insert_digests(digests, &mut new).expect("an insert into memory");
    new
}

fn found_all(members: &dyn Membership, digests: &[Digest]) -> Vec<bool> {
    let mut found = Vec::new();
    members.contains_digests(digests, &mut found);
    found
}

/// What was inserted, one by one or in batches, is found, one by one and in batches.
fn no_false_negatives(members: &mut dyn Membership, digests: &[Digest]) -> Verdict {
    let (one_by_one, in_batches) = digests.split_at(digests.len() / 2);
    for digest in one_by_one {
        members.insert_digest(*digest).expect("an insert into memory");
        ensure(members.contains_digest(*digest), || format!("{digest:?} is denied at once"))?;
    }
    for batch in in_batches.chunks(300) {
        insert_all(members, batch);
    }
    for (digest, found) in digests.iter().zip(found_all(members, digests)) {
        let found = found && members.contains_digest(*digest);
        ensure(found, || format!("{digest:?} is denied at the end"))?;
    }
    Ok(())
}

/// An insert says "new" exactly if a query just before would have said "no".
fn new_exactly_if_absent(members: &mut dyn Membership, digests: &[Digest]) -> Verdict {
    for digest in digests.iter().chain(digests) {
        let before = members.contains_digest(*digest);
        let new = members.insert_digest(*digest).expect("an insert into memory");
        ensure(new != before, || format!("{digest:?}: found {before}, then new {new}"))?;
    }
    Ok(())
}

/// Two sets answer alike, whether they are filled and asked one by one or in batches of any size.
fn batches_answer_like_single_calls(
    single: &mut dyn Membership,
    batch: &mut dyn Membership,
    digests: &[Digest],
) -> Verdict {
    let mut rest = digests;
    for size in [0, 1, 127, 128, 129, 1000].into_iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let now;
        (now, rest) = rest.split_at(size.min(rest.len()));
        let expected: Vec<bool> = now
            .iter()
            .map(|digest| single.insert_digest(*digest).expect("an insert into memory"))
            .collect();
        let new = insert_all(batch, now);
        ensure(new == expected, || format!("inserts of a batch of {size} differ"))?;
        let expected: Vec<bool> =
            digests.iter().map(|digest| single.contains_digest(*digest)).collect();
        let found = found_all(batch, digests);
        ensure(found == expected, || format!("queries differ after a batch of {size}"))?;
    }
    Ok(())
}

/// The sets under test: every kind by itself, behind a filter, and shared between threads.
fn every_set(items: u64) -> Vec<(String, Box<dyn Membership>)> {
    let mut sets: Vec<(String, Box<dyn Membership>)> = Vec::new();
    for (name, plan) in shapes(items) {
        let bare: Box<dyn Membership> = match plan.kind() {
            Kind::Bitmap => Box::new(Bitmap::new(plan).unwrap()),
            Kind::Classic => Box::new(Classic::new(plan).unwrap()),
            Kind::Blocked => Box::new(Blocked::new(plan).unwrap()),
            kind => panic!("no law is tested for kind {kind}"),
        };
        sets.push((name.clone(), bare));
        sets.push((format!("filter over a {name}"), Box::new(Whole(Filter::new(plan).unwrap()))));
        if !plan.is_sparse() {
            let shared = Filter::new(plan).unwrap().into_shared().unwrap();
            sets.push((format!("shared {name}"), Box::new(Racing(shared))));
        }
    }
    sets
}

/// A filter through its own verbs, which count and clear.
struct Whole(Filter);

impl Membership for Whole {
    fn contains_digest(&self, digest: Digest) -> bool {
        self.0.contains_digest(digest)
    }

    fn insert_digest(&mut self, digest: Digest) -> inbloom::Result<bool> {
        self.0.insert_digest(digest)
    }

    fn prefetch(&self, _: &[Digest]) {}

    fn contains_run(&self, run: &[Digest], _: &[Digest], found: &mut [bool]) {
        let mut answers = Vec::new();
        self.0.contains_digests(run, &mut answers);
        found.copy_from_slice(&answers);
    }

    fn insert_run(
        &mut self,
        run: &[Digest],
        _: &[Digest],
        new: &mut Vec<bool>,
    ) -> inbloom::Result<()> {
        let mut answers = Vec::new();
        let result = self.0.insert_digests(run, &mut answers);
        new.extend(answers);
        result
    }
}

/// A shared filter that owns itself, to stand in the list of sets.
struct Racing(SharedFilter);

impl Membership for Racing {
    fn contains_digest(&self, digest: Digest) -> bool {
        self.0.contains_digest(digest)
    }

    fn insert_digest(&mut self, digest: Digest) -> inbloom::Result<bool> {
        self.0.insert_digest(digest)
    }

    fn prefetch(&self, digests: &[Digest]) {
        (&self.0).prefetch(digests);
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        (&self.0).contains_run(run, next, found);
    }

    fn insert_run(
        &mut self,
        run: &[Digest],
        next: &[Digest],
        new: &mut Vec<bool>,
    ) -> inbloom::Result<()> {
        (&self.0).insert_run(run, next, new)
    }
}

/// Digests as the set's filter would make them: integers for a bitmap, hashes for the others.
fn digests(set: &str, count: u64) -> Vec<Digest> {
    let hasher = if set.contains("bitmap") { Hasher::integers() } else { Hasher::default() };
    (0..count).map(|number| hasher.digest(key(number))).collect()
}

fn assert_law(law: impl Fn(&str, &mut dyn Membership) -> Verdict) {
    let mut broken = Vec::new();
    for (name, mut set) in every_set(5000) {
        if let Err(how) = law(&name, set.as_mut()) {
            broken.push(format!("{name}: {how}"));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn no_kind_has_false_negatives() {
    // Also beyond the planned number.
    assert_law(|name, set| no_false_negatives(set, &digests(name, 12_000)));
}

#[test]
fn an_insert_is_new_exactly_if_the_key_was_absent() {
    assert_law(|name, set| new_exactly_if_absent(set, &digests(name, 12_000)));
}

#[test]
fn batches_of_digests_answer_like_single_calls() {
    let mut others = every_set(5000).into_iter();
    let others = std::cell::RefCell::new(&mut others);
    assert_law(|name, set| {
        let (_, mut other) = others.borrow_mut().next().expect("as many as there are");
        batches_answer_like_single_calls(set, other.as_mut(), &digests(name, 6000))
    });
}

/// Drops every hundredth insert.
struct Forgetful {
    kept: Blocked,
    inserts: u64,
}

impl Membership for Forgetful {
    fn contains_digest(&self, digest: Digest) -> bool {
        self.kept.contains_digest(digest)
    }

    fn insert_digest(&mut self, digest: Digest) -> inbloom::Result<bool> {
        self.inserts += 1;
        if self.inserts.is_multiple_of(100) {
            return Ok(!self.kept.contains_digest(digest));
        }
        self.kept.insert_digest(digest)
    }

    fn prefetch(&self, digests: &[Digest]) {
        self.kept.prefetch(digests);
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        self.kept.contains_run(run, next, found);
    }

    fn insert_run(
        &mut self,
        run: &[Digest],
        _: &[Digest],
        new: &mut Vec<bool>,
    ) -> inbloom::Result<()> {
        for digest in run {
            new.push(self.insert_digest(*digest)?);
        }
        Ok(())
    }
}

#[test]
fn the_laws_notice_a_set_that_forgets_every_hundredth_key() {
    let plan = Plan::new(Kind::Blocked).items(5000).rate(1e-6).build().unwrap();
    let forgetful = || Forgetful { kept: Blocked::new(plan).unwrap(), inserts: 0 };
    let digests = digests("blocked", 5000);
    let how = no_false_negatives(&mut forgetful(), &digests).expect_err("a broken law");
    assert!(how.contains("is denied at once"), "{how}");
    // The hundredth insert is in a batch here.
    let how = no_false_negatives(&mut forgetful(), &digests[..198]).expect_err("a broken law");
    assert!(how.contains("is denied at the end"), "{how}");
    let mut honest = Blocked::new(plan).unwrap();
    let how = batches_answer_like_single_calls(&mut honest, &mut forgetful(), &digests);
    assert_eq!(how.expect_err("a broken law"), "queries differ after a batch of 127");
}

// ------------------------------------------------------------------------------ laws of the filter

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

#[test]
fn batches_of_keys_leave_the_bits_counts_and_answers_of_single_calls() {
    for (name, plan) in shapes(2000) {
        let mut single = Filter::new(plan).unwrap();
        let mut of_keys = Filter::new(plan).unwrap();
        let mut of_digests = Filter::new(plan).unwrap();
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
                assert_eq!(filter.ones(), single.ones(), "{name}");
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
    for (name, plan) in shapes(1000) {
        let mut filter = with_keys(plan, &keys(0..500));
        filter.set_note("a note").unwrap();
        let clone = filter.clone();
        assert!(clone == filter, "{name}");
        assert_eq!((clone.inserted(), clone.ones()), (filter.inserted(), filter.ones()), "{name}");
        assert_eq!(clone.note(), "a note");
        filter.insert(key(5000)).unwrap();
        assert!(clone != filter && !clone.contains(key(5000)), "{name}");
        assert_members(&clone, &keys(0..500), &name);
    }
}

#[test]
fn filters_are_equal_if_plan_hash_and_bits_are() {
    for (name, plan) in shapes(1000) {
        let one = with_keys(plan, &keys(0..500));
        let mut reversed = keys(0..500);
        reversed.reverse();
        let mut other = with_keys(plan, &reversed);
        other.set_note("counts and notes may differ").unwrap();
        assert!(one == other, "{name}: the order of inserts does not matter");
        assert!(one != with_keys(plan, &keys(0..501)), "{name}");
        if plan.kind() != Kind::Bitmap {
            assert!(seeded(plan, 1) != seeded(plan, 2), "{name}: other hashes, other filters");
        }
    }
}

#[test]
fn a_cleared_filter_is_empty_and_every_key_is_new_again() {
    for (name, plan) in shapes(1000) {
        let mut filter = with_keys(plan, &keys(0..1000));
        filter.set_note("stays").unwrap();
        filter.clear().unwrap();
        assert!(filter == Filter::new(plan).unwrap(), "{name}");
        assert_eq!((filter.ones(), filter.fill(), filter.inserted()), (0, 0.0, 0), "{name}");
        assert_eq!(filter.note(), "stays");
        assert!(filter.insert(key(0)).unwrap(), "{name}");
        let again = keys(0..1000);
        assert!(!again[1..].iter().all(|key| filter.contains(key)), "{name}");
        filter.clear().unwrap();
        let mut first = Filter::new(plan).unwrap();
        for key in &again {
            assert_eq!(filter.insert(key).unwrap(), first.insert(key).unwrap(), "{name}");
        }
    }
}

#[test]
fn a_merge_contains_both_and_equals_inserting_both() {
    for (name, plan) in shapes(2000) {
        let mut left = with_keys(plan, &keys(0..1200));
        let right = with_keys(plan, &keys(800..2000));
        left.merge(&right).unwrap();
        assert_members(&left, &keys(0..2000), &name);
        let both = with_keys(plan, &keys(0..2000));
        assert!(left == both, "{name}");
        assert_eq!(left.ones(), both.ones(), "{name}");
    }
}

#[test]
fn an_intersection_contains_the_common_keys() {
    for (name, plan) in shapes(2000) {
        let mut left = with_keys(plan, &keys(0..1200));
        let right = with_keys(plan, &keys(800..2000));
        left.intersect(&right).unwrap();
        assert_members(&left, &keys(800..1200), &name);
        if plan.kind() == Kind::Bitmap {
            assert!(left == with_keys(plan, &keys(800..1200)), "{name} is exact");
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
    for (name, plan) in shapes(2000) {
        let (left, right) = (with_keys(plan, &keys(0..1200)), with_keys(plan, &keys(800..2000)));
        let mut merged = left.clone();
        merged.merge(&right).unwrap();
        let count = merged.inserted();
        assert!(count >= left.inserted().max(right.inserted()), "{name}: {count}");
        assert!(count <= left.inserted() + right.inserted(), "{name}: {count}");
        let estimate = merged.estimated_items();
        let off = (count as f64 - 2000.0).abs();
        assert!(off <= 4.0 * estimate.error + 0.5, "{name}: {count} of 2000, {estimate:?}");
        // Merging what is there already adds nothing.
        let mut twice = left.clone();
        twice.merge(&left).unwrap();
        assert!(twice == left, "{name}");
        let off = (twice.inserted() as f64 - 1200.0).abs();
        assert!(off <= 4.0 * left.estimated_items().error + 0.5, "{name}: off by {off}");
    }
}

#[test]
fn a_merge_of_filters_that_differ_is_refused_with_the_field_and_both_values() {
    let plan = |bits: u64, probes: u32| Plan::exact(Kind::Classic, bits, probes).unwrap();
    let lines = |lines: u32| {
        let plan = Plan::new(Kind::Blocked).items(100).bytes(1024);
        plan.lines(lines).probes(8).build().unwrap()
    };
    let bitmap = |items: u64| Plan::new(Kind::Bitmap).universe(1 << 20).items(items);
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
                     both must be made from the same plan and hash"
                ),
                "{verb}"
            );
        }
        assert!(left == before && left != right);
    };
    check(new(plan(512, 4)), new(lines(1)), "kind: classic here, blocked there");
    check(new(plan(512, 4)), new(plan(1024, 4)), "bits: 512 here, 1024 there");
    check(new(plan(512, 4)), new(plan(512, 5)), "probes: 4 here, 5 there");
    check(new(lines(1)), new(lines(2)), "lines: 1 here, 2 there");
    check(
        new(bitmap(10).build().unwrap()),
        new(bitmap(1 << 19).build().unwrap()),
        "layout: sparse here, dense there",
    );
    check(hashed(Hasher::xxh3(1)), hashed(Hasher::xxh3(2)), "hash seed: 1 here, 2 there");
    let (one, two) = (Key::new([1; 16]), Key::new([2; 16]));
    check(
        hashed(Hasher::xxh3(0)),
        hashed(Hasher::sip13(one)),
        "hash: xxh3-128 here, siphash-1-3-128 (keyed) there",
    );
    let error =
        hashed(Hasher::sip13(one)).merge(&hashed(Hasher::sip13(two))).expect_err("a refusal");
    let text = error.to_string();
    // The check values are what the files keep; the keys themselves are not shown.
    assert!(text.starts_with("the filters differ in hash key: one with check "), "{text}");
    assert_eq!(text.matches("one with check").count(), 2, "{text}");
    let shown: Vec<&str> = text.split("one with check ").skip(1).map(|rest| &rest[..16]).collect();
    assert!(
        shown[0] != shown[1] && shown[0].chars().all(|digit| digit.is_ascii_hexdigit()),
        "{text}"
    );
}

#[test]
fn plans_for_other_items_and_rates_merge_if_their_bits_agree() {
    let wished = Plan::new(Kind::Classic).items(1000).bytes(2000).probes(7).build().unwrap();
    let other = Plan::new(Kind::Classic).items(1500).bytes(2000).probes(7).build().unwrap();
    let mut filter = with_keys(wished, &keys(0..100));
    filter.merge(&with_keys(other, &keys(100..200))).unwrap();
    assert_members(&filter, &keys(0..200), "classic");
}

#[test]
fn the_positions_of_a_key_are_the_bits_that_its_insert_sets() {
    for (name, plan) in dense_shapes(200) {
        for number in 0..200 {
            let key = key(number);
            let mut filter = Filter::new(plan).unwrap();
            let mut positions = filter.positions(key).unwrap();
            assert!(!filter.contains_positions(&positions), "{name}");
            filter.insert(key).unwrap();
            assert!(filter.contains_positions(&positions), "{name}");
            let bytes = payload(&filter);
            let set: Vec<u64> = (0..plan.bits())
                .filter(|position| bytes[(position / 8) as usize] >> (position % 8) & 1 == 1)
                .collect();
            positions.sort_unstable();
            positions.dedup();
            assert_eq!(positions, set, "{name}");
            assert_eq!(filter.ones(), set.len() as u64, "{name}");
            if let Some(absent) = (0..plan.bits()).find(|position| !set.contains(position)) {
                positions.push(absent);
                assert!(!filter.contains_positions(&positions), "{name}");
            }
        }
    }
}

#[test]
fn positions_answer_as_keys_do_and_there_are_none_outside() {
    for (name, plan) in shapes(1000) {
        let filter = with_keys(plan, &keys(0..1000));
        for key in keys(0..3000) {
            let found = filter.contains_positions(&filter.positions(key).unwrap());
            assert_eq!(found, filter.contains(key), "{name}");
        }
        for outside in [plan.bits().max(plan.bytes() * 8), u64::MAX] {
            assert!(!filter.contains_positions(&[outside]), "{name}");
        }
        assert!(filter.contains_positions(&[]), "{name}: of nothing, all is there");
    }
}

#[test]
fn the_count_of_set_bits_is_that_of_the_payload_after_every_verb() {
    for (name, plan) in dense_shapes(1000) {
        let mut filter = Filter::new(plan).unwrap();
        let check = |filter: &Filter, after: &str| {
            let counted = count_ones(&payload(filter));
            assert_eq!(filter.ones(), counted, "{name}, after {after}");
            let usable = match plan.kind() {
                Kind::Blocked => plan.bits() / 512 * 511,
                _ => plan.bits(),
            };
            assert_eq!(filter.fill(), counted as f64 / usable as f64, "{name}, after {after}");
        };
        check(&filter, "nothing");
        for key in keys(0..100) {
            filter.insert(key).unwrap();
        }
        check(&filter, "single inserts");
        filter.insert_many(&keys(50..700), &mut Vec::new()).unwrap();
        check(&filter, "a batch");
        filter.merge(&with_keys(plan, &keys(500..1200))).unwrap();
        check(&filter, "a merge");
        filter.intersect(&with_keys(plan, &keys(100..800))).unwrap();
        check(&filter, "an intersection");
        if plan.kind() == Kind::Bitmap {
            filter.remove(key(300)).unwrap();
            check(&filter, "a removal");
        }
        let shared = filter.into_shared().unwrap();
        shared.insert(key(2000)).unwrap();
        shared.insert_many(&keys(1900..2100), &mut Vec::new()).unwrap();
        filter = shared.into_exclusive();
        check(&filter, "sharing");
        let mut file = Vec::new();
        filter.write_to(&mut file).unwrap();
        check(&Filter::read_from(&file[..]).unwrap(), "writing and reading");
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
    ] {
        let filter = with_keys(plan, &keys(0..20_000));
        assert_eq!(filter.fill(), 1.0, "{plan:?}");
        assert!(keys(20_000..21_000).iter().all(|key| filter.contains(key)), "{plan:?}");
        assert!(filter.rate() > 0.9, "{plan:?}: {}", filter.rate());
        let estimate = filter.estimated_items();
        assert!(estimate.items.is_finite() && estimate.items < 20_000.0, "{estimate:?}");
    }
}

// --------------------------------------------------------------------------------------- estimates

#[test]
fn the_estimate_of_items_is_off_by_what_it_says() {
    const ITEMS: u64 = 4000;
    const FILTERS: u64 = 200;
    let mut broken = Vec::new();
    for (name, plan) in shapes(ITEMS) {
        for load in [0.5, 1.0, 2.0] {
            let items = (ITEMS as f64 * load) as u64;
            let (mut off, mut stated) = (Vec::new(), Vec::new());
            for seed in 0..FILTERS {
                let mut filter = seeded(plan, seed);
                filter.insert_many(&keys(0..items), &mut Vec::new()).unwrap();
                let estimate = filter.estimated_items();
                off.push(estimate.items - items as f64);
                stated.push(estimate.error);
            }
            if plan.kind() == Kind::Bitmap {
                assert!(off.iter().chain(&stated).all(|error| *error == 0.0), "{name} is exact");
                continue;
            }
            let (bias, deviation) = mean_and_deviation(&off);
            let (error, _) = mean_and_deviation(&stated);
            // The deviation of 200 values is itself known to 5%, and their mean to 7% of it.
            if (deviation / error - 1.0).abs() > 0.2 || bias.abs() > 0.3 * error {
                broken.push(format!(
                    "{name}, {items} items: stated {error:.2}, is {deviation:.2}, mean {bias:+.2}"
                ));
            }
            // Of 6600 estimates, none is expected this far off.
            let worst = off.iter().map(|off| off.abs() / error).fold(0.0, f64::max);
            if worst > 4.5 {
                broken.push(format!("{name}, {items} items: off by {worst:.1} stated errors"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_rate_of_a_filter_follows_from_the_bits_that_are_set() {
    for (name, plan) in shapes(4000) {
        let filter = with_keys(plan, &keys(0..4000));
        let expected = plan.rate_at(4000.0);
        if plan.kind() == Kind::Bitmap {
            assert_eq!(filter.rate(), 0.0);
        } else {
            let share = filter.rate() / expected;
            assert!((0.6..1.6).contains(&share), "{name}: {} for {expected}", filter.rate());
        }
        assert_eq!(Filter::new(plan).unwrap().rate(), 0.0, "{name}");
    }
}

#[test]
fn what_was_told_new_is_counted() {
    for (name, plan) in shapes(2000) {
        let mut filter = Filter::new(plan).unwrap();
        let mut told = 0;
        for key in keys(0..2000).iter().chain(&keys(0..2000)) {
            told += u64::from(filter.insert(key).unwrap());
        }
        assert_eq!(filter.inserted(), told, "{name}");
        assert!(told <= 2000, "{name}: a lower bound");
    }
}

// -------------------------------------------------------------------------------------- auto-clear

#[test]
fn past_its_share_a_filter_empties_itself_and_keeps_the_key_of_that_insert() {
    for (name, plan) in shapes(300) {
        if plan.is_sparse() {
            continue;
        }
        let share = plan.fill_at(250.0);
        let mut filter = Filter::new(plan).unwrap();
        filter.set_auto_clear(Some(share)).unwrap();
        assert_eq!(filter.auto_clear(), Some(share));
        let mut number = 0;
        while filter.fill() <= share {
            filter.insert(key(number)).unwrap();
            number += 1;
        }
        let older = keys(0..number);
        assert_members(&filter, &older, &name);
        assert!(filter.insert(key(number)).unwrap(), "{name}: new, whatever was there");
        let only = with_keys(plan, &[key(number)]);
        assert!(filter == only, "{name}: only the last key is left");
        assert_eq!(filter.inserted(), 1, "{name}");
        let mut afresh = only.clone();
        for key in &older[..older.len() / 2] {
            assert_eq!(filter.insert(key).unwrap(), afresh.insert(key).unwrap(), "{name}");
        }
        filter.set_auto_clear(None).unwrap();
        filter.insert_many(&keys(0..2 * number), &mut Vec::new()).unwrap();
        assert_members(&filter, &keys(0..2 * number), &name);
    }
}

#[test]
fn batches_clear_where_single_inserts_would() {
    for (name, plan) in shapes(300) {
        let share = plan.fill_at(250.0);
        let mut single = Filter::new(plan).unwrap();
        single.set_auto_clear(Some(share)).unwrap();
        let (mut of_keys, mut of_digests) = (single.clone(), single.clone());
        let (mut new, mut new_too) = (Vec::new(), Vec::new());
        let (mut first, mut cleared) = (0, 0);
        for size in [0, 1, 127, 128, 129, 1000, 3, 500] {
            let keys = keys(first..first + size);
            first += size;
            let mut expected = Vec::new();
            for key in &keys {
                let before = single.inserted();
                expected.push(single.insert(key).unwrap());
                cleared += u32::from(single.inserted() < before);
            }
            of_keys.insert_many(&keys, &mut new).unwrap();
            let digests: Vec<Digest> = keys.iter().map(|key| of_digests.digest(key)).collect();
            of_digests.insert_digests(&digests, &mut new_too).unwrap();
            assert_eq!((&new, &new_too), (&expected, &expected), "{name}, batch of {size}");
            for filter in [&of_keys, &of_digests] {
                assert!(*filter == single, "{name}, batch of {size}: bits differ");
                assert_eq!(filter.inserted(), single.inserted(), "{name}");
            }
        }
        assert!(cleared >= 3, "{name} cleared itself {cleared} times");
    }
}

#[test]
fn a_key_that_is_refused_clears_nothing() {
    let mut filter = Filter::new(Plan::new(Kind::Bitmap).universe(100).build().unwrap()).unwrap();
    filter.set_auto_clear(Some(0.5)).unwrap();
    let values: Vec<[u8; 8]> = (0..60_u64).map(u64::to_le_bytes).collect();
    filter.insert_many(&values[..51], &mut Vec::new()).unwrap();
    assert!(filter.fill() > 0.5);
    assert!(filter.insert(100_u64.to_le_bytes()).is_err());
    assert!(filter.insert_many(&[100_u64.to_le_bytes()], &mut Vec::new()).is_err());
    assert_members(&filter, &values[..51], "after the refusal");
}

#[test]
fn a_share_that_is_no_share_is_refused() {
    let mut filter = Filter::new(Plan::new(Kind::Blocked).items(10).build().unwrap()).unwrap();
    for (share, shown) in
        [(0.0, "0"), (1.0, "1"), (-0.5, "-0.5"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")]
    {
        assert_eq!(
            filter.set_auto_clear(Some(share)).expect_err("a refusal").to_string(),
            format!("auto-clear is {shown}, but must be a share strictly between 0 and 1")
        );
    }
    assert_eq!(filter.auto_clear(), None);
}

// ----------------------------------------------------------------------------------------- bitmaps

#[test]
fn integers_come_out_sorted_and_once() {
    for items in [None, Some(1)] {
        let mut plan = Plan::new(Kind::Bitmap).universe(100_000);
        if let Some(items) = items {
            plan = plan.items(items);
        }
        let plan = plan.build().unwrap();
        assert_eq!(plan.is_sparse(), items.is_some());
        let mut filter = Filter::new(plan).unwrap();
        for value in [4, 7, 2, 5, 3, 7_u64] {
            filter.insert(value.to_le_bytes()).unwrap();
        }
        let sorted: Vec<u64> = filter.as_bitmap().unwrap().iter().collect();
        assert_eq!(sorted, [2, 3, 4, 5, 7]);
        for value in [0, 63, 64, 99_999_u64] {
            filter.insert(value.to_le_bytes()).unwrap();
        }
        let sorted: Vec<u64> = filter.as_bitmap().unwrap().iter().collect();
        assert_eq!(sorted, [0, 2, 3, 4, 5, 7, 63, 64, 99_999]);
        assert_eq!(filter.as_bitmap().unwrap().len(), 9);
    }
}

#[test]
fn an_integer_is_the_same_in_any_number_of_bytes() {
    let mut filter = Filter::new(Plan::new(Kind::Bitmap).universe(300).build().unwrap()).unwrap();
    assert!(filter.insert([7]).unwrap());
    for bytes in [&7_u16.to_le_bytes()[..], &7_u32.to_le_bytes(), &7_u64.to_le_bytes()] {
        assert!(filter.contains(bytes) && !filter.insert(bytes).unwrap());
    }
    assert!(!filter.contains(""), "nothing is 0");
}

#[test]
fn values_outside_the_universe_are_refused_and_never_found() {
    for plan in [
        Plan::new(Kind::Bitmap).universe(1000).build().unwrap(),
        Plan::new(Kind::Bitmap).universe(1000).items(1).build().unwrap(),
    ] {
        let mut filter = Filter::new(plan).unwrap();
        for value in [1000, u64::MAX] {
            assert!(!filter.contains(value.to_le_bytes()));
            assert_eq!(
                filter.insert(value.to_le_bytes()).expect_err("a refusal").to_string(),
                format!("the bitmap holds integers below 1000, got {value}")
            );
            assert!(!filter.remove(value.to_le_bytes()).unwrap());
        }
        assert!(!filter.contains("nine bytes"));
        assert!(!filter.remove("nine bytes").unwrap());
        assert_eq!(
            filter.insert("nine bytes").expect_err("a refusal").to_string(),
            "the bitmap holds integers below 1000, got a key of more than 8 bytes; \
             give integers as little-endian bytes"
        );
        // In a batch, what comes before the refusal is recorded, and the answers tell how much.
        let batch = [1, 2, 1000, 3_u64].map(u64::to_le_bytes);
        let mut new = Vec::new();
        assert!(filter.insert_many(&batch, &mut new).is_err());
        assert_eq!(new, [true, true]);
        assert_eq!((filter.inserted(), filter.ones()), (2, 2));
        if !plan.is_sparse() {
            let shared = filter.into_shared().unwrap();
            assert!(!shared.contains(1000_u64.to_le_bytes()));
            assert!(shared.insert(1000_u64.to_le_bytes()).is_err());
            assert!(shared.insert_many(&batch, &mut new).is_err());
            assert_eq!(new, [false, false]);
            assert_eq!((shared.inserted(), shared.ones()), (2, 2));
        }
    }
}

#[test]
fn a_bitmap_forgets_what_is_removed_and_nothing_else() {
    for (name, plan) in shapes(1000) {
        let mut filter = with_keys(plan, &keys(0..1000));
        if plan.kind() != Kind::Bitmap {
            let remedy =
                "its keys share bits; use a bitmap if the keys are integers, or build anew";
            assert_eq!(
                filter.remove(key(1)).expect_err("a refusal").to_string(),
                format!("kind {} cannot remove: {remedy}", plan.kind())
            );
            assert_members(&filter, &keys(0..1000), &name);
            continue;
        }
        for key in keys(0..500) {
            assert!(filter.remove(key).unwrap(), "{name}");
            assert!(!filter.remove(key).unwrap(), "{name}: it is gone");
            assert!(!filter.contains(key), "{name}");
        }
        assert!(filter == with_keys(plan, &keys(500..1000)), "{name}");
        assert_eq!((filter.inserted(), filter.ones()), (500, 500), "{name}");
    }
}

// ------------------------------------------------------------------------------------------ hashes

#[test]
fn seeds_and_secret_keys_make_different_filters_of_the_same_keys() {
    let plan = Plan::new(Kind::Blocked).items(1000).rate(0.01).build().unwrap();
    let hashers = [
        Hasher::xxh3(0),
        Hasher::xxh3(1),
        Hasher::sip13(Key::new([1; 16])),
        Hasher::sip13(Key::new([2; 16])),
    ];
    let filters: Vec<Filter> = hashers
        .iter()
        .map(|hasher| {
            let mut filter = Filter::with_hasher(plan, *hasher).unwrap();
            filter.insert_many(&keys(0..1000), &mut Vec::new()).unwrap();
            assert_members(&filter, &keys(0..1000), hasher.name());
            assert_eq!(filter.hasher(), hasher);
            filter
        })
        .collect();
    for (i, one) in filters.iter().enumerate() {
        for other in &filters[i + 1..] {
            assert!(one != other);
            // What one claims wrongly, the other denies: of 1% few are in common.
            let foreign = keys(1000..101_000);
            let both = foreign.iter().filter(|key| one.contains(key) && other.contains(key));
            let both = both.count();
            assert!(both < 40, "{both} of 100,000 claimed by both, 10 expected");
        }
    }
}

#[test]
fn a_hash_that_does_not_fit_the_kind_is_refused() {
    let text = |plan: Plan, hasher| Filter::with_hasher(plan, hasher).unwrap_err().to_string();
    let bitmap = Plan::new(Kind::Bitmap).universe(10).build().unwrap();
    assert_eq!(
        text(bitmap, Hasher::default()),
        "kind bitmap cannot hash its keys: it is exact; use Hasher::integers()"
    );
    for kind in [Kind::Classic, Kind::Blocked] {
        assert_eq!(
            text(Plan::new(kind).items(10).build().unwrap(), Hasher::integers()),
            format!(
                "kind {kind} cannot do without a hash: \
                 only a bitmap can; use Hasher::xxh3 or Hasher::sip13"
            )
        );
    }
}

// ------------------------------------------------------------------------------------- measurement

#[test]
fn a_measurement_finds_the_promise_kept() {
    for (name, plan) in shapes(2000) {
        if plan.is_sparse() {
            continue; // fills half of its universe, which is too large here
        }
        let measured = measure(&plan, 100_000, 7).unwrap();
        assert!(measured.keeps_promise(), "{name}: {measured:?}");
        assert_eq!(measured.promised, plan.rate());
        assert_eq!(measured.probed, 100_000);
        assert_eq!(measured.rate, measured.false_positives as f64 / 1e5);
        assert!(measured.low <= measured.rate && measured.rate <= measured.high, "{measured:?}");
        if plan.kind() == Kind::Bitmap {
            assert_eq!((measured.false_positives, measured.inserted), (0, UNIVERSE / 2));
        } else {
            assert_eq!(measured.inserted, 2000);
            // The promise is what the model says, so it is within the interval and not only above.
            assert!(
                plan.rate() < 1e-4 || measured.high >= plan.rate() * 0.8,
                "{name}: {measured:?}"
            );
        }
    }
}

#[test]
fn a_measurement_finds_a_broken_promise() {
    for kind in [Kind::Classic, Kind::Blocked] {
        let plan = Plan::new(kind).items(2000).rate(0.01).build().unwrap();
        let foreign = || (1 << 30..(1 << 30) + 100_000_u64).map(u64::to_le_bytes);
        let kept = measure_absent(&with_keys(plan, &keys(0..2000)), foreign());
        assert!(kept.keeps_promise(), "{kind}: {kept:?}");
        let overfull = measure_absent(&with_keys(plan, &keys(0..2600)), foreign());
        assert!(!overfull.keeps_promise(), "{kind}: {overfull:?}");
        assert!(overfull.low > 0.01 && overfull.rate > 0.015, "{kind}: {overfull:?}");
        assert_eq!(overfull.probed, 100_000);
        let nothing = measure_absent(&Filter::new(plan).unwrap(), [[0; 8]; 0]);
        assert!(nothing.keeps_promise() && nothing.probed == 0, "{kind}: {nothing:?}");
    }
}

// ---------------------------------------------------------------------- any sequence of operations

#[derive(Clone, Debug)]
enum Operation {
    Insert(u64),
    InsertMany(Vec<u64>),
    Merge(Vec<u64>),
    Intersect(Vec<u64>),
    Remove(u64),
    Clear,
    WriteAndRead,
    ShareInsertAndTakeBack(Vec<u64>),
    Clone,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let number = 0..600_u64;
    let numbers = prop::collection::vec(0..600_u64, 0..300);
    let operation = prop_oneof![
        8 => number.clone().prop_map(Operation::Insert),
        4 => numbers.clone().prop_map(Operation::InsertMany),
        2 => numbers.clone().prop_map(Operation::Merge),
        1 => numbers.clone().prop_map(Operation::Intersect),
        2 => number.prop_map(Operation::Remove),
        1 => Just(Operation::Clear),
        2 => Just(Operation::WriteAndRead),
        2 => numbers.prop_map(Operation::ShareInsertAndTakeBack),
        1 => Just(Operation::Clone),
    ];
    prop::collection::vec(operation, 1..25)
}

/// Does the operation to the filter and to a plain set of numbers. Answers are compared on the way:
/// "new" is certain, "seen" is certain for a bitmap.
fn apply(filter: &mut Filter, model: &mut HashSet<u64>, operation: &Operation) {
    let exact = filter.plan().kind() == Kind::Bitmap;
    let check = |new: bool, was_new: bool| assert!(new == was_new || (!new && !exact));
    let keys_of = |numbers: &[u64]| numbers.iter().map(|n| key(*n)).collect::<Vec<_>>();
    match operation {
        Operation::Insert(number) => {
            check(filter.insert(key(*number)).unwrap(), model.insert(*number));
        }
        Operation::InsertMany(numbers) => {
            let mut new = Vec::new();
            filter.insert_many(&keys_of(numbers), &mut new).unwrap();
            for (number, new) in numbers.iter().zip(new) {
                check(new, model.insert(*number));
            }
        }
        Operation::Merge(numbers) => {
            filter.merge(&with_keys(*filter.plan(), &keys_of(numbers))).unwrap();
            model.extend(numbers);
        }
        Operation::Intersect(numbers) => {
            filter.intersect(&with_keys(*filter.plan(), &keys_of(numbers))).unwrap();
            model.retain(|number| numbers.contains(number));
        }
        Operation::Remove(number) => match filter.remove(key(*number)) {
            Ok(removed) => assert_eq!(removed, model.remove(number)),
            Err(_) => assert!(!exact),
        },
        Operation::Clear => {
            filter.clear().unwrap();
            model.clear();
        }
        Operation::WriteAndRead => {
            let mut file = Vec::new();
            filter.write_to(&mut file).unwrap();
            let read = Filter::read_from(&file[..]).unwrap();
            assert!(read == *filter && read.inserted() == filter.inserted());
            *filter = read;
        }
        Operation::ShareInsertAndTakeBack(numbers) => {
            if filter.plan().is_sparse() {
                return;
            }
            let taken = std::mem::replace(filter, Filter::new(*filter.plan()).unwrap());
            let shared = taken.into_shared().unwrap();
            for number in numbers {
                check(shared.insert(key(*number)).unwrap(), model.insert(*number));
            }
            *filter = shared.into_exclusive();
        }
        Operation::Clone => *filter = filter.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(60)
    })]

    #[test]
    fn any_sequence_of_operations_keeps_every_member(operations in operations()) {
        for (name, plan) in shapes(600) {
            let mut filter = Filter::new(plan).unwrap();
            let mut model = HashSet::new();
            for operation in &operations {
                apply(&mut filter, &mut model, operation);
                for number in &model {
                    prop_assert!(filter.contains(key(*number)), "{} after {:?}", name, operation);
                }
            }
            if plan.kind() == Kind::Bitmap {
                prop_assert_eq!(filter.as_bitmap().unwrap().len(), model.len() as u64);
                prop_assert_eq!(filter.inserted(), model.len() as u64, "{}", name);
            } else {
                prop_assert_eq!(filter.ones(), count_ones(&payload(&filter)));
            }
        }
    }
}

#[test]
fn a_key_that_is_no_integer_is_at_no_position_of_a_bitmap() {
    for universe in [1 << 10, u64::MAX] {
        let mut filter =
            Filter::new(Plan::new(Kind::Bitmap).universe(universe).build().unwrap()).unwrap();
        filter.insert(0_u64.to_le_bytes()).unwrap();
        let key = "more than eight bytes";
        assert!(!filter.contains(key));
        assert!(!filter.contains_positions(&filter.positions(key).unwrap()));
    }
}

#[test]
fn measuring_a_sparse_bitmap_takes_the_planned_items_only() {
    let plan = Plan::new(Kind::Bitmap).universe(1 << 40).items(1000).build().unwrap();
    assert!(plan.is_sparse());
    let measured = measure(&plan, 5000, 1).unwrap();
    assert_eq!((measured.inserted, measured.probed, measured.false_positives), (1000, 5000, 0));
}

#[test]
fn nothing_to_insert_is_no_change_to_refuse() {
    let mut bytes = Vec::new();
    let plan = Plan::new(Kind::Blocked).items(10).build().unwrap();
    Filter::new(plan).unwrap().write_to(&mut bytes).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("read-only.ib");
    std::fs::write(&path, &bytes).unwrap();
    let mut filter = inbloom::file::open(&path).unwrap();
    let (none, mut new) = ([""; 0], Vec::new());
    filter.insert_many(&none, &mut new).unwrap();
    filter.insert_digests(&[], &mut new).unwrap();
    assert!(matches!(filter.insert_many(&["a"], &mut new), Err(Error::ReadOnly)));
}

#[test]
fn a_plan_from_bits_and_probes_is_for_a_key_at_least() {
    let plan = Plan::exact(Kind::Classic, 10, 7).unwrap();
    assert_eq!(plan.items(), 1);
    assert!(plan.rate() > 0.0);
    assert_eq!(Plan::exact(Kind::Classic, 1, 1).unwrap().fill_at(0.0), 0.0);
}

#[test]
fn a_measurement_without_probes_says_nothing() {
    let plan = Plan::new(Kind::Blocked).items(10).build().unwrap();
    let measured = measure_absent(&Filter::new(plan).unwrap(), [""; 0]);
    assert_eq!((measured.probed, measured.low, measured.high), (0, 0.0, 1.0));
}
