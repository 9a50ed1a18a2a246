//! Which part of a record is the key, where it is not all of it: fields, as `cut -d -f` has them.
//!
//! A record is divided at every delimiter, from left to right; there is no quoting (`csv.rs` has
//! it). The selected fields are joined by the delimiter in the order in which they stand in the
//! record, whatever the order in which they were listed, and those that the record does not have
//! are left out. A record that has none of them has no key:
//!
//! ```text
//!   record           a,b,c,d,e      a,b      a         ,
//!   fields 2,4-      b,d,e          b        no key    (empty)
//! ```
//!
//! A record without any delimiter is its own first field and has no others. (`cut` prints it whole
//! for every list. What becomes of a record without a key is up to `--missing`.)

use std::fmt;
use std::ops::RangeInclusive;

use memchr::memmem::Finder;

/// Which fields of a record are the key, as `cut -d -f`.
#[derive(Clone, Debug)]
pub struct Fields {
    delimiter: Finder<'static>,
    list: FieldList,
}

/// Fields counted from 1: ranges in rising order, with at least one field between two of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldList(Vec<RangeInclusive<usize>>);

/// What stands between two fields: one byte or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delimiter(Vec<u8>);

impl Default for Delimiter {
    /// Returns a tab, as for `cut`.
    fn default() -> Delimiter {
        Delimiter(b"\t".to_vec())
    }
}

impl fmt::Display for FieldList {
    /// As it is typed: `1,3-4,6-`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            match (range.start(), range.end()) {
                (start, end) if start == end => write!(f, "{start}")?,
                (start, &usize::MAX) => write!(f, "{start}-")?,
                (start, end) => write!(f, "{start}-{end}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Delimiter {
    /// In quotes, as it may be a space.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.0.escape_ascii())
    }
}

impl FieldList {
    /// All fields.
    pub fn all() -> FieldList {
        FieldList(vec![1..=usize::MAX])
    }

    /// Returns the one field of the list, counted from 1, if it is one.
    pub fn only(&self) -> Option<usize> {
        match self.0.as_slice() {
            [only] if only.start() == only.end() => Some(*only.start()),
            _ => None,
        }
    }

    /// Which of so many fields are in the list, counted from 0, in order.
    pub fn of(&self, fields: usize) -> impl Iterator<Item = usize> {
        self.0.iter().flat_map(move |range| *range.start() - 1..fields.min(*range.end()))
    }
}

impl Delimiter {
    /// Returns the byte that it is, if it is one.
    pub fn byte(&self) -> Option<u8> {
        match self.0.as_slice() {
            [byte] => Some(*byte),
            _ => None,
        }
    }
}

impl Fields {
    pub fn new(list: FieldList, delimiter: Delimiter) -> Fields {
        Fields { delimiter: Finder::new(&delimiter.0).into_owned(), list }
    }

    /// Returns the key of a record, unless it has none of the fields. One run of fields is borrowed
    /// from it, several are written into `scratch`, whose contents do not matter.
    pub fn select<'a>(&self, record: &'a [u8], scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let mut cursor = Cursor { delimiter: &self.delimiter, rest: Some(record), next: 1 };
        let (first, more) = self.list.0.split_first()?;
        let run = cursor.run(first)?;
        if more.is_empty() {
            return Some(run);
        }
        scratch.clear();
        scratch.extend_from_slice(run);
        for range in more {
            let Some(run) = cursor.run(range) else { break };
            scratch.extend_from_slice(self.delimiter.needle());
            scratch.extend_from_slice(run);
        }
        Some(scratch)
    }
}

/// A place in a record, which moves to the right only and stops behind the last field asked for.
struct Cursor<'f, 'a> {
    delimiter: &'f Finder<'static>,
    /// From the next field on; None behind the last one, which is not the same as one empty field.
    rest: Option<&'a [u8]>,
    /// The number of the next field.
    next: usize,
}

