//! How a filter is divided into shards, and a shard by itself: what is built apart, in any order
//! and by any number of threads, is the same to the byte as what is built at once.

use alloc::vec;
use alloc::vec::Vec;
use core::mem;
use core::ops::RangeInclusive;

use super::Ribbon;
use super::shard::{self, DirectoryEntry, Workspace};
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
        self.check_places(shard, places);
        let mut keys = sorted(places.iter().map(|place| self.key(*place)));
        keys.dedup();
        self.build_keys(shard, &keys, &mut Workspace::default())
    }

    /// Builds a shard from places that ascend, of which some may be the same, in memory that the
    /// next shard can be built in too. What is in `places` afterwards is of no use.
    ///
    /// Panics as [`build`](Layout::build) does, and if the places do not ascend.
    pub fn build_sorted(
        &self,
        shard: u64,
        places: &mut [u64],
        workspace: &mut Workspace,
    ) -> Result<Part> {
        assert!(places.is_sorted(), "places that ascend");
        self.check_places(shard, places.first().into_iter().chain(places.last()));
        for place in places.iter_mut() {
            *place = self.key(*place);
        }
        // As good as never: then all but the first of each are moved behind the others.
        let mut distinct = places.len();
        if places.windows(2).any(|pair| pair[0] == pair[1]) {
            distinct = 1;
            for at in 1..places.len() {
                if places[at] != places[distinct - 1] {
                    places[distinct] = places[at];
                    distinct += 1;
                }
            }
        }
        self.build_keys(shard, &places[..distinct], workspace)
    }

    fn check_places<'a>(&self, shard: u64, places: impl IntoIterator<Item = &'a u64>) {
        let range = self.places(shard);
        assert!(places.into_iter().all(|place| range.contains(place)), "a place of another shard");
    }

    /// Builds a shard from what it knows of its keys, ascending and each once.
    fn build_keys(&self, shard: u64, keys: &[u64], workspace: &mut Workspace) -> Result<Part> {
        let (mut columns, mut thresholds) = (Vec::new(), Vec::new());
        let width = self.plan.width() - u32::from(shard < self.narrow);
        let entry = shard::build(keys, width, workspace, &mut columns, &mut thresholds)?;
        let words = thresholds.len() * 8;
        let mut cells = Cells::zeroed((columns.len() + words) as u64 + ENTRY + TAIL)?;
        let (bytes, rest) = cells.bytes_mut()?.split_at_mut(columns.len());
        bytes.copy_from_slice(&columns);
        let (bytes, end) = rest.split_at_mut(words);
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(&thresholds) {
            *bytes = word.to_le_bytes();
        }
        let (directory, count) = end.split_at_mut(ENTRY as usize);
        directory.copy_from_slice(&entry.to_bytes());
        count.copy_from_slice(&1_u64.to_le_bytes());
        let alone = Ribbon::from_cells(self.plan, cells)?;
        alone.check_members(keys);
        Ok(Part { alone, columns: columns.len() })
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
        &self.alone.planes.cells.bytes()[..self.columns]
    }

    pub(crate) fn thresholds(&self) -> &[u8] {
        let bytes = self.alone.planes.cells.bytes();
        &bytes[self.columns..bytes.len() - (ENTRY + TAIL) as usize]
    }

    pub(crate) fn entry(&self) -> &[u8] {
        let bytes = self.alone.planes.cells.bytes();
        &bytes[bytes.len() - (ENTRY + TAIL) as usize..][..ENTRY as usize]
    }
}

/// What follows from an entry of the directory alone.
pub(crate) struct PartLengths {
    pub keys: u64,
    /// Bytes of the columns and of the thresholds.
    pub columns: u64,
    pub thresholds: u64,
}

impl PartLengths {
    /// Of an untrusted entry; refused if no query could be answered from it.
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
/// L2, and these sorted.
pub(super) fn sorted(hashes: impl ExactSizeIterator<Item = u64> + Clone) -> Vec<u64> {
    let parts = (hashes.len() / PART_HASHES).next_power_of_two().min(1 << 12);
    let bits = parts.trailing_zeros();
    // Of one part all, and a shift by all bits is none.
    let part = |hash: u64| hash.checked_shr(64 - bits).unwrap_or(0) as usize;
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
    let (mut start, mut scratch) = (0, Scratch::default());
    for end in ends {
        scratch.sort(&mut all[start..end], bits);
        start = end;
    }
    all
}

/// Hashes of a part, about: it is sorted within L2.
const PART_HASHES: usize = 8192;
/// With fewer hashes, or more in one bucket, hashes are compared.
const FEW_HASHES: usize = 64;
const BUCKET_HASHES: u32 = 32;

/// Memory to sort the parts in, one after the other.
#[derive(Default)]
struct Scratch {
    hashes: Vec<u64>,
    /// Where the next hash of each bucket goes.
    next: Vec<u32>,
}

impl Scratch {
    /// Sorts hashes of which the first bits are the same: by as many buckets as there are hashes, of
    /// which most have one or none, and then by insertion. 10.8 ns per hash of 10 million where
    /// comparing took 14.3.
    fn sort(&mut self, hashes: &mut [u64], same: u32) {
        let buckets = hashes.len().next_power_of_two();
        let shift = 64 - buckets.trailing_zeros();
        let bucket = |hash: u64| (hash << same >> shift) as usize;
        if hashes.len() < FEW_HASHES || hashes.len() > u32::MAX as usize {
            return hashes.sort_unstable();
        }
        self.next.clear();
        self.next.resize(buckets, 0);
        hashes.iter().for_each(|hash| self.next[bucket(*hash)] += 1);
        let (mut end, mut most) = (0, 0);
        for next in &mut self.next {
            most = most.max(*next);
            end += mem::replace(next, end);
        }
        // Those that are no hashes: insertion would take forever.
        if most > BUCKET_HASHES {
            return hashes.sort_unstable();
        }
        self.hashes.resize(hashes.len(), 0);
        for hash in hashes.iter() {
            let next = &mut self.next[bucket(*hash)];
            self.hashes[*next as usize] = *hash;
            *next += 1;
        }
        for (at, hash) in self.hashes.iter().enumerate() {
            let mut to = at;
            while to > 0 && hashes[to - 1] > *hash {
                hashes[to] = hashes[to - 1];
                to -= 1;
            }
            hashes[to] = *hash;
        }
    }
}
