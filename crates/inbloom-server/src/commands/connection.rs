//! Commands about a client and its connection. Replies and errors are those of Redis 7.4: clients
//! read them to decide which features they may use.
//!
//! The server has no publish and subscribe, no tracking and no cluster. It knows their commands, and
//! its error says that the feature is missing. `CLIENT MAINT_NOTIFICATIONS` is unknown on purpose:
//! after an OK, go-redis expects the same of later connections.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::keys::database;
use super::server::introspection::help;
use super::server::{MODULE_NAME, MODULE_VERSION, REDIS_VERSION};
use super::stored;
use crate::clients::{Client, ClientState};
use crate::command::{Call, Command, Cost, Flag, Flags, Keys, OnStore};
use crate::parse;
use crate::reply_error::{ReplyError, excerpt};
use crate::resp::{Arguments, Protocol};
use crate::server::Server;
use crate::session_state::{ReplyMode, SessionState, Watched};
use crate::users::{DEFAULT, Users};

/// The rows of connections.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "hello",
        arity: -1,
        flags: Flags::of(&[
            Flag::NoScript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::NoAuth,
            Flag::AllowBusy,
        ]),
        summary: "Chooses the protocol, logs the client in, and describes the server",
        syntax: "[protover [AUTH username password] [SETNAME clientname]]",
        is_secret: true,
        handler: hello,
        ..CONNECTION
    },
    Command {
        name: "auth",
        arity: -2,
        flags: Flags::of(&[
            Flag::NoScript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::NoAuth,
            Flag::AllowBusy,
        ]),
        summary: "Logs the client in as the default user, or as one of --users",
        syntax: "[username] password",
        is_secret: true,
        handler: auth,
        ..CONNECTION
    },
    Command {
        name: "ping",
        arity: -1,
        flags: Flags::of(&[Flag::Fast]),
        summary: "Returns PONG, or the message",
        syntax: "[message]",
        handler: ping,
        ..CONNECTION
    },
    Command {
        name: "echo",
        arity: 2,
        flags: Flags::of(&[Flag::Loading, Flag::Stale, Flag::Fast]),
        summary: "Returns the message",
        syntax: "message",
        handler: echo,
        ..CONNECTION
    },
    Command {
        name: "select",
        arity: 2,
        flags: Flags::of(&[Flag::Loading, Flag::Stale, Flag::Fast]),
        summary: "Selects one of 16 databases",
        syntax: "index",
        handler: select,
        on_store: OnStore::By(stored::select),
        ..CONNECTION
    },
    Command {
        name: "quit",
        arity: -1,
        flags: Flags::of(&[
            Flag::NoScript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::NoAuth,
            Flag::AllowBusy,
        ]),
        is_immediate: true,
        summary: "Ends the connection",
        handler: quit,
        ..CONNECTION
    },
    Command {
        name: "reset",
        arity: 1,
        flags: Flags::of(&[
            Flag::NoScript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::NoAuth,
            Flag::AllowBusy,
        ]),
        is_immediate: true,
        summary: "Resets the connection to the state of a new one",
        handler: reset,
        ..CONNECTION
    },
    Command {
        name: "client",
        arity: -2,
        categories: &[],
        summary: "Lists clients, and changes this one",
        syntax: "subcommand [argument ...]",
        subcommands: CLIENT_COMMANDS,
        ..CONNECTION
    },
    Command {
        name: "readonly",
        arity: 1,
        flags: Flags::of(&[Flag::Loading, Flag::Stale, Flag::Fast]),
        summary: "Always fails: there is no cluster",
        handler: |_| Err(NO_CLUSTER),
        group: "cluster",
        ..CONNECTION
    },
    Command {
        name: "readwrite",
        arity: 1,
        flags: Flags::of(&[Flag::Loading, Flag::Stale, Flag::Fast]),
        summary: "Always fails: there is no cluster",
        handler: |_| Err(NO_CLUSTER),
        group: "cluster",
        ..CONNECTION
    },
    Command {
        name: "cluster",
        arity: -2,
        categories: &[],
        summary: "Always fails: there is no cluster",
        syntax: "subcommand [argument ...]",
        group: "cluster",
        subcommands: &[
            Command { name: "cluster|countkeysinslot", arity: 3, ..CLUSTER },
            Command { name: "cluster|getkeysinslot", arity: 4, ..CLUSTER },
            Command {
                name: "cluster|help",
                summary: "Prints the subcommands",
                handler: help,
                ..CLUSTER
            },
            Command { name: "cluster|info", ..CLUSTER },
            Command { name: "cluster|keyslot", arity: 3, ..CLUSTER },
            Command { name: "cluster|links", ..CLUSTER },
            Command { name: "cluster|myid", ..CLUSTER },
            Command { name: "cluster|nodes", ..CLUSTER },
            Command { name: "cluster|replicas", arity: 3, ..CLUSTER },
            Command { name: "cluster|shards", ..CLUSTER },
            Command { name: "cluster|slots", ..CLUSTER },
        ],
        ..CONNECTION
    },
    Command { name: "subscribe", arity: -2, syntax: "channel [channel ...]", ..PUBSUB },
    Command { name: "psubscribe", arity: -2, syntax: "pattern [pattern ...]", ..PUBSUB },
    Command { name: "ssubscribe", arity: -2, syntax: "channel [channel ...]", ..PUBSUB },
    Command { name: "unsubscribe", arity: -1, syntax: "[channel [channel ...]]", ..PUBSUB },
    Command { name: "punsubscribe", arity: -1, syntax: "[pattern [pattern ...]]", ..PUBSUB },
    Command { name: "sunsubscribe", arity: -1, syntax: "[channel [channel ...]]", ..PUBSUB },
    Command { name: "publish", arity: 3, syntax: "channel message", ..PUBSUB },
    Command { name: "spublish", arity: 3, syntax: "channel message", ..PUBSUB },
    Command { name: "pubsub", arity: -2, syntax: "subcommand [argument ...]", ..PUBSUB },
    Command {
        name: "monitor",
        arity: 1,
        flags: Flags::of(&[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale]),
        categories: &[],
        summary: "Always fails: commands are not shown to others; see SLOWLOG and INFO commandstats",
        group: "server",
        handler: |_| {
            let text = "ERR MONITOR is not offered: see SLOWLOG GET and INFO commandstats";
            Err(ReplyError::new(text))
        },
        ..CONNECTION
    },
];

