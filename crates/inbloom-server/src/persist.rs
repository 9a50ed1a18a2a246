//! The files of a server's folder, `--dir`, which keep every acknowledged change.
//!
//! ```text
//!   LOCK                          held by the process that uses the folder, as is the folder itself
//!   MANIFEST                      which of the others count
//!   log-00000000000000000001      changes, by the number of the first one
//!   pack-00000000000000000017     a snapshot: filters as they were at some time
//!   filter-18.base, ...           what is large in a filter
//!   secret                        the key of `--keyed`
//!   damaged-...                   what could not be read, kept for repair
//! ```
//!
//! Every change is a record of the [log], written at the same time. A `snapshot` replaces the log
//! before it. [recovery] reads the last snapshots, then the log.
//!
//! **Why a filter comes back as it was.** An image of a filter has the number of the last record
//! that it certainly includes; replay begins after it. If a repeated change has no effect (bits of
//! a Bloom filter), the image may include later changes. If it has an effect (counters, cuckoo
//! entries, a window's generations), change and record are one step under the filter's lock, and so
//! are image and number. Records of names, expiry and removal set a new state, whatever the state
//! before.

pub mod disk;
pub(crate) mod image;
pub mod log;
mod manifest;
pub(crate) mod record;
pub mod recovery;
mod segment;
mod snapshot;
mod throttled_disk;

use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use inbloom::Hasher;
use parking_lot::{Condvar, Mutex};

use crate::keyspace::Keyspace;
use crate::value::Value;
use crate::value::shapes::Shapes;
use disk::Disk;
use image::Fixed;
use log::{Fsync, Log};
use snapshot::SnapshotState;

pub use image::NeededVersion;
pub use recovery::{Access, Found};
pub use snapshot::Done;

/// Why a folder cannot be used, or not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system has refused.
    #[error("{action} {what}: {cause}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// With which file.
        what: String,
        /// Why not.
        cause: io::Error,
    },
    /// Another process has it.
    #[error(
        "the data folder is in use by another process: stop that process, or choose another --dir"
    )]
    InUse,
    /// It is not ours, or lost its manifest.
    #[error(
        "the data folder has {found} but no MANIFEST: restore it from a backup, or choose an empty \
         folder"
    )]
    NoManifest {
        /// A file that was found.
        found: String,
    },
    /// The manifest cannot be read.
    #[error("MANIFEST is damaged: {what}; restore the folder from a backup")]
    Manifest {
        /// How.
        what: String,
    },
    /// It was written by an older inbloom, whose folders this one does not read.
    #[error(
        "MANIFEST has no line '{line}', so an older inbloom wrote this folder, and this one cannot \
         read it: start the older one on it, and copy its filters to an empty folder of this one \
         with DUMP and RESTORE, or BF.SCANDUMP and BF.LOADCHUNK"
    )]
    Older {
        /// What the manifest does not have.
        line: &'static str,
    },
    /// It was written by a newer inbloom.
    #[error(
        "{what} has version {version}, this inbloom reads up to version {known}: upgrade inbloom"
    )]
    Newer {
        /// Which file.
        what: String,
        /// Its version.
        version: u32,
        /// Ours.
        known: u32,
    },
    /// It has filters that this inbloom does not read, although they are not damaged.
    #[error("{what}{}{}", others(*more), remedy(*reader))]
    Unreadable {
        /// The first of them, and why.
        what: String,
        /// How many others there are.
        more: usize,
        /// Which inbloom reads them.
        reader: NeededVersion,
    },
    /// It was made under another hash.
    #[error("the data folder {}", hash_remedy(found, expected))]
    Hash {
        /// What the folder has.
        found: String,
        /// What the server has.
        expected: String,
    },
    /// A filter of IB.OPEN, and nowhere to look for its file.
    #[error("{what}: start with the same --import-dir as before")]
    Import {
        /// Which.
        what: String,
    },
    /// A part that all after it depends on is damaged.
    #[error(
        "{what} is damaged at byte {at}, and records follow: restore the folder from a backup, or \
         start once with --repair, which sets aside what follows"
    )]
    Damaged {
        /// Which file.
        what: String,
        /// Where.
        at: u64,
    },
    /// A file that the manifest names is gone.
    #[error(
        "{what} is missing, and without it {lost} would be lost: restore it from a backup, or \
         start once with --repair, which accepts the loss"
    )]
    Missing {
        /// Which file.
        what: String,
        /// What was in it.
        lost: &'static str,
    },
    /// A filter could not be saved or loaded.
    #[error("{0}")]
    Image(String),
}

