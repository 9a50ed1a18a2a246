//! `inbloom measure`: measures the false-positive rate of a plan or of a filter's file.
//!
//! **A plan** has a target rate that holds on average over all sets of keys. A single small filter
//! may be well above or below it by chance (the rate of 100 keys at 1% varies by some 15%). So
//! several filters are filled with different keys, until their variation is small beside that of
//! the queries: a hundred keys for each expected false positive. The rate of n keys varies by about
//! 1.3 to 3 / sqrt(n) of itself, that of h false positives by 1 / sqrt(h).
//!
//! **A file** is one filter. Its target is exceeded only if its rate is above what a filter with
//! the planned number of keys may reach by chance. `info` uses the same limit.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use inbloom::internals::splitmix::SplitMix;
use inbloom::{Digest, Estimate, Kind, Measurement, Plan, measure};
use inbloom_redis::Address;
use inbloom_server::units;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::blocks::{InOrder, Job};
use crate::filter_file::OpenArgs;
use crate::keys::{Digests, InputArgs};
use crate::output::problem;
use crate::progress::{Beside, Progress};
use crate::remote::{self, Queried, RedisArgs};
use crate::sizing::{Sizing, kind_parser};
use crate::{filter_file, numbers, output, overfull};

/// Measure the false-positive rate of a plan or a filter, and compare it with its target
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
#[command(override_usage = "inbloom measure -n <N> -p <P> [OPTIONS]\n       \
                            inbloom measure [OPTIONS] <FILTER> [FILES]...")]
#[command(mut_arg("files", |files| files.help(FILES_HELP)))]
pub struct Args {
    /// The filter's file, or the name of its shards: seen.ib for seen.000-of-016.ib and so on; or its
    /// address, redis://host/NAME. Without one, filters of the plan of -n, -p and so on are filled
    #[arg(conflicts_with_all = ["Sizing", "kind"])]
    filter: Option<PathBuf>,

    /// Kind of the plan [default: blocked]
    #[arg(long, value_parser = kind_parser())]
    kind: Option<Kind>,

    /// Number of absent keys to query [default: for 1,000 false positives, at most 10 million]
    #[arg(long, value_name = "N", value_parser = units::parse_count)]
    #[arg(conflicts_with_all = ["long", "files"])]
    queries: Option<u64>,

    /// Query up to a billion absent keys if the rate is low, which takes minutes
    #[arg(long, conflicts_with = "files")]
    long: bool,

    /// Seed of the random keys
    #[arg(long, value_name = "S", default_value_t = 0, conflicts_with = "files")]
    seed: u64,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    open: OpenArgs,

    // These last: their headings hold for all options that follow.
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    sizing: Sizing,

    #[command(flatten)]
    redis: RedisArgs,
}

const FILES_HELP: &str = "\
Files of keys that are not in the filter, one per line, also compressed; - for standard input. \
Without files, keys of 16 random bytes are queried";

const AFTER_HELP: &str = "\
With -n and -p, filters of that plan are created in memory, filled, and queried with keys that are
not in them. A filter's file is queried with a list of keys that you know to be absent, or with
random keys. Keys get the filter's normalization. The interval contains the true rate with 99%
confidence.

The verdict is 'exceeded' if there were more false positives than chance explains (four standard
deviations), and 'met' otherwise. It is 'undecided' if fewer than 10 were expected. For a file, the
limit is what a filter with the planned number of keys reaches by chance.

Examples:
  inbloom measure -n 1M -p 0.001
  inbloom measure -n 100M -p 1e-6 --kind classic --long
  inbloom measure seen.ib                           random keys
  inbloom measure seen.ib absent.txt.gz             keys that were never inserted
  inbloom measure --json seen.ib | jq .verdict
  inbloom measure redis://localhost/seen

Exit status:
  0  the target was met, or it is undecided
  1  the target was exceeded
  2  an error";

/// False positives to be expected: with 1,000, the interval is 8% of the rate to both sides.
const ENOUGH: f64 = 1_000.0;
/// With fewer to be expected a rate twice as high would not be noticed.
const TOO_FEW: f64 = 10.0;
/// Keys inserted for each false positive, see the top.
const KEYS_FOR_EACH: f64 = 100.0;
const MOST_QUERIES: u64 = 10_000_000;
const MOST_QUERIES_LONG: u64 = 1_000_000_000;

