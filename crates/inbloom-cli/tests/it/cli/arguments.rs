//! Bad arguments.

use crate::cli::folder::Folder;

#[test]
fn bad_numbers_are_refused_with_what_is_expected() {
    let folder = Folder::new();
    for (arguments, words) in [
        ("-n 1.5", ["'1.5'", "fraction"]),
        ("-n -1", ["'-1'", "negative"]),
        ("-n abc", ["'abc'", "whole number"]),
        ("-n NaN", ["'NaN'", "not a number"]),
        ("-n 1e30", ["'1e30'", "too large"]),
        ("-p 0", ["'0'", "between 0 and 1"]),
        ("-p 1", ["'1'", "between 0 and 1"]),
        ("-p abc", ["'abc'", "not a number"]),
        ("-p NaN", ["'NaN'", "between 0 and 1"]),
        ("-p -0.1", ["'-0.1'", "between 0 and 1"]),
        ("--bytes 64Q", ["'64Q'", "64MiB"]),
        ("--bits-per-key 0", ["'0'", "above 0"]),
        ("--probes x", ["'x'", "--probes"]),
        ("--tier huge", ["'huge'", "very-small"]),
        ("--kind cuckooo", ["'cuckooo'", "blocked"]),
    ] {
        folder.run(&format!("plan {arguments}")).expect_error(&words);
        folder.run(&format!("build -o f.ib {arguments}")).expect_error(&words);
    }
    folder.run("build -o f.ib --auto-clear 1.5").expect_error(&["'1.5'", "0.8"]);
    folder.run("build -o f.ib -p 1e-13 -n 5").expect_error(&["1e-12"]);
    folder.run("build -o f.ib -n 1e15").expect_error(&["memory"]);
    assert!(folder.names().is_empty(), "nothing was written");
}

#[test]
fn misuse_is_exit_code_2_and_help_is_0() {
    let folder = Folder::new();
    let bare = folder.run("").expect(2);
    assert!(bare.stderr.contains("Usage"), "{}", bare.stderr);
    folder.run("frobnicate").expect_error(&["frobnicate"]);
    folder.run("build").expect_error(&["--output"]);
    folder.run("check").expect_error(&["FILTER"]);
    folder.run("check -x f").expect_error(&["-x"]);
    for command in ["", "plan ", "build ", "check ", "info "] {
        let help = folder.run(&format!("{command}--help")).expect(0).text();
        assert!(help.contains("Examples:") && help.contains("Exit status:"), "{help}");
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    }
    assert!(folder.run("--version").expect(0).text().starts_with("inbloom 0."));
}
