//! How a table gets one more bucket.

use core::array;

use super::slot::offset;
use super::{CHUNK, CHUNK_MASK, Table};
use crate::error::Result;
use crate::kernels::lanes::LANES;
use crate::storage::Cells;

/// Buckets by which a chunk becomes larger, at most.
const PART: u64 = 1 << (CHUNK - 2);

impl Table {
    /// Whether it should grow before it gets many more entries.
    #[inline(always)]
    pub(crate) fn is_crowded(&self) -> bool {
        self.entries > self.enough
    }

    /// The bytes of memory that it takes to have one more bucket, and of that, how much it has already
    /// and gives back.
    #[inline(always)]
    pub(crate) fn wants(&self) -> Option<(u64, u64)> {
        if self.buckets() < self.capacity() {
            return None;
        }
        Some(self.wanted_memory())
    }

    #[cold]
    fn wanted_memory(&self) -> (u64, u64) {
        // The last chunk becomes larger by a 32nd of the table, at most by a quarter of a whole chunk,
        // and a whole one is followed by such a part. So hardly any memory is not in use.
        let capacity = self.capacity();
        let in_last = capacity & CHUNK_MASK;
        let more = (capacity / 32).clamp(4, PART);
        let last = self.chunks.last().filter(|_| in_last != 0);
        let given_back = last.map_or(0, |chunk| chunk.bytes().len() as u64);
        let bytes = self.slots.bytes((in_last + more).min(1 << CHUNK));
        (bytes.unwrap_or(u64::MAX), given_back)
    }

    /// Takes memory of as many bytes as it [`wants`](Table::wants).
    pub(crate) fn take(&mut self, mut memory: Cells) -> Result<()> {
        let in_last = self.capacity() & CHUNK_MASK;
        if in_last != 0 {
            let last = self.chunks.pop().expect("a chunk that is not whole");
            // What pads the last bucket of a file is no bucket, and may be anything.
            let buckets = in_last as usize * usize::from(self.stride);
            memory.bytes_mut()?[..buckets].copy_from_slice(&last.bytes()[..buckets]);
        }
        self.push(memory);
        Ok(())
    }

    /// Splits one more bucket, for which there must be memory.
    pub(crate) fn split(&mut self) {
        debug_assert!(self.buckets() < self.capacity());
        let (lower, upper) = (self.split, self.split + self.mask + 1);
        let lanes = self.lanes(lower);
        let mut extras = [0; LANES];
        if self.slots.planes > 0 {
            extras = array::from_fn(|slot| self.get(lower, slot).1);
        }
        self.bucket_mut(lower).fill(0);
        self.bucket_mut(upper).fill(0);
        self.full.note_room(lower);
        let tail = self.slots.tail();
        let end = 1 << tail;
        let mut count = [0; 2];
        for (lane, extra) in lanes.into_iter().zip(extras) {
            if lane == 0 {
                continue;
            }
            let rest = lane & (2 * end - 1);
            let front = lane - rest;
            let away = lane >> (self.slots.lane() - 1);
            if rest == end {
                // Nothing is known of the next bit: it is in both.
                for (side, bucket) in [lower, upper].into_iter().enumerate() {
                    self.set(bucket, count[side], lane, extra);
                    count[side] += 1;
                }
                self.entries += 1;
                continue;
            }
            let moved = (offset(lane >> (tail + 1)) >> self.level) as u32 & away;
            let side = ((rest >> tail ^ moved) & 1) as usize;
            self.set([lower, upper][side], count[side], front | rest << 1 & (2 * end - 1), extra);
            count[side] += 1;
        }
        self.split += 1;
        if self.split > self.mask {
            (self.split, self.mask, self.level) = (0, 2 * self.mask + 1, self.level + 1);
        }
        self.enough = self.enough();
        self.is_stuck &= self.is_crowded();
    }
}
