//! A filter on a server or a cluster.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use inbloom::internals::format::{hash_of, hasher_of};
use inbloom::{AsKey, Digest, Estimate, Filter, Hasher, Plan, SecretKey};
use redis::Value;

use crate::chunk_job::EachChunk;
use crate::client::{Client, Job, Outcome, ask_when_ready, unexpected};
use crate::command::{Commands, NumberedKey};
use crate::description::{Description, is_wrong_type, millis_at, read_all, shown};
use crate::error::{Error, Result};
use crate::lane::Access;
use crate::layout::{FIRST_SENTINEL, Layout, description_pattern, holds, name_in, set_sentinels};
use crate::metadata::{Held, Metadata, Pushed, Verdict};
use crate::options::{Eviction, Reads};
use crate::retry::random;
use crate::wire::{Trouble, Wire};

/// What an insert did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Added {
    /// The key was certainly not in the filter, and now is. Of several clients that insert one key at
    /// once, one gets this answer.
    New,
    /// The key was probably in the filter already.
    Present,
    /// The key is in the filter. Whether it was new cannot be known: a connection broke before the
    /// reply came, and the command was repeated.
    Unknown,
    /// The call failed for this key: it may be in the filter or not.
    Failed,
}

/// What a query found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    /// The key is certainly not in the filter.
    Absent,
    /// The key is probably in the filter.
    Present,
    /// The call failed for this key: the server could not be reached, or has lost its block.
    Failed,
}

/// What a filter is created from: a plan of kind blocked, its hash, and texts.
///
/// ```
/// use inbloom::{Hasher, Kind, Plan};
/// use inbloom_redis::Spec;
///
/// let mut spec = Spec::new(Plan::builder(Kind::Blocked).items(1_000_000).rate(0.001).build()?);
/// spec.hasher = Hasher::xxh3(7);
/// spec.note = "URLs of the crawler".to_owned();
/// # Ok::<(), inbloom::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Spec {
    /// The sizes and the target rate.
    pub plan: Plan,
    /// The hash of its keys: XXH3-128 under seed 0 unless it is set.
    pub hasher: Hasher,
    /// Free text, at most 64 KiB.
    pub note: String,
    /// How keys are normalized, at most 64 KiB.
    pub normalization: String,
    /// When the filter expires, if ever.
    pub expires: Option<SystemTime>,
    /// What the file counted that the filter is pushed from.
    pub(crate) pushed: Option<Pushed>,
}

impl Spec {
    /// Describes a filter with the default hash and without texts.
    #[must_use]
    pub fn new(plan: Plan) -> Spec {
        let (hasher, note, normalization) = (Hasher::default(), String::new(), String::new());
        Spec { plan, hasher, note, normalization, expires: None, pushed: None }
    }
}

impl From<Plan> for Spec {
    fn from(plan: Plan) -> Spec {
        Spec::new(plan)
    }
}

/// A filter on the server, as [`RedisFilter::list`] finds it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Listed {
    /// Its name.
    pub name: Vec<u8>,
    /// Its plan.
    pub plan: Plan,
    /// When it was created.
    pub created: SystemTime,
    /// Whether a server has lost a part of its description: it cannot be opened, only deleted.
    pub is_lost: bool,
}

/// A membership filter whose bits are in a Redis or Valkey server, or in a cluster of them.
///
/// Its bits are those of a local filter of kind blocked with the same plan and hash. Any number of
/// clients may insert and query at once; what one has inserted, all find.
///
/// ```no_run
/// use inbloom::{Kind, Plan};
/// use inbloom_redis::{Added, Client, Options, RedisFilter};
///
/// let client = Client::connect(&"redis://localhost:7000".parse()?, Options::default())?;
/// let plan = Plan::builder(Kind::Blocked).items(1_000_000_000).rate(0.001).build()?;
/// let seen = RedisFilter::create(&client, "seen", plan)?;
///
/// assert_eq!(seen.insert("https://example.org/a")?, Added::New);
/// assert_eq!(seen.insert("https://example.org/a")?, Added::Present);
/// assert!(!seen.contains("https://example.org/b")?);
///
/// // Many keys at once are many times as fast: one pipeline to every node.
/// let mut answers = Vec::new();
/// seen.insert_many(&["https://example.org/b", "https://example.org/c"], &mut answers)?;
/// assert_eq!(answers, [Added::New, Added::New]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RedisFilter {
    pub(crate) client: Client,
    name: Vec<u8>,
    pub(crate) metadata: Metadata,
    /// The description as the server has it.
    json: Vec<u8>,
    hasher: Hasher,
    pub(crate) layout: Layout,
}

