//! `inbloom build`, and the filters it makes.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use inbloom::{Filter, Kind, Plan};
use serde_json::Value;

use crate::cli::folder::{Folder, numbers};

#[test]
fn every_key_of_a_built_filter_is_found_and_few_others() {
    let folder = Folder::new();
    folder.write("in.txt", numbers(0, 20_000));
    folder.write("out.txt", numbers(20_000, 120_000));
    for options in KINDS {
        let build = folder.run(&format!("build --kind {options} -o f.ib in.txt")).expect(0);
        let kind = options.split(' ').next().expect("a kind comes first");
        assert!(build.stdout.is_empty());
        assert!(build.stderr.starts_with("inbloom: 20,000 keys read, "), "{}", build.stderr);
        let hits = folder.run("check f.ib in.txt").expect(0);
        assert_eq!(hits.text(), numbers(0, 20_000), "in order, none missing");
        let wrong: f64 =
            folder.run("check -c f.ib out.txt").text().trim().parse().expect("a count");
        // 1% of 100,000; the deviation of a good filter's rate and of the draw is below 60. A
        // window or a filter that grows is not full yet, a fingerprint a whole number of bits.
        let least = match kind {
            "classic" | "blocked" | "counting" => 700.0,
            "scalable" => 10.0,
            _ => 100.0,
        };
        assert!((least..1300.0).contains(&wrong), "{kind}: {wrong} of 100,000 are wrong");
        let info = folder.info("f.ib");
        assert_eq!(info["kind"], kind);
        let planned = if options.ends_with("1h") { 80_000 } else { 20_000 };
        assert_eq!(info["planned_items"], planned, "{kind}");
        assert_eq!(info["target_rate"], 0.01);
        assert!(info["current_rate"].as_f64() <= Some(0.0105), "{info}");
        assert_eq!(info["bits"].as_u64().map(|bits| bits > 0), Some(true));
        folder.run("info --verify f.ib").expect(0);
    }
}

/// Every kind that takes lines of text, with what it needs.
const KINDS: &[&str] = &[
    "classic",
    "blocked",
    "counting",
    "cuckoo",
    "window --window 20000",
    "window --window 1h",
    "scalable -n 20000",
    "ribbon",
];

