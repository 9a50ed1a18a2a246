//! What commands do where filters are on a store: see [`filter_store`](crate::filter_store).
//!
//! The rows are with the commands; this is their other half. Replies are those of a filter in memory where
//! the store can tell as much, and an error where it cannot:
//!
//! * `UNKNOWN`: the item is in the filter, but whether it was new is not known. Sending the add
//!   again answers 0, because the item is in the filter by now.
//! * `LOST`: the store has lost the part of the filter that would answer. Never 0, which would mean
//!   that the item is absent.
//! * `STOREDOWN`: the store did not answer in time. The item of an add may be in the filter.
//!
//! In the array of BF.MADD, BF.INSERT and BF.MEXISTS, each item has its answer or its error.

use std::hash::{BuildHasher, RandomState};

use super::bloom::{FULL, Facts, InsertOptions, NO_GROWTH_ON_STORE, wish};
use super::extensions::Estimated;
use super::glob;
use super::keys::{NO_KEY, ScanRequest, Since, Unit, database, expiry_asked, shown_expiry};
use super::server::observation::check_samples;
use crate::command::{Call, StoredBatch};
use crate::filter_store::{Added, Lookup, StoreError, StoredFilters};
use crate::parse;
use crate::reply_error::ReplyError;
use crate::resp::{Arguments, Reply};
use crate::server::Server;
use crate::value::bloom::Wish;

/// Why filters are not copied out of a store by this server.
pub const PULL: &str = "use 'inbloom pull'";
/// Why filters are not copied into a store by this server.
pub const PUSH: &str = "use 'inbloom push'";

const UNKNOWN: ReplyError = ReplyError::new(
    "UNKNOWN the item is in the filter, but the first reply of the store was lost, which reported \
     whether the item was new",
);
const DELETED: ReplyError =
    ReplyError::new("ERR other clients keep deleting this filter: add again");

/// What is said where a store has broken its word: an item that failed and no reason.
const NO_ANSWER: ReplyError = ReplyError::new("ERR the store sent no reply for this item");

/// What TYPE says of filters on a store.
const TYPE: &str = "MBbloom--";
/// How often a filter is created that others delete in the same instant.
const CREATIONS: usize = 3;

/// What a client reads of an error of the store.
fn failed(error: StoreError) -> ReplyError {
    match error {
        StoreError::Missing => ReplyError::NOT_FOUND,
        StoreError::Unavailable(why) => ReplyError::with(format!("STOREDOWN {why}")),
        StoreError::Lost(why) => ReplyError::with(format!("LOST {why}")),
        StoreError::Refused(why) => ReplyError::with(format!("ERR {why}")),
    }
}

/// An answer of the store, or None if there is no filter of this name.
fn existing<T>(answer: Result<T, StoreError>) -> Result<Option<T>, ReplyError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(StoreError::Missing) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn filters(server: &Server) -> &StoredFilters {
    server.stored().expect("the row of a command that works on a store is used only where one is")
}

pub fn reserve(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let (wish, options) = wish(call.server, call.arguments)?;
    if let Some(refusal) = options.refusal_on_store() {
        return Err(ReplyError::new(refusal));
    }
    match create(call.server, &call.arguments[1], wish)? {
        true => call.reply.ok(),
        false => return Err(ReplyError::EXISTS),
    }
    Ok(())
}

/// Creates a filter of a fixed size. False if the name is taken.
fn create(server: &Server, name: &[u8], wish: Wish) -> Result<bool, ReplyError> {
    wish.check().map_err(ReplyError::because)?;
    let plan = filters(server).plan_for(wish.capacity, wish.rate());
    let plan = plan.map_err(ReplyError::because)?;
    server.limits.check_filter(plan.bytes())?;
    filters(server).create(name, &plan).map_err(failed)
}

