//! The kernels of the blocked and counting kinds: how a key's bits are found in its line, set, and
//! tested, or its counters raised.
//!
//! [`scalar`] is the specification, in plain Rust and readable; the vector kernels give the same
//! answers bit for bit, which the tests assert over every shape and instruction set at hand. The
//! kernel is chosen once, when a filter is made: binaries are built for the default target.
//!
//! Layout of a line (why this one: ARCHITECTURE.md, "The block layout"): 512 bits as eight 64-bit
//! little-endian words. A *full round* sets one bit in each word, from 6 bits of the digest each. A
//! *half round* sets one bit in each of the four pairs of words (i, i+4), from 7 bits each. A line
//! has 4 probes (a half round), 8 (a full one), 12 (both) or 16 (two full). Bit 511, the highest of
//! word 7, is reserved and never set. Positions count from the top of a word, and in word 7 from
//! one below it, because then one right shift of a constant does three things: it makes the bit,
//! drops the position that has no room, and in a half round drops the bit from the word of the pair
//! that does not get it. None of this takes an extra instruction.
//!
//! Apart from these are the kernels of other structures and programs: [`ribbon`], `split_block.rs`, and
//! `modulus.rs`, `murmur3.rs` and `xxh64.rs` with `eight.rs`.
//!
//! Counting has the same lines with counters for bits: 64 / w to a word, from the lowest bits up,
//! none reserved. An index takes log2(64 / w) bits of the digest, and one more in a half round. With
//! w = 3 a word has 21 counters and a spare bit, which is zero, and an index is scaled from 16 bits of
//! the digest. All that is said below of bits holds for counters: one is set when it is above zero.
//!
//! Batches are pipelined in two steps. Lines are first prefetched into L2, during the work on the
//! run before. Within a run, a line is prefetched into L1 some keys before its use. Prefetching
//! straight into L1 is limited by its few miss buffers: 5.1 ns a line, where two steps take 4.0 (20
//! MB, huge pages; bench/record, layouts).

// Without std the processor's features cannot be queried. The compiler's target decides.
#[cfg(all(target_arch = "x86_64", not(feature = "std")))]
macro_rules! is_x86_feature_detected {
    ($feature:tt) => {
        cfg!(target_feature = $feature)
    };
}

#[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri), not(loom)))]
mod aarch64;

mod counters;
#[cfg(all(feature = "std", target_arch = "x86_64", not(miri), not(loom)))]
mod eight;
pub(crate) mod lanes;
pub(crate) mod lock;
#[cfg(feature = "std")]
pub(crate) mod modulus;
#[cfg(feature = "std")]
pub(crate) mod murmur3;
pub(crate) mod ribbon;
pub(crate) mod scalar;
#[cfg(feature = "std")]
pub(crate) mod split_block;
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod x86;
#[cfg(feature = "std")]
pub(crate) mod xxh64;

use crate::digest::Digest;
use crate::plan::lines::ranges;
use crate::plan::{Plan, Rounds};
use crate::sync::AtomicU64;
#[cfg(loom)]
use crate::sync::Ordering;
use alloc::boxed::Box;
pub(crate) use counters::Counters;
use lock::SharedLine;

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
    /// The probes of a key in each of its lines.
    pub rounds: Rounds,
    /// What a word is divided into: bits for blocked, which are counters of width 1.
    pub counters: Counters,
}

impl Geometry {
    pub(crate) fn new(plan: &Plan) -> Geometry {
        Geometry::from_parts(plan.blocks(), plan.lines(), plan.rounds(), plan.width())
    }

