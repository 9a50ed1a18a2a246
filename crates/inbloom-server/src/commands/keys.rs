//! Keys, whatever they hold: names, expiry, databases. Replies and errors are those of Redis 7.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::server::introspection::help;
use super::{glob, stored};
use crate::command::{Call, Command, Cost, Flag, Flags, Keys, MANY, OnStore, Request};
use crate::keyspace::{DATABASES, Entry, Key, PARTS, Renamed, Target};
use crate::parse;
use crate::reply_error::ReplyError;
use crate::resp::Arguments;
use crate::session_state::SessionState;

/// The rows of commands on keys.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "del",
        arity: -2,
        flags: Flags::of(&[Flag::Write]),
        keys: Keys::ALL,
        summary: "Deletes keys, and returns how many there were",
        syntax: "key [key ...]",
        complexity: "O(N) for N keys; large filters are freed in the background",
        handler: delete,
        on_store: OnStore::By(stored::delete),
        ..KEYS
    },
    Command {
        name: "unlink",
        arity: -2,
        flags: Flags::of(&[Flag::Write, Flag::Fast]),
        keys: Keys::ALL,
        summary: "Deletes keys, and returns how many there were: the same as DEL",
        syntax: "key [key ...]",
        complexity: "O(N) for N keys; large filters are freed in the background",
        handler: delete,
        on_store: OnStore::By(stored::delete),
        ..KEYS
    },
    Command {
        name: "exists",
        arity: -2,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        keys: Keys::ALL,
        summary: "Returns how many of the keys exist",
        syntax: "key [key ...]",
        complexity: "O(N) for N keys",
        handler: exists,
        on_store: OnStore::By(stored::count_keys),
        ..KEYS
    },
    Command {
        name: "touch",
        arity: -2,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        keys: Keys::ALL,
        summary: "Returns how many of the keys exist; times of access are not kept",
        syntax: "key [key ...]",
        complexity: "O(N) for N keys",
        handler: exists,
        on_store: OnStore::By(stored::count_keys),
        ..KEYS
    },
    Command {
        name: "type",
        arity: 2,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        summary: "Returns the type of a key: MBbloom--, MBbloomCF or none",
        syntax: "key",
        handler: type_of,
        on_store: OnStore::By(stored::type_of),
        ..KEYS
    },
    Command {
        name: "keys",
        arity: 2,
        flags: Flags::of(&[Flag::ReadOnly]),
        categories: &["keyspace", "dangerous"],
        keys: Keys::NONE,
        summary: "Lists all keys whose name matches a pattern",
        syntax: "pattern",
        complexity: "O(N) for the N keys of the database",
        handler: keys,
        cost: Cost::By(|request, session| {
            request.server.keyspace.len(session.database) > MANY as u64
                || is_long(request.arguments)
        }),
        on_store: OnStore::By(stored::keys),
        ..KEYS
    },
    Command {
        name: "scan",
        arity: -2,
        flags: Flags::of(&[Flag::ReadOnly]),
        keys: Keys::NONE,
        summary: "Lists keys, a few per call",
        syntax: "cursor [MATCH pattern] [COUNT count] [TYPE type]",
        complexity: "O(N / 1280 + count) a call, for the N keys of the database",
        handler: scan,
        cost: Cost::By(scan_is_heavy),
        on_store: OnStore::By(stored::scan),
        ..KEYS
    },
    Command {
        name: "dbsize",
        arity: 1,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        keys: Keys::NONE,
        summary: "Returns the number of keys in the database",
        handler: database_size,
        on_store: OnStore::By(stored::database_size),
        ..KEYS
    },
    Command {
        name: "randomkey",
        arity: 1,
        flags: Flags::of(&[Flag::ReadOnly]),
        keys: Keys::NONE,
        summary: "Returns a random key of the database",
        complexity: "O(N / 1280) for the N keys of the database",
        handler: random_key,
        cost: Cost::Heavy,
        on_store: OnStore::By(stored::random_key),
        ..KEYS
    },
    Command {
        name: "rename",
        arity: 3,
        flags: Flags::of(&[Flag::Write]),
        keys: TWO,
        summary: "Renames a key, and replaces a key of the new name",
        syntax: "key newkey",
        handler: rename,
        on_store: OnStore::Refused("a filter on a store keeps its name; create another one"),
        ..KEYS
    },
    Command {
        name: "renamenx",
        arity: 3,
        flags: Flags::of(&[Flag::Write, Flag::Fast]),
        keys: TWO,
        summary: "Renames a key, unless the new name is in use",
        syntax: "key newkey",
        handler: rename_if_free,
        on_store: OnStore::Refused("a filter on a store keeps its name; create another one"),
        ..KEYS
    },
    Command {
        name: "copy",
        arity: -3,
        flags: Flags::of(&[Flag::Write, Flag::DenyOom]),
        keys: TWO,
        summary: "Always fails for filters, as in Redis: use DUMP and RESTORE",
        syntax: "source destination [DB destination-db] [REPLACE]",
        handler: copy,
        on_store: OnStore::Refused("use 'inbloom pull' and 'inbloom push'"),
        ..KEYS
    },
    Command {
        name: "move",
        arity: 3,
        flags: Flags::of(&[Flag::Write, Flag::Fast]),
        summary: "Moves a key to another database, unless its name is in use there",
        syntax: "key db",
        handler: move_key,
        on_store: OnStore::Refused(ONE_DATABASE),
        ..KEYS
    },
    Command {
        name: "expire",
        arity: -3,
        flags: Flags::of(&[Flag::Write, Flag::Fast]),
        summary: "Sets the time to live of a key, in seconds",
        syntax: "key seconds [NX | XX | GT | LT]",
        handler: |call| expire(call, Since::Now, Unit::Seconds),
        on_store: OnStore::By(|call| stored::expire(call, Since::Now, Unit::Seconds)),
        ..KEYS
    },
    Command {
        name: "pexpire",
        arity: -3,
        flags: Flags::of(&[Flag::Write, Flag::Fast]),
        summary: "Sets the time to live of a key, in milliseconds",
        syntax: "key milliseconds [NX | XX | GT | LT]",
        handler: |call| expire(call, Since::Now, Unit::Milliseconds),
        on_store: OnStore::By(|call| stored::expire(call, Since::Now, Unit::Milliseconds)),
        ..KEYS
    },
    Command {
        name: "expireat",
        arity: -3,
        flags: Flags::of(&[Flag::Write, Flag::Fast]),
        summary: "Sets when a key expires, in seconds since 1970",
        syntax: "key unix-time-seconds [NX | XX | GT | LT]",
        handler: |call| expire(call, Since::Epoch, Unit::Seconds),
        on_store: OnStore::By(|call| stored::expire(call, Since::Epoch, Unit::Seconds)),
        ..KEYS
    },
    Command {
        name: "pexpireat",
        arity: -3,
        flags: Flags::of(&[Flag::Write, Flag::Fast]),
        summary: "Sets when a key expires, in milliseconds since 1970",
        syntax: "key unix-time-milliseconds [NX | XX | GT | LT]",
        handler: |call| expire(call, Since::Epoch, Unit::Milliseconds),
        on_store: OnStore::By(|call| stored::expire(call, Since::Epoch, Unit::Milliseconds)),
        ..KEYS
    },
    Command {
        name: "ttl",
        arity: 2,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        summary: "Returns how many seconds a key has left: -1 without expiry, -2 without the key",
        syntax: "key",
        handler: |call| time_of_expiry(call, Since::Now, Unit::Seconds),
        on_store: OnStore::By(|call| stored::time_of_expiry(call, Since::Now, Unit::Seconds)),
        ..KEYS
    },
    Command {
        name: "pttl",
        arity: 2,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        summary: "Returns how many milliseconds a key has left, or -1 or -2, as TTL",
        syntax: "key",
        handler: |call| time_of_expiry(call, Since::Now, Unit::Milliseconds),
        on_store: OnStore::By(|call| stored::time_of_expiry(call, Since::Now, Unit::Milliseconds)),
        ..KEYS
    },
    Command {
        name: "expiretime",
        arity: 2,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        summary: "Returns when a key expires, in seconds since 1970",
        syntax: "key",
        handler: |call| time_of_expiry(call, Since::Epoch, Unit::Seconds),
        on_store: OnStore::By(|call| stored::time_of_expiry(call, Since::Epoch, Unit::Seconds)),
        ..KEYS
    },
    Command {
        name: "pexpiretime",
        arity: 2,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        summary: "Returns when a key expires, in milliseconds since 1970",
        syntax: "key",
        handler: |call| time_of_expiry(call, Since::Epoch, Unit::Milliseconds),
        on_store: OnStore::By(|call| {
            stored::time_of_expiry(call, Since::Epoch, Unit::Milliseconds)
        }),
        ..KEYS
    },
    Command {
        name: "persist",
        arity: 2,
        flags: Flags::of(&[Flag::Write, Flag::Fast]),
        summary: "Removes the expiry of a key",
        syntax: "key",
        handler: persist,
        on_store: OnStore::By(stored::persist),
        ..KEYS
    },
    Command {
        name: "flushdb",
        arity: -1,
        flags: Flags::of(&[Flag::Write]),
        is_restricted: true,
        categories: &["keyspace", "dangerous"],
        keys: Keys::NONE,
        summary: "Deletes all keys of the database",
        syntax: "[ASYNC | SYNC]",
        complexity: "O(N) for N keys; large filters are freed in the background",
        handler: flush_database,
        cost: Cost::By(|request, session| {
            request.server.keyspace.len(session.database) > MANY as u64
        }),
        on_store: OnStore::Refused(
            "other servers use the same filters; delete them one by one with DEL",
        ),
        ..KEYS
    },
    Command {
        name: "flushall",
        arity: -1,
        flags: Flags::of(&[Flag::Write]),
        is_restricted: true,
        categories: &["keyspace", "dangerous"],
        keys: Keys::NONE,
        summary: "Deletes all keys of all databases",
        syntax: "[ASYNC | SYNC]",
        complexity: "O(N) for N keys; large filters are freed in the background",
        handler: flush_all,
        cost: Cost::By(|request, _| {
            (0..DATABASES).any(|database| request.server.keyspace.len(database) > MANY as u64)
        }),
        on_store: OnStore::Refused(
            "other servers use the same filters; delete them one by one with DEL",
        ),
        ..KEYS
    },
    Command {
        name: "swapdb",
        arity: 3,
        flags: Flags::of(&[Flag::Write, Flag::Fast]),
        is_restricted: true,
        categories: &["keyspace", "dangerous"],
        keys: Keys::NONE,
        summary: "Always fails: databases are not swapped; use MOVE or RENAME",
        syntax: "index1 index2",
        handler: |_| Err(ReplyError::new("ERR SWAPDB is not offered: use MOVE or RENAME")),
        on_store: OnStore::Refused(ONE_DATABASE),
        ..KEYS
    },
    Command {
        name: "object",
        arity: -2,
        categories: &[],
        keys: Keys::NONE,
        summary: "Describes how keys are kept",
        syntax: "subcommand [argument ...]",
        on_store: OnStore::Same,
        subcommands: &[
            Command {
                name: "object|encoding",
                summary: "Returns the encoding of a value: raw, as Redis does for module types",
                handler: |call| object(call, |_| Ok(Object::Text("raw"))),
                ..OBJECT
            },
            Command {
                name: "object|freq",
                summary: "Always fails: how often keys are used is not tracked",
                handler: |call| object(call, |_| Err(NO_FREQUENCY)),
                ..OBJECT
            },
            Command {
                name: "object|idletime",
                summary: "Always fails: when keys were last used is not tracked",
                handler: |call| object(call, |_| Err(NO_IDLE_TIME)),
                ..OBJECT
            },
            Command {
                name: "object|refcount",
                summary: "Returns how many references there are to a value: always 1",
                handler: |call| object(call, |_| Ok(Object::Number(1))),
                ..OBJECT
            },
            Command {
                name: "object|help",
                arity: 2,
                flags: Flags::of(&[Flag::Loading, Flag::Stale]),
                keys: Keys::NONE,
                summary: "Prints this help",
                syntax: "",
                handler: help,
                on_store: OnStore::Same,
                ..OBJECT
            },
        ],
        ..KEYS
    },
];

