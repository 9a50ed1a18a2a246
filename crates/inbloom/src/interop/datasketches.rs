//! Apache DataSketches' `BloomFilter`, as its Java, C++ and Rust libraries write it.
//!
//! ```text
//! at 0   u8    words of the header: 3 if the filter is empty, otherwise 4
//! at 1   u8    version: 1
//! at 2   u8    family: 21
//! at 3   u8    flags: 4 if the filter is empty
//! at 4   u16   k
//! at 6   u16   unused
//! at 8   u64   the seed
//! at 16  i32   n, the number of words
//! at 20  u32   unused
//! at 24  u64   the number of bits that are set, or -1 if nobody has counted them
//! at 32  u64   the words; bit i is bit i % 64 of word i / 64
//! ```
//!
//! All numbers are little-endian, and the modulus is 64 n. An empty filter ends at 24. h0 is the
//! XXH64 of the key under the seed, h1 that under h0. Probe i, from 1 to k, is at (h0 + i h1) / 2.
//!
//! Keys are bytes, strings (their UTF-8) or integers, which are widened to 8 little-endian bytes. The
//! libraries skip empty strings when they insert and query; here an empty key is a key like any
//! other, as an empty `byte[]` is in Java.
//!
//! **Sizes** are those of Java and Rust: ceil(-n ln p / (ln 2)^2) bits, k from these bits, then rounded
//! up to a word. C++ takes k from the rate, which differs where the rate is a power of two. The seed
//! is random in Java and C++; here it is that of the Rust library unless the caller gives one.

use std::io::Write;
use std::iter;

use super::bit_array::{self, Probing};
use super::{
    FormatRow, KeyEncoding, Likeness, Variant, short, words_from, write_failed, write_words,
};
use crate::codec::Decoder;
use crate::digest::{Digest, Hasher};
use crate::error::{Result, mismatch};
use crate::filter::Filter;
use crate::foreign::{ForeignHash, Function};
use crate::kernels::xxh64::{self, xxh64};
use crate::kind::Kind;
use crate::kinds;
use crate::math;
use crate::plan::{Plan, parameter};

const KIND: Kind = Kind::new(72);

static HASH: ForeignHash = ForeignHash {
    id: 71,
    name: "xxh64-datasketches",
    seeded: true,
    kinds: &[KIND],
    function: Function::One(hash),
    eight: Some(xxh64::eight_twice),
};

/// That of DataSketches' libraries for sketches whose seed nobody chooses.
const DEFAULT_SEED: u64 = 9001;

fn hasher() -> Hasher {
    Hasher::foreign(&HASH, DEFAULT_SEED)
}

static KIND_ROW: kinds::Row = bit_array::row::<HalfSums>(KIND, "datasketches", hasher);

pub(super) static ROW: FormatRow = FormatRow {
    name: "datasketches",
    title: "Apache DataSketches' BloomFilter",
    variants: &[Variant {
        name: "uncounted",
        help: "the number of set bits is left open, as C++ does after inserts",
    }],
    kinds: &[&KIND_ROW],
    hashes: &[&HASH],
    encodings: &[KeyEncoding::Utf8, KeyEncoding::I64le, KeyEncoding::U64le, KeyEncoding::Hex],
    records_plan: false,
    recognize,
    read,
    read_part: None,
    write: Some(write),
    plan: Some(plan),
};

const VERSION: u8 = 1;
const FAMILY: u8 = 21;
const EMPTY_WORDS: u8 = 3;
const FULL_WORDS: u8 = 4;
const EMPTY: u8 = 4;
/// In place of the number of bits that are set.
const UNCOUNTED: u64 = u64::MAX;
const LEFT_OPEN: u32 = 1;
/// The most words of an empty filter, whose file is 24 bytes whatever its size: 16 MiB.
const MAX_EMPTY_WORDS: u64 = 1 << 21;

/// By the version, the family and the length.
fn recognize(bytes: &[u8]) -> Likeness {
    if parse(bytes).is_ok() { Likeness::Certain } else { Likeness::No }
}

struct SketchFile<'a> {
    probes: u32,
    seed: u64,
    count: u64,
    /// None in an empty filter.
    words: Option<&'a [u8]>,
    /// None if nobody has counted them.
    ones: Option<u64>,
}

