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
//! **Buckets** have 4 to 7 slots, back to back in one little-endian bit string, lowest first, so
//! that a bucket is in one load of 128 bits (wide slots: 4 to a bucket, in two). Its slots are
//! compared all at once: each is a lane of one large number, and the arithmetic below never carries
//! from lane to lane.

use crate::cells::Cells;
use crate::error::Result;
use crate::simd::{Towards, prefetch};

/// The shortest fingerprint: it says where the other bucket is. An entry that would lose one of
/// these bits becomes two. Measured at 1%, 5 million keys grown from 100: with 4 bits tables fill
/// to 1.5% less; with 5, 6 and 8 bits, 1.4, 4 and 31% of all entries are such twins.
pub(super) const HEAD: u32 = 5;
/// Bits of the shard's number, which entries keep until there are shards.
pub(super) const TAG: u32 = 6;
/// The longest fingerprint (tag included): a slot then takes 57 bits, which are always within 64
/// bits from the start of a byte.
pub(super) const MAX_PRINT: u32 = 55;
/// The fewest slots of a bucket, and the most.
pub(super) const MIN_SLOTS: u32 = 4;
const MAX_SLOTS: u32 = 7;
/// The most buckets of a table, as a power of two.
pub(super) const MAX_LEVEL: u32 = 44;
/// Bits of a bucket that are surely in a load of 128 that starts with its first byte.
const LOADED: u32 = 121;
/// Bytes behind the buckets, only to be loaded.
const PADDING: u64 = 16;
/// Buckets that are searched for a free slot. 64 took a quarter less time per insert than 256, and
/// 4% more memory (6 million keys, measured); this is in between.
const SEARCHED: usize = 128;

/// How a table is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// There are 2^level buckets.
    pub level: u32,
    /// Slots of a bucket.
    pub slots: u32,
    /// Bits of the longest fingerprint. A slot has two more.
    pub print: u32,
    /// Whether fingerprints begin with the number of a shard.
    pub tagged: bool,
}

impl Shape {
    /// The most slots of a bucket whose fingerprints have this many bits.
    pub(super) fn max_slots(print: u32) -> u32 {
        (LOADED / (print + 2)).clamp(MIN_SLOTS, MAX_SLOTS)
    }

    /// Whether a table can be laid out so.
    pub(super) fn is_valid(self) -> bool {
        let shortest = if self.tagged { TAG } else { HEAD };
        (shortest..=MAX_PRINT).contains(&self.print)
            && (MIN_SLOTS..=Shape::max_slots(self.print)).contains(&self.slots)
            && self.level <= MAX_LEVEL
    }

    pub(super) fn buckets(self) -> u64 {
        1 << self.level
    }

    pub(super) fn all_slots(self) -> u64 {
        self.buckets() * u64::from(self.slots)
    }

    /// Bits of a slot.
    fn width(self) -> u32 {
        self.print + 2
    }

    fn bucket_bits(self) -> u64 {
        u64::from(self.slots * self.width())
    }

