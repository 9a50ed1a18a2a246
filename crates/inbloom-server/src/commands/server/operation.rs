//! Running the server: its clock, its end, and what of Redis's persistence and replication there
//! is.
//!
//! A server without `--dir` keeps filters in memory only. There a command that guarantees more is
//! refused, and the error says what there is instead: an OK from SAVE would be wrong.

use std::time::{Duration, Instant};

use super::introspection::HELP;
use super::{SERVER, info};
use crate::clock::since_1970;
use crate::command::{Call, Command, Cost, Flag, Flags, OnStore};
use crate::parse;
use crate::reply_error::ReplyError;

pub const BGREWRITEAOF: Command = Command {
    name: "bgrewriteaof",
    arity: 1,
    summary: "Starts a snapshot, which shortens the log: the same as BGSAVE",
    handler: |call| {
        begin_snapshot(call)?;
        call.reply.simple("Background append only file rewriting started");
        Ok(())
    },
    on_store: OnStore::Refused(NOT_KEPT_HERE),
    ..ADMIN
};

pub const BGSAVE: Command = Command {
    name: "bgsave",
    arity: -1,
    summary: "Starts a snapshot of what has changed, in the background",
    syntax: "[SCHEDULE]",
    handler: background_save,
    on_store: OnStore::Refused(NOT_KEPT_HERE),
    ..ADMIN
};

pub const SAVE: Command = Command {
    name: "save",
    arity: 1,
    summary: "Takes a snapshot of what has changed, and replies when it is on disk",
    complexity: "O(N) for the N bytes of filters that have changed",
    handler: save,
    cost: Cost::Heavy,
    on_store: OnStore::Refused(NOT_KEPT_HERE),
    ..ADMIN
};

pub const LASTSAVE: Command = Command {
    name: "lastsave",
    arity: 1,
    flags: Flags::of(&[Flag::Loading, Flag::Stale, Flag::Fast]),
    categories: &["admin", "dangerous"],
    summary: "Returns when the last snapshot was complete, or when the server started",
    handler: |call| {
        call.reply.integer(info::saved_at(call.server) as i64);
        Ok(())
    },
    on_store: OnStore::Refused(NOT_KEPT_HERE),
    ..SERVER
};

pub const TIME: Command = Command {
    name: "time",
    arity: 1,
    flags: Flags::of(&[Flag::Loading, Flag::Stale, Flag::Fast]),
    summary: "Returns the time, in seconds since 1970 and microseconds",
    handler: time,
    ..SERVER
};

pub const SHUTDOWN: Command = Command {
    name: "shutdown",
    arity: -1,
    flags: Flags::of(&[
        Flag::Admin,
        Flag::NoScript,
        Flag::Loading,
        Flag::Stale,
        Flag::NoMulti,
        Flag::AllowBusy,
    ]),
    summary: "Stops the server, after a snapshot if it has --dir; without --dir, filters are lost",
    syntax: "[NOSAVE|SAVE] [NOW] [FORCE] [ABORT]",
    handler: shutdown,
    ..SERVER
};

pub const WAIT: Command = Command {
    name: "wait",
    arity: 3,
    categories: &["connection"],
    summary: "Returns how many replicas have the writes: 0, there are no replicas",
    syntax: "numreplicas timeout",
    handler: wait,
    on_store: OnStore::Refused("a server with --store has no replicas of its own"),
    ..SERVER
};

pub const WAITAOF: Command = Command {
    name: "waitaof",
    arity: 4,
    categories: &["connection"],
    summary: "Waits until this client's writes are on disk",
    syntax: "numlocal numreplicas timeout",
    handler: wait_log,
    cost: Cost::Heavy,
    on_store: OnStore::Refused(NOT_KEPT_HERE),
    ..SERVER
};

pub const ROLE: Command = Command {
    name: "role",
    arity: 1,
    flags: Flags::of(&[Flag::NoScript, Flag::Loading, Flag::Stale, Flag::Fast]),
    categories: &["admin", "dangerous"],
    summary: "Reports that this server is a master without replicas",
    handler: role,
    ..SERVER
};

pub const REPLICAOF: Command = Command {
    name: "replicaof",
    arity: 3,
    summary: "Always fails, except for NO ONE: there is no replication",
    syntax: "<host port | NO ONE>",
    handler: replica_of,
    ..ADMIN
};

pub const SLAVEOF: Command =
    Command { name: "slaveof", summary: "Another name of REPLICAOF", ..REPLICAOF };

pub const DEBUG: Command = Command {
    name: "debug",
    arity: -2,
    flags: ADMIN.flags,
    summary: "Helps to test clients",
    subcommands: &[
        Command { name: "debug|help", ..HELP },
        #[cfg(test)]
        Command {
            name: "debug|panic",
            arity: -2,
            summary: "Fails with a panic, for tests",
            handler: |_| panic!("as asked for"),
            cost: Cost::By(|request, _| request.arguments.len() > 2),
            ..ADMIN
        },
        Command {
            name: "debug|sleep",
            arity: 3,
            summary: "Replies after a number of seconds, at most 60; other clients do not wait",
            syntax: "seconds",
            complexity: "O(N) for N seconds",
            handler: sleep,
            cost: Cost::Heavy,
            ..ADMIN
        },
    ],
    ..SERVER
};

