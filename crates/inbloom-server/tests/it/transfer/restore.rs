//! DUMP and RESTORE.

use inbloom::internals::format::MAGIC;
use inbloom::{Kind, Plan};
use inbloom_server::clock::now;
use inbloom_server::keyspace::Key;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::transfer::client::{Answer, Client, Integer, ok, server};

const WRONG: &str = "ERR DUMP payload version or checksum are wrong";

#[test]
fn names_that_are_taken_are_busy_unless_replaced() {
    let mut client = Client::alone();
    assert_eq!(client.say("DUMP nothing"), Answer::Nil("bulk"));
    assert_eq!(client.say("BF.ADD a x"), Integer(1));
    let payload = client.say("DUMP a").bulk();
    let busy = "BUSYKEY Target key name already exists.";
    assert_eq!(client.send(&[b"RESTORE", b"a", b"0", &payload]).error(), busy);
    assert_eq!(client.send(&[b"RESTORE", b"a", b"0", b"garbage"]).error(), busy);
    assert_eq!(client.say("BF.ADD a y"), Integer(1));
    assert_eq!(client.send(&[b"RESTORE", b"a", b"0", &payload, b"replace"]), ok());
    assert_eq!(client.say("BF.EXISTS a y"), Integer(0));
    assert_eq!(client.say("BF.EXISTS a x"), Integer(1));
}

#[test]
fn times_and_options_are_checked() {
    let mut client = Client::alone();
    assert_eq!(client.say("CF.ADD a x"), Integer(1));
    let payload = client.say("DUMP a").bulk();
    let mut restore = |key: &str, ttl: &str, options: &[&str]| {
        let mut words: Vec<&[u8]> = vec![b"RESTORE", key.as_bytes(), ttl.as_bytes(), &payload];
        words.extend(options.iter().map(|option| option.as_bytes()));
        client.send(&words)
    };
    let error = |text: &str| Answer::Error(text.into());
    assert_eq!(restore("b", "-1", &[]), error("ERR Invalid TTL value, must be >= 0"));
    assert_eq!(restore("b", "x", &[]), error("ERR value is not an integer or out of range"));
    assert_eq!(restore("b", "0", &["REPLCE"]), error("ERR syntax error"));
    assert_eq!(restore("b", "0", &["IDLETIME"]), error("ERR syntax error"));
    let idle = "ERR Invalid IDLETIME value, must be >= 0";
    assert_eq!(restore("b", "0", &["IDLETIME", "-1"]), error(idle));
    let frequency = "ERR Invalid FREQ value, must be >= 0 and <= 255";
    assert_eq!(restore("b", "0", &["FREQ", "256"]), error(frequency));
    assert_eq!(restore("b", "0", &["FREQ", "1", "IDLETIME", "1"]), error("ERR syntax error"));
    assert_eq!(restore("b", "100000", &["IDLETIME", "5"]), ok());
    assert_eq!(restore("c", &(now() + 100_000).to_string(), &["ABSTTL", "FREQ", "7"]), ok());
    assert_eq!(restore("d", "1", &["ABSTTL"]), ok());
    assert_eq!(restore("c2", "0", &[]), ok());
    let expires = |name: &str| {
        let key = Key { database: 0, name: name.as_bytes() };
        client.server.keyspace.get(key, now()).map(|entry| entry.expires())
    };
    for name in ["b", "c"] {
        let left = expires(name).unwrap().unwrap() - now();
        assert!((90_000..=100_000).contains(&left), "{left}");
    }
    assert_eq!(expires("c2"), Some(None));
    assert_eq!(expires("d"), None, "it had expired before it came");
}

#[test]
fn damaged_payloads_are_refused() {
    let mut client = Client::alone();
    for made in ["BF.RESERVE a 0.01 30", "BF.RESERVE a 0.01 30 KIND redisbloom", "CF.RESERVE a 64"]
    {
        let mut client = Client::alone();
        assert_eq!(client.say(made), ok());
        assert_eq!(client.say(&format!("{}.ADD a x", &made[..2])), Integer(1));
        let payload = client.say("DUMP a").bulk();
        for at in 0..payload.len() {
            let mut flipped = payload.clone();
            flipped[at] ^= 1 << (at % 8);
            for damaged in [&flipped[..], &payload[..at]] {
                assert_eq!(client.send(&[b"RESTORE", b"b", b"0", damaged]).error(), WRONG);
            }
        }
        assert_eq!(client.send(&[b"RESTORE", b"b", b"0", &payload]), ok());
    }
    // A string of Redis, "hello" under RDB version 9: its checksum is for its reader to see.
    assert_eq!(client.send(&[b"RESTORE", b"b", b"0", b"\x00\x05hello"]).error(), WRONG);
}

