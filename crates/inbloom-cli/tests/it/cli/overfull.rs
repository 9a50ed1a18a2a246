//! `--overfull`: what happens when more keys come than a filter was planned for.

use std::io::{BufRead, BufReader, Write};

use inbloom::{Filter, Kind, Plan};

use crate::cli::folder::{Folder, exit_code, numbers, within_ten_seconds};

// ---- dedup --------------------------------------------------------------------------------------

#[test]
fn dedup_prints_every_new_line_however_many_come_past_n() {
    let folder = Folder::new();
    let text = numbers(1, 200_001);
    for options in [
        "-n 1000",
        "-n 1000 --kind classic",
        "-n 1000 --overfull grow",
        "-n 50k",
        "--bytes 10k",
        "-n 1000 --bits-per-key 60",
    ] {
        let outcome = folder.run_with(&format!("dedup -q {options}"), &text).expect(0);
        let printed = outcome.text().lines().count();
        // One in a million may be lost, which is a fifth of a line.
        assert!(printed >= 199_998, "{options}: {printed} of 200,000 lines");
        assert_eq!(outcome.stderr, "", "{options}");
    }
}

#[test]
fn a_filter_of_dedup_grows_across_runs_and_is_read_by_all() {
    let folder = Folder::new();
    let dedup = "dedup -q --filter seen.ib -n 1000 -p 1e-6";
    for start in (0..20_000).step_by(4000) {
        let outcome = folder.run_with(dedup, numbers(start, start + 4000)).expect(0);
        assert!(outcome.text() == numbers(start, start + 4000), "from {start} on");
    }
    assert_eq!(folder.run_with(dedup, numbers(0, 20_000)).expect(0).text(), "");
    folder.run_with("check -v seen.ib", numbers(0, 20_000)).expect(1);
    folder.run_with("check seen.ib", numbers(20_000, 30_000)).expect(1);
    let info = folder.info("seen.ib");
    assert_eq!((&info["kind"], &info["planned_items"]), (&"blocked".into(), &1000.into()));
    assert_eq!((&info["inserted"], &info["growing_part"]), (&20_000.into(), &19_000.into()));
    assert!(info["current_rate"].as_f64() <= Some(1e-6), "{info}");
    let text = folder.run("info --verify --histogram seen.ib").expect(0).text();
    assert!(text.contains("19000 keys, in ") && text.contains("within the target"), "{text}");
    folder.run("measure seen.ib --queries 100k").expect(0);
    // What has a growing part keeps its rate: add needs no word to go on.
    let added = folder.run_with("add seen.ib", numbers(20_000, 25_000)).expect(0);
    assert_eq!((added.text().as_str(), added.stderr.as_str()), ("5,000 new of 5,000 keys\n", ""));
    folder.run_with("dedup -q --filter other.ib -n 1000", numbers(30_000, 33_000)).expect(0);
    folder.run("merge -o both.ib seen.ib other.ib").expect(0);
    folder.run_with("check -v both.ib", numbers(0, 25_000) + &numbers(30_000, 33_000)).expect(1);
}

#[test]
fn dedup_that_stops_when_full_has_saved_all_that_it_printed() {
    let folder = Folder::new();
    for kind in ["blocked", "classic", "counting", "cuckoo"] {
        let dedup = format!("dedup -q --filter {kind}.ib -n 1000 --kind {kind} --overfull stop");
        let text = numbers(0, 600) + &numbers(0, 600) + &numbers(600, 5000);
        let outcome = folder.run_with(&dedup, &text).expect(2);
        let printed = outcome.text().lines().count() as u64;
        assert!(outcome.text() == numbers(0, printed), "{kind}: a prefix of the new lines");
        // A whole block of bits more or less, and no more.
        assert!((1000..1100).contains(&printed), "{kind}: {printed}");
        let line = format!("record 1,{} is new", printed + 601 - 1000);
        assert!(outcome.stderr.contains(&line), "{kind}: no {line} in: {}", outcome.stderr);
        for words in ["planned for 1,000 lines", "--overfull", "larger -n"] {
            assert!(outcome.stderr.contains(words), "{kind}: no '{words}' in: {}", outcome.stderr);
        }
        let name = format!("{kind}.ib");
        folder.run_with(&format!("check -v {name}"), numbers(0, printed)).expect(1);
        assert_eq!(folder.info(&name)["inserted"], printed, "{kind}");
        assert!(folder.info(&name)["current_rate"].as_f64() <= Some(1.1e-6), "{kind}");
        // What was seen is still dropped, and the first new line stops it again.
        let again = folder.run_with(&format!("dedup --filter {name} --overfull stop"), &text);
        assert!(again.expect(2).stdout.is_empty(), "{kind}");
    }
    // Records are counted, of which one may be several lines.
    let records = "\"a\nb\",1\n".repeat(50) + &numbers(0, 5000);
    let outcome = folder.run_with("dedup -q --csv -f 1 -n 100 --overfull stop", records).expect(2);
    let printed = outcome.text().lines().count() as u64 - 1;
    let record = format!("record {} is new", printed + 50);
    assert!(outcome.stderr.contains(&record), "no {record} in: {}", outcome.stderr);
    // Without a file it stops all the same.
    let outcome = folder.run_with("dedup -q -n 100 --overfull stop", numbers(0, 5000)).expect(2);
    assert!((100..120).contains(&outcome.text().lines().count()), "{}", outcome.text());
    // Those that cannot grow stop unless told otherwise: no line is lost in silence.
    for kind in ["counting", "cuckoo"] {
        let outcome = folder.run_with(&format!("dedup -n 100 --kind {kind}"), numbers(0, 5000));
        assert!((100..130).contains(&outcome.expect(2).text().lines().count()), "{kind}");
    }
}

