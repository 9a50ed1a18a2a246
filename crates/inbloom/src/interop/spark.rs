//! Spark's `org.apache.spark.util.sketch.BloomFilter`, as `writeTo` writes it.
//!
//! ```text
//! at 0   i32   version: 1, or 2 (the default since Spark 4.1)
//! at 4   i32   k
//! at 8   i32   the seed, in version 2 only
//!        i32   n, the number of words
//!        i64   the words; bit i is bit i % 64 of word i / 64
//! ```
//!
//! All numbers are big-endian, and the modulus is 64 n. h1 is the hash of the key under the seed (0 in
//! version 1), h2 its hash under h1, both of 32 bits and signed.
//!
//! - Version 1: probe i, from 1 to k, is at h1 + i h2, wrapped to 32 bits, all bits flipped if that
//!   is negative: Guava's MITZ_32.
//! - Version 2: a sum starts at h1 * (2^31 - 1), of 64 bits; before each probe h2 is added to it. The
//!   probe is at the sum, all bits flipped if that is negative.
//!
//! **The hash** is murmur3_x86_32, except for the bytes behind the last four: each goes through a
//! round of its own, with its sign.
//!
//! Keys are bytes, strings (their UTF-8) or integers, which are widened to 8 little-endian bytes.
//! Sizes are those of Guava 31.1 and older.

use std::io::Write;
use std::iter;

use super::bit_array::{self, Probing};
use super::guava::Mitz32;
use super::{FormatRow, KeyEncoding, Likeness, Variant, short, words_from, write_words};
use crate::codec::Decoder;
use crate::digest::{Digest, Hasher};
use crate::error::{Result, mismatch};
use crate::filter::Filter;
use crate::foreign::{ForeignHash, Function};
use crate::kind::Kind;
use crate::kinds;
use crate::math;
use crate::plan::{Plan, parameter};

const V1: Kind = Kind::new(66);
const V2: Kind = Kind::new(67);

static HASH_V1: ForeignHash = ForeignHash {
    id: 65,
    name: "murmur3-spark",
    seeded: false,
    kinds: &[V1],
    function: Function::One(hash),
    eight: None,
};
static HASH_V2: ForeignHash = ForeignHash {
    id: 66,
    name: "murmur3-spark (seeded)",
    seeded: true,
    kinds: &[V2],
    function: Function::One(hash),
    eight: None,
};

fn hasher_v1() -> Hasher {
    Hasher::foreign(&HASH_V1, 0)
}

fn hasher_v2() -> Hasher {
    Hasher::foreign(&HASH_V2, 0)
}

static KIND_V1: kinds::Row = bit_array::row::<Mitz32>(V1, "spark-v1", hasher_v1);
static KIND_V2: kinds::Row = bit_array::row::<ProbingV2>(V2, "spark-v2", hasher_v2);

pub(super) static ROW: FormatRow = FormatRow {
    name: "spark",
    title: "Spark's sketch.BloomFilter.writeTo",
    variants: &[Variant { name: "v1", help: "version 1, for Spark before 4.1" }],
    kinds: &[&KIND_V1, &KIND_V2],
    hashes: &[&HASH_V1, &HASH_V2],
    encodings: &[KeyEncoding::Utf8, KeyEncoding::I64le, KeyEncoding::Hex],
    records_plan: false,
    recognize,
    read,
    read_part: None,
    write: Some(write),
    plan: Some(plan),
};

const VERSION_1: u32 = 1;

/// By the version and the length.
fn recognize(bytes: &[u8]) -> Likeness {
    if parse(bytes).is_ok() { Likeness::Possible } else { Likeness::No }
}

struct SparkFile<'a> {
    kind: Kind,
    seed: i32,
    probes: u32,
    words: &'a [u8],
}

fn parse(bytes: &[u8]) -> Result<SparkFile<'_>> {
    let mut fields = Decoder(bytes);
    let mut field = || {
        let field = fields.array().map(i32::from_be_bytes);
        field.ok_or_else(|| short("header", 12, bytes))
    };
    let kind = match field()? {
        1 => V1,
        2 => V2,
        other => return Err(mismatch("version", "1 or 2", other)),
    };
    let probes = field()?;
    let seed = if kind == V2 { field()? } else { 0 };
    let count = field()?;
    let Some(probes) = u32::try_from(probes).ok().filter(|probes| *probes > 0) else {
        return Err(mismatch("number of hash functions", "1 or more", probes));
    };
    if count <= 0 {
        return Err(mismatch("number of words", "1 or more", count));
    }
    let (expected, words) = (count as u64 * 8, fields.rest());
    if words.len() as u64 != expected {
        return Err(mismatch("length of the words", expected, words.len()));
    }
    Ok(SparkFile { kind, seed, probes, words })
}

