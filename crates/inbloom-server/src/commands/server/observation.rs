//! Looking at the server from outside: MEMORY, SLOWLOG, LATENCY, MODULE, ACL.

use super::introspection::{self, HELP};
use super::{MODULE_NAME, MODULE_VERSION, SERVER, info};
use crate::command::{Call, Command, Flag, Flags, Keys, OnStore};
use crate::commands::stored;
use crate::keyspace::DATABASES;
use crate::parse;
use crate::reply_error::{ReplyError, excerpt};
use crate::resp::Arguments;
use crate::settings::shown_limit;
use crate::users::{DEFAULT, Role, User};

pub const MEMORY: Command = Command {
    name: "memory",
    arity: -2,
    summary: "Shows what takes memory",
    subcommands: &[
        Command {
            name: "memory|doctor",
            arity: 2,
            summary: "Describes the use of memory",
            handler: memory_doctor,
            ..SERVER
        },
        Command { name: "memory|help", ..HELP },
        Command {
            name: "memory|stats",
            arity: 2,
            summary: "Returns figures about memory",
            handler: memory_stats,
            ..SERVER
        },
        Command {
            name: "memory|usage",
            arity: -3,
            flags: Flags::of(&[Flag::ReadOnly]),
            keys: Keys { first: 2, last: 2, step: 1 },
            summary: "Returns the bytes that a key takes, its name included",
            syntax: "key [SAMPLES count]",
            handler: memory_usage,
            on_store: OnStore::By(stored::memory_usage),
            ..SERVER
        },
    ],
    ..SERVER
};

pub const SLOWLOG: Command = Command {
    name: "slowlog",
    arity: -2,
    summary: "Shows which commands took long",
    subcommands: &[
        Command {
            name: "slowlog|get",
            arity: -2,
            summary: "Returns the latest entries of the slow log: 10, a number, or all with -1",
            syntax: "[count]",
            complexity: "O(N) for N entries",
            handler: slow_get,
            ..ADMIN
        },
        Command { name: "slowlog|help", ..HELP },
        Command {
            name: "slowlog|len",
            arity: 2,
            summary: "Returns the number of entries in the slow log",
            handler: slow_len,
            ..ADMIN
        },
        Command {
            name: "slowlog|reset",
            arity: 2,
            summary: "Clears the slow log",
            complexity: "O(N) for N entries",
            handler: slow_reset,
            ..ADMIN
        },
    ],
    ..SERVER
};

pub const LATENCY: Command = Command {
    name: "latency",
    arity: -2,
    summary: "Returns empty results: latency events are not recorded",
    subcommands: &[
        Command {
            name: "latency|doctor",
            arity: 2,
            summary: "Returns where figures about latency are",
            handler: latency_doctor,
            ..LATENCIES
        },
        Command { name: "latency|help", ..HELP },
        Command {
            name: "latency|histogram",
            arity: -2,
            summary: "Returns nothing: histograms are not kept; INFO commandstats has sums",
            syntax: "[command [command ...]]",
            handler: |call| {
                call.reply.map(0);
                Ok(())
            },
            ..LATENCIES
        },
        Command {
            name: "latency|history",
            arity: 3,
            summary: "Returns nothing: events are not recorded",
            syntax: "event",
            handler: no_events,
            ..LATENCIES
        },
        Command {
            name: "latency|latest",
            arity: 2,
            summary: "Returns nothing: events are not recorded",
            handler: no_events,
            ..LATENCIES
        },
        Command {
            name: "latency|reset",
            arity: -2,
            summary: "Changes nothing: events are not recorded",
            syntax: "[event [event ...]]",
            handler: |call| {
                call.reply.integer(0);
                Ok(())
            },
            ..LATENCIES
        },
    ],
    ..SERVER
};

pub const MODULE: Command = Command {
    name: "module",
    arity: -2,
    summary: "Lists the modules of Redis that this server replaces",
    subcommands: &[
        Command { name: "module|help", ..HELP },
        Command {
            name: "module|list",
            arity: 2,
            flags: Flags::of(&[Flag::Admin, Flag::NoScript]),
            summary: "Lists the built-in module",
            handler: module_list,
            ..SERVER
        },
    ],
    ..SERVER
};

