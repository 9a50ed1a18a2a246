//! One look at a bucket of eight lanes: which of them claim a hash, and which are empty.
//!
//! A lane is a slot of a scalable filter's table (`kinds/scalable/table.rs` draws it). Its lowest set
//! bit ends the fingerprint, so that a lane claims a hash if both agree in every bit above that one.
//! `lane ^ (lane - 1)` has exactly the other bits: no branch, and no shift by a number that differs
//! from lane to lane. A lane of 0 is empty; the same arithmetic would take it for a fingerprint of no
//! bits, and a second comparison takes it out again.
//!
//! A bucket of eight lanes of 16 bits is one vector of 128 bits, which every x86-64 and every 64-bit
//! ARM processor has. So there is nothing to detect, and the look is compiled in line into whatever
//! asks. The scalar version specifies it. Other processors run it, and so do programs whose target
//! leaves vectors alone: most kernels of operating systems, `x86_64-unknown-none`.

/// Lanes of a bucket.
pub(crate) const LANES: usize = 8;

/// What a look at a bucket tells: bit i is for lane i.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The lanes that claim.
    pub claims: u32,
    /// The lanes that are empty.
    pub empty: u32,
}

/// Compares the eight lanes of 16 bits with one that would claim the hash.
#[inline(always)]
pub(crate) fn look(bucket: &[u8; 16], wanted: u16) -> Seen {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
    return x86::look(bucket, wanted);
    #[cfg(all(
        target_arch = "aarch64",
        target_feature = "neon",
        target_endian = "little",
        not(miri)
    ))]
    return aarch64::look(bucket, wanted);
    #[cfg(not(any(
        all(target_arch = "x86_64", target_feature = "sse2", not(miri)),
        all(target_arch = "aarch64", target_feature = "neon", target_endian = "little", not(miri))
    )))]
    scalar(bucket, wanted)
}

/// Whether a lane of either bucket claims what is wanted there. Two [looks](look) would tell as well, in
/// twice as many instructions.
#[inline(always)]
pub(crate) fn claims_either(buckets: [&[u8; 16]; 2], wanted: [u16; 2]) -> bool {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
    return x86::claims_either(buckets, wanted);
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(miri))))]
    {
        let [home, other] = [look(buckets[0], wanted[0]), look(buckets[1], wanted[1])];
        home.claims | other.claims != 0
    }
}

/// As [`look`], of lanes of 32 bits.
#[inline(always)]
pub(crate) fn look_wide(bucket: &[u8; 32], wanted: u32) -> Seen {
    let mut seen = Seen { claims: 0, empty: 0 };
    for (at, lane) in bucket.as_chunks::<4>().0.iter().enumerate() {
        let lane = u32::from_le_bytes(*lane);
        let ended = lane ^ lane.wrapping_sub(1);
        let is_empty = lane == 0;
        seen.claims |= u32::from((lane ^ wanted) & !ended == 0 && !is_empty) << at;
        seen.empty |= u32::from(is_empty) << at;
    }
    seen
}

