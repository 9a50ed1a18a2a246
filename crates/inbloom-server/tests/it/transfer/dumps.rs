//! SCANDUMP: copies of everything, also of what is being changed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128};

use crate::transfer::client::{Answer, Client, Integer, ok, server};

/// Commands that make a filter of every kind, and how many items it is given.
const KINDS: &[(&str, usize)] = &[
    ("BF.RESERVE f 0.01 1000", 500),
    ("BF.RESERVE f 0.01 1000", 0),
    ("BF.RESERVE f 0.000001 300000 NONSCALING", 2000),
    ("BF.RESERVE f 0.01 100 EXPANSION 3", 5000),
    ("BF.RESERVE f 0.001 20000", 60_000),
    ("BF.RESERVE f 0.01 1000 KIND classic", 500),
    ("BF.RESERVE f 0.01 1000 KIND counting", 500),
    ("BF.RESERVE f 0.01 300000 KIND cuckoo", 5000),
    ("BF.RESERVE f 0.01 1000 KIND redisbloom", 5000),
    ("BF.RESERVE f 0.01 2000000 KIND redisbloom", 5000),
    ("BF.RESERVE f 0.01 1000 WINDOW 1h", 500),
    ("BF.RESERVE f 0.01 1000 AUTOCLEAR 0.5", 500),
    ("CF.RESERVE f 1000", 500),
    ("CF.RESERVE f 64 EXPANSION 2", 5000),
    ("CF.RESERVE f 3000000", 5000),
];

#[test]
fn copies_of_all_kinds_answer_alike() {
    for (made, count) in KINDS {
        let mut client = Client::alone();
        assert_eq!(client.say(made), ok(), "{made}");
        let family = &made[..2];
        let adds: &[&str] = if family == "CF" { &["CF.INSERT", "ITEMS"] } else { &["BF.MADD"] };
        client.fill(adds, "f", *count);
        assert_eq!(client.copy(family, "f", "g"), ok(), "{made}");
        let payload = client.say("DUMP f").bulk();
        assert_eq!(client.send(&[b"RESTORE", b"h", b"0", &payload]), ok(), "{made}");
        for copy in ["g", "h"] {
            for question in [format!("{family}.INFO"), format!("{family}.DEBUG")] {
                let (here, there) = (format!("{question} f"), format!("{question} {copy}"));
                assert_eq!(client.say(&here), client.say(&there), "{made}, {count}");
            }
            let ask = format!("{family}.MEXISTS");
            let expected = client.ask(&ask, "f", "f", *count);
            assert!(expected.iter().all(|answer| *answer == Integer(1)), "{made}");
            assert_eq!(client.ask(&ask, copy, "f", *count), expected, "{made}");
            // False positives and all.
            let strangers = client.ask(&ask, "f", "stranger", 20_000);
            assert_eq!(client.ask(&ask, copy, "stranger", 20_000), strangers, "{made}");
        }
        // And it goes on like the first.
        if family == "BF" {
            let add = |client: &mut Client, key: &str| client.ask("BF.MADD", key, "more", 3000);
            let expected = add(&mut client, "f");
            assert_eq!(add(&mut client, "g"), expected, "{made}");
        }
    }
}

/// The example that `transfer/dump_format.rs` works through. What was dumped once has to be read for ever.
#[test]
fn the_form_of_our_dumps_stays_what_it_is() {
    let mut client = Client::alone();
    assert_eq!(client.say("BF.RESERVE f 0.01 100"), ok());
    let pieces = client.pieces("BF", "f");
    let [(1, header), (193, piece)] = &pieces[..] else { panic!("{pieces:?}") };
    let mut expected = b"\x89IBD\r\n\x1a\n\x01\0\0\0\x02\0\0\0".to_vec();
    for field in [0, 100, 0.001f64.to_bits(), 192] {
        expected.extend(field.to_le_bytes());
    }
    assert_eq!((header.len(), &header[..48]), (88, &expected[..]));
    let pinned = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let (hash, identity) = (pinned(&header[64..72]), pinned(&header[72..80]));
    assert_eq!(u128::from(hash), xxh3_128(b"inbloom") & u128::from(u64::MAX));
    assert_eq!(identity, xxh3_64(&header[24..72]));
    assert_eq!((hash, identity), (3708474764702652609, 2369228602891471345));
    assert_eq!(pinned(&header[80..]), xxh3_64(&header[..80]));
    assert_eq!((piece.len(), &piece[..192]), (200, &[0; 192][..]));
    assert_eq!(pinned(&piece[192..]), xxh3_64_with_seed(&[0; 192], identity));
}

