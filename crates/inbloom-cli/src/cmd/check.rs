//! `inbloom check`: grep whose pattern is a filter, or several.

use std::io::Write;
use std::mem;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use inbloom::interop::KeyEncoding;
use inbloom::{Digest, Hasher};
use inbloom_redis::{Address, Found, PyreBloom};
use inbloom_server::units;
use serde_json::Value;

use crate::blocks::{BadRecord, Block, InOrder, Job};
use crate::columns::{self, Shown};
use crate::filter_file::OpenArgs;
use crate::input::{Encoding, Input};
use crate::keys::{self, Digests, InputArgs, Keys, Missing, is_hex_digest};
use crate::lookup::{self, Situation, Way};
use crate::normalize::Normalization;
use crate::output::{Problem, problem};
use crate::progress::{Beside, Progress};
use crate::remote::{self, PyreBloomArgs, Queried, RedisArgs};
use crate::{numbers, output};

/// Print the lines that are probably in a filter
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The filter's file, or the name of its shards: seen.ib for seen.000-of-016.ib and so on; or its
    /// address, redis://host/NAME
    #[arg(required_unless_present = "column")]
    filter: Option<PathBuf>,

    /// Query this filter too; may be given more than once. Lines are printed after the names of the
    /// filters that have them
    #[arg(short = 'F', long = "filter", value_name = "FILE")]
    more: Vec<PathBuf>,

    /// Print the Parquet files that can hold any of the keys in this column, each with the number of
    /// row groups
    #[arg(long, value_name = "NAME", conflicts_with_all = ["from", "key_file"])]
    column: Option<String>,

    #[command(flatten)]
    how: How,

    #[command(flatten)]
    open: OpenArgs,

    // These last: their headings hold for all options that follow.
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    redis: RedisArgs,

    #[command(flatten)]
    pyrebloom: PyreBloomArgs,
}

#[derive(clap::Args, Clone, Copy, Debug)]
struct How {
    /// Print the lines that are certainly not in any of the filters; absent lines that are false
    /// positives are left out
    #[arg(short = 'v', long)]
    invert_match: bool,

    /// Print only the number of selected lines, in total or with -H per input
    #[arg(short = 'c', long)]
    count: bool,

    /// Print nothing, and stop at the first selected line with exit status 0
    #[arg(short = 'q', long)]
    quiet: bool,

    /// Print the name of the input before each line
    #[arg(short = 'H', long)]
    with_filename: bool,

    /// Print the line's number before each line
    #[arg(short = 'n', long)]
    line_number: bool,

    /// Print a JSON object for each selected line: input, number, line, and which filters have it
    #[arg(long, conflicts_with = "count")]
    json: bool,

    /// Write every line at once, as soon as its result is known
    #[arg(long)]
    line_buffered: bool,

    /// Report on standard error how each filter is queried, and why
    #[arg(long)]
    verbose: bool,

    /// Assume that this much memory is free: for tests
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes, hide = true)]
    free_memory: Option<u64>,
}

const AFTER_HELP: &str = "\
Prints the lines that are probably in the filter. Some of them are false positives, at the rate that
'inbloom info' shows. A line that is not printed is certainly not in the filter, or a window has
dropped it. Lines get the filter's normalization ('build --normalize') and are printed unchanged.
-v leaves out absent lines that are false positives: about the filter's rate of them.

With -F, a line is selected if any of the filters has it, and printed as FILTER,FILTER:LINE.

