//! The `inbloom` command: plan, build, query and inspect membership filters.
//!
//! A table of contents. Each subcommand is one file in `cmd/`. What they share: `lines` (records
//! in, in batches), `integers` (records as keys of a bitmap), `sizing` (the options that make a
//! plan), `filter_file` (filters in files), `plot` (curves), `numbers` (10e9, 64MiB), `output` (stdout,
//! stderr, exit codes).

mod cmd;
mod filter_file;
mod integers;
mod lines;
mod numbers;
mod output;
mod plot;
mod sizing;

use std::process::ExitCode;

use clap::Parser;

/// Have I seen this key? Membership filters for thousands to billions of keys.
///
/// A filter answers "certainly not" or "probably yes", in a small fraction of the memory that the
/// keys take. "Certainly not" is always true; "probably yes" is wrong at most at the rate you
/// chose.
#[derive(Parser)]
#[command(name = "inbloom", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: cmd::Command,
}

const EXAMPLES: &str = "\
Examples:
  inbloom plan -n 10e9 -p 1e-4                how large would it be?
  inbloom build -o seen.ib -p 0.001 urls.txt  a filter of the lines of urls.txt
  inbloom check seen.ib new.txt               the lines of new.txt that are probably in it
  inbloom check -v seen.ib new.txt            the lines that are certainly not
  inbloom info seen.ib                        parameters, fill, current rate

Exit status:
  0  done; for check: at least one line was selected
  1  check only: no line was selected
  2  an error, described on standard error

Data goes to standard output, everything else to standard error.";

fn main() -> ExitCode {
    output::exit_code(Cli::parse().command.run())
}
