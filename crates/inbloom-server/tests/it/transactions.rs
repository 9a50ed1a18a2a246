//! MULTI, EXEC, WATCH and their errors: bytes in, bytes out.

use crate::client::{Client, request, server};
use inbloom_server::session::{Next, Place};

#[test]
fn commands_between_multi_and_exec_are_answered_together() {
    let server = server();
    let mut client = Client::new(&server);
    client.check(&[
        ("MULTI", "+OK/"),
        ("BF.ADD tx 1", "+QUEUED/"),
        ("BF.MADD tx 1 2", "+QUEUED/"),
        ("BF.EXISTS tx 2", "+QUEUED/"),
        ("UNWATCH", "+QUEUED/"),
        ("EXEC", "*4/:1/*2/:0/:1/:1/+OK/"),
        ("BF.CARD tx", ":2/"),
        ("MULTI", "+OK/"),
        ("EXEC", "*0/"),
        ("MULTI", "+OK/"),
        ("BF.ADD tx 9", "+QUEUED/"),
        ("DISCARD", "+OK/"),
        ("BF.EXISTS tx 9", ":0/"),
        // Another protocol and another database hold from within.
        ("MULTI", "+OK/"),
        ("BF.EXISTS tx 1", "+QUEUED/"),
        ("SELECT 1", "+QUEUED/"),
        ("HELLO 5", "+QUEUED/"),
        ("RENAME none x", "+QUEUED/"),
        ("DBSIZE", "+QUEUED/"),
        ("EXEC", "*5/:1/+OK/-NOPROTO unsupported protocol version/-ERR no such key/:0/"),
        ("DBSIZE", ":0/"),
    ]);
}

