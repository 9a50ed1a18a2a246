//! What the log says: one record for each change, in the order in which they were made.
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

use inbloom::Digest;
use inbloom::interop::redisbloom::{Hash, Pair};
use xxhash_rust::xxh3::xxh3_64;

use crate::keyspace::DATABASES;

/// A change of one filter, or of its name.
#[derive(Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A filter comes into being, in the place of another or of none (0).
    Create {
        id: u64,
        replaced: u64,
        database: usize,
        expires: Option<u64>,
        name: &'a [u8],
        birth: &'a [u8],
    },
    /// Filters are gone.
    Remove { ids: Vec<u64> },
    /// A filter has another name, in the place of another filter or of none (0).
    Rename { id: u64, replaced: u64, database: usize, name: &'a [u8] },
    /// A filter lives until then, or for good.
    Expire { id: u64, at: Option<u64> },
    /// Items come or go.
    Change { id: u64, verb: Verb, time: u64, new: u64, hashes: &'a [u8] },
    /// All of another filter comes to it, after which it counts so many items.
    Merge { id: u64, items: u64, image: &'a [u8] },
}

/// What is done with the hashes of a change. Numbers are on disk: they are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verb {
    /// BF.ADD to a filter of ours that grows: digests, of which `new` were new.
    Add = 1,
    /// The same to a filter of another kind, one after another, at a time.
    Insert = 2,
    /// IB.DEL.
    Remove = 3,
    /// BF.ADD to a filter in the form of RedisBloom: pairs.
    AddPairs = 4,
    /// CF.ADD: hashes of 8 bytes.
    AddHashes = 5,
    /// CF.DEL.
    RemoveHashes = 6,
    /// A step of CF.COMPACT: `new` is how much it may look at, there are no hashes.
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

    /// The bytes of one of its hashes.
    fn width(self) -> usize {
        match self {
            Verb::Add | Verb::Insert | Verb::Remove | Verb::AddPairs => 16,
            Verb::AddHashes | Verb::RemoveHashes | Verb::Compact => 8,
        }
    }
}

/// What the log says of an item: not the item.
pub trait Logged: Copy {
    /// Appends its bytes.
    fn put(self, out: &mut Vec<u8>);
    /// From the bytes of one.
    fn take(bytes: &[u8]) -> Self;
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

impl Logged for Digest {
    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.place.to_le_bytes());
        out.extend_from_slice(&self.print.to_le_bytes());
    }

    fn take(bytes: &[u8]) -> Digest {
        Digest { place: u64_at(bytes, 0), print: u64_at(bytes, 8) }
    }
}

impl Logged for Pair {
    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.a.to_le_bytes());
        out.extend_from_slice(&self.b.to_le_bytes());
    }

    fn take(bytes: &[u8]) -> Pair {
        Pair { a: u64_at(bytes, 0), b: u64_at(bytes, 8) }
    }
}

impl Logged for Hash {
    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }

    fn take(bytes: &[u8]) -> Hash {
        Hash(u64_at(bytes, 0))
    }
}