--json prints {\"input\", \"number\", \"line\", \"found\", \"filters\"}. A line that is not UTF-8 is
printed as \"line_hex\". Results are printed while the input is slow, so 'tail -f' works.

If there is no seen.ib, its shards are queried as one filter: seen.000-of-016.ib and so on.

A ribbon filter may be larger than memory. Lines are then looked up in batches, or by one pass over
the filter if the input is a file of millions of lines. --verbose reports which.

A filter on Redis is queried in batches of lines. If Redis has lost a part of it, that is an error:
no line is reported absent by mistake. With --pyrebloom, addresses are of filters of that Python
module. Such a filter does not show a loss: it looks like a filter without keys.

--column queries the filters that Parquet files have for each row group. It prints the files that
can hold any of the keys, with -v those that cannot, with -c how many. A file without filters can
hold any key. Keys are written as the column's type has them; bytes of a fixed length also in
hexadecimal. A pattern with * in the last part of a path stands for all files that match.

Examples:
  inbloom check seen.ib new.txt            lines of new.txt that are probably in the filter
  inbloom check -v seen.ib < new.txt       lines that are certainly not in it
  inbloom check -c seen.ib a.txt b.txt.gz  how many lines of both files are in it
  inbloom check --csv -f 3 seen.ib log.csv records whose third field is in it
  inbloom check --json-field id seen.ib events.jsonl
  echo alice | inbloom check -q seen.ib && echo seen
  inbloom check redis://localhost/seen new.txt
  inbloom check --pyrebloom 100000,0.01 redis://localhost/seen new.txt
  inbloom check malware.ib -F adware.ib -F spam.ib hashes.txt
  find . -print0 | inbloom check -0 paths.ib | xargs -0 ls
  echo 4711 | inbloom check --column id -F 'data/*.parquet'
  inbloom check users.guava --key-encoding i64le ids.txt    a filter of another program

Exit status:
  0  at least one line was selected
  1  no line was selected
  2  an error; other inputs were still read, and with -q a selected line still gives 0";

pub fn run(args: &Args) -> Result<ExitCode> {
    let beside = [("--column", args.column.is_some()), ("--key-file", args.open.has_key())];
    args.pyrebloom.refuse_beside(&beside)?;
    if let Some(column) = &args.column {
        return check_column(column, args);
    }
    let inputs = args.input.inputs();
    refuse_parquet(args, args.filter.iter().chain(&args.more), &inputs)?;
    let search = Arc::new(Search::new(args)?);
    let reader = args.input.reader(&inputs);
    let beside = if args.how.prints_lines() { Beside::Lines } else { Beside::Nothing };
    let progress = Progress::new("checking", &inputs, &reader, beside);
    let worker = Arc::clone(&search);
    let look_up = move |block: &_, answer: &mut _| worker.look_up(block, answer);
    let mut jobs = InOrder::new(reader, args.input.threads(), look_up);
    let tally = Selected { selected: vec![0; inputs.len()], failed: vec![false; inputs.len()] };
    let mut printer = Printer { search: &search, tally, progress, has_header: false };
    let mut waiting = Waiting::default();
    while let Some(job) = jobs.next() {
        let job = match job {
            Ok(job) => job,
            // As grep does: a bad input is reported, and the others are still read.
            Err(failure) => {
                output::report(&failure.error);
                printer.tally.failed[failure.input] = true;
                continue;
            }
        };
        let Some(room) = search.room else {
            printer.print(job)?;
            if args.how.quiet && printer.tally.total() > 0 {
                return Ok(ExitCode::SUCCESS);
            }
            continue;
        };
        waiting.push(mem::take(job));
        if waiting.memory >= room {
            printer.print_swept(&mut waiting)?;
        }
    }
    printer.print_swept(&mut waiting)?;
    let Printer { tally, progress, .. } = printer;
    drop(progress);
    if args.how.count && !args.how.quiet {
        output::print(&tally.shown(&args.how, &inputs))?;
    }
    Ok(tally.exit_code())
}

impl Args {
    /// Opens a filter in files, and decides how it is asked for an input of so many bytes.
    fn open_files(&self, path: &Path, input: Option<u64>) -> Result<(Members, Way)> {
        self.pyrebloom.refuse()?;
        let mut filter = self.open.open_all_now(path)?;
        let situation = Situation::new(path, &filter, self.how.free_memory, input);
        let way = situation.way();
        if self.how.verbose {
            output::say(format_args!("{}: {situation}", path.display()));
        }
        lookup::prepare(&mut filter, way);
        Ok((Members::ByDigest(Queried::Local(Box::new(filter))), way))
    }

    fn open_on_redis(&self, address: &Address) -> Result<Members> {
        if let Some(size) = self.pyrebloom.pyrebloom {
            let (filter, rate) = (size.open(address, &self.redis)?, size.error);
            return Ok(Members::OfPyreBloom { filter, rate });
        }
        let filter = self.redis.open(address, self.open.key()?.as_ref())?;
        if self.how.verbose {
            let masters = numbers::counted(filter.client().masters() as u64, "master");
            output::say(format_args!("{address}: on Redis, {masters}: queried in batches"));
        }
        Ok(Members::ByDigest(Queried::Remote(Box::new(filter))))
    }
}

/// Asks the filters in Parquet files. If these are given by -F, all other names are files of keys.
fn check_column(column: &str, args: &Args) -> Result<ExitCode> {
    let (mut files, mut input) = (args.more.clone(), args.input.clone());
    match &args.filter {
        Some(first) if files.is_empty() => files.push(first.clone()),
        first => input.files.splice(..0, first.clone()).for_each(drop),
    }
    ensure!(
        !files.is_empty(),
        problem(format!("--column {column} needs Parquet files"), "name them: -F 'data/*.parquet'")
    );
    refuse_parquet(args, files.iter(), &input.inputs())?;
    let How { invert_match: inverted, count, quiet, json, .. } = args.how;
    columns::check(column, &files, &input, Shown { inverted, count, quiet, json })
}

/// Refuses Parquet files among the inputs where one is queried: the shell has made them of a pattern
/// behind -F, which takes one file.
fn refuse_parquet<'a>(
    args: &Args,
    filters: impl Iterator<Item = &'a PathBuf>,
    inputs: &[Input],
) -> Result<()> {
    let is_parquet = |input: &Input| match input {
        // A pipe would lose what is read of it.
        Input::File(path) => input.is_file() && columns::is_parquet(path),
        Input::Stdin | Input::Column { .. } => false,
    };
    let Some(input) = inputs.iter().find(|input| is_parquet(input)) else { return Ok(()) };
    let queries_any =
        args.column.is_some() || filters.into_iter().any(|path| columns::is_parquet(path));
    let quote =
        "quote a pattern of files to query, as in -F '*.parquet', or repeat -F for each file";
    let help = match &args.column {
        Some(_) => quote.to_owned(),
        None => format!("pass --column NAME, and {quote}"),
    };
    ensure!(
        args.input.encoding() == Encoding::Plain || !queries_any,
        problem(format!("{} is a Parquet file, not a list of keys", input.shown()), help)
    );
    Ok(())
}