    /// `width` is the bits of a counter: 1 for blocked; 2, 3, 4 or 8 for counting.
    pub(crate) fn from_parts(blocks: u64, lines: u32, rounds: Rounds, width: u32) -> Geometry {
        let ranges = if lines == 2 { ranges(blocks) } else { 1 };
        let counters = Counters::new(width);
        Geometry { blocks, ranges, range_blocks: blocks / ranges, lines, rounds, counters }
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

    /// Asks for a key's lines, of which it has `LINES`.
    #[inline(always)]
    pub(crate) fn prefetch<const LINES: u32>(
        &self,
        base: *const u8,
        digest: Digest,
        towards: Towards,
    ) {
        prefetch(base.wrapping_add(self.first_block(digest) as usize * 64), towards);
        if LINES == 2 {
            prefetch(base.wrapping_add(self.second_block(digest) as usize * 64), towards);
        }
    }
}

/// The bits that counters can have.
#[cfg(any(test, not(any(miri, loom))))]
const WIDTHS: [u32; 5] = [1, 2, 3, 4, 8];

/// Returns the row of a width in the tables of vector kernels.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
fn row(width: u32) -> usize {
    WIDTHS.iter().position(|other| *other == width).expect("counters of a width that there is")
}

/// Fractional digits of pi, for the words of the digest that are derived from `print`.
pub(crate) const SECOND_LINE: u64 = 0x243f_6a88_85a3_08d3;
/// As above. Word 0 is `print` itself.
pub(crate) const WORDS: [u64; 4] =
    [0, 0x1319_8a2e_0370_7344 | 1, 0xa409_3822_299f_31d0 | 1, 0x082e_fa98_ec4e_6c89];

/// Tests one key. The pointer is to the first of `geometry.bytes()` readable bytes.
type ContainsOne = unsafe fn(*const u8, &Geometry, Digest) -> bool;
/// Tests as many keys as the run has, and as there must be answers, and asks for the next run's lines.
type ContainsRun = unsafe fn(*const u8, &Geometry, Run<'_>, &mut [bool]);
/// Sets one key's bits and returns how many were not set before.
type InsertOne = unsafe fn(*mut u8, &Geometry, Digest) -> u32;
/// Sets one key's bits, and returns whether any of them was not set before. To count them as
/// [`InsertOne`] does is most of the instructions of an insert.
type SetOne = unsafe fn(*mut u8, &Geometry, Digest) -> bool;
/// Sets the bits of as many keys as the run has, and as there must be answers, says which changed any,
/// and returns how many bits were not set before. Asks for the next run's lines.
type InsertRun = unsafe fn(*mut u8, &Geometry, Run<'_>, &mut [bool]) -> u64;

/// Sets one key's bits while others do the same, with its lines locked, and returns how many were
/// not set before. There are `geometry.blocks` lines.
type RacingInsertOne = unsafe fn(&[SharedLine], &Geometry, Digest) -> u32;
/// As [`InsertRun`], each key like [`RacingInsertOne`].
type RacingInsertRun = unsafe fn(&[SharedLine], &Geometry, Run<'_>, &mut [bool]) -> u64;

/// One implementation of the operations, for one shape and instruction set. They come twice:
/// the racing ones may run while other threads write the same words atomically. (Inserting is for
/// bits only: lines of counters have no lock.)
pub(crate) struct Kernel {
    pub name: &'static str,
    contains_one: ContainsOne,
    contains_run: ContainsRun,
    insert_one: InsertOne,
    set_one: SetOne,
    insert_run: InsertRun,
    #[cfg_attr(loom, expect(dead_code, reason = "loom's atomics are read one by one, below"))]
    racing_contains_one: ContainsOne,
    #[cfg_attr(loom, expect(dead_code, reason = "loom's atomics are read one by one, below"))]
    racing_contains_run: ContainsRun,
    racing_insert_one: RacingInsertOne,
    racing_insert_run: RacingInsertRun,
}

impl Kernel {
    /// The fastest kernel that this processor runs.
    pub(crate) fn select(geometry: &Geometry) -> &'static Kernel {
        Kernel::available(geometry).next().expect("the scalar kernel runs everywhere")
    }

    /// Every kernel that this processor runs for this shape, fastest first. The last is the scalar
    /// one.
    pub(crate) fn available(geometry: &Geometry) -> impl Iterator<Item = &'static Kernel> + use<> {
        #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
        let vectors = x86::available(geometry);
        #[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri), not(loom)))]
        let vectors = aarch64::available(geometry);
        #[cfg(any(
            miri,
            loom,
            not(any(
                target_arch = "x86_64",
                all(target_arch = "aarch64", target_endian = "little")
            ))
        ))]
        let vectors = core::iter::empty();
        vectors.chain([scalar::kernel(geometry.counters.width)])
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
        run: Run<'_>,
        found: &mut [bool],
    ) {
        assert!(bytes.len() == geometry.bytes() && run.keys.len() == found.len());
        // SAFETY: lengths as just checked; otherwise as in `contains`.
        unsafe { (self.contains_run)(bytes.as_ptr(), geometry, run, found) }
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
        run: Run<'_>,
        new: &mut [bool],
    ) -> u64 {
        assert!(bytes.len() == geometry.bytes() && run.keys.len() == new.len());
        // SAFETY: lengths as just checked; otherwise as in `insert`.
        unsafe { (self.insert_run)(bytes.as_mut_ptr(), geometry, run, new) }
    }
}

