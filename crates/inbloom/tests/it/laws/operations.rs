//! Any sequence of operations, against an exact set.

use super::*;

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
    for shape in every_shape(10, 10) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("read-only.ib");
        shape.filter().save(&path).unwrap();
        let mut filter = Filter::open(&path).unwrap();
        if !filter.is_read_only() {
            continue; // a sparse bitmap was read
        }
        let (none, mut new) = ([""; 0], Vec::new());
        filter.insert_many(&none, &mut new).unwrap();
        filter.insert_digests(&[], &mut new).unwrap();
        let refused = filter.insert_many(&[key(1)], &mut new);
        assert!(matches!(refused, Err(Error::ReadOnly)) || shape.is_overlay(), "{}", shape.name);
        assert!(refused.is_err() && new.is_empty(), "{}", shape.name);
    }
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
