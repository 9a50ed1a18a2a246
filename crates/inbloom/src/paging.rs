//! Files larger than memory: how the pages that a batch of keys touches come in.
//!
//! A page that is not in memory is waited for when it is touched: for 72 us, in which 1000 keys are
//! looked up in memory. Three ways through, with what one thread does with a file of which nothing
//! is in memory:
//!
//! - *On demand*: page by page, 14,000 to 16,000 keys a second.
//! - *Ahead*: the pages of a run are asked for all at once, while the run before is looked up. The
//!   disk works on as many as it can at a time: 123,000 keys a second. It takes a system call for
//!   each key, also for those whose page is there: 0.88 us for a key instead of 0.07.
//! - *Sweep*: very many keys are sorted, and the whole file is read once from front to back, at
//!   0.7 GB/s: 4 million keys a second, of a million in 167 MB. That pays from about one key for
//!   every page and a half on ([`Filter::sweep_digests`]).
//!
//! Figures of bench/record/2026-11-16-cold.txt, 100 million keys in 167 MB on one virtual disk;
//! another disk has other numbers, and `inbloom-bench cold` measures them.
//!
//! Between the first two the default chooses by looking: a sample of the keys' pages, once for some
//! thousand keys. Where all are in memory, a small sample suffices to notice that they are not any
//! more. Where none is, it has three quarters of the speed of asking ahead.
//!
//! [`Filter::sweep_digests`]: crate::Filter::sweep_digests

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::digest::Digest;
use crate::storage::Order;

/// How the pages of a mapped file come into memory when many keys are looked up at once: see
/// [`Filter::set_paging`](crate::Filter::set_paging). Answers do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paging {
    /// Each page when it is touched, and the key waits for it: the fastest if all are in memory.
    OnDemand,
    /// Ahead while some pages of a sample are not in memory, and on demand while all are.
    ///
    /// Linux tells what is in memory only to those who own a file or may write to it; for others,
    /// and on other systems, this is as on demand.
    #[default]
    Sampled,
    /// The pages of many keys are asked for before the first is touched.
    Ahead,
}

/// Keys between two samples. A sample costs some microseconds: less than 1% of what it takes to look
/// up so many keys that are in memory.
const KEYS_PER_SAMPLE: usize = 8192;
/// Keys of a sample. Where one page of 20 is missing, it is noticed by every other sample.
const SAMPLE: usize = 16;
/// Keys of a sample after one of which all pages were in memory. A key takes a system call of 0.8 us;
/// samples of 16 took 10 to 20% of a batch. Where one page of 20 is missing, it is noticed by every
/// twentieth sample; where all are, by the first.
const SMALL_SAMPLE: usize = 1;

/// Decides for each run of keys whether its pages are asked for. Shared by threads, of which one may
/// overwrite what another has counted: then a sample comes sooner, or later.
pub(crate) struct Pager {
    paging: Paging,
    /// Keys until the next sample is taken.
    until_sample: AtomicUsize,
    /// Whether a page of the last sample was missing.
    missing: AtomicBool,
    /// Keys of the next sample.
    next_sample: AtomicUsize,
    /// Whether the system is reading ahead by itself.
    sweeping: AtomicBool,
}

impl Pager {
    pub(crate) fn new(paging: Paging) -> Pager {
        Pager {
            paging,
            until_sample: AtomicUsize::new(0),
            missing: AtomicBool::new(false),
            next_sample: AtomicUsize::new(SAMPLE),
            sweeping: AtomicBool::new(false),
        }
    }

    /// Says in which order keys are going to come.
    pub(crate) fn expect(&self, order: Order) {
        self.sweeping.store(matches!(order, Order::Ascending), Ordering::Relaxed);
    }

