//! What the server must have: the filters of one connection, item by item.
//!
//! A connection alone writes to its keys, and its commands are carried out in their order, so what
//! they leave behind is known exactly, but for what a filter may take for something else. A command
//! is applied with the reply that came, or without one, if none has come before the kill.
//!
//! Items are `family:number`. Each filter draws its new items from a family that no other filter
//! draws from, so that an item found where it was never added is a false positive or a fault.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::crash::chance::{Claims, Tally};
use crate::crash::client::Reply;

/// Milliseconds between the clocks of both sides: it is one clock, but read at different times.
pub const SLACK: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    pub family: u32,
    pub number: u32,
}

impl Item {
    pub fn word(self) -> String {
        format!("{}:{}", self.family, self.number)
    }
}

/// What a filter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What BF.ADD makes: it grows.
    Scaling,
    Fixed,
    Classic,
    Counting,
    Cuckoo,
    RedisBloom,
    Window,
    /// What CF.ADD makes.
    Buckets,
}

/// How a filter was reserved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    pub kind: Kind,
    pub rate: f64,
    pub capacity: u64,
    /// Of CF.*.
    pub bucket_size: u64,
}

impl Shape {
    /// What BF.ADD and BF.MADD make.
    pub const DEFAULT: Shape = Shape::of(Kind::Scaling, 0.01, 100);
    /// What CF.ADD makes. It grows after a thousand items; then items of different sub-filters may
    /// be taken for each other when one is removed, so nothing is ever removed from it. What is
    /// removed from has buckets of 4.
    pub const DEFAULT_BUCKETS: Shape =
        Shape { bucket_size: 2, ..Shape::of(Kind::Buckets, 0.0, 1024) };
    /// Rates are low, so that chance explains little.
    pub const RESERVED: [Shape; 8] = [
        Shape::of(Kind::Scaling, 0.00001, 1000),
        Shape::of(Kind::Fixed, 0.00001, 20_000),
        Shape::of(Kind::Classic, 0.00001, 20_000),
        Shape::of(Kind::Counting, 0.00001, 20_000),
        Shape::of(Kind::Cuckoo, 0.00001, 20_000),
        Shape::of(Kind::RedisBloom, 0.001, 5000),
        Shape::of(Kind::Window, 0.00001, 20_000),
        Shape { bucket_size: 4, ..Shape::of(Kind::Buckets, 0.0, 1 << 15) },
    ];

    pub const fn of(kind: Kind, rate: f64, capacity: u64) -> Shape {
        Shape { kind, rate, capacity, bucket_size: 0 }
    }

    pub fn is_buckets(&self) -> bool {
        self.kind == Kind::Buckets
    }

    /// Whether an item can be in it several times.
    pub fn counts(&self) -> bool {
        matches!(self.kind, Kind::Counting | Kind::Cuckoo | Kind::Buckets)
    }

    /// Whether it is a cuckoo filter that gets several sub-filters.
    fn multiplies(&self) -> bool {
        self.is_buckets() && self.bucket_size == Shape::DEFAULT_BUCKETS.bucket_size
    }

    pub fn can_remove(&self) -> bool {
        self.counts() && !self.multiplies()
    }

    pub fn can_be_copied(&self) -> bool {
        matches!(self.kind, Kind::Scaling | Kind::Fixed | Kind::Classic | Kind::Counting)
    }

    /// Whether two of them may be made one, with a count that is known to lie in a range.
    pub fn can_be_united(&self) -> bool {
        matches!(self.kind, Kind::Fixed | Kind::Classic)
    }

    /// Items, each as often as it is there, beyond which nothing is added. Those that do not grow
    /// are never full, and cuckoo filters not even crowded.
    pub fn most(&self) -> usize {
        match self.kind {
            Kind::Scaling => 50_000,
            Kind::RedisBloom => 20_000,
            _ if self.multiplies() => 8_000,
            _ => self.capacity as usize / 2,
        }
    }

    /// How often an item that is not there may be claimed, where a cuckoo filter has so many
    /// sub-filters.
    pub fn claims(&self, sub_filters: i64) -> f64 {
        match self.kind {
            // A fingerprint is one of 255, and meets two buckets in each sub-filter.
            Kind::Buckets => {
                let met = 2.0 * self.bucket_size as f64 * sub_filters as f64;
                1.0 - (1.0 - 1.0 / 255.0f64).powf(met)
            }
            _ => self.rate,
        }
    }

