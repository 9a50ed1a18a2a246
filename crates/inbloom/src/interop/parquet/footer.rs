//! The footer of a Parquet file: which columns and row groups there are, and where their filters lie.
//!
//! A file ends with its metadata (a struct of Thrift), their length in four bytes, little-endian, and
//! `PAR1`. What is read of the metadata, by field number:
//!
//! ```text
//! FileMetaData     2 schema: list of SchemaElement   3 rows   4 list of RowGroup
//! SchemaElement    2 length of a fixed type   5 children   6 converted type   10 logical type
//! RowGroup         1 list of ColumnChunk      3 rows
//! ColumnChunk      1 path of another file     3 ColumnMetaData
//! ColumnMetaData   1 type   3 path: list of texts   5 values   14 offset of the filter
//! ```
//!
//! Only the footer is read, and then of each filter that is asked for its own bytes. Memory is bounded
//! by the footer's length, which is compared with the file's first.
//!
//! Source: apache/parquet-format, parquet.thrift and BloomFilter.md.

use std::io::{self, Read, Seek, SeekFrom};

use super::thrift::{Field, ThriftReader};
use super::values::{Physical, ValueType};
use crate::error::{Error, Result};

const MAGIC: &[u8; 4] = b"PAR1";
const MAGIC_ENCRYPTED: &[u8; 4] = b"PARE";
/// The length of the metadata and the magic after them.
const TAIL: u64 = 8;
/// The converted types of unsigned integers, of 8 to 64 bits.
const UNSIGNED: std::ops::RangeInclusive<i64> = 11..=14;

/// The metadata of a Parquet file that concern its filters.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata {
    /// The rows of all row groups.
    pub rows: u64,
    /// The leaf columns, in the order of the schema. Empty if there are no row groups.
    pub columns: Vec<Column>,
    /// The row groups, in the order of the file.
    pub row_groups: Vec<RowGroup>,
}

/// A leaf column of a Parquet file.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The names on the way to it, with dots between: `id`, `user.address.zip`.
    pub path: String,
    /// The type of its values.
    pub value_type: ValueType,
}

/// A row group of a Parquet file.
#[derive(Debug, Clone, PartialEq)]
pub struct RowGroup {
    /// Its rows.
    pub rows: u64,
    /// One chunk for each of [`Metadata::columns`].
    pub chunks: Vec<Chunk>,
}

/// One column within one row group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chunk {
    /// Its values, including nulls and repetitions.
    pub values: u64,
    /// Where its filter starts in the file, if it has one.
    pub filter: Option<u64>,
}

impl Metadata {
    /// Reads the footer of a file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is not a Parquet file, or has a damaged or encrypted footer.
    pub fn read(mut file: impl Read + Seek) -> Result<Metadata> {
        let length = file.seek(SeekFrom::End(0)).map_err(reading)?;
        // The shortest file has the magic twice and no metadata.
        if length < MAGIC.len() as u64 + TAIL {
            return Err(not_parquet("at least 12 bytes", length));
        }
        let mut tail = [0; TAIL as usize];
        file.seek(SeekFrom::Start(length - TAIL)).map_err(reading)?;
        file.read_exact(&mut tail).map_err(reading)?;
        let [l0, l1, l2, l3, magic @ ..] = tail;
        if &magic == MAGIC_ENCRYPTED {
            return Err(not_parquet("a footer that is not encrypted (PAR1)", "PARE"));
        }
        if &magic != MAGIC {
            return Err(not_parquet("PAR1 at the end", magic.escape_ascii()));
        }
        let footer = u64::from(u32::from_le_bytes([l0, l1, l2, l3]));
        let room = length - TAIL - MAGIC.len() as u64;
        if footer > room {
            return Err(not_parquet(format!("a footer of at most {room} bytes"), footer));
        }
        file.seek(SeekFrom::Start(length - TAIL - footer)).map_err(reading)?;
        let mut bytes = Vec::new();
        let read = file.take(footer).read_to_end(&mut bytes).map_err(reading)?;
        if read as u64 != footer {
            return Err(not_parquet(format!("a footer of {footer} bytes"), read));
        }
        Metadata::parse(&bytes)
    }

    /// Reads the metadata in a footer.
    pub(super) fn parse(footer: &[u8]) -> Result<Metadata> {
        let mut reader = ThriftReader::new(footer, "footer of the Parquet file");
        let mut leaves = Vec::new();
        let mut rows = None;
        let mut columns: Vec<Column> = Vec::new();
        let mut row_groups = Vec::new();
        reader.fields(|reader, field| match field.id {
            2 => reader.structs(field, |reader| {
                leaves.extend(leaf(reader)?);
                Ok(())
            }),
            3 => {
                rows = Some(count(reader, field)?);
                Ok(())
            }
            4 => reader.structs(field, |reader| {
                let group = row_group(reader, &leaves, &mut columns, row_groups.is_empty())?;
                row_groups.push(group);
                Ok(())
            }),
            _ => reader.skip(field),
        })?;
        let rows = rows.ok_or_else(|| reader.damaged("a number of rows", "none"))?;
        Ok(Metadata { rows, columns, row_groups })
    }

    /// Finds a column by its path.
    #[must_use]
    pub fn column(&self, path: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.path == path)
    }
}

/// What the schema says of a leaf. A group of columns has none.
#[derive(Clone, Copy, Default)]
struct Leaf {
    length: i64,
    is_unsigned: bool,
}

