//! inbloom measured against its peers. In `bench/`:
//!
//! ```text
//! cargo run --release -- core             the table, and whether the goals are met
//! cargo run --release -- core --json      one JSON object per line
//! cargo run --release -- core --quick     a small part of it, in under a minute
//! cargo run --release -- paired           two builds in turns, or two contestants: ratios
//! cargo run --release -- layouts          by what the block layout was chosen
//! cargo run --release -- growth           a scalable filter while it grows: the time of each insert
//! cargo run --release -- ribbon           the ribbon against other static filters
//! cargo run --release -- cli              the command line against others
//! cargo run --release -- server           a server under load, by its own CPU time
//! cargo run --release -- cold             a ribbon file of which nothing is in memory
//! ./record.sh core                        a record of a run, for record/
//! ```
//!
//! Rules: contestants take turns in every round and medians are reported; all have the same measured
//! false-positive rate; every answer is checked; the speed limit of the machine is measured in the
//! same run. The build is for the default target, as users' builds are: instruction sets are found
//! at run time by those who can.

#[cfg(unix)]
mod cli;
mod clock;
#[cfg(target_os = "linux")]
mod cold;
mod goals;
mod growth;
mod layers;
mod layouts;
mod limit;
mod memory;
mod ours;
mod paired;
mod pairs;
mod peers;
mod race;
mod report;
mod ribbon;
#[cfg(target_os = "linux")]
mod server;
mod shared;
mod sizing;
mod table;
mod workload;

use std::error::Error;
#[cfg(unix)]
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// inbloom measured against its peers.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// All contestants: digests, integers and URLs, one by one, in batches, and from two threads.
    Core(table::Options),
    /// `core` of two builds in turns, or of two contestants: the ratio of every cell.
    Paired(paired::Options),
    /// Prototypes of the block layouts, at equal rate.
    Layouts {
        /// Rounds to take the median of.
        #[arg(long, default_value_t = 7)]
        rounds: usize,
    },
    /// A scalable filter while it grows: every insert, and the rate at each size.
    Growth(growth::Options),
    /// The ribbon: its size and its time against other filters that are built once, and Bloom filters.
    Ribbon(ribbon::Options),
    /// The command line as a whole: inbloom dedup, build and check, against other programs.
    #[cfg(unix)]
    Cli(cli::Options),
    /// A server of filters under load: its processor time, what clients wait, its memory.
    #[cfg(target_os = "linux")]
    Server(server::Options),
    /// A ribbon file of which nothing is in memory, by each way through its pages.
    #[cfg(target_os = "linux")]
    Cold(cold::Options),
    /// How many seconds one thread hashes the lines of a file: a part of `cli`.
    #[cfg(unix)]
    #[command(hide = true)]
    HashLines { file: PathBuf },
}

fn main() -> Result<(), Box<dyn Error>> {
    match Arguments::parse().command {
        Command::Core(options) => table::run(&options),
        Command::Paired(options) => paired::run(&options),
        Command::Layouts { rounds } => layouts::run(rounds),
        Command::Growth(options) => growth::run(&options),
        Command::Ribbon(options) => ribbon::run(&options),
        #[cfg(unix)]
        Command::Cli(options) => cli::run(&options),
        #[cfg(target_os = "linux")]
        Command::Server(options) => server::run(&options),
        #[cfg(target_os = "linux")]
        Command::Cold(options) => cold::run(&options),
        #[cfg(unix)]
        Command::HashLines { file } => cli::hash_lines(&file),
    }
}
