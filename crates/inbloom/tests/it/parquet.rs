//! Filters inside of Parquet files that real programs have written: found by the footer, answered for each
//! row group.
//!
//! The files are in `golden/foreign/parquet`: by DuckDB 2.0.0, pyarrow 26.0.1 and the Rust crate parquet
//! 60.1.0. `.probes.txt` has 2000 keys each, with an answer of the Rust crate for each row group.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use inbloom::interop::KeyEncoding;
use inbloom::interop::parquet::{Metadata, Physical};
use inbloom::{Error, Filter};
use inbloom_testing::Random;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/foreign/parquet").join(name)
}

fn read(name: &str) -> Vec<u8> {
    fs::read(golden(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Name, type of the column, row groups, and the rows of each but the last.
const FILES: [(&str, &str, usize, u64); 8] = [
    ("duckdb-i32-500", "int32", 1, 500),
    ("duckdb-str-1k", "bytes", 1, 1000),
    ("pyarrow-binary-edge", "bytes", 1, 200),
    ("pyarrow-str-1k", "bytes", 1, 1000),
    ("pyarrow-u64-20k", "uint64", 3, 7000),
    ("rust-i32-500", "int32", 1, 500),
    ("rust-str-10", "bytes", 1, 10),
    ("rust-str-1k", "bytes", 3, 400),
];

fn filters(file: &[u8]) -> Vec<Filter> {
    let metadata = Metadata::read(Cursor::new(file)).unwrap();
    let column = metadata.column("k").unwrap();
    let chunks = metadata.row_groups.iter().map(|group| &group.chunks[column]);
    chunks.map(|chunk| chunk.read_filter(Cursor::new(file)).unwrap().unwrap()).collect()
}

#[test]
fn every_answer_is_that_of_the_real_program_for_each_row_group() {
    for (name, value_type, groups, rows) in FILES {
        let file = read(&format!("{name}.parquet"));
        let metadata = Metadata::read(Cursor::new(&file)).unwrap();
        let column = &metadata.columns[metadata.column("k").unwrap()];
        assert_eq!(column.value_type.to_string(), value_type, "{name}");
        let found: Vec<u64> = metadata.row_groups.iter().map(|group| group.rows).collect();
        assert_eq!((found.len(), found[0]), (groups, rows), "{name}: {found:?}");
        assert_eq!(found.iter().sum::<u64>(), metadata.rows, "{name}");

        let filters = filters(&file);
        let probes = fs::read_to_string(golden(&format!("{name}.probes.txt"))).unwrap();
        let mut keys = Vec::new();
        let mut expected = vec![Vec::new(); groups];
        for line in probes.strip_suffix('\n').unwrap().split('\n') {
            let mut fields = line.splitn(3, '\t');
            let (answers, text) = (fields.next().unwrap(), fields.nth(1).unwrap());
            for (answers, answer) in expected.iter_mut().zip(answers.chars()) {
                answers.push(answer == '1');
            }
            let mut key = Vec::new();
            match name.contains("binary") {
                true => assert!(KeyEncoding::Hex.encode(text.as_bytes(), &mut key)),
                // As a person types it: the column knows its type.
                false => column.value_type.encode(text.as_bytes(), &mut key).unwrap(),
            }
            keys.push(key);
        }
        assert_eq!(keys.len(), 2000);
        for (group, (filter, expected)) in filters.iter().zip(&expected).enumerate() {
            let one_by_one: Vec<bool> = keys.iter().map(|key| filter.contains(key)).collect();
            assert_eq!(&one_by_one, expected, "{name}, row group {group}");
            let mut batch = Vec::new();
            filter.contains_many(&keys, &mut batch);
            assert_eq!(&batch, expected, "{name}, row group {group}, in a batch");
        }
    }
}

#[test]
fn estimates_are_near_the_distinct_values_of_a_row_group() {
    for (name, _, groups, rows) in FILES {
        for filter in &filters(&read(&format!("{name}.parquet")))[..groups.min(2)] {
            let estimate = filter.estimated_items();
            // All values are distinct. One in five hundred may be outside of three deviations.
            let off = (estimate.items - rows as f64).abs();
            assert!(off <= 4.0 * estimate.error + 1.0, "{name}: {estimate:?}, {rows} rows");
            assert!(filter.rate() > 0.0 && filter.rate() < 0.2, "{name}: {}", filter.rate());
        }
    }
}

#[test]
fn a_filter_inside_of_a_file_is_saved_alone_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    for (name, _, groups, _) in FILES {
        for (group, filter) in filters(&read(&format!("{name}.parquet"))).iter().enumerate() {
            let path = folder.path().join("alone.sbbf");
            filter.save(&path).unwrap();
            let mut alone = Filter::open(&path).unwrap();
            assert!(&alone == filter, "{name}");
            assert!(alone.insert("one more").is_ok());
            let mut inside = filters(&read(&format!("{name}.parquet"))).remove(group);
            assert!(matches!(inside.insert("one more"), Err(Error::ReadOnly)));
            assert!(matches!(inside.clear(), Err(Error::ReadOnly)));
            assert!(matches!(inside.merge(&alone), Err(Error::ReadOnly)));
            assert!(inside.clone().insert("one more").is_ok(), "a copy is ours");
        }
        // By its path: the only filter, or one by column and row group.
        let path = golden(&format!("{name}.parquet"));
        let by_name = |part: &str| Filter::open(format!("{}#{part}", path.display()));
        let filters = filters(&read(&format!("{name}.parquet")));
        match groups {
            1 => {
                assert!(Filter::open(&path).unwrap() == filters[0]);
                assert!(by_name("k").unwrap() == filters[0]);
            }
            _ => {
                let error = Filter::open(&path).unwrap_err().to_string();
                assert!(error.contains(": k/0, k/1"), "{error}");
                assert!(by_name("k/1").unwrap() == filters[1]);
            }
        }
        let error = by_name("q").unwrap_err().to_string();
        assert!(error.contains("no filter named \"q\""), "{error}");
    }
}

/// Where the footer begins.
fn footer(file: &[u8]) -> usize {
    let length = file.len() - 8;
    let footer = u32::from_le_bytes(file[length..length + 4].try_into().unwrap());
    length - footer as usize
}

#[test]
fn damaged_files_are_errors_and_never_panics() {
    let mut random = Random(4);
    for (name, ..) in FILES {
        let whole = read(&format!("{name}.parquet"));
        let try_all = |bytes: &[u8]| {
            let Ok(metadata) = Metadata::read(Cursor::new(bytes)) else { return false };
            let chunks = metadata.row_groups.iter().flat_map(|group| &group.chunks);
            for chunk in chunks {
                if let Ok(Some(filter)) = chunk.read_filter(Cursor::new(bytes)) {
                    assert!(filter.bytes() <= bytes.len() as u64);
                    let _ = filter.contains("alice");
                }
            }
            true
        };
        let start = footer(&whole);
        for end in (0..20).chain(start..whole.len()) {
            assert!(!try_all(&whole[..end]), "{name} cut at {end}");
        }
        for _ in 0..4000 {
            let mut bytes = whole.clone();
            for _ in 0..=random.below(2) {
                let at = start + random.index(bytes.len() - start);
                bytes[at] = random.next() as u8;
            }
            try_all(&bytes);
        }
        // The headers of the filters, which lie before the footer.
        for at in start.saturating_sub(3000)..start {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << random.below(8);
            try_all(&bytes);
        }
    }
}

/// A whole file around a footer.
fn file_of(footer: &[u8]) -> Vec<u8> {
    let length = (footer.len() as u32).to_le_bytes();
    [b"PAR1", footer, &length, b"PAR1"].concat()
}

fn refusal(file: &[u8]) -> String {
    Metadata::read(Cursor::new(file)).unwrap_err().to_string()
}

#[test]
fn hostile_footers_are_refused_at_once() {
    // More bytes than the file has.
    let error = refusal(b"PAR1\xff\xff\xff\xffPAR1");
    assert!(error.contains("at most 0 bytes"), "{error}");
    let error = refusal(b"PAR1\0\0\0\0PARE");
    assert!(error.contains("not encrypted"), "{error}");
    let error = refusal(b"PAR");
    assert!(error.contains("at least 12 bytes"), "{error}");
    // A list of 2^31 row groups, none of them there.
    let error = refusal(&file_of(&[0x49, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07]));
    assert!(error.contains("one more byte"), "{error}");
    // A million row groups in a megabyte, each without a number of rows.
    let mut many = vec![0x49, 0xfc, 0xc0, 0x84, 0x3d];
    many.extend(std::iter::repeat_n(0, 1_000_000));
    let error = refusal(&file_of(&many));
    assert!(error.contains("number of rows"), "{error}");
    // Structs within structs.
    let error = refusal(&file_of(&vec![0x1c; 1_000_000]));
    assert!(error.contains("nested"), "{error}");
    // Negative numbers of rows: the field, then zigzag of -1.
    let error = refusal(&file_of(&[0x36, 0x01, 0x00]));
    assert!(error.contains("not negative"), "{error}");
}

#[test]
fn filters_of_another_kind_are_refused_by_name() {
    let bare = read("sbbf-u64-1k-folded.sbbf");
    let header: Vec<u8> = [&[0x15, 0x80, 0x20][..], &[0x1c, 0x1c, 0, 0].repeat(3), &[0]].concat();
    assert!(bare.starts_with(&header), "{:x?}", &bare[..20]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("filter");
    let sbbf =
        inbloom::interop::Container::from("parquet".parse::<inbloom::interop::Format>().unwrap());
    for (at, value, expected) in [
        (4, 0x2c, "algorithm"),
        (8, 0x2c, "hash"),
        (12, 0x2c, "compression"),
        (1, 0x82, "multiple of 32"),
    ] {
        let mut bytes = bare.clone();
        bytes[at] = value;
        fs::write(&path, &bytes).unwrap();
        let error = sbbf.read(&bytes).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(Filter::open(&path).is_err());
    }
    // A length that is not that of the file.
    let mut bytes = bare.clone();
    bytes[2] = 0x40;
    let error = sbbf.read(&bytes).unwrap_err().to_string();
    assert!(error.contains("length of the blocks"), "{error}");
}

#[test]
fn values_that_no_column_can_have_are_refused() {
    let metadata = Metadata::read(Cursor::new(read("duckdb-i32-500.parquet"))).unwrap();
    let value_type = metadata.columns[0].value_type;
    assert_eq!(value_type.physical, Physical::Int32);
    let error = value_type.encode(b"2147483648", &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("a value of type int32"), "{error}");
}
