//! `inbloom build --base`, `--never-match` and `--overlay`: lists that change after they were built.

use std::fs;

use crate::cli::folder::{Folder, numbers};

/// A folder with `list.ib`, a ribbon filter of 0 to 9999 with room for additions, and its keys.
fn with_list(options: &str) -> Folder {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 10_000));
    let build = format!("build --kind ribbon {options} -o list.ib keys.txt");
    folder.run(&build).expect(0);
    folder
}

#[test]
fn a_list_is_changed_and_answers_as_a_whole() {
    let folder = with_list("-p 1e-6 --overlay");
    folder.write("new.txt", numbers(20_000, 20_100));
    folder.write("gone.txt", numbers(500, 700));
    let update = "build --base list.ib --add new.txt --remove gone.txt -o next.ib";
    let said = folder.run(update).expect(0);
    assert_eq!(said.text(), "");
    let start = "inbloom: 200 removed of 200 keys, 100 added of 100 keys; ribbon, ";
    assert!(said.stderr.starts_with(start), "{}", said.stderr);
    assert!(said.stderr.ends_with("; saved as next.ib\n"), "{}", said.stderr);

    let kept = numbers(0, 500) + &numbers(700, 10_000) + &numbers(20_000, 20_100);
    let check = folder.run_with("check next.ib", numbers(0, 21_000)).expect(0);
    assert_eq!(check.text(), kept);
    folder.run("info --verify next.ib").expect(0);
    // The base is as it was.
    assert_eq!(folder.run_with("check -c list.ib", numbers(0, 21_000)).text(), "10000\n");

    let info = folder.info("next.ib");
    assert_eq!((&info["added"], &info["excluded"]), (&100.into(), &200.into()));
    assert_eq!((&info["inserted"], &info["occupied"]), (&9_900.into(), &10_000.into()));
    assert_eq!(info["target_rate"], 1e-6);
    assert!(info["current_rate"].as_f64().unwrap() <= 1e-6, "{info}");
    let plain = folder.info("list.ib");
    assert!(plain["added"].is_null() && plain["excluded"].is_null());
    let shown = folder.run("info next.ib").expect(0).text();
    for part in ["added           100 keys", "excluded        200 keys", "within the target"] {
        assert!(shown.contains(part), "no '{part}' in {shown}");
    }
}

#[test]
fn the_output_may_be_the_base_and_changes_add_up() {
    let folder = with_list("-p 1e-6 --overlay");
    for day in 0..5 {
        folder.write("new.txt", numbers(20_000 + 10 * day, 20_010 + 10 * day));
        folder.write("gone.txt", numbers(10 * day, 10 + 10 * day));
        folder.run("build --base list.ib --add new.txt --remove gone.txt -o list.ib").expect(0);
    }
    let check = folder.run_with("check list.ib", numbers(0, 21_000)).expect(0);
    assert_eq!(check.text(), numbers(50, 10_000) + &numbers(20_000, 20_050));
    // And back: the list forgets that they were gone.
    folder.run_with("build --base list.ib --add - -o list.ib", numbers(0, 50)).expect(0);
    let info = folder.info("list.ib");
    assert_eq!((&info["added"], &info["excluded"]), (&50.into(), &0.into()));
    assert_eq!(folder.names(), ["gone.txt", "keys.txt", "list.ib", "new.txt"]);
}

#[test]
fn removes_come_first_then_adds_and_what_is_allowed_wins() {
    let folder = with_list("-p 1e-6");
    folder.write("new.txt", "7\nnew\nboth\n");
    folder.write("gone.txt", "7\n8\nboth\n");
    folder.write("good.txt", "9\nboth\nnever\n");
    let said = folder
        .run(
            "build --base list.ib --add new.txt --remove gone.txt --never-match good.txt -o \
              next.ib",
        )
        .expect(0);
    assert!(said.stderr.contains("2 removed of 3 keys, 3 added of 3 keys"), "{}", said.stderr);
    let allowed = "2 of 3 keys in --never-match matched, and are now excluded\n";
    assert!(said.stderr.ends_with(allowed), "{}", said.stderr);
    let check = folder.run_with("check next.ib", "6\n7\n8\n9\nnew\nboth\nnever\n").expect(0);
    assert_eq!(check.text(), "6\n7\nnew\n");
}

