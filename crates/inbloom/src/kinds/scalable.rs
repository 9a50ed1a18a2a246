//! A filter that grows with its keys, and keeps the promised rate at every size.
//!
//! **Idea.** A Bloom filter cannot grow, because its bits do not tell whose they are. A table of
//! fingerprints can: a fingerprint is a piece of the key's hash, and so is its address. When the
//! table has doubled, the address takes one bit over from the fingerprint, and no key is needed. So
//! a query looks at two buckets whatever the size and the history; the obvious alternative, a chain
//! of filters each twice as large as the one before, asks all of them (17 from 100 keys to 10
//! million).
//!
//! **Rate.** After a doubling an entry is one bit shorter, in twice as many buckets: it errs as
//! often as before. So the errors of all generations add up, for ever, and each must get less than
//! the one before. A generation (what comes in between two doublings) may take the share 1 - t of
//! what is left of the promised rate, t being the *tightening*; that decides how long its
//! fingerprints are. What is taken is counted exactly, by entry, and what was not used is left to
//! the later ones. Until there are about 9000 keys memory hardly matters, and all of that time
//! together takes a small part.
//!
//! **Layout.** 64 shards, each a cuckoo table (see `table.rs`) that grows on its own. Shard i has
//! the keys between 2^(i/64) - 1 and 2^((i+1)/64) - 1 of the hash space: the last has twice the
//! keys of the first, so that the 64 grow one after another instead of all at once, and memory and
//! pauses stay even. `place` chooses the shard (by its top 12 bits), `print` and the rest of
//! `place` everything in it. A bucket is two words, of as many slots as the rate allows: four of 16
//! bits at 1%, three of 21 at 0.1%. A full shard first gets a third word in each bucket, and then
//! twice the buckets of two words. That keeps 78% of the slots in use (10 million keys at 1%);
//! doubling alone would keep 67%. It costs a bit less than one bit per fingerprint, since
//! more of them are in a bucket.
//!
//! A small filter is one table, without shards. Its fingerprints begin with the number of the
//! shard, so that it can be divided when it is large.
//!
//! **Cost.** One or two cache misses per query: the second only if the home is full and does not
//! have the key. For 10 million keys that began as 100, 20.4 bits per key at 1%, 28.3 at 0.1%
//! (blocked: 10.1 and 15.8). An insert now and then rebuilds one shard, 1/64 of the filter.
//!
//! **When not.** If the number of keys is known, blocked takes about half the memory and a fraction
//! of the time. High rates save nothing, as fingerprints need bits to give away: 10% takes what 1%
//! does. A bad hash (integers not hashed) does not fill the tables evenly. It cannot remove: a key
//! that came in while a false positive claimed it has no entry of its own, and would be denied once
//! that one's owner is removed.
//!
//! Sources: Apple, "Stretching your data with Taffy filters", 2021 (a cuckoo table that doubles);
//! Dayan, Bercea, Reviriego, Pagh, "InfiniFilter", SIGMOD 2023 (a unary end, so that lengths mix);
//! Almeida et al., "Scalable Bloom filters", 2007 (tightening); Larson, "Linear hashing with
//! partial expansions", VLDB 1980 (growing by less than twice).

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

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::kernels::{FITS_IN_L2, Towards};
use crate::kind::Kind;
use crate::math;
use crate::membership::Membership;
use crate::paging::Paging;
use crate::plan::{Plan, missed_per_key};
use crate::profile::{Count, Slice, Spread, divide, slice, slices_of};
use crate::state::{Clocked, Intersecting, Measured, Positioned, Removable, State};
use crate::storage::{self, Bits, Order};
use allowance::Allowance;
use growth::{Growth, MOST_LARGER, divided, early_after, filled, grow, multiplied};
pub(crate) use plan::FIRST_ITEMS;
use plan::first_shapes;
pub(crate) use row::ROW;
#[cfg(feature = "std")]
pub use shared::SharedScalable;
use table::{Claim, Table, TableShape};