const KEYS: Command =
    Command { keys: Keys::ONE, categories: &["keyspace"], group: "generic", ..Command::NONE };

const OBJECT: Command = Command {
    arity: 3,
    flags: Flags::of(&[Flag::ReadOnly]),
    keys: Keys { first: 2, last: 2, step: 1 },
    syntax: "key",
    on_store: OnStore::Refused("a store has no objects of this server"),
    ..KEYS
};

const TWO: Keys = Keys { first: 1, last: 2, step: 1 };

const ONE_DATABASE: &str = "a store has one database, which its address chooses";
const NO_SUCH_KEY: ReplyError = ReplyError::new("ERR no such key");
const SAME: ReplyError = ReplyError::new("ERR source and destination objects are the same");
const BAD_DATABASE: ReplyError = ReplyError::new("ERR DB index is out of range");
/// Redis's text where frequencies are not tracked.
const NO_FREQUENCY: ReplyError = ReplyError::new(
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
     when switching between policies at runtime LRU and LFU data will take some time to adjust.",
);
const NO_IDLE_TIME: ReplyError =
    ReplyError::new("ERR times of use are not tracked, since inbloom does not evict keys");

/// A pattern so long may take long to match.
fn is_long(arguments: Arguments<'_>) -> bool {
    arguments.iter().any(|word| word.len() > 256)
}

