//! One cuckoo table of fingerprints of mixed lengths: a shard of a scalable filter.
//!
//! An entry claims all hashes that begin with its bits. The first `level` of them are the number of
//! its home bucket and are not stored; the next ones, at least [`HEAD`], are its fingerprint:
//!
//! ```text
//! slot   | away | fingerprint, 5 bits or more | 1 | 0 ... 0 |      all 0: empty
//! ```
//!
//! The lowest set bit ends the fingerprint, so that short ones (old) and long ones (new) live side
//! by side. An entry is at home, or `away` in its other bucket, (offset - home) mod buckets, where
//! the offset depends on the first bits of the fingerprint: the way back is the same computation.
//! So an entry always tells its home, and a table can be doubled without the keys: one bit moves
//! from the front of the fingerprint to the end of the address.
//!
//! **Worked through.** Level 3, slots of 8 bits, hash 101 0110 11...: home is bucket 5 and the slot
//! there `0 011011 1`. In a table of level 4 the hash is 1010 1101 1...: bucket 10, `0 110110 1`
//! for a new entry, and `0 11011 1 0` for the old one, which knows one bit less.
//!
//! Entries of one table claim disjoint sets (a claimed hash is not inserted), so that the rate is
//! just their sum: each claims 2^-(level + length) of all hashes. `weight` keeps it as an exact
//! integer.
//!
//! **Buckets** are a few words of 64 bits, little-endian, one after the other. A word is divided into
//! slots, from its lowest bits on, as wide as can be for their number; what is left at the top is 0.
//! So the slots of a word are compared all at once: each is a lane of the word, and the arithmetic
//! below never carries from lane to lane.
//!
//! An entry is away only if its home is full, and nothing is ever removed: who finds a free slot at
//! home need not look elsewhere.

use alloc::vec::Vec;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::kernels::{Towards, prefetch};
use crate::math;
use crate::profile::Count;
use crate::splitmix::SplitMix;
use crate::storage::{Cells, words};

/// The shortest fingerprint: it says where the other bucket is. An entry that would lose one of
/// these bits becomes two. Measured at 1%, 5 million keys grown from 100: with 4 bits tables fill
/// to 1.5% less; with 5, 6 and 8 bits, 1.4, 4 and 31% of all entries are such twins.
pub(super) const HEAD: u32 = 5;
/// Bits of the shard's number, which entries keep until there are shards.
pub(super) const TAG: u32 = 6;
/// The most slots of a word: 6 bits of fingerprint each.
pub(super) const MAX_LANES: u32 = 8;
/// The widest slot. A word has room for more, but weights are integers only as far as this.
const MAX_WIDTH: u32 = 58;
/// The most buckets of a table, as a power of two.
pub(super) const MAX_LEVEL: u32 = 44;
/// Buckets that are searched for a free slot. Measured at 1% and 0.1%, 10 million keys: with 32, tables
/// take 6 and 12% more memory than with 128, and two thirds of the time per insert; this is in between.
const SEARCHED: usize = 64;

/// How a table is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableShape {
    /// There are 2^level buckets.
    pub level: u32,
    /// Words of a bucket.
    pub words: u32,
    /// Slots of a word.
    pub lanes: u32,
    /// Whether fingerprints begin with the number of a shard.
    pub tagged: bool,
}

impl TableShape {
    /// The fewest words of a bucket, so that it has four slots at least.
    pub(super) fn min_words(lanes: u32) -> u32 {
        if lanes == 1 { 4 } else { 2 }
    }

    /// The most words of a bucket: half as many again.
    pub(super) fn max_words(lanes: u32) -> u32 {
        TableShape::min_words(lanes) * 3 / 2
    }

    /// Bits of the longest fingerprint, if a word has so many slots.
    pub(super) fn print_of(lanes: u32) -> u32 {
        (64 / lanes).min(MAX_WIDTH) - 2
    }

