//! Filters on their way: SCANDUMP and LOADCHUNK, piece by piece, DUMP and RESTORE at once.
//!
//! **Forms.** Filters that are RedisBloom's (all of CF.*, and those of BF.* that came from it or
//! were reserved with KIND redisbloom) are dumped in its form, which it loads. Our own are dumped
//! in ours, drawn in `value/dump_format.rs`. LOADCHUNK and RESTORE take both, told apart by the first
//! bytes. In both forms iterator 0 gives a header with iterator 1; what comes with a later iterator
//! is a piece of the body that ends before byte iterator - 1 of it. A piece has at most a MiB.
//! (Iterators of our form may carry the number of a copy in addition.)
//!
//! **Dumping while others add.** No key that was acknowledged before iterator 0 was asked for is
//! missing from the copy. Where bits are only ever added (the base of our filters, RedisBloom's
//! Bloom filters) pieces are copied from the filter as it is, so that a dump takes no memory. They
//! may have keys that the header, which is older, does not count. Where entries move about (cuckoo
//! filters of more than one piece, what a filter of ours has grown by, filters of other kinds) a
//! copy is taken at iterator 0, which others that begin before the filter changes share. It is kept
//! until nobody has asked for a piece for a minute; if it is gone, that is an error and not an end.
//!
//! **Several dumps of one filter at once.** Each goes on with its own copy. In our own form the
//! number of the copy is a part of the iterators. In RedisBloom's form iterators are positions, which
//! RedisBloom reads, so that the connection tells which copy is meant. A client that goes on over
//! another connection is served if there is but one dump, and told to begin again otherwise.
//!
//! **Loading.** What arrives is out of sight until all of it has: pieces come in any order,
//! repeated, of any size. Then the filter is checked, and published if its name is still free. What
//! is not completed within ten minutes of its last piece is forgotten. (RedisBloom serves a filter
//! from its header on, and answers that keys are missing which have not arrived yet.) A piece for a
//! filter that is there is taken if it changes nothing, as it happens when a client repeats its
//! last one, and refused otherwise. (RedisBloom overwrites the bits.)

use std::sync::Arc;

use inbloom::interop::redisbloom::{self, Cuckoo, payload};
use xxhash_rust::xxh3::xxh3_64;

use super::{bloom, cuckoo};
use crate::command::{Call, Command, Cost, Flag, Keys, Request};
use crate::keyspace::{Created, Entry, Key};
use crate::limits::Room;
use crate::parse;
use crate::reply_error::ReplyError;
use crate::resp::Arguments;
use crate::server::Server;
use crate::session_state::SessionState;
use crate::transfers::loading::{
    BAD_DATA, CANNOT_LOAD, Loading, NO_LINK, Ours, PIECE_APART, TOO_BIG, no_memory,
};
use crate::transfers::{Dump, KeptForDump, Which};
use crate::value::bloom::Bloom;
use crate::value::dump_format::{self, Header};
use crate::value::spec::not_made;
use crate::value::{Guarded, Value};

/// The rows of DUMP and RESTORE; those of SCANDUMP and LOADCHUNK are with BF.* and CF.*.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "dump",
        arity: 2,
        flags: &[Flag::ReadOnly],
        categories: &["keyspace"],
        keys: Keys::ONE,
        summary: "Returns a filter as one string, for RESTORE",
        syntax: "key",
        group: "generic",
        complexity: "O(N) for the N bytes of the filter",
        handler: dump,
        cost: Cost::By(dump_is_heavy),
        ..Command::NONE
    },
    Command {
        name: "restore",
        arity: -4,
        flags: &[Flag::Write, Flag::DenyOom],
        is_restricted: true,
        categories: &["keyspace", "dangerous"],
        keys: Keys::ONE,
        summary: "Creates a filter from what DUMP has returned",
        syntax: "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
        group: "generic",
        complexity: "O(N) for the N bytes of the filter",
        handler: restore,
        cost: Cost::By(|request, _| {
            request.arguments.get(3).is_some_and(|data| data.len() > LARGE)
        }),
        ..Command::NONE
    },
];

/// The bytes of a piece. RedisBloom takes any size, and gives up to 16 MiB.
const PIECE: usize = 1 << 20;
/// To copy and check so many bytes takes about 100 microseconds.
const LARGE: usize = 256 << 10;
/// The longest string that Redis takes.
const LONGEST_STRING: u64 = 512 << 20;

