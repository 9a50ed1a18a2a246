//! How long other clients wait while one client asks for much.
//!
//! Four connections, because servers spread them over threads, send PING once a millisecond each
//! and note when the reply comes: first while nothing else happens, then during each burden. A PING
//! that could not be sent in time because the last one was not answered counts from the moment at
//! which it was due: a server that stalls for a second has kept a thousand of them waiting, not
//! one. Where the client itself woke up late, the schedule moves instead; that is not the server's
//! fault.
//!
//! A fifth connection does the same with a thread of this process that does nothing but answer:
//! what it waits, everybody waits on this machine at that moment, whatever the server does. On a
//! virtual machine whose processors are taken away for a tenth of a second when both were busy,
//! that is most of what there is to see.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, iter, thread};

use super::client::{Client, Reply, wrong};
use super::process::Server;
use super::script::{self, Tally};
use crate::report;

const CONNECTIONS: usize = 4;
const INTERVAL: Duration = Duration::from_millis(1);

/// The 99.9th percentile that no burden may exceed, in milliseconds.
const GOAL_MS: f64 = 20.0;

/// Filters of the burdens.
const MANY: &str = "bench:many";
const LARGE: &str = "bench:large";
const GROWN: &str = "bench:grown";

const LARGE_RATE: f64 = 0.001;
/// The rate of a filter that was not reserved, with RedisBloom's defaults.
const DEFAULT_RATE: f64 = 0.01;

/// Before and after DEL, which answers before the memory is given back where that is done aside.
const AROUND_DELETION: Duration = Duration::from_millis(250);
const DELETIONS: u64 = 3;

/// How much is run.
pub(crate) struct Sizes {
    pub(crate) idle: Duration,
    /// Items of one BF.MADD,
    pub(crate) items: u64,
    /// and how often it is repeated.
    pub(crate) commands: u64,
    /// Bytes of the filter that is dumped and deleted.
    pub(crate) large_bytes: u64,
    /// Items that a default filter grows to.
    pub(crate) growth: u64,
}

pub(crate) fn run(server: &Server, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    // Connected before the client that burdens, so that they are not all on one thread.
    let mut probe = Probe::new(server)?;
    let mut client = server.connect()?;
    let has_filters = client.knows(&format!("BF.EXISTS {MANY} x"))?;

    print_head();
    let idle = probe.during(|| {
        thread::sleep(sizes.idle);
        Ok(())
    })?;
    idle.print("nothing, the control", None);
    if idle.worst() > GOAL_MS {
        println!("the control is above the goal already: this machine is too busy to tell");
    }
    if !has_filters {
        println!("{} does not know BF.*, with which nothing is measured", server.name);
        return Ok(());
    }
    many_items(&mut probe, &mut client, sizes)?;
    large_filter(&mut probe, &mut client, sizes)?;
    growth(&mut probe, &mut client, sizes)?;
    Ok(())
}

/// The head of the table.
pub(super) fn print_head() {
    println!("\nPING once a millisecond on each of {CONNECTIONS} connections, milliseconds");
    println!(
        "{:<36}{:>8}{:>9}{:>9}{:>9}{:>9}{:>14}{:>12}{:>14}  note",
        "during", "PINGs", "p50", "p99", "p99.9", "max", "worst p99.9", "echo p99.9", "goal"
    );
}

