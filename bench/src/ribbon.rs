//! The ribbon in one race with other filters that are built once, and with our Bloom filters.
//!
//! Keys are digests, so that no hash decides. All but one have fingerprints, or a rate, of 14 bits
//! (6.1e-5); xorf has 8 or 16, and a ribbon of 16 stands beside it. A ribbon of exactly 0.01% shows
//! what two widths save. `build` is the processor time of all threads, from digests to the filter.

use std::error::Error;
use std::io::{self, Write};

use clap::Args;
use inbloom::{Digest, Kind};

use crate::ours;
use crate::peers;
use crate::race::{self, Entrant, Op};
use crate::report;
use crate::sizing::{Sizes, absent_keys};
use crate::table::count;
use crate::workload::Workload;

/// Options of `ribbon`.
#[derive(Args)]
pub(crate) struct Options {
    /// Numbers of members; 100M take 7 GB of memory.
    #[arg(
        short = 'n',
        long = "n",
        value_delimiter = ',',
        value_parser = count,
        default_value = "10M,100M"
    )]
    items: Vec<u64>,
    /// Rounds to take the median of.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// One round of a million members, in some seconds.
    #[arg(long, conflicts_with_all = ["items", "rounds"])]
    quick: bool,
}

const QUICK: u64 = 1_000_000;

/// The contestants that the verdicts are about.
const RIBBON: &str = "ribbon, 14 bits";
const RIBBON_16: &str = "ribbon, 16 bits";
const RIBBON_MAPPED: &str = "ribbon, 14 bits, mapped";
const XORF: &str = "xorf fuse16";
const RIBBON_EXACT: &str = "ribbon, 0.01%";
const CLASSIC: &str = "inbloom classic";

/// The rate that most of them have.
const RATE: f64 = 1.0 / (1 << 14) as f64;

const COLUMNS: [(&str, Op); 5] = [
    ("build", Op::Insert),
    ("hit", Op::Hit),
    ("miss", Op::Miss),
    ("hit-batch", Op::HitBatch),
    ("miss-batch", Op::MissBatch),
];

/// Runs the races and prints each when it is over.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let (sizes, rounds) =
        if options.quick { (&[QUICK][..], 1) } else { (options.items.as_slice(), options.rounds) };
    for items in sizes {
        let work = Workload::<Digest>::whole(*items);
        let mut entrants = entrants(*items);
        race::run(&mut entrants, &work, &COLUMNS.map(|(_, op)| op), &mut [], RATE, rounds);
        print(&entrants, *items, rounds, &mut io::stdout().lock())?;
    }
    Ok(())
}

fn entrants(items: u64) -> Vec<Entrant<Digest>> {
    let ours = [
        (RIBBON, Kind::Ribbon, RATE),
        (RIBBON_16, Kind::Ribbon, RATE / 4.0),
        (RIBBON_EXACT, Kind::Ribbon, 1e-4),
        (CLASSIC, Kind::Classic, RATE),
        (ours::BLOCKED, Kind::Blocked, RATE),
    ];
    let ours = ours.map(|(who, kind, rate)| {
        let plan = ours::plan(kind, items, rate);
        (ours::built(who, plan), plan.rate_at(items as f64))
    });
    let plan = ours::plan(Kind::Ribbon, items, RATE);
    let mapped = (ours::mapped(RIBBON_MAPPED, plan), plan.rate_at(items as f64));
    let all = ours.into_iter().chain([mapped]).chain(peers::built_once());
    all.map(|(candidate, rate)| candidate.enter(items, rate, &mut Sizes::default())).collect()
}

