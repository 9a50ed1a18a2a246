//! Everything that can be wrong with what a command is given: each has a message that says what and
//! what to do, exit code 2, and leaves nothing half-written.

use std::fs;
use std::process::Command;

use inbloom::{Filter, Kind, Plan};

use crate::cli::folder::{Folder, Outcome};

/// The commands that read lines, each as it would be called with an input. They know `names.ib`, a
/// filter of alice, bob and carol.
const READERS: &[&str] = &[
    "build -o new.ib",
    "build -o new.ib -n 100",
    "add names.ib",
    "check names.ib",
    "check names.ib -F names.ib",
    "dedup",
    "dedup --exact",
    "dedup --count",
    "dedup --filter names.ib",
    "dedup --filter new.ib",
    "measure names.ib",
];

/// The commands that read a filter, each as it would be called before its name.
const OPENERS: &[&str] = &[
    "add",
    "check",
    "check names.ib -F",
    "info",
    "info --verify",
    "measure",
    "merge -o new.ib names.ib",
];

/// Runs a command on an input that it cannot use; the filter must be as it was, and no other be
/// there.
#[track_caller]
fn refused(folder: &Folder, arguments: &str, words: &[&str]) {
    let names = folder.names();
    let filter = folder.read("names.ib");
    folder.run(arguments).expect_error(words);
    assert_eq!(folder.names(), names, "{arguments}");
    assert!(folder.read("names.ib") == filter, "{arguments}: the filter has changed");
}

#[test]
fn a_missing_input_is_named() {
    let folder = Folder::with_names();
    for command in READERS {
        refused(&folder, &format!("{command} missing.txt"), &["missing.txt", "No such file"]);
    }
}

#[test]
fn a_directory_is_not_an_input() {
    let folder = Folder::with_names();
    fs::create_dir(folder.path("lists")).expect("a temporary folder");
    for command in READERS {
        refused(&folder, &format!("{command} lists"), &["lists is a directory", "name the files"]);
    }
}

#[test]
fn compressed_input_that_is_damaged_is_named_with_its_format() {
    let folder = Folder::with_names();
    folder.write("bad.gz", b"\x1f\x8b\x08garbage");
    folder.write("bad.zst", b"\x28\xb5\x2f\xfdgarbage");
    for command in READERS {
        refused(&folder, &format!("{command} bad.gz"), &["bad.gz", "invalid gzip data"]);
        refused(&folder, &format!("{command} bad.zst"), &["bad.zst", "zstd data"]);
    }
    // Whole lines come out of it before it ends.
    let text: String = (0..100_000).map(|number| format!("{number}\n")).collect();
    folder.write("cut.txt", text);
    let gzip = Command::new("gzip").arg("cut.txt").current_dir(folder.path(".")).status();
    assert!(gzip.expect("gzip can be run").success());
    let whole = folder.read("cut.txt.gz");
    folder.write("cut.txt.gz", &whole[..whole.len() / 2]);
    for command in READERS.iter().filter(|command| command.contains(".ib")) {
        let filter = folder.read("names.ib");
        let outcome = folder.run(&format!("{command} cut.txt.gz")).expect(2);
        assert!(outcome.stderr.contains("gzip data ends too early"), "{}", outcome.stderr);
        assert!(folder.read("names.ib") == filter, "{command}");
        assert!(!folder.names().contains(&"new.ib".to_string()), "{command}");
    }
}

#[test]
fn bytes_behind_gzip_data_are_an_error_that_names_them() {
    let folder = Folder::with_names();
    folder.write("more.txt", "alice\n");
    let gzip = Command::new("gzip").arg("more.txt").current_dir(folder.path(".")).status();
    assert!(gzip.expect("gzip can be run").success());
    folder.write("more.txt.gz", [folder.read("more.txt.gz"), b"garbage".to_vec()].concat());
    let outcome = folder.run("check names.ib more.txt.gz").expect(2);
    let what = "other bytes follow the gzip data";
    assert!(outcome.stderr.contains("cannot read more.txt.gz: invalid gzip data: "));
    assert!(outcome.stderr.contains(what), "{}", outcome.stderr);
}

#[test]
fn what_looks_compressed_can_be_read_as_it_is() {
    let folder = Folder::with_names();
    folder.write("keys", b"\x1f\x8b\x08\nalice\n");
    assert_eq!(folder.run("check --plain names.ib keys").expect(0).text(), "alice\n");
}

