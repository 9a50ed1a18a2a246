//! A filter that arrives piece by piece: in any order, repeated, of any size.

use std::collections::BTreeMap;
use std::io::{self, Read};

use inbloom::internals::kinds::blocked::SharedBlocked;
use inbloom::internals::kinds::scalable::SharedScalable;
use inbloom::interop::redisbloom::{self, CuckooChain, LoadError};
use inbloom::{Filter, Hasher, OpenOptions, SecretKey};

use super::Transfers;
use super::interval_set::IntervalSet;
use crate::limits::{MemoryLimits, Room};
use crate::reply_error::ReplyError;
use crate::value::Value;
use crate::value::bloom::Bloom;
use crate::value::dump_format::{self, Header, bad};
use crate::value::spec::not_made;

/// Pieces of one filter that are kept apart. As SCANDUMP gives them, they are 64 GiB.
pub const MOST_PIECES: usize = 1 << 16;

/// What filters are loaded with.
pub struct Loader<'a> {
    /// The memory that they may take.
    pub limits: &'a MemoryLimits,
    /// The hash of all filters made here.
    pub hasher: &'a Hasher,
    /// The secret under which it hashes.
    pub key: Option<&'a SecretKey>,
    /// What else is under way.
    pub transfers: &'a Transfers,
}

/// What has arrived so far.
pub enum Loading {
    /// A dump of ours.
    Ours(Box<Ours>),
    /// A dump of BF.SCANDUMP from RedisBloom, and which bytes of it are there.
    RedisBloom(Box<redisbloom::Bloom>, IntervalSet),
    /// A dump of CF.SCANDUMP.
    Cuckoo(Box<CuckooChain>, IntervalSet),
}

/// A dump of ours.
pub struct Ours {
    header: Header,
    base: Option<SharedBlocked>,
    of_base: IntervalSet,
    of_file: IntervalSet,
    /// The file, as it came: memory is taken only for bytes that have arrived.
    pieces: BTreeMap<u64, Box<[u8]>>,
}

impl Loading {
    /// What a header of BF.* describes, without its body.
    pub fn of_bloom(loader: &Loader<'_>, header: &[u8]) -> Result<(Loading, Room), ReplyError> {
        if header.starts_with(&dump_format::MAGIC) {
            let (ours, room) = Ours::new(loader, Header::parse(header)?)?;
            return Ok((Loading::Ours(Box::new(ours)), room));
        }
        let bloom = redisbloom::Bloom::from_header(header, loader.limits.limit_for(0)).map_err(
            |error| if no_memory(&error) { not_made(loader.limits, &error) } else { BAD_DATA },
        )?;
        Loading::RedisBloom(Box::new(bloom), IntervalSet::default()).granted(loader)
    }

    /// What a header of CF.* describes, without its body.
    pub fn of_cuckoo(loader: &Loader<'_>, header: &[u8]) -> Result<(Loading, Room), ReplyError> {
        let cuckoo =
            CuckooChain::from_header(header, loader.limits.limit_for(0)).map_err(|error| {
                match error {
                    LoadError::CannotCreate(error) if no_memory(&error) => {
                        not_made(loader.limits, &error)
                    }
                    LoadError::CannotCreate(_) => ReplyError::new("Couldn't create filter!"),
                    _ => ReplyError::new("Invalid header"),
                }
            })?;
        Loading::Cuckoo(Box::new(cuckoo), IntervalSet::default()).granted(loader)
    }

    /// Whether it may have the bytes that it turned out to need.
    fn granted(self, loader: &Loader<'_>) -> Result<(Loading, Room), ReplyError> {
        let room = loader.limits.make_room_for_filter(self.memory())?;
        Ok((self, room))
    }

    /// Whether it is one of CF.*.
    pub fn is_cuckoo(&self) -> bool {
        matches!(self, Loading::Cuckoo(..))
    }

    /// The memory that it takes when it is whole, in bytes: its own, what each array of RedisBloom's
    /// needs beside, of which there may be thousands of a byte, and the pieces that are kept apart now.
    pub fn memory(&self) -> u64 {
        let (arrays, pieces) = match self {
            Loading::Ours(ours) => {
                (0, ours.of_base.count() + ours.of_file.count() + ours.pieces.len())
            }
            Loading::RedisBloom(bloom, ranges) => (bloom.links().len() as u64, ranges.count()),
            Loading::Cuckoo(cuckoo, ranges) => (cuckoo.filters(), ranges.count()),
        };
        self.bytes() + arrays * redisbloom::OVERHEAD + pieces as u64 * PIECE_APART
    }

