//! BF.*: what RedisBloom answers, to the byte, over filters of our own.
//!
//! Where we deviate on purpose, docs/server.md says so and why: options that nobody knows are errors,
//! there is no ceiling of 2^30 keys, a filter that would not fit into memory is refused with the
//! figures, and the rate holds for small filters too.

mod info;
mod items;
mod options;
mod reserve;

use std::sync::Arc;

use super::{stored, transfer};
use crate::command::{
    Batched, Call, Command, Cost, Flag, Flags, Hashing, Keys, LONGEST_RUN, MANY, OnStore, Request,
};
use crate::keyspace::Entry;
use crate::reply_error::ReplyError;
use crate::server::Server;
use crate::session_state::SessionState;
use crate::value::{Value, forgets};

pub use info::Facts;
pub use items::{FULL, Runs, refused};
pub use options::{InsertOptions, NO_GROWTH_ON_STORE, wish};

/// The rows of BF.*.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "bf.reserve",
        arity: -4,
        flags: Flags::of(&[Flag::Write, Flag::DenyOom]),
        categories: &["fast", "bloom"],
        summary: "Creates an empty filter with a capacity and a false-positive rate",
        syntax: "key error_rate capacity [EXPANSION expansion] [NONSCALING] \
                 [KIND blocked|classic|counting|cuckoo|redisbloom] [WINDOW span] [AUTOCLEAR share]",
        handler: reserve::reserve,
        cost: Cost::By(reserve_is_heavy),
        on_store: OnStore::By(stored::reserve),
        ..BF
    },
    Command {
        name: "bf.add",
        arity: 3,
        flags: Flags::of(&[Flag::Write, Flag::DenyOom]),
        summary: "Adds an item to a filter, and creates the filter if it does not exist",
        syntax: "key item",
        handler: items::add,
        cost: Cost::By(adds_are_heavy),
        batched: Some(Batched {
            answer: items::answer_additions,
            on_store: Some(stored::answer_additions),
            ..BATCHED
        }),
        on_store: OnStore::By(stored::add),
        ..BF
    },
    Command {
        name: "bf.madd",
        arity: -3,
        flags: Flags::of(&[Flag::Write, Flag::DenyOom]),
        summary: "Adds items to a filter, and creates the filter if it does not exist",
        syntax: "key item [item ...]",
        complexity: "O(N) for N items",
        handler: items::madd,
        cost: Cost::By(adds_are_heavy),
        on_store: OnStore::By(stored::madd),
        ..BF
    },
    Command {
        name: "bf.insert",
        arity: -4,
        flags: Flags::of(&[Flag::Write, Flag::DenyOom]),
        summary: "Adds items to a filter; the options apply if it must be created",
        syntax: "key [CAPACITY capacity] [ERROR error] [EXPANSION expansion] [NOCREATE] \
                 [NONSCALING] ITEMS item [item ...]",
        complexity: "O(N) for N items",
        handler: items::insert_items,
        cost: Cost::By(insert_is_heavy),
        on_store: OnStore::By(stored::insert),
        ..BF
    },
    Command {
        name: "bf.exists",
        arity: 3,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        summary: "Reports whether an item may have been added: 0 is certain, 1 is probable",
        syntax: "key item",
        handler: items::exists,
        cost: Cost::By(queries_are_heavy),
        batched: Some(Batched {
            answer: items::answer_queries,
            on_store: Some(stored::answer_queries),
            ..BATCHED
        }),
        on_store: OnStore::By(stored::exists),
        ..BF
    },
    Command {
        name: "bf.mexists",
        arity: -3,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        summary: "Reports which items may have been added: 0 is certain, 1 is probable",
        syntax: "key item [item ...]",
        complexity: "O(N) for N items",
        handler: items::mexists,
        cost: Cost::By(queries_are_heavy),
        on_store: OnStore::By(stored::mexists),
        ..BF
    },
    Command {
        name: "bf.card",
        arity: 2,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        categories: &["fast", "bloom"],
        summary: "Returns how many items were new when they were added",
        syntax: "key",
        handler: info::card,
        on_store: OnStore::By(stored::card),
        ..BF
    },
    Command {
        name: "bf.info",
        arity: -2,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        categories: &["fast", "bloom"],
        summary: "Returns a filter's capacity, size, layers and items",
        syntax: "key [CAPACITY|SIZE|FILTERS|ITEMS|EXPANSION]",
        handler: info::info,
        on_store: OnStore::By(stored::info),
        ..BF
    },
    Command {
        name: "bf.debug",
        arity: -1,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        summary: "Describes the structure of a filter",
        syntax: "key",
        handler: info::debug,
        on_store: OnStore::Refused("use BF.INFO or IB.ESTIMATE"),
        ..BF
    },
    Command {
        name: "bf.scandump",
        arity: 3,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        summary: "Returns the next chunk of a dump of a filter",
        syntax: "key iterator",
        complexity: "O(N) for the N bytes of a chunk",
        handler: transfer::bloom_scandump,
        cost: Cost::By(transfer::dump_is_heavy),
        on_store: OnStore::Refused(stored::PULL),
        ..BF
    },
    Command {
        name: "bf.loadchunk",
        arity: 4,
        flags: Flags::of(&[Flag::Write, Flag::DenyOom]),
        is_restricted: true,
        summary: "Loads a chunk of a dump; the last chunk creates the filter",
        syntax: "key iterator data",
        complexity: "O(N) for the N bytes of a chunk",
        handler: transfer::bloom_loadchunk,
        cost: Cost::By(transfer::load_is_heavy),
        on_store: OnStore::Refused(stored::PUSH),
        ..BF
    },
];

