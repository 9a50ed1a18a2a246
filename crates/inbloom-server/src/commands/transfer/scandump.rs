//! SCANDUMP: a filter piece by piece, while others add to it.

use std::sync::Arc;

use inbloom::interop::redisbloom::{self, CuckooChain};

use super::{PIECE, key_of};
use crate::command::Call;
use crate::commands::{bloom, cuckoo};
use crate::keyspace::Entry;
use crate::parse;
use crate::reply_error::ReplyError;
use crate::server::Server;
use crate::transfers::{Dump, KeptForDump, Which};
use crate::value::bloom::Bloom;
use crate::value::dump_format::{self, Header};
use crate::value::spec::not_made;
use crate::value::{Guarded, Value};

/// The dump that this iterator belongs to was forgotten, and cannot be made again.
const GONE: ReplyError =
    ReplyError::new("ERR the dump of this iterator is gone: begin again with iterator 0");

/// The dump of this iterator is not known.
const AMBIGUOUS: ReplyError = ReplyError::new(
    "ERR other connections are dumping this filter too: begin again with iterator 0, and use one \
     connection for the whole dump",
);

/// What is kept for the dump that a client goes on with.
fn kept_for(call: &Call<'_>, entry: &Arc<Entry>, id: u64) -> Which {
    call.server.transfers.dump(key_of(call), entry, id, call.session.client.id, call.now)
}

/// Keeps what a dump needs that the client begins.
fn keep(call: &Call<'_>, entry: &Arc<Entry>, stamp: u64, kept: KeptForDump) -> Arc<Dump> {
    let client = call.session.client.id;
    call.server.transfers.keep(key_of(call), entry, stamp, kept, client, call.now)
}

/// The copy of an earlier dump, if the filter has not changed since.
fn copy_again(call: &Call<'_>, entry: &Arc<Entry>, stamp: u64) -> Option<Arc<Dump>> {
    let client = call.session.client.id;
    call.server.transfers.again(key_of(call), entry, stamp, client, call.now)
}

/// BF.SCANDUMP.
pub fn bloom_scandump(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let entry = bloom::find(call)?.ok_or(ReplyError::NOT_FOUND)?;
    let iterator = parse::integer(&call.arguments[2])
        .ok_or(ReplyError::new("Second argument must be numeric"))?;
    let found = match u64::try_from(iterator) {
        Ok(0) => Some(bloom_header(call, &entry)?),
        Ok(iterator) => bloom_piece(call, &entry, iterator)?,
        Err(_) => None,
    };
    let (next, data) = found.unwrap_or_default();
    call.reply.array(2);
    call.reply.integer(next as i64);
    call.reply.bulk(&data);
    Ok(())
}

/// Begins a dump: the iterator of the header, and the header.
fn bloom_header(call: &Call<'_>, entry: &Arc<Entry>) -> Result<(u64, Vec<u8>), ReplyError> {
    let server = call.server;
    let stamp = entry.value.stamp();
    match &entry.value {
        Value::RedisBloom(guarded) => {
            copy_again(call, entry, stamp);
            let (header, bytes) = guarded.read(|bloom| (bloom.header(), bloom.bytes()));
            keep(call, entry, stamp, KeptForDump::Length(bytes));
            Ok((1, header))
        }
        // Its pieces are those of its base, whenever they are asked for.
        Value::Bloom(bloom) if bloom.rest().is_none() => {
            Ok((1, Header::of(bloom, &server.hasher, None).bytes().to_vec()))
        }
        value => {
            let dump = match copy_again(call, entry, stamp) {
                Some(dump) => dump,
                None => {
                    let (header, file) = file_of(server, value)?;
                    if !header.has_ids() {
                        let bytes = header.body();
                        let text = format!("ERR a filter of {bytes} bytes is too large to dump");
                        return Err(ReplyError::with(text));
                    }
                    keep(call, entry, stamp, KeptForDump::File(header, file))
                }
            };
            let KeptForDump::File(header, _) = &dump.kept else {
                unreachable!("it is kept as a file")
            };
            Ok((dump_format::iterator(dump.id, 1), header.bytes().to_vec()))
        }
    }
}

