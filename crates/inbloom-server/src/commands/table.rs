//! Every command, in one table: what COMMAND lists, what docs/commands.md says, and what requests are
//! looked up in.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::{bloom, connection, cuckoo, extensions, keys, server, transactions, transfer};
use crate::command::Command;
use crate::reply_error::{ReplyError, excerpt};
use crate::resp::Arguments;

/// All commands, by subject.
pub fn commands() -> impl Iterator<Item = &'static Command> {
    GROUPS.iter().flat_map(|group| group.iter())
}

static GROUPS: &[&[Command]] = &[
    bloom::COMMANDS,
    cuckoo::COMMANDS,
    transfer::COMMANDS,
    extensions::COMMANDS,
    keys::COMMANDS,
    connection::COMMANDS,
    transactions::COMMANDS,
    server::COMMANDS,
];

/// Finds a command by its name, in uppercase or lowercase.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    static BY_NAME: LazyLock<HashMap<&'static [u8], &'static Command>> =
        LazyLock::new(|| commands().map(|command| (command.name.as_bytes(), command)).collect());
    let mut lower = [0; LONGEST_NAME];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(&*lower).copied()
}

/// No name of a command is longer.
const LONGEST_NAME: usize = 32;

/// Returns the row for these words: that of the subcommand, where the command has some.
///
/// # Errors
///
/// The reply to a word that is not known.
pub fn resolve(arguments: Arguments<'_>) -> Result<&'static Command, ReplyError> {
    let command = find(&arguments[0]).ok_or_else(|| unknown(arguments))?;
    if command.subcommands.is_empty() {
        return Ok(command);
    }
    let Some(word) = arguments.get(1) else { return Ok(command) };
    let tail = |row: &&Command| &row.name.as_bytes()[command.name.len() + 1..];
    let found = command.subcommands.iter().find(|row| tail(row).eq_ignore_ascii_case(word));
    found.ok_or_else(|| {
        let name = command.name.to_uppercase();
        let word = excerpt(word, 128);
        ReplyError::with(format!("ERR unknown subcommand '{word}'. Try {name} HELP."))
    })
}

/// As Redis words it, since clients compare.
fn unknown(arguments: Arguments<'_>) -> ReplyError {
    let name = excerpt(&arguments[0], 128);
    let mut shown = String::new();
    for argument in arguments.iter().skip(1) {
        if shown.len() >= 128 {
            break;
        }
        shown.push_str(&format!("'{}' ", excerpt(argument, 128 - shown.len())));
    }
    ReplyError::with(format!("ERR unknown command '{name}', with args beginning with: {shown}"))
}
