//! Tests that cannot run here say so, and fail where nothing may be skipped.

use std::io::Write;
use std::process::{Command, Stdio};

/// Reports that the calling test, or a part of it, does not run here, and why. The test then returns.
///
/// The report goes to standard error past the test harness, which hides what passing tests print.
///
/// # Panics
///
/// If the environment has `INBLOOM_NO_SKIP=1`, as continuous integration sets it.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let report = format!("SKIPPED {}: {reason}", thread.name().unwrap_or("a test"));
    assert!(!is_forbidden(), "{report}, and INBLOOM_NO_SKIP=1 forbids to skip tests");
    let _ = writeln!(std::io::stderr(), "\n{report}");
}

/// Returns a command, or reports a skip and returns None where it is not installed.
///
/// # Panics
///
/// As [`skip`].
pub fn program(name: &str, package: &str) -> Option<Command> {
    let mut asked = Command::new(name);
    asked.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if asked.status().is_ok() {
        return Some(Command::new(name));
    }
    skip(&format!("{name} is not installed (Debian's package {package})"));
    None
}

fn is_forbidden() -> bool {
    std::env::var_os("INBLOOM_NO_SKIP").is_some_and(|value| value == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_fails_where_nothing_may_be_skipped() {
        // In a process of its own, so that nobody takes its report for a skipped test.
        crate::alone(|| {
            let missing = std::panic::catch_unwind(|| program("inbloom-no-such-program", "none"));
            assert_eq!(missing.is_err(), is_forbidden());
            assert!(missing.is_err() || missing.is_ok_and(|command| command.is_none()));
            assert!(program("sh", "dash").is_some());
        });
    }
}
