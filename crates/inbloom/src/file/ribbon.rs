//! A ribbon filter's file, written shard by shard: one that is larger than memory never is in it.

use std::fmt;
use std::path::Path;

use super::payload::{Kept, Payload};
use crate::error::Result;
use crate::error::mismatch;
use crate::filter::Filter;
use crate::kinds::ribbon::plan::{ENTRY, TAIL};
use crate::kinds::ribbon::{Layout, Part, PartLengths};

/// Writes a filter of kind ribbon, one shard after the other, into a file that gets its name only
/// when it is complete.
///
/// Columns go to the file as they come. Thresholds and the directory, a 900th of it, are kept until
/// the end, and are all that has to be kept apart to go on after a crash: see
/// [`RibbonWriter::resume`]. The file is locked meanwhile.
///
/// ```
/// use inbloom::internals::{file, kinds::ribbon::Layout};
/// use inbloom::{Filter, Hasher, Kind, Plan};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("blacklist.ib");
/// # let partial = folder.path().join("blacklist.ib.partial");
/// let plan = Plan::builder(Kind::Ribbon).items(5_000_000).rate(1e-4).build()?;
/// let mut like = Filter::build(plan, Hasher::default(), &[])?;
/// like.set_note("no keys yet")?;
/// let mut writer = file::RibbonWriter::create(&partial, &like)?;
/// let layout = Layout::new(plan);
/// for shard in 0..layout.shards() {
///     writer.append(&layout.build(shard, &[])?)?;
/// }
/// writer.seal()?;
/// writer.publish(&path)?;
/// assert_eq!(Filter::open(&path)?.note(), "no keys yet");
/// # Ok::<(), inbloom::Error>(())
/// ```
pub struct RibbonWriter {
    payload: Payload,
    thresholds: Vec<u8>,
    directory: Vec<u8>,
    keys: u64,
}

impl fmt::Debug for RibbonWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RibbonWriter").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl RibbonWriter {
    /// Begins a file, over whatever is at this path. Plan, hash, note and normalization are those
    /// of `like`, a filter of kind ribbon, whose keys do not matter.
    pub fn create(path: impl AsRef<Path>, like: &Filter) -> Result<RibbonWriter> {
        Ok(RibbonWriter::new(Payload::create(path.as_ref(), *like.plan(), like)?))
    }

    fn new(payload: Payload) -> RibbonWriter {
        RibbonWriter { payload, thresholds: Vec::new(), directory: Vec::new(), keys: 0 }
    }

    /// Goes on with a file that was begun with a filter like this one: with what [`append`] has
    /// returned for its first shards, one after the other, after which [`sync`] was called. What
    /// was written behind them is dropped. Their columns are read again, and must be what was
    /// appended.
    ///
    /// [`append`]: RibbonWriter::append
    /// [`sync`]: RibbonWriter::sync
    pub fn resume(path: impl AsRef<Path>, like: &Filter, mut kept: &[u8]) -> Result<RibbonWriter> {
        let (mut shards, mut entries) = (Vec::new(), Vec::new());
        while !kept.is_empty() {
            let cut = || mismatch("state of the unfinished file", "whole records", "a part of one");
            let (entry, rest) = kept.split_first_chunk().ok_or_else(cut)?;
            let (sum, rest) = rest.split_first_chunk().ok_or_else(cut)?;
            let lengths = PartLengths::of(entry, like.plan())?;
            let thresholds = usize::try_from(lengths.thresholds).ok();
            let split = thresholds.and_then(|length| rest.split_at_checked(length));
            let (thresholds, rest) = split.ok_or_else(cut)?;
            shards.push(Kept { length: lengths.columns, sum: u64::from_le_bytes(*sum) });
            entries.push((entry, thresholds, lengths));
            kept = rest;
        }
        let payload = Payload::resume(path.as_ref(), *like.plan(), like, &shards)?;
        let mut writer = RibbonWriter::new(payload);
        for (entry, thresholds, lengths) in entries {
            writer.keep(entry, thresholds, &lengths);
        }
        Ok(writer)
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
        self.payload.length() + (self.thresholds.len() + self.directory.len()) as u64 + TAIL
    }

    /// Appends the next shard, and returns what has to be kept of it to go on after a crash.
    pub fn append(&mut self, part: &Part) -> Result<Vec<u8>> {
        let entry = part.entry().first_chunk().expect("an entry is as long");
        let sum = self.payload.append(part.columns())?.to_le_bytes();
        self.keep(entry, part.thresholds(), &PartLengths::of(entry, self.payload.plan())?);
        Ok([part.entry(), &sum, part.thresholds()].concat())
    }

    fn keep(&mut self, entry: &[u8; ENTRY as usize], thresholds: &[u8], lengths: &PartLengths) {
        self.thresholds.extend_from_slice(thresholds);
        self.directory.extend_from_slice(entry);
        self.keys += lengths.keys;
    }

    /// Returns what has on disk, when it is called, all that was appended before this. Shards may be
    /// appended meanwhile, on another thread.
    pub fn sync(&mut self) -> Result<impl FnOnce() -> Result<()> + Send + 'static> {
        self.payload.sync()
    }

    /// Completes the file under the name that it has, and has it on disk. Returns what
    /// [`header_checksum`](super::place::header_checksum) is going to say of it when it is published.
    ///
    /// Fails if there are not as many shards as the plan has.
    pub fn seal(&mut self) -> Result<u64> {
        let expected = Layout::new(*self.payload.plan()).shards();
        if self.shards() != expected {
            return Err(mismatch("number of shards of the ribbon", expected, self.shards()));
        }
        let count = expected.to_le_bytes();
        let end = [self.thresholds.as_slice(), &self.directory, &count].concat();
        self.payload.seal(&end, self.keys, self.keys)
    }

    /// Gives a sealed file its name, as [`Filter::save`](crate::Filter::save) does.
    pub fn publish(self, path: impl AsRef<Path>) -> Result<()> {
        self.payload.publish(path.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;
    use crate::digest::Hasher;
    use crate::{Kind, Plan, file};

    /// Returns a filter of several shards, and its digests.
    fn sample(keys: u64) -> (Filter, Vec<crate::Digest>) {
        let plan = Plan::builder(Kind::Ribbon).items(9_000_000).rate(1e-3).build().expect("a plan");
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
        filter.save(&saved).expect("it is saved");
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
            writer.sync().and_then(|sync| sync()).expect("it is on disk");
            drop(writer);
            let torn = fs::File::options().append(true).open(&partial);
            torn.and_then(|mut file| file.write_all(b"torn")).expect("it is written");
            let mut writer = RibbonWriter::resume(&partial, &like, &kept).expect("it goes on");
            assert_eq!(writer.shards(), stop as u64);
            parts[stop..].iter().for_each(|part| drop(append(&mut writer, part)));
            assert_eq!(writer.keys(), keys);
            // As often as it is killed before it has its name.
            let sums = [(); 2].map(|()| writer.seal().expect("it is sealed"));
            writer.publish(&written).expect("it gets its name");
            let sum = file::place::header_checksum(&written).expect("it is there");
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
        let error = RibbonWriter::create(&partial, &filter).expect_err("it is locked");
        assert!(error.to_string().contains("another program"), "{error}");
        writer.sync().and_then(|sync| sync()).expect("it is on disk");
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
        let error = RibbonWriter::resume(&partial, &filter, &kept).expect_err("it has changed");
        assert!(error.to_string().contains("checksum of a part"), "{error}");
        fs::write(&partial, b"short").expect("it is written");
        assert!(RibbonWriter::resume(&partial, &filter, &kept).is_err());
    }
}
