//! Filters as files hold them: a dump in chunks, a payload, the commands that load a filter, or the
//! snapshot of a whole server.
//!
//! | file | from | holds |
//! |---|---|---|
//! | chunks | replies of `SCANDUMP`, one behind the other | one filter |
//! | payload | the reply of `DUMP` | one filter |
//! | commands | `BF.LOADCHUNK` and `CF.LOADCHUNK`, as an append-only file has them | filters by name |
//! | RDB | a snapshot of a server | filters by name |
//!
//! Each is recognized by its first bytes; that of the chunks is a header whose sizes must add up to
//! the length of the file.

use std::io;

use super::bloom::{Bloom, HEADER as BLOOM_HEADER, HEADER_OF_LINK};
use super::cuckoo::{CuckooChain, HEADER as CUCKOO_HEADER, MAX_FILTERS};
use super::error::ForeignError;
use super::payload::{Module, Restored, decode_value};
use super::{commands, payload, rdb};
use crate::codec::Decoder;

/// A filter of a file, by its name.
#[derive(Debug)]
pub struct Stored<'a> {
    /// The database that its key is in.
    pub database: u64,
    /// Its key.
    pub name: Vec<u8>,
    pub(super) source: Source<'a>,
}

/// What a filter is made from.
#[derive(Debug)]
pub(super) enum Source<'a> {
    /// A value of an RDB file, from the module on.
    Value(Module, &'a [u8]),
    /// Chunks with their iterators, the header's included.
    Chunks(Module, Vec<(u64, &'a [u8])>),
}

impl Stored<'_> {
    /// The type of the key, as `TYPE` names it: `MBbloom--` or `MBbloomCF`.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self.source {
            Source::Value(Module::Bloom, _) | Source::Chunks(Module::Bloom, _) => "MBbloom--",
            Source::Value(Module::Cuckoo, _) | Source::Chunks(Module::Cuckoo, _) => "MBbloomCF",
        }
    }

    /// Creates the filter. Its size is checked against `limit` before memory is allocated.
    ///
    /// # Errors
    ///
    /// Fails if the filter is damaged, incomplete, or larger than the limit.
    pub fn restore(&self, limit: u64) -> Result<Restored, ForeignError> {
        match &self.source {
            Source::Value(_, value) => decode_value(value, limit),
            Source::Chunks(module, chunks) => from_commands(*module, chunks, limit),
        }
    }
}

/// Returns the filters of an RDB file, an append-only file, or a stream of `LOADCHUNK` commands, in
/// the order of the file.
///
/// ```
/// use inbloom::interop::redisbloom::{Bloom, load_commands, stored};
///
/// let mut filter = Bloom::new(0.01, 1000, 2, 1 << 20)?;
/// filter.insert(b"alice", 1 << 20)?;
/// let mut stream = Vec::new();
/// load_commands(&filter, b"seen", &mut stream)?; // for redis-cli --pipe
///
/// let filters = stored(&stream)?;
/// assert_eq!((filters.len(), &filters[0].name[..]), (1, &b"seen"[..]));
/// assert_eq!(filters[0].restore(1 << 20)?.as_bloom(), Some(&filter));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Fails if the file is damaged, holds a value of an unknown type, or changes filters by commands
/// other than LOADCHUNK. Rewrite such an append-only file first.
pub fn stored(file: &[u8]) -> Result<Vec<Stored<'_>>, ForeignError> {
    survey(file).map(|survey| survey.filters)
}

/// What a file holds.
pub(super) struct Survey<'a> {
    pub filters: Vec<Stored<'a>>,
    /// Whether it is nothing but the commands that load these filters.
    pub is_only_loading: bool,
}

pub(super) fn survey(file: &[u8]) -> Result<Survey<'_>, ForeignError> {
    let is_rdb = rdb::is_rdb(file);
    let (mut filters, rest) = if is_rdb { rdb::filters(file)? } else { (Vec::new(), file) };
    let others = commands::filters(rest, &mut filters)?;
    Ok(Survey { filters, is_only_loading: !is_rdb && others == 0 })
}

