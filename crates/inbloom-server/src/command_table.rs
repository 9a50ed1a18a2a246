//! Every command, in one table: what COMMAND tells, what docs/commands.md says, what is checked before
//! a command runs, and the function that does it.
//!
//! The rows stand beside the functions, a slice for each file of `commands/`.

use crate::clients::Client;
use crate::reply_error::{ReplyError, excerpt};
use crate::resp::{Arguments, Reply};
use crate::server::Server;
use crate::session::Session;
use crate::users::Class;

/// A row of the table.
pub struct Command {
    /// In lower case; `client|setname` for a subcommand.
    pub name: &'static str,
    /// Words with the name; if negative, at least so many.
    pub arity: i32,
    /// As COMMAND INFO names them: readonly, write, denyoom, fast, admin, noscript, loading, stale,
    /// no_auth, allow_busy, movablekeys ... Ours are `transaction`, for what MULTI does not queue,
    /// and `restricted`, for what Redis lets everybody do and only admins may here: see
    /// [`Command::class`].
    pub flags: &'static [&'static str],
    /// Access categories, without those that flags imply.
    pub categories: &'static [&'static str],
    /// Where the keys are.
    pub keys: Keys,
    /// One line of help.
    pub summary: &'static str,
    /// The arguments, as in `key item [item ...]`.
    pub syntax: &'static str,
    /// The subject: bf, cf, ib, generic, connection, server, transactions.
    pub group: &'static str,
    /// What it costs.
    pub complexity: &'static str,
    /// Does it.
    pub handler: Handler,
    /// Whether it may take more than a millisecond with these arguments: then it runs on a thread
    /// for such work, so that the other clients of this one do not wait.
    pub is_heavy: fn(&Server, &Session, Arguments<'_>) -> bool,
    /// Subcommands, whose names begin with this one.
    pub subcommands: &'static [Command],
}

/// Which arguments are keys: none if `first` is 0; `last` counts from the end if it is negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The first, 1 if it follows the name.
    pub first: i32,
    /// The last.
    pub last: i32,
    /// From one to the next.
    pub step: i32,
}

impl Keys {
    /// No argument is a key.
    pub const NONE: Keys = Keys { first: 0, last: 0, step: 0 };
    /// The first argument is the only key.
    pub const ONE: Keys = Keys { first: 1, last: 1, step: 1 };
    /// All arguments are keys.
    pub const ALL: Keys = Keys { first: 1, last: -1, step: 1 };

    /// Where the keys are among so many words, the name of the command included.
    pub fn places(self, words: usize) -> impl Iterator<Item = usize> {
        let Keys { first, last, step } = self;
        let last = if last < 0 { last + words as i32 } else { last.min(words as i32 - 1) };
        let last = if first == 0 { -1 } else { last };
        (first..=last).step_by(step.max(1) as usize).map(|at| at as usize)
    }
}

/// What a command does: writes its reply, or says why not. A reply begun before an error is taken
/// back.
pub type Handler = fn(&mut Call<'_>) -> Result<(), ReplyError>;

/// A command that is being carried out.
pub struct Call<'a> {
    /// What all clients share.
    pub server: &'a Server,
    /// The client.
    pub session: &'a mut Session,
    /// The same, as others know it.
    pub client: &'a Client,
    /// The words, the name among them.
    pub arguments: Arguments<'a>,
    /// Where the answer goes.
    pub reply: Reply<'a>,
    /// Milliseconds since 1970.
    pub now: u64,
    /// The row of the command.
    pub command: &'static Command,
}

/// For [`Command::is_heavy`]: never.
pub fn light(_: &Server, _: &Session, _: Arguments<'_>) -> bool {
    false
}

/// For [`Command::is_heavy`]: always.
pub fn heavy(_: &Server, _: &Session, _: Arguments<'_>) -> bool {
    true
}

impl Command {
    /// A row that the others are written from, with `..Command::NONE`.
    pub const NONE: Command = Command {
        name: "",
        arity: 0,
        flags: &[],
        categories: &[],
        keys: Keys::NONE,
        summary: "",
        syntax: "",
        group: "",
        complexity: "O(1)",
        handler: |call| Err(ReplyError::arity(call.command.name)),
        is_heavy: light,
        subcommands: &[],
    };

    /// Whether so many words, the name included, are right.
    pub fn takes(&self, words: usize) -> bool {
        let arity = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { words >= arity } else { words == arity }
    }

    /// What a user must be allowed to run it: the only place that says so.
    pub fn class(&self) -> Class {
        if self.has("no_auth") {
            Class::Open
        } else if self.has("admin") || self.has("restricted") {
            Class::Admin
        } else if self.has("write") {
            Class::Write
        } else {
            Class::Read
        }
    }

    /// Whether it has a flag.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }
}

/// All commands, by subject.
pub fn commands() -> impl Iterator<Item = &'static Command> {
    GROUPS.iter().flat_map(|group| group.iter())
}

static GROUPS: &[&[Command]] = &[
    crate::commands::bloom::COMMANDS,
    crate::commands::cuckoo::COMMANDS,
    crate::commands::transfer::COMMANDS,
    crate::commands::extensions::COMMANDS,
    crate::commands::keys::COMMANDS,
    crate::commands::connection::COMMANDS,
    crate::commands::transactions::COMMANDS,
    crate::commands::server::COMMANDS,
];

/// Finds a command by its name, in upper or lower case.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    static BY_NAME: std::sync::LazyLock<
        std::collections::HashMap<&'static [u8], &'static Command>,
    > = std::sync::LazyLock::new(|| {
        commands().map(|command| (command.name.as_bytes(), command)).collect()
    });
    let mut lower = [0; LONGEST_NAME];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(&*lower).copied()
}

/// No name of a command is longer.
const LONGEST_NAME: usize = 32;

/// The row for these words: that of the subcommand, where the command has some. Err: the text for a
/// word that is not known.
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
