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

    /// Keep the filters: cancel an earlier --after
    #[arg(long, conflicts_with = "after")]
    cancel: bool,

    #[command(flatten)]
    key: KeyArgs,

    // Last: its heading holds for all options that follow.
    #[command(flatten)]
    redis: RedisArgs,
}

const AFTER_HELP: &str = "\
If another program creates a filter of the same name meanwhile, that one is not deleted.

Examples:
  inbloom delete redis://localhost/seen
  inbloom delete --after 7d redis://localhost/monday
  inbloom delete --cancel redis://localhost/monday

Exit status:
  0  the filters are deleted, will be deleted, or are kept
  2  an error, such as a filter that does not exist; the filters named before it are deleted";

pub fn run(args: &Args) -> Result<ExitCode> {
    for address in &args.filters {
        delete(args, address).with_context(|| address.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn delete(args: &Args, address: &Address) -> Result<()> {
    let client = args.redis.connect(address.server())?;
    if !args.cancel && args.after.is_none() {
        let deleted = RedisFilter::delete_named(&client, address.name())?;
        ensure!(deleted, "there is no such filter");
        output::say(format_args!("{address}: deleted"));
        return Ok(());
    }
    let filter = match RedisFilter::open_keyed(&client, address.name(), args.key.key()?.as_ref()) {
        Ok(filter) => filter,
        Err(Error::Missing { .. }) => bail!("there is no such filter"),
        Err(error) => return Err(error.into()),
    };
    if args.cancel {
        filter.persist()?;
        output::say(format_args!("{address}: kept"));
    } else if let Some(after) = args.after {
        filter.expire_at(SystemTime::now() + after)?;
        output::say(format_args!("{address}: will be deleted in {} s", after.as_secs()));
    }
    Ok(())
}
