//! BF.*: what RedisBloom answers, to the byte, over filters of our own.
//!
//! Where we deviate on purpose, docs/server.md says so and why: options that nobody knows are errors,
//! there is no ceiling of 2^30 keys, a filter that would not fit into memory is refused with the
//! figures, and the rate holds for small filters too.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use inbloom::interop::redisbloom;
use inbloom::{Digest, Filter, Kind};

use super::{parse, transfer};
use crate::command_table::{Call, Command, Keys, excerpt};
use crate::keyspace::{Created, Entry, Key};
use crate::persist::record::{Change, Logged, Verb};
use crate::reply_error::ReplyError;
use crate::resp::{Arguments, Iter, Protocol, Reply};
use crate::server::Server;
use crate::session::{Scratch, Session};
use crate::value::bloom::{Bloom, Refusal, Wish, layers};
use crate::value::spec::Spec;
use crate::value::{Guarded, Value, bytes_of};

/// The rows of BF.*.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "bf.reserve",
        arity: -4,
        flags: &["write", "denyoom"],
        categories: &["fast", "bloom"],
        summary: "Creates an empty filter for so many items at a false-positive rate",
        syntax: "key error_rate capacity [EXPANSION expansion] [NONSCALING] \
                 [KIND blocked|classic|counting|cuckoo|redisbloom] [WINDOW span] [AUTOCLEAR share]",
        handler: reserve,
        is_heavy: reserve_is_heavy,
        ..BF
    },
    Command {
        name: "bf.add",
        arity: 3,
        flags: &["write", "denyoom"],
        summary: "Adds an item to a filter, which is created if there is none",
        syntax: "key item",
        handler: add,
        is_heavy: adds_are_heavy,
        ..BF
    },
    Command {
        name: "bf.madd",
        arity: -3,
        flags: &["write", "denyoom"],
        summary: "Adds items to a filter, which is created if there is none",
        syntax: "key item [item ...]",
        complexity: "O(N) for N items",
        handler: madd,
        is_heavy: adds_are_heavy,
        ..BF
    },
    Command {
        name: "bf.insert",
        arity: -4,
        flags: &["write", "denyoom"],
        summary: "Adds items to a filter, which is created as the options say if there is none",
        syntax: "key [CAPACITY capacity] [ERROR error] [EXPANSION expansion] [NOCREATE] \
                 [NONSCALING] ITEMS item [item ...]",
        complexity: "O(N) for N items",
        handler: insert_items,
        is_heavy: insert_is_heavy,
        ..BF
    },
    Command {
        name: "bf.exists",
        arity: 3,
        flags: &["readonly", "fast"],
        summary: "Tells whether an item may have been added: 0 is certain, 1 is probable",
        syntax: "key item",
        handler: exists,
        is_heavy: queries_are_heavy,
        ..BF
    },
    Command {
        name: "bf.mexists",
        arity: -3,
        flags: &["readonly", "fast"],
        summary: "Tells which items may have been added: 0 is certain, 1 is probable",
        syntax: "key item [item ...]",
        complexity: "O(N) for N items",
        handler: mexists,
        is_heavy: queries_are_heavy,
        ..BF
    },
    Command {
        name: "bf.card",
        arity: 2,
        flags: &["readonly", "fast"],
        categories: &["fast", "bloom"],
        summary: "Tells how many items were new when they were added",
        syntax: "key",
        handler: card,
        ..BF
    },
    Command {
        name: "bf.info",
        arity: -2,
        flags: &["readonly", "fast"],
        categories: &["fast", "bloom"],
        summary: "Tells what a filter is for and what it has",
        syntax: "key [CAPACITY|SIZE|FILTERS|ITEMS|EXPANSION]",
        handler: info,
        ..BF
    },
    Command {
        name: "bf.debug",
        arity: -1,
        flags: &["readonly", "fast"],
        summary: "Tells what a filter is made of",
        syntax: "key",
        handler: debug,
        ..BF
    },
    Command {
        name: "bf.scandump",
        arity: 3,
        flags: &["readonly", "fast"],
        summary: "Begins or goes on with a dump of a filter, piece by piece",
        syntax: "key iterator",
        complexity: "O(N) for the N bytes of a piece",
        handler: transfer::bloom_scandump,
        is_heavy: transfer::dump_is_heavy,
        ..BF
    },
    Command {
        name: "bf.loadchunk",
        arity: 4,
        flags: &["write", "denyoom", "restricted"],
        summary: "Loads a piece of a dump; the filter is there when all pieces are",
        syntax: "key iterator data",
        complexity: "O(N) for the N bytes of a piece",
        handler: transfer::bloom_loadchunk,
        is_heavy: transfer::load_is_heavy,
        ..BF
    },
];

