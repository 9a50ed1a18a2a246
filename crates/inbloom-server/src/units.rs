//! Numbers, sizes, times and rates as people write them: one grammar for the options of the command line,
//! for the settings of the server, in its file or by CONFIG SET, and for spans of time in commands.
//!
//! A number is `digits[.digits][e[+-]digits][unit]`, with `_` allowed between digits, and without regard
//! to case. It is read in integers, never through `f64`: `10e9` is exactly 10,000,000,000.
//!
//! | | thousands | 1024s |
//! |---|---|---|
//! | numbers of keys | `k m g t p` | `ki mi gi ti pi` |
//! | bytes | `k m g t p` | `ki mi gi ti pi`, `kib mib gib tib pib`, `kb mb gb tb pb` |
//!
//! So `1g` is 1,000,000,000 and `1gb` is 1,073,741,824 everywhere, as in Redis, whose configuration people
//! bring along. Times are `ms`, `s`, `m` or `min`, `h`, `d` and `w`.

pub mod machine;

use std::time::Duration;

use inbloom::Span;

/// Parses a number of keys: `1000000`, `1_000_000`, `1e6`, `1M`, `2.5M`.
///
/// # Errors
///
/// With the problem and an example of what is expected, as all functions of this module.
pub fn parse_count(text: &str) -> Result<u64, String> {
    parse_whole(text, COUNTS).map_err(|problem| {
        format!("{problem}; expected a whole number such as 1000000, 1_000_000, 10e9, 2.5M or 10G")
    })
}

/// Parses a number of keys to plan for, which is not 0: a filter for no keys is a mistake.
///
/// # Errors
///
/// As [`parse_count`].
pub fn parse_keys(text: &str) -> Result<u64, String> {
    match parse_count(text)? {
        0 => Err("a filter needs keys; expected at least 1".to_string()),
        keys => Ok(keys),
    }
}

/// Parses a size in bytes: everything [`parse_count`] takes, and `512B`, `64MiB` and `64MB`, which are the
/// same.
///
/// # Errors
///
/// As [`parse_count`].
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    parse_whole(text, BYTES).map_err(|problem| {
        format!("{problem}; expected a number of bytes such as 1000000, 64M, 64MiB or 2.5G")
    })
}

/// Parses a false-positive rate, a number strictly between 0 and 1: `0.01`, `1e-4`, `0.01%`.
///
/// # Errors
///
/// As [`parse_count`].
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let problem = match parse_fraction(text) {
        Some(rate) if rate > 0.0 && rate < 1.0 => return Ok(rate),
        Some(0.0) => "only --kind bitmap has a rate of 0",
        Some(_) => "out of range",
        None => "not a number",
    };
    Err(format!("{problem}; expected a rate between 0 and 1 such as 0.01, 1e-4 or 0.01%"))
}

/// Parses a share of the bits, strictly between 0 and 1: `0.8`, `80%`.
///
/// # Errors
///
/// As [`parse_count`].
pub fn parse_share(text: &str) -> Result<f64, String> {
    match parse_fraction(text) {
        Some(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err("expected a share between 0 and 1, such as 0.8 or 80%".to_string()),
    }
}

/// Parses a positive number that may have a fraction, such as bits per key.
///
/// # Errors
///
/// As [`parse_count`].
pub fn parse_positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("expected a number above 0, such as 9.6".to_string()),
    }
}

/// Parses a window: a time with its unit, or without one the last so many keys: `7d`, `100000`.
///
/// A number that ends in a small `m` is a time, `5m` as `5min`; five million keys are `5M`.
///
/// # Errors
///
/// As [`parse_count`].
pub fn parse_window(text: &str) -> Result<Span, String> {
    let is_keys = text.ends_with('M');
    let window = match Parts::split(text, TIMES) {
        Some(parts) if !parts.suffix.is_empty() && !is_keys => parts.whole().map(Span::Millis),
        _ => parse_whole(text, COUNTS).map(Span::Items),
    };
    window.map_err(|problem| {
        format!(
            "{problem}; expected a time such as 7d, 12h, 30m, 10s or 500ms, or a number of keys"
        )
    })
}

/// Parses a time with its unit: `60s`, `5m`, `5min`.
///
/// # Errors
///
/// As [`parse_count`].
pub fn parse_time(text: &str) -> Result<Duration, String> {
    match Parts::split(text, TIMES) {
        Some(parts) if parts.suffix.is_empty() => {
            Err("has no unit; expected a time such as 60s, 5m or 1h".into())
        }
        Some(parts) => parts.whole().map(Duration::from_millis),
        None => Err("not a time; expected one such as 60s, 5m or 1h".into()),
    }
}

