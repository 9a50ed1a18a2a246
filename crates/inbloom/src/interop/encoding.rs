//! How the bytes of a key are made from what people write.
//!
//! A filter holds the hash of bytes. Which bytes those are, its program decided: Guava's funnel for
//! integers gives four little-endian bytes, one for strings two for each UTF-16 unit. No format of
//! [`interop`](super) records it, so a caller that gives keys as text must name it.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::plan::one_of;

/// What the text of a key stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyEncoding {
    /// The bytes of the text itself.
    #[default]
    Utf8,
    /// UTF-16 units, little-endian: Java's `char`s.
    Utf16le,
    /// A decimal integer in 4 bytes, little-endian, with a sign.
    I32le,
    /// A decimal integer in 8 bytes, little-endian, with a sign.
    I64le,
    /// A decimal integer in 8 bytes, little-endian, without a sign.
    U64le,
    /// A decimal integer in 4 bytes, big-endian, without a sign.
    U32be,
    /// A decimal integer in 8 bytes, big-endian, without a sign.
    U64be,
    /// Bytes in hexadecimal, in lowercase or uppercase.
    Hex,
}

impl KeyEncoding {
    /// Every encoding.
    pub const ALL: &'static [KeyEncoding] = &[
        KeyEncoding::Utf8,
        KeyEncoding::Utf16le,
        KeyEncoding::I32le,
        KeyEncoding::I64le,
        KeyEncoding::U64le,
        KeyEncoding::U32be,
        KeyEncoding::U64be,
        KeyEncoding::Hex,
    ];

    /// Returns the name on the command line and in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            KeyEncoding::Utf8 => "utf8",
            KeyEncoding::Utf16le => "utf16le",
            KeyEncoding::I32le => "i32le",
            KeyEncoding::I64le => "i64le",
            KeyEncoding::U64le => "u64le",
            KeyEncoding::U32be => "u32be",
            KeyEncoding::U64be => "u64be",
            KeyEncoding::Hex => "hex",
        }
    }

    /// Returns what a text has to be, in words.
    #[must_use]
    pub fn expected(self) -> &'static str {
        match self {
            KeyEncoding::Utf8 => "any text",
            KeyEncoding::Utf16le => "UTF-8 text",
            KeyEncoding::I32le => "an integer from -2147483648 to 2147483647",
            KeyEncoding::I64le => "an integer from -2^63 to 2^63 - 1",
            KeyEncoding::U64le | KeyEncoding::U64be => "an integer from 0 to 2^64 - 1",
            KeyEncoding::U32be => "an integer from 0 to 4294967295",
            KeyEncoding::Hex => "an even number of hexadecimal digits",
        }
    }

    /// Replaces `key` by the bytes that the text stands for. Returns false, and leaves nothing, if
    /// it is not [what it has to be](KeyEncoding::expected).
    ///
    /// ```
    /// use inbloom::interop::KeyEncoding;
    ///
    /// let mut key = Vec::new();
    /// assert!(KeyEncoding::I32le.encode(b"-2", &mut key));
    /// assert_eq!(key, [0xfe, 0xff, 0xff, 0xff]);
    /// assert!(KeyEncoding::Hex.encode(b"0aFF", &mut key));
    /// assert_eq!(key, [0x0a, 0xff]);
    /// assert!(!KeyEncoding::U32be.encode(b"4294967296", &mut key));
    /// ```
    #[must_use]
    pub fn encode(self, text: &[u8], key: &mut Vec<u8>) -> bool {
        key.clear();
        let bytes = match self {
            KeyEncoding::Utf8 => {
                key.extend_from_slice(text);
                return true;
            }
            KeyEncoding::Utf16le => {
                let Ok(text) = std::str::from_utf8(text) else { return false };
                key.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
                return true;
            }
            KeyEncoding::Hex => return decode_hex(text, key),
            KeyEncoding::I32le => integer::<i32>(text).map(|it| Integer::from(it.to_le_bytes())),
            KeyEncoding::I64le => integer::<i64>(text).map(|it| Integer::from(it.to_le_bytes())),
            KeyEncoding::U64le => integer::<u64>(text).map(|it| Integer::from(it.to_le_bytes())),
            KeyEncoding::U32be => integer::<u32>(text).map(|it| Integer::from(it.to_be_bytes())),
            KeyEncoding::U64be => integer::<u64>(text).map(|it| Integer::from(it.to_be_bytes())),
        };
        match bytes {
            Some(Integer::Four(bytes)) => key.extend(bytes),
            Some(Integer::Eight(bytes)) => key.extend(bytes),
            None => return false,
        }
        true
    }
}