#[test]
fn dedup_prints_and_saves_all_lines_before_a_refusal_by_the_filter() {
    let folder = Folder::new();
    // One that may not grow, and one that is filled until it has no room.
    for (options, most) in
        [("--kind scalable --growth 0", 1500), ("--kind cuckoo --overfull continue", 1500)]
    {
        let dedup = format!("dedup -q --filter f.ib -n 1000 {options}");
        let outcome = folder.run_with(&dedup, numbers(0, 5000)).expect(2);
        let printed = outcome.text().lines().count() as u64;
        assert!(outcome.text() == numbers(0, printed), "{options}: a prefix of the new lines");
        assert!((1000..most).contains(&printed), "{options}: {printed}");
        let record = format!("record 1,{:03} is new", printed + 1 - 1000);
        assert!(outcome.stderr.contains(&record), "{options}: {}", outcome.stderr);
        assert_eq!(folder.info("f.ib")["inserted"], printed, "{options}");
        folder.run_with("check -v f.ib", numbers(0, printed)).expect(1);
        std::fs::remove_file(folder.path("f.ib")).expect("it was saved");
    }
    let refused = folder.run_with("dedup --kind scalable --growth 0 --overfull grow", "a\n");
    refused.expect_error(&["--overfull grow", "--growth 0", "help: leave one of them out"]);
    let build = "build --kind scalable --growth 0 -n 1000 -o f.ib";
    folder.run_with(build, numbers(0, 5000)).expect_error(&["5,000 keys", "-n 5000", "--growth"]);
}

#[test]
fn a_rate_too_low_to_divide_stops_dedup_unless_it_was_asked_to_grow() {
    let folder = Folder::new();
    let outcome = folder.run_with("dedup -q -n 1000 -p 1e-12", numbers(0, 1000)).expect(0);
    assert_eq!(outcome.text().lines().count(), 1000);
    folder.run_with("dedup -q -n 1000 -p 1e-12", numbers(0, 5000)).expect(2);
    let asked = folder.run_with("dedup -n 1000 -p 1e-12 --overfull grow", "a\n");
    asked.expect_error(&["at least 2e-12"]);
}

#[test]
fn a_full_filter_of_a_build_that_cannot_grow_names_the_command_that_makes_one_that_can() {
    let folder = Folder::new();
    folder.run_with("build -o full.ib", numbers(0, 1000)).expect(0);
    let asked = folder.run_with("dedup --filter full.ib --overfull grow", numbers(0, 2000));
    let asked = asked.expect(2).stderr;
    assert!(asked.contains("the filter cannot grow"), "{asked}");
    let stopped = folder.run_with("dedup --filter full.ib", numbers(1000, 2000)).expect(2).stderr;
    for message in [asked, stopped] {
        assert!(message.contains("'inbloom build --overfull grow'"), "{message}");
        assert!(!message.contains("PlanBuilder"), "{message}");
    }
    folder.run_with("build -p 1e-6 --overfull grow -o base.ib", numbers(0, 1000)).expect(0);
    let grown = folder.run_with("dedup --filter base.ib", numbers(0, 2000)).expect(0);
    assert_eq!(grown.text().lines().count(), 1000);
}

