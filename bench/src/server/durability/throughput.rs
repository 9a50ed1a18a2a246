//! BF.MADD and BF.ADD without a folder and under each policy, in turns.
//!
//! Every run lasts for seconds, as `everysec` syncs once in each. It begins with an empty filter
//! and an empty log, and ends with a snapshot, so that no run finds the disk busy with what the one
//! before has left to the system.

use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use super::{Durability, Policy, Sizes};
use crate::cli::race::{median, sorted};
use crate::report;
use crate::server::at_least;
use crate::server::client::{self, Client};
use crate::server::latency::quantile;
use crate::server::process::Server;
use crate::server::script::{self, Cost, Tally};

const FILTER: &str = "bench:f";
const RATE: f64 = 0.001;

/// Items of a BF.MADD.
const MANY: u64 = 100;

/// How much of the throughput under `no` is asked for under the others.
const EVERY_SECOND_GOAL: f64 = 0.85;
const ALWAYS_GOAL: f64 = 0.3;

/// Runs of a load in a round. What one connection gets done that waits for each reply depends on
/// where the scheduler puts it and the server: by a factor of 7 in the same minute.
const RUNS: usize = 3;

/// A disk is asked so often in a round how long a sync takes.
const SYNCS: usize = 100;

/// What is run in a turn.
#[derive(Clone, Copy)]
struct Load {
    connections: usize,
    /// Commands in flight on each.
    depth: usize,
}

const LOADS: [Load; 2] = [Load { connections: 1, depth: 1 }, Load { connections: 8, depth: 16 }];

/// A server under a policy.
struct Contestant {
    policy: Policy,
    server: Server,
    clients: Vec<Client>,
    /// By load.
    costs: [Vec<Cost>; LOADS.len()],
    /// Of BF.ADD, one after another.
    waits: Vec<Duration>,
}

pub(super) fn run(with: &Durability<'_>, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    let mut contestants = Vec::new();
    for policy in Policy::ALL {
        let server = with.server(policy, policy.name())?;
        let clients = server.connect_many(LOADS[1].connections)?;
        let costs = Default::default();
        contestants.push(Contestant { policy, server, clients, costs, waits: Vec::new() });
    }
    let mut syncs = Vec::new();
    for round in 0..sizes.rounds {
        eprintln!("throughput: round {} of {}", round + 1, sizes.rounds);
        // Each round begins with another of them.
        contestants.rotate_left(1);
        syncs.extend(time_syncs(&with.data.join("control"))?);
        for load in 0..LOADS.len() {
            for _ in 0..RUNS {
                for contestant in &mut contestants {
                    contestant.add_many(load, sizes)?;
                }
            }
        }
        for contestant in &mut contestants {
            contestant.add_one_by_one(sizes)?;
        }
    }
    contestants.sort_by_key(|contestant| contestant.policy as u8);
    print(&contestants, sizes);
    syncs.sort_unstable();
    println!("{:<16}{:>10}{}", "the control", syncs.len(), quantiles(&syncs));
    println!("control: this program appends 4 KiB to a file in the same folder, and syncs it");
    for Contestant { policy, server, .. } in contestants {
        drop(server);
        if policy != Policy::Memory {
            with.remove(policy.name())?;
        }
    }
    Ok(())
}

impl Contestant {
    /// An empty filter.
    fn begin(&mut self, sizes: &Sizes) -> io::Result<()> {
        let client = &mut self.clients[0];
        client.ask(&format!("DEL {FILTER}"))?;
        client.ask(&format!("BF.RESERVE {FILTER} {RATE} {}", sizes.capacity))?;
        Ok(())
    }

    /// Nothing that the system has still to write.
    fn end(&mut self) -> io::Result<()> {
        if self.policy != Policy::Memory {
            self.clients[0].ask("SAVE")?;
        }
        Ok(())
    }

    fn add_many(&mut self, load: usize, sizes: &Sizes) -> io::Result<()> {
        self.begin(sizes)?;
        let Load { connections, depth } = LOADS[load];
        let clients = &mut self.clients[..connections];
        let cost = add_for(sizes.load, &self.server, clients, depth)?;
        cost.tally.check(RATE)?;
        if cost.tally.items > sizes.capacity {
            eprintln!("{}: the filter has grown, reserve more for it", self.policy.name());
        }
        self.costs[load].push(cost);
        self.end()
    }

