//! From records to digests: which part of a record is the key, what it is normalized to, and the
//! hash of the filter that it is for.

use std::num::NonZero;
use std::path::PathBuf;
use std::thread;

use inbloom::{Digest, Filter, Hasher};

use crate::blocks::{self, BadRecord, Block, Reader};
use crate::fields::{self, Delimiter, FieldList, Fields};
use crate::input::{Encoding, Input};
use crate::normalize::{Normalization, Rule};
use crate::output;

/// How inputs are divided into records and records into keys: the same options for every subcommand
/// that reads any.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Input")]
pub struct InputArgs {
    /// Files of keys, one per line, also compressed; standard input if none is given or for -
    #[arg(help_heading = None)]
    pub files: Vec<PathBuf>,

    /// Records end in a NUL byte, in input and output, not in a newline
    #[arg(short = '0', long)]
    pub null: bool,

    /// Lines may end in \r\n: the carriage return is not part of the key
    #[arg(long)]
    crlf: bool,

    /// The key is these fields of a line, as for cut: 2, 1,3, 2-4, 3-
    #[arg(short = 'f', long, value_name = "LIST", allow_hyphen_values = true)]
    #[arg(value_parser = fields::parse_list)]
    fields: Option<FieldList>,

    /// What separates fields [default: a tab]
    #[arg(short = 'd', long, value_name = "TEXT", requires = "fields")]
    #[arg(value_parser = fields::parse_delimiter)]
    delimiter: Option<Delimiter>,

    /// Read the bytes as they are, also where they look like gzip or zstd
    #[arg(long)]
    plain: bool,

    /// Threads that split and hash lines [default: one per core]
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<NonZero<usize>>,
}

/// The normalization of a filter that is being made; later ones take it from its file.
#[derive(clap::Args, Clone, Debug)]
pub struct NormalizeArgs {
    /// Normalize keys before they are hashed; the filter remembers it and queries do the same
    #[arg(long, value_name = "RULES", value_enum, value_delimiter = ',')]
    normalize: Vec<Rule>,
}

impl InputArgs {
    pub fn inputs(&self) -> Vec<Input> {
        Input::from_arguments(&self.files)
    }

    pub fn reader(&self, inputs: &[Input]) -> Reader {
        Reader::new(inputs, self.encoding(), self.terminator())
    }

    pub fn encoding(&self) -> Encoding {
        if self.plain { Encoding::Plain } else { Encoding::ByMagic }
    }

    pub fn terminator(&self) -> u8 {
        blocks::terminator(self.null)
    }

    /// How lines are read, in words that differ where the keys would: not the files, nor on how
    /// many threads.
    pub fn described(&self) -> String {
        let InputArgs { files: _, null, crlf, fields, delimiter, plain, threads: _ } = self;
        format!("-0 {null}, --crlf {crlf}, -f {fields:?}, -d {delimiter:?}, --plain {plain}")
    }

    pub fn threads(&self) -> usize {
        let cores = thread::available_parallelism().ok();
        self.threads.or(cores).map_or(1, NonZero::get)
    }

    /// The normalization of a filter that is made from this input.
    pub fn normalization(&self, args: &NormalizeArgs) -> Normalization {
        let rules: Normalization = args.normalize.iter().copied().collect();
        Normalization { crlf: self.crlf, ..rules }
    }

    /// How keys for this filter are made from this input's records.
    pub fn keys_for(&self, filter: &Filter) -> Keys {
        let recorded = Normalization::parse(filter.normalization());
        if recorded.is_none() {
            // Looking lines up as they are in a filter of keys that were changed would miss some
            // of them: a false negative, which must not go unsaid.
            output::say(format_args!(
                "warning: the keys of this filter were normalized ({}) before they were inserted, \
                 by rules that are not inbloom's; lines are taken as they are, so give them in \
                 that form",
                filter.normalization(),
            ));
        }
        self.keys(*filter.hasher(), recorded.unwrap_or_default())
    }

