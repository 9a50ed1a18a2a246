//! Filters in shards: `seen.ib` that is in no file, but in `seen.000-of-016.ib` and so on.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use inbloom::{Filter, Hasher, Kind, OpenOptions, Plan, SecretKey};
use serde_json::Value;

use crate::cli::folder::{Folder, numbers};

/// How many shards there are of most filters here.
const SHARDS: u32 = 4;

/// Empty shards for so many keys.
fn empty(kind: Kind, items: u64, rate: f64, shards: u32) -> Filter {
    let plan = Plan::builder(kind).items(items).rate(rate).build().expect("a plan");
    Filter::sharded(plan, shards).expect("little memory")
}

/// Inserts the lines of [`numbers`].
fn insert(sharded: &mut Filter, from: u64, to: u64) {
    let keys: Vec<String> = (from..to).map(|number| number.to_string()).collect();
    sharded.insert_many(&keys, &mut Vec::new()).expect("they fit");
}

fn save(folder: &Folder, stem: &str, sharded: &Filter) {
    sharded.save(folder.path(stem)).expect("they are saved");
}

/// A folder with a filter `seen` of the numbers below 1000, in shards that hardly ever err.
fn folder_with_seen() -> Folder {
    let folder = Folder::with_names();
    let mut seen = empty(Kind::Blocked, 1_000, 1e-9, SHARDS);
    insert(&mut seen, 0, 1_000);
    save(&folder, "seen", &seen);
    folder
}

/// Changes one byte of a file.
fn damage(folder: &Folder, name: &str, place: usize) {
    let mut bytes = folder.read(name);
    bytes[place] ^= 1;
    folder.write(name, bytes);
}

#[test]
fn shards_answer_as_the_library_does_without_a_missing_key_and_at_the_rate() {
    const KEYS: u64 = 20_000;
    const ABSENT: u64 = 200_000;
    let folder = Folder::new();
    folder.write("members.txt", numbers(0, KEYS));
    folder.write("absent.txt", numbers(KEYS, KEYS + ABSENT));
    for kind in [Kind::Classic, Kind::Blocked, Kind::Counting, Kind::Cuckoo, Kind::Scalable] {
        let mut sharded = empty(kind, KEYS, 0.01, 16);
        insert(&mut sharded, 0, KEYS);
        save(&folder, &format!("{kind}"), &sharded);
        let missing = folder.run(&format!("check -v {kind}.ib members.txt")).expect(1);
        assert_eq!(missing.text(), "", "{kind}");

        let found = |number: &u64| sharded.contains(number.to_string());
        let expected: String =
            (KEYS..KEYS + ABSENT).filter(found).map(|number| format!("{number}\n")).collect();
        // A small scalable filter hardly ever errs.
        let code = i32::from(expected.is_empty());
        let claimed = folder.run(&format!("check {kind}.ib absent.txt")).expect(code).text();
        assert!(claimed == expected, "{kind}: other lines than those that the shards claim");

        // Five deviations, where the rate follows from the bits that are set.
        if matches!(kind, Kind::Classic | Kind::Blocked) {
            assert!(sharded.rate() < 0.0105, "{kind}: {}", sharded.rate());
            let (count, expected) = (claimed.lines().count(), sharded.rate() * ABSENT as f64);
            let off = (count as f64 - expected).abs();
            assert!(off < 5.0 * expected.sqrt(), "{kind}: {count} claimed of {expected}");
        }
    }
}

#[test]
fn shards_go_by_the_name_of_the_file_they_would_be_and_by_their_stem() {
    let folder = folder_with_seen();
    fs::create_dir(folder.path("deep")).expect("a new folder");
    let mut dotted = empty(Kind::Classic, 10, 1e-9, 2);
    insert(&mut dotted, 5, 6);
    save(&folder, "deep/seen.2024", &dotted);
    let above = folder.path("seen").display().to_string();
    for name in ["seen.ib", "seen", "./seen.ib", &above, "deep/seen.2024.ib", "deep/seen.2024"] {
        assert_eq!(folder.run_with(&format!("check {name}"), "5\nx\n").expect(0).text(), "5\n");
        assert!(folder.info(name)["shards"].is_u64(), "{name}");
    }
    // No shards of these.
    for name in ["see", "seen.", "seen.ib.ib", "deep/seen.ib", "deep/seen", "none/seen.ib"] {
        folder.run_with(&format!("check {name}"), "5\n").expect_error(&[name, "No such file"]);
        folder.run(&format!("info {name}")).expect_error(&[name, "No such file"]);
    }
}

