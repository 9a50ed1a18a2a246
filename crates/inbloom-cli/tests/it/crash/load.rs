//! The load of one connection: random commands in pipelines, until the connection ends.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use inbloom_testing::Random;

use crate::crash::chance::Tally;
use crate::crash::client::{Client, Reply, encode};
use crate::crash::world::{
    Effect, HAZY, Item, Key, Operation, Outcome, Shape, Verb, World, is_shared,
};

/// Connections, and families of items that are counted apart.
pub const CONNECTIONS: u32 = 4;
/// Keys that a connection has names for.
pub const NAMES: u64 = 12;
/// The first of them are deleted rarely, so that they grow. Each is always made as the same.
const LASTING: [Shape; 6] = [
    Shape::DEFAULT,
    Shape::DEFAULT,
    Shape::DEFAULT_BUCKETS,
    Shape::RESERVED[3],
    Shape::RESERVED[4],
    Shape::RESERVED[7],
];
const PASSING: u64 = LASTING.len() as u64;
/// An item is there so often at most: a cuckoo filter has room for 8 copies, and a twin's.
const COPIES: u8 = 3;

pub fn name(connection: u32, number: u64) -> String {
    format!("c{connection}:k{number}")
}

pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that is set");
    since.as_millis() as u64
}

/// The next family of a connection. It is never used twice, also if the command that was to use it
/// is lost.
#[derive(Clone, Copy)]
pub struct Families {
    pub connection: u32,
    pub used: u32,
}

impl Families {
    pub fn draw(&mut self) -> u32 {
        self.used += 1;
        self.used * CONNECTIONS + self.connection
    }
}

/// What a connection knows when it has ended.
pub struct Ended {
    /// What was acknowledged.
    pub world: World,
    /// What was not, in its order.
    pub in_flight: VecDeque<Operation>,
    /// The last ones that were acknowledged.
    pub last: VecDeque<Operation>,
    /// Commands that were acknowledged, by their names.
    pub acknowledged: BTreeMap<String, u64>,
    /// Snapshots that began.
    pub saves: u64,
    /// Databases of keys that were given a short time to live, and when each ends at the latest.
    pub doomed: Vec<(usize, u64)>,
    pub tally: Tally,
    /// A reply that must not be, or a connection that ended by itself.
    pub failure: Option<String>,
}

/// Sends commands until the connection ends, which must not be before `is_over`.
pub fn drive(
    client: &mut Client,
    world: World,
    families: &mut Families,
    random: &mut Random,
    is_over: &AtomicBool,
) -> Ended {
    let mut ended = Ended {
        world,
        in_flight: VecDeque::new(),
        last: VecDeque::new(),
        acknowledged: BTreeMap::new(),
        saves: 0,
        doomed: Vec::new(),
        tally: Tally::default(),
        failure: None,
    };
    loop {
        ended.world.bury(now());
        ended.in_flight = pipeline(&ended.world, families, random).into();
        let mut bytes = Vec::new();
        for operation in &ended.in_flight {
            encode(&operation.words, &mut bytes);
            if let Effect::Expire { milliseconds, is_short: true, .. } = operation.effect {
                // It waits for those before it, but not for seconds.
                let latest = operation.sent + milliseconds + 1000;
                ended.doomed.extend([(0, latest), (1, latest)]);
            }
        }
        let mut result = client.stream.write_all(&bytes);
        while result.is_ok() && !ended.in_flight.is_empty() {
            match client.read() {
                Ok(reply) => {
                    if let Err(text) = ended.take(&reply) {
                        ended.failure = Some(text);
                        return ended;
                    }
                }
                Err(error) => result = Err(error),
            }
        }
        if let Err(error) = result {
            let is_hanging =
                matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
            if !is_over.load(Ordering::SeqCst) || is_hanging {
                ended.failure = Some(format!("the connection ended by itself: {error}"));
            }
            return ended;
        }
    }
}

impl Ended {
    /// Takes a reply for the first command that waits for one.
    fn take(&mut self, reply: &Reply) -> Result<(), String> {
        let operation = self.in_flight.pop_front().expect("one waits");
        *self.acknowledged.entry(operation.words[0].clone()).or_default() += 1;
        if matches!(operation.effect, Effect::Save) {
            self.saves += u64::from(!matches!(reply, Reply::Error(_)));
        }
        let outcome = Outcome::Acknowledged(reply, now());
        let applied = self.world.apply(&operation, outcome, &mut self.tally);
        let applied = applied.map_err(|text| format!("'{operation}' was answered wrongly: {text}"));
        self.last.push_back(operation);
        if self.last.len() > 5 {
            self.last.pop_front();
        }
        applied
    }
}

/// Up to 50 commands, each of which makes sense after those before it.
fn pipeline(world: &World, families: &mut Families, random: &mut Random) -> Vec<Operation> {
    let length = if random.one_in(3) { 1 } else { 1 + random.below(50) };
    let mut after = world.clone();
    let mut pipeline = Vec::new();
    while (pipeline.len() as u64) < length {
        let Some(operation) = command(&after, families, random) else { continue };
        // What is predicted are no answers, so that nothing can be wrong with them.
        let outcome = Outcome::Lost(operation.sent);
        after
            .apply(&operation, outcome, &mut Tally::default())
            .expect("a command that makes sense");
        pipeline.push(operation);
    }
    pipeline
}

