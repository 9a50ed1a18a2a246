//! What all clients share.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use inbloom::Hasher;
use inbloom::kinds::blocked::Shape;
use parking_lot::{Mutex, RwLock};

use crate::config::{Config, Settings};
use crate::health::Health;
use crate::holdings::CONNECTION;
use crate::keyspace::{Created, Entry, Key, Keyspace, New};
use crate::log_throttle::LogThrottle;
use crate::persist::Store;
use crate::persist::log::Log;
use crate::rates::Rates;
use crate::reload::Reloads;
use crate::reply_error::ReplyError;
use crate::users::{Users, UsersError};
use crate::value::Value;
use crate::value::bloom::Wish;
use crate::value::spec::{Memory, Spec, birth_of_image};

/// What protected mode answers.
const DENIED: &[u8] = b"-DENIED inbloom is in protected mode: it was started without --password \
and without --users, so that only clients on the same machine are served. Start it with one of \
them, or, if everybody who can reach it may do everything, with --no-protected-mode. From the \
machine itself, CONFIG SET requirepass or CONFIG SET protected-mode no do so until it ends.\r\n";

/// The state of a server, without its sockets.
pub struct Server {
    /// Names and filters.
    pub keyspace: Keyspace,
    /// The hash of all filters made here.
    pub hasher: Hasher,
    /// What was fixed at the start.
    pub config: Config,
    /// When it began.
    pub started: Instant,
    /// Counts of all kinds.
    pub statistics: Statistics,
    /// What is counted, a second.
    pub rates: Rates,
    /// Who is connected.
    pub clients: Clients,
    /// Dumps that are being loaded, and copies that are being dumped.
    pub transfers: crate::commands::transfer::Transfers,
    /// Slow commands.
    pub slow_log: Mutex<SlowLog>,
    /// Whether it can do its work, and if not, why.
    pub health: Health,
    /// What is read again when the operator asks for it.
    pub reloads: Reloads,
    /// Clients that were sent away at once, for the log.
    pub refusals: LogThrottle,
    /// Requests of HTTP, for the log.
    pub http_requests: LogThrottle,
    /// Clients that were disconnected because of what they held, for the log.
    pub evictions: LogThrottle,
    settings: RwLock<Arc<Settings>>,
    users: RwLock<Arc<Users>>,
    /// Bytes that were granted to filters which are being made, and are not on an account yet.
    promised: Arc<AtomicU64>,
    /// The most bytes in use that were ever seen.
    peak: AtomicU64,
    /// Held while bytes are granted.
    granting: Mutex<()>,
    shapes: Mutex<Shapes>,
    /// The bytes of those shapes that are not a constant's worth.
    shape_bytes: AtomicU64,
    stop: AtomicBool,
    stopping: tokio::sync::Notify,
    store: OnceLock<Arc<Store>>,
}

/// What INFO counts.
#[derive(Default)]
pub struct Statistics {
    /// Connections ever accepted.
    pub connections: AtomicU64,
    /// Connections refused because there were too many, or because of protected mode.
    pub rejected: AtomicU64,
    /// Connections ended because the client did not read its replies.
    pub unread: AtomicU64,
    /// Connections ended because clients held too much memory together.
    pub evicted: AtomicU64,
    /// Attempts of AUTH that failed.
    pub failed_logins: AtomicU64,
    /// Commands refused because the user may not run them.
    pub forbidden: AtomicU64,
    /// Commands carried out.
    pub commands: AtomicU64,
    /// Bytes read from clients.
    pub bytes_in: AtomicU64,
    /// Bytes written to clients.
    pub bytes_out: AtomicU64,
    /// Errors replied.
    pub errors: AtomicU64,
    /// Look-ups of keys that were there, by reading commands.
    pub hits: AtomicU64,
    /// Those of keys that were not.
    pub misses: AtomicU64,
    /// Items given to filters, whether they were new or not.
    pub items_added: AtomicU64,
    /// Items that filters were asked for.
    pub items_asked: AtomicU64,
    /// Calls and time of each command.
    pub by_command: Mutex<HashMap<&'static str, Calls>>,
    /// Errors by their code.
    pub by_error: Mutex<BTreeMap<String, u64>>,
}