static CLIENT_COMMANDS: &[Command] = &[
    Command {
        name: "client|caching",
        arity: 3,
        summary: "Always fails: keys are not tracked",
        syntax: "YES|NO",
        handler: client_caching,
        ..CLIENT
    },
    Command {
        name: "client|getname",
        summary: "Returns the name of this client",
        handler: client_getname,
        ..CLIENT
    },
    Command {
        name: "client|getredir",
        summary: "Returns where invalidations go: -1, nowhere",
        handler: client_getredir,
        ..CLIENT
    },
    Command { name: "client|help", summary: "Prints this help", handler: help, ..CLIENT },
    Command {
        name: "client|id",
        summary: "Returns the number of this client",
        handler: client_id,
        ..CLIENT
    },
    Command {
        name: "client|info",
        summary: "Describes this client",
        handler: client_info,
        ..CLIENT
    },
    Command {
        name: "client|kill",
        arity: -3,
        flags: CLIENT_ADMIN,
        summary: "Ends connections",
        syntax: "<ip:port | [ID client-id] [TYPE NORMAL|MASTER|REPLICA|PUBSUB] [USER username] \
                 [ADDR ip:port] [LADDR ip:port] [SKIPME YES|NO] [MAXAGE seconds]>",
        complexity: "O(N) for N clients",
        handler: client_kill,
        ..CLIENT
    },
    Command {
        name: "client|list",
        arity: -2,
        flags: CLIENT_ADMIN,
        summary: "Lists all clients",
        syntax: "[TYPE NORMAL|MASTER|REPLICA|PUBSUB] [ID client-id [client-id ...]]",
        complexity: "O(N) for N clients",
        handler: client_list,
        // Two microseconds each.
        cost: Cost::By(|request, _| request.server.clients.count() > 500),
        ..CLIENT
    },
    Command {
        name: "client|no-evict",
        arity: 3,
        flags: CLIENT_ADMIN,
        summary: "Changes nothing: no client is disconnected to save memory",
        syntax: "ON|OFF",
        handler: client_on_or_off,
        ..CLIENT
    },
    Command {
        name: "client|no-touch",
        arity: 3,
        summary: "Changes nothing: times of access are not kept",
        syntax: "ON|OFF",
        handler: client_on_or_off,
        ..CLIENT
    },
    Command {
        name: "client|pause",
        arity: -3,
        flags: CLIENT_ADMIN,
        summary: "Always fails: clients are not paused",
        syntax: "timeout [WRITE|ALL]",
        handler: |_| Err(NO_PAUSE),
        ..CLIENT
    },
    Command {
        name: "client|reply",
        arity: 3,
        summary: "Chooses which replies this client gets",
        syntax: "ON|OFF|SKIP",
        handler: client_reply,
        ..CLIENT
    },
    Command {
        name: "client|setinfo",
        arity: 4,
        summary: "Sets the name or version of the client's library",
        syntax: "<LIB-NAME libname | LIB-VER libver>",
        handler: client_setinfo,
        ..CLIENT
    },
    Command {
        name: "client|setname",
        arity: 3,
        summary: "Gives this client a name",
        syntax: "connection-name",
        handler: client_setname,
        ..CLIENT
    },
    Command {
        name: "client|tracking",
        arity: -3,
        summary: "Fails unless the argument is OFF: keys are not tracked",
        syntax: "ON|OFF",
        handler: client_tracking,
        ..CLIENT
    },
    Command {
        name: "client|trackinginfo",
        summary: "Reports that keys are not tracked",
        handler: client_trackinginfo,
        ..CLIENT
    },
    Command {
        name: "client|unblock",
        arity: -3,
        flags: CLIENT_ADMIN,
        summary: "Returns 0: no command blocks",
        syntax: "client-id [TIMEOUT|ERROR]",
        handler: client_unblock,
        ..CLIENT
    },
    Command {
        name: "client|unpause",
        flags: CLIENT_ADMIN,
        summary: "Always fails: clients are not paused",
        handler: |_| Err(NO_PAUSE),
        ..CLIENT
    },
];

