//! The kernels of the blocked kind: how a key's bits are found in its line, set, and tested.
//!
//! [`scalar`] is the specification, in safe Rust and readable; the vector kernels give the same
//! answers bit for bit, which the tests assert over every shape and instruction set at hand. The
//! kernel is chosen once, when a filter is made: binaries are built for the default target.
//!
//! Layout of a line (why this one: ARCHITECTURE.md, "The block layout"): 512 bits as eight 64-bit
//! little-endian words. Word i and word i+4 make sector i, 128 bits. A *round* takes 28 bits of the
//! digest, 7 for each sector, and sets one bit in each of the four. A key takes 1 to 4 rounds in a
//! line. Bit 511 (the last bit of word 7) is reserved and never set: a probe that falls on it is
//! dropped. In vectors of four words a round is two variable shifts, because shifting by 64 or more
//! gives zero: `1 << q` is the part in word i and `1 << (q ^ 64)` the part in word i+4.
//!
//! Batches are pipelined in two steps. Lines are first asked for into L2 for a whole run of keys
//! (`prefetch`), while the run before is still being worked on; within a run, a line is asked for
//! into L1 some keys before its use. The few miss buffers of L1 are what limits a processor that
//! prefetches straight into it: two steps are twice as fast (measured).

pub(crate) mod scalar;
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod x86;

use crate::digest::Digest;
use crate::plan::Plan;
use crate::sync::AtomicU64;
#[cfg(loom)]
use crate::sync::Ordering;

/// What the kernels must know of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Blocks of all ranges.
    pub blocks: u64,
    /// Ranges of equally many blocks; both lines of a key are in one range.
    pub ranges: u64,
    /// Blocks of a range.
    pub range_blocks: u64,
    /// Lines of a key: 1 or 2.
    pub lines: u32,
    /// Rounds of four probes in each line: 1 to 4.
    pub rounds: u32,
}

impl Geometry {
    pub(crate) fn new(plan: &Plan) -> Geometry {
        let (blocks, ranges) = (plan.blocks(), plan.ranges());
        Geometry {
            blocks,
            ranges,
            range_blocks: blocks / ranges,
            lines: plan.lines(),
            rounds: plan.rounds(),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.blocks as usize * 64
    }

    /// The block that holds a key's first line: one multiply-shift over all blocks.
    #[inline(always)]
    pub(crate) fn first_block(&self, digest: Digest) -> u64 {
        digest.pick(self.blocks).0
    }

    /// The block that holds a key's second line: another one of the first line's range.
    #[inline(always)]
    pub(crate) fn second_block(&self, digest: Digest) -> u64 {
        let (range, rest) = digest.pick(self.ranges);
        let (first, _) = rest.pick(self.range_blocks);
        let draw = Digest { place: scalar::fold(digest.print, SECOND_LINE), print: 0 };
        let step = 1 + draw.pick(self.range_blocks - 1).0;
        let second = if first + step < self.range_blocks {
            first + step
        } else {
            first + step - self.range_blocks
        };
        range * self.range_blocks + second
    }
}

/// Fractional digits of pi, for the words of the digest that are derived from `print`.
pub(crate) const SECOND_LINE: u64 = 0x243f_6a88_85a3_08d3;
/// As above. Word 0 is `print` itself.
pub(crate) const WORDS: [u64; 4] =
    [0, 0x1319_8a2e_0370_7344 | 1, 0xa409_3822_299f_31d0 | 1, 0x082e_fa98_ec4e_6c89];

/// Tests one key. The pointer is to the first of `geometry.bytes()` readable bytes.
type ContainsOne = unsafe fn(*const u8, &Geometry, Digest) -> bool;
/// Tests as many keys as there are digests, and as there must be answers.
type ContainsRun = unsafe fn(*const u8, &Geometry, &[Digest], &mut [bool]);
/// Sets one key's bits and returns how many were not set before.
type InsertOne = unsafe fn(*mut u8, &Geometry, Digest) -> u32;
/// Sets the bits of as many keys as there are digests, says which changed any, and returns how many
/// bits were not set before.
type InsertRun = unsafe fn(*mut u8, &Geometry, &[Digest], &mut [bool]) -> u64;

/// One implementation of the four operations, for one shape and instruction set. The functions that
/// read come twice: the racing ones may run while other threads write the same words atomically.
pub(crate) struct Kernel {
    pub name: &'static str,
    contains_one: ContainsOne,
    contains_run: ContainsRun,
    insert_one: InsertOne,
    insert_run: InsertRun,
    racing_contains_one: ContainsOne,
    racing_contains_run: ContainsRun,
}

impl Kernel {
    /// The fastest kernel that this processor runs.
    pub(crate) fn select(geometry: &Geometry) -> &'static Kernel {
        Kernel::available(geometry)[0]
    }

