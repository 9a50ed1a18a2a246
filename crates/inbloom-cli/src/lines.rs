//! Records from files or standard input, in batches.
//!
//! A record is what stands between two terminators (newline, or NUL under `-0`): any bytes, any
//! length, the empty record included. The last one counts with or without its terminator.
//!
//! Filters are fastest when asked about many keys at once, and allocating a `String` per line costs
//! more than hashing it. So [`Lines::next_batch`] reads a block and hands out slices into it:
//!
//! ```text
//!   buffer   alice\nbob\ncarol\nda.............      one read
//!            ^----- records -----^^ kept and completed by the next read
//! ```
//!
//! One `read` per batch, not a full buffer: a slow pipe (`tail -f log | inbloom check seen.ib`) is
//! answered as its lines arrive, a file comes in blocks of some thousand lines.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use memchr::{memchr_iter, memrchr};

use crate::output;

/// Bytes read at once. Measured with `check -c` on 5 million lines of 67 bytes, best of five on two
/// cores: 0.24, 0.24, 0.18 and 0.18 s with 16, 64, 256 and 1024 KiB.
const BLOCK: usize = 256 << 10;

/// What ends a record: newline, or NUL under `-0`.
pub fn terminator(null: bool) -> u8 {
    if null { 0 } else { b'\n' }
}

/// Where records come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    Stdin,
    File(PathBuf),
}

impl Input {
    /// The inputs named on a command line: `-` is standard input, and so is naming none.
    pub fn from_arguments(files: &[PathBuf]) -> Vec<Input> {
        if files.is_empty() {
            return vec![Input::Stdin];
        }
        let input = |path: &PathBuf| match path.as_os_str() == "-" {
            true => Input::Stdin,
            false => Input::File(path.clone()),
        };
        files.iter().map(input).collect()
    }

    /// What messages and `-H` call it: the bytes of its path, which need not be UTF-8.
    pub fn name(&self) -> &[u8] {
        match self {
            Input::Stdin => b"(standard input)",
            Input::File(path) => path.as_os_str().as_encoded_bytes(),
        }
    }

    /// Starts reading. On a terminal, says that input is awaited: silence would look like a hang.
    pub fn open(&self, terminator: u8) -> Result<Lines> {
        let reader: Box<dyn Read> = match self {
            Input::Stdin => {
                if io::stdin().is_terminal() {
                    output::say("reading keys from the terminal, one per line; Ctrl-D ends");
                }
                Box::new(io::stdin())
            }
            Input::File(path) => Box::new(open_file(path)?),
        };
        Ok(Lines {
            input: self.clone(),
            reader,
            terminator,
            buffer: vec![0; BLOCK],
            filled: 0,
            handed_out: 0,
            records_before: 0,
            at_end: false,
        })
    }

    /// Whether it can be read twice: once to count its records, once to use them.
    pub fn is_regular_file(&self) -> bool {
        match self {
            Input::Stdin => false,
            Input::File(path) => fs::metadata(path).is_ok_and(|metadata| metadata.is_file()),
        }
    }

    /// How many records it holds, by reading all of it.
    pub fn count_records(&self, terminator: u8) -> Result<u64> {
        let mut lines = self.open(terminator)?;
        let mut count = 0;
        let mut last = terminator;
        loop {
            let block = lines.read_block()?;
            let Some(&end) = block.last() else { break };
            count += memchr_iter(terminator, block).count() as u64;
            last = end;
        }
        Ok(count + u64::from(last != terminator))
    }
}

fn open_file(path: &Path) -> Result<File> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    // Opening a directory succeeds and reading it fails with a number; say it in words, early.
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        bail!("{} is a directory: name the files in it", path.display());
    }
    Ok(file)
}

/// One input being read.
pub struct Lines {
    input: Input,
    reader: Box<dyn Read>,
    terminator: u8,
    /// `buffer[..handed_out]` was given to the caller, `buffer[handed_out..filled]` is the start
    /// of a record whose end has not been read.
    buffer: Vec<u8>,
    filled: usize,
    handed_out: usize,
    records_before: u64,
    at_end: bool,
}

/// Some consecutive records of one input, without their terminators; at least one.
pub struct Batch<'a> {
    pub records: Vec<&'a [u8]>,
    /// The number of the first record, counted from 1, as in messages and `check -n`.
    pub first_number: u64,
}

