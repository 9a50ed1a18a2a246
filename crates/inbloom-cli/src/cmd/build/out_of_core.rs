//! A static filter from more keys than fit into memory.
//!
//! ```text
//! read     lines -> places, 8 bytes of a key's hash, kept apart by range: `spill.rs`
//! count    how many are different, unless -n says for how many to plan
//! build    range by range, on all cores: sort, drop repetitions, solve, ask for every key
//! write    in order, as they come
//! ```
//!
//! What fits into memory never touches the disk, and takes the same way. Otherwise the state is kept
//! from time to time, see `unfinished.rs`, and `--resume` goes on from there. However often it was
//! stopped, with however much memory and on however many cores, the same keys give the same file to
//! the byte.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use inbloom::kinds::ribbon::{Layout, Part, Ribbon};
use inbloom::{Filter, Plan, file};
use signal_hook::consts::SIGINT;

use super::unfinished::{Position, Unfinished, target_of};
use super::{Args, Builder};
use crate::blocks::{InOrder, Next};
use crate::input::Input;
use crate::progress::{Beside, Progress};
use crate::signals::Signals;
use crate::spill::{self, Spill};
use crate::{filter_file, memory, numbers, output};

/// So many keys can be one shard, whatever was planned.
const MANY: u64 = 1 << 22;

/// How long to wait for lines before looking for a signal.
const LOOK: Duration = Duration::from_millis(200);

/// Memory, disk and unfinished work: for kinds that are built from all keys at once.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Static kinds, larger than memory")]
pub struct Resources {
    /// Memory to work with: 1G, 500MiB [default: a quarter of the machine's]
    // The sizing options have a group of this name.
    #[arg(id = "memory_to_work_with", long = "memory", value_name = "SIZE")]
    #[arg(value_parser = numbers::parse_bytes)]
    memory: Option<u64>,

    /// Folder for temporary files: 5.2 bytes per key, more with less than 1 GB of memory [default:
    /// that of the output]
    #[arg(long, value_name = "DIR")]
    tmp: Option<PathBuf>,

    /// Go on with a build of this output that was killed
    #[arg(long)]
    resume: bool,
}