/// The specification of [`look`].
#[cfg_attr(
    all(
        not(test),
        any(
            all(target_arch = "x86_64", target_feature = "sse2", not(miri)),
            all(
                target_arch = "aarch64",
                target_feature = "neon",
                target_endian = "little",
                not(miri)
            )
        )
    ),
    expect(dead_code, reason = "a vector does it; the tests compare")
)]
fn scalar(bucket: &[u8; 16], wanted: u16) -> Seen {
    let mut seen = Seen { claims: 0, empty: 0 };
    for (at, lane) in bucket.as_chunks::<2>().0.iter().enumerate() {
        let lane = u16::from_le_bytes(*lane);
        let ended = lane ^ lane.wrapping_sub(1);
        let is_empty = lane == 0;
        seen.claims |= u32::from((lane ^ wanted) & !ended == 0 && !is_empty) << at;
        seen.empty |= u32::from(is_empty) << at;
    }
    seen
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
mod x86 {
    use core::arch::x86_64::{
        _mm_add_epi16, _mm_andnot_si128, _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8,
        _mm_or_si128, _mm_packs_epi16, _mm_set1_epi16, _mm_setzero_si128, _mm_subs_epu16,
        _mm_xor_si128,
    };

    use super::Seen;

    #[inline(always)]
    pub(super) fn look(bucket: &[u8; 16], wanted: u16) -> Seen {
        // SAFETY: the target has SSE2, and the load is of the 16 bytes of the array.
        let mask = unsafe {
            let zero = _mm_setzero_si128();
            let lanes = _mm_loadu_si128(bucket.as_ptr().cast());
            let differ = _mm_xor_si128(lanes, _mm_set1_epi16(wanted.cast_signed()));
            let ended = _mm_xor_si128(lanes, _mm_add_epi16(lanes, _mm_set1_epi16(-1)));
            let agree = _mm_cmpeq_epi16(_mm_andnot_si128(ended, differ), zero);
            let empty = _mm_cmpeq_epi16(lanes, zero);
            // A byte for each lane, and a bit for each byte.
            _mm_movemask_epi8(_mm_packs_epi16(_mm_andnot_si128(empty, agree), empty))
        };
        let mask = mask.cast_unsigned();
        Seen { claims: mask & 0xff, empty: mask >> 8 }
    }

    #[inline(always)]
    pub(super) fn claims_either(buckets: [&[u8; 16]; 2], wanted: [u16; 2]) -> bool {
        // SAFETY: the target has SSE2, and the loads are of the 16 bytes of each array.
        unsafe {
            let claims = |bucket: &[u8; 16], wanted: u16| {
                let lanes = _mm_loadu_si128(bucket.as_ptr().cast());
                // The difference saturates: of an empty lane no bit has ended, and the lowest bit of
                // what is wanted, which is below the end of every other lane, is not in it.
                let wanted = _mm_set1_epi16(wanted.cast_signed() | 1);
                let ended = _mm_xor_si128(lanes, _mm_subs_epu16(lanes, _mm_set1_epi16(1)));
                let differ = _mm_xor_si128(lanes, wanted);
                _mm_cmpeq_epi16(_mm_andnot_si128(ended, differ), _mm_setzero_si128())
            };
            let home = claims(buckets[0], wanted[0]);
            let other = claims(buckets[1], wanted[1]);
            _mm_movemask_epi8(_mm_or_si128(home, other)) != 0
        }
    }
}

#[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little", not(miri)))]
mod aarch64 {
    use core::arch::aarch64::{
        vaddvq_u16, vandq_u16, vbicq_u16, vceqzq_u16, vdupq_n_u16, veorq_u16, vld1q_u16, vsubq_u16,
    };

    use super::Seen;

    #[inline(always)]
    pub(super) fn look(bucket: &[u8; 16], wanted: u16) -> Seen {
        const BITS: [u16; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
        // SAFETY: the target has NEON; the loads are of the 16 bytes of each array, at any
        // alignment.
        unsafe {
            let lanes = vld1q_u16(bucket.as_ptr().cast());
            let bits = vld1q_u16(BITS.as_ptr());
            let differ = veorq_u16(lanes, vdupq_n_u16(wanted));
            let ended = veorq_u16(lanes, vsubq_u16(lanes, vdupq_n_u16(1)));
            let agree = vceqzq_u16(vbicq_u16(differ, ended));
            let empty = vceqzq_u16(lanes);
            let claims = vandq_u16(vbicq_u16(agree, empty), bits);
            let empty = vandq_u16(empty, bits);
            Seen { claims: vaddvq_u16(claims).into(), empty: vaddvq_u16(empty).into() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splitmix::SplitMix;

    /// Lanes of every length, some of them empty, and hashes that differ from one in one bit.
    #[test]
    fn vectors_see_what_the_specification_says() {
        let mut random = SplitMix(1);
        let mut before = [0; 16];
        for round in 0..20_000 {
            let mut lanes = [0_u16; 8];
            for lane in &mut lanes {
                let draw = random.draw();
                let end = (draw >> 32) % 20;
                *lane = if end > 15 { 0 } else { (draw as u16 >> end | 1) << end };
            }
            let near = lanes[round % 8] ^ (1 << (random.draw() % 17)) as u16;
            let mut bucket = [0; 16];
            for (bytes, lane) in bucket.chunks_exact_mut(2).zip(lanes) {
                bytes.copy_from_slice(&lane.to_le_bytes());
            }
            for wanted in [near, random.draw() as u16, 0, u16::MAX, lanes[0], lanes[7]] {
                let expected = scalar(&bucket, wanted);
                assert_eq!(look(&bucket, wanted), expected, "{lanes:x?} {wanted:x}");
                let other = random.draw() as u16;
                let either = expected.claims | scalar(&before, other).claims != 0;
                for (buckets, wanted) in
                    [([&bucket, &before], [wanted, other]), ([&before, &bucket], [other, wanted])]
                {
                    assert_eq!(claims_either(buckets, wanted), either, "{lanes:x?} {wanted:x?}");
                }
                // The definition, bit by bit.
                for (at, lane) in lanes.into_iter().enumerate() {
                    let claims = lane != 0
                        && (0..16)
                            .rev()
                            .take_while(|bit| lane & ((2 << bit) - 1) as u16 & !(1 << bit) != 0)
                            .all(|bit| (lane ^ wanted) >> bit & 1 == 0);
                    assert_eq!(expected.claims >> at & 1 == 1, claims, "{lane:x} {wanted:x}");
                    assert_eq!(expected.empty >> at & 1 == 1, lane == 0);
                }
                // A lane of 32 bits whose lower half has the end is one of 16 with more bits.
                let mut wide = [0; 32];
                for (bytes, lane) in wide.chunks_exact_mut(4).zip(lanes) {
                    bytes.copy_from_slice(&(u32::from(lane) << 16).to_le_bytes());
                }
                assert_eq!(look_wide(&wide, u32::from(wanted) << 16 | 0x5a5a), expected);
            }
            before = bucket;
        }
    }
}
