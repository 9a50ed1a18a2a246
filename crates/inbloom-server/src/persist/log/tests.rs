use std::io::Read;
use std::path::PathBuf;
use std::sync::mpsc;
use std::task::{Context, Wake, Waker};
use std::thread::{self, ThreadId};

use super::*;
use crate::persist::disk::DiskFile;

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

/// Returns a log with records that nobody has written, on a disk to which nobody has.
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

// A thread that woke all for nothing woke itself too, and did so again while the connections of its
// thread waited, until the sync was over.
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
            let are_waiting = waiting
                .iter_mut()
                .all(|commit| commit.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
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
        // The thread that had it wrote nothing: the record came too late for it.
        log.release(segment);
    });
    assert_eq!(log.written.load(Ordering::Acquire), 1);
}
