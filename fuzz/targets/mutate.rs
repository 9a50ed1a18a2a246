//! A right file with fields of the header changed and its checksums made right again: what lies
//! behind the checksums, which bytes at random never get past.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use arbitrary::Arbitrary;
use inbloom::{Filter, Hasher, Kind, Plan};
use inbloom_testing::forge::{self, FIELDS, section, sections};
use libfuzzer_sys::fuzz_target;

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
    /// With counters of 2, 4 or 8 bits.
    Counting(u8),
    /// With as many items as fit into a few buckets.
    Cuckoo(u8),
    /// Of the last keys, with some generations.
    LastKeys(u8),
    /// Of a time, with as many calls of the clock.
    Time(u8),
    Scalable(u8),
    /// One that is divided into shards.
    Divided,
    /// Of as many keys, planned for one shard or three.
    Ribbon(u8),
    /// A ribbon of ten keys that as many were added to and as many removed from.
    Overlay(u8, u8),
    /// A blocked or classic filter for two keys, with as many more in its growing part.
    Grown(bool, u8),
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
    /// A field of the header of the file in section MORE, whose checksum is made right.
    Added(u8, Value),
    /// A word at the start of the payload: the directory of a window, or of a scalable filter.
    Directory(u8, Value),
    /// An entry more in the section table, and room for it.
    MoreSections(u8),
    Cut(u16),
    Append(u8),
    /// The length of the file, as it is now.
    TrueLength,
    /// The number of cells in use, as it is now.
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

const TAGS: [&[u8; 4]; 8] =
    [b"BITS", b"note", b"norm", b"MORE", b"GONE", b"LAYR", b"null", b"\0\0\0\0"];

fn base(input: &Input) -> Vec<u8> {
    let bitmap =
        |universe, items| Plan::builder(Kind::Bitmap).universe(universe).items(items).build();
    let two = Plan::builder(Kind::Blocked).items(20).bytes(256).lines(2).probes(16).build();
    let (plan, hasher) = match input.base {
        Base::Blocked => (Plan::exact(Kind::Blocked, 1024, 8), Hasher::xxh3(5)),
        Base::TwoLines => (two, Hasher::default()),
        Base::Classic => (Plan::exact(Kind::Classic, 333, 4), Hasher::default()),
        Base::Dense => (bitmap(200, 200), Hasher::integers()),
        Base::Sparse => (bitmap(1 << 40, 3), Hasher::integers()),
        Base::Counting(width) => {
            let plan = Plan::builder(Kind::Counting)
                .items(20)
                .rate(0.1)
                .width([2, 3, 4, 8][usize::from(width % 4)]);
            (plan.build(), Hasher::default())
        }
        Base::Cuckoo(items) => {
            let plan = Plan::builder(Kind::Cuckoo).items(3 + u64::from(items)).rate(0.01);
            (plan.build(), Hasher::default())
        }
        Base::LastKeys(generations) => {
            let steps = u32::from(generations % 5) + 1;
            let plan = Plan::builder(Kind::Window).last(40).rate(0.1).generations(steps);
            (plan.build(), Hasher::default())
        }
        Base::Time(_) => {
            let plan = Plan::builder(Kind::Window).items(20).window(Duration::from_millis(100));
            (plan.build(), Hasher::default())
        }
        Base::Scalable(growth) => {
            let growth = [0, 2, 4, 8][usize::from(growth % 4)];
            // What does not grow has room for all that is inserted here.
            let items = if growth == 0 { 100 } else { 10 };
            let plan = Plan::builder(Kind::Scalable).items(items).rate(0.01).growth(growth);
            (plan.build(), Hasher::default())
        }
        Base::Divided => return divided(input.texts),
        Base::Ribbon(keys) => {
            // Of three shards, if there are that many planned.
            let items = if keys % 2 == 0 { 100 } else { 5_000_000 };
            (Plan::builder(Kind::Ribbon).items(items).rate(0.1).build(), Hasher::default())
        }
        Base::Overlay(..) => {
            (Plan::builder(Kind::Ribbon).items(10).rate(0.1).build(), Hasher::default())
        }
        Base::Grown(blocked, _) => {
            let kind = if blocked { Kind::Blocked } else { Kind::Classic };
            (Plan::builder(kind).items(2).rate(0.1).growing().build(), Hasher::default())
        }
        Base::Keyed => (Plan::exact(Kind::Blocked, 512, 12), Hasher::sip13(inbloom_fuzz::KEY)),
    };
    let static_keys = match input.base {
        Base::Ribbon(keys) => Some(keys),
        Base::Overlay(..) => Some(10),
        _ => None,
    };
    if let Some(keys) = static_keys {
        let digests: Vec<_> = (0..keys).map(|key| hasher.digest([key])).collect();
        let mut filter = Filter::build(plan.unwrap(), hasher, &digests).unwrap();
        if let Base::Overlay(added, removed) = input.base {
            filter = filter.into_overlay(0.2).unwrap();
            for key in 0..added {
                filter.insert([100, key]).unwrap();
            }
            for key in 0..removed {
                filter.remove([key]).unwrap();
            }
        }
        if input.texts {
            filter.set_note("a note").unwrap();
        }
        let mut bytes = Vec::new();
        filter.write_to(&mut bytes).unwrap();
        return bytes;
    }
    let mut filter = Filter::with_hasher(plan.unwrap(), hasher).unwrap();
    if let Base::Grown(_, more) = input.base {
        filter = filter.into_growing().unwrap();
        for key in 0..more {
            filter.insert([100, key]).unwrap();
        }
    }
    let times = if let Base::Time(times) = input.base { u64::from(times % 8) } else { 0 };
    for time in 1..=times {
        filter.advance(1000 + 25 * time).unwrap();
        filter.insert([100 + time as u8]).unwrap();
    }
    for key in [[1], [2], [77]] {
        filter.insert(key).unwrap();
    }
    if let Base::LastKeys(_) | Base::Scalable(_) = input.base {
        for key in 0..60 {
            filter.insert([key]).unwrap();
        }
    }
    if input.texts {
        filter.set_note("a note").unwrap();
        filter.set_normalization("lower case").unwrap();
        let grows = matches!(input.base, Base::Scalable(_) | Base::Grown(..));
        assert_eq!(filter.set_auto_clear(Some(0.5)).is_err(), grows);
    }
    let mut bytes = Vec::new();
    filter.write_to(&mut bytes).unwrap();
    bytes
}