/// BF.MADD of very many items in one command, one command after another.
fn many_items(probe: &mut Probe, client: &mut Client, sizes: &Sizes) -> io::Result<()> {
    let all = sizes.items * sizes.commands;
    client.ask(&format!("DEL {MANY}"))?;
    client.ask(&format!("BF.RESERVE {MANY} {LARGE_RATE} {all}"))?;
    let scripts: Vec<_> = (0..sizes.commands)
        .map(|command| command * sizes.items)
        .map(|begin| script::additions(MANY, begin..begin + sizes.items, sizes.items, 1))
        .collect();
    let start = Instant::now();
    let mut tally = Tally::default();
    let waits = probe.during(|| {
        for script in &scripts {
            tally += script.play(client)?;
        }
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64() / sizes.commands as f64;
    tally.check(LARGE_RATE)?;
    client.ask(&format!("DEL {MANY}"))?;
    waits.print(
        &format!("BF.MADD of {} items", report::count(sizes.items)),
        Some(&format!("{} commands, {seconds:.3} s each", sizes.commands)),
    );
    Ok(())
}

/// SCANDUMP of a large filter to its end, and DEL of it.
fn large_filter(probe: &mut Probe, client: &mut Client, sizes: &Sizes) -> io::Result<()> {
    client.ask(&format!("DEL {LARGE}"))?;
    let capacity = capacity(client, LARGE, LARGE_RATE, sizes.large_bytes)?;
    let items = items_in_all_pages(sizes.large_bytes);

    let mut deletions = Waits::default();
    let (mut bytes, mut slowest) = (0, Duration::ZERO);
    for turn in 0..DELETIONS {
        client.ask(&format!("BF.RESERVE {LARGE} {LARGE_RATE} {capacity}"))?;
        bytes = size(client, LARGE)?;
        script::fill(client, LARGE, 0..items, LARGE_RATE)?;
        if turn == 0 {
            let start = Instant::now();
            let mut dumped = (0, 0);
            let waits = probe.during(|| {
                dumped = dump(client, LARGE)?;
                Ok(())
            })?;
            let (chunks, dumped) = dumped;
            waits.print(
                &format!("BF.SCANDUMP of {}", megabytes(bytes)),
                Some(&format!(
                    "{chunks} chunks, {}, {:.2} s",
                    megabytes(dumped),
                    start.elapsed().as_secs_f64()
                )),
            );
        }
        let waits = probe.during(|| {
            thread::sleep(AROUND_DELETION / 10);
            let start = Instant::now();
            let deleted = client.ask_number(&format!("DEL {LARGE}"))?;
            slowest = slowest.max(start.elapsed());
            if deleted != 1 {
                return Err(wrong(format!("DEL has deleted {deleted} filters of 1")));
            }
            thread::sleep(AROUND_DELETION);
            Ok(())
        })?;
        deletions.absorb(waits);
    }
    deletions.print(
        &format!("DEL of {}", megabytes(bytes)),
        Some(&format!("{DELETIONS} times, answered in at most {:.3} ms", milliseconds(slowest))),
    );
    Ok(())
}

/// A filter that was not reserved takes items in commands of 1000.
fn growth(probe: &mut Probe, client: &mut Client, sizes: &Sizes) -> io::Result<()> {
    client.ask(&format!("DEL {GROWN}"))?;
    let start = Instant::now();
    let mut tally = Tally::default();
    let waits = probe.during(|| {
        tally = script::fill(client, GROWN, 0..sizes.growth, DEFAULT_RATE)?;
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let (found, expected) =
        (client.ask_number(&format!("BF.CARD {GROWN}"))?, tally.items - tally.false_positives);
    if found != expected {
        return Err(wrong(format!("BF.CARD says {found}, {expected} adds were answered 1")));
    }
    let bytes = size(client, GROWN)?;
    client.ask(&format!("DEL {GROWN}"))?;
    waits.print(
        &format!("growth to {} items", report::count(sizes.growth)),
        Some(&format!("{seconds:.1} s, to {}", megabytes(bytes))),
    );
    Ok(())
}

/// For how many items a filter, which is not there yet, must be reserved to have so many bytes.
pub(super) fn capacity(
    client: &mut Client,
    filter: &str,
    rate: f64,
    bytes: u64,
) -> io::Result<u64> {
    // Servers take different numbers of bits: ask a smaller filter how many.
    const TRIAL: u64 = 1_000_000;
    client.ask(&format!("BF.RESERVE {filter} {rate} {TRIAL}"))?;
    let trial_bytes = size(client, filter)?;
    client.ask(&format!("DEL {filter}"))?;
    Ok((bytes as f64 / trial_bytes as f64 * TRIAL as f64) as u64)
}

/// How many items touch all memory of a filter of so many bytes: each sets bits in a page at least,
/// and six for each page leave one in 400 untouched.
pub(super) fn items_in_all_pages(bytes: u64) -> u64 {
    6 * bytes / 4096
}

/// The bytes that a filter has by its own account.
pub(super) fn size(client: &mut Client, filter: &str) -> io::Result<u64> {
    let reply = client.ask(&format!("BF.INFO {filter} SIZE"))?;
    let number = match &reply {
        // As RedisBloom answers, and as valkey-bloom does.
        Reply::Array(fields) => fields.last(),
        other => Some(other),
    };
    match number {
        Some(&Reply::Integer(bytes)) if bytes > 0 => Ok(bytes.unsigned_abs()),
        _ => Err(wrong(format!("BF.INFO SIZE was answered with {reply:?}"))),
    }
}

/// Dumps a filter to its end and tells how many chunks came, and how many bytes in them.
fn dump(client: &mut Client, filter: &str) -> io::Result<(u64, u64)> {
    let (mut chunks, mut bytes, mut position) = (0, 0, 0);
    loop {
        let reply = client.ask(&format!("BF.SCANDUMP {filter} {position}"))?;
        let Reply::Array(parts) = &reply else {
            return Err(wrong(format!("BF.SCANDUMP was answered with {reply:?}")));
        };
        let [Reply::Integer(next), Reply::Bulk(Some(chunk))] = parts.as_slice() else {
            return Err(wrong("BF.SCANDUMP answers no number with bytes".to_string()));
        };
        if *next == 0 {
            if !chunk.is_empty() || chunks == 0 {
                return Err(wrong(format!("the dump ends after {chunks} chunks, not empty")));
            }
            return Ok((chunks, bytes));
        }
        if *next == position {
            return Err(wrong(format!("the dump stays at position {position}")));
        }
        position = *next;
        chunks += 1;
        bytes += chunk.len() as u64;
    }
}

/// The connections that send PING.
pub(super) struct Probe {
    clients: Vec<Client>,
    /// To the thread that only answers.
    echo: Client,
}

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// A connection to a thread that answers every PING at once, and ends with it.
fn echo() -> io::Result<Client> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut request = [0; PING.len()];
        loop {
            stream.read_exact(&mut request)?;
            stream.write_all(b"+PONG\r\n")?;
        }
    });
    Client::connect(address)
}

impl Probe {
    pub(super) fn new(server: &Server) -> io::Result<Probe> {
        Ok(Probe { clients: server.connect_many(CONNECTIONS)?, echo: echo()? })
    }

    /// Sends PINGs from all connections until the work is done.
    pub(super) fn during(&mut self, work: impl FnOnce() -> io::Result<()>) -> io::Result<Waits> {
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let all = self.clients.iter_mut().chain([&mut self.echo]);
            let probes: Vec<_> = iter::zip(all, 0..)
                .map(|(client, number)| {
                    let is_done = &is_done;
                    // Not all at the same moment.
                    let begin = Instant::now() + INTERVAL * number / (CONNECTIONS as u32 + 1);
                    scope.spawn(move || ping_until(client, begin, is_done))
                })
                .collect();
            let worked = work();
            is_done.store(true, Ordering::Relaxed);
            let waits = probes.into_iter().map(|probe| probe.join().expect("no probe panics"));
            let mut server = waits.collect::<Result<Vec<_>, _>>()?;
            let echo = server.pop().expect("the echo is the last");
            worked.map(|()| Waits { server, echo })
        })
    }
}

