//! A Bloom filter that can forget: counters instead of bits, a key's all in one cache line.
//!
//! **Idea.** A Bloom filter cannot remove a key, since the bits it would unset may be other keys'
//! too. Make every bit a small counter: an insert raises the key's counters by one, a removal
//! lowers them, and a query asks whether all of them are above zero. What is left after a removal
//! is what would be there had the key never come.
//!
//! **REMOVE ONLY WHAT WAS INSERTED.** A key that was never inserted, but is claimed by accident (at
//! the rate of the filter), has counters that belong to others. To remove it lowers those, **and
//! then keys that are in the filter are denied.** The same goes for removing a key more often than
//! it was inserted. This is the only way to a false negative, and no filter can notice: who is not
//! sure that a key is in must ask whoever keeps the keys.
//!
//! **Layout.** The lines of [`blocked`](super::blocked), with nothing reserved: a line is eight
//! little-endian words, and a word is 64 / w counters of w bits (2, 4 or 8), counter 0 in the
//! lowest bits. A full round raises one counter in each word, a half round one in each pair of
//! words (i, i+4). An index takes log2(64 / w) bits of the digest's word for the round, from the
//! lowest; in a half round one more, the highest, which chooses the word of the pair.
//!
//! ```text
//! w = 4, a full round of the bits ...0011 0101:   word 0: counter 5 (bits 20-23)
//!                                                 word 1: counter 3 (bits 12-15), ...
//! ```
//!
//! A key's counters are a set: two of its probes that fall on one counter raise it once, and lower
//! it once.
//!
//! **Saturation.** A counter that has reached its maximum stays there: nobody knows how often it
//! was raised, and to lower it could deny a key. It costs a little rate for good, never a false
//! negative. At half of the counters above zero a share of 2 * 10^-15 of them is at the maximum of
//! 4 bits, and 3% at that of 2 bits. A key that is inserted again and again gets there by itself.
//!
//! **Cost.** The time of blocked, and more than w times its bits, since a line holds w times fewer
//! cells and so fills less evenly. With w = 4, bits per key at 10%, 1%, 0.1%, 0.01%:
//!
//! | one line | two lines | blocked |
//! |---|---|---|
//! | 20.1, 45.7, 77.6, 128 | 23.5, 40.2, 62.3, 91.4 | 4.9, 10.1, 15.8, 22.2 |
//!
//! **When not.** If keys are only added use blocked. To know how often a key came use a map: counts
//! here end at the maximum, and others' are in them.
//!
//! Sources: Fan, Cao, Almeida, Broder, "Summary cache: a scalable wide-area web cache sharing
//! protocol", IEEE/ACM Transactions on Networking 8(3), 2000 (counters, and why 4 bits); Putze,
//! Sanders, Singler, "Cache-, hash- and space-efficient Bloom filters", 2007 (blocks).

mod plan;
mod row;

use std::borrow::Cow;
use std::fmt;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::kernels::scalar::{Touch, touched_counters};
use crate::kernels::{Counters, Geometry, Kernel, Run, Towards};
use crate::kind::Kind;
use crate::membership::Membership;
use crate::paging::Paging;
use crate::plan::Plan;
use crate::plan::lines::BLOCK_BITS;
use crate::profile::{Slice, Spread, slices_of};
use crate::state::{Array, Clocked, Intersecting, Measured, Positioned, Removable, State};
use crate::storage::{Bits, Order, words};
use crate::sync::{AtomicU64, Ordering};
pub(crate) use row::ROW;

/// A Bloom filter with counters, one cache line per key or two. Keys can be removed again.
///
/// **Remove only what was inserted**: to remove a key that was never inserted, but is claimed by
/// accident, takes others away with it.
pub struct Counting {
    plan: Plan,
    geometry: Geometry,
    kernel: &'static Kernel,
    /// The counters; `ones` is the number of those above zero.
    pub(crate) bits: Bits,
}

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::state::debug("Counting", self, f)
    }
}

impl Counting {
    /// An empty filter. Panics if the plan is for another kind.
    pub fn new(plan: Plan) -> Result<Counting> {
        Ok(Counting::with_bits(plan, Bits::zeroed(plan.bytes())?))
    }

    pub(crate) fn with_bits(plan: Plan, bits: Bits) -> Counting {
        assert_eq!(plan.kind(), Kind::Counting, "a plan for another kind");
        let geometry = Geometry::new(&plan);
        assert_eq!(bits.cells.bytes().len(), geometry.bytes());
        Counting { plan, geometry, kernel: Kernel::select(&geometry), bits }
    }

    /// The plan it was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether the digest may be in: false is certain, true is probable.
    #[inline]
    #[must_use]
    pub fn contains(&self, digest: Digest) -> bool {
        self.kernel.contains(self.bits.cells.bytes(), &self.geometry, digest)
    }

