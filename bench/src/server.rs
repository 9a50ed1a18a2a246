//! A server of filters under load: ours, or any that speaks the Redis protocol with BF.*.
//!
//! ```text
//! cpu      what PING, BF.EXISTS, BF.ADD, BF.MEXISTS and BF.MADD cost the server    cost.rs
//! paired   two builds of ours, in turns: ratios                                    cost.rs
//! redis    single keys against a stock Redis beside it, in turns                   cost.rs
//! pipelines  BF.* and CF.* at several depths: this build, another one (--before) and a
//!          Redis with a module of the same commands (--module), in turns           cost.rs
//! latency  what other clients wait while one asks for much                         latency.rs
//! growth   a filter that was not reserved against one that was                     growth.rs
//! small    a million filters of a hundred items                                    small.rs
//! durability  what it costs to keep filters, and how soon they are back           durability.rs
//! layer    the same commands without sockets, on one thread and on two             layer.rs
//! ```
//!
//! The server's own processor time counts (process.rs), over loopback, with requests that are made
//! before the clock runs and with every reply checked (script.rs, client.rs). Half of a socket's
//! work is done by the kernel in the name of the sender; it is counted for that side. That is so
//! for all servers.

mod client;
mod cost;
mod durability;
mod growth;
mod latency;
mod layer;
mod process;
mod script;
mod small;

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::Folder;
use crate::table;
use durability::Durability;
use process::{Process, Server};

/// Options of `server`.
#[derive(Args)]
pub(crate) struct Options {
    /// A small size of everything, one round, in under a minute.
    #[arg(long, conflicts_with_all = ["rounds", "growth"])]
    quick: bool,
    /// What is measured.
    #[arg(long, value_delimiter = ',', default_value = "layer,cpu,redis,latency,growth,small")]
    only: Vec<Part>,
    /// A server that is running. Filters named bench:... are made and deleted in it.
    #[arg(long, requires = "pid")]
    address: Option<SocketAddr>,
    /// Its process, whose processor time and memory are measured.
    #[arg(long, requires = "address", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// The program to start as 'PROGRAM serve' where no address is given; the one beside this
    /// benchmark if it is not named.
    #[arg(long, conflicts_with = "address")]
    binary: Option<PathBuf>,
    /// The build to compare with, for `paired`.
    #[arg(long)]
    before: Option<PathBuf>,
    /// Further arguments of 'serve', divided by blanks.
    #[arg(long, conflicts_with = "address", default_value = "", allow_hyphen_values = true)]
    arguments: String,
    /// The Redis to compare with.
    #[arg(long, default_value = "redis-server")]
    redis: OsString,
    /// A module with BF.* and CF.* that this Redis loads, for `pipelines`.
    #[arg(long)]
    module: Option<PathBuf>,
    /// Rounds to take the minimum and the median of.
    #[arg(long, default_value_t = 3, value_parser = at_least_one)]
    rounds: usize,
    /// Connections, each with a thread of the client; cpu and redis are run with each number.
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = at_least_one)]
    connections: Vec<usize>,
    /// Items that a default filter grows to while others wait.
    #[arg(long, value_parser = table::count, default_value = "100M")]
    growth: u64,
    /// Where servers of 'durability' keep their filters, up to 8 GB: a folder on the disk that is
    /// measured; the system's folder for temporary files if it is not named.
    #[arg(long, conflicts_with = "address")]
    dir_for_data: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    /// What commands cost the server.
    Cpu,
    /// What commands cost the server, against another build of it (--before): in turns, ratios.
    Paired,
    /// Single keys against a stock Redis.
    Redis,
    /// BF.* and CF.* at several depths, against another build (--before) and a module (--module).
    /// It is run if it is named only.
    Pipelines,
    /// What other clients wait.
    Latency,
    /// A filter that grows against one that was reserved.
    Growth,
    /// Very many small filters.
    Small,
    /// Commands without sockets, on one thread and on two.
    Layer,
    /// Throughput under each --fsync, restarts, and a snapshot under load: ten minutes. It is run if
    /// it is named only.
    Durability,
}

/// Runs what the options ask for, and prints every table when it is complete.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let executable = env::current_exe()?;
    let release = executable.parent().expect("an executable is in a folder");
    let bench = Bench {
        binary: options.binary.clone().unwrap_or_else(|| release.join("inbloom")),
        folder: Folder::create(release.join(format!("bench-server-{}", std::process::id())))?,
        options,
    };
    for part in &options.only {
        // Started anew for each, so that none finds memory that another has left behind.
        match part {
            Part::Layer => layer::run(bench.layer_capacity(), options.rounds)?,
            Part::Cpu => cost::run(&bench.server()?, &bench.cost_sizes())?,
            Part::Paired => bench.paired()?,
            Part::Redis => bench.against_redis(&bench.server()?)?,
            Part::Pipelines => bench.pipelines()?,
            Part::Latency => latency::run(&bench.server()?, &bench.latency_sizes())?,
            Part::Growth => growth::run(&bench.server()?, &bench.growth_sizes())?,
            Part::Small => small::run(&bench.server()?, bench.small_counts())?,
            Part::Durability => bench.durability()?,
        }
    }
    Ok(())
}

struct Bench<'a> {
    binary: PathBuf,
    /// Where servers keep what they keep.
    folder: Folder,
    options: &'a Options,
}