fn hash_remedy(found: &str, expected: &str) -> &'static str {
    let is_keyed = |hash: &str| hash.contains("keyed");
    match (is_keyed(found), is_keyed(expected)) {
        (true, false) => "was created with --keyed: start with --keyed, or with its --key-file",
        (false, true) => "was created without --keyed and --key-file: leave them out",
        _ => "was created with another secret key: pass that one, from a backup if needed",
    }
}

fn others(more: usize) -> String {
    match more {
        0 => String::new(),
        1 => " (and 1 other filter)".to_owned(),
        more => format!(" (and {more} other filters)"),
    }
}

fn remedy(reader: NeededVersion) -> &'static str {
    match reader {
        NeededVersion::Older => {
            ": start the older inbloom on the folder and delete such filters with DEL, or start \
             this one once with --repair, which starts without them and keeps them as damaged-..."
        }
        // The text of the filter's own error has it.
        NeededVersion::Newer => "",
    }
}

impl From<image::ImageError> for Error {
    fn from(error: image::ImageError) -> Error {
        Error::Image(error.to_string())
    }
}

impl Error {
    fn io(action: &'static str, what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |cause| Error::Io { action, what, cause }
    }
}

/// Whose filters a folder keeps.
pub trait Owner: Send + Sync {
    /// Names and filters.
    fn keyspace(&self) -> &Keyspace;
    /// The hash of all filters that are made here.
    fn hasher(&self) -> &Hasher;
    /// The shapes of filters.
    fn shapes(&self) -> &Shapes;
    /// Where files that IB.OPEN opens are.
    fn import_dir(&self) -> Option<&Path>;
    /// Whether it waits for the folder to end.
    fn is_stopping(&self) -> bool;
}

/// The folder of a running server.
pub struct Store {
    /// Changes since the last snapshot.
    pub log: Arc<Log>,
    disk: Arc<dyn Disk>,
    kept: Mutex<SnapshotState>,
    /// The files of filters that have some.
    files: Mutex<HashMap<u64, Vec<String>>>,
    is_saving: AtomicBool,
    status: Mutex<Status>,
    /// The last record before the last snapshot.
    saved: AtomicU64,
    log_limit: AtomicU64,
    is_stopping: AtomicBool,
    skips_last: AtomicBool,
    /// A snapshot in the background.
    wanted: Mutex<bool>,
    asks: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The folder is locked as long as this is there.
    hold: Option<Lock>,
}

/// What became of the last snapshot.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// When it was complete, in milliseconds since 1970; 0: never since the start.
    pub saved: u64,
    /// What it did.
    pub done: Done,
    /// Why the last one has failed, if it has.
    pub error: Option<String>,
}

/// What INFO and the metrics tell.
#[derive(Clone, Debug)]
pub struct StoreFigures {
    /// Whether a snapshot is being taken.
    pub is_saving: bool,
    /// The last one.
    pub status: Status,
    /// Bytes of the log that a start would replay.
    pub log_bytes: u64,
    /// Bytes ever written to the log.
    pub log_bytes_total: u64,
    /// Records ever written.
    pub records: u64,
    /// Those since the last snapshot.
    pub unsaved: u64,
    /// Syncs ever.
    pub syncs: u64,
    /// When the last one ended, in milliseconds since 1970; 0: none yet.
    pub synced_at: u64,
    /// Why no change is taken, if so.
    pub trouble: Option<String>,
}

/// Between two tries to get out of trouble.
const RETRY: Duration = Duration::from_millis(500);
/// The log of a snapshot that follows by itself, in bytes: some seconds to replay.
pub const LOG_LIMIT: u64 = 512 << 20;

const LOCK: &str = "LOCK";

/// A folder is for this process alone as long as this is there.
///
/// The lock is on the folder itself, which nobody removes by mistake, and on a file in it: a network
/// file system may lock files, but no folders.
#[derive(Debug)]
pub struct Lock {
    _files: Vec<File>,
}

/// Takes a folder for this process alone.
pub fn lock(folder: &Path) -> Result<Lock, Error> {
    let path = folder.join(LOCK);
    let file = File::open(&path).or_else(|_| File::create(&path));
    lock_with(folder, Some(file.map_err(Error::io("cannot lock", folder.display().to_string()))?))
}

