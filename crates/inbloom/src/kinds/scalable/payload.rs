//! A scalable filter as bytes.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::table::{MAX_LEVEL, SlotShape, Table};
use super::{MAX_LEN, SHARDS, SMALL_BUCKETS, Scalable};
use crate::codec::Decoder;
use crate::error::{Result, mismatch};
use crate::plan::Plan;
use crate::storage::Cells;

/// Bytes of the payload before its directory, and of each entry of that: a table.
const FIXED: usize = 16;
const LISTED: usize = 40;
/// The most buckets of a table that is not divided: it is when it has a sixteenth of them.
const MAX_TAGGED: u64 = SMALL_BUCKETS << 4;
/// Tables start on a cache line.
const LINE: usize = 64;

/// The filter as bytes: all numbers little-endian. `docs/format.md` draws them.
impl Scalable {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let directory = (FIXED + LISTED * self.tables.len()).next_multiple_of(LINE);
        let mut bytes = Vec::with_capacity(directory + self.bytes as usize + LINE * SHARDS);
        bytes.extend(self.len.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend((self.tables.len() as u32).to_le_bytes());
        for table in &self.tables {
            let slots = table.slots();
            bytes.extend([slots.lane() as u8, slots.planes as u8, 0, 0, 0, 0, 0, 0]);
            bytes.extend(table.buckets().to_le_bytes());
            bytes.extend(table.entries.to_le_bytes());
            bytes.extend(table.weight.to_le_bytes());
        }
        for table in &self.tables {
            bytes.resize(bytes.len().next_multiple_of(LINE), 0);
            table.contents().for_each(|part| bytes.extend_from_slice(part));
        }
        bytes.resize(bytes.len().next_multiple_of(LINE), 0);
        bytes
    }

    /// From the payload of a file, which may be a stranger's. The directory is checked; the cells are
    /// where [`Measured::recount`](crate::state::Measured::recount) looks.
    pub(crate) fn from_cells(plan: Plan, cells: Cells) -> Result<Scalable> {
        let bytes = cells.bytes();
        let got = || format!("{} bytes", bytes.len());
        let short = || mismatch("payload", "a directory of tables", got());
        let mut fields = Decoder(bytes);
        let len = fields.u64().ok_or_else(short)?;
        let zero = fields.u32().ok_or_else(short)?;
        let count = fields.u32().ok_or_else(short)? as usize;
        if count != 1 && count != SHARDS {
            return Err(mismatch("tables of the filter", "1 or 16", count));
        }
        if zero != 0 || len > MAX_LEN {
            let got = format!("{zero}, {len}");
            return Err(mismatch("counts of the filter", "0, and at most 2^63", got));
        }
        let listed = fields.0.get(..LISTED * count).ok_or_else(short)?;
        let mut listed_tables = Vec::with_capacity(count);
        let mut end = FIXED + LISTED * count;
        // The directory, then the chunks of each table, which starts at a multiple of 64.
        let mut lengths = vec![end.next_multiple_of(LINE)];
        check_zeros(bytes.get(end..lengths[0]).ok_or_else(short)?)?;
        end = lengths[0];
        for entry in listed.chunks_exact(LISTED) {
            let mut fields = Decoder(entry);
            let [lane, planes, zeros @ ..] = fields.array::<8>().ok_or_else(short)?;
            let (is_wide, is_tagged) = (lane == 32, count == 1);
            let slots = SlotShape { is_wide, planes: planes.into(), is_tagged };
            let buckets = fields.u64().ok_or_else(short)?;
            // All tables have as many planes as the first.
            let is_alike = planes == listed[1];
            let is_known =
                (lane == 16 || lane == 32) && slots.is_valid() && is_alike && zeros == [0; 6];
            let most = if is_tagged { MAX_TAGGED } else { 1 << MAX_LEVEL };
            if !is_known || buckets == 0 || buckets > most {
                let got = format!("{lane} bits, {planes} planes, {zeros:?}, {buckets} buckets");
                return Err(mismatch("shape of a table", "a shape of this layout", got));
            }
            let entries = fields.u64().ok_or_else(short)?;
            let weight = fields.u128().ok_or_else(short)?;
            // Each entry weighs so much at most, so that sums stay within 128 bits.
            let level = buckets.ilog2();
            if entries > buckets * 8 || weight > u128::from(entries) << (115 - level) {
                let most = format!("at most {}, and their weight", buckets * 8);
                let got = format!("{entries}, and {weight}");
                return Err(mismatch("entries of a table", most, got));
            }
            let size = slots.bytes(buckets).and_then(|size| usize::try_from(size).ok());
            let next = size.and_then(|size| end.checked_add(size));
            let Some(next) = next.filter(|next| *next <= bytes.len()) else {
                let expected = format!("{buckets} buckets of {} bytes", slots.stride());
                return Err(mismatch("cells of a table", expected, got()));
            };
            let chunks = Table::chunk_bytes(slots, buckets).map(|length| length as usize);
            let before = lengths.len();
            lengths.extend(chunks);
            end = next;
            listed_tables.push((slots, buckets, entries, weight, lengths.len() - before));
        }
        if bytes.len() != end {
            return Err(mismatch("payload", format!("{end} bytes"), got()));
        }
        let mut parts = cells.split(lengths).into_iter().skip(1);
        let tables = listed_tables.into_iter().map(|(slots, buckets, entries, weight, chunks)| {
            let chunks = parts.by_ref().take(chunks).collect();
            let mut table = Table::with_chunks(slots, buckets, chunks);
            (table.entries, table.weight) = (entries, weight);
            table
        });
        Ok(Scalable::of(plan, tables.collect(), len))
    }
}

fn check_zeros(bytes: &[u8]) -> Result<()> {
    match bytes.iter().find(|byte| **byte != 0) {
        Some(byte) => Err(mismatch("padding between tables", "zeros", byte)),
        None => Ok(()),
    }
}
