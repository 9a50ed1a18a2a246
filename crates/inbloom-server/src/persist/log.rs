//! The log: what was changed, on its way to the disk.
//!
//! Whoever changes a filter appends a record at the same time, under the same lock where order
//! matters, so that the order of records is that in which changes were made. Records gather in
//! memory. A client's replies wait until its records are written (or synced, as the policy says):
//! whoever comes first writes for all who have appended by then, the others wait. So a write takes
//! as many records as came during the last one, and nobody waits for a thread to wake up when there
//! is no crowd.
//!
//! **Trouble.** A write that fails, on a full disk say, is cut off and kept in memory, to be tried
//! again twice a second. Until it succeeds nothing is acknowledged and no change is begun; queries
//! go on. After a sync that failed, nobody can tell what the file has: then all that has changed since
//! the last snapshot is saved by a new one, in new files, before anything is acknowledged again.
//!
//! **Locks.** `segment`, then `pending`. The latter is the last lock of all: it is held for a copy
//! of some bytes.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use super::disk::{Disk, DiskFile};
use super::record::{Change, Record};
use super::segment;
use crate::failure::Failure;

/// When a change is acknowledged, and when the disk is asked to keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Fsync {
    /// Acknowledged when it is on the disk.
    Always,
    /// When the system has it; every second the disk is asked to keep what there is.
    #[default]
    EverySecond,
    /// When the system has it, which writes it to the disk when it likes.
    No,
}

impl Fsync {
    /// All of them, by name.
    pub const NAMES: [(&'static str, Fsync); 3] =
        [("always", Fsync::Always), ("everysec", Fsync::EverySecond), ("no", Fsync::No)];

    /// As the option and CONFIG SET name it.
    pub fn parse(name: &str) -> Option<Fsync> {
        Fsync::NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, policy)| policy)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        let of = |(_, policy): &(&str, Fsync)| *policy == self;
        Fsync::NAMES.into_iter().find(of).map_or("", |(name, _)| name)
    }
}

/// The changes since the last snapshot.
pub struct Log {
    disk: Arc<dyn Disk>,
    policy: AtomicU8,
    pending: Mutex<Pending>,
    segment: Mutex<Segment>,
    /// The last record that the system has,
    written: AtomicU64,
    /// and that the disk has.
    safe: AtomicU64,
    /// Bytes since the last snapshot.
    bytes: AtomicU64,
    /// Bytes and syncs ever.
    pub(super) total_bytes: AtomicU64,
    pub(super) syncs: AtomicU64,
    is_in_trouble: AtomicBool,
    trouble: Mutex<Option<Trouble>>,
    progress: Notify,
    wanted: Mutex<bool>,
    wakes: Condvar,
}

/// Records that nobody has written yet.
struct Pending {
    /// Frames, in order.
    chunks: Vec<Vec<u8>>,
    /// The number of the last one.
    last: u64,
    /// Filters that were removed since the last snapshot.
    removed: Vec<u64>,
}

/// The file that is written.
struct Segment {
    file: Arc<dyn DiskFile>,
    /// What was written well.
    length: u64,
    /// What may be behind that has to be cut off.
    is_torn: bool,
}

/// Why nothing is acknowledged.
#[derive(Clone, Debug)]
struct Trouble {
    text: Arc<str>,
    /// What the file has cannot be told.
    is_distrusted: bool,
}

/// Where a snapshot begins.
pub struct Border {
    /// The last record before it.
    pub last: u64,
    /// Filters that were removed since the one before.
    pub removed: Vec<u64>,
}

/// Frames of more bytes are not copied.
const LONG: usize = 64 << 10;
/// So many bytes are written at once.
const CHUNK: usize = 1 << 20;

impl Log {
    /// Begins a new file behind a border, after files of so many bytes.
    pub fn begin(
        disk: Arc<dyn Disk>,
        border: Border,
        bytes: u64,
        policy: Fsync,
    ) -> io::Result<Log> {
        let Border { last, removed } = border;
        let segment = Segment::begin(&*disk, last + 1)?;
        Ok(Log {
            policy: AtomicU8::new(policy as u8),
            pending: Mutex::new(Pending { chunks: Vec::new(), last, removed }),
            segment: Mutex::new(segment),
            written: AtomicU64::new(last),
            safe: AtomicU64::new(last),
            bytes: AtomicU64::new(bytes),
            total_bytes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            is_in_trouble: AtomicBool::new(false),
            trouble: Mutex::new(None),
            progress: Notify::new(),
            wanted: Mutex::new(false),
            wakes: Condvar::new(),
            disk,
        })
    }

    /// When changes are acknowledged.
    pub fn policy(&self) -> Fsync {
        let number = self.policy.load(Ordering::Relaxed);
        let is_it = |policy: &Fsync| *policy as u8 == number;
        Fsync::NAMES.into_iter().map(|(_, policy)| policy).find(is_it).unwrap_or_default()
    }

