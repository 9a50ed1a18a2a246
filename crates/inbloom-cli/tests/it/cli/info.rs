//! `inbloom info`.

use inbloom::{Digest, Filter, Hasher, Kind, Plan, SecretKey};
use serde_json::Value;

use crate::cli::folder::{Folder, numbers};

#[test]
fn info_fits_one_screen_and_shows_what_was_promised_and_what_is() {
    let folder = Folder::new();
    folder.run_with("build -n 1000 -p 0.001 -o f.ib", numbers(0, 500)).expect(0);
    let text = folder.run("info f.ib").expect(0).text();
    assert!(text.lines().count() <= 24 && text.lines().all(|line| line.len() <= 80), "{text}");
    for expected in [
        "blocked",
        "1,000",
        "0.100%",
        "new keys        500\n",
        "within the target",
        "never",
        "none",
    ] {
        assert!(text.contains(expected), "no '{expected}' in:\n{text}");
    }
    let info = folder.info("f.ib");
    let estimate = info["estimated_items"].as_f64().expect("a number");
    let error = info["estimated_items_error"].as_f64().expect("a number");
    assert!((estimate - 500.0).abs() <= 5.0 * error.max(1.0), "{estimate} +- {error}");
    assert_eq!(info["file_bytes"], folder.read("f.ib").len());
    assert_eq!(info["verified"], false);
    let verified = folder.run("info --verify --json f.ib").expect(0).json();
    assert_eq!(verified["verified"], true);
}

#[test]
fn info_shows_what_is_particular_to_a_kind() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 1_000));
    for (options, rows) in [
        (
            "counting --width 8",
            &["counters ", " of 8 bits\n", "saturated ", "counters in use "][..],
        ),
        ("cuckoo", &["fingerprints ", "load ", "of 1088 slots", "slots in use "]),
        ("window --window 500", &["window ", "the last 500 keys, in 4 steps\n", "generations "]),
        ("window --window 7d --generations 7", &["7 d, in 7 steps\n", "clock ", "in a generation"]),
    ] {
        folder.run(&format!("build --kind {options} -o f.ib keys.txt")).expect(0);
        let text = folder.run("info f.ib").expect(0).text();
        assert!(text.lines().count() <= 24 && text.lines().all(|line| line.len() <= 80), "{text}");
        for row in rows {
            assert!(text.contains(row), "no '{row}' in:\n{text}");
        }
        assert!(!text.contains("ABOVE") && !text.contains("FULL"), "{text}");
        let info = folder.info("f.ib");
        let details = info["details"].as_object().expect("an object");
        assert!(!details.is_empty() && details.values().all(Value::is_string), "{info}");
        assert_eq!(info["full"], false);
        assert_eq!(info["shard"], Value::Null);
    }
    assert_eq!(folder.info("f.ib")["width"], Value::Null);
    folder.run("build --kind counting --width 8 -o f.ib keys.txt").expect(0);
    assert_eq!(folder.info("f.ib")["width"], 8);
}

#[test]
fn info_says_that_a_cuckoo_filter_is_full() {
    let folder = Folder::new();
    let plan = Plan::builder(Kind::Cuckoo).items(1_000).build().expect("a plan");
    let mut filter = Filter::new(plan).expect("little memory");
    let fits = (0..2_000_u64).take_while(|key| filter.insert(key.to_le_bytes()).is_ok()).count();
    assert!(fits > 1_000, "{fits}");
    filter.save(folder.path("f.ib")).expect("it is saved");
    let text = folder.run("info f.ib").expect(0).text();
    assert!(text.contains("FULL: it may refuse more keys"), "{text}");
    assert_eq!(folder.info("f.ib")["full"], true);
}

#[test]
fn a_filter_that_grows_holds_more_than_planned_and_is_within_its_promise() {
    let folder = Folder::new();
    let build = folder
        .run_with("build --kind scalable -n 100 -p 0.01 -o f.ib", numbers(0, 10_000))
        .expect(0);
    assert_eq!(build.stderr.lines().count(), 1, "no warning: {}", build.stderr);
    folder.run_with("check -v f.ib", numbers(0, 10_000)).expect(1);
    let text = folder.run("info --verify f.ib").expect(0).text();
    assert!(text.contains("100 at first; grows by 2 when full"), "{text}");
    assert!(text.contains("within the target"), "{text}");
    let info = folder.info("f.ib");
    assert!(info["bytes"].as_u64() > info["planned_bytes"].as_u64(), "{info}");
    assert_eq!(info["growth"], 2);
}

