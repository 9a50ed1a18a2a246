//! `inbloom check`: grep whose pattern is a filter.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use inbloom::{Filter, Kind};

use crate::lines::{Batch, Input};
use crate::output::{self, StdoutFailed};
use crate::{filter_file, integers, lines};

/// Print the lines that are probably in a filter
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The filter's file
    filter: PathBuf,

    /// Files of keys, one per line; standard input if none is given or for -
    files: Vec<PathBuf>,

    /// Print the lines that are certainly not in the filter
    #[arg(short = 'v', long)]
    invert_match: bool,

    /// Print only the number of selected lines: of all inputs together, or with -H of each
    #[arg(short = 'c', long)]
    count: bool,

    /// Print nothing and stop at the first selected line: only the exit status tells
    #[arg(short = 'q', long)]
    quiet: bool,

    /// Print the name of the input before each line
    #[arg(short = 'H', long)]
    with_filename: bool,

    /// Print the line's number before each line
    #[arg(short = 'n', long)]
    line_number: bool,

    /// Records end in a NUL byte, in input and output, not in a newline
    #[arg(short = '0', long)]
    null: bool,
}

const AFTER_HELP: &str = "\
A line that is printed was probably among the keys of the filter: others are printed too, at the
rate that 'inbloom info' shows. A line that is not printed was certainly not among them, or a window
has forgotten it: one of time by the system's clock.

Examples:
  inbloom check seen.ib new.txt            lines of new.txt that are probably in the filter
  inbloom check -v seen.ib < new.txt       lines that are certainly not in it
  inbloom check -c seen.ib a.txt b.txt     how many lines of both files are in it
  echo alice | inbloom check -q seen.ib && echo seen
  find . -print0 | inbloom check -0 paths.ib | xargs -0 ls

Exit status:
  0  at least one line was selected
  1  no line was selected
  2  an error; other inputs were still read, and with -q a selected line gives 0 all the same";

pub fn run(args: &Args) -> Result<ExitCode> {
    let filter = filter_file::open_now(&args.filter)?;
    warn_of_normalization(&filter);
    let mut search = Search { args, filter: &filter, found: Vec::new(), text: Vec::new() };
    let mut selected = 0;
    let mut failed = false;
    for input in Input::from_arguments(&args.files) {
        match search.input(&input) {
            Ok(count) => selected += count,
            Err(error) if error.is::<StdoutFailed>() => return Err(error),
            // As grep does: a bad input is reported, and the others are still read.
            Err(error) => {
                output::say(format_args!("{error:#}"));
                failed = true;
            }
        }
        if args.quiet && selected > 0 {
            return Ok(ExitCode::SUCCESS);
        }
    }
    if args.count && !args.quiet && !args.with_filename {
        output::print(format!("{selected}\n").as_bytes())?;
    }
    Ok(match (failed, selected) {
        (true, _) => ExitCode::from(2),
        (false, 0) => ExitCode::from(1),
        (false, _) => ExitCode::SUCCESS,
    })
}

/// Looking lines up as they are in a filter of normalized keys would miss some of them: a false
/// negative, which must not go unsaid.
fn warn_of_normalization(filter: &Filter) {
    let normalization = filter.normalization();
    if !normalization.is_empty() {
        output::say(format_args!(
            "warning: the keys of this filter were normalized ({normalization}) before they were \
             inserted; lines are looked up as they are, so give them in that form"
        ));
    }
}

struct Search<'a> {
    args: &'a Args,
    filter: &'a Filter,
    /// One answer per record of the current batch.
    found: Vec<bool>,
    /// What the current batch prints, in one write, so that a slow input is answered at once.
    text: Vec<u8>,
}

impl Search<'_> {
    /// Prints the selected lines of one input and returns how many there were.
    fn input(&mut self, input: &Input) -> Result<u64> {
        let mut lines = input.open(lines::terminator(self.args.null))?;
        let mut selected = 0;
        while let Some(batch) = lines.next_batch()? {
            self.look_up(&batch, input)?;
            selected += self.found.iter().filter(|&&found| self.selects(found)).count() as u64;
            if self.args.quiet && selected > 0 {
                return Ok(selected);
            }
            if !self.args.quiet && !self.args.count {
                self.print_selected(&batch, input)?;
            }
        }
        if self.args.count && self.args.with_filename && !self.args.quiet {
            let name = String::from_utf8_lossy(input.name());
            output::print(format!("{name}:{selected}\n").as_bytes())?;
        }
        Ok(selected)
    }

    fn look_up(&mut self, batch: &Batch, input: &Input) -> Result<()> {
        match self.filter.plan().kind() {
            Kind::Bitmap => {
                // Integers beyond the universe are none of the bitmap's, which is an answer.
                let keys = integers::keys(batch, input, u64::MAX)?;
                self.filter.contains_many(&keys, &mut self.found);
            }
            _ => self.filter.contains_many(&batch.records, &mut self.found),
        }
        Ok(())
    }

    fn selects(&self, found: bool) -> bool {
        found != self.args.invert_match
    }

    fn print_selected(&mut self, batch: &Batch, input: &Input) -> Result<()> {
        self.text.clear();
        for (index, record) in batch.records.iter().enumerate() {
            if !self.selects(self.found[index]) {
                continue;
            }
            if self.args.with_filename {
                self.text.extend_from_slice(input.name());
                self.text.push(b':');
            }
            if self.args.line_number {
                let number = batch.first_number + index as u64;
                write!(self.text, "{number}:").expect("a Vec takes all bytes");
            }
            self.text.extend_from_slice(record);
            self.text.push(lines::terminator(self.args.null));
        }
        if self.text.is_empty() { Ok(()) } else { output::print(&self.text) }
    }
}
