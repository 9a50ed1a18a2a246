//! `inbloom push`: a filter from its file to Redis.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use inbloom_redis::Address;
use inbloom_server::units;

use crate::filter_file::{self, KeyArgs};
use crate::remote::{self, RedisArgs};
use crate::{numbers, output};

/// Copy a filter from its file to Redis
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The filter's file, of kind blocked
    file: PathBuf,

    /// Address to copy it to, redis://host/NAME, that is not in use
    address: Address,

    /// Let it expire after this time: 90s, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    expire: Option<Duration>,

    #[command(flatten)]
    key: KeyArgs,

    // Last: its heading holds for all options that follow.
    #[command(flatten)]
    redis: RedisArgs,
}

const AFTER_HELP: &str = "\
The filter is cut into values of at most 1 MiB, which are spread evenly over all nodes of a cluster.
Other programs see the filter when all of it is there. After an error nothing is left of it, or only
for an hour.

Examples:
  inbloom build -o seen.ib urls.txt
  inbloom push seen.ib redis://localhost/seen
  inbloom push --expire 7d seen.ib redis://user:password@redis.example.org:6380/2/seen

Exit status:
  0  the filter is on Redis
  2  an error; the name is free, or that of another filter";

pub fn run(args: &Args) -> Result<ExitCode> {
    filter_file::verify(&args.file)?;
    let filter = args.key.open(&args.file)?;
    let address = &args.address;
    let client = args.redis.connect(address.server())?;
    let pushed = remote::push(&client, address, &filter)?;
    if let Some(after) = args.expire {
        pushed.expire_at(SystemTime::now() + after).with_context(|| address.to_string())?;
    }
    output::say(format_args!(
        "{} pushed to {address}: {}, {}",
        args.file.display(),
        numbers::bytes(filter.bytes()),
        numbers::counted(pushed.chunks(), "value"),
    ));
    Ok(ExitCode::SUCCESS)
}
