//! Filters from more keys than fit into memory: the same files however they were built, and however
//! often the build was killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::cli::folder::{Folder, exit_code, numbers};

/// A filter of several shards, of two widths, from keys that need some files at 8 MiB of memory.
const BUILD: &str = "build --kind ribbon -p 1e-4 -n 40M --note list";

/// A folder with `keys.txt`, and `whole.ib` that was built from it in memory.
fn with_keys(count: u64) -> Folder {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, count) + &numbers(0, count / 10));
    folder.run(&format!("{BUILD} -o whole.ib keys.txt")).expect(0);
    folder
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).expect("a Vec takes all bytes");
    encoder.finish().expect("a Vec takes all bytes")
}

fn start(folder: &Folder, arguments: &str) -> Child {
    let mut command = folder.command(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the binary starts")
}

/// Waits until a file is there, or the command has ended.
fn wait_for(folder: &Folder, name: &str, child: &mut Child) {
    let start = Instant::now();
    while !folder.path(name).exists() && child.try_wait().expect("it was started").is_none() {
        assert!(start.elapsed() < Duration::from_secs(60), "{name} does not come");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_same_keys_give_the_same_file_from_memory_and_from_disk() {
    let folder = with_keys(600_000);
    let whole = folder.read("whole.ib");
    folder.write("half.txt", numbers(0, 300_000));
    fs::create_dir(folder.path("parts")).expect("it is created");
    folder.write("parts/a.gz", gzip(&numbers(300_000, 500_000)));
    folder.write("parts/b.gz", gzip(&numbers(500_000, 600_000)));
    folder.write("parts/.hidden", "other\n");
    for (input, lines) in [
        ("--memory 8MiB keys.txt", "660,000"),
        ("--memory 8MiB -j 1 keys.txt", "660,000"),
        ("--memory 8MiB -j 3 half.txt parts", "600,000"),
        ("--memory 16MiB --tmp parts keys.txt keys.txt", "1,320,000"),
    ] {
        let outcome = folder.run(&format!("{BUILD} -o f.ib {input}")).expect(0);
        let said = format!("{lines} keys read");
        assert!(outcome.stderr.contains(&said), "{}", outcome.stderr);
        assert!(folder.read("f.ib") == whole, "{input}: {}", outcome.stderr);
        assert_eq!(
            folder.names(),
            ["f.ib", "half.txt", "keys.txt", "parts", "whole.ib"],
            "temporary files are removed: {input}"
        );
    }
    let stream = folder.run_with(&format!("{BUILD} --memory 8M -o f.ib"), folder.read("keys.txt"));
    assert!(stream.stderr.contains("read in"), "it went to disk: {}", stream.stderr);
    assert!(folder.read("f.ib") == whole);
    folder.run("info --verify f.ib").expect(0);
    let check = folder.run("check -c f.ib keys.txt").expect(0);
    assert_eq!(check.text(), "660000\n");
}

#[test]
fn without_n_the_size_is_that_of_the_different_keys_also_from_disk() {
    let folder = Folder::new();
    folder.write("once.txt", numbers(0, 500_000));
    folder.write("often.txt", numbers(0, 500_000).repeat(3));
    folder.run("build --kind ribbon -p 0.01 -o once.ib once.txt").expect(0);
    let often = folder.run("build --kind ribbon -p 0.01 -o often.ib --memory 8M often.txt");
    let said = "500,000 of them are different";
    assert!(often.stderr.contains(said), "{}", often.stderr);
    assert!(folder.read("once.ib") == folder.read("often.ib"));
}

/// How far a build has come, as its state tells.
fn phase(folder: &Folder, name: &str) -> Option<&'static str> {
    let text = fs::read(folder.path(&format!("{name}.building/state"))).ok()?;
    let state: serde_json::Value = serde_json::from_slice(&text).expect("replaced as a whole");
    Some(match (&state["all_read"], &state["different"], &state["parts"], &state["complete"]) {
        (_, _, _, complete) if !complete.is_null() => "complete",
        (_, _, parts, _) if *parts != 0 => "building",
        (_, different, _, _) if !different.is_null() => "counted",
        (all_read, _, _, _) if *all_read == true => "read",
        _ => "reading",
    })
}

/// Starts a build and kills it when its state tells of this phase; the phase that it was found in.
fn kill_in(folder: &Folder, arguments: &str, wanted: &str) -> Option<&'static str> {
    let mut child = start(folder, arguments);
    while child.try_wait().expect("it was started").is_none() {
        if phase(folder, "f.ib") == Some(wanted) {
            child.kill().expect("it can be killed, also if it has ended");
        }
        thread::sleep(Duration::from_micros(200));
    }
    phase(folder, "f.ib")
}

#[test]
fn kill_9_in_each_phase_and_resume_give_the_same_file() {
    // Long enough for checkpoints while it reads: there is one after 2 million places, or 0.8 million
    // digests.
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 3_000_000) + &numbers(0, 1_000_000));
    folder.write("keys.gz", gzip(&String::from_utf8(folder.read("keys.txt")).expect("ASCII")));
    folder.write("good.txt", numbers(3_000_000, 3_100_000));
    for (input, build) in [
        ("keys.txt", "build -p 1e-4 --note list --kind ribbon"),
        ("keys.gz", "build -p 1e-4 --note list --kind ribbon --overlay --never-match good.txt"),
        ("keys.txt", "build -p 1e-4 --note list --kind blocked"),
        ("keys.gz", "build -p 1e-4 --note list --kind classic --shards 7"),
        ("keys.txt", "build -p 1e-4 --note list --kind cuckoo --shards 4"),
    ] {
        let build = format!("{build} {input}");
        folder.run(&format!("{build} --memory 1G -o whole.ib")).expect(0);
        let whole = files(&folder, "whole.");
        assert!(!whole.is_empty());
        let build = format!("{build} --memory 8M -o f.ib");
        for wanted in ["reading", "read", "counted", "building", "complete"] {
            // Some phases are short: a kill may come too late.
            let mut tries = 0;
            let found = loop {
                let found = kill_in(&folder, &build, wanted);
                tries += 1;
                let most = if wanted == "complete" { 5 } else { 20 };
                if found == Some(wanted) || tries == most {
                    break found;
                }
                // What a late kill has left is not what is looked for.
                drop(fs::remove_dir_all(folder.path("f.ib.building")));
                remove(&folder, "f.");
            };
            // "complete" is over when the file has its name, which takes no time.
            assert!(found == Some(wanted) || wanted == "complete", "never killed while {wanted}");
            if found.is_some() {
                folder.run(&build).expect_error(&["unfinished build", "--resume"]);
                // Once more, somewhere later.
                let later = if wanted == "reading" { "read" } else { "building" };
                kill_in(&folder, &format!("{build} --resume"), later);
            }
            if phase(&folder, "f.ib").is_some() {
                let resumed = folder.run(&format!("{build} --resume")).expect(0);
                assert!(resumed.stderr.contains("continuing in"), "{}", resumed.stderr);
            }
            let built = files(&folder, "f.");
            assert!(built.values().eq(whole.values()), "{build}, killed while {wanted}");
            let inputs = ["good.txt", "keys.gz", "keys.txt"].map(str::to_owned);
            let expected = inputs.iter().chain(built.keys()).chain(whole.keys()).collect();
            let left = folder.names();
            assert_eq!(left.iter().collect::<BTreeSet<_>>(), expected, "killed while {wanted}");
            remove(&folder, "f.");
        }
        remove(&folder, "whole.");
    }
}

