//! MurmurHash3_x64_128, of Guava, Go and DataSketches.
//!
//! By Austin Appleby, in the public domain. It does not withstand keys that are chosen to collide.
//!
//! Eight keys are hashed at once where there is AVX-512 (see `eight.rs`).

use crate::digest::Digest;

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// The state between blocks of 16 bytes.
#[derive(Clone, Copy)]
struct Mixed {
    h1: u64,
    h2: u64,
}

impl Mixed {
    #[inline(always)]
    fn block(self, block: &[u8; 16]) -> Mixed {
        let Mixed { h1, h2 } = self.tail(block);
        let h1 = h1.rotate_left(27).wrapping_add(self.h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        let h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
        Mixed { h1, h2 }
    }

    /// Takes the bytes behind the last block, with zeros appended, which change nothing.
    #[inline(always)]
    fn tail(self, block: &[u8; 16]) -> Mixed {
        let (words, _) = block.as_chunks::<8>();
        let k1 = u64::from_le_bytes(words[0]).wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
        let k2 = u64::from_le_bytes(words[1]).wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
        Mixed { h1: self.h1 ^ k1, h2: self.h2 ^ k2 }
    }

    #[inline(always)]
    fn finish(self, length: usize) -> Digest {
        let (h1, h2) = (self.h1 ^ length as u64, self.h2 ^ length as u64);
        let h1 = h1.wrapping_add(h2);
        let h2 = h2.wrapping_add(h1);
        let (h1, h2) = (finalized(h1), finalized(h2));
        let place = h1.wrapping_add(h2);
        Digest { place, print: h2.wrapping_add(place) }
    }
}

#[inline(always)]
fn finalized(word: u64) -> u64 {
    let word = (word ^ (word >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let word = (word ^ (word >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ (word >> 33)
}

/// Hashes eight keys as [`hash`] does. False, and no digests, where that is not possible: without
/// AVX-512, or with long keys.
#[inline]
pub(crate) fn eight(keys: &[&[u8]; 8], seed: u64, digests: &mut [Digest]) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    if super::eight::is_available() {
        // SAFETY: this processor runs it.
        return unsafe { avx512::hash(keys, seed, digests) };
    }
    let _ = (keys, seed, digests);
    false
}

/// Hashes eight keys as [`pair`] does, and otherwise as [`eight`].
#[inline]
pub(crate) fn eight_pairs(keys: &[&[u8]; 8], seed: u64, digests: &mut [Digest]) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    if super::eight::is_available() {
        // SAFETY: this processor runs it.
        return unsafe { avx512::pair(keys, seed, digests) };
    }
    let _ = (keys, seed, digests);
    false
}

/// The state after all whole blocks, and what is behind them with zeros appended.
#[inline(always)]
fn blocks(key: &[u8], seed: u64) -> (Mixed, [u8; 16], usize) {
    let mut mixed = Mixed { h1: seed, h2: seed };
    let (blocks, tail) = key.as_chunks::<16>();
    for block in blocks {
        mixed = mixed.block(block);
    }
    let mut last = [0; 16];
    last[..tail.len()].copy_from_slice(tail);
    (mixed, last, tail.len())
}

/// Returns the hash of a key: its first half as the place, its second as the print.
pub(crate) fn hash(key: &[u8], seed: u64) -> Digest {
    let (mixed, last, _) = blocks(key, seed);
    mixed.tail(&last).finish(key.len())
}

/// Returns the hash of a key, and that of the key with a byte 1 behind it.
pub(crate) fn pair(key: &[u8], seed: u64) -> [Digest; 2] {
    let (mixed, mut last, length) = blocks(key, seed);
    let first = mixed.tail(&last).finish(key.len());
    last[length] = 1;
    // The byte may complete a block, and then nothing is behind it.
    let longer = if length == 15 { mixed.block(&last) } else { mixed.tail(&last) };
    [first, longer.finish(key.len() + 1)]
}

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod avx512 {
    use core::arch::x86_64::*;

    use super::{C1, C2};
    use crate::digest::Digest;
    use crate::kernels::eight::{EightKeys, constant, digests, folded, plus, times};

    #[target_feature(enable = "avx512f,avx512dq,avx512bw")]
    pub(super) fn hash(keys: &[&[u8]; 8], seed: u64, out: &mut [Digest]) -> bool {
        let Some(keys) = EightKeys::load(keys) else { return false };
        out.copy_from_slice(&of_eight(&keys, seed));
        true
    }

    #[target_feature(enable = "avx512f,avx512dq,avx512bw")]
    pub(super) fn pair(keys: &[&[u8]; 8], seed: u64, out: &mut [Digest]) -> bool {
        let Some(keys) = EightKeys::load(keys).filter(|keys| keys.longest < 64) else {
            return false;
        };
        let (first, second) = (of_eight(&keys, seed), of_eight(&keys.with_a_byte_1(), seed));
        let (out, _) = out.as_chunks_mut::<2>();
        for (out, (first, second)) in out.iter_mut().zip(first.into_iter().zip(second)) {
            *out = [first, second];
        }
        true
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512bw")]
    fn of_eight(keys: &EightKeys, seed: u64) -> [Digest; 8] {
        let (mut h1, mut h2) = (constant(seed), constant(seed));
        let blocks = _mm512_srli_epi64::<4>(keys.lengths);
        let (words, _) = keys.words.as_chunks::<2>();
        for (at, [k1, k2]) in words.iter().take(keys.longest.div_ceil(16)).enumerate() {
            let k1 = times(_mm512_rol_epi64::<31>(times(*k1, C1)), C2);
            let k2 = times(_mm512_rol_epi64::<33>(times(*k2, C2)), C1);
            let (with_k1, with_k2) = (_mm512_xor_si512(h1, k1), _mm512_xor_si512(h2, k2));
            // Of a whole block. Bytes behind the last one, or none, are in the words and no more.
            let is_whole = _mm512_cmpgt_epu64_mask(blocks, constant(at as u64));
            let sum = _mm512_add_epi64(_mm512_rol_epi64::<27>(with_k1), h2);
            h1 = _mm512_mask_mov_epi64(with_k1, is_whole, plus(times(sum, 5), 0x52dc_e729));
            let sum = _mm512_add_epi64(_mm512_rol_epi64::<31>(with_k2), h1);
            h2 = _mm512_mask_mov_epi64(with_k2, is_whole, plus(times(sum, 5), 0x3849_5ab5));
        }
        let h1 = _mm512_xor_si512(h1, keys.lengths);
        let h2 = _mm512_xor_si512(h2, keys.lengths);
        let h1 = _mm512_add_epi64(h1, h2);
        let h2 = _mm512_add_epi64(h2, h1);
        let (h1, h2) = (finalized(h1), finalized(h2));
        let place = _mm512_add_epi64(h1, h2);
        digests(place, _mm512_add_epi64(h2, place))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn finalized(words: __m512i) -> __m512i {
        let words = times(folded::<33>(words), 0xff51_afd7_ed55_8ccd);
        folded::<33>(times(folded::<33>(words), 0xc4ce_b9fe_1a85_ec53))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::tests::{runs_of_eight, takes_eight};

    #[test]
    fn eight_at_once_are_eight_hashes() {
        for (keys, longest) in runs_of_eight() {
            let slices = keys.each_ref().map(|key| &key[..]);
            let mut digests = [Digest::default(); 8];
            let is_done = eight(&slices, 9, &mut digests);
            assert_eq!(is_done, takes_eight(longest), "{longest} bytes");
            if is_done {
                assert_eq!(digests, slices.map(|key| hash(key, 9)), "{keys:?}");
            }
            let mut digests = [Digest::default(); 16];
            let is_done = eight_pairs(&slices, 9, &mut digests);
            // The byte behind a key needs room too.
            assert_eq!(is_done, takes_eight(longest + 1), "{longest} bytes");
            if is_done {
                assert_eq!(digests.as_chunks::<2>().0, slices.map(|key| pair(key, 9)), "{keys:?}");
            }
        }
    }

    /// From formats that were read with an independent implementation.
    #[test]
    fn hashes_are_those_of_the_reference() {
        let (up_to_15, up_to_33): (Vec<u8>, Vec<u8>) = ((0..15).collect(), (0..33).collect());
        for (key, place, print) in [
            (&b""[..], 0, 0),
            (b"hello", 0xcbd8_a7b3_41bd_9b02, 0x5b1e_906a_48ae_1d19),
            ("\u{5e03}\u{9686}".as_bytes(), 0x1c8b_3101_4046_42ac, 0x1403_d08b_dbdc_13fc),
            (&up_to_15, 0x4723_1598_fd49_25e9, 0xcd84_6dee_88c6_7de9),
            (&up_to_33, 0x7d41_281b_faba_4612, 0x55ac_8073_a7d6_a30b),
        ] {
            assert_eq!(hash(key, 0), Digest { place, print }, "{key:?}");
        }
    }

    #[test]
    fn a_pair_is_two_hashes() {
        for length in 0..70 {
            let mut key: Vec<u8> = (0..length).collect();
            let first = hash(&key, 7);
            let pair = pair(&key, 7);
            key.push(1);
            assert_eq!(pair, [first, hash(&key, 7)], "{length} bytes");
        }
    }
}