const BF: Command =
    Command { keys: Keys::ONE, categories: &["bloom"], group: "bf", ..Command::NONE };

/// More words than that take about a millisecond.
pub const MANY: usize = 2048;

fn adds_are_heavy(server: &Server, session: &Session, arguments: Arguments<'_>) -> bool {
    if arguments.len() > MANY {
        return true;
    }
    let Some(name) = arguments.get(1) else { return false };
    let key = Key { database: session.database, name };
    let entry = server.keyspace.get(key, crate::server::now());
    let may_pause = |entry: &Entry| matches!(&entry.value, Value::Bloom(it) if it.may_pause());
    entry.is_some_and(|entry| may_pause(&entry) || is_slow(server, &entry.value, arguments))
}

/// Whether to use a filter for so many items may take more than a millisecond, also to ask it.
fn is_slow(server: &Server, value: &Value, items: Arguments<'_>) -> bool {
    match value {
        // Of a file that memory does not hold each item may wait for the disk.
        Value::Filter(guarded) if guarded.origin().is_some() => {
            value.length() > server.settings().max_memory
        }
        // What forgets empties itself, or a part of itself, now and then.
        Value::Filter(guarded) => value.memory() > LARGE && guarded.read(forgets),
        // Every layer is asked.
        Value::RedisBloom(guarded) => {
            guarded.read(|bloom| bloom.links().len()) * items.len() > MANY
        }
        Value::Bloom(_) | Value::Cuckoo(_) => false,
    }
}

/// Bytes that take more than a millisecond to empty.
const LARGE: u64 = 4 << 20;

/// Whether a filter loses items by itself.
fn forgets(filter: &Filter) -> bool {
    filter.plan().kind() == Kind::Window || filter.auto_clear().is_some()
}

/// Whether a filter takes more memory as it gets more keys: a file may bring a growing part, or be a
/// scalable filter as a whole.
pub fn grows(filter: &Filter) -> bool {
    filter.plan().growth() > 0 || filter.as_grown().is_some()
}

fn queries_are_heavy(server: &Server, session: &Session, arguments: Arguments<'_>) -> bool {
    let Some(name) = arguments.get(1) else { return false };
    let key = Key { database: session.database, name };
    let entry = server.keyspace.get(key, crate::server::now());
    entry.is_some_and(|entry| is_slow(server, &entry.value, arguments))
}

/// Planning a filter takes up to ten milliseconds, unless there was one like it.
fn reserve_is_heavy(server: &Server, _: &Session, arguments: Arguments<'_>) -> bool {
    match wish(server, arguments) {
        Ok((wish, options)) => !options.is_plain() || !server.has_shape(wish),
        Err(_) => false,
    }
}

fn insert_is_heavy(server: &Server, session: &Session, arguments: Arguments<'_>) -> bool {
    let has_options =
        arguments.get(2).is_some_and(|word| option(word).is_ok_and(|it| !it.is_items()));
    let is_missing = || {
        let key = Key { database: session.database, name: &arguments[1] };
        server.keyspace.get(key, crate::server::now()).is_none()
    };
    has_options && is_missing() || adds_are_heavy(server, session, arguments)
}

/// The entry of a filter of BF.*, None if there is none.
pub fn find(call: &Call<'_>, name: &[u8]) -> Result<Option<Arc<Entry>>, ReplyError> {
    let key = Key { database: call.session.database, name };
    match call.server.keyspace.get(key, call.now) {
        Some(entry) if matches!(entry.value, Value::Cuckoo(_)) => Err(ReplyError::WRONG_TYPE),
        found => Ok(found),
    }
}

/// The largest rate, as RedisBloom has it: above, it takes this one without a word.
const MOST_RATE: f64 = 0.25;
/// RedisBloom's ceiling of capacity, which its texts name and we do not have.
const RANGE: &str = "[1, 1073741824]";

fn reserve(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let (wish, options) = wish(call.server, call.arguments)?;
    let key = Key { database: call.session.database, name: &call.arguments[1] };
    if find(call, key.name)?.is_some() {
        return Err(ReplyError::EXISTS);
    }
    match call.server.create(key, &options.spec(wish)?, call.now)? {
        Created::New(_) => call.reply.ok(),
        Created::Taken(entry, _) => {
            let is_cuckoo = matches!(entry.value, Value::Cuckoo(_));
            return Err(if is_cuckoo { ReplyError::WRONG_TYPE } else { ReplyError::EXISTS });
        }
    }
    Ok(())
}