/// Seconds after which the chunks of a filter vanish whose creation was not completed.
const UNFINISHED: u64 = 3600;

/// How much longer than its description the chunks of a filter live: a filter that is found has
/// all its chunks, also while clocks differ.
const OUTLIVE: Duration = Duration::from_secs(60);

impl fmt::Debug for RedisFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFilter")
            .field("name", &shown(&self.name))
            .field("plan", &self.metadata.plan)
            .field("hasher", &self.hasher)
            .finish_non_exhaustive()
    }
}

impl RedisFilter {
    /// Creates an empty filter.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Exists`] if the name is taken; of several clients that create one filter
    /// at once, one succeeds. Refuses other kinds than blocked, and servers that may evict its bits.
    pub fn create(
        client: &Client,
        name: impl AsRef<[u8]>,
        spec: impl Into<Spec>,
    ) -> Result<RedisFilter> {
        RedisFilter::create_from(client, name.as_ref(), &spec.into(), &|_, _| Ok(()))
    }

    /// Opens a filter, or creates it where there is none.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Exists`] if there is one with another plan or hash.
    pub fn open_or_create(
        client: &Client,
        name: impl AsRef<[u8]>,
        spec: impl Into<Spec>,
    ) -> Result<RedisFilter> {
        let (name, spec) = (name.as_ref(), spec.into());
        let found = match RedisFilter::open_keyed(client, name, spec.hasher.key()) {
            Err(Error::Missing { .. }) => match RedisFilter::create(client, name, spec.clone()) {
                Err(Error::Exists { .. }) => {
                    RedisFilter::open_keyed(client, name, spec.hasher.key())?
                }
                created => return created,
            },
            opened => opened?,
        };
        if found.metadata.plan == spec.plan && found.hasher == spec.hasher {
            return Ok(found);
        }
        Err(exists(name, &spec, &found.metadata))
    }

    /// Creates a filter whose chunks `fill` writes into zeros: bytes of a local filter.
    pub(crate) fn create_from(
        client: &Client,
        name: &[u8],
        spec: &Spec,
        fill: &dyn Fn(u64, &mut [u8]) -> Result<()>,
    ) -> Result<RedisFilter> {
        check_texts(spec)?;
        check_eviction(client, spec.expires.is_some())?;
        let prefix = &client.options().prefix;
        let description = Description::new(client, name);
        match description.look()? {
            Verdict::Missing => {}
            Verdict::Whole(existing) => return Err(exists(name, spec, &existing.metadata)),
            Verdict::Half(_) => return Err(description.lost()),
        }
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let metadata = Metadata {
            id: random(),
            plan: spec.plan,
            hash: hash_of(&spec.hasher),
            note: spec.note.clone(),
            normalization: spec.normalization.clone(),
            created,
            pushed: spec.pushed,
        };
        let json = metadata.encode()?.into_bytes();
        let layout = Layout::new(prefix, metadata.id, &metadata.plan)?;
        let name = name.to_vec();
        let (client, hasher) = (client.clone(), spec.hasher);
        let filter = RedisFilter { client, name, metadata, json, hasher, layout };

        let made = filter.make_chunks(fill, spec.expires).and_then(|()| {
            let (description, id) = (filter.description(), filter.metadata.id);
            match description.create(&filter.json, id, spec.expires)? {
                None => Ok(()),
                Some(winner) => Err(exists(&filter.name, spec, &winner)),
            }
        });
        if made.is_err() {
            // What is left behind if this fails too is lost memory, and no wrong answer. The
            // description may be ours without a reply that says so: without its chunks it would be
            // useless.
            let _ = filter.delete();
        }
        made.map(|()| filter)
    }

    /// Opens a filter.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Missing`] if there is none, and with [`Error::LostDescription`] if a server
    /// has lost the description of one. A filter under a secret key needs [`RedisFilter::open_keyed`].
    pub fn open(client: &Client, name: impl AsRef<[u8]>) -> Result<RedisFilter> {
        RedisFilter::open_keyed(client, name, None)
    }

