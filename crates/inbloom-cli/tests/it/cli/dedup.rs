//! `inbloom dedup`: first occurrences, in order, across runs and crashes.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use inbloom::{Filter, Kind, Plan};

use crate::cli::folder::{Folder, exit_code, numbers, within_ten_seconds};

/// Lines of which about half have come before, in an order that looks random.
fn repetitive(lines: u64) -> String {
    let number = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17;
    (0..lines).map(|i| format!("https://example.org/{}\n", number(i) % (lines / 2))).collect()
}

fn first_occurrences(text: &str) -> String {
    let mut seen = HashSet::new();
    text.split_inclusive('\n').filter(|line| seen.insert(*line)).collect()
}

fn repetitions(text: &str) -> String {
    let mut seen = HashSet::new();
    text.split_inclusive('\n').filter(|line| !seen.insert(*line)).collect()
}

/// The allocator's memory would come in pages of 2 MiB, most of each unused.
#[test]
#[cfg(target_os = "linux")]
fn a_small_filter_takes_no_huge_pages() {
    let folder = Folder::new();
    let mut child = folder.command("dedup --line-buffered").spawn().expect("it starts");
    let mut input = child.stdin.take().expect("piped");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let text = first_occurrences(&repetitive(2000));
    input.write_all(text.as_bytes()).expect("it reads");
    let mut line = String::new();
    for _ in text.lines() {
        output.read_line(&mut line).expect("it prints");
    }
    let pages = fs::read_to_string(format!("/proc/{}/smaps_rollup", child.id())).expect("it runs");
    drop(input);
    assert!(child.wait().expect("it ends").success());
    let huge = pages.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    let huge = huge.and_then(|rest| rest.trim().strip_suffix(" kB")).expect("kilobytes");
    // What was in use before the program could say so.
    assert!(huge.parse::<u64>().expect("a number") <= 6 << 10, "{huge} kB");
}

// ---- One run ------------------------------------------------------------------------------------

#[test]
fn first_occurrences_are_printed_in_order() {
    let folder = Folder::new();
    let text = repetitive(100_000);
    folder.write("in.txt", &text);
    let expected = first_occurrences(&text);
    for options in [
        "",
        "-n 50000",
        "-n 50000 -p 1e-9 -j 1",
        "-n 50000 -p 1e-9 -j 7",
        "--exact",
        "-n 50k --kind classic",
        "-n 50k --kind cuckoo",
        "-n 50k --kind counting",
        "--window 60000",
        "--window 1h -n 200k",
        "--bytes 1MiB",
        "-n 50k --bytes 1MiB",
    ] {
        let outcome = folder.run(&format!("dedup {options} in.txt")).expect(0);
        // 1e-6 of 50,000: a twentieth of a line.
        assert!(outcome.text() == expected, "{options}");
        let printed = expected.lines().count();
        let counts = format!("100,000 lines: {},{:03} ", printed / 1000, printed % 1000);
        assert!(outcome.stderr.contains(&counts), "{}", outcome.stderr);
    }
    assert_eq!(folder.run_with("dedup -q", &text).expect(0).stderr, "");
    assert_eq!(folder.names(), ["in.txt"], "without --filter nothing is kept");
}

#[test]
fn mistakes_are_as_many_as_the_summary_expects() {
    let folder = Folder::new();
    let text = numbers(0, 200_000);
    for (options, low, high) in [
        ("-n 200k -p 0.01 --overfull stop", 100, 2000),
        ("-n 200k -p 0.01", 10, 2000),
        ("-n 10k -p 0.01", 10, 2000),
        ("-p 0.01", 10, 2000),
        ("-n 140k -p 0.01 --overfull continue", 1_000, 9_000),
    ] {
        let outcome = folder.run_with(&format!("dedup {options}"), &text).expect(0);
        let dropped = 200_000 - outcome.text().lines().count();
        assert!((low..high).contains(&dropped), "{options}: {dropped}");
        let (_, rest) =
            outcome.stderr.split_once("(expected false positives: ").expect("the summary says it");
        let expected = rest.split(')').next().expect("a number");
        let expected: f64 = expected.replace(',', "").parse().expect("a number");
        // The filter's fill scatters, and so does the draw.
        let bound = 0.05 * expected + 5.0 * expected.sqrt();
        assert!((dropped as f64 - expected).abs() < bound, "{options}: {dropped} {expected}");
        let warned = outcome.stderr.contains("warning: the filter was planned for 140,000 lines");
        assert_eq!(warned, options.contains("140k"), "{}", outcome.stderr);
    }
}

