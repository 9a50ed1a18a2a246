//! Cuckoo filters that several clients use at once: nothing is missed while others move entries, and
//! one client alone is told that an item is new.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::client::{Client, request, server};

/// What single-item calls of one command are answered, in one pipeline.
fn integers(client: &mut Client<'_>, word: &str, key: &str, items: &[String]) -> Vec<i64> {
    let requests = items.iter().flat_map(|item| request(&[word, key, item]));
    let (replies, progress) = client.send(&requests.collect::<Vec<u8>>());
    assert!(progress.commit.is_none());
    let number = |line: &str| {
        let digits = line.strip_prefix(':').unwrap_or_else(|| panic!("{word}: {line}"));
        digits.parse().expect("a number")
    };
    replies.lines().map(number).collect()
}

#[test]
fn no_reader_of_a_cuckoo_filter_misses_an_item_while_others_are_moved() {
    const WRITERS: u64 = 2;
    const READERS: u64 = 2;
    const ITEMS: u64 = 12_000;
    let server = server();
    // Sub-filters that are filled to the last slot that moves can free.
    let reserved = Client::new(&server).say("CF.RESERVE c 4096 BUCKETSIZE 2 MAXITERATIONS 500");
    assert_eq!(reserved, "+OK\r\n");
    let acknowledged: [AtomicU64; WRITERS as usize] = Default::default();
    let item = |writer: u64, number: u64| format!("{writer}:{number}");
    std::thread::scope(|scope| {
        for (writer, done) in (0..).zip(&acknowledged) {
            let server = &server;
            scope.spawn(move || {
                let mut client = Client::new(server);
                for begin in (0..ITEMS).step_by(16) {
                    let items: Vec<String> =
                        (begin..begin + 16).map(|number| item(writer, number)).collect();
                    let added = integers(&mut client, "CF.ADD", "c", &items);
                    assert_eq!(added, [1; 16]);
                    // One that goes again: its slot is filled by moves of others.
                    let passing = [format!("{writer} passes {begin}")];
                    assert_eq!(integers(&mut client, "CF.ADD", "c", &passing), [1]);
                    assert_eq!(integers(&mut client, "CF.DEL", "c", &passing), [1]);
                    done.store(begin + 16, Ordering::Release);
                }
            });
        }
        for reader in 0..READERS {
            let (server, acknowledged) = (&server, &acknowledged);
            scope.spawn(move || {
                let mut client = Client::new(server);
                let mut random = inbloom_testing::Random(reader);
                let mut rounds = 0;
                loop {
                    let done: Vec<u64> =
                        acknowledged.iter().map(|done| done.load(Ordering::Acquire)).collect();
                    let items: Vec<String> = (0..48)
                        .map(|at| at % WRITERS)
                        .filter(|writer| done[*writer as usize] > 0)
                        .map(|writer| item(writer, random.below(done[writer as usize])))
                        .collect();
                    let found = integers(&mut client, "CF.EXISTS", "c", &items);
                    let counts = integers(&mut client, "CF.COUNT", "c", &items);
                    for ((item, found), count) in items.iter().zip(found).zip(counts) {
                        assert!(found == 1 && count >= 1, "{item}: found {found}, {count} times");
                    }
                    let words = ["CF.MEXISTS", "c"].into_iter();
                    let words: Vec<&str> = words.chain(items.iter().map(String::as_str)).collect();
                    if !items.is_empty() {
                        let (answers, _) = client.send(&request(&words));
                        assert_eq!(answers.matches(":1\r\n").count(), items.len(), "{answers}");
                    }
                    rounds += 1;
                    if done.iter().all(|done| *done == ITEMS) {
                        break;
                    }
                }
                assert!(rounds > 10, "reader {reader} saw only {rounds} states");
            });
        }
    });
    let info = Client::new(&server).say("CF.INFO c");
    assert!(info.contains(&format!("inserted\r\n:{}\r\n", WRITERS * ITEMS)), "{info}");
}

#[test]
fn of_clients_that_race_to_add_an_item_one_is_told_that_it_was_new() {
    const CLIENTS: usize = 4;
    const ITEMS: usize = 4000;
    let server = server();
    assert_eq!(Client::new(&server).say("CF.RESERVE c 100000"), "+OK\r\n");
    let items: Vec<String> = (0..ITEMS).map(|number| number.to_string()).collect();
    let start = std::sync::Barrier::new(CLIENTS);
    let answers: Vec<Vec<i64>> = std::thread::scope(|scope| {
        let race = || {
            let mut client = Client::new(&server);
            start.wait();
            let runs = items.chunks(16);
            runs.flat_map(|run| integers(&mut client, "CF.ADDNX", "c", run)).collect()
        };
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(race)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no client fails")).collect()
    });
    let mut absent = 0;
    for (at, item) in items.iter().enumerate() {
        let winners: i64 = answers.iter().map(|answers| answers[at]).sum();
        assert!(winners <= 1, "{item} was new to {winners} clients");
        absent += i64::from(winners == 0);
    }
    // A false positive is new to nobody: at most 4/255, times the share of slots in use, 4000 of 131072.
    let expected = ITEMS as f64 * 4.0 / 255.0 * (ITEMS as f64 / 131_072.0);
    assert!(
        (absent as f64) < expected + 6.0 * expected.sqrt() + 1.0,
        "{absent} were new to nobody"
    );
    let info = Client::new(&server).say("CF.INFO c");
    assert!(info.contains(&format!("inserted\r\n:{}\r\n", ITEMS as i64 - absent)), "{info}");
}
