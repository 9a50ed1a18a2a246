//! One table of fingerprints of mixed lengths that grows a bucket at a time: a shard of a scalable
//! filter.
//!
//! **Address.** A hash has an address of 64 bits, read from the lowest on, and a *head* of 5 bits.
//! The table has B buckets, 2^level <= B < 2^(level + 1). The first B - 2^level of them are *split*:
//! bucket b of those and bucket b + 2^level were one. So the first `level` bits of the address are
//! the number of a bucket, or one more if that one is split (linear hashing: Litwin 1980). To grow,
//! the next bucket is split, and nothing else moves: 16 bytes are read and 32 written.
//!
//! **Two buckets.** An entry lies in the bucket of its address, its home, or away in the one of its
//! address xor a constant that its head chooses. Both are found the same way. When a bucket is
//! split, an entry in it goes to the one half or the other by the next bit of the address that brought it
//! there, and its second bucket is split, or not, by itself: no other bucket is looked at.
//!
//! **Slot.** What the number of the bucket does not say of an entry is in its slot:
//!
//! ```text
//! lane   | away | tag, head | the next bits of the address, first one on top | 1 | 0 ... 0 |
//! bits     1      0/4, 5      0 to 9 (in lanes of 32 bits: to 25 or 21)                      0: empty
//! ```
//!
//! The lowest set bit ends it, so that short entries (old) and long ones (new) live side by side. An
//! entry claims all hashes that begin with its bits. A split moves one bit from the front of what
//! is left to the number of the bucket; an entry without any becomes two, one in each half. So both always
//! fit: 8 entries become at most 8 in each half.
//!
//! **Worked through.** Level 3, no bucket split, address ...1101 101, head 00010: home is bucket 101 = 5,
//! and the bits from there on are 1, 0, 1, 1, so that the lane begins `0 00010 1011`. Once bucket 5 is split
//! the entry is in bucket 1101 = 13, and its lane begins `0 00010 011`.
//!
//! **Planes.** Lower rates take more bits of the hash, which are the same in every entry for ever: 4 for each
//! plane. A plane is 32 bits behind the lanes of a bucket, 4 for each of its 8 slots. A query
//! compares all of them with one exclusive or.
//!
//! Entries of one table claim disjoint sets (a claimed hash is not inserted), so that the rate is
//! just their sum, which `weight` keeps as an exact integer.
//!
//! **Memory** is in chunks of [`CHUNK`] buckets, of which only the first grows by being copied, and
//! never again when it is whole. A bucket is 16 bytes at 1%: four in a line of the cache, and none in two.

use alloc::vec::Vec;
use core::ops::Range;

use super::{ClaimLengths, LOAD};
use crate::error::Result;
use crate::kernels::lanes::{LANES, Seen, look, look_wide};
use crate::kernels::{Towards, prefetch};
use crate::math;
use crate::profile::Count;
use crate::splitmix::SplitMix;
use crate::storage::Cells;

/// Bits of the hash that choose where the other bucket is.
pub(super) const HEAD: u32 = 5;
/// Bits of the shard's number, which entries keep until there are shards.
pub(super) const TAG: u32 = 4;
/// The most planes: with the lane's, 62 bits of fingerprint.
pub(super) const MAX_PLANES: u32 = 12;
/// The most buckets of a table, as a power of two: addresses have 64 bits, lanes 25 of them at most.
pub(super) const MAX_LEVEL: u32 = 38;
/// Buckets of a chunk of memory, as a power of two: 64 KiB of lanes of 16 bits.
const CHUNK: u32 = 12;
/// Buckets that are searched for a free slot. A search that fails looks at all of them for nothing, so
/// that few are worse than many: simulated at a load of 0.9, 160 and 256 end after 8 buckets on
/// average, and 64 fail so often that tables are filled to 0.87 only, after 18.
const SEARCHED: usize = 256;
/// The weight of an entry that claims everything, as a power of two.
const WHOLE: u32 = 120;

/// How slots are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotShape {
    /// Whether lanes have 32 bits, and not 16.
    pub is_wide: bool,
    /// Planes of 4 bits beside the lanes.
    pub planes: u32,
    /// Whether entries begin with the number of a shard. Only wide ones do.
    pub is_tagged: bool,
}

impl SlotShape {
    /// Whether slots can be laid out so.
    pub(super) fn is_valid(self) -> bool {
        self.planes <= MAX_PLANES && (self.is_wide || !self.is_tagged)
    }

    /// Bits of a lane.
    pub(super) fn lane(self) -> u32 {
        if self.is_wide { 32 } else { 16 }
    }

    /// Bits of the tag, if there is one, and the head.
    #[inline(always)]
    fn front(self) -> u32 {
        if self.is_tagged { TAG + HEAD } else { HEAD }
    }

    /// The most bits of the address in a lane.
    #[inline(always)]
    pub(super) fn tail(self) -> u32 {
        self.lane() - 2 - self.front()
    }

    /// Bits of an entry that do not depend on its age.
    pub(super) fn fixed(self) -> u32 {
        self.front() + 4 * self.planes
    }

    /// Bits of a new fingerprint.
    pub(super) fn print(self) -> u32 {
        self.fixed() + self.tail()
    }

    /// Bytes of a bucket.
    pub(super) fn stride(self) -> usize {
        self.lane() as usize + 4 * self.planes as usize
    }

    /// Bytes of so many buckets. None for more than can be addressed.
    pub(super) fn bytes(self, buckets: u64) -> Option<u64> {
        buckets.checked_mul(self.stride() as u64)?.checked_next_multiple_of(64)
    }
}