/// A plain number, or one in percent.
fn parse_fraction(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(percent) => Some(percent.parse::<f64>().ok()? / 100.0),
        None => text.parse().ok(),
    }
}

/// What a suffix, in lowercase, multiplies a number by.
type Units = fn(&str) -> Option<u64>;

const COUNTS: Units = |suffix| match suffix.strip_suffix('i') {
    Some(letter) => Some(1024_u64.pow(exponent(letter).filter(|exponent| *exponent > 0)?)),
    None => Some(1000_u64.pow(exponent(suffix)?)),
};

const BYTES: Units = |suffix| match suffix.strip_suffix('b') {
    None | Some("") => COUNTS(suffix.trim_end_matches('b')),
    // With or without "i": 1024s.
    Some(letter) => COUNTS(&format!("{}i", letter.strip_suffix('i').unwrap_or(letter))),
};

const TIMES: Units = |suffix| match suffix {
    "" | "ms" => Some(1),
    "s" => Some(1000),
    "m" | "min" => Some(60_000),
    "h" => Some(3_600_000),
    "d" => Some(86_400_000),
    "w" => Some(7 * 86_400_000),
    _ => None,
};

fn exponent(letter: &str) -> Option<u32> {
    ["", "k", "m", "g", "t", "p"]
        .iter()
        .zip(0..)
        .find_map(|(name, n)| (*name == letter).then_some(n))
}

/// `parse_whole("2.5M", COUNTS)` = 2,500,000. Messages name the problem, the caller adds what is expected.
fn parse_whole(text: &str, units: Units) -> Result<u64, String> {
    let Some(parts) = Parts::split(text, units) else {
        let negative =
            text.strip_prefix('-').is_some_and(|rest| Parts::split(rest, units).is_some());
        return Err(if negative { "negative" } else { "not a number" }.to_string());
    };
    parts.whole()
}

/// A number taken apart: `digits * 10^power * unit`.
struct Parts {
    digits: String,
    power: i64,
    suffix: String,
    unit: u64,
}

impl Parts {
    /// None where the text is not of the form given at the top of this file.
    fn split(text: &str, units: Units) -> Option<Parts> {
        let (whole, rest) = leading_digits(text)?;
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => leading_digits(rest)?,
            None => (String::new(), rest),
        };
        let (exponent, suffix) = match rest.strip_prefix(['e', 'E']) {
            Some(rest) => {
                let (sign, rest) = match rest.strip_prefix('-') {
                    Some(rest) => (-1, rest),
                    None => (1, rest.strip_prefix('+').unwrap_or(rest)),
                };
                let (digits, rest) = leading_digits(rest)?;
                // An exponent of ten digits is as hopeless as one of twenty.
                (sign * digits.parse::<i64>().unwrap_or(i64::from(i32::MAX)), rest)
            }
            None => (0, rest),
        };
        let power = exponent.saturating_sub(fraction.len() as i64);
        let suffix = suffix.to_ascii_lowercase();
        Some(Parts { digits: whole + &fraction, power, unit: units(&suffix)?, suffix })
    }

    fn whole(&self) -> Result<u64, String> {
        self.value().unwrap_or_else(|| Err(format!("too large, the limit is {}", u64::MAX)))
    }

    /// None on overflow, an error where something is left behind the decimal point.
    fn value(&self) -> Option<Result<u64, String>> {
        let digits = self.digits.trim_start_matches('0');
        if digits.is_empty() {
            return Some(Ok(0));
        }
        // u128 holds every u64 times the largest unit; more digits than it takes are too many.
        let scaled = digits.parse::<u128>().ok()?.checked_mul(u128::from(self.unit))?;
        let power = u32::try_from(self.power.unsigned_abs()).ok();
        let shift = power.and_then(|power| 10_u128.checked_pow(power));
        let value = match (self.power < 0, shift) {
            (false, shift) => scaled.checked_mul(shift?)?,
            (true, Some(shift)) if scaled.is_multiple_of(shift) => scaled / shift,
            (true, _) => return Some(Err("has a fraction".to_string())),
        };
        u64::try_from(value).ok().map(Ok)
    }
}