/// A scalable filter of many keys, made once.
fn divided(texts: bool) -> Vec<u8> {
    static FILES: [LazyLock<Vec<u8>>; 2] =
        [LazyLock::new(|| make(false)), LazyLock::new(|| make(true))];
    fn make(texts: bool) -> Vec<u8> {
        let plan = Plan::builder(Kind::Scalable).items(10).rate(0.001).build().unwrap();
        let mut filter = Filter::new(plan).unwrap();
        for key in 0..9000_u32 {
            filter.insert(key.to_le_bytes()).unwrap();
        }
        if texts {
            filter.set_note("a note").unwrap();
        }
        let mut bytes = Vec::new();
        filter.write_to(&mut bytes).unwrap();
        bytes
    }
    FILES[usize::from(texts)].clone()
}

/// Changes a little-endian field of up to eight bytes, if it is in the file.
fn change(bytes: &mut [u8], at: usize, length: usize, value: &Value) {
    let new = value.apply(forge::get(bytes, at, length));
    forge::put(bytes, at, length, new);
}

/// A word of eight bytes, or 0 if it is not in the file.
fn get(bytes: &[u8], at: usize) -> u64 {
    forge::get(bytes, at, 8)
}

/// Where the payload starts, which is the last section that is in the file.
fn payload_at(bytes: &[u8]) -> usize {
    let entry = forge::entries(bytes).rev().find(|entry| section(bytes, *entry).is_some());
    entry.map_or(bytes.len(), |entry| get(bytes, entry + 8) as usize)
}

/// The cells in use, for a payload of the kind that the header names.
fn true_ones(bytes: &[u8]) -> u64 {
    let payload = bytes.get(payload_at(bytes)..).unwrap_or_default();
    let width = bytes.get(58).map_or(1, |width| usize::from(*width)).clamp(1, 64);
    match bytes.get(10) {
        Some(4 | 5) => {
            let bit = |at: usize| payload[at / 8] >> (at % 8) & 1;
            // Counters of three bits leave the highest bit of a word over.
            let start = |cell: usize| match (bytes[10], width) {
                (4, 3) => cell / 21 * 64 + cell % 21 * 3,
                _ => cell * width,
            };
            let cells = (0..).map(|cell| start(cell)..start(cell) + width);
            let cells = cells.take_while(|cell| cell.end <= payload.len() * 8);
            cells.filter(|cell| cell.clone().any(|at| bit(at) == 1)).count() as u64
        }
        Some(6) => {
            let tables = (get(payload, 8) >> 32).min(16) as usize;
            let entries = (0..tables).map(|table| get(payload, 32 + 40 * table));
            entries.fold(0, u64::wrapping_add)
        }
        Some(7) => {
            let generations = get(payload, 8).min(65) as usize;
            let ones = (0..generations).map(|index| get(payload, 32 + 24 * index));
            ones.fold(0, u64::wrapping_add)
        }
        Some(8) => {
            let end = payload.len().saturating_sub(8);
            let entries = get(payload, end).min(end as u64 / 32) as usize;
            let keys = (1..=entries).map(|entry| get(payload, end - 32 * entry));
            keys.fold(0, u64::saturating_add)
        }
        _ => payload.iter().map(|byte| u64::from(byte.count_ones())).sum(),
    }
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
            Edit::Added(index, value) => {
                let tagged = |entry: &usize| bytes.get(*entry..entry + 4) == Some(b"MORE");
                let mut entries = (0..4).map(|index| 128 + 32 * index);
                let start = entries.find(tagged).map(|entry| get(&bytes, entry + 8) as usize);
                if let Some(file) = start.and_then(|start| bytes.get_mut(start..)) {
                    let (at, length) = FIELDS[usize::from(*index) % FIELDS.len()];
                    change(file, at, length, value);
                    forge::seal_header(file);
                }
            }
            Edit::Cut(length) => bytes.truncate(usize::from(*length)),
            Edit::Append(count) => bytes.resize(bytes.len() + usize::from(*count), 0),
            Edit::TrueLength => {
                let length = bytes.len() as u64;
                forge::put(&mut bytes, 16, 8, length);
            }
            Edit::Directory(word, value) => {
                // A window's is in front, a ribbon's is at the end.
                let at = match bytes.get(10) {
                    Some(8) => bytes.len().saturating_sub(8 * (1 + usize::from(word % 32))),
                    // That of 16 tables has 82 words.
                    _ => payload_at(&bytes) + 8 * usize::from(word % 96),
                };
                change(&mut bytes, at, 8, value);
            }
            Edit::TrueOnes => {
                let ones = true_ones(&bytes);
                forge::put(&mut bytes, 80, 8, ones);
            }
        }
    }
    if input.seal_sections {
        forge::seal_sections(&mut bytes);
    }
    forge::seal_header(&mut bytes);
    inbloom_fuzz::check_ways(&bytes);
});
