//! Work that is done by several threads, with results that come in order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::thread;

use anyhow::{Result, anyhow};

/// Does `work` for all numbers on some threads, and hands the results over in order. No thread is
/// ahead of that by more than twice as many numbers as there are threads; a single one is not ahead
/// at all, so that there is one result at a time.
pub fn in_order<T: Send>(
    numbers: Range<u64>,
    threads: usize,
    work: impl Fn(u64) -> Result<T> + Sync,
    mut take: impl FnMut(u64, T) -> Result<()>,
) -> Result<()> {
    let line = Line {
        state: Mutex::new(Turn { next: numbers.start, taken: numbers.start, stopped: false }),
        changed: Condvar::new(),
        end: numbers.end,
        lead: if threads == 1 { 1 } else { 2 * threads as u64 },
    };
    thread::scope(|scope| {
        // Whatever ends this, also a panic: nobody waits for a turn that does not come.
        let _end = StopAtEnd(&line);
        let (send, done) = mpsc::channel();
        for _ in 0..threads {
            let (send, line, work) = (send.clone(), &line, &work);
            scope.spawn(move || {
                let _end = StopAtEnd(line);
                while let Some(number) = line.next() {
                    if send.send((number, work(number))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        let hand_over = || {
            let mut early = BTreeMap::new();
            for number in numbers {
                let result = loop {
                    if let Some(result) = early.remove(&number) {
                        break result;
                    }
                    let (number, result) = done.recv().map_err(|_| anyhow!("a worker panicked"))?;
                    early.insert(number, result);
                };
                take(number, result?)?;
                line.change(|turn| turn.taken += 1);
            }
            Ok(())
        };
        hand_over()
    })
}

/// Which numbers are to be worked on.
struct Line {
    state: Mutex<Turn>,
    changed: Condvar,
    end: u64,
    lead: u64,
}

struct Turn {
    next: u64,
    /// The results of all numbers before this one were handed over.
    taken: u64,
    stopped: bool,
}

impl Line {
    /// A number to work on, when it is its turn; None at the end.
    fn next(&self) -> Option<u64> {
        let turn = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |turn: &mut Turn| {
            !turn.stopped && turn.next < self.end && turn.next >= turn.taken + self.lead
        };
        let turn = self.changed.wait_while(turn, waits);
        let mut turn = turn.unwrap_or_else(PoisonError::into_inner);
        if turn.stopped || turn.next >= self.end {
            return None;
        }
        turn.next += 1;
        Some(turn.next - 1)
    }

    fn change(&self, change: impl FnOnce(&mut Turn)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

/// Stops the line when it goes. A worker ends when no number is left, or in a panic: the others must
/// not wait for what that has taken away.
struct StopAtEnd<'a>(&'a Line);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.change(|turn| turn.stopped = true);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

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
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_of_a_worker_is_not_waited_for() {
        let work = |number: u64| match number {
            3 => panic!("a test's panic"),
            _ => Ok(()),
        };
        drop(in_order(0..1000, 2, work, |_, ()| Ok(())));
    }
}
