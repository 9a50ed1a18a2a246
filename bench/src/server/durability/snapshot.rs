//! What clients notice of the snapshot of a large filter while others add to it as fast as they can.
//!
//! The filter was made by the process that saves it, and all its memory was touched before. Each
//! round has the load alone first, then the load and BGSAVE; PINGs of other connections are timed in
//! both, and while nothing happens.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use super::{Durability, Policy, Sizes};
use crate::cli::race::{median, sorted};
use crate::server::client::{Client, Reply, wrong};
use crate::server::latency::{self, Probe, Waits, megabytes};
use crate::server::process::{Process, Server};
use crate::server::script::{self, Tally};
use crate::server::{at_least, at_most};

const FILTER: &str = "bench:large";
const RATE: f64 = 0.001;
const FOLDER: &str = "snapshot";

/// Who adds: connections, items of a command, commands in flight.
const CONNECTIONS: usize = 3;
const PER_COMMAND: u64 = 100;
const DEPTH: usize = 16;

/// Between two looks at the memory and at the snapshot.
const LOOK: Duration = Duration::from_millis(5);
/// A snapshot that has not begun after so long does not begin.
const PATIENCE: Duration = Duration::from_secs(2);

/// Throughput and memory during a snapshot, against those before.
const THROUGHPUT_GOAL: f64 = 0.7;
const MEMORY_GOAL: f64 = 1.1;

/// What was seen during a phase.
#[derive(Clone, Copy)]
struct Seen {
    items_per_second: f64,
    /// The most.
    resident: u64,
    time: Duration,
}

pub(super) fn run(with: &Durability<'_>, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    eprintln!("snapshot: {}", megabytes(sizes.snapshot_bytes));
    let server = with.server(Policy::EverySecond, FOLDER)?;
    // Connected before those who burden, so that they are not all on one thread.
    let mut probe = Probe::new(&server)?;
    let mut client = server.connect()?;
    let capacity = latency::capacity(&mut client, FILTER, RATE, sizes.snapshot_bytes)?;
    client.ask(&format!("BF.RESERVE {FILTER} {RATE} {capacity}"))?;
    let bytes = latency::size(&mut client, FILTER)?;
    let touching = latency::items_in_all_pages(bytes);
    let filled = script::fill(&mut client, FILTER, 0..touching, RATE)?;
    client.ask("SAVE")?;

    let nothing = probe.during(|| {
        thread::sleep(sizes.load);
        Ok(())
    })?;
    let (mut alone, mut saving) = (Waits::default(), Waits::default());
    let mut rounds: Vec<(Seen, Seen)> = Vec::new();
    let (is_done, added) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut loaders = server.connect_many(CONNECTIONS)?;
    let mut tally = thread::scope(|scope| -> io::Result<Tally> {
        let players: Vec<_> = (1_u64..)
            .zip(&mut loaders)
            .map(|(number, client)| {
                let (what, how) = ((FILTER, number << 36), (PER_COMMAND, DEPTH));
                let (is_done, added) = (&is_done, &added);
                scope.spawn(move || script::add_until(client, what, how, is_done, added))
            })
            .collect();
        let mut measured = || -> io::Result<()> {
            for round in 0..sizes.rounds {
                eprintln!("snapshot: round {} of {}", round + 1, sizes.rounds);
                let mut phases = [None, None];
                alone.absorb(probe.during(|| {
                    let start = Instant::now();
                    let has_ended = || Ok(start.elapsed() >= sizes.load);
                    phases[0] = Some(watch(server.process, &added, has_ended)?);
                    Ok(())
                })?);
                saving.absorb(probe.during(|| {
                    phases[1] = Some(save(&server, &mut client, &added)?);
                    Ok(())
                })?);
                let [Some(before), Some(during)] = phases else { unreachable!("both were run") };
                rounds.push((before, during));
            }
            Ok(())
        };
        let result = measured();
        is_done.store(true, Ordering::Relaxed);
        let mut sum = Tally::default();
        for player in players {
            sum += player.join().expect("no player panics")?;
        }
        result.map(|()| sum)
    })?;
    tally.check(RATE)?;
    // Exactly those that were answered 1.
    tally += filled;
    let (found, expected) =
        (client.ask_number(&format!("BF.CARD {FILTER}"))?, tally.items - tally.false_positives);
    if found != expected {
        return Err(format!("BF.CARD says {found}, {expected} adds were answered 1").into());
    }
    print(bytes, &rounds);
    latency::print_head();
    nothing.print("nothing, the control", None);
    alone.print("full write load, without BGSAVE", None);
    saving.print(&format!("full write load, BGSAVE of {}", megabytes(bytes)), Some(""));
    drop(server);
    with.remove(FOLDER)
}

