//! COMMAND: the table for clients, in the forms of Redis 7. And HELP, which is the same for
//! all commands that have subcommands.

use super::syntax::{self, Argument, Content};
use super::{MODULE_NAME, SERVER, matches};
use crate::command::{Call, Command, Flag, Flags, Keys};
use crate::commands::table;
use crate::parse;
use crate::reply_error::ReplyError;
use crate::resp::{Arguments, Reply};
use crate::users::Role;

pub const COMMAND: Command = Command {
    name: "command",
    arity: -1,
    summary: "Describes all commands",
    complexity: "O(N) for the N commands of the server",
    handler: all,
    subcommands: &[
        Command {
            name: "command|count",
            arity: 2,
            summary: "Returns the number of commands",
            handler: count,
            ..ASKING
        },
        Command {
            name: "command|docs",
            arity: -2,
            summary: "Returns what commands do, and their arguments",
            syntax: "[command-name [command-name ...]]",
            complexity: "O(N) for N commands",
            handler: docs,
            ..ASKING
        },
        Command {
            name: "command|getkeys",
            arity: -3,
            summary: "Returns which words of a command are keys",
            syntax: "command [arg [arg ...]]",
            complexity: "O(N) for N words",
            handler: keys,
            ..ASKING
        },
        Command {
            name: "command|getkeysandflags",
            arity: -3,
            summary: "Returns which words of a command are keys, and how it uses them",
            syntax: "command [arg [arg ...]]",
            complexity: "O(N) for N words",
            handler: keys_and_flags,
            ..ASKING
        },
        Command { name: "command|help", categories: ASKING.categories, ..HELP },
        Command {
            name: "command|info",
            arity: -2,
            summary: "Returns the arity, flags and keys of commands",
            syntax: "[command-name [command-name ...]]",
            complexity: "O(N) for N commands",
            handler: info,
            ..ASKING
        },
        Command {
            name: "command|list",
            arity: -2,
            summary: "Lists the names of commands",
            syntax: "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
            complexity: "O(N) for the N commands of the server",
            handler: list,
            ..ASKING
        },
    ],
    ..ASKING
};

const ASKING: Command = Command {
    flags: Flags::of(&[Flag::Loading, Flag::Stale]),
    categories: &["connection"],
    ..SERVER
};

/// The row of a HELP, but for its name.
pub const HELP: Command = Command {
    arity: 2,
    flags: Flags::of(&[Flag::Loading, Flag::Stale]),
    summary: "Prints the subcommands",
    handler: help,
    ..SERVER
};

/// Tells about the subcommands of the command whose HELP this is.
pub fn help(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let (parent, _) = call.command.name.split_once('|').expect("a HELP is a subcommand");
    let parent = table::find(parent.as_bytes()).expect("a subcommand has a command");
    let name = parent.name.to_uppercase();
    call.reply.array(1 + 2 * parent.subcommands.len());
    let first = format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    call.reply.simple(&first);
    for row in parent.subcommands {
        let word = row.name[parent.name.len() + 1..].to_uppercase();
        call.reply.simple(format!("{word} {}", row.syntax).trim_end());
        call.reply.simple(&format!("    {}.", row.summary));
    }
    Ok(())
}

/// All rows, those of subcommands behind their commands.
fn rows() -> impl Iterator<Item = &'static Command> {
    table::commands().flat_map(|row| std::iter::once(row).chain(row.subcommands))
}

/// The row of a name, which may be that of a subcommand: `config|get`.
fn find(name: &[u8]) -> Option<&'static Command> {
    match memchr::memchr(b'|', name) {
        None => table::find(name),
        Some(bar) => {
            let rows = table::find(&name[..bar])?.subcommands;
            rows.iter().find(|row| name.eq_ignore_ascii_case(row.name.as_bytes()))
        }
    }
}

/// BF.*, CF.* and our extensions of them count as commands of a module: tools show them if it is
/// there.
fn is_of_module(command: &Command) -> bool {
    matches!(command.group, "bf" | "cf" | "ib")
}

