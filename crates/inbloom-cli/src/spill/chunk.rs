//! A chunk: some places of one partition, in five bytes and a bit or two each, or some digests, in
//! eight bytes more.
//!
//! ```text
//! place:  partition, 12 bits | bucket, 12 bits | rest, 40 bits
//! chunk:  the rests, 5 bytes each, in the order of their buckets | bits | prints, 8 bytes each
//! ```
//!
//! The partition is known. The bits give the bucket of the i-th rest: bit (bucket + i) is set for
//! each, so that there are as many set bits as places, with 4096 others between them. No bit of a
//! place is lost. With 8192 places a chunk has 5.19 bytes for each, of which 8 would be the whole
//! place; the fewer there are, the more weigh the 512 bytes of the buckets. Prints, if they are
//! kept, are in the same order.

use std::ops::RangeInclusive;

use inbloom::Digest;

/// What is kept of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Only its place, which is all that a static filter knows of a key.
    Places,
    /// All of it.
    Digests,
}

impl Kept {
    /// What is kept of places that have these prints.
    fn of(prints: &[u64]) -> Kept {
        if prints.is_empty() { Kept::Places } else { Kept::Digests }
    }

    /// The bytes of a print.
    fn print(self) -> usize {
        match self {
            Kept::Places => 0,
            Kept::Digests => size_of::<u64>(),
        }
    }
}

/// Bits of a place that choose its partition, and then its bucket.
const PARTITION_BITS: u32 = 12;
const BUCKET_BITS: u32 = 12;
pub const REST_BITS: u32 = 64 - PARTITION_BITS - BUCKET_BITS;
const REST_BYTES: usize = REST_BITS as usize / 8;

/// Partitions of all places.
pub const PARTITIONS: usize = 1 << PARTITION_BITS;
pub const BUCKETS: usize = 1 << BUCKET_BITS;

/// Places of a chunk at most: as many as fit into the second level of a processor's cache while
/// they are encoded.
pub const MOST: usize = 8192;

/// The partition of a place. They are in the order of the places.
#[inline]
pub fn partition(place: u64) -> usize {
    (place >> (64 - PARTITION_BITS)) as usize
}

/// The bucket of a place in its partition. They are in the order of the places too.
#[inline]
pub fn bucket(place: u64) -> usize {
    (place >> REST_BITS) as usize % BUCKETS
}

/// The bytes of a chunk of so many places or digests.
pub fn length(count: usize, kept: Kept) -> usize {
    count * (REST_BYTES + kept.print()) + (count + BUCKETS).div_ceil(8)
}

/// Encodes places of one partition, in any order; and their prints, unless there are none.
pub fn encode(places: &[u64], prints: &[u64], chunk: &mut Vec<u8>) {
    debug_assert!(places.len() <= MOST && (prints.is_empty() || prints.len() == places.len()));
    let kept = Kept::of(prints);
    let mut next = [0_u16; BUCKETS];
    places.iter().for_each(|place| next[bucket(*place)] += 1);
    let mut end = 0;
    for of_bucket in &mut next {
        (*of_bucket, end) = (end, end + *of_bucket);
    }
    chunk.clear();
    chunk.resize(length(places.len(), kept), 0);
    let (rests, bits) = chunk.split_at_mut(places.len() * REST_BYTES);
    let (bits, kept_prints) = bits.split_at_mut(bits.len() - places.len() * kept.print());
    let (rests, _) = rests.as_chunks_mut::<REST_BYTES>();
    let (kept_prints, _) = kept_prints.as_chunks_mut::<8>();
    for (index, place) in places.iter().enumerate() {
        let bucket = bucket(*place);
        let at = usize::from(next[bucket]);
        next[bucket] += 1;
        rests[at].copy_from_slice(&place.to_le_bytes()[..REST_BYTES]);
        bits[(at + bucket) / 8] |= 1 << ((at + bucket) % 8);
        if kept == Kept::Digests {
            kept_prints[at] = prints[index].to_le_bytes();
        }
    }
}

/// A chunk that is read again.
pub struct Encoded<'a> {
    count: usize,
    /// Rests and bits.
    rests: &'a [u8],
    bits: &'a [u8],
    /// None, or as many as rests.
    prints: &'a [[u8; 8]],
}

