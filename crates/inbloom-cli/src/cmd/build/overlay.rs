//! Lists that live on after they were built: changes to a ribbon filter, kept beside it in a file.
//!
//! `build --base` takes a filter and writes another one, which may replace it: first keys are
//! removed, then others added, and last those of `--never-match` excluded. So a key that is removed and
//! added is present, and a key of `--never-match` is absent in any case. `--never-match` and
//! `--overlay` work for the first build too.

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
use crate::output::{Problem, problem};
use crate::sizing::Sizing;
use crate::{numbers, output};

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Overlay (kind ribbon)")]
pub struct OverlayArgs {
    /// Write this filter with an overlay of added and removed keys, instead of building one
    #[arg(long, value_name = "FILTER")]
    #[arg(conflicts_with_all = DECIDED)]
    pub base: Option<PathBuf>,

    /// Add the keys of this file to the base; may be given more than once
    #[arg(long, value_name = "FILE")]
    add: Vec<PathBuf>,

    /// Remove the keys of this file from the base; may be given more than once
    #[arg(long, value_name = "FILE")]
    remove: Vec<PathBuf>,

    /// Never match the keys of this file, even if they are members; may be given more than once
    #[arg(long, value_name = "FILE")]
    pub never_match: Vec<PathBuf>,

    /// Leave a tenth of the rate for an overlay of keys that are added later with --base
    #[arg(long, conflicts_with_all = ["base", "bytes", "bits_per_key", "tier", "probes"])]
    pub overlay: bool,
}

impl OverlayArgs {
    /// Returns whether a new filter needs changes.
    pub fn is_wanted(&self) -> bool {
        self.overlay || !self.never_match.is_empty()
    }
}

/// Options that the base determines. (They are no group, because the error would name all of a
/// group instead of the given one.)
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

/// The largest share of added keys before it is better to build again: an added key takes several
/// times the memory of a key in the base, and a query of its own.
const MOST_ADDED: f64 = 0.02;

/// Returns the target rate of base and overlay together, with `--overlay`. Refuses kinds that
/// cannot have one, before anything is read.
pub fn promise(args: &Args) -> Result<Option<f64>> {
    let OverlayArgs { add, remove, never_match, overlay, .. } = &args.overlay;
    // Said here because clap does not: it asks for no option that those given rule out.
    ensure!(
        add.is_empty() && remove.is_empty(),
        problem("--add and --remove need a filter to change", "name it with --base")
    );
    let option = if *overlay { "--overlay" } else { "--never-match" };
    if !*overlay && never_match.is_empty() {
        return Ok(None);
    }
    ensure!(
        args.kind.is_static(),
        problem(
            format!("{option} only works with kind ribbon, not {}", args.kind),
            format!(
                "leave {option} out and change the filter with 'inbloom add', or pass --kind ribbon"
            )
        )
    );
    check_files(args)?;
    // The rate of one key is that of all: it was given, or is the library's.
    let plan = || Sizing { items: Some(1), ..args.sizing }.plan(args.kind);
    Ok(if *overlay { Some(plan()?.rate()) } else { None })
}

/// Returns the options of a base that will be changed: its rate is nine tenths of the target.
pub fn planned(args: &Args, promise: Option<f64>) -> Args {
    let rate = promise.map(|promise| promise * BASE_SHARE).or(args.sizing.rate);
    Args { sizing: Sizing { rate, ..args.sizing }, ..args.clone() }
}

/// Makes the remaining changes to a new filter, with keys that are made in this way.
pub fn finish(args: &Args, filter: Filter, keys: Keys, promise: Option<f64>) -> Result<Filter> {
    let never_match = &args.overlay.never_match;
    if promise.is_none() && never_match.is_empty() {
        return Ok(filter);
    }
    let promise = promise.unwrap_or(filter.plan().rate());
    let mut filter = filter.into_overlay(promise)?;
    let excluded = exclude(&mut filter, &args.input, never_match, &keys)?;
    if !never_match.is_empty() {
        args.summary.say(matched(excluded));
    }
    Ok(filter)
}

