//! MULTI and EXEC: commands that are collected, and then carried out one after another.
//!
//! What EXEC does is not isolated from what other clients do at the same time: their commands may
//! come between those of a transaction, as this server has no one thread that everything waits
//! for. Each command is whole in itself, the order within the transaction holds, and WATCH sees
//! changes up to the moment at which EXEC begins. For filters that is rarely a loss: to add is to
//! add, in whichever order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::table;
use crate::command::{Call, Command, Cost, Flag, Flags, Keys, OnStore, Request};
use crate::keyspace::Key;
use crate::reply_error::ReplyError;
use crate::resp::{Arguments, Limits, Parser};
use crate::server::Server;
use crate::session_state::{ARGUMENT, Seen, Transaction, Watched};
use crate::statistics::Calls;

/// The rows of transactions.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "multi",
        flags: Flags::of(&[
            Flag::NoScript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::AllowBusy,
        ]),
        is_immediate: true,
        summary: "Starts a transaction: the following commands wait for EXEC",
        handler: multi,
        ..TRANSACTION
    },
    Command {
        name: "exec",
        flags: Flags::of(&[Flag::NoScript, Flag::Loading, Flag::Stale, Flag::SkipSlowLog]),
        is_immediate: true,
        summary: "Runs the commands since MULTI, unless a watched key has changed",
        complexity: "That of the commands",
        handler: exec,
        cost: Cost::By(|_, session| {
            let waiting = session.transaction.as_ref();
            waiting.is_some_and(|waiting| waiting.is_heavy || waiting.requests.len() > LONG)
        }),
        ..TRANSACTION
    },
    Command {
        name: "discard",
        flags: Flags::of(&[
            Flag::NoScript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::AllowBusy,
        ]),
        is_immediate: true,
        summary: "Discards the commands since MULTI",
        handler: discard,
        ..TRANSACTION
    },
    Command {
        name: "watch",
        arity: -2,
        flags: Flags::of(&[
            Flag::NoScript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::AllowBusy,
        ]),
        is_immediate: true,
        keys: Keys::ALL,
        summary: "Watches keys: the next EXEC does nothing if one of them changes",
        syntax: "key [key ...]",
        complexity: "O(N log M) for N keys, M watched keys",
        handler: watch,
        cost: Cost::By(|request, _| request.arguments.len() > 512),
        ..TRANSACTION
    },
    Command {
        name: "unwatch",
        flags: Flags::of(&[
            Flag::NoScript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::AllowBusy,
        ]),
        summary: "Ends the watch of all keys",
        handler: unwatch,
        ..TRANSACTION
    },
];

const TRANSACTION: Command = Command {
    arity: 1,
    categories: &["transaction"],
    group: "transactions",
    on_store: OnStore::Refused("a store has no transactions; send a pipeline without MULTI"),
    ..Command::NONE
};

/// Bytes of commands that may take more than a millisecond together.
const LONG: usize = 64 << 10;
/// Bytes of all names that a client may watch at once.
const MOST_WATCHED_BYTES: usize = 1 << 20;
/// Keys that a client may watch at once.
const MOST_WATCHED: usize = 10_000;

fn multi(call: &mut Call<'_>) -> Result<(), ReplyError> {
    if call.session.transaction.is_some() {
        return Err(ReplyError::new("ERR MULTI calls can not be nested"));
    }
    call.session.transaction = Some(Transaction::default());
    call.reply.ok();
    Ok(())
}

fn discard(call: &mut Call<'_>) -> Result<(), ReplyError> {
    if call.session.transaction.take().is_none() {
        return Err(ReplyError::new("ERR DISCARD without MULTI"));
    }
    call.session.watched = Watched::default();
    call.reply.ok();
    Ok(())
}