    /// Opens a filter, with the secret key of its hash if it has one.
    ///
    /// # Errors
    ///
    /// As [`RedisFilter::open`]; and if the key is another one.
    pub fn open_keyed(
        client: &Client,
        name: impl AsRef<[u8]>,
        secret: Option<&SecretKey>,
    ) -> Result<RedisFilter> {
        let name = name.as_ref();
        let description = Description::new(client, name);
        let held = match description.look()? {
            Verdict::Missing => return Err(Error::Missing { name: shown(name) }),
            Verdict::Whole(held) => held,
            Verdict::Half(_) => return Err(description.lost()),
        };
        let hasher = hasher_of(held.metadata.hash, secret)?;
        let filter = RedisFilter::described(client, name, held, hasher)?;
        filter.check_types(1)?;
        Ok(filter)
    }

    fn described(client: &Client, name: &[u8], held: Held, hasher: Hasher) -> Result<RedisFilter> {
        let Held { json, metadata, .. } = held;
        let layout = Layout::new(&client.options().prefix, metadata.id, &metadata.plan)?;
        let (client, name) = (client.clone(), name.to_vec());
        Ok(RedisFilter { client, name, metadata, json, hasher, layout })
    }

    /// Returns all filters on the server, sorted by name.
    ///
    /// # Errors
    ///
    /// Fails if a server cannot be reached. Descriptions that cannot be read are left out.
    pub fn list(client: &Client) -> Result<Vec<Listed>> {
        let names = RedisFilter::names(client)?;
        let listed = read_all(client, &names)?.into_iter().zip(names).filter_map(|(read, name)| {
            let (Metadata { plan, created, .. }, is_whole) = read?;
            let created = UNIX_EPOCH + Duration::from_secs(created);
            Some(Listed { name, plan, created, is_lost: !is_whole })
        });
        Ok(listed.collect())
    }

    /// Returns the names of all filters on the server, sorted: also of those that are lost, or are just
    /// created or deleted.
    ///
    /// # Errors
    ///
    /// Fails if a server cannot be reached.
    pub fn names(client: &Client) -> Result<Vec<Vec<u8>>> {
        let prefix = &client.options().prefix;
        let pattern = description_pattern(prefix);
        let scan = |wire: &mut Wire| {
            let (mut names, mut cursor) = (Vec::new(), b"0".to_vec());
            loop {
                let scan: [&[u8]; 6] =
                    [b"SCAN", &cursor, b"MATCH", pattern.as_bytes(), b"COUNT", b"1000"];
                let reply = ask_when_ready(wire, &scan)?;
                let invalid = || Trouble::Fatal(unexpected(&wire.node, "SCAN", &reply));
                let (next, keys) = scanned(&reply).ok_or_else(invalid)?;
                names.extend(keys.filter_map(|key| name_in(prefix, key).map(<[u8]>::to_vec)));
                if next == b"0" {
                    return Ok(names);
                }
                cursor = next.to_vec();
            }
        };
        // Every name comes twice, and a slot that moves meanwhile may be scanned twice.
        let names: BTreeSet<_> =
            client.on_masters(scan)?.into_iter().flat_map(|(_, names)| names).collect();
        Ok(names.into_iter().collect())
    }

    /// Deletes the filter. Returns false if it was deleted before.
    ///
    /// A filter that was created again under its name meanwhile stays.
    ///
    /// # Errors
    ///
    /// Fails if a server cannot be reached. Call it again then: what is left of the chunks is found.
    pub fn delete(&self) -> Result<bool> {
        let [deleted, _] = self.description().delete(&self.json)?;
        self.unlink_chunks()?;
        Ok(deleted)
    }

    /// Deletes the filter of a name, also one whose description is lost in part. Its secret key is not
    /// needed. Returns false if there is none.
    ///
    /// # Errors
    ///
    /// As [`RedisFilter::delete`].
    pub fn delete_named(client: &Client, name: impl AsRef<[u8]>) -> Result<bool> {
        let name = name.as_ref();
        let copies = match Description::new(client, name).look()? {
            Verdict::Missing => return Ok(false),
            Verdict::Whole(held) => vec![held],
            Verdict::Half(copies) => copies.first.into_iter().chain(copies.second).collect(),
        };
        let mut deleted = false;
        for held in copies {
            // No key is looked up: any hash will do.
            let filter = RedisFilter::described(client, name, held, Hasher::default())?;
            deleted |= filter.description().delete(&filter.json)?.contains(&true);
            filter.unlink_chunks()?;
        }
        Ok(deleted)
    }