const SHARDS: usize = 64;
/// The largest table without shards: 1024 buckets, 9216 slots at 1%.
const MAX_SMALL_LEVEL: u32 = 10;
/// Each generation without shards takes this part of what the first with shards may take.
const SMALL_PART: f64 = 1.0 / 32.0;
/// Bits that a new fingerprint in a growing shard has at least to give away. An entry that has none
/// left becomes two at each doubling; 2^-(SPARE + 1) of the entries get there with every generation
/// and add up. With 6 that is 8% after ten; with 1, such twins soon fill the table by themselves.
const SPARE: u32 = 6;
/// How full tables get: 94% or more, the more slots the fuller (see the tests of `table.rs`).
const LOAD: f64 = 0.95;

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
    /// Slots in use.
    pub entries: u64,
    /// The rate among the keys of this shard.
    pub rate: f64,
}

impl ShardDetails {
    fn new(number: usize, table: &Table) -> ShardDetails {
        let shape = table.shape();
        ShardDetails {
            share: if shape.tagged { 1.0 } else { share_of(number) },
            buckets: shape.buckets(),
            slots_per_bucket: shape.slots(),
            print_bits: shape.print(),
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
    /// Doublings before there were shards.
    early: u32,
    /// Of all tables.
    bytes: u64,
}

impl fmt::Debug for Scalable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::state::debug("Scalable", self, f)
    }
}

/// Shard i has the places whose top 12 bits are in `BOUNDS[i]..BOUNDS[i + 1]`.
const BOUNDS: [u16; SHARDS + 1] = bounds();
/// The shard of each.
const ROUTES: [u8; 1 << 12] = routes();

const fn bounds() -> [u16; SHARDS + 1] {
    const ROOT: u128 = 0x102c_9a3e_7780_60ee; // 2^(1/64) * 2^60
    let mut bounds = [0; SHARDS + 1];
    let (mut i, mut power) = (0, 1 << 60); // 2^(i/64) * 2^60
    while i <= SHARDS {
        bounds[i] = ((power - (1 << 60) + (1 << 47)) >> 48) as u16;
        power = (power * ROOT) >> 60;
        i += 1;
    }
    bounds
}

const fn routes() -> [u8; 1 << 12] {
    let mut routes = [0; 1 << 12];
    let (mut at, mut shard) = (0, 0);
    while at < routes.len() {
        if at == BOUNDS[shard + 1] as usize {
            shard += 1;
        }
        routes[at] = shard as u8;
        at += 1;
    }
    routes
}

/// The share of a shard, in 4096ths.
fn share(shard: u8) -> u16 {
    BOUNDS[usize::from(shard) + 1] - BOUNDS[usize::from(shard)]
}

fn share_of(shard: usize) -> f64 {
    f64::from(share(shard as u8)) / 4096.0
}

/// The shard of a digest, and the hash that is used in it: 116 bits, from the top.
#[inline(always)]
fn route(digest: Digest) -> (u8, u128) {
    let hash = u128::from(digest.print) << 64 | u128::from(digest.place << 12);
    (ROUTES[(digest.place >> 52) as usize], hash)
}

/// How many claims there are of each length: enough to tell what they claim in a table to come.
struct ClaimLengths([u64; 128]);

impl ClaimLengths {
    fn of(claims: impl Iterator<Item = Claim>) -> ClaimLengths {
        let mut lengths = ClaimLengths([0; 128]);
        claims.for_each(|claim| lengths.0[claim.len as usize] += 1);
        lengths
    }

    fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The share of all hashes that is claimed, if no claim is longer than `most`.
    fn rate(&self, most: u32) -> f64 {
        let claimed = |(len, count): (usize, &u64)| *count as f64 * half_to(most.min(len as u32));
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
        let tables = first_shapes(&plan)?.into_iter().map(|shape| Table::new(shape, 0));
        Ok(Scalable::of(plan, tables.collect::<Result<_>>()?, 0, 0))
    }

    fn of(plan: Plan, tables: Vec<Table>, len: u64, early: u32) -> Scalable {
        let bytes = tables.iter().map(|table| table.shape().bytes()).sum();
        Scalable { plan, tables, len, early, bytes }
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
        let (shard, hash) = route(digest);
        let table = &self.tables[self.index(shard)];
        table.claims(table.spot(shard, hash))
    }

