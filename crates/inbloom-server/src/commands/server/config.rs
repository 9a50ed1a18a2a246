//! CONFIG: what can be looked at, and what can be changed while the server runs. The parameters are rows
//! of `settings/parameters.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{SERVER, introspection, matches};
use crate::command::{Call, Command, Flag, Flags};
use crate::reply_error::{ReplyError, excerpt};
use crate::settings::{Changeable, Given, OPTION_NAMES, PARAMETERS, Parameter, Running, find};
use crate::statistics::Statistics;

pub const CONFIG: Command = Command {
    name: "config",
    arity: -2,
    summary: "Shows and changes the settings of the server",
    subcommands: &[
        Command {
            name: "config|get",
            arity: -3,
            summary: "Returns the parameters whose names match the patterns",
            syntax: "parameter [parameter ...]",
            complexity: "O(N) for N patterns",
            handler: get,
            ..ADMIN
        },
        Command { name: "config|help", ..introspection::HELP },
        Command {
            name: "config|resetstat",
            arity: 2,
            summary: "Resets the counters of INFO",
            handler: reset_statistics,
            ..ADMIN
        },
        Command {
            name: "config|rewrite",
            arity: 2,
            summary: "Always fails: edit the settings file, and send SIGHUP",
            handler: rewrite,
            ..ADMIN
        },
        Command {
            name: "config|set",
            arity: -4,
            summary: "Changes parameters: all, or none if one is refused",
            syntax: "parameter value [parameter value ...]",
            complexity: "O(N) for N parameters",
            handler: set,
            is_secret: true,
            ..ADMIN
        },
    ],
    ..SERVER
};

const ADMIN: Command = Command {
    flags: Flags::of(&[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale]),
    ..SERVER
};

/// The port at which this client came in.
pub fn port(call: &Call<'_>) -> Option<u16> {
    let local: std::net::SocketAddr = call.session.client.local.parse().ok()?;
    Some(local.port())
}

fn running<'a>(call: &Call<'a>) -> Running<'a> {
    let is_persistent = call.server.store().is_some();
    Running { config: &call.server.config, is_persistent, port: port(call) }
}

fn get(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let (settings, running) = (call.server.settings(), running(call));
    let patterns = call.arguments.skip(2);
    let shown: Vec<(&str, String)> = PARAMETERS
        .iter()
        .filter(|row| patterns.iter().any(|pattern| matches(pattern, row.name.as_bytes())))
        .map(|row| (row.name, row))
        .chain(OPTION_NAMES.iter().filter_map(|(option, name)| {
            // Only if asked for by its whole name: who asks for all wants each once.
            let is_asked = patterns.iter().any(|word| word.eq_ignore_ascii_case(option.as_bytes()));
            is_asked.then(|| Some((*option, find(name.as_bytes())?)))?
        }))
        .filter_map(|(name, row)| Some((name, (row.get)(Some(&running), &settings)?)))
        .collect();
    call.reply.map(shown.len());
    for (name, value) in shown {
        call.reply.text(name);
        call.reply.text(&value);
    }
    Ok(())
}

fn set(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let words = call.arguments.skip(2);
    if words.len() % 2 == 1 {
        return Err(ReplyError::SYNTAX);
    }
    let mut pairs: Vec<(&Parameter, &[u8])> = Vec::with_capacity(words.len() / 2);
    for at in (0..words.len()).step_by(2) {
        let row = find(&words[at]).ok_or_else(|| {
            let name = excerpt(&words[at], 128);
            ReplyError::with(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
            ))
        })?;
        if pairs.iter().any(|(other, _)| other.name == row.name) {
            return Err(refused(row, "duplicate parameter"));
        }
        pairs.push((row, words.get(at + 1).expect("their number is even")));
    }
    let running = running(call);
    call.server.set(|settings| {
        // In the order given: cf-initial-size is judged by the bucket size that is set before it.
        pairs.iter().try_for_each(|(row, word)| match &row.change {
            Changeable::Never => Err(refused(row, "can't set immutable config")),
            Changeable::Same => {
                let present = (row.get)(Some(&running), settings).unwrap_or_default();
                if word.eq_ignore_ascii_case(present.as_bytes()) {
                    return Ok(());
                }
                let text = format!("this server only has '{present}'");
                Err(refused(row, &text))
            }
            Changeable::To(change) => {
                let given = Given { name: row.name, word };
                change(settings, given).map_err(|text| refused(row, &text))
            }
        })
    })?;
    for (row, _) in pairs {
        let value = row.shown(&call.server.settings());
        let client = &call.session.client.address;
        tracing::info!(setting = row.name, value, %client, "setting changed by CONFIG SET");
    }
    call.reply.ok();
    Ok(())
}

fn refused(row: &Parameter, text: &str) -> ReplyError {
    let name = row.name;
    ReplyError::with(format!(
        "ERR CONFIG SET failed (possibly related to argument '{name}') - {text}"
    ))
}

fn reset_statistics(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let Statistics {
        connections,
        rejected,
        unread,
        failed_logins,
        forbidden,
        commands,
        bytes_in,
        bytes_out,
        errors,
        hits,
        misses,
        items_added,
        items_asked,
        by_command,
        by_error,
    } = &call.server.statistics;
    let counts: [&AtomicU64; 14] = [
        &call.server.clients.evicted,
        connections,
        rejected,
        unread,
        failed_logins,
        forbidden,
        commands,
        bytes_in,
        bytes_out,
        errors,
        hits,
        misses,
        items_added,
        items_asked,
    ];
    counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    by_command.lock().clear();
    by_error.lock().clear();
    call.server.keyspace.forget_expired();
    call.reply.ok();
    Ok(())
}

fn rewrite(_: &mut Call<'_>) -> Result<(), ReplyError> {
    Err(ReplyError::new(
        "ERR CONFIG REWRITE is not offered: change the settings file, and send SIGHUP",
    ))
}