/// A piece of a MiB takes some hundred microseconds to be copied, checked and replied. Of some
/// filters all is copied at the beginning.
pub fn dump_is_heavy(request: &Request<'_>, _: &SessionState) -> bool {
    request.entry.as_ref().is_some_and(|entry| entry.value.length() > LARGE as u64)
}

/// A large piece, or any that may be the last one of a filter which has to be read then.
pub fn load_is_heavy(request: &Request<'_>, session: &SessionState) -> bool {
    let key = Key { database: session.database, name: &request.arguments[1] };
    let staged = || request.server.transfers.staged(key, request.now);
    request.arguments[3].len() > LARGE
        || staged().is_some_and(|staged| staged.file_bytes > LARGE as u64)
}

fn key_of<'a>(call: &Call<'a>) -> Key<'a> {
    let name = call.arguments.get(1).expect("the table says that there is one");
    Key { database: call.session.database, name }
}

/// The dump that this iterator belongs to was forgotten, and cannot be made again.
const GONE: ReplyError = ReplyError::new(
    "ERR the dump that this iterator belongs to is gone: begin again with iterator 0",
);

/// It cannot be told which dump this iterator belongs to.
const AMBIGUOUS: ReplyError = ReplyError::new(
    "ERR several dumps of this filter began on other connections, and an iterator does not tell which \
     one is meant: begin again with iterator 0, and use one connection for the whole dump",
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
                        let text = format!("ERR {bytes} bytes are too many to be dumped");
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
fn file_of(server: &Server, value: &Value) -> Result<(Header, Vec<u8>), ReplyError> {
    let mut file = Vec::new();
    match value {
        Value::Bloom(bloom) => {
            let rest = bloom.rest().expect("one that has not grown is its base");
            // For a moment there is a copy of it, and the bytes of that.
            let _room = server.make_room(2 * rest.bytes())?;
            let copy = rest.snapshot(server.hasher).map_err(ReplyError::because)?;
            write(&copy, &mut file)?;
            Ok((Header::of(bloom, &server.hasher, Some(&file)), file))
        }
        Value::Filter(guarded) => {
            let _room = server.make_room(guarded.read(inbloom::Filter::bytes))?;
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
        let text = format!("ERR could not get {bytes} bytes of memory for a copy: free memory");
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
fn is_one_piece(cuckoo: &Cuckoo) -> bool {
    cuckoo.filters() == 1 && cuckoo.bytes() <= PIECE as u64
}

/// Begins a dump. None of an empty filter, as in RedisBloom, where it cannot be copied.
fn cuckoo_header(
    call: &Call<'_>,
    entry: &Arc<Entry>,
    filter: &Guarded<Cuckoo>,
) -> Result<Option<Vec<u8>>, ReplyError> {
    let stamp = entry.value.stamp();
    let again = copy_again(call, entry, stamp);
    if let Some(KeptForDump::Cuckoo(copy)) = again.as_ref().map(|dump| &dump.kept) {
        return Ok(Some(copy.header()));
    }
    let limit = call.server.limit_for(0);
    let begin = |cuckoo: &Cuckoo| match cuckoo.items() {
        0 => Ok(None),
        _ if is_one_piece(cuckoo) => {
            Ok(Some((cuckoo.header(), KeptForDump::Length(cuckoo.bytes()))))
        }
        _ => copy_of(cuckoo, limit)
            .map(|copy| Some((copy.header(), KeptForDump::Cuckoo(Box::new(copy))))),
    };
    let begun = filter.for_long(|filter| filter.read(begin));
    let begun = begun.map_err(|error| match error {
        redisbloom::LoadError::CannotCreate(error) => not_made(call.server, &error),
        error => ReplyError::because(error),
    })?;
    Ok(begun.map(|(header, kept)| {
        keep(call, entry, stamp, kept);
        header
    }))
}

fn copy_of(cuckoo: &Cuckoo, limit: u64) -> Result<Cuckoo, redisbloom::LoadError> {
    let mut copy = Cuckoo::from_header(&cuckoo.header(), limit)?;
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
    filter: &Guarded<Cuckoo>,
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

/// BF.LOADCHUNK.
pub fn bloom_loadchunk(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let iterator = parse::integer(&call.arguments[2])
        .ok_or(ReplyError::new("ERR Second argument must be numeric"))?;
    let data = &call.arguments[3];
    match bloom::find(call)? {
        Some(entry) => changes_nothing(call.server, &entry.value, iterator, data)?,
        None if iterator == 1 || dump_format::is_header(iterator, data) => {
            call.server.transfers.abandon(key_of(call), None);
            let (loading, _room) = Loading::of_bloom(call.server, data)?;
            call.server.transfers.begin(key_of(call), loading, call.now)?;
        }
        None => load(call, iterator, data)?,
    }
    call.reply.ok();
    Ok(())
}

/// CF.LOADCHUNK.
pub fn cuckoo_loadchunk(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let position = parse::integer(&call.arguments[2]).filter(|position| *position != 0);
    let position = position.ok_or(ReplyError::new("Invalid position"))?;
    let data = &call.arguments[3];
    match cuckoo::find(call)? {
        Some(_) if position == 1 => return Err(ReplyError::EXISTS),
        Some(entry) => changes_nothing(call.server, &entry.value, position, data)?,
        None if position == 1 => {
            call.server.transfers.abandon(key_of(call), None);
            let (loading, _room) = Loading::of_cuckoo(call.server, data)?;
            call.server.transfers.begin(key_of(call), loading, call.now)?;
        }
        None => load(call, position, data)?,
    }
    call.reply.ok();
    Ok(())
}

/// Takes a piece of a filter that is being loaded, and publishes it if it was the last one.
fn load(call: &Call<'_>, iterator: i64, data: &[u8]) -> Result<(), ReplyError> {
    let (key, server) = (key_of(call), call.server);
    let staged = server.transfers.staged(key, call.now).ok_or(ReplyError::NOT_FOUND)?;
    if staged.is_cuckoo != call.command.name.starts_with("cf.") {
        return Err(ReplyError::WRONG_TYPE);
    }
    let mut loading = staged.loading.lock();
    let part = loading.as_mut().ok_or(ReplyError::NOT_FOUND)?;
    let room = server.make_room(2 * PIECE_APART)?;
    part.load(iterator, data)?;
    let claimed = part.memory();
    staged.settle(claimed);
    drop(room);
    let Some(whole) = loading.take_if(|loading| loading.is_whole()) else { return Ok(()) };
    let adopted = whole.finish(server).and_then(|value| {
        // It may take more than its bytes: a window counts with all its generations.
        let memory = value.memory();
        server.check_filter(memory)?;
        let _room = server.make_room(memory.saturating_sub(claimed))?;
        server.adopt(key, value, None, call.now)
    });
    let published = adopted.and_then(|created| match created {
        Created::New(_) => Ok(()),
        Created::Taken(..) => Err(ReplyError::EXISTS),
    });
    drop(loading);
    server.transfers.abandon(key, Some(&staged));
    published
}

/// Sees whether a piece is one of a filter that is there, and in it already. RedisBloom's checks
/// come first, with its texts.
fn changes_nothing(
    server: &Server,
    value: &Value,
    iterator: i64,
    data: &[u8],
) -> Result<(), ReplyError> {
    let length = data.len() as u64;
    let position = u64::try_from(iterator);
    let is_there = match value {
        Value::Bloom(bloom) => {
            let header = Header::of(bloom, &server.hasher, None);
            let place = position.ok().map(|position| header.split(position).1);
            if let Some((at, data)) =
                place.and_then(|at| dump_format::open(header.identity, at, data))
            {
                has(bloom, at, data)
            } else {
                check_place(place, length, bloom.bytes())?;
                false
            }
        }
        Value::Filter(_) => {
            let place = position.ok().map(|position| Header::EMPTY.split(position).1);
            check_place(place, length, value.length())?;
            false
        }
        Value::RedisBloom(guarded) => guarded.read(|bloom| {
            check_place(position.ok(), length, bloom.bytes())?;
            let start = iterator as u64 - length;
            match bloom.chunk(start, data.len().max(1)) {
                None => Err(NO_LINK),
                Some((_, found)) if found.len() < data.len() => Err(TOO_BIG),
                Some((_, found)) => Ok(found.starts_with(data)),
            }
        })?,
        Value::Cuckoo(guarded) => guarded.read(|cuckoo| {
            let start = position.ok().and_then(|at| at.checked_sub(length)).filter(|_| length > 0);
            let found = start.and_then(|start| cuckoo.chunk(start, data.len()));
            let found = found.filter(|(_, found)| found.len() == data.len());
            found.map(|(_, found)| found == data).ok_or(CANNOT_LOAD)
        })?,
    };
    if is_there { Ok(()) } else { Err(ReplyError::EXISTS) }
}

/// Whether a piece of this length can have this iterator.
fn check_place(position: Option<u64>, length: u64, bytes: u64) -> Result<(), ReplyError> {
    match position {
        Some(position) if position > 0 && position >= length => {
            let start = (position - length).checked_sub(1).ok_or(NO_LINK)?;
            if start < bytes { Ok(()) } else { Err(NO_LINK) }
        }
        _ => Err(BAD_DATA),
    }
}

/// Whether the base of a filter has all these bits.
fn has(bloom: &Bloom, at: u64, data: &[u8]) -> bool {
    let bytes = bloom.base().bytes();
    if at.checked_add(data.len() as u64).is_none_or(|end| end > bytes) {
        return false;
    }
    let mut live = vec![0; data.len()];
    bloom.base().copy_to(at, &mut live);
    live.iter().zip(data).all(|(live, data)| data & !live == 0)
}

fn dump(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let Some(entry) = call.entry.clone() else {
        call.reply.null();
        return Ok(());
    };
    let (server, bytes) = (call.server, entry.value.length());
    let remedy = match &entry.value {
        Value::Cuckoo(_) => "CF.SCANDUMP and CF.LOADCHUNK",
        _ => "BF.SCANDUMP and BF.LOADCHUNK",
    };
    // RESTORE takes what DUMP gives: an argument, with the others of its request.
    let settings = server.settings();
    let most = settings.max_argument.min(settings.max_request.saturating_sub(PIECE)) as u64;
    let most = most.min(LONGEST_STRING);
    let too_long = |bytes: u64| {
        ReplyError::with(format!(
            "ERR a dump of the filter takes {bytes} bytes, and RESTORE takes at most {most} in one \
             argument: raise --max-argument and --max-request, or use {remedy}"
        ))
    };
    if bytes > most {
        return Err(too_long(bytes));
    }
    let _room = server.make_room(bytes)?;
    let payload = match &entry.value {
        Value::RedisBloom(guarded) => {
            guarded.for_long(|it| it.read(|bloom| payload::encode(bloom)))
        }
        Value::Cuckoo(guarded) => guarded.for_long(|it| it.read(|cuckoo| payload::encode(cuckoo))),
        value => Ok(our_payload(server, value)?),
    };
    let payload = payload.map_err(ReplyError::because)?;
    if payload.len() as u64 > most {
        return Err(too_long(payload.len() as u64));
    }
    call.reply.bulk(&payload);
    Ok(())
}

/// The header, the body, and a checksum of both.
fn our_payload(server: &Server, value: &Value) -> Result<Vec<u8>, ReplyError> {
    let (header, base, file) = match value {
        Value::Bloom(bloom) if bloom.rest().is_none() => {
            (Header::of(bloom, &server.hasher, None), Some(bloom), Vec::new())
        }
        Value::Bloom(bloom) => {
            let (header, file) = file_of(server, value)?;
            (header, Some(bloom), file)
        }
        value => {
            let (header, file) = file_of(server, value)?;
            (header, None, file)
        }
    };
    // Beside the payload, for which there is room.
    let _room = server.make_room(file.len() as u64)?;
    let mut payload = header.bytes().to_vec();
    if let Some(bloom) = base {
        let start = payload.len();
        payload.resize(start + header.base_bytes() as usize, 0);
        bloom.base().copy_to(0, &mut payload[start..]);
    }
    payload.extend_from_slice(&file);
    payload.extend(xxh3_64(&payload).to_le_bytes());
    Ok(payload)
}

fn restore(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let options = Restore::parse(call.arguments.skip(4))?;
    let key = key_of(call);
    const BUSY: ReplyError = ReplyError::new("BUSYKEY Target key name already exists.");
    if !options.replaces && call.entry.is_some() {
        return Err(BUSY);
    }
    let ttl = parse::integer(&call.arguments[2]).ok_or(ReplyError::NOT_AN_INTEGER)?;
    let negative = ReplyError::new("ERR Invalid TTL value, must be >= 0");
    let ttl = u64::try_from(ttl).map_err(|_| negative)?;
    let (value, _room) = value_of(call.server, &call.arguments[3])?;
    let expires = match ttl {
        0 => None,
        ttl if options.is_absolute => Some(ttl),
        ttl => Some(call.now.saturating_add(ttl).min(i64::MAX as u64)),
    };
    if expires.is_some_and(|at| at <= call.now) {
        // It has expired on the way: as if it had been restored in time.
        if options.replaces {
            call.server.keyspace.remove(key, call.now);
        }
        call.reply.ok();
        return Ok(());
    }
    if options.replaces {
        call.server.adopt_instead(key, value, expires)?;
    } else if let Created::Taken(..) = call.server.adopt(key, value, expires, call.now)? {
        return Err(BUSY);
    }
    call.reply.ok();
    Ok(())
}

/// The options of RESTORE. How long the key was idle and how often it was used is checked, and of
/// no use here, where nothing is evicted.
#[derive(Default)]
struct Restore {
    replaces: bool,
    is_absolute: bool,
}

impl Restore {
    fn parse(words: Arguments<'_>) -> Result<Restore, ReplyError> {
        let mut options = Restore::default();
        let (mut idle, mut frequency) = (false, false);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if parse::is(word, "REPLACE") {
                options.replaces = true;
            } else if parse::is(word, "ABSTTL") {
                options.is_absolute = true;
            } else if parse::is(word, "IDLETIME") && !frequency {
                let value = parse::integer(words.next().ok_or(ReplyError::SYNTAX)?);
                if value.ok_or(ReplyError::NOT_AN_INTEGER)? < 0 {
                    return Err(ReplyError::new("ERR Invalid IDLETIME value, must be >= 0"));
                }
                idle = true;
            } else if parse::is(word, "FREQ") && !idle {
                let value = parse::integer(words.next().ok_or(ReplyError::SYNTAX)?);
                if !(0..=255).contains(&value.ok_or(ReplyError::NOT_AN_INTEGER)?) {
                    let text = "ERR Invalid FREQ value, must be >= 0 and <= 255";
                    return Err(ReplyError::new(text));
                }
                frequency = true;
            } else {
                return Err(ReplyError::SYNTAX);
            }
        }
        Ok(options)
    }
}

/// A filter whose size is known only now that it is there: it has its bytes, or is dropped.
fn granted(server: &Server, value: Value) -> Result<(Value, Room), ReplyError> {
    let room = server.make_room_for_filter(value.memory())?;
    Ok((value, room))
}

/// The filter of a payload, ours or RedisBloom's.
fn value_of(server: &Server, payload: &[u8]) -> Result<(Value, Room), ReplyError> {
    const WRONG: ReplyError = ReplyError::new("ERR DUMP payload version or checksum are wrong");
    if payload.starts_with(&dump_format::MAGIC) {
        let (content, sum) = payload.split_last_chunk::<8>().ok_or(WRONG)?;
        if xxh3_64(content) != u64::from_le_bytes(*sum) {
            return Err(WRONG);
        }
        let (header, body) = content.split_at_checked(dump_format::HEADER).ok_or(WRONG)?;
        let header = Header::parse(header)?;
        if header.body() != body.len() as u64 {
            let (expected, got) = (header.body(), body.len());
            return Err(dump_format::bad(format_args!(
                "a body of {got} bytes, expected {expected}"
            )));
        }
        let (mut ours, room) = Ours::new(server, header)?;
        ours.put(0, body)?;
        let value = ours.finish(server)?;
        // A window counts with all its generations, of which the body has only those that exist.
        drop(room);
        return granted(server, value);
    }
    match payload::decode(payload, server.limit_for(0)) {
        Ok(payload::Restored::Bloom(bloom)) => granted(server, Value::redisbloom(bloom)),
        Ok(payload::Restored::Cuckoo(cuckoo)) => granted(server, Value::cuckoo(cuckoo)),
        Err(error) if no_memory(&error) => Err(not_made(server, &error)),
        Err(redisbloom::Error::Damaged { what: "checksum" | "payload", .. }) => Err(WRONG),
        Err(error @ redisbloom::Error::NewerEncoding { .. }) => Err(ReplyError::because(error)),
        Err(_) => Err(ReplyError::new("ERR Bad data format")),
    }
}