#[test]
fn a_file_comes_before_shards() {
    let folder = folder_with_seen();
    folder.write("seen.ib", folder.read("names.ib"));
    assert_eq!(folder.run_with("check seen.ib", "5\nalice\n").expect(0).text(), "alice\n");
    assert_eq!(folder.info("seen.ib")["shards"], Value::Null);
    // The stem is still that of the shards.
    assert_eq!(folder.run_with("check seen", "5\nalice\n").expect(0).text(), "5\n");
    folder.write("seen.ib", "no filter");
    folder.run_with("check seen.ib", "5\n").expect_error(&["seen.ib", "not an inbloom file"]);
}

#[test]
fn the_file_of_one_shard_is_a_filter_of_its_own_keys() {
    let folder = folder_with_seen();
    let mut found = 0;
    for shard in 0..SHARDS {
        let name = format!("seen.{shard:03}-of-{SHARDS:03}.ib");
        let counted = folder.run_with(&format!("check -c {name}"), numbers(0, 1_000)).expect(0);
        found += counted.text().trim().parse::<u64>().expect("a number");
        let info = folder.info(&name);
        assert_eq!((&info["shard"]["index"], &info["shards"]), (&shard.into(), &Value::Null));
    }
    assert_eq!(found, 1_000, "each key is in one shard, but for one chance in a million");
}

#[test]
fn filters_in_shards_and_in_files_are_asked_together() {
    let folder = folder_with_seen();
    let mut other = empty(Kind::Classic, 1_000, 1e-9, 3);
    insert(&mut other, 500, 1_500);
    save(&folder, "other", &other);
    folder.write("who.txt", "7\n700\n1400\nalice\nmallory\n");
    let outcome = folder.run("check names.ib -F seen.ib -F other who.txt").expect(0);
    assert_eq!(outcome.text(), "seen.ib:7\nseen.ib,other:700\nother:1400\nnames.ib:alice\n");
    let outcome = folder.run("check seen.ib -F names.ib who.txt").expect(0);
    assert_eq!(outcome.text(), "seen.ib:7\nseen.ib:700\nnames.ib:alice\n");
    assert_eq!(folder.run("check -v seen -F names.ib who.txt").expect(0).text(), "1400\nmallory\n");
    let verbose = folder.run("check --verbose -c other -F names.ib who.txt").expect(0);
    assert!(verbose.stderr.contains("other: in 3 shards: memory-mapped"), "{}", verbose.stderr);
    assert!(
        verbose.stderr.contains("names.ib: not a ribbon filter in a file"),
        "{}",
        verbose.stderr
    );
}

#[test]
fn lines_are_normalized_as_the_keys_of_all_shards_were() {
    let folder = Folder::new();
    let plan = Plan::builder(Kind::Blocked).items(10).rate(1e-9).build().expect("a plan");
    let mut shards = Filter::sharded(plan, SHARDS).expect("little memory").into_shards();
    for shard in &mut shards {
        shard.set_normalization("lower").expect("a short text");
    }
    let mut seen = Filter::from_shards(shards).expect("all of them");
    seen.insert("alice").expect("it is writable");
    save(&folder, "seen", &seen);
    assert_eq!(folder.run_with("check seen.ib", "ALICE\nbob\n").expect(0).text(), "ALICE\n");
    assert_eq!(folder.info("seen.ib")["normalization"], "lower");

    // Keys of a shard that were not normalized so would be missed.
    let last = folder.path("seen.003-of-004.ib");
    let mut shard = OpenOptions::new().writable(true).open(&last).expect("it was saved");
    shard.set_normalization("").expect("a short text");
    shard.save(&last).expect("it is saved");
    for command in ["check seen.ib", "info seen.ib", "measure seen.ib"] {
        let words = ["seen.000-of-004.ib", "seen.003-of-004.ib", "normalization", "\"lower\""];
        folder.run(command).expect_error(&words);
    }
}