/// What an entry claims: all hashes that begin with its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    /// The number of the shard, if the table is tagged; otherwise 0.
    pub tag: u8,
    pub head: u8,
    /// The bits in the planes, 4 for each.
    pub extra: u64,
    /// The first bits of the address. The rest is 0.
    pub address: u64,
    /// How many they are.
    pub known: u32,
}

/// A hash, as a table uses it.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    address: u64,
    /// The tag, if there is one, and the head.
    front: u32,
    extra: u64,
}

/// A bucket, and how many bits of an address its number has beyond the table's level: 0 or 1.
#[derive(Clone, Copy)]
struct Place {
    bucket: u64,
    is_split: u32,
}

/// Both buckets of a hash, and what would claim it there.
#[derive(Clone, Copy, Default)]
pub(super) struct Located {
    buckets: [u64; 2],
    lanes: [u32; 2],
    extra: u64,
}

/// What became of a hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Inserted {
    New,
    /// An entry claims it already.
    Claimed,
    /// There is no room.
    Refused,
}

/// A set of claims. What a query needs is in one cache line.
#[repr(C, align(64))]
pub(super) struct Table {
    chunks: Vec<Cells>,
    /// 2^level - 1
    mask: u64,
    /// The first bucket that is not split yet.
    split: u64,
    level: u32,
    /// Bytes of a bucket.
    stride: u32,
    slots: SlotShape,
    /// Buckets that there is memory for.
    capacity: u64,
    /// Entries from which on the table should grow.
    enough: u64,
    /// The slots in use.
    pub entries: u64,
    /// The sum of 2^120 / 2^length over all entries.
    pub weight: u128,
}

const CHUNK_MASK: u64 = (1 << CHUNK) - 1;
/// Buckets by which a chunk becomes larger, at most.
const PART: u64 = 1 << (CHUNK - 2);

/// The bucket of an address, if this many of the first ones are split.
#[inline(always)]
fn place(address: u64, mask: u64, split: u64) -> Place {
    let low = address & mask;
    let is_split = u64::from(low < split);
    // The next bit counts where the bucket is split: no branch, as it is a coin that decides.
    let bucket = low | address & (mask + 1) & is_split.wrapping_neg();
    Place { bucket, is_split: is_split as u32 }
}

#[inline(always)]
fn offset(front: u32) -> u64 {
    OFFSETS[(front % (1 << HEAD)) as usize]
}

impl Claim {
    /// What is left of a claim where entries have so many planes, and not more.
    pub(super) fn in_planes(self, before: u32, planes: u32) -> Claim {
        Claim { extra: self.extra >> (4 * (before - planes)), ..self }
    }
}

impl Spot {
    /// Of a digest: 4 bits of place are the shard, 5 the head, and those that follow are in planes;
    /// print is the address.
    #[inline(always)]
    pub(super) fn new(slots: SlotShape, tag: u8, place: u64, print: u64) -> Spot {
        let head = (place >> (64 - TAG - HEAD)) as u32 % (1 << HEAD);
        let front = if slots.is_tagged { u32::from(tag) << HEAD | head } else { head };
        let extra = place << (TAG + HEAD) >> 1 >> (63 - 4 * slots.planes);
        Spot { address: print, front, extra }
    }
}

impl Table {
    /// An empty table with memory for as many buckets as it has.
    pub(super) fn new(
        slots: SlotShape,
        buckets: u64,
        mut memory: impl FnMut(u64) -> Result<Cells>,
    ) -> Result<Table> {
        let mut table = Table::with_chunks(slots, buckets, Vec::new());
        while table.capacity < buckets {
            let more = (buckets - table.capacity).min(1 << CHUNK);
            let bytes = slots.bytes(more).unwrap_or(u64::MAX);
            table.push(memory(bytes)?);
        }
        Ok(table)
    }

    /// A table in cells, which have its buckets, whole chunks of them and a last one.
    pub(super) fn with_chunks(slots: SlotShape, buckets: u64, chunks: Vec<Cells>) -> Table {
        debug_assert!(slots.is_valid() && buckets > 0, "{slots:?}");
        let level = buckets.ilog2();
        let mut table = Table {
            chunks: Vec::new(),
            mask: (1 << level) - 1,
            split: buckets - (1 << level),
            level,
            stride: slots.stride() as u32,
            slots,
            capacity: 0,
            enough: 0,
            entries: 0,
            weight: 0,
        };
        table.enough = table.enough();
        chunks.into_iter().for_each(|chunk| table.push(chunk));
        table
    }

    /// The bytes of the chunks of so many buckets, as they lie one behind the other.
    pub(super) fn chunk_bytes(slots: SlotShape, buckets: u64) -> impl Iterator<Item = u64> {
        let chunks = (0..buckets).step_by(1 << CHUNK);
        chunks.map(move |first| slots.bytes((buckets - first).min(1 << CHUNK)).unwrap_or(u64::MAX))
    }

    fn push(&mut self, chunk: Cells) {
        let room = chunk.bytes().len() / self.slots.stride();
        self.capacity += room.min(1 << CHUNK) as u64;
        self.chunks.push(chunk);
    }

    fn enough(&self) -> u64 {
        // In parts, so that no product overflows.
        let slots = self.all_slots();
        slots / 1024 * ENOUGH + slots % 1024 * ENOUGH / 1024
    }

