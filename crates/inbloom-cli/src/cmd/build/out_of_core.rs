//! Builds a filter from more keys than fit into memory, or a filter that is larger than memory.
//!
//! ```text
//! read     lines -> digests, 16 bytes for a key, kept apart by ranges of their places: `spill.rs`
//! count    how many are different, unless -n says for how many to plan
//! build    range by range, on all cores: sort, drop repetitions, insert or solve: `parts.rs`
//! write    in order, as they come
//! ```
//!
//! This needs a filter in which each part has the keys of a range. A ribbon has such shards, and is
//! built from places alone. A blocked filter has its blocks in the order of places. Other kinds
//! scatter a key's cells over the whole filter. They are built in parts only as shards, each with a
//! file of its own.
//!
//! If all keys fit into memory, the build takes the same steps without temporary files. Otherwise
//! it saves its state from time to time, see `unfinished.rs`, and `--resume` continues from there.
//! The same keys give the same file to the byte, for any number of interruptions, any amount of
//! memory and any number of cores.
//!
//! A blocked filter from a pipe is built in parts only when its digests become too many. Until then
//! they are kept in their order, and inserted into a filter that is planned for all lines. In parts
//! it is planned for the keys that are different. With the same plan the bits are the same; only
//! the number of keys reported as new depends on their order.

mod parts;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail, ensure};
use inbloom::internals::kinds::blocked::Pieces;
use inbloom::internals::kinds::ribbon::{Layout, Ribbon};
use inbloom::{Digest, Filter, Plan};
use inbloom_server::units::{self, machine};
use signal_hook::consts::SIGINT;

use super::keeper::Keeper;
use super::unfinished::{self, Output, Position, State, Unfinished};
use super::{Args, Builder};
use crate::blocks::{InOrder, Next};
use crate::input::Input;
use crate::keys::Digests;
use crate::output::problem;
use crate::pipeline::in_order;
use crate::progress::{Beside, Progress};
use crate::signals::Signals;
use crate::spill::{self, Kept, Spill};
use crate::{filter_file, memory, numbers, output};
use parts::{OneFile, Parts, Shards};

/// So many keys can be one shard, whatever was planned.
const MANY: u64 = 1 << 22;

/// Bytes of spill files that nobody needs any more and that may still be there, at least: a checkpoint has
/// to be finished before they go, and takes a quarter of a second on a slow disk, while a shard takes
/// a twentieth.
const UNNEEDED: u64 = 512 << 20;

/// How long to wait for lines before looking for a signal.
const LOOK: Duration = Duration::from_millis(200);

/// Memory, disk and unfinished work.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Larger than memory")]
pub struct Resources {
    /// Memory for keys: 1G, 500MiB. With two cores, the program needs about 120 MB more for
    /// buffers. The least is 100 MB for a billion keys, and ten times that for a hundred times as
    /// many [default: a quarter of the machine's]
    // The sizing options have a group of this name.
    #[arg(id = "memory_to_work_with", long = "memory", value_name = "SIZE")]
    #[arg(value_parser = units::parse_bytes)]
    memory: Option<u64>,

    /// Folder for temporary files: 5.2 bytes per key for a ribbon, 13.2 for other kinds, more with
    /// less than 2 GB of memory [default: that of the output]
    #[arg(long, value_name = "DIR")]
    tmp: Option<PathBuf>,

    /// Write this many shards, one file each: seen.000-of-016.ib and so on for -o seen.ib; not for
    /// kinds bitmap, window and ribbon
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub shards: Option<u32>,

    /// Continue a build of this output that ended by kill, SIGTERM, power loss or a full disk. It goes
    /// on from the last checkpoint: one for every 250 million keys with --memory 1G, and one when all
    /// keys are read. After Ctrl-C there is none, since that removes the temporary files
    #[arg(long)]
    resume: bool,

    /// Assume that the machine has this much memory, all of it free: for tests
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes, hide = true)]
    free_memory: Option<u64>,
}