pub fn run(args: &Args) -> Result<ExitCode> {
    let report = match &args.filter {
        Some(path) => match remote::address_of(path)? {
            Some(address) => on_redis(args, &address)?,
            None => of_file(args, path)?,
        },
        None => of_plan(args)?,
    };
    let text = match args.json {
        true => format!("{:#}\n", report.as_json()),
        false => report.as_text(),
    };
    output::print(text.as_bytes())?;
    Ok(match report.verdict() {
        Verdict::Met | Verdict::Undecided => ExitCode::SUCCESS,
        Verdict::Exceeded => ExitCode::from(1),
    })
}

struct Report {
    plan: Plan,
    /// How many filters were filled, or None for one in a file.
    filters: Option<u64>,
    /// Whether the keys that were queried are those of a list, which may have members among them.
    is_list: bool,
    measured: Measurement,
    /// The highest rate that is within the target.
    allowed: f64,
    /// The keys that a filter holds, by its bits if they can tell, where they are more than it was
    /// planned for.
    overfull: Option<Option<u64>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Met,
    Exceeded,
    Undecided,
}

fn of_plan(args: &Args) -> Result<Report> {
    if args.open.has_key() {
        bail!(problem(
            "--key-file only works for a filter in a file",
            "name the file, or leave --key-file out"
        ));
    }
    let plan = args.sizing.plan(args.kind.unwrap_or_default())?;
    let queries = args.queries(&plan)?;
    let expected = plan.rate() * queries as f64;
    let filters = (KEYS_FOR_EACH * expected / plan.items() as f64).ceil() as u64;
    let filters = filters.clamp(1, queries);
    let spinner = Spinner::new();
    let (mut inserted, mut probed, mut false_positives) = (0, 0, 0);
    for index in 0..filters {
        // As even as can be.
        let share = queries / filters + u64::from(index < queries % filters);
        // Far apart, so that no other seed shares a filter's keys with this one.
        let seed = args.seed.wrapping_add(index << 32);
        let one = measure(&plan, share, seed)?;
        inserted += one.inserted;
        probed += one.probed;
        false_positives += one.false_positives;
    }
    drop(spinner);
    let measured = Measurement::new(inserted, probed, false_positives, plan.rate());
    let allowed = plan.rate();
    Ok(Report { plan, filters: Some(filters), is_list: false, measured, allowed, overfull: None })
}

fn of_file(args: &Args, path: &Path) -> Result<Report> {
    let filter = args.open.open_all_now(path)?;
    let (inserted, rate, estimate) = (filter.inserted(), filter.rate(), filter.estimated_items());
    let overfull =
        filter_file::exceeds_promise(&filter).then(|| overfull::holds(inserted, rate, estimate));
    // Where no target is recorded, the rate that follows from the bits is put to the test.
    let (target, items) = match filter_file::has_target(&filter) {
        true => (filter.plan().rate(), filter.plan().items() as f64),
        false => (rate, estimate.items),
    };
    let holds = Holds { inserted, estimate, target, items, overfull };
    of_one(args, Queried::Local(Box::new(filter)), holds)
}

fn on_redis(args: &Args, address: &Address) -> Result<Report> {
    let filter = args.redis.open(address, args.open.key()?.as_ref())?;
    let (plan, estimate) = (*filter.plan(), filter.estimate()?);
    // Redis does not count keys: what the bits tell is what is known.
    let inserted = estimate.items.round() as u64;
    let exceeds = estimate.items - 3.0 * estimate.error > plan.items() as f64;
    let overfull =
        exceeds.then(|| overfull::holds(inserted, plan.rate_at(estimate.items), estimate));
    let (target, items) = (plan.rate(), plan.items() as f64);
    let holds = Holds { inserted, estimate, target, items, overfull };
    of_one(args, Queried::Remote(Box::new(filter)), holds)
}

/// What is known of a filter before it is asked.
struct Holds {
    inserted: u64,
    estimate: Estimate,
    /// The target rate, and the keys that it is for.
    target: f64,
    items: f64,
    overfull: Option<Option<u64>>,
}

