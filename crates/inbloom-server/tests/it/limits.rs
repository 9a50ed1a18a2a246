//! What clients and filters may take, and what they are told beyond it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::client::{Client, request};
use crate::sockets::{Answer, Running};
use inbloom_server::clients::holdings::CONNECTION;
use inbloom_server::session::{Next, Place};
use inbloom_server::{Config, Server, Settings};
use inbloom_testing::{alone, resident_memory};

fn server(change: impl FnOnce(&mut Settings)) -> Server {
    Server::new(config(change))
}

fn config(change: impl FnOnce(&mut Settings)) -> Config {
    let mut config = Config { threads: 1, ..Config::default() };
    change(&mut config.settings);
    config
}

#[test]
fn memory_is_granted_to_one_of_two_for_whom_there_is_room_only_one_by_one() {
    let server = server(|settings| settings.max_memory = 100_000);
    let first = server.limits.make_room(60_000).unwrap();
    let refusal = server.limits.make_room(60_000).err().expect("60 of the 100 kB are promised");
    assert!(
        refusal.text().contains("and 60000 of the 100000 bytes of --max-memory are in use"),
        "{}",
        refusal.text()
    );
    let rest = server.limits.make_room(40_000).unwrap();
    assert_eq!(server.limits.in_use(), 100_000);
    drop(first);
    let again = server.limits.make_room(60_000).unwrap();
    drop((again, rest));
    assert_eq!(server.limits.in_use(), 0);
}

