//! Filters as the commands that load them: a stream in the protocol of Redis.
//!
//! ```text
//! *4\r\n $12\r\nBF.LOADCHUNK\r\n $4\r\nseen\r\n $1\r\n1\r\n $73\r\n<the header>\r\n
//! *4\r\n $12\r\nBF.LOADCHUNK\r\n $4\r\nseen\r\n $4\r\n1385\r\n $1384\r\n<a chunk>\r\n
//! ```
//!
//! This is what an append-only file has after a rewrite, and what `redis-cli --pipe` sends to a server.
//! It is the container for large filters: `DUMP` ends at 512 MB.
//!
//! A file may hold other keys and other commands. Those that have nothing to do with filters are passed
//! over. A command that changes a filter in another way is refused: to pass it over would be to forget
//! keys.

use std::collections::HashMap;
use std::io::{self, Write};

use super::error::ForeignError;
use super::payload::{Dumped, Module};
use super::stored::{Source, Stored};
use crate::codec::Decoder;

/// No command of a server has more arguments.
const MOST_ARGUMENTS: u64 = 1 << 20;

/// Commands about keys that leave their values as they are.
const HARMLESS: [&str; 8] =
    ["SELECT", "EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT", "PERSIST", "MULTI", "EXEC"];
/// Commands that change keys which they do not name.
const SWEEPING: [&str; 3] = ["FLUSHALL", "FLUSHDB", "SWAPDB"];

/// Writes the commands that load a filter under a name into any server with RedisBloom:
/// `redis-cli --pipe < file`.
///
/// # Errors
///
/// Fails if the writer does.
pub fn load_commands<'a>(
    filter: impl Into<Dumped<'a>>,
    name: &[u8],
    mut writer: impl Write,
) -> io::Result<()> {
    let filter = filter.into();
    let (header, command) = filter.header();
    let mut write = |position: u64, data: &[u8]| -> io::Result<()> {
        let position = position.to_string();
        write!(writer, "*4\r\n")?;
        for argument in [command.as_bytes(), name, position.as_bytes(), data] {
            write!(writer, "${}\r\n", argument.len())?;
            writer.write_all(argument)?;
            writer.write_all(b"\r\n")?;
        }
        Ok(())
    };
    write(1, &header)?;
    let mut position = 1;
    while let Some((next, data)) = filter.chunk(position) {
        write(next, data)?;
        position = next;
    }
    Ok(())
}

/// The place of a filter in the list of those found, by database and key.
type Index = HashMap<(u64, Vec<u8>), usize>;

/// Returns whether bytes begin as a stream of commands does.
pub(super) fn is_stream(bytes: &[u8]) -> bool {
    let mut arguments = Vec::new();
    let first = command(&mut Decoder(bytes), &mut arguments);
    let is_name = |name: &[u8]| {
        !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphabetic() || *byte == b'.')
    };
    matches!(first, Ok(true)) && arguments.first().is_some_and(|name| is_name(name))
}