/// What COMMAND calls flags. `module` follows from the group.
fn flags(command: &Command) -> Vec<&'static str> {
    let own = command.flags.names();
    own.chain(is_of_module(command).then_some("module")).collect()
}

/// The access categories of a command: its own, and those that its flags imply by the rules of
/// Redis.
pub fn categories(command: &Command) -> Vec<&'static str> {
    let mut categories = command.categories.to_vec();
    let mut imply = |is_implied: bool, category: &'static str| {
        if is_implied && !categories.contains(&category) {
            categories.push(category);
        }
    };
    imply(command.has(Flag::ReadOnly), "read");
    imply(command.has(Flag::Write), "write");
    imply(command.has(Flag::Admin), "admin");
    imply(command.has(Flag::Admin) || command.is_restricted, "dangerous");
    imply(command.has(Flag::Fast), "fast");
    if !categories.contains(&"fast") {
        categories.push("slow");
    }
    categories
}

/// What a command may do to its keys. The table does not say more than whether it writes.
fn access(command: &Command) -> &'static [&'static str] {
    if command.has(Flag::Write) { &["RW", "access", "update"] } else { &["RO", "access"] }
}

fn all(call: &mut Call<'_>) -> Result<(), ReplyError> {
    call.reply.array(table::commands().count());
    table::commands().for_each(|row| describe(&mut call.reply, row));
    Ok(())
}

fn info(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let names = call.arguments.skip(2);
    if names.is_empty() {
        return all(call);
    }
    call.reply.array(names.len());
    for name in names {
        match find(name) {
            Some(row) => describe(&mut call.reply, row),
            None => call.reply.null_array(),
        }
    }
    Ok(())
}

/// The ten things that COMMAND tells of each.
fn describe(reply: &mut Reply<'_>, command: &Command) {
    let words = |reply: &mut Reply<'_>, words: &[&str]| {
        reply.set(words.len());
        words.iter().for_each(|word| reply.simple(word));
    };
    let Keys { first, last, step } = command.keys;
    reply.array(10);
    reply.text(command.name);
    reply.integer(i64::from(command.arity));
    words(reply, &flags(command));
    [first, last, step].iter().for_each(|at| reply.integer(i64::from(*at)));
    let categories = categories(command);
    reply.set(categories.len());
    categories.iter().for_each(|category| reply.simple(&format!("@{category}")));
    words(reply, &[]); // Tips are for proxies, which need none here.
    if first == 0 {
        reply.set(0);
    } else {
        reply.set(1);
        reply.map(3);
        reply.text("flags");
        words(reply, access(command));
        reply.text("begin_search");
        typed(reply, "index", &[("index", first)]);
        reply.text("find_keys");
        // Counted from the first key, but from the end if it is negative.
        let last = if last < 0 { last } else { last - first };
        typed(reply, "range", &[("lastkey", last), ("keystep", step), ("limit", 0)]);
    }
    if command.subcommands.is_empty() {
        reply.set(0);
    } else {
        reply.array(command.subcommands.len());
        command.subcommands.iter().for_each(|row| describe(reply, row));
    }
}

fn typed(reply: &mut Reply<'_>, kind: &str, fields: &[(&str, i32)]) {
    reply.map(2);
    reply.text("type");
    reply.text(kind);
    reply.text("spec");
    reply.map(fields.len());
    for (name, value) in fields {
        reply.text(name);
        reply.integer(i64::from(*value));
    }
}

fn count(call: &mut Call<'_>) -> Result<(), ReplyError> {
    call.reply.integer(table::commands().count() as i64);
    Ok(())
}

