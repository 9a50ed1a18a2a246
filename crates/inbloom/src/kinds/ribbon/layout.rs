//! How a filter is divided into shards, and a shard by itself: what is built apart, in any order
//! and by any number of threads, is the same to the byte as what is built at once.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::Ribbon;
use super::shard::{self, DirectoryEntry};
use crate::digest::Digest;
use crate::error::Result;
use crate::kind::Kind;
use crate::kinds::ribbon::plan::{ENTRY, LAYERS, TAIL, narrow_shards, shards, threshold_words};
use crate::plan::Plan;
use crate::storage::Cells;

/// Which digests belong to which shard, and what the shards are like.
///
/// ```
/// use inbloom::internals::kinds::ribbon::{Layout, Ribbon};
/// use inbloom::{Hasher, Kind, Plan};
///
/// let plan = Plan::builder(Kind::Ribbon).items(5_000_000).rate(1e-4).build()?;
/// let layout = Layout::new(plan);
/// let hasher = Hasher::default();
/// let places: Vec<u64> = (0..50_000_u64).map(|key| hasher.digest(key.to_le_bytes()).place).collect();
/// // Where there are more than fit into memory: from a file of each shard, on all cores.
/// let parts = (0..layout.shards()).map(|shard| {
///     let range = layout.places(shard);
///     let of_shard = places.iter().copied().filter(|place| range.contains(place));
///     layout.build(shard, &of_shard.collect::<Vec<_>>())
/// });
/// let ribbon = Ribbon::assemble(plan, &parts.collect::<Result<Vec<_>, _>>()?)?;
/// assert!(ribbon.contains(hasher.digest(7_u64.to_le_bytes())));
/// # Ok::<(), inbloom::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    plan: Plan,
    shards: u64,
    /// The first so many have fingerprints that are a bit narrower.
    narrow: u64,
}

impl Layout {
    /// The layout of a plan. Panics if it is for another kind.
    #[must_use]
    pub fn new(plan: Plan) -> Layout {
        assert_eq!(plan.kind(), Kind::Ribbon, "a plan for another kind");
        let narrow = narrow_shards(plan.items(), plan.rate(), plan.width());
        Layout { plan, shards: shards(plan.items()), narrow }
    }

    /// The plan that it follows.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The number of shards, at least 1.
    #[must_use]
    pub fn shards(&self) -> u64 {
        self.shards
    }

    /// The places of the digests that belong to a shard.
    ///
    /// Panics if there is no such shard.
    #[must_use]
    pub fn places(&self, shard: u64) -> RangeInclusive<u64> {
        Digest::places(shard, self.shards)
    }

    /// What a shard knows of a key with this place.
    pub(super) fn key(&self, place: u64) -> u64 {
        Digest { place, print: 0 }.pick(self.shards).1.place
    }

    /// Builds a shard from the places of its keys, in any order, of which some may be the same.
    ///
    /// Panics if there is no such shard, or if a place belongs to another one. What was built has
    /// been asked for every one of its keys.
    pub fn build(&self, shard: u64, places: &[u64]) -> Result<Part> {
        let range = self.places(shard);
        assert!(places.iter().all(|place| range.contains(place)), "a place of another shard");
        let mut keys = sorted(places.iter().map(|place| self.key(*place)));
        keys.dedup();
        self.build_sorted(shard, &keys)
    }

    /// As `build`, from what the shard knows of its keys, ascending and each once.
    pub(super) fn build_sorted(&self, shard: u64, keys: &[u64]) -> Result<Part> {
        let (mut columns, mut thresholds) = (Vec::new(), Vec::new());
        let width = self.plan.width() - u32::from(shard < self.narrow);
        let entry = shard::build(keys, width, &mut columns, &mut thresholds)?;
        let words = columns.len() + thresholds.len();
        let mut cells = Cells::zeroed(words as u64 * 8 + ENTRY + TAIL)?;
        let (bytes, end) = cells.bytes_mut()?.split_at_mut(words * 8);
        let all = columns.iter().chain(&thresholds);
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(all) {
            *bytes = word.to_le_bytes();
        }
        let (directory, count) = end.split_at_mut(ENTRY as usize);
        directory.copy_from_slice(&entry.to_bytes());
        count.copy_from_slice(&1_u64.to_le_bytes());
        let alone = Ribbon::from_cells(self.plan, cells)?;
        alone.check_members(keys);
        Ok(Part { alone, columns: columns.len() * 8 })
    }
}

/// A shard of a filter: its columns, its thresholds and its entry in the directory, as they are
/// kept.
#[derive(Debug)]
pub struct Part {
    /// A filter of this shard alone, whose payload has the three one after the other.
    alone: Ribbon,
    /// Bytes of the columns.
    columns: usize,
}

impl Part {
    /// Distinct keys.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.alone.keys
    }

    /// The columns of all its layers, which are nearly all of it.
    #[must_use]
    pub fn columns(&self) -> &[u8] {
        &self.alone.cells.bytes()[..self.columns]
    }

    pub(crate) fn thresholds(&self) -> &[u8] {
        let bytes = self.alone.cells.bytes();
        &bytes[self.columns..bytes.len() - (ENTRY + TAIL) as usize]
    }

    pub(crate) fn entry(&self) -> &[u8] {
        let bytes = self.alone.cells.bytes();
        &bytes[bytes.len() - (ENTRY + TAIL) as usize..][..ENTRY as usize]
    }
}

/// What can be told from an entry of the directory alone.
pub(crate) struct PartLengths {
    pub keys: u64,
    /// Bytes of the columns and of the thresholds.
    pub columns: u64,
    pub thresholds: u64,
}

impl PartLengths {
    /// Of an entry that may be a stranger's; refused if no query could be answered from it.
    pub(crate) fn of(entry: &[u8; ENTRY as usize], plan: &Plan) -> Result<PartLengths> {
        let entry = DirectoryEntry::from_bytes(entry);
        super::check_entry(entry, plan.width())?;
        let blocks = || entry.blocks.into_iter().map(u64::from);
        Ok(PartLengths {
            keys: entry.keys,
            columns: blocks().sum::<u64>() * u64::from(entry.width) * 8,
            thresholds: blocks().take(LAYERS).map(threshold_words).sum::<u64>() * 8,
        })
    }
}

/// Hashes in ascending order: divided by their upper bits, which are even, into parts that fit into
/// L1, and these sorted.
pub(super) fn sorted(hashes: impl ExactSizeIterator<Item = u64> + Clone) -> Vec<u64> {
    let parts = (hashes.len() / 1024).next_power_of_two().min(1 << 12);
    let shift = 64 - parts.trailing_zeros();
    // Of one part all, and a shift by all bits is none.
    let part = |hash: u64| hash.checked_shr(shift).unwrap_or(0) as usize;
    let mut ends = vec![0; parts];
    hashes.clone().for_each(|hash| ends[part(hash)] += 1);
    let mut end = 0;
    for of_part in &mut ends {
        end += *of_part;
        *of_part = end;
    }
    let mut all = vec![0; hashes.len()];
    let mut next: Vec<usize> = [0].into_iter().chain(ends.iter().copied()).collect();
    for hash in hashes {
        let at = &mut next[part(hash)];
        all[*at] = hash;
        *at += 1;
    }
    let mut start = 0;
    for end in ends {
        all[start..end].sort_unstable();
        start = end;
    }
    all
}
