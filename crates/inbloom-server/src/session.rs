//! One client: bytes in, bytes out. No socket, no thread, no clock but the one that is read once for
//! each batch.
//!
//! [`Session::process`] takes what has arrived and carries out all requests that are whole. Requests
//! that ask one filter for single keys, one after another, are answered together: their keys are
//! hashed as they come, and the filter is asked once for all of them, so that memory travels for many
//! at a time. A request that may take long is not begun on a thread that has other clients to serve:
//! `process` stops before it and says so, and the caller goes on on a thread where that does no
//! harm.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use inbloom::Digest;

use crate::clients::Client;
use crate::clock::now;
use crate::command_table::{self, Call, Command};
use crate::commands::bloom;
use crate::holdings::{Budget, CONNECTION, Excess};
use crate::keyspace::{Entry, Key, Stamp};
use crate::reply_error::ReplyError;
use crate::resp::{Arguments, Limits, Parser, Protocol, Reply};
use crate::server::Server;
use crate::settings::Settings;
use crate::statistics::{Calls, Slow};
use crate::users::{Class, Identity, Users};
use crate::value::{Value, take_found};

/// A client's state between its requests.
pub struct Session {
    /// What other clients may know.
    pub client: Arc<Client>,
    /// The database that SELECT chose.
    pub database: usize,
    /// RESP2, until HELLO asks for another.
    pub protocol: Protocol,
    /// Who the client is; none: it may do no more than AUTH.
    pub identity: Option<Identity>,
    /// Commands between MULTI and EXEC.
    pub transaction: Option<Transaction>,
    /// Keys that WATCH has named.
    pub watched: Watched,
    /// The bytes of the names that it gave itself.
    pub named: usize,
    /// The bytes of the connection's buffers for requests.
    pub buffered: usize,
    /// The bytes that the command at hand takes beside its reply.
    working: usize,
    /// The bytes of replies that are there while a command runs, if they are many.
    replies: usize,
    /// Why the client is disconnected, if it held too much.
    pub excess: Option<Excess>,
    /// As CLIENT REPLY says.
    pub reply_mode: ReplyMode,
    /// The connection ends after what was written.
    pub is_closing: bool,
    /// Memory that is used again and again.
    pub scratch: Scratch,
    /// Replies to commands that change something, which are good only when that is kept.
    written: Vec<Written>,
    /// Whether the command at hand changes something.
    is_writing: bool,
    parser: Parser,
    /// The bytes of the parser, which is elsewhere while a command runs.
    parsed: usize,
}

/// Replies that say that something was changed.
struct Written {
    /// Where they are.
    range: Range<usize>,
    /// How many.
    count: usize,
}

/// Vectors that would otherwise be allocated for every command.
#[derive(Default)]
pub struct Scratch {
    /// Of the keys of one command, or of a run of commands.
    pub digests: Vec<Digest>,
    /// For each of them.
    pub answers: Vec<bool>,
}

/// Commands that wait for EXEC.
#[derive(Default)]
pub struct Transaction {
    /// As they came in, one behind the other: so they take no more than their bytes.
    pub requests: Vec<u8>,
    /// How many.
    pub count: usize,
    /// One of them was refused: EXEC will refuse all.
    pub is_broken: bool,
    /// One of them may take long.
    pub is_heavy: bool,
}

/// What a key held, and in which state; none: there was no such key.
pub type Seen = Option<(Weak<Entry>, Stamp)>;

/// Keys whose change makes EXEC refuse.
#[derive(Default)]
pub struct Watched {
    /// By database and name: what each held when it was watched, and in which state. Not held on to: a
    /// filter that is deleted meanwhile is freed.
    pub keys: BTreeMap<(usize, Vec<u8>), Seen>,
    /// The bytes of their names.
    pub name_bytes: usize,
}

impl Watched {
    /// What they take: a node of the tree, a name, and the place of an entry that may be deleted.
    fn bytes(&self) -> usize {
        self.name_bytes + self.keys.len() * 320
    }
}

/// Which replies the client wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// All.
    #[default]
    On,
    /// None.
    Off,
    /// Not that of the command that asks so.
    SkipThis,
    /// Not that of the next command.
    SkipNext,
}