    /// Inserts, unless the digest is claimed already, and tells whether it was certainly new. Fails
    /// with [`Error::Full`] if the filter may not grow and has no room, and with [`Error::Memory`]
    /// if it could not grow; what is in stays in.
    #[inline]
    pub fn insert(&mut self, digest: Digest) -> Result<bool> {
        let (shard, hash) = route(digest);
        let at = self.index(shard);
        let table = &mut self.tables[at];
        let spot = table.spot(shard, hash);
        if table.is_read_only() {
            return Err(Error::ReadOnly);
        }
        if table.claims(spot) {
            return Ok(false);
        }
        if !table.insert(spot) {
            self.insert_otherwise(shard, hash)?;
        }
        self.len = (self.len + 1).min(MAX_LEN);
        Ok(true)
    }

    /// Makes room, and inserts.
    #[inline(never)]
    fn insert_otherwise(&mut self, shard: u8, hash: u128) -> Result<()> {
        loop {
            // A planned key is never refused, even if chance has put too many into one shard.
            if self.plan.growth == 0 && self.len >= self.plan.items {
                return Err(self.full());
            }
            self.expand(self.index(shard))?;
            let at = self.index(shard);
            let table = &mut self.tables[at];
            if table.insert(table.spot(shard, hash)) {
                return Ok(());
            }
        }
    }

    #[inline(always)]
    fn index(&self, shard: u8) -> usize {
        usize::from(shard) & (self.tables.len() - 1) // There is one table, or 64.
    }

    fn full(&self) -> Error {
        Error::Full { items: self.len, planned: self.plan.items }
    }

    /// Slots of all tables.
    fn slots(&self) -> u64 {
        self.tables.iter().map(|table| table.shape().all_slots()).sum()
    }

    fn duplicate(&self) -> Result<Scalable> {
        let tables = self.tables.iter().map(Table::copy).collect::<Result<_>>()?;
        Ok(Scalable::of(self.plan, tables, self.len, self.early))
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

    /// The bytes of all tables.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The rate right now: the share of all hashes that is claimed.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.shards().map(|shard| shard.share * shard.rate).sum()
    }

    /// How many items there will be, about, when the next shard has to grow; if none may, how many
    /// it is for.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        if self.plan.growth == 0 {
            return self.plan.items;
        }
        let room = self.shards().map(|shard| {
            let slots = shard.buckets as f64 * f64::from(shard.slots_per_bucket);
            (slots * LOAD - shard.entries as f64).max(0.0) / shard.share
        });
        self.len + room.fold(f64::INFINITY, f64::min) as u64
    }

    /// How many times the buckets of the shard that did so most often were doubled (or multiplied
    /// by the growth).
    #[must_use]
    pub fn expansions(&self) -> u32 {
        self.early + self.tables.iter().map(|table| table.generation).max().unwrap_or(0)
    }

    /// Every shard; as long as there are none, the one table.
    pub(crate) fn shards(&self) -> impl ExactSizeIterator<Item = ShardDetails> + '_ {
        self.tables.iter().enumerate().map(|(i, table)| ShardDetails::new(i, table))
    }

    fn merge(&mut self, shard: u8, claim: Claim) -> Result<()> {
        let at = self.index(shard);
        let before = self.tables[at].entries;
        let mut at_last = at;
        let most = self.tables[at].shape().level + MOST_LARGER;
        while !self.tables[at_last].merge(claim) {
            if self.tables[at_last].shape().level > most {
                return Err(self.full());
            }
            if self.plan.growth == 0 {
                return Err(self.full());
            }
            self.expand(at_last)?;
            at_last = self.index(shard);
        }
        let new = at != at_last || self.tables[at].entries != before;
        self.len = (self.len + u64::from(new)).min(MAX_LEN);
        Ok(())
    }

    /// Gives tables longer fingerprints where those that are still to come would now take more of the
    /// rate than there is left: a merge has brought some that were not foreseen.
    fn renew(&mut self) -> Result<()> {
        for at in 0..self.tables.len() {
            let table = &self.tables[at];
            let shape = table.shape();
            let lengths = ClaimLengths::of(table.iter());
            let lanes = self.plan.lanes(shape.level, shape.tagged, &lengths);
            if self.plan.growth != 0 && lanes < shape.lanes {
                let shape = TableShape { lanes, words: TableShape::min_words(lanes), ..shape };
                let renewed = filled(shape, table.generation, table.iter(), &mut Allowance::any())?;
                self.replace(at, renewed);
            }
        }
        Ok(())
    }

    /// Makes a table larger by one step.
    fn expand(&mut self, at: usize) -> Result<()> {
        match grow(&self.plan, &self.tables[at], &mut Allowance::any())? {
            Growth::Larger(table) => self.replace(at, table),
            Growth::Shards(tables) => self.be_divided(tables),
            Growth::Useless => return Err(self.full()),
        }
        Ok(())
    }

    fn replace(&mut self, at: usize, table: Table) {
        self.bytes += table.shape().bytes();
        self.bytes -= self.tables[at].shape().bytes();
        self.tables[at] = table;
    }

    fn multiply(&mut self, at: usize) -> Result<()> {
        let larger = multiplied(&self.plan, &self.tables[at], &mut Allowance::any())?;
        self.replace(at, larger);
        Ok(())
    }

    /// Divides the one table into shards, if there is but one.
    fn divide(&mut self) -> Result<()> {
        let [small] = &self.tables[..] else { return Ok(()) };
        let tables = divided(&self.plan, small, &mut Allowance::any())?;
        self.be_divided(tables);
        Ok(())
    }

    fn be_divided(&mut self, tables: Vec<Table>) {
        let early = early_after(self.early, &self.tables[0]);
        *self = Scalable::of(self.plan, tables, self.len, early);
    }
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
    /// The least length. Entries of this length may have become two, or more, of one.
    shortest: u32,
}

