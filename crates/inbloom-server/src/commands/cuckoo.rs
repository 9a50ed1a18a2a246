//! CF.*: RedisBloom's cuckoo filter, equal in every bit, with replies that are equal in every byte.
//!
//! It differs on purpose in these points. docs/server.md gives the reasons.
//!
//! - Unknown options are errors. Options are not looked for in the place of the key.
//! - There is no limit of 2^30 items, and none of 32 sub-filters.
//! - A filter that does not fit into memory is refused, and the error gives both numbers.
//! - CF.COMPACT has the flag of a command that writes.
//! - A filter of more than 65,536 slots is compacted by CF.COMPACT only, never inside CF.DEL.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use inbloom::interop::redisbloom::{CuckooChain, Hash, Refused};

use super::bloom::{self, Runs};
use super::transfer;
use crate::command::{
    Batch, Batched, Call, Command, Cost, Flag, Flags, Hashing, Keys, LONGEST_RUN, MANY, OnStore,
    Request,
};
use crate::keyspace::{Created, Entry, Key};
use crate::parse;
use crate::reply_error::{ReplyError, excerpt};
use crate::resp::{Arguments, Protocol};
use crate::server::Server;
use crate::session_state::{Scratch, SessionState};
use crate::value::change::{Items, Refusal};
use crate::value::spec::Spec;
use crate::value::{Guarded, Value};

/// The rows of CF.*.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "cf.reserve",
        arity: -3,
        flags: Flags::of(&[Flag::Write, Flag::DenyOom]),
        categories: &["fast", "cuckoo"],
        summary: "Creates an empty cuckoo filter with a capacity",
        syntax: "key capacity [BUCKETSIZE bucketsize] [MAXITERATIONS maxiterations] \
                 [EXPANSION expansion]",
        handler: reserve,
        ..CF
    },
    Command {
        name: "cf.add",
        arity: 3,
        flags: Flags::of(&[Flag::Write, Flag::DenyOom]),
        summary: "Adds an item to a cuckoo filter, also if it is present; creates the filter if there is none",
        syntax: "key item",
        handler: |call| add_one(call, CuckooAction::Add),
        cost: Cost::By(items_are_heavy),
        batched: Some(Batched {
            answer: |batch| answer_additions(batch, CuckooAction::Add),
            ..BATCHED
        }),
        ..CF
    },
    Command {
        name: "cf.addnx",
        arity: 3,
        flags: Flags::of(&[Flag::Write, Flag::DenyOom]),
        summary: "Adds an item to a cuckoo filter unless it is present",
        syntax: "key item",
        handler: |call| add_one(call, CuckooAction::AddNew),
        cost: Cost::By(items_are_heavy),
        batched: Some(Batched {
            answer: |batch| answer_additions(batch, CuckooAction::AddNew),
            ..BATCHED
        }),
        ..CF
    },
    Command {
        name: "cf.insert",
        arity: -4,
        flags: Flags::of(&[Flag::Write, Flag::DenyOom]),
        summary: "Adds items to a cuckoo filter; the options apply if it must be created",
        syntax: "key [CAPACITY capacity] [NOCREATE] ITEMS item [item ...]",
        complexity: "O(N * F) for N items and F sub-filters",
        handler: |call| insert_items(call, CuckooAction::Add),
        cost: Cost::By(items_are_heavy),
        ..CF
    },
    Command {
        name: "cf.insertnx",
        arity: -4,
        flags: Flags::of(&[Flag::Write, Flag::DenyOom]),
        summary: "Adds those items to a cuckoo filter that are absent",
        syntax: "key [CAPACITY capacity] [NOCREATE] ITEMS item [item ...]",
        complexity: "O(N * F) for N items and F sub-filters",
        handler: |call| insert_items(call, CuckooAction::AddNew),
        cost: Cost::By(items_are_heavy),
        ..CF
    },
    Command {
        name: "cf.exists",
        arity: 3,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        summary: "Reports whether an item may be present: 0 is certain, 1 is probable",
        syntax: "key item",
        handler: exists,
        cost: Cost::By(items_are_heavy),
        batched: Some(BATCHED),
        ..CF
    },
    Command {
        name: "cf.mexists",
        arity: -3,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        summary: "Reports which items may be present: 0 is certain, 1 is probable",
        syntax: "key item [item ...]",
        complexity: "O(N * F) for N items and F sub-filters",
        handler: mexists,
        cost: Cost::By(items_are_heavy),
        ..CF
    },
    Command {
        name: "cf.del",
        arity: 3,
        flags: Flags::of(&[Flag::Write, Flag::Fast]),
        summary: "Removes an item once; only for items that were added",
        syntax: "key item",
        handler: delete,
        cost: Cost::By(items_are_heavy),
        batched: Some(Batched { answer: answer_removals, ..BATCHED }),
        ..CF
    },
    Command {
        name: "cf.count",
        arity: 3,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        summary: "Returns how often an item may have been added",
        syntax: "key item",
        handler: count,
        cost: Cost::By(items_are_heavy),
        batched: Some(Batched { answer: answer_counts, ..BATCHED }),
        ..CF
    },
    Command {
        name: "cf.info",
        arity: 2,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        categories: &["fast", "cuckoo"],
        summary: "Returns a cuckoo filter's size, buckets, sub-filters and items",
        syntax: "key",
        complexity: "O(1)",
        handler: info,
        ..CF
    },
    Command {
        name: "cf.compact",
        arity: -1,
        flags: Flags::of(&[Flag::Write]),
        summary: "Moves items to older sub-filters, and frees empty ones",
        syntax: "key",
        complexity: "O(N * F) for N slots and F sub-filters",
        handler: compact,
        cost: Cost::By(compact_is_heavy),
        ..CF
    },
    Command {
        name: "cf.debug",
        arity: -1,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        summary: "Describes the structure of a cuckoo filter",
        syntax: "key",
        complexity: "O(1)",
        handler: debug,
        ..CF
    },
    Command {
        name: "cf.scandump",
        arity: 3,
        flags: Flags::of(&[Flag::ReadOnly, Flag::Fast]),
        summary: "Returns the next chunk of a dump of a cuckoo filter",
        syntax: "key iterator",
        complexity: "O(N) for the N bytes of a chunk",
        handler: transfer::cuckoo_scandump,
        cost: Cost::By(transfer::dump_is_heavy),
        ..CF
    },
    Command {
        name: "cf.loadchunk",
        arity: 4,
        flags: Flags::of(&[Flag::Write, Flag::DenyOom]),
        is_restricted: true,
        summary: "Loads a chunk of a dump; the last chunk creates the filter",
        syntax: "key iterator data",
        complexity: "O(N) for the N bytes of a chunk",
        handler: transfer::cuckoo_loadchunk,
        cost: Cost::By(transfer::load_is_heavy),
        ..CF
    },
];

