//! IB.*: what RedisBloom does not have. Union, removal, estimates, files, and one question to many
//! filters.

use std::sync::Arc;

use inbloom::interop::redisbloom::Hash;
use inbloom::{Digest, Filter};

use super::bloom::{Runs, refused};
use super::stored;
use crate::command::{Call, Command, Cost, Flag, Flags, Keys, OnStore};
use crate::import::Imported;
use crate::keyspace::{Created, Entry, Key};
use crate::limits::Room;
use crate::reply_error::{ReplyError, excerpt};
use crate::server::Server;
use crate::value::bloom::Bloom;
use crate::value::change::{Change, Items, Refusal};
use crate::value::summary::{BitScan, Summary};
use crate::value::{Guarded, Value, grows};

/// The rows of IB.*.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "ib.merge",
        arity: -3,
        flags: Flags::of(&[Flag::Write, Flag::DenyOom]),
        keys: Keys::ALL,
        summary: "Merges other filters into one, which is created if there is none",
        syntax: "destination source [source ...]",
        complexity: "O(N) for N bytes of filters",
        handler: merge,
        cost: Cost::Heavy,
        on_store: OnStore::Refused("use 'inbloom merge', which takes addresses too"),
        ..IB
    },
    Command {
        name: "ib.del",
        arity: -3,
        flags: Flags::of(&[Flag::Write]),
        summary: "Removes items from a counting or cuckoo filter, once for each time that they were added",
        syntax: "key item [item ...]",
        complexity: "O(N) for N items",
        handler: remove,
        on_store: OnStore::Refused(
            "a store only holds filters of kind blocked, which cannot remove items",
        ),
        ..IB
    },
    Command {
        name: "ib.estimate",
        arity: 2,
        flags: Flags::of(&[Flag::ReadOnly]),
        summary: "Returns a filter's estimated items, its fill and its current rate",
        syntax: "key",
        complexity: "O(N) for N bytes of the filter",
        handler: estimate,
        cost: Cost::Heavy,
        on_store: OnStore::By(stored::estimate),
        ..IB
    },
    Command {
        name: "ib.open",
        arity: 3,
        flags: Flags::of(&[Flag::Write, Flag::DenyOom]),
        is_restricted: true,
        summary: "Opens a filter file below --import-dir read-only; FILE#NAME opens one filter of several",
        syntax: "key path",
        handler: open,
        cost: Cost::Heavy,
        on_store: OnStore::Refused(stored::PUSH),
        ..IB
    },
    Command {
        name: "ib.save",
        arity: 3,
        flags: Flags::of(&[Flag::ReadOnly]),
        is_restricted: true,
        summary: "Saves a filter to a file below --import-dir",
        syntax: "key path",
        complexity: "O(N) for N bytes of the filter",
        handler: save,
        cost: Cost::Heavy,
        on_store: OnStore::Refused(stored::PULL),
        ..IB
    },
    Command {
        name: "ib.checkany",
        arity: -3,
        flags: Flags::of(&[Flag::ReadOnly]),
        keys: Keys { first: 2, last: -1, step: 1 },
        summary: "Reports which of several filters may have an item; hashes it once per scheme",
        syntax: "item key [key ...]",
        complexity: "O(N) for N filters",
        handler: check_any,
        on_store: OnStore::By(stored::check_any),
        ..IB
    },
];

const IB: Command =
    Command { keys: Keys::ONE, categories: &["bloom"], group: "ib", ..Command::NONE };

/// The entry of the only key.
fn get(call: &Call<'_>) -> Result<Arc<Entry>, ReplyError> {
    call.entry.clone().ok_or_else(|| not_found(&call.arguments[1]))
}

fn not_found(name: &[u8]) -> ReplyError {
    ReplyError::with(format!("ERR not found: no filter {}", excerpt(name, 128)))
}

