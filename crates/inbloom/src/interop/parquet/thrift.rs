//! Thrift's compact protocol, as far as the metadata of Parquet files needs it. Only to read.
//!
//! A struct is a list of fields and a zero byte. A field starts with a byte: its low half is the type
//! of the value, its high half how much its number is above that of the field before. A high half of
//! zero says that the number follows, as a zigzag varint.
//!
//! ```text
//! type   1 true, 2 false   no bytes in a struct, one byte in a list
//!        3 i8              one byte
//!        4 5 6  integers   a zigzag varint
//!        7 double          8 bytes
//!        8 binary, text    a varint, and as many bytes
//!        9 list, 10 set    a byte: number of elements (15: it follows, as a varint), their type
//!        11 map            a varint; unless that is 0, a byte of two types; keys and values
//!        12 struct
//! ```
//!
//! The bytes may be anybody's. Nothing is allocated here, no number of elements is believed: reading
//! goes on only as long as there are bytes, of which every element takes at least one. Values nest at
//! most [`MOST_NESTED`] deep.
//!
//! Source: the Apache Thrift specification, doc/specs/thrift-compact-protocol.md.

use crate::codec::Decoder;
use crate::error::{Error, Result};

const BOOL_TRUE: u8 = 1;
const BOOL_FALSE: u8 = 2;
const I8: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// How deep values may nest. Parquet's own metadata nest 8 deep.
const MOST_NESTED: u32 = 32;

/// What is left of a message.
pub(super) struct ThriftReader<'a> {
    rest: Decoder<'a>,
    /// What the message is, for errors.
    what: &'static str,
    length: usize,
}

/// The start of a field: its number and the type of its value, which is read next.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub id: i16,
    kind: u8,
}