    /// The words of BF.RESERVE or CF.RESERVE.
    pub fn reserve(&self, name: &str) -> Vec<String> {
        let Shape { rate, capacity, bucket_size, .. } = self;
        let line = match self.kind {
            Kind::Buckets => format!("CF.RESERVE {name} {capacity} BUCKETSIZE {bucket_size}"),
            Kind::Scaling => format!("BF.RESERVE {name} {rate} {capacity}"),
            Kind::Fixed => format!("BF.RESERVE {name} {rate} {capacity} NONSCALING"),
            Kind::Classic => format!("BF.RESERVE {name} {rate} {capacity} KIND classic"),
            Kind::Counting => format!("BF.RESERVE {name} {rate} {capacity} KIND counting"),
            Kind::Cuckoo => format!("BF.RESERVE {name} {rate} {capacity} KIND cuckoo"),
            Kind::RedisBloom => format!("BF.RESERVE {name} {rate} {capacity} KIND redisbloom"),
            Kind::Window => format!("BF.RESERVE {name} {rate} {capacity} WINDOW 1h"),
        };
        line.split(' ').map(str::to_owned).collect()
    }
}

/// How an item is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// BF.ADD, BF.MADD, BF.INSERT.
    Bloom,
    /// CF.ADD, CF.INSERT.
    Buckets,
    /// CF.ADDNX.
    BucketsUnlessThere,
}

/// A command that changes something.
#[derive(Clone, Debug)]
pub struct Operation {
    pub words: Vec<String>,
    pub effect: Effect,
    /// When it was sent, in milliseconds since 1970.
    pub sent: u64,
}

#[derive(Clone, Debug)]
pub enum Effect {
    Select(usize),
    Reserve {
        name: String,
        own: u32,
        shape: Shape,
    },
    /// Makes the filter if there is none.
    Add {
        name: String,
        own: u32,
        shape: Shape,
        verb: Verb,
        items: Vec<Item>,
    },
    Remove {
        name: String,
        items: Vec<Item>,
    },
    Delete {
        names: Vec<String>,
    },
    Rename {
        from: String,
        to: String,
    },
    /// To the other database.
    Move {
        name: String,
    },
    /// Makes the filter if there is none.
    Merge {
        into: String,
        own: u32,
        from: String,
    },
    /// `is_short`: it may die before the next look.
    Expire {
        name: String,
        milliseconds: u64,
        is_short: bool,
    },
    Persist {
        name: String,
    },
    Flush,
    Save,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = self.words.len().min(8);
        write!(f, "{}", self.words[..shown].join(" "))?;
        if shown < self.words.len() {
            write!(f, " ... ({} words)", self.words.len())?;
        }
        Ok(())
    }
}

/// What is known of how a command ended.
#[derive(Clone, Copy)]
pub enum Outcome<'a> {
    /// It was acknowledged with this reply, read at this time.
    Acknowledged(&'a Reply, u64),
    /// It was carried out, no later than at this time, and what it answered was lost.
    Lost(u64),
}

/// Nothing is known of the item: it was to be added unless it seemed to be there, or it is not to
/// be seen whether a command in flight was carried out. It is left alone from then on.
pub const HAZY: u8 = u8::MAX;

/// How often each item of a family is there, by number. Small enough to be copied for every prefix
/// of a pipeline.
type Counts = Vec<u8>;

#[derive(Clone, Debug)]
pub struct Filter {
    pub shape: Shape,
    /// The family from which its new items come.
    pub own: u32,
    pub families: BTreeMap<u32, Counts>,
    /// What BF.CARD tells, or the items of CF.INFO, but for what is in doubt.
    pub card: i64,
    /// The card may be less by so much, after a merge.
    pub loose: i64,
    /// So many items may each have changed the card by one less or more: by a false positive.
    pub doubt: u64,
}

impl Filter {
    pub fn new(shape: Shape, own: u32) -> Filter {
        let families = BTreeMap::from([(own, Counts::new())]);
        Filter { shape, own, families, card: 0, loose: 0, doubt: 0 }
    }

    pub fn count(&self, item: Item) -> u8 {
        let counts = self.families.get(&item.family);
        counts.and_then(|counts| counts.get(item.number as usize)).copied().unwrap_or(0)
    }

    /// Items, each as often as it is there.
    pub fn size(&self) -> usize {
        let copies = |count: &u8| usize::from(if *count == HAZY { 1 } else { *count });
        self.families.values().flatten().map(copies).sum()
    }

    /// Items of its own family that were ever added.
    pub fn drawn(&self) -> u32 {
        self.families[&self.own].len() as u32
    }

    fn set(&mut self, item: Item, count: u8) {
        let counts = self.families.entry(item.family).or_default();
        let at = item.number as usize;
        if counts.len() <= at {
            counts.resize(at + 1, 0);
        }
        counts[at] = count;
    }