fn merge(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let mut sources: Vec<Arc<Entry>> = Vec::new();
    for name in call.arguments.skip(2) {
        let key = Key { database: call.session.database, name };
        let source = call.server.keyspace.get(key, call.now).ok_or_else(|| not_found(name))?;
        // Twice the same would count twice where items are counted.
        if !sources.iter().any(|other| Arc::ptr_eq(other, &source)) {
            sources.push(source);
        }
    }
    let key = Key { database: call.session.database, name: &call.arguments[1] };
    if let Some(entry) = call.server.keyspace.get(key, call.now) {
        sources.retain(|source| !Arc::ptr_eq(source, &entry));
        // On a copy first, so that all are added or none.
        if sources.len() > 1 {
            let (trial, _room) = copy(call.server, &entry.value)?;
            for source in &sources {
                let _room = room_to_unite(call.server, &trial, &source.value)?;
                let (from, _room) = apart(call.server, &trial, &source.value)?;
                let from = from.as_ref().unwrap_or(&source.value);
                let change = Change::Merge { from, image: &[], hasher: call.server.hasher };
                let tried = trial.apply(&change, &mut Vec::new(), |_| ());
                tried.map_err(|refusal| refused(call.server, refusal))?;
            }
        }
        for source in &sources {
            unite(call.server, &entry, &source.value)?;
        }
    } else {
        // Put together aside, so that a merge which fails leaves nothing behind.
        let (mut value, _room) = copy(call.server, &sources[0].value)?;
        for source in &sources[1..] {
            unite_new(call.server, &mut value, &source.value)?;
        }
        if let Created::Taken(..) = call.server.adopt(key, value, None, call.now)? {
            return Err(ReplyError::new(
                "ERR another client has just created this key: repeat the merge",
            ));
        }
    }
    call.reply.ok();
    Ok(())
}

/// A copy of a filter, as a value of its own.
fn copy(server: &Server, value: &Value) -> Result<(Value, Room), ReplyError> {
    match value {
        Value::Bloom(bloom) => {
            let room = server.limits.make_room_for_filter(bloom.bytes())?;
            let copy = bloom.copy(server.hasher).map_err(ReplyError::because)?;
            Ok((Value::Bloom(copy), room))
        }
        Value::Filter(guarded) => {
            server.limits.check_filter(guarded.read(memory_of_copy))?;
            let (filter, room) = guarded_copy(server, guarded)?;
            Ok((Value::filter(filter), room))
        }
        Value::RedisBloom(_) | Value::Cuckoo(_) => Err(refused(server, Refusal::Unmergeable)),
    }
}

/// Adds what one filter has to another that nobody else has yet.
fn unite_new(server: &Server, into: &mut Value, from: &Value) -> Result<(), ReplyError> {
    let have_grown = |into: &Bloom, from: &Bloom| into.rest().is_some() && from.rest().is_some();
    let _room = match (&*into, from) {
        (Value::Bloom(into), Value::Bloom(from)) if have_grown(into, from) => {
            let rest = from.rest().map_or(0, |rest| rest.bytes());
            server.limits.check_filter(into.bytes() + rest)?;
            server.limits.make_room(2 * rest + into.base().bytes())?
        }
        (into, from) => room_to_unite(server, into, from)?,
    };
    let (copy, _room) = apart(server, into, from)?;
    let united = into.merge_alone(copy.as_ref().unwrap_or(from), server.hasher, None);
    united.map_err(|refusal| refused(server, refusal))
}

/// Adds what one filter has to another that is in use.
fn unite(server: &Server, into: &Entry, from: &Value) -> Result<(), ReplyError> {
    let merge = |from: &Value, image: &[u8]| {
        let _room = room_to_unite(server, &into.value, from)?;
        let change = Change::Merge { from, image, hasher: server.hasher };
        let united = server.keyspace.apply(into, &change, &mut Vec::new());
        united.map_err(|refusal| refused(server, refusal))
    };
    let Some(store) = server.store() else {
        let (copy, _room) = apart(server, &into.value, from)?;
        return merge(copy.as_ref().unwrap_or(from), &[]);
    };
    let failed = |error| ReplyError::with(format!("ERR cannot log the merge: {error}"));
    // What is added is what is written down: the filter itself may change meanwhile.
    let (from, _room) = copy(server, from)?;
    let (image, files) = store.image(server, &from).map_err(failed)?;
    let united = merge(&from, &image);
    match &united {
        Ok(()) => store.enter(into.id, files),
        Err(_) => store.forget(&files),
    }
    united
}