fn print(
    entrants: &[Entrant<Digest>],
    items: u64,
    rounds: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(
        out,
        "\n{} digests: ns per key, median of {rounds}; rates over {} absent keys",
        report::count(items),
        absent_keys(RATE)
    )?;
    write!(out, "{:<24}{:>10}{:>10}", "", "rate", "bits/key")?;
    for (name, _) in COLUMNS {
        write!(out, "{name:>12}")?;
    }
    writeln!(out, "  note")?;
    for entrant in entrants {
        let bits = entrant.bits() as f64 / items as f64;
        write!(out, "{:<24}{:>9.5}%{bits:>10.3}", entrant.who, entrant.measured_rate() * 100.0)?;
        for (_, op) in COLUMNS {
            match entrant.ns(op) {
                Some(ns) => write!(out, "{ns:>12.2}")?,
                None => write!(out, "{:>12}", "-")?,
            }
        }
        writeln!(out, "  {}", entrant.note)?;
    }
    print_verdicts(entrants, items, out)
}

/// What the ribbon is to be: the smallest, at any rate that another has, and in batches faster than
/// a classic Bloom filter that is asked for members.
fn print_verdicts(
    entrants: &[Entrant<Digest>],
    items: u64,
    out: &mut impl Write,
) -> io::Result<()> {
    let find = |who| {
        let entrant = entrants.iter().find(|entrant| entrant.who == who);
        entrant.expect("all contestants take part")
    };
    let bits = |entrant: &Entrant<Digest>| entrant.bits() as f64 / items as f64;
    let (ribbon, wider) = (find(RIBBON), find(RIBBON_16));
    for other in entrants.iter().filter(|other| !other.who.starts_with("ribbon")) {
        let peer = if other.who.starts_with("xorf") { wider } else { ribbon };
        let ratio = bits(other) / bits(peer);
        let verdict = if ratio > 1.0 { "smaller" } else { "NOT SMALLER" };
        writeln!(
            out,
            "{} size: {} {:.3} / {:.3} = {ratio:.3}  {verdict}",
            peer.who,
            other.who,
            bits(other),
            bits(peer)
        )?;
    }
    // What it is held to beside a filter of 18 bits: more bits for faster single calls.
    let (fuse, mapped) = (find(XORF), find(RIBBON_MAPPED));
    for (what, here, ours, there, theirs, most) in [
        ("batch", ribbon, Op::HitBatch, fuse, Op::Hit, 0.6),
        ("batch", ribbon, Op::MissBatch, fuse, Op::Miss, 0.6),
        ("single", ribbon, Op::Hit, fuse, Op::Hit, 1.3),
        ("single", ribbon, Op::Miss, fuse, Op::Miss, 1.3),
        ("build", ribbon, Op::Insert, fuse, Op::Insert, 1.1),
        ("mapped", mapped, Op::HitBatch, ribbon, Op::HitBatch, 1.05),
        ("mapped", mapped, Op::MissBatch, ribbon, Op::MissBatch, 1.05),
        ("mapped", mapped, Op::Hit, ribbon, Op::Hit, 1.05),
        ("mapped", mapped, Op::Miss, ribbon, Op::Miss, 1.05),
    ] {
        let (Some(left), Some(right)) = (here.ns(ours), there.ns(theirs)) else { continue };
        let ratio = left / right;
        let verdict = if ratio <= most { "met" } else { "NOT MET" };
        writeln!(
            out,
            "{what}: {} {} / {} {} = {left:.2} / {right:.2} = {ratio:.2}, at most {most}  {verdict}",
            here.who,
            ours.name(),
            there.who,
            theirs.name(),
        )?;
    }
    let classic = find(CLASSIC);
    for (ours, theirs) in [
        (Op::HitBatch, Op::Hit),
        (Op::MissBatch, Op::Hit),
        (Op::HitBatch, Op::HitBatch),
        (Op::MissBatch, Op::HitBatch),
    ] {
        let (Some(here), Some(there)) = (ribbon.ns(ours), classic.ns(theirs)) else { continue };
        let verdict = if here < there { "faster" } else { "NOT FASTER" };
        writeln!(
            out,
            "{RIBBON} {}: {CLASSIC} {} {there:.2} / {here:.2} = {:.2}  {verdict}",
            ours.name(),
            theirs.name(),
            there / here
        )?;
    }
    out.flush()
}
