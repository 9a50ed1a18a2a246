//! A filter that grows with its keys, and keeps the promised rate at every size.
//!
//! **Idea.** A Bloom filter cannot grow, because its bits do not tell whose they are. A table of
//! fingerprints can: a fingerprint is a piece of the key's hash, and so is its address. When the
//! table has doubled, the address takes one bit over from the fingerprint, and no key is needed. So
//! a query looks at two buckets whatever the size and the history; the obvious alternative, a chain
//! of filters each twice as large as the one before, asks all of them (17 from 100 keys to 10
//! million).
//!
//! **Growth** is a bucket at a time (see `table.rs`): every seventh insert or so splits one bucket of 16
//! bytes into two. So memory is always what is needed, nothing waits for a table that is built anew, and
//! no bucket lies in two lines of the cache.
//!
//! **Rate.** After a doubling an entry is one bit shorter, in twice as many buckets: it errs as
//! often as before. So the errors of all generations (what comes in between two doublings) add up,
//! forever. With lanes of 16 bits a generation takes 8 * 2^-14, 0.05%. The first ten would take as
//! much as all that follow, for a few thousand keys: so a small filter has lanes of 32 bits, and what they
//! know beyond 16 is dropped when it is large, which costs what one generation does. Lower rates
//! take 4, 8 or more bits of every key beside the lanes, as many as 20 generations need, up to 10^9 keys.
//! What is taken is counted exactly, by entry. If a generation would take more than what is left
//! (from 10^9 keys on), lanes become wider, table by table.
//!
//! **Layout.** 16 shards, each a table that grows on its own: threads lock one of them. The top 4 bits of `place`
//! choose the shard. A small filter is one table, without shards. Its fingerprints begin with the number
//! of the shard, so that it can be divided when it is large.
//!
//! **Cost.** Two cache misses per query, at once. For 10 million keys that began as 100, 17 bits per
//! key at 1%, 21.5 at 0.1%, 25.8 at 0.01% (blocked: 10.1, 15.8 and 22.2).
//!
//! **When not.** If the number of keys is known, blocked takes about half the memory and a fraction
//! of the time. High rates save nothing, as fingerprints need bits to give away: 10% takes what 1%
//! does. A bad hash (integers not hashed) does not fill the tables evenly. It cannot remove: a key
//! that came in while a false positive claimed it has no entry of its own, and would be denied once
//! that one's owner is removed.
//!
//! Sources: Apple, "Stretching your data with Taffy filters", 2021 (a cuckoo table that doubles);
//! Dayan, Bercea, Reviriego, Pagh, "InfiniFilter", SIGMOD 2023 (a unary end, so that lengths mix);
//! Litwin, "Linear hashing", VLDB 1980 (growing by one bucket).

mod allowance;
mod growth;
mod payload;
mod plan;
mod row;
#[cfg(feature = "std")]
mod shared;
mod table;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::kernels::lanes::LANES;
use crate::kernels::{FITS_IN_L2, Towards};
use crate::kind::Kind;
use crate::math;
use crate::membership::Membership;
use crate::paging::Paging;
use crate::plan::{Plan, missed_per_key};
use crate::profile::{Count, Slice, Spread, divide, slice, slices_of};
use crate::state::{Clocked, Intersecting, Measured, Positioned, Removable, State};
use crate::storage::{Bits, Cells, Order};
use allowance::Allowance;
use growth::{
    Before, Step, divided, enlarge, is_useless, make_memory, most_slots, next_step, split,
    splits_at_once, widened, with_planes,
};
pub(crate) use plan::FIRST_ITEMS;
use plan::{first_bytes, first_tables};
pub(crate) use row::ROW;
#[cfg(feature = "std")]
pub use shared::SharedScalable;
use table::{Claim, Inserted, Narrow, SlotShape, Spot, Table};

/// A shard is the top 4 bits of a place.
const SHARDS: usize = 1 << table::TAG;
/// The largest table without shards: 8192 slots.
const SMALL_BUCKETS: u64 = 1 << 10;
/// How full tables get before they grow. Simulated: an insert searches 2.7 buckets on average at 0.86, 4.9
/// at 0.89, 8.6 at 0.91.
const LOAD: f64 = 0.9;

/// Entries of one key, as far as chance is concerned: one that has become two counts like two keys
/// that always come together.
const TWINS: f64 = 2.0;

