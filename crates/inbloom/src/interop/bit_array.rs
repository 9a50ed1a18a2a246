//! The structure that most other programs have: m bits, of which a key has k, anywhere.
//!
//! They differ in how positions follow from a hash: that is a [`Probing`]. All else is written here
//! once: a format that has such an array declares its kind by [`row`].
//!
//! Bits are kept as in our own kinds: bit b is bit b % 64 of little-endian word b / 64. Readers turn
//! words about where a format has them otherwise.

use std::marker::PhantomData;

use crate::digest::{Digest, Hasher};
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::kernels::modulus::Modulus;
use crate::kernels::{FITS_IN_L2, Towards, prefetch};
use crate::kind::{Abilities, Kind, Labels};
use crate::kinds::Row;
use crate::math;
use crate::membership::{Membership, RUN};
use crate::plan::model::{classic_fill, classic_items, classic_rate};
use crate::plan::planner::Planner;
use crate::plan::{BITS_RANGE, MAX_BITS, Plan, PlanBuilder, parameter};
use crate::profile::{Slice, Spread, slices_of};
use crate::state::{Array, ArrayKind, Intersecting, Positioned, Removable, State};
use crate::storage::Bits;

/// The most probes of a key. Programs that take any number need 1075 for the lowest rate that an
/// f64 has; a file that asks for more would only keep its readers busy.
pub(crate) const MAX_PROBES: u32 = 2048;

/// How the positions of a key follow from its digests.
pub(crate) trait Probing: Send + Sync + 'static {
    /// How many digests stand for a key.
    const WIDTH: usize;

    /// Returns the numbers of a key that has these digests, without end. As many as the filter has
    /// probes, modulo its bits, are the positions of the key.
    fn numbers(digests: &[Digest]) -> impl Iterator<Item = u64>;
}

/// The row of a kind that is such an array.
pub(crate) const fn row<P: Probing>(kind: Kind, name: &'static str, hasher: fn() -> Hasher) -> Row {
    Row {
        kind,
        name,
        abilities: Abilities {
            merges: true,
            probes: true,
            undivided: Some("its program has no shards"),
            ..Abilities::NONE
        },
        labels: Labels::BITS,
        planner: &BitArrayPlan,
        hasher,
        new: |plan| Ok(Box::new(BitArray::<P>::with_bits(plan, Bits::zeroed(plan.bytes())?))),
        read: |plan, cells, ones| {
            Ok(Box::new(BitArray::<P>::with_bits(plan, Bits { cells, ones })))
        },
        build: None,
        racing: |_| Ok(None),
    }
}

/// The sizes of such an array: those of a classic filter. Which bits and probes a filter for some
/// keys has, its format decides.
struct BitArrayPlan;

impl Planner for BitArrayPlan {
    fn check(&self, plan: &Plan) -> Result<()> {
        if !(1..=MAX_BITS).contains(&plan.bits) {
            return parameter("bits", plan.bits, BITS_RANGE);
        }
        if !(1..=MAX_PROBES).contains(&plan.probes) {
            return parameter("probes", plan.probes, format_args!("1 to {MAX_PROBES}"));
        }
        if plan.lines != 1 {
            return parameter("lines", plan.lines, "1 in a filter of another program");
        }
        Ok(())
    }

    fn solve(&self, given: &PlanBuilder) -> Result<Plan> {
        Err(Error::Unsupported {
            kind: given.kind,
            verb: "be planned here",
            remedy: "use Filter::for_format, where the other program decides the size",
        })
    }

    fn exact(&self, kind: Kind, bits: u64, probes: u32) -> Result<Plan> {
        Plan { bits, probes, ..Plan::blank(kind) }.half_full()
    }

    fn cache_lines(&self, plan: &Plan) -> u32 {
        plan.probes
    }

    fn rate_at(&self, plan: &Plan, items: f64) -> f64 {
        classic_rate(items, plan.bits as f64, plan.probes)
    }

    fn fill_at(&self, plan: &Plan, items: f64) -> f64 {
        classic_fill(items, plan.bits as f64, plan.probes)
    }

    fn items_at_fill(&self, plan: &Plan, fill: f64) -> (f64, f64) {
        classic_items(fill, plan.bits as f64, plan.probes)
    }

    fn rate_at_fill(&self, plan: &Plan, fill: f64) -> f64 {
        math::powi(fill.min(1.0), plan.probes as i32)
    }
}

/// An array of bits that is probed as another program does.
pub(crate) struct BitArray<P> {
    plan: Plan,
    modulus: Modulus,
    bits: Bits,
    probing: PhantomData<P>,
}

/// Positions of a batch that are worked on together: those of a run of keys with eight probes.
const AT_ONCE: usize = 1024;
/// Probes that are tested before the others of a key are touched. In a filter that is half full three
/// of four keys that are not in it end there.
const FIRST: usize = 2;

#[inline(always)]
fn word_and_mask(position: u64) -> (usize, u64) {
    ((position / 64) as usize, 1 << (position % 64))
}

