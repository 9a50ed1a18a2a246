//! A disk that is written to with consideration: large files go to it piece by piece, with pauses.
//!
//! To save a gigabyte takes a core a second, and the system then writes it in one go, for which others
//! wait who write a few bytes. So after each piece of a large file the writer rests twice as long as it
//! took, and what was written is synced every so many bytes. A gigabyte takes some seconds that way, in
//! the background.

use std::io::{self, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::disk::{Disk, DiskFile};

/// Bytes between two syncs.
const STRETCH: u64 = 32 << 20;
/// Files of fewer bytes are none to rest for.
const LARGE: u64 = 4 << 20;
/// The longest rest: what took longer than a third of it was held up by others.
const LONGEST: Duration = Duration::from_millis(50);

/// Another disk, written to gently.
pub struct ThrottledDisk<'a>(pub &'a dyn Disk);

struct ThrottledFile {
    file: Box<dyn DiskFile>,
    pace: Mutex<Pace>,
}

struct Pace {
    bytes: u64,
    unsynced: u64,
    /// When the last piece was written.
    last: Instant,
}

impl Disk for ThrottledDisk<'_> {
    fn names(&self) -> io::Result<Vec<String>> {
        self.0.names()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.0.open(name)
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        self.0.length(name)
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.0.path(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let pace = Pace { bytes: 0, unsynced: 0, last: Instant::now() };
        Ok(Box::new(ThrottledFile { file: self.0.create(name)?, pace: Mutex::new(pace) }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.0.sync(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.0.sync_names()
    }
}

impl DiskFile for ThrottledFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.file.append(bytes)?;
        let mut pace = self.pace.lock();
        pace.bytes += bytes.len() as u64;
        pace.unsynced += bytes.len() as u64;
        if pace.bytes >= LARGE {
            // With the time in which the piece was put together.
            let busy = pace.last.elapsed();
            if pace.unsynced >= STRETCH {
                pace.unsynced = 0;
                self.file.sync()?;
            }
            std::thread::sleep((busy * 2).min(LONGEST));
        }
        pace.last = Instant::now();
        Ok(())
    }

    fn overwrite(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.overwrite(at, bytes)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}
