//! CSV: where records end, and which fields of them are the key.
//!
//! A record may span lines, since a quoted field may hold newlines. Whether a newline ends a record
//! depends on every quote before it, so the reader finds the ends, one block after the other, by a
//! small state machine that passes over text with `memchr`. The workers take the records apart, by
//! the crate `csv-core`. Both follow RFC 4180 in the same way, which a test compares:
//!
//! - A quote opens a quoted field only where the field begins: `5" disk` has no quoted part.
//! - Two quotes in a quoted field are one. What follows the closing quote belongs to the field.
//! - Records end in `\n`; a `\r` before it is not part of the last field.
//! - A byte order mark at the start of a record is passed over: Excel begins files with one.
//!
//! Two things differ from `csv-core`: an empty line is a record without fields, so that it can be
//! printed as it came, and an input that ends within a quoted field is an error. A quote that is
//! never closed makes the rest of the input one record, and would lose it without a word.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};
use memchr::{memchr, memchr2};

use crate::fields::FieldList;

/// Finds the ends of records; fed with all bytes of an input, in any portions.
#[derive(Clone, Debug)]
pub struct Splitter {
    delimiter: u8,
    state: QuoteState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuoteState {
    /// Before the first byte of a record.
    Record,
    /// Behind one or two bytes of a byte order mark.
    Mark(u8),
    /// Before the first byte of a field.
    Field,
    Unquoted,
    Quoted,
    /// Behind a quote in a quoted field: it was the last byte of it, or the first of two.
    Quote,
}

impl Splitter {
    pub fn new(delimiter: u8) -> Splitter {
        Splitter { delimiter, state: QuoteState::Record }
    }

    /// Appends where records end, behind `offset` bytes that came before these: the positions of
    /// the newlines that end them.
    pub fn ends(&mut self, bytes: &[u8], offset: usize, ends: &mut Vec<usize>) {
        let mut at = 0;
        while at < bytes.len() {
            // Text in which nothing happens is passed over at once.
            let skipped = match self.state {
                QuoteState::Unquoted => memchr2(self.delimiter, b'\n', &bytes[at..]),
                QuoteState::Quoted => memchr(b'"', &bytes[at..]),
                _ => Some(0),
            };
            let Some(skipped) = skipped else { return };
            at += skipped;
            let byte = bytes[at];
            self.state = match (self.state, byte) {
                (QuoteState::Quoted, b'"') => QuoteState::Quote,
                (QuoteState::Quoted, _) => QuoteState::Quoted,
                (_, b'\n') => {
                    ends.push(offset + at);
                    QuoteState::Record
                }
                (_, byte) if byte == self.delimiter => QuoteState::Field,
                (QuoteState::Record | QuoteState::Field, b'"') => QuoteState::Quoted,
                (QuoteState::Quote, b'"') => QuoteState::Quoted,
                (QuoteState::Record, 0xef) => QuoteState::Mark(1),
                (QuoteState::Mark(1), 0xbb) => QuoteState::Mark(2),
                (QuoteState::Mark(2), 0xbf) => QuoteState::Field,
                _ => QuoteState::Unquoted,
            };
            at += 1;
        }
    }

    /// Returns whether what came so far ends within a quoted field.
    pub fn is_within_quotes(&self) -> bool {
        self.state == QuoteState::Quoted
    }
}

/// Which fields of a record are the key.
#[derive(Clone, Debug)]
pub struct CsvFields {
    pub delimiter: u8,
    pub chosen: Chosen,
}

#[derive(Clone, Debug)]
pub enum Chosen {
    Numbers(FieldList),
    /// By their names in the header.
    Names(Vec<String>),
}

/// The same in one input, whose header is known.
pub struct Selector<'f> {
    /// Made anew for every block: what `Clone` makes of one forgets how to read.
    reader: Reader,
    delimiter: u8,
    columns: ChosenColumns<'f>,
}

enum ChosenColumns<'f> {
    List(&'f FieldList),
    /// Where the names are in the header, counted from 0. In the order of the names: inputs may
    /// have their columns in different orders.
    Named(Vec<usize>),
}

/// The fields of one record, unquoted, and room for the key that is made of some.
#[derive(Default)]
pub struct Unquoted {
    bytes: Vec<u8>,
    /// Where each field ends.
    ends: Vec<usize>,
    key: Vec<u8>,
}

