//! The log: writes changes to disk.
//!
//! A thread that changes a filter appends a record at the same time. Where order matters it does so
//! under the same lock, so records are in the order of the changes. Records are collected in
//! memory. A client's replies wait until its records are written (or synced, as the policy says):
//! the first thread to commit writes every record appended so far; the others wait. So a write has
//! all records that came during the last write, and under low load no thread waits for another to
//! wake up. While the disk is busy with a sync or a snapshot, a write may take as long as that. A
//! separate thread then does the writes, and connections that only query continue.
//!
//! **Trouble.** If a write fails, for example on a full disk, it is cut off and kept in memory, and
//! the server tries it again twice a second. Until it succeeds the server acknowledges nothing and
//! begins no change; queries continue. After a failed sync the content of the file is unknown. The
//! server then saves all changes since the last snapshot by a new one, in new files, before it
//! acknowledges anything again.
//!
//! **Locks.** `syncing`, `segment`, then `pending`. `pending` is the last lock of all, and is held
//! only while some bytes are copied. Only one thread at a time syncs a file, because the system
//! reports a failed sync to only one of two waiting threads.

mod file;
mod policy;
mod trouble;

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Notify;

use super::disk::Disk;
use super::{record, segment};
use crate::clock::now;
use crate::keyspace::journal::{Journal, Record};
use crate::reply_error::ReplyError;
use file::Segment;
use trouble::{Trouble, distrusted};

pub use policy::Fsync;

/// The changes since the last snapshot.
pub struct Log {
    disk: Arc<dyn Disk>,
    policy: AtomicU8,
    pending: Mutex<Pending>,
    segment: Mutex<Segment>,
    syncing: Mutex<()>,
    /// The last record that the system has,
    written: AtomicU64,
    /// and that the disk has.
    safe: AtomicU64,
    /// Bytes since the last snapshot.
    bytes: AtomicU64,
    /// Bytes and syncs ever.
    pub(super) total_bytes: AtomicU64,
    pub(super) syncs: AtomicU64,
    /// When the last sync ended, in milliseconds since 1970; 0: none yet.
    pub(super) synced_at: AtomicU64,
    is_in_trouble: AtomicBool,
    trouble: Mutex<Option<Trouble>>,
    progress: Notify,
    /// Ends the rest of the thread that syncs,
    syncer: Bell,
    /// and of the one that writes while the disk is busy.
    writer: Bell,
    /// How many keep the disk busy.
    busy: AtomicUsize,
}

/// Wakes one thread.
#[derive(Default)]
struct Bell {
    has_rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    fn wake(&self) {
        let had_rung = mem::replace(&mut *self.has_rung.lock(), true);
        if !had_rung {
            self.rings.notify_one();
        }
    }

    /// Waits for it, at most so long.
    fn rest(&self, most: Duration) {
        let mut has_rung = self.has_rung.lock();
        if !*has_rung {
            self.rings.wait_for(&mut has_rung, most);
        }
        *has_rung = false;
    }
}

/// The disk is busy as long as this is held.
pub struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Records that nobody has written yet.
struct Pending {
    /// Frames, in order,
    chunks: Vec<Vec<u8>>,
    /// and their bytes.
    bytes: usize,
    /// The number of the last one.
    last: u64,
    /// Filters that were removed since the last snapshot.
    removed: Vec<u64>,
}

/// Where a snapshot begins.
pub struct Border {
    /// The last record before it.
    pub last: u64,
    /// Filters that were removed since the one before.
    pub removed: Vec<u64>,
    /// Bytes of the log that it is to take the place of.
    pub bytes: u64,
    /// The number of the file that begins there.
    file: u64,
}

impl Border {
    /// Behind everything that was found at the start.
    pub fn at_start(last: u64, removed: Vec<u64>, bytes: u64) -> Border {
        Border { last, removed, bytes, file: 0 }
    }
}

/// Frames of more bytes are not copied.
const LONG: usize = 64 << 10;
/// So many bytes are written at once.
const CHUNK: usize = 1 << 20;
/// More than that is not written by a thread that clients wait for: about a millisecond.
const MUCH: usize = 1 << 20;

impl Journal for Log {
    fn record(&self, record: &Record<'_>) {
        // Enough for a record of two items.
        let mut frame = Vec::with_capacity(64);
        record::put(record, &mut frame);
        let mut pending = self.pending.lock();
        pending.last += 1;
        pending.bytes += frame.len();
        pending.removed.extend_from_slice(record.removed());
        match pending.chunks.last_mut() {
            Some(chunk) if frame.len() <= LONG && chunk.len() < CHUNK => {
                chunk.extend_from_slice(&frame);
            }
            _ => pending.chunks.push(frame),
        }
    }
}

