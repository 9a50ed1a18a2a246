//! The command line against its peers: whole programs, from a file on disk to a file on disk.
//!
//! ```text
//! dedup   sort -u, awk, runiq and huniq against 'inbloom dedup'
//! build   'inbloom build' against the least that can be done: counting lines and hashing them
//! check   'inbloom check', likewise
//! large   'inbloom dedup' of 20 times as many lines: does it keep its speed and its memory?
//! ```
//!
//! Input is generated, and the generator knows which lines a right answer has, so that the output
//! of every run is compared line by line, awk's as well as ours. A Bloom filter may take a new line
//! for a repeated one: how many are lost is counted, and more than its target rate explains ends
//! the run, as does any other difference.

pub(crate) mod answers;
mod child;
mod data;
pub(crate) mod race;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{env, fs};

use clap::{Args, ValueEnum};
use inbloom::Hasher;

use crate::clock::Clock;
use crate::{report, table};
use answers::{Checker, Promise};
use child::Program;
use data::{Lines, Text};
use race::{Contestant, Race};

/// What `--quick` runs.
const QUICK_LINES: u64 = 500_000;

/// The rate of the planned dedup, and how it is written on the command line.
const PLANNED_RATE: f64 = 1e-6;
const PLANNED_RATE_TEXT: &str = "1e-6";

/// The rate at which lines are dropped without -p, by `inbloom dedup`.
const DEDUP_RATE: f64 = 1e-6;

/// The rate of a filter that is built without -p.
const BUILD_RATE: f64 = 0.01;

/// The rate that runiq documents for its filter `compact`, which has no option for it.
const RUNIQ_COMPACT_RATE: f64 = 1e-7;

/// Options of `cli`.
#[derive(Args)]
pub(crate) struct Options {
    /// One round with a tenth of the lines.
    #[arg(long, conflicts_with_all = ["lines", "rounds"])]
    quick: bool,
    /// Lines to deduplicate; twice as many are built from and checked, 20 times as many are large.
    #[arg(long, value_parser = table::count, default_value = "5M")]
    lines: u64,
    /// Rounds to take the minimum and the median of.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// What is measured; large is run only if it is named, and takes 9 GB of disk.
    #[arg(long, value_delimiter = ',', default_value = "dedup,build,check")]
    only: Vec<Part>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    /// Peers against 'inbloom dedup'.
    Dedup,
    /// 'inbloom build' against counting and hashing.
    Build,
    /// 'inbloom check' against counting and hashing.
    Check,
    /// 'inbloom dedup' of 20 times as many lines.
    Large,
}

/// Runs what the options ask for, and prints every race when it is over.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let executable = env::current_exe()?;
    let release = executable.parent().expect("an executable is in a folder");
    let target = release.parent().ok_or("the benchmark is not run from cargo's target folder")?;
    let inbloom = release.join("inbloom");
    if !inbloom.is_file() {
        return Err(format!(
            "{} is missing: build it with 'cargo build --release -p inbloom-cli'",
            inbloom.display()
        )
        .into());
    }
    let bench = Bench {
        inbloom,
        benchmark: executable.clone(),
        peers: target.join("peers/bin"),
        folder: Folder::create(target.join("bench-cli"))?,
        lines: if options.quick { QUICK_LINES } else { options.lines },
        rounds: if options.quick { 1 } else { options.rounds },
    };
    bench.describe();
    for part in &options.only {
        match part {
            Part::Dedup => bench.dedup()?,
            Part::Build => bench.build()?,
            Part::Check => bench.check()?,
            Part::Large => bench.large()?,
        }
        bench.print_floor()?;
    }
    Ok(())
}

