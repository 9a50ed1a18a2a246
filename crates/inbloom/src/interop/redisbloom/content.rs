//! RedisBloom's filters behind [`Filter`](crate::Filter): what `BF.*` and `CF.*` have built, live.
//!
//! The digest of an item is what the filter knows of it: the [`Pair`] of a Bloom filter, the [`Hash`] of
//! a cuckoo filter. Our own files hold such a filter as the payload of `DUMP`, behind its length in
//! eight bytes, and filled up with zeros to whole words.

use std::borrow::Cow;

use super::bloom::Bloom;
use super::cuckoo::{CuckooChain, Hash};
use super::error::{ForeignError, Refused};
use super::murmur::Pair;
use super::payload::{self, Dumped, Restored};
use super::plan;
use crate::codec::Decoder;
use crate::digest::Digest;
use crate::error::{Error, Result, mismatch};
use crate::estimate::Estimate;
use crate::kind::Kind;
use crate::membership::Membership;
use crate::paging::Paging;
use crate::plan::Plan;
use crate::plan::model::classic_fill;
use crate::profile::{Slice, slice};
use crate::state::{Clocked, Intersecting, Measured, Positioned, Removable, State};
use crate::storage::{Bits, Cells, Order};

/// The most memory that a filter may grow to: the system decides.
const ANY: u64 = u64::MAX;

/// What both have in common.
struct Frame<T> {
    plan: Plan,
    filter: T,
    /// Whether it was taken out of a file that holds more than it, which must not be replaced by it.
    is_read_only: bool,
}

impl<T> Frame<T> {
    fn change(&mut self) -> Result<&mut T> {
        if self.is_read_only { Err(Error::ReadOnly) } else { Ok(&mut self.filter) }
    }
}

/// A Bloom filter of RedisBloom.
pub(super) struct LiveBloom(Frame<Bloom>);

/// A cuckoo filter of RedisBloom.
pub(super) struct LiveCuckoo(Frame<CuckooChain>);

/// Why an item was not added, in the words of our own filters.
fn refused(error: Refused, items: u64, planned: u64) -> Error {
    match error {
        Refused::Memory { needed, limit } => Error::Limit { bytes: needed, limit },
        Refused::Allocation { bytes } | Refused::TooLarge { bytes, .. } => {
            Error::Memory { bytes, cause: std::io::ErrorKind::OutOfMemory.into() }
        }
        Refused::Full | Refused::Exhausted => Error::Full { items, planned },
    }
}

/// Why a filter was not made, in the words of our own.
pub(super) fn failed(error: ForeignError) -> Error {
    match error {
        ForeignError::Parameter { name, got, expected } => {
            Error::Parameter { name, got, expected: expected.to_owned() }
        }
        ForeignError::Limit { needed, limit } => Error::Limit { bytes: needed, limit },
        ForeignError::Memory { bytes } => {
            Error::Memory { bytes, cause: std::io::ErrorKind::OutOfMemory.into() }
        }
        ForeignError::Damaged { what, expected, got } => {
            let remedy = "dump the filter again from its server";
            Error::Format { what, expected, got, remedy }
        }
        other => Error::Format {
            what: "file of RedisBloom",
            expected: "a filter that can be read".to_owned(),
            got: other.to_string(),
            remedy: "take the filter from its server another way",
        },
    }
}