/// What `info` shows of a shard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ShardDetails {
    /// The part of all keys that is in this shard.
    pub share: f64,
    pub buckets: u64,
    pub slots_per_bucket: u32,
    /// Bits of a new fingerprint.
    pub print_bits: u32,
    /// The slots in use.
    pub entries: u64,
    /// The rate among the keys of this shard.
    pub rate: f64,
}

impl ShardDetails {
    fn new(table: &Table) -> ShardDetails {
        let slots = table.slots();
        ShardDetails {
            share: if slots.is_tagged { 1.0 } else { 1.0 / SHARDS as f64 },
            buckets: table.buckets(),
            slots_per_bucket: LANES as u32,
            print_bits: slots.print(),
            entries: table.entries,
            rate: table.rate().min(1.0),
        }
    }
}

/// A filter that grows with its keys.
pub struct Scalable {
    plan: Plan,
    /// One, or as many as there are shards.
    tables: Vec<Table>,
    len: u64,
    /// Of the memory of all tables.
    bytes: u64,
}

impl fmt::Debug for Scalable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::state::debug("Scalable", self, f)
    }
}

/// The shard of a digest.
#[inline(always)]
fn route(digest: Digest) -> u8 {
    (digest.place >> (64 - table::TAG)) as u8
}

/// The hash of a digest, as a table uses it.
#[inline(always)]
fn spot(slots: SlotShape, digest: Digest) -> Spot {
    Spot::new(slots, route(digest), digest.place, digest.print)
}

/// Whether an entry of a table claims a digest.
#[inline(always)]
fn claims(table: &Table, digest: Digest) -> bool {
    // The shape of most, in line: how many queries wait for memory at once depends on how few
    // instructions each of them has.
    if table.has_stride(16) {
        return table.narrow::<16>(spot(SlotShape::narrow::<16>(), digest)).is_claimed();
    }
    claims_otherwise(table, digest)
}

#[inline(never)]
fn claims_otherwise(table: &Table, digest: Digest) -> bool {
    match table.slots().stride() {
        20 => table.narrow::<20>(spot(SlotShape::narrow::<20>(), digest)).is_claimed(),
        24 => table.narrow::<24>(spot(SlotShape::narrow::<24>(), digest)).is_claimed(),
        _ => table.claims(spot(table.slots(), digest)),
    }
}

/// How many claims there are of each length: enough to tell what they claim in a table to come.
struct ClaimLengths([u64; 128]);

impl ClaimLengths {
    fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The share of all hashes that is claimed.
    fn rate(&self) -> f64 {
        let claimed = |(len, count): (usize, &u64)| *count as f64 * half_to(len as u32);
        self.0.iter().enumerate().map(claimed).sum()
    }
}

/// 2^-n
fn half_to(n: u32) -> f64 {
    math::powi(0.5, n as i32)
}

impl Scalable {
    /// An empty filter. Panics if the plan is for another kind.
    pub fn new(plan: Plan) -> Result<Scalable> {
        assert_eq!(plan.kind(), Kind::Scalable, "a plan for another kind");
        Ok(Scalable::of(plan, empty_tables(&plan)?, 0))
    }

    fn of(plan: Plan, tables: Vec<Table>, len: u64) -> Scalable {
        let bytes = tables.iter().map(Table::memory).sum();
        Scalable { plan, tables, len, bytes }
    }

    /// The plan it was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether the digest may have been inserted: false is certain, true is probable.
    #[inline]
    #[must_use]
    pub fn contains(&self, digest: Digest) -> bool {
        claims(&self.tables[self.index(digest)], digest)
    }

    /// Inserts, unless the digest is claimed already, and tells whether it was certainly new. Fails
    /// with [`Error::Full`] if the filter may not grow and has no room, and with [`Error::Memory`]
    /// if it could not grow; what is in stays in.
    #[inline]
    pub fn insert(&mut self, digest: Digest) -> Result<bool> {
        let mut at = self.index(digest);
        let table = &mut self.tables[at];
        if table.is_read_only() {
            return Err(Error::ReadOnly);
        }
        match table.insert(spot(table.slots(), digest)) {
            Inserted::Claimed => return Ok(false),
            Inserted::New => {}
            Inserted::Refused => at = self.insert_otherwise(digest)?,
        }
        self.len = (self.len + 1).min(MAX_LEN);
        if self.tables[at & (self.tables.len() - 1)].is_crowded() && self.plan.growth != 0 {
            self.make_ready(at);
        }
        Ok(true)
    }

