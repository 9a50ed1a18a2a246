//! Base64 with padding (RFC 4648), in both of its alphabets.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Which two characters stand for 62 and 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alphabet {
    Standard,
    Url,
}

pub(crate) fn encode(bytes: &[u8], alphabet: Alphabet) -> String {
    let letters = match alphabet {
        Alphabet::Standard => STANDARD,
        Alphabet::Url => URL,
    };
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let letter = letters[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= group.len() { letter as char } else { '=' });
        }
    }
    text
}

/// Takes letters of either alphabet. None if it is no whole base64.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let (groups, rest) = text.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(groups.len() * 3);
    for (number, group) in groups.iter().enumerate() {
        let padding = group.iter().rev().take_while(|letter| **letter == b'=').count();
        if padding > 2 || (padding > 0 && number + 1 < groups.len()) {
            return None;
        }
        let mut bits = 0;
        for letter in &group[..4 - padding] {
            bits = bits << 6 | value(*letter)?;
        }
        bits <<= 6 * padding;
        // What is left over behind the last byte is zeros.
        if bits & ((1 << (8 * padding)) - 1) != 0 {
            return None;
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..4 - padding]);
    }
    Some(bytes)
}

fn value(letter: u8) -> Option<u32> {
    let value = match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_the_standard() {
        // RFC 4648, section 10.
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes(), Alphabet::Standard), text);
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(encode(&[0xfb, 0xff], Alphabet::Standard), "+/8=");
        assert_eq!(encode(&[0xfb, 0xff], Alphabet::Url), "-_8=");
        assert_eq!(decode(b"+/8=").as_deref(), Some(&[0xfb, 0xff][..]));
        assert_eq!(decode(b"-_8=").as_deref(), Some(&[0xfb, 0xff][..]));
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        for text in ["Z", "Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zh==", "Zm9=", "Zm 9", "Zg=a"] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
