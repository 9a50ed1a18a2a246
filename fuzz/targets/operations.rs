//! Any operations in any order, beside an exact multiset: a filter never denies what is in it,
//! never calls new what is in it, and counts right; a window never forgets too early.
#![no_main]

use std::collections::BTreeMap;
use std::time::Duration;

use arbitrary::Arbitrary;
use inbloom::{Error, Filter, Hasher, Kind, OpenOptions, Plan, Span};
use inbloom_fuzz::{can_be_full, check_round_trip, clears_above, will_clear};
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
    Counting { blocks: u8, per_line: u8, two_lines: bool, width: u8 },
    Cuckoo { items: u8, rate: u8 },
    LastKeys { last: u16, generations: u8 },
    Time { millis: u16, items: u8, generations: u8 },
    Scalable { items: u8, rate: u8, growth: u8, tightening: u8 },
}

/// `left` and `right` are two filters of one plan, for whatever takes two.
#[derive(Arbitrary, Debug)]
enum Operation {
    Insert(u16),
    InsertMany(Vec<u16>),
    /// So many keys from one on: enough of them divide a scalable filter into shards.
    InsertRange(u16, u16),
    Contains(u16),
    ContainsMany(Vec<u16>),
    Remove(u16),
    /// Lets so many milliseconds pass.
    Advance(u16),
    Merge,
    Intersect,
    Clear,
    AutoClear(Option<u8>),
    RoundTrip,
    Share {
        insert: Vec<u16>,
        remove: Vec<u16>,
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
    model: Model,
}

/// What was inserted and not removed.
#[derive(Clone, Default)]
struct Model {
    keys: BTreeMap<u64, Entry>,
    /// Inserts so far: the clock of a window that counts keys.
    inserts: u64,
    /// The clock of the others, once it was set.
    now: Option<u64>,
}

#[derive(Clone, Copy)]
struct Entry {
    copies: u64,
    /// The inserts before it and the clock at its last insert.
    inserts: u64,
    time: Option<u64>,
}

impl Model {
    fn insert(&mut self, key: u64) {
        let copies = self.keys.get(&key).map_or(0, |entry| entry.copies) + 1;
        self.keys.insert(key, Entry { copies, inserts: self.inserts, time: self.now });
        self.inserts += 1;
    }

    fn clear(&mut self) {
        self.keys.clear();
    }

    /// Whether the filter must have the key: it was inserted, and no window is over since.
    fn has(&self, plan: &Plan, key: u64) -> bool {
        let Some(entry) = self.keys.get(&key) else { return false };
        match plan.span() {
            None => true,
            Some(Span::Items(last)) => self.inserts - entry.inserts <= last,
            Some(Span::Millis(span)) => {
                // What came before the clock was set counts as inserted then.
                self.now.is_none_or(|now| now <= entry.time.unwrap_or(now).saturating_add(span))
            }
        }
    }

    fn copies(&self, key: u64) -> u64 {
        self.keys.get(&key).map_or(0, |entry| entry.copies)
    }

    fn advance(&mut self, now: u64) {
        if self.now.is_none() {
            self.keys.values_mut().for_each(|entry| entry.time = Some(now));
        }
        self.now = self.now.max(Some(now));
    }

