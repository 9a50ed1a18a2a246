//! RDB files: the snapshot of a whole server, of which only the filters of RedisBloom are taken.
//!
//! A file is `REDIS` and four digits of version, then one thing after the other, each after a byte
//! that says what it is: a value's type (a key and the value follow), or from [`FIRST_OPCODE`] on
//! something about the keys that follow. `ff` ends the file; from version 5 on the CRC-64 of all that
//! follows it, or eight zero bytes where the server does not compute it.
//!
//! Values of other types have no length that would tell where they end, so each type must be known to
//! be passed over. Known are those of Redis 1 to 8.2 and Valkey 8. Nothing is copied but the names.
//!
//! Sources: Redis' and Valkey's own rdb.h and rdb.c under their BSD license (up to Redis 7.2), and
//! redis/librdb for the types of Redis 7.4 and 8.

use super::error::ForeignError;
use super::payload::{Module, Reader, crc64, module_of};
use super::stored::{Source, Stored};
use crate::codec::Decoder;

const MAGIC: &[u8] = b"REDIS";
/// From this version on there is a checksum.
const CHECKSUM_SINCE: u32 = 5;

const FIRST_OPCODE: u8 = 240;
const SLOT_INFO: u8 = 244;
const FUNCTION: u8 = 245;
const MODULE_AUX: u8 = 247;
const IDLE: u8 = 248;
const FREQUENCY: u8 = 249;
const AUX: u8 = 250;
const RESIZE_DB: u8 = 251;
const EXPIRES_MS: u8 = 252;
const EXPIRES: u8 = 253;
const SELECT_DB: u8 = 254;
const END: u8 = 255;

/// Returns whether bytes look like an RDB file.
pub(super) fn is_rdb(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Returns the filters of a file, and what is behind its end: nothing, or in an append-only file the
/// commands since.
pub(super) fn filters(file: &[u8]) -> Result<(Vec<Stored<'_>>, &[u8]), ForeignError> {
    let mut reader = Reader(Decoder(file));
    let magic = reader.take(MAGIC.len() as u64)?;
    if magic != MAGIC {
        return Err(ForeignError::damaged("start of the file", "REDIS", magic.escape_ascii()));
    }
    let digits = reader.take(4)?;
    let version = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u32>().ok());
    let Some(version) = version else {
        return Err(ForeignError::damaged("RDB version", "four digits", digits.escape_ascii()));
    };
    let mut database = 0;
    let mut found = Vec::new();
    loop {
        match reader.u8()? {
            END => break,
            SELECT_DB => database = reader.length()?,
            EXPIRES => reader.take(4).map(drop)?,
            EXPIRES_MS => reader.take(8).map(drop)?,
            RESIZE_DB => skip_lengths(&mut reader, 2)?,
            AUX => skip_texts(&mut reader, 2)?,
            FREQUENCY => reader.take(1).map(drop)?,
            IDLE => skip_lengths(&mut reader, 1)?,
            MODULE_AUX => {
                reader.length()?;
                reader.skip_fields()?;
            }
            FUNCTION => skip_texts(&mut reader, 1)?,
            SLOT_INFO => skip_lengths(&mut reader, 3)?,
            opcode @ FIRST_OPCODE.. => {
                return Err(ForeignError::UnknownType { kind: opcode, key: String::new() });
            }
            kind => {
                let name = reader.text()?;
                match module_value(&mut reader, kind)? {
                    Some((module, value)) => {
                        let source = Source::Value(module, value);
                        found.push(Stored { database, name: name.to_vec()?, source });
                    }
                    None if skip_value(&mut reader, kind)? => {}
                    None => {
                        let key = name.to_vec()?.escape_ascii().to_string();
                        return Err(ForeignError::UnknownType { kind, key });
                    }
                }
            }
        }
    }
    if version >= CHECKSUM_SINCE {
        let checked = &file[..file.len() - reader.0.0.len()];
        let sum = reader.0.u64().ok_or_else(|| super::payload::short("a checksum"))?;
        let expected = crc64(checked);
        // A server can be configured not to compute it.
        if sum != 0 && sum != expected {
            return Err(ForeignError::damaged(
                "checksum of the RDB file",
                format!("{expected:016x}"),
                format!("{sum:016x}"),
            ));
        }
    }
    Ok((found, reader.0.0))
}

