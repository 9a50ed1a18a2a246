//! `inbloom sort-ints`: every integer sets a bit, and reading the bits from the first to the last
//! gives the integers in order, each once.

use std::process::ExitCode;

use anyhow::{Result, bail};
use inbloom::{Hasher, MAX_ITEMS};
use inbloom_server::units::parse_count;

use crate::blocks::InOrder;
use crate::integers::Integers;
use crate::keys::InputArgs;
use crate::normalize::Normalization;
use crate::numbers;
use crate::output::{self, problem};
use crate::progress::{Beside, Progress};

/// Sort unsigned integers, one per line, each once
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The integers are 0 to U-1; takes U bits, 1.25 MB for 10 million
    #[arg(long, value_name = "U", value_parser = parse_count)]
    universe: Option<u64>,

    /// Print only how many there are
    #[arg(short = 'c', long)]
    count: bool,

    /// Print the missing integers: of 0 to U-1, or between the smallest and the largest
    #[arg(long)]
    absent: bool,

    // Last: its heading holds for all options that follow.
    #[command(flatten)]
    input: InputArgs,
}

const AFTER_HELP: &str = "\
Integers are decimal digits, from 0 to 18446744073709551615, with or without white space around them.
Without --universe, memory grows with the number of different integers: up to 8 bytes each and as
much for sorting, or 2 bytes and less where they are dense. Output begins at the end of input.

Examples:
  printf '%s\\n' 4 7 2 5 3 | inbloom sort-ints      2 3 4 5 7
  inbloom sort-ints --universe 10M numbers.txt     ten million integers in 1.25 MB
  inbloom sort-ints --count ids.txt.gz             how many different ones
  inbloom sort-ints --absent --universe 10M numbers.txt
  inbloom sort-ints -d , -f 2 orders.csv           the second field of every line

Exit status:
  0  done
  2  an error, such as a line that is not an integer below U; nothing was printed";

pub fn run(args: &Args) -> Result<ExitCode> {
    let set = read(args)?;
    if args.count {
        let count = if args.absent { count_absent(&set, args.universe) } else { set.len() };
        output::print(format!("{count}\n").as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut lines = Lines::new(args.input.terminator());
    match args.absent {
        true => for_each_absent(&set, args.universe, |integer| lines.push(integer))?,
        false => set.iter().try_for_each(|integer| lines.push(integer))?,
    }
    lines.print()?;
    Ok(ExitCode::SUCCESS)
}

fn read(args: &Args) -> Result<Integers> {
    let mut set = match args.universe {
        Some(0) => bail!(problem(
            "--universe is 0, the minimum is 1",
            "pass one more than the largest integer"
        )),
        Some(universe) if universe > MAX_ITEMS => bail!(problem(
            format!("--universe is {universe}, the limit is 10^15"),
            "leave --universe out: memory then follows the number of integers"
        )),
        Some(universe) => Integers::below(universe)?,
        None => Integers::any()?,
    };
    // As 'wc -l' and 'sort -n' have it: numbers may be indented.
    let trim = Normalization { trim: true, ..Normalization::default() };
    let keys = args.input.keys(Hasher::integers(), trim)?;
    let keys = match &set {
        Integers::Below(filter) => keys.for_inserts(filter),
        Integers::Any(_) => keys,
    };
    let inputs = args.input.inputs();
    let reader = args.input.reader(&inputs);
    let mut progress = Progress::new("sorting", &inputs, &reader, Beside::Nothing);
    let digests = move |block: &_, digests: &mut _| keys.digests(block, digests);
    let mut jobs = InOrder::new(reader, args.input.threads(), digests);
    let (mut new, mut missing) = (Vec::new(), 0);
    while let Some(job) = jobs.next() {
        let job = job.map_err(|failure| failure.error)?;
        set.insert(&job.product, &mut new)?;
        missing += job.product.missing().len() as u64;
        progress.step(job.block.len());
    }
    drop(progress);
    if missing > 0 {
        output::say(format_args!("skipped {} without a key", numbers::lines(missing)));
    }
    set.finish();
    Ok(set)
}

fn count_absent(set: &Integers, universe: Option<u64>) -> u64 {
    let mut sorted = set.iter();
    match (universe, sorted.next()) {
        (Some(universe), _) => universe - set.len(),
        (None, Some(smallest)) => {
            let largest = sorted.last().unwrap_or(smallest);
            // All from the smallest to the largest may be 2^64, which no u64 holds: so without one.
            (largest - smallest) - (set.len() - 1)
        }
        (None, None) => 0,
    }
}

fn for_each_absent(
    set: &Integers,
    universe: Option<u64>,
    mut take: impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut sorted = set.iter().peekable();
    let smallest = sorted.peek().copied().unwrap_or(0);
    let mut next = universe.map_or(smallest, |_| 0);
    for integer in sorted {
        (next..integer).try_for_each(&mut take)?;
        // Nothing comes after the largest of all.
        next = integer.saturating_add(1);
    }
    (next..universe.unwrap_or(0)).try_for_each(take)
}

/// Integers on their way out, in chunks: a write for each would cost more than all the rest.
struct Lines {
    text: Vec<u8>,
    terminator: u8,
}

impl Lines {
    const CHUNK: usize = 1 << 20;
    /// Digits of the largest integer.
    const DIGITS: usize = 20;

    fn new(terminator: u8) -> Lines {
        Lines { text: Vec::with_capacity(Lines::CHUNK + Lines::DIGITS + 1), terminator }
    }

    fn push(&mut self, integer: u64) -> Result<()> {
        let mut digits = [0; Lines::DIGITS];
        let mut first = Lines::DIGITS;
        let mut rest = integer;
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.text.extend_from_slice(&digits[first..]);
        self.text.push(self.terminator);
        if self.text.len() >= Lines::CHUNK { self.print() } else { Ok(()) }
    }

    fn print(&mut self) -> Result<()> {
        output::print(&self.text)?;
        self.text.clear();
        Ok(())
    }
}