#[test]
fn merged_filters_that_have_passed_their_rate_grow_no_further() {
    let folder = Folder::new();
    folder.run_with("dedup -q --filter a.ib -n 20k -p 0.01", numbers(0, 20_000)).expect(0);
    folder.run_with("dedup -q --filter b.ib -n 20k -p 0.01", numbers(20_000, 40_000)).expect(0);
    folder.run("merge -o m.ib a.ib b.ib").expect(0);
    assert!(folder.info("m.ib")["current_rate"].as_f64() > Some(0.01));
    let before = folder.read("m.ib");
    let refused = folder.run_with("add m.ib", numbers(40_000, 50_000)).expect(2);
    assert!(refused.stderr.contains("m.ib was not changed"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--overfull continue"), "{}", refused.stderr);
    let refused = folder.run_with("add --overfull grow m.ib", numbers(40_000, 50_000));
    refused.expect_error(&["m.ib", "the filter cannot grow"]);
    assert!(folder.read("m.ib") == before);
    let stopped = folder.run_with("dedup -q --filter m.ib", numbers(0, 50_000)).expect(2);
    assert!(
        stopped.stdout.is_empty() && !stopped.stderr.contains("continue from there"),
        "{}",
        stopped.stderr
    );
    let added = folder.run_with("add --overfull continue m.ib", numbers(40_000, 50_000)).expect(0);
    assert!(added.stderr.contains("warning"), "{}", added.stderr);
}

#[test]
fn lines_without_a_key_behind_the_last_one_that_fits_are_not_taken() {
    let folder = Folder::new();
    // Every third line has no second field. All lines are in one block.
    let line = |at: u64| if at % 3 == 2 { format!("{at}\n") } else { format!("{at},k{at}\n") };
    let text: String = (0..3000).map(line).collect();
    let dedup = "dedup -q -n 1000 --kind cuckoo --overfull stop -d , -f 2";
    let outcome = folder.run_with(dedup, &text).expect(2);
    let printed = outcome.text();
    assert!(text.starts_with(&printed), "a prefix of the lines");
    let keys = printed.lines().filter(|line| line.contains(',')).count();
    let without = printed.lines().count() - keys;
    assert!((1000..1100).contains(&keys), "{keys} keys");
    assert!((keys / 2).abs_diff(without) <= 1, "{keys} lines with a key and {without} without");
}

#[test]
fn exactly_n_lines_fit_whatever_happens_past_them() {
    let folder = Folder::new();
    for n in [1, 10, 1000, 20_000] {
        for what in ["grow", "stop", "continue"] {
            for kind in ["blocked", "classic"] {
                let options = format!("-n {n} -p 0.01 --kind {kind} --overfull {what}");
                let text = numbers(0, n).repeat(2);
                let outcome = folder.run_with(&format!("dedup -q {options}"), &text).expect(0);
                assert_eq!(outcome.stderr, "", "{options}");
                let built = folder.run_with(&format!("build {options} -o f.ib"), &text).expect(0);
                assert!(!built.stderr.contains("warning"), "{options}: {}", built.stderr);
                folder.run_with(&format!("build {options} -o f.ib"), "").expect(0);
                let added = folder.run_with(&format!("add --overfull {what} f.ib"), &text);
                assert_eq!(added.expect(0).stderr, "", "{options}");
            }
        }
    }
}

#[test]
fn dedup_that_continues_warns_when_the_rate_is_passed_and_not_only_in_the_end() {
    let folder = Folder::new();
    let mut child =
        folder.command("dedup -q -n 100 -p 0.01 --overfull continue").spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    stdin.write_all(numbers(0, 5000).as_bytes()).expect("it reads");
    let (stdin, warning) = within_ten_seconds(move || {
        let mut warning = String::new();
        stderr.read_line(&mut warning).expect("it warns");
        stderr.read_line(&mut warning).expect("it says what to do");
        (stdin, warning)
    });
    for words in ["warning: ", "the 100 that", "1.00%", "--overfull grow"] {
        assert!(warning.contains(words), "no '{words}' in: {warning}");
    }
    drop((stdin, child.stdout.take()));
    assert_eq!(exit_code(child), 0);
}

#[test]
fn quiet_silences_no_warning_of_lost_lines() {
    let folder = Folder::new();
    let outcome =
        folder.run_with("dedup -q -n 1000 --overfull continue", numbers(0, 50_000)).expect(0);
    assert!(outcome.stderr.contains("warning"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("-n 50000"), "what would have done: {}", outcome.stderr);
    let window = folder.run_with("dedup -q --window 1h -n 100", numbers(0, 50_000)).expect(0);
    assert!(window.stderr.contains("warning"), "{}", window.stderr);
}

#[test]
fn a_filter_that_dedup_cannot_let_grow_is_filled_and_no_further() {
    let folder = Folder::new();
    // Planned without a share for a growing part, and nearly full.
    folder.run_with("build -n 1000 -o f.ib", numbers(0, 990)).expect(0);
    let refused = folder.run_with("dedup --filter f.ib --overfull grow", numbers(990, 2000));
    refused.expect_error(&["f.ib", "cannot grow", "--overfull stop"]);
    let outcome = folder.run_with("dedup -q --filter f.ib", numbers(990, 2000)).expect(2);
    let printed = outcome.text().lines().count() as u64;
    assert!((10..60).contains(&printed), "{printed}");
    assert!(folder.info("f.ib")["current_rate"].as_f64() <= Some(0.0105));
    // One that has little in it grows, though nobody planned for it.
    folder.run_with("build -n 1000 -o g.ib", numbers(0, 100)).expect(0);
    folder.run_with("dedup -q --filter g.ib", numbers(100, 20_000)).expect(0);
    assert!(folder.info("g.ib")["current_rate"].as_f64() <= Some(0.01));
}

// ---- add ----------------------------------------------------------------------------------------

#[test]
fn add_stops_before_the_rate_is_passed_and_leaves_the_file_as_it_was() {
    let folder = Folder::new();
    for kind in ["blocked", "classic", "counting", "cuckoo"] {
        let build = format!("build --kind {kind} -n 1000 -o f.ib");
        folder.run_with(&build, numbers(0, 900)).expect(0);
        let before = folder.read("f.ib");
        folder.run_with("add f.ib", numbers(900, 20_000)).expect_error(&[
            "f.ib was not changed",
            "planned for 1,000 keys",
            "19,100 keys",
            "build it again with -n ",
        ]);
        assert!(folder.read("f.ib") == before, "{kind}");
        // What still fits is taken.
        let added = folder.run_with("add f.ib", numbers(900, 1000)).expect(0);
        assert_eq!(added.stderr, "", "{kind}");
    }
    assert_eq!(folder.names(), ["f.ib"]);
}

#[test]
fn add_can_be_told_to_grow_or_to_continue() {
    let folder = Folder::new();
    folder.run_with("build -n 1000 --overfull grow -o f.ib", numbers(0, 1000)).expect(0);
    let before = folder.read("f.ib");
    let refused = folder.run_with("add --overfull stop f.ib", numbers(1000, 3000));
    refused.expect_error(&["f.ib was not changed", "--overfull grow"]);
    assert!(folder.read("f.ib") == before);
    // What was made to grow does, without a word.
    for (options, to) in [("", 10_000), ("--overfull grow", 30_000)] {
        let added = folder.run_with(&format!("add {options} f.ib"), numbers(1000, to)).expect(0);
        assert_eq!(added.stderr, "");
    }
    assert!(folder.info("f.ib")["current_rate"].as_f64() <= Some(0.01));
    folder.run_with("check -v f.ib", numbers(0, 30_000)).expect(1);

    folder.run_with("build -n 1000 -o f.ib", numbers(0, 1000)).expect(0);
    let refused = folder.run_with("add --overfull grow f.ib", numbers(1000, 3000));
    refused.expect_error(&["f.ib", "cannot grow"]);
    let added = folder.run_with("add --overfull continue f.ib", numbers(1000, 100_000)).expect(0);
    assert!(added.stderr.contains("warning"), "{}", added.stderr);
    assert!(added.stderr.contains("again with -n 100"), "{}", added.stderr);
    folder.run_with("check -v f.ib", numbers(0, 100_000)).expect(1);
}

// ---- build --------------------------------------------------------------------------------------

#[test]
fn build_stops_at_n_writes_nothing_and_names_a_number_that_works() {
    let folder = Folder::with_names();
    let before = (folder.read("names.ib"), folder.names());
    folder.write("keys.txt", numbers(0, 100_000));
    for options in [
        "-n 100",
        "-n 100 --kind classic",
        "-n 100 --kind counting",
        "-n 100 --kind cuckoo",
        "--bytes 1000 -p 0.01",
        "-n 100 --memory 8MiB",
        "-n 100 --shards 3 --kind classic",
        "-n 100 --shards 3 --kind cuckoo",
    ] {
        let output = if options.contains("--shards") { "shards.ib" } else { "names.ib" };
        for (input, text) in [("", numbers(0, 100_000)), ("keys.txt", String::new())] {
            let build = format!("build -o {output} {options} {input}");
            let words = ["100,000 keys", "nothing was written", "-n 100000"];
            folder.run_with(&build, text).expect_error(&words);
        }
    }
    std::fs::remove_file(folder.path("keys.txt")).expect("it was written");
    assert!(before == (folder.read("names.ib"), folder.names()), "{:?}", folder.names());
    folder.run_with("build -o names.ib -n 100000", numbers(0, 100_000)).expect(0);
}

#[test]
fn a_build_larger_than_memory_stops_at_n_too() {
    let folder = Folder::new();
    // In files: 8 MiB hold half a million digests.
    for options in ["", "--shards 5 --kind classic"] {
        let build = format!("build -o f.ib -n 400k --memory 8MiB {options}");
        let refused = folder.run_with(&build, numbers(0, 900_000)).expect(2);
        for words in ["900,000 keys", "nothing was written", "-n 900000"] {
            assert!(refused.stderr.contains(words), "no '{words}' in: {}", refused.stderr);
        }
        assert!(folder.names().is_empty(), "{:?}", folder.names());
    }
    // Repetitions do not count.
    let twice = numbers(0, 390_000).repeat(2);
    folder.run_with("build -o f.ib -n 400k --memory 8MiB", twice).expect(0);
    assert_eq!(folder.info("f.ib")["planned_items"], 400_000);
}

#[test]
fn build_that_continues_recommends_the_number_that_it_has_read() {
    let folder = Folder::new();
    for options in ["", "--memory 8MiB", "--shards 2"] {
        let output = if options.contains("--shards") { "shards.ib" } else { "f.ib" };
        let build = format!("build -n 100 --overfull continue -o {output} {options}");
        let built = folder.run_with(&build, numbers(0, 100_000)).expect(0);
        assert!(built.stderr.contains("warning: "), "{}", built.stderr);
        assert!(built.stderr.contains("again with -n 100000\n"), "{}", built.stderr);
    }
    // Where the bits tell how many are different, it is that.
    let often = numbers(0, 120).repeat(100);
    let built = folder.run_with("build -n 100 --overfull continue -o f.ib", often).expect(0);
    let (_, number) = built.stderr.split_once("again with -n ").expect("it says so");
    let number: u64 = number.lines().next().and_then(|n| n.parse().ok()).expect("a number");
    assert!((120..200).contains(&number), "{number}");
}

#[test]
fn build_that_grows_keeps_its_rate() {
    let folder = Folder::new();
    for kind in ["blocked", "classic"] {
        let build = format!("build -n 1000 -p 0.001 --kind {kind} --overfull grow -o f.ib");
        let built = folder.run_with(&build, numbers(0, 50_000)).expect(0);
        assert!(!built.stderr.contains("warning"), "{}", built.stderr);
        assert!(folder.info("f.ib")["current_rate"].as_f64() <= Some(0.001), "{kind}");
        folder.run_with("check -v f.ib", numbers(0, 50_000)).expect(1);
    }
    folder
        .run_with("build -n 1000 --overfull grow --shards 2 -o g.ib", "a\n")
        .expect_error(&["--overfull grow", "--shards"]);
    folder
        .run_with("build -n 1000 --overfull grow --memory 8MiB -o g.ib", "a\n")
        .expect_error(&["--overfull grow", "--memory"]);
}

// ---- what makes no sense ------------------------------------------------------------------------

#[test]
fn overfull_is_refused_where_nothing_can_be_too_full_or_nothing_can_grow() {
    let folder = Folder::new();
    for (command, words) in [
        ("dedup --overfull stop", &["--overfull", "scalable", "-n"][..]),
        ("dedup --window 100 --overfull stop", &["--overfull", "window"]),
        ("dedup --window 1h -n 10 --overfull grow", &["--overfull", "window"]),
        ("dedup -n 10 --auto-clear 0.5 --overfull stop", &["--overfull", "--auto-clear"]),
        ("dedup -n 10 --kind cuckoo --overfull grow", &["cuckoo", "blocked"]),
        ("dedup --exact --overfull grow", &["--exact"]),
        ("dedup --count --overfull grow", &["--count"]),
        ("dedup -n 10 --overfull burst", &["grow", "stop", "continue"]),
        ("build -o f.ib -n 10 --kind counting --overfull grow", &["counting", "blocked"]),
        ("build -o f.ib --kind ribbon --overfull stop", &["--overfull", "ribbon"]),
        ("build -o f.ib --kind bitmap --universe 9 --overfull stop", &["--overfull", "bitmap"]),
    ] {
        folder.run_with(command, "1\n").expect_error(words);
    }
    assert!(folder.names().is_empty());
    // A scalable filter does what is asked for.
    folder.run_with("dedup --overfull grow", "a\n").expect(0);
    let plan = Plan::builder(Kind::Counting).items(10).build().expect("a plan");
    Filter::new(plan).expect("memory").save(folder.path("f.ib")).expect("it is saved");
    folder.run_with("add --overfull grow f.ib", "a\n").expect_error(&["f.ib", "counting"]);
}
