//! DUMP and RESTORE: a filter as one string.

use inbloom::interop::redisbloom::{self, payload};
use xxhash_rust::xxh3::xxh3_64;

use super::scandump::file_of;
use super::{PIECE, key_of};
use crate::command::Call;
use crate::keyspace::Created;
use crate::limits::Room;
use crate::parse;
use crate::reply_error::ReplyError;
use crate::resp::Arguments;
use crate::server::Server;
use crate::transfers::loading::{Ours, no_memory};
use crate::value::Value;
use crate::value::dump_format::{self, Header};
use crate::value::spec::not_made;

/// The longest string that Redis takes.
const LONGEST_STRING: u64 = 512 << 20;

pub(super) fn dump(call: &mut Call<'_>) -> Result<(), ReplyError> {
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
            "ERR a dump of the filter takes {bytes} bytes, and the limit of RESTORE is {most}: \
             raise --max-argument and --max-request, or use {remedy}"
        ))
    };
    if bytes > most {
        return Err(too_long(bytes));
    }
    let _room = server.limits.make_room(bytes)?;
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
    let _room = server.limits.make_room(file.len() as u64)?;
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

pub(super) fn restore(call: &mut Call<'_>) -> Result<(), ReplyError> {
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
    let room = server.limits.make_room_for_filter(value.memory())?;
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
        let (mut ours, room) = Ours::new(&server.loader(), header)?;
        ours.put(0, body)?;
        let value = ours.finish(&server.loader())?;
        // A window counts with all its generations, of which the body has only those that exist.
        drop(room);
        return granted(server, value);
    }
    match payload::decode(payload, server.limits.limit_for(0)) {
        Ok(payload::Restored::Bloom(bloom)) => granted(server, Value::redisbloom(bloom)),
        Ok(payload::Restored::Cuckoo(cuckoo)) => granted(server, Value::cuckoo(cuckoo)),
        Err(error) if no_memory(&error) => Err(not_made(&server.limits, &error)),
        Err(redisbloom::ForeignError::Damaged { what: "checksum" | "payload", .. }) => Err(WRONG),
        Err(error @ redisbloom::ForeignError::NewerEncoding { .. }) => {
            Err(ReplyError::because(error))
        }
        Err(_) => Err(ReplyError::new("ERR Bad data format")),
    }
}