/// What happens to blocks that are answered, in their order.
struct Printer<'a> {
    search: &'a Search,
    tally: Selected,
    progress: Progress,
    /// Whether a header was printed.
    has_header: bool,
}

impl Printer<'_> {
    fn print(&mut self, job: &mut Job<Answer>) -> Result<()> {
        let answer = &mut job.product;
        self.tally.selected[job.block.input] += answer.selected;
        if self.search.decorates() {
            self.search.write(&job.block, answer);
        } else if let Some(header) = job.block.header_line()
            && self.search.how.prints_lines()
            && !self.has_header
        {
            answer.text.splice(..0, header);
            self.has_header = true;
        }
        if self.search.how.line_buffered {
            answer.lines(self.search.terminator).try_for_each(output::print)?;
        } else if !answer.text.is_empty() {
            output::print(&answer.text)?;
        }
        self.progress.step(job.block.len());
        Ok(())
    }

    /// Answers all that wait, and prints them in the order in which they came.
    fn print_swept(&mut self, waiting: &mut Waiting) -> Result<()> {
        let mut jobs = mem::take(waiting).jobs;
        self.search.sweep(&mut jobs);
        for mut job in jobs {
            self.search.select(&job.block, &mut job.product);
            self.print(&mut job)?;
        }
        Ok(())
    }
}

/// Blocks that wait for a sweep over the filters that are larger than memory.
#[derive(Default)]
struct Waiting {
    jobs: Vec<Job<Answer>>,
    /// The bytes that they take, and that the sweep is going to.
    memory: u64,
}

impl Waiting {
    fn push(&mut self, job: Job<Answer>) {
        let each = lookup::beside_line(job.product.digests.len());
        self.memory += (job.block.memory() + job.block.len() * each) as u64;
        self.jobs.push(job);
    }
}

