//! The folder in which a server keeps what it has acknowledged, as an interface: tests pass one in
//! that loses, tears and reorders what was not synced, as a machine does that loses its power.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Files in one folder.
pub trait Disk: Send + Sync {
    /// Returns the names of all files.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Reads a file from its beginning.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;
    /// Returns the bytes of a file.
    fn length(&self, name: &str) -> io::Result<u64>;
    /// Returns where a file is, if it is one that can be mapped.
    fn path(&self, name: &str) -> Option<PathBuf>;
    /// Returns a new file, empty, in the place of any of that name.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file another name, in the place of any of that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Returns when all bytes of a file are safe.
    fn sync(&self, name: &str) -> io::Result<()>;
    /// Returns when the names of all files are safe.
    fn sync_names(&self) -> io::Result<()>;
}

/// A file that is written.
pub trait DiskFile: Send + Sync {
    /// Adds bytes at the end: all of them, or an error after which any part of them may be there.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;
    /// Writes bytes in the place of others.
    fn overwrite(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Returns when all bytes are safe.
    fn sync(&self) -> io::Result<()>;
}

/// A folder of the file system.
pub struct Folder(PathBuf);

impl Folder {
    /// Returns an existing folder.
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder(path.into())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

struct OpenFile {
    file: File,
    length: AtomicU64,
}

impl Disk for Folder {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.extend(entry.file_name().into_string().ok());
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(self.at(name))?))
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        Ok(fs::metadata(self.at(name))?.len())
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.at(name))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let path = self.at(name);
        // A file that is mapped must not change: its users keep it.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Box::new(OpenFile { file, length: AtomicU64::new(0) }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from), self.at(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.at(name))
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        File::open(self.at(name))?.sync_all()
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(Path::new(&self.0))?.sync_all()
    }
}

impl DiskFile for OpenFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let length = self.length.load(Ordering::Relaxed);
        self.file.write_all_at(bytes, length)?;
        self.length.store(length + bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn overwrite(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.length.store(length, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
