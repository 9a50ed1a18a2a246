//! Filters on Redis, named by their address where others are named by their file.
//!
//! Their bits are shared: what one program inserts all others find at once. So nothing is opened, changed
//! and saved as a file is, and no lock is taken. What is asked or inserted goes out in batches.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use inbloom::{Digest, Filter, Hasher, Plan, SecretKey};
use inbloom_redis::{
    Added, Address, Client, Durability, Found, Options, PyreBloom, RedisFilter, Server,
};
use inbloom_server::units;

use crate::keys::{InputArgs, Keys};
use crate::numbers;
use crate::output::problem;
use crate::progress::Progress;
use crate::sizing::Sizing;

/// The options for connections to Redis.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filters on Redis")]
pub struct RedisArgs {
    /// Password of the Redis server; safer in the environment variable
    #[arg(long, value_name = "PASSWORD", env = "INBLOOM_REDIS_PASSWORD", hide_env_values = true)]
    redis_password: Option<String>,

    /// File whose first line is that password
    #[arg(long, value_name = "FILE", env = "INBLOOM_REDIS_PASSWORD_FILE")]
    #[arg(conflicts_with = "redis_password")]
    redis_password_file: Option<PathBuf>,

    /// Certificates to trust for rediss://, in PEM [default: those that this system trusts]
    #[arg(long, value_name = "FILE", env = "INBLOOM_REDIS_CA")]
    redis_ca: Option<PathBuf>,

    /// Replicas that must confirm a change [default: 0]
    #[arg(long, value_name = "N", env = "INBLOOM_REDIS_REPLICAS")]
    redis_replicas: Option<u32>,

    /// Time to keep trying while Redis does not reply [default: 30s; 10s for serve]
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    redis_timeout: Option<Duration>,
}

impl RedisArgs {
    /// Connects to a server, or to the cluster that it is a part of.
    ///
    /// # Errors
    ///
    /// The password or the certificates cannot be read, or the server cannot be reached.
    pub fn connect(&self, server: &Server) -> Result<Client> {
        self.connect_within(server, None)
    }

    /// Does the same with another default for --redis-timeout.
    pub fn connect_within(&self, server: &Server, timeout: Option<Duration>) -> Result<Client> {
        let mut options = Options::default();
        options.deadline = self.redis_timeout.or(timeout).unwrap_or(options.deadline);
        if let Some(replicas) = self.redis_replicas.filter(|replicas| *replicas > 0) {
            options.durability = Durability::Replicas(replicas);
        }
        if let Some(path) = &self.redis_ca {
            let certificates = fs::read(path);
            options.root_certificate =
                Some(certificates.with_context(|| format!("--redis-ca {}", path.display()))?);
        }
        let server = match self.password()? {
            Some(password) => server.clone().with_password(password),
            None => server.clone(),
        };
        Client::connect(&server, options).with_context(|| server.to_string())
    }

    fn password(&self) -> Result<Option<String>> {
        match (&self.redis_password, &self.redis_password_file) {
            (Some(password), _) => Ok(Some(password.clone())),
            (None, Some(path)) => {
                let text = fs::read_to_string(path)
                    .with_context(|| format!("--redis-password-file {}", path.display()))?;
                Ok(Some(text.lines().next().unwrap_or_default().to_owned()))
            }
            (None, None) => Ok(None),
        }
    }

    /// Opens a filter.
    ///
    /// # Errors
    ///
    /// There is none of this name, or its hash needs another secret key.
    pub fn open(&self, address: &Address, key: Option<&SecretKey>) -> Result<RedisFilter> {
        let client = self.connect(address.server())?;
        RedisFilter::open_keyed(&client, address.name(), key).with_context(|| address.to_string())
    }
}

/// The option for filters of pyreBloom.
#[derive(clap::Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Filters on Redis")]
pub struct PyreBloomArgs {
    /// The filter was made by pyreBloom for this capacity and error, which Redis does not know:
    /// 100000,0.01
    #[arg(long, value_name = "CAPACITY,ERROR", value_parser = parse_pyrebloom)]
    pub pyrebloom: Option<PyreBloomSize>,
}

/// The arguments with which pyreBloom made a filter.
#[derive(Clone, Copy, Debug)]
pub struct PyreBloomSize {
    pub capacity: u32,
    pub error: f64,
}

