//! Any operations in any order, beside an exact set: a filter never denies what is in the set, never
//! calls new what is in it, and counts right.
#![no_main]

use std::collections::BTreeSet;

use arbitrary::Arbitrary;
use inbloom::{Error, Filter, Hasher, Kind, Plan};
use inbloom_fuzz::{check_round_trip, will_clear};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    shape: Shape,
    operations: Vec<Operation>,
}

#[derive(Arbitrary, Debug)]
enum Shape {
    Blocked { blocks: u8, per_line: u8, two_lines: bool, seed: u64 },
    Classic { bits: u16, probes: u8 },
    Dense { universe: u16 },
    Sparse { universe: u64 },
    Keyed { blocks: u8 },
}

/// `left` and `right` are two filters of one plan, for whatever takes two.
#[derive(Arbitrary, Debug)]
enum Operation {
    Insert(u16),
    InsertMany(Vec<u16>),
    Contains(u16),
    ContainsMany(Vec<u16>),
    Remove(u16),
    Merge,
    Intersect,
    Clear,
    AutoClear(Option<u8>),
    RoundTrip,
    Share {
        insert: Vec<u16>,
        once: bool,
    },
    Clone,
    Note(u8),
    /// Goes on with the other one of the two.
    Swap,
}

/// A filter and what is in it.
struct Pair {
    filter: Filter,
    set: BTreeSet<u64>,
}

fn make(shape: &Shape) -> Option<Filter> {
    let integers = Hasher::integers();
    let (plan, hasher) = match shape {
        Shape::Blocked { blocks, per_line, two_lines, seed } => {
            let lines = if *two_lines { 2 } else { 1 };
            let probes = lines * 4 * u32::from(per_line % 4 + 1);
            let bytes = 64 * (u64::from(blocks % 32) + u64::from(lines));
            let plan = Plan::new(Kind::Blocked).items(100).bytes(bytes).lines(lines).probes(probes);
            (plan.build(), Hasher::xxh3(*seed))
        }
        Shape::Classic { bits, probes } => {
            let plan = Plan::exact(Kind::Classic, u64::from(*bits) + 1, u32::from(probes % 64) + 1);
            (plan, Hasher::default())
        }
        Shape::Dense { universe } => {
            (Plan::new(Kind::Bitmap).universe(u64::from(*universe) + 1).build(), integers)
        }
        Shape::Sparse { universe } => {
            (Plan::new(Kind::Bitmap).universe((*universe).max(1)).items(1).build(), integers)
        }
        Shape::Keyed { blocks } => {
            let plan = Plan::exact(Kind::Blocked, 512 * (u64::from(*blocks) + 1), 8);
            (plan, Hasher::sip13(inbloom_fuzz::KEY))
        }
    };
    Some(Filter::with_hasher(plan.ok()?, hasher).unwrap())
}

impl Pair {
    /// The key of a number: within the universe of a bitmap, and all over it.
    fn key(&self, number: u16) -> u64 {
        let plan = self.filter.plan();
        match plan.kind() {
            Kind::Bitmap => {
                let fraction = u128::from(u64::from(number) << 48 | 7);
                ((fraction * u128::from(plan.bits())) >> 64) as u64
            }
            _ => u64::from(number),
        }
    }

    fn insert(&mut self, key: u64) {
        let (before, clears) = (self.filter.contains(key.to_le_bytes()), will_clear(&self.filter));
        if clears {
            self.set.clear();
        }
        let counted = self.filter.inserted();
        let new = self.filter.insert(key.to_le_bytes()).expect("a key of the universe");
        assert!(self.set.insert(key) || !new, "{key} is in, and was called new");
        assert!(clears || new != before);
        assert_eq!(self.filter.inserted(), if clears { 0 } else { counted } + u64::from(new));
    }

    fn check(&self) {
        for key in &self.set {
            assert!(self.filter.contains(key.to_le_bytes()), "{key} is in, and is denied");
        }
        if let Some(bitmap) = self.filter.as_bitmap() {
            assert!(bitmap.iter().eq(self.set.iter().copied()), "a bitmap is exact");
            assert_eq!(bitmap.len(), self.set.len() as u64);
        }
        assert!((0.0..=1.0).contains(&self.filter.fill()));
    }
}

