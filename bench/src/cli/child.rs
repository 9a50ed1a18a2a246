//! Programs that are run and measured: the time on the wall until they are done, the time that
//! their threads worked, and the largest memory they had.
//!
//! On Linux the peak of a program is never below that of the process which started it: the kernel
//! carries the peak over when the new program replaces the copy of the old one. So this process
//! keeps no data, and what a program that does nothing counts is printed beside.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A program with its arguments.
pub(crate) struct Program {
    path: OsString,
    arguments: Vec<OsString>,
    variables: Vec<(&'static str, &'static str)>,
    input: Option<PathBuf>,
}

/// What one run took.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) wall: Duration,
    /// Of all threads, in the program and in the kernel.
    pub(crate) processor: Duration,
    /// Bytes of memory at most.
    pub(crate) peak: u64,
}

impl Program {
    pub(crate) fn new(path: impl AsRef<OsStr>) -> Program {
        Program {
            path: path.as_ref().to_os_string(),
            arguments: Vec::new(),
            variables: Vec::new(),
            input: None,
        }
    }

    pub(crate) fn arg(self, argument: impl AsRef<OsStr>) -> Program {
        self.args([argument])
    }

    pub(crate) fn args(mut self, arguments: impl IntoIterator<Item: AsRef<OsStr>>) -> Program {
        self.arguments.extend(arguments.into_iter().map(|one| one.as_ref().to_os_string()));
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: &'static str) -> Program {
        self.variables.push((name, value));
        self
    }

    /// Gives it a file as standard input; otherwise it has none.
    pub(crate) fn input(mut self, path: &Path) -> Program {
        self.input = Some(path.to_path_buf());
        self
    }

    /// Runs it with its standard output in a file. What it prints on standard error is shown only if
    /// it fails, which is any exit status but 0.
    pub(crate) fn run(&self, output: &Path) -> Result<Usage, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.path.display());
        let said = output.with_extension("stderr");
        let mut command = self.command();
        if let Some(input) = &self.input {
            command.stdin(File::open(input).map_err(failed)?);
        }
        command.stdout(File::create(output).map_err(failed)?);
        command.stderr(File::create(&said).map_err(failed)?);
        let start = Instant::now();
        let child = command.spawn().map_err(failed)?;
        let (status, processor, peak) = wait(child.id()).map_err(failed)?;
        let wall = start.elapsed();
        let words = fs::read_to_string(&said).unwrap_or_default();
        fs::remove_file(said).map_err(failed)?;
        if !status.success() {
            return Err(format!("{status}: {}", words.lines().next().unwrap_or("no message")));
        }
        Ok(Usage { wall, processor, peak })
    }

    /// The first line that it prints, if there is such a program.
    pub(crate) fn first_line(&self) -> Option<String> {
        let output = self.command().output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_string())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).envs(self.variables.iter().copied()).stdin(Stdio::null());
        command
    }
}

/// Waits for a child that nobody else waits for.
fn wait(process: u32) -> std::io::Result<(ExitStatus, Duration, u64)> {
    // On Linux the kernel counts in KiB, elsewhere in bytes.
    const UNIT: u64 = if cfg!(target_os = "linux") { 1024 } else { 1 };
    let process = libc::pid_t::try_from(process).expect("it came from a pid_t");
    let mut status = 0;
    // SAFETY: a rusage is a structure of integers, of which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to variables of the types that wait4 writes.
        if unsafe { libc::wait4(process, &mut status, 0, &mut usage) } == process {
            break;
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let duration = |time: libc::timeval| {
        // The types of the fields differ between systems; no program works for less than nothing.
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    let processor = duration(usage.ru_utime) + duration(usage.ru_stime);
    Ok((ExitStatus::from_raw(status), processor, usage.ru_maxrss as u64 * UNIT))
}