#[test]
fn allowed_keys_are_never_hit_from_the_first_build_on() {
    let folder = with_list("-p 0.05");
    folder.write("good.txt", numbers(50_000, 60_000));
    let claimed = folder.run("check -c list.ib good.txt").expect(0).text();
    let claimed: u64 = claimed.trim().parse().expect("a number");
    assert!((200..700).contains(&claimed), "{claimed} of 10,000 at 3 to 5%");
    for build in [
        "build --kind ribbon -p 0.05 --never-match good.txt -o next.ib keys.txt",
        "build --base list.ib --never-match good.txt -o next.ib",
    ] {
        let said = folder.run(build).expect(0);
        let told =
            format!("{claimed} of 10,000 keys in --never-match matched, and are now excluded");
        assert!(said.stderr.contains(&told), "{build}: {}", said.stderr);
        assert!(!said.stderr.contains("emptied itself"), "{}", said.stderr);
        folder.run("check -c next.ib good.txt").expect(1);
        folder.run("check -v next.ib keys.txt").expect(1);
        let info = folder.info("next.ib");
        assert_eq!(info["excluded"], claimed);
        // None of them was in.
        assert_eq!(info["inserted"], 10_000);
        assert_eq!(info["estimated_items"], 10_000.0);
    }
}

#[test]
fn more_allowed_keys_than_members_leave_the_members_in_the_count() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 100));
    folder.write("good.txt", numbers(50_000, 60_000));
    folder.run("build --kind ribbon -p 0.1 --never-match good.txt -o list.ib keys.txt").expect(0);
    let info = folder.info("list.ib");
    assert!(info["excluded"].as_u64().expect("a number") > 100, "{info}");
    assert_eq!(info["inserted"], 100);
    assert_eq!(info["estimated_items"], 100.0);
    // What is removed later has left.
    folder.run_with("build --base list.ib --remove - -o list.ib", numbers(0, 10)).expect(0);
    let info = folder.info("list.ib");
    assert_eq!(info["inserted"], 90);
    assert_eq!(info["estimated_items"], 90.0);
}

#[test]
fn a_living_base_leaves_room_in_the_promise() {
    // 2^-7 is all of the rate, and nine tenths of it need one bit more.
    let folder = with_list("-p 0.0078125 --overlay");
    assert_eq!(folder.info("list.ib")["target_rate"], 0.0078125);
    assert_eq!(folder.info("list.ib")["current_rate"], 0.00390625);
    folder.write("new.txt", numbers(20_000, 20_100));
    let update = "build --base list.ib --add new.txt -o list.ib";
    let said = folder.run(update).expect(0);
    assert!(!said.stderr.contains("warning"), "{}", said.stderr);

    let folder = with_list("-p 0.0078125");
    folder.write("new.txt", numbers(20_000, 20_100));
    let said = folder.run(update).expect(0);
    let warning = "warning: the rate is above its target with 100 keys added";
    assert!(said.stderr.contains(warning), "{}", said.stderr);
    let shown = folder.run("info list.ib").expect(0).text();
    assert!(shown.contains("ABOVE the target: build it again"), "{shown}");
    // Without -p it is the rate of every other build.
    let folder = with_list("--overlay");
    assert_eq!(folder.info("list.ib")["target_rate"], 0.01);
}

#[test]
fn a_list_that_has_grown_by_much_says_that_it_is_due() {
    let folder = with_list("-p 1e-4 --overlay");
    folder.write("new.txt", numbers(20_000, 20_200));
    let said = folder.run("build --base list.ib --add new.txt -o list.ib").expect(0);
    assert!(!said.stderr.contains("again"), "2% are fine: {}", said.stderr);
    let said = folder.run_with("build --base list.ib --add - -o list.ib", "one more\n").expect(0);
    let due =
        "the overlay has 201 keys, 2.01% of the 10,000 in the base\nhelp: build the filter again";
    assert!(said.stderr.contains(due), "{}", said.stderr);
}

#[test]
fn keys_are_made_as_those_of_the_base() {
    let folder = Folder::new();
    folder.write("keys.txt", "Alice\nBob\n");
    folder.run("build --kind ribbon -p 1e-9 --normalize lower -o list.ib keys.txt").expect(0);
    folder.write("new.csv", "1,CAROL\n2,Dave\n");
    folder.write("gone.csv", "1,aLICE\n");
    let update = "build --base list.ib --add new.csv --remove gone.csv -d , -f 2 --note changed";
    folder.run(&format!("{update} -o list.ib")).expect(0);
    let check = folder.run_with("check list.ib", "alice\nBOB\ncarol\nDAVE\n").expect(0);
    assert_eq!(check.text(), "BOB\ncarol\nDAVE\n");
    let info = folder.info("list.ib");
    assert_eq!((&info["note"], &info["normalization"]), (&"changed".into(), &"lower".into()));
    // A note stays if there is no other.
    folder.run_with("build --base list.ib --add - -o list.ib", "erin\n").expect(0);
    assert_eq!(folder.info("list.ib")["note"], "changed");
}