/// The files whose names begin so.
fn files(folder: &Folder, start: &str) -> BTreeMap<String, Vec<u8>> {
    let names = folder.names().into_iter().filter(|name| name.starts_with(start));
    names.map(|name| (name.clone(), folder.read(&name))).collect()
}

fn remove(folder: &Folder, start: &str) {
    for name in files(folder, start).keys() {
        fs::remove_file(folder.path(name)).expect("it is there");
    }
}

/// A filter that was built in parts has the bits of one that was not; the header may count other
/// keys as new, as they came in another order.
#[test]
fn a_blocked_filter_has_the_same_bits_however_it_was_built() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 600_000) + &numbers(0, 60_000));
    // Of one line and of two; of one piece and of many; for fewer keys than come.
    let overfull = "-n 100K -p 1e-4 --overfull continue";
    for sizing in ["-n 600K -p 1e-3", "-n 5M -p 1e-6", "-n 600K -p 1e-6", overfull] {
        let build = format!("build {sizing} --note seen");
        folder.run(&format!("{build} -o whole.ib keys.txt")).expect(0);
        let info = folder.run("info --json whole.ib").expect(0);
        let info: serde_json::Value = serde_json::from_str(&info.text()).expect("JSON");
        let payload = info["bytes"].as_u64().expect("a number") as usize;
        let bits = |name: &str| {
            let bytes = folder.read(name);
            bytes[bytes.len() - payload..].to_vec()
        };
        let expected = bits("whole.ib");
        let mut first = None;
        for input in [
            "--memory 8MiB keys.txt",
            "--memory 8MiB -j 1 keys.txt keys.txt",
            "--memory 16MiB --tmp . -j 3 keys.txt",
            "--memory 1GiB keys.txt",
        ] {
            let outcome = folder.run(&format!("{build} -o f.ib {input}")).expect(0);
            assert!(bits("f.ib") == expected, "{sizing} {input}");
            let all = folder.read("f.ib");
            assert!(all == *first.get_or_insert(all.clone()), "{sizing} {input}");
            assert_eq!(folder.names(), ["f.ib", "keys.txt", "whole.ib"], "{input}");
            let on_disk = outcome.stderr.contains("built and written in");
            assert_eq!(on_disk, !input.contains("1GiB"), "{}", outcome.stderr);
        }
        folder.run("info --verify f.ib").expect(0);
        assert_eq!(folder.run("check -c f.ib keys.txt").expect(0).text(), "660000\n");
    }
}

