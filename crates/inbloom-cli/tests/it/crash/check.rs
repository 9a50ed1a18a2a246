//! Whether a server has what it must have.
//!
//! The commands of a connection that were in flight may have been carried out, or not, but in their
//! order: what is there must be what some number of them leaves behind, the same number for all
//! keys. So everything is asked for once, and each such world is compared with it. A world that
//! lacks nothing fits; of several, the one with the fewest false positives is taken, and of those
//! the one of the most commands. What the filter is free to claim is counted, and must be chance.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use inbloom_testing::Random;

use crate::crash::chance::{Claims, Tally};
use crate::crash::client::{Client, Reply};
use crate::crash::load::{NAMES, name, now, own_database};
use crate::crash::world::{
    Deadline, Effect, Filter, HAZY, Item, Key, Kind, Operation, Outcome, SLACK, Verb, World,
    is_shared,
};

/// Items that are asked for in one command.
const BATCH: usize = 500;
/// Items of other filters that each filter is asked for.
const FOREIGN: usize = 60;
/// Items of a cuckoo filter whose copies are counted, since each takes a command.
const COUNTED: u64 = 200;

/// All that a connection may have done.
pub struct Question<'a> {
    pub connection: u32,
    pub acknowledged: &'a World,
    pub in_flight: &'a [Operation],
    /// When the server was dead, or the connection.
    pub ended: u64,
    /// Families whose items are somewhere, and how many.
    pub families: &'a [(u32, u32)],
    /// Families of shared filters, the items of which all connections may find there.
    pub shared: &'a BTreeSet<u32>,
}

/// What a server told of a key.
struct Seen {
    kind: Option<Type>,
    /// It was there at first and not at the end, or the reverse.
    has_changed: bool,
    /// As PEXPIRETIME tells it.
    expires: i64,
    /// The numbers of BF.INFO or CF.INFO, by their names.
    facts: BTreeMap<String, Option<i64>>,
    /// As BF.CARD tells it.
    card: Option<i64>,
    /// Whether an item of a family is there, by number.
    items: BTreeMap<u32, Vec<bool>>,
    copies: Vec<(Item, i64)>,
    foreign: (u64, u64),
    /// The time before the first question and after the last.
    asked: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Bloom,
    Cuckoo,
}

impl Seen {
    fn fact(&self, name: &str) -> Option<i64> {
        self.facts.get(name).copied().flatten()
    }

    /// What BF.CARD or CF.INFO tells.
    fn card(&self) -> i64 {
        self.fact("Number of items inserted").unwrap_or(-1)
    }
}

/// Where a key is: 0 is the database of all, 1 the connection's own.
type Place = (usize, String);

/// The world that the server has, if it may have it. Err: why not.
pub fn check(
    client: &mut Client,
    question: &Question<'_>,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<World, String> {
    let in_flight = divided(question);
    let question = &Question { in_flight: &in_flight, ..*question };
    let mut worlds = vec![question.acknowledged.clone()];
    for operation in question.in_flight {
        let mut world = worlds[worlds.len() - 1].clone();
        let applied = world.apply(operation, Outcome::Lost(question.ended), &mut Tally::default());
        applied.expect("what has no answer has no wrong one");
        worlds.push(world);
    }
    let seen = observe(client, question, &worlds, random)?;
    let mut best: Option<(u64, usize, Vec<Claims>)> = None;
    let (mut fitting, mut reasons) = (Vec::new(), Vec::new());
    for (length, world) in worlds.iter().enumerate() {
        match judge(world, &seen) {
            Ok(claims) => {
                fitting.push(length);
                let cost = claims.iter().map(|claims| claims.claimed).sum();
                if best.as_ref().is_none_or(|(least, ..)| cost <= *least) {
                    best = Some((cost, length, claims));
                }
            }
            Err(reason) => reasons.push((length, reason)),
        }
    }
    let Some((_, length, claims)) = best else {
        return Err(explain(question, &reasons));
    };
    claims.iter().for_each(|claims| tally.add(claims));
    let (fewest, most) = (fitting[0], fitting[fitting.len() - 1]);
    let mut world = settle(worlds[length].clone(), &seen);
    question.in_flight[fewest..most].iter().for_each(|operation| world.blur(operation));
    // What a connection has added to the count of all is as unsure as the number of its commands.
    for (name, key) in world.databases[0].iter_mut().filter(|(name, _)| is_shared(name)) {
        let [fewest, most] = [fewest, most].map(|at| &worlds[at].databases[0][name].filter);
        let filter = Arc::make_mut(&mut key.filter);
        filter.loose = most.card - (fewest.card - fewest.loose);
        (filter.card, filter.doubt) = (most.card, most.doubt);
    }
    Ok(world)
}