#[test]
fn a_keyed_list_is_changed_under_its_key() {
    let folder = Folder::new();
    folder.write("key", "00112233445566778899aabbccddeeff");
    folder.write("keys.txt", "alice\nbob\n");
    folder.run("build --kind ribbon --key-file key -p 1e-9 -o list.ib keys.txt").expect(0);
    folder.write("new.txt", "carol\n");
    let update = "build --base list.ib --add new.txt -o list.ib";
    folder.run(update).expect_error(&["list.ib", "--key-file"]);
    folder.run(&format!("{update} --key-file key")).expect(0);
    folder.run("info --verify --key-file key list.ib").expect(0);
    let check = folder.run_with("check --key-file key list.ib", "carol\ndave\nbob\n").expect(0);
    assert_eq!(check.text(), "carol\nbob\n");
}

#[test]
fn what_makes_no_sense_is_refused_and_nothing_changes() {
    let folder = with_list("-p 1e-4");
    folder.write("new.txt", "new\n");
    folder.run("build -o blocked.ib keys.txt").expect(0);
    fs::create_dir(folder.path("lists")).expect("a new folder");
    let before = folder.read("list.ib");
    let names = folder.names();
    for (arguments, words) in [
        ("--base list.ib -o list.ib", &["no changes to make", "--add"][..]),
        ("--base blocked.ib --add new.txt -o x.ib", &["kind blocked", "inbloom add"]),
        ("--base absent.ib --add new.txt -o x.ib", &["absent.ib"]),
        ("--base new.txt --add new.txt -o x.ib", &["new.txt", "not an inbloom file"]),
        ("--base list.ib --add absent.txt -o list.ib", &["absent.txt"]),
        ("--base list.ib --add lists -o list.ib", &["lists is a directory"]),
        ("--base list.ib --add new.txt -o new.txt", &["input and output"]),
        ("--base list.ib --add - --remove - -o list.ib", &["standard input", "once"]),
        ("--base list.ib --add new.txt -o list.ib keys.txt", &["--base", "[FILES]"]),
        ("--base list.ib --add new.txt -o list.ib -n 5", &["--base", "'--items"]),
        ("--base list.ib --add new.txt -o list.ib -p 0.1", &["--base", "'--rate"]),
        ("--base list.ib --add new.txt -o list.ib --kind ribbon", &["--base", "--kind"]),
        ("--base list.ib --add new.txt -o list.ib --normalize lower", &["--normalize"]),
        ("--base list.ib --add new.txt -o list.ib --overlay", &["--base", "--overlay"]),
        ("--add new.txt -o list.ib keys.txt", &["--base"]),
        ("--remove new.txt -o list.ib keys.txt", &["--base"]),
        ("--overlay -o list.ib keys.txt", &["--overlay", "--kind ribbon"]),
        ("--never-match new.txt -o list.ib keys.txt", &["--never-match", "--kind ribbon"]),
        ("--kind ribbon --overlay --bytes 1M -o list.ib keys.txt", &["--overlay", "--bytes"]),
        ("--kind ribbon --never-match - -o list.ib", &["standard input", "once"]),
        ("--kind ribbon --never-match absent.txt -o list.ib keys.txt", &["absent.txt"]),
        ("--kind ribbon --never-match lists -o list.ib keys.txt", &["lists is a directory"]),
    ] {
        folder.run(&format!("build {arguments}")).expect_error(words);
        assert!(folder.read("list.ib") == before, "{arguments}: the list was changed");
        assert_eq!(folder.names(), names, "{arguments}");
    }
}

#[test]
fn a_changed_list_is_still_no_filter_to_add_to() {
    let folder = with_list("-p 1e-4");
    folder.write("new.txt", "new\n");
    folder.run("build --base list.ib --add new.txt -o list.ib").expect(0);
    let before = folder.read("list.ib");
    for command in
        ["add list.ib new.txt", "remove list.ib new.txt", "merge -o x.ib list.ib list.ib"]
    {
        folder.run(command).expect_error(&["kind ribbon cannot", "inbloom build --base"]);
    }
    assert!(folder.read("list.ib") == before);
}

#[test]
fn a_damaged_base_is_not_made_good_by_saving_it_again() {
    let folder = with_list("-p 1e-4");
    folder.write("new.txt", "new\n");
    let mut bytes = folder.read("list.ib");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    folder.write("list.ib", &bytes);
    folder.run("build --base list.ib --add new.txt -o next.ib").expect_error(&["checksum"]);
    assert!(!fs::exists(folder.path("next.ib")).expect("the folder can be read"));
}