#[test]
fn a_ribbon_is_built_once_and_takes_no_more_keys() {
    let folder = Folder::new();
    folder.write("in.txt", numbers(0, 5000).repeat(2));
    let build = folder.run("build --kind ribbon -p 1e-4 -n 10 -o f.ib in.txt").expect(0);
    let said = "inbloom: 10,000 keys read, 5,000 new; ribbon, 8.9";
    assert!(build.stderr.starts_with(said), "{}", build.stderr);
    assert!(!build.stderr.contains("warning"), "more keys than planned cost no rate");
    let text = folder.run("info f.ib").expect(0).text();
    for part in ["kind            ribbon", "14 bits each", "within the target", "5,000 +- 0"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    for change in ["add f.ib in.txt", "dedup --filter f.ib in.txt", "merge -o g.ib f.ib f.ib"] {
        let words = ["kind ribbon cannot", "inbloom build --base"];
        folder.run(change).expect_error(&words);
    }
    folder.run("remove f.ib in.txt").expect_error(&["kind ribbon cannot remove"]);
    folder
        .run("build --kind ribbon --auto-clear 0.5 -o g.ib in.txt")
        .expect_error(&["cannot clear itself"]);
    folder.run("measure --kind ribbon -n 10k -p 0.001").expect(0);
    assert_eq!(folder.names(), ["f.ib", "in.txt"]);
}

#[test]
fn a_pipe_and_a_file_give_the_same_filter_of_every_kind() {
    let folder = Folder::new();
    let keys = numbers(0, 2_000);
    folder.write("keys.txt", &keys);
    for options in KINDS.iter().filter(|options| !options.ends_with("1h")) {
        folder.run(&format!("build --kind {options} -o counted.ib keys.txt")).expect(0);
        folder.run_with(&format!("build --kind {options} -o spooled.ib"), &keys).expect(0);
        assert!(folder.read("counted.ib") == folder.read("spooled.ib"), "{options}");
    }
}

#[test]
fn a_line_that_comes_again_counts_once() {
    let folder = Folder::new();
    // Far more often than a cuckoo filter holds one key.
    let keys = "alice\nbob\n".repeat(10_000);
    folder.write("keys.txt", &keys);
    for kind in ["counting", "cuckoo"] {
        for (options, input) in
            [("-n 10", ""), ("-n 10 keys.txt", ""), ("-n 2", &keys), ("", &keys)]
        {
            let build = format!("build --kind {kind} -p 1e-6 -o f.ib {options}");
            let build = folder.run_with(&build, input).expect(0);
            let read =
                if options == "-n 10" { "0 keys read, 0 new" } else { "20,000 keys read, 2 new" };
            assert!(build.stderr.contains(read), "{}", build.stderr);
        }
        let filter = Filter::open(folder.path("f.ib")).expect("it was built");
        assert_eq!((filter.count("alice"), filter.count("bob"), filter.inserted()), (1, 1, 2));
    }
}

#[test]
fn a_filter_that_is_full_says_so_and_is_not_written() {
    let folder = Folder::with_names();
    let before = (folder.read("names.ib"), folder.names());
    folder
        .run_with("build --kind cuckoo -n 100 -o names.ib --overfull continue", numbers(0, 10_000))
        .expect_error(&["the filter is full", "planned for 100", "plan for more items"]);
    folder
        .run_with("build --kind scalable --growth 0 -n 100 -o names.ib", numbers(0, 10_000))
        .expect_error(&["planned for 100", "pass -n 10000; or leave --growth out"]);
    assert!(before == (folder.read("names.ib"), folder.names()), "{:?}", folder.names());
}

#[test]
fn a_window_keeps_the_last_keys() {
    let folder = Folder::new();
    let build = "build --kind window --window 1000 --generations 10 -p 1e-6 -o f.ib";
    let built = folder.run_with(build, numbers(0, 5_000)).expect(0);
    assert!(built.stderr.contains("holds the last 1,000 keys"), "{}", built.stderr);
    folder.run_with("check -v f.ib", numbers(4_000, 5_000)).expect(1);
    let older = folder.run_with("check -c f.ib", numbers(0, 4_000)).text();
    assert!(older.trim().parse::<u64>().expect("a count") <= 100, "at most a step more: {older}");
    let info = folder.info("f.ib");
    assert_eq!((&info["window_keys"], &info["window_ms"]), (&1000.into(), &Value::Null));
    assert_eq!(info["generations"], 10);
}

#[test]
fn a_window_of_time_forgets_by_the_clock_of_the_system() {
    let folder = Folder::new();
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64;
    for (window, code) in [(Duration::from_secs(60), 1), (Duration::from_secs(86_400), 0)] {
        let plan = Plan::builder(Kind::Window).items(10).rate(1e-6).window(window).build();
        let mut filter = Filter::new(plan.expect("a plan")).expect("little memory");
        filter.advance(now - 600_000).expect("it has a clock");
        filter.insert("alice").expect("it is writable");
        filter.save(folder.path("f.ib")).expect("it is saved");
        let saved = folder.read("f.ib");
        folder.run_with("check f.ib", "alice\n").expect(code);
        assert!(folder.read("f.ib") == saved, "check changes no file");
    }
    // What is built counts as inserted now.
    folder.run_with("build --kind window --window 1h -o f.ib", "alice\n").expect(0);
    assert_eq!(folder.run_with("check f.ib", "alice\n").expect(0).text(), "alice\n");
    let info = folder.info("f.ib");
    assert_eq!((&info["window_ms"], &info["window_keys"]), (&3_600_000.into(), &Value::Null));
    assert!(info["details"]["clock"].as_str().expect("text").ends_with(" ms"), "{info}");
}

#[test]
fn more_keys_in_a_step_of_a_window_than_planned_are_said() {
    let folder = Folder::new();
    let build = folder
        .run_with("build --kind window --window 1h -n 1000 -o f.ib", numbers(0, 1_000))
        .expect(0);
    assert!(
        build.stderr.contains("warning: the filter was planned for 1,000 keys, not all"),
        "{}",
        build.stderr
    );
    assert!(build.stderr.contains("build it again with -n 4000"), "{}", build.stderr);
    let text = folder.run("info f.ib").expect(0).text();
    assert!(text.contains("ABOVE the target: more keys than planned in a step"), "{text}");
    folder.run_with("build --kind window --window 1h -o f.ib", numbers(0, 1_000)).expect(0);
    let text = folder.run("info f.ib").expect(0).text();
    assert!(text.contains("within the target"), "{text}");
}

#[test]
fn a_pipe_and_a_file_give_the_same_filter() {
    let folder = Folder::new();
    let keys = numbers(0, 5_000);
    folder.write("keys.txt", &keys);
    folder.run("build -o counted.ib keys.txt").expect(0);
    folder.run_with("build -o spooled.ib", &keys).expect(0);
    folder.run_with("build -o spooled2.ib -", &keys).expect(0);
    folder.run_with("build -n 5000 -o told.ib", &keys).expect(0);
    for name in ["spooled.ib", "spooled2.ib", "told.ib"] {
        assert!(folder.read("counted.ib") == folder.read(name), "counted.ib and {name} differ");
    }
}

#[test]
fn files_and_standard_input_can_be_mixed() {
    let folder = Folder::new();
    folder.write("a.txt", "a\n");
    folder.write("c.txt", "c");
    folder.run_with("build -o f.ib a.txt - c.txt", "b\n").expect(0);
    let found = folder.run_with("check f.ib a.txt - c.txt", "b\n").expect(0);
    assert_eq!(found.text(), "a\nb\nc\n");
}

#[test]
fn the_summary_counts_keys_read_and_new() {
    let folder = Folder::new();
    let build = folder.run_with("build -p 1e-6 -o f.ib", "a\nb\na\na\n").expect(0);
    assert!(build.stderr.contains("4 keys read, 2 new; blocked, "), "{}", build.stderr);
    assert_eq!(build.stderr.lines().count(), 1, "one line: {}", build.stderr);
    assert_eq!(folder.info("f.ib")["inserted"], 2);
}

#[test]
fn more_keys_than_planned_are_taken_where_that_was_asked_for() {
    let folder = Folder::new();
    let build = "build -n 100 --overfull continue -o f.ib";
    let build = folder.run_with(build, numbers(0, 1_000)).expect(0);
    assert!(
        build.stderr.contains("warning: the filter was planned for 100 keys"),
        "{}",
        build.stderr
    );
    let info = folder.run("info f.ib").expect(0);
    assert!(info.text().contains("ABOVE the target"), "{}", info.text());
    folder.run_with("check -v f.ib", numbers(0, 1_000)).expect(1);
}

#[test]
fn memory_is_what_was_asked_for() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 1_000));
    folder.run("build --bytes 64KiB -o f.ib keys.txt").expect(0);
    assert_eq!(folder.info("f.ib")["bytes"], 65_536);
    assert_eq!(folder.info("f.ib")["planned_items"], 1_000);
    folder.run("build --bytes 64KiB -p 0.001 -o f.ib keys.txt").expect(0);
    assert_eq!(folder.info("f.ib")["bytes"], 65_536);
    assert!(folder.info("f.ib")["planned_items"].as_u64() > Some(10_000), "the capacity");
    folder.run("build --kind classic --tier small -o f.ib keys.txt").expect(0);
    assert_eq!(folder.info("f.ib")["bits"], 8_000);
    folder.run("build --kind classic --bits-per-key 12.5 -o f.ib keys.txt").expect(0);
    assert_eq!(folder.info("f.ib")["bits"], 12_500);
    folder.run("build --bytes 64KiB --tier small -o f.ib keys.txt").expect_error(&["--tier"]);
}