#[inline(always)]
fn is_set(words: &[[u8; 8]], position: u64) -> bool {
    let (word, mask) = word_and_mask(position);
    u64::from_le_bytes(words[word]) & mask != 0
}

/// Whether the bits at all of these positions are set. Eight are tested without a branch: which
/// one is not set is as good as random, and a wrong guess costs more than eight tests.
#[inline(always)]
fn are_set(words: &[[u8; 8]], positions: &[u64]) -> bool {
    positions.chunks(8).all(|some| some.iter().fold(true, |all, at| all & is_set(words, *at)))
}

/// Sets the bits at these positions and returns how many were not set before.
#[inline(always)]
fn set(words: &mut [[u8; 8]], positions: impl Iterator<Item = u64>) -> u64 {
    let mut changed = 0;
    for position in positions {
        let (word, mask) = word_and_mask(position);
        let old = u64::from_le_bytes(words[word]);
        words[word] = (old | mask).to_le_bytes();
        changed += u64::from(old & mask == 0);
    }
    changed
}

/// Asks for the lines of these positions.
#[inline(always)]
fn ask_for(base: *const u8, positions: &[u64], towards: Towards) {
    for position in positions {
        prefetch(base.wrapping_add((position / 8) as usize), towards);
    }
}

/// Returns the first positions of keys, `count` of each, one key behind the other.
#[inline(always)]
fn positions_of<'a, P: Probing>(
    modulus: &Modulus,
    count: usize,
    digests: &[Digest],
    buffer: &'a mut [u64; AT_ONCE],
) -> &'a [u64] {
    let keys = digests.chunks_exact(P::WIDTH);
    let positions = &mut buffer[..keys.len() * count];
    for (digests, positions) in keys.zip(positions.chunks_exact_mut(count)) {
        for (position, number) in positions.iter_mut().zip(P::numbers(digests)) {
            *position = number;
        }
    }
    modulus.reduce(positions);
    positions
}

impl<P: Probing> BitArray<P> {
    fn with_bits(plan: Plan, bits: Bits) -> BitArray<P> {
        assert_eq!(bits.cells.bytes().len() as u64, plan.bytes());
        BitArray { plan, modulus: Modulus::new(plan.bits()), bits, probing: PhantomData }
    }

    #[inline(always)]
    fn positions(&self, digests: &[Digest]) -> impl Iterator<Item = u64> {
        let numbers = P::numbers(digests).take(self.plan.probes as usize);
        numbers.map(|number| self.modulus.of(number))
    }

    /// Whether it pays to ask for lines before they are used.
    fn is_far(&self) -> bool {
        self.plan.bytes() as usize > FITS_IN_L2
    }

    /// How many digests have their positions computed together. None with so many probes that a key
    /// is better worked on alone.
    fn group(&self) -> Option<usize> {
        let keys = AT_ONCE / self.plan.probes as usize;
        (keys > 0).then_some(keys * P::WIDTH)
    }

    /// Asks for the lines of the first `count` positions of each key.
    fn ask_ahead(&self, digests: &[Digest], count: usize) {
        let base = self.bits.cells.bytes().as_ptr();
        let mut buffer = [0; AT_ONCE];
        for some in digests.chunks(AT_ONCE / count * P::WIDTH) {
            let positions = positions_of::<P>(&self.modulus, count, some, &mut buffer);
            ask_for(base, positions, Towards::Far);
        }
    }

    #[inline]
    fn has(&self, digests: &[Digest]) -> bool {
        let (words, _) = self.bits.cells.bytes().as_chunks::<8>();
        self.positions(digests).all(|position| is_set(words, position))
    }

    /// Sets the bits of one key and returns how many were not set before.
    fn set_key(&mut self, digests: &[Digest]) -> Result<u64> {
        let BitArray { plan, modulus, bits, .. } = self;
        let (words, _) = bits.cells.bytes_mut()?.as_chunks_mut::<8>();
        let numbers = P::numbers(digests).take(plan.probes as usize);
        let changed = set(words, numbers.map(|number| modulus.of(number)));
        bits.ones += changed;
        Ok(changed)
    }

    /// Tests keys in two steps: what is left after the first positions has the lines of the others
    /// asked for, and is tested to the end.
    fn test(&self, digests: &[Digest], found: &mut [bool]) {
        let bytes = self.bits.cells.bytes();
        let (words, _) = bytes.as_chunks::<8>();
        let probes = self.plan.probes as usize;
        let mut buffer = [0; AT_ONCE];
        let positions = positions_of::<P>(&self.modulus, probes, digests, &mut buffer);
        let first = FIRST.min(probes);
        let (mut left, mut count) = ([0; AT_ONCE], 0);
        for (at, (key, found)) in positions.chunks_exact(probes).zip(&mut *found).enumerate() {
            *found = are_set(words, &key[..first]);
            left[count] = at as u16;
            count += usize::from(*found);
        }
        let left = left[..count].iter().map(|at| usize::from(*at));
        let others = |at: usize| &positions[at * probes + first..(at + 1) * probes];
        if self.is_far() {
            left.clone().for_each(|at| ask_for(bytes.as_ptr(), others(at), Towards::Near));
        }
        left.for_each(|at| found[at] = are_set(words, others(at)));
    }
}

