//! LOADCHUNK: nothing is seen before it is whole, and nothing foreign is believed.

use std::sync::{Arc, Barrier};

use inbloom_server::clock::now;

use crate::transfer::client::{Answer, Client, Integer, ok, server};
use crate::transfer::dumps::wait_for_nothing;

/// A family of commands, and the pieces of a dump.
type Dump = (&'static str, Vec<(i64, Vec<u8>)>);

/// A client with a filter of each form: one that has not grown, one that has, one of another kind,
/// and two of RedisBloom's.
fn dumped() -> (Client, Vec<Dump>) {
    let mut client = Client::alone();
    assert_eq!(client.say("BF.RESERVE a 0.01 30"), ok());
    assert_eq!(client.say("BF.RESERVE b 0.01 30"), ok());
    assert_eq!(client.say("BF.RESERVE c 0.01 30 KIND counting"), ok());
    assert_eq!(client.say("BF.RESERVE d 0.01 30 KIND redisbloom"), ok());
    assert_eq!(client.say("CF.RESERVE e 100"), ok());
    let mut dumps = Vec::new();
    for (key, count) in [("a", 20), ("b", 100), ("c", 20), ("d", 100), ("e", 20)] {
        let family = if key == "e" { "CF" } else { "BF" };
        let adds: &[&str] = if key == "e" { &["CF.INSERT", "ITEMS"] } else { &["BF.MADD"] };
        client.fill(adds, key, count);
        dumps.push((family, client.pieces(family, key)));
    }
    (client, dumps)
}

#[test]
fn half_loaded_filters_are_invisible_and_forgotten() {
    let (mut client, dumps) = dumped();
    client.server.transfers.forget_old(now() + 61_000);
    wait_for_nothing(&client);
    let used = client.server.keyspace.used();
    for (at, (family, pieces)) in dumps.iter().enumerate() {
        let key = format!("copy{at}");
        for (iterator, piece) in &pieces[..pieces.len() - 1] {
            assert_eq!(client.load(family, &key, *iterator, piece), ok());
        }
        assert_eq!(client.say(&format!("{family}.INFO {key}")).error(), "ERR not found");
        assert_eq!(client.say(&format!("{family}.EXISTS {key} a:1")), Integer(0));
        assert_eq!(client.say(&format!("DUMP {key}")), Answer::Nil("bulk"));
    }
    assert_eq!(client.server.keyspace.used(), used);
    assert!(client.server.transfers.bytes() > 0);
    client.server.transfers.forget_old(now() + 590_000);
    assert!(client.server.transfers.bytes() > 0);
    client.server.transfers.forget_old(now() + 601_000);
    wait_for_nothing(&client);
    let (family, pieces) = &dumps[0];
    let (iterator, piece) = &pieces[1];
    assert_eq!(client.load(family, "copy0", *iterator, piece).error(), "ERR not found");
}

#[test]
fn pieces_come_in_any_order_and_repeated() {
    let (mut client, dumps) = dumped();
    for (at, (family, pieces)) in dumps.iter().enumerate() {
        let key = format!("copy{at}");
        let (header, body) = pieces.split_first().unwrap();
        for round in 0..2 {
            // The header once more begins anew: what came before does not count.
            assert_eq!(client.load(family, &key, header.0, &header.1), ok());
            for (iterator, piece) in body.iter().rev().skip(1 - round) {
                assert_eq!(client.load(family, &key, *iterator, piece), ok());
                let again = client.load(family, &key, *iterator, piece);
                // Published, it is not known whether a piece of a file would change the filter.
                let is_file = at == 1 || at == 2;
                assert!(again == ok() || round == 1 && is_file, "{again:?}");
            }
            let info = client.say(&format!("{family}.INFO {key}"));
            assert_eq!(matches!(info, Answer::Error(_)), round == 0, "{info:?}");
        }
    }
}

/// A client whose time is up connects again and sends the last piece once more, while the server is
/// still busy with the first one.
#[test]
fn the_last_piece_may_come_twice_at_once() {
    let mut client = Client::alone();
    let server = Arc::clone(&client.server);
    let made = [("BF", "BF.RESERVE f 0.01 200000"), ("CF", "CF.RESERVE f 200000")];
    for (family, reserve) in made {
        assert_eq!(client.say(reserve), ok());
        assert_eq!(client.say(&format!("{family}.ADD f here")), Integer(1));
        let pieces = client.pieces(family, "f");
        let (last, first) = pieces.split_last().unwrap();
        for round in 0..200 {
            let key = format!("{family}{round}");
            for (iterator, piece) in first {
                assert_eq!(client.load(family, &key, *iterator, piece), ok());
            }
            let barrier = Barrier::new(3);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        let mut client = Client::new(&server);
                        barrier.wait();
                        assert_eq!(client.load(family, &key, last.0, &last.1), ok(), "{key}");
                    });
                }
            });
            assert_eq!(client.say(&format!("{family}.EXISTS {key} here")), Integer(1));
            assert_eq!(client.say(&format!("DEL {key}")), Integer(1));
        }
        assert_eq!(client.say("DEL f"), Integer(1));
    }
}