#[test]
fn note_and_auto_clear_are_kept_in_the_file() {
    let folder = Folder::new();
    let mut command = folder.command("build -o f.ib --auto-clear 0.8 --note");
    let output = command.arg("seen in \x1b[1mMay").stdin(Stdio::null()).output().expect("it runs");
    assert!(output.status.success());
    assert_eq!(folder.info("f.ib")["note"], "seen in \x1b[1mMay");
    assert_eq!(folder.info("f.ib")["auto_clear"], 0.8);
    let text = folder.run("info f.ib").expect(0).text();
    assert!(!text.contains('\x1b'), "a note must not drive the terminal: {text}");
}

#[test]
fn a_filter_with_auto_clear_empties_itself_and_says_so() {
    let folder = Folder::new();
    let build =
        folder.run_with("build -n 100 --auto-clear 0.8 -o f.ib", numbers(0, 5_000)).expect(0);
    assert!(build.stderr.contains("emptied itself"), "{}", build.stderr);
    assert!(folder.info("f.ib")["fill"].as_f64() <= Some(0.81));
    folder.run_with("check -q f.ib", "0\n").expect(1);
}

#[test]
fn a_bitmap_is_built_from_integers_and_is_exact() {
    let folder = Folder::new();
    let build = "build --kind bitmap --universe 1000 -o f.ib";
    folder.run_with(build, "4\n7\n2\n5\n3\n7\n").expect(0);
    let found = folder.run_with("check f.ib", numbers(0, 2_000)).expect(0);
    assert_eq!(found.text(), "2\n3\n4\n5\n7\n");
    assert_eq!(folder.info("f.ib")["inserted"], 5);
    assert_eq!(folder.info("f.ib")["current_rate"], 0.0);

    folder.write("bad.txt", "1\n2\nthree\n4\n");
    folder.run(&format!("{build} bad.txt")).expect_error(&["bad.txt: line 3:", "three", "decimal"]);
    folder.run_with(build, "1\n-2\n").expect_error(&["(standard input): line 2:", "-2"]);
    folder.run_with(build, "1\n1000\n").expect_error(&["(standard input): line 2:", "1000"]);
    folder.run_with("check f.ib", "2 \n").expect_error(&["line 1:", "2 "]);
    folder.run_with("build --kind bitmap -o g.ib", "1\n").expect_error(&["universe"]);
    assert_eq!(folder.info("f.ib")["inserted"], 5, "failed builds left it alone");
}