const MODULE_2: u8 = 7;

/// Reads over the value of a module. Returns it, from the module on, if it is a filter.
fn module_value<'a>(
    reader: &mut Reader<'a>,
    kind: u8,
) -> Result<Option<(Module, &'a [u8])>, ForeignError> {
    if kind != MODULE_2 {
        return Ok(None);
    }
    let start = reader.0.0;
    let (module, _encoding) = module_of(reader.length()?);
    reader.skip_fields()?;
    let value = &start[..start.len() - reader.0.0.len()];
    Ok(module.map(|module| (module, value)))
}

/// Reads over a value that is no filter. False if the type is not known.
fn skip_value(reader: &mut Reader<'_>, kind: u8) -> Result<bool, ForeignError> {
    match kind {
        // A string, or a small collection in one: zipmap, ziplist, intset, listpack.
        0 | 9..=13 | 16 | 17 | 20 | 23 => skip_texts(reader, 1)?,
        // A list, a set, a list of ziplists.
        1 | 2 | 14 => {
            let count = reader.length()?;
            skip_texts(reader, count)?;
        }
        // A sorted set, with scores as text.
        3 => {
            for _ in 0..reader.length()? {
                skip_texts(reader, 1)?;
                match reader.u8()? {
                    // Not a number and the infinities have no text.
                    253..=255 => {}
                    length => reader.take(length.into()).map(drop)?,
                }
            }
        }
        // A hash.
        4 => {
            for _ in 0..reader.length()? {
                skip_texts(reader, 2)?;
            }
        }
        // A sorted set, with scores in binary.
        5 => {
            for _ in 0..reader.length()? {
                skip_texts(reader, 1)?;
                reader.take(8)?;
            }
        }
        // The value of another module: already passed over.
        MODULE_2 => {}
        15 => skip_stream(reader, 1)?,
        19 => skip_stream(reader, 2)?,
        21 => skip_stream(reader, 3)?,
        // A list of listpacks and plain strings, each after which of the two it is.
        18 => {
            for _ in 0..reader.length()? {
                skip_lengths(reader, 1)?;
                skip_texts(reader, 1)?;
            }
        }
        // A hash whose fields expire, each after its time; 24 begins with the earliest time.
        22 | 24 => {
            if kind == 24 {
                reader.take(8)?;
            }
            for _ in 0..reader.length()? {
                skip_lengths(reader, 1)?;
                skip_texts(reader, 2)?;
            }
        }
        // The same in a listpack, after the earliest time.
        25 => {
            reader.take(8)?;
            skip_texts(reader, 1)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Reads over a stream, of which the second and third versions have more fields.
fn skip_stream(reader: &mut Reader<'_>, version: u32) -> Result<(), ForeignError> {
    // Nodes: an identifier and a listpack.
    for _ in 0..reader.length()? {
        skip_texts(reader, 2)?;
    }
    // Its length and last identifier; then the first, the highest deleted, and all ever added.
    skip_lengths(reader, if version >= 2 { 8 } else { 3 })?;
    for _group in 0..reader.length()? {
        skip_texts(reader, 1)?;
        skip_lengths(reader, if version >= 2 { 3 } else { 2 })?;
        for _pending in 0..reader.length()? {
            // An identifier of 16 bytes, a time, how often it was delivered.
            reader.take(16 + 8)?;
            skip_lengths(reader, 1)?;
        }
        for _consumer in 0..reader.length()? {
            skip_texts(reader, 1)?;
            // When it was last seen, and last active.
            reader.take(if version >= 3 { 16 } else { 8 })?;
            for _pending in 0..reader.length()? {
                reader.take(16)?;
            }
        }
    }
    Ok(())
}

fn skip_texts(reader: &mut Reader<'_>, count: u64) -> Result<(), ForeignError> {
    (0..count).try_for_each(|_| reader.text().map(drop))
}

fn skip_lengths(reader: &mut Reader<'_>, count: u64) -> Result<(), ForeignError> {
    (0..count).try_for_each(|_| reader.length().map(drop))
}