impl How {
    fn prints_lines(&self) -> bool {
        !self.quiet && !self.count
    }
}

/// How many lines of each input were selected, and whether it failed: what came before that counts.
struct Selected {
    selected: Vec<u64>,
    failed: Vec<bool>,
}

impl Selected {
    fn total(&self) -> u64 {
        self.selected.iter().sum()
    }

    fn shown(&self, how: &How, inputs: &[Input]) -> Vec<u8> {
        if !how.with_filename {
            return format!("{}\n", self.total()).into_bytes();
        }
        let mut text = Vec::new();
        for (index, input) in inputs.iter().enumerate() {
            let selected = self.selected[index];
            // As grep does, nothing is said of what could not be read at all.
            if selected > 0 || !self.failed[index] {
                text.extend_from_slice(&output::name_beside_data(input.name()));
                writeln!(text, ":{selected}").expect("a Vec takes all bytes");
            }
        }
        text
    }

    fn exit_code(&self) -> ExitCode {
        match (self.failed.contains(&true), self.total()) {
            (true, _) => ExitCode::from(2),
            (false, 0) => ExitCode::from(1),
            (false, _) => ExitCode::SUCCESS,
        }
    }
}

/// What is asked of every block.
struct Search {
    how: How,
    terminator: u8,
    missing: Missing,
    inputs: Vec<Input>,
    /// What stands before the lines of each.
    names: Vec<Vec<u8>>,
    filters: Vec<Pattern>,
    /// The bytes that blocks may take which wait for a sweep; None if no filter is swept.
    room: Option<u64>,
    /// The ways in which keys are hashed, each once.
    keys: Vec<Keys>,
    /// Whether a hint was given.
    hinted: AtomicBool,
}

/// One of the filters.
struct Pattern {
    filter: Members,
    /// As it was named on the command line, and what stands before its lines.
    name: String,
    shown: Vec<u8>,
    /// Which of the ways of hashing is its own.
    keys: usize,
    way: Way,
}

/// What knows whether a key is a member.
enum Members {
    ByDigest(Queried),
    /// Hashes the bytes of keys itself.
    OfPyreBloom {
        filter: PyreBloom,
        rate: f64,
    },
}

impl Members {
    fn rate(&self) -> f64 {
        match self {
            Members::ByDigest(filter) => filter.plan().rate(),
            Members::OfPyreBloom { rate, .. } => *rate,
        }
    }

    fn keys(&self, input: &InputArgs) -> Result<Keys> {
        match self {
            Members::ByDigest(filter) => filter.keys(input),
            Members::OfPyreBloom { .. } => {
                Ok(input.keys(Hasher::default(), Normalization::default())?.keeping_bytes())
            }
        }
    }

    /// Answers for the keys of a block, without the records that have none.
    fn contains(&self, keys: &Digests, found: &mut Vec<bool>) -> inbloom_redis::Result<()> {
        match self {
            Members::ByDigest(filter) => filter.contains_digests(keys, found),
            Members::OfPyreBloom { filter, .. } => {
                let mut answers = Vec::new();
                filter.contains_many(keys.bytes(), &mut answers)?;
                found.clear();
                found.extend(answers.iter().map(|answer| *answer == Found::Present));
                Ok(())
            }
        }
    }
}

impl Pattern {
    fn is_swept(&self) -> bool {
        matches!(self.way, Way::Sweep { .. })
    }

    /// Whether more were found than false positives explain, which are c or more among absent keys
    /// with less than this probability: e^-m m^c / c! * (c + 1) / (c + 1 - m), where m are expected
    /// (the tail of Poisson's distribution, bounded by a geometric series).
    fn has_more_than_chance(&self, found: &[bool]) -> bool {
        let count = found.iter().filter(|found| **found).count();
        let expected = self.filter.rate() * found.len() as f64;
        let beyond = count as f64 + 1.0 - expected;
        let term: f64 = (1..=count).map(|number| (expected / number as f64).ln()).sum();
        beyond > 0.0 && term - expected + ((count as f64 + 1.0) / beyond).ln() < 1e-4_f64.ln()
    }

