//! One client: bytes in, bytes out. No socket, no thread, no clock but the one that is read once for
//! each batch.
//!
//! [`Session::process`] takes what has arrived and carries out all requests that are whole. Every request
//! goes the same way: its row of the table, the checks that the row asks for, one look-up of its key, and
//! the function of the row. A row may say that single-key calls are answered in a batch. Then the
//! items of such calls to one filter are hashed as they come, and the filter is asked once for all of
//! them, so that memory travels for many at a time. The first call of such a run is checked like any
//! other. The calls that follow it differ from it in nothing but the item. A call that differs in the
//! key too begins the next run: its key is looked up, and what was checked of the command still holds.
//!
//! A request that may take long is not begun on a thread that has other clients to serve: `process` stops
//! before it and says so, and the caller goes on on a thread where that does no harm.

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use inbloom::interop::redisbloom::Hash;

use crate::clients::Client;
use crate::clients::holdings::Excess;
use crate::clock::now;
use crate::command::{
    Batch, Batched, Command, Flag, Hashing, LONGEST_RUN, MANY, Request, StoredBatch,
};
use crate::commands::table;
use crate::keyspace::Entry;
use crate::reply_error::ReplyError;
use crate::resp::{Arguments, Limits, Parser, Protocol, Reply};
use crate::server::Server;
use crate::session_state::{ARGUMENT, MANY_REPLIES, ReplyMode, Scratch, SessionState, counted};
use crate::settings::Settings;
use crate::statistics::{Calls, SlowCommand};

/// A client, and what of its requests is being worked on.
pub struct Session {
    /// What is there between its requests.
    pub state: SessionState,
    /// Replies to commands that change something, which are good only when that is kept.
    written: Vec<WrittenReplies>,
    parser: Parser,
    /// The row of the last command that has no subcommands: most clients repeat themselves.
    last: Option<&'static Command>,
}

/// Replies that say that something was changed.
struct WrittenReplies {
    /// Where they are.
    range: Range<usize>,
    /// How many.
    count: usize,
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
/// Elements for which room is kept from one batch to the next: 64 KiB of digests.
const SCRATCH_KEPT: usize = 4096;
/// No name of a key is longer. Names are copied: by SCAN, by EXPIRE, by WATCH.
const LONGEST_KEY: usize = 64 << 10;

/// What the log says of a client that speaks HTTP.
const HTTP_REQUEST: &str = "closed connections that sent HTTP to the Redis port";

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

/// Calls of one command for single items of one filter, not yet answered.
struct Run<'i> {
    command: &'static Command,
    batched: &'static Batched,
    /// The command as the client spells it.
    word: &'i [u8],
    /// The key.
    name: &'i [u8],
    of: RunOf<'i>,
    /// The calls so far.
    calls: usize,
    /// The most that it takes.
    most: usize,
}

/// The filter of a run, and where its items are until they are answered.
enum RunOf<'i> {
    /// One in memory. The hashes of the items are in the scratch.
    Entry(Arc<Entry>),
    /// One on a store, which hashes for itself.
    Stored(Vec<&'i [u8]>),
}

impl Run<'_> {
    /// Whether a request is one more of these.
    fn takes(&self, arguments: Arguments<'_>) -> bool {
        arguments.len() == 3 && arguments[1] == *self.name && arguments[0] == *self.word
    }

    /// Whether a request is one of the same command, for any filter.
    fn repeats(&self, arguments: Arguments<'_>) -> bool {
        arguments.len() == 3 && arguments[0] == *self.word
    }
}

impl<'i> Run<'i> {
    /// Collects the item of a request that is one more of these. False if there is no room for it.
    fn collect(
        &mut self,
        server: &Server,
        scratch: &mut Scratch,
        raw: &'i [u8],
        item: &[u8],
    ) -> bool {
        if self.calls == self.most {
            return false;
        }
        match (&mut self.of, self.batched.hashing) {
            (RunOf::Entry(_), Hashing::Digest) => scratch.digests.push(server.hasher.digest(item)),
            (RunOf::Entry(_), Hashing::RedisBloom) => scratch.hashes.push(Hash::of(item)),
            (RunOf::Stored(items), _) => match part_of(raw, item) {
                Some(item) => items.push(item),
                None => return false,
            },
        }
        self.calls += 1;
        true
    }
}

