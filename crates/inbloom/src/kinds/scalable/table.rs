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
//! **Planes.** Lower rates take more bits of the hash, which are the same in every entry forever: 4 for each
//! plane. A plane is 32 bits behind the lanes of a bucket, 4 for each of its 8 slots. A query
//! compares all of them with one exclusive or.
//!
//! Entries of one table claim disjoint sets (a claimed hash is not inserted), so that the rate is
//! just their sum, which `weight` keeps as an exact integer.
//!
//! **Memory** is in chunks of 2^[`CHUNK`] buckets. Only the last one grows, by being copied, and never
//! again when it is whole. A bucket is 16 bytes at 1%: four in a line of the cache, and none in two.

mod claims;
mod full;
mod growth;
mod room;
mod slot;

use alloc::vec;
use alloc::vec::Vec;
use core::hint::select_unpredictable;
use core::ops::Range;

use super::LOAD;
use crate::error::Result;
use crate::kernels::lanes::{LANES, Seen, claims_either, look, look_wide};
use crate::kernels::{Towards, prefetch};
use crate::math;
use crate::memory;
use crate::profile::Count;
use crate::storage::{self, Cells};
use full::FullBuckets;
pub(super) use slot::{Claim, HEAD, MAX_PLANES, SlotShape, Spot, TAG};
use slot::{REVERSED, WHOLE, agreeing, offset, weight};

/// The most buckets of a table, as a power of two: addresses have 64 bits, lanes 25 of them at most.
pub(super) const MAX_LEVEL: u32 = 38;
/// Buckets of a chunk of memory, as a power of two: 64 KiB of lanes of 16 bits.
const CHUNK: u32 = 12;

/// A bucket, and how many bits of an address its number has beyond the table's level: 0 or 1.
#[derive(Clone, Copy)]
struct BucketPlace {
    bucket: u64,
    is_split: u32,
}

/// Both buckets of a hash, and what would claim it there.
#[derive(Clone, Copy)]
pub(super) struct Located<'a> {
    buckets: [&'a [u8]; 2],
    lanes: [u32; 2],
    extra: u64,
    slots: SlotShape,
}

impl Located<'_> {
    /// Whether an entry claims the hash.
    #[inline(always)]
    pub(super) fn is_claimed(&self) -> bool {
        let [home, other] = self.examine();
        home.claims | other.claims != 0
    }

    /// Looks at both buckets, whatever is in the first: a branch would be a coin.
    #[inline(always)]
    fn examine(&self) -> [Seen; 2] {
        // Spelled out: the closure of a `map` would not be compiled in line.
        match self.slots.is_wide {
            true => [self.look::<true>(0), self.look::<true>(1)],
            false => [self.look::<false>(0), self.look::<false>(1)],
        }
    }

    #[inline(always)]
    fn look<const WIDE: bool>(&self, at: usize) -> Seen {
        let (bytes, wanted) = (self.buckets[at], self.lanes[at]);
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
            seen.claims &= agreeing(&bytes[lanes..], self.extra);
        }
        seen
    }
}

/// As [`Located`], in a table of lanes of 16 bits whose buckets have so many bytes, as most have. It takes
/// far fewer instructions, and on these depends how many queries wait for memory at the same time.
#[derive(Clone, Copy)]
pub(super) struct Narrow<'a, const BYTES: usize> {
    buckets: [&'a [u8; BYTES]; 2],
    lanes: [u16; 2],
    extra: u64,
}

impl<const BYTES: usize> Narrow<'_, BYTES> {
    /// Whether an entry claims the hash.
    #[inline(always)]
    pub(super) fn is_claimed(&self) -> bool {
        let [home, other] = self.buckets;
        let (home, home_planes) = home.split_first_chunk().expect("lanes of 16 bytes");
        let (other, other_planes) = other.split_first_chunk().expect("lanes of 16 bytes");
        if BYTES == 16 {
            return claims_either([home, other], self.lanes);
        }
        let home = look(home, self.lanes[0]).claims & agreeing(home_planes, self.extra);
        let other = look(other, self.lanes[1]).claims & agreeing(other_planes, self.extra);
        home | other != 0
    }

    /// Asks for the memory of both buckets.
    #[inline(always)]
    pub(super) fn prefetch(&self, towards: Towards) {
        for bucket in self.buckets {
            prefetch(bucket.as_ptr(), towards);
            if BYTES > 16 {
                prefetch(&raw const bucket[BYTES - 1], towards);
            }
        }
    }
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

