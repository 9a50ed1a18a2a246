//! `inbloom add`: lines into a filter that exists.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Error, Result, ensure};
use inbloom::{Filter, Hasher};
use inbloom_redis::{Added, Address, PyreBloom};

use crate::edit::{self, Edit, Tally};
use crate::filter_file::{self, OpenArgs};
use crate::keys::{Digests, InputArgs};
use crate::lock::WaitArgs;
use crate::normalize::Normalization;
use crate::output::{Problem, problem};
use crate::overfull::{self, Filling, Overfull};
use crate::remote::{self, Inserter, PyreBloomArgs, RedisArgs};
use crate::{numbers, output};

/// Insert keys into an existing filter, one per line, and print how many were new
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The filter's file, replaced when all keys are in; or its address, redis://host/NAME
    filter: PathBuf,

    /// What happens when more keys come than the filter was planned for [default: stop]
    #[arg(long, value_name = "WHAT")]
    overfull: Option<Overfull>,

    #[command(flatten)]
    wait: WaitArgs,

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

const AFTER_HELP: &str = "\
Prints 'N new of M keys'. The other keys were probably in the filter before, or came twice. Keys
get the normalization that is recorded in the filter ('build --normalize'). For a bitmap, lines are
integers. For a window of time, all keys count as seen now, even those that it already has.

More keys than planned would raise the rate above its target. 'add' then stops, reports how many
keys came, and does not change the file. A filter that was built to grow ('build --overfull grow',
and every filter of dedup) grows instead and keeps its rate. With --overfull grow, a filter that is
not too full yet grows too. With --overfull continue, all keys go in, the rate rises, and a warning
is printed.

The file is replaced as a whole. After any error it is as it was. If another program is changing
it, that is an error too, unless --wait is given.

A filter on Redis takes keys from several programs at once. Its size is fixed. After an error some
of the keys are in it; adding them again does no harm. With --pyrebloom it is a filter of that Python
module, which other programs may change at the same time.

Examples:
  inbloom add seen.ib new.txt              the lines of new.txt
  inbloom add seen.ib monday.gz tuesday.zst
  inbloom add --csv -f 3 seen.ib log.csv   the third field of every record
  inbloom add redis://localhost/seen new.txt
  inbloom add --pyrebloom 100000,0.01 redis://localhost/seen new.txt
  inbloom check -v seen.ib new.txt | tee fresh.txt | inbloom add seen.ib

Exit status:
  0  the keys are in the filter
  2  an error; the filter was not changed, except on Redis, or if only the result could not be
     printed";

pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(address) = remote::address_of(&args.filter)? {
        args.pyrebloom.refuse_beside(&[
            ("--overfull", args.overfull.is_some()),
            ("--wait", args.wait.is_given()),
            ("--key-file", args.open.has_key()),
        ])?;
        return match args.pyrebloom.pyrebloom {
            Some(size) => add_to_pyrebloom(args, &address, size.open(&address, &args.redis)?),
            None => add_on_redis(args, &address),
        };
    }
    args.pyrebloom.refuse()?;
    let mut change = Edit::open(&args.filter, &args.open, args.wait)?;
    if change.filter.plan().kind().is_static() {
        // Any key will do: the library refuses it, in its own words.
        change.filter.insert("").with_context(|| args.filter.display().to_string())?;
    }
    let named = || args.filter.display().to_string();
    let filter = &change.filter;
    let overfull =
        Overfull::decide_for(filter, args.overfull, Overfull::Stop).with_context(named)?;
    let before = Before {
        inserted: filter.inserted(),
        holds: overfull::holds(filter.inserted(), filter.rate(), filter.estimated_items()),
        can_grow: overfull::can_grow(filter),
    };
    if overfull == Overfull::Grow {
        change = change.growing().with_context(named)?;
    }
    let keys = args.input.keys_for(&change.filter)?.for_inserts(&change.filter);
    let (mut filling, mut new) = (Filling::new(overfull, &change.filter), Vec::new());
    let tally = change.by_lines("adding", &args.input, keys, |filter, digests| {
        filling.insert(filter, digests, &mut new)
    })?;
    if filling.is_over() {
        let unchanged = format!("{} was not changed", args.filter.display());
        return Err(Error::from(before.refuse(&change, tally)).context(unchanged));
    }
    change.save(tally)?;
    let (new, read) = (numbers::exact(tally.changed), numbers::keys(tally.read));
    output::print(format!("{new} new of {read}{}\n", tally.missing()).as_bytes())?;
    let filter = &change.filter;
    if filter.inserted() < before.inserted + tally.changed {
        output::say(format_args!(
            "the filter emptied itself (auto-clear) and holds only the last {}",
            numbers::keys(filter.inserted()),
        ));
    } else if filling.has_warned() || tally.changed > 0 && filter_file::exceeds_promise(filter) {
        output::warn(&before.warning(filter, tally));
    }
    Ok(ExitCode::SUCCESS)
}

