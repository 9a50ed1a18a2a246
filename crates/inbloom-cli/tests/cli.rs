//! The `inbloom` binary as a person or a script meets it: arguments and bytes in; bytes, messages
//! and an exit code out.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use inbloom::{Filter, Hasher, Key, Kind, Plan, file};
use serde_json::Value;
use tempfile::TempDir;

// ---- A folder to run in -------------------------------------------------------------------------

/// An empty folder in which commands are run, so that file names are as short as a person's.
struct Folder(TempDir);

/// What a command left behind.
struct Outcome {
    code: i32,
    stdout: Vec<u8>,
    stderr: String,
}

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    /// A folder with `names.ib`, a filter of alice, bob and carol (and `names.txt`, their list).
    fn with_names() -> Folder {
        let folder = Folder::new();
        folder.write("names.txt", "alice\nbob\ncarol\n");
        folder.run("build -p 1e-9 -o names.ib names.txt").expect(0);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).expect("writing to a temporary folder");
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("a file that a command wrote")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("the folder exists");
        let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("ASCII names");
        let mut names: Vec<String> = entries.map(|entry| name(entry.expect("readable"))).collect();
        names.sort();
        names
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_inbloom"));
        command.args(arguments.split_whitespace()).current_dir(self.0.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &str) -> Outcome {
        self.run_with(arguments, b"")
    }

    fn run_with(&self, arguments: &str, input: impl AsRef<[u8]>) -> Outcome {
        let mut child = self.command(arguments).spawn().expect("the binary starts");
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

    /// What `inbloom info --json` says about a file.
    fn info(&self, name: &str) -> Value {
        self.run(&format!("info --json {name}")).expect(0).json()
    }
}

impl Outcome {
    #[track_caller]
    fn expect(self, code: i32) -> Outcome {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.text(), self.stderr);
        self
    }

    /// An error is exit code 2, nothing on stdout, and a message with each of these words.
    #[track_caller]
    fn expect_error(self, words: &[&str]) {
        let outcome = self.expect(2);
        assert!(outcome.stdout.is_empty(), "stdout of an error:\n{}", outcome.text());
        assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
        for word in words {
            assert!(outcome.stderr.contains(word), "no '{word}' in: {}", outcome.stderr);
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).expect("--json prints JSON")
    }
}

fn numbers(from: u64, to: u64) -> String {
    (from..to).map(|number| format!("{number}\n")).collect()
}

// ---- build, check, info together ----------------------------------------------------------------

#[test]
fn every_key_of_a_built_filter_is_found_and_few_others() {
    let folder = Folder::new();
    folder.write("in.txt", numbers(0, 20_000));
    folder.write("out.txt", numbers(20_000, 120_000));
    for options in KINDS {
        let build = folder.run(&format!("build --kind {options} -o f.ib in.txt")).expect(0);
        let kind = options.split(' ').next().expect("a kind comes first");
        assert!(build.stdout.is_empty());
        assert!(build.stderr.starts_with("inbloom: 20,000 keys read, "), "{}", build.stderr);
        let hits = folder.run("check f.ib in.txt").expect(0);
        assert_eq!(hits.text(), numbers(0, 20_000), "in order, none missing");
        let wrong: f64 =
            folder.run("check -c f.ib out.txt").text().trim().parse().expect("a count");
        // 1% of 100,000; the deviation of a good filter's rate and of the draw is below 60. A
        // window or a filter that grows is not full yet, a fingerprint a whole number of bits.
        let least = match kind {
            "classic" | "blocked" | "counting" => 700.0,
            "scalable" => 10.0,
            _ => 100.0,
        };
        assert!((least..1300.0).contains(&wrong), "{kind}: {wrong} of 100,000 are wrong");
        let info = folder.info("f.ib");
        assert_eq!(info["kind"], kind);
        let planned = if options.ends_with("1h") { 80_000 } else { 20_000 };
        assert_eq!(info["planned_items"], planned, "{kind}");
        assert_eq!(info["promised_rate"], 0.01);
        assert!(info["current_rate"].as_f64() <= Some(0.0105), "{info}");
        assert_eq!(info["bits"].as_u64().map(|bits| bits > 0), Some(true));
        folder.run("info --verify f.ib").expect(0);
    }
}

/// Every kind that takes lines of text, with what it needs.
const KINDS: &[&str] = &[
    "classic",
    "blocked",
    "counting",
    "cuckoo",
    "window --window 20000",
    "window --window 1h",
    "scalable -n 20000",
];

#[test]
fn a_pipe_and_a_file_give_the_same_filter_of_every_kind() {
    let folder = Folder::new();
    let keys = numbers(0, 2_000);
    folder.write("keys.txt", &keys);
    for options in KINDS.iter().filter(|options| !options.ends_with("1h")) {
        folder.run(&format!("build --kind {options} -o counted.ib keys.txt")).expect(0);
        folder.run_with(&format!("build --kind {options} -o spooled.ib"), &keys).expect(0);
        assert!(folder.read("counted.ib") == folder.read("spooled.ib"), "{options}");
    }
}