pub fn add(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let item = [&call.arguments[2]];
    let mut answers = add_each(call.server, &call.arguments[1], &item)?;
    let is_new = answers.pop().expect("an answer for each item")?;
    call.reply.truth(is_new);
    Ok(())
}

pub fn madd(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let items: Vec<&[u8]> = call.arguments.skip(2).iter().collect();
    let answers = add_each(call.server, &call.arguments[1], &items)?;
    reply_each(call, &answers);
    Ok(())
}

pub fn insert(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let asked = InsertOptions::parse(call.arguments, &call.server.settings())?;
    if asked.asks_for_growth {
        return Err(ReplyError::new(NO_GROWTH_ON_STORE));
    }
    let wish = asked.wish(filters(call.server).default_items());
    let items: Vec<&[u8]> = asked.items.iter().collect();
    let wish = (!asked.only_existing).then_some(wish);
    let answers = add_to(call.server, &call.arguments[1], &items, wish)?;
    reply_each(call, &answers);
    Ok(())
}

fn reply_each(call: &mut Call<'_>, answers: &[Result<bool, ReplyError>]) {
    call.reply.array(answers.len());
    write_each(call.server, &mut call.reply, answers);
}

/// Writes an answer or an error for each item, and returns how many errors there were.
fn write_each(server: &Server, reply: &mut Reply<'_>, answers: &[Result<bool, ReplyError>]) -> u64 {
    let mut errors = 0;
    for answer in answers {
        match answer {
            Ok(answer) => reply.truth(*answer),
            Err(failure) => {
                server.statistics.count_error(failure.text());
                reply.error(failure.text());
                errors += 1;
            }
        }
    }
    errors
}

/// Adds items to a filter, which is created with the defaults if there is none.
fn add_each(
    server: &Server,
    name: &[u8],
    items: &[&[u8]],
) -> Result<Vec<Result<bool, ReplyError>>, ReplyError> {
    let rate = server.settings().bf_error_rate;
    let wish = Wish::new(rate, filters(server).default_items(), None);
    add_to(server, name, items, Some(wish))
}

/// Adds items to a filter, which is created as wished if there is none: of each, whether it was new.
fn add_to(
    server: &Server,
    name: &[u8],
    items: &[&[u8]],
    wish: Option<Wish>,
) -> Result<Vec<Result<bool, ReplyError>>, ReplyError> {
    let mut answers = Vec::new();
    for _ in 0..=CREATIONS {
        let result = filters(server).add(name, items, &mut answers);
        let failure = match (result, wish) {
            (Err(StoreError::Missing), Some(wish)) => {
                // If somebody else has just created it, that one will do.
                create(server, name, wish)?;
                continue;
            }
            (Err(StoreError::Missing), None) => return Err(ReplyError::NOT_FOUND),
            (Err(StoreError::Unavailable(why)), _) => {
                ReplyError::with(format!("STOREDOWN {why}; the item may be in the filter"))
            }
            (Err(error), _) => failed(error),
            (Ok(()), _) => NO_ANSWER,
        };
        let answer = |added| match added {
            Added::New => Ok(true),
            Added::Present => Ok(false),
            Added::Unknown => Err(UNKNOWN),
            Added::Failed => Err(failure.clone()),
            Added::Full => Err(FULL),
        };
        let answers: Vec<Result<bool, ReplyError>> = answers.into_iter().map(answer).collect();
        let added = answers.iter().filter(|answer| answer.is_ok()).count();
        server.statistics.count_added(added);
        return Ok(answers);
    }
    Err(DELETED)
}

pub fn exists(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let item = [&call.arguments[2]];
    let mut answers = contains_each(call.server, &call.arguments[1], &item);
    let found = answers.pop().expect("an answer for each item")?;
    call.reply.truth(found);
    Ok(())
}

pub fn mexists(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let items: Vec<&[u8]> = call.arguments.skip(2).iter().collect();
    let answers = contains_each(call.server, &call.arguments[1], &items);
    reply_each(call, &answers);
    Ok(())
}

