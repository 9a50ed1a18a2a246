//! Filters of other programs on the command line: recognized, asked, changed, converted, built.
//!
//! The files are those that the library's tests have, made by the real programs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::folder::Folder;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../inbloom/tests/golden")
}

/// A filter that a real program has made: its row of `cases.tsv`.
struct Case {
    format: &'static str,
    name: String,
    file: PathBuf,
    keys: PathBuf,
    encoding: String,
    planned: Option<(String, String)>,
    variants: String,
}

impl Case {
    fn all() -> Vec<Case> {
        ["guava", "spark", "go", "dcso", "datasketches"].into_iter().flat_map(Case::of).collect()
    }

    fn of(format: &'static str) -> Vec<Case> {
        let folder = golden().join("foreign").join(format);
        let table = fs::read_to_string(folder.join("cases.tsv")).expect("a table of cases");
        let rows = table.lines().skip(1).map(|row| {
            let fields: Vec<&str> = row.split('\t').collect();
            let [name, file, keys, encoding, items, rate, variants, _made_with] = fields[..] else {
                panic!("eight fields in {row:?}")
            };
            let keys =
                ["foreign", "redisbloom"].map(|one| golden().join(one).join("keys").join(keys));
            Case {
                format,
                name: name.to_owned(),
                file: folder.join(file),
                keys: keys.into_iter().find(|path| path.is_file()).expect("a file of keys"),
                encoding: encoding.to_owned(),
                planned: (items != "-").then(|| (items.to_owned(), rate.to_owned())),
                variants: variants.replace('-', ""),
            }
        });
        rows.collect()
    }

    /// What has to be said because the bytes do not tell it.
    fn told(&self) -> &'static str {
        if self.variants.contains("fnv") { "--from go --variant fnv" } else { "" }
    }

    /// The lines of the probes, and those that the real program finds.
    fn probes(&self) -> (String, String) {
        let path = self.file.with_file_name(format!("{}.probes.txt", self.name));
        let probes = fs::read_to_string(path).expect("a list of probes");
        let (mut all, mut found) = (String::new(), String::new());
        for line in probes.split_terminator('\n') {
            let mut fields = line.splitn(3, '\t');
            let (answer, key) = (fields.next() == Some("1"), fields.nth(1).expect("a key"));
            for list in [Some(&mut all), Some(&mut found).filter(|_| answer)].into_iter().flatten()
            {
                list.push_str(key);
                list.push('\n');
            }
        }
        (all, found)
    }
}

#[test]
fn check_prints_what_the_real_program_finds() {
    let folder = Folder::new();
    for case in Case::all() {
        let (probes, found) = case.probes();
        folder.write("probes.txt", probes);
        let (file, encoding, told) = (case.file.display(), &case.encoding, case.told());
        let check = format!("check {file} --key-encoding {encoding} {told} probes.txt");
        let answer = folder.run(&check).expect(0);
        assert!(answer.text() == found, "{} {}", case.format, case.name);
    }
}

#[test]
fn build_writes_the_file_of_the_real_program() {
    let folder = Folder::new();
    let mut built = 0;
    for case in Case::all() {
        let Some((items, rate)) = &case.planned else { continue };
        let variants = match case.variants.as_str() {
            "" => String::new(),
            some => format!("--variant {}", some.replace("littleendian", "little-endian")),
        };
        let seed = if case.name.contains("seed") { "--hash-seed 12345" } else { "" };
        let (format, encoding, keys) = (case.format, &case.encoding, case.keys.display());
        let build = format!(
            "build -o made --format {format} {variants} {seed} -n {items} -p {rate} \
             --overfull continue --key-encoding {encoding} {keys}"
        );
        folder.run(&build).expect(0);
        let (made, real) = (folder.read("made"), fs::read(&case.file).expect("a golden file"));
        // Programs compress differently, and data may be attached behind the filter.
        if case.variants.contains("gzip") || case.name.ends_with("-data") {
            continue;
        }
        assert!(made == real, "{format} {}", case.name);
        built += 1;
    }
    assert!(built >= 25, "{built}");
}

