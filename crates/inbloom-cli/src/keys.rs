//! From records to digests: which part of a record is the key, what it is normalized to, and the
//! hash of the filter that it is for.

use std::num::NonZero;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use inbloom::interop::KeyEncoding;
use inbloom::{Digest, Filter, Hasher};
use inbloom_server::units;

use crate::blocks::{self, BadRecord, Block, Header, Reader, Records};
use crate::csv::{Chosen, CsvFields, Selector, Unquoted};
use crate::fields::{self, Delimiter, FieldList, Fields};
use crate::input::{Encoding, Input};
use crate::normalize::{Normalization, Rule};
use crate::output::{Problem, problem};
use crate::{json, numbers, output, pipeline};

/// The options that divide inputs into records and select the key of each. All subcommands that
/// read keys have them.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Input")]
pub struct InputArgs {
    /// Files of keys, one per line, also compressed; standard input if none is given or for -
    #[arg(help_heading = None)]
    pub files: Vec<PathBuf>,

    /// Read and print records that end in a NUL byte instead of a newline
    #[arg(short = '0', long)]
    pub null: bool,

    /// Leave the carriage return of a line that ends in \r\n out of the key
    #[arg(long)]
    crlf: bool,

    /// Take these fields of a line as the key, as cut does: 2, 1,3, 2-4, 3-
    #[arg(short = 'f', long, value_name = "LIST", allow_hyphen_values = true)]
    #[arg(value_parser = fields::parse_list)]
    fields: Option<FieldList>,

    /// Text between fields [default: a tab, or a comma with --csv]
    #[arg(short = 'd', long, value_name = "TEXT")]
    #[arg(value_parser = fields::parse_delimiter)]
    delimiter: Option<Delimiter>,

    /// Read CSV: fields may be quoted, and quoted fields may contain newlines
    #[arg(long, conflicts_with = "null")]
    csv: bool,

    /// Take the CSV field of this name in the header as the key; may be given more than once
    #[arg(long, value_name = "NAME", conflicts_with_all = ["fields", "null"])]
    csv_field: Vec<String>,

    /// Treat the first line of every input as a header, not a key
    #[arg(long)]
    header: bool,

    /// Take the value of this name in a line of JSON as the key: id, user.id, /user/id
    #[arg(long, value_name = "PATH", conflicts_with_all = ["fields", "csv", "csv_field"])]
    #[arg(value_parser = json::parse_path)]
    json_field: Option<json::Path>,

    /// Encoding of a key as the bytes to hash [default: as the filter records, or utf8]
    #[arg(long, value_name = "E", value_parser = encoding_parser())]
    key_encoding: Option<KeyEncoding>,

    /// Lines without the key field: keep (dedup prints them, check does not find them), skip,
    /// or stop with an error
    #[arg(long, value_name = "WHAT", default_value = "keep")]
    missing: Missing,

    /// Longest line to accept
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_longest)]
    max_line: usize,

    /// Read the bytes as they are, even if they look compressed or like a filter
    #[arg(long)]
    plain: bool,

    /// Threads that split and hash lines [default: one per core]
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<NonZero<usize>>,
}

/// The value of an option that was given without one.
pub const GIVEN: &str = "given";

/// What to do with records that lack the key field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Missing {
    // No doc comments: clap would spread the help over three times the lines.
    // They are no keys: dedup prints each of them, and for check they are not in the filter.
    Keep,
    // They are left out, of the output too.
    Skip,
    Error,
}

/// Parses the longest length of a record in bytes: at least one.
fn parse_longest(text: &str) -> Result<usize, String> {
    // Far from where a sum of two would overflow.
    const MOST: u64 = 64 << 30;
    let bytes = Some(units::parse_bytes(text)?).filter(|bytes| (1..=MOST).contains(bytes));
    let longest = bytes.and_then(|bytes| usize::try_from(bytes).ok());
    longest.ok_or_else(|| "expected a size of 1 byte to 64 GiB, such as 64MiB".to_string())
}

/// The normalization of a new filter. Later commands take it from the filter's file.
#[derive(clap::Args, Clone, Debug)]
pub struct NormalizeArgs {
    /// Normalize keys before hashing; the filter records it, and queries do the same
    #[arg(long, value_name = "RULES", value_enum, value_delimiter = ',')]
    normalize: Vec<Rule>,
}

impl InputArgs {
    pub fn inputs(&self) -> Vec<Input> {
        Input::from_arguments(&self.files)
    }

