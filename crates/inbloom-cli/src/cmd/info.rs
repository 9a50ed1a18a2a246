//! `inbloom info`: one screen about a filter's file, or about all its shards together.

mod on_redis;

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use inbloom::{Filter, Grown, Overlay, Plan, Slice};
use inbloom_server::calculator::particulars;
use serde_json::{Map, Value, json};

use crate::filter_file::OpenArgs;
use crate::output::problem;
use crate::remote::{self, RedisArgs};
use crate::{columns, filter_file, histogram, numbers, output};

/// Show a filter's parameters, its fill, and its current rate beside the target rate
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The filter's file, or the name of its shards: seen.ib for seen.000-of-016.ib and so on; or its
    /// address, redis://host/NAME. redis://host lists all filters there
    filter: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Read the whole file, or those of all shards, and check all checksums
    #[arg(long)]
    verify: bool,

    /// Plot how evenly the array is filled, which shows a bad hash
    #[arg(long)]
    histogram: bool,

    #[command(flatten)]
    open: OpenArgs,

    // Last: its heading holds for all options that follow.
    #[command(flatten)]
    redis: RedisArgs,
}

const AFTER_HELP: &str = "\
A Bloom filter that holds all its planned keys has about half of its bits set. How full it is shows
in 'estimated keys' beside 'planned keys'.

--histogram reads the whole filter. A good hash fills all slices alike, within chance. If slices are
more than 5 deviations off, some keys were not hashed, or not as the filter records.

If there is no seen.ib, its shards are shown together: seen.000-of-016.ib and so on. Counts and sizes
are sums, and the rate is the mean. Note, auto-clear and the details of the kind are those of the
first shard. A histogram is of one file.

Examples:
  inbloom info seen.ib
  inbloom info --histogram seen.ib                   were the keys hashed well?
  inbloom info --verify seen.ib                      is the file undamaged?
  inbloom info --json seen.ib | jq .current_rate
  inbloom info hashlookup-full.bloom                 a filter of another program
  inbloom info redis://localhost/seen
  inbloom info redis://localhost                     all filters there
  inbloom info part.parquet                          the filters of all columns and row groups
  inbloom info dump.rdb#seen                         the filter of a key in an RDB file

Exit status:
  0  the file is a filter, and undamaged as far as it was checked
  2  it is not a filter, or cannot be read";

pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(server) = remote::server_of(&args.filter)? {
        return on_redis::all(args, &server);
    }
    if let Some(address) = remote::address_of(&args.filter)? {
        return on_redis::one(args, &address);
    }
    if args.open.allows("parquet") && columns::is_parquet(&args.filter) {
        ensure!(
            !args.histogram && !args.verify,
            problem(
                "a Parquet file has one filter for each column and row group, and --histogram and \
                 --verify read a single one",
                format!("name it: '{}#COLUMN/0'", args.filter.display())
            )
        );
        return columns::info(&args.filter, args.json);
    }
    let filter = args.open.open_all(&args.filter)?;
    let files = filter_file::files_of(&args.filter);
    let shards = (files != [args.filter.as_path()]).then_some(files.len());
    ensure!(
        shards.is_none() || !args.histogram,
        problem(
            format!(
                "--histogram reads one array, and {} has {} shards",
                args.filter.display(),
                files.len()
            ),
            format!("name the file of one shard, such as {}", files[0].display())
        )
    );
    if args.verify {
        files.iter().try_for_each(|file| args.open.verify(file))?;
    }
    let file_bytes = files.iter().map(|file| length(file)).sum::<Result<u64>>()?;
    let slices = args.histogram.then(|| filter.profile(histogram::COLUMNS));
    let text = match args.json {
        true => {
            let mut fields = as_json(&filter, shards, file_bytes, args.verify);
            if let Some(slices) = &slices {
                add_histogram(&mut fields, slices);
            }
            format!("{fields:#}\n")
        }
        false => {
            let mut text = as_text(&filter, shards.map(|_| &files[..]), file_bytes, args.verify);
            if let Some(slices) = &slices {
                text.push_str(
                    "\nshare of cells in use, from the start of the array to its end:\n\n",
                );
                text.push_str(&histogram::plot(slices));
                text.push('\n');
                text.push_str(&wrapped("expected", &histogram::expectation(&filter, slices)));
                text.push_str(&wrapped("verdict", &histogram::verdict(&filter, slices)));
            }
            text
        }
    };
    output::print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The bytes of a file, also if the path is that of a filter in it.
fn length(path: &Path) -> Result<u64> {
    let file = inbloom::file::split_part(path).map_or(path, |(file, _)| file);
    Ok(fs::metadata(file).with_context(|| format!("cannot read {file:?}"))?.len())
}