    /// Changes that.
    pub fn set_policy(&self, policy: Fsync) {
        self.policy.store(policy as u8, Ordering::Relaxed);
        self.wake();
    }

    /// Writes down what was done, and what it has removed.
    pub(crate) fn append(&self, record: &Record<'_>, removed: &[u64]) {
        let mut frame = Vec::new();
        record.put(&mut frame);
        self.append_frame(frame, removed);
    }

    /// Writes down a change of a filter's items.
    pub(crate) fn append_change(&self, change: Change) {
        self.append_frame(change.seal(), &[]);
    }

    fn append_frame(&self, frame: Vec<u8>, removed: &[u64]) {
        let mut pending = self.pending.lock();
        pending.last += 1;
        pending.removed.extend_from_slice(removed);
        match pending.chunks.last_mut() {
            Some(chunk) if frame.len() <= LONG && chunk.len() < CHUNK => {
                chunk.extend_from_slice(&frame);
            }
            _ => pending.chunks.push(frame),
        }
    }

    /// The number of the last record.
    pub fn last(&self) -> u64 {
        self.pending.lock().last
    }

    /// Bytes since the last snapshot.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Why no change is taken, if so.
    pub fn trouble(&self) -> Option<Failure> {
        if !self.is_in_trouble.load(Ordering::Acquire) {
            return None;
        }
        self.trouble.lock().as_ref().map(|trouble| Failure::with(trouble.text.to_string()))
    }

    /// Whether only a new snapshot helps.
    pub fn is_distrusted(&self) -> bool {
        self.trouble.lock().as_ref().is_some_and(|trouble| trouble.is_distrusted)
    }

    fn fail(&self, doing: &str, error: &io::Error, is_distrusted: bool) {
        let remedy = if is_distrusted {
            "a new snapshot is tried twice a second"
        } else {
            "it is tried again twice a second"
        };
        let text = format!(
            "MISCONF {doing} the log in --dir has failed: {error}; no change is taken until that \
             works ({remedy}), queries are answered"
        );
        let mut trouble = self.trouble.lock();
        if trouble.is_none() {
            tracing::error!(%error, "{doing} the log has failed: no change is acknowledged");
        }
        let is_distrusted =
            is_distrusted || trouble.as_ref().is_some_and(|trouble| trouble.is_distrusted);
        *trouble = Some(Trouble { text: text.into(), is_distrusted });
        self.is_in_trouble.store(true, Ordering::Release);
        drop(trouble);
        self.progress.notify_waiters();
    }

    fn recover(&self) {
        let mut trouble = self.trouble.lock();
        if trouble.take().is_some() {
            tracing::warn!("the log can be written again");
        }
        self.is_in_trouble.store(false, Ordering::Release);
    }

    /// Whether everything up to a record may be acknowledged now; None: not yet.
    fn poll(&self, sequence: u64) -> Option<Result<(), Failure>> {
        if self.is_kept(sequence) {
            return Some(Ok(()));
        }
        if let Some(failure) = self.trouble() {
            return Some(Err(failure));
        }
        if let Some(mut segment) = self.segment.try_lock() {
            let written = self.write(&mut segment);
            drop(segment);
            self.progress.notify_waiters();
            if written.is_ok() && self.policy() == Fsync::Always {
                self.wake();
            }
        }
        if self.is_kept(sequence) {
            return Some(Ok(()));
        }
        self.trouble().map(Err)
    }

    fn is_kept(&self, sequence: u64) -> bool {
        let kept = if self.policy() == Fsync::Always { &self.safe } else { &self.written };
        sequence <= kept.load(Ordering::Acquire)
    }