impl<'a> ThriftReader<'a> {
    pub(super) fn new(bytes: &'a [u8], what: &'static str) -> ThriftReader<'a> {
        ThriftReader { rest: Decoder(bytes), what, length: bytes.len() }
    }

    /// Returns how many bytes were read so far.
    pub(super) fn position(&self) -> usize {
        self.length - self.rest.0.len()
    }

    /// Returns an error that says where the message is damaged.
    pub(super) fn damaged(&self, expected: impl Into<String>, got: impl ToString) -> Error {
        let position = self.position();
        Error::Format {
            what: self.what,
            expected: expected.into(),
            got: format!("{} before byte {position} of {}", got.to_string(), self.length),
            remedy: "the file is damaged, or not a Parquet file; write it again",
        }
    }

    /// Reads a struct: calls `each` with every field, which must read its value or
    /// [`skip`](ThriftReader::skip) it.
    pub(super) fn fields(
        &mut self,
        mut each: impl FnMut(&mut ThriftReader<'a>, Field) -> Result<()>,
    ) -> Result<()> {
        let mut last = 0;
        while let Some(field) = self.field(last)? {
            last = field.id;
            each(self, field)?;
        }
        Ok(())
    }

    /// Reads a list: calls `each` as often as it has elements, which must read one each. They are
    /// structs.
    pub(super) fn structs(
        &mut self,
        field: Field,
        mut each: impl FnMut(&mut ThriftReader<'a>) -> Result<()>,
    ) -> Result<()> {
        let (count, kind) = self.list(field)?;
        self.expect(kind, STRUCT, "a list of structs")?;
        (0..count).try_for_each(|_| each(self))
    }

    /// Reads a list of texts or bytes.
    pub(super) fn texts(
        &mut self,
        field: Field,
        mut each: impl FnMut(&mut ThriftReader<'a>, &'a [u8]) -> Result<()>,
    ) -> Result<()> {
        let (count, kind) = self.list(field)?;
        self.expect(kind, BINARY, "a list of texts")?;
        for _ in 0..count {
            let text = self.bytes()?;
            each(self, text)?;
        }
        Ok(())
    }

    /// Reads a nested struct, as [`fields`](ThriftReader::fields) does.
    pub(super) fn nested(
        &mut self,
        field: Field,
        each: impl FnMut(&mut ThriftReader<'a>, Field) -> Result<()>,
    ) -> Result<()> {
        self.expect(field.kind, STRUCT, "a struct")?;
        self.fields(each)
    }

    /// Reads an integer of any width.
    pub(super) fn integer(&mut self, field: Field) -> Result<i64> {
        match field.kind {
            I8 => Ok(i64::from(self.u8()? as i8)),
            I16 | I32 | I64 => self.zigzag(),
            other => Err(self.damaged("an integer", kind_name(other))),
        }
    }

    /// Reads a boolean.
    pub(super) fn boolean(&mut self, field: Field) -> Result<bool> {
        match field.kind {
            BOOL_TRUE => Ok(true),
            BOOL_FALSE => Ok(false),
            other => Err(self.damaged("a boolean", kind_name(other))),
        }
    }

    /// Reads over a value of any type.
    pub(super) fn skip(&mut self, field: Field) -> Result<()> {
        match field.kind {
            // In a struct, the type is the value.
            BOOL_TRUE | BOOL_FALSE => Ok(()),
            other => self.skip_element(other, MOST_NESTED),
        }
    }

    /// Reads over an element of a list or a map, of which `levels` may still be nested.
    fn skip_element(&mut self, kind: u8, levels: u32) -> Result<()> {
        let Some(levels) = levels.checked_sub(1) else {
            return Err(self.damaged(format!("at most {MOST_NESTED} nested values"), "more"));
        };
        match kind {
            BOOL_TRUE | BOOL_FALSE | I8 => self.u8().map(drop),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.take(8).map(drop),
            BINARY => self.bytes().map(drop),
            LIST | SET => {
                let (count, kind) = self.list_header()?;
                (0..count).try_for_each(|_| self.skip_element(kind, levels))
            }
            MAP => {
                let count = self.varint()?;
                let kinds = if count == 0 { 0 } else { self.u8()? };
                (0..count).try_for_each(|_| {
                    self.skip_element(kinds >> 4, levels)?;
                    self.skip_element(kinds & 15, levels)
                })
            }
            STRUCT => self.fields(|reader, field| match field.kind {
                BOOL_TRUE | BOOL_FALSE => Ok(()),
                kind => reader.skip_element(kind, levels),
            }),
            other => Err(self.damaged("a type from 1 to 12", other)),
        }
    }

    fn field(&mut self, last: i16) -> Result<Option<Field>> {
        let first = self.u8()?;
        if first == 0 {
            return Ok(None);
        }
        let id = match first >> 4 {
            0 => i16::try_from(self.zigzag()?).ok(),
            step => last.checked_add(i16::from(step)),
        };
        let id = id.ok_or_else(|| self.damaged("a field number of 16 bits", "a larger one"))?;
        Ok(Some(Field { id, kind: first & 15 }))
    }

    fn list(&mut self, field: Field) -> Result<(u64, u8)> {
        self.expect(field.kind, LIST, "a list")?;
        self.list_header()
    }

    fn list_header(&mut self) -> Result<(u64, u8)> {
        let first = self.u8()?;
        let count = match first >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        Ok((count, first & 15))
    }

    fn expect(&self, kind: u8, expected: u8, words: &'static str) -> Result<()> {
        if kind == expected { Ok(()) } else { Err(self.damaged(words, kind_name(kind))) }
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        let count = self.varint()?;
        self.take(count)
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8]> {
        self.rest.take(count).ok_or_else(|| self.damaged(format!("{count} more bytes"), "the end"))
    }

    fn u8(&mut self) -> Result<u8> {
        self.rest.u8().ok_or_else(|| self.damaged("one more byte", "the end"))
    }

    fn varint(&mut self) -> Result<u64> {
        self.rest.varint().ok_or_else(|| self.damaged("a whole number of 64 bits", "another"))
    }

    fn zigzag(&mut self) -> Result<i64> {
        let number = self.varint()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }
}

fn kind_name(kind: u8) -> String {
    let names = [
        "no type", "true", "false", "i8", "i16", "i32", "i64", "double", "binary", "list", "set",
        "map", "struct",
    ];
    names.get(usize::from(kind)).map_or_else(|| format!("type {kind}"), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip_all(bytes: &[u8]) -> Result<usize> {
        let mut reader = ThriftReader::new(bytes, "message");
        reader.fields(|reader, field| reader.skip(field))?;
        Ok(reader.position())
    }

    #[test]
    fn every_type_is_skipped_to_its_end() {
        // Fields 1 to 11: true, false, i8, i16, i64, double, binary, list of booleans, set of i32,
        // map from text to struct, struct; then field 300 by its number.
        let message: &[&[u8]] = &[
            &[0x11, 0x12, 0x13, 0xff, 0x14, 0x80, 0x01, 0x16, 0x02],
            &[0x17, 0, 0, 0, 0, 0, 0, 0, 0, 0x18, 3, 1, 2, 3, 0x19, 0x21, 1, 2],
            &[0x1a, 0xf5, 16, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2],
            &[0x1b, 1, 0x8c, 1, b'k', 0x15, 2, 0, 0x1c, 0x11, 0x00, 0x05, 0xd8, 0x04, 0x02, 0x00],
        ];
        let message = message.concat();
        assert_eq!(skip_all(&message).unwrap(), message.len());
        for end in 0..message.len() {
            assert!(skip_all(&message[..end]).is_err(), "{end}");
        }
        // An empty map has no byte of types.
        assert_eq!(skip_all(&[0x1b, 0, 0]).unwrap(), 3);
    }

    #[test]
    fn endless_lists_and_endless_nesting_are_refused() {
        // A list of 2^60 structs, in 13 bytes.
        let mut list = vec![0x19, 0xfc];
        crate::codec::put_varint(&mut list, 1 << 60);
        list.push(0);
        assert!(skip_all(&list).is_err());
        // Lists of lists, a million deep.
        let mut nested = vec![0x19];
        nested.extend(std::iter::repeat_n(0x19, 1_000_000));
        let error = skip_all(&nested).unwrap_err().to_string();
        assert!(error.contains("32 nested"), "{error}");
        let structs = vec![0x1c; 1_000_000];
        assert!(skip_all(&structs).is_err());
    }

    #[test]
    fn wrong_types_are_named() {
        let mut reader = ThriftReader::new(&[0x18, 0, 0], "message");
        let error = reader.fields(|reader, field| reader.integer(field).map(drop)).unwrap_err();
        assert!(error.to_string().contains("expected an integer, got binary"), "{error}");
        let mut reader = ThriftReader::new(&[0x1e, 0, 0], "message");
        let error = reader.fields(|reader, field| reader.skip(field)).unwrap_err();
        assert!(error.to_string().contains("got 14"), "{error}");
    }
}
