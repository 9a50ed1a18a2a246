//! A split-block filter, live.

use crate::digest::Digest;
use crate::error::Result;
use crate::estimate::Estimate;
use crate::kernels::split_block::{self, Bytes32, SplitBlocks};
use crate::kernels::{FITS_IN_L2, Run, Towards};
use crate::membership::Membership;
use crate::plan::Plan;
use crate::profile::{Slice, Spread, slices_of};
use crate::state::{Array, ArrayKind, Intersecting, Positioned, Removable, State};
use crate::storage::Bits;

/// Blocks of eight words. The digest of a key is its 64-bit hash, in `place`.
pub(super) struct SplitBlock {
    plan: Plan,
    kernel: &'static SplitBlocks,
    bits: Bits,
}

fn blocks(bytes: &[u8]) -> &[Bytes32] {
    bytes.as_chunks().0
}

impl SplitBlock {
    pub(super) fn with_bits(plan: Plan, bits: Bits) -> SplitBlock {
        assert_eq!(bits.cells.bytes().len() as u64, plan.bytes());
        SplitBlock { plan, kernel: SplitBlocks::select(), bits }
    }
}

impl Membership for SplitBlock {
    #[inline]
    fn contains_digest(&self, digest: Digest) -> bool {
        self.kernel.contains(blocks(self.bits.cells.bytes()), digest)
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        let changed = self.kernel.insert(self.bits.cells.bytes_mut()?.as_chunks_mut().0, digest);
        self.bits.ones += u64::from(changed);
        Ok(changed != 0)
    }

    fn prefetch(&self, digests: &[Digest]) {
        self.contains_run(&[], digests, &mut []);
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        let run = Run { keys: run, next };
        self.kernel.contains_all(blocks(self.bits.cells.bytes()), run, found);
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        let is_far = self.plan.bytes() as usize > FITS_IN_L2;
        let blocks = self.bits.cells.bytes_mut()?.as_chunks_mut().0;
        for (at, digest) in run.iter().enumerate() {
            if let Some(far) = next.get(at).filter(|_| is_far) {
                split_block::prefetch_block(blocks, *far, Towards::Far);
            }
            let changed = self.kernel.insert(blocks, *digest);
            self.bits.ones += u64::from(changed);
            new.push(changed != 0);
        }
        // A next run is longer than this one only if this one is empty.
        for far in next.iter().skip(run.len()).filter(|_| is_far) {
            split_block::prefetch_block(blocks, *far, Towards::Far);
        }
        Ok(())
    }
}

impl ArrayKind for SplitBlock {
    fn from_bits(plan: Plan, bits: Bits) -> SplitBlock {
        SplitBlock::with_bits(plan, bits)
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

    fn equals(&self, other: &SplitBlock) -> bool {
        self.bits == other.bits
    }

    fn add_all(&mut self, other: &SplitBlock) -> Result<()> {
        self.bits.unite(&other.bits)
    }

    fn copies(&self, digest: Digest) -> u64 {
        u64::from(self.contains_digest(digest))
    }

    fn count_cells(&self) -> Option<u64> {
        self.bits.recount(self.plan.bits())
    }

    fn fills(&self, slices: usize) -> Vec<Slice> {
        // The eight bits of a key are in one block.
        slices_of(&self.bits.counts(self.plan.bits(), slices), Spread::Probes(8.0))
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

impl Intersecting for SplitBlock {
    fn intersect(&mut self, other: &dyn State) -> Result<()> {
        self.bits.intersect(&other.of::<SplitBlock>().bits)
    }
}

impl Positioned for SplitBlock {
    fn positions(&self, digest: Digest) -> Result<Vec<u64>> {
        let block = split_block::index(blocks(self.bits.cells.bytes()), digest) as u64;
        let bits = split_block::bits(digest);
        Ok(bits.iter().map(|bit| block * 256 + u64::from(*bit)).collect())
    }

    fn is_set(&self, position: u64) -> bool {
        self.array().is_set(position)
    }
}
