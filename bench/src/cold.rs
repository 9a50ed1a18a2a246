//! A ribbon filter in a file of which nothing is in memory: how fast is it, by each way through its
//! pages, and what do these ways cost once all of it is in memory?
//!
//! Before each cold run the system drops the file from memory, so that as many bytes are read from
//! the disk as the way takes; these are counted. Every contestant is asked for other keys in every
//! round, half of them members, and must answer as the filter in memory does.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::{env, io};

use clap::Args;
use inbloom::{Digest, Filter, Hasher, Kind, Paging, Plan};
use memmap2::Mmap;
use rustix::fs::{Advice, fadvise};

use crate::cli::Folder;
use crate::clock::Clock;
use crate::workload::{Key, absent};
use crate::{report, table};

/// Bytes of the page that a lookup touches.
const PAGE: u64 = 4096;
/// A cold run asks for one key for so many pages, so that few keys share one.
const PAGES_PER_KEY: u64 = 8;
/// Keys of a run that sweeps, and of one in memory.
const MANY: u64 = 1_000_000;
/// Lookups that read megabytes each.
const FEW: u64 = 10;
/// Keys of one call, as in `core`.
const BATCH: usize = 8192;

/// Options of `cold`.
#[derive(Args)]
pub(crate) struct Options {
    /// Members of the filter; 100M take 170 MB of disk at 0.01%, and 4 GB of memory to build.
    #[arg(long = "n", value_parser = table::count, default_value = "100M")]
    items: u64,
    /// The rate of false positives.
    #[arg(long, default_value_t = 1e-4)]
    rate: f64,
    /// Rounds to take the median of.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Where the file is made, and removed: on the disk that is measured [default: the target folder]
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// Where the filter is when a run begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    /// In memory of our own.
    Heap,
    /// In a file that is in memory, and touched.
    Warm,
    /// In a file of which nothing is in memory.
    Cold,
}

/// How keys are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// One by one, from a map about which the system got no advice.
    Unadvised,
    OneByOne,
    Batches(Paging),
    Sweep,
}

struct Contestant {
    home: Home,
    ask: Ask,
    keys: u64,
    /// Nanoseconds for a key, and bytes read for it, of each round.
    times: Vec<f64>,
    reads: Vec<f64>,
}

/// Builds the filter, lets all contestants take turns, and prints the table.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let folder = match &options.folder {
        Some(folder) => folder.join("bench-cold"),
        None => env::current_exe()?.with_file_name("bench-cold"),
    };
    let folder = Folder::create(folder)?;
    let path = folder.root().join("blacklist.ib");
    build(options)?.save(&path)?;
    // From here on the filter in memory is the one that was read: what is compared is one file.
    let heap = Filter::read_from(io::BufReader::new(File::open(&path)?))?;
    let mut contestants = contestants((fs::metadata(&path)?.len() / PAGE / PAGES_PER_KEY).max(1));
    for round in 0..options.rounds as u64 {
        for (number, contestant) in contestants.iter_mut().enumerate() {
            let first = (round * 100 + number as u64) * MANY;
            let keys = (first..first + contestant.keys).map(|index| query(index, options.items));
            contestant.run(&heap, &path, &keys.collect::<Vec<_>>())?;
        }
    }
    println!(
        "ribbon, {} members, {}%: {} MB",
        report::count(options.items),
        options.rate * 100.0,
        heap.bytes() / 1_000_000,
    );
    println!("{:<44}{:>10}{:>14}{:>16}", "", "keys", "keys/s", "read/key");
    contestants.iter_mut().for_each(Contestant::print);
    Ok(())
}

fn build(options: &Options) -> Result<Filter, Box<dyn Error>> {
    let plan = Plan::builder(Kind::Ribbon).items(options.items).rate(options.rate).build()?;
    let members: Vec<Digest> = (0..options.items).map(Digest::of).collect();
    Ok(Filter::build(plan, Hasher::default(), &members)?)
}

/// A member for every even index, in no order; and no member for the odd ones.
fn query(index: u64, items: u64) -> Digest {
    match index % 2 {
        0 => Digest::of(crate::workload::mix(index) % items),
        _ => absent(index),
    }
}