    /// The bytes that are to arrive.
    fn bytes(&self) -> u64 {
        match self {
            Loading::Ours(ours) => ours.header.body(),
            Loading::RedisBloom(bloom, _) => bloom.bytes(),
            Loading::Cuckoo(cuckoo, _) => cuckoo.bytes(),
        }
    }

    /// The bytes that have to be looked through once more when the last has arrived, or written to disk.
    pub fn file_bytes(&self) -> u64 {
        match self {
            Loading::Ours(ours) => ours.header.file,
            Loading::RedisBloom(..) | Loading::Cuckoo(..) => self.bytes(),
        }
    }

    /// Takes a piece, as SCANDUMP gave it with its iterator.
    pub fn load(&mut self, iterator: i64, data: &[u8]) -> Result<(), ReplyError> {
        let position = u64::try_from(iterator);
        match self {
            Loading::Ours(ours) => {
                let position = position.map_err(|_| BAD_DATA)?;
                let (_, place) = ours.header.split(position);
                let found = dump_format::open(ours.header.identity, place, data);
                let (start, data) = found.ok_or(BAD_DATA)?;
                ours.put(start, data)
            }
            Loading::RedisBloom(bloom, ranges) => {
                let position = position.map_err(|_| BAD_DATA)?;
                bloom.load(position, data).map_err(|error| bloom_refused(&error))?;
                let end = position - 1;
                ranges.add(end - data.len() as u64..end).map(drop)
            }
            Loading::Cuckoo(cuckoo, ranges) => {
                let position = position.map_err(|_| CANNOT_LOAD)?;
                cuckoo.load(position, data).map_err(|_| CANNOT_LOAD)?;
                let end = position - 1;
                ranges.add(end - data.len() as u64..end).map(drop)
            }
        }
    }

    /// Whether every byte is there.
    pub fn is_whole(&self) -> bool {
        let covered = match self {
            Loading::Ours(ours) => ours.of_base.covered() + ours.of_file.covered(),
            Loading::RedisBloom(_, ranges) | Loading::Cuckoo(_, ranges) => ranges.covered(),
        };
        covered == self.bytes()
    }

    /// The filter, once it is whole.
    pub fn finish(self, loader: &Loader<'_>) -> Result<Value, ReplyError> {
        match self {
            Loading::Ours(ours) => ours.finish(loader),
            Loading::RedisBloom(bloom, _) => Ok(Value::redisbloom(*bloom)),
            Loading::Cuckoo(cuckoo, _) => Ok(Value::cuckoo(*cuckoo)),
        }
    }
}

/// What a piece that is kept apart takes beside its bytes: its place in a tree, which is half full, and
/// an allocation of its own.
pub const PIECE_APART: u64 = 96;

/// The piece is not one of this dump.
pub const BAD_DATA: ReplyError = ReplyError::new("ERR received bad data");
/// No part of the filter is there.
pub const NO_LINK: ReplyError = ReplyError::new("ERR invalid offset - no link found");
/// It goes beyond a part of the filter.
pub const TOO_BIG: ReplyError = ReplyError::new("ERR invalid chunk - Too big for current filter");

/// Whether a filter was not made because there is no memory for it.
pub fn no_memory(error: &redisbloom::ForeignError) -> bool {
    matches!(
        error,
        redisbloom::ForeignError::Limit { .. } | redisbloom::ForeignError::Memory { .. }
    )
}

/// No piece of CF.* fits there.
pub const CANNOT_LOAD: ReplyError = ReplyError::new("Couldn't load chunk!");

/// As BF.LOADCHUNK of RedisBloom words it.
fn bloom_refused(error: &LoadError) -> ReplyError {
    match error {
        LoadError::NoLink { .. } => NO_LINK,
        LoadError::TooBig { .. } => TOO_BIG,
        _ => BAD_DATA,
    }
}

impl Ours {
    /// What a header describes. There has to be memory for all of it, although nothing of the file
    /// is taken yet.
    pub fn new(loader: &Loader<'_>, header: Header) -> Result<(Ours, Room), ReplyError> {
        let room = loader.limits.make_room_for_filter(header.body())?;
        let base = match &header.base {
            Some(base) => {
                if !base.is_under(loader.hasher) {
                    return Err(OTHER_HASH);
                }
                let shape = loader.transfers.shape(base.capacity, base.rate)?;
                if !base.is_of(shape.plan()) {
                    return Err(bad(
                        "a filter of another size than this inbloom plans for this capacity and rate",
                    ));
                }
                Some(SharedBlocked::new(&shape).map_err(ReplyError::because)?)
            }
            None => None,
        };
        let (of_base, of_file) = Default::default();
        Ok((Ours { header, base, of_base, of_file, pieces: BTreeMap::new() }, room))
    }