#[test]
fn keyed_shards_take_their_key() {
    let folder = Folder::new();
    folder.write("key", "07".repeat(16));
    folder.write("other", "08".repeat(16));
    for kind in [Kind::Blocked, Kind::Classic] {
        let plan = Plan::builder(kind).items(1_000).rate(1e-9).build().expect("a plan");
        let hasher = Hasher::sip13(SecretKey::new([7; 16]));
        let mut keyed = Filter::sharded_with_hasher(plan, SHARDS, hasher).expect("little memory");
        insert(&mut keyed, 0, 1_000);
        save(&folder, "keyed", &keyed);
        let outcome = folder.run_with("check -v --key-file key keyed.ib", numbers(0, 1_001));
        assert_eq!(outcome.expect(0).text(), "1000\n", "{kind}");
        folder.run("info --verify --key-file key keyed.ib").expect(0);
        for command in ["check keyed.ib", "info keyed.ib", "measure keyed.ib"] {
            folder.run(command).expect_error(&["keyed.000-of-004.ib", "keyed", "--key-file"]);
            let other = format!("{command} --key-file other");
            folder.run(&other).expect_error(&[
                "keyed.000-of-004.ib",
                "a different one",
                "--key-file",
            ]);
        }
    }
    // A key from a pipe is there once, and is for all shards.
    let outcome = folder.run_with("check --key-file /dev/stdin keyed.ib key", "07".repeat(16));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (1, ""));
}

#[test]
fn a_window_in_shards_forgets_by_the_clock() {
    let folder = Folder::new();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let hour = Duration::from_secs(3600);
    for (ago, found) in [(Duration::ZERO, 1_000), (24 * hour, 0)] {
        let window = Plan::builder(Kind::Window).items(1_000).rate(1e-6).window(hour);
        let plan = window.build().expect("a plan");
        let mut sharded = Filter::sharded(plan, SHARDS).expect("little memory");
        sharded.advance((now - ago).as_millis() as u64).expect("it is writable");
        insert(&mut sharded, 0, 1_000);
        save(&folder, "window", &sharded);
        let before = folder.read("window.002-of-004.ib");
        let counted = folder.run_with("check -c window.ib", numbers(0, 1_000));
        assert_eq!(counted.text(), format!("{found}\n"), "inserted {ago:?} ago");
        assert!(folder.read("window.002-of-004.ib") == before, "only memory forgets");
    }
}

#[test]
fn info_is_one_screen_about_all_shards() {
    let folder = Folder::new();
    let hour = Duration::from_secs(3600);
    for kind in
        [Kind::Classic, Kind::Blocked, Kind::Counting, Kind::Cuckoo, Kind::Scalable, Kind::Window]
    {
        let plan = Plan::builder(kind).items(10_000).rate(0.01);
        let plan = if kind == Kind::Window { plan.window(hour) } else { plan };
        let plan = plan.build().expect("a plan");
        let mut sharded = Filter::sharded(plan, 16).expect("little memory");
        insert(&mut sharded, 0, 2_000);
        save(&folder, "seen", &sharded);
        let text = folder.run("info seen.ib").expect(0).text();
        assert!(text.lines().count() <= 24 && text.lines().all(|line| line.len() <= 80), "{text}");
        for row in [
            format!("kind            {kind}\n"),
            "shards          16, in files such as seen.000-of-016.ib\n".to_string(),
            " bytes in 16 files\n".to_string(),
            "within the target\n".to_string(),
        ] {
            assert!(text.contains(&row), "no '{row}' in:\n{text}");
        }
        assert!(!text.contains("\nshard "), "{text}");

        let info = folder.info("seen.ib");
        let (whole, estimate) = (sharded.plan(), sharded.estimated_items());
        let close = |name: &str, expected: f64| {
            let got = info[name].as_f64().expect("a number");
            assert!((got - expected).abs() <= 1e-9 * expected, "{kind}, {name}: {got}, {expected}");
        };
        close("shards", 16.0);
        close("planned_items", whole.items() as f64);
        close("target_rate", 0.01);
        close("bits", whole.bits() as f64);
        close("bytes", sharded.bytes() as f64);
        if !matches!(kind, Kind::Scalable | Kind::Window) {
            close("planned_bytes", sharded.bytes() as f64); // only these two grow
        }
        close("inserted", sharded.inserted() as f64);
        close("estimated_items", estimate.items);
        close("estimated_items_error", estimate.error);
        close("occupied", sharded.occupied() as f64);
        close("fill", sharded.fill());
        close("current_rate", sharded.rate());
        let names = (0..16).map(|shard| format!("seen.{shard:03}-of-016.ib"));
        close("file_bytes", names.map(|name| folder.read(&name).len()).sum::<usize>() as f64);
        assert_eq!((&info["shard"], &info["full"]), (&Value::Null, &false.into()), "{kind}");
        // A script meets the same names, whether a filter is in one file or not.
        let alone = folder.info("seen.000-of-016.ib");
        let fields = |info: &Value| {
            info.as_object().expect("an object").keys().cloned().collect::<Vec<String>>()
        };
        assert_eq!(fields(&info), fields(&alone), "{kind}");
        let items = alone["planned_items"].as_u64().expect("a number");
        assert!(items < whole.items(), "{kind}: {items} is not of one shard");
    }
}

