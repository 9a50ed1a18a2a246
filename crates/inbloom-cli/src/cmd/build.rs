//! `inbloom build`: a filter from the lines of files.
//!
//! A filter has to know how many keys are coming before the first one is inserted. Where `-n` does
//! not tell, files are read twice, first to count their lines. A pipe cannot be, so the digests of
//! its keys are kept (16 bytes each, whatever the keys' length) until the last one has come. Kinds
//! whose size does not depend on it need neither. A static kind is built from all its keys at once,
//! and what does not fit into memory is built in parts, see `out_of_core.rs`.
//!
//! All cores split and hash lines; one inserts them, in order, so that the same input gives the
//! same file to the byte, and the number of new keys does not depend on chance.

mod keeper;
mod out_of_core;
mod overlay;
mod unfinished;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use inbloom::interop::{Container, Format};
use inbloom::{Digest, Filter, Hasher, Kind, Plan, Span};
use inbloom_redis::{Address, RedisFilter};

use crate::blocks::{InOrder, Job};
use crate::filter_file::{self, HashArgs, container, format_parser};
use crate::input::{self, Input};
use crate::keys::{Digests, GIVEN, InputArgs, Keys, NormalizeArgs};
use crate::lock::{Lock, WaitArgs};
use crate::normalize::Normalization;
use crate::output::{Problem, SummaryArgs, problem};
use crate::overfull::{self, Filling, Overfull};
use crate::progress::{Beside, Progress};
use crate::remote::{self, RedisArgs};
use crate::sizing::{Sizing, kind_parser, kinds_that};
use crate::{count, numbers, output};
use inbloom_server::units;
use out_of_core::{Built, Resources};
use unfinished::{Output, Unfinished};

/// Build a filter from keys, one per line
#[derive(clap::Args, Clone)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// File to write, replaced when the new filter is complete; or an address, redis://host/NAME,
    /// that is not in use
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Kind of the filter; for a bitmap, lines are decimal integers
    #[arg(long, default_value_t = Kind::default(), value_parser = kind_parser())]
    kind: Kind,

    /// Build a filter for another program, in its format and with the size that it would choose
    #[arg(long, value_name = "FORMAT", value_parser = format_parser(), conflicts_with_all = NOT_FOREIGN)]
    format: Option<Format>,

    /// Variant of the --format: mitz32, v1, json, gob, gzip; may be given more than once
    #[arg(long, value_name = "V", requires = "format", value_delimiter = ',')]
    variant: Vec<String>,

    /// Read Parquet files, and take the values of this column as keys
    #[arg(long, value_name = "NAME", requires = "files")]
    #[arg(conflicts_with_all = ["fields", "csv", "csv_field", "json_field", "header", "plain", "crlf"])]
    column: Option<String>,

    /// Note to keep in the file, shown by 'inbloom info'
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,

    /// Let the filter empty itself when more than this share of its bits is set: 0.8
    #[arg(long, value_name = "SHARE", value_parser = units::parse_share)]
    auto_clear: Option<f64>,

    #[command(flatten)]
    normalize: NormalizeArgs,

    /// What to do when more keys come than -n [default: stop]
    #[arg(long, value_name = "WHAT")]
    overfull: Option<Overfull>,

    #[command(flatten)]
    summary: SummaryArgs,

    #[command(flatten)]
    wait: WaitArgs,

    #[command(flatten)]
    hash: HashArgs,

    #[command(flatten)]
    overlay: overlay::OverlayArgs,

    // These last: their headings hold for all options that follow.
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    sizing: Sizing,

    #[command(flatten)]
    resources: Resources,

    #[command(flatten)]
    redis: RedisArgs,

    /// Whether the output goes to Redis.
    #[arg(skip)]
    is_temporary: bool,
}

/// Options that do not apply to a filter of another program, because its file cannot record them or
/// its program decides.
const NOT_FOREIGN: [&str; 24] = [
    "kind",
    "note",
    "auto_clear",
    "normalize",
    "key_file",
    "base",
    "add",
    "remove",
    "never_match",
    "overlay",
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
];