#[test]
fn memory_is_checked_before_it_is_taken() {
    let mut client = Client::new(&server(8 << 20));
    assert_eq!(client.say("BF.RESERVE a 0.01 1000000"), ok());
    assert_eq!(client.say("CF.RESERVE b 500000"), ok());
    assert_eq!(client.say("CF.ADD b x"), Integer(1));
    for key in ["a", "b"] {
        let payload = client.say(&format!("DUMP {key}")).bulk();
        let mut small = Client::new(&server(100_000));
        let text = small.send(&[b"RESTORE", b"c", b"0", &payload]).error();
        assert!(text.starts_with("ERR Insufficient memory to create filter: it takes "), "{text}");
    }
}

#[test]
fn what_is_too_long_for_a_string_is_refused_with_the_way_to_copy_it() {
    let mut client = Client::alone();
    assert_eq!(client.say("BF.RESERVE a 0.01 60000000"), ok());
    let text = client.say("DUMP a").error();
    assert!(text.contains("BF.SCANDUMP and BF.LOADCHUNK"), "{text}");
}

/// Changes fields of the header of one of our payloads, and makes both checksums right again.
fn forged(payload: &[u8], fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut forged = payload.to_vec();
    for (at, bytes) in fields {
        forged[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    let sum = xxh3_64(&forged[..80]).to_le_bytes();
    forged[80..88].copy_from_slice(&sum);
    let end = forged.len() - 8;
    let sum = xxh3_64(&forged[..end]).to_le_bytes();
    forged[end..].copy_from_slice(&sum);
    forged
}

/// A filter that has grown, with a base for no keys at all, as the planner would lay it out.
fn of_capacity_zero(payload: &[u8], expansion: u32) -> Vec<u8> {
    let plan = Plan::builder(Kind::Blocked).items(0).rate(0.001).build().unwrap();
    let base = u64::from_le_bytes(payload[40..48].try_into().unwrap()) as usize;
    let mut short = payload[..88].to_vec();
    short.resize(88 + plan.bytes() as usize, 0);
    short.extend(&payload[88 + base..]);
    forged(
        &short,
        &[
            (12, &expansion.to_le_bytes()),
            (24, &0u64.to_le_bytes()),
            (32, &plan.rate().to_le_bytes()),
            (40, &plan.bytes().to_le_bytes()),
            (48, &plan.probes().to_le_bytes()),
            (52, &plan.lines().to_le_bytes()),
        ],
    )
}

#[test]
fn a_filter_that_none_could_reserve_is_not_restored() {
    let mut client = Client::alone();
    assert_eq!(client.say("BF.RESERVE a 0.01 100"), ok());
    client.fill(&["BF.MADD"], "a", 500);
    let payload = client.say("DUMP a").bulk();
    assert_eq!(client.send(&[b"RESTORE", b"same", b"0", &forged(&payload, &[])]), ok());
    for expansion in [1, 2] {
        let zero = of_capacity_zero(&payload, expansion);
        let text = client.send(&[b"RESTORE", b"zero", b"0", &zero]).error();
        assert_eq!(text, "ERR received bad data: capacity is 0, but must be from 1 to 2^62");
        assert_eq!(client.load("BF", "zero", 1, &zero[..88]).error(), text);
        assert_eq!(client.say("BF.INFO zero").error(), "ERR not found");
    }
    for (at, field, named) in [
        (12, 32_769u64.to_le_bytes(), "expansion is 32769"),
        (32, 0.5f64.to_le_bytes(), "rate is 5,"),
        (32, 0.0f64.to_le_bytes(), "rate is 0,"),
        (32, f64::NAN.to_le_bytes(), "rate is NaN"),
        (16, u64::MAX.to_le_bytes(), "items is 18446744073709551615"),
    ] {
        let bytes = if at == 12 { &field[..4] } else { &field[..] };
        let forged = forged(&payload, &[(at, bytes)]);
        let text = client.send(&[b"RESTORE", b"forged", b"0", &forged]).error();
        assert!(text.contains(named), "{named}: {text}");
    }
}

#[test]
fn a_window_that_arrives_counts_with_the_generations_that_are_still_to_come() {
    let mut client = Client::alone();
    assert_eq!(client.say("BF.RESERVE w 0.01 100000 WINDOW 1h"), ok());
    assert_eq!(client.say("BF.ADD w x"), Integer(1));
    let (payload, pieces) = (client.say("DUMP w").bulk(), client.pieces("BF", "w"));
    let key = Key { database: 0, name: b"w" };
    let memory = client.server.keyspace.get(key, now()).unwrap().value.memory();
    assert!(memory > 2 * payload.len() as u64, "{memory} of {}", payload.len());
    let text = "ERR Insufficient memory to create filter: it takes ";
    let mut small = Client::new(&server(memory - 1));
    let refused = small.send(&[b"RESTORE", b"w", b"0", &payload]).error();
    assert!(refused.starts_with(text), "{refused}");
    let answers = pieces.iter().map(|(iterator, piece)| small.load("BF", "w", *iterator, piece));
    let refused = answers.last().unwrap().error();
    assert!(refused.starts_with(text), "{refused}");
    assert_eq!(small.say("EXISTS w"), Integer(0));
    assert_eq!(small.server.limits.in_use(), 0);
    let mut one = Client::new(&server(memory + memory / 2));
    assert_eq!(one.send(&[b"RESTORE", b"w", b"0", &payload]), ok());
    let refused = one.say("IB.MERGE copy w").error();
    assert!(refused.starts_with(text), "{refused}");
}

/// The payload of a filter that is a file of its own.
fn payload_of(filter: &inbloom::Filter) -> Vec<u8> {
    let mut client = Client::alone();
    assert_eq!(client.say("BF.RESERVE a 0.01 30 KIND counting"), ok());
    let mut file = Vec::new();
    filter.write_to(&mut file).unwrap();
    let mut payload = client.say("DUMP a").bulk()[..88].to_vec();
    payload.extend(&file);
    payload.extend([0; 8]);
    forged(&payload, &[(56, &(file.len() as u64).to_le_bytes())])
}

#[test]
fn a_filter_that_brings_a_growing_part_grows_within_the_limits() {
    let scalable = Plan::builder(Kind::Scalable).items(1000).rate(0.01).build().unwrap();
    let blocked = Plan::builder(Kind::Blocked).items(1000).rate(0.01).growing().build().unwrap();
    let blocked = inbloom::Filter::new(blocked).unwrap().into_growing().unwrap();
    for filter in [inbloom::Filter::new(scalable).unwrap(), blocked] {
        // Planned for many keys in the bits of few, as a file may say.
        let mut payload = payload_of(&filter);
        let (few, many) = (1000u64.to_le_bytes(), 10_000_000u64.to_le_bytes());
        let items = payload[88..].windows(8).position(|field| field == few).unwrap();
        payload[88 + items..][..8].copy_from_slice(&many);
        let end = payload.len() - 8;
        inbloom_testing::forge::seal(&mut payload[88..end]);
        let payload = forged(&payload, &[]);
        let limit = 2 << 20;
        let mut client = Client::new(&server(limit));
        assert_eq!(client.send(&[b"RESTORE", b"f", b"0", &payload]), ok());
        let mut refused = None;
        for first in (0..2_000_000).step_by(1000) {
            let items: Vec<String> = (first..first + 1000).map(|at| at.to_string()).collect();
            let answers = client.say(&format!("BF.MADD f {}", items.join(" "))).elements();
            if let Some(Answer::Error(text)) = answers.last() {
                refused = Some(text.clone());
                break;
            }
        }
        let refused = refused.expect("2 MiB are not enough for this");
        assert!(refused.contains("cannot grow"), "{refused}");
        let used = client.server.limits.in_use();
        assert!(used <= limit + limit / 4, "{used} bytes");
        assert_eq!(client.say("BF.ADD f 7"), Integer(0), "what is in can be added again");
    }
}

#[test]
fn a_filter_of_a_retired_layout_is_refused_by_name() {
    let mut client = Client::alone();
    assert_eq!(client.say("BF.RESERVE a 0.01 100"), ok());
    for item in 0..300 {
        client.say(&format!("BF.ADD a {item}"));
    }
    let mut payload = client.say("DUMP a").bulk();
    let end = payload.len() - 8;
    let file =
        payload.windows(8).rposition(|window| window == MAGIC).expect("what it has grown by");
    // The layout and the checksum of the file's header, as docs/format.md draws them.
    payload[file + 54..file + 56].copy_from_slice(&0u16.to_le_bytes());
    payload[file + 120..file + 128].fill(0);
    let sections = u32::from_le_bytes(payload[file + 12..file + 16].try_into().unwrap()) as usize;
    let sum = xxh3_64(&payload[file..file + 128 + 32 * sections]);
    payload[file + 120..file + 128].copy_from_slice(&sum.to_le_bytes());
    // Those of the dump: see `value/dump_format.rs`.
    let identity = xxh3_64_with_seed(&payload[24..72], xxh3_64(&payload[file..end]));
    payload[72..80].copy_from_slice(&identity.to_le_bytes());
    let sum = xxh3_64(&payload[..80]);
    payload[80..88].copy_from_slice(&sum.to_le_bytes());
    let sum = xxh3_64(&payload[..end]);
    payload[end..].copy_from_slice(&sum.to_le_bytes());
    let error = client.send(&[b"RESTORE", b"b", b"0", &payload]).error();
    let expected = "layout: expected 1 in a filter of kind scalable, got 0; this inbloom no longer \
                    reads that layout; build the filter again from its keys";
    assert!(error.contains(expected), "{error}");
}
