//! The bytes of our own dumps: a header, then pieces of a body.
//!
//! ```text
//!   header, 88 bytes, iterator 1
//!
//!    0   8 bytes  magic, 89 49 42 44 0d 0a 1a 0a
//!    8   u32      version, 1
//!   12   u32      expansion, 0 if it does not grow         \
//!   16   u64      items, those that were new                |
//!   24   u64      capacity, the keys that the base is for   | of a filter with a base,
//!   32   f64      rate of the base                          | otherwise 0
//!   40   u64      bytes of the base                         |
//!   48   u32 u32  its probes and lines                     /
//!   56   u64      bytes of the file
//!   64   u64      a check of the hash of the base's keys: the first half of "inbloom"'s
//!   72   u64      identity
//!   80   u64      checksum, XXH3-64 of the 80 bytes before
//!
//!   body = base | file                            either may be missing, not both
//!
//!   piece = some bytes of the body | u64 checksum                       at most 1 MiB and 8 bytes
//!           start ........... end                                       iterator 1 + end
//!
//!   iterator = 1 + end, and where a copy is kept for the dump, its number (1 to 8191) from bit 40 on
//!
//!   payload of DUMP = header | body | u64 checksum, XXH3-64 of both
//! ```
//!
//! The *base* is the memory of a blocked filter (docs/format.md, "Blocked"), the *file* a filter in
//! our file format: what a filter of BF.ADD has grown by beyond its base, or the whole of a filter
//! of another kind. All numbers are little-endian.
//!
//! A piece's checksum is XXH3-64 of its bytes with identity + start for a seed: so a piece of
//! another dump, or in another place, is refused like a damaged one. The identity is XXH3-64 of
//! bytes 24 to 72 of the header, with XXH3-64 of the file for a seed, 0 if there is none. It does
//! not depend on the items: they may change between two pieces of a filter that is dumped while it
//! is used.
//!
//! For example, BF.RESERVE f 0.01 100, never added to: a header with expansion 2, items 0, capacity
//! 100, rate 0.001, 192 bytes of base and none of file; one piece of 200 bytes with iterator 193.

use std::num::NonZeroU32;

use inbloom::internals::codec::Decoder;
use inbloom::{Hasher, Plan};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::reply_error::ReplyError;
use crate::value::bloom::{Bloom, Wish};

/// What every dump of ours begins with.
pub const MAGIC: [u8; 8] = *b"\x89IBD\r\n\x1a\n";
const VERSION: u32 = 1;
/// The bytes of a header.
pub const HEADER: usize = 88;
/// The bytes of a checksum.
const SUM: usize = 8;

/// Of an iterator, where in the body it is. The bits above are the number of the dump, where a copy is
/// kept for it: several may be under way. 53 bits in all, as JavaScript counts no further.
const PLACE_BITS: u32 = 40;
/// Numbers of dumps, from 1.
pub const MOST_DUMP_IDS: u64 = (1 << (53 - PLACE_BITS)) - 1;

/// Returns an iterator of a dump that a copy is kept for.
pub fn iterator(id: u64, place: u64) -> u64 {
    id << PLACE_BITS | place
}

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    /// The base, if there is one.
    pub base: Option<Base>,
    /// Bytes of the file.
    pub file: u64,
    /// What tells pieces of this dump from those of others.
    pub identity: u64,
}

/// What a header says of the base.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Base {
    /// By what the filter grows.
    pub expansion: Option<NonZeroU32>,
    /// Keys that were new.
    pub items: u64,
    /// Keys that the base is for.
    pub capacity: u64,
    /// The rate of the base.
    pub rate: f64,
    bytes: u64,
    probes: u32,
    lines: u32,
    hash: u64,
}

impl Base {
    /// Returns whether it is this plan that the base was made from.
    pub fn is_of(&self, plan: &Plan) -> bool {
        (self.bytes, self.probes, self.lines) == (plan.bytes(), plan.probes(), plan.lines())
    }

    /// Returns whether its keys were added under this hash.
    pub fn is_under(&self, hasher: &Hasher) -> bool {
        self.hash == hash_check(hasher)
    }
}

impl Header {
    /// Of nothing.
    pub const EMPTY: Header = Header { base: None, file: 0, identity: 0 };

    /// Of a filter of BF.ADD, with the file of what came after its base.
    pub fn of(bloom: &Bloom, hasher: &Hasher, file: Option<&[u8]>) -> Header {
        let plan = bloom.base().plan();
        // It may grow at this moment: then there are more than its base has.
        let most = if file.is_some() { u64::MAX } else { plan.items() };
        let base = Base {
            expansion: bloom.expansion(),
            items: bloom.items().min(most),
            capacity: plan.items(),
            rate: plan.rate(),
            bytes: plan.bytes(),
            probes: plan.probes(),
            lines: plan.lines(),
            hash: hash_check(hasher),
        };
        Header::seal(Some(base), file)
    }

    /// Of a filter that is a file.
    pub fn of_file(file: &[u8]) -> Header {
        Header::seal(None, Some(file))
    }

    fn seal(base: Option<Base>, file: Option<&[u8]>) -> Header {
        let length = file.map_or(0, |file| file.len() as u64);
        let mut header = Header { base, file: length, identity: 0 };
        header.identity = xxh3_64_with_seed(&header.bytes()[24..72], file.map_or(0, xxh3_64));
        header
    }

    /// Returns the bytes of the base.
    pub fn base_bytes(&self) -> u64 {
        self.base.map_or(0, |base| base.bytes)
    }

    /// Returns the bytes of the whole body. It does not overflow: see `parse`.
    pub fn body(&self) -> u64 {
        self.base_bytes() + self.file
    }

