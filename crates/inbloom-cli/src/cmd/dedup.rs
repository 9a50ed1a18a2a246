//! `inbloom dedup`: the first occurrence of every line, in order.
//!
//! What was seen is remembered in a filter, or exactly in a set of digests. With `--filter` it
//! outlives the run. The rule that keeps a crash from losing lines: **a filter is saved only after
//! all lines that it knows have been delivered**: synced to the disk if they go to a file, and
//! taken by the reader if they go into a pipe. So whatever happens, a line that is in the filter's
//! file has arrived, and one that is not will be printed again: at least once, never never.

mod on_redis;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use inbloom::{Digest, Error, Filter, Kind, Plan, Span};
use inbloom_redis::Address;
use inbloom_server::units;

use crate::blocks::{Block, InOrder, Next};
use crate::exact_set::{Counts, ExactSet};
use crate::filter_file::{self, Changed, HashArgs};
use crate::keys::{Digests, InputArgs, Keys, Missing, NormalizeArgs};
use crate::lock::WaitArgs;
use crate::normalize::Normalization;
use crate::output::{Delivery, Problem, SummaryArgs, problem};
use crate::overfull::{self, Overfull};
use crate::progress::{Beside, Progress};
use crate::remote::{self, RedisArgs};
use crate::signals::Signals;
use crate::sizing::{Sizing, kind_parser};
use crate::{memory, numbers, output};
use on_redis::SharedMemory;

/// Print the first occurrence of every line, in order
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Keep the filter in this file across runs, created if it does not exist; or at this address,
    /// redis://host/NAME, for several programs at once
    #[arg(long, value_name = "FILE")]
    filter: Option<PathBuf>,

    /// Save the filter about this often while lines come: 60s, 5m
    #[arg(long, value_name = "TIME", requires = "filter", default_value = "60s")]
    #[arg(value_parser = units::parse_time)]
    save_every: Duration,

    #[command(flatten)]
    wait: WaitArgs,

    /// What to do when more new lines come than -n [default: grow, or stop for a kind that
    /// cannot]
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["exact", "count"])]
    overfull: Option<Overfull>,

    /// Print the duplicates instead of the first occurrences
    #[arg(long, conflicts_with = "count")]
    repeated: bool,

    /// Print every line once, at the end, after its number of occurrences; keeps all lines in memory
    #[arg(long, conflicts_with_all = ["filter", "save_every", "exact", "Sizing"])]
    count: bool,

    /// Have no false positives: keep a set of 128-bit digests, 20 to 40 bytes per line
    #[arg(long, conflicts_with_all = ["save_every", "Sizing"])]
    exact: bool,

    /// Write every line at once
    #[arg(long, conflicts_with = "count")]
    line_buffered: bool,

    #[command(flatten)]
    summary: SummaryArgs,

    /// Kind of the filter [default: blocked with -n, window with --window, otherwise scalable]
    #[arg(long, value_parser = kind_parser(), conflicts_with_all = ["exact", "count"])]
    kind: Option<Kind>,

    /// Let the filter empty itself when more than this share of its bits is set: 0.8
    #[arg(long, value_name = "SHARE", value_parser = units::parse_share)]
    #[arg(conflicts_with_all = ["exact", "count"])]
    auto_clear: Option<f64>,

    #[command(flatten)]
    normalize: NormalizeArgs,

    #[command(flatten)]
    hash: HashArgs,

    // These last: their headings hold for all options that follow.
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    sizing: Sizing,

    #[command(flatten)]
    redis: RedisArgs,
}

const AFTER_HELP: &str = "\
Without -n the filter grows as lines come, to about twice the memory that -n would take. With -n it
has room for that many lines, and grows past them at the same rate: no new line is lost if more
come. --overfull stop ends at the first new line past -n, with status 2, after printing and saving
the lines before it. --overfull continue goes on and drops more and more new lines; it prints a
warning, even with -q. --overfull grow needs kind blocked or classic, and a -p of 2e-12 or more.

Without -p the rate is 1e-6: at most one new line in a million is dropped as a false positive. The
summary reports how many to expect. --exact drops none (it keeps 128-bit digests).

--window 7d prints a line again when 7 days have passed since it was printed. --window 100000 prints
it again after 100,000 others, or up to one generation later. A window of time needs -n, the lines
to expect in it.

