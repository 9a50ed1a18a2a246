//! Places of keys, more than fit into memory: kept apart by what they begin with, and given back
//! range by range.
//!
//! The places are hashes. Divided by their first 12 bits into 4096 partitions they come in even
//! parts, and the shards of a static filter are ranges of places: what a shard is built from are
//! some partitions, or a part of one.
//!
//! ```text
//! places -> lines of 8 -> buffers, one of each partition -> chunks -> 64 files of 64 partitions
//!           in cache      a quarter of the memory           encoded    or half of the memory
//! ```
//!
//! Chunks stay in memory until they take half of what is allowed; then they all go to files, and
//! so do those that follow. A file goes as soon as nobody needs its partitions any more: the filter
//! grows while the files shrink.
//!
//! Every chunk has a checksum: a disk that gives back something else would make a filter that
//! denies its keys.

mod chunk;

use std::fs::File;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xxhash_rust::xxh3::xxh3_64;

use chunk::{PARTITIONS, partition};

/// Files that partitions share.
const FILES: usize = 64;
/// Places that are moved to a buffer together. The buffers are many and large: one place at a time
/// would wait for the memory of its buffer each time.
const LINE: usize = 8;
/// So many places are looked through for repetitions, before there are more.
const MANY: usize = 1 << 22;
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
    lines: Vec<[u64; LINE]>,
    in_line: Vec<u8>,
    /// A buffer of `capacity` places for each partition.
    buffers: Vec<u64>,
    in_buffer: Vec<u16>,
    capacity: usize,
    /// The chunks of each partition.
    chunks: Vec<Vec<Chunk>>,
    /// Bytes of chunks that are in memory, and how many may be.
    in_memory: u64,
    most_in_memory: u64,
    disk: Option<Disk>,
    places: u64,
    encoded: Vec<u8>,
    /// What tells of the chunks that went to files since the last checkpoint.
    told: Vec<u8>,
}

/// Bytes that tell of a chunk in a file: its partition, how many places it has, its checksum.
const TOLD: usize = 12;

