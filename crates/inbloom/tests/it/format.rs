//! The file format against damage, strangers and liars: whatever the bytes are, a reader gets a typed
//! error that names what it expected, what it got and what to do, or a filter that answers right. It
//! never panics, and never takes memory that the bytes do not justify.
//!
//! Offsets in this file are those of the table in docs/format.md.

use std::io::Write;
use std::ops::Range;
use std::time::{Duration, Instant};

use inbloom::internals::format;
use inbloom::{
    BloomFilter, Error, Filter, Hasher, Kind, OpenOptions, Plan, Result, SecretKey, file,
};
use inbloom_testing::{alone, resident_memory};
use xxhash_rust::xxh3::xxh3_64;

const KEY: SecretKey = SecretKey::new(*b"sixteen byte key");

/// A small filter of every shape that a file can have, with what was inserted into it.
struct Sample {
    name: &'static str,
    filter: Filter,
    members: Vec<Vec<u8>>,
}

fn samples() -> Vec<Sample> {
    let words = || (0..12).map(|i| format!("member {i}").into_bytes()).collect::<Vec<_>>();
    let integers =
        |values: &[u64]| values.iter().map(|v| v.to_le_bytes().to_vec()).collect::<Vec<_>>();
    let sample = |name, plan: Plan, hasher: Option<Hasher>, members: Vec<Vec<u8>>| {
        if plan.kind().is_static() {
            let hasher = hasher.unwrap_or_default();
            let digests: Vec<_> = members.iter().map(|member| hasher.digest(member)).collect();
            let filter = Filter::build(plan, hasher, &digests).expect("a small filter");
            return Sample { name, filter, members };
        }
        let filter = match hasher {
            Some(hasher) => Filter::with_hasher(plan, hasher),
            None => Filter::new(plan),
        };
        let mut filter = filter.expect("a small filter");
        for member in &members {
            filter.insert(member).expect("a member of the universe");
        }
        Sample { name, filter, members }
    };
    let blocked = Plan::exact(Kind::Blocked, 512, 8).unwrap();
    let two_lines = Plan::builder(Kind::Blocked).items(12).bytes(192).lines(2).probes(16).build();
    let dense = Plan::builder(Kind::Bitmap).universe(100).build().unwrap();
    let sparse = Plan::builder(Kind::Bitmap).universe(u64::MAX).items(4).build().unwrap();
    assert!(sparse.is_sparse() && !dense.is_sparse());

    let mut samples = vec![
        sample("blocked", blocked, None, words()),
        sample("blocked, two lines", two_lines.unwrap(), None, words()),
        sample("blocked, keyed", blocked, Some(Hasher::sip13(KEY)), words()),
        sample("classic", Plan::exact(Kind::Classic, 1000, 5).unwrap(), None, words()),
        sample("bitmap, dense", dense, None, integers(&[0, 5, 63, 64, 99])),
        sample("bitmap, sparse", sparse, None, integers(&[7, 65_536, 1 << 40, u64::MAX - 1])),
        sample("counting", Plan::exact(Kind::Counting, 512, 4).unwrap(), None, words()),
        sample("counting, bytes", counting_bytes(), None, words()),
        sample("cuckoo", small(Kind::Cuckoo, 0.01), None, words()),
        sample("cuckoo, wide", small(Kind::Cuckoo, 1e-9), None, words()),
        sample("window of keys", window_of_keys(), None, words()),
        sample("window of time", window_of_time(), None, words()),
        sample("ribbon", small(Kind::Ribbon, 0.1), None, words()),
        sample("ribbon of three shards, keyed", three_shards(), Some(Hasher::sip13(KEY)), words()),
        sample("ribbon, changed since", small(Kind::Ribbon, 0.1), None, words()),
        sample("blocked, grown", small_and_growing(Kind::Blocked), None, words()),
        sample("classic, grown", small_and_growing(Kind::Classic), None, words()),
        // A place for the scalable kind.
        sample("blocked, with texts", blocked, Some(Hasher::xxh3(77)), words()),
    ];
    for sample in &mut samples {
        match sample.name {
            "counting" | "cuckoo" => {
                let removed = sample.members.pop().unwrap();
                assert!(sample.filter.remove(removed).unwrap());
            }
            "ribbon, changed since" => {
                let mut list = sample.filter.clone().into_overlay(0.2).unwrap();
                assert!(list.remove(sample.members.pop().unwrap()).unwrap());
                assert!(list.remove(sample.members.pop().unwrap()).unwrap());
                for late in ["late", "later"] {
                    list.insert(late).unwrap();
                    sample.members.push(late.into());
                }
                sample.filter = list;
            }
            "blocked, grown" | "classic, grown" => {
                let mut grown = sample.filter.clone().into_growing().unwrap();
                for late in 0..20 {
                    let late = format!("late {late}").into_bytes();
                    grown.insert(&late).unwrap();
                    sample.members.push(late);
                }
                assert!(grown.as_grown().unwrap().beyond() > 10);
                sample.filter = grown;
            }
            "window of time" => {
                // One that is older than the clock says, and one of now.
                sample.filter.advance(5000).unwrap();
                sample.filter.advance(5600).unwrap();
                sample.filter.insert("late").unwrap();
            }
            _ => {}
        }
    }
    let texts = &mut samples.last_mut().unwrap().filter;
    texts.set_note("crawl of May \u{2014} 12 pages").unwrap();
    texts.set_normalization("lower case").unwrap();
    texts.set_auto_clear(Some(0.75)).unwrap();
    samples
}

fn small_and_growing(kind: Kind) -> Plan {
    Plan::builder(kind).items(15).rate(0.1).growing().build().unwrap()
}

fn small(kind: Kind, rate: f64) -> Plan {
    Plan::builder(kind).items(12).rate(rate).build().unwrap()
}

/// Two lines of counters that are whole bytes.
fn counting_bytes() -> Plan {
    let plan = Plan::builder(Kind::Counting).items(12).bytes(128).width(8);
    plan.lines(2).probes(8).build().unwrap()
}

/// Of twelve keys the first six are in one generation, the others in the next.
fn window_of_keys() -> Plan {
    Plan::builder(Kind::Window).last(12).generations(2).build().unwrap()
}

/// Planned for more keys than come, so that there are several shards, and bits that are read alone.
fn three_shards() -> Plan {
    Plan::builder(Kind::Ribbon).items(5_000_000).rate(0.3).build().unwrap()
}

fn window_of_time() -> Plan {
    let second = Duration::from_secs(1);
    Plan::builder(Kind::Window).window(second).items(24).generations(2).build().unwrap()
}

fn write(filter: &Filter) -> Vec<u8> {
    let mut bytes = Vec::new();
    filter.write_to(&mut bytes).expect("a Vec takes every byte");
    bytes
}

/// The file that hostile fields are written into: one block, at bytes 192 to 256.
fn victim() -> Vec<u8> {
    let mut filter = Filter::new(Plan::exact(Kind::Blocked, 512, 8).unwrap()).unwrap();
    filter.insert("alice").unwrap();
    let bytes = write(&filter);
    assert_eq!(bytes.len(), 256);
    bytes
}

/// As [`victim`], with a note of one byte: sections note at 192 and BITS at 256.
fn victim_with_note() -> Vec<u8> {
    let mut filter = Filter::new(Plan::exact(Kind::Blocked, 512, 8).unwrap()).unwrap();
    filter.insert("alice").unwrap();
    filter.set_note("n").unwrap();
    let bytes = write(&filter);
    assert_eq!(
        (bytes.len(), &bytes[128..132], &bytes[160..164]),
        (320, &b"note"[..], &b"BITS"[..])
    );
    bytes
}

fn victim_sparse() -> Vec<u8> {
    let plan = Plan::builder(Kind::Bitmap).universe(1 << 40).items(2).build().unwrap();
    let mut filter = Filter::new(plan).unwrap();
    filter.insert(9u64.to_le_bytes()).unwrap();
    write(&filter)
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    put(bytes, at, value.to_le_bytes());
}

fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn sections(bytes: &[u8]) -> usize {
    u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize
}

/// Makes the header's checksum right again, as a liar would.
fn seal(bytes: &mut [u8]) {
    let end = (128 + 32 * sections(bytes)).min(bytes.len());
    put_u64(bytes, 120, 0);
    let checksum = xxh3_64(&bytes[..end]);
    put_u64(bytes, 120, checksum);
}

/// Makes every checksum right again.
fn seal_all(bytes: &mut [u8]) {
    for section in 0..sections(bytes) {
        let entry = 128 + 32 * section;
        let (offset, length) = (get_u64(bytes, entry + 8), get_u64(bytes, entry + 16));
        let checksum = xxh3_64(&bytes[offset as usize..][..length as usize]);
        put_u64(bytes, entry + 24, checksum);
    }
    seal(bytes);
}

/// Every way into a filter.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Read,
    View,
    Verify,
    Open,
    OpenMut,
    VerifyFile,
}

impl Way {
    const ALL: [Way; 6] =
        [Way::Read, Way::View, Way::Verify, Way::Open, Way::OpenMut, Way::VerifyFile];

    /// Whether this way promises to look at every byte.
    fn looks_at_all(self) -> bool {
        matches!(self, Way::Read | Way::Verify | Way::VerifyFile)
    }