const CF: Command = Command {
    keys: Keys::ONE,
    categories: &["cuckoo"],
    group: "cf",
    complexity: "O(F) for F sub-filters",
    on_store: OnStore::Refused(
        "a store only holds filters of kind blocked; use a server without --store",
    ),
    ..Command::NONE
};

/// What batches of CF.* have in common; those of CF.EXISTS are these.
const BATCHED: Batched = Batched {
    hashing: Hashing::RedisBloom,
    most: |value| match value {
        Value::Cuckoo(filter) => (LONGEST_RUN / filter.read(effort)).max(1),
        _ => 0,
    },
    answer: answer_queries,
    on_store: None,
};

/// What is done with items.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CuckooAction {
    /// Each is there once more.
    Add,
    /// Those that seem to be there stay as they are.
    AddNew,
    /// Each is there once less.
    Remove,
}

impl CuckooAction {
    fn on(self, hashes: &[Hash]) -> Items<'_> {
        match self {
            CuckooAction::Add => Items::AddHashes(hashes),
            CuckooAction::AddNew => Items::AddNewHashes(hashes),
            CuckooAction::Remove => Items::RemoveHashes(hashes),
        }
    }
}

type CuckooFilter = Guarded<CuckooChain>;

/// Every sub-filter is asked for every item.
fn items_are_heavy(request: &Request<'_>, _: &SessionState) -> bool {
    let filter = request.entry.as_deref().and_then(cuckoo_of);
    filter.is_some_and(|filter| filter.read(effort) * request.arguments.len() > MANY)
}

