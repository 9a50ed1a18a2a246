//! Work by several threads, with results in the order of what they work on: the lines of inputs
//! (`blocks.rs`), or the shards of a filter ([`in_order`]).
//!
//! ```text
//!   source    1, 2, 3, ...          one thread at a time takes the next piece into a job
//!              |    |
//!   workers   work  work            each on a job of its own
//!               \  /
//!   caller    1, 2, 3, ...          in the order in which they were taken; gives jobs back
//! ```
//!
//! A worker that is free takes a spare job and the next piece itself. The number of jobs is fixed, so that
//! workers are never further ahead of a slow caller, and memory does not grow. Jobs are recycled, the one
//! used last first, since it is still in the processor's cache.

use std::any::Any;
use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, Sender};
use std::sync::{Condvar, Mutex};
use std::thread;

use anyhow::Result;

/// What workers share. `S` puts the next piece of work into a job, and returns false at the end; `W` does
/// the work, which may only depend on the job.
pub struct Pipeline<J, S, W> {
    source: Mutex<Source<S>>,
    spares: Mutex<Spares<J>>,
    returned: Condvar,
    /// How many jobs there are, spare or not.
    jobs: usize,
    work: W,
}

struct Source<S> {
    next: S,
    taken: u64,
    at_end: bool,
}

struct Spares<J> {
    jobs: Vec<J>,
    /// Whether jobs are not given away for now.
    is_held: bool,
    is_closed: bool,
}

/// A job that was worked on, and its place in the order.
pub struct Done<J> {
    number: u64,
    job: J,
    panic: Option<Box<dyn Any + Send>>,
}

impl<J> Done<J> {
    /// Returns the job and whether the work on it panicked.
    pub fn into_parts(self) -> (J, bool) {
        (self.job, self.panic.is_some())
    }
}

const WHOLE: &str = "nothing panics while it is locked";

impl<J, S: FnMut(&mut J) -> bool, W: Fn(&mut J)> Pipeline<J, S, W> {
    pub fn new(jobs: Vec<J>, source: S, work: W) -> Pipeline<J, S, W> {
        Pipeline {
            source: Mutex::new(Source { next: source, taken: 0, at_end: false }),
            jobs: jobs.len(),
            spares: Mutex::new(Spares { jobs, is_held: false, is_closed: false }),
            returned: Condvar::new(),
            work,
        }
    }

    /// Works until the end of the source, or of the caller.
    pub fn serve(&self, send: &Sender<Done<J>>) {
        while let Some(job) = self.wait_for_spare()
            && let Some(done) = self.work_on(job)
        {
            if send.send(done).is_err() {
                return;
            }
        }
    }

    /// Takes the next piece and works on it; None at the end of the source. A job is taken before the
    /// source, not while holding it: the caller may wait for the source and be the only one who gives jobs
    /// back.
    pub fn work_on(&self, mut job: J) -> Option<Done<J>> {
        let number = {
            let mut source = self.source.lock().expect(WHOLE);
            if !(source.next)(&mut job) {
                source.at_end = true;
                drop(source);
                self.give_back(job);
                return None;
            }
            source.taken += 1;
            source.taken - 1
        };
        // A panic is handed over as well: a job that never came would be waited for.
        let panic = catch_unwind(AssertUnwindSafe(|| (self.work)(&mut job))).err();
        Some(Done { number, job, panic })
    }

    pub fn is_at_end(&self) -> bool {
        self.source.lock().is_ok_and(|source| source.at_end)
    }

    /// Returns a spare job, if there is one to be had.
    pub fn spare(&self) -> Option<J> {
        let mut spares = self.spares.lock().expect(WHOLE);
        if spares.is_held { None } else { spares.jobs.pop() }
    }

    /// Lets nobody take another job, until [`Pipeline::release`]. Those under way are done and handed
    /// over.
    pub fn hold(&self) {
        self.spares.lock().expect(WHOLE).is_held = true;
    }

    pub fn release(&self) {
        self.spares.lock().expect(WHOLE).is_held = false;
        self.returned.notify_all();
    }

    /// Returns whether no job is under way: all were given back.
    pub fn is_idle(&self) -> bool {
        self.spares.lock().expect(WHOLE).jobs.len() == self.jobs
    }

    pub fn give_back(&self, job: J) {
        self.spares.lock().expect(WHOLE).jobs.push(job);
        self.returned.notify_one();
    }

    /// Lets workers end that wait for a spare job.
    pub fn close(&self) {
        self.spares.lock().expect(WHOLE).is_closed = true;
        self.returned.notify_all();
    }

