//! `inbloom remove`: lines out of a filter that can let go of them.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use inbloom::Digest;

use crate::edit::Edit;
use crate::filter_file::OpenArgs;
use crate::keys::InputArgs;
use crate::lock::WaitArgs;
use crate::{numbers, output, remote};

/// Take keys out of a bitmap, counting or cuckoo filter, one per line
///
/// REMOVE ONLY WHAT WAS INSERTED. Anything else may be claimed by accident; to remove it takes away
/// what belongs to other keys, and the filter then DENIES KEYS THAT ARE IN IT.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The filter's file; replaced only when all keys are out
    filter: PathBuf,

    #[command(flatten)]
    wait: WaitArgs,

    #[command(flatten)]
    open: OpenArgs,

    // Last: its heading holds for all options that follow.
    #[command(flatten)]
    input: InputArgs,
}

const AFTER_HELP: &str = "\
WARNING: REMOVE ONLY WHAT WAS INSERTED. Anything else may be claimed by accident, at the filter's
rate; to remove it takes away what belongs to other keys, and the filter then DENIES KEYS THAT ARE
IN IT. That includes a key that 'build' or 'add' took for one that was there, by the same accident.
A bitmap is exact and has no such danger.

Prints 'N removed of M keys': the others were not there. Lines are normalized as the filter's keys
were ('build --normalize'), and the lines of a bitmap are integers. A line that comes again counts
once, as in 'build' and 'add'; remembering lines takes some 30 bytes for each.

The other kinds cannot remove: their keys share bits. The file is the old one or the new one,
never half of it, and is left as it was after any error, or if another program is changing it. With
--wait it waits for that to end.

Examples:
  inbloom build --kind counting -o members.ib members.txt
  inbloom remove members.ib left.txt
  seq 100 200 | inbloom remove free-ports.ib

Exit status:
  0  one copy of each key was taken out, where there was one
  2  an error; the filter is as it was before";

pub fn run(args: &Args) -> Result<ExitCode> {
    let instead = "filters there are of kind blocked and cannot remove keys; to delete the whole \
                   filter, use 'inbloom delete'";
    remote::refuse_address(&args.filter, instead)?;
    let mut change = Edit::open(&args.filter, &args.open, args.wait)?;
    let kind = change.filter.plan().kind();
    if !kind.can_remove() {
        // Any key will do: the library refuses it, in its own words.
        let refusal = change.filter.remove_digest(Digest::default());
        refusal.with_context(|| args.filter.display().to_string())?;
    }
    let keys = args.input.keys_for(&change.filter)?;
    // A key that is removed a second time may still be claimed by accident, and then others pay.
    let mut seen = HashSet::new();
    let tally = change.by_lines("removing", &args.input, keys, |filter, digests| {
        let mut removed = 0;
        for &digest in digests {
            if !kind.counts() || seen.insert(digest) {
                removed += u64::from(filter.remove_digest(digest)?);
            }
        }
        Ok(removed)
    })?;
    change.save(tally)?;
    let (removed, read) = (numbers::exact(tally.changed), numbers::keys(tally.read));
    output::print(format!("{removed} removed of {read}{}\n", tally.missing()).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
