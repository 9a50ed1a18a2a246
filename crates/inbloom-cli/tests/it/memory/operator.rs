//! What an admin can make grow beyond what others can: transfers, and lists of clients.

use std::io::Write;

use crate::memory::server::{Client, Server, flood, request, request_of};

/// The reply of DUMP, or the two parts of one of SCANDUMP.
fn dump(client: &mut Client, words: &[&str]) -> (String, Vec<u8>) {
    let mut line = client.ask(words);
    let mut next = String::new();
    if line.starts_with('*') {
        next = client.line()[1..].to_owned();
        line = client.line();
    }
    let bytes = client.bulk(&line);
    (next, bytes)
}

/// Sends a command of any bytes, and tells whether it was refused for want of memory.
fn is_refused(client: &mut Client, words: &[&[u8]]) -> bool {
    client.stream.write_all(&request_of(words)).unwrap();
    let reply = client.line();
    assert!(reply == "+OK" || reply.contains("--max-memory"), "{reply}");
    reply != "+OK"
}

#[test]
fn filters_that_are_loaded_or_restored_count() {
    for reserve in ["BF.RESERVE f 0.01 800000", "BF.RESERVE f 0.01 800000 KIND classic"] {
        let server = Server::start();
        let mut client = server.connect("operator");
        assert_eq!(client.ask(&reserve.split(' ').collect::<Vec<_>>()), "+OK");
        assert_eq!(client.ask(&["BF.ADD", "f", "x"]), ":1");
        let (_, payload) = dump(&mut client, &["DUMP", "f"]);
        let (first, header) = dump(&mut client, &["BF.SCANDUMP", "f", "0"]);
        let (next, piece) = dump(&mut client, &["BF.SCANDUMP", "f", &first]);
        // Of each filter all but the last bytes arrive.
        let refused = (0..200).any(|at| {
            let name = format!("loading:{at}");
            [(&first, &header), (&next, &piece)].into_iter().any(|(iterator, chunk)| {
                let words = [b"BF.LOADCHUNK", name.as_bytes(), iterator.as_bytes(), chunk];
                is_refused(&mut client, &words)
            })
        });
        assert!(refused, "{reserve}: 200 filters of a megabyte do not fit into 64");
        server.check(&format!("LOADCHUNK: {reserve}"));
        let server = Server::start();
        let mut client = server.connect("operator");
        let refused = (0..200).any(|at| {
            let name = format!("restored:{at}");
            is_refused(&mut client, &[b"RESTORE", name.as_bytes(), b"0", &payload])
        });
        assert!(refused, "{reserve}: 200 filters of a megabyte do not fit into 64");
        server.check(&format!("RESTORE: {reserve}"));
    }
}

#[test]
fn pieces_of_a_byte_count() {
    let server = Server::start();
    let mut client = server.connect("operator");
    assert_eq!(client.ask(&["BF.RESERVE", "f", "0.01", "100000", "KIND", "redisbloom"]), "+OK");
    let (_, header) = dump(&mut client, &["BF.SCANDUMP", "f", "0"]);
    for name in 0..20 {
        let name = format!("loading:{name}");
        if is_refused(&mut client, &[b"BF.LOADCHUNK", name.as_bytes(), b"1", &header]) {
            break;
        }
        // Every second byte, so that no two pieces become one.
        let piece = |at: u64| {
            let iterator = (2 * at + 2).to_string();
            request_of(&[b"BF.LOADCHUNK", name.as_bytes(), iterator.as_bytes(), b"\0"])
        };
        for batch in 0..40 {
            let bytes: Vec<u8> = (batch * 1000..(batch + 1) * 1000).flat_map(piece).collect();
            client.stream.write_all(&bytes).unwrap();
            for _ in 0..1000 {
                let reply = client.line();
                assert!(reply == "+OK" || reply.contains("--max-memory"), "{reply}");
            }
        }
    }
    server.check("pieces of a byte");
}

#[test]
fn lists_of_clients_count() {
    let server = Server::start();
    let name = "x".repeat(1024);
    let clients: Vec<Client> = (0..300)
        .map(|_| {
            let mut client = server.connect("reader");
            assert_eq!(client.ask(&["CLIENT", "SETNAME", &name]), "+OK");
            assert_eq!(client.ask(&["CLIENT", "SETINFO", "LIB-NAME", &name]), "+OK");
            assert_eq!(client.ask(&["CLIENT", "SETINFO", "LIB-VER", &name]), "+OK");
            client
        })
        .collect();
    let lists = request(&["CLIENT", "LIST"]).repeat(1000);
    let queue = [request(&["MULTI"]), lists.clone(), request(&["EXEC"])].concat();
    let operators: Vec<Client> = (0..8).map(|_| server.connect("operator")).collect();
    let bytes = [vec![lists; 4], vec![queue; 4]].concat();
    flood(&operators, &bytes);
    server.check("CLIENT LIST");
    drop(clients);
}