#[test]
fn repeated_prints_exactly_what_dedup_drops() {
    let folder = Folder::new();
    let text = repetitive(20_000);
    for options in ["", "--exact", "-n 10k -p 1e-9"] {
        let outcome = folder.run_with(&format!("dedup --repeated {options}"), &text).expect(0);
        assert!(outcome.text() == repetitions(&text), "{options}");
    }
}

#[test]
fn count_prints_every_line_once_with_its_number_as_uniq_does() {
    let folder = Folder::new();
    let counted = folder.run_with("dedup --count", "b\na\nb\n\nb\n\n").expect(0);
    assert_eq!(counted.text(), "      3 b\n      1 a\n      2 \n");
    assert_eq!(folder.run_with("dedup --count", "").expect(0).text(), "");
    let counted = folder.run_with("dedup --count --header", "name\nb\nb\n").expect(0);
    assert_eq!(counted.text(), "name\n      2 b\n");
    let counted = folder.run_with("dedup --count -0", b"x\ny\0x\ny\0z").expect(0);
    assert_eq!(counted.text(), "      2 x\ny\0      1 z\0");
}

#[test]
fn what_counts_as_the_same_line_can_be_said() {
    let folder = Folder::new();
    let csv = "1,a,x\n2,b,y\n3,a,z\n";
    assert_eq!(folder.run_with("dedup -q -d , -f 2", csv).expect(0).text(), "1,a,x\n2,b,y\n");
    let mixed = "Alice\nalice \n bob\nBOB\n";
    let outcome = folder.run_with("dedup -q --normalize lower,trim", mixed).expect(0);
    assert_eq!(outcome.text(), "Alice\n bob\n", "lines are printed as they came");
    let urls = "HTTP://Example.ORG:80/a/../b#top\nhttp://example.org/b\nhttp://example.org/B\n";
    let outcome = folder.run_with("dedup -q --normalize url", urls).expect(0);
    assert_eq!(outcome.text(), "HTTP://Example.ORG:80/a/../b#top\nhttp://example.org/B\n");
    let outcome = folder.run_with("dedup -q --crlf", "a\r\na\nb\r\n").expect(0);
    assert_eq!(outcome.text(), "a\r\nb\r\n");
    let outcome = folder.run_with("dedup -q -0", b"a\nb\0c\0a\nb\0c").expect(0);
    assert_eq!(outcome.text(), "a\nb\0c\0");
}

#[test]
fn lines_of_any_kind_are_told_apart() {
    let folder = Folder::new();
    let bytes = b"\xff\xfe\n\xff\n\0\n\n\xff\xfe\n\0\n\n\xff";
    let outcome = folder.run_with("dedup -q", bytes).expect(0);
    assert_eq!(outcome.stdout, b"\xff\xfe\n\xff\n\0\n\n");
    let outcome = folder.run_with("dedup -q", "no newline at the end").expect(0);
    assert_eq!(outcome.text(), "no newline at the end\n");
    let outcome = folder.run_with("dedup", "").expect(0);
    assert!(outcome.stdout.is_empty());
    assert!(outcome.stderr.contains("0 lines: 0 unique"), "{}", outcome.stderr);
}

#[test]
fn a_window_lets_lines_return() {
    let folder = Folder::new();
    let text = numbers(0, 1000) + &numbers(0, 10) + &numbers(1000, 9000) + &numbers(0, 10);
    let outcome = folder.run_with("dedup -q --window 2000 -p 1e-9", &text).expect(0);
    assert!(outcome.text() == numbers(0, 9000) + &numbers(0, 10), "others stay away");
    // What is seen again and again still returns when its time has come, counted from its print.
    let text: String = (0..5000).map(|i| format!("again\n{i}\n")).collect();
    let outcome =
        folder.run_with("dedup -q --window 1000 --generations 10 -p 1e-9", text).expect(0);
    let returned = outcome.text().lines().filter(|line| *line == "again").count();
    assert!((4..=6).contains(&returned), "{returned}");
}

