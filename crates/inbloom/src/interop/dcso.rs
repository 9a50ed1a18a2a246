//! DCSO's `bloom` (a program in Go, and its like in Python and Rust), CIRCL's hashlookup among its
//! users.
//!
//! Version 1, all numbers little-endian:
//!
//! ```text
//! at 0   u64   1
//! at 8   u64   n, the keys that it is for
//! at 16  f64   p, the rate
//! at 24  u64   k
//! at 32  u64   m
//! at 40  u64   how many inserts have changed a bit
//! at 48  u64   ceil(m / 64) words; bit i is bit i % 64 of word i / 64
//! ...          any data, to the end of the file
//! ```
//!
//! h is FNV-1 of the key, modulo P = 2^64 - 59. For each probe h becomes (h G mod 2^64) mod P, with G =
//! 18446744073709550147, and the probe is at h mod m.
//!
//! Version 0 (0.1 and 0.2.0 of the program) has no version, and no data behind the words:
//!
//! ```text
//! at 0   u32   n     at 4   f64   p     at 12  u32   k     at 16  u32   m     at 20  u32   inserts
//! at 24  u64   the words
//! ```
//!
//! h1 is FNV-1 of the key and h2 that of the key and "this-is-magical". Probe i, from 1 to k, is at
//! (h1 + i h2) mod m. Its rate is two to four times what was asked for if m is even.
//!
//! **Sizes**: m is n ln p / (ln 2)^2, rounded towards zero; k is m/n ln 2, rounded up.
//!
//! A file may be compressed by gzip as a whole.

use std::io::{self, Read, Write};
use std::iter;

use super::bit_array::{self, Probing};
use super::{
    FormatRow, KeyEncoding, Likeness, Variant, fnv, gzip, short, words_from, write_failed,
    write_words,
};
use crate::codec::Decoder;
use crate::digest::{Digest, Hasher};
use crate::error::{Error, Result, mismatch};
use crate::filter::{Filter, MAX_INSERTED};
use crate::foreign::{ForeignHash, Function};
use crate::kind::Kind;
use crate::kinds;
use crate::math;
use crate::plan::{Plan, parameter};

const V1: Kind = Kind::new(70);
const V0: Kind = Kind::new(71);

static HASH_V1: ForeignHash = ForeignHash {
    id: 69,
    name: "fnv-1-64 (mod 2^64 - 59)",
    seeded: false,
    kinds: &[V1],
    function: Function::One(|key, _| Digest {
        place: fnv::fnv_1(fnv::BASIS, key) % PRIME,
        print: 0,
    }),
    eight: None,
};
static HASH_V0: ForeignHash = ForeignHash {
    id: 70,
    name: "fnv-1-64 (twice)",
    seeded: false,
    kinds: &[V0],
    function: Function::One(|key, _| {
        let place = fnv::fnv_1(fnv::BASIS, key);
        Digest { place, print: fnv::fnv_1(place, b"this-is-magical") }
    }),
    eight: None,
};

fn hasher_v1() -> Hasher {
    Hasher::foreign(&HASH_V1, 0)
}

fn hasher_v0() -> Hasher {
    Hasher::foreign(&HASH_V0, 0)
}

static KIND_V1: kinds::Row = bit_array::row::<ProbingV1>(V1, "dcso", hasher_v1);
static KIND_V0: kinds::Row = bit_array::row::<ProbingV0>(V0, "dcso-v0", hasher_v0);

pub(super) static ROW: FormatRow = FormatRow {
    name: "dcso",
    title: "DCSO's bloom, used by hashlookup",
    variants: &[
        Variant { name: "gzip", help: "compressed" },
        Variant { name: "v0", help: "the format of versions 0.1 and 0.2.0" },
    ],
    kinds: &[&KIND_V1, &KIND_V0],
    hashes: &[&HASH_V1, &HASH_V0],
    encodings: &[KeyEncoding::Utf8, KeyEncoding::Hex],
    records_plan: true,
    recognize,
    read,
    read_part: None,
    write: Some(write),
    plan: Some(plan),
};

const GZIP: u32 = 1;
const VERSION_0: u32 = 2;

