//! Which part of the input is the key (CSV, JSON, lines without the field), what is refused as
//! input, and how long a line may be.

use std::fs;
use std::process::{Command, Stdio};

use crate::cli::folder::{Folder, numbers};

const ORDERS: &str = "id,customer,note\r\n\
                      1,\"Smith, John\",\"two\r\nlines\"\r\n\
                      2,\"Smith, Ann\",x\r\n\
                      3,\"Smith, John\",y\r\n\
                      4,\"say \"\"hi\"\"\",z\r\n";

#[test]
fn quoted_fields_of_csv_are_keys_and_records_are_printed_as_they_came() {
    let folder = Folder::new();
    folder.write("orders.csv", ORDERS);
    let printed = folder.run("dedup -q --csv -f 2 --header orders.csv").expect(0).text();
    assert_eq!(printed, ORDERS.replace("3,\"Smith, John\",y\r\n", ""));
    folder.write("customers.txt", "Smith, John\nsay \"hi\"\n");
    folder.run("build -p 1e-9 -o f.ib customers.txt").expect(0);
    let found = folder.run("check --csv-field customer f.ib orders.csv").expect(0);
    assert_eq!(found.text(), ORDERS.replace("2,\"Smith, Ann\",x\r\n", ""));
    assert_eq!(found.stderr, "", "a carriage return ends a record of CSV, and is no part of it");
    // A record is one, however many lines it has, and the header is the first.
    let numbered = folder.run("check -n --csv-field customer f.ib orders.csv").expect(0).text();
    assert!(numbered.starts_with("2:1,") && numbered.contains("\n4:3,"), "{numbered}");
    let built = folder.run("build -p 1e-9 --csv-field customer -o g.ib orders.csv").expect(0);
    assert!(built.stderr.contains("4 keys read, 3 new"), "{}", built.stderr);
    assert_eq!(folder.info("g.ib")["planned_items"], 4, "neither lines nor the header are counted");
}

#[test]
fn csv_is_the_same_however_it_is_read() {
    let folder = Folder::new();
    // Records of up to some hundred kilobytes, with newlines and quotes, across many blocks.
    let mut text = String::from("\u{feff}\"the\nkey\",value\n");
    let mut unique = text.clone();
    for number in 0..3000_u32 {
        let long = "a \"\"quoted\"\" line,\n".repeat(if number % 500 == 7 { 20_000 } else { 3 });
        let record = format!("\"{}\n\",\"{long}\"\n", number % 2000);
        text.push_str(&record);
        if number < 2000 {
            unique.push_str(&record);
        }
    }
    folder.write("in.csv", &text);
    let gzip = Command::new("gzip").args(["-k1", "in.csv"]).current_dir(folder.path(".")).status();
    assert!(gzip.expect("gzip can be run").success());
    for (options, input) in [("-j1", "in.csv"), ("-j4", "in.csv"), ("", "in.csv.gz")] {
        let options = format!("dedup -q -n 3000 --csv --header -f 1 {options}");
        assert!(folder.run(&format!("{options} {input}")).expect(0).text() == unique, "{input}");
        assert!(folder.run_with(&options, folder.read(input)).expect(0).text() == unique);
    }
    let counted = folder.run("build --csv --header -f 1 -o f.ib in.csv").expect(0);
    assert!(counted.stderr.contains("3,000 keys read, 2,000 new"), "{}", counted.stderr);
    assert_eq!(folder.info("f.ib")["planned_items"], 3000);
}

#[test]
fn several_fields_of_csv_are_one_key_that_no_others_make() {
    let folder = Folder::new();
    let text = "\"a,b\",c\na,\"b,c\"\na,b\n\"a\",\"b\"\n";
    for options in ["--csv -f 1-2", "--csv -f 1,2", "--csv"] {
        let printed = folder.run_with(&format!("dedup -q {options}"), text).expect(0).text();
        assert_eq!(printed, "\"a,b\",c\na,\"b,c\"\na,b\n", "{options}");
    }
    // By name they are in the order in which they were named, whatever that of the columns.
    folder.write("one.csv", "x,y\n1,2\n");
    folder.write("two.csv", "y,x\n2,1\n1,2\n");
    let both = folder.run("dedup -q --csv-field x --csv-field y one.csv two.csv").expect(0).text();
    assert_eq!(both, "x,y\n1,2\n1,2\n");
}

