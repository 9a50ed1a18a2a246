//! From exec to the first right answers.
//!
//! A server is filled, saves and ends (or is killed), and is started again several times: what it has
//! read of its files, the system still has in memory. A process that listens before it is ready
//! keeps its first client waiting; so what is measured is from the start of the program to the last
//! of the first answers, all of them checked.

use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use super::{Durability, Policy, Sizes};
use crate::cli::race::{median, sorted};
use crate::report;
use crate::server::latency::{self, megabytes};
use crate::server::process::Server;
use crate::server::script::{self, Script, Shape};
use crate::server::{at_most, small};

/// Of the large filters, and of the one in the log.
const RATE: f64 = 0.001;
/// Items of each large filter.
const ITEMS: u64 = 5000;
/// Queries of each large filter, in one command; half of them are for items.
const QUERIES: u64 = 20;

/// Queries of small filters, and of the one in the log, that are answered first,
const FIRST: u64 = 1000;
/// and those that are asked afterwards.
const FURTHER: u64 = 400_000;

const LARGE_GOAL: f64 = 1.0;
const SMALL_GOAL: f64 = 5.0;

/// Items of a command while the log is filled, and commands in flight.
const PER_COMMAND: u64 = 100;
const DEPTH: usize = 16;
/// Items for which requests are made before they are sent.
const STEP: u64 = 500_000;

/// How a server ends.
enum End {
    Shutdown,
    Kill,
}

/// A folder to start from.
struct Case {
    name: String,
    folder: &'static str,
    end: End,
    filters: u64,
    rate: f64,
    goal: Option<f64>,
    /// What is asked first,
    first: Script,
    /// and then.
    further: Script,
}

/// What a filled server needed until it had ended.
struct Filled {
    save: Option<Duration>,
    stop: Option<Duration>,
    resident: u64,
}

pub(super) fn run(with: &Durability<'_>, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    println!("\nrestart with the page cache warm, seconds from exec: medians of {}", sizes.rounds);
    println!(
        "{:<34}{:>10}{:>8}{:>8}{:>9}{:>9}{:>10}{:>9}{:>14}{:>12}{:>12}  note",
        "",
        "on disk",
        "SAVE",
        "end",
        "read(2)",
        "PING",
        "answers",
        "slowest",
        "goal",
        "RSS before",
        "RSS after"
    );
    empty(with, sizes)?;
    large(with, sizes)?;
    small(with, sizes)?;
    log_alone(with, sizes)
}

/// Nothing to read, the control.
fn empty(with: &Durability<'_>, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    let server = with.server(Policy::EverySecond, "empty")?;
    let mut client = server.connect()?;
    client.ask(&format!("BF.RESERVE bench:f {RATE} 1000"))?;
    script::fill(&mut client, "bench:f", 0..1000, RATE)?;
    let case = Case {
        name: "one small filter, the control".to_string(),
        folder: "empty",
        end: End::Shutdown,
        filters: 1,
        rate: RATE,
        goal: None,
        first: queries_of("bench:f", 1000),
        further: Script::new(Shape::Array, 1),
    };
    case.run(with, sizes, server)
}

/// Filters that have files of their own.
fn large(with: &Durability<'_>, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    eprintln!("restart: {} large filters", sizes.large_filters);
    let name = |number: u64| format!("bench:{number:04}");
    let server = with.server(Policy::EverySecond, "large")?;
    let mut client = server.connect()?;
    let capacity = latency::capacity(&mut client, "bench:trial", RATE, sizes.large_bytes)?;
    let (mut first, mut bytes) = (Script::new(Shape::Array, 100), 0);
    for number in 0..sizes.large_filters {
        let (name, begin) = (name(number), number * ITEMS);
        client.ask(&format!("BF.RESERVE {name} {RATE} {capacity}"))?;
        bytes += latency::size(&mut client, &name)?;
        script::fill(&mut client, &name, begin..begin + ITEMS, RATE)?;
        let queries = (0..QUERIES as usize).map(|query| {
            let query = begin + query as u64;
            match query.is_multiple_of(2) {
                true => (script::key(query), script::Expected::Surely(true)),
                false => (script::absent_key(query), script::Expected::Usually(false)),
            }
        });
        first.push_many(&[b"BF.MEXISTS", name.as_bytes()], queries);
    }
    let case = Case {
        name: format!("{} filters, {} of bits", sizes.large_filters, megabytes(bytes)),
        folder: "large",
        end: End::Shutdown,
        filters: sizes.large_filters,
        rate: RATE,
        goal: Some(LARGE_GOAL),
        first,
        further: Script::new(Shape::Array, 1),
    };
    case.run(with, sizes, server)
}

/// Filters that are packed together.
fn small(with: &Durability<'_>, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    eprintln!("restart: {} small filters", report::count(sizes.small_filters));
    let server = with.server(Policy::EverySecond, "small")?;
    small::make(&server, &mut server.connect()?, sizes.small_filters)?;
    let case = Case {
        name: format!("{} filters of 100 items", report::count(sizes.small_filters)),
        folder: "small",
        end: End::Shutdown,
        filters: sizes.small_filters,
        rate: small::RATE,
        goal: Some(SMALL_GOAL),
        first: small::queries(sizes.small_filters, 0..FIRST),
        further: small::queries(sizes.small_filters, FIRST..FIRST + FURTHER),
    };
    case.run(with, sizes, server)
}