#[test]
fn a_line_that_comes_again_counts_once() {
    let folder = Folder::new();
    // Far more often than a cuckoo filter holds one key.
    let keys = "alice\nbob\n".repeat(10_000);
    folder.write("keys.txt", &keys);
    for kind in ["counting", "cuckoo"] {
        for (options, input) in
            [("-n 10", ""), ("-n 10 keys.txt", ""), ("-n 2", &keys), ("", &keys)]
        {
            let build = format!("build --kind {kind} -p 1e-6 -o f.ib {options}");
            let build = folder.run_with(&build, input).expect(0);
            let read =
                if options == "-n 10" { "0 keys read, 0 new" } else { "20,000 keys read, 2 new" };
            assert!(build.stderr.contains(read), "{}", build.stderr);
        }
        let filter = file::open(folder.path("f.ib")).expect("it was built");
        assert_eq!((filter.count("alice"), filter.count("bob"), filter.inserted()), (1, 1, 2));
    }
}

#[test]
fn a_filter_that_is_full_says_so_and_is_not_written() {
    let folder = Folder::with_names();
    let before = (folder.read("names.ib"), folder.names());
    folder.run_with("build --kind cuckoo -n 100 -o names.ib", numbers(0, 10_000)).expect_error(&[
        "the filter is full",
        "is for 100",
        "plan more items",
    ]);
    folder
        .run_with("build --kind scalable --growth 0 -n 100 -o names.ib", numbers(0, 10_000))
        .expect_error(&["the filter is full"]);
    assert!(before == (folder.read("names.ib"), folder.names()), "{:?}", folder.names());
}

#[test]
fn a_window_keeps_the_last_keys() {
    let folder = Folder::new();
    let build = "build --kind window --window 1000 --generations 10 -p 1e-6 -o f.ib";
    let built = folder.run_with(build, numbers(0, 5_000)).expect(0);
    assert!(built.stderr.contains("holds the last 1,000 keys"), "{}", built.stderr);
    folder.run_with("check -v f.ib", numbers(4_000, 5_000)).expect(1);
    let older = folder.run_with("check -c f.ib", numbers(0, 4_000)).text();
    assert!(older.trim().parse::<u64>().expect("a count") <= 100, "at most a step more: {older}");
    let info = folder.info("f.ib");
    assert_eq!((&info["window_keys"], &info["window_ms"]), (&1000.into(), &Value::Null));
    assert_eq!(info["generations"], 10);
}

#[test]
fn a_window_of_time_forgets_by_the_clock_of_the_system() {
    let folder = Folder::new();
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64;
    for (window, code) in [(Duration::from_secs(60), 1), (Duration::from_secs(86_400), 0)] {
        let plan = Plan::new(Kind::Window).items(10).rate(1e-6).window(window).build();
        let mut filter = Filter::new(plan.expect("a plan")).expect("little memory");
        filter.advance(now - 600_000).expect("it has a clock");
        filter.insert("alice").expect("it is writable");
        file::save(&filter, folder.path("f.ib")).expect("it is saved");
        let saved = folder.read("f.ib");
        folder.run_with("check f.ib", "alice\n").expect(code);
        assert!(folder.read("f.ib") == saved, "check changes no file");
    }
    // What is built counts as inserted now.
    folder.run_with("build --kind window --window 1h -o f.ib", "alice\n").expect(0);
    assert_eq!(folder.run_with("check f.ib", "alice\n").expect(0).text(), "alice\n");
    let info = folder.info("f.ib");
    assert_eq!((&info["window_ms"], &info["window_keys"]), (&3_600_000.into(), &Value::Null));
    assert!(info["details"]["clock"].as_str().expect("text").ends_with(" ms"), "{info}");
}

#[test]
fn more_keys_in_a_step_of_a_window_than_planned_are_said() {
    let folder = Folder::new();
    let build = folder
        .run_with("build --kind window --window 1h -n 1000 -o f.ib", numbers(0, 1_000))
        .expect(0);
    assert!(build.stderr.contains("warning: planned for 1,000 keys, not all"), "{}", build.stderr);
    assert!(build.stderr.contains("build again with -n 3"), "{}", build.stderr);
    let text = folder.run("info f.ib").expect(0).text();
    assert!(text.contains("ABOVE the promise: more keys than planned in a step"), "{text}");
    folder.run_with("build --kind window --window 1h -o f.ib", numbers(0, 1_000)).expect(0);
    let text = folder.run("info f.ib").expect(0).text();
    assert!(text.contains("within the promise"), "{text}");
}

#[test]
fn a_pipe_and_a_file_give_the_same_filter() {
    let folder = Folder::new();
    let keys = numbers(0, 5_000);
    folder.write("keys.txt", &keys);
    folder.run("build -o counted.ib keys.txt").expect(0);
    folder.run_with("build -o spooled.ib", &keys).expect(0);
    folder.run_with("build -o spooled2.ib -", &keys).expect(0);
    folder.run_with("build -n 5000 -o told.ib", &keys).expect(0);
    for name in ["spooled.ib", "spooled2.ib", "told.ib"] {
        assert!(folder.read("counted.ib") == folder.read(name), "counted.ib and {name} differ");
    }
}

#[test]
fn files_and_standard_input_can_be_mixed() {
    let folder = Folder::new();
    folder.write("a.txt", "a\n");
    folder.write("c.txt", "c");
    folder.run_with("build -o f.ib a.txt - c.txt", "b\n").expect(0);
    let found = folder.run_with("check f.ib a.txt - c.txt", "b\n").expect(0);
    assert_eq!(found.text(), "a\nb\nc\n");
}