    /// Whether a table can be laid out so.
    pub(super) fn is_valid(self) -> bool {
        (1..=MAX_LANES).contains(&self.lanes)
            && (TableShape::min_words(self.lanes)..=TableShape::max_words(self.lanes))
                .contains(&self.words)
            && self.level <= MAX_LEVEL
    }

    pub(super) fn buckets(self) -> u64 {
        1 << self.level
    }

    /// Slots of a bucket.
    pub(super) fn slots(self) -> u32 {
        self.words * self.lanes
    }

    pub(super) fn all_slots(self) -> u64 {
        self.buckets() * u64::from(self.slots())
    }

    /// Bits of the longest fingerprint. A slot has two more.
    pub(super) fn print(self) -> u32 {
        TableShape::print_of(self.lanes)
    }

    /// Bits of a slot.
    fn width(self) -> u32 {
        self.print() + 2
    }

    pub(super) fn bytes(self) -> u64 {
        self.buckets() * u64::from(self.words) * 8
    }

    /// Where the slots of a bucket begin, in bits.
    fn starts(self) -> impl Iterator<Item = u32> + Clone {
        let width = self.width();
        (0..self.words)
            .flat_map(move |word| (0..self.lanes).map(move |lane| word * 64 + lane * width))
    }
}

/// What an entry claims: all hashes of a shard that begin with its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    /// The number of the shard, if the table is tagged; otherwise 0.
    pub tag: u8,
    /// The bits, from the top. The rest is 0.
    pub bits: u128,
    /// How many they are.
    pub len: u32,
}

/// Where a hash belongs in a table.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    home: u64,
    /// The hash after the address (and after the tag), from the top.
    print: u64,
}

/// What a look at a bucket tells, by the top bits of its lanes.
#[derive(Clone, Copy)]
struct Seen {
    /// Set in one word or another: this entry claims.
    claims: u64,
    /// Set in all words: this slot is in use.
    in_use: u64,
}

/// A set of claims. What a query needs is in one cache line.
#[repr(C, align(64))]
pub(super) struct Table {
    cells: Cells,
    /// The lowest bit of each lane of a word, and the highest.
    lows: u64,
    tops: u64,
    level: u8,
    /// Bytes of a bucket.
    stride: u8,
    /// Bits of a fingerprint in 64 bits that are beyond the longest, less one.
    beyond: u8,
    tagged: bool,
    shape: TableShape,
    /// Doublings since there are shards.
    pub generation: u32,
    /// The slots in use.
    pub entries: u64,
    /// The sum over all entries of 2^64 / 2^length, times the share of the shard if tagged.
    pub weight: u128,
}

/// The number of the home bucket of a hash, among 2^level.
#[inline(always)]
fn home(hash: u128, level: u32) -> u64 {
    ((hash >> 64) as u64 >> 1) >> (63 - level)
}

/// Where the buckets of a table are: what it takes to ask for their memory before it is locked. It
/// may be out of date, or half so: that costs a useless request, and nothing is read. (So loom,
/// which explores what may be seen, need not know of these atomics.)
pub(super) struct Aim {
    start: AtomicU64,
    /// Bytes of a bucket, and the level.
    layout: AtomicU64,
}

impl Aim {
    pub(super) fn new(table: &Table) -> Aim {
        let aim = Aim { start: AtomicU64::new(0), layout: AtomicU64::new(0) };
        aim.turn(table);
        aim
    }

    /// Aims at another table.
    pub(super) fn turn(&self, table: &Table) {
        self.start.store(table.cells.bytes().as_ptr().addr() as u64, Ordering::Relaxed);
        let layout = u64::from(table.stride) << 8 | u64::from(table.level);
        self.layout.store(layout, Ordering::Relaxed);
    }

    /// Asks for the memory of the home of a hash.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u128, towards: Towards) {
        let layout = self.layout.load(Ordering::Relaxed);
        let offset = home(hash, layout as u32 & 0x3f).wrapping_mul(layout >> 8);
        let at = self.start.load(Ordering::Relaxed).wrapping_add(offset);
        prefetch(ptr::without_provenance(at as usize), towards);
    }
}