/// A filter of which there is no snapshot.
fn log_alone(with: &Durability<'_>, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    eprintln!("restart: {} items in the log", report::count(sizes.log_items));
    const NAME: &str = "bench:log";
    let server = with.server(Policy::EverySecond, "log")?;
    let mut client = server.connect()?;
    client.ask(&format!("BF.RESERVE {NAME} {RATE} {}", sizes.log_items))?;
    for begin in (0..sizes.log_items).step_by(STEP as usize) {
        let end = sizes.log_items.min(begin + STEP);
        script::additions(NAME, begin..end, PER_COMMAND, DEPTH).play(&mut client)?;
    }
    let mut further = Script::new(Shape::Array, DEPTH);
    for begin in (FIRST..FIRST + FURTHER).step_by(PER_COMMAND as usize) {
        let queries = (0..PER_COMMAND as usize)
            .map(|number| script::query(begin + number as u64, sizes.log_items));
        further.push_many(&[b"BF.MEXISTS", NAME.as_bytes()], queries);
    }
    let case = Case {
        name: format!("{} items in the log, kill -9", report::count(sizes.log_items)),
        folder: "log",
        end: End::Kill,
        filters: 1,
        rate: RATE,
        goal: None,
        first: queries_of(NAME, sizes.log_items),
        further,
    };
    case.run(with, sizes, server)
}

/// The first queries of a filter that has so many items.
fn queries_of(name: &str, items: u64) -> Script {
    let mut script = Script::new(Shape::Array, 1);
    let queries = (0..FIRST as usize).map(|number| script::query(number as u64, items));
    script.push_many(&[b"BF.MEXISTS", name.as_bytes()], queries);
    script
}

impl Case {
    /// Ends the server that was filled, starts it again and again, and prints what that took.
    fn run(
        self,
        with: &Durability<'_>,
        sizes: &Sizes,
        server: Server,
    ) -> Result<(), Box<dyn Error>> {
        let filled = self.finish(server)?;
        let folder = with.data.join(self.folder);
        let (mut bytes, mut reads, mut pings, mut answers) =
            (0, Vec::new(), Vec::new(), Vec::new());
        let mut resident = 0;
        for _ in 0..sizes.rounds {
            // The control, which makes sure that the page cache is warm.
            let start = Instant::now();
            bytes = read_all(&folder)?;
            reads.push(start.elapsed());
            let start = Instant::now();
            let server = with.server(Policy::EverySecond, self.folder)?;
            pings.push(start.elapsed());
            let mut client = server.connect()?;
            self.first.play(&mut client)?.check(self.rate)?;
            answers.push(start.elapsed());
            resident = server.process.resident()?;
            self.further.play(&mut client)?.check(self.rate)?;
            let found = client.ask_number("DBSIZE")?;
            if found != self.filters {
                return Err(format!("{found} filters are back of {}", self.filters).into());
            }
            self.end(server)?;
        }
        with.remove(self.folder)?;

        let seconds = |times: &[Duration]| sorted(times.iter().map(Duration::as_secs_f64));
        let middle = |times: &[Duration]| median(&seconds(times)).expect("one round at least");
        let told = |time: Option<Duration>| {
            time.map_or("-".to_string(), |time| format!("{:.2}", time.as_secs_f64()))
        };
        let answered = middle(&answers);
        let note = match self.filters {
            filters if filters >= 1000 => {
                let each = |bytes: u64| bytes as f64 / filters as f64;
                let (before, after) = (each(filled.resident), each(resident));
                format!("{before:.0} and {after:.0} bytes of RSS per filter")
            }
            _ => String::new(),
        };
        println!(
            "{:<34}{:>10}{:>8}{:>8}{:>9.3}{:>9.3}{answered:>10.3}{:>9.3}{:>14}{:>12}{:>12}  {note}",
            self.name,
            megabytes(bytes),
            told(filled.save),
            told(filled.stop),
            middle(&reads),
            middle(&pings),
            seconds(&answers).last().expect("one round at least"),
            self.goal.map_or(String::new(), |goal| at_most(answered, goal)),
            megabytes(filled.resident),
            megabytes(resident)
        );
        Ok(())
    }

    /// Saves and ends the server that was filled.
    fn finish(&self, server: Server) -> io::Result<Filled> {
        let resident = server.process.resident()?;
        match self.end {
            End::Kill => {
                drop(server);
                Ok(Filled { save: None, stop: None, resident })
            }
            End::Shutdown => {
                let start = Instant::now();
                server.connect()?.ask("SAVE")?;
                let save = Some(start.elapsed());
                let start = Instant::now();
                server.stop()?;
                Ok(Filled { save, stop: Some(start.elapsed()), resident })
            }
        }
    }

    fn end(&self, server: Server) -> io::Result<()> {
        match self.end {
            End::Kill => {
                drop(server); // Which kills it.
                Ok(())
            }
            End::Shutdown => server.stop(),
        }
    }
}

/// Reads all files of a folder, and tells how many bytes there are.
fn read_all(folder: &Path) -> io::Result<u64> {
    let (mut bytes, mut buffer) = (0, vec![0; 1 << 20]);
    for entry in fs::read_dir(folder)? {
        let mut file = fs::File::open(entry?.path())?;
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                count => bytes += count as u64,
            }
        }
    }
    Ok(bytes)
}
