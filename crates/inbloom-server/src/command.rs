//! A command: its row of the table, and a call of it.
//!
//! A row has all that is known about a command: what COMMAND and docs/commands.md say, what is checked
//! before it runs, where it runs, and the function that does it. The rows stand beside the functions, a
//! slice for each file of `commands/`; `commands/table.rs` puts them together.

use std::sync::Arc;

use crate::clients::Client;
use crate::clients::holdings::Budget;
use crate::keyspace::{Entry, Key};
use crate::reply_error::ReplyError;
use crate::resp::{Arguments, Reply};
use crate::server::Server;
use crate::session_state::{MANY_REPLIES, Scratch, SessionState, counted};
use crate::users::Class;
use crate::value::{Value, take_found};

/// A row of the table.
pub struct Command {
    /// In lowercase; `client|setname` for a subcommand.
    pub name: &'static str,
    /// Words with the name; if negative, at least so many.
    pub arity: i32,
    /// What COMMAND INFO calls flags.
    pub flags: Flags,
    /// Access categories, without those that flags imply.
    pub categories: &'static [&'static str],
    /// Whether only admins may run it, although Redis lets everybody: see [`Command::class`].
    pub is_restricted: bool,
    /// Whether MULTI lets it through instead of queueing it.
    pub is_immediate: bool,
    /// Whether its arguments may be passwords: the slow log has its name alone then.
    pub is_secret: bool,
    /// Where the keys are.
    pub keys: Keys,
    /// One line of help.
    pub summary: &'static str,
    /// The arguments, as in `key item [item ...]`.
    pub syntax: &'static str,
    /// The subject: bf, cf, ib, generic, connection, server, transactions.
    pub group: &'static str,
    /// The asymptotic cost, for people.
    pub complexity: &'static str,
    /// Whether it may take more than a millisecond.
    pub cost: Cost,
    /// What several calls in a row, each for one item of the same filter, are answered by at once. Such
    /// a call has the words `name key item`.
    pub batched: Option<Batched>,
    /// Carries it out.
    pub handler: Handler,
    /// What it does where filters are on a store.
    pub on_store: OnStore,
    /// Subcommands, whose names begin with this one.
    pub subcommands: &'static [Command],
}

/// What COMMAND INFO says of a command. The names are Redis's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// Changes keys.
    Write,
    /// Reads keys.
    ReadOnly,
    /// May take memory.
    DenyOom,
    /// For operators.
    Admin,
    /// About channels.
    PubSub,
    /// Not in scripts.
    NoScript,
    /// Also while filters are loaded.
    Loading,
    /// Also on a replica that is behind.
    Stale,
    /// Not in the slow log.
    SkipSlowLog,
    /// Of constant or logarithmic cost.
    Fast,
    /// For clients that have not logged in, too.
    NoAuth,
    /// Not in a transaction.
    NoMulti,
    /// Also while a script runs.
    AllowBusy,
}

/// A set of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// These.
    pub const fn of(flags: &[Flag]) -> Flags {
        let (mut bits, mut at) = (0, 0);
        while at < flags.len() {
            bits |= flags[at].bit();
            at += 1;
        }
        Flags(bits)
    }

    /// Whether a flag is among them.
    pub fn has(self, flag: Flag) -> bool {
        self.0 & flag.bit() != 0
    }

    /// As COMMAND INFO spells them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Flag::ALL.into_iter().filter(move |flag| self.has(*flag)).map(Flag::name)
    }
}

impl Flag {
    /// In the order in which COMMAND INFO lists them.
    const ALL: [Flag; 13] = [
        Flag::Write,
        Flag::ReadOnly,
        Flag::DenyOom,
        Flag::Admin,
        Flag::PubSub,
        Flag::NoScript,
        Flag::Loading,
        Flag::Stale,
        Flag::SkipSlowLog,
        Flag::Fast,
        Flag::NoAuth,
        Flag::NoMulti,
        Flag::AllowBusy,
    ];

    const fn bit(self) -> u16 {
        1 << self as u16
    }