fn scan_is_heavy(request: &Request<'_>, session: &SessionState) -> bool {
    // A call reads one of the parts of the database, and then as many keys as it was asked for.
    let part = request.server.keyspace.len(session.database) / PARTS;
    let arguments = request.arguments;
    let count = arguments.skip(2).iter().filter_map(parse::integer).max().unwrap_or(0);
    part > MANY as u64 || count > MANY as i64 || is_long(arguments)
}

fn key<'a>(call: &Call<'a>, word: usize) -> Key<'a> {
    let name = call.arguments.get(word).expect("as many words as the arity says");
    Key { database: call.session.database, name }
}

/// The entry of the only key, counted as a look-up.
fn look_up<'c>(call: &'c Call<'_>) -> Option<&'c Arc<Entry>> {
    call.server.statistics.count_lookup(call.entry.is_some());
    call.entry.as_ref()
}

fn delete(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let words = 1..call.arguments.len();
    let removed = words.filter(|at| call.server.keyspace.remove(key(call, *at), call.now)).count();
    call.reply.integer(removed as i64);
    Ok(())
}

fn exists(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let words = 1..call.arguments.len();
    let is_there = |at: &usize| {
        let is_there = call.server.keyspace.get(key(call, *at), call.now).is_some();
        call.server.statistics.count_lookup(is_there);
        is_there
    };
    let found = words.filter(is_there).count();
    call.reply.integer(found as i64);
    Ok(())
}