#[test]
fn the_summary_counts_keys_read_and_new() {
    let folder = Folder::new();
    let build = folder.run_with("build -p 1e-6 -o f.ib", "a\nb\na\na\n").expect(0);
    assert!(build.stderr.contains("4 keys read, 2 new; blocked, "), "{}", build.stderr);
    assert_eq!(build.stderr.lines().count(), 1, "one line: {}", build.stderr);
    assert_eq!(folder.info("f.ib")["inserted"], 2);
}

#[test]
fn more_keys_than_planned_are_taken_and_said() {
    let folder = Folder::new();
    let build = folder.run_with("build -n 100 -o f.ib", numbers(0, 1_000)).expect(0);
    assert!(build.stderr.contains("warning: planned for 100 keys"), "{}", build.stderr);
    let info = folder.run("info f.ib").expect(0);
    assert!(info.text().contains("ABOVE the promise"), "{}", info.text());
    folder.run_with("check -v f.ib", numbers(0, 1_000)).expect(1);
}

#[test]
fn memory_is_what_was_asked_for() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 1_000));
    folder.run("build --bytes 64KiB -o f.ib keys.txt").expect(0);
    assert_eq!(folder.info("f.ib")["bytes"], 65_536);
    assert_eq!(folder.info("f.ib")["planned_items"], 1_000);
    folder.run("build --bytes 64KiB -p 0.001 -o f.ib keys.txt").expect(0);
    assert_eq!(folder.info("f.ib")["bytes"], 65_536);
    assert!(folder.info("f.ib")["planned_items"].as_u64() > Some(10_000), "the capacity");
    folder.run("build --kind classic --tier small -o f.ib keys.txt").expect(0);
    assert_eq!(folder.info("f.ib")["bits"], 8_000);
    folder.run("build --kind classic --bits-per-key 12.5 -o f.ib keys.txt").expect(0);
    assert_eq!(folder.info("f.ib")["bits"], 12_500);
    folder.run("build --bytes 64KiB --tier small -o f.ib keys.txt").expect_error(&["--tier"]);
}

#[test]
fn note_and_auto_clear_are_kept_in_the_file() {
    let folder = Folder::new();
    let mut command = folder.command("build -o f.ib --auto-clear 0.8 --note");
    let output = command.arg("seen in \x1b[1mMay").stdin(Stdio::null()).output().expect("it runs");
    assert!(output.status.success());
    assert_eq!(folder.info("f.ib")["note"], "seen in \x1b[1mMay");
    assert_eq!(folder.info("f.ib")["auto_clear"], 0.8);
    let text = folder.run("info f.ib").expect(0).text();
    assert!(!text.contains('\x1b'), "a note must not drive the terminal: {text}");
}

#[test]
fn a_filter_with_auto_clear_empties_itself_and_says_so() {
    let folder = Folder::new();
    let build =
        folder.run_with("build -n 100 --auto-clear 0.8 -o f.ib", numbers(0, 5_000)).expect(0);
    assert!(build.stderr.contains("emptied itself"), "{}", build.stderr);
    assert!(folder.info("f.ib")["fill"].as_f64() <= Some(0.81));
    folder.run_with("check -q f.ib", "0\n").expect(1);
}

#[test]
fn a_bitmap_is_built_from_integers_and_is_exact() {
    let folder = Folder::new();
    let build = "build --kind bitmap --universe 1000 -o f.ib";
    folder.run_with(build, "4\n7\n2\n5\n3\n7\n").expect(0);
    let found = folder.run_with("check f.ib", numbers(0, 2_000)).expect(0);
    assert_eq!(found.text(), "2\n3\n4\n5\n7\n");
    assert_eq!(folder.info("f.ib")["inserted"], 5);
    assert_eq!(folder.info("f.ib")["current_rate"], 0.0);

    folder.write("bad.txt", "1\n2\nthree\n4\n");
    folder.run(&format!("{build} bad.txt")).expect_error(&["bad.txt: line 3:", "three", "decimal"]);
    folder.run_with(build, "1\n-2\n").expect_error(&["(standard input): line 2:", "-2"]);
    folder.run_with(build, "1\n1000\n").expect_error(&["(standard input): line 2:", "1000"]);
    folder.run_with("check f.ib", "2 \n").expect_error(&["line 1:", "2 "]);
    folder.run_with("build --kind bitmap -o g.ib", "1\n").expect_error(&["universe"]);
    assert_eq!(folder.info("f.ib")["inserted"], 5, "failed builds left it alone");
}

// ---- Lines --------------------------------------------------------------------------------------

#[test]
fn a_last_line_without_newline_counts() {
    let folder = Folder::with_names();
    folder.run_with("build -o f.ib", "a\nb").expect(0);
    assert_eq!(folder.run_with("check f.ib", "b").expect(0).text(), "b\n");
    folder.write("keys.txt", "a\nb");
    folder.run("build -o g.ib keys.txt").expect(0);
    assert_eq!(folder.info("g.ib")["planned_items"], 2);
}

#[test]
fn an_empty_input_gives_an_empty_filter() {
    let folder = Folder::new();
    folder.write("empty.txt", "");
    for build in ["build -o f.ib", "build -o f.ib empty.txt", "build -n 0 -o f.ib"] {
        let build = folder.run(build).expect(0);
        assert!(build.stderr.contains("0 keys read, 0 new"), "{}", build.stderr);
        assert_eq!(folder.info("f.ib")["ones"], 0);
        folder.run_with("check f.ib", "a\n\n").expect(1);
        folder.run("info f.ib").expect(0);
    }
    folder.run("check f.ib empty.txt").expect(1);
}

