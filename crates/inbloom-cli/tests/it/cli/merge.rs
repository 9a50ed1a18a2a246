//! `inbloom merge`.

use std::fs;
use std::time::Duration;

use inbloom::{Filter, Hasher, Kind, Plan};

use crate::cli::folder::{Folder, numbers};

/// Every kind, with room for 15,000 keys; those of a window are all in one of its four steps.
const KINDS: &[&str] = &[
    "classic -n 20000",
    "blocked -n 20000",
    "blocked -p 1e-7 -n 20000",
    "counting -n 20000",
    "cuckoo -n 20000",
    "scalable -n 1000",
    "window --window 60000",
    "window --window 1h -n 80000",
    "bitmap --universe 100000",
    "bitmap --universe 1e18 -n 1000",
];

#[test]
fn a_merged_filter_of_every_kind_has_the_keys_of_all_and_few_others() {
    let folder = Folder::new();
    let all = numbers(0, 15_000);
    for options in KINDS {
        for (name, from) in [("a.ib", 0), ("b.ib", 5_000), ("c.ib", 10_000)] {
            let build = format!("build --kind {options} -o {name}");
            folder.run_with(&build, numbers(from, from + 5_000)).expect(0);
        }
        let before = folder.read("b.ib");
        let merge = folder.run("merge -o all.ib a.ib b.ib c.ib").expect(0);
        assert!(merge.stdout.is_empty());
        let said = &merge.stderr;
        assert!(said.starts_with("inbloom: 3 filters merged: "), "{options}: {said}");
        assert!(said.contains("(target ") && said.contains("saved as all.ib"), "{said}");
        assert_eq!(said.lines().count(), 1, "{options}: no warning: {said}");
        assert!(folder.read("b.ib") == before, "an input stays as it is");
        folder.run("info --verify all.ib").expect(0);
        let found = folder.run_with("check -c all.ib", &all).expect(0).text();
        assert_eq!(found, "15000\n", "{options}");
        let others = folder.run_with("check -c all.ib", numbers(15_000, 35_000)).text();
        let others: f64 = others.trim().parse().expect("a count");
        // At most 1% of 20,000, and its deviation is below 20.
        assert!(others < 300.0, "{options}: {others} of 20,000 are wrong");
        let estimate = folder.info("all.ib")["estimated_items"].as_f64().expect("a number");
        assert!((14_500.0..15_500.0).contains(&estimate), "{options}: {estimate}");
        if options.starts_with("bitmap") {
            assert!(said.contains("merged: 15,000 keys, "), "{said}");
        }
    }
}

#[test]
fn what_is_merged_one_after_the_other_in_place_is_what_is_merged_at_once() {
    let folder = Folder::new();
    for (name, from) in [("a.ib", 0), ("b.ib", 500), ("c.ib", 1_000)] {
        folder.run_with(&format!("build -n 3000 -o {name}"), numbers(from, from + 700)).expect(0);
    }
    folder.run("merge -o all.ib a.ib b.ib c.ib").expect(0);
    folder.run("merge -o a.ib a.ib b.ib").expect(0);
    folder.run("merge -o a.ib c.ib a.ib").expect(0);
    let open = |name: &str| Filter::open(folder.path(name)).expect("it was written");
    assert!(open("a.ib") == open("all.ib"));
    assert_eq!(folder.names(), ["a.ib", "all.ib", "b.ib", "c.ib"]);
}

#[test]
fn a_merge_of_what_differs_names_both_files_and_what_it_is() {
    let folder = Folder::with_names();
    let plan = Plan::builder(Kind::Blocked).items(100).build().expect("a plan");
    let save = |name: &str, hasher: Hasher, normalization: &str| {
        let mut filter = Filter::with_hasher(plan, hasher).expect("little memory");
        filter.set_normalization(normalization).expect("a short text");
        filter.save(folder.path(name)).expect("it is saved");
    };
    save("seed-1.ib", Hasher::xxh3(1), "");
    save("seed-2.ib", Hasher::xxh3(2), "");
    save("lower.ib", Hasher::xxh3(1), "lower case");
    for (name, options) in [
        ("classic.ib", "--kind classic -n 100 --bits-per-key 10"),
        ("classic-5.ib", "--kind classic -n 100 --bits-per-key 10 --probes 5"),
        ("counting.ib", "--kind counting -n 100 --bits-per-key 64 -k 8"),
        ("narrow.ib", "--kind counting --width 2 -n 100 --bits-per-key 64 -k 8"),
        ("100.ib", "-n 100"),
        ("1000.ib", "-n 1000"),
        ("hour.ib", "--kind window --window 1h -n 100"),
        ("day.ib", "--kind window --window 1d -n 100"),
        ("10.ib", "--kind bitmap --universe 10"),
        ("20.ib", "--kind bitmap --universe 20"),
    ] {
        folder.run(&format!("build {options} -o {name}")).expect(0);
    }
    let before = folder.read("names.ib");
    for (first, second, field) in [
        ("seed-1.ib", "seed-2.ib", "they differ in hash seed, 1 and 2"),
        ("seed-1.ib", "lower.ib", "different normalizations, \"\" and \"lower case\""),
        ("classic.ib", "100.ib", "kind, classic and blocked"),
        ("classic.ib", "classic-5.ib", "probes"),
        ("counting.ib", "narrow.ib", "width"),
        ("100.ib", "1000.ib", "bits"),
        ("hour.ib", "day.ib", "window"),
        ("10.ib", "20.ib", "10 and 20"),
    ] {
        let merge = folder.run(&format!("merge -o names.ib {first} {first} {second}"));
        merge.expect_error(&["cannot merge", first, second, field]);
        assert!(folder.read("names.ib") == before, "the output is as it was");
    }
}

