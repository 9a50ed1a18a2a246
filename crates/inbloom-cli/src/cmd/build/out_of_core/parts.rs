//! What a build writes: a filter, or several, in parts of which each has the keys of a range of
//! places.

use std::fs::{self, File, TryLockError};
use std::io::BufWriter;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Error, Result, bail, ensure};
use inbloom::internals::file;
use inbloom::internals::kinds::blocked::{Piece, Pieces};
use inbloom::internals::kinds::ribbon::{Layout, Part, Workspace};
use inbloom::{Digest, Filter, Hasher, Plan};

use super::TooMany;
use crate::cmd::build::Args;
use crate::cmd::build::unfinished::partial;
use crate::output::problem;
use crate::spill::{self, Spill};
use crate::{filter_file, numbers};

/// Parts are built by any thread, and written in order by one. What is kept of those that were
/// written is enough to go on after a kill.
pub trait Parts: std::marker::Sync {
    type Part: Send;
    type Writer;

    /// What they are called, and what was done to them in the end.
    const NAME: &'static str;
    const DONE: &'static str = "built and written";

    /// The plan of all parts together.
    fn plan(&self) -> &Plan;

    fn count(&self) -> u64;

    /// The places of the keys of a part.
    fn places(&self, part: u64) -> RangeInclusive<u64>;

    /// The memory that one takes while it is built, about, without its digests.
    fn memory(&self) -> u64;

    /// The unfinished files.
    fn partials(&self) -> Vec<PathBuf>;

    fn build(&self, part: u64, spill: &Spill) -> Result<Self::Part>;

    /// Whether all of it has its name already, of a build whose state says that it was complete.
    fn is_published(&self, complete: u64) -> Result<bool>;

    /// Begins to write, or goes on after those parts of which this was kept.
    fn writer(&self, kept: &[u8]) -> Result<Self::Writer>;

    /// How many parts are written.
    fn written(&self, writer: &Self::Writer) -> u64;

    /// Writes the next part, and returns what is to be kept of it.
    fn append(&self, writer: &mut Self::Writer, part: Self::Part) -> Result<Vec<u8>>;

    /// How many keys of the parts that were written were new.
    fn inserted(&self, writer: &Self::Writer) -> u64;

    /// Returns what has on disk, when it is called, all that was written before this.
    fn sync(&self, writer: &mut Self::Writer) -> Result<Sync>;

    /// Completes it, and returns what tells it from others.
    fn seal(&self, writer: &mut Self::Writer) -> Result<u64>;

    /// Gives it its name.
    fn publish(&self, writer: Self::Writer) -> Result<()>;
}

/// Has something on disk, on whichever thread calls it.
pub type Sync = Box<dyn FnOnce() -> Result<()> + Send>;

/// One file, which has another name until it is complete.
pub struct OneFile {
    pub path: PathBuf,
    pub partial: PathBuf,
}

impl OneFile {
    fn is_published(&self, complete: u64) -> Result<bool> {
        if self.partial.exists() {
            return Ok(false);
        }
        ensure!(
            file::header_checksum(&self.path).ok() == Some(complete),
            problem(
                format!("{} was complete, but has changed or is gone", self.partial.display()),
                "build again without --resume"
            )
        );
        Ok(true)
    }
}

/// A ribbon filter, in shards.
pub struct Ribbon<'a> {
    pub layout: Layout,
    pub file: OneFile,
    pub like: &'a Filter,
    /// The most bytes that it may have.
    pub most: Option<u64>,
    /// Memory in which shards were built, one for each thread at most: it is used again.
    pub spares: Mutex<Vec<Workspace>>,
}

/// Refuses what is larger than was asked for.
pub fn check_bytes(most: Option<u64>, keys: u64, bytes: u64) -> Result<()> {
    match most {
        Some(allowed) if bytes > allowed => Err(Error::from(problem(
            format!(
                "{} need {} bytes at this rate, and --bytes allows {}",
                numbers::keys(keys),
                numbers::exact(bytes),
                numbers::exact(allowed)
            ),
            "pass a larger --bytes, or leave -n and -p out to let the rate follow",
        ))
        .context(TooMany)),
        _ => Ok(()),
    }
}

