//! RedisBloom's filters: what its servers wrote is read, answered and written again to the bit.
//!
//! The files in `golden/redisbloom` were made by RedisBloom 2.6.28 (in Redis 7.0.15) and 8.8.0 (in
//! Redis 8.0.6): `.chunkN.bin` are replies of SCANDUMP, `.dump` those of DUMP, `.probes.txt` 2000
//! items each, with the answer of a server that loaded the chunks (answer, whether inserted, item),
//! `keys/` what was inserted, in this order; whole conversations are with the tests of the server.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use inbloom::interop::redisbloom::payload::{self, Restored};
use inbloom::interop::redisbloom::{
    Bloom, CHUNK, CuckooChain, ForeignError, Hash, LoadError, MAX_FILTERS, MAX_SUB_FILTER,
    OVERHEAD, Pair, Refused, murmur2_32, murmur64a,
};

mod files;
mod live;
mod replay;

/// More than any filter here takes.
const LIMIT: u64 = 64 << 20;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/redisbloom").join(name)
}

fn read(name: &str) -> Vec<u8> {
    fs::read(golden(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// How items are written in a file.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Hex,
}

impl Form {
    fn item(self, word: &[u8]) -> Vec<u8> {
        let digit = |letter: u8| (letter as char).to_digit(16).expect("a hexadecimal digit") as u8;
        match self {
            Form::Text => word.to_vec(),
            Form::Hex => word.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect(),
        }
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n')
}

fn keys(name: &str, form: Form) -> Vec<Vec<u8>> {
    lines(&read(&format!("keys/{name}.txt"))).map(|line| form.item(line)).collect()
}

/// A golden Bloom filter, and how it was made.
struct GoldenBloom {
    name: &'static str,
    chunks: u64,
    keys: &'static str,
    form: Form,
    make: Make,
    has_dump: bool,
}

enum Make {
    /// By BF.RESERVE with this rate, capacity and growth.
    Reserve(f64, u64, u32),
    /// From the header as it is, with no items yet.
    Header,
    /// Not here: its keys would be the largest file by far.
    Elsewhere,
}

const fn bloom(name: &'static str, chunks: u64, keys: &'static str, make: Make) -> GoldenBloom {
    GoldenBloom { name, chunks, keys, form: Form::Text, make, has_dump: true }
}

const BLOOMS: [GoldenBloom; 10] = [
    bloom("bf-str-10", 1, "s10", Make::Reserve(0.01, 10, 2)),
    bloom("bf-str-1k", 1, "s1k", Make::Reserve(0.01, 1000, 2)),
    GoldenBloom { has_dump: false, ..bloom("bf-str-100k", 1, "", Make::Elsewhere) },
    bloom("bf-scaled-str-1k", 4, "s1k", Make::Reserve(0.01, 100, 2)),
    bloom("bf-default-str-1k", 4, "s1k", Make::Reserve(0.01, 100, 2)),
    bloom("bf-nonscaling-u64text-1k", 1, "u1k", Make::Reserve(0.02, 1000, 0)),
    // Reserved at 0.3, which the server lowered.
    bloom("bf-sparse-str-10", 1, "s10", Make::Reserve(0.25, 4000, 2)),
    GoldenBloom {
        form: Form::Hex,
        ..bloom("bf-bytes-edge", 1, "edgehex", Make::Reserve(0.05, 200, 2))
    },
    bloom("bf-legacy-n2-hash32-str-1k", 1, "s1k", Make::Header),
    bloom("bf-legacy-n2-hash64-str-1k", 1, "s1k", Make::Header),
];

/// A golden cuckoo filter, and how it was made.
struct GoldenCuckoo {
    name: &'static str,
    chunks: u64,
    keys: &'static str,
    /// Capacity, bucket size, iterations and expansion of CF.RESERVE.
    make: (u64, u16, u16, u16),
    /// How many of the keys, from the first on, were removed again.
    removed: usize,
    has_dump: bool,
}

const CUCKOOS: [GoldenCuckoo; 5] = [
    GoldenCuckoo {
        name: "cf-str-10",
        chunks: 1,
        keys: "s10",
        make: (16, 2, 20, 1),
        removed: 0,
        has_dump: true,
    },
    GoldenCuckoo {
        name: "cf-str-1k",
        chunks: 1,
        keys: "s1k",
        make: (2048, 2, 20, 1),
        removed: 0,
        has_dump: true,
    },
    GoldenCuckoo {
        name: "cf-u64text-20k",
        chunks: 1,
        keys: "u20k",
        make: (20_000, 2, 20, 1),
        removed: 0,
        has_dump: false,
    },
    GoldenCuckoo {
        name: "cf-expanded-u64text-1k",
        chunks: 4,
        keys: "u1k",
        make: (128, 4, 30, 2),
        removed: 0,
        has_dump: true,
    },
    GoldenCuckoo {
        name: "cf-deleted-str-1k",
        chunks: 1,
        keys: "s1k",
        make: (1500, 3, 20, 1),
        removed: 300,
        has_dump: true,
    },
];

/// The chunks of a dump with their iterators: chunk 0 is the header.
fn chunks(name: &str, count: u64) -> (Vec<u8>, Vec<(u64, Vec<u8>)>) {
    let mut iterator = 1;
    let data = (1..=count).map(|at| {
        let data = read(&format!("{name}.chunk{at}.bin"));
        iterator += data.len() as u64;
        (iterator, data)
    });
    let data = data.collect();
    (read(&format!("{name}.chunk0.bin")), data)
}

fn load_bloom(golden: &GoldenBloom) -> Bloom {
    let (header, data) = chunks(golden.name, golden.chunks);
    let mut bloom = Bloom::from_header(&header, LIMIT).unwrap();
    data.iter().for_each(|(iterator, data)| bloom.load(*iterator, data).unwrap());
    bloom
}

fn load_cuckoo(golden: &GoldenCuckoo) -> CuckooChain {
    let (header, data) = chunks(golden.name, golden.chunks);
    let mut cuckoo = CuckooChain::from_header(&header, LIMIT).unwrap();
    data.iter().for_each(|(position, data)| cuckoo.load(*position, data).unwrap());
    cuckoo
}

fn check_probes(name: &str, form: Form, contains: impl Fn(&[u8]) -> bool) {
    let mut probes = 0;
    for line in lines(&read(&format!("{name}.probes.txt"))) {
        let [answer, b'\t', _inserted, b'\t', word @ ..] = line else {
            panic!("{name}: a line of another form");
        };
        assert_eq!(contains(&form.item(word)), *answer == b'1', "{name}, line {probes}");
        probes += 1;
    }
    assert_eq!(probes, 2000, "{name}");
}

#[test]
fn hashes_are_those_of_the_published_vectors() {
    let to_15: Vec<u8> = (0..15).collect();
    let to_33: Vec<u8> = (0..33).collect();
    // Item, pair of a Bloom filter, hash of a cuckoo filter.
    let vectors: [(&[u8], u64, u64, u64); 5] = [
        (b"", 0x1ab1_1ea5_a7b2_c56e, 0xbbdd_cb5a_b56d_d547, 0),
        (b"hello", 0x5ba5_b8a5_9803_e699, 0xa7d4_51d5_88a0_c2a4, 0x1e68_d17c_457b_f117),
        (
            b"\xe5\xb8\x83\xe9\x9a\x86",
            0x4147_aa65_662e_1622,
            0xcb91_3622_fd40_5e64,
            0x736f_6943_5193_459b,
        ),
        (&to_15, 0x4e57_85f3_45dd_1acd, 0x1355_091a_9dc6_a1d7, 0x9416_c982_4074_81ab),
        (&to_33, 0x33e5_694f_7211_35fe, 0x1e6d_479e_4351_07ca, 0xe384_c691_0b96_fdc8),
    ];
    for (item, a, b, hash) in vectors {
        assert_eq!(Pair::of(item), Pair { a, b }, "{item:?}");
        assert_eq!(Hash::of(item), Hash(hash), "{item:?}");
        assert_eq!(murmur64a(item, a), b, "{item:?}");
        // The 32-bit hash has no published vectors: the golden filter with it is its test. Here
        // only that the second is seeded by the first.
        let pair = Pair::of_32(item);
        assert_eq!(u64::from(murmur2_32(item, pair.a as u32)), pair.b, "{item:?}");
    }
}

#[test]
fn every_golden_dump_answers_as_its_server_did() {
    for golden in &BLOOMS {
        let bloom = load_bloom(golden);
        check_probes(golden.name, golden.form, |item| bloom.contains(item));
    }
    for golden in &CUCKOOS {
        let cuckoo = load_cuckoo(golden);
        check_probes(golden.name, Form::Text, |item| cuckoo.contains(item));
        check_probes(golden.name, Form::Text, |item| cuckoo.count(item) > 0);
    }
}

#[test]
fn every_golden_payload_is_the_filter_of_its_chunks() {
    for golden in BLOOMS.iter().filter(|golden| golden.has_dump) {
        let restored = payload::decode(&read(&format!("{}.dump", golden.name)), LIMIT).unwrap();
        assert_eq!(restored, Restored::Bloom(load_bloom(golden)), "{}", golden.name);
    }
    for golden in CUCKOOS.iter().filter(|golden| golden.has_dump) {
        let restored = payload::decode(&read(&format!("{}.dump", golden.name)), LIMIT).unwrap();
        assert_eq!(restored, Restored::Cuckoo(load_cuckoo(golden)), "{}", golden.name);
    }
}

#[test]
fn the_same_keys_in_the_same_order_give_the_same_bytes() {
    for golden in &BLOOMS {
        let mut bloom = match golden.make {
            Make::Reserve(rate, capacity, growth) => {
                Bloom::new(rate, capacity, growth, LIMIT).unwrap()
            }
            Make::Header => {
                let (mut header, _) = chunks(golden.name, 0);
                header[0..8].fill(0); // items
                header[36..44].fill(0); // items of the only link
                Bloom::from_header(&header, LIMIT).unwrap()
            }
            Make::Elsewhere => continue,
        };
        for key in keys(golden.keys, golden.form) {
            bloom.insert(&key, LIMIT).unwrap();
        }
        let (header, data) = chunks(golden.name, golden.chunks);
        assert_eq!(bloom.header(), header, "{}", golden.name);
        let mut position = 1;
        for (next, data) in &data {
            assert!(bloom.chunk(position, CHUNK) == Some((*next, data)), "{}", golden.name);
            position = *next;
        }
        assert_eq!(bloom.chunk(position, CHUNK), None, "{}", golden.name);
    }
    for golden in &CUCKOOS {
        let (capacity, bucket_size, iterations, expansion) = golden.make;
        let mut cuckoo =
            CuckooChain::new(capacity, bucket_size, iterations, expansion, LIMIT).unwrap();
        let keys = keys(golden.keys, Form::Text);
        keys.iter().for_each(|key| cuckoo.insert(key, LIMIT).unwrap());
        keys[..golden.removed].iter().for_each(|key| assert!(cuckoo.remove(key)));
        let (header, data) = chunks(golden.name, golden.chunks);
        assert_eq!(cuckoo.header(), header, "{}", golden.name);
        let mut position = 1;
        for (next, data) in &data {
            assert!(cuckoo.chunk(position, CHUNK) == Some((*next, data)), "{}", golden.name);
            position = *next;
        }
        assert_eq!(cuckoo.chunk(position, CHUNK), None, "{}", golden.name);
    }
}

#[test]
fn payloads_are_those_of_redis_but_for_compression_and_version() {
    let mut compared = 0;
    let mut check = |name: &str, ours: Vec<u8>| {
        let theirs = read(&format!("{name}.dump"));
        // A compressed string makes theirs shorter.
        if theirs.len() == ours.len() {
            let fields = ours.len() - 10;
            assert_eq!(ours[..fields], theirs[..fields], "{name}");
            assert_eq!(ours[fields..fields + 2], [9, 0], "{name}: version");
            compared += 1;
        }
        assert!(theirs.len() <= ours.len(), "{name}");
    };
    for golden in BLOOMS.iter().filter(|golden| golden.has_dump) {
        check(golden.name, payload::encode(&load_bloom(golden)).unwrap());
    }
    for golden in CUCKOOS.iter().filter(|golden| golden.has_dump) {
        check(golden.name, payload::encode(&load_cuckoo(golden)).unwrap());
    }
    assert!(compared >= 6, "only {compared} of them are not compressed");
}

#[test]
fn recorded_conversations_come_out_word_for_word() {
    // How many lines are a matter of the filter, so that none is passed over unseen.
    let files = [
        ("05-bf-scaling", 233),
        ("06-bf-dump", 37),
        ("07-cf-basic", 153),
        ("08-cf-reserve", 62),
        ("09-cf-insert", 24),
        ("10-cf-full-expand-compact", 69),
        ("11-cf-dump", 29),
        ("16-dump-compat-optional", 14),
    ];
    for (name, lines_of_ours) in files {
        let lines = String::from_utf8(read(&format!(
            "../../../../inbloom-server/tests/redisbloom/transcripts/{name}.jsonl"
        )))
        .unwrap();
        assert_eq!(replay::replay(&lines), lines_of_ours, "{name}: lines compared");
    }
}

#[test]
fn a_written_payload_is_read_as_the_same_filter() {
    for golden in &BLOOMS {
        let bloom = load_bloom(golden);
        let bytes = payload::encode(&bloom).unwrap();
        assert_eq!(payload::decode(&bytes, LIMIT).unwrap(), Restored::Bloom(bloom));
    }
    for golden in &CUCKOOS {
        let cuckoo = load_cuckoo(golden);
        let bytes = payload::encode(&cuckoo).unwrap();
        assert_eq!(payload::decode(&bytes, LIMIT).unwrap(), Restored::Cuckoo(cuckoo));
    }
}

#[test]
fn chunks_of_any_size_and_in_any_order_make_the_same_filter() {
    let golden = &BLOOMS[3];
    let bloom = load_bloom(golden);
    for most in [1, 7, 777] {
        let mut pieces = Vec::new();
        let mut position = 1;
        while let Some((next, data)) = bloom.chunk(position, most) {
            assert!(!data.is_empty() && data.len() <= most);
            pieces.push((next, data));
            position = next;
        }
        let mut copy = Bloom::from_header(&bloom.header(), LIMIT).unwrap();
        assert!(copy != bloom, "without its bits");
        for (iterator, data) in pieces.iter().rev() {
            copy.load(*iterator, data).unwrap();
        }
        assert_eq!(copy, bloom, "pieces of {most} bytes, the last first");
    }
}

#[test]
fn a_chunk_that_does_not_fit_changes_nothing() {
    let bloom = load_bloom(&BLOOMS[3]); // links of 144, 312, 696 and 1536 bytes
    let mut other = load_bloom(&BLOOMS[3]);
    let ones = [0xff; 400];
    type Kind = fn(&LoadError) -> bool;
    let (bad, none): (Kind, Kind) = (
        |error| matches!(error, LoadError::BadData { .. }),
        |error| matches!(error, LoadError::NoLink { .. }),
    );
    let big: Kind = |error| matches!(error, LoadError::TooBig { .. });
    let cases: [(u64, usize, Kind); 9] = [
        (0, 0, bad),
        (0, 1, bad),
        (1, 2, bad),
        (2, 2, none),
        (2690, 1, none),
        (u64::MAX, 1, none),
        (u64::MAX, 0, none),
        (146, 2, big), // one byte of each of two links
        (401, 400, big),
    ];
    for (iterator, length, expected) in cases {
        let error = other.load(iterator, &ones[..length]).unwrap_err();
        assert!(expected(&error), "{iterator}, {length} bytes: {error}");
    }
    assert_eq!(other, bloom);
    other.load(1, &[]).unwrap();
    assert_eq!(other, bloom);
    other.load(2690 - 1, &ones[..1]).unwrap(); // the last byte
    assert!(other != bloom);

    let cuckoo = load_cuckoo(&CUCKOOS[3]); // sub-filters of 128, 256, 512 and 1024 bytes
    let mut other = load_cuckoo(&CUCKOOS[3]);
    for (position, length) in [(0, 0), (0, 1), (1, 1), (5, 0), (130, 2), (1922, 1), (u64::MAX, 1)] {
        let error = other.load(position, &ones[..length]).unwrap_err();
        assert!(matches!(error, LoadError::CannotLoad { .. }), "{position}, {length}: {error}");
    }
    assert_eq!(other, cuckoo);
    other.load(1921, &ones[..1]).unwrap();
    assert!(other != cuckoo);
}

#[test]
fn a_filter_that_does_not_grow_refuses_only_what_is_new() {
    let mut bloom = Bloom::new(1e-6, 10, 0, LIMIT).unwrap();
    assert_eq!(bloom.growth(), None);
    for item in 0..10u8 {
        assert!(bloom.insert(&[item], LIMIT).unwrap());
    }
    let before = bloom.header();
    assert_eq!(bloom.insert(b"new", LIMIT), Err(Refused::Full));
    assert_eq!(bloom.insert(&[3], LIMIT), Ok(false));
    assert_eq!(bloom.header(), before);

    let mut cuckoo = CuckooChain::new(1024, 2, 500, 0, LIMIT).unwrap();
    let mut items: Vec<[u8; 8]> = Vec::new();
    while cuckoo.insert(&inbloom_testing::mix(items.len() as u64).to_le_bytes(), LIMIT).is_ok() {
        items.push(inbloom_testing::mix(items.len() as u64).to_le_bytes());
    }
    // Of 1024 slots. With 255 fingerprints and buckets of two, 500 moves do not fill many more.
    assert!(items.len() > 700, "full with {} items", items.len());
    let full = payload::encode(&cuckoo).unwrap();
    let next = inbloom_testing::mix(items.len() as u64).to_le_bytes();
    assert_eq!(cuckoo.insert(&next, LIMIT), Err(Refused::Full));
    assert!(full == payload::encode(&cuckoo).unwrap(), "moves that led nowhere are not undone");
    assert!(items.iter().all(|item| cuckoo.contains(item)));
}

#[test]
fn a_filter_grows_until_its_rate_is_zero() {
    let mut bloom = Bloom::new(0.01, 1, 1, LIMIT).unwrap();
    let mut number = 0u64;
    let refused = loop {
        match bloom.insert(&inbloom_testing::mix(number).to_le_bytes(), LIMIT) {
            Ok(_) => number += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, Refused::Exhausted);
    assert_eq!(bloom.links().len(), 1067, "as RedisBloom counts them");
    let header = bloom.header();
    assert_eq!(
        bloom.insert(&inbloom_testing::mix(number).to_le_bytes(), LIMIT),
        Err(Refused::Exhausted)
    );
    assert_eq!(bloom.header(), header);
    assert!(Bloom::from_header(&header, LIMIT).is_ok(), "its own header");
}

#[test]
fn growth_beyond_the_limit_is_refused_with_numbers_and_changes_nothing() {
    let mut bloom = Bloom::new(0.01, 100, 2, LIMIT).unwrap();
    let limit = 144 + OVERHEAD;
    let mut number = 0u64;
    let refused = loop {
        match bloom.insert(&number.to_le_bytes(), limit) {
            Ok(_) => number += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, Refused::Memory { needed: 144 + 312 + 2 * OVERHEAD, limit });
    assert_eq!((bloom.items(), bloom.links().len()), (100, 1));
    assert!(bloom.insert(&number.to_le_bytes(), 144 + 312 + 2 * OVERHEAD).unwrap());

    // Entries whose number overflows.
    let mut bloom = Bloom::new(0.01, 1, u32::MAX, LIMIT).unwrap();
    bloom.insert(b"a", LIMIT).unwrap();
    let needed = match bloom.insert(b"b", LIMIT) {
        Err(Refused::Memory { needed, limit: LIMIT }) => needed,
        other => panic!("{other:?}"),
    };
    assert!(needed > 4_294_967_295, "{needed} bytes for as many items");

    let mut cuckoo = CuckooChain::new(4, 2, 20, 1, LIMIT).unwrap();
    let limit = 4 + OVERHEAD;
    for _ in 0..4 {
        // Alone in its two buckets or its one, an item fits twice at least.
        let _ = cuckoo.insert(b"same", limit);
    }
    let before = payload::encode(&cuckoo).unwrap();
    let refused = cuckoo.insert(b"same", limit).unwrap_err();
    assert_eq!(refused, Refused::Memory { needed: 8 + 2 * OVERHEAD, limit });
    assert_eq!(payload::encode(&cuckoo).unwrap(), before);
    assert_eq!(cuckoo.filters(), 1);
}

#[test]
fn sizes_without_measure_are_refused_before_memory_is_taken() {
    let limit = 1 << 30;
    for (rate, capacity) in [(0.01, 1 << 40), (1e-300, i64::MAX as u64), (5e-324, 1 << 24)] {
        let error = Bloom::new(rate, capacity, 0, limit).unwrap_err();
        assert!(matches!(error, ForeignError::Limit { limit: at, .. } if at == limit), "{error}");
    }
    for rate in [0.0, -0.5, 1.0, 2.0, f64::NAN, f64::INFINITY, 5e-324] {
        let error = Bloom::new(rate, 100, 2, limit).unwrap_err();
        assert!(matches!(error, ForeignError::Parameter { name: "rate", .. }), "{error}");
    }
    assert!(
        Bloom::new(0.01, 0, 2, limit).is_err() && Bloom::new(0.01, u64::MAX, 2, limit).is_err()
    );

    let error = CuckooChain::new(1 << 31, 2, 20, 1, limit).unwrap_err();
    assert!(matches!(error, ForeignError::Limit { limit: at, .. } if at == limit), "{error}");
    for capacity in [1 << 33, 1 << 40, u64::MAX] {
        let error = CuckooChain::new(capacity, 2, 20, 1, limit).unwrap_err();
        assert!(matches!(error, ForeignError::TooLarge { most: MAX_SUB_FILTER, .. }), "{error}");
    }
    // Sub-filters of 8, of 2^18 and then of 2^33 bytes.
    let mut cuckoo = CuckooChain::new(8, 1, 1, 1 << 15, u64::MAX).unwrap();
    let refused =
        (0..200_000u64).find_map(|item| cuckoo.insert(&item.to_le_bytes(), u64::MAX).err());
    assert_eq!(refused, Some(Refused::TooLarge { bytes: 1 << 33, most: MAX_SUB_FILTER }));
    assert_eq!(cuckoo.filters(), 2);
    let wrong =
        [(3, 2, 20, 1), (100, 0, 20, 1), (1000, 256, 20, 1), (100, 2, 0, 1), (100, 2, 20, 40_000)];
    for (capacity, bucket_size, iterations, expansion) in wrong {
        let error =
            CuckooChain::new(capacity, bucket_size, iterations, expansion, limit).unwrap_err();
        assert!(matches!(error, ForeignError::Parameter { .. }), "{error}");
    }

    let header = |buckets: u64, filters: u64, expansion: u16| {
        let mut header = Vec::new();
        [0, buckets, 0, filters].iter().for_each(|field| header.extend(field.to_le_bytes()));
        [2, 20, expansion].iter().for_each(|field| header.extend(field.to_le_bytes()));
        CuckooChain::from_header(&header, limit)
    };
    assert!(header(512, 3, 2).is_ok());
    // More than 4 GiB in one, where RedisBloom's own offsets are wrong.
    for (buckets, filters, expansion) in [(1 << 32, 1, 1), (1 << 63, 1, 1), (1, 18, 4), (2, 60, 2)]
    {
        match header(buckets, filters, expansion) {
            Err(LoadError::CannotCreate(ForeignError::TooLarge { bytes, most })) => {
                assert_eq!(most, MAX_SUB_FILTER);
                assert!(bytes > most);
            }
            other => panic!("{buckets} buckets, {filters} sub-filters: {other:?}"),
        }
    }
    // Many small ones, and one that is larger than the limit.
    for (buckets, filters) in [(1 << 20, MAX_FILTERS), (1 << 31, 1)] {
        match header(buckets, filters, 1) {
            Err(LoadError::CannotCreate(ForeignError::Limit { limit: at, .. })) => {
                assert_eq!(at, limit)
            }
            other => panic!("{buckets} buckets, {filters} sub-filters: {other:?}"),
        }
    }
    for (buckets, filters, expansion) in
        [(0, 1, 1), (3, 1, 1), (4, 0, 1), (4, u64::MAX, 1), (4, 2, 0), (4, 2, 3)]
    {
        match header(buckets, filters, expansion) {
            Err(LoadError::CannotCreate(ForeignError::Damaged { .. })) => {}
            other => panic!("{buckets} buckets, {filters} sub-filters: {other:?}"),
        }
    }
}

#[test]
fn many_answers_at_once_are_those_one_by_one() {
    // Larger than L2, with an older link.
    let mut bloom = Bloom::new(0.01, 200_000, 4, LIMIT).unwrap();
    for number in 0..300_000u64 {
        bloom.insert(&number.to_le_bytes(), LIMIT).unwrap();
    }
    assert_eq!(bloom.links().len(), 2);
    let items: Vec<[u8; 8]> = (299_000..301_003u64).map(u64::to_le_bytes).collect();
    let mut found = vec![true; 5];
    bloom.contains_many(&items, &mut found);
    assert_eq!(found.len(), items.len());
    for (item, found) in items.iter().zip(&found) {
        assert_eq!(bloom.contains(item), *found);
    }
    assert!(found[..1000].iter().all(|found| *found));
    let wrong = found[1000..].iter().filter(|found| **found).count();
    // 1003 draws at less than 1%: ten is the mean of the bound, 30 more than six deviations above.
    assert!(wrong < 30, "{wrong} of 1003 are claimed wrongly");
    bloom.contains_many(&[b"x"; 0], &mut found);
    assert!(found.is_empty());
}

#[test]
fn cuckoo_answers_many_at_once_as_one_by_one() {
    // Sub-filters larger than L2 and smaller ones.
    let mut cuckoo = CuckooChain::new(1 << 18, 2, 20, 4, LIMIT).unwrap();
    let hashes: Vec<Hash> = (0..700_000u64).map(|number| Hash::of(&number.to_le_bytes())).collect();
    let mut one_by_one = CuckooChain::new(1 << 18, 2, 20, 4, LIMIT).unwrap();
    let (members, others) = hashes.split_at(600_000);
    members.iter().for_each(|hash| one_by_one.insert_hash(*hash, LIMIT).unwrap());
    cuckoo.try_each(members, |cuckoo, hash| cuckoo.insert_hash(hash, LIMIT)).unwrap();
    assert!(cuckoo == one_by_one);
    assert_eq!(cuckoo.filters(), 2);
    assert!(cuckoo.bytes() > 1 << 20);

    let asked = [&members[..1234], &others[..777], &members[599_000..]].concat();
    let (mut found, mut counts) = (vec![true; 5], vec![7; 5]);
    cuckoo.contains_hashes(&asked, &mut found);
    cuckoo.count_hashes(&asked, &mut counts);
    assert_eq!((found.len(), counts.len()), (asked.len(), asked.len()));
    for (at, hash) in asked.iter().enumerate() {
        assert_eq!(found[at], cuckoo.contains_hash(*hash), "{at}");
        assert_eq!(counts[at], cuckoo.count_hash(*hash), "{at}");
        assert_eq!(found[at], counts[at] > 0, "{at}");
    }
    assert!(found[..1234].iter().all(|found| *found));
    cuckoo.contains_hashes(&[], &mut found);
    assert!(found.is_empty());

    // It ends where the work fails.
    let (mut worked, fail_at) = (0, 1000);
    let result = cuckoo.try_each(members, |_, _| {
        worked += 1;
        if worked == fail_at { Err("enough") } else { Ok(()) }
    });
    assert_eq!((result, worked), (Err("enough"), fail_at));
}

/// A filter with several sub-filters, some of whose items were removed.
fn thinned(expansion: u16, items: u64, keep: impl Fn(u64) -> bool) -> CuckooChain {
    let mut cuckoo = CuckooChain::new(1 << 16, 2, 20, expansion, LIMIT).unwrap();
    (0..items).for_each(|number| cuckoo.insert(&number.to_le_bytes(), LIMIT).unwrap());
    for number in (0..items).filter(|number| !keep(*number)) {
        assert!(cuckoo.remove(&number.to_le_bytes()));
    }
    cuckoo
}

#[test]
fn a_compaction_in_steps_ends_as_a_whole_one_does() {
    for expansion in [1, 2] {
        let keep = |number: u64| number.is_multiple_of(10);
        let mut whole = thinned(expansion, 300_000, keep);
        // Too large to be compacted by a removal.
        let before = (whole.filters(), whole.deletes());
        assert!(before.0 > 2 && before.1 == 270_000 && whole.is_compaction_due(), "{before:?}");
        whole.compact();
        assert!(whole.filters() < before.0 && whole.deletes() == 0);
        for budget in [1, 1000, 1 << 20] {
            let mut stepped = thinned(expansion, 300_000, keep);
            let mut steps = 1u64;
            while !stepped.compact_step(budget) {
                steps += 1;
                if steps.is_multiple_of(20_000) || budget > 1 {
                    assert!(
                        (0..300u64).all(|number| stepped.contains(&(10 * number).to_le_bytes()))
                    );
                }
            }
            assert_eq!(stepped, whole, "steps of {budget}");
            assert!(steps > 100_000 / budget as u64, "{steps} steps of {budget}");
        }
        assert_eq!(whole.items(), 30_000);
        let mut kept = (0..300_000u64).filter(|number| keep(*number));
        assert!(kept.all(|number| whole.contains(&number.to_le_bytes())));
    }
}

#[test]
fn changes_between_the_steps_of_a_compaction_lose_nothing() {
    let mut cuckoo = thinned(2, 300_000, |number| number.is_multiple_of(3));
    let mut expected: HashMap<u64, u64> =
        (0..300_000).filter(|number| number % 3 == 0).map(|number| (number, 1)).collect();
    let mut step = 0;
    while !cuckoo.compact_step(500) {
        // Inserts go to the newest first: before and behind the slot that is next.
        for number in
            [inbloom_testing::mix(step) | 1 << 40, inbloom_testing::mix(step + 1) | 1 << 40]
        {
            cuckoo.insert(&number.to_le_bytes(), LIMIT).unwrap();
            *expected.entry(number).or_default() += 1;
        }
        let gone = 3 * (inbloom_testing::mix(step) % 100_000);
        if expected.remove(&gone).is_some() {
            assert!(cuckoo.remove(&gone.to_le_bytes()));
        }
        step += 2;
    }
    assert!(step > 100);
    assert_eq!(cuckoo.items(), expected.values().sum::<u64>());
    for (number, count) in &expected {
        assert!(cuckoo.count(&number.to_le_bytes()) >= *count, "{number} is missing");
    }
}

#[test]
fn cuckoo_counts_at_least_what_a_multiset_does() {
    for (seed, (bucket_size, expansion)) in
        [(1, 1), (2, 1), (2, 2), (3, 4), (4, 2)].into_iter().enumerate()
    {
        let mut cuckoo = CuckooChain::new(64, bucket_size, 20, expansion, LIMIT).unwrap();
        let mut model: HashMap<u64, u64> = HashMap::new();
        let (mut items, mut most) = (0, 0);
        let mut state = seed as u64;
        for step in 0..30_000u64 {
            state = inbloom_testing::mix(state);
            let number = state >> 32 & 1023;
            let item = number.to_le_bytes();
            // Phases of growth and of shrinking.
            let grows = state % 8 < if step / 3000 % 2 == 0 { 5 } else { 2 };
            if grows {
                cuckoo.insert(&item, LIMIT).unwrap();
                *model.entry(number).or_default() += 1;
                items += 1;
            } else if let Some(count) = model.get_mut(&number).filter(|count| **count > 0) {
                assert!(cuckoo.remove(&item), "step {step}: {number} is missing");
                *count -= 1;
                items -= 1;
            }
            most = most.max(cuckoo.filters());
            assert_eq!(cuckoo.items(), items, "step {step}");
            if step % 1000 == 0 {
                if step % 4000 == 0 {
                    cuckoo.compact();
                }
                let stored: usize = entries(&cuckoo).iter().filter(|print| **print != 0).count();
                assert_eq!(stored as u64, items, "step {step}");
                for (number, count) in &model {
                    let counted = cuckoo.count(&number.to_le_bytes());
                    assert!(
                        counted >= *count,
                        "step {step}: {number} {counted} times, not {count}"
                    );
                }
            }
        }
        assert!(most > 2, "buckets of {bucket_size}: never more than {most} sub-filters");
        for (number, count) in model {
            (0..count).for_each(|_| assert!(cuckoo.remove(&number.to_le_bytes())));
        }
        assert_eq!(cuckoo.items(), 0);
        assert!(entries(&cuckoo).iter().all(|print| *print == 0));
    }
}

/// All slots of a filter.
fn entries(cuckoo: &CuckooChain) -> Vec<u8> {
    let (mut slots, mut position) = (Vec::new(), 1);
    while let Some((next, data)) = cuckoo.chunk(position, CHUNK) {
        slots.extend(data);
        position = next;
    }
    slots
}

/// Uses a filter that came from somewhere: nothing may panic, and it stays one that can be kept.
fn exercise(restored: Restored) {
    match restored {
        Restored::Bloom(mut bloom) => {
            let _ = (bloom.capacity(), bloom.growth(), format!("{bloom:?}"));
            for number in 0..40u8 {
                if bloom.insert(&[number], 1 << 20).is_ok() {
                    assert!(bloom.contains(&[number]));
                }
            }
            assert_eq!(bloom.items(), bloom.links().map(|link| link.size).sum::<u64>());
            let bytes = payload::encode(&bloom).unwrap();
            assert_eq!(payload::decode(&bytes, LIMIT).unwrap(), Restored::Bloom(bloom));
        }
        Restored::Cuckoo(mut cuckoo) => {
            let _ = format!("{cuckoo:?}");
            for number in 0..40u8 {
                if cuckoo.insert(&[number], 1 << 20).is_ok() {
                    assert!(cuckoo.contains(&[number]));
                }
            }
            let _ = cuckoo.compact_step(10);
            for number in 0..80u8 {
                let _ = (cuckoo.count(&[number]), cuckoo.remove(&[number]));
            }
            cuckoo.compact();
            let bytes = payload::encode(&cuckoo).unwrap();
            assert!(CuckooChain::from_header(&cuckoo.header(), LIMIT).is_ok());
            assert_eq!(payload::decode(&bytes, LIMIT).unwrap(), Restored::Cuckoo(cuckoo));
        }
    }
}

#[test]
fn no_flipped_bit_and_no_cut_of_a_header_is_a_panic() {
    let mut filters = 0;
    let mut check = |header: &[u8]| {
        if let Ok(bloom) = Bloom::from_header(header, 1 << 20) {
            filters += 1;
            exercise(Restored::Bloom(bloom));
        }
        if let Ok(cuckoo) = CuckooChain::from_header(header, 1 << 20) {
            filters += 1;
            exercise(Restored::Cuckoo(cuckoo));
        }
    };
    let names = ["bf-scaled-str-1k", "bf-legacy-n2-hash32-str-1k", "bf-nonscaling-u64text-1k"];
    for name in names.into_iter().chain(["cf-str-10", "cf-expanded-u64text-1k"]) {
        let mut header = read(&format!("{name}.chunk0.bin"));
        for length in 0..header.len() {
            check(&header[..length]);
        }
        for bit in 0..8 * header.len() {
            header[bit / 8] ^= 1 << (bit % 8);
            check(&header);
            header[bit / 8] ^= 1 << (bit % 8);
        }
    }
    assert!(filters > 100, "only {filters} flips leave a filter");
}

/// CRC-64 bit by bit.
fn crc64(bytes: &[u8]) -> [u8; 8] {
    let mut crc = 0u64;
    for byte in bytes {
        crc ^= u64::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 != 0 { 0x95ac_9329_ac4b_c9b5 } else { 0 };
        }
    }
    crc.to_le_bytes()
}

fn sealed(fields: &[u8]) -> Vec<u8> {
    let mut payload = fields.to_vec();
    payload.extend(crc64(fields));
    payload
}

#[test]
fn no_flipped_bit_and_no_cut_of_a_payload_is_a_panic() {
    let (mut filters, mut refused) = (0, 0);
    for name in ["bf-str-10", "bf-sparse-str-10", "cf-str-10", "cf-expanded-u64text-1k"] {
        let mut payload = read(&format!("{name}.dump"));
        for length in 0..payload.len() {
            assert!(payload::decode(&payload[..length], LIMIT).is_err());
        }
        let fields = payload.len() - 8;
        for bit in 0..8 * payload.len() {
            payload[bit / 8] ^= 1 << (bit % 8);
            let error = payload::decode(&payload, LIMIT).expect_err("a checksum that is wrong");
            assert!(error.to_string().starts_with("checksum: expected "), "{error}");
            // Behind the checksum.
            match payload::decode(&sealed(&payload[..fields]), 1 << 20) {
                Ok(restored) => {
                    filters += 1;
                    exercise(restored);
                }
                Err(_) => refused += 1,
            }
            payload[bit / 8] ^= 1 << (bit % 8);
        }
        for length in 0..fields {
            let _ = payload::decode(&sealed(&payload[..length]), 1 << 20);
        }
    }
    assert!(filters > 1000 && refused > 200, "{filters} filters, {refused} refused");
}

/// The fields of a payload, in the shortest forms.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn of(module: u64, encoding: u64) -> Fields {
        let mut fields = Fields(vec![7, 0x81]);
        fields.0.extend((module | encoding).to_be_bytes());
        fields
    }

    fn number(mut self, value: u64) -> Fields {
        self.0.extend([2, 0x81]);
        self.0.extend(value.to_be_bytes());
        self
    }

    fn double(mut self, value: f64) -> Fields {
        self.0.push(4);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A string as it is stored, length and all.
    fn string(mut self, stored: &[u8]) -> Fields {
        self.0.push(5);
        self.0.extend(stored);
        self
    }

    fn decode(mut self) -> Result<Restored, ForeignError> {
        self.0.extend([0, 9, 0]);
        payload::decode(&sealed(&self.0), LIMIT)
    }
}

/// The module numbers, from the golden payloads.
fn module(dump: &str) -> u64 {
    u64::from_be_bytes(read(dump)[2..10].try_into().unwrap()) & !1023
}

#[test]
fn payloads_of_older_encodings_are_read() {
    let golden = &BLOOMS[8]; // the 32-bit hash, a power of two of bits
    let bloom = load_bloom(golden);
    let link = bloom.links().next().unwrap();
    let (_, data) = chunks(golden.name, 1);
    let mut bytes = vec![0x80];
    bytes.extend((data[0].1.len() as u32).to_be_bytes());
    bytes.extend(&data[0].1);
    let id = module("bf-str-10.dump");
    for encoding in 1..=4 {
        let mut fields = Fields::of(id, encoding).number(bloom.items()).number(1);
        fields = if encoding >= 2 { fields.number(0) } else { fields };
        fields = if encoding >= 4 { fields.number(2) } else { fields };
        let fields = fields.number(link.entries).double(link.rate).number(link.hashes.into());
        let fields = fields.double(link.bpe).number(link.bits).number(link.log2_bits.into());
        match fields.string(&bytes).number(link.size).decode() {
            Ok(Restored::Bloom(restored)) => {
                assert_eq!(restored.links().next(), Some(link), "encoding {encoding}");
                check_probes(golden.name, golden.form, |item| restored.contains(item));
            }
            other => panic!("encoding {encoding}: {other:?}"),
        }
    }
    // Encoding 0 has no bits: they follow from the entries, and do not fill the last byte.
    let link = |bytes: &[u8]| {
        let fields = Fields::of(id, 0).number(0).number(1).number(10).double(0.01).number(7);
        fields.double(9.585).string(bytes).number(0).decode()
    };
    let mut stored = [0; 14];
    stored[0] = 12;
    match link(&stored[..13]) {
        Ok(Restored::Bloom(bloom)) => {
            let made = bloom.links().next().unwrap();
            assert_eq!((made.bits, made.bytes), (95, 12));
            exercise(Restored::Bloom(bloom));
        }
        other => panic!("{other:?}"),
    }
    stored[0] = 11;
    assert!(matches!(link(&stored[..12]), Err(ForeignError::Damaged { .. })), "too few bytes");

    let id = module("cf-str-10.dump");
    for encoding in 0..4 {
        let fields = Fields::of(id, encoding).number(1).number(2).number(3).number(2);
        match fields.string(&[4, 1, 2, 3, 0]).decode() {
            Ok(Restored::Cuckoo(cuckoo)) => {
                assert_eq!((cuckoo.items(), cuckoo.deletes(), cuckoo.bytes()), (3, 0, 4));
                assert_eq!((cuckoo.bucket_size(), cuckoo.max_iterations()), (2, 20));
            }
            other => panic!("encoding {encoding}: {other:?}"),
        }
    }
    let error = Fields::of(id, 5).decode().unwrap_err();
    assert!(matches!(error, ForeignError::NewerEncoding { got: 5, supported: 4 }), "{error}");
}

#[test]
fn strings_in_every_form_are_read_and_none_is_believed() {
    let id = module("cf-str-10.dump");
    let cuckoo = |buckets: u64, stored: &[u8]| {
        let fields = Fields::of(id, 4).number(1).number(buckets).number(0).number(0);
        let fields = fields.number(2).number(20).number(1).number(buckets);
        match fields.string(stored).decode() {
            Ok(Restored::Cuckoo(cuckoo)) => Ok(entries(&cuckoo)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        }
    };
    // Fingerprints that look like a number are stored as one.
    assert_eq!(cuckoo(1, &[0xc0, 0xff]).unwrap(), b"-1");
    assert_eq!(cuckoo(2, &[0xc1, 0xd2, 0x04]).unwrap(), b"1234");
    assert_eq!(cuckoo(4, &[0xc2, 0x4e, 0x61, 0xbc, 0]).unwrap(), b"12345678");
    // LZF: three bytes as they are, then 13 more from 3 back.
    let stream = [2, 7, 8, 9, 7 << 5, 4, 2];
    let mut stored = vec![0xc3, stream.len() as u8, 16];
    stored.extend(stream);
    assert_eq!(cuckoo(8, &stored).unwrap(), [7, 8, 9, 7, 8, 9, 7, 8, 9, 7, 8, 9, 7, 8, 9, 7]);
    let refused: [(u64, &[u8]); 9] = [
        (1, &[0xc0]),                                     // ends too early
        (2, &[0xc1, 12, 0]),                              // two bytes, not four
        (8, &[0xc4, 1]),                                  // no such form
        (1, &[0x82, 0, 0, 0, 2, 1, 1]),                   // no such length
        (8, &[0xc3, 3, 16, 0, 7, 7 << 5]),                // LZF that ends too early
        (8, &[0xc3, 4, 16, 0, 7, 1 << 5, 9]),             // from before the beginning
        (8, &[0xc3, 5, 16, 0, 7, 7 << 5, 200, 0]),        // beyond the end
        (8, &[0xc3, 2, 16, 0, 7]),                        // not to the end
        (1 << 20, &[0xc3, 2, 0x80, 0, 0x20, 0, 0, 0, 7]), // 2 MiB from two bytes
    ];
    for (buckets, stored) in refused {
        let error = cuckoo(buckets, stored).unwrap_err();
        assert!(matches!(error, ForeignError::Damaged { .. }), "{stored:?}: {error}");
    }
}

#[test]
fn errors_say_what_was_expected_what_came_and_what_to_do() {
    let mut header = read("bf-str-10.chunk0.bin");
    let text = |header: &[u8]| Bloom::from_header(header, LIMIT).unwrap_err().to_string();
    assert_eq!(
        text(&header[..72]),
        "header: expected 20 + 53 * 1 bytes for 1 links, got 72; dump the filter again from its server"
    );
    header[60] = 9; // hashes
    assert!(text(&header).starts_with("hashes of a link: expected 8 for "), "{}", text(&header));
    assert!(text(&header).contains(", got 9; "), "{}", text(&header));
    let error = Bloom::new(0.01, 1 << 40, 2, 1000).unwrap_err().to_string();
    assert!(error.ends_with("bytes, the limit is 1000: raise the limit, or use a smaller filter"));
}
