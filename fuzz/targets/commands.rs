//! Whole conversations: commands of the table with arguments from a small stock, so that they meet each
//! other's keys, and with arbitrary ones. Nothing may panic, every command gets exactly one reply (unless
//! CLIENT REPLY was asked for less), and memory stays within what filters may take.

#![no_main]

use inbloom_server::session::{Next, Place};
use inbloom_server::session_state::ReplyMode;
use inbloom_server::{Config, Server, Session, command_table};
use libfuzzer_sys::fuzz_target;

/// Words that mean something somewhere.
const STOCK: &[&str] = &[
    "a",
    "b",
    "c",
    "0",
    "1",
    "2",
    "-1",
    "7",
    "100",
    "1000",
    "65536",
    "1099511627776",
    "0.01",
    "0.001",
    "1e-9",
    "0.5",
    "ITEMS",
    "CAPACITY",
    "ERROR",
    "EXPANSION",
    "NONSCALING",
    "NOCREATE",
    "KIND",
    "counting",
    "cuckoo",
    "classic",
    "redisbloom",
    "WINDOW",
    "7d",
    "1ms",
    "AUTOCLEAR",
    "0.8",
    "BUCKETSIZE",
    "MAXITERATIONS",
    "MATCH",
    "*",
    "a*",
    "[a-c]",
    "COUNT",
    "NX",
    "XX",
    "GT",
    "LT",
    "REPLACE",
    "ABSTTL",
    "SETNAME",
    "AUTH",
    "default",
    "3",
    "",
    "bf-error-rate",
    "cf-bucket-size",
    "maxmemory",
    "LIST",
    "ON",
    "OFF",
    "SKIP",
    "TYPE",
    "MBbloom--",
    "item",
    "alice",
    "bob",
];

/// What follows the reply at the beginning of `out`.
fn skip(out: &[u8]) -> &[u8] {
    let end = out.windows(2).position(|two| two == b"\r\n").expect("a whole line");
    let (line, rest) = (&out[1..end], &out[end + 2..]);
    // Of bytes or elements; -1 for nothing.
    let length = || match std::str::from_utf8(line).unwrap().parse::<i64>().unwrap() {
        -1 => None,
        length => Some(usize::try_from(length).unwrap()),
    };
    match out[0] {
        b'+' | b'-' | b':' | b',' | b'(' => rest,
        b'#' if matches!(line, b"t" | b"f") => rest,
        b'_' if line.is_empty() => rest,
        b'$' | b'=' => length().map_or(rest, |bytes| {
            rest[bytes..].strip_prefix(b"\r\n").expect("CR LF after a string")
        }),
        b'*' | b'~' | b'>' => (0..length().unwrap_or(0)).fold(rest, |rest, _| skip(rest)),
        b'%' => (0..2 * length().unwrap()).fold(rest, |rest, _| skip(rest)),
        _ => panic!("no reply: {}", out[..end].escape_ascii()),
    }
}

fuzz_target!(|data: &[u8]| {
    let mut config = Config { threads: 1, ..Config::default() };
    config.settings.max_memory = 32 << 20;
    let server = Server::new(config);
    let client = server.clients.enter("fuzz:1".into(), "fuzz:0".into());
    let mut session = Session::new(client, &server);
    let rows: Vec<&inbloom_server::command::Command> =
        command_table::commands().filter(|row| row.name != "debug").collect();
    let (mut input, mut sent, mut unanswered) = (data, 0, 0);
    // CLIENT REPLY was sent, perhaps for EXEC to carry out: some replies may be missing.
    let mut quiet = false;
    let mut request = Vec::new();
    while let [row, count, rest @ ..] = input {
        input = rest;
        let row = rows[usize::from(*row) % rows.len()];
        let mut words: Vec<Vec<u8>> = vec![row.name.as_bytes().to_vec()];
        if let Some(sub) = row.subcommands.get(usize::from(*count >> 4)) {
            words.push(sub.name[row.name.len() + 1..].as_bytes().to_vec());
        }
        for _ in 0..count & 15 {
            let [choice, rest @ ..] = input else { break };
            input = rest;
            match STOCK.get(usize::from(*choice)) {
                Some(word) => words.push(word.as_bytes().to_vec()),
                None => {
                    let (word, rest) =
                        input.split_at(input.len().min(usize::from(*choice) - STOCK.len()));
                    words.push(word.to_vec());
                    input = rest;
                }
            }
        }
        let is = |at: usize, name: &str| {
            words.get(at).is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
        };
        if is(0, "config") && is(1, "set") && (2..words.len()).any(|at| is(at, "maxmemory")) {
            continue; // The limit is what is tested below.
        }
        quiet |= is(0, "client") && is(1, "reply");
        request.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in &words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        sent += 1;
        unanswered += 1;
        // Some together, some alone.
        if sent % 3 == 0 || input.len() < 2 {
            let mut out = Vec::new();
            let mut rest = &request[..];
            loop {
                let progress = session.process(&server, rest, &mut out, Place::Own);
                rest = &rest[progress.consumed..];
                if progress.next != Next::Close && !quiet {
                    let mut replies = &out[..];
                    while !replies.is_empty() {
                        replies = skip(replies);
                        unanswered -= 1;
                    }
                }
                out.clear();
                match progress.next {
                    Next::Write => {}
                    Next::Read => break,
                    Next::Close => return,
                    Next::Work => unreachable!("this thread is for all work"),
                }
            }
            assert!(rest.is_empty(), "whole requests are carried out");
            assert!(unanswered == 0 || quiet, "{unanswered} more requests than replies");
            request.clear();
            unanswered = 0;
            quiet &=
                session.state.reply_mode != ReplyMode::On || session.state.transaction.is_some();
        }
        server.keyspace.expire_due(inbloom_server::clock::now(), 100);
        assert!(server.keyspace.used() <= 64 << 20, "{} bytes", server.keyspace.used());
    }
});
