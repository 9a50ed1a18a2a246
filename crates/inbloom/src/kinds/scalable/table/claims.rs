//! What the entries of a table claim, one by one, and claims of other tables put in: for merges, other
//! shapes, and counts.

use super::slot::offset;
use super::{CHUNK, Claim, HEAD, Spot, Table};
use crate::kernels::lanes::LANES;
use crate::kinds::scalable::ClaimLengths;

impl Table {
    /// Every entry's claim.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Claim> + Clone + '_ {
        (0..self.buckets()).flat_map(|bucket| self.claims_in(bucket))
    }

    fn claims_in(&self, bucket: u64) -> impl Iterator<Item = Claim> + Clone + '_ {
        (0..LANES).filter_map(move |slot| {
            let (lane, extra) = self.get(bucket, slot);
            self.length(lane).map(|length| self.claim(bucket, lane, extra, length))
        })
    }

    fn claim(&self, bucket: u64, lane: u32, extra: u64, length: u32) -> Claim {
        let (tail, level) = (self.slots.tail(), self.level_of(bucket));
        let front = lane >> (tail + 1) & ((1 << self.slots.front()) - 1);
        let at_home = if self.is_away(lane) { offset(front) } else { 0 };
        let home = (bucket ^ at_home) & ((1 << level) - 1);
        // The first bit of the address is on top.
        let bits = u64::from(lane & ((2 << tail) - 1)).reverse_bits() >> (63 - tail);
        let bits = bits & ((1 << length) - 1);
        Claim {
            tag: (front >> HEAD) as u8,
            head: front as u8 % (1 << HEAD),
            extra,
            address: home | bits << level,
            known: level + length,
        }
    }

    /// How many entries there are of each length in the first buckets.
    pub(crate) fn lengths(&self, buckets: u64) -> ClaimLengths {
        let mut lengths = ClaimLengths([0; 128]);
        for bucket in 0..buckets.min(self.buckets()) {
            for slot in 0..LANES {
                if let Some(length) = self.length(self.get(bucket, slot).0) {
                    let bits = self.slots.fixed() + self.level_of(bucket) + length;
                    lengths.0[bits.min(127) as usize] += 1;
                }
            }
        }
        lengths
    }

    /// The length of the shortest entries that can be: these may have become two, or more, of one.
    pub(crate) fn shortest(&self) -> u32 {
        self.slots.fixed() + self.level + u32::from(self.split > 0)
    }

    /// The entries and their weight, counted anew: None if the cells are not what a table holds.
    pub(crate) fn recount(&self) -> Option<(u64, u128)> {
        let (mut entries, mut weight) = (0, 0);
        for bucket in 0..self.buckets() {
            let longest = self.slots.tail() - self.is_split(bucket);
            for slot in 0..LANES {
                match self.get(bucket, slot) {
                    (0, 0) => {}
                    (0, _) => return None,
                    (lane, _) => {
                        self.length(lane).filter(|length| *length <= longest)?;
                        entries += 1;
                        weight += self.weight_of(bucket, lane);
                    }
                }
            }
        }
        self.is_empty_behind().then_some((entries, weight))
    }

    /// Whether all is zero behind the last bucket, which is where buckets to come will be.
    fn is_empty_behind(&self) -> bool {
        let firsts = (0..).step_by(1 << CHUNK);
        self.chunks.iter().zip(firsts).all(|(chunk, first)| {
            let buckets = self.buckets().saturating_sub(first).min(1 << CHUNK);
            let behind = chunk.bytes().get(buckets as usize * usize::from(self.stride)..);
            behind.unwrap_or_default().iter().all(|byte| *byte == 0)
        })
    }

    /// Takes over a claim of any table, if there is room, from which all claims come or none: they
    /// are disjoint. What it knows beyond the longest fingerprint is dropped, and what it lacks is
    /// completed in all ways. If there is no room for all of these, some may be in.
    pub(crate) fn absorb(&mut self, claim: Claim) -> bool {
        self.complete(claim, &mut |table, claim| {
            let spot = table.spot_of(claim);
            // Two may have been told apart only by the bits that are dropped.
            claim.known > table.longest() && table.claims(spot) || table.put(spot, claim.known)
        })
    }

    /// As [`Table::absorb`], where parts of the claim may be in the table already.
    pub(crate) fn merge(&mut self, claim: Claim) -> bool {
        self.complete(claim, &mut |table, claim| {
            table.covers(claim) || table.put(table.spot_of(claim), claim.known)
        })
    }

    /// Calls `put` with the claim, or with all longer ones that make it up if it does not tell its
    /// home, as long as that returns true.
    fn complete(&mut self, claim: Claim, put: &mut impl FnMut(&mut Table, Claim) -> bool) -> bool {
        let home = self.place(claim.address);
        if claim.known >= self.level && claim.known >= self.level + home.is_split {
            return put(self, claim);
        }
        let zero = Claim { known: claim.known + 1, ..claim };
        let one = Claim { address: claim.address | 1 << claim.known, ..zero };
        self.complete(zero, put) && self.complete(one, put)
    }

    /// Whether one entry claims all that the claim does.
    pub(super) fn covers(&self, claim: Claim) -> bool {
        let spot = self.spot_of(claim);
        let mut near = self.places(spot).into_iter().flat_map(|place| self.claims_in(place.bucket));
        near.any(|entry| {
            let same = entry.address ^ claim.address & ((1_u64 << entry.known) - 1) == 0;
            // A claim of a table with tags keeps its tag where entries have none.
            let is_alike = self.spot_of(entry).front == spot.front && entry.extra == claim.extra;
            entry.known <= claim.known && same && is_alike
        })
    }

    /// Puts an entry of so many bits, or as many as fit, into its home or its other bucket.
    fn put(&mut self, spot: Spot, known: u32) -> bool {
        let known = known.min(self.longest());
        let places = self.places(spot);
        for (away, place) in places.into_iter().enumerate() {
            let empty = self.empty(place.bucket);
            if empty != 0 && known >= self.level + place.is_split {
                let lane = self.lane(spot, place, away as u32, known);
                self.set(place.bucket, empty.trailing_zeros() as usize, lane, spot.extra);
                self.count(known);
                return true;
            }
        }
        self.make_room(places, spot, known)
    }
}
