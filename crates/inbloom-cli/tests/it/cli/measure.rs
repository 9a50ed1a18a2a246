//! `inbloom measure`.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::cli::folder::{Folder, numbers};

#[test]
fn every_kind_keeps_its_promise_at_small_numbers() {
    let folder = Folder::new();
    for kind in ["classic", "blocked", "counting", "cuckoo", "scalable", "window --window 1h"] {
        for items in [10, 100, 3_000] {
            for rate in ["0.1", "0.01"] {
                let measure = format!("measure --json --kind {kind} -n {items} -p {rate}");
                let measured = folder.run(&measure).expect(0).json();
                assert_eq!(measured["verdict"], "met", "{measure}: {measured}");
                assert_eq!(measured["planned_items"], items);
                let promised: f64 = rate.parse().expect("ours");
                assert_eq!(measured["target_rate"], promised);
                assert_eq!(measured["probed"].as_f64(), Some(1_000.0 / promised), "{measured}");
            }
        }
    }
    for window in [10, 1_000] {
        folder.run(&format!("measure --kind window --window {window} -p 0.01")).expect(0);
    }
    let exact = folder.run("measure --json --kind bitmap --universe 10000").expect(0).json();
    assert_eq!((&exact["false_positives"], &exact["verdict"]), (&0.into(), &"met".into()));
}

#[test]
fn the_interval_is_around_the_measured_rate() {
    let folder = Folder::new();
    let measured =
        folder.run("measure --json --kind classic -n 10000 -p 0.01 --queries 200000").expect(0);
    let measured = measured.json();
    let number = |name: &str| measured[name].as_f64().expect("a number");
    assert_eq!(number("probed"), 200_000.0);
    assert_eq!(number("inserted"), 10_000.0 * number("filters"));
    assert_eq!(number("measured_rate"), number("false_positives") / 200_000.0);
    assert_eq!(number("expected_false_positives"), 2_000.0);
    assert_eq!(number("confidence"), 0.99);
    assert!(number("low") < number("measured_rate") && number("measured_rate") < number("high"));
    // 2.58 deviations to both sides; the mean of several filters is close to the promise.
    let width = number("high") - number("low");
    assert!((0.0010..0.0013).contains(&width), "{width}");
    assert!((0.009..0.011).contains(&number("measured_rate")), "{measured}");
    assert_eq!(measured["kind"], "classic");
}

#[test]
fn the_screen_shows_what_was_measured() {
    let folder = Folder::new();
    let text = folder.run("measure -n 100 -p 0.01 --kind classic").expect(0).text();
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    for expected in [
        "kind            classic\n",
        "inserted        100 keys in each of 1,000 filters\n",
        "queried         100,000 keys, all absent\n",
        "false positives ",
        "99% confidence: 0.9",
        "target rate     1.00%\n",
        "verdict         met\n",
    ] {
        assert!(text.contains(expected), "no '{expected}' in:\n{text}");
    }
}

#[test]
fn a_seed_gives_the_same_keys_again_and_another_one_others() {
    let folder = Folder::with_names();
    folder.run_with("build -n 1000 -p 0.1 -o f.ib", numbers(0, 1_000)).expect(0);
    for what in ["-n 1000 -p 0.1", "f.ib"] {
        let text = |seed: u32| {
            let measure = format!("measure --queries 50000 --seed {seed} {what}");
            folder.run(&measure).expect(0).text()
        };
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }
}

#[test]
fn too_few_queries_to_tell_are_said() {
    let folder = Folder::with_names();
    for what in ["-n 1000 -p 1e-4 --queries 1000", "names.ib --queries 1000"] {
        let text = folder.run(&format!("measure {what}")).expect(0).text();
        assert!(text.contains("undecided: only "), "{text}");
        let measured = folder.run(&format!("measure --json {what}")).expect(0).json();
        assert_eq!(measured["verdict"], "undecided", "{measured}");
    }
    folder.write("empty.txt", "");
    let text = folder.run("measure names.ib empty.txt").expect(0).text();
    assert!(text.contains("0 keys, taken as absent\n"), "{text}");
    let measured = folder.run("measure --json names.ib empty.txt").expect(0).json();
    assert_eq!((&measured["probed"], &measured["verdict"]), (&0.into(), &"undecided".into()));
}

#[test]
fn a_filter_as_planned_keeps_its_promise_and_with_twice_the_keys_does_not() {
    let folder = Folder::new();
    for kind in ["classic", "blocked", "counting", "window --window 1h"] {
        // A window of time is for as many keys in each of its four steps.
        let planned = if kind.starts_with("window") { 8_000 } else { 2_000 };
        let build = format!("build --kind {kind} -n {planned} -p 0.01 -o f.ib");
        folder.run_with(&build, numbers(0, 2_000)).expect(0);
        let kept = folder.run("measure --json f.ib").expect(0).json();
        assert_eq!(kept["verdict"], "met", "{kind}: {kept}");
        assert!(kept["inserted"].as_u64() > Some(1_950), "{kind}: {kept}");
        let build = match kind.starts_with("window") {
            true => build,
            false => format!("{build} --overfull continue"),
        };
        folder.run_with(&build, numbers(0, 2 * planned)).expect(0);
        let broken = folder.run("measure f.ib").expect(1).text();
        assert!(broken.contains("verdict         EXCEEDED: the filter holds "), "{broken}");
        let broken = folder.run("measure --json f.ib").expect(1).json();
        assert_eq!(broken["verdict"], "exceeded", "{kind}: {broken}");
        assert!(broken["low"].as_f64() > broken["target_rate"].as_f64(), "{broken}");
    }
}