/// Looks items up. A key that is missing has none of them.
fn contains_each(server: &Server, name: &[u8], items: &[&[u8]]) -> Vec<Result<bool, ReplyError>> {
    let mut answers = Vec::new();
    let result = filters(server).contains(name, items, &mut answers);
    let is_there = !matches!(result, Err(StoreError::Missing));
    server.statistics.count_lookup(is_there);
    server.statistics.count_asked(items.len());
    let of_failed = match result {
        Err(StoreError::Missing) => Ok(false),
        Err(error) => Err(failed(error)),
        Ok(()) => Err(NO_ANSWER),
    };
    let answer = |found| match found {
        Lookup::Absent => Ok(false),
        Lookup::Present => Ok(true),
        Lookup::Failed => of_failed.clone(),
    };
    answers.into_iter().map(answer).collect()
}

/// Answers several calls of BF.EXISTS for one filter.
pub fn answer_queries(batch: &mut StoredBatch<'_>) -> u64 {
    let StoredBatch { server, name, items, reply } = batch;
    write_each(server, reply, &contains_each(server, name, items))
}

/// Answers several calls of BF.ADD for one filter.
pub fn answer_additions(batch: &mut StoredBatch<'_>) -> u64 {
    let StoredBatch { server, name, items, reply } = batch;
    let answers =
        add_each(server, name, items).unwrap_or_else(|failure| vec![Err(failure); items.len()]);
    write_each(server, reply, &answers)
}

pub fn card(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let items = existing(filters(call.server).estimate(&call.arguments[1]))?;
    call.reply.integer(items.unwrap_or(0.0).round() as i64);
    Ok(())
}

pub fn info(call: &mut Call<'_>) -> Result<(), ReplyError> {
    if call.arguments.len() > 3 {
        return Err(ReplyError::arity(call.command.name));
    }
    let (filters, name) = (filters(call.server), &call.arguments[1]);
    let plan = filters.plan(name).map_err(failed)?;
    // An estimate reads the whole filter: only for those who ask for it.
    let items = match call.arguments.get(2) {
        Some(word) if !parse::is(word, "ITEMS") => 0.0,
        _ => filters.estimate(name).map_err(failed)?,
    };
    let facts = Facts {
        capacity: plan.items(),
        size: plan.bytes(),
        filters: 1,
        items: items.round() as u64,
        expansion: None,
    };
    facts.reply(call)
}

pub fn estimate(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let (filters, name) = (filters(call.server), &call.arguments[1]);
    let plan = filters.plan(name).map_err(failed)?;
    let estimate = filters.estimate(name).map_err(failed)?;
    let estimated = Estimated {
        kind: plan.kind().name(),
        items: estimate.round() as u64,
        estimate,
        fill: plan.fill_at(estimate),
        rate: plan.rate_at(estimate),
        promised: plan.rate(),
    };
    estimated.reply(call);
    Ok(())
}

pub fn check_any(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let item = [&call.arguments[1]];
    let mut found = Vec::new();
    for name in call.arguments.skip(2) {
        let mut answers = contains_each(call.server, name, &item);
        if answers.pop().expect("an answer for each item")? {
            found.push(name);
        }
    }
    call.reply.array(found.len());
    found.iter().for_each(|name| call.reply.bulk(name));
    Ok(())
}

pub fn delete(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let deleted = count(call.arguments, |name| filters(call.server).delete(name))?;
    call.reply.integer(deleted);
    Ok(())
}

pub fn count_keys(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let found = count(call.arguments, |name| {
        filters(call.server).plan(name).map(|_| {
            call.server.statistics.count_lookup(true);
            true
        })
    })?;
    call.reply.integer(found);
    Ok(())
}