    /// Adds an item that was answered with this number, if it was.
    fn add(
        &mut self,
        item: Item,
        verb: Verb,
        answer: Option<i64>,
        claims: &mut Claims,
    ) -> Result<(), String> {
        let before = self.count(item);
        let wrong = |answer: i64| {
            let word = item.word();
            Err(format!(
                "item {word} was there {before} times, and adding it was answered {answer}"
            ))
        };
        match (verb, before, answer) {
            (Verb::Bloom, 1.., Some(0) | None) => {
                if self.shape.counts() {
                    self.set(item, before + 1);
                }
            }
            (Verb::Bloom, 0, Some(new @ (0 | 1))) => {
                claims.asked += 1;
                claims.claimed += u64::from(new == 0);
                self.card += new;
                self.set(item, 1);
            }
            (Verb::Bloom, 0, None) => {
                self.card += 1;
                self.doubt += 1;
                self.set(item, 1);
            }
            (Verb::Buckets, _, Some(1) | None) if before != HAZY => {
                self.card += 1;
                self.set(item, before + 1);
            }
            (Verb::BucketsUnlessThere, 1..HAZY, Some(0) | None) => {}
            (Verb::BucketsUnlessThere, 0 | HAZY, Some(1)) => {
                claims.asked += u64::from(before == 0);
                self.card += 1;
                self.set(item, 1);
            }
            (Verb::BucketsUnlessThere, 0 | HAZY, Some(0)) => {
                claims.asked += u64::from(before == 0);
                claims.claimed += u64::from(before == 0);
                self.set(item, HAZY);
            }
            (Verb::BucketsUnlessThere, 0 | HAZY, None) => {
                self.card += 1;
                self.loose += 1;
                self.set(item, HAZY);
            }
            (_, _, answer) => return wrong(answer.unwrap_or(-1)),
        }
        Ok(())
    }

    fn remove(&mut self, item: Item, answer: Option<i64>) -> Result<(), String> {
        let before = self.count(item);
        assert!(before > 0 && before < HAZY, "only what is there is removed");
        if answer.is_some_and(|answer| answer != 1) {
            let word = item.word();
            return Err(format!("item {word} was there {before} times, and is not to be removed"));
        }
        self.set(item, before - 1);
        if self.shape.is_buckets() {
            self.card -= 1;
        } else if before == 1 {
            // The card counts distinct items. What still seems to be there is still counted.
            self.card -= 1;
            self.doubt += 1;
        }
        Ok(())
    }

    /// Takes in what another has.
    fn unite(&mut self, other: &Filter) {
        for (family, counts) in &other.families {
            for (number, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                self.set(Item { family: *family, number: number as u32 }, *count);
            }
        }
        self.loose = self.loose + other.loose + self.card.min(other.card);
        self.card += other.card;
        self.doubt += other.doubt;
    }
}

/// When a key ends, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deadline {
    pub earliest: u64,
    pub latest: u64,
    /// It may be over before the next look: the key is left alone until it is.
    pub is_short: bool,
}

#[derive(Clone, Debug)]
pub struct Key {
    pub filter: Arc<Filter>,
    pub deadline: Option<Deadline>,
}

impl Key {
    pub fn is_doomed(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline.is_short)
    }
}

/// Keys that all connections add to.
pub fn is_shared(name: &str) -> bool {
    name.starts_with("shared:")
}

/// All that a connection has made: in the first database, which all use, and in one of its own.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub databases: [BTreeMap<String, Key>; 2],
    pub selected: usize,
}

impl World {
    pub fn here(&self) -> &BTreeMap<String, Key> {
        &self.databases[self.selected]
    }

    /// Forgets keys that are dead for certain.
    pub fn bury(&mut self, now: u64) {
        for keys in &mut self.databases {
            keys.retain(|_, key| key.deadline.is_none_or(|it| it.latest + SLACK >= now));
        }
    }

    fn key(&mut self, name: &str) -> &mut Key {
        self.databases[self.selected].get_mut(name).expect("only what is there is touched")
    }

    fn filter(&mut self, name: &str) -> &mut Filter {
        Arc::make_mut(&mut self.key(name).filter)
    }

    fn put(&mut self, name: &str, filter: Filter) {
        let key = Key { filter: Arc::new(filter), deadline: None };
        let before = self.databases[self.selected].insert(name.to_owned(), key);
        assert!(before.is_none(), "only names that are free are reserved");
    }

    /// Forgets what is known of the items of a command that may have been carried out or not, where
    /// nobody can tell: whether there are one or two copies of an item is not to be seen, and what
    /// a cuckoo filter takes for an item may be another one. To remove one too many would be our
    /// fault.
    pub fn blur(&mut self, operation: &Operation) {
        let (Effect::Add { items, .. } | Effect::Remove { items, .. }) = &operation.effect else {
            return;
        };
        // By the family, since the filter may have another name by now, and copies.
        let keys = self.databases.iter_mut().flatten().map(|(_, key)| key);
        let is_unsure = |key: &&mut Key| {
            key.filter.shape.counts() && key.filter.families.contains_key(&items[0].family)
        };
        for key in keys.filter(is_unsure) {
            let filter = Arc::make_mut(&mut key.filter);
            items.iter().for_each(|item| filter.set(*item, HAZY));
        }
    }