--filter F keeps the lines that were seen in the file F. Options for kind and size only matter when
F is created; later they must agree with F, or be left out. F is replaced as a whole: at the end of
input, on Ctrl-C, SIGTERM and SIGHUP, and every --save-every (or four times as long as a save takes).
It is always saved after its lines were delivered: synced to disk in a file, or read from a pipe. So
after any interruption, also kill -9 or a power failure:
  - F is undamaged, as of its last save;
  - no line is lost: each line in F was delivered, or is a false positive;
  - the next run prints lines after the last save again, if it reads its input from there: every
    line is delivered at least once, not exactly once;
  - the last line of the output may be cut off.
If the reader of a pipe ends early, as head does, lines that it did not read are not saved as seen.
Only one program at a time can change F: a second one ends with an error before it prints a line, or
waits with --wait.

A filter on Redis can be used by several programs at once. Its size is fixed: -n is needed to create
it, and a new line past -n ends the run unless --overfull continue is given. Lines are recorded there
about once a second, after their delivery. Two programs that read the same line within that time may
both print it.

Examples:
  inbloom dedup urls.txt > unique.txt
  inbloom dedup -n 2.5M -p 1e-6 urls-*.gz > unique.txt
  crawl | inbloom dedup --filter seen.ib --normalize url > frontier.txt
  crawl | inbloom dedup --filter redis://localhost/seen -n 1G -p 1e-4 > frontier.txt
  tail -F access.log | inbloom dedup -d ' ' -f 1 --window 1h -n 1M
  inbloom dedup --repeated --exact ids.txt        lines that came before
  inbloom dedup --count words.txt | sort -rn | head

Exit status:
  0  all input was read, or the reader of the output ended
  2  an error; with --filter, F is as of its last save
  129, 130, 143  stopped by SIGHUP, Ctrl-C or SIGTERM, with --filter after saving it if possible";

/// Of the lines that are new, so many may be dropped, if -p does not say.
const DEFAULT_RATE: f64 = 1e-6;
/// How often it is looked whether to stop or to save while no input comes.
const LOOK: Duration = Duration::from_millis(100);
/// How long a reader is waited for that has not taken all lines, after a signal to stop: it may
/// have been stopped too.
const PATIENCE: Duration = Duration::from_secs(1);
/// So many times as long as a save took it is waited until the next one.
const SAVING: u32 = 4;