    /// As COMMAND INFO spells it.
    pub fn name(self) -> &'static str {
        match self {
            Flag::Write => "write",
            Flag::ReadOnly => "readonly",
            Flag::DenyOom => "denyoom",
            Flag::Admin => "admin",
            Flag::PubSub => "pubsub",
            Flag::NoScript => "noscript",
            Flag::Loading => "loading",
            Flag::Stale => "stale",
            Flag::Fast => "fast",
            Flag::NoAuth => "no_auth",
            Flag::AllowBusy => "allow_busy",
            Flag::NoMulti => "no_multi",
            Flag::SkipSlowLog => "skip_slowlog",
        }
    }
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

    /// Where the key is, if there is one and only one whatever the number of words.
    fn only(self) -> Option<usize> {
        (self.first > 0 && self.first == self.last).then_some(self.first as usize)
    }
}

/// Whether a command may take more than a millisecond: then it runs on a thread for such work, so that
/// other clients do not wait. Requests of many words or bytes do so whatever their row says, and so do
/// requests to a filter that is locked for long.
#[derive(Clone, Copy)]
pub enum Cost {
    /// It never does.
    Light,
    /// It may always.
    Heavy,
    /// The function returns whether this request may.
    By(fn(&Request<'_>, &SessionState) -> bool),
}

/// How calls of a command are answered together.
#[derive(Clone, Copy)]
pub struct Batched {
    /// What is kept of an item until then.
    pub hashing: Hashing,
    /// How many items of a filter are answered together at most; 0 if the filter is of a kind that
    /// answers one call at a time.
    pub most: fn(&Value) -> usize,
    /// Answers the calls, and returns how many failed.
    pub answer: fn(&mut Batch<'_>) -> u64,
    /// The same where filters are on a store.
    pub on_store: Option<fn(&mut StoredBatch<'_>) -> u64>,
}

/// What a filter knows an item by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hashing {
    /// The digest under the server's hash, for filters of BF.*.
    Digest,
    /// RedisBloom's hash, for filters of CF.*.
    RedisBloom,
}

/// Calls that are answered together. The hashes of their items are in the scratch, and there is at least
/// one.
pub struct Batch<'a> {
    /// What all clients share.
    pub server: &'a Server,
    /// The filter.
    pub entry: &'a Entry,
    /// The items, and room for answers.
    pub scratch: &'a mut Scratch,
    /// Where the replies go.
    pub reply: Reply<'a>,
}

/// Calls for a filter on a store that are answered together.
pub struct StoredBatch<'a> {
    /// What all clients share.
    pub server: &'a Server,
    /// The key.
    pub name: &'a [u8],
    /// The items.
    pub items: &'a [&'a [u8]],
    /// Where the replies go.
    pub reply: Reply<'a>,
}

/// Single items that are answered together, at most.
pub const LONGEST_RUN: usize = 1024;

/// Carries out a command: writes its reply, or returns why not. A reply begun before an error is taken
/// back.
pub type Handler = fn(&mut Call<'_>) -> Result<(), ReplyError>;

/// What a command does where filters are on a store: see [`filter_store`](crate::filter_store).
#[derive(Clone, Copy)]
pub enum OnStore {
    /// The same as elsewhere: it touches no filter.
    Same,
    /// What this function does. It waits for the network, so it runs on a thread for long work.
    By(Handler),
    /// Nothing. The text says why, and what to do instead.
    Refused(&'static str),
}

/// More words than that take about a millisecond.
pub const MANY: usize = 2048;
/// Requests of more bytes are for a thread of their own, whatever they ask.
const LONG_REQUEST: usize = 256 << 10;

/// A request that was found in the table.
pub struct Request<'a> {
    /// What all clients share.
    pub server: &'a Server,
    /// The row.
    pub command: &'static Command,
    /// The words, the name among them.
    pub arguments: Arguments<'a>,
    /// Milliseconds since 1970.
    pub now: u64,
    /// What the key stands for, if the command has one key and that is there.
    pub entry: Option<Arc<Entry>>,
}

impl<'a> Request<'a> {
    /// Looks the key of a request up: this is the only time.
    pub fn new(
        server: &'a Server,
        command: &'static Command,
        arguments: Arguments<'a>,
        database: usize,
        now: u64,
    ) -> Request<'a> {
        let name = command.keys.only().and_then(|at| arguments.get(at));
        let entry = name.and_then(|name| server.keyspace.get(Key { database, name }, now));
        Request { server, command, arguments, now, entry }
    }

    /// Whether it may take more than a millisecond: by what it is, by its `length` in bytes, or because
    /// somebody has its filter locked for long.
    pub fn is_heavy(&self, session: &SessionState, length: usize) -> bool {
        self.waits_for_store()
            || self.arguments.len() > MANY
            || length > LONG_REQUEST
            || self.waits_for_lock()
            || match self.command.cost {
                Cost::Light => false,
                Cost::Heavy => true,
                Cost::By(weigh) => weigh(self, session),
            }
    }

    /// Whether it asks a store.
    fn waits_for_store(&self) -> bool {
        self.server.stored().is_some() && matches!(self.command.on_store, OnStore::By(_))
    }

    /// Whether it needs a filter that somebody has locked for long. Commands about the key alone do not.
    fn waits_for_lock(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.value.is_busy())
            && matches!(self.command.group, "bf" | "cf" | "ib")
    }

    /// Carries it out, for a session or for EXEC. False if it was refused.
    pub fn carry_out(self, session: &mut SessionState, client: &Client, out: &mut Vec<u8>) -> bool {
        let Request { server, command, arguments, now, entry } = self;
        let mark = out.len();
        let is_change = command.has(Flag::Write);
        if is_change && let Some(failure) = server.trouble() {
            session.refuse(server, out, &failure);
            return false;
        }
        session.is_writing |= is_change;
        session.replies = counted(out.capacity());
        let mut budget = Budget::new(&server.clients, client, session.held());
        let reply = Reply::within(out, session.protocol, &mut budget);
        let mut call = Call { server, session, client, arguments, reply, now, command, entry };
        take_found(); // Of what was done before the command.
        let mut result = command.handler_on(server)(&mut call);
        if let Some(excess) = budget.excess() {
            result = Err(session.exceed(excess));
            out.truncate(mark);
            out.shrink_to(MANY_REPLIES);
        }
        let result = take_found().map_or(result, Err);
        if let Err(failure) = &result {
            out.truncate(mark);
            Reply::new(out, session.protocol).error(failure.text());
            server.statistics.count_error(failure.text());
        }
        result.is_ok()
    }
}