/// What BF.RESERVE asks for.
fn wish(server: &Server, words: Arguments<'_>) -> Result<(Wish, Options), ReplyError> {
    let settings = server.settings();
    // RedisBloom's own options are three words at most.
    let is_ours =
        |word: &[u8]| ["KIND", "WINDOW", "AUTOCLEAR"].iter().any(|option| parse::is(word, option));
    if words.len() < 4 || words.len() > 7 && !words.skip(4).iter().any(is_ours) {
        return Err(ReplyError::arity("bf.reserve"));
    }
    let rate = parse::fraction(&words[2]).ok_or(ReplyError::new("ERR bad error rate"))?;
    if !(rate > 0.0 && rate < 1.0) {
        let text = "ERR error rate must be in the range (0.000000, 1.000000)";
        return Err(ReplyError::new(text));
    }
    let capacity = parse::integer(&words[3]).ok_or(ReplyError::new("ERR bad capacity"))?;
    let capacity = u64::try_from(capacity).ok().filter(|capacity| *capacity > 0);
    let capacity = capacity
        .ok_or_else(|| ReplyError::with(format!("ERR capacity must be in the range {RANGE}")))?;
    let options = Options::parse(words.skip(4))?;
    options.check_expansion(settings.bf_expansion_factor)?;
    let growth = options.growth(settings.bf_expansion_factor);
    Ok((Wish::new(rate.min(MOST_RATE), capacity, growth), options))
}

/// The options of BF.RESERVE.
#[derive(Default)]
struct Options {
    is_fixed: bool,
    /// The word after EXPANSION.
    expansion: Option<i64>,
    kind: Option<Choice>,
    span: Option<Duration>,
    clear: Option<f64>,
}

/// What KIND may say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Ours(Kind),
    RedisBloom,
}

impl Options {
    /// Whether it is the filter that everybody gets.
    fn is_plain(&self) -> bool {
        self.kind.is_none() && self.span.is_none() && self.clear.is_none()
    }

    fn parse(words: Arguments<'_>) -> Result<Options, ReplyError> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if parse::is(word, "NONSCALING") {
                options.is_fixed = true;
            } else if parse::is(word, "EXPANSION") {
                let value = words.next().ok_or(ReplyError::new("ERR no expansion"))?;
                let value = parse::integer(value).ok_or(ReplyError::new("ERR bad expansion"))?;
                options.expansion = Some(value);
            } else if parse::is(word, "KIND") {
                options.kind = Some(choice(words.next())?);
            } else if parse::is(word, "WINDOW") {
                options.span = Some(span(words.next())?);
            } else if parse::is(word, "AUTOCLEAR") {
                options.clear = Some(share(words.next())?);
            } else {
                let word = excerpt(word, 64);
                return Err(ReplyError::with(format!(
                    "ERR unknown option '{word}': expected EXPANSION, NONSCALING, KIND, WINDOW or \
                     AUTOCLEAR"
                )));
            }
        }
        Ok(options)
    }

    fn check_expansion(&self, default: u32) -> Result<(), ReplyError> {
        let Some(expansion) = self.expansion else { return Ok(()) };
        if (self.is_fixed || default == 0) && expansion != 0 {
            return Err(ReplyError::new("Nonscaling filters cannot expand"));
        }
        if !(0..=32768).contains(&expansion) {
            return Err(ReplyError::new("ERR expansion must be in the range [0, 32768]"));
        }
        Ok(())
    }

    /// By what it grows, if it does.
    fn growth(&self, default: u32) -> Option<NonZeroU32> {
        if self.is_fixed {
            return None;
        }
        let asked = self.expansion.map(|expansion| expansion as u32);
        NonZeroU32::new(asked.unwrap_or(default))
    }

    /// What the filter is made of.
    fn spec(&self, wish: Wish) -> Result<Spec, ReplyError> {
        let is_special = self.span.is_some() || self.clear.is_some();
        match self.kind {
            None | Some(Choice::Ours(Kind::Blocked)) if !is_special => Ok(Spec::Bloom(wish)),
            Some(Choice::RedisBloom) if !is_special => Ok(Spec::RedisBloom {
                rate: wish.rate(),
                capacity: wish.capacity,
                growth: wish.expansion.map_or(0, NonZeroU32::get),
            }),
            kind => self.other(wish, kind),
        }
    }

    /// A filter of a kind that does not grow.
    fn other(&self, wish: Wish, kind: Option<Choice>) -> Result<Spec, ReplyError> {
        if self.expansion.is_some_and(|expansion| expansion > 0) {
            let text = "ERR EXPANSION does not go with KIND, WINDOW or AUTOCLEAR: only blocked and \
                        redisbloom filters without them grow";
            return Err(ReplyError::new(text));
        }
        let (kind, span, clear) = match (kind, self.span, self.clear) {
            (None, Some(span), None) => (Kind::Window, Some(span), None),
            (Some(Choice::Ours(kind)), None, clear) => (kind, None, clear),
            (None, None, clear) => (Kind::Blocked, None, clear),
            _ => {
                let text = "ERR WINDOW goes with neither KIND nor AUTOCLEAR, and AUTOCLEAR not with \
                            KIND redisbloom";
                return Err(ReplyError::new(text));
            }
        };
        Ok(Spec::Filter { kind, items: wish.capacity, rate: wish.rate(), span, clear })
    }
}