    /// Takes bytes of the body, from `start` on.
    pub fn put(&mut self, start: u64, data: &[u8]) -> Result<(), ReplyError> {
        let end = start.checked_add(data.len() as u64).filter(|end| *end <= self.header.body());
        let end = end.ok_or(NO_LINK)?;
        let border = self.header.base_bytes();
        let (of_base, of_file) = data.split_at(border.clamp(start, end) as usize - start as usize);
        if let Some(base) = self.base.as_ref().filter(|_| !of_base.is_empty()) {
            base.or_from(start, of_base).map_err(bad)?;
            self.of_base.add(start..start + of_base.len() as u64)?;
        }
        if !of_file.is_empty() {
            let first = start.max(border) - border;
            self.put_file(first, of_file)?;
        }
        Ok(())
    }

    fn put_file(&mut self, first: u64, data: &[u8]) -> Result<(), ReplyError> {
        if self.pieces.len() >= MOST_PIECES {
            return Err(ReplyError::with(format!(
                "ERR more than {MOST_PIECES} chunks: load them as SCANDUMP returns them"
            )));
        }
        for gap in self.of_file.add(first..first + data.len() as u64)? {
            let part = &data[(gap.start - first) as usize..(gap.end - first) as usize];
            self.pieces.insert(gap.start, part.into());
        }
        Ok(())
    }

    /// The filter, once every byte has arrived.
    pub fn finish(self, loader: &Loader<'_>) -> Result<Value, ReplyError> {
        let filter = match self.header.file {
            0 => None,
            _ => Some(read(loader, self.pieces)?),
        };
        match (self.header.base.zip(self.base), filter) {
            (Some((header, base)), rest) => {
                let rest = rest.map(|rest| self::rest(loader, rest)).transpose()?;
                let (items, expansion) = (header.items, header.expansion);
                let bloom = Bloom::from_parts(base, rest, items, expansion).map_err(bad)?;
                Ok(Value::Bloom(bloom))
            }
            // Each filter names its hash, and any will do, but not where keys are to be kept from
            // being crafted.
            (None, Some(filter)) if loader.key.is_some() && *filter.hasher() != *loader.hasher => {
                Err(OTHER_HASH)
            }
            (None, Some(filter)) => Ok(Value::filter(filter)),
            (None, None) => unreachable!("a header without both is refused"),
        }
    }
}

/// The bits say nothing under another hash.
const OTHER_HASH: ReplyError = ReplyError::new(
    "ERR received bad data: its keys have another hash than those of this server: load it where it \
     was dumped, or start this server with the same --keyed and --key-file",
);

/// What a filter has grown by beyond its base.
fn rest(loader: &Loader<'_>, filter: Filter) -> Result<SharedScalable, ReplyError> {
    if *filter.hasher() != *loader.hasher {
        return Err(OTHER_HASH);
    }
    SharedScalable::from_filter(filter).map_err(bad)
}

/// Reads the file, of which every piece is freed as soon as it is read.
fn read(loader: &Loader<'_>, pieces: BTreeMap<u64, Box<[u8]>>) -> Result<Filter, ReplyError> {
    let mut reader = Pieces { rest: pieces.into_values(), piece: Box::default(), at: 0 };
    let options = OpenOptions::new().secret(loader.key);
    let filter = options.read_from(&mut reader).map_err(|error| match error {
        inbloom::Error::Key { .. } => OTHER_HASH,
        error => bad(error),
    })?;
    match reader.read(&mut [0]) {
        Ok(0) => Ok(filter),
        _ => Err(bad("more bytes after the end of the file")),
    }
}

/// Pieces that follow each other.
struct Pieces<I> {
    rest: I,
    piece: Box<[u8]>,
    at: usize,
}

impl<I: Iterator<Item = Box<[u8]>>> Read for Pieces<I> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            let Some(next) = self.rest.next() else { return Ok(0) };
            (self.piece, self.at) = (next, 0);
        }
        let count = (&self.piece[self.at..]).read(out)?;
        self.at += count;
        Ok(count)
    }
}