#[test]
fn a_filter_that_empties_itself_says_so() {
    let folder = Folder::new();
    let text = numbers(0, 5000) + &numbers(0, 10);
    let outcome = folder.run_with("dedup -n 1000 -p 0.001 --auto-clear 0.8", text).expect(0);
    assert!(outcome.stderr.contains("emptied itself"), "{}", outcome.stderr);
    let again = outcome.text().lines().rev().take(10).filter(|line| line.len() == 1).count();
    assert!(again >= 8, "what was forgotten is new again, but for false positives: {again} of 10");
}

#[test]
fn a_slow_input_is_answered_line_by_line() {
    let folder = Folder::new();
    for options in ["dedup", "dedup --line-buffered", "dedup --filter seen.ib -n 1000"] {
        let mut child = folder.command(options).spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let answers = within_ten_seconds(move || {
            let mut answers = String::new();
            for line in ["a\n", "b\n"] {
                stdin.write_all(line.as_bytes()).expect("it reads");
                stdout.read_line(&mut answers).expect("it answers");
            }
            answers
        });
        assert_eq!(answers, "a\nb\n");
        assert_eq!(exit_code(child), 0);
    }
}

// ---- Across runs --------------------------------------------------------------------------------

#[test]
fn a_filter_remembers_across_runs() {
    let folder = Folder::new();
    for options in ["", "-n 1000", "-n 1000 --kind cuckoo", "--window 5000", "--window 1h -n 9k"] {
        let dedup = format!("dedup -q --filter seen.ib {options}");
        assert_eq!(folder.run_with(&dedup, "a\nb\na\n").expect(0).text(), "a\nb\n", "{options}");
        assert_eq!(folder.run_with(&dedup, "b\nc\n").expect(0).text(), "c\n", "{options}");
        let again = folder.run_with("dedup -q --filter seen.ib", "a\nb\nc\nd\n").expect(0);
        assert_eq!(again.text(), "d\n", "{options}: later runs need no options");
        assert_eq!(folder.names(), ["seen.ib"]);
        folder.run("info --verify seen.ib").expect(0);
        fs::remove_file(folder.path("seen.ib")).expect("it was made");
    }
}

#[test]
fn normalization_is_remembered_with_the_filter() {
    let folder = Folder::new();
    folder.run_with("dedup --filter f.ib --normalize lower --crlf", "Alice\r\n").expect(0);
    let again = folder.run_with("dedup -q --filter f.ib", "ALICE\nbob\r\n").expect(0);
    assert_eq!(again.text(), "bob\r\n");
    assert_eq!(folder.run_with("check f.ib", "aLICE\nBOB\neve\n").expect(0).text(), "aLICE\nBOB\n");
    let other = folder.run_with("dedup --filter f.ib --normalize trim", "x\n");
    other.expect_error(&["f.ib", "\"crlf,lower\"", "not \"trim\"", "leave"]);
}

#[test]
fn a_filter_of_another_size_than_asked_for_is_refused() {
    let folder = Folder::new();
    folder.run_with("dedup --filter f.ib -n 1000", "a\n").expect(0);
    let before = folder.read("f.ib");
    for (options, words) in [
        ("-n 2000", &["-n 1,000, not 2,000", "leave the options"][..]),
        ("-n 1000 -p 0.01", &["-p 0.000001, not 0.01"]),
        ("-p 0.01", &["-p 0.000001, not 0.01"]),
        ("--kind classic", &["of kind blocked", "leave --kind out"]),
        ("--window 10", &["--window none, not 10 keys"]),
        ("--bytes 1M", &["--bytes", "not 1,000,000"]),
        ("--key-file key", &["the hash xxh3-128, not", "--key-file"]),
        ("--hash-seed 7", &["the hash xxh3-128, not xxh3-128 under seed 7", "--hash-seed"]),
    ] {
        folder.write("key", "00".repeat(16));
        let outcome = folder.run_with(&format!("dedup --filter f.ib {options}"), "b\n");
        outcome.expect_error(&[&["f.ib"], words].concat());
        assert_eq!(folder.read("f.ib"), before);
    }
    // What it was made with, in part or in full, is welcome.
    for options in ["-n 1000", "-p 1e-6", "--kind blocked", "-n 1000 -p 1e-6 --kind blocked"] {
        folder.run_with(&format!("dedup --filter f.ib {options}"), "a\n").expect(0);
    }
    for options in ["--bytes 1000000", "--window 1h -n 1000", "-n 1000 --bits-per-key 20"] {
        folder.run_with(&format!("dedup --filter g.ib {options}"), "a\n").expect(0);
        folder.run_with(&format!("dedup --filter g.ib {options}"), "a\n").expect(0);
        fs::remove_file(folder.path("g.ib")).expect("it was made");
    }
    let before = folder.read("f.ib");
    let outcome = folder.run_with("dedup --filter f.ib --auto-clear 0.5", "b\n");
    outcome.expect_error(&["f.ib", "--auto-clear"]);
    assert_eq!(folder.read("f.ib"), before);
}

