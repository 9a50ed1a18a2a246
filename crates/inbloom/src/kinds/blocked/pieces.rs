//! A filter in pieces: ranges of its blocks, each filled by itself, in any order and by any number of
//! threads. One after the other they are the filter to the byte, which need never be in memory as a
//! whole.

use core::fmt;
use core::ops::RangeInclusive;

use super::check_reserved;
use crate::digest::Digest;
use crate::error::Result;
use crate::kernels::{Geometry, scalar};
use crate::kind::Kind;
use crate::plan::Plan;
use crate::storage::Cells;

/// The blocks of a piece, about: 1 MiB, unless that would be more pieces than so many.
const BLOCKS: u64 = 1 << 14;
const MOST: u64 = 2048;

/// Which digests belong to which piece of a filter.
///
/// ```
/// use inbloom::internals::kinds::blocked::{Blocked, Pieces};
/// use inbloom::{Hasher, Kind, Plan};
///
/// let plan = Plan::builder(Kind::Blocked).items(10_000_000).rate(1e-4).build()?;
/// let pieces = Pieces::new(plan);
/// let hasher = Hasher::default();
/// let digests: Vec<_> = (0..1000_u64).map(|key| hasher.digest(key.to_le_bytes())).collect();
/// let mut bytes = Vec::new();
/// for number in 0..pieces.count() {
///     let range = pieces.places(number);
///     let mut piece = pieces.empty(number)?;
///     // Where there are more than fit into memory: from a file of each range.
///     digests.iter().filter(|digest| range.contains(&digest.place)).for_each(|digest| {
///         piece.insert(*digest);
///     });
///     bytes.extend_from_slice(piece.bytes());
/// }
/// assert_eq!(bytes.len() as u64, plan.bytes());
/// # Ok::<(), inbloom::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    geometry: Geometry,
    /// What pieces are made of: ranges if both lines of a key must be in one piece, else blocks.
    units: u64,
    unit_blocks: u64,
    /// Units of every piece but the last, which may have fewer.
    each: u64,
}

impl Pieces {
    /// Returns the pieces of a plan. Panics if it is for another kind, or for one shard of several.
    #[must_use]
    pub fn new(plan: Plan) -> Pieces {
        assert_eq!(plan.kind(), Kind::Blocked, "a plan for another kind");
        assert_eq!(plan.shard(), None, "a plan for a part of a filter");
        let geometry = Geometry::new(&plan);
        let (units, unit_blocks) = match geometry.lines {
            1 => (geometry.blocks, 1),
            _ => (geometry.ranges, geometry.range_blocks),
        };
        let each = (BLOCKS / unit_blocks).max(units.div_ceil(MOST)).max(1);
        Pieces { geometry, units, unit_blocks, each }
    }

    /// Returns the number of pieces, at least 1.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.units.div_ceil(self.each)
    }

    /// Returns the places of the digests that belong to a piece. Panics if there is no such piece.
    #[must_use]
    pub fn places(&self, piece: u64) -> RangeInclusive<u64> {
        let (first, end) = self.units_of(piece);
        let of = |unit| Digest::places(unit, self.units);
        *of(first).start()..=*of(end - 1).end()
    }

    /// Returns a piece without keys. Panics if there is no such piece.
    pub fn empty(&self, piece: u64) -> Result<Piece> {
        let (first, end) = self.units_of(piece);
        let cells = Cells::zeroed((end - first) * self.unit_blocks * 64)?;
        let first_block = first * self.unit_blocks;
        Ok(Piece { geometry: self.geometry, first_block, cells, inserted: 0 })
    }

    /// Returns the bytes of a piece. Panics if there is no such piece.
    #[must_use]
    pub fn bytes(&self, piece: u64) -> usize {
        let (first, end) = self.units_of(piece);
        ((end - first) * self.unit_blocks * 64) as usize
    }

    /// Returns a piece of which the bytes are known. Panics if there is no such piece, or if it has
    /// another number of bytes.
    ///
    /// # Errors
    ///
    /// Refuses bytes in which a reserved bit is set.
    pub fn read(&self, piece: u64, bytes: &[u8]) -> Result<Piece> {
        check_reserved(0, bytes)?;
        let mut read = self.empty(piece)?;
        read.cells.bytes_mut()?.copy_from_slice(bytes);
        Ok(read)
    }

    fn units_of(&self, piece: u64) -> (u64, u64) {
        assert!(piece < self.count(), "piece {piece} of {}", self.count());
        (piece * self.each, ((piece + 1) * self.each).min(self.units))
    }
}

/// A range of a filter's blocks.
pub struct Piece {
    geometry: Geometry,
    first_block: u64,
    cells: Cells,
    inserted: u64,
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piece")
            .field("first_block", &self.first_block)
            .field("inserted", &self.inserted)
            .finish_non_exhaustive()
    }
}