/// What our own file keeps of a filter.
fn kept<'a>(filter: impl Into<Dumped<'a>>) -> Vec<u8> {
    // Fails only without memory, as collecting the bytes would.
    let payload = payload::encode(filter).expect("memory for the payload");
    let mut bytes = (payload.len() as u64).to_le_bytes().to_vec();
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Reads what [`kept`] made.
fn restored(cells: &Cells) -> Result<Restored> {
    let mut fields = Decoder(cells.bytes());
    let short = || mismatch("payload of RedisBloom", "a length and as many bytes", "the end");
    let length = fields.u64().ok_or_else(short)?;
    let payload = fields.take(length).ok_or_else(short)?;
    if fields.0.len() >= 8 || fields.0.iter().any(|byte| *byte != 0) {
        return Err(mismatch("end of the payload", "zeros to a whole word", fields.0.len()));
    }
    // LZF, which other programs may have written, gives up to 88 bytes for one.
    payload::decode(payload, ANY).map_err(failed)
}

impl LiveBloom {
    pub(super) fn new(kind: Kind, filter: Bloom, is_read_only: bool) -> LiveBloom {
        let plan = plan::of_bloom(kind, &filter);
        LiveBloom(Frame { plan, filter, is_read_only })
    }

    pub(super) fn reserve(plan: Plan) -> Result<LiveBloom> {
        let filter = Bloom::new(plan.rate(), plan.items(), 2, ANY).map_err(failed)?;
        Ok(LiveBloom(Frame { plan, filter, is_read_only: false }))
    }

    /// From a payload of our own file. The hash of its keys is that of the kind.
    pub(super) fn from_cells(plan: Plan, cells: &Cells, wide_hash: bool) -> Result<LiveBloom> {
        match restored(cells)? {
            Restored::Bloom(filter) if filter.has_wide_hash() == wide_hash => {
                Ok(LiveBloom(Frame { plan, filter, is_read_only: false }))
            }
            _ => Err(mismatch("payload of RedisBloom", "a Bloom filter of its kind", "another")),
        }
    }

    pub(super) fn filter(&self) -> &Bloom {
        &self.0.filter
    }
}

fn pair(digest: Digest) -> Pair {
    Pair { a: digest.place, b: digest.print }
}

impl Membership for LiveBloom {
    fn contains_digest(&self, digest: Digest) -> bool {
        self.0.filter.contains_pair(pair(digest))
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        let planned = self.0.plan.items();
        let filter = self.0.change()?;
        let inserted = filter.insert_pair(pair(digest), ANY);
        inserted.map_err(|error| refused(error, filter.items(), planned))
    }

    /// Nothing: a run asks for its own lines.
    fn prefetch(&self, _digests: &[Digest]) {}

    fn contains_run(&self, run: &[Digest], _next: &[Digest], found: &mut [bool]) {
        // With some ten lines each, more would not fit into L1.
        const IN_FLIGHT: usize = 16;
        for (run, found) in run.chunks(IN_FLIGHT).zip(found.chunks_mut(IN_FLIGHT)) {
            self.0.filter.contains_pairs(run.iter().copied().map(pair), found);
        }
    }

    fn insert_run(&mut self, run: &[Digest], _next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        for digest in run {
            new.push(self.insert_digest(*digest)?);
        }
        Ok(())
    }
}

impl State for LiveBloom {
    fn plan(&self) -> &Plan {
        &self.0.plan
    }

    fn measured(&self) -> &dyn Measured {
        self
    }

    fn clear(&mut self) -> Result<()> {
        self.0.change()?.clear();
        Ok(())
    }

    fn copy(&self) -> Result<Box<dyn State>> {
        let filter = self.0.filter.try_clone().map_err(failed)?;
        Ok(Box::new(LiveBloom(Frame { plan: self.0.plan, filter, is_read_only: false })))
    }

    fn same(&self, other: &dyn State) -> bool {
        self.0.filter == other.of::<LiveBloom>().0.filter
    }

    fn unite(&mut self, other: &dyn State) -> Result<()> {
        let united = self.0.change()?.unite(&other.of::<LiveBloom>().0.filter);
        united.map_err(|(field, left, right)| Error::Mismatch { field, left, right })
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

    /// It is in memory.
    fn set_paging(&mut self, _paging: Paging) {}

    fn removable(&mut self) -> Option<&mut dyn Removable> {
        None
    }

    fn intersecting(&mut self) -> Option<&mut dyn Intersecting> {
        None
    }

    fn clocked(&mut self) -> Option<&mut dyn Clocked> {
        None
    }

    fn positioned(&self) -> Option<&dyn Positioned> {
        None
    }
}

impl Measured for LiveBloom {
    /// The items that it has counted.
    fn occupied(&self) -> u64 {
        self.0.filter.items()
    }

    fn fill(&self) -> f64 {
        (self.occupied() as f64 / self.0.filter.capacity() as f64).min(1.0)
    }

    fn recount(&self) -> Option<u64> {
        Some(self.occupied())
    }

    /// Each link is a slice, which is expected to be as full as its items make it.
    fn profile(&self, _slices: usize) -> Vec<Slice> {
        let links = self.0.filter.links().zip(self.0.filter.fills());
        let slices = links.map(|(link, fill)| {
            let (bits, hashes) = (link.bits as f64, link.hashes);
            let expected = classic_fill(link.size as f64, bits, hashes);
            let free = 1.0 - expected;
            let variance = bits * free * (1.0 - (1.0 - f64::ln(free.max(1e-300))) * free);
            slice(fill, expected, variance.max(0.0), f64::from(hashes), bits)
        });
        slices.collect()
    }

    fn bytes(&self) -> u64 {
        self.0.filter.bytes()
    }

    fn memory(&self) -> u64 {
        self.0.filter.memory()
    }

    fn rate(&self) -> f64 {
        plan::bloom_rate(&self.0.filter)
    }

    fn estimate(&self, _inserted: Option<u64>) -> Estimate {
        self.0.plan.estimate(self.occupied())
    }

    fn room(&self) -> u64 {
        match self.0.filter.growth() {
            Some(_) => u64::MAX,
            None => self.0.filter.capacity().saturating_sub(self.occupied()),
        }
    }

    fn next_growth(&self) -> Option<u64> {
        self.0.filter.growth().map(|_| self.0.filter.capacity())
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let growth = match self.0.filter.growth() {
            Some(growth) => {
                format!("links {growth} times as large, next at {}", self.0.filter.capacity())
            }
            None => "none; full at its capacity".to_owned(),
        };
        let links = self.0.filter.links().zip(self.0.filter.fills()).map(|(link, fill)| {
            let text = format!(
                "{} of {} items, {} bits, {} hashes, {:.1}% of bits set",
                link.size,
                link.entries,
                link.bits,
                link.hashes,
                fill * 100.0
            );
            ("link", text)
        });
        [("growth", growth)].into_iter().chain(links).collect()
    }

    fn bits(&self) -> Option<&Bits> {
        None
    }

    fn payload(&self) -> Cow<'_, [u8]> {
        Cow::Owned(kept(&self.0.filter))
    }

    fn is_read_only(&self) -> bool {
        self.0.is_read_only
    }
}

impl LiveCuckoo {
    pub(super) fn new(kind: Kind, filter: CuckooChain, is_read_only: bool) -> LiveCuckoo {
        let plan = plan::of_cuckoo(kind, &filter);
        LiveCuckoo(Frame { plan, filter, is_read_only })
    }

    /// A filter as CF.RESERVE makes it, with as many slots.
    pub(super) fn reserve(plan: Plan) -> Result<LiveCuckoo> {
        let filter = CuckooChain::new(plan.items(), 2, 20, 1, ANY).map_err(failed)?;
        Ok(LiveCuckoo(Frame { plan, filter, is_read_only: false }))
    }

    pub(super) fn from_cells(plan: Plan, cells: &Cells) -> Result<LiveCuckoo> {
        match restored(cells)? {
            Restored::Cuckoo(filter) => Ok(LiveCuckoo(Frame { plan, filter, is_read_only: false })),
            Restored::Bloom(_) => {
                Err(mismatch("payload of RedisBloom", "a cuckoo filter", "a Bloom filter"))
            }
        }
    }

    pub(super) fn filter(&self) -> &CuckooChain {
        &self.0.filter
    }
}

impl Membership for LiveCuckoo {
    fn contains_digest(&self, digest: Digest) -> bool {
        self.0.filter.contains_hash(Hash(digest.place))
    }

    /// Adds a copy of an item that is there already, as CF.ADD does.
    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        let planned = self.0.plan.items();
        let new = !self.contains_digest(digest);
        let filter = self.0.change()?;
        let inserted = filter.insert_hash(Hash(digest.place), ANY);
        inserted.map_err(|error| refused(error, filter.items(), planned))?;
        Ok(new)
    }

    /// Nothing: it has no array to be asked for.
    fn prefetch(&self, _digests: &[Digest]) {}

    fn contains_run(&self, run: &[Digest], _next: &[Digest], found: &mut [bool]) {
        for (digest, found) in run.iter().zip(found) {
            *found = self.contains_digest(*digest);
        }
    }

    fn insert_run(&mut self, run: &[Digest], _next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        for digest in run {
            new.push(self.insert_digest(*digest)?);
        }
        Ok(())
    }
}

