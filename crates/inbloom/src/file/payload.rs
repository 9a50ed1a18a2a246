//! A file whose payload is written before its header, part by part: what is larger than memory never
//! is in it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::pieces::PieceBuffer;
use super::place::{create_without_links, open_without_links, rename, sync_folder};
use super::{OpenOptions, failed};
use crate::error::Result;
use crate::error::mismatch;
use crate::filter::Filter;
use crate::format::{self, LARGE, Written};
use crate::plan::Plan;

/// See the top of this file. It is locked for as long as this is there, and gets its name only when
/// it is complete.
pub(super) struct Payload {
    file: File,
    path: PathBuf,
    plan: Plan,
    /// A filter of the same kind: the file gets its hash and its texts.
    like: Filter,
    sum: Xxh3Default,
    /// Where the payload begins: what stands before it is as long whatever it says.
    start: u64,
    pieces: PieceBuffer,
    /// Bytes of all parts.
    length: u64,
    /// Bytes behind them, once it is sealed.
    end: u64,
}

/// What has to be known of a part to find it again.
pub(super) struct Kept {
    pub length: u64,
    pub sum: u64,
}

impl Payload {
    /// Begins a file of this plan, over whatever file is at this path, but through no link.
    pub fn create(path: &Path, plan: Plan, like: &Filter) -> Result<Payload> {
        let file = create_without_links(path);
        let mut payload =
            Payload::new(file.map_err(failed("cannot create", path))?, path, plan, like)?;
        let zeros = vec![0; payload.start as usize];
        let began = payload.file.set_len(0).and_then(|()| payload.file.write_all(&zeros));
        began.map_err(failed("cannot write", path))?;
        sync_folder(path)?;
        Ok(payload)
    }

    /// Goes on with a file that was begun so, of which these parts were written and synced. What was
    /// written behind them is dropped. They are read again, and must be what was appended.
    pub fn resume(path: &Path, plan: Plan, like: &Filter, parts: &[Kept]) -> Result<Payload> {
        let file = open_without_links(path);
        let mut payload =
            Payload::new(file.map_err(failed("cannot open", path))?, path, plan, like)?;
        let end = payload.start + parts.iter().map(|part| part.length).sum::<u64>();
        let length = payload.file.metadata().map_err(failed("cannot open", path))?.len();
        if length < end {
            return Err(mismatch("length of the unfinished file", end, length));
        }
        payload.file.set_len(end).map_err(failed("cannot shorten", path))?;
        let start = SeekFrom::Start(payload.start);
        payload.file.seek(start).map_err(failed("cannot read", path))?;
        for part in parts {
            let sum = payload.read_part(part.length).map_err(failed("cannot read", path))?;
            if sum != part.sum {
                return Err(mismatch(
                    "checksum of a part of the unfinished file",
                    format_args!("{:016x}", part.sum),
                    format_args!("{sum:016x}"),
                ));
            }
        }
        payload.pieces = PieceBuffer::at(end);
        Ok(payload)
    }

    fn new(file: File, path: &Path, plan: Plan, like: &Filter) -> Result<Payload> {
        // Where files cannot be locked, as on some network drives, care has to do.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            let cause = io::Error::other("another program is writing it");
            return Err(failed("cannot lock", path)(cause));
        }
        let nothing = Written { length: 0, checksum: 0, inserted: 0, ones: 0 };
        let start = format::before(like, plan, &nothing).len() as u64;
        let (path, like, sum) = (path.to_owned(), like.try_clone()?, Xxh3Default::new());
        let pieces = PieceBuffer::at(start);
        Ok(Payload { file, path, plan, like, sum, start, pieces, length: 0, end: 0 })
    }

    /// Reads the next part, and returns its checksum.
    fn read_part(&mut self, length: u64) -> io::Result<u64> {
        let mut of_part = Xxh3Default::new();
        let mut buffer = vec![0; length.min(1 << 20) as usize];
        let mut left = length;
        while left > 0 {
            let piece = &mut buffer[..left.min(1 << 20) as usize];
            self.file.read_exact(piece)?;
            of_part.update(piece);
            self.sum.update(piece);
            left -= piece.len() as u64;
        }
        self.length += length;
        Ok(of_part.digest())
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Bytes of all parts.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Appends a part, and returns its checksum.
    pub fn append(&mut self, part: &[u8]) -> Result<u64> {
        let appended = self.pieces.append(&self.file, part);
        appended.map_err(failed("cannot write", &self.path))?;
        self.sum.update(part);
        self.length += part.len() as u64;
        Ok(xxh3_64(part))
    }

    /// Returns what has on disk, when it is called, all that was appended before this. Appending may
    /// go on meanwhile.
    pub fn sync(&mut self) -> Result<impl FnOnce() -> Result<()> + Send + 'static> {
        self.pieces.flush(&self.file).map_err(failed("cannot write", &self.path))?;
        let file = self.file.try_clone().map_err(failed("cannot open", &self.path))?;
        let path = self.path.clone();
        Ok(move || file.sync_data().map_err(failed("cannot sync", &path)))
    }

    /// Completes the file with what stands behind the parts, and has it on disk, under the name that
    /// it has. Returns what [`header_checksum`](super::place::header_checksum) is going to say of it when
    /// it is published.
    pub fn seal(&mut self, end: &[u8], inserted: u64, ones: u64) -> Result<u64> {
        self.end = end.len() as u64;
        let mut sum = self.sum.clone();
        sum.update(end);
        let length = self.length + self.end;
        let written = Written { length, checksum: sum.digest(), inserted, ones };
        let start = format::before(&self.like, self.plan, &written);
        let wrote = self.pieces.flush(&self.file).and_then(|()| {
            self.file.seek(SeekFrom::Start(self.start + self.length))?;
            self.file.write_all(end)?;
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&start)?;
            self.file.sync_all()
        });
        wrote.map_err(failed("cannot write", &self.path))?;
        let mut bytes = start;
        if self.is_small() {
            bytes.clear();
            format::write(&self.reopen()?, &mut bytes)?;
        }
        Ok(format::header_checksum(&bytes))
    }

    /// Returns whether a filter of this length begins elsewhere in a file than on a page, where
    /// this one does.
    fn is_small(&self) -> bool {
        self.length + self.end < LARGE
    }

    fn reopen(&self) -> Result<Filter> {
        OpenOptions::new().secret(self.like.hasher().key()).open(&self.path)
    }

    /// Gives a sealed file its name, as [`Filter::save`](crate::Filter::save) does.
    pub fn publish(self, path: &Path) -> Result<()> {
        if self.is_small() {
            self.reopen()?.save(path)?;
            return fs::remove_file(&self.path).map_err(failed("cannot remove", &self.path));
        }
        rename(&self.path, path)
    }
}