#[test]
fn damage_is_found_and_named() {
    let folder = Folder::with_names();
    let good = folder.read("names.ib");

    // Every byte of the header matters, and --verify covers all others.
    for place in (0..good.len()).step_by(7).chain([good.len() - 1]) {
        let mut bad = good.clone();
        bad[place] ^= 0x10;
        folder.write("bad.ib", &bad);
        let outcome = folder.run("info --verify bad.ib");
        assert_eq!(outcome.code, 2, "byte {place}: {}{}", outcome.text(), outcome.stderr);
        assert!(!outcome.stderr.contains("panicked"), "byte {place}: {}", outcome.stderr);
    }
    for length in [0, 1, 7, 8, 64, 191, 192, good.len() / 2, good.len() - 1] {
        folder.write("cut.ib", &good[..length]);
        folder.run("info cut.ib").expect_error(&["cut.ib"]);
        folder.run_with("check cut.ib", "alice\n").expect_error(&["cut.ib"]);
    }
    let mut newer = good.clone();
    newer[8] = 2; // the version, see docs/format.md
    folder.write("newer.ib", newer);
    for command in ["info newer.ib", "info --verify newer.ib", "check newer.ib names.txt"] {
        folder.run(command).expect_error(&["newer.ib", "version 2", "upgrade inbloom"]);
    }
    folder.write("longer.ib", [&good[..], b"\n"].concat());
    folder.run("info longer.ib").expect_error(&["longer.ib"]);
    folder.write("text.ib", "alice\nbob\n".repeat(100));
    folder.run("info text.ib").expect_error(&["text.ib", "inbloom"]);
    folder.run("info names.txt").expect_error(&["names.txt"]);
    folder.run("info missing.ib").expect_error(&["missing.ib", "No such file"]);
    folder.run("info .").expect_error(&["."]);
}

#[test]
fn filters_that_lines_cannot_be_looked_up_in_as_they_are_say_so() {
    let folder = Folder::new();
    let plan = Plan::builder(Kind::Blocked).items(10).build().expect("a plan");

    let mut lower = Filter::new(plan).expect("little memory");
    lower.insert("alice").expect("it is writable");
    lower.set_normalization("lower case").expect("a short text");
    lower.save(folder.path("lower.ib")).expect("it is saved");
    let outcome = folder.run_with("check lower.ib", "alice\n").expect(0);
    assert_eq!(outcome.text(), "alice\n");
    assert!(outcome.stderr.contains("normalization \"lower case\""), "{}", outcome.stderr);

    let keyed =
        Filter::with_hasher(plan, Hasher::sip13(SecretKey::new([7; 16]))).expect("little memory");
    keyed.save(folder.path("keyed.ib")).expect("it is saved");
    folder.run_with("check keyed.ib", "alice\n").expect_error(&["keyed.ib", "key"]);
}

#[test]
fn a_histogram_of_hashed_keys_is_within_chance_for_every_kind() {
    let folder = Folder::new();
    for options in [
        "classic",
        "blocked",
        "blocked -p 1e-7",
        "counting",
        "cuckoo",
        "scalable -n 100",
        "window --window 4000",
    ] {
        for keys in [0, 10, 1_000, 20_000] {
            let build = format!("build --kind {options} -o f.ib");
            folder.run_with(&build, numbers(0, keys)).expect(0);
            let text = folder.run("info --histogram f.ib").expect(0).text();
            let verdict = if keys <= 10 { "with so few keys" } else { "within chance: no slice" };
            let few = keys == 1_000 && text.contains("with so few keys");
            assert!(text.contains(verdict) || few, "{options}, {keys} keys:\n{text}");
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
            let info = folder.run("info --histogram --json f.ib").expect(0).json();
            assert_eq!(info["histogram_outliers"], 0);
            let slices = info["histogram"].as_array().expect("a list");
            assert!((1..=64).contains(&slices.len()), "{options}: {}", slices.len());
            assert_eq!(info["histogram_expected"].as_array().map(Vec::len), Some(slices.len()));
        }
    }
    assert_eq!(folder.info("f.ib")["histogram"], Value::Null, "only if asked for");
}

#[test]
fn a_histogram_shows_the_bands_of_a_bad_hash_and_says_so() {
    let folder = Folder::new();
    // Not classic, which mixes a digest once more for each probe.
    for kind in [Kind::Blocked, Kind::Counting] {
        let plan = Plan::builder(kind).items(20_000).build().expect("a plan");
        let mut filter = Filter::new(plan).expect("little memory");
        for key in 0..20_000_u64 {
            let digest = filter.digest(key.to_le_bytes());
            // Only three quarters of all places.
            let place = digest.place / 4 * 3;
            filter.insert_digest(Digest { place, ..digest }).expect("it is writable");
        }
        filter.save(folder.path("f.ib")).expect("it is saved");
        let text = folder.run("info --histogram f.ib").expect(0).text();
        assert!(text.contains("NOT by chance"), "{kind}:\n{text}");
        let info = folder.run("info --histogram --json f.ib").expect(0).json();
        assert!(info["histogram_outliers"].as_u64() > Some(0), "{kind}");
    }
}

#[test]
fn a_histogram_of_a_bitmap_shows_where_its_integers_are_without_a_verdict() {
    let folder = Folder::new();
    for universe in ["1000", "1e18"] {
        let build = format!("build --kind bitmap --universe {universe} -n 100 -o f.ib");
        folder.run_with(&build, numbers(0, 100)).expect(0);
        let text = folder.run("info --histogram f.ib").expect(0).text();
        assert!(text.contains("integers are not hashed"), "{text}");
        let info = folder.run("info --histogram --json f.ib").expect(0).json();
        let slices = info["histogram"].as_array().expect("a list");
        assert_eq!(slices.len(), 64);
        assert!(slices[0].as_f64() > Some(0.0) && slices[63] == 0.0, "{slices:?}");
    }
}
