//! Parquet's split-block Bloom filter (SBBF): alone, and inside of Parquet files.
//!
//! **The filter**: blocks of 32 bytes, a power of two of them as far as writers go. A key sets one bit in each
//! of the eight words of one block. Its hash is XXH64 with seed 0, over the plain encoding of the
//! value without a length ([`ValueType::encode`]); `kernels/split_block.rs` says which bits follow.
//!
//! **Alone**, as Parquet files hold it too: a header in Thrift's compact protocol, and the blocks.
//!
//! ```text
//! BloomFilterHeader   1 i32 bytes of the blocks   2 algorithm {1: block}   3 hash {1: xxhash}
//!                     4 compression {1: uncompressed}
//! 15 80 10  1c 1c 00 00  1c 1c 00 00  1c 1c 00 00  00      for 1024 bytes
//! ```
//!
//! **Inside of a file** each column of each row group may have one. The footer says where: see
//! [`Metadata`]. Filters are read from there and never written into a file; they can be saved alone.
//!
//! ```no_run
//! use std::fs::File;
//! use inbloom::interop::parquet::Metadata;
//!
//! let mut file = File::open("part.parquet").unwrap();
//! let metadata = Metadata::read(&mut file)?;
//! let column = metadata.column("id").expect("a column of this file");
//! let mut key = Vec::new();
//! metadata.columns[column].value_type.encode(b"4711", &mut key)?;
//! for group in &metadata.row_groups {
//!     match group.chunks[column].read_filter(&mut file)? {
//!         Some(filter) => println!("{}", filter.contains(&key)),
//!         None => println!("true, as far as anybody knows"),
//!     }
//! }
//! # Ok::<(), inbloom::Error>(())
//! ```
//!
//! **Sizes** of filters that are built here are those of the Rust crate `parquet` before it folds: a power
//! of two of bytes, from 32 to 128 MiB. A filter that a writer folded is the same as one that was made
//! at the smaller size.
//!
//! Source: apache/parquet-format, BloomFilter.md.

mod content;
mod footer;
mod plan;
mod thrift;
mod values;

use std::io::{Cursor, Read, Seek, SeekFrom, Write};

use super::{FormatRow, KeyEncoding, Likeness, write_failed};
use crate::codec::put_varint;
use crate::digest::{Digest, Hasher};
use crate::error::{Error, Result, mismatch};
use crate::filter::{Content, Filter};
use crate::foreign::{ForeignHash, Function};
use crate::kernels::xxh64;
use crate::kind::{Abilities, Kind, Labels};
use crate::kinds;
use crate::plan::Plan;
use crate::storage::{Bits, Cells};
use content::SplitBlock;
pub use footer::{Chunk, Column, Metadata, RowGroup};
use footer::{not_parquet, reading};
use plan::{MAX_BYTES, SplitBlockPlan};
use thrift::ThriftReader;
pub use values::{Physical, ValueType};

const SPLIT_BLOCK: Kind = Kind::new(80);

static HASH: ForeignHash = ForeignHash {
    id: 80,
    name: "xxh64",
    seeded: false,
    kinds: &[SPLIT_BLOCK],
    function: Function::One(|key, seed| Digest { place: xxh64::xxh64(key, seed), print: 0 }),
    eight: Some(xxh64::eight),
};

fn hasher() -> Hasher {
    Hasher::foreign(&HASH, 0)
}

static KIND: kinds::Row = kinds::Row {
    kind: SPLIT_BLOCK,
    name: "parquet-split-block",
    abilities: Abilities {
        merges: true,
        probes: true,
        undivided: Some("its program has no shards"),
        ..Abilities::NONE
    },
    labels: Labels::BITS,
    planner: &SplitBlockPlan,
    hasher,
    new: |plan| Ok(Box::new(SplitBlock::with_bits(plan, Bits::zeroed(plan.bytes())?))),
    read: |plan, cells, ones| Ok(Box::new(SplitBlock::with_bits(plan, Bits { cells, ones }))),
    build: None,
    racing: |_| Ok(None),
};

