//! A right file with fields of the header changed and its checksums made right again: what lies behind
//! the checksums, which bytes at random never get past.
#![no_main]

use arbitrary::Arbitrary;
use inbloom::{Filter, Hasher, Kind, Plan};
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64;

#[derive(Arbitrary, Debug)]
struct Input {
    base: Base,
    texts: bool,
    edits: Vec<Edit>,
    /// Whether the sections' checksums are made right too, where the sections are in the file.
    seal_sections: bool,
}

#[derive(Arbitrary, Debug)]
enum Base {
    Blocked,
    TwoLines,
    Classic,
    Dense,
    Sparse,
    Keyed,
}

#[derive(Arbitrary, Debug)]
enum Edit {
    /// A field of the fixed header, by its place in [`FIELDS`].
    Field(u8, Value),
    /// A field of an entry of the section table: tag and reserved, offset, length or checksum.
    Section(u8, u8, Value),
    /// The tag of a section.
    Tag(u8, u8),
    /// A byte anywhere.
    Byte(u16, u8),
    /// The payload, from some byte on.
    Payload(u8, Vec<u8>),
    /// An entry more in the section table, and room for it.
    MoreSections(u8),
    Cut(u16),
    Append(u8),
    /// The length of the file, as it is now.
    TrueLength,
    /// The number of set bits, as it is now.
    TrueOnes,
}

/// Numbers that matter to somebody.
#[derive(Arbitrary, Debug)]
enum Value {
    Any(u64),
    Small(u8),
    PowerOfTwo(u8),
    BelowPowerOfTwo(u8),
    Float(f64),
    Change(i8),
}

impl Value {
    fn apply(&self, old: u64) -> u64 {
        match self {
            Value::Any(value) => *value,
            Value::Small(value) => u64::from(*value),
            Value::PowerOfTwo(exponent) => 1 << (exponent % 64),
            Value::BelowPowerOfTwo(exponent) => (1 << (exponent % 64)) - 1,
            Value::Float(value) => value.to_bits(),
            Value::Change(difference) => old.wrapping_add_signed(i64::from(*difference)),
        }
    }
}

/// Offset and length of the header's fields; the checksum is not among them.
const FIELDS: [(usize, usize); 17] = [
    (8, 2),
    (10, 2),
    (12, 4),
    (16, 8),
    (24, 8),
    (32, 8),
    (40, 8),
    (48, 4),
    (52, 2),
    (54, 2),
    (56, 2),
    (58, 6),
    (64, 8),
    (72, 8),
    (80, 8),
    (88, 8),
    (96, 8),
];

const TAGS: [&[u8; 4]; 6] = [b"BITS", b"note", b"norm", b"LAYR", b"null", b"\0\0\0\0"];

fn base(input: &Input) -> Vec<u8> {
    let bitmap = |universe, items| Plan::new(Kind::Bitmap).universe(universe).items(items).build();
    let two = Plan::new(Kind::Blocked).items(20).bytes(256).lines(2).probes(16).build();
    let (plan, hasher) = match input.base {
        Base::Blocked => (Plan::exact(Kind::Blocked, 1024, 8), Hasher::xxh3(5)),
        Base::TwoLines => (two, Hasher::default()),
        Base::Classic => (Plan::exact(Kind::Classic, 333, 4), Hasher::default()),
        Base::Dense => (bitmap(200, 200), Hasher::integers()),
        Base::Sparse => (bitmap(1 << 40, 3), Hasher::integers()),
        Base::Keyed => (Plan::exact(Kind::Blocked, 512, 12), Hasher::sip13(inbloom_fuzz::KEY)),
    };
    let mut filter = Filter::with_hasher(plan.unwrap(), hasher).unwrap();
    for key in [[1], [2], [77]] {
        filter.insert(key).unwrap();
    }
    if input.texts {
        filter.set_note("a note").unwrap();
        filter.set_normalization("lower case").unwrap();
        filter.set_auto_clear(Some(0.5)).unwrap();
    }
    let mut bytes = Vec::new();
    filter.write_to(&mut bytes).unwrap();
    bytes
}

