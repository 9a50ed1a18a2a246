//! MurmurHash3_x64_128, of Guava, Go and DataSketches.
//!
//! By Austin Appleby, in the public domain. It does not withstand keys that are chosen to collide.

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

#[cfg(test)]
mod tests {
    use super::*;

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