impl Table {
    pub(super) fn new(shape: TableShape, generation: u32) -> Result<Table> {
        Ok(Table::with_cells(shape, generation, Cells::zeroed(shape.bytes())?))
    }

    pub(super) fn with_cells(shape: TableShape, generation: u32, cells: Cells) -> Table {
        debug_assert!(shape.is_valid(), "{shape:?}");
        let lows = (0..shape.lanes).map(|lane| 1 << (lane * shape.width())).sum::<u64>();
        Table {
            cells,
            lows,
            tops: lows << (shape.width() - 1),
            level: shape.level as u8,
            stride: (shape.words * 8) as u8,
            beyond: (63 - shape.print()) as u8,
            tagged: shape.tagged,
            shape,
            generation,
            entries: 0,
            weight: 0,
        }
    }

    /// The entries and their weight, counted anew: None if the cells are not what a table holds.
    pub(super) fn recount(&self) -> Option<(u64, u128)> {
        let (bytes, lanes) = (self.cells.bytes(), self.tops | (self.tops - self.lows) | self.lows);
        let (cells, rest) = bytes.split_at_checked(self.shape.bytes() as usize)?;
        if words(cells).any(|word| word & !lanes != 0) || rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        let (mut entries, mut weight) = (0, 0);
        for bucket in 0..self.shape.buckets() {
            for value in self.shape.starts().map(|at| self.get(bucket, at)) {
                if value == 0 {
                    continue;
                }
                self.length(value)?;
                if self.is_away(value) && self.free(self.other_of(bucket, value)).is_some() {
                    return None;
                }
                entries += 1;
                weight += self.weight_of(value);
            }
        }
        Some((entries, weight))
    }

    /// The slots in use in a range of buckets.
    pub(super) fn count_used(&self, buckets: Range<u64>) -> Count {
        let cells = (buckets.end - buckets.start) * u64::from(self.shape.slots());
        let values =
            buckets.flat_map(|bucket| self.shape.starts().map(move |at| self.get(bucket, at)));
        Count { used: values.filter(|value| *value != 0).count() as u64, cells }
    }

    pub(super) fn is_read_only(&self) -> bool {
        !self.cells.is_writable()
    }

    pub(super) fn shape(&self) -> TableShape {
        self.shape
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.cells.bytes()
    }

    pub(super) fn copy(&self) -> Result<Table> {
        let cells = self.cells.copy()?;
        let Table { entries, weight, .. } = *self;
        Ok(Table { entries, weight, ..Table::with_cells(self.shape, self.generation, cells) })
    }

    /// The share of all hashes that is claimed.
    pub(super) fn rate(&self) -> f64 {
        self.weight as f64 / math::powi(2.0, 64) / self.shape.buckets() as f64
    }

    /// Where a hash belongs. `tag` counts only in a tagged table.
    #[inline(always)]
    pub(super) fn spot(&self, tag: u8, hash: u128) -> Spot {
        let level = u32::from(self.level);
        let home = home(hash, level);
        let print = ((hash >> 64) as u64) << level | (hash as u64 >> 1) >> (63 - level);
        if self.tagged {
            return Spot { home, print: u64::from(tag) << (64 - TAG) | print >> TAG };
        }
        Spot { home, print }
    }

    /// Whether an entry claims the hash that belongs here.
    #[inline(always)]
    pub(super) fn claims(&self, spot: Spot) -> bool {
        // Most do not need it, but those that do are not foreseen, and would wait for it alone.
        self.prefetch(self.away(spot), Towards::Near);
        let (found, maybe_away) = self.at_home(spot);
        found || maybe_away && self.is_claimed_away(spot)
    }

