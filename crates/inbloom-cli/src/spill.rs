//! Stores more digests of keys, or only their places, than fit into memory. They are divided by
//! their first bits and read back range by range.
//!
//! Places are hashes, so their first 12 bits divide them evenly into 4096 partitions. The parts of
//! a filter, shards or ranges of blocks, are ranges of places. Each is built from some partitions,
//! or from a part of one.
//!
//! ```text
//! places -> runs, one of each file -> buffers, one of each partition -> chunks -> 64 files of 64
//!           of a worker, in cache     shared, a quarter of the memory   encoded   partitions, or
//!                                                                                 half of the memory
//! ```
//!
//! Any number of workers add places at once. Each divides its own by their first 6 bits into runs;
//! a run that is full is divided by 6 bits more and appended to the buffers of its file, under a
//! lock of that file. The order of places does not matter to readers.
//!
//! Chunks stay in memory until they take half of the allowed memory. Then they and all later chunks
//! go to files. A file is removed as soon as its partitions are no longer needed, so the files
//! shrink while the filter grows.
//!
//! Every chunk has a checksum. Without it, a faulty disk would lead to a filter that lacks its
//! keys.

mod chunk;
mod sort;

use std::cell::Cell;
use std::fs::File;
use std::num::NonZero;
use std::ops::{Range, RangeInclusive};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use anyhow::{Context, Result, ensure};
use inbloom::Digest;
use inbloom::internals::file;
use xxhash_rust::xxh3::xxh3_64;

use crate::output::problem;
use crate::pipeline::in_order;
pub use chunk::Kept;
use chunk::{Encoded, PARTITIONS, partition};

/// Files that partitions share.
const FILES: usize = 64;
/// Partitions of a file.
const IN_FILE: usize = PARTITIONS / FILES;
/// Places of a run. The runs of a worker, 256 KiB of places, stay in the second level of its
/// processor's cache, and a file is locked once for so many places.
const RUN: usize = 512;
/// The bytes of places or digests that are looked through for repetitions, before there are more.
const MANY: usize = 32 << 20;
/// The least memory to work with.
pub const LEAST_MEMORY: u64 = 8_000_000;

/// A part of the places of a partition.
struct Chunk {
    count: u16,
    sum: u64,
    body: Body,
}

enum Body {
    Memory(Box<[u8]>),
    /// Where it begins in its file.
    Disk(u64),
}

/// See the top of this file.
pub struct Spill {
    kept: Kept,
    capacity: usize,
    /// The runs of each worker, or of fewer if there is little memory.
    runs: Vec<Mutex<Runs>>,
    /// The partitions of each file.
    groups: Vec<RwLock<Group>>,
    /// Bytes of chunks that are in memory, and how many may be.
    in_memory: AtomicU64,
    most_in_memory: u64,
    is_on_disk: AtomicBool,
    /// Digests that came.
    count: AtomicU64,
}

/// The two words of digests; of places alone there are no prints.
#[derive(Default)]
struct Columns {
    places: Vec<u64>,
    prints: Vec<u64>,
}

impl Columns {
    fn new(kept: Kept, length: usize) -> Columns {
        let prints = if kept == Kept::Digests { length } else { 0 };
        Columns { places: vec![0; length], prints: vec![0; prints] }
    }
}

/// Digests of one worker that are not in buffers yet.
struct Runs {
    /// A run for each file.
    columns: Columns,
    in_run: [u16; FILES],
    /// A run that is being divided by partitions.
    divided: Columns,
    encoded: Vec<u8>,
}

/// The partitions that share a file.
struct Group {
    /// A buffer of `capacity` digests for each partition.
    buffers: Columns,
    in_buffer: [u16; IN_FILE],
    /// The chunks of each partition.
    chunks: Vec<Vec<Chunk>>,
    /// The file, once there is one.
    file: Option<SpillFile>,
    /// What tells of the chunks that went to the file since the last checkpoint.
    told: Vec<u8>,
}

/// A file that chunks are appended to.
#[derive(Clone)]
struct SpillFile {
    file: Arc<File>,
    path: PathBuf,
    length: u64,
}

/// Bytes that tell of a chunk in a file: its partition, how many places it has, its checksum.
const TOLD: usize = 12;

/// All chunks in files up to some moment. What tells of those since the last time is given away only
/// once they are on disk.
pub struct Checkpoint {
    files: Vec<SpillFile>,
    told: Vec<u8>,
}

