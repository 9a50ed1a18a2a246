//! The Bloom filter: m bits, k probes anywhere.
//!
//! **Idea.** A key sets k bits of m, chosen by its digest; a query tests them. If one is not set the
//! key was never inserted. Of all filters that take keys one at a time it is the simplest, and the
//! one that everybody's formulas are about: m = -n ln p / (ln 2)^2, k = (m/n) ln 2.
//!
//! **Probes.** Many filters take probe i at (a + i b) mod m. In a small filter only about m^2 k such
//! sequences exist, and two keys share one far too often: RedisBloom at capacity 100 and rate 10^-6
//! measures 60 times too high. Here each probe is a fresh draw from both halves of the digest, one
//! 128-bit multiplication each (the generator is wyrand's step with the place mixed in):
//!
//!   x = print + (i+1) * STEP,  draw = fold(x, x ^ place),  position = draw * m / 2^64
//!
//! where `fold` xors the two halves of the 128-bit product.
//!
//! **Layout.** Bit b is bit b % 64 of little-endian word b / 64.
//!
//! **Cost.** A hit waits for k cache lines, a miss for about two. Batches overlap the waits.
//! **When not.** If time matters more than 5 to 15% of the bits, use blocked.
//!
//! Source: Bloom, "Space/time trade-offs in hash coding with allowable errors", CACM 1970.

mod plan;
mod row;

use alloc::string::String;
use alloc::vec::Vec;
use core::{fmt, iter};

use crate::digest::Digest;
use crate::error::Result;
use crate::estimate::Estimate;
use crate::kernels::scalar::fold;
use crate::kernels::{FITS_IN_L2, Run, Towards, prefetch};
use crate::kind::Kind;
use crate::membership::Membership;
use crate::plan::Plan;
use crate::profile::{Slice, Spread, slices_of};
use crate::state::{Array, ArrayKind, Intersecting, Positioned, Removable, State};
use crate::storage::Bits;
use crate::sync::{AtomicU64, Ordering};
pub use plan::MAX_CLASSIC_PROBES;
pub(crate) use row::ROW;

/// A Bloom filter with its probes anywhere in the bits.
pub struct Classic {
    plan: Plan,
    draws: Draws,
    pub(crate) bits: Bits,
}

impl fmt::Debug for Classic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::state::debug("Classic", self, f)
    }
}

/// The increment of wyrand.
const STEP: u64 = 0xa076_1d64_78bd_642f;

/// What the positions of a key depend on beside its digest. Kept beside the plan, which asks its
/// kind for its bytes: by a virtual call, which is too long for every run of a batch.
#[derive(Clone, Copy)]
struct Draws {
    bits: u64,
    probes: u32,
    /// Whether batches ask for lines before they use them.
    prefetches: bool,
}

impl Draws {
    fn new(plan: &Plan) -> Draws {
        let prefetches = plan.bytes() > FITS_IN_L2 as u64;
        Draws { bits: plan.bits(), probes: plan.probes(), prefetches }
    }

    /// The positions of a digest's bits.
    ///
    /// The state of the generator counts them as well: a step is odd, so that no state comes twice.
    /// A counter beside it would be four more instructions in a loop of fifteen.
    #[inline]
    fn positions(self, Digest { place, print }: Digest) -> impl Iterator<Item = u64> + use<> {
        let mut state = print;
        let last = print.wrapping_add(STEP.wrapping_mul(u64::from(self.probes)));
        iter::from_fn(move || {
            if state == last {
                return None;
            }
            state = state.wrapping_add(STEP);
            Some(Digest { place: fold(state, state ^ place), print: 0 }.pick(self.bits).0)
        })
    }

    /// Returns whether all bits of a digest are set, of which `word` returns the words.
    #[inline(always)]
    fn all_set(self, digest: Digest, word: impl Fn(usize) -> u64) -> bool {
        self.positions(digest).all(|position| {
            let (at, mask) = word_and_mask(position);
            word(at) & mask != 0
        })
    }

    /// Asks for the lines of a key long before they are used.
    #[inline]
    fn prefetch(self, base: *const u8, digest: Digest) {
        for position in self.positions(digest) {
            prefetch(base.wrapping_add((position / 8) as usize), Towards::Far);
        }
    }

    /// Works through a run while the lines of the next are on their way. One step suffices here: with k
    /// lines a key, a run's lines do not fit into L1 anyway.
    #[inline]
    fn for_each(
        self,
        base: *const u8,
        Run { keys, next }: Run<'_>,
        mut work: impl FnMut(usize, Digest),
    ) {
        let next = if self.prefetches { next } else { &[] };
        for (at, digest) in keys.iter().enumerate() {
            if let Some(far) = next.get(at) {
                self.prefetch(base, *far);
            }
            work(at, *digest);
        }
        // A next run is longer than this one only if this one is empty.
        for far in next.iter().skip(keys.len()) {
            self.prefetch(base, *far);
        }
    }
}

#[inline(always)]
fn word_and_mask(position: u64) -> (usize, u64) {
    ((position / 64) as usize, 1 << (position % 64))
}

impl Classic {
    /// Returns an empty filter. Panics if the plan is for another kind.
    pub fn new(plan: Plan) -> Result<Classic> {
        Ok(Classic::with_bits(plan, Bits::zeroed(plan.bytes())?))
    }