fn list(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let words = call.arguments.skip(2);
    let (kind, wanted) = match (words.get(0), words.get(1), words.get(2)) {
        (None, ..) => (&b"pattern"[..], &b"*"[..]),
        (Some(word), Some(kind), Some(wanted))
            if parse::is(word, "FILTERBY") && words.len() == 3 =>
        {
            (kind, wanted)
        }
        _ => return Err(ReplyError::SYNTAX),
    };
    let is_wanted: fn(&Command, &[u8]) -> bool = if parse::is(kind, "MODULE") {
        |row, wanted| is_of_module(row) && parse::is(wanted, MODULE_NAME)
    } else if parse::is(kind, "ACLCAT") {
        |row, wanted| categories(row).iter().any(|category| parse::is(wanted, category))
    } else if parse::is(kind, "PATTERN") {
        |row, wanted| matches(wanted, row.name.as_bytes())
    } else {
        return Err(ReplyError::SYNTAX);
    };
    let names: Vec<&str> =
        rows().filter(|row| is_wanted(row, wanted)).map(|row| row.name).collect();
    call.reply.array(names.len());
    names.iter().for_each(|name| call.reply.text(name));
    Ok(())
}

/// The names of those that are of a category.
pub fn names_of_category(category: &[u8]) -> Vec<&'static str> {
    let is_of = |row: &&Command| categories(row).iter().any(|own| parse::is(category, own));
    rows().filter(is_of).map(|row| row.name).collect()
}

/// The commands that a role may run.
pub fn names_of_role(role: Role) -> Vec<&'static str> {
    rows().filter(|row| role.may(row.class())).map(|row| row.name).collect()
}

/// All categories that there are.
pub fn all_categories() -> Vec<&'static str> {
    let mut all: Vec<&str> = rows().flat_map(categories).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The row of the command that is asked about, and those of its words that are keys.
fn find_keys(words: Arguments<'_>) -> Result<(&'static Command, Vec<&[u8]>), ReplyError> {
    let command =
        table::resolve(words).map_err(|_| ReplyError::new("ERR Invalid command specified"))?;
    if command.keys == Keys::NONE {
        return Err(ReplyError::new("ERR The command has no key arguments"));
    }
    if !command.takes(words.len()) {
        let text = "ERR Invalid number of arguments specified for command";
        return Err(ReplyError::new(text));
    }
    let places = command.keys.places(words.len());
    Ok((command, places.filter_map(|at| words.get(at)).collect()))
}

fn keys(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let (_, keys) = find_keys(call.arguments.skip(2))?;
    call.reply.array(keys.len());
    keys.iter().for_each(|key| call.reply.bulk(key));
    Ok(())
}

fn keys_and_flags(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let (command, keys) = find_keys(call.arguments.skip(2))?;
    call.reply.array(keys.len());
    for key in keys {
        call.reply.array(2);
        call.reply.bulk(key);
        let access = access(command);
        call.reply.set(access.len());
        access.iter().for_each(|flag| call.reply.simple(flag));
    }
    Ok(())
}

fn docs(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let names = call.arguments.skip(2);
    let rows: Vec<&Command> = if names.is_empty() {
        table::commands().collect()
    } else {
        names.iter().filter_map(find).collect()
    };
    call.reply.map(rows.len());
    rows.iter().for_each(|row| document(&mut call.reply, row));
    Ok(())
}

/// The name of a command, and what COMMAND DOCS tells of it.
fn document(reply: &mut Reply<'_>, command: &Command) {
    let mut arguments = syntax::arguments(command.syntax);
    if !command.subcommands.is_empty() {
        arguments.clear(); // Each subcommand has its own.
    }
    let is_of_module = is_of_module(command);
    let texts = [
        ("summary", Some(command.summary)),
        ("since", Some(env!("CARGO_PKG_VERSION"))),
        ("group", Some(if is_of_module { "module" } else { command.group })),
        ("complexity", Some(command.complexity)),
        ("module", is_of_module.then_some(MODULE_NAME)),
    ];
    let texts = texts.into_iter().filter_map(|(field, text)| Some((field, text?)));
    let (some, more) = (!arguments.is_empty(), !command.subcommands.is_empty());
    reply.text(command.name);
    reply.map(texts.clone().count() + usize::from(some) + usize::from(more));
    for (field, text) in texts {
        reply.text(field);
        reply.text(text);
    }
    if some {
        reply.text("arguments");
        reply.array(arguments.len());
        let mut position = if command.name.contains('|') { 2 } else { 1 };
        for argument in &arguments {
            document_argument(reply, argument, command.keys, &mut position);
        }
    }
    if more {
        reply.text("subcommands");
        reply.map(command.subcommands.len());
        command.subcommands.iter().for_each(|row| document(reply, row));
    }
}

