//! `inbloom build`: a filter from the lines of files.
//!
//! A filter has to know how many keys are coming before the first one is inserted. Where `-n` does
//! not tell, files are read twice, first to count their lines. A pipe cannot be, so the digests of
//! its keys are kept (16 bytes each, whatever the keys' length) until the last one has come. Kinds
//! whose size does not depend on it need neither.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use inbloom::{Digest, Filter, Hasher, Kind, Plan, Span};

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
kept. Without -p the rate is 0.01. A scalable filter, and a window of the last so many keys, need no
number of lines.

Counting and cuckoo filters hold a key as often as it is inserted, a cuckoo filter at most 8 times.
So a line is inserted only if the filter does not claim it yet: repetitions count once. A key that
was claimed by accident has no entry of its own then, and must not be removed later.

All keys come now: by the system's clock, and in one of the steps of a --window of time. Without -n
it is planned for as many keys in every step; with it, for -n keys in the whole window.

Examples:
  inbloom build -o seen.ib urls.txt
  inbloom build -o seen.ib -p 1e-4 --note 'crawl of May' urls-*.txt
  zcat urls.gz | inbloom build -o seen.ib -n 10M
  inbloom build -o seen.ib --bytes 64MiB urls.txt
  seq 0 2 1000000 | inbloom build -o even.ib --kind bitmap --universe 10M
  inbloom build -o recent.ib --kind window --window 100000 log.txt

Exit status:
  0  the filter was written
  2  an error; the output file is as it was before";

/// The library's steps of a window, if none are asked for.
const DEFAULT_GENERATIONS: u32 = 4;

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

    /// The size of a bitmap, of a filter that grows and of a window of keys does not depend on how
    /// many come; memory and rate together give the capacity.
    fn size_is_known(&self) -> bool {
        let sizing = &self.args.sizing;
        let from_memory = sizing.bytes.is_some() && sizing.rate.is_some();
        let from_kind = match self.args.kind {
            Kind::Bitmap | Kind::Scalable => true,
            Kind::Window => matches!(sizing.window, Some(Span::Items(_))),
            _ => false,
        };
        from_kind || sizing.items.is_some() || from_memory
    }

    /// The sizing for so many keys, which all come in one step of a window.
    fn sizing_for(&self, keys: u64) -> Sizing {
        let sizing = self.args.sizing;
        let steps = match self.args.kind {
            Kind::Window => sizing.generations.unwrap_or(DEFAULT_GENERATIONS),
            _ => 1,
        };
        Sizing { items: Some(keys.saturating_mul(u64::from(steps))), ..sizing }
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
            insert(&mut filter, some, &mut self.answers)?;
            self.tally();
        }
        Ok(filter)
    }

    fn prepare(&self, mut filter: Filter) -> Result<Filter> {
        filter.set_auto_clear(self.args.auto_clear)?;
        filter.set_note(self.args.note.as_deref().unwrap_or_default())?;
        filter_file::advance(&mut filter)?;
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
            kind if kind.counts() => {
                let digests: Vec<Digest> =
                    batch.records.iter().map(|record| filter.digest(record)).collect();
                insert(filter, &digests, &mut self.answers)?;
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
            numbers::bytes(filter.bytes()),
            numbers::rate(plan.rate()),
            numbers::rate(filter.rate()),
            self.args.output.display(),
        ));
        if filter.inserted() < self.new {
            output::say(format_args!(
                "the filter emptied itself (--auto-clear) and holds the last {} only",
                numbers::keys(filter.inserted()),
            ));
        } else if let Some(warning) = self.warning(plan) {
            output::say(warning);
        }
    }

    /// What to say if more keys came than the filter was planned for.
    fn warning(&self, plan: &Plan) -> Option<String> {
        let (planned, steps) = (plan.items(), u64::from(plan.generations().max(1)));
        match (plan.kind(), plan.span()) {
            (Kind::Scalable, _) => None,
            (_, Some(Span::Items(last))) => (self.new > last).then(|| {
                format!("the filter holds the last {}, as asked for", numbers::keys(last))
            }),
            _ => (self.new > planned.div_ceil(steps)).then(|| {
                let each = if steps == 1 { "" } else { ", not all of them in one step" };
                format!(
                    "warning: planned for {}{each}; build again with -n {} to keep the rate",
                    numbers::keys(planned),
                    self.new.saturating_mul(steps),
                )
            }),
        }
    }
}

/// Inserts digests, in order, and tells of each whether it was new. Where an insert adds a copy of
/// a key that is there, only what is not there yet is inserted: the lines are a set.
fn insert(filter: &mut Filter, digests: &[Digest], new: &mut Vec<bool>) -> inbloom::Result<()> {
    if !filter.plan().kind().counts() {
        return filter.insert_digests(digests, new);
    }
    // Asked for all at once, which brings their memory in, and once more those that were not there,
    // since one may repeat another.
    filter.contains_digests(digests, new);
    for (digest, new) in digests.iter().zip(new) {
        *new = !*new && !filter.contains_digest(*digest) && filter.insert_digest(*digest)?;
    }
    Ok(())
}