    /// Returns whether the pages of this run should be asked for; `is_resident` tells of the page
    /// of a key.
    pub(crate) fn asks(&self, run: &[Digest], is_resident: impl Fn(Digest) -> bool) -> bool {
        if run.is_empty() || self.sweeping.load(Ordering::Relaxed) {
            return false;
        }
        match self.paging {
            Paging::OnDemand => false,
            Paging::Ahead => true,
            Paging::Sampled => {
                let left = self.until_sample.load(Ordering::Relaxed);
                if left == 0 {
                    let size = self.next_sample.load(Ordering::Relaxed);
                    let mut sample = run.iter().step_by(run.len().div_ceil(size));
                    let missing = sample.any(|digest| !is_resident(*digest));
                    let next = if missing { SAMPLE } else { SMALL_SAMPLE };
                    self.next_sample.store(next, Ordering::Relaxed);
                    self.missing.store(missing, Ordering::Relaxed);
                    self.until_sample.store(KEYS_PER_SAMPLE, Ordering::Relaxed);
                    return missing;
                }
                self.until_sample.store(left.saturating_sub(run.len()), Ordering::Relaxed);
                self.missing.load(Ordering::Relaxed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const RUN: usize = 128;

    fn run() -> Vec<Digest> {
        (0..RUN as u64).map(|place| Digest { place, print: 0 }).collect()
    }

    /// Returns the answers for so many runs, of which the pages are in memory or not, and how many
    /// keys were looked at.
    fn asked(
        pager: &Pager,
        runs: usize,
        is_resident: impl Fn(Digest) -> bool,
    ) -> (Vec<bool>, usize) {
        let looks = Cell::new(0);
        let look = |digest| {
            looks.set(looks.get() + 1);
            is_resident(digest)
        };
        let answers = (0..runs).map(|_| pager.asks(&run(), look)).collect();
        (answers, looks.get())
    }

    #[test]
    fn nobody_looks_where_it_was_decided_beforehand() {
        assert_eq!(asked(&Pager::new(Paging::OnDemand), 3, |_| false), (vec![false; 3], 0));
        assert_eq!(asked(&Pager::new(Paging::Ahead), 3, |_| true), (vec![true; 3], 0));
    }

    #[test]
    fn the_answer_of_a_sample_holds_until_the_next() {
        let pager = Pager::new(Paging::Sampled);
        let period = 1 + KEYS_PER_SAMPLE / RUN;
        assert_eq!(asked(&pager, period, |_| false), (vec![true; period], 1));
        // By now all are there: that is seen with the next sample.
        assert_eq!(asked(&pager, period, |_| true), (vec![false; period], SAMPLE));
        assert_eq!(asked(&pager, 1, |digest| digest.place != 0), (vec![true], 1));
    }

    #[test]
    fn while_all_are_there_samples_are_small() {
        let pager = Pager::new(Paging::Sampled);
        let period = 1 + KEYS_PER_SAMPLE / RUN;
        assert_eq!(asked(&pager, period, |_| true), (vec![false; period], SAMPLE));
        assert_eq!(asked(&pager, period, |_| true), (vec![false; period], SMALL_SAMPLE));
        // One of 16 is missing: a small sample does not look at it, and the one after a miss does.
        let is_resident = |digest: Digest| digest.place != 8;
        assert_eq!(asked(&pager, period, is_resident), (vec![false; period], SMALL_SAMPLE));
        assert_eq!(asked(&pager, period, |_| false), (vec![true; period], 1));
        assert_eq!(asked(&pager, 1, is_resident), (vec![true], 2));
    }

    #[test]
    fn a_short_run_is_a_sample_too() {
        let pager = Pager::new(Paging::Sampled);
        assert!(!pager.asks(&[], |_| panic!("there is no key to look at")));
        assert!(pager.asks(&run()[..1], |_| false));
    }

    #[test]
    fn nothing_is_asked_for_during_a_sweep() {
        for paging in [Paging::Sampled, Paging::Ahead] {
            let pager = Pager::new(paging);
            pager.expect(Order::Ascending);
            assert!(!pager.asks(&run(), |_| false));
            pager.expect(Order::Random);
            assert!(pager.asks(&run(), |_| false));
        }
    }
}
