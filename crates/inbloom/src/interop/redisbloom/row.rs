//! RedisBloom's row in the table of formats.

use std::any::Any;
use std::collections::HashMap;
use std::io::Write;

use super::content::{LiveBloom, LiveCuckoo, failed};
use super::murmur::{Pair, murmur64a};
use super::payload::{self, Dumped, Module, Restored};
use super::stored::{Stored, Survey, from_chunks, is_chunks, missing_behind_header, survey};
use super::{commands, plan, rdb};
use crate::codec::Decoder;
use crate::digest::{Digest, Hasher};
use crate::error::{Error, Result};
use crate::filter::{Content, Filter};
use crate::foreign::{ForeignHash, Function};
use crate::interop::{FormatRow, KeyEncoding, Likeness, Variant, write_failed};
use crate::kind::{Abilities, Kind, Labels};
use crate::kinds;
use crate::plan::parameter;

const BLOOM: Kind = Kind::new(81);
/// Of RedisBloom 1, with another hash.
const BLOOM_32: Kind = Kind::new(82);
const CUCKOO: Kind = Kind::new(83);

static HASH: ForeignHash = ForeignHash {
    id: 81,
    name: "murmur64a, twice",
    seeded: false,
    kinds: &[BLOOM],
    function: Function::One(|key, _| digest(Pair::of(key))),
    eight: None,
};
static HASH_32: ForeignHash = ForeignHash {
    id: 82,
    name: "murmur2 of 32 bits, twice",
    seeded: false,
    kinds: &[BLOOM_32],
    function: Function::One(|key, _| digest(Pair::of_32(key))),
    eight: None,
};
static HASH_CUCKOO: ForeignHash = ForeignHash {
    id: 83,
    name: "murmur64a",
    seeded: false,
    kinds: &[CUCKOO],
    function: Function::One(|key, _| Digest { place: murmur64a(key, 0), print: 0 }),
    eight: None,
};

fn digest(Pair { a, b }: Pair) -> Digest {
    Digest { place: a, print: b }
}

const LABELS: Labels = Labels {
    bits: None,
    in_use: "items",
    arrays: ", link by link",
    never_overfull: Some("grows by itself"),
    above_target: "",
    ..Labels::BITS
};

const ABILITIES: Abilities = Abilities {
    keeps_rate: true,
    may_refuse: true,
    undivided: Some("RedisBloom has no shards"),
    ..Abilities::NONE
};

static BLOOM_ROW: kinds::Row = kinds::Row {
    kind: BLOOM,
    name: "redisbloom",
    abilities: Abilities { merges: true, ..ABILITIES },
    labels: LABELS,
    planner: &plan::BloomPlan,
    hasher: || Hasher::foreign(&HASH, 0),
    new: |plan| Ok(Box::new(LiveBloom::reserve(plan)?)),
    read: |plan, cells, _| Ok(Box::new(LiveBloom::from_cells(plan, &cells, true)?)),
    build: None,
    racing: |_| Ok(None),
};

/// Only to be read: no server makes them any more.
static BLOOM_32_ROW: kinds::Row = kinds::Row {
    kind: BLOOM_32,
    name: "redisbloom-32",
    hasher: || Hasher::foreign(&HASH_32, 0),
    new: |plan| Err(Error::Unsupported { kind: plan.kind(), verb: "be created", remedy: OLD }),
    read: |plan, cells, _| Ok(Box::new(LiveBloom::from_cells(plan, &cells, false)?)),
    ..BLOOM_ROW
};
const OLD: &str = "create one of kind redisbloom; those of RedisBloom 1 can only be read";

static CUCKOO_ROW: kinds::Row = kinds::Row {
    kind: CUCKOO,
    name: "redisbloom-cuckoo",
    abilities: Abilities { removes: true, counts: true, ..ABILITIES },
    labels: Labels { arrays: "", ..LABELS },
    planner: &plan::CuckooChainPlan,
    hasher: || Hasher::foreign(&HASH_CUCKOO, 0),
    new: |plan| Ok(Box::new(LiveCuckoo::reserve(plan)?)),
    read: |plan, cells, _| Ok(Box::new(LiveCuckoo::from_cells(plan, &cells)?)),
    build: None,
    racing: |_| Ok(None),
};

pub(in crate::interop) static ROW: FormatRow = FormatRow {
    records_plan: true,
    name: "redisbloom",
    title: "RedisBloom's DUMP, SCANDUMP, LOADCHUNK and RDB files",
    variants: &[
        Variant { name: "commands", help: "LOADCHUNK commands for redis-cli --pipe" },
        Variant { name: "chunks", help: "the replies of SCANDUMP, one after the other" },
    ],
    kinds: &[&BLOOM_ROW, &BLOOM_32_ROW, &CUCKOO_ROW],
    hashes: &[&HASH, &HASH_32, &HASH_CUCKOO],
    encodings: &[KeyEncoding::Utf8, KeyEncoding::Hex],
    recognize,
    read,
    read_part: Some(read_part),
    write: Some(write),
    plan: Some(|items, rate, _| Ok((plan::reserved(BLOOM, items, rate)?, (BLOOM_ROW.hasher)()))),
};

const COMMANDS: u32 = 1;
const CHUNKS: u32 = 2;

