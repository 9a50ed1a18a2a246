//! How the server is set up: what is fixed when it starts ([`Config`]) and what can be changed while it
//! runs ([`Settings`]).
//!
//! `settings/parameters.rs` has a row for each parameter: its name, its value, how to change it.

mod parameters;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use inbloom::SecretKey;
use parking_lot::RwLock;

use crate::persist::LOG_LIMIT;
use crate::persist::log::Fsync;
use crate::resp::Limits;
use crate::units::machine::total_memory;
use crate::users::Users;
pub use parameters::{
    Changeable, Given, OPTION_NAMES, PARAMETERS, Parameter, Refused, Running, find, nearest,
    shown_limit,
};

/// What is fixed when the server starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Threads that serve connections.
    pub threads: usize,
    /// The folder in which changes are kept, to tell; see `Server::open_folder`.
    pub dir: Option<PathBuf>,
    /// The folder that IB.OPEN, IB.SAVE may use; none: they are refused.
    pub import_dir: Option<PathBuf>,
    /// The secret under which keys are hashed; none: they are hashed as everybody could.
    pub key: Option<SecretKey>,
    /// Who may do what, as it was when the server started.
    pub users: Users,
    /// What the HTTP API allows.
    pub http: HttpAccess,
    /// What can be changed while it runs.
    pub settings: Settings,
}

/// What the HTTP API allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpAccess {
    /// Whether users who have logged in, and whose role allows it, may add keys.
    pub can_write: bool,
    /// Names by which browsers may reach it, beside addresses and localhost.
    pub hosts: Vec<String>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            threads: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            dir: None,
            import_dir: None,
            key: None,
            users: Users::default(),
            http: HttpAccess::default(),
            settings: Settings::default(),
        }
    }
}

/// What CONFIG SET can change.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The rate of a filter that is created without one.
    pub bf_error_rate: f64,
    /// The keys that such a filter is for at first.
    pub bf_initial_size: u64,
    /// By what it grows; 0: it does not.
    pub bf_expansion_factor: u32,
    /// Fingerprints in a bucket of a cuckoo filter.
    pub cf_bucket_size: u16,
    /// Its first capacity.
    pub cf_initial_size: u64,
    /// How often a key may be kicked before the filter grows.
    pub cf_max_iterations: u16,
    /// By what a cuckoo filter grows; 0: it does not.
    pub cf_expansion_factor: u16,
    /// Kept for clients that read it; no filter of ours is refused because of it.
    pub cf_max_expansions: u32,
    /// The bytes that all filters together may take.
    pub max_memory: u64,
    /// The bytes that one filter may take.
    pub max_filter: u64,
    /// The bytes that all clients together may hold: see `clients/holdings.rs`.
    pub max_client_memory: u64,
    /// Bytes of one argument.
    pub max_argument: usize,
    /// Bytes of a whole request.
    pub max_request: usize,
    /// Bytes of the requests between MULTI and EXEC.
    pub max_multi: usize,
    /// Clients at once.
    pub max_clients: usize,
    /// Seconds after which a client that does not read its replies is disconnected; 0: never.
    pub write_timeout: u64,
    /// Whether clients of other machines are refused as long as nobody needs a password.
    pub protected_mode: bool,
    /// Seconds after which an idle client is disconnected; 0: never.
    pub timeout: u64,
    /// Commands that take at least so many microseconds are remembered; negative: none.
    pub slowlog_log_slower_than: i64,
    /// How many of them.
    pub slowlog_max_len: usize,
    /// When changes are acknowledged, if the server has a folder.
    pub fsync: Fsync,
    /// The bytes of the log at which a snapshot is taken.
    pub log_limit: u64,
    /// The password that AUTH asks for; empty: none.
    pub require_pass: String,
}

impl Settings {
    /// Returns what a request of a client that has said who it is may take.
    pub fn limits(&self) -> Limits {
        Limits {
            argument_bytes: self.max_argument,
            request_bytes: self.max_request,
            ..Limits::default()
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            bf_error_rate: 0.01,
            bf_initial_size: 100,
            bf_expansion_factor: 2,
            cf_bucket_size: 2,
            cf_initial_size: 1024,
            cf_max_iterations: 20,
            cf_expansion_factor: 1,
            cf_max_expansions: 32,
            max_memory: total_memory().map_or(u64::MAX, |bytes| bytes / 4 * 3),
            max_filter: u64::MAX,
            max_client_memory: total_memory().map_or(u64::MAX, |bytes| bytes / 8),
            max_argument: Limits::default().argument_bytes,
            max_request: Limits::default().request_bytes,
            max_multi: 64 << 20,
            max_clients: 10_000,
            write_timeout: 60,
            protected_mode: true,
            timeout: 0,
            slowlog_log_slower_than: 10_000,
            slowlog_max_len: 128,
            fsync: Fsync::default(),
            log_limit: LOG_LIMIT,
            require_pass: String::new(),
        }
    }
}

/// Settings that can be changed while threads read them.
pub struct SharedSettings(RwLock<Arc<Settings>>);

impl SharedSettings {
    /// These, for a start.
    pub fn new(settings: Settings) -> SharedSettings {
        SharedSettings(RwLock::new(Arc::new(settings)))
    }

    /// Returns the settings as they are now.
    pub fn get(&self) -> Arc<Settings> {
        Arc::clone(&self.0.read())
    }

    /// Changes settings, all that `change` changes at once, or none. `then` is called with the new ones
    /// before anybody sees them.
    pub fn set<E>(
        &self,
        change: impl FnOnce(&mut Settings) -> Result<(), E>,
        then: impl FnOnce(&Settings),
    ) -> Result<(), E> {
        let mut settings = self.0.write();
        let mut changed = Settings::clone(&settings);
        change(&mut changed)?;
        then(&changed);
        *settings = Arc::new(changed);
        Ok(())
    }
}