    /// Returns whether all of these few were found, and the chance of that is at most the default
    /// false-positive rate. For a single line there is no stronger evidence.
    fn has_all(&self, found: &[bool]) -> bool {
        const UNLIKELY: f64 = 0.011;
        let chance = self.filter.rate().powi(found.len().min(1000) as i32);
        !found.is_empty() && !found.contains(&false) && chance <= UNLIKELY
    }
}

/// What is said of a block.
#[derive(Default)]
struct Answer {
    selected: u64,
    /// What the block prints, in one write, so that a slow input is answered at once.
    text: Vec<u8>,
    /// The digests of the keys, under each way of hashing.
    digests: Vec<Digests>,
    /// For each filter, an answer per record; one without a key is not found.
    found: Vec<Vec<bool>>,
    /// Whether each record is selected.
    selects: Vec<bool>,
}

impl Answer {
    fn lines(&self, terminator: u8) -> impl Iterator<Item = &[u8]> {
        self.text.split_inclusive(move |&byte| byte == terminator)
    }
}

impl Search {
    fn new(args: &Args) -> Result<Search> {
        ensure!(
            !(args.how.json && args.input.null),
            problem(
                "--json cannot be combined with -0, since newlines separate JSON objects",
                "leave one of them out"
            )
        );
        let inputs = args.input.inputs();
        let mut search = Search {
            how: args.how,
            terminator: args.input.terminator(),
            missing: args.input.missing(),
            names: inputs.iter().map(|input| output::name_beside_data(input.name())).collect(),
            inputs,
            filters: Vec::new(),
            room: None,
            keys: Vec::new(),
            hinted: AtomicBool::new(false),
        };
        // A check that stops at the first line, or prints each at once, waits for no sweep.
        let may_wait = !args.how.quiet && !args.how.line_buffered;
        let input = if may_wait { lookup::at_hand(&search.inputs) } else { None };
        for path in args.filter.iter().chain(&args.more) {
            let (filter, way) = match remote::address_of(path)? {
                Some(address) => (args.open_on_redis(&address)?, Way::InPlace),
                None => args.open_files(path, input)?,
            };
            if let Way::Sweep { room } = way {
                search.room = Some(room);
            }
            let keys = filter.keys(&args.input)?;
            let keys = keys.without_warning();
            let same = search.keys.iter().position(|other| other.same_digests(&keys));
            let keys = same.unwrap_or_else(|| {
                let keys = match search.keys.first() {
                    Some(first) => keys.warning_with(first),
                    None => keys,
                };
                search.keys.push(keys);
                search.keys.len() - 1
            });
            let name = remote::shown(path);
            let shown = output::name_beside_data(name.as_bytes());
            search.filters.push(Pattern { filter, name, shown, keys, way });
        }
        Ok(search)
    }

    fn look_up(&self, block: &Block, answer: &mut Answer) -> Result<(), BadRecord> {
        answer.digests.resize_with(self.keys.len(), Digests::default);
        answer.found.resize_with(self.filters.len(), Vec::new);
        for (keys, digests) in self.keys.iter().zip(&mut answer.digests) {
            keys.digests(block, digests)?;
        }
        for (pattern, found) in self.filters.iter().zip(&mut answer.found) {
            if !pattern.is_swept() {
                let digests = &answer.digests[pattern.keys];
                let asked = pattern.filter.contains(digests, found);
                asked.map_err(|error| BadRecord {
                    index: None,
                    problem: Problem::from(format!("{}: {error}", pattern.name)),
                })?;
                digests.spread(found, false);
            }
        }
        if let Some(name) = &block.begins {
            self.hint(name, block, answer);
        }
        if self.room.is_none() {
            self.select(block, answer);
        }
        Ok(())
    }