/// What was in flight, with commands that make several changes as these, one after another: the first may
/// be there without the second. So it is with one that makes a filter and adds to it, with one that deletes
/// several, and with one that adds many to a cuckoo filter, which is locked for a run of them at a time.
fn divided(question: &Question<'_>) -> Vec<Operation> {
    let mut world = question.acknowledged.clone();
    let mut divided = Vec::new();
    for operation in question.in_flight {
        if let Effect::Add { name, own, shape, .. } = &operation.effect
            && !world.here().contains_key(name)
        {
            let (name, own, shape) = (name.clone(), *own, *shape);
            divided.push(Operation {
                effect: Effect::Reserve { name, own, shape },
                ..operation.clone()
            });
        }
        match &operation.effect {
            Effect::Delete { names } => divided.extend(names.iter().map(|name| Operation {
                effect: Effect::Delete { names: vec![name.clone()] },
                ..operation.clone()
            })),
            Effect::Add { name, own, shape, verb: Verb::Buckets, items } => {
                let mut start = 0;
                for end in ends_of_runs(items.len()) {
                    let items = items[start..end].to_vec();
                    let (name, verb) = (name.clone(), Verb::Buckets);
                    let effect = Effect::Add { name, own: *own, shape: *shape, verb, items };
                    divided.push(Operation { effect, ..operation.clone() });
                    start = end;
                }
            }
            _ => divided.push(operation.clone()),
        }
        let applied = world.apply(operation, Outcome::Lost(question.ended), &mut Tally::default());
        applied.expect("what has no answer has no wrong one");
    }
    divided
}

/// Where a run of items may end that are added to a cuckoo filter: there are 512 in one, or a part of that, the
/// more sub-filters it has, and at most 256.
fn ends_of_runs(items: usize) -> BTreeSet<usize> {
    let runs = (2..=32).map(|share| 512 / share);
    let mut ends: BTreeSet<usize> = runs.flat_map(|run| (run..items).step_by(run)).collect();
    ends.insert(items);
    ends
}

