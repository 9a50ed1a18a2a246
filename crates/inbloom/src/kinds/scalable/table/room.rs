//! Room for an entry whose two buckets are full.

use alloc::vec::Vec;
use core::array;

use super::slot::offset;
use super::{BucketPlace, Spot, Table};
use crate::kernels::Towards;
use crate::kernels::lanes::LANES;

/// Buckets that are searched for a free slot. A search that fails looks at all of them for nothing, so
/// that few are worse than many: simulated at a load of 0.9, 160 and 256 end after 8 buckets on
/// average, and 64 fail so often that tables are filled to 0.87 only, after 18.
const SEARCHED: usize = 256;
/// How many buckets before its turn a bucket of a long search is asked for.
const AHEAD: usize = 4;
/// Steps that most searches do with, for which memory is taken at first.
const FOUND_MOSTLY: usize = 32;

impl Table {
    /// Makes room for an entry by moving others to their other bucket, and sets it. Both of its
    /// buckets are full. Nothing moves before it is known where all of them go.
    #[inline(never)]
    pub(super) fn make_room(&mut self, places: [BucketPlace; 2], spot: Spot, known: u32) -> bool {
        // An entry that does not tell which half it is for cannot go to a bucket that is split.
        let starts = if known < self.level + places[1].is_split { 1 } else { 2 };
        // At a load of 0.9 nearly every search ends here, and needs no list of what it has seen.
        let freed = (0..starts).find_map(|away| Some((away, self.move_one(places[away])?)));
        let Some((away, slot)) = freed.or_else(|| self.move_many(&places[..starts])) else {
            return false;
        };
        let place = places[away];
        let lane = self.lane(spot, place, away as u32, known);
        self.set(place.bucket, slot, lane, spot.extra);
        self.count(known);
        true
    }

    /// Moves one entry of a full bucket to its other bucket, if one of these has a free slot. Returns
    /// the slot that is free now.
    fn move_one(&mut self, full: BucketPlace) -> Option<usize> {
        for (slot, lane) in self.lanes(full.bucket).into_iter().enumerate() {
            let Some(other) = self.other_of(full, lane) else { continue };
            if let Some(free) = self.free_slot(other.bucket) {
                self.move_to(full, slot, other, free);
                return Some(slot);
            }
        }
        None
    }

    /// A slot of a bucket, to be filled now. One that is known to be full is not looked at: so memory is
    /// waited for only where there is room, and hardly ever in vain.
    #[inline(always)]
    fn free_slot(&mut self, bucket: u64) -> Option<usize> {
        if self.full.has(bucket) {
            return None;
        }
        let empty = self.empty(bucket);
        self.note_filled(bucket, empty);
        (empty != 0).then_some(empty.trailing_zeros() as usize)
    }

    #[inline(always)]
    fn move_to(&mut self, from: BucketPlace, slot: usize, to: BucketPlace, free: usize) {
        let (lane, extra) = self.get(from.bucket, slot);
        let moved = self.moved(from, lane, to);
        self.set(to.bucket, free, moved, extra);
    }

    /// Finds the shortest chain of entries that can each move to their other bucket, the last of
    /// them into a free slot, and moves them. Returns which of the full buckets has a free slot
    /// then, and which slot.
    ///
    /// The shortest chain has no bucket twice, so that no move undoes another.
    ///
    /// A bucket is looked into when it is followed, and asked for some buckets before that.
    #[cold]
    fn move_many(&mut self, full: &[BucketPlace]) -> Option<(usize, usize)> {
        struct Step {
            place: BucketPlace,
            /// Which step led here, by moving the entry in which of its slots.
            from: usize,
            slot: usize,
        }
        let mut steps = Vec::with_capacity(FOUND_MOSTLY);
        let starts = full.len();
        steps.extend(full.iter().map(|&place| Step { place, from: usize::MAX, slot: 0 }));
        let mut from = 0;
        let (mut last, mut free) = 'search: loop {
            let next = steps.get(from).filter(|_| steps.len() < SEARCHED);
            let &Step { place, .. } = next?;
            for (slot, lane) in self.lanes(place.bucket).into_iter().enumerate() {
                let Some(other) = self.other_of(place, lane) else { continue };
                steps.push(Step { place: other, from, slot });
                if from < starts {
                    // Where these lead to is known to have no room. The first are followed next.
                    if steps.len() <= starts + AHEAD {
                        self.prefetch_bucket(other.bucket, Towards::NearToWrite);
                    }
                } else if let Some(free) = self.free_slot(other.bucket) {
                    break 'search (steps.len() - 1, free);
                }
            }
            from += 1;
            if from > starts
                && let Some(later) = steps.get(from - 1 + AHEAD)
            {
                self.prefetch_bucket(later.place.bucket, Towards::NearToWrite);
            }
        };
        while let Step { place, from, slot } = steps[last]
            && from != usize::MAX
        {
            self.move_to(steps[from].place, slot, place, free);
            (last, free) = (from, slot);
        }
        Some((last, free))
    }

    /// The lanes of a bucket.
    #[inline(always)]
    pub(super) fn lanes(&self, bucket: u64) -> [u32; LANES] {
        let bytes = self.bucket(bucket);
        let (narrow, wide) = (bytes.as_chunks::<2>().0, bytes.as_chunks::<4>().0);
        match self.slots.is_wide {
            true => array::from_fn(|slot| u32::from_le_bytes(wide[slot])),
            false => array::from_fn(|slot| u16::from_le_bytes(narrow[slot]).into()),
        }
    }

    /// The other bucket of an entry; None if it does not tell which half of that it is for. Without
    /// branches: which buckets are split is a coin.
    #[inline(always)]
    pub(super) fn other_of(&self, place: BucketPlace, lane: u32) -> Option<BucketPlace> {
        let tail = self.slots.tail();
        let offset = offset(lane >> (tail + 1));
        let address = place.bucket ^ offset;
        let low = address & self.mask;
        let is_split = low < self.split;
        // The next bit of the address is in the number of this bucket if that is split, or else in
        // the lane, as the next bit of the home's address.
        let in_number = address >> self.level;
        let away = u64::from(!self.is_away(lane)) & offset >> self.level;
        let in_lane = u64::from(lane >> tail) ^ away;
        let next = if place.is_split == 1 { in_number } else { in_lane } & 1;
        let bucket = low | (next & u64::from(is_split)) << self.level;
        // An empty slot, or one that is none of ours, has no bit of an address either.
        let has_next = place.is_split == 1 || lane & ((1 << tail) - 1) != 0;
        (has_next | !is_split).then_some(BucketPlace { bucket, is_split: is_split.into() })
    }

    /// The lane that an entry has in its other bucket.
    pub(super) fn moved(&self, from: BucketPlace, lane: u32, to: BucketPlace) -> u32 {
        let tail = self.slots.tail();
        let rest = lane & ((2 << tail) - 1);
        let front = lane - rest;
        let rest = match (from.is_split, to.is_split) {
            (0, 1) => rest << 1 & ((2 << tail) - 1),
            (1, 0) => {
                let offset = if self.is_away(lane) { offset(lane >> (tail + 1)) } else { 0 };
                let bit = ((from.bucket ^ offset) >> self.level) as u32 & 1;
                // A lane without room for one bit more is none of ours: it loses its last.
                rest >> 1 | bit << tail | u32::from(rest & 1 == 1)
            }
            _ => rest,
        };
        (front | rest) ^ 1 << (self.slots.lane() - 1)
    }
}
