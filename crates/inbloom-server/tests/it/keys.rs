//! Commands on keys and their errors: bytes in, bytes out.

use std::time::Duration;

use crate::client::{Client, request, server};
use inbloom_server::session::{Next, Place};

#[test]
fn keys_are_told_of_renamed_and_deleted() {
    let server = server();
    let mut client = Client::new(&server);
    client.check(&[
        ("BF.ADD bf a", ":1/"),
        ("TYPE bf", "+MBbloom--/"),
        ("TYPE absent", "+none/"),
        ("EXISTS bf bf absent", ":2/"),
        ("TOUCH bf absent", ":1/"),
        ("OBJECT ENCODING bf", "$3/raw/"),
        ("OBJECT REFCOUNT bf", ":1/"),
        ("RENAME bf bf2", "+OK/"),
        ("BF.EXISTS bf2 a", ":1/"),
        ("BF.EXISTS bf a", ":0/"),
        ("RENAME absent q", "-ERR no such key/"),
        ("RENAMENX absent q", "-ERR no such key/"),
        ("RENAME bf2 bf2", "+OK/"),
        ("RENAMENX bf2 bf2", ":0/"),
        ("BF.ADD other b", ":1/"),
        ("RENAMENX bf2 other", ":0/"),
        ("RENAMENX bf2 bf3", ":1/"),
        ("RENAME bf3 other", "+OK/"),
        ("BF.EXISTS other a", ":1/"),
        ("BF.EXISTS other b", ":0/"),
        ("DBSIZE", ":1/"),
        ("RANDOMKEY", "$5/other/"),
        ("KEYS *", "*1/$5/other/"),
        ("KEYS [^o]*", "*0/"),
        ("DEL other absent", ":1/"),
        ("UNLINK other", ":0/"),
        ("RANDOMKEY", "$-1/"),
        ("HELLO 9", "-NOPROTO unsupported protocol version/"),
    ]);
    assert_eq!(server.keyspace.used(), 0);
}

#[test]
fn copy_is_refused_after_the_checks_of_redis() {
    let server = server();
    let mut client = Client::new(&server);
    let refused = "-ERR not supported for this module key/";
    client.check(&[
        ("BF.ADD a 1", ":1/"),
        ("BF.ADD b 1", ":1/"),
        ("COPY a c", refused),
        ("COPY a b REPLACE", refused),
        ("COPY a a DB 1", refused),
        ("COPY a b", ":0/"),
        ("COPY none c", ":0/"),
        ("COPY a a", "-ERR source and destination objects are the same/"),
        ("COPY a a DB 0", "-ERR source and destination objects are the same/"),
        ("COPY a c DB 16", "-ERR DB index is out of range/"),
        ("COPY a c DB x", "-ERR value is not an integer or out of range/"),
        ("COPY a c DB", "-ERR syntax error/"),
        ("COPY a c AGAIN", "-ERR syntax error/"),
    ]);
}

#[test]
fn keys_move_between_databases_with_their_time() {
    let server = server();
    let mut client = Client::new(&server);
    client.check(&[
        ("BF.ADD a 1", ":1/"),
        ("EXPIRE a 100", ":1/"),
        ("MOVE a 0", "-ERR source and destination objects are the same/"),
        ("MOVE a 16", "-ERR DB index is out of range/"),
        ("MOVE a x", "-ERR value is not an integer or out of range/"),
        ("MOVE none 1", ":0/"),
        ("MOVE a 1", ":1/"),
        ("EXISTS a", ":0/"),
        ("SELECT 1", "+OK/"),
        ("TTL a", ":100/"),
        ("SELECT 0", "+OK/"),
        ("BF.ADD a 2", ":1/"),
        ("MOVE a 1", ":0/"),
        ("SWAPDB 0 1", "-ERR SWAPDB is not offered: use MOVE or RENAME/"),
        ("FLUSHDB", "+OK/"),
        ("DBSIZE", ":0/"),
        ("SELECT 1", "+OK/"),
        ("DBSIZE", ":1/"),
        ("FLUSHDB NOW", "-ERR syntax error/"),
        ("FLUSHALL ASYNC SYNC", "-ERR syntax error/"),
        ("FLUSHALL ASYNC", "+OK/"),
        ("DBSIZE", ":0/"),
        ("FLUSHDB sync", "+OK/"),
    ]);
    assert_eq!(server.keyspace.used(), 0);
}