    /// Warns, once, where the lines of an input would be found if they were written otherwise: by
    /// the first block of it, if no more of its lines were found than by chance.
    fn hint(&self, name: &str, block: &Block, answer: &Answer) {
        // More than enough to tell.
        const ENOUGH: usize = 1000;
        let asked = || self.filters.iter().zip(&answer.found).filter(|(one, _)| !one.is_swept());
        let is_found = asked().any(|(pattern, found)| pattern.has_more_than_chance(found));
        if is_found || self.hinted.load(Ordering::Relaxed) {
            return;
        }
        let warn = |warning: Problem| {
            if !self.hinted.swap(true, Ordering::Relaxed) {
                output::warn(&warning);
            }
        };
        if self.keys[0].all_end_in_carriage_returns(block) {
            return warn(keys::carriage_returns(name));
        }
        let none_found = asked().all(|(_, found)| !found.contains(&true));
        for (pattern, _) in asked() {
            if let Some(encoding) = self.other_encoding(pattern, block, none_found) {
                warn(problem(
                    format!(
                        "{name}: {} probably has the lines in another encoding, {encoding}",
                        pattern.name
                    ),
                    format!("pass --key-encoding {encoding}"),
                ));
            }
        }
        for (pattern, _) in asked() {
            let keys = &self.keys[pattern.keys];
            let Members::ByDigest(filter) = &pattern.filter else { continue };
            if !keys.are_text() {
                continue;
            }
            let [mut lower, mut upper] = [Vec::new(), Vec::new()];
            let (mut all, mut count) = (true, 0);
            let looked = keys.each(block, |index, key| {
                let key = key.unwrap_or_default();
                all &= is_hex_digest(key);
                count = index + 1;
                if all && index < ENOUGH {
                    keys.hasher().append_digests(key.to_ascii_lowercase(), &mut lower);
                    keys.hasher().append_digests(key.to_ascii_uppercase(), &mut upper);
                }
                Ok(())
            });
            if !all || looked.is_err() {
                continue;
            }
            for (digests, case) in [(lower, "lowercase"), (upper, "uppercase")] {
                let mut found = Vec::new();
                if filter.contains_digests(&digests, &mut found).is_err() {
                    continue;
                }
                let (lines, them) =
                    if count == 1 { ("line is", "it") } else { ("lines are", "them") };
                let is_sure = pattern.has_more_than_chance(&found);
                if is_sure || none_found && pattern.has_all(&found) {
                    let has = if is_sure { "has" } else { "probably has" };
                    warn(problem(
                        format!(
                            "{name}: the {lines} hexadecimal digits, and {} {has} {them} in {case} \
                             only",
                            pattern.name
                        ),
                        "convert the lines with tr, or build the filter with --normalize lower",
                    ));
                }
            }
        }
    }

    /// Returns the encoding in which a filter of another program, which does not record it, has the
    /// first lines of a block.
    fn other_encoding(
        &self,
        pattern: &Pattern,
        block: &Block,
        none_found: bool,
    ) -> Option<KeyEncoding> {
        const ENOUGH: usize = 1000;
        let Members::ByDigest(Queried::Local(filter)) = &pattern.filter else { return None };
        let keys = &self.keys[pattern.keys];
        let is_open = filter.plan().kind().is_foreign() && filter.key_encoding().is_empty();
        if !is_open || !keys.are_text() {
            return None;
        }
        let fits = |encoding: &KeyEncoding| {
            let (mut digests, mut bytes, mut found) = (Vec::new(), Vec::new(), Vec::new());
            let mut all = true;
            let looked = keys.each(block, |index, key| {
                if all && index < ENOUGH {
                    all = encoding.encode(key.unwrap_or_default(), &mut bytes);
                    keys.hasher().append_digests(&bytes, &mut digests);
                }
                Ok(())
            });
            if !all || looked.is_err() {
                return false;
            }
            filter.contains_digests(&digests, &mut found);
            pattern.has_more_than_chance(&found) || none_found && pattern.has_all(&found)
        };
        KeyEncoding::ALL.iter().copied().filter(|one| *one != KeyEncoding::Utf8).find(fits)
    }

