//! What clients hold without a filter: names, queues, watched keys, halves of requests.

use crate::memory::server::{Client, Server, flood, request};

/// So many connections do a thing at once.
const MANY: usize = 40;

fn many(server: &Server, user: &str) -> Vec<Client> {
    (0..MANY).map(|_| server.connect(user)).collect()
}

#[test]
fn names_of_clients_have_a_length() {
    let server = Server::start();
    let long = "x".repeat(8 << 20);
    for words in [
        &["CLIENT", "SETINFO", "LIB-NAME", &long][..],
        &["CLIENT", "SETINFO", "LIB-VER", &long],
        &["CLIENT", "SETNAME", &long],
        &["HELLO", "3", "SETNAME", &long],
        &["AUTH", &long, "x"],
        &["CLIENT", "KILL", "USER", &long],
        &["SELECT", &long],
        &[&long, "x"],
    ] {
        let mut clients = many(&server, "reader");
        for client in &mut clients {
            let reply = client.ask(words);
            assert!(reply.starts_with('-'), "{}", &reply[..reply.len().min(80)]);
        }
        server.check(&words[0][..words[0].len().min(9)]);
    }
}

#[test]
fn halves_of_requests_count() {
    let server = Server::start();
    let clients = many(&server, "reader");
    let half = [b"*2\r\n$4\r\nECHO\r\n$60000000\r\n".to_vec(), vec![b'x'; 16 << 20]].concat();
    flood(&clients, &vec![half; MANY]);
    server.check("halves of one argument");
    let clients = many(&server, "reader");
    let words = [b"*1000000\r\n".to_vec(), b"$1\r\nx\r\n".repeat(900_000)].concat();
    flood(&clients, &vec![words; MANY]);
    server.check("halves of a million arguments");
}

#[test]
fn commands_of_a_million_words_count() {
    let server = Server::start();
    let items = vec!["x"; 300_000];
    for head in [
        &["BF.MADD", "f"][..],
        &["BF.MEXISTS", "f"],
        &["CF.INSERT", "c", "ITEMS"],
        &["CF.MEXISTS", "c"],
        &["IB.CHECKANY", "1", "f", "ITEMS"],
        &["DEL"],
        &["EXISTS"],
        &["COMMAND", "GETKEYS", "BF.MADD"],
        &["COMMAND", "INFO"],
    ] {
        let clients: Vec<Client> = (0..16).map(|_| server.connect("writer")).collect();
        let words = [head, &items].concat();
        flood(&clients, &vec![request(&words); clients.len()]);
        server.check(&head.join(" "));
    }
}

#[test]
fn queues_and_watched_keys_count() {
    let server = Server::start();
    let clients = many(&server, "reader");
    let queue = [request(&["MULTI"]), b"PING\r\n".repeat(1 << 20)].concat();
    flood(&clients, &vec![queue; MANY]);
    server.check("MULTI of short commands");
    let clients = many(&server, "reader");
    let names: Vec<String> = (0..9999).map(|at| format!("{at:0>90}")).collect();
    let words: Vec<&str> = ["WATCH"].into_iter().chain(names.iter().map(|it| &**it)).collect();
    flood(&clients, &vec![request(&words); MANY]);
    server.check("WATCH");
}