    /// Returns when everything up to a record may be acknowledged, or why it may not.
    pub async fn commit(&self, sequence: u64) -> Result<(), Failure> {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            match self.poll(sequence) {
                Some(result) => return result,
                None => progress.await,
            }
        }
    }

    /// The same for a thread that may wait.
    pub fn commit_here(&self, sequence: u64) -> Result<(), Failure> {
        if !self.is_kept(sequence) {
            let written = self.write(&mut self.segment.lock());
            self.progress.notify_waiters();
            if written.is_ok() && self.policy() == Fsync::Always {
                let _ = self.sync();
            }
        }
        match self.is_kept(sequence) {
            true => Ok(()),
            false => Err(self.trouble().unwrap_or(Failure::new("MISCONF the log is not written"))),
        }
    }

    /// Writes what is pending. On an error it is pending again, and the trouble is known.
    fn write(&self, segment: &mut Segment) -> io::Result<()> {
        loop {
            let (chunks, last) = {
                let mut pending = self.pending.lock();
                (mem::take(&mut pending.chunks), pending.last)
            };
            if chunks.is_empty() {
                return Ok(());
            }
            if let Err(error) = segment.append(&chunks) {
                let mut pending = self.pending.lock();
                let newer = mem::replace(&mut pending.chunks, chunks);
                pending.chunks.extend(newer);
                drop(pending);
                self.fail("writing", &error, false);
                return Err(error);
            }
            let bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.written.store(last, Ordering::Release);
        }
    }

    /// Writes and syncs all that there is.
    pub fn make_safe(&self) -> io::Result<()> {
        self.write(&mut self.segment.lock())?;
        self.progress.notify_waiters();
        self.sync()
    }

    /// Asks the disk to keep what is written.
    pub fn sync(&self) -> io::Result<()> {
        let (file, written) = {
            let segment = self.segment.lock();
            (Arc::clone(&segment.file), self.written.load(Ordering::Acquire))
        };
        if self.safe.load(Ordering::Acquire) >= written || self.is_distrusted() {
            return Ok(());
        }
        let result = file.sync();
        match &result {
            Ok(()) => {
                self.syncs.fetch_add(1, Ordering::Relaxed);
                self.safe.fetch_max(written, Ordering::AcqRel);
                self.progress.notify_waiters();
            }
            Err(error) => self.fail("syncing", error, true),
        }
        result
    }

    /// Writes and syncs whatever there is; out of trouble, if that is possible without a snapshot.
    pub fn settle(&self) {
        if self.is_distrusted() {
            return;
        }
        let written = self.write(&mut self.segment.lock());
        if written.is_ok() {
            self.recover();
            self.progress.notify_waiters();
        }
    }

    /// Begins a new file, so that a snapshot can take the place of those before.
    pub fn divide(&self) -> io::Result<Border> {
        let mut segment = self.segment.lock();
        let is_distrusted = self.is_distrusted();
        // What is pending goes to the old file, if it takes it; if not, the snapshot will have it, as
        // every change is made before it is written down.
        let border = loop {
            if !is_distrusted {
                self.write(&mut segment)?;
            }
            let mut pending = self.pending.lock();
            if is_distrusted {
                pending.chunks.clear();
            }
            if pending.chunks.is_empty() {
                let removed = mem::take(&mut pending.removed);
                break Border { last: pending.last, removed };
            }
        };
        let next =
            segment.file.sync().or_else(|error| if is_distrusted { Ok(()) } else { Err(error) });
        let next = next.and_then(|()| Segment::begin(&*self.disk, border.last + 1));
        match next {
            Ok(next) => *segment = next,
            Err(error) => {
                drop(segment);
                self.give_back(border);
                self.fail("beginning a new file of", &error, true);
                return Err(error);
            }
        }
        self.bytes.store(0, Ordering::Relaxed);
        if !is_distrusted {
            self.written.store(border.last, Ordering::Release);
            self.safe.fetch_max(border.last, Ordering::AcqRel);
        }
        drop(segment);
        self.progress.notify_waiters();
        Ok(border)
    }

    /// The snapshot that began there has failed: the next one is told again what was removed.
    pub fn give_back(&self, border: Border) {
        self.pending.lock().removed.extend(border.removed);
    }

    /// The snapshot that began there is safe: so is everything before.
    pub fn saved(&self, last: u64) {
        if self.is_distrusted() {
            self.written.fetch_max(last, Ordering::AcqRel);
            self.recover();
        }
        self.safe.fetch_max(last, Ordering::AcqRel);
        self.progress.notify_waiters();
    }

    /// Waits until somebody wants a sync, at most so long.
    pub fn rest(&self, most: Duration) {
        let mut wanted = self.wanted.lock();
        if !*wanted {
            self.wakes.wait_for(&mut wanted, most);
        }
        *wanted = false;
    }

    /// Ends that wait.
    pub fn wake(&self) {
        *self.wanted.lock() = true;
        self.wakes.notify_one();
    }
}

impl Segment {
    fn begin(disk: &dyn Disk, first: u64) -> io::Result<Segment> {
        let file = disk.create(&segment::name(first))?;
        let header = segment::header(first);
        file.append(&header)?;
        file.sync()?;
        disk.sync_names()?;
        Ok(Segment { file: Arc::from(file), length: header.len() as u64, is_torn: false })
    }

    /// Appends all, or cuts off what was.
    fn append(&mut self, chunks: &[Vec<u8>]) -> io::Result<()> {
        if self.is_torn {
            self.file.truncate(self.length)?;
            self.is_torn = false;
        }
        let result = chunks.iter().try_for_each(|chunk| self.file.append(chunk));
        match result {
            Ok(()) => self.length += chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>(),
            Err(_) => self.is_torn = self.file.truncate(self.length).is_err(),
        }
        result
    }
}
