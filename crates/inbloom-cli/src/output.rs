//! What leaves the program: data on stdout, messages on stderr, an exit code.

use std::fmt::{self, Display};
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};

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
            say(format_args!("{error:#}"));
            ExitCode::from(2)
        }
    }
}

fn is_closed_stdout(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    error.is::<StdoutFailed>() && kind == Some(io::ErrorKind::BrokenPipe)
}