impl Parts for Ribbon<'_> {
    type Part = Part;
    type Writer = file::RibbonWriter;

    const NAME: &'static str = "shard";
    const DONE: &'static str = "built, checked and written";

    fn plan(&self) -> &Plan {
        self.like.plan()
    }

    fn count(&self) -> u64 {
        self.layout.shards()
    }

    fn places(&self, part: u64) -> RangeInclusive<u64> {
        self.layout.places(part)
    }

    fn memory(&self) -> u64 {
        50_000_000
    }

    fn partials(&self) -> Vec<PathBuf> {
        vec![self.file.partial.clone()]
    }

    fn build(&self, part: u64, spill: &Spill) -> Result<Part> {
        let mut places = spill.places(&self.layout.places(part))?;
        let spares = || self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        let mut workspace = spares().pop().unwrap_or_default();
        let built = self.layout.build_sorted(part, &mut places, &mut workspace)?;
        spares().push(workspace);
        Ok(built)
    }

    fn is_published(&self, complete: u64) -> Result<bool> {
        self.file.is_published(complete)
    }

    fn writer(&self, kept: &[u8]) -> Result<file::RibbonWriter> {
        Ok(match kept.is_empty() {
            true => file::RibbonWriter::create(&self.file.partial, self.like)?,
            false => file::RibbonWriter::resume(&self.file.partial, self.like, kept)?,
        })
    }

    fn written(&self, writer: &file::RibbonWriter) -> u64 {
        writer.shards()
    }

    fn append(&self, writer: &mut file::RibbonWriter, part: Part) -> Result<Vec<u8>> {
        Ok(writer.append(&part)?)
    }

    fn inserted(&self, writer: &file::RibbonWriter) -> u64 {
        writer.keys()
    }

    fn sync(&self, writer: &mut file::RibbonWriter) -> Result<Sync> {
        let sync = writer.sync()?;
        Ok(Box::new(|| Ok(sync()?)))
    }

    fn seal(&self, writer: &mut file::RibbonWriter) -> Result<u64> {
        check_bytes(self.most, writer.keys(), writer.payload())?;
        Ok(writer.seal()?)
    }

    fn publish(&self, writer: file::RibbonWriter) -> Result<()> {
        Ok(writer.publish(&self.file.path)?)
    }
}

/// A blocked filter, in pieces.
pub struct Blocked<'a> {
    pub plan: Plan,
    pub pieces: Pieces,
    pub file: OneFile,
    /// Of any size: what the file is to say.
    pub like: &'a Filter,
}

impl Parts for Blocked<'_> {
    type Part = Piece;
    type Writer = file::BlockedWriter;

    const NAME: &'static str = "piece";

    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn count(&self) -> u64 {
        self.pieces.count()
    }

    fn places(&self, part: u64) -> RangeInclusive<u64> {
        self.pieces.places(part)
    }

    fn memory(&self) -> u64 {
        self.plan.bytes() / self.count()
    }

    fn partials(&self) -> Vec<PathBuf> {
        vec![self.file.partial.clone()]
    }

    fn build(&self, part: u64, spill: &Spill) -> Result<Piece> {
        let mut piece = self.pieces.empty(part)?;
        for range in spill::divided(self.places(part)) {
            for digest in spill.digests(&range)? {
                piece.insert(digest);
            }
        }
        Ok(piece)
    }

    fn is_published(&self, complete: u64) -> Result<bool> {
        self.file.is_published(complete)
    }

    fn writer(&self, kept: &[u8]) -> Result<file::BlockedWriter> {
        let (partial, plan) = (&self.file.partial, self.plan);
        Ok(match kept.is_empty() {
            true => file::BlockedWriter::create(partial, plan, self.like)?,
            false => file::BlockedWriter::resume(partial, plan, self.like, kept)?,
        })
    }

    fn written(&self, writer: &file::BlockedWriter) -> u64 {
        writer.pieces()
    }

    fn append(&self, writer: &mut file::BlockedWriter, part: Piece) -> Result<Vec<u8>> {
        Ok(writer.append(&part)?)
    }

    fn inserted(&self, writer: &file::BlockedWriter) -> u64 {
        writer.inserted()
    }

    fn sync(&self, writer: &mut file::BlockedWriter) -> Result<Sync> {
        let sync = writer.sync()?;
        Ok(Box::new(|| Ok(sync()?)))
    }

    fn seal(&self, writer: &mut file::BlockedWriter) -> Result<u64> {
        Ok(writer.seal()?)
    }

    fn publish(&self, writer: file::BlockedWriter) -> Result<()> {
        Ok(writer.publish(&self.file.path)?)
    }
}

/// Shards of any kind, each a file by itself.
pub struct Shards<'a> {
    /// Of all shards together.
    pub plan: Plan,
    pub shards: u32,
    pub stem: PathBuf,
    pub hasher: Hasher,
    pub args: &'a Args,
}

impl Shards<'_> {
    fn path(&self, shard: u64) -> PathBuf {
        file::shard_path(&self.stem, shard as u32, self.shards)
    }

    /// Where a shard is: it has its own name, or that of an unfinished file.
    fn where_is(&self, shard: u64) -> PathBuf {
        let path = self.path(shard);
        let partial = partial(&path);
        if partial.exists() { partial } else { path }
    }

    /// Checks that a shard is there as it was kept, under one of its two names.
    fn check(&self, shard: u64, sum: u64) -> Result<()> {
        let there = self.where_is(shard);
        ensure!(
            file::header_checksum(&there).ok() == Some(sum),
            problem(
                format!("{} is not the shard that was built", there.display()),
                "build again without --resume"
            )
        );
        filter_file::verify(&there)
    }
}

