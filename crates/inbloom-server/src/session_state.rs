//! What a client's requests leave behind for its next ones, and what commands may see and change of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use inbloom::Digest;
use inbloom::interop::redisbloom::Hash;

use crate::clients::Client;
use crate::clients::holdings::{CONNECTION, Excess};
use crate::keyspace::{Entry, Stamp};
use crate::reply_error::ReplyError;
use crate::resp::{Protocol, Reply};
use crate::server::Server;
use crate::users::{Class, Identity, Users};

/// Replies are written before there are many more bytes of them.
pub const MANY_REPLIES: usize = 1 << 20;
/// What a command of many arguments may take for each of them while it runs: a digest (16 bytes), an
/// answer, a record for the log, and a place in a list of the command's own.
pub const ARGUMENT: usize = 64;

/// A client's state between its requests.
pub struct SessionState {
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
    pub(crate) working: usize,
    /// The bytes of replies that are there while a command runs, if they are many.
    pub(crate) replies: usize,
    /// Why the client is disconnected, if it held too much.
    pub excess: Option<Excess>,
    /// As CLIENT REPLY says.
    pub reply_mode: ReplyMode,
    /// The connection ends after what was written.
    pub is_closing: bool,
    /// Memory that is used again and again.
    pub scratch: Scratch,
    /// Whether the command at hand changes something.
    pub(crate) is_writing: bool,
    /// The bytes of the parser and of the notes about replies, which the session has.
    pub(crate) parsed: usize,
}

/// Vectors that would otherwise be allocated for every command.
#[derive(Default)]
pub struct Scratch {
    /// Of the items of one command, or of a run of commands.
    pub digests: Vec<Digest>,
    /// The same for filters of CF.*.
    pub hashes: Vec<Hash>,
    /// For each of them.
    pub answers: Vec<bool>,
    /// For each of them, where an answer is a number.
    pub counts: Vec<u64>,
}

impl Scratch {
    /// Drops all items and answers, and gives back the room for more than so many.
    pub(crate) fn clear(&mut self, kept: usize) {
        fn clear<T>(vector: &mut Vec<T>, kept: usize) {
            vector.clear();
            vector.shrink_to(kept);
        }
        let Scratch { digests, hashes, answers, counts } = self;
        clear(digests, kept);
        clear(hashes, kept);
        clear(answers, kept);
        clear(counts, kept);
    }

    /// Returns the bytes that it takes.
    fn bytes(&self) -> usize {
        let Scratch { digests, hashes, answers, counts } = self;
        digests.capacity() * size_of::<Digest>()
            + (hashes.capacity() + counts.capacity()) * size_of::<u64>()
            + answers.capacity()
    }
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
    /// Returns what they take: a node of the tree, a name, and the place of an entry that may be
    /// deleted.
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

impl SessionState {
    /// Returns a client that has just come.
    pub fn new(client: Arc<Client>, server: &Server) -> SessionState {
        let mut session = SessionState {
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
            is_writing: false,
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
            // A change of the users looks at all clients afterwards: it has seen this one as it
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

    /// Returns whether the client may run commands of a class.
    pub fn may(&self, class: Class) -> bool {
        class == Class::Open || self.identity.as_ref().is_some_and(|it| it.role.may(class))
    }

    /// Returns the bytes that the client holds, without its replies.
    pub fn held(&self) -> u64 {
        let queued = self.transaction.as_ref().map_or(0, |it| it.requests.capacity());
        let own = self.named + self.watched.bytes() + queued + self.scratch.bytes();
        CONNECTION + (own + self.buffered + self.parsed + self.working) as u64
    }

    /// Enters what the client holds: all of its own, and so many bytes of replies.
    ///
    /// # Errors
    ///
    /// All clients together hold too much: see [`Clients::hold`](crate::clients::Clients::hold).
    pub fn hold(&self, server: &Server, replies: usize) -> Result<(), Excess> {
        server.clients.hold(&self.client, self.held() + replies as u64)
    }

    /// Enters what the command at hand takes beside its reply.
    ///
    /// # Errors
    ///
    /// See [`SessionState::hold`]. The client is disconnected after the reply.
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
    pub(crate) fn exceed(&mut self, excess: Excess) -> ReplyError {
        self.is_closing = true;
        self.excess = Some(excess);
        ReplyError::because(excess)
    }

    /// Replies an error to a request that was not carried out. A transaction is broken by it.
    pub(crate) fn refuse(&mut self, server: &Server, out: &mut Vec<u8>, failure: &ReplyError) {
        if let Some(transaction) = &mut self.transaction {
            transaction.is_broken = true;
        }
        server.statistics.count_error(failure.text());
        Reply::new(out, self.protocol).error(failure.text());
    }
}

/// Returns what counts of a buffer of replies: small ones are lent by a thread from one client to
/// the next.
pub fn counted(capacity: usize) -> usize {
    if capacity > MANY_REPLIES { capacity } else { 0 }
}
