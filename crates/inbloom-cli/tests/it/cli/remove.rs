//! `inbloom remove`.

use std::fs;

use inbloom::{Filter, OpenOptions};

use crate::cli::folder::{Folder, numbers};

#[test]
fn what_is_removed_is_gone_and_the_rest_stays() {
    let folder = Folder::new();
    folder.write("some.txt", numbers(200, 400));
    for kind in [
        "bitmap --universe 5000",
        "bitmap --universe 1e12",
        "counting -n 1000 -p 1e-9",
        "cuckoo -n 1000 -p 1e-9",
    ] {
        folder.run_with(&format!("build --kind {kind} -o f.ib"), numbers(0, 1_000)).expect(0);
        let removed = folder.run("remove f.ib some.txt").expect(0);
        assert_eq!(removed.text(), "200 removed of 200 keys\n", "{kind}");
        assert_eq!(removed.stderr, "");
        let kept = folder.run_with("check f.ib", numbers(0, 1_000)).expect(0).text();
        assert_eq!(kept, numbers(0, 200) + &numbers(400, 1_000), "{kind}");
        assert_eq!(folder.info("f.ib")["inserted"], 800, "{kind}");
        folder.run("info --verify f.ib").expect(0);
        let before = folder.read("f.ib");
        assert_eq!(folder.run("remove f.ib some.txt").text(), "0 removed of 200 keys\n");
        assert!(folder.read("f.ib") == before, "{kind}");
        // And in again.
        assert_eq!(folder.run("add f.ib some.txt").expect(0).text(), "200 new of 200 keys\n");
        folder.run_with("check -v f.ib", numbers(0, 1_000)).expect(1);
    }
}

#[test]
fn one_key_is_no_plural() {
    let folder = Folder::new();
    folder.run_with("build --kind cuckoo -p 1e-9 -o f.ib", "alice\nbob\n").expect(0);
    let remove = |lines: &str| folder.run_with("remove f.ib", lines).expect(0).text();
    assert_eq!(remove("alice\n"), "1 removed of 1 key\n");
    assert_eq!(remove("alice\n"), "0 removed of 1 key\n");
    assert_eq!(remove(""), "0 removed of 0 keys\n");
}

#[test]
fn a_line_that_comes_again_is_removed_once() {
    let folder = Folder::new();
    for kind in ["counting", "cuckoo"] {
        folder.run_with(&format!("build --kind {kind} -p 1e-9 -o f.ib"), "bob\n").expect(0);
        let mut filter =
            OpenOptions::new().writable(true).open(folder.path("f.ib")).expect("it was built");
        filter.insert("alice").expect("there is room");
        filter.insert("alice").expect("there is room");
        filter.save(folder.path("f.ib")).expect("it is saved");
        let removed = folder.run_with("remove f.ib", "alice\nalice\nalice\n").expect(0);
        assert_eq!(removed.text(), "1 removed of 3 keys\n", "{kind}");
        let filter = Filter::open(folder.path("f.ib")).expect("it was saved");
        assert_eq!((filter.count("alice"), filter.count("bob")), (1, 1), "{kind}");
    }
}

#[test]
fn the_lines_that_were_built_can_all_be_removed_however_often_they_came() {
    let folder = Folder::new();
    // A high rate: removed twice, some would take others with them.
    folder.write("log.txt", numbers(0, 2_000).repeat(3));
    folder.write("stays.txt", numbers(5_000, 6_000));
    for kind in ["counting", "cuckoo"] {
        folder.run(&format!("build --kind {kind} -n 4000 -p 1e-4 -o f.ib stays.txt")).expect(0);
        let added = folder.run("add f.ib log.txt").expect(0).text();
        // With these keys no accident happened: all have an entry of their own.
        assert_eq!(added, "2,000 new of 6,000 keys\n", "{kind}");
        let removed = folder.run("remove f.ib log.txt").expect(0).text();
        assert_eq!(removed, "2,000 removed of 6,000 keys\n", "{kind}");
        folder.run("check -v f.ib stays.txt").expect(1);
    }
}

#[test]
fn kinds_that_cannot_remove_say_which_can_before_they_read() {
    let folder = Folder::new();
    for kind in ["classic", "blocked", "scalable", "window --window 100"] {
        folder.run_with(&format!("build --kind {kind} -o f.ib -n 100"), "alice\n").expect(0);
        let before = folder.read("f.ib");
        let name = kind.split(' ').next().expect("a kind comes first");
        folder.run("remove f.ib missing.txt").expect_error(&[
            "f.ib",
            &format!("kind {name} cannot remove"),
            "counting, cuckoo or bitmap",
        ]);
        assert!(folder.read("f.ib") == before, "{kind}");
    }
}

#[test]
fn integers_that_a_bitmap_cannot_hold_are_not_in_it() {
    let folder = Folder::new();
    folder.run_with("build --kind bitmap --universe 10 -o f.ib", "1\n2\n").expect(0);
    let removed = folder.run_with("remove f.ib", "2\n10\n18446744073709551615\n").expect(0);
    assert_eq!(removed.text(), "1 removed of 3 keys\n");
    folder.run_with("remove f.ib", "1\ntwo\n").expect_error(&["line 2", "\"two\""]);
    folder.run_with("check -q f.ib", "1\n").expect(0);
}

#[test]
fn lines_are_normalized_as_the_filter_says() {
    let folder = Folder::new();
    let build = "build --kind counting -p 1e-9 --normalize lower -o f.ib";
    folder.run_with(build, "alice\nbob\n").expect(0);
    let removed = folder.run_with("remove f.ib", "ALICE\nAlice\nBOB\n").expect(0);
    assert_eq!(removed.text(), "2 removed of 3 keys\n");
}

#[test]
fn the_help_warns_before_anything_else() {
    let folder = Folder::new();
    for help in ["remove -h", "remove --help"] {
        let text = folder.run(help).expect(0).text();
        assert!(text.contains("REMOVE ONLY KEYS THAT WERE INSERTED"), "{text}");
        assert!(text.contains("REPORTS MEMBERS AS ABSENT"), "{text}");
    }
}

#[test]
fn an_error_leaves_the_filter_as_it_was() {
    let folder = Folder::new();
    fs::create_dir(folder.path("folder")).expect("a new folder");
    folder.write("names.txt", "alice\nbob\n");
    folder.run("build --kind counting -p 1e-9 -o f.ib names.txt").expect(0);
    let good = folder.read("f.ib");
    folder.run("remove f.ib names.txt missing.txt").expect_error(&["missing.txt"]);
    folder.run("remove f.ib names.txt folder").expect_error(&["folder is a directory"]);
    assert!(folder.read("f.ib") == good);
    folder.run("remove missing.ib names.txt").expect_error(&["missing.ib does not exist"]);
    folder.run("remove folder names.txt").expect_error(&["folder", "not a file"]);
    folder.run("remove names.txt names.txt").expect_error(&["names.txt", "inbloom"]);

    for place in [20, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[place] ^= 0x10;
        folder.write("bad.ib", &bad);
        folder.run("remove bad.ib names.txt").expect_error(&["bad.ib"]);
        assert!(folder.read("bad.ib") == bad, "byte {place}");
    }
    let mut newer = good;
    newer[8] = 2; // the version, see docs/format.md
    folder.write("newer.ib", newer);
    folder.run("remove newer.ib names.txt").expect_error(&["newer.ib", "version 2", "upgrade"]);
}