#[test]
fn without_n_a_blocked_filter_has_the_size_of_the_different_keys() {
    let folder = Folder::new();
    folder.write("once.txt", numbers(0, 500_000));
    folder.write("often.txt", numbers(0, 500_000).repeat(3));
    folder.run("build -p 0.01 -o once.ib --memory 1G once.txt").expect(0);
    let often = folder.run_with("build -p 0.01 -o often.ib --memory 8M", folder.read("often.txt"));
    let said = "500,000 of them are different";
    assert!(often.stderr.contains(said), "{}", often.stderr);
    assert!(folder.read("once.ib") == folder.read("often.ib"));
}

/// What nobody asks for happens when memory is short.
#[test]
fn a_blocked_filter_is_built_in_parts_when_memory_is_short() {
    let folder = Folder::new();
    let keys = numbers(0, 1_000_000) + &numbers(0, 1000);
    folder.write("keys.txt", &keys);
    folder.run("build -p 1e-3 -n 1M -o whole.ib keys.txt").expect(0);
    let bits = |name: &str| {
        let bytes = folder.read(name);
        bytes[bytes.len() - 1_970_000..].to_vec()
    };
    // Its digests are 16 MB, of which an eighth of the memory is less, or more.
    for (memory, in_parts) in [("64M", true), ("1G", false)] {
        let command = format!("build -p 1e-3 --free-memory {memory} -o f.ib");
        let outcome = folder.run_with(&command, &keys).expect(0);
        assert_eq!(outcome.stderr.contains("are different"), in_parts, "{}", outcome.stderr);
        if in_parts {
            // Otherwise it is planned for all lines.
            assert!(bits("f.ib") == bits("whole.ib"));
        }
        assert_eq!(folder.run("check -c f.ib keys.txt").expect(0).text(), "1001000\n");
    }
    let command = "build -p 1e-3 -n 1M --free-memory 1M -o f.ib keys.txt";
    let outcome = folder.run(command).expect(0);
    assert!(outcome.stderr.contains("building in parts"), "{}", outcome.stderr);
    assert!(bits("f.ib") == bits("whole.ib"));
    assert_eq!(folder.names(), ["f.ib", "keys.txt", "whole.ib"]);
}

