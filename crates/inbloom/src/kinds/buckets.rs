//! Buckets of four slots of any width, packed: the table under the kinds that keep fingerprints.
//!
//! **Layout.** The cells are one little-endian bit string: bit i is bit i % 8 of byte i / 8. Bucket
//! b is bits [4wb, 4w(b+1)) for slots of w bits, lowest slot first, so that a bucket starts on a
//! half byte. A slot that holds 0 is empty.
//!
//! **Example.** Slots of 6 bits: bucket 1 is bits 24 to 47, and its slot 2 is bits 36 to 41, which
//! are the upper half of byte 4 and the lowest two bits of byte 5.
//!
//! **Words.** A load brings 64 bits from the byte in which a slot starts: all four slots of a bucket
//! up to 15 bits each, two up to 28, one up to 56. All slots of a word are compared at once, in
//! plain 64-bit arithmetic: with d = word xor (the value in every slot), a slot that was equal is 0
//! in d, and
//!
//!   (d - lowest bits) & !d & highest bits
//!
//! has the highest bit of the first such slot, and none if there is none. (A borrow may flag slots
//! above the first one too, so that the flags say which is the first, and not how many.)
//!
//! **Cost.** Loads reach beyond their bucket, so that some bytes after the last one are there only
//! to be read: [`Slots::bytes`] has them.

use core::hint::select_unpredictable;

use crate::kernels::{Towards, prefetch};

/// Slots of a bucket. With four and two buckets a key a table fills to 95%; with two to 84%, with
/// eight to 98%, but then a query compares with twice as many slots, which costs a bit of each.
pub(crate) const SLOTS: usize = 4;

/// The widest slot: at any bit of a byte, it is still within 64 bits from the start of that byte.
pub(crate) const MAX_WIDTH: u32 = 56;
/// Up to this width a bucket is within 64 bits from the start of its first byte.
const ONE_WORD: u32 = 15;
/// Up to this width half of a bucket is within 64 bits from the start of its first byte.
const TWO_WORDS: u32 = 28;

/// The width of slots, and how to reach them in the bytes of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    width: u32,
    mask: u64,
    /// Words of a bucket: 1, 2 or 4.
    words: usize,
    /// The lowest bit of each slot of a word.
    lowest: u64,
    /// The highest bit of each slot of a word.
    highest: u64,
}

/// Where a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first byte of the word that holds it.
    byte: usize,
    /// How far up it is in the word.
    shift: u32,
}

impl Slots {
    /// Slots of 1 to 56 bits. Panics on any other width.
    pub(crate) fn new(width: u32) -> Slots {
        assert!((1..=MAX_WIDTH).contains(&width), "slots of {width} bits");
        let words = if width <= ONE_WORD {
            1
        } else if width <= TWO_WORDS {
            2
        } else {
            4
        };
        let lowest = (0..SLOTS / words).map(|slot| 1 << (slot as u32 * width)).sum();
        Slots { width, mask: (1 << width) - 1, words, lowest, highest: lowest << (width - 1) }
    }

    /// The largest value that a slot holds.
    pub(crate) fn max(self) -> u64 {
        self.mask
    }

    /// The bytes of a table: a multiple of 8, with at least 8 more than the slots take.
    pub(crate) fn bytes(self, buckets: u64) -> u64 {
        (buckets * self.bucket_bits()).div_ceil(64) * 8 + 8
    }

    /// Where a slot of a bucket is.
    #[inline]
    pub(crate) fn place(self, bucket: u64, slot: usize) -> Place {
        let (word, slot) = match self.words {
            1 => (0, slot),
            2 => (slot / 2, slot % 2),
            _ => (slot, 0),
        };
        let Place { byte, shift } = self.word(bucket, word);
        Place { byte, shift: shift + slot as u32 * self.width }
    }

    /// The value in a slot.
    #[inline]
    pub(crate) fn get(self, bytes: &[u8], place: Place) -> u64 {
        load(bytes, place) & self.mask
    }