fn lock_with(folder: &Path, file: Option<File>) -> Result<Lock, Error> {
    let failed = |error| Error::io("cannot lock", folder.display().to_string())(error);
    let mut files = Vec::new();
    if let Some(file) = file {
        match file.try_lock() {
            Ok(()) => files.push(file),
            Err(std::fs::TryLockError::WouldBlock) => return Err(Error::InUse),
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
    let itself = File::open(folder).map_err(failed)?;
    match itself.try_lock() {
        Ok(()) => files.push(itself),
        Err(std::fs::TryLockError::WouldBlock) => return Err(Error::InUse),
        Err(std::fs::TryLockError::Error(error)) => {
            tracing::warn!(%error, "file system does not lock folders, so keep the LOCK file in \
                                    --dir");
        }
    }
    Ok(Lock { _files: files })
}

/// Makes a data folder, if there is none, and takes it for this process alone.
pub fn take_folder(folder: &Path) -> Result<Lock, Error> {
    // Names of filters may tell something: for nobody else.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(Error::io("cannot create", folder.display().to_string()))?;
    lock(folder)
}

/// The same for a folder that is only looked at: a copy need not have a LOCK file, nor be writable.
pub fn look_at_folder(folder: &Path) -> Result<Lock, Error> {
    lock_with(folder, File::open(folder.join(LOCK)).ok())
}

/// Whether a folder has been used before.
pub fn is_in_use(folder: &Path) -> bool {
    folder.join(manifest::NAME).exists()
}

impl Store {
    fn new(
        disk: Arc<dyn Disk>,
        log: Log,
        kept: SnapshotState,
        files: HashMap<u64, Vec<String>>,
    ) -> Store {
        Store {
            log: Arc::new(log),
            disk,
            saved: AtomicU64::new(kept.manifest.log - 1),
            kept: Mutex::new(kept),
            files: Mutex::new(files),
            is_saving: AtomicBool::new(false),
            status: Mutex::default(),
            log_limit: AtomicU64::new(LOG_LIMIT),
            is_stopping: AtomicBool::new(false),
            skips_last: AtomicBool::new(false),
            wanted: Mutex::new(false),
            asks: Condvar::new(),
            threads: Mutex::default(),
            hold: None,
        }
    }

    /// Sets when changes are acknowledged, and how long the log may become before a snapshot follows.
    pub fn set(&self, policy: Fsync, log_limit: u64) {
        self.log.set_policy(policy);
        self.log_limit.store(log_limit, Ordering::Relaxed);
    }

    /// Keeps a folder locked as long as it is in use.
    pub fn hold(&mut self, lock: Option<Lock>) {
        self.hold = lock;
    }

    /// Turns the content of a filter that nobody has yet into an image, and returns it with the names of
    /// its files.
    pub fn image(&self, owner: &dyn Owner, value: &Value) -> Result<(Vec<u8>, Vec<String>), Error> {
        let stem = format!("filter-{}", owner.keyspace().number());
        let mut bytes = Vec::new();
        let items = match value {
            Value::Bloom(bloom) => bloom.items(),
            _ => 0,
        };
        let fix = || Fixed { sequence: 0, items };
        let written = image::write(value, owner.hasher(), &*self.disk, &stem, &mut bytes, fix)?;
        if !written.files.is_empty() {
            self.disk.sync_names().map_err(Error::io("cannot sync", "the data folder"))?;
        }
        Ok((bytes, written.files))
    }

    /// Enters the files of a record that was just appended.
    pub fn enter(&self, id: u64, names: Vec<String>) {
        if !names.is_empty() {
            self.files.lock().entry(id).or_default().extend(names);
        }
    }

    /// Removes files of an image that did not come to be used.
    pub fn forget(&self, names: &[String]) {
        names.iter().for_each(|name| drop(self.disk.remove(name)));
    }

    /// The server ends without a snapshot: the next start replays the log.
    pub fn skip_last_snapshot(&self) {
        self.skips_last.store(true, Ordering::Relaxed);
    }

    /// Asks for a snapshot in the background. False if one is being taken.
    pub fn snapshot_soon(&self) -> bool {
        let mut wanted = self.wanted.lock();
        if *wanted || self.is_saving.load(Ordering::Relaxed) {
            return false;
        }
        *wanted = true;
        self.asks.notify_one();
        true
    }

    /// What there is to tell.
    pub fn figures(&self) -> StoreFigures {
        StoreFigures {
            is_saving: self.is_saving.load(Ordering::Relaxed),
            status: self.status.lock().clone(),
            log_bytes: self.log.bytes(),
            log_bytes_total: self.log.total_bytes.load(Ordering::Relaxed),
            records: self.log.last(),
            unsaved: self.log.last().saturating_sub(self.saved.load(Ordering::Relaxed)),
            syncs: self.log.syncs.load(Ordering::Relaxed),
            synced_at: self.log.synced_at.load(Ordering::Relaxed),
            trouble: self.log.trouble().map(|failure| failure.text().to_owned()),
        }
    }

    /// Starts the threads that sync the log and take snapshots.
    pub fn start(self: &Arc<Store>, owner: &Arc<dyn Owner>) -> Result<(), Error> {
        let thread = |name: &str, work: fn(&Store, &Weak<dyn Owner>)| {
            let (store, owner) = (Arc::clone(self), Arc::downgrade(owner));
            let thread = std::thread::Builder::new().name(name.into());
            let spawned = thread.spawn(move || work(&store, &owner));
            spawned.map_err(Error::io("cannot start", "threads"))
        };
        let mut threads = self.threads.lock();
        threads.push(thread("log", Store::keep_log)?);
        threads.push(thread("log writer", Store::write_log)?);
        threads.push(thread("snapshots", Store::keep_snapshots)?);
        Ok(())
    }

    /// Writes and syncs everything, and takes a snapshot, so that the next start need not replay the
    /// log. Clients must be gone.
    pub fn close(&self, owner: &dyn Owner) -> Result<(), Error> {
        self.is_stopping.store(true, Ordering::Release);
        self.log.wake();
        self.log.wake_writer();
        self.asks.notify_one();
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
        self.log.settle();
        let synced = self.log.sync().map_err(Error::io("cannot sync", "the log"));
        let is_skipped = self.skips_last.load(Ordering::Relaxed);
        if !is_skipped && (self.log.bytes() > 0 || synced.is_err()) {
            let saved = self.snapshot(owner);
            // Without it the next start replays the log, which is safe.
            return saved.map(|_| ()).or(synced);
        }
        synced
    }

    /// Writes and syncs the log alone, for a process that has to end while threads are stuck: they
    /// may hold the locks of filters, so that no snapshot can be taken. Gives up after some seconds.
    pub fn abandon(self: &Arc<Store>) -> Result<(), Error> {
        /// For the disk.
        const MOST: Duration = Duration::from_secs(10);
        let (sender, done) = std::sync::mpsc::channel();
        let log = Arc::clone(&self.log);
        let work = move || {
            log.settle();
            let _ = sender.send(log.sync());
        };
        let failed = |error| Error::io("cannot sync", "the log")(error);
        std::thread::Builder::new().name("last sync".into()).spawn(work).map_err(failed)?;
        let synced = done.recv_timeout(MOST);
        synced.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)
    }

    /// Syncs as the policy says, and gets out of trouble.
    fn keep_log(&self, _: &Weak<dyn Owner>) {
        let mut synced = Instant::now();
        while !self.is_stopping.load(Ordering::Acquire) {
            let policy = self.log.policy();
            let second = Duration::from_secs(1);
            if self.log.trouble().is_some() {
                std::thread::sleep(RETRY);
                self.log.settle();
                continue;
            }
            let wait = match policy {
                Fsync::Always => second,
                Fsync::EverySecond | Fsync::No => second.saturating_sub(synced.elapsed()),
            };
            self.log.rest(wait);
            // What goes wrong is kept as the trouble of the log. Written is what is much, and what no
            // client waits for, such as keys that have expired.
            self.log.settle();
            if policy == Fsync::Always || synced.elapsed() >= second {
                if policy != Fsync::No {
                    let _ = self.log.sync();
                }
                synced = Instant::now();
            }
        }
    }

    /// Writes to the log for those who should not wait for a busy disk.
    fn write_log(&self, _: &Weak<dyn Owner>) {
        while !self.is_stopping.load(Ordering::Acquire) {
            self.log.write_when_busy(Duration::from_secs(1));
        }
    }

    /// Takes a snapshot when it is asked for, when the log is long, and when nothing else helps.
    fn keep_snapshots(&self, owner: &Weak<dyn Owner>) {
        let mut failed: Option<Instant> = None;
        while !self.is_stopping.load(Ordering::Acquire) {
            let is_wanted = {
                let mut wanted = self.wanted.lock();
                if !*wanted {
                    self.asks.wait_for(&mut wanted, RETRY);
                }
                std::mem::take(&mut *wanted)
            };
            let is_long = self.log.bytes() >= self.log_limit.load(Ordering::Relaxed);
            let is_distrusted = self.log.is_distrusted();
            if !is_wanted && !is_long && !is_distrusted {
                continue;
            }
            if !is_wanted && failed.is_some_and(|failed| failed.elapsed() < RETRY) {
                continue;
            }
            let Some(owner) = owner.upgrade() else { return };
            let result = self.snapshot(&*owner);
            failed = result.is_err().then(Instant::now);
        }
    }
}