#[test]
fn what_is_not_of_a_build_is_left_alone() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 500_000));
    fs::create_dir(folder.path("f.ib.building")).expect("it is created");
    folder.write("f.ib.building/thesis.txt", "precious");
    let error = ["f.ib.building", "does not belong to a build"];
    folder.run("build --memory 8M -o f.ib keys.txt").expect_error(&error);
    folder.run_with("build -o f.ib", "a\n").expect(0);
    assert_eq!(folder.read("f.ib.building/thesis.txt"), b"precious");
}

#[test]
fn two_builds_of_the_same_shards_are_not_mixed() {
    let folder = Folder::new();
    folder.write("a.txt", numbers(0, 1_000_000));
    folder.write("b.txt", numbers(2_000_000, 3_000_000));
    fs::create_dir(folder.path("tmp")).expect("it is created");
    let build = "build --shards 40 -n 1M -p 1e-4 --memory 8M";
    assert_eq!(kill_in(&folder, &format!("{build} -o f.ib a.txt"), "building"), Some("building"));
    // By its other name, and with another folder for what is unfinished.
    let partial = fs::File::options().write(true).open(folder.path("f.000-of-040.ib.partial"));
    let partial = partial.expect("it is there");
    partial.lock().expect("nobody else has it locked");
    for other in ["-o f b.txt", "-o f.ib --tmp tmp b.txt", "-o f.ib --resume a.txt"] {
        folder.run(&format!("{build} {other}")).expect_error(&["another program is writing"]);
    }
    partial.unlock().expect("it was locked");
    fs::remove_dir_all(folder.path("f.building")).expect("it was begun");
    folder.run(&format!("{build} -o f b.txt")).expect(0);
    let error = ["f.000-of-040.ib is not the shard that was built", "build again"];
    folder.run(&format!("{build} -o f.ib --resume a.txt")).expect_error(&error);
    assert_eq!(folder.run("check -c f.ib b.txt").expect(0).text(), "1000000\n");
}

#[test]
fn a_set_that_is_half_replaced_is_no_filter_until_the_build_goes_on() {
    let folder = Folder::new();
    folder.write("old.txt", numbers(0, 200_000));
    folder.write("new.txt", numbers(500_000, 700_000));
    let build = "build --shards 64 -n 200K -p 1e-4 -o f.ib";
    folder.run(&format!("{build} old.txt")).expect(0);
    let mut child = start(&folder, &format!("{build} new.txt"));
    while folder.path("f.000-of-064.ib").exists() {
        assert!(child.try_wait().expect("it was started").is_none(), "it ended without a change");
        thread::sleep(Duration::from_micros(50));
    }
    child.kill().expect("it can be killed, also if it has ended");
    child.wait().expect("it was started");
    if phase(&folder, "f.ib").is_some() {
        // A kill may come too late; but there is no other outcome than these.
        if !folder.path("f.000-of-064.ib").exists() {
            folder.run("check -c f.ib old.txt").expect_error(&["missing: 0"]);
        }
        folder.run(&format!("{build} --resume new.txt")).expect(0);
    }
    assert_eq!(folder.run("check -c f.ib new.txt").expect(0).text(), "200000\n");
    assert_eq!(folder.names().len(), 64 + 2);
}