/// A copy of a filter with a lock that is to be merged into another with one, so that never two locks
/// are held at once. Filters without a lock are merged as they are, while clients add to them.
fn apart(
    server: &Server,
    into: &Value,
    from: &Value,
) -> Result<(Option<Value>, Option<Room>), ReplyError> {
    match (into, from) {
        (Value::Filter(_), Value::Filter(guarded)) => {
            let (filter, room) = guarded_copy(server, guarded)?;
            Ok((Some(Value::filter(filter)), Some(room)))
        }
        _ => Ok((None, None)),
    }
}

/// Makes room for a filter as it will be at most when it has taken in another, and for the memory that
/// is needed on the way.
fn room_to_unite(server: &Server, into: &Value, from: &Value) -> Result<Room, ReplyError> {
    let (united, needed) = match (into, from) {
        (Value::Bloom(into), Value::Bloom(from)) => {
            let rest = from.rest().map_or(0, |rest| rest.bytes());
            (into.bytes() + rest, into.base().bytes() + rest)
        }
        (Value::Filter(into), Value::Filter(from)) => {
            let (adds, from_grows) = from.read(|from| (from.bytes(), grows(from)));
            let (has, into_grows) = into.read(|into| (into.memory(), grows(into)));
            // A filter that grows is united aside, and may become as large as both.
            match from_grows || into_grows {
                true => (has + adds, has + adds),
                false => (0, 0),
            }
        }
        // It is refused.
        _ => (0, 0),
    };
    server.limits.check_filter(united)?;
    server.limits.make_room(needed)
}

/// Returns the memory that a copy of a filter takes. A window counts with all its generations. A mapped
/// file counts as nothing, and its copy with its bytes.
fn memory_of_copy(filter: &Filter) -> u64 {
    filter.memory().max(filter.bytes())
}

fn guarded_copy(server: &Server, guarded: &Guarded<Filter>) -> Result<(Filter, Room), ReplyError> {
    let room = server.limits.make_room(guarded.read(memory_of_copy))?;
    let copy = guarded.for_long(|guarded| guarded.read(Filter::try_clone));
    guarded.check_origin()?;
    Ok((copy.map_err(ReplyError::because)?, room))
}

fn remove(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let entry = get(call)?;
    let items = call.arguments.skip(2);
    let mut removed = Vec::with_capacity(items.len());
    let can_remove =
        |guarded: &Guarded<Filter>| guarded.read(|filter| filter.plan().kind().can_remove());
    match &entry.value {
        Value::Filter(guarded) if can_remove(guarded) => {
            let hasher = guarded.hasher();
            for run in Runs(items) {
                let digests: Vec<Digest> = run.map(|item| hasher.digest(item)).collect();
                remove_run(call.server, &entry, Items::Remove(&digests), &mut removed)?;
            }
        }
        Value::Cuckoo(_) => {
            for run in Runs(items) {
                let hashes: Vec<Hash> = run.map(Hash::of).collect();
                remove_run(call.server, &entry, Items::RemoveHashes(&hashes), &mut removed)?;
            }
        }
        Value::Bloom(_) | Value::RedisBloom(_) | Value::Filter(_) => {
            return Err(ReplyError::new(
                "ERR the filter cannot remove items: reserve one that can with KIND counting or \
                 KIND cuckoo, or use CF.*",
            ));
        }
    }
    call.reply.array(removed.len());
    removed.iter().for_each(|removed| call.reply.truth(*removed));
    Ok(())
}

fn remove_run(
    server: &Server,
    entry: &Entry,
    items: Items<'_>,
    removed: &mut Vec<bool>,
) -> Result<(), ReplyError> {
    let mut answers = Vec::new();
    let result = server.apply(entry, items, &mut answers);
    removed.extend(answers);
    result.map_err(|refusal| refused(server, refusal))
}

fn estimate(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let entry = get(call)?;
    let (summary, scan) = (Summary::of(&entry.value), BitScan::of(&entry.value, 0));
    let kind = match &entry.value {
        Value::Bloom(bloom) if bloom.rest().is_some() => "blocked and scalable",
        Value::Cuckoo(_) => "redisbloom cuckoo",
        _ => summary.kind,
    };
    Estimated {
        kind,
        items: summary.keys,
        estimate: scan.estimated_keys,
        fill: scan.fill,
        rate: scan.rate,
        promised: summary.target_rate.unwrap_or(f64::NAN),
    }
    .reply(call);
    Ok(())
}