const ADMIN: Command = Command {
    flags: Flags::of(&[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale]),
    ..SERVER
};

/// Why nothing is saved where filters are on a store.
const NOT_KEPT_HERE: &str = "the store keeps the filters, so the server saves nothing";

const NOT_DURABLE: ReplyError = ReplyError::new(
    "ERR the server keeps filters in memory only: start it with --dir, or write a filter to a file \
     with IB.SAVE",
);

fn begin_snapshot(call: &Call<'_>) -> Result<(), ReplyError> {
    let store = call.server.store().ok_or(NOT_DURABLE)?;
    match store.snapshot_soon() {
        true => Ok(()),
        false => Err(ReplyError::new("ERR Background save already in progress")),
    }
}

fn background_save(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let schedule = call.arguments.get(1);
    if call.arguments.len() > 2 || schedule.is_some_and(|word| !parse::is(word, "SCHEDULE")) {
        return Err(ReplyError::SYNTAX);
    }
    let begun = begin_snapshot(call);
    if schedule.is_none() || call.server.store().is_none() {
        begun?;
    }
    call.reply.simple("Background saving started");
    Ok(())
}

fn save(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let store = call.server.store().ok_or(NOT_DURABLE)?;
    store.snapshot(call.server).map_err(|error| ReplyError::with(format!("ERR {error}")))?;
    call.reply.ok();
    Ok(())
}

fn time(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let now = since_1970();
    call.reply.array(2);
    call.reply.text(&now.as_secs().to_string());
    call.reply.text(&now.subsec_micros().to_string());
    Ok(())
}

/// No reply: the connection ends, and that is how the client knows.
fn shutdown(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let words = call.arguments.skip(1);
    let has = |option: &str| words.iter().any(|word| parse::is(word, option));
    let is_known = |word: &[u8]| {
        ["SAVE", "NOSAVE", "NOW", "FORCE", "ABORT"].iter().any(|option| parse::is(word, option))
    };
    if !words.iter().all(is_known) || has("SAVE") && has("NOSAVE") {
        return Err(ReplyError::SYNTAX);
    }
    if has("ABORT") {
        // It comes too late: nothing waits before clients are disconnected.
        return Err(match (words.len(), call.server.is_stopping()) {
            (1, false) => ReplyError::new("ERR No shutdown in progress."),
            (1, true) => ReplyError::new(
                "ERR the shutdown in progress cannot be aborted: clients are already being \
                 disconnected",
            ),
            _ => ReplyError::SYNTAX,
        });
    }
    match call.server.store() {
        None if has("SAVE") => return Err(NOT_DURABLE),
        Some(store) if has("NOSAVE") => store.skip_last_snapshot(),
        _ => {}
    }
    call.server.shut_down();
    call.session.is_closing = true;
    Ok(())
}

fn wait(call: &mut Call<'_>) -> Result<(), ReplyError> {
    integers(call)?;
    call.reply.integer(0);
    Ok(())
}

fn wait_log(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let [local, ..] = integers(call)?[..] else { unreachable!("three, by the arity") };
    let log = call.server.log();
    if local != 0 && log.is_none() {
        let text = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
        return Err(ReplyError::new(text));
    }
    let is_safe = log.is_some_and(|log| local != 0 && log.make_safe().is_ok());
    call.reply.array(2);
    call.reply.integer(is_safe.into());
    call.reply.integer(0);
    Ok(())
}

/// All arguments as numbers, the last of which is a time to wait.
fn integers(call: &Call<'_>) -> Result<Vec<i64>, ReplyError> {
    let words = call.arguments.skip(1).iter();
    let numbers: Option<Vec<i64>> = words.map(parse::integer).collect();
    let numbers = numbers.ok_or(ReplyError::NOT_AN_INTEGER)?;
    match numbers.last() {
        Some(..0) => Err(ReplyError::new("ERR timeout is negative")),
        _ => Ok(numbers),
    }
}

fn role(call: &mut Call<'_>) -> Result<(), ReplyError> {
    call.reply.array(3);
    call.reply.text("master");
    call.reply.integer(0);
    call.reply.array(0);
    Ok(())
}

fn replica_of(call: &mut Call<'_>) -> Result<(), ReplyError> {
    if parse::is(&call.arguments[1], "NO") && parse::is(&call.arguments[2], "ONE") {
        call.reply.ok();
        return Ok(());
    }
    Err(ReplyError::new(
        "ERR replication is not offered: copy filters with BF.SCANDUMP and BF.LOADCHUNK, or as \
         files with IB.SAVE and IB.OPEN",
    ))
}

fn sleep(call: &mut Call<'_>) -> Result<(), ReplyError> {
    /// Clients time out before that, and a thread for long work is not to be had forever.
    const LONGEST: f64 = 60.0;
    /// How soon a sleep ends when the server or the client does.
    const NAP: Duration = Duration::from_millis(20);
    let seconds = parse::fraction(&call.arguments[2])
        .filter(|seconds| (0.0..=LONGEST).contains(seconds))
        .ok_or(ReplyError::new("ERR seconds must be a number from 0 to 60"))?;
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while !call.server.is_stopping() && !call.session.client.is_killed() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(left.min(NAP));
    }
    call.reply.ok();
    Ok(())
}
