//! Records in blocks, worked on by all cores, and handed over in the order of the input.
//!
//! A record is what stands between two terminators (newline, or NUL under `-0`): any bytes, up to
//! `--max-line` of them, the empty record included. The last one counts with or without its
//! terminator. A record of CSV ends in a newline too, but not in every one: see `csv.rs`.
//!
//! Filters are fastest when asked about many keys at once, and allocating a `String` per line costs
//! more than hashing it. So records travel in blocks of some thousand through a pipeline: workers
//! read, split and hash, each a block of its own; what has to happen in order (inserting, printing)
//! the caller does with the results. While there are none it is a worker itself, unless the input
//! may be slow: then results must not wait for what it reads.
//!
//! One `read` per block, not a full buffer: a slow pipe (`tail -f log | inbloom check seen.ib`) is
//! answered as its lines arrive, a file comes in blocks of some thousand lines.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Error, Result, anyhow};
use memchr::{memchr, memchr_iter, memrchr};

use crate::csv::{self, Splitter};
use crate::input::{Encoding, Input};
use crate::output::{Problem, problem};
use crate::pipeline::{Done, Pipeline, Turns};
use crate::{numbers, split};

/// Bytes read at once. 16 and 64 KiB are a third slower than 128, measured with `check -c`; 256 and
/// 1024 are as fast, but take more memory, since five or more blocks are on their way.
const BLOCK: usize = 128 << 10;

/// How inputs are divided into records.
#[derive(Clone, Copy, Debug)]
pub struct Records {
    pub terminator: u8,
    /// The delimiter of CSV, whose records may span lines.
    pub csv: Option<u8>,
    /// Whether the first record of each input names the fields, and holds no key.
    pub header: bool,
    /// The bytes that a record may have. Without a limit a small compressed file could take all
    /// memory.
    pub longest: usize,
}

impl Records {
    /// What messages call one of them.
    fn name(&self) -> &'static str {
        if self.csv.is_some() { "record" } else { "line" }
    }
}

/// The first record of an input.
pub struct Header {
    /// As it was read, without its terminator.
    pub text: Vec<u8>,
    /// Its fields, if it is CSV.
    pub names: Vec<Vec<u8>>,
}

/// Some consecutive records of one input: at least one, or the header and none.
#[derive(Default)]
pub struct Block {
    /// Which input, counted from 0.
    pub input: usize,
    /// What messages call the input, for the first block of it.
    pub begins: Option<String>,
    /// The header of its input, if it has one. It is not among the records.
    pub header: Option<Arc<Header>>,
    /// The number of the first record in its input, counted from 1: known when the block is handed
    /// over, not while it is worked on.
    pub first_number: u64,
    /// Only the first `length` bytes are records: the rest is room to read into.
    bytes: Vec<u8>,
    length: usize,
    terminator: u8,
    /// Where each record ends, its terminator excluded.
    ends: Vec<usize>,
    /// Whether that is known since the block was read.
    is_split: bool,
    longest: usize,
    /// The bytes of the header that was read with the block, with its terminator.
    header_bytes: usize,
}

impl Block {
    /// How many records there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// How many bytes of the input it is, with terminators and the header.
    pub fn bytes(&self) -> usize {
        self.header_bytes + self.length
    }

    /// The bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// Returns the header as it is printed, with a terminator, if it was read with this block. The
    /// first one that comes is to be printed, and no other.
    pub fn header_line(&self) -> Option<Vec<u8>> {
        let header = self.header.as_ref().filter(|_| self.header_bytes > 0)?;
        Some([&header.text[..], &[self.terminator]].concat())
    }

    /// How many records there are in a block that was just read.
    pub fn count(&self) -> u64 {
        if self.is_split {
            return self.ends.len() as u64;
        }
        let bytes = &self.bytes[..self.length];
        let unfinished = bytes.last().is_some_and(|&last| last != self.terminator);
        memchr_iter(self.terminator, bytes).count() as u64 + u64::from(unfinished)
    }