    /// Whether an entry at home claims the hash that belongs here; and if not, whether one away may.
    #[inline(always)]
    pub(super) fn at_home(&self, spot: Spot) -> (bool, bool) {
        let seen = self.look(spot.home, self.wanted(spot));
        let found = seen.claims & self.tops != 0;
        (found, !found & (!seen.in_use & self.tops == 0))
    }

    /// Whether an entry away from home claims the hash that belongs here.
    #[inline(always)]
    pub(super) fn is_claimed_away(&self, spot: Spot) -> bool {
        self.look(self.away(spot), self.wanted(spot) | self.tops).claims & self.tops != 0
    }

    /// Asks for the memory of the home of a spot.
    #[inline(always)]
    pub(super) fn prefetch_home(&self, spot: Spot, towards: Towards) {
        self.prefetch(spot.home, towards);
    }

    /// Asks for the memory of the other bucket of a spot, if wanted; otherwise for that of its home,
    /// which is at hand: that costs less than to decide.
    #[inline(always)]
    pub(super) fn prefetch_away(&self, spot: Spot, is_wanted: bool, towards: Towards) {
        let mask = u64::from(is_wanted).wrapping_neg();
        self.prefetch(spot.home ^ (spot.home ^ self.away(spot)) & mask, towards);
    }

    #[inline(always)]
    fn prefetch(&self, bucket: u64, towards: Towards) {
        let start = bucket as usize * usize::from(self.stride);
        prefetch(self.cells.bytes().as_ptr().wrapping_add(start), towards);
    }

    /// Inserts a hash that is not claimed yet, if there is room.
    #[inline]
    pub(super) fn insert(&mut self, spot: Spot) -> bool {
        self.put(spot.home, spot.print >> self.beyond | 1)
    }

    /// Takes over a claim of a table of any shape, if there is room, from which all claims come or
    /// none: they are disjoint. What it knows beyond the longest fingerprint is dropped, and what
    /// it lacks is completed in all ways. If there is no room for all of these, some may be in.
    pub(super) fn absorb(&mut self, claim: Claim) -> bool {
        complete(claim, self.shortest(), &mut |claim| {
            let (spot, known) = self.describe(claim);
            // Two may have been told apart only by the bits that are dropped.
            known > self.shape.print() && self.claims(spot) || self.put_short(spot, known)
        })
    }

    /// As [`Table::absorb`], where parts of the claim may be in the table already.
    pub(super) fn merge(&mut self, claim: Claim) -> bool {
        complete(claim, self.shortest(), &mut |claim| {
            let (spot, known) = self.describe(claim);
            self.covers(spot, known) || self.put_short(spot, known)
        })
    }

    /// The fewest bits of a claim that is not completed.
    pub(super) fn shortest(&self) -> u32 {
        self.shape.level + if self.shape.tagged { 0 } else { HEAD }
    }

    /// Where a claim belongs, and how many bits it has there.
    fn describe(&self, claim: Claim) -> (Spot, u32) {
        let tag = if self.shape.tagged { TAG } else { 0 };
        (self.spot(claim.tag, claim.bits), claim.len - self.shape.level + tag)
    }

    /// Puts an entry of so many bits, or as many as fit.
    fn put_short(&mut self, spot: Spot, known: u32) -> bool {
        let print = self.shape.print();
        let end = print - known.min(print);
        self.put(spot.home, (spot.print >> (63 - print) >> end | 1) << end)
    }

    /// Whether one entry claims all that so many bits do.
    fn covers(&self, spot: Spot, known: u32) -> bool {
        let print = self.shape.print();
        let wanted = spot.print >> self.beyond;
        [(spot.home, 0), (self.away(spot), 1 << (print + 1))].into_iter().any(|(bucket, flag)| {
            self.shape.starts().map(|at| self.get(bucket, at)).any(|value| {
                let end = value.trailing_zeros();
                let known_enough = end <= print && print - end <= known;
                known_enough && (value ^ (wanted | flag)) >> (end + 1) == 0
            })
        })
    }

