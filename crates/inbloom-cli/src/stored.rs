//! A filter that is only read, as it is kept: in one file, or in shards that answer as one.
//!
//! What `check`, `info` and `measure` need of both, so that none of them has to know which it is.
//! Which files a name on the command line stands for is up to [`filter_file::files_of`].

use std::path::{Path, PathBuf};
use std::slice;

use anyhow::{Context, Result, ensure};
use inbloom::{Digest, Estimate, Filter, Plan, SecretKey, Sharded};

use crate::filter_file::{self, KeyArgs};

#[expect(clippy::large_enum_variant, reason = "there are as many as a command line names")]
pub enum Stored {
    File(Filter),
    /// All of them have the hash of the first and its normalization.
    Shards(Sharded),
}

impl Stored {
    /// Opens a filter as it was saved.
    pub fn open(path: &Path, key: &KeyArgs) -> Result<Stored> {
        Stored::open_keyed(path, key.key()?.as_ref())
    }

    /// The same, where the key was read already: it may have come from a pipe.
    pub fn open_keyed(path: &Path, key: Option<&SecretKey>) -> Result<Stored> {
        Stored::open_by(filter_file::open, path, key)
    }

    /// Opens a filter to query it: what a window of time has forgotten by now is not in it any
    /// more.
    pub fn open_now(path: &Path, key: &KeyArgs) -> Result<Stored> {
        // Read once for all shards, and for both times that they are opened: a key may come from a
        // pipe.
        let key = key.key()?;
        let stored = Stored::open_by(filter_file::open, path, key.as_ref())?;
        if !filter_file::has_clock(&stored.plan()) {
            return Ok(stored);
        }
        // To forget is a change, which is made in memory; the files stay as they are.
        let mut stored = Stored::open_by(filter_file::open_mut, path, key.as_ref())?;
        match &mut stored {
            Stored::File(filter) => filter_file::advance(filter)?,
            Stored::Shards(sharded) => sharded.advance(filter_file::now())?,
        }
        Ok(stored)
    }

    /// Shards are opened here and not by the library, so that of a damaged one the file is named.
    fn open_by(
        open: fn(&Path, Option<&SecretKey>) -> Result<Filter>,
        path: &Path,
        key: Option<&SecretKey>,
    ) -> Result<Stored> {
        let files = filter_file::files_of(path);
        if files == [path] {
            return Ok(Stored::File(open(path, key)?));
        }
        let open = |file: &PathBuf| open(file, key);
        let shards = files.iter().map(open).collect::<Result<Vec<Filter>>>()?;
        check_normalization(&files, &shards)?;
        let sharded = Sharded::from_shards(shards);
        let stem = || filter_file::stem_of(path).display().to_string();
        Ok(Stored::Shards(sharded.with_context(stem)?))
    }

    /// The filter, or its shards.
    pub fn parts(&self) -> &[Filter] {
        match self {
            Stored::File(filter) => slice::from_ref(filter),
            Stored::Shards(sharded) => sharded.shards(),
        }
    }

    /// The filter, or its first shard: for the hash and the normalization, which all shards share,
    /// and for the texts and options, of which one has to stand for all.
    pub fn first(&self) -> &Filter {
        &self.parts()[0] // shards are never none
    }

    /// How many shards there are; None if it is in one file.
    pub fn shards(&self) -> Option<usize> {
        match self {
            Stored::File(_) => None,
            Stored::Shards(sharded) => Some(sharded.shards().len()),
        }
    }

    /// Of shards, the plan of all together.
    pub fn plan(&self) -> Plan {
        match self {
            Stored::File(filter) => *filter.plan(),
            Stored::Shards(sharded) => sharded.whole_plan(),
        }
    }

    pub fn contains_digests(&self, digests: &[Digest], found: &mut Vec<bool>) {
        match self {
            Stored::File(filter) => filter.contains_digests(digests, found),
            Stored::Shards(sharded) => sharded.contains_digests(digests, found),
        }
    }

    /// The same answers, by one pass over a file that is larger than memory. Only a ribbon gains by
    /// it, of which there are no shards.
    pub fn sweep_digests(&self, digests: &[Digest], found: &mut Vec<bool>) {
        match self {
            Stored::File(filter) => filter.sweep_digests(digests, found),
            Stored::Shards(sharded) => sharded.contains_digests(digests, found),
        }
    }

    pub fn inserted(&self) -> u64 {
        match self {
            Stored::File(filter) => filter.inserted(),
            Stored::Shards(sharded) => sharded.inserted(),
        }
    }

    pub fn estimated_items(&self) -> Estimate {
        match self {
            Stored::File(filter) => filter.estimated_items(),
            Stored::Shards(sharded) => sharded.estimated_items(),
        }
    }

    pub fn occupied(&self) -> u64 {
        match self {
            Stored::File(filter) => filter.occupied(),
            Stored::Shards(sharded) => sharded.occupied(),
        }
    }

    pub fn fill(&self) -> f64 {
        match self {
            Stored::File(filter) => filter.fill(),
            Stored::Shards(sharded) => sharded.fill(),
        }
    }

    pub fn rate(&self) -> f64 {
        match self {
            Stored::File(filter) => filter.rate(),
            Stored::Shards(sharded) => sharded.rate(),
        }
    }

    pub fn bytes(&self) -> u64 {
        match self {
            Stored::File(filter) => filter.bytes(),
            Stored::Shards(sharded) => sharded.bytes(),
        }
    }

    /// The bytes that were planned. Of shards the sum: each is rounded up for itself.
    pub fn planned_bytes(&self) -> u64 {
        self.parts().iter().map(|part| part.plan().bytes()).sum()
    }

    /// Whether the current rate is above the promise by more than chance, on the whole.
    pub fn exceeds_promise(&self) -> bool {
        filter_file::is_beyond_chance(&self.plan(), self.rate(), self.estimated_items())
    }
}

/// A line is looked up in one form only, that of the first shard: keys that another shard has in
/// another form would be missed. The library leaves what texts mean to us.
fn check_normalization(files: &[PathBuf], shards: &[Filter]) -> Result<()> {
    let (first, expected) = (files[0].display(), shards[0].normalization());
    for (file, shard) in files.iter().zip(shards) {
        let (file, got) = (file.display(), shard.normalization());
        ensure!(
            got == expected,
            "{first} and {file} are not shards of one filter: they differ in the normalization of \
             keys, {expected:?} in {first} and {got:?} in {file}; build all shards with the same"
        );
    }
    Ok(())
}