/// Adds the filters that a stream of commands loads to those that are there already, and returns how
/// many commands are for anything else.
pub(super) fn filters<'a>(
    stream: &'a [u8],
    found: &mut Vec<Stored<'a>>,
) -> Result<u64, ForeignError> {
    let mut rest = Decoder(stream);
    let (mut database, mut others) = (0, 0);
    let mut arguments = Vec::new();
    // Where the filter of a key is in the list.
    let mut index: Index = HashMap::new();
    for (at, stored) in found.iter().enumerate() {
        index.insert((stored.database, stored.name.clone()), at);
    }
    while command(&mut rest, &mut arguments)? {
        let [name, operands @ ..] = &arguments[..] else { continue };
        let name = name.to_ascii_uppercase();
        let module = match &name[..] {
            b"BF.LOADCHUNK" => Some(Module::Bloom),
            b"CF.LOADCHUNK" => Some(Module::Cuckoo),
            _ => None,
        };
        others += u64::from(module.is_none());
        if let Some(module) = module {
            let [key, iterator, data] = operands else {
                return Err(damaged("three arguments of LOADCHUNK", operands.len()));
            };
            let iterator =
                number(iterator).ok_or_else(|| damaged("an iterator", text(iterator)))?;
            let at = *index.entry((database, key.to_vec())).or_insert_with(|| {
                let source = Source::Chunks(module, Vec::new());
                found.push(Stored { database, name: key.to_vec(), source });
                found.len() - 1
            });
            match &mut found[at].source {
                Source::Chunks(loaded, chunks) if *loaded == module => {
                    chunks.push((iterator, data))
                }
                // A server refuses it: the key is there, and of another type.
                _ => return Err(damaged("a chunk of a filter that is being loaded", text(key))),
            }
        } else if name == b"SELECT" {
            let index = operands.first().and_then(|index| number(index));
            database = index.ok_or_else(|| damaged("the number of a database", "another"))?;
        } else if changes_filters(&name, operands, database, &index) {
            return Err(ForeignError::Changed { command: text(&name) });
        }
    }
    Ok(others)
}

/// Returns whether a command changes a filter, or may.
fn changes_filters(name: &[u8], operands: &[&[u8]], database: u64, index: &Index) -> bool {
    let is_one_of = |names: &[&str]| names.iter().any(|known| known.as_bytes() == name);
    if name.starts_with(b"BF.") || name.starts_with(b"CF.") {
        return true;
    }
    if is_one_of(&SWEEPING) {
        return !index.is_empty();
    }
    !is_one_of(&HARMLESS)
        && !index.is_empty()
        && operands.iter().any(|operand| index.contains_key(&(database, operand.to_vec())))
}

/// Takes the next command. False at the end of the stream.
fn command<'a>(
    rest: &mut Decoder<'a>,
    arguments: &mut Vec<&'a [u8]>,
) -> Result<bool, ForeignError> {
    arguments.clear();
    // Lines that begin with # tell the time.
    while rest.0.first() == Some(&b'#') {
        line(rest)?;
    }
    if rest.0.is_empty() {
        return Ok(false);
    }
    let count = prefixed(rest, b'*')?;
    if count > MOST_ARGUMENTS {
        return Err(damaged(format!("at most {MOST_ARGUMENTS} arguments"), count));
    }
    for _ in 0..count {
        let length = prefixed(rest, b'$')?;
        let argument = rest.take(length);
        arguments.push(argument.ok_or_else(|| damaged(format!("{length} bytes"), "the end"))?);
        match rest.array() {
            Some([b'\r', b'\n']) => {}
            _ => return Err(damaged("a line end behind an argument", "another byte")),
        }
    }
    Ok(true)
}

/// Takes a line of a letter and a number.
fn prefixed(rest: &mut Decoder<'_>, letter: u8) -> Result<u64, ForeignError> {
    let line = line(rest)?;
    let count = line.strip_prefix(&[letter]).and_then(number);
    count.ok_or_else(|| damaged(format!("{} and a number", char::from(letter)), text(line)))
}

/// Takes a line, without its end.
fn line<'a>(rest: &mut Decoder<'a>) -> Result<&'a [u8], ForeignError> {
    // No line between arguments is longer than a letter and a number, or a time.
    let near = &rest.0[..rest.0.len().min(64)];
    let Some(end) = near.windows(2).position(|pair| pair == b"\r\n") else {
        return Err(damaged("a short line", text(near)));
    };
    let line = &near[..end];
    rest.0 = &rest.0[end + 2..];
    Ok(line)
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn text(bytes: &[u8]) -> String {
    let shown = bytes[..bytes.len().min(40)].escape_ascii();
    format!("\"{shown}\"")
}

fn damaged(expected: impl Into<String>, got: impl ToString) -> ForeignError {
    ForeignError::damaged("stream of commands", expected, got)
}
