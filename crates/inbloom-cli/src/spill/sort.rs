//! The places of a partition in ascending order, bucket by bucket.
//!
//! A chunk has its places in the order of their buckets already. So places are not sorted anew: they
//! go straight to where their bucket begins, and then only the few hundred of a bucket are sorted.
//! Their other bits are those of a hash, and even too: they are divided by as many of them as make
//! about one place each, and what is still out of order is a step or two away.

use std::ops::RangeInclusive;

use super::chunk::{BUCKETS, Encoded, REST_BITS, bucket, partition as partition_of};

/// Appends the places of some chunks of a partition that are within a range, ascending and each
/// once.
pub fn places(
    partition: usize,
    range: &RangeInclusive<u64>,
    chunks: &[Encoded],
    sorted: &mut Vec<u64>,
) {
    let first = if partition_of(*range.start()) < partition { 0 } else { bucket(*range.start()) };
    let last = match partition_of(*range.end()) > partition {
        true => BUCKETS - 1,
        false => bucket(*range.end()),
    };
    let buckets = first..=last;
    let mut next = [0; BUCKETS];
    chunks.iter().for_each(|chunk| chunk.each(&buckets, |_, bucket| next[bucket] += 1));
    let start = sorted.len();
    let mut end = start;
    for of_bucket in &mut next {
        (*of_bucket, end) = (end, end + *of_bucket);
    }
    sorted.resize(end, 0);
    // Where the next of each bucket goes; in the end, where it ends.
    for chunk in chunks {
        chunk.each(&buckets, |index, bucket| {
            sorted[next[bucket]] = chunk.place(partition, index, bucket);
            next[bucket] += 1;
        });
    }
    let (mut from, mut room) = (start, Room { places: Vec::new(), next: [0; 1 << MOST_BITS] });
    for end in next {
        sort_bucket(&mut sorted[from..end], &mut room);
        from = end;
    }
    let mut kept = start;
    for at in start..end {
        let place = sorted[at];
        let is_new = kept == start || sorted[kept - 1] != place;
        sorted[kept] = place;
        kept += usize::from(is_new && range.contains(&place));
    }
    sorted.truncate(kept);
}

/// Below this many, places are sorted as they are.
const FEW: usize = 8;
/// The bits by which places of a bucket are divided, at most.
const MOST_BITS: u32 = 12;
/// Steps that a place may be away from where it belongs, before the places are not taken for even.
const FAR: usize = 32;

/// Room to sort one bucket after the other.
struct Room {
    places: Vec<u64>,
    /// Where the next of each part goes.
    next: [u16; 1 << MOST_BITS],
}

/// Sorts places of one bucket.
fn sort_bucket(places: &mut [u64], room: &mut Room) {
    let bits = places.len().next_power_of_two().trailing_zeros();
    // Many places of one bucket are repetitions, for which there are better ways.
    if places.len() < FEW || bits > MOST_BITS {
        places.sort_unstable();
        return;
    }
    let part = |place: u64| (place >> (REST_BITS - bits)) as usize & ((1 << bits) - 1);
    let Room { places: room, next } = room;
    let next = &mut next[..1 << bits];
    next.fill(0);
    places.iter().for_each(|place| next[part(*place)] += 1);
    let mut end = 0;
    for of_part in &mut *next {
        (*of_part, end) = (end, end + *of_part);
    }
    room.resize(places.len(), 0);
    for place in &*places {
        let next = &mut next[part(*place)];
        room[usize::from(*next)] = *place;
        *next += 1;
    }
    for (index, place) in room.iter().enumerate() {
        let mut at = index;
        while at > 0 && places[at - 1] > *place {
            places[at] = places[at - 1];
            at -= 1;
        }
        places[at] = *place;
        if index - at > FAR {
            places.copy_from_slice(room);
            places.sort_unstable();
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use inbloom::Digest;
    use inbloom_testing::Random;

    use super::super::chunk::{self, Kept};
    use super::*;

    /// The naive way.
    fn expected(places: &[u64], range: &RangeInclusive<u64>) -> Vec<u64> {
        let mut all: Vec<u64> = places.iter().copied().filter(|it| range.contains(it)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn check(partition: usize, places: &[u64]) {
        let encode = |places: &[u64]| {
            let mut bytes = Vec::new();
            chunk::encode(places, &[], &mut bytes);
            (places.len(), bytes)
        };
        // Chunks of all sizes.
        let (few, many) = places.split_at(places.len() / 3);
        let encoded: Vec<(usize, Vec<u8>)> =
            few.chunks(7).chain(many.chunks(chunk::MOST)).map(encode).collect();
        let chunks: Vec<Encoded> =
            encoded.iter().map(|(count, it)| Encoded::new(*count, Kept::Places, it)).collect();
        let first = (partition as u64) << 52;
        let last = first | (u64::MAX >> 12);
        let near = |at: usize| places.get(at).copied().unwrap_or(first);
        let (one, other) = (near(places.len() / 3), near(places.len() / 2));
        for range in [
            0..=u64::MAX,
            first..=last,
            one.min(other)..=one.max(other),
            one..=one,
            first + 1..=last - 1,
            first..=first,
            other..=u64::MAX,
            0..=other,
        ] {
            let mut sorted = vec![77];
            super::places(partition, &range, &chunks, &mut sorted);
            assert_eq!(sorted[0], 77, "what was there stays");
            assert!(sorted[1..] == expected(places, &range), "{} of {range:?}", places.len());
        }
    }

    #[test]
    fn places_come_ascending_and_once_from_chunks_of_any_size() {
        let mut random = Random(3);
        for count in [0, 1, 2, 23, 24, 25, 1000, 30_000, 700_000] {
            for partition in [0, 7, 4095] {
                let top = (partition as u64) << 52;
                let mut places: Vec<u64> = (0..count).map(|_| random.next() >> 12 | top).collect();
                check(partition, &places);
                // Each twice.
                places.extend_from_within(..);
                check(partition, &places);
            }
        }
    }

    #[test]
    fn places_that_are_not_even_come_ascending_too() {
        let mut random = Random(5);
        let top = 5_u64 << 52;
        check(5, &vec![top | 9; 50_000]);
        // In one bucket: adjacent places, and two heaps.
        check(5, &(0..3000).map(|n| top | 77 << 40 | (n * 7919 % 3000)).collect::<Vec<_>>());
        let heaps = |n: u64| top | (n % 2) << 39 | random.next() >> 40;
        check(5, &(0..60_000).map(heaps).collect::<Vec<_>>());
    }

    #[test]
    fn digests_of_chunks_are_in_the_buckets_of_their_places() {
        let places: Vec<u64> = (0..500).map(|n: u64| n << 45 | n).collect();
        let mut bytes = Vec::new();
        chunk::encode(&places, &[], &mut bytes);
        let encoded = Encoded::new(500, Kept::Places, &bytes);
        encoded.each(&(40..=99), |index, at| {
            let place = encoded.place(0, index, at);
            assert!(bucket(place) == at && (40..=99).contains(&at));
        });
        let mut all = Vec::new();
        encoded.digests(0, |Digest { place, .. }| all.push(place));
        assert_eq!(all.len(), 500);
    }
}