#[test]
fn times_of_expiry_are_set_under_conditions() {
    let server = server();
    let mut client = Client::new(&server);
    client.check(&[
        ("TTL a", ":-2/"),
        ("PTTL a", ":-2/"),
        ("EXPIRETIME a", ":-2/"),
        ("PEXPIRETIME a", ":-2/"),
        ("PERSIST a", ":0/"),
        ("EXPIRE a 10", ":0/"),
        ("BF.ADD a 1", ":1/"),
        ("TTL a", ":-1/"),
        ("PTTL a", ":-1/"),
        ("EXPIRETIME a", ":-1/"),
        ("EXPIRE a 10 XX", ":0/"),
        ("EXPIRE a 10 GT", ":0/"),
        ("EXPIRE a 1000 LT", ":1/"),
        ("EXPIRE a 10 NX", ":0/"),
        ("EXPIRE a 10 gt", ":0/"),
        ("EXPIRE a 2000 GT", ":1/"),
        ("EXPIRE a 3000 LT", ":0/"),
        ("EXPIRE a 1000 XX LT", ":1/"),
        ("TTL a", ":1000/"),
        ("BF.ADD a 2", ":1/"),
        ("TTL a", ":1000/"),
        ("PERSIST a", ":1/"),
        ("PERSIST a", ":0/"),
        ("TTL a", ":-1/"),
        ("EXPIREAT a 4102444800", ":1/"),
        ("PEXPIRETIME a", ":4102444800000/"),
        ("PEXPIREAT a 4102444800499", ":1/"),
        ("EXPIRETIME a", ":4102444800/"),
        ("PEXPIREAT a 4102444800500", ":1/"),
        ("EXPIRETIME a", ":4102444801/"),
        ("PEXPIREAT a 9223372036854775807", ":1/"),
        ("PEXPIRETIME a", ":9223372036854775807/"),
        ("EXPIRE a ten", "-ERR value is not an integer or out of range/"),
        ("EXPIRE a 10 SOON", "-ERR Unsupported option SOON/"),
        (
            "EXPIRE a 10 NX XX",
            "-ERR NX and XX, GT or LT options at the same time are not compatible/",
        ),
        ("EXPIRE a 10 GT LT", "-ERR GT and LT options at the same time are not compatible/"),
        ("EXPIRE a 9223372036854776", "-ERR invalid expire time in 'expire' command/"),
        ("EXPIRE a 9223372036854775", "-ERR invalid expire time in 'expire' command/"),
        ("PEXPIRE a 9223372036854775807", "-ERR invalid expire time in 'pexpire' command/"),
        ("EXPIREAT a 9223372036854776", "-ERR invalid expire time in 'expireat' command/"),
        ("EXPIRE a", "-ERR wrong number of arguments for 'expire' command/"),
    ]);
}

#[test]
fn a_time_in_the_past_deletes_the_key() {
    let server = server();
    let mut client = Client::new(&server);
    for line in ["EXPIRE a -1", "PEXPIRE a 0", "EXPIREAT a 1", "PEXPIREAT a -5"] {
        client.check(&[("BF.ADD a 1", ":1/"), (line, ":1/"), ("EXISTS a", ":0/")]);
        assert_eq!((server.keyspace.len(0), server.keyspace.used()), (0, 0), "{line}");
    }
}

