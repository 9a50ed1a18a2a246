//! Queries of filters of other programs: inbloom in batches and one by one, against the programs
//! themselves: Guava on the Java that is here, in a loop that is warm; willf/bloom by Go's testing.B;
//! DataSketches' library for Rust. All have the same file, and must find the same number of keys.
//!
//!   cargo run --release
//!
//! Debian's packages have what is needed: default-jdk-headless, libguava-java, golang-go and
//! golang-github-willf-bloom-dev.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use datasketches::bloom::BloomFilter;
use datasketches::hash::value::raw_bytes;
use inbloom::Filter;
use inbloom::interop::{Container, Format};
use inbloom_testing::Random;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Rounds, in which all take turns; the medians are printed.
const ROUNDS: usize = 7;
/// Keys that are asked for in a round.
const ASKED: usize = 1 << 19;
const GUAVA: &str = "/usr/share/java/guava.jar";
const GO: &str = "/usr/share/gocode";

/// What is measured against.
enum Peer {
    Program { child: Child, input: ChildStdin, output: BufReader<ChildStdout> },
    Library(BloomFilter),
}

impl Peer {
    fn start(command: &mut Command) -> Result<Peer> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Peer::Program { child, input, output })
    }

    /// A round: the nanoseconds of a key, and how many were found.
    fn round(&mut self, keys: &[Vec<u8>]) -> Result<(f64, usize)> {
        match self {
            Peer::Program { input, output, .. } => {
                input.write_all(b"\n")?;
                let mut line = String::new();
                output.read_line(&mut line)?;
                let (nanos, found) = line.trim().split_once(' ').ok_or("no answer")?;
                Ok((nanos.parse()?, found.parse()?))
            }
            Peer::Library(filter) => {
                let start = Instant::now();
                let found =
                    keys.iter().filter(|key| filter.contains(&raw_bytes::from_slice(key))).count();
                Ok((nanos_of_a_key(start), found))
            }
        }
    }

    fn end(self) -> Result<()> {
        if let Peer::Program { mut child, input, .. } = self {
            drop(input);
            child.wait()?;
        }
        Ok(())
    }
}

fn nanos_of_a_key(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e9 / ASKED as f64
}

fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("inbloom-bench-foreign-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let measured = measure_all(&folder);
    fs::remove_dir_all(&folder)?;
    measured
}

fn measure_all(folder: &Path) -> Result<()> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let go = folder.join("willf");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&go)
        .arg(sources.join("willf.go"))
        .envs([("GO111MODULE", "off"), ("GOPATH", GO), ("GOFLAGS", "")])
        .env("GOCACHE", folder.join("cache"))
        .status()?;
    if !built.success() {
        return Err("willf.go does not compile".into());
    }
    println!(
        "ns for a key: median of {ROUNDS} rounds in turns, {ASKED} keys each, half of them in"
    );
    println!();
    println!(
        "| program | keys in | bytes | key | itself | inbloom, single | inbloom, batch | ratio, batch |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for items in [100_000, 10_000_000] {
        for (kind, key) in [("u64", u64_key as fn(u64) -> Vec<u8>), ("URL", url_key)] {
            for format in ["guava", "go", "datasketches"] {
                let file = folder.join("filter");
                let (filter, keys) = prepare(format, items, key, &file)?;
                let listed = folder.join("keys");
                let mut peer = match format {
                    "guava" => Peer::start(
                        Command::new("java")
                            .args(["-Xmx1g", "-cp", GUAVA])
                            .arg(sources.join("Guava.java"))
                            .args([&file, &listed]),
                    )?,
                    "go" => Peer::start(Command::new(&go).args([&file, &listed]))?,
                    _ => Peer::Library(BloomFilter::deserialize(&fs::read(&file)?)?),
                };
                measure(format, items, kind, &filter, &keys, &mut peer)?;
                peer.end()?;
            }
        }
    }
    Ok(())
}

fn u64_key(number: u64) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

fn url_key(number: u64) -> Vec<u8> {
    format!("https://www.example.com/{:x}/{number:x}.html", number % 977).into_bytes()
}

/// Writes a filter, and the keys that are asked for beside it.
fn prepare(
    format: &str,
    items: u64,
    key: fn(u64) -> Vec<u8>,
    file: &Path,
) -> Result<(Filter, Vec<Vec<u8>>)> {
    let format: Format = format.parse()?;
    let mut filter = Filter::for_format(Container::from(format), items, 0.01)?;
    let member = |number: u64| key(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for number in 0..items {
        filter.insert(member(number))?;
    }
    filter.save(file)?;
    let mut random = Random(items);
    let keys: Vec<Vec<u8>> = (0..ASKED).map(|_| member(random.below(2 * items))).collect();
    let mut listed = Vec::new();
    for key in &keys {
        listed.extend((key.len() as u32).to_be_bytes());
        listed.extend(key);
    }
    fs::write(file.with_file_name("keys"), listed)?;
    Ok((filter, keys))
}

fn measure(
    format: &str,
    items: u64,
    kind: &str,
    filter: &Filter,
    keys: &[Vec<u8>],
    peer: &mut Peer,
) -> Result<()> {
    let mut times = [const { Vec::new() }; 3];
    let mut found = Vec::new();
    for _ in 0..ROUNDS {
        let (nanos, theirs) = peer.round(keys)?;
        times[0].push(nanos);
        let start = Instant::now();
        let single = keys.iter().filter(|key| filter.contains(key)).count();
        times[1].push(nanos_of_a_key(start));
        let start = Instant::now();
        filter.contains_many(keys, &mut found);
        times[2].push(nanos_of_a_key(start));
        let batch = black_box(&found).iter().filter(|found| **found).count();
        assert!(theirs == single && single == batch, "{format}: {theirs}, {single}, {batch} found");
    }
    let [theirs, single, batch] = times.map(|mut times| {
        times.sort_unstable_by(f64::total_cmp);
        times[ROUNDS / 2]
    });
    let (ratio, bytes) = (theirs / batch, filter.bytes());
    println!(
        "| {format} | {items} | {bytes} | {kind} | {theirs:.1} | {single:.1} | {batch:.1} | {ratio:.2} |"
    );
    Ok(())
}
