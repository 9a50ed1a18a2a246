//! Files of records: how the log's and the snapshots' files begin, and how they are read.
//!
//! ```text
//!   file = magic, 8 bytes | u32 version | u32 0 | u64 number | u64 checksum of the 24 before | frames
//! ```
//!
//! The number of a file of the log is that of its first record; of a snapshot's file, that of the
//! last record before the snapshot. It is also in the name, with leading zeros.

use std::io::{self, Read};

use xxhash_rust::xxh3::xxh3_64;

use super::record::{FRAME, next_frame};

/// What a file of the log begins with.
const LOG: [u8; 8] = *b"\x89IBL\r\n\x1a\n";
/// What a file of a snapshot begins with.
const PACK: [u8; 8] = *b"\x89IBP\r\n\x1a\n";
/// The version that is written, and the newest that is read.
pub const VERSION: u32 = 1;
/// The bytes before the first frame.
pub const HEADER: usize = 32;

/// Returns the name of the log's file that begins with a record.
pub fn name(first: u64) -> String {
    format!("log-{first:020}")
}

/// Returns the name of the file of a snapshot.
pub fn pack_name(last: u64) -> String {
    format!("pack-{last:020}")
}

/// Returns the record that a file of the log begins with, by its name.
pub fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("log-")?;
    (digits.len() == 20).then(|| digits.parse().ok())?
}

/// How a file of the log begins.
pub fn header(first: u64) -> [u8; HEADER] {
    header_of(LOG, first)
}

/// How a file of a snapshot begins.
pub fn pack_header(last: u64) -> [u8; HEADER] {
    header_of(PACK, last)
}

fn header_of(magic: [u8; 8], number: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&magic);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&number.to_le_bytes());
    let sum = xxh3_64(&header[..24]);
    header[24..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// The frames of a file, one after another.
pub struct Frames {
    file: Box<dyn Read + Send>,
    /// Bytes of the file that were not read yet.
    left: u64,
    buffer: Vec<u8>,
    /// What of the buffer is behind.
    start: usize,
    /// Where in the file that is.
    position: u64,
}

/// Why a file does not begin as it should.
#[derive(Debug, PartialEq, Eq)]
pub enum Beginning {
    /// It is shorter than a beginning, or its checksum is wrong.
    Damaged,
    /// It was written by a newer version.
    Newer(u32),
}

impl Frames {
    /// Of a file of the log that should begin with a record.
    pub fn of_log(
        file: Box<dyn Read + Send>,
        length: u64,
        first: u64,
    ) -> io::Result<Result<Frames, Beginning>> {
        Frames::new(file, length, LOG, first)
    }

    /// Of a file of a snapshot.
    pub fn of_pack(
        file: Box<dyn Read + Send>,
        length: u64,
        last: u64,
    ) -> io::Result<Result<Frames, Beginning>> {
        Frames::new(file, length, PACK, last)
    }

    fn new(
        mut file: Box<dyn Read + Send>,
        length: u64,
        magic: [u8; 8],
        number: u64,
    ) -> io::Result<Result<Frames, Beginning>> {
        let mut header = [0; HEADER];
        if length < HEADER as u64 {
            return Ok(Err(Beginning::Damaged));
        }
        file.read_exact(&mut header)?;
        let version = u32::from_le_bytes(header[8..12].try_into().expect("4 bytes"));
        let is_sound = xxh3_64(&header[..24]).to_le_bytes() == header[24..];
        if header[..8] != magic || !is_sound {
            return Ok(Err(Beginning::Damaged));
        }
        if version > VERSION {
            return Ok(Err(Beginning::Newer(version)));
        }
        if header[16..24] != number.to_le_bytes() {
            return Ok(Err(Beginning::Damaged));
        }
        let left = length - HEADER as u64;
        let position = HEADER as u64;
        Ok(Ok(Frames { file, left, buffer: Vec::new(), start: 0, position }))
    }

    /// Returns where the next frame begins.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the bytes from there to the end of the file.
    pub fn rest(&self) -> u64 {
        self.left + (self.buffer.len() - self.start) as u64
    }

    /// Returns the bytes from the next frame on, to the end of the file.
    pub fn tail(mut self) -> io::Result<Vec<u8>> {
        let mut tail = self.buffer.split_off(self.start);
        self.file.take(self.left).read_to_end(&mut tail)?;
        Ok(tail)
    }

    /// Returns the body of the next frame. None at the end, and at what is no frame: see
    /// [`Frames::rest`].
    pub fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.fill(FRAME)?;
        let unread = &self.buffer[self.start..];
        let Some(head) = unread.first_chunk::<FRAME>() else { return Ok(None) };
        let length = u32::from_le_bytes(head[..4].try_into().expect("4 bytes")) as usize;
        if (FRAME + length) as u64 > self.rest() {
            return Ok(None);
        }
        self.fill(FRAME + length)?;
        let start = self.start;
        if next_frame(&self.buffer[start..]).is_none() {
            return Ok(None);
        }
        self.start += FRAME + length;
        self.position += (FRAME + length) as u64;
        Ok(Some(&self.buffer[start + FRAME..start + FRAME + length]))
    }

    /// Reads until there are so many bytes ahead, or the file ends.
    fn fill(&mut self, ahead: usize) -> io::Result<()> {
        /// Bytes read at once.
        const READ: usize = 1 << 20;
        if self.buffer.len() - self.start >= ahead {
            return Ok(());
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        let missing = ahead.max(READ) - self.buffer.len();
        let count = (missing as u64).min(self.left);
        let read = (&mut self.file).take(count).read_to_end(&mut self.buffer)?;
        self.left -= count;
        if (read as u64) < count {
            self.left = 0; // The file is shorter than it was said to be.
        }
        Ok(())
    }
}
