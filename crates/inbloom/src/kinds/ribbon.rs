//! The bumped ribbon filter: the fewest bits, for keys that are all known beforehand.
//!
//! **Idea.** A key has a fingerprint of r bits, and 64 random coefficients that begin at some slot.
//! The slots have r bits each. For every key, the slots that its coefficients choose add up, by
//! xor, to its fingerprint. That is a system of linear equations over bits, one for each key, and
//! building the filter means solving it. For a non-member, the slots add up to its fingerprint only
//! by chance, one time in 2^r. A key depends on all of its slots together, so a key cannot be added
//! later.
//!
//! **Ribbon.** The coefficients of a key lie close together. Sorted by where they begin, the
//! equations are a narrow band (a ribbon) along the diagonal. Elimination adds at most 64 earlier
//! equations to each. Then the band is solved from its last slot to its first.
//!
//! **Bumping.** As many slots as keys are not enough. Where by chance too many keys begin, the last
//! ones would contradict the others. Instead of more slots everywhere, there are 3% *fewer* slots
//! than keys, and keys that do not fit are bumped to another layer, a ribbon of its own. Slots are
//! divided into buckets of 128. A bucket's keys are added from its upper end to its lower end,
//! where they meet the overflow of the bucket before. The first key that fails determines a
//! threshold, and all keys of the bucket below it are bumped. There are four thresholds (all, below
//! 36, below 14, none), so two bits tell a query which layer to look in. 3.2% of the keys are
//! bumped, 3.2% of these again, and so on. Keys that are left after four layers go into a last one
//! with 17% more slots than keys, which bumps none. If that has no solution, the build tries other
//! hashes and more slots.
//!
//! **Hashes.** A digest's place picks a shard. The shard uses only x, the rest of the place after
//! that pick. In layer l (the last is 4, or 5, 6, ... if those had no solution), with odd constants
//! A, B, C:
//!
//!   start = pick(x, starts), or from the second layer on pick(fold(x ^ (2l+1) A, B), starts)
//!   y = fold(x ^ (2l+1) B, C),  coefficients = y | 1,  fingerprint = the upper r bits of y A
//!
//! In the first layer the start rises with x, so sorted keys are sorted equations. 64 bits
//! distinguish 10^10 keys at any rate above 10^-9; plans beyond that are refused.
//!
//! **Shards** of up to 2 million planned keys are independent and lie one after the other. So a
//! large filter is built in little memory, from keys that were divided by shard. From 8 million
//! planned keys on there are 16 shards or more. The first of them have fingerprints that are one
//! bit narrower, in as many shards as the rate allows. Without this, the rate would be up to a half
//! lower than its target, at the cost of bits.
//!
//! **Layout.** Drawn in docs/format.md: the layers of each shard, as groups of 16 slots with a word
//! of 16 bits for each of the r columns; the thresholds; a directory.
//!
//! **Cost.** 1.003 r bits per key from a million keys on, where r is log2(1 / rate) rounded up:
//! 7.04 at 1%, 10.04 at 0.1%, 14.04 at 0.01%; with shards of two widths 6.8, 10.0 and 13.4. That is
//! 0.3% above what any filter needs for 2^-r; a Bloom filter takes 44% more. A query adds up five
//! neighboring groups (140 bytes at 0.01%, which touch 3.1 lines). To build takes 8 bytes of memory
//! for each key, and 20 more for each of one shard.
//!
//! **When not.** Do not use it if keys come one by one or change, or if time matters more than
//! bits: a blocked filter is built and queried several times as fast.
//!
//! Sources: Dillinger, Huebschle-Schneider, Sanders, Walzer, "Fast Succinct Retrieval and
//! Approximate Membership using Ribbon", SEA 2022 (arXiv 2109.01892); Dillinger, Walzer, "Ribbon
//! filter: practically smaller than Bloom and Xor", 2021 (arXiv 2103.02515). This is not the
//! homogeneous ribbon of the latter, which saves the fingerprints: where too many keys begin, it
//! reports every non-member as present, and doubles a rate of 10^-4.