    pub fn reader(&self, inputs: &[Input]) -> Reader {
        Reader::new(inputs, self.encoding(), self.records())
    }

    /// Returns how inputs are divided into records.
    pub fn records(&self) -> Records {
        Records {
            terminator: self.terminator(),
            csv: self.csv_delimiter().and_then(Result::ok),
            header: self.header || !self.csv_field.is_empty(),
            longest: self.max_line,
        }
    }

    /// Returns the separator of CSV fields, if the input is CSV.
    fn csv_delimiter(&self) -> Option<Result<u8>> {
        let is_csv = self.csv || !self.csv_field.is_empty();
        is_csv.then(|| match &self.delimiter {
            None => Ok(b','),
            Some(delimiter) => match delimiter.byte() {
                Some(byte) if ![b'"', b'\r', b'\n'].contains(&byte) => Ok(byte),
                _ => bail!(problem(
                    "--csv takes one byte between fields",
                    "pass one, such as -d ';' or -d '\\t'"
                )),
            },
        })
    }

    /// Returns what to do with records without a key.
    pub fn missing(&self) -> Missing {
        self.missing
    }

    pub fn encoding(&self) -> Encoding {
        if self.plain { Encoding::Plain } else { Encoding::ByMagic }
    }

    pub fn terminator(&self) -> u8 {
        blocks::terminator(self.null)
    }

    /// Returns the options that determine the keys, by name, each with its value as it is typed, or
    /// `None` if it was not given. The files and the number of threads are not among them.
    pub fn options(&self) -> [(&'static str, String); 10] {
        fn typed<T: ToString>(value: Option<T>) -> String {
            value.map_or(String::new(), |value| value.to_string())
        }
        let flag = |is_given: bool| typed(is_given.then_some(GIVEN));
        [
            ("-0", flag(self.null)),
            ("--crlf", flag(self.crlf)),
            ("-f", typed(self.fields.as_ref())),
            ("-d", typed(self.delimiter.as_ref())),
            ("--csv", flag(self.csv)),
            ("--csv-field", self.csv_field.join(", ")),
            ("--header", flag(self.header)),
            ("--json-field", typed(self.json_field.as_ref())),
            ("--plain", flag(self.plain)),
            ("--key-encoding", typed(self.key_encoding)),
        ]
    }

    pub fn threads(&self) -> usize {
        pipeline::threads(self.threads)
    }

    /// Returns the normalization of a new filter from this input.
    pub fn normalization(&self, args: &NormalizeArgs) -> Normalization {
        let rules: Normalization = args.normalize.iter().copied().collect();
        Normalization { crlf: self.crlf, ..rules }
    }

    /// Returns the name of the given key encoding; empty for the bytes themselves.
    pub fn key_encoding(&self) -> &'static str {
        let encoding = self.key_encoding.filter(|encoding| *encoding != KeyEncoding::Utf8);
        encoding.map_or("", KeyEncoding::name)
    }

    /// Returns the given key encoding, if any.
    pub fn asked_encoding(&self) -> Option<KeyEncoding> {
        self.key_encoding
    }

    /// Returns keys for callers that need their texts: see [`Keys::each`].
    pub fn texts(&self) -> Result<Keys> {
        self.keys_in(KeyEncoding::Utf8, Hasher::default(), Normalization::default())
    }

    /// Returns the encoding of a filter's keys: that of its file, or else the given one. Files of
    /// other programs record none.
    fn encoding_of(&self, filter: &Filter) -> Result<KeyEncoding> {
        let recorded = match filter.key_encoding() {
            "" if filter.plan().kind().is_foreign() => None,
            "" => Some(KeyEncoding::Utf8),
            name => Some(name.parse()?),
        };
        match (recorded, self.key_encoding) {
            (Some(recorded), Some(asked)) => {
                ensure!(
                    recorded == asked,
                    problem(
                        format!("the keys of this filter are encoded as {recorded}, not {asked}"),
                        "leave --key-encoding out"
                    )
                );
                Ok(recorded)
            }
            (recorded, asked) => Ok(recorded.or(asked).unwrap_or_default()),
        }
    }

    /// Returns how to make keys for this filter from this input's records.
    pub fn keys_for(&self, filter: &Filter) -> Result<Keys> {
        let encoding = self.encoding_of(filter)?;
        self.recorded_keys(encoding, *filter.hasher(), filter.normalization())
    }