#[test]
fn csv_that_cannot_be_right_is_refused() {
    let folder = Folder::with_names();
    folder.write("open.csv", "1,a\n2,\"b\n3,c\n");
    folder.write("good.csv", "id,name\n1,a\n");
    folder
        .run("check --csv -f 2 names.ib open.csv")
        .expect_error(&["open.csv: record 2", "no closing quote"]);
    folder.run("dedup --csv-field mail good.csv").expect_error(&[
        "good.csv: record 1",
        "no field \"mail\"",
        "id, name",
    ]);
    folder.run("dedup --csv -d :: good.csv").expect_error(&["one byte", "-d ';'"]);
    folder.run("dedup -d , good.csv").expect_error(&["-d needs the fields", "-f"]);
    for options in ["--csv -0", "--json-field a -f 1", "--csv-field a -f 1", "--json-field a --csv"]
    {
        let refused = folder.run(&format!("dedup {options} good.csv")).expect(2);
        assert!(refused.stderr.contains("cannot be used with"), "{options}: {}", refused.stderr);
    }
}

const EVENTS: &str = "{\"user\":{\"id\":\"alice\"},\"n\":1}\n\
                      {\"n\":2,\"user\":{\"id\":\"bob\"}}\n\
                      {\"user\":{\"id\":\"al\\u0069ce\"},\"n\":3}\n\
                      {\"user\":null}\n\
                      {\"user\":null}\n\
                      not json\n";

#[test]
fn a_field_of_json_lines_is_the_key() {
    let folder = Folder::with_names();
    let printed = folder.run_with("dedup --json-field user.id", EVENTS).expect(0);
    let (first, rest) =
        EVENTS.split_at(EVENTS.find("{\"user\":{\"id\":\"al\\u").expect("it is there"));
    let kept = &rest[rest.find('\n').expect("lines") + 1..];
    assert_eq!(printed.text(), format!("{first}{kept}"));
    assert!(printed.stderr.contains("6 lines, 3 lines without a key: 5 unique"));
    let found = folder.run_with("check -c --json-field /user/id names.ib", EVENTS).expect(0);
    assert_eq!(found.text(), "3\n");
}

#[test]
fn lines_without_the_field_are_kept_skipped_or_an_error() {
    let folder = Folder::with_names();
    let text = "1,alice\nno field\n2,alice\nno field\nnor here\n3,\n4,\n";
    let run = |options: &str| folder.run_with(options, text);
    // As cut passes them through, and awk '!seen[$2]++' does not.
    let kept = run("dedup -d , -f 2").expect(0);
    assert_eq!(kept.text(), "1,alice\nno field\nno field\nnor here\n3,\n");
    assert!(kept.stderr.contains("7 lines, 3 lines without a key: 5 unique, 2 duplicates dropped"));
    assert_eq!(run("dedup -q --exact -d , -f 2").expect(0).text(), kept.text());
    assert_eq!(run("dedup -q --missing skip -d , -f 2").expect(0).text(), "1,alice\n3,\n");
    assert_eq!(run("dedup -q --repeated -d , -f 2").expect(0).text(), "2,alice\n4,\n");
    let counted = run("dedup --count -d , -f 2").expect(0).text();
    assert_eq!(
        counted,
        "      2 1,alice\n      1 no field\n      1 no field\n      1 nor here\n      2 3,\n"
    );
    let refused = run("dedup --missing error -d , -f 2").expect(2);
    assert!(refused.stderr.contains("(standard input): line 2: no key field"));

    assert_eq!(run("check -d , -f 2 names.ib").expect(0).text(), "1,alice\n2,alice\n");
    let absent = run("check -v -d , -f 2 names.ib").expect(0).text();
    assert_eq!(absent, "no field\nno field\nnor here\n3,\n4,\n", "they are not in the filter");
    let absent = run("check -v --missing skip -d , -f 2 names.ib").expect(0).text();
    assert_eq!(absent, "3,\n4,\n");
    let both = run("check -d , -f 2 names.ib -F names.ib").expect(0).text();
    assert_eq!(both, "names.ib,names.ib:1,alice\nnames.ib,names.ib:2,alice\n");

    let built = run("build -d , -f 2 -o f.ib").expect(0);
    assert!(built.stderr.contains("4 keys read, 3 lines without a key, 2 new"), "{}", built.stderr);
    folder.run_with("build -p 1e-9 -n 9 -o g.ib", "x\n").expect(0);
    let added = run("add -d , -f 2 g.ib").expect(0);
    assert_eq!(added.text(), "2 new of 4 keys, 3 lines without a key\n");
    folder.run_with("check g.ib", "no field\n").expect(1);
    run("add --missing error -d , -f 2 g.ib").expect(2);
    let sorted = folder.run_with("sort-ints -d , -f 2", "a,7\nb\nc,3\n").expect(0);
    assert_eq!(sorted.text(), "3\n7\n");
    assert!(sorted.stderr.contains("1 line without a key"), "{}", sorted.stderr);
}