#[test]
fn an_empty_line_is_a_key() {
    let folder = Folder::with_names();
    folder.run_with("check -c names.ib", "\n").expect(1);
    folder.run_with("build -p 1e-6 -o f.ib", "a\n\n").expect(0);
    assert_eq!(folder.run_with("check f.ib", "\nb\n").expect(0).text(), "\n");
}

#[test]
fn lines_are_bytes_not_text() {
    let folder = Folder::new();
    let keys = b"nul \0 inside\n\xff\xfe not utf-8\ncarriage return\r\n";
    folder.run_with("build -p 1e-6 -o f.ib", keys).expect(0);
    assert_eq!(folder.run_with("check f.ib", keys).expect(0).stdout, keys);
    folder.run_with("check f.ib", "carriage return\nnul \n").expect(1);
}

#[test]
fn nul_terminated_records_may_hold_newlines() {
    let folder = Folder::new();
    folder.run_with("build -0 -p 1e-6 -o f.ib", "a\nb\0c\0").expect(0);
    let found = folder.run_with("check -0 f.ib", "x\0a\nb\0c").expect(0);
    assert_eq!(found.stdout, b"a\nb\0c\0");
    folder.run_with("check f.ib", "a\nb\n").expect(1);
}

#[test]
fn a_line_may_be_twenty_megabytes_long() {
    let folder = Folder::new();
    let long = "x".repeat(20 << 20);
    let keys = format!("short\n{long}\nafter\n");
    folder.write("keys.txt", &keys);
    folder.run("build -p 1e-6 -o f.ib keys.txt").expect(0);
    assert_eq!(folder.info("f.ib")["inserted"], 3);
    assert!(folder.run_with("check f.ib", &keys).expect(0).stdout == keys.as_bytes());
    folder.run_with("check f.ib", &long[1..]).expect(1);
}

// ---- check, like grep ---------------------------------------------------------------------------

#[test]
fn check_selects_as_grep_does() {
    let folder = Folder::with_names();
    folder.write("a.txt", "alice\nmallory\nbob\n");
    folder.write("b.txt", "trudy\ncarol\n");
    for (arguments, code, expected) in [
        ("names.ib a.txt", 0, "alice\nbob\n"),
        ("names.ib a.txt b.txt", 0, "alice\nbob\ncarol\n"),
        ("-v names.ib a.txt b.txt", 0, "mallory\ntrudy\n"),
        ("--invert-match names.ib a.txt", 0, "mallory\n"),
        ("-c names.ib a.txt b.txt", 0, "3\n"),
        ("-cv names.ib a.txt b.txt", 0, "2\n"),
        ("-cH names.ib a.txt b.txt", 0, "a.txt:2\nb.txt:1\n"),
        ("-H names.ib a.txt b.txt", 0, "a.txt:alice\na.txt:bob\nb.txt:carol\n"),
        ("-n names.ib a.txt b.txt", 0, "1:alice\n3:bob\n2:carol\n"),
        ("-nH names.ib b.txt", 0, "b.txt:2:carol\n"),
        ("-q names.ib a.txt", 0, ""),
        ("-qc names.ib a.txt", 0, ""),
        ("-qv names.ib names.txt", 1, ""),
        ("-v names.ib names.txt", 1, ""),
        ("-cv names.ib names.txt", 1, "0\n"),
    ] {
        let outcome = folder.run(&format!("check {arguments}"));
        assert_eq!((outcome.code, outcome.text().as_str()), (code, expected), "check {arguments}");
        assert_eq!(outcome.stderr, "", "check {arguments}");
    }
    let piped = folder.run_with("check -H names.ib", "alice\n").expect(0);
    assert_eq!(piped.text(), "(standard input):alice\n");
}

#[test]
fn check_reports_a_bad_input_reads_the_others_and_exits_2() {
    let folder = Folder::with_names();
    fs::create_dir(folder.path("folder")).expect("a new folder");
    let outcome = folder.run("check names.ib missing.txt folder names.txt").expect(2);
    assert_eq!(outcome.text(), "alice\nbob\ncarol\n");
    assert!(outcome.stderr.contains("missing.txt"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("folder is a directory"), "{}", outcome.stderr);
    folder.run("check -q names.ib missing.txt names.txt").expect(0);
    folder.run("check -q names.ib missing.txt").expect_error(&["missing.txt"]);
}

/// Does it in a thread, so that a command that hangs fails its test and not the whole run.
fn within_ten_seconds<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || drop(send.send(work())));
    receive.recv_timeout(Duration::from_secs(10)).expect("the command hangs, or its thread failed")
}

fn exit_code(mut child: Child) -> i32 {
    let wait = move || child.wait().expect("it was started").code();
    within_ten_seconds(wait).expect("no signal ended it")
}

#[test]
fn quiet_stops_at_the_first_hit_without_waiting_for_more() {
    let folder = Folder::with_names();
    let mut child = folder.command("check -q names.ib").spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(b"mallory\nalice\n").expect("it reads");
    assert_eq!(exit_code(child), 0);
    drop(stdin);
}