    /// The records, without their terminators.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let record = &self.bytes[start..end];
            start = end + 1;
            record
        })
    }

    /// Appends the records that are selected to `text`, each with its terminator.
    pub fn copy_selected(&self, selected: &[bool], text: &mut Vec<u8>) {
        let mut start = 0;
        let mut from = None;
        for (&end, &selected) in self.ends.iter().zip(selected) {
            match (selected, from) {
                (true, None) => from = Some(start),
                (false, Some(first)) => {
                    text.extend_from_slice(&self.bytes[first..start]);
                    from = None;
                }
                _ => {}
            }
            start = end + 1;
        }
        if let Some(first) = from {
            text.extend_from_slice(&self.bytes[first..start.min(self.length)]);
            if start > self.length {
                // The last record of the input had none.
                text.push(self.terminator);
            }
        }
    }

    fn split(&mut self) -> Result<(), BadRecord> {
        let bytes = &self.bytes[..self.length];
        if !self.is_split {
            split::positions(self.terminator, bytes, &mut self.ends);
            if bytes.last().is_some_and(|&last| last != self.terminator) {
                self.ends.push(self.length);
            }
        }
        // No record is longer than all of them together, which is the usual case.
        if self.length > self.longest {
            let too_long = self.records().position(|record| record.len() > self.longest);
            too_long.map_or(Ok(()), |index| Err(BadRecord::too_long(index, self.longest)))
        } else {
            Ok(())
        }
    }

    /// Cuts off the first record of an input.
    fn take_header(&mut self, csv: Option<u8>) -> Header {
        let bytes = &self.bytes[..self.length];
        let end = match self.is_split {
            true => self.ends.remove(0),
            false => memchr(self.terminator, bytes).unwrap_or(self.length),
        };
        let text = bytes[..end].to_vec();
        self.header_bytes = self.length.min(end + 1);
        self.bytes.copy_within(self.header_bytes..self.length, 0);
        self.length -= self.header_bytes;
        self.ends.iter_mut().for_each(|end| *end -= self.header_bytes);
        let names = csv.map_or(Vec::new(), |delimiter| csv::names(&text, delimiter));
        Header { text, names }
    }
}

/// What went wrong, and in which input.
pub struct InputError {
    pub input: usize,
    pub error: Error,
}

/// A record that cannot be worked on, counted from 0 in its block, and why. None stands for the
/// header.
pub struct BadRecord {
    pub index: Option<usize>,
    pub problem: Problem,
}

impl BadRecord {
    fn too_long(index: usize, longest: usize) -> BadRecord {
        let problem = problem(
            format!("longer than the limit of {} bytes", numbers::exact(longest as u64)),
            "pass a larger --max-line if the input is correct",
        );
        BadRecord { index: Some(index), problem }
    }

    /// The error that it is, `before` records of the input having come before its block.
    fn into_error(self, input: &Input, records: &Records, before: u64) -> Error {
        let number = self.index.map_or(1, |index| before + 1 + index as u64);
        let Problem { what, help } = self.problem;
        let what = format!("{}: {} {number}: {what}", input.shown(), records.name());
        Problem { what, help }.into()
    }
}

/// Why no block was read.
pub enum Unread {
    Input(InputError),
    /// The first record that the block would have had.
    Record(BadRecord),
}

impl Unread {
    /// The error that it is, so many records of the input having come before.
    pub fn into_error(self, input: &Input, records: &Records, before: u64) -> Error {
        match self {
            Unread::Input(failure) => failure.error,
            Unread::Record(bad) => bad.into_error(input, records, before),
        }
    }
}

/// Reads inputs one after the other, block by block.
pub struct Reader {
    inputs: Arc<[Input]>,
    encoding: Encoding,
    records: Records,
    /// Returns the bytes that have come so far, to show progress.
    progress: Arc<AtomicU64>,
    /// The input being read.
    current: Option<Box<dyn Read + Send>>,
    /// How many inputs have been opened.
    opened: usize,
    /// Bytes of the next one that are not wanted.
    skipped: u64,
    /// The header of the current one, once it was read.
    header: Option<Arc<Header>>,
    /// The start of a record whose end has not been read.
    rest: Vec<u8>,
}

impl Reader {
    pub fn new(inputs: &[Input], encoding: Encoding, records: Records) -> Reader {
        Reader {
            inputs: inputs.into(),
            encoding,
            records,
            progress: Arc::default(),
            current: None,
            opened: 0,
            skipped: 0,
            header: None,
            rest: Vec::new(),
        }
    }

    /// Starts with this input, and with the bytes of it that follow so many, as they are when
    /// decompressed.
    pub fn starting_at(self, input: usize, bytes: u64) -> Reader {
        Reader { opened: input, skipped: bytes, ..self }
    }

