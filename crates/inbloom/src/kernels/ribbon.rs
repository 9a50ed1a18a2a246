//! The kernels of the ribbon: where a key's equation is, whether the solution makes it hold, and how
//! equations are eliminated and solved.
//!
//! A solution has r bits for each slot. It is kept in *planes of 16 slots*: for every 16 slots r
//! words of 16 bits, of which word j has column j (bit j) of these slots. A key's 64 coefficients
//! reach over 64 slots, so they touch five groups, or four if they begin with one: 10r bytes, which
//! lie one behind the other. One vector has a word of up to 16 columns. So a query is five loads, each masked by 16
//! of the coefficients, their sum (by xor), and the parity of each word:
//!
//! ```text
//! t = coefficients << (start % 16)                       five pieces of 16 bits, t0 to t4
//! x = group(0) & t0 ^ group(1) & t1 ^ ... ^ group(4) & t4     each piece in all words
//! the key is there if the parity of word j is bit j of its fingerprint, for each of the r columns
//! ```
//!
//! There is no loop over columns, and no branch before the answer. (Planes of 64 slots touch 4.2
//! lines at r = 14 where these touch 3.1, and take two vectors for each 8 columns.)
//!
//! [`scalar`] is the specification. The drivers below, of one query and of a run, are compiled once
//! for each instruction set around its sum, so that a query has no call in it.
//!
//! **A run** asks for the lines of a key some keys before it is looked up. The threshold and the
//! columns of a key are loaded at once: the first layer's answer is computed whether the key was
//! bumped or not. 3% were; they are put on a list without a branch, and the caller looks them up in
//! their later layers when the run is over.
//!
//! Loads take whole vectors, so they reach up to [`OVERREACH`] bytes beyond a layer. Behind the last
//! one there are thresholds and a directory.

#[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri), not(loom)))]
mod aarch64;
mod band;
mod scalar;
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod x86;

use alloc::vec::Vec;

use super::scalar::fold;
use super::{Run, Towards, prefetch};
use crate::digest::Digest;
use crate::storage::Cells;
pub(crate) use band::{Band, Filling, MOST_SLOTS};

/// Slots of a group: the bits of a word of a column.
pub(crate) const GROUP: u64 = 16;
/// Slots of a bucket, which is what a threshold is kept for.
pub(crate) const BUCKET: u64 = 128;
/// Offsets in a bucket below which keys are bumped, by the bucket's threshold. Keys above the
/// middle one are two thirds of all and nearly always fit; those at the lower end compete with the
/// overflow of the bucket before. The numbers were searched for at this load (for 128 slots and 64
/// coefficients).
pub(crate) const LIMITS: [u64; 4] = [128, 36, 14, 0];
/// Bytes behind the columns of a layer that a query may load.
pub(crate) const OVERREACH: usize = 32;
/// The most keys of a run.
pub(crate) const MOST: usize = 128;

/// Fractional digits of pi, after those of `kernels.rs`; the second was made odd.
const MIX: [u64; 3] = [0x4528_21e6_38d0_1377, 0xbe54_66cf_34e9_0c6c | 1, 0xc0ac_29b7_c97c_50dd];

/// Where a key's equation begins in a layer of `starts` places to begin at.
#[inline(always)]
pub(crate) fn start_in(key: u64, layer: u64, starts: u64) -> u64 {
    // In the first layer in the order of the keys: sorting them sorts the equations, and neighbors
    // in a sorted batch of queries are neighbors in memory.
    let place = match layer {
        0 => key,
        _ => fold(key ^ (2 * layer + 1).wrapping_mul(MIX[0]), MIX[1]),
    };
    Digest { place, print: 0 }.pick(starts).0
}

/// What a key asks of the solution in one layer: that the slots from `start` on that `coefficients`
/// chooses add up (by xor) to its fingerprint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Equation {
    pub start: u64,
    /// Bit i is for slot `start + i`. Bit 0 is set.
    pub coefficients: u64,
    /// The fingerprint is the upper bits of this.
    pub mixed: u64,
}

impl Equation {
    /// The equation of a key that is known to begin at `start`.
    #[inline(always)]
    pub(crate) fn at(start: u64, key: u64, layer: u64) -> Equation {
        let mixed = fold(key ^ (2 * layer + 1).wrapping_mul(MIX[1]), MIX[2]);
        Equation { start, coefficients: mixed | 1, mixed: mixed.wrapping_mul(MIX[0]) }
    }