/// The header of a filter of ours that cannot be dumped as it is, and a copy as a file.
pub(super) fn file_of(server: &Server, value: &Value) -> Result<(Header, Vec<u8>), ReplyError> {
    let mut file = Vec::new();
    match value {
        Value::Bloom(bloom) => {
            let rest = bloom.rest().expect("one that has not grown is its base");
            // For a moment there is a copy of it, and the bytes of that.
            let _room = server.limits.make_room(2 * rest.bytes())?;
            let copy = rest.snapshot(server.hasher).map_err(ReplyError::because)?;
            write(&copy, &mut file)?;
            Ok((Header::of(bloom, &server.hasher, Some(&file)), file))
        }
        Value::Filter(guarded) => {
            let _room = server.limits.make_room(guarded.read(inbloom::Filter::bytes))?;
            guarded.for_long(|guarded| guarded.read(|filter| write(filter, &mut file)))?;
            guarded.check_origin()?;
            Ok((Header::of_file(&file), file))
        }
        Value::RedisBloom(_) | Value::Cuckoo(_) => unreachable!("they have a form of their own"),
    }
}

fn write(filter: &inbloom::Filter, file: &mut Vec<u8>) -> Result<(), ReplyError> {
    let bytes = filter.bytes() + 4096;
    let reserved = usize::try_from(bytes).is_ok_and(|bytes| file.try_reserve_exact(bytes).is_ok());
    if !reserved {
        let text =
            format!("ERR could not allocate {bytes} bytes of memory for a copy: free memory");
        return Err(ReplyError::with(text));
    }
    filter.write_to(file).map_err(ReplyError::because)
}

/// The piece at an iterator, and the next one; None at the end.
fn bloom_piece(
    call: &Call<'_>,
    entry: &Arc<Entry>,
    iterator: u64,
) -> Result<Option<(u64, Vec<u8>)>, ReplyError> {
    if let Value::RedisBloom(guarded) = &entry.value {
        // What it has grown by since the header is not in the header.
        let end = match kept_for(call, entry, 0) {
            Which::One(dump) => dump.kept.bytes_of_body(),
            Which::None => u64::MAX,
            Which::Several => return Err(AMBIGUOUS),
        };
        return Ok(guarded.read(|bloom| {
            let chunk = bloom.chunk(iterator, PIECE).filter(|_| iterator <= end);
            chunk.map(|(next, data)| (next, data.to_vec()))
        }));
    }
    let base = match &entry.value {
        Value::Bloom(bloom) => Some(bloom),
        _ => None,
    };
    // The base of a filter is as long as ever.
    let header = base.map(|bloom| Header::of(bloom, &call.server.hasher, None));
    let (id, place) = header.unwrap_or(Header::EMPTY).split(iterator);
    match header.filter(|_| id == 0) {
        Some(header) => Ok(our_piece(&header, base, &[], 0, place)),
        None => match kept_for(call, entry, id) {
            Which::One(dump) if id != 0 => match &dump.kept {
                KeptForDump::File(header, file) => Ok(our_piece(header, base, file, id, place)),
                _ => Err(GONE),
            },
            _ => Err(GONE),
        },
    }
}

/// Bytes of the body of our form, with their checksum.
fn our_piece(
    header: &Header,
    base: Option<&Bloom>,
    file: &[u8],
    id: u64,
    place: u64,
) -> Option<(u64, Vec<u8>)> {
    let at = place.checked_sub(1)?;
    let border = header.base_bytes();
    let end = if at < border { border } else { header.body() };
    let length = end.checked_sub(at)?.min(PIECE as u64) as usize;
    if length == 0 {
        return None;
    }
    let mut piece = Vec::with_capacity(length + 8);
    match base.filter(|_| at < border) {
        Some(bloom) => {
            piece.resize(length, 0);
            bloom.base().copy_to(at, &mut piece);
        }
        None => piece.extend_from_slice(&file[(at - border) as usize..][..length]),
    }
    dump_format::seal(&mut piece, header.identity, at);
    Some((dump_format::iterator(id, 1 + at + length as u64), piece))
}

