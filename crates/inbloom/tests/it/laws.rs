//! What holds for every kind in every shape. A law is a function over [`Membership`] or [`Removal`]
//! that says how it was broken, so that it can be shown to notice: the last tests of the first
//! section break each of them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::common::{
    UNIVERSE, cuckoos, file_of, insert_over_time, key, keys, max_count, mean_and_deviation, mix,
    seeded, shapes, shapes_for, used_cells,
};
use inbloom::kinds::window::Window;
use inbloom::kinds::{
    bitmap::Bitmap, blocked::Blocked, classic::Classic, counting::Counting, cuckoo::Cuckoo,
    scalable::Scalable,
};
use inbloom::{
    Digest, Error, Filter, Hasher, Kind, Membership, Plan, SecretKey, SharedFilter, Span, file,
    measure, measure_absent,
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

/// A set that can take digests out again.
trait Removal: Membership {
    fn remove_digest(&mut self, digest: Digest) -> inbloom::Result<bool>;
}

/// What is removed was in and, but for the rate, is no more; what is not removed stays. A digest
/// that is claimed by accident is not removed: that would be the caller's mistake.
fn removals_keep_the_others(
    set: &mut dyn Removal,
    gone: &[Digest],
    kept: &[Digest],
    rate: f64,
) -> Verdict {
    insert_all(set, gone);
    insert_all(set, kept);
    for digest in gone {
        let removed = set.remove_digest(*digest).expect("a removal from memory");
        ensure(removed, || format!("{digest:?} was in, says nobody but us"))?;
    }
    let denied = found_all(set, kept).into_iter().filter(|found| !found).count();
    ensure(denied == 0, || format!("{denied} of {} others are denied", kept.len()))?;
    let count = gone.len() as f64;
    let left = found_all(set, gone).into_iter().filter(|found| *found).count() as f64;
    let most = count * rate + 5.0 * (count * rate).sqrt();
    ensure(left <= most, || format!("{left} of {count} are left, at most {most:.1} explained"))
}

/// The sets under test: every kind by itself, behind a filter, and shared between threads; planned
/// for `items`, with room for `most` where there is an end to it.
fn every_set(items: u64, most: u64) -> Vec<(String, Box<dyn Membership>)> {
    let mut sets: Vec<(String, Box<dyn Membership>)> = Vec::new();
    for (name, plan) in shapes_for(items, most) {
        let bare: Box<dyn Membership> = match plan.kind() {
            Kind::Bitmap => Box::new(Bitmap::new(plan).unwrap()),
            Kind::Classic => Box::new(Classic::new(plan).unwrap()),
            Kind::Blocked => Box::new(Blocked::new(plan).unwrap()),
            Kind::Counting => Box::new(Counting::new(plan).unwrap()),
            Kind::Cuckoo => Box::new(Cuckoo::new(plan).unwrap()),
            Kind::Scalable => Box::new(Scalable::new(plan).unwrap()),
            Kind::Window => Box::new(Window::new(plan).unwrap()),
            kind => panic!("no law is tested for kind {kind}"),
        };
        sets.push((name.clone(), bare));
        sets.push((format!("filter over a {name}"), Box::new(Whole(Filter::new(plan).unwrap()))));
        let shared = Filter::new(plan).unwrap().into_shared().unwrap();
        sets.push((format!("shared {name}"), Box::new(Racing(shared))));
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

impl Removal for Whole {
    fn remove_digest(&mut self, digest: Digest) -> inbloom::Result<bool> {
        self.0.remove_digest(digest)
    }
}

impl Removal for Racing {
    fn remove_digest(&mut self, digest: Digest) -> inbloom::Result<bool> {
        self.0.remove_digest(digest)
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

fn assert_law(most: u64, law: impl Fn(&str, &mut dyn Membership) -> Verdict) {
    let mut broken = Vec::new();
    for (name, mut set) in every_set(5000, most) {
        if let Err(how) = law(&name, set.as_mut()) {
            broken.push(format!("{name}: {how}"));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Every fifth digest twice, the second time soon after the first.
fn with_repeats(digests: &[Digest]) -> Vec<Digest> {
    let repeated = |chunk: &[Digest]| [chunk, &chunk[..1]].concat();
    digests.chunks(5).flat_map(repeated).collect()
}

#[test]
fn no_kind_has_false_negatives() {
    // Also beyond the planned number.
    assert_law(12_000, |name, set| no_false_negatives(set, &digests(name, 12_000)));
}

#[test]
fn an_insert_is_new_exactly_if_the_key_was_absent() {
    // Keys that come twice take more room than as many different ones.
    assert_law(36_000, |name, set| new_exactly_if_absent(set, &digests(name, 12_000)));
}

#[test]
fn batches_of_digests_answer_like_single_calls() {
    let mut others = every_set(5000, 7200).into_iter();
    let others = std::cell::RefCell::new(&mut others);
    assert_law(7200, |name, set| {
        let (_, mut other) = others.borrow_mut().next().expect("as many as there are");
        let digests = with_repeats(&digests(name, 6000));
        batches_answer_like_single_calls(set, other.as_mut(), &digests)
    });
}

#[test]
fn a_removal_keeps_the_others_where_there_is_one() {
    let mut broken = Vec::new();
    for (name, plan) in shapes(4000).into_iter().filter(|(_, plan)| plan.kind().can_remove()) {
        let digests = digests(&name, 4000);
        let (gone, kept) = digests.split_at(2000);
        // Counters that have reached their maximum stay: 2 bits do that in a few of a hundred.
        let rate = plan.rate() + 12.0 * plan.saturation();
        let shared = Filter::new(plan).unwrap().into_shared().unwrap();
        let sets: [Box<dyn Removal>; 2] =
            [Box::new(Whole(Filter::new(plan).unwrap())), Box::new(Racing(shared))];
        for mut set in sets {
            if let Err(how) = removals_keep_the_others(set.as_mut(), gone, kept, rate) {
                broken.push(format!("{name}: {how}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
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
    let plan = Plan::builder(Kind::Blocked).items(5000).rate(1e-6).build().unwrap();
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

/// Keeps keys as bits, and a removal clears a key's bits, whoever else has set them.
#[derive(Default)]
struct Careless {
    bits: HashSet<u64>,
}

impl Careless {
    /// Eight of 64,000 bits.
    fn places(digest: Digest) -> [u64; 8] {
        std::array::from_fn(|i| mix(digest.place ^ mix(i as u64)) % 64_000)
    }
}

impl Membership for Careless {
    fn contains_digest(&self, digest: Digest) -> bool {
        Careless::places(digest).iter().all(|place| self.bits.contains(place))
    }

    fn insert_digest(&mut self, digest: Digest) -> inbloom::Result<bool> {
        let new = !self.contains_digest(digest);
        self.bits.extend(Careless::places(digest));
        Ok(new)
    }

    fn prefetch(&self, _: &[Digest]) {}

    fn contains_run(&self, run: &[Digest], _: &[Digest], found: &mut [bool]) {
        for (digest, found) in run.iter().zip(found) {
            *found = self.contains_digest(*digest);
        }
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

impl Removal for Careless {
    fn remove_digest(&mut self, digest: Digest) -> inbloom::Result<bool> {
        let found = self.contains_digest(digest);
        for place in Careless::places(digest) {
            self.bits.remove(&place);
        }
        Ok(found)
    }
}

#[test]
fn the_laws_notice_a_removal_that_hurts_the_neighbours() {
    let digests = digests("careless", 4000);
    no_false_negatives(&mut Careless::default(), &digests).expect("as long as nothing is removed");
    let (gone, kept) = digests.split_at(2000);
    let how = removals_keep_the_others(&mut Careless::default(), gone, kept, 0.01);
    let how = how.expect_err("a broken law");
    assert!(how.ends_with("others are denied") || how.contains("says nobody but us"), "{how}");
    // A few removals hurt too, if enough keys stay.
    let how = removals_keep_the_others(&mut Careless::default(), &gone[..10], kept, 0.01);
    let how = how.expect_err("a broken law");
    assert!(how.ends_with("of 2000 others are denied"), "{how}");
}

/// Right one by one, and wrong in batches.
struct Hasty {
    kept: Blocked,
    flaw: Flaw,
}

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    /// All of a run are asked for before the first is inserted.
    AnswersFirst,
    /// The last of a full run is not inserted.
    SkipsTheLast,
    /// The last of a run is not asked for.
    MissesTheLast,
}

impl Membership for Hasty {
    fn contains_digest(&self, digest: Digest) -> bool {
        self.kept.contains_digest(digest)
    }

    fn insert_digest(&mut self, digest: Digest) -> inbloom::Result<bool> {
        self.kept.insert_digest(digest)
    }

    fn prefetch(&self, digests: &[Digest]) {
        self.kept.prefetch(digests);
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        self.kept.contains_run(run, next, found);
        if let (Flaw::MissesTheLast, Some(last)) = (self.flaw, found.last_mut()) {
            *last = false;
        }
    }

    fn insert_run(
        &mut self,
        run: &[Digest],
        _: &[Digest],
        new: &mut Vec<bool>,
    ) -> inbloom::Result<()> {
        let before = found_all(&self.kept, run);
        for (at, (digest, before)) in run.iter().zip(before).enumerate() {
            let skipped = self.flaw == Flaw::SkipsTheLast && at == 127;
            let told = !skipped && self.kept.insert_digest(*digest)?;
            new.push(if self.flaw == Flaw::AnswersFirst { !before } else { told || skipped });
        }
        Ok(())
    }
}

#[test]
fn the_laws_notice_a_batch_that_differs_from_single_calls() {
    let plan = Plan::builder(Kind::Blocked).items(5000).rate(1e-6).build().unwrap();
    let digests = with_repeats(&digests("blocked", 5000));
    for (flaw, expected) in [
        (Flaw::AnswersFirst, "inserts of a batch of 127 differ"),
        (Flaw::SkipsTheLast, "queries differ after a batch of 128"),
        (Flaw::MissesTheLast, "queries differ after a batch of 127"),
    ] {
        let mut honest = Blocked::new(plan).unwrap();
        let mut hasty = Hasty { kept: Blocked::new(plan).unwrap(), flaw };
        new_exactly_if_absent(&mut hasty, &digests).expect("one by one it is right");
        let mut hasty = Hasty { kept: Blocked::new(plan).unwrap(), flaw };
        let how = batches_answer_like_single_calls(&mut honest, &mut hasty, &digests);
        assert_eq!(how.expect_err("a broken law"), expected);
    }
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

/// Whether the content tells in which order keys came: those of a window go into generations.
fn knows_the_order(plan: &Plan) -> bool {
    matches!(plan.span(), Some(Span::Items(_))) && plan.generations() > 1
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
    for (name, plan) in shapes(1000) {
        let mut filter = with_keys(plan, &keys(0..500));
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
        // What grows keeps longer fingerprints of what came later.
        if plan.kind() != Kind::Scalable {
            let same = one == other;
            assert!(same != knows_the_order(&plan), "{name}: the order of inserts does not matter");
        }
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
        assert_eq!((filter.occupied(), filter.fill(), filter.inserted()), (0, 0.0, 0), "{name}");
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
    for (name, plan) in shapes_for(2000, 2400) {
        let mut left = with_keys(plan, &keys(0..1200));
        let right = with_keys(plan, &keys(800..2000));
        if !merge_or_refuse(&mut left, &right) {
            continue;
        }
        assert_members(&left, &keys(0..2000), &name);
        assert!(right == with_keys(plan, &keys(800..2000)), "{name}: the other is as it was");
        if plan.kind().can_grow() || knows_the_order(&plan) {
            continue;
        }
        let both = with_keys(plan, &[keys(0..1200), keys(800..2000)].concat());
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
    for (name, plan) in shapes(2000) {
        let mut left = with_keys(plan, &keys(0..1200));
        let right = with_keys(plan, &keys(800..2000));
        if matches!(plan.kind(), Kind::Scalable | Kind::Window) {
            assert_eq!(
                left.intersect(&right).expect_err("a refusal").to_string(),
                format!("kind {} cannot intersect: ask both filters instead", plan.kind())
            );
            assert_members(&left, &keys(0..1200), &name);
            continue;
        }
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
    for (name, plan) in shapes_for(2000, 2400) {
        let (left, right) = (with_keys(plan, &keys(0..1200)), with_keys(plan, &keys(800..2000)));
        let mut merged = left.clone();
        if !merge_or_refuse(&mut merged, &right) {
            continue;
        }
        let count = merged.inserted();
        assert!(count >= left.inserted().max(right.inserted()), "{name}: {count}");
        assert!(count <= left.inserted() + right.inserted(), "{name}: {count}");
        // A key that is in both counts twice for a cuckoo filter, and in two generations of a
        // window; one that grows may refuse to say.
        if matches!(plan.kind(), Kind::Cuckoo | Kind::Scalable) || knows_the_order(&plan) {
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
    let counters = |width: u32| {
        let plan = Plan::builder(Kind::Counting).items(100).bytes(4096).width(width);
        plan.lines(1).probes(8).build().unwrap()
    };
    check(new(counters(2)), new(counters(8)), "width: 2 here, 8 there");
    let cuckoo = |items| Plan::builder(Kind::Cuckoo).items(items).rate(0.01).build().unwrap();
    check(new(cuckoo(8)), new(cuckoo(16)), "bits: 80 here, 360 there");
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
    let wished = Plan::builder(Kind::Classic).items(1000).bytes(2000).probes(7).build().unwrap();
    let other = Plan::builder(Kind::Classic).items(1500).bytes(2000).probes(7).build().unwrap();
    let mut filter = with_keys(wished, &keys(0..100));
    filter.merge(&with_keys(other, &keys(100..200))).unwrap();
    assert_members(&filter, &keys(0..200), "classic");
}

/// Whether the kind can tell where a key's cells are: always at the same places.
fn has_positions(plan: &Plan) -> bool {
    !matches!(plan.kind(), Kind::Cuckoo | Kind::Scalable | Kind::Window)
}

#[test]
fn the_positions_of_a_key_are_the_cells_that_its_insert_takes() {
    for (name, plan) in shapes(200) {
        if !has_positions(&plan) || plan.is_sparse() {
            continue;
        }
        for number in 0..200 {
            let key = key(number);
            let mut filter = Filter::new(plan).unwrap();
            let mut positions = filter.positions(key).unwrap();
            assert!(!filter.contains_positions(&positions), "{name}");
            filter.insert(key).unwrap();
            assert!(filter.contains_positions(&positions), "{name}");
            let used = used_cells(&filter);
            positions.sort_unstable();
            positions.dedup();
            assert_eq!(positions, used, "{name}");
            assert_eq!(filter.occupied(), used.len() as u64, "{name}");
            let cells = plan.bits() / u64::from(plan.width());
            if let Some(absent) = (0..cells).find(|position| !used.contains(position)) {
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
        for outside in [plan.bits().max(plan.bytes() * 8), u64::MAX] {
            assert!(!filter.contains_positions(&[outside]), "{name}");
        }
        assert!(filter.contains_positions(&[]), "{name}: of nothing, all is there");
        if !has_positions(&plan) {
            assert_eq!(
                filter.positions(key(0)).expect_err("a refusal").to_string(),
                format!(
                    "kind {} cannot tell the positions of a key: its cells move; \
                     bitmap, classic, blocked and counting can",
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
    for (name, plan) in shapes_for(1000, 2000) {
        if plan.is_sparse() || plan.kind() == Kind::Scalable {
            continue; // no array of cells
        }
        let mut filter = Filter::new(plan).unwrap();
        let check = |filter: &Filter, after: &str| {
            let counted = used_cells(filter).len() as u64;
            assert_eq!(filter.occupied(), counted, "{name}, after {after}");
            let usable = match plan.kind() {
                Kind::Blocked => plan.bits() / 512 * 511,
                Kind::Window => plan.bits() / 512 * 511 * (u64::from(plan.generations()) + 1),
                _ => plan.bits() / u64::from(plan.width()),
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
        if plan.kind() != Kind::Window {
            filter.intersect(&with_keys(plan, &keys(100..800))).unwrap();
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
        check(&Filter::read_from(&file_of(&filter)[..]).unwrap(), "writing and reading");
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

// --------------------------------------------------------------------------------------- estimates

#[test]
fn the_estimate_of_items_is_off_by_what_it_says() {
    const ITEMS: u64 = 4000;
    const FILTERS: u64 = 200;
    let mut broken = Vec::new();
    for (name, plan) in shapes_for(ITEMS, 2 * ITEMS) {
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
            // Kinds that keep an entry for each key lack whole keys. Of less than one, the
            // deviation says little.
            if matches!(plan.kind(), Kind::Cuckoo | Kind::Scalable) && error < 1.0 {
                assert!(off.iter().all(|off| off.abs() < 5.0), "{name}, {items} items: {off:?}");
                continue;
            }
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
        let mut filter = Filter::new(plan).unwrap();
        insert_over_time(&mut filter, &keys(0..4000));
        // Of a window's generations one more is planned for than as many keys fill.
        let filled = f64::from(plan.generations()) / f64::from(plan.generations() + 1);
        let filled = if plan.kind() == Kind::Window { filled } else { 1.0 };
        let expected = plan.rate_at(4000.0) * filled;
        if plan.kind() == Kind::Bitmap {
            assert_eq!(filter.rate(), 0.0);
        } else if plan.kind() == Kind::Scalable {
            // Most of the rate is kept for when it has grown.
            assert!(filter.rate() > 0.0 && filter.rate() <= expected, "{name}: {}", filter.rate());
        } else {
            let share = filter.rate() / expected;
            assert!((0.6..1.6).contains(&share), "{name}: {} for {expected}", filter.rate());
        }
        assert_eq!(Filter::new(plan).unwrap().rate(), 0.0, "{name}");
    }
}

#[test]
fn what_was_told_new_is_counted() {
    for (name, plan) in shapes_for(2000, 6000) {
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

/// The share of cells in use after so many keys, and half a cell more.
fn share_at(plan: Plan, items: u64) -> f64 {
    let filter = with_keys(plan, &keys(0..items));
    filter.fill() * (1.0 + 0.5 / filter.occupied() as f64)
}

#[test]
fn past_its_share_a_filter_empties_itself_and_keeps_the_key_of_that_insert() {
    for (name, plan) in shapes_for(300, 1000) {
        if plan.is_sparse() || plan.kind() == Kind::Scalable {
            continue;
        }
        let share = share_at(plan, 250);
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
    for (name, plan) in shapes_for(300, 2000) {
        if plan.kind() == Kind::Scalable {
            let refused = Filter::new(plan).unwrap().set_auto_clear(Some(0.5)).unwrap_err();
            assert!(refused.to_string().contains("its size is no share of bits"), "{refused}");
            continue;
        }
        let share = share_at(plan, 250);
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
    let mut filter =
        Filter::new(Plan::builder(Kind::Bitmap).universe(100).build().unwrap()).unwrap();
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
    let mut filter = Filter::new(Plan::builder(Kind::Blocked).items(10).build().unwrap()).unwrap();
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
        let mut plan = Plan::builder(Kind::Bitmap).universe(100_000);
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
    let mut filter =
        Filter::new(Plan::builder(Kind::Bitmap).universe(300).build().unwrap()).unwrap();
    assert!(filter.insert([7]).unwrap());
    for bytes in [&7_u16.to_le_bytes()[..], &7_u32.to_le_bytes(), &7_u64.to_le_bytes()] {
        assert!(filter.contains(bytes) && !filter.insert(bytes).unwrap());
    }
    assert!(!filter.contains(""), "nothing is 0");
}

#[test]
fn values_outside_the_universe_are_refused_and_never_found() {
    for plan in [
        Plan::builder(Kind::Bitmap).universe(1000).build().unwrap(),
        Plan::builder(Kind::Bitmap).universe(1000).items(1).build().unwrap(),
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
        assert_eq!((filter.inserted(), filter.occupied()), (2, 2));
        let shared = filter.into_shared().unwrap();
        assert!(!shared.contains(1000_u64.to_le_bytes()));
        assert!(shared.insert(1000_u64.to_le_bytes()).is_err());
        assert!(!shared.remove(1000_u64.to_le_bytes()).unwrap());
        assert!(shared.insert_many(&batch, &mut new).is_err());
        assert_eq!(new, [false, false]);
        assert_eq!((shared.inserted(), shared.occupied()), (2, 2));
    }
}

// ---------------------------------------------------------------------------------------- removal

#[test]
fn what_is_removed_leaves_what_would_be_there_without_it() {
    for (name, plan) in shapes(1000) {
        let mut filter = with_keys(plan, &keys(0..1000));
        if !plan.kind().can_remove() {
            let expected = format!(
                "kind {} cannot remove: its keys share cells, and to clear one key's would deny \
                 others; the kinds that can are bitmap, counting and cuckoo",
                plan.kind()
            );
            assert_eq!(filter.remove(key(1)).expect_err("a refusal").to_string(), expected);
            assert_members(&filter, &keys(0..1000), &name);
            let shared = filter.into_shared().unwrap();
            assert_eq!(shared.remove(key(1)).expect_err("a refusal").to_string(), expected);
            assert_members(&shared.into_exclusive(), &keys(0..1000), &name);
            continue;
        }
        for key in keys(0..500) {
            assert!(filter.remove(key).unwrap(), "{name}");
            // What is still claimed has others' cells, and is not ours to remove.
            assert!(filter.contains(key) || !filter.remove(key).unwrap(), "{name}: it is gone");
        }
        assert_members(&filter, &keys(500..1000), &name);
        // Counters of two bits have reached their maximum here and there, and stay.
        let expected = with_keys(plan, &keys(500..1000));
        let exact = plan.kind() != Kind::Counting || plan.width() > 2;
        assert!(filter == expected || !exact, "{name}: other cells than without them");
        assert!(filter.occupied() >= expected.occupied(), "{name}");
        let off = filter.inserted().abs_diff(500) as f64;
        assert!(off <= 500.0 * (3.0 * plan.rate() + 12.0 * plan.saturation()), "{name}: off {off}");
        // What was removed can come again.
        filter.insert_many(&keys(0..500), &mut Vec::new()).unwrap();
        assert_members(&filter, &keys(0..1000), &name);
    }
}

#[test]
fn a_key_is_there_as_often_as_it_was_inserted_and_not_removed() {
    for (name, plan) in shapes_for(1000, 4000) {
        let mut filter = with_keys(plan, &keys(0..500));
        let one = key(7);
        if !plan.kind().counts() {
            assert_eq!(filter.count(one), 1, "{name}");
            filter.insert(one).unwrap();
            assert_eq!(filter.count(one), 1, "{name}: it knows 0 and 1");
            let claimed = |key: &[u8; 8]| filter.count(key) == u64::from(filter.contains(key));
            assert!(keys(0..1000).iter().all(claimed), "{name}");
            continue;
        }
        let most = max_count(&plan);
        for copies in 2..=most {
            assert!(!filter.insert(one).unwrap(), "{name}: it was there");
            assert!((copies..=most).contains(&filter.count(one)), "{name}: {copies} copies");
        }
        assert_eq!(filter.count(one), most, "{name}");
        let shared = filter.into_shared().unwrap();
        assert_eq!(shared.count(one), most, "{name}");
        filter = shared.into_exclusive();
        match plan.kind() {
            Kind::Cuckoo => {
                let before = file_of(&filter);
                let error = filter.insert(one).expect_err("there is room for 8");
                assert!(matches!(error, Error::Copies { copies: 8 }), "{error:?}");
                assert!(file_of(&filter) == before, "{name}: a refusal changes nothing");
                for copies in (0..most).rev() {
                    assert!(filter.remove(one).unwrap(), "{name}");
                    assert!(filter.count(one) >= copies, "{name}");
                }
                assert_eq!(filter.count(one), 0, "{name}: nobody else looks like it");
            }
            _ => {
                // At its maximum a counter stays, whatever is removed.
                for _ in 0..most + 3 {
                    assert!(filter.remove(one).unwrap(), "{name}");
                    assert_eq!(filter.count(one), most, "{name}");
                }
            }
        }
        let others: Vec<[u8; 8]> = keys(0..500).into_iter().filter(|key| *key != one).collect();
        assert_members(&filter, &others, &name);
    }
}

#[test]
fn a_full_filter_is_left_as_it_was() {
    for items in [1, 2, 10, 100, 3000] {
        for (name, plan) in cuckoos(items) {
            let mut filter = Filter::new(plan).unwrap();
            let mut number = 0;
            let error = loop {
                let before = file_of(&filter);
                match filter.insert(key(number)) {
                    Ok(_) => number += 1,
                    Err(error) => {
                        assert!(file_of(&filter) == before, "{name}: changed, to the byte");
                        break error;
                    }
                }
            };
            let name = format!("{name} for {items}, refused after {number}");
            assert!(number >= items, "{name}");
            assert_eq!(
                error.to_string(),
                format!(
                    "the filter is full: it holds {number} items and is for {items}; \
                     plan more items, or use the scalable kind"
                )
            );
            assert_members(&filter, &keys(0..number), &name);
            // Nor does a batch, beyond what it says it has recorded; nor a merge; nor another
            // thread.
            let (before, mut new) = (filter.clone(), Vec::new());
            let batch = keys(number..number + 50);
            let result = filter.insert_many(&batch, &mut new);
            assert!(matches!(result, Err(Error::Full { .. })), "{name}");
            let mut single = before.clone();
            for key in &batch[..new.len()] {
                single.insert(key).unwrap();
            }
            assert!(file_of(&filter) == file_of(&single), "{name}: a batch");
            assert_eq!(filter.inserted(), single.inserted(), "{name}: a batch");
            let bytes = file_of(&filter);
            assert!(matches!(filter.merge(&before), Err(Error::Full { .. })), "{name}");
            assert!(file_of(&filter) == bytes, "{name}: a merge");
            let shared = filter.into_shared().unwrap();
            assert!(matches!(shared.insert(batch[new.len()]), Err(Error::Full { .. })), "{name}");
            assert!(file_of(&shared.into_exclusive()) == bytes, "{name}: shared");
        }
    }
}

// ---------------------------------------------------------------------------------------- windows

/// A window of the last so many keys, in so many steps, at a rate that no test here sees.
fn last(keys: u64, generations: u32) -> Plan {
    Plan::builder(Kind::Window).last(keys).generations(generations).rate(1e-9).build().unwrap()
}

fn of_time(millis: u64, generations: u32) -> Plan {
    let plan = Plan::builder(Kind::Window).window(Duration::from_millis(millis)).items(1000);
    plan.generations(generations).rate(1e-9).build().unwrap()
}

#[test]
fn a_key_that_comes_again_starts_anew_whatever_the_call() {
    let inserts: [fn(&SharedFilter, [u8; 8]) -> bool; 2] = [
        |filter, key| filter.insert(key).unwrap(),
        |filter, key| {
            let mut new = Vec::new();
            filter.insert_many(&[key], &mut new).unwrap();
            new[0]
        },
    ];
    for (way, insert) in inserts.iter().enumerate() {
        let shared = Filter::new(of_time(1000, 4)).unwrap().into_shared().unwrap();
        shared.advance(0).unwrap();
        assert!(insert(&shared, key(1)) && insert(&shared, key(2)), "way {way}");
        shared.advance(900).unwrap();
        assert!(!insert(&shared, key(1)), "way {way}: it was there");
        shared.advance(1800).unwrap();
        assert!(shared.contains(key(1)), "way {way}: it came again 900 ms ago");
        assert!(!shared.contains(key(2)), "way {way}: it came 1800 ms ago");
    }
}

#[test]
fn a_merge_lets_no_key_be_forgotten_before_its_time() {
    for generations in [1, 2, 4, 10] {
        let plan = last(100, generations);
        for count in (0..=250).step_by(13) {
            let mut merged = with_keys(plan, &keys(0..count));
            // Of the same keys, so that what is counted twice is there once.
            merged.merge(&merged.clone()).unwrap();
            let name = format!("{generations} steps, merged after {count} keys");
            for later in count..count + 200 {
                merged.insert(key(later)).unwrap();
                let first = (later + 1).saturating_sub(100);
                assert_members(&merged, &keys(first..later + 1), &name);
            }
        }
    }
    // By time: the two begin their steps at different moments, and one of them may sleep for long.
    for (here, there) in [(0, 0), (0, 130), (130, 0), (70, 400), (400, 70)] {
        for merged_at in [400, 700, 1100, 1300] {
            let (mut left, mut right) =
                (Filter::new(of_time(1000, 4)).unwrap(), Filter::new(of_time(1000, 4)).unwrap());
            for (filter, number, moment) in [(&mut left, 1, here), (&mut right, 2, there)] {
                filter.advance(moment).unwrap();
                filter.insert(key(number)).unwrap();
            }
            right.advance(merged_at).unwrap();
            left.merge(&right).unwrap();
            for now in (merged_at..4000).step_by(10) {
                left.advance(now).unwrap();
                for (number, moment) in [(1, here), (2, there)] {
                    let (found, age) = (left.contains(key(number)), now - moment);
                    let name = format!("{number} from {moment}, merged at {merged_at}, now {now}");
                    assert!(found || age > 1000, "{name}: forgotten");
                }
            }
            assert_eq!(left.occupied(), 0, "{here}, {there}: it forgets in the end");
        }
    }
}

// ---------------------------------------------------------------------- the same by another way

/// A sequence of every verb that changes, through both handles.
#[test]
fn a_shared_filter_becomes_what_an_exclusive_one_becomes() {
    for (name, plan) in shapes_for(2000, 4000) {
        let mut exclusive = Filter::new(plan).unwrap();
        let shared = Filter::new(plan).unwrap().into_shared().unwrap();
        for key in keys(0..300).iter().chain(&keys(200..400)) {
            assert_eq!(exclusive.insert(key).unwrap(), shared.insert(key).unwrap(), "{name}");
        }
        for key in keys(350..500) {
            let here = exclusive.insert_if_absent(key).unwrap();
            assert_eq!(here, shared.insert_if_absent(key).unwrap(), "{name}");
        }
        let (mut here, mut there) = (Vec::new(), Vec::new());
        exclusive.insert_many(&keys(450..1500), &mut here).unwrap();
        shared.insert_many(&keys(450..1500), &mut there).unwrap();
        assert_eq!(here, there, "{name}");
        if plan.kind().can_remove() {
            for key in keys(0..700) {
                assert_eq!(exclusive.remove(key).unwrap(), shared.remove(key).unwrap(), "{name}");
            }
        }
        match plan.kind() {
            Kind::Window => {
                for now in [5, 500, 400, 900] {
                    exclusive.advance(now).unwrap();
                    shared.advance(now).unwrap();
                    exclusive.insert(key(now)).unwrap();
                    shared.insert(key(now)).unwrap();
                }
            }
            kind => {
                let expected = format!(
                    "kind {kind} cannot follow a clock: only a window forgets; \
                     plan one with Kind::Window"
                );
                assert_eq!(exclusive.advance(5).expect_err("a refusal").to_string(), expected);
                assert_eq!(shared.advance(5).expect_err("a refusal").to_string(), expected);
            }
        }
        for key in keys(0..3000) {
            assert_eq!(exclusive.contains(key), shared.contains(key), "{name}");
            assert_eq!(exclusive.count(key), shared.count(key), "{name}");
        }
        assert_eq!(exclusive.inserted(), shared.inserted(), "{name}");
        assert_eq!(
            (exclusive.occupied(), exclusive.fill()),
            (shared.occupied(), shared.fill()),
            "{name}"
        );
        assert_eq!(exclusive.estimated_items(), shared.estimated_items(), "{name}");
        assert_eq!(exclusive.rate(), shared.rate(), "{name}");
        let back = shared.into_exclusive();
        assert!(back == exclusive && back.inserted() == exclusive.inserted(), "{name}");
        assert!(file_of(&back) == file_of(&exclusive), "{name}");
    }
}

#[test]
fn a_saved_filter_is_the_same_by_every_way_in_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seen.ib");
    for (name, plan) in shapes_for(2000, 4000) {
        let mut filter = with_keys(plan, &keys(0..1000));
        if plan.kind() == Kind::Window {
            filter.advance(1000).unwrap();
        }
        file::save(&filter, &path).unwrap();
        file::verify(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let mut opened = file::open(&path).unwrap();
        let mut changed = file::open_mut(&path).unwrap();
        let read = Filter::read_from(&bytes[..]).unwrap();
        let view = Filter::view(&bytes).unwrap();
        for other in [&opened, &changed, &read, &*view] {
            assert!(*other == filter, "{name}");
            assert_eq!(other.plan(), filter.plan(), "{name}");
            assert_eq!(
                (other.inserted(), other.occupied(), other.bytes()),
                (filter.inserted(), filter.occupied(), filter.bytes()),
                "{name}"
            );
            assert_eq!(other.estimated_items(), filter.estimated_items(), "{name}");
            assert_eq!(
                (other.rate(), other.details()),
                (filter.rate(), filter.details()),
                "{name}"
            );
            let (mut here, mut there) = (Vec::new(), Vec::new());
            filter.contains_many(&keys(0..3000), &mut here);
            other.contains_many(&keys(0..3000), &mut there);
            assert_eq!(here, there, "{name}");
            let count = |key: &[u8; 8]| other.count(key) == filter.count(key);
            assert!(keys(0..3000).iter().all(count), "{name}");
            assert!(file_of(other) == bytes, "{name}: written again, other bytes");
        }
        if opened.is_read_only() {
            let mut refusals = vec![opened.insert(key(0)).map(drop), opened.clear()];
            if plan.kind().can_remove() {
                refusals.push(opened.remove(key(0)).map(drop));
            }
            if plan.kind() == Kind::Window {
                refusals.push(opened.advance(2000));
            }
            assert!(refusals.iter().all(|one| matches!(one, Err(Error::ReadOnly))), "{name}");
            assert!(opened == filter, "{name}: refused, and changed");
            assert!(plan.kind() == Kind::Bitmap || opened.merge(&read).is_err(), "{name}");
        }
        // One that is opened to change goes on as the one in memory does; so does a shared one.
        let shared = file::open(&path).unwrap().into_shared().unwrap();
        for number in 900..1900 {
            filter.insert(key(number)).unwrap();
            changed.insert(key(number)).unwrap();
            shared.insert(key(number)).unwrap();
            if plan.kind().can_remove() {
                filter.remove(key(number - 900)).unwrap();
                changed.remove(key(number - 900)).unwrap();
                shared.remove(key(number - 900)).unwrap();
            }
        }
        if plan.kind() == Kind::Window {
            filter.advance(1400).unwrap();
            changed.advance(1400).unwrap();
            shared.advance(1400).unwrap();
        }
        for other in [&changed, &shared.into_exclusive()] {
            assert!(*other == filter && other.inserted() == filter.inserted(), "{name}");
            assert_members(other, &keys(1000..1900), &name);
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{name}: the file has changed");
        file::save(&changed, &path).unwrap();
        file::verify(&path).unwrap();
        assert!(file::open(&path).unwrap() == filter, "{name}");
    }
}

// ------------------------------------------------------------------------------------------ hashes

#[test]
fn seeds_and_secret_keys_make_different_filters_of_the_same_keys() {
    let plan = Plan::builder(Kind::Blocked).items(1000).rate(0.01).build().unwrap();
    let hashers = [
        Hasher::xxh3(0),
        Hasher::xxh3(1),
        Hasher::sip13(SecretKey::new([1; 16])),
        Hasher::sip13(SecretKey::new([2; 16])),
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
    let bitmap = Plan::builder(Kind::Bitmap).universe(10).build().unwrap();
    assert_eq!(
        text(bitmap, Hasher::default()),
        "kind bitmap cannot hash its keys: it is exact; use Hasher::integers()"
    );
    for (_, plan) in shapes(10) {
        let kind = plan.kind();
        if kind == Kind::Bitmap {
            continue;
        }
        assert_eq!(
            text(plan, Hasher::integers()),
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
    const PROBES: u64 = 2_000_000;
    for (name, plan) in shapes(2000) {
        if plan.is_sparse() {
            continue; // fills half of its universe, which is too large here
        }
        let probes = if plan.kind() == Kind::Bitmap { 100_000 } else { PROBES };
        let measured = measure(&plan, probes, 7).unwrap();
        assert!(measured.keeps_promise(), "{name}: {measured:?}");
        assert_eq!(measured.promised, plan.rate());
        assert_eq!(measured.probed, probes);
        assert_eq!(measured.rate, measured.false_positives as f64 / probes as f64);
        assert!(measured.low <= measured.rate && measured.rate <= measured.high, "{measured:?}");
        if plan.kind() == Kind::Bitmap {
            assert_eq!((measured.false_positives, measured.inserted), (0, UNIVERSE / 2));
        } else {
            assert_eq!(measured.inserted, plan.items());
            // The promise is what the model says, so it is within the interval and not only above;
            // but one of a window's generations is not filled, and the scalable kind has a reserve.
            let filled = f64::from(plan.generations().max(1)) / f64::from(plan.generations() + 1);
            // And of small filters with the same plan some are much better than others.
            let share = if plan.kind() == Kind::Scalable { 0.0 } else { 0.6 * filled };
            assert!(
                plan.rate() < 1e-4 || measured.high >= plan.rate() * share,
                "{name}: {measured:?}"
            );
        }
    }
}

#[test]
fn a_measurement_finds_a_broken_promise() {
    for kind in [Kind::Classic, Kind::Blocked] {
        let plan = Plan::builder(kind).items(2000).rate(0.01).build().unwrap();
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
    ShareAndTakeBack(Vec<u64>),
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
        2 => numbers.prop_map(Operation::ShareAndTakeBack),
        1 => Just(Operation::Clone),
    ];
    prop::collection::vec(operation, 1..25)
}

/// What a filter should hold: how often each number is in. At most once, where the kind does not
/// count.
#[derive(Clone, Default)]
struct Model {
    copies: HashMap<u64, u32>,
    counts: bool,
}

impl Model {
    /// Adds a number and tells whether it is new.
    fn insert(&mut self, number: u64) -> bool {
        let copies = self.copies.entry(number).or_default();
        let new = *copies == 0;
        *copies = if self.counts { *copies + 1 } else { 1 };
        new
    }

    /// Takes a number out once, and tells whether it was in.
    fn remove(&mut self, number: u64) -> bool {
        let Some(copies) = self.copies.get_mut(&number) else { return false };
        *copies -= 1;
        if *copies == 0 {
            self.copies.remove(&number);
        }
        true
    }

    fn merge(&mut self, other: &Model) {
        for (number, copies) in &other.copies {
            let here = self.copies.entry(*number).or_default();
            *here = if self.counts { *here + copies } else { 1 };
        }
    }

    fn intersect(&mut self, other: &Model) {
        self.copies.retain(|number, copies| {
            *copies = (*copies).min(other.copies.get(number).copied().unwrap_or(0));
            *copies > 0
        });
    }
}

/// A filter and what it should hold.
struct Tracked {
    filter: Filter,
    model: Model,
}

impl Tracked {
    fn new(plan: Plan) -> Tracked {
        let model = Model { counts: plan.kind().counts(), ..Model::default() };
        Tracked { filter: Filter::new(plan).unwrap(), model }
    }

    fn with(plan: Plan, numbers: &[u64]) -> Tracked {
        let mut tracked = Tracked::new(plan);
        tracked.insert_many(numbers);
        tracked
    }

    /// "New" is certain; "seen" is certain for a bitmap.
    fn check_new(&self, new: bool, was_new: bool) {
        let exact = self.filter.plan().kind() == Kind::Bitmap;
        assert!(new == was_new || (!new && !exact), "told new {new}, is new {was_new}");
    }

    fn insert_many(&mut self, numbers: &[u64]) {
        let keys: Vec<[u8; 8]> = numbers.iter().map(|number| key(*number)).collect();
        let mut new = Vec::new();
        // As many as it says were inserted before a refusal.
        self.allow_full(|filter| filter.insert_many(&keys, &mut new));
        for (number, new) in numbers.iter().zip(new) {
            let was_new = self.model.insert(*number);
            self.check_new(new, was_new);
        }
    }

    /// Does what the filter may refuse because it is full, if it is of a kind that can be.
    fn allow_full(&mut self, change: impl FnOnce(&mut Filter) -> inbloom::Result<()>) -> bool {
        let plan = *self.filter.plan();
        let ends = plan.kind() == Kind::Cuckoo || (plan.kind().can_grow() && plan.growth() == 0);
        match change(&mut self.filter) {
            Ok(()) => true,
            Err(Error::Full { .. } | Error::Copies { .. }) if ends => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Does what changes everything or, if it is refused, nothing; and tells which.
    fn whole_or_nothing(
        &mut self,
        change: impl FnOnce(&mut Filter) -> inbloom::Result<()>,
    ) -> bool {
        let before = (self.filter.plan().kind() == Kind::Cuckoo).then(|| file_of(&self.filter));
        let done = self.allow_full(change);
        if let (false, Some(before)) = (done, before) {
            assert!(file_of(&self.filter) == before, "refused, and changed");
        }
        done
    }

    fn apply(&mut self, operation: &Operation) {
        let plan = *self.filter.plan();
        match operation {
            Operation::Insert(number) => {
                let mut new = false;
                if self.whole_or_nothing(|filter| {
                    new = filter.insert(key(*number))?;
                    Ok(())
                }) {
                    let was_new = self.model.insert(*number);
                    self.check_new(new, was_new);
                }
            }
            Operation::InsertMany(numbers) => self.insert_many(numbers),
            Operation::Merge(numbers) => {
                let other = Tracked::with(plan, numbers);
                let merged = match plan.kind() {
                    Kind::Scalable => merge_or_refuse(&mut self.filter, &other.filter),
                    _ => self.whole_or_nothing(|filter| filter.merge(&other.filter)),
                };
                if merged {
                    self.model.merge(&other.model);
                }
            }
            Operation::Intersect(numbers) => {
                let other = Tracked::with(plan, numbers);
                match self.filter.intersect(&other.filter) {
                    Ok(()) => self.model.intersect(&other.model),
                    Err(error) => assert!(matches!(error, Error::Unsupported { .. }), "{error}"),
                }
            }
            Operation::Remove(number) => {
                if !plan.kind().can_remove() {
                    let refused = self.filter.remove(key(*number));
                    assert!(matches!(refused, Err(Error::Unsupported { .. })));
                } else if plan.kind() == Kind::Bitmap || self.model.copies.contains_key(number) {
                    // Only what is in: others may be claimed, and are not ours to remove.
                    let removed = self.filter.remove(key(*number)).unwrap();
                    assert_eq!(removed, self.model.remove(*number), "remove {number}");
                }
            }
            Operation::Clear => {
                self.filter.clear().unwrap();
                self.model.copies.clear();
            }
            Operation::WriteAndRead => {
                let file = file_of(&self.filter);
                let read = Filter::read_from(&file[..]).unwrap();
                assert!(read == self.filter && read.inserted() == self.filter.inserted());
                assert!(*Filter::view(&file).unwrap() == read);
                self.filter = read;
            }
            Operation::ShareAndTakeBack(numbers) => {
                let taken = std::mem::replace(&mut self.filter, Filter::new(plan).unwrap());
                let shared = taken.into_shared().unwrap();
                let mut answers = Vec::new();
                for (at, number) in numbers.iter().enumerate() {
                    let known = self.model.copies.contains_key(number);
                    if at % 3 == 2 && known && plan.kind().can_remove() {
                        assert!(shared.remove(key(*number)).unwrap(), "remove {number}");
                        self.model.remove(*number);
                        continue;
                    }
                    match shared.insert(key(*number)) {
                        Ok(new) => answers.push((new, self.model.insert(*number))),
                        Err(error) => assert!(
                            matches!(error, Error::Full { .. } | Error::Copies { .. }),
                            "{error}"
                        ),
                    }
                }
                self.filter = shared.into_exclusive();
                answers.iter().for_each(|(new, was_new)| self.check_new(*new, *was_new));
            }
            Operation::Clone => self.filter = self.filter.clone(),
        }
    }

    fn check_members(&self) -> Result<(), String> {
        let most = max_count(self.filter.plan());
        for (number, copies) in &self.model.copies {
            ensure(self.filter.contains(key(*number)), || format!("{number} is denied"))?;
            let (counted, least) = (self.filter.count(key(*number)), most.min((*copies).into()));
            ensure(counted >= least, || format!("{number}: counted {counted} of {copies}"))?;
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(60)
    })]

    #[test]
    fn any_sequence_of_operations_keeps_every_member(operations in operations()) {
        // Windows so long that nothing is forgotten, and cuckoo filters both with room and without.
        for (name, plan) in shapes_for(600, 9000).into_iter().chain(cuckoos(600)) {
            let mut tracked = Tracked::new(plan);
            for operation in &operations {
                tracked.apply(operation);
                if let Err(how) = tracked.check_members() {
                    prop_assert!(false, "{}: {} after {:?}", name, how, operation);
                }
            }
            let Tracked { filter, model } = tracked;
            if plan.kind() == Kind::Bitmap {
                let members = model.copies.len() as u64;
                prop_assert_eq!(filter.as_bitmap().unwrap().len(), members);
                prop_assert_eq!(filter.inserted(), members, "{}", name);
            } else if plan.kind() != Kind::Scalable {
                prop_assert_eq!(filter.occupied(), used_cells(&filter).len() as u64, "{}", name);
            }
            if plan.kind() == Kind::Cuckoo {
                let copies: u64 = model.copies.values().map(|copies| u64::from(*copies)).sum();
                // An intersection may keep an entry of two keys that look the same.
                prop_assert!(filter.occupied() >= copies, "{}: {} copies", name, copies);
            }
        }
    }
}

#[test]
fn a_key_that_is_no_integer_is_at_no_position_of_a_bitmap() {
    for universe in [1 << 10, u64::MAX] {
        let mut filter =
            Filter::new(Plan::builder(Kind::Bitmap).universe(universe).build().unwrap()).unwrap();
        filter.insert(0_u64.to_le_bytes()).unwrap();
        let key = "more than eight bytes";
        assert!(!filter.contains(key));
        assert!(!filter.contains_positions(&filter.positions(key).unwrap()));
    }
}

#[test]
fn measuring_a_sparse_bitmap_takes_the_planned_items_only() {
    let plan = Plan::builder(Kind::Bitmap).universe(1 << 40).items(1000).build().unwrap();
    assert!(plan.is_sparse());
    let measured = measure(&plan, 5000, 1).unwrap();
    assert_eq!((measured.inserted, measured.probed, measured.false_positives), (1000, 5000, 0));
}

#[test]
fn nothing_to_insert_is_no_change_to_refuse() {
    let mut bytes = Vec::new();
    let plan = Plan::builder(Kind::Blocked).items(10).build().unwrap();
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
    let plan = Plan::builder(Kind::Blocked).items(10).build().unwrap();
    let measured = measure_absent(&Filter::new(plan).unwrap(), [""; 0]);
    assert_eq!((measured.probed, measured.low, measured.high), (0, 0.0, 1.0));
}

/// One filter was not told the time for most of its window, and so has no generation there.
#[test]
fn a_merge_into_a_window_that_slept_keeps_keys_no_longer_than_a_step_more() {
    let plan = Plan::builder(Kind::Window).window(Duration::from_millis(1000)).items(100);
    let plan = plan.generations(10).build().unwrap();
    let (mut slept, mut other) = (Filter::new(plan).unwrap(), Filter::new(plan).unwrap());
    slept.advance(0).unwrap();
    slept.insert("first").unwrap();
    slept.advance(1000).unwrap();
    other.advance(0).unwrap();
    other.advance(100).unwrap();
    other.insert("second").unwrap();
    slept.merge(&other).unwrap();
    assert!(slept.contains("first") && slept.contains("second"));
    slept.advance(1199).unwrap();
    assert!(!slept.contains("first") && slept.contains("second"));
    slept.advance(1200).unwrap();
    assert!(!slept.contains("second"));
}

#[test]
fn scalable_filters_of_another_growth_do_not_merge() {
    let grown = |growth, rate| {
        let plan =
            Plan::builder(Kind::Scalable).items(10).rate(rate).growth(growth).build().unwrap();
        Filter::new(plan).unwrap()
    };
    let refused = grown(2, 0.5).merge(&grown(0, 0.5)).unwrap_err().to_string();
    assert!(refused.starts_with("the filters differ in growth: 2 here, 0 there"), "{refused}");
}

/// A filter whose fingerprints are nearly used up, which no run of inserts makes, does not grow for ever.
#[test]
fn coarse_scalable_filters_grow_merge_and_stay_within_memory() {
    for rate in [0.9, 0.5, 0.1] {
        let plan = Plan::builder(Kind::Scalable).items(1).rate(rate).build().unwrap();
        let mut filter = Filter::new(plan).unwrap();
        let mut new = Vec::new();
        filter.insert_many(&keys(0..100_000), &mut new).unwrap();
        assert_members(&filter, &keys(0..100_000), "coarse");
        let mut other = Filter::new(plan).unwrap();
        other.insert_many(&keys(100_000..100_300), &mut new).unwrap();
        match other.merge(&filter) {
            Ok(()) => assert_members(&other, &keys(0..100_300), "merged"),
            Err(error) => assert!(matches!(error, Error::MergedRate { .. } | Error::Full { .. })),
        }
        assert!(filter.bytes() < 100_000 * 8, "{rate}: {}", filter.bytes());
    }
}