#[test]
fn foreign_pieces_may_be_of_any_size() {
    let (mut client, dumps) = dumped();
    for (at, family) in [(3, "BF"), (4, "CF")] {
        let key = format!("copy{at}");
        let (header, body) = dumps[at].1.split_first().unwrap();
        assert_eq!(client.load(family, &key, header.0, &header.1), ok());
        for (end, piece) in body {
            let start = end - piece.len() as i64;
            for first in (0..piece.len()).step_by(7).rev() {
                // Each overlaps the next by some bytes.
                let part = &piece[first..piece.len().min(first + 11)];
                let iterator = start + (first + part.len()) as i64;
                assert_eq!(client.load(family, &key, iterator, part), ok());
            }
        }
        let name = &"abcde"[at..=at];
        let info = client.say(&format!("{family}.INFO {name}"));
        assert_eq!(client.say(&format!("{family}.INFO {key}")), info);
    }
}

#[test]
fn a_name_that_is_taken_meanwhile_stays_what_it_is() {
    let (mut client, dumps) = dumped();
    for (at, (family, pieces)) in dumps.iter().enumerate() {
        let key = format!("copy{at}");
        let (last, first) = pieces.split_last().unwrap();
        for (iterator, piece) in first {
            assert_eq!(client.load(family, &key, *iterator, piece), ok());
        }
        assert_eq!(client.say(&format!("BF.ADD {key} mine")), Integer(1));
        assert!(matches!(client.load(family, &key, last.0, &last.1), Answer::Error(_)));
        assert_eq!(client.say(&format!("BF.CARD {key}")), Integer(1));
        let other = if *family == "BF" { "CF" } else { "BF" };
        assert!(matches!(client.load(other, &key, last.0, &last.1), Answer::Error(_)));
    }
}

#[test]
fn a_filter_that_is_there_is_not_overwritten() {
    let (mut client, dumps) = dumped();
    // The same bytes change nothing.
    for (at, key) in [(0, "a"), (3, "d"), (4, "e")] {
        let (family, pieces) = &dumps[at];
        for (iterator, piece) in &pieces[1..] {
            assert_eq!(client.load(family, key, *iterator, piece), ok());
        }
    }
    let zeros = vec![0; 8];
    assert_eq!(client.load("BF", "d", 9, &zeros).error(), "ERR item exists");
    assert_eq!(client.load("CF", "e", 9, &zeros).error(), "ERR item exists");
    assert_eq!(client.load("BF", "a", 9, &zeros).error(), "ERR item exists");
    assert_eq!(
        client.load("BF", "d", 1 << 40, &zeros).error(),
        "ERR invalid offset - no link found"
    );
    assert_eq!(client.load("CF", "e", 1, b"x").error(), "ERR item exists");
}