    /// Returns how to make keys for a filter with this hash and this normalization.
    pub fn keys_like(&self, hasher: Hasher, normalization: &str) -> Result<Keys> {
        let encoding = self.key_encoding.unwrap_or_default();
        self.recorded_keys(encoding, hasher, normalization)
    }

    fn recorded_keys(
        &self,
        encoding: KeyEncoding,
        hasher: Hasher,
        normalization: &str,
    ) -> Result<Keys> {
        let recorded = Normalization::parse(normalization);
        if recorded.is_none() {
            // Looking lines up as they are in a filter of keys that were changed would miss some
            // of them: a false negative, which must not go unsaid.
            output::warn(&problem(
                format!(
                    "the keys of this filter have the normalization \"{}\", which inbloom does not \
                     know",
                    normalization
                ),
                "pass lines that are normalized that way: they are read as they are",
            ));
        }
        self.keys_in(encoding, hasher, recorded.unwrap_or_default())
    }

    /// Returns keys with a hash and a normalization. Keys of a bitmap are integers.
    pub fn keys(&self, hasher: Hasher, normalization: Normalization) -> Result<Keys> {
        self.keys_in(self.key_encoding.unwrap_or_default(), hasher, normalization)
    }

    fn keys_in(
        &self,
        encoding: KeyEncoding,
        hasher: Hasher,
        normalization: Normalization,
    ) -> Result<Keys> {
        ensure!(
            hasher != Hasher::integers() || encoding == KeyEncoding::Utf8,
            problem(
                "--key-encoding has no meaning for kind bitmap, whose keys are integers",
                "leave --key-encoding out"
            )
        );
        let csv = self.csv_delimiter().transpose()?;
        let is_fields = csv.is_some() || self.fields.is_some();
        ensure!(
            is_fields || self.delimiter.is_none(),
            problem("-d needs the fields that are the key", "pass -f, or --csv")
        );
        let selection = match (csv, &self.fields, &self.json_field) {
            (Some(delimiter), list, _) => {
                let chosen = match self.csv_field.is_empty() {
                    true => Chosen::Numbers(list.clone().unwrap_or_else(FieldList::all)),
                    false => Chosen::Names(self.csv_field.clone()),
                };
                Selection::Csv(CsvFields { delimiter, chosen })
            }
            (None, Some(list), _) => {
                let delimiter = self.delimiter.clone().unwrap_or_default();
                Selection::Fields(Fields::new(list.clone(), delimiter))
            }
            (None, None, Some(path)) => Selection::Json(path.clone()),
            (None, None, None) => Selection::Record,
        };
        let crlf = self.crlf || normalization.crlf;
        // The carriage return goes before the fields are split, and only once.
        let normalization = Normalization { crlf: false, ..normalization };
        let largest = (hasher == Hasher::integers()).then_some(u64::MAX);
        let (missing, warned) = (self.missing, Some(Arc::default()));
        let warned_of_missing = Arc::default();
        Ok(Keys {
            hasher,
            encoding,
            crlf,
            selection,
            normalization,
            largest,
            missing,
            keeps_bytes: false,
            warned,
            warned_of_missing,
        })
    }
}

/// Makes digests of records.
#[derive(Clone, Debug)]
pub struct Keys {
    hasher: Hasher,
    encoding: KeyEncoding,
    crlf: bool,
    selection: Selection,
    normalization: Normalization,
    /// The largest integer, where keys are integers.
    largest: Option<u64>,
    missing: Missing,
    /// Whether the bytes of keys are kept beside their digests.
    keeps_bytes: bool,
    /// Whether the warning about carriage returns was printed; `None` if it is never printed.
    warned: Option<Arc<AtomicBool>>,
    /// Whether the warning about an input without keys was printed.
    warned_of_missing: Arc<AtomicBool>,
}

/// Which part of a record is the key.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each filter")]
enum Selection {
    Record,
    Fields(Fields),
    Csv(CsvFields),
    Json(json::Path),
}

/// Buffers for keys that are not in the record as they are.
#[derive(Default)]
struct Scratch {
    selected: Vec<u8>,
    unquoted: Unquoted,
    normalized: Vec<u8>,
}

/// Takes the names of the library's encodings, and lists them in help and errors.
pub fn encoding_parser() -> impl TypedValueParser<Value = KeyEncoding> {
    let described = |encoding: &KeyEncoding| {
        PossibleValue::new(encoding.name()).help(format!("a key is {}", encoding.expected()))
    };
    PossibleValuesParser::new(KeyEncoding::ALL.iter().map(described))
        .map(|name| name.parse().expect("the name is one of KeyEncoding::ALL"))
}

