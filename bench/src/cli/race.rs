//! Rounds in which every contestant runs once, each round beginning with another of them.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::answers::Checker;
use super::child::{Program, Usage};

/// A program that is raced.
pub(crate) struct Contestant {
    name: String,
    program: Program,
    time: Time,
    checker: Checker,
    runs: Vec<Usage>,
    /// What was noteworthy about the last answer.
    note: String,
    /// Why it takes no part any more.
    failure: Option<String>,
}

/// Which time counts.
enum Time {
    /// From the start of the program to its end.
    Whole,
    /// The seconds that the program prints.
    Printed,
}

impl Contestant {
    pub(crate) fn new(name: impl Into<String>, program: Program, checker: Checker) -> Contestant {
        Contestant {
            name: name.into(),
            program,
            time: Time::Whole,
            checker,
            runs: Vec::new(),
            note: String::new(),
            failure: None,
        }
    }

    /// One that prints in how many seconds it did what counts.
    pub(crate) fn timing_itself(name: impl Into<String>, program: Program) -> Contestant {
        let contestant = Contestant::new(name, program, Checker::anything());
        Contestant { time: Time::Printed, ..contestant }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Takes note of a run, if its answer is right.
    fn finish(&mut self, usage: Usage, output: &Path) -> Result<(), Box<dyn Error>> {
        let wrong = |reason: String| format!("{} answered wrong: {reason}", self.name);
        self.note = self.checker.check(output).map_err(wrong)?;
        let wall = match self.time {
            Time::Whole => usage.wall,
            Time::Printed => {
                Duration::try_from_secs_f64(fs::read_to_string(output)?.trim().parse()?)?
            }
        };
        self.runs.push(Usage { wall, ..usage });
        Ok(())
    }

    /// All times in seconds, the shortest first.
    fn times(&self) -> Vec<f64> {
        sorted(self.runs.iter().map(|run| run.wall.as_secs_f64()))
    }

    fn peak(&self) -> Option<u64> {
        self.runs.iter().map(|run| run.peak).max()
    }
}

pub(crate) struct Race {
    contestants: Vec<Contestant>,
    /// Where they write.
    output: PathBuf,
}

impl Race {
    pub(crate) fn new(contestants: Vec<Contestant>, output: PathBuf) -> Race {
        Race { contestants, output }
    }

    /// Runs all rounds. A program that fails is reported and takes no further part; a wrong answer
    /// ends the race.
    pub(crate) fn run(&mut self, name: &str, rounds: usize) -> Result<(), Box<dyn Error>> {
        for round in 0..rounds {
            let count = self.contestants.len();
            for turn in 0..count {
                let contestant = &mut self.contestants[(round + turn) % count];
                if contestant.failure.is_some() {
                    continue;
                }
                eprintln!("{name}, round {} of {rounds}: {}", round + 1, contestant.name);
                match contestant.program.run(&self.output) {
                    Ok(usage) => contestant.finish(usage, &self.output)?,
                    Err(reason) => {
                        eprintln!("{} FAILED: {reason}", contestant.name);
                        contestant.failure = Some(reason);
                    }
                }
                // Gone at once, so that the next one does not wait for the disk to take it.
                fs::remove_file(&self.output)?;
            }
        }
        Ok(())
    }

    /// The shortest time of a contestant in seconds, if it finished. Programs are compared by it:
    /// whatever else runs on the machine can only lengthen the others.
    pub(crate) fn shortest(&self, name: &str) -> Option<f64> {
        self.find(name)?.times().first().copied()
    }

    /// The most memory that a contestant had in any round, in bytes.
    pub(crate) fn peak(&self, name: &str) -> Option<u64> {
        self.find(name)?.peak()
    }

    fn find(&self, name: &str) -> Option<&Contestant> {
        self.contestants
            .iter()
            .find(|contestant| contestant.name == name && contestant.failure.is_none())
    }

    /// Prints the table, with a last column made from the shortest time in seconds.
    pub(crate) fn print(&self, title: &str, column: &str, value: impl Fn(f64) -> Option<f64>) {
        println!("\n{title}");
        println!(
            "{:<36}{:>8}{:>9}{:>13}{:>10}{:>12}  note",
            "", "min s", "median s", "processor s", "peak MB", column
        );
        for contestant in &self.contestants {
            let name = &contestant.name;
            if let Some(reason) = &contestant.failure {
                println!("{name:<36}FAILED: {reason}");
                continue;
            }
            let times = contestant.times();
            let (Some(&shortest), Some(middle), Some(peak)) =
                (times.first(), median(&times), contestant.peak())
            else {
                continue;
            };
            let worked = sorted(contestant.runs.iter().map(|run| run.processor.as_secs_f64()));
            let (worked, peak) = match contestant.time {
                Time::Whole => (
                    format!("{:.2}", median(&worked).unwrap_or_default()),
                    format!("{:.1}", peak as f64 / 1e6),
                ),
                // Those of the whole program, of which the time is only a part.
                Time::Printed => ("-".to_string(), "-".to_string()),
            };
            let value = value(shortest).map_or(String::new(), |value| format!("{value:.2}"));
            println!(
                "{name:<36}{shortest:>8.3}{middle:>9.3}{worked:>13}{peak:>10}{value:>12}  {}",
                contestant.note
            );
        }
    }
}

pub(crate) fn sorted(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// The middle one of sorted numbers, the lower of two.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}
