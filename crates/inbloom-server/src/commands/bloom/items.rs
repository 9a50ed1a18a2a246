//! Items: BF.ADD, BF.MADD, BF.INSERT, BF.EXISTS and BF.MEXISTS.

use std::num::NonZeroU32;

use inbloom::interop::redisbloom;
use inbloom::{Digest, Filter, Kind};

use super::options::{Insert, MOST_RATE, option};
use super::reserve::{create, find_or_create};
use super::{find, forgets, grows};
use crate::command::Call;
use crate::keyspace::Entry;
use crate::parse;
use crate::persist::record::{Change, Logged, Verb};
use crate::reply_error::ReplyError;
use crate::resp::{Arguments, Iter};
use crate::server::Server;
use crate::session_state::Scratch;
use crate::value::bloom::{Bloom, Refusal, Wish};
use crate::value::{Guarded, Value};

pub(super) fn add(call: &mut Call<'_>) -> Result<(), ReplyError> {
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

pub(super) fn madd(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let entry = find_or_create(call)?;
    add_all(call, &entry, call.arguments.skip(2));
    Ok(())
}

pub(super) fn insert_items(call: &mut Call<'_>) -> Result<(), ReplyError> {
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
    let entry = match find(call)? {
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

pub(super) fn exists(call: &mut Call<'_>) -> Result<(), ReplyError> {
    contains_each(call, call.arguments.skip(2));
    let found = call.session.scratch.answers[0];
    call.reply.truth(found);
    Ok(())
}

pub(super) fn mexists(call: &mut Call<'_>) -> Result<(), ReplyError> {
    contains_each(call, call.arguments.skip(2));
    call.reply.array(call.session.scratch.answers.len());
    call.reply.truths(&call.session.scratch.answers);
    Ok(())
}

/// Asks for items. A key that is missing, or of another type, has none of them.
fn contains_each(call: &mut Call<'_>, items: Arguments<'_>) {
    call.server.statistics.count_lookup(call.entry.is_some());
    let scratch = &mut call.session.scratch;
    match &call.entry {
        Some(entry) => contains_in(call.server, &entry.value, items, scratch, call.now),
        None => {
            scratch.answers.clear();
            scratch.answers.resize(items.len(), false);
        }
    }
}

/// Asks a filter for items.
fn contains_in(
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
