//! The speed limit: how fast this machine fetches one random cache line per key.
//!
//! A filter that touches one line per key cannot answer a batch faster than the lines arrive. What
//! they arrive at depends on the prefetching: straight into the first-level cache (T0) only a few
//! misses can be under way, so the best pipelines fetch far ahead into the second level (T1) and
//! shortly before use into the first (T0). Several are run in every round and the best one is the
//! limit, so that a filter cannot look good beside a poorly fetched array.

use std::hint::black_box;
use std::rc::Rc;

use inbloom::Digest;

use crate::clock::Clock;
use crate::memory::{Lines, Pages, ahead, pick, prefetch_far, prefetch_near};
use crate::race::median;

/// The name, in reports, of the limit of memory such as a filter has.
pub(crate) const HUGE_PAGES: &str = "limit, huge pages";

/// How many keys ahead a line is asked for; zero means not at all.
#[derive(Clone, Copy)]
struct Pipeline {
    far: usize,
    near: usize,
}

/// None, the two common one-step pipelines, and two-step ones around the best distance.
const PIPELINES: [Pipeline; 7] = [
    Pipeline { far: 0, near: 0 },
    Pipeline { far: 0, near: 32 },
    Pipeline { far: 64, near: 0 },
    Pipeline { far: 48, near: 8 },
    Pipeline { far: 64, near: 8 },
    Pipeline { far: 96, near: 16 },
    Pipeline { far: 128, near: 16 },
];

/// One pipeline over one array, and what it took in each round so far.
pub(crate) struct Limit<'a> {
    lines: Rc<Lines>,
    pages: Pages,
    pipeline: Pipeline,
    digests: &'a [Digest],
    times: Vec<f64>,
}

impl<'a> Limit<'a> {
    /// All pipelines over an array of `bytes`, asked for by `digests`.
    pub(crate) fn all(bytes: u64, pages: Pages, digests: &'a [Digest]) -> Vec<Limit<'a>> {
        let lines = Rc::new(Lines::new(bytes.div_ceil(64).max(1), pages));
        PIPELINES
            .iter()
            .map(|&pipeline| Limit {
                lines: Rc::clone(&lines),
                pages,
                pipeline,
                digests,
                times: Vec::new(),
            })
            .collect()
    }

    /// Measures once more, after a pass that is not timed, as for the contestants.
    pub(crate) fn run(&mut self, passes: usize) {
        black_box(walk(&self.lines, self.pipeline, self.digests));
        let ((), time) = Clock::Thread.time(|| {
            for _ in 0..passes {
                black_box(walk(&self.lines, self.pipeline, self.digests));
            }
        });
        self.times.push(time.as_nanos() as f64 / (passes * self.digests.len()) as f64);
    }

    /// What a report calls this array.
    pub(crate) fn who(&self) -> &'static str {
        match self.pages {
            Pages::Huge => HUGE_PAGES,
            Pages::Small => "limit, 4k pages",
        }
    }

    /// The pipeline in words.
    pub(crate) fn pipeline(&self) -> String {
        let step = |level, ahead| (ahead > 0).then(|| format!("{level}/{ahead}"));
        let steps: Vec<String> = [step("T1", self.pipeline.far), step("T0", self.pipeline.near)]
            .into_iter()
            .flatten()
            .collect();
        if steps.is_empty() { "no prefetch".to_string() } else { steps.join("+") }
    }

    /// Bytes of the array.
    pub(crate) fn bytes(&self) -> u64 {
        self.lines.get().len() as u64 * 64
    }

    /// Median over the rounds, in ns per line.
    pub(crate) fn ns(&self) -> f64 {
        median(&self.times)
    }
}

/// Reads one word of the line that each digest picks.
fn walk(lines: &Lines, pipeline: Pipeline, digests: &[Digest]) -> u64 {
    let lines = lines.get();
    let read = |sum: u64, &digest: &Digest| sum.wrapping_add(pick(lines, digest).0[0]);
    let fetch_far = |&digest: &Digest| prefetch_far(pick(lines, digest));
    let fetch_near = |&digest: &Digest| prefetch_near(pick(lines, digest));
    let (near, far) = (ahead(digests, pipeline.near), ahead(digests, pipeline.far));
    // One loop for each shape: a test within the loop would be part of what is measured.
    let (sum, done) = match (pipeline.far, pipeline.near) {
        (0, 0) => (0, 0),
        (0, _) => (
            digests.iter().zip(near).fold(0, |sum, (digest, near)| {
                fetch_near(near);
                read(sum, digest)
            }),
            near.len(),
        ),
        (_, 0) => (
            digests.iter().zip(far).fold(0, |sum, (digest, far)| {
                fetch_far(far);
                read(sum, digest)
            }),
            far.len(),
        ),
        _ => (
            digests.iter().zip(near).zip(far).fold(0, |sum, ((digest, near), far)| {
                fetch_far(far);
                fetch_near(near);
                read(sum, digest)
            }),
            far.len(),
        ),
    };
    digests[done..].iter().fold(sum, read)
}