#[test]
fn a_file_that_may_not_be_read_is_named() {
    // root may read everything, but nobody the memory of a process at address 0.
    let folder = Folder::with_names();
    for command in READERS {
        refused(&folder, &format!("{command} /proc/self/mem"), &["cannot read /proc/self/mem"]);
    }
}

#[test]
fn a_filter_that_is_none_or_missing_or_a_directory_is_named() {
    let folder = Folder::with_names();
    folder.write("text.ib", "alice\nbob\n");
    folder.write("empty.ib", "");
    fs::create_dir(folder.path("folder.ib")).expect("a temporary folder");
    for command in OPENERS {
        refused(
            &folder,
            &format!("{command} text.ib"),
            &["text.ib: not an inbloom file (starts with \"alice", "help: "],
        );
        refused(
            &folder,
            &format!("{command} empty.ib"),
            &["empty.ib: not an inbloom file (it is empty)", "help: "],
        );
        refused(&folder, &format!("{command} missing.ib"), &["missing.ib"]);
        refused(&folder, &format!("{command} folder.ib"), &["folder.ib"]);
    }
}

#[test]
fn a_damaged_filter_is_named_with_what_is_wrong() {
    let folder = Folder::with_names();
    let whole = folder.read("names.ib");
    let mut damaged = whole.clone();
    damaged[20] ^= 1;
    folder.write("damaged.ib", damaged);
    folder.write("cut.ib", &whole[..whole.len() - 1]);
    for command in OPENERS {
        refused(&folder, &format!("{command} damaged.ib"), &["damaged.ib", "expected"]);
        refused(&folder, &format!("{command} cut.ib"), &["cut.ib", "expected"]);
    }
}

#[test]
fn a_filter_of_a_newer_version_is_refused_with_what_to_do() {
    let folder = Folder::with_names();
    let mut newer = folder.read("names.ib");
    // docs/format.md: the version is in bytes 8 and 9.
    newer[8..10].copy_from_slice(&99_u16.to_le_bytes());
    folder.write("newer.ib", newer);
    for command in OPENERS {
        refused(&folder, &format!("{command} newer.ib"), &["newer.ib", "version 99", "upgrade"]);
    }
}

#[test]
fn numbers_out_of_range_are_refused_with_what_is_expected() {
    let folder = Folder::with_names();
    for command in ["build -o new.ib names.txt", "dedup names.txt", "plan -n 10", "measure -n 10"] {
        for (option, words) in [
            ("-p 0", &["'0'", "between 0 and 1"][..]),
            ("-p 1", &["'1'", "between 0 and 1"]),
            ("-p abc", &["'abc'", "not a number", "between 0 and 1"]),
            ("-p -0.1", &["between 0 and 1"]),
        ] {
            refused(&folder, &format!("{command} {option}"), words);
        }
    }
    for command in ["build -o new.ib names.txt", "dedup names.txt", "plan", "measure"] {
        for (option, words) in [
            ("-n 0", &["'0'", "at least 1"][..]),
            ("-n 1e30", &["'1e30'", "too large"]),
            ("-n 1e18", &["1000000000000000000", "10^15"]),
            ("-n abc", &["'abc'", "not a number", "10e9"]),
            ("-n -5", &["negative"]),
            ("-n 1.5", &["fraction"]),
        ] {
            refused(&folder, &format!("{command} {option}"), words);
        }
    }
}

#[test]
fn a_filter_larger_than_memory_is_refused() {
    let folder = Folder::with_names();
    let command = "build --kind classic -n 1e14 -o new.ib names.txt";
    refused(&folder, command, &["bytes of memory", "smaller"]);
    // It is built in parts, but is larger than the disk too.
    refused(&folder, "build -n 1e14 -o new.ib names.txt", &["127 TB", "of disk in", "are free"]);
    refused(&folder, "dedup -n 1e14 names.txt", &["bytes of memory", "smaller"]);
}

#[test]
fn removing_from_a_kind_that_cannot_is_refused() {
    let folder = Folder::with_names();
    refused(&folder, "remove names.ib names.txt", &["blocked cannot", "cuckoo"]);
}

// ---- Output -------------------------------------------------------------------------------------

/// Runs a command line in bash, with `inbloom` on the path.
fn bash(folder: &Folder, script: &str) -> Outcome {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_inbloom"));
    let folder_of_binary = binary.parent().expect("it is in one").display().to_string();
    let path = format!("{folder_of_binary}:{}", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("bash")
        .args(["-c", script])
        .env("PATH", path)
        .current_dir(folder.path("."))
        .output()
        .expect("bash can be run");
    Outcome {
        code: output.status.code().expect("no signal ended it"),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).expect("messages are UTF-8"),
    }
}