    /// Grows by a step before there is need. That it cannot is no error before a key has no room.
    #[inline]
    fn make_ready(&mut self, at: usize) {
        if self.expand(at).is_err() {
            let at = at & (self.tables.len() - 1);
            self.tables[at].put_off_growth();
        }
    }

    /// Makes room, inserts, and returns which table the key is in.
    #[cold]
    #[inline(never)]
    fn insert_otherwise(&mut self, digest: Digest) -> Result<usize> {
        let mut at = self.index(digest);
        let mut most = most_slots(self.tables[at].all_slots());
        loop {
            // A planned key is never refused, even if chance has put too many into one shard.
            if self.plan.growth == 0 && self.len >= self.plan.items {
                return Err(self.full());
            }
            let table = &mut self.tables[at];
            if table.is_stuck() || table.all_slots() >= most {
                table.set_stuck();
                return Err(self.full());
            }
            let before = Before::of(table);
            for _ in 0..splits_at_once(table) {
                if self.expand(at)? == Step::Divide {
                    at = self.index(digest);
                    most = most_slots(self.tables[at].all_slots());
                    break;
                }
            }
            let table = &mut self.tables[at];
            if before.was_in_vain(table) {
                table.set_stuck();
            }
            // What was dropped of other claims may be what told them from this one.
            if table.insert(spot(table.slots(), digest)) != Inserted::Refused {
                return Ok(at);
            }
        }
    }

    #[inline(always)]
    fn index(&self, digest: Digest) -> usize {
        usize::from(route(digest)) & (self.tables.len() - 1) // There is one table, or 16.
    }

    fn full(&self) -> Error {
        Error::Full { items: self.len, planned: self.plan.items }
    }

    /// The slots of all tables.
    fn slots(&self) -> u64 {
        self.tables.iter().map(Table::all_slots).sum()
    }

    fn duplicate(&self) -> Result<Scalable> {
        let tables = self.tables.iter().map(Table::copy).collect::<Result<_>>()?;
        Ok(Scalable::of(self.plan, tables, self.len))
    }

    /// The number of digests that were new.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was inserted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes of all tables. Their memory has room for a few more.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(Table::bytes).sum()
    }

    /// The rate right now: the share of all hashes that is claimed.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.shards().map(|shard| shard.share * shard.rate).sum()
    }

    /// How many items there will be, about, when all buckets of a shard have been split once more; if
    /// none may, how many it is for.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        if self.plan.growth == 0 {
            return self.plan.items;
        }
        let room = self.tables.iter().map(|table| {
            let slots = math::powi(2.0, table.level() as i32 + 1) * LANES as f64;
            (slots * LOAD - table.entries as f64).max(1.0) / ShardDetails::new(table).share
        });
        self.len + room.fold(f64::INFINITY, f64::min) as u64
    }

    /// How many times the buckets have doubled.
    #[must_use]
    pub fn expansions(&self) -> u32 {
        expansions(&self.plan, self.tables.iter().map(Table::buckets).sum())
    }

    /// Every shard; as long as there are none, the one table.
    pub(crate) fn shards(&self) -> impl ExactSizeIterator<Item = ShardDetails> + '_ {
        self.tables.iter().map(ShardDetails::new)
    }

    /// Merges a claim into a table that may be grown up to so many slots for it, and returns whether
    /// that took more than a slot.
    fn merge(&mut self, at: usize, claim: Claim, most: u64) -> Result<bool> {
        let table = &mut self.tables[at];
        let mut before = table.entries;
        // A claim that does not tell its bucket is put into all that it may be in.
        let mut is_costly = claim.known < table.level();
        while !table.merge(claim) {
            if self.plan.growth == 0 || is_useless(table) || table.all_slots() >= most {
                return Err(self.full());
            }
            enlarge(table, &mut Allowance::any())?;
            // Entries that have become two are no new keys.
            before = table.entries;
            is_costly = true;
        }
        let is_new = table.entries != before;
        self.len = (self.len + u64::from(is_new)).min(MAX_LEN);
        Ok(is_costly)
    }

    /// Gives tables longer fingerprints where those that are still to come would now take more of the
    /// rate than there is left: a merge has brought some that were not foreseen.
    fn renew(&mut self) -> Result<()> {
        let (items, planned) = (self.len, self.plan.items);
        for table in &mut self.tables {
            if self.plan.growth != 0 && !self.plan.has_rate_left(table) {
                let wider = widened(table, &mut Allowance::any())?;
                *table = wider.ok_or(Error::Full { items, planned })?;
            }
        }
        self.bytes = self.tables.iter().map(Table::memory).sum();
        Ok(())
    }

    /// Makes a table larger by one step.
    #[inline]
    fn expand(&mut self, at: usize) -> Result<Step> {
        let at = at & (self.tables.len() - 1);
        let table = &mut self.tables[at];
        let step = next_step(&self.plan, table);
        match step {
            Step::Split => {
                let memory = make_memory(table, &mut Allowance::any())?;
                self.bytes += split(table, memory)?;
            }
            Step::Widen => self.widen(at)?,
            Step::Divide => self.divide()?,
            Step::Useless => return Err(self.full()),
        }
        Ok(step)
    }

    /// Gives a table wider slots.
    #[cold]
    fn widen(&mut self, at: usize) -> Result<()> {
        let table = &mut self.tables[at];
        let Some(wider) = widened(table, &mut Allowance::any())? else {
            table.set_stuck();
            return Err(self.full());
        };
        self.bytes = self.bytes - table.memory() + wider.memory();
        *table = wider;
        Ok(())
    }

    /// Divides the one table into shards, if there is but one.
    #[cold]
    fn divide(&mut self) -> Result<()> {
        let [small] = &mut self.tables[..] else { return Ok(()) };
        let Some(tables) = divided(&self.plan, small, &mut Allowance::any())? else {
            small.set_stuck();
            return Err(self.full());
        };
        *self = Scalable::of(self.plan, tables, self.len);
        Ok(())
    }
}