fn exec(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let transaction = call.session.transaction.take();
    let transaction = transaction.ok_or(ReplyError::new("ERR EXEC without MULTI"))?;
    let watched = std::mem::take(&mut call.session.watched);
    if transaction.is_broken {
        let text = "EXECABORT Transaction discarded because of previous errors.";
        return Err(ReplyError::new(text));
    }
    let has_changed = |(key, before)| has_changed(call.server, key, before, call.now);
    if watched.keys.iter().any(has_changed) {
        call.reply.null_array();
        return Ok(());
    }
    call.reply.array(transaction.count);
    // Whatever the limits are now: the requests were within them when they came.
    let limits =
        Limits { argument_bytes: usize::MAX, request_bytes: usize::MAX, ..Limits::default() };
    let mut parser = Parser::new(limits);
    let mut rest = &transaction.requests[..];
    for _ in 0..transaction.count {
        let length = parser.next(rest).expect("it was read once before").expect("it is whole");
        let arguments = parser.arguments(rest);
        // The queue is the session's no more, and the command's own memory is beside it.
        let working = transaction.requests.capacity() + parser.memory();
        call.session.work_with(call.server, working + arguments.len() * ARGUMENT)?;
        carry_out(call, arguments);
        if let Some(excess) = call.session.excess {
            return Err(ReplyError::because(excess));
        }
        rest = &rest[length..];
    }
    Ok(())
}

/// Carries out a request that was found to be right when it was queued.
fn carry_out(call: &mut Call<'_>, arguments: Arguments<'_>) {
    let command = table::resolve(arguments).expect("it was resolved once before");
    let begin = Instant::now();
    let request = Request::new(call.server, command, arguments, call.session.database, call.now);
    let is_done = request.carry_out(call.session, call.client, call.reply.buffer());
    let (nanos, failed) = (begin.elapsed().as_nanos() as u64, u64::from(!is_done));
    let calls = Calls { calls: 1, nanos, failed, rejected: 0 };
    call.server.statistics.commands.fetch_add(1, Ordering::Relaxed);
    call.server.statistics.by_command.lock().entry(command.name).or_default().add(calls);
}

fn watch(call: &mut Call<'_>) -> Result<(), ReplyError> {
    if call.session.transaction.is_some() {
        return Err(ReplyError::new("ERR WATCH inside MULTI is not allowed"));
    }
    let database = call.session.database;
    for name in call.arguments.skip(1) {
        let watched = &mut call.session.watched;
        let key = (database, name.to_vec());
        if watched.keys.contains_key(&key) {
            continue; // What it was at first is what counts.
        }
        if watched.name_bytes + name.len() > MOST_WATCHED_BYTES {
            let text = format!(
                "ERR the names of watched keys are limited to {MOST_WATCHED_BYTES} bytes together"
            );
            return Err(ReplyError::with(text));
        }
        if watched.keys.len() >= MOST_WATCHED {
            let text = format!("ERR at most {MOST_WATCHED} keys can be watched at once");
            return Err(ReplyError::with(text));
        }
        let entry = state(call.server, Key { database, name }, call.now);
        watched.name_bytes += name.len();
        watched.keys.insert(key, entry);
    }
    call.reply.ok();
    Ok(())
}

fn unwatch(call: &mut Call<'_>) -> Result<(), ReplyError> {
    call.session.watched = Watched::default();
    call.reply.ok();
    Ok(())
}

/// What a key holds and in which state, if there is one.
fn state(server: &Server, key: Key<'_>, now: u64) -> Seen {
    let entry = server.keyspace.get(key, now)?;
    Some((Arc::downgrade(&entry), entry.stamp()))
}

/// Whether a key was created, changed, given another time, renamed, deleted or has expired since it
/// was watched. A key that came and went again in between has not changed.
fn has_changed(
    server: &Server,
    (database, name): &(usize, Vec<u8>),
    before: &Seen,
    now: u64,
) -> bool {
    let key = Key { database: *database, name };
    match (before, state(server, key, now)) {
        (None, None) => false,
        // The place of an entry is not used again as long as somebody has a weak reference to it.
        (Some((before, then)), Some((after, now))) => !before.ptr_eq(&after) || *then != now,
        _ => true,
    }
}