/// On what kind of thread the work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Other clients wait for this thread.
    Shared,
    /// Nobody does.
    Own,
}

/// How far [`Session::process`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// What is to be done now.
    pub next: Next,
    /// The replies are good when the log is kept up to here; else see [`Session::withdraw`].
    pub commit: Option<u64>,
}

/// What is to be done after some requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More bytes are needed.
    Read,
    /// The replies should be written before more are made.
    Write,
    /// The next request is for a thread of its own.
    Work,
    /// The connection ends, when the replies are written.
    Close,
}

/// A client's turn on a thread that others wait for.
const TURN: Duration = Duration::from_millis(2);
/// Requests of more bytes are for a thread of their own, whatever they ask.
const LONG_REQUEST: usize = 256 << 10;

/// Replies are written before there are many more bytes of them.
const MANY_REPLIES: usize = 1 << 20;
/// Single keys that are answered together, at most.
const LONGEST_RUN: usize = 1024;
/// Elements for which room is kept from one batch to the next: 64 KiB of digests.
const SCRATCH_KEPT: usize = 4096;
/// What a command of many arguments may take for each of them while it runs: a digest (16 bytes), an
/// answer, a record for the log, and a place in a list of the command's own.
pub const ARGUMENT: usize = 64;
/// No name of a key is longer. Names are copied: by SCAN, by EXPIRE, by WATCH.
const LONGEST_KEY: usize = 64 << 10;

/// What the log says of a client that speaks HTTP.
const HTTP_REQUEST: &str = "closed connections that sent HTTP requests to the port of the Redis \
protocol: a web page may be trying to make browsers send commands";

/// Whether a request begins as one of HTTP: a line of each would be carried out as a command, up to
/// those in its body, which any web page can make a browser send. Every request of HTTP has one of
/// these before its body. Redis ends such connections as well, and at these words.
fn is_http(word: &[u8]) -> bool {
    match word.len() {
        4 => word.eq_ignore_ascii_case(b"post"),
        5 => word.eq_ignore_ascii_case(b"host:"),
        _ => false,
    }
}

/// Single-key requests to one filter, not yet answered.
struct Run<'a> {
    verb: Verb,
    name: &'a [u8],
    entry: Arc<Entry>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Exists,
    Add,
}

impl Session {
    /// A client that has just come.
    pub fn new(client: Arc<Client>, server: &Server) -> Session {
        let mut session = Session {
            client,
            database: 0,
            protocol: Protocol::Resp2,
            identity: None,
            transaction: None,
            watched: Watched::default(),
            named: 0,
            buffered: 0,
            working: 0,
            replies: 0,
            excess: None,
            reply_mode: ReplyMode::On,
            is_closing: false,
            scratch: Scratch::default(),
            written: Vec::new(),
            is_writing: false,
            parser: Parser::new(Limits::before_auth()),
            parsed: 0,
        };
        session.identify(server, Users::stranger);
        session
    }

    /// Makes the client who `find` says that it is, given the users and the password that the
    /// settings ask for. False: nobody, and the client stays who it was. One that is somebody may
    /// send larger requests.
    pub fn identify(
        &mut self,
        server: &Server,
        find: impl Fn(&Users, &str) -> Option<Identity>,
    ) -> bool {
        loop {
            let users = server.users();
            let Some(found) = find(&users, &server.settings().require_pass) else { return false };
            self.client.state.lock().user = Some(Arc::clone(&found.name));
            self.identity = Some(found);
            // Whoever changes the users looks at all clients afterwards: it has seen this one as it
            // is now, or what it has changed is seen here.
            if Arc::ptr_eq(&users, &server.users()) {
                return true;
            }
            self.forget();
        }
    }

    /// Makes the client nobody.
    pub fn forget(&mut self) {
        self.identity = None;
        self.client.state.lock().user = None;
    }

    /// Whether the client may run commands of a class.
    pub fn may(&self, class: Class) -> bool {
        class == Class::Open || self.identity.as_ref().is_some_and(|it| it.role.may(class))
    }

    fn limits(&self, settings: &Settings) -> Limits {
        match self.identity {
            Some(_) => settings.limits(),
            None => Limits::before_auth(),
        }
    }

