//! The payload that `DUMP` returns and `RESTORE` reads: a filter as one string, also used in RDB
//! files.
//!
//! **Layout.** `07`, the type of a module's value; the module; its fields; `00`; two bytes of RDB
//! version, little-endian; CRC-64 of all that, little-endian. The module is `81` and eight bytes,
//! big-endian: nine characters of 6 bits, from A-Z a-z 0-9 - _, and 10 bits of encoding version. A
//! field is
//!
//!   2 and an unsigned number, 4 and an f64, little-endian, or 5 and a string
//!
//! where numbers, lengths and the 2, 4 and 5 themselves have the form of RDB: up to 63 in one byte,
//! up to 16,383 in two (`01` in the top bits), then `80` and 4 bytes or `81` and 8, big-endian. A
//! string is its length and its bytes; `c3`, two lengths and LZF; or, if it looks like a number,
//! `c0` to `c2` and that number in 1, 2 or 4 bytes, little-endian.
//!
//! Encoding 4 is the present one. The fields of a Bloom filter:
//!
//!   items, links, options (from encoding 2 on), growth (from 4 on), and of each link
//!   entries, f64 rate, hashes, f64 bits per entry, bits and log2 of the modulus (from 1 on), the
//!   bytes, items of the link
//!
//! and those of a cuckoo filter:
//!
//!   sub-filters, buckets, items, then (from 4 on) deletes, bucket size, iterations, expansion;
//!   and of each sub-filter its buckets and its bytes
//!
//! **What for.** It is the only form with a checksum, so a reader can detect damage. Redis accepts
//! strings of up to 512 MB; larger filters are copied in chunks.

use super::bloom::{self, Bloom, Link};
use super::cuckoo::{self, CuckooChain};
use super::error::ForeignError;
use super::{lzf, memory};
use crate::codec::Decoder;

/// Redis 7.0 takes 9 and 10, Redis 8.0 takes 9 to 12.
const RDB_VERSION: u16 = 9;
/// The encoding that is written, and the newest that is read.
const ENCODING: u16 = 4;

const BLOOM: &[u8; 9] = b"MBbloom--";
const CUCKOO: &[u8; 9] = b"MBbloomCF";

const MODULE_VALUE: u8 = 7;
const END: u64 = 0;
const SIGNED: u64 = 1;
const UNSIGNED: u64 = 2;
const FLOAT: u64 = 3;
const DOUBLE: u64 = 4;
const STRING: u64 = 5;

/// A filter to be dumped.
#[derive(Debug, Clone, Copy)]
pub enum Dumped<'a> {
    /// For `TYPE` MBbloom--.
    Bloom(&'a Bloom),
    /// For `TYPE` MBbloomCF.
    Cuckoo(&'a CuckooChain),
}

impl<'a> From<&'a Bloom> for Dumped<'a> {
    fn from(bloom: &'a Bloom) -> Dumped<'a> {
        Dumped::Bloom(bloom)
    }
}

impl<'a> From<&'a CuckooChain> for Dumped<'a> {
    fn from(cuckoo: &'a CuckooChain) -> Dumped<'a> {
        Dumped::Cuckoo(cuckoo)
    }
}

/// A filter that was restored.
#[derive(Debug, PartialEq)]
pub enum Restored {
    /// Of `TYPE` MBbloom--.
    Bloom(Bloom),
    /// Of `TYPE` MBbloomCF.
    Cuckoo(CuckooChain),
}

/// Returns the payload of a filter, as `DUMP` returns it.
///
/// # Errors
///
/// Fails if there is not enough memory.
///
/// # Examples
///
/// ```
/// use inbloom::interop::redisbloom::{CuckooChain, payload};
///
/// let filter = CuckooChain::new(100, 2, 20, 1, 1 << 20)?;
/// let bytes = payload::encode(&filter)?;
/// assert_eq!(payload::decode(&bytes, 1 << 20)?, payload::Restored::Cuckoo(filter));
/// # Ok::<(), inbloom::interop::redisbloom::ForeignError>(())
/// ```
pub fn encode<'a>(filter: impl Into<Dumped<'a>>) -> Result<Vec<u8>, ForeignError> {
    let filter = filter.into();
    // The fields of a link are at most 8 of at most 10 bytes, those at the start no more.
    let (arrays, bytes) = match filter {
        Dumped::Bloom(bloom) => (bloom.links().len() as u64, bloom.bytes()),
        Dumped::Cuckoo(cuckoo) => (cuckoo.filters(), cuckoo.bytes()),
    };
    let most = bytes + 80 * (arrays + 2);
    let mut out = Vec::new();
    let short = ForeignError::Memory { bytes: most };
    memory::reserve(&mut out, usize::try_from(most).map_err(|_| short)?)?;
    let mut writer = Writer(out);
    match filter {
        Dumped::Bloom(bloom) => writer.bloom(bloom),
        Dumped::Cuckoo(cuckoo) => writer.cuckoo(cuckoo),
    }
    writer.length(END);
    let Writer(mut out) = writer;
    out.extend(RDB_VERSION.to_le_bytes());
    out.extend(crc64(&out).to_le_bytes());
    Ok(out)
}

