//! What all clients share.

mod reload;

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use inbloom::Hasher;
use parking_lot::{Mutex, RwLock};

use crate::clients::Clients;
use crate::filter_store::StoredFilters;
use crate::health::Health;
use crate::history::History;
use crate::keyspace::{Created, Entry, Key, Keyspace, New};
use crate::limits::MemoryLimits;
use crate::log_throttle::LogThrottle;
use crate::over_target::OverTarget;
use crate::persist::disk::Folder;
use crate::persist::log::Log;
use crate::persist::recovery::{self, Access, Found};
use crate::persist::{self, Lock, Owner, Store};
use crate::rates::Rates;
use crate::reply_error::{ReplyError, excerpt};
use crate::settings::{Config, Settings, SharedSettings};
use crate::statistics::{SlowLog, Statistics};
use crate::transfers::Transfers;
use crate::transfers::loading::Loader;
use crate::users::{Users, UsersError};
use crate::value::Value;
use crate::value::change::{Change, Items, Refusal, Terms};
use crate::value::shapes::Shapes;
use crate::value::spec::{Materials, Spec, birth_of_image};
use reload::Reloads;

/// What protected mode answers.
const DENIED: &[u8] = b"-DENIED inbloom is in protected mode: it has no --password and no --users, \
 so it only serves clients on the same machine. Start it with --password or --users. To let every \
 client that can reach it do everything, start it with --no-protected-mode. Until the next start, a \
 client on the same machine can run CONFIG SET requirepass or CONFIG SET protected-mode no.\r\n";

/// So many failed attempts to log in are logged one by one.
const LOGGED_LOGINS: u64 = 100;

/// The state of a server, without its sockets.
pub struct Server {
    /// Names and filters.
    pub keyspace: Arc<Keyspace>,
    /// The memory that they may take.
    pub limits: MemoryLimits,
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
    /// What the filters that somebody looks at do.
    pub history: History,
    /// Filters above their target rate.
    pub over_target: OverTarget,
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
    /// Clients that were refused at once, for the log.
    pub refusals: LogThrottle,
    /// Requests of HTTP, for the log.
    pub http_requests: LogThrottle,
    settings: Arc<SharedSettings>,
    users: RwLock<Arc<Users>>,
    /// The shapes of filters that were reserved.
    pub shapes: Arc<Shapes>,
    stop: AtomicBool,
    stopping: tokio::sync::Notify,
    store: OnceLock<Arc<Store>>,
    stored: OnceLock<StoredFilters>,
}