    /// The bytes that the client holds, without its replies.
    pub fn held(&self) -> u64 {
        let queued = self.transaction.as_ref().map_or(0, |it| it.requests.capacity());
        let Scratch { digests, answers } = &self.scratch;
        let scratch = digests.capacity() * size_of::<Digest>() + answers.capacity();
        let written = self.written.capacity() * size_of::<Written>();
        let own = self.named + self.watched.bytes() + queued + scratch + written;
        CONNECTION + (own + self.buffered + self.parsed + self.working) as u64
    }

    /// Enters what the client holds: all of its own, and so many bytes of replies.
    ///
    /// # Errors
    ///
    /// All clients together hold too much: see [`Server::hold`].
    pub fn hold(&self, server: &Server, replies: usize) -> Result<(), Excess> {
        server.hold(&self.client, self.held() + replies as u64)
    }

    /// Enters what the command at hand takes beside its reply.
    ///
    /// # Errors
    ///
    /// See [`Session::hold`]. The client is disconnected after the reply.
    pub fn work_with(&mut self, server: &Server, bytes: usize) -> Result<(), ReplyError> {
        let before = std::mem::replace(&mut self.working, bytes);
        if bytes <= before {
            return Ok(());
        }
        self.hold(server, self.replies).map_err(|excess| {
            self.working = before;
            self.exceed(excess)
        })
    }

    /// Notes that the client is to be disconnected, and tells it why.
    fn exceed(&mut self, excess: Excess) -> ReplyError {
        self.is_closing = true;
        self.excess = Some(excess);
        ReplyError::because(excess)
    }

    /// Carries out the requests at the beginning of `input`, and appends the replies to `out`.
    pub fn process(
        &mut self,
        server: &Server,
        input: &[u8],
        out: &mut Vec<u8>,
        place: Place,
    ) -> Progress {
        // The parser lends the arguments, while the session is changed by the commands.
        let mut parser = std::mem::replace(&mut self.parser, Parser::new(Limits::default()));
        let mut batch = Batch::new(server);
        self.written.clear();
        self.written.shrink_to(SCRATCH_KEPT);
        parser.set_limits(self.limits(&batch.settings));
        let (consumed, next) =
            self.process_batch(server, &mut parser, &mut batch, input, out, place);
        self.parsed = parser.memory();
        self.parser = parser;
        self.scratch.digests.shrink_to(SCRATCH_KEPT);
        self.scratch.answers.shrink_to(SCRATCH_KEPT);
        batch.finish(self);
        let commit = match server.log() {
            Some(log) if !self.written.is_empty() => Some(log.last()),
            _ => None,
        };
        Progress { consumed, next, commit }
    }

    /// Puts an error in the place of every reply of the last batch which says that something was changed:
    /// that could not be kept.
    ///
    /// # Errors
    ///
    /// All clients together would hold too much: a reply of 4 bytes becomes an error of 200. None of the
    /// replies may be sent then.
    pub fn withdraw(
        &mut self,
        server: &Server,
        out: &mut Vec<u8>,
        failure: &ReplyError,
    ) -> Result<(), Excess> {
        /// What a reply asks for beside its text.
        const FRAMING: usize = 64;
        let errors: usize = self.written.iter().map(|written| written.count).sum();
        let most = out.len() + errors * (failure.text().len() + "-\r\n".len()) + FRAMING;
        // Both are there while one is made of the other.
        self.hold(server, counted(out.capacity() + most))?;
        let replies = std::mem::replace(out, Vec::with_capacity(most));
        let mut done = 0;
        for Written { range, count } in self.written.drain(..) {
            out.extend_from_slice(&replies[done..range.start]);
            for _ in 0..count {
                server.statistics.count_error(failure.text());
                Reply::new(out, self.protocol).error(failure.text());
            }
            done = range.end;
        }
        out.extend_from_slice(&replies[done..]);
        Ok(())
    }

