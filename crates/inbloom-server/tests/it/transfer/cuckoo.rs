//! CF.*, where it is not as recorded.

use std::thread;

use crate::transfer::client::{Answer, Client, Integer, ok, server};

#[test]
fn unknown_options_are_errors_that_say_what_was_expected() {
    let mut client = Client::alone();
    let text = client.say("CF.RESERVE c 1000 BUCKETSIZ 4").error();
    assert_eq!(
        text,
        "ERR unknown option 'BUCKETSIZ': expected BUCKETSIZE, MAXITERATIONS or EXPANSION"
    );
    assert_eq!(client.say("CF.INFO c").error(), "ERR not found");
}

#[test]
fn options_are_not_searched_in_the_place_of_the_key() {
    let mut client = Client::alone();
    assert_eq!(client.say("CF.RESERVE BUCKETSIZE 1000"), ok());
    let info = client.say("CF.INFO BUCKETSIZE").elements();
    assert_eq!((&info[3], &info[11]), (&Integer(512), &Integer(2)));
}

#[test]
fn capacities_are_limited_by_memory_alone() {
    let mut client = Client::new(&server(3 << 30));
    assert_eq!(client.say("CF.RESERVE c 1073741825"), ok());
    assert_eq!(client.say("CF.ADD c item"), Integer(1));
    let text = client.say("CF.RESERVE d 4000000000").error();
    assert!(
        text.starts_with("ERR Insufficient memory to create filter: it takes 4294967424"),
        "{text}"
    );
    let text = client.say("CF.RESERVE d 9223372036854775807").error();
    assert!(text.contains("the limit is 4294967296"), "{text}");
    let used = client.server.keyspace.used();
    assert!((1 << 30..(1 << 30) + 1000).contains(&used), "{used}");
}

#[test]
fn a_filter_grows_as_long_as_there_is_memory() {
    let mut client = Client::new(&server(100_000));
    assert_eq!(client.say("CF.RESERVE c 4 MAXITERATIONS 1"), ok());
    let mut refused = None;
    for at in 0..20_000 {
        if let Answer::Error(text) = client.say(&format!("CF.ADD c {at}")) {
            refused = Some((at, text));
            break;
        }
    }
    let (at, text) = refused.expect("100,000 bytes are not enough for this");
    assert!(at > 33 * 4 && text.starts_with("ERR Insufficient memory: "), "{at}: {text}");
    for item in 0..at {
        assert_eq!(client.say(&format!("CF.EXISTS c {item}")), Integer(1));
    }
    let answers = client.say(&format!("CF.INSERT c ITEMS {at} {at}")).elements();
    assert!(answers.iter().all(|answer| matches!(answer, Answer::Error(_))), "{answers:?}");
}

#[test]
fn memory_follows_growth_and_compaction() {
    let mut client = Client::alone();
    assert_eq!(client.say("CF.RESERVE c 64 EXPANSION 2"), ok());
    let before = client.server.keyspace.used();
    client.fill(&["CF.INSERT", "ITEMS"], "c", 3000);
    let grown = client.server.keyspace.used();
    assert!(grown >= before + 3000, "{before} to {grown}");
    for at in 0..3000 {
        assert_eq!(client.say(&format!("CF.DEL c c:{at}")), Integer(1));
    }
    assert_eq!(client.say("CF.COMPACT c"), ok());
    assert_eq!(client.server.keyspace.used(), before);
}

#[test]
fn keys_are_found_while_a_large_filter_is_compacted() {
    let server = server(1 << 30);
    let mut client = Client::new(&server);
    assert_eq!(client.say("CF.RESERVE c 100000 EXPANSION 1"), ok());
    client.fill(&["CF.INSERT", "ITEMS"], "c", 400_000);
    for at in 0..200_000 {
        assert_eq!(client.say(&format!("CF.DEL c c:{at}")), Integer(1));
    }
    let filters = |client: &mut Client| client.say("CF.INFO c").elements()[5].clone();
    let before = filters(&mut client);
    thread::scope(|scope| {
        let compacting = scope.spawn(|| Client::new(&server).say("CF.COMPACT c"));
        let mut rounds = 0;
        while !compacting.is_finished() || rounds == 0 {
            for at in (200_000..400_000).step_by(997) {
                assert_eq!(client.say(&format!("CF.EXISTS c c:{at}")), Integer(1), "{at}");
            }
            rounds += 1;
        }
        assert_eq!(compacting.join().unwrap(), ok());
    });
    assert_ne!(filters(&mut client), before);
    let answers = client.ask("CF.MEXISTS", "c", "c", 400_000);
    assert!(answers[200_000..].iter().all(|answer| *answer == Integer(1)));
}
