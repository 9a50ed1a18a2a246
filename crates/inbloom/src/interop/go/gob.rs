//! The gob stream around what `GobEncode` returns (package encoding/gob of Go).
//!
//! A stream is messages, each its length and a type's number: below 0 the message defines a type, above
//! 0 it has a value. The value of a type that encodes itself is a 0 and its bytes, with their length.
//! Numbers below 128 are a byte; others are a byte that is 256 less their length, and as many bytes,
//! big-endian. A number with a sign has it in its lowest bit.

use crate::codec::Decoder;

/// The first messages of a program's stream whose first value is a filter: the type with number 65
/// encodes itself.
const TYPE: [u8; 11] = [0x0a, 0xff, 0x81, 0x05, 0x01, 0x02, 0xff, 0x84, 0x00, 0x00, 0x00];
const NUMBER: [u8; 2] = [0xff, 0x82];

fn number(fields: &mut Decoder<'_>) -> Option<u64> {
    let first = fields.u8()?;
    if first < 128 {
        return Some(first.into());
    }
    let length = 256 - u64::from(first);
    if length > 8 {
        return None;
    }
    let bytes = fields.take(length)?;
    Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn put_number(out: &mut Vec<u8>, number: u64) {
    if number < 128 {
        out.push(number as u8);
        return;
    }
    let bytes = number.to_be_bytes();
    let bytes = &bytes[number.leading_zeros() as usize / 8..];
    out.push((256 - bytes.len()) as u8);
    out.extend_from_slice(bytes);
}

/// What `GobEncode` has returned, if the bytes are a stream with one value, and that is such.
pub(super) fn body(bytes: &[u8]) -> Option<&[u8]> {
    let mut stream = Decoder(bytes);
    loop {
        let length = number(&mut stream)?;
        let mut message = Decoder(stream.take(length)?);
        let kind = number(&mut message)?;
        let defines_type = kind & 1 == 1;
        if defines_type {
            continue;
        }
        let marker = number(&mut message)?;
        let length = number(&mut message)?;
        let body = message.take(length)?;
        let is_all = message.0.is_empty() && stream.0.is_empty();
        return (marker == 0 && is_all).then_some(body);
    }
}

/// What is before a body of so many bytes.
pub(super) fn header(length: u64) -> Vec<u8> {
    let mut message = Vec::from(NUMBER);
    message.push(0);
    put_number(&mut message, length);
    let mut header = Vec::from(TYPE);
    put_number(&mut header, message.len() as u64 + length);
    header.extend(message);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_found_behind_its_header() {
        for length in [0, 1, 100, 127, 128, 255, 256, 65_536] {
            let mut stream = header(length as u64);
            stream.extend(vec![7; length]);
            assert_eq!(body(&stream), Some(&vec![7; length][..]));
            for cut in (0..stream.len().min(40)).chain([stream.len() - 1]) {
                assert_eq!(body(&stream[..cut]), None, "{cut} of {length}");
            }
            stream.push(0);
            assert_eq!(body(&stream), None);
        }
    }
}
