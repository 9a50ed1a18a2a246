//! Google Guava's `BloomFilter`, as `writeTo` writes it and `readFrom` reads it.
//!
//! ```text
//! at 0   u8    strategy: 0 MURMUR128_MITZ_32, 1 MURMUR128_MITZ_64 (the default of every current version)
//! at 1   u8    k, 1 to 255
//! at 2   i32   n, the number of longs, big-endian
//! at 6   i64   the longs, each big-endian; bit i is bit i % 64 of long i / 64
//! ```
//!
//! The modulus is 64 n. The hash is murmur3_x64_128 with seed 0, h1 and h2 its halves, over the
//! bytes that the funnel gives: which funnel that is, the file does not tell.
//!
//! - MITZ_32 has only h1: a its low and b its high half, of 32 bits and signed. Probe i, from 1 to
//!   k, is at a + i b, all its bits flipped if that is negative.
//! - MITZ_64: probe i, from 0 to k - 1, is at (h1 + i h2) without its top bit.
//!
//! **Sizes** for n keys at rate p: trunc(-n ln p / (ln 2)^2) bits, rounded up to a long. k is that of
//! Guava 33: -ln p / ln 2, rounded. Guava 31.1 and older take it from the bits, which differs for a
//! handful of keys (n = 1 at 0.01: 6, not 7). Each reads what the other has written.

use std::io::Write;
use std::iter;

use super::bit_array::{self, Probing};
use super::{FormatRow, KeyEncoding, Likeness, Variant, short, words_from, write_words};
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

const MITZ_32: Kind = Kind::new(64);
const MITZ_64: Kind = Kind::new(65);

static HASH: ForeignHash = ForeignHash {
    id: 64,
    name: "murmur3-x64-128",
    seeded: false,
    kinds: &[MITZ_32, MITZ_64],
    function: Function::One(murmur3::hash),
    eight: Some(murmur3::eight),
};

fn hasher() -> Hasher {
    Hasher::foreign(&HASH, 0)
}

static KIND_32: kinds::Row = bit_array::row::<Mitz32>(MITZ_32, "guava-mitz-32", hasher);
static KIND_64: kinds::Row = bit_array::row::<Mitz64>(MITZ_64, "guava-mitz-64", hasher);

pub(super) static ROW: FormatRow = FormatRow {
    name: "guava",
    title: "Guava's BloomFilter.writeTo",
    variants: &[Variant { name: "mitz32", help: "the strategy of Guava before version 12" }],
    kinds: &[&KIND_32, &KIND_64],
    hashes: &[&HASH],
    encodings: &[
        KeyEncoding::Utf8,
        KeyEncoding::Utf16le,
        KeyEncoding::I32le,
        KeyEncoding::I64le,
        KeyEncoding::Hex,
    ],
    records_plan: false,
    recognize,
    read,
    read_part: None,
    write: Some(write),
    plan: Some(plan),
};

const OLD_STRATEGY: u32 = 1;
const HEADER: usize = 6;

/// By the length: the number of longs in the header has to be the number of longs that follow.
fn recognize(bytes: &[u8]) -> Likeness {
    match header(bytes) {
        Ok((_, _, longs)) if longs.len() as u64 == (bytes.len() - HEADER) as u64 => {
            Likeness::Possible
        }
        _ => Likeness::No,
    }
}

/// The strategy, the probes and the longs.
fn header(bytes: &[u8]) -> Result<(Kind, u32, &[u8])> {
    let mut fields = Decoder(bytes);
    let strategy = fields.u8().ok_or_else(|| short("header", HEADER, bytes))?;
    let probes = fields.u8().ok_or_else(|| short("header", HEADER, bytes))?;
    let longs = fields.array().ok_or_else(|| short("header", HEADER, bytes))?;
    let kind = match strategy {
        0 => MITZ_32,
        1 => MITZ_64,
        _ => return Err(mismatch("strategy", "0 or 1", strategy)),
    };
    if probes == 0 {
        return Err(mismatch("number of hash functions", "1 to 255", probes));
    }
    let longs = i32::from_be_bytes(longs);
    if longs <= 0 {
        return Err(mismatch("number of longs", "1 or more", longs));
    }
    let (expected, got) = (longs as u64 * 8, fields.rest());
    if got.len() as u64 != expected {
        return Err(mismatch("length of the longs", expected, got.len()));
    }
    Ok((kind, u32::from(probes), got))
}

fn read(bytes: &[u8], _variants: u32) -> Result<(Filter, u32)> {
    let (kind, probes, longs) = header(bytes)?;
    let plan = Plan::exact(kind, longs.len() as u64 * 8, probes)?;
    let filter = Filter::from_words_of(plan, hasher(), words_from(longs, u64::from_be_bytes))?;
    Ok((filter, if kind == MITZ_32 { OLD_STRATEGY } else { 0 }))
}

/// The strategy is that of the filter, whatever variant is asked for.
fn write(filter: &Filter, _variants: u32, writer: &mut dyn Write) -> Result<()> {
    let plan = filter.plan();
    let longs = i32::try_from(plan.bits() / 64).ok().filter(|_| plan.bits().is_multiple_of(64));
    let Some(longs) = longs else {
        return parameter("bits", plan.bits(), "a multiple of 64, below 2^37, for Guava");
    };
    let Ok(probes) = u8::try_from(plan.probes()) else {
        return parameter("probes", plan.probes(), "at most 255 for Guava");
    };
    let mut header = vec![u8::from(plan.kind() == MITZ_64), probes];
    header.extend(longs.to_be_bytes());
    write_words(filter, &header, u64::to_be_bytes, writer)
}

fn plan(items: u64, rate: f64, variants: u32) -> Result<(Plan, Hasher)> {
    let (n, p) = (items.max(1) as f64, if rate == 0.0 { f64::from_bits(1) } else { rate });
    let ln_2 = std::f64::consts::LN_2;
    let bits = (-n * math::ln(p) / (ln_2 * ln_2)) as u64;
    let probes = math::round(-math::ln(p) / ln_2).max(1.0) as u32;
    if probes > 255 {
        return parameter("rate", rate, "one for which Guava takes at most 255 hash functions");
    }
    if bits == 0 {
        return parameter("rate", rate, "low enough for at least one bit");
    }
    let kind = if variants & OLD_STRATEGY != 0 { MITZ_32 } else { MITZ_64 };
    let bits = bits.checked_next_multiple_of(64).filter(|bits| *bits <= (i32::MAX as u64) * 64);
    let Some(bits) = bits else {
        return parameter("items", items, "so many that Guava has an array for them (2^37 bits)");
    };
    Ok((Plan { items, rate, bits, probes, ..Plan::blank(kind) }, hasher()))
}

/// Also the probes of Spark's first version, for its own hash.
pub(super) struct Mitz32;

impl Probing for Mitz32 {
    const WIDTH: usize = 1;

    #[inline(always)]
    fn numbers(digests: &[Digest]) -> impl Iterator<Item = u64> {
        let step = (digests[0].place >> 32) as u32;
        let mut sum = digests[0].place as u32;
        iter::repeat_with(move || {
            sum = sum.wrapping_add(step);
            u64::from(if (sum as i32) < 0 { !sum } else { sum })
        })
    }
}

struct Mitz64;

impl Probing for Mitz64 {
    const WIDTH: usize = 1;

    #[inline(always)]
    fn numbers(digests: &[Digest]) -> impl Iterator<Item = u64> {
        let Digest { place, print } = digests[0];
        iter::successors(Some(place), move |sum| Some(sum.wrapping_add(print)))
            .map(|sum| sum & (u64::MAX >> 1))
    }
}
