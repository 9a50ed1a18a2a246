//! The file that the log is written to at the moment.

use std::io;
use std::sync::Arc;

use crate::persist::disk::{Disk, DiskFile};
use crate::persist::segment;

/// The file that is written.
pub(super) struct Segment {
    pub(super) file: Arc<dyn DiskFile>,
    /// Counts the files since the start.
    pub(super) number: u64,
    /// Its first record.
    pub(super) first: u64,
    /// What was written well.
    pub(super) length: u64,
    /// What may be behind that has to be cut off.
    pub(super) is_torn: bool,
}

impl Segment {
    pub(super) fn begin(disk: &dyn Disk, first: u64, number: u64) -> io::Result<Segment> {
        let file = disk.create(&segment::name(first))?;
        let header = segment::header(first);
        file.append(&header)?;
        file.sync()?;
        disk.sync_names()?;
        let length = header.len() as u64;
        Ok(Segment { file: Arc::from(file), number, first, length, is_torn: false })
    }

    /// Appends all, or cuts off what was.
    pub(super) fn append(&mut self, chunks: &[Vec<u8>]) -> io::Result<()> {
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