fn choice(word: Option<&[u8]>) -> Result<Choice, ReplyError> {
    let word = word.unwrap_or_default();
    if parse::is(word, "REDISBLOOM") {
        return Ok(Choice::RedisBloom);
    }
    let kinds = [Kind::Blocked, Kind::Classic, Kind::Counting, Kind::Cuckoo];
    let found = kinds.into_iter().find(|kind| parse::is(word, kind.name()));
    found.map(Choice::Ours).ok_or_else(|| {
        ReplyError::with(format!(
            "ERR KIND is blocked, classic, counting, cuckoo or redisbloom, not '{}'",
            excerpt(word, 64)
        ))
    })
}

/// As `90s`, `15m`, `12h`, `7d`, `2w`; `500ms`.
fn span(word: Option<&[u8]>) -> Result<Duration, ReplyError> {
    let word = word.unwrap_or_default();
    let digits = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let unit: Option<u64> = match word[digits..].to_ascii_lowercase().as_slice() {
        b"ms" => Some(1),
        b"s" => Some(1000),
        b"m" => Some(60_000),
        b"h" => Some(3_600_000),
        b"d" => Some(86_400_000),
        b"w" => Some(7 * 86_400_000),
        _ => None,
    };
    let count = parse::integer(&word[..digits]).filter(|count| *count > 0);
    let millis = count.zip(unit).and_then(|(count, unit)| (count as u64).checked_mul(unit));
    millis.map(Duration::from_millis).ok_or_else(|| {
        let word = excerpt(word, 64);
        ReplyError::with(format!(
            "ERR WINDOW takes a span of time as 90s, 15m, 12h or 7d, not '{word}'"
        ))
    })
}

fn share(word: Option<&[u8]>) -> Result<f64, ReplyError> {
    let word = word.unwrap_or_default();
    parse::fraction(word).filter(|share| *share > 0.0 && *share < 1.0).ok_or_else(|| {
        let word = excerpt(word, 64);
        let text = format!(
            "ERR AUTOCLEAR takes the share of bits at which the filter empties itself, above 0 and \
             below 1, not '{word}'"
        );
        ReplyError::with(text)
    })
}

/// The filter of a name, which is created with the defaults if there is none.
fn find_or_create(call: &Call<'_>) -> Result<Arc<Entry>, ReplyError> {
    let name = &call.arguments[1];
    if let Some(entry) = find(call, name)? {
        return Ok(entry);
    }
    let settings = call.server.settings();
    let growth = NonZeroU32::new(settings.bf_expansion_factor);
    create(call, name, Wish::new(settings.bf_error_rate, settings.bf_initial_size, growth))
}

fn create(call: &Call<'_>, name: &[u8], wish: Wish) -> Result<Arc<Entry>, ReplyError> {
    let key = Key { database: call.session.database, name };
    match call.server.create(key, &Spec::Bloom(wish), call.now)? {
        Created::Taken(entry, _) if matches!(entry.value, Value::Cuckoo(_)) => {
            Err(ReplyError::WRONG_TYPE)
        }
        Created::New(entry) | Created::Taken(entry, _) => Ok(entry),
    }
}

fn add(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let entry = find_or_create(call)?;
    let items = call.arguments.skip(2);
    let result = insert_each(call.server, &entry, items, &mut call.session.scratch, call.now);
    match call.session.scratch.answers.first() {
        Some(new) => {
            call.server.statistics.count_added(1);
            call.reply.truth(*new);
        }
        None => return Err(result.expect_err("an item is answered or refused")),
    }
    Ok(())
}

fn madd(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let entry = find_or_create(call)?;
    add_all(call, &entry, call.arguments.skip(2));
    Ok(())
}

