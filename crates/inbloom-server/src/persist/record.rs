//! The bytes of the log: one frame for each [`Record`], in the order in which changes were made.
//!
//! ```text
//!   frame = u32 bytes of the body | u32 checksum | body
//!   body  = u8 kind | fields
//!
//!   kind 1  create   id, replaced id or 0, database, expires + 1 or 0, name, birth (see `spec`)
//!        2  remove   id, id, ...
//!        3  rename   id, replaced id or 0, database, name
//!        4  expire   id, expires + 1 or 0
//!        5  change   id, verb, time, new, hash, hash, ...
//!        6  merge    id, items, image
//! ```
//!
//! Numbers are variable: seven bits in a byte, the low ones first, the upper bit set in all but the
//! last. A name is a number of bytes and the bytes; hashes are 8 or 16 bytes each, as the verb has
//! it; birth and image go to the end. The checksum is the lower half of XXH3-64 of the body. Records
//! have no number of their own: that of the first one is in the name of the file, the next one's is
//! one more.
//!
//! Keys are not in the log, only their hashes under the scheme of the filter.

use std::borrow::Cow;

use inbloom::Digest;
use inbloom::internals::codec::{self, Decoder, put_bytes, put_time, put_varint};
use inbloom::interop::redisbloom::{Hash, Pair};
use xxhash_rust::xxh3::xxh3_64;

use crate::keyspace::DATABASES;
use crate::keyspace::journal::Record;
use crate::value::change::{Effect, Items};

/// What is done with the hashes of a change. Numbers are on disk: they are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Verb {
    /// [`Items::Add`], of which `new` were new.
    Add = 1,
    /// [`Items::Insert`], at a time.
    Insert = 2,
    /// [`Items::Remove`].
    Remove = 3,
    /// [`Items::AddPairs`].
    AddPairs = 4,
    /// [`Items::AddHashes`].
    AddHashes = 5,
    /// [`Items::RemoveHashes`].
    RemoveHashes = 6,
    /// [`Items::Compact`]: `new` is how much it may look at, there are no hashes.
    Compact = 7,
}

impl Verb {
    const ALL: [Verb; 7] = [
        Verb::Add,
        Verb::Insert,
        Verb::Remove,
        Verb::AddPairs,
        Verb::AddHashes,
        Verb::RemoveHashes,
        Verb::Compact,
    ];
}

/// What the log says of an item: not the item.
trait Logged: Copy {
    /// The bytes of one.
    const WIDTH: usize;
    /// Appends its bytes.
    fn put(self, out: &mut Vec<u8>);
    /// From the bytes of one.
    fn take(bytes: &[u8]) -> Self;
}

fn word(bytes: &[u8], at: usize) -> u64 {
    codec::u64_at(bytes, at).expect("as many bytes as the width says")
}

impl Logged for Digest {
    const WIDTH: usize = 16;

    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.place.to_le_bytes());
        out.extend_from_slice(&self.print.to_le_bytes());
    }

    fn take(bytes: &[u8]) -> Digest {
        Digest { place: word(bytes, 0), print: word(bytes, 8) }
    }
}

impl Logged for Pair {
    const WIDTH: usize = 16;

    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.a.to_le_bytes());
        out.extend_from_slice(&self.b.to_le_bytes());
    }

    fn take(bytes: &[u8]) -> Pair {
        Pair { a: word(bytes, 0), b: word(bytes, 8) }
    }
}

impl Logged for Hash {
    const WIDTH: usize = 8;

    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }

    fn take(bytes: &[u8]) -> Hash {
        Hash(word(bytes, 0))
    }
}

/// Where the hashes of a record are put that is read: memory that is used again and again.
#[derive(Default)]
pub struct HashBuffers {
    digests: Vec<Digest>,
    pairs: Vec<Pair>,
    hashes: Vec<Hash>,
}

/// All hashes of a change. None: the last one is not whole.
fn read_hashes<'a, H: Logged>(bytes: &[u8], out: &'a mut Vec<H>) -> Option<&'a [H]> {
    out.clear();
    out.extend(bytes.chunks_exact(H::WIDTH).map(H::take));
    bytes.len().is_multiple_of(H::WIDTH).then_some(&**out)
}

/// The bytes of a frame before its body.
pub const FRAME: usize = 8;

/// Begins a frame in `out`, and returns where.
fn begin(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; FRAME]);
    at
}

/// Completes the frame that begins there.
pub fn seal(out: &mut [u8], at: usize) {
    let body = at + FRAME;
    // The longest is a request's, of at most 2^20 items of 16 bytes.
    let length = u32::try_from(out.len() - body).expect("below 4 GiB");
    let sum = xxh3_64(&out[body..]) as u32;
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    out[at + 4..body].copy_from_slice(&sum.to_le_bytes());
}