/// Changes a little-endian field of up to eight bytes, if it is in the file.
fn change(bytes: &mut [u8], at: usize, length: usize, value: &Value) {
    if let Some(field) = bytes.get_mut(at..at + length) {
        let mut old = [0; 8];
        old[..length].copy_from_slice(field);
        let new = value.apply(u64::from_le_bytes(old)).to_le_bytes();
        field.copy_from_slice(&new[..length]);
    }
}

fn get(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |field| u64::from_le_bytes(field.try_into().unwrap()))
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    change(bytes, at, 8, &Value::Any(value));
}

fn sections(bytes: &[u8]) -> usize {
    bytes.get(12..16).map_or(0, |field| u32::from_le_bytes(field.try_into().unwrap()) as usize)
}

/// The bytes of a section, if they are in the file.
fn section(bytes: &[u8], entry: usize) -> Option<&[u8]> {
    let start = usize::try_from(get(bytes, entry + 8)).ok()?;
    let length = usize::try_from(get(bytes, entry + 16)).ok()?;
    bytes.get(start..start.checked_add(length)?)
}

fuzz_target!(|input: Input| {
    let mut bytes = base(&input);
    for edit in &input.edits {
        let entry = |index: u8| 128 + 32 * usize::from(index % 4);
        match edit {
            Edit::Field(index, value) => {
                let (at, length) = FIELDS[usize::from(*index) % FIELDS.len()];
                change(&mut bytes, at, length, value);
            }
            Edit::Section(index, field, value) => {
                change(&mut bytes, entry(*index) + 8 * usize::from(field % 4), 8, value);
            }
            Edit::Tag(index, tag) => {
                let tag = TAGS[usize::from(*tag) % TAGS.len()];
                if let Some(place) = bytes.get_mut(entry(*index)..entry(*index) + 4) {
                    place.copy_from_slice(tag);
                }
            }
            Edit::Byte(at, xor) => {
                if let Some(byte) = bytes.get_mut(usize::from(*at)) {
                    *byte ^= xor;
                }
            }
            Edit::Payload(at, with) => {
                let start = bytes.len().saturating_sub(usize::from(*at));
                for (byte, with) in bytes[start..].iter_mut().zip(with) {
                    *byte = *with;
                }
            }
            Edit::MoreSections(tag) => {
                let count = sections(&bytes);
                let end = 128 + 32 * count;
                if count < 8 && bytes.len() >= end {
                    let mut new = [0; 32];
                    new[..4].copy_from_slice(TAGS[usize::from(*tag) % TAGS.len()]);
                    new[8..16].copy_from_slice(&(end as u64 + 32).to_le_bytes());
                    bytes.splice(end..end, new);
                    change(&mut bytes, 12, 4, &Value::Change(1));
                    for index in 0..count {
                        change(&mut bytes, 136 + 32 * index, 8, &Value::Change(32));
                    }
                    // The new one goes first: it ends where it starts.
                    bytes[128..end + 32].rotate_right(32);
                    change(&mut bytes, 16, 8, &Value::Change(32));
                }
            }
            Edit::Cut(length) => bytes.truncate(usize::from(*length)),
            Edit::Append(count) => bytes.resize(bytes.len() + usize::from(*count), 0),
            Edit::TrueLength => {
                let length = bytes.len() as u64;
                put(&mut bytes, 16, length);
            }
            Edit::TrueOnes => {
                let entries = (0..sections(&bytes).min(16)).map(|index| 128 + 32 * index);
                let payload = entries.rev().find_map(|entry| section(&bytes, entry));
                let ones: u32 =
                    payload.unwrap_or_default().iter().map(|byte| byte.count_ones()).sum();
                change(&mut bytes, 80, 8, &Value::Any(u64::from(ones)));
            }
        }
    }
    if input.seal_sections {
        for index in 0..sections(&bytes).min(16) {
            let entry = 128 + 32 * index;
            if let Some(checksum) = section(&bytes, entry).map(xxh3_64) {
                put(&mut bytes, entry + 24, checksum);
            }
        }
    }
    let header = 128 + 32 * sections(&bytes);
    if header <= bytes.len() {
        put(&mut bytes, 120, 0);
        let checksum = xxh3_64(&bytes[..header]);
        put(&mut bytes, 120, checksum);
    }
    inbloom_fuzz::check_ways(&bytes);
});