mod layout;
pub(crate) mod plan;
mod row;
mod shard;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::ops::Range;

use crate::digest::Digest;
use crate::error::{Result, mismatch};
use crate::estimate::Estimate;
use crate::kernels::ribbon::{
    AsksAhead, BUCKET, BumpedKeys, Equation, FirstAnswer, FirstLayer, MOST, OVERREACH, Planes,
    RibbonKernel, is_bumped, start_in,
};
use crate::kernels::{FITS_IN_L2, Run, Towards, prefetch};
use crate::kind::Kind;
use crate::kinds::ribbon::plan::{
    ENTRY, LAYERS, MAX_SHARDS, MAX_WIDTH, TAIL, starts, threshold_words,
};
use crate::membership::Membership;
use crate::paging::{Pager, Paging};
use crate::plan::Plan;
use crate::profile::{Count, Slice, Spread, divide, slices_of};
use crate::state::{Clocked, Intersecting, Measured, Positioned, Removable, State, cannot_change};
use crate::storage::{self, Bits, Cells, LARGE, Order};
pub(crate) use layout::PartLengths;
use layout::sorted;
pub use layout::{Layout, Part};
pub(crate) use row::ROW;
use shard::DirectoryEntry;
pub use shard::Workspace;

/// A bumped ribbon filter.
pub struct Ribbon {
    plan: Plan,
    kernel: RibbonKernel,
    /// The bytes, and what the kernels answer from.
    planes: Planes,
    /// Distinct keys.
    keys: u64,
    /// What the directory says, never empty.
    shards: Vec<Shard>,
    /// Only of a filter whose cells are a mapped file.
    pager: Option<Pager>,
}

impl fmt::Debug for Ribbon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::state::debug("Ribbon", self, f)
    }
}

/// Where a shard's layers are. All of it is within the cells: that is seen to when a filter is
/// made.
#[derive(Clone, Copy, Debug)]
struct Shard {
    width: u32,
    /// Layers that bump keys.
    layers: u32,
    /// The number of the last layer, as its hashes see it.
    last: u64,
    keys: u64,
    places: [Layer; LAYERS + 1],
}

#[derive(Clone, Copy, Debug)]
struct Layer {
    /// Slots at which equations can begin; 0 if there is no such layer.
    starts: u64,
    /// Where its columns begin in the cells, and where its thresholds do in [`Planes::thresholds`].
    columns: usize,
    thresholds: usize,
}

impl Layer {
    fn blocks(&self) -> u64 {
        self.starts.div_ceil(64)
    }
}

impl Ribbon {
    /// A filter of these digests, of which some may be the same. More than the plan says are fine:
    /// its size follows the keys, and its rate does not.
    ///
    /// Panics if the plan is for another kind. While it builds it takes 8 bytes of memory for each
    /// digest, 20 more for each of one shard, and the filter twice.
    ///
    /// ```
    /// use inbloom::internals::kinds::ribbon::Ribbon;
    /// use inbloom::{Hasher, Kind, Plan};
    ///
    /// let hasher = Hasher::default();
    /// let digests: Vec<_> = (0..10_000_u64).map(|key| hasher.digest(key.to_le_bytes())).collect();
    /// let plan = Plan::builder(Kind::Ribbon).items(10_000).rate(1e-4).build()?;
    /// let ribbon = Ribbon::build(plan, &digests)?;
    /// assert!(digests.iter().all(|digest| ribbon.contains(*digest)));
    /// assert!(!ribbon.contains(hasher.digest("another")));
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn build(plan: Plan, digests: &[Digest]) -> Result<Ribbon> {
        let layout = Layout::new(plan);
        let mut places = sorted(digests.iter().map(|digest| digest.place));
        let mut rest = places.as_mut_slice();
        let (mut parts, mut workspace) = (Vec::new(), Workspace::default());
        for shard in 0..layout.shards() {
            let last = *layout.places(shard).end();
            let (of_shard, later) = rest.split_at_mut(rest.partition_point(|place| *place <= last));
            rest = later;
            parts.push(layout.build_sorted(shard, of_shard, &mut workspace)?);
        }
        Ribbon::assemble(plan, &parts)
    }

