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

/// Remove keys from a bitmap, counting or cuckoo filter, one per line
///
/// REMOVE ONLY KEYS THAT WERE INSERTED. Another key may be a false positive. Removing it takes
/// entries away from other keys, and THE FILTER THEN REPORTS MEMBERS AS ABSENT.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The filter's file, replaced when all keys are removed
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
WARNING: REMOVE ONLY KEYS THAT WERE INSERTED. Another key may be a false positive. Removing it takes
entries away from other keys, and THE FILTER THEN REPORTS MEMBERS AS ABSENT. Do not remove a key that
was a false positive when 'build' or 'add' read it either: it was not inserted. A bitmap is exact, so
any key can be removed.

Prints 'N removed of M keys'. The other keys were not in the filter. Keys get the filter's
normalization ('build --normalize'); for a bitmap, lines are integers. A line that comes twice counts
once, as in 'build' and 'add', which takes about 30 bytes per line.

Other kinds cannot remove keys, since their keys share bits. The file is replaced as a whole. After
any error it is as it was. If another program is changing it, that is an error too, unless --wait is
given.

Examples:
  inbloom build --kind counting -o members.ib members.txt
  inbloom remove members.ib left.txt
  seq 100 200 | inbloom remove free-ports.ib

Exit status:
  0  one copy of each key was removed, where there was one
  2  an error; the filter was not changed";

pub fn run(args: &Args) -> Result<ExitCode> {
    let instead = "delete the whole filter with 'inbloom delete': filters on Redis are of kind blocked, which cannot remove keys";
    remote::refuse_address(&args.filter, instead)?;
    let mut change = Edit::open(&args.filter, &args.open, args.wait)?;
    let kind = change.filter.plan().kind();
    if !kind.can_remove() {
        // Any key will do: the library refuses it, in its own words.
        let refusal = change.filter.remove_digest(Digest::default());
        refusal.with_context(|| args.filter.display().to_string())?;
    }
    let keys = args.input.keys_for(&change.filter)?;
    // A key that is removed a second time may still match by chance, and then members are lost.
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