    /// Lets the filter expire at a time, its chunks a minute later.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Deleted`] or [`Error::Replaced`] if it is not there any more, and with
    /// [`Error::Eviction`] on servers that evict what expires.
    pub fn expire_at(&self, time: SystemTime) -> Result<()> {
        check_eviction(&self.client, true)?;
        self.expire_chunks(time)?;
        self.expire_description(Some(time))
    }

    fn expire_description(&self, time: Option<SystemTime>) -> Result<()> {
        match self.description().expire(&self.json, time)? {
            true => Ok(()),
            false => Err(self.fate()?.unwrap_or_else(|| self.deleted())),
        }
    }

    /// Lets the chunks expire a minute after the filter.
    fn expire_chunks(&self, time: SystemTime) -> Result<()> {
        let later = millis_at(time + OUTLIVE);
        self.on_chunks(&|key, commands| {
            commands.begin(3);
            commands.text("PEXPIREAT");
            commands.key(key);
            commands.text(&later);
        })
    }

    /// Lets chunks expire as the filter does, after commands that made them anew without an expiry.
    pub(crate) fn restore_expiry(&self) -> Result<()> {
        // Another client may change it at the same time: what it set last holds.
        let mut set: Option<SystemTime> = None;
        while let Some(left) = self.time_to_live()? {
            let time = SystemTime::now() + left;
            let is_same = set.is_some_and(|set| {
                let apart = time.duration_since(set).unwrap_or_else(|early| early.duration());
                apart < OUTLIVE / 2
            });
            if is_same {
                break;
            }
            self.expire_chunks(time)?;
            set = Some(time);
        }
        Ok(())
    }

    /// Lets the filter never expire.
    ///
    /// # Errors
    ///
    /// As [`RedisFilter::expire_at`].
    pub fn persist(&self) -> Result<()> {
        self.on_chunks(&|key, commands| {
            commands.begin(2);
            commands.text("PERSIST");
            commands.key(key);
        })?;
        self.expire_description(None)
    }

    /// Returns how long the filter has until it expires, if it does.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Deleted`] if it is not there any more.
    pub fn time_to_live(&self) -> Result<Option<Duration>> {
        match self.description().time_to_live()? {
            -1 => Ok(None),
            millis if millis >= 0 => Ok(Some(Duration::from_millis(millis.unsigned_abs()))),
            _ => Err(self.fate()?.unwrap_or_else(|| self.deleted())),
        }
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns its plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.metadata.plan
    }

    /// Returns the hash of its keys.
    #[must_use]
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// Returns the note that it was created with.
    #[must_use]
    pub fn note(&self) -> &str {
        &self.metadata.note
    }

    /// Returns how its keys are normalized.
    #[must_use]
    pub fn normalization(&self) -> &str {
        &self.metadata.normalization
    }