#[test]
fn a_key_is_read_once() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 600_000));
    for options in ["--shards 3", "--memory 8M", "--kind ribbon --memory 8M"] {
        let made = Command::new("mkfifo").arg(folder.path("secret")).status();
        assert!(made.expect("it can be run").success());
        let path = folder.path("secret");
        let writer = thread::spawn(move || fs::write(path, "0123456789abcdef0123456789abcdef\n"));
        folder.run(&format!("build {options} --key-file secret -o f.ib keys.txt")).expect(0);
        writer.join().expect("it does not panic").expect("it was read");
        fs::remove_file(folder.path("secret")).expect("it is there");
        folder.write("secret", "0123456789abcdef0123456789abcdef\n");
        let check = folder.run("check -c --key-file secret f.ib keys.txt").expect(0);
        assert_eq!(check.text(), "600000\n");
        fs::remove_file(folder.path("secret")).expect("it is there");
        remove(&folder, "f.");
    }
}

#[test]
fn what_cannot_be_finished_is_not_kept() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 100_000));
    for (options, words) in [
        ("--kind cuckoo -n 1000 --shards 3", ["100,000 keys", "-n 100000"]),
        ("--kind cuckoo -n 1000 --shards 3 --overfull continue", ["full", "items"]),
        ("--kind classic -n 1000 --shards 3", ["100,000 keys", "-n 100000"]),
        ("--kind blocked --bytes 300K -p 1e-9 --shards 3", ["--bytes allows", "larger --bytes"]),
    ] {
        folder.run(&format!("build -o f.ib {options} keys.txt")).expect_error(&words);
        assert_eq!(folder.names(), ["keys.txt"]);
    }
    // More shards may be what it takes, and are all that it takes.
    let keys = folder.read("keys.txt");
    let build = "build --kind classic --memory 8M -o f.ib --bytes 10M";
    folder.run_with(&format!("{build} --shards 2"), &keys).expect_error(&[
        "each of 2 shards takes",
        "--shards 3",
        "--resume",
    ]);
    folder.run_with(&format!("{build} --shards 3 --resume"), &keys).expect(0);
    assert_eq!(folder.run("check -c f.ib keys.txt").expect(0).text(), "100000\n");
}

#[test]
fn shards_of_every_kind_have_all_keys_and_keep_the_rate() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 300_000) + &numbers(0, 30_000));
    let absent: Vec<String> = (0..200_000).map(|n| format!("absent {n}")).collect();
    let keys: Vec<String> = (0..300_000).map(|n| n.to_string()).collect();
    for kind in ["blocked", "classic", "counting", "cuckoo", "scalable"] {
        for (options, shards) in [("--memory 8MiB", 5), ("", 1), ("-n 300K -j 1", 64)] {
            let build = format!("build --kind {kind} -p 0.01 --normalize trim {options}");
            let stem = folder.path("f");
            folder.run(&format!("{build} --shards {shards} -o f.ib keys.txt")).expect(0);
            let names = folder.names();
            assert_eq!(names.len(), shards + 1, "{names:?}");
            let filter = inbloom::Filter::open(&stem).expect("it was built");
            assert_eq!(filter.shards().len(), shards);
            assert!(filter.shards().iter().all(|shard| shard.normalization() == "trim"));
            let mut found = Vec::new();
            filter.contains_many(&keys, &mut found);
            assert!(found.iter().all(|found| *found), "{kind}, {shards} shards");
            filter.contains_many(&absent, &mut found);
            let hits = found.iter().filter(|found| **found).count() as f64;
            let most = 2000.0 + 5.0 * 2000.0_f64.sqrt();
            assert!(hits <= most, "{kind}, {shards} shards: {hits}");
            // A key that was told new twice would be there twice.
            assert!(filter.inserted() <= 300_000, "{kind}: {}", filter.inserted());
            remove(&folder, "f.");
        }
    }
}

