//! What is kept between the commands of a transfer: filters that are being loaded, and what dumps
//! that have begun still need. Nothing of it can be seen by other commands, all of it counts as
//! memory in use, and all of it is forgotten after a while.

mod interval_set;
pub mod loading;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use inbloom::internals::kinds::blocked::Shape;
use inbloom::interop::redisbloom::{CuckooChain, OVERHEAD};
use inbloom::{Kind, Plan};
use parking_lot::Mutex;

use crate::keyspace::{Entry, Key};
use crate::reply_error::ReplyError;
use crate::value::dump_format::{self, Header};
use loading::Loading;

/// A dump that nobody asks for any more, in milliseconds.
const DUMP_LASTS: u64 = 60_000;
/// A filter of which no piece comes any more.
const LOADING_LASTS: u64 = 600_000;
/// Dumps at once; the one that was not asked for the longest makes room.
const MOST_DUMPS: usize = 256;
/// Names of which it is known that a copy was forgotten: hashes, half a megabyte in all.
const MOST_NAMES: usize = 4096;
/// Connections that are known to have begun a dump; the one that began first makes room.
const MOST_CLIENTS: usize = 1024;
/// Filters that are being loaded at once.
const MOST_LOADING: usize = 1024;

/// What either takes beside its bytes and its name.
const STAGED: u64 = 512;

/// Dumps and loads under way.
pub struct Transfers {
    /// By the hash of a name: what is remembered of a forgotten dump must not hold a name of 64 KiB.
    /// A dump is found by its entry in addition, so that two names of one hash do no harm.
    dumps: Mutex<HashMap<u64, Group>>,
    hasher: RandomState,
    /// The number of the last dump with a copy. It starts at a random number, so that an iterator from
    /// before a restart is not taken for one of another dump.
    last_id: AtomicU64,
    loading: Mutex<HashMap<Name, Arc<Staged>>>,
    bytes: Arc<AtomicU64>,
    /// That of the last base: who loads a million filters of one shape shall have it once.
    shape: Mutex<Option<Arc<Shape>>>,
}

impl Transfers {
    /// None yet. The bytes that they use are entered in an account.
    pub fn new(bytes: Arc<AtomicU64>) -> Transfers {
        let hasher = RandomState::new();
        Transfers {
            dumps: Mutex::default(),
            last_id: AtomicU64::new(hasher.hash_one("dump") % dump_format::MOST_DUMP_IDS),
            hasher,
            loading: Mutex::default(),
            bytes,
            shape: Mutex::default(),
        }
    }
}

/// A database and a name in it.
type Name = (usize, Box<[u8]>);

fn name_of(key: Key<'_>) -> Name {
    (key.database, key.name.into())
}

/// A filter that is being loaded. None: it was whole, and is published.
pub struct Staged {
    /// What there is of it.
    pub loading: Mutex<Option<Loading>>,
    /// Whether it is one of CF.*.
    pub is_cuckoo: bool,
    /// See [`Loading::file_bytes`].
    pub file_bytes: u64,
    used: AtomicU64,
    claim: Mutex<Claim>,
}

impl Staged {
    /// Enters the memory that it takes now, beside its name.
    pub fn settle(&self, bytes: u64) {
        self.claim.lock().set(bytes);
    }
}

/// The dumps that have begun under one name.
#[derive(Default)]
struct Group {
    dumps: Vec<Arc<Dump>>,
    /// When a copy was last forgotten. Its client may go on over another connection, and must not
    /// be given pieces of somebody else's.
    forgotten: Option<u64>,
}

impl Group {
    fn forget(&mut self, at: usize, now: u64) -> Arc<Dump> {
        let dump = self.dumps.remove(at);
        if dump.kept.has_no_number() {
            self.forgotten = Some(now);
        }
        dump
    }
}

/// Which dump a client goes on with.
pub enum Which {
    /// This one.
    One(Arc<Dump>),
    /// None is known.
    None,
    /// One of several that began on other connections.
    Several,
}

/// What a dump that has begun needs of the time when it began.
pub struct Dump {
    /// Its number, in the iterators of our own form.
    pub id: u64,
    /// The connections that have begun it, the oldest first: several, if the filter was the same each
    /// time.
    clients: Mutex<Vec<u64>>,
    /// The filter, to tell it from another one that has its name now.
    entry: Weak<Entry>,
    /// Its stamp just before.
    stamp: u64,
    /// What is kept.
    pub kept: KeptForDump,
    used: AtomicU64,
    _claim: Claim,
}

/// What is kept of a filter that is being dumped.
pub enum KeptForDump {
    /// How long its body was: of one that only ever gets more bits, which may be newer.
    Length(u64),
    /// The file at the end of our own form.
    File(Header, Vec<u8>),
    /// A copy, because entries move about in it.
    Cuckoo(Box<CuckooChain>),
}