    /// Keys under a hash and a normalization. Those of a bitmap are integers.
    pub fn keys(&self, hasher: Hasher, normalization: Normalization) -> Keys {
        let fields = self
            .fields
            .clone()
            .map(|list| Fields::new(list, self.delimiter.clone().unwrap_or_default()));
        let crlf = self.crlf || normalization.crlf;
        // The carriage return goes before the fields are told apart, and only once.
        let normalization = Normalization { crlf: false, ..normalization };
        let largest = (hasher == Hasher::integers()).then_some(u64::MAX);
        Keys { hasher, crlf, fields, normalization, largest }
    }
}

/// Makes digests of records.
#[derive(Clone, Debug)]
pub struct Keys {
    hasher: Hasher,
    crlf: bool,
    fields: Option<Fields>,
    normalization: Normalization,
    /// The largest integer, where keys are integers.
    largest: Option<u64>,
}

/// Room for keys that are not in the record as they are.
#[derive(Default)]
struct Scratch {
    selected: Vec<u8>,
    normalized: Vec<u8>,
}

impl Keys {
    /// Whether two filters can be asked with the same digests.
    pub fn same_digests(&self, other: &Keys) -> bool {
        (self.hasher, self.normalization, self.crlf)
            == (other.hasher, other.normalization, other.crlf)
    }

    /// To insert into a filter, not to query it: an integer beyond a bitmap is not one of its own,
    /// which is an answer, but it cannot be inserted.
    pub fn for_inserts(mut self, filter: &Filter) -> Keys {
        // A bitmap's bits are its universe, and it has at least one.
        self.largest = self.largest.map(|_| filter.plan().bits() - 1);
        self
    }

    /// The digests of the records of a block. Only what is to be an integer can fail.
    pub fn digests(&self, block: &Block, digests: &mut Vec<Digest>) -> Result<(), BadRecord> {
        digests.clear();
        digests.reserve(block.len());
        let as_they_are = !self.crlf && self.fields.is_none() && self.normalization.is_none();
        if as_they_are && self.largest.is_none() {
            digests.extend(block.records().map(|record| self.hasher.digest(record)));
            return Ok(());
        }
        let mut scratch = Scratch::default();
        for (index, record) in block.records().enumerate() {
            let key = self.key(record, &mut scratch);
            let Some(largest) = self.largest else {
                digests.push(self.hasher.digest(key));
                continue;
            };
            let integer = parse_integer(key).filter(|&integer| integer <= largest);
            let integer = integer.ok_or_else(|| BadRecord {
                index,
                problem: format!(
                    "a bitmap holds integers from 0 to {largest} here, one a line in decimal \
                     digits; got \"{}\"",
                    shorten(key),
                ),
            })?;
            digests.push(self.hasher.digest(integer.to_le_bytes()));
        }
        Ok(())
    }

    fn key<'a>(&self, record: &'a [u8], scratch: &'a mut Scratch) -> &'a [u8] {
        let record = match self.crlf {
            true => record.strip_suffix(b"\r").unwrap_or(record),
            false => record,
        };
        let selected = match &self.fields {
            Some(fields) => fields.select(record, &mut scratch.selected),
            None => record,
        };
        self.normalization.apply(selected, &mut scratch.normalized)
    }
}

/// Digits only: `u64::from_str` would take a plus sign, which no one else prints.
fn parse_integer(record: &[u8]) -> Option<u64> {
    let digits = record.iter().all(u8::is_ascii_digit);
    digits.then(|| str::from_utf8(record).ok()?.parse().ok())?
}

/// The start of a record, printable.
fn shorten(record: &[u8]) -> String {
    const ENOUGH: usize = 40;
    let dots = if record.len() > ENOUGH { "..." } else { "" };
    format!("{}{dots}", record[..record.len().min(ENOUGH)].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_decimal_digits_in_range_are_integers() {
        assert_eq!(parse_integer(b"0"), Some(0));
        assert_eq!(parse_integer(b"007"), Some(7));
        assert_eq!(parse_integer(b"18446744073709551615"), Some(u64::MAX));
        for bad in ["", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "18446744073709551616", "1\r"]
        {
            assert_eq!(parse_integer(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