#[test]
fn filters_made_at_once_do_not_pass_the_limit_together() {
    const FILTERS: usize = 4;
    let lines = [
        "BF.RESERVE f 0.01 1000000",
        "BF.RESERVE f 0.01 1000000 KIND classic",
        "BF.RESERVE f 0.01 1000000 KIND redisbloom",
        "CF.RESERVE f 1000000",
    ];
    for line in lines {
        // Room for one and a half.
        let probe = server(|_| ());
        assert_eq!(Client::new(&probe).say(line), "+OK\r\n");
        let limit = probe.limits.in_use() * 3 / 2;
        let server = server(|settings| settings.max_memory = limit);
        for round in 0..30 {
            let barrier = Barrier::new(FILTERS);
            let made = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..FILTERS)
                    .map(|at| {
                        let (server, barrier) = (&server, &barrier);
                        scope.spawn(move || {
                            let mut client = Client::new(server);
                            let line = line.replace(" f ", &format!(" f{at} "));
                            barrier.wait();
                            usize::from(client.say(&line) == "+OK\r\n")
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
            });
            assert!(made <= 1, "{line}: {made} filters in round {round}");
            assert!(server.limits.in_use() <= limit);
            assert_eq!(Client::new(&server).say("FLUSHALL"), "+OK\r\n");
            assert_eq!(server.limits.in_use(), 0, "nothing stays promised");
        }
        assert_eq!(Client::new(&server).say(line), "+OK\r\n", "there is room for one");
    }
}

#[test]
fn no_filter_is_made_beyond_max_filter() {
    let server = server(|settings| settings.max_filter = 100_000);
    let mut client = Client::new(&server);
    for line in [
        "BF.RESERVE f 0.001 1000000",
        "BF.RESERVE f 0.001 1000000 NONSCALING",
        "BF.RESERVE f 0.001 1000000 KIND counting",
        "BF.RESERVE f 0.001 1000000 WINDOW 1h",
        "BF.RESERVE f 0.001 1000000 KIND redisbloom",
        "BF.INSERT f CAPACITY 1000000 ITEMS x",
        "CF.RESERVE f 1000000",
        "CF.INSERT f CAPACITY 1000000 ITEMS x",
    ] {
        let refusal = client.say(line);
        assert!(refusal.starts_with('-') && refusal.contains("--max-filter"), "{line}: {refusal}");
        assert!(refusal.contains("100000"), "{line}: {refusal}");
        assert_eq!(client.say("DBSIZE"), ":0\r\n", "{line}");
    }
    assert_eq!(server.limits.in_use(), 0);
    assert_eq!(client.say("BF.RESERVE f 0.001 1000"), "+OK\r\n");
    assert_eq!(client.say("CONFIG SET max-filter 10mb"), "+OK\r\n");
    assert_eq!(client.say("BF.RESERVE g 0.001 1000000"), "+OK\r\n");
    assert_eq!(
        client.say("CONFIG GET max-filter"),
        "*2\r\n$10\r\nmax-filter\r\n$8\r\n10485760\r\n"
    );
}

#[test]
fn no_filter_grows_beyond_max_filter() {
    for (reserve, add) in [
        ("BF.RESERVE f 0.01 1000", "BF.MADD f"),
        ("BF.RESERVE f 0.01 1000 KIND redisbloom", "BF.MADD f"),
        ("CF.RESERVE f 1000", "CF.INSERT f ITEMS"),
    ] {
        let server = server(|settings| settings.max_filter = 20_000);
        let mut client = Client::new(&server);
        assert_eq!(client.say(reserve), "+OK\r\n");
        let mut refusal = None;
        for round in 0..200 {
            let items: Vec<String> = (0..500).map(|at| format!("{round}:{at}")).collect();
            let reply = client.say(&format!("{add} {}", items.join(" ")));
            refusal = reply.lines().find(|line| line.starts_with('-')).map(str::to_owned);
            if refusal.is_some() {
                break;
            }
        }
        let refusal = refusal.unwrap_or_else(|| panic!("{reserve}: it grew without end"));
        assert!(refusal.contains("--max-filter"), "{reserve}: {refusal}");
        assert!(refusal.contains("20000"), "{reserve}: {refusal}");
        let bytes = server.limits.in_use();
        assert!(bytes <= 20_000 + 400, "{reserve}: {bytes} bytes, some of them the entry's");
    }
}

#[test]
fn growth_names_max_memory_where_that_is_what_is_short() {
    let server = server(|settings| settings.max_memory = 20_000);
    let mut client = Client::new(&server);
    assert_eq!(client.say("BF.RESERVE f 0.01 1000"), "+OK\r\n");
    let refusal = (0..100_000).map(|key| client.say(&format!("BF.ADD f {key}")));
    let refusal = refusal.into_iter().find(|reply| reply.starts_with('-')).expect("a limit");
    assert!(refusal.contains("of --max-memory"), "{refusal}");
}

/// The bytes that a server answers to words of any bytes.
fn say(server: &Server, words: &[&[u8]]) -> Vec<u8> {
    let mut client = Client::new(server);
    let mut out = Vec::new();
    client.session.process(server, &crate::sockets::request(words), &mut out, Place::Own);
    out
}

/// What is inside the last bulk string.
fn bulk(reply: &[u8]) -> &[u8] {
    let start = reply.iter().position(|byte| *byte == b'$').unwrap();
    let end = start + reply[start..].iter().position(|byte| *byte == b'\n').unwrap();
    &reply[end + 1..reply.len() - 2]
}

#[test]
fn no_filter_is_loaded_restored_or_merged_beyond_max_filter() {
    let roomy = server(|_| ());
    let tight = server(|settings| settings.max_filter = 10_000);
    let refused = |reply: Vec<u8>, what: &str| {
        let reply = String::from_utf8(reply).unwrap();
        assert!(reply.starts_with('-') && reply.contains("--max-filter"), "{what}: {reply}");
    };
    for (reserve, add, scandump, loadchunk) in [
        ("BF.RESERVE f 0.01 50000", "BF.ADD f x", "BF.SCANDUMP", "BF.LOADCHUNK"),
        ("BF.RESERVE f 0.01 50000 KIND classic", "BF.ADD f x", "BF.SCANDUMP", "BF.LOADCHUNK"),
        ("BF.RESERVE f 0.01 50000 KIND redisbloom", "BF.ADD f x", "BF.SCANDUMP", "BF.LOADCHUNK"),
        ("CF.RESERVE f 50000", "CF.ADD f x", "CF.SCANDUMP", "CF.LOADCHUNK"),
    ] {
        let mut client = Client::new(&roomy);
        assert_eq!(client.say("FLUSHALL"), "+OK\r\n");
        assert_eq!(client.say(reserve), "+OK\r\n");
        assert_eq!(client.say(add), ":1\r\n");
        let dump = say(&roomy, &[b"DUMP", b"f"]);
        refused(say(&tight, &[b"RESTORE", b"f", b"0", bulk(&dump)]), reserve);
        let header = say(&roomy, &[scandump.as_bytes(), b"f", b"0"]);
        refused(say(&tight, &[loadchunk.as_bytes(), b"f", b"1", bulk(&header)]), reserve);
        assert_eq!(tight.limits.in_use(), 0, "{reserve}");
    }
    // Two that are allowed make one that is not.
    let server = server(|_| ());
    let mut client = Client::new(&server);
    for name in ["a", "b"] {
        assert_eq!(client.say(&format!("BF.RESERVE {name} 0.01 1000")), "+OK\r\n");
        for key in 0..4000 {
            assert!(client.say(&format!("BF.ADD {name} {name}{key}")).starts_with(':'));
        }
    }
    let limit = server.limits.in_use() * 3 / 4;
    assert_eq!(client.say(&format!("CONFIG SET max-filter {limit}")), "+OK\r\n");
    let refusal = client.say("IB.MERGE c a b");
    assert!(refusal.contains("--max-filter"), "{refusal}");
    assert_eq!(client.say("EXISTS c"), ":0\r\n");
}

#[test]
fn requests_have_limits_that_can_be_changed_and_are_named() {
    let server = server(|settings| {
        settings.max_argument = 1 << 20;
        settings.max_request = 2 << 20;
        settings.max_multi = 1000;
    });
    let long = "x".repeat((1 << 20) + 1);
    let refusal = Client::new(&server).send(&request(&["ECHO", &long])).0;
    assert!(refusal.contains("1048577 bytes, the limit of --max-argument is 1048576"), "{refusal}");
    let some = "x".repeat(900 << 10);
    let refusal = Client::new(&server).send(&request(&["BF.MADD", "f", &some, &some, &some])).0;
    assert!(refusal.contains("the limit of --max-request is 2097152"), "{refusal}");
    let mut client = Client::new(&server);
    client.check(&[("MULTI", "+OK/"), ("PING", "+QUEUED/")]);
    let refusal = client.say(&format!("ECHO {}", "x".repeat(1000)));
    assert!(refusal.contains("1000 bytes") && refusal.contains("--max-multi"), "{refusal}");
    let text = "-EXECABORT Transaction discarded because of previous errors./";
    client.check(&[
        ("EXEC", text),
        ("CONFIG SET proto-max-bulk-len 2mb client-query-buffer-limit 8mb max-multi 8mb", "+OK/"),
    ]);
    assert!(client.say(&format!("ECHO {long}")).starts_with("$1048577\r\n"));
    client.check(&[("MULTI", "+OK/")]);
    assert_eq!(client.say(&format!("ECHO {long}")), "+QUEUED\r\n");
    assert!(client.say("EXEC").starts_with("*1\r\n$1048577\r\n"));
    for parameter in ["proto-max-bulk-len", "client-query-buffer-limit"] {
        let refusal = client.say(&format!("CONFIG SET {parameter} 1000"));
        assert!(refusal.contains("between 1048576 and 4294967295"), "{refusal}");
    }
}

#[test]
fn a_limit_lowered_after_a_command_was_queued_does_not_break_exec() {
    let server = server(|_| ());
    let (mut client, mut other) = (Client::new(&server), Client::new(&server));
    let long = "x".repeat(2 << 20);
    client.check(&[("MULTI", "+OK/")]);
    assert_eq!(client.say(&format!("ECHO {long}")), "+QUEUED\r\n");
    assert_eq!(other.say("CONFIG SET proto-max-bulk-len 1mb"), "+OK\r\n");
    assert!(client.say("EXEC").starts_with("*1\r\n$2097152\r\n"));
}

/// What all clients hold.
fn held(running: &Running) -> u64 {
    running.server.clients.held.load(Ordering::Relaxed)
}

/// Waits until the server has so many clients.
fn wait_for(running: &Running, count: usize) {
    let end = Instant::now() + Duration::from_secs(20);
    while running.server.clients.count() != count {
        assert!(Instant::now() < end, "{} clients", running.server.clients.count());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_client_that_reads_nothing_holds_little_and_not_for_long() {
    alone(|| {
        let running = Running::start(config(|settings| settings.write_timeout = 1));
        let mut other = running.connect();
        assert_eq!(other.call("PING"), Answer::Simple("PONG".into()));
        let mut lazy = TcpStream::connect(running.address).unwrap();
        lazy.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let request = request(&["ECHO", &"x".repeat(1000)]);
        let pipeline = request.repeat(1000);
        let before = resident_memory();
        let begin = Instant::now();
        // Millions of requests, if they were taken: the sockets' buffers are, and then nothing.
        let mut sent = 0;
        while sent < 1 << 30 && lazy.write_all(&pipeline).is_ok() {
            sent += pipeline.len();
        }
        assert!(sent < 256 << 20, "{sent} bytes were taken");
        let grown = resident_memory().saturating_sub(before);
        assert!(grown < 64 << 20, "{grown} bytes held for {sent} sent");
        assert!(held(&running) < 8 << 20);
        wait_for(&running, 1);
        assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
        let left = held(&running);
        assert!(left < CONNECTION + 1024, "{left} bytes, those of the other client");
        let Answer::Bulk(info) = other.call("INFO stats") else { panic!("INFO is text") };
        let info = String::from_utf8(info).unwrap();
        assert!(info.contains("client_output_buffer_limit_disconnections:1\r\n"), "{info}");
    });
}

#[test]
fn a_client_that_reads_slowly_stays() {
    let running = Running::start(config(|settings| settings.write_timeout = 1));
    let mut slow = TcpStream::connect(running.address).unwrap();
    let count = 12;
    let text = "x".repeat(1 << 20);
    let mut writer = slow.try_clone().unwrap();
    let bytes = request(&["ECHO", &text]).repeat(count);
    let sent = std::thread::spawn(move || writer.write_all(&bytes));
    let expected = count * (text.len() + "$1048576\r\n\r\n".len());
    let (mut read, begin) = (0, Instant::now());
    let mut buffer = vec![0; 1 << 20];
    while read < expected {
        let got = slow.read(&mut buffer).unwrap();
        assert_ne!(got, 0, "sent away after {read} bytes");
        read += got;
        // Two seconds in all, twice what it may take to read nothing.
        if begin.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    sent.join().unwrap().unwrap();
}

#[test]
fn unfinished_requests_of_all_clients_have_a_limit_together() {
    let running = Running::start(config(|settings| settings.max_client_memory = 8 << 20));
    let mut other = running.connect();
    assert_eq!(other.call("PING"), Answer::Simple("PONG".into()));
    let part = [b"*2\r\n$4\r\nECHO\r\n$50000000\r\n".to_vec(), vec![b'x'; 3 << 20]].concat();
    let mut refusals = Vec::new();
    let mut kept = Vec::new();
    for _ in 0..6 {
        let mut stream = TcpStream::connect(running.address).unwrap();
        // Who is sent away may notice while it writes.
        let _ = stream.write_all(&part);
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut text = String::new();
        match stream.read_to_string(&mut text) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => kept.push(stream),
            _ => refusals.push(text),
        }
    }
    assert!((1..=3).contains(&kept.len()), "{} hold 3 MiB of 8 each", kept.len());
    let told = refusals.iter().filter(|text| text.contains("--max-client-memory")).count();
    assert!(told > 0, "{refusals:?}");
    assert_eq!(other.call("PING"), Answer::Simple("PONG".into()), "who holds little stays");
    let Answer::Bulk(info) = other.call("INFO stats") else { panic!("INFO is text") };
    let evicted = format!("evicted_clients:{}\r\n", refusals.len());
    assert!(String::from_utf8(info).unwrap().contains(&evicted), "{evicted}");
    drop(kept);
    wait_for(&running, 1);
    let left = held(&running);
    assert!(left < CONNECTION + 1024, "{left} bytes, those of the other client");
}

#[test]
fn an_idle_client_is_sent_away_after_the_timeout() {
    let running = Running::start(config(|settings| settings.timeout = 1));
    let mut idle = running.connect();
    assert_eq!(idle.call("PING"), Answer::Simple("PONG".into()));
    idle.stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert!(matches!(idle.stream.read(&mut [0; 8]), Ok(0)));
}

#[test]
fn refused_calls_are_counted_apart_from_failed_ones() {
    let server = server(|settings| settings.max_multi = 100);
    let mut client = Client::new(&server);
    client.say("BF.ADD f");
    client.say("BF.ADD f x");
    client.say("BF.RESERVE f 0.01 10");
    client.say("MULTI");
    client.say(&format!("BF.ADD f {}", "x".repeat(100)));
    client.say("DISCARD");
    let stats = client.say("INFO commandstats");
    let ends = |name: &str, end: &str| {
        let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:")));
        let line = line.unwrap_or_else(|| panic!("{name} in {stats}"));
        assert!(line.ends_with(end) && line.contains(":calls=1,"), "{line}");
    };
    ends("bf.add", ",rejected_calls=2,failed_calls=0");
    ends("bf.reserve", ",rejected_calls=0,failed_calls=1");
}

#[test]
fn what_dump_gives_restore_takes_or_dump_says_what_to_do() {
    let server = server(|settings| settings.max_argument = 8 << 20);
    for (made, add) in [
        ("BF.RESERVE f 0.01 5000000 KIND redisbloom", "BF.ADD f x"),
        ("CF.RESERVE f 6000000", "CF.ADD f x"),
        ("BF.RESERVE f 0.01 9000000", "BF.ADD f x"),
        ("BF.RESERVE f 0.01 9000000 KIND counting", "BF.ADD f x"),
        ("BF.RESERVE f 0.01 3000000 KIND redisbloom", "BF.ADD f x"),
        ("CF.RESERVE f 2000000", "CF.ADD f x"),
        ("BF.RESERVE f 0.01 3000000", "BF.ADD f x"),
    ] {
        let words = |line: &'static str| line.split(' ').map(str::as_bytes).collect::<Vec<_>>();
        assert_eq!(say(&server, &words(made)), b"+OK\r\n", "{made}");
        say(&server, &words(add));
        let reply = say(&server, &words("DUMP f"));
        if reply.starts_with(b"-") {
            let text = String::from_utf8_lossy(&reply);
            assert!(text.contains("--max-argument"), "{made}: {text}");
            assert!(text.contains("SCANDUMP"), "{made}: {text}");
        } else {
            let payload = bulk(&reply);
            assert!(payload.len() <= 8 << 20, "{made}: {} bytes", payload.len());
            assert_eq!(say(&server, &[b"RESTORE", b"g", b"0", payload]), b"+OK\r\n", "{made}");
        }
        say(&server, &words("FLUSHALL"));
    }
}

#[test]
fn a_client_whose_request_is_too_large_reads_why() {
    let running = Running::start(config(|settings| settings.max_argument = 1 << 20));
    for length in [(1 << 20) + 1, 100 << 20] {
        let mut stream = TcpStream::connect(running.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
        // As clients do: all is written before anything is read.
        let head = format!("*4\r\n$7\r\nRESTORE\r\n$1\r\nf\r\n$1\r\n0\r\n${length}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let zeros = vec![0; 1 << 20];
        for _ in 0..length >> 20 {
            stream.write_all(&zeros).expect("the server reads what it does not take");
        }
        stream.write_all(b"\0\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("a reply, then the end");
        let expected =
            format!("-ERR Protocol error: invalid bulk length: {length} bytes, the limit");
        assert!(text.starts_with(&expected) && text.ends_with("\r\n"), "{text}");
    }
    // It is gone when it hangs up.
    wait_for(&running, 0);
}

#[test]
fn a_client_that_is_ended_for_what_it_sends_reads_why_and_leaves() {
    for limit in [300 << 10, 1 << 20, 3 << 20] {
        let running = Running::start(config(|settings| settings.max_client_memory = limit as u64));
        for length in [256 << 10, 1 << 20, 2 << 20, 4 << 20, 16 << 20] {
            let mut stream = TcpStream::connect(running.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let head = format!("*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n${length}\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&vec![b'x'; length]).expect("the server reads what it drops");
            stream.write_all(b"\r\nQUIT\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("a reply, then the end");
            let refused = text.contains("--max-client-memory");
            assert!(refused || length < limit, "{length} of {limit}: {text}");
            drop(stream);
            wait_for(&running, 0);
            assert_eq!(running.server.clients.held.load(Ordering::Relaxed), 0);
        }
    }
}

#[test]
fn exec_ends_where_its_replies_pass_the_limit_of_clients() {
    let server = server(|settings| settings.max_client_memory = 4 << 20);
    let mut client = Client::new(&server);
    client.check(&[("MULTI", "+OK/")]);
    for _ in 0..1000 {
        assert_eq!(client.say("COMMAND DOCS"), "+QUEUED\r\n");
    }
    client.check(&[("BF.ADD f x", "+QUEUED/")]);
    let mut out = Vec::new();
    let done = client.session.process(&server, &request(&["EXEC"]), &mut out, Place::Own);
    let refusal = String::from_utf8_lossy(&out);
    assert!(refusal.starts_with("-ERR all clients together hold"), "{}", &refusal[..100]);
    assert!(refusal.contains("the limit of --max-client-memory is 4194304"), "{refusal}");
    assert_eq!(refusal.matches("\r\n").count(), 1, "nothing of the replies is left");
    assert_eq!(done.next, Next::Close);
    assert!(out.capacity() <= 4 << 20, "{} bytes were built", out.capacity());
    let mut other = Client::new(&server);
    other.check(&[("EXISTS f", ":0/")]);
    assert!(other.say("INFO stats").contains("evicted_clients:1\r\n"));
}

#[test]
fn a_reply_that_clients_may_not_hold_is_not_built() {
    let server = server(|settings| settings.max_client_memory = 1 << 20);
    let mut client = Client::new(&server);
    for at in 0..40_000 {
        assert_eq!(client.say(&format!("BF.ADD {at:0>40} x")), ":1\r\n");
    }
    for line in ["KEYS *", "SCAN 0 COUNT 1000000"] {
        let (refusal, done) =
            Client::new(&server).send(&request(&line.split(' ').collect::<Vec<_>>()));
        assert!(refusal.contains("--max-client-memory"), "{line}: {}", &refusal[..100]);
        assert_eq!(done.next, Next::Close, "{line}");
    }
    assert_eq!(client.say("CONFIG SET max-client-memory 16mb"), "+OK\r\n");
    let keys = client.say("KEYS *");
    assert!(keys.starts_with("*40000\r\n$40\r\n"), "{}", &keys[..20]);
    assert_eq!(keys.len(), "*40000\r\n".len() + 40_000 * "$40\r\n\r\n".len() + 40_000 * 40);
}

#[test]
fn the_text_of_client_list_counts_beside_the_reply() {
    let server = server(|_| ());
    let mut clients: Vec<Client> = (0..3000).map(|_| Client::new(&server)).collect();
    let reply = clients[0].say("CLIENT LIST");
    // As the command puts it together.
    let mut text = String::new();
    reply.split_inclusive('\n').skip(1).for_each(|line| text.push_str(line));
    assert!(text.len() > 500_000, "{}", text.len());
    let limit = text.capacity() + text.len() / 2;
    assert_eq!(clients[0].say(&format!("CONFIG SET max-client-memory {limit}")), "+OK\r\n");
    let (refusal, done) = clients[1].send(&request(&["CLIENT", "LIST"]));
    assert!(refusal.starts_with("-ERR all clients together hold"), "{}", &refusal[..100]);
    assert_eq!(done.next, Next::Close);
}

#[test]
fn a_queue_takes_what_it_is_counted_for() {
    let server = server(|_| ());
    let mut client = Client::new(&server);
    client.check(&[("MULTI", "+OK/")]);
    let (_, progress) = client.send(&b"PING\r\n".repeat(100_000));
    assert_eq!(progress.next, Next::Read);
    client.session.state.hold(&server, 0).unwrap();
    let held = server.clients.held.load(Ordering::Relaxed);
    assert!((600_000..1_500_000).contains(&held), "{held} bytes for 600,000 of commands");
    assert!(client.say("EXEC").starts_with("*100000\r\n+PONG\r\n"));
}

#[test]
fn a_client_that_holds_little_stays_and_the_one_that_holds_most_goes() {
    let server = server(|_| ());
    let (mut small, mut large) = (Client::new(&server), Client::new(&server));
    large.check(&[("MULTI", "+OK/")]);
    for _ in 0..70 {
        assert_eq!(large.say(&format!("ECHO {}", "x".repeat(1000))), "+QUEUED\r\n");
    }
    large.session.state.hold(&server, 0).unwrap();
    small.check(&[("CONFIG SET max-client-memory 64kb", "+OK/"), ("MULTI", "+OK/")]);
    for _ in 0..10 {
        assert_eq!(small.say(&format!("ECHO {}", "x".repeat(1000))), "+QUEUED\r\n");
    }
    small.session.state.hold(&server, 0).unwrap();
    assert!(large.session.state.client.is_killed(), "it held the most");
    assert!(!small.session.state.client.is_killed());
}

#[test]
fn what_a_client_says_of_itself_has_a_length_and_counts() {
    let server = server(|_| ());
    let mut client = Client::new(&server);
    let (long, longer) = ("x".repeat(1024), "x".repeat(1025));
    for line in ["CLIENT SETINFO LIB-NAME", "CLIENT SETINFO LIB-VER", "CLIENT SETNAME"] {
        let refusal = client.say(&format!("{line} {longer}"));
        assert!(refusal.contains("at most 1024 bytes, this one has 1025"), "{line}: {refusal}");
        assert_eq!(client.say(&format!("{line} {long}")), "+OK\r\n");
    }
    let refusal = client.say(&format!("HELLO 3 SETNAME {longer}"));
    assert!(refusal.contains("at most 1024 bytes, this one has 1025"), "{refusal}");
    client.session.state.hold(&server, 0).unwrap();
    let held = server.clients.held.load(Ordering::Relaxed);
    assert!(held >= CONNECTION + 3 * 1024, "{held}");
    assert!(client.say("CLIENT INFO").contains(&format!(" tot-mem={held} ")), "{held}");
}

#[test]
fn names_of_keys_have_a_length() {
    let server = server(|_| ());
    let mut client = Client::new(&server);
    let (long, longer) = ("x".repeat(65_536), "x".repeat(65_537));
    for line in ["BF.ADD LONG x", "BF.RESERVE LONG 0.01 100", "CF.ADD LONG x", "RENAME f LONG"] {
        let refusal = client.say(&line.replace("LONG", &longer));
        assert!(refusal.contains("65537 bytes, the limit is 65536"), "{line}: {refusal}");
    }
    assert_eq!(client.say("DBSIZE"), ":0\r\n");
    assert_eq!(client.say(&format!("BF.ADD {long} x")), ":1\r\n");
    assert_eq!(client.say(&format!("BF.ADD f {longer}")), ":1\r\n", "an item may be longer");
}

#[test]
fn memory_of_expiry_comes_and_goes_with_the_keys() {
    let server = server(|_| ());
    let mut client = Client::new(&server);
    assert_eq!(client.say("BF.ADD f x"), ":1\r\n");
    let before = server.limits.in_use();
    assert_eq!(client.say("EXPIRE f 1000"), ":1\r\n");
    let listed = server.limits.in_use();
    assert!(listed > before, "{listed} bytes");
    assert_eq!(client.say("EXPIRE f 100"), ":1\r\n");
    assert_eq!(server.limits.in_use(), listed);
    assert_eq!(client.say("DEL f"), ":1\r\n");
    assert_eq!(server.limits.in_use(), 0);
}

#[test]
fn shapes_that_no_filter_has_do_not_count_for_long() {
    let server = server(|_| ());
    let mut client = Client::new(&server);
    for at in 1..=10_000 {
        let line = format!("BF.RESERVE f{at} 0.01 1 EXPANSION {at}");
        assert_eq!(client.say(&line), "+OK\r\n");
    }
    assert_eq!(client.say("FLUSHALL"), "+OK\r\n");
    let kept = server.limits.in_use();
    assert!((1_000_000..4_000_000).contains(&kept), "{kept} bytes for 6,000 shapes");
    for at in 10_001..=20_000 {
        let line = format!("BF.RESERVE f 0.01 1 EXPANSION {at}");
        assert_eq!(client.say(&line), "+OK\r\n");
        assert_eq!(client.say("DEL f"), ":1\r\n");
    }
    assert!(server.limits.in_use() < kept, "{} bytes", server.limits.in_use());
}