#[test]
fn a_failed_build_leaves_the_old_file_and_nothing_else() {
    let folder = Folder::with_names();
    fs::create_dir(folder.path("folder")).expect("a new folder");
    folder.write("bad.txt", "1\nx\n");
    let before = (folder.read("names.ib"), folder.names());
    folder.run("build -o names.ib missing.txt").expect_error(&["cannot open missing.txt"]);
    folder.run("build -o names.ib names.txt missing.txt").expect_error(&["missing.txt"]);
    folder.run("build -o names.ib folder").expect_error(&["folder is a directory"]);
    folder.run("build -o names.ib -n 5 folder").expect_error(&["folder is a directory"]);
    folder
        .run("build -o names.ib --kind bitmap --universe 10 bad.txt")
        .expect_error(&["bad.txt: line 2"]);
    folder.run("build -o names.ib -n 1e15 names.txt").expect_error(&["memory"]);
    folder.run("build -o missing/f.ib names.txt").expect_error(&["missing/f.ib", "No such file"]);
    folder.run("build -o folder names.txt").expect_error(&["folder", "not a file"]);
    folder.run("build -o names.txt/f.ib names.txt").expect_error(&["names.txt/f.ib"]);
    assert!(before == (folder.read("names.ib"), folder.names()), "{:?}", folder.names());
}

#[cfg(unix)]
#[test]
fn what_may_not_be_read_or_written_is_said() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::with_names();
    let mode = |name: &str, mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(folder.path(name), permissions).expect("it is ours");
    };
    fs::create_dir(folder.path("locked")).expect("a new folder");
    mode("names.txt", 0o000);
    mode("locked", 0o555);
    let run = |arguments: &str| {
        if fs::read(folder.path("names.txt")).is_err() {
            return folder.run_with(arguments, "a\n");
        }
        // Root may read and write everything: as somebody else, who must be able to come here.
        mode(".", 0o777);
        let program = folder.path("inbloom");
        if !program.exists() {
            fs::copy(env!("CARGO_BIN_EXE_inbloom"), &program).expect("room for the program");
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        folder.run_command(folder.prepared(command, arguments), "a\n")
    };
    run("build -o f.ib names.txt").expect_error(&["cannot open names.txt", "denied"]);
    run("check names.ib names.txt").expect_error(&["cannot open names.txt", "denied"]);
    run("info names.txt").expect_error(&["names.txt", "denied"]);
    run("build -o locked/f.ib").expect_error(&["locked/f.ib", "denied"]);
}