fn parse_pyrebloom(text: &str) -> std::result::Result<PyreBloomSize, String> {
    let expected = || {
        "expected the capacity and the error that pyreBloom was given, such as 100000,0.01"
            .to_owned()
    };
    let (capacity, error) = text.split_once(',').ok_or_else(expected)?;
    let capacity = units::parse_keys(capacity)?;
    let capacity = u32::try_from(capacity).map_err(|_| "pyreBloom takes at most 2^32 - 1 keys")?;
    Ok(PyreBloomSize { capacity, error: units::parse_rate(error)? })
}

impl PyreBloomArgs {
    /// Refuses the option beside a file.
    pub fn refuse(self) -> Result<()> {
        ensure!(
            self.pyrebloom.is_none(),
            problem(
                "--pyrebloom only works for filters on Redis",
                "pass an address such as redis://localhost/seen"
            )
        );
        Ok(())
    }

    /// Refuses options that such a filter cannot follow.
    pub fn refuse_beside(self, options: &[(&str, bool)]) -> Result<()> {
        let wrong = options.iter().find(|(_, is_given)| *is_given);
        match wrong.filter(|_| self.pyrebloom.is_some()) {
            Some((option, _)) => bail!(problem(
                format!("{option} does not work for filters of pyreBloom"),
                "leave it out"
            )),
            None => Ok(()),
        }
    }
}

impl PyreBloomSize {
    /// Opens a filter. One without keys is not on the server, and opens too.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or pyreBloom makes no such filter.
    pub fn open(self, address: &Address, redis: &RedisArgs) -> Result<PyreBloom> {
        let client = redis.connect(address.server())?;
        PyreBloom::open(&client, address.name(), self.capacity, self.error)
            .with_context(|| address.to_string())
    }
}

/// Returns the address, if a filter's name is one. Otherwise the name is that of a file.
pub fn address_of(path: &Path) -> Result<Option<Address>> {
    match path.to_str().filter(|text| Address::is_address(text)) {
        Some(text) => Ok(Some(text.parse()?)),
        None => Ok(None),
    }
}

/// Returns the server, if a name is an address without a filter's name.
pub fn server_of(path: &Path) -> Result<Option<Server>> {
    let Some(text) = path.to_str().filter(|text| Address::is_address(text)) else {
        return Ok(None);
    };
    match (text.parse::<Address>(), text.parse::<Server>()) {
        (Err(_), Ok(server)) => Ok(Some(server)),
        _ => Ok(None),
    }
}

/// Returns the name of a filter to print: an address without its password.
pub fn shown(path: &Path) -> String {
    match address_of(path) {
        Ok(Some(address)) => address.to_string(),
        _ => path.display().to_string(),
    }
}

/// Refuses an address in a command that needs a file. `instead` is what to do.
pub fn refuse_address(path: &Path, instead: &str) -> Result<()> {
    match address_of(path)? {
        Some(address) => bail!(problem(format!("{address} is on Redis"), instead)),
        None => Ok(()),
    }
}

/// Plans a filter for Redis. If the options leave the size and the probes open, it has few probes,
/// which saves Redis work for every later key.
///
/// # Errors
///
/// The options contradict each other, or no filter of kind blocked follows them.
pub fn plan(sizing: &Sizing) -> inbloom::Result<Plan> {
    let plan = sizing.plan(inbloom_redis::KIND)?;
    let is_open = sizing.bytes.is_none() && sizing.bits_per_key.is_none();
    match is_open && sizing.probes.is_none() && sizing.tier.is_none() {
        true => inbloom_redis::plan(plan.items(), plan.rate()),
        false => Ok(plan),
    }
}

/// Copies a local filter to Redis, with progress on a terminal.
///
/// # Errors
///
/// The name is taken, the filter is not one that Redis can hold, or Redis cannot be reached.
pub fn push(client: &Client, address: &Address, filter: &Filter) -> Result<RedisFilter> {
    let progress = RefCell::new(Steps::default());
    let step = |done, all| progress.borrow_mut().step("pushing", done, all);
    RedisFilter::push(client, address.name(), filter, step).with_context(|| address.to_string())
}

/// Copies a filter from Redis to a file, with progress on a terminal.
///
/// # Errors
///
/// Redis cannot be reached or has lost a part of the filter, or the file cannot be written.
pub fn pull(filter: &RedisFilter, address: &Address, file: &Path) -> Result<()> {
    let mut progress = Steps::default();
    let step = |done, all| progress.step("pulling", done, all);
    filter.pull(file, step).with_context(|| address.to_string())
}

/// Adds the keys of a local filter to one on Redis, with progress on a terminal.
///
/// # Errors
///
/// The filters differ in more than their keys, or Redis cannot be reached or has lost a part.
pub fn merge(filter: &RedisFilter, address: &Address, local: &Filter) -> Result<()> {
    let mut progress = Steps::default();
    let step = |done, all| progress.step("merging", done, all);
    filter.merge(local, step).with_context(|| address.to_string())
}

