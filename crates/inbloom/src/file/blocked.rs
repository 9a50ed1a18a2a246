//! A blocked filter's file, written piece by piece: one that is larger than memory never is in it.

use std::fmt;
use std::path::Path;

use super::payload::{Kept, Payload};
use crate::error::Result;
use crate::error::mismatch;
use crate::filter::Filter;
use crate::kinds::blocked::{Piece, Pieces};
use crate::plan::Plan;

/// Writes a filter of kind blocked, one piece after the other, into a file that gets its name only
/// when it is complete. The file is locked meanwhile.
///
/// ```
/// use inbloom::internals::kinds::blocked::Pieces;
/// use inbloom::internals::file;
/// use inbloom::{Filter, Kind, Plan};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("seen.ib");
/// # let partial = folder.path().join("seen.ib.partial");
/// let plan = Plan::builder(Kind::Blocked).items(5_000_000).rate(1e-3).build()?;
/// let mut like = Filter::new(Plan::builder(Kind::Blocked).items(1).build()?)?;
/// like.set_note("no keys yet")?;
/// let mut writer = file::BlockedWriter::create(&partial, plan, &like)?;
/// let pieces = Pieces::new(plan);
/// for piece in 0..pieces.count() {
///     writer.append(&pieces.empty(piece)?)?;
/// }
/// writer.seal()?;
/// writer.publish(&path)?;
/// assert_eq!(Filter::open(&path)?.note(), "no keys yet");
/// # Ok::<(), inbloom::Error>(())
/// ```
pub struct BlockedWriter {
    payload: Payload,
    pieces: u64,
    inserted: u64,
    ones: u64,
}

impl fmt::Debug for BlockedWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockedWriter")
            .field("pieces", &self.pieces)
            .field("inserted", &self.inserted)
            .finish_non_exhaustive()
    }
}

/// Bytes that are kept of a piece: what was inserted, the set bits, the length and the checksum.
const KEPT: usize = 32;

impl BlockedWriter {
    /// Begins a file of this plan, over whatever is at this path. Hash, note, normalization and
    /// auto-clear are those of `like`, whose own plan and keys do not matter.
    pub fn create(path: impl AsRef<Path>, plan: Plan, like: &Filter) -> Result<BlockedWriter> {
        let payload = Payload::create(path.as_ref(), plan, like)?;
        Ok(BlockedWriter { payload, pieces: 0, inserted: 0, ones: 0 })
    }

    /// Goes on with a file that was begun so: with what [`append`] has returned for its first
    /// pieces, one after the other, after which [`sync`] was called. What was written behind them
    /// is dropped. They are read again, and must be what was appended.
    ///
    /// [`append`]: BlockedWriter::append
    /// [`sync`]: BlockedWriter::sync
    pub fn resume(
        path: impl AsRef<Path>,
        plan: Plan,
        like: &Filter,
        kept: &[u8],
    ) -> Result<BlockedWriter> {
        let (kept, rest) = kept.as_chunks::<KEPT>();
        if !rest.is_empty() {
            return Err(mismatch("state of the unfinished file", "whole records", "a part of one"));
        }
        let number = |kept: &[u8; KEPT], at: usize| {
            u64::from_le_bytes(*kept[at * 8..].first_chunk().expect("it has four numbers"))
        };
        let parts = kept.iter().map(|kept| Kept { length: number(kept, 2), sum: number(kept, 3) });
        let parts: Vec<Kept> = parts.collect();
        Ok(BlockedWriter {
            payload: Payload::resume(path.as_ref(), plan, like, &parts)?,
            pieces: kept.len() as u64,
            inserted: kept.iter().map(|kept| number(kept, 0)).sum(),
            ones: kept.iter().map(|kept| number(kept, 1)).sum(),
        })
    }

    /// Pieces that were appended so far.
    #[must_use]
    pub fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Keys of the pieces that were appended so far, of which each was new.
    #[must_use]
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// Appends the next piece, and returns what has to be kept of it to go on after a crash.
    pub fn append(&mut self, piece: &Piece) -> Result<Vec<u8>> {
        let sum = self.payload.append(piece.bytes())?;
        let (inserted, ones) = (piece.inserted(), piece.occupied());
        self.pieces += 1;
        self.inserted += inserted;
        self.ones += ones;
        let kept = [inserted, ones, piece.bytes().len() as u64, sum];
        Ok(kept.into_iter().flat_map(u64::to_le_bytes).collect())
    }