    /// Counts the bytes that come, before they are decompressed.
    pub fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.progress)
    }

    /// Fills a block with the next records; None at the end of all inputs. After a failure it goes
    /// on with the next input.
    pub fn read(&mut self, block: &mut Block) -> Option<Result<(), Unread>> {
        block.terminator = self.records.terminator;
        block.longest = self.records.longest;
        block.is_split = self.records.csv.is_some();
        (block.begins, block.header_bytes) = (None, 0);
        loop {
            let reader = match &mut self.current {
                Some(reader) => reader,
                None => {
                    let input = self.inputs.get(self.opened)?.clone();
                    self.opened += 1;
                    block.input = self.opened - 1;
                    block.begins = Some(input.shown());
                    match self.open(&input, block) {
                        Ok(reader) => self.current.insert(reader),
                        Err(unread) => return Some(Err(unread)),
                    }
                }
            };
            block.input = self.opened - 1;
            match fill(block, reader, &mut self.rest, &self.records) {
                Ok(true) if self.records.header && self.header.is_none() => {
                    self.header = Some(Arc::new(block.take_header(self.records.csv)));
                    break;
                }
                Ok(true) => break,
                Ok(false) => self.current = None,
                Err(stop) => {
                    self.current = None;
                    self.rest.clear();
                    return Some(Err(stop.of_input(block.input, &self.inputs[block.input])));
                }
            }
        }
        block.header.clone_from(&self.header);
        Some(Ok(()))
    }

    /// Opens an input behind what is not wanted of it. Its header is wanted all the same.
    fn open(&mut self, input: &Input, block: &mut Block) -> Result<Box<dyn Read + Send>, Unread> {
        let number = self.opened - 1;
        let failed = |error| Unread::Input(InputError { input: number, error });
        self.header = None;
        let skipped = std::mem::take(&mut self.skipped);
        if skipped > 0 && self.records.header {
            let mut reader = input.open(self.encoding, &Arc::default()).map_err(failed)?;
            let filled = fill(block, &mut reader, &mut Vec::new(), &self.records);
            filled.map_err(|stop| stop.of_input(number, input))?;
            self.header = Some(Arc::new(block.take_header(self.records.csv)));
            block.header_bytes = 0;
        }
        input.open_behind(skipped, self.encoding, &self.progress).map_err(failed)
    }
}

/// Why reading stopped.
enum Stop {
    Io(io::Error),
    Record(BadRecord),
}

impl Stop {
    fn of_input(self, number: usize, input: &Input) -> Unread {
        match self {
            Stop::Io(error) => {
                let error = Error::new(error).context(input.cannot_read());
                Unread::Input(InputError { input: number, error })
            }
            Stop::Record(bad) => Unread::Record(bad),
        }
    }
}

/// Reads until at least one record is whole, and leaves what follows the last one in `rest`. False
/// at the end of the input.
fn fill(
    block: &mut Block,
    reader: &mut dyn Read,
    rest: &mut Vec<u8>,
    records: &Records,
) -> Result<bool, Stop> {
    if block.bytes.len() < BLOCK.max(2 * rest.len()) {
        block.bytes.resize(BLOCK.max(2 * rest.len()), 0);
    }
    block.bytes[..rest.len()].copy_from_slice(rest);
    let mut filled = rest.len();
    rest.clear();
    block.ends.clear();
    let mut splitter = records.csv.map(Splitter::new);
    if let Some(splitter) = &mut splitter {
        // They are of one record that has not ended, unless its end was never looked for.
        splitter.ends(&block.bytes[..filled], 0, &mut block.ends);
    }
    loop {
        if filled == block.bytes.len() {
            // No more than it takes to see that a record is too long.
            block.bytes.resize((2 * filled).min(filled.max(records.longest) + BLOCK), 0);
        }
        let read = match reader.read(&mut block.bytes[filled..]) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Stop::Io(error)),
        };
        // Only the fresh bytes are searched, or a long line would be searched again and again.
        let fresh = filled..filled + read;
        filled = fresh.end;
        if read == 0 {
            if splitter.as_ref().is_some_and(Splitter::is_within_quotes) {
                return Err(Stop::Record(unclosed(block.ends.len())));
            }
            if block.is_split && filled > 0 {
                block.ends.push(filled);
            }
            block.length = filled;
            return Ok(filled > 0);
        }
        let last = match &mut splitter {
            None => memrchr(records.terminator, &block.bytes[fresh.clone()])
                .map(|last| fresh.start + last),
            Some(splitter) => {
                splitter.ends(&block.bytes[fresh.clone()], fresh.start, &mut block.ends);
                block.ends.last().copied()
            }
        };
        if let Some(last) = last {
            block.length = last + 1;
            rest.extend_from_slice(&block.bytes[block.length..filled]);
            return Ok(true);
        }
        if filled > records.longest {
            return Err(Stop::Record(BadRecord::too_long(0, records.longest)));
        }
    }
}