/// Prints in how many seconds one thread hashes all lines of a file, once they are in memory and
/// split. A process of its own, so that its memory does not count as that of the others: see
/// [`child`].
pub(crate) fn hash_lines(path: &Path) -> Result<(), Box<dyn Error>> {
    let text = fs::read(path)?;
    let lines: Vec<&[u8]> =
        text.strip_suffix(b"\n").unwrap_or(&text).split(|&byte| byte == b'\n').collect();
    let hasher = Hasher::default();
    let (_, time) = Clock::Wall.time(|| {
        for line in &lines {
            std::hint::black_box(hasher.digest(line));
        }
    });
    println!("{}", time.as_secs_f64());
    Ok(())
}

/// Where everything is, and how much of it is run.
struct Bench {
    inbloom: PathBuf,
    /// This program, which is called once more to hash.
    benchmark: PathBuf,
    /// Where bench/peers.sh installs.
    peers: PathBuf,
    folder: Folder,
    lines: u64,
    rounds: usize,
}

impl Bench {
    /// Says which versions take part.
    fn describe(&self) {
        let peers = [
            Program::new("sort").arg("--version"),
            Program::new("awk").args(["-W", "version"]),
            Program::new(self.peers.join("runiq")).arg("--version"),
            Program::new(self.peers.join("huniq")).arg("--version"),
            Program::new(&self.inbloom).arg("--version"),
        ];
        let versions: Vec<String> = peers.iter().filter_map(Program::first_line).collect();
        println!("versions  {}", versions.join("; "));
    }

    /// Says below which size the memory of the last race is unknown.
    fn print_floor(&self) -> Result<(), Box<dyn Error>> {
        let nothing = Program::new("true").run(&self.folder.path("nothing"))?;
        println!("a program that does nothing has a peak of {} here", megabytes(nothing.peak));
        Ok(())
    }

    fn dedup(&self) -> Result<(), Box<dyn Error>> {
        let text = Text::Repeating { lines: self.lines };
        let file = self.write("repeating.txt", text)?;
        let ordered = |promise| Checker::deduplicated(text, promise);
        let ours = self.planned_dedup(text, &file);
        let name = ours.name().to_string();
        let inbloom = || Program::new(&self.inbloom).arg("dedup");
        let mut contestants = vec![
            ours,
            Contestant::new(
                "inbloom dedup",
                inbloom().arg(&file),
                ordered(Promise::Rate(DEDUP_RATE)),
            ),
            Contestant::new(
                "inbloom dedup --exact",
                inbloom().arg("--exact").arg(&file),
                ordered(Promise::Exact),
            ),
            Contestant::new(
                "LC_ALL=C sort -u",
                Program::new("sort").arg("-u").arg(&file).env("LC_ALL", "C"),
                Checker::sorted(text),
            ),
            Contestant::new(
                format!("awk '!s[$0]++' ({})", awk()),
                Program::new("awk").arg("!s[$0]++").arg(&file),
                ordered(Promise::Exact),
            ),
        ];
        if let Some(runiq) = self.peer("runiq") {
            let filter = |name| Program::new(&runiq).args(["--filter", name]).arg(&file);
            contestants.push(Contestant::new(
                "runiq --filter quick",
                filter("quick"),
                ordered(Promise::Exact),
            ));
            contestants.push(Contestant::new(
                "runiq --filter compact",
                filter("compact"),
                ordered(Promise::Rate(RUNIQ_COMPACT_RATE)),
            ));
        }
        if let Some(huniq) = self.peer("huniq") {
            contestants.push(Contestant::new(
                "huniq",
                Program::new(huniq).input(&file),
                ordered(Promise::Exact),
            ));
        }
        let mut race = Race::new(contestants, self.folder.path("output"));
        race.run("dedup", self.rounds)?;
        let title = format!(
            "dedup of {} lines, {} distinct, {} in the file",
            report::count(self.lines),
            text.expected(),
            megabytes(fs::metadata(&file)?.len()),
        );
        let ours = race.shortest(&name);
        race.print(&title, "times ours", |time| ours.map(|ours| time / ours));
        fs::remove_file(file)?;
        Ok(())
    }