/// The shards that are written.
pub struct Written {
    /// The first one, locked: two builds of the same shards would mix them.
    lock: File,
    /// The checksums of their headers.
    sums: Vec<u64>,
    /// Their new keys.
    inserted: u64,
}

impl Parts for Shards<'_> {
    type Part = Filter;
    type Writer = Written;

    const NAME: &'static str = "shard";

    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn count(&self) -> u64 {
        self.shards.into()
    }

    fn places(&self, part: u64) -> RangeInclusive<u64> {
        Digest::places(part, self.count())
    }

    fn memory(&self) -> u64 {
        self.plan.bytes() / self.count()
    }

    fn partials(&self) -> Vec<PathBuf> {
        (0..self.count()).map(|shard| partial(&self.path(shard))).collect()
    }

    fn build(&self, part: u64, spill: &Spill) -> Result<Filter> {
        let plan = self.plan.for_shard(part as u32, self.shards)?;
        let mut filter = Filter::with_hasher(plan, self.hasher)?;
        let mut new = Vec::new();
        for range in spill::divided(self.places(part)) {
            filter_file::insert_set(&mut filter, &spill.digests(&range)?, &mut new)?;
        }
        self.args.describe(&mut filter)?;
        Ok(filter)
    }

    fn is_published(&self, _complete: u64) -> Result<bool> {
        Ok(false) // Some may be, and others not.
    }

    fn writer(&self, kept: &[u8]) -> Result<Written> {
        let (kept, _) = kept.as_chunks();
        let sums: Vec<u64> = kept.iter().map(|sum| u64::from_le_bytes(*sum)).collect();
        let first = match sums.is_empty() {
            true => partial(&self.path(0)),
            false => self.where_is(0),
        };
        let lock = file::create_without_links(&first);
        let lock = lock.with_context(|| format!("cannot open {}", first.display()))?;
        // Where files cannot be locked, as on some network drives, care has to do.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            bail!(problem(
                format!("another program is writing {}", first.display()),
                "wait for it to end, or choose another name for -o"
            ));
        }
        let mut inserted = 0;
        for (shard, sum) in (0..).zip(&sums) {
            self.check(shard, *sum)?;
            inserted += filter_file::open(&self.where_is(shard), self.hasher.key())?.inserted();
        }
        Ok(Written { lock, sums, inserted })
    }

    fn written(&self, written: &Written) -> u64 {
        written.sums.len() as u64
    }

    fn append(&self, written: &mut Written, filter: Filter) -> Result<Vec<u8>> {
        let partial = partial(&self.path(self.written(written)));
        let failed = || format!("cannot write {}", partial.display());
        let other;
        let file = match written.sums.is_empty() {
            true => &written.lock,
            false => {
                other = file::create_without_links(&partial).with_context(failed)?;
                &other
            }
        };
        file.set_len(0).with_context(failed)?;
        filter.write_to(BufWriter::with_capacity(1 << 20, file)).with_context(failed)?;
        file.sync_all().with_context(failed)?;
        let sum = file::header_checksum(&partial)?;
        written.sums.push(sum);
        written.inserted += filter.inserted();
        Ok(sum.to_le_bytes().to_vec())
    }

    fn inserted(&self, written: &Written) -> u64 {
        written.inserted
    }

    /// Each is on disk when it is appended; its name is once the folder is.
    fn sync(&self, _written: &mut Written) -> Result<Sync> {
        let folder = filter_file::folder_of(&self.path(0));
        Ok(Box::new(move || {
            let synced = File::open(&folder).and_then(|folder| folder.sync_all());
            synced.with_context(|| format!("cannot sync {}", folder.display()))
        }))
    }

    fn seal(&self, written: &mut Written) -> Result<u64> {
        self.sync(written)?()?;
        Ok(0) // There is no one file of which it could be the checksum.
    }

    /// The first last: it is locked until all have their names. Where shards are replaced, it goes
    /// before: a set of old and new ones must not be taken for one filter, however long it stays so.
    fn publish(&self, written: Written) -> Result<()> {
        let first = self.path(0);
        if self.shards > 1 && first.exists() && self.where_is(0) != first {
            fs::remove_file(&first)
                .with_context(|| format!("cannot replace {}", first.display()))?;
        }
        for (shard, sum) in written.sums.iter().enumerate().rev() {
            let (path, there) = (self.path(shard as u64), self.where_is(shard as u64));
            ensure!(
                file::header_checksum(&there).ok() == Some(*sum),
                problem(
                    format!("{} was changed by another program during the build", there.display()),
                    "build it again"
                )
            );
            if there != path {
                file::rename(there, path)?;
            }
        }
        Ok(())
    }
}