/// A command that is being carried out.
pub struct Call<'a> {
    /// What all clients share.
    pub server: &'a Server,
    /// The client.
    pub session: &'a mut SessionState,
    /// The same, as others know it.
    pub client: &'a Client,
    /// The words, the name among them.
    pub arguments: Arguments<'a>,
    /// Where the reply goes.
    pub reply: Reply<'a>,
    /// Milliseconds since 1970.
    pub now: u64,
    /// The row of the command.
    pub command: &'static Command,
    /// What the key stands for, if the command has one key and that is there.
    pub entry: Option<Arc<Entry>>,
}

impl Command {
    /// A row that the others are written from, with `..Command::NONE`.
    pub const NONE: Command = Command {
        name: "",
        arity: 0,
        flags: Flags::of(&[]),
        categories: &[],
        is_restricted: false,
        is_immediate: false,
        is_secret: false,
        keys: Keys::NONE,
        summary: "",
        syntax: "",
        group: "",
        complexity: "O(1)",
        cost: Cost::Light,
        batched: None,
        handler: |call| Err(ReplyError::arity(call.command.name)),
        on_store: OnStore::Refused("it needs filters in the memory of the server"),
        subcommands: &[],
    };

    /// Whether so many words, the name included, are right.
    pub fn takes(&self, words: usize) -> bool {
        let arity = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { words >= arity } else { words == arity }
    }

    /// What a user must be allowed to run it: the only place that says so.
    pub fn class(&self) -> Class {
        if self.has(Flag::NoAuth) {
            Class::Open
        } else if self.is_restricted || self.has(Flag::Admin) {
            Class::Admin
        } else if self.has(Flag::Write) {
            Class::Write
        } else {
            Class::Read
        }
    }

    /// The function that carries it out, where filters are in memory or on a store.
    fn handler_on(&self, server: &Server) -> Handler {
        match (server.stored(), self.on_store) {
            (Some(_), OnStore::By(handler)) => handler,
            _ => self.handler,
        }
    }

    /// Returns why it is refused where filters are on a store, if this server's are and it is.
    pub fn refusal_on(&self, server: &Server) -> Option<ReplyError> {
        match (server.stored(), self.on_store) {
            (Some(_), OnStore::Refused(reason)) => {
                let name = self.name.to_uppercase().replace('|', " ");
                let text = format!("ERR {name} does not work with --store: {reason}");
                Some(ReplyError::with(text))
            }
            _ => None,
        }
    }

    /// Whether it has a flag.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.has(flag)
    }
}