/// What IB.ESTIMATE reports.
pub(super) struct Estimated {
    pub(super) kind: &'static str,
    pub(super) items: u64,
    pub(super) estimate: f64,
    pub(super) fill: f64,
    pub(super) rate: f64,
    /// Not a number where there is no target rate.
    pub(super) promised: f64,
}

impl Estimated {
    pub(super) fn reply(&self, call: &mut Call<'_>) {
        let reply = &mut call.reply;
        reply.map(if self.promised.is_nan() { 5 } else { 6 });
        reply.simple("Kind");
        reply.text(self.kind);
        reply.simple("Items added");
        reply.integer(self.items as i64);
        reply.simple("Items estimated");
        reply.integer(self.estimate.round() as i64);
        reply.simple("Fill");
        reply.double(self.fill);
        reply.simple("Current rate");
        reply.double(self.rate);
        if !self.promised.is_nan() {
            reply.simple("Target rate");
            reply.double(self.promised);
        }
    }
}

fn open(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let word = &call.arguments[2];
    let imported = Imported::existing(call.server.config.import_dir.as_deref(), word)?;
    let key = Key { database: call.session.database, name: &call.arguments[1] };
    if call.entry.is_some() {
        return Err(ReplyError::EXISTS);
    }
    // Held until the filter counts: filters of other programs are read into memory.
    let _room_to_find = call.server.limits.make_room(imported.bytes_to_find()?)?;
    let _room = call.server.limits.make_room(imported.bytes_to_read()?)?;
    let (filter, watch) = imported.open(call.server.config.key.as_ref())?;
    let value = Value::opened(filter, &String::from_utf8_lossy(word), watch);
    match call.server.adopt(key, value, None, call.now)? {
        Created::New(_) => call.reply.ok(),
        Created::Taken(..) => return Err(ReplyError::EXISTS),
    }
    Ok(())
}

fn save(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let import_dir = call.server.config.import_dir.as_deref();
    let imported = Imported::below(import_dir, &call.arguments[2])?;
    let entry = get(call)?;
    let filter = match &entry.value {
        Value::Bloom(bloom) if bloom.rest().is_some() => {
            return Err(ReplyError::with(format!(
                "ERR the filter was reserved for {} items and has grown, and a file cannot hold \
                 its layers: reserve a filter for {} items, or copy it with BF.SCANDUMP or DUMP",
                bloom.reserved(),
                bloom.items(),
            )));
        }
        Value::Bloom(bloom) => {
            bloom.base().snapshot(call.server.hasher, bloom.items()).map_err(ReplyError::because)?
        }
        Value::Filter(guarded) => guarded_copy(call.server, guarded)?.0,
        Value::RedisBloom(_) | Value::Cuckoo(_) => {
            return Err(ReplyError::new(
                "ERR a filter in RedisBloom's format (CF.*, KIND redisbloom, or loaded from \
                 RedisBloom) cannot be saved to a file: copy it with SCANDUMP or DUMP",
            ));
        }
    };
    filter.save(&imported.path).map_err(|error| imported.failed(&error))?;
    call.reply.ok();
    Ok(())
}

fn check_any(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let item = &call.arguments[1];
    let digest = call.server.hasher.digest(item);
    let mut found = Vec::new();
    let mut answers = Vec::new();
    for name in call.arguments.skip(2).iter() {
        let key = Key { database: call.session.database, name };
        let entry = call.server.keyspace.get(key, call.now);
        call.server.statistics.count_lookup(entry.is_some());
        let has = entry.is_some_and(|entry| match &entry.value {
            Value::Bloom(bloom) => {
                bloom.contains(&[digest], &mut answers);
                answers[0]
            }
            Value::Filter(guarded) => {
                guarded.follow_clock(call.now);
                guarded.read(|filter| {
                    // A file may have a hash of its own.
                    match *filter.hasher() == call.server.hasher {
                        true => filter.contains_digest(digest),
                        false => filter.contains(item),
                    }
                })
            }
            Value::RedisBloom(guarded) => guarded.read(|bloom| bloom.contains(item)),
            Value::Cuckoo(guarded) => guarded.read(|cuckoo| cuckoo.contains(item)),
        });
        if has {
            found.push(name);
        }
    }
    call.reply.array(found.len());
    found.iter().for_each(|name| call.reply.bulk(name));
    Ok(())
}