/// The tables of an empty filter.
fn empty_tables(plan: &Plan) -> Result<Vec<Table>> {
    let (slots, buckets) = first_tables(plan)?;
    buckets.into_iter().map(|buckets| Table::new(slots, buckets, Cells::zeroed)).collect()
}

/// How many times the buckets have doubled, of which there are so many now.
fn expansions(plan: &Plan, buckets: u64) -> u32 {
    let first = first_tables(plan).map_or(1, |(_, first)| first.iter().sum::<u64>());
    (buckets / first.max(1)).max(1).ilog2()
}

/// What a table tells about its growth: the lengths of its entries, oldest first.
///
/// An entry keeps its length when the table doubles, and each generation's fingerprints are longer
/// than those of the one before. So the lengths are in the order in which the entries came, and the
/// share of all hashes that they claim up to any of them is the rate at which it came.
struct Past {
    /// The part of all keys that is in this shard, and the rate among these.
    share: f64,
    rate: f64,
    entries: u64,
    /// The entries that were looked at: those of the first buckets, a fair sample.
    seen: ClaimLengths,
    /// Entries of this length or less may have become two, or more, of one.
    shortest: u32,
}

/// Buckets of a shard that [`Past`] looks at: some 9000 entries, 600,000 in all shards.
const LOOKED_AT: u64 = 1024;

impl Past {
    fn of(table: &Table) -> Past {
        let ShardDetails { share, rate, entries, .. } = ShardDetails::new(table);
        Past { share, rate, entries, seen: table.lengths(LOOKED_AT), shortest: table.shortest() }
    }

    /// The shortest entries of the whole table, as far as the sample tells.
    fn shortest(&self) -> f64 {
        let seen = self.seen.count().max(1) as f64;
        let shortest: u64 = self.seen.0[..=self.shortest.min(127) as usize].iter().sum();
        shortest as f64 / seen * self.entries as f64
    }

    /// How many keys were taken for others for each one that was new, on average over the growth. Of
    /// the shortest entries only the share `own` stands for a key of its own.
    fn missed_per_key(&self, own: f64) -> f64 {
        let whole = self.seen.rate();
        let (mut keys, mut missed, mut before) = (0.0, 0.0, 0.0);
        for (len, count) in self.seen.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let own = if len as u32 <= self.shortest { own } else { 1.0 };
            let count = *count as f64;
            let after = before + count * half_to(len as u32) / whole * self.rate;
            keys += count * own;
            missed += count * own * missed_per_key(|part| before + (after - before) * part);
            before = after;
        }
        if keys > 0.0 { missed / keys } else { 0.0 }
    }
}