fn insert_items(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let words = call.arguments;
    let settings = call.server.settings();
    let mut rate = settings.bf_error_rate;
    let mut capacity = settings.bf_initial_size;
    let mut expansion = settings.bf_expansion_factor;
    let (mut is_fixed, mut only_existing) = (false, false);
    let mut at = 2;
    let items = loop {
        let Some(word) = words.get(at) else { return Err(ReplyError::arity(call.command.name)) };
        let value = || words.get(at + 1).ok_or_else(|| ReplyError::arity("bf.insert"));
        at += match option(word)? {
            Insert::Items => break words.skip(at + 1),
            Insert::Capacity => {
                let bad = ReplyError::new("Bad capacity");
                let asked = parse::integer(value()?).filter(|asked| *asked > 0);
                capacity = asked.ok_or(bad)? as u64;
                2
            }
            Insert::Rate => {
                let asked = parse::fraction(value()?).filter(|asked| *asked > 0.0 && *asked < 1.0);
                rate = asked.ok_or(ReplyError::new("Bad error rate"))?.min(MOST_RATE);
                2
            }
            Insert::Expansion => {
                let asked = parse::integer(value()?).filter(|asked| (0..=32768).contains(asked));
                let asked = asked.ok_or(ReplyError::new("Bad expansion"))? as u32;
                // A default of 0 means that filters do not grow, whatever is asked for here.
                expansion = if settings.bf_expansion_factor == 0 { 0 } else { asked };
                2
            }
            Insert::OnlyExisting => {
                only_existing = true;
                1
            }
            Insert::Fixed => {
                is_fixed = true;
                1
            }
        };
    };
    if items.is_empty() {
        return Err(ReplyError::arity(call.command.name));
    }
    let entry = match find(call, &words[1])? {
        Some(entry) => entry,
        None if only_existing => return Err(ReplyError::NOT_FOUND),
        None => {
            let growth = NonZeroU32::new(expansion).filter(|_| !is_fixed);
            create(call, &words[1], Wish::new(rate, capacity, growth))?
        }
    };
    add_all(call, &entry, items);
    Ok(())
}

/// The options of BF.INSERT.
enum Insert {
    Items,
    Capacity,
    Rate,
    Expansion,
    OnlyExisting,
    Fixed,
}

impl Insert {
    fn is_items(&self) -> bool {
        matches!(self, Insert::Items)
    }
}

fn option(word: &[u8]) -> Result<Insert, ReplyError> {
    let options = ["ITEMS", "CAPACITY", "ERROR", "EXPANSION", "NOCREATE", "NONSCALING"];
    match parse::abbreviated(word, &options) {
        Some("ITEMS") => Ok(Insert::Items),
        Some("CAPACITY") => Ok(Insert::Capacity),
        Some("ERROR") => Ok(Insert::Rate),
        Some("EXPANSION") => Ok(Insert::Expansion),
        Some("NOCREATE") => Ok(Insert::OnlyExisting),
        Some("NONSCALING") => Ok(Insert::Fixed),
        _ => Err(ReplyError::new("Unknown argument received")),
    }
}

/// Adds items and replies an array: one answer each, and an error where it ended.
fn add_all(call: &mut Call<'_>, entry: &Entry, items: Arguments<'_>) {
    let scratch = &mut call.session.scratch;
    let result = insert_each(call.server, entry, items, scratch, call.now);
    let answers = &scratch.answers;
    call.server.statistics.count_added(answers.len());
    call.reply.array(answers.len() + usize::from(result.is_err()));
    call.reply.truths(answers);
    if let Err(failure) = result {
        call.server.statistics.count_error(failure.text());
        call.reply.error(failure.text());
    }
}

/// Adds items to whatever filter it is. The answers are in the scratch; on an error, those before it.
fn insert_each(
    server: &Server,
    entry: &Entry,
    items: Arguments<'_>,
    scratch: &mut Scratch,
    now: u64,
) -> Result<(), ReplyError> {
    let Scratch { digests, answers } = scratch;
    answers.clear();
    match &entry.value {
        Value::Bloom(bloom) => {
            digests.clear();
            digests.extend(items.iter().map(|item| server.hasher.digest(item)));
            insert(server, entry, bloom, digests, answers)
        }
        Value::Filter(guarded) => {
            for mut run in Runs(items) {
                let memory = entry.value.memory();
                let spare = server.limit_for(memory).saturating_sub(memory);
                let result = guarded.change(
                    |filter| {
                        advance(filter, now)?;
                        digests.clear();
                        let most = grows(filter).then(|| filter.bytes().saturating_add(spare));
                        let result = run.try_for_each(|item| {
                            let digest = filter.digest(item);
                            if most.is_some_and(|most| filter.bytes() >= most)
                                && !filter.contains_digest(digest)
                            {
                                return Err(server.cannot_grow(memory));
                            }
                            answers.push(insert_one(filter, digest)?);
                            digests.push(digest);
                            Ok(())
                        });
                        note(server, entry, Verb::Insert, now, digests);
                        result
                    },
                    Filter::memory,
                );
                server.keyspace.settle(entry);
                result?;
            }
            Ok(())
        }
        Value::RedisBloom(guarded) => {
            for mut run in Runs(items) {
                let limit = server.limit_for(entry.value.memory());
                let result = guarded.change(
                    |bloom| {
                        let mut pairs = Vec::new();
                        let result = run.try_for_each(|item| {
                            let pair = bloom.pair(item);
                            answers.push(bloom.insert_pair(pair, limit)?);
                            pairs.push(pair);
                            Ok(())
                        });
                        note(server, entry, Verb::AddPairs, now, &pairs);
                        result
                    },
                    redisbloom::Bloom::memory,
                );
                server.keyspace.settle(entry);
                result.map_err(|refusal| refused(server, entry, refusal))?;
            }
            Ok(())
        }
        Value::Cuckoo(_) => Err(ReplyError::WRONG_TYPE),
    }
}

