//! A ribbon filter's file, written shard by shard: one that is larger than memory never is in it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::{failed, sync_folder};
use crate::error::Result;
use crate::filter::Filter;
use crate::format::{self, LARGE, Written, mismatch};
use crate::kinds::ribbon::{Layout, Lengths, Part};
use crate::plan::ribbon::{ENTRY, TAIL};

/// Writes a filter of kind ribbon, one shard after the other, into a file that gets its name only
/// when it is complete.
///
/// Columns go to the file as they come. Thresholds and the directory, a 900th of it, are kept until
/// the end, and are all that has to be kept apart to go on after a crash: see
/// [`RibbonWriter::resume`]. The file is locked meanwhile.
///
/// ```
/// use inbloom::{Filter, Hasher, Kind, Plan, file, kinds::ribbon::Layout};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("blacklist.ib");
/// # let partial = folder.path().join("blacklist.ib.partial");
/// let plan = Plan::new(Kind::Ribbon).items(5_000_000).rate(1e-4).build()?;
/// let mut like = Filter::build(plan, Hasher::default(), &[])?;
/// like.set_note("no keys yet")?;
/// let mut writer = file::RibbonWriter::create(&partial, &like)?;
/// let layout = Layout::new(plan);
/// for shard in 0..layout.shards() {
///     writer.append(&layout.build(shard, &[])?)?;
/// }
/// writer.seal()?;
/// writer.publish(&path)?;
/// assert_eq!(file::open(&path)?.note(), "no keys yet");
/// # Ok::<(), inbloom::Error>(())
/// ```
pub struct RibbonWriter {
    file: File,
    path: PathBuf,
    /// A filter without keys: what it is like, the file becomes.
    like: Filter,
    sum: Xxh3Default,
    /// Bytes of columns.
    columns: u64,
    thresholds: Vec<u8>,
    directory: Vec<u8>,
    keys: u64,
}

impl RibbonWriter {
    /// Begins a file, over whatever is at this path. Plan, hash, note and normalization are those
    /// of `like`, a filter of kind ribbon, whose keys do not matter.
    pub fn create(path: impl AsRef<Path>, like: &Filter) -> Result<RibbonWriter> {
        let path = path.as_ref();
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let mut writer = RibbonWriter::new(file.map_err(failed("creating", path))?, path, like)?;
        let zeros = vec![0; before(like).len()];
        let began = writer.file.set_len(0).and_then(|()| writer.file.write_all(&zeros));
        began.map_err(failed("writing", path))?;
        sync_folder(path)?;
        Ok(writer)
    }

