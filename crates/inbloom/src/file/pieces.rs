//! Writing large files in pieces of a huge page.
//!
//! What is written stays in the system's memory, in pages as large as the writes that made them, if
//! these begin at a multiple of their size. Where a file is written in pieces of 2 MiB, each begun at
//! a multiple of 2 MiB, it is mapped later by huge pages, without any advice (Linux 6.18, ext4): all of
//! it, where writes of any other length leave parts in small pages. A page fault then brings in 2 MiB:
//! to touch 64 MiB for the first time takes 0.7 ms instead of 9 to 17.

use std::fs::File;
use std::io::{self, Write};

/// The size of a huge page on x86-64 and on most ARM systems.
const PIECE: usize = 2 << 20;

/// Gathers what is appended to a file into whole pieces.
pub(super) struct PieceBuffer {
    /// The beginning of a piece that is not written yet.
    begun: Vec<u8>,
    /// What the file still takes up to the end of the piece that is begun in it.
    room: usize,
}

impl PieceBuffer {
    /// For a file that is written from here on.
    pub(super) fn at(position: u64) -> PieceBuffer {
        PieceBuffer { begun: Vec::new(), room: PIECE - (position % PIECE as u64) as usize }
    }

    /// Writes all pieces that are whole now, and keeps the rest for later.
    pub(super) fn append(&mut self, mut file: &File, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (taken, later) = bytes.split_at(bytes.len().min(self.room - self.begun.len()));
            bytes = later;
            if taken.len() == self.room {
                file.write_all(taken)?; // Nothing is begun: no copy is needed.
                self.room = PIECE;
                continue;
            }
            self.begun.extend_from_slice(taken);
            if self.begun.len() == self.room {
                self.flush(file)?;
            }
        }
        Ok(())
    }

    /// Writes what is kept. The next pieces still end where they would have.
    pub(super) fn flush(&mut self, mut file: &File) -> io::Result<()> {
        file.write_all(&self.begun)?;
        self.room = match self.room - self.begun.len() {
            0 => PIECE,
            room => room,
        };
        self.begun.clear();
        Ok(())
    }
}

/// Writes to a file from its start. [`flush`](Write::flush) must be called in the end.
pub(super) struct PieceWriter<'a> {
    file: &'a File,
    pieces: PieceBuffer,
}

impl PieceWriter<'_> {
    pub(super) fn new(file: &File) -> PieceWriter<'_> {
        PieceWriter { file, pieces: PieceBuffer::at(0) }
    }
}

impl Write for PieceWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pieces.append(self.file, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pieces.flush(self.file)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Seek, SeekFrom};

    use super::*;

    /// Any bytes.
    fn sample(length: usize) -> Vec<u8> {
        (0..length).map(|at| ((at * 31) >> 3) as u8).collect()
    }

    #[test]
    fn what_is_written_in_pieces_is_what_was_given() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let all = sample(3 * PIECE + 77);
        for first in [0, 1, 4096, PIECE - 1, PIECE, PIECE + 1, all.len()] {
            let file = File::create(&path).expect("it is created");
            let mut pieces = PieceWriter::new(&file);
            let (head, tail) = all.split_at(first);
            pieces.write_all(head).expect("it is written");
            pieces.write_all(tail).expect("it is written");
            pieces.flush().expect("it is written");
            assert!(fs::read(&path).expect("it is there") == all, "{first}");

            let file = File::create(&path).expect("it is created");
            let mut pieces = PieceBuffer::at(0);
            for part in [head, tail] {
                part.chunks(PIECE / 3).for_each(|some| {
                    pieces.append(&file, some).expect("it is written");
                });
                pieces.flush(&file).expect("it is written");
            }
            assert!(fs::read(&path).expect("it is there") == all, "{first}");
        }
    }

    #[test]
    fn pieces_end_at_multiples_of_their_size_wherever_a_file_is_begun() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = File::create(folder.path().join("file")).expect("it is created");
        let length = || file.metadata().expect("it is there").len();
        file.set_len(4096).expect("it is begun");
        let mut pieces = PieceBuffer::at(4096);
        (&file).seek(SeekFrom::End(0)).expect("at the end");
        pieces.append(&file, &sample(PIECE)).expect("it is written");
        assert_eq!(length(), PIECE as u64);
        pieces.flush(&file).expect("it is written");
        assert_eq!(length(), PIECE as u64 + 4096);
        pieces.append(&file, &sample(3 * PIECE)).expect("it is written");
        assert_eq!(length(), 4 * PIECE as u64);
        pieces.flush(&file).expect("it is written");
        assert_eq!(length(), 4 * PIECE as u64 + 4096);
    }
}