/// What became of a request.
enum Step<'i> {
    /// It is answered.
    Done,
    /// It has begun a run.
    Collected(Run<'i>),
    /// It has to be done on a thread of its own, and nothing was done.
    Elsewhere,
}

/// A request as it came in.
#[derive(Clone, Copy)]
struct Words<'i, 'p> {
    /// Its bytes.
    raw: &'i [u8],
    /// The words.
    arguments: Arguments<'p>,
}

impl Session {
    /// A client that has just come.
    pub fn new(client: Arc<Client>, server: &Server) -> Session {
        Session {
            state: SessionState::new(client, server),
            written: Vec::new(),
            parser: Parser::new(Limits::before_auth()),
            last: None,
        }
    }

    fn limits(&self, settings: &Settings) -> Limits {
        match self.state.identity {
            Some(_) => settings.limits(),
            None => Limits::before_auth(),
        }
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
        let mut tally = Tally::new(server);
        self.written.clear();
        self.written.shrink_to(SCRATCH_KEPT);
        parser.set_limits(self.limits(&tally.settings));
        let (consumed, next) = self.process_all(server, &mut parser, &mut tally, input, out, place);
        self.note_memory(&parser);
        self.parser = parser;
        self.state.scratch.clear(SCRATCH_KEPT);
        tally.finish(&self.state);
        let commit = match server.log() {
            Some(log) if !self.written.is_empty() => Some(log.last()),
            _ => None,
        };
        Progress { consumed, next, commit }
    }

    /// Notes what the session itself takes, for the client's account.
    fn note_memory(&mut self, parser: &Parser) {
        self.state.parsed = parser.memory() + self.written.capacity() * size_of::<WrittenReplies>();
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
        self.state.hold(server, counted(out.capacity() + most))?;
        let replies = std::mem::replace(out, Vec::with_capacity(most));
        let mut done = 0;
        for WrittenReplies { range, count } in self.written.drain(..) {
            out.extend_from_slice(&replies[done..range.start]);
            for _ in 0..count {
                server.statistics.count_error(failure.text());
                Reply::new(out, self.state.protocol).error(failure.text());
            }
            done = range.end;
        }
        out.extend_from_slice(&replies[done..]);
        Ok(())
    }