    /// The filter of these shards, which are all of it, in order.
    ///
    /// Panics if the plan is for another kind.
    pub fn assemble(plan: Plan, parts: &[Part]) -> Result<Ribbon> {
        assert_eq!(plan.kind(), Kind::Ribbon, "a plan for another kind");
        let columns = || parts.iter().map(Part::columns);
        let thresholds = || parts.iter().map(Part::thresholds);
        let entries = || parts.iter().map(Part::entry);
        let all = || columns().chain(thresholds()).chain(entries());
        let mut cells = Cells::zeroed(all().map(<[u8]>::len).sum::<usize>() as u64 + TAIL)?;
        let mut rest = cells.bytes_mut()?;
        let count = (parts.len() as u64).to_le_bytes();
        for piece in all().chain([count.as_slice()]) {
            let (here, later) = rest.split_at_mut(piece.len());
            here.copy_from_slice(piece);
            rest = later;
        }
        Ribbon::from_cells(plan, cells)
    }

    /// Asks for every key that it was built from: a false negative would be a mistake of ours, and
    /// is not to leave this place. They are sorted, so that memory need not be asked for before.
    fn check_members(&self, places: &[u64]) {
        if self.planes.layers.is_empty() {
            return assert!(places.is_empty(), "a ribbon without layers has no keys");
        }
        let (mut run, mut found) = ([Digest::default(); MOST], [false; MOST]);
        for places in places.chunks(MOST) {
            let (run, found) = (&mut run[..places.len()], &mut found[..places.len()]);
            for (digest, place) in run.iter_mut().zip(places) {
                digest.place = *place;
            }
            self.contains_all(Run { keys: run, next: &[] }, AsksAhead::No, found);
            let all_found = found.iter().all(|found| *found);
            assert!(all_found, "the ribbon does not report a key that it was built from");
        }
    }

