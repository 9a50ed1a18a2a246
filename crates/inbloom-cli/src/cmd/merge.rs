//! `inbloom merge`: one filter of the keys of several.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail, ensure};
use inbloom::{Error, Filter};
use inbloom_redis::{Address, RedisFilter};

use crate::filter_file::{self, Changed, OpenArgs};
use crate::lock::WaitArgs;
use crate::output::problem;
use crate::remote::{self, RedisArgs};
use crate::{numbers, output};

/// Merge filters into one that has the keys of all of them
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// File to write, which may be one of the filters, replaced when the new one is complete; or an
    /// address, redis://host/NAME: its filter gets the keys, and is created if it does not exist
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// The filters' files or addresses: at least two, or at least one if the output is on Redis
    #[arg(required = true, num_args = 1.., value_name = "FILTER")]
    filters: Vec<PathBuf>,

    /// Note for the new file [default: the first note of the filters]
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,

    #[command(flatten)]
    wait: WaitArgs,

    #[command(flatten)]
    open: OpenArgs,

    // Last: its heading holds for all options that follow.
    #[command(flatten)]
    redis: RedisArgs,
}

const AFTER_HELP: &str = "\
The filters must have the same kind, size, probes, hash and normalization. Build them with the same
options, and with the same -n: the number of all keys together. Otherwise the merged filter holds
more keys than it was planned for, its rate is higher, and a warning is printed.

Counting and cuckoo filters add up: a key in both is in the result twice, and has to be removed
twice. If a cuckoo filter has no room for all keys, it is not written. Windows of time first drop
what is too old by the system's clock. The result has the plan and the auto-clear of the first
filter.

Examples:
  inbloom build -o mon.ib -n 10M mon.txt
  inbloom build -o tue.ib -n 10M tue.txt
  inbloom merge -o week.ib mon.ib tue.ib
  inbloom merge -o week.ib week.ib wed.ib              one more, in place
  inbloom merge -o all.ib --note 'May' part-*.ib
  inbloom merge -o redis://localhost/seen part-*.ib    into a filter on Redis

Exit status:
  0  the filter was written
  2  an error; the output file is as it was before. A filter on Redis may have some of the keys;
     merging again does no harm";

pub fn run(args: &Args) -> Result<ExitCode> {
    let address = remote::address_of(&args.output)?;
    ensure!(
        args.filters.len() > 1 || address.is_some(),
        problem("one filter cannot be merged", "name at least two")
    );
    let mut output = match address {
        None => Some(Changed::new(&args.output, args.wait)?),
        Some(_) => None,
    };
    let merged = merge_all(args)?;
    match (&mut output, &address) {
        (Some(output), _) => output.save(&merged)?,
        (None, Some(address)) => merge_on_redis(args, address, &merged)?,
        (None, None) => unreachable!("an output is a file or an address"),
    }
    summarize(&merged, args);
    Ok(ExitCode::SUCCESS)
}

fn merge_all(args: &Args) -> Result<Filter> {
    // A damaged filter that was saved again would have good checksums.
    let files = args.filters.iter().filter(|path| !is_address(path));
    files.into_iter().try_for_each(|path| args.open.verify(path))?;
    // What is pulled is in files for as long as it is merged.
    let pulled = tempfile::tempdir().context("cannot make a temporary folder")?;
    let (first, others) = args.filters.split_first().expect("at least one is required");
    let mut merged = args.open.open_mut(&at_hand(args, first, pulled.path())?)?;
    filter_file::advance(&mut merged).with_context(|| remote::shown(first))?;
    let mut note = merged.note().to_string();
    for path in others {
        let other = args.open.open_now(&at_hand(args, path, pulled.path())?)?;
        check_normalization(&merged, first, &other, path)?;
        merged.merge(&other).map_err(|error| name(error, first, path))?;
        if note.is_empty() {
            note = other.note().to_string();
        }
    }
    merged.set_note(args.note.as_deref().unwrap_or(&note))?;
    Ok(merged)
}

fn is_address(path: &Path) -> bool {
    path.to_str().is_some_and(Address::is_address)
}

