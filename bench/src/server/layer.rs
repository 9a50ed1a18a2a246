//! The server without sockets: bytes in, bytes out, on one thread and on two that use the same filter.
//!
//! What a session costs when the kernel has no part in it, and whether a second core is worth having:
//! both threads ask and fill one filter, each through a session of its own.

use std::error::Error;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use inbloom_server::session::{Next, Place};
use inbloom_server::{Config, Server, Session};

/// Items of a batch of requests.
const BATCH: u64 = 10_000;

/// A load: its name and the requests of one batch.
type Load = (&'static str, fn(u64) -> Vec<u8>);

const LOADS: [Load; 4] = [
    ("BF.EXISTS, one by one", |first| singles("BF.EXISTS", first)),
    ("BF.MEXISTS of 100", |first| many("BF.MEXISTS", first)),
    ("BF.ADD, one by one", |first| singles("BF.ADD", first)),
    ("BF.MADD of 100", |first| many("BF.MADD", first)),
];

/// Measures and prints.
pub(super) fn run(capacity: u64, rounds: usize) -> Result<(), Box<dyn Error>> {
    println!(
        "\nThe layer below the sockets: bytes in, bytes out, one filter of {capacity} at 0.001"
    );
    println!(
        "ns of wall-clock time per item, best of {rounds} rounds; the last column is the gain\n"
    );
    println!("{:<24}{:>10}{:>12}{:>10}", "", "1 thread", "2 threads", "gain");
    for (name, load) in LOADS {
        let mut best = [f64::INFINITY; 2];
        for round in 0..rounds as u64 {
            for threads in [1, 2] {
                let time = measure(capacity, threads, round, load)?;
                best[threads as usize - 1] = best[threads as usize - 1].min(time);
            }
        }
        let [one, two] = best;
        println!("{name:<24}{one:>10.1}{two:>12.1}{:>10.2}", one / two);
    }
    Ok(())
}

/// The time per item over all threads.
fn measure(
    capacity: u64,
    threads: u64,
    round: u64,
    load: fn(u64) -> Vec<u8>,
) -> Result<f64, Box<dyn Error>> {
    let server = Arc::new(Server::new(Config::default()));
    let mut first = session(&server);
    talk(&server, &mut first, format!("BF.RESERVE filter 0.001 {capacity}\r\n").as_bytes());
    for at in (0..capacity / 2).step_by(BATCH as usize) {
        talk(&server, &mut first, &many("BF.MADD", at));
    }
    let batches = (capacity / 2 / BATCH / threads).clamp(1, 100);
    let start = Barrier::new(threads as usize);
    let times: Vec<f64> = std::thread::scope(|scope| {
        let (server, start) = (&server, &start);
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    // Queries find half of what they ask for; what is added is new to the filter.
                    let base = capacity / 4 + (round * threads + thread) * batches * BATCH;
                    let requests: Vec<Vec<u8>> =
                        (0..batches).map(|batch| load(base + batch * BATCH)).collect();
                    let mut session = session(server);
                    start.wait();
                    let begun = Instant::now();
                    for request in &requests {
                        talk(server, &mut session, request);
                    }
                    begun.elapsed().as_nanos() as f64
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a load ends")).collect()
    });
    let longest = times.into_iter().fold(0.0, f64::max);
    Ok(longest / (batches * BATCH * threads) as f64)
}

fn session(server: &Arc<Server>) -> Session {
    Session::new(server.clients.enter("bench:1".into(), "bench:0".into()), server)
}

/// Carries out requests, and sees that none was refused.
fn talk(server: &Server, session: &mut Session, mut request: &[u8]) {
    let mut out = Vec::new();
    loop {
        let progress = session.process(server, request, &mut out, Place::Own);
        request = &request[progress.consumed..];
        assert!(!out.starts_with(b"-"), "{}", String::from_utf8_lossy(&out));
        out.clear();
        match progress.next {
            Next::Write => {}
            Next::Read => break,
            next => panic!("{next:?} where requests were whole and right"),
        }
    }
}

fn singles(verb: &str, first: u64) -> Vec<u8> {
    let request = |item| {
        format!("*3\r\n${}\r\n{verb}\r\n$6\r\nfilter\r\n$20\r\nitem:{item:015}\r\n", verb.len())
    };
    (first..first + BATCH).flat_map(|item| request(item).into_bytes()).collect()
}

fn many(verb: &str, first: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for start in (first..first + BATCH).step_by(100) {
        bytes.extend_from_slice(
            format!("*102\r\n${}\r\n{verb}\r\n$6\r\nfilter\r\n", verb.len()).as_bytes(),
        );
        for item in start..start + 100 {
            bytes.extend_from_slice(format!("$20\r\nitem:{item:015}\r\n").as_bytes());
        }
    }
    bytes
}
