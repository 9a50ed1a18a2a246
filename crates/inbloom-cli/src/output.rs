//! What leaves the program: data on stdout, messages on stderr, an exit code.

use std::fmt::{self, Display};
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::process::ExitCode;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;

/// Writes data to standard output. A reader that has gone away ends the program as success, in
/// [`exit_code`]: `inbloom check ... | head -1` has done what was asked.
pub fn print(data: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(data).and_then(|()| stdout.flush()).context(StdoutFailed)
}

/// Marks the errors of [`print()`], after which going on is pointless.
#[derive(Debug)]
pub struct StdoutFailed;

impl Display for StdoutFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot write to standard output")
    }
}

/// Whether standard output goes into this file.
pub fn is_stdout(file: &File) -> bool {
    let same = |stdout: Metadata, file: Metadata| {
        stdout.is_file() && (stdout.dev(), stdout.ino()) == (file.dev(), file.ino())
    };
    let stdout = stdout_file().and_then(|stdout| stdout.metadata());
    stdout.and_then(|stdout| Ok(same(stdout, file.metadata()?))).unwrap_or(false)
}

/// As [`print()`], but gives up, with false, if `stop` says so while the reader of a pipe does not
/// take more. Otherwise a program that waits for its reader would hear no signal.
pub fn print_unless(data: &[u8], stop: impl Fn() -> bool) -> Result<bool> {
    // As much as a pipe that has room takes without waiting.
    const PIECE: usize = 4096;
    let stdout = stdout_file().context(StdoutFailed)?;
    if !stdout.metadata().context(StdoutFailed)?.file_type().is_fifo() {
        return print(data).map(|()| true);
    }
    for piece in data.chunks(PIECE) {
        while !is_ready(&stdout) {
            if stop() {
                return Ok(false);
            }
        }
        print(piece)?;
    }
    Ok(true)
}

/// Whether a pipe takes more within a tenth of a second, or says that it never will.
fn is_ready(pipe: &File) -> bool {
    let tenth = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let polled = poll(&mut [PollFd::new(pipe, PollFlags::OUT)], Some(&tenth));
    // Interrupted by a signal: nothing is known. Any other error is for the write to report.
    match polled {
        Ok(ready) => ready > 0,
        Err(error) => error != rustix::io::Errno::INTR,
    }
}

/// Where the lines are that were printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// On the disk, or taken by the one who reads the pipe, or shown.
    Done,
    /// Some are still in the pipe.
    Pending,
    /// Some are still in the pipe, and nobody is left to take them.
    Lost,
}

/// Brings what was printed to the disk, if that is where it goes, and looks at what became of it if
/// it goes into a pipe: a reader that is stopped, by the same Ctrl-C as this program, leaves there
/// what it has not read.
pub fn delivery() -> Result<Delivery> {
    let stdout = stdout_file().context(StdoutFailed)?;
    let kind = stdout.metadata().context(StdoutFailed)?.file_type();
    if kind.is_file() {
        stdout.sync_data().context(StdoutFailed)?;
    }
    if !kind.is_fifo() || ioctl_fionread(&stdout).is_ok_and(|left| left == 0) {
        return Ok(Delivery::Done);
    }
    let mut pipe = [PollFd::new(&stdout, PollFlags::empty())];
    let polled = poll(&mut pipe, Some(&Timespec::default()));
    let gone = polled.is_ok() && pipe[0].revents().intersects(PollFlags::ERR);
    Ok(if gone { Delivery::Lost } else { Delivery::Pending })
}

/// Standard output under a descriptor of its own.
fn stdout_file() -> io::Result<File> {
    io::stdout().as_fd().try_clone_to_owned().map(File::from)
}

/// Tells the person something, on standard error. With that closed there is nobody to tell.
pub fn say(message: impl Display) {
    let _ = writeln!(io::stderr(), "inbloom: {message}");
}

/// The end of every subcommand: its own exit code, or 2 and the reason.
pub fn exit_code(result: Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) if is_closed_stdout(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say(chain(&error));
            ExitCode::from(2)
        }
    }
}

/// An error and its causes. The library's errors end in the text of their cause, which then comes
/// once.
pub fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn is_closed_stdout(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    error.is::<StdoutFailed>() && kind == Some(io::ErrorKind::BrokenPipe)
}