impl<'a> Encoded<'a> {
    /// A chunk of so many places or digests. Panics if it is not as long as one.
    pub fn new(count: usize, kept: Kept, chunk: &'a [u8]) -> Encoded<'a> {
        assert_eq!(chunk.len(), length(count, kept), "a chunk of {count} {kept:?}");
        let (rests, prints) = chunk.split_at(chunk.len() - count * kept.print());
        let bits = &rests[count * REST_BYTES..];
        Encoded { count, rests, bits, prints: prints.as_chunks().0 }
    }

    /// How many places or digests there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Calls `take` with the number of each rest in the chunk and its bucket, for those of some
    /// buckets, in their order.
    #[inline]
    pub fn each(&self, buckets: &RangeInclusive<usize>, mut take: impl FnMut(usize, usize)) {
        let (words, rest) = self.bits.as_chunks();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let mut index = 0;
        for (at, word) in words.iter().chain([&last]).enumerate() {
            let mut word = u64::from_le_bytes(*word);
            let ones = word.count_ones() as usize;
            // Each zero is the end of a bucket.
            if 64 * (at + 1) - index - ones < *buckets.start() {
                index += ones;
                continue;
            }
            while word != 0 {
                let bucket = 64 * at + word.trailing_zeros() as usize - index;
                if bucket > *buckets.end() || index == self.len() {
                    return;
                }
                if bucket >= *buckets.start() {
                    take(index, bucket);
                }
                index += 1;
                word &= word - 1;
            }
        }
    }

    /// The place of a rest of a partition.
    #[inline]
    pub fn place(&self, partition: usize, index: usize, bucket: usize) -> u64 {
        // A whole word, of which the last rest has the bits behind it.
        let word = self.rests[index * REST_BYTES..].first_chunk().expect("there are bits behind");
        let rest = u64::from_le_bytes(*word) & ((1 << REST_BITS) - 1);
        let above = partition << BUCKET_BITS | bucket;
        (above as u64) << REST_BITS | rest
    }

    /// Calls `take` with all digests; where only places were kept, their prints are 0.
    pub fn digests(&self, partition: usize, mut take: impl FnMut(Digest)) {
        self.each(&(0..=BUCKETS - 1), |index, bucket| {
            let print = self.prints.get(index).map_or(0, |print| u64::from_le_bytes(*print));
            take(Digest { place: self.place(partition, index, bucket), print });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random.
    fn mixed(count: usize) -> impl Iterator<Item = u64> {
        (1..=count as u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) ^ n)
    }

    /// The places that come back, by themselves and together with prints.
    fn round_trip(partition: usize, places: &[u64]) -> Vec<u64> {
        let (mut chunk, mut decoded) = (vec![7; 99], Vec::new());
        encode(places, &[], &mut chunk);
        let count = places.len();
        let encoded = Encoded::new(count, Kept::Places, &chunk);
        encoded.digests(partition, |digest| decoded.push(digest.place));
        decoded.sort_unstable();

        let prints: Vec<u64> = mixed(count).map(|print| !print).collect();
        let (mut pairs, mut expected) = (Vec::new(), Vec::new());
        encode(places, &prints, &mut chunk);
        let encoded = Encoded::new(count, Kept::of(&prints), &chunk);
        encoded.digests(partition, |digest| pairs.push((digest.place, digest.print)));
        expected.extend(places.iter().copied().zip(prints));
        pairs.sort_unstable();
        expected.sort_unstable();
        assert_eq!(pairs, expected);
        decoded
    }

    #[test]
    fn every_bit_of_every_place_comes_back() {
        for count in [0, 1, 2, 7, 100, 8191, MOST] {
            for partition in [0, 1, 77, PARTITIONS - 1] {
                let top = (partition as u64) << 52;
                let mut places: Vec<u64> = mixed(count).map(|place| place >> 12 | top).collect();
                let decoded = round_trip(partition, &places);
                places.sort_unstable();
                assert_eq!(decoded, places, "{count} of {partition}");
            }
        }
    }

    #[test]
    fn uneven_buckets_and_repeated_places_come_back() {
        let (top, last) = (5_u64 << 52, (6_u64 << 52) - 1);
        for places in [
            vec![top; MOST],
            vec![last; MOST],
            [vec![top; 4000], vec![last; 4000]].concat(),
            (0..MOST as u64).map(|n| top | ((n % 4096) << 40)).collect(),
        ] {
            let mut expected = places.clone();
            expected.sort_unstable();
            assert_eq!(round_trip(5, &places), expected);
        }
    }

    #[test]
    fn a_full_chunk_takes_little_more_than_five_bytes_for_each_place() {
        assert!(length(MOST, Kept::Places) as f64 / (MOST as f64) < 5.19);
        assert!(length(MOST, Kept::Digests) as f64 / (MOST as f64) < 13.19);
    }

    #[test]
    fn foreign_bits_are_no_harm() {
        for byte in [0, 0xff, 0x55] {
            for kept in [Kept::Places, Kept::Digests] {
                let chunk = vec![byte; length(100, kept)];
                let mut decoded = 0;
                Encoded::new(100, kept, &chunk).digests(1, |_| decoded += 1);
                assert!(decoded <= 100);
            }
        }
    }
}