impl Resources {
    /// An option that was given and asks for little memory, if one was.
    pub fn given(&self) -> Option<&'static str> {
        match self {
            Resources { memory: Some(_), .. } => Some("--memory"),
            Resources { tmp: Some(_), .. } => Some("--tmp"),
            Resources { resume: true, .. } => Some("--resume"),
            _ => None,
        }
    }

    /// The option for shards, if it was given.
    pub fn shards_given(&self) -> Option<&'static str> {
        self.shards.map(|_| "--shards")
    }

    pub fn is_resumed(&self) -> bool {
        self.resume
    }

    /// Where a build of this output keeps what is unfinished.
    pub fn folder(&self, output: &Output) -> PathBuf {
        Unfinished::folder_for(output.path(), self.tmp.as_deref())
    }

    /// The bytes of memory that are free, unless nobody knows.
    pub fn free(&self) -> Option<u64> {
        self.free_memory.or_else(machine::free_memory)
    }

    fn memory(&self) -> Result<u64> {
        let total = self.free_memory.or_else(machine::total_memory).unwrap_or(4 << 30);
        let memory = self.memory.unwrap_or(total / 4);
        ensure!(
            memory >= spill::LEAST_MEMORY || self.memory.is_none(),
            "--memory is {}, the minimum is {}",
            numbers::bytes(memory),
            numbers::bytes(spill::LEAST_MEMORY),
        );
        Ok(memory.max(spill::LEAST_MEMORY))
    }
}

/// What came of a build.
pub enum Built {
    /// It fitted into memory.
    Filter(Box<Filter>),
    /// It was written to a file: the output, unless that is to become another one. What is kept of
    /// the build is to be removed when the output is there.
    File(PathBuf, Unfinished),
    /// It was written to the files of shards. What is kept of it is to be removed.
    Shards(Unfinished),
    /// A signal came.
    Stopped(u8),
}

/// Builds a filter whose keys need not fit into memory.
pub fn build(builder: &mut Builder) -> Result<Built> {
    let mut work = Work::begin(builder)?;
    let outcome = work.run().map_err(|error| work.name_full(error));
    let unfinished = work.keeper.take().map(Keeper::end);
    let (error, unfinished) = match (outcome, unfinished) {
        (Ok(Finished::Filter(filter)), None) => return Ok(Built::Filter(filter)),
        (Ok(Finished::Filter(filter)), Some(unfinished)) => {
            return unfinished.remove().map(|()| Built::Filter(filter));
        }
        (Ok(Finished::Written(path)), Some(unfinished)) => {
            return Ok(match work.output {
                Output::File(_) => Built::File(path, unfinished),
                Output::Shards(..) => Built::Shards(unfinished),
            });
        }
        (Ok(Finished::Written(path)), None) => {
            bail!("cannot find the folder of {}", path.display())
        }
        (Err(error), None) => return Err(error),
        (Err(error), Some(unfinished)) => (error, unfinished),
    };
    let is_over = is_over(&error) || !unfinished.was_saved();
    let kept = || {
        problem(
            format!("the unfinished build is kept in {}", unfinished.folder().display()),
            "continue it with --resume and the same options, or remove the folder",
        )
    };
    match error.downcast_ref::<Interrupted>() {
        Some(Interrupted(signal)) if is_over => {
            unfinished.remove()?;
            output::say("stopped: temporary files were removed, and no filter was written");
            Ok(Built::Stopped(*signal))
        }
        Some(Interrupted(signal)) => {
            output::warn(&kept());
            Ok(Built::Stopped(*signal))
        }
        None if is_over => unfinished.remove().and(Err(error)),
        None => Err(error.context(kept())),
    }
}

/// Whether there is no sense in going on later.
fn is_over(error: &anyhow::Error) -> bool {
    // Ctrl-C is intended; the shutdown of a machine is not meant for the build.
    let stopped = error.downcast_ref::<Interrupted>().is_some_and(|by| by.0 == SIGINT as u8);
    let is_full = matches!(error.downcast_ref(), Some(inbloom::Error::Full { .. }));
    stopped || is_full || error.is::<TooMany>()
}