#[test]
fn an_empty_cuckoo_filter_is_dumped_as_nothing() {
    let mut client = Client::alone();
    assert_eq!(client.say("CF.RESERVE c 100000"), ok());
    for position in [0, 1, 5] {
        let answer = client.say(&format!("CF.SCANDUMP c {position}")).elements();
        assert_eq!(answer, [Integer(0), Answer::Nil("bulk")]);
    }
}

/// Two threads add while another dumps: every key acknowledged before iterator 0 is in the copy.
#[track_caller]
fn dump_while_adding(made: &str, adds: &[&str]) {
    let server = server(1 << 30);
    let mut client = Client::new(&server);
    assert_eq!(client.say(made), ok());
    let family = &made[..2];
    let (stop, done) = (AtomicBool::new(false), [AtomicUsize::new(0), AtomicUsize::new(0)]);
    thread::scope(|scope| {
        for (thread, done) in done.iter().enumerate() {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || {
                let mut client = Client::new(server);
                while !stop.load(Ordering::Relaxed) && done.load(Ordering::Relaxed) < 400_000 {
                    let first = done.load(Ordering::Relaxed);
                    let items: Vec<String> =
                        (first..first + 100).map(|at| format!("{thread}:{at}")).collect();
                    let line = format!("{} {}", adds.join(" "), items.join(" "));
                    assert!(matches!(client.say(&line), Answer::Array(_)));
                    done.store(first + 100, Ordering::Release);
                }
            });
        }
        for round in 0..4 {
            while done.iter().any(|done| done.load(Ordering::Acquire) < 20_000 * (round + 1)) {
                thread::yield_now();
            }
            let copy = format!("copy{round}");
            let acknowledged = done.each_ref().map(|done| done.load(Ordering::Acquire));
            assert_eq!(client.copy(family, "f", &copy), ok(), "{made}");
            for (thread, count) in acknowledged.into_iter().enumerate() {
                let answers =
                    client.ask(&format!("{family}.MEXISTS"), &copy, &thread.to_string(), count);
                let missing = answers.iter().filter(|answer| **answer != Integer(1)).count();
                assert_eq!(missing, 0, "{made}: of {count}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn no_key_is_lost_from_a_filter_that_is_added_to() {
    dump_while_adding("BF.RESERVE f 0.01 4000000", &["BF.MADD", "f"]);
}

#[test]
fn no_key_is_lost_from_a_filter_that_grows() {
    dump_while_adding("BF.RESERVE f 0.01 60000", &["BF.MADD", "f"]);
}

#[test]
fn no_key_is_lost_from_a_filter_of_redisbloom() {
    dump_while_adding("BF.RESERVE f 0.01 30000 KIND redisbloom", &["BF.MADD", "f"]);
}

#[test]
fn no_key_is_lost_from_a_cuckoo_filter_whose_entries_move() {
    dump_while_adding("CF.RESERVE f 2000000 EXPANSION 1", &["CF.INSERT", "f", "ITEMS"]);
    dump_while_adding("CF.RESERVE f 100000 EXPANSION 1", &["CF.INSERT", "f", "ITEMS"]);
}

#[test]
fn a_forgotten_copy_is_an_error_and_not_an_end() {
    let mut client = Client::alone();
    assert_eq!(client.say("BF.RESERVE f 0.01 100"), ok());
    client.fill(&["BF.MADD"], "f", 5000);
    let pieces = client.pieces("BF", "f");
    assert!(pieces.len() > 2 && client.server.transfers.bytes() > 0);
    let (last, _) = pieces[pieces.len() - 2];
    let minutes = inbloom_server::clock::now() + 61_000;
    client.server.transfers.forget_old(minutes);
    wait_for_nothing(&client);
    let text = client.say(&format!("BF.SCANDUMP f {last}")).error();
    assert!(text.contains("begin again with iterator 0"), "{text}");
    assert_eq!(client.copy("BF", "f", "g"), ok());
}

/// What is forgotten is freed by another thread.
pub fn wait_for_nothing(client: &Client) {
    let start = std::time::Instant::now();
    while client.server.transfers.bytes() > 0 {
        assert!(start.elapsed().as_secs() < 20, "{} bytes", client.server.transfers.bytes());
        thread::yield_now();
    }
}

#[test]
fn a_copy_does_not_serve_another_filter_of_its_name() {
    let mut client = Client::alone();
    assert_eq!(client.say("BF.RESERVE f 0.01 100 KIND counting"), ok());
    let payload = client.say("DUMP f").bulk();
    let pieces = client.pieces("BF", "f");
    assert_eq!(client.send(&[b"RESTORE", b"f", b"0", &payload, b"REPLACE"]), ok());
    let text = client.say(&format!("BF.SCANDUMP f {}", pieces[0].0)).error();
    assert!(text.contains("begin again"), "{text}");
}

#[test]
fn a_dump_takes_no_memory_for_what_only_gets_more_bits() {
    let mut client = Client::new(&server(20 << 20));
    assert_eq!(client.say("BF.RESERVE f 0.01 8000000"), ok());
    assert!(client.server.keyspace.used() > 9 << 20);
    assert!(client.pieces("BF", "f").len() > 9);
    assert!(client.server.transfers.bytes() < 1024, "its name, and where it ends");
    // A copy of it beside a second one does not fit.
    assert_eq!(client.say("BF.RESERVE g 0.01 4000000"), ok());
    let text = client.copy("BF", "f", "h").error();
    assert!(text.starts_with("ERR Insufficient memory to create filter: it takes "), "{text}");
    assert_eq!(client.say("CF.RESERVE c 2097152"), ok());
    assert_eq!(client.say("CF.ADD c x"), Integer(1));
    let text = client.say("CF.SCANDUMP c 0").error();
    assert!(text.starts_with("ERR Insufficient memory to create filter: it takes "), "{text}");
}

/// One more piece of a dump; false at its end.
fn go_on(client: &mut Client, family: &str, pieces: &mut Vec<(i64, Vec<u8>)>) -> bool {
    let iterator = pieces.last().map_or(0, |(iterator, _)| *iterator);
    let answer = client.say(&format!("{family}.SCANDUMP f {iterator}")).elements();
    let [Integer(next), data] = &answer[..] else { panic!("not two: {answer:?}") };
    if *next != 0 {
        pieces.push((*next, data.clone().bulk()));
    }
    *next != 0
}

/// Two clients dump a filter that is added to between their beginnings, a piece each in turn.
#[track_caller]
fn overlap(made: &str, adds: &[&str], counts: [usize; 2]) {
    let server = server(1 << 30);
    let (mut first, mut second) = (Client::new(&server), Client::new(&server));
    let family = &made[..2];
    assert_eq!(first.say(made), ok());
    first.fill(adds, "f", counts[0]);
    let (mut older, mut newer) = (Vec::new(), Vec::new());
    assert!(go_on(&mut first, family, &mut older));
    second.fill(adds, "f", counts[1]);
    let (mut has_older, mut has_newer) = (true, true);
    while has_older || has_newer {
        has_newer = has_newer && go_on(&mut second, family, &mut newer);
        has_older = has_older && go_on(&mut first, family, &mut older);
    }
    for (name, pieces, count) in [("older", older, counts[0]), ("newer", newer, counts[1])] {
        for (iterator, piece) in pieces {
            assert_eq!(first.load(family, name, iterator, &piece), ok(), "{made}: {name}");
        }
        let answers = first.ask(&format!("{family}.MEXISTS"), name, "f", count);
        assert!(answers.iter().all(|answer| *answer == Integer(1)), "{made}: {name}");
    }
}

#[test]
fn dumps_that_overlap_are_each_complete() {
    overlap("BF.RESERVE f 0.01 100", &["BF.MADD"], [5000, 6000]);
    overlap("BF.RESERVE f 0.01 1000 KIND counting", &["BF.MADD"], [400, 900]);
    overlap("BF.RESERVE f 0.01 300000 KIND cuckoo", &["BF.MADD"], [5000, 9000]);
    overlap("BF.RESERVE f 0.01 2000000 KIND redisbloom", &["BF.MADD"], [5000, 9000]);
    overlap("CF.RESERVE f 3000000", &["CF.INSERT", "ITEMS"], [5000, 9000]);
    overlap("CF.RESERVE f 64 EXPANSION 2", &["CF.INSERT", "ITEMS"], [5000, 9000]);
}

#[test]
fn a_dump_goes_on_over_another_connection_unless_it_cannot_be_told_which_it_is() {
    let server = server(1 << 30);
    let mut clients = [(); 3].map(|()| Client::new(&server));
    // The iterators of our own form name the copy.
    assert_eq!(clients[0].say("BF.RESERVE f 0.01 100"), ok());
    clients[0].fill(&["BF.MADD"], "f", 5000);
    let (mut older, mut newer) = (Vec::new(), Vec::new());
    assert!(go_on(&mut clients[0], "BF", &mut older));
    clients[0].fill(&["BF.MADD"], "f", 6000);
    assert!(go_on(&mut clients[1], "BF", &mut newer));
    for pieces in [&mut older, &mut newer] {
        while go_on(&mut clients[2], "BF", pieces) {}
    }
    for (name, pieces) in [("older", older), ("newer", newer)] {
        for (iterator, piece) in pieces {
            assert!(iterator < 1 << 53, "JavaScript counts no further: {iterator}");
            assert_eq!(clients[0].load("BF", name, iterator, &piece), ok(), "{name}");
        }
    }
    // Those of RedisBloom's form are positions, which RedisBloom reads.
    assert_eq!(clients[0].say("DEL f"), Integer(1));
    assert_eq!(clients[0].say("CF.RESERVE f 3000000"), ok());
    clients[0].fill(&["CF.INSERT", "ITEMS"], "f", 10);
    let mut pieces = Vec::new();
    assert!(go_on(&mut clients[0], "CF", &mut pieces));
    assert_eq!(pieces[0].0, 1);
    assert!(go_on(&mut clients[2], "CF", &mut pieces), "there is but one");
    clients[1].fill(&["CF.INSERT", "ITEMS"], "f", 20);
    assert!(go_on(&mut clients[1], "CF", &mut Vec::new()));
    let text = clients[2].say(&format!("CF.SCANDUMP f {}", pieces[1].0)).error();
    assert!(text.contains("other connections are dumping"), "{text}");
    while go_on(&mut clients[0], "CF", &mut pieces) {}
    for (iterator, piece) in pieces {
        assert_eq!(clients[0].load("CF", "copy", iterator, &piece), ok());
    }
}

#[test]
fn a_dump_does_not_go_on_with_the_copy_of_a_filter_that_took_the_name() {
    let server = server(1 << 30);
    let (mut first, mut second) = (Client::new(&server), Client::new(&server));
    let make = |client: &mut Client, count| {
        assert_eq!(client.say("CF.RESERVE f 3000000"), ok());
        client.fill(&["CF.INSERT", "ITEMS"], "f", count);
    };
    make(&mut first, 10);
    let mut pieces = Vec::new();
    assert!(go_on(&mut first, "CF", &mut pieces) && go_on(&mut first, "CF", &mut pieces));
    assert_eq!(second.say("DEL f"), Integer(1));
    make(&mut second, 20);
    assert!(go_on(&mut second, "CF", &mut Vec::new()));
    let text = first.say(&format!("CF.SCANDUMP f {}", pieces[1].0)).error();
    assert!(text.contains("begin again with iterator 0"), "{text}");
    assert_eq!(first.copy("CF", "f", "copy"), ok());
}

#[test]
fn numbers_of_dumps_do_not_start_again_with_the_server() {
    // The same for all four by chance: once in 5 * 10^11.
    let numbers = [(); 4].map(|()| {
        let mut client = Client::alone();
        assert_eq!(client.say("BF.RESERVE f 0.01 100 KIND counting"), ok());
        client.pieces("BF", "f")[0].0 >> 40
    });
    assert!(numbers.iter().all(|number| (1..=8191).contains(number)), "{numbers:?}");
    assert!(numbers.iter().any(|number| *number != numbers[0]), "{numbers:?}");
}

#[test]
fn a_piece_that_is_repeated_is_checked_by_its_place_without_the_number_of_the_dump() {
    let mut client = Client::alone();
    assert_eq!(client.say("BF.RESERVE f 0.01 1000000 KIND counting"), ok());
    let pieces = client.pieces("BF", "f");
    let (iterator, piece) = &pieces[2];
    assert!(*iterator > 1 << 40);
    assert_eq!(client.load("BF", "f", *iterator, piece).error(), "ERR item exists");
}