impl CsvFields {
    /// Returns the same fields in an input with this header. All names must be in it: the one that
    /// is not is returned.
    pub fn in_columns<'f>(&'f self, header: Option<&[Vec<u8>]>) -> Result<Selector<'f>, &'f str> {
        let header = header.unwrap_or_default();
        let column = |name: &'f String| {
            let at = header.iter().position(|field| field == name.as_bytes());
            at.ok_or(name.as_str())
        };
        let columns = match &self.chosen {
            Chosen::Numbers(list) => ChosenColumns::List(list),
            Chosen::Names(names) => {
                ChosenColumns::Named(names.iter().map(column).collect::<Result<_, _>>()?)
            }
        };
        Ok(Selector { reader: reader(self.delimiter), delimiter: self.delimiter, columns })
    }
}

impl Selector<'_> {
    /// Returns the key of a record, unless it has none of the fields. One field is the key as it is
    /// without its quotes. Several are joined by the delimiter, quoted again where they need it:
    /// otherwise `a,b` and `c` would be the same key as `a` and `b,c`.
    pub fn select<'a>(&mut self, record: &[u8], unquoted: &'a mut Unquoted) -> Option<&'a [u8]> {
        unquoted.read(&mut self.reader, record);
        match &self.columns {
            ChosenColumns::List(list) => match list.only() {
                Some(only) => unquoted.field(only - 1),
                None => unquoted.join(list.of(unquoted.ends.len()), self.delimiter),
            },
            ChosenColumns::Named(columns) => match columns.as_slice() {
                [only] => unquoted.field(*only),
                several => unquoted.join(several.iter().copied(), self.delimiter),
            },
        }
    }
}

/// Returns the fields of a header.
pub fn names(header: &[u8], delimiter: u8) -> Vec<Vec<u8>> {
    let mut unquoted = Unquoted::default();
    unquoted.read(&mut reader(delimiter), header);
    (0..unquoted.ends.len()).filter_map(|index| unquoted.field(index).map(<[u8]>::to_vec)).collect()
}

fn reader(delimiter: u8) -> Reader {
    // A carriage return goes before the record is read, and only the last one.
    ReaderBuilder::new().delimiter(delimiter).terminator(Terminator::Any(b'\n')).build()
}

impl Unquoted {
    /// Takes a record apart. An empty one has no fields.
    fn read(&mut self, reader: &mut Reader, record: &[u8]) {
        let mut input = record.strip_suffix(b"\r").unwrap_or(record);
        let (mut written, mut fields) = (0, 0);
        reader.reset();
        self.bytes.resize(self.bytes.len().max(input.len()), 0);
        self.ends.resize(self.ends.capacity().max(16), 0);
        loop {
            let (result, read, wrote, ended) =
                reader.read_record(input, &mut self.bytes[written..], &mut self.ends[fields..]);
            input = &input[read..];
            written += wrote;
            fields += ended;
            match result {
                // What is empty now is taken for the end by the next call.
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => self.bytes.resize(2 * self.bytes.len() + 16, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(2 * self.ends.len(), 0),
                ReadRecordResult::Record | ReadRecordResult::End => break,
            }
        }
        self.ends.truncate(fields);
    }

    fn field(&self, index: usize) -> Option<&[u8]> {
        field(&self.bytes, &self.ends, index)
    }

    /// Those of these fields that the record has, if it has any.
    fn join(&mut self, fields: impl Iterator<Item = usize>, delimiter: u8) -> Option<&[u8]> {
        let Unquoted { bytes, ends, key } = self;
        key.clear();
        let mut any = false;
        for field in fields.filter_map(|index| field(bytes, ends, index)) {
            if any {
                key.push(delimiter);
            }
            any = true;
            quote(field, delimiter, key);
        }
        any.then_some(key)
    }
}

fn field<'a>(bytes: &'a [u8], ends: &[usize], index: usize) -> Option<&'a [u8]> {
    let end = *ends.get(index)?;
    let start = if index == 0 { 0 } else { ends[index - 1] };
    Some(&bytes[start..end])
}

