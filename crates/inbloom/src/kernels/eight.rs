//! Eight keys side by side, for hashes of other programs in AVX-512: a lane for each key.
//!
//! Such a hash is a chain of multiplications, and where keys differ in length a processor guesses
//! wrong at the end of each. In lanes there is nothing to guess: all go through the steps of the
//! longest, and a mask says for whom a step counts. Keys of up to 64 bytes are loaded whole, with
//! zeros behind them, and turned about: word w of all keys becomes one vector.

use core::arch::x86_64::*;

use crate::digest::Digest;

/// The most bytes of a key: those of a vector.
const LONGEST: usize = 64;

/// The words of eight keys, and their lengths.
#[derive(Clone, Copy)]
pub(super) struct EightKeys {
    /// Little-endian words; behind the end of a key are zeros.
    pub words: [__m512i; 8],
    pub lengths: __m512i,
    /// The length of the longest.
    pub longest: usize,
}

/// Whether this processor runs what is here.
#[inline(always)]
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512bw")
}

impl EightKeys {
    /// None if a key is too long.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512bw")]
    pub(super) fn load(keys: &[&[u8]; 8]) -> Option<EightKeys> {
        let lengths = keys.map(|key| key.len() as u64);
        let longest = keys.iter().fold(0, |longest, key| longest.max(key.len()));
        if longest > LONGEST {
            return None;
        }
        let mut rows = [_mm512_setzero_si512(); 8];
        for (row, key) in rows.iter_mut().zip(keys) {
            let mask = u64::MAX.unbounded_shr((LONGEST - key.len()) as u32);
            // SAFETY: bytes that the mask leaves out are not touched, and it has a bit for each byte
            // of the key.
            *row = unsafe { _mm512_maskz_loadu_epi8(mask, key.as_ptr().cast()) };
        }
        Some(EightKeys { words: transposed(rows), lengths: vector(&lengths), longest })
    }

    /// Returns the keys with a byte 1 behind each. Panics if one of them is as long as a vector.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512bw")]
    pub(super) fn with_a_byte_1(mut self) -> EightKeys {
        assert!(self.longest < LONGEST);
        let in_word = _mm512_and_si512(self.lengths, _mm512_set1_epi64(7));
        let byte = _mm512_sllv_epi64(_mm512_set1_epi64(1), _mm512_slli_epi64::<3>(in_word));
        let last = _mm512_srli_epi64::<3>(self.lengths);
        for (at, word) in self.words.iter_mut().enumerate() {
            let is_last = _mm512_cmpeq_epi64_mask(last, _mm512_set1_epi64(at as i64));
            *word = _mm512_mask_or_epi64(*word, is_last, *word, byte);
        }
        self.lengths = _mm512_add_epi64(self.lengths, _mm512_set1_epi64(1));
        self.longest += 1;
        self
    }
}

/// Turns rows into columns.
#[inline]
#[target_feature(enable = "avx512f")]
fn transposed(rows: [__m512i; 8]) -> [__m512i; 8] {
    let [r0, r1, r2, r3, r4, r5, r6, r7] = rows;
    // Pairs of words of two rows, in four quarters: words 0, 2, 4, 6 or 1, 3, 5, 7.
    let quarters = |a, b, c, d| {
        let (low, high) = (_mm512_shuffle_i64x2::<0x88>(a, b), _mm512_shuffle_i64x2::<0x88>(c, d));
        let (odd, top) = (_mm512_shuffle_i64x2::<0xdd>(a, b), _mm512_shuffle_i64x2::<0xdd>(c, d));
        [
            _mm512_shuffle_i64x2::<0x88>(low, high),
            _mm512_shuffle_i64x2::<0x88>(odd, top),
            _mm512_shuffle_i64x2::<0xdd>(low, high),
            _mm512_shuffle_i64x2::<0xdd>(odd, top),
        ]
    };
    let [c0, c2, c4, c6] = quarters(
        _mm512_unpacklo_epi64(r0, r1),
        _mm512_unpacklo_epi64(r2, r3),
        _mm512_unpacklo_epi64(r4, r5),
        _mm512_unpacklo_epi64(r6, r7),
    );
    let [c1, c3, c5, c7] = quarters(
        _mm512_unpackhi_epi64(r0, r1),
        _mm512_unpackhi_epi64(r2, r3),
        _mm512_unpackhi_epi64(r4, r5),
        _mm512_unpackhi_epi64(r6, r7),
    );
    [c0, c1, c2, c3, c4, c5, c6, c7]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn vector(numbers: &[u64; 8]) -> __m512i {
    // SAFETY: they are 64 bytes, and the load takes any alignment.
    unsafe { _mm512_loadu_si512(numbers.as_ptr().cast()) }
}

/// Returns the eight digests with these places and prints.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn digests(places: __m512i, prints: __m512i) -> [Digest; 8] {
    let (mut place, mut print) = ([0; 8], [0; 8]);
    // SAFETY: both are 64 bytes that are ours to write, and the stores take any alignment.
    unsafe {
        _mm512_storeu_si512(place.as_mut_ptr().cast(), places);
        _mm512_storeu_si512(print.as_mut_ptr().cast(), prints);
    }
    core::array::from_fn(|at| Digest { place: place[at], print: print[at] })
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn constant(number: u64) -> __m512i {
    _mm512_set1_epi64(number as i64)
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) fn times(vector: __m512i, number: u64) -> __m512i {
    _mm512_mullo_epi64(vector, constant(number))
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn plus(vector: __m512i, number: u64) -> __m512i {
    _mm512_add_epi64(vector, constant(number))
}

/// Mixes the upper bits into the lower ones.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn folded<const BITS: u32>(vector: __m512i) -> __m512i {
    _mm512_xor_si512(vector, _mm512_srli_epi64::<BITS>(vector))
}
