//! `--store`: Redis as the place that keeps the filters of a server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use inbloom::{Hasher, Plan, SecretKey};
use inbloom_redis::{self as remote, Client, Error, RedisFilter, Spec};
use inbloom_server::Server;
use inbloom_server::filter_store::{Added, FilterStore, Lookup, StoreError, StoredFilters};
use inbloom_server::units;

use crate::remote::RedisArgs;

/// The store that filters are kept in.
#[derive(clap::Args)]
pub struct StoreArgs {
    /// Keep filters on Redis, as `redis[s]://[user:password@]host[:port][/DB]`, instead of in this server
    #[arg(long, value_name = "ADDRESS", env = "INBLOOM_STORE")]
    #[arg(conflicts_with_all = ["dir", "import_dir", "check"])]
    pub store: Option<String>,

    /// Number of keys to plan for when BF.ADD, BF.MADD or BF.INSERT creates a filter on the store
    #[arg(long, value_name = "N", default_value = "1M", value_parser = units::parse_keys)]
    store_items: u64,

    #[command(flatten)]
    redis: RedisArgs,
}

/// How long a request goes on while Redis does not answer: less than a server waits when it stops.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether a store that was down is back.
const LOOK: Duration = Duration::from_secs(1);

impl StoreArgs {
    /// Lets a server serve the filters of the store, if there is one.
    ///
    /// # Errors
    ///
    /// The address is wrong, or the store cannot be reached.
    pub fn attach(&self, server: &Arc<Server>) -> Result<()> {
        let Some(address) = &self.store else { return Ok(()) };
        let address: remote::Server = address.parse().context("--store")?;
        let client = self.redis.connect_within(&address, Some(PATIENCE)).context("--store")?;
        let store = RedisStore {
            client,
            address: address.to_string(),
            hasher: server.hasher,
            opened: Mutex::default(),
        };
        server.set_stored(StoredFilters::new(Arc::new(store), self.store_items));
        let server = Arc::clone(server);
        let look = move || {
            while !server.is_stopping() {
                std::thread::sleep(LOOK);
                server.stored().iter().for_each(|stored| stored.check());
            }
        };
        std::thread::Builder::new().name("store".into()).spawn(look)?;
        Ok(())
    }
}

/// Filters on a Redis server or cluster.
struct RedisStore {
    client: Client,
    address: String,
    /// The hash of filters that are created here.
    hasher: Hasher,
    /// Filters that were used lately, by name.
    opened: Mutex<HashMap<Vec<u8>, Opened>>,
}

/// A filter that was used lately.
#[derive(Clone)]
struct Opened {
    filter: Arc<RedisFilter>,
    /// Until when it is used without looking at its description again.
    until: Instant,
}

/// So long a filter is used without looking at its description again. A deletion is noticed at once, by
/// the bits that are gone. An expiry is not: the bits outlive it, and another server may have set it.
const TRUSTED: Duration = Duration::from_secs(1);
/// Filters that are kept open. When there are more, all are opened anew.
const MOST_OPENED: usize = 1 << 14;
/// How often a filter is opened again that others delete and create in the same instant.
const ATTEMPTS: usize = 4;

impl RedisStore {
    fn key(&self) -> Option<&SecretKey> {
        self.hasher.key()
    }

    fn opened(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<u8>, Opened>> {
        // No step of the map leaves it half changed.
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks a filter's description up.
    fn open(&self, name: &[u8]) -> Result<Arc<RedisFilter>, StoreError> {
        let begin = Instant::now();
        let filter = RedisFilter::open_keyed(&self.client, name, self.key()).map_err(told)?;
        let left = filter.time_to_live().map_err(told)?;
        let until = begin + left.map_or(TRUSTED, |left| left.min(TRUSTED));
        let filter = Arc::new(filter);
        let mut opened = self.opened();
        if opened.len() >= MOST_OPENED {
            opened.clear();
        }
        opened.insert(name.to_vec(), Opened { filter: Arc::clone(&filter), until });
        Ok(filter)
    }

    /// A filter that was used lately, or the one of now.
    fn lately(&self, name: &[u8]) -> Result<Arc<RedisFilter>, StoreError> {
        let lately = self.opened().get(name).filter(|it| Instant::now() < it.until).cloned();
        lately.map_or_else(|| self.open(name), |it| Ok(it.filter))
    }

    fn forget(&self, name: &[u8]) {
        self.opened().remove(name);
    }

    /// Does something with a filter. If it turns out to be another one by now, with that.
    fn with<T>(
        &self,
        name: &[u8],
        mut work: impl FnMut(&RedisFilter) -> remote::Result<T>,
    ) -> Result<T, StoreError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match work(&*self.lately(name)?) {
                Err(Error::Deleted { .. } | Error::Replaced { .. }) if attempts < ATTEMPTS => {
                    self.forget(name);
                }
                result => return result.map_err(told),
            }
        }
    }
}