impl KeptForDump {
    /// Whether only the connection tells whose copy an iterator belongs to: iterators of our own form
    /// have its number.
    fn has_no_number(&self) -> bool {
        matches!(self, KeptForDump::Cuckoo(_))
    }

    /// The bytes of the body.
    pub fn bytes_of_body(&self) -> u64 {
        match self {
            KeptForDump::Length(length) => *length,
            KeptForDump::File(header, _) => header.body(),
            KeptForDump::Cuckoo(cuckoo) => cuckoo.bytes(),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            KeptForDump::Length(_) => 0,
            KeptForDump::File(_, file) => file.len() as u64,
            KeptForDump::Cuckoo(cuckoo) => cuckoo.bytes() + cuckoo.filters() * OVERHEAD,
        }
    }
}

/// Bytes that count as in use as long as this is there.
struct Claim {
    all: Arc<AtomicU64>,
    /// What does not change.
    fixed: u64,
    bytes: u64,
}

impl Claim {
    fn set(&mut self, bytes: u64) {
        self.all.fetch_add(bytes, Ordering::Relaxed);
        self.all.fetch_sub(std::mem::replace(&mut self.bytes, bytes), Ordering::Relaxed);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.all.fetch_sub(self.fixed + self.bytes, Ordering::Relaxed);
    }
}

