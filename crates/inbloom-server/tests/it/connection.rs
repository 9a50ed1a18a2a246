//! What clients say of themselves, and the errors: bytes in, bytes out.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::client::{Client, request, server};
use inbloom_server::session::{Next, Place};
use inbloom_server::{Config, Server};
use inbloom_testing::Random;

const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled./";

fn locked() -> Server {
    let mut config = Config::default();
    config.settings.require_pass = "secret".into();
    Server::new(config)
}

#[test]
fn hello_tells_what_the_server_is_in_the_protocol_it_chooses() {
    let server = server();
    let mut client = Client::new(&server);
    let fields = |proto| {
        format!(
            "$6/server/$5/redis/$7/version/$5/7.4.0/$5/proto/:{proto}/$2/id/:1/$4/mode/\
             $10/standalone/$4/role/$6/master/$7/modules/*1/"
        )
    };
    let module = "$4/name/$2/bf/$3/ver/:80800/$4/path/$0//$4/args/*0/";
    let two = format!("*14/{}*8/{module}", fields(2));
    let three = format!("%7/{}%4/{module}", fields(3));
    client.check(&[
        ("HELLO", &two),
        ("HELLO 2", &two),
        ("HELLO 3", &three),
        ("HELLO", &three),
        ("BF.EXISTS none x", "#f/"),
        ("HELLO 2 SETNAME me", &two),
        ("CLIENT GETNAME", "$2/me/"),
        ("BF.EXISTS none x", ":0/"),
        ("HELLO 3 AUTH default any SETNAME you", &three),
        ("CLIENT GETNAME", "$3/you/"),
    ]);
}