    /// Returns when it was created.
    #[must_use]
    pub fn created(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.metadata.created)
    }

    /// Returns how many values hold its bits.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.layout.count()
    }

    /// Returns the client that it uses.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Inserts a key, and returns whether it was new.
    ///
    /// # Errors
    ///
    /// As [`RedisFilter::insert_many`].
    pub fn insert(&self, key: impl AsKey) -> Result<Added> {
        let mut answers = Vec::new();
        self.insert_digests(&[self.hasher.digest(key)], &mut answers)?;
        Ok(answers[0])
    }

    /// Returns whether a key may have been inserted: false is certain, true is probable.
    ///
    /// # Errors
    ///
    /// As [`RedisFilter::contains_many`].
    pub fn contains(&self, key: impl AsKey) -> Result<bool> {
        let mut answers = Vec::new();
        self.contains_digests(&[self.hasher.digest(key)], &mut answers)?;
        Ok(answers[0] == Found::Present)
    }

    /// Inserts many keys, in pipelines to all nodes at once. `answers` is emptied first, and has an
    /// answer for each key afterwards, also if the call fails: then [`Added::Failed`] for the keys
    /// that it failed for. An insert may be repeated.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`] if the server has lost blocks of the filter, with
    /// [`Error::NotReplicated`] if there are fewer copies than the options ask for, with
    /// [`Error::Deleted`] or [`Error::Replaced`] if it is gone, and with [`Error::Unavailable`] if
    /// the deadline passes.
    pub fn insert_many<K: AsKey>(&self, keys: &[K], answers: &mut Vec<Added>) -> Result<()> {
        let digests: Vec<Digest> = keys.iter().map(|key| self.hasher.digest(key)).collect();
        self.insert_digests(&digests, answers)
    }

    /// Looks many keys up, in pipelines to all nodes at once. `answers` is emptied first, and has an
    /// answer for each key afterwards, also if the call fails: then [`Found::Failed`] for the keys that
    /// it failed for.
    ///
    /// # Errors
    ///
    /// As [`RedisFilter::insert_many`].
    pub fn contains_many<K: AsKey>(&self, keys: &[K], answers: &mut Vec<Found>) -> Result<()> {
        let digests: Vec<Digest> = keys.iter().map(|key| self.hasher.digest(key)).collect();
        self.contains_digests(&digests, answers)
    }

    /// [`RedisFilter::insert_many`] for keys that are hashed already.
    ///
    /// # Errors
    ///
    /// As [`RedisFilter::insert_many`].
    pub fn insert_digests(&self, digests: &[Digest], answers: &mut Vec<Added>) -> Result<()> {
        answers.clear();
        answers.resize(digests.len(), Added::Failed);
        let ours = vec![false; digests.len()];
        let (layout, lost) = (&self.layout, BTreeSet::new());
        let mut job = Insert { layout, digests, answers, ours, lost };
        let outcome = self.client.run(&mut job, digests.len(), Access::Write);
        let lost = std::mem::take(&mut job.lost);
        for item in &outcome.failed {
            answers[*item] = Added::Failed;
        }
        self.explain(outcome, lost, Access::Write)
    }

    /// [`RedisFilter::contains_many`] for keys that are hashed already.
    ///
    /// # Errors
    ///
    /// As [`RedisFilter::insert_many`].
    pub fn contains_digests(&self, digests: &[Digest], answers: &mut Vec<Found>) -> Result<()> {
        answers.clear();
        answers.resize(digests.len(), Found::Failed);
        let (layout, lost) = (&self.layout, BTreeSet::new());
        let mut job = Lookup { layout, digests, answers, lost };
        let mut outcome = self.client.run(&mut job, digests.len(), Access::Query);
        if !job.lost.is_empty() && self.client.options().reads == Reads::Replicas {
            // A replica may not have them yet: what masters have counts.
            job.lost.clear();
            outcome = self.client.run(&mut job, digests.len(), Access::Read);
        }
        let lost = std::mem::take(&mut job.lost);
        for item in &outcome.failed {
            answers[*item] = Found::Failed;
        }
        self.explain(outcome, lost, Access::Read)
    }

    /// Estimates how many distinct keys were inserted, from the bits that are set. The server counts
    /// them: about 0.2 ms for each of [`RedisFilter::chunks`].
    ///
    /// # Errors
    ///
    /// As [`RedisFilter::insert_many`].
    pub fn estimate(&self) -> Result<Estimate> {
        Ok(self.metadata.plan.estimate(self.occupied()?))
    }

    /// Counts the bits that keys have set.
    ///
    /// # Errors
    ///
    /// As [`RedisFilter::insert_many`].
    pub fn occupied(&self) -> Result<u64> {
        let (mut ones, mut lost) = (0, BTreeSet::new());
        let blocks = |chunk: u64| self.layout.chunks.bytes(chunk) as u64 / 64;
        let mut job = EachChunk {
            layout: &self.layout,
            replies: 2,
            batch: 100,
            write: |chunk, commands: &mut Commands| {
                commands.begin(2);
                commands.text("BITCOUNT");
                commands.key(self.layout.key(chunk));
                write_sentinel(&self.layout, chunk, commands);
            },
            read: |chunk, replies: &[Value]| match replies {
                [Value::Int(count), Value::Int(1)] => {
                    ones += count.unsigned_abs().saturating_sub(blocks(chunk));
                    Ok(())
                }
                _ => {
                    lost.insert(chunk);
                    Err(self.lost(vec![chunk]))
                }
            },
        };
        let outcome = self.client.run(&mut job, self.layout.count() as usize, Access::Read);
        self.explain(outcome, lost, Access::Read)?;
        Ok(ones)
    }

    // ------------------------------------------------------------------------------- the rest is ours

    fn description(&self) -> Description<'_> {
        Description::new(&self.client, &self.name)
    }

    fn deleted(&self) -> Error {
        Error::Deleted { name: shown(&self.name) }
    }

    /// Returns what became of the filter; None if its description is there.
    fn fate(&self) -> Result<Option<Error>> {
        let description = self.description();
        Ok(match description.look()? {
            Verdict::Whole(now) if now.metadata.id == self.metadata.id => None,
            Verdict::Whole(_) => Some(Error::Replaced { name: shown(&self.name) }),
            Verdict::Half(_) => Some(description.lost()),
            Verdict::Missing => Some(self.deleted()),
        })
    }

    pub(crate) fn lost(&self, lost: Vec<u64>) -> Error {
        Error::Lost { name: shown(&self.name), lost, chunks: self.layout.count() }
    }

    /// Turns what became of a job into what became of the filter: chunks that are not there may be
    /// lost, or the filter was deleted.
    pub(crate) fn explain(
        &self,
        outcome: Outcome,
        lost: BTreeSet<u64>,
        access: Access,
    ) -> Result<()> {
        if lost.is_empty() {
            return match outcome.into_result() {
                Err(error @ Error::Server { .. }) if is_wrong_type(&error) => {
                    self.check_types(self.layout.count())?;
                    Err(error)
                }
                result => result,
            };
        }
        let Some(error) = self.fate()? else {
            return Err(self.lost(lost.into_iter().collect()));
        };
        let is_gone = matches!(error, Error::Deleted { .. } | Error::Replaced { .. });
        if access == Access::Write && is_gone {
            // Inserts into chunks that were not there have made them: nobody will look for them.
            let _ = self.unlink(&lost.into_iter().collect::<Vec<_>>());
        }
        Err(error)
    }

    /// Refuses a filter of whose first chunks one is of a type that cannot be read by ranges.
    fn check_types(&self, chunks: u64) -> Result<()> {
        let mut job = EachChunk {
            layout: &self.layout,
            replies: 1,
            batch: 500,
            write: |chunk, commands: &mut Commands| {
                commands.begin(2);
                commands.text("TYPE");
                commands.key(self.layout.key(chunk));
            },
            read: |chunk, replies: &[Value]| {
                let key = self.layout.key(chunk).to_string();
                match &replies[0] {
                    Value::SimpleString(kind) => match kind.as_str() {
                        // A chunk that is not there is found to be lost when it is used.
                        "string" | "none" => Ok(()),
                        "bitmap" => Err(Error::Roaring { key }),
                        _ => Err(Error::WrongType { key, found: kind.clone() }),
                    },
                    reply => Err(unexpected(self.client.server(), "TYPE", reply)),
                }
            },
        };
        self.client.run(&mut job, chunks as usize, Access::Read).into_result()
    }

    /// Writes all chunks, first with an expiry, in case that we do not come to the end.
    fn make_chunks(
        &self,
        fill: &dyn Fn(u64, &mut [u8]) -> Result<()>,
        expires: Option<SystemTime>,
    ) -> Result<()> {
        let count = self.layout.count() as usize;
        let problem = std::cell::RefCell::new(None);
        let mut job = EachChunk {
            layout: &self.layout,
            replies: 1,
            batch: 16,
            write: |chunk, commands: &mut Commands| {
                let mut bytes = vec![0; self.layout.chunks.bytes(chunk)];
                if let Err(error) = fill(chunk, &mut bytes) {
                    problem.borrow_mut().get_or_insert(error);
                }
                set_sentinels(&mut bytes);
                // Never over a chunk that is there: a command of a connection that we gave up may be run
                // when others have inserted keys.
                commands.begin(6);
                commands.text("SET");
                commands.key(self.layout.key(chunk));
                commands.slice(&bytes);
                commands.text("NX");
                commands.text("EX");
                commands.number(UNFINISHED);
            },
            read: |_, _: &[Value]| Ok(()),
        };
        self.client.run(&mut job, count, Access::Write).into_result()?;
        if let Some(error) = problem.into_inner() {
            return Err(error);
        }
        let later = expires.map(|time| millis_at(time + OUTLIVE));
        let mut job = EachChunk {
            layout: &self.layout,
            replies: 2,
            batch: 500,
            write: |chunk, commands: &mut Commands| {
                let key = self.layout.key(chunk);
                match &later {
                    None => {
                        commands.begin(2);
                        commands.text("PERSIST");
                        commands.key(key);
                    }
                    Some(millis) => {
                        commands.begin(3);
                        commands.text("PEXPIREAT");
                        commands.key(key);
                        commands.text(millis);
                    }
                }
                write_sentinel(&self.layout, chunk, commands);
            },
            // The first reply may be that of a repetition; that the chunk is there is what counts.
            read: |chunk, replies: &[Value]| match replies[1] {
                Value::Int(1) => Ok(()),
                _ => Err(self.lost(vec![chunk])),
            },
        };
        self.client.run(&mut job, count, Access::Write).into_result()
    }

    /// Runs a command on every chunk.
    fn on_chunks(&self, write: &dyn Fn(NumberedKey<'_>, &mut Commands)) -> Result<()> {
        let mut job = EachChunk {
            layout: &self.layout,
            replies: 1,
            batch: 500,
            write: |chunk, commands: &mut Commands| write(self.layout.key(chunk), commands),
            read: |_, _: &[Value]| Ok(()),
        };
        self.client.run(&mut job, self.layout.count() as usize, Access::Write).into_result()
    }

    pub(crate) fn unlink_chunks(&self) -> Result<()> {
        self.on_chunks(&|key, commands| {
            commands.begin(2);
            commands.text("UNLINK");
            commands.key(key);
        })
    }

    fn unlink(&self, chunks: &[u64]) -> Result<()> {
        for chunk in chunks {
            let key = self.layout.key(*chunk).to_string();
            let slot = self.layout.slot(*chunk);
            self.client.call(slot, Access::Write, &[b"UNLINK", key.as_bytes()])?;
        }
        Ok(())
    }
}

