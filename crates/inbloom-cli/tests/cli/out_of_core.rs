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

#[test]
fn kill_9_in_each_phase_and_resume_give_the_same_file() {
    // Long enough for checkpoints while it reads: there is one after 2 million keys.
    let folder = with_keys(3_000_000);
    let whole = folder.read("whole.ib");
    folder.write("keys.gz", gzip(&String::from_utf8(folder.read("keys.txt")).expect("ASCII")));
    let build = format!("{BUILD} --memory 8MiB -o f.ib");
    let start_time = Instant::now();
    folder.run(&format!("{build} keys.txt")).expect(0);
    let whole_time = start_time.elapsed();

    let (mut kills, mut resumed, mut kept) = (0, 0, [false; 3]);
    for round in 0..12 {
        let input = if round % 4 == 3 { "keys.gz" } else { "keys.txt" };
        fs::remove_file(folder.path("f.ib")).expect("it was built");
        // At each twelfth of the time; then twice as long, so that it comes to an end.
        let mut time = whole_time * round / 12;
        let mut arguments = format!("{build} {input}");
        loop {
            let mut child = start(&folder, &arguments);
            let begun = Instant::now();
            while begun.elapsed() < time && child.try_wait().expect("started").is_none() {
                thread::sleep(Duration::from_millis(1));
            }
            child.kill().expect("it can be killed, also if it has ended");
            if child.wait().expect("it was started").success() {
                break;
            }
            kills += 1;
            if let Ok(state) = fs::read_to_string(folder.path("f.ib.building/state")) {
                arguments = format!("{build} --resume {input}");
                resumed += 1;
                let phase = ["\"all_read\":false", "\"shards\":0", ""].map(|it| state.contains(it));
                kept[phase.iter().position(|is| *is).expect("the last is always")] = true;
                folder.run(&format!("{build} {input}")).expect_error(&["not finished", "--resume"]);
            }
            time = time * 2 + Duration::from_millis(20);
        }
        assert!(folder.read("f.ib") == whole, "round {round}");
        let left = folder.names();
        assert_eq!(left, ["f.ib", "keys.gz", "keys.txt", "whole.ib"], "round {round}");
    }
    assert!(kills >= 8 && resumed >= 4, "{kills} kills, of which {resumed} left a state");
    assert!(kept[0] || kept[1] || kept[2], "no state was ever seen");
}

#[test]
fn ctrl_c_removes_the_temporary_files() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 3_000_000));
    folder.write("f.ib", "as it was");
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut child = start(&folder, &format!("{BUILD} --memory 8M -o f.ib keys.txt"));
        wait_for(&folder, "f.ib.building", &mut child);
        let (option, id) = (format!("-{signal}"), child.id().to_string());
        let kill = Command::new("kill").args([option, id]).status();
        assert!(kill.expect("kill can be run").success());
        assert_eq!(exit_code(child), code);
        assert_eq!(folder.names(), ["f.ib", "keys.txt"]);
        assert_eq!(folder.read("f.ib"), b"as it was");
    }
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
    assert!(folder.read("f.ib") == folder.read("whole.ib"));
}

#[test]
fn what_cannot_be_resumed_or_held_is_refused_before_it_is_read() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 3_000_000));
    let build = format!("{BUILD} --memory 8M -o f.ib");
    let mut child = start(&folder, &format!("{build} keys.txt"));
    wait_for(&folder, "f.ib.building/state", &mut child);
    child.kill().expect("it can be killed");
    child.wait().expect("it was started");
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