#[test]
fn info_judges_shards_as_it_judges_a_file() {
    let folder = Folder::new();
    let mut overfull = empty(Kind::Blocked, 2_000, 0.01, SHARDS);
    insert(&mut overfull, 0, 4_000);
    save(&folder, "overfull", &overfull);
    let text = folder.run("info overfull.ib").expect(0).text();
    assert!(text.contains("ABOVE the target: it holds more keys than planned"), "{text}");

    // One shard that may refuse keys is enough.
    let mut full = empty(Kind::Cuckoo, 2_000, 0.01, SHARDS);
    let keys = (0..10_000_u64).map(|key| key.to_string());
    let of_one: Vec<String> = keys.filter(|key| full.shard_of(key) == 2).collect();
    assert!(full.insert_many(&of_one, &mut Vec::new()).is_err(), "shard 2 is full");
    save(&folder, "full", &full);
    let text = folder.run("info full.ib").expect(0).text();
    assert!(text.contains("FULL: it may refuse more keys"), "{text}");
    assert_eq!(folder.info("full.ib")["full"], true);
}

#[test]
fn verify_reads_every_shard_and_names_the_damaged_one() {
    let folder = folder_with_seen();
    let verified = folder.run("info --verify --json seen.ib").expect(0).json();
    assert_eq!(verified["verified"], true);
    let text = folder.run("info --verify seen").expect(0).text();
    assert!(text.contains("checksums       all good\n"), "{text}");
    for shard in 0..SHARDS {
        let name = format!("seen.{shard:03}-of-004.ib");
        let last = folder.read(&name).len() - 1;
        damage(&folder, &name, last);
        folder.run("info seen.ib").expect(0);
        folder.run("info --verify seen.ib").expect_error(&[&name, "expected"]);
        damage(&folder, &name, last);
    }
    folder.run("info --verify seen.ib").expect(0);
}

#[test]
fn a_histogram_is_of_one_shard() {
    let folder = folder_with_seen();
    for option in ["", "--json"] {
        let outcome = folder.run(&format!("info --histogram {option} seen.ib"));
        outcome.expect_error(&["seen.ib", "4 shards", "name the file", "seen.000-of-004.ib"]);
    }
    let text = folder.run("info --histogram seen.000-of-004.ib").expect(0).text();
    assert!(text.contains("share of cells in use"), "{text}");
}

