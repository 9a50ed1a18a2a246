//! The kernel of Parquet's split-block Bloom filter: eight bits of a key, one in each 32-bit word of a
//! block of 32 bytes.
//!
//! The upper half of the key's hash chooses the block by multiply-shift. The lower half x chooses bit
//! (x * SALT[i] mod 2^32) >> 27 of word i: a multiplication, a shift and a comparison, in eight lanes
//! at once where there is AVX2. The scalar functions are the specification.
//!
//! Sources: apache/parquet-format, BloomFilter.md; Putze, Sanders and Singler, "Cache-, hash- and
//! space-efficient Bloom filters", 2007.

use super::{FITS_IN_L2, Run, Towards, prefetch};
use crate::digest::Digest;

/// A block: eight words, little-endian.
pub(crate) type Bytes32 = [u8; 32];

/// The multipliers that the specification lists.
const SALT: [u32; 8] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// Tests one key in its block.
type Contains = unsafe fn(&Bytes32, u32) -> bool;
/// Tests a run of keys, as many as there are answers.
type SplitContainsRun = unsafe fn(&[Bytes32], Run<'_>, &mut [bool]);
/// Sets one key's bits in its block, and returns how many were not set before.
type Insert = unsafe fn(&mut Bytes32, u32) -> u32;

/// One implementation of the operations. The hash of a key is the `place` of its digest.
pub(crate) struct SplitBlocks {
    contains: Contains,
    contains_run: SplitContainsRun,
    insert: Insert,
}

static SCALAR: SplitBlocks = SplitBlocks { contains, contains_run: contains_run_scalar, insert };

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
static AVX2: SplitBlocks = SplitBlocks {
    contains: avx2::contains,
    contains_run: avx2::contains_run,
    insert: avx2::insert,
};

impl SplitBlocks {
    /// Returns the fastest implementation that this processor runs.
    pub(crate) fn select() -> &'static SplitBlocks {
        #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
            return &AVX2;
        }
        &SCALAR
    }

    #[inline]
    pub(crate) fn contains(&self, blocks: &[Bytes32], digest: Digest) -> bool {
        // SAFETY: `select` gave out only what this processor runs.
        unsafe { (self.contains)(&blocks[index(blocks, digest)], digest.place as u32) }
    }

    pub(crate) fn contains_all(&self, blocks: &[Bytes32], run: Run<'_>, found: &mut [bool]) {
        assert_eq!(run.keys.len(), found.len());
        // SAFETY: as in `contains`.
        unsafe { (self.contains_run)(blocks, run, found) }
    }

    /// Sets a key's bits, and returns how many were not set before.
    #[inline]
    pub(crate) fn insert(&self, blocks: &mut [Bytes32], digest: Digest) -> u32 {
        let at = index(blocks, digest);
        // SAFETY: as in `contains`.
        unsafe { (self.insert)(&mut blocks[at], digest.place as u32) }
    }
}

/// The number of a key's block.
#[inline(always)]
pub(crate) fn index(blocks: &[Bytes32], digest: Digest) -> usize {
    // The product is below 2^64: a filter has at most 2^32 blocks, which `interop` checks.
    (((digest.place >> 32) * blocks.len() as u64) >> 32) as usize
}

/// The numbers of a key's bits within its block.
pub(crate) fn bits(digest: Digest) -> [u32; 8] {
    let mut word = 0;
    SALT.map(|salt| {
        word += 32;
        word - 32 + ((digest.place as u32).wrapping_mul(salt) >> 27)
    })
}

/// Asks for the block of a key.
#[inline(always)]
pub(crate) fn prefetch_block(blocks: &[Bytes32], digest: Digest, towards: Towards) {
    let base = blocks.as_ptr().cast::<u8>();
    prefetch(base.wrapping_add(index(blocks, digest) * size_of::<Bytes32>()), towards);
}

/// How far ahead of its use within a run a block is asked for into L1: see `NEAR` in `kernels.rs`.
const NEAR: usize = 16;

/// Calls `work` with each key of a run, while the blocks of the next are on their way.
#[inline(always)]
fn for_each(blocks: &[Bytes32], Run { keys, next }: Run<'_>, mut work: impl FnMut(usize, Digest)) {
    if size_of_val(blocks) <= FITS_IN_L2 {
        for (at, digest) in keys.iter().enumerate() {
            work(at, *digest);
        }
        return;
    }
    for (at, digest) in keys.iter().enumerate() {
        if let Some(far) = next.get(at) {
            prefetch_block(blocks, *far, Towards::Far);
        }
        if let Some(near) = keys.get(at + NEAR) {
            prefetch_block(blocks, *near, Towards::Near);
        }
        work(at, *digest);
    }
    // A next run is longer than this one only if this one is empty.
    for far in next.iter().skip(keys.len()) {
        prefetch_block(blocks, *far, Towards::Far);
    }
}