#[test]
fn an_expired_key_is_invisible_to_every_command() {
    let server = server();
    let mut client = Client::new(&server);
    client.check(&[("BF.ADD a 1", ":1/"), ("PEXPIRE a 20", ":1/")]);
    std::thread::sleep(Duration::from_millis(30));
    client.check(&[
        ("EXISTS a", ":0/"),
        ("TYPE a", "+none/"),
        ("TTL a", ":-2/"),
        ("KEYS *", "*0/"),
        ("SCAN 0", "*2/$1/0/*0/"),
        ("RANDOMKEY", "$-1/"),
        ("RENAME a b", "-ERR no such key/"),
        ("COPY a b", ":0/"),
        ("MOVE a 1", ":0/"),
        ("PERSIST a", ":0/"),
        ("EXPIRE a 10", ":0/"),
        ("OBJECT ENCODING a", "$-1/"),
        ("BF.EXISTS a 1", ":0/"),
        ("DEL a", ":0/"),
        ("DBSIZE", ":0/"),
    ]);
}

#[test]
fn scan_reads_its_options_as_redis_does() {
    let server = server();
    let mut client = Client::new(&server);
    let syntax = "-ERR syntax error/";
    client.check(&[
        ("BF.ADD one 1", ":1/"),
        ("SCAN 0", "*2/$1/0/*1/$3/one/"),
        ("SCAN 0 MATCH o* COUNT 100 TYPE mbBLOOM--", "*2/$1/0/*1/$3/one/"),
        ("SCAN 0 MATCH x*", "*2/$1/0/*0/"),
        ("SCAN 0 TYPE string", "*2/$1/0/*0/"),
        ("SCAN +0", "*2/$1/0/*1/$3/one/"),
        ("SCAN 18446744073709551615", "*2/$1/0/*0/"),
        ("SCAN 18446744073709551616", "-ERR invalid cursor/"),
        ("SCAN x", "-ERR invalid cursor/"),
        ("SCAN -1", "-ERR invalid cursor/"),
        ("SCAN ++1", "-ERR invalid cursor/"),
        ("SCAN x COUNT x", "-ERR invalid cursor/"),
        ("SCAN 0 COUNT 0", syntax),
        ("SCAN 0 COUNT", syntax),
        ("SCAN 0 LIMIT 5", syntax),
        ("SCAN 0 COUNT x", "-ERR value is not an integer or out of range/"),
        ("SCAN", "-ERR wrong number of arguments for 'scan' command/"),
    ]);
}

