//! Numbers as people write them and as they like to read them.
//!
//! Counts and sizes are parsed in integers, never through `f64`: `10e9` is exactly 10,000,000,000
//! and `18446744073709551615` is not rounded. A number is `digits[.digits][e[+-]digits][unit]`,
//! with `_` allowed between digits. Units are decimal (`k M G T P`: thousands) or binary (`Ki Mi Gi
//! Ti Pi`: 1024s), in upper or lower case; a size may end in `B`. So `64M` is 64,000,000 and
//! `64MiB` is 67,108,864. A window is a time (`7d 12h 30min 10s 500ms`) or a number of keys.

use std::time::Duration;

use inbloom::Span;

/// Parses a number of keys: `1000000`, `1_000_000`, `1e6`, `1M`, `2.5M`.
pub fn parse_count(text: &str) -> Result<u64, String> {
    parse_whole(text, text).map_err(|problem| {
        format!("{problem}; expected a whole number such as 1000000, 1_000_000, 10e9, 2.5M or 10G")
    })
}

/// Parses a number of keys to plan for, which is not 0: a filter for no keys is a mistake.
pub fn parse_keys(text: &str) -> Result<u64, String> {
    match parse_count(text)? {
        0 => Err("no keys need no filter; expected at least 1".to_string()),
        keys => Ok(keys),
    }
}

/// Parses a size in bytes: everything `parse_count` takes, and `64MB`, `64MiB`, `512B`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix(['B', 'b']).unwrap_or(text);
    parse_whole(number, text).map_err(|problem| {
        format!("{problem}; expected a number of bytes such as 1000000, 64MB, 64MiB or 2.5G")
    })
}

/// Parses a false-positive rate, a number strictly between 0 and 1: `0.01`, `1e-4`, `0.01%`.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let problem = match parse_fraction(text) {
        Some(rate) if rate > 0.0 && rate < 1.0 => return Ok(rate),
        Some(0.0) => "only --kind bitmap is never wrong",
        Some(_) => "out of range",
        None => "not a number",
    };
    Err(format!("{problem}; expected a rate between 0 and 1 such as 0.01, 1e-4 or 0.01%"))
}

/// Parses a share of the bits, strictly between 0 and 1: `0.8`, `80%`.
pub fn parse_share(text: &str) -> Result<f64, String> {
    match parse_fraction(text) {
        Some(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err("expected a share between 0 and 1, such as 0.8 or 80%".to_string()),
    }
}

/// Parses a positive number that may have a fraction, such as bits per key.
pub fn parse_positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("expected a number above 0, such as 9.6".to_string()),
    }
}

/// Units of time, in milliseconds, the longest name first where one ends in another.
const TIMES: [(&str, u64); 5] =
    [("ms", 1), ("min", 60_000), ("s", 1000), ("h", 3_600_000), ("d", 86_400_000)];

/// Parses a window: a time with its unit, or without one the last so many keys: `7d`, `100000`.
///
/// Minutes are `min`: `m` is a million in every other count, and refused here.
pub fn parse_window(text: &str) -> Result<Span, String> {
    let time = TIMES.iter().find_map(|(name, unit)| {
        let parts = Parts::split(text.strip_suffix(name)?)?;
        // No 7Md: a unit of time stands alone.
        (parts.unit == 1).then_some(Parts { unit: *unit, ..parts })
    });
    let window = match time {
        Some(parts) => parts.whole().map(Span::Millis),
        // Whoever means minutes must not get a million keys.
        None if text.ends_with('m') => Err("is it 5min, or 5M keys?".to_string()),
        None => parse_whole(text, text).map(Span::Items),
    };
    window.map_err(|problem| {
        format!(
            "{problem}; expected a time such as 7d, 12h, 30min, 10s or 500ms, or a number of keys"
        )
    })
}

/// Parses a time with its unit: `60s`, `5min`.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    match parse_window(text) {
        Ok(Span::Millis(millis)) => Ok(Duration::from_millis(millis)),
        Ok(Span::Items(_)) => Err("has no unit; expected a time such as 60s, 5min or 1h".into()),
        Err(_) => Err("not a time; expected one such as 60s, 5min or 1h".into()),
    }
}