    /// Reads the payload of a file, which may be untrusted.
    pub(crate) fn from_cells(plan: Plan, cells: Cells) -> Result<Ribbon> {
        let bytes = cells.bytes();
        let length = bytes.len() as u64;
        let (before, tail) = bytes.split_at(bytes.len().saturating_sub(TAIL as usize));
        let count = tail.try_into().map_or(0, u64::from_le_bytes);
        if !(1..=MAX_SHARDS.min(before.len() as u64 / ENTRY)).contains(&count) {
            let most = format!("1 to {MAX_SHARDS}, and an entry for each");
            return Err(mismatch("number of shards of the ribbon", most, count));
        }
        let (_, directory) = before.split_at(before.len() - (count * ENTRY) as usize);
        let (entries, _) = directory.as_chunks();
        let entries = || entries.iter().map(DirectoryEntry::from_bytes);
        entries().try_for_each(|entry| check_entry(entry, plan.width()))?;

        // Neither overflows: 2^20 shards of 5 layers of 2^32 blocks of 32 words.
        let layers = |entry: DirectoryEntry| entry.blocks.into_iter().map(u64::from);
        let columns = |entry: DirectoryEntry| layers(entry).sum::<u64>() * u64::from(entry.width);
        let thresholds =
            |entry: DirectoryEntry| layers(entry).take(LAYERS).map(threshold_words).sum::<u64>();
        let (in_columns, in_thresholds) =
            (entries().map(columns).sum::<u64>(), entries().map(thresholds).sum::<u64>());
        let expected = (in_columns + in_thresholds) * 8 + count * ENTRY + TAIL;
        if expected != length {
            return Err(mismatch("length of the payload", expected, length));
        }
        // So that a query may load whole vectors.
        const { assert!(OVERREACH as u64 <= ENTRY + TAIL) };
        let thresholds = in_columns as usize * 8;
        let (mut column, mut threshold) = (0, 0);
        let shards: Vec<Shard> = entries()
            .map(|entry| {
                let places = core::array::from_fn(|number| {
                    let blocks = u64::from(entry.blocks[number]);
                    let layer =
                        Layer { starts: starts(blocks), columns: column, thresholds: threshold };
                    column += (blocks * u64::from(entry.width) * 8) as usize;
                    let words = if number < LAYERS { threshold_words(blocks) } else { 0 };
                    threshold += words as usize * 8;
                    layer
                });
                Shard {
                    width: u32::from(entry.width),
                    layers: u32::from(entry.layers),
                    last: u64::from(entry.last),
                    keys: entry.keys,
                    places,
                }
            })
            .collect();
        let all_have_layers = shards.iter().all(|shard| shard.layers > 0);
        let layers = if all_have_layers {
            let first = |shard: &Shard| {
                let Layer { starts, columns, thresholds } = shard.places[0];
                FirstLayer { starts, columns, thresholds, width: shard.width }
            };
            shards.iter().map(first).collect()
        } else {
            Vec::new()
        };
        let keys = shards.iter().map(|shard| shard.keys).fold(0, u64::saturating_add);
        let end = thresholds + in_thresholds as usize * 8;
        // A smaller file is brought in by the system's reading ahead.
        let paging = if bytes.len() < LARGE { Paging::OnDemand } else { Paging::default() };
        let pager = cells.is_mapped().then(|| Pager::new(paging));
        let planes = Planes { thresholds: cells.copy_part(thresholds..end)?, cells, layers };
        let kernel = RibbonKernel::select(plan.width());
        Ok(Ribbon { plan, kernel, planes, keys, shards, pager })
    }

    /// The plan it was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether the digest is one that the filter was built from: false is certain, true is
    /// probable.
    #[inline]
    #[must_use]
    pub fn contains(&self, digest: Digest) -> bool {
        // Such a filter is small, or nearly empty.
        if self.planes.layers.is_empty() {
            return self.contains_in(self.find(digest));
        }
        match self.kernel.contains(&self.planes, digest) {
            FirstAnswer::Present => true,
            FirstAnswer::Absent => false,
            FirstAnswer::Bumped => self.contains_later(digest),
        }
    }

    #[cold]
    #[inline(never)]
    fn contains_later(&self, digest: Digest) -> bool {
        self.contains_in(self.find(digest))
    }

    /// Where a digest would be, and what it would ask of the solution there; None if there is no
    /// such layer, so that it is certainly not in the filter.
    fn find(&self, digest: Digest) -> Option<(&Shard, &Layer, Equation)> {
        let (number, rest) = digest.pick(self.shards.len() as u64);
        let (shard, key) = (&self.shards[number as usize], rest.place);
        for (number, layer) in shard.places[..shard.layers as usize].iter().enumerate() {
            let start = start_in(key, number as u64, layer.starts);
            let byte =
                self.planes.thresholds.bytes()[layer.thresholds + (start / BUCKET / 4) as usize];
            if !is_bumped(byte, start) {
                return Some((shard, layer, Equation::at(start, key, number as u64)));
            }
        }
        let layer = &shard.places[LAYERS];
        if layer.starts == 0 {
            return None;
        }
        let start = start_in(key, shard.last, layer.starts);
        Some((shard, layer, Equation::at(start, key, shard.last)))
    }

    /// The answer of the layer that was found.
    fn contains_in(&self, found: Option<(&Shard, &Layer, Equation)>) -> bool {
        found.is_some_and(|(shard, layer, equation)| {
            let columns = &self.planes.cells.bytes()[layer.columns..];
            self.kernel.holds(columns, shard.width, equation)
        })
    }