impl Checkpoint {
    /// Has the chunks on disk, and returns what tells of them; all of it together is what
    /// [`Spill::restore`] needs. More may be added to the spill meanwhile.
    pub fn sync(self) -> Result<Vec<u8>> {
        for SpillFile { file, path, .. } in &self.files {
            file.sync_data().with_context(|| format!("cannot sync {}", path.display()))?;
        }
        Ok(self.told)
    }
}

thread_local! {
    /// The runs that this thread has used last, which are in the cache of its processor.
    static LAST_RUNS: Cell<usize> = const { Cell::new(0) };
}

const WHOLE: &str = "nothing panics while it is locked";

impl Spill {
    /// With so much memory, of which the buffers take a quarter, and chunks a half; for so many
    /// workers.
    pub fn new(memory: u64, kept: Kept, workers: usize) -> Spill {
        let capacity = capacity(memory, kept);
        let runs = || Runs {
            columns: Columns::new(kept, FILES * RUN),
            in_run: [0; FILES],
            divided: Columns::new(kept, RUN),
            encoded: Vec::new(),
        };
        let group = || Group {
            buffers: Columns::new(kept, IN_FILE * capacity),
            in_buffer: [0; IN_FILE],
            chunks: (0..IN_FILE).map(|_| Vec::new()).collect(),
            file: None,
            told: Vec::new(),
        };
        let workers = runs_for(memory, kept).clamp(1, workers.max(1));
        Spill {
            kept,
            capacity,
            runs: (0..workers).map(|_| Mutex::new(runs())).collect(),
            groups: (0..FILES).map(|_| RwLock::new(group())).collect(),
            in_memory: AtomicU64::new(0),
            most_in_memory: memory / 2,
            is_on_disk: AtomicBool::new(false),
            count: AtomicU64::new(0),
        }
    }

    /// Digests that came.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// How many come between two checkpoints: eight times what is in the buffers, so that
    /// few chunks are cut short by them.
    pub fn between_checkpoints(&self) -> u64 {
        8 * (self.capacity * PARTITIONS) as u64
    }

    /// Whether chunks have to go to files before more places come.
    pub fn is_full(&self) -> bool {
        !self.is_on_disk() && self.in_memory.load(Ordering::Relaxed) > self.most_in_memory
    }

    /// Whether chunks are in files.
    pub fn is_on_disk(&self) -> bool {
        self.is_on_disk.load(Ordering::Relaxed)
    }

    /// Bytes of the files.
    pub fn bytes_on_disk(&self) -> u64 {
        let length =
            |group: &RwLock<Group>| read(group).file.as_ref().map_or(0, |file| file.length);
        self.groups.iter().map(length).sum()
    }

    /// How many of the files have so many bytes, about: all of them, or fewer.
    pub fn files_of(&self, bytes: u64) -> usize {
        let each = self.bytes_on_disk().div_ceil(FILES as u64).max(1);
        usize::try_from(bytes / each).unwrap_or(FILES).min(FILES)
    }

    /// Adds digests, from any number of threads at once.
    pub fn add(&self, digests: &[Digest]) -> Result<()> {
        self.count.fetch_add(digests.len() as u64, Ordering::Relaxed);
        let mut runs = self.any_runs();
        let runs = &mut *runs;
        for digest in digests {
            let file = file_of(partition(digest.place));
            let in_run = usize::from(runs.in_run[file]);
            runs.columns.places[file * RUN + in_run] = digest.place;
            if self.kept == Kept::Digests {
                runs.columns.prints[file * RUN + in_run] = digest.print;
            }
            runs.in_run[file] += 1;
            if in_run + 1 == RUN {
                self.empty_run(runs, file)?;
            }
        }
        Ok(())
    }

