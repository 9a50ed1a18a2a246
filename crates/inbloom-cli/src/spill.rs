//! Digests of keys, or only their places, more than fit into memory: kept apart by what they begin
//! with, and given back range by range.
//!
//! Places are hashes. Divided by their first 12 bits into 4096 partitions they come in even parts,
//! and the parts of a filter, shards or pieces, are ranges of places: what one is built from are
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
use inbloom::Digest;
use inbloom::internals::file;
use xxhash_rust::xxh3::xxh3_64;

pub use chunk::Kept;
use chunk::{PARTITIONS, partition};

/// Files that partitions share.
const FILES: usize = 64;
/// Places that are moved to a buffer together. The buffers are many and large: one place at a time
/// would wait for the memory of its buffer each time.
const LINE: usize = 8;
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
    places: Columns,
    /// In the order of the places, or none of them.
    prints: Columns,
    in_line: Vec<u8>,
    in_buffer: Vec<u16>,
    capacity: usize,
    /// The chunks of each partition.
    chunks: Vec<Vec<Chunk>>,
    /// Bytes of chunks that are in memory, and how many may be.
    in_memory: u64,
    most_in_memory: u64,
    disk: Option<Disk>,
    /// Digests that came.
    count: u64,
    encoded: Vec<u8>,
    /// What tells of the chunks that went to files since the last checkpoint.
    told: Vec<u8>,
}

/// One of the two words of digests that are not in chunks yet.
struct Columns {
    /// A line for each partition.
    lines: Vec<[u64; LINE]>,
    /// A buffer of `capacity` words for each partition.
    buffers: Vec<u64>,
}

/// Bytes that tell of a chunk in a file: its partition, how many places it has, its checksum.
const TOLD: usize = 12;

