//! Filters in files: mapped to query, replaced as a whole to save.

pub(crate) mod blocked;
mod options;
mod payload;
mod pieces;
pub(crate) mod place;
pub(crate) mod ribbon;
pub(crate) mod shared;
mod watch;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use memmap2::{Mmap, MmapOptions};

use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::format::{self, Parsed};
use crate::interop::{Container, Format};
use crate::plan::MAX_SHARDS;
use crate::storage::Cells;

use pieces::PieceWriter;
use place::{destination, sync_folder};

pub use options::{OpenOptions, split_part};
pub use watch::Watch;

impl Filter {
    /// Opens a file to query it, without a secret key. [`OpenOptions`] has more choices.
    ///
    /// The file is mapped, not read. The filter is read-only: it refuses inserts, unless it is
    /// opened with [`OpenOptions::writable`]. ([`BloomFilter::open`](crate::BloomFilter::open) is
    /// always writable.) The call checks the header and not the payload: see
    /// [`OpenOptions::verify`].
    ///
    /// If another program truncates the file while it is open, the next query of a missing page
    /// ends the process by SIGBUS. Where that may happen, use [`OpenOptions::open_watched`] (on
    /// Linux), or read the file into memory: `Filter::read_from(File::open(path)?)`.
    /// [`Filter::save`] never truncates a file.
    ///
    /// A damaged or forged file gives an error or wrong results, but no panic and no access outside
    /// of the file. [`Filter::read_from`] shows how to limit and check untrusted files.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or is not a filter.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::{Filter, Kind, Plan};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("seen.ib");
    /// let mut filter = Filter::new(Plan::builder(Kind::Blocked).items(1000).build()?)?;
    /// filter.insert("alice")?;
    /// filter.save(&path)?;
    ///
    /// let filter = Filter::open(&path)?;
    /// assert!(filter.contains("alice"));
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Filter> {
        OpenOptions::new().open(path)
    }

    /// Saves the filter: writes a temporary file beside `path`, syncs it, and renames it over
    /// `path`.
    ///
    /// Whatever happens, `path` is the old file or the new one, never half of it. An existing
    /// file's permissions are kept. A symbolic link is followed and stays a link.
    ///
    /// A filter in the format of another program is written in that format.
    /// [`Filter::set_container`] chooses another one.
    ///
    /// On Linux the temporary file has no name until it is complete, so a kill leaves nothing
    /// behind. Elsewhere, and on file systems that cannot do that, it is called `.inbloom-*.tmp`.
    ///
    /// A filter in shards is saved in one file per shard: with the path `seen.ib` or `seen`, in
    /// `seen.000-of-016.ib` and so on. Each file is the old one or the new one. After an error some
    /// shards may be new and some old.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Io`] if a file cannot be written. Refuses to save shards if there is a
    /// file at `path` itself, because that file would be opened in their place.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let [_, _, ..] = self.shards() else { return save_one(self, path) };
        if path.try_exists().map_err(failed("cannot open", path))? {
            let in_the_way = io::ErrorKind::AlreadyExists.into();
            return Err(failed("cannot save shards beside", path)(in_the_way));
        }
        let (stem, count) = (stem_of(path), self.shards().len() as u32);
        let mut shards = (0..count).zip(self.shards());
        shards.try_for_each(|(shard, filter)| save_one(filter, &shard_path(&stem, shard, count)))
    }
}

/// Returns the format of another program, if the bytes of a file are in one.
fn foreign_format(bytes: &[u8]) -> Result<Option<Container>> {
    if bytes.starts_with(&format::MAGIC) {
        return Ok(None);
    }
    Ok(Format::recognize(bytes)?.map(Container::from))
}

/// Checks every byte of a file: the header, the checksum of every section, and what the kind
/// requires of its payload. Formats of other programs have no checksums. For them it checks that
/// they can be read.
///
/// # Errors
///
/// Fails if the file cannot be read, or is damaged. The error names what is wrong.
pub fn verify(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    if split_part(path).is_some() {
        return OpenOptions::new().open(path).map(drop);
    }
    match map(&open_file(path)?, path)? {
        Some(map) => match foreign_format(&map)? {
            Some(container) => container.read(&map).map(drop),
            None => format::verify(&map),
        },
        None => format::verify(&[]),
    }
}

fn save_one(filter: &Filter, path: &Path) -> Result<()> {
    let path = &destination(path).map_err(failed("cannot follow the link", path))?;
    let failed = |action| failed(action, path);
    let folder = folder_of(path);
    if let Some(unnamed) = place::Unnamed::new(folder) {
        write_synced(filter, &unnamed.file, path)?;
        // Where it cannot be named after all, it is written again.
        if let Ok(temporary) = unnamed.name(folder) {
            temporary.persist(path).map_err(|error| failed("cannot replace")(error.error))?;
            return sync_folder(path);
        }
    }
    let temporary = place::named(folder).map_err(failed("cannot create a temporary file for"))?;
    write_synced(filter, temporary.as_file(), path)?;
    temporary.persist(path).map_err(|error| failed("cannot replace")(error.error))?;
    sync_folder(path)
}