    /// The fingerprint, of `width` bits.
    #[inline(always)]
    pub(crate) fn print(&self, width: u32) -> u32 {
        (self.mixed >> (64 - width)) as u32
    }

    /// The bytes of a layer's columns that the equation reaches: the first, and how many.
    #[inline(always)]
    pub(crate) fn reach(&self, width: u32) -> (usize, usize) {
        let group = self.start / GROUP;
        let groups = (self.start % GROUP + 63) / GROUP + 1;
        let stride = 2 * width as usize;
        (group as usize * stride, groups as usize * stride)
    }

    /// The part of a layer that the equation reaches. The pointer is to the first of its columns.
    #[inline(always)]
    fn window(&self, columns: *const u8, width: u32) -> SlotWindow {
        let (shift, stride) = (self.start % GROUP, 2 * width as usize);
        SlotWindow {
            at: columns.wrapping_add((self.start / GROUP) as usize * stride),
            stride,
            // Where nothing is asked of a fifth group there may be none: the fourth is taken twice.
            last: ((shift + 63) / GROUP) as usize * stride,
            low: self.coefficients << shift,
            high: self.coefficients >> 1 >> (63 - shift),
        }
    }

    /// Whether the fingerprint is the sum, of which bit j is column j; those behind the last
    /// column may be anything.
    #[inline(always)]
    fn is(&self, sum: u64, width: u32) -> bool {
        let unused = 64 - width;
        ((sum << unused) ^ self.mixed) >> unused == 0
    }
}

/// What of the columns is added up: groups of `stride` bytes at `at`, at three times the stride
/// behind it, and at `last`, by the four pieces of `low` and the lowest of `high`.
#[derive(Clone, Copy, Debug)]
struct SlotWindow {
    at: *const u8,
    stride: usize,
    last: usize,
    low: u64,
    high: u64,
}

/// The first layer of a shard, which answers for nearly all of its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstLayer {
    /// Slots at which equations can begin, at least 1.
    pub starts: u64,
    /// The bytes at which its columns and its thresholds begin.
    pub columns: usize,
    pub thresholds: usize,
    pub width: u32,
}

/// What a query is answered from: the first layers of all shards.
///
/// Each lies within the bytes: its columns with [`OVERREACH`] bytes behind them, and a threshold for
/// each of its buckets. Kernels are called only if there is at least one.
///
/// It is there as long as its filter, ready to be used: to gather it anew for each call took a quarter
/// of a single call's instructions.
pub(crate) struct Planes {
    /// The payload of a file, which begins with the columns.
    pub cells: Cells,
    /// A copy, and never a part of a mapped file, so that a lookup touches one random page of that,
    /// or two neighbors: 20 MB for 10^10 keys at 0.01%, a thousandth of the filter.
    pub thresholds: Cells,
    /// At least one.
    pub layers: Vec<FirstLayer>,
}

/// Whether a run asks for lines before they are used. That is a fifth of its instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AsksAhead {
    Yes,
    No,
}

/// Where a key is in the first layer of its shard.
#[derive(Clone, Copy)]
struct LocatedKey<'a> {
    layer: &'a FirstLayer,
    key: u64,
    start: u64,
}

impl Planes {
    #[inline(always)]
    fn locate(&self, digest: Digest) -> LocatedKey<'_> {
        let (shard, rest) = digest.pick(self.layers.len() as u64);
        // SAFETY: one of so many choices is less than they are, and there is at least one.
        let layer = unsafe { self.layers.get_unchecked(shard as usize) };
        LocatedKey { layer, key: rest.place, start: start_in(rest.place, 0, layer.starts) }
    }

    /// Asks for the columns of a key, `SHAPE` vectors of 32 bytes in each group.
    #[inline(always)]
    fn ask_for_columns<const SHAPE: usize>(&self, located: &LocatedKey<'_>) {
        let stride = 2 * located.layer.width as usize;
        let first = located.layer.columns + (located.start / GROUP) as usize * stride;
        let at = self.cells.bytes().as_ptr().wrapping_add(first);
        for line in 0..if SHAPE == 1 { 3 } else { 5 } {
            prefetch(at.wrapping_add(line * 64), Towards::Near);
        }
        prefetch(at.wrapping_add(5 * stride - 1), Towards::Near);
    }

    #[inline(always)]
    fn threshold(&self, located: &LocatedKey<'_>) -> *const u8 {
        let bucket = located.start / BUCKET;
        let byte = located.layer.thresholds + (bucket / 4) as usize;
        self.thresholds.bytes().as_ptr().wrapping_add(byte)
    }

    /// Whether the key was bumped to a later layer.
    #[inline(always)]
    fn is_bumped(&self, located: &LocatedKey<'_>) -> bool {
        // SAFETY: a layer has a threshold for each bucket that a key can begin in.
        is_bumped(unsafe { *self.threshold(located) }, located.start)
    }

    /// The answer of the first layer, which counts if the key was not bumped.
    #[inline(always)]
    fn holds(&self, located: &LocatedKey<'_>, sum: impl Fn(SlotWindow) -> u64) -> bool {
        let equation = Equation::at(located.start, located.key, 0);
        let columns = self.cells.bytes().as_ptr().wrapping_add(located.layer.columns);
        let width = located.layer.width;
        equation.is(sum(equation.window(columns, width)), width)
    }
}