/// Adds the command that reads the sentinel of a chunk's first block.
pub(crate) fn write_sentinel(layout: &Layout, chunk: u64, commands: &mut Commands) {
    commands.begin(3);
    commands.text("GETBIT");
    commands.key(layout.key(chunk));
    commands.number(FIRST_SENTINEL);
}

fn exists(name: &[u8], wanted: &Spec, existing: &Metadata) -> Error {
    let wanted = described(&wanted.plan, hash_of(&wanted.hasher));
    let existing = described(&existing.plan, existing.hash);
    Error::Exists { name: shown(name), wanted, existing }
}

/// Returns a plan and a hash, in words.
fn described(plan: &Plan, (hash, value): (u16, u64)) -> String {
    let (items, rate, bits, probes) = (plan.items(), plan.rate(), plan.bits(), plan.probes());
    let hash =
        if (hash, value) == (1, 0) { String::new() } else { format!(", hash {hash}:{value:x}") };
    format!("{items} items at rate {rate} ({bits} bits, {probes} probes{hash})")
}

fn check_texts(spec: &Spec) -> Result<()> {
    // The library knows how long they may be.
    let mut like = Filter::new(Plan::builder(inbloom::Kind::Blocked).items(1).build()?)?;
    like.set_note(&spec.note)?;
    like.set_normalization(&spec.normalization)?;
    Ok(())
}

