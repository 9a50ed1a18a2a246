//! What leaves the program: data on stdout, messages on stderr, an exit code.

use std::borrow::Cow;
use std::env;
use std::fmt::{self, Display};
use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::process::{self, ExitCode};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;

/// The option that turns a command's summary off.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct SummaryArgs {
    /// Do not print the summary; warnings are still printed
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

impl SummaryArgs {
    /// Writes a summary line to standard error, unless the user turned it off.
    pub fn say(self, message: impl Display) {
        if !self.quiet {
            say(message);
        }
    }
}

/// Writes data to standard output. If the reader has ended, the program ends with success, in
/// [`exit_code`]: `inbloom check ... | head -1` is complete then.
pub fn print(data: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(data).and_then(|()| stdout.flush()).context(StdoutFailed)
}

/// Marks the errors of [`print()`], after which the program must end.
#[derive(Debug)]
pub struct StdoutFailed;

impl Display for StdoutFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot write to standard output")
    }
}

/// Returns whether standard output goes into this file.
pub fn is_stdout(file: &File) -> bool {
    let same = |stdout: Metadata, file: Metadata| {
        stdout.is_file() && (stdout.dev(), stdout.ino()) == (file.dev(), file.ino())
    };
    let stdout = stdout_file().and_then(|stdout| stdout.metadata());
    stdout.and_then(|stdout| Ok(same(stdout, file.metadata()?))).unwrap_or(false)
}

/// Does the same as [`print()`], but returns false if `stop` returns true while the reader of a
/// pipe takes no more. Without this, a program that waits for its reader would ignore signals.
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

/// Returns whether a pipe takes more within a tenth of a second, or never will.
fn is_ready(pipe: &File) -> bool {
    let tenth = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let polled = poll(&mut [PollFd::new(pipe, PollFlags::OUT)], Some(&tenth));
    // Interrupted by a signal: nothing is known. Any other error is for the write to report.
    match polled {
        Ok(ready) => ready > 0,
        Err(error) => error != rustix::io::Errno::INTR,
    }
}

/// How far the printed lines have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// They are on disk, were read from the pipe, or are on the terminal.
    Done,
    /// Some are still in the pipe.
    Pending,
    /// Some are still in the pipe, and its reader has ended.
    Lost,
}

/// Syncs printed lines to disk if standard output is a file. If it is a pipe, checks whether the
/// reader has taken all lines: a reader that the same Ctrl-C has stopped leaves unread lines in the
/// pipe.
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

/// What happened, and what to do about it.
#[derive(Debug)]
pub struct Problem {
    pub what: String,
    pub help: Option<String>,
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.help {
            Some(help) => write!(f, "{}; {help}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl From<String> for Problem {
    fn from(what: String) -> Problem {
        Problem { what, help: None }
    }
}

impl std::error::Error for Problem {}

/// Returns a problem with what happened and what to do about it.
pub fn problem(what: impl Into<String>, help: impl Into<String>) -> Problem {
    Problem { what: what.into(), help: Some(help.into()) }
}

/// Writes a line about the work to standard error.
pub fn say(message: impl Display) {
    write_lines("inbloom", &message.to_string(), None);
}

/// Writes a warning, and what to do about it, to standard error.
pub fn warn(Problem { what, help }: &Problem) {
    write_lines("warning", what, help.as_deref());
}

/// Writes an error, and what to do about it, to standard error.
pub fn report(error: &anyhow::Error) {
    let Help { in_text, shown } = help(error);
    let mut what = chain(error);
    if let Some(help) = &in_text {
        what = what.replacen(&format!("; {help}"), "", 1);
    }
    write_lines("error", &what, shown.as_deref());
}

/// Writes a message and its help, each on a line with a label. A further line of the message is
/// indented by two spaces. Any other line break is shown as an escape, because a file name with one
/// could look like a message. If standard error is closed, nothing is written.
fn write_lines(label: &str, what: &str, help: Option<&str>) {
    let lines: Vec<Cow<str>> = what.split("\n  ").map(printable).collect();
    let mut text = format!("{label}: {}\n", lines.join("\n  "));
    if let Some(help) = help {
        text.push_str(&format!("help: {}\n", printable(help)));
    }
    let _ = io::stderr().write_all(text.as_bytes());
}

/// What to do about an error: as the end of its text, and as it is printed.
#[derive(Default)]
struct Help {
    in_text: Option<String>,
    shown: Option<String>,
}

/// Returns what to do about an error, from this program or else from a library.
fn help(error: &anyhow::Error) -> Help {
    if let Some(help) = error.downcast_ref::<Problem>().and_then(|problem| problem.help.clone()) {
        return Help { in_text: Some(help.clone()), shown: Some(help) };
    }
    let redis = error.downcast_ref::<inbloom_redis::Error>();
    let filter = match redis {
        Some(inbloom_redis::Error::Filter(error)) => Some(error),
        Some(_) => None,
        None => error.downcast_ref::<inbloom::Error>(),
    };
    match (filter, redis) {
        (Some(error), _) => Help {
            in_text: error.help().map(Cow::into_owned),
            shown: shell_help(error).map(Cow::into_owned),
        },
        (None, Some(error)) => {
            let help = error.help().map(Cow::into_owned);
            Help { in_text: help.clone(), shown: help }
        }
        (None, None) => Help::default(),
    }
}

/// Returns what a user of the shell can do about an error of the library. The library's own help
/// names its calls.
fn shell_help(error: &inbloom::Error) -> Option<Cow<'static, str>> {
    use inbloom::Error;
    let help = match error {
        Error::ReadOnly => "change a copy of the file",
        Error::Copies { .. } => "use kind counting",
        Error::OtherShard { .. } => "name all shards together, as -o did when they were built",
        Error::NotAFilter { .. } => {
            "check the path; if another program wrote the filter, name its format with --from"
        }
        Error::Ambiguous { .. } => "say which one it is with --from",
        Error::OtherScheme { read_only: false, .. } => {
            "build it from its keys with 'inbloom build --format'"
        }
        Error::Key { .. } => "pass the secret key that it was built with: --key-file FILE",
        // What to do depends on the call: only where a call of the library is named, another thing is.
        Error::Unsupported { kind, remedy, .. } if remedy.contains("::") => match kind {
            kind if kind.is_static() => {
                "build it again from all its keys, or keep the changes in an overlay ('inbloom \
                 build --base')"
            }
            kind if kind.is_foreign() => "make it with 'inbloom build --format'",
            _ => return None,
        },
        _ => return error.help(),
    };
    Some(Cow::Borrowed(help))
}

/// Returns text without characters that move the cursor, change colors or reverse the direction of
/// text. Names of files and texts in them are untrusted. Such characters become escapes: `\x1b`.
pub fn printable(text: &str) -> Cow<'_, str> {
    // The last ones change the direction of text.
    let hidden =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\t' | '\n' | '\r' => shown.extend(c.escape_default()),
            c if hidden(c) && c.is_ascii() => shown.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if hidden(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Returns a name to print beside data on standard output: unchanged for programs, and
/// [`printable`] on a terminal.
pub fn name_beside_data(name: &[u8]) -> Vec<u8> {
    match io::stdout().is_terminal() {
        true => printable(&String::from_utf8_lossy(name)).into_owned().into_bytes(),
        false => name.to_vec(),
    }
}

/// Ends the program with an error about its arguments, or with the help that they request.
pub fn exit_with_usage(error: &clap::Error) -> ! {
    // An argument may be the name of a file, from a pattern such as *.
    let is_odd = |text: &str| matches!(printable(text), Cow::Owned(_));
    let odd = env::args_os().any(|argument| is_odd(&argument.to_string_lossy()));
    if !odd || !error.use_stderr() {
        error.exit()
    }
    let text = error.render().to_string();
    let lines: Vec<Cow<str>> = text.lines().map(printable).collect();
    let _ = writeln!(io::stderr(), "{}", lines.join("\n"));
    process::exit(error.exit_code())
}

/// Returns the exit code of a subcommand, or reports its error and returns 2.
pub fn exit_code(result: Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) if is_closed_stdout(&error) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::from(2)
        }
    }
}

