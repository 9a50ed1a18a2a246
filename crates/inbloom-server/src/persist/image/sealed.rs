//! Bytes in a file of their own, in pieces of 1 MiB with a checksum each: so that what is damaged
//! is found while it is read, and nothing has to be read twice.
//!
//! ```text
//!   file = piece | piece | ...      piece = 1 MiB, the last may be shorter | u64 checksum
//! ```
//!
//! The checksum is that of the pieces of a dump (`value/dump_format.rs`): it depends on where
//! the piece begins and on an identity, so that no piece is taken for another, nor for one of
//! another file.

use std::io::{self, Read, Write};

use crate::persist::disk::DiskFile;
use crate::value::dump_format;

/// The bytes of a piece, without its checksum.
const PIECE: usize = 1 << 20;
const SUM: usize = 8;

/// Writes pieces.
pub struct Sealing<'a> {
    file: &'a dyn DiskFile,
    identity: u64,
    start: u64,
    piece: Vec<u8>,
}

impl<'a> Sealing<'a> {
    /// To a file that is empty.
    pub fn new(file: &'a dyn DiskFile, identity: u64) -> Sealing<'a> {
        Sealing { file, identity, start: 0, piece: Vec::with_capacity(PIECE + SUM) }
    }

    /// Writes the last piece.
    pub fn finish(mut self) -> io::Result<()> {
        if self.piece.is_empty() { Ok(()) } else { self.seal() }
    }

    fn seal(&mut self) -> io::Result<()> {
        let length = self.piece.len() as u64;
        dump_format::seal(&mut self.piece, self.identity, self.start);
        self.file.append(&self.piece)?;
        self.piece.clear();
        self.start += length;
        Ok(())
    }
}

impl Write for Sealing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..count]);
        if self.piece.len() == PIECE {
            self.seal()?;
        }
        Ok(count)
    }

    /// A piece that is not full is written at the end only.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads pieces. What is damaged is an error of kind `InvalidData`.
pub struct Unsealing<R> {
    reader: R,
    identity: u64,
    start: u64,
    piece: Vec<u8>,
    at: usize,
}

impl<R: Read> Unsealing<R> {
    /// From the beginning of a file.
    pub fn new(reader: R, identity: u64) -> Unsealing<R> {
        Unsealing { reader, identity, start: 0, piece: Vec::new(), at: 0 }
    }

    /// Reads the next piece, if there is one.
    fn open(&mut self) -> io::Result<()> {
        self.start += self.piece.len() as u64;
        self.piece.clear();
        self.at = 0;
        let most = (PIECE + SUM) as u64;
        self.reader.by_ref().take(most).read_to_end(&mut self.piece)?;
        if self.piece.is_empty() {
            return Ok(());
        }
        let length = self.piece.len().saturating_sub(SUM);
        let iterator = 1 + self.start + length as u64;
        if length == 0 || dump_format::open(self.identity, iterator, &self.piece).is_none() {
            let text = format!("the checksum of the chunk at byte {} is wrong", self.start);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        self.piece.truncate(length);
        Ok(())
    }
}

impl<R: Read> Read for Unsealing<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() {
            self.open()?;
        }
        let count = (&self.piece[self.at..]).read(out)?;
        self.at += count;
        Ok(count)
    }
}