/// Asks one filter.
fn of_one(args: &Args, filter: Queried, holds: Holds) -> Result<Report> {
    let Holds { inserted, estimate, target, items, overfull } = holds;
    let plan = *filter.plan();
    let asked = match args.input.files.is_empty() {
        true => ask_random(args, &filter)?,
        false => ask_lines(args, &filter)?,
    };
    let measured = Measurement::new(inserted, asked.probed, asked.claimed, target);
    let allowed = target.max(plan.rate_at(items + 3.0 * estimate.error));
    let is_list = !args.input.files.is_empty();
    Ok(Report { plan, filters: None, is_list, measured, allowed, overfull })
}

impl Args {
    /// How many keys to ask for.
    fn queries(&self, plan: &Plan) -> Result<u64> {
        if let Some(queries) = self.queries {
            ensure!(queries > 0, "--queries is 0, the minimum is 1");
            return Ok(queries);
        }
        let most = if self.long { MOST_QUERIES_LONG } else { MOST_QUERIES };
        // A rate of 0 takes all that is allowed: an infinite f64 becomes the largest u64.
        Ok(most.min((ENOUGH / plan.rate()).ceil() as u64))
    }
}

/// What a filter says to absent keys.
#[derive(Default)]
struct Asked {
    probed: u64,
    claimed: u64,
}

impl Asked {
    fn ask(&mut self, filter: &Queried, digests: &[Digest], answers: &mut Vec<bool>) -> Result<()> {
        filter.contains_digests(digests, answers)?;
        self.probed += answers.len() as u64;
        self.claimed += answers.iter().map(|claimed| u64::from(*claimed)).sum::<u64>();
        Ok(())
    }
}

fn ask_random(args: &Args, filter: &Queried) -> Result<Asked> {
    let plan = filter.plan();
    ensure!(
        !plan.kind().is_exact(),
        problem(
            "a bitmap is exact, so its rate is 0",
            "to test it, pass a list of integers that are not in it"
        )
    );
    let queries = args.queries(plan)?;
    let _spinner = Spinner::new();
    let mut random = SplitMix(args.seed);
    let mut asked = Asked::default();
    let (mut digests, mut answers) = (Vec::new(), Vec::new());
    while asked.probed < queries {
        let some = (queries - asked.probed).min(1 << 16);
        digests.clear();
        let enough = some as usize * filter.hasher().digests_per_key();
        while digests.len() < enough {
            let key = random_key(&mut random);
            if is_of_shard(plan, filter.hasher().digest(key)) {
                filter.hasher().append_digests(key, &mut digests);
            }
        }
        asked.ask(filter, &digests, &mut answers)?;
    }
    Ok(asked)
}

fn ask_lines(args: &Args, filter: &Queried) -> Result<Asked> {
    let plan = filter.plan();
    let inputs = args.input.inputs();
    let reader = args.input.reader(&inputs);
    let mut progress = Progress::new("measuring", &inputs, &reader, Beside::Nothing);
    let keys = filter.keys(&args.input)?;
    let digests = move |block: &_, digests: &mut _| keys.digests(block, digests);
    let mut jobs = InOrder::new(reader, args.input.threads(), digests);
    let mut asked = Asked::default();
    let mut answers = Vec::new();
    while let Some(job) = jobs.next() {
        let job: &mut Job<Digests> = job.map_err(|failure| failure.error)?;
        let digests = &mut job.product;
        digests.retain(|digest| is_of_shard(plan, *digest));
        asked.ask(filter, digests, &mut answers)?;
        progress.step(job.block.len());
    }
    Ok(asked)
}

/// A shard's file alone lacks the keys of the others, which says nothing about its rate.
fn is_of_shard(plan: &Plan, digest: Digest) -> bool {
    let shard = plan.shard();
    shard.is_none_or(|(shard, shards)| digest.pick(shards.into()).0 == u64::from(shard))
}

/// Returns a key that nobody has inserted: 16 random bytes.
fn random_key(random: &mut SplitMix) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&random.draw().to_le_bytes());
    key[8..].copy_from_slice(&random.draw().to_le_bytes());
    key
}

impl Report {
    /// How many false positives a filter at its target rate would have shown.
    fn expected(&self) -> f64 {
        self.measured.target * self.measured.probed as f64
    }

    fn verdict(&self) -> Verdict {
        let measured = &self.measured;
        let exact = measured.target == 0.0 && measured.probed > 0;
        let allowed = self.allowed * measured.probed as f64;
        if exceeds_chance(measured.false_positives, allowed) {
            Verdict::Exceeded
        } else if self.expected() < TOO_FEW && !exact {
            Verdict::Undecided
        } else {
            Verdict::Met
        }
    }