/// Shows progress in steps, from the number of finished steps.
#[derive(Default)]
struct Steps {
    shown: Option<Progress>,
    done: u64,
}

impl Steps {
    fn step(&mut self, what: &'static str, done: u64, all: u64) {
        let shown = self.shown.get_or_insert_with(|| Progress::steps(what, all));
        // Parts may be done out of order, and again.
        shown.step(usize::try_from(done.saturating_sub(self.done)).unwrap_or(usize::MAX));
        self.done = self.done.max(done);
    }
}

/// A filter to query: in files, or on Redis.
pub enum Queried {
    Local(Box<Filter>),
    Remote(Box<RedisFilter>),
}

impl Queried {
    pub fn plan(&self) -> &Plan {
        match self {
            Queried::Local(filter) => filter.plan(),
            Queried::Remote(filter) => filter.plan(),
        }
    }

    pub fn hasher(&self) -> &Hasher {
        match self {
            Queried::Local(filter) => filter.hasher(),
            Queried::Remote(filter) => filter.hasher(),
        }
    }

    /// Returns how to make its keys from the records of an input.
    pub fn keys(&self, input: &InputArgs) -> Result<Keys> {
        match self {
            Queried::Local(filter) => input.keys_for(filter),
            Queried::Remote(filter) => input.keys_like(*filter.hasher(), filter.normalization()),
        }
    }

    /// Looks keys up.
    ///
    /// # Errors
    ///
    /// Redis cannot be reached, or has lost bits that a key needs.
    pub fn contains_digests(
        &self,
        digests: &[Digest],
        found: &mut Vec<bool>,
    ) -> inbloom_redis::Result<()> {
        match self {
            Queried::Local(filter) => filter.contains_digests(digests, found),
            Queried::Remote(filter) => {
                let mut answers = Vec::new();
                filter.contains_digests(digests, &mut answers)?;
                found.clear();
                found.extend(answers.iter().map(|answer| *answer == Found::Present));
            }
        }
        Ok(())
    }
}

/// Returns how many new keys a filter on Redis has room for, from the bits that are set.
pub fn room(filter: &RedisFilter) -> Result<u64> {
    let holds = filter.estimate()?.items.round() as u64;
    Ok(filter.plan().items().saturating_sub(holds))
}

/// Inserts keys into a filter on Redis until it is full.
pub struct Inserter<'a> {
    filter: &'a RedisFilter,
    room: u64,
    answers: Vec<Added>,
    /// Keys for which Redis did not report whether they were new.
    pub unknown: u64,
}

impl<'a> Inserter<'a> {
    /// Creates it for a filter with room for this number of new keys.
    pub fn new(filter: &'a RedisFilter, room: u64) -> Inserter<'a> {
        Inserter { filter, room, answers: Vec::new(), unknown: 0 }
    }

    /// Inserts keys, and returns how many were new.
    ///
    /// # Errors
    ///
    /// Redis cannot be reached, has lost bits of the filter, or a new key came for which there is no
    /// room. Keys before that are in.
    pub fn insert(&mut self, digests: &[Digest]) -> Result<u64> {
        let (mut rest, mut new) = (digests, 0);
        while !rest.is_empty() {
            let fitting = usize::try_from(self.room).unwrap_or(usize::MAX).min(rest.len());
            if fitting == 0 {
                self.check_known(rest)?;
                break;
            }
            let (now, later) = rest.split_at(fitting);
            self.filter.insert_digests(now, &mut self.answers)?;
            let count = |which| self.answers.iter().filter(|answer| **answer == which).count();
            let (is_new, is_unknown) = (count(Added::New) as u64, count(Added::Unknown) as u64);
            new += is_new;
            self.unknown += is_unknown;
            // What is unknown may have set bits.
            self.room = self.room.saturating_sub(is_new + is_unknown);
            rest = later;
        }
        Ok(new)
    }

    fn check_known(&self, digests: &[Digest]) -> Result<()> {
        let mut found = Vec::new();
        self.filter.contains_digests(digests, &mut found)?;
        ensure!(
            !found.contains(&Found::Absent),
            problem(
                format!(
                    "the filter is full: it was planned for {}, and only the keys before the first \
                     new one without room were added",
                    numbers::keys(self.filter.plan().items())
                ),
                "build a larger one, or pass --overfull continue"
            )
        );
        Ok(())
    }
}