/// Writes down what was done with some items, if any. The filter is locked.
pub fn note<H: Logged>(server: &Server, entry: &Entry, verb: Verb, now: u64, hashes: &[H]) {
    if !hashes.is_empty() {
        server.keyspace.note_change(entry, || {
            let mut change = Change::new(entry.id, verb, now, 0);
            change.extend(hashes);
            change
        });
    }
}

/// Pieces of arguments for which a lock is held at a time.
pub struct Runs<'a>(pub Arguments<'a>);

impl<'a> Iterator for Runs<'a> {
    type Item = std::iter::Take<Iter<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        /// About 50 microseconds.
        const RUN: usize = 256;
        let length = self.0.len().min(RUN);
        let run = self.0.iter().take(length);
        self.0 = self.0.skip(length);
        (length > 0).then_some(run)
    }
}

const READ_ONLY: ReplyError = ReplyError::new(
    "ERR this filter is a file opened by IB.OPEN, which is read-only: IB.MERGE makes a copy that is not",
);

const STATIC: ReplyError = ReplyError::new(
    "ERR this filter is a list that is read-only here: change its file with 'inbloom build --base', \
     delete the key and open the file again",
);

const FULL: ReplyError = ReplyError::new("ERR non scaling filter is full");

fn refused(server: &Server, entry: &Entry, refusal: redisbloom::Refused) -> ReplyError {
    match refusal {
        redisbloom::Refused::Memory { .. } => server.cannot_grow(entry.value.memory()),
        redisbloom::Refused::Full => FULL,
        redisbloom::Refused::Exhausted => ReplyError::new("ERR problem inserting into filter"),
        memory => ReplyError::because(memory),
    }
}

/// Inserts into a filter that does not grow: it is full when it has what it is for, unless it forgets.
pub fn insert_one(filter: &mut Filter, digest: Digest) -> Result<bool, ReplyError> {
    if filter.plan().kind().is_static() {
        return Err(STATIC);
    }
    if filter.is_read_only() {
        return Err(READ_ONLY);
    }
    let is_known = || filter.contains_digest(digest);
    if !forgets(filter) && filter.inserted() >= filter.plan().items() && !is_known() {
        return Err(FULL);
    }
    // Also if it seems to be in: what is taken for it may be removed, and it must stay.
    match filter.insert_digest(digest) {
        Ok(new) => Ok(new),
        Err(inbloom::Error::Copies { .. }) => Ok(false),
        Err(inbloom::Error::Full { .. }) if filter.contains_digest(digest) => Ok(false),
        Err(inbloom::Error::Full { .. }) => Err(FULL),
        Err(other) => Err(ReplyError::because(other)),
    }
}

/// A window follows the clock whenever it is written to.
pub fn advance(filter: &mut Filter, now: u64) -> Result<(), ReplyError> {
    if filter.plan().kind() != Kind::Window {
        return Ok(());
    }
    filter.advance(now).map_err(ReplyError::because)
}

/// Adds digests to a filter, that of an entry, and enters what it has grown by.
pub fn insert(
    server: &Server,
    entry: &Entry,
    bloom: &Bloom,
    digests: &[Digest],
    new: &mut Vec<bool>,
) -> Result<(), ReplyError> {
    // What it may take is looked up only when it grows, which a filter that has room does not.
    let has_room = bloom.has_room(digests.len());
    let limit = if has_room { u64::MAX } else { server.limit_for(bloom.bytes()) };
    let result = bloom.insert(digests, new, limit, |digests, new| {
        server.keyspace.note_change(entry, || {
            let mut change = Change::new(entry.id, Verb::Add, 0, new);
            change.extend(digests);
            change
        });
    });
    server.keyspace.settle(entry);
    result.map_err(|refusal| match refusal {
        Refusal::Full => FULL,
        Refusal::Memory(inbloom::Error::Limit { .. }) => server.cannot_grow(bloom.bytes()),
        // Of our limit, and not of the system: that has numbers, and no texts inside.
        Refusal::Memory(inbloom::Error::Memory { cause, .. }) if cause.get_ref().is_some() => {
            server.cannot_grow(bloom.bytes())
        }
        Refusal::Memory(error) => ReplyError::because(error),
    })
}