    /// Returns whether iterators of its pieces have room for the number of a dump: not above a TiB.
    pub fn has_ids(&self) -> bool {
        self.body() < 1 << PLACE_BITS
    }

    /// Returns the number of the dump in an iterator, 0 if there is none, and the place in the
    /// body.
    pub fn split(&self, iterator: u64) -> (u64, u64) {
        match self.has_ids() {
            true => (iterator >> PLACE_BITS, iterator & ((1 << PLACE_BITS) - 1)),
            false => (0, iterator),
        }
    }

    /// As it is sent.
    pub fn bytes(&self) -> [u8; HEADER] {
        let mut out = Vec::with_capacity(HEADER);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        let base = self.base;
        out.extend(base.and_then(|base| base.expansion).map_or(0, NonZeroU32::get).to_le_bytes());
        out.extend(base.map_or(0, |base| base.items).to_le_bytes());
        out.extend(base.map_or(0, |base| base.capacity).to_le_bytes());
        out.extend(base.map_or(0.0, |base| base.rate).to_bits().to_le_bytes());
        out.extend(base.map_or(0, |base| base.bytes).to_le_bytes());
        out.extend(base.map_or(0, |base| base.probes).to_le_bytes());
        out.extend(base.map_or(0, |base| base.lines).to_le_bytes());
        out.extend(self.file.to_le_bytes());
        out.extend(base.map_or(0, |base| base.hash).to_le_bytes());
        out.extend(self.identity.to_le_bytes());
        out.extend(xxh3_64(&out).to_le_bytes());
        out.try_into().expect("the fields above are 88 bytes")
    }

    /// Reads a header that begins with the magic. Whether there is memory for what it describes is
    /// for the caller to see.
    pub fn parse(bytes: &[u8]) -> Result<Header, ReplyError> {
        let Some((fields, sum)) = bytes.split_last_chunk::<SUM>().filter(|_| bytes.len() == HEADER)
        else {
            let length = bytes.len();
            return Err(bad(format_args!("a header of {length} bytes, expected {HEADER}")));
        };
        if xxh3_64(fields) != u64::from_le_bytes(*sum) {
            return Err(bad("the checksum of the header is wrong; dump the filter again"));
        }
        let short = || bad("a header that is too short");
        let mut fields = Decoder(&fields[MAGIC.len()..]);
        let version = fields.u32().ok_or_else(short)?;
        if version != VERSION {
            return Err(bad(format_args!(
                "a dump of version {version}, this inbloom reads {VERSION}; upgrade inbloom"
            )));
        }
        let mut read = || {
            let base = Base {
                expansion: NonZeroU32::new(fields.u32()?),
                items: fields.u64()?,
                capacity: fields.u64()?,
                rate: fields.f64()?,
                bytes: fields.u64()?,
                probes: fields.u32()?,
                lines: fields.u32()?,
                hash: 0,
            };
            let file = fields.u64()?;
            Some((Base { hash: fields.u64()?, ..base }, file, fields.u64()?))
        };
        let (base, file, identity) = read().ok_or_else(short)?;
        let header = Header { base: (base.bytes > 0).then_some(base), file, identity };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), ReplyError> {
        /// More than any memory, and few enough that sums and iterators do not overflow.
        const MOST: u64 = 1 << 56;
        if self.base_bytes() > MOST || self.file > MOST || self.body() == 0 {
            let (base, file) = (self.base_bytes(), self.file);
            return Err(bad(format_args!("{base} bytes of base and {file} of file")));
        }
        let Some(base) = self.base else { return Ok(()) };
        // Before memory is taken for it; what is wrong only together with the file is found at the end.
        Wish::of_base(base.rate, base.capacity, base.expansion).check().map_err(bad)?;
        if self.file == 0 && base.items > base.capacity {
            let (items, capacity) = (base.items, base.capacity);
            return Err(bad(format_args!("{items} items in a filter for {capacity}")));
        }
        if self.file > 0 && base.expansion.is_none() {
            return Err(bad("a filter that does not grow has grown"));
        }
        Ok(())
    }
}

/// Returns what differs between two hashes.
pub fn hash_check(hasher: &Hasher) -> u64 {
    hasher.digest("inbloom").place
}

/// The bytes are not what they should be: RedisBloom's text, and the reason.
pub fn bad(reason: impl std::fmt::Display) -> ReplyError {
    ReplyError::with(format!("ERR received bad data: {reason}"))
}

/// Puts the checksum behind some bytes of the body.
pub fn seal(piece: &mut Vec<u8>, identity: u64, start: u64) {
    piece.extend(sum(piece, identity, start).to_le_bytes());
}

/// Returns whether a piece with an iterator is a header of ours.
pub fn is_header(iterator: i64, piece: &[u8]) -> bool {
    iterator > 0
        && iterator & ((1 << PLACE_BITS) - 1) == 1
        && piece.len() == HEADER
        && piece.starts_with(&MAGIC)
}

/// Returns where a piece that ends before `end - 1` begins, and its bytes; None if it is none of
/// this dump.
pub fn open(identity: u64, end: u64, piece: &[u8]) -> Option<(u64, &[u8])> {
    let (data, found) = piece.split_last_chunk::<SUM>()?;
    let start = end.checked_sub(1)?.checked_sub(data.len() as u64)?;
    (sum(data, identity, start) == u64::from_le_bytes(*found)).then_some((start, data))
}

fn sum(data: &[u8], identity: u64, start: u64) -> u64 {
    xxh3_64_with_seed(data, identity.wrapping_add(start))
}