    fn process_batch<'i>(
        &mut self,
        server: &Server,
        parser: &mut Parser,
        batch: &mut Batch<'_>,
        input: &'i [u8],
        out: &mut Vec<u8>,
        place: Place,
    ) -> (usize, Next) {
        let mut run: Option<Run<'i>> = None;
        let mut consumed = 0;
        let next = loop {
            if self.is_closing {
                break Next::Close;
            }
            if out.len() >= MANY_REPLIES {
                break Next::Write;
            }
            let rest = &input[consumed..];
            if place == Place::Shared && !rest.is_empty() && batch.begun.elapsed() > TURN {
                break Next::Work;
            }
            let length = match parser.next(rest) {
                Ok(Some(length)) => length,
                Ok(None) => break Next::Read,
                Err(error) => {
                    if let Some(run) = run.take() {
                        self.answer(server, batch, run, out);
                    }
                    self.is_closing = true;
                    let text = format!("ERR Protocol error: {error}");
                    server.statistics.count_error(&text);
                    Reply::new(out, self.protocol).error(&text);
                    break Next::Close;
                }
            };
            let arguments = parser.arguments(rest);
            if let Some((verb, name)) = self.single(rest, arguments) {
                let same = run.as_ref().is_some_and(|run| run.verb == verb && run.name == name);
                if !same || self.scratch.digests.len() >= LONGEST_RUN {
                    if let Some(run) = run.take() {
                        self.answer(server, batch, run, out);
                    }
                    run = self.begin(server, batch, verb, name, place);
                }
                if run.is_some() {
                    self.scratch.digests.push(server.hasher.digest(&arguments[2]));
                    consumed += length;
                    continue;
                }
            }
            if let Some(run) = run.take() {
                self.answer(server, batch, run, out);
            }
            if !arguments.is_empty() {
                if is_http(&arguments[0]) {
                    self.is_closing = true;
                    server.http_requests.warn(HTTP_REQUEST);
                    break Next::Close;
                }
                self.parsed = parser.memory();
                let raw = &rest[..length];
                if !self.command(server, batch, arguments, raw, out, place) {
                    break Next::Work;
                }
                // AUTH and HELLO have lifted them, or RESET has put them back.
                parser.set_limits(self.limits(&batch.settings));
            }
            consumed += length;
        };
        if let Some(run) = run.take() {
            self.answer(server, batch, run, out);
        }
        (consumed, next)
    }

    /// Whether a request is one for a single key that can be answered together with others: its verb
    /// and the filter's name, which is a part of `input`.
    fn single<'i>(&self, input: &'i [u8], arguments: Arguments<'_>) -> Option<(Verb, &'i [u8])> {
        if arguments.len() != 3 || !self.is_plain() {
            return None;
        }
        let verb = match arguments[0].len() {
            9 if arguments[0].eq_ignore_ascii_case(b"bf.exists") => Verb::Exists,
            6 if arguments[0].eq_ignore_ascii_case(b"bf.add") => Verb::Add,
            _ => return None,
        };
        let class = if verb == Verb::Add { Class::Write } else { Class::Read };
        if !self.may(class) {
            return None;
        }
        // An inline request's words may be elsewhere.
        let at = (arguments[1].as_ptr() as usize).checked_sub(input.as_ptr() as usize)?;
        Some((verb, input.get(at..at + arguments[1].len())?))
    }

    fn is_plain(&self) -> bool {
        self.transaction.is_none() && self.reply_mode == ReplyMode::On
    }

    /// Begins to collect keys for a filter, if it is one that can answer them together here.
    fn begin<'i>(
        &mut self,
        server: &Server,
        batch: &mut Batch<'_>,
        verb: Verb,
        name: &'i [u8],
        place: Place,
    ) -> Option<Run<'i>> {
        let key = Key { database: self.database, name };
        let entry = server.keyspace.get(key, batch.now())?;
        let Value::Bloom(bloom) = &entry.value else { return None };
        let is_delayed = || place == Place::Shared && bloom.may_pause();
        if verb == Verb::Add && (is_delayed() || server.trouble().is_some()) {
            return None;
        }
        self.scratch.digests.clear();
        Some(Run { verb, name, entry })
    }

    /// Answers the collected keys.
    fn answer(&mut self, server: &Server, batch: &mut Batch<'_>, run: Run<'_>, out: &mut Vec<u8>) {
        let Value::Bloom(bloom) = &run.entry.value else { unreachable!("see `begin`") };
        let Scratch { digests, answers } = &mut self.scratch;
        let mut reply = Reply::new(out, self.protocol);
        let mut failed = 0;
        let name = match run.verb {
            Verb::Exists => {
                bloom.contains(digests, answers);
                server.statistics.hits.fetch_add(digests.len() as u64, Ordering::Relaxed);
                server.statistics.count_asked(digests.len());
                reply.truths(answers);
                "bf.exists"
            }
            Verb::Add => {
                let (mark, count) = (reply.mark(), digests.len());
                let mut rest = &digests[..];
                while !rest.is_empty() {
                    let result = bloom::insert(server, &run.entry, bloom, rest, answers);
                    reply.truths(answers);
                    rest = &rest[answers.len()..];
                    server.statistics.count_added(answers.len());
                    if let Err(failure) = result {
                        // Only the key that was refused: those after it may be known.
                        reply.error(failure.text());
                        server.statistics.count_error(failure.text());
                        failed += 1;
                        rest = &rest[1..];
                    }
                }
                self.written.push(Written { range: mark..reply.mark(), count });
                "bf.add"
            }
        };
        let calls = digests.len() as u64;
        digests.clear();
        batch.count(name, calls, failed);
    }

    /// Carries out one command, and keeps its reply if the client wants it. False: it has to be done
    /// elsewhere, and nothing was done.
    fn command(
        &mut self,
        server: &Server,
        batch: &mut Batch<'_>,
        arguments: Arguments<'_>,
        raw: &[u8],
        out: &mut Vec<u8>,
        place: Place,
    ) -> bool {
        let mark = out.len();
        self.is_writing = false;
        if !self.carry_out(server, batch, arguments, raw, out, place) {
            return false;
        }
        if self.reply_mode != ReplyMode::On {
            out.truncate(mark);
        }
        if self.is_writing {
            let count = usize::from(out.len() > mark);
            self.written.push(Written { range: mark..out.len(), count });
        }
        self.reply_mode = match self.reply_mode {
            ReplyMode::SkipThis => ReplyMode::SkipNext,
            ReplyMode::SkipNext => ReplyMode::On,
            same => same,
        };
        true
    }

    fn carry_out(
        &mut self,
        server: &Server,
        batch: &mut Batch<'_>,
        arguments: Arguments<'_>,
        raw: &[u8],
        out: &mut Vec<u8>,
        place: Place,
    ) -> bool {
        let command = match command_table::resolve(arguments) {
            Ok(command) if command.takes(arguments.len()) => command,
            Ok(command) => {
                batch.reject(command.name);
                self.refuse(server, out, &ReplyError::arity(command.name));
                return true;
            }
            Err(failure) => {
                self.refuse(server, out, &failure);
                return true;
            }
        };
        if let Err(failure) = self.check(server, command) {
            batch.reject(command.name);
            self.refuse(server, out, &failure);
            return true;
        }
        if let Err(failure) = check_names(command, arguments, raw) {
            batch.reject(command.name);
            self.refuse(server, out, &failure);
            return true;
        }
        if self.transaction.is_some() && !command.has("transaction") {
            if let Err(failure) = self.queue(server, batch, command, arguments, raw) {
                batch.reject(command.name);
                self.refuse(server, out, &failure);
                return true;
            }
            Reply::new(out, self.protocol).simple("QUEUED");
            return true;
        }
        if place == Place::Shared && self.is_heavy(server, command, arguments, raw) {
            return false;
        }
        if arguments.len() > bloom::MANY
            && let Err(failure) = self.work_with(server, arguments.len() * ARGUMENT)
        {
            batch.reject(command.name);
            self.refuse(server, out, &failure);
            return true;
        }
        let now = batch.now();
        let client = batch.client.get_or_init(|| Arc::clone(&self.client));
        let failed = !self.call(server, client, command, arguments, out, now);
        self.working = 0;
        let nanos = batch.count(command.name, 1, u64::from(failed));
        batch.remember_if_slow(self, command, arguments, nanos);
        true
    }

    /// Whether the client may run a command, now.
    fn check(&self, server: &Server, command: &Command) -> Result<(), ReplyError> {
        if !self.may(command.class()) {
            let Some(identity) = &self.identity else {
                return Err(ReplyError::new("NOAUTH Authentication required."));
            };
            server.statistics.forbidden.fetch_add(1, Ordering::Relaxed);
            return Err(ReplyError::with(format!(
                "NOPERM User {} has no permissions to run the '{}' command",
                identity.name, command.name
            )));
        }
        if self.transaction.is_some() && command.has("no_multi") {
            return Err(ReplyError::new("ERR Command not allowed inside a transaction"));
        }
        Ok(())
    }

    /// Whether a command may take more than a millisecond: by what it is, by its length, or because
    /// somebody has its filter locked for long.
    fn is_heavy(
        &self,
        server: &Server,
        command: &Command,
        arguments: Arguments<'_>,
        raw: &[u8],
    ) -> bool {
        if arguments.len() > bloom::MANY || raw.len() > LONG_REQUEST {
            return true;
        }
        if matches!(command.group, "bf" | "cf")
            && let Some(name) = arguments.get(1)
        {
            let key = Key { database: self.database, name };
            let entry = server.keyspace.get(key, 0);
            if entry.is_some_and(|entry| entry.value.is_busy()) {
                return true;
            }
        }
        (command.is_heavy)(server, self, arguments)
    }

    /// Calls a command's function, which is also how EXEC works. False if it was refused.
    pub fn call(
        &mut self,
        server: &Server,
        client: &Client,
        command: &'static Command,
        arguments: Arguments<'_>,
        out: &mut Vec<u8>,
        now: u64,
    ) -> bool {
        let mark = out.len();
        let is_change = command.has("write");
        if is_change && let Some(failure) = server.trouble() {
            self.refuse(server, out, &failure);
            return false;
        }
        self.is_writing |= is_change;
        self.replies = counted(out.capacity());
        let budget = Budget::new(server, client, self.held());
        let reply = Reply::within(out, self.protocol, budget);
        let mut call = Call { server, session: self, client, arguments, reply, now, command };
        take_found(); // Of what was done before the command.
        let mut result = (command.handler)(&mut call);
        if let Some(excess) = call.reply.excess() {
            result = Err(self.exceed(excess));
            out.truncate(mark);
            out.shrink_to(MANY_REPLIES);
        }
        let result = take_found().map_or(result, Err);
        if let Err(failure) = &result {
            out.truncate(mark);
            Reply::new(out, self.protocol).error(failure.text());
            server.statistics.count_error(failure.text());
        }
        result.is_ok()
    }

    fn refuse(&mut self, server: &Server, out: &mut Vec<u8>, failure: &ReplyError) {
        if let Some(transaction) = &mut self.transaction {
            transaction.is_broken = true;
        }
        server.statistics.count_error(failure.text());
        Reply::new(out, self.protocol).error(failure.text());
    }

    /// Keeps a command for EXEC. False if there are too many.
    fn queue(
        &mut self,
        server: &Server,
        batch: &Batch<'_>,
        command: &'static Command,
        arguments: Arguments<'_>,
        raw: &[u8],
    ) -> Result<(), ReplyError> {
        let is_heavy = self.is_heavy(server, command, arguments, raw);
        let transaction = self.transaction.as_mut().expect("asked by the caller");
        let most = batch.settings.max_multi;
        let needed = transaction.requests.len() + raw.len();
        if needed > most {
            return Err(ReplyError::with(format!(
                "ERR MULTI takes at most {most} bytes of commands, which --max-multi sets; use EXEC"
            )));
        }
        transaction.is_heavy |= is_heavy;
        let capacity = transaction.requests.capacity();
        if needed > capacity {
            let grown = needed.max(2 * capacity);
            // Both are there while one is copied to the other.
            self.work_with(server, grown)?;
            self.working = 0;
            let transaction = self.transaction.as_mut().expect("asked by the caller");
            transaction.requests.reserve_exact(grown - transaction.requests.len());
        }
        let transaction = self.transaction.as_mut().expect("asked by the caller");
        transaction.requests.extend_from_slice(raw);
        transaction.count += 1;
        Ok(())
    }
}

