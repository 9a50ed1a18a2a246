//! XXH64, of Parquet and DataSketches. One key is hashed by the crate, which is the specification;
//! eight at once where there is AVX-512 (see `eight.rs`).
//!
//! Source: Yann Collet, "xxHash fast digest algorithm", `doc/xxhash_spec.md` in Cyan4973/xxHash.

pub(crate) use xxhash_rust::xxh64::xxh64;

use crate::digest::Digest;

/// Hashes eight keys: the place of a digest is the hash of its key, the print 0. False, and no
/// digests, where that is not possible: without AVX-512, or with long keys.
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

/// As [`eight`], with a second hash as the print, under the first one as its seed.
#[inline]
pub(crate) fn eight_twice(keys: &[&[u8]; 8], seed: u64, digests: &mut [Digest]) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    if super::eight::is_available() {
        // SAFETY: this processor runs it.
        return unsafe { avx512::twice(keys, seed, digests) };
    }
    let _ = (keys, seed, digests);
    false
}

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod avx512 {
    use core::arch::x86_64::*;

    use crate::digest::Digest;
    use crate::kernels::eight::{EightKeys, constant, digests, folded, plus, times};

    const P1: u64 = 0x9e37_79b1_85eb_ca87;
    const P2: u64 = 0xc2b2_ae3d_27d4_eb4f;
    const P3: u64 = 0x1656_67b1_9e37_79f9;
    const P4: u64 = 0x85eb_ca77_c2b2_ae63;
    const P5: u64 = 0x27d4_eb2f_1656_67c5;

    #[target_feature(enable = "avx512f,avx512dq,avx512bw")]
    pub(super) fn hash(keys: &[&[u8]; 8], seed: u64, out: &mut [Digest]) -> bool {
        let Some(keys) = EightKeys::load(keys) else { return false };
        out.copy_from_slice(&digests(of_eight(&keys, constant(seed)), constant(0)));
        true
    }

    #[target_feature(enable = "avx512f,avx512dq,avx512bw")]
    pub(super) fn twice(keys: &[&[u8]; 8], seed: u64, out: &mut [Digest]) -> bool {
        let Some(keys) = EightKeys::load(keys) else { return false };
        let first = of_eight(&keys, constant(seed));
        out.copy_from_slice(&digests(first, of_eight(&keys, first)));
        true
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn round(lane: __m512i, word: __m512i) -> __m512i {
        times(_mm512_rol_epi64::<31>(_mm512_add_epi64(lane, times(word, P2))), P1)
    }

    /// The hashes of eight keys, each under a seed of its own.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512bw")]
    fn of_eight(keys: &EightKeys, seeds: __m512i) -> __m512i {
        let EightKeys { words, lengths, longest } = keys;
        let mut hash = plus(seeds, P5);
        let stripes = _mm512_srli_epi64::<5>(*lengths);
        if *longest >= 32 {
            let mut lanes = [
                plus(seeds, P1.wrapping_add(P2)),
                plus(seeds, P2),
                seeds,
                plus(seeds, P1.wrapping_neg()),
            ];
            for (at, words) in words.as_chunks::<4>().0.iter().take(longest / 32).enumerate() {
                let is_whole = _mm512_cmpgt_epu64_mask(stripes, constant(at as u64));
                for (lane, word) in lanes.iter_mut().zip(words) {
                    *lane = _mm512_mask_mov_epi64(*lane, is_whole, round(*lane, *word));
                }
            }
            let [v1, v2, v3, v4] = lanes;
            let mut merged = _mm512_add_epi64(
                _mm512_add_epi64(_mm512_rol_epi64::<1>(v1), _mm512_rol_epi64::<7>(v2)),
                _mm512_add_epi64(_mm512_rol_epi64::<12>(v3), _mm512_rol_epi64::<18>(v4)),
            );
            for lane in lanes {
                merged = _mm512_xor_si512(merged, round(constant(0), lane));
                merged = plus(times(merged, P1), P4);
            }
            let has_stripes = _mm512_test_epi64_mask(stripes, stripes);
            hash = _mm512_mask_mov_epi64(hash, has_stripes, merged);
        }
        hash = _mm512_add_epi64(hash, *lengths);
        // Whole words behind the stripes, then the word that is left.
        let (start, whole) = (_mm512_slli_epi64::<2>(stripes), _mm512_srli_epi64::<3>(*lengths));
        let mut left = constant(0);
        for (at, word) in words.iter().take(longest.div_ceil(8)).enumerate() {
            let at = constant(at as u64);
            let counts = _mm512_cmpgt_epu64_mask(whole, at) & _mm512_cmple_epu64_mask(start, at);
            let mixed = _mm512_xor_si512(hash, round(constant(0), *word));
            let mixed = plus(times(_mm512_rol_epi64::<27>(mixed), P1), P4);
            hash = _mm512_mask_mov_epi64(hash, counts, mixed);
            left = _mm512_mask_mov_epi64(left, _mm512_cmpeq_epi64_mask(whole, at), *word);
        }
        let half = _mm512_and_si512(left, constant(u64::from(u32::MAX)));
        let mixed = _mm512_xor_si512(hash, times(half, P1));
        let mixed = plus(times(_mm512_rol_epi64::<23>(mixed), P2), P3);
        let has_half = _mm512_test_epi64_mask(*lengths, constant(4));
        hash = _mm512_mask_mov_epi64(hash, has_half, mixed);
        left = _mm512_mask_srli_epi64::<32>(left, has_half, left);
        let bytes = _mm512_and_si512(*lengths, constant(3));
        for at in 0..3 {
            let byte = _mm512_and_si512(left, constant(0xff));
            let mixed = _mm512_xor_si512(hash, times(byte, P5));
            let mixed = times(_mm512_rol_epi64::<11>(mixed), P1);
            let counts = _mm512_cmpgt_epu64_mask(bytes, constant(at));
            hash = _mm512_mask_mov_epi64(hash, counts, mixed);
            left = _mm512_srli_epi64::<8>(left);
        }
        hash = times(folded::<33>(hash), P2);
        folded::<32>(times(folded::<29>(hash), P3))
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
                let one = |key: &[u8]| Digest { place: xxh64(key, 9), print: 0 };
                assert_eq!(digests, slices.map(one), "{keys:?}");
            }
            let is_done = eight_twice(&slices, 9, &mut digests);
            assert_eq!(is_done, takes_eight(longest), "{longest} bytes");
            if is_done {
                let one = |key: &[u8]| {
                    let place = xxh64(key, 9);
                    Digest { place, print: xxh64(key, place) }
                };
                assert_eq!(digests, slices.map(one), "{keys:?}");
            }
        }
    }
}