/// How much an item may cost, 1 for a filter that never grew: every sub-filter is asked, and a full one
/// moves others as often as it may.
fn effort(cuckoo: &CuckooChain) -> usize {
    cuckoo.filters() as usize + usize::from(cuckoo.max_iterations()) / 64
}

/// The filter of an entry, if it is one of CF.*.
pub fn cuckoo_of(entry: &Entry) -> Option<&CuckooFilter> {
    match &entry.value {
        Value::Cuckoo(filter) => Some(filter),
        _ => None,
    }
}

/// The entry of a filter of CF.*, None if there is none.
pub fn find(call: &Call<'_>) -> Result<Option<Arc<Entry>>, ReplyError> {
    match &call.entry {
        Some(entry) if cuckoo_of(entry).is_none() => Err(ReplyError::WRONG_TYPE),
        found => Ok(found.clone()),
    }
}

/// As [`find`], for commands that take another type for nothing at all.
fn look(call: &Call<'_>) -> Option<Arc<Entry>> {
    let found = find(call).ok().flatten();
    call.server.statistics.count_lookup(found.is_some());
    found
}

fn filter_of(entry: &Entry) -> &CuckooFilter {
    cuckoo_of(entry).expect("of another type, which `find` refuses")
}

/// What a new filter is to be like.
#[derive(Clone, Copy)]
struct CuckooWish {
    capacity: u64,
    bucket_size: u16,
    max_iterations: u16,
    expansion: u16,
}

impl CuckooWish {
    fn default(server: &Server) -> CuckooWish {
        let settings = server.settings();
        CuckooWish {
            capacity: settings.cf_initial_size,
            bucket_size: settings.cf_bucket_size,
            max_iterations: settings.cf_max_iterations,
            expansion: settings.cf_expansion_factor,
        }
    }

    fn spec(self) -> Spec {
        let CuckooWish { capacity, bucket_size, max_iterations, expansion } = self;
        Spec::Cuckoo { capacity, bucket_size, max_iterations, expansion }
    }
}

fn reserve(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let words = call.arguments;
    if words.len().is_multiple_of(2) {
        return Err(ReplyError::arity(call.command.name));
    }
    let capacity = parse::integer(&words[2]).ok_or(ReplyError::new("Bad capacity"))?;
    let wish = CuckooWish { capacity: capacity.max(0) as u64, ..CuckooWish::default(call.server) };
    let wish = options(words.skip(3), wish)?;
    if wish.capacity < 2 * u64::from(wish.bucket_size) {
        let text = "Capacity must be in the range [2 * BUCKETSIZE, 1073741824]";
        return Err(ReplyError::new(text));
    }
    if find(call)?.is_some() {
        return Err(ReplyError::EXISTS);
    }
    let key = Key { database: call.session.database, name: &words[1] };
    match call.server.create(key, &wish.spec(), call.now)? {
        Created::New(_) => call.reply.ok(),
        Created::Taken(entry, _) if cuckoo_of(&entry).is_none() => {
            return Err(ReplyError::WRONG_TYPE);
        }
        Created::Taken(..) => return Err(ReplyError::EXISTS),
    }
    Ok(())
}

/// The options of CF.RESERVE. Their values are checked in the order of RedisBloom, whatever the
/// order they come in; of one that is repeated, the first value counts.
fn options(words: Arguments<'_>, mut wish: CuckooWish) -> Result<CuckooWish, ReplyError> {
    const NAMES: [&str; 3] = ["MAXITERATIONS", "BUCKETSIZE", "EXPANSION"];
    let mut values: [Option<&[u8]>; 3] = [None; 3];
    let mut words = words.iter();
    while let (Some(word), Some(value)) = (words.next(), words.next()) {
        let Some(at) = NAMES.iter().position(|name| parse::is(word, name)) else {
            let word = excerpt(word, 64);
            return Err(ReplyError::with(format!(
                "ERR unknown option '{word}': expected BUCKETSIZE, MAXITERATIONS or EXPANSION"
            )));
        };
        values[at].get_or_insert(value);
    }
    let number = |at: usize, range: std::ops::RangeInclusive<i64>, default: u16| {
        let Some(value) = values[at] else { return Ok(default) };
        let name = NAMES[at];
        let value = parse::integer(value)
            .ok_or_else(|| ReplyError::with(format!("Couldn't parse {name}")))?;
        if !range.contains(&value) {
            let (least, most) = range.into_inner();
            let text = format!("{name}: value must be in the range [{least}, {most}]");
            return Err(ReplyError::with(text));
        }
        Ok(value as u16)
    };
    wish.max_iterations = number(0, 1..=65535, wish.max_iterations)?;
    wish.bucket_size = number(1, 1..=255, wish.bucket_size)?;
    wish.expansion = number(2, 0..=32768, wish.expansion)?;
    Ok(wish)
}