    /// Asks the filters that [`Search::look_up`] has not asked, for all of these blocks at once.
    fn sweep(&self, jobs: &mut [Job<Answer>]) {
        for keys in 0..self.keys.len() {
            let count = jobs.iter().map(|job| job.block.len()).sum();
            let mut digests: Vec<Digest> = Vec::with_capacity(count);
            for job in &mut *jobs {
                digests.append(&mut job.product.digests[keys]);
            }
            let swept = |pattern: &Pattern| pattern.keys == keys && pattern.is_swept();
            let filters = self.filters.iter().enumerate().filter(|(_, pattern)| swept(pattern));
            for (number, pattern) in filters {
                let mut found = Vec::new();
                let Members::ByDigest(Queried::Local(filter)) = &pattern.filter else {
                    unreachable!("only files are swept");
                };
                filter.sweep_digests(&digests, &mut found);
                let mut rest = found.as_slice();
                for job in &mut *jobs {
                    let of_keys = &job.product.digests[keys];
                    let count = job.block.len() - of_keys.missing().len();
                    let (of_job, later) = rest.split_at(count);
                    let mut found = of_job.to_vec();
                    of_keys.spread(&mut found, false);
                    job.product.found[number] = found;
                    rest = later;
                }
            }
        }
    }

    /// Decides from the answers of all filters, and copies what is printed as it is.
    fn select(&self, block: &Block, answer: &mut Answer) {
        let (first, more) = answer.found.split_first().expect("there is at least one filter");
        answer.selects.clone_from(first);
        for found in more {
            for (selects, found) in answer.selects.iter_mut().zip(found) {
                *selects |= found;
            }
        }
        if self.how.invert_match {
            answer.selects.iter_mut().for_each(|selects| *selects = !*selects);
        }
        if self.missing == Missing::Skip {
            let missing = answer.digests[0].missing();
            missing.iter().for_each(|&index| answer.selects[index] = false);
        }
        answer.selected = answer.selects.iter().map(|selects| u64::from(*selects)).sum();
        answer.text.clear();
        if self.how.prints_lines() && !self.decorates() {
            block.copy_selected(&answer.selects, &mut answer.text);
        }
    }

    /// Whether something stands before the lines.
    fn decorates(&self) -> bool {
        let How { with_filename, line_number, json, .. } = self.how;
        self.how.prints_lines() && (with_filename || line_number || json || self.names_filters())
    }

    fn names_filters(&self) -> bool {
        self.filters.len() > 1 && !self.how.invert_match
    }

    fn write(&self, block: &Block, answer: &mut Answer) {
        let How { with_filename, line_number, json, .. } = self.how;
        for (index, record) in block.records().enumerate() {
            if !answer.selects[index] {
                continue;
            }
            let number = block.first_number + index as u64;
            let hits = || {
                let hit = |(_, found): &(&Pattern, &Vec<bool>)| found[index];
                let filters = self.filters.iter().zip(&answer.found).filter(hit);
                filters.map(|(pattern, _)| pattern).collect::<Vec<_>>()
            };
            let input = &self.inputs[block.input];
            let text = &mut answer.text;
            if json {
                let names = hits().into_iter().map(|pattern| pattern.name.as_str()).collect();
                write_object(text, input, number, record, names);
                continue;
            }
            if with_filename {
                text.extend_from_slice(&self.names[block.input]);
                text.push(b':');
            }
            if line_number {
                write!(text, "{number}:").expect("a Vec takes all bytes");
            }
            if self.names_filters() {
                for (index, pattern) in hits().into_iter().enumerate() {
                    text.extend_from_slice(if index == 0 { b"" } else { b"," });
                    text.extend_from_slice(&pattern.shown);
                }
                text.push(b':');
            }
            text.extend_from_slice(record);
            text.push(self.terminator);
        }
    }
}

/// Writes an object by hand: a map for every line would take ten times as long.
fn write_object(text: &mut Vec<u8>, input: &Input, number: u64, record: &[u8], filters: Vec<&str>) {
    let quoted = |text: &str| Value::from(text).to_string();
    let names: Vec<String> = filters.iter().map(|name| quoted(name)).collect();
    let line = match str::from_utf8(record) {
        Ok(line) => format!("\"line\":{}", quoted(line)),
        Err(_) => {
            let hex: String = record.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("\"line_hex\":\"{hex}\"")
        }
    };
    let (found, names, input) = (!filters.is_empty(), names.join(","), quoted(&input.shown()));
    let object = format_args!(
        "{{\"filters\":[{names}],\"found\":{found},\"input\":{input},{line},\"number\":{number}}}"
    );
    writeln!(text, "{object}").expect("a Vec takes all bytes");
}