    fn wait_for_spare(&self) -> Option<J> {
        let spares = self.spares.lock().expect(WHOLE);
        let waits = |spares: &mut Spares<J>| {
            (spares.jobs.is_empty() || spares.is_held) && !spares.is_closed
        };
        let mut spares = self.returned.wait_while(spares, waits).expect(WHOLE);
        if spares.is_closed { None } else { spares.jobs.pop() }
    }
}

/// Jobs that were done before their turn.
pub struct Turns<J> {
    early: BTreeMap<u64, Done<J>>,
    next: u64,
}

impl<J> Turns<J> {
    pub fn new() -> Turns<J> {
        Turns { early: BTreeMap::new(), next: 0 }
    }

    pub fn put(&mut self, done: Done<J>) {
        self.early.insert(done.number, done);
    }

    /// Returns the job whose turn it is, if it is done.
    pub fn take(&mut self) -> Option<Done<J>> {
        let done = self.early.remove(&self.next)?;
        self.next += 1;
        Some(done)
    }

    pub fn is_empty(&self) -> bool {
        self.early.is_empty()
    }

    pub fn clear(&mut self) {
        self.early.clear();
    }
}

/// Returns the number of threads that was asked for, or one per core.
pub fn threads(asked: Option<NonZero<usize>>) -> usize {
    asked.or(thread::available_parallelism().ok()).map_or(1, NonZero::get)
}

/// Does `work` for all numbers on some threads, and hands the results over in order. No thread is
/// ahead of that by more than twice as many numbers as there are threads; a single one is not ahead
/// at all, so that there is one result at a time.
pub fn in_order<T: Send>(
    numbers: Range<u64>,
    threads: usize,
    work: impl Fn(u64) -> Result<T> + Sync,
    mut take: impl FnMut(u64, T) -> Result<()>,
) -> Result<()> {
    let lead = if threads == 1 { 1 } else { 2 * threads };
    let jobs = (0..lead).map(|_| (0, None)).collect();
    let mut left = numbers.clone();
    let source = |job: &mut (u64, Option<Result<T>>)| match left.next() {
        Some(number) => {
            job.0 = number;
            true
        }
        None => false,
    };
    let pipeline = Pipeline::new(jobs, source, |job| job.1 = Some(work(job.0)));
    thread::scope(|scope| {
        // Whatever ends this, also a panic: nobody waits for a job that does not come.
        let _end = CloseAtEnd(|| pipeline.close());
        let (send, done) = mpsc::channel();
        for _ in 0..threads {
            let (pipeline, send) = (&pipeline, send.clone());
            scope.spawn(move || pipeline.serve(&send));
        }
        drop(send);
        let mut turns = Turns::new();
        for _ in numbers {
            let Done { job: (number, result), panic, .. } = loop {
                match turns.take() {
                    Some(done) => break done,
                    None => turns.put(done.recv().expect("workers end after the last number")),
                }
            };
            if let Some(panic) = panic {
                resume_unwind(panic);
            }
            take(number, result.expect("it was worked on")?)?;
            pipeline.give_back((number, None));
        }
        Ok(())
    })
}

struct CloseAtEnd<F: Fn()>(F);

impl<F: Fn()> Drop for CloseAtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use anyhow::anyhow;

    use super::*;

    #[test]
    fn results_are_handed_over_in_order_by_any_number_of_threads() {
        for threads in [1, 2, 7] {
            let ahead = AtomicU64::new(5);
            let mut taken = Vec::new();
            let work = |number: u64| {
                // Some take longer than others.
                thread::sleep(Duration::from_micros(number * 7919 % 300));
                assert!(number < ahead.load(Ordering::SeqCst) + 2 * threads as u64);
                Ok(number * 2)
            };
            in_order(5..300, threads, work, |number, double| {
                assert_eq!(double, number * 2);
                taken.push(number);
                ahead.store(number + 1, Ordering::SeqCst);
                Ok(())
            })
            .expect("nothing fails");
            assert_eq!(taken, (5..300).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_failure_ends_it_without_waiting() {
        let failing = |number: u64| match number {
            40 => Err(anyhow!("forty")),
            _ => Ok(number),
        };
        let error = in_order(0..1000, 3, failing, |number, _| {
            assert!(number < 40);
            Ok(())
        });
        assert_eq!(error.expect_err("it fails").to_string(), "forty");
        let error = in_order(0..1000, 3, Ok, |number, _| match number {
            7 => Err(anyhow!("seven")),
            _ => Ok(()),
        });
        assert_eq!(error.expect_err("it fails").to_string(), "seven");
    }

    #[test]
    #[should_panic(expected = "a test's panic")]
    fn a_panic_of_a_worker_is_the_caller_s() {
        let work = |number: u64| match number {
            3 => panic!("a test's panic"),
            _ => Ok(()),
        };
        drop(in_order(0..1000, 2, work, |_, ()| Ok(())));
    }
}