#[test]
fn a_filter_goes_through_our_own_format_and_back() {
    let folder = Folder::new();
    for case in Case::all() {
        let (file, encoding, told) = (case.file.display(), &case.encoding, case.told());
        let there = format!("convert {file} kept.ib --key-encoding {encoding} {told}");
        folder.run(&there).expect(0);
        let info = folder.info("kept.ib");
        assert_eq!(info["key_encoding"], encoding.as_str());
        folder.run("info --verify kept.ib").expect(0);
        // The encoding is recorded, and another one is refused.
        let (probes, found) = case.probes();
        folder.write("probes.txt", probes);
        let answer = folder.run("check kept.ib probes.txt").expect(0);
        assert!(answer.text() == found, "{} {}", case.format, case.name);
        let other = if encoding == "hex" { "utf8" } else { "hex" };
        let refused = folder.run(&format!("check kept.ib --key-encoding {other} probes.txt"));
        assert!(refused.code == 2 && refused.stderr.contains("leave --key-encoding out"));

        let variants = match case.variants.as_str() {
            "" | "mitz32" | "v1" | "v0" | "fnv" => String::new(),
            some => format!("--to-variant {}", some.replace("littleendian", "little-endian")),
        };
        let back = format!("convert kept.ib back --to {} {variants}", case.format);
        let back = folder.run(&back).expect(0);
        assert!(back.stderr.contains("cannot hold the key encoding"), "{}", back.stderr);
        let (made, real) = (folder.read("back"), fs::read(&case.file).expect("a golden file"));
        if !case.variants.contains("gzip") {
            assert!(made == real, "{} {}", case.format, case.name);
        }
    }
}

#[test]
fn info_names_the_format() {
    let folder = Folder::new();
    for case in Case::all() {
        let (file, told) = (case.file.display(), case.told());
        let text = folder.run(&format!("info {file} {told}")).expect(0).text();
        assert!(text.contains(&format!("\nformat          {}", case.format)), "{text}");
        assert!(text.contains("key encoding    not recorded"), "{text}");
        assert!(text.contains("checksums       none in this format"), "{text}");
        let promised = text.contains("target rate     not recorded");
        assert_eq!(promised, case.format != "dcso", "{text}");
        let info = folder.run(&format!("info --json {file} {told}")).expect(0).json();
        let format = info["format"].as_str().expect("a format");
        assert!(format.starts_with(case.format), "{format}");
        assert!(info["current_rate"].as_f64().is_some_and(|rate| rate > 0.0 && rate < 0.6));
    }
}

#[test]
fn add_and_merge_keep_the_format() {
    let folder = Folder::new();
    for case in Case::all() {
        let name = "filter";
        fs::copy(&case.file, folder.path(name)).expect("a copy");
        let text = match case.encoding.as_str() {
            "hex" => "00ff00ff\n",
            encoding if encoding.starts_with("utf") => "a key that is new, for sure\n",
            _ => "1234567891\n",
        };
        let (encoding, told) = (&case.encoding, case.told());
        let options = format!("--overfull continue --key-encoding {encoding} {told}");
        folder.run_with(&format!("add {name} {options}"), text).expect(0);
        let check = format!("check -c {name} --key-encoding {encoding} {told}");
        assert_eq!(folder.run_with(&check, text).expect(0).text(), "1\n", "{}", case.name);
        let size = |path: PathBuf| fs::metadata(path).expect("a file").len();
        if !case.variants.contains("gzip") {
            assert_eq!(size(folder.path(name)), size(case.file.clone()), "{}", case.name);
        }
        let merge = format!("merge -o merged {name} {} {told}", case.file.display());
        folder.run(&merge).expect(0);
        if !case.variants.contains("gzip") && case.format != "dcso" {
            assert!(folder.read("merged") == folder.read(name), "{}", case.name);
        }
    }
}

#[test]
fn another_hash_cannot_be_converted_to() {
    let folder = Folder::with_names();
    let refused = folder.run("convert names.ib names.bloom --to guava").expect(2);
    assert!(refused.stderr.contains("its keys are hashed in another way"), "{}", refused.stderr);
    assert!(refused.stderr.contains("inbloom build --format"), "{}", refused.stderr);
    assert!(!folder.path("names.bloom").exists());
    folder.run("build -o g --format guava -n 10 names.txt").expect(0);
    for to in ["go", "spark", "dcso"] {
        folder.run(&format!("convert g other --to {to}")).expect(2);
    }
    let refused = folder.run("merge -o both g names.ib").expect(2);
    assert!(refused.stderr.contains("they differ in kind"), "{}", refused.stderr);
    // A file cannot record what it has no place for.
    let refused = folder.run("convert g g2 --to guava --key-encoding utf8").expect(2);
    assert!(refused.stderr.contains("do not record"), "{}", refused.stderr);
    let refused = folder.run("build -o g --format guava --note x names.txt").expect(2);
    assert!(refused.stderr.contains("--note"), "{}", refused.stderr);
    let refused = folder.run("build -o g --format guava --variant json names.txt").expect(2);
    assert!(refused.stderr.contains("mitz32"), "{}", refused.stderr);
}

