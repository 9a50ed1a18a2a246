//! A slot and a hash: how the bits of an entry are laid out, and what an entry claims.

use crate::splitmix::SplitMix;

/// Bits of the hash that choose where the other bucket is.
pub(crate) const HEAD: u32 = 5;
/// Bits of the shard's number, which entries keep until there are shards.
pub(crate) const TAG: u32 = 4;
/// The most planes: with the lane's, 62 bits of fingerprint.
pub(crate) const MAX_PLANES: u32 = 12;
/// The weight of an entry that claims everything, as a power of two.
pub(super) const WHOLE: u32 = 120;

/// How slots are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotShape {
    /// Whether lanes have 32 bits, and not 16.
    pub is_wide: bool,
    /// Planes of 4 bits beside the lanes.
    pub planes: u32,
    /// Whether entries begin with the number of a shard. Only wide ones do.
    pub is_tagged: bool,
}

impl SlotShape {
    /// Whether slots can be laid out so.
    pub(crate) fn is_valid(self) -> bool {
        self.planes <= MAX_PLANES && (self.is_wide || !self.is_tagged)
    }

    /// Lanes of 16 bits, in buckets of so many bytes.
    pub(crate) const fn narrow<const BYTES: usize>() -> SlotShape {
        SlotShape { is_wide: false, planes: (BYTES as u32 - 16) / 4, is_tagged: false }
    }

    /// Bits of a lane.
    pub(crate) fn lane(self) -> u32 {
        if self.is_wide { 32 } else { 16 }
    }

    /// Bits of the tag, if there is one, and the head.
    #[inline(always)]
    pub(super) fn front(self) -> u32 {
        if self.is_tagged { TAG + HEAD } else { HEAD }
    }

    /// The most bits of the address in a lane.
    #[inline(always)]
    pub(crate) fn tail(self) -> u32 {
        self.lane() - 2 - self.front()
    }

    /// Bits of an entry that do not depend on its age.
    pub(crate) fn fixed(self) -> u32 {
        self.front() + 4 * self.planes
    }

    /// Bits of a new fingerprint.
    pub(crate) fn print(self) -> u32 {
        self.fixed() + self.tail()
    }

    /// Bytes of a bucket.
    pub(crate) fn stride(self) -> usize {
        self.lane() as usize + 4 * self.planes as usize
    }

    /// Bytes of so many buckets. None for more than can be addressed.
    pub(crate) fn bytes(self, buckets: u64) -> Option<u64> {
        buckets.checked_mul(self.stride() as u64)?.checked_next_multiple_of(64)
    }
}

/// What an entry claims: all hashes that begin with its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claim {
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

impl Claim {
    /// What is left of a claim where entries have so many planes, and not more.
    pub(crate) fn in_planes(self, before: u32, planes: u32) -> Claim {
        Claim { extra: self.extra >> (4 * (before - planes)), ..self }
    }
}

/// A hash, as a table uses it.
#[derive(Clone, Copy)]
pub(crate) struct Spot {
    pub(super) address: u64,
    /// The tag, if there is one, and the head.
    pub(super) front: u32,
    pub(super) extra: u64,
}

impl Spot {
    /// Of a digest: 4 bits of place are the shard, 5 the head, and those that follow are in planes;
    /// print is the address.
    #[inline(always)]
    pub(crate) fn new(slots: SlotShape, tag: u8, place: u64, print: u64) -> Spot {
        let head = (place >> (64 - TAG - HEAD)) as u32 % (1 << HEAD);
        let front = if slots.is_tagged { u32::from(tag) << HEAD | head } else { head };
        let extra = place << (TAG + HEAD) >> 1 >> (63 - 4 * slots.planes);
        Spot { address: print, front, extra }
    }
}

#[inline(always)]
pub(super) fn offset(front: u32) -> u64 {
    OFFSETS[(front % (1 << HEAD)) as usize]
}

/// The slots whose bits in all planes are these, as a bit each.
#[inline(always)]
pub(super) fn agreeing(planes: &[u8], extra: u64) -> u32 {
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
pub(super) fn weight(slots: SlotShape, known: u32) -> u128 {
    1 << (WHOLE - slots.fixed() - known)
}

/// Ten bits in the reverse order.
pub(super) static REVERSED: [u16; 1 << 10] = reversed();

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