/// Splits off one or more digits, which `_` may separate; the digits come back without it.
fn leading_digits(text: &str) -> Option<(String, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let separated = !digits.starts_with('_') && !digits.ends_with('_');
    (separated && !digits.is_empty()).then(|| (digits.replace('_', ""), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_exactly() {
        for (text, value) in [
            ("0", 0),
            ("1", 1),
            ("007", 7),
            ("1_000", 1_000),
            ("10e9", 10_000_000_000),
            ("10E9", 10_000_000_000),
            ("1e+3", 1_000),
            ("1.5e1", 15),
            ("1500e-2", 15),
            ("10G", 10_000_000_000),
            ("10g", 10_000_000_000),
            ("2.5M", 2_500_000),
            ("0.5Ki", 512),
            ("64Mi", 67_108_864),
            ("18446744073709551615", u64::MAX),
            ("18446744073709551.615k", u64::MAX),
            ("0e99999999999999999999", 0),
            ("0.000", 0),
        ] {
            assert_eq!(parse_count(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn letters_alone_are_thousands_and_those_with_a_b_are_1024s_as_in_redis() {
        for (text, value) in [
            ("0", 0),
            ("100", 100),
            ("512B", 512),
            ("100b", 100),
            ("2k", 2_000),
            ("2kb", 2_048),
            ("1m", 1_000_000),
            ("64M", 64_000_000),
            ("64MB", 67_108_864),
            ("100mb", 100 << 20),
            ("64Mi", 67_108_864),
            ("64MiB", 67_108_864),
            ("64mib", 67_108_864),
            ("2.5G", 2_500_000_000),
            ("3g", 3_000_000_000),
            ("1gb", 1 << 30),
            ("1.5gb", 3 << 29),
            ("2tb", 2 << 40),
            ("0.5KiB", 512),
            ("16383PB", 16383 << 50),
        ] {
            assert_eq!(parse_bytes(text), Ok(value), "{text}");
        }
        for text in
            ["", "b", "mb", "-1", "1 gb", "1bb", "1ib", "1i", "1kiib", "99999999999gb", "16384pb"]
        {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn windows_are_times_with_a_unit_or_else_keys() {
        for (text, window) in [
            ("7d", Span::Millis(604_800_000)),
            ("2w", Span::Millis(1_209_600_000)),
            ("1.5h", Span::Millis(5_400_000)),
            ("30min", Span::Millis(1_800_000)),
            ("30m", Span::Millis(1_800_000)),
            ("10s", Span::Millis(10_000)),
            ("0.25s", Span::Millis(250)),
            ("500ms", Span::Millis(500)),
            ("1e3s", Span::Millis(1_000_000)),
            ("100000", Span::Items(100_000)),
            ("10M", Span::Items(10_000_000)),
            ("2.5M", Span::Items(2_500_000)),
            ("10k", Span::Items(10_000)),
        ] {
            assert_eq!(parse_window(text), Ok(window), "{text}");
        }
        for (text, reason) in [
            ("", "not a number"),
            ("d", "not a number"),
            ("7y", "not a number"),
            ("7Md", "not a number"),
            ("7 d", "not a number"),
            ("-7d", "not a number"),
            ("-7", "negative"),
            ("0.1ms", "has a fraction"),
            ("1.5", "has a fraction"),
            ("1e30d", "too large"),
        ] {
            let message = parse_window(text).expect_err(text);
            assert!(message.starts_with(reason), "{text}: {message}");
            assert!(message.contains("7d"), "{message}");
        }
    }

    #[test]
    fn times_have_a_unit() {
        for (text, millis) in [("60s", 60_000), ("5m", 300_000), ("5min", 300_000), ("5M", 300_000)]
        {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "5 m", "-5m", "m", "5mb", "1e30w"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_whole_number_in_range_is_refused_with_its_reason() {
        for (text, reason) in [
            ("1.5", "has a fraction"),
            ("2.5e-1", "has a fraction"),
            ("1e-30", "has a fraction"),
            ("1e-999999999999", "has a fraction"),
            ("18446744073709551616", "too large"),
            ("1e30", "too large"),
            ("1e999999999999", "too large"),
            ("99999P", "too large"),
            ("-5", "negative"),
            ("-", "not a number"),
            ("", "not a number"),
            ("abc", "not a number"),
            ("NaN", "not a number"),
            ("inf", "not a number"),
            ("1e", "not a number"),
            ("1.", "not a number"),
            (".5", "not a number"),
            ("_1", "not a number"),
            ("1_", "not a number"),
            ("1 000", "not a number"),
            ("1i", "not a number"),
            ("10Q", "not a number"),
            ("1B", "not a number"),
        ] {
            let message = parse_count(text).expect_err(text);
            assert!(message.starts_with(reason), "{text}: {message}");
        }
    }

    #[test]
    fn rates_lie_strictly_between_zero_and_one() {
        assert_eq!(parse_rate("0.01"), Ok(0.01));
        assert_eq!(parse_rate("1e-4"), Ok(0.0001));
        assert_eq!(parse_rate("1%"), Ok(0.01));
        for text in ["0", "1", "100%", "-0.1", "1.5", "NaN", "inf", "abc", "", "%", "1e-400"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }
}
