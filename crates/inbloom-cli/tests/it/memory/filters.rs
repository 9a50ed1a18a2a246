//! What filters take of `--max-memory`, by kind: filled with tiny ones until no more are let in.

use crate::memory::server::{Client, MAX_MEMORY, Server, request};

/// What a server takes more when it has served its first requests.
const CONSTANT: u64 = 8 << 20;
/// Names of so many characters.
const NAMES: usize = 12;

/// Makes filters by commands, in which `N` is replaced by a name, until one is refused. Tells how many
/// there are.
fn fill(client: &mut Client, line: &str) -> u64 {
    const BATCH: u64 = 200;
    let commands = line.split("; ").count() as u64;
    for batch in 0.. {
        let mut bytes = Vec::new();
        for at in batch * BATCH..(batch + 1) * BATCH {
            let name = format!("{at:0>NAMES$}");
            // Capacities that differ: no two filters share what depends on it.
            let capacity = (at % 4000 + 1).to_string();
            let second = (100_000 + at).to_string();
            let word = |word| match word {
                "N" => name.as_str(),
                "DIFFERENT" => capacity.as_str(),
                "SECONDS" => second.as_str(),
                word => word,
            };
            for command in line.split("; ") {
                let words: Vec<&str> = command.split(' ').map(word).collect();
                bytes.extend(request(&words));
            }
        }
        std::io::Write::write_all(&mut client.stream, &bytes).unwrap();
        let mut made = 0;
        for at in 0..BATCH * commands {
            let mut reply = client.line();
            if let Some(items) = reply.strip_prefix('*') {
                for _ in 0..items.parse::<usize>().unwrap() {
                    let item = client.line();
                    reply = if item.starts_with('-') { item } else { String::from(":1") };
                }
            }
            match &*reply {
                "+OK" | ":1" => made += u64::from(at % commands == 0),
                ":0" if at % commands > 0 => {} // The filter was not made.
                _ => assert!(reply.contains("--max-memory"), "{line}: {reply}"),
            }
        }
        if made < BATCH {
            return batch * BATCH + made;
        }
    }
    unreachable!("the limit comes first")
}

fn tiny(line: &str) {
    let server = Server::start();
    let mut client = server.connect("writer");
    let before = server.resident();
    let count = fill(&mut client, line);
    let grown = server.resident() - before;
    let (share, each) = (grown as f64 / MAX_MEMORY as f64, grown / count);
    println!("{line}: {count} filters, {each} bytes each, {share:.3} of the limit");
    // Buffers, threads and the first tables come with the first requests.
    let most = MAX_MEMORY * 115 / 100 + CONSTANT;
    assert!(grown <= most, "{line}: {grown} bytes, {share:.3} times the limit");
    // A window counts with generations that are still to come.
    let least = if line.contains("WINDOW") { 0.15 } else { 0.75 };
    assert!(share >= least, "{line}: {grown} bytes, {share:.3} times the limit: much is refused");
    server.check(line);
}

macro_rules! tiny {
    ($($name:ident: $line:expr,)*) => { $(#[test] fn $name() { tiny($line); })* };
}

tiny! {
    tiny_filters_of_the_default_kind: "BF.RESERVE N 0.01 100",
    tiny_filters_of_one_key: "BF.RESERVE N 0.01 1",
    tiny_filters_that_came_with_a_key: "BF.ADD N x",
    tiny_filters_of_different_capacities: "BF.RESERVE N 0.01 DIFFERENT",
    tiny_filters_that_do_not_grow: "BF.RESERVE N 0.01 10 NONSCALING",
    tiny_blocked_filters_that_clear_themselves: "BF.RESERVE N 0.01 1 AUTOCLEAR 0.5",
    tiny_classic_filters: "BF.RESERVE N 0.01 1 KIND classic",
    tiny_counting_filters: "BF.RESERVE N 0.01 1 KIND counting",
    tiny_cuckoo_filters: "BF.RESERVE N 0.01 1 KIND cuckoo",
    tiny_redisbloom_filters: "BF.RESERVE N 0.01 1 KIND redisbloom",
    tiny_windows: "BF.RESERVE N 0.01 1 WINDOW 1h",
    tiny_filters_of_cf: "CF.RESERVE N 4",
    tiny_filters_of_cf_that_came_with_a_key: "CF.ADD N x",
    tiny_filters_that_expire_together: "BF.ADD N x; EXPIRE N 100000",
    tiny_filters_that_expire_one_by_one: "BF.ADD N x; EXPIRE N SECONDS",
    tiny_filters_that_have_grown: "BF.INSERT N CAPACITY 1 ITEMS a b c d",
    tiny_filters_of_cf_that_have_grown: "CF.INSERT N CAPACITY 4 ITEMS a b c d e f g h",
    tiny_redisbloom_filters_of_different_capacities: "BF.RESERVE N 0.01 DIFFERENT KIND redisbloom",
    tiny_filters_of_cf_with_large_buckets: "CF.RESERVE N 100 BUCKETSIZE 4",
}

/// A number that no other of these is.
fn items(client: usize, batch: usize) -> Vec<String> {
    (0..2000).map(|at| format!("{client}:{batch}:{at}")).collect()
}

#[test]
fn filters_that_grow_at_once_stay_within_the_limits() {
    const CLIENTS: usize = 4;
    let server = Server::start_with(8 << 20);
    for (reserve, add) in [
        (&["BF.RESERVE", "NAME", "0.01", "1000"][..], &["BF.MADD", "NAME"][..]),
        (&["BF.RESERVE", "NAME", "0.01", "1000", "KIND", "redisbloom"], &["BF.MADD", "NAME"]),
        (&["CF.RESERVE", "NAME", "1000", "EXPANSION", "2"], &["CF.INSERT", "NAME", "ITEMS"]),
    ] {
        std::thread::scope(|scope| {
            for at in 0..CLIENTS {
                let mut client = server.connect("writer");
                scope.spawn(move || {
                    let name = format!("f{at}");
                    let named = |words: &[&'static str]| -> Vec<String> {
                        words.iter().map(|word| word.replace("NAME", &name)).collect()
                    };
                    let reserve = named(reserve);
                    let reserve: Vec<&str> = reserve.iter().map(String::as_str).collect();
                    assert_eq!(client.ask(&reserve), "+OK");
                    for batch in 0.. {
                        let words = [named(add), items(at, batch)].concat();
                        let words: Vec<&str> = words.iter().map(String::as_str).collect();
                        let mut line = client.ask(&words);
                        let count =
                            line.strip_prefix('*').map_or(0, |count| count.parse().unwrap());
                        for _ in 0..count {
                            line = client.line();
                            if line.starts_with('-') {
                                break;
                            }
                        }
                        if line.starts_with('-') {
                            assert!(line.contains("--max-memory"), "{line}");
                            break;
                        }
                    }
                });
            }
        });
        server.check(reserve[0]);
        let mut client = server.connect("writer");
        let names: Vec<String> = (0..CLIENTS).map(|at| format!("f{at}")).collect();
        let words: Vec<&str> = ["DEL"].into_iter().chain(names.iter().map(|it| &**it)).collect();
        assert_eq!(client.ask(&words), ":4");
    }
}