const AFTER_HELP: &str = "\
Every line is a key, byte for byte. Empty lines are keys, and without --crlf a carriage return is
part of its line. Compressed input (gzip, zstd, xz, bzip2) is recognized and decompressed. Of a
folder, the files in it are read by name, without hidden files and without folders.

Without -n the lines are counted first: files are read twice, and of a pipe 16 bytes per key are
kept. Without -p the rate is 0.01. A scalable filter, and a window of the last N keys, need no
number of lines. A ribbon filter takes the fewest bits and is built once. Its keys are kept in 5.2
bytes each, in memory while they fit, then in temporary files.

More different keys than -n would raise the rate above its target. 'build' then stops: it counts
the remaining lines, reports how many came, and writes nothing. With --overfull grow (kinds blocked
and classic) the filter grows past -n and keeps its rate, also when 'add' adds more later. With
--overfull continue all keys go in, the rate rises, and a warning is printed.

A blocked filter is built in parts if --memory, --tmp or --resume is given, if it is larger than
memory, or if a pipe has more keys than memory can keep. Without -n it is then planned for the keys
that are different. Other kinds are built in parts with --shards N. That writes N files, each for a
range of hashes, and 'check', 'info' and 'measure' read them together by the name given with -o. One
shard has to fit into half of the memory.

The filter records its normalization, and 'add', 'check' and 'dedup' apply it again:
  lower  ASCII letters become lowercase; other characters stay
  trim   white space at both ends is removed
  url    as in RFC 3986: lowercase scheme and host, no default port, no fragment, no dot segments,
         escapes only where needed

Counting and cuckoo filters count how often a key is inserted: a cuckoo filter up to 8 times, a
counting filter up to 7 (15 with --width 4, 255 with --width 8). A counter at its maximum stays, and
its keys cannot be removed any more. A line is inserted only if the filter does not report it yet,
so duplicates count once. A key that was a false positive at that moment has no entry of its own:
do not remove it later.

In a window of time, all keys count as seen now, in one generation. Without -n every generation has
room for all of them; with -n the whole window has room for that many.

--base FILTER writes a ribbon filter with an overlay of added and excluded keys. The output is one
file that is queried as a whole, and it may replace the base. Keys are removed first, then added: a
key in both lists is a member. An added key takes several times the memory of a key in the base. If
more than about 2% are added, build the filter again. The overlay takes a tenth of the rate, which a
base that was built with --overlay leaves to it.

The filter never matches the keys of --never-match. Each of them that would match is excluded, in 16
bytes. This comes last, so a member in the list is excluded too. Keys that are added later may cause
new false positives: pass --never-match every time.

--format builds the file that another program would write for the same keys: guava, spark, go
(bits-and-blooms, willf), dcso, redisbloom, parquet or datasketches. --key-encoding says which bytes
are hashed: utf8 for strings, i64le for a Java long. Such a file records neither the encoding nor a
normalization; inbloom's own format records both.

--column takes the values of a Parquet column as keys: integers in decimal, text and bytes as they
are, bytes of a fixed length in hexadecimal. NULL is not a key.