/// What single calls on a filter need beside its bytes: the functions of its kernel, and the geometry in
/// memory of its own.
///
/// A loop over such calls keeps all of it in registers. A kernel that gets a reference into the filter
/// might change the rest of the filter, as far as the compiler knows: then each call reads again where
/// the bytes are, whether they may be written, and which function it is. In cache that is a sixth of an
/// insert (bench/record, single).
pub(crate) struct SingleCalls {
    geometry: Box<Geometry>,
    contains: ContainsOne,
    set: SetOne,
}

impl SingleCalls {
    pub(crate) fn new(kernel: &Kernel, geometry: Geometry) -> SingleCalls {
        let Kernel { contains_one: contains, set_one: set, .. } = *kernel;
        SingleCalls { geometry: Box::new(geometry), contains, set }
    }

    #[inline(always)]
    pub(crate) fn contains(&self, bytes: &[u8], digest: Digest) -> bool {
        debug_assert_eq!(bytes.len(), self.geometry.bytes());
        // SAFETY: as in `Kernel::contains`.
        unsafe { (self.contains)(bytes.as_ptr(), &self.geometry, digest) }
    }

    #[inline(always)]
    pub(crate) fn set(&self, bytes: &mut [u8], digest: Digest) -> bool {
        debug_assert_eq!(bytes.len(), self.geometry.bytes());
        // SAFETY: as in `Kernel::insert`.
        unsafe { (self.set)(bytes.as_mut_ptr(), &self.geometry, digest) }
    }
}

/// Reading while other threads write: words are loaded atomically, or by vector loads in assembly.
impl Kernel {
    #[cfg(not(loom))]
    #[inline(always)]
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
        run: Run<'_>,
        found: &mut [bool],
    ) {
        assert!(words.len() * 8 == geometry.bytes() && run.keys.len() == found.len());
        // SAFETY: lengths as just checked; otherwise as in `racing_contains`.
        unsafe { (self.racing_contains_run)(words.as_ptr().cast(), geometry, run, found) }
    }

    #[cfg(loom)]
    pub(crate) fn racing_contains(
        &self,
        words: &[AtomicU64],
        geometry: &Geometry,
        digest: Digest,
    ) -> bool {
        let load = |at: usize| u64::from_le(words[at].load(Ordering::Relaxed));
        match geometry.counters.width {
            1 => scalar::contains::<false>(load, geometry, digest),
            _ => scalar::contains::<true>(load, geometry, digest),
        }
    }

    #[cfg(loom)]
    pub(crate) fn racing_contains_all(
        &self,
        words: &[AtomicU64],
        geometry: &Geometry,
        run: Run<'_>,
        found: &mut [bool],
    ) {
        for (digest, found) in run.keys.iter().zip(found) {
            *found = self.racing_contains(words, geometry, *digest);
        }
    }
}

/// Writing while other threads read and write: a key's lines are locked (see [`lock`]).
impl Kernel {
    #[inline(always)]
    pub(crate) fn racing_insert(
        &self,
        words: &[AtomicU64],
        geometry: &Geometry,
        digest: Digest,
    ) -> u32 {
        debug_assert_eq!((words.len() * 8, geometry.counters.width), (geometry.bytes(), 1));
        // SAFETY: `available` gave out only kernels that this processor runs; the length and the
        // width were checked when the filter was made.
        unsafe { (self.racing_insert_one)(words.as_chunks().0, geometry, digest) }
    }

