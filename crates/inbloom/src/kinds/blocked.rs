//! A Bloom filter that touches one cache line per key.
//!
//! **Idea.** A classic Bloom filter sets k bits anywhere, so a query on a large one waits for memory
//! up to k times. Here a key first picks one block of 512 bits, a cache line, and then sets all its
//! bits inside it: one wait. Blocks fill unevenly, so at equal rate it takes more bits than a classic
//! filter: 2% more at 10%, 5% at 1%, 9% at 0.1%, 15% at 0.01%. Below about 10^-5 that grows past
//! what it is worth, and the plan lets a key use two lines instead of one.
//!
//! ```text
//! block (64 bytes)      word 0   word 1   word 2   word 3 | word 4   word 5   word 6   word 7
//!                          |        |        |        |       |        |        |        |
//! sectors (128 bits)       0        1        2        3       0        1        2        3
//! ```
//!
//! The block is `digest.pick(blocks)`. A round takes 28 bits of `digest.print` and sets one bit in
//! each of the four sectors; a key takes 1 to 4 rounds (so 4, 8, 12 or 16 probes) in each of its
//! lines. Example: round 0 of a print whose low 28 bits are 5 | 70 << 7 | 0 << 14 | 127 << 21 sets
//! bit 5 of word 0 (sector 0), bit 6 of word 5 (sector 1, position 70 = 64 + 6), bit 0 of word 2, and
//! nothing in sector 3, since position 127 there is bit 511 of the block, which is reserved: in a
//! Redis string it tells a block that is there from one that was wiped. [`simd::scalar`] is the
//! specification to the bit.
//!
//! A second line is another block of the same *range*: all blocks are divided evenly into ranges of
//! at most 16,383, so that a range can be kept and sent as one piece and a key needs only one of them.
//!
//! **Cost.** One or two cache misses per key, overlapped in batches; see bench/record.
//! **When not.** For the fewest bits at a low rate use classic, or a static kind if the keys are known
//! beforehand. It cannot remove.
//!
//! Sources: Putze, Sanders, Singler, "Cache-, hash- and space-efficient Bloom filters", 2007 (blocks);
//! Lang, Neumann, Kemper, Boncz, "Performance-optimal filtering", VLDB 2019 (sectors).

use crate::cells::Bits;
use crate::digest::Digest;
use crate::error::Result;
use crate::membership::Membership;
use crate::plan::{BLOCK_BITS, Kind, Plan};
use crate::simd::{self, Geometry, Kernel};
use crate::sync::{AtomicU64, Ordering};

/// A Bloom filter with one cache line per key, or two. The default kind.
pub struct Blocked {
    plan: Plan,
    geometry: Geometry,
    kernel: &'static Kernel,
    pub(crate) bits: Bits,
}

/// Below this size prefetching costs more than it saves: the filter stays in L2 by itself.
const FITS_IN_L2: usize = 256 << 10;

impl Blocked {
    /// An empty filter. Panics if the plan is for another kind.
    pub fn new(plan: Plan) -> Result<Blocked> {
        Ok(Blocked::with_bits(plan, Bits::zeroed(plan.bytes())?))
    }

    pub(crate) fn with_bits(plan: Plan, bits: Bits) -> Blocked {
        assert_eq!(plan.kind(), Kind::Blocked, "a plan for another kind");
        let geometry = Geometry::new(&plan);
        assert_eq!(bits.cells.bytes().len(), geometry.bytes());
        Blocked { plan, geometry, kernel: Kernel::select(&geometry), bits }
    }

    /// The plan it was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The instruction set that answers: "avx512", "avx2" or "scalar".
    #[must_use]
    pub fn kernel(&self) -> &'static str {
        self.kernel.name
    }

    /// Whether the digest may have been inserted: false is certain, true is probable.
    #[inline]
    #[must_use]
    pub fn contains(&self, digest: Digest) -> bool {
        self.kernel.contains(self.bits.cells.bytes(), &self.geometry, digest)
    }

    /// The positions of the digest's bits, in the order of its rounds; those on the reserved bit are
    /// left out.
    pub(crate) fn positions(&self, digest: Digest) -> Vec<u64> {
        let mut positions = Vec::new();
        for touch in simd::scalar::touches(&self.geometry, digest) {
            for (word, mask) in touch.mask.into_iter().enumerate() {
                let bits = (0..64).filter(|bit| mask >> bit & 1 == 1);
                positions.extend(bits.map(|bit| touch.block * BLOCK_BITS + word as u64 * 64 + bit));
            }
        }
        positions
    }

    pub(crate) fn into_parts(self) -> (Plan, Bits) {
        (self.plan, self.bits)
    }
}

impl Membership for Blocked {
    #[inline]
    fn contains_digest(&self, digest: Digest) -> bool {
        self.contains(digest)
    }

    #[inline]
    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        let changed = self.kernel.insert(self.bits.cells.bytes_mut()?, &self.geometry, digest);
        self.bits.ones += u64::from(changed);
        Ok(changed != 0)
    }

    fn prefetch(&self, digests: &[Digest]) {
        let bytes = self.bits.cells.bytes();
        if bytes.len() > FITS_IN_L2 {
            simd::prefetch_run(bytes.as_ptr(), &self.geometry, digests);
        }
    }

    fn contains_run(&self, digests: &[Digest], found: &mut [bool]) {
        self.kernel.contains_all(self.bits.cells.bytes(), &self.geometry, digests, found);
    }

    fn insert_run(&mut self, digests: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        let bytes = self.bits.cells.bytes_mut()?;
        let before = new.len();
        new.resize(before + digests.len(), false);
        self.bits.ones +=
            self.kernel.insert_all(bytes, &self.geometry, digests, &mut new[before..]);
        Ok(())
    }
}

/// The blocked kind on words that many threads use at once.
pub(crate) struct Racing {
    geometry: Geometry,
    kernel: &'static Kernel,
}

impl Racing {
    pub(crate) fn new(plan: &Plan) -> Racing {
        let geometry = Geometry::new(plan);
        Racing { geometry, kernel: Kernel::select(&geometry) }
    }

    pub(crate) fn contains(&self, words: &[AtomicU64], digest: Digest) -> bool {
        self.kernel.racing_contains(words, &self.geometry, digest)
    }

    /// Sets the digest's bits and returns how many of them this call has set.
    pub(crate) fn insert(&self, words: &[AtomicU64], digest: Digest) -> u32 {
        // A locked instruction per word is what an insert costs: look first, and touch only what is
        // missing. Bits are never unset while the words are shared, so that what was seen holds.
        if self.contains(words, digest) {
            return 0;
        }
        let mut changed = 0;
        for touch in simd::scalar::touches(&self.geometry, digest) {
            for (word, mask) in words[touch.block as usize * 8..].iter().zip(touch.mask) {
                if mask & !u64::from_le(word.load(Ordering::Relaxed)) != 0 {
                    let old = u64::from_le(word.fetch_or(mask.to_le(), Ordering::Relaxed));
                    changed += (mask & !old).count_ones();
                }
            }
        }
        changed
    }

    pub(crate) fn prefetch(&self, words: &[AtomicU64], digests: &[Digest]) {
        if self.geometry.bytes() > FITS_IN_L2 {
            simd::prefetch_run(words.as_ptr().cast(), &self.geometry, digests);
        }
    }

    pub(crate) fn contains_run(&self, words: &[AtomicU64], digests: &[Digest], found: &mut [bool]) {
        self.kernel.racing_contains_all(words, &self.geometry, digests, found);
    }
}