/// How often a command was called.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calls {
    /// Times.
    pub calls: u64,
    /// Nanoseconds spent in it.
    pub nanos: u64,
    /// Errors replied.
    pub failed: u64,
    /// Refused before they began, and not counted among the calls.
    pub rejected: u64,
}

/// Clients by their number.
#[derive(Default)]
pub struct Clients {
    next: AtomicU64,
    all: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// Bytes that all of them hold: see `holdings`.
    pub held: AtomicU64,
}

/// What others may know of a client, and ask of it.
pub struct Client {
    /// Its number, never used twice.
    pub id: u64,
    /// Where it is.
    pub address: String,
    /// Where it came in.
    pub local: String,
    /// When it came.
    pub since: Instant,
    /// What changes.
    pub state: Mutex<ClientState>,
    /// Bytes read from it so far.
    pub bytes_in: AtomicU64,
    /// Commands of it so far.
    pub commands: AtomicU64,
    /// Bytes that it holds: see `holdings`.
    pub held: AtomicU64,
    finish: AtomicBool,
    kill: AtomicBool,
    at_work: AtomicBool,
    killed: tokio::sync::Notify,
}

/// What CLIENT LIST shows of a client.
#[derive(Clone, Debug, Default)]
pub struct ClientState {
    /// As CLIENT SETNAME said.
    pub name: String,
    /// As CLIENT SETINFO said.
    pub library: String,
    /// As CLIENT SETINFO said.
    pub library_version: String,
    /// The chosen database.
    pub database: usize,
    /// 2 or 3.
    pub protocol: u8,
    /// The user it is; none: nobody yet.
    pub user: Option<Arc<str>>,
    /// The last command.
    pub last: &'static str,
    /// When its last command ended.
    pub active: Option<Instant>,
    /// Commands queued by MULTI, -1 without.
    pub queued: i64,
    /// Keys watched.
    pub watched: usize,
}

/// Commands that took long.
#[derive(Default)]
pub struct SlowLog {
    next: u64,
    /// The newest first.
    pub entries: VecDeque<Slow>,
}

/// A command that took long.
#[derive(Clone, Debug)]
pub struct Slow {
    /// Its number.
    pub id: u64,
    /// Seconds since 1970.
    pub at: u64,
    /// How long it took.
    pub micros: u64,
    /// Its words, the first of many, and the beginning of long ones.
    pub words: Vec<Vec<u8>>,
    /// Whose it was.
    pub address: String,
    /// And its name.
    pub name: String,
}

impl Server {
    /// A server without keys.
    pub fn new(config: Config) -> Server {
        Server {
            keyspace: Keyspace::new(),
            hasher: config.key.map_or_else(Hasher::default, Hasher::sip13),
            started: Instant::now(),
            statistics: Statistics::default(),
            rates: Rates::default(),
            peak: AtomicU64::new(0),
            clients: Clients::default(),
            transfers: Default::default(),
            slow_log: Mutex::default(),
            health: Health::default(),
            reloads: Reloads::default(),
            refusals: LogThrottle::default(),
            http_requests: LogThrottle::default(),
            evictions: LogThrottle::default(),
            settings: RwLock::new(Arc::new(config.settings.clone())),
            users: RwLock::new(Arc::new(config.users.clone())),
            promised: Arc::default(),
            granting: Mutex::default(),
            shapes: Mutex::default(),
            shape_bytes: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            stopping: tokio::sync::Notify::new(),
            store: OnceLock::new(),
            config,
        }
    }

