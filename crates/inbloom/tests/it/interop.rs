//! Filters of other programs: what they wrote is read, answered and written again to the bit.
//!
//! The files in `golden/foreign` were made by the real programs: `cases.tsv` says which, from which keys
//! and how. `.probes.txt` are 2000 keys each, with the answer of the real program (answer, whether
//! inserted, key); up to a quarter of them are its false positives. Key files that RedisBloom's filters
//! were made from too are in `golden/redisbloom/keys`.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use inbloom::interop::{Container, Format, KeyEncoding};
use inbloom::{Error, Filter, OpenOptions};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn read(path: impl AsRef<Path>) -> Vec<u8> {
    let path = path.as_ref();
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The bytes without their compression: programs compress them differently.
fn plain(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain) {
        Ok(_) => plain,
        Err(_) => bytes.to_vec(),
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n')
}

/// A filter that a real program has made.
struct Case {
    format: Format,
    name: String,
    path: PathBuf,
    keys: String,
    encoding: KeyEncoding,
    /// What it was planned from, where it was.
    planned: Option<(u64, f64)>,
    variants: Vec<String>,
}

impl Case {
    fn all() -> Vec<Case> {
        let formats = Format::all().filter(|format| {
            folder().join("foreign").join(format.name()).join("cases.tsv").is_file()
        });
        let cases: Vec<Case> = formats.flat_map(Case::of).collect();
        assert!(!cases.is_empty());
        cases
    }

    fn of(format: Format) -> Vec<Case> {
        let folder = folder().join("foreign").join(format.name());
        let table = read(folder.join("cases.tsv"));
        let rows = lines(&table).skip(1).map(|row| {
            let row = std::str::from_utf8(row).expect("text");
            let fields: Vec<&str> = row.split('\t').collect();
            let [name, file, keys, encoding, items, rate, variants, _made_with] = fields[..] else {
                panic!("eight fields in {row:?}")
            };
            let planned = items.parse().ok().zip(rate.parse().ok());
            let variants = if variants == "-" { "" } else { variants };
            Case {
                format,
                name: format!("{format} {name}"),
                path: folder.join(file),
                keys: keys.to_owned(),
                encoding: encoding.parse().expect("an encoding"),
                planned,
                variants: variants.split_terminator(',').map(str::to_owned).collect(),
            }
        });
        rows.collect()
    }

    fn container(&self) -> Container {
        let variants = self.variants.iter().map(String::as_str);
        Container::new(self.format, variants).expect("variants of the format")
    }

    /// The filter as it is opened by those who know what its bytes do not tell.
    fn open(&self) -> Filter {
        let options = OpenOptions::new().format(self.container());
        options.open(&self.path).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    fn key(&self, text: &[u8]) -> Vec<u8> {
        let mut key = Vec::new();
        assert!(self.encoding.encode(text, &mut key), "{}: {text:?}", self.name);
        key
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        let [here, there] = ["foreign", "redisbloom"].map(|one| folder().join(one).join("keys"));
        let path = [here, there].map(|folder| folder.join(&self.keys));
        let path = path.iter().find(|path| path.is_file()).expect("a file of keys");
        lines(&read(path)).map(|line| self.key(line)).collect()
    }

    /// Keys, and what the real program answers.
    fn probes(&self) -> (Vec<Vec<u8>>, Vec<bool>) {
        let name = self.name.split_once(' ').expect("a format and a name").1;
        let probes = read(self.path.with_file_name(format!("{name}.probes.txt")));
        let probe = |line: &[u8]| {
            let mut fields = line.splitn(3, |byte| *byte == b'\t');
            let answer = fields.next().expect("an answer") == b"1";
            (self.key(fields.nth(1).expect("a key")), answer)
        };
        lines(&probes).map(probe).unzip()
    }
}

/// Asks for keys one by one, in a batch, and from a shared filter.
fn assert_answers(filter: &Filter, keys: &[Vec<u8>], expected: &[bool], what: &str) {
    let one_by_one: Vec<bool> = keys.iter().map(|key| filter.contains(key)).collect();
    assert_eq!(one_by_one, expected, "{what}, one by one");
    let mut found = Vec::new();
    filter.contains_many(keys, &mut found);
    assert_eq!(found, expected, "{what}, in a batch");
    let shared = filter.clone().into_shared().expect("every filter can be shared");
    let one_by_one: Vec<bool> = keys.iter().map(|key| shared.contains(key)).collect();
    assert_eq!(one_by_one, expected, "{what}, shared");
    shared.contains_many(keys, &mut found);
    assert_eq!(found, expected, "{what}, shared, in a batch");
}

fn written(filter: &Filter, container: Container) -> Vec<u8> {
    let mut bytes = Vec::new();
    filter.write_as(container, &mut bytes).expect("a filter of this format");
    plain(&bytes)
}

#[test]
fn every_answer_is_that_of_the_real_program() {
    for case in Case::all() {
        let (keys, expected) = case.probes();
        assert_eq!(keys.len(), 2000, "{}", case.name);
        assert_answers(&case.open(), &keys, &expected, &case.name);
    }
}

#[test]
fn formats_are_recognized_by_their_content() {
    for case in Case::all() {
        let recognized = Format::recognize(&read(&case.path)).expect("one format only");
        assert_eq!(recognized, Some(case.format), "{}", case.name);
    }
}

#[test]
fn a_file_that_is_read_and_written_is_the_same_to_the_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    for case in Case::all() {
        let filter = case.open();
        assert_eq!(filter.container(), Some(case.container()), "{}", case.name);
        let path = folder.path().join("saved");
        filter.save(&path).expect("a format that is written");
        assert!(plain(&read(&path)) == plain(&read(&case.path)), "{} is another file", case.name);
    }
}

#[test]
fn the_same_keys_give_the_same_file_to_the_byte() {
    for case in Case::all() {
        let (keys, expected) = (case.keys(), plain(&read(&case.path)));
        let mut emptied = case.open();
        let opened = emptied.clone();
        emptied.clear().expect("memory of its own");
        assert_eq!(emptied.occupied(), 0);
        emptied.insert_many(&keys, &mut Vec::new()).expect("room for all");
        assert!(written(&emptied, case.container()) == expected, "{} in a batch", case.name);
        assert!(emptied == opened, "{}", case.name);

        emptied.clear().expect("memory of its own");
        for key in &keys {
            emptied.insert(key).expect("room for all");
        }
        assert!(written(&emptied, case.container()) == expected, "{} one by one", case.name);

        emptied.clear().expect("memory of its own");
        let shared = emptied.into_shared().expect("every filter can be shared");
        shared.insert_many(&keys, &mut Vec::new()).expect("room for all");
        let shared = shared.into_exclusive();
        assert!(written(&shared, case.container()) == expected, "{} shared", case.name);
    }
}

#[test]
fn a_filter_that_is_planned_here_is_the_file_of_the_real_program() {
    let mut planned = 0;
    for case in Case::all() {
        let Some((items, rate)) = case.planned else { continue };
        planned += 1;
        let mut filter =
            Filter::for_format(case.container(), items, rate).expect("sizes of the program");
        // A seed is no part of a plan.
        if case.name.contains(" seed-") || case.name.contains("-seed-") {
            assert_ne!(filter.hasher(), case.open().hasher(), "{}", case.name);
            continue;
        }
        filter.insert_many(&case.keys(), &mut Vec::new()).expect("room for all");
        let (ours, theirs) = (written(&filter, case.container()), plain(&read(&case.path)));
        let end = ours.len().min(theirs.len());
        // Data that was attached later is behind the filter.
        assert!(ours == theirs[..end] && !ours.is_empty(), "{} is another file", case.name);
        assert!(end == theirs.len() || case.name.ends_with("-data"), "{}", case.name);
    }
    assert!(planned >= 10, "{planned}");
}

/// DataSketches' own library for Rust: the same keys give the same bytes, each reads what the other
/// has written, and both answer alike.
#[test]
fn datasketches_and_inbloom_exchange_filters() {
    use datasketches::bloom::{BloomFilter, BloomFilterBuilder};
    use datasketches::hash::value::raw_bytes;

    let format: Format = "datasketches".parse().expect("a format");
    for (items, rate) in [(1, 0.5), (100, 0.01), (5000, 0.01), (5000, 0.25), (3000, 1e-6)] {
        let mut ours = Filter::for_format(format.into(), items, rate).expect("sizes of theirs");
        let mut theirs = BloomFilterBuilder::with_accuracy(items, rate).build().expect("a filter");
        assert!(written(&ours, format.into()) == theirs.serialize(), "{items} {rate}, empty");
        for key in (0..items).map(|number| format!("key {number}")) {
            ours.insert(&key).expect("room for all");
            theirs.insert(raw_bytes::from_str(&key));
        }
        let [here, there] = [written(&ours, format.into()), theirs.serialize()];
        assert!(here == there, "{items} {rate}: other bytes from the same keys");
        let read_there = BloomFilter::deserialize(&here).expect("a filter of theirs");
        let read_here = Container::from(format).read(&there).expect("a filter of ours");
        let mut found = 0;
        for key in (0..items + 20_000).map(|number| format!("key {number}")) {
            let answer = read_there.contains(&raw_bytes::from_str(&key));
            assert_eq!(read_here.contains(&key), answer, "{items} {rate}: {key}");
            found += u64::from(answer);
        }
        assert!(found >= items, "{items} {rate}: {found}");
    }
}

#[test]
fn an_empty_filter_of_datasketches_is_a_header_alone() {
    let format = Container::from("datasketches".parse::<Format>().expect("a format"));
    // 3 words, version, family, the flag; 7 hash functions, seed 9001, 150 words.
    let mut file = [[3, 1, 21, 4, 7, 0, 0, 0], 9001_u64.to_le_bytes(), 150_u64.to_le_bytes()];
    let filter = format.read(file.as_flattened()).expect("an empty filter");
    assert_eq!((filter.plan().bits(), filter.plan().probes(), filter.occupied()), (9600, 7, 0));
    assert!(!filter.contains("alice"));
    assert_eq!(written(&filter, format), file.as_flattened());
    // 24 bytes that ask for 16 GiB.
    file[2] = 0x7fff_ffff_u64.to_le_bytes();
    let error = format.read(file.as_flattened()).expect_err("no memory for that").to_string();
    assert!(error.contains("number of words of an empty filter"), "{error}");
}

#[test]
fn our_own_format_holds_every_filter() {
    for case in Case::all() {
        let mut filter = case.open();
        filter.set_key_encoding(case.encoding.name()).expect("a short text");
        let mut bytes = Vec::new();
        filter.write_to(&mut bytes).expect("memory");
        let (keys, expected) = case.probes();
        let view = Filter::view(&bytes).expect("our own format");
        assert!(*view == filter, "{}", case.name);
        assert_eq!(view.key_encoding(), case.encoding.name());
        let copy = Filter::read_from(&bytes[..]).expect("our own format");
        assert_answers(&copy, &keys, &expected, &case.name);
        inbloom::internals::format::verify(&bytes).expect("what was just written");
        // And back.
        assert_eq!(copy.container(), None);
        assert!(written(&copy, case.container()) == plain(&read(&case.path)), "{}", case.name);
    }
}

/// Found by fuzzing: the number went over its end with the next insert.
#[test]
fn a_filter_of_dcso_has_no_more_inserts_than_can_be_counted() {
    let case = Case::all().into_iter().find(|case| case.name == "dcso cli-str-10").expect("a case");
    let mut bytes = read(&case.path);
    bytes[40..48].copy_from_slice(&(u64::MAX - 1).to_le_bytes());
    let error = case.container().read(&bytes).expect_err("too many").to_string();
    assert!(error.contains("number of inserts"), "{error}");
    bytes[40..48].copy_from_slice(&(1_u64 << 63).to_le_bytes());
    let mut filter = case.container().read(&bytes).expect("a filter");
    filter.insert("one more").expect("memory of its own");
}

/// Found by fuzzing: our own format refused the file that it had written.
#[test]
fn bits_behind_the_last_of_a_filter_of_dcso_are_dropped() {
    let mut tried = 0;
    for case in Case::all().iter().filter(|case| case.format.name() == "dcso") {
        let (mut bytes, filter) = (read(&case.path), case.open());
        let is_plain = !case.variants.iter().any(|variant| variant == "gzip");
        if filter.plan().bits() % 64 == 0 || !is_plain || case.name.ends_with("-data") {
            continue;
        }
        // The highest bit of the last word.
        *bytes.last_mut().expect("a word") |= 0x80;
        let damaged = case.container().read(&bytes).expect("a bit that means nothing");
        assert!(damaged == filter, "{}", case.name);
        let mut ours = Vec::new();
        damaged.write_to(&mut ours).expect("memory");
        assert!(Filter::read_from(&ours[..]).expect("our own format") == filter);
        tried += 1;
    }
    assert!(tried >= 3, "{tried}");
}

#[test]
fn filters_merge_with_their_like_only() {
    let cases = Case::all();
    for case in &cases {
        let (keys, expected) = (case.keys(), case.open());
        let mut halves = [(); 2].map(|()| {
            let mut half = expected.clone();
            half.clear().expect("memory of its own");
            half
        });
        for (number, half) in halves.iter_mut().enumerate() {
            let keys: Vec<_> = keys.iter().skip(number).step_by(2).collect();
            half.insert_many(&keys, &mut Vec::new()).expect("room for all");
        }
        let [mut first, second] = halves;
        first.merge(&second).expect("filters of one plan");
        assert!(first == expected, "{}", case.name);
        for other in cases.iter().map(Case::open) {
            let is_like = first.plan().kind() == other.plan().kind()
                && first.plan().bits() == other.plan().bits()
                && first.plan().probes() == other.plan().probes()
                && first.hasher() == other.hasher();
            match first.clone().merge(&other) {
                Ok(()) => assert!(is_like, "{}", case.name),
                Err(Error::Mismatch { .. }) => assert!(!is_like, "{}", case.name),
                Err(other) => panic!("{}: {other}", case.name),
            }
        }
    }
}

#[test]
fn a_filter_of_another_hash_is_not_written() {
    let case = &Case::all()[0];
    let mut ours =
        Filter::new(inbloom::Plan::exact(inbloom::Kind::Classic, 640, 7).unwrap()).unwrap();
    let error = ours.set_container(Some(case.container())).expect_err("our own hash");
    assert!(matches!(error, Error::OtherScheme { .. }), "{error}");
    assert!(error.to_string().contains("build --format"), "{error}");
    assert!(ours.write_as(case.container(), &mut Vec::new()).is_err());
    let plan = *case.open().plan();
    assert!(Filter::with_hasher(plan, inbloom::Hasher::default()).is_err());
}

/// A few bytes changed, or bytes missing: an error or a filter, never a panic, and never more memory
/// than the bytes have.
#[test]
fn damaged_files_are_refused_or_read() {
    for case in Case::all() {
        let bytes = read(&case.path);
        let read_all = |bytes: &[u8]| {
            for format in Format::all() {
                let read = Container::from(format).read(bytes);
                if let Ok(filter) = read {
                    // Compressed files may be larger when they are read.
                    let most = 2048 * bytes.len().max(64) as u64;
                    assert!(filter.bytes() <= most, "{} as {format}", case.name);
                    let _ = filter.contains("alice");
                }
            }
            let _ = Format::recognize(bytes);
        };
        for length in (0..bytes.len().min(80)).chain([bytes.len() - 8, bytes.len() - 1]) {
            read_all(&bytes[..length]);
        }
        let cut = case.container().read(&bytes[..bytes.len() - 1]);
        assert!(cut.is_err() || case.name.ends_with("-data"), "{}", case.name);
        assert!(case.container().read(&[]).is_err(), "{}", case.name);
        for at in 0..bytes.len().min(64) {
            for change in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= change;
                read_all(&damaged);
            }
        }
    }
}