pub const ACL: Command = Command {
    name: "acl",
    arity: -2,
    summary: "Shows who may do what: users are in the file of --users, each with a role",
    subcommands: &[
        Command {
            name: "acl|cat",
            arity: -2,
            flags: Flags::of(&[Flag::NoScript, Flag::Loading, Flag::Stale]),
            summary: "Lists the categories of commands, or the commands of a category or role",
            syntax: "[category]",
            complexity: "O(N) for the N commands of the server",
            handler: acl_cat,
            ..SERVER
        },
        Command {
            name: "acl|getuser",
            arity: 3,
            summary: "Returns what a user may do",
            syntax: "username",
            handler: acl_getuser,
            ..ADMIN
        },
        Command { name: "acl|help", ..HELP },
        Command {
            name: "acl|list",
            arity: 2,
            summary: "Lists the rules of all users, without passwords",
            handler: acl_list,
            ..ADMIN
        },
        Command {
            name: "acl|users",
            arity: 2,
            summary: "Lists the names of all users",
            handler: acl_users,
            ..ADMIN
        },
        Command {
            name: "acl|whoami",
            arity: 2,
            flags: Flags::of(&[Flag::NoScript, Flag::Loading, Flag::Stale]),
            summary: "Returns the name of this user",
            handler: acl_whoami,
            ..SERVER
        },
    ],
    ..SERVER
};

const ADMIN: Command =
    Command { flags: Flags::of(&[Flag::Admin, Flag::Loading, Flag::Stale]), ..SERVER };
const LATENCIES: Command = Command {
    flags: Flags::of(&[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale]),
    ..SERVER
};

/// Checks the options of MEMORY USAGE. SAMPLES is for values of many parts; a filter's size is known.
/// A wrong one is an error still.
pub fn check_samples(words: Arguments<'_>) -> Result<(), ReplyError> {
    match (words.get(3), words.get(4)) {
        (None, _) => Ok(()),
        (Some(word), Some(count)) if parse::is(word, "SAMPLES") && words.len() == 5 => {
            let count = parse::integer(count).ok_or(ReplyError::NOT_AN_INTEGER)?;
            if count < 0 { Err(ReplyError::SYNTAX) } else { Ok(()) }
        }
        _ => Err(ReplyError::SYNTAX),
    }
}

fn memory_usage(call: &mut Call<'_>) -> Result<(), ReplyError> {
    check_samples(call.arguments)?;
    match &call.entry {
        Some(entry) => {
            let bytes = call.server.keyspace.bytes_of(&call.arguments[2], entry);
            call.reply.integer(bytes as i64);
        }
        None => call.reply.null(),
    }
    Ok(())
}

fn memory_doctor(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let used = call.server.limits.in_use();
    let text = match shown_limit(call.server.settings().max_memory) {
        0 => format!("Filters take {used} bytes, and there is no limit (maxmemory is 0)."),
        limit => {
            let share = used as f64 / limit as f64 * 100.0;
            let advice = match share {
                ..80.0 => "There is room for more.",
                ..100.0 => "New filters, and those that grow, will soon be refused.",
                _ => "New filters, and those that grow, are refused.",
            };
            format!(
                "Filters take {used} bytes, {share:.1}% of the {limit} they may take (maxmemory). \
                 {advice}"
            )
        }
    };
    call.reply.verbatim("txt", &format!("{text}\n"));
    Ok(())
}

fn memory_stats(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let keyspace = &call.server.keyspace;
    let used = keyspace.used();
    let keys: u64 = (0..DATABASES).map(|database| keyspace.len(database)).sum();
    let limit = shown_limit(call.server.settings().max_memory);
    let figures = [
        ("total.allocated", Some(used)),
        ("keys.count", Some(keys)),
        ("keys.bytes-per-key", Some(used / keys.max(1))),
        ("dataset.bytes", Some(used)),
        ("resident.bytes", info::resident_bytes()),
        ("maxmemory", Some(limit)),
    ];
    let figures = figures.into_iter().filter_map(|(name, figure)| Some((name, figure?)));
    call.reply.map(figures.clone().count());
    for (name, figure) in figures {
        call.reply.text(name);
        call.reply.integer(figure as i64);
    }
    Ok(())
}