#[test]
fn a_scan_by_its_cursors_finds_every_key() {
    let server = server();
    let mut client = Client::new(&server);
    for at in 0..1000 {
        client.say(&format!("BF.ADD key{at} x"));
    }
    let (mut cursor, mut found) = (String::from("0"), Vec::new());
    loop {
        let reply = client.say(&format!("SCAN {cursor} COUNT 50"));
        let mut lines = reply.split("\r\n").skip(2);
        cursor = lines.next().expect("a cursor").to_owned();
        found.extend(lines.filter(|line| line.starts_with("key")).map(str::to_owned));
        if cursor == "0" {
            break;
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 1000);
}

#[test]
fn object_tells_what_it_knows_and_refuses_the_rest() {
    let server = server();
    let mut client = Client::new(&server);
    let idle = "-ERR times of use are not tracked, since inbloom does not evict keys/";
    client.check(&[
        ("BF.ADD a 1", ":1/"),
        ("OBJECT IDLETIME a", idle),
        ("OBJECT IDLETIME none", "$-1/"),
        ("OBJECT FREQ none", "$-1/"),
        ("OBJECT FOO a", "-ERR unknown subcommand 'FOO'. Try OBJECT HELP./"),
        ("OBJECT", "-ERR wrong number of arguments for 'object' command/"),
        ("OBJECT ENCODING", "-ERR wrong number of arguments for 'object|encoding' command/"),
    ]);
    let frequency = client.say("OBJECT FREQ a");
    assert!(frequency.starts_with("-ERR An LFU maxmemory policy is not selected, "));
    let help = client.say("OBJECT HELP");
    let first = "*11\r\n+OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n";
    assert!(help.starts_with(first), "{help}");
    assert!(help.ends_with("+HELP\r\n+    Prints this help.\r\n"), "{help}");
}

#[test]
fn nothing_is_a_null_of_its_protocol() {
    let server = server();
    let mut client = Client::new(&server);
    client.check(&[("RANDOMKEY", "$-1/"), ("OBJECT ENCODING none", "$-1/")]);
    client.say("HELLO 3");
    client.check(&[
        ("RANDOMKEY", "_/"),
        ("OBJECT ENCODING none", "_/"),
        ("CLIENT GETNAME", "_/"),
        ("EXISTS none", ":0/"),
        ("BF.ADD a 1", "#t/"),
        ("KEYS *", "*1/$1/a/"),
        ("EXPIRE a 10", ":1/"),
    ]);
}

#[test]
fn everything_that_was_accounted_is_given_back_also_after_growth() {
    let server = server();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let mut client = Client::new(server);
                for at in 0..3000 {
                    // All threads let the same filters grow, while they are deleted and renamed.
                    let name = at % 3;
                    let items: Vec<String> =
                        (0..20).map(|item| format!("{}", (at * 20 + item) * 4 + thread)).collect();
                    let added = client.say(&format!("BF.MADD grows{name} {}", items.join(" ")));
                    assert!(added.starts_with("*20\r\n"), "{added}");
                    match at % 200 {
                        100 => drop(client.say(&format!("DEL grows{name}"))),
                        150 => drop(client.say(&format!("RENAME grows{name} other{thread}"))),
                        199 => drop(client.say(&format!("PEXPIRE grows{name} 1"))),
                        _ => {}
                    }
                }
            });
        }
    });
    let keys = &server.keyspace;
    let mut sum = 0;
    keys.scan(0, 0, usize::MAX, 0, |name, entry| sum += keys.bytes_of(name, entry));
    assert_eq!(keys.used(), sum, "while there are keys");
    Client::new(&server).say("FLUSHALL");
    assert_eq!((keys.used(), keys.len(0)), (0, 0));
}

#[test]
fn what_takes_long_is_for_a_thread_of_its_own() {
    let server = server();
    let mut client = Client::new(&server);
    let mut place = |words: &[&str]| {
        let input = request(words);
        client.session.process(&server, &input, &mut Vec::new(), Place::Shared).next
    };
    let light = [
        &["KEYS", "*"][..],
        &["SCAN", "0", "COUNT", "1000"],
        &["FLUSHALL"],
        &["DEL", "a", "b"],
        &["EXISTS", "a"],
    ];
    light.iter().for_each(|words| assert_eq!(place(words), Next::Read, "{words:?}"));
    let long = "*a".repeat(200);
    let many = vec!["DEL"; 3000];
    for words in [&["SCAN", "0", "COUNT", "10000"][..], &["KEYS", &long], &many] {
        assert_eq!(place(words), Next::Work, "{:?}", words[0]);
    }
    let mut client = Client::new(&server);
    (0..3000).for_each(|at| drop(client.say(&format!("BF.ADD {at} x"))));
    for words in [&["KEYS", "*"][..], &["FLUSHALL"], &["FLUSHDB"]] {
        let (input, mut out) = (request(words), Vec::new());
        let progress = client.session.process(&server, &input, &mut out, Place::Shared);
        assert_eq!((progress.next, out.len()), (Next::Work, 0), "{words:?}");
    }
}

#[test]
fn a_large_filter_is_off_the_account_as_soon_as_it_is_deleted() {
    let server = server();
    let mut client = Client::new(&server);
    // 240 MB, touched in many places.
    assert_eq!(client.say("BF.RESERVE large 0.01 200000000 NONSCALING"), "+OK\r\n");
    for at in 0..2000 {
        let items: Vec<String> = (0..100).map(|item| format!("{at}-{item}")).collect();
        client.say(&format!("BF.MADD large {}", items.join(" ")));
    }
    let used = server.keyspace.used();
    assert!(used > 200 << 20, "{used} bytes are not large");
    assert_eq!(client.say("DEL large"), ":1\r\n");
    assert_eq!(server.keyspace.used(), 0);
}