    pub(crate) fn with_bits(plan: Plan, bits: Bits) -> Classic {
        assert_eq!(plan.kind(), Kind::Classic, "a plan for another kind");
        assert_eq!(bits.cells.bytes().len() as u64, plan.bytes());
        Classic { plan, draws: Draws::new(&plan), bits }
    }

    /// Returns the plan it was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns whether the digest may have been inserted: false is certain, true is probable.
    #[inline]
    #[must_use]
    pub fn contains(&self, digest: Digest) -> bool {
        let (words, _) = self.bits.cells.bytes().as_chunks::<8>();
        self.draws.all_set(digest, |at| u64::from_le_bytes(words[at]))
    }

    /// Inserts, and tells whether the digest is certainly new.
    pub fn insert(&mut self, digest: Digest) -> bool {
        self.insert_digest(digest).expect("a filter by itself has memory of its own")
    }
}

impl ArrayKind for Classic {
    fn from_bits(plan: Plan, bits: Bits) -> Classic {
        Classic::with_bits(plan, bits)
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

    fn equals(&self, other: &Classic) -> bool {
        self.bits == other.bits
    }

    fn add_all(&mut self, other: &Classic) -> Result<()> {
        self.bits.unite(&other.bits)
    }

    fn copies(&self, digest: Digest) -> u64 {
        u64::from(self.contains(digest))
    }

    fn count_cells(&self) -> Option<u64> {
        self.bits.recount(self.plan.bits())
    }

    fn fills(&self, slices: usize) -> Vec<Slice> {
        // Probes lie anywhere: a slice sees them one by one.
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

impl Intersecting for Classic {
    fn intersect(&mut self, other: &dyn State) -> Result<()> {
        self.bits.intersect(&other.of::<Classic>().bits)
    }
}

impl Positioned for Classic {
    fn positions(&self, digest: Digest) -> Result<Vec<u64>> {
        Ok(self.draws.positions(digest).collect())
    }

    fn is_set(&self, position: u64) -> bool {
        self.array().is_set(position)
    }
}

impl Membership for Classic {
    #[inline]
    fn contains_digest(&self, digest: Digest) -> bool {
        self.contains(digest)
    }

    #[inline]
    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        let (words, _) = self.bits.cells.bytes_mut()?.as_chunks_mut::<8>();
        let changed = set(self.draws, words, digest);
        self.bits.ones += changed;
        Ok(changed != 0)
    }

    fn prefetch(&self, digests: &[Digest]) {
        self.contains_run(&[], digests, &mut []);
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        let base = self.bits.cells.bytes().as_ptr();
        let run = Run { keys: run, next };
        self.draws.for_each(base, run, |at, digest| found[at] = self.contains(digest));
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        let Classic { draws, bits, .. } = self;
        let bytes = bits.cells.bytes_mut()?;
        let base = bytes.as_ptr();
        let (words, _) = bytes.as_chunks_mut::<8>();
        draws.for_each(base, Run { keys: run, next }, |_, digest| {
            let changed = set(*draws, words, digest);
            bits.ones += changed;
            new.push(changed != 0);
        });
        Ok(())
    }
}

/// Sets the digest's bits and returns how many were not set before.
#[inline]
fn set(draws: Draws, words: &mut [[u8; 8]], digest: Digest) -> u64 {
    let mut changed = 0;
    for position in draws.positions(digest) {
        let (word, mask) = word_and_mask(position);
        let old = u64::from_le_bytes(words[word]);
        words[word] = (old | mask).to_le_bytes();
        changed += u64::from(old & mask == 0);
    }
    changed
}

/// The classic kind on words that many threads use at once.
pub(crate) struct RacingClassic {
    draws: Draws,
}

impl RacingClassic {
    pub(crate) fn new(plan: &Plan) -> RacingClassic {
        RacingClassic { draws: Draws::new(plan) }
    }

    pub(crate) fn contains(&self, words: &[AtomicU64], digest: Digest) -> bool {
        self.draws.all_set(digest, |at| u64::from_le(words[at].load(Ordering::Relaxed)))
    }

    /// Sets the digest's bits and returns how many of them this call has set.
    pub(crate) fn insert(&self, words: &[AtomicU64], digest: Digest) -> u32 {
        let mut changed = 0;
        for position in self.draws.positions(digest) {
            let (word, mask) = word_and_mask(position);
            // A load is cheaper than a locked instruction, and bits are never unset.
            if u64::from_le(words[word].load(Ordering::Relaxed)) & mask == 0 {
                let old = u64::from_le(words[word].fetch_or(mask.to_le(), Ordering::Relaxed));
                changed += u32::from(old & mask == 0);
            }
        }
        changed
    }

    /// Inserts as [`RacingClassic::insert`] does, one by one, and calls `done` with how many bits each set.
    pub(crate) fn insert_run(&self, words: &[AtomicU64], run: Run<'_>, mut done: impl FnMut(u32)) {
        let base = words.as_ptr().cast();
        self.draws.for_each(base, run, |_, digest| done(self.insert(words, digest)));
    }

    pub(crate) fn contains_run(&self, words: &[AtomicU64], run: Run<'_>, found: &mut [bool]) {
        let base = words.as_ptr().cast();
        self.draws.for_each(base, run, |at, digest| found[at] = self.contains(words, digest));
    }
}