    /// The settings as they are now.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
    }

    /// Changes settings, all that `change` changes at once, or none.
    pub fn set<E>(&self, change: impl FnOnce(&mut Settings) -> Result<(), E>) -> Result<(), E> {
        let mut settings = self.settings.write();
        let mut changed = Settings::clone(&settings);
        change(&mut changed)?;
        if let Some(store) = self.store() {
            store.set(&changed);
        }
        *settings = Arc::new(changed);
        Ok(())
    }

    /// The users as they are now.
    pub fn users(&self) -> Arc<Users> {
        Arc::clone(&self.users.read())
    }

    /// Reads the file of users again. The connections of those who are gone, or may do something
    /// else now, or have another password, are ended: tells how many.
    ///
    /// # Errors
    ///
    /// A file that cannot be used; then everything stays as it was.
    pub fn reload_users(&self) -> Result<usize, UsersError> {
        let before = self.users();
        let path = before.file().ok_or(UsersError::NoFile)?;
        let after = Arc::new(Users::load(path)?);
        *self.users.write() = Arc::clone(&after);
        let settings = self.settings();
        let mut ended = 0;
        for client in self.clients.list() {
            let Some(name) = client.state.lock().user.clone() else { continue };
            let get = |users: &Users| users.get(name.as_bytes(), &settings.require_pass);
            if get(&before) != get(&after) {
                client.kill();
                ended += 1;
            }
        }
        tracing::warn!(users = after.names().len(), ended, "the users were read again");
        Ok(ended)
    }

    /// Whether a client at this address is refused, because it is elsewhere and nobody has said who
    /// may do what. `local` is the server's end of the connection: a client of the same machine that
    /// comes by another address than loopback has the same one.
    pub fn is_protected_from(&self, address: IpAddr, local: Option<IpAddr>) -> bool {
        let settings = self.settings();
        let address = address.to_canonical();
        settings.protected_mode
            && settings.require_pass.is_empty()
            && self.users().file().is_none()
            && !address.is_loopback()
            && local.is_none_or(|local| local.to_canonical() != address)
    }

    /// What a client that has just come is told instead of being served, if it is not.
    pub fn refusal(&self, address: IpAddr, local: Option<IpAddr>) -> Option<Cow<'static, [u8]>> {
        if self.is_protected_from(address, local) {
            return Some(Cow::Borrowed(DENIED));
        }
        let most = self.settings().max_clients;
        if self.clients.count() < most {
            return None;
        }
        let text = format!(
            "-ERR max number of clients reached: {most}, which --max-clients and CONFIG SET \
             maxclients set\r\n"
        );
        Some(Cow::Owned(text.into_bytes()))
    }

    /// Whether the shape of a filter is at hand.
    pub fn has_shape(&self, wish: Wish) -> bool {
        self.shapes.lock().all.contains_key(&wish)
    }

    /// The shape of a filter, computed once: a blocked plan takes up to some milliseconds. All filters of
    /// one wish share it.
    pub fn shape(&self, wish: Wish) -> Result<Arc<Shape>, ReplyError> {
        if let Some(shape) = self.shapes.lock().all.get(&wish) {
            return Ok(Arc::clone(shape));
        }
        let shape = wish.shape().map_err(|error| {
            let (rate, capacity) = (wish.rate(), wish.capacity);
            ReplyError::with(format!(
                "ERR a rate of {rate} for {capacity} items is beyond what a filter that may grow can \
                 keep, as its parts share the rate ({error}); a higher rate, or NONSCALING, may do"
            ))
        })?;
        let mut shapes = self.shapes.lock();
        let shape = shapes.share(wish, shape);
        let counted = shapes.all.len().saturating_sub(FREE_SHAPES) as u64 * SHAPE;
        self.shape_bytes.store(counted, Ordering::Relaxed);
        Ok(shape)
    }

    /// Keeps changes in a folder from now on.
    pub fn set_store(&self, store: Arc<Store>) {
        store.set(&self.settings());
        self.keyspace.set_log(Arc::clone(&store.log));
        let _ = self.store.set(store);
    }

    /// The folder that changes are kept in, if they are.
    pub fn store(&self) -> Option<&Arc<Store>> {
        self.store.get()
    }

    /// Where changes are written down, if they are.
    pub fn log(&self) -> Option<&Arc<Log>> {
        self.keyspace.log()
    }

    /// Why no change can be taken now, if so.
    pub fn trouble(&self) -> Option<ReplyError> {
        self.log().and_then(|log| log.trouble())
    }

    /// Makes an empty filter under a name that has none.
    pub fn create(&self, key: Key<'_>, spec: &Spec, now: u64) -> Result<Created, ReplyError> {
        let (value, _room) = spec.value(self, now, Memory::Limited)?;
        let birth = self.log().map_or(Vec::new(), |_| spec.birth(now));
        Ok(self.keyspace.create(key, New::with(value, birth, None), now))
    }

    /// Gives a filter that has content a name that has none, until some time.
    pub fn adopt(
        &self,
        key: Key<'_>,
        value: Value,
        expires: Option<u64>,
        now: u64,
    ) -> Result<Created, ReplyError> {
        let (birth, files) = self.birth(&value)?;
        let created = self.keyspace.create(key, New::with(value, birth, expires), now);
        match &created {
            Created::New(entry) => self.enter(entry, files),
            Created::Taken(..) => self.store().map_or((), |store| store.forget(&files)),
        }
        Ok(created)
    }

    /// The same, whatever has the name.
    pub fn adopt_instead(
        &self,
        key: Key<'_>,
        value: Value,
        expires: Option<u64>,
    ) -> Result<(), ReplyError> {
        let (birth, files) = self.birth(&value)?;
        let entry = self.keyspace.replace(key, New::with(value, birth, expires));
        self.enter(&entry, files);
        Ok(())
    }

    /// What the log says of a filter that has content, and the files that it names.
    fn birth(&self, value: &Value) -> Result<(Vec<u8>, Vec<String>), ReplyError> {
        let Some(store) = self.store() else { return Ok((Vec::new(), Vec::new())) };
        let (image, files) = store.image(self, value).map_err(|error| {
            ReplyError::with(format!("MISCONF the filter cannot be saved in --dir: {error}"))
        })?;
        Ok((birth_of_image(&image), files))
    }

    fn enter(&self, entry: &Entry, files: Vec<String>) {
        if let Some(store) = self.store() {
            store.enter(entry.id, files);
        }
    }

    /// Grants bytes of the memory that filters may take, until what is returned is dropped: that is
    /// to be kept until they are on an account, or are not needed any more. Of two that ask at
    /// once, and for which there is room only one by one, the second is refused.
    pub fn make_room(&self, bytes: u64) -> Result<Room, ReplyError> {
        let limit = self.settings().max_memory;
        let _granting = self.granting.lock();
        let used = self.memory_in_use();
        if bytes > limit.saturating_sub(used) {
            return Err(ReplyError::with(format!(
                "ERR Insufficient memory to create filter: it takes {bytes} bytes, and of the \
                 {limit} of --max-memory {used} are in use; raise it, ask for a smaller capacity \
                 or a higher rate, or delete filters"
            )));
        }
        self.promised.fetch_add(bytes, Ordering::Relaxed);
        Ok(Room { promised: Arc::clone(&self.promised), bytes })
    }

    /// The same for a whole filter, which has a limit of its own.
    pub fn make_room_for_filter(&self, bytes: u64) -> Result<Room, ReplyError> {
        self.check_filter(bytes)?;
        self.make_room(bytes)
    }

    /// Refuses a filter of more bytes than one may have.
    pub fn check_filter(&self, bytes: u64) -> Result<(), ReplyError> {
        let limit = self.settings().max_filter;
        if bytes <= limit {
            return Ok(());
        }
        Err(ReplyError::with(format!(
            "ERR the filter would take {bytes} bytes, more than the {limit} that --max-filter \
             allows to one; raise it, ask for a smaller capacity or a higher rate, or use several"
        )))
    }

    /// The bytes that a filter which has some already may take in all. Filters that grow in the
    /// same instant may each be told the same, and go beyond --max-memory by one step each;
    /// --max-filter holds always.
    pub fn limit_for(&self, has: u64) -> u64 {
        let settings = self.settings();
        let free = settings.max_memory.saturating_sub(self.memory_in_use());
        free.saturating_add(has).min(settings.max_filter)
    }

    /// Why a filter that has some bytes was not let grow beyond [`limit_for`](Server::limit_for).
    pub fn cannot_grow(&self, has: u64) -> ReplyError {
        let (settings, used) = (self.settings(), self.memory_in_use());
        let (memory, filter) = (settings.max_memory, settings.max_filter);
        if filter <= memory.saturating_sub(used).saturating_add(has) {
            return ReplyError::with(format!(
                "ERR the filter has {has} bytes and cannot grow within the {filter} that \
                 --max-filter allows to one; raise it, or use several filters"
            ));
        }
        ReplyError::with(format!(
            "ERR Insufficient memory: the filter has {has} bytes and cannot grow, as of the \
             {memory} of --max-memory {used} are in use; raise it, or delete filters"
        ))
    }

    /// The bytes of all keys, of filters that are being made or loaded, and of copies that are
    /// being dumped.
    pub fn memory_in_use(&self) -> u64 {
        // First the promises, and then the accounts: what moves from one to the other meanwhile is
        // entered there before it is struck here, so that it is counted once or twice, and never
        // not at all.
        let promised = self.promised.load(Ordering::Acquire);
        let shapes = self.shape_bytes.load(Ordering::Relaxed);
        let keys = self.keyspace.used() + self.keyspace.calendar_bytes();
        let used = promised + keys + self.transfers.bytes() + shapes;
        // Read first: it is asked for by every thread, and rises seldom.
        if used > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(used, Ordering::Relaxed);
        }
        used
    }

    /// The most bytes that were in use, as far as anybody looked: whoever asks for memory does, and ten
    /// times a second so does the server.
    pub fn memory_peak(&self) -> u64 {
        self.memory_in_use();
        self.peak.load(Ordering::Relaxed)
    }

    /// Why it does not serve as it should, if it does not: what `/healthz` says.
    pub fn troubles(&self) -> Option<String> {
        if self.is_stopping() {
            return Some("stopping".to_owned());
        }
        let of_log = self.trouble().map(|failure| format!("log: {}", failure.text()));
        let all: Vec<String> = self.health.troubles().into_iter().chain(of_log).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Asks the server to stop.
    pub fn shut_down(&self) {
        self.stop.store(true, Ordering::Release);
        self.stopping.notify_waiters();
    }

    /// Whether it was asked to stop.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Waits until it is asked to stop.
    pub async fn stopped(&self) {
        let stopping = self.stopping.notified();
        tokio::pin!(stopping);
        stopping.as_mut().enable();
        if !self.is_stopping() {
            stopping.await;
        }
    }
}