fn parse(bytes: &[u8]) -> Result<SketchFile<'_>> {
    let mut fields = Decoder(bytes);
    let start: [u8; 4] = fields.array().ok_or_else(|| short("header", 24, bytes))?;
    let is_empty = match start {
        [_, version, ..] if version != VERSION => {
            return Err(mismatch("version", VERSION, version));
        }
        [_, _, family, _] if family != FAMILY => {
            return Err(mismatch("family", format_args!("{FAMILY}, a Bloom filter"), family));
        }
        [FULL_WORDS, _, _, 0] => false,
        [EMPTY_WORDS, _, _, EMPTY] => true,
        [words, _, _, flags] => {
            let got = format_args!("{words} words and flags {flags}");
            return Err(mismatch("header", "4 words, or 3 and the flag of an empty filter", got));
        }
    };
    let mut read =
        || Some((fields.u16()?, fields.u16()?, fields.u64()?, fields.u32()?, fields.u32()?));
    let (probes, unused, seed, count, unused_too) =
        read().ok_or_else(|| short("header", 24, bytes))?;
    if unused != 0 || unused_too != 0 {
        return Err(mismatch("unused fields", 0, format_args!("{unused}, {unused_too}")));
    }
    if probes == 0 {
        return Err(mismatch("number of hash functions", "1 or more", probes));
    }
    if count == 0 || i32::try_from(count).is_err() {
        return Err(mismatch("number of words", "1 to 2^31 - 1", count));
    }
    let (probes, count) = (u32::from(probes), u64::from(count));
    if is_empty {
        let rest = fields.rest();
        if !rest.is_empty() {
            return Err(mismatch("length of an empty filter", 24, bytes.len()));
        }
        if count > MAX_EMPTY_WORDS {
            let most = format_args!("at most {MAX_EMPTY_WORDS}");
            return Err(mismatch("number of words of an empty filter", most, count));
        }
        return Ok(SketchFile { probes, seed, count, words: None, ones: Some(0) });
    }
    let ones = fields.u64().ok_or_else(|| short("header", 32, bytes))?;
    let (expected, words) = (count * 8, fields.rest());
    if words.len() as u64 != expected {
        return Err(mismatch("length of the words", expected, words.len()));
    }
    let ones = Some(ones).filter(|ones| *ones != UNCOUNTED);
    Ok(SketchFile { probes, seed, count, words: Some(words), ones })
}

fn read(bytes: &[u8], _variants: u32) -> Result<(Filter, u32)> {
    let SketchFile { probes, seed, count, words, ones } = parse(bytes)?;
    let plan = Plan::exact(KIND, count * 64, probes)?;
    let hasher = Hasher::foreign(&HASH, seed);
    let filter = match words {
        None => Filter::with_hasher(plan, hasher)?,
        Some(words) => Filter::from_words_of(plan, hasher, words_from(words, u64::from_le_bytes))?,
    };
    match ones {
        Some(ones) if ones != filter.occupied() => {
            Err(mismatch("number of bits that are set", filter.occupied(), ones))
        }
        Some(_) => Ok((filter, 0)),
        None => Ok((filter, LEFT_OPEN)),
    }
}

fn write(filter: &Filter, variants: u32, writer: &mut dyn Write) -> Result<()> {
    let plan = filter.plan();
    let count = i32::try_from(plan.bits() / 64).ok().filter(|_| plan.bits().is_multiple_of(64));
    let Some(count) = count else {
        return parameter("bits", plan.bits(), "a multiple of 64, below 2^37, for DataSketches");
    };
    let ones = filter.occupied();
    let is_empty = ones == 0;
    let (words, flags) = if is_empty { (EMPTY_WORDS, EMPTY) } else { (FULL_WORDS, 0) };
    let probes = u16::try_from(plan.probes()).expect("at most MAX_PROBES, which is below 2^16");
    let mut header = vec![words, VERSION, FAMILY, flags];
    header.extend(probes.to_le_bytes());
    header.extend([0; 2]);
    header.extend(filter.hasher().seed().unwrap_or(0).to_le_bytes());
    header.extend(count.to_le_bytes());
    header.extend([0; 4]);
    if is_empty {
        return writer.write_all(&header).and_then(|()| writer.flush()).map_err(write_failed);
    }
    let counted = if variants & LEFT_OPEN == 0 { ones } else { UNCOUNTED };
    header.extend(counted.to_le_bytes());
    write_words(filter, &header, u64::to_le_bytes, writer)
}

fn plan(items: u64, rate: f64, _variants: u32) -> Result<(Plan, Hasher)> {
    let (n, ln_2) = (items as f64, std::f64::consts::LN_2);
    if items == 0 || rate == 0.0 {
        let got = format_args!("{items}, {rate}");
        return parameter("items and rate", got, "above 0 for DataSketches");
    }
    let bits = (math::ceil(-n * math::ln(rate) / (ln_2 * ln_2)) as u64).max(1);
    let probes = math::ceil(bits as f64 / n * ln_2).max(1.0) as u32;
    let bits = bits.checked_next_multiple_of(64).filter(|bits| *bits <= (i32::MAX as u64) * 64);
    let Some(bits) = bits else {
        let expected = "so many that DataSketches has an array for them (2^37 bits)";
        return parameter("items", items, expected);
    };
    Ok((Plan { items, rate, bits, probes, ..Plan::blank(KIND) }, hasher()))
}

/// The place is h0, the print h1.
fn hash(key: &[u8], seed: u64) -> Digest {
    let place = xxh64(key, seed);
    Digest { place, print: xxh64(key, place) }
}

/// Halves of sums: the libraries shift by one, because Java has no unsigned numbers.
struct HalfSums;

impl Probing for HalfSums {
    const WIDTH: usize = 1;

    #[inline(always)]
    fn numbers(digests: &[Digest]) -> impl Iterator<Item = u64> {
        let Digest { place: mut sum, print } = digests[0];
        iter::repeat_with(move || {
            sum = sum.wrapping_add(print);
            sum >> 1
        })
    }
}
