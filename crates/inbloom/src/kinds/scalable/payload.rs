//! A scalable filter as bytes.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::table::{Table, TableShape};
use super::{MAX_LEN, SHARDS, Scalable};
use crate::codec::Decoder;
use crate::error::{Result, mismatch};
use crate::plan::Plan;
use crate::storage::Cells;

/// Bytes of the payload before its directory, and of each entry of that: a table.
const FIXED: usize = 16;
const LISTED: usize = 32;
/// Tables start on a cache line.
const LINE: usize = 64;
/// More doublings than a table can have.
const MAX_GENERATION: u32 = 256;

/// The filter as bytes: all numbers little-endian.
///
/// ```text
/// 0   u64  digests that were new
/// 8   u32  doublings before there were shards
/// 12  u32  tables: 1 or 64
/// 16  for each table:  u8 level, u8 words of a bucket, u8 slots of a word, u8 0,
///                      u32 generation, u64 entries, u128 weight
/// ..  for each table, from a multiple of 64 on: its cells
/// ..  zeros up to a multiple of 64
/// ```
impl Scalable {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let directory = (FIXED + LISTED * self.tables.len()).next_multiple_of(LINE);
        let mut bytes = Vec::with_capacity(directory + self.bytes as usize + LINE * SHARDS);
        bytes.extend(self.len.to_le_bytes());
        bytes.extend(self.early.to_le_bytes());
        bytes.extend((self.tables.len() as u32).to_le_bytes());
        for table in &self.tables {
            let TableShape { level, words, lanes, .. } = table.shape();
            bytes.extend([level as u8, words as u8, lanes as u8, 0]);
            bytes.extend(table.generation.to_le_bytes());
            bytes.extend(table.entries.to_le_bytes());
            bytes.extend(table.weight.to_le_bytes());
        }
        for table in &self.tables {
            bytes.resize(bytes.len().next_multiple_of(LINE), 0);
            bytes.extend_from_slice(table.bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(LINE), 0);
        bytes
    }

    /// From the payload of a file, which may be a stranger's. The directory is checked; the cells are
    /// where [`Measured::recount`] looks.
    pub(crate) fn from_cells(plan: Plan, cells: Cells) -> Result<Scalable> {
        let bytes = cells.bytes();
        let got = || format!("{} bytes", bytes.len());
        let short = || mismatch("payload", "a directory of tables", got());
        let mut fields = Decoder(bytes);
        let len = fields.u64().ok_or_else(short)?;
        let early = fields.u32().ok_or_else(short)?;
        let count = fields.u32().ok_or_else(short)? as usize;
        if count != 1 && count != SHARDS {
            return Err(mismatch("tables of the filter", "1 or 64", count));
        }
        if early > MAX_GENERATION || len > MAX_LEN {
            let got = format!("{early}, {len}");
            return Err(mismatch("counts of the filter", "plausible ones", got));
        }
        let listed = fields.0.get(..LISTED * count).ok_or_else(short)?;
        let mut listed_tables = Vec::with_capacity(count);
        let mut end = FIXED + LISTED * count;
        // The directory, then the cells of each table, from a multiple of 64 on.
        let mut lengths = vec![end.next_multiple_of(LINE)];
        for entry in listed.chunks_exact(LISTED) {
            let mut fields = Decoder(entry);
            let [level, words, lanes, zero] = fields.array().ok_or_else(short)?;
            let [level, words, lanes] = [level, words, lanes].map(u32::from);
            let shape = TableShape { level, words, lanes, tagged: count == 1 };
            let generation = fields.u32().ok_or_else(short)?;
            if !shape.is_valid() || zero != 0 || generation > MAX_GENERATION {
                let got = format!("{shape:?}, {zero}, generation {generation}");
                return Err(mismatch("shape of a table", "one that can be", got));
            }
            let entries = fields.u64().ok_or_else(short)?;
            let weight = fields.u128().ok_or_else(short)?;
            // Each entry weighs 2^64 at most, so that sums stay within 128 bits.
            if entries > shape.all_slots() || weight > u128::from(entries) << 64 {
                let most = format!("at most {}, and their weight", shape.all_slots());
                let got = format!("{entries}, and {weight}");
                return Err(mismatch("entries of a table", most, got));
            }
            let start = end.next_multiple_of(LINE);
            let size = usize::try_from(shape.bytes()).ok();
            let next = size.and_then(|size| start.checked_add(size));
            let Some(next) = next.filter(|next| *next <= bytes.len()) else {
                let expected = format!("{} bytes", shape.bytes());
                return Err(mismatch("cells of a table", expected, got()));
            };
            check_zeros(&bytes[end..start])?;
            end = next;
            // As far as the next table, or the end: parts follow each other.
            lengths.push((next - start).next_multiple_of(LINE));
            listed_tables.push((shape, generation, entries, weight));
        }
        if bytes.len() != end.next_multiple_of(LINE) {
            let expected = format!("{} bytes", end.next_multiple_of(LINE));
            return Err(mismatch("payload", expected, got()));
        }
        check_zeros(&bytes[end..])?;
        let parts = cells.split(lengths).into_iter().skip(1);
        let tables = listed_tables.into_iter().zip(parts).map(|(listed, cells)| {
            let (shape, generation, entries, weight) = listed;
            let mut table = Table::with_cells(shape, generation, cells);
            (table.entries, table.weight) = (entries, weight);
            table
        });
        Ok(Scalable::of(plan, tables.collect(), len, early))
    }
}

fn check_zeros(bytes: &[u8]) -> Result<()> {
    match bytes.iter().find(|byte| **byte != 0) {
        Some(byte) => Err(mismatch("padding between tables", "zeros", byte)),
        None => Ok(()),
    }
}
