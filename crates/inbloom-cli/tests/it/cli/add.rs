//! `inbloom add`.

use std::fs;
use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use inbloom::{Filter, Kind, Plan};

use crate::cli::folder::{Folder, numbers};

#[test]
fn what_is_added_is_found_and_only_what_was_not_there_is_new() {
    let folder = Folder::new();
    folder.write("more.txt", numbers(500, 1_500));
    for kind in [
        "classic",
        "blocked",
        "counting",
        "cuckoo",
        "scalable",
        "window --window 2000",
        "window --window 1h",
        "bitmap --universe 5000",
    ] {
        let sizing = match kind {
            "bitmap --universe 5000" => "",
            "window --window 2000" => "-p 1e-9",
            _ => "-n 8000 -p 1e-9",
        };
        folder
            .run_with(&format!("build --kind {kind} {sizing} -o f.ib"), numbers(0, 1_000))
            .expect(0);
        let added = folder.run("add f.ib more.txt").expect(0);
        assert_eq!((added.text().as_str(), added.stderr.as_str()), ("500 new of 1,000 keys\n", ""));
        folder.run_with("check -v f.ib", numbers(0, 1_500)).expect(1);
        folder.run_with("check f.ib", numbers(2_000, 3_000)).expect(1);
        assert_eq!(folder.info("f.ib")["inserted"], 1_500, "{kind}");
        folder.run("info --verify f.ib").expect(0);
        // Once more: nothing is new, and the file is not written again.
        let written = fs::metadata(folder.path("f.ib")).and_then(|f| f.modified()).expect("a time");
        assert_eq!(folder.run("add f.ib more.txt").expect(0).text(), "0 new of 1,000 keys\n");
        let now = fs::metadata(folder.path("f.ib")).and_then(|f| f.modified()).expect("a time");
        assert_eq!(now, written, "{kind}");
    }
    assert_eq!(folder.names(), ["f.ib", "more.txt"], "no temporary file stays");
}

#[test]
fn an_added_file_is_the_one_that_is_built_at_once() {
    let folder = Folder::new();
    for kind in ["classic", "blocked", "counting", "cuckoo", "scalable", "window --window 500"] {
        let sizing = if kind.starts_with("window") { "" } else { "-n 3000" };
        let build = format!("build --kind {kind} {sizing}");
        folder.run_with(&format!("{build} -o once.ib"), numbers(0, 3_000)).expect(0);
        folder.run_with(&format!("{build} -o twice.ib"), numbers(0, 1_234)).expect(0);
        folder.run_with("add twice.ib", numbers(1_234, 3_000)).expect(0);
        assert!(folder.read("once.ib") == folder.read("twice.ib"), "{kind}");
    }
}

#[test]
fn one_key_is_no_plural() {
    let folder = Folder::with_names();
    assert_eq!(folder.run_with("add names.ib", "dave\n").expect(0).text(), "1 new of 1 key\n");
    assert_eq!(folder.run_with("add names.ib", "dave").expect(0).text(), "0 new of 1 key\n");
    assert_eq!(folder.run_with("add names.ib", "").expect(0).text(), "0 new of 0 keys\n");
    assert_eq!(folder.run_with("add names.ib", "\n").expect(0).text(), "1 new of 1 key\n");
}

#[test]
fn lines_are_normalized_as_the_filter_says() {
    let folder = Folder::new();
    folder.run_with("build -n 10 -p 1e-9 --normalize trim,lower -o f.ib", "alice\n").expect(0);
    assert_eq!(folder.run_with("add f.ib", " ALICE\nBob\n").expect(0).text(), "1 new of 2 keys\n");
    folder.run_with("check f.ib", "bob \n").expect(0);
    assert_eq!(folder.info("f.ib")["normalization"], "trim,lower");
}

#[test]
fn options_of_the_input_hold() {
    let folder = Folder::with_names();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(b"1,dave\r\n2,erin\r\n").expect("a Vec takes all bytes");
    folder.write("more.csv.gz", gzip.finish().expect("a Vec takes all bytes"));
    let added = folder.run("add --crlf -d , -f 2 names.ib more.csv.gz").expect(0);
    assert_eq!(added.text(), "2 new of 2 keys\n");
    let found = folder.run_with("check names.ib", "dave\nerin\n1\n").expect(0);
    assert_eq!(found.text(), "dave\nerin\n");
    assert_eq!(folder.run_with("add -0 names.ib", "a\nb\0c").expect(0).text(), "2 new of 2 keys\n");
    folder.run_with("check -0 -q names.ib", "a\nb").expect(0);
}

