//! Buckets of four slots of any width, packed: the table under the kinds that keep fingerprints.
//!
//! **Layout.** The cells are one little-endian bit string: bit i is bit i % 8 of byte i / 8. Bucket
//! b is bits [4wb, 4w(b+1)) for slots of w bits, lowest slot first, so that a bucket starts on a
//! half byte. A slot that holds 0 is empty.
//!
//! **Example.** Slots of 6 bits: bucket 1 is bits 24 to 47, and its slot 2 is bits 36 to 41, which
//! are the upper half of byte 4 and the lowest two bits of byte 5.
//!
//! **Cost.** Up to 15 bits a slot, a bucket is in one 64-bit load, up to 31 in one of 128 bits;
//! above, each slot is loaded alone. Loads reach beyond their bucket, so that some bytes after the
//! last one are there only to be read: [`Slots::bytes`] has them.

use crate::kernels::{Towards, prefetch};

/// Slots of a bucket. With four and two buckets a key a table fills to 95%; with two to 84%, with
/// eight to 98%, but then a query compares with twice as many slots, which costs a bit of each.
pub(crate) const SLOTS: usize = 4;

/// The widest slot: at any bit of a byte, it is still within 64 bits from the start of that byte.
pub(crate) const MAX_WIDTH: u32 = 56;
/// Up to this width a bucket is within 64 bits from the start of its first byte.
const ONE_WORD: u32 = 15;
/// Up to this width a bucket is within 128 bits from the start of its first byte.
const TWO_WORDS: u32 = 31;

/// The width of slots, and how to reach them in the bytes of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    width: u32,
    mask: u64,
}

impl Slots {
    /// Slots of 1 to 56 bits. Panics on any other width.
    pub(crate) fn new(width: u32) -> Slots {
        assert!((1..=MAX_WIDTH).contains(&width), "slots of {width} bits");
        Slots { width, mask: (1 << width) - 1 }
    }

    /// The largest value that a slot holds.
    pub(crate) fn max(self) -> u64 {
        self.mask
    }

    /// The bytes of a table: a multiple of 8, with at least 8 more than the slots take.
    pub(crate) fn bytes(self, buckets: u64) -> u64 {
        (buckets * self.bucket_bits()).div_ceil(64) * 8 + 8
    }

    /// The value in a slot.
    #[inline]
    pub(crate) fn get(self, bytes: &[u8], bucket: u64, slot: usize) -> u64 {
        let (byte, shift) = self.place(bucket, slot);
        u64::from_le_bytes(load(bytes, byte)) >> shift & self.mask
    }

    /// Puts a value into a slot, and changes no other bit. The value must fit.
    #[inline]
    pub(crate) fn set(self, bytes: &mut [u8], bucket: u64, slot: usize, value: u64) {
        debug_assert!(value <= self.mask);
        let (byte, shift) = self.place(bucket, slot);
        let word = bytes[byte..].first_chunk_mut::<8>().expect(PADDED);
        let others = u64::from_le_bytes(*word) & !(self.mask << shift);
        *word = (others | value << shift).to_le_bytes();
    }

    /// The values in all four slots of a bucket.
    #[inline]
    pub(crate) fn bucket(self, bytes: &[u8], bucket: u64) -> [u64; SLOTS] {
        let (byte, shift) = self.place(bucket, 0);
        if self.width <= ONE_WORD {
            let word = u64::from_le_bytes(load(bytes, byte)) >> shift;
            core::array::from_fn(|slot| word >> (slot as u32 * self.width) & self.mask)
        } else if self.width <= TWO_WORDS {
            let words = u128::from_le_bytes(load(bytes, byte)) >> shift;
            core::array::from_fn(|slot| (words >> (slot as u32 * self.width)) as u64 & self.mask)
        } else {
            core::array::from_fn(|slot| self.get(bytes, bucket, slot))
        }
    }

    /// Asks for the line of a bucket, and for the next one too if its loads reach into it.
    #[inline]
    pub(crate) fn prefetch(self, base: *const u8, bucket: u64, towards: Towards) {
        let first = base.wrapping_add(self.place(bucket, 0).0);
        let last = first.wrapping_add(self.reach() - 1);
        prefetch(first, towards);
        if first.addr() / LINE != last.addr() / LINE {
            prefetch(last, towards);
        }
    }

    #[inline]
    fn bucket_bits(self) -> u64 {
        SLOTS as u64 * u64::from(self.width)
    }

    /// Where the 64-bit word is that holds a slot, and how far up in it. Narrow slots are found in
    /// the word of their bucket, so that all of them are in the bytes that a query has brought in.
    #[inline]
    fn place(self, bucket: u64, slot: usize) -> (usize, u32) {
        let start = bucket * self.bucket_bits();
        let ahead = slot as u32 * self.width;
        if self.width <= ONE_WORD {
            ((start / 8) as usize, (start % 8) as u32 + ahead)
        } else {
            let start = start + u64::from(ahead);
            ((start / 8) as usize, (start % 8) as u32)
        }
    }