/// Appends a field as a CSV file has it: in quotes if it needs them.
fn quote(field: &[u8], delimiter: u8, text: &mut Vec<u8>) {
    let needs = |byte: &u8| [delimiter, b'"', b'\r', b'\n'].contains(byte);
    if !field.iter().any(needs) {
        text.extend_from_slice(field);
        return;
    }
    text.push(b'"');
    for &byte in field {
        if byte == b'"' {
            text.push(b'"');
        }
        text.push(byte);
    }
    text.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::parse_list;

    /// Returns the records that `csv-core` finds in a whole text: their fields.
    fn oracle(text: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let mut reader =
            ReaderBuilder::new().delimiter(b',').terminator(Terminator::Any(b'\n')).build();
        let (mut bytes, mut ends) = (vec![0; 4096], vec![0; 4096]);
        let (mut input, mut records) = (text, Vec::new());
        let (mut written, mut fields) = (0, 0);
        loop {
            let (result, read, wrote, ended) =
                reader.read_record(input, &mut bytes[written..], &mut ends[fields..]);
            input = &input[read..];
            (written, fields) = (written + wrote, fields + ended);
            match result {
                ReadRecordResult::Record => {
                    let one = |index| field(&bytes, &ends[..fields], index);
                    records.push((0..fields).filter_map(one).map(<[u8]>::to_vec).collect());
                    (written, fields) = (0, 0);
                }
                ReadRecordResult::End => return records,
                ReadRecordResult::InputEmpty => {}
                other => panic!("there is room: {other:?}"),
            }
        }
    }

    /// Returns where records end, the text fed in portions of these lengths.
    fn ends(text: &[u8], portion: usize) -> (Vec<usize>, Splitter) {
        let (mut splitter, mut ends) = (Splitter::new(b','), Vec::new());
        for (number, bytes) in text.chunks(portion).enumerate() {
            splitter.ends(bytes, number * portion, &mut ends);
        }
        (ends, splitter)
    }

    #[test]
    fn records_are_those_of_csv_core_however_the_text_comes() {
        let mut numbers = inbloom_testing::Random(1);
        let mut random = |below: usize| numbers.index(below);
        let mut compared = 0;
        for _ in 0..100_000 {
            let text: Vec<u8> = (0..random(30)).map(|_| b"\"\"\",,\n\nab"[random(9)]).collect();
            let text = match random(10) {
                0 => [&b"\xef\xbb\xbf"[..], &text].concat(),
                _ => text,
            };
            let (mut found, splitter) = ends(&text, text.len().max(1));
            for portion in [1, 2, 7] {
                assert_eq!(ends(&text, portion).0, found, "{}", text.escape_ascii());
            }
            if splitter.is_within_quotes() {
                continue;
            }
            if !text.is_empty() && !text.ends_with(b"\n") {
                found.push(text.len());
            }
            let mut unquoted = Unquoted::default();
            let mut reader = reader(b',');
            let mut start = 0;
            let mut records = Vec::new();
            for end in found {
                unquoted.read(&mut reader, &text[start..end]);
                start = end + 1;
                let fields = (0..unquoted.ends.len()).filter_map(|index| unquoted.field(index));
                records.push(fields.map(<[u8]>::to_vec).collect::<Vec<_>>());
            }
            // Empty lines, which csv-core passes over, have no fields here.
            records.retain(|fields| !fields.is_empty());
            assert_eq!(records, oracle(&text), "{}", text.escape_ascii());
            compared += records.len();
        }
        assert!(compared > 100_000, "{compared}");
    }

    fn key(list: &str, record: &str) -> Option<String> {
        let list = Chosen::Numbers(parse_list(list).expect(list));
        let mut unquoted = Unquoted::default();
        let fields = CsvFields { chosen: list, delimiter: b',' };
        let mut selector = fields.in_columns(None).expect("it has no names");
        let key = selector.select(record.as_bytes(), &mut unquoted)?;
        Some(String::from_utf8(key.to_vec()).expect("the test's records are ASCII"))
    }

    #[test]
    fn one_field_is_the_key_without_its_quotes_and_several_are_quoted_again() {
        for (list, record, expected) in [
            ("2", "1,\"Smith, John\",x", Some("Smith, John")),
            ("2", "1,\"say \"\"hi\"\"\",x", Some("say \"hi\"")),
            ("2", "1,\"two\nlines\"\r", Some("two\nlines")),
            ("2", "1,bob\r", Some("bob")),
            ("2", "1,", Some("")),
            ("2", "1", None),
            ("1", "", None),
            ("1", "\"\"", Some("")),
            ("1-2", "\"a,b\",c", Some("\"a,b\",c")),
            ("1-2", "a,\"b,c\"", Some("a,\"b,c\"")),
            ("1,3", "\"a\",b,\"c\"", Some("a,c")),
            ("1-", "\"a\",\"\",5\" disk", Some("a,,\"5\"\" disk\"")),
            ("3-", "a,b", None),
            ("1,9", "a,b", Some("a")),
        ] {
            assert_eq!(key(list, record).as_deref(), expected, "-f {list} of {record:?}");
        }
    }

    #[test]
    fn a_record_of_many_fields_is_read_whole() {
        let record = (0..5000).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
        assert_eq!(key("5000", &record).as_deref(), Some("4999"));
        assert_eq!(key("1-", &record), Some(record));
    }
}