#[test]
fn the_luck_of_a_small_filter_is_no_broken_promise() {
    let folder = Folder::new();
    // Of 60 filters with the planned 30 keys, some are above 1%, and all within chance.
    let mut above = 0;
    for first in 0..60 {
        let keys = numbers(1_000 * first, 1_000 * first + 30);
        folder.run_with("build --kind classic -n 30 -p 0.01 -o f.ib", keys).expect(0);
        let measured = folder.run("measure --json f.ib").expect(0).json();
        assert_eq!(measured["verdict"], "met", "{measured}");
        above += u32::from(measured["low"].as_f64() > measured["target_rate"].as_f64());
    }
    assert!(above > 3, "{above} of 60 are above: the test does not test what it is for");
}

#[test]
fn a_list_of_absent_keys_is_asked_for() {
    let folder = Folder::new();
    folder.run_with("build -n 2500 -p 0.01 --normalize lower -o f.ib", numbers(0, 2_000)).expect(0);
    let absent = numbers(10_000, 60_000);
    folder.write("absent.txt", &absent);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(absent.as_bytes()).expect("a Vec takes all bytes");
    folder.write("absent.gz", gzip.finish().expect("a Vec takes all bytes"));
    let claimed = folder.run("check -c f.ib absent.txt").text();
    let claimed: u64 = claimed.trim().parse().expect("a count");
    for what in ["absent.txt", "absent.gz"] {
        let measured = folder.run(&format!("measure --json f.ib {what}")).expect(0).json();
        assert_eq!(measured["probed"], 50_000, "{what}");
        assert_eq!(measured["false_positives"], claimed, "{what}");
        assert_eq!(measured["verdict"], "met", "{what}");
    }
    let piped = folder.run_with("measure --json f.ib -", &absent).expect(0).json();
    assert_eq!(piped["false_positives"], claimed);
    // A list that is not absent at all.
    let text = folder.run_with("measure f.ib -", numbers(0, 2_000)).expect(1).text();
    assert!(text.contains("EXCEEDED, unless some of these keys are in the filter"), "{text}");
}

#[test]
fn lines_are_normalized_as_the_filter_says() {
    let folder = Folder::new();
    folder.run_with("build -n 100 -p 0.001 --normalize lower -o f.ib", "alice\n").expect(0);
    let measured = folder.run_with("measure --json f.ib -", "ALICE\nbob\n").json();
    assert_eq!((&measured["probed"], &measured["false_positives"]), (&2.into(), &1.into()));
    let fields = folder.run_with("measure --json -d , -f 2 f.ib -", "x,Alice\n").json();
    assert_eq!(fields["false_positives"], 1);
}

#[test]
fn a_bitmap_is_measured_with_a_list_only() {
    let folder = Folder::new();
    folder.run_with("build --kind bitmap --universe 1000 -o f.ib", numbers(0, 500)).expect(0);
    folder.run("measure f.ib").expect_error(&["a bitmap is exact", "list"]);
    let measured = folder.run_with("measure --json f.ib -", numbers(500, 1_000)).expect(0).json();
    assert_eq!((&measured["false_positives"], &measured["verdict"]), (&0.into(), &"met".into()));
    let wrong = folder.run_with("measure --json f.ib -", numbers(499, 1_000)).expect(1).json();
    assert_eq!(wrong["verdict"], "exceeded");
    folder.run_with("measure f.ib -", "1\nx\n").expect_error(&["line 2"]);
}

#[test]
fn a_filter_under_a_key_is_measured_under_it() {
    let folder = Folder::new();
    folder.write("key", "00112233445566778899aabbccddeeff\n");
    folder.run_with("build --key-file key -n 1000 -o f.ib", numbers(0, 1_000)).expect(0);
    folder.run("measure f.ib").expect_error(&["f.ib", "key"]);
    folder.run("measure --key-file key f.ib").expect(0);
    folder.run("measure --key-file key -n 10 -p 0.1").expect_error(&["--key-file"]);
}

#[test]
fn what_cannot_be_measured_is_said() {
    let folder = Folder::with_names();
    fs::create_dir(folder.path("folder")).expect("a new folder");
    folder.run("measure").expect_error(&["needs the number of keys"]);
    folder.run("measure -n 0 -p 0.01").expect_error(&["at least 1"]);
    folder.run("measure -n 100 -p 0").expect_error(&["--rate"]);
    folder.run("measure -n 100 -p 1").expect_error(&["--rate"]);
    folder.run("measure -n 100 --queries 0").expect_error(&["--queries"]);
    folder.run("measure -n 1e15").expect_error(&["memory"]);
    folder.run("measure -n 100 names.ib").expect_error(&["cannot be used with"]);
    folder.run("measure --kind classic names.ib").expect_error(&["cannot be used with"]);
    folder.run("measure --seed 1 names.ib names.txt").expect_error(&["cannot be used with"]);

    folder.run("measure missing.ib").expect_error(&["missing.ib", "No such file"]);
    folder.run("measure folder").expect_error(&["folder"]);
    folder.run("measure names.txt").expect_error(&["names.txt", "inbloom"]);
    folder.run("measure names.ib missing.txt").expect_error(&["missing.txt", "No such file"]);
    folder.run("measure names.ib folder").expect_error(&["folder is a directory"]);
    let good = folder.read("names.ib");
    folder.write("cut.ib", &good[..good.len() / 2]);
    folder.run("measure cut.ib").expect_error(&["cut.ib"]);
    let mut newer = good;
    newer[8] = 2; // the version, see docs/format.md
    folder.write("newer.ib", newer);
    folder.run("measure newer.ib").expect_error(&["newer.ib", "version 2", "upgrade"]);
}