/// A call with one digest for a kind in which two stand for a key.
fn takes_pairs(kind: Kind) -> Error {
    let remedy = "give the key, or both of its digests to insert_digests";
    Error::Unsupported { kind, verb: "insert one digest", remedy }
}

impl<P: Probing> Membership for BitArray<P> {
    /// On doubt yes: half of a key's digests cannot tell that it is absent.
    fn contains_digest(&self, digest: Digest) -> bool {
        P::WIDTH != 1 || self.has(&[digest])
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        if P::WIDTH != 1 {
            return Err(takes_pairs(self.plan.kind()));
        }
        Ok(self.set_key(&[digest])? != 0)
    }

    fn prefetch(&self, digests: &[Digest]) {
        if self.is_far() && !digests.is_empty() {
            self.ask_ahead(digests, FIRST.min(self.plan.probes as usize));
        }
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        self.prefetch(next);
        // For one key the room of a group is not worth while.
        let Some(group) = self.group().filter(|_| run.len() > P::WIDTH) else {
            for (digests, found) in run.chunks_exact(P::WIDTH).zip(found) {
                *found = self.has(digests);
            }
            return;
        };
        for (digests, found) in run.chunks(group).zip(found.chunks_mut(group / P::WIDTH)) {
            self.test(digests, found);
        }
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        if !run.len().is_multiple_of(P::WIDTH) {
            return Err(takes_pairs(self.plan.kind()));
        }
        let Some(group) = self.group().filter(|_| run.len() > P::WIDTH || !next.is_empty()) else {
            for digests in run.chunks_exact(P::WIDTH) {
                new.push(self.set_key(digests)? != 0);
            }
            return Ok(());
        };
        let probes = self.plan.probes as usize;
        if self.is_far() && !next.is_empty() {
            self.ask_ahead(next, probes);
        }
        let BitArray { modulus, bits, .. } = self;
        let (words, _) = bits.cells.bytes_mut()?.as_chunks_mut::<8>();
        let mut buffer = [0; AT_ONCE];
        for digests in run.chunks(group) {
            let positions = positions_of::<P>(modulus, probes, digests, &mut buffer);
            for key in positions.chunks_exact(probes) {
                let changed = set(words, key.iter().copied());
                bits.ones += changed;
                new.push(changed != 0);
            }
        }
        Ok(())
    }

    fn contains_digests(&self, digests: &[Digest], found: &mut Vec<bool>) {
        found.clear();
        found.resize(digests.len() / P::WIDTH, false);
        let mut next = digests.chunks(RUN * P::WIDTH);
        let mut run = next.next().unwrap_or_default();
        self.prefetch(run);
        for found in found.chunks_mut(RUN) {
            let after = next.next().unwrap_or_default();
            self.contains_run(run, after, found);
            run = after;
        }
        // On doubt yes, as above.
        found.resize(digests.len().div_ceil(P::WIDTH), true);
    }

    fn insert_digests(&mut self, digests: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        new.clear();
        if !digests.len().is_multiple_of(P::WIDTH) {
            return Err(takes_pairs(self.plan.kind()));
        }
        new.reserve(digests.len() / P::WIDTH);
        let mut runs = digests.chunks(RUN * P::WIDTH).peekable();
        self.insert_run(&[], runs.peek().copied().unwrap_or_default(), new)?;
        while let Some(run) = runs.next() {
            self.insert_run(run, runs.peek().copied().unwrap_or_default(), new)?;
        }
        Ok(())
    }
}

impl<P: Probing> ArrayKind for BitArray<P> {
    fn from_bits(plan: Plan, bits: Bits) -> BitArray<P> {
        BitArray::with_bits(plan, bits)
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

    fn equals(&self, other: &BitArray<P>) -> bool {
        self.bits == other.bits
    }

    fn add_all(&mut self, other: &BitArray<P>) -> Result<()> {
        self.bits.unite(&other.bits)
    }

    fn copies(&self, digest: Digest) -> u64 {
        u64::from(self.contains_digest(digest))
    }

    fn count_cells(&self) -> Option<u64> {
        self.bits.recount(self.plan.bits())
    }

    fn fills(&self, slices: usize) -> Vec<Slice> {
        slices_of(&self.bits.counts(self.plan.bits(), slices), Spread::Probes(1.0))
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

impl<P: Probing> Intersecting for BitArray<P> {
    fn intersect(&mut self, other: &dyn State) -> Result<()> {
        self.bits.intersect(&other.of::<BitArray<P>>().bits)
    }
}

impl<P: Probing> Positioned for BitArray<P> {
    fn positions(&self, digest: Digest) -> Result<Vec<u64>> {
        if P::WIDTH != 1 {
            return Err(takes_pairs(self.plan.kind()));
        }
        Ok(self.positions(&[digest]).collect())
    }

    fn is_set(&self, position: u64) -> bool {
        self.array().is_set(position)
    }
}
