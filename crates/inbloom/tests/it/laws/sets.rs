//! Laws of every set of digests. A law is a function over [`Membership`] or [`Removal`] that says how it was
//! broken, so that it can be shown to notice: the last tests break each of them.

use super::*;

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

/// The sets under test: every kind by itself, and every filter, its own and shared between threads;
/// planned for `items`, with room for `most` where there is an end to it.
fn every_set(items: u64, most: u64) -> Vec<(String, Box<dyn Membership>)> {
    let mut sets: Vec<(String, Box<dyn Membership>)> = Vec::new();
    for (name, plan) in shapes_for(items, most) {
        let bare: Option<Box<dyn Membership>> = match plan.kind() {
            Kind::Bitmap => Some(Box::new(Bitmap::new(plan).unwrap())),
            Kind::Classic => Some(Box::new(Classic::new(plan).unwrap())),
            Kind::Blocked => Some(Box::new(Blocked::new(plan).unwrap())),
            Kind::Counting => Some(Box::new(Counting::new(plan).unwrap())),
            Kind::Cuckoo => Some(Box::new(Cuckoo::new(plan).unwrap())),
            Kind::Scalable => Some(Box::new(Scalable::new(plan).unwrap())),
            Kind::Window => Some(Box::new(Window::new(plan).unwrap())),
            _ => None,
        };
        sets.extend(bare.map(|bare| (name, bare)));
    }
    for shape in every_shape(items, most) {
        let name = &shape.name;
        sets.push((format!("filter over a {name}"), Box::new(shape.filter())));
        let shared = shape.filter().into_shared().unwrap();
        sets.push((format!("shared {name}"), Box::new(Racing(shared))));
    }
    sets
}

impl Removal for Filter {
    fn remove_digest(&mut self, digest: Digest) -> inbloom::Result<bool> {
        Filter::remove_digest(self, digest)
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
    let every = every_shape(4000, 4000).into_iter();
    for shape in every.filter(|shape| shape.plan.kind().can_remove() || shape.is_overlay()) {
        let (name, plan) = (&shape.name, shape.plan);
        let digests = digests(name, 4000);
        let (gone, kept) = digests.split_at(2000);
        // Counters that have reached their maximum stay: 2 bits do that in a few of a hundred.
        let rate = plan.rate() + 12.0 * plan.saturation();
        let shared = shape.filter().into_shared().unwrap();
        let sets: [Box<dyn Removal>; 2] = [Box::new(shape.filter()), Box::new(Racing(shared))];
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