    /// The entries and their weight, counted anew: None if the cells are not what a table holds.
    pub(super) fn recount(&self) -> Option<(u64, u128)> {
        let (mut entries, mut weight) = (0, 0);
        for bucket in 0..self.buckets() {
            let longest = self.slots.tail() - self.is_split(bucket);
            for slot in 0..LANES {
                match self.get(bucket, slot) {
                    (0, 0) => {}
                    (0, _) => return None,
                    (lane, _) => {
                        self.length(lane).filter(|length| *length <= longest)?;
                        entries += 1;
                        weight += self.weight_of(bucket, lane);
                    }
                }
            }
        }
        let rest = (self.buckets()..self.capacity)
            .all(|bucket| self.bucket(bucket).iter().all(|byte| *byte == 0));
        rest.then_some((entries, weight))
    }

    /// The slots in use in a range of buckets.
    pub(super) fn count_used(&self, buckets: Range<u64>) -> Count {
        let cells = (buckets.end - buckets.start) * LANES as u64;
        let used = buckets.map(|bucket| LANES as u64 - u64::from(self.empty(bucket).count_ones()));
        Count { used: used.sum(), cells }
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.chunks.last().is_none_or(|chunk| !chunk.is_writable())
    }

    pub(super) fn slots(&self) -> SlotShape {
        self.slots
    }

    #[inline(always)]
    pub(super) fn buckets(&self) -> u64 {
        self.mask + 1 + self.split
    }

    pub(super) fn all_slots(&self) -> u64 {
        self.buckets() * LANES as u64
    }

    pub(super) fn level(&self) -> u32 {
        self.level
    }

    /// Whether all buckets have been split as often, so that the next split begins a generation.
    pub(super) fn is_even(&self) -> bool {
        self.split == 0
    }

    /// The bytes of its buckets.
    pub(super) fn bytes(&self) -> u64 {
        self.slots.bytes(self.buckets()).unwrap_or(u64::MAX)
    }