    fn process_all<'i>(
        &mut self,
        server: &Server,
        parser: &mut Parser,
        tally: &mut Tally<'_>,
        input: &'i [u8],
        out: &mut Vec<u8>,
        place: Place,
    ) -> (usize, Next) {
        let mut run: Option<Run<'i>> = None;
        let mut consumed = 0;
        let next = loop {
            if self.state.is_closing {
                break Next::Close;
            }
            if out.len() >= MANY_REPLIES {
                break Next::Write;
            }
            let rest = &input[consumed..];
            if place == Place::Shared && !rest.is_empty() && tally.worked(run.is_some()) > TURN {
                break Next::Work;
            }
            let length = match parser.next(rest) {
                Ok(Some(length)) => length,
                Ok(None) => break Next::Read,
                Err(error) => {
                    if let Some(run) = run.take() {
                        self.answer(server, tally, run, out);
                    }
                    self.state.is_closing = true;
                    let text = format!("ERR Protocol error: {error}");
                    server.statistics.count_error(&text);
                    Reply::new(out, self.state.protocol).error(&text);
                    break Next::Close;
                }
            };
            let arguments = parser.arguments(rest);
            if let Some(run) = &mut run
                && run.takes(arguments)
                && run.collect(server, &mut self.state.scratch, &rest[..length], &arguments[2])
            {
                consumed += length;
                continue;
            }
            let words = Words { raw: &rest[..length], arguments };
            if let Some(ended) = run.take() {
                let repeated = ended.repeats(arguments).then_some(ended.command);
                self.answer(server, tally, ended, out);
                run =
                    repeated.and_then(|command| self.repeat(server, tally, command, words, place));
                if run.is_some() {
                    consumed += length;
                    continue;
                }
            }
            if !arguments.is_empty() {
                if is_http(&arguments[0]) {
                    self.state.is_closing = true;
                    server.http_requests.warn(HTTP_REQUEST);
                    break Next::Close;
                }
                self.note_memory(parser);
                match self.command(server, tally, words, out, place) {
                    // AUTH and HELLO have lifted them, or RESET has put them back.
                    Step::Done => parser.set_limits(self.limits(&tally.settings)),
                    Step::Collected(begun) => run = Some(begun),
                    Step::Elsewhere => break Next::Work,
                }
            }
            consumed += length;
        };
        if let Some(run) = run.take() {
            self.answer(server, tally, run, out);
        }
        (consumed, next)
    }

    /// Carries out one request, and keeps its reply if the client wants it.
    fn command<'i>(
        &mut self,
        server: &Server,
        tally: &mut Tally<'_>,
        words: Words<'i, '_>,
        out: &mut Vec<u8>,
        place: Place,
    ) -> Step<'i> {
        let mark = out.len();
        self.state.is_writing = false;
        let step = match self.dispatch(server, tally, words, out, place) {
            Ok(step) => step,
            Err(failure) => {
                self.state.refuse(server, out, &failure);
                Step::Done
            }
        };
        if !matches!(step, Step::Done) {
            return step;
        }
        if self.state.reply_mode != ReplyMode::On {
            out.truncate(mark);
        }
        if self.state.is_writing {
            let count = usize::from(out.len() > mark);
            self.written.push(WrittenReplies { range: mark..out.len(), count });
        }
        self.state.reply_mode = match self.state.reply_mode {
            ReplyMode::SkipThis => ReplyMode::SkipNext,
            ReplyMode::SkipNext => ReplyMode::On,
            same => same,
        };
        step
    }

    /// Finds the row of a request, checks what the row asks for, looks the key up, and then queues the
    /// request, collects it for a run, leaves it to another thread, or carries it out.
    ///
    /// # Errors
    ///
    /// Why it is refused before it begins.
    fn dispatch<'i>(
        &mut self,
        server: &Server,
        tally: &mut Tally<'_>,
        words: Words<'i, '_>,
        out: &mut Vec<u8>,
        place: Place,
    ) -> Result<Step<'i>, ReplyError> {
        let Words { raw, arguments } = words;
        let command = self.resolve(arguments)?;
        self.check(server, command, words).inspect_err(|_| tally.reject(command.name))?;
        let database = self.state.database;
        let request = Request::new(server, command, arguments, database, tally.now());
        if self.state.transaction.is_some() && !command.is_immediate {
            let is_heavy = request.is_heavy(&self.state, raw.len());
            let queued = self.queue(server, &tally.settings, is_heavy, raw);
            queued.inspect_err(|_| tally.reject(command.name))?;
            Reply::new(out, self.state.protocol).simple("QUEUED");
            return Ok(Step::Done);
        }
        if place == Place::Shared && request.is_heavy(&self.state, raw.len()) {
            return Ok(Step::Elsewhere);
        }
        let request = match self.begin(request, raw) {
            Ok(run) => return Ok(Step::Collected(run)),
            Err(request) => request,
        };
        if arguments.len() > MANY {
            let held = self.state.work_with(server, arguments.len() * ARGUMENT);
            held.inspect_err(|_| tally.reject(command.name))?;
        }
        let client = tally.client.get_or_init(|| Arc::clone(&self.state.client));
        let failed = !request.carry_out(&mut self.state, client, out);
        self.state.working = 0;
        let nanos = tally.count(command.name, 1, u64::from(failed));
        tally.remember_if_slow(&self.state, command, arguments, nanos);
        Ok(Step::Done)
    }

    /// Finds the row of a request.
    fn resolve(&mut self, arguments: Arguments<'_>) -> Result<&'static Command, ReplyError> {
        let name = &arguments[0];
        if let Some(last) = self.last
            && name.eq_ignore_ascii_case(last.name.as_bytes())
        {
            return Ok(last);
        }
        let command = table::resolve(arguments)?;
        // The name of a subcommand is longer than the first word.
        if command.subcommands.is_empty() && command.name.len() == name.len() {
            self.last = Some(command);
        }
        Ok(command)
    }

    /// Refuses a request of a wrong number of words, of a client that may not run the command, or that
    /// names a key of too many bytes.
    fn check(
        &self,
        server: &Server,
        command: &Command,
        words: Words<'_, '_>,
    ) -> Result<(), ReplyError> {
        if !command.takes(words.arguments.len()) {
            return Err(ReplyError::arity(command.name));
        }
        if !self.state.may(command.class()) {
            let Some(identity) = &self.state.identity else {
                return Err(ReplyError::new("NOAUTH Authentication required."));
            };
            server.statistics.forbidden.fetch_add(1, Ordering::Relaxed);
            return Err(ReplyError::with(format!(
                "NOPERM User {} has no permissions to run the '{}' command",
                identity.name, command.name
            )));
        }
        if let Some(refusal) = command.refusal_on(server) {
            return Err(refusal);
        }
        if self.state.transaction.is_some() && command.has(Flag::NoMulti) {
            return Err(ReplyError::new("ERR Command not allowed inside a transaction"));
        }
        check_names(command, words.arguments, words.raw)
    }

    /// Begins the next run of a command whose last run has just ended. Nothing has changed since its
    /// first call was checked. None: the request goes the way of any other.
    fn repeat<'i>(
        &mut self,
        server: &Server,
        tally: &mut Tally<'_>,
        command: &'static Command,
        words: Words<'i, '_>,
        place: Place,
    ) -> Option<Run<'i>> {
        let Words { raw, arguments } = words;
        if raw.len() > LONGEST_KEY {
            return None;
        }
        let request = Request::new(server, command, arguments, self.state.database, tally.now());
        if place == Place::Shared && request.is_heavy(&self.state, raw.len()) {
            return None;
        }
        self.begin(request, raw).ok()
    }

    /// Begins to collect items, if the command and the filter can answer several calls at once.
    fn begin<'i, 'r>(
        &mut self,
        mut request: Request<'r>,
        raw: &'i [u8],
    ) -> Result<Run<'i>, Request<'r>> {
        let Request { server, command, arguments, .. } = request;
        let Some(batched) = &command.batched else { return Err(request) };
        let is_answered = self.state.reply_mode == ReplyMode::On;
        let is_kept = !command.has(Flag::Write) || server.trouble().is_none();
        let part = |at: usize| part_of(raw, &arguments[at]);
        let (Some(word), Some(name)) = (part(0), part(1)) else { return Err(request) };
        let is_stored = server.stored().is_some();
        let most = match &request.entry {
            _ if !is_answered || !is_kept => 0,
            _ if is_stored && batched.on_store.is_some() && part(2).is_some() => LONGEST_RUN,
            Some(entry) if !is_stored => (batched.most)(&entry.value),
            _ => 0,
        };
        if most == 0 {
            return Err(request);
        }
        let entry = request.entry.take().filter(|_| !is_stored);
        let of = entry.map_or_else(|| RunOf::Stored(Vec::new()), RunOf::Entry);
        let mut run = Run { command, batched, word, name, of, calls: 0, most };
        let scratch = &mut self.state.scratch;
        // A command of many items may have left its own.
        scratch.digests.clear();
        scratch.hashes.clear();
        let is_collected = run.collect(server, scratch, raw, &arguments[2]);
        debug_assert!(is_collected, "there is room, and the item is a part of the request");
        Ok(run)
    }

    /// Answers the collected calls.
    fn answer(&mut self, server: &Server, tally: &mut Tally<'_>, run: Run<'_>, out: &mut Vec<u8>) {
        let Run { command, batched, name, of, calls, .. } = run;
        let mark = out.len();
        let reply = Reply::new(out, self.state.protocol);
        let failed = match (&of, batched.on_store) {
            (RunOf::Entry(entry), _) => {
                let scratch = &mut self.state.scratch;
                (batched.answer)(&mut Batch { server, entry, scratch, reply })
            }
            (RunOf::Stored(items), Some(answer)) => {
                answer(&mut StoredBatch { server, name, items, reply })
            }
            (RunOf::Stored(_), None) => unreachable!("see `begin`"),
        };
        if command.has(Flag::Write) {
            self.written.push(WrittenReplies { range: mark..out.len(), count: calls });
        }
        tally.count(command.name, calls as u64, failed);
    }

    /// Keeps a command for EXEC.
    ///
    /// # Errors
    ///
    /// There are too many, or all clients together hold too much.
    fn queue(
        &mut self,
        server: &Server,
        settings: &Settings,
        is_heavy: bool,
        raw: &[u8],
    ) -> Result<(), ReplyError> {
        let transaction = self.state.transaction.as_mut().expect("asked by the caller");
        let most = settings.max_multi;
        let needed = transaction.requests.len() + raw.len();
        if needed > most {
            return Err(ReplyError::with(format!(
                "ERR the commands in MULTI take more than {most} bytes, the limit of --max-multi: \
                 use EXEC"
            )));
        }
        transaction.is_heavy |= is_heavy;
        let capacity = transaction.requests.capacity();
        if needed > capacity {
            let grown = needed.max(2 * capacity);
            // Both are there while one is copied to the other.
            self.state.work_with(server, grown)?;
            self.state.working = 0;
            let transaction = self.state.transaction.as_mut().expect("asked by the caller");
            transaction.requests.reserve_exact(grown - transaction.requests.len());
        }
        let transaction = self.state.transaction.as_mut().expect("asked by the caller");
        transaction.requests.extend_from_slice(raw);
        transaction.count += 1;
        Ok(())
    }
}