/// A record of CSV with a quoted field that the input ends in.
fn unclosed(index: usize) -> BadRecord {
    let problem = problem(
        "a quoted field begins here or later and has no closing quote",
        "correct it, or read plain fields with -d and -f instead of --csv",
    );
    BadRecord { index: Some(index), problem }
}

/// A block and what was made of it.
#[derive(Default)]
pub struct Job<T> {
    pub block: Block,
    pub product: T,
}

/// The jobs of all inputs, in order.
pub struct InOrder<T> {
    workers: Arc<Workers<T>>,
    done: Receiver<Done<Slot<T>>>,
    /// Whether the caller is a worker while it waits.
    helps: bool,
    turns: Turns<Slot<T>>,
    /// The job that the caller has.
    current: Option<Job<T>>,
    inputs: Arc<[Input]>,
    records: Records,
    /// How many records of each input have been handed over.
    handed_over: Vec<u64>,
    /// The inputs that failed: what else was read of them is not handed over.
    failed: Vec<usize>,
}

/// A job on its way, and what went wrong with it.
#[derive(Default)]
struct Slot<T> {
    job: Job<T>,
    trouble: Option<Trouble>,
}

type Workers<T> = Pipeline<
    Slot<T>,
    Box<dyn FnMut(&mut Slot<T>) -> bool + Send>,
    Box<dyn Fn(&mut Slot<T>) + Send + Sync>,
>;

enum Trouble {
    Unread(Unread),
    Record(BadRecord),
    Panic,
}

/// What [`InOrder::next_within`] found.
pub enum Next<'a, T> {
    Job(&'a mut Job<T>),
    Failed(InputError),
    /// The time is over.
    Nothing,
    End,
}

