//! The filters of Go's `bits-and-blooms/bloom`, which was `willf/bloom`: `WriteTo`, `MarshalJSON`, and
//! a gob stream.
//!
//! ```text
//! at 0   u64   m
//! at 8   u64   k
//! at 16  u64   the length of the bit set in bits, m except for a filter of FromWithM
//! at 24  u64   ceil(length / 64) words; bit i is bit i % 64 of word i / 64
//! ```
//!
//! All numbers are big-endian. After `bitset.LittleEndian()` the length and the words are not.
//!
//! h0 and h1 are the halves of murmur3_x64_128 of the key, h2 and h3 those of the key with a byte 1
//! behind it. Probe i, from 0 to k - 1, is at (h[i % 2] + i h[2 + ((i + i % 2) % 4) / 2]) mod m. Those
//! are 256 bits: two digests stand for a key.
//!
//! Before 2.0.1 (May 2017) the four were FNV-1a with offset bases of 14695981039346656037 + i. Nothing
//! in the file tells: it is the variant `fnv`.
//!
//! **Sizes** for n keys at rate p: m = ceil(-n ln p / (ln 2)^2), k = ceil(m/n ln 2).

mod gob;
mod json;

use std::io::Write;

use super::base64::{self, Alphabet};
use super::bit_array::{self, Probing};
use super::{
    FormatRow, KeyEncoding, Likeness, Variant, fnv, short, words_from, write_failed, write_words,
};
use crate::codec::Decoder;
use crate::digest::{Digest, Hasher};
use crate::error::{Result, mismatch};
use crate::filter::Filter;
use crate::foreign::{ForeignHash, Function};
use crate::kernels::murmur3;
use crate::kind::Kind;
use crate::kinds;
use crate::math;
use crate::plan::{Plan, parameter};

const KIND: Kind = Kind::new(68);

static MURMUR: ForeignHash = ForeignHash {
    id: 67,
    name: "murmur3-x64-128 (twice)",
    seeded: false,
    kinds: &[KIND],
    function: Function::Two(murmur3::pair),
    eight: Some(murmur3::eight_pairs),
};
static FNV: ForeignHash = ForeignHash {
    id: 68,
    name: "fnv-1a-64 (four times)",
    seeded: false,
    kinds: &[KIND],
    function: Function::Two(|key, _| {
        let [h0, h1, h2, h3] = [0, 1, 2, 3].map(|i| fnv::fnv_1a(fnv::BASIS + i, key));
        [Digest { place: h0, print: h1 }, Digest { place: h2, print: h3 }]
    }),
    eight: None,
};

fn hasher() -> Hasher {
    Hasher::foreign(&MURMUR, 0)
}

fn hasher_of(variants: u32) -> Hasher {
    if variants & OLD_HASH == 0 { hasher() } else { Hasher::foreign(&FNV, 0) }
}

static ROW_OF_KIND: kinds::Row = bit_array::row::<GoProbing>(KIND, "go", hasher);

pub(super) static ROW: FormatRow = FormatRow {
    name: "go",
    title: "Go's bits-and-blooms/bloom and willf/bloom",
    variants: &[
        Variant { name: "json", help: "as MarshalJSON writes it" },
        Variant { name: "gob", help: "a gob stream" },
        Variant { name: "fnv", help: "the hash of versions before 2.0.1" },
        Variant { name: "little-endian", help: "written after bitset.LittleEndian()" },
    ],
    kinds: &[&ROW_OF_KIND],
    hashes: &[&MURMUR, &FNV],
    encodings: &[KeyEncoding::Utf8, KeyEncoding::U32be, KeyEncoding::U64be, KeyEncoding::Hex],
    records_plan: false,
    recognize,
    read,
    read_part: None,
    write: Some(write),
    plan: Some(plan),
};

const JSON: u32 = 1;
const GOB: u32 = 2;
const OLD_HASH: u32 = 4;
const LITTLE_ENDIAN: u32 = 8;

fn recognize(bytes: &[u8]) -> Likeness {
    match parse(bytes, 0) {
        Ok(_) if bytes.starts_with(b"{") => Likeness::Certain,
        Ok(_) => Likeness::Possible,
        Err(_) => Likeness::No,
    }
}

/// The bits and probes that a file says there are, and its bit set.
struct GoFile {
    bits: u64,
    probes: u64,
    set: BitSet,
    /// What the bytes have shown.
    variants: u32,
}

/// A serialized bit set, of which the length and the number of words agree.
struct BitSet {
    length: u64,
    words: Vec<u64>,
}

fn parse(bytes: &[u8], variants: u32) -> Result<GoFile> {
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => {
            let fields = json::parse(bytes)?;
            let base64 = base64::decode(fields.b.as_bytes());
            let base64 = base64.ok_or_else(|| mismatch("field b", "base64", "other text"))?;
            parse_set(fields.m, fields.k, &base64, variants, JSON)
        }
        _ => match gob::body(bytes) {
            Some(body) => parse_binary(body, variants, GOB),
            None => parse_binary(bytes, variants, 0),
        },
    }
}

fn parse_binary(bytes: &[u8], variants: u32, found: u32) -> Result<GoFile> {
    let mut fields = Decoder(bytes);
    let mut field =
        || fields.array().map(u64::from_be_bytes).ok_or_else(|| short("header", 24, bytes));
    let (bits, probes) = (field()?, field()?);
    parse_set(bits, probes, fields.0, variants, found)
}