    /// Every kernel that this processor runs for this shape, fastest first. The last is the scalar
    /// one, which runs everywhere.
    pub(crate) fn available(geometry: &Geometry) -> Vec<&'static Kernel> {
        debug_assert!((1..=2).contains(&geometry.lines) && (1..=4).contains(&geometry.rounds));
        let mut kernels = Vec::new();
        #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
        kernels.extend(x86::available(geometry));
        kernels.push(&scalar::KERNEL);
        kernels
    }

    #[inline(always)]
    pub(crate) fn contains(&self, bytes: &[u8], geometry: &Geometry, digest: Digest) -> bool {
        debug_assert_eq!(bytes.len(), geometry.bytes());
        // SAFETY: `bytes` has the length that the geometry asks for (checked when the filter was
        // made), and `available` gave out only kernels that this processor runs.
        unsafe { (self.contains_one)(bytes.as_ptr(), geometry, digest) }
    }

    pub(crate) fn contains_all(
        &self,
        bytes: &[u8],
        geometry: &Geometry,
        digests: &[Digest],
        found: &mut [bool],
    ) {
        assert!(bytes.len() == geometry.bytes() && digests.len() == found.len());
        // SAFETY: lengths as just checked; otherwise as in `contains`.
        unsafe { (self.contains_run)(bytes.as_ptr(), geometry, digests, found) }
    }

    #[inline(always)]
    pub(crate) fn insert(&self, bytes: &mut [u8], geometry: &Geometry, digest: Digest) -> u32 {
        debug_assert_eq!(bytes.len(), geometry.bytes());
        // SAFETY: as in `contains`; `bytes` is ours to write.
        unsafe { (self.insert_one)(bytes.as_mut_ptr(), geometry, digest) }
    }

    pub(crate) fn insert_all(
        &self,
        bytes: &mut [u8],
        geometry: &Geometry,
        digests: &[Digest],
        new: &mut [bool],
    ) -> u64 {
        assert!(bytes.len() == geometry.bytes() && digests.len() == new.len());
        // SAFETY: lengths as just checked; otherwise as in `insert`.
        unsafe { (self.insert_run)(bytes.as_mut_ptr(), geometry, digests, new) }
    }
}

/// Reading while other threads write: words are loaded atomically, or by vector loads in assembly.
impl Kernel {
    #[cfg(not(loom))]
    pub(crate) fn racing_contains(
        &self,
        words: &[AtomicU64],
        geometry: &Geometry,
        digest: Digest,
    ) -> bool {
        debug_assert_eq!(words.len() * 8, geometry.bytes());
        // SAFETY: the length is right (checked when the filter was made), the words are aligned, and
        // others change them only atomically, which is what the racing functions allow for.
        unsafe { (self.racing_contains_one)(words.as_ptr().cast(), geometry, digest) }
    }

    #[cfg(not(loom))]
    pub(crate) fn racing_contains_all(
        &self,
        words: &[AtomicU64],
        geometry: &Geometry,
        digests: &[Digest],
        found: &mut [bool],
    ) {
        assert!(words.len() * 8 == geometry.bytes() && digests.len() == found.len());
        // SAFETY: lengths as just checked; otherwise as in `racing_contains`.
        unsafe { (self.racing_contains_run)(words.as_ptr().cast(), geometry, digests, found) }
    }

    #[cfg(loom)]
    pub(crate) fn racing_contains(
        &self,
        words: &[AtomicU64],
        geometry: &Geometry,
        digest: Digest,
    ) -> bool {
        scalar::contains(|at| u64::from_le(words[at].load(Ordering::Relaxed)), geometry, digest)
    }

    #[cfg(loom)]
    pub(crate) fn racing_contains_all(
        &self,
        words: &[AtomicU64],
        geometry: &Geometry,
        digests: &[Digest],
        found: &mut [bool],
    ) {
        for (digest, found) in digests.iter().zip(found) {
            *found = self.racing_contains(words, geometry, *digest);
        }
    }
}

/// How far ahead of its use within a run a line is asked for into L1. It covers a load from L2 many
/// times over and stays within the miss buffers; 8 to 32 measured alike.
pub(crate) const NEAR: usize = 16;

/// Which cache a prefetch is for.
#[derive(Clone, Copy)]
pub(crate) enum Towards {
    /// L2, long before the use.
    Far,
    /// L1, shortly before the use, to read.
    Near,
    /// L1, shortly before the use, to write.
    NearToWrite,
}

/// Asks for the cache line at `at`, which need not be a valid address: a prefetch never faults.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8, towards: Towards) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint, valid for any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match towards {
            Towards::Far => _mm_prefetch::<_MM_HINT_T1>(at.cast()),
            Towards::Near => _mm_prefetch::<_MM_HINT_T0>(at.cast()),
            Towards::NearToWrite => _mm_prefetch::<_MM_HINT_ET0>(at.cast()),
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (at, towards);
}

/// Asks for the lines of a run of keys, long before they are used.
pub(crate) fn prefetch_run(base: *const u8, geometry: &Geometry, digests: &[Digest]) {
    for digest in digests {
        prefetch(base.wrapping_add(geometry.first_block(*digest) as usize * 64), Towards::Far);
        if geometry.lines == 2 {
            prefetch(base.wrapping_add(geometry.second_block(*digest) as usize * 64), Towards::Far);
        }
    }
}
