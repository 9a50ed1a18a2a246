//! The `inbloom` command: plan, build, query and inspect membership filters.
//!
//! A table of contents. Each subcommand is one file in `cmd/`. What they share, in the order in
//! which data passes: `input` (files, pipes, compressed ones), `count` and `blocks` (records, by
//! `split` or `csv`, on all cores, in order by `pipeline`), `keys` (from records to digests, by `fields`, `csv`,
//! `json` and `normalize`), `filter_file` (filters in files), `lock` (one program at a time changes
//! them), `remote` (filters on Redis), `columns` (filters in Parquet files), `lookup` (those that are
//! larger than memory), `edit` (those that lines change),
//! `exact_set` and `integers` (exact sets), `output` (stdout, stderr, exit codes), `progress` and
//! `signals`. For arguments: `sizing` (the options that make a
//! plan), `overfull` (what happens past it), `numbers` (10e9, 64MiB). For the eye: `plot` (curves),
//! `histogram` (how evenly a filter is filled). For the server: `log`, `settings_file`; for those who ask it: `login`.

mod blocks;
mod cmd;
mod column_values;
mod columns;
mod count;
mod csv;
mod edit;
mod exact_set;
mod fields;
mod filter_file;
mod histogram;
mod input;
mod integers;
mod json;
mod keys;
mod lock;
mod log;
mod login;
mod lookup;
mod memory;
mod normalize;
mod numbers;
mod output;
mod overfull;
mod pipeline;
mod pipes;
mod plot;
mod progress;
mod remote;
mod settings_file;
mod signals;
mod sizing;
mod spill;
mod split;

use std::process::ExitCode;

use clap::Parser;

/// A million small filters are three million small pieces of memory, to each of which the C library's
/// allocator adds a header, and rounds up.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Check whether a key was seen before, with membership filters for thousands to billions of keys.
///
/// A filter answers "certainly not" or "probably yes", in a small fraction of the memory that the
/// keys take. "Certainly not" is always right. "Probably yes" is wrong at the false-positive rate
/// that you choose.
#[derive(Parser)]
#[command(name = "inbloom", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: cmd::Command,
}

const EXAMPLES: &str = "\
Examples:
  inbloom plan -n 10e9 -p 1e-4                compute the size of a filter
  inbloom build -o seen.ib -p 0.001 urls.txt  build a filter of the lines of urls.txt
  inbloom check seen.ib new.txt               print the lines that are probably in it
  inbloom check -v seen.ib new.txt            print the lines that are certainly not
  inbloom dedup urls.txt                      print every line once, in order
  inbloom info seen.ib                        show parameters, fill and current rate

Exit status:
  0  done; for check: at least one line was selected
  1  for check: no line was selected; for measure: the rate is above its target
  2  an error, described on standard error

Data goes to standard output, messages go to standard error.";

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| output::exit_with_usage(&error));
    output::exit_code(cli.command.run())
}