/// Bytes granted by [`Server::make_room`], given back when dropped.
#[must_use = "the bytes are free again as soon as this is dropped"]
pub struct Room {
    promised: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.promised.fetch_sub(self.bytes, Ordering::Release);
    }
}

/// Shapes that count as nothing: a megabyte of them.
const FREE_SHAPES: usize = 4096;
/// What a shape takes, with its place in the table: two thirds of that are in use on average.
const SHAPE: u64 = (size_of::<Shape>() + 16 + (size_of::<Wish>() + 8) * 3 / 2) as u64;

/// The shapes of filters. One that a filter has is never dropped, so that there is one for each wish;
/// the others go now and then.
#[derive(Default)]
struct Shapes {
    all: HashMap<Wish, Arc<Shape>>,
    /// How many there may be before it is looked which of them no filter has.
    most: usize,
}

impl Shapes {
    /// Keeps a shape, unless another thread was faster. Returns the one that is kept.
    fn share(&mut self, wish: Wish, shape: Arc<Shape>) -> Arc<Shape> {
        if self.all.len() >= self.most.max(FREE_SHAPES) {
            self.all.retain(|_, shape| Arc::strong_count(shape) > 1);
            self.most = 2 * self.all.len();
        }
        Arc::clone(self.all.entry(wish).or_insert(shape))
    }
}

