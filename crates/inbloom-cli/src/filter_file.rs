//! Filters as files named on the command line.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use inbloom::{Error, Filter};

/// Opens a filter to query it.
pub fn open(path: &Path) -> Result<Filter> {
    inbloom::file::open(path).map_err(|error| name(error, path))
}

/// Reads all of a filter's file and checks its checksums.
pub fn verify(path: &Path) -> Result<()> {
    inbloom::file::verify(path).map_err(|error| name(error, path))
}

/// Says which file it was, unless the library has.
fn name(error: Error, path: &Path) -> anyhow::Error {
    match error {
        Error::Io { .. } => error.into(),
        _ => anyhow::Error::new(error).context(path.display().to_string()),
    }
}

/// Fails now rather than after hours of reading: a filter is saved beside its final name and then
/// renamed, so its folder must exist and be writable, and the name must be free or a file's.
pub fn check_output(path: &Path) -> Result<()> {
    let shown = path.display();
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        bail!("cannot write to {shown}: it exists and is not a file; give -o a file name");
    }
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    tempfile::tempfile_in(folder)
        .with_context(|| format!("cannot create {shown}: folder {}", folder.display()))
        .map(drop)
}