impl Server {
    /// A server without keys.
    pub fn new(config: Config) -> Server {
        let settings = Arc::new(SharedSettings::new(config.settings.clone()));
        let (keyspace, shapes) = (Arc::new(Keyspace::new()), Arc::<Shapes>::default());
        let (of_keys, of_shapes) = (Arc::clone(&keyspace), Arc::clone(&shapes));
        let of_transfers = Arc::<AtomicU64>::default();
        let transfers = Transfers::new(Arc::clone(&of_transfers));
        let limits = MemoryLimits::new(Arc::clone(&settings), of_keys, of_shapes, of_transfers);
        Server {
            keyspace,
            limits,
            hasher: config.key.map_or_else(Hasher::default, Hasher::sip13),
            started: Instant::now(),
            statistics: Statistics::default(),
            rates: Rates::default(),
            history: History::default(),
            over_target: OverTarget::default(),
            clients: Clients::new(Arc::clone(&settings)),
            transfers,
            slow_log: Mutex::default(),
            health: Health::default(),
            reloads: Reloads::default(),
            refusals: LogThrottle::default(),
            http_requests: LogThrottle::default(),
            settings,
            users: RwLock::new(Arc::new(config.users.clone())),
            shapes,
            stop: AtomicBool::new(false),
            stopping: tokio::sync::Notify::new(),
            store: OnceLock::new(),
            stored: OnceLock::new(),
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
                store.set(changed.fsync, changed.log_limit);
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
        tracing::warn!(users = after.names().len(), ended, "users reloaded");
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

    /// The error for a client that has just come, if it is not served.
    pub fn refusal(&self, address: IpAddr, local: Option<IpAddr>) -> Option<Cow<'static, [u8]>> {
        if self.is_protected_from(address, local) {
            return Some(Cow::Borrowed(DENIED));
        }
        let most = self.settings().max_clients;
        if self.clients.count() < most {
            return None;
        }
        let text = format!(
            "-ERR max number of clients reached: the limit is {most} (--max-clients, CONFIG SET \
             maxclients)\r\n"
        );
        Some(Cow::Owned(text.into_bytes()))
    }

    /// Keeps changes in a folder from now on.
    pub fn set_store(&self, store: Arc<Store>) {
        let settings = self.settings();
        store.set(settings.fsync, settings.log_limit);
        self.keyspace.set_journal(Arc::clone(&store.log) as _);
        let _ = self.store.set(store);
    }

    /// Fills a server without keys with what a folder has, and keeps its changes there from now on. The
    /// folder is there, and locked.
    ///
    /// # Errors
    ///
    /// The folder cannot be used: see [`persist::Error`].
    pub fn open_folder(
        self: &Arc<Server>,
        folder: &Path,
        access: Access,
        lock: Option<Lock>,
    ) -> Result<Found, persist::Error> {
        let (store, found) = recovery::open(&**self, Arc::new(Folder::new(folder)), access)?;
        if let Some(mut store) = store {
            store.hold(lock);
            let store = Arc::new(store);
            self.set_store(Arc::clone(&store));
            if access == Access::Repair && !found.damaged.is_empty() {
                // What was lost is no longer expected, before anything new is acknowledged.
                store.snapshot(&**self)?;
            } else if !found.damaged.is_empty() {
                store.snapshot_soon();
            }
            store.start(&(Arc::clone(self) as Arc<dyn Owner>))?;
        }
        Ok(found)
    }

    /// The folder that changes are kept in, if they are.
    pub fn store(&self) -> Option<&Arc<Store>> {
        self.store.get()
    }

    /// Serves the filters of a store from now on, and none of its own. To be called before the first
    /// client comes, once, and not together with [`open_folder`](Server::open_folder).
    pub fn set_stored(&self, filters: StoredFilters) {
        let _ = self.stored.set(filters);
    }

    /// The filters of the store that this server is in front of, if it is.
    pub fn stored(&self) -> Option<&StoredFilters> {
        self.stored.get()
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
        let terms = Terms::Asked(&|has| self.limits.limit_for(has));
        let result = self.keyspace.apply(entry, &Change::Items { items, terms }, answers);
        if items.are_added() {
            self.history.count_added(entry, answers);
        }
        result
    }

    /// Counts items that a filter was asked for, with its answers.
    pub fn count_asked(&self, entry: &Entry, found: &[bool]) {
        self.statistics.count_asked(found.len());
        self.history.count_asked(entry, found);
    }

    /// Counts an attempt to log in that failed.
    pub fn count_failed_login(&self, user: &[u8], address: &str) {
        let failed = self.statistics.failed_logins.fetch_add(1, Ordering::Relaxed) + 1;
        // All that is logged is a name, and not of every attempt: who guesses sends millions.
        if failed <= LOGGED_LOGINS || failed.is_power_of_two() {
            let user = excerpt(user, 64);
            tracing::warn!(user, address, failed, "login failed");
        }
    }

    /// What filters that arrive are loaded with.
    pub fn loader(&self) -> Loader<'_> {
        Loader {
            limits: &self.limits,
            hasher: &self.hasher,
            key: self.config.key.as_ref(),
            transfers: &self.transfers,
        }
    }

    fn materials(&self) -> Materials<'_> {
        Materials { hasher: &self.hasher, shapes: &self.shapes }
    }

    /// Makes an empty filter under a name that has none.
    pub fn create(&self, key: Key<'_>, spec: &Spec, now: u64) -> Result<Created, ReplyError> {
        let (value, _room) = spec.value(&self.materials(), now, &self.limits)?;
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
            ReplyError::with(format!("MISCONF cannot save the filter in --dir: {error}"))
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
        let of_store = self.stored().and_then(StoredFilters::trouble);
        let of_store = of_store.map(|trouble| format!("store: {trouble}"));
        let all: Vec<String> =
            self.health.troubles().into_iter().chain(of_log).chain(of_store).collect();
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

impl Owner for Server {
    fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    fn shapes(&self) -> &Shapes {
        &self.shapes
    }

    fn import_dir(&self) -> Option<&Path> {
        self.config.import_dir.as_deref()
    }

    fn is_stopping(&self) -> bool {
        Server::is_stopping(self)
    }
}
