//! `inbloom delete`: filters on Redis that are no longer needed.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use inbloom_redis::{Address, Error, RedisFilter};
use inbloom_server::units;

use crate::filter_file::KeyArgs;
use crate::output;
use crate::remote::RedisArgs;

/// Delete filters on Redis, now or after a time
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The filters' addresses, redis://host/NAME
    #[arg(required = true, value_name = "ADDRESS")]
    filters: Vec<Address>,

    /// Delete them after this time instead of now: 90s, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    after: Option<Duration>,

    /// Keep them: takes back what --after has set
    #[arg(long, conflicts_with = "after")]
    never: bool,

    #[command(flatten)]
    key: KeyArgs,

    // Last: its heading holds for all options that follow.
    #[command(flatten)]
    redis: RedisArgs,
}

const AFTER_HELP: &str = "\
A filter that another program creates under the same name meanwhile is not touched.

Examples:
  inbloom delete redis://localhost/seen
  inbloom delete --after 7d redis://localhost/monday
  inbloom delete --never redis://localhost/monday

Exit status:
  0  the filters are deleted, or will be, or are kept
  2  an error; those that were named before it are deleted. A filter that is not there is an error";

pub fn run(args: &Args) -> Result<ExitCode> {
    for address in &args.filters {
        delete(args, address).with_context(|| address.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn delete(args: &Args, address: &Address) -> Result<()> {
    let client = args.redis.connect(address.server())?;
    if !args.never && args.after.is_none() {
        let deleted = RedisFilter::delete_named(&client, address.name())?;
        ensure!(deleted, "there is no such filter");
        output::say(format_args!("{address} is deleted"));
        return Ok(());
    }
    let filter = match RedisFilter::open_keyed(&client, address.name(), args.key.key()?.as_ref()) {
        Ok(filter) => filter,
        Err(Error::Missing { .. }) => bail!("there is no such filter"),
        Err(error) => return Err(error.into()),
    };
    if args.never {
        filter.persist()?;
        output::say(format_args!("{address} is kept"));
    } else if let Some(after) = args.after {
        filter.expire_at(SystemTime::now() + after)?;
        output::say(format_args!("{address} is deleted in {} s", after.as_secs()));
    }
    Ok(())
}