    /// Returns what has on disk, when it is called, all that was appended before this. Pieces may be
    /// appended meanwhile, on another thread.
    pub fn sync(&mut self) -> Result<impl FnOnce() -> Result<()> + Send + 'static> {
        self.payload.sync()
    }

    /// Completes the file under the name that it has, and has it on disk. Returns what
    /// [`header_checksum`](super::place::header_checksum) is going to say of it when it is published.
    ///
    /// Fails if there are not all pieces of the plan.
    pub fn seal(&mut self) -> Result<u64> {
        let (expected, plan) = (self.payload.plan().bytes(), *self.payload.plan());
        if (self.pieces, self.payload.length()) != (Pieces::new(plan).count(), expected) {
            return Err(mismatch("length of the payload", expected, self.payload.length()));
        }
        self.payload.seal(&[], self.inserted, self.ones)
    }

    /// Gives a sealed file its name, as [`Filter::save`](crate::Filter::save) does.
    pub fn publish(self, path: impl AsRef<Path>) -> Result<()> {
        self.payload.publish(path.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::digest::{Hasher, SecretKey};
    use crate::{Digest, Kind, file};

    /// Returns a filter of several pieces, and its digests in the order of their places.
    fn sample(items: u64, keys: u64, rate: f64, hasher: Hasher) -> (Filter, Vec<Digest>) {
        let plan = Plan::builder(Kind::Blocked).items(items).rate(rate).build().expect("a plan");
        let mut digests: Vec<_> = (0..keys).map(|key| hasher.digest(key.to_le_bytes())).collect();
        digests.sort_unstable_by_key(|digest| digest.place);
        let mut filter = Filter::with_hasher(plan, hasher).expect("memory");
        filter.insert_digests(&digests, &mut Vec::new()).expect("writable");
        filter.set_note("a note").expect("it is short");
        filter.set_auto_clear(Some(0.75)).expect("a share");
        (filter, digests)
    }

    fn like(filter: &Filter) -> Filter {
        let small = Plan::builder(Kind::Blocked).items(1).build().expect("a plan");
        let mut like = Filter::with_hasher(small, *filter.hasher()).expect("memory");
        like.set_note(filter.note()).expect("it is short");
        like.set_auto_clear(filter.auto_clear()).expect("a share");
        like
    }

    fn pieces(filter: &Filter, digests: &[Digest]) -> Vec<Piece> {
        let pieces = Pieces::new(*filter.plan());
        let fill = |number| {
            let (mut piece, range) = (pieces.empty(number).expect("memory"), pieces.places(number));
            for digest in digests.iter().filter(|digest| range.contains(&digest.place)) {
                piece.insert(*digest);
            }
            piece
        };
        (0..pieces.count()).map(fill).collect()
    }

    #[test]
    fn a_file_written_by_pieces_is_the_one_that_is_saved_to_the_byte() {
        let secret = Hasher::sip13(SecretKey::new(*b"sixteen secrets!"));
        for (items, keys, rate, hasher) in [
            (10_000_000, 100_000, 1e-3, Hasher::default()),
            (5_000_000, 100_000, 1e-6, secret), // of two lines
            (1000, 1000, 1e-3, secret),         // smaller than what begins on a page
            (1, 0, 0.1, Hasher::default()),
        ] {
            let (filter, digests) = sample(items, keys, rate, hasher);
            let (pieces, like) = (pieces(&filter, &digests), like(&filter));
            let folder = tempfile::tempdir().expect("a folder");
            let [saved, partial, written] =
                ["saved", "partial", "written"].map(|name| folder.path().join(name));
            filter.save(&saved).expect("it is saved");
            let expected = fs::read(&saved).expect("it is there");
            for stop in 0..=pieces.len() {
                let plan = *filter.plan();
                let mut writer = BlockedWriter::create(&partial, plan, &like).expect("created");
                let append =
                    |writer: &mut BlockedWriter, piece| writer.append(piece).expect("appended");
                let kept: Vec<u8> =
                    pieces[..stop].iter().flat_map(|piece| append(&mut writer, piece)).collect();
                writer.sync().and_then(|sync| sync()).expect("it is on disk");
                drop(writer);
                let mut writer =
                    BlockedWriter::resume(&partial, plan, &like, &kept).expect("it goes on");
                assert_eq!(writer.pieces(), stop as u64);
                pieces[stop..].iter().for_each(|piece| drop(append(&mut writer, piece)));
                let sum = writer.seal().expect("it is sealed");
                writer.publish(&written).expect("it gets its name");
                assert_eq!(file::place::header_checksum(&written).expect("it is there"), sum);
                assert!(fs::read(&written).expect("it is there") == expected, "stopped at {stop}");
                assert!(!partial.exists());
            }
        }
    }

    #[test]
    fn what_was_not_kept_whole_is_refused() {
        let (filter, digests) = sample(5_000_000, 10_000, 1e-3, Hasher::default());
        let (pieces, like, plan) = (pieces(&filter, &digests), like(&filter), *filter.plan());
        let folder = tempfile::tempdir().expect("a folder");
        let partial = folder.path().join("partial");
        let mut writer = BlockedWriter::create(&partial, plan, &like).expect("it is created");
        let kept = writer.append(&pieces[0]).expect("it is appended");
        let error = writer.seal().expect_err("pieces are missing");
        assert!(error.to_string().contains("length of the payload"), "{error}");
        let error = BlockedWriter::create(&partial, plan, &like).expect_err("it is locked");
        assert!(error.to_string().contains("another program"), "{error}");
        writer.sync().and_then(|sync| sync()).expect("it is on disk");
        drop(writer);
        for end in 1..kept.len() {
            assert!(BlockedWriter::resume(&partial, plan, &like, &kept[..end]).is_err(), "{end}");
        }
        let mut bytes = fs::read(&partial).expect("it is there");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&partial, &bytes).expect("it is written");
        let error = BlockedWriter::resume(&partial, plan, &like, &kept).expect_err("changed");
        assert!(error.to_string().contains("checksum of a part"), "{error}");
        fs::write(&partial, b"short").expect("it is written");
        assert!(BlockedWriter::resume(&partial, plan, &like, &kept).is_err());
    }
}