/// The digests of a block's keys, in order.
#[derive(Default)]
pub struct Digests {
    digests: Vec<Digest>,
    /// The number of keys. Each may have two digests.
    keys: usize,
    /// The records without a key, which have no digest, counted from 0 in the block.
    missing: Vec<usize>,
    /// The keys themselves, if they are kept.
    bytes: Vec<Vec<u8>>,
}

impl Deref for Digests {
    type Target = Vec<Digest>;

    fn deref(&self) -> &Vec<Digest> {
        &self.digests
    }
}

impl DerefMut for Digests {
    fn deref_mut(&mut self) -> &mut Vec<Digest> {
        &mut self.digests
    }
}

impl Digests {
    /// Returns the number of keys. In filters of Go, each key has two digests.
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// Returns the keys themselves, after [`Keys::keeping_bytes`].
    pub fn bytes(&self) -> &[Vec<u8>] {
        &self.bytes
    }

    /// Returns the records without a key, counted from 0 in the block.
    pub fn missing(&self) -> &[usize] {
        &self.missing
    }

    /// Turns results for the keys into results for all records: those without a key get `answer`.
    /// If the results end early, no record after the first key without a result gets one. Returns
    /// the number of records without a key.
    pub fn spread(&self, answers: &mut Vec<bool>, answer: bool) -> usize {
        if self.missing.is_empty() {
            return 0;
        }
        let mut of_keys = std::mem::take(answers).into_iter();
        let mut missing = self.missing.iter().peekable();
        loop {
            let index = answers.len();
            if missing.next_if(|missing| **missing == index).is_some() {
                answers.push(answer);
            } else if let Some(of_key) = of_keys.next() {
                answers.push(of_key);
            } else {
                return self.missing.len() - missing.len();
            }
        }
    }
}

impl Keys {
    /// Returns whether two filters can be queried with the same digests.
    pub fn same_digests(&self, other: &Keys) -> bool {
        (self.hasher, self.encoding, self.normalization, self.crlf, self.keeps_bytes)
            == (other.hasher, other.encoding, other.normalization, other.crlf, other.keeps_bytes)
    }

    /// Returns keys for filters that hash keys themselves.
    pub fn keeping_bytes(mut self) -> Keys {
        self.keeps_bytes = true;
        self
    }

    /// Returns keys for inserts. An integer above a bitmap's bound is an error there; a query
    /// reports it as absent.
    pub fn for_inserts(mut self, filter: &Filter) -> Keys {
        // A bitmap's bits are its universe, and it has at least one.
        self.largest = self.largest.map(|_| filter.plan().bits() - 1);
        self
    }

    /// Returns keys without the warning about carriage returns, for callers that do not need it or
    /// check for them.
    pub fn without_warning(mut self) -> Keys {
        self.warned = None;
        self
    }

    /// Returns keys that share their warnings with others, for a caller that hashes one input in
    /// several ways.
    pub fn warning_with(mut self, other: &Keys) -> Keys {
        self.warned_of_missing = Arc::clone(&other.warned_of_missing);
        self
    }

    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// Returns whether the bytes of a key are its text.
    pub fn are_text(&self) -> bool {
        self.encoding == KeyEncoding::Utf8 && self.largest.is_none()
    }

    /// Returns the digests of the records of a block. Fails if a record is not an integer where one
    /// is needed, or lacks a field that it must have.
    pub fn digests(&self, block: &Block, made: &mut Digests) -> Result<(), BadRecord> {
        made.missing.clear();
        made.bytes.clear();
        let digests = &mut made.digests;
        digests.clear();
        digests.reserve(block.len() * self.hasher.digests_per_key());
        if self.are_records() && self.hasher.digests_per_key() == 1 {
            digests.extend(block.records().map(|record| self.hasher.digest(record)));
            made.keys = digests.len();
        } else {
            let mut encoded = Vec::new();
            made.keys = 0;
            self.each(block, |index, key| {
                match (key, self.missing) {
                    (Some(key), _) => {
                        self.append_digests(index, key, &mut encoded, digests)?;
                        made.keys += 1;
                        if self.keeps_bytes {
                            made.bytes.push(if self.are_text() { key } else { &encoded }.to_vec());
                        }
                    }
                    (None, Missing::Keep | Missing::Skip) => made.missing.push(index),
                    (None, Missing::Error) => return Err(self.no_key(index)),
                }
                Ok(())
            })?;
        }
        self.warn_of_carriage_returns(block);
        self.warn_of_counts(block);
        self.warn_of_missing(block, made.missing.len());
        Ok(())
    }