#[test]
fn a_damaged_filter_is_refused_before_it_is_saved_again() {
    let folder = Folder::new();
    folder.run_with("dedup --filter f.ib -n 10k", numbers(0, 10_000)).expect(0);
    let mut bytes = folder.read("f.ib");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 100].fill(0xff);
    folder.write("f.ib", &bytes);
    folder.run_with("dedup --filter f.ib", "new\n").expect_error(&["f.ib", "checksum"]);
    folder.run("merge -o g.ib f.ib f.ib").expect_error(&["f.ib", "checksum"]);
    assert!(folder.read("f.ib") == bytes);
}

#[test]
fn a_filter_that_is_overfull_does_not_pretend_to_know_its_mistakes() {
    let folder = Folder::new();
    for options in ["-n 1000 -p 0.01", "--bytes 100 -n 1000"] {
        let dedup = format!("dedup --overfull continue {options}");
        let outcome = folder.run_with(&dedup, numbers(0, 100_000)).expect(0);
        assert!(
            outcome.stderr.contains("(expected false positives: up to all of them)"),
            "{}",
            outcome.stderr
        );
        // In 100 bytes there was no rate to keep: that is said before the first line.
        let warned = outcome
            .stderr
            .contains("warning: the filter was planned for 1,000 lines, and its rate is ");
        assert_eq!(warned, options.contains("-p"), "{}", outcome.stderr);
        assert_eq!(drops_most(&outcome.stderr), !options.contains("-p"), "{}", outcome.stderr);
    }
}

fn drops_most(stderr: &str) -> bool {
    let found = stderr.find("warning: a filter for ").map(|at| &stderr[at..]);
    found.is_some_and(|text| text.contains("of the new lines") && text.contains("--bytes"))
}

#[test]
fn memory_that_is_far_too_small_for_n_is_warned_of_also_with_quiet() {
    let folder = Folder::new();
    let text = numbers(0, 20_000);
    for options in ["", "--overfull continue", "--overfull stop", "--filter f.ib"] {
        let dedup = format!("dedup -q -n 100k --bytes 10k {options}");
        let outcome = folder.run_with(&dedup, &text).expect(0);
        assert!(outcome.text().lines().count() < 20_000, "{options}: lines are lost");
        assert!(drops_most(&outcome.stderr), "{options}: {}", outcome.stderr);
    }
    let again = folder.run_with("dedup -q --filter f.ib", &text).expect(0);
    assert!(drops_most(&again.stderr), "{}", again.stderr);
    // It is said to those only who did not ask for it.
    for options in ["-n 100k -p 0.5 --overfull stop", "-n 100k --bytes 1M"] {
        let outcome = folder.run_with(&format!("dedup -q {options}"), &text).expect(0);
        assert_eq!(outcome.stderr, "", "{options}");
    }
}

#[test]
fn an_input_that_fails_leaves_the_filter_as_it_was() {
    let folder = Folder::new();
    folder.write("in.txt", "a\n");
    folder.run("dedup --filter f.ib -n 1000 in.txt").expect(0);
    let before = folder.read("f.ib");
    folder.write("more.txt", "b\n");
    let outcome = folder.run("dedup --filter f.ib more.txt missing.txt").expect(2);
    assert!(outcome.stderr.contains("missing.txt"), "{}", outcome.stderr);
    assert_eq!(folder.read("f.ib"), before, "what was printed is printed again: at least once");
    assert_eq!(folder.run("dedup -q --filter f.ib more.txt").expect(0).text(), "b\n");
}