    /// Puts a value into a slot, and changes no other bit. The value must fit.
    #[inline]
    pub(crate) fn set(self, bytes: &mut [u8], Place { byte, shift }: Place, value: u64) {
        debug_assert!(value <= self.mask);
        let word = bytes[byte..].first_chunk_mut::<8>().expect(PADDED);
        let others = u64::from_le_bytes(*word) & !(self.mask << shift);
        *word = (others | value << shift).to_le_bytes();
    }

    /// The values in all four slots of a bucket.
    #[inline(always)]
    pub(crate) fn bucket(self, bytes: &[u8], bucket: u64) -> [u64; SLOTS] {
        match self.words {
            1 => self.bucket_in::<1>(bytes, bucket),
            2 => self.bucket_in::<2>(bytes, bucket),
            _ => self.bucket_in::<4>(bytes, bucket),
        }
    }

    #[inline(always)]
    fn bucket_in<const WORDS: usize>(self, bytes: &[u8], bucket: u64) -> [u64; SLOTS] {
        let mut values = [0; SLOTS];
        for (word, values) in values.chunks_exact_mut(SLOTS / WORDS).enumerate() {
            let slots = load(bytes, self.word(bucket, word));
            for (slot, value) in values.iter_mut().enumerate() {
                *value = slots >> (slot as u32 * self.width) & self.mask;
            }
        }
        values
    }

    /// Whether a slot of either bucket holds the value. Without a branch between the two: which one
    /// has it cannot be foreseen.
    #[inline(always)]
    pub(crate) fn any(self, bytes: &[u8], buckets: [u64; 2], value: u64) -> bool {
        match self.words {
            1 => self.any_in::<1>(bytes, buckets, value),
            2 => self.any_in::<2>(bytes, buckets, value),
            _ => self.any_in::<4>(bytes, buckets, value),
        }
    }

    #[inline(always)]
    fn any_in<const WORDS: usize>(self, bytes: &[u8], [here, there]: [u64; 2], value: u64) -> bool {
        let mut flags = 0;
        for word in 0..WORDS {
            flags |= self.equal(bytes, self.word(here, word), value);
            flags |= self.equal(bytes, self.word(there, word), value);
        }
        flags != 0
    }

    /// The first slot of the first bucket that holds the value, or if there is none, of the second.
    #[inline(always)]
    pub(crate) fn first(self, bytes: &[u8], buckets: [u64; 2], value: u64) -> Option<Place> {
        match self.words {
            1 => self.first_in::<1>(bytes, buckets, value),
            2 => self.first_in::<2>(bytes, buckets, value),
            _ => self.first_in::<4>(bytes, buckets, value),
        }
    }

    #[inline(always)]
    fn first_in<const WORDS: usize>(
        self,
        bytes: &[u8],
        [here, there]: [u64; 2],
        value: u64,
    ) -> Option<Place> {
        let (mut place, mut flags) = (Place { byte: 0, shift: 0 }, 0);
        // From the last word to the first, without a branch, as above.
        for bucket in [there, here] {
            for word in (0..WORDS).rev() {
                let earlier = self.word(bucket, word);
                let found = self.equal(bytes, earlier, value);
                place.byte = select_unpredictable(found != 0, earlier.byte, place.byte);
                place.shift = select_unpredictable(found != 0, earlier.shift, place.shift);
                flags = select_unpredictable(found != 0, found, flags);
            }
        }
        (flags != 0).then(|| {
            let slot = flags.trailing_zeros() + 1 - self.width;
            Place { byte: place.byte, shift: place.shift + slot }
        })
    }

    /// Flags of which the lowest is the highest bit of the first slot of a word that holds the value.
    #[inline(always)]
    fn equal(self, bytes: &[u8], word: Place, value: u64) -> u64 {
        let differences = load(bytes, word) ^ (value * self.lowest);
        differences.wrapping_sub(self.lowest) & !differences & self.highest
    }

    /// Asks for the line of a bucket, and for that of the last byte that its loads reach, which
    /// mostly is the same. A branch on it is mispredicted so often that it took a third of the time.
    #[inline]
    pub(crate) fn prefetch(self, base: *const u8, bucket: u64, towards: Towards) {
        let first = base.wrapping_add(self.word(bucket, 0).byte);
        let last = first.wrapping_add(self.reach() - 1);
        prefetch(first, towards);
        prefetch(last, towards);
    }

