//! The values of a Parquet column as lines, for `inbloom build --column`.
//!
//! Footers and filters are read by the library. Pages are another matter: eight encodings, dictionaries,
//! levels, compression. Those are read by the crate `parquet`.
//!
//! A value becomes the text by which people name it: integers in decimal, floating-point numbers as Rust
//! writes them, bytes as they are, bytes of a fixed length in hexadecimal. NULL is no key. Of a repeated
//! column every value is one.

use crate::output::problem;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use inbloom::interop::parquet::{Metadata, Physical};
use memchr::memchr;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::file::reader::{FileReader, SerializedFileReader};

/// Values that are decoded at once.
const BATCH: usize = 8192;

/// Reads the values of a column, each with a terminator behind it.
pub struct ColumnValues {
    file: SerializedFileReader<File>,
    column: usize,
    is_unsigned: bool,
    terminator: u8,
    /// The row group that comes next.
    group: usize,
    /// That of the row group before, with its values half read.
    values: Option<ColumnReader>,
    text: Vec<u8>,
    /// How much of the text was read.
    at: usize,
}

impl ColumnValues {
    pub fn open(path: &Path, column: &str, terminator: u8) -> Result<ColumnValues> {
        let named = || path.display().to_string();
        let mut file = File::open(path).with_context(named)?;
        // Our own reader believes no length; what it refuses, the crate does not see.
        let metadata = Metadata::read(&mut file).with_context(named)?;
        let Some(at) = metadata.column(column) else {
            let names = metadata.columns.iter().map(|column| column.path.as_str());
            let names = names.take(20).collect::<Vec<_>>().join(", ");
            bail!(problem(
                format!("{}: no column \"{column}\"", path.display()),
                format!("choose one of {names}")
            ));
        };
        let value_type = metadata.columns[at].value_type;
        if value_type.physical == Physical::Int96 {
            bail!(problem(
                format!(
                    "{}: column \"{column}\" has 96-bit timestamps, which cannot be keys",
                    path.display()
                ),
                "write them as 64-bit integers"
            ));
        }
        let file = SerializedFileReader::new(file).with_context(named)?;
        Ok(ColumnValues {
            file,
            column: at,
            is_unsigned: value_type.is_unsigned,
            terminator,
            group: 0,
            values: None,
            text: Vec::new(),
            at: 0,
        })
    }

    /// Decodes the next values. Returns false if there are none.
    fn decode(&mut self) -> Result<bool> {
        self.text.clear();
        self.at = 0;
        while self.text.is_empty() {
            let Some(values) = &mut self.values else {
                if self.group == self.file.metadata().num_row_groups() {
                    return Ok(false);
                }
                let group = self.file.get_row_group(self.group)?;
                self.values = Some(group.get_column_reader(self.column)?);
                self.group += 1;
                continue;
            };
            let mut lines = TextValues { text: &mut self.text, terminator: self.terminator };
            let is_unsigned = self.is_unsigned;
            let records = match values {
                ColumnReader::BoolColumnReader(values) => {
                    lines.take(values, |value, out| write!(out, "{value}"))
                }
                ColumnReader::Int32ColumnReader(values) => {
                    lines.take(values, |value, out| match is_unsigned {
                        true => write!(out, "{}", *value as u32),
                        false => write!(out, "{value}"),
                    })
                }
                ColumnReader::Int64ColumnReader(values) => {
                    lines.take(values, |value, out| match is_unsigned {
                        true => write!(out, "{}", *value as u64),
                        false => write!(out, "{value}"),
                    })
                }
                ColumnReader::Int96ColumnReader(_) => Err(anyhow!("a column of 96-bit timestamps")),
                ColumnReader::FloatColumnReader(values) => {
                    lines.take(values, |value, out| write!(out, "{value}"))
                }
                ColumnReader::DoubleColumnReader(values) => {
                    lines.take(values, |value, out| write!(out, "{value}"))
                }
                ColumnReader::ByteArrayColumnReader(values) => {
                    lines.take(values, |value, out| out.write_all(value.data()))
                }
                ColumnReader::FixedLenByteArrayColumnReader(values) => lines
                    .take(values, |value, out| {
                        value.data().iter().try_for_each(|byte| write!(out, "{byte:02x}"))
                    }),
            };
            if records? == 0 {
                self.values = None;
            }
        }
        Ok(true)
    }
}

/// Where values go.
struct TextValues<'a> {
    text: &'a mut Vec<u8>,
    terminator: u8,
}

impl TextValues<'_> {
    /// Writes the next values of a reader, and returns of how many rows they are.
    fn take<T: DataType>(
        &mut self,
        reader: &mut ColumnReaderImpl<T>,
        write: impl Fn(&T::T, &mut Vec<u8>) -> io::Result<()>,
    ) -> Result<usize> {
        let (mut definitions, mut repetitions, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let (rows, _, _) = reader.read_records(
            BATCH,
            Some(&mut definitions),
            Some(&mut repetitions),
            &mut values,
        )?;
        for value in &values {
            let start = self.text.len();
            write(value, self.text)?;
            if memchr(self.terminator, &self.text[start..]).is_some() {
                bail!(problem(
                    format!(
                        "the value \"{}\" contains {}, which ends a key",
                        self.text[start..].escape_ascii(),
                        if self.terminator == 0 { "a NUL byte" } else { "a newline" }
                    ),
                    if self.terminator == 0 { "leave -0 out" } else { "pass -0" }
                ));
            }
            self.text.push(self.terminator);
        }
        Ok(rows)
    }
}

impl Read for ColumnValues {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at == self.text.len() && !self.decode().map_err(io::Error::other)? {
            return Ok(0);
        }
        let read = (&self.text[self.at..]).read(out)?;
        self.at += read;
        Ok(read)
    }
}