const CONNECTION: Command = Command {
    keys: Keys::NONE,
    categories: &["connection"],
    group: "connection",
    on_store: OnStore::Same,
    ..Command::NONE
};

const CLIENT: Command = Command {
    arity: 2,
    flags: Flags::of(&[Flag::NoScript, Flag::Loading, Flag::Stale]),
    ..CONNECTION
};

const CLIENT_ADMIN: Flags = Flags::of(&[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale]);

const CLUSTER: Command = Command {
    arity: 2,
    flags: Flags::of(&[Flag::Stale]),
    categories: &[],
    summary: "Always fails: there is no cluster",
    group: "cluster",
    handler: |_| Err(NO_CLUSTER),
    ..CONNECTION
};

const PUBSUB: Command = Command {
    flags: Flags::of(&[Flag::PubSub, Flag::NoScript, Flag::Loading, Flag::Stale]),
    categories: &[],
    summary: "Always fails: there is no publish and subscribe",
    group: "pubsub",
    handler: |_| Err(ReplyError::new("ERR inbloom has no publish/subscribe")),
    ..CONNECTION
};

const NO_CLUSTER: ReplyError = ReplyError::new("ERR This instance has cluster support disabled");
const NO_PAUSE: ReplyError = ReplyError::new("ERR inbloom does not pause clients");
const WRONG_PASSWORD: ReplyError =
    ReplyError::new("WRONGPASS invalid username-password pair or user is disabled.");