/// The bytes of an integer.
enum Integer {
    Four([u8; 4]),
    Eight([u8; 8]),
}

impl From<[u8; 4]> for Integer {
    fn from(bytes: [u8; 4]) -> Integer {
        Integer::Four(bytes)
    }
}

impl From<[u8; 8]> for Integer {
    fn from(bytes: [u8; 8]) -> Integer {
        Integer::Eight(bytes)
    }
}

/// A decimal integer. A plus sign is refused: two texts of one key would hide a mistake.
fn integer<T: FromStr>(text: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'))?;
    text.parse().ok()
}

fn decode_hex(text: &[u8], key: &mut Vec<u8>) -> bool {
    let (pairs, rest) = text.as_chunks::<2>();
    let digit = |letter: u8| (letter as char).to_digit(16).map(|digit| digit as u8);
    key.reserve(pairs.len());
    for [high, low] in pairs {
        let (Some(high), Some(low)) = (digit(*high), digit(*low)) else {
            key.clear();
            return false;
        };
        key.push(high << 4 | low);
    }
    if !rest.is_empty() {
        key.clear();
    }
    rest.is_empty()
}

impl fmt::Display for KeyEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for KeyEncoding {
    type Err = Error;

    fn from_str(text: &str) -> Result<KeyEncoding> {
        let mut all = KeyEncoding::ALL.iter().copied();
        all.find(|encoding| encoding.name() == text).ok_or_else(|| Error::Parameter {
            name: "key encoding",
            got: text.to_owned(),
            expected: one_of(KeyEncoding::ALL.iter().map(|encoding| encoding.name())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(encoding: KeyEncoding, text: &[u8]) -> Option<Vec<u8>> {
        let mut key = vec![1, 2, 3];
        let is_taken = encoding.encode(text, &mut key);
        assert!(is_taken || key.is_empty(), "{encoding} leaves nothing of {text:?}");
        is_taken.then_some(key)
    }

    #[test]
    fn integers_are_taken_in_their_range_only() {
        use KeyEncoding::*;
        for (encoding, texts, refused) in [
            (I32le, ["-2147483648", "2147483647"], ["-2147483649", "2147483648"]),
            (
                I64le,
                ["-9223372036854775808", "9223372036854775807"],
                ["-9223372036854775809", "9223372036854775808"],
            ),
            (U64le, ["0", "18446744073709551615"], ["-1", "18446744073709551616"]),
            (U64be, ["0", "18446744073709551615"], ["-1", "18446744073709551616"]),
            (U32be, ["0", "4294967295"], ["-1", "4294967296"]),
        ] {
            for text in texts {
                assert!(encoded(encoding, text.as_bytes()).is_some(), "{encoding} {text}");
            }
            for text in refused.into_iter().chain(["", "+1", " 1", "1 ", "0x1", "1.0", "\u{ff11}"])
            {
                assert_eq!(encoded(encoding, text.as_bytes()), None, "{encoding} {text}");
            }
        }
    }

    #[test]
    fn bytes_are_those_of_the_encoding() {
        use KeyEncoding::*;
        let emoji = "a\u{1f600}".as_bytes();
        for (encoding, text, bytes) in [
            (Utf8, &b"\xff"[..], &b"\xff"[..]),
            (Utf16le, emoji, &[0x61, 0, 0x3d, 0xd8, 0, 0xde]),
            (I32le, b"1", &[1, 0, 0, 0]),
            (I64le, b"-1", &[0xff; 8]),
            (U64le, b"258", &[2, 1, 0, 0, 0, 0, 0, 0]),
            (U64be, b"258", &[0, 0, 0, 0, 0, 0, 1, 2]),
            (U32be, b"258", &[0, 0, 1, 2]),
            (Hex, b"00aBcD", &[0, 0xab, 0xcd]),
            (Hex, b"", b""),
        ] {
            assert_eq!(encoded(encoding, text).as_deref(), Some(bytes), "{encoding} {text:?}");
        }
        for (encoding, text) in [(Utf16le, &b"\xff"[..]), (Hex, b"a"), (Hex, b"0g"), (Hex, b"00 ")]
        {
            assert_eq!(encoded(encoding, text), None, "{encoding} {text:?}");
        }
    }

    #[test]
    fn names_are_read_back() {
        for encoding in KeyEncoding::ALL {
            assert_eq!(encoding.name().parse::<KeyEncoding>().unwrap(), *encoding);
        }
        assert!("UTF8".parse::<KeyEncoding>().is_err());
    }
}
