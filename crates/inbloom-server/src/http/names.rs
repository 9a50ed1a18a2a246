//! Names of filters, which are any bytes, in addresses and in JSON.
//!
//! In a path a name is percent-encoded. Browsers take the names `.` and `..` for steps in the path, even
//! encoded, so a name can also be written as `=` and its base64url, without padding: `=Li4` is `..`.
//! Nothing that is percent-encoded begins with `=`.

use std::fmt::Write;

use serde_json::{Map, Value, json};

/// Characters of a name that are shown.
const SHOWN: usize = 512;

/// Returns the name in a segment of a path; None if it is not written properly.
pub fn read(segment: &str) -> Option<Vec<u8>> {
    match segment.strip_prefix('=') {
        Some(encoded) => base64_decode(encoded, URL),
        None => percent_decode(segment),
    }
}

/// Returns a name as a segment of a path.
pub fn path(name: &[u8]) -> String {
    if matches!(name, b"." | b"..") {
        return format!("={}", base64_encode(name, URL));
    }
    percent_encode(name)
}

/// Bytes as a part of an address: all but letters, digits and `-_.~` as `%` and two digits.
pub fn percent_encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(*byte));
            }
            _ => write!(text, "%{byte:02X}").expect("memory takes any text"),
        }
    }
    text
}

/// Returns a name as text to show: bytes that are not UTF-8 as `\xff`, and the beginning of a long
/// one.
pub fn text(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("memory takes any text");
        }
        if text.len() > 4 * SHOWN {
            break;
        }
    }
    match text.char_indices().nth(SHOWN) {
        None => text,
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

/// Adds a name to an object, in all its forms.
pub fn insert(object: &mut Map<String, Value>, name: &[u8]) {
    object.insert("name".to_owned(), json!(text(name)));
    object.insert("name_base64".to_owned(), json!(base64_encode(name, STANDARD)));
    object.insert("path".to_owned(), json!(path(name)));
}

/// Returns the bytes of percent-encoded text; None if a `%` is not followed by two digits.
pub fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, after @ ..] = rest else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push((digit(*high)? * 16 + digit(*low)?) as u8);
        rest = after;
    }
    Some(bytes)
}

/// The letters of base64.
#[derive(Clone, Copy)]
pub struct Alphabet {
    letters: &'static [u8; 64],
    is_padded: bool,
}

/// Of RFC 4648, section 4: with padding.
pub const STANDARD: Alphabet = Alphabet {
    letters: b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    is_padded: true,
};

/// Of RFC 4648, section 5: for addresses, without padding.
pub const URL: Alphabet = Alphabet {
    letters: b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
    is_padded: false,
};

/// Bytes as base64.
pub fn base64_encode(bytes: &[u8], alphabet: Alphabet) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            if at <= chunk.len() {
                let letter = group >> (18 - 6 * at) & 63;
                text.push(char::from(alphabet.letters[letter as usize]));
            } else if alphabet.is_padded {
                text.push('=');
            }
        }
    }
    text
}

/// Returns the bytes of base64; None if it is none. Padding may be left out.
pub fn base64_decode(text: &str, alphabet: Alphabet) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.chunks(4) {
        let mut group = 0;
        for letter in chunk {
            let value = alphabet.letters.iter().position(|it| it == letter)?;
            group = group << 6 | value as u32;
        }
        let group = group << (6 * (4 - chunk.len()));
        let taken = match chunk.len() {
            4 => 3,
            3 => 2,
            2 => 1,
            _ => return None,
        };
        // Bits that no byte has must be zero, or two texts would be one name.
        if group & (0xff_ffff >> (8 * taken)) != 0 {
            return None;
        }
        bytes.extend_from_slice(&group.to_be_bytes()[1..1 + taken]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_comes_back_from_its_path_and_its_base64() {
        let mut random = inbloom_testing::Random(20);
        let mut names: Vec<Vec<u8>> = (0..2000)
            .map(|_| (0..random.below(40)).map(|_| random.next() as u8).collect())
            .collect();
        for name in ["", ".", "..", "=Li4", "a/b", "%2e", "?q#f", "~", "<img src=x>", "\u{4e2d}"] {
            names.push(name.as_bytes().to_vec());
        }
        for name in names {
            let path = path(&name);
            assert_eq!(read(&path).as_ref(), Some(&name), "{path}");
            assert!(
                path.bytes().all(|it| it.is_ascii_graphic() && !b"/?#.".contains(&it))
                    || !matches!(&*path, "." | ".."),
                "{path}"
            );
            for alphabet in [STANDARD, URL] {
                let encoded = base64_encode(&name, alphabet);
                assert_eq!(base64_decode(&encoded, alphabet).as_ref(), Some(&name), "{encoded}");
            }
        }
    }

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64_encode(bytes.as_bytes(), STANDARD), text);
        }
        for wrong in ["Z", "Zh", "Zm9v!", "Zm9", "Zm9vY"] {
            assert_eq!(base64_decode(wrong, STANDARD), None, "{wrong}");
        }
        assert_eq!(read("=Li4").unwrap(), b"..");
        for wrong in ["%", "%4", "%zz", "=Z", "=a+b/"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_text_is_shown_as_numbers_and_long_names_are_cut() {
        assert_eq!(text(b"caf\xc3\xa9 \xff\xfe"), "caf\u{e9} \\xff\\xfe");
        let long = text(&[b'a'; 10_000]);
        assert_eq!(long.len(), SHOWN + 3);
        assert!(text(&[0xff; 10_000]).len() <= SHOWN + 3);
    }
}