#[test]
fn a_reader_that_goes_away_leaves_unprinted_lines_unseen() {
    let folder = Folder::new();
    folder.write("in.txt", numbers(0, 300_000));
    let mut child = folder.command("dedup --filter f.ib in.txt").spawn().expect("it starts");
    let mut first = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    stdout.read_line(&mut first).expect("it prints");
    drop(stdout);
    assert_eq!(exit_code(child), 0, "as head would have it");
    let outcome = folder.run("dedup -q --filter f.ib in.txt").expect(0);
    assert!(outcome.text() == numbers(0, 300_000));
}

// ---- Interrupted --------------------------------------------------------------------------------

fn signal(child: &Child, name: &str) {
    let kill = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status();
    assert!(kill.expect("kill can be run").success());
}

#[test]
fn a_signal_to_stop_saves_what_was_printed() {
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let folder = Folder::new();
        let mut child = folder.command("dedup --filter f.ib").spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(b"a\nb\n").expect("it reads");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        stdout.read_line(&mut String::new()).expect("it prints");
        signal(&child, name);
        assert_eq!(exit_code(child), code, "the input is still open");
        drop(stdin);
        assert_eq!(folder.run_with("dedup -q --filter f.ib", "a\nb\nc\n").expect(0).text(), "c\n");
    }
}

#[test]
fn what_a_stopped_reader_has_not_taken_is_not_seen() {
    let folder = Folder::new();
    let mut child = folder.command("dedup --filter f.ib").spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut stdout = child.stdout.take().expect("it is piped");
    stdin.write_all(numbers(0, 1000).as_bytes()).expect("it reads");
    // Some are taken, the others stay in the pipe; then Ctrl-C stops both.
    stdout.read_exact(&mut [0; 100]).expect("it prints");
    signal(&child, "INT");
    thread::sleep(Duration::from_millis(100));
    drop(stdout);
    assert_eq!(exit_code(child), 130);
    drop(stdin);
    let again = folder.run_with("dedup -q --filter f.ib", numbers(0, 1000)).expect(0);
    assert!(again.text() == numbers(0, 1000), "all of them are printed again");
}

#[test]
fn a_signal_is_heard_while_the_reader_takes_nothing() {
    let folder = Folder::new();
    folder.write("in.txt", numbers(0, 300_000));
    let mut child = folder.command("dedup --filter f.ib in.txt").spawn().expect("it starts");
    let mut stdout = child.stdout.take().expect("it is piped");
    stdout.read_exact(&mut [0; 10]).expect("it prints");
    thread::sleep(Duration::from_millis(200));
    signal(&child, "TERM");
    assert_eq!(exit_code(child), 143, "the pipe is full, and still open");
    drop(stdout);
    let again = folder.run("dedup -q --filter f.ib in.txt").expect(0);
    assert!(again.text() == numbers(0, 300_000), "nothing was delivered, nothing is seen");
}

#[test]
fn a_reader_that_is_slower_than_the_input_does_not_keep_the_filter_from_being_saved() {
    let folder = Folder::new();
    folder.write("in.txt", numbers(0, 300_000));
    let dedup = "dedup --filter f.ib --save-every 50ms in.txt";
    let mut child = folder.command(dedup).spawn().expect("it starts");
    let mut stdout = child.stdout.take().expect("it is piped");
    let path = folder.path("f.ib");
    let saved = within_ten_seconds(move || {
        let (mut buffer, mut taken) = ([0; 4096], 0);
        while !path.exists() {
            thread::sleep(Duration::from_millis(5));
            match stdout.read(&mut buffer).expect("it prints") {
                0 => break,
                read => taken += read,
            }
        }
        taken
    });
    child.kill().expect("it can be killed, also if it has ended");
    child.wait().expect("it ends");
    assert!(saved < numbers(0, 300_000).len(), "it was saved on the way, not at the end");
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let folder = Folder::new();
    // As nohup does it.
    let script = format!("trap '' HUP; exec {} dedup --filter f.ib", env!("CARGO_BIN_EXE_inbloom"));
    let mut command = Command::new("bash");
    command.args(["-c", &script]).current_dir(folder.path("."));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("bash can be run");
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut lines = String::new();
    for line in ["a\n", "b\n"] {
        stdin.write_all(line.as_bytes()).expect("it still reads");
        stdout.read_line(&mut lines).expect("it prints");
        signal(&child, "HUP");
        thread::sleep(Duration::from_millis(300));
    }
    drop(stdin);
    assert_eq!(exit_code(child), 0);
    assert_eq!(lines, "a\nb\n");
}