    /// Inserts, and tells whether the digest is certainly new. Inserted again it counts again, and
    /// has to be removed as often.
    #[inline]
    pub fn insert(&mut self, digest: Digest) -> bool {
        self.try_insert(digest).expect("a filter by itself has memory of its own")
    }

    /// Inserts, and tells whether the digest is certainly new; None if the cells are read-only.
    #[inline]
    pub(crate) fn try_insert(&mut self, digest: Digest) -> Option<bool> {
        let raised = self.kernel.insert(self.bits.cells.writable()?, &self.geometry, digest);
        self.bits.ones += u64::from(raised);
        Some(raised != 0)
    }

    /// Takes the digest out once. `Ok(false)`: it was certainly not in, and nothing has changed.
    /// `Ok(true)`: its counters were lowered, but for those at their maximum, which stay.
    ///
    /// **Remove only what was inserted, and no more often.** "Probably in" is not enough: to remove
    /// a key that is claimed by accident lowers the counters of other keys, which are then denied.
    pub fn remove(&mut self, digest: Digest) -> Result<bool> {
        let Counting { geometry, kernel, bits, .. } = self;
        let bytes = bits.cells.bytes_mut()?;
        if !kernel.contains(bytes, geometry, digest) {
            return Ok(false);
        }
        let (words, counters) = (bytes.as_chunks_mut::<8>().0, geometry.counters);
        for touch in touched_counters(geometry, digest) {
            let line = &mut words[touch.block as usize * 8..][..8];
            for (word, which) in line.iter_mut().zip(touch.mask) {
                let after = counters.lower(u64::from_le_bytes(*word), which);
                let zeroed = which & !counters.above_zero(after);
                // Not below zero, even if the header of a damaged file has counted wrong.
                bits.ones = bits.ones.saturating_sub(zeroed.count_ones().into());
                *word = after.to_le_bytes();
            }
        }
        Ok(true)
    }

    /// How often the digest is in, at most: the smallest of its counters. Never less than it was
    /// inserted and not removed, except that it ends at [`Counting::max_count`], which means "that
    /// often or more". Other keys on the same counters can make it more.
    #[must_use]
    pub fn count(&self, digest: Digest) -> u32 {
        let (words, _) = self.bits.cells.bytes().as_chunks::<8>();
        smallest(&self.geometry, digest, |at| u64::from_le_bytes(words[at]))
    }

    /// Where a counter ends: 3, 15 or 255.
    #[must_use]
    pub fn max_count(&self) -> u32 {
        self.geometry.counters.maximum() as u32
    }

    /// The number of counters at their maximum, which no removal lowers: reads everything.
    #[must_use]
    pub fn saturated(&self) -> u64 {
        self.count_marks(Counters::at_maximum)
    }

    fn count_marks(&self, marks: impl Fn(Counters, u64) -> u64) -> u64 {
        let words = words(self.bits.cells.bytes());
        words.map(|word| u64::from(marks(self.geometry.counters, word).count_ones())).sum()
    }

    fn combine(
        &mut self,
        other: &Counting,
        operation: impl Fn(Counters, u64, u64) -> u64,
    ) -> Result<()> {
        let counters = self.geometry.counters;
        let operation = |here, there| operation(counters, here, there);
        self.bits.combine(&other.bits, operation, |word| counters.above_zero(word))
    }

    fn array(&self) -> Array<'_> {
        Array { plan: &self.plan, bits: &self.bits }
    }
}

impl State for Counting {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn measured(&self) -> &dyn Measured {
        self
    }

    fn clear(&mut self) -> Result<()> {
        self.bits.clear()
    }

    fn copy(&self) -> Result<Box<dyn State>> {
        Ok(Box::new(Counting::with_bits(self.plan, self.bits.copy()?)))
    }

    fn same(&self, other: &dyn State) -> bool {
        self.bits == other.of::<Counting>().bits
    }

    /// Counts add up, and end at the maximum: a key that is in both has to be removed from the union as
    /// often as from both.
    fn unite(&mut self, other: &dyn State) -> Result<()> {
        self.combine(other.of(), Counters::add)
    }

    fn count(&self, digest: Digest) -> u64 {
        self.count(digest).into()
    }

    fn check(&self, _digest: Digest) -> Result<()> {
        Ok(())
    }

    fn into_bits(self: Box<Self>) -> Option<Bits> {
        Some(self.bits)
    }

    fn expect(&self, order: Order) {
        self.bits.cells.expect(order);
    }

    /// Its pages come in as they are touched.
    fn set_paging(&mut self, _paging: Paging) {}

    fn removable(&mut self) -> Option<&mut dyn Removable> {
        Some(self)
    }

    fn intersecting(&mut self) -> Option<&mut dyn Intersecting> {
        Some(self)
    }

    fn clocked(&mut self) -> Option<&mut dyn Clocked> {
        None
    }