#[test]
fn missing_fields_are_the_same_to_a_filter_that_is_swept() {
    let folder = Folder::new();
    let lines: String = (0..200_000)
        .map(|number| match number % 3 {
            0 => format!("{number}\n"),
            _ => format!("{number},{}\n", number / 2),
        })
        .collect();
    folder.write("in.csv", &lines);
    folder.write("keys.txt", numbers(0, 40_000));
    folder.run("build --kind ribbon -p 1e-6 -o f.ib keys.txt").expect(0);
    for options in ["", "-v", "-v --missing skip"] {
        let usual = folder.run(&format!("check {options} -d , -f 2 f.ib in.csv")).expect(0);
        let sweep = format!("check {options} --verbose --free-memory 90k -d , -f 2 f.ib in.csv");
        let swept = folder.run(&sweep).expect(0);
        assert!(swept.stderr.contains("sweeping"), "{}", swept.stderr);
        assert!(usual.stdout == swept.stdout, "{options}: {}", swept.stderr);
    }
}

#[test]
fn xz_and_bzip2_are_read_and_what_is_not_read_is_refused_by_name() {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 1000));
    folder.run("build -p 1e-9 -o f.ib keys.txt").expect(0);
    for (program, name) in [("xz", "keys.txt.xz"), ("bzip2", "keys.txt.bz2")] {
        // The formats themselves are compared in input.rs, also where these are not installed.
        let Some(mut command) = inbloom_testing::program(program, program) else { continue };
        let status = command.args(["-k", "keys.txt"]).current_dir(folder.path(".")).status();
        assert!(status.expect("it starts").success());
        assert_eq!(folder.run(&format!("check -c f.ib {name}")).expect(0).text(), "1000\n");
        folder.run(&format!("build -p 1e-9 -o g.ib {name}")).expect(0);
        assert_eq!(folder.info("g.ib")["planned_items"], 1000);
    }
    folder.write("keys.zip", b"PK\x03\x04 and so on\n");
    folder.run("check f.ib keys.zip").expect_error(&["keys.zip", "a zip archive", "--plain"]);
    folder.run("build -o h.ib keys.zip").expect_error(&["keys.zip", "a zip archive"]);
    folder.run("check --plain f.ib keys.zip").expect(1);
}

#[test]
fn a_filter_is_not_read_as_keys() {
    let folder = Folder::with_names();
    folder.run("build -p 1e-9 -o other.ib names.txt").expect(0);
    for command in
        ["check names.ib", "build -o new.ib", "add names.ib", "dedup", "measure names.ib"]
    {
        folder.run(&format!("{command} other.ib")).expect_error(&["other.ib", "filter", "-F"]);
        let piped = folder.run_with(&format!("{command} -"), folder.read("other.ib")).expect(2);
        let refused = piped.stderr.contains("is an inbloom filter, not a list of keys");
        assert!(refused, "{command}: {}", piped.stderr);
    }
    // The other inputs are still read.
    let checked = folder.run("check names.ib other.ib names.txt").expect(2);
    assert_eq!(checked.text(), "alice\nbob\ncarol\n");
    folder.run("dedup -q --plain other.ib").expect(0);
}