#[test]
fn a_slow_input_is_answered_line_by_line() {
    let folder = Folder::with_names();
    let mut child = folder.command("check names.ib").spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    for name in ["alice\n", "bob\n"] {
        stdin.write_all(name.as_bytes()).expect("it reads");
        let (rest, answer) = within_ten_seconds(move || {
            let mut answer = String::new();
            stdout.read_line(&mut answer).expect("it is text");
            (stdout, answer)
        });
        assert_eq!(answer, name, "before the input ends");
        stdout = rest;
    }
    drop(stdin);
    assert_eq!(exit_code(child), 0);
}

#[test]
fn a_reader_that_goes_away_ends_check_quietly() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 500_000));
    folder.run("build -o f.ib keys.txt").expect(0);
    let mut child = folder.command("check f.ib keys.txt").spawn().expect("it starts");
    let mut first = [0; 2];
    child.stdout.take().expect("it is piped").read_exact(&mut first).expect("it prints");
    let mut stderr = String::new();
    let mut pipe = child.stderr.take().expect("it is piped");
    pipe.read_to_string(&mut stderr).expect("it is text");
    assert_eq!((exit_code(child), stderr.as_str()), (0, ""));
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let folder = Folder::with_names();
    for arguments in ["check names.ib names.txt", "check -c names.ib names.txt", "info names.ib"] {
        let full = fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        let mut command = folder.command(arguments);
        let output = command.stdout(full).stdin(Stdio::null()).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains("cannot write to standard output"), "{message}");
    }
}

// ---- info ---------------------------------------------------------------------------------------

#[test]
fn info_fits_one_screen_and_shows_what_was_promised_and_what_is() {
    let folder = Folder::new();
    folder.run_with("build -n 1000 -p 0.001 -o f.ib", numbers(0, 500)).expect(0);
    let text = folder.run("info f.ib").expect(0).text();
    assert!(text.lines().count() <= 24 && text.lines().all(|line| line.len() <= 80), "{text}");
    for expected in [
        "blocked",
        "1,000",
        "0.100%",
        "keys told new   500\n",
        "within the promise",
        "never",
        "none",
    ] {
        assert!(text.contains(expected), "no '{expected}' in:\n{text}");
    }
    let info = folder.info("f.ib");
    let estimate = info["estimated_items"].as_f64().expect("a number");
    let error = info["estimated_items_error"].as_f64().expect("a number");
    assert!((estimate - 500.0).abs() <= 5.0 * error.max(1.0), "{estimate} +- {error}");
    assert_eq!(info["file_bytes"], folder.read("f.ib").len());
    assert_eq!(info["verified"], false);
    let verified = folder.run("info --verify --json f.ib").expect(0).json();
    assert_eq!(verified["verified"], true);
}

#[test]
fn info_shows_what_is_particular_to_a_kind() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 1_000));
    for (options, rows) in [
        (
            "counting --width 8",
            &["counters ", " of 8 bits\n", "saturated ", "counters in use "][..],
        ),
        ("cuckoo", &["fingerprints ", "load ", "of 1088 slots", "slots in use "]),
        ("window --window 500", &["window ", "the last 500 keys, in 4 steps\n", "generations "]),
        ("window --window 7d --generations 7", &["7 d, in 7 steps\n", "clock ", "in a generation"]),
    ] {
        folder.run(&format!("build --kind {options} -o f.ib keys.txt")).expect(0);
        let text = folder.run("info f.ib").expect(0).text();
        assert!(text.lines().count() <= 24 && text.lines().all(|line| line.len() <= 80), "{text}");
        for row in rows {
            assert!(text.contains(row), "no '{row}' in:\n{text}");
        }
        assert!(!text.contains("ABOVE") && !text.contains("FULL"), "{text}");
        let info = folder.info("f.ib");
        let details = info["details"].as_object().expect("an object");
        assert!(!details.is_empty() && details.values().all(Value::is_string), "{info}");
        assert_eq!(info["full"], false);
        assert_eq!(info["shard"], Value::Null);
    }
    assert_eq!(folder.info("f.ib")["width"], Value::Null);
    folder.run("build --kind counting --width 8 -o f.ib keys.txt").expect(0);
    assert_eq!(folder.info("f.ib")["width"], 8);
}

#[test]
fn info_says_that_a_cuckoo_filter_is_full() {
    let folder = Folder::new();
    let plan = Plan::new(Kind::Cuckoo).items(1_000).build().expect("a plan");
    let mut filter = Filter::new(plan).expect("little memory");
    let fits = (0..2_000_u64).take_while(|key| filter.insert(key.to_le_bytes()).is_ok()).count();
    assert!(fits > 1_000, "{fits}");
    file::save(&filter, folder.path("f.ib")).expect("it is saved");
    let text = folder.run("info f.ib").expect(0).text();
    assert!(text.contains("and FULL: more keys may be refused"), "{text}");
    assert_eq!(folder.info("f.ib")["full"], true);
}

#[test]
fn a_filter_that_grows_holds_more_than_planned_and_is_within_its_promise() {
    let folder = Folder::new();
    let build = folder
        .run_with("build --kind scalable -n 100 -p 0.01 -o f.ib", numbers(0, 10_000))
        .expect(0);
    assert_eq!(build.stderr.lines().count(), 1, "no warning: {}", build.stderr);
    folder.run_with("check -v f.ib", numbers(0, 10_000)).expect(1);
    let text = folder.run("info --verify f.ib").expect(0).text();
    assert!(text.contains("100 at first; grows by 2 when full"), "{text}");
    assert!(text.contains("within the promise"), "{text}");
    let info = folder.info("f.ib");
    assert!(info["bytes"].as_u64() > info["planned_bytes"].as_u64(), "{info}");
    assert_eq!(info["growth"], 2);
}