fn hello(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let wanted = match call.arguments.get(1) {
        None => None,
        Some(word) => Some(protocol(word)?),
    };
    let (mut identity, mut name) = (None, None);
    let mut options = call.arguments.skip(2);
    while let Some(option) = options.get(0) {
        let value = |at: usize| options.get(at);
        if parse::is(option, "AUTH")
            && let (Some(user), Some(password)) = (value(1), value(2))
        {
            identity = Some((user, password));
            options = options.skip(3);
        } else if parse::is(option, "SETNAME")
            && let Some(given) = value(1)
        {
            name = Some(client_name(given)?);
            options = options.skip(2);
        } else {
            let option = excerpt(option, 128);
            return Err(ReplyError::with(format!("ERR Syntax error in HELLO option '{option}'")));
        }
    }
    if let Some((user, password)) = identity {
        identify(call, user, password)?;
    }
    if call.session.identity.is_none() {
        return Err(ReplyError::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        describe_itself(call.session, |state| state.name = name);
    }
    if let Some(protocol) = wanted {
        call.session.protocol = protocol;
        call.reply.set_protocol(protocol);
    }
    let (module, version) = (MODULE_NAME, MODULE_VERSION);
    let reply = &mut call.reply;
    reply.map(7);
    reply.text("server");
    reply.text("redis");
    reply.text("version");
    reply.text(REDIS_VERSION);
    reply.text("proto");
    reply.integer(number(call.session.protocol));
    reply.text("id");
    reply.integer(call.session.client.id as i64);
    reply.text("mode");
    reply.text("standalone");
    reply.text("role");
    reply.text("master");
    reply.text("modules");
    reply.array(1);
    reply.map(4);
    reply.text("name");
    reply.text(module);
    reply.text("ver");
    reply.integer(version);
    reply.text("path");
    reply.text("");
    reply.text("args");
    reply.array(0);
    Ok(())
}

fn protocol(word: &[u8]) -> Result<Protocol, ReplyError> {
    match parse::integer(word) {
        Some(2) => Ok(Protocol::Resp2),
        Some(3) => Ok(Protocol::Resp3),
        Some(_) => Err(ReplyError::new("NOPROTO unsupported protocol version")),
        None => Err(ReplyError::new("ERR Protocol version is not an integer or out of range")),
    }
}

fn number(protocol: Protocol) -> i64 {
    match protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    }
}

fn auth(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let words = call.arguments;
    let is_open = || {
        let default =
            call.server.users().get(DEFAULT.as_bytes(), &call.server.settings().require_pass);
        default.is_some_and(|user| user.role.is_some() && user.is_open())
    };
    match words.len() {
        2 if is_open() => Err(ReplyError::new(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        )),
        2 => identify(call, DEFAULT.as_bytes(), &words[1]),
        3 => identify(call, &words[1], &words[2]),
        _ => Err(ReplyError::SYNTAX),
    }?;
    call.reply.ok();
    Ok(())
}

/// Lets a client in that is who it says. One that fails stays who it was, as in Redis.
fn identify(call: &mut Call<'_>, user: &[u8], password: &[u8]) -> Result<(), ReplyError> {
    let (server, session) = (call.server, &mut *call.session);
    if session.identify(server, |users, required| users.identify(user, password, required)) {
        return Ok(());
    }
    server.count_failed_login(user, &session.client.address);
    Err(WRONG_PASSWORD)
}

fn ping(call: &mut Call<'_>) -> Result<(), ReplyError> {
    match call.arguments.len() {
        1 => call.reply.simple("PONG"),
        2 => call.reply.bulk(&call.arguments[1]),
        _ => return Err(ReplyError::arity(call.command.name)),
    }
    Ok(())
}

fn echo(call: &mut Call<'_>) -> Result<(), ReplyError> {
    call.reply.bulk(&call.arguments[1]);
    Ok(())
}

fn select(call: &mut Call<'_>) -> Result<(), ReplyError> {
    call.session.database = database(&call.arguments[1])?;
    call.reply.ok();
    Ok(())
}

fn quit(call: &mut Call<'_>) -> Result<(), ReplyError> {
    call.session.is_closing = true;
    call.reply.ok();
    Ok(())
}