    fn build(&self) -> Result<(), Box<dyn Error>> {
        let text = Text::Distinct { lines: 2 * self.lines };
        let file = self.write("distinct.txt", text)?;
        let filter = self.folder.path("built.ib");
        let build = || Program::new(&self.inbloom).arg("build").arg("-o").arg(&filter).arg(&file);
        // A right filter has every line; 'check' shows that it lacks others.
        let has_all = || {
            let ask = Program::new(&self.inbloom).args(["check", "-c"]).arg(&filter).arg(&file);
            Checker::of_file(ask, self.folder.path("count"), Checker::counted(text, Promise::Exact))
        };
        let known = format!("-n {}", amount(2 * self.lines));
        let contestants = vec![
            Contestant::new("inbloom build", build(), has_all()),
            Contestant::new(
                format!("inbloom build {known}"),
                build().args(known.split(' ')),
                has_all(),
            ),
        ];
        let title = format!("build from {} distinct lines", report::count(2 * self.lines));
        self.against_the_bound("build", &title, &file, contestants)?;
        fs::remove_file(filter).ok();
        fs::remove_file(file)?;
        Ok(())
    }

    fn check(&self) -> Result<(), Box<dyn Error>> {
        let lines = 2 * self.lines;
        let keys = self.write("keys.txt", Text::Distinct { lines })?;
        let filter = self.folder.path("checked.ib");
        let build = Program::new(&self.inbloom).arg("build").arg("-o").arg(&filter).arg(&keys);
        let built = build.run(&self.folder.path("nothing"));
        fs::remove_file(keys)?;
        if let Err(reason) = built {
            println!("\ncheck is left out: inbloom build FAILED: {reason}");
            return Ok(());
        }

        let text = Text::HalfPresent { lines };
        let file = self.write("half.txt", text)?;
        let check = || Program::new(&self.inbloom).arg("check");
        let promise = Promise::Rate(BUILD_RATE);
        let contestants = vec![
            Contestant::new(
                "inbloom check -c",
                check().arg("-c").arg(&filter).arg(&file),
                Checker::counted(text, promise),
            ),
            Contestant::new(
                "inbloom check > out",
                check().arg(&filter).arg(&file),
                Checker::selected(text, promise),
            ),
        ];
        let title = format!("check of {} lines, half present", report::count(lines));
        self.against_the_bound("check", &title, &file, contestants)?;
        fs::remove_file(filter)?;
        fs::remove_file(file)?;
        Ok(())
    }

    fn large(&self) -> Result<(), Box<dyn Error>> {
        let texts = [self.lines, 20 * self.lines].map(|lines| Text::Repeating { lines });
        let files = [self.write("small.txt", texts[0])?, self.write("large.txt", texts[1])?];
        let contestants =
            texts.iter().zip(&files).map(|(&text, file)| self.planned_dedup(text, file));
        let mut race = Race::new(contestants.collect(), self.folder.path("output"));
        race.run("large", self.rounds)?;
        race.print("dedup, small and large", "", |_| None);

        let speeds: Vec<f64> = texts
            .iter()
            .filter_map(|text| {
                let name = planned_name(text.lines());
                let speed = text.lines() as f64 / race.shortest(&name)? / 1e6;
                let peak = race.peak(&name)?;
                let plan = self.planned_bytes(text.lines() / 2).unwrap_or_else(|problem| {
                    eprintln!("'inbloom plan' did not tell the memory: {problem}");
                    0
                });
                println!(
                    "{name}: {speed:.2} M lines/s; peak {}, the plan says {}",
                    megabytes(peak),
                    megabytes(plan)
                );
                Some(speed)
            })
            .collect();
        if let [small, large] = speeds[..] {
            println!("the large run has {:.2} times the speed of the small one", large / small);
        }
        Ok(())
    }

