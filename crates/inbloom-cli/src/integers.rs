//! A set of integers to sort: any 64-bit ones, or those below a bound.
//!
//! Below a bound it is the library's bitmap, one bit for each possible integer. Without one, no
//! such array would do: 2^64 bits are 2 EB. Integers that lie close to each other then go into a
//! roaring bitmap, where they take 2 bytes each or less; but one that is alone in its range takes
//! some 260 there, so it stays as it is, in a sorted list:
//!
//! ```text
//!   came     7 3 9000000000 5 3 ...     as they come, until there are many
//!   sorted   3 5 7 ... | 9000000000     ranges of 65,536 with 64 of them or more | the others
//!            close: roaring bitmap        lonely: 8 bytes each
//! ```
//!
//! So the set takes at most some 8 bytes for each of its members, and as much again while sorting.

use std::iter;

use anyhow::Result;
use inbloom::{Bitmap, Digest, Filter, Kind, Plan, PlanBuilder};

/// Bits of the range of integers that a container of a roaring bitmap is for.
const RANGE: u32 = 16;
/// As many integers of one range are close. A container of its own, with all that leads to it,
/// takes some 300 bytes; 64 integers take 512 as they are, and 128 in a container.
const CLOSE: usize = 64;
/// Integers that come before they are sorted for the first time: 8 MiB.
const ROOM: usize = 1 << 20;

pub enum Integers {
    Below(Filter),
    Any(Scattered),
}

pub struct Scattered {
    close: Bitmap,
    /// Those that are lonely, and behind them those that came since, in no order.
    loose: Vec<u64>,
    /// How many may be loose before they are sorted again.
    room: usize,
}

fn bitmap(universe: u64) -> PlanBuilder {
    Plan::builder(Kind::Bitmap).universe(universe)
}

impl Integers {
    /// Returns an empty set of integers below `universe`, in so many bits, whatever comes.
    pub fn below(universe: u64) -> Result<Integers> {
        // If all of them may come, the plan does not choose the roaring bitmap.
        let plan = bitmap(universe).items(universe).build()?;
        Ok(Integers::Below(Filter::new(plan)?))
    }

    /// Returns an empty set of any integers.
    pub fn any() -> Result<Integers> {
        let plan = bitmap(u64::MAX).build()?;
        let scattered = Scattered { close: Bitmap::new(plan)?, loose: Vec::new(), room: ROOM };
        Ok(Integers::Any(scattered))
    }

    /// Adds integers as the digests of `Hasher::integers`. There is an error if one is not below
    /// the bound.
    pub fn insert(&mut self, digests: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        match self {
            Integers::Below(filter) => filter.insert_digests(digests, new)?,
            Integers::Any(scattered) => {
                scattered.loose.extend(digests.iter().map(|digest| digest.place));
                if scattered.loose.len() >= scattered.room {
                    scattered.settle()?;
                }
            }
        }
        Ok(())
    }

    /// To be called when all have come, before they are counted and read.
    pub fn finish(&mut self) {
        if let Integers::Any(Scattered { close, loose, .. }) = self {
            loose.sort_unstable();
            loose.dedup();
            loose.retain(|integer| !close.contains(*integer));
        }
    }

    /// Returns how many there are.
    pub fn len(&self) -> u64 {
        match self {
            Integers::Below(filter) => filter.occupied(),
            Integers::Any(scattered) => scattered.close.len() + scattered.loose.len() as u64,
        }
    }

    /// All of them in ascending order.
    pub fn iter(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        match self {
            Integers::Below(filter) => Box::new(filter.as_bitmap().expect("it is one").iter()),
            Integers::Any(scattered) => Box::new(scattered.iter()),
        }
    }
}

impl Scattered {
    /// Moves what is close into the bitmap. If many are lonely more may come before the next time,
    /// or they would be sorted again and again.
    fn settle(&mut self) -> Result<()> {
        self.loose.sort_unstable();
        self.loose.dedup();
        let (mut start, mut lonely) = (0, 0);
        while let Some(&first) = self.loose.get(start) {
            let same_range = |integer: &&u64| **integer >> RANGE == first >> RANGE;
            let count = self.loose[start..].iter().take_while(same_range).count();
            let range = start..start + count;
            // The library's bitmap has no bit for the very last integer, so its range stays.
            if count >= CLOSE && first >> RANGE != u64::MAX >> RANGE {
                for integer in &self.loose[range] {
                    self.close.insert(*integer)?;
                }
            } else {
                self.loose.copy_within(range, lonely);
                lonely += count;
            }
            start += count;
        }
        self.loose.truncate(lonely);
        self.room = ROOM.max(2 * lonely);
        Ok(())
    }

    /// Two sorted sequences that have nothing in common, as one.
    fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let mut close = self.close.iter().peekable();
        let mut loose = self.loose.iter().copied().peekable();
        iter::from_fn(move || match (close.peek(), loose.peek()) {
            (Some(one), Some(other)) if one < other => close.next(),
            (Some(_), None) => close.next(),
            _ => loose.next(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn close_and_lonely_integers_come_out_sorted_and_once() {
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state
        };
        let mut set = Integers::any().expect("little memory");
        let mut model: BTreeSet<u64> = BTreeSet::new();
        let mut new = Vec::new();
        for round in 0..40_u64 {
            // Dense at the bottom, dense far up, scattered, both ends, and the last range of all.
            let some: Vec<u64> = (0..500)
                .flat_map(|_| [random() >> 48, (1 << 63) + (random() >> 52), random()])
                .chain([0, u64::MAX, u64::MAX - round])
                .chain((0..100).map(|number| u64::MAX - number))
                .collect();
            model.extend(&some);
            let digests: Vec<Digest> =
                some.iter().map(|&place| Digest { place, print: 0 }).collect();
            set.insert(&digests, &mut new).expect("any integer is taken");
            let Integers::Any(scattered) = &mut set else { panic!("it was made for any") };
            // As if many more had come.
            scattered.settle().expect("any integer is taken");
        }
        set.finish();
        let Integers::Any(scattered) = &set else { panic!("it was made for any") };
        assert!(scattered.close.len() > 10_000, "the bitmap has {}", scattered.close.len());
        assert!(scattered.loose.len() > 20_000, "the list has {}", scattered.loose.len());
        assert_eq!(set.len(), model.len() as u64);
        assert!(set.iter().eq(model));
    }
}