/// Refuses servers that may evict chunks: any, or those of a filter that expires. Servers that do not
/// say are trusted.
fn check_eviction(client: &Client, expires: bool) -> Result<()> {
    if client.options().eviction == Eviction::Allow {
        return Ok(());
    }
    for (node, reply) in client.ask_masters(&[b"INFO", b"memory"])? {
        let Value::BulkString(info) = reply else { continue };
        let info = String::from_utf8_lossy(&info);
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        let limited = field("maxmemory:").is_some_and(|limit| limit.trim() != "0");
        if let Some(policy) = field("maxmemory_policy:").map(str::trim)
            && (policy.starts_with("allkeys") || expires && policy.starts_with("volatile"))
            && limited
        {
            let (node, policy) = (node.to_string(), policy.to_owned());
            return Err(Error::Eviction { node, policy });
        }
    }
    Ok(())
}

/// Reads the reply to SCAN: the next cursor, and keys.
fn scanned(reply: &Value) -> Option<(&[u8], impl Iterator<Item = &[u8]>)> {
    let Value::Array(parts) = reply else { return None };
    let [Value::BulkString(cursor), Value::Array(keys)] = parts.as_slice() else { return None };
    let keys = keys.iter().filter_map(|key| match key {
        Value::BulkString(key) => Some(key.as_slice()),
        _ => None,
    });
    Some((cursor, keys))
}