/// `shards` are the files of a filter that is in shards.
fn as_text(filter: &Filter, shards: Option<&[PathBuf]>, file_bytes: u64, verified: bool) -> String {
    let plan = filter.plan();
    let kind = plan.kind();
    let estimate = filter.estimated_items();
    let (exact, rate, share) = (numbers::exact, numbers::rate, numbers::share);
    let mut text = String::new();
    let mut row = |label: &str, value: &str| text.push_str(&wrapped(label, value));

    row("kind", kind.name());
    if let Some(format) = kind.format() {
        let container = filter.container().map(|container| container.to_string());
        let container = container.unwrap_or("inbloom".to_string());
        row("format", &format!("{container}; the hash is that of {}", format.title()));
    }
    if filter_file::has_target(filter) {
        row("planned keys", &planned_keys(plan));
        row("target rate", &rate(plan.rate()));
    } else {
        let keys = exact(plan.items());
        row("planned keys", &format!("not recorded; {keys} keys set half of the bits"));
        row("target rate", &format!("not recorded; {} at that number", rate(plan.rate())));
    }
    if let Some(of) = kind.labels().bits {
        row("bits", &format!("{}{of}", exact(plan.bits())));
    }
    row("memory", &memory(filter));
    if kind.has_probes() {
        row("probes", &format!("{} per key", plan.probes()));
    }
    row("cache lines", &format!("{} per query", plan.cache_lines()));
    row("hash", &filter_file::shown(filter.hasher()));
    if let Some((shard, shards)) = plan.shard() {
        row("shard", &format!("{} of {}", exact(u64::from(shard) + 1), exact(u64::from(shards))));
    }
    if let Some(files) = shards {
        let file = files[0].file_name().unwrap_or_default().display();
        let file = output::printable(&file.to_string()).into_owned();
        row("shards", &format!("{}, in files such as {file}", exact(files.len() as u64)));
    }

    row("new keys", &exact(filter.inserted()));
    let (items, error) = (estimate.items.round() as u64, estimate.error.ceil() as u64);
    row("estimated keys", &format!("{} +- {}", exact(items), exact(error)));
    let in_use = format!("{} ({})", exact(filter.occupied()), share(filter.fill()));
    match kind.can_grow() {
        // The share of what it was planned for at the start says nothing.
        true => row(kind.labels().in_use, &exact(filter.occupied())),
        false => row(kind.labels().in_use, &in_use),
    }
    filter.details().iter().for_each(|(name, value)| row(name, value));
    row("current rate", &format!("{}, {}", rate(filter.rate()), verdict(filter)));

    let auto_clear = filter.auto_clear().map(|limit| format!("above {} of bits set", share(limit)));
    row("auto-clear", &auto_clear.unwrap_or("never".to_string()));
    row("normalization", &printable(filter.normalization()));
    if kind.is_foreign() || !filter.key_encoding().is_empty() {
        let encoding = match filter.key_encoding() {
            "" => "not recorded; pass --key-encoding".to_string(),
            name => printable(name).into_owned(),
        };
        row("key encoding", &encoding);
    }
    row("note", &printable(filter.note()));
    let in_files =
        shards.map(|files| format!(" in {}", numbers::counted(files.len() as u64, "file")));
    row("file size", &format!("{} bytes{}", exact(file_bytes), in_files.unwrap_or_default()));
    let checked = match (filter.container(), verified) {
        (Some(_), _) => "none in this format",
        (None, true) => "all good",
        (None, false) => "header good; --verify checks the rest",
    };
    row("checksums", checked);
    text
}

/// A row of the screen, its value on several lines if it is longer than one.
fn wrapped(label: &str, value: &str) -> String {
    const WIDTH: usize = 80 - 16;
    let mut text = format!("{label:<15}");
    let mut used = 0;
    for word in value.split(' ') {
        if used > 0 && used + 1 + word.chars().count() > WIDTH {
            text.push_str(&format!("\n{:15}", ""));
            used = 0;
        }
        text.push(' ');
        text.push_str(word);
        used += 1 + word.chars().count();
    }
    text.push('\n');
    text
}

fn planned_keys(plan: &Plan) -> String {
    let keys = numbers::exact(plan.items());
    match (plan.kind().can_grow(), plan.growth()) {
        (true, 0) => format!("{keys}, and no more"),
        (true, growth) => format!("{keys} at first; grows by {growth} when full"),
        (false, _) => keys,
    }
}