fn ping_until(
    client: &mut Client,
    begin: Instant,
    is_done: &AtomicBool,
) -> io::Result<Vec<Duration>> {
    let mut waits = Vec::new();
    let mut due = begin;
    while !is_done.load(Ordering::Relaxed) {
        let early = due.saturating_duration_since(Instant::now());
        if !early.is_zero() {
            thread::sleep(early);
            due = Instant::now();
        }
        client.send(PING)?;
        client.exactly("+PONG")?;
        waits.push(due.elapsed());
        due += INTERVAL;
    }
    Ok(waits)
}

/// What every PING waited.
#[derive(Default)]
pub(super) struct Waits {
    /// By connection.
    server: Vec<Vec<Duration>>,
    echo: Vec<Duration>,
}

impl Waits {
    /// Adds further waits of the same connections.
    pub(super) fn absorb(&mut self, further: Waits) {
        self.server.resize_with(further.server.len().max(self.server.len()), Vec::new);
        for (mine, more) in iter::zip(&mut self.server, further.server) {
            mine.extend(more);
        }
        self.echo.extend(further.echo);
    }

    /// The 99.9th percentile of the connection that waited longest, in milliseconds.
    fn worst(&self) -> f64 {
        self.server.iter().map(|waits| slowest(waits)).fold(0.0, f64::max)
    }