/// The file of a filter: its own, or the one that it is pulled into.
fn at_hand<'a>(args: &Args, path: &'a Path, folder: &Path) -> Result<Cow<'a, Path>> {
    let Some(address) = remote::address_of(path)? else { return Ok(Cow::Borrowed(path)) };
    let filter = args.redis.open(&address, args.open.key()?.as_ref())?;
    let file = folder.join("pulled.ib");
    // The one before is open, or merged: its name is free to be taken.
    remote::pull(&filter, &address, &file)?;
    Ok(Cow::Owned(file))
}

/// Adds the keys to a filter on Redis, or makes it of them.
fn merge_on_redis(args: &Args, address: &Address, merged: &Filter) -> Result<()> {
    let client = args.redis.connect(address.server())?;
    match RedisFilter::open_keyed(&client, address.name(), args.open.key()?.as_ref()) {
        Ok(filter) => {
            ensure!(
                merged.normalization() == filter.normalization(),
                problem(
                    format!(
                        "cannot merge into {address}: its keys have the normalization \"{}\", the \
                         others \"{}\"",
                        filter.normalization(),
                        merged.normalization()
                    ),
                    "build one of them again with the normalization of the other"
                )
            );
            remote::merge(&filter, address, merged)
        }
        Err(inbloom_redis::Error::Missing { .. }) => {
            remote::push(&client, address, merged).map(drop)
        }
        Err(error) => Err(error).with_context(|| address.to_string()),
    }
}

/// Keys that were written in different ways do not belong into one filter: a query would find those
/// of one way only.
fn check_normalization(here: &Filter, first: &Path, there: &Filter, second: &Path) -> Result<()> {
    let (left, right) = (here.normalization(), there.normalization());
    if left != right {
        let (first, second) = (remote::shown(first), remote::shown(second));
        bail!(problem(
            format!(
                "cannot merge {first} and {second}: their keys have different normalizations, \
                 {left:?} and {right:?}"
            ),
            "build one of them again with the normalization of the other"
        ));
    }
    let (left, right) = (here.key_encoding(), there.key_encoding());
    if left != right {
        let (first, second) = (first.display(), second.display());
        bail!(problem(
            format!(
                "cannot merge {first} and {second}: their keys have different encodings, {left:?} \
                 and {right:?}"
            ),
            "build one of them again with the encoding of the other"
        ));
    }
    Ok(())
}

/// Says which two files it was.
fn name(error: Error, first: &Path, second: &Path) -> anyhow::Error {
    let (first, second) = (remote::shown(first), remote::shown(second));
    match error {
        Error::Mismatch { field, left, right } => anyhow!(problem(
            format!(
                "cannot merge {first} and {second}: they differ in {field}, {left} and {right}"
            ),
            "build both with the same --kind, -n, -p, --hash-seed and --key-file"
        )),
        other => anyhow::Error::new(other).context(format!("cannot merge {second} into {first}")),
    }
}

fn summarize(merged: &Filter, args: &Args) {
    let plan = merged.plan();
    let estimate = merged.estimated_items();
    let items = estimate.items.round() as u64;
    let about = if estimate.error > 0.0 { "about " } else { "" };
    // What one that grows was planned for at the start says nothing.
    let is_fixed = !plan.kind().can_grow();
    let keys = match is_fixed && filter_file::has_target(merged) && !plan.kind().is_exact() {
        true => {
            format!("{} of {} planned keys", numbers::exact(items), numbers::exact(plan.items()))
        }
        false => numbers::keys(items),
    };
    let fill = match is_fixed {
        true => format!(", {} {}", plan.kind().labels().in_use, numbers::share(merged.fill())),
        false => String::new(),
    };
    output::say(format_args!(
        "{} merged: {about}{keys}{fill}; {}, {}, rate {} (target {}); saved as {}",
        numbers::counted(args.filters.len() as u64, "filter"),
        plan.kind(),
        numbers::bytes(merged.bytes()),
        numbers::rate(merged.rate()),
        numbers::rate(plan.rate()),
        remote::shown(&args.output),
    ));
    if filter_file::exceeds_promise(merged) {
        output::warn(&problem(
            format!(
                "the rate is above the target, which was planned for {}",
                numbers::keys(plan.items())
            ),
            "build the filters again with a larger -n",
        ));
    }
    if let Some(limit) = merged.auto_clear().filter(|limit| merged.fill() > *limit) {
        output::warn(&problem(
            format!(
                "the filter is above its auto-clear limit of {}: the next insert empties it",
                numbers::share(limit)
            ),
            "build the filters again with a larger -n, or a higher --auto-clear",
        ));
    }
}
