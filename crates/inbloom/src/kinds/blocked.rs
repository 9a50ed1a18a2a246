//! A Bloom filter that touches one cache line per key.
//!
//! **Idea.** A classic Bloom filter sets k bits anywhere, so a query on a large one waits for memory
//! up to k times. Here a key first picks one block of 512 bits, a cache line, and then sets all its
//! bits inside it: one wait. Blocks fill unevenly, so at equal rate it takes more bits than a classic
//! filter: 2% more at 10%, 5.5% at 1%, 10% at 0.1%, 16% at 0.01%. From about 2 * 10^-5 down that grows past
//! what it is worth, and the plan lets a key use two lines instead of one.
//!
//! ```text
//! block (64 bytes)   word 0   word 1   word 2   word 3 | word 4   word 5   word 6   word 7
//! a full round          x        x        x        x   |    x        x        x        x
//! a half round          x or.....................................x      (so in each of the 4 pairs)
//! ```
//!
//! The block is `digest.pick(blocks)`. A full round takes 48 bits of the digest and sets one bit in
//! each of the eight words; a half round takes 28 and sets one bit in each of the four pairs of
//! words (i, i+4). A line gets 4 probes (a half round), 8 (a full round), 12 (both) or 16 (two full
//! rounds). Positions count from the top of a word. Example: a full round whose lowest 12 bits are
//! 5 | 63 << 6 sets bit 58 of word 0 and bit 0 of word 1. In word 7 they count from bit 62, and 63
//! sets nothing: bit 511 of a block is reserved. In a Redis string it marks a block as present: in
//! a wiped block it is 0. `kernels/scalar.rs` is the specification to the bit.
//!
//! A second line is another block of the same *range*: all blocks are divided evenly into ranges of
//! at most 16,383, so that a range can be kept and sent as one piece and a key needs only one of them.
//!
//! **Cost.** One or two cache misses per key, overlapped in batches; see bench/record. **When
//! not.** For the fewest bits at a low rate, use classic, or a static kind if the keys are known
//! beforehand. This kind cannot remove keys.
//!
//! Sources: Putze, Sanders, Singler, "Cache-, hash- and space-efficient Bloom filters", 2007 (blocks);
//! Lang, Neumann, Kemper, Boncz, "Performance-optimal filtering", VLDB 2019 (one bit per word).

#[cfg_attr(not(feature = "internals"), allow(dead_code, reason = "it is for our other crates"))]
pub(crate) mod chunks;
mod pieces;
mod plan;
mod row;
mod shared;

pub use pieces::{Piece, Pieces};
pub(crate) use shared::share;
pub use shared::{Shape, SharedBlocked};

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::digest::Digest;
use crate::error::{Error, Result, mismatch};
use crate::estimate::Estimate;
use crate::kernels::{self, Geometry, Kernel, Run, SingleCalls};
use crate::kind::Kind;
use crate::membership::Membership;
use crate::plan::Plan;
use crate::plan::lines::BLOCK_BITS;
use crate::profile::{Slice, Spread, slices_of};
use crate::state::{Array, ArrayKind, Intersecting, Positioned, Removable, State};
use crate::storage::Bits;
pub(crate) use row::ROW;

/// A Bloom filter with one cache line per key, or two. The default kind.
pub struct Blocked {
    plan: Plan,
    geometry: Geometry,
    kernel: &'static Kernel,
    pub(crate) bits: Bits,
}

impl fmt::Debug for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::state::debug("Blocked", self, f)
    }
}

impl Blocked {
    /// Returns an empty filter. Panics if the plan is for another kind.
    pub fn new(plan: Plan) -> Result<Blocked> {
        Ok(Blocked::with_bits(plan, Bits::zeroed(plan.bytes())?))
    }

    pub(crate) fn with_bits(plan: Plan, bits: Bits) -> Blocked {
        assert_eq!(plan.kind(), Kind::Blocked, "a plan for another kind");
        let geometry = Geometry::new(&plan);
        assert_eq!(bits.cells.bytes().len(), geometry.bytes());
        Blocked { plan, geometry, kernel: Kernel::select(&geometry), bits }
    }