/// CF.SCANDUMP.
pub fn cuckoo_scandump(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let position = parse::integer(&call.arguments[2]).and_then(|at| u64::try_from(at).ok());
    let position = position.ok_or(ReplyError::new("Invalid position"))?;
    let entry = cuckoo::find(call)?.ok_or(ReplyError::NOT_FOUND)?;
    let filter = cuckoo::cuckoo_of(&entry).expect("`find` refuses other types");
    let found = match position {
        0 => cuckoo_header(call, &entry, filter)?.map(|header| (1, header)),
        position => cuckoo_piece(call, &entry, filter, position)?,
    };
    call.reply.array(2);
    match found {
        Some((next, data)) => {
            call.reply.integer(next as i64);
            call.reply.bulk(&data);
        }
        None => {
            call.reply.integer(0);
            call.reply.null();
        }
    }
    Ok(())
}

/// Whether a filter goes into one piece, which is copied at one moment.
fn is_one_piece(cuckoo: &CuckooChain) -> bool {
    cuckoo.filters() == 1 && cuckoo.bytes() <= PIECE as u64
}

/// Begins a dump. None of an empty filter, as in RedisBloom, where it cannot be copied.
fn cuckoo_header(
    call: &Call<'_>,
    entry: &Arc<Entry>,
    filter: &Guarded<CuckooChain>,
) -> Result<Option<Vec<u8>>, ReplyError> {
    let stamp = entry.value.stamp();
    let again = copy_again(call, entry, stamp);
    if let Some(KeptForDump::Cuckoo(copy)) = again.as_ref().map(|dump| &dump.kept) {
        return Ok(Some(copy.header()));
    }
    let limit = call.server.limits.limit_for(0);
    let begin = |cuckoo: &CuckooChain| match cuckoo.items() {
        0 => Ok(None),
        _ if is_one_piece(cuckoo) => {
            Ok(Some((cuckoo.header(), KeptForDump::Length(cuckoo.bytes()))))
        }
        _ => copy_of(cuckoo, limit)
            .map(|copy| Some((copy.header(), KeptForDump::Cuckoo(Box::new(copy))))),
    };
    let begun = filter.for_long(|filter| filter.read(begin));
    let begun = begun.map_err(|error| match error {
        redisbloom::LoadError::CannotCreate(error) => not_made(&call.server.limits, &error),
        error => ReplyError::because(error),
    })?;
    Ok(begun.map(|(header, kept)| {
        keep(call, entry, stamp, kept);
        header
    }))
}

fn copy_of(cuckoo: &CuckooChain, limit: u64) -> Result<CuckooChain, redisbloom::LoadError> {
    let mut copy = CuckooChain::from_header(&cuckoo.header(), limit)?;
    let mut position = 1;
    while let Some((next, data)) = cuckoo.chunk(position, redisbloom::CHUNK) {
        copy.load(next, data)?;
        position = next;
    }
    Ok(copy)
}

fn cuckoo_piece(
    call: &Call<'_>,
    entry: &Arc<Entry>,
    filter: &Guarded<CuckooChain>,
    position: u64,
) -> Result<Option<(u64, Vec<u8>)>, ReplyError> {
    let owned = |(next, data): (u64, &[u8])| (next, data.to_vec());
    let kept = kept_for(call, entry, 0);
    let end = match &kept {
        Which::One(dump) => match &dump.kept {
            KeptForDump::Cuckoo(copy) => return Ok(copy.chunk(position, PIECE).map(owned)),
            kept => Some(kept.bytes_of_body()),
        },
        Which::None => None,
        // Of one that goes into one piece, all have the same.
        Which::Several if filter.read(is_one_piece) => None,
        Which::Several => return Err(AMBIGUOUS),
    };
    filter.read(|cuckoo| match end {
        Some(end) => Ok(cuckoo.chunk(position, PIECE).filter(|_| position <= end).map(owned)),
        None if cuckoo.items() == 0 => Ok(None),
        None if is_one_piece(cuckoo) => Ok(cuckoo.chunk(position, PIECE).map(owned)),
        None if position > cuckoo.bytes() => Ok(None),
        None => Err(GONE),
    })
}