    /// Runs that no other thread uses: those of the last time, if they are free.
    fn any_runs(&self) -> MutexGuard<'_, Runs> {
        let last = LAST_RUNS.get();
        for at in (last..last + self.runs.len()).map(|at| at % self.runs.len()) {
            if let Ok(runs) = self.runs[at].try_lock() {
                LAST_RUNS.set(at);
                return runs;
            }
        }
        self.runs[last % self.runs.len()].lock().expect(WHOLE)
    }

    /// Moves a run to the buffers of its partitions.
    fn empty_run(&self, runs: &mut Runs, file: usize) -> Result<()> {
        let count = usize::from(std::mem::take(&mut runs.in_run[file]));
        if count == 0 {
            return Ok(());
        }
        let run = file * RUN..file * RUN + count;
        let places = &runs.columns.places[run.clone()];
        let prints = runs.columns.prints.get(run).unwrap_or_default();
        let mut ends = [0_usize; IN_FILE];
        places.iter().for_each(|place| ends[partition(*place) % IN_FILE] += 1);
        let mut end = 0;
        for of_partition in &mut ends {
            (*of_partition, end) = (end, end + *of_partition);
        }
        // Where the next of each partition goes; in the end, where it ends.
        for (index, place) in places.iter().enumerate() {
            let next = &mut ends[partition(*place) % IN_FILE];
            runs.divided.places[*next] = *place;
            if let Some(print) = prints.get(index) {
                runs.divided.prints[*next] = *print;
            }
            *next += 1;
        }
        let mut group = write(&self.groups[file]);
        let mut start = 0;
        for (at, end) in ends.into_iter().enumerate() {
            while start < end {
                let room = self.capacity - usize::from(group.in_buffer[at]);
                let moved = room.min(end - start);
                group.append(at, self.capacity, &runs.divided, start..start + moved);
                start += moved;
                if moved == room {
                    self.empty_buffer(&mut group, file * IN_FILE + at, &mut runs.encoded)?;
                }
            }
        }
        Ok(())
    }

    /// Makes a chunk of what is in a buffer.
    fn empty_buffer(
        &self,
        group: &mut Group,
        partition: usize,
        encoded: &mut Vec<u8>,
    ) -> Result<()> {
        let at = partition % IN_FILE;
        let count = std::mem::take(&mut group.in_buffer[at]);
        if count == 0 {
            return Ok(());
        }
        let buffer = at * self.capacity..at * self.capacity + usize::from(count);
        let prints = group.buffers.prints.get(buffer.clone()).unwrap_or_default();
        chunk::encode(&group.buffers.places[buffer], prints, encoded);
        let sum = xxh3_64(encoded);
        let body = match &mut group.file {
            None => {
                self.in_memory.fetch_add(encoded.len() as u64, Ordering::Relaxed);
                Body::Memory(encoded.as_slice().into())
            }
            Some(file) => file.append(encoded)?,
        };
        let chunk = Chunk { count, sum, body };
        if group.file.is_some() {
            group.told.extend(chunk.tell(partition));
        }
        group.chunks[at].push(chunk);
        Ok(())
    }

    /// Moves all chunks to files in this folder, and those that are going to come. More may be added
    /// meanwhile.
    pub fn go_to_disk(&self, folder: &Path) -> Result<()> {
        for (number, group) in self.groups.iter().enumerate() {
            let path = folder.join(file_name(number));
            let created = File::options().read(true).write(true).create_new(true).open(&path);
            let created = created.with_context(|| format!("cannot create {}", path.display()))?;
            let mut file = SpillFile { file: Arc::new(created), path, length: 0 };
            let mut group = write(group);
            let Group { chunks, told, .. } = &mut *group;
            for (at, chunks) in chunks.iter_mut().enumerate() {
                for chunk in chunks {
                    if let Body::Memory(bytes) = &chunk.body {
                        self.in_memory.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
                        chunk.body = file.append(bytes)?;
                    }
                    told.extend(chunk.tell(number * IN_FILE + at));
                }
            }
            group.file = Some(file);
        }
        self.is_on_disk.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Moves all digests that came into chunks, on so many threads. Nobody may add more meanwhile.
    fn settle(&self, threads: usize) -> Result<()> {
        for runs in &self.runs {
            let mut runs = runs.lock().expect(WHOLE);
            (0..FILES).try_for_each(|file| self.empty_run(&mut runs, file))?;
        }
        let empty = |file: u64| {
            let (file, mut encoded) = (file as usize, Vec::new());
            let mut group = write(&self.groups[file]);
            let mut partitions = file * IN_FILE..(file + 1) * IN_FILE;
            partitions.try_for_each(|at| self.empty_buffer(&mut group, at, &mut encoded))
        };
        in_order(0..FILES as u64, threads, empty, |_, ()| Ok(()))
    }

    /// Has all digests that came in files, if chunks are in files, but not yet on disk: see
    /// [`Checkpoint::sync`]. Nobody may add more until it returns.
    pub fn checkpoint(&self, threads: usize) -> Result<Checkpoint> {
        if self.is_on_disk() {
            self.settle(threads)?;
        }
        Ok(self.settled())
    }

    fn settled(&self) -> Checkpoint {
        let (mut files, mut told) = (Vec::new(), Vec::new());
        for group in &self.groups {
            let mut group = write(group);
            files.extend(group.file.clone());
            told.append(&mut group.told);
        }
        Checkpoint { files, told }
    }

    /// A spill as it was when a checkpoint named these chunks. What was written later is dropped.
    pub fn restore(
        memory: u64,
        kept: Kept,
        workers: usize,
        folder: &Path,
        told: &[u8],
    ) -> Result<Spill> {
        let spill = Spill::new(memory, kept, workers);
        let (told, rest) = told.as_chunks::<TOLD>();
        ensure!(rest.is_empty(), "the list of chunks in {} is cut short", folder.display());
        let mut lengths = vec![0; FILES];
        let mut all = 0;
        for told in told {
            let number = |at: usize| u16::from_le_bytes([told[at], told[at + 1]]);
            let (partition, count) = (usize::from(number(0)), number(2));
            let sum = u64::from_le_bytes(*told.last_chunk().expect("it is longer"));
            ensure!(
                partition < PARTITIONS,
                "the list of chunks in {} is damaged",
                folder.display()
            );
            let length = &mut lengths[file_of(partition)];
            let body = Body::Disk(*length);
            *length += chunk::length(usize::from(count), kept) as u64;
            all += u64::from(count);
            let mut group = write(&spill.groups[file_of(partition)]);
            group.chunks[partition % IN_FILE].push(Chunk { count, sum, body });
        }
        for (number, length) in lengths.into_iter().enumerate() {
            let file = SpillFile::open(folder.join(file_name(number)), length)?;
            write(&spill.groups[number]).file = Some(file);
        }
        spill.count.store(all, Ordering::Relaxed);
        spill.is_on_disk.store(true, Ordering::Relaxed);
        Ok(spill)
    }

    /// The places within a range, ascending, each once, after [`Spill::end`].
    pub fn places(&self, range: &RangeInclusive<u64>) -> Result<Vec<u64>> {
        // Places are even: about as many, and some more.
        let share = (range.end() - range.start()) as f64 / u64::MAX as f64;
        let mut found = Vec::with_capacity((self.count() as f64 * share * 1.01) as usize + 4096);
        for partition in partition(*range.start())..=partition(*range.end()) {
            let start = found.len();
            self.gather(partition, MANY / size_of::<u64>(), |batch| {
                let sorted = found.len();
                sort::places(partition, range, batch, &mut found);
                if start < sorted {
                    // More than a batch: two sorted parts are one after the other.
                    found[start..].sort();
                    found.dedup();
                }
            })?;
        }
        Ok(found)
    }

    /// The digests within a range, in their order, each once, after [`Spill::end`].
    pub fn digests(&self, range: &RangeInclusive<u64>) -> Result<Vec<Digest>> {
        assert_eq!(self.kept, Kept::Digests);
        let mut found = Vec::new();
        for partition in partition(*range.start())..=partition(*range.end()) {
            let mut digests = Vec::new();
            self.gather(partition, MANY / size_of::<Digest>(), |batch| {
                for chunk in batch {
                    chunk.digests(partition, |digest| {
                        if range.contains(&digest.place) {
                            digests.push((digest.place, digest.print));
                        }
                    });
                }
                digests.sort_unstable();
                digests.dedup();
            })?;
            found.extend(digests.into_iter().map(|(place, print)| Digest { place, print }));
        }
        Ok(found)
    }

    /// Reads the chunks of a partition, in batches of `many` digests or a chunk more: a key that
    /// comes a billion times must not take memory a billion times.
    fn gather(
        &self,
        partition: usize,
        many: usize,
        mut take: impl FnMut(&[Encoded]),
    ) -> Result<()> {
        let group = read(&self.groups[file_of(partition)]);
        let mut chunks = group.chunks[partition % IN_FILE].as_slice();
        let mut bytes = Vec::new();
        while !chunks.is_empty() {
            let mut before = 0;
            let full = chunks.iter().position(|chunk| {
                before += usize::from(chunk.count);
                before >= many
            });
            let (batch, later) = chunks.split_at(full.map_or(chunks.len(), |last| last + 1));
            chunks = later;
            self.read_chunks(&group, batch, &mut bytes)?;
            let mut rest = bytes.as_slice();
            let mut encoded = Vec::with_capacity(batch.len());
            for chunk in batch {
                let count = usize::from(chunk.count);
                let bytes = match &chunk.body {
                    Body::Memory(bytes) => bytes,
                    Body::Disk(_) => {
                        let (bytes, later) = rest.split_at(chunk::length(count, self.kept));
                        rest = later;
                        bytes
                    }
                };
                ensure!(
                    xxh3_64(bytes) == chunk.sum,
                    problem(
                        "a temporary file does not hold what was written",
                        "check the disk, and build again"
                    )
                );
                encoded.push(Encoded::new(count, self.kept, bytes));
            }
            take(&encoded);
        }
        Ok(())
    }

    /// Reads those of some chunks that are in their group's file, one after the other.
    fn read_chunks(&self, group: &Group, chunks: &[Chunk], bytes: &mut Vec<u8>) -> Result<()> {
        let on_disk = |chunk: &&Chunk| matches!(chunk.body, Body::Disk(_));
        let length = |chunk: &Chunk| chunk::length(chunk.count.into(), self.kept);
        bytes.resize(chunks.iter().filter(on_disk).map(length).sum(), 0);
        let mut rest = bytes.as_mut_slice();
        for chunk in chunks {
            if let (Body::Disk(at), Some(file)) = (&chunk.body, &group.file) {
                let (bytes, later) = rest.split_at_mut(length(chunk));
                rest = later;
                let read = file.file.read_exact_at(bytes, *at);
                read.with_context(|| format!("cannot read {}", file.path.display()))?;
            }
        }
        Ok(())
    }

    /// Has the system read what is going to be gathered of a range, while others work.
    #[cfg(target_os = "linux")]
    pub fn read_ahead(&self, range: &RangeInclusive<u64>) {
        use rustix::fs::{Advice, fadvise};

        for partition in partition(*range.start())..=partition(*range.end()) {
            let group = read(&self.groups[file_of(partition)]);
            let Some(file) = &group.file else { return };
            for chunk in &group.chunks[partition % IN_FILE] {
                let length = chunk::length(chunk.count.into(), self.kept) as u64;
                if let (Body::Disk(at), Some(length)) = (&chunk.body, NonZero::new(length)) {
                    // Without it, reading takes longer.
                    let _ = fadvise(&file.file, *at, Some(length), Advice::WillNeed);
                }
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub fn read_ahead(&self, _range: &RangeInclusive<u64>) {}

    /// Has all digests in chunks, and gives the memory of the buffers back, when no more come.
    pub fn end(&self, threads: usize) -> Result<Checkpoint> {
        self.settle(threads)?;
        for runs in &self.runs {
            let mut runs = runs.lock().expect(WHOLE);
            (runs.columns, runs.divided) = (Columns::default(), Columns::default());
        }
        for group in &self.groups {
            write(group).buffers = Columns::default();
        }
        Ok(self.settled())
    }

    /// The memory that the digests of a partition take while they are worked on, about.
    pub fn of_partition(&self) -> u64 {
        3 * bytes_of(self.kept) as u64 * self.count() / PARTITIONS as u64
    }

    /// Frees the files of partitions that are all before this place.
    pub fn free_before(&self, place: u64) -> Result<()> {
        for group in &self.groups[..file_of(partition(place))] {
            if let Some(file) = &read(group).file {
                // It stays open, so that to remove it would not be enough.
                let freed = file.file.set_len(0);
                freed.with_context(|| format!("cannot empty {}", file.path.display()))?;
            }
        }
        Ok(())
    }

    /// The file that a place would be in: those before are free after [`Spill::free_before`].
    pub fn file_of(place: u64) -> usize {
        file_of(partition(place))
    }
}

fn read(group: &RwLock<Group>) -> RwLockReadGuard<'_, Group> {
    group.read().expect(WHOLE)
}

fn write(group: &RwLock<Group>) -> RwLockWriteGuard<'_, Group> {
    group.write().expect(WHOLE)
}

impl Group {
    /// Appends some digests to the buffer of a partition, which has room for them.
    fn append(&mut self, at: usize, capacity: usize, from: &Columns, some: Range<usize>) {
        let end = at * capacity + usize::from(self.in_buffer[at]);
        self.in_buffer[at] += some.len() as u16;
        let to = end..end + some.len();
        self.buffers.places[to.clone()].copy_from_slice(&from.places[some.clone()]);
        if let Some(prints) = self.buffers.prints.get_mut(to) {
            prints.copy_from_slice(&from.prints[some]);
        }
    }
}

impl SpillFile {
    /// Opens a file and cuts it to this length. An empty one was free.
    fn open(path: PathBuf, told: u64) -> Result<SpillFile> {
        let file = file::open_without_links(&path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        ensure!(
            length == 0 || length >= told,
            problem(
                format!("{} has {length} bytes instead of {told}", path.display()),
                "remove the folder, and build again"
            )
        );
        file.set_len(length.min(told)).with_context(|| format!("{}", path.display()))?;
        Ok(SpillFile { file: Arc::new(file), path, length: told })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<Body> {
        let at = self.length;
        let written = self.file.write_all_at(bytes, at);
        written.with_context(|| format!("cannot write to {}", self.path.display()))?;
        self.length += bytes.len() as u64;
        Ok(Body::Disk(at))
    }
}

/// Ranges of places that are together all of them, each of one partition.
pub fn partitions() -> impl Iterator<Item = RangeInclusive<u64>> {
    let each = u64::MAX / PARTITIONS as u64;
    (0..PARTITIONS as u64)
        .map(move |partition| partition * (each + 1)..=partition * (each + 1) + each)
}

/// Ranges of at most one partition each that are together this one.
pub fn divided(range: RangeInclusive<u64>) -> impl Iterator<Item = RangeInclusive<u64>> {
    let (first, last) = (partition(*range.start()), partition(*range.end()));
    partitions().skip(first).take(last + 1 - first).map(move |of_partition| {
        *of_partition.start().max(range.start())..=*of_partition.end().min(range.end())
    })
}

/// The least memory for so many: the list of chunks stays in memory, and a chunk has the fewer digests
/// the less memory there is. It may take as much again.
pub fn least_memory(count: u64, kept: Kept) -> u64 {
    let buffers_of_one = (4 * PARTITIONS * bytes_of(kept)) as f64;
    let least = (size_of::<Chunk>() as f64 * buffers_of_one * count as f64).sqrt();
    (least as u64).max(LEAST_MEMORY)
}

/// The bytes of files for so many digests with so much memory: 0 if they fit into it.
pub fn disk_for(count: u64, kept: Kept, memory: u64) -> u64 {
    let capacity = capacity(memory, kept);
    let (chunks, each) = (count.div_ceil(capacity as u64), chunk::length(capacity, kept) as u64);
    let bytes = chunks.saturating_mul(each);
    // One chunk in nine is cut short by a checkpoint, and the last of each partition by the end.
    let cut = (chunks / 8).saturating_mul(512) + PARTITIONS as u64 * each;
    if bytes <= memory / 2 { 0 } else { bytes.saturating_add(cut) }
}

/// The places of a buffer.
fn capacity(memory: u64, kept: Kept) -> usize {
    let of_partition = memory.max(LEAST_MEMORY) as usize / 4 / PARTITIONS / bytes_of(kept);
    of_partition.min(chunk::MOST)
}

/// How many workers may have runs of their own, which take a sixteenth of the memory.
fn runs_for(memory: u64, kept: Kept) -> usize {
    let of_worker = FILES * RUN * bytes_of(kept);
    (memory as usize / 16 / of_worker).max(1)
}

fn bytes_of(kept: Kept) -> usize {
    match kept {
        Kept::Places => size_of::<u64>(),
        Kept::Digests => size_of::<Digest>(),
    }
}

fn file_of(partition: usize) -> usize {
    partition / IN_FILE
}

impl Chunk {
    fn tell(&self, partition: usize) -> [u8; TOLD] {
        let mut told = [0; TOLD];
        told[..2].copy_from_slice(&(partition as u16).to_le_bytes());
        told[2..4].copy_from_slice(&self.count.to_le_bytes());
        told[4..].copy_from_slice(&self.sum.to_le_bytes());
        told
    }
}

/// The names of all files that a spill may have in its folder.
pub fn file_names() -> impl Iterator<Item = String> {
    (0..FILES).map(file_name)
}

fn file_name(file: usize) -> String {
    format!("spill-{file:02}")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::*;

    const BOTH: [Kept; 2] = [Kept::Places, Kept::Digests];

    /// Digests that look random; some come twice.
    fn digests(count: u64) -> Vec<Digest> {
        let digest = |n: u64| {
            let place = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            Digest { place, print: !place.rotate_left(7) }
        };
        (0..count).map(|n| digest(n % (count * 9 / 10).max(1))).collect()
    }

    /// Ascending, each once.
    fn sorted(mut places: Vec<u64>) -> Vec<u64> {
        places.sort_unstable();
        places.dedup();
        places
    }

    fn places_of(digests: &[Digest]) -> Vec<u64> {
        sorted(digests.iter().map(|digest| digest.place).collect())
    }

    /// All places. Where digests are kept, each is there with its print.
    fn all(spill: &Spill) -> Vec<u64> {
        let places = spill.places(&(0..=u64::MAX)).expect("they are there");
        if spill.kept == Kept::Digests {
            let digests = spill.digests(&(0..=u64::MAX)).expect("they are there");
            assert!(digests.iter().all(|digest| digest.print == !digest.place.rotate_left(7)));
            assert!(digests.iter().map(|digest| &digest.place).eq(&places));
        }
        places
    }

    fn restored(kept: Kept, folder: &Path, told: &[u8]) -> Spill {
        Spill::restore(2 * LEAST_MEMORY, kept, 2, folder, told).expect("it is restored")
    }

    #[test]
    fn what_was_added_is_gathered_from_memory_and_from_files() {
        for (count, kept) in [0, 1, 100, 30_000, 1_000_000]
            .into_iter()
            .flat_map(|count| BOTH.map(|kept| (count, kept)))
        {
            let folder = tempfile::tempdir().expect("a folder");
            let expected = places_of(&digests(count));
            let spill = Spill::new(LEAST_MEMORY, kept, 2);
            spill.add(&digests(count)).expect("there is memory");
            spill.end(2).expect("there is memory");
            assert!(all(&spill) == expected, "{count} in memory");
            assert_eq!(spill.bytes_on_disk(), 0);
            spill.go_to_disk(folder.path()).expect("it can be written to");
            assert!(all(&spill) == expected, "{count}, chunks on disk");
            assert_eq!(spill.count(), count);
            let most = disk_for(count, kept, LEAST_MEMORY).max(LEAST_MEMORY / 2 + (4096 * 1024));
            assert!(spill.bytes_on_disk() <= most, "{count}: {}", spill.bytes_on_disk());
        }
    }

    #[test]
    fn workers_add_at_once_while_chunks_go_to_files() {
        let all_digests = digests(1_500_000);
        for (kept, memory) in
            BOTH.into_iter().flat_map(|kept| [(kept, LEAST_MEMORY), (kept, 1 << 30)])
        {
            for workers in [1, 2, 5] {
                let folder = tempfile::tempdir().expect("a folder");
                let spill = Spill::new(memory, kept, workers);
                thread::scope(|scope| {
                    for some in all_digests.chunks(all_digests.len().div_ceil(5)) {
                        let add = |some| spill.add(some).expect("there is disk");
                        scope.spawn(move || some.chunks(3001).for_each(add));
                    }
                    spill.go_to_disk(folder.path()).expect("it can be written to");
                });
                let told = spill.end(3).and_then(Checkpoint::sync).expect("there is disk");
                assert_eq!(spill.count(), all_digests.len() as u64);
                assert!(all(&spill) == places_of(&all_digests), "{kept:?}, {workers} workers");
                let again = restored(kept, folder.path(), &told);
                assert_eq!(again.count(), spill.count());
                assert!(all(&again) == all(&spill));
            }
        }
    }

    /// What the top of this file and [`least_memory`] say that buffers take.
    #[test]
    fn buffers_take_their_share_of_the_memory_whatever_comes() {
        for (kept, workers) in BOTH.into_iter().flat_map(|kept| [(kept, 1), (kept, 2), (kept, 64)])
        {
            for memory in [LEAST_MEMORY, 100_000_000, 1_000_000_000, 8_000_000_000] {
                let spill = Spill::new(memory, kept, workers);
                let bytes = |columns: &Columns| {
                    8 * (columns.places.capacity() + columns.prints.capacity()) as u64
                };
                let buffers: u64 =
                    spill.groups.iter().map(|group| bytes(&read(group).buffers)).sum();
                assert!(buffers <= memory / 4, "{kept:?}, {memory}: {buffers}");
                let runs = spill.runs.iter().map(|runs| {
                    let runs = runs.lock().expect(WHOLE);
                    bytes(&runs.columns) + bytes(&runs.divided)
                });
                let runs: u64 = runs.sum();
                // Those of one worker are always there.
                assert!(runs <= (memory / 15).max(530_000), "{kept:?}, {memory}: {runs}");
                assert!(spill.runs.len() <= workers);
                spill.add(&digests(70_000)).expect("there is memory");
                spill.end(1).expect("there is memory");
                let left: u64 = spill.groups.iter().map(|group| bytes(&read(group).buffers)).sum();
                assert_eq!(left, 0, "all is in chunks");
            }
        }
    }

    #[test]
    fn a_range_gives_the_places_within() {
        let spill = Spill::new(LEAST_MEMORY, Kept::Digests, 2);
        spill.add(&digests(200_000)).expect("there is memory");
        spill.end(1).expect("there is memory");
        let all = places_of(&digests(200_000));
        for range in [0..=0, 0..=u64::MAX / 3, u64::MAX / 3 + 1..=u64::MAX / 2, 7 << 52..=8 << 52] {
            let found = spill.places(&range).expect("they are there");
            let expected = all.iter().copied().filter(|place| range.contains(place));
            assert!(expected.eq(found.iter().copied()), "{range:?}");
            let parts: Vec<_> = divided(range.clone()).collect();
            assert_eq!(
                (parts[0].start(), parts[parts.len() - 1].end()),
                (range.start(), range.end())
            );
            let of_parts = parts.iter().map(|part| spill.places(part).expect("there"));
            assert!(of_parts.collect::<Vec<_>>().concat() == found, "{range:?}");
        }
        let ranges: Vec<_> = partitions().collect();
        assert_eq!((*ranges[0].start(), *ranges[PARTITIONS - 1].end()), (0, u64::MAX));
        let joined = |pair: &[RangeInclusive<u64>]| *pair[0].end() + 1 == *pair[1].start();
        assert!(ranges.windows(2).all(joined));
    }

    #[test]
    fn a_restored_spill_has_what_was_there_at_the_checkpoint() {
        for kept in BOTH {
            let folder = tempfile::tempdir().expect("a folder");
            let spill = Spill::new(LEAST_MEMORY, kept, 2);
            let mut told = Vec::new();
            spill.add(&digests(100_000)).expect("there is memory");
            spill.go_to_disk(folder.path()).expect("it can be written to");
            for round in 0..3 {
                spill.add(&digests(200_000)[round * 1000..]).expect("there is disk");
                let checkpoint = spill.checkpoint(2).expect("there is disk");
                // More comes before it is synced.
                spill.add(&digests(10_000)).expect("there is disk");
                told.extend(checkpoint.sync().expect("there is disk"));
            }
            let count = 100_000 + 200_000 + 199_000 + 198_000 + 2 * 10_000;
            let expected = places_of(&[digests(100_000), digests(200_000)].concat());
            // A kill comes in the middle of later chunks.
            spill.add(&digests(300_000)).expect("there is disk");
            drop(spill);
            let spill = restored(kept, folder.path(), &told);
            assert_eq!(spill.count(), count);
            assert!(all(&spill) == expected);
            spill.add(&digests(5000)).expect("there is disk");
            spill.end(1).expect("there is disk");
            assert!(all(&spill) == sorted([expected, places_of(&digests(5000))].concat()));
        }
    }

    #[test]
    fn a_key_that_comes_very_often_takes_little_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let spill = Spill::new(LEAST_MEMORY, Kept::Places, 1);
        spill.go_to_disk(folder.path()).expect("it can be written to");
        let few: Vec<Digest> = (0..1000).map(|place| Digest { place, print: 0 }).collect();
        (0..20_000).for_each(|_| spill.add(&few).expect("there is disk"));
        spill.end(1).expect("there is disk");
        let mut most = 0;
        let many = MANY / 8;
        let count = |batch: &[Encoded]| most = most.max(batch.iter().map(Encoded::len).sum());
        spill.gather(0, many, count).expect("they are there");
        assert!(most >= many && most < many + chunk::MOST, "{most}");
        let gathered = spill.places(&(0..=u64::MAX)).expect("they are there");
        assert!(gathered.into_iter().eq(0..1000));
    }

    /// The list of chunks of so many, each as full as it gets.
    #[test]
    fn with_the_least_memory_the_list_of_chunks_takes_as_much_again() {
        for count in [100_000_000, 1_000_000_000, 10_000_000_000_u64] {
            for kept in BOTH {
                let least = least_memory(count, kept);
                let list = count / capacity(least, kept) as u64 * size_of::<Chunk>() as u64;
                // Buffers have whole lines.
                assert!(
                    list > least * 9 / 10 && list < least * 13 / 10,
                    "{count}: {list}, {least}"
                );
            }
        }
        assert_eq!(least_memory(1_000_000, Kept::Digests), LEAST_MEMORY);
    }

    #[test]
    fn files_are_freed_and_damage_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let spill = Spill::new(LEAST_MEMORY, Kept::Places, 2);
        spill.add(&digests(500_000)).expect("there is memory");
        spill.go_to_disk(folder.path()).expect("it can be written to");
        spill.end(2).expect("it can be written to");
        let half = 1 << 63;
        spill.free_before(half).expect("it can be written to");
        for file in 0..FILES {
            let length = fs::metadata(folder.path().join(file_name(file))).expect("there").len();
            assert_eq!(length == 0, file < FILES / 2, "{file}");
        }
        spill.places(&(half..=u64::MAX)).expect("they are there");
        let path = folder.path().join(file_name(FILES - 1));
        let mut bytes = fs::read(&path).expect("it is there");
        bytes[1000] ^= 1;
        fs::write(&path, bytes).expect("it is written");
        let error = spill.places(&(half..=u64::MAX)).expect_err("damaged");
        assert!(error.to_string().contains("does not hold what was written"), "{error}");
    }
}