Examples:
  inbloom build -o seen.ib urls.txt
  inbloom build -o seen.ib -p 1e-4 --note 'crawl of May' urls-*.txt.gz
  inbloom build -o seen.ib --normalize trim,url urls.txt
  inbloom build -o hosts.ib --csv-field host export.csv
  inbloom build -o users.ib --json-field user.id events.jsonl
  inbloom build -o users.ib --column user.id part-*.parquet
  sort-by-date log | inbloom build -o seen.ib -n 10M
  inbloom build -o seen.ib --bytes 64MiB urls.txt
  seq 0 2 1000000 | inbloom build -o even.ib --kind bitmap --universe 10M
  inbloom build -o blocked.ib --kind ribbon -p 1e-4 urls.txt
  zcat big/*.gz | inbloom build -o big.ib --kind ribbon -p 1e-4 --memory 1G --tmp /data
  zcat big/*.gz | inbloom build -o big.ib --memory 1G
  inbloom build -o big.ib --kind classic --shards 64 --memory 1G big/*.gz
  inbloom build -o list.ib --kind ribbon -p 1e-4 --overlay --never-match top-sites.txt list.txt
  inbloom build -o list.ib --base list.ib --add new.txt --remove gone.txt
  inbloom build -o recent.ib --kind window --window 100000 log.txt
  inbloom build -o members.ib --hash-seed 1 members.txt
  inbloom build -o users.bloom --format guava -n 1M -p 0.01 --key-encoding i64le ids.txt
  inbloom build -o pwned.ib -d : -f 1 --key-encoding hex pwned-passwords-sha1.txt
  inbloom build -o redis://localhost/seen -p 1e-4 urls.txt

Exit status:
  0  the filter was written
  2  an error; the output file is as it was before, each shard for itself";

pub fn run(args: &Args) -> Result<ExitCode> {
    match remote::address_of(&args.output)? {
        Some(address) => build_on_redis(args, &address),
        None => build_file(args),
    }
}

/// Builds a filter in a temporary file, and pushes that.
fn build_on_redis(args: &Args, address: &Address) -> Result<ExitCode> {
    ensure!(
        args.kind == inbloom_redis::KIND,
        problem("a filter on Redis is of kind blocked", "leave --kind out, or build a file")
    );
    let resources = &args.resources;
    ensure!(
        resources.shards_given().is_none() && !resources.is_resumed(),
        problem(
            "--shards and --resume only work for files",
            "build a file, then push it with 'inbloom push'"
        )
    );
    ensure!(
        args.overfull != Some(Overfull::Grow) && args.auto_clear.is_none(),
        problem(
            "a filter on Redis has a fixed size and does not empty itself",
            "leave --overfull grow and --auto-clear out"
        )
    );
    let client = args.redis.connect(address.server())?;
    // Known before hours of reading.
    match RedisFilter::open_keyed(&client, address.name(), args.hash.key.key()?.as_ref()) {
        Err(inbloom_redis::Error::Missing { .. }) => {}
        Ok(_) => bail!(problem(
            format!("{address} already exists"),
            "add keys to it with 'inbloom add', delete it with 'inbloom delete', or choose another \
             name"
        )),
        Err(error) => return Err(error).with_context(|| address.to_string()),
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let output = folder.path().join("built.ib");
    let code = build_file(&Args { output: output.clone(), is_temporary: true, ..args.clone() })?;
    if output.exists() {
        let filter = args.hash.key.open(&output)?;
        remote::push(&client, address, &filter)?;
        args.summary.say(format_args!("pushed to {address}"));
    }
    Ok(code)
}

fn build_file(args: &Args) -> Result<ExitCode> {
    if let Some(base) = &args.overlay.base {
        return overlay::update(args, base);
    }
    let container = args.format.map(|format| container(format, &args.variant)).transpose()?;
    // The kind and the hash do not depend on the size.
    let foreign = container.map(|container| container.plan(1000, DEFAULT_RATE)).transpose()?;
    let kind = foreign.map_or(args.kind, |(plan, _)| plan.kind());
    let args = &Args { kind, ..args.clone() };
    let promise = overlay::promise(args)?;
    let asked = args.sizing;
    let args = &overlay::planned(args, promise);
    check_resources(args)?;
    let overfull = decide_overfull(args)?;
    let output = Output::new(&args.output, args.resources.shards);
    output.check()?;
    let _lock = Lock::take(&args.output, args.wait)?;
    let folder = args.resources.folder(&output);
    if Unfinished::is_there(&folder) && !args.resources.is_resumed() {
        bail!(problem(
            format!("{} holds an unfinished build of this output", folder.display()),
            "continue it with --resume; to begin again, remove that folder and the files beside \
             the output that end in .partial"
        ));
    }
    let hasher = match foreign {
        Some((_, hasher)) => args.hash.foreign_hasher(hasher)?,
        None => args.hash.hasher(args.kind)?,
    };
    let inputs =
        args.column_values(input::in_folders(args.input.inputs(), &output.all_files())?)?;
    let resources = &args.resources;
    let in_parts =
        args.kind.is_static() || resources.given().or(resources.shards_given()).is_some();
    let mut builder = Builder {
        args,
        asked,
        container,
        overfull,
        hasher,
        inputs,
        output,
        in_parts,
        read: 0,
        new: 0,
        missing: 0,
    };
    builder.check_inputs()?;
    // Refused before anything is read, if options of fields do not go together.
    builder.keys()?;
    let (filter, written) = match builder.build()? {
        Built::Filter(filter) => (*filter, None),
        Built::File(path, unfinished) => {
            (filter_file::open(&path, hasher.key())?, Some((path, unfinished)))
        }
        Built::Shards(unfinished) => {
            let shards = filter_file::open_all(&args.output, hasher.key())?;
            unfinished.remove()?;
            builder.new = shards.inserted();
            builder.summarize(&shards);
            return Ok(ExitCode::SUCCESS);
        }
        Built::Stopped(signal) => return Ok(ExitCode::from(128 + signal)),
    };
    if builder.in_parts {
        builder.new = filter.inserted();
    }
    let filter = overlay::finish(args, filter, builder.keys()?, promise)?;
    match written {
        None => filter_file::save(&filter, &args.output)?,
        Some((base, unfinished)) => {
            // Until it is saved a kill leaves what it can be made from again.
            if args.overlay.is_wanted() {
                filter_file::save(&filter, &args.output)?;
            }
            unfinished.remove()?;
            if args.overlay.is_wanted() {
                fs::remove_file(&base)
                    .with_context(|| format!("cannot remove {}", base.display()))?;
            }
        }
    }
    builder.summarize(&filter);
    Ok(ExitCode::SUCCESS)
}

/// The rate of a filter for another program without -p: the default of our own filters.
const DEFAULT_RATE: f64 = 0.01;

/// Decides what happens past -n. A filter that is built in parts has no growing part.
fn decide_overfull(args: &Args) -> Result<Overfull> {
    let clears_itself = args.auto_clear.is_some();
    let (asked, growth) = (args.overfull, args.sizing.growth);
    let overfull = Overfull::decide(asked, Overfull::Stop, args.kind, growth, clears_itself)?;
    let in_parts = args.resources.given().or(args.resources.shards_given());
    match in_parts {
        Some(option) if overfull == Overfull::Grow => bail!(problem(
            format!(
                "--overfull grow and {option} cannot be combined, since only a filter built in \
                 memory grows"
            ),
            format!(
                "leave {option} out, or leave --overfull and -n out to have the keys counted first"
            )
        )),
        _ => Ok(overfull),
    }
}

fn no_auto_clear() -> Problem {
    let what =
        "--auto-clear drops the keys that came first, and a build in parts changes their order";
    problem(what, "leave --auto-clear out")
}

/// Refuses options that a kind cannot follow.
fn check_resources(args: &Args) -> Result<()> {
    let (kind, resources) = (args.kind, &args.resources);
    if let Some(option) = resources.shards_given() {
        ensure!(
            !kind.is_static(),
            problem(
                format!(
                    "{option} cannot be combined with --kind {kind}, which has its shards in one \
                     file"
                ),
                format!("leave {option} out")
            )
        );
        ensure!(
            kind.can_shard(),
            problem(
                format!("{option} divides keys by their hashes, and kind {kind} does not hash"),
                format!("leave {option} out")
            )
        );
        ensure!(
            !kind.forgets(),
            problem(
                format!(
                    "{option} changes the order of keys, and kind {kind} depends on that order"
                ),
                format!("leave {option} out")
            )
        );
        ensure!(args.auto_clear.is_none(), no_auto_clear());
        return Ok(());
    }
    if resources.given().is_some() && args.auto_clear.is_some() {
        bail!(no_auto_clear());
    }
    match resources.given() {
        Some(option) if !kind.can_build_in_parts() => bail!(problem(
            format!(
                "{option} only works for a filter that is built in parts: kinds {}, and other \
                 kinds in shards",
                kinds_that(Kind::can_build_in_parts)
            ),
            format!("pass --shards N, or leave {option} out")
        )),
        _ => Ok(()),
    }
}

impl Args {
    /// The inputs, or with --column its values in them.
    fn column_values(&self, inputs: Vec<Input>) -> Result<Vec<Input>> {
        let Some(name) = &self.column else { return Ok(inputs) };
        let column = |input| match input {
            Input::File(path) => {
                let (name, terminator) = (name.clone(), self.input.terminator());
                Ok(Input::Column { path, name, terminator })
            }
            _ => {
                bail!(problem("--column reads Parquet files, not standard input", "name the files"))
            }
        };
        inputs.into_iter().map(column).collect()
    }

    /// Sets the note, normalization and key encoding of a filter.
    fn describe(&self, filter: &mut Filter) -> Result<()> {
        filter.set_auto_clear(self.auto_clear)?;
        filter.set_note(self.note.as_deref().unwrap_or_default())?;
        let normalization = self.input.normalization(&self.normalize);
        filter.set_normalization(&normalization.to_string())?;
        filter.set_key_encoding(self.input.key_encoding())?;
        Ok(())
    }
}

struct Builder<'a> {
    args: &'a Args,
    /// The given size and rate. An overlay takes its share of the rate from `args`.
    asked: Sizing,
    /// The format of another program to write, if any.
    container: Option<Container>,
    overfull: Overfull,
    hasher: Hasher,
    inputs: Vec<Input>,
    output: Output,
    /// Whether it is always built in parts.
    in_parts: bool,
    /// The number of keys, and of those that were new.
    read: u64,
    new: u64,
    /// Lines that have no key.
    missing: u64,
}

impl Builder<'_> {
    /// Refuses an output that is also an input, so that a typing error does not replace the keys by
    /// their filter.
    fn check_inputs(&self) -> Result<()> {
        let files = self.output.files();
        let outputs: Vec<PathBuf> =
            files.iter().filter_map(|file| fs::canonicalize(file).ok()).collect();
        let same = |input: &&Input| match input {
            Input::File(path) | Input::Column { path, .. } => {
                fs::canonicalize(path).is_ok_and(|path| outputs.contains(&path))
            }
            Input::Stdin => false,
        };
        match self.inputs.iter().find(same) {
            Some(input) => bail!(problem(
                format!("{} is both input and output", input.shown()),
                "choose another name for -o"
            )),
            None => Ok(()),
        }
    }

    fn build(&mut self) -> Result<Built> {
        if self.in_parts {
            self.check_parts()?;
            return out_of_core::build(self);
        }
        if self.size_is_known() {
            return self.build_planned(self.plan(&self.args.sizing)?);
        }
        self.check_sizing()?;
        if self.inputs.iter().all(Input::is_regular_file) {
            let sizing = self.sizing_for(self.count_lines()?);
            return self.build_planned(self.plan(&sizing)?);
        }
        if self.may_be_in_parts() {
            // In memory, until that is too much.
            return out_of_core::build(self);
        }
        let digests = self.digests()?;
        Ok(Built::Filter(Box::new(self.build_from_digests(&digests)?)))
    }

    /// Returns whether it may be built in parts without an option that requests it.
    fn may_be_in_parts(&self) -> bool {
        let grows = self.overfull == Overfull::Grow;
        let kind = self.args.kind;
        let in_parts = kind.can_build_in_parts() && !kind.is_static();
        in_parts && self.args.auto_clear.is_none() && !grows
    }

    fn plan(&self, sizing: &Sizing) -> Result<Plan> {
        if let (Some(container), Some(items)) = (self.container, sizing.items) {
            let (plan, _) = container.plan(items, sizing.rate.unwrap_or(DEFAULT_RATE))?;
            return Ok(plan);
        }
        if self.args.is_temporary {
            return Ok(remote::plan(sizing)?);
        }
        Ok(sizing.plan_for(self.args.kind, self.overfull)?)
    }

    /// Returns the number of different keys at which a filter of this plan is full. A plan for
    /// counted keys has no limit, because a file may have grown since.
    fn limit(&self, plan: &Plan) -> u64 {
        match self.overfull {
            Overfull::Stop if self.size_is_known() => overfull::limit_of(plan),
            _ => u64::MAX,
        }
    }

    /// Returns the error for too many keys, after all were read.
    fn too_many(&self, plan: &Plan) -> Problem {
        let (read, items) = (self.read, plan.items());
        if read <= items {
            // Unlucky: a cuckoo filter, or one of several shards, has no room for all of them.
            let larger = match self.args.sizing.bytes {
                Some(_) => "a larger --bytes".to_string(),
                None => format!("-n {}", items.saturating_add(items / 10 + 1)),
            };
            return problem(
                format!(
                    "{} came for a filter planned for {}, which has no room for all of them; \
                     nothing was written",
                    numbers::keys(read),
                    numbers::exact(items),
                ),
                format!("pass {larger}, or choose another --kind"),
            );
        }
        let remedy = match self.args.sizing.bytes {
            Some(_) => format!("pass a larger --bytes, or -n {read} instead"),
            // Nothing is counted first for a scalable filter.
            None if plan.kind().can_grow() => format!("pass -n {read}"),
            None => format!("pass -n {read}, or leave -n out to have the keys counted first"),
        };
        let others = match self.args.kind {
            kind if kind.can_grow() => "leave --growth out",
            kind if kind.can_outgrow() && !self.in_parts => "pass --overfull grow or continue",
            _ => "pass --overfull continue",
        };
        problem(
            format!(
                "{} came for a filter planned for {}, and its rate would rise above the target of \
                 {}; nothing was written",
                numbers::keys(read),
                numbers::exact(items),
                numbers::rate(plan.rate()),
            ),
            format!("{remedy}; or {others}"),
        )
    }

    /// Refuses before reading what would fail after the last line.
    fn check_parts(&self) -> Result<()> {
        let plan = self.check_sizing()?;
        let mut like = match self.args.kind.is_static() {
            true => Filter::build(plan, self.hasher, &[])?,
            false => {
                let small = Plan::builder(self.args.kind).items(1).build()?;
                small.for_shard(0, self.args.resources.shards.unwrap_or(1))?;
                Filter::with_hasher(small, self.hasher)?
            }
        };
        self.args.describe(&mut like)
    }

    fn build_planned(&mut self, plan: Plan) -> Result<Built> {
        let free = self.args.resources.free().unwrap_or(u64::MAX);
        if self.may_be_in_parts() && plan.bytes() > free {
            output::say(format_args!(
                "building in parts: the filter takes {}, and {} of memory are free",
                numbers::bytes(plan.bytes()),
                numbers::bytes(free),
            ));
            self.in_parts = true;
            return out_of_core::build(self);
        }
        Ok(Built::Filter(Box::new(self.build_from_lines(plan)?)))
    }

    /// Returns the options that a continued build must have in common with its start, by name;
    /// `None` for one that was not given.
    fn asked(&self) -> BTreeMap<&'static str, String> {
        let args = self.args;
        let normalization = args.input.normalization(&args.normalize);
        // That is an option of its own.
        let normalization = Normalization { crlf: false, ..normalization };
        let inputs: Vec<String> = self.inputs.iter().map(Input::version).collect();
        let given = |is_given: bool| if is_given { GIVEN.to_owned() } else { String::new() };
        let shards = args.resources.shards.map_or(String::new(), |shards| shards.to_string());
        let asked = [
            ("-o", self.output.path().display().to_string()),
            (unfinished::NUMBER_OF_SHARDS, shards),
            ("--kind", args.kind.to_string()),
            ("--note", args.note.clone().unwrap_or_default()),
            ("--overlay", given(args.overlay.overlay)),
            ("--never-match", given(!args.overlay.never_match.is_empty())),
            ("--normalize", normalization.to_string()),
            (
                unfinished::HASH,
                format!("{:016x}", self.hasher.digest("inbloom build --resume").place),
            ),
            (unfinished::INPUT, inputs.join(", ")),
        ];
        asked.into_iter().chain(self.asked.options()).chain(args.input.options()).collect()
    }

    /// Checks the plan before hours of reading. A size per key is tried with many keys, because the
    /// smallest filter is too large for one.
    fn check_sizing(&self) -> Result<Plan> {
        let sizing = &self.args.sizing;
        let per_key = sizing.bits_per_key.is_some() || sizing.tier.is_some();
        let keys = if per_key { 1_000_000 } else { 1 };
        self.plan(&self.sizing_for(keys))
    }

    /// Returns whether the size is known before the keys are counted: for a bitmap, a filter that
    /// grows, a window of keys, and for memory and rate together.
    fn size_is_known(&self) -> bool {
        let sizing = &self.args.sizing;
        let from_memory = sizing.bytes.is_some() && sizing.rate.is_some();
        let kind = self.args.kind;
        let last_keys = matches!(sizing.window, Some(Span::Items(_)));
        let from_kind = kind.is_exact() || kind.can_grow() || kind.forgets() && last_keys;
        from_kind || sizing.items.is_some() || from_memory
    }

    /// Returns the sizing for this number of keys, which all come in one step of a window.
    fn sizing_for(&self, keys: u64) -> Sizing {
        let sizing = self.args.sizing;
        let steps = if self.args.kind.forgets() { sizing.steps() } else { 1 };
        Sizing { items: Some(keys.saturating_mul(steps)), ..sizing }
    }

    fn build_from_lines(&mut self, plan: Plan) -> Result<Filter> {
        let mut filter = self.filter(plan)?;
        let keys = self.keys()?.for_inserts(&filter);
        // Lines that were counted are all of them.
        let overfull = if self.size_is_known() { self.overfull } else { Overfull::Continue };
        let (mut filling, mut new) = (Filling::new(overfull, &filter), Vec::new());
        // Where too many come the rest is counted: so that it can be said how many there are.
        self.for_each_job("building", keys, |job| {
            Ok(filling.insert(&mut filter, &job.product, &mut new)?)
        })?;
        ensure!(!filling.is_over(), self.too_many(&plan));
        Ok(filter)
    }

    /// Returns the digests of all lines.
    fn digests(&mut self) -> Result<Vec<Digest>> {
        let mut digests = Vec::new();
        self.for_each_job("reading", self.keys()?, |job| {
            digests.extend_from_slice(&job.product);
            Ok(0)
        })?;
        Ok(digests)
    }

    fn build_from_digests(&mut self, digests: &[Digest]) -> Result<Filter> {
        let per_key = self.hasher.digests_per_key();
        self.read = (digests.len() / per_key) as u64;
        let plan = self.plan(&self.sizing_for(self.read))?;
        let mut filter = self.filter(plan)?;
        let mut new = Vec::new();
        for some in digests.chunks(4096) {
            filter_file::insert_set(&mut filter, some, &mut new)?;
            self.new += filter_file::count_new(&new);
        }
        Ok(filter)
    }

    fn keys(&self) -> Result<Keys> {
        let normalization = self.args.input.normalization(&self.args.normalize);
        self.args.input.keys(self.hasher, normalization)
    }

    /// Hashes all lines, and calls `take` with the digests of one block after the other. `take`
    /// returns how many were new.
    fn for_each_job(
        &mut self,
        what: &'static str,
        keys: Keys,
        mut take: impl FnMut(&Job<Digests>) -> Result<u64>,
    ) -> Result<()> {
        let input = &self.args.input;
        let reader = input.reader(&self.inputs);
        let mut progress = Progress::new(what, &self.inputs, &reader, Beside::Nothing);
        let digests = move |block: &_, digests: &mut _| keys.digests(block, digests);
        let mut jobs = InOrder::new(reader, input.threads(), digests);
        while let Some(job) = jobs.next() {
            let job = job.map_err(|failure| failure.error)?;
            self.new += take(job)?;
            self.read += job.product.keys() as u64;
            self.missing += job.product.missing().len() as u64;
            progress.step(job.block.len());
        }
        Ok(())
    }

    /// An empty filter with everything but its keys.
    fn filter(&self, plan: Plan) -> Result<Filter> {
        let mut filter = Filter::with_hasher(plan, self.hasher)?;
        filter.set_container(self.container)?;
        self.args.describe(&mut filter)?;
        filter_file::advance(&mut filter)?;
        Ok(if self.overfull == Overfull::Grow { filter.into_growing()? } else { filter })
    }

    fn count_lines(&self) -> Result<u64> {
        let input = &self.args.input;
        let reader = input.reader(&self.inputs);
        let mut progress = Progress::new("counting", &self.inputs, &reader, Beside::Nothing);
        let (encoding, records) = (input.encoding(), input.records());
        count::count(&self.inputs, encoding, records, input.threads(), &mut progress)
    }

    fn summarize(&self, made: &Filter) {
        let plan = made.plan();
        let saved_as = match (&self.output, self.output.files().as_slice()) {
            (Output::Shards(..), [first, .., last]) => {
                format!("{} to {}", first.display(), last.display())
            }
            (Output::Shards(..), [one]) => one.display().to_string(),
            _ if self.args.is_temporary => "a temporary file".to_owned(),
            // As it was named: it may be a link.
            _ => self.args.output.display().to_string(),
        };
        let from = match self.inputs.len() as u64 {
            inputs @ 2.. => {
                let are_files = self.inputs.iter().all(Input::is_file);
                let name = if are_files { "file" } else { "input" };
                format!(" from {}", numbers::counted(inputs, name))
            }
            _ => String::new(),
        };
        self.args.summary.say(format_args!(
            "{} read{from}{}, {} new; {}, {}, rate {} (target {}); saved as {saved_as}",
            numbers::keys(self.read),
            numbers::without_key(self.missing),
            numbers::exact(self.new),
            plan.kind(),
            numbers::bytes(made.bytes()),
            numbers::rate(made.rate()),
            numbers::rate(plan.rate()),
        ));
        if self.args.auto_clear.is_some() && made.inserted() < self.new {
            self.args.summary.say(format_args!(
                "the filter emptied itself (--auto-clear) and holds only the last {}",
                numbers::keys(made.inserted()),
            ));
        } else if let Some(Span::Items(last)) = plan.span() {
            if self.new > last {
                self.args.summary.say(format_args!(
                    "the window holds the last {} and some earlier ones",
                    numbers::keys(last),
                ));
            }
        } else if let Some(warning) = self.warning(made) {
            output::warn(&warning);
        }
    }

    /// Returns the warning for a filter with more keys than planned.
    fn warning(&self, made: &Filter) -> Option<Problem> {
        let plan = made.plan();
        let (planned, steps) = (plan.items(), u64::from(plan.generations().max(1)));
        match (plan.kind().keeps_rate(), plan.span()) {
            (true, _) | (_, Some(Span::Items(_))) => None,
            _ if made.rate() <= plan.rate() && steps == 1 => None,
            _ => (self.new > planned.div_ceil(steps)).then(|| {
                let each = if steps == 1 { "" } else { ", not all of them in one step" };
                // The fuller it is, the more keys it takes for others: then the bits know better,
                // until they are all set.
                let holds = overfull::holds(self.new, made.rate(), made.estimated_items());
                let keys = holds.unwrap_or(self.read).min(self.read);
                problem(
                    format!(
                        "the filter was planned for {}{each} and got more, so its rate is \
                                 above the target",
                        numbers::keys(planned)
                    ),
                    format!("build it again with -n {}", keys.saturating_mul(steps)),
                )
            }),
        }
    }
}
