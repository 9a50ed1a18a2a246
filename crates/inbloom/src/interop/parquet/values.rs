//! The values of Parquet columns: what their filters hash, and how values are written as text.
//!
//! A filter hashes the plain encoding of a value, without a length: integers and floating-point
//! numbers little-endian, byte arrays as they are. Logical types count as the physical type behind
//! them: a date is the number of days since 1970, in 32 bits.

use std::fmt;

use crate::error::{Error, Result};

/// The type of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueType {
    /// How values are stored.
    pub physical: Physical,
    /// Whether integers are unsigned.
    pub is_unsigned: bool,
}

/// How Parquet stores values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Physical {
    /// One bit. No filters are written for these.
    Boolean,
    /// 32 bits.
    Int32,
    /// 64 bits.
    Int64,
    /// 96 bits: timestamps of old writers.
    Int96,
    /// IEEE 754, 32 bits.
    Float,
    /// IEEE 754, 64 bits.
    Double,
    /// Text or bytes of any length.
    ByteArray,
    /// So many bytes.
    Fixed(u32),
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.physical, self.is_unsigned) {
            (Physical::Boolean, _) => f.write_str("boolean"),
            (Physical::Int32, false) => f.write_str("int32"),
            (Physical::Int32, true) => f.write_str("uint32"),
            (Physical::Int64, false) => f.write_str("int64"),
            (Physical::Int64, true) => f.write_str("uint64"),
            (Physical::Int96, _) => f.write_str("int96"),
            (Physical::Float, _) => f.write_str("float"),
            (Physical::Double, _) => f.write_str("double"),
            (Physical::ByteArray, _) => f.write_str("bytes"),
            (Physical::Fixed(length), _) => write!(f, "fixed({length})"),
        }
    }
}

impl ValueType {
    /// Appends what a filter hashes for a value that is written as text: `-7` of an int32 column is 4
    /// bytes.
    ///
    /// A value of a fixed column is written as its bytes, as twice as many hexadecimal digits, or, if it
    /// has 16 bytes, as a UUID.
    ///
    /// # Errors
    ///
    /// Refuses text that is not a value of the type: `12a` or 2^40 in an int32 column. No such value
    /// can be in the column.
    pub fn encode(self, text: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let refused = || Error::Parameter {
            name: "value",
            got: format!("\"{}\"", text.escape_ascii()),
            expected: format!("a value of type {self}"),
        };
        match self.physical {
            Physical::Int32 => {
                let bytes = match self.is_unsigned {
                    true => parse::<u32>(text).map(u32::to_le_bytes),
                    false => parse::<i32>(text).map(i32::to_le_bytes),
                };
                out.extend(bytes.ok_or_else(refused)?);
            }
            Physical::Int64 => {
                let bytes = match self.is_unsigned {
                    true => parse::<u64>(text).map(u64::to_le_bytes),
                    false => parse::<i64>(text).map(i64::to_le_bytes),
                };
                out.extend(bytes.ok_or_else(refused)?);
            }
            Physical::Float => {
                out.extend(parse::<f32>(text).ok_or_else(refused)?.to_le_bytes());
            }
            Physical::Double => {
                out.extend(parse::<f64>(text).ok_or_else(refused)?.to_le_bytes());
            }
            Physical::ByteArray => out.extend(text),
            Physical::Fixed(length) => fixed(text, length as usize, out).ok_or_else(refused)?,
            Physical::Boolean | Physical::Int96 => return Err(refused()),
        }
        Ok(())
    }
}

fn parse<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn fixed(text: &[u8], length: usize, out: &mut Vec<u8>) -> Option<()> {
    if text.len() == length {
        out.extend(text);
        return Some(());
    }
    let is_uuid =
        length == 16 && text.len() == 36 && [8, 13, 18, 23].iter().all(|dash| text[*dash] == b'-');
    let mut digits = Vec::new();
    for byte in text.iter().filter(|byte| !(is_uuid && **byte == b'-')) {
        digits.push(char::from(*byte).to_digit(16)? as u8);
    }
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    if pairs.len() != length {
        return None;
    }
    out.extend(pairs.iter().map(|[high, low]| high << 4 | low));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(physical: Physical, is_unsigned: bool, text: &str) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let result = ValueType { physical, is_unsigned }.encode(text.as_bytes(), &mut out);
        if let Err(error) = &result {
            assert!(error.to_string().contains("a value of type"), "{error}");
            assert!(out.is_empty());
        }
        result.ok().map(|()| out)
    }

    #[test]
    fn text_becomes_the_bytes_of_the_column_type() {
        use Physical::{ByteArray, Double, Fixed, Float, Int32, Int64};
        let cases: [(Physical, bool, &str, Option<&[u8]>); 18] = [
            (Int32, false, "-1", Some(&[0xff; 4])),
            (Int32, false, "4294967295", None),
            (Int32, true, "4294967295", Some(&[0xff; 4])),
            (Int32, true, "-1", None),
            (Int32, false, " 1", None),
            (Int32, false, "", None),
            (Int64, false, "-2", Some(&[0xfe, 255, 255, 255, 255, 255, 255, 255])),
            (Int64, true, "18446744073709551615", Some(&[0xff; 8])),
            (Int64, false, "18446744073709551615", None),
            (Float, false, "1", Some(&[0, 0, 0x80, 0x3f])),
            (Double, false, "-0.5", Some(&[0, 0, 0, 0, 0, 0, 0xe0, 0xbf])),
            (Double, false, "one", None),
            (ByteArray, false, "", Some(b"")),
            (ByteArray, false, "42", Some(b"42")),
            (Fixed(2), false, "42", Some(b"42")),
            (Fixed(2), false, "0aFf", Some(&[0x0a, 0xff])),
            (Fixed(2), false, "0aF", None),
            (Fixed(2), false, "0a-Ff", None),
        ];
        for (physical, is_unsigned, text, expected) in cases {
            let got = encoded(physical, is_unsigned, text);
            assert_eq!(got.as_deref(), expected, "{physical:?} {text}");
        }
        let uuid = encoded(Fixed(16), false, "00112233-4455-6677-8899-aabbccddeeff");
        let bytes: Vec<u8> = (0..16).map(|at| at * 0x11).collect();
        assert_eq!(uuid, Some(bytes));
        assert_eq!(encoded(Fixed(16), false, "0011223-34455-6677-8899-aabbccddeeff"), None);
    }
}