#[test]
fn bytes_that_are_nothing_known_or_too_much_are_refused() {
    let folder = Folder::new();
    folder.write("noise", [7; 100]);
    let refused = folder.run("info noise").expect(2);
    assert!(refused.stderr.contains("not an inbloom file"), "{}", refused.stderr);
    let part = golden().join("foreign/parquet/rust-str-10.parquet");
    folder.run(&format!("info {} --from parquet", part.display())).expect(0);
    for format in ["guava", "spark", "go", "dcso"] {
        folder.run(&format!("info noise --from {format}")).expect(2);
        folder.run(&format!("info {} --from {format}", part.display())).expect(2);
    }
    // The two words of a filter of Guava; 24 bytes of header and a word of DCSO's first version.
    let mut both = vec![0, 1, 0, 0, 0, 2];
    both.extend([0; 16]);
    folder.write("guava", &both);
    assert!(folder.run("info guava").expect(0).text().contains("guava-mitz-32"));
}

#[test]
fn keys_that_do_not_fit_their_encoding_are_named_by_line() {
    let folder = Folder::new();
    for (encoding, good, bad) in [
        ("i32le", "-5", "2147483648"),
        ("i64le", "-5", "9223372036854775808"),
        ("u64le", "5", "-5"),
        ("u32be", "5", "4294967296"),
        ("u64be", "5", "five"),
        ("hex", "00fF", "00f"),
    ] {
        folder.write("keys.txt", format!("{good}\n{good}\n{bad}\n"));
        let refused = folder.run(&format!("build -o f.ib --key-encoding {encoding} keys.txt"));
        let refused = refused.expect(2).stderr;
        assert!(refused.contains("keys.txt") && refused.contains('3'), "{refused}");
        assert!(refused.contains(&format!("--key-encoding {encoding} takes")), "{refused}");
        assert!(refused.contains(bad), "{refused}");
        assert!(!folder.path("f.ib").exists());
    }
}

#[test]
fn hash_lists_are_found_in_either_case() {
    let folder = Folder::new();
    let hashes =
        ["000000005AD76BD555C1D6D771DE417A4B87E4B4", "00000000A8DAE4228F821FB418F59826079BF368"];
    folder.write("pwned.txt", format!("{}:4\n{}:2\n", hashes[0], hashes[1]));
    folder.run("build -o pwned.ib -d : -f 1 --key-encoding hex pwned.txt").expect(0);
    assert_eq!(folder.info("pwned.ib")["key_encoding"], "hex");
    for line in [hashes[0].to_owned(), hashes[1].to_lowercase()] {
        // What the file records need not be said again.
        let found = folder.run_with("check pwned.ib", format!("{line}\n")).expect(0);
        assert_eq!(found.text(), format!("{line}\n"));
        folder.run_with("check pwned.ib --key-encoding hex", format!("{line}\n")).expect(0);
    }
    folder.run_with("add pwned.ib", "00ff\n").expect(0);
    folder.run_with("check -q pwned.ib", "00FF\n").expect(0);
    assert_eq!(folder.run_with("check -q pwned.ib", "0100\n").code, 1);
}

/// The lines of probes whose answer has a 1 at this place, and all of them.
fn probes(path: &Path, place: usize) -> (String, String) {
    let text = fs::read_to_string(path).expect("a list of probes");
    let (mut all, mut found) = (String::new(), String::new());
    for line in text.split_terminator('\n') {
        let mut fields = line.splitn(3, '\t');
        let answers = fields.next().expect("answers").as_bytes();
        let key = fields.nth(1).expect("a key");
        all.push_str(&format!("{key}\n"));
        if answers[place] == b'1' {
            found.push_str(&format!("{key}\n"));
        }
    }
    (all, found)
}

