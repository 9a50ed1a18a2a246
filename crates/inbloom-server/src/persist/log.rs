//! The log: what was changed, on its way to the disk.
//!
//! Whoever changes a filter appends a record at the same time, under the same lock where order
//! matters, so that the order of records is that in which changes were made. Records gather in
//! memory. A client's replies wait until its records are written (or synced, as the policy says):
//! whoever comes first writes for all who have appended by then, the others wait. So a write takes
//! as many records as came during the last one, and nobody waits for a thread to wake up when there
//! is no crowd. While the disk is busy with a sync or a snapshot, a write may take as long as that: then
//! a thread of its own writes, and connections that only ask go on.
//!
//! **Trouble.** A write that fails, on a full disk say, is cut off and kept in memory, to be tried
//! again twice a second. Until it succeeds nothing is acknowledged and no change is begun; queries
//! go on. After a sync that failed, nobody can tell what the file has: then all that has changed since
//! the last snapshot is saved by a new one, in new files, before anything is acknowledged again.
//!
//! **Locks.** `syncing`, `segment`, then `pending`. The last is the last lock of all: it is held for a copy
//! of some bytes. A file is synced by one at a time: of two who wait for the same failing sync the system
//! tells only one.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Notify;

use super::disk::{Disk, DiskFile};
use super::{record, segment};
use crate::keyspace::journal::{Journal, Record};
use crate::reply_error::ReplyError;

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

/// The file that is written.
struct Segment {
    file: Arc<dyn DiskFile>,
    /// Counts the files since the start.
    number: u64,
    /// Its first record.
    first: u64,
    /// What was written well.
    length: u64,
    /// What may be behind that has to be cut off.
    is_torn: bool,
}

/// Why nothing is acknowledged.
#[derive(Clone, Debug)]
struct Trouble {
    text: Arc<str>,
    /// What the file with this number, and those before, have cannot be told.
    distrusted: Option<u64>,
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

    /// The number of the last record.
    pub fn last(&self) -> u64 {
        self.pending.lock().last
    }

    /// Bytes since the last snapshot.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Why no change is taken, if so.
    pub fn trouble(&self) -> Option<ReplyError> {
        if !self.is_in_trouble.load(Ordering::Acquire) {
            return None;
        }
        self.trouble.lock().as_ref().map(|trouble| ReplyError::with(trouble.text.to_string()))
    }

    /// Whether only a new snapshot helps.
    pub fn is_distrusted(&self) -> bool {
        self.trouble.lock().as_ref().is_some_and(|trouble| trouble.distrusted.is_some())
    }

    /// Whether it is this file, or a later one, that is not trusted.
    fn distrusts(&self, file: u64) -> bool {
        let distrusted = self.trouble.lock().as_ref().and_then(|trouble| trouble.distrusted);
        distrusted.is_some_and(|distrusted| distrusted >= file)
    }

    fn fail(&self, doing: &str, error: &io::Error, distrusted: Option<u64>) {
        let remedy = if distrusted.is_some() {
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
        let distrusted = distrusted.max(trouble.as_ref().and_then(|trouble| trouble.distrusted));
        *trouble = Some(Trouble { text: text.into(), distrusted });
        self.is_in_trouble.store(true, Ordering::Release);
        drop(trouble);
        self.progress.notify_waiters();
    }

    /// Ends the trouble, unless a file is not trusted that is not among those before `file`.
    fn recover(&self, file: u64) {
        let mut trouble = self.trouble.lock();
        match &*trouble {
            Some(Trouble { distrusted: Some(distrusted), .. }) if *distrusted >= file => return,
            Some(_) => tracing::warn!("the log can be written again"),
            None => return,
        }
        *trouble = None;
        self.is_in_trouble.store(false, Ordering::Release);
    }

    /// Whether everything up to a record may be acknowledged now; None: not yet.
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
                // Only what is new is told, or those who wait would tell each other that nothing is.
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

    /// The same for a thread that may wait.
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

    /// Lets others write. Who has appended meanwhile and found the file taken waits to be told.
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
                self.syncs.fetch_add(1, Ordering::Relaxed);
                self.safe.fetch_max(written, Ordering::AcqRel);
            }
            Ok(()) => {}
            Err(error) => self.fail("syncing", error, Some(number)),
        }
        self.progress.notify_waiters();
        result
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
                self.syncs.fetch_add(1, Ordering::Relaxed);
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

    /// The snapshot that began there has failed: the next one is told again what was removed.
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

fn distrusted() -> io::Error {
    io::Error::other("a sync has failed before: what the file has cannot be told")
}

