//! LOADCHUNK: pieces of a filter in any order, which is there when all have come.

use super::key_of;
use crate::command::Call;
use crate::commands::{bloom, cuckoo};
use crate::keyspace::Created;
use crate::parse;
use crate::reply_error::ReplyError;
use crate::server::Server;
use crate::transfers::loading::{BAD_DATA, CANNOT_LOAD, Loading, NO_LINK, PIECE_APART, TOO_BIG};
use crate::value::Value;
use crate::value::bloom::Bloom;
use crate::value::dump_format::{self, Header};

/// BF.LOADCHUNK.
pub fn bloom_loadchunk(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let iterator = parse::integer(&call.arguments[2])
        .ok_or(ReplyError::new("ERR Second argument must be numeric"))?;
    let data = &call.arguments[3];
    match bloom::find(call)? {
        Some(entry) => changes_nothing(call.server, &entry.value, iterator, data)?,
        None if iterator == 1 || dump_format::is_header(iterator, data) => {
            call.server.transfers.abandon(key_of(call), None);
            let (loading, _room) = Loading::of_bloom(&call.server.loader(), data)?;
            call.server.transfers.begin(key_of(call), loading, call.now)?;
        }
        None => load_or_compare(call, iterator, data)?,
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
            let (loading, _room) = Loading::of_cuckoo(&call.server.loader(), data)?;
            call.server.transfers.begin(key_of(call), loading, call.now)?;
        }
        None => load_or_compare(call, position, data)?,
    }
    call.reply.ok();
    Ok(())
}

/// Takes a piece of a filter that is being loaded. If there is none by now, the filter may be there:
/// a client that got no reply in time sends its last piece again, while its first request completes
/// the filter.
fn load_or_compare(call: &Call<'_>, iterator: i64, data: &[u8]) -> Result<(), ReplyError> {
    let loaded = load(call, iterator, data);
    if loaded != Err(ReplyError::NOT_FOUND) {
        return loaded;
    }
    let entry = call.server.keyspace.get(key_of(call), call.now).ok_or(ReplyError::NOT_FOUND)?;
    if matches!(entry.value, Value::Cuckoo(_)) != is_cuckoo(call) {
        return Err(ReplyError::WRONG_TYPE);
    }
    changes_nothing(call.server, &entry.value, iterator, data)
}

fn is_cuckoo(call: &Call<'_>) -> bool {
    call.command.name.starts_with("cf.")
}

/// Takes a piece of a filter that is being loaded, and publishes it if it was the last one.
fn load(call: &Call<'_>, iterator: i64, data: &[u8]) -> Result<(), ReplyError> {
    let (key, server) = (key_of(call), call.server);
    let staged = server.transfers.staged(key, call.now).ok_or(ReplyError::NOT_FOUND)?;
    if staged.is_cuckoo != is_cuckoo(call) {
        return Err(ReplyError::WRONG_TYPE);
    }
    let mut loading = staged.loading.lock();
    let part = loading.as_mut().ok_or(ReplyError::NOT_FOUND)?;
    let room = server.limits.make_room(2 * PIECE_APART)?;
    part.load(iterator, data)?;
    let claimed = part.memory();
    staged.settle(claimed);
    drop(room);
    let Some(whole) = loading.take_if(|loading| loading.is_whole()) else { return Ok(()) };
    let adopted = whole.finish(&server.loader()).and_then(|value| {
        // It may take more than its bytes: a window counts with all its generations.
        let memory = value.memory();
        server.limits.check_filter(memory)?;
        let _room = server.limits.make_room(memory.saturating_sub(claimed))?;
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

/// Returns whether a piece of this length can have this iterator.
fn check_place(position: Option<u64>, length: u64, bytes: u64) -> Result<(), ReplyError> {
    match position {
        Some(position) if position > 0 && position >= length => {
            let start = (position - length).checked_sub(1).ok_or(NO_LINK)?;
            if start < bytes { Ok(()) } else { Err(NO_LINK) }
        }
        _ => Err(BAD_DATA),
    }
}

/// Returns whether the base of a filter has all these bits.
fn has(bloom: &Bloom, at: u64, data: &[u8]) -> bool {
    let bytes = bloom.base().bytes();
    if at.checked_add(data.len() as u64).is_none_or(|end| end > bytes) {
        return false;
    }
    let mut live = vec![0; data.len()];
    bloom.base().copy_to(at, &mut live);
    live.iter().zip(data).all(|(live, data)| data & !live == 0)
}