#[test]
fn carriage_returns_are_warned_of_once_and_only_where_they_matter() {
    let folder = Folder::with_names();
    let dos = "alice\r\nbob\r\n";
    folder.write("dos.txt", dos);
    let warned = |options: &str| {
        let stderr = folder.run(options).stderr;
        let count = stderr.matches("lines end in a carriage return").count();
        assert!(count < 2, "{options}: {stderr}");
        count == 1
    };
    assert!(warned("check names.ib dos.txt dos.txt"));
    assert!(warned("check -q names.ib dos.txt"), "lost data is spoken of, -q or not");
    assert!(warned("build -o f.ib dos.txt"));
    assert!(warned("dedup -q dos.txt names.txt"));
    assert!(warned("dedup -q --filter g.ib dos.txt"));
    assert!(warned("add names.ib dos.txt"));
    // Now they are in it as they are.
    assert!(!warned("check names.ib dos.txt"));
    assert!(!warned("check --crlf names.ib dos.txt"));
    assert!(!warned("build --crlf -o dos.ib dos.txt"));
    assert!(!warned("check dos.ib dos.txt"), "the filter knows");
    assert!(!warned("build --normalize trim -o trim.ib dos.txt"));
    assert!(!warned("dedup -q dos.txt"), "all lines are alike");
    assert!(!warned("build -o names2.ib names.txt"));
    folder.write("mixed.txt", "alice\r\nbob\n");
    assert!(!warned("build -o mixed.ib mixed.txt"), "the carriage return may be meant");
}

#[test]
fn a_number_behind_each_digest_is_noticed_unless_a_field_is_chosen() {
    let folder = Folder::new();
    let line = |number: u64| format!("C0FFEE{number:034X}:{number}\n");
    folder.write("leaks.txt", (0..50).map(line).collect::<String>());
    folder.write("other.txt", format!("{}alice:1\n", line(1)));
    let warned = |options: &str| folder.run(options).expect(0).stderr.contains("-d : -f 1");
    assert!(warned("build -o leaks.ib leaks.txt"));
    assert!(warned("add leaks.ib leaks.txt"));
    assert!(!warned("build -d : -f 1 -o leaks.ib leaks.txt"));
    assert!(!warned("build -o other.ib other.txt"), "not all lines are alike");
}

#[test]
fn keys_that_a_foreign_filter_has_in_another_encoding_are_noticed() {
    let folder = Folder::new();
    folder.write("ids.txt", numbers(0, 50));
    folder.run("build --format guava -n 1000 -p 1e-3 --key-encoding i64le -o ids.bloom ids.txt");
    let hint = |options: &str| folder.run(options).stderr;
    let found = hint("check ids.bloom ids.txt");
    assert!(found.contains("ids.bloom probably has the lines in another encoding"), "{found}");
    assert!(found.contains("pass --key-encoding i64le"), "{found}");
    assert_eq!(hint("check --key-encoding i64le ids.bloom ids.txt"), "");
    // Nothing is known of keys that it has in no encoding.
    folder.write("others.txt", numbers(1000, 1050));
    assert_eq!(hint("check ids.bloom others.txt"), "");
    folder.run("convert ids.bloom ids.ib --key-encoding i64le").expect(0);
    assert_eq!(hint("check ids.ib ids.txt"), "", "the file records it");
}