/// What it takes now, and where it may take more what it was planned to take.
fn memory(filter: &Filter) -> String {
    let plan = filter.plan();
    let (now, planned) = (numbers::exact(filter.bytes()), numbers::exact(planned_bytes(filter)));
    let per_key = |bits: f64| format!("{bits:.2} bits per");
    let kind = plan.kind();
    match kind.can_grow() || kind.is_static() {
        true => {
            let keys = filter.estimated_items().items.max(1.0);
            format!("{now} bytes, {} key it holds", per_key(filter.bytes() as f64 * 8.0 / keys))
        }
        _ if filter.as_grown().is_some() => {
            let keys = filter.estimated_items().items.max(1.0);
            let per_key = per_key(filter.bytes() as f64 * 8.0 / keys);
            format!("{now} bytes, {planned} of them planned, {per_key} key it holds")
        }
        _ if kind.forgets() => {
            let planned_bits = per_key(plan.bits_per_key());
            format!("{now} bytes of {planned}, {planned_bits} planned key")
        }
        _ => format!("{now} bytes, {} planned key", per_key(plan.bits_per_key())),
    }
}

/// The bytes that were planned. Of shards the sum: each is rounded up for itself.
fn planned_bytes(filter: &Filter) -> u64 {
    filter.shards().iter().map(|shard| shard.plan().bytes()).sum()
}

fn verdict(filter: &Filter) -> String {
    if is_full(filter) {
        "FULL: it may refuse more keys".to_string()
    } else if !filter_file::has_target(filter) {
        "no target is recorded".to_string()
    } else if filter.rate() <= filter.plan().rate() {
        "within the target".to_string()
    } else if !filter_file::exceeds_promise(filter) {
        "at the target, within chance".to_string()
    } else {
        format!("ABOVE the target{}", filter.plan().kind().labels().above_target)
    }
}

/// Whether some shard of it holds all that is sure to fit.
fn is_full(filter: &Filter) -> bool {
    filter.shards().iter().any(|shard| shard.plan().is_full(shard.occupied()))
}

fn as_json(filter: &Filter, shards: Option<usize>, file_bytes: u64, verified: bool) -> Value {
    // Texts have no sum: those of the first shard stand for all.
    let (plan, first) = (filter.plan(), &filter.shards()[0]);
    let estimate = filter.estimated_items();
    let details: Map<String, Value> =
        first.details().into_iter().map(|(name, value)| (name.to_string(), value.into())).collect();
    let mut fields = json!({
        "kind": plan.kind().to_string(),
        "planned_items": plan.items(),
        "target_rate": plan.rate(),
        "bits": plan.bits(),
        "bits_per_key": plan.bits_per_key(),
        "bytes": filter.bytes(),
        "planned_bytes": planned_bytes(filter),
        "probes": plan.probes(),
        "cache_lines": plan.cache_lines(),
        "hash": first.hasher().name(),
        "hash_seed": first.hasher().seed(),
        "shards": shards,
        "shard": plan.shard().map(|(shard, shards)| json!({ "index": shard, "of": shards })),
        "inserted": filter.inserted(),
        "estimated_items": estimate.items,
        "estimated_items_error": estimate.error,
        "occupied": filter.occupied(),
        "fill": filter.fill(),
        "current_rate": filter.rate(),
        "full": is_full(filter),
        "details": details,
        "added": first.as_overlay().map(Overlay::added),
        "excluded": first.as_overlay().map(Overlay::excluded),
        "growing_part": first.as_grown().map(Grown::beyond),
        "auto_clear": filter.auto_clear(),
        "format": filter.container().map(|container| container.to_string()),
        "key_encoding": Some(filter.key_encoding()).filter(|name| !name.is_empty()),
        "normalization": filter.normalization(),
        "note": filter.note(),
        "file_bytes": file_bytes,
        "verified": verified,
    });
    for (name, value) in particulars(plan) {
        fields[name] = value;
    }
    fields
}

/// The slices as lists, one number for each: what is, and what was to be expected.
fn add_histogram(fields: &mut Value, slices: &[Slice]) {
    let list = |value: fn(&Slice) -> f64| json!(slices.iter().map(value).collect::<Vec<_>>());
    fields["histogram"] = list(|slice| slice.fill);
    fields["histogram_expected"] = list(|slice| slice.expected);
    fields["histogram_deviation"] = list(|slice| slice.deviation);
    let outliers = slices.iter().filter(|slice| slice.stands_out()).count();
    fields["histogram_outliers"] = json!(outliers);
}

/// Text from a file, which may be anybody's.
fn printable(text: &str) -> Cow<'_, str> {
    if text.is_empty() { Cow::Borrowed("none") } else { output::printable(text) }
}