/// Milliseconds since 1970.
pub fn now() -> u64 {
    since_1970().as_millis() as u64
}

/// The time since 1970.
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Clients {
    /// Enters a new client.
    pub fn enter(&self, address: String, local: String) -> Arc<Client> {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Arc::new(Client {
            id,
            address,
            local,
            since: Instant::now(),
            state: Mutex::new(ClientState { queued: -1, ..ClientState::default() }),
            bytes_in: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            held: AtomicU64::new(CONNECTION),
            finish: AtomicBool::new(false),
            kill: AtomicBool::new(false),
            at_work: AtomicBool::new(false),
            killed: tokio::sync::Notify::new(),
        });
        self.held.fetch_add(CONNECTION, Ordering::Relaxed);
        self.all.lock().insert(id, Arc::clone(&client));
        client
    }

    /// Takes a client off the list, and what it held off the account.
    pub fn leave(&self, id: u64) {
        if let Some(client) = self.all.lock().remove(&id) {
            self.held.fetch_sub(client.held.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.lock().len()
    }

    /// All of them, in the order in which they came.
    pub fn list(&self) -> Vec<Arc<Client>> {
        self.all.lock().values().cloned().collect()
    }
}

impl Client {
    /// Ends its connection.
    pub fn kill(&self) {
        self.kill.store(true, Ordering::Release);
        self.killed.notify_waiters();
    }

    /// Whether a command of it is being worked on for long.
    pub fn is_at_work(&self) -> bool {
        self.at_work.load(Ordering::Relaxed)
    }

    /// Says so.
    pub fn set_at_work(&self, at_work: bool) {
        self.at_work.store(at_work, Ordering::Relaxed);
    }

    /// Whether it was told to go.
    pub fn is_killed(&self) -> bool {
        self.kill.load(Ordering::Acquire)
    }

    /// Ends its connection when what it has sent is answered.
    pub fn finish(&self) {
        self.finish.store(true, Ordering::Release);
        self.killed.notify_waiters();
    }

    /// Whether its connection ends when it has nothing more to say. Who waits for [`Client::killed`]
    /// is woken when this changes.
    pub fn is_finishing(&self) -> bool {
        self.finish.load(Ordering::Acquire)
    }

    /// Waits until it is told to go.
    pub async fn killed(&self) {
        loop {
            let killed = self.killed.notified();
            tokio::pin!(killed);
            killed.as_mut().enable();
            if self.is_killed() {
                return;
            }
            killed.await; // Or told to finish, and still here.
        }
    }
}

impl Calls {
    /// Counts more.
    pub fn add(&mut self, more: Calls) {
        self.calls += more.calls;
        self.nanos += more.nanos;
        self.failed += more.failed;
        self.rejected += more.rejected;
    }
}

impl Statistics {
    /// Counts that a reading command found its key, or did not.
    pub fn count_lookup(&self, found: bool) {
        let count = if found { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts items that were given to filters.
    pub fn count_added(&self, items: usize) {
        self.items_added.fetch_add(items as u64, Ordering::Relaxed);
    }

    /// Counts items that filters were asked for.
    pub fn count_asked(&self, items: usize) {
        self.items_asked.fetch_add(items as u64, Ordering::Relaxed);
    }

    /// Counts an error by its code, as `errorstat_ERR`. A text without a code counts by its first
    /// word, as in Redis.
    pub fn count_error(&self, text: &str) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let code = text.split(' ').next().unwrap_or(text);
        let mut by_error = self.by_error.lock();
        match by_error.get_mut(code) {
            Some(count) => *count += 1,
            // Codes are ours and few: a client cannot make new ones.
            None => drop(by_error.insert(code.to_owned(), 1)),
        }
    }
}

impl SlowLog {
    /// Remembers a command.
    pub fn remember(&mut self, mut slow: Slow, most: usize) {
        slow.id = self.next;
        self.next += 1;
        self.entries.push_front(slow);
        self.entries.truncate(most);
    }
}