impl<'a> Cursor<'_, 'a> {
    /// Returns the fields of this range that the record has, with the delimiters between them; None
    /// if it has none of them.
    fn run(&mut self, range: &RangeInclusive<usize>) -> Option<&'a [u8]> {
        self.pass(*range.start() - self.next);
        let run = self.rest?;
        if *range.end() == usize::MAX {
            // To the end of the record, whose delimiters need not be counted.
            self.rest = None;
            return Some(run);
        }
        self.pass(*range.end() + 1 - self.next);
        let behind = self.rest.map_or(0, |rest| rest.len() + self.delimiter.needle().len());
        Some(&run[..run.len() - behind])
    }

    /// Moves over so many fields and the delimiters behind them.
    fn pass(&mut self, fields: usize) {
        for _ in 0..fields {
            let Some(rest) = self.rest else { break };
            let end = self.delimiter.find(rest);
            self.rest = end.map(|end| &rest[end + self.delimiter.needle().len()..]);
        }
        self.next += fields;
    }
}

/// Parses a list of fields as `cut -f` takes it: `2`, `1,3`, `2-4`, `3-`, `-2`.
pub fn parse_list(text: &str) -> Result<FieldList, String> {
    let mut ranges = Vec::new();
    for item in text.split(',') {
        let range = parse_range(item).map_err(|problem| {
            format!("{problem}; expected fields counted from 1, such as 2, 1,3, 2-4, 3- or -2")
        })?;
        ranges.push(range);
    }
    ranges.sort_by_key(|range| *range.start());
    let mut merged: Vec<RangeInclusive<usize>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if *range.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => merged.push(range),
        }
    }
    Ok(FieldList(merged))
}

fn parse_range(item: &str) -> Result<RangeInclusive<usize>, String> {
    let range = match item.split_once('-') {
        None => {
            let field = parse_field(item)?;
            field..=field
        }
        Some(("", "")) => return Err("a range without an end".to_string()),
        Some((first, "")) => parse_field(first)?..=usize::MAX,
        Some(("", last)) => 1..=parse_field(last)?,
        Some((first, last)) => parse_field(first)?..=parse_field(last)?,
    };
    if range.is_empty() {
        return Err(format!("the range {item} ends before it begins"));
    }
    Ok(range)
}

fn parse_field(text: &str) -> Result<usize, String> {
    if text.is_empty() {
        return Err("a field is missing".to_string());
    }
    // `parse` would take a sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("'{text}' is not a number"));
    }
    match text.parse() {
        Ok(0) => Err("there is no field 0".to_string()),
        // usize::MAX stands for the end of the record.
        Ok(field) if field < usize::MAX => Ok(field),
        _ => Err(format!("{text} is too large")),
    }
}

/// Parses what stands between fields: any text that is not empty, in which `\t \n \r \0 \\` and
/// `\x1f` stand for what they do in C.
pub fn parse_delimiter(text: &str) -> Result<Delimiter, String> {
    let mut delimiter = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let (byte, behind) = match first {
            b'\\' => unescape(behind).ok_or(
                "not an escape; expected \\t, \\n, \\r, \\0, \\x and two hexadecimal digits, \
                 or \\\\ for a backslash",
            )?,
            byte => (*byte, behind),
        };
        delimiter.push(byte);
        rest = behind;
    }
    if delimiter.is_empty() {
        return Err("empty; expected what stands between fields, such as , or \\t".to_string());
    }
    Ok(Delimiter(delimiter))
}

