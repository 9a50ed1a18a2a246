//! RedisBloom's filters from anybody's bytes: a header and chunks, or a payload of DUMP, made up or
//! right ones with fields changed. Then everything that can be done to what was loaded, within a
//! limit of memory.
#![no_main]

use std::collections::HashMap;

use arbitrary::Arbitrary;
use inbloom::interop::redisbloom::payload::{self, Restored};
use inbloom::interop::redisbloom::{Bloom, CuckooChain, OVERHEAD};
use libfuzzer_sys::fuzz_target;

/// Of every filter here, in bytes.
const LIMIT: u64 = 1 << 16;

#[derive(Arbitrary, Debug)]
struct Input {
    source: Source,
    chunks: Vec<(u64, Vec<u8>)>,
    operations: Vec<Operation>,
}

#[derive(Arbitrary, Debug)]
enum Source {
    BloomHeader(Vec<u8>),
    CuckooHeader(Vec<u8>),
    Payload(Vec<u8>),
    /// With a checksum that is right.
    Sealed(Vec<u8>),
    /// A right header, changed.
    EditedHeader(Base, Vec<Edit>),
    /// A right payload, changed, with its checksum made right again.
    EditedPayload(Base, Vec<Edit>),
}

/// A filter of our own, with as many items as the last number says.
#[derive(Arbitrary, Debug)]
enum Base {
    Bloom { rate: f64, capacity: u8, growth: u8, items: u8 },
    Cuckoo { capacity: u8, bucket_size: u8, iterations: u8, expansion: u8, items: u8 },
}

#[derive(Arbitrary, Debug)]
enum Edit {
    Byte(u16, u8),
    /// A number of 2, 4 or 8 bytes, at any place.
    Number(u16, u8, Value),
    Cut(u16),
    Append(u8),
}

/// Numbers that matter to somebody.
#[derive(Arbitrary, Debug)]
enum Value {
    Any(u64),
    Small(u8),
    PowerOfTwo(u8),
    BelowPowerOfTwo(u8),
    Float(f64),
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Insert(u8),
    InsertUnique(u8),
    Remove(u8),
    Load(u64, Vec<u8>),
    CompactStep(u8),
    Compact,
    Chunk(u64, u16),
}

impl Value {
    fn get(&self) -> u64 {
        match self {
            Value::Any(value) => *value,
            Value::Small(value) => u64::from(*value),
            Value::PowerOfTwo(exponent) => 1 << (exponent % 64),
            Value::BelowPowerOfTwo(exponent) => (1 << (exponent % 64)) - 1,
            Value::Float(value) => value.to_bits(),
        }
    }
}

fn edit(bytes: &mut Vec<u8>, edits: &[Edit]) {
    for edit in edits {
        match edit {
            Edit::Byte(at, value) => {
                if let Some(byte) = bytes.get_mut(usize::from(*at)) {
                    *byte = *value;
                }
            }
            Edit::Number(at, width, value) => {
                let width = 2 << (width % 3);
                if let Some(field) = bytes.get_mut(usize::from(*at)..usize::from(*at) + width) {
                    field.copy_from_slice(&value.get().to_le_bytes()[..width]);
                }
            }
            Edit::Cut(length) => bytes.truncate(usize::from(*length)),
            Edit::Append(byte) => bytes.push(*byte),
        }
    }
}

/// CRC-64 as Redis has it, bit by bit.
fn sealed(mut fields: Vec<u8>) -> Vec<u8> {
    let mut crc = 0u64;
    for byte in &fields {
        crc ^= u64::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 != 0 { 0x95ac_9329_ac4b_c9b5 } else { 0 };
        }
    }
    fields.extend(crc.to_le_bytes());
    fields
}

fn base(base: &Base) -> Option<Restored> {
    match *base {
        Base::Bloom { rate, capacity, growth, items } => {
            let mut bloom = Bloom::new(rate, capacity.into(), growth.into(), LIMIT).ok()?;
            for item in 0..items {
                let _ = bloom.insert(&[item], LIMIT);
            }
            Some(Restored::Bloom(bloom))
        }
        Base::Cuckoo { capacity, bucket_size, iterations, expansion, items } => {
            let (bucket_size, iterations) = (bucket_size.into(), iterations.into());
            let cuckoo =
                CuckooChain::new(capacity.into(), bucket_size, iterations, expansion.into(), LIMIT);
            let mut cuckoo = cuckoo.ok()?;
            for item in 0..items {
                let _ = cuckoo.insert(&[item], LIMIT);
            }
            Some(Restored::Cuckoo(cuckoo))
        }
    }
}

fn encoded(filter: &Restored) -> Vec<u8> {
    match filter {
        Restored::Bloom(bloom) => payload::encode(bloom),
        Restored::Cuckoo(cuckoo) => payload::encode(cuckoo),
    }
    .expect("memory for a small filter")
}