/// Fields, one after the other.
struct Writer(Vec<u8>);

impl Writer {
    fn bloom(&mut self, bloom: &Bloom) {
        self.module(BLOOM);
        self.unsigned(bloom.items());
        self.unsigned(bloom.links().len() as u64);
        self.unsigned(bloom.options().into());
        self.unsigned(bloom.growth_field().into());
        for (link, bytes) in bloom.links().zip(bloom.arrays()) {
            self.unsigned(link.entries);
            self.double(link.rate);
            self.unsigned(link.hashes.into());
            self.double(link.bpe);
            self.unsigned(link.bits);
            self.unsigned(link.log2_bits.into());
            self.string(bytes);
            self.unsigned(link.size);
        }
    }

    fn cuckoo(&mut self, cuckoo: &CuckooChain) {
        self.module(CUCKOO);
        self.unsigned(cuckoo.filters());
        self.unsigned(cuckoo.buckets());
        self.unsigned(cuckoo.items());
        self.unsigned(cuckoo.deletes());
        self.unsigned(cuckoo.bucket_size().into());
        self.unsigned(cuckoo.max_iterations().into());
        self.unsigned(cuckoo.expansion().into());
        for bytes in cuckoo.arrays() {
            self.unsigned(bytes.len() as u64 / u64::from(cuckoo.bucket_size()));
            self.string(bytes);
        }
    }

    fn module(&mut self, name: &[u8; 9]) {
        self.0.push(MODULE_VALUE);
        self.0.push(0x81);
        self.0.extend((module_id(name) | u64::from(ENCODING)).to_be_bytes());
    }

    fn unsigned(&mut self, value: u64) {
        self.length(UNSIGNED);
        self.length(value);
    }

    fn double(&mut self, value: f64) {
        self.length(DOUBLE);
        self.0.extend(value.to_le_bytes());
    }

