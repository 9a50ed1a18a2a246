//! Contestants side by side: interleaved rounds, medians, and every answer checked.
//!
//! In a round each contestant runs each operation once, in turn, so that a slow minute of the
//! machine falls on all of them. The median over the rounds is reported. A contestant that misses a
//! member, or that answers differently one by one and in a batch, ends the run.

use std::hint::black_box;
use std::time::Duration;

use crate::clock::Clock;
use crate::limit::Limit;
use crate::sizing::{absent_keys, is_near};
use crate::workload::{Key, Workload, absent_runs};

/// Keys per call of the batch operations. Large enough that filling the prefetch pipeline is
/// negligible, small enough that the answers stay in the first-level cache.
pub(crate) const BATCH: usize = 8192;

/// Fewer queries than this are repeated: below, the clock and the first misses would be measured.
const QUERIES: usize = 1 << 20;

/// A structure under test. The loops over the keys are on its side of the interface, so that its
/// calls are compiled as in a user's program.
pub(crate) trait Contestant<K> {
    /// Memory that holds the members, in bits.
    fn bits(&self) -> u64;

    /// Forgets all members.
    fn clear(&mut self);

    /// Inserts the keys one by one. Static structures are built here, from all members at once.
    fn insert(&mut self, keys: &[K]);

    /// Asks for the keys one by one; returns how many were said to be present.
    fn contains(&mut self, keys: &[K]) -> usize;

    /// By which clock it is timed; another one only if it starts threads.
    fn clock(&self) -> Clock {
        Clock::Thread
    }

    /// The batch calls, of contestants that have them.
    fn batch(&mut self) -> Option<&mut dyn Batch<K>> {
        None
    }
}

/// Calls that take many keys at once.
pub(crate) trait Batch<K> {
    /// Inserts the keys, in batches of [`BATCH`].
    fn insert_batch(&mut self, keys: &[K]);

    /// Asks for the keys, in batches of [`BATCH`]; returns how many were said to be present.
    fn contains_batch(&mut self, keys: &[K]) -> usize;
}

/// What is timed, in the order in which a round runs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Insert,
    InsertBatch,
    Hit,
    Miss,
    Mixed,
    HitBatch,
    MissBatch,
    MixedBatch,
}

impl Op {
    pub(crate) const ALL: [Op; 8] = [
        Op::Insert,
        Op::InsertBatch,
        Op::Hit,
        Op::Miss,
        Op::Mixed,
        Op::HitBatch,
        Op::MissBatch,
        Op::MixedBatch,
    ];

    /// Whether this is a query, not an insertion.
    fn asks(self) -> bool {
        !matches!(self, Op::Insert | Op::InsertBatch)
    }

    /// The keys that are asked for; none for insertions, which take all members.
    fn queries<K>(self, work: &Workload<K>) -> &[K] {
        match self {
            Op::Insert | Op::InsertBatch => &[],
            Op::Hit | Op::HitBatch => &work.hits,
            Op::Miss | Op::MissBatch => &work.misses,
            Op::Mixed | Op::MixedBatch => &work.mixed,
        }
    }

    /// What the `op` column says.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Op::Insert => "insert",
            Op::InsertBatch => "insert-batch",
            Op::Hit => "hit",
            Op::Miss => "miss",
            Op::Mixed => "mixed",
            Op::HitBatch => "hit-batch",
            Op::MissBatch => "miss-batch",
            Op::MixedBatch => "mixed-batch",
        }
    }
}

/// A contestant with its name and its times so far.
pub(crate) struct Entrant<K> {
    pub(crate) who: &'static str,
    /// What a reader must know to compare fairly; empty if nothing.
    pub(crate) note: &'static str,
    /// The rate that its size was chosen for, which it is held to.
    expected: Option<f64>,
    contestant: Box<dyn Contestant<K>>,
    times: [Vec<f64>; Op::ALL.len()],
    /// Absent keys among `Workload::misses` that were said to be present.
    false_positives: usize,
    measured_rate: f64,
}

impl<K: Key> Entrant<K> {
    pub(crate) fn new(
        who: &'static str,
        note: &'static str,
        expected: Option<f64>,
        contestant: Box<dyn Contestant<K>>,
    ) -> Entrant<K> {
        Entrant {
            who,
            note,
            expected,
            contestant,
            times: Default::default(),
            false_positives: 0,
            measured_rate: f64::NAN,
        }
    }

    /// Median ns per key, where the contestant offers the operation.
    pub(crate) fn ns(&self, op: Op) -> Option<f64> {
        let times = &self.times[op as usize];
        (!times.is_empty()).then(|| median(times))
    }

    /// Share of the absent keys that were said to be present.
    pub(crate) fn measured_rate(&self) -> f64 {
        self.measured_rate
    }

    /// Memory, in bits.
    pub(crate) fn bits(&self) -> u64 {
        self.contestant.bits()
    }

