//! Records as keys of a bitmap: decimal integers, one per line.
//!
//! The library takes a bitmap's integers as their 8 little-endian bytes; other kinds take the bytes
//! of the line as they are.

use anyhow::{Result, bail};

use crate::lines::{Batch, Input};

/// A bitmap's key.
pub type Integer = [u8; 8];

/// The batch's records as keys, or an error naming the first that is no integer up to `largest`.
pub fn keys(batch: &Batch, input: &Input, largest: u64) -> Result<Vec<Integer>> {
    let mut keys = Vec::with_capacity(batch.records.len());
    for (number, record) in (batch.first_number..).zip(&batch.records) {
        let Some(integer) = parse(record).filter(|&integer| integer <= largest) else {
            bail!(
                "{}: line {number}: a bitmap holds integers from 0 to {largest} here, one a line \
                 in decimal digits; got \"{}\"",
                String::from_utf8_lossy(input.name()),
                shorten(record),
            );
        };
        keys.push(integer.to_le_bytes());
    }
    Ok(keys)
}

/// Digits only: `u64::from_str` would take a plus sign, which no one else prints.
fn parse(record: &[u8]) -> Option<u64> {
    let digits = record.iter().all(u8::is_ascii_digit);
    digits.then(|| str::from_utf8(record).ok()?.parse().ok())?
}

/// The start of a record, printable.
fn shorten(record: &[u8]) -> String {
    const ENOUGH: usize = 40;
    let dots = if record.len() > ENOUGH { "..." } else { "" };
    format!("{}{dots}", record[..record.len().min(ENOUGH)].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_decimal_digits_in_range_are_integers() {
        assert_eq!(parse(b"0"), Some(0));
        assert_eq!(parse(b"007"), Some(7));
        assert_eq!(parse(b"18446744073709551615"), Some(u64::MAX));
        for bad in ["", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "18446744073709551616", "1\r"]
        {
            assert_eq!(parse(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn a_bad_line_is_named_with_its_place() {
        let batch = Batch { records: vec![b"1", b"two\xff"], first_number: 41 };
        let error =
            keys(&batch, &Input::Stdin, u64::MAX).expect_err("two is no integer").to_string();
        assert!(error.contains("(standard input): line 42:"), "{error}");
        assert!(error.contains(r"two\xff"), "{error}");
        let error = keys(&batch, &Input::Stdin, 0).expect_err("1 is above 0").to_string();
        assert!(error.contains("line 41:") && error.contains("from 0 to 0"), "{error}");
    }
}
