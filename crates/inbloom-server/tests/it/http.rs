//! What monitors are told while something is wrong.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::sockets::Running;
use inbloom_server::Config;
use inbloom_server::health::LOADING;

fn health(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, text) = reply.split_once("\r\n\r\n").unwrap();
    format!("{} {}", head.split(' ').nth(1).unwrap(), text.trim_end())
}

#[test]
fn health_is_503_with_the_reason_until_it_is_over() {
    let running = Running::start(Config { threads: 1, ..Config::default() });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    inbloom_server::http::start(listener, &running.server).unwrap();
    let server = &running.server;
    assert_eq!(health(address), "200 ok");
    server.health.suffer(LOADING, "5 of 9 filters are read");
    assert_eq!(health(address), "503 loading: 5 of 9 filters are read");
    server.health.suffer("log", "cannot write: no space left on device");
    server.health.recover(LOADING);
    assert_eq!(health(address), "503 log: cannot write: no space left on device");
    server.health.recover("log");
    assert_eq!(health(address), "200 ok");
    server.shut_down();
    assert_eq!(health(address), "503 stopping");
}

#[test]
fn whoever_says_nothing_keeps_no_monitor_out() {
    let running = Running::start(Config { threads: 1, ..Config::default() });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    inbloom_server::http::start(listener, &running.server).unwrap();
    // More than there are places; half of them begin a request.
    let silent: Vec<TcpStream> = (0..100)
        .map(|at| {
            let mut stream = TcpStream::connect(address).unwrap();
            let begun: &[u8] = if at % 2 == 0 { b"GET /metrics HTTP/1.1\r\nhost" } else { b"" };
            stream.write_all(begun).unwrap();
            stream
        })
        .collect();
    assert_eq!(health(address), "200 ok");
    drop(silent);
}