    /// The bytes of its memory, in which it may have more buckets.
    pub(super) fn memory(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.bytes().len() as u64).sum()
    }

    /// The bytes of its buckets, in chunks.
    pub(super) fn contents(&self) -> impl Iterator<Item = &[u8]> {
        let lengths = Table::chunk_bytes(self.slots, self.buckets());
        self.chunks.iter().zip(lengths).map(|(chunk, length)| {
            let bytes = chunk.bytes();
            &bytes[..bytes.len().min(length as usize)]
        })
    }

    pub(super) fn copy(&self) -> Result<Table> {
        let chunks = self.chunks.iter().map(Cells::copy).collect::<Result<_>>()?;
        let Table { entries, weight, .. } = *self;
        Ok(Table { entries, weight, ..Table::with_chunks(self.slots, self.buckets(), chunks) })
    }

    /// The share of all hashes that is claimed.
    pub(super) fn rate(&self) -> f64 {
        self.weight as f64 / math::powi(2.0, WHOLE as i32)
    }

    /// How many entries there are of each length in the first buckets.
    pub(super) fn lengths(&self, buckets: u64) -> ClaimLengths {
        let mut lengths = ClaimLengths([0; 128]);
        for bucket in 0..buckets.min(self.buckets()) {
            for slot in 0..LANES {
                if let Some(length) = self.length(self.get(bucket, slot).0) {
                    let bits = self.slots.fixed() + self.level_of(bucket) + length;
                    lengths.0[bits.min(127) as usize] += 1;
                }
            }
        }
        lengths
    }

    /// The length of the shortest entries that can be: these may have become two, or more, of one.
    pub(super) fn shortest(&self) -> u32 {
        self.slots.fixed() + self.level + u32::from(self.split > 0)
    }

    #[inline(always)]
    fn place(&self, address: u64) -> Place {
        place(address, self.mask, self.split)
    }

    #[inline(always)]
    fn places(&self, spot: Spot) -> [Place; 2] {
        [self.place(spot.address), self.place(spot.address ^ offset(spot.front))]
    }

    fn is_split(&self, bucket: u64) -> u32 {
        u32::from(bucket & self.mask < self.split)
    }

    fn level_of(&self, bucket: u64) -> u32 {
        self.level + self.is_split(bucket)
    }

    /// Whether an entry claims the hash.
    #[inline(always)]
    pub(super) fn claims(&self, spot: Spot) -> bool {
        self.claims_at(&self.locate(spot))
    }

    /// Finds both buckets of a hash, and what would claim it there.
    #[inline(always)]
    pub(super) fn locate(&self, spot: Spot) -> Located {
        let [home, other] = self.places(spot);
        let lanes = match self.slots.is_wide {
            true => [self.wanted::<true>(spot, home, 0), self.wanted::<true>(spot, other, 1)],
            false => [self.wanted::<false>(spot, home, 0), self.wanted::<false>(spot, other, 1)],
        };
        Located { buckets: [home.bucket, other.bucket], lanes, extra: spot.extra }
    }

    /// As [`Table::claims`], where the buckets are known. The table must not have grown since.
    #[inline(always)]
    pub(super) fn claims_at(&self, located: &Located) -> bool {
        let [home, other] = self.examine(located);
        home.claims | other.claims != 0
    }

    /// Looks at both buckets, whatever is in the first: a branch would be a coin.
    #[inline(always)]
    fn examine(&self, located: &Located) -> [Seen; 2] {
        let Located { buckets, lanes, extra } = *located;
        if self.slots.is_wide {
            return [0, 1].map(|at| self.look::<true>(buckets[at], lanes[at], extra));
        }
        [0, 1].map(|at| self.look::<false>(buckets[at], lanes[at], extra))
    }

    #[inline(always)]
    fn look<const WIDE: bool>(&self, bucket: u64, wanted: u32, extra: u64) -> Seen {
        let bytes = self.bucket(bucket);
        let lanes;
        let mut seen;
        if WIDE {
            let bucket = bytes.first_chunk::<32>().expect("a whole bucket");
            (seen, lanes) = (look_wide(bucket, wanted), 32);
        } else {
            let bucket = bytes.first_chunk::<16>().expect("a whole bucket");
            (seen, lanes) = (look(bucket, wanted as u16), 16);
        }
        if self.slots.planes > 0 {
            seen.claims &= agreeing(&bytes[lanes..], extra);
        }
        seen
    }

    /// The longest lane that this bucket could have for the hash.
    #[inline(always)]
    fn wanted<const WIDE: bool>(&self, spot: Spot, place: Place, away: u32) -> u32 {
        let next = spot.address >> self.level;
        if WIDE {
            let tail = self.slots.tail();
            let bits = (next >> place.is_split).reverse_bits() >> (64 - tail);
            return away << 31 | spot.front << (tail + 1) | (bits as u32) << 1;
        }
        // Ten bits, of which a bucket that is split has the first in its number.
        let bits = u32::from(REVERSED[next as usize % REVERSED.len()]);
        away << 15 | spot.front << 10 | bits << place.is_split & 0x3fe
    }

    /// Asks for the memory of both buckets of a hash.
    #[inline(always)]
    pub(super) fn prefetch(&self, located: &Located, towards: Towards) {
        for bucket in located.buckets {
            let chunk = &self.chunks[(bucket >> CHUNK) as usize];
            let at = (bucket & CHUNK_MASK) as usize * self.stride as usize;
            let first = chunk.bytes().as_ptr().wrapping_add(at);
            prefetch(first, towards);
            if self.stride > 16 {
                prefetch(first.wrapping_add(self.stride as usize - 1), towards);
            }
        }
    }

    /// Inserts a hash, unless it is claimed, if there is room.
    #[inline]
    pub(super) fn insert(&mut self, spot: Spot) -> Inserted {
        let [home, other] = self.examine(&self.locate(spot));
        if home.claims | other.claims != 0 {
            return Inserted::Claimed;
        }
        let places = self.places(spot);
        // The one that is split, as it gets half the keys of others, or else the emptier: that
        // leaves room for those that have no choice.
        let room = |seen: Seen, place: Place| match seen.empty {
            0 => 0,
            empty => empty.count_ones() + place.is_split * LANES as u32,
        };
        let away = u32::from(room(other, places[1]) > room(home, places[0]));
        let empty = if away == 0 { home.empty } else { other.empty };
        let known = self.level + self.slots.tail();
        if empty == 0 {
            let claimed = self.make_room(places, spot, known);
            return if claimed { Inserted::New } else { Inserted::Refused };
        }
        let place = places[away as usize];
        let lane = self.lane(spot, place, away, known);
        self.set(place.bucket, empty.trailing_zeros() as usize, lane, spot.extra);
        self.count(known);
        Inserted::New
    }

    /// Whether it should grow before it gets many more entries.
    #[inline(always)]
    pub(super) fn is_crowded(&self) -> bool {
        self.entries > self.enough
    }

    /// The bytes of memory that it takes to have one more bucket, and of that, how much it has already
    /// and gives back.
    #[inline(always)]
    pub(super) fn wants(&self) -> Option<(u64, u64)> {
        if self.buckets() < self.capacity {
            return None;
        }
        Some(self.wanted_memory())
    }

    #[cold]
    fn wanted_memory(&self) -> (u64, u64) {
        // The last chunk becomes larger by a 32nd of the table, at most by a quarter of a whole chunk,
        // and a whole one is followed by such a part. So hardly any memory is not in use.
        let in_last = self.capacity & CHUNK_MASK;
        let more = (self.capacity / 32).clamp(4, PART);
        let last = self.chunks.last().filter(|_| in_last != 0);
        let given_back = last.map_or(0, |chunk| chunk.bytes().len() as u64);
        let bytes = self.slots.bytes((in_last + more).min(1 << CHUNK));
        (bytes.unwrap_or(u64::MAX), given_back)
    }

    /// Takes memory of as many bytes as it [`wants`](Table::wants).
    pub(super) fn take(&mut self, mut memory: Cells) -> Result<()> {
        if self.capacity & CHUNK_MASK != 0 {
            let last = self.chunks.pop().expect("a chunk that is not whole");
            let bytes = last.bytes();
            memory.bytes_mut()?[..bytes.len()].copy_from_slice(bytes);
            self.capacity &= !CHUNK_MASK;
        }
        self.push(memory);
        Ok(())
    }

    /// Splits one more bucket, for which there must be memory.
    pub(super) fn split(&mut self) {
        debug_assert!(self.buckets() < self.capacity);
        let (lower, upper) = (self.split, self.split + self.mask + 1);
        let mut old = [(0, 0); LANES];
        for (slot, old) in old.iter_mut().enumerate() {
            *old = self.get(lower, slot);
        }
        self.bucket_mut(lower).fill(0);
        let tail = self.slots.tail();
        let end = 1 << tail;
        let mut count = [0; 2];
        for (lane, extra) in old {
            if lane == 0 {
                continue;
            }
            let rest = lane & (2 * end - 1);
            let front = lane - rest;
            let away = lane >> (self.slots.lane() - 1);
            if rest == end {
                // Nothing is known of the next bit: it is in both.
                for (side, bucket) in [lower, upper].into_iter().enumerate() {
                    self.set(bucket, count[side], lane, extra);
                    count[side] += 1;
                }
                self.entries += 1;
                continue;
            }
            let moved = (offset(lane >> (tail + 1)) >> self.level) as u32 & away;
            let side = ((rest >> tail ^ moved) & 1) as usize;
            self.set([lower, upper][side], count[side], front | rest << 1 & (2 * end - 1), extra);
            count[side] += 1;
        }
        self.split += 1;
        if self.split > self.mask {
            (self.split, self.mask, self.level) = (0, 2 * self.mask + 1, self.level + 1);
        }
        self.enough = self.enough();
    }

    /// Takes over a claim of any table, if there is room, from which all claims come or none: they
    /// are disjoint. What it knows beyond the longest fingerprint is dropped, and what it lacks is
    /// completed in all ways. If there is no room for all of these, some may be in.
    pub(super) fn absorb(&mut self, claim: Claim) -> bool {
        self.complete(claim, &mut |table, claim| {
            let spot = table.spot_of(claim);
            // Two may have been told apart only by the bits that are dropped.
            claim.known > table.longest() && table.claims(spot) || table.put(spot, claim.known)
        })
    }

    /// As [`Table::absorb`], where parts of the claim may be in the table already.
    pub(super) fn merge(&mut self, claim: Claim) -> bool {
        self.complete(claim, &mut |table, claim| {
            table.covers(claim) || table.put(table.spot_of(claim), claim.known)
        })
    }

    /// The most bits of an address that an entry knows.
    fn longest(&self) -> u32 {
        self.level + self.slots.tail()
    }

    fn spot_of(&self, claim: Claim) -> Spot {
        let tag = if self.slots.is_tagged { u32::from(claim.tag) << HEAD } else { 0 };
        Spot { address: claim.address, front: tag | u32::from(claim.head), extra: claim.extra }
    }

    /// Calls `put` with the claim, or with all longer ones that make it up if it does not tell its
    /// home, as long as that returns true.
    fn complete(&mut self, claim: Claim, put: &mut impl FnMut(&mut Table, Claim) -> bool) -> bool {
        let home = self.place(claim.address);
        if claim.known >= self.level && claim.known >= self.level + home.is_split {
            return put(self, claim);
        }
        let zero = Claim { known: claim.known + 1, ..claim };
        let one = Claim { address: claim.address | 1 << claim.known, ..zero };
        self.complete(zero, put) && self.complete(one, put)
    }

    /// Whether one entry claims all that the claim does.
    fn covers(&self, claim: Claim) -> bool {
        let places = self.places(self.spot_of(claim));
        let mut near = places.into_iter().flat_map(|place| self.claims_in(place.bucket));
        near.any(|entry| {
            let same = entry.address ^ claim.address & ((1_u64 << entry.known) - 1) == 0;
            let fixed = |claim: Claim| (claim.tag, claim.head, claim.extra);
            entry.known <= claim.known && same && fixed(entry) == fixed(claim)
        })
    }

    /// Every entry's claim.
    pub(super) fn iter(&self) -> impl Iterator<Item = Claim> + Clone + '_ {
        (0..self.buckets()).flat_map(|bucket| self.claims_in(bucket))
    }

    fn claims_in(&self, bucket: u64) -> impl Iterator<Item = Claim> + Clone + '_ {
        (0..LANES).filter_map(move |slot| {
            let (lane, extra) = self.get(bucket, slot);
            self.length(lane).map(|length| self.claim(bucket, lane, extra, length))
        })
    }

    fn claim(&self, bucket: u64, lane: u32, extra: u64, length: u32) -> Claim {
        let (tail, level) = (self.slots.tail(), self.level_of(bucket));
        let front = lane >> (tail + 1) & ((1 << self.slots.front()) - 1);
        let at_home = if self.is_away(lane) { offset(front) } else { 0 };
        let home = (bucket ^ at_home) & ((1 << level) - 1);
        // The first bit of the address is on top.
        let bits = u64::from(lane & ((2 << tail) - 1)).reverse_bits() >> (63 - tail);
        let bits = bits & ((1 << length) - 1);
        Claim {
            tag: (front >> HEAD) as u8,
            head: front as u8 % (1 << HEAD),
            extra,
            address: home | bits << level,
            known: level + length,
        }
    }

    fn is_away(&self, lane: u32) -> bool {
        lane >> (self.slots.lane() - 1) == 1
    }

    /// How many bits of an address a lane has; None if it is empty, or none of ours.
    fn length(&self, lane: u32) -> Option<u32> {
        self.slots.tail().checked_sub(lane.trailing_zeros())
    }

    /// The lane of an entry of so many bits, or as many as fit.
    #[inline(always)]
    fn lane(&self, spot: Spot, place: Place, away: u32, known: u32) -> u32 {
        let wanted = match self.slots.is_wide {
            true => self.wanted::<true>(spot, place, away),
            false => self.wanted::<false>(spot, place, away),
        };
        let end = (self.level + place.is_split + self.slots.tail()).saturating_sub(known);
        // Not even a new entry has a bit more than it would have where the bucket is not split.
        let end = end.max(place.is_split);
        (wanted >> end | 1) << end
    }

    fn count(&mut self, known: u32) {
        self.entries += 1;
        self.weight += weight(self.slots, known);
    }

    fn weight_of(&self, bucket: u64, lane: u32) -> u128 {
        let length = self.length(lane).expect("an entry");
        weight(self.slots, self.level_of(bucket) + length)
    }

    /// Puts an entry of so many bits, or as many as fit, into its home or its other bucket.
    fn put(&mut self, spot: Spot, known: u32) -> bool {
        let known = known.min(self.longest());
        let places = self.places(spot);
        for (away, place) in places.into_iter().enumerate() {
            let empty = self.empty(place.bucket);
            if empty != 0 && known >= self.level + place.is_split {
                let lane = self.lane(spot, place, away as u32, known);
                self.set(place.bucket, empty.trailing_zeros() as usize, lane, spot.extra);
                self.count(known);
                return true;
            }
        }
        self.make_room(places, spot, known)
    }

    /// Finds the shortest chain of entries that can each move to their other bucket, the last of
    /// them into a free slot, and moves them. Nothing moves before the chain is known.
    ///
    /// The shortest chain has no bucket twice, so that no move undoes another.
    #[inline(never)]
    fn make_room(&mut self, places: [Place; 2], spot: Spot, known: u32) -> bool {
        struct Step {
            place: Place,
            /// Which step led here, by moving the entry in which of its slots.
            from: usize,
            slot: usize,
        }
        let mut steps = Vec::with_capacity(SEARCHED);
        let start = |place| Step { place, from: usize::MAX, slot: 0 };
        steps.extend(places.map(start));
        // An entry that does not tell which half it is for cannot go to a bucket that is split.
        let starts = if known < self.level + places[1].is_split { 1 } else { 2 };
        steps.truncate(starts);
        let mut from = 0;
        let (mut last, mut free) = 'search: loop {
            let Some(&Step { place, .. }) = steps.get(from) else { return false };
            for slot in 0..LANES {
                if steps.len() == SEARCHED {
                    break;
                }
                let lane = self.get(place.bucket, slot).0;
                let Some(next) = self.other_of(place, lane) else { continue };
                steps.push(Step { place: next, from, slot });
                let empty = self.empty(next.bucket);
                if empty != 0 {
                    break 'search (steps.len() - 1, empty.trailing_zeros() as usize);
                }
            }
            from += 1;
        };
        while let Step { place, from, slot } = steps[last]
            && from != usize::MAX
        {
            let source = steps[from].place;
            let (lane, extra) = self.get(source.bucket, slot);
            let moved = self.moved(source, lane, place);
            self.set(place.bucket, free, moved, extra);
            (last, free) = (from, slot);
        }
        let place = steps[last].place;
        let lane = self.lane(spot, place, last as u32, known);
        self.set(place.bucket, free, lane, spot.extra);
        self.count(known);
        true
    }

    /// The other bucket of an entry; None if it does not tell which half of that it is for.
    fn other_of(&self, place: Place, lane: u32) -> Option<Place> {
        let tail = self.slots.tail();
        let offset = offset(lane >> (tail + 1));
        let address = place.bucket ^ offset;
        if place.is_split == 1 {
            return Some(self.place(address));
        }
        let low = address & self.mask;
        if low >= self.split {
            return Some(Place { bucket: low, is_split: 0 });
        }
        if self.length(lane)? == 0 {
            return None;
        }
        // The next bit of the home's address is in the lane.
        let next = u64::from(lane >> tail & 1);
        let away = u64::from(!self.is_away(lane)) & offset >> self.level;
        Some(Place { bucket: low | (next ^ away) << self.level, is_split: 1 })
    }

    /// The lane that an entry has in its other bucket.
    fn moved(&self, from: Place, lane: u32, to: Place) -> u32 {
        let tail = self.slots.tail();
        let rest = lane & ((2 << tail) - 1);
        let front = lane - rest;
        let rest = match (from.is_split, to.is_split) {
            (0, 1) => rest << 1 & ((2 << tail) - 1),
            (1, 0) => {
                let offset = if self.is_away(lane) { offset(lane >> (tail + 1)) } else { 0 };
                let bit = ((from.bucket ^ offset) >> self.level) as u32 & 1;
                // A lane without room for one bit more is none of ours: it loses its last.
                rest >> 1 | bit << tail | u32::from(rest & 1 == 1)
            }
            _ => rest,
        };
        (front | rest) ^ 1 << (self.slots.lane() - 1)
    }

    #[inline(always)]
    fn bucket(&self, bucket: u64) -> &[u8] {
        let stride = self.stride as usize;
        let chunk = self.chunks[(bucket >> CHUNK) as usize].bytes();
        &chunk[(bucket & CHUNK_MASK) as usize * stride..][..stride]
    }

    #[inline(always)]
    fn bucket_mut(&mut self, bucket: u64) -> &mut [u8] {
        let stride = self.stride as usize;
        let chunk = &mut self.chunks[(bucket >> CHUNK) as usize];
        let bytes = chunk.writable().expect("memory of our own");
        &mut bytes[(bucket & CHUNK_MASK) as usize * stride..][..stride]
    }

    /// The empty slots of a bucket.
    #[inline]
    fn empty(&self, bucket: u64) -> u32 {
        let bytes = self.bucket(bucket);
        let seen = match self.slots.is_wide {
            true => bytes.first_chunk().map(|bucket| look_wide(bucket, 0)),
            false => bytes.first_chunk().map(|bucket| look(bucket, 0)),
        };
        seen.map_or(0, |seen| seen.empty)
    }

    /// The lane of a slot, and its bits in the planes.
    #[inline]
    fn get(&self, bucket: u64, slot: usize) -> (u32, u64) {
        let bytes = self.bucket(bucket);
        let (lanes, planes) = bytes.split_at(self.slots.lane() as usize);
        let lane = match self.slots.is_wide {
            true => u32::from_le_bytes(lanes.as_chunks().0[slot]),
            false => u16::from_le_bytes(lanes.as_chunks().0[slot]).into(),
        };
        let mut extra = 0;
        for (plane, bytes) in planes.as_chunks::<4>().0.iter().enumerate() {
            let bits = u32::from_le_bytes(*bytes) >> (4 * slot) & 15;
            extra |= u64::from(bits) << (4 * plane);
        }
        (lane, extra)
    }

    #[inline]
    fn set(&mut self, bucket: u64, slot: usize, lane: u32, extra: u64) {
        let SlotShape { is_wide, .. } = self.slots;
        let bytes = self.bucket_mut(bucket);
        let (lanes, planes) = bytes.split_at_mut(if is_wide { 32 } else { 16 });
        match is_wide {
            true => lanes.as_chunks_mut().0[slot] = lane.to_le_bytes(),
            false => lanes.as_chunks_mut().0[slot] = (lane as u16).to_le_bytes(),
        }
        for (plane, bytes) in planes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let bits = (extra >> (4 * plane)) as u32 & 15;
            let others = u32::from_le_bytes(*bytes) & !(15 << (4 * slot));
            *bytes = (others | bits << (4 * slot)).to_le_bytes();
        }
    }
}