/// Whether keys that begin there are in a later layer, by the byte that has the threshold.
#[inline(always)]
pub(crate) fn is_bumped(thresholds: u8, start: u64) -> bool {
    const PACKED: u32 = LIMITS[0] as u32 | (LIMITS[1] as u32) << 8 | (LIMITS[2] as u32) << 16;
    let threshold = thresholds >> (start / BUCKET % 4 * 2) & 3;
    start % BUCKET < u64::from(PACKED >> (8 * threshold) & 0xff)
}

/// What the first layer says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstAnswer {
    Absent,
    Present,
    /// A later layer knows.
    Bumped,
}

/// Places in a run of the keys that were bumped.
pub(crate) struct BumpedKeys {
    places: [u8; MOST],
    count: usize,
}

impl BumpedKeys {
    pub(crate) fn new() -> BumpedKeys {
        BumpedKeys { places: [0; MOST], count: 0 }
    }

    pub(crate) fn places(&self) -> &[u8] {
        &self.places[..self.count]
    }
}

/// Whether the solution makes an equation hold. The pointer is to the first of the layer's columns.
type Holds = unsafe fn(*const u8, u32, Equation) -> bool;
type RibbonContainsOne = unsafe fn(&Planes, Digest) -> FirstAnswer;
/// Answers for as many keys as the run has, at most [`MOST`], and as there must be answers.
type RibbonContainsRun = unsafe fn(&Planes, Run<'_>, AsksAhead, &mut [bool], &mut BumpedKeys);
/// Solves a band: see [`RibbonKernel::solve`].
type Solve = unsafe fn(&Band, u32, &mut [u8]);

/// One implementation of the operations, for fingerprints of up to 16 or up to 32 bits.
#[derive(Clone, Copy)]
pub(crate) struct RibbonKernel {
    #[cfg_attr(not(test), expect(dead_code, reason = "tests say which one failed"))]
    pub name: &'static str,
    holds: Holds,
    contains_one: RibbonContainsOne,
    contains_run: RibbonContainsRun,
    solve: Solve,
    fill: unsafe fn(Filling<'_>),
}

impl RibbonKernel {
    /// The fastest that this processor runs, for fingerprints of up to this width. All shards of a
    /// filter have this width, or one bit less.
    pub(crate) fn select(width: u32) -> RibbonKernel {
        RibbonKernel::available(width).next().expect("the scalar kernel runs everywhere")
    }

    /// Every kernel that this processor runs, fastest first. The last is the scalar one.
    pub(crate) fn available(width: u32) -> impl Iterator<Item = RibbonKernel> {
        #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
        let vectors = x86::available(width);
        #[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri), not(loom)))]
        let vectors = aarch64::available(width);
        #[cfg(any(
            miri,
            loom,
            not(any(
                target_arch = "x86_64",
                all(target_arch = "aarch64", target_endian = "little")
            ))
        ))]
        let vectors = core::iter::empty();
        vectors.chain([scalar::kernel(width)])
    }

    /// Whether the solution in a layer's columns makes the equation hold. The columns have
    /// [`OVERREACH`] bytes behind them.
    #[inline]
    pub(crate) fn holds(&self, columns: &[u8], width: u32, equation: Equation) -> bool {
        let (first, bytes) = equation.reach(width);
        assert!(first + bytes + OVERREACH <= columns.len(), "an equation within its layer");
        // SAFETY: `available` gave out only kernels that this processor runs. They load no more
        // than was just checked: whole vectors, of which the last begins with the last group.
        unsafe { (self.holds)(columns.as_ptr(), width, equation) }
    }

    /// What the first layer of its shard says of a key.
    #[inline(always)]
    pub(crate) fn contains(&self, planes: &Planes, digest: Digest) -> FirstAnswer {
        debug_assert!(!planes.layers.is_empty(), "a filter has a shard");
        // SAFETY: as in `holds`; every layer lies within the bytes, and there is one (see `Planes`).
        unsafe { (self.contains_one)(planes, digest) }
    }

    /// What the first layers say of a run of keys, and which of them were bumped. Asks for the
    /// lines of the next run.
    pub(crate) fn contains_all(
        &self,
        planes: &Planes,
        run: Run<'_>,
        asks_ahead: AsksAhead,
        found: &mut [bool],
        bumped: &mut BumpedKeys,
    ) {
        assert!(run.keys.len() == found.len() && run.keys.len() <= MOST);
        assert!(!planes.layers.is_empty(), "a filter has a shard");
        // SAFETY: lengths as just checked; otherwise as in `contains`.
        unsafe { (self.contains_run)(planes, run, asks_ahead, found, bumped) }
    }

    /// Solves a band from its last slot to its first: each slot gets the bits that make its
    /// equation hold, and zeros if it has none. There are as many slots as the columns have room for.
    pub(crate) fn solve(&self, band: &Band, width: u32, columns: &mut [u8]) {
        assert!(band.slots().is_multiple_of(GROUP as usize), "whole groups");
        assert_eq!(columns.len(), band.slots() / 8 * width as usize, "columns of as many slots");
        // SAFETY: lengths as just checked; otherwise as in `holds`.
        unsafe { (self.solve)(band, width, columns) }
    }

    /// Brings the equations of a layer's keys into echelon form, as many as fit.
    pub(crate) fn fill(&self, filling: Filling<'_>) {
        filling.check();
        // SAFETY: as in `holds`; the filling was just checked.
        unsafe { (self.fill)(filling) }
    }
}