/// Writes a filter that will be at this path into a file, and syncs it to disk.
fn write_synced(filter: &Filter, file: &File, path: &Path) -> Result<()> {
    if let Ok(existing) = fs::metadata(path) {
        let kept = file.set_permissions(existing.permissions());
        kept.map_err(failed("cannot keep the permissions of", path))?;
    }
    let mut pieces = PieceWriter::new(file);
    let written = match filter.container() {
        None => filter.write_to(&mut pieces),
        Some(container) => filter.write_as(container, &mut pieces),
    };
    written.map_err(|error| match error {
        Error::Io { cause, .. } => failed("cannot write", path)(cause),
        other => other,
    })?;
    pieces.flush().map_err(failed("cannot write", path))?;
    file.sync_all().map_err(failed("cannot sync", path))
}

/// Returns the file of one shard, from 0: `seen.003-of-016.ib` for shard 3 of 16 of the stem
/// `seen`.
#[must_use]
pub fn shard_path(stem: impl AsRef<Path>, shard: u32, shards: u32) -> PathBuf {
    let mut path = stem.as_ref().as_os_str().to_owned();
    path.push(format!(".{shard:03}-of-{shards:03}.ib"));
    path.into()
}

/// Returns the existing files of a stem's shards, by their names, in order: all, some or none.
///
/// # Errors
///
/// Fails if the folder cannot be read.
pub fn shard_paths(stem: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let stem = stem.as_ref();
    let mut found = shards_of(stem)?;
    found.sort_unstable();
    Ok(found.into_iter().map(|(count, shard)| shard_path(stem, shard, count)).collect())
}

/// Returns the beginning of the names of a filter's shards: `seen` for `seen.ib`, and for `seen`
/// itself.
#[must_use]
pub fn stem_of(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    match path.extension() {
        Some(extension) if extension == "ib" => path.with_extension(""),
        _ => path.to_owned(),
    }
}

/// Returns the files of all shards of a stem, in order. Fails if one is missing from those that
/// were found.
fn all_shards(stem: &Path, mut found: Vec<(u32, u32)>) -> Result<Vec<PathBuf>> {
    found.sort_unstable();
    let (count, _) = found[0];
    if let Some((other, _)) = found.iter().find(|(other, _)| *other != count) {
        let (left, right) = (count.to_string(), other.to_string());
        return Err(Error::Mismatch { field: "number of shards", left, right });
    }
    let there = |shard: &u32| found.binary_search(&(count, *shard)).is_ok();
    let missing: Vec<u32> = (0..count).filter(|shard| !there(shard)).collect();
    if !missing.is_empty() {
        return Err(Error::Shards { shards: count, missing, twice: Vec::new() });
    }
    Ok(found.iter().map(|(count, shard)| shard_path(stem, *shard, *count)).collect())
}

/// Returns, for each file of the stem, the number of shards and the number of this shard, both from
/// its name.
fn shards_of(stem: &Path) -> Result<Vec<(u32, u32)>> {
    let folder = folder_of(stem);
    let failed = || failed("cannot look for shards in", folder);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed())? {
        let name = entry.map_err(failed())?.file_name();
        let numbers = name
            .as_encoded_bytes()
            .strip_prefix(stem.file_name().unwrap_or_default().as_encoded_bytes())
            .and_then(|rest| std::str::from_utf8(rest).ok()?.strip_prefix('.')?.strip_suffix(".ib"))
            .and_then(|numbers| numbers.split_once("-of-"));
        let Some((shard, count)) = numbers else { continue };
        let (Ok(shard), Ok(count)) = (shard.parse(), count.parse()) else { continue };
        // A name that is not what would be written, to the digit, is somebody else's.
        if shard_path(stem, shard, count).file_name() == Some(&name)
            && shard < count
            && count <= MAX_SHARDS
        {
            found.push((count, shard));
        }
    }
    Ok(found)
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn failed(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let action = format!("{action} {}", path.display());
    move |cause| Error::Io { action, cause }
}

fn open_file(path: &Path) -> Result<File> {
    let file = File::open(path).map_err(failed("cannot open", path))?;
    if file.metadata().map_err(failed("cannot open", path))?.is_dir() {
        return Err(failed("cannot open", path)(io::ErrorKind::IsADirectory.into()));
    }
    Ok(file)
}

/// Maps a whole file to read, unless it has no length: an empty file, or a pipe.
fn map(file: &File, path: &Path) -> Result<Option<Mmap>> {
    if file.metadata().map_err(failed("cannot open", path))?.len() == 0 {
        return Ok(None);
    }
    // SAFETY: the bytes must not change under the map. Nobody can make sure of that for a file; the
    // documentation asks for it, and `Filter::save` never writes into an existing file. All that
    // reads the bytes checks them as untrusted input and indexes within bounds fixed at opening.
    let map = unsafe { Mmap::map(file) };
    map.map(Some).map_err(failed("cannot map", path))
}

/// Maps the payload of a file that was parsed copy-on-write; `size` is that of the file.
fn privately(file: &File, path: &Path, parsed: &Parsed, size: usize) -> Result<Cells> {
    // No swap space is set aside for pages that may never be changed.
    // SAFETY: as in `map`. It is the same file even if the path names another one by now.
    let map = unsafe { MmapOptions::new().len(size).no_reserve_swap().map_copy(file) };
    let (offset, length) = parsed.payload;
    Ok(Cells::private(map.map_err(failed("cannot map", path))?, offset, length))
}