impl Resources {
    /// An option that was given, if one was.
    pub fn given(&self) -> Option<&'static str> {
        match self {
            Resources { memory: Some(_), .. } => Some("--memory"),
            Resources { tmp: Some(_), .. } => Some("--tmp"),
            Resources { resume: true, .. } => Some("--resume"),
            _ => None,
        }
    }

    fn memory(&self) -> Result<u64> {
        let memory = self.memory.unwrap_or_else(|| memory::total().unwrap_or(4 << 30) / 4);
        ensure!(
            memory >= spill::LEAST_MEMORY || self.memory.is_none(),
            "--memory is {}, but it takes at least {}",
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
    /// A signal came.
    Stopped(u8),
}

/// Builds a filter of a static kind.
pub fn build(builder: &mut Builder) -> Result<Built> {
    let mut work = Work::begin(builder)?;
    let outcome = work.run();
    let output = work.output.clone();
    let Some(unfinished) = work.unfinished.take() else {
        return match outcome? {
            Done::Filter(filter) => Ok(Built::Filter(filter)),
            Done::File(path) => bail!("{} was written without a folder", path.display()),
        };
    };
    let error = match outcome {
        Ok(Done::File(path)) => return Ok(Built::File(path, unfinished)),
        Ok(Done::Filter(filter)) => {
            return unfinished.remove(&output).map(|()| Built::Filter(filter));
        }
        Err(error) => error,
    };
    let kept = match unfinished.was_saved() {
        true => format!(
            "the build is not finished, and kept in {}: with --resume and the same options it goes \
             on; or remove the folder",
            unfinished.folder().display(),
        ),
        false => String::new(),
    };
    match error.downcast_ref::<Interrupted>() {
        // Whoever types Ctrl-C means it; a machine that shuts down does not.
        Some(Interrupted(signal)) if *signal == SIGINT as u8 || kept.is_empty() => {
            unfinished.remove(&output)?;
            output::say("stopped: temporary files are removed, and nothing was written");
            Ok(Built::Stopped(*signal))
        }
        Some(Interrupted(signal)) => {
            output::say(kept);
            Ok(Built::Stopped(*signal))
        }
        None if kept.is_empty() => unfinished.remove(&output).and(Err(error)),
        None => Err(error.context(kept)),
    }
}

enum Done {
    Filter(Box<Filter>),
    File(PathBuf),
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
    /// What is going to be replaced.
    output: PathBuf,
    folder: PathBuf,
    /// What the build was asked for, before anything was read.
    asked: BTreeMap<&'static str, String>,
    memory: u64,
    spill: Spill,
    unfinished: Option<Unfinished>,
    /// Listened for once there are files to remove.
    signals: Option<&'static Signals>,
}

impl<'a, 'b> Work<'a, 'b> {
    fn begin(builder: &'a mut Builder<'b>) -> Result<Work<'a, 'b>> {
        let args = builder.args;
        let memory = args.resources.memory()?;
        if let Some(tmp) = args.resources.tmp.as_ref().filter(|tmp| !tmp.is_dir()) {
            bail!("--tmp {} is no folder: make it, or give another", tmp.display());
        }
        let output = target_of(&args.output);
        let folder = Unfinished::folder_for(&output, args.resources.tmp.as_deref());
        let asked = builder.asked(&output);
        let is_there = Unfinished::is_there(&folder);
        if is_there && !args.resources.resume {
            bail!(
                "{} has a build of this output that was not finished: --resume goes on with it; \
                 remove the folder to begin anew",
                folder.display(),
            );
        }
        let unfinished = match is_there {
            true => Some(Unfinished::resume(&folder, asked.clone())?),
            false => None,
        };
        let unfinished = unfinished.filter(|unfinished| {
            builder.inputs.iter().all(Input::is_file) || unfinished.state.all_read
        });
        if unfinished.is_none() {
            if is_there {
                output::say("a stream cannot be read on: it is read again, from its start");
            } else if args.resources.resume {
                output::say("no unfinished build was found: this one begins anew");
            }
            Unfinished::clear(&folder)?;
        }
        let (spill, signals) = (Spill::new(memory), None);
        let mut work = Work { builder, output, folder, asked, memory, spill, unfinished, signals };
        match &work.unfinished {
            Some(unfinished) => {
                let (chunks, _) = unfinished.lists()?;
                work.spill = Spill::restore(memory, &work.folder, &chunks)?;
                work.signals = Some(Signals::catch()?);
                output::say(format_args!(
                    "going on in {}: {} {}",
                    work.folder.display(),
                    numbers::keys(work.spill.places()),
                    if unfinished.state.all_read {
                        "were read, which were all"
                    } else {
                        "were read"
                    },
                ));
            }
            None => work.check_disk(memory)?,
        }
        Ok(work)
    }

    fn args(&self) -> &'b Args {
        self.builder.args
    }

    fn run(&mut self) -> Result<Done> {
        if !self.unfinished.as_ref().is_some_and(|unfinished| unfinished.state.all_read) {
            self.read()?;
        }
        self.builder.read = self.spill.places();
        let plan = self.plan()?;
        let mut like = Filter::build(plan, self.builder.hasher, &[])?;
        self.builder.describe(&mut like)?;
        match self.unfinished.is_some() {
            true => self.write(&like).map(Done::File),
            false => self.build_in_memory(&like).map(|filter| Done::Filter(Box::new(filter))),
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

    /// Threads that build shards, each of which takes about 100 MB.
    fn builders(&self) -> usize {
        self.threads().min((self.memory / 100_000_000).max(1) as usize)
    }

    // ------------------------------------------------------------------------------------ reading

    fn read(&mut self) -> Result<()> {
        let start = Instant::now();
        let input = &self.args().input;
        let mut position = self
            .unfinished
            .as_ref()
            .map(|unfinished| unfinished.state.position)
            .unwrap_or_default();
        let reader = input.reader(&self.builder.inputs).starting_at(position.input, position.bytes);
        let mut progress = Progress::new("reading", &self.builder.inputs, &reader, Beside::Nothing);
        let keys = self.builder.keys();
        let digests = move |block: &_, digests: &mut _| keys.digests(block, digests);
        let mut jobs = InOrder::new(reader, self.threads(), digests);
        let mut kept = self.spill.places();
        loop {
            match jobs.next_within(LOOK) {
                Next::Job(job) => {
                    let (input, bytes) = (job.block.input, job.block.bytes() as u64);
                    let before = if input == position.input { position.bytes } else { 0 };
                    position = Position { input, bytes: before + bytes };
                    self.spill.add(job.product.iter().map(|digest| digest.place))?;
                    progress.step(job.block.len());
                }
                Next::Failed(failure) => return Err(failure.error),
                Next::Nothing => {}
                Next::End => break,
            }
            self.look()?;
            if self.spill.is_full() {
                self.go_to_disk()?;
            }
            let since = self.spill.places() - kept;
            if self.spill.is_on_disk() && since >= self.spill.between_checkpoints() {
                self.keep_read(position, false)?;
                kept = self.spill.places();
            }
        }
        drop(progress);
        if self.spill.is_on_disk() {
            self.keep_read(position, true)?;
            output::say(format_args!(
                "{} read in {}, {} in {}",
                numbers::keys(self.spill.places()),
                shown(start.elapsed()),
                numbers::bytes(self.spill.bytes_on_disk()),
                self.folder.display(),
            ));
        }
        Ok(())
    }

    fn go_to_disk(&mut self) -> Result<()> {
        self.signals = Some(Signals::catch()?);
        self.unfinished = Some(Unfinished::begin(&self.folder, self.asked.clone())?);
        self.spill.go_to_disk(&self.folder)
    }

    fn keep_read(&mut self, position: Position, all_read: bool) -> Result<()> {
        let chunks = if all_read { self.spill.end()? } else { self.spill.checkpoint()? };
        let unfinished = self.unfinished.as_mut().expect("what is on disk is unfinished");
        (unfinished.state.position, unfinished.state.all_read) = (position, all_read);
        unfinished.save(&chunks, &[])
    }

    /// Refuses what would fill a disk, before hours of reading.
    fn check_disk(&self, memory: u64) -> Result<()> {
        let keys = match (self.args().sizing.items, self.estimate_keys()?) {
            (Some(keys), _) | (None, Some(keys)) => keys,
            (None, None) => return Ok(()),
        };
        let temporary = spill::disk_for(keys, memory);
        if temporary == 0 {
            return Ok(());
        }
        let plan = self.builder.sizing_for(keys.max(1)).plan(self.args().kind)?;
        let filter = plan.bytes();
        let (tmp, output) =
            (filter_file::folder_of(&self.folder), filter_file::folder_of(&self.output));
        // What is to be changed after it was built is written again.
        let again = if self.args().living.is_wanted() { filter } else { 0 };
        // Of many shards, one file in 64 is there together with the part of the filter that it
        // became; of few all may be.
        let shards = Layout::new(plan).shards();
        let beside = if shards < 64 { filter } else { (temporary + filter) / 64 };
        let (for_tmp, for_output) = match on_one_disk(&tmp, &output) {
            true => ((temporary + beside).max(filter + again), 0),
            false => (temporary, filter + again),
        };
        for (folder, need, option) in [(tmp, for_tmp, "--tmp"), (output, for_output, "-o")] {
            let free = free_disk(&folder)?;
            ensure!(
                free >= need,
                "{} keys need {} of disk in {}, where {} are free: give {option} a folder with \
                 more; or tell the number of keys with -n, if it is less",
                numbers::exact(keys),
                numbers::bytes(need),
                folder.display(),
                numbers::bytes(free),
            );
        }
        Ok(())
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
        let builder = &self.builder;
        // Shards for much fewer keys than there are would not fit into memory.
        let planned = builder.args.sizing.items.unwrap_or(u64::MAX).max(MANY);
        if builder.size_is_known() && self.spill.places() <= planned {
            return Ok(builder.args.sizing.plan(builder.args.kind)?);
        }
        let counted = self.unfinished.as_ref().and_then(|unfinished| unfinished.state.different);
        let different = match counted {
            Some(different) => different,
            None => self.count_different()?,
        };
        Ok(self.builder.sizing_for(different).plan(self.args().kind)?)
    }

    fn count_different(&mut self) -> Result<u64> {
        let start = Instant::now();
        let ranges: Vec<_> = spill::partitions().collect();
        let mut progress = Progress::steps("counting", ranges.len() as u64);
        let count = |range: u64| {
            let mut places = self.spill.gather(&ranges[range as usize])?;
            places.sort_unstable();
            places.dedup();
            Ok(places.len() as u64)
        };
        let mut different = 0;
        in_order(0..ranges.len() as u64, self.threads(), count, |_, count| {
            different += count;
            progress.step(1);
            self.look()
        })?;
        drop(progress);
        if let Some(unfinished) = &mut self.unfinished {
            unfinished.state.different = Some(different);
            unfinished.save(&[], &[])?;
            let (different, time) = (numbers::exact(different), shown(start.elapsed()));
            output::say(format_args!("{different} of them are different, counted in {time}"));
        }
        Ok(different)
    }

    /// Builds shards from this one on, on all cores, and hands them over in order.
    fn each_shard(
        &self,
        layout: &Layout,
        first: u64,
        mut take: impl FnMut(u64, Part) -> Result<()>,
    ) -> Result<()> {
        let mut progress = Progress::steps("building", layout.shards());
        progress.step(first as usize);
        let build = |shard| {
            let places = self.spill.gather(&layout.places(shard))?;
            Ok(layout.build(shard, &places)?)
        };
        in_order(first..layout.shards(), self.builders(), build, |shard, part| {
            self.look()?;
            take(shard, part)?;
            progress.step(1);
            Ok(())
        })
    }

    fn build_in_memory(&mut self, like: &Filter) -> Result<Filter> {
        let mut parts = Vec::new();
        self.each_shard(&Layout::new(*like.plan()), 0, |_, part| {
            parts.push(part);
            Ok(())
        })?;
        let ribbon = Ribbon::assemble(*like.plan(), &parts)?;
        let mut filter = Filter::from_ribbon(ribbon, self.builder.hasher)?;
        self.builder.describe(&mut filter)?;
        self.check_bytes(filter.inserted(), filter.bytes())?;
        Ok(filter)
    }

    /// Writes a file, shard by shard, keeping the state from time to time, and returns its path.
    fn write(&mut self, like: &Filter) -> Result<PathBuf> {
        let start = Instant::now();
        let layout = Layout::new(*like.plan());
        let partial = Unfinished::partial(&self.output);
        let path = match self.args().living.is_wanted() {
            // Nobody is to meet a list that hits what it must not.
            true => Unfinished::base(&self.output),
            false => self.output.clone(),
        };
        let mut unfinished = self.unfinished.take().expect("what is on disk is unfinished");
        // Given back whatever happens: it is to be removed, or to be spoken of.
        let written = self.write_to(&path, &partial, like, &layout, &mut unfinished);
        self.unfinished = Some(unfinished);
        written?;
        output::say(format_args!(
            "{} built, checked and written in {}",
            numbers::counted(layout.shards(), "shard"),
            shown(start.elapsed()),
        ));
        Ok(path)
    }

    fn write_to(
        &self,
        path: &Path,
        partial: &Path,
        like: &Filter,
        layout: &Layout,
        unfinished: &mut Unfinished,
    ) -> Result<()> {
        if let Some(complete) = unfinished.state.complete.filter(|_| !partial.exists()) {
            let found = file::header_checksum(path).ok();
            ensure!(
                found == Some(complete),
                "{} was complete, and is not there any more: remove folder {}, and build anew",
                partial.display(),
                self.folder.display(),
            );
            return Ok(()); // It had its name already when the build was killed.
        }
        let (_, shards) = unfinished.lists()?;
        let mut writer = match shards.is_empty() {
            true => file::RibbonWriter::create(partial, like)?,
            false => file::RibbonWriter::resume(partial, like, &shards)?,
        };
        let (mut fresh, mut freed) = (Vec::new(), 0);
        self.each_shard(layout, writer.shards(), |shard, part| {
            fresh.extend(writer.append(&part)?);
            let next = layout.places(shard).end().saturating_add(1);
            if Spill::file_of(next) > freed {
                // Only what is on disk may be forgotten.
                writer.sync()?;
                unfinished.save(&[], &fresh)?;
                fresh.clear();
                self.spill.free_before(next)?;
                freed = Spill::file_of(next);
            }
            Ok(())
        })?;
        self.check_bytes(writer.keys(), writer.payload())?;
        unfinished.state.complete = Some(writer.seal()?);
        unfinished.save(&[], &fresh)?;
        Ok(writer.publish(path)?)
    }

    fn check_bytes(&self, keys: u64, bytes: u64) -> Result<()> {
        match self.args().sizing.bytes {
            Some(allowed) if bytes > allowed => bail!(
                "{} need {} bytes at this rate, and --bytes allows {}: allow more, or leave -n and \
                 -p out, and the rate follows",
                numbers::keys(keys),
                numbers::exact(bytes),
                numbers::exact(allowed),
            ),
            _ => Ok(()),
        }
    }
}

/// Does `work` for all numbers on some threads, and hands the results over in order. No thread is
/// ahead of that by more than twice as many numbers as there are threads.
fn in_order<T: Send>(
    numbers: Range<u64>,
    threads: usize,
    work: impl Fn(u64) -> Result<T> + Sync,
    mut take: impl FnMut(u64, T) -> Result<()>,
) -> Result<()> {
    let line = Line {
        state: Mutex::new(Turn { next: numbers.start, taken: numbers.start, stopped: false }),
        changed: Condvar::new(),
        end: numbers.end,
        lead: 2 * threads as u64,
    };
    thread::scope(|scope| {
        // Whatever ends this, also a panic: nobody waits for a turn that does not come.
        let _end = StopAtEnd(&line);
        let (send, done) = mpsc::channel();
        for _ in 0..threads {
            let (send, line, work) = (send.clone(), &line, &work);
            scope.spawn(move || {
                let _end = StopAtEnd(line);
                while let Some(number) = line.next() {
                    if send.send((number, work(number))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        let hand_over = || {
            let mut early = BTreeMap::new();
            for number in numbers {
                let result = loop {
                    if let Some(result) = early.remove(&number) {
                        break result;
                    }
                    let (number, result) = done.recv().map_err(|_| anyhow!("a worker panicked"))?;
                    early.insert(number, result);
                };
                take(number, result?)?;
                line.change(|turn| turn.taken += 1);
            }
            Ok(())
        };
        hand_over()
    })
}

/// Which numbers are to be worked on.
struct Line {
    state: Mutex<Turn>,
    changed: Condvar,
    end: u64,
    lead: u64,
}

struct Turn {
    next: u64,
    /// The results of all numbers before this one were handed over.
    taken: u64,
    stopped: bool,
}

impl Line {
    /// A number to work on, when it is its turn; None at the end.
    fn next(&self) -> Option<u64> {
        let turn = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |turn: &mut Turn| {
            !turn.stopped && turn.next < self.end && turn.next >= turn.taken + self.lead
        };
        let turn = self.changed.wait_while(turn, waits);
        let mut turn = turn.unwrap_or_else(PoisonError::into_inner);
        if turn.stopped || turn.next >= self.end {
            return None;
        }
        turn.next += 1;
        Some(turn.next - 1)
    }

    fn change(&self, change: impl FnOnce(&mut Turn)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

/// Stops the line when it goes. A worker ends when no number is left, or in a panic: the others must
/// not wait for what that has taken away.
struct StopAtEnd<'a>(&'a Line);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.change(|turn| turn.stopped = true);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn results_are_handed_over_in_order_by_any_number_of_threads() {
        for threads in [1, 2, 7] {
            let ahead = AtomicU64::new(5);
            let mut taken = Vec::new();
            let work = |number: u64| {
                // Some take longer than others.
                thread::sleep(Duration::from_micros(number * 7919 % 300));
                assert!(number < ahead.load(Ordering::SeqCst) + 2 * threads as u64);
                Ok(number * 2)
            };
            in_order(5..300, threads, work, |number, double| {
                assert_eq!(double, number * 2);
                taken.push(number);
                ahead.store(number + 1, Ordering::SeqCst);
                Ok(())
            })
            .expect("nothing fails");
            assert_eq!(taken, (5..300).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_failure_ends_it_without_waiting() {
        let failing = |number: u64| match number {
            40 => Err(anyhow!("forty")),
            _ => Ok(number),
        };
        let error = in_order(0..1000, 3, failing, |number, _| {
            assert!(number < 40);
            Ok(())
        });
        assert_eq!(error.expect_err("it fails").to_string(), "forty");
        let error = in_order(0..1000, 3, Ok, |number, _| match number {
            7 => Err(anyhow!("seven")),
            _ => Ok(()),
        });
        assert_eq!(error.expect_err("it fails").to_string(), "seven");
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_of_a_worker_is_not_waited_for() {
        let work = |number: u64| match number {
            3 => panic!("a test's panic"),
            _ => Ok(()),
        };
        drop(in_order(0..1000, 2, work, |_, ()| Ok(())));
    }
}