/// No number of commands in flight fits: what speaks against none, all, and the number that comes
/// closest to the end.
fn explain(question: &Question<'_>, reasons: &[(usize, String)]) -> String {
    let mut lines = vec![format!(
        "connection {}: what is there is not what any number of its {} commands in flight leaves \
         behind",
        question.connection,
        question.in_flight.len()
    )];
    let mut last = None;
    for (length, reason) in reasons {
        if last != Some(reason) {
            let after = match length.checked_sub(1) {
                None => "what was acknowledged".to_owned(),
                Some(at) => {
                    format!("{length} more, the last of which is '{}'", question.in_flight[at])
                }
            };
            lines.push(format!("  with {after}: {reason}"));
        }
        last = Some(reason);
    }
    lines.join("\n")
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Asks the server for everything that one of the worlds has.
fn observe(
    client: &mut Client,
    question: &Question<'_>,
    worlds: &[World],
    random: &mut Random,
) -> Result<BTreeMap<Place, Seen>, String> {
    let mut all = BTreeMap::new();
    for database in [0, 1] {
        let number = if database == 0 { 0 } else { own_database(question.connection) };
        client.call(&format!("SELECT {number}"));
        let mut names: BTreeSet<String> =
            (0..NAMES).map(|number| name(question.connection, number)).collect();
        names.extend(worlds.iter().flat_map(|world| world.databases[database].keys().cloned()));
        for name in names {
            let filters: Vec<&Filter> = worlds
                .iter()
                .filter_map(|world| world.databases[database].get(&name))
                .map(|key| &*key.filter)
                .collect();
            let seen = observe_key(client, question, &name, &filters, random);
            let seen = seen.map_err(|text| format!("key {name} of database {number}: {text}"))?;
            all.insert((database, name), seen);
        }
    }
    client.call("SELECT 0");
    Ok(all)
}

fn observe_key(
    client: &mut Client,
    question: &Question<'_>,
    name: &str,
    filters: &[&Filter],
    random: &mut Random,
) -> Result<Seen, String> {
    let begin = now();
    let kind = match client.call(&format!("TYPE {name}")).text()? {
        "none" => None,
        "MBbloom--" => Some(Type::Bloom),
        "MBbloomCF" => Some(Type::Cuckoo),
        other => return Err(format!("TYPE is {other}")),
    };
    let mut seen = Seen {
        kind,
        has_changed: false,
        expires: client.call(&format!("PEXPIRETIME {name}")).integer()?,
        facts: BTreeMap::new(),
        card: None,
        items: BTreeMap::new(),
        copies: Vec::new(),
        foreign: (0, 0),
        asked: (begin, begin),
    };
    let Some(kind) = kind else {
        seen.asked.1 = now();
        return Ok(seen);
    };
    let (info, exists) = match kind {
        Type::Bloom => ("BF.INFO", "BF.MEXISTS"),
        Type::Cuckoo => ("CF.INFO", "CF.MEXISTS"),
    };
    seen.facts = facts(&client.call(&format!("{info} {name}")));
    if kind == Type::Bloom {
        seen.card = client.call(&format!("BF.CARD {name}")).integer().ok();
    }
    let mut lengths: BTreeMap<u32, usize> = BTreeMap::new();
    for (family, counts) in filters.iter().flat_map(|filter| &filter.families) {
        let length = lengths.entry(*family).or_default();
        *length = counts.len().max(*length);
    }
    let own: Vec<Item> = lengths
        .iter()
        .flat_map(|(family, length)| {
            (0..*length as u32).map(|number| Item { family: *family, number })
        })
        .collect();
    for (item, found) in own.iter().zip(ask(client, exists, name, &own)?) {
        seen.items.entry(item.family).or_default().push(found);
    }
    let is_foreign = |family: &u32| {
        !(lengths.contains_key(family) || is_shared(name) && question.shared.contains(family))
    };
    let foreign: Vec<Item> = (0..FOREIGN)
        .filter_map(|_| {
            let (family, length) = *random.pick(question.families)?;
            let number = random.below(u64::from(length.max(1))) as u32;
            is_foreign(&family).then_some(Item { family, number })
        })
        .collect();
    let found = ask(client, exists, name, &foreign)?;
    seen.foreign = (foreign.len() as u64, found.iter().filter(|found| **found).count() as u64);
    if kind == Type::Cuckoo && !own.is_empty() {
        let counted: Vec<Item> = (0..COUNTED).filter_map(|_| random.pick(&own).copied()).collect();
        let requests: Vec<Vec<String>> =
            counted.iter().map(|item| words(&format!("CF.COUNT {name} {}", item.word()))).collect();
        for (item, reply) in counted.into_iter().zip(client.call_all(&requests)) {
            seen.copies.push((item, reply.integer()?));
        }
    }
    let is_there = client.call(&format!("TYPE {name}")).text()? != "none";
    seen.has_changed = !is_there;
    seen.asked.1 = now();
    Ok(seen)
}

/// Whether each item is there.
fn ask(client: &mut Client, verb: &str, name: &str, items: &[Item]) -> Result<Vec<bool>, String> {
    let requests: Vec<Vec<String>> = items
        .chunks(BATCH)
        .map(|items| {
            let head = [verb.to_owned(), name.to_owned()];
            head.into_iter().chain(items.iter().map(|item| item.word())).collect()
        })
        .collect();
    let mut found = Vec::with_capacity(items.len());
    for reply in client.call_all(&requests) {
        found.extend(reply.integers()?.into_iter().map(|answer| answer == 1));
    }
    Ok(found)
}

/// Names and numbers in turns. What is not there has none.
pub fn facts(reply: &Reply) -> BTreeMap<String, Option<i64>> {
    let Reply::Array(replies) = reply else { return BTreeMap::new() };
    let pairs = replies
        .chunks_exact(2)
        .filter_map(|pair| Some((pair[0].text().ok()?.to_owned(), pair[1].integer().ok())));
    pairs.collect()
}

/// Whether a world is what was seen. What filters may claim is returned, unless it is no chance.
fn judge(world: &World, seen: &BTreeMap<Place, Seen>) -> Result<Vec<Claims>, String> {
    let mut all = Vec::new();
    for ((database, name), seen) in seen {
        let key = world.databases[*database].get(name);
        let claims = judge_key(key, seen, is_shared(name)).map_err(|text| {
            let place = if *database == 0 { "" } else { " in the connection's own database" };
            format!("key {name}{place}: {text}")
        })?;
        if let Some(claims) = claims.iter().find(|claims| claims.are_too_many()) {
            let Claims { what, asked, rate, claimed } = claims;
            return Err(format!(
                "key {name}: {what}: {claimed} of {asked} are claimed, which at a rate of \
                 {rate:.5} is no chance"
            ));
        }
        all.extend(claims);
    }
    Ok(all)
}

fn judge_key(key: Option<&Key>, seen: &Seen, is_shared: bool) -> Result<Vec<Claims>, String> {
    let Some(key) = key else {
        return match seen.kind {
            None => Ok(Vec::new()),
            Some(_) => Err("is there, and must not be".to_owned()),
        };
    };
    let may_be_dead = key.deadline.is_some_and(|it| seen.asked.1 + SLACK >= it.earliest);
    let must_be_dead = key.deadline.is_some_and(|it| seen.asked.0 > it.latest + SLACK);
    let Some(kind) = seen.kind.filter(|_| !seen.has_changed) else {
        let deadline = key.deadline;
        return match may_be_dead {
            true => Ok(Vec::new()),
            false => Err(format!("is gone, and must be there (deadline {deadline:?})")),
        };
    };
    if must_be_dead {
        return Err(format!(
            "is there, and has expired: {:?}, seen {:?}",
            key.deadline, seen.asked
        ));
    }
    judge_deadline(key.deadline, seen.expires)?;
    let filter = &key.filter;
    let expected = if filter.shape.is_buckets() { Type::Cuckoo } else { Type::Bloom };
    if kind != expected {
        return Err(format!("is a {kind:?} filter, expected {:?}", filter.shape));
    }
    judge_facts(filter, seen)?;
    let mut claims = judge_items(filter, seen)?;
    if !is_shared {
        claims.push(judge_card(filter.card, filter.loose, filter.doubt, seen.card(), filter)?);
    }
    Ok(claims)
}

fn judge_deadline(deadline: Option<Deadline>, expires: i64) -> Result<(), String> {
    let fits = match deadline {
        None => expires == -1,
        Some(it) => (it.earliest as i64..=it.latest as i64).contains(&expires),
    };
    match fits {
        true => Ok(()),
        false => Err(format!("PEXPIRETIME is {expires}, expected {deadline:?}")),
    }
}

/// Whether it is the filter that was reserved.
fn judge_facts(filter: &Filter, seen: &Seen) -> Result<(), String> {
    let shape = filter.shape;
    let card = seen.card();
    if seen.card.is_some_and(|told| told != card) {
        return Err(format!("BF.CARD is {:?}, and BF.INFO has {card} items", seen.card));
    }
    let expected: Vec<(&str, Option<i64>)> = match shape.kind {
        Kind::Buckets => vec![
            ("Bucket size", Some(shape.bucket_size as i64)),
            (
                "Number of buckets",
                Some((shape.capacity / shape.bucket_size).next_power_of_two() as i64),
            ),
            ("Expansion rate", Some(1)),
            ("Max iterations", Some(20)),
        ],
        Kind::Scaling | Kind::RedisBloom => {
            // Every layer is for twice as many items as the one before, as BF.INFO tells it.
            let (mut layers, mut layer, mut total) =
                (1, shape.capacity as i64, shape.capacity as i64);
            while total < card {
                layer *= 2;
                total += layer;
                layers += 1;
            }
            vec![
                ("Capacity", Some(total)),
                ("Number of filters", Some(layers)),
                ("Expansion rate", Some(2)),
            ]
        }
        _ => vec![("Capacity", Some(shape.capacity as i64)), ("Expansion rate", None)],
    };
    for (name, expected) in expected {
        let found = seen.fact(name);
        if found != expected {
            return Err(format!("{name} is {found:?}, expected {expected:?} of {shape:?}"));
        }
    }
    Ok(())
}

/// Whether every item is there that must be. Those that must not be are claims.
fn judge_items(filter: &Filter, seen: &Seen) -> Result<Vec<Claims>, String> {
    let rate = filter.shape.claims(seen.fact("Number of filters").unwrap_or(1));
    let none = |what| Claims { what, asked: 0, rate, claimed: 0 };
    let mut gone = none("items that were removed, or lost in flight");
    let (mut missing, mut first, mut total) = (0, None, 0);
    for (family, found) in &seen.items {
        let counts = filter.families.get(family).map_or(&[][..], Vec::as_slice);
        for (number, found) in found.iter().enumerate() {
            match counts.get(number).copied().unwrap_or(0) {
                HAZY => {}
                0 => {
                    gone.asked += 1;
                    gone.claimed += u64::from(*found);
                }
                _ => {
                    total += 1;
                    missing += u64::from(!found);
                    if !found && first.is_none() {
                        first = Some(Item { family: *family, number: number as u32 }.word());
                    }
                }
            }
        }
    }
    if let Some(first) = first {
        let kind = filter.shape.kind;
        return Err(format!(
            "lacks {missing} of its {total} items ({kind:?}), the first is {first}"
        ));
    }
    let (asked, claimed) = seen.foreign;
    let foreign = Claims { asked, claimed, ..none("items of other filters") };
    let mut copies = none("copies that were never added, or were removed");
    for (item, found) in &seen.copies {
        let expected = match filter.count(*item) {
            HAZY => continue,
            expected => i64::from(expected),
        };
        if *found < expected {
            let word = item.word();
            return Err(format!("has item {word} {found} times, expected {expected}"));
        }
        copies.asked += 1;
        copies.claimed += u64::from(*found > expected);
    }
    Ok(vec![gone, foreign, copies])
}

/// Whether a card is right, within what is in doubt.
pub fn judge_card(
    card: i64,
    loose: i64,
    doubt: u64,
    found: i64,
    filter: &Filter,
) -> Result<Claims, String> {
    let (least, most) = (card - loose, card);
    let off = (least - found).max(found - most).max(0).unsigned_abs();
    let claims = Claims {
        what: "items in flight that changed no count",
        asked: doubt,
        rate: filter.shape.claims(1),
        claimed: off,
    };
    if off > doubt || claims.are_too_many() {
        return Err(format!(
            "counts {found} items, expected {least} to {most}, with {doubt} in doubt ({:?})",
            filter.shape.kind
        ));
    }
    Ok(claims)
}

/// The world, with what was in doubt as it was found.
fn settle(mut world: World, seen: &BTreeMap<Place, Seen>) -> World {
    world.selected = 0;
    for ((database, name), seen) in seen {
        let keys = &mut world.databases[*database];
        let Some(key) = keys.get_mut(name) else { continue };
        if seen.kind.is_none() || seen.has_changed {
            keys.remove(name);
            continue;
        }
        if let Some(deadline) = &mut key.deadline {
            // From now on it is known to the millisecond.
            deadline.earliest = seen.expires as u64;
            deadline.latest = seen.expires as u64;
        }
        if !is_shared(name) {
            let filter = Arc::make_mut(&mut key.filter);
            filter.card = seen.card();
            (filter.loose, filter.doubt) = (0, 0);
        }
    }
    world
}