impl Removable for LiveCuckoo {
    fn remove(&mut self, digest: Digest) -> Result<bool> {
        Ok(self.0.change()?.remove_hash(Hash(digest.place)))
    }
}

impl State for LiveCuckoo {
    fn plan(&self) -> &Plan {
        &self.0.plan
    }

    fn measured(&self) -> &dyn Measured {
        self
    }

    fn clear(&mut self) -> Result<()> {
        self.0.change()?.clear();
        Ok(())
    }

    fn copy(&self) -> Result<Box<dyn State>> {
        let filter = self.0.filter.try_clone().map_err(failed)?;
        Ok(Box::new(LiveCuckoo(Frame { plan: self.0.plan, filter, is_read_only: false })))
    }

    fn same(&self, other: &dyn State) -> bool {
        self.0.filter == other.of::<LiveCuckoo>().0.filter
    }

    fn unite(&mut self, _other: &dyn State) -> Result<()> {
        Err(Error::Unsupported {
            kind: self.0.plan.kind(),
            verb: "merge",
            remedy: "add the items of both to one filter",
        })
    }

    fn count(&self, digest: Digest) -> u64 {
        self.0.filter.count_hash(Hash(digest.place))
    }

    fn check(&self, _digest: Digest) -> Result<()> {
        Ok(())
    }

