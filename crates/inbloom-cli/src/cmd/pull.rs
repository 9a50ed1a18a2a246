//! `inbloom pull`: a filter from Redis to a file.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use inbloom_redis::Address;

use crate::filter_file::{self, KeyArgs};
use crate::lock::{Lock, WaitArgs};
use crate::remote::{self, RedisArgs};
use crate::{numbers, output};

/// Copy a filter from Redis to a file
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The filter's address: redis://host/NAME
    address: Address,

    /// File to write, replaced when the filter is complete
    file: PathBuf,

    #[command(flatten)]
    wait: WaitArgs,

    #[command(flatten)]
    key: KeyArgs,

    // Last: its heading holds for all options that follow.
    #[command(flatten)]
    redis: RedisArgs,
}

const AFTER_HELP: &str = "\
The file is the same as a file that is built from the same keys. Keys that other programs insert
meanwhile may be in it or not. If Redis has lost a part of the filter, no file is written.

Examples:
  inbloom pull redis://localhost/seen seen.ib
  inbloom check seen.ib new.txt

Exit status:
  0  the file was written
  2  an error; the file is as it was before";

pub fn run(args: &Args) -> Result<ExitCode> {
    filter_file::check_output(&args.file)?;
    let _lock = Lock::take(&args.file, args.wait)?;
    let filter = args.redis.open(&args.address, args.key.key()?.as_ref())?;
    remote::pull(&filter, &args.address, &args.file)?;
    output::say(format_args!(
        "{} pulled to {}: {}",
        args.address,
        args.file.display(),
        numbers::bytes(filter.plan().bytes()),
    ));
    Ok(ExitCode::SUCCESS)
}