fn slow_get(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let words = call.arguments;
    if words.len() > 3 {
        return Err(ReplyError::arity(call.command.name));
    }
    let count = words.get(2).map_or(Some(10), parse::integer).filter(|count| *count >= -1);
    let count = count.ok_or(ReplyError::new("ERR count should be greater than or equal to -1"))?;
    let log = call.server.slow_log.lock();
    let most = usize::try_from(count).unwrap_or(usize::MAX).min(log.entries.len());
    call.reply.array(most);
    for slow in log.entries.iter().take(most) {
        call.reply.array(6);
        call.reply.integer(slow.id as i64);
        call.reply.integer(slow.at as i64);
        call.reply.integer(slow.micros as i64);
        call.reply.array(slow.words.len());
        slow.words.iter().for_each(|word| call.reply.bulk(word));
        call.reply.text(&slow.address);
        call.reply.text(&slow.name);
    }
    Ok(())
}

fn slow_len(call: &mut Call<'_>) -> Result<(), ReplyError> {
    call.reply.integer(call.server.slow_log.lock().entries.len() as i64);
    Ok(())
}

fn slow_reset(call: &mut Call<'_>) -> Result<(), ReplyError> {
    call.server.slow_log.lock().entries.clear();
    call.reply.ok();
    Ok(())
}

fn no_events(call: &mut Call<'_>) -> Result<(), ReplyError> {
    call.reply.array(0);
    Ok(())
}

fn latency_doctor(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let text = "Latency events are not recorded. SLOWLOG GET has slow commands, and INFO commandstats the \
     time of each command.\n";
    call.reply.verbatim("txt", text);
    Ok(())
}

fn module_list(call: &mut Call<'_>) -> Result<(), ReplyError> {
    call.reply.array(1);
    call.reply.map(4);
    call.reply.text("name");
    call.reply.text(MODULE_NAME);
    call.reply.text("ver");
    call.reply.integer(MODULE_VERSION);
    call.reply.text("path");
    call.reply.text("");
    call.reply.text("args");
    call.reply.array(0);
    Ok(())
}

fn acl_cat(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let names = match (call.arguments.get(2), call.arguments.len()) {
        (None, _) => introspection::all_categories(),
        (Some(category), 3) => {
            let names = match Role::named(category) {
                Some(role) => introspection::names_of_role(role),
                None => introspection::names_of_category(category),
            };
            if names.is_empty() {
                let category = excerpt(category, 128);
                return Err(ReplyError::with(format!("ERR Unknown category '{category}'")));
            }
            names
        }
        _ => return Err(ReplyError::arity(call.command.name)),
    };
    call.reply.array(names.len());
    names.iter().for_each(|name| call.reply.text(name));
    Ok(())
}

/// The user of a name, as it is now.
fn user(call: &Call<'_>, name: &[u8]) -> Option<User> {
    call.server.users().get(name, &call.server.settings().require_pass)
}

/// What a user may run: `ACL CAT read-only` tells what that is.
fn rule(user: &User) -> String {
    match user.role {
        None => "-@all".into(),
        Some(Role::Admin) => "+@all".into(),
        Some(role) => format!("-@all +@{}", role.name()),
    }
}

fn acl_getuser(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let Some(user) = user(call, &call.arguments[2]) else {
        call.reply.null_array();
        return Ok(());
    };
    let mut flags = vec![if user.role.is_some() { "on" } else { "off" }];
    flags.extend(user.is_open().then_some("nopass"));
    call.reply.map(6);
    call.reply.text("flags");
    call.reply.set(flags.len());
    flags.iter().for_each(|flag| call.reply.text(flag));
    call.reply.text("passwords");
    call.reply.array(0);
    for (field, rule) in [("commands", &*rule(&user)), ("keys", "~*"), ("channels", "&*")] {
        call.reply.text(field);
        call.reply.text(rule);
    }
    call.reply.text("selectors");
    call.reply.array(0);
    Ok(())
}

fn acl_list(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let names = call.server.users().names();
    call.reply.array(names.len());
    for name in names {
        // It may have been read again since.
        let Some(user) = user(call, name.as_bytes()) else {
            call.reply.text(&format!("user {name} off -@all"));
            continue;
        };
        let on = if user.role.is_some() { "on" } else { "off" };
        let password = if user.is_open() { " nopass" } else { "" };
        call.reply.text(&format!("user {name} {on}{password} ~* &* {}", rule(&user)));
    }
    Ok(())
}

fn acl_users(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let names = call.server.users().names();
    call.reply.array(names.len());
    names.iter().for_each(|name| call.reply.text(name));
    Ok(())
}

fn acl_whoami(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let name = call.session.identity.as_ref().map_or(DEFAULT, |identity| &identity.name);
    call.reply.text(name);
    Ok(())
}