    fn add_one_by_one(&mut self, sizes: &Sizes) -> io::Result<()> {
        self.begin(sizes)?;
        let client = &mut self.clients[0];
        let (start, mut identity, mut request) = (Instant::now(), 0, Vec::new());
        while start.elapsed() < sizes.load {
            request.clear();
            let words: [&[u8]; 3] = [b"BF.ADD", FILTER.as_bytes(), &script::key(identity)];
            client::encode(&mut request, &words);
            identity += 1;
            let sent = Instant::now();
            client.send(&request)?;
            client.truth()?;
            self.waits.push(sent.elapsed());
        }
        self.end()
    }
}

/// Adds new keys from all connections for so long.
fn add_for(
    time: Duration,
    server: &Server,
    clients: &mut [Client],
    depth: usize,
) -> io::Result<Cost> {
    let (is_done, added) = (AtomicBool::new(false), AtomicU64::new(0));
    let worked = server.process.worked()?;
    let start = Instant::now();
    let tally = thread::scope(|scope| -> io::Result<Tally> {
        let players: Vec<_> = (0_u64..)
            .zip(clients)
            .map(|(number, client)| {
                let (is_done, added) = (&is_done, &added);
                let what = (FILTER, number << 32);
                scope.spawn(move || script::add_until(client, what, (MANY, depth), is_done, added))
            })
            .collect();
        thread::sleep(time);
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        let mut sum = Tally::default();
        for player in players {
            sum += player.join().expect("no player panics")?;
        }
        Ok(sum)
    })?;
    let wall = start.elapsed();
    let processor = server.process.worked()?.saturating_sub(worked);
    Ok(Cost { processor, wall, tally })
}

/// What the disk takes to keep 4 KiB that are appended to a file, which is removed.
fn time_syncs(path: &Path) -> io::Result<Vec<Duration>> {
    let mut file = File::create(path)?;
    let times = (0..SYNCS).map(|_| {
        let start = Instant::now();
        file.write_all(&[1; 4096])?;
        file.sync_data()?;
        Ok(start.elapsed())
    });
    let times = times.collect();
    std::fs::remove_file(path)?;
    times
}

fn print(contestants: &[Contestant], sizes: &Sizes) {
    println!(
        "\nBF.MADD of {MANY} new keys of {} bytes for {} s, filter of {} at {}%: medians of {} runs",
        script::KEY_BYTES,
        sizes.load.as_secs_f64(),
        report::count(sizes.capacity),
        RATE * 100.0,
        sizes.rounds * RUNS
    );
    println!(
        "{:<16}{:>6}{:>11}{:>10}{:>12}{:>12}{:>12}{:>16}  note",
        "--fsync", "conn.", "in flight", "CPU ns", "items/s", "slowest", "of 'no'", "goal"
    );
    let plain = contestants.iter().find(|one| one.policy == Policy::No).expect("it takes part");
    for (number, load) in LOADS.iter().enumerate() {
        for contestant in contestants {
            let costs = &contestant.costs[number];
            let work = sorted(costs.iter().map(Cost::ns));
            let speeds = sorted(costs.iter().map(Cost::items_per_second));
            // Of runs that followed each other: whatever else the machine did, it did to both.
            let pairs = costs.iter().zip(&plain.costs[number]);
            let ratios =
                sorted(pairs.map(|(one, no)| one.items_per_second() / no.items_per_second()));
            let (Some(work), Some(speed), Some(ratio)) =
                (median(&work), median(&speeds), median(&ratios))
            else {
                continue;
            };
            let goal = match contestant.policy {
                Policy::EverySecond => at_least(ratio, EVERY_SECOND_GOAL),
                Policy::Always if load.connections > 1 => at_least(ratio, ALWAYS_GOAL),
                _ => String::new(),
            };
            let mut tally = Tally::default();
            costs.iter().for_each(|cost| tally += cost.tally);
            println!(
                "{:<16}{:>6}{:>11}{work:>10.1}{speed:>12.0}{:>12.0}{ratio:>12.2}{goal:>16}  {}",
                contestant.policy.name(),
                load.connections,
                load.depth,
                speeds[0],
                tally.note(RATE)
            );
        }
    }
    println!("\nBF.ADD of one key, each after the reply to the last one, milliseconds");
    println!(
        "{:<16}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "--fsync", "commands", "p50", "p99", "p99.9", "max"
    );
    for contestant in contestants {
        let mut waits = contestant.waits.clone();
        waits.sort_unstable();
        println!("{:<16}{:>10}{}", contestant.policy.name(), waits.len(), quantiles(&waits));
    }
}

fn quantiles(sorted: &[Duration]) -> String {
    let columns = [0.5, 0.99, 0.999, 1.0].map(|part| format!("{:>10.3}", quantile(sorted, part)));
    columns.concat()
}