#[test]
fn digests_in_the_other_case_are_noticed_where_they_are_in_the_filter() {
    let folder = Folder::new();
    let lower: String = (0..50).map(|number| format!("c0ffee{number:034x}\n")).collect();
    let upper = lower.to_ascii_uppercase();
    assert_ne!(lower, upper);
    folder.write("lower.txt", &lower);
    folder.write("upper.txt", &upper);
    folder.run("build -p 1e-3 -o lower.ib lower.txt").expect(0);
    folder.run("build -p 1e-3 -o upper.ib upper.txt").expect(0);
    let hint = |options: &str| folder.run(options).stderr;
    assert!(hint("check -c lower.ib upper.txt").contains("lower.ib has them in lowercase only"));
    assert!(hint("check -v upper.ib lower.txt").contains("upper.ib has them in uppercase only"));
    assert_eq!(hint("check lower.ib lower.txt"), "");
    // Nothing is known of lists that have nothing in common.
    let others: String = (100..150).map(|number| format!("{number:040X}\n")).collect();
    folder.write("others.txt", others);
    assert_eq!(hint("check -c lower.ib others.txt"), "");
    // Nor of what is no digest, is found, or would be found as often by chance.
    let line = |line: &str, filter: &str| folder.run_with(&format!("check {filter}"), line).stderr;
    let first = upper.lines().next().expect("a line");
    folder.run("build -p 0.2 -o vague.ib lower.txt").expect(0);
    for (text, filter) in [
        (format!("{first}\nalice\n"), "lower.ib"),
        (first[..30].to_owned(), "lower.ib"),
        (first.to_ascii_lowercase(), "lower.ib"),
        ("0".repeat(39) + "A", "lower.ib"),
        (first.to_owned(), "vague.ib"),
    ] {
        assert_eq!(line(&text, filter), "", "{filter} {text}");
    }
    // One line is enough otherwise: a password is one.
    folder.run("build -o usual.ib lower.txt").expect(0);
    for (filter, has) in [("lower.ib", "probably has it in"), ("usual.ib", "probably has it in")] {
        let warned = line(&format!("{first}\n"), filter);
        assert!(warned.contains(&format!("{filter} {has} lowercase only")), "{warned}");
        assert!(warned.contains("the line is hexadecimal digits"), "{warned}");
    }
    folder.run("build -p 1e-6 -o sure.ib lower.txt").expect(0);
    assert!(line(first, "sure.ib").contains("sure.ib has it in lowercase only"));
    folder.run("build -p 1e-3 --normalize lower -o any.ib upper.txt").expect(0);
    assert_eq!(folder.run("check -c any.ib upper.txt").expect(0).text(), "50\n");
}

/// Every command that reads lines.
const READERS: &[&str] = &[
    "build -o new.ib",
    "build -n 9 -o new.ib",
    "build --kind ribbon -o new.ib",
    "add names.ib",
    "check names.ib",
    "dedup",
    "dedup --exact",
    "dedup --count",
    "sort-ints",
    "measure names.ib",
];

#[test]
fn a_line_above_the_limit_is_an_error_that_names_file_and_line() {
    let folder = Folder::with_names();
    // In the first block, at the end of the input, and far beyond a block.
    let long = "7".repeat(1001);
    let very = "7".repeat(400_000);
    for (name, text) in [
        ("middle.txt", format!("1\n2\n{long}\n4\n")),
        ("end.txt", format!("1\n2\n{long}")),
        ("very.txt", format!("1\n2\n{very}\n4\n")),
    ] {
        folder.write(name, &text);
        for command in READERS {
            let refused = folder.run(&format!("{command} --max-line 1000 {name}")).expect(2);
            let message = format!("{name}: line 3: longer than the limit of 1,000 bytes");
            assert!(refused.stderr.contains(&message), "{command}: {}", refused.stderr);
            assert!(refused.stderr.contains("--max-line"), "{}", refused.stderr);
            assert!(!folder.path("new.ib").exists(), "{command}");
        }
        let nul = text.replace('\n', "\0");
        let refused = folder.run_with("dedup -0 --max-line 1k", nul).expect(2);
        assert!(
            refused.stderr.contains("line 3: longer than the limit of 1,000"),
            "{}",
            refused.stderr
        );
        let refused = folder.run_with("dedup --csv --max-line 1k", &text).expect(2);
        assert!(
            refused.stderr.contains("record 3: longer than the limit of 1,000"),
            "{}",
            refused.stderr
        );
        let quoted = format!("1\n2\n\"{}\"\n", "3\n".repeat(600));
        let refused = folder.run_with("dedup --csv --max-line 1k", quoted).expect(2);
        assert!(
            refused.stderr.contains("record 3: longer than the limit of 1,000"),
            "{}",
            refused.stderr
        );
    }
    let exactly = format!("{}\n", "7".repeat(1000));
    assert_eq!(folder.run_with("dedup -q --max-line 1000", &exactly).expect(0).text(), exactly);
    let other = folder.run("dedup --max-line 0 middle.txt").expect(2);
    assert!(other.stderr.contains("1 byte to 64 GiB"), "{}", other.stderr);
}

