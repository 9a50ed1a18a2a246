//! Lines that change a filter in its file: what `add` and `remove` have in common.
//!
//! The filter is changed in memory and replaces its file at the very end, so an error anywhere
//! leaves the file as it was.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use inbloom::{Digest, Filter};

use crate::blocks::InOrder;
use crate::filter_file::{self, Changed, OpenArgs};
use crate::keys::{Digests, InputArgs, Keys};
use crate::lock::WaitArgs;
use crate::numbers;
use crate::output::problem;
use crate::progress::{Beside, Progress};

/// A filter on its way from its file and back into it.
pub struct Edit<'a> {
    path: &'a Path,
    file: Changed,
    pub filter: Filter,
}

/// How many keys came, and how many of them have changed something.
#[derive(Clone, Copy, Default)]
pub struct Tally {
    pub read: u64,
    pub changed: u64,
    /// Lines that have no key.
    pub missing: u64,
}

impl Tally {
    /// What is said of the lines without a key, behind how many keys came.
    pub fn missing(&self) -> String {
        numbers::without_key(self.missing)
    }
}

impl<'a> Edit<'a> {
    /// Opens a filter, by the clock of now. All of its file is read and checked first: a damaged
    /// filter that was saved again would have good checksums.
    pub fn open(path: &'a Path, args: &OpenArgs, wait: WaitArgs) -> Result<Edit<'a>> {
        let file = Changed::new(path, wait)?;
        ensure!(
            file.exists()?,
            problem(
                format!("{} does not exist", path.display()),
                format!("create it with 'inbloom build -o {}'", path.display()),
            ),
        );
        let mut filter = args.open_mut(path)?;
        args.verify(path)?;
        filter_file::advance(&mut filter)?;
        Ok(Edit { path, file, filter })
    }

    /// Lets the filter grow.
    pub fn growing(self) -> Result<Edit<'a>> {
        Ok(Edit { filter: self.filter.into_growing()?, ..self })
    }

    /// Hands the digests of all records to `take`, in order, which tells how many of them have
    /// changed the filter.
    pub fn by_lines(
        &mut self,
        what: &'static str,
        input: &InputArgs,
        keys: Keys,
        mut take: impl FnMut(&mut Filter, &[Digest]) -> inbloom::Result<u64>,
    ) -> Result<Tally> {
        let path = self.path;
        by_lines(&mut self.filter, what, input, keys, |filter, digests| {
            take(filter, digests).with_context(|| format!("{} was not changed", path.display()))
        })
    }

    /// Replaces the file, unless nothing has changed: a large one takes its time.
    pub fn save(&mut self, tally: Tally) -> Result<()> {
        if tally.changed > 0 { self.file.save(&self.filter) } else { Ok(()) }
    }
}

/// Hands the digests of all records to `take`, in order, which tells how many of them have changed
/// the filter.
pub fn by_lines<F>(
    filter: &mut F,
    what: &'static str,
    input: &InputArgs,
    keys: Keys,
    mut take: impl FnMut(&mut F, &Digests) -> Result<u64>,
) -> Result<Tally> {
    let inputs = input.inputs();
    let reader = input.reader(&inputs);
    let mut progress = Progress::new(what, &inputs, &reader, Beside::Nothing);
    let digests = move |block: &_, digests: &mut _| keys.digests(block, digests);
    let mut jobs = InOrder::new(reader, input.threads(), digests);
    let mut tally = Tally::default();
    while let Some(job) = jobs.next() {
        let job = job.map_err(|failure| failure.error)?;
        tally.changed += take(filter, &job.product)?;
        tally.read += job.product.keys() as u64;
        tally.missing += job.product.missing().len() as u64;
        progress.step(job.block.len());
    }
    Ok(tally)
}