fn reset(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let session = &mut *call.session;
    session.database = 0;
    session.protocol = Protocol::Resp2;
    session.transaction = None;
    session.watched = Watched::default();
    session.reply_mode = ReplyMode::On;
    session.forget();
    session.identify(call.server, Users::stranger);
    describe_itself(session, |state| state.name = String::new());
    call.reply.set_protocol(Protocol::Resp2);
    call.reply.simple("RESET");
    Ok(())
}

/// A name or the like: no blanks and nothing that could end a line of CLIENT LIST.
fn is_plain(word: &[u8]) -> bool {
    word.iter().all(u8::is_ascii_graphic)
}

fn client_name(word: &[u8]) -> Result<String, ReplyError> {
    if !is_plain(word) {
        let text = "ERR Client names cannot contain spaces, newlines or special characters.";
        return Err(ReplyError::new(text));
    }
    check_length("Client names", word)?;
    Ok(excerpt(word, word.len()))
}

/// Of a client, its library and its version: they are shown in lists, and a name is kept with slow
/// commands.
const LONGEST_NAME: usize = 1024;

fn check_length(what: &str, word: &[u8]) -> Result<(), ReplyError> {
    let length = word.len();
    if length <= LONGEST_NAME {
        return Ok(());
    }
    Err(ReplyError::with(format!(
        "ERR {what} have at most {LONGEST_NAME} bytes, this one has {length}"
    )))
}

/// Changes what the client says of itself, and counts its bytes.
fn describe_itself(session: &mut SessionState, change: impl FnOnce(&mut ClientState)) {
    let mut state = session.client.state.lock();
    change(&mut state);
    let ClientState { name, library, library_version, .. } = &*state;
    session.named = name.capacity() + library.capacity() + library_version.capacity();
}

fn client_setname(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let name = client_name(&call.arguments[2])?;
    describe_itself(call.session, |state| state.name = name);
    call.reply.ok();
    Ok(())
}

fn client_getname(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let state = call.session.client.state.lock();
    if state.name.is_empty() {
        call.reply.null();
    } else {
        call.reply.text(&state.name);
    }
    Ok(())
}

fn client_setinfo(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let (option, value) = (&call.arguments[2], &call.arguments[3]);
    let is_name = parse::is(option, "LIB-NAME");
    if !is_name && !parse::is(option, "LIB-VER") {
        let option = excerpt(option, 128);
        return Err(ReplyError::with(format!("ERR Unrecognized option '{option}'")));
    }
    let option = excerpt(option, 128);
    if !is_plain(value) {
        return Err(ReplyError::with(format!(
            "ERR {option} cannot contain spaces, newlines or special characters."
        )));
    }
    check_length(&format!("values of {option}"), value)?;
    let value = excerpt(value, value.len());
    describe_itself(call.session, |state| match is_name {
        true => state.library = value,
        false => state.library_version = value,
    });
    call.reply.ok();
    Ok(())
}

fn client_id(call: &mut Call<'_>) -> Result<(), ReplyError> {
    call.reply.integer(call.session.client.id as i64);
    Ok(())
}

fn client_info(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let line = describe(call, &call.session.client);
    call.reply.verbatim("txt", &line);
    Ok(())
}

fn client_list(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let words = call.arguments;
    let mut clients = call.server.clients.list();
    match words.get(2) {
        None => {}
        Some(option) if words.len() == 4 && parse::is(option, "TYPE") => {
            let is_wanted = is_normal(&words[3])?;
            clients.retain(|_| is_wanted);
        }
        Some(option) if words.len() > 3 && parse::is(option, "ID") => {
            let ids = words.skip(3).into_iter().map(parse::integer);
            let ids: Option<BTreeSet<i64>> = ids.collect();
            let ids = ids.ok_or(ReplyError::new("ERR Invalid client ID"))?;
            clients.retain(|client| ids.contains(&(client.id as i64)));
        }
        Some(_) => return Err(ReplyError::SYNTAX),
    }
    let mut lines = String::new();
    for client in &clients {
        lines.push_str(&describe(call, client));
        call.session.work_with(call.server, lines.capacity())?;
    }
    // Both are there while the reply is written.
    call.reply.set_others(call.session.held());
    call.reply.verbatim("txt", &lines);
    Ok(())
}

