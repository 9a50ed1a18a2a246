//! Two builds of this benchmark in turns, or a contestant beside another: ratios of every cell.
//!
//! A round runs `core --rounds 1` (or `ribbon`) once with each build, in processes of their own: memory, code and
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
use crate::table::count;

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
    /// Run `ribbon` instead of `core`.
    #[arg(long)]
    ribbon: bool,
    /// Options of `core` or `ribbon`, behind `--`.
    #[arg(last = true)]
    rest: Vec<String>,
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
                let before = measure(before, options)?;
                (measure(&after, options)?, before)
            }
            (Some(before), _) => (measure(&after, options)?, measure(before, options)?),
            (None, Some((ours, theirs))) => {
                let times = measure(&after, options)?;
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

/// What one run of `core` or `ribbon` takes.
fn measure(binary: &Path, options: &Options) -> Result<Times, Box<dyn Error>> {
    let race: &[&str] = if options.ribbon { &["ribbon"] } else { &["core", "--json"] };
    let mut command = Command::new(binary);
    command.args(race).args(["--rounds", "1"]).args(&options.rest);
    // The goals, which are for whole tables.
    command.stderr(Stdio::null());
    let named = |reason: String| format!("{} {}: {reason}", binary.display(), race[0]);
    let output = command.output().map_err(|error| named(error.to_string()))?;
    if !output.status.success() {
        return Err(named(format!("{}; run it by itself to see why", output.status)).into());
    }
    let text = String::from_utf8(output.stdout)?;
    if options.ribbon {
        return Ok(table(&text));
    }
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

/// The times in the tables that `ribbon` prints: a title, the names of the columns, and a row for each
/// contestant, whose name takes 24 letters.
fn table(text: &str) -> Times {
    let mut times = Times::new();
    let (mut items, mut columns) = (0, Vec::new());
    for line in text.lines() {
        if let Some((number, _)) = line.split_once(" digests: ns per key") {
            items = count(number).unwrap_or(0);
        } else if line.trim_start().starts_with("rate ") {
            let names = line.split_whitespace().take_while(|name| *name != "note");
            columns = names.map(str::to_string).collect();
        } else if let Some((who, numbers)) = line.split_at_checked(24) {
            let numbers: Vec<&str> = numbers.split_whitespace().take(columns.len()).collect();
            // The verdicts below a table have no rate there.
            if !numbers.first().is_some_and(|rate| rate.ends_with('%')) {
                continue;
            }
            for (op, number) in columns.iter().zip(numbers) {
                let Ok(ns) = number.parse() else { continue };
                let (kind, target) = ("ribbon".to_string(), String::new());
                let who = who.trim().to_string();
                times.insert(Cell { kind, items, target, who, op: op.clone() }, ns);
            }
        }
    }
    times
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
    fn tables_of_ribbon_are_read_back() {
        let text = "\n10M digests: ns per key, median of 5; rates over 8388608 absent keys\n\
                    \x20                             rate  bits/key       build         hit  note\n\
                    ribbon, 14 bits           0.00551%    14.041      116.99      140.69  \n\
                    xorf fuse16               0.00169%    18.036       87.23           -  mixes\n\
                    ribbon, 14 bits size: inbloom classic 20.198 / 14.041 = 1.439  smaller\n";
        let times = table(text);
        let of = |who: &str, op: &str| {
            let cell = times.iter().find(|(cell, _)| cell.who == who && cell.op == op);
            cell.map(|(cell, ns)| (cell.items, *ns))
        };
        assert_eq!(of("ribbon, 14 bits", "build"), Some((10_000_000, 116.99)));
        assert_eq!(of("ribbon, 14 bits", "hit"), Some((10_000_000, 140.69)));
        assert_eq!(of("xorf fuse16", "bits/key"), Some((10_000_000, 18.036)));
        assert_eq!((of("xorf fuse16", "hit"), times.len()), (None, 5));
    }

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