/// `position` is that of the argument among the words of the command, as long as it is fixed, else
/// 0; it tells which arguments are keys.
fn document_argument(reply: &mut Reply<'_>, argument: &Argument, keys: Keys, position: &mut i32) {
    let is_fixed = !argument.is_optional && argument.token.is_none();
    let is_key = argument.content == Content::Value
        && argument.token.is_none()
        && *position > 0
        && is_key(keys, *position);
    let parts = match &argument.content {
        Content::Token | Content::Value => &[][..],
        Content::Choice(parts) | Content::Block(parts) => parts,
    };
    let kind = match &argument.content {
        Content::Token => "pure-token",
        Content::Value if is_key => "key",
        Content::Value => value_type(&argument.name),
        Content::Choice(_) => "oneof",
        Content::Block(_) => "block",
    };
    let flags = [
        ("optional", argument.is_optional),
        ("multiple", argument.is_multiple),
        ("multiple_token", argument.repeats_token),
    ];
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
    let has_flags = flags.clone().next().is_some();
    let shows_name = argument.content == Content::Value;
    let optional_fields =
        [is_key, argument.token.is_some(), has_flags, shows_name, !parts.is_empty()];
    reply.map(2 + optional_fields.iter().filter(|is_there| **is_there).count());
    reply.text("name");
    reply.text(&argument.name);
    reply.text("type");
    reply.text(kind);
    if shows_name {
        reply.text("display_text");
        reply.text(&argument.name);
    }
    if is_key {
        reply.text("key_spec_index");
        reply.integer(0);
    }
    if let Some(token) = &argument.token {
        reply.text("token");
        reply.text(token);
    }
    if has_flags {
        reply.text("flags");
        reply.set(flags.clone().count());
        flags.for_each(|(flag, _)| reply.simple(flag));
    }
    // Only the parts of a fixed block have places of their own; behind what may be left out or
    // repeated, nothing has.
    let is_block = is_fixed && matches!(argument.content, Content::Block(_));
    if !parts.is_empty() {
        reply.text("arguments");
        reply.array(parts.len());
        let mut inside = if is_block { *position } else { 0 };
        parts.iter().for_each(|part| document_argument(reply, part, keys, &mut inside));
    }
    let is_one = is_fixed && !argument.is_multiple && argument.content == Content::Value;
    *position = if is_one && *position > 0 { *position + 1 } else { 0 };
}

fn is_key(keys: Keys, position: i32) -> bool {
    let Keys { first, last, step } = keys;
    first > 0
        && position >= first
        && (last < 0 || position <= last)
        && (position - first) % step.max(1) == 0
}

/// The type of a value, which its name tells.
fn value_type(name: &str) -> &'static str {
    const INTEGERS: &[&str] = &[
        "bucketsize",
        "capacity",
        "count",
        "cursor",
        "db",
        "destination-db",
        "entries",
        "expansion",
        "id",
        "index",
        "iterations",
        "iterator",
        "maxiterations",
        "milliseconds",
        "numlocal",
        "numreplicas",
        "port",
        "protover",
        "samples",
        "seconds",
        "timeout",
        "ttl",
    ];
    match name {
        "pattern" => "pattern",
        "error" | "error_rate" | "share" => "double",
        name if name.starts_with("unix-time") => "unix-time",
        name if INTEGERS.contains(&name) => "integer",
        _ => "string",
    }
}