    /// Answers for a run of any length.
    fn contains_all(&self, run: Run<'_>, asks_ahead: AsksAhead, found: &mut [bool]) {
        let mut bumped = BumpedKeys::new();
        // Mostly one of each. What is left of the next run when this one is over is all of it.
        let (mut runs, mut nexts) = (run.keys.chunks(MOST), run.next.chunks(MOST));
        let mut answers = found.chunks_mut(MOST);
        loop {
            let (keys, next) = (runs.next(), nexts.next());
            if keys.is_none() && next.is_none() {
                return;
            }
            let (keys, next) = (keys.unwrap_or_default(), next.unwrap_or_default());
            let found = answers.next().unwrap_or_default();
            let run = Run { keys, next };
            self.kernel.contains_all(&self.planes, run, asks_ahead, found, &mut bumped);
            self.contains_bumped(keys, &bumped, found);
        }
    }

    /// Looks up the keys of a run that the first layer has bumped: asks for the memory of some, and
    /// then looks.
    fn contains_bumped(&self, run: &[Digest], bumped: &BumpedKeys, found: &mut [bool]) {
        // 4 of 128 on average.
        for places in bumped.places().chunks(8) {
            let mut located = [None; 8];
            for (located, place) in located.iter_mut().zip(places) {
                *located = self.find(run[usize::from(*place)]);
                if let Some((shard, layer, equation)) = located {
                    let (first, length) = equation.reach(shard.width);
                    let at = self.planes.cells.bytes().as_ptr().wrapping_add(layer.columns + first);
                    for line in (0..length).step_by(64) {
                        prefetch(at.wrapping_add(line), Towards::Near);
                    }
                }
            }
            for (located, place) in located.iter().zip(places) {
                found[usize::from(*place)] = self.contains_in(*located);
            }
        }
    }

    /// The bytes of the columns that a digest would be looked up in.
    fn bytes_of(&self, digest: Digest) -> Option<Range<usize>> {
        let (shard, layer, equation) = self.find(digest)?;
        let (first, length) = equation.reach(shard.width);
        let start = layer.columns + first;
        Some(start..start + length)
    }

    /// Brings in the pages of a run of digests, if they are a file's and may not be in memory.
    fn ask_for_pages(&self, run: &[Digest]) {
        let Some(pager) = &self.pager else { return };
        let is_resident = |digest| {
            self.bytes_of(digest).is_none_or(|bytes| self.planes.cells.is_resident(bytes.start))
        };
        if pager.asks(run, is_resident) {
            let pages = run.iter().filter_map(|digest| self.bytes_of(*digest));
            pages.for_each(|bytes| self.planes.cells.ask_for(bytes));
        }
    }

    fn slots(&self) -> u64 {
        let layers = self.shards.iter().flat_map(|shard| &shard.places);
        layers.map(|layer| layer.blocks() * 64).sum()
    }

    fn refuse<T>(&self, verb: &'static str) -> Result<T> {
        Err(cannot_change(&self.plan, verb))
    }
}

/// Refuses an entry that no query could be answered from.
fn check_entry(entry: DirectoryEntry, width: u32) -> Result<()> {
    let expected = |what, expected: &str, got: u64| Err(mismatch(what, expected, got));
    let narrow = width.saturating_sub(1).max(1);
    if !(narrow..=width.min(MAX_WIDTH)).contains(&u32::from(entry.width)) {
        let widths = format!("{narrow} or {width}");
        return expected("width of a shard", &widths, entry.width.into());
    }
    let layers = usize::from(entry.layers);
    if layers > LAYERS {
        return expected("layers of a shard", "0 to 4", entry.layers.into());
    }
    if usize::from(entry.last) < LAYERS {
        return expected("number of a last layer", "4 and more", entry.last.into());
    }
    if let Some(blocks) = entry.blocks[..layers].iter().find(|blocks| **blocks == 0) {
        return expected("blocks of a layer", "1 and more", u64::from(*blocks));
    }
    if let Some(blocks) = entry.blocks[layers..LAYERS].iter().find(|blocks| **blocks != 0) {
        return expected("blocks of a layer that is not there", "0", u64::from(*blocks));
    }
    Ok(())
}