    /// A filter from these bytes; none where the way only judges.
    fn take(self, bytes: &[u8]) -> Result<Option<Filter>> {
        let saved = || {
            let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
            file.write_all(bytes).expect("room for a small file");
            file
        };
        match self {
            Way::Read => OpenOptions::new().secret(&KEY).read_from(bytes).map(Some),
            Way::View => OpenOptions::new().secret(&KEY).view(bytes).map(|view| Some(view.clone())),
            Way::Verify => format::verify(bytes).map(|()| None),
            Way::Open => OpenOptions::new().secret(&KEY).open(saved().path()).map(Some),
            Way::OpenMut => {
                OpenOptions::new().secret(&KEY).writable(true).open(saved().path()).map(Some)
            }
            Way::VerifyFile => file::verify(saved().path()).map(|()| None),
        }
    }
}

/// The text of an error that is about the bytes, with everything a user needs in it.
fn text_of(error: &Error, context: &str) -> String {
    let text = error.to_string();
    match error {
        Error::Format { what, expected, got, remedy } => {
            for part in [*what, expected, got, *remedy] {
                assert!(!part.is_empty() && text.contains(part), "{context}: {text}");
            }
            assert!(text.contains("expected ") && text.contains(", got "), "{context}: {text}");
        }
        Error::NotAFilter { .. } => assert!(text.contains("check the path"), "{context}: {text}"),
        Error::NewerVersion { .. } => assert!(text.contains("upgrade inbloom"), "{text}"),
        other => panic!("{context}: an error of another kind: {other:?}"),
    }
    text
}

/// Asserts that every way refuses the bytes, and that the text has all of these parts.
fn assert_refused(bytes: &[u8], parts: &[&str], context: &str) {
    for way in Way::ALL {
        match way.take(bytes) {
            Ok(_) => panic!("{context}: {way:?} took it"),
            Err(error) => {
                let text = text_of(&error, context);
                for part in parts {
                    assert!(text.contains(part), "{context}, {way:?}: no \"{part}\" in \"{text}\"");
                }
            }
        }
    }
}

/// Keys that are in no sample. A bitmap takes at most eight bytes for an integer.
fn absent() -> impl Iterator<Item = [u8; 8]> {
    (1000..1200u64).map(|i| (i * 0x9e37_79b9).to_le_bytes())
}

/// Asserts that a filter answers, describes itself and is counted as the sample is.
fn assert_same(filter: &Filter, sample: &Sample, context: &str) {
    assert!(*filter == sample.filter, "{context}: another filter");
    assert!(sample.members.iter().all(|key| filter.contains(key)), "{context}: a member is denied");
    for key in absent() {
        assert_eq!(filter.contains(key), sample.filter.contains(key), "{context}: {key:?}");
    }
    assert_same_header(filter, sample, context);
}

fn assert_same_header(filter: &Filter, sample: &Sample, context: &str) {
    assert_eq!(filter.plan(), sample.filter.plan(), "{context}");
    assert_eq!(filter.hasher(), sample.filter.hasher(), "{context}");
    assert_eq!(filter.inserted(), sample.filter.inserted(), "{context}");
    assert_eq!(filter.occupied(), sample.filter.occupied(), "{context}");
    assert_eq!(filter.note(), sample.filter.note(), "{context}");
    assert_eq!(filter.normalization(), sample.filter.normalization(), "{context}");
    assert_eq!(filter.auto_clear(), sample.filter.auto_clear(), "{context}");
}

// --------------------------------------------------------------------------------------- round trips

#[test]
fn what_is_written_is_read_back_whole_by_every_way() {
    for sample in samples() {
        let bytes = write(&sample.filter);
        for way in Way::ALL {
            let context = format!("{}, {way:?}", sample.name);
            if let Some(filter) = way.take(&bytes).expect(&context) {
                assert_same(&filter, &sample, &context);
                assert_eq!(write(&filter), bytes, "{context}: written again, other bytes");
            }
        }
    }
}

#[test]
fn a_stream_is_read_up_to_the_filters_last_byte() {
    let mut stream = Vec::new();
    for sample in samples() {
        stream.extend(write(&sample.filter));
    }
    stream.extend(b"and then something else");
    let mut reader = &stream[..];
    for sample in samples() {
        let filter = OpenOptions::new().secret(&KEY).read_from(&mut reader).unwrap();
        assert_same(&filter, &sample, sample.name);
    }
    assert_eq!(reader, b"and then something else");
}

#[test]
fn a_view_answers_alike_at_every_alignment() {
    for sample in samples() {
        let bytes = write(&sample.filter);
        let mut buffer = vec![0; bytes.len() + 128];
        let start = buffer.as_ptr().align_offset(64);
        for offset in 0..64 {
            let place = &mut buffer[start + offset..][..bytes.len()];
            place.copy_from_slice(&bytes);
            let view = OpenOptions::new().secret(&KEY).view(place).unwrap();
            assert_same(&view, &sample, &format!("{} at {offset}", sample.name));
            let mut found = Vec::new();
            view.contains_many(&sample.members, &mut found);
            assert!(found.iter().all(|found| *found), "{} at {offset}", sample.name);
        }
    }
}

#[test]
fn a_keyed_filter_asks_for_its_key_and_for_no_other() {
    let plan = Plan::exact(Kind::Blocked, 512, 8).unwrap();
    let bytes = write(&Filter::with_hasher(plan, Hasher::sip13(KEY)).unwrap());
    let other = SecretKey::new([1; 16]);
    let refusals = [
        (Filter::read_from(&bytes[..]).unwrap_err(), "no secret key was given"),
        (Filter::view(&bytes).map(drop).unwrap_err(), "no secret key was given"),
        (
            OpenOptions::new().secret(&other).read_from(&bytes[..]).unwrap_err(),
            "a different one was given",
        ),
        (
            OpenOptions::new().secret(&other).view(&bytes).map(drop).unwrap_err(),
            "a different one was given",
        ),
    ];
    for (error, problem) in refusals {
        assert!(matches!(error, Error::Key { .. }), "{error:?}");
        let text = format!(
            "the filter was built with a secret key, and {problem}; open it with the secret key that it was built with (OpenOptions::secret, --key-file on the command line)"
        );
        assert_eq!(error.to_string(), text);
    }
    format::verify(&bytes).expect("checked without the key");
    let secret = b"sixteen byte key";
    assert!(!bytes.windows(16).any(|window| window == secret), "the key itself is in the file");
}

// -------------------------------------------------------------------------------------------- damage

#[test]
fn every_prefix_is_refused() {
    for sample in samples() {
        let bytes = write(&sample.filter);
        for length in 0..bytes.len() {
            let context = format!("{}, {length} of {} bytes", sample.name, bytes.len());
            let remedy = if length < 8 { "not an inbloom file" } else { "cut short; restore" };
            assert_refused(&bytes[..length], &[remedy], &context);
        }
    }
}

#[test]
fn bytes_behind_the_end_are_refused_where_the_end_is_known() {
    let bytes = [&victim()[..], b"x"].concat();
    for way in Way::ALL {
        match way.take(&bytes) {
            // A stream may go on after the filter.
            Ok(filter) => assert!(way == Way::Read && filter.unwrap().contains("alice")),
            Err(error) => {
                let text = text_of(&error, "one byte more");
                assert!(text.starts_with("length of the file: expected 256, got 257; "), "{text}");
            }
        }
    }
}

/// What the bytes of a file are for, from its own section table.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Region {
    Header,
    Padding,
    Text,
    Payload,
}

fn regions(bytes: &[u8]) -> Vec<Region> {
    let mut regions = vec![Region::Padding; bytes.len()];
    let mut mark = |range: Range<usize>, region| regions[range].fill(region);
    mark(0..128 + 32 * sections(bytes), Region::Header);
    for section in 0..sections(bytes) {
        let entry = 128 + 32 * section;
        let offset = get_u64(bytes, entry + 8) as usize;
        let length = get_u64(bytes, entry + 16) as usize;
        let payload = matches!(&bytes[entry..entry + 4], b"BITS" | b"MORE" | b"GONE");
        mark(offset..offset + length, if payload { Region::Payload } else { Region::Text });
    }
    regions
}