    #[inline]
    fn bucket_bits(self) -> u64 {
        SLOTS as u64 * u64::from(self.width)
    }

    /// Where a word of a bucket is, which is the place of its first slot.
    #[inline]
    fn word(self, bucket: u64, word: usize) -> Place {
        let ahead = (SLOTS / self.words * word) as u64 * u64::from(self.width);
        let start = bucket * self.bucket_bits() + ahead;
        Place { byte: (start / 8) as usize, shift: (start % 8) as u32 }
    }

    /// The bytes from the first of a bucket to the last one that its loads touch, at most.
    #[inline]
    fn reach(self) -> usize {
        let ahead = SLOTS / self.words * (self.words - 1) * self.width as usize;
        (4 + ahead) / 8 + 8
    }
}

const PADDED: &str = "8 bytes of padding follow the buckets";

/// What is at a place, and above it: its slot is in the lowest bits.
#[inline]
fn load(bytes: &[u8], Place { byte, shift }: Place) -> u64 {
    u64::from_le_bytes(*bytes[byte..].first_chunk().expect(PADDED)) >> shift
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
                    let one_by_one =
                        std::array::from_fn(|slot| slots.get(&bytes, slots.place(bucket, slot)));
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
                slots.set(&mut bytes, slots.place(bucket, slot), value);
                model[bucket as usize][slot] = value;
                let used = 4 * u64::from(width) * buckets;
                assert!((used..bytes.len() as u64 * 8).all(|at| bit(&bytes, at) == 0));
            }
            for (bucket, expected) in model.iter().enumerate() {
                assert_eq!(slots.bucket(&bytes, bucket as u64), *expected, "{width} bits");
            }
        }
    }

    /// `any` and `first` against the slots one by one, with the patterns that borrow: values that
    /// differ by one, by the lowest bit or by the highest.
    #[test]
    fn the_first_slot_with_a_value_is_found_in_every_width() {
        let mut met = [0; 3];
        for width in 1..=MAX_WIDTH {
            let slots = Slots::new(width);
            let buckets = 9;
            let mut bytes = vec![0xa5; slots.bytes(buckets) as usize];
            for (draw, more) in draws(u64::from(width)).zip(draws(99)).take(2000) {
                let value = draw & slots.max();
                let near = [0, 1, value, value.wrapping_add(1), value.wrapping_sub(1), value ^ 1];
                for slot in 0..SLOTS {
                    let other = match (more >> (slot * 8)) & 15 {
                        pick @ 0..=5 => near[pick as usize],
                        6 => value ^ (1 << (width - 1)),
                        _ => fold(draw, more >> slot),
                    };
                    let at = slots.place(more >> 32 & 7, slot);
                    slots.set(&mut bytes, at, other & slots.max());
                }
                let pair = [more >> 32 & 7, more >> 35 & 7];
                for sought in [value, 0, 1 & slots.max(), slots.max()] {
                    let places = pair.map(|bucket| {
                        let one_by_one = slots.bucket(&bytes, bucket);
                        let slot = one_by_one.into_iter().position(|other| other == sought);
                        slot.map(|slot| slots.place(bucket, slot))
                    });
                    let expected = places[0].or(places[1]);
                    met[places.iter().flatten().count()] += 1;
                    assert_eq!(slots.first(&bytes, pair, sought), expected, "{width} bits");
                    assert_eq!(slots.any(&bytes, pair, sought), expected.is_some(), "{width} bits");
                }
            }
        }
        assert!(met.iter().all(|times| *times > 10_000), "{met:?}");
    }

    /// The example of the module's documentation.
    #[test]
    fn six_bits_are_where_the_example_says() {
        let slots = Slots::new(6);
        let mut bytes = vec![0; slots.bytes(2) as usize];
        slots.set(&mut bytes, slots.place(1, 2), 0b11_1111);
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
                let first = slots.place(bucket, 0).byte;
                let last = slots.place(bucket, SLOTS - 1).byte + 8;
                assert!(last - first <= slots.reach(), "{width} bits");
                assert!(slots.place(bucket, SLOTS - 1).shift + width <= 64, "{width} bits");
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