#[test]
fn a_full_disk_is_said_and_the_old_filter_stays() {
    let folder = Folder::with_names();
    let before = folder.read("names.ib");
    // What a limit on the size of files does is what a full disk does, without the need of one.
    for command in [
        "build -n 1M -o names.ib names.txt",
        "build -n 1M -o new.ib names.txt",
        "dedup -n 1M --filter new.ib names.txt",
    ] {
        let script = format!("ulimit -f 8; trap '' XFSZ; exec inbloom {command}");
        let outcome = bash(&folder, &script).expect(2);
        assert!(outcome.stderr.contains("File too large"), "{}", outcome.stderr);
        assert!(folder.read("names.ib") == before);
        assert_eq!(folder.names(), ["names.ib", "names.txt"], "{command}");
    }
}

#[test]
fn a_full_standard_output_is_said() {
    let folder = Folder::with_names();
    for command in [
        "check names.ib names.txt",
        "check -c names.ib names.txt",
        "dedup names.txt",
        "dedup --count names.txt",
        "dedup --filter new.ib names.txt",
        "info names.ib",
        "plan -n 10",
        "gen urls -n 10",
        "sort-ints numbers.txt",
        "man",
        "completions bash",
    ] {
        folder.write("numbers.txt", "3\n1\n");
        let outcome = bash(&folder, &format!("inbloom {command} > /dev/full")).expect(2);
        assert!(outcome.stderr.contains("No space left"), "{command}: {}", outcome.stderr);
        assert!(!folder.names().contains(&"new.ib".to_string()), "nothing was printed, nor seen");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = Folder::with_names();
    let text: String = (0..300_000).map(|number| format!("{number}\n")).collect();
    folder.write("many.txt", text);
    for command in [
        "check -v names.ib many.txt",
        "check -v --json names.ib many.txt",
        "check -v --line-buffered names.ib many.txt",
        "dedup many.txt",
        "dedup --count many.txt",
        "gen urls -n 1M",
        "sort-ints many.txt",
    ] {
        let script = format!("set -o pipefail; inbloom {command} | head -1");
        let outcome = bash(&folder, &script).expect(0);
        assert_eq!(outcome.text().lines().count(), 1, "{command}");
        assert_eq!(outcome.stderr, "", "{command}");
    }
}

#[test]
fn a_closed_standard_output_is_no_disaster() {
    let folder = Folder::with_names();
    bash(&folder, "inbloom check names.ib names.txt >&-").expect(0);
    bash(&folder, "inbloom dedup names.txt >&- 2>&-").expect(0);
}

#[test]
fn an_input_that_is_the_output_is_refused() {
    let folder = Folder::with_names();
    for command in ["check names.ib names.txt", "dedup names.txt", "dedup --count names.txt"] {
        let outcome = bash(&folder, &format!("inbloom {command} >> names.txt")).expect(2);
        assert!(
            outcome.stderr.contains("names.txt is both input and output"),
            "{}",
            outcome.stderr
        );
    }
    assert_eq!(folder.read("names.txt"), b"alice\nbob\ncarol\n");
    let outcome = bash(&folder, "inbloom check names.ib < names.txt >> names.txt").expect(2);
    assert!(outcome.stderr.contains("standard input is also the output"), "{}", outcome.stderr);
    refused(&folder, "build -o names.txt names.txt", &["names.txt is both input and output"]);
    refused(&folder, "build -o ./names.txt names.ib names.txt", &["both input and output"]);
    assert_eq!(folder.read("names.txt"), b"alice\nbob\ncarol\n");
}

#[test]
fn lines_before_a_failure_count() {
    let folder = Folder::new();
    let text: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    folder.write("in.txt", &text);
    folder.run("build -n 200k -p 1e-9 -o f.ib in.txt").expect(0);
    let gzip = Command::new("gzip").arg("in.txt").current_dir(folder.path(".")).status();
    assert!(gzip.expect("gzip can be run").success());
    let whole = folder.read("in.txt.gz");
    folder.write("cut.gz", &whole[..whole.len() * 3 / 4]);
    let counted = folder.run("check -c f.ib cut.gz").expect(2).text();
    let counted: u64 = counted.trim().parse().expect("a number");
    assert!((50_000..200_000).contains(&counted), "{counted}");
}

// ---- Unusual, and right -------------------------------------------------------------------------

#[test]
fn a_line_of_a_gigabyte_is_a_line_where_the_limit_allows_it() {
    let folder = Folder::new();
    // A file with a hole: zeros that take no room.
    let hole = fs::File::create(folder.path("long.txt")).expect("a temporary folder");
    hole.set_len(1 << 30).expect("a file may have a hole");
    folder.run("build -o long.ib long.txt").expect_error(&["long.txt: line 1", "--max-line"]);
    let build = folder.run("build --max-line 1GiB -o long.ib long.txt").expect(0);
    assert!(build.stderr.contains("1 key read, 1 new"), "{}", build.stderr);
    assert_eq!(folder.run("check --max-line 1GiB -c long.ib long.txt").expect(0).text(), "1\n");
    hole.set_len((1 << 30) - 1).expect("a file may be cut");
    assert_eq!(folder.run("check --max-line 1GiB -c long.ib long.txt").expect(1).text(), "0\n");
}

#[test]
fn nothing_is_read_from_an_empty_file_and_that_is_no_error() {
    let folder = Folder::with_names();
    folder.write("empty.txt", "");
    folder.run("check names.ib empty.txt").expect(1);
    assert_eq!(folder.run("dedup empty.txt").expect(0).stdout, b"");
    assert_eq!(folder.run("add names.ib empty.txt").expect(0).text(), "0 new of 0 keys\n");
}

#[test]
fn nul_bytes_are_part_of_a_line() {
    let folder = Folder::new();
    let text = b"a\0b\n\0\na\n";
    folder.write("nul.txt", text);
    folder.run("build -p 1e-9 -o nul.ib nul.txt").expect(0);
    assert_eq!(folder.run("check nul.ib nul.txt").expect(0).stdout, text);
    assert_eq!(folder.run_with("check -c nul.ib", b"a\0c\n\0\0\nb\n").expect(1).text(), "0\n");
}

#[test]
fn a_secret_key_is_asked_for_and_never_shown() {
    let folder = Folder::with_names();
    let key = "000102030405060708090a0b0c0d0e0f";
    folder.write("key", format!("{key}\n"));
    folder.write("other", "ff".repeat(16));
    folder.write("short", "0001");
    folder.run("build -p 1e-9 --key-file key -o keyed.ib names.txt").expect(0);
    let found = folder.run("check --key-file key keyed.ib names.txt").expect(0);
    assert_eq!(found.text(), "alice\nbob\ncarol\n");
    assert_eq!(
        folder.run("add --key-file key keyed.ib names.txt").expect(0).text(),
        "0 new of 3 keys\n"
    );
    let again = folder.run("dedup -q --key-file key --filter keyed.ib names.txt").expect(0);
    assert_eq!(again.stdout, b"");
    folder.run("check keyed.ib names.txt").expect_error(&["keyed.ib", "secret key", "--key-file"]);
    folder
        .run("check --key-file other keyed.ib names.txt")
        .expect_error(&["keyed.ib", "a different one"]);
    let short = folder.run("check --key-file short keyed.ib names.txt");
    short.expect_error(&["short", "4 characters", "32 hexadecimal digits"]);
    folder.run("check --key-file missing keyed.ib").expect_error(&["missing"]);
    let bitmap = folder.run("build --kind bitmap --universe 9 --key-file key -o b.ib names.txt");
    bitmap.expect_error(&["bitmap", "without hashing"]);
    let bytes = folder.read("keyed.ib");
    let raw: Vec<u8> = (0..16).collect();
    assert!(!bytes.windows(16).any(|window| window == raw), "the key is in the file");
}

#[test]
fn a_filter_in_other_words_of_normalization_is_warned_of() {
    let folder = Folder::new();
    let plan = Plan::builder(Kind::Blocked).items(10).rate(1e-9).build().expect("a plan");
    let mut filter = Filter::new(plan).expect("memory");
    filter.set_normalization("as our database does").expect("it is short");
    filter.insert("alice").expect("it is not full");
    filter.save(folder.path("f.ib")).expect("it is saved");
    let outcome = folder.run_with("check f.ib", "alice\n").expect(0);
    assert!(outcome.stderr.contains("as our database does"), "{}", outcome.stderr);
}

#[test]
fn an_error_names_its_cause_once() {
    let folder = Folder::new();
    let outcome = folder.run("info missing.ib").expect(2);
    assert_eq!(outcome.stderr.matches("No such file").count(), 1, "{}", outcome.stderr);
}