    fn unite(&mut self, other: &Model, kind: Kind) {
        let mut other = other.clone();
        if let Some(now) = other.now {
            self.advance(now);
        } else if let Some(now) = self.now {
            other.advance(now);
        }
        // In which order the keys of both came is not known: each may be the older.
        let (here, there) = (self.inserts, other.inserts);
        for (key, theirs) in other.keys {
            let ours = self.keys.entry(key).or_insert(Entry { copies: 0, ..theirs });
            ours.copies += theirs.copies;
            if !kind.counts() {
                ours.copies = ours.copies.min(1);
            }
            ours.time = ours.time.max(theirs.time);
            ours.inserts = ours.inserts.min(theirs.inserts);
        }
        self.inserts = here + there;
    }
}

fn make(shape: &Shape) -> Option<Filter> {
    let integers = Hasher::integers();
    let rate = |rate: &u8| (f64::from(*rate) + 1.0) / 300.0;
    let lines = |two_lines: &bool| if *two_lines { 2 } else { 1 };
    let in_lines = |kind, blocks: &u8, per_line: &u8, two_lines: &bool| {
        let lines = lines(two_lines);
        let probes = lines * 4 * u32::from(per_line % 4 + 1);
        let bytes = 64 * (u64::from(blocks % 32) + u64::from(lines));
        Plan::builder(kind).items(100).bytes(bytes).lines(lines).probes(probes)
    };
    let (plan, hasher) = match shape {
        Shape::Blocked { blocks, per_line, two_lines, seed } => {
            let plan = in_lines(Kind::Blocked, blocks, per_line, two_lines);
            (plan.build(), Hasher::xxh3(*seed))
        }
        Shape::Classic { bits, probes } => {
            let plan = Plan::exact(Kind::Classic, u64::from(*bits) + 1, u32::from(probes % 64) + 1);
            (plan, Hasher::default())
        }
        Shape::Dense { universe } => {
            (Plan::builder(Kind::Bitmap).universe(u64::from(*universe) + 1).build(), integers)
        }
        Shape::Sparse { universe } => {
            (Plan::builder(Kind::Bitmap).universe((*universe).max(1)).items(1).build(), integers)
        }
        Shape::Keyed { blocks } => {
            let plan = Plan::exact(Kind::Blocked, 512 * (u64::from(*blocks) + 1), 8);
            (plan, Hasher::sip13(inbloom_fuzz::KEY))
        }
        Shape::Counting { blocks, per_line, two_lines, width } => {
            let plan = in_lines(Kind::Counting, blocks, per_line, two_lines);
            (plan.width([2, 3, 4, 8][usize::from(width % 4)]).build(), Hasher::default())
        }
        Shape::Cuckoo { items, rate: wanted } => {
            let plan = Plan::builder(Kind::Cuckoo).items(u64::from(*items)).rate(rate(wanted));
            (plan.build(), Hasher::default())
        }
        Shape::LastKeys { last, generations } => {
            let last = u64::from(last % 1000) + 8;
            let plan =
                Plan::builder(Kind::Window).last(last).generations(u32::from(generations % 8) + 1);
            (plan.build(), Hasher::default())
        }
        Shape::Time { millis, items, generations } => {
            let window = Duration::from_millis(u64::from(*millis) + 8);
            let plan = Plan::builder(Kind::Window).window(window).items(u64::from(*items));
            (plan.generations(u32::from(generations % 8) + 1).build(), Hasher::default())
        }
        Shape::Scalable { items, rate: wanted, growth, tightening } => {
            let plan = Plan::builder(Kind::Scalable).items(u64::from(*items)).rate(rate(wanted));
            let growth = [0, 2, 4, 8][usize::from(growth % 4)];
            let plan = plan.growth(growth).tightening(rate(tightening));
            (plan.build(), Hasher::default())
        }
    };
    Some(Filter::with_hasher(plan.ok()?, hasher).unwrap())
}

impl Pair {
    fn new(filter: Filter) -> Pair {
        Pair { filter, model: Model::default() }
    }

    fn kind(&self) -> Kind {
        self.filter.plan().kind()
    }

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

    fn has(&self, key: u64) -> bool {
        self.model.has(self.filter.plan(), key)
    }

    /// Whether it was new; None if there was no room for it, and nothing has changed.
    fn insert(&mut self, key: u64) -> Option<bool> {
        let (before, clears) = (self.filter.contains(key.to_le_bytes()), will_clear(&self.filter));
        if clears {
            self.model.clear();
        }
        let counted = self.filter.inserted();
        let new = match self.filter.insert(key.to_le_bytes()) {
            Ok(new) => new,
            Err(Error::Full { .. } | Error::Copies { .. }) if can_be_full(self.kind()) => {
                return None;
            }
            Err(error) => panic!("{key}: {error:?}"),
        };
        assert!(!self.has(key) || !new, "{key} is in, and was called new");
        self.model.insert(key);
        assert!(clears || new != before);
        assert_eq!(self.filter.inserted(), if clears { 0 } else { counted } + u64::from(new));
        Some(new)
    }