impl Bench<'_> {
    fn server(&self) -> Result<Server, Box<dyn Error>> {
        match (self.options.address, self.options.pid) {
            (Some(address), Some(pid)) => Server::running(address, Process::new(pid)),
            _ => {
                let arguments = self.options.arguments.split_whitespace();
                Server::inbloom(&self.program()?, arguments, self.folder.root())
            }
        }
    }

    fn paired(&self) -> Result<(), Box<dyn Error>> {
        let before = self.options.before.as_ref().ok_or("name the other build with --before")?;
        let arguments = || self.options.arguments.split_whitespace();
        let before = Server::inbloom(&before.canonicalize()?, arguments(), self.folder.root())?;
        cost::paired(&self.server()?, &before, &self.cost_sizes())
    }

    fn pipelines(&self) -> Result<(), Box<dyn Error>> {
        let mut servers = vec![self.server()?];
        if let Some(before) = &self.options.before {
            let arguments = self.options.arguments.split_whitespace();
            let mut before =
                Server::inbloom(&before.canonicalize()?, arguments, self.folder.root())?;
            before.name = "before".to_string();
            servers.push(before);
        }
        if let Some(module) = &self.options.module {
            let module = module.canonicalize()?;
            let redis = Server::redis_with(&self.options.redis, Some(&module), self.folder.root())?;
            servers.push(redis.ok_or("--module needs Debian's redis-server")?);
        }
        cost::pipelines(&servers, &self.cost_sizes())
    }

    /// The program to start.
    fn program(&self) -> Result<PathBuf, Box<dyn Error>> {
        if !self.binary.is_file() {
            return Err(format!(
                "{} is missing: build it with 'cargo build --release -p inbloom-cli', or name \
                 a running server with --address and --pid",
                self.binary.display()
            )
            .into());
        }
        Ok(self.binary.canonicalize()?)
    }

    fn durability(&self) -> Result<(), Box<dyn Error>> {
        if self.options.address.is_some() {
            return Err("durability starts and ends servers itself: leave out --address".into());
        }
        let data = self.options.dir_for_data.clone().unwrap_or_else(env::temp_dir);
        let data = Folder::create(data.join(format!("inbloom-bench-{}", std::process::id())))?;
        let durability = Durability {
            binary: self.program()?,
            arguments: &self.options.arguments,
            words: self.folder.root(),
            data: data.root().canonicalize()?,
        };
        durability::run(&durability, &self.durability_sizes())
    }

    fn layer_capacity(&self) -> u64 {
        if self.options.quick { 200_000 } else { 10_000_000 }
    }

    fn against_redis(&self, server: &Server) -> Result<(), Box<dyn Error>> {
        match Server::redis(&self.options.redis, self.folder.root())? {
            Some(redis) => cost::against_redis(server, &redis, &self.cost_sizes()),
            None => {
                let name = self.options.redis.display();
                let missing = format!("{name} DOES NOT TAKE PART: install Debian's redis-server");
                // Both who watches the run and who reads its record shall know.
                println!("{missing}");
                eprintln!("{missing}");
                Ok(())
            }
        }
    }

    fn rounds(&self) -> usize {
        if self.options.quick { 1 } else { self.options.rounds }
    }

    fn cost_sizes(&self) -> cost::Sizes {
        let (one_by_one, queries, additions) = if self.options.quick {
            (5_000, 100_000, 50_000)
        } else {
            (50_000, 1_000_000, 400_000)
        };
        let capacity = if self.options.quick { 1_000_000 } else { 10_000_000 };
        let connections = self.options.connections.clone();
        cost::Sizes { rounds: self.rounds(), capacity, connections, one_by_one, queries, additions }
    }

    fn latency_sizes(&self) -> latency::Sizes {
        if self.options.quick {
            return latency::Sizes {
                idle: Duration::from_secs(1),
                items: 100_000,
                commands: 3,
                large_bytes: 50_000_000,
                growth: 1_000_000,
            };
        }
        latency::Sizes {
            idle: Duration::from_secs(5),
            items: 500_000,
            commands: 10,
            large_bytes: 1_000_000_000,
            growth: self.options.growth,
        }
    }

    fn growth_sizes(&self) -> growth::Sizes {
        let (items, queries) =
            if self.options.quick { (500_000, 100_000) } else { (10_000_000, 1_000_000) };
        growth::Sizes { rounds: self.rounds(), items, queries }
    }

    fn durability_sizes(&self) -> durability::Sizes {
        if self.options.quick {
            return durability::Sizes {
                rounds: 1,
                load: Duration::from_millis(500),
                capacity: 10_000_000,
                large_filters: 10,
                large_bytes: 2_000_000,
                small_filters: 20_000,
                log_items: 200_000,
                snapshot_bytes: 50_000_000,
            };
        }
        durability::Sizes {
            rounds: self.options.rounds,
            load: Duration::from_millis(1500),
            capacity: 30_000_000,
            large_filters: 100,
            large_bytes: 20_000_000,
            small_filters: 1_000_000,
            log_items: 10_000_000,
            snapshot_bytes: 1_000_000_000,
        }
    }

    fn small_counts(&self) -> &'static [u64] {
        if self.options.quick { &[20_000, 2_000] } else { &[1_000_000, 100_000, 10_000] }
    }
}

/// A goal and whether a number meets it: `<= 300 met`.
fn at_most(number: f64, goal: f64) -> String {
    let verdict = if number <= goal { "met" } else { "MISSED" };
    format!("<= {goal} {verdict}")
}

/// The same for a number that should not be smaller: `>= 0.85 met`.
fn at_least(number: f64, goal: f64) -> String {
    let verdict = if number >= goal { "met" } else { "MISSED" };
    format!(">= {goal} {verdict}")
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("'{text}' is no number from 1 on")),
    }
}
