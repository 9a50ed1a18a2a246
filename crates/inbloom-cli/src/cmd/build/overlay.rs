//! Lists that live on after they were built: changes to a ribbon filter, kept beside it in a file.
//!
//! `build --base` takes a filter and writes another one, which may replace it: first keys are
//! removed, then others added, and last those of `--allow` denied. So a key that is removed and
//! added is in, and one that is allowed is not, whatever else was said of it. `--allow` and
//! `--living` are for the first build too.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use inbloom::internals::compose::overlay::BASE_SHARE;
use inbloom::{Digest, Filter};

use super::Args;
use crate::edit::{self, Tally};
use crate::filter_file::{self, Changed};
use crate::keys::{InputArgs, Keys};
use crate::sizing::Sizing;
use crate::{numbers, output};

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Lists that change (kind ribbon)")]
pub struct OverlayArgs {
    /// Change this filter instead of building one from keys: write it with what is added and
    /// removed beside it
    #[arg(long, value_name = "FILTER")]
    #[arg(conflicts_with_all = DECIDED)]
    pub base: Option<PathBuf>,

    /// Add the keys of this file to the base; may be given more than once
    #[arg(long, value_name = "FILE")]
    add: Vec<PathBuf>,

    /// Remove the keys of this file from the base; may be given more than once
    #[arg(long, value_name = "FILE")]
    remove: Vec<PathBuf>,

    /// Never claim the keys of this file, not even those that are in the list; may be given more
    /// than once
    #[arg(long, value_name = "FILE")]
    allow: Vec<PathBuf>,

    /// Leave a tenth of the rate to keys that are added later with --base
    #[arg(long, conflicts_with_all = ["base", "bytes", "bits_per_key", "tier", "probes"])]
    living: bool,
}

impl OverlayArgs {
    /// Whether something is to be done to a filter that was just built.
    pub fn is_wanted(&self) -> bool {
        self.living || !self.allow.is_empty()
    }
}

/// Options that are decided when a base is there. (Of a whole group all would be named in the error,
/// not the one that was given.)
const DECIDED: [&str; 22] = [
    "files",
    "kind",
    "auto_clear",
    "normalize",
    "hash_seed",
    "items",
    "rate",
    "bytes",
    "bits_per_key",
    "probes",
    "tier",
    "universe",
    "window",
    "generations",
    "width",
    "growth",
    "tightening",
    "memory_to_work_with",
    "tmp",
    "shards",
    "resume",
    "overfull",
];

/// The share of the base that additions may have before it is better to build anew: they take
/// several times the memory of a key in the base, and a query of their own.
const MOST_ADDED: f64 = 0.02;

/// The rate to promise for what is built now together with what is added later, with `--living`.
/// What a kind cannot do is refused here, before anything is read.
pub fn promise(args: &Args) -> Result<Option<f64>> {
    let OverlayArgs { add, remove, allow, living, .. } = &args.living;
    // Said here because clap does not: it asks for no option that those given rule out.
    ensure!(
        add.is_empty() && remove.is_empty(),
        "--add and --remove change a filter that is there: name it with --base"
    );
    let option = if *living { "--living" } else { "--allow" };
    if !*living && allow.is_empty() {
        return Ok(None);
    }
    ensure!(
        args.kind.is_static(),
        "{option} is for kind ribbon, which is built once; {} takes changes as it is, with \
         'inbloom add': leave {option} out, or build with --kind ribbon",
        args.kind,
    );
    check_files(args)?;
    // The rate of one key is that of all: it was given, or is the library's.
    let plan = || Sizing { items: Some(1), ..args.sizing }.plan(args.kind);
    Ok(if *living { Some(plan()?.rate()) } else { None })
}

/// The options of a base that is to be changed, for nine tenths of the rate that is promised.
pub fn planned(args: &Args, promise: Option<f64>) -> Args {
    let rate = promise.map(|promise| promise * BASE_SHARE).or(args.sizing.rate);
    Args { sizing: Sizing { rate, ..args.sizing }, ..args.clone() }
}

/// Does what is still to be done to a filter that was just built, from keys made in this way.
pub fn finish(args: &Args, filter: Filter, keys: Keys, promise: Option<f64>) -> Result<Filter> {
    let allow = &args.living.allow;
    if promise.is_none() && allow.is_empty() {
        return Ok(filter);
    }
    let promise = promise.unwrap_or(filter.plan().rate());
    let mut filter = filter.into_overlay(promise)?;
    let denied = deny(&mut filter, &args.input, allow, &keys)?;
    if !allow.is_empty() {
        output::say(allowed(denied));
    }
    Ok(filter)
}