    /// Takes a key out of both, if that is allowed: where keys share cells, only what is in.
    fn remove(&mut self, key: u64, remove: impl FnOnce(&mut Filter) -> inbloom::Result<bool>) {
        let shares_cells = self.kind() != Kind::Bitmap;
        if shares_cells && self.kind().can_remove() && !self.model.keys.contains_key(&key) {
            return;
        }
        match remove(&mut self.filter) {
            Ok(removed) => {
                assert_eq!(self.model.keys.contains_key(&key), removed, "{key}");
                if let Some(entry) = self.model.keys.get_mut(&key) {
                    entry.copies -=
                        if self.filter.plan().kind().counts() { 1 } else { entry.copies };
                    if entry.copies == 0 {
                        self.model.keys.remove(&key);
                    }
                }
            }
            Err(error) => {
                assert!(matches!(error, Error::Unsupported { .. }) && !self.kind().can_remove());
            }
        }
    }

    fn check(&self) {
        let plan = self.filter.plan();
        // Where a count ends: at the maximum of a counter, or not, since a cuckoo filter refuses.
        let most = match plan.kind() {
            Kind::Counting => (1 << plan.width()) - 1,
            Kind::Cuckoo => u64::MAX,
            _ => 1,
        };
        for key in self.model.keys.keys().filter(|key| self.has(**key)) {
            let bytes = key.to_le_bytes();
            assert!(self.filter.contains(bytes), "{key} is in, and is denied");
            let (count, copies) = (self.filter.count(bytes), self.model.copies(*key));
            assert!(count >= copies.min(most), "{key} is in {copies} times, not {count}");
        }
        if let Some(bitmap) = self.filter.as_bitmap() {
            assert!(bitmap.iter().eq(self.model.keys.keys().copied()), "a bitmap is exact");
            assert_eq!(bitmap.len(), self.model.keys.len() as u64);
        }
        if plan.kind() == Kind::Cuckoo {
            let copies: u64 = self.model.keys.values().map(|entry| entry.copies).sum();
            assert!(self.filter.occupied() >= copies, "an entry for every copy");
        }
        assert!((0.0..=1.0).contains(&self.filter.fill()));
        assert!((0.0..=1.0).contains(&self.filter.rate()));
        assert!(self.filter.estimated_items().items >= 0.0);
    }
}

fuzz_target!(|input: Input| {
    let (Some(left), Some(right)) = (make(&input.shape), make(&input.shape)) else { return };
    let (mut left, mut right) = (Pair::new(left), Pair::new(right));
    // Other kinds are not different with many keys, only slow.
    let mut most_of_ranges = if left.kind() == Kind::Scalable { 16_000 } else { 100 };
    for operation in input.operations.iter().take(200) {
        match operation {
            Operation::Insert(number) => drop(left.insert(left.key(*number))),
            Operation::InsertMany(numbers) => {
                let keys: Vec<u64> = numbers.iter().map(|number| left.key(*number)).collect();
                // The answers, cells and counts of single inserts, up to one that is refused.
                let mut one_by_one =
                    Pair { filter: left.filter.clone(), model: left.model.clone() };
                let expected: Vec<bool> =
                    keys.iter().map_while(|key| one_by_one.insert(*key)).collect();
                let mut new = Vec::new();
                let bytes: Vec<_> = keys.iter().map(|key| key.to_le_bytes()).collect();
                let result = left.filter.insert_many(&bytes, &mut new);
                assert_eq!(result.is_ok(), new.len() == keys.len(), "{result:?}");
                assert_eq!(new, expected);
                assert!(left.filter == one_by_one.filter, "in a batch, other cells");
                assert_eq!(left.filter.inserted(), one_by_one.filter.inserted());
                left.model = one_by_one.model;
            }
            Operation::InsertRange(first, count) => {
                let count = (*count).min(most_of_ranges);
                most_of_ranges -= count;
                for at in 0..count {
                    left.insert(left.key(first.wrapping_add(at)));
                }
            }
            Operation::Contains(number) => {
                let key = left.key(*number);
                let found = left.filter.contains(key.to_le_bytes());
                assert!(found || !left.has(key));
                assert_eq!(left.filter.count(key.to_le_bytes()) > 0, found);
            }
            Operation::ContainsMany(numbers) => {
                let keys: Vec<_> = numbers.iter().map(|n| left.key(*n).to_le_bytes()).collect();
                let mut found = Vec::new();
                left.filter.contains_many(&keys, &mut found);
                assert!(keys.iter().map(|key| left.filter.contains(key)).eq(found));
            }
            Operation::Remove(number) => {
                let key = left.key(*number);
                left.remove(key, |filter| filter.remove(key.to_le_bytes()));
            }
            Operation::Advance(millis) => {
                let now = left.model.now.unwrap_or(1_000_000) + u64::from(*millis);
                match left.filter.advance(now) {
                    Ok(()) => left.model.advance(now),
                    Err(error) => {
                        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
                        assert!(left.kind() != Kind::Window);
                    }
                }
            }
            Operation::Merge => {
                if inbloom_fuzz::merge(&mut left.filter, &right.filter) {
                    let kind = left.kind();
                    left.model.unite(&right.model, kind);
                }
            }
            Operation::Intersect => {
                if inbloom_fuzz::intersect(&mut left.filter, &right.filter) {
                    left.model.keys.retain(|key, entry| {
                        entry.copies = entry.copies.min(right.model.copies(*key));
                        entry.copies > 0
                    });
                }
            }
            Operation::Clear => {
                left.filter.clear().unwrap();
                left.model.clear();
                assert_eq!((left.filter.occupied(), left.filter.inserted()), (0, 0));
            }
            Operation::AutoClear(share) => {
                let share = share.map(|share| f64::from(share) / 256.0 + 1.0 / 512.0);
                let refused = share.is_some() && left.kind() == Kind::Scalable;
                assert_eq!(left.filter.set_auto_clear(share).is_err(), refused);
            }
            Operation::RoundTrip => {
                check_round_trip(&left.filter);
                let mut bytes = Vec::new();
                left.filter.write_to(&mut bytes).unwrap();
                left.filter =
                    OpenOptions::new().secret(&inbloom_fuzz::KEY).read_from(&bytes[..]).unwrap();
            }
            Operation::Share { insert, remove, once } => {
                let keys: Vec<u64> = insert.iter().map(|number| left.key(*number)).collect();
                let most = clears_above(&left.filter);
                let shared = left.filter.into_shared().unwrap();
                for key in keys {
                    let bytes = key.to_le_bytes();
                    // One that is there already is not inserted, and clears nothing.
                    let inserts = !once || !shared.contains(bytes);
                    if inserts && most.is_some_and(|most| shared.occupied() > most) {
                        left.model.clear();
                    }
                    let result = match once {
                        true => shared.insert_if_absent(bytes),
                        false => shared.insert(bytes),
                    };
                    match result {
                        Ok(new) => {
                            assert!(!left.model.has(shared.plan(), key) || !new);
                            assert!(shared.contains(bytes) && shared.count(bytes) > 0);
                            if new || !once {
                                left.model.insert(key);
                            }
                        }
                        Err(Error::Full { .. } | Error::Copies { .. })
                            if can_be_full(shared.plan().kind()) => {}
                        Err(error) => panic!("{key}: {error:?}"),
                    }
                }
                left.filter = shared.into_exclusive();
                for number in remove {
                    let key = left.key(*number);
                    left.remove(key, |filter| {
                        let shared = std::mem::replace(filter, make(&input.shape).unwrap());
                        let shared = shared.into_shared().unwrap();
                        let removed = shared.remove(key.to_le_bytes());
                        *filter = shared.into_exclusive();
                        removed
                    });
                }
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