    fn string(&mut self, bytes: &[u8]) {
        self.length(STRING);
        self.length(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn length(&mut self, length: u64) {
        match length {
            0..64 => self.0.push(length as u8),
            64..16_384 => self.0.extend((0x4000 | length as u16).to_be_bytes()),
            _ => match u32::try_from(length) {
                Ok(length) => {
                    self.0.push(0x80);
                    self.0.extend(length.to_be_bytes());
                }
                Err(_) => {
                    self.0.push(0x81);
                    self.0.extend(length.to_be_bytes());
                }
            },
        }
    }
}

/// A module's name, in the upper 54 bits.
const fn module_id(name: &[u8; 9]) -> u64 {
    let (mut id, mut at) = (0u64, 0);
    while at < name.len() {
        let value = match name[at] {
            letter @ b'A'..=b'Z' => letter - b'A',
            letter @ b'a'..=b'z' => letter - b'a' + 26,
            digit @ b'0'..=b'9' => digit - b'0' + 52,
            b'-' => 62,
            _ => 63,
        };
        id = id << 6 | value as u64;
        at += 1;
    }
    id << 10
}

/// Creates the filter of a payload. Its size is checked against `limit` before memory is allocated.
///
/// # Errors
///
/// Fails if the payload is damaged, has a newer encoding, or is larger than the limit.
pub fn decode(payload: &[u8], limit: u64) -> Result<Restored, ForeignError> {
    let Some((checked, sum)) = payload.split_last_chunk::<8>() else {
        return Err(short("10 bytes at least"));
    };
    let (expected, got) = (crc64(checked), u64::from_le_bytes(*sum));
    if expected != got {
        return Err(ForeignError::damaged(
            "checksum",
            format!("{expected:016x}"),
            format!("{got:016x}"),
        ));
    }
    let (fields, _version) =
        checked.split_last_chunk::<2>().ok_or_else(|| short("10 bytes at least"))?;
    let mut reader = Reader(Decoder(fields));
    let kind = reader.u8()?;
    if kind != MODULE_VALUE {
        return Err(ForeignError::damaged("type of value", "7, a module's", kind));
    }
    decode_value(reader.0.0, limit)
}

/// The filter in a module's value, from the module on: what a payload has behind its type, and an RDB
/// file behind a key.
pub(super) fn decode_value(value: &[u8], limit: u64) -> Result<Restored, ForeignError> {
    let mut reader = Reader(Decoder(value));
    let id = reader.length()?;
    let (module, encoding) = module_of(id);
    let module = module.ok_or_else(|| {
        ForeignError::damaged("module", "MBbloom-- or MBbloomCF", format!("{id:#x}"))
    })?;
    if encoding > ENCODING {
        return Err(ForeignError::NewerEncoding { got: encoding, supported: ENCODING });
    }
    let restored = match module {
        Module::Bloom => Restored::Bloom(reader.bloom(encoding, limit)?),
        Module::Cuckoo => Restored::Cuckoo(reader.cuckoo(encoding, limit)?),
    };
    reader.opcode(END)?;
    match reader.0.0 {
        [] => Ok(restored),
        rest => Err(ForeignError::damaged("end of payload", "no more bytes", rest.len())),
    }
}

/// A type that RedisBloom brings to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Module {
    Bloom,
    Cuckoo,
}

/// Returns which of the types a module's number stands for, if one, and the version of its encoding.
pub(super) fn module_of(id: u64) -> (Option<Module>, u16) {
    let name = id & !1023;
    let module = if name == module_id(BLOOM) {
        Some(Module::Bloom)
    } else {
        (name == module_id(CUCKOO)).then_some(Module::Cuckoo)
    };
    (module, (id & 1023) as u16)
}

pub(super) fn short(expected: &'static str) -> ForeignError {
    ForeignError::damaged("payload", expected, "the end")
}

/// What is left of the fields.
pub(super) struct Reader<'a>(pub Decoder<'a>);

/// A string, not yet in its place.
pub(super) enum Text<'a> {
    Plain(&'a [u8]),
    Compressed(&'a [u8], u64),
    /// The decimal form of a number.
    Number(String),
}

impl Text<'_> {
    /// The string itself, of which the bytes that there are justify the length.
    pub(super) fn to_vec(&self) -> Result<Vec<u8>, ForeignError> {
        let mut place = Vec::new();
        let length = usize::try_from(self.len()).map_err(|_| short("a shorter string"))?;
        memory::reserve(&mut place, length)?;
        place.resize(length, 0);
        self.write_to(&mut place)?;
        Ok(place)
    }

    fn len(&self) -> u64 {
        match self {
            Text::Plain(bytes) => bytes.len() as u64,
            Text::Compressed(_, length) => *length,
            Text::Number(text) => text.len() as u64,
        }
    }

    /// Puts the string in its place, which is as long as it says.
    fn write_to(&self, place: &mut [u8]) -> Result<(), ForeignError> {
        match self {
            Text::Plain(bytes) => place.copy_from_slice(bytes),
            Text::Number(text) => place.copy_from_slice(text.as_bytes()),
            Text::Compressed(stream, length) => {
                if !lzf::decompress(stream, place) {
                    let expected = format!("LZF of {length} bytes");
                    return Err(ForeignError::damaged(
                        "compressed string",
                        expected,
                        "anything else",
                    ));
                }
            }
        }
        Ok(())
    }
}