#[test]
fn a_filter_under_a_key_takes_lines_under_that_key_only() {
    let folder = Folder::new();
    folder.write("key", "00112233445566778899aabbccddeeff\n");
    folder.run_with("build --key-file key -n 10 -p 1e-9 -o f.ib", "alice\n").expect(0);
    folder.run_with("add f.ib", "bob\n").expect_error(&["f.ib", "key"]);
    folder.run_with("add --key-file key f.ib", "bob\n").expect(0);
    folder.run_with("check -v --key-file key f.ib", "alice\nbob\n").expect(1);
}

#[test]
fn more_keys_than_planned_are_said_with_what_to_do() {
    let folder = Folder::new();
    folder.run_with("build -n 1000 -o f.ib", numbers(0, 1_000)).expect(0);
    let added = folder.run_with("add --overfull continue f.ib", numbers(1_000, 2_000)).expect(0);
    assert!(added.text().ends_with(" new of 1,000 keys\n"), "{}", added.text());
    assert_eq!(added.stderr.lines().count(), 4, "{}", added.stderr);
    for words in [
        "warning: more keys came than the 1,000 that the filter was planned for",
        "warning: the filter was planned for 1,000 keys and holds about ",
        "(target 1.00%)",
        "again with -n ",
    ] {
        assert!(added.stderr.contains(words), "no '{words}' in: {}", added.stderr);
    }
    folder.run_with("check -v f.ib", numbers(0, 2_000)).expect(1);
    // A filter that grows has no such limit.
    folder.run_with("build --kind scalable -n 1000 -o f.ib", numbers(0, 1_000)).expect(0);
    assert_eq!(folder.run_with("add f.ib", numbers(1_000, 9_000)).expect(0).stderr, "");
    // The steps of a window each take their part.
    folder.run_with("build --kind window --window 1h -n 1000 -o f.ib", "").expect(0);
    assert_eq!(folder.run_with("add f.ib", numbers(0, 200)).expect(0).stderr, "");
    let added = folder.run_with("add f.ib", numbers(200, 3_000)).expect(0);
    assert!(added.stderr.contains("got more in one step"), "{}", added.stderr);
}

#[test]
fn a_filter_that_empties_itself_says_so() {
    let folder = Folder::new();
    folder.run_with("build -n 100 --auto-clear 0.5 -o f.ib", numbers(0, 50)).expect(0);
    let added = folder.run_with("add f.ib", numbers(50, 1_050)).expect(0);
    assert!(added.stderr.contains("emptied itself (auto-clear)"), "{}", added.stderr);
    assert!(folder.info("f.ib")["inserted"].as_u64() < Some(500));
}

#[test]
fn the_last_line_is_in_whatever_was_forgotten_before_it() {
    let folder = Folder::new();
    // A file, so all in one block: what a query knew at its beginning is forgotten before its end.
    folder.write("lines.txt", format!("{}alice\n", numbers(0, 5_000)));
    for kind in ["window --window 100", "counting -n 100 --auto-clear 0.5"] {
        folder.run_with(&format!("build --kind {kind} -p 1e-6 -o f.ib"), "alice\n").expect(0);
        folder.run("add f.ib lines.txt").expect(0);
        assert_eq!(folder.run_with("check f.ib", "alice\n").text(), "alice\n", "{kind}");
    }
}

#[test]
fn a_window_of_time_forgets_before_it_takes_more() {
    let folder = Folder::new();
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64;
    let window = Duration::from_secs(60);
    let plan = Plan::builder(Kind::Window).items(100).rate(1e-6).window(window).build();
    let mut filter = Filter::new(plan.expect("a plan")).expect("little memory");
    filter.advance(now - 600_000).expect("it has a clock");
    filter.insert("alice").expect("it is writable");
    filter.save(folder.path("f.ib")).expect("it is saved");
    let added = folder.run_with("add f.ib", "alice\nbob\n").expect(0);
    assert_eq!(added.text(), "2 new of 2 keys\n", "alice came ten minutes ago");
    folder.run_with("check -v f.ib", "alice\nbob\n").expect(1);
}