/// Creates the filter from the chunks that `SCANDUMP` returned, the header first, one after the
/// other.
///
/// # Errors
///
/// Fails unless the bytes are exactly one filter.
pub fn from_chunks(bytes: &[u8]) -> Result<Restored, ForeignError> {
    let length = bytes.len() as u64;
    match chunks_of(bytes) {
        Some((Module::Bloom, header, body)) => {
            let mut bloom = Bloom::from_header(header, memory_for(length))?;
            bloom.read_body(body).map_err(|_| incomplete(bloom.bytes(), body.len()))?;
            Ok(Restored::Bloom(bloom))
        }
        Some((Module::Cuckoo, header, mut body)) => {
            let mut cuckoo = cuckoo_of(header, memory_for(length))?;
            cuckoo.read_body(&mut body).map_err(|_| incomplete(cuckoo.bytes(), body.len()))?;
            Ok(Restored::Cuckoo(cuckoo))
        }
        None => Err(ForeignError::damaged(
            "chunks of SCANDUMP",
            "a header and all chunks in their order",
            format!("{length} bytes of another length or content"),
        )),
    }
}

/// Returns whether bytes are chunks of `SCANDUMP`, one after the other.
#[must_use]
pub fn is_chunks(bytes: &[u8]) -> bool {
    chunks_of(bytes).is_some()
}

/// Returns the number of missing bytes, if these bytes are the header of a dump and too few of its
/// chunks.
#[must_use]
pub fn missing_behind_header(bytes: &[u8]) -> Option<u64> {
    let missing = |(header, body): (u64, u64)| {
        let more = header.checked_add(body)?.checked_sub(bytes.len() as u64)?;
        (more > 0 && header <= bytes.len() as u64).then_some(more)
    };
    bloom_lengths(bytes).and_then(missing).or_else(|| cuckoo_lengths(bytes).and_then(missing))
}

/// Tells header and body apart, if their lengths add up to that of the bytes.
fn chunks_of(bytes: &[u8]) -> Option<(Module, &[u8], &[u8])> {
    let fits = |(header, body): (u64, u64)| {
        (header.checked_add(body)? == bytes.len() as u64).then_some(header as usize)
    };
    let bloom = bloom_lengths(bytes).and_then(fits).map(|header| (Module::Bloom, header));
    let found = bloom
        .or_else(|| cuckoo_lengths(bytes).and_then(fits).map(|header| (Module::Cuckoo, header)));
    let (module, header) = found?;
    let (header, body) = bytes.split_at_checked(header)?;
    Some((module, header, body))
}

/// The lengths of header and body that the header of a Bloom filter says, if it may be one.
fn bloom_lengths(bytes: &[u8]) -> Option<(u64, u64)> {
    let links = u64::from(Decoder(bytes.get(8..)?).u32()?);
    let options = Decoder(bytes.get(12..)?).u32()?;
    if links == 0 || options > 15 {
        return None;
    }
    let header = BLOOM_HEADER as u64 + links * HEADER_OF_LINK as u64;
    let links = bytes.get(BLOOM_HEADER..usize::try_from(header).ok()?)?;
    let mut body = 0_u64;
    for link in links.chunks_exact(HEADER_OF_LINK) {
        let mut fields = Decoder(link);
        let (length, bits) = (fields.u64()?, fields.u64()?);
        if bits.div_ceil(8) > length {
            return None;
        }
        body = body.checked_add(length)?;
    }
    Some((header, body))
}

