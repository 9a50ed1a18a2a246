//! A folder to run commands in, and what they leave behind.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
/// An empty folder in which commands are run, so that file names are as short as a person's.
pub struct Folder(TempDir);

/// What a command left behind.
pub struct Outcome {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    /// A folder with `names.ib`, a filter of alice, bob and carol (and `names.txt`, their list).
    pub fn with_names() -> Folder {
        let folder = Folder::new();
        folder.write("names.txt", "alice\nbob\ncarol\n");
        folder.run("build -n 100 -p 1e-9 -o names.ib names.txt").expect(0);
        folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).expect("writing to a temporary folder");
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("a file that a command wrote")
    }

    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("the folder exists");
        let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("ASCII names");
        let mut names: Vec<String> = entries.map(|entry| name(entry.expect("readable"))).collect();
        names.sort();
        names
    }

    pub fn command(&self, arguments: &str) -> Command {
        // Whoever runs the tests in the background may ignore signals, which is inherited.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT,TERM,HUP").arg(env!("CARGO_BIN_EXE_inbloom"));
        self.prepared(command, arguments)
    }

    /// A command with these arguments more, in this folder, with pipes.
    pub fn prepared(&self, mut command: Command, arguments: &str) -> Command {
        command.args(arguments.split_whitespace()).current_dir(self.0.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, arguments: &str) -> Outcome {
        self.run_with(arguments, b"")
    }

    pub fn run_with(&self, arguments: &str, input: impl AsRef<[u8]>) -> Outcome {
        self.run_command(self.command(arguments), input)
    }

    pub fn run_command(&self, mut command: Command, input: impl AsRef<[u8]>) -> Outcome {
        let mut child = command.spawn().expect("the binary starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        let input = input.as_ref().to_vec();
        // A command that fails early closes its end: that is not this test's failure.
        let writer = thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().expect("the binary ends");
        writer.join().expect("writing does not panic");
        Outcome {
            code: output.status.code().expect("no signal ended it"),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).expect("messages are UTF-8"),
        }
    }

    /// Runs a command on a terminal, which `script` makes for it, and types a line and Ctrl-D.
    /// Returns all that the terminal shows.
    pub fn run_on_terminal(&self, arguments: &str, environment: &[(&str, &str)]) -> String {
        let command = format!("{} {arguments}", env!("CARGO_BIN_EXE_inbloom"));
        let mut script = Command::new("script");
        script.args(["-qec", &command, "/dev/null"]).current_dir(self.0.path());
        script.env("TERM", "xterm").env_remove("NO_COLOR").envs(environment.iter().copied());
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().expect("script is installed (bsdutils)");
        let mut stdin = child.stdin.take().expect("it is piped");
        // A command that reads nothing may be gone by now.
        let _ = stdin.write_all(b"typed\n\x04");
        let output = within_ten_seconds(move || child.wait_with_output());
        drop(stdin);
        String::from_utf8_lossy(&output.expect("it ends").stdout).into_owned()
    }

    /// What `inbloom info --json` says about a file.
    pub fn info(&self, name: &str) -> Value {
        self.run(&format!("info --json {name}")).expect(0).json()
    }
}

impl Outcome {
    #[track_caller]
    pub fn expect(self, code: i32) -> Outcome {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.text(), self.stderr);
        self
    }

    /// An error is exit code 2, nothing on stdout, and a message after `error: ` with each of these
    /// words.
    #[track_caller]
    pub fn expect_error(self, words: &[&str]) {
        let outcome = self.expect(2);
        assert!(outcome.stdout.is_empty(), "stdout of an error:\n{}", outcome.text());
        assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
        let is_error = |line: &str| line.starts_with("error: ");
        assert!(outcome.stderr.lines().any(is_error), "no error in: {}", outcome.stderr);
        for word in words {
            assert!(outcome.stderr.contains(word), "no '{word}' in: {}", outcome.stderr);
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).expect("--json prints JSON")
    }
}

pub fn numbers(from: u64, to: u64) -> String {
    (from..to).map(|number| format!("{number}\n")).collect()
}

/// Does it in a thread, so that a command that hangs fails its test and not the whole run.
pub fn within_ten_seconds<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || drop(send.send(work())));
    receive.recv_timeout(Duration::from_secs(10)).expect("the command hangs, or its thread failed")
}

pub fn exit_code(mut child: Child) -> i32 {
    let wait = move || child.wait().expect("it was started").code();
    within_ten_seconds(wait).expect("no signal ended it")
}