/// Whether a type of clients is the one that all of ours have. Err if Redis has none of that name.
fn is_normal(word: &[u8]) -> Result<bool, ReplyError> {
    if parse::is(word, "normal") {
        return Ok(true);
    }
    if ["slave", "replica", "pubsub", "master"].iter().any(|name| parse::is(word, name)) {
        return Ok(false);
    }
    Err(ReplyError::with(format!("ERR Unknown client type '{}'", excerpt(word, 128))))
}

/// A line of CLIENT LIST. Of another client it tells what was so after its last requests.
fn describe(call: &Call<'_>, client: &Arc<Client>) -> String {
    let session = &*call.session;
    let mut state = client.state.lock().clone();
    let mut idle = state.active.map_or(client.since.elapsed(), |active| active.elapsed());
    if Arc::ptr_eq(client, &session.client) {
        idle = Duration::ZERO;
        state.last = call.command.name;
        state.database = session.database;
        state.protocol = number(session.protocol) as u8;
        state.queued = session.transaction.as_ref().map_or(-1, |t| t.count as i64);
        state.watched = session.watched.keys.len();
    }
    let flags = if state.queued >= 0 { "x" } else { "N" };
    let user = state.user.as_deref().unwrap_or(DEFAULT);
    let last = if state.last.is_empty() { "NULL" } else { state.last };
    // What a client holds is counted as a whole; the parts of it are 0, and there is no number of a
    // socket to tell.
    format!(
        "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={flags} db={} sub=0 psub=0 \
         ssub=0 multi={} watch={} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 \
         oll=0 omem=0 tot-mem={} events=r cmd={last} user={user} redir=-1 resp={} lib-name={} \
         lib-ver={}\n",
        client.id,
        client.address,
        client.local,
        state.name,
        client.since.elapsed().as_secs(),
        idle.as_secs(),
        state.database,
        state.queued,
        state.watched,
        client.held.load(Ordering::Relaxed),
        state.protocol.max(2),
        state.library,
        state.library_version,
    )
}

/// Which clients CLIENT KILL is about.
struct Victims<'a> {
    id: Option<u64>,
    address: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    /// False: a type that none of ours has.
    is_normal: bool,
    skips_me: bool,
    least_age: Duration,
}

