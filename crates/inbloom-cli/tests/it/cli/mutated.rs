//! Damaged and forged filters through the command line: whatever a file says, a command ends with
//! an answer or with an error, and within bounds of memory and time.
//!
//! Most changes at random are caught by a checksum. So half of the files get theirs made right
//! again after they were changed: then it is up to what lies behind. (`fuzz/targets/mutate.rs` does
//! the same to the library, guided by coverage.)

use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use inbloom::{Filter, Hasher, Kind, Plan, SecretKey, file};
use inbloom_testing::Random;
use inbloom_testing::forge::{FIELDS, get, put, seal};

use crate::cli::folder::Folder;

const KEY: [u8; 16] = [7; 16];

/// A number that matters to somebody, where this one was.
fn value(random: &mut Random, old: u64) -> u64 {
    match random.index(7) {
        0 => random.next(),
        1 => random.next() % 256,
        2 => 1 << random.index(64),
        3 => (1 << random.index(64)) - 1,
        4 => {
            [0.0, 1.0, -1.0, 0.5, 1e-9, 1e-300, f64::NAN, f64::INFINITY][random.index(8)].to_bits()
        }
        5 => old.wrapping_add(random.next() % 16).wrapping_sub(8),
        _ => old.wrapping_mul(2),
    }
}

/// Filters of every kind, of several layouts each, as files: name, bytes, and whether a secret key
/// opens them. The two shards of one are the last.
fn originals() -> Vec<(&'static str, Vec<u8>)> {
    let bytes = |filter: &Filter| {
        let mut bytes = Vec::new();
        filter.write_to(&mut bytes).expect("a Vec takes all bytes");
        bytes
    };
    let insert = |filter: &mut Filter, keys: u64| {
        for key in 0..keys {
            filter.insert(key.to_string()).expect("there is room");
        }
    };
    let mut all = Vec::new();
    let plans = [
        ("blocked", Plan::builder(Kind::Blocked).items(100)),
        ("two lines", Plan::builder(Kind::Blocked).items(20).bytes(256).lines(2).probes(16)),
        ("classic", Plan::builder(Kind::Classic).items(100)),
        ("counting", Plan::builder(Kind::Counting).items(100).rate(0.1)),
        ("wide counting", Plan::builder(Kind::Counting).items(100).rate(0.1).width(8)),
        ("cuckoo", Plan::builder(Kind::Cuckoo).items(100)),
        ("scalable", Plan::builder(Kind::Scalable).items(10).rate(0.01)),
        ("last keys", Plan::builder(Kind::Window).last(40).rate(0.1)),
        ("time", Plan::builder(Kind::Window).items(200).window(Duration::from_secs(100))),
    ];
    for (name, plan) in plans {
        let mut filter = Filter::new(plan.build().expect(name)).expect(name);
        if name == "time" {
            filter.advance(1_000_000).expect("a window of time has a clock");
        }
        insert(&mut filter, 60);
        all.push((name, bytes(&filter)));
        filter.set_note("a note\n\u{1b}[31m").expect("a short one");
        filter.set_normalization("lower").expect("a short one");
        all.push((name, bytes(&filter)));
    }
    for (name, universe) in [("dense", 200), ("sparse", 1 << 40)] {
        let plan = Plan::builder(Kind::Bitmap).universe(universe).items(100).build().expect(name);
        let mut filter = Filter::with_hasher(plan, Hasher::integers()).expect(name);
        for key in 0..60_u64 {
            filter.insert(key.to_le_bytes()).expect("it is in the universe");
        }
        all.push((name, bytes(&filter)));
    }
    for (name, items) in [("ribbon", 100), ("ribbon of shards", 5_000_000)] {
        let plan = Plan::builder(Kind::Ribbon).items(items).rate(0.1).build().expect(name);
        let hasher = Hasher::default();
        let digests: Vec<_> = (0..60).map(|key: u64| hasher.digest(key.to_string())).collect();
        let ribbon = Filter::build(plan, hasher, &digests).expect(name);
        all.push((name, bytes(&ribbon)));
        let mut overlay = ribbon.into_overlay(0.2).expect(name);
        insert(&mut overlay, 90);
        for key in 0..10 {
            overlay.remove(key.to_string()).expect("it is there");
        }
        all.push(("overlay", bytes(&overlay)));
    }
    let plan = Plan::builder(Kind::Blocked).items(100).build().expect("it is small");
    let mut keyed =
        Filter::with_hasher(plan, Hasher::sip13(SecretKey::new(KEY))).expect("it is small");
    insert(&mut keyed, 60);
    all.push(("keyed", bytes(&keyed)));
    let mut sharded = Filter::sharded(plan, 2).expect("it is small");
    for key in 0..60 {
        sharded.insert(key.to_string()).expect("there is room");
    }
    all.extend(sharded.shards().iter().map(|shard| ("sharded", bytes(shard))));
    all
}

fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.index(3) {
        let length = bytes.len();
        match random.index(8) {
            0 => (0..=random.index(8)).for_each(|_| {
                let at = random.index(length);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.index(8);
                }
            }),
            1 => bytes.truncate(random.index(length)),
            2 => bytes.resize(length + random.index(300), random.next() as u8),
            // A part of another file, in the place of one of this.
            3 => {
                let (from, to) = (random.index(other.len()), random.index(length));
                let count = random.index(200).min(other.len() - from).min(length - to);
                bytes[to..to + count].copy_from_slice(&other[from..from + count]);
            }
            4 | 5 => {
                let (at, length) = FIELDS[random.index(FIELDS.len())];
                let value = value(random, get(bytes, at, 8));
                put(bytes, at, length, value);
            }
            // An entry of the table of sections, or the first words of the payload.
            6 => {
                let at = 128 + 8 * random.index(24);
                let value = value(random, get(bytes, at, 8));
                put(bytes, at, 8, value);
            }
            // The last words: the directory of a ribbon.
            _ => {
                let at = length.saturating_sub(8 * (1 + random.index(32)));
                let value = value(random, get(bytes, at, 8));
                put(bytes, at, 8, value);
            }
        }
    }
    if random.index(2) == 0 {
        if random.index(2) == 0 {
            let length = bytes.len() as u64;
            put(bytes, 16, 8, length);
        }
        seal(bytes);
    }
}

/// What is done to a file; F stands for its name.
const COMMANDS: &[&str] = &[
    "info --verify F",
    "info --histogram F",
    "info --json F",
    "check -v F numbers.txt",
    "check good.ib -F F numbers.txt",
    "add F numbers.txt",
    "remove F numbers.txt",
    "measure F others.txt",
    "measure --queries 1000 F",
    "merge -o out.ib F F",
    "merge -o out.ib original.ib F",
    "dedup -q --filter F numbers.txt",
    "build -o out.ib --base F --add numbers.txt --remove others.txt --never-match others.txt",
];

/// Runs some files through `check` and another command each, and returns how many commands ended in
/// which way.
fn run(files: u64, seed: u64) -> [u64; 3] {
    let originals = originals();
    let ended: [AtomicU64; 3] = Default::default();
    let next = AtomicU64::new(0);
    let work = || {
        let folder = Folder::with_names();
        folder.write("numbers.txt", (0..80).map(|key| format!("{key}\n")).collect::<String>());
        folder.write("others.txt", (100..150).map(|key| format!("{key}\n")).collect::<String>());
        folder.write("key.txt", "07".repeat(16));
        folder.run("build -o good.ib numbers.txt").expect(0);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= files {
                return;
            }
            let mut random = Random(seed ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93));
            let (kind, original) = &originals[random.index(originals.len())];
            let (_, other) = &originals[random.index(originals.len())];
            let mut bytes = original.clone();
            mutate(&mut bytes, other, &mut random);
            let (_, first) = &originals[originals.len() - 2];
            let name = match *kind {
                "sharded" => "s.ib",
                _ => "f.ib",
            };
            let other_command = COMMANDS[number as usize % COMMANDS.len()];
            for command in ["check F numbers.txt", other_command] {
                // Every command gets the file as it was: some replace it.
                match *kind {
                    "sharded" => {
                        let shards = [first, &bytes];
                        for (shard, bytes) in (0..).zip(shards) {
                            let path = file::shard_path(folder.path("s"), shard, 2);
                            fs::write(path, bytes).expect("a temporary folder");
                        }
                    }
                    _ => folder.write("f.ib", &bytes),
                }
                folder.write("original.ib", original);
                let mut command = command.replace('F', name);
                if *kind == "keyed" {
                    command.push_str(" --key-file key.txt");
                }
                let code = limited(&folder, &command).unwrap_or_else(|problem| {
                    let kept = format!("mutated-{number}.ib");
                    let kept = std::env::temp_dir().join(kept);
                    fs::write(&kept, &bytes).expect("the file is kept for whoever looks at it");
                    panic!("{command}, {kind}, kept as {}: {problem}", kept.display());
                });
                ended[code as usize].fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    ended.map(AtomicU64::into_inner)
}

/// Runs a command with 2 GB of addresses and 20 seconds of a core. The exit code, or what was wrong.
fn limited(folder: &Folder, command: &str) -> Result<i32, String> {
    let inbloom = env!("CARGO_BIN_EXE_inbloom");
    let script = format!("ulimit -v 2000000; ulimit -t 20; ulimit -c 0; exec {inbloom} {command}");
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(folder.path("."))
        .stdin(Stdio::null())
        .output()
        .expect("bash can be run");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let escape = output.stdout.contains(&0x1b) && !command.contains("--json");
    match output.status.code() {
        Some(code @ 0..=2)
            if !stderr.contains("panicked") && !stderr.contains("a bug") && !escape =>
        {
            Ok(code)
        }
        _ => Err(format!("{}\n{stderr}", output.status)),
    }
}

#[test]
fn commands_end_well_whatever_a_filter_says() {
    let ended = run(300, 1);
    assert_eq!(ended.iter().sum::<u64>(), 600);
    // Not all are refused: there are answers too.
    assert!(ended[0] > 30 && ended[2] > 100, "{ended:?}");
}

#[test]
#[ignore = "long: 20,000 files, some minutes"]
fn commands_end_well_whatever_20_000_filters_say() {
    let ended = run(20_000, 2);
    println!("exit codes 0, 1 and 2: {ended:?}");
    assert_eq!(ended.iter().sum::<u64>(), 40_000);
}
