//! The hashes of RedisBloom: MurmurHash64A, and MurmurHash2 of 32 bits for filters of its version
//! 1.
//!
//! Both are by Austin Appleby, in the public domain. Neither withstands keys that are chosen to
//! collide: an attacker who can choose keys can fill one place of a filter. Foreign filters come
//! with their hash; ours have better ones.

/// The multiplier of MurmurHash64A, which RedisBloom takes for its first seed too.
const MULTIPLIER_64: u64 = 0xc6a4_a793_5bd1_e995;
/// The multiplier of MurmurHash2. The cuckoo filter uses it to find the other bucket.
pub(super) const MULTIPLIER_32: u32 = 0x5bd1_e995;
/// RedisBloom's seed for 32 bits.
const SEED_32: u32 = 0x9747_b28c;

/// MurmurHash64A of the bytes.
#[must_use]
pub fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    let mixed = |word: u64| {
        let word = word.wrapping_mul(MULTIPLIER_64);
        (word ^ (word >> 47)).wrapping_mul(MULTIPLIER_64)
    };
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER_64);
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        hash = (hash ^ mixed(u64::from_le_bytes(*word))).wrapping_mul(MULTIPLIER_64);
    }
    if !tail.is_empty() {
        let word = match bytes.last_chunk() {
            // The last 8 bytes, without those that were in the word before: no copy of a length that
            // is known only here, which costs a call.
            Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * tail.len()),
            None => tail.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        hash = (hash ^ word).wrapping_mul(MULTIPLIER_64);
    }
    hash = (hash ^ (hash >> 47)).wrapping_mul(MULTIPLIER_64);
    hash ^ (hash >> 47)
}

/// MurmurHash2 of the bytes, 32 bits.
#[must_use]
pub fn murmur2_32(bytes: &[u8], seed: u32) -> u32 {
    let mixed = |word: u32| {
        let word = word.wrapping_mul(MULTIPLIER_32);
        (word ^ (word >> 24)).wrapping_mul(MULTIPLIER_32)
    };
    // The length counts modulo 2^32, as in the original.
    let mut hash = seed ^ bytes.len() as u32;
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        hash = hash.wrapping_mul(MULTIPLIER_32) ^ mixed(u32::from_le_bytes(*word));
    }
    if !tail.is_empty() {
        let mut word = [0; 4];
        word[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u32::from_le_bytes(word)).wrapping_mul(MULTIPLIER_32);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(MULTIPLIER_32);
    hash ^ (hash >> 15)
}

/// What a Bloom filter knows of an item: probe i is at (a + i b) mod 2^64, modulo the link's bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pair {
    /// The first probe.
    pub a: u64,
    /// The distance between probes.
    pub b: u64,
}

impl Pair {
    /// The pair of every filter since RedisBloom 2.0.
    #[must_use]
    pub fn of(item: &[u8]) -> Pair {
        let a = murmur64a(item, MULTIPLIER_64);
        Pair { a, b: murmur64a(item, a) }
    }

    /// The pair of filters that RedisBloom 1 made.
    #[must_use]
    pub fn of_32(item: &[u8]) -> Pair {
        let a = murmur2_32(item, SEED_32);
        Pair { a: a.into(), b: murmur2_32(item, a).into() }
    }

    /// The positions of the item's bits in a link of `modulus` bits.
    #[inline]
    pub(super) fn probes(self, hashes: u32, modulus: u64) -> impl Iterator<Item = u64> {
        let mut sum = self.a;
        (0..hashes).map(move |_| {
            let position = sum % modulus;
            sum = sum.wrapping_add(self.b);
            position
        })
    }
}
