//! One program at a time may change a filter's file: it holds a lock from its start to its end.
//!
//! A filter is read, changed in memory and replaced as a whole, so two programs that do so at once
//! would each lose what the other has added. The second one is refused before it has read or
//! printed a line, or waits with `--wait`. Those that only read a filter need no lock.
//!
//! The lock is on a file beside the filter, `.seen.ib.lock` for `seen.ib`: the filter itself is
//! replaced by another file on every save, and may not exist yet. It has the number of the process
//! that holds it, for the message. The system releases the lock when the process ends in any way;
//! the file is removed on a regular end, and what a kill has left is taken over.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, TryLockError};
use std::io::{ErrorKind, IsTerminal, Read, stderr};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use inbloom_server::units;
use rustix::fs::OFlags;

use crate::output::{self, Problem, problem};

/// What to do if another program is changing the file.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct WaitArgs {
    /// Wait while another program changes the filter, forever or for a time: --wait, --wait=10min
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true)]
    #[arg(value_parser = units::parse_time)]
    wait: Option<Option<Duration>>,
}

impl WaitArgs {
    pub fn is_given(self) -> bool {
        self.wait.is_some()
    }
}

/// How often a waiting program checks whether the lock is free.
const LOOK: Duration = Duration::from_millis(20);

/// The start of a lock file. The number of the process follows.
const MARK: &str = "inbloom ";

/// Held until it is dropped.
pub struct Lock {
    /// None where files cannot be locked, as on some network drives.
    held: Option<(File, PathBuf)>,
}

impl Lock {
    /// Takes the lock of a file, which need not exist. Its folder must.
    pub fn take(path: &Path, args: WaitArgs) -> Result<Lock> {
        let lock_path = lock_path(path);
        let start = Instant::now();
        let mut has_said = false;
        loop {
            let mut file = open(&lock_path)?;
            match file.try_lock() {
                Ok(()) if is_there(&file, &lock_path) => {
                    sign(&mut file, &lock_path)?;
                    return Ok(Lock { held: Some((file, lock_path)) });
                }
                // The one who held it has just removed it.
                Ok(()) => continue,
                Err(TryLockError::Error(_)) => {
                    let _ = fs::remove_file(&lock_path);
                    return Ok(Lock { held: None });
                }
                Err(TryLockError::WouldBlock) => {}
            }
            let shown = path.display();
            let holder = holder(&mut file);
            match args.wait {
                None => bail!(problem(
                    format!("{shown} is being changed by {holder}, so nothing was read or written"),
                    "run again later, or pass --wait"
                )),
                Some(Some(most)) if start.elapsed() >= most => bail!(problem(
                    format!(
                        "{shown} is still being changed by {holder} after --wait={most:?}, so \
                         nothing was read or written"
                    ),
                    "run again later, or wait longer"
                )),
                Some(_) => {}
            }
            if !has_said && stderr().is_terminal() {
                has_said = true;
                output::say(format_args!("waiting for {holder} to finish changing {shown}"));
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Lock {
    /// Removes the file while it is still locked, and only if it still has the name. Another
    /// program may have removed it, and a third may hold a new file of that name.
    fn drop(&mut self) {
        if let Some((file, path)) = &self.held
            && is_there(file, path)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns the path of a file's lock. For a link, it is the lock of the link's target.
fn lock_path(path: &Path) -> PathBuf {
    let path = inbloom::internals::file::destination(path).unwrap_or_else(|_| path.to_owned());
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".lock");
    path.with_file_name(name)
}

/// Opens or creates the lock file. Does not follow a link of that name.
fn open(path: &Path) -> Result<File> {
    let mut options = File::options();
    options.read(true).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    let ours = options.clone().write(true).create(true).truncate(false).open(path);
    let opened = match ours {
        // Another user's can be locked all the same.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => options.open(path),
        opened => opened,
    };
    let file = opened.with_context(|| not_ours(path))?;
    let metadata = file.metadata().with_context(|| not_ours(path))?;
    ensure!(metadata.is_file(), not_ours(path));
    Ok(file)
}

fn not_ours(path: &Path) -> Problem {
    problem(
        format!("cannot use {} as a lock file", path.display()),
        "check what it is, and remove it",
    )
}

/// Returns whether a file still has this name.
fn is_there(file: &File, path: &Path) -> bool {
    let inode = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let named = fs::symlink_metadata(path).map(inode).ok();
    named.is_some() && file.metadata().map(inode).ok() == named
}

/// Writes the holder of the lock into the lock file. Refuses a file with other content.
fn sign(file: &mut File, path: &Path) -> Result<()> {
    let content = content(file);
    ensure!(is_ours(&content), not_ours(path));
    // Another user's cannot be written to, and nobody depends on it.
    let _ = file.set_len(0);
    let _ = file.write_all_at(format!("{MARK}{}\n", process::id()).as_bytes(), 0);
    Ok(())
}

/// Returns whether a lock file has our content, or what a power loss may leave of it: a part, or
/// zeros.
fn is_ours(content: &str) -> bool {
    let written = content.trim_end_matches('\0');
    let digits = |rest: &str| rest.trim_end_matches('\n').bytes().all(|it| it.is_ascii_digit());
    MARK.starts_with(written) || written.strip_prefix(MARK).is_some_and(digits)
}

/// Describes the holder of the lock.
fn holder(file: &mut File) -> String {
    match process_of(&content(file)) {
        Some(process) => format!("process {process}"),
        None => "another program".to_string(),
    }
}

/// Returns the start of a file, up to the length of our longest lock file.
fn content(file: &mut File) -> String {
    let mut content = Vec::new();
    let _ = file.take(64).read_to_end(&mut content);
    String::from_utf8_lossy(&content).into_owned()
}

fn process_of(content: &str) -> Option<u32> {
    content.strip_prefix(MARK)?.strip_suffix('\n')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_lock_is_taken_for_one_and_another_file_is_not() {
        let whole = format!("{MARK}4711\n");
        for end in 0..=whole.len() {
            assert!(is_ours(&whole[..end]), "{end}");
            assert!(is_ours(&format!("{}\0\0", &whole[..end])), "{end}");
        }
        assert!(is_ours("\0\0\0"));
        for other in ["x", "important\n", &format!("{MARK}x\n"), &format!("{whole}more"), "\0x"] {
            assert!(!is_ours(other), "{other}");
        }
    }
}