#[test]
fn shards_beside_others_are_refused_and_an_old_set_is_replaced() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 1000));
    folder.run("build --shards 3 -o f.ib keys.txt").expect(0);
    folder.run("build --shards 3 -o f keys.txt").expect(0);
    let error = ["f.000-of-003.ib", "remove that set"];
    folder.run("build --shards 4 -o f.ib keys.txt").expect_error(&error);
    folder.run("build -o g.ib keys.txt").expect(0);
    folder.run("build --shards 4 -o g.ib keys.txt").expect_error(&["g.ib exists", "remove it"]);
    for other in ["build -o f.ib keys.txt", "merge -o f.ib g.ib g.ib", "add f.ib keys.txt"] {
        folder.run(other).expect_error(&["f.000-of-003.ib", "choose another name"]);
    }
    assert_eq!(files(&folder, "f.").len(), 3);
    for (options, words) in [
        ("--kind ribbon --shards 4", ["has its shards in one file", "leave --shards out"]),
        (
            "--kind bitmap --universe 10 --shards 4",
            ["kind bitmap does not hash", "leave --shards out"],
        ),
        (
            "--kind window --window 100 --shards 4",
            ["kind window depends on that order", "leave --shards out"],
        ),
        ("--shards 0", ["0", "4096"]),
        ("--auto-clear 0.5 --shards 2", ["--auto-clear", "changes their order"]),
        ("--auto-clear 0.5 --memory 8M", ["--auto-clear", "changes their order"]),
        ("--bytes 500G -p 0.01 --memory 8M", ["of disk in", "are free"]),
        ("--bytes 500G -p 0.01 --shards 4096 --memory 1G", ["of disk in", "are free"]),
        ("-n 1G -p 1e-4 --shards 2 --memory 8M", ["each of 2 shards takes", "--shards 728"]),
    ] {
        folder.run(&format!("build -o h.ib {options} keys.txt")).expect_error(&words);
    }
}

#[test]
fn ctrl_c_removes_the_temporary_files_and_other_signals_keep_them() {
    let folder = with_keys(3_000_000);
    folder.write("f.ib", "as it was");
    let build = format!("{BUILD} --memory 8M -o f.ib keys.txt");
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut child = start(&folder, &build);
        wait_for(&folder, "f.ib.building/state", &mut child);
        let (option, id) = (format!("-{signal}"), child.id().to_string());
        let kill = Command::new("kill").args([option, id]).status();
        assert!(kill.expect("kill can be run").success());
        assert_eq!(exit_code(child), code);
        assert_eq!(folder.read("f.ib"), b"as it was");
        if signal == "INT" {
            assert_eq!(folder.names(), ["f.ib", "keys.txt", "whole.ib"]);
        }
    }
    let resumed = folder.run(&format!("{build} --resume")).expect(0);
    assert!(resumed.stderr.contains("continuing in f.ib.building"), "{}", resumed.stderr);
    assert!(folder.read("f.ib") == folder.read("whole.ib"));
}

#[test]
fn a_build_that_goes_on_counts_all_lines_without_a_key() {
    let folder = Folder::new();
    // Every third line has no second field.
    let line = |at: u64| if at % 3 == 2 { format!("{at}\n") } else { format!("{at},{at}\n") };
    // The checkpoint comes after 2 million keys, and half of them are still to be read.
    folder.write("keys.txt", (0..6_000_000).map(line).collect::<String>());
    let build = format!("{BUILD} -d , -f 2 --memory 8M -o f.ib keys.txt");
    assert_eq!(kill_in(&folder, &build, "reading"), Some("reading"));
    let resumed = folder.run(&format!("{build} --resume")).expect(0);
    let said = "4,000,000 keys read, 2,000,000 lines without a key";
    assert!(resumed.stderr.contains(said), "{}", resumed.stderr);
}