/// The slots whose bits in all planes are these, as a bit each.
#[inline(always)]
fn agreeing(planes: &[u8], extra: u64) -> u32 {
    let mut differ = 0;
    for (plane, bytes) in planes.as_chunks::<4>().0.iter().enumerate() {
        let wanted = (extra >> (4 * plane)) as u32 & 15;
        differ |= u32::from_le_bytes(*bytes) ^ (wanted * 0x1111_1111);
    }
    // Four bits to one, and these to the lowest eight.
    let differ = differ | differ >> 1;
    let differ = (differ | differ >> 2) & 0x1111_1111;
    let differ = (differ | differ >> 3) & 0x0303_0303;
    let differ = (differ | differ >> 6) & 0x000f_000f;
    !(differ | differ >> 12) & 0xff
}

/// What an entry of so many bits of an address adds to the weight.
#[inline(always)]
fn weight(slots: SlotShape, known: u32) -> u128 {
    1 << (WHOLE - slots.fixed() - known)
}

/// The entries at which a table grows, in 1024ths of its slots.
const ENOUGH: u64 = (LOAD * 1024.0) as u64;

/// Ten bits in the reverse order.
static REVERSED: [u16; 1 << 10] = reversed();

const fn reversed() -> [u16; 1 << 10] {
    let mut reversed = [0; 1 << 10];
    let mut bits = 0;
    while bits < reversed.len() {
        reversed[bits] = (bits as u16).reverse_bits() >> 6;
        bits += 1;
    }
    reversed
}