impl Spill {
    /// With so much memory, of which the buffers take a quarter, and chunks a half.
    pub fn new(memory: u64, kept: Kept) -> Spill {
        let capacity = capacity(memory, kept);
        let columns = |partitions: usize| Columns {
            lines: vec![[0; LINE]; partitions],
            buffers: vec![0; capacity * partitions],
        };
        Spill {
            kept,
            places: columns(PARTITIONS),
            prints: columns(if kept == Kept::Digests { PARTITIONS } else { 0 }),
            in_line: vec![0; PARTITIONS],
            in_buffer: vec![0; PARTITIONS],
            capacity,
            chunks: (0..PARTITIONS).map(|_| Vec::new()).collect(),
            in_memory: 0,
            most_in_memory: memory / 2,
            disk: None,
            count: 0,
            encoded: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Digests that came.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many come between two checkpoints: eight times what is in the buffers, so that
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

    pub fn add(&mut self, digests: &[Digest]) -> Result<()> {
        self.count += digests.len() as u64;
        for digest in digests {
            let partition = partition(digest.place);
            let at = usize::from(self.in_line[partition]);
            self.places.lines[partition][at] = digest.place;
            if self.kept == Kept::Digests {
                self.prints.lines[partition][at] = digest.print;
            }
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
        let count = usize::from(self.in_line[partition]);
        let at = partition * self.capacity + usize::from(self.in_buffer[partition]);
        for columns in [&mut self.places, &mut self.prints] {
            if let Some(line) = columns.lines.get(partition) {
                columns.buffers[at..][..count].copy_from_slice(&line[..count]);
            }
        }
        self.in_buffer[partition] += count as u16;
        self.in_line[partition] = 0;
    }

    /// Makes a chunk of what is in a buffer.
    fn empty_buffer(&mut self, partition: usize) -> Result<()> {
        let count = std::mem::take(&mut self.in_buffer[partition]);
        let mut encoded = std::mem::take(&mut self.encoded);
        let [places, prints] = self.in_buffers(partition, usize::from(count));
        chunk::encode(places, prints, &mut encoded);
        let sum = xxh3_64(&encoded);
        self.encoded = encoded;
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

    /// The first places of a partition's buffer, and their prints, if these are kept.
    fn in_buffers(&self, partition: usize, count: usize) -> [&[u64]; 2] {
        [&self.places, &self.prints].map(|columns| {
            let start = partition * self.capacity;
            columns.buffers.get(start..start + count).unwrap_or_default()
        })
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
    pub fn restore(memory: u64, kept: Kept, folder: &Path, told: &[u8]) -> Result<Spill> {
        let mut spill = Spill::new(memory, kept);
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
            *length += chunk::length(usize::from(count), kept) as u64;
            spill.count += u64::from(count);
            spill.chunks[partition].push(Chunk { count, sum, body });
        }
        spill.disk = Some(Disk::open(folder, lengths)?);
        Ok(spill)
    }

    /// The places within a range, in no order; some come more than once.
    pub fn places(&self, range: &RangeInclusive<u64>) -> Result<Vec<u64>> {
        self.gather(range, |digest| digest.place)
    }

    /// The digests within a range, in their order, each once.
    pub fn digests(&self, range: &RangeInclusive<u64>) -> Result<Vec<Digest>> {
        assert_eq!(self.kept, Kept::Digests);
        let mut digests = self.gather(range, |digest| (digest.place, digest.print))?;
        digests.sort_unstable();
        digests.dedup();
        Ok(digests.into_iter().map(|(place, print)| Digest { place, print }).collect())
    }

    /// What is wanted of the digests within a range, in no order; some come more than once.
    fn gather<T: Ord>(
        &self,
        range: &RangeInclusive<u64>,
        wanted: impl Fn(Digest) -> T,
    ) -> Result<Vec<T>> {
        let (mut found, mut bytes) = (Vec::new(), Vec::new());
        let many = MANY / size_of::<T>();
        let mut most = many;
        let take = |digest: Digest, found: &mut Vec<T>| {
            if range.contains(&digest.place) {
                found.push(wanted(digest));
            }
        };
        for partition in partition(*range.start())..=partition(*range.end()) {
            for chunk in &self.chunks[partition] {
                // A key that comes a billion times is kept a few million times.
                if found.len() >= most {
                    found.sort_unstable();
                    found.dedup();
                    most = many.max(2 * found.len());
                }
                let count = usize::from(chunk.count);
                let chunk_bytes = match (&chunk.body, &self.disk) {
                    (Body::Memory(bytes), _) => bytes,
                    (Body::Disk(at), Some(disk)) => {
                        bytes.resize(chunk::length(count, self.kept), 0);
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
                chunk::decode(partition, count, self.kept, chunk_bytes, |digest| {
                    take(digest, &mut found);
                });
            }
            // Those that are not in chunks.
            let in_buffer = self.in_buffers(partition, usize::from(self.in_buffer[partition]));
            let in_line = [&self.places, &self.prints].map(|columns| {
                let line = columns.lines.get(partition);
                line.map_or(&[][..], |line| &line[..usize::from(self.in_line[partition])])
            });
            for [places, prints] in [in_buffer, in_line] {
                for (index, place) in places.iter().enumerate() {
                    let print = prints.get(index).copied().unwrap_or(0);
                    take(Digest { place: *place, print }, &mut found);
                }
            }
        }
        Ok(found)
    }

    /// Gives the memory of the buffers back, when no more places come and all are in files.
    pub fn end(&mut self) -> Result<Vec<u8>> {
        let told = self.checkpoint()?;
        if self.disk.is_some() {
            self.places.buffers = Vec::new();
            self.prints.buffers = Vec::new();
        }
        Ok(told)
    }

    /// The memory that the digests of a partition take while they are worked on, about.
    pub fn of_partition(&self) -> u64 {
        3 * bytes_of(self.kept) as u64 * self.count / PARTITIONS as u64
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
    (of_partition / LINE * LINE).min(chunk::MOST)
}

fn bytes_of(kept: Kept) -> usize {
    match kept {
        Kept::Places => size_of::<u64>(),
        Kept::Digests => size_of::<Digest>(),
    }
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
            options.read(true).write(true).create_new(true);
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
            let opened = file::open_without_links(&path);
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

    fn sorted(mut places: Vec<u64>) -> Vec<u64> {
        places.sort_unstable();
        places
    }

    fn places_of(digests: &[Digest]) -> Vec<u64> {
        sorted(digests.iter().map(|digest| digest.place).collect())
    }

    /// All places. Where digests are kept, each is there with its print.
    fn all(spill: &Spill) -> Vec<u64> {
        let places = sorted(spill.places(&(0..=u64::MAX)).expect("they are there"));
        if spill.kept == Kept::Digests {
            let digests = spill.digests(&(0..=u64::MAX)).expect("they are there");
            assert!(digests.iter().all(|digest| digest.print == !digest.place.rotate_left(7)));
            let mut once = places.clone();
            once.dedup();
            assert!(digests.iter().map(|digest| digest.place).eq(once));
        }
        places
    }

    #[test]
    fn what_was_added_is_gathered_from_memory_and_from_files() {
        for (count, kept) in [0, 1, 100, 30_000, 1_000_000]
            .into_iter()
            .flat_map(|count| BOTH.map(|kept| (count, kept)))
        {
            let folder = tempfile::tempdir().expect("a folder");
            let mut spill = Spill::new(LEAST_MEMORY, kept);
            spill.add(&digests(count)).expect("there is memory");
            let expected = places_of(&digests(count));
            assert!(all(&spill) == expected, "{count} in memory");
            spill.go_to_disk(folder.path()).expect("it can be written to");
            assert!(all(&spill) == expected, "{count}, chunks on disk");
            spill.checkpoint().expect("it can be written to");
            assert!(all(&spill) == expected, "{count} on disk");
            assert_eq!(spill.count(), count);
            let most = disk_for(count, kept, LEAST_MEMORY).max(LEAST_MEMORY / 2 + (4096 * 1024));
            assert!(spill.bytes_on_disk() <= most, "{count}: {}", spill.bytes_on_disk());
        }
    }

    #[test]
    fn a_range_gives_the_places_within() {
        let mut spill = Spill::new(LEAST_MEMORY, Kept::Digests);
        spill.add(&digests(200_000)).expect("there is memory");
        let all = places_of(&digests(200_000));
        for range in [0..=0, 0..=u64::MAX / 3, u64::MAX / 3 + 1..=u64::MAX / 2, 7 << 52..=8 << 52] {
            let found = sorted(spill.places(&range).expect("they are there"));
            let expected = all.iter().copied().filter(|place| range.contains(place));
            assert!(expected.eq(found.iter().copied()), "{range:?}");
            let parts: Vec<_> = divided(range.clone()).collect();
            assert_eq!(
                (parts[0].start(), parts[parts.len() - 1].end()),
                (range.start(), range.end())
            );
            let of_parts = parts.iter().map(|part| sorted(spill.places(part).expect("there")));
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
            let mut spill = Spill::new(LEAST_MEMORY, kept);
            let mut told = Vec::new();
            spill.add(&digests(100_000)).expect("there is memory");
            spill.go_to_disk(folder.path()).expect("it can be written to");
            for round in 0..3 {
                spill.add(&digests(200_000)[round * 1000..]).expect("there is disk");
                told.extend(spill.checkpoint().expect("there is disk"));
            }
            let (expected, count) = (all(&spill), spill.count());
            // A kill comes in the middle of later chunks.
            spill.add(&digests(300_000)).expect("there is disk");
            drop(spill);
            let spill = Spill::restore(2 * LEAST_MEMORY, kept, folder.path(), &told);
            let mut spill = spill.expect("it is restored");
            assert_eq!(spill.count(), count);
            assert!(all(&spill) == expected);
            spill.add(&digests(5000)).expect("there is disk");
            assert!(all(&spill) == sorted([expected, places_of(&digests(5000))].concat()));
        }
    }

    #[test]
    fn a_key_that_comes_very_often_takes_little_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spill = Spill::new(LEAST_MEMORY, Kept::Places);
        spill.go_to_disk(folder.path()).expect("it can be written to");
        let few: Vec<Digest> = (0..1000).map(|place| Digest { place, print: 0 }).collect();
        (0..20_000).for_each(|_| spill.add(&few).expect("there is disk"));
        spill.end().expect("there is disk");
        let gathered = spill.places(&(0..=u64::MAX)).expect("they are there");
        assert!(gathered.len() < MANY / 8 + chunk::MOST, "{}", gathered.len());
        let mut different = sorted(gathered);
        different.dedup();
        assert!(different.into_iter().eq(0..1000));
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
        let mut spill = Spill::new(LEAST_MEMORY, Kept::Places);
        spill.add(&digests(500_000)).expect("there is memory");
        spill.go_to_disk(folder.path()).expect("it can be written to");
        spill.checkpoint().expect("it can be written to");
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
        assert!(error.to_string().contains("were changed"), "{error}");
    }
}