fuzz_target!(|input: Input| {
    let (Some(left), Some(right)) = (make(&input.shape), make(&input.shape)) else { return };
    let mut left = Pair { filter: left, set: BTreeSet::new() };
    let mut right = Pair { filter: right, set: BTreeSet::new() };
    for operation in input.operations.iter().take(200) {
        match operation {
            Operation::Insert(number) => left.insert(left.key(*number)),
            Operation::InsertMany(numbers) => {
                let keys: Vec<u64> = numbers.iter().map(|number| left.key(*number)).collect();
                // The answers, bits and counts of single inserts.
                let mut one_by_one = Pair { filter: left.filter.clone(), set: left.set.clone() };
                let mut expected = Vec::new();
                for key in &keys {
                    let before = one_by_one.filter.ones();
                    one_by_one.insert(*key);
                    // Nothing is set only if nothing was new, unless the filter was emptied first.
                    expected.push((before, one_by_one.filter.ones()));
                }
                let mut new = Vec::new();
                let bytes: Vec<_> = keys.iter().map(|key| key.to_le_bytes()).collect();
                left.filter.insert_many(&bytes, &mut new).expect("keys of the universe");
                assert_eq!(new.len(), keys.len());
                for (new, (before, after)) in new.iter().zip(expected) {
                    assert!(*new == (before != after) || after <= before);
                }
                assert!(left.filter == one_by_one.filter, "in a batch, other bits");
                assert_eq!(left.filter.inserted(), one_by_one.filter.inserted());
                left.set = one_by_one.set;
            }
            Operation::Contains(number) => {
                let key = left.key(*number);
                let found = left.filter.contains(key.to_le_bytes());
                assert!(found || !left.set.contains(&key));
            }
            Operation::ContainsMany(numbers) => {
                let keys: Vec<_> = numbers.iter().map(|n| left.key(*n).to_le_bytes()).collect();
                let mut found = Vec::new();
                left.filter.contains_many(&keys, &mut found);
                assert!(keys.iter().map(|key| left.filter.contains(key)).eq(found));
            }
            Operation::Remove(number) => {
                let key = left.key(*number);
                match left.filter.remove(key.to_le_bytes()) {
                    Ok(removed) => assert_eq!(left.set.remove(&key), removed),
                    Err(error) => assert!(matches!(error, Error::Unsupported { .. })),
                }
            }
            Operation::Merge => {
                left.filter.merge(&right.filter).expect("one plan");
                left.set.extend(&right.set);
            }
            Operation::Intersect => {
                left.filter.intersect(&right.filter).expect("one plan");
                left.set.retain(|key| right.set.contains(key));
            }
            Operation::Clear => {
                left.filter.clear().unwrap();
                left.set.clear();
                assert_eq!((left.filter.ones(), left.filter.inserted()), (0, 0));
            }
            Operation::AutoClear(share) => {
                let share = share.map(|share| f64::from(share) / 256.0 + 1.0 / 512.0);
                left.filter.set_auto_clear(share).expect("a share between 0 and 1");
            }
            Operation::RoundTrip => {
                check_round_trip(&left.filter);
                let mut bytes = Vec::new();
                left.filter.write_to(&mut bytes).unwrap();
                left.filter = Filter::read_from_keyed(&bytes[..], &inbloom_fuzz::KEY).unwrap();
            }
            Operation::Share { insert, once } => {
                if left.filter.auto_clear().is_some() || left.filter.plan().is_sparse() {
                    let refused = left.filter.clone().into_shared();
                    assert!(matches!(refused.map(drop), Err(Error::Unsupported { .. })));
                    continue;
                }
                let keys: Vec<u64> = insert.iter().map(|number| left.key(*number)).collect();
                let shared = left.filter.into_shared().unwrap();
                for key in keys {
                    let bytes = key.to_le_bytes();
                    let new = match once {
                        true => shared.insert_once(bytes).unwrap(),
                        false => shared.insert(bytes).unwrap(),
                    };
                    assert!(shared.contains(bytes));
                    assert!(left.set.insert(key) || !new);
                }
                left.filter = shared.into_exclusive();
            }
            Operation::Clone => {
                let clone = left.filter.clone();
                assert!(clone == left.filter);
                left.filter = clone;
            }
            Operation::Note(length) => {
                left.filter.set_note(&"n".repeat(usize::from(*length))).unwrap();
            }
            Operation::Swap => std::mem::swap(&mut left, &mut right),
        }
        left.check();
    }
    check_round_trip(&left.filter);
    check_round_trip(&right.filter);
});