#[test]
fn damage_is_found_and_named() {
    let folder = Folder::with_names();
    let good = folder.read("names.ib");

    // Every byte of the header matters, and --verify covers all others.
    for place in (0..good.len()).step_by(7).chain([good.len() - 1]) {
        let mut bad = good.clone();
        bad[place] ^= 0x10;
        folder.write("bad.ib", &bad);
        let outcome = folder.run("info --verify bad.ib");
        assert_eq!(outcome.code, 2, "byte {place}: {}{}", outcome.text(), outcome.stderr);
        assert!(!outcome.stderr.contains("panicked"), "byte {place}: {}", outcome.stderr);
    }
    for length in [0, 1, 7, 8, 64, 191, 192, good.len() / 2, good.len() - 1] {
        folder.write("cut.ib", &good[..length]);
        folder.run("info cut.ib").expect_error(&["cut.ib"]);
        folder.run_with("check cut.ib", "alice\n").expect_error(&["cut.ib"]);
    }
    let mut newer = good.clone();
    newer[8] = 2; // the version, see docs/format.md
    folder.write("newer.ib", newer);
    for command in ["info newer.ib", "info --verify newer.ib", "check newer.ib names.txt"] {
        folder.run(command).expect_error(&["newer.ib", "version 2", "upgrade inbloom"]);
    }
    folder.write("longer.ib", [&good[..], b"\n"].concat());
    folder.run("info longer.ib").expect_error(&["longer.ib"]);
    folder.write("text.ib", "alice\nbob\n".repeat(100));
    folder.run("info text.ib").expect_error(&["text.ib", "inbloom"]);
    folder.run("info names.txt").expect_error(&["names.txt"]);
    folder.run("info missing.ib").expect_error(&["missing.ib", "No such file"]);
    folder.run("info .").expect_error(&["."]);
}

#[test]
fn filters_that_lines_cannot_be_looked_up_in_as_they_are_say_so() {
    let folder = Folder::new();
    let plan = Plan::new(Kind::Blocked).items(10).build().expect("a plan");

    let mut lower = Filter::new(plan).expect("little memory");
    lower.insert("alice").expect("it is writable");
    lower.set_normalization("lower case").expect("a short text");
    file::save(&lower, folder.path("lower.ib")).expect("it is saved");
    let outcome = folder.run_with("check lower.ib", "alice\n").expect(0);
    assert_eq!(outcome.text(), "alice\n");
    assert!(outcome.stderr.contains("normalized (lower case)"), "{}", outcome.stderr);

    let keyed = Filter::with_hasher(plan, Hasher::sip13(Key::new([7; 16]))).expect("little memory");
    file::save(&keyed, folder.path("keyed.ib")).expect("it is saved");
    folder.run_with("check keyed.ib", "alice\n").expect_error(&["keyed.ib", "key"]);
}

// ---- plan ---------------------------------------------------------------------------------------

fn kind<'a>(plan: &'a Value, name: &str) -> &'a Value {
    let kinds = plan["kinds"].as_array().expect("a list");
    kinds.iter().find(|kind| kind["kind"] == name).expect("every kind is listed")
}

#[test]
fn plan_knows_the_ten_billion_key_list() {
    let folder = Folder::new();
    let plan = folder.run("plan -n 10e9 -p 1e-4 --json").expect(0).json();
    let classic = kind(&plan, "classic");
    assert_eq!(classic["items"], 10_000_000_000_u64);
    assert_eq!(classic["probes"], 13);
    let bits = classic["bits_per_key"].as_f64().expect("a number");
    assert!((19.17..19.19).contains(&bits), "{bits}");
    assert_eq!(classic["cache_lines"], 13);
    assert!(kind(&plan, "bitmap")["refused"].as_str().expect("why").contains("universe"));
    let blocked = kind(&plan, "blocked");
    assert!(blocked["bytes"].as_u64() <= Some(30_000_000_000), "within 30 GB: {blocked}");

    let text = folder.run("plan -n 10e9 -p 1e-4").expect(0).text();
    for expected in ["bitmap ", "universe", "classic ", "blocked ", "24.0 GB", "100% ", "200% "] {
        assert!(text.contains(expected), "no '{expected}' in:\n{text}");
    }
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
}

#[test]
fn plan_computes_what_is_missing() {
    let folder = Folder::new();
    let plan = |arguments: &str| folder.run(&format!("plan --json {arguments}")).expect(0).json();
    let number = |value: &Value| value.as_f64().expect("a number");

    // 25 GB for ten billion keys, with 14 probes: 0.0067%.
    let rate =
        number(&kind(&plan("-n 10G --bytes 25GB --probes 14 --kind classic"), "classic")["rate"]);
    assert!((0.66e-4..0.68e-4).contains(&rate), "{rate}");
    let tier = number(&kind(&plan("-n 1M --tier small"), "classic")["rate"]);
    assert!((0.0215..0.0217).contains(&tier), "{tier}");
    let bits = number(&kind(&plan("-n 1M --bits-per-key 8"), "classic")["rate"]);
    assert_eq!(bits, tier);
    let items = number(&kind(&plan("--bytes 1MB -p 1%"), "classic")["items"]);
    assert!((830_000.0..836_000.0).contains(&items), "8e6 bits / 9.585 = {items}");
    let default = plan("-n 1M");
    assert_eq!(kind(&default, "blocked")["rate"], 0.01);
    let bitmap = plan("-n 1M -p 0.01 --universe 10M");
    assert_eq!(kind(&bitmap, "bitmap")["bytes"], 1_250_000);
    assert_eq!(kind(&bitmap, "blocked")["items"], 1_000_000);
    assert_eq!(plan("-n 5 --kind blocked")["kinds"].as_array().map(Vec::len), Some(1));
}