    /// `inbloom dedup` with the expected number of distinct lines, and a rate of loss.
    fn planned_dedup(&self, text: Text, file: &Path) -> Contestant {
        let name = planned_name(text.lines());
        let arguments = name.split(' ').skip(1);
        let program = Program::new(&self.inbloom).args(arguments).arg(file);
        Contestant::new(&name, program, Checker::deduplicated(text, Promise::Rate(PLANNED_RATE)))
    }

    /// What `inbloom plan` says that the filter of such a dedup takes.
    fn planned_bytes(&self, items: u64) -> Result<u64, Box<dyn Error>> {
        let (items, rate) = (items.to_string(), PLANNED_RATE.to_string());
        let answer = self.folder.path("plan.json");
        Program::new(&self.inbloom)
            .args(["plan", "-n", &items, "-p", &rate, "--kind", "blocked", "--json"])
            .run(&answer)?;
        let plan: serde_json::Value = serde_json::from_slice(&fs::read(answer)?)?;
        plan["kinds"][0]["bytes"].as_u64().ok_or_else(|| format!("no bytes in {plan}").into())
    }

    /// Races the contestants together with the two parts of the bound, and says how near they come.
    fn against_the_bound(
        &self,
        name: &str,
        title: &str,
        file: &Path,
        mut contestants: Vec<Contestant>,
    ) -> Result<(), Box<dyn Error>> {
        const COUNTING: &str = "wc -l";
        const HASHING: &str = "XXH3-128 of all lines";
        contestants.extend([
            Contestant::new(COUNTING, Program::new("wc").arg("-l").arg(file), Checker::anything()),
            Contestant::timing_itself(
                HASHING,
                Program::new(&self.benchmark).arg("hash-lines").arg(file),
            ),
        ]);
        let mut race = Race::new(contestants, self.folder.path("output"));
        race.run(name, self.rounds)?;
        let bound = race
            .shortest(COUNTING)
            .and_then(|counting| Some(counting + race.shortest(HASHING)?))
            .ok_or("wc -l or the hashing failed: there is no bound to compare with")?;
        race.print(title, "bound/time", |time| Some(bound / time));
        println!("the bound, counting and hashing: {bound:.3} s");
        Ok(())
    }

    /// A peer, or a loud word that it is missing.
    fn peer(&self, name: &str) -> Option<PathBuf> {
        let path = self.peers.join(name);
        if path.is_file() {
            return Some(path);
        }
        let missing = format!("{name} DOES NOT TAKE PART: install it with bench/peers.sh");
        // Both who watches the run and who reads its record shall know.
        println!("{missing}");
        eprintln!("{missing}");
        None
    }

    /// Generates a file of input.
    fn write(&self, name: &str, text: Text) -> Result<PathBuf, Box<dyn Error>> {
        let path = self.folder.path(name);
        let start = Instant::now();
        Lines::new(text).write(&path)?;
        eprintln!("{name}: {} lines in {:.1?}", text.lines(), start.elapsed());
        Ok(path)
    }
}

/// The command that half as many distinct lines as there are lines are planned for. It is run as it
/// is printed.
fn planned_name(lines: u64) -> String {
    format!("inbloom dedup -n {} -p {PLANNED_RATE_TEXT}", amount(lines / 2))
}

/// 2500000 as 2.5M: a count as one would type it.
fn amount(count: u64) -> String {
    if count >= 1_000_000 { format!("{}M", count as f64 / 1e6) } else { report::count(count) }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Which awk is installed: mawk and gawk differ by much.
fn awk() -> String {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .find_map(|folder| folder.join("awk").canonicalize().ok())
        .and_then(|awk| Some(awk.file_name()?.to_string_lossy().into_owned()))
        .unwrap_or_else(|| "missing".to_string())
}

/// A folder that goes when the benchmark ends.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn create(path: PathBuf) -> Result<Folder, Box<dyn Error>> {
        if path.exists() {
            eprintln!("{} was left by an interrupted run and is removed", path.display());
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} stays behind, remove it: {error}", self.0.display());
        }
    }
}