fn read(bytes: &[u8], _variants: u32) -> Result<(Filter, u32)> {
    let SparkFile { kind, seed, probes, words } = parse(bytes)?;
    let plan = Plan::exact(kind, words.len() as u64 * 8, probes)?;
    let (hasher, variants) = match kind {
        V1 => (hasher_v1(), VERSION_1),
        _ => (Hasher::foreign(&HASH_V2, u64::from(seed as u32)), 0),
    };
    Ok((Filter::from_words_of(plan, hasher, words_from(words, u64::from_be_bytes))?, variants))
}

/// The version is that of the filter, whatever variant is asked for.
fn write(filter: &Filter, _variants: u32, writer: &mut dyn Write) -> Result<()> {
    let plan = filter.plan();
    let count = i32::try_from(plan.bits() / 64).ok().filter(|_| plan.bits().is_multiple_of(64));
    let Some(count) = count else {
        return parameter("bits", plan.bits(), "a multiple of 64, below 2^37, for Spark");
    };
    let mut header = Vec::with_capacity(16);
    header.extend((if plan.kind() == V1 { 1_u32 } else { 2 }).to_be_bytes());
    header.extend(plan.probes().to_be_bytes());
    if plan.kind() == V2 {
        let seed = filter.hasher().seed().unwrap_or(0);
        let Ok(seed) = u32::try_from(seed) else {
            return parameter("hash seed", seed, "one of 32 bits, for Spark");
        };
        header.extend(seed.to_be_bytes());
    }
    header.extend(count.to_be_bytes());
    write_words(filter, &header, u64::to_be_bytes, writer)
}

fn plan(items: u64, rate: f64, variants: u32) -> Result<(Plan, Hasher)> {
    let (n, ln_2) = (items as f64, std::f64::consts::LN_2);
    if items == 0 || rate == 0.0 {
        return parameter("items and rate", format_args!("{items}, {rate}"), "above 0 for Spark");
    }
    let bits = (-n * math::ln(rate) / (ln_2 * ln_2)) as u64;
    let probes = math::round(bits as f64 / n * ln_2).max(1.0) as u32;
    let bits = bits.max(1).checked_next_multiple_of(64);
    let Some(bits) = bits.filter(|bits| *bits <= (i32::MAX as u64) * 64) else {
        return parameter("items", items, "so many that Spark has an array for them (2^37 bits)");
    };
    let (kind, hasher) = match variants & VERSION_1 {
        0 => (V2, hasher_v2()),
        _ => (V1, hasher_v1()),
    };
    Ok((Plan { items, rate, bits, probes, ..Plan::blank(kind) }, hasher))
}

const C1: u32 = 0xcc9e_2d51;
const C2: u32 = 0x1b87_3593;

fn murmur(key: &[u8], seed: u32) -> u32 {
    let round = |hash: u32, word: u32| {
        let word = word.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2);
        (hash ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    };
    let (words, tail) = key.as_chunks::<4>();
    let hash = words.iter().fold(seed, |hash, word| round(hash, u32::from_le_bytes(*word)));
    let hash = tail.iter().fold(hash, |hash, byte| round(hash, i32::from(*byte as i8) as u32));
    let hash = hash ^ key.len() as u32;
    let hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// The place has h1 in its low half and h2 in its high one.
fn hash(key: &[u8], seed: u64) -> Digest {
    let h1 = murmur(key, seed as u32);
    let h2 = murmur(key, h1);
    Digest { place: u64::from(h2) << 32 | u64::from(h1), print: 0 }
}

struct ProbingV2;

impl Probing for ProbingV2 {
    const WIDTH: usize = 1;

    #[inline(always)]
    fn numbers(digests: &[Digest]) -> impl Iterator<Item = u64> {
        let place = digests[0].place;
        let step = i64::from((place >> 32) as i32);
        let mut sum = i64::from(place as i32) * i64::from(i32::MAX);
        iter::repeat_with(move || {
            sum = sum.wrapping_add(step);
            if sum < 0 { !sum as u64 } else { sum as u64 }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_reference() {
        let (up_to_15, up_to_33): (Vec<u8>, Vec<u8>) = ((0..15).collect(), (0..33).collect());
        for (key, expected) in [
            (&b""[..], 0),
            (b"hello", 0xb21f_6e00),
            ("\u{5e03}\u{9686}".as_bytes(), 0x3a0e_e75b),
            (&up_to_15, 0x7710_af0b),
            (&up_to_33, 0x0ccc_e8d4),
        ] {
            assert_eq!(murmur(key, 0), expected, "{key:?}");
        }
    }
}