/// Appends a record as a frame.
pub fn put(record: &Record<'_>, out: &mut Vec<u8>) {
    let at = begin(out);
    match record {
        Record::Create { id, replaced, database, expires, name, birth } => {
            out.push(1);
            put_varint(out, *id);
            put_varint(out, *replaced);
            put_varint(out, *database as u64);
            put_time(out, *expires);
            put_bytes(out, name);
            out.extend_from_slice(birth);
        }
        Record::Remove { ids } => {
            out.push(2);
            ids.iter().for_each(|id| put_varint(out, *id));
        }
        Record::Rename { id, replaced, database, name } => {
            out.push(3);
            put_varint(out, *id);
            put_varint(out, *replaced);
            put_varint(out, *database as u64);
            put_bytes(out, name);
        }
        Record::Expire { id, at } => {
            out.push(4);
            put_varint(out, *id);
            put_time(out, *at);
        }
        Record::Change { id, effect: Effect::Items { items, new } } => {
            put_items(out, *id, *items, *new);
        }
        Record::Change { id, effect: Effect::Merge { image, count } } => {
            out.push(6);
            put_varint(out, *id);
            put_varint(out, *count);
            out.extend_from_slice(image);
        }
    }
    seal(out, at);
}

fn put_items(out: &mut Vec<u8>, id: u64, items: Items<'_>, new: u64) {
    match items {
        Items::Add(digests) => put_hashes(out, id, Verb::Add, 0, new, digests),
        Items::Insert { digests, time } => put_hashes(out, id, Verb::Insert, time, new, digests),
        Items::Remove(digests) => put_hashes(out, id, Verb::Remove, 0, new, digests),
        Items::AddPairs(pairs) => put_hashes(out, id, Verb::AddPairs, 0, new, pairs),
        Items::AddHashes(hashes) | Items::AddNewHashes(hashes) => {
            put_hashes(out, id, Verb::AddHashes, 0, new, hashes);
        }
        Items::RemoveHashes(hashes) => put_hashes(out, id, Verb::RemoveHashes, 0, new, hashes),
        Items::Compact(slots) => put_hashes::<Hash>(out, id, Verb::Compact, 0, slots, &[]),
    }
}

fn put_hashes<H: Logged>(
    out: &mut Vec<u8>,
    id: u64,
    verb: Verb,
    time: u64,
    new: u64,
    hashes: &[H],
) {
    out.push(5);
    put_varint(out, id);
    out.push(verb as u8);
    put_varint(out, time);
    put_varint(out, new);
    out.reserve(hashes.len() * H::WIDTH);
    hashes.iter().for_each(|hash| hash.put(out));
}

/// Returns the record of the body of a frame whose checksum was right. None: it is of a newer
/// version, or was never written by us.
pub fn parse<'a>(body: &'a [u8], buffers: &'a mut HashBuffers) -> Option<Record<'a>> {
    let mut fields = Decoder(body);
    let record = match fields.u8()? {
        1 => Record::Create {
            id: fields.varint()?,
            replaced: fields.varint()?,
            database: database(&mut fields)?,
            expires: fields.time()?,
            name: fields.bytes()?,
            birth: fields.rest(),
        },
        2 => {
            let mut ids = Vec::new();
            while !fields.0.is_empty() {
                ids.push(fields.varint()?);
            }
            Record::Remove { ids: Cow::Owned(ids) }
        }
        3 => Record::Rename {
            id: fields.varint()?,
            replaced: fields.varint()?,
            database: database(&mut fields)?,
            name: fields.bytes()?,
        },
        4 => Record::Expire { id: fields.varint()?, at: fields.time()? },
        5 => {
            let id = fields.varint()?;
            let effect = parse_items(&mut fields, buffers)?;
            Record::Change { id, effect }
        }
        6 => {
            let (id, count) = (fields.varint()?, fields.varint()?);
            Record::Change { id, effect: Effect::Merge { image: fields.rest(), count } }
        }
        _ => return None,
    };
    fields.0.is_empty().then_some(record)
}

