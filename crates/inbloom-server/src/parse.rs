//! Numbers, as Redis and its modules read them.

use std::str::FromStr;

/// Returns a whole number: no sign but a minus, no blanks, no zeros in front. That is Redis's rule.
pub fn integer(word: &[u8]) -> Option<i64> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let is_plain = match digits {
        b"0" => word.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_plain {
        return None;
    }
    i64::from_str(std::str::from_utf8(word).ok()?).ok()
}

/// Returns a fraction, as C's `strtod` reads one: also `.5e-2`, `inf` and `0x1p-7`. `nan` is none.
pub fn fraction(word: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(word).ok()?;
    let number = match hexadecimal(text) {
        Some(number) => number,
        None => {
            // Rust's parser takes what C's does, but for hexadecimal digits.
            f64::from_str(text).ok()?
        }
    };
    (!number.is_nan()).then_some(number)
}

/// C's hexadecimal floating point, as `0x1.8p-7`.
fn hexadecimal(text: &str) -> Option<f64> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"))?;
    let (mantissa, exponent) = match digits.split_once(['p', 'P']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && part.is_empty() || whole.len() + part.len() > 16 {
        return None;
    }
    let value = |digits: &str| match digits {
        "" => Some(0),
        digits if digits.starts_with('+') => None,
        digits => u64::from_str_radix(digits, 16).ok(),
    };
    let fraction = value(part)? as f64 * 16f64.powi(-(part.len() as i32));
    Some(sign * (value(whole)? as f64 + fraction) * 2f64.powi(exponent))
}

/// Which of these options a word stands for: the only one that begins like it, in upper or lower case.
/// RedisBloom looks at the first letters only, so that its clients may abbreviate; but it takes NOPE for
/// NONSCALING too.
pub fn abbreviated<'a>(word: &[u8], options: &[&'a str]) -> Option<&'a str> {
    let begins = |option: &&&str| {
        let beginning = option.as_bytes().get(..word.len());
        !word.is_empty() && beginning.is_some_and(|it| it.eq_ignore_ascii_case(word))
    };
    let mut found = options.iter().filter(begins);
    found.next().filter(|_| found.next().is_none()).copied()
}

/// Returns whether a word is an option, in upper or lower case.
pub fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_strictly() {
        for (word, number) in [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX)] {
            assert_eq!(integer(word.as_bytes()), Some(number));
        }
        for word in ["", "+1", " 1", "1 ", "01", "-0", "-", "1.0", "1e3", "9223372036854775808"] {
            assert_eq!(integer(word.as_bytes()), None, "{word:?}");
        }
    }

    #[test]
    fn options_may_be_abbreviated_but_not_misspelt() {
        let options = ["ITEMS", "CAPACITY", "ERROR", "EXPANSION", "NOCREATE", "NONSCALING"];
        for (word, option) in
            [("i", "ITEMS"), ("cap", "CAPACITY"), ("ERR", "ERROR"), ("nonscaling", "NONSCALING")]
        {
            assert_eq!(abbreviated(word.as_bytes(), &options), Some(option));
        }
        for word in ["", "NOPE", "NO", "E", "NO_CREATE", "CAPACITYX", "INVENTED"] {
            assert_eq!(abbreviated(word.as_bytes(), &options), None, "{word}");
        }
    }

    #[test]
    fn fractions_are_read_as_c_reads_them() {
        for (word, number) in
            [("0.01", 0.01), (".5e-2", 0.005), ("0x1p-7", 0.0078125), ("0x1.8p1", 3.0), ("1", 1.0)]
        {
            assert_eq!(fraction(word.as_bytes()), Some(number));
        }
        assert_eq!(fraction(b"inf"), Some(f64::INFINITY));
        for word in ["nan", "", "abc", "0.01x", " 0.1", "0x", "0x1p", "1e"] {
            assert_eq!(fraction(word.as_bytes()), None, "{word:?}");
        }
    }
}
