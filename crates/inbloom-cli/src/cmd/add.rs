//! `inbloom add`: lines into a filter that exists.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use inbloom::Filter;

use crate::change::Change;
use crate::filter_file::{self, KeyArgs};
use crate::keys::InputArgs;
use crate::lock::WaitArgs;
use crate::{numbers, output};

/// Insert keys into an existing filter, one per line, and print how many were new
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The filter's file; replaced only when all keys are in
    filter: PathBuf,

    #[command(flatten)]
    wait: WaitArgs,

    #[command(flatten)]
    key: KeyArgs,

    // Last: its heading holds for all options that follow.
    #[command(flatten)]
    input: InputArgs,
}

const AFTER_HELP: &str = "\
Prints 'N new of M keys': the others were probably there before, or came twice. Lines are
normalized as the filter's keys were ('build --normalize'), and those of a bitmap are integers. For
a window of time the keys come now, by the system's clock, also those that it still has.

The file is the old one or the new one, never half of it. It is left as it was after any error: an
input that cannot be read, or another program that is changing the file. With --wait it waits for
that to end.

Examples:
  inbloom add seen.ib new.txt              the lines of new.txt
  inbloom add seen.ib monday.gz tuesday.zst
  inbloom add --csv -f 3 seen.ib log.csv   the third field of every record
  inbloom check -v seen.ib new.txt | tee fresh.txt | inbloom add seen.ib

Exit status:
  0  the keys are in the filter
  2  an error; the filter is as it was before, unless only the answer could not be printed";

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut change = Change::open(&args.filter, &args.key, args.wait)?;
    if change.filter.plan().kind().is_static() {
        // Any key will do: the library refuses it, in its own words.
        change.filter.insert("").with_context(|| args.filter.display().to_string())?;
    }
    let before = change.filter.inserted();
    let keys = args.input.keys_for(&change.filter)?.for_inserts(&change.filter);
    let mut new = Vec::new();
    let tally = change.by_lines("adding", &args.input, keys, |filter, digests| {
        filter_file::insert_set(filter, digests, &mut new)?;
        Ok(filter_file::count_new(&new))
    })?;
    change.save(tally)?;
    let (new, read) = (numbers::exact(tally.changed), numbers::keys(tally.read));
    output::print(format!("{new} new of {read}{}\n", tally.missing()).as_bytes())?;
    let filter = &change.filter;
    if filter.inserted() < before + tally.changed {
        output::say(format_args!(
            "the filter emptied itself (auto-clear) and holds the last {} only",
            numbers::keys(filter.inserted()),
        ));
    } else if tally.changed > 0 && filter_file::exceeds_promise(filter) {
        output::say(warning(filter));
    }
    Ok(ExitCode::SUCCESS)
}

fn warning(filter: &Filter) -> String {
    let plan = filter.plan();
    let (planned, rate) = (numbers::keys(plan.items()), numbers::rate(filter.rate()));
    let promised = numbers::rate(plan.rate());
    // The fuller it is the more keys it takes for others and does not count: the bits know better.
    let holds = filter.inserted().max(filter.estimated_items().items.ceil() as u64);
    let (has, larger) = match plan.span() {
        Some(_) => ("took more in a step".to_string(), "a larger -n".to_string()),
        None => (format!("has about {}", numbers::exact(holds)), format!("-n {holds}")),
    };
    format!(
        "warning: planned for {planned}, and {has}: rate {promised} promised, {rate} now; build \
         again with {larger} to keep the rate"
    )
}
