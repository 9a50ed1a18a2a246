//! Tests that measure the process they run in.

use std::process::Command;

/// The environment variable by which the second process knows that it is the second.
const INSIDE: &str = "INBLOOM_TEST_ALONE";

/// Runs a test in a process of its own, in which no other test runs.
///
/// A test that measures its process (memory, open files) puts its whole body into this call. The first
/// process starts this program again, for this test only; the second one runs `body`.
///
/// # Panics
///
/// If the test fails in its process, or if the thread does not have the name of a test.
pub fn alone(body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let thread = std::thread::current();
    let test = thread.name().expect("the test harness names its threads");
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(INSIDE, "1");
    let output = command.output().expect("this program starts again");
    let (out, err) = (output.stdout.as_slice(), output.stderr.as_slice());
    let report = [out, err].map(String::from_utf8_lossy).join("\n");
    assert!(output.status.success(), "{test} failed in a process of its own:\n{report}");
    assert!(report.contains("1 passed"), "{test} did not run in a process of its own:\n{report}");
}

/// Returns the resident bytes of this process, or 0 where the system does not report them.
pub fn resident_memory() -> u64 {
    status_of_this_process("VmRSS:")
}

/// Returns the most bytes that this process ever had resident, or 0 where the system does not report them.
pub fn peak_memory() -> u64 {
    status_of_this_process("VmHWM:")
}

fn status_of_this_process(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_runs_in_one_other_process() {
        let outer = std::env::var_os(INSIDE).is_none();
        let mut ran = false;
        alone(|| {
            ran = true;
            if cfg!(target_os = "linux") {
                assert!(resident_memory() > 0 && peak_memory() >= resident_memory());
            }
        });
        assert_eq!(ran, !outer);
    }

    #[test]
    fn a_test_that_did_not_run_in_its_process_fails() {
        let thread = std::thread::Builder::new().name("process::tests::no_such_test".to_owned());
        let failure = thread.spawn(|| alone(|| ())).expect("a thread").join();
        let failure = failure.expect_err("no such test");
        let text = failure.downcast_ref::<String>().expect("a message");
        assert!(text.contains("no_such_test did not run"), "{text}");
    }
}