#[test]
fn measure_puts_all_shards_to_the_test() {
    let folder = Folder::new();
    for kind in [Kind::Classic, Kind::Blocked, Kind::Counting] {
        let mut sharded = empty(kind, 4_000, 0.01, SHARDS);
        insert(&mut sharded, 0, 4_000);
        save(&folder, "f", &sharded);
        let kept = folder.run("measure --json f.ib").expect(0).json();
        assert_eq!(kept["verdict"], "met", "{kind}: {kept}");
        assert_eq!((&kept["probed"], &kept["planned_items"]), (&100_000.into(), &4_000.into()));
        let expected = sharded.rate() * 100_000.0;
        let claimed = kept["false_positives"].as_f64().expect("a number");
        assert!((claimed - expected).abs() < 5.0 * expected.sqrt(), "{kind}: {kept}");

        folder.write("absent.txt", numbers(10_000, 60_000));
        let counted = folder.run("check -c f.ib absent.txt").text();
        let asked = folder.run("measure --json f.ib absent.txt").expect(0).json();
        assert_eq!(asked["probed"], 50_000, "no key is another shard's");
        assert_eq!(asked["false_positives"].to_string(), counted.trim(), "{kind}");

        insert(&mut sharded, 4_000, 8_000);
        save(&folder, "f", &sharded);
        let broken = folder.run("measure f.ib").expect(1).text();
        assert!(
            broken.contains("verdict         EXCEEDED: the filter holds about "),
            "{kind}: {broken}"
        );
    }
}

#[test]
fn shards_that_are_no_whole_are_refused_and_named() {
    let commands = ["check seen.ib", "check names.ib -F seen", "info seen.ib", "measure seen.ib"];
    let folder = folder_with_seen();
    let third = folder.read("seen.002-of-004.ib");
    fs::remove_file(folder.path("seen.002-of-004.ib")).expect("it was there");
    for command in commands {
        folder.run(command).expect_error(&["seen: ", "of 4 shards, missing: 2"]);
    }
    // Another filter's, by its number of shards, by its plan, or by its own shard.
    let other = empty(Kind::Blocked, 9_000, 1e-9, SHARDS);
    save(&folder, "other", &other);
    folder.write("seen.002-of-004.ib", folder.read("other.002-of-004.ib"));
    for command in commands {
        folder.run(command).expect_error(&["seen: ", "differ"]);
    }
    folder.write("seen.002-of-004.ib", folder.read("seen.001-of-004.ib"));
    for command in commands {
        folder.run(command).expect_error(&["seen: ", "missing: 2; given twice: 1"]);
    }
    folder.write("seen.002-of-004.ib", &third);
    save(&folder, "seen", &empty(Kind::Blocked, 1_000, 1e-9, 2));
    for command in commands {
        folder.run(command).expect_error(&["seen: ", "number of shards"]);
    }
    fs::remove_file(folder.path("seen.000-of-002.ib")).expect("it was there");
    fs::remove_file(folder.path("seen.001-of-002.ib")).expect("it was there");
    folder.run("info --verify seen.ib").expect(0);
    damage(&folder, "seen.003-of-004.ib", 20);
    for command in commands {
        folder.run(command).expect_error(&["seen.003-of-004.ib", "expected"]);
    }
    folder.write("seen.003-of-004.ib", &third[..third.len() / 2]);
    for command in commands {
        folder.run(command).expect_error(&["seen.003-of-004.ib", "expected"]);
    }
}

/// A command that changes a filter, or needs one file, says that there are shards: it must not tell
/// that there is nothing, and not make a new file that would hide them.
#[test]
fn commands_for_one_file_say_that_there_are_shards_and_what_to_do() {
    let folder = folder_with_seen();
    let names = folder.names();
    for command in [
        "add seen.ib names.txt",
        "add seen names.txt",
        "remove seen.ib names.txt",
        "dedup --filter seen.ib names.txt",
        "dedup --filter seen.ib -n 1000 --window 1h names.txt",
        "merge -o new.ib names.ib seen.ib",
        "merge -o new.ib seen.ib names.ib",
        "build --base seen.ib --add names.txt -o new.ib",
    ] {
        let words = ["does not exist, but 4 shards", "check", "info", "such as seen.000-of-004.ib"];
        folder.run(command).expect_error(&words);
        assert_eq!(folder.names(), names, "{command}");
    }
    // A missing filter without shards is what it was.
    folder.run("add none.ib names.txt").expect_error(&["none.ib does not exist", "inbloom build"]);
    folder.run("merge -o new.ib names.ib none.ib").expect_error(&["none.ib", "No such file"]);
    folder.run("dedup -q --filter none.ib names.txt").expect(0);
    assert!(folder.names().contains(&"none.ib".to_string()));
}