/// Parses a bit set in one byte order or the other: as its length says how many words there are,
/// one of them is wrong.
fn parse_set(bits: u64, probes: u64, bytes: &[u8], variants: u32, found: u32) -> Result<GoFile> {
    let mut fields = Decoder(bytes);
    let length: [u8; 8] = fields.array().ok_or_else(|| short("bit set", 8, bytes))?;
    let words = fields.rest();
    let fits = |length: u64| length.div_ceil(64).checked_mul(8) == Some(words.len() as u64);
    let big = u64::from_be_bytes(length);
    let little_endian = variants & LITTLE_ENDIAN != 0 || !fits(big);
    let (length, word): (u64, fn([u8; 8]) -> u64) = match little_endian {
        true => (u64::from_le_bytes(length), u64::from_le_bytes),
        false => (big, u64::from_be_bytes),
    };
    if !fits(length) {
        let expected = format_args!("{} bytes for {big} bits", big.div_ceil(64).saturating_mul(8));
        return Err(mismatch("length of the words", expected, words.len()));
    }
    let words: Vec<u64> = words_from(words, word).collect();
    let found = found | if little_endian { LITTLE_ENDIAN } else { 0 };
    let set = BitSet { length, words };
    set.check(bits)?;
    Ok(GoFile { bits, probes, set, variants: found | variants & OLD_HASH })
}

impl BitSet {
    /// Checks that it is of so many bits, up to a word, and has no others. A filter that was made
    /// of no bits has one, and a set of none.
    fn check(&self, bits: u64) -> Result<()> {
        let is_empty = bits == 1 && self.length == 0;
        if bits == 0 || !(is_empty || self.length.div_ceil(64) == bits.div_ceil(64)) {
            let expected = format_args!("about {bits}, the number of bits");
            return Err(mismatch("length of the bit set", expected, self.length));
        }
        let last = self.words.last().copied().unwrap_or(0);
        if !bits.is_multiple_of(64) && last >> (bits % 64) != 0 {
            return Err(mismatch("bits after the filter's last bit", "zeros", "set bits"));
        }
        Ok(())
    }
}

fn read(bytes: &[u8], variants: u32) -> Result<(Filter, u32)> {
    let GoFile { bits, probes, set, variants } = parse(bytes, variants)?;
    let probes = u32::try_from(probes).map_err(|_| mismatch("k", "below 2^32", probes))?;
    let plan = Plan::exact(KIND, bits, probes)?;
    let BitSet { length, mut words, .. } = set;
    words.resize(bits.div_ceil(64) as usize, 0);
    let mut filter = Filter::from_words_of(plan, hasher_of(variants), words.into_iter())?;
    if length > bits {
        filter.texts.attach(length.to_le_bytes().to_vec());
    }
    Ok((filter, variants))
}

/// The hash is that of the filter, whatever variant is asked for.
fn write(filter: &Filter, variants: u32, writer: &mut dyn Write) -> Result<()> {
    let bits = filter.plan().bits();
    // The length of a filter of FromWithM, which has as many words.
    let length = crate::codec::u64_at(filter.texts.attached(), 0);
    let length = length.filter(|length| length.div_ceil(64) == bits.div_ceil(64)).unwrap_or(bits);
    let word = if variants & LITTLE_ENDIAN == 0 { u64::to_be_bytes } else { u64::to_le_bytes };
    let length = word(length);
    let (m, k) = (bits, u64::from(filter.plan().probes()));
    if variants & JSON != 0 {
        let mut set = Vec::new();
        write_words(filter, &length, word, &mut set)?;
        let alphabet =
            if variants & LITTLE_ENDIAN == 0 { Alphabet::Url } else { Alphabet::Standard };
        let b = base64::encode(&set, alphabet);
        return write!(writer, "{{\"m\":{m},\"k\":{k},\"b\":\"{b}\"}}").map_err(write_failed);
    }
    let header: Vec<u8> = [m.to_be_bytes(), k.to_be_bytes(), length].concat();
    if variants & GOB != 0 {
        let body = header.len() as u64 + filter.plan().bytes();
        writer.write_all(&gob::header(body)).map_err(write_failed)?;
    }
    write_words(filter, &header, word, writer)
}

fn plan(items: u64, rate: f64, variants: u32) -> Result<(Plan, Hasher)> {
    if items == 0 || rate == 0.0 {
        return parameter("items and rate", format_args!("{items}, {rate}"), "above 0 for Go");
    }
    let (n, ln_2) = (items as f64, std::f64::consts::LN_2);
    let bits = math::ceil(-n * math::ln(rate) / (ln_2 * ln_2)).max(1.0);
    let probes = math::ceil(ln_2 * bits / n).max(1.0) as u32;
    Ok((Plan { items, rate, bits: bits as u64, probes, ..Plan::blank(KIND) }, hasher_of(variants)))
}

struct GoProbing;

impl Probing for GoProbing {
    const WIDTH: usize = 2;

    #[inline(always)]
    fn numbers(digests: &[Digest]) -> impl Iterator<Item = u64> {
        let [Digest { place: h0, print: h1 }, Digest { place: h2, print: h3 }] =
            [digests[0], digests[1]];
        (0..).map(move |i: u64| {
            let start = if i & 1 == 0 { h0 } else { h1 };
            let step = if i & 3 == 0 || i & 3 == 3 { h2 } else { h3 };
            start.wrapping_add(i.wrapping_mul(step))
        })
    }
}