/// Version 1 by its first word and the length, version 0 by the length.
fn recognize(bytes: &[u8]) -> Likeness {
    if bytes.starts_with(&gzip::MAGIC) {
        return if start_of(bytes).is_ok() { Likeness::Certain } else { Likeness::No };
    }
    match header(bytes).and_then(|header| header.split(bytes)) {
        Ok((header, ..)) if header.kind == V1 => Likeness::Certain,
        Ok(_) => Likeness::Possible,
        Err(_) => Likeness::No,
    }
}

const HEADER_V1: usize = 48;
const HEADER_V0: usize = 24;

struct DcsoHeader {
    kind: Kind,
    plan: Plan,
    inserted: u64,
    length: usize,
}

/// The header of either version.
fn header(bytes: &[u8]) -> Result<DcsoHeader> {
    let mut fields = Decoder(bytes);
    let is_current = bytes.starts_with(&1_u64.to_le_bytes());
    let (kind, length) = if is_current { (V1, HEADER_V1) } else { (V0, HEADER_V0) };
    let cut = || short("header", length, bytes);
    let (items, rate, probes, bits, inserted) = if is_current {
        let _version = fields.u64().ok_or_else(cut)?;
        let (items, rate) = (fields.u64().ok_or_else(cut)?, fields.f64().ok_or_else(cut)?);
        let (probes, bits) = (fields.u64().ok_or_else(cut)?, fields.u64().ok_or_else(cut)?);
        (items, rate, probes, bits, fields.u64().ok_or_else(cut)?)
    } else {
        let (items, rate) = (fields.u32().ok_or_else(cut)?, fields.f64().ok_or_else(cut)?);
        let (probes, bits) = (fields.u32().ok_or_else(cut)?, fields.u32().ok_or_else(cut)?);
        let inserted = fields.u32().ok_or_else(cut)?;
        (items.into(), rate, probes.into(), bits.into(), inserted.into())
    };
    if !(rate > 0.0 && rate < 1.0) {
        return Err(mismatch("rate", "above 0 and below 1", rate));
    }
    if items == 0 {
        return Err(mismatch("number of keys", "1 or more", items));
    }
    if inserted > MAX_INSERTED {
        return Err(mismatch(
            "number of inserts",
            format_args!("at most {MAX_INSERTED}"),
            inserted,
        ));
    }
    let Ok(probes) = u32::try_from(probes) else {
        return Err(mismatch("number of hash functions", "below 2^32", probes));
    };
    let plan = Plan { items, rate, bits, probes, ..Plan::blank(kind) };
    Ok(DcsoHeader { kind, plan: plan.check()?, inserted, length })
}

impl DcsoHeader {
    /// The words of the filter, and what is behind them.
    fn split(self, bytes: &[u8]) -> Result<(DcsoHeader, &[u8], &[u8])> {
        let mut rest = Decoder(&bytes[self.length..]);
        let Some(words) = rest.take(self.plan.bytes()) else {
            let (expected, got) = (self.plan.bytes(), rest.0.len());
            return Err(mismatch("length of the words", expected, got));
        };
        if self.kind == V0 && !rest.0.is_empty() {
            return Err(mismatch("bytes behind the words", 0, rest.0.len()));
        }
        Ok((self, words, rest.0))
    }
}

fn read(bytes: &[u8], _variants: u32) -> Result<(Filter, u32)> {
    if bytes.starts_with(&gzip::MAGIC) {
        let plain = decompressed(bytes)?;
        let (filter, variants) = read_plain(&plain)?;
        return Ok((filter, variants | GZIP));
    }
    read_plain(bytes)
}

/// The first bytes of a compressed file, if they are a header, and what comes behind them.
fn start_of(bytes: &[u8]) -> Result<(Vec<u8>, impl Read)> {
    let (mut start, mut rest) = (Vec::new(), gzip::reader(bytes)?);
    Read::by_ref(&mut rest).take(HEADER_V1 as u64).read_to_end(&mut start).map_err(not_gzip)?;
    header(&start)?;
    Ok((start, rest))
}

/// Something else that is compressed is not read to its end. Memory is taken only for what has come
/// out of the stream, which is at most 1032 times its length.
fn decompressed(bytes: &[u8]) -> Result<Vec<u8>> {
    let (mut plain, mut rest) = start_of(bytes)?;
    rest.read_to_end(&mut plain).map_err(not_gzip)?;
    Ok(plain)
}