#[test]
fn filters_inside_of_parquet_files_are_asked_and_taken_out_by_name() {
    let folder = Folder::new();
    let golden = golden().join("foreign/parquet");
    for (name, encoding, groups) in [
        ("duckdb-i32-500", "i32le", 1),
        ("pyarrow-binary-edge", "hex", 1),
        ("pyarrow-u64-20k", "u64le", 3),
        ("rust-str-1k", "utf8", 3),
    ] {
        let file = golden.join(format!("{name}.parquet"));
        let mut parts: Vec<_> = (0..groups).map(|group| (format!("k/{group}"), group)).collect();
        if groups == 1 {
            parts.push(("k".to_owned(), 0));
        }
        for (part, group) in parts {
            let (all, found) = probes(&golden.join(format!("{name}.probes.txt")), group);
            folder.write("probes.txt", all);
            let part = format!("{}#{part}", file.display());
            let check = format!("check {part} --key-encoding {encoding} probes.txt");
            assert!(folder.run(&check).expect(0).text() == found, "{part}");
            folder.run(&format!("convert {part} alone --to parquet")).expect(0);
            let check = format!("check alone --key-encoding {encoding} probes.txt");
            assert!(folder.run(&check).expect(0).text() == found, "{part}, alone");
            folder.run(&format!("convert {part} kept.ib --key-encoding {encoding}")).expect(0);
            assert!(folder.run("check kept.ib probes.txt").expect(0).text() == found, "{part}");
            let info = folder.run(&format!("info --verify {part}")).expect(0).text();
            assert!(info.contains("parquet-split-block"), "{info}");
        }
        let refused = folder.run(&format!("info {}#k/{groups}", file.display())).expect(2);
        assert!(refused.stderr.contains("has no filter named"), "{}", refused.stderr);
    }
    // What would replace the whole file is refused.
    let part = format!("{}#k/0", golden.join("rust-str-1k.parquet").display());
    folder.run_with(&format!("add {part}"), "a\n").expect(2);
}

#[test]
fn filters_of_redis_are_asked_in_every_container() {
    let folder = Folder::new();
    let golden = golden().join("redisbloom");
    for name in ["bf-str-10", "bf-scaled-str-1k", "cf-str-10"] {
        let (all, found) = probes(&golden.join(format!("{name}.probes.txt")), 0);
        folder.write("probes.txt", all);
        let chunks: Vec<u8> = (0..)
            .map_while(|at| fs::read(golden.join(format!("{name}.chunk{at}.bin"))).ok())
            .flatten()
            .collect();
        folder.write("chunks", chunks);
        let mut containers = vec!["chunks".to_owned()];
        let paths = [".dump", ".resp"].map(|ending| format!("{name}{ending}"));
        let parts =
            ["server-7.0-rb2.6.28.rdb", "server-8.0-rb8.8.0.rdb", "server-7.0-rb2.6.28.aof"]
                .map(|server| format!("{server}#{name}"));
        containers
            .extend(paths.iter().chain(&parts).map(|path| golden.join(path).display().to_string()));
        for container in containers {
            let answer = folder.run(&format!("check {container} probes.txt")).expect(0);
            assert!(answer.text() == found, "{container}");
            folder.run(&format!("convert {container} kept.ib")).expect(0);
            assert!(folder.run("check kept.ib probes.txt").expect(0).text() == found);
            for variant in ["", "--to-variant commands", "--to-variant chunks"] {
                folder.run(&format!("convert kept.ib back --to redisbloom {variant}")).expect(0);
                assert!(folder.run("check back probes.txt").expect(0).text() == found, "{variant}");
            }
        }
    }
    let refused = folder.run(&format!("info {}", golden.join("server-8.0-rb8.8.0.rdb").display()));
    let refused = refused.expect(2).stderr;
    assert!(refused.contains("3 filters") && refused.contains("bf-scaled-str-1k"), "{refused}");
}

