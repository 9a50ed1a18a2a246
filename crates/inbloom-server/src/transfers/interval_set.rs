//! Which bytes of a body have arrived.

use std::collections::BTreeMap;
use std::ops::Range;

use super::loading::MOST_PIECES;
use crate::reply_error::ReplyError;

/// A set of numbers, kept as ranges that neither overlap nor touch: from the start of each to its
/// end.
#[derive(Default)]
pub struct IntervalSet {
    spans: BTreeMap<u64, u64>,
    covered: u64,
}

impl IntervalSet {
    /// How many numbers are in it.
    pub fn covered(&self) -> u64 {
        self.covered
    }

    /// How many ranges it is kept as.
    pub fn count(&self) -> usize {
        self.spans.len()
    }

    /// Adds a range, and returns those parts of it that were not there, in order.
    pub fn add(&mut self, range: Range<u64>) -> Result<Vec<Range<u64>>, ReplyError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        // The last that begins within it or at its end, and those before that do not end earlier.
        let before = self.spans.range(..=range.end).rev();
        let mut met: Vec<(u64, u64)> = before
            .map(|(start, end)| (*start, *end))
            .take_while(|(_, end)| *end >= range.start)
            .collect();
        met.reverse();
        if met.is_empty() && self.spans.len() >= MOST_PIECES {
            return Err(ReplyError::with(format!(
                "ERR more than {MOST_PIECES} chunks with gaps between them: load them in order"
            )));
        }
        let (mut gaps, mut at) = (Vec::new(), range.start);
        let (mut first, mut last) = (range.start, range.end);
        for (start, end) in met {
            if at < start {
                gaps.push(at..start);
            }
            at = at.max(end);
            (first, last) = (first.min(start), last.max(end));
            self.spans.remove(&start);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        self.spans.insert(first, last);
        self.covered += gaps.iter().map(|gap| gap.end - gap.start).sum::<u64>();
        Ok(gaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_the_set_of_their_numbers() {
        let (mut state, mut ranges) = (1u64, IntervalSet::default());
        let mut naive = [false; 64];
        for _ in 0..400 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (start, length) = ((state >> 33) % 60, (state >> 50) % 5);
            let before = naive;
            naive[start as usize..(start + length) as usize].fill(true);
            let gaps = ranges.add(start..start + length).unwrap();
            let new: Vec<u64> = gaps.into_iter().flatten().collect();
            let expected: Vec<u64> =
                (0..64).filter(|at| naive[*at as usize] && !before[*at as usize]).collect();
            assert_eq!(new, expected);
            assert_eq!(ranges.covered(), naive.iter().filter(|there| **there).count() as u64);
            let merged: Vec<_> = ranges.spans.iter().collect();
            assert!(merged.windows(2).all(|pair| pair[0].1 < pair[1].0), "{merged:?}");
            if ranges.covered() > 50 {
                (ranges, naive) = (IntervalSet::default(), [false; 64]);
            }
        }
    }
}