/// What the address of the other bucket differs in, by head: random numbers (those of SplitMix64).
/// The lowest bit is set, so that it is another one.
static OFFSETS: [u64; 1 << HEAD] = offsets();

const fn offsets() -> [u64; 1 << HEAD] {
    let mut offsets = [0; 1 << HEAD];
    let (mut i, mut random) = (0, SplitMix(0));
    while i < offsets.len() {
        offsets[i] = random.draw() | 1;
        i += 1;
    }
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: SlotShape = SlotShape { is_wide: false, planes: 0, is_tagged: false };

    fn spots(slots: SlotShape, seed: u64) -> impl Iterator<Item = Spot> {
        let mut random = SplitMix(seed << 32);
        core::iter::repeat_with(move || {
            let (place, print) = (random.draw(), random.draw());
            Spot::new(slots, (place >> (64 - TAG)) as u8, place, print)
        })
    }

    fn table(slots: SlotShape, buckets: u64) -> Table {
        Table::new(slots, buckets, Cells::zeroed).unwrap()
    }

    fn all_slots() -> impl Iterator<Item = SlotShape> {
        let lanes = [(false, false), (true, false), (true, true)];
        lanes.into_iter().flat_map(|(is_wide, is_tagged)| {
            [0, 1, 2, 5, MAX_PLANES].map(|planes| SlotShape { is_wide, planes, is_tagged })
        })
    }

    fn grow(table: &mut Table) {
        if let Some((bytes, _)) = table.wants() {
            table.take(Cells::zeroed(bytes).unwrap()).unwrap();
        }
        table.split();
    }

    fn claim_of(table: &Table, spot: Spot, known: u32) -> Claim {
        let front = spot.front;
        Claim {
            tag: (front >> HEAD) as u8,
            head: front as u8 % (1 << HEAD),
            extra: spot.extra & ((1_u64 << (4 * table.slots.planes)) - 1),
            address: spot.address & ((1 << known) - 1),
            known,
        }
    }

    fn begins(claim: &Claim, spot: Spot) -> bool {
        u32::from(claim.tag) << HEAD | u32::from(claim.head) == spot.front
            && claim.extra == spot.extra
            && (claim.address ^ spot.address) & ((1 << claim.known) - 1) == 0
    }

    /// Claims of mixed lengths, as many as there is room for, and hashes near them, in tables with
    /// some buckets split.
    #[test]
    fn a_hash_is_claimed_if_an_entry_begins_it() {
        for slots in all_slots() {
            for buckets in [1, 2, 3, 8, 13, 64, 100] {
                let mut table = table(slots, buckets);
                let mut claims: Vec<Claim> = Vec::new();
                for spot in spots(slots, buckets).take(buckets as usize * LANES * 3 / 4) {
                    let shortest = table.level + 1;
                    let spread = table.longest() - shortest + 1;
                    let claim =
                        claim_of(&table, spot, shortest + (spot.address >> 40) as u32 % spread);
                    if table.absorb(claim) {
                        claims.push(claim);
                    }
                }
                assert!(claims.len() as u64 * 10 >= buckets * 8 * 7, "{slots:?} {buckets}");
                assert_eq!(table.entries, claims.len() as u64);
                assert!(table.recount() == Some((table.entries, table.weight)));
                let mut listed: Vec<Claim> = table.iter().collect();
                listed.sort_unstable();
                claims.sort_unstable();
                assert_eq!(listed, claims, "{slots:?} {buckets}");
                let near: Vec<Spot> = claims
                    .iter()
                    .flat_map(|claim| {
                        let spot = table.spot_of(*claim);
                        (0..8)
                            .map(move |i| Spot {
                                address: spot.address ^ 1 << claim.known >> 4 << i,
                                ..spot
                            })
                            .chain([
                                Spot { front: spot.front ^ 1, ..spot },
                                Spot { extra: spot.extra ^ u64::from(slots.planes > 0), ..spot },
                            ])
                    })
                    .collect();
                for spot in near.into_iter().chain(spots(slots, 99).take(100)) {
                    let expected = claims.iter().any(|claim| begins(claim, spot));
                    assert_eq!(table.claims(spot), expected, "{slots:?} {buckets}");
                }
            }
        }
    }

    /// From one bucket to hundreds, and so far that entries run out of bits.
    #[test]
    fn nothing_is_lost_when_buckets_are_split() {
        for slots in all_slots() {
            let mut table = table(slots, 1);
            let mut kept: Vec<Spot> = Vec::new();
            for spot in spots(slots, 5).take(3000) {
                while table.insert(spot) == Inserted::Refused {
                    grow(&mut table);
                }
                kept.push(spot);
            }
            let entries = table.entries;
            while table.level < 18 && !slots.is_wide || table.level < 12 {
                grow(&mut table);
                if table.buckets().is_power_of_two() || table.buckets() % 1000 == 7 {
                    assert!(kept.iter().all(|spot| table.claims(*spot)), "{slots:?}");
                }
            }
            assert_eq!(table.entries > entries, !slots.is_wide, "{slots:?}: twins");
            assert!(table.recount() == Some((table.entries, table.weight)), "{slots:?}");
        }
    }

    #[test]
    fn every_entry_survives_another_shape() {
        let mut first = table(NARROW, 29);
        let kept: Vec<Spot> = spots(NARROW, 7)
            .filter(|spot| first.insert(*spot) == Inserted::New)
            .take(200)
            .collect();
        for buckets in [3, 20, 29, 40, 64, 100, 1000, 9000] {
            for is_wide in [false, true] {
                let slots = SlotShape { is_wide, ..NARROW };
                let mut other = table(slots, buckets);
                if first.iter().all(|claim| other.absorb(claim)) {
                    assert!(kept.iter().all(|spot| other.claims(*spot)));
                    assert!(first.iter().all(|claim| other.covers(claim) || buckets > 1000));
                } else {
                    assert!(buckets < 29, "{buckets}");
                }
            }
        }
    }

    /// The example of the module's documentation.
    #[test]
    fn the_example_is_as_worked_through() {
        let mut table = table(NARROW, 8);
        let spot = Spot { address: 0b110_1101, front: 0b00010, extra: 0 };
        // Address bits from the lowest: 1, 0, 1 (bucket 5), 1, 0, 1, 1.
        assert!(table.insert(spot) == Inserted::New);
        assert_eq!(table.get(5, 0).0 >> 6, 0b00_0010_1011);
        (0..6).for_each(|_| grow(&mut table));
        assert_eq!(table.get(13, 0).0 >> 7, 0b0_0001_0011);
    }

    #[test]
    fn the_other_bucket_of_the_other_is_the_first() {
        for buckets in [1, 2, 3, 32, 50, 1 << 12, 5000] {
            let table = table(NARROW, buckets);
            for spot in spots(NARROW, buckets).take(500) {
                let [home, other] = table.places(spot);
                let known = table.longest();
                let at_home = table.lane(spot, home, 0, known);
                let away = table.lane(spot, other, 1, known);
                assert_eq!(table.other_of(home, at_home).unwrap().bucket, other.bucket);
                assert_eq!(table.other_of(other, away).unwrap().bucket, home.bucket);
                assert_eq!(table.moved(home, at_home, other), away);
                assert_eq!(table.moved(other, away, home), at_home);
                assert!(home.bucket < buckets && other.bucket < buckets);
                assert!(buckets == 1 || home.bucket != other.bucket);
            }
        }
    }

    /// Wherever in a generation: buckets that are not split get twice the keys of others.
    #[test]
    fn tables_fill_to_the_brim() {
        for buckets in [4096, 5000, 6000, 7000, 8000] {
            let mut table = table(NARROW, buckets);
            let _ = spots(NARROW, 3).find(|spot| table.insert(*spot) == Inserted::Refused);
            let load = table.entries as f64 / table.all_slots() as f64;
            assert!(load > LOAD + 0.01, "{buckets}: {load}");
        }
    }
}