/// How many distinct keys there were, of which `len` were new when they came. The others were taken
/// for one of them, at the rate of that moment. Their number varies as if by a Poisson law, and a
/// sample of the entries adds its own error.
fn estimate(len: u64, tables: &[Past]) -> Estimate {
    let entries: u64 = tables.iter().map(|past| past.entries).sum();
    let shortest: f64 = tables.iter().map(Past::shortest).sum();
    // Entries that have become two of one.
    let twins = entries.saturating_sub(len) as f64;
    let own = if shortest > 0.0 { (1.0 - twins / shortest).max(0.0) } else { 1.0 };
    let each = tables.iter().map(|past| past.share * past.missed_per_key(own));
    let missed = len as f64 * each.sum::<f64>();
    let seen: u64 = tables.iter().map(|past| past.seen.count()).sum();
    let of_sample = if seen < entries { missed * missed / seen.max(1) as f64 } else { 0.0 };
    Estimate { items: len as f64 + missed, error: math::sqrt(missed + of_sample) }
}

impl State for Scalable {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn measured(&self) -> &dyn Measured {
        self
    }

    /// It is then as small as it was at first.
    fn clear(&mut self) -> Result<()> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        // A stranger's header may claim to be for more items than its tables ever had room for.
        let tables = match first_bytes(&self.plan) {
            Ok(bytes) if bytes <= self.bytes => empty_tables(&self.plan)?,
            _ => {
                let empty =
                    |table: &Table| Table::new(table.slots(), table.buckets(), Cells::zeroed);
                self.tables.iter().map(empty).collect::<Result<_>>()?
            }
        };
        *self = Scalable::of(self.plan, tables, 0);
        Ok(())
    }

    fn copy(&self) -> Result<Box<dyn State>> {
        Ok(Box::new(self.duplicate()?))
    }

    /// Whether both have the same entries in tables of the same shapes, wherever in them: that
    /// depends on the order of inserts.
    fn same(&self, other: &dyn State) -> bool {
        let other = other.of::<Scalable>();
        let alike = |(here, there): (&Table, &Table)| {
            let sorted = |table: &Table| {
                let mut claims: Vec<Claim> = table.iter().collect();
                claims.sort_unstable();
                claims
            };
            let counts =
                |table: &Table| (table.slots(), table.buckets(), table.entries, table.weight);
            counts(here) == counts(there)
                && (here.contents().eq(there.contents()) || sorted(here) == sorted(there))
        };
        self.len == other.len
            && self.tables.len() == other.tables.len()
            && self.tables.iter().zip(&other.tables).all(alike)
    }

    /// Takes all entries of the other in, or none: if the rate would be above the promise, which is
    /// then named in the error. What both have may be counted twice, in the length and in the rate:
    /// of two entries for one key, the shorter does not tell that it is the same.
    fn unite(&mut self, other: &dyn State) -> Result<()> {
        let other = other.of::<Scalable>();
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let mut merged = self.duplicate()?;
        if merged.tables.len() < other.tables.len() {
            merged.divide()?;
        }
        // Of bits that the other does not have, nothing is known.
        let planes = |table: &Table| table.slots().planes;
        let all = merged.tables.iter().chain(&other.tables);
        let fewest = all.map(planes).min().expect("tables");
        for table in merged.tables.iter_mut().filter(|table| planes(table) > fewest) {
            *table = with_planes(table, fewest)?.ok_or_else(|| self.full())?;
        }
        let target = merged.plan.rate;
        let slots: Vec<u64> = merged.tables.iter().map(Table::all_slots).collect();
        for (i, table) in other.tables.iter().enumerate() {
            // A smaller table would forget bits that these entries have.
            let is_divided = merged.tables.len() == other.tables.len();
            while merged.plan.growth != 0
                && is_divided
                && merged.tables[i].buckets() < table.buckets()
            {
                enlarge(&mut merged.tables[i], &mut Allowance::any())?;
            }
            let is_tagged = table.slots().is_tagged;
            for claim in table.iter() {
                let shard = if is_tagged { usize::from(claim.tag) } else { i };
                let at = shard & (merged.tables.len() - 1);
                let most = most_slots(slots[at] + table.all_slots());
                let claim = claim.in_planes(planes(table), fewest);
                // The rate only rises: what is too much already is not built to the end.
                if merged.merge(at, claim, most)? && merged.rate() > target {
                    let rate = (self.rate() + other.rate()).max(merged.rate());
                    return Err(Error::MergedRate { rate, target });
                }
            }
        }
        if merged.plan.growth != 0 && merged.tables[0].buckets() > SMALL_BUCKETS {
            merged.divide()?;
        }
        merged.renew()?;
        if merged.rate() > target {
            return Err(Error::MergedRate { rate: merged.rate(), target });
        }
        *self = merged;
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

    /// Its pages come in as they are touched.
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

impl Measured for Scalable {
    /// The slots in use.
    fn occupied(&self) -> u64 {
        self.tables.iter().map(|table| table.entries).sum()
    }

    fn fill(&self) -> f64 {
        self.occupied() as f64 / self.slots() as f64
    }

    fn recount(&self) -> Option<u64> {
        let right = |table: &Table| table.recount() == Some((table.entries, table.weight));
        self.tables.iter().all(right).then(|| self.occupied())
    }

    /// Of one table, by the homes of its entries: where they lie depends on which buckets are split.
    /// Of many, each is a slice. An entry that has no bits left to give away becomes two when its
    /// bucket is split, so that up to a tenth more or fewer are no sign of a bad hash.
    fn profile(&self, slices: usize) -> Vec<Slice> {
        if let [table] = &self.tables[..] {
            let homes = 1_u64 << table.level();
            let parts: Vec<Range<u64>> = divide(homes, slices).collect();
            let mut used = vec![0; parts.len()];
            for claim in table.iter() {
                let home = claim.address & (homes - 1);
                let part = parts.partition_point(|part| part.end <= home);
                used[part] += 1;
            }
            let cells = |part: &Range<u64>| (part.end - part.start) * table.all_slots() / homes;
            let counts = parts.iter().zip(used);
            let counts = counts.map(|(part, used)| Count { used, cells: cells(part).max(used) });
            return slices_of(&counts.collect::<Vec<_>>(), Spread::Entries(TWINS));
        }
        let counts = self.tables.iter().map(|table| table.count_used(0..table.buckets()));
        let counts: Vec<Count> = counts.collect();
        let all: u64 = counts.iter().map(|count| count.used).sum();
        let slices = counts.iter().map(|count| {
            let (cells, entries) = (count.cells as f64, all as f64 / SHARDS as f64);
            let variance = entries * TWINS + math::powi(entries / 50.0, 2);
            slice(count.used as f64 / cells, entries / cells, variance, TWINS, cells)
        });
        slices.collect()
    }

    fn bytes(&self) -> u64 {
        self.bytes()
    }

    fn memory(&self) -> u64 {
        let tables = self.tables.len() as u64;
        tables * (size_of::<Table>() as u64 + Table::allocated(self.bytes / tables))
    }

    fn rate(&self) -> f64 {
        self.rate()
    }

    fn estimate(&self, _inserted: Option<u64>) -> Estimate {
        let tables: Vec<Past> = self.tables.iter().map(Past::of).collect();
        estimate(self.len, &tables)
    }

    fn room(&self) -> u64 {
        if self.plan.growth == 0 { self.plan.items.saturating_sub(self.len) } else { u64::MAX }
    }

    fn next_growth(&self) -> Option<u64> {
        (self.plan.growth != 0).then(|| self.capacity())
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let (slots, load) = (self.slots(), self.fill() * 100.0);
        let (fewest, most) = self.shards().fold((u32::MAX, 0), |(fewest, most), shard| {
            (fewest.min(shard.print_bits), most.max(shard.print_bits))
        });
        let growth = match self.plan.growth {
            0 => format!("none; full from {} keys on", self.plan.items),
            _ => format!("next at about {} keys", self.capacity()),
        };
        let tables = match self.tables.len() {
            1 => "1 table".into(),
            tables => format!("{tables} tables"),
        };
        let bits = match fewest == most {
            true => format!("{most}"),
            false => format!("{fewest} to {most}"),
        };
        vec![
            ("expansions", format!("{} so far, {tables}", self.expansions())),
            ("load", format!("{} of {slots} slots, {load:.1}%", self.occupied())),
            ("fingerprints", format!("new ones of {bits} bits")),
            ("growth", growth),
        ]
    }

    fn bits(&self) -> Option<&Bits> {
        None
    }

    fn payload(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.to_bytes())
    }

    fn is_read_only(&self) -> bool {
        self.tables[0].is_read_only()
    }
}