#[test]
fn a_pattern_that_the_shell_has_expanded_is_to_be_quoted() {
    let folder = Folder::new();
    let golden = golden().join("foreign/parquet");
    for name in ["a.parquet", "b.parquet", "c.parquet"] {
        fs::copy(golden.join("rust-str-10.parquet"), folder.path(name)).expect("it is copied");
    }
    let all = "a.parquet b.parquet c.parquet";
    for options in [format!("--column k -F {all}"), format!("--column k {all}")] {
        let refused = folder.run(&format!("check {options}"));
        refused.expect_error(&["is a Parquet file", "-F '*.parquet'", "repeat -F"]);
    }
    folder.run(&format!("check -F {all}")).expect_error(&["pass --column NAME", "'*.parquet'"]);
    // Each by itself, and the pattern for this program to expand.
    let files = "-F a.parquet -F b.parquet -F c.parquet";
    for files in [files, "-F *.parquet"] {
        let found = folder.run_with(&format!("check -vc --column k {files}"), "no such key\n");
        assert!([0, 1].contains(&found.code), "{}", found.stderr);
    }
    // Keys in a Parquet file beside a filter are another mistake.
    folder.run("build -o k.ib --column k a.parquet").expect(0);
    folder.run("check k.ib a.parquet").expect_error(&["is a Parquet file", "--column NAME"]);
}

#[test]
fn a_line_that_is_not_hexadecimal_is_refused_with_its_first_other_character() {
    let folder = Folder::new();
    let digits = "5baa61e4c9b93f3f0682250b6cf8331b7ee68fd8";
    let refused = |options: &str, line: String| {
        let build = format!("build -o f.ib -n 9 --key-encoding hex {options}");
        folder.run_with(&build, line).expect(2).stderr
    };
    let whole = refused("", format!("{digits}  -\n"));
    assert!(whole.contains("line 1: ") && whole.contains("character 41 is \" \""), "{whole}");
    assert!(whole.contains("help: if the digits are one field of the line, pass -d and -f"));
    let field = refused("-d : -f 1", "00:1\n0\u{e9}0:2\n".to_owned());
    assert!(field.contains("line 2: ") && field.contains("character 2 is \"\u{e9}\""), "{field}");
    assert!(!field.contains("help: "), "{field}");
    let odd = refused("", format!("{}\n", &digits[1..]));
    assert!(odd.contains("an even number of hexadecimal digits, got 39"), "{odd}");
    folder.run_with("build -o f.ib -d - -f 1 --key-encoding hex", format!("{digits}-\n")).expect(0);
}

#[test]
fn the_values_of_a_parquet_column_are_keys() {
    let folder = Folder::new();
    let parquet = golden().join("foreign/parquet");
    let keys = golden();
    for (name, keys) in [
        ("duckdb-i32-500", keys.join("foreign/keys/i500.txt")),
        ("pyarrow-u64-20k", keys.join("redisbloom/keys/u20k.txt")),
        ("rust-str-1k", keys.join("redisbloom/keys/s1k.txt")),
        ("duckdb-str-1k", keys.join("redisbloom/keys/s1k.txt")),
    ] {
        let file = parquet.join(format!("{name}.parquet"));
        let build = "-n 20000 -p 1e-6 --hash-seed 3";
        folder.run(&format!("build -o a.ib --column k {build} {}", file.display())).expect(0);
        folder.run(&format!("build -o b.ib {build} {}", keys.display())).expect(0);
        // The order of rows does not matter to the bits.
        let [a, b] = ["a.ib", "b.ib"].map(|name| folder.info(name));
        assert_eq!(a["occupied"], b["occupied"], "{name}");
        let lines = fs::read_to_string(&keys).expect("keys");
        let found = folder.run(&format!("check -c a.ib {}", keys.display())).expect(0);
        assert_eq!(found.text().trim(), lines.lines().count().to_string(), "{name}");
    }
    let file = parquet.join("rust-str-10.parquet").display().to_string();
    // Without -n too, and for another program.
    folder.run(&format!("build -o c.ib --column k {file}")).expect(0);
    folder.run(&format!("build -o c.bloom --format guava -n 10 --column k {file}")).expect(0);
    let refused = folder.run(&format!("build -o d.ib --column q {file}")).expect(2);
    assert!(
        refused.stderr.contains("no column \"q\"") && refused.stderr.contains("choose one of k")
    );
    let refused = folder.run(&format!("build -o d.ib {file}")).expect(2);
    assert!(refused.stderr.contains("--column NAME"), "{}", refused.stderr);
    folder.write("text", "a\n");
    folder.run("build -o d.ib --column k text").expect(2);
    assert!(!folder.path("d.ib").exists());
}