fn leaf(reader: &mut ThriftReader<'_>) -> Result<Option<Leaf>> {
    let mut leaf = Leaf::default();
    let mut has_type = false;
    reader.fields(|reader, field| {
        match field.id {
            1 => {
                reader.integer(field)?;
                has_type = true;
            }
            2 => leaf.length = reader.integer(field)?,
            6 => leaf.is_unsigned |= UNSIGNED.contains(&reader.integer(field)?),
            10 => leaf.is_unsigned |= is_unsigned(reader, field)?,
            _ => reader.skip(field)?,
        }
        Ok(())
    })?;
    // Only groups have no type.
    Ok(has_type.then_some(leaf))
}

/// Reads a logical type: a union, of which field 10 is an integer with its width and sign.
fn is_unsigned(reader: &mut ThriftReader<'_>, field: Field) -> Result<bool> {
    let mut unsigned = false;
    reader.nested(field, |reader, field| match field.id {
        10 => reader.nested(field, |reader, field| match field.id {
            2 => {
                unsigned = !reader.boolean(field)?;
                Ok(())
            }
            _ => reader.skip(field),
        }),
        _ => reader.skip(field),
    })?;
    Ok(unsigned)
}

/// Reads a row group. The first one says which columns there are; the others must have the same.
fn row_group(
    reader: &mut ThriftReader<'_>,
    leaves: &[Leaf],
    columns: &mut Vec<Column>,
    is_first: bool,
) -> Result<RowGroup> {
    let mut chunks = Vec::new();
    let mut rows = None;
    reader.fields(|reader, field| match field.id {
        1 => reader.structs(field, |reader| {
            let (column, chunk) = column_chunk(reader, leaves.get(chunks.len()).copied())?;
            match columns.get(chunks.len()) {
                _ if is_first => columns.push(column),
                Some(known) if *known == column => {}
                known => {
                    let expected = known.map_or("no more columns", |known| &known.path);
                    return Err(reader.damaged(format!("column {expected}"), column.path));
                }
            }
            chunks.push(chunk);
            Ok(())
        }),
        3 => {
            rows = Some(count(reader, field)?);
            Ok(())
        }
        _ => reader.skip(field),
    })?;
    if chunks.len() != columns.len() {
        return Err(reader.damaged(format!("{} columns", columns.len()), chunks.len()));
    }
    let rows = rows.ok_or_else(|| reader.damaged("a number of rows", "none"))?;
    Ok(RowGroup { rows, chunks })
}

fn column_chunk(reader: &mut ThriftReader<'_>, leaf: Option<Leaf>) -> Result<(Column, Chunk)> {
    let mut is_elsewhere = false;
    let mut found = None;
    reader.fields(|reader, field| match field.id {
        1 => {
            is_elsewhere = true;
            reader.skip(field)
        }
        3 => {
            found = Some(column_metadata(reader, field, leaf)?);
            Ok(())
        }
        _ => reader.skip(field),
    })?;
    let Some((column, mut chunk)) = found else {
        return Err(reader.damaged("metadata of a column that is not encrypted", "none"));
    };
    if is_elsewhere {
        // Its offsets are of another file.
        chunk.filter = None;
    }
    Ok((column, chunk))
}

fn column_metadata(
    reader: &mut ThriftReader<'_>,
    field: Field,
    leaf: Option<Leaf>,
) -> Result<(Column, Chunk)> {
    let mut kind = None;
    let mut path = String::new();
    let mut chunk = Chunk { values: 0, filter: None };
    reader.nested(field, |reader, field| {
        match field.id {
            1 => kind = Some(reader.integer(field)?),
            3 => {
                let mut is_first = true;
                reader.texts(field, |reader, name| {
                    let name = std::str::from_utf8(name)
                        .map_err(|_| reader.damaged("a name in UTF-8", name.escape_ascii()))?;
                    if !std::mem::take(&mut is_first) {
                        path.push('.');
                    }
                    path.push_str(name);
                    Ok(())
                })?;
            }
            5 => chunk.values = count(reader, field)?,
            14 => chunk.filter = Some(count(reader, field)?),
            _ => reader.skip(field)?,
        }
        Ok(())
    })?;
    let Leaf { length, is_unsigned } =
        leaf.ok_or_else(|| reader.damaged("a column of the schema", path.clone()))?;
    let physical = match kind {
        Some(0) => Physical::Boolean,
        Some(1) => Physical::Int32,
        Some(2) => Physical::Int64,
        Some(3) => Physical::Int96,
        Some(4) => Physical::Float,
        Some(5) => Physical::Double,
        Some(6) => Physical::ByteArray,
        Some(7) => match u32::try_from(length) {
            Ok(length) if length > 0 => Physical::Fixed(length),
            _ => return Err(reader.damaged("the length of a fixed type", length)),
        },
        Some(other) => return Err(reader.damaged("a type from 0 to 7", other)),
        None => return Err(reader.damaged("the type of a column", "none")),
    };
    Ok((Column { path, value_type: ValueType { physical, is_unsigned } }, chunk))
}

/// Reads a number that cannot be negative.
fn count(reader: &mut ThriftReader<'_>, field: Field) -> Result<u64> {
    let number = reader.integer(field)?;
    u64::try_from(number).map_err(|_| reader.damaged("a number that is not negative", number))
}

pub(super) fn not_parquet(expected: impl Into<String>, got: impl ToString) -> Error {
    Error::Format {
        what: "Parquet file",
        expected: expected.into(),
        got: got.to_string(),
        remedy: "the file is damaged, or not a Parquet file; write it again",
    }
}

pub(super) fn reading(cause: io::Error) -> Error {
    Error::Io { action: "cannot read the Parquet file".to_string(), cause }
}
