//! Filters as files named on the command line.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use inbloom::{Error, Filter, Span};

/// Opens a filter as it was saved.
pub fn open(path: &Path) -> Result<Filter> {
    inbloom::file::open(path).map_err(|error| name(error, path))
}

/// Opens a filter to query it: what a window of time has forgotten by now is not in it any more.
pub fn open_now(path: &Path) -> Result<Filter> {
    let filter = open(path)?;
    if !has_clock(&filter) {
        return Ok(filter);
    }
    // To forget is a change, which is made in memory; the file stays as it is.
    let mut filter = inbloom::file::open_mut(path).map_err(|error| name(error, path))?;
    advance(&mut filter)?;
    Ok(filter)
}

/// Lets the clock of a window of time go on to now; the other filters have none.
pub fn advance(filter: &mut Filter) -> Result<()> {
    if has_clock(filter) {
        // A system clock that is set before 1970 stands still.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        filter.advance(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))?;
    }
    Ok(())
}

fn has_clock(filter: &Filter) -> bool {
    matches!(filter.plan().span(), Some(Span::Millis(_)))
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