impl Membership for Ribbon {
    #[inline]
    fn contains_digest(&self, digest: Digest) -> bool {
        self.contains(digest)
    }

    fn insert_digest(&mut self, _digest: Digest) -> Result<bool> {
        self.refuse("insert")
    }

    fn prefetch(&self, digests: &[Digest]) {
        self.contains_run(&[], digests, &mut []);
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        self.ask_for_pages(next);
        if self.planes.layers.is_empty() {
            for (digest, found) in run.iter().zip(found) {
                *found = self.contains(*digest);
            }
            return;
        }
        let fits = self.planes.cells.bytes().len() <= FITS_IN_L2;
        let asks_ahead = if fits { AsksAhead::No } else { AsksAhead::Yes };
        self.contains_all(Run { keys: run, next }, asks_ahead, found);
    }

    fn insert_run(&mut self, run: &[Digest], _next: &[Digest], _new: &mut Vec<bool>) -> Result<()> {
        if run.is_empty() { Ok(()) } else { self.refuse("insert") }
    }
}

impl State for Ribbon {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn measured(&self) -> &dyn Measured {
        self
    }

    fn clear(&mut self) -> Result<()> {
        self.refuse("clear")
    }

    fn copy(&self) -> Result<Box<dyn State>> {
        Ok(Box::new(Ribbon::from_cells(self.plan, self.planes.cells.copy()?)?))
    }

    fn same(&self, other: &dyn State) -> bool {
        match (other as &dyn Any).downcast_ref::<Ribbon>() {
            Some(other) => self.planes.cells.bytes() == other.planes.cells.bytes(),
            // A list that has one for its base: it knows what else it has.
            None => other.same(self),
        }
    }

    fn unite(&mut self, _other: &dyn State) -> Result<()> {
        self.refuse("merge")
    }

    fn count(&self, digest: Digest) -> u64 {
        u64::from(self.contains_digest(digest))
    }

    fn check(&self, _digest: Digest) -> Result<()> {
        self.refuse("insert")
    }

    fn into_bits(self: Box<Self>) -> Option<Bits> {
        None
    }

    fn expect(&self, order: Order) {
        if let Some(pager) = &self.pager {
            pager.expect(order);
        }
        self.planes.cells.expect(order);
    }

    fn set_paging(&mut self, paging: Paging) {
        if let Some(pager) = &mut self.pager {
            *pager = Pager::new(paging);
        }
    }

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

impl Measured for Ribbon {
    fn occupied(&self) -> u64 {
        self.keys
    }

    /// The share of slots that a key made sense of: above 0.99 from 100,000 keys on.
    fn fill(&self) -> f64 {
        (self.keys as f64 / self.slots().max(1) as f64).min(1.0)
    }

    /// Keys cannot be counted; what can be checked is that nothing is behind the last threshold of
    /// a layer.
    fn recount(&self) -> Option<u64> {
        let (words, _) = self.planes.thresholds.bytes().as_chunks();
        let layers = self.shards.iter().flat_map(|shard| &shard.places[..shard.layers as usize]);
        for layer in layers {
            let buckets = layer.starts.div_ceil(BUCKET);
            let last = layer.thresholds / 8 + threshold_words(layer.blocks()) as usize - 1;
            if buckets % 32 != 0 && u64::from_le_bytes(words[last]) >> (buckets % 32 * 2) != 0 {
                return None;
            }
        }
        Some(self.keys)
    }