/// Takes a snapshot in the background, and watches until it is complete.
fn save(server: &Server, client: &mut Client, added: &AtomicU64) -> io::Result<Seen> {
    let start = Instant::now();
    client.ask("BGSAVE")?;
    let mut has_begun = false;
    watch(server.process, added, || {
        let is_saving = persistence(client, "rdb_bgsave_in_progress")? == "1";
        has_begun |= is_saving;
        if !has_begun && start.elapsed() > PATIENCE {
            return Err(wrong("BGSAVE has not begun".to_string()));
        }
        Ok(has_begun && !is_saving)
    })
}

/// A figure of INFO persistence.
fn persistence(client: &mut Client, figure: &str) -> io::Result<String> {
    let Reply::Bulk(Some(text)) = client.ask("INFO persistence")? else {
        return Err(wrong("INFO is answered with no text".to_string()));
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    let value = text.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':'));
    value.map(str::to_owned).ok_or_else(|| wrong(format!("INFO persistence has no {figure}")))
}

/// Looks at the memory of a server and at the items that it takes until something has ended.
fn watch(
    process: Process,
    added: &AtomicU64,
    mut has_ended: impl FnMut() -> io::Result<bool>,
) -> io::Result<Seen> {
    let (start, before) = (Instant::now(), added.load(Ordering::Relaxed));
    let mut resident = process.resident()?;
    while !has_ended()? {
        thread::sleep(LOOK);
        resident = resident.max(process.resident()?);
    }
    let (items, time) = (added.load(Ordering::Relaxed) - before, start.elapsed());
    Ok(Seen { items_per_second: items as f64 / time.as_secs_f64(), resident, time })
}

fn print(bytes: u64, rounds: &[(Seen, Seen)]) {
    println!(
        "\nBGSAVE of a filter of {} while {CONNECTIONS} connections add, {DEPTH} BF.MADD of \
         {PER_COMMAND} in flight each",
        megabytes(bytes)
    );
    println!(
        "{:<10}{:>14}{:>16}{:>9}{:>14}{:>14}{:>14}{:>9}{:>14}",
        "round",
        "items/s alone",
        "items/s saving",
        "ratio",
        "goal",
        "RSS alone",
        "RSS saving",
        "ratio",
        "goal"
    );
    let throughput =
        |(alone, saving): &(Seen, Seen)| saving.items_per_second / alone.items_per_second;
    let memory = |(alone, saving): &(Seen, Seen)| saving.resident as f64 / alone.resident as f64;
    for (number, round) in rounds.iter().enumerate() {
        let (alone, saving) = round;
        println!(
            "{:<10}{:>14.0}{:>16.0}{:>9.2}{:>14}{:>14}{:>14}{:>9.3}{:>14}  {:.2} s",
            number + 1,
            alone.items_per_second,
            saving.items_per_second,
            throughput(round),
            "",
            megabytes(alone.resident),
            megabytes(saving.resident),
            memory(round),
            "",
            saving.time.as_secs_f64()
        );
    }
    let middle = |ratio: &dyn Fn(&(Seen, Seen)) -> f64| {
        median(&sorted(rounds.iter().map(ratio))).expect("one round at least")
    };
    let (throughput, memory) = (middle(&throughput), middle(&memory));
    println!(
        "{:<10}{:>39.2}{:>14}{:>37.3}{:>14}",
        "median",
        throughput,
        at_least(throughput, THROUGHPUT_GOAL),
        memory,
        at_most(memory, MEMORY_GOAL)
    );
}