fn add_one(call: &mut Call<'_>, action: CuckooAction) -> Result<(), ReplyError> {
    let name = &call.arguments[1];
    let entry = match find(call)? {
        Some(entry) => entry,
        None => create(call, name, CuckooWish::default(call.server))?,
    };
    let hash = Hash::of(&call.arguments[2]);
    let is_new = change_one(call, &entry, action, hash)?;
    call.reply.truth(is_new);
    call.server.statistics.count_added(1);
    Ok(())
}

/// Changes a filter by one item, and returns the answer.
fn change_one(
    call: &mut Call<'_>,
    entry: &Entry,
    action: CuckooAction,
    hash: Hash,
) -> Result<bool, ReplyError> {
    let answers = &mut call.session.scratch.answers;
    let result = call.server.apply(entry, action.on(&[hash]), answers);
    result.map_err(|refusal| refused(call.server, refusal))?;
    Ok(answers[0])
}

fn create(call: &Call<'_>, name: &[u8], wish: CuckooWish) -> Result<Arc<Entry>, ReplyError> {
    let key = Key { database: call.session.database, name };
    match call.server.create(key, &wish.spec(), call.now)? {
        Created::New(entry) => Ok(entry),
        Created::Taken(entry, _) if cuckoo_of(&entry).is_none() => Err(ReplyError::WRONG_TYPE),
        Created::Taken(entry, _) => Ok(entry),
    }
}

fn refused(server: &Server, refusal: Refusal) -> ReplyError {
    match refusal {
        Refusal::Foreign(Refused::Full) => ReplyError::new("Filter is full"),
        Refusal::Foreign(memory) => ReplyError::with(format!("ERR Insufficient memory: {memory}")),
        other => bloom::refused(server, other),
    }
}

/// Changes a filter by items. Calls `report` with the answers, in order, until an item is refused, with
/// why it was, and so on.
fn change_each(
    server: &Server,
    entry: &Entry,
    action: CuckooAction,
    hashes: &[Hash],
    answers: &mut Vec<bool>,
    mut report: impl FnMut(&[bool], Option<Refusal>),
) {
    let mut rest = hashes;
    while !rest.is_empty() {
        let length = if rest.len() == 1 { 1 } else { filter_of(entry).read(run_in) };
        let run = &rest[..length.min(rest.len())];
        let refusal = server.apply(entry, action.on(run), answers).err();
        // Those after one that is refused may still have a place.
        rest = &rest[answers.len() + usize::from(refusal.is_some())..];
        report(answers, refusal);
    }
}

/// Answers several calls that change one filter, and returns how many failed.
fn answer_changes(batch: &mut Batch<'_>, action: CuckooAction) -> u64 {
    let Batch { server, entry, scratch: Scratch { hashes, answers, .. }, reply } = batch;
    let mut failed = 0;
    change_each(server, entry, action, hashes, answers, |answers, refusal| {
        reply.truths(answers);
        if let Some(refusal) = refusal {
            let failure = refused(server, refusal);
            server.statistics.count_error(failure.text());
            reply.error(failure.text());
            failed += 1;
        }
    });
    failed
}

fn answer_additions(batch: &mut Batch<'_>, action: CuckooAction) -> u64 {
    let failed = answer_changes(batch, action);
    batch.server.statistics.count_added(batch.scratch.hashes.len() - failed as usize);
    failed
}

fn answer_removals(batch: &mut Batch<'_>) -> u64 {
    answer_changes(batch, CuckooAction::Remove)
}