fn contestants(few_pages: u64) -> Vec<Contestant> {
    let ahead = Ask::Batches(Paging::Ahead);
    let (on_demand, sampled) = (Ask::Batches(Paging::OnDemand), Ask::Batches(Paging::Sampled));
    let all = [
        (Home::Cold, Ask::Unadvised, FEW),
        (Home::Cold, Ask::OneByOne, few_pages),
        (Home::Cold, on_demand, few_pages),
        (Home::Cold, sampled, few_pages),
        (Home::Cold, ahead, few_pages),
        (Home::Cold, ahead, MANY),
        (Home::Cold, Ask::Sweep, MANY),
        (Home::Warm, Ask::OneByOne, MANY),
        (Home::Warm, on_demand, MANY),
        (Home::Warm, sampled, MANY),
        (Home::Warm, ahead, MANY),
        (Home::Warm, Ask::Sweep, MANY),
        (Home::Heap, Ask::OneByOne, MANY),
        (Home::Heap, on_demand, MANY),
    ];
    let contestant =
        |(home, ask, keys)| Contestant { home, ask, keys, times: Vec::new(), reads: Vec::new() };
    all.into_iter().map(contestant).collect()
}

impl Contestant {
    fn run(&mut self, heap: &Filter, path: &Path, keys: &[Digest]) -> Result<(), Box<dyn Error>> {
        let mut expected = Vec::new();
        heap.contains_digests(keys, &mut expected);
        assert!(expected.iter().step_by(2).all(|found| *found), "a member is denied");
        match self.home {
            Home::Heap => {}
            Home::Warm => drop(fs::read(path)?),
            // Nothing of the file is mapped, or it would stay.
            Home::Cold => fadvise(File::open(path)?, 0, None, Advice::DontNeed)?,
        }
        if self.ask == Ask::Unadvised {
            // SAFETY: nobody writes to the file while it is mapped; it is our own.
            let map = unsafe { Mmap::map(&File::open(path)?)? };
            return self.measure(&*Filter::view(&map)?, keys, &expected);
        }
        if self.home == Home::Heap {
            return self.measure(heap, keys, &expected);
        }
        let mut filter = Filter::open(path)?;
        if let Ask::Batches(paging) = self.ask {
            filter.set_paging(paging);
        }
        if self.home == Home::Warm {
            // Touched once, so that no run pays for the system's tables.
            let _ = filter.profile(1);
        }
        self.measure(&filter, keys, &expected)
    }

    fn measure(
        &mut self,
        filter: &Filter,
        keys: &[Digest],
        expected: &[bool],
    ) -> Result<(), Box<dyn Error>> {
        // Waiting for a disk is no work, but it is what is measured; in memory there is no waiting.
        let clock = if self.home == Home::Cold { Clock::Wall } else { Clock::Thread };
        let before = bytes_read()?;
        let (found, time) = clock.time(|| self.ask.answers(filter, keys));
        let read = bytes_read()? - before;
        assert_eq!(found, expected, "answers differ from those of the filter in memory");
        if self.home == Home::Cold && read == 0 {
            return Err("nothing was read from the disk: name a --folder that is on one".into());
        }
        self.times.push(time.as_nanos() as f64 / keys.len() as f64);
        self.reads.push(read as f64 / keys.len() as f64);
        Ok(())
    }

    fn print(&mut self) {
        let (time, read) = (median(&mut self.times), median(&mut self.reads));
        let home = match self.home {
            Home::Heap => "heap",
            Home::Warm => "mapped, in memory",
            Home::Cold => "mapped, not in memory",
        };
        let ask = match self.ask {
            Ask::Unadvised => "one by one, default advice",
            Ask::OneByOne => "one by one",
            Ask::Batches(Paging::OnDemand) => "batches, on demand",
            Ask::Batches(Paging::Ahead) => "batches, ahead",
            Ask::Batches(_) => "batches, sampled",
            Ask::Sweep => "sweep",
        };
        println!(
            "{:<44}{:>10}{:>14}{read:>16.0}",
            format!("{home}: {ask}"),
            self.keys,
            (1e9 / time).round(),
        );
    }
}

impl Ask {
    fn answers(self, filter: &Filter, keys: &[Digest]) -> Vec<bool> {
        let mut found = Vec::with_capacity(keys.len());
        match self {
            Ask::Unadvised | Ask::OneByOne => {
                found.extend(keys.iter().map(|key| filter.contains_digest(*key)));
            }
            Ask::Batches(_) => {
                let mut answers = Vec::new();
                for batch in keys.chunks(BATCH) {
                    filter.contains_digests(batch, &mut answers);
                    found.extend_from_slice(&answers);
                }
            }
            Ask::Sweep => filter.sweep_digests(keys, &mut found),
        }
        found
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What this process has had read from disks.
fn bytes_read() -> Result<u64, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    Ok(line.ok_or("/proc/self/io does not tell")?.parse()?)
}