/// A set of claims. There may be millions of small ones, so it has no room to spare.
pub(super) struct Table {
    chunks: Vec<Cells>,
    /// 2^level - 1
    mask: u64,
    /// The first bucket that is not split yet.
    split: u64,
    slots: SlotShape,
    /// Bytes of a bucket.
    stride: u16,
    /// Whether growth has made no room for a key, and will make none for others.
    is_stuck: bool,
    level: u32,
    full: FullBuckets,
    /// Entries from which on the table should grow.
    enough: u64,
    /// The slots in use.
    pub entries: u64,
    /// The sum of 2^120 / 2^length over all entries.
    pub weight: u128,
}

const CHUNK_BUCKETS: u64 = 1 << CHUNK;
const CHUNK_MASK: u64 = CHUNK_BUCKETS - 1;

/// The bucket of an address, if this many of the first ones are split.
#[inline(always)]
fn place(address: u64, mask: u64, split: u64) -> BucketPlace {
    let low = address & mask;
    let is_split = low < split;
    // The next bit counts where the bucket is split: no branch, as it is a coin that decides.
    let bucket = select_unpredictable(is_split, address & (2 * mask + 1), low);
    BucketPlace { bucket, is_split: is_split.into() }
}

impl Table {
    /// An empty table with memory for as many buckets as it has. The chunks of a large one are parts of
    /// one piece of memory: so the system refuses at once what it does not have, gives huge pages, and
    /// brings none in before it is used.
    pub(super) fn new(
        slots: SlotShape,
        buckets: u64,
        memory: impl FnOnce(u64) -> Result<Cells>,
    ) -> Result<Table> {
        let whole = memory(slots.bytes(buckets).unwrap_or(u64::MAX))?;
        let chunks = match buckets {
            ..=CHUNK_BUCKETS => vec![whole],
            _ => whole.split(Table::chunk_bytes(slots, buckets).map(|length| length as usize)),
        };
        Ok(Table::with_chunks(slots, buckets, chunks))
    }