    /// A line of the table; a goal is set for what has a note.
    pub(super) fn print(&self, name: &str, note: Option<&str>) {
        let mut all = self.server.concat();
        all.sort_unstable();
        let (worst, echo) = (self.worst(), slowest(&self.echo));
        let goal = note.map_or(String::new(), |_| super::at_most(worst, GOAL_MS));
        println!(
            "{name:<36}{:>8}{:>9.3}{:>9.3}{:>9.3}{:>9.3}{worst:>14.3}{echo:>12.3}{goal:>14}  {}",
            all.len(),
            quantile(&all, 0.5),
            quantile(&all, 0.99),
            quantile(&all, 0.999),
            quantile(&all, 1.0),
            note.unwrap_or_default()
        );
    }
}

/// The 99.9th percentile, in milliseconds.
fn slowest(waits: &[Duration]) -> f64 {
    let mut waits = waits.to_vec();
    waits.sort_unstable();
    quantile(&waits, 0.999)
}

/// The smallest wait that at least this part of all does not exceed, in milliseconds.
pub(super) fn quantile(sorted: &[Duration], part: f64) -> f64 {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.max(1) - 1).map_or(0.0, |&wait| milliseconds(wait))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(super) fn megabytes(bytes: u64) -> String {
    format!("{:.0} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_waits_and_not_between_them() {
        let waits: Vec<Duration> = (1..=1000).map(Duration::from_millis).collect();
        assert_eq!(quantile(&waits, 0.5), 500.0);
        assert_eq!(quantile(&waits, 0.99), 990.0);
        assert_eq!(quantile(&waits, 0.999), 999.0);
        assert_eq!(quantile(&waits, 1.0), 1000.0);
        assert_eq!(quantile(&waits[..1], 0.999), 1.0);
    }

    #[test]
    fn a_stall_counts_for_every_ping_that_was_due_in_it() {
        const STALL: Duration = Duration::from_millis(200);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the client below");
            let mut request = [0; 14];
            for number in 0.. {
                if stream.read_exact(&mut request).is_err() {
                    return;
                }
                if number == 10 {
                    thread::sleep(STALL);
                }
                stream.write_all(b"+PONG\r\n").expect("the client reads");
            }
        });
        let client = Client::connect(address).expect("the listener above");
        let mut probe = Probe { clients: vec![client], echo: echo().expect("a free port") };
        let waits = probe.during(|| {
            thread::sleep(3 * STALL);
            Ok(())
        });
        let waits = &waits.expect("all are answered").server[0];
        // 200 were due during the stall, those of its first half waited for half of it or longer.
        let long = waits.iter().filter(|&&wait| wait >= STALL / 2).count();
        // More on a busy machine, where the stall lasts longer.
        assert!((90..=400).contains(&long), "{long} of {}", waits.len());
        assert!(waits.iter().max() >= Some(&STALL));
    }
}