#[test]
fn a_file_of_another_build_is_not_taken_for_its_own() {
    let folder = Folder::new();
    folder.write("a.txt", numbers(0, 3_000_000));
    folder.write("b.txt", numbers(5_000_000, 8_000_000));
    fs::create_dir(folder.path("tmp")).expect("it is created");
    let build = format!("{BUILD} --memory 8M -o f.ib");
    assert_eq!(kill_in(&folder, &format!("{build} a.txt"), "building"), Some("building"));
    let mut child = start(&folder, &format!("{build} --tmp tmp b.txt"));
    wait_for(&folder, "tmp/f.ib.building/state", &mut child);
    while phase(&folder, "tmp/f.ib") != Some("building") {
        assert!(child.try_wait().expect("it was started").is_none(), "it ended too early");
        thread::sleep(Duration::from_micros(200));
    }
    // While the other one writes, and when it was killed.
    let resume = format!("{build} --resume a.txt");
    child.kill().expect("it can be killed");
    child.wait().expect("it was started");
    folder.run(&resume).expect_error(&["of the unfinished file", "unfinished build"]);
    fs::remove_file(folder.path("f.ib.partial")).expect("it is there");
    folder.run(&resume).expect_error(&["f.ib.partial", "unfinished build"]);
}

#[test]
fn a_link_is_followed_and_an_output_among_the_inputs_is_left_out() {
    let folder = with_keys(600_000);
    fs::create_dir(folder.path("real")).expect("it is created");
    std::os::unix::fs::symlink("real/f.ib", folder.path("f.ib")).expect("it is linked");
    folder.write("real/f.ib", "as it was");
    folder.write("real/keys.txt", folder.read("keys.txt"));
    folder.write("real/f.ib.partial", "of a build that was killed");
    folder.run(&format!("{BUILD} --memory 8M -o f.ib real")).expect(0);
    assert!(folder.read("real/f.ib") == folder.read("whole.ib"));
    assert_eq!(folder.names(), ["f.ib", "keys.txt", "real", "whole.ib"]);
}

/// Ten minutes and 7 GB of disk.
#[test]
#[ignore = "long: a billion URLs"]
fn a_billion_urls_through_a_pipe_take_1_77_gb_and_less_than_2_gb_of_memory() {
    let folder = Folder::new();
    let pipe = |from: &str, to: &str| {
        let mut source = folder.command(from).stdin(Stdio::null()).spawn().expect("it starts");
        let stdout = source.stdout.take().expect("it is piped");
        let child = folder.command(to).stdin(stdout).spawn().expect("it starts");
        // The most memory that it ever had is told until it ends.
        let mut most = 0;
        let status = format!("/proc/{}/status", child.id());
        let watch = thread::spawn(move || {
            while let Ok(text) = fs::read_to_string(&status) {
                let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
                let Some(kilobytes) = kilobytes.and_then(|text| text.parse::<u64>().ok()) else {
                    break;
                };
                most = most.max(kilobytes * 1024);
                thread::sleep(Duration::from_millis(100));
            }
            most
        });
        let output = child.wait_with_output().expect("it ends");
        source.wait().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        (text, watch.join().expect("it does not panic"))
    };
    let (_, memory) =
        pipe("gen urls -n 1e9", "build --kind ribbon -p 6.2e-5 --memory 1G -o billion.ib");
    assert!(memory > 0 && memory < 2_000_000_000, "{memory} bytes of memory");
    let length = fs::metadata(folder.path("billion.ib")).expect("it is there").len();
    assert!(length <= 1_770_000_000, "{length} bytes");
    let (found, _) = pipe("gen urls -n 1e7 --skip 495M", "check -c billion.ib");
    assert_eq!(found, "10000000\n");
    let (found, _) = pipe("gen urls -n 1e7 --absent", "check -c billion.ib");
    let (found, expected): (f64, f64) = (found.trim().parse().expect("a number"), 620.0);
    assert!((found - expected).abs() < 5.0 * expected.sqrt(), "{found}, {expected} expected");
}