/// A random command, None if the one that was drawn makes no sense here.
fn command(world: &World, families: &mut Families, random: &mut Random) -> Option<Operation> {
    let number = random.below(NAMES);
    let target = name(families.connection, number);
    let key = world.here().get(&target);
    if key.is_some_and(Key::is_doomed) {
        return None;
    }
    let may_go = number >= PASSING || random.one_in(200);
    match random.below(1000) {
        0..600 => add(world, target, number, families, random),
        600..720 => remove(key?, target, random),
        720..800 => add_shared(world, families, random),
        800..840 if key.is_none() => {
            let drawn = random.pick(&Shape::RESERVED).copied();
            let shape = LASTING.get(number as usize).copied().or(drawn)?;
            let words = shape.reserve(&target);
            done(words, Effect::Reserve { name: target, own: families.draw(), shape })
        }
        840..880 => {
            let mut names = vec![target];
            if random.one_in(2) {
                names.push(passing(families.connection, random));
            }
            names.dedup();
            let is_doomed = |name: &String| world.here().get(name).is_some_and(Key::is_doomed);
            let may_go = may_go && !names.iter().any(is_doomed);
            let verb = if random.one_in(2) { "DEL" } else { "UNLINK" };
            let words = [&[verb.to_owned()], &names[..]].concat();
            may_go.then(|| done(words, Effect::Delete { names })).flatten()
        }
        880..900 => {
            let to = passing(families.connection, random);
            let is_doomed = world.here().get(&to).is_some_and(Key::is_doomed);
            let fits = may_go && key.is_some() && to != target && !is_doomed;
            let words = line(&format!("RENAME {target} {to}"));
            fits.then(|| done(words, Effect::Rename { from: target, to })).flatten()
        }
        900..920 => {
            let there = &world.databases[1 - world.selected];
            let fits = may_go && key.is_some() && !there.contains_key(&target);
            let other = if world.selected == 0 { own_database(families.connection) } else { 0 };
            let words = line(&format!("MOVE {target} {other}"));
            fits.then(|| done(words, Effect::Move { name: target })).flatten()
        }
        920..940 => merge(world, key?, target, families, random),
        940..955 => {
            key?;
            let is_short = may_go && random.one_in(3);
            let milliseconds =
                if is_short { 1 + random.below(1500) } else { 3_600_000 + random.below(1_000_000) };
            let (verb, span) = match is_short || random.one_in(2) {
                true => ("PEXPIRE", milliseconds),
                false => ("EXPIRE", milliseconds / 1000),
            };
            let milliseconds = if verb == "EXPIRE" { span * 1000 } else { span };
            let words = line(&format!("{verb} {target} {span}"));
            done(words, Effect::Expire { name: target, milliseconds, is_short })
        }
        955..965 => {
            key?;
            done(line(&format!("PERSIST {target}")), Effect::Persist { name: target })
        }
        965..990 => {
            let other = 1 - world.selected;
            let number = if other == 0 { 0 } else { own_database(families.connection) };
            done(line(&format!("SELECT {number}")), Effect::Select(other))
        }
        990..993 if world.selected == 1 => done(line("FLUSHDB"), Effect::Flush),
        995..1000 if random.one_in(4) => done(line("BGSAVE"), Effect::Save),
        _ => None,
    }
}

/// The name of a key that may go.
fn passing(connection: u32, random: &mut Random) -> String {
    name(connection, PASSING + random.below(NAMES - PASSING))
}

/// The database that a connection has for itself.
pub fn own_database(connection: u32) -> u32 {
    1 + connection
}

