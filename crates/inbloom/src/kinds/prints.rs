//! The set of 64-bit fingerprints: the smallest kind that can be written, as an example.
//!
//! **Idea.** A key's fingerprint is one half of its digest, 64 bits. The set keeps all of them in
//! order. A non-member is reported as present if its fingerprint is that of a member: with n members
//! that has the probability n / 2^64.
//!
//! **Layout.** The fingerprints as little-endian words, ascending. A file is read into memory.
//!
//! **Cost.** 64 bits for each key in a file and about twice that in memory, and a search in a tree.
//! **When not.** Always but one: every other kind is smaller or faster. It exists to show what a new
//! kind needs, which is this folder and its line in the table, and to keep it that way: it is
//! compiled with the feature `example-kind` only.

mod plan;
mod row;

use alloc::borrow::Cow;
use alloc::collections::BTreeSet;

use crate::digest::Digest;
use crate::error::{Result, mismatch};
use crate::estimate::Estimate;
use crate::membership::Membership;
use crate::paging::Paging;
use crate::plan::Plan;
use crate::profile::{Count, Slice, Spread, divide, slices_of};
use crate::state::{Clocked, Intersecting, Measured, Positioned, Removable, State};
use crate::storage::{Bits, Cells, Order};
pub(crate) use row::ROW;

/// Bytes of memory that a fingerprint takes: those of a node of the tree, which is two thirds full.
const NODE_SHARE: u64 = 16;

/// A set of fingerprints.
struct Prints {
    plan: Plan,
    prints: BTreeSet<u64>,
}

impl Prints {
    fn new(plan: Plan) -> Prints {
        Prints { plan, prints: BTreeSet::new() }
    }

    /// From the payload of a file, which may be untrusted.
    fn read(plan: Plan, cells: &Cells) -> Result<Prints> {
        let (words, rest) = cells.bytes().as_chunks::<8>();
        let prints: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        if !rest.is_empty() || !prints.is_sorted_by(|left, right| left < right) {
            return Err(mismatch("payload", "ascending words of 8 bytes", "other bytes"));
        }
        Ok(Prints { plan, prints: prints.into_iter().collect() })
    }
}

impl Membership for Prints {
    fn contains_digest(&self, digest: Digest) -> bool {
        self.prints.contains(&digest.print)
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        Ok(self.prints.insert(digest.print))
    }

    /// A tree is found step by step: there is nothing to ask for ahead.
    fn prefetch(&self, _digests: &[Digest]) {}

    fn contains_run(&self, run: &[Digest], _next: &[Digest], found: &mut [bool]) {
        for (digest, found) in run.iter().zip(found) {
            *found = self.contains_digest(*digest);
        }
    }

    fn insert_run(&mut self, run: &[Digest], _next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        new.extend(run.iter().map(|digest| self.prints.insert(digest.print)));
        Ok(())
    }
}

impl State for Prints {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn measured(&self) -> &dyn Measured {
        self
    }

    fn clear(&mut self) -> Result<()> {
        self.prints.clear();
        Ok(())
    }

    fn copy(&self) -> Result<Box<dyn State>> {
        Ok(Box::new(Prints { plan: self.plan, prints: self.prints.clone() }))
    }

    fn same(&self, other: &dyn State) -> bool {
        self.prints == other.of::<Prints>().prints
    }

    fn unite(&mut self, other: &dyn State) -> Result<()> {
        self.prints.extend(&other.of::<Prints>().prints);
        Ok(())
    }

    fn count(&self, digest: Digest) -> u64 {
        u64::from(self.contains_digest(digest))
    }

    fn check(&self, _digest: Digest) -> Result<()> {
        Ok(())
    }

    fn into_bits(self: Box<Self>) -> Option<Bits> {
        None
    }

    fn expect(&self, _order: Order) {}

    fn set_paging(&mut self, _paging: Paging) {}

    fn removable(&mut self) -> Option<&mut dyn Removable> {
        None
    }

    fn intersecting(&mut self) -> Option<&mut dyn Intersecting> {
        Some(self)
    }

    fn clocked(&mut self) -> Option<&mut dyn Clocked> {
        None
    }

    fn positioned(&self) -> Option<&dyn Positioned> {
        None
    }
}

impl Measured for Prints {
    fn occupied(&self) -> u64 {
        self.prints.len() as u64
    }

    fn fill(&self) -> f64 {
        self.plan.fill_of(self.occupied())
    }

    fn recount(&self) -> Option<u64> {
        Some(self.occupied())
    }

    fn profile(&self, slices: usize) -> Vec<Slice> {
        let mut prints = self.prints.iter().peekable();
        let cells = self.plan.cells();
        let counts = divide(cells, slices).map(|slice| {
            let is_in =
                |print: &&u64| Digest { place: **print, print: 0 }.pick(cells).0 < slice.end;
            let used = core::iter::from_fn(|| prints.next_if(is_in)).count() as u64;
            Count { used, cells: slice.end - slice.start }
        });
        slices_of(&counts.collect::<Vec<_>>(), Spread::Entries(1.0))
    }

    fn bytes(&self) -> u64 {
        self.occupied() * 8
    }

    fn memory(&self) -> u64 {
        self.plan.bytes().max(self.occupied() * NODE_SHARE)
    }

    fn rate(&self) -> f64 {
        self.plan.rate_at(self.occupied() as f64)
    }

    fn estimate(&self, _inserted: Option<u64>) -> Estimate {
        self.plan.estimate(self.occupied())
    }

    fn room(&self) -> u64 {
        self.plan.items_at(self.plan.rate()).saturating_sub(self.occupied())
    }

    fn next_growth(&self) -> Option<u64> {
        None
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn bits(&self) -> Option<&Bits> {
        None
    }

    fn payload(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.prints.iter().flat_map(|print| print.to_le_bytes()).collect())
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

impl Intersecting for Prints {
    fn intersect(&mut self, other: &dyn State) -> Result<()> {
        let other = &other.of::<Prints>().prints;
        self.prints.retain(|print| other.contains(print));
        Ok(())
    }
}