/// The lengths of header and body that the header of a cuckoo filter says, if it may be one.
fn cuckoo_lengths(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut fields = Decoder(bytes.get(..CUCKOO_HEADER)?);
    let (_items, buckets, _deletes, filters) =
        (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
    let (bucket_size, _iterations, expansion) = (fields.u16()?, fields.u16()?, fields.u16()?);
    let expected = buckets.is_power_of_two() && bucket_size > 0;
    if !expected || !(1..=MAX_FILTERS).contains(&filters) {
        return None;
    }
    let mut each = buckets.checked_mul(u64::from(bucket_size))?;
    let mut body = each;
    for _ in 1..filters {
        each = each.checked_mul(u64::from(expansion))?;
        body = body.checked_add(each)?;
    }
    Some((CUCKOO_HEADER as u64, body))
}

/// The most memory that a filter may take of which there are so many bytes.
pub(super) fn memory_for(length: u64) -> u64 {
    // Of the smallest array there is a byte; see `OVERHEAD`.
    length.saturating_mul(1 + super::OVERHEAD)
}

fn from_commands(
    module: Module,
    chunks: &[(u64, &[u8])],
    limit: u64,
) -> Result<Restored, ForeignError> {
    let Some(((1, header), chunks)) = chunks.split_first() else {
        return Err(ForeignError::damaged(
            "first chunk",
            "the header, with iterator 1",
            "another chunk",
        ));
    };
    // What the header says must be there before memory is taken for it.
    let there = chunks.iter().map(|(_, chunk)| chunk.len() as u64).sum::<u64>();
    let limit = limit.min(memory_for(there.max(1)));
    let wrong =
        |error: super::LoadError| ForeignError::damaged("chunk", "a chunk of this filter", error);
    let (restored, bytes) = match module {
        Module::Bloom => {
            let mut bloom = Bloom::from_header(header, limit)?;
            for (iterator, chunk) in chunks {
                bloom.load(*iterator, chunk).map_err(wrong)?;
            }
            let bytes = bloom.bytes();
            (Restored::Bloom(bloom), bytes)
        }
        Module::Cuckoo => {
            let mut cuckoo = cuckoo_of(header, limit)?;
            for (iterator, chunk) in chunks {
                cuckoo.load(*iterator, chunk).map_err(wrong)?;
            }
            let bytes = cuckoo.bytes();
            (Restored::Cuckoo(cuckoo), bytes)
        }
    };
    // Without one of its chunks, a filter would lack keys.
    if there != bytes || !cover(chunks, bytes) {
        return Err(incomplete(bytes, there));
    }
    Ok(restored)
}

/// Returns whether chunks fill all bytes: each ends just before its iterator.
fn cover(chunks: &[(u64, &[u8])], bytes: u64) -> bool {
    let mut ends: Vec<(u64, u64)> =
        chunks.iter().map(|(iterator, chunk)| (*iterator, chunk.len() as u64)).collect();
    ends.sort_unstable();
    let last = ends.iter().try_fold(1, |at, (end, length)| (at + length == *end).then_some(*end));
    last == Some(bytes + 1)
}

fn cuckoo_of(header: &[u8], limit: u64) -> Result<CuckooChain, ForeignError> {
    CuckooChain::from_header(header, limit).map_err(|error| match error {
        super::LoadError::CannotCreate(error) => error,
        other => ForeignError::damaged("header", "38 bytes", other),
    })
}

fn incomplete(expected: u64, got: impl ToString) -> ForeignError {
    ForeignError::damaged("chunks of the filter", format!("{expected} bytes, each once"), got)
}

impl Restored {
    /// Returns the Bloom filter, if it is one.
    #[must_use]
    pub fn as_bloom(&self) -> Option<&Bloom> {
        match self {
            Restored::Bloom(bloom) => Some(bloom),
            Restored::Cuckoo(_) => None,
        }
    }

    /// Returns the cuckoo filter, if it is one.
    #[must_use]
    pub fn as_cuckoo(&self) -> Option<&CuckooChain> {
        match self {
            Restored::Cuckoo(cuckoo) => Some(cuckoo),
            Restored::Bloom(_) => None,
        }
    }
}

impl<'a> payload::Dumped<'a> {
    /// The header of its dump, and the name of the command that loads it.
    pub(super) fn header(self) -> (Vec<u8>, &'static str) {
        match self {
            payload::Dumped::Bloom(bloom) => (bloom.header(), "BF.LOADCHUNK"),
            payload::Dumped::Cuckoo(cuckoo) => (cuckoo.header(), "CF.LOADCHUNK"),
        }
    }

    /// Writes all bytes that `SCANDUMP` gives in chunks.
    pub(super) fn write_body(self, writer: impl io::Write) -> io::Result<()> {
        match self {
            payload::Dumped::Bloom(bloom) => bloom.write_body(writer),
            payload::Dumped::Cuckoo(cuckoo) => cuckoo.write_body(writer),
        }
    }

    /// Whether a header can describe it: links of the oldest versions do not fill their last word.
    pub(super) fn has_whole_links(self) -> bool {
        match self {
            payload::Dumped::Bloom(bloom) => bloom.links().all(|link| link.bits == link.bytes * 8),
            payload::Dumped::Cuckoo(_) => true,
        }
    }

    /// The chunk at a position, and the next position.
    pub(super) fn chunk(self, position: u64) -> Option<(u64, &'a [u8])> {
        match self {
            payload::Dumped::Bloom(bloom) => bloom.chunk(position, super::CHUNK),
            payload::Dumped::Cuckoo(cuckoo) => cuckoo.chunk(position, super::CHUNK),
        }
    }
}