    /// The set bits of the first layers, half of which are. Where no keys begin, none are.
    fn profile(&self, slices: usize) -> Vec<Slice> {
        let (words, _) = self.planes.cells.bytes().as_chunks();
        let each = slices.div_ceil(self.shards.len());
        self.planes.cells.expect(Order::Ascending);
        let mut all = Vec::new();
        for shard in &self.shards {
            let layer = &shard.places[0];
            let width = u64::from(shard.width);
            let counts: Vec<Count> = divide(layer.blocks(), each)
                .map(|slice| {
                    let (first, last) = (slice.start * width, slice.end * width);
                    let words = &words[layer.columns / 8..][first as usize..last as usize];
                    let ones = words.iter().map(|word| u64::from_le_bytes(*word).count_ones());
                    Count { used: ones.map(u64::from).sum(), cells: (last - first) * 64 }
                })
                .collect();
            // A bumped bucket leaves slots empty together, each in all columns.
            all.extend(slices_of(&counts, Spread::Probes(8.0 * f64::from(shard.width))));
        }
        self.planes.cells.expect(Order::Random);
        all
    }

    fn bytes(&self) -> u64 {
        self.planes.cells.bytes().len() as u64
    }

    fn memory(&self) -> u64 {
        let thresholds = self.planes.thresholds.bytes().len() as u64;
        storage::allocated(self.bytes()) + storage::allocated(thresholds)
    }

    /// An absent key meets each shard with the same chance, and an empty one has no false
    /// positives.
    fn rate(&self) -> f64 {
        let of = |shard: &Shard| {
            let items = shard.keys as f64 * self.shards.len() as f64;
            crate::kinds::ribbon::plan::rate(items, shard.width)
        };
        self.shards.iter().map(of).sum::<f64>() / self.shards.len() as f64
    }

    fn estimate(&self, _inserted: Option<u64>) -> Estimate {
        Estimate { items: self.keys as f64, error: 0.0 }
    }

    fn room(&self) -> u64 {
        0
    }

    fn next_growth(&self) -> Option<u64> {
        None
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let slots = self.slots();
        let layers = self.shards.iter().map(|shard| shard.layers).max().unwrap_or(0);
        let per_key = self.bytes() as f64 * 8.0 / self.keys.max(1) as f64;
        let widths = || self.shards.iter().map(|shard| shard.width);
        let width = match (widths().min(), widths().max()) {
            (Some(least), Some(most)) if least < most => format!("{least} or {most}"),
            (_, most) => most.unwrap_or(0).to_string(),
        };
        let shards = match self.shards.len() {
            1 => "1 shard".into(),
            shards => format!("{shards} shards"),
        };
        vec![
            ("fingerprints", format!("{width} bits each, {per_key:.2} bits per key in all")),
            ("slots", format!("{slots}, in {shards} of up to {layers} layers")),
        ]
    }

    fn bits(&self) -> Option<&Bits> {
        None
    }

    fn payload(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.planes.cells.bytes())
    }