fn add_on_redis(args: &Args, address: &Address) -> Result<ExitCode> {
    ensure!(
        args.overfull != Some(Overfull::Grow),
        problem(
            "a filter on Redis has a fixed size and cannot grow",
            "pass --overfull stop or continue"
        )
    );
    ensure!(
        !args.wait.is_given(),
        problem(
            "--wait only works for files: several programs can change a filter on Redis at once",
            "leave --wait out"
        )
    );
    let filter = args.redis.open(address, args.open.key()?.as_ref())?;
    let keys = args.input.keys_like(*filter.hasher(), filter.normalization())?;
    let room = match args.overfull {
        Some(Overfull::Continue) => u64::MAX,
        _ => remote::room(&filter)?,
    };
    let mut inserter = Inserter::new(&filter, room);
    let insert = |inserter: &mut Inserter<'_>, digests: &Digests| inserter.insert(digests);
    let tally = edit::by_lines(&mut inserter, "adding", &args.input, keys, insert)
        .with_context(|| address.to_string())?;
    print_added(tally, inserter.unknown)
}

/// Adds keys to a filter of pyreBloom. Such a filter does not record its keys, so it cannot stop
/// when it is full.
fn add_to_pyrebloom(args: &Args, address: &Address, mut filter: PyreBloom) -> Result<ExitCode> {
    let keys = args.input.keys(Hasher::default(), Normalization::default())?.keeping_bytes();
    let (mut answers, mut unknown) = (Vec::new(), 0);
    let insert = |filter: &mut PyreBloom, keys: &Digests| {
        filter.insert_many(keys.bytes(), &mut answers)?;
        let count = |which| answers.iter().filter(|answer| **answer == which).count() as u64;
        unknown += count(Added::Unknown);
        Ok(count(Added::New))
    };
    let tally = edit::by_lines(&mut filter, "adding", &args.input, keys, insert)
        .with_context(|| address.to_string())?;
    print_added(tally, unknown)
}

/// Prints how many keys were new on Redis, and for how many that is unknown.
fn print_added(tally: Tally, unknown: u64) -> Result<ExitCode> {
    let (new, read) = (numbers::exact(tally.changed), numbers::keys(tally.read));
    output::print(format!("{new} new of {read}{}\n", tally.missing()).as_bytes())?;
    if unknown > 0 {
        output::say(format_args!(
            "{} more were inserted, but connections to Redis broke before it reported how many of \
             them were new",
            numbers::keys(unknown),
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The state of a filter before keys were added to it.
struct Before {
    inserted: u64,
    /// The largest number of keys that it held, if its bits showed it.
    holds: Option<u64>,
    can_grow: bool,
}

impl Before {
    /// Returns the error for too many keys.
    fn refuse(&self, change: &Edit, tally: Tally) -> Problem {
        let plan = change.filter.plan();
        problem(
            format!(
                "it was planned for {} and holds {}; with the {} that came its rate would rise \
                 above the target of {}",
                numbers::keys(plan.items()),
                numbers::exact(self.inserted),
                numbers::keys(tally.read),
                numbers::rate(plan.rate())
            ),
            format!(
                "build it again with {}, or pass --overfull {}",
                overfull::larger(None, self.holds, tally.read),
                if self.can_grow { "grow or continue" } else { "continue" }
            ),
        )
    }

    fn warning(&self, filter: &Filter, tally: Tally) -> Problem {
        let plan = filter.plan();
        let (planned, rate) = (numbers::keys(plan.items()), numbers::rate(filter.rate()));
        let target = numbers::rate(plan.rate());
        // The fuller it is the more keys it takes for others and does not count: the bits know
        // better, until they are all set.
        let holds = overfull::holds(filter.inserted(), filter.rate(), filter.estimated_items());
        let (has, larger) = match plan.span() {
            Some(_) => ("got more in one step".to_string(), "a larger -n".to_string()),
            None => {
                let has = match holds {
                    Some(holds) => format!("holds about {}", numbers::exact(holds)),
                    None => format!("holds many more after {}", numbers::keys(tally.read)),
                };
                (has, overfull::larger(holds, self.holds, tally.read))
            }
        };
        problem(
            format!(
                "the filter was planned for {planned} and {has}: its rate is {rate} (target \
                 {target})"
            ),
            format!("build it again with {larger} to keep the rate"),
        )
    }
}