#[test]
fn every_damaged_header_and_piece_is_refused_or_makes_a_working_filter() {
    let (mut client, dumps) = dumped();
    let mut loaded = 0;
    for (of, (family, pieces)) in dumps.iter().enumerate() {
        // Our own form has checksums: nothing that is damaged gets through.
        let is_ours = of < 3;
        for (at, (_, piece)) in pieces.iter().enumerate() {
            let cuts =
                (0..piece.len()).step_by(piece.len() / 60 + 1).map(|cut| piece[..cut].to_vec());
            let flips = (0..8 * piece.len()).step_by(piece.len() / 60 + 1).map(|bit| {
                let mut piece = piece.clone();
                piece[bit / 8] ^= 1 << (bit % 8);
                piece
            });
            for damaged in cuts.chain(flips) {
                loaded += 1;
                let key = format!("copy{loaded}");
                let mut refused = false;
                for (other, (iterator, whole)) in pieces.iter().enumerate() {
                    let data = if other == at { &damaged } else { whole };
                    refused |= client.load(family, &key, *iterator, data) != ok();
                }
                if is_ours {
                    assert!(refused, "{of}, piece {at}");
                }
                // If it is there, it works.
                let exists = client.say(&format!("{family}.INFO {key}"));
                if !matches!(exists, Answer::Error(_)) {
                    client.say(&format!("{family}.ADD {key} item"));
                    client.pieces(family, &key);
                    client.say(&format!("DUMP {key}"));
                }
            }
        }
        client.server.transfers.forget_old(now() + 601_000);
    }
    assert!(loaded > 500, "{loaded}");
}

#[test]
fn pieces_of_another_dump_are_refused() {
    let mut client = Client::alone();
    for key in ["a", "b"] {
        assert_eq!(client.say(&format!("BF.RESERVE {key} 0.01 30 KIND counting")), ok());
        client.fill(&["BF.MADD"], key, 20);
    }
    let (a, b) = (client.pieces("BF", "a"), client.pieces("BF", "b"));
    assert_eq!(client.load("BF", "copy", a[0].0, &a[0].1), ok());
    assert_eq!(client.load("BF", "copy", b[1].0, &b[1].1).error(), "ERR received bad data");
    assert_eq!(client.load("BF", "copy", a[1].0, &a[1].1), ok());
    assert_eq!(client.say("BF.CARD copy"), Integer(20));
}

#[test]
fn memory_is_checked_before_it_is_taken() {
    let mut big = Client::alone();
    assert_eq!(big.say("BF.RESERVE a 0.01 80000000"), ok());
    assert_eq!(big.say("BF.RESERVE b 0.01 80000000 KIND redisbloom"), ok());
    assert_eq!(big.say("CF.RESERVE c 80000000"), ok());
    assert_eq!(big.say("CF.ADD c x"), Integer(1));
    let mut small = Client::new(&server(1 << 20));
    for (family, key) in [("BF", "a"), ("BF", "b"), ("CF", "c")] {
        let header = big.say(&format!("{family}.SCANDUMP {key} 0")).elements()[1].clone().bulk();
        let text = small.load(family, key, 1, &header).error();
        assert!(text.starts_with("ERR Insufficient memory to create filter: it takes "), "{text}");
    }
    assert_eq!(small.server.transfers.bytes(), 0);
    // What is being loaded counts for others too.
    let mut half = Client::new(&server(3 << 20));
    assert_eq!(half.say("BF.RESERVE a 0.01 1000000"), ok());
    let header = half.say("BF.SCANDUMP a 0").elements()[1].clone().bulk();
    assert_eq!(half.load("BF", "b", 1, &header), ok());
    let text = half.say("BF.RESERVE c 0.01 1000000").error();
    assert!(text.starts_with("ERR Insufficient memory to create filter: it takes "), "{text}");
}

#[test]
fn filters_that_are_being_loaded_are_limited_in_number() {
    let mut client = Client::alone();
    assert_eq!(client.say("BF.RESERVE a 0.01 30"), ok());
    let header = client.pieces("BF", "a")[0].1.clone();
    let refused = (0..2000).find_map(|at| match client.load("BF", &format!("b{at}"), 1, &header) {
        Answer::Error(text) => Some((at, text)),
        _ => None,
    });
    let (at, text) = refused.expect("a limit");
    assert_eq!(at, 1024);
    assert!(text.starts_with("ERR 1024 filters are being loaded, the limit: "), "{text}");
    // One that is there may begin anew.
    assert_eq!(client.load("BF", "b7", 1, &header), ok());
}