    /// A table in cells, which have its buckets, whole chunks of them and a last one.
    pub(super) fn with_chunks(slots: SlotShape, buckets: u64, chunks: Vec<Cells>) -> Table {
        assert!(slots.is_valid() && buckets > 0, "{slots:?}");
        let level = buckets.ilog2();
        let mut table = Table {
            chunks: Vec::new(),
            full: FullBuckets::none(),
            mask: (1 << level) - 1,
            split: buckets - (1 << level),
            level,
            stride: slots.stride() as u16,
            is_stuck: false,
            slots,
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
        if self.chunks.is_empty() {
            // Most tables have one chunk. A list that grows by itself begins with room for four.
            self.chunks.reserve_exact(1);
        }
        self.chunks.push(chunk);
    }

    /// Buckets that there is memory for: all chunks but the last are whole.
    fn capacity(&self) -> u64 {
        let Some((last, whole)) = self.chunks.split_last() else { return 0 };
        let room = last.bytes().len() as u64 / u64::from(self.stride);
        ((whole.len() as u64) << CHUNK) + room.min(1 << CHUNK)
    }

    /// Notes that a slot of a bucket is being filled, of those that were empty.
    #[inline(always)]
    fn note_filled(&mut self, bucket: u64, empty: u32) {
        if !self.full.note_filled(bucket, empty) && empty & empty.wrapping_sub(1) == 0 {
            self.full.lengthen(self.capacity());
        }
    }

    fn enough(&self) -> u64 {
        // In parts, so that no product overflows.
        let slots = self.all_slots();
        slots / 1024 * ENOUGH + slots % 1024 * ENOUGH / 1024
    }

    /// Growth has failed: it is not tried again before there are more entries.
    #[cold]
    pub(super) fn put_off_growth(&mut self) {
        self.enough = self.entries.saturating_add(self.all_slots() / 64);
    }

    /// Growth has made no room for a key: it is not tried for others before the table has been grown by
    /// the keys that did find room, and is no longer crowded.
    #[cold]
    pub(super) fn set_stuck(&mut self) {
        self.is_stuck = true;
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck
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

    /// Whether buckets have so many bytes.
    #[inline(always)]
    pub(super) fn has_stride(&self, bytes: u16) -> bool {
        self.stride == bytes
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

    /// What an allocator takes for the chunks of so many bytes of a table, for the list of them, and for
    /// what is known of full buckets.
    pub(super) fn allocated(bytes: u64) -> u64 {
        // Of lanes of 16 bits. Those of more bits have fewer chunks and buckets, and lists are small.
        let chunks = bytes / (16 << CHUNK) + 1;
        let listed = memory::allocated(chunks * size_of::<Cells>() as u64);
        storage::allocated(bytes) + listed + FullBuckets::memory(bytes / 16)
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

    #[inline(always)]
    fn place(&self, address: u64) -> BucketPlace {
        place(address, self.mask, self.split)
    }

    #[inline(always)]
    fn places(&self, spot: Spot) -> [BucketPlace; 2] {
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
        self.locate(spot).is_claimed()
    }

    /// As [`Table::locate`], in a table of lanes of 16 bits, whose buckets have so many bytes.
    #[inline(always)]
    pub(super) fn narrow<const BYTES: usize>(&self, spot: Spot) -> Narrow<'_, BYTES> {
        let [home, other] = self.places(spot);
        let buckets = [self.narrow_bucket(home.bucket), self.narrow_bucket(other.bucket)];
        let lanes = [self.wanted::<false>(spot, home, 0), self.wanted::<false>(spot, other, 1)];
        Narrow { buckets, lanes: [lanes[0] as u16, lanes[1] as u16], extra: spot.extra }
    }

    #[inline(always)]
    fn narrow_bucket<const BYTES: usize>(&self, bucket: u64) -> &[u8; BYTES] {
        let chunk = self.chunks[(bucket >> CHUNK) as usize].bytes();
        let at = (bucket & CHUNK_MASK) as usize;
        match BYTES {
            16 => &chunk.as_chunks().0[at],
            _ => chunk[at * BYTES..].first_chunk().expect("a whole bucket"),
        }
    }

    /// Asks for the memory of both buckets of a hash.
    #[inline(always)]
    pub(super) fn prefetch(&self, spot: Spot, towards: Towards) {
        for place in self.places(spot) {
            self.prefetch_bucket(place.bucket, towards);
        }
    }

    /// Finds both buckets of a hash, and what would claim it there.
    #[inline(always)]
    pub(super) fn locate(&self, spot: Spot) -> Located<'_> {
        let [home, other] = self.places(spot);
        let lanes = match self.slots.is_wide {
            true => [self.wanted::<true>(spot, home, 0), self.wanted::<true>(spot, other, 1)],
            false => [self.wanted::<false>(spot, home, 0), self.wanted::<false>(spot, other, 1)],
        };
        let buckets = [self.bucket(home.bucket), self.bucket(other.bucket)];
        Located { buckets, lanes, extra: spot.extra, slots: self.slots }
    }

    /// The longest lane that this bucket could have for the hash.
    #[inline(always)]
    fn wanted<const WIDE: bool>(&self, spot: Spot, place: BucketPlace, away: u32) -> u32 {
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

    #[inline(always)]
    fn prefetch_bucket(&self, bucket: u64, towards: Towards) {
        let chunk = &self.chunks[(bucket >> CHUNK) as usize];
        let stride = usize::from(self.stride);
        let at = (bucket & CHUNK_MASK) as usize * stride;
        let first = chunk.bytes().as_ptr().wrapping_add(at);
        prefetch(first, towards);
        if stride > 16 {
            prefetch(first.wrapping_add(stride - 1), towards);
        }
    }

    /// Inserts a hash, unless it is claimed, if there is room.
    #[inline]
    pub(super) fn insert(&mut self, spot: Spot) -> Inserted {
        let [home, other] = self.locate(spot).examine();
        if home.claims | other.claims != 0 {
            return Inserted::Claimed;
        }
        let places = self.places(spot);
        // The one that is split, as it gets half the keys of others, or else the emptier: that
        // leaves room for those that have no choice.
        let room = |seen: Seen, place: BucketPlace| match seen.empty {
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
        self.note_filled(place.bucket, empty);
        self.count(known);
        Inserted::New
    }

    /// The most bits of an address that an entry knows.
    fn longest(&self) -> u32 {
        self.level + self.slots.tail()
    }

    fn spot_of(&self, claim: Claim) -> Spot {
        let tag = if self.slots.is_tagged { u32::from(claim.tag) << HEAD } else { 0 };
        Spot { address: claim.address, front: tag | u32::from(claim.head), extra: claim.extra }
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
    fn lane(&self, spot: Spot, place: BucketPlace, away: u32, known: u32) -> u32 {
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

    #[inline(always)]
    fn bucket(&self, bucket: u64) -> &[u8] {
        let stride = usize::from(self.stride);
        let chunk = self.chunks[(bucket >> CHUNK) as usize].bytes();
        &chunk[(bucket & CHUNK_MASK) as usize * stride..][..stride]
    }

    #[inline(always)]
    fn bucket_mut(&mut self, bucket: u64) -> &mut [u8] {
        let stride = usize::from(self.stride);
        let chunk = &mut self.chunks[(bucket >> CHUNK) as usize];
        let bytes = chunk.writable().expect("memory of our own");
        &mut bytes[(bucket & CHUNK_MASK) as usize * stride..][..stride]
    }

    /// The empty slots of a bucket.
    #[inline(always)]
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

/// The entries at which a table grows, in 1024ths of its slots, rounded up.
const ENOUGH: u64 = (LOAD * 1024.0) as u64 + 1;

#[cfg(test)]
mod tests;