#[test]
fn more_keys_than_planned_are_merged_and_said() {
    let folder = Folder::new();
    for (name, from) in [("a.ib", 0), ("b.ib", 1_000)] {
        folder.run_with(&format!("build -n 1000 -o {name}"), numbers(from, from + 1_000)).expect(0);
    }
    let merge = folder.run("merge -o all.ib a.ib b.ib").expect(0);
    assert!(merge.stderr.contains("warning: the rate is above the target"), "{}", merge.stderr);
    assert!(merge.stderr.contains("1,000 keys"), "{}", merge.stderr);
    assert!(merge.stderr.contains(" of 1,000 planned keys, bits set "), "{}", merge.stderr);
    folder.run_with("check -v all.ib", numbers(0, 2_000)).expect(1);
}

#[test]
fn a_cuckoo_filter_without_room_for_all_is_not_written() {
    let folder = Folder::new();
    for (name, from) in [("a.ib", 0), ("b.ib", 1_000)] {
        let build = format!("build --kind cuckoo -n 1000 -o {name}");
        folder.run_with(&build, numbers(from, from + 1_000)).expect(0);
    }
    let before = (folder.read("a.ib"), folder.names());
    folder.run("merge -o a.ib a.ib b.ib").expect_error(&[
        "cannot merge b.ib into a.ib",
        "the filter is full",
        "plan for more items",
    ]);
    assert!(before == (folder.read("a.ib"), folder.names()));
}

#[test]
fn the_first_note_is_kept_unless_another_is_given() {
    let folder = Folder::new();
    for (name, note) in [("a.ib", ""), ("b.ib", "of-May"), ("c.ib", "of-June")] {
        let mut build = folder.command(&format!("build -n 100 -o {name} --note"));
        assert!(build.arg(note).output().expect("it runs").status.success());
    }
    folder.run("merge -o all.ib a.ib b.ib c.ib").expect(0);
    assert_eq!(folder.info("all.ib")["note"], "of-May");
    folder.run("merge -o all.ib --note of-both b.ib c.ib").expect(0);
    assert_eq!(folder.info("all.ib")["note"], "of-both");
    folder.run("merge -o all.ib --note= b.ib c.ib").expect(0);
    assert_eq!(folder.info("all.ib")["note"], "");
}

#[test]
fn windows_of_time_forget_before_they_are_merged() {
    let folder = Folder::new();
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64;
    let plan = Plan::builder(Kind::Window).items(10).rate(1e-6).window(Duration::from_secs(3600));
    let plan = plan.build().expect("a plan");
    for (name, key, age) in [("old.ib", "alice\n", 7_200_000), ("new.ib", "bob\n", 600_000)] {
        let mut filter = Filter::new(plan).expect("little memory");
        filter.advance(now - age).expect("it has a clock");
        filter.insert(key.trim()).expect("it is writable");
        filter.save(folder.path(name)).expect("it is saved");
    }
    for merge in ["merge -o all.ib old.ib new.ib", "merge -o all.ib new.ib old.ib"] {
        folder.run(merge).expect(0);
        let filter = Filter::open(folder.path("all.ib")).expect("it was written");
        assert!(filter.contains("bob") && !filter.contains("alice"), "{merge}");
    }
}

#[test]
fn a_merge_that_fails_leaves_the_output_alone() {
    let folder = Folder::with_names();
    folder.write("text.ib", "alice\n".repeat(100));
    fs::create_dir(folder.path("folder")).expect("a new folder");
    let before = (folder.read("names.ib"), folder.names());
    folder.run("merge -o names.ib names.ib").expect_error(&["one filter", "at least two"]);
    folder.run("merge names.ib names.ib").expect_error(&["--output"]);
    folder.run("merge -o names.ib names.ib missing.ib").expect_error(&["missing.ib"]);
    folder.run("merge -o names.ib missing.ib names.ib").expect_error(&["missing.ib"]);
    folder.run("merge -o names.ib names.ib text.ib").expect_error(&["text.ib", "inbloom"]);
    folder.run("merge -o folder names.ib names.ib").expect_error(&["folder", "not a file"]);
    folder.run("merge -o none/f.ib names.ib names.ib").expect_error(&["none/f.ib"]);
    assert!(before == (folder.read("names.ib"), folder.names()), "{:?}", folder.names());
    let help = folder.run("merge --help").expect(0).text();
    assert!(help.contains("Examples:") && help.contains("Exit status:"), "{help}");
}