impl Transfers {
    /// The bytes in use.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn claim(&self, fixed: u64, bytes: u64) -> Claim {
        self.bytes.fetch_add(fixed + bytes, Ordering::Relaxed);
        Claim { all: Arc::clone(&self.bytes), fixed, bytes }
    }

    /// The shape of a base.
    pub fn shape(&self, capacity: u64, rate: f64) -> Result<Arc<Shape>, ReplyError> {
        let is_it = |plan: &Plan| plan.items() == capacity && plan.rate() == rate;
        if let Some(shape) = self.shape.lock().as_ref().filter(|shape| is_it(shape.plan())) {
            return Ok(Arc::clone(shape));
        }
        let plan = Plan::builder(Kind::Blocked).items(capacity).rate(rate).build();
        let shape = plan.and_then(Shape::new).map_err(dump_format::bad)?;
        *self.shape.lock() = Some(Arc::clone(&shape));
        Ok(shape)
    }

    fn hash_of(&self, key: Key<'_>) -> u64 {
        self.hasher.hash_one((key.database, key.name))
    }

    /// Begins to load a filter.
    pub fn begin(
        &self,
        key: Key<'_>,
        loading: Loading,
        now: u64,
    ) -> Result<Arc<Staged>, ReplyError> {
        let mut all = self.loading.lock();
        if all.len() >= MOST_LOADING {
            return Err(ReplyError::with(format!(
                "ERR {MOST_LOADING} filters are being loaded, the limit: complete some of them, or \
                 wait 10 minutes until they are dropped"
            )));
        }
        let staged = Arc::new(Staged {
            is_cuckoo: loading.is_cuckoo(),
            file_bytes: loading.file_bytes(),
            claim: Mutex::new(self.claim(STAGED + key.name.len() as u64, loading.memory())),
            loading: Mutex::new(Some(loading)),
            used: AtomicU64::new(now),
        });
        all.insert(name_of(key), Arc::clone(&staged));
        Ok(staged)
    }

    /// The filter that is being loaded under a name.
    pub fn staged(&self, key: Key<'_>, now: u64) -> Option<Arc<Staged>> {
        let staged = self.loading.lock().get(&name_of(key)).map(Arc::clone)?;
        staged.used.store(now, Ordering::Relaxed);
        Some(staged)
    }

    /// Forgets a filter that is being loaded, if it is this one or none in particular.
    pub fn abandon(&self, key: Key<'_>, staged: Option<&Arc<Staged>>) {
        let (mut all, name) = (self.loading.lock(), name_of(key));
        let is_meant = |found: &Arc<Staged>| staged.is_none_or(|staged| Arc::ptr_eq(staged, found));
        let removed = all.get(&name).is_some_and(is_meant).then(|| all.remove(&name));
        drop(all);
        drop(removed);
    }

    /// Keeps what a dump needs that a client has begun, in the place of what an earlier one of its
    /// dumps of this filter did.
    pub fn keep(
        &self,
        key: Key<'_>,
        entry: &Arc<Entry>,
        stamp: u64,
        kept: KeptForDump,
        client: u64,
        now: u64,
    ) -> Arc<Dump> {
        let dump = Arc::new(Dump {
            id: self.last_id.fetch_add(1, Ordering::Relaxed) % dump_format::MOST_DUMP_IDS + 1,
            clients: Mutex::new(vec![client]),
            entry: Arc::downgrade(entry),
            stamp,
            _claim: self.claim(STAGED, kept.bytes()),
            kept,
            used: AtomicU64::new(now),
        });
        let mut all = self.dumps.lock();
        all.entry(self.hash_of(key)).or_default().dumps.push(Arc::clone(&dump));
        let mut old = Vec::new();
        if all.values().map(|group| group.dumps.len()).sum::<usize>() > MOST_DUMPS {
            let others = all.iter().flat_map(|(name, group)| {
                let of_group = group.dumps.iter().enumerate();
                of_group.map(move |(at, dump)| (*name, at, dump))
            });
            let others = others.filter(|(_, _, other)| !Arc::ptr_eq(other, &dump));
            let oldest = others.min_by_key(|(_, _, dump)| dump.used.load(Ordering::Relaxed));
            let oldest = oldest.map(|(name, at, _)| (name, at));
            let group = oldest.and_then(|(name, at)| Some((all.get_mut(&name)?, at)));
            old.extend(group.map(|(group, at)| group.forget(at, now)));
        }
        all.retain(|_, group| !group.dumps.is_empty() || group.forgotten.is_some());
        if all.len() > MOST_NAMES {
            all.retain(|_, group| !group.dumps.is_empty());
        }
        drop(all);
        drop(old);
        dump
    }

    /// What a client has begun, or somebody else: of this filter under this name, by the number in
    /// an iterator, or 0.
    pub fn dump(&self, key: Key<'_>, entry: &Arc<Entry>, id: u64, client: u64, now: u64) -> Which {
        let all = self.dumps.lock();
        let Some(group) = all.get(&self.hash_of(key)) else { return Which::None };
        let is_of = |dump: &&Arc<Dump>| std::ptr::eq(dump.entry.as_ptr(), Arc::as_ptr(entry));
        let mut candidates = group.dumps.iter().filter(is_of);
        let found = if id != 0 {
            candidates.find(|dump| dump.id == id)
        } else if let Some(own) =
            candidates.clone().find(|dump| dump.clients.lock().contains(&client))
        {
            Some(own)
        } else {
            let one = candidates.next();
            if one.is_some() && (candidates.next().is_some() || group.forgotten.is_some()) {
                return Which::Several;
            }
            one
        };
        match found {
            Some(dump) => {
                dump.used.store(now, Ordering::Relaxed);
                Which::One(Arc::clone(dump))
            }
            None => Which::None,
        }
    }

    /// A copy of a filter as it is now, if a dump has one, which a client may begin with; and forgets
    /// what it has begun before, and copies of filters that are gone.
    pub fn again(
        &self,
        key: Key<'_>,
        entry: &Arc<Entry>,
        stamp: u64,
        client: u64,
        now: u64,
    ) -> Option<Arc<Dump>> {
        let mut all = self.dumps.lock();
        let group = all.get_mut(&self.hash_of(key))?;
        let is_of = |dump: &Arc<Dump>| std::ptr::eq(dump.entry.as_ptr(), Arc::as_ptr(entry));
        let mut found = None;
        let mut old = Vec::new();
        let forgotten = &mut group.forgotten;
        group.dumps.retain(|dump| {
            let mut clients = dump.clients.lock();
            clients.retain(|other| *other != client);
            let is_same =
                is_of(dump) && dump.stamp == stamp && !matches!(dump.kept, KeptForDump::Length(_));
            if is_same && found.is_none() {
                if clients.len() >= MOST_CLIENTS {
                    clients.remove(0);
                    *forgotten = Some(now);
                }
                clients.push(client);
                dump.used.store(now, Ordering::Relaxed);
                found = Some(Arc::clone(dump));
            }
            let stays = is_of(dump) && !clients.is_empty();
            if !stays {
                // Others may go on with it, and must not be given pieces of the copy that comes now.
                if !clients.is_empty() && dump.kept.has_no_number() {
                    *forgotten = Some(now);
                }
                old.push(Arc::clone(dump));
            }
            stays
        });
        drop(all);
        drop(old);
        found
    }

    /// Forgets what was not asked for any more.
    pub fn forget_old(&self, now: u64) {
        let is_old = |used: &AtomicU64, lasts: u64| used.load(Ordering::Relaxed) + lasts <= now;
        let mut dumps = Vec::new();
        self.dumps.lock().retain(|_, group| {
            for at in (0..group.dumps.len()).rev() {
                if is_old(&group.dumps[at].used, DUMP_LASTS) {
                    dumps.push(group.forget(at, now));
                }
            }
            let remembers = group.forgotten.is_some_and(|at| at + LOADING_LASTS > now);
            if !remembers {
                group.forgotten = None;
            }
            !group.dumps.is_empty() || remembers
        });
        let loading: Vec<_> = self
            .loading
            .lock()
            .extract_if(|_, staged| is_old(&staged.used, LOADING_LASTS))
            .collect();
        if !dumps.is_empty() || !loading.is_empty() {
            // To free gigabytes takes the kernel a while: not on the caller's time.
            let garbage = move || drop((dumps, loading));
            let _ = std::thread::Builder::new().name("reaper".into()).spawn(garbage);
        }
    }
}
