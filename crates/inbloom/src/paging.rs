//! Files larger than memory: how a batch of keys brings its pages into memory.
//!
//! A query that touches a page outside of memory waits for it 72 us, the time of 1000 queries in
//! memory. There are three ways to query a file, with these speeds of one thread when no page is in
//! memory:
//!
//! - *On demand*: page by page, 14,000 to 16,000 keys a second.
//! - *Ahead*: the thread requests all pages of a run at once, while it queries the run before. The
//!   disk works on as many as it can at a time: 123,000 keys a second. Each key costs a system
//!   call, also if its page is in memory: 0.88 us for a key instead of 0.07.
//! - *Sweep*: the thread sorts very many keys, and reads the whole file once from front to back, at
//!   0.7 GB/s: 4 million keys a second for a million keys in 167 MB. It is faster from about one
//!   key for every page and a half ([`Filter::sweep_digests`]).
//!
//! The figures are from bench/record/2026-11-16-cold.txt: 100 million keys in 167 MB on one virtual
//! disk. `inbloom-bench cold` measures them on another disk.
//!
//! By default a sample decides between the first two: every few thousand keys, the thread checks
//! whether the pages of some keys are in memory. When all are, a small sample is enough to notice a
//! change. When none is, the default has three quarters of the speed of *Ahead*.
//!
//! [`Filter::sweep_digests`]: crate::Filter::sweep_digests

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::digest::Digest;
use crate::storage::Order;

/// How batches of queries bring the pages of a mapped file into memory: see
/// [`Filter::set_paging`](crate::Filter::set_paging). The results do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paging {
    /// Each page is read when a query touches it, and the query waits. The fastest choice if all
    /// pages are in memory.
    OnDemand,
    /// Ahead while some pages of a sample are not in memory, on demand while all are.
    ///
    /// Linux reports what is in memory only to the owner of a file and to users who may write to
    /// it. For others, and on other systems, this is the same as on demand.
    #[default]
    Sampled,
    /// The pages of many keys are requested before the first is touched.
    Ahead,
}

/// Keys between two samples. A sample costs some microseconds: less than 1% of the time to query
/// this many keys in memory.
const KEYS_PER_SAMPLE: usize = 8192;
/// Keys of a sample. If one page of 20 is missing, every other sample notices it.
const SAMPLE: usize = 16;
/// Keys of a sample that follows one whose pages were all in memory. A key costs a system call of
/// 0.8 us; samples of 16 took 10 to 20% of a batch. If one page of 20 is missing, every twentieth
/// sample notices it; if all are missing, the first does.
const SMALL_SAMPLE: usize = 1;

/// Decides for each run of keys whether its pages are requested. Threads share it without a lock.
/// If one overwrites the count of another, a sample only comes sooner or later.
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

    /// Notes the order in which keys will come.
    pub(crate) fn expect(&self, order: Order) {
        self.sweeping.store(matches!(order, Order::Ascending), Ordering::Relaxed);
    }

    /// Returns whether to request the pages of this run. `is_resident` returns whether the page of
    /// a key is in memory.
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