/// 12345678 as `12,345,678`.
pub fn exact(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 shard`, `2,000 shards`: so many of what has this name.
pub fn counted(number: u64, name: &str) -> String {
    format!("{} {name}{}", exact(number), if number == 1 { "" } else { "s" })
}

/// `1 key`, `2,000 keys`.
pub fn keys(number: u64) -> String {
    counted(number, "key")
}

/// `1 line`, `2,000 lines`.
pub fn lines(number: u64) -> String {
    counted(number, "line")
}

/// What is said of lines that have no key, behind how many there were: nothing if there are none.
pub fn without_key(number: u64) -> String {
    if number == 0 { String::new() } else { format!(", {} without a key", lines(number)) }
}

/// A size in decimal units with three significant digits, as disks and memory budgets are stated:
/// `512 B`, `1.25 MB`, `25.0 GB`.
pub fn bytes(number: u64) -> String {
    scaled(number, &[" B", " kB", " MB", " GB", " TB", " PB", " EB"])
}

/// A count with three significant digits, in the units that `-n` takes: `512`, `1.25M`, `10.0G`.
pub fn count(number: u64) -> String {
    scaled(number, &["", "k", "M", "G", "T", "P", "E"])
}

/// A probability: percent down to what rounds to 0.01%, scientific below. `-p` takes both.
pub fn rate(rate: f64) -> String {
    if rate == 0.0 {
        "0".to_string()
    } else if rate < 9.995e-5 {
        format!("{rate:.2e}")
    } else {
        format!("{}%", significant(rate * 100.0))
    }
}

/// A share of a whole: `50.3%`.
pub fn share(share: f64) -> String {
    if share == 0.0 { "0%".to_string() } else { format!("{}%", significant(share * 100.0)) }
}

/// Three significant digits without an exponent, and no fewer than the point needs: `0.0067`,
/// `9.59`, `38.0`, `1235`.
pub fn significant(number: f64) -> String {
    // Rounded first: 9.996 has one digit before the point, but "10.0" has two.
    let rounded: f64 = format!("{number:.2e}").parse().expect("a formatted f64 parses");
    if rounded == 0.0 || !rounded.is_finite() {
        return rounded.to_string();
    }
    let magnitude = rounded.abs().log10().floor() as i32;
    let decimals = usize::try_from(2 - magnitude).unwrap_or(0);
    format!("{number:.decimals$}")
}

/// A plain number, or one in percent.
fn parse_fraction(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(percent) => Some(percent.parse::<f64>().ok()? / 100.0),
        None => text.parse().ok(),
    }
}

/// `parse_whole("2.5M")` = 2,500,000. Messages name the problem, the caller adds what is expected.
fn parse_whole(number: &str, as_typed: &str) -> Result<u64, String> {
    let Some(parts) = Parts::split(number) else {
        let negative = as_typed.starts_with('-') && Parts::split(&number[1..]).is_some();
        return Err(if negative { "negative" } else { "not a number" }.to_string());
    };
    parts.whole()
}

/// A number taken apart: `digits * 10^power * unit`.
struct Parts {
    digits: String,
    power: i64,
    unit: u64,
}

impl Parts {
    /// None where the text is not of the form given at the top of this file.
    fn split(text: &str) -> Option<Parts> {
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
        Some(Parts { digits: whole + &fraction, power, unit: unit(suffix)? })
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

fn unit(suffix: &str) -> Option<u64> {
    let (letter, base) = match suffix.strip_suffix(['i', 'I']) {
        Some(letter) => (letter, 1024_u64),
        None => (suffix, 1000),
    };
    let power = match letter.to_ascii_uppercase().as_str() {
        "" if base == 1000 => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        _ => return None,
    };
    Some(base.pow(power))
}

fn scaled(number: u64, units: &[&str]) -> String {
    if number < 1000 {
        return format!("{number}{}", units[0]);
    }
    let mut value = number as f64;
    let mut step = 0;
    // 999,500 would print as "1000 kB": what rounds up to the next unit belongs to it.
    while value >= 999.5 && step + 1 < units.len() {
        value /= 1000.0;
        step += 1;
    }
    format!("{}{}", significant(value), units[step])
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
    fn sizes_are_read_exactly() {
        for (text, value) in [
            ("512B", 512),
            ("64MB", 64_000_000),
            ("64MiB", 67_108_864),
            ("64mib", 67_108_864),
            ("2.5G", 2_500_000_000),
            ("0.5KiB", 512),
            ("1", 1),
        ] {
            assert_eq!(parse_bytes(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn windows_are_times_with_a_unit_or_else_keys() {
        for (text, window) in [
            ("7d", Span::Millis(604_800_000)),
            ("1.5h", Span::Millis(5_400_000)),
            ("30min", Span::Millis(1_800_000)),
            ("10s", Span::Millis(10_000)),
            ("0.25s", Span::Millis(250)),
            ("500ms", Span::Millis(500)),
            ("1e3s", Span::Millis(1_000_000)),
            ("100000", Span::Items(100_000)),
            ("10M", Span::Items(10_000_000)),
            ("2.5M", Span::Items(2_500_000)),
        ] {
            assert_eq!(parse_window(text), Ok(window), "{text}");
        }
        for (text, reason) in [
            ("", "not a number"),
            ("d", "not a number"),
            ("7w", "not a number"),
            ("7Md", "not a number"),
            ("7 d", "not a number"),
            ("10m", "is it 5min"),
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

    #[test]
    fn numbers_are_printed_with_three_digits_and_never_roll_over_a_unit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_250_000), "1.25 MB");
        assert_eq!(bytes(25_000_000_000), "25.0 GB");
        assert_eq!(bytes(999_999), "1.00 MB");
        assert_eq!(bytes(999_499), "999 kB");
        assert_eq!(bytes(u64::MAX), "18.4 EB");
        assert_eq!(count(10_000_000_000), "10.0G");
        assert_eq!(keys(1), "1 key");
        assert_eq!(keys(2_000), "2,000 keys");
        assert_eq!(exact(0), "0");
        assert_eq!(exact(999), "999");
        assert_eq!(exact(1_000), "1,000");
        assert_eq!(exact(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn rates_are_printed_so_that_they_can_be_given_back() {
        for (value, text) in
            [(0.01, "1.00%"), (1e-4, "0.0100%"), (0.000067, "6.70e-5"), (2.1e-7, "2.10e-7")]
        {
            assert_eq!(rate(value), text);
            assert_eq!(parse_rate(text), Ok(value));
        }
        assert_eq!(rate(0.0), "0");
        assert_eq!(rate(0.000_099_999), "0.0100%");
        assert_eq!(share(0.09996), "10.0%");
        assert_eq!(significant(9.996), "10.0");
        assert_eq!(significant(1234.9), "1235");
    }
}