/// Marks an error: more keys came than fit into what was allowed.
#[derive(Debug)]
struct TooMany;

impl std::fmt::Display for TooMany {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("too many keys")
    }
}

enum Finished {
    Filter(Box<Filter>),
    /// To this path, if it is one file.
    Written(PathBuf),
}

/// A signal asked to stop.
#[derive(Debug)]
struct Interrupted(u8);

impl std::error::Error for Interrupted {}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(formatter, "signal {} came", self.0)
    }
}

/// A build on its way.
struct Work<'a, 'b> {
    builder: &'a mut Builder<'b>,
    output: Output,
    folder: PathBuf,
    /// What the build was asked for, before anything was read.
    asked: BTreeMap<&'static str, String>,
    memory: u64,
    /// Digests in the order in which they came, until they become too many.
    early: Option<Vec<Digest>>,
    spill: Arc<Spill>,
    /// How far the build had come that goes on, and what it kept of the parts that it wrote.
    begun: State,
    begun_parts: Vec<u8>,
    /// There once something is on disk.
    keeper: Option<Keeper>,
    /// Listened for once there are files to remove.
    signals: Option<&'static Signals>,
}

impl<'a, 'b> Work<'a, 'b> {
    fn begin(builder: &'a mut Builder<'b>) -> Result<Work<'a, 'b>> {
        let args = builder.args;
        let memory = args.resources.memory()?;
        if let Some(tmp) = &args.resources.tmp {
            ensure!(
                tmp.is_dir(),
                problem(
                    format!("--tmp {} is not a folder", tmp.display()),
                    "create it, or name another"
                )
            );
            tempfile::tempfile_in(tmp)
                .with_context(|| format!("cannot write to --tmp {}", tmp.display()))?;
        }
        let output = builder.output.clone();
        let folder = args.resources.folder(&output);
        let asked = builder.asked();
        let is_there = Unfinished::is_there(&folder);
        let unfinished = match is_there {
            true => Some(Unfinished::resume(&folder, asked.clone())?),
            false => None,
        };
        let unfinished = unfinished.filter(|unfinished| {
            builder.inputs.iter().all(Input::is_file) || unfinished.state.all_read
        });
        if unfinished.is_none() {
            if is_there {
                output::say("standard input cannot be continued: reading it again from its start");
            } else if args.resources.resume && folder.is_dir() {
                output::say(format_args!(
                    "the build in {} ended before its first checkpoint: starting a new one",
                    folder.display()
                ));
            } else if args.resources.resume {
                output::say("no unfinished build found: starting a new one");
            }
            if builder.in_parts {
                // Refused now, if it is not a build's.
                Unfinished::clear(&folder)?;
            }
        }
        let kept = match args.kind.is_static() {
            true => Kept::Places,
            false => Kept::Digests,
        };
        let early = (!builder.in_parts).then(Vec::new);
        let threads = args.input.threads();
        let mut work = Work {
            builder,
            output,
            folder,
            asked,
            memory,
            early,
            spill: Arc::new(Spill::new(memory, kept, threads)),
            begun: State::default(),
            begun_parts: Vec::new(),
            keeper: None,
            signals: None,
        };
        let Some(unfinished) = unfinished else {
            work.check_room(kept)?;
            return Ok(work);
        };
        let (chunks, parts) = unfinished.lists()?;
        let spill = Spill::restore(memory, kept, threads, &work.folder, &chunks)?;
        (work.spill, work.begun, work.begun_parts) = (Arc::new(spill), unfinished.state, parts);
        work.signals = Some(Signals::catch()?);
        work.builder.missing = work.begun.missing;
        output::say(format_args!(
            "continuing in {}: {} {}",
            work.folder.display(),
            numbers::keys(work.spill.count()),
            match work.begun.all_read {
                true => "were read, all of the input",
                false => "were read",
            },
        ));
        work.keeper = Some(Keeper::new(unfinished));
        Ok(work)
    }

