//! Counters that many threads change at once.

use super::smallest;
use crate::digest::Digest;
use crate::kernels::scalar::{Touch, touched_counters};
use crate::kernels::{Geometry, Kernel, Run, Towards};
use crate::plan::Plan;
use crate::sync::{AtomicU64, Ordering};

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
    /// others and is raised again; until then those others may be reported as absent, for an
    /// instant. So a caller with several threads that remove the same key makes them take turns.
    pub(crate) fn remove(&self, words: &[AtomicU64], digest: Digest) -> (bool, i32) {
        if self.contains(words, digest) { self.lower_all(words, digest) } else { (false, 0) }
    }

    /// Lowers all of the digest's counters, or none if one is found at zero.
    pub(super) fn lower_all(&self, words: &[AtomicU64], digest: Digest) -> (bool, i32) {
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