const BF: Command =
    Command { keys: Keys::ONE, categories: &["bloom"], group: "bf", ..Command::NONE };

/// What batches of BF.* have in common.
const BATCHED: Batched = Batched {
    hashing: Hashing::Digest,
    most: |value| if matches!(value, Value::Bloom(_)) { LONGEST_RUN } else { 0 },
    answer: items::answer_queries,
    on_store: None,
};

fn adds_are_heavy(request: &Request<'_>, session: &SessionState) -> bool {
    let may_pause = |entry: &Entry| matches!(&entry.value, Value::Bloom(it) if it.may_pause());
    request.entry.as_deref().is_some_and(may_pause) || queries_are_heavy(request, session)
}

fn queries_are_heavy(request: &Request<'_>, _: &SessionState) -> bool {
    let entry = request.entry.as_ref();
    entry.is_some_and(|entry| is_slow(request.server, &entry.value, request.arguments.len()))
}

/// Whether to use a filter for so many items may take more than a millisecond, also to ask it.
fn is_slow(server: &Server, value: &Value, items: usize) -> bool {
    match value {
        // Of a file that memory does not hold each item may wait for the disk.
        Value::Filter(guarded) if guarded.origin().is_some() => {
            value.length() > server.settings().max_memory
        }
        // What forgets empties itself, or a part of itself, now and then.
        Value::Filter(guarded) => value.memory() > LARGE && guarded.read(forgets),
        // Every layer is asked.
        Value::RedisBloom(guarded) => guarded.read(|bloom| bloom.links().len()) * items > MANY,
        Value::Bloom(_) | Value::Cuckoo(_) => false,
    }
}

/// Bytes that take more than a millisecond to empty.
const LARGE: u64 = 4 << 20;

/// Planning a filter takes up to ten milliseconds, unless there was one like it.
fn reserve_is_heavy(request: &Request<'_>, _: &SessionState) -> bool {
    match wish(request.server, request.arguments) {
        Ok((wish, options)) => !options.is_plain() || !request.server.shapes.has(wish),
        Err(_) => false,
    }
}

fn insert_is_heavy(request: &Request<'_>, session: &SessionState) -> bool {
    let is_option = |word| options::option(word).is_ok_and(|it| !it.is_items());
    request.entry.is_none() && request.arguments.get(2).is_some_and(is_option)
        || adds_are_heavy(request, session)
}

/// The entry of a filter of BF.*, None if there is none.
pub fn find(call: &Call<'_>) -> Result<Option<Arc<Entry>>, ReplyError> {
    match &call.entry {
        Some(entry) if matches!(entry.value, Value::Cuckoo(_)) => Err(ReplyError::WRONG_TYPE),
        found => Ok(found.clone()),
    }
}