fn type_of(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let name = look_up(call).map_or("none", |entry| entry.value.type_name());
    call.reply.simple(name);
    Ok(())
}

fn keys(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let pattern = &call.arguments[1];
    let (keyspace, database, now) = (&call.server.keyspace, call.session.database, call.now);
    call.reply.array_of(|reply| {
        let mut count = 0;
        keyspace.scan(database, 0, usize::MAX, now, |name, _| {
            if glob::matches(pattern, name) {
                reply.bulk(name);
                count += 1;
            }
        });
        count
    });
    Ok(())
}

/// What SCAN is asked for.
pub(super) struct ScanRequest<'a> {
    pub(super) cursor: u64,
    count: usize,
    pattern: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
}

impl<'a> ScanRequest<'a> {
    pub(super) fn parse(words: Arguments<'a>) -> Result<ScanRequest<'a>, ReplyError> {
        let cursor = words.get(1).and_then(cursor).ok_or(ReplyError::new("ERR invalid cursor"))?;
        let mut scan = ScanRequest { cursor, count: 10, pattern: None, kind: None };
        let mut options = words.skip(2).into_iter();
        while let Some(option) = options.next() {
            let value = options.next().ok_or(ReplyError::SYNTAX)?;
            if parse::is(option, "COUNT") {
                let number = parse::integer(value).ok_or(ReplyError::NOT_AN_INTEGER)?;
                let count = usize::try_from(number).ok().filter(|count| *count > 0);
                scan.count = count.ok_or(ReplyError::SYNTAX)?;
            } else if parse::is(option, "MATCH") {
                scan.pattern = Some(value);
            } else if parse::is(option, "TYPE") {
                scan.kind = Some(value);
            } else {
                return Err(ReplyError::SYNTAX);
            }
        }
        Ok(scan)
    }

    /// Whether a key is among those asked for.
    pub(super) fn takes(&self, name: &[u8], type_name: &str) -> bool {
        self.kind.is_none_or(|kind| parse::is(kind, type_name))
            && self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }
}

fn scan(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let scan = ScanRequest::parse(call.arguments)?;
    let (keyspace, database, now) = (&call.server.keyspace, call.session.database, call.now);
    let (mark, mut next) = (call.reply.mark(), 0);
    call.reply.array_of(|reply| {
        let mut found = 0;
        next = keyspace.scan(database, scan.cursor, scan.count, now, |name, entry| {
            if scan.takes(name, entry.value.type_name()) {
                reply.bulk(name);
                found += 1;
            }
        });
        found
    });
    call.reply.put_before(mark, |reply| {
        reply.array(2);
        reply.text(&next.to_string());
    });
    Ok(())
}

/// A cursor, with a plus or zeros in front if one likes, as C's `strtoull` takes it.
fn cursor(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    if !digits.first()?.is_ascii_digit() {
        return None; // Rust would take a second plus.
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn database_size(call: &mut Call<'_>) -> Result<(), ReplyError> {
    call.reply.integer(call.server.keyspace.len(call.session.database) as i64);
    Ok(())
}

fn random_key(call: &mut Call<'_>) -> Result<(), ReplyError> {
    // Its keys differ with each one that is made: randomness enough to choose a key.
    let seed = RandomState::new().hash_one(call.now);
    match call.server.keyspace.any(call.session.database, seed, call.now) {
        Some(name) => call.reply.bulk(&name),
        None => call.reply.null(),
    }
    Ok(())
}

fn rename(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let (from, to) = (key(call, 1), key(call, 2));
    match call.server.keyspace.rename(from, to, Target::Any, call.now) {
        Renamed::Missing => return Err(NO_SUCH_KEY),
        Renamed::Done | Renamed::Taken => call.reply.ok(),
    }
    Ok(())
}

fn rename_if_free(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let (from, to) = (key(call, 1), key(call, 2));
    match call.server.keyspace.rename(from, to, Target::Free, call.now) {
        Renamed::Missing => return Err(NO_SUCH_KEY),
        renamed => call.reply.integer(i64::from(renamed == Renamed::Done)),
    }
    Ok(())
}

/// The number of a database.
pub fn database(word: &[u8]) -> Result<usize, ReplyError> {
    let number = parse::integer(word).ok_or(ReplyError::NOT_AN_INTEGER)?;
    let number = i32::try_from(number).map_err(|_| {
        ReplyError::with(format!(
            "ERR value is out of range, value must between {} and {}",
            i32::MIN,
            i32::MAX
        ))
    })?;
    usize::try_from(number).ok().filter(|number| *number < DATABASES).ok_or(BAD_DATABASE)
}

/// Redis copies a module's value only if the module can, and RedisBloom cannot.
fn copy(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let (from, mut to) = (key(call, 1), key(call, 2));
    let mut replaces = false;
    let mut options = call.arguments.skip(3).into_iter();
    while let Some(option) = options.next() {
        if parse::is(option, "REPLACE") {
            replaces = true;
        } else if parse::is(option, "DB") {
            to.database = database(options.next().ok_or(ReplyError::SYNTAX)?)?;
        } else {
            return Err(ReplyError::SYNTAX);
        }
    }
    if from.database == to.database && from.name == to.name {
        return Err(SAME);
    }
    let exists = |key| call.server.keyspace.get(key, call.now).is_some();
    if exists(from) && (replaces || !exists(to)) {
        return Err(ReplyError::new("ERR not supported for this module key"));
    }
    call.reply.integer(0);
    Ok(())
}

fn move_key(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let from = key(call, 1);
    let to = Key { database: database(&call.arguments[2])?, ..from };
    if from.database == to.database {
        return Err(SAME);
    }
    let renamed = call.server.keyspace.rename(from, to, Target::Free, call.now);
    call.reply.integer(i64::from(renamed == Renamed::Done));
    Ok(())
}

/// From where a time is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    Now,
    Epoch,
}

/// How a time is given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

/// On what the change of an expiry depends.
#[derive(Default)]
pub(super) struct Conditions {
    if_none: bool,
    if_some: bool,
    if_later: bool,
    if_earlier: bool,
}

impl Conditions {
    fn parse(words: Arguments<'_>) -> Result<Conditions, ReplyError> {
        let mut found = Conditions::default();
        for word in words.iter() {
            let flag = match word.to_ascii_uppercase().as_slice() {
                b"NX" => &mut found.if_none,
                b"XX" => &mut found.if_some,
                b"GT" => &mut found.if_later,
                b"LT" => &mut found.if_earlier,
                _ => {
                    let word = crate::reply_error::excerpt(word, 128);
                    return Err(ReplyError::with(format!("ERR Unsupported option {word}")));
                }
            };
            *flag = true;
        }
        if found.if_none && (found.if_some || found.if_later || found.if_earlier) {
            let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(ReplyError::new(text));
        }
        if found.if_later && found.if_earlier {
            let text = "ERR GT and LT options at the same time are not compatible";
            return Err(ReplyError::new(text));
        }
        Ok(found)
    }

    /// Whether a time may be set, where there is this one or none. No time is later than all.
    pub(super) fn allow(&self, at: i64, current: Option<u64>) -> bool {
        let current = current.map(|current| i64::try_from(current).unwrap_or(i64::MAX));
        !(self.if_none && current.is_some()
            || self.if_some && current.is_none()
            || self.if_later && current.is_none_or(|current| at <= current)
            || self.if_earlier && current.is_some_and(|current| at >= current))
    }
}

/// The time at which EXPIRE and its like let a key expire, in milliseconds since 1970, and on what
/// that depends.
pub(super) fn expiry_asked(
    call: &Call<'_>,
    since: Since,
    unit: Unit,
) -> Result<(i64, Conditions), ReplyError> {
    let conditions = Conditions::parse(call.arguments.skip(3))?;
    let number = parse::integer(&call.arguments[2]).ok_or(ReplyError::NOT_AN_INTEGER)?;
    let start = if since == Since::Now { call.now as i64 } else { 0 };
    let factor = if unit == Unit::Seconds { 1000 } else { 1 };
    let at = number.checked_mul(factor).and_then(|span| span.checked_add(start));
    let at = at.ok_or_else(|| {
        let name = call.command.name;
        ReplyError::with(format!("ERR invalid expire time in '{name}' command"))
    })?;
    Ok((at, conditions))
}

fn expire(call: &mut Call<'_>, since: Since, unit: Unit) -> Result<(), ReplyError> {
    let (at, conditions) = expiry_asked(call, since, unit)?;
    let keyspace = &call.server.keyspace;
    let key = key(call, 1);
    let mut found = call.entry.clone();
    let done = loop {
        let Some(entry) = found else { break false };
        if !conditions.allow(at, entry.expires()) {
            break false;
        }
        // A time that has passed deletes the key, and that is a success.
        let is_set = match u64::try_from(at) {
            Ok(at) if at > call.now => keyspace.expire(key, &entry, Some(at)),
            _ => keyspace.remove(key, call.now),
        };
        if is_set {
            break true;
        }
        // It was deleted, renamed or replaced a moment ago: look again.
        found = keyspace.get(key, call.now);
    };
    call.reply.integer(i64::from(done));
    Ok(())
}

fn time_of_expiry(call: &mut Call<'_>, since: Since, unit: Unit) -> Result<(), ReplyError> {
    let answer = match look_up(call) {
        Some(entry) => shown_expiry(entry.expires(), call.now, since, unit),
        None => NO_KEY,
    };
    call.reply.integer(answer);
    Ok(())
}

/// What TTL and its like answer where there is no key.
pub(super) const NO_KEY: i64 = -2;

/// What TTL and its like answer of a key that expires at this time, or never.
pub(super) fn shown_expiry(at: Option<u64>, now: u64, since: Since, unit: Unit) -> i64 {
    let Some(at) = at else { return -1 };
    let start = if since == Since::Now { now } else { 0 };
    let milliseconds = at.saturating_sub(start) as i64;
    match unit {
        Unit::Seconds => milliseconds / 1000 + i64::from(milliseconds % 1000 >= 500),
        Unit::Milliseconds => milliseconds,
    }
}

fn persist(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let (keyspace, key) = (&call.server.keyspace, key(call, 1));
    let mut found = call.entry.clone();
    let done = loop {
        let Some(entry) = found else { break false };
        if entry.expires().is_none() {
            break false;
        }
        if keyspace.expire(key, &entry, None) {
            break true;
        }
        found = keyspace.get(key, call.now);
    };
    call.reply.integer(i64::from(done));
    Ok(())
}

/// ASYNC or SYNC, which is the same here: keys are gone at once, and freed in the background.
fn check_flush(call: &Call<'_>) -> Result<(), ReplyError> {
    let word = call.arguments.get(1);
    let known = word.is_none_or(|word| parse::is(word, "ASYNC") || parse::is(word, "SYNC"));
    if known && call.arguments.len() <= 2 { Ok(()) } else { Err(ReplyError::SYNTAX) }
}

fn flush_database(call: &mut Call<'_>) -> Result<(), ReplyError> {
    check_flush(call)?;
    let database = call.session.database;
    call.server.keyspace.flush(database..database + 1);
    call.reply.ok();
    Ok(())
}

fn flush_all(call: &mut Call<'_>) -> Result<(), ReplyError> {
    check_flush(call)?;
    call.server.keyspace.flush(0..DATABASES);
    call.reply.ok();
    Ok(())
}

/// What OBJECT tells.
enum Object {
    Text(&'static str),
    Number(i64),
}

/// Tells of a key, or that there is none.
fn object(
    call: &mut Call<'_>,
    tell: fn(&Entry) -> Result<Object, ReplyError>,
) -> Result<(), ReplyError> {
    match &call.entry {
        None => call.reply.null(),
        Some(entry) => match tell(entry)? {
            Object::Text(text) => call.reply.text(text),
            Object::Number(number) => call.reply.integer(number),
        },
    }
    Ok(())
}