#[test]
fn inline_commands_are_queued_too() {
    let server = server();
    let mut client = Client::new(&server);
    let (reply, progress) = client.send(b"MULTI\r\nBF.ADD \"a b\" 'x y'\r\nPING\r\nEXEC\r\n");
    assert_eq!(reply, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n+PONG\r\n");
    assert_eq!(progress.next, Next::Read);
    assert_eq!(client.say_words(&["BF.EXISTS", "a b", "x y"]), ":1\r\n");
}

#[test]
fn a_command_that_was_refused_breaks_the_transaction() {
    let server = server();
    let mut client = Client::new(&server);
    let broken = "-EXECABORT Transaction discarded because of previous errors./";
    client.check(&[
        ("MULTI", "+OK/"),
        ("BF.ADD tx", "-ERR wrong number of arguments for 'bf.add' command/"),
        ("BF.ADD tx 1", "+QUEUED/"),
        ("EXEC", broken),
        ("EXISTS tx", ":0/"),
        ("MULTI", "+OK/"),
        ("GET x", "-ERR unknown command 'GET', with args beginning with: 'x' /"),
        ("EXEC", broken),
        ("MULTI", "+OK/"),
        ("CLIENT FOO", "-ERR unknown subcommand 'FOO'. Try CLIENT HELP./"),
        ("EXEC", broken),
        // The transaction is over, and the next one is whole.
        ("MULTI", "+OK/"),
        ("PING", "+QUEUED/"),
        ("EXEC", "*1/+PONG/"),
    ]);
}

#[test]
fn commands_in_the_wrong_place_are_refused_and_break_nothing() {
    let server = server();
    let mut client = Client::new(&server);
    client.check(&[
        ("EXEC", "-ERR EXEC without MULTI/"),
        ("DISCARD", "-ERR DISCARD without MULTI/"),
        ("UNWATCH", "+OK/"),
        ("WATCH", "-ERR wrong number of arguments for 'watch' command/"),
        ("MULTI x", "-ERR wrong number of arguments for 'multi' command/"),
        ("MULTI", "+OK/"),
        ("MULTI", "-ERR MULTI calls can not be nested/"),
        ("WATCH a", "-ERR WATCH inside MULTI is not allowed/"),
        ("PING", "+QUEUED/"),
        ("EXEC", "*1/+PONG/"),
    ]);
}

/// Watches `a`, lets something happen, and tells what EXEC answers.
fn exec_after(before: &[&str], meanwhile: &[&str]) -> String {
    let server = server();
    let (mut client, mut other) = (Client::new(&server), Client::new(&server));
    before.iter().for_each(|line| drop(client.say(line)));
    assert_eq!(client.say("WATCH a z"), "+OK\r\n");
    for line in meanwhile {
        let reply = other.say(line);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
    }
    assert_eq!(client.say("MULTI"), "+OK\r\n");
    assert_eq!(client.say("PING"), "+QUEUED\r\n");
    let reply = client.say("EXEC");
    // Whatever it was, the keys are watched no longer.
    assert_eq!(client.say("MULTI") + &client.say("EXEC"), "+OK\r\n*0\r\n");
    reply
}

#[test]
fn exec_does_nothing_if_a_watched_key_has_changed() {
    let there: &[&str] = &["BF.ADD a 1", "BF.ADD b 1"];
    for (before, meanwhile) in [
        (&[][..], &["BF.ADD a 1"][..]),
        (there, &["DEL a"]),
        (there, &["BF.ADD a 2"]),
        (there, &["BF.MADD a 2 3"]),
        (there, &["EXPIRE a 100"]),
        (there, &["PEXPIRE a 0"]),
        (there, &["RENAME b a"]),
        (there, &["RENAME a c"]),
        (there, &["RENAME a c", "RENAME c a"]),
        (there, &["MOVE a 1"]),
        (there, &["FLUSHALL"]),
        (there, &["DEL a", "BF.ADD a 1"]),
        (there, &["BF.ADD z 1"]),
        (&["BF.ADD a 1", "EXPIRE a 100"], &["PERSIST a"]),
    ] {
        assert_eq!(exec_after(before, meanwhile), "*-1\r\n", "{meanwhile:?}");
    }
    for meanwhile in
        [&["BF.EXISTS a 1"][..], &["BF.ADD a 1"], &["BF.ADD b 2"], &["SELECT 1", "BF.ADD a 2"]]
    {
        assert_eq!(exec_after(there, meanwhile), "*1\r\n+PONG\r\n", "{meanwhile:?}");
    }
    assert_eq!(exec_after(&["BF.ADD a 1", "HELLO 3"], &["DEL a"]), "_\r\n");
}

#[test]
fn exec_does_nothing_if_a_watched_key_has_expired() {
    let server = server();
    let mut client = Client::new(&server);
    client.check(&[
        ("BF.ADD a 1", ":1/"),
        ("PEXPIRE a 30", ":1/"),
        ("WATCH a", "+OK/"),
        ("MULTI", "+OK/"),
        ("PING", "+QUEUED/"),
    ]);
    std::thread::sleep(std::time::Duration::from_millis(40));
    assert_eq!(client.say("EXEC"), "*-1\r\n");
}

#[test]
fn unwatch_and_discard_forget_what_was_watched() {
    let server = server();
    for forget in [&["UNWATCH"][..], &["MULTI", "DISCARD"], &["RESET"]] {
        let mut client = Client::new(&server);
        client.say("WATCH a");
        forget.iter().for_each(|line| drop(client.say(line)));
        client.say_words(&["BF.ADD", "a", forget[0]]);
        client.check(&[("MULTI", "+OK/"), ("PING", "+QUEUED/"), ("EXEC", "*1/+PONG/")]);
    }
}

#[test]
fn a_transaction_with_heavy_commands_is_for_a_thread_of_its_own() {
    let server = server();
    let mut client = Client::new(&server);
    client.say("MULTI");
    let items: Vec<String> = (0..5000).map(|at| at.to_string()).collect();
    let words: Vec<&str> =
        ["BF.MADD", "a"].into_iter().chain(items.iter().map(String::as_str)).collect();
    assert_eq!(client.say_words(&words), "+QUEUED\r\n");
    let mut out = Vec::new();
    let exec = request(&["EXEC"]);
    let progress = client.session.process(&server, &exec, &mut out, Place::Shared);
    assert_eq!((progress.next, progress.consumed, out.len()), (Next::Work, 0, 0));
    assert!(client.say("EXEC").starts_with("*1\r\n*5000\r\n:1\r\n"));
}

#[test]
fn commands_of_a_transaction_are_counted() {
    let server = server();
    let mut client = Client::new(&server);
    ["MULTI", "PING", "RENAME none x", "EXEC"].iter().for_each(|line| drop(client.say(line)));
    let counted = server.statistics.by_command.lock();
    assert_eq!((counted["ping"].calls, counted["ping"].failed), (1, 0));
    assert_eq!((counted["rename"].calls, counted["rename"].failed), (1, 1));
}

#[test]
fn no_more_keys_than_ten_thousand_are_watched() {
    let server = server();
    let mut client = Client::new(&server);
    for at in 0..10_000 {
        assert_eq!(client.say(&format!("WATCH {at}")), "+OK\r\n");
    }
    client.check(&[
        ("WATCH 77", "+OK/"),
        ("WATCH more", "-ERR at most 10000 keys can be watched at once/"),
        ("UNWATCH", "+OK/"),
        ("WATCH more", "+OK/"),
    ]);
}

#[test]
fn a_key_that_is_watched_many_times_is_kept_once() {
    let server = server();
    let mut client = Client::new(&server);
    let words: Vec<&str> = ["WATCH"].into_iter().chain(vec!["f"; 200_000]).collect();
    assert_eq!(client.say_words(&words), "+OK\r\n");
    assert_eq!(client.session.state.watched.keys.len(), 1);
    // The limit is for keys, however often they are named.
    let names: Vec<String> = (0..9_999).map(|at| format!("k{at}")).collect();
    let each = names.iter().map(String::as_str);
    let words: Vec<&str> = ["WATCH"].into_iter().chain(each.clone()).chain(each).collect();
    assert_eq!(client.say_words(&words), "+OK\r\n");
    assert_eq!(client.session.state.watched.keys.len(), 10_000);
    let refusal = client.say("WATCH another");
    assert!(refusal.contains("at most 10000 keys"), "{refusal}");
    // The other database has keys of its own.
    client.check(&[("UNWATCH", "+OK/"), ("WATCH f", "+OK/"), ("SELECT 1", "+OK/")]);
    client.check(&[("WATCH f", "+OK/")]);
    assert_eq!(client.session.state.watched.keys.len(), 2);
}
