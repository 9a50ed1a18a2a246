//! One shard of a ribbon filter: where a key is in its layers, and how the layers are made.

use alloc::vec::Vec;
use core::mem;

use crate::codec::Decoder;
use crate::error::{Error, Result};
use crate::kernels::ribbon::{Band, Filling, MOST_SLOTS, RibbonKernel, start_in};
use crate::kinds::ribbon::plan::{
    BLOCK, ENTRY, LAYERS, last_blocks, layer_blocks, starts, threshold_words,
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

/// Memory that shards are built in, one after the other: to ask the system for it anew each time would
/// take a tenth of the time.
#[derive(Debug, Default)]
pub struct Workspace {
    band: Band,
    /// Keys of a later layer, and those that it bumps.
    later: Vec<u64>,
    bumped: Vec<u64>,
    /// Where the keys of a later layer start, above the keys.
    starting: Vec<u128>,
}

/// Makes a shard from its keys, ascending and each once, and appends its columns and its
/// thresholds.
///
/// A key is what is left of its place after the shard was picked, so that a shard knows nothing of
/// the others.
pub(super) fn build(
    keys: &[u64],
    width: u32,
    workspace: &mut Workspace,
    columns: &mut Vec<u8>,
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
        // More than are planned for a shard by a factor of two thousand.
        if blocks * BLOCK > MOST_SLOTS {
            let bits = blocks as f64 * BLOCK as f64 * f64::from(width);
            return Err(Error::TooLarge { bits, max: MOST_SLOTS * u64::from(width) });
        }
        Ok(blocks as u32)
    };
    let kernel = RibbonKernel::select(width);
    let Workspace { band, later, bumped, starting } = workspace;
    for layer in 0..LAYERS {
        let keys = if layer == 0 { keys } else { later.as_slice() };
        if keys.is_empty() {
            break;
        }
        let blocks = layer_blocks(keys.len() as u64);
        entry.blocks[layer] = blocks_of(blocks)?;
        entry.layers += 1;
        let first = thresholds.len();
        thresholds.resize(first + threshold_words(blocks) as usize, 0);
        band.reset(blocks * BLOCK);
        bumped.clear();
        kernel.fill(Filling {
            keys,
            layer: layer as u64,
            starts: starts(blocks),
            width,
            band,
            thresholds: &mut thresholds[first..],
            bumped,
        });
        solve(&kernel, band, width, columns);
        mem::swap(later, bumped);
        // In the first layer starts are in the order of the keys, in the next in no order.
        let next = layer as u64 + 1;
        let starts = starts(layer_blocks(later.len() as u64));
        let above = |key: &u64| u128::from(start_in(*key, next, starts)) << 64 | u128::from(*key);
        // Each is hashed once: anew for each comparison took a tenth of the time of the whole shard.
        starting.clear();
        starting.extend(later.iter().map(above));
        starting.sort_unstable();
        later.clear();
        later.extend(starting.iter().map(|starting| *starting as u64));
    }
    let keys = if entry.layers == 0 { keys } else { later.as_slice() };
    for failures in 0..=u16::MAX - LAYERS as u16 {
        let blocks = last_blocks(keys.len() as u64, u64::from(failures));
        entry.blocks[LAYERS] = blocks_of(blocks)?;
        entry.last = LAYERS as u16 + failures;
        band.reset(blocks * BLOCK);
        if band.add_all(keys, u64::from(entry.last), starts(blocks), width) {
            solve(&kernel, band, width, columns);
            return Ok(entry);
        }
    }
    // Each failure came with 2% more slots: there are a thousand times as many as keys by now.
    Err(Error::Full { items: keys.len() as u64, planned: keys.len() as u64 })
}

/// Appends the solution of a band.
fn solve(kernel: &RibbonKernel, band: &Band, width: u32, columns: &mut Vec<u8>) {
    let first = columns.len();
    columns.resize(first + band.slots() / 8 * width as usize, 0);
    kernel.solve(band, width, &mut columns[first..]);
}