/// Looks items up, while others may do so too. Calls `report` with the answers, in order.
fn ask_each<T>(
    entry: &Entry,
    hashes: &[Hash],
    answers: &mut Vec<T>,
    ask: fn(&CuckooChain, &[Hash], &mut Vec<T>),
    mut report: impl FnMut(&[T]),
) {
    let mut rest = hashes;
    while !rest.is_empty() {
        filter_of(entry).read(|cuckoo| {
            let (run, others) = rest.split_at(run_in(cuckoo).min(rest.len()));
            ask(cuckoo, run, answers);
            rest = others;
        });
        report(answers);
    }
}

fn answer_queries(batch: &mut Batch<'_>) -> u64 {
    let Batch { server, entry, scratch: Scratch { hashes, answers, .. }, reply } = batch;
    server.statistics.hits.fetch_add(hashes.len() as u64, Ordering::Relaxed);
    ask_each(entry, hashes, answers, CuckooChain::contains_hashes, |found| {
        server.count_asked(entry, found);
        reply.truths(found);
    });
    0
}

fn answer_counts(batch: &mut Batch<'_>) -> u64 {
    let Batch { server, entry, scratch: Scratch { hashes, counts, .. }, reply } = batch;
    server.statistics.hits.fetch_add(hashes.len() as u64, Ordering::Relaxed);
    ask_each(entry, hashes, counts, CuckooChain::count_hashes, |counts| {
        counts.iter().for_each(|count| reply.integer(*count as i64));
    });
    0
}

/// Items for which the lock is held at a time: about 50 microseconds, fewer where every item has
/// to be looked for in many sub-filters.
fn run_in(cuckoo: &CuckooChain) -> usize {
    (512 / effort(cuckoo)).clamp(1, 256)
}

fn insert_items(call: &mut Call<'_>, action: CuckooAction) -> Result<(), ReplyError> {
    let words = call.arguments;
    let mut wish = CuckooWish::default(call.server);
    let least = 2 * u64::from(wish.bucket_size);
    let mut only_existing = false;
    let mut at = 2;
    let items = loop {
        let Some(word) = words.get(at) else { return Err(ReplyError::arity(call.command.name)) };
        match parse::abbreviated(word, &["ITEMS", "CAPACITY", "NOCREATE"]) {
            Some("ITEMS") => break words.skip(at + 1),
            Some("NOCREATE") => only_existing = true,
            Some("CAPACITY") => {
                at += 1;
                let value = words.get(at).ok_or_else(|| ReplyError::arity(call.command.name))?;
                let capacity = parse::integer(value).ok_or(ReplyError::new("Bad capacity"))?;
                wish.capacity =
                    u64::try_from(capacity).ok().filter(|c| *c >= least).ok_or(ReplyError::new(
                        "Capacity must be in the range [cf-bucket-size * 2, 1073741824]",
                    ))?;
            }
            _ => return Err(ReplyError::new("Unknown argument received")),
        }
        at += 1;
    };
    if items.is_empty() {
        return Err(ReplyError::arity(call.command.name));
    }
    let entry = match find(call)? {
        Some(entry) => entry,
        None if only_existing => return Err(ReplyError::NOT_FOUND),
        None => create(call, &words[1], wish)?,
    };
    call.reply.array(items.len());
    let is_truth = action == CuckooAction::Add && call.reply.protocol() == Protocol::Resp3;
    let (server, reply) = (call.server, &mut call.reply);
    let Scratch { hashes, answers, .. } = &mut call.session.scratch;
    let mut added = 0;
    for run in Runs(items) {
        hashes.clear();
        hashes.extend(run.map(Hash::of));
        change_each(server, &entry, action, hashes, answers, |answers, refusal| {
            added += answers.len();
            match is_truth {
                true => reply.truths(answers),
                false => answers.iter().for_each(|added| reply.integer((*added).into())),
            }
            match refusal {
                None => {}
                Some(Refusal::Foreign(Refused::Full)) if is_truth => reply.truth(false),
                Some(Refusal::Foreign(Refused::Full)) => reply.integer(-1),
                Some(memory) => {
                    let failure = refused(server, memory);
                    server.statistics.count_error(failure.text());
                    reply.error(failure.text());
                }
            }
        });
    }
    server.statistics.count_added(added);
    Ok(())
}

