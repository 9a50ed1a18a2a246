//! Filters of pyreBloom. What is expected was printed by its C source (github.com/seomoz/pyreBloom,
//! bloom.c and murmur.c), compiled against hiredis 0.14.1.

use inbloom_redis::{Added, Error, Found, PyreBloom};
use inbloom_testing::redis::Reply;

use crate::support::{connect, server};

#[test]
fn sizes_and_positions_are_those_of_the_c_source() {
    let Some(server) = server() else { return };
    let client = connect(&server.address());
    for (capacity, error, bits, hashes, key, positions) in [
        (1000, 0.01, 9585, 7, "a", &[8077, 8975, 4632, 5926, 2510, 7329, 513][..]),
        (1000, 0.01, 9585, 7, "hello", &[7012, 6264, 3098, 8084, 1439, 2498, 6959]),
        (1000, 0.01, 9585, 7, "12345678", &[8992, 1596, 5950, 5963, 3449, 4610, 1004]),
        (100, 0.5, 144, 1, "/8/8217/5159455.html", &[133]),
        (
            1_000_000,
            1e-4,
            19_170_116,
            14,
            "/8/8217/5159455.html",
            &[
                15_094_253, 5_911_881, 18_728_476, 579_675, 4_162_916, 6_224_491, 12_471_742,
                1_505_231, 18_695_073, 9_459_428, 3_906_560, 17_373_584, 10_220_125, 7_956_866,
            ],
        ),
        (
            400_000_000,
            1e-4,
            7_668_046_701,
            14,
            "a",
            &[
                1_128_648_361,
                7_519_367_774,
                5_186_515_650,
                1_552_852_732,
                1_742_259_239,
                7_465_339_173,
                2_268_225_585,
                5_958_340_419,
                2_591_783_324,
                4_740_126_926,
                1_927_574_039,
                7_228_125_519,
                2_699_182_052,
                8_514_734,
            ],
        ),
    ] {
        let filter = PyreBloom::open(&client, "f", capacity, error).expect("opened");
        assert_eq!((filter.bits(), filter.hashes()), (bits, hashes));
        assert_eq!(filter.positions(key), positions, "{capacity} {error} {key}");
    }
    for (capacity, error) in
        [(0, 0.1), (10, 0.0), (10, 1.0), (10, f64::NAN), (1, 0.9), (10, 1e-300)]
    {
        let refused = PyreBloom::open(&client, "f", capacity, error).expect_err("no such filter");
        assert!(matches!(refused, Error::Parameter { .. }), "{refused}");
    }
}

/// pyreBloom('live', 100000, 0.001) after 5000 adds of "key 0" to "key 4999": it reported 5000 new keys
/// and left 49,201 bits set. The string has the FNV-1a hash that is expected here.
#[test]
fn filters_of_pyrebloom_are_read_and_added_to_in_place() {
    let Some(server) = server() else { return };
    let client = connect(&server.address());
    let filter = PyreBloom::open(&client, "live", 100_000, 0.001).expect("opened");
    let keys: Vec<String> = (0..5000).map(|key| format!("key {key}")).collect();
    let (mut added, mut found) = (Vec::new(), Vec::new());
    filter.contains_many(&keys, &mut found).expect("answered");
    assert!(found.iter().all(|found| *found == Found::Absent));
    filter.insert_many(&keys, &mut added).expect("added");
    assert!(added.iter().all(|added| *added == Added::New));
    assert_eq!(server.ask(&["BITCOUNT", "live.0"]).text(), "49201");
    let Reply::Bulk(Some(string)) = server.ask(&["GET", "live.0"]) else { panic!("a string") };
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let hash = string.iter().fold(0xcbf2_9ce4_8422_2325, step);
    assert_eq!((string.len(), hash), (179_715, 0xd51f_93d9_2393_368f));
    filter.insert_many(&keys, &mut added).expect("added");
    assert!(added.iter().all(|added| *added == Added::Present));
    filter.contains_many(&keys, &mut found).expect("answered");
    assert!(found.iter().all(|found| *found == Found::Present));
    // As pyreBloom itself adds, bit by bit.
    for position in filter.positions("by hand") {
        server.ask(&["SETBIT", "live.0", &position.to_string(), "1"]);
    }
    filter.contains_many(&["by hand"], &mut found).expect("answered");
    assert_eq!(found, [Found::Present]);
}

#[test]
#[ignore = "the server takes 1 GiB"]
fn bits_beyond_one_string_are_in_the_next() {
    let Some(server) = server() else { return };
    let client = connect(&server.address());
    // The bits of "b" are spread over two strings.
    let filter = PyreBloom::open(&client, "big", 400_000_000, 1e-4).expect("opened");
    let (mut added, mut found) = (Vec::new(), Vec::new());
    filter.insert_many(&["b"], &mut added).expect("added");
    assert_eq!(added, [Added::New]);
    filter.contains_many(&["b", "c"], &mut found).expect("answered");
    assert_eq!(found, [Found::Present, Found::Absent]);
    for position in filter.positions("b") {
        let (string, offset) = (position / 0xffff_ffff, position % 0xffff_ffff);
        let bit = server.ask(&["GETBIT", &format!("big.{string}"), &offset.to_string()]);
        assert_eq!(bit.text(), "1");
    }
}
