//! `inbloom check`, like grep.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use crate::cli::folder::{Folder, exit_code, numbers, within_ten_seconds};

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

#[test]
fn several_filters_are_asked_at_once_and_the_output_says_which_hit() {
    let folder = Folder::with_names();
    folder.run_with("build -p 1e-9 -o spam.ib", "bob\ndave\n").expect(0);
    folder.run_with("build -p 1e-9 -o caps.ib --normalize lower", "Erin\n").expect(0);
    folder.write("who.txt", "alice\nbob\ndave\nERIN\nfrank\n");
    let outcome = folder.run("check names.ib -F spam.ib --filter caps.ib who.txt").expect(0);
    let hits = "names.ib:alice\nnames.ib,spam.ib:bob\nspam.ib:dave\ncaps.ib:ERIN\n";
    assert_eq!(outcome.text(), hits);
    let outcome = folder.run("check -n -H names.ib -F spam.ib who.txt").expect(0);
    let hits = "who.txt:1:names.ib:alice\nwho.txt:2:names.ib,spam.ib:bob\nwho.txt:3:spam.ib:dave\n";
    assert_eq!(outcome.text(), hits);
    assert_eq!(
        folder.run("check -v names.ib -F spam.ib who.txt").expect(0).text(),
        "ERIN\nfrank\n"
    );
    assert_eq!(folder.run("check -c names.ib -F spam.ib who.txt").expect(0).text(), "3\n");
    // A bitmap's lines are integers, for all of them.
    folder.run_with("build --kind bitmap --universe 10 -o small.ib", "7\n").expect(0);
    let outcome = folder.run_with("check names.ib -F small.ib", "7\n8\n").expect(0);
    assert_eq!(outcome.text(), "small.ib:7\n");
    folder.run("check names.ib -F small.ib who.txt").expect_error(&["line 1", "integer", "alice"]);
}

#[test]
fn json_tells_input_number_line_and_filters() {
    let folder = Folder::with_names();
    folder.run_with("build -p 1e-9 -o spam.ib", "bob\n").expect(0);
    folder.write("a.txt", "zoe\nbob\n");
    folder.write("b.txt", b"quote \" and \xff\n");
    let outcome = folder.run("check --json names.ib -F spam.ib a.txt b.txt").expect(0);
    let line = r#"{"filters":["names.ib","spam.ib"],"found":true,"input":"a.txt","line":"bob","number":2}"#;
    assert_eq!(outcome.text(), format!("{line}\n"));
    let outcome = folder.run("check --json -v names.ib b.txt").expect(0);
    let value = outcome.json();
    assert_eq!(value["line_hex"], "71756f7465202220616e6420ff");
    assert_eq!(value["found"], false);
    assert_eq!(value["number"], 1);
    folder.run("check --json -0 names.ib a.txt").expect_error(&["--json", "-0"]);
}

#[test]
fn numbers_of_lines_count_through_blocks_and_begin_anew_with_each_input() {
    let folder = Folder::with_names();
    let many = numbers(0, 100_000) + "alice\n";
    folder.write("many.txt", &many);
    folder.write("few.txt", "x\nbob");
    let outcome = folder.run("check -n names.ib many.txt few.txt").expect(0);
    assert_eq!(outcome.text(), "100001:alice\n2:bob\n");
    let outcome = folder.run("check -H -c names.ib many.txt missing few.txt").expect(2);
    assert_eq!(outcome.text(), "many.txt:1\nfew.txt:1\n", "nothing of what could not be read");
}

#[test]
fn fields_and_recorded_normalizations_make_the_key() {
    let folder = Folder::new();
    folder
        .run_with("build -p 1e-9 -o f.ib --normalize trim,lower -d ; -f 2", "1; Alice ;x\n")
        .expect(0);
    assert_eq!(folder.info("f.ib")["normalization"], "trim,lower");
    let outcome = folder.run_with("check f.ib", "  ALICE\nbob\n").expect(0);
    assert_eq!(outcome.text(), "  ALICE\n", "printed as it came");
    let outcome = folder.run_with("check -d : -f 1,2 f.ib", "x:alice\nalice\n").expect(0);
    assert_eq!(outcome.text(), "alice\n");
    let outcome = folder.run_with("check -d :: -f 3- f.ib", "1::2::alice\n").expect(0);
    assert_eq!(outcome.text(), "1::2::alice\n");
}

#[test]
fn line_buffered_output_is_the_same() {
    let folder = Folder::with_names();
    let outcome = folder.run_with("check --line-buffered names.ib", "bob\nx\nalice").expect(0);
    assert_eq!(outcome.text(), "bob\nalice\n");
}