    /// Every entry's claim.
    pub(super) fn iter(&self) -> impl Iterator<Item = Claim> + Clone + '_ {
        self.iter_in(0..self.shape.buckets())
    }

    /// The claims of the entries in a range of buckets.
    pub(super) fn iter_in(&self, buckets: Range<u64>) -> impl Iterator<Item = Claim> + Clone + '_ {
        let TableShape { level, tagged, .. } = self.shape;
        let all = buckets.flat_map(move |bucket| self.shape.starts().map(move |at| (bucket, at)));
        all.filter_map(move |(bucket, at)| {
            let value = self.get(bucket, at);
            let mut len = self.length(value)?;
            let home = if self.is_away(value) { self.other_of(bucket, value) } else { bucket };
            // The fingerprint from the top, without what ends it.
            let mut print = (value & (value - 1)) << (63 - self.shape.print());
            let mut tag = 0;
            if tagged {
                tag = (print >> (64 - TAG)) as u8;
                print <<= TAG;
                len -= TAG;
            }
            // A level of 0 has no address.
            let home = u128::from(home) << 1 << (127 - level);
            let bits = home | u128::from(print) << 64 >> level;
            Some(Claim { tag, bits, len: level + len })
        })
    }

    #[inline(always)]
    fn away(&self, spot: Spot) -> u64 {
        self.other(spot.home, spot.print >> (64 - HEAD))
    }

    /// A slot at home that would claim the hash, in every lane.
    #[inline(always)]
    fn wanted(&self, spot: Spot) -> u64 {
        (spot.print >> self.beyond) * self.lows
    }

    /// The bucket that shares an entry with this one, by the first bits of the fingerprint. The
    /// offset is odd, so that it is another one.
    #[inline(always)]
    fn other(&self, bucket: u64, head: u64) -> u64 {
        let offset = OFFSETS[head as usize] >> (63 - self.level) | 1;
        offset.wrapping_sub(bucket) & ((1 << self.level) - 1)
    }

    fn other_of(&self, bucket: u64, value: u64) -> u64 {
        self.other(bucket, value >> (self.shape.print() + 1 - HEAD) & ((1 << HEAD) - 1))
    }

    fn is_away(&self, value: u64) -> bool {
        value >> (self.shape.print() + 1) == 1
    }

    /// The length of a fingerprint; None if there is none, or a shorter one than can be.
    fn length(&self, value: u64) -> Option<u32> {
        let print = self.shape.print();
        let shortest = if self.shape.tagged { TAG } else { HEAD };
        let unused = value.trailing_zeros();
        (unused + shortest <= print).then(|| print - unused)
    }

    #[inline(always)]
    fn bucket(&self, bucket: u64) -> &[u8] {
        let stride = usize::from(self.stride);
        &self.cells.bytes()[bucket as usize * stride..][..stride]
    }

    /// Compares a bucket with what is wanted. Of two words and of three it takes the first, the
    /// second and the last: tables differ in that, and a branch would be mispredicted.
    #[inline(always)]
    fn look(&self, bucket: u64, wanted: u64) -> Seen {
        let bytes = self.bucket(bucket);
        let (Some(first), Some(last)) = (bytes.first_chunk::<16>(), bytes.last_chunk::<8>()) else {
            return Seen { claims: 0, in_use: 0 };
        };
        let first = u128::from_le_bytes(*first);
        let mut seen = self.compare(first as u64, wanted);
        seen = seen.and(self.compare((first >> 64) as u64, wanted));
        seen = seen.and(self.compare(u64::from_le_bytes(*last), wanted));
        if self.stride > 24 {
            for word in words(bytes) {
                seen = seen.and(self.compare(word, wanted));
            }
        }
        seen
    }

    /// Sets the top bits of those lanes of `slots` whose fingerprint that of `wanted` begins with,
    /// and of those that are in use; and any other bits.
    #[inline(always)]
    fn compare(&self, slots: u64, wanted: u64) -> Seen {
        let less = self.less_one(slots);
        let differ = slots ^ wanted;
        // One bits up to the end of the fingerprint, where it does not matter what differs. So it
        // must not be less than what differs; the top bit says so, since it is not borrowed.
        let ignored = slots ^ less | self.tops;
        let below = self.tops - self.lows;
        let claims = (ignored - (differ & below)) & !differ & less;
        Seen { claims, in_use: less }
    }

    /// Lanes less one, except for their top bit: that says whether there was anything below it.
    #[inline(always)]
    fn less_one(&self, slots: u64) -> u64 {
        (slots | self.tops) - self.lows
    }

    fn get(&self, bucket: u64, at: u32) -> u64 {
        let (chunks, _) = self.bucket(bucket).as_chunks::<8>();
        u64::from_le_bytes(chunks[at as usize / 64]) >> (at % 64) & self.mask()
    }

    fn set(&mut self, bucket: u64, at: u32, value: u64) {
        let (mask, stride) = (self.mask() << (at % 64), usize::from(self.stride));
        let bytes = self.cells.writable().expect("memory of our own");
        let (chunks, _) = bytes[bucket as usize * stride..][..stride].as_chunks_mut::<8>();
        let word = &mut chunks[at as usize / 64];
        *word = (u64::from_le_bytes(*word) & !mask | value << (at % 64)).to_le_bytes();
    }

    fn mask(&self) -> u64 {
        (1 << self.shape.width()) - 1
    }

    /// Where the first free slot of a bucket begins.
    #[inline]
    fn free(&self, bucket: u64) -> Option<u32> {
        let free = words(self.bucket(bucket)).map(|word| !self.less_one(word) & self.tops);
        let (word, tops) = free.enumerate().find(|(_, tops)| *tops != 0)?;
        Some(word as u32 * 64 + tops.trailing_zeros() + 1 - self.shape.width())
    }

    fn count(&mut self, value: u64) {
        self.entries += 1;
        self.weight += self.weight_of(value);
    }

    /// What an entry adds to the weight.
    fn weight_of(&self, value: u64) -> u128 {
        let length = self.length(value).expect("an entry");
        if !self.shape.tagged {
            return 1 << (64 - length);
        }
        let tag = value << (63 - self.shape.print()) >> (64 - TAG);
        // A share is a multiple of 2^-12.
        u128::from(super::share(tag as u8)) << (52 + TAG - length)
    }

    /// Puts an entry, given as its slot at home, into its home or its other bucket.
    #[inline]
    fn put(&mut self, home: u64, value: u64) -> bool {
        // At home if there is room: so a query that sees a free slot there is done.
        if let Some(at) = self.free(home) {
            self.set(home, at, value);
        } else {
            let away = self.other_of(home, value);
            if let Some(at) = self.free(away) {
                self.set(away, at, value | 1 << (self.shape.print() + 1));
            } else if !self.make_room(home, away, value) {
                return false;
            }
        }
        self.count(value);
        true
    }

    /// Finds the shortest chain of entries that can each move to their other bucket, the last of
    /// them into a free slot, and moves them. Nothing moves before the chain is known.
    ///
    /// The shortest chain has no bucket twice, so that no move undoes another. All buckets that
    /// entries leave stay full.
    #[inline(never)]
    fn make_room(&mut self, home: u64, away: u64, value: u64) -> bool {
        struct Step {
            bucket: u64,
            /// Which step led here, by moving the entry in which of its slots.
            from: usize,
            at: u32,
        }
        let first = |bucket| Step { bucket, from: usize::MAX, at: 0 };
        let mut steps = Vec::with_capacity(SEARCHED);
        steps.extend([first(home), first(away)]);
        let mut from = 0;
        let (mut last, mut free) = 'search: loop {
            let Some(&Step { bucket, .. }) = steps.get(from) else { return false };
            for at in self.shape.starts() {
                if steps.len() == SEARCHED {
                    break;
                }
                let next = self.other_of(bucket, self.get(bucket, at));
                steps.push(Step { bucket: next, from, at });
                if let Some(free) = self.free(next) {
                    break 'search (steps.len() - 1, free);
                }
            }
            from += 1;
        };
        while let Step { bucket, from, at } = steps[last]
            && from != usize::MAX
        {
            let moved = self.get(steps[from].bucket, at) ^ 1 << (self.shape.print() + 1);
            self.set(bucket, free, moved);
            (last, free) = (from, at);
        }
        self.set(steps[last].bucket, free, value | (last as u64) << (self.shape.print() + 1));
        true
    }
}