#[test]
fn the_curve_rises_through_the_promise() {
    let folder = Folder::new();
    let plan = folder.run("plan -n 1M -p 0.001 --json").expect(0).json();
    for name in ["classic", "blocked"] {
        let curve = kind(&plan, name)["curve"].as_array().expect("a list").clone();
        let rates: Vec<f64> = curve.iter().map(|p| p["rate"].as_f64().expect("a rate")).collect();
        assert!(rates.is_sorted(), "{name}: {rates:?}");
        let at_capacity = curve.iter().find(|point| point["items"] == 1_000_000.0).expect("100%");
        assert!(at_capacity["rate"].as_f64() <= Some(0.001), "{name}: {at_capacity}");
        assert!(rates[0] < 0.000_01 && rates[rates.len() - 1] > 0.01, "{name}: {rates:?}");
    }
}

#[test]
fn a_plan_that_no_kind_can_follow_is_an_error() {
    let folder = Folder::new();
    folder.run("plan").expect_error(&["no kind", "\n  bitmap: ", "\n  classic: ", "items"]);
    folder.run("plan -p 0.01").expect_error(&["items"]);
    folder.run("plan -n 1M --kind bitmap").expect_error(&["universe"]);
    folder.run("plan --kind classic --universe 5 -n 5").expect_error(&["universe"]);
    folder.run("plan -n 1e15 --bits-per-key 400").expect_error(&["bits", "at most"]);
    folder.run("plan -n 1M --bytes 1kB -p 1e-6").expect_error(&["rate"]);
}

#[test]
fn plan_compares_every_kind_and_says_what_is_particular() {
    let folder = Folder::new();
    let text = folder.run("plan -n 1M -p 0.001").expect(0).text();
    for kind in Kind::ALL {
        let row = text.lines().find(|line| line.split(' ').next() == Some(kind.name()));
        let row = row.unwrap_or_else(|| panic!("no {kind} in:\n{text}"));
        assert!(*kind == Kind::Bitmap || row.contains("0.100%"), "{row}");
    }
    assert!(
        text.contains("window keeps the last 1,000,000 keys, and forgets in 4 steps"),
        "{text}"
    );
    assert!(text.contains("scalable starts at this size"), "{text}");
    let full: Vec<&str> = text.lines().filter(|line| line.contains("%     full ")).collect();
    assert_eq!(full.len(), 2, "a cuckoo filter does not take half as many again: {full:?}");
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");

    let plan = "plan -n 1M -p 0.001 --json --window 7d --generations 7 --width 2 --growth 8";
    let plan = folder.run(plan).expect(0).json();
    let (window, counting) = (kind(&plan, "window"), kind(&plan, "counting"));
    assert_eq!((&window["window_ms"], &window["generations"]), (&604_800_000.into(), &7.into()));
    assert_eq!((&window["forget"], &window["cache_lines"]), (&true.into(), &8.into()));
    assert_eq!((&counting["width"], &counting["growth"]), (&2.into(), &Value::Null));
    let scalable = kind(&plan, "scalable");
    assert_eq!((&scalable["growth"], &scalable["grow"]), (&8.into(), &true.into()));
    let cuckoo = kind(&plan, "cuckoo");
    assert_eq!((&cuckoo["probes"], &cuckoo["remove"]), (&Value::Null, &true.into()));
    assert_eq!(cuckoo["curve"][5]["rate"], Value::Null, "full");
    assert_eq!(kind(&plan, "blocked")["width"], Value::Null);
}

#[test]
fn options_of_other_kinds_are_refused() {
    let folder = Folder::new();
    for (arguments, words) in [
        ("--kind blocked --width 4", ["blocked cannot choose a width", "counters"]),
        ("--kind cuckoo --width 4", ["cuckoo cannot choose a width", "rate"]),
        ("--kind counting --width 3", ["width is 3", "2, 4 or 8"]),
        ("--kind counting --growth 2", ["counting cannot grow", "scalable"]),
        ("--kind scalable --growth 3", ["growth is 3", "2, 4 or 8, or 0"]),
        ("--kind scalable --window 5", ["scalable cannot forget", "window"]),
        ("--kind blocked --window 7d", ["blocked cannot forget", "window"]),
        ("--kind classic --generations 2", ["classic cannot forget", "window"]),
        ("--kind window --window 7d --generations 65", ["generations is 65", "1 to 64"]),
        ("--kind window --window 3ms --generations 4", ["window is 3", "at least as long"]),
        ("--kind window --window 7w", ["'7w'", "7d, 12h, 30min"]),
        ("--kind window --window 5 --universe 5", ["universe", "bitmap"]),
    ] {
        let n = if arguments.contains("--window 5") { "" } else { "-n 100" };
        folder.run(&format!("plan {n} {arguments}")).expect_error(&words);
        folder.run(&format!("build {n} -o f.ib {arguments}")).expect_error(&words);
    }
    folder.run("build -o f.ib --kind window").expect_error(&["needs the window"]);
    folder.run("plan --kind window -n 100 --window 50").expect_error(&["items is 100"]);
    assert!(folder.names().is_empty(), "nothing was written");
}