#[test]
fn all_lines_of_a_time_may_come_at_once() {
    let folder = Folder::new();
    let outcome = folder.run_with("dedup --window 7d -n 10k", numbers(0, 10_000)).expect(0);
    assert_eq!(outcome.text().lines().count(), 10_000);
    assert!(!outcome.stderr.contains("warning"), "{}", outcome.stderr);
}

#[test]
fn a_filter_is_saved_while_lines_come_and_while_none_do() {
    let folder = Folder::new();
    let dedup = "dedup --filter f.ib -n 1000 --save-every 100ms";
    let mut child = folder.command(dedup).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(b"a\n").expect("it reads");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    stdout.read_line(&mut String::new()).expect("it prints");
    let path = folder.path("f.ib");
    let start = Instant::now();
    while !Filter::open(&path).is_ok_and(|filter| filter.contains("a")) {
        assert!(start.elapsed() < Duration::from_secs(10), "it is not saved");
        thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

/// Kills a command after so many microseconds, unless it has ended; true if it was killed.
fn kill_after(mut child: Child, micros: u64) -> bool {
    thread::sleep(Duration::from_micros(micros));
    child.kill().expect("it can be killed, also if it has ended");
    child.wait().expect("it ends").code().is_none()
}

/// Numbers without a pattern, the same in every run.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn kill_9_at_fifty_instants_loses_no_line_and_damages_no_filter() {
    let folder = Folder::new();
    let lines = 600_000;
    let text = repetitive(lines);
    folder.write("in.txt", &text);
    let dedup = "dedup --filter seen.ib -n 300k -p 1e-9 --save-every 1ms in.txt";
    let mut state = 1;
    let (mut printed, mut kills, mut saves) = (HashSet::new(), 0, 0);
    let mut last_save = Vec::new();
    let mut longest = 150_000;
    for instant in 0.. {
        let output = fs::File::create(folder.path("out.txt")).expect("a temporary folder");
        let child = folder.command(dedup).stdout(output).stderr(Stdio::null()).spawn();
        let killed = kill_after(child.expect("it starts"), random(&mut state) % longest);
        // What was cut off while it was written is not a line.
        let output = String::from_utf8(folder.read("out.txt")).expect("it is text");
        printed
            .extend(output.split_inclusive('\n').filter(|l| l.ends_with('\n')).map(str::to_owned));
        if let Ok(bytes) = fs::read(folder.path("seen.ib")) {
            let filter = Filter::read_from(bytes.as_slice()).expect("the file is whole");
            let known = text.split_inclusive('\n').filter(|line| filter.contains(line.trim_end()));
            let unprinted = known.filter(|line| !printed.contains(*line)).count();
            assert_eq!(unprinted, 0, "instant {instant}: seen, but never printed");
            saves += u32::from(last_save != bytes);
            last_save = bytes;
        }
        kills += u32::from(killed);
        // A slow disk needs longer until there is a save to be interrupted.
        if killed && saves == 0 {
            longest = longest * 5 / 4;
        }
        if kills >= 50 && saves >= 5 {
            break;
        }
        assert!(instant < 500, "{kills} kills and {saves} saves: the test proves little");
        if !killed {
            // It has come to its end: begin anew, and do not let it get so far.
            let all: HashSet<String> = text.split_inclusive('\n').map(str::to_owned).collect();
            assert!(printed == all);
            printed.clear();
            fs::remove_file(folder.path("seen.ib")).expect("it was saved");
            longest = longest * 3 / 4 + 1000;
        }
    }
    let names = folder.names();
    folder.run(dedup).expect(0).text().split_inclusive('\n').for_each(|line| {
        printed.insert(line.to_owned());
    });
    let all: HashSet<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    assert!(printed == all, "every line was printed at least once; files: {names:?}");
}

#[test]
fn kill_9_while_building_leaves_the_old_filter_or_the_new_one() {
    let folder = Folder::new();
    folder.write("old.txt", numbers(0, 1000));
    folder.write("new.txt", numbers(0, 300_000));
    folder.run("build -o f.ib old.txt").expect(0);
    let old = folder.read("f.ib");
    folder.run("build -o g.ib new.txt").expect(0);
    let new = folder.read("g.ib");
    let mut state = 2;
    let (mut kills, mut olds, mut longest) = (0, 0, 30_000);
    for round in 0.. {
        if kills >= 50 {
            break;
        }
        assert!(round < 2000, "it is too fast to be killed");
        fs::write(folder.path("f.ib"), &old).expect("a temporary folder");
        let child = folder.command("build -o f.ib new.txt").stderr(Stdio::null()).spawn();
        let killed = kill_after(child.expect("it starts"), random(&mut state) % longest);
        kills += u32::from(killed);
        let found = folder.read("f.ib");
        assert!(found == old || found == new, "half a file");
        olds += u32::from(found == old);
        if !killed {
            assert!(found == new);
            longest = longest * 3 / 4 + 100;
        }
    }
    assert!(olds > 0, "no kill came in time");
}

// ---- Refused ------------------------------------------------------------------------------------

#[test]
fn options_that_exclude_each_other_are_refused() {
    let folder = Folder::new();
    for (options, words) in [
        ("--exact --filter f.ib", &["--exact", "--filter", "keeps its keys in memory"][..]),
        ("--count --filter f.ib", &["--count", "--filter"]),
        ("--count --repeated", &["--count", "--repeated"]),
        ("--save-every 5s", &["--filter"]),
        ("--wait", &["--filter"]),
        ("--filter f.ib --wait=soon", &["--wait"]),
        ("--filter f.ib --save-every 5", &["60s"]),
        ("--window 7d", &["-n", "window"]),
        ("-d ,", &["-f", "--csv"]),
        ("-f 0", &["field"]),
        ("-p 0", &["rate of 0", "--kind bitmap", "--exact"]),
        ("-p 0.0%", &["rate of 0", "--kind bitmap", "--exact"]),
        ("--auto-clear 0.5", &["scalable", "clear"]),
        ("--filter missing/f.ib", &["missing/f.ib"]),
        ("--filter .", &["not a file"]),
        ("--exact --window 1s -n 5", &["--exact"]),
        ("--exact -p 0.1", &["--exact"]),
        ("--count -n 5", &["--count"]),
        ("--exact --save-every 5s", &["--save-every"]),
        ("--kind bitmap", &["universe"]),
        ("--kind ribbon -n 5", &["built once", "inbloom build"]),
    ] {
        folder.run_with(&format!("dedup {options}"), "a\n").expect_error(words);
    }
    assert!(folder.names().is_empty());
}

#[test]
fn a_filter_that_was_created_without_n_is_not_said_to_be_for_some_number() {
    let folder = Folder::new();
    folder.run_with("dedup --filter f.ib", "a\n").expect(0);
    let refused = folder.run_with("dedup --filter f.ib -n 40M", "b\n");
    refused.expect_error(&["f.ib", "was created without -n, not for 40,000,000"]);
    folder.run_with("dedup --filter g.ib -n 1000", "a\n").expect(0);
    let refused = folder.run_with("dedup --filter g.ib -n 40M", "b\n");
    refused.expect_error(&["g.ib", "with -n 1,000, not 40,000,000"]);
}

#[test]
fn a_filter_that_cannot_be_read_is_not_replaced() {
    let folder = Folder::new();
    folder.write("f.ib", "not a filter");
    folder.run_with("dedup --filter f.ib", "a\n").expect_error(&["f.ib"]);
    assert_eq!(folder.read("f.ib"), b"not a filter");
    let plan = Plan::builder(Kind::Cuckoo).items(100).rate(0.01).build().expect("a plan");
    Filter::new(plan).expect("memory").save(folder.path("full.ib")).expect("it is saved");
    // Taken knowingly, a cuckoo filter has an end all the same; what is saved is what was printed.
    let dedup = "dedup --filter full.ib --overfull continue";
    let outcome = folder.run_with(dedup, numbers(0, 10_000)).expect(2);
    assert!(outcome.stderr.contains("full"), "{}", outcome.stderr);
    let printed = outcome.text().lines().count();
    assert!(printed >= 100, "{printed}");
    assert_eq!(folder.info("full.ib")["inserted"], printed);
}