fn exists(call: &mut Call<'_>) -> Result<(), ReplyError> {
    contains_each(call, call.arguments.skip(2));
    let found = call.session.scratch.answers[0];
    call.reply.truth(found);
    Ok(())
}

fn mexists(call: &mut Call<'_>) -> Result<(), ReplyError> {
    contains_each(call, call.arguments.skip(2));
    call.reply.array(call.session.scratch.answers.len());
    call.reply.truths(&call.session.scratch.answers);
    Ok(())
}

/// Asks for items. A key that is missing, or of another type, has none of them.
fn contains_each(call: &mut Call<'_>, items: Arguments<'_>) {
    let key = Key { database: call.session.database, name: &call.arguments[1] };
    let entry = call.server.keyspace.get(key, call.now);
    call.server.statistics.count_lookup(entry.is_some());
    let scratch = &mut call.session.scratch;
    match entry {
        Some(entry) => contains_in(call.server, &entry.value, items, scratch, call.now),
        None => {
            scratch.answers.clear();
            scratch.answers.resize(items.len(), false);
        }
    }
}

/// Asks a filter for items.
pub fn contains_in(
    server: &Server,
    value: &Value,
    items: Arguments<'_>,
    scratch: &mut Scratch,
    now: u64,
) {
    let Scratch { digests, answers } = scratch;
    answers.clear();
    server.statistics.count_asked(items.len());
    match value {
        Value::Bloom(bloom) => {
            digests.clear();
            digests.extend(items.iter().map(|item| server.hasher.digest(item)));
            bloom.contains(digests, answers);
        }
        Value::Filter(guarded) => {
            follow_clock(guarded, now);
            let mut found = Vec::new();
            for run in Runs(items) {
                guarded.read(|filter| {
                    digests.clear();
                    digests.extend(run.map(|item| filter.digest(item)));
                    filter.contains_digests(digests, &mut found);
                });
                answers.extend_from_slice(&found);
            }
        }
        Value::RedisBloom(guarded) => {
            for run in Runs(items) {
                guarded.read(|bloom| answers.extend(run.map(|item| bloom.contains(item))));
            }
        }
        Value::Cuckoo(_) => answers.resize(items.len(), false),
    }
}

/// Lets a window forget what is too old before it is asked.
pub fn follow_clock(guarded: &Guarded<Filter>, now: u64) {
    if guarded.read(|filter| filter.plan().kind() == Kind::Window) {
        // A clock that goes back is an error that a reader has no use for: nothing is forgotten.
        let _ = guarded.tend(|filter| filter.advance(now));
    }
}

fn card(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let items = match find(call, &call.arguments[1])? {
        Some(entry) => Facts::of(&entry.value).items,
        None => 0,
    };
    call.reply.integer(items as i64);
    Ok(())
}

/// What BF.INFO tells.
pub struct Facts {
    /// Keys that it is for.
    pub capacity: u64,
    /// Bytes.
    pub size: u64,
    /// Layers, as RedisBloom would have them.
    pub filters: u64,
    /// Keys that were new.
    pub items: u64,
    /// By what it grows.
    pub expansion: Option<u32>,
}

impl Facts {
    /// Those of a filter of BF.*.
    pub fn of(value: &Value) -> Facts {
        match value {
            Value::Bloom(bloom) => {
                let (items, size) = (bloom.items(), bloom.bytes());
                let (filters, capacity) = layers(bloom.reserved(), bloom.expansion(), items);
                let expansion = bloom.expansion().map(NonZeroU32::get);
                Facts { capacity, size, filters, items, expansion }
            }
            Value::Filter(guarded) => guarded.read(|filter| Facts {
                capacity: filter.plan().items(),
                size: bytes_of(filter),
                filters: 1,
                items: filter.inserted(),
                expansion: None,
            }),
            Value::RedisBloom(guarded) => guarded.read(|bloom| Facts {
                capacity: bloom.capacity(),
                size: bloom.bytes(),
                filters: bloom.links().count() as u64,
                items: bloom.items(),
                expansion: bloom.growth(),
            }),
            Value::Cuckoo(_) => unreachable!("of another type, which was asked before"),
        }
    }
}