fn load(source: Source) -> Option<Restored> {
    let bloom = |header: &[u8]| Bloom::from_header(header, LIMIT).ok().map(Restored::Bloom);
    let cuckoo = |header: &[u8]| CuckooChain::from_header(header, LIMIT).ok().map(Restored::Cuckoo);
    match source {
        Source::BloomHeader(header) => bloom(&header),
        Source::CuckooHeader(header) => cuckoo(&header),
        Source::Payload(bytes) => payload::decode(&bytes, LIMIT).ok(),
        Source::Sealed(fields) => payload::decode(&sealed(fields), LIMIT).ok(),
        Source::EditedHeader(of, edits) => {
            let mut header = match base(&of)? {
                Restored::Bloom(bloom) => bloom.header(),
                Restored::Cuckoo(cuckoo) => cuckoo.header(),
            };
            edit(&mut header, &edits);
            bloom(&header).or_else(|| cuckoo(&header))
        }
        Source::EditedPayload(of, edits) => {
            let mut bytes = encoded(&base(&of)?);
            bytes.truncate(bytes.len() - 8);
            edit(&mut bytes, &edits);
            payload::decode(&sealed(bytes), LIMIT).ok()
        }
    }
}

/// The filter stays within its limit, and comes back from its payload as it is.
fn check(filter: &Restored) {
    let (arrays, bytes) = match filter {
        Restored::Bloom(bloom) => (bloom.links().len() as u64, bloom.bytes()),
        Restored::Cuckoo(cuckoo) => (cuckoo.filters(), cuckoo.bytes()),
    };
    assert!(bytes + arrays * OVERHEAD <= LIMIT, "{bytes} bytes in {arrays} arrays");
    let payload = encoded(filter);
    assert_eq!(payload::decode(&payload, LIMIT).expect("our own payload"), *filter);
}

fn use_bloom(bloom: &mut Bloom, operation: &Operation) {
    match operation {
        Operation::Insert(item) | Operation::InsertUnique(item) => {
            let (before, items) = (bloom.contains(&[*item]), bloom.items());
            match bloom.insert(&[*item], LIMIT) {
                Ok(new) => {
                    assert_eq!(new, !before);
                    assert_eq!(bloom.items(), items + u64::from(new));
                    assert!(bloom.contains(&[*item]));
                }
                Err(_) => assert_eq!((bloom.contains(&[*item]), bloom.items()), (false, items)),
            }
        }
        Operation::Load(iterator, data) => {
            let _ = bloom.load(*iterator, data);
        }
        Operation::Chunk(position, most) => {
            if let Some((next, data)) = bloom.chunk(*position, usize::from(*most) + 1) {
                assert_eq!(next, position + data.len() as u64);
            }
        }
        Operation::Remove(item) => {
            let mut found = Vec::new();
            bloom.contains_many(&[[*item], [1], [2]], &mut found);
            assert_eq!(found, [[*item], [1], [2]].map(|item| bloom.contains(&item)));
        }
        Operation::CompactStep(_) | Operation::Compact => {}
    }
}

/// `sure` counts what is certainly in: added since the bytes were last loaded, and not removed.
/// Where fingerprints were there before, a removal may take another item's.
fn use_cuckoo(cuckoo: &mut CuckooChain, sure: &mut HashMap<u8, u64>, operation: &Operation) {
    match operation {
        Operation::Insert(item) => {
            let before = cuckoo.header();
            match cuckoo.insert(&[*item], LIMIT) {
                Ok(()) => *sure.entry(*item).or_default() += 1,
                Err(_) => assert_eq!(cuckoo.header(), before),
            }
        }
        Operation::InsertUnique(item) => {
            if cuckoo.insert_unique(&[*item], LIMIT) == Ok(true) {
                *sure.entry(*item).or_default() += 1;
            }
        }
        Operation::Remove(item) => {
            // One that is not certainly in may be a removal of another.
            match sure.get_mut(item).filter(|count| **count > 0) {
                Some(count) => {
                    assert!(cuckoo.remove(&[*item]), "{item} was added and is denied");
                    *count -= 1;
                }
                None => {
                    if cuckoo.remove(&[*item]) {
                        sure.clear();
                    }
                }
            }
        }
        Operation::Load(position, data) => {
            if cuckoo.load(*position, data).is_ok() {
                sure.clear();
            }
        }
        Operation::CompactStep(budget) => {
            let _ = cuckoo.compact_step(usize::from(*budget));
        }
        Operation::Compact => {
            cuckoo.compact();
            assert_eq!(cuckoo.deletes(), 0);
        }
        Operation::Chunk(position, most) => {
            if let Some((next, data)) = cuckoo.chunk(*position, usize::from(*most) + 1) {
                assert_eq!(next, position + data.len() as u64);
            }
        }
    }
    for (item, count) in sure {
        assert!(cuckoo.count(&[*item]) >= *count, "{item} was added {count} times");
    }
}

fuzz_target!(|input: Input| {
    let Some(mut filter) = load(input.source) else { return };
    check(&filter);
    match &mut filter {
        Restored::Bloom(bloom) => {
            input.chunks.iter().for_each(|(iterator, data)| drop(bloom.load(*iterator, data)));
            input.operations.iter().for_each(|operation| use_bloom(bloom, operation));
        }
        Restored::Cuckoo(cuckoo) => {
            input.chunks.iter().for_each(|(position, data)| drop(cuckoo.load(*position, data)));
            let mut sure = HashMap::new();
            for operation in &input.operations {
                use_cuckoo(cuckoo, &mut sure, operation);
            }
        }
    }
    check(&filter);
});