impl Spill {
    /// With so much memory, of which the buffers take a quarter, and chunks a half.
    pub fn new(memory: u64) -> Spill {
        let capacity = capacity(memory);
        Spill {
            lines: vec![[0; LINE]; PARTITIONS],
            in_line: vec![0; PARTITIONS],
            buffers: vec![0; capacity * PARTITIONS],
            in_buffer: vec![0; PARTITIONS],
            capacity,
            chunks: (0..PARTITIONS).map(|_| Vec::new()).collect(),
            in_memory: 0,
            most_in_memory: memory / 2,
            disk: None,
            places: 0,
            encoded: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Places that came.
    pub fn places(&self) -> u64 {
        self.places
    }

    /// How many places come between two checkpoints: eight times what is in the buffers, so that
    /// few chunks are cut short by them.
    pub fn between_checkpoints(&self) -> u64 {
        8 * (self.capacity * PARTITIONS) as u64
    }

    /// Whether chunks have to go to files before more places come.
    pub fn is_full(&self) -> bool {
        self.disk.is_none() && self.in_memory > self.most_in_memory
    }

    /// Whether chunks are in files.
    pub fn is_on_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Bytes of the files.
    pub fn bytes_on_disk(&self) -> u64 {
        self.disk.as_ref().map_or(0, |disk| disk.lengths.iter().sum())
    }

    pub fn add(&mut self, places: impl Iterator<Item = u64>) -> Result<()> {
        for place in places {
            self.places += 1;
            let partition = partition(place);
            let at = usize::from(self.in_line[partition]);
            self.lines[partition][at] = place;
            self.in_line[partition] += 1;
            if at + 1 == LINE {
                self.empty_line(partition);
                if usize::from(self.in_buffer[partition]) == self.capacity {
                    self.empty_buffer(partition)?;
                }
            }
        }
        Ok(())
    }

    /// Moves a line to its buffer, which has room for a whole one.
    fn empty_line(&mut self, partition: usize) {
        let (line, count) = (&self.lines[partition], usize::from(self.in_line[partition]));
        let at = partition * self.capacity + usize::from(self.in_buffer[partition]);
        self.buffers[at..][..count].copy_from_slice(&line[..count]);
        self.in_buffer[partition] += count as u16;
        self.in_line[partition] = 0;
    }

    /// Makes a chunk of what is in a buffer.
    fn empty_buffer(&mut self, partition: usize) -> Result<()> {
        let count = std::mem::take(&mut self.in_buffer[partition]);
        let places = &self.buffers[partition * self.capacity..][..usize::from(count)];
        chunk::encode(places, &mut self.encoded);
        let sum = xxh3_64(&self.encoded);
        let body = match &mut self.disk {
            None => {
                self.in_memory += self.encoded.len() as u64;
                Body::Memory(self.encoded.as_slice().into())
            }
            Some(disk) => disk.write(partition, &self.encoded)?,
        };
        let chunk = Chunk { count, sum, body };
        if self.disk.is_some() {
            self.told.extend(chunk.tell(partition));
        }
        self.chunks[partition].push(chunk);
        Ok(())
    }

    /// Moves all chunks to files in this folder, and those that are going to come.
    pub fn go_to_disk(&mut self, folder: &Path) -> Result<()> {
        let mut disk = Disk::create(folder)?;
        for (partition, chunks) in self.chunks.iter_mut().enumerate() {
            for chunk in chunks {
                if let Body::Memory(bytes) = &chunk.body {
                    chunk.body = disk.write(partition, bytes)?;
                }
                self.told.extend(chunk.tell(partition));
            }
        }
        self.in_memory = 0;
        self.disk = Some(disk);
        Ok(())
    }

    /// If chunks are in files: has all places in files, and the files on disk. Returns what tells
    /// of the chunks since the last time; all of it together is what [`Spill::restore`] needs.
    pub fn checkpoint(&mut self) -> Result<Vec<u8>> {
        if self.disk.is_some() {
            for partition in 0..PARTITIONS {
                if usize::from(self.in_buffer[partition]) + LINE > self.capacity {
                    self.empty_buffer(partition)?;
                }
                self.empty_line(partition);
                if self.in_buffer[partition] > 0 {
                    self.empty_buffer(partition)?;
                }
            }
        }
        if let Some(disk) = &self.disk {
            disk.sync()?;
        }
        Ok(std::mem::take(&mut self.told))
    }

    /// A spill as it was when these chunks were told of. What was written later is dropped.
    pub fn restore(memory: u64, folder: &Path, told: &[u8]) -> Result<Spill> {
        let mut spill = Spill::new(memory);
        let (told, rest) = told.as_chunks::<TOLD>();
        ensure!(rest.is_empty(), "the list of chunks in {} is cut short", folder.display());
        let mut lengths = vec![0; FILES];
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
            *length += chunk::length(usize::from(count)) as u64;
            spill.places += u64::from(count);
            spill.chunks[partition].push(Chunk { count, sum, body });
        }
        spill.disk = Some(Disk::open(folder, lengths)?);
        Ok(spill)
    }

    /// The places within a range, in no order; some come more than once.
    pub fn gather(&self, range: &RangeInclusive<u64>) -> Result<Vec<u64>> {
        let (mut places, mut bytes) = (Vec::new(), Vec::new());
        let mut most = MANY;
        let take = |place: u64, places: &mut Vec<u64>| {
            if range.contains(&place) {
                places.push(place);
            }
        };
        for partition in partition(*range.start())..=partition(*range.end()) {
            for chunk in &self.chunks[partition] {
                // A key that comes a billion times is kept a few million times.
                if places.len() >= most {
                    places.sort_unstable();
                    places.dedup();
                    most = MANY.max(2 * places.len());
                }
                let count = usize::from(chunk.count);
                let chunk_bytes = match (&chunk.body, &self.disk) {
                    (Body::Memory(bytes), _) => bytes,
                    (Body::Disk(at), Some(disk)) => {
                        bytes.resize(chunk::length(count), 0);
                        disk.read(partition, *at, &mut bytes)?;
                        bytes.as_slice()
                    }
                    (Body::Disk(_), None) => unreachable!("only a disk has chunks on disk"),
                };
                ensure!(
                    xxh3_64(chunk_bytes) == chunk.sum,
                    "temporary files were changed, or the disk does not give back what was written: \
                     check it, and build again",
                );
                chunk::decode(partition, count, chunk_bytes, |place| take(place, &mut places));
            }
            if let Some(buffer) = self.buffers.get(partition * self.capacity..) {
                let in_buffer = &buffer[..usize::from(self.in_buffer[partition])];
                let in_line = &self.lines[partition][..usize::from(self.in_line[partition])];
                in_buffer.iter().chain(in_line).for_each(|place| take(*place, &mut places));
            }
        }
        Ok(places)
    }

    /// Gives the memory of the buffers back, when no more places come and all are in files.
    pub fn end(&mut self) -> Result<Vec<u8>> {
        let told = self.checkpoint()?;
        if self.disk.is_some() {
            self.buffers = Vec::new();
        }
        Ok(told)
    }

    /// Frees the files of partitions that are all before this place.
    pub fn free_before(&self, place: u64) -> Result<()> {
        match &self.disk {
            Some(disk) => (0..file_of(partition(place))).try_for_each(|file| disk.free(file)),
            None => Ok(()),
        }
    }

    /// The file that a place would be in: those before are free after [`Spill::free_before`].
    pub fn file_of(place: u64) -> usize {
        file_of(partition(place))
    }
}

/// Ranges of places that are together all of them, each of one partition.
pub fn partitions() -> impl Iterator<Item = RangeInclusive<u64>> {
    let each = u64::MAX / PARTITIONS as u64;
    (0..PARTITIONS as u64)
        .map(move |partition| partition * (each + 1)..=partition * (each + 1) + each)
}

/// The bytes of files for so many places with so much memory: 0 if they fit into it.
pub fn disk_for(places: u64, memory: u64) -> u64 {
    let capacity = capacity(memory);
    let (chunks, each) = (places.div_ceil(capacity as u64), chunk::length(capacity) as u64);
    let bytes = chunks.saturating_mul(each);
    // One chunk in nine is cut short by a checkpoint, and the last of each partition by the end.
    let cut = (chunks / 8).saturating_mul(512) + PARTITIONS as u64 * each;
    if bytes <= memory / 2 { 0 } else { bytes.saturating_add(cut) }
}

/// The places of a buffer.
fn capacity(memory: u64) -> usize {
    let of_partition = memory.max(LEAST_MEMORY) as usize / 4 / PARTITIONS / size_of::<u64>();
    (of_partition / LINE * LINE).min(chunk::MOST)
}

fn file_of(partition: usize) -> usize {
    partition / (PARTITIONS / FILES)
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

/// The files, once there are any.
struct Disk {
    folder: PathBuf,
    files: Vec<File>,
    lengths: Vec<u64>,
}

impl Disk {
    fn create(folder: &Path) -> Result<Disk> {
        let open = |file| {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(true);
            let path = folder.join(file_name(file));
            options.open(&path).with_context(|| format!("cannot create {}", path.display()))
        };
        let files = (0..FILES).map(open).collect::<Result<_>>()?;
        Ok(Disk { folder: folder.to_owned(), files, lengths: vec![0; FILES] })
    }

    /// Opens files and cuts them to these lengths. An empty one was free.
    fn open(folder: &Path, lengths: Vec<u64>) -> Result<Disk> {
        let open = |(file, told): (usize, &u64)| {
            let path = folder.join(file_name(file));
            let opened = File::options().read(true).write(true).open(&path);
            let opened = opened.with_context(|| format!("cannot open {}", path.display()))?;
            let length = opened.metadata().map_or(0, |metadata| metadata.len());
            ensure!(
                length == 0 || length >= *told,
                "{} has {length} bytes, and should have {told}: remove the folder, and build anew",
                path.display(),
            );
            opened.set_len(length.min(*told)).with_context(|| format!("{}", path.display()))?;
            Ok(opened)
        };
        let files = lengths.iter().enumerate().map(open).collect::<Result<_>>()?;
        Ok(Disk { folder: folder.to_owned(), files, lengths })
    }

    fn write(&mut self, partition: usize, bytes: &[u8]) -> Result<Body> {
        let file = file_of(partition);
        let at = self.lengths[file];
        let written = self.files[file].write_all_at(bytes, at);
        written.with_context(|| format!("cannot write to {}", self.path(file).display()))?;
        self.lengths[file] += bytes.len() as u64;
        Ok(Body::Disk(at))
    }

    fn read(&self, partition: usize, at: u64, bytes: &mut [u8]) -> Result<()> {
        let file = file_of(partition);
        let read = self.files[file].read_exact_at(bytes, at);
        read.with_context(|| format!("cannot read {}", self.path(file).display()))
    }

    fn sync(&self) -> Result<()> {
        for (number, file) in self.files.iter().enumerate() {
            let synced = file.sync_data();
            synced.with_context(|| format!("cannot sync {}", self.path(number).display()))?;
        }
        Ok(())
    }

    /// Gives the room of a file back. It stays open, so that to remove it would not be enough.
    fn free(&self, file: usize) -> Result<()> {
        let freed = self.files[file].set_len(0);
        freed.with_context(|| format!("cannot empty {}", self.path(file).display()))
    }

    fn path(&self, file: usize) -> PathBuf {
        self.folder.join(file_name(file))
    }
}

fn file_name(file: usize) -> String {
    format!("spill-{file:02}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Places that look random; some come twice.
    fn places(count: u64) -> impl Iterator<Item = u64> {
        (0..count)
            .map(move |n| (n % (count * 9 / 10).max(1) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn sorted(mut places: Vec<u64>) -> Vec<u64> {
        places.sort_unstable();
        places
    }

    fn all(spill: &Spill) -> Vec<u64> {
        sorted(spill.gather(&(0..=u64::MAX)).expect("they are there"))
    }

    #[test]
    fn what_was_added_is_gathered_from_memory_and_from_files() {
        let folder = tempfile::tempdir().expect("a folder");
        for count in [0, 1, 100, 30_000, 1_000_000] {
            let mut spill = Spill::new(LEAST_MEMORY);
            spill.add(places(count)).expect("there is memory");
            let expected = sorted(places(count).collect());
            assert!(all(&spill) == expected, "{count} in memory");
            spill.go_to_disk(folder.path()).expect("it can be written to");
            assert!(all(&spill) == expected, "{count}, chunks on disk");
            spill.checkpoint().expect("it can be written to");
            assert!(all(&spill) == expected, "{count} on disk");
            assert_eq!(spill.places(), count);
            let most = disk_for(count, LEAST_MEMORY).max(LEAST_MEMORY / 2 + (4096 * 1024));
            assert!(spill.bytes_on_disk() <= most, "{count}: {}", spill.bytes_on_disk());
        }
    }

    #[test]
    fn a_range_gives_the_places_within() {
        let mut spill = Spill::new(LEAST_MEMORY);
        spill.add(places(200_000)).expect("there is memory");
        for range in [0..=0, 0..=u64::MAX / 3, u64::MAX / 3 + 1..=u64::MAX / 2, 7 << 52..=8 << 52] {
            let found = spill.gather(&range).expect("they are there");
            let expected = places(200_000).filter(|place| range.contains(place)).collect();
            assert!(sorted(found) == sorted(expected), "{range:?}");
        }
        let ranges: Vec<_> = partitions().collect();
        assert_eq!((*ranges[0].start(), *ranges[PARTITIONS - 1].end()), (0, u64::MAX));
        let joined = |pair: &[RangeInclusive<u64>]| *pair[0].end() + 1 == *pair[1].start();
        assert!(ranges.windows(2).all(joined));
    }

    #[test]
    fn a_restored_spill_has_what_was_there_at_the_checkpoint() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spill = Spill::new(LEAST_MEMORY);
        let mut told = Vec::new();
        spill.add(places(100_000)).expect("there is memory");
        spill.go_to_disk(folder.path()).expect("it can be written to");
        for round in 0..3 {
            spill.add(places(200_000).skip(round * 1000)).expect("there is disk");
            told.extend(spill.checkpoint().expect("there is disk"));
        }
        let (expected, count) = (all(&spill), spill.places());
        // A kill comes in the middle of later chunks.
        spill.add(places(300_000)).expect("there is disk");
        drop(spill);
        let mut spill = Spill::restore(2 * LEAST_MEMORY, folder.path(), &told).expect("restored");
        assert_eq!(spill.places(), count);
        assert!(all(&spill) == expected);
        spill.add(places(5000)).expect("there is disk");
        let both = expected.into_iter().chain(places(5000)).collect();
        assert!(all(&spill) == sorted(both));
    }

    #[test]
    fn a_key_that_comes_very_often_takes_little_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spill = Spill::new(LEAST_MEMORY);
        spill.go_to_disk(folder.path()).expect("it can be written to");
        spill.add((0..20_000_000_u64).map(|n| n % 1000)).expect("there is disk");
        spill.end().expect("there is disk");
        let gathered = spill.gather(&(0..=u64::MAX)).expect("they are there");
        assert!(gathered.len() < MANY + chunk::MOST, "{}", gathered.len());
        let mut different = sorted(gathered);
        different.dedup();
        assert!(different.into_iter().eq(0..1000));
    }

    #[test]
    fn files_are_freed_and_damage_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spill = Spill::new(LEAST_MEMORY);
        spill.add(places(500_000)).expect("there is memory");
        spill.go_to_disk(folder.path()).expect("it can be written to");
        spill.checkpoint().expect("it can be written to");
        let half = 1 << 63;
        spill.free_before(half).expect("it can be written to");
        for file in 0..FILES {
            let length = fs::metadata(folder.path().join(file_name(file))).expect("there").len();
            assert_eq!(length == 0, file < FILES / 2, "{file}");
        }
        spill.gather(&(half..=u64::MAX)).expect("they are there");
        let path = folder.path().join(file_name(FILES - 1));
        let mut bytes = fs::read(&path).expect("it is there");
        bytes[1000] ^= 1;
        fs::write(&path, bytes).expect("it is written");
        let error = spill.gather(&(half..=u64::MAX)).expect_err("damaged");
        assert!(error.to_string().contains("were changed"), "{error}");
    }
}