pub(super) static ROW: FormatRow = FormatRow {
    records_plan: false,
    name: "parquet",
    title: "Parquet's split-block Bloom filter",
    variants: &[],
    kinds: &[&KIND],
    hashes: &[&HASH],
    encodings: &[
        KeyEncoding::Utf8,
        KeyEncoding::I64le,
        KeyEncoding::I32le,
        KeyEncoding::U64le,
        KeyEncoding::Hex,
    ],
    recognize,
    read,
    read_part: Some(read_part),
    write: Some(write),
    plan: Some(|items, rate, _| Ok((plan::planned(SPLIT_BLOCK, items, rate)?, hasher()))),
};

const MAGIC: &[u8] = b"PAR1";
/// Headers have 15 to 17 bytes; unknown fields of a later version may make them longer.
const LONGEST_HEADER: u64 = 256;

fn recognize(bytes: &[u8]) -> Likeness {
    let is_file = bytes.starts_with(MAGIC) && bytes.ends_with(MAGIC);
    let is_alone = || {
        let start = &bytes[..bytes.len().min(LONGEST_HEADER as usize)];
        header(start).is_ok_and(|(at, length)| at as u64 + length == bytes.len() as u64)
    };
    if is_file || is_alone() { Likeness::Certain } else { Likeness::No }
}

/// Reads a filter alone, or the only one of a Parquet file.
fn read(bytes: &[u8], _variants: u32) -> Result<(Filter, u32)> {
    if bytes.starts_with(MAGIC) {
        return Ok((only_filter(bytes)?, 0));
    }
    let start = &bytes[..bytes.len().min(LONGEST_HEADER as usize)];
    let (at, length) = header(start)?;
    let blocks = &bytes[at..];
    if blocks.len() as u64 != length {
        return Err(mismatch("length of the blocks", length, blocks.len()));
    }
    Ok((of_blocks(blocks, false)?, 0))
}

/// A filter of a file.
struct NamedChunk {
    /// The name that tells it apart: its column, and its row group if several have filters of the
    /// column.
    name: String,
    /// The column and the row group.
    full_name: String,
    chunk: Chunk,
}

fn named_chunks(metadata: &Metadata) -> Vec<NamedChunk> {
    let mut named = Vec::new();
    for (at, column) in metadata.columns.iter().enumerate() {
        let groups =
            metadata.row_groups.iter().enumerate().map(|(group, it)| (group, it.chunks[at]));
        let with_filters: Vec<_> = groups.filter(|(_, chunk)| chunk.filter.is_some()).collect();
        let is_only = with_filters.len() == 1;
        named.extend(with_filters.into_iter().map(|(group, chunk)| {
            let full_name = format!("{}/{group}", column.path);
            let name = if is_only { column.path.clone() } else { full_name.clone() };
            NamedChunk { name, full_name, chunk }
        }));
    }
    named
}

fn only_filter(file: &[u8]) -> Result<Filter> {
    let named = named_chunks(&Metadata::read(Cursor::new(file))?);
    match &named[..] {
        [only] => filter_of(&only.chunk, file),
        _ => Err(no_part("", named)),
    }
}

/// Reads the filter of a column in a Parquet file: `id/3` of row group 3, or `id` if no other row
/// group has one.
fn read_part(bytes: &[u8], part: &str) -> Result<Filter> {
    let named = match bytes.starts_with(MAGIC) {
        true => named_chunks(&Metadata::read(Cursor::new(bytes))?),
        false => Vec::new(),
    };
    let by_name = named.iter().find(|one| one.name == part);
    match by_name.or_else(|| named.iter().find(|one| one.full_name == part)) {
        Some(one) => filter_of(&one.chunk, bytes),
        None => Err(no_part(part, named)),
    }
}

fn filter_of(chunk: &Chunk, file: &[u8]) -> Result<Filter> {
    Ok(chunk.read_filter(Cursor::new(file))?.expect("a chunk with a filter"))
}

fn no_part(part: &str, named: Vec<NamedChunk>) -> Error {
    let names = named.into_iter().map(|one| one.name).collect();
    Error::Part { part: part.to_owned(), names }
}