    fn into_bits(self: Box<Self>) -> Option<Bits> {
        None
    }

    fn expect(&self, _order: Order) {}

    /// It is in memory.
    fn set_paging(&mut self, _paging: Paging) {}

    fn removable(&mut self) -> Option<&mut dyn Removable> {
        Some(self)
    }

    fn intersecting(&mut self) -> Option<&mut dyn Intersecting> {
        None
    }

    fn clocked(&mut self) -> Option<&mut dyn Clocked> {
        None
    }

    fn positioned(&self) -> Option<&dyn Positioned> {
        None
    }
}

impl Measured for LiveCuckoo {
    fn occupied(&self) -> u64 {
        self.0.filter.items()
    }

    fn fill(&self) -> f64 {
        (self.occupied() as f64 / self.bytes() as f64).min(1.0)
    }

    fn recount(&self) -> Option<u64> {
        Some(self.occupied())
    }

    /// The whole of it.
    fn profile(&self, _slices: usize) -> Vec<Slice> {
        let slots = self.bytes() as f64;
        let used: usize = self
            .0
            .filter
            .arrays()
            .map(|array| array.iter().filter(|print| **print != 0).count())
            .sum();
        vec![slice(used as f64 / slots, self.fill(), 0.0, 1.0, slots)]
    }

    fn bytes(&self) -> u64 {
        self.0.filter.bytes()
    }

    fn memory(&self) -> u64 {
        self.0.filter.memory()
    }

    /// A sub-filter is added when those before it are full, so that these are filled first.
    fn rate(&self) -> f64 {
        let mut left = self.occupied() as f64;
        let mut met = 0.0;
        for array in self.0.filter.arrays() {
            let slots = array.len() as f64;
            let used = left.min(slots);
            met += 2.0 * f64::from(self.0.filter.bucket_size()) * used / slots;
            left -= used;
        }
        plan::cuckoo_rate(met)
    }

    fn estimate(&self, inserted: Option<u64>) -> Estimate {
        let items = inserted.unwrap_or_else(|| self.occupied());
        Estimate { items: items as f64, error: 0.0 }
    }

    fn room(&self) -> u64 {
        match self.0.filter.expansion() {
            0 => self.bytes().saturating_sub(self.occupied()),
            _ => u64::MAX,
        }
    }

    fn next_growth(&self) -> Option<u64> {
        (self.0.filter.expansion() > 0).then(|| self.bytes())
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let filter = &self.0.filter;
        let shape = format!(
            "{} sub-filters, {} buckets of {} slots in the first, expansion {}, {} iterations",
            filter.filters(),
            filter.buckets(),
            filter.bucket_size(),
            filter.expansion(),
            filter.max_iterations()
        );
        vec![
            ("shape", shape),
            ("deleted", format!("{} since the last compaction", filter.deletes())),
        ]
    }

    fn bits(&self) -> Option<&Bits> {
        None
    }

    fn payload(&self) -> Cow<'_, [u8]> {
        Cow::Owned(kept(&self.0.filter))
    }

    fn is_read_only(&self) -> bool {
        self.0.is_read_only
    }
}
