//! Static filters from more keys than fit into memory: the same file however it was built, and
//! however often the build was killed.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::folder::{Folder, exit_code, numbers};

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
    Some(match (&state["all_read"], &state["different"], &state["shards"], &state["complete"]) {
        (_, _, _, complete) if !complete.is_null() => "complete",
        (_, _, shards, _) if *shards != 0 => "building",
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
    // Long enough for checkpoints while it reads: there is one after 2 million keys.
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 3_000_000) + &numbers(0, 1_000_000));
    folder.write("keys.gz", gzip(&String::from_utf8(folder.read("keys.txt")).expect("ASCII")));
    folder.write("good.txt", numbers(3_000_000, 3_100_000));
    let build = "build --kind ribbon -p 1e-4 --note list";
    for (input, more) in [("keys.txt", ""), ("keys.gz", "--living --allow good.txt")] {
        folder.run(&format!("{build} {more} -o whole.ib {input}")).expect(0);
        let whole = folder.read("whole.ib");
        let build = format!("{build} {more} --memory 8MB -o f.ib {input}");
        for wanted in ["reading", "read", "counted", "building", "complete"] {
            // Some phases are short: a kill may come too late.
            let mut tries = 0;
            let found = loop {
                let found = kill_in(&folder, &build, wanted);
                tries += 1;
                if found == Some(wanted) || tries == 20 {
                    break found;
                }
                // What a late kill has left is not what is looked for.
                drop(fs::remove_dir_all(folder.path("f.ib.building")));
            };
            // "complete" is over when the file has its name, which takes no time.
            assert!(found == Some(wanted) || wanted == "complete", "never killed while {wanted}");
            if found.is_some() {
                folder.run(&build).expect_error(&["not finished", "--resume"]);
                // Once more, somewhere later.
                let later = if wanted == "reading" { "read" } else { "building" };
                kill_in(&folder, &format!("{build} --resume"), later);
            }
            if phase(&folder, "f.ib").is_some() {
                let resumed = folder.run(&format!("{build} --resume")).expect(0);
                assert!(resumed.stderr.contains("going on in"), "{}", resumed.stderr);
            }
            assert!(folder.read("f.ib") == whole, "{input}, killed while {wanted}");
            let left = folder.names();
            let expected = ["f.ib", "good.txt", "keys.gz", "keys.txt", "whole.ib"];
            assert_eq!(left, expected, "{input}, killed while {wanted}");
            fs::remove_file(folder.path("f.ib")).expect("it was built");
        }
    }
}

#[test]
fn ctrl_c_removes_the_temporary_files_and_other_signals_keep_them() {
    let folder = with_keys(3_000_000);
    folder.write("f.ib", "as it was");
    let build = format!("{BUILD} --memory 8MB -o f.ib keys.txt");
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
    assert!(resumed.stderr.contains("going on in f.ib.building"), "{}", resumed.stderr);
    assert!(folder.read("f.ib") == folder.read("whole.ib"));
}

#[test]
fn a_file_of_another_build_is_not_taken_for_its_own() {
    let folder = Folder::new();
    folder.write("a.txt", numbers(0, 3_000_000));
    folder.write("b.txt", numbers(5_000_000, 8_000_000));
    fs::create_dir(folder.path("tmp")).expect("it is created");
    let build = format!("{BUILD} --memory 8MB -o f.ib");
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
    folder.run(&resume).expect_error(&["of the unfinished file", "not finished"]);
    fs::remove_file(folder.path("f.ib.partial")).expect("it is there");
    folder.run(&resume).expect_error(&["f.ib.partial", "not finished"]);
}

#[test]
fn a_link_is_followed_and_an_output_among_the_inputs_is_left_out() {
    let folder = with_keys(600_000);
    fs::create_dir(folder.path("real")).expect("it is created");
    std::os::unix::fs::symlink("real/f.ib", folder.path("f.ib")).expect("it is linked");
    folder.write("real/f.ib", "as it was");
    folder.write("real/keys.txt", folder.read("keys.txt"));
    folder.write("real/f.ib.partial", "of a build that was killed");
    folder.run(&format!("{BUILD} --memory 8MB -o f.ib real")).expect(0);
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
    assert!(again.stderr.contains("read again"), "{}", again.stderr);
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
        ("--resume -j 1 -0 keys.txt", ["way to read lines", "-0 true"]),
        ("--resume keys.txt keys.txt", ["another input", "keys.txt of"]),
        ("keys.txt", ["not finished", "--resume"]),
    ] {
        folder.run(&format!("{build} {other}")).expect_error(&words);
    }
    folder.write("keys.txt", numbers(0, 3_000_001));
    folder.run(&format!("{build} --resume keys.txt")).expect_error(&["another input"]);
    fs::remove_dir_all(folder.path("f.ib.building")).expect("it is there");

    folder.write("few.txt", "a\nb\n");
    for (options, words) in [
        ("--kind ribbon --memory 1M few.txt", ["--memory is", "at least 8"]),
        ("--kind ribbon -n 1e12 --memory 8M few.txt", ["of disk in", "are free"]),
        ("--kind ribbon --tmp missing few.txt few.txt", ["missing", "folder"]),
        ("--kind blocked --memory 8M few.txt", ["--memory is for kind ribbon", "leave it out"]),
        ("--kind classic --resume few.txt", ["--resume is for kind ribbon", "leave it out"]),
        ("--kind ribbon empty", ["empty is a directory", "without files"]),
    ] {
        fs::create_dir_all(folder.path("empty")).expect("it is created");
        folder.run(&format!("build -o g.ib {options}")).expect_error(&words);
    }
    let anew = folder.run("build --kind ribbon --resume -o g.ib few.txt").expect(0);
    assert!(anew.stderr.contains("no unfinished build"), "{}", anew.stderr);
}