impl Log {
    /// Begins a new file behind a border.
    pub fn begin(disk: Arc<dyn Disk>, border: Border) -> io::Result<Log> {
        let Border { last, removed, bytes, file } = border;
        let segment = Segment::begin(&*disk, last + 1, file)?;
        Ok(Log {
            policy: AtomicU8::new(Fsync::default() as u8),
            pending: Mutex::new(Pending { chunks: Vec::new(), bytes: 0, last, removed }),
            segment: Mutex::new(segment),
            syncing: Mutex::new(()),
            written: AtomicU64::new(last),
            safe: AtomicU64::new(last),
            bytes: AtomicU64::new(bytes),
            total_bytes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            synced_at: AtomicU64::new(0),
            is_in_trouble: AtomicBool::new(false),
            trouble: Mutex::new(None),
            progress: Notify::new(),
            syncer: Bell::default(),
            writer: Bell::default(),
            busy: AtomicUsize::new(0),
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
        // Under the new one they may have waited long enough.
        self.progress.notify_waiters();
    }

    /// Returns the number of the last record.
    pub fn last(&self) -> u64 {
        self.pending.lock().last
    }

    /// Bytes since the last snapshot.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns whether everything up to a record may be acknowledged now; None: not yet.
    fn poll(&self, sequence: u64) -> Option<Result<(), ReplyError>> {
        if self.is_kept(sequence) {
            return Some(Ok(()));
        }
        if let Some(failure) = self.trouble() {
            return Some(Err(failure));
        }
        if self.policy() == Fsync::Always {
            self.wake(); // Who syncs writes before.
        } else if self.pending.lock().bytes > MUCH {
            self.writer.wake();
        } else if let Some(mut segment) = self.segment.try_lock() {
            // Asked under the lock, which who makes the disk busy takes after having said so: nobody is
            // still writing here when a sync begins.
            if self.busy.load(Ordering::Acquire) > 0 {
                drop(segment);
                self.writer.wake(); // It writes for all, and tells them.
            } else {
                let written = self.write(&mut segment);
                self.release(segment);
                // Only news is announced, or waiting threads would wake each other for nothing.
                if let Ok(true) = written {
                    self.progress.notify_waiters();
                }
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
    pub async fn commit(&self, sequence: u64) -> Result<(), ReplyError> {
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

    /// Returns the same for a thread that may wait.
    pub fn commit_here(&self, sequence: u64) -> Result<(), ReplyError> {
        if !self.is_kept(sequence) {
            let written = self.write(&mut self.segment.lock());
            self.progress.notify_waiters();
            if written.is_ok() && self.policy() == Fsync::Always {
                let _ = self.sync();
            }
        }
        match self.is_kept(sequence) {
            true => Ok(()),
            false => {
                Err(self.trouble().unwrap_or(ReplyError::new("MISCONF the log is not written")))
            }
        }
    }

    /// Lets others write, and wakes threads that appended meanwhile and found the file taken.
    fn release(&self, segment: MutexGuard<'_, Segment>) {
        drop(segment);
        if !self.pending.lock().chunks.is_empty() {
            self.progress.notify_waiters();
        }
    }

    /// Writes what is pending, unless to a file that is not trusted, and tells whether anything was. On
    /// an error it is pending again, and the trouble is known.
    fn write(&self, segment: &mut Segment) -> io::Result<bool> {
        if self.distrusts(segment.number) {
            return Err(distrusted());
        }
        let mut is_news = false;
        loop {
            let (chunks, bytes, last) = {
                let mut pending = self.pending.lock();
                (mem::take(&mut pending.chunks), mem::take(&mut pending.bytes), pending.last)
            };
            if chunks.is_empty() {
                return Ok(is_news);
            }
            if let Err(error) = segment.append(&chunks) {
                let mut pending = self.pending.lock();
                let newer = mem::replace(&mut pending.chunks, chunks);
                pending.chunks.extend(newer);
                pending.bytes += bytes;
                drop(pending);
                self.fail("writing", &error, None);
                return Err(error);
            }
            let bytes = bytes as u64;
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
            // Behind a file that is not trusted nothing counts until the snapshot does.
            if !self.is_distrusted() {
                self.written.store(last, Ordering::Release);
            }
            is_news = true;
        }
    }

    /// Writes and syncs all that there is, also to a new file while an old one is not trusted.
    pub fn make_safe(&self) -> io::Result<()> {
        let _syncing = self.syncing.lock();
        let (file, number) = {
            let mut segment = self.segment.lock();
            self.write(&mut segment)?;
            (Arc::clone(&segment.file), segment.number)
        };
        let written = self.written.load(Ordering::Acquire);
        let result = file.sync();
        match &result {
            Ok(()) if !self.is_distrusted() => {
                self.count_sync();
                self.safe.fetch_max(written, Ordering::AcqRel);
            }
            Ok(()) => {}
            Err(error) => self.fail("syncing", error, Some(number)),
        }
        self.progress.notify_waiters();
        result
    }

    fn count_sync(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.synced_at.store(now(), Ordering::Relaxed);
    }

    /// Asks the disk to keep what is written.
    pub fn sync(&self) -> io::Result<()> {
        let _syncing = self.syncing.lock();
        let _busy = self.keep_busy();
        let (file, number, written) = {
            let segment = self.segment.lock();
            let written = self.written.load(Ordering::Acquire);
            let all = (Arc::clone(&segment.file), segment.number, written);
            self.release(segment);
            all
        };
        if self.distrusts(number) {
            return Err(distrusted());
        }
        if self.safe.load(Ordering::Acquire) >= written {
            return Ok(());
        }
        let result = file.sync();
        match &result {
            Ok(()) => {
                self.count_sync();
                self.safe.fetch_max(written, Ordering::AcqRel);
                self.progress.notify_waiters();
            }
            Err(error) => self.fail("syncing", error, Some(number)),
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
            self.recover(0);
        }
        self.progress.notify_waiters();
    }

    /// Begins a new file, so that a snapshot can take the place of those before.
    pub fn divide(&self) -> io::Result<Border> {
        let _syncing = self.syncing.lock();
        let _busy = self.keep_busy();
        let mut segment = self.segment.lock();
        let is_distrusted = self.distrusts(segment.number);
        // What is pending goes to the old file, if it takes it; if not, the snapshot will have it, as
        // every change is made before it is written down.
        let border = loop {
            if !is_distrusted {
                self.write(&mut segment)?;
            }
            let mut pending = self.pending.lock();
            if is_distrusted {
                pending.chunks.clear();
                pending.bytes = 0;
            }
            if pending.chunks.is_empty() {
                let removed = mem::take(&mut pending.removed);
                let bytes = self.bytes.load(Ordering::Relaxed);
                break Border { last: pending.last, removed, bytes, file: segment.number + 1 };
            }
        };
        if !is_distrusted && let Err(error) = segment.file.sync() {
            self.fail("syncing", &error, Some(segment.number));
            drop(segment);
            self.give_back(border);
            return Err(error);
        }
        // A file without records goes on: another one would have the same name.
        if is_distrusted || segment.first <= border.last {
            match Segment::begin(&*self.disk, border.last + 1, border.file) {
                Ok(next) => *segment = next,
                Err(error) => {
                    // The old file goes on.
                    let _ = self.disk.remove(&segment::name(border.last + 1));
                    drop(segment);
                    self.give_back(border);
                    return Err(error);
                }
            }
        }
        self.bytes.store(0, Ordering::Relaxed);
        if !self.is_distrusted() {
            self.written.store(border.last, Ordering::Release);
            self.safe.fetch_max(border.last, Ordering::AcqRel);
        }
        drop(segment);
        self.progress.notify_waiters();
        Ok(border)
    }

    /// The snapshot that began there has failed: the next one gets the removals again.
    pub fn give_back(&self, border: Border) {
        self.pending.lock().removed.extend(border.removed);
        self.bytes.fetch_max(border.bytes, Ordering::Relaxed);
    }

    /// The snapshot that began there is safe: so is everything before.
    pub fn saved(&self, border: &Border) {
        self.written.fetch_max(border.last, Ordering::AcqRel);
        self.safe.fetch_max(border.last, Ordering::AcqRel);
        if self.is_distrusted() {
            self.recover(border.file);
        }
        self.progress.notify_waiters();
    }

    /// Waits until somebody wants a sync, at most so long.
    pub fn rest(&self, most: Duration) {
        self.syncer.rest(most);
    }

    /// Ends that wait.
    pub fn wake(&self) {
        self.syncer.wake();
    }

    /// From now on the disk has much to do, so that a write may take long: a thread of its own
    /// writes what is pending. While a filter of 1 GB was saved, ext4 let the write of some bytes to the
    /// log wait for up to 0.4 s: on the thread of a connection, that kept all its others waiting.
    pub fn keep_busy(&self) -> Busy<'_> {
        self.busy.fetch_add(1, Ordering::AcqRel);
        Busy(&self.busy)
    }

    /// Writes what is pending when it is asked to, or after some time.
    pub fn write_when_busy(&self, most: Duration) {
        self.writer.rest(most);
        if self.trouble().is_none() {
            let mut segment = self.segment.lock();
            let written = self.write(&mut segment);
            self.release(segment);
            if let Ok(true) = written {
                self.progress.notify_waiters();
            }
        }
    }

    /// Ends the wait in that.
    pub fn wake_writer(&self) {
        self.writer.wake();
    }
}

#[cfg(test)]
mod tests;