/// Header and texts are always checked. Padding and payload are checked by the ways that look at all;
/// for the others a flip in the padding changes nothing, and one in the payload answers only.
#[test]
fn every_flipped_bit_is_found_or_changes_no_more_than_answers() {
    for sample in samples() {
        let whole = write(&sample.filter);
        let regions = regions(&whole);
        let sparse = sample.filter.plan().is_sparse();
        // A directory is checked when it is opened, as far as it can be, and so is the header of a
        // growing part.
        let directory = matches!(sample.filter.plan().kind(), Kind::Window | Kind::Ribbon)
            || sample.filter.as_grown().is_some();
        let mut bytes = whole.clone();
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let region = regions[bit / 8];
            for way in Way::ALL {
                let context = format!("{}, bit {bit} ({region:?}), {way:?}", sample.name);
                let must_fail = way.looks_at_all()
                    || matches!(region, Region::Header | Region::Text)
                    || (region == Region::Payload && sparse);
                let may_fail = must_fail || (region == Region::Payload && directory);
                match way.take(&bytes) {
                    Err(error) => {
                        assert!(may_fail, "{context}: {error}");
                        text_of(&error, &context);
                    }
                    Ok(_) if must_fail => panic!("{context}: not noticed"),
                    Ok(filter) => {
                        let filter = filter.expect("the ways that judge look at all");
                        if region == Region::Padding {
                            assert_same(&filter, &sample, &context);
                        } else {
                            assert_same_header(&filter, &sample, &context);
                            use_up(filter, &sample);
                        }
                    }
                }
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(bytes == whole);
    }
}

/// Everything that can be done to a filter, whatever its bits are. Returns without a panic.
fn use_up(mut filter: Filter, sample: &Sample) {
    let mut answers = Vec::new();
    filter.contains_many(&sample.members, &mut answers);
    let _ = (filter.fill(), filter.rate(), filter.estimated_items());
    let _ = filter.as_bitmap().map(|bitmap| bitmap.iter().count());
    let _ = (filter.details(), filter.bytes(), filter.positions(&sample.members[0]));
    let _ = filter.insert(&sample.members[0]);
    let _ = filter.insert_many(&sample.members, &mut answers);
    let _ = sample.members.iter().map(|key| filter.count(key)).sum::<u64>();
    for member in &sample.members {
        let _ = filter.remove(member);
    }
    for now in [1, 5700, 9000, u64::MAX] {
        let _ = filter.advance(now);
        let _ = filter.insert(now.to_le_bytes());
    }
    let shared = filter.into_shared();
    let Ok(shared) = shared else { return };
    let _ = (shared.insert(&sample.members[0]), shared.remove(&sample.members[0]));
    let _ = (shared.fill(), shared.rate(), shared.estimated_items(), shared.occupied());
    let mut filter = shared.into_exclusive();
    let _ = filter.merge(&sample.filter);
    let _ = filter.intersect(&sample.filter);
    let _ = filter.clear();
}

/// The count of cells in use is the header's claim until somebody verifies it.
#[test]
fn removing_from_a_filter_whose_count_is_wrong_does_not_panic() {
    let bitmap = Plan::builder(Kind::Bitmap).universe(64).build().unwrap();
    for plan in [bitmap, counting_bytes(), small(Kind::Cuckoo, 0.01)] {
        let mut filter = Filter::new(plan).unwrap();
        filter.insert([7]).unwrap();
        let mut bytes = write(&filter);
        put_u64(&mut bytes, 80, 0); // nothing is in, says the header
        seal(&mut bytes);
        let mut damaged = Way::OpenMut.take(&bytes).unwrap().unwrap();
        assert!(damaged.contains([7]), "{}", plan.kind());
        assert!(damaged.remove([7]).unwrap(), "{}", plan.kind());
        assert_eq!(damaged.occupied(), 0, "{}", plan.kind());
        let shared = Way::OpenMut.take(&bytes).unwrap().unwrap().into_shared().unwrap();
        assert!(shared.remove([7]).unwrap(), "{}", plan.kind());
        let _ = (shared.fill(), shared.rate(), shared.estimated_items());
    }
}

// ----------------------------------------------------------------------------------------- strangers

#[test]
fn foreign_files_are_told_apart_by_their_start() {
    let remedy = "check the path";
    let foreign: [(&str, &[u8], &str); 10] = [
        ("nothing", b"", "(it is empty)"),
        ("gzip", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", "\\x1f\\x8b"),
        ("PNG", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", r#""\x89PNG\r\n\x1a\n""#),
        ("text", b"https://example.org/\n", r#""https://""#),
        ("JSON", b"{\"m\":96,\"k\":7}", r#""{\"m\":96,""#),
        ("zeros", &[0; 4096], r#""\x00\x00\x00\x00\x00\x00\x00\x00""#),
        // The first bytes of what Guava 31.1, RedisBloom (SCANDUMP), DCSO's bloom 0.2.4 and
        // bits-and-blooms/bloom 3.7.1 wrote. As a whole they would be opened.
        (
            "Guava",
            b"\x01\x05\x00\x00\x00\x02\xa5\x1a\x48\x91\x8a\xac\x86\x65\x90\x02\x10\x4a\x10\xd0\x20",
            r#""\x01\x05\x00\x00\x00\x02\xa5\x1a""#,
        ),
        (
            "RedisBloom header",
            b"\x0a\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x05\x00\x00\x00\x02\x00\x00\x00",
            r#""\n\x00\x00\x00\x00\x00\x00\x00""#,
        ),
        (
            "DCSO",
            b"\x01\x00\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x7b\x14\xae\x47",
            r#""\x01\x00\x00\x00\x00\x00\x00\x00""#,
        ),
        (
            "bits-and-blooms",
            b"\x00\x00\x00\x00\x00\x00\x00\x60\x00\x00\x00\x00\x00\x00\x00\x07",
            r#""\x00\x00\x00\x00\x00\x00\x00`""#,
        ),
    ];
    for (name, bytes, got) in foreign {
        assert_refused(bytes, &["not an inbloom file (", got, remedy], name);
    }
    // That of a DUMP payload ends in what could be its checksum: it is told by that.
    assert_refused(b"\x07\x81\x30\x16\xe5\xa2\x89\xbe\xf8\x04", &[], "Redis dump");
}

/// The magic is chosen so that this shows in the first eight bytes.
#[test]
fn a_file_that_was_taken_for_text_is_refused() {
    let whole = victim();
    let crlf_to_lf = String::from_utf8_lossy(&whole[..8]).replace("\r\n", "\n").into_bytes();
    let seven_bits: Vec<u8> = whole.iter().map(|byte| byte & 0x7f).collect();
    let utf8 = String::from_utf8_lossy(&whole).into_owned().into_bytes();
    for bytes in [crlf_to_lf, seven_bits, utf8] {
        assert_refused(&bytes, &["not an inbloom file"], "as text");
    }
}

#[test]
fn a_newer_version_is_named_before_anything_else_is_judged() {
    for version in [2, 3, u16::MAX] {
        // A newer version may have moved everything behind the version, the checksum included.
        let mut bytes = victim();
        bytes[10..].fill(0xab);
        put(&mut bytes, 8, version.to_le_bytes());
        for way in Way::ALL {
            let error = way.take(&bytes).unwrap_err();
            assert!(
                matches!(error, Error::NewerVersion { got, supported: 1 } if got == version),
                "{way:?}: {error:?}"
            );
            assert_eq!(
                error.to_string(),
                format!(
                    "file version {version}, this inbloom reads up to version 1; upgrade inbloom, \
                     or write the file again with an older one"
                )
            );
        }
    }
}

// -------------------------------------------------------------------------------------------- liars

const DAMAGED: &str = "the file is damaged or cut short; restore it from a copy, or build it again";
const NEWER: &str = "a newer inbloom wrote the file; upgrade inbloom";

const OTHER_FIELDS: &str = "kind: expected one that has the other fields";

/// A change to a victim whose header checksum is made right again, and what the refusal must say.
type Lie = (&'static str, fn(&mut Vec<u8>), [&'static str; 3]);

#[test]
fn a_header_with_a_right_checksum_and_a_wrong_field_is_refused() {
    let lies: &[Lie] = &[
        ("version 0", |b| put(b, 8, [0, 0]), ["version: ", "expected 1, got 0", DAMAGED]),
        ("kind 0", |b| put(b, 10, [0, 0]), ["kind: ", "got 0", NEWER]),
        ("kind 9", |b| put(b, 10, [9, 0]), ["kind: ", "8 (ribbon), got 9", NEWER]),
        ("kind 65535", |b| put(b, 10, [255, 255]), ["kind: ", "got 65535", NEWER]),
        (
            "no sections",
            |b| put(b, 12, [0; 4]),
            ["number of sections: expected 1 to 1024", "got 0", DAMAGED],
        ),
        (
            "too many sections",
            |b| put(b, 12, 1025u32.to_le_bytes()),
            ["number of sections: ", "got 1025", DAMAGED],
        ),
        (
            "very many sections",
            |b| put(b, 12, [255; 4]),
            ["number of sections: ", "got 4294967295", DAMAGED],
        ),
        (
            "1000 sections in 256 bytes",
            |b| put(b, 12, 1000u32.to_le_bytes()),
            ["header: expected 32128 bytes", "got 256 bytes", DAMAGED],
        ),
        ("length 0", |b| put_u64(b, 16, 0), ["length of the file: expected 256", "got 0", DAMAGED]),
        ("length 2^63", |b| put_u64(b, 16, 1 << 63), ["length of the file: ", "got 922", DAMAGED]),
        ("rate NaN", |b| put_u64(b, 32, f64::NAN.to_bits()), ["rate: ", "got NaN", DAMAGED]),
        ("rate -1", |b| put_u64(b, 32, (-1f64).to_bits()), ["rate: ", "got -1", DAMAGED]),
        ("rate 1.5", |b| put_u64(b, 32, 1.5f64.to_bits()), ["rate: ", "got 1.5", DAMAGED]),
        (
            "rate infinite",
            |b| put_u64(b, 32, f64::INFINITY.to_bits()),
            ["rate: ", "got inf", DAMAGED],
        ),
        ("no bits", |b| put_u64(b, 40, 0), ["bits: ", "got 0", DAMAGED]),
        ("bits 513", |b| put_u64(b, 40, 513), ["bits: ", "a multiple of 512", DAMAGED]),
        (
            "bits 1024",
            |b| put_u64(b, 40, 1024),
            ["length of the payload: expected 128", "got 64", DAMAGED],
        ),
        ("bits 2^56", |b| put_u64(b, 40, 1 << 56), ["length of the payload: ", "got 64", DAMAGED]),
        (
            "bits 2^63",
            |b| put_u64(b, 40, 1 << 63),
            ["bits: expected at least 1 and at most 2^56", "got 9223372036854775808", DAMAGED],
        ),
        (
            "bits 2^64 - 512",
            |b| put_u64(b, 40, u64::MAX - 511),
            ["bits: ", "got 18446744073709551104", DAMAGED],
        ),
        ("no probes", |b| put(b, 48, [0; 4]), ["probes: ", "got 0", DAMAGED]),
        ("probes 7", |b| put(b, 48, [7, 0, 0, 0]), ["probes: ", "got 7", DAMAGED]),
        ("probes 20", |b| put(b, 48, [20, 0, 0, 0]), ["probes: ", "got 20", DAMAGED]),
        ("probes 2^32 - 4", |b| put(b, 48, [252, 255, 255, 255]), ["probes: ", "got 42", DAMAGED]),
        ("no lines", |b| put(b, 52, [0, 0]), ["lines: expected 1 or 2", "got 0", DAMAGED]),
        ("lines 3", |b| put(b, 52, [3, 0]), ["lines: expected 1 or 2", "got 3", DAMAGED]),
        ("lines 65535", |b| put(b, 52, [255, 255]), ["lines: ", "got 65535", DAMAGED]),
        (
            "two lines in one block",
            |b| put(b, 52, [2, 0]),
            ["bits: expected two blocks or more", "got 512", DAMAGED],
        ),
        (
            "roaring, but blocked",
            |b| put(b, 54, [1, 0]),
            ["layout: expected 0 in a filter of kind blocked", "got 1", NEWER],
        ),
        ("layout 2", |b| put(b, 54, [2, 0]), ["layout: ", "got 2", NEWER]),
        ("no hash", |b| put(b, 56, [0, 0]), ["hash: expected 1 (xxh3)", "got 0", NEWER]),
        ("integers, but blocked", |b| put(b, 56, [3, 0]), ["hash: ", "got 3", NEWER]),
        ("hash 4", |b| put(b, 56, [4, 0]), ["hash: ", "got 4", NEWER]),
        ("a width", |b| b[58] = 4, [OTHER_FIELDS, "got blocked", DAMAGED]),
        ("a width of 256", |b| b[59] = 1, [OTHER_FIELDS, "got blocked", DAMAGED]),
        ("generations", |b| b[60] = 1, [OTHER_FIELDS, "got blocked", DAMAGED]),
        ("generations of 256", |b| b[61] = 1, [OTHER_FIELDS, "got blocked", DAMAGED]),
        ("growth", |b| b[62] = 2, [OTHER_FIELDS, "got blocked", DAMAGED]),
        (
            "an unknown unit",
            |b| b[63] = 3,
            ["unit of the window: expected 1 (milliseconds) or 2 (items)", "got 3", NEWER],
        ),
        ("a window without a unit", |b| b[96] = 1, ["unit of the window: ", "got 0", NEWER]),
        (
            "a window of time",
            |b| {
                b[63] = 1;
                b[96] = 100;
            },
            [OTHER_FIELDS, "got blocked", DAMAGED],
        ),
        ("a window of no keys", |b| b[63] = 2, [OTHER_FIELDS, "got blocked", DAMAGED]),
        (
            "tightening",
            |b| put_u64(b, 104, 0.5f64.to_bits()),
            [OTHER_FIELDS, "got blocked", DAMAGED],
        ),
        (
            "tightening NaN",
            |b| put_u64(b, 104, f64::NAN.to_bits()),
            [OTHER_FIELDS, "got blocked", DAMAGED],
        ),
        (
            "a shard of none",
            |b| put(b, 112, [1, 0, 0, 0]),
            ["number of shards: expected 0, or 2 and more", "got 0", DAMAGED],
        ),
        (
            "one shard",
            |b| put(b, 116, [1, 0, 0, 0]),
            ["number of shards: expected 0, or 2 and more", "got 1", DAMAGED],
        ),
        (
            "shard 2 of 0 and 1",
            |b| {
                put(b, 112, [2, 0, 0, 0]);
                put(b, 116, [2, 0, 0, 0]);
            },
            ["shard: expected below the number of shards", "got 2", DAMAGED],
        ),
        (
            "shard 2^32 - 1",
            |b| put(b, 112, [255; 8]),
            ["shards: expected at most 2^20", "got 4294967295", DAMAGED],
        ),
        (
            "reserved byte of a section",
            |b| b[132] = 1,
            ["reserved bytes: ", "expected zeros", NEWER],
        ),
        (
            "more inserts than there can have been",
            |b| put_u64(b, 72, u64::MAX),
            ["number of inserted keys: ", "got 18446744073709551615", DAMAGED],
        ),
        (
            "more ones than bits that keys can set",
            |b| put_u64(b, 80, 512),
            ["number of set bits: expected at most 511", "got 512", DAMAGED],
        ),
        (
            "ones 2^64 - 1",
            |b| put_u64(b, 80, u64::MAX),
            ["number of set bits: ", "got 184", DAMAGED],
        ),
        (
            "auto-clear NaN",
            |b| put_u64(b, 88, f64::NAN.to_bits()),
            ["auto-clear: expected a share", "got NaN", DAMAGED],
        ),
        (
            "auto-clear 1",
            |b| put_u64(b, 88, 1f64.to_bits()),
            ["auto-clear: expected a share", "got 1", DAMAGED],
        ),
        (
            "auto-clear below 0",
            |b| put_u64(b, 88, (-0.5f64).to_bits()),
            ["auto-clear: ", "got -0.5", DAMAGED],
        ),
        (
            "an unknown section that is needed",
            |b| put(b, 128, *b"LAYR"),
            ["section: expected BITS, KEYS, note or norm", "got LAYR", NEWER],
        ),
        (
            "no payload",
            |b| put(b, 128, *b"bits"),
            ["section: expected one section BITS", "got none", DAMAGED],
        ),
        (
            "a section in the header",
            |b| put_u64(b, 136, 128),
            ["place of a section: expected an offset from 160 on", "got 128", DAMAGED],
        ),
        (
            "a section far behind the header",
            |b| put_u64(b, 136, 160 + 4096),
            ["place of a section: ", "got 4256", DAMAGED],
        ),
        (
            "a section at 2^63",
            |b| put_u64(b, 136, 1 << 63),
            ["place of a section: ", "got 9", DAMAGED],
        ),
        (
            "a section that ends behind 2^64",
            |b| put_u64(b, 144, u64::MAX - 63),
            ["place of a section: ", "got 192", DAMAGED],
        ),
        (
            "a payload of 2^63 bytes",
            |b| put_u64(b, 144, 1 << 63),
            ["length of the payload: expected 64", "got 9223372036854775808", DAMAGED],
        ),
        (
            "a payload that is short of a word",
            |b| put_u64(b, 144, 56),
            ["length of the payload: expected 64", "got 56", DAMAGED],
        ),
        (
            "a payload that ends before the file does",
            |b| put_u64(b, 136, 184),
            ["length of the file: expected 248", "got 256", DAMAGED],
        ),
    ];
    for (name, lie, parts) in lies {
        let mut bytes = victim();
        lie(&mut bytes);
        seal(&mut bytes);
        assert_refused(&bytes, parts, name);
    }
}

/// Refuses all of these, told of a file of this plan that holds "alice".
fn assert_lies_are_refused(plan: Plan, lies: &[Lie]) {
    let mut filter = Filter::new(plan).unwrap();
    filter.insert("alice").unwrap();
    let whole = write(&filter);
    for (name, lie, parts) in lies {
        let mut bytes = whole.clone();
        lie(&mut bytes);
        seal_all(&mut bytes);
        assert_refused(&bytes, parts, &format!("{}, {name}", plan.kind()));
    }
}

#[test]
fn hostile_fields_of_counting_are_refused() {
    assert_lies_are_refused(
        Plan::exact(Kind::Counting, 512, 4).unwrap(),
        &[
            (
                "no width",
                |b| put(b, 58, [0, 0]),
                ["width: expected 2, 3, 4 or 8", "got 1", DAMAGED],
            ),
            ("width 5", |b| put(b, 58, [5, 0]), ["width: expected 2, 3, 4 or 8", "got 5", DAMAGED]),
            ("width 16", |b| put(b, 58, [16, 0]), ["width: ", "got 16", DAMAGED]),
            ("width 65535", |b| put(b, 58, [255; 2]), ["width: ", "got 65535", DAMAGED]),
            ("no probes", |b| put(b, 48, [0; 4]), ["probes: ", "got 0", DAMAGED]),
            (
                "more counters in use than there are",
                |b| put_u64(b, 80, 169),
                ["number of set bits: expected at most 168", "got 169", DAMAGED],
            ),
            ("generations", |b| b[60] = 1, [OTHER_FIELDS, "got counting", DAMAGED]),
            ("growth", |b| b[62] = 2, [OTHER_FIELDS, "got counting", DAMAGED]),
        ],
    );
}

#[test]
fn hostile_fields_of_cuckoo_are_refused() {
    let plan = small(Kind::Cuckoo, 0.01);
    assert_eq!((plan.width(), plan.bits() % 36), (9, 0));
    assert_lies_are_refused(
        plan,
        &[
            ("no width", |b| put(b, 58, [0, 0]), ["width: expected 2 to 56", "got 1", DAMAGED]),
            ("width 57", |b| put(b, 58, [57, 0]), ["width: expected 2 to 56", "got 57", DAMAGED]),
            ("width 65535", |b| put(b, 58, [255; 2]), ["width: ", "got 65535", DAMAGED]),
            ("width 11", |b| put(b, 58, [11, 0]), ["bits: expected whole buckets", "", DAMAGED]),
            ("no bits", |b| put_u64(b, 40, 0), ["bits: expected whole buckets", "got 0", DAMAGED]),
            ("41 bits", |b| put_u64(b, 40, 41), ["bits: expected whole", "got 41", DAMAGED]),
            (
                "one bucket too many",
                |b| {
                    let bits = get_u64(b, 40) + 72;
                    put_u64(b, 40, bits);
                },
                ["length of the payload: ", "got ", DAMAGED],
            ),
            (
                "2^55 bits",
                |b| put_u64(b, 40, (1 << 55) / 36 * 36),
                ["length of the payload: ", "got ", DAMAGED],
            ),
            ("2^64 bits", |b| put_u64(b, 40, u64::MAX / 36 * 36), ["bits: ", "got 184", DAMAGED]),
            // These divide the room of an insert into a filter that clears itself.
            ("no probes", |b| put(b, 48, [0; 4]), [OTHER_FIELDS, "got cuckoo", DAMAGED]),
            ("two lines", |b| put(b, 52, [2, 0]), [OTHER_FIELDS, "got cuckoo", DAMAGED]),
            ("a window", |b| b[63] = 2, [OTHER_FIELDS, "got cuckoo", DAMAGED]),
            (
                "more entries than slots",
                |b| {
                    let slots = get_u64(b, 40) / 9;
                    put_u64(b, 80, slots + 1);
                },
                ["number of set bits: expected at most", "", DAMAGED],
            ),
        ],
    );
}

/// Without a payload: the header alone is refused.
#[test]
fn hostile_fields_of_scalable_are_refused() {
    let honest = |bytes: &mut Vec<u8>| {
        put(bytes, 10, [6, 0]);
        put(bytes, 48, [1, 0, 0, 0]);
        put(bytes, 54, [1, 0]);
        put_u64(bytes, 32, 0.01f64.to_bits());
        bytes[62] = 2;
        put_u64(bytes, 104, 0.9f64.to_bits());
    };
    let lies: &[Lie] = &[
        ("growth 1", |b| b[62] = 1, ["growth: expected 2, 4 or 8, or 0", "got 1", DAMAGED]),
        ("growth 255", |b| b[62] = 255, ["growth: ", "got 255", DAMAGED]),
        (
            "tightening NaN",
            |b| put_u64(b, 104, f64::NAN.to_bits()),
            ["tightening: expected 0.5 to 0.99", "got NaN", DAMAGED],
        ),
        ("tightening 0", |b| put_u64(b, 104, 0), ["tightening: ", "got 0", DAMAGED]),
        ("tightening 1", |b| put_u64(b, 104, 1f64.to_bits()), ["tightening: ", "got 1", DAMAGED]),
        ("no items", |b| put_u64(b, 24, 0), ["items: expected 1 to 10^15", "got 0", DAMAGED]),
        ("2^64 items", |b| put_u64(b, 24, u64::MAX), ["items: ", "got 184", DAMAGED]),
        ("rate 0", |b| put_u64(b, 32, 0), ["rate: ", "got 0", DAMAGED]),
        ("rate 1", |b| put_u64(b, 32, 1f64.to_bits()), ["rate: ", "got 1", DAMAGED]),
        ("rate NaN", |b| put_u64(b, 32, f64::NAN.to_bits()), ["rate: ", "got NaN", DAMAGED]),
        ("no probes", |b| put(b, 48, [0; 4]), [OTHER_FIELDS, "got scalable", DAMAGED]),
        ("a width", |b| b[58] = 4, [OTHER_FIELDS, "got scalable", DAMAGED]),
        ("generations", |b| b[60] = 1, [OTHER_FIELDS, "got scalable", DAMAGED]),
        (
            "the layout of before",
            |b| put(b, 54, [0, 0]),
            [
                "layout: expected 1 in a filter of kind scalable",
                "got 0",
                "build the filter again from its keys",
            ],
        ),
        ("layout 2", |b| put(b, 54, [2, 0]), ["layout: ", "got 2", NEWER]),
    ];
    for (name, lie, parts) in lies {
        let mut bytes = victim();
        honest(&mut bytes);
        lie(&mut bytes);
        seal(&mut bytes);
        assert_refused(&bytes, parts, &format!("scalable, {name}"));
    }
}

/// Of the directory behind the header: fields of its one table.
#[test]
fn hostile_tables_of_scalable_are_refused() {
    fn table(bytes: &mut [u8]) -> &mut [u8] {
        let payload = get_u64(bytes, 128 + 8) as usize;
        &mut bytes[payload + 16..]
    }
    const SHAPE: &str = "shape of a table: expected a shape of this layout";
    assert_lies_are_refused(
        Plan::builder(Kind::Scalable).items(10).build().unwrap(),
        &[
            (
                "more buckets than an undivided one has",
                |b| put_u64(table(b), 8, (1 << 14) + 1),
                [SHAPE, "16385 buckets", DAMAGED],
            ),
            (
                "as many as it can have",
                |b| put_u64(table(b), 8, 1 << 14),
                ["cells of a table: expected 16384 buckets", "", DAMAGED],
            ),
            ("no buckets", |b| put_u64(table(b), 8, 0), [SHAPE, "0 buckets", DAMAGED]),
            ("narrow lanes", |b| put(table(b), 0, [16]), [SHAPE, "got 16 bits", DAMAGED]),
            ("13 planes", |b| put(table(b), 1, [13]), [SHAPE, "13 planes", DAMAGED]),
            (
                "more entries than slots",
                |b| put_u64(table(b), 16, 1 << 20),
                ["entries of a table: expected at most", "got 1048576", DAMAGED],
            ),
        ],
    );
}

#[test]
fn hostile_fields_of_a_window_are_refused() {
    assert_lies_are_refused(
        window_of_keys(),
        &[
            ("no generations", |b| b[60] = 0, ["generations: expected 1 to 64", "got 0", DAMAGED]),
            ("65 generations", |b| b[60] = 65, ["generations: ", "got 65", DAMAGED]),
            ("65535", |b| put(b, 60, [255; 2]), ["generations: ", "got 65535", DAMAGED]),
            ("no unit", |b| b[63] = 0, ["unit of the window: ", "got 0", NEWER]),
            ("unit 3", |b| b[63] = 3, ["unit of the window: ", "got 3", NEWER]),
            (
                "a window of nothing",
                |b| put_u64(b, 96, 0),
                ["window: expected at least as long", "got 0", DAMAGED],
            ),
            (
                "neither window nor unit",
                |b| {
                    put_u64(b, 96, 0);
                    b[63] = 0;
                },
                ["window: expected at least as long", "got 0", DAMAGED],
            ),
            ("a window of 1", |b| put_u64(b, 96, 1), ["window: ", "got 1", DAMAGED]),
            ("a width", |b| b[58] = 4, [OTHER_FIELDS, "got window", DAMAGED]),
            ("growth", |b| b[62] = 2, [OTHER_FIELDS, "got window", DAMAGED]),
            (
                "tightening NaN",
                |b| put_u64(b, 104, f64::NAN.to_bits()),
                [OTHER_FIELDS, "got window", DAMAGED],
            ),
            ("3 probes", |b| put(b, 48, [3, 0, 0, 0]), ["probes: ", "got 3", DAMAGED]),
            (
                "generations of 2^56 bits",
                |b| put_u64(b, 40, 1 << 56),
                ["length of the payload: expected 9007199254741056", "got 128", DAMAGED],
            ),
            (
                "more bits set than there are",
                |b| put_u64(b, 80, 3 * 511 + 1),
                ["number of set bits: expected 1534", "got 4", DAMAGED],
            ),
        ],
    );
}

/// The directory of a window starts its payload, at 192: the clock, the number of generations, and
/// for each when it began, its keys and its set bits.
#[test]
fn a_windows_directory_that_lies_is_refused_by_every_way() {
    let one: &[Lie] = &[
        (
            "no generations",
            |b| put_u64(b, 200, 0),
            ["number of generations: expected 1 to 3", "got 0", DAMAGED],
        ),
        ("four", |b| put_u64(b, 200, 4), ["number of generations: ", "got 4", DAMAGED]),
        ("2^64 - 1", |b| put_u64(b, 200, u64::MAX), ["number of generations: ", "184", DAMAGED]),
        (
            "two",
            |b| put_u64(b, 200, 2),
            ["length of the payload: expected 192", "got 128", DAMAGED],
        ),
        ("padding", |b| b[255] = 1, ["padding: expected zeros", "got ", DAMAGED]),
        (
            "more bits set than there are",
            |b| put_u64(b, 224, 512),
            ["number of set bits: expected at most 511", "got 512", DAMAGED],
        ),
        (
            "2^64 - 1 bits set",
            |b| put_u64(b, 224, u64::MAX),
            ["number of set bits: expected at most 511", "got 184", DAMAGED],
        ),
        (
            "other than the header says",
            |b| put_u64(b, 224, 1),
            ["number of set bits: expected ", "got 1", DAMAGED],
        ),
        (
            "a generation after the clock",
            |b| {
                put_u64(b, 192, 99);
                put_u64(b, 208, 100);
            },
            ["start of a generation: expected in order", "got 100", DAMAGED],
        ),
        (
            "a payload of one word",
            |b| {
                b.truncate(200);
                put_u64(b, 16, 200);
                put_u64(b, 144, 8);
            },
            ["directory of the window: ", "got the end of the payload", DAMAGED],
        ),
        (
            "no payload",
            |b| {
                b.truncate(192);
                put_u64(b, 16, 192);
                put_u64(b, 144, 0);
            },
            ["directory of the window: ", "got the end of the payload", DAMAGED],
        ),
        (
            "a payload that ends in the directory",
            |b| {
                b.truncate(208);
                put_u64(b, 16, 208);
                put_u64(b, 144, 16);
            },
            ["length of the payload: expected 128", "got 16", DAMAGED],
        ),
    ];
    assert_lies_are_refused(window_of_keys(), one);

    let mut filter = Filter::new(window_of_time()).unwrap();
    for now in [1000, 1500, 2000] {
        filter.advance(now).unwrap();
        filter.insert(now.to_le_bytes()).unwrap();
    }
    let whole = write(&filter);
    assert_eq!((get_u64(&whole, 192), get_u64(&whole, 200)), (2000, 3));
    assert_eq!([208, 232, 256].map(|at| get_u64(&whole, at)), [1000, 1500, 2000]);
    let three: &[Lie] = &[
        (
            "out of order",
            |b| put_u64(b, 232, 999),
            ["start of a generation: expected in order", "got 999", DAMAGED],
        ),
        ("after the clock", |b| put_u64(b, 256, 2001), ["start of a", "got 2001", DAMAGED]),
        ("before all of them", |b| put_u64(b, 192, 999), ["start of a", "got 1000", DAMAGED]),
        ("the end of time", |b| put_u64(b, 208, u64::MAX), ["start of a", "got 184", DAMAGED]),
        ("one less", |b| put_u64(b, 200, 2), ["length of the payload: ", "got ", DAMAGED]),
    ];
    for (name, lie, parts) in three {
        let mut bytes = whole.clone();
        lie(&mut bytes);
        seal_all(&mut bytes);
        assert_refused(&bytes, parts, name);
    }
    // A count that is one too high in a generation and one too low in another: whoever looks finds
    // it.
    let mut bytes = whole.clone();
    let (first, second) = (get_u64(&bytes, 224), get_u64(&bytes, 248));
    put_u64(&mut bytes, 224, first + 1);
    put_u64(&mut bytes, 248, second - 1);
    seal_all(&mut bytes);
    for way in Way::ALL {
        assert_eq!(way.take(&bytes).is_err(), way.looks_at_all(), "{way:?}");
    }
}

/// What a directory says of its keys and its clock is believed, and does no harm.
#[test]
fn a_window_of_any_clock_and_any_number_of_keys_goes_on() {
    for plan in [window_of_keys(), window_of_time()] {
        let mut filter = Filter::new(plan).unwrap();
        filter.insert("alice").unwrap();
        let whole = write(&filter);
        for clock in [0, 1, u64::MAX - 1, u64::MAX] {
            for items in [0, 1 << 63, u64::MAX] {
                let mut bytes = whole.clone();
                put_u64(&mut bytes, 192, clock);
                put_u64(&mut bytes, 216, items);
                seal_all(&mut bytes);
                let mut filter = Filter::read_from(&bytes[..]).unwrap();
                assert!(filter.contains("alice"));
                for now in [5, 10_000, u64::MAX] {
                    filter.insert(now.to_le_bytes()).unwrap();
                    filter.advance(now).unwrap();
                    let _ = (filter.details(), filter.rate(), filter.estimated_items());
                    filter.merge(&Filter::read_from(&bytes[..]).unwrap()).unwrap();
                    filter.merge(&filter.clone()).unwrap();
                }
                assert!(Filter::read_from(&write(&filter)[..]).unwrap() == filter);
            }
        }
    }
}

#[test]
fn shards_of_another_number_do_not_merge() {
    let shard = |number: u32, of: u32| {
        let mut bytes = victim();
        put(&mut bytes, 112, number.to_le_bytes());
        put(&mut bytes, 116, of.to_le_bytes());
        seal(&mut bytes);
        let filter = Filter::read_from(&bytes[..]).unwrap();
        assert_eq!(filter.plan().shard(), (of > 1).then_some((number, of)));
        assert_eq!(write(&filter), bytes);
        filter
    };
    let text = |mut here: Filter, there: Filter| here.merge(&there).unwrap_err().to_string();
    let start = "the filters differ in shard: ";
    assert!(
        text(shard(0, 2), shard(1, 2)).starts_with(&format!("{start}0 of 2 here, 1 of 2 there"))
    );
    assert!(
        text(shard(1, 2), shard(1, 4)).starts_with(&format!("{start}1 of 2 here, 1 of 4 there"))
    );
    assert!(
        text(shard(0, 0), shard(0, 2)).starts_with(&format!("{start}0 of 1 here, 0 of 2 there"))
    );
    shard(1, 4).merge(&shard(1, 4)).unwrap();
}

/// A count that starts at the largest that a file can claim goes on, and is written as that again.
#[test]
fn a_count_of_inserts_never_overflows_nor_makes_a_file_unreadable() {
    let mut bytes = victim();
    put_u64(&mut bytes, 72, 1 << 63);
    seal(&mut bytes);
    let mut filter = Filter::read_from(&bytes[..]).unwrap();
    assert!(filter.insert("bob").unwrap());
    assert_eq!(filter.inserted(), (1 << 63) + 1);
    let again = Filter::read_from(&write(&filter)[..]).unwrap();
    assert_eq!(again.inserted(), 1 << 63);
    filter.merge(&again).unwrap();
    assert!(again.contains("bob"));
}

/// Items and rate say what was intended: a filter is the same filter whatever they are.
#[test]
fn what_was_intended_has_no_bearing_on_what_is_read() {
    for items in [0, 1, 1 << 40, u64::MAX] {
        for rate in [0.0, f64::MIN_POSITIVE, 0.5, 1.0] {
            let mut bytes = victim();
            put_u64(&mut bytes, 24, items);
            put_u64(&mut bytes, 32, f64::to_bits(rate));
            seal(&mut bytes);
            for way in Way::ALL {
                let Some(mut filter) = way.take(&bytes).unwrap() else { continue };
                assert!(filter.contains("alice") && !filter.contains("bob"));
                let _ = (filter.rate(), filter.estimated_items(), filter.plan().bits_per_key());
                assert_eq!(filter.insert("bob").is_ok(), way != Way::Open);
            }
        }
        let mut bytes = victim_sparse();
        put_u64(&mut bytes, 24, items);
        seal(&mut bytes);
        let filter = Filter::view(&bytes).unwrap();
        assert!(filter.contains(9u64.to_le_bytes()) && filter.plan().bits_per_key() >= 0.0);
    }
}

/// One block is as good a classic filter; but the payload then says less than its count of bits.
#[test]
fn another_kind_over_the_same_bits_is_another_filter_and_no_more() {
    let mut bytes = victim();
    put(&mut bytes, 10, [2, 0]);
    seal(&mut bytes);
    for way in Way::ALL {
        if let Some(filter) = way.take(&bytes).unwrap() {
            assert_eq!(filter.plan().kind(), Kind::Classic);
            assert_eq!(filter.occupied(), 8);
        }
    }
}

#[test]
fn sections_that_overlap_repeat_or_lie_out_of_order_are_refused() {
    let lies: &[Lie] = &[
        (
            "two notes",
            |b| put(b, 160, *b"note"),
            ["section: expected one section note", "got several", DAMAGED],
        ),
        (
            "the note in the payload",
            |b| put_u64(b, 136, 256),
            ["place of a section: expected an offset from 257 on", "got 256", DAMAGED],
        ),
        (
            "a note that runs into the payload",
            |b| put_u64(b, 144, 65),
            ["place of a section: expected an offset from 257 on", "got 256", DAMAGED],
        ),
        (
            "a note that is too long",
            |b| put_u64(b, 144, 65_537),
            ["length of a text: expected at most 65536 bytes", "got 65537", DAMAGED],
        ),
    ];
    for (name, lie, parts) in lies {
        let mut bytes = victim_with_note();
        lie(&mut bytes);
        seal(&mut bytes);
        assert_refused(&bytes, parts, name);
    }
}

#[test]
fn a_second_payload_is_refused_even_if_it_lies_apart() {
    let mut bytes = victim();
    bytes.splice(160..160, [0; 32]); // the table grows into the padding
    bytes.drain(192..224);
    bytes.extend_from_within(192..256);
    put(&mut bytes, 12, [2, 0, 0, 0]);
    put_u64(&mut bytes, 16, 320);
    bytes.copy_within(128..160, 160);
    put_u64(&mut bytes, 160 + 8, 256);
    seal(&mut bytes);
    assert_refused(&bytes, &["section: expected one section BITS, got several"], "two");
}

#[test]
fn a_second_note_is_refused_even_if_it_lies_apart() {
    let mut filter = Filter::view(&victim_with_note()).unwrap().clone();
    filter.set_normalization("lower case").unwrap();
    let mut bytes = write(&filter);
    assert_eq!(&bytes[160..164], b"norm");
    put(&mut bytes, 160, *b"note");
    seal(&mut bytes);
    assert_refused(&bytes, &["section: expected one section note, got several"], "two");
}

#[test]
fn a_text_that_is_no_utf8_is_refused() {
    let mut bytes = victim_with_note();
    bytes[192] = 0xff;
    seal_all(&mut bytes);
    assert_refused(&bytes, &["text: expected UTF-8, got other bytes (", DAMAGED], "a note of ff");
}

#[test]
fn an_unknown_section_is_skipped_if_its_tag_says_that_it_may_be() {
    let mut bytes = victim_with_note();
    put(&mut bytes, 128, *b"geoS");
    bytes[192] = 0xff;
    seal_all(&mut bytes);
    for way in Way::ALL {
        let Some(filter) = way.take(&bytes).expect("a section that can be skipped") else {
            continue;
        };
        assert!(filter.contains("alice") && filter.note().is_empty());
        let again = write(&filter);
        assert_eq!(again.len(), 256, "what was not understood is not copied");
    }
    // Whoever looks at every byte looks at these too.
    bytes[192] = 0xfe;
    for way in Way::ALL {
        match way.take(&bytes) {
            Ok(_) => assert!(!way.looks_at_all(), "{way:?}"),
            Err(error) => {
                assert!(way.looks_at_all(), "{way:?}: {error}");
                let text = text_of(&error, "a skipped section");
                assert!(text.starts_with("checksum of a section: expected "), "{text}");
            }
        }
    }
}

/// Writers align the payload and put it last. Readers do not depend on it.
#[test]
fn a_payload_in_an_odd_place_before_a_text_is_read_all_the_same() {
    let old = victim_with_note();
    let mut bytes = old[..192].to_vec();
    bytes[128..192].rotate_left(32); // BITS, then note
    bytes.extend([0; 9]);
    bytes.extend(&old[256..320]);
    bytes.push(b'n');
    put_u64(&mut bytes, 16, 266);
    put_u64(&mut bytes, 136, 201);
    put_u64(&mut bytes, 168, 265);
    seal_all(&mut bytes);
    for way in Way::ALL {
        let Some(mut filter) = way.take(&bytes).unwrap() else { continue };
        assert!(filter.contains("alice") && !filter.contains("bob") && filter.note() == "n");
        if way != Way::Open {
            assert!(filter.insert("bob").unwrap() && filter.contains("bob"));
        }
        let shared = filter.into_shared().unwrap();
        assert!(shared.insert("carol").unwrap() && shared.contains("alice"));
    }
}

#[test]
fn many_empty_sections_cost_no_more_than_their_table() {
    let mut bytes = victim();
    let table: Vec<u8> = (0..1000u64)
        .flat_map(|_| {
            let mut entry = [0; 32];
            put(&mut entry, 0, *b"null");
            put_u64(&mut entry, 8, 128 + 32 * 1001);
            put_u64(&mut entry, 24, xxh3_64(b""));
            entry
        })
        .collect();
    let payload = bytes.split_off(192);
    bytes.truncate(128);
    let mut bits = [0; 32];
    put(&mut bits, 0, *b"BITS");
    put_u64(&mut bits, 8, 128 + 32 * 1001);
    put_u64(&mut bits, 16, 64);
    bytes.extend([&table[..], &bits, &payload].concat());
    put(&mut bytes, 12, 1001u32.to_le_bytes());
    let length = bytes.len() as u64;
    put_u64(&mut bytes, 16, length);
    seal_all(&mut bytes);
    for way in Way::ALL {
        let filter = way.take(&bytes).expect("1000 sections that can be skipped");
        assert!(filter.is_none_or(|filter| filter.contains("alice")));
    }
}

/// Bits that no key sets are zero in a file, or counts and walks would go wrong later on.
#[test]
fn bits_that_no_key_can_set_are_refused_by_whoever_looks() {
    let classic = Plan::exact(Kind::Classic, 100, 3).unwrap();
    let dense = Plan::builder(Kind::Bitmap).universe(100).build().unwrap();
    let block = Plan::exact(Kind::Blocked, 1024, 4).unwrap();
    // Behind the last slot, and in the first generation, behind the directory.
    let (cuckoo, window) = (small(Kind::Cuckoo, 0.01), window_of_keys());
    let behind = cuckoo.bits() as usize;
    let thirds = Plan::builder(Kind::Counting).items(10).bytes(128).width(3).build().unwrap();
    for (plan, position) in [
        (classic, 100),
        (classic, 127),
        (dense, 100),
        (block, 511),
        (block, 1023),
        (thirds, 63),
        (thirds, 1023),
        (cuckoo, behind),
        (cuckoo, cuckoo.bytes() as usize * 8 - 1),
        (window, 512 + 511),
    ] {
        let filter = Filter::new(plan).unwrap();
        let mut bytes = write(&filter);
        if plan.kind() == Kind::Window {
            put_u64(&mut bytes, 224, 1);
        }
        bytes[192 + position / 8] |= 1 << (position % 8);
        put_u64(&mut bytes, 80, 1);
        seal_all(&mut bytes);
        for way in Way::ALL {
            let context = format!("{:?}, bit {position}, {way:?}", plan.kind());
            match way.take(&bytes) {
                Ok(_) => assert!(!way.looks_at_all(), "{context}"),
                Err(error) => {
                    assert!(way.looks_at_all(), "{context}: {error}");
                    let text = text_of(&error, &context);
                    assert!(text.starts_with("unused bits: expected zeros, got "), "{text}");
                }
            }
        }
    }
}

#[test]
fn a_wrong_count_of_set_bits_is_found_by_whoever_looks() {
    for claim in [0, 7, 9, 511] {
        let mut bytes = victim();
        put_u64(&mut bytes, 80, claim);
        seal(&mut bytes);
        for way in Way::ALL {
            match way.take(&bytes) {
                Ok(filter) => {
                    assert!(!way.looks_at_all());
                    let filter = filter.unwrap();
                    assert!(filter.contains("alice") && !filter.contains("bob"));
                }
                Err(error) => {
                    let text = text_of(&error, "ones");
                    let start = format!("number of set bits: expected {claim}, got 8; ");
                    assert!(way.looks_at_all() && text.starts_with(&start), "{text}");
                }
            }
        }
    }
}

#[test]
fn a_sparse_payload_that_lies_is_refused_by_every_way() {
    // The payload is at 192: 8 bytes, one tree; 4, its high half; then a bitmap of one array.
    let lies: &[Lie] = &[
        (
            "2^64 - 1 trees",
            |b| put_u64(b, 192, u64::MAX),
            ["payload: expected a roaring bitmap", "got ", DAMAGED],
        ),
        (
            "a value outside the universe",
            |b| put(b, 192 + 8, 256u32.to_le_bytes()),
            ["payload: expected a roaring bitmap", "a member outside the universe", DAMAGED],
        ),
        (
            "another cookie",
            |b| put(b, 192 + 12, [9; 4]),
            ["payload: expected a roaring bitmap", "unknown cookie", DAMAGED],
        ),
        (
            "65536 containers",
            |b| put(b, 192 + 16, 65_536u32.to_le_bytes()),
            ["payload: expected a roaring bitmap", "got ", DAMAGED],
        ),
        (
            "no trees, and the rest is left over",
            |b| put_u64(b, 192, 0),
            ["payload: ", "bytes after the end of the roaring bitmap", DAMAGED],
        ),
        ("two ones", |b| put_u64(b, 80, 2), ["number of set bits: expected 2", "got 1", DAMAGED]),
        (
            "a payload of half words",
            |b| {
                b.truncate(b.len() - 4);
                let (length, payload) = (b.len() as u64, get_u64(b, 144) - 4);
                put_u64(b, 16, length);
                put_u64(b, 144, payload);
            },
            ["length of the payload: expected a multiple of 8", "got ", DAMAGED],
        ),
    ];
    let whole = victim_sparse();
    assert_eq!((get_u64(&whole, 136), get_u64(&whole, 192)), (192, 1));
    for (name, lie, parts) in lies {
        let mut bytes = whole.clone();
        lie(&mut bytes);
        seal_all(&mut bytes);
        assert_refused(&bytes, parts, name);
    }
}

/// Other writers compress runs; ours does not.
#[test]
fn a_sparse_payload_with_runs_is_read() {
    let payload: [&[u8]; 8] = [
        &1u64.to_le_bytes(),      // one tree
        &2u32.to_le_bytes(),      // of high half 2
        &12_347u32.to_le_bytes(), // one container, and there are runs
        &[1],                     // it is one of them
        &[3, 0, 10, 0],           // its key is 3, it has 11 values
        &[2, 0],                  // in two runs
        &[5, 0, 9, 0],            // 5 to 14
        &[255, 255, 0, 0],        // 65535
    ];
    let mut bytes = victim_sparse();
    bytes.truncate(192);
    bytes.extend(payload.concat());
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let length = bytes.len() as u64;
    put_u64(&mut bytes, 16, length);
    put_u64(&mut bytes, 80, 11);
    put_u64(&mut bytes, 144, length - 192);
    seal_all(&mut bytes);
    for way in Way::ALL {
        let Some(mut filter) = way.take(&bytes).unwrap() else { continue };
        let base = (2 << 32) + (3 << 16);
        let expected: Vec<u64> = (5..15).chain([65_535]).map(|low| base + low).collect();
        assert_eq!(filter.as_bitmap().unwrap().iter().collect::<Vec<_>>(), expected);
        assert!(filter.contains((base + 5).to_le_bytes()) && !filter.contains([5]));
        assert!(filter.insert((base + 15).to_le_bytes()).unwrap());
        assert!(Filter::read_from(&write(&filter)[..]).unwrap() == filter);
    }
}

/// The fields of a bitmap that mean nothing are zero or one, not anything.
#[test]
fn a_bitmap_has_no_rate_probes_lines_or_seed() {
    let lies: &[Lie] = &[
        ("rate", |b| put_u64(b, 32, 0.5f64.to_bits()), ["rate: ", "got 0.5", DAMAGED]),
        ("probes", |b| put(b, 48, [2, 0, 0, 0]), ["probes: expected 1", "got 2", DAMAGED]),
        ("hash", |b| put(b, 56, [1, 0]), ["hash: ", "got 1", NEWER]),
        ("seed", |b| put_u64(b, 64, 1), ["hash seed: expected 0", "got 1", DAMAGED]),
    ];
    for (name, lie, parts) in lies {
        let mut bytes = victim_sparse();
        lie(&mut bytes);
        seal(&mut bytes);
        assert_refused(&bytes, parts, name);
    }
}

/// Every field of a ribbon's directory, which is the end of the file: an entry of 32 bytes for each shard,
/// and their number.
#[test]
fn a_ribbon_whose_directory_lies_is_refused() {
    let sample = samples().into_iter().find(|sample| sample.name == "ribbon").unwrap();
    let whole = write(&sample.filter);
    type Lie = fn(&mut [u8], usize);
    let lies: [(&str, Lie, &str); 11] = [
        ("no shards", |bytes, end| put_u64(bytes, end - 8, 0), "number of shards of the ribbon"),
        ("two shards", |bytes, end| put_u64(bytes, end - 8, 2), ""),
        ("all shards", |bytes, end| put_u64(bytes, end - 8, u64::MAX), "number of shards"),
        ("no width", |bytes, end| bytes[end - 32] = 0, "width of a shard: expected 3 or 4, got 0"),
        ("wide", |bytes, end| bytes[end - 32] += 1, "width of a shard: expected 3 or 4, got 5"),
        ("narrow", |bytes, end| bytes[end - 32] -= 1, "length of the payload"),
        ("five layers", |bytes, end| bytes[end - 31] = 5, "layers of a shard: expected 0 to 4"),
        ("a layer of nothing", |bytes, end| bytes[end - 31] = 2, "blocks of a layer: expected 1"),
        ("no layer", |bytes, end| bytes[end - 31] = 0, "blocks of a layer that is not there"),
        ("an early last layer", |bytes, end| bytes[end - 30] = 3, "number of a last layer"),
        ("more keys", |bytes, end| put_u64(bytes, end - 40, 13), "number of set bits"),
    ];
    for (name, lie, part) in lies {
        let mut bytes = whole.clone();
        lie(&mut bytes, whole.len());
        seal_all(&mut bytes);
        assert_refused(&bytes, &[part], name);
    }
    for blocks in [0, 2, u32::MAX] {
        let mut bytes = whole.clone();
        put(&mut bytes, whole.len() - 28, blocks.to_le_bytes());
        seal_all(&mut bytes);
        assert_refused(&bytes, &["expected"], "blocks");
    }
}

/// A payload of any few words, the last of which claims some shards.
#[test]
fn a_ribbon_that_is_too_short_for_its_directory_is_refused() {
    let empty = Filter::build(small(Kind::Ribbon, 0.1), Hasher::default(), &[]).unwrap();
    let header = write(&empty)[..192].to_vec();
    for words in 0..16 {
        for shards in 0..4 {
            let mut bytes = header.clone();
            bytes.resize(192 + 8 * words, 0);
            let length = bytes.len();
            if words > 0 {
                put_u64(&mut bytes, length - 8, shards);
            }
            put_u64(&mut bytes, 16, length as u64);
            put_u64(&mut bytes, 144, 8 * words as u64);
            seal_all(&mut bytes);
            assert_refused(&bytes, &["expected"], &format!("{words} words, {shards} shards"));
        }
    }
}

/// Thresholds of buckets that a layer does not have.
#[test]
fn a_ribbon_with_a_threshold_too_many_is_refused_by_those_who_look_at_all() {
    let sample = samples().into_iter().find(|sample| sample.name == "ribbon").unwrap();
    let mut bytes = write(&sample.filter);
    let word = bytes.len() - 48;
    bytes[word + 7] |= 0x40;
    seal_all(&mut bytes);
    for way in Way::ALL {
        match way.take(&bytes) {
            Ok(_) => assert!(!way.looks_at_all(), "{way:?}"),
            Err(error) => {
                assert!(way.looks_at_all(), "{way:?}: {error}");
                assert!(text_of(&error, "").starts_with("unused bits: "), "{error}");
            }
        }
    }
}

/// A header that claims a payload of 1 TB, and is otherwise right.
fn claim_a_terabyte(kind: Kind) -> Vec<u8> {
    let mut bytes = match kind {
        Kind::Blocked => victim(),
        Kind::Window => {
            let mut filter = Filter::new(window_of_keys()).unwrap();
            filter.insert("alice").unwrap();
            let mut bytes = write(&filter);
            bytes.truncate(256);
            bytes
        }
        Kind::Cuckoo => write(&Filter::new(small(Kind::Cuckoo, 1e-9)).unwrap()),
        Kind::Ribbon => {
            let plan = small(Kind::Ribbon, 0.1);
            write(&Filter::build(plan, Hasher::default(), &[]).unwrap())
        }
        kind => unreachable!("{kind}"),
    };
    bytes.resize(256, 0);
    let bits = match kind {
        Kind::Cuckoo => {
            let width = u64::from(bytes[58]);
            ((1 << 43) - 64) / (4 * width) * (4 * width)
        }
        _ => 1 << 43,
    };
    let length = if kind == Kind::Cuckoo { bits.div_ceil(64) * 8 + 8 } else { 1 << 40 };
    put_u64(&mut bytes, 16, 192 + length);
    put_u64(&mut bytes, 40, bits);
    put_u64(&mut bytes, 144, length);
    seal(&mut bytes);
    bytes
}

#[test]
fn a_claimed_terabyte_in_a_short_stream_fails_at_once_and_takes_no_memory() {
    alone(|| {
        for kind in [Kind::Blocked, Kind::Cuckoo, Kind::Window, Kind::Ribbon] {
            assert_claim_fails_at_once(&claim_a_terabyte(kind));
        }
    });
}

fn assert_claim_fails_at_once(short: &[u8]) {
    let length = get_u64(short, 144);
    let mut long = short.to_vec();
    long.resize(192 + (3 << 20), 0); // past what is read before memory is asked for
    for stream in [&short[..200], short, &long] {
        let (before, start) = (resident_memory(), Instant::now());
        let error = Filter::read_from(stream).unwrap_err();
        let (after, spent) = (resident_memory(), start.elapsed());
        // A system that promises memory freely finds out at the end of the stream; others refuse.
        match &error {
            Error::Memory { bytes, .. } => assert_eq!(*bytes, length),
            error => {
                let text = text_of(error, "a terabyte");
                let start = format!("part of the file: expected {length} bytes, got ");
                assert!(text.starts_with(&start), "{text}");
            }
        }
        assert!(spent < Duration::from_secs(2), "{} bytes took {spent:?}", stream.len());
        assert!(after < before + (64 << 20), "{} bytes took {before} to {after}", stream.len());
    }
    for way in Way::ALL {
        if way != Way::Read {
            let text = text_of(&way.take(short).unwrap_err(), "a terabyte");
            let start = format!("length of the file: expected {}, got 256; ", 192 + length);
            assert!(text.starts_with(&start), "{text}");
        }
    }
}

#[test]
fn a_reader_that_fails_is_an_error_of_its_own() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the line is dead"))
        }
    }
    let error = Filter::read_from(std::io::Read::chain(&victim()[..200], Broken)).unwrap_err();
    assert_eq!(error.to_string(), "cannot read the filter: the line is dead");
}

// -------------------------------------------------------------------------------------------- serde

#[cfg(feature = "serde")]
mod over_serde {
    use serde::Deserialize;
    use serde::de::value::{BytesDeserializer, Error};

    use super::*;

    #[test]
    fn a_serialised_filter_is_its_file() {
        for sample in samples().into_iter().filter(|sample| !sample.name.contains("keyed")) {
            let json = serde_json::to_value(&sample.filter).unwrap();
            assert_eq!(json, serde_json::json!(write(&sample.filter)), "{}", sample.name);
            let filter: Filter = serde_json::from_value(json).unwrap();
            assert_same(&filter, &sample, sample.name);

            let text = serde_json::to_string(&sample.filter).unwrap();
            assert_same(&serde_json::from_str(&text).unwrap(), &sample, sample.name);
        }
    }

    #[test]
    fn formats_that_have_bytes_give_bytes() {
        for sample in samples().into_iter().filter(|sample| !sample.name.contains("keyed")) {
            let bytes = write(&sample.filter);
            let filter = Filter::deserialize(BytesDeserializer::<Error>::new(&bytes)).unwrap();
            assert_same(&filter, &sample, sample.name);
        }
    }

    #[test]
    fn a_bloom_filter_is_serialized_as_its_filter() {
        let mut bloom = BloomFilter::new(1000, 0.01);
        bloom.extend(["alice", "bob"]);
        let bytes = write(&bloom.as_filter());
        assert_eq!(serde_json::to_value(&bloom).unwrap(), serde_json::json!(bytes));
        let read = |bytes| BloomFilter::deserialize(BytesDeserializer::<Error>::new(bytes));
        assert_eq!(read(&bytes).unwrap(), bloom);
        let filter: Filter = serde_json::from_value(serde_json::json!(bytes)).unwrap();
        assert_eq!(filter, *bloom.as_filter());

        let classic = Filter::new(Plan::builder(Kind::Classic).items(9).build().unwrap()).unwrap();
        let error = read(&write(&classic)).unwrap_err().to_string();
        assert!(error.contains("kind classic cannot become a BloomFilter"), "{error}");
    }

    #[test]
    fn damage_is_told_in_the_same_words() {
        let mut bytes = victim();
        bytes[250] ^= 1;
        let error = Filter::deserialize(BytesDeserializer::<Error>::new(&bytes)).unwrap_err();
        assert!(error.to_string().starts_with("checksum of the payload: expected "), "{error}");
        let error = serde_json::from_str::<Filter>("[1, 2, 300]").unwrap_err();
        assert!(error.to_string().contains("expected u8"), "{error}");
        let error = serde_json::from_str::<Filter>("{}").unwrap_err();
        assert!(error.to_string().contains("the bytes of an inbloom filter file"), "{error}");
    }
}
