//! `inbloom check`, like grep.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use crate::folder::{Folder, exit_code, numbers, within_ten_seconds};

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
