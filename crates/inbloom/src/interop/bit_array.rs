//! The structure that most other programs have: m bits, of which a key has k, anywhere.
//!
//! They differ in how positions follow from a hash: that is a [`Probing`]. All else is written here
//! once: a format that has such an array declares its kind by [`row`].
//!
//! Bits are kept as in our own kinds: bit b is bit b % 64 of little-endian word b / 64. Readers turn
//! words about where a format has them otherwise.

use crate::digest::{Digest, Hasher};
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::kernels::{FITS_IN_L2, Towards, prefetch};
use crate::kind::{Abilities, Kind, Labels};
use crate::kinds::Row;
use crate::math;
use crate::membership::Membership;
use crate::plan::model::{classic_fill, classic_items, classic_rate};
use crate::plan::planner::Planner;
use crate::plan::{BITS_RANGE, MAX_BITS, Plan, PlanBuilder, parameter};
use crate::profile::{Slice, Spread, slices_of};
use crate::state::{Array, ArrayKind, Intersecting, Positioned, Removable, State};
use crate::storage::Bits;

/// The most probes of a key. Programs that take any number need 1075 for the lowest rate that an
/// f64 has; a file that asks for more would only keep its readers busy.
pub(crate) const MAX_PROBES: u32 = 2048;

/// How the positions of a key follow from its digests, in a filter of some bits and probes.
pub(crate) trait Probing: Send + Sync + 'static {
    /// How many digests stand for a key.
    const WIDTH: usize;

    fn new(plan: &Plan) -> Self;

    /// Returns the positions of a key that has these digests.
    fn positions(&self, digests: &[Digest]) -> impl Iterator<Item = u64>;
}

/// The row of a kind that is such an array.
pub(crate) const fn row<P: Probing>(kind: Kind, name: &'static str, hasher: fn() -> Hasher) -> Row {
    Row {
        kind,
        name,
        abilities: Abilities {
            merges: true,
            probes: true,
            undivided: Some("its program knows no shards"),
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
            remedy: "its program decides the sizes; use Filter::for_format",
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
    probing: P,
    bits: Bits,
}

/// Positions that are in flight together: their lines are on their way while others are tested.
const IN_FLIGHT: usize = 512;

#[inline(always)]
fn word_and_mask(position: u64) -> (usize, u64) {
    ((position / 64) as usize, 1 << (position % 64))
}

#[inline(always)]
fn is_set(words: &[[u8; 8]], position: u64) -> bool {
    let (word, mask) = word_and_mask(position);
    u64::from_le_bytes(words[word]) & mask != 0
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

/// Calls `work` for each key of a run with its positions, whose lines were asked for before. A
/// group of keys has its positions computed once, all of them, and then is worked on.
#[inline]
fn in_groups<P: Probing>(
    plan: &Plan,
    probing: &P,
    base: *const u8,
    run: &[Digest],
    mut work: impl FnMut(usize, &[u64]),
) {
    let probes = plan.probes as usize;
    let mut positions = [0; IN_FLIGHT];
    let keys = (IN_FLIGHT / probes).max(1);
    for (number, group) in run.chunks(keys * P::WIDTH).enumerate() {
        let mut end = 0;
        for digests in group.chunks_exact(P::WIDTH) {
            for position in probing.positions(digests) {
                prefetch(base.wrapping_add((position / 8) as usize), Towards::Near);
                positions[end] = position;
                end += 1;
            }
        }
        for (at, positions) in positions[..end].chunks_exact(probes).enumerate() {
            work(number * keys + at, positions);
        }
    }
}

impl<P: Probing> BitArray<P> {
    fn with_bits(plan: Plan, bits: Bits) -> BitArray<P> {
        assert_eq!(bits.cells.bytes().len() as u64, plan.bytes());
        BitArray { plan, probing: P::new(&plan), bits }
    }

    /// Whether it pays to ask for lines before they are used. With very many probes a group would
    /// be less than a key.
    fn is_far(&self) -> bool {
        self.plan.bytes() as usize > FITS_IN_L2 && self.plan.probes as usize <= IN_FLIGHT
    }

    #[inline]
    fn has(&self, digests: &[Digest]) -> bool {
        let (words, _) = self.bits.cells.bytes().as_chunks::<8>();
        self.probing.positions(digests).all(|position| is_set(words, position))
    }
}

/// A call with one digest for a kind in which two stand for a key.
fn takes_pairs(kind: Kind) -> Error {
    let remedy = "its keys have two digests each; give keys, or both digests to insert_digests";
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
        let (words, _) = self.bits.cells.bytes_mut()?.as_chunks_mut::<8>();
        let changed = set(words, self.probing.positions(&[digest]));
        self.bits.ones += changed;
        Ok(changed != 0)
    }

    /// Nothing: a run asks for its own lines, so that each position is computed once.
    fn prefetch(&self, _digests: &[Digest]) {}

    fn contains_run(&self, run: &[Digest], _next: &[Digest], found: &mut [bool]) {
        if !self.is_far() {
            for (digests, found) in run.chunks_exact(P::WIDTH).zip(found) {
                *found = self.has(digests);
            }
            return;
        }
        let bytes = self.bits.cells.bytes();
        let (words, _) = bytes.as_chunks::<8>();
        in_groups(&self.plan, &self.probing, bytes.as_ptr(), run, |at, positions| {
            found[at] = positions.iter().all(|position| is_set(words, *position));
        });
    }

    fn insert_run(&mut self, run: &[Digest], _next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        if !run.len().is_multiple_of(P::WIDTH) {
            return Err(takes_pairs(self.plan.kind()));
        }
        let is_far = self.is_far();
        let BitArray { plan, probing, bits } = self;
        let bytes = bits.cells.bytes_mut()?;
        let base = bytes.as_ptr();
        let (words, _) = bytes.as_chunks_mut::<8>();
        let mut done = |changed: u64| {
            bits.ones += changed;
            new.push(changed != 0);
        };
        if is_far {
            in_groups(plan, probing, base, run, |_, positions| {
                done(set(words, positions.iter().copied()));
            });
        } else {
            for digests in run.chunks_exact(P::WIDTH) {
                done(set(words, probing.positions(digests)));
            }
        }
        Ok(())
    }

    fn contains_digests(&self, digests: &[Digest], found: &mut Vec<bool>) {
        found.clear();
        found.resize(digests.len() / P::WIDTH, false);
        self.contains_run(digests, &[], found);
        // On doubt yes, as above.
        found.resize(digests.len().div_ceil(P::WIDTH), true);
    }

    fn insert_digests(&mut self, digests: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        new.clear();
        new.reserve(digests.len() / P::WIDTH);
        self.insert_run(digests, &[], new)
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
        Ok(self.probing.positions(&[digest]).collect())
    }

    fn is_set(&self, position: u64) -> bool {
        self.array().is_set(position)
    }
}
