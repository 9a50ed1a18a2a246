//! What commands cost a server, by its own processor time, and how many of them it answers a
//! second.
//!
//! PING is the floor: reading, parsing and answering without doing anything. GETBIT is the plain
//! command that is nearest to a query, for servers that have strings.

use std::error::Error;
use std::io;

use super::client::{Client, wrong};
use super::process::Server;
use super::script::{self, Cost, Expected, Script, Shape};
use crate::cli::race::{median, sorted};
use crate::{report, workload};

/// The filter that is asked, reserved at this rate and half full.
const FILTER: &str = "bench:f";
const RATE: f64 = 0.001;

/// The string that GETBIT asks, about as large as the filter: 16 MiB.
const STRING: &str = "bench:s";
const STRING_BITS: u64 = 1 << 27;
/// Every 1341st bit of the string is set, 100,000 of them.
const SET_BITS: u64 = 100_000;
const SET_BITS_APART: u64 = 1341;
const _: () = assert!(SET_BITS * SET_BITS_APART < STRING_BITS);

/// Commands in a pipeline, and items in a command that takes many.
const MANY: usize = 100;

/// Runs of a load in a round, between which servers take turns. A command that waits for the last
/// one's reply costs 12 to 20 us of the same Redis, as the scheduler places it and the client: in a
/// run of half a second for each, two equal servers differed by half.
const RUNS: u64 = 5;

/// How much is run.
pub(crate) struct Sizes {
    pub(crate) rounds: usize,
    /// Items that the filter is reserved for.
    pub(crate) capacity: u64,
    /// Numbers of connections; everything is run with each.
    pub(crate) connections: Vec<usize>,
    /// Commands where each waits for the last one's reply.
    pub(crate) one_by_one: u64,
    /// Queries that do not wait.
    pub(crate) queries: u64,
    /// Items that are added in one run, few enough for the filter to stay about half full.
    pub(crate) additions: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Ping,
    GetBit,
    Exists,
    Add,
    ManyExist,
    AddMany,
}

/// What is run in one turn.
#[derive(Clone, Copy)]
struct Load {
    operation: Operation,
    /// Commands that are sent at once.
    depth: usize,
    /// What the issue that asked for the server allows, in ns per item on one connection.
    goal: Option<f64>,
}

impl Load {
    const fn new(operation: Operation, depth: usize) -> Load {
        Load { operation, depth, goal: None }
    }

    const fn at_most(self, ns: f64) -> Load {
        Load { goal: Some(ns), ..self }
    }

    fn name(&self) -> String {
        let name = match self.operation {
            Operation::Ping => "PING",
            Operation::GetBit => "GETBIT",
            Operation::Exists => "BF.EXISTS",
            Operation::Add => "BF.ADD",
            Operation::ManyExist => return format!("BF.MEXISTS of {MANY}"),
            Operation::AddMany => return format!("BF.MADD of {MANY}"),
        };
        match self.depth {
            1 => format!("{name} unpipelined"),
            depth => format!("{name} pipelined {depth}"),
        }
    }

    fn items(&self, sizes: &Sizes) -> u64 {
        match self.operation {
            Operation::Add | Operation::AddMany => sizes.additions,
            Operation::Exists | Operation::Ping | Operation::GetBit if self.depth == 1 => {
                sizes.one_by_one
            }
            _ => sizes.queries,
        }
    }
}

const EVERYTHING: [Load; 9] = [
    Load::new(Operation::Ping, 1),
    Load::new(Operation::Ping, MANY),
    Load::new(Operation::GetBit, 1),
    Load::new(Operation::GetBit, MANY),
    Load::new(Operation::Exists, 1),
    Load::new(Operation::Exists, MANY).at_most(300.0),
    Load::new(Operation::Add, MANY),
    Load::new(Operation::ManyExist, 1).at_most(120.0),
    Load::new(Operation::AddMany, 1).at_most(120.0),
];

/// All commands, of one server.
pub(crate) fn run(server: &Server, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    let mut contestants = [Contestant::new(server, &EVERYTHING, sizes)?];
    race(&mut contestants, sizes)?;
    print(&contestants, sizes);
    Ok(())
}