/// The answer for one key, by this sum of `SHAPE` vectors.
#[inline(always)]
fn contains_one<const SHAPE: usize>(
    planes: &Planes,
    digest: Digest,
    sum: impl Fn(SlotWindow) -> u64,
) -> FirstAnswer {
    let located = planes.locate(digest);
    // Vectors that lie in two lines wait for one after the other. With all lines asked for before, a
    // call takes 44 ns instead of 51 (100 million keys on a Zen 5), and not more if they are near.
    planes.ask_for_columns::<SHAPE>(&located);
    // The processor foresees that the key was not bumped, and goes on before it knows.
    if planes.is_bumped(&located) {
        return FirstAnswer::Bumped;
    }
    if planes.holds(&located, sum) { FirstAnswer::Present } else { FirstAnswer::Absent }
}

/// The answers for a run, by this sum of `SHAPE` vectors.
#[inline(always)]
fn contains_run<const SHAPE: usize>(
    planes: &Planes,
    Run { keys, next }: Run<'_>,
    asks_ahead: AsksAhead,
    found: &mut [bool],
    bumped: &mut BumpedKeys,
    sum: impl Fn(SlotWindow) -> u64,
) {
    let mut count = 0;
    let mut work = |at: usize, located: &LocatedKey<'_>, found: &mut bool| {
        *found = planes.holds(located, &sum);
        // Without a branch: the place is written in any case, and stays if the count goes on. It is
        // below MOST, as there are no more keys.
        bumped.places[count % MOST] = at as u8;
        count += usize::from(planes.is_bumped(located));
    };
    if asks_ahead == AsksAhead::No {
        for (at, (digest, found)) in keys.iter().zip(found).enumerate() {
            work(at, &planes.locate(*digest), found);
        }
        bumped.count = count;
        return;
    }
    let ask_for = |digest: &Digest| {
        let located = planes.locate(*digest);
        prefetch(planes.threshold(&located), Towards::Near);
        planes.ask_for_columns::<SHAPE>(&located);
    };
    // Most of a full run asks for keys of its own, and the end for those of the next.
    let own = keys.get(AHEAD..).unwrap_or_default();
    let mut each = keys.iter().zip(found).enumerate();
    for (later, (at, (digest, found))) in own.iter().zip(&mut each) {
        ask_for(later);
        work(at, &planes.locate(*digest), found);
    }
    for (at, (digest, found)) in each {
        if let Some(later) = next.get(at - own.len()) {
            ask_for(later);
        }
        work(at, &planes.locate(*digest), found);
    }
    next.iter().take(AHEAD).skip(keys.len()).for_each(ask_for);
    bumped.count = count;
}