impl Seen {
    #[inline(always)]
    fn and(self, other: Seen) -> Seen {
        Seen { claims: self.claims | other.claims, in_use: self.in_use & other.in_use }
    }
}

/// Calls `put` with the claim, or with all longer ones that make it up if it is shorter than
/// `least`, as long as that returns true.
fn complete(claim: Claim, least: u32, put: &mut impl FnMut(Claim) -> bool) -> bool {
    if claim.len >= least {
        return put(claim);
    }
    let zero = Claim { len: claim.len + 1, ..claim };
    let one = Claim { bits: claim.bits | 1 << (127 - claim.len), ..zero };
    complete(zero, least, put) && complete(one, least, put)
}

/// Where the other bucket is, by head: random numbers (those of SplitMix64), used from the top.
/// Evenly spread ones would not do: their differences are few, so that chains of moves lead nowhere
/// new.
static OFFSETS: [u64; 1 << HEAD] = offsets();

const fn offsets() -> [u64; 1 << HEAD] {
    let mut offsets = [0; 1 << HEAD];
    let (mut i, mut random) = (0, SplitMix(0));
    while i < offsets.len() {
        offsets[i] = random.draw();
        i += 1;
    }
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::scalar::fold;

    fn hashes(seed: u64) -> impl Iterator<Item = u128> {
        let draw = |i: u64| fold(i ^ 0x9e37_79b9_7f4a_7c15, 0xa076_1d64_78bd_642f);
        (0..).map(move |i: u64| {
            u128::from(draw(seed + 2 * i)) << 64 | u128::from(draw(seed + 2 * i + 1))
        })
    }

    /// Shapes of every width and number of slots, small ones.
    fn shapes() -> impl Iterator<Item = TableShape> {
        (1..=MAX_LANES).flat_map(|lanes| {
            (TableShape::min_words(lanes)..=TableShape::max_words(lanes)).flat_map(move |words| {
                [0, 1, 3, 6].map(|level| TableShape { level, words, lanes, tagged: level == 3 })
            })
        })
    }

    fn tag(hash: u128) -> u8 {
        (hash & 63) as u8
    }

    /// Claims of mixed lengths, as many as there is room for, and queries near them.
    #[test]
    fn a_hash_is_claimed_if_an_entry_begins_it() {
        for shape in shapes() {
            let mut table = Table::new(shape, 0).unwrap();
            let mut claims = Vec::new();
            for hash in hashes(u64::from(shape.lanes) << 32).take(shape.all_slots() as usize) {
                let tag_bits = if shape.tagged { TAG } else { 0 };
                let spread = shape.print() - if shape.tagged { TAG } else { HEAD };
                let len = shape.level + shape.print() - tag_bits - hash as u32 % (spread + 1);
                let bits = hash >> 1 >> (127 - len) << (128 - len).min(127);
                let bits = if len == 0 { 0 } else { bits };
                let tag = if shape.tagged { tag(hash) } else { 0 };
                let claim = Claim { tag, bits, len };
                if table.absorb(claim) {
                    claims.push(claim);
                }
            }
            assert!(claims.len() as u64 * 10 >= shape.all_slots() * 8, "{shape:?}");
            assert_eq!(table.entries, claims.len() as u64);
            let mut listed: Vec<Claim> = table.iter().collect();
            listed.sort_unstable();
            claims.sort_unstable();
            assert_eq!(listed, claims, "{shape:?}");
            let near = claims.iter().flat_map(|claim| {
                (0..8).map(move |i| (claim.tag, claim.bits ^ 1 << (127 - claim.len.min(120)) << i))
            });
            let far = hashes(99).take(200).map(|hash| (tag(hash), hash));
            for (tag, hash) in near.chain(far) {
                let begins = |claim: &&Claim| {
                    (!shape.tagged || claim.tag == tag)
                        && (claim.len == 0 || (hash ^ claim.bits) >> (128 - claim.len) == 0)
                };
                let expected = claims.iter().find(begins).is_some();
                assert_eq!(table.claims(table.spot(tag, hash)), expected, "{shape:?} {hash:x}");
            }
        }
    }

    #[test]
    fn every_entry_survives_any_change_of_shape() {
        let shape = TableShape { level: 5, words: 2, lanes: 4, tagged: false };
        let mut table = Table::new(shape, 0).unwrap();
        let kept: Vec<u128> =
            hashes(7).filter(|hash| table.insert(table.spot(0, *hash))).take(200).collect();
        for level in [0, 3, 5, 6, 9, 13, 15] {
            for lanes in [8, 5, 4, 2] {
                let shape = TableShape { level, words: 3, lanes, tagged: false };
                let mut other = Table::new(shape, 0).unwrap();
                if table.iter().all(|claim| other.absorb(claim)) {
                    assert!(kept.iter().all(|hash| other.claims(other.spot(0, *hash))));
                } else {
                    assert!(shape.all_slots() < 250, "{shape:?}");
                }
            }
        }
    }

    /// The example of the module's documentation.
    #[test]
    fn the_example_is_as_worked_through() {
        let hash = 0b1_0101_1011 << 119;
        let slot = |level: u32, claims: &dyn Fn(&mut Table) -> bool| {
            let shape = TableShape { level, words: 2, lanes: 8, tagged: false };
            let mut table = Table::new(shape, 0).unwrap();
            assert!(claims(&mut table));
            let at = (0..shape.buckets()).find(|bucket| table.get(*bucket, 0) != 0).unwrap();
            (at, table.get(at, 0), table.iter().next().unwrap())
        };
        let new = |table: &mut Table| table.insert(table.spot(0, hash));
        let (home, value, claim) = slot(3, &new);
        assert_eq!((home, value), (5, 0b0011_0111));
        let (home, value, _) = slot(4, &new);
        assert_eq!((home, value), (10, 0b0110_1101));
        let (home, value, _) = slot(4, &|table| table.absorb(claim));
        assert_eq!((home, value), (10, 0b0110_1110));
    }

    #[test]
    fn the_other_bucket_of_the_other_is_the_first() {
        for level in [0, 1, 5, 20] {
            let shape = TableShape { level, words: 2, lanes: 6, tagged: false };
            let table = Table::new(shape, 0).unwrap();
            for head in 0..1 << HEAD {
                for bucket in [0, 1, 17, 12345].map(|bucket| bucket & (shape.buckets() - 1)) {
                    let other = table.other(bucket, head);
                    assert_eq!(table.other(other, head), bucket);
                    assert!(other < shape.buckets() && (level == 0 || other != bucket));
                }
            }
        }
    }

    #[test]
    fn tables_fill_to_the_brim() {
        for (words, lanes) in [(4, 1), (2, 2), (3, 2), (2, 3), (3, 3), (2, 4), (3, 4), (2, 6)] {
            let shape = TableShape { level: 13, words, lanes, tagged: false };
            let mut table = Table::new(shape, 0).unwrap();
            let _ = hashes(3).find(|hash| !table.insert(table.spot(0, *hash)));
            let load = table.entries as f64 / shape.all_slots() as f64;
            assert!(load > 0.94, "{shape:?}: {load}");
        }
    }
}