fn recognize(bytes: &[u8]) -> Likeness {
    let is_certain = is_payload(bytes) || rdb::is_rdb(bytes) || commands::is_stream(bytes);
    if is_certain {
        Likeness::Certain
    } else if is_chunks(bytes) || missing_behind_header(bytes).is_some() {
        Likeness::Possible
    } else {
        Likeness::No
    }
}

fn is_payload(bytes: &[u8]) -> bool {
    let Some(id) = bytes.strip_prefix(&[7, 0x81]).and_then(|rest| Decoder(rest).array()) else {
        return false;
    };
    let (module, _encoding): (Option<Module>, u16) = payload::module_of(u64::from_be_bytes(id));
    module.is_some()
}

fn read(bytes: &[u8], _variants: u32) -> Result<(Filter, u32)> {
    if is_payload(bytes) {
        // LZF gives up to 88 bytes for one: how many there are, the payload says itself.
        return Ok((live(payload::decode(bytes, u64::MAX).map_err(failed)?, false), 0));
    }
    if !is_file_of_keys(bytes) {
        if let Some(missing) = missing_behind_header(bytes) {
            return Err(Error::Format {
                what: "chunks of SCANDUMP",
                expected: format!("{missing} more bytes"),
                got: "the end".to_owned(),
                remedy: "join all chunks in their order: cat chunk0 chunk1 ...",
            });
        }
        return Ok((live(from_chunks(bytes).map_err(failed)?, false), CHUNKS));
    }
    let Survey { filters, is_only_loading } = survey(bytes).map_err(failed)?;
    let [only] = &filters[..] else { return Err(parts(&filters, None)) };
    // Whatever else is in the file would be lost if the filter were saved in its place.
    let mut filter = open(only, !is_only_loading)?;
    filter.texts.attach(only.name.clone());
    Ok((filter, if is_only_loading { COMMANDS } else { 0 }))
}

/// Reads one of the filters of an RDB file or an append-only file, by its key. Of those with the same
/// key in several databases, each has the number of its database before the key.
fn read_part(bytes: &[u8], part: &str) -> Result<Filter> {
    if !is_file_of_keys(bytes) {
        return Err(Error::Part { part: part.to_owned(), names: Vec::new() });
    }
    let Survey { filters, .. } = survey(bytes).map_err(failed)?;
    let labels = labels(&filters);
    match labels.iter().position(|label| label == part) {
        Some(at) => open(&filters[at], true),
        None => Err(parts(&filters, Some(part))),
    }
}

fn is_file_of_keys(bytes: &[u8]) -> bool {
    rdb::is_rdb(bytes) || commands::is_stream(bytes)
}

/// The error that says which filters a file holds.
fn parts(filters: &[Stored<'_>], part: Option<&str>) -> Error {
    let part = part.unwrap_or_default().to_owned();
    Error::Part { part, names: labels(filters) }
}

/// The names that tell the filters of a file apart.
fn labels(filters: &[Stored<'_>]) -> Vec<String> {
    let mut times: HashMap<&[u8], u32> = HashMap::new();
    for filter in filters {
        *times.entry(&filter.name).or_default() += 1;
    }
    let label = |filter: &Stored<'_>| {
        let name = String::from_utf8_lossy(&filter.name);
        match times[&filter.name[..]] {
            1 => name.into_owned(),
            _ => format!("{}/{name}", filter.database),
        }
    };
    filters.iter().map(label).collect()
}

fn open(stored: &Stored<'_>, is_read_only: bool) -> Result<Filter> {
    Ok(live(stored.restore(u64::MAX).map_err(failed)?, is_read_only))
}

fn live(restored: Restored, is_read_only: bool) -> Filter {
    let (row, content) = match restored {
        Restored::Bloom(bloom) => {
            let row = if bloom.has_wide_hash() { &BLOOM_ROW } else { &BLOOM_32_ROW };
            (row, Content::other(LiveBloom::new(row.kind, bloom, is_read_only)))
        }
        Restored::Cuckoo(cuckoo) => {
            let row = &CUCKOO_ROW;
            (row, Content::other(LiveCuckoo::new(row.kind, cuckoo, is_read_only)))
        }
    };
    let inserted = content.measured().occupied();
    Filter::from_parts((row.hasher)(), content, inserted)
}

/// The name of a filter that has none, in a stream of commands.
const UNNAMED: &[u8] = b"inbloom";

fn write(filter: &Filter, variants: u32, writer: &mut dyn Write) -> Result<()> {
    let state = filter.content.state() as &dyn Any;
    let dumped = match (state.downcast_ref(), state.downcast_ref()) {
        (Some(bloom), _) => Dumped::from(LiveBloom::filter(bloom)),
        (_, Some(cuckoo)) => Dumped::from(LiveCuckoo::filter(cuckoo)),
        (None, None) => unreachable!("a filter of one of these kinds has such a content"),
    };
    if variants & (COMMANDS | CHUNKS) != 0 && !dumped.has_whole_links() {
        return parameter("variant", "commands or chunks", "left out for a filter this old");
    }
    let written = if variants & COMMANDS != 0 {
        let name = filter.texts.attached();
        let name = if name.is_empty() { UNNAMED } else { name };
        commands::load_commands(dumped, name, &mut *writer)
    } else if variants & CHUNKS != 0 {
        writer.write_all(&dumped.header().0).and_then(|()| dumped.write_body(&mut *writer))
    } else {
        writer.write_all(&payload::encode(dumped).map_err(failed)?)
    };
    written.and_then(|()| writer.flush()).map_err(write_failed)
}