/// How many keys before its use a key's memory is asked for. It covers a DRAM miss, and the lines of so
/// many keys (6 KiB at r = 14) stay in L1, so that one step suffices. On a Zen 5, r = 14, ns per key
/// at 10 and 100 million keys: 20 ahead takes 5.8 and 13.7, 32 takes 6.3 and 11.3, 48 takes 6.8 and
/// 11.0. A whole run ahead takes 7.4 and 11.4, and 7.2 and 13.2 if first into L2 and then into L1.
const AHEAD: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hasher;

    fn random(number: u64) -> u64 {
        Hasher::default().digest(number.to_le_bytes()).place
    }

    /// Keys whose equations begin at every place of a layer of so many blocks, and a solution of them
    /// by this kernel, with as many bytes behind it as a query may load.
    fn solved(kernel: &RibbonKernel, blocks: u64, width: u32) -> (Vec<u64>, Vec<u8>) {
        let starts = 64 * blocks - 63;
        let keys: Vec<u64> = (0..starts)
            .map(|start| {
                // The first key with this start, and something of its own below.
                let first = ((u128::from(start) << 64).div_ceil(u128::from(starts))) as u64;
                first + (random(start) >> 40)
            })
            .collect();
        assert!((0..).zip(&keys).all(|(start, key)| start_in(*key, 0, starts) == start));
        let mut band = Band::default();
        band.reset(64 * blocks);
        assert!(band.add_all(&keys, 0, starts, width), "one equation for each slot holds");
        let mut columns = vec![0; (8 * blocks * u64::from(width)) as usize];
        kernel.solve(&band, width, &mut columns);
        // Behind the columns there may be anything.
        columns.extend([0xa5; OVERREACH]);
        (keys, columns)
    }

    #[test]
    fn every_kernel_solves_and_answers_like_the_scalar_one() {
        for width in 1..=32 {
            for blocks in [1, 2, 3, 5] {
                let mut solutions = Vec::new();
                for kernel in RibbonKernel::available(width) {
                    let (keys, columns) = solved(&kernel, blocks, width);
                    for (start, key) in (0..).zip(&keys) {
                        let context = format!("{} width {width} slot {start}", kernel.name);
                        let equation = Equation::at(start, *key, 0);
                        assert!(kernel.holds(&columns, width, equation), "{context}");
                        for bit in 64 - width..64 {
                            let other = Equation { mixed: equation.mixed ^ 1 << bit, ..equation };
                            assert!(!kernel.holds(&columns, width, other), "{context}, bit {bit}");
                        }
                        let unused = Equation { mixed: equation.mixed ^ 1, ..equation };
                        assert!(kernel.holds(&columns, width, unused), "{context}");
                    }
                    solutions.push(columns);
                }
                assert!(solutions.windows(2).all(|pair| pair[0] == pair[1]), "width {width}");
            }
        }
    }

    /// The kernel of a width also serves shards that are a bit narrower.
    #[test]
    fn every_kernel_answers_for_a_bit_less() {
        for width in 2..=32 {
            for kernel in RibbonKernel::available(width) {
                let (keys, columns) = solved(&kernel, 2, width - 1);
                for (start, key) in (0..).zip(&keys) {
                    let equation = Equation::at(start, *key, 0);
                    assert!(kernel.holds(&columns, width - 1, equation), "{}", kernel.name);
                }
            }
        }
    }

    fn cells(bytes: &[u8]) -> Cells {
        let mut cells = Cells::zeroed(bytes.len().next_multiple_of(8) as u64).expect("memory");
        cells.bytes_mut().expect("just made")[..bytes.len()].copy_from_slice(bytes);
        cells
    }

    /// Two layers of random bits: any answer may come out, and must come out everywhere.
    #[test]
    fn runs_and_single_calls_answer_like_the_scalar_ones() {
        for width in [1, 7, 8, 14, 16, 17, 24, 32] {
            // One that stays in the nearest caches, and one whose lines are asked for.
            for blocks in [4_u64, 1000] {
                let narrow = width.max(2) - 1;
                let bytes = 8 * blocks * u64::from(narrow + width);
                let columns: Vec<u8> =
                    (0..bytes + OVERREACH as u64).map(|at| random(at) as u8).collect();
                let in_thresholds = (64 * blocks).div_ceil(BUCKET).div_ceil(4);
                let thresholds: Vec<u8> =
                    (0..2 * in_thresholds).map(|at| random(!at) as u8 | 0x55).collect();
                let starts = 64 * blocks - 63;
                let layers = [
                    FirstLayer { starts, columns: 0, thresholds: 0, width: narrow },
                    FirstLayer {
                        starts,
                        columns: (8 * blocks * u64::from(narrow)) as usize,
                        thresholds: in_thresholds as usize,
                        width,
                    },
                ];
                let asks_ahead = if blocks > 4 { AsksAhead::Yes } else { AsksAhead::No };
                let planes = Planes {
                    cells: cells(&columns),
                    thresholds: cells(&thresholds),
                    layers: layers.to_vec(),
                };
                let mut keys: Vec<Digest> = (0..3 * MOST as u64)
                    .map(|key| Digest { place: random(key), print: 0 })
                    .collect();
                // The ends of both layers.
                for (at, place) in [0, (1 << 63) - 1, 1 << 63, u64::MAX].into_iter().enumerate() {
                    keys[at].place = place;
                }
                let scalar = scalar::kernel(width);
                let expected: Vec<FirstAnswer> =
                    keys.iter().map(|key| scalar.contains(&planes, *key)).collect();
                for kernel in RibbonKernel::available(width) {
                    let context = format!("{} width {width} blocks {blocks}", kernel.name);
                    for (key, expected) in keys.iter().zip(&expected) {
                        assert_eq!(kernel.contains(&planes, *key), *expected, "{context}");
                    }
                    for length in (0..=MOST).rev() {
                        let (run, next) = (&keys[..length], &keys[length..][..MOST]);
                        let (mut found, mut bumped) = (vec![false; length], BumpedKeys::new());
                        let run = Run { keys: run, next };
                        kernel.contains_all(&planes, run, asks_ahead, &mut found, &mut bumped);
                        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                            let is_bumped = bumped.places().contains(&(at as u8));
                            assert_eq!(is_bumped, *expected == FirstAnswer::Bumped, "{context}");
                            let present = *expected == FirstAnswer::Present;
                            assert!(is_bumped || *found == present, "{context}");
                        }
                    }
                }
            }
        }
    }

    /// Layers of one stretch and of several, and one whose keys are all in one bucket.
    #[test]
    fn every_kernel_fills_a_layer_in_the_same_way() {
        for (count, shift) in [(0, 0), (40, 0), (1000, 0), (3000, 0), (80_000, 0), (3000, 40)] {
            let mut keys: Vec<u64> = (0..count).map(|key| random(key) >> shift).collect();
            keys.sort_unstable();
            let blocks = (count * 97 / 100).div_ceil(64).max(2);
            let starts = 64 * blocks - 63;
            let mut outcomes = Vec::new();
            for kernel in RibbonKernel::available(14) {
                let (mut band, mut bumped) = (Band::default(), Vec::new());
                band.reset(64 * blocks);
                let mut thresholds = vec![0; starts.div_ceil(BUCKET * 32) as usize];
                kernel.fill(Filling {
                    keys: &keys,
                    layer: 0,
                    starts,
                    width: 14,
                    band: &mut band,
                    thresholds: &mut thresholds,
                    bumped: &mut bumped,
                });
                let coefficients = band.groups().flat_map(|(coefficients, _)| coefficients);
                let taken = coefficients.filter(|coefficients| **coefficients != 0).count();
                assert_eq!(taken + bumped.len(), keys.len(), "each key is in a slot, or bumped");
                if shift == 0 {
                    assert!(bumped.len() <= keys.len() / 20 + 100, "{} bumped", bumped.len());
                }
                let mut columns = vec![0; 8 * 14 * blocks as usize];
                kernel.solve(&band, 14, &mut columns);
                columns.extend([0; OVERREACH]);
                let is_in: std::collections::HashSet<u64> = bumped.iter().copied().collect();
                for key in &keys {
                    let start = start_in(*key, 0, starts);
                    let bucket = start / BUCKET;
                    let byte = thresholds[(bucket / 32) as usize].to_le_bytes();
                    let is_bumped = is_bumped(byte[(bucket / 4 % 8) as usize], start);
                    assert_eq!(is_bumped, is_in.contains(key), "key {key} of {count}");
                    let equation = Equation::at(start, *key, 0);
                    assert!(is_bumped || kernel.holds(&columns, 14, equation), "key {key}");
                }
                outcomes.push((thresholds, columns));
            }
            assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]), "{count} keys");
        }
    }
}