    /// Bytes that hold the buckets, and some more: a multiple of 8.
    pub(super) fn bytes(self) -> u64 {
        (self.buckets() * self.bucket_bits() / 8 + PADDING).next_multiple_of(8)
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

/// A set of claims.
pub(super) struct Table {
    shape: Shape,
    /// Bits of a bucket.
    stride: u64,
    /// The lowest bit of each lane, and the highest.
    lows: u128,
    tops: u128,
    /// The slots of a bucket fit into one load.
    in_one: bool,
    /// Doublings since there are shards.
    pub generation: u32,
    /// The slots in use.
    pub entries: u64,
    /// The sum over all entries of 2^64 / 2^length, times the share of the shard if tagged.
    pub weight: u128,
    cells: Cells,
}

impl Table {
    pub(super) fn new(shape: Shape, generation: u32) -> Result<Table> {
        Ok(Table::with_cells(shape, generation, Cells::zeroed(shape.bytes())?))
    }

    pub(super) fn with_cells(shape: Shape, generation: u32, cells: Cells) -> Table {
        debug_assert!(shape.is_valid(), "{shape:?}");
        let in_one = shape.bucket_bits() <= u64::from(LOADED);
        let lanes = if in_one { shape.slots } else { MIN_SLOTS / 2 };
        let lows = (0..lanes).map(|lane| 1u128 << (lane * shape.width())).sum::<u128>();
        let tops = lows << (shape.width() - 1);
        let stride = shape.bucket_bits();
        Table { shape, stride, lows, tops, in_one, generation, entries: 0, weight: 0, cells }
    }

    /// The entries and their weight, counted anew: None if the cells are not what a table holds.
    pub(super) fn recount(&self) -> Option<(u64, u128)> {
        let Shape { slots, .. } = self.shape;
        let used = self.shape.buckets() * self.shape.bucket_bits();
        let (after, bytes) = ((used / 8) as usize, self.cells.bytes());
        if bytes[after] >> (used % 8) != 0 || bytes[after + 1..].iter().any(|byte| *byte != 0) {
            return None;
        }
        let (mut entries, mut weight) = (0, 0);
        for bucket in 0..self.shape.buckets() {
            for value in (0..slots).map(|slot| self.get(bucket, slot)).filter(|value| *value != 0) {
                self.length(value)?;
                entries += 1;
                weight += self.weight_of(value);
            }
        }
        Some((entries, weight))
    }

    pub(super) fn is_read_only(&self) -> bool {
        !self.cells.is_writable()
    }

    pub(super) fn shape(&self) -> Shape {
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
        self.weight as f64 / 2f64.powi(64) / self.shape.buckets() as f64
    }

    /// Where a hash belongs. `tag` counts only in a tagged table.
    #[inline(always)]
    pub(super) fn spot(&self, tag: u8, hash: u128) -> Spot {
        let level = self.shape.level;
        let home = ((hash >> 64) as u64 >> 1) >> (63 - level);
        let print = ((hash >> 64) as u64) << level | (hash as u64 >> 1) >> (63 - level);
        if self.shape.tagged {
            return Spot { home, print: u64::from(tag) << (64 - TAG) | print >> TAG };
        }
        Spot { home, print }
    }

    /// Whether an entry claims the hash that belongs here.
    #[inline(always)]
    pub(super) fn claims(&self, spot: Spot) -> bool {
        let print = spot.print >> (63 - self.shape.print);
        let away = self.other(spot.home, spot.print >> (64 - HEAD));
        let wanted = u128::from(print) * self.lows;
        let at_home = self.matches(self.load(spot.home, 0), wanted);
        let elsewhere = self.matches(self.load(away, 0), wanted | self.tops);
        let found = (at_home | elsewhere) & self.tops != 0;
        if self.in_one {
            return found;
        }
        let at_home = self.matches(self.load(spot.home, 1), wanted);
        let elsewhere = self.matches(self.load(away, 1), wanted | self.tops);
        found || (at_home | elsewhere) & self.tops != 0
    }

    /// Asks for the memory of a spot.
    #[inline(always)]
    pub(super) fn prefetch(&self, spot: Spot, towards: Towards) {
        let base = self.cells.bytes().as_ptr();
        for bucket in [spot.home, self.other(spot.home, spot.print >> (64 - HEAD))] {
            let start = bucket * self.stride;
            prefetch(base.wrapping_add((start / 8) as usize), towards);
            // Mostly the same line. To ask again costs less than to find out.
            prefetch(base.wrapping_add(((start + self.stride) / 8) as usize), towards);
        }
    }

    /// Inserts a hash that is not claimed yet, if there is room.
    #[inline]
    pub(super) fn insert(&mut self, spot: Spot) -> bool {
        self.put(spot.home, spot.print >> (63 - self.shape.print) | 1)
    }

    /// Takes over a claim of a table of any shape, if there is room, from which all claims come or
    /// none: they are disjoint. What it knows beyond the longest fingerprint is dropped, and what
    /// it lacks is completed in all ways. If there is no room for all of these, some may be in.
    pub(super) fn absorb(&mut self, claim: Claim) -> bool {
        complete(claim, self.shortest(), &mut |claim| {
            let (spot, known) = self.describe(claim);
            // Two may have been told apart only by the bits that are dropped.
            known > self.shape.print && self.claims(spot) || self.put_short(spot, known)
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
    fn shortest(&self) -> u32 {
        self.shape.level + if self.shape.tagged { 0 } else { HEAD }
    }

    /// Where a claim belongs, and how many bits it has there.
    fn describe(&self, claim: Claim) -> (Spot, u32) {
        let tag = if self.shape.tagged { TAG } else { 0 };
        (self.spot(claim.tag, claim.bits), claim.len - self.shape.level + tag)
    }

    /// Puts an entry of so many bits, or as many as fit.
    fn put_short(&mut self, spot: Spot, known: u32) -> bool {
        let print = self.shape.print;
        let end = print - known.min(print);
        self.put(spot.home, (spot.print >> (63 - print) >> end | 1) << end)
    }

    /// Whether one entry claims all that so many bits do.
    fn covers(&self, spot: Spot, known: u32) -> bool {
        let print = self.shape.print;
        let away = self.other(spot.home, spot.print >> (64 - HEAD));
        let wanted = spot.print >> (63 - print);
        [(spot.home, 0), (away, 1 << (print + 1))].into_iter().any(|(bucket, flag)| {
            (0..self.shape.slots).map(|slot| self.get(bucket, slot)).any(|value| {
                let end = value.trailing_zeros();
                value != 0 && print - end <= known && (value ^ (wanted | flag)) >> (end + 1) == 0
            })
        })
    }

    /// Every entry's claim.
    pub(super) fn iter(&self) -> impl Iterator<Item = Claim> + Clone + '_ {
        let Shape { level, slots, tagged, .. } = self.shape;
        let all = (0..self.shape.buckets())
            .flat_map(move |bucket| (0..slots).map(move |slot| (bucket, slot)));
        all.filter_map(move |(bucket, slot)| {
            let value = self.get(bucket, slot);
            let mut len = self.length(value)?;
            let home = if self.is_away(value) { self.other_of(bucket, value) } else { bucket };
            // The fingerprint from the top, without what ends it.
            let mut print = (value & (value - 1)) << (63 - self.shape.print);
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

    /// The same entries in buckets with one slot more. All stay where they are.
    pub(super) fn widened(&self) -> Result<Table> {
        let shape = Shape { slots: self.shape.slots + 1, ..self.shape };
        let mut wider = Table::new(shape, self.generation)?;
        for bucket in 0..shape.buckets() {
            for slot in 0..self.shape.slots {
                wider.set(bucket, slot, self.get(bucket, slot));
            }
        }
        (wider.entries, wider.weight) = (self.entries, self.weight);
        Ok(wider)
    }

    /// The bucket that shares an entry with this one, by the first bits of the fingerprint. The
    /// offset is odd, so that it is another one.
    #[inline(always)]
    fn other(&self, bucket: u64, head: u64) -> u64 {
        let offset = OFFSETS[head as usize] >> (63 - self.shape.level) | 1;
        offset.wrapping_sub(bucket) & (self.shape.buckets() - 1)
    }

    fn other_of(&self, bucket: u64, value: u64) -> u64 {
        self.other(bucket, value >> (self.shape.print + 1 - HEAD) & ((1 << HEAD) - 1))
    }

    fn is_away(&self, value: u64) -> bool {
        value >> (self.shape.print + 1) == 1
    }

    /// The length of a fingerprint; None if there is none, or a shorter one than can be.
    fn length(&self, value: u64) -> Option<u32> {
        let print = self.shape.print;
        let shortest = if self.shape.tagged { TAG } else { HEAD };
        let unused = value.trailing_zeros();
        (unused + shortest <= print).then(|| print - unused)
    }

    /// The bits from a bucket's first on, or from its third slot on if it takes two loads.
    #[inline(always)]
    fn load(&self, bucket: u64, half: u64) -> u128 {
        let start = bucket * self.stride + half * 2 * u64::from(self.shape.width());
        let bytes = self.cells.bytes()[(start / 8) as usize..].first_chunk::<16>();
        u128::from_le_bytes(*bytes.expect(PADDED)) >> (start % 8)
    }

    /// Sets the top bits of those lanes of `slots` whose fingerprint that of `wanted` begins with,
    /// and any other bits.
    #[inline(always)]
    fn matches(&self, slots: u128, wanted: u128) -> u128 {
        let less = self.less_one(slots);
        let differ = slots ^ wanted;
        // One bits up to the end of the fingerprint, where it does not matter what differs. So it
        // must not be less than what differs; the top bit says so, since it is not borrowed.
        let ignored = slots ^ less | self.tops;
        let below = self.tops - self.lows;
        (ignored - (differ & below)) & !differ & less
    }

    /// Lanes less one, except for their top bit: that says whether there was anything below it.
    #[inline(always)]
    fn less_one(&self, slots: u128) -> u128 {
        (slots | self.tops) - self.lows
    }

    fn get(&self, bucket: u64, slot: u32) -> u64 {
        let (byte, shift) = self.place(bucket, slot);
        let word = self.cells.bytes()[byte..].first_chunk::<8>().expect(PADDED);
        u64::from_le_bytes(*word) >> shift & self.mask()
    }

    fn set(&mut self, bucket: u64, slot: u32, value: u64) {
        let ((byte, shift), mask) = (self.place(bucket, slot), self.mask());
        let bytes = self.cells.writable().expect("memory of our own");
        let word = bytes[byte..].first_chunk_mut::<8>().expect(PADDED);
        let others = u64::from_le_bytes(*word) & !(mask << shift);
        *word = (others | value << shift).to_le_bytes();
    }

    /// The byte that a slot starts in, and at which bit of it.
    fn place(&self, bucket: u64, slot: u32) -> (usize, u32) {
        let start = bucket * self.stride + u64::from(slot * self.shape.width());
        ((start / 8) as usize, (start % 8) as u32)
    }

    fn mask(&self) -> u64 {
        (1 << self.shape.width()) - 1
    }

    /// The first free slot of a bucket.
    #[inline]
    fn free(&self, bucket: u64) -> Option<u32> {
        let width = self.shape.width();
        let first = |half| (!self.less_one(self.load(bucket, half)) & self.tops).trailing_zeros();
        match first(0) {
            128 if self.in_one => None,
            128 => (first(1) < 128).then(|| 2 + first(1) / width),
            bit => Some(bit / width),
        }
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
        let tag = value << (63 - self.shape.print) >> (64 - TAG);
        // A share is a multiple of 2^-12.
        u128::from(super::share(tag as u8)) << (52 + TAG - length)
    }

    /// Puts an entry, given as its slot at home, into its home or its other bucket.
    #[inline]
    fn put(&mut self, home: u64, value: u64) -> bool {
        let away = self.other_of(home, value);
        // Into the emptier one: evenly full buckets need the fewest moves later.
        let (first, second) = (self.free(home), self.free(away));
        match (first, second) {
            (Some(slot), None) => self.set(home, slot, value),
            (Some(slot), Some(there)) if slot <= there => self.set(home, slot, value),
            (_, Some(slot)) => self.set(away, slot, value | 1 << (self.shape.print + 1)),
            (None, None) => {
                if !self.make_room(home, away, value) {
                    return false;
                }
            }
        }
        self.count(value);
        true
    }

    /// Finds the shortest chain of entries that can each move to their other bucket, the last of
    /// them into a free slot, and moves them. Nothing moves before the chain is known.
    ///
    /// The shortest chain has no bucket twice, so that no move undoes another.
    #[inline(never)]
    fn make_room(&mut self, home: u64, away: u64, value: u64) -> bool {
        struct Step {
            bucket: u64,
            /// Which step led here, by moving the entry in which of its slots.
            from: usize,
            slot: u32,
        }
        let first = |bucket| Step { bucket, from: usize::MAX, slot: 0 };
        let mut steps = Vec::with_capacity(SEARCHED);
        steps.extend([first(home), first(away)]);
        let mut at = 0;
        let (mut last, mut free) = 'search: loop {
            let Some(&Step { bucket, .. }) = steps.get(at) else { return false };
            for slot in 0..self.shape.slots {
                if steps.len() == SEARCHED {
                    break;
                }
                let next = self.other_of(bucket, self.get(bucket, slot));
                steps.push(Step { bucket: next, from: at, slot });
                if let Some(free) = self.free(next) {
                    break 'search (steps.len() - 1, free);
                }
            }
            at += 1;
        };
        while let Step { bucket, from, slot } = steps[last]
            && from != usize::MAX
        {
            let moved = self.get(steps[from].bucket, slot) ^ 1 << (self.shape.print + 1);
            self.set(bucket, free, moved);
            (last, free) = (from, slot);
        }
        self.set(steps[last].bucket, free, value | (last as u64) << (self.shape.print + 1));
        true
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
    let (mut i, mut state) = (0, 0u64);
    while i < offsets.len() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = state;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        offsets[i] = x ^ x >> 31;
        i += 1;
    }
    offsets
}

const PADDED: &str = "16 bytes follow the buckets";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::scalar::fold;

    fn hashes(seed: u64) -> impl Iterator<Item = u128> {
        let draw = |i: u64| fold(i ^ 0x9e37_79b9_7f4a_7c15, 0xa076_1d64_78bd_642f);
        (0..).map(move |i: u64| {
            u128::from(draw(seed + 2 * i)) << 64 | u128::from(draw(seed + 2 * i + 1))
        })
    }

    /// Shapes of every width and number of slots, small ones.
    fn shapes() -> impl Iterator<Item = Shape> {
        (HEAD..=MAX_PRINT).flat_map(|print| {
            (MIN_SLOTS..=Shape::max_slots(print)).flat_map(move |slots| {
                [0, 1, 3, 6].map(|level| Shape {
                    level,
                    slots,
                    print,
                    tagged: print > 9 && level == 3,
                })
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
            for hash in hashes(u64::from(shape.print) << 32).take(shape.all_slots() as usize) {
                let tag_bits = if shape.tagged { TAG } else { 0 };
                let spread = shape.print - if shape.tagged { TAG } else { HEAD };
                let len = shape.level + shape.print - tag_bits - hash as u32 % (spread + 1);
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
        let shape = Shape { level: 5, slots: 4, print: 12, tagged: false };
        let mut table = Table::new(shape, 0).unwrap();
        let kept: Vec<u128> =
            hashes(7).filter(|hash| table.insert(table.spot(0, *hash))).take(100).collect();
        for level in [0, 3, 5, 6, 9, 13, 15] {
            for print in [HEAD, 9, 12, 30] {
                let slots = Shape::max_slots(print);
                let mut other =
                    Table::new(Shape { level, slots, print, tagged: false }, 0).unwrap();
                if table.iter().all(|claim| other.absorb(claim)) {
                    assert!(kept.iter().all(|hash| other.claims(other.spot(0, *hash))));
                } else {
                    assert!(!(5..=9).contains(&level), "{level}");
                }
            }
        }
        let wider = table.widened().unwrap();
        assert!(kept.iter().all(|hash| wider.claims(wider.spot(0, *hash))));
    }

    /// The example of the module's documentation.
    #[test]
    fn the_example_is_as_worked_through() {
        let hash = 0b1_0101_1011 << 119;
        let slot = |level: u32, claims: &dyn Fn(&mut Table) -> bool| {
            let shape = Shape { level, slots: 4, print: 6, tagged: false };
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
            let shape = Shape { level, slots: 4, print: 8, tagged: false };
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
        for slots in MIN_SLOTS..=7 {
            let shape = Shape { level: 13, slots, print: 13, tagged: false };
            let mut table = Table::new(shape, 0).unwrap();
            let _ = hashes(3).find(|hash| !table.insert(table.spot(0, *hash)));
            let load = table.entries as f64 / shape.all_slots() as f64;
            assert!(load > 0.93, "{slots} slots: {load}");
        }
    }
}