impl Membership for Scalable {
    #[inline]
    fn contains_digest(&self, digest: Digest) -> bool {
        self.contains(digest)
    }

    #[inline]
    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        self.insert(digest)
    }

    fn prefetch(&self, digests: &[Digest]) {
        if self.bytes as usize > FITS_IN_L2 {
            digests.iter().take(AHEAD).for_each(|digest| self.prefetch_one(*digest, Towards::Near));
        }
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        if self.bytes as usize <= FITS_IN_L2 {
            for (digest, found) in run.iter().zip(found) {
                *found = self.contains(*digest);
            }
            return;
        }
        // At 1%, 0.1% and 0.01%, as long as no slots had to become wider.
        match self.narrow_bytes() {
            Some(16) => self.find_run::<16>(run, next, found),
            Some(20) => self.find_run::<20>(run, next, found),
            Some(24) => self.find_run::<24>(run, next, found),
            _ => {
                let mut later = run.iter().skip(AHEAD).chain(next.iter().take(AHEAD));
                for (digest, found) in run.iter().zip(found) {
                    later.next().inspect(|later| self.prefetch_one(**later, Towards::Near));
                    *found = self.contains(*digest);
                }
                later.for_each(|later| self.prefetch_one(*later, Towards::Near));
            }
        }
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        let is_far = self.bytes as usize > FITS_IN_L2;
        let mut later = run.iter().skip(AHEAD).chain(next.iter().take(AHEAD));
        for digest in run {
            if is_far && let Some(later) = later.next() {
                self.prefetch_one(*later, Towards::NearToWrite);
            }
            new.push(self.insert(*digest)?);
        }
        if is_far {
            later.for_each(|later| self.prefetch_one(*later, Towards::NearToWrite));
        }
        Ok(())
    }
}