/// A ribbon of the numbers below 200,000, about 550 kB.
fn with_ribbon() -> Folder {
    let folder = Folder::new();
    folder.write("members.txt", numbers(0, 200_000));
    folder.run("build --kind ribbon -p 1e-6 -o ribbon.ib members.txt").expect(0);
    folder
}

#[test]
fn verbose_says_how_each_filter_is_asked_and_why() {
    let folder = with_ribbon();
    folder.run_with("build -o blocked.ib", "1\n").expect(0);
    folder.write("long.txt", numbers(0, 100_000));
    folder.write("short.txt", numbers(0, 10));
    for (arguments, expected) in [
        (
            "--free-memory 1M ribbon.ib long.txt",
            ["1.00 MB of memory free", "one batch after another"],
        ),
        (
            "--free-memory 400k ribbon.ib long.txt",
            ["400 kB of memory free", "sweeping over the whole"],
        ),
        (
            "--free-memory 400k ribbon.ib short.txt",
            ["pages in batches", "20 B of input are too few"],
        ),
        // From a pipe, which may be slow.
        ("--free-memory 400k ribbon.ib", ["pages in batches", "no line waits"]),
        ("--free-memory 400k -q ribbon.ib long.txt", ["pages in batches", "no line waits"]),
        ("--free-memory 1 blocked.ib short.txt", ["blocked.ib: ", "when they are used"]),
    ] {
        let outcome = folder.run_with(&format!("check --verbose {arguments}"), "5\n").expect(0);
        for word in expected {
            assert!(outcome.stderr.contains(word), "{arguments}: {}", outcome.stderr);
        }
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    }
    let outcome = folder.run("check --verbose ribbon.ib -F blocked.ib short.txt").expect(0);
    assert_eq!(outcome.stderr.lines().count(), 2, "one for each: {}", outcome.stderr);
    assert!(outcome.stderr.starts_with("inbloom: ribbon.ib: "), "{}", outcome.stderr);
    assert_eq!(folder.run("check ribbon.ib short.txt").expect(0).stderr, "");
}

#[test]
fn output_does_not_depend_on_how_a_filter_is_asked() {
    let folder = with_ribbon();
    folder.run_with("build -p 1e-9 -o spam.ib", "7\n300000\n").expect(0);
    folder.run_with("build --kind ribbon -p 1e-9 -o caps.ib --normalize lower", "Erin\n").expect(0);
    // Members and others in no order, in several blocks, of several inputs.
    let line = |number: u64| format!("{}\n", number.wrapping_mul(2_654_435_761) % 400_000);
    folder.write("a.txt", (0..100_000).map(line).collect::<String>());
    folder.write("b.txt", (100_000..200_000).map(line).collect::<String>() + "ERIN\n7");
    let all = "-F spam.ib -F caps.ib";
    for options in [
        "ribbon.ib",
        "-v ribbon.ib",
        "-c ribbon.ib",
        "-cH ribbon.ib",
        "-nH ribbon.ib",
        "--json ribbon.ib",
        "-n -j 1 ribbon.ib",
        "-H ribbon.ib -F spam.ib",
        "-v ribbon.ib -F spam.ib",
        &format!("ribbon.ib {all}"),
        &format!("-nH spam.ib -F ribbon.ib {all}"),
    ] {
        let run = |memory: &str| {
            folder.run(&format!("check --verbose --free-memory {memory} {options} a.txt b.txt"))
        };
        let expected = run("1G").expect(0);
        assert!(!expected.stderr.contains("sweeping") && !expected.stdout.is_empty());
        // The last leaves room for one block at a time.
        for (memory, way) in [("10k", "in batches"), ("400k", "sweeping"), ("45k", "sweeping")] {
            let outcome = run(memory).expect(0);
            assert!(outcome.stderr.contains(way), "{options} with {memory}: {}", outcome.stderr);
            assert!(outcome.stdout == expected.stdout, "{options} with {memory}");
        }
    }
}

#[test]
fn a_sweep_reports_a_bad_input_and_reads_the_others() {
    let folder = with_ribbon();
    folder.write("a.txt", numbers(199_990, 230_000));
    folder.write("broken.gz", [&b"\x1f\x8b\x08\0\0\0\0\0\0\x03"[..], &[7; 99]].concat());
    let arguments = "check --verbose --free-memory 400k -c ribbon.ib a.txt broken.gz members.txt";
    let outcome = folder.run(arguments).expect(2);
    assert!(outcome.stderr.contains("sweeping"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("broken.gz"), "{}", outcome.stderr);
    assert_eq!(outcome.text(), "200010\n");
}