/// Writes the base with its changes.
pub fn update(args: &Args, base: &Path) -> Result<ExitCode> {
    let overlay = &args.overlay;
    let files = [&overlay.remove, &overlay.add, &overlay.never_match];
    ensure!(
        files.iter().any(|files| !files.is_empty()),
        problem(
            format!("no changes to make in {}", base.display()),
            "name files of keys with --add, --remove or --never-match"
        )
    );
    check_files(args)?;
    let mut output = Changed::new(&args.output, args.wait)?;
    // A damaged filter that was saved again would have good checksums.
    filter_file::verify(base)?;
    let filter = args.hash.key.open(base)?;
    let plan = *filter.plan();
    ensure!(
        plan.kind().is_static(),
        problem(
            format!("{} is of kind {}, which needs no overlay", base.display(), plan.kind()),
            "change it with 'inbloom add', and 'inbloom remove' where the kind can"
        )
    );
    let keys = args.input.keys_for(&filter)?;
    let mut filter = filter.into_overlay(plan.rate())?;
    let gone = &overlay.remove;
    let removed = change(&mut filter, "removing", &args.input, gone, &keys, |filter, keys| {
        Ok(filter.remove_digests(keys)?)
    })?;
    let mut new = Vec::new();
    let added = change(&mut filter, "adding", &args.input, &overlay.add, &keys, |filter, keys| {
        filter.insert_digests(keys, &mut new)?;
        Ok(filter_file::count_new(&new))
    })?;
    let excluded = exclude(&mut filter, &args.input, &overlay.never_match, &keys)?;
    if let Some(note) = &args.note {
        filter.set_note(note)?;
    }
    output.save(&filter)?;

    let told = |tally: Tally, verb: &str| {
        let (changed, read) = (numbers::exact(tally.changed), numbers::keys(tally.read));
        format!("{changed} {verb} of {read}{}", tally.missing())
    };
    args.summary.say(format_args!(
        "{}, {}; {}, {}, rate {} (target {}); saved as {}",
        told(removed, "removed"),
        told(added, "added"),
        plan.kind(),
        numbers::bytes(filter.bytes()),
        numbers::rate(filter.rate()),
        numbers::rate(plan.rate()),
        args.output.display(),
    ));
    if !overlay.never_match.is_empty() {
        args.summary.say(matched(excluded));
    }
    if let Some(warning) = warning(&filter) {
        output::warn(&warning);
    }
    Ok(ExitCode::SUCCESS)
}

fn matched(excluded: Tally) -> String {
    let so = match excluded.changed {
        0 => "",
        1 => ", and is now excluded",
        _ => ", and are now excluded",
    };
    let (matched, read) = (numbers::exact(excluded.changed), numbers::keys(excluded.read));
    format!("{matched} of {read} in --never-match matched{so}")
}

/// Warns of an overlay with many keys.
fn warning(filter: &Filter) -> Option<Problem> {
    let (base, added) = (filter.occupied(), filter.as_overlay()?.added());
    if filter.rate() > filter.plan().rate() {
        return Some(problem(
            format!("the rate is above its target with {} added", numbers::keys(added)),
            "build the filter again from all its keys, with --overlay to leave room for more",
        ));
    }
    let share = added as f64 / base.max(1) as f64;
    (share > MOST_ADDED).then(|| {
        problem(
            format!(
                "the overlay has {}, {} of the {} in the base",
                numbers::keys(added),
                numbers::share(share),
                numbers::exact(base),
            ),
            "build the filter again from all its keys, which takes less memory",
        )
    })
}

/// Excludes the keys of these files. Most were never inserted, so none counts as removed.
fn exclude(
    filter: &mut Filter,
    input: &InputArgs,
    files: &[PathBuf],
    keys: &Keys,
) -> Result<Tally> {
    change(
        filter,
        "excluding",
        input,
        files,
        keys,
        |filter, keys| Ok(filter.exclude_digests(keys)?),
    )
}

/// Hands the digests of all records of these files to `take`; of none, if there are no files.
fn change(
    filter: &mut Filter,
    what: &'static str,
    input: &InputArgs,
    files: &[PathBuf],
    keys: &Keys,
    mut take: impl FnMut(&mut Filter, &[Digest]) -> Result<u64>,
) -> Result<Tally> {
    if files.is_empty() {
        return Ok(Tally::default());
    }
    let mut input = input.clone();
    input.files = files.to_vec();
    edit::by_lines(filter, what, &input, keys.clone(), |filter, digests| take(filter, digests))
}

/// Refuses lists that are also the output, lists that would be read twice, and lists that cannot be
/// read, before hours of building.
fn check_files(args: &Args) -> Result<()> {
    let OverlayArgs { base, add, remove, never_match, .. } = &args.overlay;
    let output = fs::canonicalize(&args.output).ok();
    let (lists, is_stdin) =
        (add.iter().chain(remove).chain(never_match), |path: &&PathBuf| path.as_os_str() == "-");
    for path in lists.clone().filter(|path| !is_stdin(path)) {
        let failed = || format!("cannot open {}", path.display());
        let metadata = fs::metadata(path).with_context(failed)?;
        ensure!(
            !metadata.is_dir(),
            problem(format!("{} is a directory", path.display()), "name the files in it")
        );
        // Only files: closing a pipe would signal its writer that the reader has ended.
        if metadata.is_file() {
            File::open(path).with_context(failed)?;
        }
        if output.is_some() && fs::canonicalize(path).ok() == output {
            bail!(problem(
                format!("{} is both input and output", path.display()),
                "choose another name for -o"
            ));
        }
    }
    let keys = &args.input.files;
    let by_keys = base.is_none() && (keys.is_empty() || keys.iter().any(|path| is_stdin(&path)));
    let by_lists = lists.filter(is_stdin).count();
    ensure!(
        by_lists == 0 || by_lists + usize::from(by_keys) == 1,
        problem("standard input can only be read once", "name files for all lists but one")
    );
    Ok(())
}