/// An error of the client as one of a store.
fn told(error: Error) -> StoreError {
    match error {
        Error::Missing { .. } | Error::Deleted { .. } => StoreError::Missing,
        Error::Lost { .. } | Error::LostDescription { .. } => StoreError::Lost(error.to_string()),
        Error::Unavailable { .. } => StoreError::Unavailable(error.to_string()),
        _ => StoreError::Refused(error.to_string()),
    }
}

impl FilterStore for RedisStore {
    fn address(&self) -> &str {
        &self.address
    }

    fn ping(&self) -> Result<(), StoreError> {
        match RedisFilter::open(&self.client, "ping") {
            Ok(_) | Err(Error::Missing { .. } | Error::LostDescription { .. }) => Ok(()),
            Err(error) => Err(told(error)),
        }
    }

    fn plan_for(&self, items: u64, rate: f64) -> inbloom::Result<Plan> {
        remote::plan(items, rate)
    }

    fn create(&self, name: &[u8], plan: &Plan) -> Result<bool, StoreError> {
        let mut spec = Spec::new(*plan);
        spec.hasher = self.hasher;
        match RedisFilter::create(&self.client, name, spec) {
            Ok(_) => Ok(true),
            Err(Error::Exists { .. }) => Ok(false),
            Err(error) => Err(told(error)),
        }
    }

    fn add(
        &self,
        name: &[u8],
        items: &[&[u8]],
        answers: &mut Vec<Added>,
    ) -> Result<(), StoreError> {
        let mut added = Vec::new();
        let result = self.with(name, |filter| filter.insert_many(items, &mut added));
        added.resize(items.len(), remote::Added::Failed);
        answers.clear();
        answers.extend(added.iter().map(|added| match added {
            remote::Added::New => Added::New,
            remote::Added::Present => Added::Present,
            remote::Added::Unknown => Added::Unknown,
            remote::Added::Failed => Added::Failed,
        }));
        result
    }

    fn contains(
        &self,
        name: &[u8],
        items: &[&[u8]],
        answers: &mut Vec<Lookup>,
    ) -> Result<(), StoreError> {
        let mut found = Vec::new();
        let result = self.with(name, |filter| filter.contains_many(items, &mut found));
        found.resize(items.len(), remote::Found::Failed);
        answers.clear();
        answers.extend(found.iter().map(|found| match found {
            remote::Found::Absent => Lookup::Absent,
            remote::Found::Present => Lookup::Present,
            remote::Found::Failed => Lookup::Failed,
        }));
        result
    }

    fn plan(&self, name: &[u8]) -> Result<Plan, StoreError> {
        self.forget(name);
        Ok(*self.open(name)?.plan())
    }

    fn estimate(&self, name: &[u8]) -> Result<f64, StoreError> {
        self.with(name, |filter| Ok(filter.estimate()?.items))
    }

    fn delete(&self, name: &[u8]) -> Result<bool, StoreError> {
        self.forget(name);
        RedisFilter::delete_named(&self.client, name).map_err(told)
    }

    fn expiry(&self, name: &[u8]) -> Result<Option<u64>, StoreError> {
        let left = self.with(name, |filter| Ok((SystemTime::now(), filter.time_to_live()?)))?;
        let millis = |time: SystemTime| {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        };
        Ok(left.1.map(|left_for| millis(left.0 + left_for)))
    }

    fn set_expiry(&self, name: &[u8], at: Option<u64>) -> Result<(), StoreError> {
        let result = self.with(name, |filter| match at {
            Some(at) => filter.expire_at(UNIX_EPOCH + Duration::from_millis(at)),
            None => filter.persist(),
        });
        // Looked up with its expiry before it is used again.
        self.forget(name);
        result
    }

    fn names(&self) -> Result<Vec<Vec<u8>>, StoreError> {
        let listed = RedisFilter::list(&self.client).map_err(told)?;
        Ok(listed.into_iter().map(|filter| filter.name).collect())
    }
}