impl<'a> Victims<'a> {
    fn parse(server: &Server, words: Arguments<'a>) -> Result<Victims<'a>, ReplyError> {
        let mut victims = Victims {
            id: None,
            address: None,
            local: None,
            user: None,
            is_normal: true,
            skips_me: true,
            least_age: Duration::ZERO,
        };
        let mut words = words.into_iter();
        while let Some(option) = words.next() {
            let value = words.next().ok_or(ReplyError::SYNTAX)?;
            if parse::is(option, "ID") {
                let id = parse::integer(value).and_then(|id| u64::try_from(id).ok());
                let id = id.filter(|id| *id > 0);
                let text = "ERR client-id should be greater than 0";
                victims.id = Some(id.ok_or(ReplyError::new(text))?);
            } else if parse::is(option, "TYPE") {
                victims.is_normal = is_normal(value)?;
            } else if parse::is(option, "ADDR") {
                victims.address = Some(value);
            } else if parse::is(option, "LADDR") {
                victims.local = Some(value);
            } else if parse::is(option, "USER") {
                victims.user = Some(value);
                if server.users().get(value, "").is_none() {
                    let user = excerpt(value, 128);
                    return Err(ReplyError::with(format!("ERR No such user '{user}'")));
                }
            } else if parse::is(option, "SKIPME") {
                victims.skips_me = match value.to_ascii_lowercase().as_slice() {
                    b"yes" => true,
                    b"no" => false,
                    _ => return Err(ReplyError::SYNTAX),
                };
            } else if parse::is(option, "MAXAGE") {
                let text = "ERR maxage is not an integer or out of range";
                let seconds = parse::integer(value).ok_or(ReplyError::new(text))?;
                let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
                let text = "ERR maxage should be greater than 0";
                victims.least_age = Duration::from_secs(seconds.ok_or(ReplyError::new(text))?);
            } else {
                return Err(ReplyError::SYNTAX);
            }
        }
        Ok(victims)
    }

    fn contain(&self, client: &Client) -> bool {
        self.is_normal
            && self.id.is_none_or(|id| client.id == id)
            && self.address.is_none_or(|address| client.address.as_bytes() == address)
            && self.local.is_none_or(|local| client.local.as_bytes() == local)
            && self.user.is_none_or(|user| {
                client.state.lock().user.as_deref().unwrap_or(DEFAULT).as_bytes() == user
            })
            && client.since.elapsed() >= self.least_age
    }

    /// Ends their connections, the caller's after the reply, and tells how many there were.
    fn kill(&self, server: &Server, me: &Client, is_closing: &mut bool) -> usize {
        let mut killed = 0;
        for client in server.clients.list().iter().filter(|client| self.contain(client)) {
            if client.id != me.id {
                client.kill();
            } else if self.skips_me {
                continue;
            } else {
                *is_closing = true;
            }
            killed += 1;
        }
        killed
    }
}

fn client_kill(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let words = call.arguments;
    // CLIENT KILL ip:port is the old form, which may be about the caller itself.
    let is_old = words.len() == 3;
    let victims = if is_old {
        let everybody = Victims::parse(call.server, words.skip(3))?;
        Victims { address: Some(&words[2]), skips_me: false, ..everybody }
    } else {
        Victims::parse(call.server, words.skip(2))?
    };
    let me = Arc::clone(&call.session.client);
    let killed = victims.kill(call.server, &me, &mut call.session.is_closing);
    match (is_old, killed) {
        (true, 0) => return Err(ReplyError::new("ERR No such client")),
        (true, _) => call.reply.ok(),
        (false, killed) => call.reply.integer(killed as i64),
    }
    Ok(())
}

/// For what has no effect here, whether it is on or off.
fn client_on_or_off(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let word = &call.arguments[2];
    if !parse::is(word, "ON") && !parse::is(word, "OFF") {
        return Err(ReplyError::SYNTAX);
    }
    call.reply.ok();
    Ok(())
}

fn client_reply(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let word = &call.arguments[2];
    if parse::is(word, "ON") {
        call.session.reply_mode = ReplyMode::On;
        call.reply.ok();
    } else if parse::is(word, "OFF") {
        call.session.reply_mode = ReplyMode::Off;
    } else if !parse::is(word, "SKIP") {
        return Err(ReplyError::SYNTAX);
    } else if call.session.reply_mode != ReplyMode::Off {
        call.session.reply_mode = ReplyMode::SkipThis;
    }
    Ok(())
}

fn client_tracking(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let word = &call.arguments[2];
    if parse::is(word, "ON") {
        let text = "ERR inbloom does not track keys for the caches of clients";
        return Err(ReplyError::new(text));
    }
    if !parse::is(word, "OFF") {
        return Err(ReplyError::SYNTAX);
    }
    call.reply.ok();
    Ok(())
}

fn client_trackinginfo(call: &mut Call<'_>) -> Result<(), ReplyError> {
    call.reply.map(3);
    call.reply.text("flags");
    call.reply.set(1);
    call.reply.text("off");
    call.reply.text("redirect");
    call.reply.integer(-1);
    call.reply.text("prefixes");
    call.reply.array(0);
    Ok(())
}

fn client_caching(_: &mut Call<'_>) -> Result<(), ReplyError> {
    Err(ReplyError::new(
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
         OPTOUT mode enabled",
    ))
}

fn client_getredir(call: &mut Call<'_>) -> Result<(), ReplyError> {
    call.reply.integer(-1);
    Ok(())
}

fn client_unblock(call: &mut Call<'_>) -> Result<(), ReplyError> {
    if let Some(reason) = call.arguments.get(3)
        && !parse::is(reason, "TIMEOUT")
        && !parse::is(reason, "ERROR")
    {
        let text = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
        return Err(ReplyError::new(text));
    }
    parse::integer(&call.arguments[2]).ok_or(ReplyError::NOT_AN_INTEGER)?;
    call.reply.integer(0);
    Ok(())
}
