//! Numbers as people like to read them; `inbloom_server::units` reads what they write.

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

/// Returns what is said of lines that have no key, behind how many there were: nothing if there are
/// none.
pub fn without_key(number: u64) -> String {
    if number == 0 { String::new() } else { format!(", {} without a key", lines(number)) }
}

/// Returns a size in decimal units with three significant digits, as disks and memory budgets are
/// stated: `512 B`, `1.25 MB`, `25.0 GB`.
pub fn bytes(number: u64) -> String {
    scaled(number, &[" B", " kB", " MB", " GB", " TB", " PB", " EB"])
}

/// Returns a count with three significant digits, in the units that `-n` takes: `512`, `1.25M`,
/// `10.0G`.
pub fn count(number: u64) -> String {
    scaled(number, &["", "k", "M", "G", "T", "P", "E"])
}

/// Returns a probability: percent down to what rounds to 0.01%, scientific below. `-p` takes both.
pub fn rate(rate: f64) -> String {
    if rate == 0.0 {
        "0".to_string()
    } else if rate < 9.995e-5 {
        format!("{rate:.2e}")
    } else {
        format!("{}%", significant(rate * 100.0))
    }
}

/// Returns a probability as it is typed, with all its digits: `0.01`, `1e-4`.
pub fn typed_rate(rate: f64) -> String {
    if rate < 0.01 { format!("{rate:e}") } else { rate.to_string() }
}

/// Returns an expected number with two significant digits: `0.047`, `5.0`, `1,200`.
pub fn expected(number: f64) -> String {
    // Rounded first: 9.96 has one digit before the point, but "10" has two.
    let rounded: f64 = format!("{number:.1e}").parse().expect("a formatted f64 parses");
    if rounded >= 10.0 {
        return exact(rounded as u64);
    }
    if rounded <= 0.0 {
        return "0".to_string();
    }
    let magnitude = rounded.log10().floor() as i32;
    let decimals = usize::try_from(1 - magnitude).unwrap_or(0);
    format!("{rounded:.decimals$}")
}

/// Returns a share of a whole: `50.3%`.
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
    use inbloom_server::units::parse_rate;

    use super::*;

    #[test]
    fn expected_numbers_have_two_significant_digits() {
        for (number, text) in [
            (0.0, "0"),
            (0.0473, "0.047"),
            (0.001, "0.0010"),
            (0.0999, "0.10"),
            (5.0, "5.0"),
            (9.96, "10"),
            (15.49, "15"),
            (123.4, "120"),
            (1_234.0, "1,200"),
            (f64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(expected(number), text);
        }
    }

    #[test]
    fn rates_are_typed_with_all_their_digits() {
        for (rate, text) in [(0.5, "0.5"), (0.01, "0.01"), (0.001, "1e-3"), (6.25e-5, "6.25e-5")] {
            assert_eq!(typed_rate(rate), text);
            assert_eq!(parse_rate(text), Ok(rate));
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