#[cfg(unix)]
#[test]
fn a_device_is_not_replaced_by_a_filter() {
    let folder = Folder::with_names();
    folder.run("build -o /dev/null names.txt").expect_error(&["/dev/null", "not a file"]);
}

#[test]
fn an_existing_filter_is_replaced_by_a_new_one() {
    let folder = Folder::with_names();
    folder.run_with("build -p 1e-6 -o names.ib", "dave\n").expect(0);
    folder.run_with("check names.ib", "alice\n").expect(1);
    folder.run_with("check names.ib", "dave\n").expect(0);
    assert_eq!(folder.names(), ["names.ib", "names.txt"]);
}

#[test]
fn a_window_holds_the_last_lines_also_those_that_came_before() {
    let folder = Folder::new();
    // "again" comes every ten lines: it is among the last, always.
    let text: String = (0..20_000)
        .map(|i| if i % 10 == 0 { "again\n".into() } else { format!("{i}\n") })
        .collect();
    folder.run_with("build --kind window --window 1000 -p 1e-9 -o f.ib", &text).expect(0);
    assert_eq!(folder.run_with("check f.ib", "again\n5\n").expect(0).text(), "again\n");
    folder.run_with("add f.ib", numbers(0, 900) + "again\n" + &numbers(1000, 1900)).expect(0);
    assert_eq!(folder.run_with("check f.ib", "again\n5\n").expect(0).text(), "again\n");
}

#[test]
fn the_size_of_a_ribbon_is_that_of_its_different_keys() {
    let folder = Folder::new();
    folder.write("once.txt", numbers(0, 1000));
    folder.write("often.txt", numbers(0, 1000).repeat(10));
    for options in ["--bytes 2000", "--bits-per-key 12", "--tier middle", "-p 0.001"] {
        let build = format!("build --kind ribbon {options}");
        folder.run(&format!("{build} -o once.ib once.txt")).expect(0);
        folder.run(&format!("{build} -o often.ib often.txt")).expect(0);
        assert!(folder.read("once.ib") == folder.read("often.ib"), "{options}");
        assert_eq!(folder.run("check -c often.ib once.txt").expect(0).text(), "1000\n");
    }
    let small = folder.run("build --kind ribbon --bytes 500 -n 100 -o s.ib once.txt");
    small.expect_error(&["1,000 keys need", "--bytes allows 500"]);
    folder.run("add once.ib empty.txt").expect_error(&["once.ib", "ribbon cannot insert"]);
    folder.write("empty.txt", "");
    folder.run("build --kind ribbon -o none.ib empty.txt").expect(0);
    let info = folder.run("info --histogram --verify none.ib").expect(0).text();
    assert!(info.contains("it has no cells") || !info.contains("inf"), "{info}");
}

#[test]
fn quiet_leaves_out_the_summary_and_no_warning() {
    let folder = Folder::with_names();
    folder.write("many.txt", numbers(0, 300_000));
    for options in [
        "-o a.ib names.txt",
        "-o b.ib --kind ribbon --memory 8MiB many.txt",
        "-o c.ib --kind classic --shards 2 --memory 8MiB many.txt",
        "-o d.ib --base b.ib --add names.txt --never-match names.txt",
        "-o e.ib --kind window --window 10 -p 1e-3 many.txt",
    ] {
        for quiet in ["-q", "--quiet"] {
            assert_eq!(folder.run(&format!("build {quiet} {options}")).expect(0).stderr, "");
        }
        assert_ne!(folder.run(&format!("build {options}")).expect(0).stderr, "", "{options}");
    }
    assert_eq!(folder.run("check -c a.ib names.txt").expect(0).text(), "3\n");
    let warned = folder.run("build -q -o f.ib -n 1000 --overfull continue many.txt").expect(0);
    assert!(warned.stderr.starts_with("warning: "), "{}", warned.stderr);
    assert!(!warned.stderr.contains("inbloom: "), "{}", warned.stderr);
    folder.write("windows.txt", "a\r\nb\r\n");
    let warned = folder.run("build -q -o g.ib windows.txt").expect(0).stderr;
    assert!(warned.contains("carriage return") && !warned.contains("inbloom: "), "{warned}");
}
