//! The connected clients, as other clients and operators see them.

pub mod holdings;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::log_throttle::LogThrottle;
use crate::settings::SharedSettings;
use holdings::CONNECTION;

/// Clients by their number.
pub struct Clients {
    next: AtomicU64,
    all: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// Bytes that all of them hold: see `holdings`.
    pub held: AtomicU64,
    /// How many connections were ended because clients held too much memory together.
    pub evicted: AtomicU64,
    /// For the log.
    evictions: LogThrottle,
    settings: Arc<SharedSettings>,
}

impl Clients {
    /// None yet. The settings say what they may hold.
    pub fn new(settings: Arc<SharedSettings>) -> Clients {
        Clients {
            next: AtomicU64::new(0),
            all: Mutex::default(),
            held: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            evictions: LogThrottle::default(),
            settings,
        }
    }

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

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.all.lock().len()
    }

    /// All of them, in the order in which they came.
    pub fn list(&self) -> Vec<Arc<Client>> {
        self.all.lock().values().cloned().collect()
    }
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

impl Client {
    /// Ends its connection.
    pub fn kill(&self) {
        self.kill.store(true, Ordering::Release);
        self.killed.notify_waiters();
    }

    /// Returns whether a command of it is being worked on for long.
    pub fn is_at_work(&self) -> bool {
        self.at_work.load(Ordering::Relaxed)
    }

    /// Says so.
    pub fn set_at_work(&self, at_work: bool) {
        self.at_work.store(at_work, Ordering::Relaxed);
    }

    /// Returns whether it is to disconnect.
    pub fn is_killed(&self) -> bool {
        self.kill.load(Ordering::Acquire)
    }

    /// Ends its connection when what it has sent is answered.
    pub fn finish(&self) {
        self.finish.store(true, Ordering::Release);
        self.killed.notify_waiters();
    }

    /// Returns whether its connection ends once all received requests are answered. A change wakes
    /// the tasks that wait for [`Client::killed`].
    pub fn is_finishing(&self) -> bool {
        self.finish.load(Ordering::Acquire)
    }

    /// Waits until it is to disconnect.
    pub async fn killed(&self) {
        loop {
            let killed = self.killed.notified();
            tokio::pin!(killed);
            killed.as_mut().enable();
            if self.is_killed() {
                return;
            }
            killed.await; // Or is to finish, and still here.
        }
    }
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