impl<T: Default + Send + 'static> InOrder<T> {
    /// Lets `threads` workers do `work` on the reader's blocks. It may be called for blocks that
    /// the caller never asks for.
    ///
    /// Nobody waits for the workers in the end: one may be waiting for a pipe that stays silent,
    /// while `check -q` knows its answer.
    pub fn new(
        mut reader: Reader,
        threads: usize,
        work: impl Fn(&Block, &mut T) -> Result<(), BadRecord> + Send + Sync + 'static,
    ) -> InOrder<T> {
        let (inputs, records) = (Arc::clone(&reader.inputs), reader.records);
        let helps = inputs.iter().all(Input::never_waits);
        let count = if helps { threads - 1 } else { threads };
        // One for each worker, one for the caller, and two that wait for their turn.
        let spares = (0..count + 3).map(|_| Slot::default()).collect();
        let source = move |slot: &mut Slot<T>| {
            let Some(read) = reader.read(&mut slot.job.block) else { return false };
            slot.trouble = read.err().map(Trouble::Unread);
            true
        };
        let work = move |slot: &mut Slot<T>| {
            if slot.trouble.is_none() {
                let Job { block, product } = &mut slot.job;
                let worked = block.split().and_then(|()| work(block, product));
                slot.trouble = worked.err().map(Trouble::Record);
            }
        };
        let workers: Arc<Workers<T>> =
            Arc::new(Pipeline::new(spares, Box::new(source), Box::new(work)));
        let (send, done) = mpsc::channel();
        let mut started = 0;
        for _ in 0..count {
            let (worker, send) = (Arc::clone(&workers), send.clone());
            // Where the system allows no more, fewer have to do.
            match thread::Builder::new().spawn(move || worker.serve(&send)) {
                Ok(_) => started += 1,
                Err(_) => break,
            }
        }
        InOrder {
            workers,
            done,
            helps: helps || started == 0,
            turns: Turns::new(),
            current: None,
            handed_over: vec![0; inputs.len()],
            failed: Vec::new(),
            inputs,
            records,
        }
    }

    /// The next job; the last one is given back with this call.
    pub fn next(&mut self) -> Option<Result<&mut Job<T>, InputError>> {
        match self.next_within(Duration::MAX) {
            Next::Job(job) => Some(Ok(job)),
            Next::Failed(failure) => Some(Err(failure)),
            Next::Nothing | Next::End => None,
        }
    }

    /// As [`InOrder::next`], but comes back after some time even if there is nothing.
    pub fn next_within(&mut self, time: Duration) -> Next<'_, T> {
        if let Some(job) = self.current.take() {
            self.give_back(job);
        }
        loop {
            let Some(done) = self.turns.take() else {
                match self.receive(time) {
                    Ok(done) => self.turns.put(done),
                    Err(RecvTimeoutError::Timeout) => return Next::Nothing,
                    Err(RecvTimeoutError::Disconnected) => return self.end(),
                }
                continue;
            };
            let (Slot { mut job, trouble }, panicked) = done.into_parts();
            let trouble = if panicked { Some(Trouble::Panic) } else { trouble };
            let failure = trouble.map(|trouble| self.failure(&job.block, trouble));
            let input = job.block.input;
            if self.failed.contains(&input) {
                self.give_back(job);
            } else if let Some(failure) = failure {
                self.give_back(job);
                self.failed.push(input);
                return Next::Failed(failure);
            } else {
                let before = self.before(&job.block);
                job.block.first_number = before + 1;
                self.handed_over[input] = before + job.block.len() as u64;
                return Next::Job(self.current.insert(job));
            }
        }
    }

    /// Has no further block read until [`InOrder::go_on`]. Those that were read are handed over as
    /// before: see [`InOrder::is_idle`].
    pub fn pause(&self) {
        self.workers.hold();
    }

    /// Whether all blocks that were read have been handed over, and worked on by the caller. While
    /// it is so after [`InOrder::pause`], no worker does anything, and there is no next job to wait
    /// for.
    pub fn is_idle(&mut self) -> bool {
        if let Some(job) = self.current.take() {
            self.give_back(job);
        }
        self.workers.is_idle()
    }

    pub fn go_on(&self) {
        self.workers.release();
    }

    /// With all workers gone it is the end, unless they went before it.
    fn end(&mut self) -> Next<'_, T> {
        match self.workers.is_at_end() && self.turns.is_empty() {
            true => Next::End,
            false if self.failed.len() > self.inputs.len() => Next::End,
            false => {
                self.turns.clear();
                // More than there are inputs: that is said once.
                self.failed = vec![usize::MAX; self.inputs.len() + 1];
                Next::Failed(InputError { input: 0, error: anyhow!(BUG) })
            }
        }
    }

    /// The records of its input that came before a block, with the header if the block was read
    /// behind it.
    fn before(&self, block: &Block) -> u64 {
        self.handed_over[block.input] + u64::from(block.header_bytes > 0)
    }

    fn failure(&self, block: &Block, trouble: Trouble) -> InputError {
        let (input, before) = (block.input, self.before(block));
        let error = match trouble {
            Trouble::Unread(unread) => {
                unread.into_error(&self.inputs[input], &self.records, before)
            }
            Trouble::Record(bad) => bad.into_error(&self.inputs[input], &self.records, before),
            Trouble::Panic => anyhow!(BUG),
        };
        InputError { input, error }
    }

    /// Another job that is done, not always the next.
    fn receive(&mut self, time: Duration) -> Result<Done<Slot<T>>, RecvTimeoutError> {
        if let Ok(done) = self.done.try_recv() {
            return Ok(done);
        }
        // With no block to spare, what is waited for is in the hands of a worker.
        if self.helps
            && let Some(slot) = self.workers.spare()
        {
            match self.workers.work_on(slot) {
                Some(done) => return Ok(done),
                None => self.helps = false,
            }
        }
        if time == Duration::MAX {
            return self.done.recv().map_err(|_| RecvTimeoutError::Disconnected);
        }
        self.done.recv_timeout(time)
    }

    fn give_back(&self, mut job: Job<T>) {
        // What one very long line took is not kept for the others.
        if job.block.bytes.len() > 4 * BLOCK {
            job = Job::default();
        }
        self.workers.give_back(Slot { job, trouble: None });
    }
}

impl<T> Drop for InOrder<T> {
    fn drop(&mut self) {
        self.workers.close();
    }
}

const BUG: &str = "a bug in inbloom, described above: please report it";