    fn new(file: File, path: &Path, like: &Filter) -> Result<RibbonWriter> {
        // Where files cannot be locked, as on some network drives, care has to do.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            let cause = io::Error::other("another program is writing it");
            return Err(failed("locking", path)(cause));
        }
        Ok(RibbonWriter {
            file,
            path: path.to_owned(),
            like: like.try_clone()?,
            sum: Xxh3Default::new(),
            columns: 0,
            thresholds: Vec::new(),
            directory: Vec::new(),
            keys: 0,
        })
    }

    /// Goes on with a file that was begun with a filter like this one: with what [`append`] has
    /// returned for its first shards, one after the other, after which [`sync`] was called. What
    /// was written behind them is dropped. Their columns are read again, and must be what was
    /// appended.
    ///
    /// [`append`]: RibbonWriter::append
    /// [`sync`]: RibbonWriter::sync
    pub fn resume(path: impl AsRef<Path>, like: &Filter, mut kept: &[u8]) -> Result<RibbonWriter> {
        let path = path.as_ref();
        let file = File::options().read(true).write(true).open(path);
        let mut writer = RibbonWriter::new(file.map_err(failed("opening", path))?, path, like)?;
        let mut shards = Vec::new();
        while !kept.is_empty() {
            let cut = || mismatch("what was kept of the shards", "whole shards", "a part of one");
            let (entry, rest) = kept.split_first_chunk().ok_or_else(cut)?;
            let (sum, rest) = rest.split_first_chunk().ok_or_else(cut)?;
            let lengths = Lengths::of(entry, like.plan())?;
            let thresholds = usize::try_from(lengths.thresholds).ok();
            let split = thresholds.and_then(|length| rest.split_at_checked(length));
            let (thresholds, rest) = split.ok_or_else(cut)?;
            writer.keep(entry, thresholds, &lengths);
            shards.push((lengths.columns, u64::from_le_bytes(*sum)));
            kept = rest;
        }
        let start = before(like).len() as u64;
        let end = start + writer.columns;
        let length = writer.file.metadata().map_err(failed("opening", path))?.len();
        if length < end {
            return Err(mismatch("length of the unfinished file", end, length));
        }
        writer.file.set_len(end).map_err(failed("shortening", path))?;
        writer.file.seek(SeekFrom::Start(start)).map_err(failed("reading", path))?;
        for (length, expected) in shards {
            let sum = writer.read_columns(length).map_err(failed("reading", path))?;
            if sum != expected {
                return Err(mismatch(
                    "checksum of a shard of the unfinished file",
                    format_args!("{expected:016x}"),
                    format_args!("{sum:016x}"),
                ));
            }
        }
        Ok(writer)
    }

    /// Reads the columns of the next shard, and returns their checksum.
    fn read_columns(&mut self, length: u64) -> io::Result<u64> {
        let mut of_shard = Xxh3Default::new();
        let mut buffer = vec![0; length.min(1 << 20) as usize];
        let mut left = length;
        while left > 0 {
            let piece = &mut buffer[..left.min(1 << 20) as usize];
            self.file.read_exact(piece)?;
            of_shard.update(piece);
            self.sum.update(piece);
            left -= piece.len() as u64;
        }
        Ok(of_shard.digest())
    }

    /// Shards that were appended so far.
    #[must_use]
    pub fn shards(&self) -> u64 {
        self.directory.len() as u64 / ENTRY
    }

    /// Keys of these shards.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Bytes of the filter that these shards are, without the header of the file.
    #[must_use]
    pub fn payload(&self) -> u64 {
        self.columns + (self.thresholds.len() + self.directory.len()) as u64 + TAIL
    }

    /// Appends the next shard, and returns what has to be kept of it to go on after a crash.
    pub fn append(&mut self, part: &Part) -> Result<Vec<u8>> {
        let entry = part.entry().first_chunk().expect("an entry is as long");
        self.file.write_all(part.columns()).map_err(failed("writing", &self.path))?;
        self.sum.update(part.columns());
        self.keep(entry, part.thresholds(), &Lengths::of(entry, self.like.plan())?);
        let sum = xxh3_64(part.columns()).to_le_bytes();
        Ok([part.entry(), &sum, part.thresholds()].concat())
    }

    fn keep(&mut self, entry: &[u8; ENTRY as usize], thresholds: &[u8], lengths: &Lengths) {
        self.columns += lengths.columns;
        self.thresholds.extend_from_slice(thresholds);
        self.directory.extend_from_slice(entry);
        self.keys += lengths.keys;
    }

    /// Has what was appended on disk.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(failed("syncing", &self.path))
    }

    /// Completes the file under the name that it has, and has it on disk. Returns what
    /// [`header_checksum`] is going to say of it when it is published.
    ///
    /// Fails if there are not as many shards as the plan has.
    pub fn seal(&mut self) -> Result<u64> {
        let expected = Layout::new(*self.like.plan()).shards();
        if self.shards() != expected {
            return Err(mismatch("number of shards of the ribbon", expected, self.shards()));
        }
        let count = expected.to_le_bytes();
        let end = [self.thresholds.as_slice(), &self.directory, &count].concat();
        let mut sum = self.sum.clone();
        sum.update(&end);
        let written = Written {
            length: self.columns + end.len() as u64,
            checksum: sum.digest(),
            inserted: self.keys,
            ones: self.keys,
        };
        let start = format::before(&self.like, &written);
        let wrote = self.file.seek(SeekFrom::Start(start.len() as u64 + self.columns));
        let wrote = wrote.and_then(|_| {
            self.file.write_all(&end)?;
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&start)?;
            self.file.sync_all()
        });
        wrote.map_err(failed("writing", &self.path))?;
        let mut bytes = start;
        if self.is_small() {
            bytes.clear();
            format::write(&super::open(&self.path)?, &mut bytes)?;
        }
        Ok(format::header_checksum(&bytes))
    }

    /// Whether a filter of this length begins elsewhere in a file than on a page, where this one
    /// does.
    fn is_small(&self) -> bool {
        self.payload() < LARGE
    }

    /// Gives a sealed file its name, as [`save`](super::save) does.
    pub fn publish(self, path: impl AsRef<Path>) -> Result<()> {
        if self.is_small() {
            super::save(&super::open(&self.path)?, path)?;
            return fs::remove_file(&self.path).map_err(failed("removing", &self.path));
        }
        let path = path.as_ref();
        let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if let Ok(existing) = fs::metadata(path) {
            let kept = fs::set_permissions(&self.path, existing.permissions());
            kept.map_err(failed("keeping the permissions of", path))?;
        }
        fs::rename(&self.path, path).map_err(failed("replacing", path))?;
        sync_folder(path)
    }
}

/// The checksum of a file's header: two files of which it is the same are the same filter. It is not
/// checked against the file.
pub fn header_checksum(path: impl AsRef<Path>) -> Result<u64> {
    let path = path.as_ref();
    let mut start = [0; 128];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.map_err(failed("reading", path))?;
    Ok(format::header_checksum(&start))
}