#[inline(always)]
fn words(block: &Bytes32) -> impl Iterator<Item = u32> + '_ {
    block.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word))
}

/// The bit of a key in a word.
#[inline(always)]
fn mask(key: u32, salt: u32) -> u32 {
    1 << (key.wrapping_mul(salt) >> 27)
}

fn contains(block: &Bytes32, key: u32) -> bool {
    let missing =
        words(block).zip(SALT).fold(0, |missing, (word, salt)| missing | (!word & mask(key, salt)));
    missing == 0
}

fn contains_run_scalar(blocks: &[Bytes32], run: Run<'_>, found: &mut [bool]) {
    for_each(blocks, run, |at, digest| {
        found[at] = contains(&blocks[index(blocks, digest)], digest.place as u32);
    });
}

fn insert(block: &mut Bytes32, key: u32) -> u32 {
    let mut new = 0;
    for (word, salt) in block.as_chunks_mut().0.iter_mut().zip(SALT) {
        let (old, bit) = (u32::from_le_bytes(*word), mask(key, salt));
        new += u32::from(old & bit == 0);
        *word = (old | bit).to_le_bytes();
    }
    new
}

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Bytes32, Run, SALT, for_each, index};

    #[inline]
    #[target_feature(enable = "avx2")]
    fn mask(key: u32) -> __m256i {
        // SAFETY: the salts are 32 bytes, and the load takes any alignment.
        let salts = unsafe { _mm256_loadu_si256(SALT.as_ptr().cast()) };
        let product = _mm256_mullo_epi32(_mm256_set1_epi32(key as i32), salts);
        _mm256_sllv_epi32(_mm256_set1_epi32(1), _mm256_srli_epi32::<27>(product))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(block: &Bytes32) -> __m256i {
        // SAFETY: a block is 32 bytes, and the load takes any alignment.
        unsafe { _mm256_loadu_si256(block.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn contains(block: &Bytes32, key: u32) -> bool {
        _mm256_testc_si256(load(block), mask(key)) == 1
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn contains_run(blocks: &[Bytes32], run: Run<'_>, found: &mut [bool]) {
        for_each(blocks, run, |at, digest| {
            found[at] = contains(&blocks[index(blocks, digest)], digest.place as u32);
        });
    }

    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn insert(block: &mut Bytes32, key: u32) -> u32 {
        let (old, mask) = (load(block), mask(key));
        let had = _mm256_cmpeq_epi32(_mm256_and_si256(old, mask), mask);
        // SAFETY: a block is 32 bytes that are ours to write, and the store takes any alignment.
        unsafe { _mm256_storeu_si256(block.as_mut_ptr().cast(), _mm256_or_si256(old, mask)) };
        let had = _mm256_movemask_ps(_mm256_castsi256_ps(had)) as u32;
        8 - had.count_ones()
    }
}

#[cfg(test)]
mod tests {
    use inbloom_testing::Random;

    use super::*;

    /// Every implementation that this processor runs.
    fn available() -> Vec<&'static SplitBlocks> {
        vec![&SCALAR, SplitBlocks::select()]
    }

    fn digest(random: &mut Random) -> Digest {
        Digest { place: random.next(), print: 0 }
    }

    #[test]
    fn every_kernel_sets_and_finds_the_bits_of_the_specification() {
        let mut random = Random(1);
        for kernel in available() {
            for blocks in [1, 3, 64, 20_000] {
                let mut filter = vec![[0; 32]; blocks];
                let mut naive = vec![false; blocks * 256];
                let keys: Vec<Digest> = (0..500).map(|_| digest(&mut random)).collect();
                for key in &keys {
                    let block = index(&filter, *key);
                    let mut new = 0;
                    for bit in bits(*key) {
                        let cell = &mut naive[block * 256 + bit as usize];
                        new += u32::from(!*cell);
                        *cell = true;
                    }
                    assert_eq!(kernel.insert(&mut filter, *key), new);
                }
                for (at, cell) in naive.iter().enumerate() {
                    let byte = filter[at / 256][at % 256 / 8];
                    assert_eq!(byte >> (at % 8) & 1 == 1, *cell, "bit {at}");
                }
                let others: Vec<Digest> = (0..500).map(|_| digest(&mut random)).collect();
                let mut found = vec![false; 1000];
                let all: Vec<Digest> = keys.iter().chain(&others).copied().collect();
                let run = Run { keys: &all, next: &keys };
                kernel.contains_all(&filter, run, &mut found);
                for (key, found) in all.iter().zip(found) {
                    let block = index(&filter, *key) * 256;
                    let expected = bits(*key).iter().all(|bit| naive[block + *bit as usize]);
                    assert_eq!((kernel.contains(&filter, *key), found), (expected, expected));
                }
            }
        }
    }
}