    fn args(&self) -> &'b Args {
        self.builder.args
    }

    fn run(&mut self) -> Result<Finished> {
        if !self.begun.all_read {
            self.read()?;
        }
        if let Some(digests) = self.early.take() {
            let filter = self.builder.build_from_digests(&digests)?;
            return Ok(Finished::Filter(Box::new(filter)));
        }
        self.builder.read = self.spill.count();
        memory::keep_for_a_while();
        let plan = self.plan()?;
        match (&self.output, plan.kind().is_static()) {
            (Output::Shards(..), _) => self.write_shards(plan),
            (Output::File(_), true) => self.build_ribbon(plan),
            (Output::File(_), false) => self.build_blocked(plan),
        }
    }

    /// Ends the build if more different keys came than the filter may hold.
    fn check_limit(&self, plan: &Plan, keys: u64) -> Result<()> {
        match keys > self.builder.limit(plan) {
            true => Err(Error::from(self.builder.too_many(plan)).context(TooMany)),
            false => Ok(()),
        }
    }

    /// Says of a shard that is full what is to be said of all.
    fn name_full(&self, error: anyhow::Error) -> anyhow::Error {
        let is_full = matches!(error.downcast_ref(), Some(inbloom::Error::Full { .. }));
        match self.args().sizing.plan(self.args().kind) {
            Ok(plan) if is_full && self.builder.limit(&plan) < u64::MAX => {
                Error::from(self.builder.too_many(&plan)).context(TooMany)
            }
            _ => error,
        }
    }

    /// Ends the build if a signal came.
    fn look(&self) -> Result<()> {
        match self.signals.and_then(Signals::came) {
            Some(signal) => Err(Interrupted(signal).into()),
            None => Ok(()),
        }
    }

    fn threads(&self) -> usize {
        self.args().input.threads()
    }

    /// As many threads as there is memory for, if each takes so much.
    fn threads_for(&self, memory: u64) -> usize {
        self.threads().min((self.memory / memory.max(1)).max(1) as usize)
    }

    // ------------------------------------------------------------------------------------ reading

    fn read(&mut self) -> Result<()> {
        let start = Instant::now();
        let input = &self.args().input;
        let mut position = self.begun.position;
        let reader = input.reader(&self.builder.inputs).starting_at(position.input, position.bytes);
        let mut progress = Progress::new("reading", &self.builder.inputs, &reader, Beside::Nothing);
        let keys = self.builder.keys()?;
        let spill = Arc::clone(&self.spill);
        let in_order = Arc::new(AtomicBool::new(self.early.is_some()));
        let keeps_order = Arc::clone(&in_order);
        // Workers add to the spill themselves, unless digests are kept in their order.
        let work = move |block: &_, made: &mut Made| {
            keys.digests(block, &mut made.digests)?;
            let is_spilled = !keeps_order.load(Ordering::Relaxed);
            made.spilled = is_spilled.then(|| spill.add(&made.digests));
            Ok(())
        };
        let mut jobs = InOrder::new(reader, self.threads(), work);
        let mut kept = self.spill.count();
        loop {
            match jobs.next_within(LOOK) {
                Next::Job(job) => {
                    let (input, bytes) = (job.block.input, job.block.bytes() as u64);
                    let before = if input == position.input { position.bytes } else { 0 };
                    position = Position { input, bytes: before + bytes };
                    let Made { digests, spilled } = &mut job.product;
                    match (spilled.take(), &mut self.early) {
                        (Some(spilled), _) => spilled?,
                        (None, Some(early)) => early.extend_from_slice(digests),
                        (None, None) => self.spill.add(digests)?,
                    }
                    self.builder.missing += digests.missing().len() as u64;
                    progress.step(job.block.len());
                }
                Next::Failed(failure) => return Err(failure.error),
                Next::Nothing => {}
                Next::End => break,
            }
            self.look()?;
            let bytes = self.early.as_ref().map_or(0, |early| mem::size_of_val(early.as_slice()));
            if bytes as u64 > self.memory / 2 {
                in_order.store(false, Ordering::Relaxed);
                let early = self.early.take().unwrap_or_default();
                self.spill.add(&early)?;
                self.builder.in_parts = true;
            }
            if self.spill.is_full() {
                self.go_to_disk()?;
            }
            let is_due = self.spill.count() - kept >= self.spill.between_checkpoints();
            // One that takes longer than until the next is due is not waited for.
            if is_due && self.keeper.as_ref().is_some_and(|keeper| !keeper.is_busy()) {
                // A checkpoint has all keys before a position of the input, and none behind.
                jobs.pause();
                if jobs.is_idle() {
                    self.keep_read(position, false)?;
                    kept = self.spill.count();
                    jobs.go_on();
                }
            }
        }
        drop(progress);
        if matches!(self.output, Output::Shards(..)) && !self.spill.is_on_disk() {
            self.go_to_disk()?;
        }
        if !self.spill.is_on_disk() {
            return self.spill.end(self.threads()).map(drop);
        }
        self.keep_read(position, true)?;
        self.builder.args.summary.say(format_args!(
            "{} read in {}, {} in {}",
            numbers::keys(self.spill.count()),
            shown(start.elapsed()),
            numbers::bytes(self.spill.bytes_on_disk()),
            self.folder.display(),
        ));
        Ok(())
    }

    fn go_to_disk(&mut self) -> Result<()> {
        self.signals = Some(Signals::catch()?);
        Unfinished::clear(&self.folder)?;
        let unfinished = Unfinished::begin(&self.folder, self.asked.clone())?;
        self.keeper = Some(Keeper::new(unfinished));
        self.spill.go_to_disk(&self.folder)
    }

    /// Has all that was read kept in the background.
    fn keep_read(&mut self, position: Position, all_read: bool) -> Result<()> {
        let threads = self.threads();
        let checkpoint = match all_read {
            true => self.spill.end(threads)?,
            false => self.spill.checkpoint(threads)?,
        };
        let missing = self.builder.missing;
        let keeper = self.keeper.as_mut().expect("what is on disk is unfinished");
        keeper.start(move |unfinished| {
            // A checkpoint may name only what is on disk.
            let chunks = checkpoint.sync()?;
            let state = &mut unfinished.state;
            (state.position, state.all_read, state.missing) = (position, all_read, missing);
            unfinished.save(&chunks, &[])
        })
    }

    /// Refuses what would fill a disk, or not fit into memory, before hours of reading.
    fn check_room(&self, kept: Kept) -> Result<()> {
        let keys = match (self.args().sizing.items, self.estimate_keys()?) {
            (Some(keys), _) | (None, Some(keys)) => keys,
            (None, None) => return Ok(()),
        };
        let plan = match self.builder.size_is_known() {
            true => self.args().sizing.plan(self.args().kind)?,
            false => self.builder.sizing_for(keys.max(1)).plan(self.args().kind)?,
        };
        let (parts, filter) = match &self.output {
            Output::Shards(_, shards) => (u64::from(*shards), self.check_shards(plan, *shards)?),
            Output::File(_) if plan.kind().is_static() => {
                (Layout::new(plan).shards(), plan.bytes())
            }
            Output::File(_) => (Pieces::new(plan).count(), plan.bytes()),
        };
        let temporary = spill::disk_for(keys, kept, self.memory);
        let is_written = matches!(self.output, Output::Shards(..)) || !self.fits(&plan);
        if temporary == 0 && !is_written {
            return Ok(());
        }
        let (tmp, output) =
            (filter_file::folder_of(&self.folder), filter_file::folder_of(self.output.path()));
        // What is to be changed after it was built is written again.
        let again = if self.args().overlay.is_wanted() { filter } else { 0 };
        // Of many parts, two files in 64, or more that are small, are there together with the part of
        // the filter that they became; of few all may be.
        let many = ((temporary + filter) / 32).max(filter.min(UNNEEDED));
        let beside = if parts < 64 { filter } else { many };
        let (for_tmp, for_output) = match on_one_disk(&tmp, &output) {
            true => ((temporary + beside).max(filter + again), 0),
            false => (temporary, filter + again),
        };
        for (folder, need, option) in [(tmp, for_tmp, "--tmp"), (output, for_output, "-o")] {
            let free = free_disk(&folder)?;
            ensure!(
                free >= need,
                problem(
                    format!(
                        "{} keys need {} of disk in {}, where {} are free",
                        numbers::exact(keys),
                        numbers::bytes(need),
                        folder.display(),
                        numbers::bytes(free)
                    ),
                    format!(
                        "pass {option} with a folder that has more space, or -n if there are fewer \
                         keys"
                    )
                )
            );
        }
        let least = spill::least_memory(keys, kept);
        if self.memory < least && temporary > 0 {
            // So many may not come.
            output::warn(&problem(
                format!(
                    "{} keys take more memory than {}",
                    numbers::exact(keys),
                    numbers::bytes(self.memory)
                ),
                format!("pass --memory {}M or more", least.div_ceil(1_000_000)),
            ));
        }
        Ok(())
    }

    /// Refuses shards that do not fit into memory, or together not into what is allowed. Returns the
    /// bytes of all.
    fn check_shards(&self, plan: Plan, shards: u32) -> Result<u64> {
        let each = plan.for_shard(0, shards)?.bytes();
        let all = each * u64::from(shards);
        // Each has whole blocks, of 64 bytes.
        let allowed = self.args().sizing.bytes.map(|bytes| bytes + 64 * u64::from(shards));
        parts::check_bytes(allowed, plan.items(), all)?;
        ensure!(
            each <= self.memory / 2,
            problem(
                format!(
                    "each of {shards} shards takes {}, which is more than half of --memory ({})",
                    numbers::bytes(each),
                    numbers::bytes(self.memory)
                ),
                format!(
                    "pass --shards {} or more, a larger --memory, or -n if fewer keys are different",
                    (all * 21 / 10).div_ceil(self.memory)
                )
            )
        );
        Ok(all)
    }

    /// Whether a filter is built in memory, where its digests are. These have the rest of it.
    fn fits(&self, plan: &Plan) -> bool {
        plan.kind().is_static() || plan.bytes() <= self.memory / 4
    }

    /// About how many keys there are in the files, by the first lines; None if not all are files.
    fn estimate_keys(&self) -> Result<Option<u64>> {
        const SAMPLE: u64 = 1 << 20;
        let inputs = &self.builder.inputs;
        let Some(total) = inputs.iter().map(Input::file_size).sum::<Option<u64>>() else {
            return Ok(None);
        };
        let Some(first) = inputs.first() else { return Ok(None) };
        let read = std::sync::Arc::default();
        let mut sample = Vec::new();
        let mut reader = first.open(self.args().input.encoding(), &read)?.take(SAMPLE);
        reader.read_to_end(&mut sample).with_context(|| first.cannot_read())?;
        let lines = memchr::memchr_iter(self.args().input.terminator(), &sample).count().max(1);
        let read = read.load(Ordering::Relaxed).max(1);
        Ok(Some((total as f64 / read as f64 * lines as f64) as u64))
    }

    // ----------------------------------------------------------------------------------- building

    /// The plan, for the number of keys that was asked for, or of those that are different.
    fn plan(&mut self) -> Result<Plan> {
        let (args, count) = (self.args(), self.spill.count());
        // Shards of a ribbon for much fewer keys than there are would not fit into memory.
        let planned = args.sizing.items.unwrap_or(u64::MAX).max(MANY);
        let fits = !args.kind.is_static() || count <= planned;
        if self.builder.size_is_known() && fits {
            return Ok(args.sizing.plan(args.kind)?);
        }
        let different = match self.begun.different {
            Some(different) => different,
            None => self.count_different()?,
        };
        Ok(self.builder.sizing_for(different).plan(args.kind)?)
    }

    fn count_different(&mut self) -> Result<u64> {
        let start = Instant::now();
        let ranges: Vec<_> = spill::partitions().collect();
        let mut progress = Progress::steps("counting", ranges.len() as u64);
        let threads = self.threads_for(self.spill.of_partition());
        let count = |range: u64| {
            let ahead = ranges.get(range as usize + threads);
            ahead.inspect(|ahead| self.spill.read_ahead(ahead));
            Ok(self.spill.places(&ranges[range as usize])?.len() as u64)
        };
        let mut different = 0;
        in_order(0..ranges.len() as u64, threads, count, |_, count| {
            different += count;
            progress.step(1);
            self.look()
        })?;
        drop(progress);
        if let Some(keeper) = &mut self.keeper {
            let mut unfinished = keeper.wait()?;
            unfinished.state.different = Some(different);
            unfinished.save(&[], &[])?;
            let (different, time) = (numbers::exact(different), shown(start.elapsed()));
            self.builder
                .args
                .summary
                .say(format_args!("{different} of them are different, counted in {time}"));
        }
        Ok(different)
    }

    /// Builds parts from this one on, on all cores, and hands them over in order.
    fn each_part<P: Parts>(
        &self,
        parts: &P,
        first: u64,
        mut take: impl FnMut(u64, P::Part) -> Result<()>,
    ) -> Result<()> {
        let mut progress = Progress::steps("building", parts.count());
        progress.step(first as usize);
        // What was built waits until it is written.
        let threads = self.threads_for(2 * parts.memory() + self.spill.of_partition());
        let build = |part| {
            // What this thread, or another one, is going to build next but for those under way.
            if part + (threads as u64) < parts.count() {
                self.spill.read_ahead(&parts.places(part + threads as u64));
            }
            parts.build(part, &self.spill)
        };
        in_order(first..parts.count(), threads, build, |number, part| {
            self.look()?;
            take(number, part)?;
            progress.step(1);
            Ok(())
        })
    }

    fn build_ribbon(&mut self, plan: Plan) -> Result<Finished> {
        let mut like = Filter::build(plan, self.builder.hasher, &[])?;
        self.args().describe(&mut like)?;
        let (file, most) = (self.one_file(), self.args().sizing.bytes);
        let (layout, spares) = (Layout::new(plan), Mutex::default());
        let parts = parts::Ribbon { layout, file, like: &like, most, spares };
        if self.keeper.is_some() {
            let path = parts.file.path.clone();
            return self.write(&parts).map(|()| Finished::Written(path));
        }
        let mut built = Vec::new();
        self.each_part(&parts, 0, |_, part| {
            built.push(part);
            Ok(())
        })?;
        let mut filter = Filter::from_ribbon(Ribbon::assemble(plan, &built)?, self.builder.hasher)?;
        self.args().describe(&mut filter)?;
        parts::check_bytes(most, filter.inserted(), filter.bytes())?;
        Ok(Finished::Filter(Box::new(filter)))
    }

    fn build_blocked(&mut self, plan: Plan) -> Result<Finished> {
        if self.keeper.is_none() && !self.fits(&plan) {
            self.go_to_disk()?;
            self.keep_read(Position::default(), true)?;
        }
        if self.keeper.is_some() {
            let like = self.builder.filter(Plan::builder(plan.kind()).items(1).build()?)?;
            let (pieces, file) = (Pieces::new(plan), self.one_file());
            let path = file.path.clone();
            self.write(&parts::Blocked { plan, pieces, file, like: &like })?;
            return Ok(Finished::Written(path));
        }
        let mut filter = Filter::with_hasher(plan, self.builder.hasher)?;
        let mut progress = Progress::steps("building", spill::partitions().count() as u64);
        let mut new = Vec::new();
        for range in spill::partitions() {
            filter.insert_digests(&self.spill.digests(&range)?, &mut new)?;
            self.check_limit(&plan, filter.inserted())?;
            progress.step(1);
        }
        self.args().describe(&mut filter)?;
        Ok(Finished::Filter(Box::new(filter)))
    }

    fn write_shards(&mut self, plan: Plan) -> Result<Finished> {
        let Output::Shards(path, shards) = self.output.clone() else {
            bail!(problem(
                format!("{} is not a file name", self.output.path().display()),
                "name shards after a file, such as -o seen.ib",
            ))
        };
        self.check_shards(plan, shards)?;
        let (args, hasher, stem) =
            (self.args(), self.builder.hasher, inbloom::file::stem_of(&path));
        let parts = Shards { plan, shards, stem, hasher, args };
        self.write(&parts)?;
        Ok(Finished::Written(path))
    }

    fn one_file(&self) -> OneFile {
        let path = self.output.path();
        let partial = unfinished::partial(path);
        // Nobody is to meet a list that hits what it must not.
        let path = match self.args().overlay.is_wanted() {
            true => unfinished::base(path),
            false => path.to_owned(),
        };
        OneFile { path, partial }
    }

    /// Writes all parts, keeping the state from time to time.
    fn write<P: Parts>(&mut self, parts: &P) -> Result<()> {
        let start = Instant::now();
        let mut keeper = self.keeper.take().expect("what is on disk is unfinished");
        // Given back also on an error: the caller removes the folder, or names it in its message.
        let written = self.write_parts(parts, &mut keeper);
        self.keeper = Some(keeper);
        written?;
        self.builder.args.summary.say(format_args!(
            "{} {} in {}",
            numbers::counted(parts.count(), P::NAME),
            P::DONE,
            shown(start.elapsed()),
        ));
        Ok(())
    }

    fn write_parts<P: Parts>(&self, parts: &P, keeper: &mut Keeper) -> Result<()> {
        if let Some(complete) = self.begun.complete
            && parts.is_published(complete)?
        {
            return Ok(()); // It had its name already when the build was killed.
        }
        // From here on the unfinished files are ours: the writer has locked them.
        let mut writer = parts.writer(&self.begun_parts)?;
        let (mut fresh, mut freed) = (Vec::new(), 0);
        let unneeded = self.spill.files_of(UNNEEDED).max(1);
        let built = self.each_part(parts, parts.written(&writer), |number, part| {
            fresh.extend(parts.append(&mut writer, part)?);
            self.check_limit(parts.plan(), parts.inserted(&writer))?;
            let next = parts.places(number).end().saturating_add(1);
            let file = Spill::file_of(next);
            // A checkpoint that is not finished is waited for only where the disk would hold too many
            // files that nobody needs.
            if file > freed && (file > freed + unneeded || !keeper.is_busy()) {
                let (sync, fresh) = (parts.sync(&mut writer)?, mem::take(&mut fresh));
                let spill = Arc::clone(&self.spill);
                freed = file;
                keeper.start(move |unfinished| {
                    // A checkpoint may name only what is on disk, and only then may what it was
                    // made from be forgotten.
                    sync()?;
                    unfinished.save(&[], &fresh)?;
                    spill.free_before(next)
                })?;
            }
            Ok(())
        });
        let sealed = built.and_then(|()| parts.seal(&mut writer));
        match sealed {
            Ok(complete) => keeper.wait()?.state.complete = Some(complete),
            Err(error) => {
                if is_over(&error) {
                    parts.partials().iter().try_for_each(|path| remove_if_there(path))?;
                }
                return Err(error);
            }
        }
        keeper.wait()?.save(&[], &fresh)?;
        parts.publish(writer)
    }
}

/// What workers make of a block.
#[derive(Default)]
struct Made {
    digests: Digests,
    /// How adding them to the spill ended, if the worker did it.
    spilled: Option<Result<()>>,
}

fn remove_if_there(path: &Path) -> Result<()> {
    match path.exists() {
        true => fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display())),
        false => Ok(()),
    }
}

/// Bytes that may still be written in a folder.
fn free_disk(folder: &Path) -> Result<u64> {
    let disk = rustix::fs::statvfs(folder)
        .with_context(|| format!("cannot tell how much disk is free in {}", folder.display()))?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

fn on_one_disk(left: &Path, right: &Path) -> bool {
    let device = |path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    device(left) == device(right)
}

fn shown(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..100 => format!("{}.{} s", seconds, time.subsec_millis() / 100),
        seconds => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}