// ---- Bad arguments ------------------------------------------------------------------------------

#[test]
fn bad_numbers_are_refused_with_what_is_expected() {
    let folder = Folder::new();
    for (arguments, words) in [
        ("-n 1.5", ["'1.5'", "fraction"]),
        ("-n -1", ["'-1'", "negative"]),
        ("-n abc", ["'abc'", "whole number"]),
        ("-n NaN", ["'NaN'", "not a number"]),
        ("-n 1e30", ["'1e30'", "too large"]),
        ("-p 0", ["'0'", "between 0 and 1"]),
        ("-p 1", ["'1'", "between 0 and 1"]),
        ("-p abc", ["'abc'", "not a number"]),
        ("-p NaN", ["'NaN'", "between 0 and 1"]),
        ("-p -0.1", ["'-0.1'", "between 0 and 1"]),
        ("--bytes 64Q", ["'64Q'", "64MiB"]),
        ("--bits-per-key 0", ["'0'", "above 0"]),
        ("--probes x", ["'x'", "--probes"]),
        ("--tier huge", ["'huge'", "very-small"]),
        ("--kind cuckooo", ["'cuckooo'", "blocked"]),
    ] {
        folder.run(&format!("plan {arguments}")).expect_error(&words);
        folder.run(&format!("build -o f.ib {arguments}")).expect_error(&words);
    }
    folder.run("build -o f.ib --auto-clear 1.5").expect_error(&["'1.5'", "0.8"]);
    folder.run("build -o f.ib -p 1e-13 -n 5").expect_error(&["1e-12"]);
    folder.run("build -o f.ib -n 1e15").expect_error(&["memory"]);
    assert!(folder.names().is_empty(), "nothing was written");
}

#[test]
fn misuse_is_exit_code_2_and_help_is_0() {
    let folder = Folder::new();
    folder.run("").expect_error(&["Usage"]);
    folder.run("frobnicate").expect_error(&["frobnicate"]);
    folder.run("build").expect_error(&["--output"]);
    folder.run("check").expect_error(&["FILTER"]);
    folder.run("check -x f").expect_error(&["-x"]);
    for command in ["", "plan ", "build ", "check ", "info "] {
        let help = folder.run(&format!("{command}--help")).expect(0).text();
        assert!(help.contains("Examples:") && help.contains("Exit status:"), "{help}");
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    }
    assert!(folder.run("--version").expect(0).text().starts_with("inbloom 0."));
}

// ---- A failed build leaves no trace -------------------------------------------------------------

#[test]
fn a_failed_build_leaves_the_old_file_and_nothing_else() {
    let folder = Folder::with_names();
    fs::create_dir(folder.path("folder")).expect("a new folder");
    folder.write("bad.txt", "1\nx\n");
    let before = (folder.read("names.ib"), folder.names());
    folder.run("build -o names.ib missing.txt").expect_error(&["cannot open missing.txt"]);
    folder.run("build -o names.ib names.txt missing.txt").expect_error(&["missing.txt"]);
    folder.run("build -o names.ib folder").expect_error(&["folder is a directory"]);
    folder.run("build -o names.ib -n 5 folder").expect_error(&["folder is a directory"]);
    folder
        .run("build -o names.ib --kind bitmap --universe 10 bad.txt")
        .expect_error(&["bad.txt: line 2"]);
    folder.run("build -o names.ib -n 1e15 names.txt").expect_error(&["memory"]);
    folder.run("build -o missing/f.ib names.txt").expect_error(&["missing/f.ib", "No such file"]);
    folder.run("build -o folder names.txt").expect_error(&["folder", "not a file"]);
    folder.run("build -o names.txt/f.ib names.txt").expect_error(&["names.txt/f.ib"]);
    assert!(before == (folder.read("names.ib"), folder.names()), "{:?}", folder.names());
}

#[cfg(unix)]
#[test]
fn what_may_not_be_read_or_written_is_said() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::with_names();
    let mode = |name: &str, mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(folder.path(name), permissions).expect("it is ours");
    };
    fs::create_dir(folder.path("locked")).expect("a new folder");
    mode("names.txt", 0o000);
    mode("locked", 0o555);
    if fs::read(folder.path("names.txt")).is_ok() {
        return; // root may read and write everything
    }
    folder.run("build -o f.ib names.txt").expect_error(&["cannot open names.txt", "denied"]);
    folder.run("check names.ib names.txt").expect_error(&["cannot open names.txt", "denied"]);
    folder.run("info names.txt").expect_error(&["names.txt", "denied"]);
    folder.run_with("build -o locked/f.ib", "a\n").expect_error(&["locked/f.ib", "denied"]);
}

#[cfg(unix)]
#[test]
fn a_device_is_not_replaced_by_a_filter() {
    let folder = Folder::with_names();
    folder.run("build -o /dev/null names.txt").expect_error(&["/dev/null", "not a file"]);
}

#[test]
fn an_existing_filter_is_replaced_by_a_new_one() {
    let folder = Folder::with_names();
    folder.run_with("build -p 1e-6 -o names.ib", "dave\n").expect(0);
    folder.run_with("check names.ib", "alice\n").expect(1);
    folder.run_with("check names.ib", "dave\n").expect(0);
    assert_eq!(folder.names(), ["names.ib", "names.txt"]);
}
