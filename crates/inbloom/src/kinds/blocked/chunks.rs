//! A filter in chunks that a Redis server keeps as one string each: ranges of at most 16,383 blocks,
//! each with all lines of its keys. One after the other they are the filter to the byte.

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::kernels::{Geometry, scalar};
use crate::kind::Kind;
use crate::plan::Plan;
use crate::plan::lines::RANGE_BLOCKS;

/// Which chunk the bits of a key are in, and where in it.
#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    geometry: Geometry,
    /// Blocks of every chunk but the last, which may have fewer.
    chunk_blocks: u64,
}

/// What a key sets in one block: where the block begins in its chunk, in bytes, and the bits of its
/// eight little-endian words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLine {
    /// The first byte of the block.
    pub offset: usize,
    /// The bits of its words.
    pub mask: [u64; 8],
}

impl Chunks {
    /// Bytes of a block.
    pub const BLOCK: usize = 64;
    /// The byte of a block that has the reserved bit, and that bit.
    pub const RESERVED: (usize, u8) = (63, 0x80);

    /// Returns the chunks of a plan.
    ///
    /// # Errors
    ///
    /// Refuses other kinds than blocked, and plans for one shard of several.
    pub fn new(plan: &Plan) -> Result<Chunks> {
        let remedy = "use a whole filter of kind blocked";
        if plan.kind() != Kind::Blocked || plan.shard().is_some() {
            let (kind, verb) = (plan.kind(), "be kept in chunks");
            return Err(Error::Unsupported { kind, verb, remedy });
        }
        let geometry = Geometry::new(plan);
        // Both lines of a key are in one range, and ranges have equally many blocks.
        let chunk_blocks = match geometry.lines {
            1 => geometry.blocks.min(RANGE_BLOCKS),
            _ => geometry.range_blocks,
        };
        Ok(Chunks { geometry, chunk_blocks })
    }

    /// Returns the number of chunks, at least 1.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.geometry.blocks.div_ceil(self.chunk_blocks)
    }

    /// Returns the lines of a key: 1 or 2.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.geometry.lines as usize
    }

    /// Returns the bytes of a chunk, which must be below [`Chunks::count`].
    #[must_use]
    pub fn bytes(&self, chunk: u64) -> usize {
        let before = chunk * self.chunk_blocks;
        (self.geometry.blocks - before).min(self.chunk_blocks) as usize * Chunks::BLOCK
    }

    /// Returns the filter's bytes that are in front of a chunk.
    #[must_use]
    pub fn start(&self, chunk: u64) -> u64 {
        chunk * self.chunk_blocks * Chunks::BLOCK as u64
    }

    /// Returns the chunk of a key.
    #[inline]
    #[must_use]
    pub fn chunk(&self, digest: Digest) -> u64 {
        self.geometry.first_block(digest) / self.chunk_blocks
    }

    /// Returns what a key sets in its chunk, block by block.
    #[inline]
    pub fn touches(&self, digest: Digest) -> impl Iterator<Item = ChunkLine> + use<> {
        let first = self.chunk(digest) * self.chunk_blocks;
        scalar::touches(&self.geometry, digest).map(move |touch| ChunkLine {
            offset: (touch.block - first) as usize * Chunks::BLOCK,
            mask: touch.mask,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Hasher;
    use crate::filter::Filter;

    #[test]
    fn chunks_one_after_the_other_are_the_filter() {
        let hasher = Hasher::default();
        for (items, rate, lines) in
            [(1, 0.1, 1), (1000, 1e-3, 1), (3_000_000, 1e-2, 1), (1, 1e-6, 2), (2_000_000, 1e-6, 2)]
        {
            let plan = Plan::builder(Kind::Blocked).items(items).rate(rate).lines(lines);
            let plan = plan.build().expect("a plan");
            let chunks = Chunks::new(&plan).expect("of a blocked plan");
            let mut filter = Filter::with_hasher(plan, hasher).expect("memory");
            let mut bytes: Vec<Vec<u8>> =
                (0..chunks.count()).map(|chunk| vec![0; chunks.bytes(chunk)]).collect();
            for key in 0..items.min(20_000) {
                let digest = hasher.digest(key);
                filter.insert_digest(digest).expect("writable");
                let chunk = &mut bytes[chunks.chunk(digest) as usize];
                for line in chunks.touches(digest) {
                    for (index, mask) in line.mask.into_iter().enumerate() {
                        let word = &mut chunk[line.offset + index * 8..][..8];
                        for (byte, bits) in word.iter_mut().zip(mask.to_le_bytes()) {
                            *byte |= bits;
                        }
                    }
                }
            }
            let starts = (0..chunks.count()).map(|chunk| chunks.start(chunk)).collect::<Vec<_>>();
            assert!(starts.windows(2).all(|pair| pair[1] - pair[0] <= (1 << 20) - 64));
            assert!(bytes.iter().all(|chunk| !chunk.is_empty() && chunk.len() < 1 << 20));
            assert!(bytes.concat() == *filter.content.measured().payload(), "{plan:?}");
        }
    }

    #[test]
    fn other_kinds_and_shards_are_refused() {
        let classic = Plan::builder(Kind::Classic).items(1000).build().expect("a plan");
        let error = Chunks::new(&classic).expect_err("no blocks");
        assert!(error.to_string().contains("kind classic cannot be kept in chunks"), "{error}");
    }
}
