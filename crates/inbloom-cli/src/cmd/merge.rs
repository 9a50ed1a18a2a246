//! `inbloom merge`: one filter of the keys of several.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use inbloom::{Error, Filter};

use crate::filter_file::{self, Changed, OpenArgs};
use crate::lock::WaitArgs;
use crate::{numbers, output};

/// Merge filters into one that has the keys of all of them
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// File to write, which may be one of the filters; replaced only when the new one is complete
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// The filters' files, at least two
    #[arg(required = true, num_args = 2.., value_name = "FILTER")]
    filters: Vec<PathBuf>,

    /// Text to keep in the new file, instead of the first note of the filters
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,

    #[command(flatten)]
    wait: WaitArgs,

    #[command(flatten)]
    open: OpenArgs,
}

const AFTER_HELP: &str = "\
The filters must be of one kind and size, with the same probes, hash and normalization: build them
with the same options and the same -n, that of all their keys together. Otherwise the merged filter
holds more keys than it was planned for, at a higher rate, which is said.

Counting and cuckoo filters add up: a key that is in both is in the result twice, and has to be
removed as often. A cuckoo filter that has no room for all is not written. Windows of time forget
first what is too old by the system's clock. What the first filter was planned for, and its
auto-clear, holds for the result.

Examples:
  inbloom build -o mon.ib -n 10M mon.txt
  inbloom build -o tue.ib -n 10M tue.txt
  inbloom merge -o week.ib mon.ib tue.ib
  inbloom merge -o week.ib week.ib wed.ib              one more, in place
  inbloom merge -o all.ib --note 'May' part-*.ib

Exit status:
  0  the filter was written
  2  an error; the output file is as it was before";

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut output = Changed::new(&args.output, args.wait)?;
    // A damaged filter that was saved again would have good checksums.
    args.filters.iter().try_for_each(|path| args.open.verify(path))?;
    let (first, others) = args.filters.split_first().expect("at least two are required");
    let mut merged = args.open.open_mut(first)?;
    filter_file::advance(&mut merged).with_context(|| first.display().to_string())?;
    let mut note = merged.note().to_string();
    for path in others {
        let other = args.open.open_now(path)?;
        check_normalization(&merged, first, &other, path)?;
        merged.merge(&other).map_err(|error| name(error, first, path))?;
        if note.is_empty() {
            note = other.note().to_string();
        }
    }
    merged.set_note(args.note.as_deref().unwrap_or(&note))?;
    output.save(&merged)?;
    summarize(&merged, args);
    Ok(ExitCode::SUCCESS)
}

/// Keys that were written in different ways do not belong into one filter: a query would find those
/// of one way only.
fn check_normalization(here: &Filter, first: &Path, there: &Filter, second: &Path) -> Result<()> {
    let (left, right) = (here.normalization(), there.normalization());
    if left != right {
        let (first, second) = (first.display(), second.display());
        bail!(
            "cannot merge {first} and {second}: they differ in the normalization of keys, {left:?} \
             in {first} and {right:?} in {second}; build one of them again with the other's"
        );
    }
    let (left, right) = (here.key_encoding(), there.key_encoding());
    if left != right {
        let (first, second) = (first.display(), second.display());
        bail!(
            "cannot merge {first} and {second}: they differ in the encoding of keys, {left:?} in \
             {first} and {right:?} in {second}; build one of them again with the other's"
        );
    }
    Ok(())
}

/// Says which two files it was.
fn name(error: Error, first: &Path, second: &Path) -> anyhow::Error {
    let (first, second) = (first.display(), second.display());
    match error {
        Error::Mismatch { field, left, right } => anyhow!(
            "cannot merge {first} and {second}: they differ in {field}, {left} in {first} and \
             {right} in {second}; build both with the same --kind, -n, -p, \
             --hash-seed and --key-file"
        ),
        other => anyhow::Error::new(other).context(format!("cannot merge {second} into {first}")),
    }
}

fn summarize(merged: &Filter, args: &Args) {
    let plan = merged.plan();
    let estimate = merged.estimated_items();
    let keys = numbers::keys(estimate.items.round() as u64);
    let about = if estimate.error > 0.0 { "about " } else { "" };
    let fill = match plan.kind().can_grow() {
        // Its share of what it was planned for at the start says nothing.
        true => String::new(),
        false => format!(", {} full", numbers::share(merged.fill())),
    };
    output::say(format_args!(
        "{} filters merged: {about}{keys}{fill}; {}, {}, rate {} promised, {} now; saved as {}",
        args.filters.len(),
        plan.kind(),
        numbers::bytes(merged.bytes()),
        numbers::rate(plan.rate()),
        numbers::rate(merged.rate()),
        args.output.display(),
    ));
    if filter_file::exceeds_promise(merged) {
        output::say(format_args!(
            "warning: the rate is above the promise, which is for {}; build the filters again with \
             a larger -n to keep it",
            numbers::keys(plan.items()),
        ));
    }
    if let Some(limit) = merged.auto_clear().filter(|limit| merged.fill() > *limit) {
        output::say(format_args!(
            "warning: it is fuller than its auto-clear allows ({}), so the next key that is added \
             empties it",
            numbers::share(limit),
        ));
    }
}