/// Single keys and their like, of a server and of Redis, in turns.
pub(crate) fn against_redis(
    server: &Server,
    redis: &Server,
    sizes: &Sizes,
) -> Result<(), Box<dyn Error>> {
    let single: Vec<Load> = EVERYTHING
        .into_iter()
        .filter(|load| {
            matches!(load.operation, Operation::Ping | Operation::GetBit | Operation::Exists)
        })
        .collect();
    let mut contestants =
        [Contestant::new(server, &single, sizes)?, Contestant::new(redis, &single, sizes)?];
    race(&mut contestants, sizes)?;
    print(&contestants, sizes);

    let [ours, theirs] = &contestants;
    println!(
        "ratios, {} against {}: server CPU, of the minima and of the medians",
        server.name, redis.name
    );
    let pairs = [(Operation::Ping, Operation::Ping), (Operation::Exists, Operation::GetBit)];
    for &connections in &sizes.connections {
        for (depth, (left, right)) in
            [1, MANY].into_iter().flat_map(|depth| pairs.map(|pair| (depth, pair)))
        {
            let (left, right) = (Load::new(left, depth), Load::new(right, depth));
            let measured = (ours.times(&left, connections), theirs.times(&right, connections));
            let (Some(mine), Some(other)) = measured else { continue };
            let ratio = mine.shortest / other.shortest;
            // Judged by the minima: whatever else runs on the machine only lengthens the others.
            let goal = if depth == 1 { super::at_most(ratio, 1.0) } else { String::new() };
            println!(
                "{:<58}{ratio:>7.2}{:>7.2}{goal:>16}",
                format!("{} / {}, {connections} conn.", left.name(), right.name()),
                mine.median / other.median
            );
        }
    }
    Ok(())
}

/// A server that takes part.
struct Contestant<'a> {
    server: &'a Server,
    clients: Vec<Client>,
    /// What it knows of what is run, with each number of connections.
    turns: Vec<Turn>,
    /// Queries that were made: none is asked twice.
    queries: u64,
    /// Items in the filter.
    added: u64,
}

struct Turn {
    load: Load,
    connections: usize,
    costs: Vec<Cost>,
}

