//! `inbloom sort-ints`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::process::Command;

use crate::cli::folder::{Folder, exit_code, numbers};

/// The same numbers on every run (Marsaglia's xorshift).
fn random(count: usize) -> impl Iterator<Item = u64> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
    .take(count)
}

fn lines(integers: impl IntoIterator<Item = u64>) -> String {
    integers.into_iter().map(|integer| format!("{integer}\n")).collect()
}

#[test]
fn the_classic_example_comes_out_sorted() {
    let folder = Folder::new();
    for universe in ["", "--universe 8", "--universe 10M"] {
        let sort = format!("sort-ints {universe}");
        let sorted = folder.run_with(&sort, "4\n7\n2\n5\n3\n").expect(0);
        assert_eq!((sorted.text().as_str(), sorted.stderr.as_str()), ("2\n3\n4\n5\n7\n", ""));
        assert_eq!(folder.run_with(&sort, "7\n7\n007\n0").expect(0).text(), "0\n7\n");
        assert_eq!(folder.run_with(&sort, "").expect(0).text(), "");
    }
}

#[test]
fn random_integers_come_out_as_from_sort() {
    let folder = Folder::new();
    // Over all 64 bits, close to each other, and many of them twice.
    let some: Vec<u64> = random(100_000).collect();
    let all = some.iter().copied().chain(some.iter().map(|number| number >> 46));
    let all = lines(all.chain([0, u64::MAX, 0, u64::MAX]));
    folder.write("numbers.txt", &all);
    let sorted = folder.run("sort-ints numbers.txt").expect(0).text();
    let model: BTreeSet<u64> = all.lines().map(|line| line.parse().expect("ours")).collect();
    assert!(sorted == lines(model.iter().copied()), "not as a BTreeSet has it");
    let count = folder.run("sort-ints --count numbers.txt").expect(0).text();
    assert_eq!(count, format!("{}\n", model.len()));
    // Where there is one, the program that everybody knows.
    let mut sort = Command::new("sort");
    sort.args(["-n", "-u"]).arg(folder.path("numbers.txt")).env("LC_ALL", "C");
    if let Ok(output) = sort.output() {
        assert!(sorted.as_bytes() == output.stdout, "not as sort -nu has it");
    }
}

#[test]
fn a_dense_universe_and_none_give_the_same() {
    let folder = Folder::new();
    // Both ends are there, or their missing ones would differ.
    let some = random(50_000).map(|number| number % 100_000).chain([0, 99_999]);
    folder.write("numbers.txt", lines(some));
    for options in ["", "--count", "--absent", "--absent --count"] {
        let with = folder.run(&format!("sort-ints {options} --universe 100000 numbers.txt"));
        let without = folder.run(&format!("sort-ints {options} numbers.txt"));
        assert!(with.expect(0).text() == without.expect(0).text(), "{options}");
    }
}

#[test]
fn missing_integers_are_those_that_did_not_come() {
    let folder = Folder::new();
    for (options, input, expected) in [
        ("--universe 10", "4\n7\n2\n5\n3\n", "0\n1\n6\n8\n9\n"),
        ("", "4\n7\n2\n5\n3\n", "6\n"),
        ("--universe 3", "", "0\n1\n2\n"),
        ("", "", ""),
        ("", "5\n", ""),
        ("--universe 3", "2\n0\n1\n", ""),
        (
            "",
            "18446744073709551615\n18446744073709551612\n",
            "18446744073709551613\n18446744073709551614\n",
        ),
        ("--count --universe 10", "4\n7\n", "8\n"),
        ("--count", "4\n7\n", "2\n"),
        ("--count", "0\n18446744073709551615\n", "18446744073709551614\n"),
        ("--count", "5\n", "0\n"),
        ("--count", "", "0\n"),
        ("-c --universe 10M", "9999999\n", "9999999\n"),
    ] {
        let missing = folder.run_with(&format!("sort-ints --absent {options}"), input).expect(0);
        assert_eq!(missing.text(), expected, "{options} of {input:?}");
    }
    let sieve = folder.run_with("sort-ints --absent --universe 1M", numbers(5, 999_990)).expect(0);
    assert_eq!(sieve.text(), numbers(0, 5) + &numbers(999_990, 1_000_000));
}

#[test]
fn sorted_and_missing_together_are_the_universe() {
    let folder = Folder::new();
    let some: BTreeSet<u64> = random(30_000).map(|number| number % 70_001).collect();
    folder.write("numbers.txt", lines(some.iter().copied()));
    let missing = folder.run("sort-ints --absent --universe 70001 numbers.txt").expect(0).text();
    let missing: BTreeSet<u64> = missing.lines().map(|line| line.parse().expect("ours")).collect();
    assert!(some.is_disjoint(&missing));
    assert!(some.union(&missing).copied().eq(0..70_001));
}

#[test]
fn missing_integers_of_a_huge_range_are_not_waited_for() {
    let folder = Folder::new();
    let mut child = folder.command("sort-ints --absent").spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(b"0\n18446744073709551615\n").expect("it reads");
    drop(stdin);
    let mut first = [0; 4];
    child.stdout.take().expect("it is piped").read_exact(&mut first).expect("it prints");
    assert_eq!(&first, b"1\n2\n");
    assert_eq!(exit_code(child), 0, "a reader that goes away is no error");
}

#[test]
fn options_of_the_input_hold() {
    let folder = Folder::new();
    folder.write("a.csv", "3,7,x\n1, 5 ,y\n");
    folder.write("b.csv", "0,6,z\r\n");
    let sorted = folder.run("sort-ints -d , -f 2 a.csv b.csv").expect(0);
    assert_eq!(sorted.text(), "5\n6\n7\n");
    let sorted = folder.run_with("sort-ints -0 - ", "9\08\0").expect(0);
    assert_eq!(sorted.text(), "8\09\0");
    assert_eq!(folder.run_with("sort-ints", "  9\r\n\t8 \n").expect(0).text(), "8\n9\n");
}

#[test]
fn what_is_no_integer_in_range_is_an_error_that_names_its_line() {
    let folder = Folder::new();
    folder.write("good.txt", "1\n2\n");
    for bad in ["", "-1", "+1", "1.0", "1e3", "0x1", "one", "1 2", "18446744073709551616"] {
        folder.write("bad.txt", format!("1\n{bad}\n3\n"));
        let got = format!("line 2: \"{bad}\" is not an integer");
        folder.run("sort-ints good.txt bad.txt").expect_error(&["bad.txt: line 2", &got]);
        folder.run("sort-ints --universe 9 bad.txt").expect_error(&["bad.txt: line 2", &got]);
    }
    folder.write("bad.txt", "1\n8\n9\n");
    folder.run("sort-ints --universe 9 bad.txt").expect_error(&["bad.txt: line 3", "from 0 to 8"]);
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = Folder::new();
    fs::create_dir(folder.path("folder")).expect("a new folder");
    folder.run("sort-ints missing.txt").expect_error(&["missing.txt", "No such file"]);
    folder.run("sort-ints folder").expect_error(&["folder is a directory"]);
    folder.run("sort-ints --universe 0").expect_error(&["--universe"]);
    folder.run("sort-ints --universe 1e17").expect_error(&["10^15", "leave --universe out"]);
    folder.run("sort-ints --universe 1e15").expect_error(&["memory"]);
    folder.run("sort-ints --universe ten").expect_error(&["--universe", "not a number"]);
}