    /// The bytes from the first of a bucket to the last one that its loads touch, at most.
    #[inline]
    fn reach(self) -> usize {
        match self.width {
            ..=ONE_WORD => 8,
            width => ((4 + 3 * width as usize) / 8 + 8).max(16),
        }
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

const PADDED: &str = "8 bytes of padding follow the buckets";

/// The bytes from `start` on, with one check of bounds.
#[inline]
fn load<const N: usize>(bytes: &[u8], start: usize) -> [u8; N] {
    *bytes[start..].first_chunk::<N>().expect(PADDED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::scalar::fold;

    fn draws(seed: u64) -> impl Iterator<Item = u64> {
        (0..).map(move |i: u64| fold(i ^ 0x9e37_79b9_7f4a_7c15, seed | 1))
    }

    /// The layout, bit by bit.
    fn bit(bytes: &[u8], at: u64) -> u64 {
        u64::from(bytes[(at / 8) as usize] >> (at % 8) & 1)
    }

    fn naive(width: u32, bytes: &[u8], bucket: u64, slot: usize) -> u64 {
        let start = (bucket * 4 + slot as u64) * u64::from(width);
        (0..u64::from(width)).map(|i| bit(bytes, start + i) << i).sum()
    }

    #[test]
    fn every_width_reads_what_the_layout_says() {
        for width in 1..=MAX_WIDTH {
            let slots = Slots::new(width);
            for buckets in [1, 2, 3, 7, 64] {
                let len = slots.bytes(buckets) as usize;
                let bytes: Vec<u8> =
                    draws(u64::from(width)).map(|draw| (draw >> 56) as u8).take(len).collect();
                for bucket in 0..buckets {
                    let expected = std::array::from_fn(|slot| naive(width, &bytes, bucket, slot));
                    let one_by_one = std::array::from_fn(|slot| slots.get(&bytes, bucket, slot));
                    assert_eq!(slots.bucket(&bytes, bucket), expected, "{width} bits, {bucket}");
                    assert_eq!(one_by_one, expected, "{width} bits, {bucket}");
                }
            }
        }
    }

    #[test]
    fn a_set_changes_its_slot_and_no_other_bit() {
        for width in 1..=MAX_WIDTH {
            let slots = Slots::new(width);
            let buckets = 11;
            let mut bytes = vec![0; slots.bytes(buckets) as usize];
            let mut model = vec![[0; SLOTS]; buckets as usize];
            for draw in draws(u64::from(width) << 32).take(400) {
                let (bucket, slot) = ((draw >> 32) % buckets, (draw >> 62) as usize);
                let value = fold(draw, draw) & slots.max();
                slots.set(&mut bytes, bucket, slot, value);
                model[bucket as usize][slot] = value;
                let used = 4 * u64::from(width) * buckets;
                assert!((used..bytes.len() as u64 * 8).all(|at| bit(&bytes, at) == 0));
            }
            for (bucket, expected) in model.iter().enumerate() {
                assert_eq!(slots.bucket(&bytes, bucket as u64), *expected, "{width} bits");
            }
        }
    }

    /// The example of the module's documentation.
    #[test]
    fn six_bits_are_where_the_example_says() {
        let slots = Slots::new(6);
        let mut bytes = vec![0; slots.bytes(2) as usize];
        slots.set(&mut bytes, 1, 2, 0b11_1111);
        assert_eq!(bytes[..8], [0, 0, 0, 0, 0xf0, 0x03, 0, 0]);
    }

    #[test]
    fn tables_are_whole_words_and_padded() {
        for width in 1..=MAX_WIDTH {
            for buckets in [1, 2, 3, 5, 1000, 1 << 40] {
                let bytes = Slots::new(width).bytes(buckets);
                let spare = bytes * 8 - 4 * u64::from(width) * buckets;
                assert!(bytes.is_multiple_of(8) && (64..128).contains(&spare));
            }
        }
    }

    #[test]
    fn loads_stay_within_their_reach() {
        for width in 1..=MAX_WIDTH {
            let slots = Slots::new(width);
            for bucket in 0..4 {
                let first = slots.place(bucket, 0).0;
                let last = slots.place(bucket, SLOTS - 1).0 + 8;
                assert!(last - first <= slots.reach(), "{width} bits");
                assert!(slots.place(bucket, SLOTS - 1).1 + width <= 64, "{width} bits");
                assert!((first + slots.reach()) as u64 <= slots.bytes(bucket + 1), "{width} bits");
            }
        }
    }

    #[test]
    #[should_panic(expected = "slots of 57 bits")]
    fn slots_wider_than_56_bits_are_refused() {
        Slots::new(57);
    }
}