fn exists(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let found = look(call).is_some_and(|entry| {
        let found = filter_of(&entry).read(|cuckoo| cuckoo.contains(&call.arguments[2]));
        call.server.count_asked(&entry, &[found]);
        found
    });
    call.reply.truth(found);
    Ok(())
}

fn mexists(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let items = call.arguments.skip(2);
    let entry = look(call);
    call.reply.array(items.len());
    let Some(entry) = entry else {
        items.iter().for_each(|_| call.reply.truth(false));
        return Ok(());
    };
    let (server, reply) = (call.server, &mut call.reply);
    let Scratch { hashes, answers, .. } = &mut call.session.scratch;
    for run in Runs(items) {
        hashes.clear();
        hashes.extend(run.map(Hash::of));
        ask_each(&entry, hashes, answers, CuckooChain::contains_hashes, |found| {
            reply.truths(found);
            server.count_asked(&entry, found);
        });
    }
    Ok(())
}

fn count(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let count = look(call)
        .map_or(0, |entry| filter_of(&entry).read(|cuckoo| cuckoo.count(&call.arguments[2])));
    call.reply.integer(count as i64);
    Ok(())
}

fn delete(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let found = find(call).ok().flatten();
    let entry = found.ok_or(ReplyError::new("Not found"))?;
    let hash = Hash::of(&call.arguments[2]);
    let was_there = change_one(call, &entry, CuckooAction::Remove, hash)?;
    call.reply.truth(was_there);
    Ok(())
}

fn info(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let entry = find(call)?.ok_or(ReplyError::NOT_FOUND)?;
    let fields = filter_of(&entry).read(|cuckoo| {
        let filters = cuckoo.filters();
        [
            // What RedisBloom takes for it: its record, one for each sub-filter, and the slots.
            ("Size", 40 + 16 * filters + cuckoo.bytes()),
            ("Number of buckets", cuckoo.buckets()),
            ("Number of filters", filters),
            ("Number of items inserted", cuckoo.items()),
            ("Number of items deleted", cuckoo.deletes()),
            ("Bucket size", cuckoo.bucket_size().into()),
            ("Expansion rate", cuckoo.expansion().into()),
            ("Max iterations", cuckoo.max_iterations().into()),
        ]
    });
    call.reply.map(fields.len());
    for (name, value) in fields {
        call.reply.simple(name);
        call.reply.integer(value as i64);
    }
    Ok(())
}

/// Slots and buckets that are looked at under the lock at a time: about 200 microseconds.
const STEP: u64 = 1 << 16;

fn compact_is_heavy(request: &Request<'_>, _: &SessionState) -> bool {
    request.entry.as_ref().is_some_and(|entry| entry.value.memory() > STEP)
}

fn compact(call: &mut Call<'_>) -> Result<(), ReplyError> {
    if call.arguments.len() != 2 {
        return Err(ReplyError::arity(call.command.name));
    }
    let found = find(call).ok().flatten();
    let entry = found.ok_or(ReplyError::new("Cuckoo filter was not found"))?;
    let mut is_last = Vec::new();
    loop {
        let result = call.server.apply(&entry, Items::Compact(STEP), &mut is_last);
        result.map_err(|refusal| refused(call.server, refusal))?;
        // Nobody has an interest in a filter that was deleted meanwhile.
        if is_last[0] || !entry.is_live(call.now) {
            break;
        }
        // A thread that waits for the lock gets it.
        std::thread::yield_now();
    }
    call.reply.ok();
    Ok(())
}

fn debug(call: &mut Call<'_>) -> Result<(), ReplyError> {
    if call.arguments.len() != 2 {
        return Err(ReplyError::arity(call.command.name));
    }
    let entry = find(call)?.ok_or(ReplyError::NOT_FOUND)?;
    let line = filter_of(&entry).read(|cuckoo| {
        format!(
            "bktsize:{} buckets:{} items:{} deletes:{} filters:{} max_iterations:{} expansion:{}",
            cuckoo.bucket_size(),
            cuckoo.buckets(),
            cuckoo.items(),
            cuckoo.deletes(),
            cuckoo.filters(),
            cuckoo.max_iterations(),
            cuckoo.expansion(),
        )
    });
    call.reply.text(&line);
    Ok(())
}