/// Returns what the text behind a backslash stands for, and the text behind that.
fn unescape(text: &[u8]) -> Option<(u8, &[u8])> {
    let hexadecimal = |digit: u8| char::from(digit).to_digit(16);
    Some(match text {
        [b't', rest @ ..] => (b'\t', rest),
        [b'n', rest @ ..] => (b'\n', rest),
        [b'r', rest @ ..] => (b'\r', rest),
        [b'0', rest @ ..] => (0, rest),
        [b'\\', rest @ ..] => (b'\\', rest),
        [b'x', high, low, rest @ ..] => {
            (u8::try_from(hexadecimal(*high)? * 16 + hexadecimal(*low)?).ok()?, rest)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(list: &str, delimiter: &str, record: &str) -> String {
        let list = parse_list(list).expect(list);
        let fields = Fields::new(list, parse_delimiter(delimiter).expect(delimiter));
        let mut scratch = b"left over".to_vec();
        let Some(key) = fields.select(record.as_bytes(), &mut scratch) else {
            return "no key".to_string();
        };
        String::from_utf8(key.to_vec()).expect("the test's records are ASCII")
    }

    #[test]
    fn keys_are_what_cut_prints() {
        // The right column is the output of: printf '%s\n' RECORD | cut -d, -f LIST
        for (list, record, expected) in [
            ("1", "a,b,c,d,e", "a"),
            ("2", "a,b,c,d,e", "b"),
            ("5", "a,b,c,d,e", "e"),
            ("2-4", "a,b,c,d,e", "b,c,d"),
            ("2-4", "a,b,c", "b,c"),
            ("2-4", "a,b", "b"),
            ("3-", "a,b,c,d,e", "c,d,e"),
            ("-2", "a,b,c,d,e", "a,b"),
            ("1-", "a,b,c,d,e", "a,b,c,d,e"),
            ("1,3", "a,b,c,d,e", "a,c"),
            ("3,1", "a,b,c,d,e", "a,c"),
            ("1,3", "a,b", "a"),
            ("2,4-", "a,b,c,d,e", "b,d,e"),
            ("2,2,2", "a,b,c", "b"),
            ("1,2,4", "a,b,c,d,e", "a,b,d"),
            ("2-3,1-2,5", "a,b,c,d,e", "a,b,c,e"),
            ("1,3", ",,", ","),
            ("1,3", ",", ""),
            ("2", ",,", ""),
            ("2-", "a,", ""),
            ("2", "\"a,b\",c", "b\""),
            ("1", "abc", "abc"),
            ("1-", "", ""),
        ] {
            assert_eq!(selected(list, ",", record), expected, "-f {list} of {record}");
        }
    }

    #[test]
    fn a_record_without_the_delimiter_is_one_field() {
        assert_eq!(selected("1", "\\t", "a,b"), "a,b");
        assert_eq!(selected("2", "\\t", "a,b"), "no key");
        assert_eq!(selected("2,4", "\\t", "a,b"), "no key");
    }

    #[test]
    fn a_record_with_none_of_the_fields_has_no_key_and_one_with_an_empty_field_has() {
        assert_eq!(selected("6", ",", "a,b,c,d,e"), "no key");
        assert_eq!(selected("3,5", ",", "a,b"), "no key");
        assert_eq!(selected("2", ",", "a,"), "");
        assert_eq!(selected("1", ",", ""), "");
    }

    #[test]
    fn delimiters_of_several_bytes_are_found_from_left_to_right() {
        assert_eq!(selected("2", " | ", "a | b | c"), "b");
        assert_eq!(selected("1,3", " | ", "a | b | c"), "a | c");
        assert_eq!(selected("2", "::", "a:::b"), ":b");
        assert_eq!(selected("2-", "::", "a::::b"), "::b");
        assert_eq!(selected("2", "::", "a:b"), "no key");
    }

    /// Returns the selection written as its definition: all fields, those in the list, joined.
    fn naive(ranges: &[RangeInclusive<usize>], delimiter: &str, record: &str) -> String {
        let fields = record.split(delimiter).enumerate();
        let chosen = fields.filter(|(index, _)| ranges.iter().any(|r| r.contains(&(index + 1))));
        let chosen: Vec<&str> = chosen.map(|(_, field)| field).collect();
        if chosen.is_empty() { "no key".to_string() } else { chosen.join(delimiter) }
    }

    #[test]
    fn keys_are_those_of_a_naive_split() {
        let mut numbers = inbloom_testing::Random(1);
        let mut random = |below: usize| numbers.index(below);
        for _ in 0..200_000 {
            let mut ranges = Vec::new();
            let mut list = Vec::new();
            for _ in 0..=random(3) {
                let first = 1 + random(6);
                let last = first + random(4);
                let (range, text) = match random(4) {
                    0 => (first..=first, format!("{first}")),
                    1 => (first..=last, format!("{first}-{last}")),
                    2 => (first..=usize::MAX, format!("{first}-")),
                    _ => (1..=last, format!("-{last}")),
                };
                ranges.push(range);
                list.push(text);
            }
            let list = list.join(",");
            let delimiter = [",", ";", ",,", ",;", ",;,"][random(5)];
            let record: String =
                (0..random(24)).map(|_| [',', ',', ';', 'a', 'b'][random(5)]).collect();
            assert_eq!(
                selected(&list, delimiter, &record),
                naive(&ranges, delimiter, &record),
                "-d {delimiter} -f {list} of {record}"
            );
        }
    }

    #[test]
    fn one_run_of_fields_is_borrowed() {
        for list in ["2", "2,3", "2-4", "3-", "-2", "1-2,2-3", "9"] {
            let fields = Fields::new(parse_list(list).expect(list), Delimiter(vec![b'\t']));
            let mut scratch = Vec::new();
            fields.select(b"a\tb\tc\td", &mut scratch);
            assert_eq!(scratch.capacity(), 0, "{list}");
        }
    }

    #[test]
    fn lists_are_sorted_and_merged() {
        for (text, ranges) in [
            ("2", vec![2..=2]),
            ("1,3", vec![1..=1, 3..=3]),
            ("3,1,2", vec![1..=3]),
            ("5-6,1-3,2", vec![1..=3, 5..=6]),
            ("3-,1,7-9", vec![1..=1, 3..=usize::MAX]),
            ("2-,1-", vec![1..=usize::MAX]),
            ("-2,4", vec![1..=2, 4..=4]),
            ("1-9,3", vec![1..=9]),
            ("007", vec![7..=7]),
        ] {
            assert_eq!(parse_list(text), Ok(FieldList(ranges)), "{text}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_reason() {
        for (text, reason) in [
            ("", "a field is missing"),
            (",", "a field is missing"),
            ("1,,2", "a field is missing"),
            ("1,", "a field is missing"),
            ("-", "a range without an end"),
            ("0", "there is no field 0"),
            ("0-3", "there is no field 0"),
            ("-0", "there is no field 0"),
            ("4-2", "the range 4-2 ends before it begins"),
            ("1-2-3", "'2-3' is not a number"),
            ("--2", "'-2' is not a number"),
            ("+2", "'+2' is not a number"),
            ("name", "'name' is not a number"),
            ("1, 2", "' 2' is not a number"),
            ("99999999999999999999", "99999999999999999999 is too large"),
        ] {
            let message = parse_list(text).expect_err(text);
            assert!(message.starts_with(reason), "{text}: {message}");
            assert!(message.contains("; expected fields counted from 1"), "{message}");
        }
        assert!(parse_list(&usize::MAX.to_string()).is_err());
    }

    #[test]
    fn delimiters_are_text_with_escapes() {
        for (text, bytes) in [
            (",", &b","[..]),
            ("\t", b"\t"),
            ("\\t", b"\t"),
            ("\\n", b"\n"),
            ("\\r\\0", b"\r\0"),
            ("\\\\", b"\\"),
            ("\\\\t", b"\\t"),
            ("\\x01", b"\x01"),
            ("\\xfF,", b"\xFF,"),
            (" | ", b" | "),
            ("\u{b7}", b"\xC2\xB7"),
        ] {
            assert_eq!(parse_delimiter(text), Ok(Delimiter(bytes.to_vec())), "{text}");
        }
        assert!(parse_delimiter("").expect_err("empty").starts_with("empty; expected"));
        for text in ["\\", "a\\", "\\q", "\\x", "\\x1", "\\xg0", "\\x+1"] {
            let message = parse_delimiter(text).expect_err(text);
            assert!(message.starts_with("not an escape; expected \\t"), "{text}: {message}");
        }
    }
}