/// Writes the base with its changes.
pub fn update(args: &Args, base: &Path) -> Result<ExitCode> {
    let living = &args.living;
    let files = [&living.remove, &living.add, &living.allow];
    ensure!(
        files.iter().any(|files| !files.is_empty()),
        "nothing to change in {}: give files of keys with --add, --remove or --allow",
        base.display(),
    );
    check_files(args)?;
    let mut output = Changed::new(&args.output, args.wait)?;
    // A damaged filter that was saved again would have good checksums.
    filter_file::verify(base)?;
    let filter = args.hash.key.open(base)?;
    let plan = *filter.plan();
    ensure!(
        plan.kind().is_static(),
        "{} is of kind {}, which takes changes as it is: use 'inbloom add', and 'inbloom remove' \
         where the kind can",
        base.display(),
        plan.kind(),
    );
    let keys = args.input.keys_for(&filter)?;
    let mut filter = filter.into_overlay(plan.rate())?;
    let gone = &living.remove;
    let removed = change(&mut filter, "removing", &args.input, gone, &keys, |filter, keys| {
        Ok(filter.remove_digests(keys)?)
    })?;
    let mut new = Vec::new();
    let added = change(&mut filter, "adding", &args.input, &living.add, &keys, |filter, keys| {
        filter.insert_digests(keys, &mut new)?;
        Ok(filter_file::count_new(&new))
    })?;
    let denied = deny(&mut filter, &args.input, &living.allow, &keys)?;
    if let Some(note) = &args.note {
        filter.set_note(note)?;
    }
    output.save(&filter)?;

    let told = |tally: Tally, verb: &str| {
        let (changed, read) = (numbers::exact(tally.changed), numbers::keys(tally.read));
        format!("{changed} {verb} of {read}{}", tally.missing())
    };
    output::say(format_args!(
        "{}, {}; {}, {}, rate {} promised, {} now; saved as {}",
        told(removed, "removed"),
        told(added, "added"),
        plan.kind(),
        numbers::bytes(filter.bytes()),
        numbers::rate(plan.rate()),
        numbers::rate(filter.rate()),
        args.output.display(),
    ));
    if !living.allow.is_empty() {
        output::say(allowed(denied));
    }
    if let Some(advice) = advice(&filter) {
        output::say(advice);
    }
    Ok(ExitCode::SUCCESS)
}

fn allowed(denied: Tally) -> String {
    let so = match denied.changed {
        0 => "",
        1 => ", and is denied by name",
        _ => ", and are denied by name",
    };
    let (claimed, read) = (numbers::exact(denied.changed), numbers::keys(denied.read));
    format!("{claimed} of {read} of --allow would be claimed{so}")
}

/// What to say of a list that has changed much.
fn advice(filter: &Filter) -> Option<String> {
    let (base, added) = (filter.occupied(), filter.as_overlay()?.added());
    if filter.rate() > filter.plan().rate() {
        return Some(format!(
            "warning: with {} added the rate is above the promise: build the list anew from all \
             keys, and with --living, which leaves room for more",
            numbers::keys(added),
        ));
    }
    let share = added as f64 / base.max(1) as f64;
    (share > MOST_ADDED).then(|| {
        format!(
            "{} added are {} of the {} that the list was built from: build it anew from all of \
             them, which takes less memory",
            numbers::keys(added),
            numbers::share(share),
            numbers::exact(base),
        )
    })
}

/// Denies the keys of these files. Most of them were never in, so that none counts as one that has
/// left.
fn deny(filter: &mut Filter, input: &InputArgs, files: &[PathBuf], keys: &Keys) -> Result<Tally> {
    change(filter, "denying", input, files, keys, |filter, keys| Ok(filter.deny_digests(keys)?))
}

/// Hands the digests of all records of these files to `take`; of none, if there are no files.
fn change(
    filter: &mut Filter,
    what: &'static str,
    input: &InputArgs,
    files: &[PathBuf],
    keys: &Keys,
    take: impl FnMut(&mut Filter, &[Digest]) -> Result<u64>,
) -> Result<Tally> {
    if files.is_empty() {
        return Ok(Tally::default());
    }
    let mut input = input.clone();
    input.files = files.to_vec();
    edit::by_lines(filter, what, &input, keys.clone(), take)
}

/// A slip of the hand must not replace keys by a filter, nor leave a list of them unread; and what
/// cannot be read is said before hours are spent on a build.
fn check_files(args: &Args) -> Result<()> {
    let OverlayArgs { base, add, remove, allow, .. } = &args.living;
    let output = fs::canonicalize(&args.output).ok();
    let (lists, is_stdin) =
        (add.iter().chain(remove).chain(allow), |path: &&PathBuf| path.as_os_str() == "-");
    for path in lists.clone().filter(|path| !is_stdin(path)) {
        let failed = || format!("cannot open {}", path.display());
        let metadata = fs::metadata(path).with_context(failed)?;
        ensure!(!metadata.is_dir(), "{} is a directory: name the files in it", path.display());
        // Only files: who writes to a pipe would be told that nobody reads it any more.
        if metadata.is_file() {
            File::open(path).with_context(failed)?;
        }
        if output.is_some() && fs::canonicalize(path).ok() == output {
            bail!("{} is input and output: give -o another name", path.display());
        }
    }
    let keys = &args.input.files;
    let by_keys = base.is_none() && (keys.is_empty() || keys.iter().any(|path| is_stdin(&path)));
    let by_lists = lists.filter(is_stdin).count();
    ensure!(
        by_lists == 0 || by_lists + usize::from(by_keys) == 1,
        "standard input can be read once only: give all lists but one as files"
    );
    Ok(())
}