impl Segment {
    fn begin(disk: &dyn Disk, first: u64, number: u64) -> io::Result<Segment> {
        let file = disk.create(&segment::name(first))?;
        let header = segment::header(first);
        file.append(&header)?;
        file.sync()?;
        disk.sync_names()?;
        let length = header.len() as u64;
        Ok(Segment { file: Arc::from(file), number, first, length, is_torn: false })
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

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::task::{Context, Wake, Waker};
    use std::thread::{self, ThreadId};

    use super::*;

    /// A disk that takes its time to sync, and notes who writes.
    #[derive(Clone, Default)]
    struct SlowDisk {
        writers: Arc<Mutex<Vec<ThreadId>>>,
    }

    const SYNC: Duration = Duration::from_millis(100);

    impl Disk for SlowDisk {
        fn names(&self) -> io::Result<Vec<String>> {
            Ok(Vec::new())
        }
        fn open(&self, _: &str) -> io::Result<Box<dyn Read + Send>> {
            Err(io::ErrorKind::NotFound.into())
        }
        fn length(&self, _: &str) -> io::Result<u64> {
            Err(io::ErrorKind::NotFound.into())
        }
        fn path(&self, _: &str) -> Option<PathBuf> {
            None
        }
        fn create(&self, _: &str) -> io::Result<Box<dyn DiskFile>> {
            Ok(Box::new(self.clone()))
        }
        fn rename(&self, _: &str, _: &str) -> io::Result<()> {
            Ok(())
        }
        fn remove(&self, _: &str) -> io::Result<()> {
            Ok(())
        }
        fn sync(&self, _: &str) -> io::Result<()> {
            Ok(())
        }
        fn sync_names(&self) -> io::Result<()> {
            Ok(())
        }
    }

    impl DiskFile for SlowDisk {
        fn append(&self, _: &[u8]) -> io::Result<()> {
            self.writers.lock().push(thread::current().id());
            Ok(())
        }
        fn overwrite(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
        fn truncate(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn sync(&self) -> io::Result<()> {
            thread::sleep(SYNC);
            Ok(())
        }
    }

    /// A log with records that nobody has written, on a disk to which nobody has.
    fn log(policy: Fsync, records: u64) -> (Log, SlowDisk) {
        let disk = SlowDisk::default();
        let border = Border::at_start(0, Vec::new(), 0);
        let log = Log::begin(Arc::new(disk.clone()), border).expect("it takes all");
        log.set_policy(policy);
        (0..records).for_each(|id| log.record(&Record::Expire { id, at: None }));
        disk.writers.lock().clear();
        (log, disk)
    }

    fn commit(log: &Log, sequence: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a thread");
        runtime.block_on(log.commit(sequence)).expect("the disk is well");
    }

    /// Counts how often somebody is woken.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Wakes>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    // Who told all that nothing is new told itself too, and did so again with the connections of its
    // thread waiting, until the sync was over.
    #[test]
    fn who_waits_for_another_thread_keeps_none_and_wakes_nobody() {
        for (policy, is_busy) in [(Fsync::Always, false), (Fsync::EverySecond, true)] {
            let (sender, receiver) = mpsc::channel();
            // Elsewhere, as what is wrong would not end.
            thread::spawn(move || {
                let (log, _) = log(policy, 3);
                let _busy = is_busy.then(|| log.keep_busy());
                let wakes = Arc::new(Wakes::default());
                let waker = Waker::from(Arc::clone(&wakes));
                let mut waiting = [1, 2, 3].map(|sequence| Box::pin(log.commit(sequence)));
                let are_waiting = waiting.iter_mut().all(|commit| {
                    commit.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
                });
                let _ = sender.send((are_waiting, wakes.0.load(Ordering::Relaxed)));
            });
            let found = receiver.recv_timeout(Duration::from_secs(10));
            assert_eq!(found, Ok((true, 0)), "{policy:?}");
        }
    }

    #[test]
    fn who_waits_for_a_record_does_not_write_to_a_busy_disk_itself() {
        let (log, disk) = log(Fsync::EverySecond, 1);
        let here = thread::current().id();
        thread::scope(|scope| {
            let busy = log.keep_busy();
            scope.spawn(|| log.write_when_busy(Duration::from_secs(10)));
            commit(&log, 1);
            drop(busy);
        });
        assert!(!disk.writers.lock().is_empty() && !disk.writers.lock().contains(&here));
        // A disk that has nothing else to do is written to at once.
        log.record(&Record::Expire { id: 7, at: None });
        commit(&log, 2);
        assert!(disk.writers.lock().contains(&here));
    }

    #[test]
    fn who_finds_the_file_taken_is_told_when_it_is_free() {
        let (log, _) = log(Fsync::No, 1);
        thread::scope(|scope| {
            let segment = log.segment.lock();
            scope.spawn(|| commit(&log, 1));
            thread::sleep(SYNC);
            // Whoever had it wrote nothing: the record came too late for it.
            log.release(segment);
        });
        assert_eq!(log.written.load(Ordering::Acquire), 1);
    }
}
