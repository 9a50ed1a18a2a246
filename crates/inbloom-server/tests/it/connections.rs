//! Many clients, and bad ones: nothing is left behind.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::sockets::{Answer, Running, request};
use inbloom_server::Config;
use inbloom_testing::{Random, alone, resident_memory};

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn ten_thousand_connections_half_of_them_garbage_leave_nothing_behind() {
    alone(|| {
        let running = Running::start(Config { threads: 2, ..Config::default() });
        let mut steady = running.connect();
        assert_eq!(steady.call("BF.ADD steady x").integer(), 1);
        let (files, mut memory) = (open_files(), 0);
        let mut random = Random(7);
        // In waves, since a test may have few file descriptors; the first two warm everything up.
        for wave in 0..50 {
            let streams: Vec<TcpStream> =
                (0..200).map(|_| TcpStream::connect(running.address).unwrap()).collect();
            for (at, mut stream) in streams.iter().enumerate() {
                let bytes = if at % 2 == 0 {
                    request(&[b"BF.ADD", b"wave", format!("{wave}:{at}").as_bytes()])
                } else {
                    (0..1 + random.below(2000)).map(|_| random.next() as u8).collect()
                };
                // A server that has already refused the garbage may have closed.
                let _ = stream.write_all(&bytes);
            }
            for (at, mut stream) in streams.into_iter().enumerate().filter(|(at, _)| at % 2 == 0) {
                let mut reply = [0; 4];
                stream.read_exact(&mut reply).unwrap();
                assert!(&reply == b":1\r\n" || &reply == b":0\r\n", "{at}: {reply:?}");
            }
            if wave == 1 {
                memory = resident_memory();
            }
        }
        let end = Instant::now() + Duration::from_secs(20);
        while (running.server.clients.count() > 1 || open_files() > files) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(running.server.clients.count(), 1, "clients that are gone are still listed");
        assert!(open_files() <= files, "{} files are open, {files} were", open_files());
        let grown = resident_memory().saturating_sub(memory);
        assert!(grown < 32 << 20, "{grown} bytes more than after 400 connections");
        assert_eq!(steady.call("BF.EXISTS steady x").integer(), 1);
        assert!(steady.call("BF.CARD wave").integer() > 4_800);
    });
}

#[test]
fn a_request_may_arrive_byte_by_byte() {
    let running = Running::start(Config { threads: 1, ..Config::default() });
    let mut client = running.connect();
    for byte in request(&[b"BF.MADD", b"slow", b"a", b"b"]) {
        client.stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(client.read().integers(), [1, 1]);
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    alone(|| {
        let running = Running::start(Config { threads: 1, ..Config::default() });
        let mut other = running.connect();
        let mut lazy = running.connect().stream;
        let words: Vec<Vec<u8>> = (0..1000).map(|i| format!("item:{i}").into_bytes()).collect();
        let mut all: Vec<&[u8]> = vec![b"BF.MEXISTS", b"none"];
        all.extend(words.iter().map(Vec::as_slice));
        let bytes = request(&all);
        lazy.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let before = resident_memory();
        let mut taken = 0;
        // It takes in what the sockets' buffers hold, and no more.
        while taken < 256 << 20 && lazy.write_all(&bytes).is_ok() {
            taken += bytes.len();
        }
        assert!(taken < 256 << 20, "the server went on reading");
        assert!(resident_memory() - before < 64 << 20, "{} bytes held", resident_memory() - before);
        assert_eq!(other.call("PING"), Answer::Simple("PONG".into()));
    });
}

#[test]
fn a_client_too_many_is_told_so() {
    let mut config = Config { threads: 1, ..Config::default() };
    config.settings.max_clients = 2;
    let running = Running::start(config);
    let (mut first, mut second) = (running.connect(), running.connect());
    assert_eq!(first.call("PING"), Answer::Simple("PONG".into()));
    assert_eq!(second.call("PING"), Answer::Simple("PONG".into()));
    let Answer::Error(refusal) = running.connect().read() else { panic!("a third client") };
    assert!(refusal.starts_with("ERR max number of clients reached: the limit is 2 "), "{refusal}");
    assert!(refusal.contains("--max-clients"), "{refusal}");
}

#[test]
fn long_work_of_one_client_does_not_stop_another() {
    let running = Running::start(Config { threads: 1, ..Config::default() });
    let (mut busy, mut other) = (running.connect(), running.connect());
    let items: Vec<Vec<u8>> = (0..300_000).map(|i| format!("item:{i:09}").into_bytes()).collect();
    let mut words: Vec<&[u8]> = vec![b"BF.MADD", b"many"];
    words.extend(items.iter().map(Vec::as_slice));
    busy.stream.write_all(&request(&words)).unwrap();
    // One thread serves both: it must be free while the other's command is carried out.
    let mut pings = 0;
    let replies = std::thread::spawn(move || busy.read().integers());
    while !replies.is_finished() {
        assert_eq!(other.call("PING"), Answer::Simple("PONG".into()));
        pings += 1;
    }
    let new = replies.join().unwrap().iter().sum::<i64>();
    assert!(new > 296_000, "{new} of 300,000 items were new");
    assert!(pings > 0, "no answer meanwhile");
}

#[test]
fn a_stopping_server_waits_for_the_rest_of_what_a_client_is_sending() {
    let running = Running::start(Config { threads: 1, ..Config::default() });
    let mut client = running.connect();
    // Or the server might stop before it knows the client.
    assert_eq!(client.call("PING"), Answer::Simple("PONG".into()));
    // Long enough for the server to stop in the middle of it, on a busy machine too.
    client.stream.write_all(b"DEBUG SLEEP 0.3\r\n").unwrap();
    running.server.shut_down();
    assert_eq!(client.read(), Answer::Simple("OK".into()));
    // The network, or a busy kernel, takes its time with the second half.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(client.call("PING"), Answer::Simple("PONG".into()));
    assert_eq!(client.stream.read(&mut [0]).unwrap(), 0, "then it ends");
}

#[test]
fn a_client_that_polls_does_not_keep_a_stopping_server() {
    let running = Running::start(Config { threads: 1, ..Config::default() });
    let mut client = running.connect();
    assert_eq!(client.call("PING"), Answer::Simple("PONG".into()));
    client.stream.write_all(b"DEBUG SLEEP 0.3\r\n").unwrap();
    running.server.shut_down();
    assert_eq!(client.read(), Answer::Simple("OK".into()));
    let stopping = Instant::now();
    let mut answers = 0;
    while client.stream.write_all(b"PING\r\n").is_ok()
        && client.stream.peek(&mut [0]).is_ok_and(|count| count > 0)
    {
        assert_eq!(client.read(), Answer::Simple("PONG".into()));
        answers += 1;
        assert!(stopping.elapsed() < Duration::from_secs(6), "{answers} answers");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(answers > 0, "what came at once is answered");
}
