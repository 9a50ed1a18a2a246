//! Items: BF.ADD, BF.MADD, BF.INSERT, BF.EXISTS and BF.MEXISTS.

use std::sync::atomic::Ordering;

use inbloom::Digest;
use inbloom::interop::redisbloom::{Pair, Refused};

use super::find;
use super::options::InsertOptions;
use super::reserve::{create, find_or_create};
use crate::command::{Batch, Call};
use crate::keyspace::Entry;
use crate::reply_error::ReplyError;
use crate::resp::{Arguments, Iter};
use crate::server::Server;
use crate::session_state::Scratch;
use crate::value::Value;
use crate::value::change::{Items, Refusal};

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
    let asked = InsertOptions::parse(words, &settings)?;
    let entry = match find(call)? {
        Some(entry) => entry,
        None if asked.only_existing => return Err(ReplyError::NOT_FOUND),
        None => create(call, &words[1], asked.wish(settings.bf_initial_size))?,
    };
    add_all(call, &entry, asked.items);
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
    let Scratch { digests, answers, .. } = scratch;
    answers.clear();
    match &entry.value {
        Value::Bloom(_) => {
            digests.clear();
            digests.extend(items.iter().map(|item| server.hasher.digest(item)));
            insert(server, entry, digests, answers)
        }
        Value::Filter(guarded) => {
            let (hasher, mut done) = (guarded.hasher(), Vec::new());
            for run in Runs(items) {
                digests.clear();
                digests.extend(run.map(|item| hasher.digest(item)));
                let result = server.apply(entry, Items::Insert { digests, time: now }, &mut done);
                answers.extend_from_slice(&done);
                result.map_err(|refusal| refused(server, refusal))?;
            }
            Ok(())
        }
        Value::RedisBloom(guarded) => {
            let mut done = Vec::new();
            for run in Runs(items) {
                let pairs: Vec<Pair> =
                    guarded.read(|bloom| run.map(|item| bloom.pair(item)).collect());
                let result = server.apply(entry, Items::AddPairs(&pairs), &mut done);
                answers.extend_from_slice(&done);
                result.map_err(|refusal| refused(server, refusal))?;
            }
            Ok(())
        }
        Value::Cuckoo(_) => Err(ReplyError::WRONG_TYPE),
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
    "ERR the filter is a file opened read-only by IB.OPEN: copy it with IB.MERGE, and change the \
     copy",
);

const STATIC: ReplyError = ReplyError::new(
    "ERR the filter is static and read-only here: change its file with 'inbloom build --base', \
     delete the key, and open the file again",
);

/// A filter of a fixed size has as many items as it is for.
pub const FULL: ReplyError = ReplyError::new("ERR non scaling filter is full");

const UNMERGEABLE: ReplyError = ReplyError::new(
    "ERR filters in RedisBloom's format (CF.*, KIND redisbloom, or loaded from RedisBloom) cannot \
     be merged: add the items of both to one filter",
);

const OTHER_KIND: ReplyError =
    ReplyError::new("ERR the filters differ in kind: reserve both with the same options");

/// What a client reads of a change that was refused.
pub fn refused(server: &Server, refusal: Refusal) -> ReplyError {
    match refusal {
        Refusal::Full | Refusal::Foreign(Refused::Full) => FULL,
        Refusal::Limit { has } => server.limits.cannot_grow(has),
        Refusal::Foreign(Refused::Exhausted) => {
            ReplyError::new("ERR problem inserting into filter")
        }
        Refusal::Foreign(memory) => ReplyError::because(memory),
        Refusal::Static => STATIC,
        Refusal::ReadOnly => READ_ONLY,
        Refusal::Failed(error) => ReplyError::because(error),
        Refusal::Unmergeable => UNMERGEABLE,
        Refusal::OtherKind => OTHER_KIND,
        Refusal::OtherType => ReplyError::WRONG_TYPE,
    }
}

/// Answers several calls of BF.ADD for one filter of the kind that BF.RESERVE makes by default.
pub(super) fn answer_additions(batch: &mut Batch<'_>) -> u64 {
    let Batch { server, entry, scratch: Scratch { digests, answers, .. }, reply } = batch;
    let (mut rest, mut failed) = (&digests[..], 0);
    while !rest.is_empty() {
        let result = insert(server, entry, rest, answers);
        reply.truths(answers);
        rest = &rest[answers.len()..];
        server.statistics.count_added(answers.len());
        if let Err(failure) = result {
            // Only the item that was refused: those after it may be known.
            reply.error(failure.text());
            server.statistics.count_error(failure.text());
            failed += 1;
            rest = &rest[1..];
        }
    }
    failed
}

/// Answers several calls of BF.EXISTS for one filter, as above.
pub(super) fn answer_queries(batch: &mut Batch<'_>) -> u64 {
    let Batch { server, entry, scratch: Scratch { digests, answers, .. }, reply } = batch;
    let Value::Bloom(bloom) = &entry.value else { unreachable!("see `most` of the row") };
    bloom.contains(digests, answers);
    server.statistics.hits.fetch_add(digests.len() as u64, Ordering::Relaxed);
    server.count_asked(entry, answers);
    reply.truths(answers);
    0
}

/// Adds digests to a filter that BF.RESERVE makes by default.
fn insert(
    server: &Server,
    entry: &Entry,
    digests: &[Digest],
    new: &mut Vec<bool>,
) -> Result<(), ReplyError> {
    let result = server.apply(entry, Items::Add(digests), new);
    result.map_err(|refusal| refused(server, refusal))
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
        Some(entry) => {
            contains_in(call.server, &entry.value, items, scratch, call.now);
            call.server.count_asked(entry, &scratch.answers);
        }
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
    let Scratch { digests, answers, .. } = scratch;
    answers.clear();
    match value {
        Value::Bloom(bloom) => {
            digests.clear();
            digests.extend(items.iter().map(|item| server.hasher.digest(item)));
            bloom.contains(digests, answers);
        }
        Value::Filter(guarded) => {
            guarded.follow_clock(now);
            let mut found = Vec::new();
            for run in Runs(items) {
                guarded.read(|filter| {
                    digests.clear();
                    run.for_each(|item| filter.hasher().append_digests(item, digests));
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
