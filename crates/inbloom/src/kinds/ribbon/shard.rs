//! One shard of a ribbon filter: where a key is in its layers, and how the layers are made.

use alloc::vec::Vec;

use super::equation::{Band, Equation, back_substitute, start_in};
use crate::codec::Decoder;
use crate::error::{Error, Result};
use crate::kinds::ribbon::plan::{
    BUCKET, ENTRY, LAYERS, last_blocks, layer_blocks, starts, threshold_words,
};

/// What the directory of a file holds of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirectoryEntry {
    /// Distinct keys.
    pub keys: u64,
    /// Bits of a fingerprint.
    pub width: u8,
    /// Layers that bump keys.
    pub layers: u8,
    /// The number of the last layer, as its hashes see it.
    pub last: u16,
    /// Blocks of each layer, and of the last one in the end.
    pub blocks: [u32; LAYERS + 1],
}

impl DirectoryEntry {
    pub(super) fn to_bytes(self) -> [u8; ENTRY as usize] {
        let mut bytes = [0; ENTRY as usize];
        bytes[..8].copy_from_slice(&self.keys.to_le_bytes());
        bytes[8] = self.width;
        bytes[9] = self.layers;
        bytes[10..12].copy_from_slice(&self.last.to_le_bytes());
        for (at, blocks) in self.blocks.iter().enumerate() {
            bytes[12 + 4 * at..][..4].copy_from_slice(&blocks.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; ENTRY as usize]) -> DirectoryEntry {
        const WHOLE: &str = "an entry has all of its fields";
        let mut fields = Decoder(bytes);
        DirectoryEntry {
            keys: fields.u64().expect(WHOLE),
            width: fields.u8().expect(WHOLE),
            layers: fields.u8().expect(WHOLE),
            last: fields.u16().expect(WHOLE),
            blocks: core::array::from_fn(|_| fields.u32().expect(WHOLE)),
        }
    }
}

/// Offsets in a bucket below which keys are bumped, by the bucket's threshold. Keys above the
/// middle one are two thirds of all and nearly always fit; those at the lower end compete with the
/// overflow of the bucket before. The numbers were searched for at this load (for 128 slots and 64
/// coefficients).
pub(super) const THRESHOLDS: [u64; 4] = [128, 36, 14, 0];
/// The threshold of a bucket that bumps nobody.
const KEEPS_ALL: usize = 3;

/// Makes a shard from its keys, ascending and each once, and appends its columns and its
/// thresholds.
///
/// A key is what is left of its place after the shard was picked, so that a shard knows nothing of
/// the others.
pub(super) fn build(
    keys: &[u64],
    width: u32,
    columns: &mut Vec<u64>,
    thresholds: &mut Vec<u64>,
) -> Result<DirectoryEntry> {
    let mut entry = DirectoryEntry {
        keys: keys.len() as u64,
        width: width as u8,
        layers: 0,
        last: LAYERS as u16,
        blocks: [0; LAYERS + 1],
    };
    let blocks_of = |blocks: u64| {
        // 2^38 slots, for which there would have to be terabytes to build them in.
        u32::try_from(blocks).map_err(|_| Error::TooLarge {
            bits: blocks as f64 * 64.0 * f64::from(width),
            max: u64::from(u32::MAX) * 64 * u64::from(width),
        })
    };
    let mut left = Vec::new();
    for layer in 0..LAYERS {
        let keys = if layer == 0 { keys } else { &left };
        if keys.is_empty() {
            break;
        }
        let blocks = layer_blocks(keys.len() as u64);
        entry.blocks[layer] = blocks_of(blocks)?;
        entry.layers += 1;
        left = fill_layer(keys, layer as u64, blocks, width, columns, thresholds);
    }
    let keys = if entry.layers == 0 { keys } else { &left };
    for failures in 0..=u16::MAX - LAYERS as u16 {
        let blocks = last_blocks(keys.len() as u64, u64::from(failures));
        entry.blocks[LAYERS] = blocks_of(blocks)?;
        entry.last = LAYERS as u16 + failures;
        let mut band = Band::new(blocks);
        let equations: Vec<Equation> = keys
            .iter()
            .map(|key| Equation::new(*key, u64::from(entry.last), blocks, width))
            .collect();
        if band.add(&equations) {
            back_substitute(&band, width, columns);
            return Ok(entry);
        }
    }
    // Each failure came with 2% more slots: there are a thousand times as many as keys by now.
    Err(Error::Full { items: keys.len() as u64, planned: keys.len() as u64 })
}

/// Solves a layer for as many keys as fit, and returns the others.
fn fill_layer(
    keys: &[u64],
    layer: u64,
    blocks: u64,
    width: u32,
    columns: &mut Vec<u64>,
    thresholds: &mut Vec<u64>,
) -> Vec<u64> {
    let starts = starts(blocks);
    let mut sorted: Vec<u64>;
    let mut rest = if layer == 0 {
        keys // In the first layer starts are in the order of the keys.
    } else {
        sorted = keys.to_vec();
        sorted.sort_unstable_by_key(|key| (start_in(*key, layer, starts), *key));
        &sorted
    };
    let first = thresholds.len();
    thresholds.resize(first + threshold_words(blocks) as usize, 0);
    let mut band = Band::new(blocks);
    let (mut bumped, mut equations) = (Vec::new(), Vec::new());
    for bucket in 0..starts.div_ceil(BUCKET) {
        let first_slot = bucket * BUCKET;
        equations.clear();
        for key in rest {
            let start = start_in(*key, layer, starts);
            if start >= first_slot + BUCKET {
                break;
            }
            equations.push(Equation::at(start, *key, layer, width));
        }
        let (in_bucket, later) = rest.split_at(equations.len());
        rest = later;

        // Class by class from the upper end, so that what is bumped is all below some offset.
        let below = |offset| equations.partition_point(|at| at.start < first_slot + offset);
        let bounds = THRESHOLDS.map(below);
        let fits = |class: &usize| band.add(&equations[bounds[class + 1]..bounds[*class]]);
        let threshold = (0..KEEPS_ALL).take_while(fits).count();
        bumped.extend_from_slice(&in_bucket[..bounds[threshold]]);
        thresholds[first + (bucket / 32) as usize] |= (threshold as u64) << (bucket % 32 * 2);
    }
    back_substitute(&band, width, columns);
    bumped
}