/// Returns the text of an error and its causes. The library's errors include the text of their
/// cause, so it is not repeated.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn is_closed_stdout(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    error.is::<StdoutFailed>() && kind == Some(io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_help_names_calls_of_the_library() {
        use inbloom::{Error, Kind};
        let unsupported = |kind, remedy| Error::Unsupported { kind, verb: "grow", remedy };
        let overlay =
            "keep added keys in an overlay ('inbloom build --base', Filter::into_overlay)";
        let guava: inbloom::interop::Format = "guava".parse().expect("a format");
        let container = inbloom::interop::Container::from(guava);
        let (plan, _) = container.plan(10, 0.1).expect("a plan");
        for error in [
            Error::ReadOnly,
            Error::OtherShard { key_shard: 0, shard: 1, shards: 2 },
            Error::NotAFilter { start: "PK".to_owned() },
            Error::Ambiguous { candidates: "guava, spark".to_owned() },
            Error::OtherScheme { kind: Kind::Blocked, format: "guava", read_only: false },
            Error::Key { problem: "no key was given" },
            unsupported(Kind::Ribbon, overlay),
            unsupported(plan.kind(), "use Filter::for_format, where the other program decides"),
        ] {
            let library = error.help().expect("the library helps").into_owned();
            assert!(library.contains("::"), "{library}");
            for error in [
                anyhow::Error::from(inbloom_redis::Error::Filter(inbloom::Error::ReadOnly)),
                anyhow::Error::from(error).context("f.ib"),
            ] {
                let Help { in_text, shown } = help(&error);
                let shown = shown.expect("there is something to do");
                assert!(!shown.contains("::"), "{shown}");
                let text = chain(&error);
                let in_text = in_text.expect("the text ends with it");
                assert!(text.ends_with(&format!("; {in_text}")), "{text}");
            }
        }
        let remedy = "use kind window, the only one whose keys expire";
        let kept = help(&anyhow::Error::from(unsupported(Kind::Ribbon, remedy))).shown;
        assert_eq!(kept.as_deref(), Some(remedy));
    }

    #[test]
    fn no_control_character_is_printed_as_it_is() {
        assert_eq!(printable("caf\u{e9}.ib"), "caf\u{e9}.ib");
        assert_eq!(printable("a\u{1b}[31m\u{7f}\u{9b}b"), "a\\x1b[31m\\x7f\\u{9b}b");
        assert_eq!(printable("a\tb\nc\rd\0"), "a\\tb\\nc\\rd\\x00");
        assert_eq!(printable("\u{202e}bi.exe"), "\\u{202e}bi.exe");
    }
}