    /// Carries out a command. Err: it was answered as it must not be.
    pub fn apply(
        &mut self,
        operation: &Operation,
        outcome: Outcome<'_>,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let reply = match outcome {
            Outcome::Acknowledged(reply, _) => Some(reply),
            Outcome::Lost(_) => None,
        };
        match &operation.effect {
            Effect::Select(number) => {
                self.selected = *number;
                is_ok(reply)
            }
            Effect::Reserve { name, own, shape } => {
                self.put(name, Filter::new(*shape, *own));
                is_ok(reply)
            }
            Effect::Add { name, own, shape, verb, items } => {
                if !self.here().contains_key(name) {
                    self.put(name, Filter::new(*shape, *own));
                }
                let filter = self.filter(name);
                // How many sub-filters there are is not known here: as many as there may be.
                let sub_filters = if filter.shape.multiplies() { 32 } else { 1 };
                let rate = filter.shape.claims(sub_filters);
                let mut claims = Claims {
                    what: "new items that an add called known",
                    asked: 0,
                    rate,
                    claimed: 0,
                };
                let answers = numbers(reply, items.len())?;
                for (item, answer) in items.iter().zip(answers) {
                    filter.add(*item, *verb, answer, &mut claims)?;
                }
                tally.add(&claims);
                if claims.are_too_many() {
                    let Claims { asked, claimed, .. } = claims;
                    return Err(format!("{claimed} of {asked} new items were called known"));
                }
                Ok(())
            }
            Effect::Remove { name, items } => {
                let answers = numbers(reply, items.len())?;
                let filter = self.filter(name);
                let mut pairs = items.iter().zip(answers);
                pairs.try_for_each(|(item, answer)| filter.remove(*item, answer))
            }
            Effect::Delete { names } => {
                let keys = &mut self.databases[self.selected];
                let found = names.iter().filter(|name| keys.remove(*name).is_some()).count();
                is_number(reply, found as i64)
            }
            Effect::Rename { from, to } => {
                let keys = &mut self.databases[self.selected];
                let key = keys.remove(from).expect("only what is there is renamed");
                keys.insert(to.clone(), key);
                is_ok(reply)
            }
            Effect::Move { name } => {
                let key = self.databases[self.selected].remove(name);
                let key = key.expect("only what is there is moved");
                self.databases[1 - self.selected].insert(name.clone(), key);
                is_number(reply, 1)
            }
            Effect::Merge { into, own, from } => {
                let source = Filter::clone(&self.key(from).filter);
                if self.here().contains_key(into) {
                    self.filter(into).unite(&source);
                } else {
                    let mut copy = Filter { own: *own, ..source };
                    copy.families.insert(*own, Counts::new());
                    self.put(into, copy);
                }
                is_ok(reply)
            }
            Effect::Expire { name, milliseconds, is_short } => {
                let latest = match outcome {
                    Outcome::Acknowledged(_, at) | Outcome::Lost(at) => at + milliseconds,
                };
                let earliest = operation.sent + milliseconds;
                let is_short = *is_short;
                self.key(name).deadline = Some(Deadline { earliest, latest, is_short });
                is_number(reply, 1)
            }
            Effect::Persist { name } => {
                let had = self.key(name).deadline.take().is_some();
                is_number(reply, i64::from(had))
            }
            Effect::Flush => {
                self.databases[self.selected].clear();
                is_ok(reply)
            }
            // A second one at the same time may be refused.
            Effect::Save => Ok(()),
        }
    }
}

fn is_ok(reply: Option<&Reply>) -> Result<(), String> {
    match reply {
        None => Ok(()),
        Some(Reply::Simple(text)) if text == "OK" => Ok(()),
        Some(other) => Err(format!("expected OK, got {other:?}")),
    }
}

fn is_number(reply: Option<&Reply>, expected: i64) -> Result<(), String> {
    match reply {
        None => Ok(()),
        Some(Reply::Integer(number)) if *number == expected => Ok(()),
        Some(other) => Err(format!("expected {expected}, got {other:?}")),
    }
}

/// An answer for each item, or None for each.
fn numbers(reply: Option<&Reply>, length: usize) -> Result<Vec<Option<i64>>, String> {
    let Some(reply) = reply else { return Ok(vec![None; length]) };
    let numbers = reply.integers()?;
    if numbers.len() != length {
        return Err(format!("expected {length} answers, got {}", numbers.len()));
    }
    Ok(numbers.into_iter().map(Some).collect())
}