fn not_gzip(cause: io::Error) -> Error {
    mismatch("compressed data", "a gzip stream", cause)
}

fn read_plain(bytes: &[u8]) -> Result<(Filter, u32)> {
    let (DcsoHeader { kind, plan, inserted, .. }, words, data) = header(bytes)?.split(bytes)?;
    let (hasher, variants) = match kind {
        V1 => (hasher_v1(), 0),
        _ => (hasher_v0(), VERSION_0),
    };
    let mut filter = Filter::from_words_of(plan, hasher, words_from(words, u64::from_le_bytes))?;
    filter.inserted = inserted;
    filter.texts.attach(data.to_vec());
    Ok((filter, variants))
}

/// The version is that of the filter, whatever variant is asked for.
fn write(filter: &Filter, variants: u32, writer: &mut dyn Write) -> Result<()> {
    if variants & GZIP == 0 {
        return write_plain(filter, writer);
    }
    gzip::compressed(writer, |writer| write_plain(filter, writer))
}

fn write_plain(filter: &Filter, writer: &mut dyn Write) -> Result<()> {
    let plan = filter.plan();
    let mut header = Vec::with_capacity(HEADER_V1);
    if plan.kind() == V1 {
        header.extend(1_u64.to_le_bytes());
        header.extend(plan.items().to_le_bytes());
        header.extend(plan.rate().to_le_bytes());
        header.extend(u64::from(plan.probes()).to_le_bytes());
        header.extend(plan.bits().to_le_bytes());
        header.extend(filter.inserted().to_le_bytes());
    } else {
        let small = |name, number: u64| match u32::try_from(number) {
            Ok(number) => Ok(number.to_le_bytes()),
            Err(_) => parameter(name, number, "below 2^32, for DCSO's version 0"),
        };
        header.extend(small("items", plan.items())?);
        header.extend(plan.rate().to_le_bytes());
        header.extend(plan.probes().to_le_bytes());
        header.extend(small("bits", plan.bits())?);
        header.extend(small("inserts", filter.inserted())?);
    }
    write_words(filter, &header, u64::to_le_bytes, writer)?;
    if plan.kind() == V1 {
        writer.write_all(filter.texts.attached()).map_err(write_failed)?;
    }
    Ok(())
}

fn plan(items: u64, rate: f64, variants: u32) -> Result<(Plan, Hasher)> {
    if items == 0 || rate == 0.0 {
        return parameter("items and rate", format_args!("{items}, {rate}"), "above 0 for DCSO");
    }
    let (n, ln_2) = (items as f64, std::f64::consts::LN_2);
    let bits = math::ceil(n * math::ln(rate) / (ln_2 * ln_2)).abs();
    let probes = math::ceil(ln_2 * bits / n) as u32;
    let (kind, hasher) = match variants & VERSION_0 {
        0 => (V1, hasher_v1()),
        _ => (V0, hasher_v0()),
    };
    Ok((Plan { items, rate, bits: bits as u64, probes, ..Plan::blank(kind) }, hasher))
}

const PRIME: u64 = 18_446_744_073_709_551_557;
const GENERATOR: u64 = 18_446_744_073_709_550_147;

struct ProbingV1;

impl Probing for ProbingV1 {
    const WIDTH: usize = 1;

    #[inline(always)]
    fn numbers(digests: &[Digest]) -> impl Iterator<Item = u64> {
        let mut hash = digests[0].place;
        iter::repeat_with(move || {
            hash = hash.wrapping_mul(GENERATOR);
            // The prime is above 2^63: it fits once at most.
            hash = hash.checked_sub(PRIME).unwrap_or(hash);
            hash
        })
    }
}

struct ProbingV0;

impl Probing for ProbingV0 {
    const WIDTH: usize = 1;

    #[inline(always)]
    fn numbers(digests: &[Digest]) -> impl Iterator<Item = u64> {
        let Digest { place: mut sum, print } = digests[0];
        iter::repeat_with(move || {
            sum = sum.wrapping_add(print);
            sum
        })
    }
}
