//! Filters in files: mapped to query, replaced as a whole to save.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::path::Path;

use memmap2::{Mmap, MmapOptions};

use crate::cells::Cells;
use crate::digest::Key;
use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::format;

/// Opens a filter to query it. The file is mapped, not read: it costs the same whatever its size, and
/// processes that open one file share one copy of it in memory.
///
/// Inserts are refused; [`open_mut`] allows them. (A sparse bitmap, and a filter from a pipe, are read
/// into memory instead, and can be changed there.) The header is checked, the payload is not: see
/// [`verify`]. Do not overwrite the file in place while it is open: replace it, as [`save`] does, and
/// an open filter goes on answering from the old one.
///
/// ```
/// use inbloom::{Filter, Kind, Plan, file};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("seen.ib");
/// let mut filter = Filter::new(Plan::new(Kind::Blocked).items(1000).build()?)?;
/// filter.insert("alice")?;
/// file::save(&filter, &path)?;
///
/// let filter = file::open(&path)?;
/// assert!(filter.contains("alice"));
/// # Ok::<(), inbloom::Error>(())
/// ```
pub fn open(path: impl AsRef<Path>) -> Result<Filter> {
    open_for(path.as_ref(), Access::Query, None)
}

/// As [`open`], for a filter with a secret key.
pub fn open_keyed(path: impl AsRef<Path>, key: &Key) -> Result<Filter> {
    open_for(path.as_ref(), Access::Query, Some(key))
}

/// Opens a filter to change it. The file is mapped privately: what is changed is copied, page by page,
/// and the file stays as it is until [`save`] replaces it.
pub fn open_mut(path: impl AsRef<Path>) -> Result<Filter> {
    open_for(path.as_ref(), Access::Change, None)
}

/// As [`open_mut`], for a filter with a secret key.
pub fn open_mut_keyed(path: impl AsRef<Path>, key: &Key) -> Result<Filter> {
    open_for(path.as_ref(), Access::Change, Some(key))
}

/// Checks every byte of a file: see [`format::verify`].
pub fn verify(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    match map(&open_file(path)?, path)? {
        Some(map) => format::verify(&map),
        None => format::verify(&[]),
    }
}

/// Saves a filter: writes a temporary file beside `path`, syncs it, and renames it over `path`.
///
/// Whatever happens, `path` is the old file or the new one, never half of it. An existing file's
/// permissions are kept; a symbolic link is followed.
pub fn save(filter: &Filter, path: impl AsRef<Path>) -> Result<()> {
    // Where the path is a link, what it leads to is replaced, not the link.
    let path = &fs::canonicalize(path.as_ref()).unwrap_or_else(|_| path.as_ref().to_owned());
    let failed = |action| failed(action, path);
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".inbloom-").suffix(".tmp");
    // Without this the file would be readable by its owner only; with it the umask decides.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let temporary = builder.tempfile_in(folder).map_err(failed("creating a temporary file for"))?;
    if let Ok(existing) = fs::metadata(path) {
        let kept = fs::set_permissions(temporary.path(), existing.permissions());
        kept.map_err(failed("keeping the permissions of"))?;
    }
    let writer = BufWriter::with_capacity(1 << 20, temporary.as_file());
    filter.write_to(writer).map_err(|error| match error {
        Error::Io { cause, .. } => failed("writing")(cause),
        other => other,
    })?;
    temporary.as_file().sync_all().map_err(failed("syncing"))?;
    temporary.persist(path).map_err(|error| failed("replacing")(error.error))?;
    // The rename itself is on disk only once the folder is. A folder that may be written but not read
    // cannot be synced; the system will get to it.
    #[cfg(unix)]
    if let Ok(folder) = File::open(folder) {
        folder.sync_all().map_err(failed("syncing the folder of"))?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Access {
    Query,
    Change,
}

fn failed(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let action = format!("{action} {}", path.display());
    move |cause| Error::Io { action, cause }
}

fn open_file(path: &Path) -> Result<File> {
    let file = File::open(path).map_err(failed("opening", path))?;
    if file.metadata().map_err(failed("opening", path))?.is_dir() {
        return Err(failed("opening", path)(io::ErrorKind::IsADirectory.into()));
    }
    Ok(file)
}

/// Maps a whole file to read, unless it has no length: an empty file, or a pipe.
fn map(file: &File, path: &Path) -> Result<Option<Mmap>> {
    if file.metadata().map_err(failed("opening", path))?.len() == 0 {
        return Ok(None);
    }
    // SAFETY: the bytes must not change under the map. Nobody can make sure of that for a file; the
    // documentation asks for it, and our own `save` never writes into an existing file. All that
    // reads the bytes checks them as a stranger's and indexes within bounds fixed at opening.
    let map = unsafe { Mmap::map(file) };
    map.map(Some).map_err(failed("mapping", path))
}

fn open_for(path: &Path, access: Access, key: Option<&Key>) -> Result<Filter> {
    let file = open_file(path)?;
    // A pipe or an empty file cannot be mapped, but can be read.
    let Some(map) = map(&file, path)? else { return format::read(BufReader::new(file), key) };
    let parsed = format::parse(&map)?;
    let (offset, length) = parsed.payload;
    let cells = match access {
        Access::Query => Cells::mapped(map, offset, length),
        Access::Change => {
            // No swap space is set aside for pages that may never be changed.
            // SAFETY: as in `map`. It is the same file even if the path names another one by now.
            let private =
                unsafe { MmapOptions::new().len(map.len()).no_reserve_swap().map_copy(&file) };
            Cells::private(private.map_err(failed("mapping", path))?, offset, length)
        }
    };
    parsed.into_filter(cells, key)
}
