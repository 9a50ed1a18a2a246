//! A chunk: some places of one partition, in five bytes and a bit or two each.
//!
//! ```text
//! place:  partition, 12 bits | bucket, 12 bits | rest, 40 bits
//! chunk:  the rests, 5 bytes each, in the order of their buckets | bits
//! ```
//!
//! The partition is known. The bucket of the i-th rest is told by the bits: bit (bucket + i) is set
//! for each, so that there are as many set bits as places, with 4096 others between them. No bit of
//! a place is lost. With 8192 places a chunk has 5.19 bytes for each, of which 8 would be the whole
//! place; the fewer there are, the more weigh the 512 bytes of the buckets.

/// Bits of a place that choose its partition, and then its bucket.
const PARTITION_BITS: u32 = 12;
const BUCKET_BITS: u32 = 12;
const REST_BITS: u32 = 64 - PARTITION_BITS - BUCKET_BITS;
const REST_BYTES: usize = REST_BITS as usize / 8;

/// Partitions of all places.
pub const PARTITIONS: usize = 1 << PARTITION_BITS;
const BUCKETS: usize = 1 << BUCKET_BITS;

/// Places of a chunk at most: as many as fit into the second level of a processor's cache while
/// they are encoded.
pub const MOST: usize = 8192;

/// The partition of a place. They are in the order of the places.
#[inline]
pub fn partition(place: u64) -> usize {
    (place >> (64 - PARTITION_BITS)) as usize
}

/// The bytes of a chunk of so many places.
pub fn length(count: usize) -> usize {
    count * REST_BYTES + (count + BUCKETS).div_ceil(8)
}

/// Encodes places of one partition, in any order.
pub fn encode(places: &[u64], chunk: &mut Vec<u8>) {
    debug_assert!(places.len() <= MOST);
    let bucket = |place: u64| (place >> REST_BITS) as usize % BUCKETS;
    let mut next = [0_u16; BUCKETS];
    places.iter().for_each(|place| next[bucket(*place)] += 1);
    let mut end = 0;
    for of_bucket in &mut next {
        (*of_bucket, end) = (end, end + *of_bucket);
    }
    chunk.clear();
    chunk.resize(length(places.len()), 0);
    let (rests, bits) = chunk.split_at_mut(places.len() * REST_BYTES);
    let (rests, _) = rests.as_chunks_mut::<REST_BYTES>();
    for place in places {
        let bucket = bucket(*place);
        let at = usize::from(next[bucket]);
        next[bucket] += 1;
        rests[at].copy_from_slice(&place.to_le_bytes()[..REST_BYTES]);
        bits[(at + bucket) / 8] |= 1 << ((at + bucket) % 8);
    }
}

/// Calls `take` with the places of a chunk of `count` places of a partition.
///
/// Panics if the chunk is not as long as one of so many places.
pub fn decode(partition: usize, count: usize, chunk: &[u8], mut take: impl FnMut(u64)) {
    assert_eq!(chunk.len(), length(count), "a chunk of {count} places");
    let (rests, bits) = chunk.split_at(count * REST_BYTES);
    let (rests, _) = rests.as_chunks::<REST_BYTES>();
    let partition = (partition as u64) << (64 - PARTITION_BITS);
    let mut rests = rests.iter().enumerate();
    for (byte, bits) in bits.iter().enumerate() {
        let mut bits = *bits;
        while bits != 0 {
            let set = byte * 8 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let Some((index, rest)) = rests.next() else { return };
            let bucket = (set - index) as u64;
            let mut bytes = [0; 8];
            bytes[..REST_BYTES].copy_from_slice(rest);
            take(partition | bucket << REST_BITS | u64::from_le_bytes(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random.
    fn mixed(count: usize) -> impl Iterator<Item = u64> {
        (1..=count as u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) ^ n)
    }

    fn round_trip(partition: usize, places: &[u64]) -> Vec<u64> {
        let (mut chunk, mut decoded) = (vec![7; 99], Vec::new());
        encode(places, &mut chunk);
        decode(partition, places.len(), &chunk, |place| decoded.push(place));
        decoded.sort_unstable();
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
        assert!(length(MOST) as f64 / (MOST as f64) < 5.19);
    }

    #[test]
    fn foreign_bits_are_no_harm() {
        for byte in [0, 0xff, 0x55] {
            let chunk = vec![byte; length(100)];
            let mut decoded = 0;
            decode(1, 100, &chunk, |_| decoded += 1);
            assert!(decoded <= 100);
        }
    }
}