/// What stands before the payload: as long as it is going to be.
fn before(like: &Filter) -> Vec<u8> {
    format::before(like, &Written { length: 0, checksum: 0, inserted: 0, ones: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Hasher;
    use crate::{Kind, Plan, file};

    /// A filter of several shards, and its digests.
    fn sample(keys: u64) -> (Filter, Vec<crate::Digest>) {
        let plan = Plan::new(Kind::Ribbon).items(9_000_000).rate(1e-3).build().expect("a plan");
        let hasher = Hasher::default();
        let digests: Vec<_> = (0..keys).map(|key| hasher.digest(key.to_le_bytes())).collect();
        let mut filter = Filter::build(plan, hasher, &digests).expect("it is built");
        filter.set_note("a note").expect("it is short");
        (filter, digests)
    }

    fn parts(filter: &Filter, digests: &[crate::Digest]) -> Vec<Part> {
        let layout = Layout::new(*filter.plan());
        let build = |shard| {
            let range = layout.places(shard);
            // Backwards and twice: neither order nor repetition matters.
            let places = digests.iter().chain(digests).rev().map(|digest| digest.place);
            layout.build(shard, &places.filter(|place| range.contains(place)).collect::<Vec<_>>())
        };
        (0..layout.shards()).map(|shard| build(shard).expect("it is built")).collect()
    }

    #[test]
    fn a_file_written_by_shards_is_the_one_that_is_saved_to_the_byte() {
        // The second is smaller than what begins on a page.
        [1_000_000, 300_000, 0].into_iter().for_each(write_and_compare);
    }

    fn write_and_compare(keys: u64) {
        let (filter, digests) = sample(keys);
        let parts = parts(&filter, &digests);
        assert!(parts.len() >= 4, "of several shards");
        let folder = tempfile::tempdir().expect("a folder");
        let [saved, partial, written] =
            ["saved", "partial", "written"].map(|n| folder.path().join(n));
        file::save(&filter, &saved).expect("it is saved");
        let expected = fs::read(&saved).expect("it is there");
        let like = Filter::build(*filter.plan(), *filter.hasher(), &[]).and_then(|mut like| {
            like.set_note(filter.note())?;
            Ok(like)
        });
        let like = like.expect("it is built");
        for stop in 0..=parts.len() {
            let mut writer = RibbonWriter::create(&partial, &like).expect("it is created");
            let append = |writer: &mut RibbonWriter, part| writer.append(part).expect("appended");
            let kept: Vec<u8> =
                parts[..stop].iter().flat_map(|part| append(&mut writer, part)).collect();
            // What came after the last sync may be anything.
            writer.file.write_all(b"torn").expect("it is written");
            drop(writer);
            let mut writer = RibbonWriter::resume(&partial, &like, &kept).expect("it goes on");
            assert_eq!(writer.shards(), stop as u64);
            parts[stop..].iter().for_each(|part| drop(append(&mut writer, part)));
            assert_eq!(writer.keys(), keys);
            // As often as it is killed before it has its name.
            let sums = [(); 2].map(|()| writer.seal().expect("it is sealed"));
            writer.publish(&written).expect("it gets its name");
            let sum = header_checksum(&written).expect("it is there");
            assert_eq!(sums, [sum, sum]);
            assert!(fs::read(&written).expect("it is there") == expected, "stopped at {stop}");
            assert!(!partial.exists());
        }
    }

    #[test]
    fn what_was_not_kept_whole_is_refused() {
        let (filter, digests) = sample(100_000);
        let parts = parts(&filter, &digests);
        let folder = tempfile::tempdir().expect("a folder");
        let partial = folder.path().join("partial");
        let mut writer = RibbonWriter::create(&partial, &filter).expect("it is created");
        let kept = writer.append(&parts[0]).expect("it is appended");
        let error = writer.seal().expect_err("shards are missing");
        assert!(error.to_string().contains("number of shards"), "{error}");
        let error = RibbonWriter::create(&partial, &filter).err().expect("it is locked");
        assert!(error.to_string().contains("another program"), "{error}");
        drop(writer);
        for end in 1..kept.len() {
            assert!(RibbonWriter::resume(&partial, &filter, &kept[..end]).is_err(), "{end}");
        }
        let mut wide = kept.clone();
        wide[8] = 77;
        assert!(RibbonWriter::resume(&partial, &filter, &wide).is_err());
        let mut bytes = fs::read(&partial).expect("it is there");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&partial, &bytes).expect("it is written");
        let error = RibbonWriter::resume(&partial, &filter, &kept).err().expect("it has changed");
        assert!(error.to_string().contains("checksum of a shard"), "{error}");
        fs::write(&partial, b"short").expect("it is written");
        assert!(RibbonWriter::resume(&partial, &filter, &kept).is_err());
    }
}