impl<'a> Reader<'a> {
    fn bloom(&mut self, encoding: u16, limit: u64) -> Result<Bloom, ForeignError> {
        let (items, links) = (self.unsigned()?, self.unsigned()?);
        let options = if encoding >= 2 { self.narrow("options")? } else { 0 };
        let growth = if encoding >= 4 { self.narrow("growth")? } else { 2 };
        let mut builder = bloom::BloomBuilder::new(items, options, growth, limit)?;
        // Each link takes bytes of the payload, so that no number of them is too large to try.
        for _ in 0..links {
            let (entries, rate) = (self.unsigned()?, self.double()?);
            let (hashes, bpe) = (self.narrow("hashes of a link")?, self.double()?);
            let (bits, log2_bits) = match encoding {
                // Saturates, and is then more than any string has.
                0 => ((entries as f64 * bpe) as u64, 0),
                _ => (self.unsigned()?, self.narrow("log2 of a link's bits")?),
            };
            let text = self.string()?;
            let (bytes, size) = (text.len(), self.unsigned()?);
            let link = Link { bytes, bits, hashes, entries, size, rate, bpe, log2_bits };
            // Older ones do not fill the last word.
            if bits.div_ceil(8) > bytes || bits.div_ceil(64).saturating_mul(8) < bytes {
                return Err(ForeignError::damaged(
                    "bytes of a link",
                    format!("{bits} bits"),
                    bytes,
                ));
            }
            builder.claim(&link)?;
            text.write_to(builder.push(link)?)?;
        }
        builder.finish()
    }

    fn cuckoo(&mut self, encoding: u16, limit: u64) -> Result<CuckooChain, ForeignError> {
        let (filters, buckets, items) = (self.unsigned()?, self.unsigned()?, self.unsigned()?);
        let (deletes, bucket_size, max_iterations, expansion) = match encoding {
            // What every filter had before they could be chosen.
            0..4 => (0, 2, 20, 1),
            _ => (
                self.unsigned()?,
                self.narrow("bucket size")?,
                self.narrow("max iterations")?,
                self.narrow("expansion")?,
            ),
        };
        let counts = cuckoo::Counts { items, deletes, filters };
        let shape = cuckoo::ChainShape { buckets, bucket_size, expansion };
        let mut builder = cuckoo::CuckooBuilder::new(counts, shape, max_iterations, limit)?;
        for _ in 0..filters {
            let (expected, buckets) = (builder.next_buckets(), self.unsigned()?);
            if buckets != expected {
                return Err(ForeignError::damaged(
                    "buckets of a sub-filter",
                    expected.to_string(),
                    buckets,
                ));
            }
            let text = self.string()?;
            let expected = buckets * u64::from(bucket_size);
            if text.len() != expected {
                return Err(ForeignError::damaged(
                    "bytes of a sub-filter",
                    expected.to_string(),
                    text.len(),
                ));
            }
            text.write_to(builder.push()?)?;
        }
        Ok(builder.finish())
    }

    fn unsigned(&mut self) -> Result<u64, ForeignError> {
        self.opcode(UNSIGNED)?;
        self.length()
    }

    /// An unsigned number that has to fit into a smaller type.
    fn narrow<T: TryFrom<u64>>(&mut self, what: &'static str) -> Result<T, ForeignError> {
        let value = self.unsigned()?;
        let bits = 8 * size_of::<T>();
        T::try_from(value)
            .map_err(|_| ForeignError::damaged(what, format!("a number of {bits} bits"), value))
    }

    fn double(&mut self) -> Result<f64, ForeignError> {
        self.opcode(DOUBLE)?;
        self.0.f64().ok_or_else(|| short("8 bytes of a number"))
    }

    fn opcode(&mut self, expected: u64) -> Result<(), ForeignError> {
        match self.length()? {
            got if got == expected => Ok(()),
            got => Err(ForeignError::damaged("type of a field", expected.to_string(), got)),
        }
    }

    pub(super) fn length(&mut self) -> Result<u64, ForeignError> {
        let Start::Length(length) = self.start()? else {
            return Err(ForeignError::damaged("number", "a number", "a string"));
        };
        Ok(length)
    }