impl Piece {
    /// Inserts a digest, and tells whether it is certainly new. Panics if it belongs to another
    /// piece.
    pub fn insert(&mut self, digest: Digest) -> bool {
        let (lines, _) = self.cells.bytes_mut().expect("memory of its own").as_chunks_mut::<64>();
        let mut added = 0;
        for touch in scalar::touches(&self.geometry, digest) {
            // A block before the first becomes a number that is larger than any.
            let line = &mut lines[touch.block.wrapping_sub(self.first_block) as usize];
            for (bytes, mask) in line.as_chunks_mut::<8>().0.iter_mut().zip(touch.mask) {
                let word = u64::from_le_bytes(*bytes);
                added |= mask & !word;
                *bytes = (word | mask).to_le_bytes();
            }
        }
        self.inserted += u64::from(added != 0);
        added != 0
    }

    /// Sets how many inserts count as "new": for pieces whose keys were counted elsewhere.
    pub fn set_inserted(&mut self, inserted: u64) {
        self.inserted = inserted;
    }

    /// Returns how many inserts reported a new key.
    #[must_use]
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// Its part of the filter's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.cells.bytes()
    }

    /// Returns the number of bits that are set.
    #[must_use]
    pub fn occupied(&self) -> u64 {
        self.cells.count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Hasher;
    use crate::filter::Filter;

    /// Of one line and of two; of one piece, of many, and with a last one that is shorter.
    fn plans() -> Vec<Plan> {
        let plan = |items, rate, lines| {
            Plan::builder(Kind::Blocked)
                .items(items)
                .rate(rate)
                .lines(lines)
                .build()
                .expect("a plan")
        };
        let mut plans = Vec::new();
        for lines in [1, 2] {
            for items in [1, 1000, 300_000, 5_000_000, 20_000_000] {
                plans.extend([0.1, 1e-3, 1e-5].map(|rate| plan(items, rate, lines)));
            }
        }
        plans
    }

    #[test]
    fn places_of_all_pieces_are_all_places() {
        for plan in plans() {
            let pieces = Pieces::new(plan);
            let ranges: Vec<_> = (0..pieces.count()).map(|piece| pieces.places(piece)).collect();
            assert_eq!((*ranges[0].start(), *ranges[ranges.len() - 1].end()), (0, u64::MAX));
            for pair in ranges.windows(2) {
                assert_eq!(*pair[0].end() + 1, *pair[1].start(), "{plan:?}");
            }
        }
    }

    #[test]
    fn pieces_one_after_the_other_are_the_filter() {
        let hasher = Hasher::default();
        for plan in plans() {
            let keys = plan.items().min(30_000);
            let mut digests: Vec<_> =
                (0..keys).map(|key| hasher.digest(key.to_le_bytes())).collect();
            digests.extend_from_within(..keys as usize / 3);
            digests.sort_unstable_by_key(|digest| (digest.place, digest.print));
            let mut filter = Filter::with_hasher(plan, hasher).expect("memory");
            let mut told = Vec::new();
            filter.insert_digests(&digests, &mut told).expect("writable");

            let pieces = Pieces::new(plan);
            let (mut bytes, mut ones, mut inserted) = (Vec::new(), 0, 0);
            let mut told = told.into_iter();
            let mut next = 0;
            for number in 0..pieces.count() {
                let mut piece = pieces.empty(number).expect("memory");
                let range = pieces.places(number);
                let end = digests.partition_point(|digest| digest.place <= *range.end());
                for digest in &digests[next..end] {
                    assert_eq!(Some(piece.insert(*digest)), told.next(), "{plan:?}");
                }
                next = end;
                bytes.extend_from_slice(piece.bytes());
                (ones, inserted) = (ones + piece.occupied(), inserted + piece.inserted());
            }
            let payload = filter.content.measured().payload();
            assert!(bytes == *payload, "{plan:?}");
            assert_eq!((ones, inserted), (filter.occupied(), filter.inserted()), "{plan:?}");
        }
    }

    #[test]
    fn a_piece_is_read_from_its_bytes_unless_a_reserved_bit_is_set() {
        let plan = Plan::builder(Kind::Blocked).items(2_000_000).rate(1e-3).build();
        let pieces = Pieces::new(plan.expect("a plan"));
        let last = pieces.count() - 1;
        let mut piece = pieces.empty(last).expect("memory");
        piece.insert(Digest { place: *pieces.places(last).start(), print: 7 });
        let mut bytes = piece.bytes().to_vec();
        assert_eq!(bytes.len(), pieces.bytes(last));
        let mut read = pieces.read(last, &bytes).expect("it is valid");
        assert_eq!((read.bytes(), read.occupied()), (piece.bytes(), piece.occupied()));
        read.set_inserted(5);
        assert_eq!(read.inserted(), 5);
        bytes[127] |= 0x80;
        let error = pieces.read(last, &bytes).expect_err("a reserved bit");
        assert!(error.to_string().contains("unused bits"), "{error}");
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn a_digest_of_another_piece_is_refused() {
        let pieces = Pieces::new(
            Plan::builder(Kind::Blocked).items(5_000_000).rate(1e-3).build().expect("a plan"),
        );
        let mut second = pieces.empty(1).expect("memory");
        second.insert(Digest { place: *pieces.places(1).start() - 1, print: 7 });
    }
}