/// Buckets of a shard that [`Past`] looks at: some 9000 entries, 600,000 in all shards.
const LOOKED_AT: u64 = 1024;

impl Past {
    fn of(number: usize, table: &Table) -> Past {
        let ShardDetails { share, rate, entries, .. } = ShardDetails::new(number, table);
        let seen = ClaimLengths::of(table.iter_in(0..table.shape().buckets().min(LOOKED_AT)));
        Past { share, rate, entries, seen, shortest: table.shortest() }
    }

    /// The shortest entries of the whole table, as far as the sample tells.
    fn shortest(&self) -> f64 {
        let seen = self.seen.count().max(1) as f64;
        self.seen.0[self.shortest as usize] as f64 / seen * self.entries as f64
    }

    /// How many keys were taken for others for each one that was new, on average over the growth. Of
    /// the shortest entries only the share `own` stands for a key of its own.
    fn missed_per_key(&self, own: f64) -> f64 {
        let whole = self.seen.rate(127);
        let (mut keys, mut missed, mut before) = (0.0, 0.0, 0.0);
        for (len, count) in self.seen.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let own = if len as u32 == self.shortest { own } else { 1.0 };
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
        let shapes = match first_shapes(&self.plan) {
            Ok(shapes) if shapes.iter().map(|shape| shape.bytes()).sum::<u64>() <= self.bytes => {
                shapes
            }
            _ => self.tables.iter().map(Table::shape).collect(),
        };
        let tables = shapes.into_iter().map(|shape| Table::new(shape, 0)).collect::<Result<_>>()?;
        *self = Scalable::of(self.plan, tables, 0, 0);
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
            (here.shape(), here.entries, here.weight)
                == (there.shape(), there.entries, there.weight)
                && (here.bytes() == there.bytes() || sorted(here) == sorted(there))
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
        for (i, table) in other.tables.iter().enumerate() {
            // A smaller table would forget bits that these entries have.
            while merged.plan.growth != 0
                && merged.tables.len() == other.tables.len()
                && merged.tables[i].shape().level < table.shape().level
            {
                merged.multiply(i)?;
            }
            let tagged = table.shape().tagged;
            for claim in table.iter() {
                let shard = if tagged { claim.tag } else { i as u8 };
                merged.merge(shard, claim)?;
            }
        }
        merged.renew()?;
        if merged.rate() > merged.plan.rate {
            let promised = merged.plan.rate;
            return Err(Error::MergedRate { rate: merged.rate(), promised });
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

    /// Of one table, as of any array. Of many, each is a slice: its entries are those of its share
    /// of the keys. An entry that has no bits left to give away becomes two when its table doubles,
    /// so that up to a tenth more or fewer are no sign of a bad hash.
    fn profile(&self, slices: usize) -> Vec<Slice> {
        if let [table] = &self.tables[..] {
            let counts =
                divide(table.shape().buckets(), slices).map(|range| table.count_used(range));
            return slices_of(&counts.collect::<Vec<_>>(), Spread::Entries(TWINS));
        }
        let counts = self.tables.iter().map(|table| table.count_used(0..table.shape().buckets()));
        let counts: Vec<Count> = counts.collect();
        let all: u64 = counts.iter().map(|count| count.used).sum();
        let slices = counts.iter().enumerate().map(|(i, count)| {
            let (cells, entries) = (count.cells as f64, all as f64 * share_of(i));
            let variance = entries * TWINS + math::powi(entries / 50.0, 2);
            slice(count.used as f64 / cells, entries / cells, variance, TWINS, cells)
        });
        slices.collect()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn memory(&self) -> u64 {
        storage::allocated(self.bytes)
    }

    fn rate(&self) -> f64 {
        self.rate()
    }

    fn estimate(&self, _inserted: Option<u64>) -> Estimate {
        let tables: Vec<Past> =
            self.tables.iter().enumerate().map(|(i, table)| Past::of(i, table)).collect();
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
        vec![
            ("expansions", format!("{} so far, {} tables", self.expansions(), self.tables.len())),
            ("load", format!("{} of {slots} slots, {load:.1}%", self.occupied())),
            ("fingerprints", format!("new ones of {fewest} to {most} bits")),
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
            digests.iter().for_each(|digest| self.prefetch_one(*digest));
        }
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        if self.bytes as usize <= FITS_IN_L2 {
            return self.find_run::<false>(run, &[], found);
        }
        self.find_run::<true>(run, next, found);
        // A next run is longer than this one only if this one is empty.
        next.iter().skip(run.len()).for_each(|far| self.prefetch_one(*far));
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        let next = if self.bytes as usize <= FITS_IN_L2 { &[] } else { next };
        for (at, digest) in run.iter().enumerate() {
            if let Some(far) = next.get(at) {
                self.prefetch_one(*far);
            }
            new.push(self.insert(*digest)?);
        }
        next.iter().skip(run.len()).for_each(|far| self.prefetch_one(*far));
        Ok(())
    }
}

impl Scalable {
    /// First looks at all homes, and then at the other buckets of those that need it: which these
    /// are is not foreseen, but no branch depends on it.
    fn find_run<const FAR: bool>(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        let mut rest = [0; RUN];
        for (number, (run, found)) in run.chunks(RUN).zip(found.chunks_mut(RUN)).enumerate() {
            let next = next.get(number * RUN..).unwrap_or(&[]);
            let mut in_rest = 0;
            for (at, (digest, found)) in run.iter().zip(&mut *found).enumerate() {
                if FAR && let Some(far) = next.get(at) {
                    self.prefetch_one(*far);
                }
                let (shard, hash) = route(*digest);
                let table = &self.tables[self.index(shard)];
                let spot = table.spot(shard, hash);
                let maybe_away;
                (*found, maybe_away) = table.at_home(spot);
                if FAR {
                    table.prefetch_away(spot, maybe_away, Towards::Near);
                }
                rest[in_rest % RUN] = at as u8;
                in_rest += usize::from(maybe_away);
            }
            for at in rest[..in_rest].iter().map(|at| usize::from(*at)) {
                let (shard, hash) = route(run[at]);
                let table = &self.tables[self.index(shard)];
                found[at] = table.is_claimed_away(table.spot(shard, hash));
            }
        }
    }

    #[inline(always)]
    fn prefetch_one(&self, digest: Digest) {
        let (shard, hash) = route(digest);
        let table = &self.tables[self.index(shard)];
        table.prefetch_home(table.spot(shard, hash), Towards::Far);
    }
}

/// Queries that look at their other buckets together.
const RUN: usize = 128;
/// Where the count of keys stops, so that a file which claims so many can go on.
const MAX_LEN: u64 = 1 << 63;

#[cfg(test)]
mod tests;