/// A word of a request as a part of the request's bytes. None: the words of an inline request may be
/// elsewhere.
fn part_of<'i>(raw: &'i [u8], word: &[u8]) -> Option<&'i [u8]> {
    let at = (word.as_ptr() as usize).checked_sub(raw.as_ptr() as usize)?;
    raw.get(at..at + word.len())
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
            "ERR the name of a key has {length} bytes, the limit is {LONGEST_KEY}"
        ))),
        _ => Ok(()),
    }
}

/// What is counted while a batch of requests is worked on, and reported at its end, all at once.
struct Tally<'a> {
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

impl<'a> Tally<'a> {
    fn new(server: &'a Server) -> Tally<'a> {
        let begun = Instant::now();
        let settings = server.settings();
        let (calls, client) = (Vec::new(), OnceCell::new());
        Tally { server, settings, now: 0, begun, since: begun, calls, client }
    }

    /// Milliseconds since 1970, read once, and again after what took long.
    fn now(&mut self) -> u64 {
        if self.now == 0 {
            self.now = now();
        }
        self.now
    }

    /// How long the batch has been worked on. While calls are collected for a run, that is as of the
    /// last run: to collect a call takes as long as to read the clock.
    fn worked(&self, is_collecting: bool) -> Duration {
        match is_collecting {
            true => self.since - self.begun,
            false => self.begun.elapsed(),
        }
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
        session: &SessionState,
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
            "slow command"
        );
        let most_words = if command.is_secret { 1 } else { 32 };
        let words = arguments.iter().take(most_words).map(|word| {
            let mut shown = word[..word.len().min(128)].to_vec();
            if word.len() > 128 {
                let more = word.len() - 128;
                shown.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
            }
            shown
        });
        let slow = SlowCommand {
            id: 0,
            at: now() / 1000,
            micros,
            words: words.collect(),
            address: session.client.address.clone(),
            name: session.client.state.lock().name.clone(),
        };
        self.server.slow_log.lock().remember(slow, settings.slowlog_max_len);
    }

    fn finish(self, session: &SessionState) {
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