    fn string(&mut self) -> Result<Text<'a>, ForeignError> {
        self.opcode(STRING)?;
        self.text()
    }

    /// A string that no opcode is before.
    pub(super) fn text(&mut self) -> Result<Text<'a>, ForeignError> {
        let number = |value: Option<i32>| value.map(|value| Text::Number(value.to_string()));
        let text = match self.start()? {
            Start::Length(length) => self.0.take(length).map(Text::Plain),
            Start::Special(0) => number(self.0.array().map(i8::from_le_bytes).map(i32::from)),
            Start::Special(1) => number(self.0.array().map(i16::from_le_bytes).map(i32::from)),
            Start::Special(2) => number(self.0.array().map(i32::from_le_bytes)),
            Start::Special(3) => {
                let (compressed, length) = (self.length()?, self.length()?);
                if length > compressed.saturating_mul(lzf::MOST) {
                    let expected = format!("at most {} times {compressed} bytes", lzf::MOST);
                    return Err(ForeignError::damaged("compressed string", expected, length));
                }
                self.0.take(compressed).map(|stream| Text::Compressed(stream, length))
            }
            Start::Special(other) => {
                return Err(ForeignError::damaged("form of a string", "0 to 3", other));
            }
        };
        text.ok_or_else(|| short("the rest of a string"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, ForeignError> {
        self.0.u8().ok_or_else(|| short("one more byte"))
    }

    pub(super) fn take(&mut self, count: u64) -> Result<&'a [u8], ForeignError> {
        self.0.take(count).ok_or_else(|| short("more bytes"))
    }

    /// Reads over the fields of a module's value, whatever the module, to its end.
    pub(super) fn skip_fields(&mut self) -> Result<(), ForeignError> {
        loop {
            match self.length()? {
                END => return Ok(()),
                SIGNED | UNSIGNED => self.length().map(drop)?,
                FLOAT => self.take(4).map(drop)?,
                DOUBLE => self.take(8).map(drop)?,
                STRING => self.text().map(drop)?,
                other => {
                    return Err(ForeignError::damaged("type of a field", "0 to 5", other));
                }
            }
        }
    }

    /// What a number or a string begins with.
    fn start(&mut self) -> Result<Start, ForeignError> {
        let fields = &mut self.0;
        let first = fields.u8().ok_or_else(|| short("a length"))?;
        let low = u64::from(first & 63);
        let length = match first >> 6 {
            0 => Some(low),
            1 => fields.u8().map(|next| low << 8 | u64::from(next)),
            2 if low == 0 => fields.array().map(u32::from_be_bytes).map(u64::from),
            2 if low == 1 => fields.array().map(u64::from_be_bytes),
            2 => return Err(ForeignError::damaged("length", "80 or 81", format!("{first:x}"))),
            _ => return Ok(Start::Special(first & 63)),
        };
        length.map(Start::Length).ok_or_else(|| short("a length"))
    }
}

/// The first byte of a number or a string, and the length that comes with it.
enum Start {
    Length(u64),
    /// A string of another form.
    Special(u8),
}

/// CRC-64 of the bytes as Redis has it: Jones' polynomial, reflected, from 0. Eight bytes at a
/// time, which are eight look-ups that do not wait for each other.
pub(super) fn crc64(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    let crc = words.iter().fold(0, |crc, word| {
        let mixed = (crc ^ u64::from_le_bytes(*word)).to_le_bytes();
        let tables = CRC_TABLES.iter().rev();
        mixed.iter().zip(tables).fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)])
    });
    tail.iter().fold(crc, |crc, byte| CRC_TABLES[0][usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

/// The checksum of each byte, with as many zeros behind it as the table's number.
static CRC_TABLES: [[u64; 256]; 8] = {
    // ad93d23594c935a9 with its bits in reverse order.
    const POLYNOMIAL: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut zeros) = (byte as u64, 0);
        while zeros < 8 {
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 != 0 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
                bit += 1;
            }
            tables[zeros][byte] = crc;
            zeros += 1;
        }
        byte += 1;
    }
    tables
};
