//! `inbloom build`: a filter from the lines of files.
//!
//! A filter has to know how many keys are coming before the first one is inserted. Where `-n` does
//! not tell, files are read twice, first to count their lines. A pipe cannot be, so the digests of
//! its keys are kept (16 bytes each, whatever the keys' length) until the last one has come.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use inbloom::{Digest, Filter, Hasher, Kind};

use crate::lines::{self, Batch, Input};
use crate::sizing::{Sizing, kind_parser};
use crate::{filter_file, integers, numbers, output};

/// Build a filter from keys, one per line
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// File to write; replaced only when the new filter is complete
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Files of keys, one per line; standard input if none is given or for -
    files: Vec<PathBuf>,

    /// The structure; for a bitmap, lines are decimal integers
    #[arg(long, default_value_t = Kind::Blocked, value_parser = kind_parser())]
    kind: Kind,

    /// Text to keep in the file, shown by 'inbloom info'
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,

    /// Let the filter empty itself when more than this share of its bits is set: 0.8
    #[arg(long, value_name = "SHARE", value_parser = numbers::parse_share)]
    auto_clear: Option<f64>,

    /// Records end in a NUL byte, not in a newline
    #[arg(short = '0', long)]
    null: bool,

    // Last: its heading holds for all options that follow.
    #[command(flatten)]
    sizing: Sizing,
}

const AFTER_HELP: &str = "\
Every line is a key, byte for byte: empty lines too, and a carriage return is part of its line.
Without -n the lines are counted first: files are read twice, from a pipe 16 bytes per key are
kept. Without -p the rate is 0.01.

Examples:
  inbloom build -o seen.ib urls.txt
  inbloom build -o seen.ib -p 1e-4 --note 'crawl of May' urls-*.txt
  zcat urls.gz | inbloom build -o seen.ib -n 10M
  inbloom build -o seen.ib --bytes 64MiB urls.txt
  seq 0 2 1000000 | inbloom build -o even.ib --kind bitmap --universe 10M

Exit status:
  0  the filter was written
  2  an error; the output file is as it was before";

pub fn run(args: &Args) -> Result<ExitCode> {
    filter_file::check_output(&args.output)?;
    let inputs = Input::from_arguments(&args.files);
    let mut builder = Builder { args, inputs, read: 0, new: 0, answers: Vec::new() };
    let filter = builder.build()?;
    inbloom::file::save(&filter, &args.output)?;
    builder.summarize(&filter);
    Ok(ExitCode::SUCCESS)
}

struct Builder<'a> {
    args: &'a Args,
    inputs: Vec<Input>,
    /// Keys that came, and those among them of which the filter said "new".
    read: u64,
    new: u64,
    /// The filter's answers to the current batch.
    answers: Vec<bool>,
}

impl Builder<'_> {
    fn build(&mut self) -> Result<Filter> {
        if self.size_is_known() {
            return self.build_from_lines(&self.args.sizing);
        }
        // What would be refused for a single key is refused before hours of reading.
        self.sizing_for(1).plan(self.args.kind)?;
        if self.inputs.iter().all(Input::is_regular_file) {
            self.build_from_lines(&self.sizing_for(self.count_lines()?))
        } else {
            self.build_from_digests(&Hasher::default())
        }
    }

    /// A bitmap's size does not depend on its keys; memory and rate together give the capacity.
    fn size_is_known(&self) -> bool {
        let sizing = &self.args.sizing;
        let from_memory = sizing.bytes.is_some() && sizing.rate.is_some();
        self.args.kind == Kind::Bitmap || sizing.items.is_some() || from_memory
    }

    fn sizing_for(&self, keys: u64) -> Sizing {
        Sizing { items: Some(keys), ..self.args.sizing }
    }

    fn build_from_lines(&mut self, sizing: &Sizing) -> Result<Filter> {
        let mut filter = self.prepare(Filter::new(sizing.plan(self.args.kind)?)?)?;
        for input in self.inputs.clone() {
            let mut lines = input.open(self.terminator())?;
            while let Some(batch) = lines.next_batch()? {
                self.insert_batch(&mut filter, &batch, &input)?;
            }
        }
        Ok(filter)
    }

    fn build_from_digests(&mut self, hasher: &Hasher) -> Result<Filter> {
        let digests = self.read_digests(hasher)?;
        let plan = self.sizing_for(digests.len() as u64).plan(self.args.kind)?;
        let mut filter = self.prepare(Filter::with_hasher(plan, *hasher)?)?;
        for some in digests.chunks(4096) {
            filter.insert_digests(some, &mut self.answers)?;
            self.tally();
        }
        Ok(filter)
    }

    fn prepare(&self, mut filter: Filter) -> Result<Filter> {
        filter.set_auto_clear(self.args.auto_clear)?;
        filter.set_note(self.args.note.as_deref().unwrap_or_default())?;
        Ok(filter)
    }

    fn count_lines(&self) -> Result<u64> {
        self.inputs.iter().map(|input| input.count_records(self.terminator())).sum()
    }

    fn insert_batch(&mut self, filter: &mut Filter, batch: &Batch, input: &Input) -> Result<()> {
        match filter.plan().kind() {
            Kind::Bitmap => {
                // A bitmap's bits are its universe, and it has at least one.
                let keys = integers::keys(batch, input, filter.plan().bits() - 1)?;
                filter.insert_many(&keys, &mut self.answers)?;
            }
            _ => filter.insert_many(&batch.records, &mut self.answers)?,
        }
        self.tally();
        Ok(())
    }

    fn read_digests(&self, hasher: &Hasher) -> Result<Vec<Digest>> {
        let mut digests = Vec::new();
        for input in &self.inputs {
            let mut lines = input.open(self.terminator())?;
            while let Some(batch) = lines.next_batch()? {
                digests.extend(batch.records.iter().map(|record| hasher.digest(record)));
            }
        }
        Ok(digests)
    }

    fn tally(&mut self) {
        self.read += self.answers.len() as u64;
        self.new += self.answers.iter().filter(|&&new| new).count() as u64;
    }

    fn terminator(&self) -> u8 {
        lines::terminator(self.args.null)
    }

    fn summarize(&self, filter: &Filter) {
        let plan = filter.plan();
        output::say(format_args!(
            "{} read, {} new; {}, {}, rate {} promised, {} now; saved as {}",
            numbers::keys(self.read),
            numbers::exact(self.new),
            plan.kind(),
            numbers::bytes(plan.bytes()),
            numbers::rate(plan.rate()),
            numbers::rate(filter.rate()),
            self.args.output.display(),
        ));
        if filter.inserted() < self.new {
            output::say(format_args!(
                "the filter emptied itself (--auto-clear) and holds the last {} only",
                numbers::keys(filter.inserted()),
            ));
        } else if self.new > plan.items() {
            output::say(format_args!(
                "warning: planned for {}; build again with -n {} to keep the rate",
                numbers::keys(plan.items()),
                self.new,
            ));
        }
    }
}