fn line(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[expect(clippy::unnecessary_wraps, reason = "the last step of functions that may have none")]
fn done(words: Vec<String>, effect: Effect) -> Option<Operation> {
    Some(Operation { words, effect, sent: now() })
}

fn add(
    world: &World,
    name: String,
    number: u64,
    families: &mut Families,
    random: &mut Random,
) -> Option<Operation> {
    let key = world.here().get(&name);
    if let Some(key) = key {
        return add_to(key.filter.shape, Some(key), name, families, random, "");
    }
    // Most are reserved, as they are to be of all kinds; the INSERT commands make some as told.
    let (shape, options) = match (LASTING.get(number as usize), random.below(20)) {
        (Some(shape), _) if [Shape::DEFAULT, Shape::DEFAULT_BUCKETS].contains(shape) => {
            (*shape, "")
        }
        (None, 0) => (Shape::DEFAULT, ""),
        (None, 1) => (Shape::DEFAULT_BUCKETS, ""),
        (None, 2) => (Shape { capacity: 4096, ..Shape::DEFAULT_BUCKETS }, "CAPACITY 4096"),
        (None, 3) => (Shape::RESERVED[1], "ERROR 0.00001 CAPACITY 20000 NONSCALING"),
        _ => return None,
    };
    add_to(shape, None, name, families, random, options)
}

/// With options, which only the INSERT commands take, for a filter that is to be made.
fn add_to(
    shape: Shape,
    key: Option<&Key>,
    name: String,
    families: &mut Families,
    random: &mut Random,
    options: &str,
) -> Option<Operation> {
    let is_one = options.is_empty() && random.one_in(2);
    let length = if is_one { 1 } else { 1 + random.below(200) };
    let own = key.map_or_else(|| families.draw(), |key| key.filter.own);
    // The room of filters that all add to is divided.
    let most = if is_shared(&name) { shape.most() / CONNECTIONS as usize } else { shape.most() };
    let items = items(key, own, shape, most, length, random)?;
    let is_unless_there = is_one && random.one_in(2);
    let (one, many, insert, verb) = match shape.is_buckets() {
        true if is_unless_there => ("CF.ADDNX", "", "", Verb::BucketsUnlessThere),
        true => ("CF.ADD", "CF.INSERT", "CF.INSERT", Verb::Buckets),
        false => ("BF.ADD", "BF.MADD", "BF.INSERT", Verb::Bloom),
    };
    let verb_word = match (is_one, options.is_empty() && random.one_in(2)) {
        (true, _) => one,
        (false, true) => many,
        (false, false) => insert,
    };
    let mut words = line(&format!("{verb_word} {name}"));
    if !options.is_empty() {
        words.extend(line(options));
    }
    if verb_word.ends_with("INSERT") {
        words.push("ITEMS".to_owned());
    }
    words.extend(items.iter().map(|item| item.word()));
    done(words, Effect::Add { name, own, shape, verb, items })
}

/// Items to add, so that there are not more than `most`: most of them new, some there already.
fn items(
    key: Option<&Key>,
    own: u32,
    shape: Shape,
    most: usize,
    length: u64,
    random: &mut Random,
) -> Option<Vec<Item>> {
    let drawn = key.map_or(0, |key| key.filter.drawn());
    let has_room = key.map_or(0, |key| key.filter.size()) + length as usize <= most;
    let mut copies: BTreeMap<Item, u8> = BTreeMap::new();
    let mut next = drawn;
    for _ in 0..length {
        let is_new = has_room && (next == 0 || random.below(10) < 8);
        let number = if is_new { next } else { random.below(u64::from(next.max(1))) as u32 };
        let item = Item { family: own, number };
        let before = key.map_or(0, |key| key.filter.count(item));
        // Nothing is known of a hazy item, so there is nothing to be learned by adding it again.
        let may_be_added = !shape.counts() || before < COPIES && has_room;
        if (is_new || number < drawn) && before != HAZY && may_be_added {
            next += u32::from(is_new);
            copies.insert(item, 1);
        }
    }
    let items: Vec<Item> = copies.into_keys().collect();
    (!items.is_empty()).then_some(items)
}

fn remove(key: &Key, name: String, random: &mut Random) -> Option<Operation> {
    let filter = &key.filter;
    if !filter.shape.can_remove() || filter.drawn() == 0 {
        return None;
    }
    let is_cuckoo = filter.shape.is_buckets() && random.one_in(2);
    let length = if is_cuckoo { 1 } else { 1 + random.below(10) };
    let mut items = Vec::new();
    for _ in 0..length {
        let number = random.below(u64::from(filter.drawn())) as u32;
        let item = Item { family: filter.own, number };
        if (1..HAZY).contains(&filter.count(item)) && !items.contains(&item) {
            items.push(item);
        }
    }
    if items.is_empty() {
        return None;
    }
    let mut words = line(&format!("{} {name}", if is_cuckoo { "CF.DEL" } else { "IB.DEL" }));
    words.extend(items.iter().map(|item| item.word()));
    done(words, Effect::Remove { name, items })
}

fn add_shared(world: &World, families: &mut Families, random: &mut Random) -> Option<Operation> {
    let names: Vec<&String> = world.here().keys().filter(|name| is_shared(name)).collect();
    let name = (*random.pick(&names)?).clone();
    let key = &world.here()[&name];
    add_to(key.filter.shape, Some(key), name, families, random, "")
}

/// Into a new key, which is a copy, or into one like it that stays half empty.
fn merge(
    world: &World,
    key: &Key,
    from: String,
    families: &mut Families,
    random: &mut Random,
) -> Option<Operation> {
    let into = passing(families.connection, random);
    let shape = key.filter.shape;
    let fits = match world.here().get(&into) {
        None => shape.can_be_copied(),
        Some(other) => {
            let is_alike = shape.can_be_united() && other.filter.shape == shape;
            let is_free = into != from && !other.is_doomed();
            is_alike && is_free && key.filter.size() + other.filter.size() <= shape.most()
        }
    };
    let words = line(&format!("IB.MERGE {into} {from}"));
    let own = families.draw();
    fits.then(|| done(words, Effect::Merge { into, own, from })).flatten()
}