/// All hashes of a change, as what they are.
pub fn hashes<H: Logged>(verb: Verb, bytes: &[u8]) -> Vec<H> {
    bytes.chunks_exact(verb.width()).map(H::take).collect()
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

/// Appends a number.
pub fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a time that may be none.
pub fn put_time(out: &mut Vec<u8>, time: Option<u64>) {
    put_number(out, time.map_or(0, |time| time.saturating_add(1)));
}

/// Appends bytes and, before them, how many.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Fields, one after another. Whoever reads beyond the end gets None.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// A byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number.
    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// A time that may be none.
    pub fn time(&mut self) -> Option<Option<u64>> {
        self.number().map(|number| number.checked_sub(1))
    }

    /// Some bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Bytes and, before them, how many.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.number()?;
        self.take(usize::try_from(count).ok()?)
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

impl<'a> Record<'a> {
    /// Appends it as a frame.
    pub fn put(&self, out: &mut Vec<u8>) {
        let at = begin(out);
        match self {
            Record::Create { id, replaced, database, expires, name, birth } => {
                out.push(1);
                put_number(out, *id);
                put_number(out, *replaced);
                put_number(out, *database as u64);
                put_time(out, *expires);
                put_bytes(out, name);
                out.extend_from_slice(birth);
            }
            Record::Remove { ids } => {
                out.push(2);
                ids.iter().for_each(|id| put_number(out, *id));
            }
            Record::Rename { id, replaced, database, name } => {
                out.push(3);
                put_number(out, *id);
                put_number(out, *replaced);
                put_number(out, *database as u64);
                put_bytes(out, name);
            }
            Record::Expire { id, at } => {
                out.push(4);
                put_number(out, *id);
                put_time(out, *at);
            }
            Record::Change { id, verb, time, new, hashes } => {
                put_change(out, *id, *verb, *time, *new);
                out.extend_from_slice(hashes);
            }
            Record::Merge { id, items, image } => {
                out.push(6);
                put_number(out, *id);
                put_number(out, *items);
                out.extend_from_slice(image);
            }
        }
        seal(out, at);
    }

    /// From the body of a frame whose checksum was right. None: it is of a newer version, or was never
    /// written by us.
    pub fn parse(body: &'a [u8]) -> Option<Record<'a>> {
        let mut fields = Fields(body);
        let record = match fields.byte()? {
            1 => Record::Create {
                id: fields.number()?,
                replaced: fields.number()?,
                database: database(&mut fields)?,
                expires: fields.time()?,
                name: fields.bytes()?,
                birth: fields.rest(),
            },
            2 => {
                let mut ids = Vec::new();
                while !fields.0.is_empty() {
                    ids.push(fields.number()?);
                }
                Record::Remove { ids }
            }
            3 => Record::Rename {
                id: fields.number()?,
                replaced: fields.number()?,
                database: database(&mut fields)?,
                name: fields.bytes()?,
            },
            4 => Record::Expire { id: fields.number()?, at: fields.time()? },
            5 => {
                let id = fields.number()?;
                let verb = fields.byte()?;
                let verb = Verb::ALL.into_iter().find(|known| *known as u8 == verb)?;
                let (time, new) = (fields.number()?, fields.number()?);
                let hashes = fields.rest();
                if !hashes.len().is_multiple_of(verb.width()) {
                    return None;
                }
                Record::Change { id, verb, time, new, hashes }
            }
            6 => Record::Merge {
                id: fields.number()?,
                items: fields.number()?,
                image: fields.rest(),
            },
            _ => return None,
        };
        fields.0.is_empty().then_some(record)
    }
}

fn database(fields: &mut Fields<'_>) -> Option<usize> {
    usize::try_from(fields.number()?).ok().filter(|database| *database < DATABASES)
}

fn put_change(out: &mut Vec<u8>, id: u64, verb: Verb, time: u64, new: u64) {
    out.push(5);
    put_number(out, id);
    out.push(verb as u8);
    put_number(out, time);
    put_number(out, new);
}

/// A change of a filter's items that is being written down.
pub struct Change(Vec<u8>);

impl Change {
    /// Without hashes yet.
    pub fn new(id: u64, verb: Verb, time: u64, new: u64) -> Change {
        let mut frame = Vec::new();
        begin(&mut frame);
        put_change(&mut frame, id, verb, time, new);
        Change(frame)
    }

    /// Adds hashes.
    pub fn extend<H: Logged>(&mut self, hashes: &[H]) {
        self.0.reserve(hashes.len() * 16);
        hashes.iter().for_each(|hash| hash.put(&mut self.0));
    }

    /// The frame.
    pub fn seal(mut self) -> Vec<u8> {
        seal(&mut self.0, 0);
        self.0
    }
}

/// The first frame of some bytes: its body, and what comes after. None: it is not whole, or damaged.
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
            Record::Remove { ids: vec![] },
            Record::Remove { ids: vec![0, 127, 128, u64::MAX] },
            Record::Rename { id: 300, replaced: 0, database: 3, name: b"other\0name" },
            Record::Expire { id: 5, at: Some(0) },
            Record::Expire { id: 5, at: None },
            Record::Change { id: 9, verb: Verb::Add, time: 0, new: 2, hashes: &[7; 32] },
            Record::Change { id: 9, verb: Verb::RemoveHashes, time: 1, new: 0, hashes: &[7; 24] },
            Record::Change { id: 9, verb: Verb::Compact, time: 0, new: 65_536, hashes: &[] },
            Record::Merge { id: 2, items: 10, image: b"image" },
        ]
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        all().iter().for_each(|record| record.put(&mut bytes));
        let mut rest = &bytes[..];
        for record in all() {
            let (body, after) = next_frame(rest).expect("whole");
            assert_eq!(Record::parse(body), Some(record));
            rest = after;
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn a_frame_that_is_cut_or_changed_is_none() {
        for record in all() {
            let mut bytes = Vec::new();
            record.put(&mut bytes);
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
        for record in all() {
            let mut bytes = Vec::new();
            record.put(&mut bytes);
            let body = &bytes[FRAME..];
            for cut in 0..body.len() {
                let _ = Record::parse(&body[..cut]);
            }
            let mut body = body.to_vec();
            for at in 0..body.len() {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let old = std::mem::replace(&mut body[at], value);
                    let _ = Record::parse(&body);
                    body[at] = old;
                }
            }
        }
    }
}
