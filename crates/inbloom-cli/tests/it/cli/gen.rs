//! `inbloom gen urls`.

use std::collections::HashSet;
use std::io::Read;

use xxhash_rust::xxh3::xxh3_64;

use crate::cli::folder::{Folder, exit_code};

fn urls(arguments: &str) -> Vec<String> {
    let outcome = Folder::new().run(&format!("gen urls {arguments}")).expect(0);
    assert!(outcome.stderr.is_empty(), "{}", outcome.stderr);
    outcome.text().lines().map(str::to_string).collect()
}

#[test]
fn a_million_urls_are_distinct_and_none_is_among_the_absent() {
    let (present, absent) = (urls("-n 1M"), urls("-n 1M --absent"));
    assert_eq!((present.len(), absent.len()), (1_000_000, 1_000_000));
    let distinct: HashSet<&String> = present.iter().chain(&absent).collect();
    assert_eq!(distinct.len(), 2_000_000);
}

/// What everybody has built from a list can be built from it again, by later versions too.
#[test]
fn a_list_is_the_same_for_ever_and_for_any_number_of_threads() {
    for (list, sum) in [
        ("-n 100000", 0x4ec8_b478_2de8_63dd),
        ("-n 100000 --absent --seed 9", 0x3510_d47d_5d56_df33),
        // Where ids become longer.
        ("-n 30000 --skip 2147473648", 0x2b77_bafb_efa4_65a6),
        ("-n 20000 --skip 9999980000 --seed 3", 0x4cff_7105_61fb_9473),
    ] {
        for threads in ["", "-j 1", "-j 2", "-j 7"] {
            let printed = Folder::new().run(&format!("gen urls {list} {threads}")).expect(0);
            assert_eq!(xxh3_64(&printed.stdout), sum, "{list} {threads}");
        }
    }
}

#[test]
fn what_is_skipped_is_the_beginning_of_the_same_list() {
    for list in ["", "--absent", "--seed 7"] {
        let whole = urls(&format!("-n 1000 {list}"));
        assert_eq!(urls(&format!("-n 300 --skip 700 {list}")), whole[700..], "{list}");
    }
}

#[test]
fn urls_look_like_urls_of_many_sites_and_lengths() {
    for arguments in ["-n 100000", "-n 100000 --absent"] {
        let urls = urls(arguments);
        let (mut hosts, mut lengths) = (HashSet::new(), HashSet::new());
        for url in &urls {
            assert!((20..=64).contains(&url.len()), "{url}: {} bytes", url.len());
            assert!(url.bytes().all(|byte| byte.is_ascii_graphic()), "{url}");
            let (scheme, rest) = url.split_once("://").expect("a scheme");
            assert!(scheme == "http" || scheme == "https", "{url}");
            hosts.insert(rest.split('/').next().expect("a host"));
            lengths.insert(url.len());
        }
        assert!(hosts.len() > 500, "{} hosts", hosts.len());
        assert!(lengths.len() > 30, "{} lengths", lengths.len());
    }
}

#[test]
fn a_longer_list_begins_with_the_shorter_one() {
    for options in ["", "--absent", "--seed 9", "--seed 9 --absent"] {
        let (short, long) =
            (urls(&format!("-n 1000 {options}")), urls(&format!("-n 5k {options}")));
        assert_eq!((short.len(), long.len()), (1_000, 5_000));
        assert!(long.starts_with(&short), "{options}");
    }
}

#[test]
fn a_seed_gives_its_own_list() {
    let first: HashSet<String> = urls("-n 10000 --seed 1").into_iter().collect();
    let both = urls("-n 10000 --seed 2").iter().filter(|url| first.contains(*url)).count();
    assert!(both < 10, "{both} URLs are in the lists of two seeds");
    assert_eq!(urls("-n 100"), urls("-n 100 --seed 0"));
}

#[test]
fn no_urls_are_nothing() {
    assert!(Folder::new().run("gen urls -n 0").expect(0).stdout.is_empty());
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let folder = Folder::new();
    let mut child = folder.command("gen urls -n 10e9").spawn().expect("the binary starts");
    let mut first = [0; 8];
    child.stdout.take().expect("it is piped").read_exact(&mut first).expect("it prints");
    let mut stderr = child.stderr.take().expect("it is piped");
    assert_eq!(exit_code(child), 0);
    let mut said = String::new();
    stderr.read_to_string(&mut said).expect("it is text");
    assert_eq!(said, "");
}

#[test]
fn what_cannot_be_generated_is_refused() {
    let folder = Folder::new();
    folder.run("gen").expect_error(&["WHAT"]);
    folder.run("gen urls").expect_error(&["--items"]);
    folder.run("gen names -n 5").expect_error(&["'names'", "urls"]);
    folder.run("gen urls -n 1.5").expect_error(&["'1.5'", "fraction"]);
    folder.run("gen urls -n 1 --skip 10e18").expect_error(&["--skip 10,000,000", "only"]);
    folder.run("gen urls -n 10e18").expect_error(&["10,000,000,000,000,000,000", "only"]);
    folder.run("gen urls -n 5 --seed x").expect_error(&["'x'", "--seed"]);
    let help = folder.run("gen --help").expect(0).text();
    assert!(help.contains("Examples:") && help.contains("Exit status:"), "{help}");
}