#[test]
fn hello_refuses_what_it_does_not_know_and_changes_nothing() {
    let server = server();
    let mut client = Client::new(&server);
    client.check(&[
        ("HELLO 1", "-NOPROTO unsupported protocol version/"),
        ("HELLO 4", "-NOPROTO unsupported protocol version/"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range/"),
        ("HELLO 3 FOO", "-ERR Syntax error in HELLO option 'FOO'/"),
        ("HELLO 3 AUTH default", "-ERR Syntax error in HELLO option 'AUTH'/"),
        ("HELLO 3 SETNAME", "-ERR Syntax error in HELLO option 'SETNAME'/"),
        ("HELLO 3 AUTH bob x SETNAME me", WRONG),
        ("CLIENT GETNAME", "$-1/"),
        ("BF.EXISTS none x", ":0/"),
    ]);
    assert_eq!(
        client.say_words(&["HELLO", "3", "SETNAME", "a b"]),
        "-ERR Client names cannot contain spaces, newlines or special characters.\r\n"
    );
}

#[test]
fn a_password_is_asked_for_before_anything_else() {
    let server = locked();
    let mut client = Client::new(&server);
    let hello = client.say("HELLO 3");
    assert!(
        hello.starts_with("-NOAUTH HELLO must be called with the client already authenticated")
    );
    client.check(&[
        ("PING", "-NOAUTH Authentication required./"),
        ("BF.ADD a 1", "-NOAUTH Authentication required./"),
        ("MULTI", "-NOAUTH Authentication required./"),
        ("AUTH wrong", WRONG),
        ("AUTH secretsecret", WRONG),
        ("AUTH secre", WRONG),
        ("AUTH default wrong", WRONG),
        ("AUTH bob secret", WRONG),
        ("AUTH a b c", "-ERR syntax error/"),
        ("AUTH", "-ERR wrong number of arguments for 'auth' command/"),
        ("PING", "-NOAUTH Authentication required./"),
        ("AUTH secret", "+OK/"),
        ("PING", "+PONG/"),
        ("AUTH wrong", WRONG),
        ("PING", "+PONG/"),
        ("RESET", "+RESET/"),
        ("PING", "-NOAUTH Authentication required./"),
        ("AUTH default secret", "+OK/"),
        ("PING", "+PONG/"),
    ]);
    assert_eq!(client.say_words(&["AUTH", ""]), WRONG.replace('/', "\r\n"));
    let mut client = Client::new(&server);
    assert!(client.say("HELLO 3 AUTH default secret").starts_with("%7\r\n"));
    assert_eq!(client.say("BF.ADD a 1"), "#t\r\n");
}

#[test]
fn large_requests_are_taken_from_those_only_who_said_who_they_are() {
    let server = locked();
    let large = "x".repeat(100_000);
    let refused = "-ERR Protocol error: unauthenticated bulk length";
    let mut client = Client::new(&server);
    let (reply, progress) = client.send(&request(&["ECHO", &large]));
    assert!(reply.starts_with(refused), "{reply}");
    assert_eq!(progress.next, Next::Close);
    let mut client = Client::new(&server);
    client.say("AUTH secret");
    assert_eq!(client.say_words(&["ECHO", &large]).len(), 100_000 + 11);
    client.say("RESET");
    let (reply, _) = client.send(&request(&["ECHO", &large]));
    assert!(reply.starts_with(refused), "{reply}");
}

#[test]
fn a_server_without_a_password_says_so() {
    let server = server();
    let mut client = Client::new(&server);
    client.check(&[
        (
            "AUTH x",
            "-ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?/",
        ),
        ("AUTH default x", "+OK/"),
        ("AUTH bob x", WRONG),
    ]);
}

#[test]
fn simple_commands_answer_as_redis_does() {
    let server = server();
    let mut client = Client::new(&server);
    let range = "-ERR value is out of range, value must between -2147483648 and 2147483647/";
    client.check(&[
        ("PING", "+PONG/"),
        ("ping hi", "$2/hi/"),
        ("PING a b", "-ERR wrong number of arguments for 'ping' command/"),
        ("ECHO hi", "$2/hi/"),
        ("ECHO", "-ERR wrong number of arguments for 'echo' command/"),
        ("SELECT 15", "+OK/"),
        ("SELECT 16", "-ERR DB index is out of range/"),
        ("SELECT -1", "-ERR DB index is out of range/"),
        ("SELECT x", "-ERR value is not an integer or out of range/"),
        ("SELECT 99999999999", range),
        ("SELECT 0", "+OK/"),
        ("SET a 1", "-ERR unknown command 'SET', with args beginning with: 'a' '1' /"),
    ]);
}

#[test]
fn quit_answers_and_closes_and_leaves_what_comes_after() {
    let server = server();
    for first in ["QUIT", "MULTI\r\nQUIT"] {
        let mut client = Client::new(&server);
        let (reply, progress) = client.send(format!("{first}\r\nPING\r\n").as_bytes());
        assert!(reply.ends_with("+OK\r\n") && !reply.contains("PONG"), "{reply}");
        assert_eq!(progress.next, Next::Close);
    }
}

#[test]
fn reset_makes_a_connection_new() {
    let server = server();
    let mut client = Client::new(&server);
    for line in ["HELLO 3 SETNAME me", "SELECT 5", "WATCH a", "MULTI", "PING"] {
        client.say(line);
    }
    client.check(&[
        ("RESET", "+RESET/"),
        ("EXEC", "-ERR EXEC without MULTI/"),
        ("CLIENT GETNAME", "$-1/"),
        ("BF.ADD here x", ":1/"),
        ("SELECT 0", "+OK/"),
        ("EXISTS here", ":1/"),
    ]);
    assert!(client.session.state.watched.keys.is_empty());
}

#[test]
fn clients_have_names_and_libraries() {
    let server = server();
    let mut client = Client::new(&server);
    client.check(&[
        ("CLIENT ID", ":1/"),
        ("CLIENT GETNAME", "$-1/"),
        ("CLIENT SETNAME me", "+OK/"),
        ("CLIENT GETNAME", "$2/me/"),
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK/"),
        ("client setinfo lib-ver 8.1.0", "+OK/"),
        ("CLIENT SETINFO LIB-AGE 3", "-ERR Unrecognized option 'LIB-AGE'/"),
        ("CLIENT SETINFO LIB-NAME", "-ERR wrong number of arguments for 'client|setinfo' command/"),
        ("CLIENT", "-ERR wrong number of arguments for 'client' command/"),
        (
            "CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type none",
            "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP./",
        ),
    ]);
    assert_eq!(
        client.say_words(&["CLIENT", "SETNAME", "a\nb"]),
        "-ERR Client names cannot contain spaces, newlines or special characters.\r\n"
    );
    assert_eq!(
        client.say_words(&["CLIENT", "SETINFO", "lib-name", "a b"]),
        "-ERR lib-name cannot contain spaces, newlines or special characters.\r\n"
    );
    let mut other = Client::new(&server);
    other.say("SELECT 3");
    other.say("HELLO 3");
    other.say("MULTI");
    let expected = "id=1 addr=127.0.0.1:1000 laddr=127.0.0.1:7379 fd=-1 name=me age=0 idle=0 \
                    flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 watch=0 qbuf=0 qbuf-free=0 \
                    argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=4096 events=r \
                    cmd=client|info user=default redir=-1 resp=2 lib-name=redis-py lib-ver=8.1.0\n";
    assert_eq!(client.say("CLIENT INFO"), format!("${}\r\n{expected}\r\n", expected.len()));
    let list = client.say("CLIENT LIST");
    assert_eq!(list.matches("id=").count(), 2, "{list}");
    assert!(list.contains("id=2 ") && list.contains(" flags=x db=3 "), "{list}");
    assert!(list.contains(" multi=0 ") && list.contains(" cmd=multi "), "{list}");
    assert!(list.contains(" resp=3 "), "{list}");
    client.say("HELLO 3");
    let info = client.say("CLIENT INFO");
    assert!(info.starts_with('=') && info.contains("\r\ntxt:id=1 "), "{info}");
}

#[test]
fn clients_are_listed_by_type_and_number() {
    let server = server();
    let (mut client, _other) = (Client::new(&server), Client::new(&server));
    client.check(&[
        ("CLIENT LIST TYPE pubsub", "$0//"),
        ("CLIENT LIST TYPE replica", "$0//"),
        ("CLIENT LIST TYPE foo", "-ERR Unknown client type 'foo'/"),
        ("CLIENT LIST TYPE", "-ERR syntax error/"),
        ("CLIENT LIST FOO x", "-ERR syntax error/"),
        ("CLIENT LIST ID", "-ERR syntax error/"),
        ("CLIENT LIST ID x", "-ERR Invalid client ID/"),
        ("CLIENT LIST ID 99", "$0//"),
    ]);
    assert_eq!(client.say("CLIENT LIST TYPE normal").matches("id=").count(), 2);
    let list = client.say("CLIENT LIST ID 2 99");
    assert!(list.contains("id=2 ") && !list.contains("id=1 "), "{list}");
}

#[test]
fn clients_are_killed_by_what_they_are() {
    let server = server();
    let (mut client, other, third) =
        (Client::new(&server), Client::new(&server), Client::new(&server));
    client.check(&[
        ("CLIENT KILL 1.2.3.4:5", "-ERR No such client/"),
        ("CLIENT KILL ID 0", "-ERR client-id should be greater than 0/"),
        ("CLIENT KILL ID x", "-ERR client-id should be greater than 0/"),
        ("CLIENT KILL ID 99", ":0/"),
        ("CLIENT KILL ID 2 TYPE pubsub", ":0/"),
        ("CLIENT KILL TYPE foo", "-ERR Unknown client type 'foo'/"),
        ("CLIENT KILL USER bob", "-ERR No such user 'bob'/"),
        ("CLIENT KILL SKIPME maybe", "-ERR syntax error/"),
        ("CLIENT KILL ID 2 SKIPME", "-ERR syntax error/"),
        ("CLIENT KILL FOO bar", "-ERR syntax error/"),
        ("CLIENT KILL MAXAGE x", "-ERR maxage is not an integer or out of range/"),
        ("CLIENT KILL MAXAGE 0", "-ERR maxage should be greater than 0/"),
        ("CLIENT KILL MAXAGE 1000", ":0/"),
        ("CLIENT KILL", "-ERR wrong number of arguments for 'client|kill' command/"),
    ]);
    assert!(!other.session.state.client.is_killed());
    client.check(&[("CLIENT KILL ID 2 LADDR 127.0.0.1:7379 USER default", ":1/")]);
    assert!(other.session.state.client.is_killed() && !third.session.state.client.is_killed());
    assert!(!client.session.state.is_closing);
    client.check(&[("CLIENT KILL TYPE normal SKIPME no", ":3/")]);
    assert!(third.session.state.client.is_killed() && client.session.state.is_closing);
    let mut client = Client::new(&server);
    client.check(&[("CLIENT KILL 127.0.0.1:1000", "+OK/")]);
    assert!(client.session.state.is_closing, "the old form may be about oneself");
}

#[test]
fn replies_are_left_out_if_the_client_says_so() {
    let server = server();
    let mut client = Client::new(&server);
    client.check(&[
        ("CLIENT REPLY OFF", ""),
        ("PING", ""),
        ("NOSUCH", ""),
        ("BF.ADD a 1", ""),
        ("ECHO", ""),
        ("MULTI", ""),
        ("PING", ""),
        ("EXEC", ""),
        ("CLIENT REPLY SKIP", ""),
        ("CLIENT REPLY ON", "+OK/"),
        ("BF.EXISTS a 1", ":1/"),
        ("CLIENT REPLY SKIP", ""),
        ("NOSUCH", ""),
        ("PING", "+PONG/"),
        ("CLIENT REPLY MAYBE", "-ERR syntax error/"),
    ]);
}

#[test]
fn what_has_no_effect_is_accepted_and_what_is_not_there_is_refused() {
    let server = server();
    let mut client = Client::new(&server);
    let cluster = "-ERR This instance has cluster support disabled/";
    let pubsub = "-ERR inbloom has no publish/subscribe/";
    let pause = "-ERR inbloom does not pause clients/";
    client.check(&[
        ("CLIENT NO-EVICT ON", "+OK/"),
        ("CLIENT NO-TOUCH off", "+OK/"),
        ("CLIENT NO-EVICT x", "-ERR syntax error/"),
        ("CLIENT TRACKING OFF", "+OK/"),
        ("CLIENT TRACKING ON", "-ERR inbloom does not track keys for the caches of clients/"),
        ("CLIENT TRACKING x", "-ERR syntax error/"),
        ("CLIENT TRACKINGINFO", "*6/$5/flags/*1/$3/off/$8/redirect/:-1/$8/prefixes/*0/"),
        (
            "CLIENT CACHING YES",
            "-ERR CLIENT CACHING can be called only when the client is in tracking mode with \
             OPTIN or OPTOUT mode enabled/",
        ),
        ("CLIENT GETREDIR", ":-1/"),
        ("CLIENT PAUSE 100", pause),
        ("CLIENT UNPAUSE", pause),
        ("CLIENT UNBLOCK 7", ":0/"),
        ("CLIENT UNBLOCK 7 x", "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR/"),
        ("CLIENT UNBLOCK x", "-ERR value is not an integer or out of range/"),
        ("READONLY", cluster),
        ("READWRITE", cluster),
        ("CLUSTER INFO", cluster),
        ("CLUSTER SLOTS", cluster),
        ("CLUSTER SHARDS", cluster),
        ("CLUSTER NODES", cluster),
        ("CLUSTER MYID", cluster),
        ("CLUSTER KEYSLOT a", cluster),
        ("CLUSTER KEYSLOT", "-ERR wrong number of arguments for 'cluster|keyslot' command/"),
        ("CLUSTER FOO", "-ERR unknown subcommand 'FOO'. Try CLUSTER HELP./"),
        ("SUBSCRIBE a", pubsub),
        ("PSUBSCRIBE a", pubsub),
        ("SSUBSCRIBE a", pubsub),
        ("UNSUBSCRIBE", pubsub),
        ("PUNSUBSCRIBE", pubsub),
        ("SUNSUBSCRIBE", pubsub),
        ("PUBLISH a b", pubsub),
        ("SPUBLISH a b", pubsub),
        ("PUBSUB CHANNELS", pubsub),
        ("SUBSCRIBE", "-ERR wrong number of arguments for 'subscribe' command/"),
        ("MONITOR", "-ERR MONITOR is not offered: see SLOWLOG GET and INFO commandstats/"),
    ]);
    client.say("HELLO 3");
    client
        .check(&[("CLIENT TRACKINGINFO", "%3/$5/flags/~1/$3/off/$8/redirect/:-1/$8/prefixes/*0/")]);
}

#[test]
fn help_names_every_subcommand() {
    let server = server();
    let mut client = Client::new(&server);
    let help = client.say("CLIENT HELP");
    let first = "+CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n";
    assert!(help.contains(first), "{help}");
    for line in ["+SETNAME connection-name\r\n", "+ID\r\n", "+REPLY ON|OFF|SKIP\r\n"] {
        assert!(help.contains(line), "{line} is not in {help}");
    }
}

#[test]
fn a_pipeline_is_answered_in_order_at_every_cut() {
    let server = server();
    let input =
        b"HELLO 3\r\nPING\r\nCLIENT SETNAME me\r\nMULTI\r\nCLIENT GETNAME\r\nEXEC\r\nRESET\r\n\
                  SELECT 3\r\nCLIENT GETNAME\r\n";
    let mut whole = Client::new(&server);
    let (expected, _) = whole.send(input);
    let expected = expected.replace(":1\r\n", ":N\r\n");
    for cut in 0..input.len() {
        let mut client = Client::new(&server);
        let (mut out, mut done) = (Vec::new(), 0);
        for end in [cut, input.len()] {
            let progress =
                client.session.process(&server, &input[done..end], &mut out, Place::Shared);
            assert_eq!(progress.next, Next::Read);
            done += progress.consumed;
        }
        let id = format!("$2\r\nid\r\n:{}\r\n", client.session.state.client.id);
        let reply = String::from_utf8(out).unwrap().replace(&id, "$2\r\nid\r\n:N\r\n");
        assert_eq!(reply, expected, "cut at {cut}");
    }
}

/// What a new server with some filters answers to single-item calls, first one by one, then all in one
/// pipeline.
fn replies_one_by_one_and_together(calls: &[[String; 3]], protocol: u8) -> [String; 2] {
    let requests: Vec<Vec<u8>> =
        calls.iter().map(|words| request(&words.each_ref().map(String::as_str))).collect();
    [requests.clone(), vec![requests.concat()]].map(|requests| {
        let server = server();
        let mut client = Client::new(&server);
        client.say(&format!("HELLO {protocol}"));
        for line in [
            "BF.RESERVE f 0.01 100",
            "BF.RESERVE g 0.01 100",
            "BF.RESERVE classic 0.01 100 KIND classic",
            "CF.RESERVE cf 100",
            "CF.RESERVE cg 1000 BUCKETSIZE 4",
            "CF.RESERVE small 4 BUCKETSIZE 2 MAXITERATIONS 1",
            "CF.RESERVE full 2 BUCKETSIZE 1 EXPANSION 0",
        ] {
            assert_eq!(client.say(line), "+OK\r\n", "{line}");
        }
        requests.iter().map(|request| client.send(request).0).collect::<String>()
    })
}

#[test]
fn calls_to_several_keys_in_turn_are_answered_as_one_by_one() {
    // Filters that are batched, one that is not, one of another type, and one that is missing.
    let keys = ["f", "g", "f", "classic", "g", "cf", "f", "f", "none", "g"];
    let calls: Vec<[String; 3]> = ["BF.ADD", "bf.add", "BF.EXISTS"]
        .iter()
        .flat_map(|word| keys.iter().enumerate().map(move |(at, key)| (word, key, at % 4)))
        .map(|(word, key, item)| [word.to_string(), key.to_string(), item.to_string()])
        .collect();
    let [one_by_one, together] = replies_one_by_one_and_together(&calls, 2);
    assert_eq!(together, one_by_one);
}

#[test]
fn runs_of_calls_to_cuckoo_filters_are_answered_as_one_by_one() {
    // Runs of every length up to some that are longer than the longest, on filters that grow and on one
    // that is full, with calls to other types and to nothing between.
    let words =
        ["CF.ADD", "CF.EXISTS", "cf.addnx", "CF.COUNT", "CF.DEL", "CF.ADDNX", "CF.COUNT", "CF.DEL"];
    let keys = ["cf", "cg", "full", "f", "small", "cf", "none"];
    let mut random = Random(21);
    let mut calls = Vec::new();
    for length in (0..60).chain([300, 1100, 2500]) {
        for _ in 0..4 {
            let word = words[random.below(words.len() as u64) as usize];
            let key = keys[random.below(keys.len() as u64) as usize];
            for _ in 0..length {
                let item = random.below(400).to_string();
                calls.push([word.to_owned(), key.to_owned(), item]);
            }
        }
    }
    for protocol in [2, 3] {
        let [one_by_one, together] = replies_one_by_one_and_together(&calls, protocol);
        assert_eq!(together, one_by_one, "RESP{protocol}");
        assert!(one_by_one.contains("-Filter is full\r\n"));
        assert!(one_by_one.contains("-Not found\r\n"));
        assert!(one_by_one.contains(":2\r\n"), "nothing was added twice");
    }
}

#[test]
fn statistics_of_a_run_are_those_of_its_calls() {
    let calls: Vec<[String; 3]> = ["CF.ADD", "CF.ADDNX", "CF.EXISTS", "CF.COUNT", "CF.DEL"]
        .iter()
        .flat_map(|word| (0..50).map(move |item| (word, item)))
        .flat_map(|(word, item)| ["cf", "full"].map(|key| (word, key, item)))
        .map(|(word, key, item)| [word.to_string(), key.to_string(), item.to_string()])
        .collect();
    let counted = |is_pipeline: bool| {
        let server = server();
        let mut client = Client::new(&server);
        client.say("CF.RESERVE cf 100");
        client.say("CF.RESERVE full 2 BUCKETSIZE 1 EXPANSION 0");
        let mut sorted = calls.clone();
        sorted.sort_by_key(|[word, key, _]| (word.clone(), key.clone()));
        let requests: Vec<Vec<u8>> =
            sorted.iter().map(|words| request(&words.each_ref().map(String::as_str))).collect();
        match is_pipeline {
            true => drop(client.send(&requests.concat())),
            false => requests.iter().for_each(|request| drop(client.send(request))),
        }
        let statistics = &server.statistics;
        let by_command: BTreeMap<&str, (u64, u64, u64)> = statistics
            .by_command
            .lock()
            .iter()
            .map(|(name, calls)| (*name, (calls.calls, calls.failed, calls.rejected)))
            .collect();
        let counts = [
            &statistics.commands,
            &statistics.hits,
            &statistics.misses,
            &statistics.items_added,
            &statistics.items_asked,
            &statistics.errors,
        ];
        (by_command, counts.map(|count| count.load(Ordering::Relaxed)))
    };
    assert_eq!(counted(true), counted(false));
    assert!(counted(true).0["cf.add"].1 > 40, "a full filter refuses");
}