    /// Returns whether the keys are the records, unchanged.
    fn are_records(&self) -> bool {
        let whole = matches!(self.selection, Selection::Record);
        let is_plain = !self.crlf && self.normalization.is_none() && !self.keeps_bytes;
        whole && is_plain && self.are_text()
    }

    /// Appends the digests of a key. `encoded` is a buffer.
    fn append_digests(
        &self,
        index: usize,
        key: &[u8],
        encoded: &mut Vec<u8>,
        digests: &mut Vec<Digest>,
    ) -> Result<(), BadRecord> {
        if self.are_text() {
            self.hasher.append_digests(key, digests);
            return Ok(());
        }
        let Some(largest) = self.largest else {
            if !self.encoding.encode(key, encoded) {
                let problem = self.not_encoded(self.encoding, key);
                return Err(BadRecord { index: Some(index), problem });
            }
            self.hasher.append_digests(&*encoded, digests);
            return Ok(());
        };
        let integer = parse_integer(key).filter(|&integer| integer <= largest);
        let integer = integer.ok_or_else(|| BadRecord {
            index: Some(index),
            problem: Problem::from(format!(
                "\"{}\" is not an integer from 0 to {largest} in decimal digits",
                shorten(key),
            )),
        })?;
        digests.push(self.hasher.digest(integer.to_le_bytes()));
        Ok(())
    }

    /// Returns why a key cannot be encoded.
    pub fn not_encoded(&self, encoding: KeyEncoding, key: &[u8]) -> Problem {
        let what = format!("--key-encoding {encoding} takes {}", encoding.expected());
        if encoding != KeyEncoding::Hex {
            return Problem::from(format!("{what}, got \"{}\"", shorten(key)));
        }
        let Some(at) = key.iter().position(|byte| !byte.is_ascii_hexdigit()) else {
            return Problem::from(format!("{what}, got {}: \"{}\"", key.len(), shorten(key)));
        };
        let first = String::from_utf8_lossy(&key[at..]).chars().next().unwrap_or_default();
        let what = format!("{what}, but character {} is \"{first}\"", at + 1);
        match self.selection {
            Selection::Record => {
                problem(what, "if the digits are one field of the line, pass -d and -f")
            }
            _ => Problem::from(what),
        }
    }

    /// Calls `take` with the key of each record, if it has one.
    pub fn each(
        &self,
        block: &Block,
        mut take: impl FnMut(usize, Option<&[u8]>) -> Result<(), BadRecord>,
    ) -> Result<(), BadRecord> {
        let mut scratch = Scratch::default();
        let mut csv = match &self.selection {
            Selection::Csv(fields) => Some(in_columns(fields, block.header.as_deref())?),
            _ => None,
        };
        for (index, record) in block.records().enumerate() {
            let line = match self.crlf {
                true => record.strip_suffix(b"\r").unwrap_or(record),
                false => record,
            };
            let selected = match (&mut csv, &self.selection) {
                (Some(fields), _) => fields.select(record, &mut scratch.unquoted),
                (None, Selection::Fields(fields)) => fields.select(line, &mut scratch.selected),
                (None, Selection::Json(path)) => path.select(line, &mut scratch.selected),
                (None, _) => Some(line),
            };
            let normalized = &mut scratch.normalized;
            take(index, selected.map(|key| self.normalization.apply(key, normalized)))?;
        }
        Ok(())
    }

    fn no_key(&self, index: usize) -> BadRecord {
        let what = match self.selection {
            Selection::Json(_) => "no value for --json-field, or not JSON",
            _ => "no key field",
        };
        let problem = problem(
            format!("{what} (--missing error)"),
            "correct the line, or pass --missing keep or skip",
        );
        BadRecord { index: Some(index), problem }
    }

    /// Warns once if all keys of an input's first block end in a carriage return. Without the
    /// warning, a list from Windows would silently never match one from another system.
    fn warn_of_carriage_returns(&self, block: &Block) {
        let (Some(name), Some(warned)) = (&block.begins, &self.warned) else { return };
        if self.all_end_in_carriage_returns(block) && !warned.swap(true, Ordering::Relaxed) {
            output::warn(&carriage_returns(name));
        }
    }

