//! Two builds of this benchmark in turns, or a contestant beside another: ratios of every cell.
//!
//! A round runs `core --rounds 1` once with each build, in processes of their own: memory, code and
//! pages lie elsewhere every time, which is what makes two runs of one build differ. The ratio is
//! taken within a round; its median and interval are reported.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::Value;

use crate::pairs::Ratio;
use crate::race::median;

/// Options of `paired`.
#[derive(Args)]
pub(crate) struct Options {
    /// The build to compare this one with: its inbloom-bench, which must know `core --who`.
    #[arg(long, required_unless_present = "against")]
    before: Option<PathBuf>,
    /// Compare two contestants of this build instead: OURS=THEIRS, by the beginning of their names.
    #[arg(long, conflicts_with = "before", value_parser = two_names)]
    against: Option<(String, String)>,
    /// Pairs to take the median of.
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// Options of `core`, behind `--`.
    #[arg(last = true)]
    core: Vec<String>,
}

fn two_names(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((ours, theirs)) => Ok((ours.to_string(), theirs.to_string())),
        None => Err(format!("'{text}' is no pair of contestants: write OURS=THEIRS")),
    }
}

/// Which race and operation a time is of, and of whom.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    kind: String,
    items: u64,
    target: String,
    who: String,
    op: String,
}

/// Nanoseconds per key.
type Times = BTreeMap<Cell, f64>;

/// Runs all rounds, and prints the table.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let after = env::current_exe()?;
    let mut pairs: BTreeMap<Cell, Vec<(f64, f64)>> = BTreeMap::new();
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        let (left, right) = match (&options.before, &options.against) {
            // Every other round begins with the other.
            (Some(before), _) if round % 2 == 0 => {
                let before = measure(before, &options.core)?;
                (measure(&after, &options.core)?, before)
            }
            (Some(before), _) => (measure(&after, &options.core)?, measure(before, &options.core)?),
            (None, Some((ours, theirs))) => {
                let times = measure(&after, &options.core)?;
                (of(ours, &times), of(theirs, &times))
            }
            (None, None) => unreachable!("one of both is required"),
        };
        for (cell, ns) in left {
            if let Some(&other) = right.get(&cell) {
                pairs.entry(cell).or_default().push((ns, other));
            }
        }
    }
    print(&pairs);
    Ok(())
}

/// What one run of `core` takes.
fn measure(binary: &Path, arguments: &[String]) -> Result<Times, Box<dyn Error>> {
    let mut command = Command::new(binary);
    command.args(["core", "--json", "--rounds", "1"]).args(arguments);
    // The goals, which are for whole tables.
    command.stderr(Stdio::null());
    let named = |reason: String| format!("{} core: {reason}", binary.display());
    let output = command.output().map_err(|error| named(error.to_string()))?;
    if !output.status.success() {
        return Err(named(format!("{}; run it by itself to see why", output.status)).into());
    }
    let text = String::from_utf8(output.stdout)?;
    text.lines()
        .map(|line| row(line).ok_or_else(|| named(format!("no row: {line}")).into()))
        .collect()
}

fn row(line: &str) -> Option<(Cell, f64)> {
    let row: Value = serde_json::from_str(line).ok()?;
    let word = |name: &str| Some(row.get(name)?.as_str()?.to_string());
    let cell = Cell {
        kind: word("kind")?,
        items: row.get("n")?.as_u64()?,
        target: row.get("target")?.to_string(),
        who: word("who")?,
        op: word("op")?,
    };
    Some((cell, row.get("ns")?.as_f64()?))
}

/// The times of one contestant, under no name.
fn of(who: &str, times: &Times) -> Times {
    let its = times.iter().filter(|(cell, _)| cell.who.starts_with(who));
    its.map(|(cell, &ns)| (Cell { who: String::new(), ..cell.clone() }, ns)).collect()
}

fn print(pairs: &BTreeMap<Cell, Vec<(f64, f64)>>) {
    println!(
        "{:<10}{:>10}{:>8}  {:<28}{:<14}{:>9}{:>9}{:>6}  ratio, 95% interval",
        "keys", "n", "rate", "contestant", "", "ns", "to", "pairs"
    );
    for (cell, times) in pairs {
        let middle =
            |side: fn(&(f64, f64)) -> f64| median(&times.iter().map(side).collect::<Vec<_>>());
        let ratio = Ratio::new(times.iter().map(|(left, right)| left / right).collect());
        println!(
            "{:<10}{:>10}{:>8}  {:<28}{:<14}{:>9.2}{:>9.2}{:>6}  {}",
            cell.kind,
            cell.items,
            cell.target,
            cell.who,
            cell.op,
            middle(|(left, _)| *left),
            middle(|(_, right)| *right),
            times.len(),
            ratio.map_or(String::new(), |ratio| ratio.text())
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_core_are_read_back() {
        let line = r#"{"who":"sbbf-rs-safe","kind":"url","n":100000,"target":0.001,"measured_rate":null,"bits_per_key":16.880,"op":"hit","ns":6.410,"note":"xxh3"}"#;
        let (cell, ns) = row(line).expect("a row");
        assert_eq!(
            (cell.who.as_str(), cell.items, cell.op.as_str(), ns),
            ("sbbf-rs-safe", 100_000, "hit", 6.41)
        );
        let times = Times::from([(cell.clone(), ns)]);
        assert_eq!(of("sbbf", &times).len(), 1);
        assert_eq!(of("inbloom", &times).len(), 0);
        assert!(row("no row").is_none());
    }
}