    fn is_read_only(&self) -> bool {
        !self.planes.cells.is_writable()
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::thread::sleep;
    use std::time::Duration;

    use memmap2::Mmap;

    use super::*;
    use crate::Hasher;
    use crate::compose::overlay::Overlay;

    fn digests() -> Vec<Digest> {
        (0..200_000_u64).map(|key| Hasher::default().digest(key.to_le_bytes())).collect()
    }

    /// A ribbon in a file whose columns were never written, nor read: none of their pages is in
    /// memory, and its answers are worth nothing.
    fn cold(paging: Paging) -> Ribbon {
        let plan = Plan::builder(Kind::Ribbon).items(200_000).rate(1e-9).build().unwrap();
        let built = Ribbon::build(plan, &digests()).unwrap();
        // Beside the tests, and not where temporary files are: that may be memory.
        let tests = std::env::current_exe().unwrap();
        let file = tempfile::tempfile_in(tests.parent().unwrap()).unwrap();
        let bytes = built.planes.cells.bytes();
        file.set_len(bytes.len() as u64).unwrap();
        let behind = built.planes.thresholds.bytes().len() + (ENTRY + TAIL) as usize;
        let thresholds = bytes.len() - behind;
        file.write_all_at(&bytes[thresholds..], thresholds as u64).unwrap();
        // SAFETY: nobody else has the file, and nobody writes to it.
        let map = unsafe { Mmap::map(&file) }.unwrap();
        map.advise(memmap2::Advice::Random).unwrap();
        let mut ribbon = Ribbon::from_cells(plan, Cells::mapped(map, 0, bytes.len())).unwrap();
        ribbon.set_paging(paging);
        ribbon
    }

    fn pages_in_memory(ribbon: &Ribbon, digests: &[Digest]) -> usize {
        let place = |digest: &Digest| ribbon.bytes_of(*digest).map(|bytes| bytes.end - 1);
        let places = digests.iter().filter_map(place);
        places.filter(|at| ribbon.planes.cells.is_resident(*at)).count()
    }

    #[test]
    fn a_batch_asks_for_its_pages_before_it_touches_them() {
        let batch = &digests()[..50];
        for paging in [Paging::Ahead, Paging::Sampled] {
            let ribbon = cold(paging);
            assert_eq!(pages_in_memory(&ribbon, batch), 0, "{paging:?}");
            ribbon.prefetch(batch);
            // They come while nobody waits for them.
            for _ in 0..1000 {
                if pages_in_memory(&ribbon, batch) < batch.len() {
                    sleep(Duration::from_millis(10));
                }
            }
            assert_eq!(pages_in_memory(&ribbon, batch), batch.len(), "{paging:?}");
        }
        let ribbon = cold(Paging::OnDemand);
        ribbon.prefetch(batch);
        sleep(Duration::from_millis(100));
        assert_eq!(pages_in_memory(&ribbon, batch), 0);
    }

    #[test]
    fn a_list_of_changes_hands_on_to_its_base_how_pages_come() {
        let batch = &digests()[..50];
        let base = cold(Paging::Ahead);
        let places = batch.iter().filter_map(|digest| base.bytes_of(*digest));
        let places: Vec<usize> = places.map(|bytes| bytes.end - 1).collect();
        let nothing = Cells::zeroed(0).unwrap();
        let mut list =
            Overlay::from_parts(Box::new(base), Hasher::default(), None, nothing).unwrap();
        let in_memory = |list: &Overlay| {
            let cells = &list.base().of::<Ribbon>().planes.cells;
            places.iter().filter(|at| cells.is_resident(**at)).count()
        };
        // Nothing is asked for while the system reads ahead by itself, nor if it is not wanted.
        list.expect(Order::Ascending);
        list.prefetch(batch);
        list.expect(Order::Random);
        list.set_paging(Paging::OnDemand);
        list.prefetch(batch);
        sleep(Duration::from_millis(100));
        assert_eq!(in_memory(&list), 0);
        list.set_paging(Paging::Ahead);
        list.prefetch(batch);
        for _ in 0..1000 {
            if in_memory(&list) < places.len() {
                sleep(Duration::from_millis(10));
            }
        }
        assert_eq!(in_memory(&list), batch.len());
    }

    /// Else it would wait for another one.
    #[test]
    fn to_look_for_a_key_in_a_file_takes_no_page_but_its_own() {
        let (ribbon, digests) = (cold(Paging::OnDemand), digests());
        let all = ribbon.planes.cells.bytes().len().div_ceil(4096);
        let in_memory =
            || (0..all).filter(|page| ribbon.planes.cells.is_resident(page * 4096)).count();
        let before = in_memory();
        assert!(digests.iter().all(|digest| ribbon.bytes_of(*digest).is_some()));
        assert_eq!(in_memory(), before, "where a key is can be told without the file");
        let _ = ribbon.contains(digests[0]);
        assert!((1..=2).contains(&(in_memory() - before)));
    }
}