impl Lines {
    /// The next records, or None at the end of the input.
    pub fn next_batch(&mut self) -> Result<Option<Batch<'_>>> {
        self.buffer.copy_within(self.handed_out..self.filled, 0);
        self.filled -= self.handed_out;
        self.handed_out = 0;
        while self.handed_out == 0 && !self.at_end {
            if self.filled == self.buffer.len() {
                self.buffer.resize(2 * self.filled, 0);
            }
            let read = self.read_at(self.filled)?;
            let fresh = self.filled..self.filled + read;
            self.filled = fresh.end;
            // Only the fresh bytes are searched, or a long line would be searched again and again.
            match memrchr(self.terminator, &self.buffer[fresh.clone()]) {
                Some(last) => self.handed_out = fresh.start + last + 1,
                None if read == 0 => {
                    self.at_end = true;
                    self.handed_out = self.filled;
                }
                None => {}
            }
        }
        if self.handed_out == 0 {
            return Ok(None);
        }
        let records = split(&self.buffer[..self.handed_out], self.terminator);
        let first_number = self.records_before + 1;
        self.records_before += records.len() as u64;
        Ok(Some(Batch { records, first_number }))
    }

    /// The next bytes as they come, empty at the end. Not to be mixed with `next_batch`.
    fn read_block(&mut self) -> Result<&[u8]> {
        let read = self.read_at(0)?;
        Ok(&self.buffer[..read])
    }

    fn read_at(&mut self, start: usize) -> Result<usize> {
        loop {
            match self.reader.read(&mut self.buffer[start..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => {
                    let name = || String::from_utf8_lossy(self.input.name()).into_owned();
                    return result.with_context(|| format!("cannot read {}", name()));
                }
            }
        }
    }
}

fn split(bytes: &[u8], terminator: u8) -> Vec<&[u8]> {
    let mut records = Vec::with_capacity(bytes.len() / 32);
    let mut start = 0;
    for end in memchr_iter(terminator, bytes) {
        records.push(&bytes[start..end]);
        start = end + 1;
    }
    if start < bytes.len() {
        records.push(&bytes[start..]);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out at most `step` bytes per read: what a pipe may do.
    struct Trickle<'a> {
        bytes: &'a [u8],
        step: usize,
    }

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.step.min(buffer.len()).min(self.bytes.len());
            buffer[..length].copy_from_slice(&self.bytes[..length]);
            self.bytes = &self.bytes[length..];
            Ok(length)
        }
    }

    fn lines(bytes: &'static [u8], step: usize, buffer: usize) -> Lines {
        Lines {
            input: Input::Stdin,
            reader: Box::new(Trickle { bytes, step }),
            terminator: b'\n',
            buffer: vec![0; buffer],
            filled: 0,
            handed_out: 0,
            records_before: 0,
            at_end: false,
        }
    }

    fn collect(mut lines: Lines) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(batch) = lines.next_batch().expect("memory does not fail") {
            assert!(!batch.records.is_empty());
            assert_eq!(batch.first_number, all.len() as u64 + 1);
            all.extend(batch.records.iter().map(|record| record.to_vec()));
        }
        assert!(lines.next_batch().expect("memory does not fail").is_none(), "the end stays");
        all
    }

    #[test]
    fn records_do_not_depend_on_how_the_input_arrives() {
        let cases: [(&[u8], &[&[u8]]); 8] = [
            (b"", &[]),
            (b"\n", &[b""]),
            (b"\n\n", &[b"", b""]),
            (b"a", &[b"a"]),
            (b"a\n", &[b"a"]),
            (b"a\nbb\n\nccc", &[b"a", b"bb", b"", b"ccc"]),
            (b"\0\r\n\xff\xfe\n", &[b"\0\r", b"\xff\xfe"]),
            (b"a long line of many bytes\nb", &[b"a long line of many bytes", b"b"]),
        ];
        for (bytes, expected) in cases {
            for step in [1, 2, 3, 7, 100] {
                for buffer in [1, 2, 5, 64] {
                    assert_eq!(collect(lines(bytes, step, buffer)), expected, "{step} {buffer}");
                }
            }
        }
    }

    #[test]
    fn counting_agrees_with_reading() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("lines");
        for bytes in [b"".as_slice(), b"\n", b"a", b"a\n", b"a\n\nb", b"a\n\nb\n"] {
            fs::write(&path, bytes).expect("writing a temporary file");
            let input = Input::File(path.clone());
            let mut lines = input.open(b'\n').expect("it exists");
            let mut read = 0;
            while let Some(batch) = lines.next_batch().expect("it can be read") {
                read += batch.records.len() as u64;
            }
            assert_eq!(input.count_records(b'\n').expect("it can be read"), read, "{bytes:?}");
        }
    }
}