    /// Warns, once, of an input whose first lines are all a digest and a number, `HEX:NUMBER`, where
    /// the whole line is the key: lists of password hashes have the number of leaks there, and no
    /// query would ever match.
    fn warn_of_counts(&self, block: &Block) {
        const ENOUGH: usize = 100;
        let (Some(name), Some(warned)) = (&block.begins, &self.warned) else { return };
        let is_whole = matches!(self.selection, Selection::Record) && self.largest.is_none();
        let mut lines = block.records().take(ENOUGH).peekable();
        if !is_whole || lines.peek().is_none() || !lines.all(is_digest_and_number) {
            return;
        }
        if !warned.swap(true, Ordering::Relaxed) {
            output::warn(&problem(
                format!("{name}: lines are a hash and a number, and the key is the whole line"),
                "pass -d : -f 1 to take the hash alone",
            ));
        }
    }

    pub fn all_end_in_carriage_returns(&self, block: &Block) -> bool {
        let (mut any, mut all) = (false, self.largest.is_none());
        let looked = self.each(block, |_, key| {
            any |= key.is_some();
            all &= key.is_none_or(|key| key.ends_with(b"\r"));
            Ok(())
        });
        any && all && looked.is_ok()
    }

    /// Warns once if no record of an input's first block has a key: the option that names the field
    /// is probably wrong.
    fn warn_of_missing(&self, block: &Block, missing: usize) {
        let Some(name) = block.begins.as_ref().filter(|_| missing > 0) else { return };
        if missing == block.len() && !self.warned_of_missing.swap(true, Ordering::Relaxed) {
            let option = match self.selection {
                Selection::Json(_) => "--json-field",
                Selection::Csv(CsvFields { chosen: Chosen::Names(_), .. }) => "--csv-field and -d",
                _ => "-f and -d",
            };
            output::warn(&problem(
                format!("{name}: no key found in the first {}", numbers::lines(missing as u64)),
                format!("check {option}"),
            ));
        }
    }
}

/// Returns the warning for an input whose keys all end in a carriage return.
pub fn carriage_returns(name: &str) -> Problem {
    problem(
        format!("{name}: lines end in a carriage return, which is part of the key"),
        "pass --crlf to leave it out",
    )
}

/// Returns the fields in an input with this header.
fn in_columns<'f>(
    fields: &'f CsvFields,
    header: Option<&Header>,
) -> Result<Selector<'f>, BadRecord> {
    let names = header.map(|header| header.names.as_slice());
    fields.in_columns(names).map_err(|name| {
        let names = names.unwrap_or_default().iter().map(|name| shorten(name));
        let problem = problem(
            format!("no field \"{name}\" in the header"),
            format!("pass --csv-field with one of {}", names.collect::<Vec<_>>().join(", ")),
        );
        BadRecord { index: None, problem }
    })
}

/// Parses digits only: `u64::from_str` would accept a plus sign, which other programs do not print.
fn parse_integer(record: &[u8]) -> Option<u64> {
    let digits = record.iter().all(u8::is_ascii_digit);
    digits.then(|| str::from_utf8(record).ok()?.parse().ok())?
}

/// Returns the start of a record, with escapes for characters that do not print.
fn shorten(record: &[u8]) -> String {
    const ENOUGH: usize = 40;
    let dots = if record.len() > ENOUGH { "..." } else { "" };
    format!("{}{dots}", record[..record.len().min(ENOUGH)].escape_ascii())
}

/// Returns whether a line is a digest in hexadecimal digits, a colon and a number.
fn is_digest_and_number(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let Some(at) = line.iter().position(|byte| *byte == b':') else { return false };
    let (digest, number) = (&line[..at], &line[at + 1..]);
    let is_number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
    is_number && is_hex_digest(digest)
}

/// Returns whether a key looks like an MD5, SHA-1, SHA-2 or SHA-3 digest in hexadecimal digits.
pub fn is_hex_digest(key: &[u8]) -> bool {
    [32, 40, 56, 64, 96, 128].contains(&key.len()) && key.iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_spread_over_records_without_keys() {
        let spread = |missing: &[usize], answers: &[bool], answer| {
            let digests = Digests { missing: missing.to_vec(), ..Digests::default() };
            let mut answers = answers.to_vec();
            digests.spread(&mut answers, answer);
            answers
        };
        assert_eq!(spread(&[], &[true, false], true), [true, false]);
        assert_eq!(spread(&[0, 2], &[true], false), [false, true, false]);
        assert_eq!(spread(&[1, 2], &[false, false], true), [false, true, true, false]);
        assert_eq!(spread(&[0], &[], true), [true]);
    }

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
