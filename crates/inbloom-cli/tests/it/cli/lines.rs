//! What a line is.

use std::fs;
use std::process::Command;

use crate::cli::folder::{Folder, numbers};

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
    for build in ["build -o f.ib", "build -o f.ib empty.txt"] {
        let build = folder.run(build).expect(0);
        assert!(build.stderr.contains("0 keys read, 0 new"), "{}", build.stderr);
        assert_eq!(folder.info("f.ib")["occupied"], 0);
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

/// Has a program of the system compress a file of the folder.
fn compress(folder: &Folder, program: &str, name: &str) {
    let status = Command::new(program).args(["-q", name]).current_dir(folder.path(".")).status();
    assert!(status.expect("gzip and zstd are installed").success());
}

#[test]
fn gzip_and_zstd_are_read_by_what_they_are_not_by_name() {
    let folder = Folder::new();
    for name in ["a", "b", "c"] {
        folder.write(name, numbers(0, 50_000));
    }
    compress(&folder, "gzip", "a");
    compress(&folder, "zstd", "b");
    fs::rename(folder.path("b.zst"), folder.path("misnamed.gz")).expect("it was made");
    let expected = numbers(0, 50_000).repeat(3);
    for inputs in ["a.gz misnamed.gz c", "c a.gz misnamed.gz"] {
        folder.run(&format!("build -n 50k -p 1e-9 -o f.ib {inputs}")).expect(0);
        folder.run(&format!("build -p 1e-9 -o g.ib {inputs}")).expect(0);
        assert_eq!(folder.info("g.ib")["planned_items"], 150_000, "lines of what is in them");
        assert!(folder.run(&format!("check f.ib {inputs}")).expect(0).text() == expected);
    }
    let piped = folder.run_with("dedup -q -n 50k -p 1e-9", folder.read("a.gz")).expect(0);
    assert!(piped.text() == numbers(0, 50_000));
    // Members that follow one another, as `cat a.gz a.gz` makes them.
    let twice = [folder.read("a.gz"), folder.read("a.gz")].concat();
    assert_eq!(folder.run_with("check -c f.ib", twice).expect(0).text(), "100000\n");
    let twice = [folder.read("misnamed.gz"), folder.read("misnamed.gz")].concat();
    assert_eq!(folder.run_with("check -c f.ib", twice).expect(0).text(), "100000\n");
}

#[test]
fn carriage_returns_are_part_of_the_line_unless_crlf_is_said() {
    let folder = Folder::new();
    folder.run_with("build -p 1e-9 -o raw.ib", "alice\r\n").expect(0);
    assert_eq!(folder.run_with("check -c raw.ib", "alice\n").expect(1).text(), "0\n");
    folder.run_with("build -p 1e-9 --crlf -o dos.ib", "alice\r\nbob\n").expect(0);
    let found = folder.run_with("check dos.ib", "alice\nbob\r\ncarol\r\n").expect(0);
    assert_eq!(found.text(), "alice\nbob\r\n", "the filter remembers, and lines stay as they are");
    folder.run_with("build -p 1e-9 -o unix.ib", "alice\n").expect(0);
    assert_eq!(folder.run_with("check --crlf -c unix.ib", "alice\r\n").expect(0).text(), "1\n");
}

#[test]
fn a_terminal_is_told_what_is_waited_for_and_shown_progress() {
    let folder = Folder::new();
    folder.write("in.txt", numbers(0, 3_000_000));
    let shown = folder.run_on_terminal("build -o f.ib in.txt", &[]);
    assert!(shown.contains("inbloom: building: "), "{shown}");
    assert!(shown.contains(" left"), "{shown}");
    assert!(shown.contains("3,000,000 keys read"), "{shown}");
    let shown = folder.run_on_terminal("dedup -q", &[]);
    assert!(shown.contains("reading keys from the terminal"), "{shown}");
}

#[test]
fn a_terminal_gets_no_escapes_that_it_did_not_ask_for() {
    let folder = Folder::with_names();
    let escape = '\u{1b}';
    let plain = [("NO_COLOR", "1")];
    assert!(folder.run_on_terminal("--help", &[]).contains(escape), "help is styled");
    for command in ["--help", "help check", "info names.ib", "plan -n 10", "check missing.ib"] {
        let shown = folder.run_on_terminal(command, &plain);
        assert!(!shown.contains(escape), "{command}: {shown:?}");
    }
    folder.write("in.txt", numbers(0, 3_000_000));
    let dumb = [("TERM", "dumb")];
    let shown = folder.run_on_terminal("build -o f.ib in.txt", &dumb);
    assert!(!shown.contains(escape) && !shown.contains("building"), "{shown:?}");
}