    pub(crate) fn racing_insert_all(
        &self,
        words: &[AtomicU64],
        geometry: &Geometry,
        run: Run<'_>,
        new: &mut [bool],
    ) -> u64 {
        assert!(words.len() * 8 == geometry.bytes() && run.keys.len() == new.len());
        debug_assert_eq!(geometry.counters.width, 1, "counters have no lock");
        // SAFETY: lengths as just checked; otherwise as in `racing_insert`.
        unsafe { (self.racing_insert_run)(words.as_chunks().0, geometry, run, new) }
    }
}

/// A run of keys to work on, and the next one, whose lines are to be asked for meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub keys: &'a [Digest],
    pub next: &'a [Digest],
}

impl Run<'_> {
    /// Calls `work` with the place and digest of every key, in order, and asks before each for one
    /// line of the next run into L2, and into L1 for the line of a key a little later in this run.
    ///
    /// The two are interleaved with the work so that memory and processor are busy at once: all
    /// prefetches first and then all work measured 1.5 times as slow.
    #[inline(always)]
    pub(crate) fn for_each<const LINES: u32>(
        self,
        base: *const u8,
        geometry: &Geometry,
        towards: Towards,
        mut work: impl FnMut(usize, Digest),
    ) {
        let Run { keys, next } = self;
        if geometry.bytes() <= FITS_IN_L2 {
            for (at, digest) in keys.iter().enumerate() {
                work(at, *digest);
            }
            return;
        }
        // Most of a full run, without a test on the way.
        let nearer = keys.get(NEAR..).unwrap_or_default();
        for ((at, digest), (near, far)) in keys.iter().enumerate().zip(nearer.iter().zip(next)) {
            geometry.prefetch::<LINES>(base, *far, Towards::Far);
            geometry.prefetch::<LINES>(base, *near, towards);
            work(at, *digest);
        }
        // The rest of it, which has less to ask for ahead.
        let done = nearer.len().min(next.len());
        for (at, digest) in keys.iter().enumerate().skip(done) {
            if let Some(far) = next.get(at) {
                geometry.prefetch::<LINES>(base, *far, Towards::Far);
            }
            if let Some(near) = keys.get(at + NEAR) {
                geometry.prefetch::<LINES>(base, *near, towards);
            }
            work(at, *digest);
        }
        // A next run is longer than this one only if this one is empty.
        for far in next.iter().skip(keys.len()) {
            geometry.prefetch::<LINES>(base, *far, Towards::Far);
        }
    }

    /// As [`Run::for_each`], for those who learn of the lines only now.
    pub(crate) fn for_each_line(
        self,
        base: *const u8,
        geometry: &Geometry,
        towards: Towards,
        work: impl FnMut(usize, Digest),
    ) {
        match geometry.lines {
            1 => self.for_each::<1>(base, geometry, towards, work),
            _ => self.for_each::<2>(base, geometry, towards, work),
        }
    }
}

/// How far ahead of its use within a run a line is asked for into L1. It covers a load from L2 many
/// times over and stays within the miss buffers.
const NEAR: usize = 16;