#[test]
fn a_filter_that_is_full_is_left_as_it_was() {
    let folder = Folder::new();
    folder.run_with("build --kind cuckoo -n 100 -o f.ib", numbers(0, 100)).expect(0);
    let before = (folder.read("f.ib"), folder.names());
    for (options, words) in [
        ("", &["it was planned for 100 keys", "the 9,900 keys that came", "-n 10002"][..]),
        ("--overfull continue", &["the filter is full", "planned for 100"]),
    ] {
        let words = [&["f.ib was not changed"], words].concat();
        folder.run_with(&format!("add {options} f.ib"), numbers(100, 10_000)).expect_error(&words);
    }
    assert!(before == (folder.read("f.ib"), folder.names()), "{:?}", folder.names());
}

#[test]
fn an_error_leaves_the_filter_as_it_was() {
    let folder = Folder::with_names();
    fs::create_dir(folder.path("folder")).expect("a new folder");
    folder.write("more.txt", "dave\n");
    let good = folder.read("names.ib");
    folder.run("add names.ib more.txt missing.txt").expect_error(&["missing.txt", "No such file"]);
    folder.run("add names.ib more.txt folder").expect_error(&["folder is a directory"]);
    assert!(folder.read("names.ib") == good);

    folder.run("add missing.ib more.txt").expect_error(&["missing.ib does not exist", "build -o"]);
    assert!(!folder.names().contains(&"missing.ib".to_string()));
    folder.run("add missing/f.ib more.txt").expect_error(&["missing/f.ib", "No such file"]);
    folder.run("add folder more.txt").expect_error(&["folder", "not a file"]);
    folder.run("add names.txt more.txt").expect_error(&["names.txt", "inbloom"]);
    assert_eq!(folder.read("names.txt"), b"alice\nbob\ncarol\n");

    folder.run_with("build --kind bitmap --universe 10 -o bits.ib", "1\n").expect(0);
    let bits = folder.read("bits.ib");
    folder.run_with("add bits.ib", "2\n10\n").expect_error(&["line 2", "0 to 9", "\"10\""]);
    folder.run_with("add bits.ib", "2\nx\n").expect_error(&["line 2", "\"x\""]);
    assert!(folder.read("bits.ib") == bits);
}

#[test]
fn a_damaged_or_newer_filter_is_not_saved_again() {
    let folder = Folder::with_names();
    let good = folder.read("names.ib");
    // Damage of the bits is found too, which a query would not look for.
    for place in [0, 20, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[place] ^= 0x10;
        folder.write("bad.ib", &bad);
        folder.run_with("add bad.ib", "dave\n").expect_error(&["bad.ib"]);
        assert!(folder.read("bad.ib") == bad, "byte {place}");
    }
    folder.write("cut.ib", &good[..good.len() / 2]);
    folder.run_with("add cut.ib", "dave\n").expect_error(&["cut.ib"]);
    let mut newer = good;
    newer[8] = 2; // the version, see docs/format.md
    folder.write("newer.ib", newer);
    folder.run_with("add newer.ib", "dave\n").expect_error(&["newer.ib", "version 2", "upgrade"]);
}

#[test]
fn a_file_that_another_program_has_changed_is_not_overwritten() {
    let folder = Folder::with_names();
    let mut child = folder.command("add names.ib").spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(b"dave\n").expect("it reads");
    // The filter is open once it takes lines: more of them than a pipe holds tell that it does.
    stdin.write_all(&b"erin\n".repeat(100_000)).expect("it reads");
    // By a program that asks for no lock.
    folder.run_with("build -o other.ib", "mallory\n").expect(0);
    fs::rename(folder.path("other.ib"), folder.path("names.ib")).expect("it is replaced");
    drop(stdin);
    let outcome = child.wait_with_output().expect("it ends");
    assert_eq!(outcome.status.code(), Some(2));
    let message = String::from_utf8_lossy(&outcome.stderr);
    assert!(message.contains("changed by another program"), "{message}");
    folder.run_with("check names.ib", "mallory\n").expect(0);
    folder.run_with("check names.ib", "dave\n").expect(1);
}