impl Chunk {
    /// Reads the filter from the file that the chunk is of, if it has one. It is read-only; a copy
    /// can be changed.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or the filter is damaged or of another kind.
    pub fn read_filter(&self, mut file: impl Read + Seek) -> Result<Option<Filter>> {
        let Some(offset) = self.filter else { return Ok(None) };
        let end = file.seek(SeekFrom::End(0)).map_err(reading)?;
        let Some(room) = end.checked_sub(offset) else {
            return Err(not_parquet(format!("a filter before byte {end}"), offset));
        };
        file.seek(SeekFrom::Start(offset)).map_err(reading)?;
        let mut start = Vec::new();
        file.by_ref().take(LONGEST_HEADER).read_to_end(&mut start).map_err(reading)?;
        let (at, length) = header(&start)?;
        if length > room.saturating_sub(at as u64) {
            return Err(not_parquet(format!("a filter of at most {room} bytes"), length));
        }
        file.seek(SeekFrom::Start(offset + at as u64)).map_err(reading)?;
        let mut blocks = Vec::new();
        file.take(length).read_to_end(&mut blocks).map_err(reading)?;
        if blocks.len() as u64 != length {
            return Err(not_parquet(format!("a filter of {length} bytes"), blocks.len()));
        }
        let mut filter = of_blocks(&blocks, true)?;
        filter.texts.set_container(Some(super::Format(ROW.name).into()));
        Ok(Some(filter))
    }
}

/// Reads the header of a filter: its length, and the bytes of the blocks behind it.
fn header(bytes: &[u8]) -> Result<(usize, u64)> {
    let mut reader = ThriftReader::new(bytes, "header of the filter");
    let mut length = None;
    let mut choices = [false; 3];
    reader.fields(|reader, field| {
        match field.id {
            1 => length = Some(reader.integer(field)?),
            2..=4 => {
                let choice = &mut choices[field.id as usize - 2];
                reader.nested(field, |reader, field| {
                    *choice |= field.id == 1;
                    reader.skip(field)
                })?;
            }
            _ => reader.skip(field)?,
        }
        Ok(())
    })?;
    let names = ["algorithm", "hash", "compression"];
    let known = ["1 (split blocks)", "1 (XXH64)", "1 (uncompressed)"];
    for ((is_known, name), expected) in choices.into_iter().zip(names).zip(known) {
        if !is_known {
            return Err(Error::Format {
                what: name,
                expected: expected.to_owned(),
                got: "another or none".to_owned(),
                remedy: "the filter is damaged, or of a kind that this inbloom does not know",
            });
        }
    }
    let length = length.and_then(|length| u64::try_from(length).ok()).unwrap_or(0);
    if length == 0 || !length.is_multiple_of(32) || length > MAX_BYTES {
        return Err(reader.damaged("a multiple of 32 bytes", length));
    }
    Ok((reader.position(), length))
}

fn of_blocks(blocks: &[u8], is_read_only: bool) -> Result<Filter> {
    let plan = Plan::exact(SPLIT_BLOCK, blocks.len() as u64 * 8, 8)?;
    let mut cells = Cells::zeroed(plan.bytes())?;
    cells.bytes_mut()?.copy_from_slice(blocks);
    let ones = cells.count_ones();
    let cells = if is_read_only { cells.frozen() } else { cells };
    let content = Content::with_bits(plan, Bits { cells, ones });
    let inserted = content.measured().estimate(None).rounded();
    Ok(Filter::from_parts(hasher(), content, inserted))
}

fn write(filter: &Filter, _variants: u32, writer: &mut dyn Write) -> Result<()> {
    let payload = filter.content.measured().payload();
    let mut header = vec![0x15];
    // Zigzag of a positive number is twice the number.
    put_varint(&mut header, payload.len() as u64 * 2);
    header.extend([0x1c, 0x1c, 0, 0].repeat(3));
    header.push(0);
    writer.write_all(&header).map_err(write_failed)?;
    writer.write_all(&payload).map_err(write_failed)?;
    writer.flush().map_err(write_failed)
}