/// What ends a record: newline, or NUL under `-0`.
pub fn terminator(null: bool) -> u8 {
    if null { 0 } else { b'\n' }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::Ordering;

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

    fn lines() -> Records {
        Records { terminator: b'\n', csv: None, header: false, longest: 64 << 20 }
    }

    fn reader(bytes: &'static [u8], step: usize) -> Reader {
        let mut reader = Reader::new(&[Input::Stdin], Encoding::Plain, lines());
        reader.current = Some(Box::new(Trickle { bytes, step }));
        reader.opened = 1;
        reader
    }

    fn collect(mut jobs: InOrder<Vec<Vec<u8>>>) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(job) = jobs.next() {
            let Ok(job) = job else { panic!("nothing fails") };
            assert_eq!(job.block.first_number, all.len() as u64 + 1);
            assert_eq!(job.block.len(), job.product.len());
            assert!(job.block.len() > 0);
            let mut text = Vec::new();
            job.block.copy_selected(&vec![true; job.block.len()], &mut text);
            let lines: Vec<u8> =
                job.product.iter().flat_map(|r| [r, &b"\n"[..]].concat()).collect();
            assert_eq!(text, lines);
            all.append(&mut job.product);
        }
        assert!(jobs.next().is_none(), "the end stays");
        all
    }

    #[test]
    fn a_pause_is_between_what_was_handed_over_and_what_was_not_begun() {
        let text: Vec<u8> = (0..300_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        for threads in [1, 2, 5] {
            let worked = Arc::new(AtomicU64::new(0));
            let counter = Arc::clone(&worked);
            let reader = reader(text.clone().leak(), 5000);
            let mut jobs =
                InOrder::new(reader, threads, move |block: &Block, lines: &mut usize| {
                    *lines = block.len();
                    counter.fetch_add(block.len() as u64, Ordering::SeqCst);
                    Ok(())
                });
            let (mut handed_over, mut blocks, mut pauses, mut is_paused) = (0, 0, 0, false);
            loop {
                match jobs.next_within(Duration::from_millis(20)) {
                    Next::Job(job) => {
                        handed_over += job.product as u64;
                        blocks += 1;
                    }
                    Next::Nothing => {}
                    Next::Failed(failure) => panic!("{}", failure.error),
                    Next::End => break,
                }
                if blocks % 7 == 0 {
                    jobs.pause();
                    is_paused = true;
                }
                if is_paused && jobs.is_idle() {
                    assert_eq!(worked.load(Ordering::SeqCst), handed_over);
                    thread::sleep(Duration::from_micros(300));
                    assert_eq!(worked.load(Ordering::SeqCst), handed_over, "nobody goes on");
                    jobs.go_on();
                    is_paused = false;
                    pauses += 1;
                    blocks += 1;
                }
            }
            assert!(handed_over == 300_000 && pauses > 3, "{handed_over} lines, {pauses} pauses");
        }
    }

    fn copy(block: &Block, records: &mut Vec<Vec<u8>>) -> Result<(), BadRecord> {
        records.extend(block.records().map(<[u8]>::to_vec));
        Ok(())
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
                for threads in [1, 2, 5] {
                    let jobs = InOrder::new(reader(bytes, step), threads, copy);
                    assert_eq!(collect(jobs), expected, "{step} {threads}");
                }
            }
        }
    }

    #[test]
    fn a_line_longer_than_a_block_is_whole() {
        let text: &'static [u8] = Vec::leak([vec![b'x'; 3 * BLOCK], b"\ny\n".to_vec()].concat());
        for step in [1000, BLOCK, usize::MAX] {
            let records = collect(InOrder::new(reader(text, step), 2, copy));
            assert_eq!(records.iter().map(Vec::len).collect::<Vec<_>>(), [3 * BLOCK, 1]);
        }
    }

    #[test]
    fn what_goes_on_in_the_middle_of_an_input_knows_its_header() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let header = "id,\"full\nname\"\n";
        let text = format!("{header}1,\"a\nb\"\n2,c\n3,d");
        let inputs = [write(folder.path(), "a", "x,y\n"), write(folder.path(), "b", &text)];
        let records = Records { csv: Some(b','), header: true, ..lines() };
        // From the start, behind the header, and behind the first record.
        for (skipped, expected) in [
            (0, &["1,\"a\nb\"", "2,c", "3,d"][..]),
            (header.len(), &["1,\"a\nb\"", "2,c", "3,d"]),
            (header.len() + 8, &["2,c", "3,d"]),
        ] {
            let reader = Reader::new(&inputs, Encoding::ByMagic, records);
            let reader = reader.starting_at(1, skipped as u64);
            let mut jobs = InOrder::new(reader, 2, copy);
            let (mut found, mut bytes) = (Vec::new(), skipped);
            while let Some(Ok(job)) = jobs.next() {
                let names = &job.block.header.as_ref().expect("it has one").names;
                assert_eq!(names, &[&b"id"[..], b"full\nname"]);
                bytes += job.block.bytes();
                found.append(&mut job.product);
            }
            assert_eq!(found, expected.iter().map(|one| one.as_bytes()).collect::<Vec<_>>());
            assert_eq!(bytes, text.len(), "where to go on is known to the byte");
        }
        // Of an input that is only a header there is a batch all the same, to print it.
        let reader = Reader::new(&inputs[..1], Encoding::ByMagic, records);
        let mut jobs = InOrder::new(reader, 1, copy);
        let Some(Ok(job)) = jobs.next() else { panic!("it is read") };
        assert_eq!((job.block.len(), job.block.header_line()), (0, Some(b"x,y\n".to_vec())));
        assert!(jobs.next().is_none());
    }

    #[test]
    fn selected_records_are_copied_with_their_terminators() {
        for text in [&b"a\nbb\n\nd\n"[..], b"a\nbb\n\nd"] {
            let mut block = Block {
                bytes: text.to_vec(),
                length: text.len(),
                terminator: b'\n',
                longest: 100,
                ..Block::default()
            };
            assert!(block.split().is_ok());
            for choice in 0..16 {
                let selected: Vec<bool> = (0..4).map(|bit| choice >> bit & 1 == 1).collect();
                let mut copied = Vec::new();
                block.copy_selected(&selected, &mut copied);
                let chosen = block.records().zip(&selected).filter(|(_, selected)| **selected);
                let expected: Vec<u8> =
                    chosen.flat_map(|(record, _)| [record, b"\n"].concat()).collect();
                assert_eq!(copied, expected, "{selected:?}");
            }
        }
    }

    fn write(folder: &Path, name: &str, text: &str) -> Input {
        fs::write(folder.join(name), text).expect("a temporary folder can be written to");
        Input::File(folder.join(name))
    }

    #[test]
    fn a_failed_input_is_told_once_and_the_others_are_read() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let inputs = [
            write(folder.path(), "a", "1\n2\n"),
            Input::File(folder.path().join("missing")),
            write(folder.path(), "b", &("good\n".repeat(BLOCK) + &"bad\n".repeat(BLOCK))),
            write(folder.path(), "c", "3\n"),
        ];
        let reader = Reader::new(&inputs, Encoding::ByMagic, lines());
        let mut jobs = InOrder::new(reader, 3, |block, records: &mut Vec<Vec<u8>>| {
            records.clear();
            copy(block, records)?;
            let bad = records.iter().position(|record| record == b"bad");
            records.retain(|record| record != b"good");
            let problem = Problem::from("it is bad".to_string());
            bad.map_or(Ok(()), |index| Err(BadRecord { index: Some(index), problem }))
        });
        let (mut records, mut failed) = (Vec::new(), Vec::new());
        while let Some(job) = jobs.next() {
            match job {
                Ok(job) => records.append(&mut job.product),
                Err(failure) => failed.push((failure.input, failure.error.to_string())),
            }
        }
        assert_eq!(records, [b"1", b"2", b"3"]);
        assert_eq!(failed.iter().map(|(input, _)| *input).collect::<Vec<_>>(), [1, 2]);
        assert!(failed[0].1.contains("missing"), "{failed:?}");
        let line = format!("b: line {}: it is bad", BLOCK + 1);
        assert!(failed[1].1.ends_with(&line), "{failed:?}");
    }

    #[test]
    fn a_panic_of_a_worker_is_a_failure_and_not_the_end() {
        let jobs =
            &mut InOrder::new(reader(b"a\n", 9), 2, |_, (): &mut ()| panic!("a test's panic"));
        let Some(Err(failure)) = jobs.next() else { panic!("it is reported") };
        assert!(failure.error.to_string().contains("a bug"), "{:#}", failure.error);
    }
}
