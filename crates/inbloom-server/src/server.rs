//! What all clients share.

mod reload;

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use inbloom::Hasher;
use inbloom::kinds::blocked::Shape;
use parking_lot::{Mutex, RwLock};

use crate::clients::Clients;
use crate::health::Health;
use crate::keyspace::{Created, Entry, Key, Keyspace, New};
use crate::log_throttle::LogThrottle;
use crate::persist::Store;
use crate::persist::log::Log;
use crate::rates::Rates;
use crate::reply_error::ReplyError;
use crate::settings::{Config, Settings, SharedSettings};
use crate::statistics::{SlowLog, Statistics};
use crate::transfers::Transfers;
use crate::users::{Users, UsersError};
use crate::value::Value;
use crate::value::bloom::Wish;
use crate::value::change::{Change, Items, Refusal, Terms};
use crate::value::spec::{Memory, Spec, birth_of_image};
use reload::Reloads;

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
    pub transfers: Transfers,
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
    settings: Arc<SharedSettings>,
    users: RwLock<Arc<Users>>,
    /// Bytes that were granted to filters which are being made, and are not on an account yet.
    pub(crate) promised: Arc<AtomicU64>,
    /// The most bytes in use that were ever seen.
    pub(crate) peak: AtomicU64,
    /// Held while bytes are granted.
    pub(crate) granting: Mutex<()>,
    shapes: Mutex<Shapes>,
    /// The bytes of those shapes that are not a constant's worth.
    pub(crate) shape_bytes: AtomicU64,
    stop: AtomicBool,
    stopping: tokio::sync::Notify,
    store: OnceLock<Arc<Store>>,
}

impl Server {
    /// A server without keys.
    pub fn new(config: Config) -> Server {
        let settings = Arc::new(SharedSettings::new(config.settings.clone()));
        Server {
            keyspace: Keyspace::new(),
            hasher: config.key.map_or_else(Hasher::default, Hasher::sip13),
            started: Instant::now(),
            statistics: Statistics::default(),
            rates: Rates::default(),
            peak: AtomicU64::new(0),
            clients: Clients::new(Arc::clone(&settings)),
            transfers: Default::default(),
            slow_log: Mutex::default(),
            health: Health::default(),
            reloads: Reloads::default(),
            refusals: LogThrottle::default(),
            http_requests: LogThrottle::default(),
            settings,
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
        self.settings.get()
    }

    /// Changes settings, all that `change` changes at once, or none.
    pub fn set<E>(&self, change: impl FnOnce(&mut Settings) -> Result<(), E>) -> Result<(), E> {
        self.settings.set(change, |changed| {
            if let Some(store) = self.store() {
                store.set(changed);
            }
        })
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
        self.keyspace.set_journal(Arc::clone(&store.log) as _);
        let _ = self.store.set(store);
    }

    /// The folder that changes are kept in, if they are.
    pub fn store(&self) -> Option<&Arc<Store>> {
        self.store.get()
    }

    /// Where changes are written down, if they are.
    pub fn log(&self) -> Option<&Arc<Log>> {
        self.store().map(|store| &store.log)
    }

    /// Why no change can be taken now, if so.
    pub fn trouble(&self) -> Option<ReplyError> {
        self.log().and_then(|log| log.trouble())
    }

    /// Changes the items of a filter, within what filters may take: see [`Keyspace::apply`].
    pub fn apply(
        &self,
        entry: &Entry,
        items: Items<'_>,
        answers: &mut Vec<bool>,
    ) -> Result<(), Refusal> {
        let terms = Terms::Asked(&|has| self.limit_for(has));
        self.keyspace.apply(entry, &Change::Items { items, terms }, answers)
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