pub fn run(args: &Args) -> Result<ExitCode> {
    ensure!(
        args.filter.is_some() || !args.wait.is_given(),
        problem(
            "--wait needs --filter, a file that other programs may be changing",
            "pass --filter, or leave --wait out"
        )
    );
    ensure!(
        args.filter.is_none() || !args.exact,
        problem(
            "--exact cannot be combined with --filter: an exact run keeps its keys in memory, and \
             writes no file",
            "leave one of them out"
        )
    );
    // What keeps all lines, or their digests, is better off with huge pages.
    if !args.exact && !args.count {
        memory::use_small_pages();
    }
    let hasher = args.hash.hasher(Kind::default())?;
    let normalization = args.input.normalization(&args.normalize);
    let exact_keys = || args.input.keys(hasher, normalization);
    let keep = args.input.missing() == Missing::Keep;
    if args.count {
        let (mut counts, mut header) = (Counts::default(), None);
        each_block(args, exact_keys()?, None, |event| {
            if let Event::Lines(digests, block) = event {
                header = header.take().or_else(|| block.header_line());
                counts.add(digests, block, keep);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        output::print(&header.unwrap_or_default())?;
        counts.print(args.input.terminator())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (memory, keys) = match (args.exact, shared_address(args)?) {
        (true, _) => (Memory::ExactSet(ExactSet::default()), exact_keys()?),
        (false, Some(address)) => {
            let shared = SharedMemory::open(args, address, normalization)?;
            let (hasher, normalization) = (*shared.filter.hasher(), shared.filter.normalization());
            let keys = args.input.keys_like(hasher, normalization)?;
            (Memory::Shared(Box::new(shared)), keys)
        }
        (false, None) => {
            let kept = KeptFilter::open(args, normalization)?;
            if let Some(warning) = kept.too_small(args) {
                output::warn(&warning);
            }
            let keys = args.input.keys_for(&kept.filter)?.for_inserts(&kept.filter);
            (Memory::Filter(Box::new(kept)), keys)
        }
    };
    let signals = args.filter.as_ref().map(|_| Signals::catch()).transpose()?;
    let mut dedup = Dedup {
        args,
        memory,
        signals,
        read: 0,
        printed: 0,
        missing: 0,
        cut_off: false,
        has_header: false,
        new: Vec::new(),
        text: Vec::new(),
    };
    let stopped = each_block(args, keys, signals, |event| match event {
        Event::Lines(digests, block) => dedup.take(digests, block),
        Event::Nothing => dedup.save_if_due().map(ControlFlow::Continue),
    })?;
    let saved = dedup.save()?;
    if !args.summary.quiet {
        dedup.summarize();
    }
    if let Some(warning) = dedup.warning() {
        output::warn(&warning);
    }
    if !saved {
        output::warn(&problem(
            "the reader did not take all lines, so the filter was not saved again",
            "read the input again from the last line that was taken",
        ));
    }
    if let Some(full) = dedup.full(saved) {
        bail!(full);
    }
    Ok(stopped.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(128 + signal)))
}

enum Event<'a> {
    Lines(&'a Digests, &'a Block),
    /// No line has come for a while.
    Nothing,
}

/// Calls `take` for all blocks of input, in order, and in between. Ends early if `take` says so, or
/// with the number of a signal that asked for it.
fn each_block(
    args: &Args,
    keys: Keys,
    signals: Option<&Signals>,
    mut take: impl FnMut(Event) -> Result<ControlFlow<()>>,
) -> Result<Option<u8>> {
    let inputs = args.input.inputs();
    // Lines of one list are compared with each other only: those of all of them end alike.
    let alone = args.filter.is_none() && inputs.len() == 1;
    let keys = if alone { keys.without_warning() } else { keys };
    let reader = args.input.reader(&inputs);
    let beside = if args.count { Beside::Nothing } else { Beside::Lines };
    let mut progress = Progress::new("dedup", &inputs, &reader, beside);
    let digests = move |block: &_, digests: &mut _| keys.digests(block, digests);
    let mut jobs = InOrder::new(reader, args.input.threads(), digests);
    loop {
        let next = match jobs.next_within(LOOK) {
            Next::Job(job) => {
                let next = take(Event::Lines(&job.product, &job.block))?;
                progress.step(job.block.len());
                next
            }
            Next::Failed(failure) => return Err(failure.error),
            Next::Nothing => take(Event::Nothing)?,
            Next::End => return Ok(None),
        };
        if next.is_break() {
            return Ok(None);
        }
        if let Some(signal) = signals.and_then(Signals::came) {
            return Ok(Some(signal));
        }
    }
}

struct Dedup<'a> {
    args: &'a Args,
    memory: Memory,
    signals: Option<&'static Signals>,
    read: u64,
    printed: u64,
    /// Lines that have no key.
    missing: u64,
    /// Whether a signal came while the reader did not take what was being printed.
    cut_off: bool,
    /// Whether a header was printed.
    has_header: bool,
    /// Whether each line of the block is new, and what the block prints.
    new: Vec<bool>,
    text: Vec<u8>,
}

/// What was seen.
enum Memory {
    ExactSet(ExactSet),
    Filter(Box<KeptFilter>),
    Shared(Box<SharedMemory>),
}

/// The address of a filter that several programs share, if it is to be one.
fn shared_address(args: &Args) -> Result<Option<Address>> {
    args.filter.as_deref().map_or(Ok(None), remote::address_of)
}

impl Dedup<'_> {
    fn take(&mut self, digests: &Digests, block: &Block) -> Result<ControlFlow<()>> {
        match &mut self.memory {
            Memory::ExactSet(set) => set.insert(digests, &mut self.new),
            Memory::Shared(shared) => shared.look_up(digests, &mut self.new)?,
            Memory::Filter(kept) => {
                let had_passed = kept.has_passed;
                kept.insert(digests, &mut self.new)?;
                if kept.has_passed && !had_passed {
                    output::warn(&kept.passing(self.read));
                }
            }
        }
        // Those behind the line at which a filter was full are not taken.
        let is_full = self.new.len() < digests.keys();
        if self.args.repeated {
            self.new.iter_mut().for_each(|new| *new = !*new);
        }
        // What has no key was never seen before.
        let keeps = self.args.input.missing() == Missing::Keep && !self.args.repeated;
        self.missing += digests.spread(&mut self.new, keeps) as u64;
        self.text.clear();
        if let Some(header) = block.header_line().filter(|_| !self.has_header) {
            self.text.extend_from_slice(&header);
            self.has_header = true;
        }
        block.copy_selected(&self.new, &mut self.text);
        let terminator = self.args.input.terminator();
        let pieces: Vec<&[u8]> = match self.args.line_buffered {
            true => self.text.split_inclusive(|&byte| byte == terminator).collect(),
            false => vec![&self.text],
        };
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            match self.signals {
                None => output::print(piece)?,
                Some(signals) if !self.cut_off => {
                    let printed = output::print_unless(piece, || signals.came().is_some())?;
                    self.cut_off = !printed;
                }
                Some(_) => {}
            }
        }
        self.read += self.new.len() as u64;
        self.printed += filter_file::count_new(&self.new);
        self.save_if_due()?;
        Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn save_if_due(&mut self) -> Result<()> {
        match &mut self.memory {
            Memory::Filter(kept) if kept.is_due(self.args.save_every) && !self.cut_off => {}
            Memory::Shared(shared) if shared.is_due() && !self.cut_off => {}
            _ => return Ok(()),
        }
        // A reader that is slower than the input has always something left, unless it is waited for.
        let delivery = self.wait_for_delivery(|_| ())?;
        match &mut self.memory {
            Memory::Filter(kept) if delivery == Delivery::Done => kept.save(),
            Memory::Shared(shared) if delivery == Delivery::Done => shared.save(),
            _ => Ok(()),
        }
    }

    /// Saves for the last time, when all lines are delivered; false if they will not be.
    fn save(&mut self) -> Result<bool> {
        match &mut self.memory {
            Memory::ExactSet(_) => return Ok(true),
            Memory::Filter(kept) => {
                kept.mistakes.sum(kept.new, &kept.filter);
                if kept.file.is_none() {
                    return Ok(true);
                }
            }
            Memory::Shared(_) => {}
        }
        let mut said = false;
        let delivery = self.wait_for_delivery(|waited| {
            if waited > PATIENCE && !said {
                said = true;
                output::say(
                    "waiting for the reader to take all lines; press Ctrl-C to end without saving",
                );
            }
        })?;
        match &mut self.memory {
            Memory::Filter(kept) if delivery == Delivery::Done && !self.cut_off => {
                kept.save().map(|()| true)
            }
            Memory::Shared(shared) if delivery == Delivery::Done && !self.cut_off => {
                shared.save().map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Waits until all that was printed is delivered, or will not be, or, after a signal, until
    /// patience is at its end. Calls `waiting` now and then with the time so far.
    fn wait_for_delivery(&self, mut waiting: impl FnMut(Duration)) -> Result<Delivery> {
        let start = Instant::now();
        let mut stopped = None;
        loop {
            match output::delivery()? {
                Delivery::Pending => thread::sleep(Duration::from_millis(5)),
                delivery => return Ok(delivery),
            }
            if self.signals.and_then(Signals::came).is_some()
                && stopped.get_or_insert_with(Instant::now).elapsed() > PATIENCE
            {
                return Ok(Delivery::Pending);
            }
            waiting(start.elapsed());
        }
    }

    fn summarize(&self) {
        let (read, printed) = (numbers::lines(self.read), numbers::exact(self.printed));
        let without = numbers::without_key(self.missing);
        let (counts, taken_for_seen) = match self.args.repeated {
            false => {
                let dropped = self.read - self.printed;
                let duplicates = numbers::counted(dropped, "duplicate");
                (format!("{read}{without}: {printed} unique, {duplicates} dropped"), dropped)
            }
            true => {
                let duplicates = numbers::counted(self.printed, "duplicate");
                (format!("{read}{without}: {duplicates} printed"), self.printed)
            }
        };
        match &self.memory {
            Memory::ExactSet(set) => {
                let memory = numbers::bytes(set.bytes());
                output::say(format_args!("{counts} (exact); {memory}"));
            }
            Memory::Shared(shared) => {
                let plan = shared.filter.plan();
                output::say(format_args!(
                    "{counts} (expected false positives: {}); {} on Redis, {}",
                    shared.mistakes(),
                    plan.kind(),
                    numbers::bytes(plan.bytes()),
                ));
            }
            Memory::Filter(kept) => {
                let filter = &kept.filter;
                output::say(format_args!(
                    "{counts} (expected false positives: {}); {}, {}",
                    kept.mistakes.shown(taken_for_seen),
                    filter.plan().kind(),
                    numbers::bytes(filter.bytes()),
                ));
                if let Some(text) = kept.emptied().or_else(|| kept.grown()) {
                    output::say(text);
                }
            }
        }
    }

    /// What to say of lines that may be lost, also to those who want no summary.
    fn warning(&self) -> Option<Problem> {
        match &self.memory {
            Memory::Filter(kept) => kept.warning(self.read),
            Memory::ExactSet(_) | Memory::Shared(_) => None,
        }
    }

    /// Why not all lines were taken.
    fn full(&self, saved: bool) -> Option<Problem> {
        match &self.memory {
            Memory::ExactSet(_) => None,
            Memory::Shared(shared) => shared.is_full.then(|| shared.full(self.read)),
            Memory::Filter(kept) => {
                let file = self.args.filter.as_ref().filter(|_| saved);
                kept.is_full.then(|| kept.full(self.read, file))
            }
        }
    }
}

/// A filter of what was seen, and the file that it is kept in, if any.
struct KeptFilter {
    filter: Filter,
    file: Option<Changed>,
    /// Whether lines have come since the last save.
    changed: bool,
    saved_at: Instant,
    /// How long the last save took.
    saving: Duration,
    mistakes: Mistakes,
    new: u64,
    answers: Vec<bool>,
    overfull: Overfull,
    /// The number of new lines at which it is full, and whether it is.
    limit: u64,
    is_full: bool,
    /// Whether its rate was ever above the target.
    has_passed: bool,
    /// How many lines it held in the beginning, if its bits can tell.
    held: Option<u64>,
}

impl KeptFilter {
    fn open(args: &Args, normalization: Normalization) -> Result<KeptFilter> {
        let file = args.filter.as_deref().map(|path| Changed::new(path, args.wait)).transpose()?;
        let exists = file.as_ref().map_or(Ok(false), Changed::exists)?;
        let existing = args.filter.as_ref().filter(|_| exists);
        let (mut filter, overfull) = match existing {
            Some(path) => {
                let mut filter = args.hash.key.open_mut(path)?;
                // A damaged filter that was saved again would have good checksums.
                filter_file::verify(path)?;
                check_options(args, &filter, normalization)
                    .with_context(|| path.display().to_string())?;
                if filter.plan().kind().is_static() {
                    // It takes no insert, and says so: now, and not after lines were printed.
                    filter.insert("").with_context(|| path.display().to_string())?;
                }
                let overfull = Overfull::decide_for(&filter, args.overfull, Overfull::Grow);
                (filter, overfull.with_context(|| path.display().to_string())?)
            }
            None => new_filter(args, normalization)?,
        };
        filter_file::advance(&mut filter)?;
        let held = overfull::holds(filter.inserted(), filter.rate(), filter.estimated_items());
        if overfull == Overfull::Grow {
            filter = filter.into_growing()?;
        }
        let limit = overfull.limit(&filter);
        let mistakes = Mistakes::of(&filter);
        Ok(KeptFilter {
            // A new file is made even if no line comes: the next run finds what it asks for.
            changed: existing.is_none(),
            filter,
            file,
            saved_at: Instant::now(),
            saving: Duration::ZERO,
            mistakes,
            new: 0,
            answers: Vec::new(),
            overfull,
            limit,
            is_full: false,
            has_passed: false,
            held,
        })
    }

    /// Tells of each line whether it is new. There are fewer answers than lines if the filter is
    /// full: then the first one without an answer is new.
    fn insert(&mut self, digests: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        filter_file::advance(&mut self.filter)?;
        self.changed = true;
        new.clear();
        // In parts that do not change the filter much, so that its rate is known for each.
        let part = usize::try_from(self.filter.plan().items() / 32).unwrap_or(usize::MAX).max(64);
        let per_key = self.filter.hasher().digests_per_key();
        for digests in digests.chunks(part.saturating_mul(per_key)) {
            let keys = (digests.len() / per_key) as u64;
            let inserted = match self.filter.plan().kind().forgets() {
                // Its time is counted from when it was printed, however often it is seen again.
                true => filter_file::insert_absent(&mut self.filter, digests, &mut self.answers),
                _ if keys > self.limit.saturating_sub(self.filter.inserted()) => {
                    self.insert_until_full(digests)
                }
                _ => filter_file::insert_set(&mut self.filter, digests, &mut self.answers),
            };
            match inserted {
                // A cuckoo filter may have no room before it was to be expected. The answers are
                // those before the line that it refused.
                Err(Error::Full { .. }) => self.is_full = true,
                inserted => inserted?,
            }
            self.new += filter_file::count_new(&self.answers);
            let looked = self.mistakes.note(self.new, &self.filter);
            if looked && !self.has_passed && self.overfull == Overfull::Continue {
                self.has_passed = overfull::has_passed(&self.filter);
            }
            new.extend_from_slice(&self.answers);
            if self.is_full {
                break;
            }
        }
        Ok(())
    }

    /// Answers until a new line comes for which there is no room.
    fn insert_until_full(&mut self, digests: &[Digest]) -> inbloom::Result<()> {
        self.answers.clear();
        let mut answer = Vec::new();
        for key in digests.chunks(self.filter.hasher().digests_per_key()) {
            self.filter.contains_digests(key, &mut answer);
            if answer == [true] {
                self.answers.push(false);
                continue;
            }
            if self.filter.inserted() >= self.limit {
                return Err(Error::Full { items: self.filter.inserted(), planned: self.limit });
            }
            self.filter.insert_digests(key, &mut answer)?;
            self.answers.extend_from_slice(&answer);
        }
        Ok(())
    }

    fn is_due(&self, save_every: Duration) -> bool {
        let wait = save_every.max(self.saving.saturating_mul(SAVING));
        self.changed && self.file.is_some() && self.saved_at.elapsed() >= wait
    }

    /// Replaces the file by what is known now. To be called only when all of it has been delivered.
    fn save(&mut self) -> Result<()> {
        let Some(file) = self.file.as_mut().filter(|_| self.changed) else { return Ok(()) };
        let start = Instant::now();
        file.save(&self.filter)?;
        (self.changed, self.saved_at, self.saving) = (false, Instant::now(), start.elapsed());
        Ok(())
    }

    fn emptied(&self) -> Option<String> {
        let filter = &self.filter;
        let emptied = filter.inserted() < self.new && !filter.plan().kind().forgets();
        emptied.then(|| {
            format!(
                "the filter emptied itself (--auto-clear) and holds only the last {}",
                numbers::lines(filter.inserted()),
            )
        })
    }

    /// What to say of a filter that is mostly a growing part.
    fn grown(&self) -> Option<String> {
        let (planned, beyond) = (self.filter.plan().items(), self.filter.as_grown()?.beyond());
        (beyond > planned).then(|| {
            format!(
                "the filter was planned for {} and has grown by {}: -n {} would take less memory",
                numbers::lines(planned),
                numbers::exact(beyond),
                self.filter.inserted(),
            )
        })
    }

    /// What to say before the first line of a filter whose memory is far too small for its lines:
    /// nobody asked for the rate that follows from it.
    fn too_small(&self, args: &Args) -> Option<Problem> {
        let plan = self.filter.plan();
        (plan.rate() > Mistakes::TELLING && args.sizing.rate.is_none()).then(|| {
            problem(
                format!(
                    "a filter for {} in {} drops up to {} of the new lines",
                    numbers::lines(plan.items()),
                    numbers::bytes(plan.bytes()),
                    numbers::rate(plan.rate())
                ),
                "pass a larger --bytes or --bits-per-key, or a smaller -n",
            )
        })
    }

    /// What to say at the moment when the rate passes its target, after so many lines.
    fn passing(&self, read: u64) -> Problem {
        let plan = self.filter.plan();
        let remedy = match plan.kind().can_outgrow() && self.filter.auto_clear().is_none() {
            true => "pass --overfull grow, or a larger -n",
            false => "pass a larger -n",
        };
        problem(
            format!(
                "more lines came than the {} that the filter was planned for: after line {}, the \
                 rate is above the target of {}, and more new lines may be dropped",
                numbers::exact(plan.items()),
                numbers::exact(read),
                numbers::rate(plan.rate())
            ),
            remedy,
        )
    }

    /// What to say in the end of a filter that is too full, after so many lines.
    fn warning(&self, read: u64) -> Option<Problem> {
        let (filter, plan) = (&self.filter, self.filter.plan());
        if self.emptied().is_some() {
            return None;
        }
        (self.has_passed || filter_file::exceeds_promise(filter)).then(|| {
            let holds = overfull::holds(filter.inserted(), filter.rate(), filter.estimated_items());
            let larger = match plan.span() {
                Some(_) => "a larger -n".to_string(),
                None => overfull::larger(holds, self.held, read),
            };
            problem(
                format!(
                    "the filter was planned for {}, and its rate is now {} (target {}), so \
                             new lines may be lost",
                    numbers::lines(plan.items()),
                    numbers::rate(filter.rate()),
                    numbers::rate(plan.rate())
                ),
                format!("create a new filter with {larger}, or without -n"),
            )
        })
    }

    /// Why it took no more than so many lines, which are in this file.
    fn full(&self, read: u64, file: Option<&PathBuf>) -> Problem {
        let (plan, record) = (self.filter.plan(), numbers::exact(read + 1));
        let saved = match file {
            Some(file) => format!(" and saved in {}", file.display()),
            None => String::new(),
        };
        let remedy = match (overfull::can_grow(&self.filter), plan.kind().can_outgrow()) {
            (false, true) if self.held.is_none_or(|held| held > 0) => {
                "build the filter again with 'inbloom build --overfull grow', or"
            }
            (true, _) => "continue from there with --overfull grow, or begin again",
            (false, true) => "begin again with --overfull grow, or",
            (false, false) => "begin again with --kind blocked --overfull grow, or",
        };
        problem(
            format!(
                "the filter is full: it was planned for {}, and record {record} is new; the \
                 records before it were printed{saved}, the others were not",
                numbers::lines(plan.items())
            ),
            format!("{remedy} with a larger -n"),
        )
    }
}

fn new_filter(args: &Args, normalization: Normalization) -> Result<(Filter, Overfull)> {
    let (kind, sizing) = sizing(args);
    ensure!(
        !kind.is_static(),
        problem(
            format!("kind {kind} is built once from all its keys, and dedup adds lines one by one"),
            "leave --kind out, or use 'inbloom build' and 'inbloom check'"
        )
    );
    let clears_itself = args.auto_clear.is_some();
    let (asked, growth) = (args.overfull, sizing.growth);
    let mut overfull = Overfull::decide(asked, Overfull::Grow, kind, growth, clears_itself)?;
    let mut plan = sizing.plan_for(kind, overfull);
    if asked.is_none() && matches!(plan, Err(Error::Rate { .. })) {
        // The rate is too low to be divided between the filter and a growing part.
        (overfull, plan) = (Overfull::Stop, sizing.plan(kind));
    }
    let plan = plan.map_err(|error| match error {
        Error::Underspecified { .. } if !kind.is_exact() => {
            anyhow!(problem(error.to_string(), "pass -n, the number of lines to expect"))
        }
        error => error.into(),
    })?;
    let mut filter = Filter::with_hasher(plan, args.hash.hasher(kind)?)?;
    filter.set_auto_clear(args.auto_clear)?;
    filter.set_normalization(&normalization.to_string())?;
    filter.set_key_encoding(args.input.key_encoding())?;
    Ok((filter, overfull))
}

/// The kind and the sizes that the options ask for.
fn sizing(args: &Args) -> (Kind, Sizing) {
    let Sizing { items, bytes, bits_per_key, tier, window, rate, .. } = args.sizing;
    let memory = bytes.is_some() || bits_per_key.is_some() || tier.is_some();
    let kind = args.kind.unwrap_or(match (window, items) {
        (Some(_), _) => Kind::Window,
        (None, Some(_)) => Kind::default(),
        (None, None) if memory => Kind::default(),
        (None, None) => Kind::Scalable,
    });
    // Where keys and memory are given, they tell the rate.
    let told = memory && (items.is_some() || matches!(window, Some(Span::Items(_))));
    let rate = rate.or((!told && !kind.is_exact()).then_some(DEFAULT_RATE));
    // All lines of a time may come in one of its steps: a run over what has piled up.
    let items = match (kind.forgets(), window) {
        (true, Some(Span::Millis(_))) => {
            items.map(|items| items.saturating_mul(args.sizing.steps()))
        }
        _ => items,
    };
    (kind, Sizing { rate, items, ..args.sizing })
}

/// The options that make a filter must be those that it was made with, where they are given.
fn check_options(args: &Args, filter: &Filter, normalization: Normalization) -> Result<()> {
    let plan = filter.plan();
    for (option, asked, found) in args.sizing.against(plan) {
        let what = match option {
            "-n" if has_default_items(plan) => {
                format!("the filter already exists, and was created without -n, not for {asked}")
            }
            _ => format!("the filter already exists, with {option} {found}, not {asked}"),
        };
        ensure!(
            asked == found,
            problem(what, "leave the options for its kind and size out, or name another file")
        );
    }
    ensure!(
        args.kind.is_none_or(|kind| kind == plan.kind()),
        problem(
            format!("the filter already exists, and is of kind {}", plan.kind()),
            "leave --kind out, or name another file"
        )
    );
    args.hash.check(filter)?;
    ensure!(
        normalization.is_none() || normalization.to_string() == filter.normalization(),
        problem(
            format!(
                "the filter already exists, with the normalization \"{}\", not \"{normalization}\"",
                filter.normalization()
            ),
            "leave --normalize and --crlf out, or name another file"
        )
    );
    ensure!(
        args.auto_clear.is_none() || args.auto_clear == filter.auto_clear(),
        problem(
            "the filter already exists, with another --auto-clear",
            "leave --auto-clear out, or name another file"
        )
    );
    Ok(())
}

/// Whether a filter that grows began with as many keys as one without -n does.
fn has_default_items(plan: &Plan) -> bool {
    let default = Plan::builder(plan.kind()).rate(plan.rate()).build();
    plan.kind().can_grow() && default.is_ok_and(|default| default.items() == plan.items())
}

/// How many new lines are to be expected among those that were taken for seen: the sum of the rates
/// at which each met the filter.
struct Mistakes {
    expected: f64,
    /// Whether the filter was ever so full that too few new lines got through to tell.
    overfull: bool,
    /// The rate of the filter after so many new lines, and the number at which it is looked at
    /// next: it takes some time to compute.
    rate: f64,
    new: u64,
    next: u64,
}

impl Mistakes {
    /// Up to here, one line that is dropped for nine that are not, their number can be estimated.
    const TELLING: f64 = 0.1;

    fn of(filter: &Filter) -> Mistakes {
        Mistakes { expected: 0.0, overfull: false, rate: filter.rate(), new: 0, next: 0 }
    }

    /// Looks at the rate, if enough new lines have come since the last time; true if it has.
    fn note(&mut self, new: u64, filter: &Filter) -> bool {
        let is_due = new >= self.next;
        if is_due {
            self.sum(new, filter);
        }
        is_due
    }

    fn sum(&mut self, new: u64, filter: &Filter) {
        // 3% more keys are up to 60% more mistakes: fine enough for their mean to be right.
        let rate = filter.rate();
        let step = filter.inserted().min(filter.plan().items()) / 32;
        let mean = (self.rate + rate) / 2.0;
        self.overfull |= rate > Mistakes::TELLING;
        // Of those that came, a share of `mean` was dropped: for each that was not, so many more.
        self.expected += (new - self.new) as f64 * mean / (1.0 - mean.min(0.999));
        (self.rate, self.new, self.next) = (rate, new, new + step + 64);
    }

    /// In words, of so many that were taken for seen.
    fn shown(&self, of: u64) -> String {
        match self.expected.min(of as f64) {
            _ if self.overfull => "up to all of them".to_string(),
            expected if expected < 0.001 => "below 0.001".to_string(),
            expected => numbers::expected(expected),
        }
    }
}