    fn positioned(&self) -> Option<&dyn Positioned> {
        Some(self)
    }
}

impl Measured for Counting {
    fn occupied(&self) -> u64 {
        self.bits.ones
    }

    fn fill(&self) -> f64 {
        self.array().fill()
    }

    fn recount(&self) -> Option<u64> {
        Some(self.count_marks(Counters::above_zero))
    }

    fn profile(&self, slices: usize) -> Vec<Slice> {
        let (counters, cells) = (self.geometry.counters, BLOCK_BITS / u64::from(self.plan.width()));
        let counts = self.bits.block_counts(slices, cells, |word| counters.above_zero(word));
        slices_of(&counts, Spread::in_lines(&self.plan, counts.len()))
    }

    fn bytes(&self) -> u64 {
        self.plan.bytes()
    }

    fn memory(&self) -> u64 {
        self.array().memory()
    }

    fn rate(&self) -> f64 {
        self.array().rate()
    }

    fn estimate(&self, _inserted: Option<u64>) -> Estimate {
        self.array().estimate()
    }

    fn room(&self) -> u64 {
        self.array().room()
    }

    fn next_growth(&self) -> Option<u64> {
        None
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let (saturated, all) = (self.saturated(), self.plan.cells());
        vec![
            ("counters", format!("{all} of {} bits", self.plan.width())),
            (
                "saturated",
                format!("{saturated} at their maximum, {}, which stay", self.max_count()),
            ),
        ]
    }

    fn bits(&self) -> Option<&Bits> {
        Some(&self.bits)
    }

    fn payload(&self) -> Cow<'_, [u8]> {
        self.array().payload()
    }

    fn is_read_only(&self) -> bool {
        self.array().is_read_only()
    }
}

impl Removable for Counting {
    fn remove(&mut self, digest: Digest) -> Result<bool> {
        self.remove(digest)
    }
}

impl Intersecting for Counting {
    /// The smaller count of each counter, so that a key which is in both, a times and b times, is found
    /// and can be removed min(a, b) times.
    fn intersect(&mut self, other: &dyn State) -> Result<()> {
        self.combine(other.of(), Counters::min)
    }
}

impl Positioned for Counting {
    /// In ascending order within a line; counters are numbered through.
    fn positions(&self, digest: Digest) -> Result<Vec<u64>> {
        let (width, per_word) = (self.plan.width(), u64::from(64 / self.plan.width()));
        let mut positions = Vec::new();
        for touch in touched_counters(&self.geometry, digest) {
            for (word, marks) in touch.mask.into_iter().enumerate() {
                let first = (touch.block * 8 + word as u64) * per_word;
                let marked = (0..per_word).filter(|i| marks >> (i * u64::from(width)) & 1 == 1);
                positions.extend(marked.map(|i| first + i));
            }
        }
        Ok(positions)
    }

    fn is_set(&self, position: u64) -> bool {
        self.array().is_set(position)
    }
}

impl Membership for Counting {
    #[inline]
    fn contains_digest(&self, digest: Digest) -> bool {
        self.contains(digest)
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        self.try_insert(digest).ok_or(Error::ReadOnly)
    }