fn info(call: &mut Call<'_>) -> Result<(), ReplyError> {
    if call.arguments.len() > 3 {
        return Err(ReplyError::arity(call.command.name));
    }
    let entry = find(call, &call.arguments[1])?.ok_or(ReplyError::NOT_FOUND)?;
    let facts = Facts::of(&entry.value);
    let fields: [(&str, &str, Option<u64>); 5] = [
        ("CAPACITY", "Capacity", Some(facts.capacity)),
        ("SIZE", "Size", Some(facts.size)),
        ("FILTERS", "Number of filters", Some(facts.filters)),
        ("ITEMS", "Number of items inserted", Some(facts.items)),
        ("EXPANSION", "Expansion rate", facts.expansion.map(u64::from)),
    ];
    let number = |reply: &mut Reply<'_>, value: Option<u64>| match value {
        Some(value) => reply.integer(value as i64),
        None => reply.null(),
    };
    let Some(word) = call.arguments.get(2) else {
        call.reply.map(fields.len());
        for (_, name, value) in fields {
            call.reply.simple(name);
            number(&mut call.reply, value);
        }
        return Ok(());
    };
    let (_, name, value) = fields
        .into_iter()
        .find(|(option, ..)| parse::is(word, option))
        .ok_or(ReplyError::new("Invalid information value"))?;
    if call.reply.protocol() == Protocol::Resp3 {
        call.reply.map(1);
        call.reply.simple(name);
    } else {
        call.reply.array(1);
    }
    number(&mut call.reply, value);
    Ok(())
}

fn debug(call: &mut Call<'_>) -> Result<(), ReplyError> {
    if call.arguments.len() != 2 {
        return Err(ReplyError::arity(call.command.name));
    }
    let entry = find(call, &call.arguments[1])?.ok_or(ReplyError::NOT_FOUND)?;
    let mut lines = vec![format!("size:{}", Facts::of(&entry.value).items)];
    match &entry.value {
        Value::Bloom(bloom) => {
            let (base, plan) = (bloom.base(), bloom.base().plan());
            let in_rest = bloom.rest().map_or(0, |rest| rest.len());
            lines.push(format!(
                "bytes:{} bits:{} hashes:{} hashwidth:128 capacity:{} size:{} ratio:{}",
                base.bytes(),
                plan.bits(),
                plan.probes(),
                plan.items(),
                bloom.items().saturating_sub(in_rest),
                general(plan.rate()),
            ));
            lines.extend(bloom.rest().map(|rest| {
                let (bytes, size) = (rest.bytes(), rest.len());
                let rate = general(rest.plan().rate());
                format!("bytes:{bytes} kind:scalable size:{size} ratio:{rate}")
            }));
        }
        Value::Filter(guarded) => guarded.read(|filter| {
            let plan = filter.plan();
            let (kind, bytes) = (plan.kind(), filter.bytes());
            let (probes, items, rate) = (plan.probes(), plan.items(), general(plan.rate()));
            let size = filter.inserted();
            lines.push(format!(
                "bytes:{bytes} kind:{kind} hashes:{probes} hashwidth:128 capacity:{items} \
                 size:{size} ratio:{rate}"
            ));
        }),
        Value::RedisBloom(guarded) => guarded.read(|bloom| {
            lines.extend(bloom.links().map(|link| {
                format!(
                    "bytes:{} bits:{} hashes:{} hashwidth:64 capacity:{} size:{} ratio:{}",
                    link.bytes,
                    link.bits,
                    link.hashes,
                    link.entries,
                    link.size,
                    general(link.rate),
                )
            }));
        }),
        Value::Cuckoo(_) => unreachable!("of another type, which `find` refuses"),
    }
    call.reply.array(lines.len());
    lines.iter().for_each(|line| call.reply.text(line));
    Ok(())
}

/// A number as C's `%g` prints it: six digits, without zeros at the end.
fn general(number: f64) -> String {
    let text = format!("{number:.5e}");
    let (digits, exponent) = text.split_once('e').expect("the form says so");
    let exponent: i32 = exponent.parse().expect("the form says so");
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..6).contains(&exponent) {
        return trimmed(&format!("{number:.*}", (5 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(digits), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::general;

    #[test]
    fn numbers_are_printed_as_c_prints_them() {
        for (number, text) in [
            (0.0005, "0.0005"),
            (0.001, "0.001"),
            (5e-6, "5e-06"),
            (0.00000244140625, "2.44141e-06"),
            (0.009000000000000001, "0.009"),
            (0.25, "0.25"),
            (1.0, "1"),
            (1234567.0, "1.23457e+06"),
        ] {
            assert_eq!(general(number), text);
        }
    }
}