    fn run(&mut self, op: Op, work: &Workload<K>) {
        let clock = self.contestant.clock();
        let time = match op {
            Op::Insert => Some(fill(self.contestant.as_mut(), work, |contestant, keys| {
                contestant.insert(keys);
            })),
            Op::InsertBatch => self.contestant.batch().is_some().then(|| {
                fill(self.contestant.as_mut(), work, |contestant, keys| {
                    contestant.batch().expect("asked before").insert_batch(keys);
                })
            }),
            Op::Hit | Op::Miss | Op::Mixed => {
                let (found, time) =
                    ask(clock, op.queries(work), |keys| self.contestant.contains(keys));
                if op == Op::Miss {
                    self.false_positives = found;
                }
                self.check(op, found, work);
                Some(time)
            }
            Op::HitBatch | Op::MissBatch | Op::MixedBatch => {
                let asked = self
                    .contestant
                    .batch()
                    .map(|batch| ask(clock, op.queries(work), |keys| batch.contains_batch(keys)));
                asked.map(|(found, time)| {
                    self.check(op, found, work);
                    time
                })
            }
        };
        self.times[op as usize].extend(time);
    }

    fn check(&self, op: Op, found: usize, work: &Workload<K>) {
        let who = self.who;
        match op {
            Op::Hit | Op::HitBatch => {
                assert_eq!(found, work.hits.len(), "{who} missed a member ({op:?})");
            }
            Op::Miss | Op::MissBatch => {
                assert_eq!(found, self.false_positives, "{who} answers batches differently");
            }
            Op::Mixed | Op::MixedBatch => {
                assert!(found >= work.mixed.len() / 2, "{who} missed a member ({op:?})");
            }
            Op::Insert | Op::InsertBatch => {}
        }
    }
}

/// Empties the contestant and inserts all members; returns ns per key. Making the keys is not
/// timed.
fn fill<K: Key>(
    contestant: &mut dyn Contestant<K>,
    work: &Workload<K>,
    insert: impl Fn(&mut dyn Contestant<K>, &[K]),
) -> f64 {
    let clock = contestant.clock();
    let passes = passes(work.items as usize);
    let mut spent = Duration::ZERO;
    for _ in 0..passes {
        contestant.clear();
        work.for_each_run(|keys| {
            let ((), time) = clock.time(|| insert(contestant, black_box(keys)));
            spent += time;
        });
    }
    spent.as_nanos() as f64 / (passes as f64 * work.items as f64)
}

/// Asks for the keys often enough; returns how many were found in a pass, and ns per key. A pass
/// before that is not timed: what those before have left in the caches is nobody's merit.
fn ask<K>(clock: Clock, keys: &[K], mut find: impl FnMut(&[K]) -> usize) -> (usize, f64) {
    let passes = passes(keys.len());
    find(black_box(keys));
    let (found, time) = clock.time(|| (0..passes).map(|_| find(black_box(keys))).sum::<usize>());
    assert_eq!(found % passes, 0, "answers changed between passes");
    (found / passes, time.as_nanos() as f64 / (passes * keys.len()) as f64)
}

/// How many answers are yes. By bytes and in short runs: a plain sum of `usize` costs 0.3 ns per
/// answer without AVX, a tenth of a batch query.
pub(crate) fn count(answers: &[bool]) -> usize {
    let short = |run: &[bool]| run.iter().map(|&answer| u8::from(answer)).sum::<u8>();
    answers.chunks(255).map(|run| usize::from(short(run))).sum()
}

/// How often an array of so many queries is run through.
fn passes(keys: usize) -> usize {
    QUERIES.div_ceil(keys)
}

/// Lets the entrants run these operations for `rounds` rounds, and the limits with them. Sets that
/// are made in runs are inserted in the first round only.
pub(crate) fn run<K: Key>(
    entrants: &mut [Entrant<K>],
    work: &Workload<K>,
    ops: &[Op],
    limits: &mut [Limit<'_>],
    target: f64,
    rounds: usize,
) {
    for round in 0..rounds {
        for limit in limits.iter_mut() {
            limit.run(passes(work.hits.len()));
        }
        for entrant in entrants.iter_mut() {
            for op in ops {
                if op.asks() || round == 0 || work.is_kept() {
                    entrant.run(*op, work);
                }
            }
        }
    }
    measure_rates(entrants, target);
}

/// Asks all entrants, full by now, for many more absent keys than are timed; those whose size was
/// chosen for a rate must be near it.
fn measure_rates<K: Key>(entrants: &mut [Entrant<K>], target: f64) {
    let absent = absent_keys(target);
    let mut found = vec![0; entrants.len()];
    absent_runs(absent, |keys| {
        for (entrant, found) in entrants.iter_mut().zip(&mut found) {
            *found += entrant.contestant.contains(keys);
        }
    });
    for (entrant, found) in entrants.iter_mut().zip(found) {
        let (who, rate) = (entrant.who, found as f64 / absent as f64);
        entrant.measured_rate = rate;
        if let Some(expected) = entrant.expected {
            assert!(is_near(rate, expected), "{who} has a rate of {rate}, not {expected}");
        }
    }
}

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}