    fn prefetch(&self, digests: &[Digest]) {
        self.contains_run(&[], digests, &mut []);
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

/// The smallest of a digest's counters, where `load` gives the word at an index.
fn smallest(geometry: &Geometry, digest: Digest, load: impl Fn(usize) -> u64) -> u32 {
    let counts = touched_counters(geometry, digest).flat_map(|touch| {
        let words = (touch.block as usize * 8..).zip(touch.mask);
        words.map(|(at, which)| geometry.counters.smallest(load(at), which))
    });
    counts.min().expect("a key has a line, and a line eight words")
}

/// The counting kind on words that many threads use at once.
///
/// Every counter is changed by compare-and-exchange of its word, so that no raise or lowering is
/// lost. At any instant a counter is at its maximum, or at least the number of keys that have
/// raised it and not begun to lower it: a key that is in is found.
pub(crate) struct RacingCounting {
    geometry: Geometry,
    kernel: &'static Kernel,
}

impl RacingCounting {
    pub(crate) fn new(plan: &Plan) -> RacingCounting {
        let geometry = Geometry::new(plan);
        RacingCounting { geometry, kernel: Kernel::select(&geometry) }
    }

    pub(crate) fn contains(&self, words: &[AtomicU64], digest: Digest) -> bool {
        self.kernel.racing_contains(words, &self.geometry, digest)
    }

    pub(crate) fn count(&self, words: &[AtomicU64], digest: Digest) -> u64 {
        let load = |at: usize| u64::from_le(words[at].load(Ordering::Relaxed));
        smallest(&self.geometry, digest, load).into()
    }

    /// A mark for each counter of a word that is above zero.
    pub(crate) fn above_zero(&self, word: u64) -> u64 {
        self.geometry.counters.above_zero(word)
    }

    /// Raises the digest's counters and returns how many of them this call has raised from zero: if
    /// any, the digest is certainly new.
    pub(crate) fn insert(&self, words: &[AtomicU64], digest: Digest) -> u32 {
        touched_counters(&self.geometry, digest).map(|touch| self.raise(words, touch)).sum()
    }

    /// Takes the digest out once, as [`Counting::remove`] does. Returns whether it was in, and by
    /// how much the number of counters above zero has changed, which it may even if it was not.
    ///
    /// A key that is in keeps each of its counters above zero until its own removal lowers it, so
    /// that this removal goes through, and lowers only what the key itself has raised: no other key
    /// is hurt. If a counter is found at zero half way, the key was not in, or another thread has
    /// been taking out its last occurrence at the same time. What was lowered so far belongs to
    /// others and is raised again; until then those others may be denied, for an instant. So
    /// whoever lets several threads remove the same key makes them take turns.
    pub(crate) fn remove(&self, words: &[AtomicU64], digest: Digest) -> (bool, i32) {
        if self.contains(words, digest) { self.lower_all(words, digest) } else { (false, 0) }
    }

    /// Lowers all of the digest's counters, or none if one is found at zero.
    fn lower_all(&self, words: &[AtomicU64], digest: Digest) -> (bool, i32) {
        let (mut lowered, mut change) = ([[0; 8]; 2], 0);
        for (line, touch) in touched_counters(&self.geometry, digest).enumerate() {
            let words_of_line = &words[touch.block as usize * 8..][..8];
            for (i, (word, which)) in words_of_line.iter().zip(touch.mask).enumerate() {
                let Some((these, zeroed)) = self.lower(word, which) else {
                    let touches = touched_counters(&self.geometry, digest).zip(lowered);
                    let undo = touches.map(|(touch, mask)| Touch { mask, ..touch });
                    let raised: u32 = undo.map(|touch| self.raise(words, touch)).sum();
                    return (false, change + raised as i32);
                };
                lowered[line][i] = these;
                change -= zeroed as i32;
            }
        }
        (true, change)
    }

    /// Raises the marked counters of a line and returns how many were zero before.
    fn raise(&self, words: &[AtomicU64], touch: Touch) -> u32 {
        let counters = self.geometry.counters;
        let line = words[touch.block as usize * 8..][..8].iter().zip(touch.mask);
        line.map(|(word, which)| {
            let old = update(word, |old| counters.raise(old, which));
            (which & !counters.above_zero(old)).count_ones()
        })
        .sum()
    }

    /// Lowers the marked counters of a word at once, and returns the marks of those that were not
    /// at their maximum, and how many reached zero; None, with nothing changed, if one is zero
    /// already.
    fn lower(&self, word: &AtomicU64, which: u64) -> Option<(u64, u32)> {
        let counters = self.geometry.counters;
        let any_zero = |word| which & !counters.above_zero(word) != 0;
        let old = update(word, |old| if any_zero(old) { old } else { counters.lower(old, which) });
        if any_zero(old) {
            return None;
        }
        let zeroed = which & !counters.above_zero(counters.lower(old, which));
        Some((which & !counters.at_maximum(old), zeroed.count_ones()))
    }

    /// Inserts as [`RacingCounting::insert`] does, one by one, and calls `done` with what each returned.
    pub(crate) fn insert_run(&self, words: &[AtomicU64], run: Run<'_>, mut done: impl FnMut(u32)) {
        let base = words.as_ptr().cast();
        run.for_each_line(base, &self.geometry, Towards::NearToWrite, |_, digest| {
            done(self.insert(words, digest));
        });
    }

    pub(crate) fn contains_run(&self, words: &[AtomicU64], run: Run<'_>, found: &mut [bool]) {
        self.kernel.racing_contains_all(words, &self.geometry, run, found);
    }
}

/// Changes a word at once and returns what it was before. Relaxed, as everywhere in shared filters:
/// counters carry no other data.
#[inline]
fn update(word: &AtomicU64, operation: impl Fn(u64) -> u64) -> u64 {
    let (Ok(old) | Err(old)) = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |stored| {
        let old = u64::from_le(stored);
        let new = operation(old);
        (new != old).then_some(new.to_le()) // No locked instruction for nothing.
    });
    u64::from_le(old)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::digest::Hasher;
    use crate::plan::Rounds;
    use crate::plan::model::Lines;

    const WIDTHS: [u32; 3] = [2, 4, 8];

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Shape {
        blocks: u64,
        lines: u32,
        probes: u32,
        width: u32,
    }

    impl Shape {
        fn plan(self) -> Plan {
            let Shape { blocks, lines, probes, width } = self;
            Plan { bits: blocks * 512, lines, probes, width, ..Plan::blank(Kind::Counting) }
        }

        fn geometry(self) -> Geometry {
            Geometry::new(&self.plan())
        }
    }

    fn empty(shape: Shape) -> Counting {
        Counting::new(shape.plan()).unwrap()
    }

    fn copy(filter: &Counting) -> Counting {
        Counting::with_bits(filter.plan, filter.bits.copy().unwrap())
    }

    fn one_line(blocks: u64, width: u32) -> Shape {
        Shape { blocks, lines: 1, probes: 8, width }
    }

    /// Every width, with 4 to 16 probes in one line and in two.
    fn shapes(blocks: u64) -> impl Iterator<Item = Shape> {
        WIDTHS.into_iter().flat_map(move |width| {
            [1, 2].into_iter().flat_map(move |lines| {
                Rounds::PROBES.map(move |per_line| {
                    let probes = lines * per_line;
                    Shape { blocks, lines, probes, width }
                })
            })
        })
    }

    fn digest(seed: u64, key: u64) -> Digest {
        Hasher::xxh3(seed).digest(key.to_le_bytes())
    }

    /// A stream of random words.
    fn draws(seed: u64) -> impl FnMut() -> u64 {
        let mut random = inbloom_testing::Random(seed);
        move || random.next()
    }

    fn counts(word: u64, width: u32) -> Vec<u64> {
        (0..64 / width).map(|i| word >> (i * width) & ((1 << width) - 1)).collect()
    }

    fn word_of(counts: impl IntoIterator<Item = u64>, width: u32) -> u64 {
        counts.into_iter().zip(0..).map(|(count, i)| count << (i * width)).sum()
    }

    /// Random words, most of whose counters are random, and many zero, one, or at the maximum.
    fn random_word(draw: &mut impl FnMut() -> u64, width: u32) -> u64 {
        let maximum = (1 << width) - 1;
        let counts: Vec<u64> = (0..64 / width)
            .map(|_| match draw() % 8 {
                0 | 1 => 0,
                2 => 1,
                3 | 4 => maximum,
                5 => maximum - 1,
                _ => draw() & maximum,
            })
            .collect();
        word_of(counts, width)
    }

    #[test]
    fn words_compute_like_their_counters() {
        for width in WIDTHS {
            let (mut draw, swar, maximum) = (draws(1), Counters::new(width), (1 << width) - 1);
            for _ in 0..20_000 {
                let (x, y) = (random_word(&mut draw, width), random_word(&mut draw, width));
                let which = draw() & swar.lowest;
                let (xs, ys) = (counts(x, width), counts(y, width));
                let marked = counts(which, width);
                let map = |f: &dyn Fn(u64) -> u64| word_of(xs.iter().map(|x| f(*x)), width);
                let zip = |others: &[u64], f: &dyn Fn(u64, u64) -> u64| {
                    word_of(xs.iter().zip(others).map(|(x, y)| f(*x, *y)), width)
                };
                assert_eq!(swar.above_zero(x), map(&|x| (x > 0).into()));
                assert_eq!(swar.at_maximum(x), map(&|x| (x == maximum).into()));
                assert_eq!(swar.add(x, y), zip(&ys, &|x, y| (x + y).min(maximum)));
                assert_eq!(swar.min(x, y), zip(&ys, &|x, y| x.min(y)));
                assert_eq!(swar.raise(x, which), zip(&marked, &|x, m| (x + m).min(maximum)));
                let lower = |x, m| if x == maximum { x } else { x - m };
                let positive = which & swar.above_zero(x);
                assert_eq!(swar.lower(x, positive), zip(&counts(positive, width), &lower));
                let chosen = xs.iter().zip(&marked).filter(|(_, m)| **m == 1).map(|(x, _)| *x);
                let smallest = chosen.min().unwrap_or(maximum);
                assert_eq!(swar.smallest(x, which), smallest as u32);
            }
        }
    }

    /// The layout that files depend on, worked out by hand from the text at the top.
    #[test]
    fn a_known_key_has_known_counters() {
        let marks = |width, probes, print| {
            let geometry = Shape { blocks: 1, lines: 1, probes, width }.geometry();
            touched_counters(&geometry, Digest { place: 0, print }).next().unwrap().mask
        };
        assert_eq!(marks(4, 8, 0x35), [1 << 20, 1 << 12, 1, 1, 1, 1, 1, 1]);
        assert_eq!(marks(4, 8, 0xf << 28), [1, 1, 1, 1, 1, 1, 1, 1 << 60]);
        assert_eq!(marks(2, 8, 5 | 31 << 35), [1 << 10, 1, 1, 1, 1, 1, 1, 1 << 62]);
        assert_eq!(marks(8, 8, 5 | 7 << 21), [1 << 40, 1, 1, 1, 1, 1, 1, 1 << 56]);
        // A half round: from 64 / w on in the second word of the pair.
        assert_eq!(marks(4, 4, 3 | 19 << 5), [1 << 12, 0, 1, 1, 0, 1 << 12, 0, 0]);
        assert_eq!(marks(2, 4, 63 << 18), [1, 1, 1, 0, 0, 0, 0, 1 << 62]);
        assert_eq!(marks(8, 4, 15 << 12), [1, 1, 1, 0, 0, 0, 0, 1 << 56]);
    }

    /// What bits would get wrong: two keys share a counter, and one of them goes.
    #[test]
    fn removing_a_key_leaves_its_neighbour() {
        let mut filter = empty(one_line(1, 4));
        let (here, there) = (Digest { place: 0, print: 0 }, Digest { place: 0, print: 0x5 });
        assert!(filter.insert(here) && filter.insert(there));
        assert_eq!(filter.bits.ones, 9);
        assert!(filter.remove(here).unwrap());
        assert!(filter.contains(there) && !filter.contains(here));
        assert_eq!(filter.bits.ones, 8);
        assert!(filter.remove(there).unwrap());
        assert!(filter.bits.cells.bytes().iter().all(|byte| *byte == 0) && filter.bits.ones == 0);
    }

    /// And what the documentation warns of: removing a key that was only claimed.
    #[test]
    fn removing_a_key_that_was_never_inserted_can_take_others() {
        let mut filter = empty(one_line(1, 4));
        let prints = [0x1111_1111, 0x2222_2222];
        let [here, there] = prints.map(|print| Digest { place: 0, print });
        let claimed = Digest { place: 0, print: 0x1212_1212 };
        filter.insert(here);
        filter.insert(there);
        assert!(filter.contains(claimed) && filter.remove(claimed).unwrap());
        assert!(!filter.contains(here) && !filter.contains(there));
    }

    #[test]
    fn removing_an_absent_key_changes_no_byte() {
        for shape in shapes(50) {
            let mut filter = empty(shape);
            (0..40).for_each(|key| assert!(filter.insert(digest(0, key)) || key > 0));
            let before = copy(&filter);
            let absent = (1000..3000).map(|key| digest(0, key));
            for digest in absent.filter(|digest| !before.contains(*digest)) {
                assert!(!filter.remove(digest).unwrap());
                assert_eq!(filter.count(digest), 0);
            }
            assert!(filter.bits == before.bits);
        }
    }

    /// Filters over 24 keys against the multiset they stand for, and against one counter per cell
    /// in the plainest form, through random inserts, removals, unions and intersections.
    #[test]
    fn it_behaves_like_a_multiset() {
        for (shape, seed) in shapes(3).zip(1..) {
            let mut draw = draws(seed);
            let mut filters = [empty(shape), empty(shape)];
            let mut models: [HashMap<u64, u32>; 2] = Default::default();
            for _ in 0..600 {
                let (at, key) = ((draw() % 2) as usize, draw() % 24);
                let other = copy(&filters[1 - at]);
                let other_model = models[1 - at].clone();
                let (filter, model) = (&mut filters[at], &mut models[at]);
                let was_in = model.get(&key).is_some_and(|count| *count > 0);
                match draw() % 100 {
                    0 => {
                        filter.unite(&other).unwrap();
                        other_model.iter().for_each(|(k, n)| *model.entry(*k).or_default() += n);
                    }
                    1 => {
                        filter.intersect(&other).unwrap();
                        for (key, count) in model.iter_mut() {
                            *count = (*count).min(other_model.get(key).copied().unwrap_or(0));
                        }
                    }
                    2..50 => {
                        assert!(!(filter.insert(digest(0, key)) && was_in), "a member is not new");
                        *model.entry(key).or_default() += 1;
                    }
                    _ if was_in => {
                        assert!(filter.remove(digest(0, key)).unwrap());
                        *model.get_mut(&key).unwrap() -= 1;
                    }
                    _ => {}
                }
                assert_eq!(filter.bits.ones, filter.recount().unwrap(), "{shape:?}");
                for (key, count) in &*model {
                    let counted = filter.count(digest(0, *key));
                    assert!(counted >= (*count).min(filter.max_count()), "{shape:?}");
                    assert_eq!(filter.contains(digest(0, *key)), counted > 0);
                }
            }
        }
    }

    /// Without saturation a filter is a function of the multiset alone: removals leave no trace.
    #[test]
    fn what_is_left_is_as_if_the_removed_had_never_come() {
        for shape in shapes(400).filter(|shape| shape.width == 8) {
            let (mut filter, mut expected) = (empty(shape), empty(shape));
            (0..500).for_each(|key| _ = filter.insert(digest(1, key)));
            (0..500).rev().filter(|key| key % 3 != 0).for_each(|key| {
                assert!(filter.remove(digest(1, key)).unwrap());
            });
            (0..500).step_by(3).for_each(|key| _ = expected.insert(digest(1, key)));
            assert_eq!(filter.saturated(), 0);
            assert!(filter.bits == expected.bits, "{shape:?}");
        }
    }

    #[test]
    fn a_saturated_counter_stays() {
        for shape in shapes(2) {
            let (mut filter, key) = (empty(shape), digest(0, 7));
            for times in 1..=1000 {
                assert_eq!(filter.insert(key), times == 1);
                assert_eq!(filter.count(key), times.min(filter.max_count()));
            }
            assert_eq!(filter.saturated(), filter.bits.ones);
            for _ in 0..1000 {
                assert!(filter.remove(key).unwrap());
            }
            assert!(filter.contains(key));
            assert_eq!(filter.count(key), filter.max_count());
        }
    }

    /// The mean of samples and its standard error.
    fn mean(samples: &[f64]) -> (f64, f64) {
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / n;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        (mean, (squares / (n - 1.0) / n).sqrt())
    }

    fn model(shape: Shape) -> Lines {
        let Shape { blocks, lines, probes, width } = shape;
        let (word, rounds) = (f64::from(64 / width), Rounds::of(probes / lines));
        Lines { blocks: blocks as f64, word, reserved: 0, lines, rounds }
    }

    /// Twenty filters of each shape, filled until 2% is expected.
    #[test]
    fn the_rate_is_the_model_s() {
        for shape in shapes(200) {
            let model = model(shape);
            let items = (1..).find(|n| model.rate(f64::from(*n) * 20.0) > 0.02).unwrap() * 20;
            let samples: Vec<f64> = (0..20)
                .map(|seed| {
                    let mut filter = empty(shape);
                    (0..u64::from(items as u32))
                        .for_each(|key| _ = filter.insert(digest(seed, key)));
                    let asked = (1 << 32..).take(20_000).map(|key| digest(seed, key));
                    asked.filter(|digest| filter.contains(*digest)).count() as f64 / 20_000.0
                })
                .collect();
            let ((measured, error), expected) = (mean(&samples), model.rate(f64::from(items)));
            assert!(
                (measured - expected).abs() < 4.0 * error,
                "{shape:?}, {items} items: model {expected}, measured {measured} +- {error}"
            );
        }
    }

    #[test]
    fn overflow_is_the_model_s() {
        for (shape, load) in shapes(200).filter(|s| s.width < 8).zip([1.0, 1.5].iter().cycle()) {
            let cells = (shape.blocks * 512 / u64::from(shape.width)) as f64;
            let load = load * f64::from(shape.width) / 2.0; // Raises of a counter.
            let items = (cells * load / f64::from(shape.probes)) as u64;
            let samples: Vec<f64> = (0..20)
                .map(|seed| {
                    let mut filter = empty(shape);
                    (0..items).for_each(|key| _ = filter.insert(digest(seed, key)));
                    filter.saturated() as f64 / cells
                })
                .collect();
            let (measured, error) = mean(&samples);
            let expected = model(shape).overflow(items as f64, (1 << shape.width) - 1);
            assert!(
                (measured - expected).abs() < 4.0 * error.max(1e-6),
                "{shape:?}, load {load}: model {expected}, measured {measured} +- {error}"
            );
        }
    }

    /// Large enough that runs ask for memory ahead.
    #[test]
    fn batches_answer_like_single_calls() {
        for shape in shapes(10_000) {
            let digests: Vec<Digest> = (0..1000).map(|key| digest(3, key % 700)).collect();
            let (mut single, mut batch, mut new) = (empty(shape), empty(shape), Vec::new());
            let expected: Vec<bool> = digests.iter().map(|digest| single.insert(*digest)).collect();
            batch.insert_digests(&digests, &mut new).unwrap();
            assert!(new == expected && batch.bits == single.bits);
            let asked: Vec<Digest> = (500..1500).map(|key| digest(3, key)).collect();
            batch.contains_digests(&asked, &mut new);
            assert!(new.iter().zip(&asked).all(|(found, key)| *found == single.contains(*key)));
        }
    }

    #[test]
    fn racing_answers_like_exclusive() {
        for shape in shapes(20) {
            let (mut filter, racing) = (empty(shape), RacingCounting::new(&shape.plan()));
            let shared = empty(shape).bits.cells.into_shared().unwrap();
            let (words, mut ones, mut draw) = (shared.words(), 0_i64, draws(9));
            for _ in 0..3000 {
                let key = digest(0, draw() % 60);
                if draw() % 5 < 2 {
                    let raised = racing.insert(words, key);
                    ones += i64::from(raised);
                    assert_eq!(raised != 0, filter.insert(key));
                } else {
                    let (was_in, change) = racing.remove(words, key);
                    ones += i64::from(change);
                    assert_eq!(was_in, filter.remove(key).unwrap());
                }
                let key = digest(0, draw() % 60);
                assert_eq!(racing.contains(words, key), filter.contains(key));
            }
            let keys: Vec<Digest> = (0..200).map(|key| digest(0, key)).collect();
            let (run, mut found) = (Run { keys: &keys, next: &[] }, vec![false; 200]);
            racing.contains_run(words, run, &mut found);
            assert!(found.iter().zip(&keys).all(|(found, key)| *found == filter.contains(*key)));
            let mut new = Vec::new();
            filter.insert_run(&keys, &[], &mut new).unwrap();
            let mut new = new.into_iter();
            racing.insert_run(words, run, |raised| {
                ones += i64::from(raised);
                assert_eq!(Some(raised != 0), new.next());
            });
            let bits = Bits { cells: shared.into_cells().unwrap(), ones: ones as u64 };
            assert!(bits == filter.bits, "{shape:?}");
        }
    }

    /// What happens if the key goes between the question and the removal.
    #[test]
    fn a_removal_that_comes_too_late_is_undone() {
        for shape in shapes(4) {
            let (mut filter, racing) = (empty(shape), RacingCounting::new(&shape.plan()));
            (0..9).for_each(|key| _ = filter.insert(digest(2, key)));
            let before = copy(&filter);
            let shared = filter.bits.cells.into_shared().unwrap();
            let absent = (100..400).map(|key| digest(2, key));
            for digest in absent.filter(|digest| !before.contains(*digest)) {
                assert_eq!(racing.lower_all(shared.words(), digest), (false, 0));
            }
            assert!(shared.into_cells().unwrap().bytes() == before.bits.cells.bytes());
        }
    }

    /// Two threads remove the same keys at once, in a filter so empty that none is claimed by
    /// accident.
    #[test]
    fn of_two_removals_of_a_key_at_most_one_goes_through() {
        let shape = Shape { blocks: 600, lines: 2, probes: 24, width: 4 };
        let racing = RacingCounting::new(&shape.plan());
        let mut filter = empty(shape);
        (0..600).for_each(|key| _ = filter.insert(digest(6, key)));
        let ones = filter.bits.ones as i64;
        let shared = filter.bits.cells.into_shared().unwrap();
        let words = shared.words();
        let remove = || (0..500).map(|key| racing.remove(words, digest(6, key))).collect();
        let answers: [Vec<(bool, i32)>; 2] = std::thread::scope(|scope| {
            [scope.spawn(remove), scope.spawn(remove)].map(|thread| thread.join().unwrap())
        });
        let mut expected = empty(shape);
        (500..600).for_each(|key| _ = expected.insert(digest(6, key)));
        for key in 0..500 {
            match answers.each_ref().map(|answers| answers[key].0) {
                [true, true] => panic!("key {key} was removed twice"),
                // Denied for an instant, twice.
                [false, false] => _ = expected.insert(digest(6, key as u64)),
                _ => {}
            }
        }
        let change: i64 = answers.iter().flatten().map(|(_, change)| i64::from(*change)).sum();
        let bits = Bits { cells: shared.into_cells().unwrap(), ones: (ones + change) as u64 };
        assert!(bits == expected.bits);
    }

    /// Four threads on lines that they share: each inserts its keys, removes two thirds, and asks
    /// all the while for those it keeps.
    #[test]
    fn threads_lose_nothing() {
        use std::sync::atomic::AtomicI64;
        let shape = Shape { blocks: 300, lines: 2, probes: 16, width: 8 };
        let (racing, shared) =
            (RacingCounting::new(&shape.plan()), empty(shape).bits.cells.into_shared().unwrap());
        let (words, ones) = (shared.words(), AtomicI64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (racing, ones) = (&racing, &ones);
                scope.spawn(move || {
                    let keys = || (thread * 500..(thread + 1) * 500).map(|key| digest(5, key));
                    let mut change = 0;
                    for _ in 0..20 {
                        keys().for_each(|key| change += i64::from(racing.insert(words, key)));
                        for (at, key) in keys().enumerate().filter(|(at, _)| at % 3 != 0) {
                            let (was_in, zeroed) = racing.remove(words, key);
                            assert!(was_in);
                            change += i64::from(zeroed);
                            assert!(racing.contains(words, keys().nth(at / 3 * 3).unwrap()));
                        }
                        for key in keys().step_by(3) {
                            let (was_in, zeroed) = racing.remove(words, key);
                            assert!(was_in);
                            change += i64::from(zeroed);
                        }
                    }
                    keys()
                        .step_by(3)
                        .for_each(|key| change += i64::from(racing.insert(words, key)));
                    ones.fetch_add(change, Ordering::Relaxed);
                });
            }
        });
        let mut expected = empty(shape);
        for thread in 0..4 {
            let keys = (thread * 500..(thread + 1) * 500).step_by(3);
            keys.for_each(|key| _ = expected.insert(digest(5, key)));
        }
        let ones = ones.into_inner() as u64;
        assert!(Bits { cells: shared.into_cells().unwrap(), ones } == expected.bits);
    }
}