#[test]
fn a_line_of_a_gigabyte_in_a_small_file_takes_no_more_memory_than_the_limit() {
    let folder = Folder::with_names();
    folder.write("keys.txt", "1\n2\n");
    let bomb = "{ cat keys.txt; head -c 1000000000 /dev/zero | tr '\\0' 7; } | gzip -1 > bomb.gz; \
                { cat keys.txt; head -c 1000000000 /dev/zero | tr '\\0' 7; } | zstd -q > bomb.zst";
    let made = Command::new("bash").args(["-c", bomb]).current_dir(folder.path(".")).status();
    assert!(made.expect("bash, gzip and zstd can be run").success());
    for command in READERS {
        for bomb in ["bomb.gz", "bomb.zst"] {
            // 900 MB of addresses: the limit is 64 MiB a line, and two threads read ahead.
            let inbloom = env!("CARGO_BIN_EXE_inbloom");
            let limited = format!("ulimit -v 900000; exec {inbloom} {command} -j 2 {bomb}");
            let run = Command::new("bash")
                .args(["-c", &limited])
                .current_dir(folder.path("."))
                .stdin(Stdio::null())
                .output()
                .expect("bash can be run");
            let stderr = String::from_utf8_lossy(&run.stderr);
            assert_eq!(run.status.code(), Some(2), "{command} {bomb}: {stderr}");
            assert!(
                stderr.contains(&format!("{bomb}: line 3: longer than")),
                "{command}: {stderr}"
            );
        }
    }
    fs::remove_file(folder.path("bomb.gz")).expect("it was made");
}

#[test]
fn an_input_without_any_key_is_warned_of_and_not_taken_for_one_from_windows() {
    let folder = Folder::with_names();
    folder.write("in.txt", "1,alice\n2,bob\n");
    folder.write("in.jsonl", "{\"id\":1}\n{\"id\":2}\n");
    for (command, option) in [
        ("dedup -q -d , -f 7 in.txt", "-f"),
        ("dedup -q -d , -f 7 in.txt in.txt", "-f"),
        ("build -d , -f 7 -o f.ib in.txt", "-f"),
        ("check -v -d , -f 7 names.ib in.txt", "-f"),
        ("dedup -q --csv -f 7 in.txt", "-f"),
        ("dedup -q --json-field user in.jsonl", "--json-field"),
        ("dedup -q --missing skip --json-field user in.jsonl", "--json-field"),
    ] {
        let stderr = folder.run(command).expect(0).stderr;
        assert!(!stderr.contains("carriage return"), "{command}: {stderr}");
        let warnings: Vec<&str> = stderr.lines().filter(|line| line.contains("warning")).collect();
        assert_eq!(warnings.len(), 1, "{command}: {stderr}");
        let expected = format!("check {option}");
        let [warning] = warnings[..] else { unreachable!() };
        assert!(warning.contains(": no key found in the first 2 lines"), "{warning}");
        assert!(stderr.contains(&expected), "{command}: {stderr}");
    }
    // One that has it is enough.
    let some = folder.run_with("dedup -q -d , -f 2", "1\n2,b\n").expect(0);
    assert_eq!(some.stderr, "");
}

#[test]
fn the_header_of_the_first_input_that_has_one_is_printed_once() {
    let folder = Folder::new();
    folder.write("empty.csv", "");
    folder.write("people.csv", "id,name\n1,ann\n2,bob\n");
    folder.write("others.csv", "name,id\nann,4\n");
    let text = folder.run("dedup -q --csv-field name empty.csv people.csv others.csv").expect(0);
    assert_eq!(text.text(), "id,name\n1,ann\n2,bob\n");
    folder.run("build --csv-field name -o names.ib people.csv").expect(0);
    let found = folder.run("check --csv-field name names.ib empty.csv people.csv others.csv");
    assert_eq!(found.expect(0).text(), "id,name\n1,ann\n2,bob\nann,4\n");
    let found = folder.run("check --csv-field name names.ib absent.csv people.csv others.csv");
    assert_eq!(found.expect(2).text(), "id,name\n1,ann\n2,bob\nann,4\n");
    for option in ["-n", "-H", "--json", "-c"] {
        let found = folder.run(&format!("check {option} --csv-field name names.ib people.csv"));
        assert!(!found.expect(0).text().contains("id,name"), "{option}");
    }
}

#[test]
fn options_of_fields_are_refused_before_anything_is_read() {
    let folder = Folder::new();
    folder.write("in.txt", "a\n");
    let refused = folder.run("build -d , -o f.ib in.txt absent.txt").expect(2);
    assert!(refused.stderr.contains("-d needs the fields"), "{}", refused.stderr);
}