/// Up to this size prefetching costs more than it saves: the filter stays in L2 by itself. Measured
/// with 512 KiB of L2; at 276 KiB a needless prefetch costs a query 0.4 ns and an insert 2.1. Not
/// measured on ARM.
pub(crate) const FITS_IN_L2: usize = 512 << 10;

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
        use core::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match towards {
            Towards::Far => _mm_prefetch::<_MM_HINT_T1>(at.cast()),
            Towards::Near => _mm_prefetch::<_MM_HINT_T0>(at.cast()),
            Towards::NearToWrite => _mm_prefetch::<_MM_HINT_ET0>(at.cast()),
        }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch is a hint, valid for any address. (Rust's function for it is not stable.)
    unsafe {
        use core::arch::asm;
        let at = at.addr();
        match towards {
            Towards::Far => {
                asm!("prfm pldl2keep, [{}]", in(reg) at, options(nomem, nostack, preserves_flags));
            }
            Towards::Near => {
                asm!("prfm pldl1keep, [{}]", in(reg) at, options(nomem, nostack, preserves_flags));
            }
            Towards::NearToWrite => {
                asm!("prfm pstl1keep, [{}]", in(reg) at, options(nomem, nostack, preserves_flags));
            }
        }
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = (at, towards);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::kind::Kind;

    /// Every shape, on filters of one block, a few, and enough for two ranges.
    fn geometries() -> Vec<Geometry> {
        let mut geometries = Vec::new();
        for width in [2, 3, 4, 8] {
            for per_line in Rounds::PROBES {
                for (blocks, lines) in [(1, 1), (7, 1), (2, 2), (20_000, 2)] {
                    let rounds = Rounds::of(per_line);
                    geometries.push(Geometry::from_parts(blocks, lines, rounds, width));
                }
            }
        }
        for lines in [1, 2] {
            for per_line in Rounds::PROBES {
                for blocks in [lines, 7, 20_000] {
                    let bits = u64::from(blocks) * 512;
                    let bytes = bits / 8;
                    let plan = Plan::builder(Kind::Blocked).items(blocks.into()).bytes(bytes);
                    let plan = plan.lines(lines).probes(lines * per_line).build().unwrap();
                    assert_eq!((plan.bits(), plan.lines()), (bits, lines));
                    geometries.push(Geometry::new(&plan));
                }
            }
        }
        geometries
    }

    fn digests(count: u64) -> Vec<Digest> {
        (0..count).map(|i| crate::Hasher::default().digest(i.to_le_bytes())).collect()
    }

    /// Whether this processor hashes eight keys at once of which this is the longest.
    #[cfg(feature = "std")]
    pub(crate) fn takes_eight(longest: usize) -> bool {
        #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
        return eight::is_available() && longest <= 64;
        #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
        {
            let _ = longest;
            false
        }
    }

    /// Eight keys, and the length of the longest: every length up to 200 in every position among
    /// others of mixed lengths, and eight of every length.
    #[cfg(feature = "std")]
    pub(crate) fn runs_of_eight() -> impl Iterator<Item = ([Vec<u8>; 8], usize)> {
        use crate::splitmix::finalize as mix;
        let alike = (0..=200).map(|length| [length; 8]);
        let among = (0..=200).flat_map(|length| {
            (0..8).map(move |place| {
                core::array::from_fn(|at| {
                    let other = mix(length << 8 | place << 4 | at as u64) % 65;
                    if at as u64 == place { length } else { other }
                })
            })
        });
        alike.chain(among).zip(0_u64..).map(|(lengths, run)| {
            let key = |at: usize| {
                let seed = mix(run << 8 | at as u64);
                (0..lengths[at]).map(|byte| mix(seed ^ byte) as u8).collect()
            };
            let longest = lengths.iter().fold(0, |longest, length| longest.max(*length));
            (core::array::from_fn(key), longest as usize)
        })
    }

    #[test]
    fn every_kernel_gives_the_scalar_answers_bit_for_bit() {
        let keys = digests(3000);
        for geometry in geometries() {
            let mut kernels: Vec<_> = Kernel::available(&geometry).collect();
            let scalar = kernels.pop().unwrap();
            assert_eq!(scalar.name, "scalar");
            let (members, others) = keys.split_at(20.min(geometry.blocks as usize * 8));
            let mut expected = vec![0; geometry.bytes()];
            let expected_changes: Vec<u32> =
                members.iter().map(|key| scalar.insert(&mut expected, &geometry, *key)).collect();
            let expected_found: Vec<bool> =
                others.iter().map(|key| scalar.contains(&expected, &geometry, *key)).collect();
            for kernel in kernels {
                let context = format!("{} {geometry:?}", kernel.name);
                let mut one_by_one = vec![0; geometry.bytes()];
                for (key, changes) in members.iter().zip(&expected_changes) {
                    assert_eq!(
                        kernel.insert(&mut one_by_one, &geometry, *key),
                        *changes,
                        "{context}"
                    );
                    assert!(kernel.contains(&one_by_one, &geometry, *key), "{context}");
                }
                assert!(one_by_one == expected, "{context}");
                let mut set = vec![0; geometry.bytes()];
                let calls = SingleCalls::new(kernel, geometry);
                for (key, changes) in members.iter().zip(&expected_changes) {
                    let is_new = calls.set(&mut set, *key);
                    assert_eq!(is_new, *changes != 0, "{context}");
                    assert!(calls.contains(&set, *key), "{context}");
                }
                assert!(set == expected, "{context}");
                let mut at_once = vec![0; geometry.bytes()];
                let mut new = vec![false; members.len()];
                let run = Run { keys: members, next: others };
                let total = kernel.insert_all(&mut at_once, &geometry, run, &mut new);
                assert_eq!(total, expected_changes.iter().map(|n| u64::from(*n)).sum::<u64>());
                assert!(new.iter().zip(&expected_changes).all(|(new, n)| *new == (*n != 0)));
                assert!(at_once == expected, "{context}");
                let mut found = vec![false; others.len()];
                let run = Run { keys: others, next: members };
                kernel.contains_all(&at_once, &geometry, run, &mut found);
                assert_eq!(found, expected_found, "{context}");
                for (key, found) in others.iter().zip(&expected_found) {
                    assert_eq!(kernel.contains(&at_once, &geometry, *key), *found, "{context}");
                }
            }
        }
    }

    #[test]
    #[cfg(not(loom))]
    fn racing_reads_answer_like_plain_ones() {
        let keys = digests(2000);
        for geometry in geometries() {
            for kernel in Kernel::available(&geometry) {
                let mut bytes = vec![0; geometry.bytes()];
                for key in &keys[..geometry.blocks.min(500) as usize] {
                    kernel.insert(&mut bytes, &geometry, *key);
                }
                let words: Vec<AtomicU64> = crate::storage::words(&bytes)
                    .map(|word| AtomicU64::new(word.to_le()))
                    .collect();
                let mut found = vec![false; keys.len()];
                let run = Run { keys: &keys, next: &[] };
                kernel.racing_contains_all(&words, &geometry, run, &mut found);
                for (key, found) in keys.iter().zip(found) {
                    assert_eq!(kernel.contains(&bytes, &geometry, *key), found);
                    assert_eq!(kernel.racing_contains(&words, &geometry, *key), found);
                }
            }
        }
    }

    /// Shared filters keep their locks there.
    #[test]
    #[cfg(not(loom))]
    fn no_key_sets_the_reserved_bit_or_asks_for_it() {
        let mut keys = digests(2000);
        // Positions at both ends of every word.
        keys.extend(
            [0, u64::MAX, 63 << 42, 62 << 42, 127 << 21, 64 << 21]
                .map(|print| Digest { place: keys[0].place, print }),
        );
        for geometry in geometries().into_iter().filter(|geometry| geometry.counters.width == 1) {
            for kernel in Kernel::available(&geometry) {
                let context = format!("{} {geometry:?}", kernel.name);
                let mut bytes = vec![0; geometry.bytes()];
                for key in &keys[keys.len() - (geometry.blocks as usize * 4).min(500)..] {
                    kernel.insert(&mut bytes, &geometry, *key);
                }
                assert!(bytes.iter().skip(63).step_by(64).all(|last| last >> 7 == 0), "{context}");
                let mut locked = bytes.clone();
                locked.iter_mut().skip(63).step_by(64).for_each(|last| *last |= 0x80);
                let words: Vec<AtomicU64> = crate::storage::words(&locked)
                    .map(|word| AtomicU64::new(word.to_le()))
                    .collect();
                let run = Run { keys: &keys, next: &[] };
                let (mut found, mut racing) = (vec![false; keys.len()], vec![false; keys.len()]);
                kernel.contains_all(&locked, &geometry, run, &mut found);
                kernel.racing_contains_all(&words, &geometry, run, &mut racing);
                for (at, key) in keys.iter().enumerate() {
                    let expected = kernel.contains(&bytes, &geometry, *key);
                    assert_eq!(kernel.contains(&locked, &geometry, *key), expected, "{context}");
                    assert_eq!(kernel.racing_contains(&words, &geometry, *key), expected);
                    assert_eq!((found[at], racing[at]), (expected, expected), "{context}");
                }
            }
        }
    }

    #[test]
    #[cfg(not(loom))]
    fn racing_inserts_set_the_bits_of_plain_ones_and_leave_no_lock() {
        use crate::sync::Ordering;
        let keys = digests(3000);
        for geometry in geometries().into_iter().filter(|geometry| geometry.counters.width == 1) {
            for kernel in Kernel::available(&geometry) {
                let context = format!("{} {geometry:?}", kernel.name);
                let keys = &keys[..(geometry.blocks as usize * 8).min(3000)];
                let mut bytes = vec![0; geometry.bytes()];
                let zeros = || (0..geometry.blocks * 8).map(|_| AtomicU64::new(0)).collect();
                let (one_by_one, at_once): (Vec<_>, Vec<_>) = (zeros(), zeros());
                let mut expected = Vec::new();
                for key in keys {
                    let changed = kernel.insert(&mut bytes, &geometry, *key);
                    assert_eq!(kernel.racing_insert(&one_by_one, &geometry, *key), changed);
                    assert_eq!(kernel.racing_insert(&one_by_one, &geometry, *key), 0, "{context}");
                    expected.push(changed);
                }
                let mut new = vec![false; keys.len()];
                let run = Run { keys, next: &[] };
                let total = kernel.racing_insert_all(&at_once, &geometry, run, &mut new);
                assert_eq!(total, expected.iter().map(|bits| u64::from(*bits)).sum::<u64>());
                assert!(new.iter().zip(expected).all(|(new, bits)| *new == (bits != 0)));
                for words in [one_by_one, at_once] {
                    let words = words.iter().map(|word| u64::from_le(word.load(Ordering::Relaxed)));
                    assert!(words.eq(crate::storage::words(&bytes)), "{context}");
                }
            }
        }
    }

    /// The layout that files depend on, worked out by hand from the specification.
    #[test]
    fn a_known_key_sets_known_bits() {
        let block = |probes, print: u64| {
            let plan = Plan::exact(Kind::Blocked, 512, probes).unwrap();
            let digest = Digest { place: 0, print };
            scalar::touches(&Geometry::new(&plan), digest).next().unwrap().mask
        };
        // A full round: 6 bits a word, from the lowest; positions from the top.
        assert_eq!(block(8, 0), [TOP, TOP, TOP, TOP, TOP, TOP, TOP, TOP >> 1]);
        assert_eq!(block(8, 5 | 63 << 6 | 62 << 42), [TOP >> 5, 1, TOP, TOP, TOP, TOP, TOP, 1]);
        // Word 7 has no room for position 63.
        assert_eq!(block(8, 63 << 42)[7], 0);
        // A half round: 7 bits a pair; from 64 on in the second word.
        assert_eq!(block(4, 5 | 70 << 7), [TOP >> 5, 0, TOP, TOP, 0, TOP >> 6, 0, 0]);
        assert_eq!(block(4, 127 << 21), [TOP, TOP, TOP, 0, 0, 0, 0, 0]);
    }

    const TOP: u64 = 1 << 63;

    #[test]
    fn the_second_line_is_another_block_of_the_same_range() {
        for geometry in geometries().into_iter().filter(|geometry| geometry.lines == 2) {
            let mut steps = std::collections::HashSet::new();
            for key in digests(5000) {
                let (first, second) = (geometry.first_block(key), geometry.second_block(key));
                assert_ne!(first, second);
                assert_eq!(first / geometry.range_blocks, second / geometry.range_blocks);
                steps.insert((second + geometry.blocks - first) % geometry.range_blocks);
            }
            assert!(steps.len() as u64 >= (geometry.range_blocks - 1).min(3000), "{geometry:?}");
        }
    }
}
