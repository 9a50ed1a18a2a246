//! Hash seeds: kept in the file, needed by nobody who opens it, and the same for all of a filter.

use crate::cli::folder::{Folder, numbers};

#[test]
fn a_seed_is_kept_in_the_file_and_shown() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 1_000));
    for kind in ["blocked", "classic", "counting", "cuckoo", "scalable", "ribbon"] {
        let build = format!("build --kind {kind} -n 2000 -p 1e-6 -o");
        folder.run(&format!("{build} seeded.ib --hash-seed 7 keys.txt")).expect(0);
        folder.run(&format!("{build} default.ib keys.txt")).expect(0);
        assert_eq!(folder.info("seeded.ib")["hash_seed"], 7, "{kind}");
        assert_eq!(folder.info("default.ib")["hash_seed"], 0, "{kind}");
        let text = folder.run("info seeded.ib").expect(0).text();
        assert!(text.contains("xxh3-128 under seed 7\n"), "{text}");
        assert!(!folder.run("info default.ib").expect(0).text().contains("seed"), "{kind}");
        let found = folder.run("check -c seeded.ib keys.txt").expect(0);
        assert_eq!(found.text(), "1000\n", "{kind}");
        // Nobody gives the seed again.
        if kind != "ribbon" {
            folder.run_with("add seeded.ib", "another\n").expect(0);
            let unseen = folder.run_with("dedup -q --filter seeded.ib", "another\nnew\n").expect(0);
            assert_eq!(unseen.text(), "new\n", "{kind}");
        }
    }
}

#[test]
fn a_filter_in_parts_or_shards_has_one_seed() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 1_000));
    folder.run("build --hash-seed 7 --shards 4 -p 1e-6 -o shards.ib keys.txt").expect(0);
    folder.run("build --hash-seed 7 --memory 64M -p 1e-6 -o parts.ib keys.txt").expect(0);
    folder.run("build --hash-seed 7 -p 1e-6 -o whole.ib keys.txt").expect(0);
    for file in ["shards.ib", "parts.ib", "whole.ib"] {
        assert_eq!(folder.info(file)["hash_seed"], 7, "{file}");
        let found = folder.run(&format!("check -c {file} keys.txt")).expect(0);
        assert_eq!(found.text(), "1000\n", "{file}");
    }
    // What is added to a ribbon is hashed as its base is.
    folder.run("build --kind ribbon --hash-seed 7 -p 1e-6 -o list.ib keys.txt").expect(0);
    folder.write("more.txt", "another\n");
    folder.run("build --base list.ib --add more.txt -o list.ib").expect(0);
    folder.run_with("check list.ib", "another\n").expect(0);
    let refused = folder.run("build --base list.ib --add more.txt --hash-seed 7 -o list.ib");
    refused.expect_error(&["--hash-seed"]);
}

#[test]
fn check_asks_filters_of_different_seeds_each_with_its_own_digests() {
    let folder = Folder::new();
    folder.run_with("build -n 1000 -p 1e-9 -o a.ib --hash-seed 1", "alice\nbob\n").expect(0);
    folder.run_with("build -n 1000 -p 1e-9 -o b.ib --hash-seed 2", "bob\ncarol\n").expect(0);
    folder.run_with("build -n 1000 -p 1e-9 -o c.ib --hash-seed 1", "dave\n").expect(0);
    let lines = "alice\nbob\ncarol\ndave\nerin\n";
    let found = folder.run_with("check a.ib -F b.ib -F c.ib", lines).expect(0);
    assert_eq!(found.text(), "a.ib:alice\na.ib,b.ib:bob\nb.ib:carol\nc.ib:dave\n");
}

#[test]
fn filters_of_different_seeds_are_not_merged() {
    let folder = Folder::new();
    folder.run_with("build -n 1000 -o a.ib", "alice\n").expect(0);
    folder.run_with("build -n 1000 -o b.ib --hash-seed 2", "bob\n").expect(0);
    folder.run("merge -o all.ib a.ib b.ib").expect_error(&["hash seed", "0 and 2", "--hash-seed"]);
}

#[test]
fn a_seed_that_means_nothing_is_refused() {
    let folder = Folder::new();
    folder.write("key", "07".repeat(16));
    folder.write("keys.txt", "1\n2\n");
    let refused = |options: &str, words: &[&str]| {
        folder.run(&format!("build {options} -o f.ib keys.txt")).expect_error(words);
    };
    refused("--hash-seed 1 --key-file key", &["--hash-seed", "--key-file"]);
    refused("--hash-seed 1 --kind bitmap --universe 9", &["bitmap", "leave --hash-seed out"]);
    refused("--hash-seed -1", &["--hash-seed"]);
    refused("--hash-seed x", &["--hash-seed"]);
}