impl<'a> Contestant<'a> {
    fn new(server: &'a Server, loads: &[Load], sizes: &Sizes) -> io::Result<Contestant<'a>> {
        let most = sizes.connections.iter().copied().max().unwrap_or(1);
        let mut clients = server.connect_many(most)?;
        let has_filters = clients[0].knows(&format!("BF.EXISTS {FILTER} x"))?;
        let has_strings = clients[0].knows(&format!("GETBIT {STRING} 0"))?;
        if !has_filters {
            println!("{} does not know BF.*, of which nothing is measured", server.name);
        }
        let is_known = |load: &&Load| match load.operation {
            Operation::Ping => true,
            Operation::GetBit => has_strings,
            _ => has_filters,
        };
        let turns = sizes
            .connections
            .iter()
            .flat_map(|&connections| {
                loads.iter().filter(is_known).map(move |&load| Turn {
                    load,
                    connections,
                    costs: Vec::new(),
                })
            })
            .collect();
        Ok(Contestant { server, clients, turns, queries: 0, added: 0 })
    }

    /// Makes filter and string as they are at the beginning of every round.
    fn prepare(&mut self, sizes: &Sizes) -> io::Result<()> {
        let uses =
            |operation| self.turns.iter().any(|turn: &Turn| turn.load.operation == operation);
        let (asks_filter, asks_string) = (uses(Operation::Exists), uses(Operation::GetBit));
        let client = &mut self.clients[0];
        if asks_filter {
            client.ask(&format!("DEL {FILTER}"))?;
            client.ask(&format!("BF.RESERVE {FILTER} {RATE} {}", sizes.capacity))?;
            self.added = sizes.capacity / 2;
            script::fill(client, FILTER, 0..self.added, RATE)?;
        }
        if asks_string {
            client.ask(&format!("DEL {STRING}"))?;
            let mut script = Script::new(Shape::Single, MANY);
            for bit in 0..SET_BITS {
                let offset = (bit * SET_BITS_APART).to_string();
                let words: [&[u8]; 4] = [b"SETBIT", STRING.as_bytes(), offset.as_bytes(), b"1"];
                script.push(&words, Expected::Surely(false));
            }
            script.play(client)?;
        }
        Ok(())
    }

    fn run(&mut self, turn: usize, sizes: &Sizes) -> io::Result<()> {
        let Turn { load, connections, .. } = self.turns[turn];
        let items = load.items(sizes) / RUNS / connections as u64;
        let scripts: Vec<Script> = (0..connections).map(|_| self.script(load, items)).collect();
        let clients = &mut self.clients[..connections];
        let named = |error| wrong(format!("{}, {}: {error}", self.server.name, load.name()));
        let cost = script::measure(self.server.process, clients, &scripts).map_err(named)?;
        cost.tally.check(RATE).map_err(named)?;
        self.turns[turn].costs.push(cost);
        Ok(())
    }

    /// So many items of a load, for one connection.
    fn script(&mut self, load: Load, items: u64) -> Script {
        let filter = FILTER.as_bytes();
        let numbers = self.queries..self.queries + items;
        let new = self.added..self.added + items;
        let mut script = Script::new(Shape::Single, load.depth);
        match load.operation {
            Operation::Ping => {
                for _ in numbers {
                    script.push(&[b"PING"], Expected::Pong);
                }
                return script;
            }
            Operation::GetBit => {
                for number in numbers.clone() {
                    // Half of the bits that are asked are set, and half are next to one.
                    let is_set = number.is_multiple_of(2);
                    let bit = workload::mix(number) % SET_BITS * SET_BITS_APART;
                    let offset = (bit + u64::from(!is_set)).to_string();
                    let words: [&[u8]; 3] = [b"GETBIT", STRING.as_bytes(), offset.as_bytes()];
                    script.push(&words, Expected::Surely(is_set));
                }
            }
            Operation::Exists => {
                for number in numbers.clone() {
                    let (key, expected) = script::query(number, self.added);
                    script.push(&[b"BF.EXISTS", filter, &key], expected);
                }
            }
            Operation::ManyExist => {
                script = Script::new(Shape::Array, load.depth);
                for begin in numbers.clone().step_by(MANY) {
                    let queries =
                        (0..MANY).map(|item| script::query(begin + item as u64, self.added));
                    script.push_many(&[b"BF.MEXISTS", filter], queries);
                }
            }
            Operation::Add => {
                for identity in new {
                    let words: [&[u8]; 3] = [b"BF.ADD", filter, &script::key(identity)];
                    script.push(&words, Expected::Usually(true));
                }
                self.added += items;
                return script;
            }
            Operation::AddMany => {
                self.added += items;
                return script::additions(FILTER, new, MANY as u64, load.depth);
            }
        }
        self.queries = numbers.end;
        script
    }

    fn times(&self, load: &Load, connections: usize) -> Option<Times> {
        let is_it = |turn: &&Turn| {
            (turn.load.operation, turn.load.depth) == (load.operation, load.depth)
                && turn.connections == connections
        };
        self.turns.iter().find(is_it)?.times()
    }
}

/// Nanoseconds of a server's work per item.
struct Times {
    shortest: f64,
    median: f64,
}

impl Turn {
    fn times(&self) -> Option<Times> {
        let times = sorted(self.costs.iter().map(Cost::ns));
        Some(Times { shortest: *times.first()?, median: median(&times)? })
    }
}

/// All rounds: servers take turns, and every round begins with another load.
fn race(contestants: &mut [Contestant<'_>], sizes: &Sizes) -> io::Result<()> {
    let turns = contestants.iter().map(|one| one.turns.len()).max().unwrap_or(0);
    for round in 0..sizes.rounds {
        eprintln!("round {} of {}", round + 1, sizes.rounds);
        for contestant in &mut *contestants {
            contestant.prepare(sizes)?;
        }
        for turn in 0..turns {
            for _ in 0..RUNS {
                for contestant in &mut *contestants {
                    let count = contestant.turns.len();
                    if turn < count {
                        contestant.run((round + turn) % count, sizes)?;
                    }
                }
            }
        }
    }
    for contestant in contestants {
        contestant.clients[0].ask(&format!("DEL {FILTER} {STRING}"))?;
    }
    Ok(())
}

fn print(contestants: &[Contestant<'_>], sizes: &Sizes) {
    let runs = sizes.rounds as u64 * RUNS;
    println!(
        "\nfilter of {} at {}%, half full, keys of {} bytes: server CPU per item, of {runs} runs",
        report::count(sizes.capacity),
        RATE * 100.0,
        script::KEY_BYTES
    );
    println!(
        "{:<16}{:<26}{:>6}{:>10}{:>10}{:>12}{:>16}  note",
        "server", "", "conn.", "min ns", "median ns", "items/s", "goal"
    );
    for contestant in contestants {
        for turn in &contestant.turns {
            let speeds = sorted(turn.costs.iter().map(Cost::items_per_second));
            let (Some(times), Some(speed)) = (turn.times(), median(&speeds)) else { continue };
            let goal = match turn.load.goal {
                Some(goal) if turn.connections == 1 => super::at_most(times.median, goal),
                _ => String::new(),
            };
            let mut tally = script::Tally::default();
            turn.costs.iter().for_each(|cost| tally += cost.tally);
            println!(
                "{:<16}{:<26}{:>6}{:>10.1}{:>10.1}{speed:>12.0}{goal:>16}  {}",
                contestant.server.name,
                turn.load.name(),
                turn.connections,
                times.shortest,
                times.median,
                tally.note(RATE)
            );
        }
    }
}