impl Scalable {
    /// The bytes of a bucket, if all tables have lanes of 16 bits: then they are alike.
    fn narrow_bytes(&self) -> Option<usize> {
        let is_narrow = |table: &Table| !table.slots().is_wide;
        self.tables.iter().all(is_narrow).then(|| self.tables[0].slots().stride())
    }

    /// Answers a run, where all tables have narrow buckets of so many bytes.
    fn find_run<const BYTES: usize>(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        let Some(first) = run.first() else { return };
        // Where keys are is found out once, when their memory is asked for.
        let mut ahead = [self.narrow::<BYTES>(*first); AHEAD];
        for (ahead, digest) in ahead.iter_mut().zip(run) {
            *ahead = self.narrow(*digest);
        }
        let mut later = run.iter().skip(AHEAD);
        let mut after = next.iter().take(AHEAD);
        for (at, found) in found.iter_mut().enumerate() {
            let ahead = &mut ahead[at % AHEAD];
            let now = *ahead;
            if let Some(digest) = later.next() {
                *ahead = self.narrow(*digest);
                ahead.prefetch(Towards::Near);
            } else if let Some(digest) = after.next() {
                self.prefetch_one(*digest, Towards::Near);
            }
            *found = now.is_claimed();
        }
        after.for_each(|digest| self.prefetch_one(*digest, Towards::Near));
    }

    #[inline(always)]
    fn narrow<const BYTES: usize>(&self, digest: Digest) -> Narrow<'_, BYTES> {
        self.tables[self.index(digest)].narrow(spot(SlotShape::narrow::<BYTES>(), digest))
    }

    #[inline(always)]
    fn prefetch_one(&self, digest: Digest, towards: Towards) {
        let table = &self.tables[self.index(digest)];
        table.prefetch(spot(table.slots(), digest), towards);
    }
}

/// Queries of a run that are sorted by shard.
#[cfg(feature = "std")]
const RUN: usize = 128;
/// How many keys ahead of its use a bucket is asked for. Measured at 10 million keys: 16 took 16 ns, 32
/// took 14. Two steps, first into L2 and then into L1 as blocked filters have them, took longer: finding
/// the buckets of a key costs more than it does there.
const AHEAD: usize = 32;
/// Where the count of keys stops, so that a file which claims so many can go on.
const MAX_LEN: u64 = 1 << 63;

#[cfg(test)]
mod tests;