/// Inserts digests.
struct Insert<'a> {
    layout: &'a Layout,
    digests: &'a [Digest],
    answers: &'a mut [Added],
    /// Keys that an attempt of ours may have set before.
    ours: Vec<bool>,
    lost: BTreeSet<u64>,
}

impl Job for Insert<'_> {
    fn slot(&self, item: usize) -> u16 {
        self.layout.slot(self.layout.chunks.chunk(self.digests[item]))
    }

    fn write(&self, item: usize, commands: &mut Commands) {
        self.layout.add(self.digests[item], commands);
    }

    /// An insert of a key that is present changes nothing. A server may then wait for no copies,
    /// though the key's bits are another client's and were not copied yet.
    fn mark(&self, item: usize, commands: &mut Commands) -> bool {
        commands.begin(3);
        commands.text("APPEND");
        commands.key(self.layout.key(self.layout.chunks.chunk(self.digests[item])));
        commands.text("");
        true
    }

    fn accept(&mut self, item: usize, replies: &[Value]) -> Result<()> {
        let chunk = self.layout.chunks.chunk(self.digests[item]);
        let Value::Array(bits) = &replies[0] else {
            return Err(unexpected("the server", "BITFIELD", replies));
        };
        let is_set = |bit: &Value| *bit != Value::Int(0);
        let Some((sentinels, bits)) = bits.split_at_checked(self.layout.chunks.lines()) else {
            return Err(unexpected("the server", "BITFIELD", replies));
        };
        if !sentinels.iter().all(is_set) {
            self.lost.insert(chunk);
            // The caller says what it means for the filter.
            return Err(Error::Lost { name: String::new(), lost: vec![chunk], chunks: 0 });
        }
        self.answers[item] = match (bits.iter().all(is_set), self.ours[item]) {
            (false, _) => Added::New,
            (true, false) => Added::Present,
            (true, true) => Added::Unknown,
        };
        // If this has to be repeated, because there are too few copies, its bits are ours.
        self.ours[item] |= self.answers[item] == Added::New;
        Ok(())
    }

    fn unanswered(&mut self, item: usize) {
        self.ours[item] = true;
    }
}

/// Looks digests up.
struct Lookup<'a> {
    layout: &'a Layout,
    digests: &'a [Digest],
    answers: &'a mut [Found],
    lost: BTreeSet<u64>,
}

impl Job for Lookup<'_> {
    fn slot(&self, item: usize) -> u16 {
        self.layout.slot(self.layout.chunks.chunk(self.digests[item]))
    }

    fn write(&self, item: usize, commands: &mut Commands) {
        self.layout.read(self.digests[item], commands);
    }

    fn replies(&self) -> usize {
        self.layout.chunks.lines()
    }

    fn accept(&mut self, item: usize, replies: &[Value]) -> Result<()> {
        let digest = self.digests[item];
        let mut present = true;
        for (line, reply) in self.layout.chunks.touches(digest).zip(replies) {
            let Value::BulkString(block) = reply else {
                return Err(unexpected("the server", "GETRANGE", reply));
            };
            match holds(&line, block) {
                Some(held) => present &= held,
                None => {
                    let chunk = self.layout.chunks.chunk(digest);
                    self.lost.insert(chunk);
                    return Err(Error::Lost { name: String::new(), lost: vec![chunk], chunks: 0 });
                }
            }
        }
        self.answers[item] = if present { Found::Present } else { Found::Absent };
        Ok(())
    }
}