    fn as_text(&self) -> String {
        let (exact, keys, rate) = (numbers::exact, numbers::keys, numbers::rate);
        let measured = &self.measured;
        let inserted = match self.filters {
            Some(filters @ 2..) => {
                format!(
                    "{} in each of {} filters",
                    keys(measured.inserted / filters),
                    exact(filters)
                )
            }
            _ => keys(measured.inserted),
        };
        let absent = if self.is_list { "taken as absent" } else { "all absent" };
        let queried = format!("{}, {absent}", keys(measured.probed));
        let interval = format!("99% confidence: {} to {}", rate(measured.low), rate(measured.high));
        let rows = [
            ("kind", self.plan.kind().to_string()),
            ("planned", keys(self.plan.items())),
            ("inserted", inserted),
            ("queried", queried),
            ("false positives", exact(measured.false_positives)),
            ("measured rate", format!("{}, {interval}", rate(measured.rate))),
            ("target rate", rate(measured.target)),
            ("verdict", self.verdict_text()),
        ];
        rows.map(|(label, value)| format!("{label:<15} {value}\n")).concat()
    }

    fn verdict_text(&self) -> String {
        let measured = &self.measured;
        match self.verdict() {
            Verdict::Met if measured.low > measured.target => {
                "met: above the target, but within chance".to_string()
            }
            Verdict::Met => "met".to_string(),
            Verdict::Exceeded => match (self.overfull, self.filters) {
                (Some(holds), _) => {
                    let holds = holds.map_or("far more keys than planned".to_string(), |holds| {
                        format!("about {}", numbers::keys(holds))
                    });
                    format!("EXCEEDED: the filter holds {holds}; build it again with a larger -n")
                }
                (None, None) => "EXCEEDED, unless some of these keys are in the filter".to_string(),
                (None, Some(_)) => "EXCEEDED".to_string(),
            },
            Verdict::Undecided => format!(
                "undecided: only {} false positives were expected; pass more keys",
                numbers::significant(self.expected()),
            ),
        }
    }

    fn as_json(&self) -> Value {
        let measured = &self.measured;
        let verdict = match self.verdict() {
            Verdict::Met => "met",
            Verdict::Exceeded => "exceeded",
            Verdict::Undecided => "undecided",
        };
        json!({
            "kind": self.plan.kind().to_string(),
            "planned_items": self.plan.items(),
            "filters": self.filters.unwrap_or(1),
            "inserted": measured.inserted,
            "probed": measured.probed,
            "false_positives": measured.false_positives,
            "expected_false_positives": self.expected(),
            "measured_rate": measured.rate,
            "low": measured.low,
            "high": measured.high,
            "confidence": 0.99,
            "target_rate": measured.target,
            "verdict": verdict,
        })
    }
}

/// Whether there are more false positives than chance explains where so many are to be expected.
///
/// The interval that is shown would not do for an alarm: with 99% confidence, it is above the true
/// rate of one in 200 good filters. The square root of a count scatters by 1/2 whatever the count
/// (Bartlett 1936), so this is four deviations: one in some 30,000. And what is exact is refuted by
/// a single error.
fn exceeds_chance(false_positives: u64, expected: f64) -> bool {
    if expected == 0.0 {
        return false_positives > 0;
    }
    (false_positives as f64).sqrt() - expected.sqrt() > 2.0
}

/// Shows on a terminal that something is going on, and for how long.
struct Spinner(ProgressBar);

impl Spinner {
    fn new() -> Spinner {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("inbloom: measuring, {elapsed}");
        bar.set_style(style.expect("the template is correct"));
        bar.enable_steady_tick(Duration::from_millis(500));
        Spinner(bar)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_takes_more_than_chance() {
        for (false_positives, expected) in
            [(0, 0.0), (0, 0.01), (1, 0.01), (3, 0.5), (20, 10.0), (1_085, 1_000.0), (900, 1_000.0)]
        {
            assert!(!exceeds_chance(false_positives, expected), "{false_positives} of {expected}");
        }
        for (false_positives, expected) in
            [(1, 0.0), (5, 0.01), (30, 10.0), (1_140, 1_000.0), (2_000, 1_000.0)]
        {
            assert!(exceeds_chance(false_positives, expected), "{false_positives} of {expected}");
        }
    }
}