#[test]
fn a_stream_is_read_again_unless_all_of_it_was_read() {
    let folder = with_keys(3_000_000);
    let keys = folder.read("keys.txt");
    let build = format!("{BUILD} --memory 8M -o f.ib");
    let mut command = folder.command(&build);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(&keys).expect("it is taken");
    // The pipe stays open: not all was read, but there is a checkpoint.
    wait_for(&folder, "f.ib.building/state", &mut child);
    child.kill().expect("it can be killed");
    child.wait().expect("it was started");
    drop(stdin);
    let again = folder.run_with(&format!("{build} --resume"), &keys).expect(0);
    assert!(again.stderr.contains("reading it again"), "{}", again.stderr);
    assert!(!again.stderr.contains("no unfinished"), "{}", again.stderr);
    assert!(folder.read("f.ib") == folder.read("whole.ib"));
}

#[test]
fn what_cannot_be_resumed_or_held_is_refused_before_it_is_read() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 3_000_000));
    let build = format!("{BUILD} --memory 8M -o f.ib");
    assert!(kill_in(&folder, &format!("{build} keys.txt"), "reading").is_some());
    for (other, words) in [
        ("--resume -j 1 -0 keys.txt", ["started with no -0, now -0", "f.ib.building"]),
        ("--resume keys.txt keys.txt", ["started with other input: keys.txt of", ", now keys.txt"]),
        ("keys.txt", ["unfinished build", "--resume"]),
    ] {
        folder.run(&format!("{build} {other}")).expect_error(&words);
    }
    folder.write("keys.txt", numbers(0, 3_000_001));
    folder.run(&format!("{build} --resume keys.txt")).expect_error(&["with other input"]);
    folder.write("keys.txt", numbers(0, 3_000_000));
    let changed = folder.run(&format!("{build} --resume keys.txt"));
    changed.expect_error(&["with other input: keys.txt of", "bytes, changed since"]);
    let other = build.replace("-p 1e-4 -n 40M --note list", "-p 1e-3 -n 40M --normalize trim");
    let refused = folder.run(&format!("{other} --resume -d _ -f 1,3- keys.txt")).expect(2).stderr;
    for difference in [
        "-p 1e-4, now -p 1e-3",
        "--note list, now no --note",
        "no --normalize, now --normalize trim",
        "no -f, now -f 1,3-",
        "no -d, now -d '_'",
    ] {
        assert!(refused.contains(difference), "no '{difference}' in: {refused}");
    }
    assert!(!refused.contains("-n 40") && !refused.contains("Some("), "{refused}");
    folder
        .run(&format!("{build} --hash-seed 7 --resume keys.txt"))
        .expect_error(&["started with another --hash-seed or --key-file"]);
    fs::remove_dir_all(folder.path("f.ib.building")).expect("it is there");

    folder.write("few.txt", "a\nb\n");
    for (options, words) in [
        ("--kind ribbon --memory 1M few.txt", ["--memory is", "the minimum is 8"]),
        ("--kind ribbon -n 1e12 --memory 8M few.txt", ["of disk in", "are free"]),
        ("--kind ribbon --tmp missing few.txt few.txt", ["missing", "folder"]),
        ("--kind counting --memory 8M few.txt", ["--memory only works for", "pass --shards"]),
        ("--kind classic --resume few.txt", ["--resume only works for", "leave --resume out"]),
        ("--kind blocked -n 1e12 --memory 8M few.txt", ["of disk in", "are free"]),
        ("--kind ribbon empty", ["empty is a directory", "without files"]),
    ] {
        fs::create_dir_all(folder.path("empty")).expect("it is created");
        folder.run(&format!("build -o g.ib {options}")).expect_error(&words);
    }
    let anew = folder.run("build --kind ribbon --resume -o g.ib few.txt").expect(0);
    assert!(anew.stderr.contains("no unfinished build"), "{}", anew.stderr);
    // Of a build that ended before its first checkpoint there is a folder without a state.
    fs::create_dir(folder.path("g.ib.building")).expect("it is created");
    folder.write("g.ib.building/lock", "");
    let anew = folder.run("build --kind ribbon --resume -o g.ib few.txt").expect(0);
    assert!(anew.stderr.contains("ended before its first checkpoint"), "{}", anew.stderr);
    assert!(!folder.path("g.ib.building").exists());
}