fn parse_items<'a>(fields: &mut Decoder<'_>, buffers: &'a mut HashBuffers) -> Option<Effect<'a>> {
    let verb = fields.u8()?;
    let verb = Verb::ALL.into_iter().find(|known| *known as u8 == verb)?;
    let (time, new) = (fields.varint()?, fields.varint()?);
    let HashBuffers { digests, pairs, hashes } = buffers;
    let bytes = fields.rest();
    let items = match verb {
        Verb::Add => Items::Add(read_hashes(bytes, digests)?),
        Verb::Insert => Items::Insert { digests: read_hashes(bytes, digests)?, time },
        Verb::Remove => Items::Remove(read_hashes(bytes, digests)?),
        Verb::AddPairs => Items::AddPairs(read_hashes(bytes, pairs)?),
        Verb::AddHashes => Items::AddHashes(read_hashes(bytes, hashes)?),
        Verb::RemoveHashes => Items::RemoveHashes(read_hashes(bytes, hashes)?),
        Verb::Compact if bytes.is_empty() => {
            return Some(Effect::Items { items: Items::Compact(new), new: 0 });
        }
        Verb::Compact => return None,
    };
    Some(Effect::Items { items, new })
}

fn database(fields: &mut Decoder<'_>) -> Option<usize> {
    usize::try_from(fields.varint()?).ok().filter(|database| *database < DATABASES)
}

/// Returns the first frame of some bytes: its body, and what comes after. None: it is not whole, or
/// damaged.
pub fn next_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<FRAME>()?;
    let length = u32::from_le_bytes(head[..4].try_into().expect("4 bytes")) as usize;
    let sum = u32::from_le_bytes(head[4..].try_into().expect("4 bytes"));
    let (body, rest) = rest.split_at_checked(length)?;
    (!body.is_empty() && xxh3_64(body) as u32 == sum).then_some((body, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGESTS: [Digest; 2] =
        [Digest { place: 7, print: u64::MAX }, Digest { place: 1 << 63, print: 0 }];

    fn change(items: Items<'_>, new: u64) -> Record<'_> {
        Record::Change { id: 9, effect: Effect::Items { items, new } }
    }

    fn all() -> Vec<Record<'static>> {
        vec![
            Record::Create {
                id: 1,
                replaced: 0,
                database: 0,
                expires: None,
                name: b"",
                birth: b"x",
            },
            Record::Create {
                id: u64::MAX,
                replaced: 77,
                database: 15,
                expires: Some(1 << 41),
                name: b"name",
                birth: b"",
            },
            Record::Remove { ids: Cow::Borrowed(&[]) },
            Record::Remove { ids: Cow::Borrowed(&[0, 127, 128, u64::MAX]) },
            Record::Rename { id: 300, replaced: 0, database: 3, name: b"other\0name" },
            Record::Expire { id: 5, at: Some(0) },
            Record::Expire { id: 5, at: None },
            change(Items::Add(&DIGESTS), 2),
            change(Items::Insert { digests: &DIGESTS, time: 1 << 40 }, 0),
            change(Items::Remove(&DIGESTS[..1]), 0),
            change(Items::AddPairs(&[Pair { a: 1, b: u64::MAX }]), 0),
            change(Items::AddHashes(&[Hash(7), Hash(u64::MAX)]), 0),
            change(Items::RemoveHashes(&[Hash(7)]), 0),
            change(Items::Compact(65_536), 0),
            Record::Change { id: 2, effect: Effect::Merge { image: b"image", count: 10 } },
        ]
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        all().iter().for_each(|record| put(record, &mut bytes));
        let mut rest = &bytes[..];
        for record in all() {
            let (body, after) = next_frame(rest).expect("whole");
            assert_eq!(parse(body, &mut HashBuffers::default()), Some(record));
            rest = after;
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn a_frame_that_is_cut_or_changed_is_none() {
        for record in all() {
            let mut bytes = Vec::new();
            put(&record, &mut bytes);
            (0..bytes.len()).for_each(|cut| assert!(next_frame(&bytes[..cut]).is_none()));
            for at in 0..bytes.len() * 8 {
                bytes[at / 8] ^= 1 << (at % 8);
                assert!(next_frame(&bytes).is_none(), "{record:?} with bit {at} changed");
                bytes[at / 8] ^= 1 << (at % 8);
            }
        }
        assert!(next_frame(&[0; 64]).is_none(), "zeros are no records");
    }

    #[test]
    fn no_body_makes_the_parser_stumble() {
        let mut buffers = HashBuffers::default();
        for record in all() {
            let mut bytes = Vec::new();
            put(&record, &mut bytes);
            let body = &bytes[FRAME..];
            for cut in 0..body.len() {
                let _ = parse(&body[..cut], &mut buffers);
            }
            let mut body = body.to_vec();
            for at in 0..body.len() {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let old = std::mem::replace(&mut body[at], value);
                    let _ = parse(&body, &mut buffers);
                    body[at] = old;
                }
            }
        }
    }
}