/// For how many of the names behind the command this is so. A name without a filter counts as one for
/// which it is not.
fn count(
    words: Arguments<'_>,
    is_so: impl Fn(&[u8]) -> Result<bool, StoreError>,
) -> Result<i64, ReplyError> {
    let mut count = 0;
    for name in words.skip(1) {
        count += i64::from(existing(is_so(name))?.unwrap_or(false));
    }
    Ok(count)
}

pub fn type_of(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let plan = existing(filters(call.server).plan(&call.arguments[1]))?;
    call.reply.simple(if plan.is_some() { TYPE } else { "none" });
    Ok(())
}

pub fn memory_usage(call: &mut Call<'_>) -> Result<(), ReplyError> {
    check_samples(call.arguments)?;
    match existing(filters(call.server).plan(&call.arguments[2]))? {
        Some(plan) => call.reply.integer(plan.bytes() as i64),
        None => call.reply.null(),
    }
    Ok(())
}

pub fn keys(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let (pattern, names) = (&call.arguments[1], filters(call.server).names().map_err(failed)?);
    let found: Vec<_> = names.iter().filter(|name| glob::matches(pattern, name)).collect();
    call.reply.array(found.len());
    found.iter().for_each(|name| call.reply.bulk(name));
    Ok(())
}

/// SCAN lists everything in one call: a store is listed as a whole.
pub fn scan(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let scan = ScanRequest::parse(call.arguments)?;
    let names = match scan.cursor {
        0 => filters(call.server).names().map_err(failed)?,
        _ => Vec::new(),
    };
    let found: Vec<_> = names.iter().filter(|name| scan.takes(name, TYPE)).collect();
    call.reply.array(2);
    call.reply.text("0");
    call.reply.array(found.len());
    found.iter().for_each(|name| call.reply.bulk(name));
    Ok(())
}

pub fn database_size(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let names = filters(call.server).names().map_err(failed)?;
    call.reply.integer(names.len() as i64);
    Ok(())
}

pub fn random_key(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let names = filters(call.server).names().map_err(failed)?;
    // Its keys differ with each one that is made: randomness enough to choose a key.
    let random = RandomState::new().hash_one(call.now);
    match names.get((random % names.len().max(1) as u64) as usize) {
        Some(name) => call.reply.bulk(name),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn expire(call: &mut Call<'_>, since: Since, unit: Unit) -> Result<(), ReplyError> {
    let (at, conditions) = expiry_asked(call, since, unit)?;
    let (filters, name) = (filters(call.server), &call.arguments[1]);
    let is_set = match existing(filters.expiry(name))? {
        Some(current) if conditions.allow(at, current) => match u64::try_from(at) {
            Ok(at) if at > call.now => existing(filters.set_expiry(name, Some(at)))?.is_some(),
            // A time that has passed deletes the key, and that is a success.
            _ => filters.delete(name).map_err(failed)?,
        },
        _ => false,
    };
    call.reply.integer(i64::from(is_set));
    Ok(())
}

pub fn persist(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let (filters, name) = (filters(call.server), &call.arguments[1]);
    let is_set = match existing(filters.expiry(name))?.flatten() {
        Some(_) => existing(filters.set_expiry(name, None))?.is_some(),
        None => false,
    };
    call.reply.integer(i64::from(is_set));
    Ok(())
}

pub(super) fn time_of_expiry(
    call: &mut Call<'_>,
    since: Since,
    unit: Unit,
) -> Result<(), ReplyError> {
    let answer = match existing(filters(call.server).expiry(&call.arguments[1]))? {
        Some(at) => shown_expiry(at, call.now, since, unit),
        None => NO_KEY,
    };
    call.reply.integer(answer);
    Ok(())
}

pub fn select(call: &mut Call<'_>) -> Result<(), ReplyError> {
    if database(&call.arguments[1])? != 0 {
        return Err(ReplyError::new(
            "ERR SELECT does not work with --store: the store's address chooses the database",
        ));
    }
    call.reply.ok();
    Ok(())
}