/// What counts of a buffer of replies: small ones are lent by a thread from one client to the next.
pub fn counted(capacity: usize) -> usize {
    if capacity > MANY_REPLIES { capacity } else { 0 }
}

/// Refuses keys with names that are too long to be copied about.
fn check_names(command: &Command, arguments: Arguments<'_>, raw: &[u8]) -> Result<(), ReplyError> {
    // Nearly every request is shorter than one such name.
    if raw.len() <= LONGEST_KEY {
        return Ok(());
    }
    let longest = command.keys.places(arguments.len()).map(|at| arguments[at].len()).max();
    match longest {
        Some(length) if length > LONGEST_KEY => Err(ReplyError::with(format!(
            "ERR the name of a key has {length} bytes, the limit is {LONGEST_KEY}: use a shorter one"
        ))),
        _ => Ok(()),
    }
}

/// What is counted while a batch of requests is worked on, and told at its end, all at once.
struct Batch<'a> {
    server: &'a Server,
    /// As they were when the batch began.
    settings: Arc<Settings>,
    now: u64,
    begun: Instant,
    since: Instant,
    calls: Vec<(&'static str, Calls)>,
    /// As long as the session is lent to a command.
    client: OnceCell<Arc<Client>>,
}

impl<'a> Batch<'a> {
    fn new(server: &'a Server) -> Batch<'a> {
        let begun = Instant::now();
        let settings = server.settings();
        let (calls, client) = (Vec::new(), OnceCell::new());
        Batch { server, settings, now: 0, begun, since: begun, calls, client }
    }

    /// Milliseconds since 1970, read once, and again after what took long.
    fn now(&mut self) -> u64 {
        if self.now == 0 {
            self.now = now();
        }
        self.now
    }

    /// Counts calls that were made since the last ones, and tells their time.
    fn count(&mut self, name: &'static str, calls: u64, failed: u64) -> u64 {
        let at = Instant::now();
        let nanos = (at - self.since).as_nanos() as u64;
        self.since = at;
        if nanos > 1_000_000 {
            self.now = 0;
        }
        self.add(name, Calls { calls, nanos, failed, rejected: 0 });
        nanos
    }

    /// Counts a call that was refused before it began.
    fn reject(&mut self, name: &'static str) {
        self.add(name, Calls { rejected: 1, ..Calls::default() });
    }

    fn add(&mut self, name: &'static str, more: Calls) {
        match self.calls.iter_mut().find(|(counted, _)| std::ptr::eq(*counted, name)) {
            Some((_, sum)) => sum.add(more),
            None => self.calls.push((name, more)),
        }
    }

    fn remember_if_slow(
        &mut self,
        session: &Session,
        command: &Command,
        arguments: Arguments<'_>,
        nanos: u64,
    ) {
        let settings = self.server.settings();
        let Ok(threshold) = u64::try_from(settings.slowlog_log_slower_than) else { return };
        let micros = nanos / 1000;
        if micros < threshold {
            return;
        }
        tracing::debug!(
            command = command.name,
            micros,
            client = %session.client.address,
            "a command took long"
        );
        // Passwords are nobody's business.
        let is_secret = matches!(command.name, "auth" | "hello" | "config|set");
        let most_words = if is_secret { 1 } else { 32 };
        let words = arguments.iter().take(most_words).map(|word| {
            let mut shown = word[..word.len().min(128)].to_vec();
            if word.len() > 128 {
                let more = word.len() - 128;
                shown.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
            }
            shown
        });
        let slow = Slow {
            id: 0,
            at: now() / 1000,
            micros,
            words: words.collect(),
            address: session.client.address.clone(),
            name: session.client.state.lock().name.clone(),
        };
        self.server.slow_log.lock().remember(slow, settings.slowlog_max_len);
    }

    fn finish(self, session: &Session) {
        let Some((last, _)) = self.calls.last() else {
            // A part of a request has come: that is not idle.
            session.client.state.lock().active = Some(self.since);
            return;
        };
        let total = self.calls.iter().map(|(_, calls)| calls.calls).sum();
        self.server.statistics.commands.fetch_add(total, Ordering::Relaxed);
        session.client.commands.fetch_add(total, Ordering::Relaxed);
        {
            let mut state = session.client.state.lock();
            state.last = last;
            state.active = Some(self.since);
            state.database = session.database;
            state.protocol = if session.protocol == Protocol::Resp3 { 3 } else { 2 };
            state.queued = session.transaction.as_ref().map_or(-1, |t| t.count as i64);
            state.watched = session.watched.keys.len();
        }
        let mut by_command = self.server.statistics.by_command.lock();
        for (name, calls) in &self.calls {
            by_command.entry(name).or_default().add(*calls);
        }
    }
}