    /// Returns the plan it was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the instruction set that answers: "avx512", "avx2" or "scalar".
    #[must_use]
    pub fn kernel(&self) -> &'static str {
        self.kernel.name
    }

    /// Returns whether the digest may have been inserted: false is certain, true is probable.
    #[inline]
    #[must_use]
    pub fn contains(&self, digest: Digest) -> bool {
        self.kernel.contains(self.bits.cells.bytes(), &self.geometry, digest)
    }

    /// Inserts, and tells whether the digest is certainly new.
    #[inline]
    pub fn insert(&mut self, digest: Digest) -> bool {
        self.try_insert(digest).expect("a filter by itself has memory of its own")
    }

    /// Inserts, and tells whether the digest is certainly new; None if the cells are read-only. An
    /// option fits into a register, which a result does not: 3 of 9 ns.
    #[inline]
    pub(crate) fn try_insert(&mut self, digest: Digest) -> Option<bool> {
        let changed = self.kernel.insert(self.bits.cells.writable()?, &self.geometry, digest);
        self.bits.ones += u64::from(changed);
        Some(changed != 0)
    }

    /// What single calls need that count no bits.
    pub(crate) fn single_calls(&self) -> SingleCalls {
        SingleCalls::new(self.kernel, self.geometry)
    }

    /// Counts its bits, after inserts that did not: reads everything.
    pub(crate) fn recounted(mut self) -> Blocked {
        self.bits.ones = self.bits.cells.count_ones();
        self
    }
}

impl ArrayKind for Blocked {
    fn from_bits(plan: Plan, bits: Bits) -> Blocked {
        Blocked::with_bits(plan, bits)
    }

    fn array(&self) -> Array<'_> {
        Array { plan: &self.plan, bits: &self.bits }
    }

    fn into_array(self) -> Bits {
        self.bits
    }

    fn empty(&mut self) -> Result<()> {
        self.bits.clear()
    }

    fn equals(&self, other: &Blocked) -> bool {
        self.bits == other.bits
    }

    fn add_all(&mut self, other: &Blocked) -> Result<()> {
        self.bits.unite(&other.bits)
    }

    fn copies(&self, digest: Digest) -> u64 {
        u64::from(self.contains(digest))
    }

    fn count_cells(&self) -> Option<u64> {
        check_reserved(0, self.bits.cells.bytes()).ok()?;
        Some(self.bits.cells.count_ones())
    }

    fn fills(&self, slices: usize) -> Vec<Slice> {
        // One bit of a block is reserved, and no cell.
        let counts = self.bits.block_counts(slices, BLOCK_BITS - 1, |word| word);
        slices_of(&counts, Spread::in_lines(&self.plan, counts.len()))
    }

    fn distinct(&self, _inserted: Option<u64>) -> Estimate {
        self.array().estimate()
    }

    fn keys_left(&self) -> u64 {
        self.array().room()
    }

    fn particulars(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn as_removable(&mut self) -> Option<&mut dyn Removable> {
        None
    }

    fn as_intersecting(&mut self) -> Option<&mut dyn Intersecting> {
        Some(self)
    }

    fn as_positioned(&self) -> Option<&dyn Positioned> {
        Some(self)
    }
}

impl Intersecting for Blocked {
    fn intersect(&mut self, other: &dyn State) -> Result<()> {
        self.bits.intersect(&other.of::<Blocked>().bits)
    }
}

impl Positioned for Blocked {
    /// In ascending order within a line.
    fn positions(&self, digest: Digest) -> Result<Vec<u64>> {
        Ok(positions_of(&self.geometry, digest))
    }

    fn is_set(&self, position: u64) -> bool {
        self.array().is_set(position)
    }
}

/// Returns the bits of a digest, block by block.
fn positions_of(geometry: &Geometry, digest: Digest) -> Vec<u64> {
    let mut positions = Vec::new();
    for touch in kernels::scalar::touches(geometry, digest) {
        for (word, mask) in touch.mask.into_iter().enumerate() {
            let bits = (0..64).filter(|bit| mask >> bit & 1 == 1);
            positions.extend(bits.map(|bit| touch.block * BLOCK_BITS + word as u64 * 64 + bit));
        }
    }
    positions
}

impl Membership for Blocked {
    #[inline]
    fn contains_digest(&self, digest: Digest) -> bool {
        self.contains(digest)
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        self.try_insert(digest).ok_or(Error::ReadOnly)
    }

    fn prefetch(&self, digests: &[Digest]) {
        self.kernel.contains_all(
            self.bits.cells.bytes(),
            &self.geometry,
            Run { keys: &[], next: digests },
            &mut [],
        );
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        let run = Run { keys: run, next };
        self.kernel.contains_all(self.bits.cells.bytes(), &self.geometry, run, found);
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        let bytes = self.bits.cells.bytes_mut()?;
        let before = new.len();
        new.resize(before + run.len(), false);
        let run = Run { keys: run, next };
        self.bits.ones += self.kernel.insert_all(bytes, &self.geometry, run, &mut new[before..]);
        Ok(())
    }
}

/// Refuses bytes of a filter, from `at` on, in which the reserved bit of a block is set.
pub(crate) fn check_reserved(at: usize, bytes: &[u8]) -> Result<()> {
    // Bit 511, the highest of a block's last byte.
    let mut last_bytes = bytes.iter().skip(63 - at % 64).step_by(64);
    match last_bytes.any(|last| last >> 7 == 1) {
        true => Err(mismatch("unused bits", "zeros", "set bits")),
        false => Ok(()),
    }
}
