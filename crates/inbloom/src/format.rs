//! Bytes to filter and back. The layout is drawn in `docs/format.md`, and only there.
//!
//! Everything here treats the bytes as untrusted input: every field is checked before it is used,
//! every length before memory is taken for it. [`Filter::view`] and [`Filter::open`] check the
//! header and trust the payload, at a cost that does not depend on its size; [`Filter::read_from`]
//! and [`verify`] check everything.

mod filters;

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Read, Write};

use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::codec::Decoder;
use crate::compose::grown::Grown;
use crate::compose::overlay::{LISTED, Overlay, is_in_order};
use crate::digest::{Hasher, Scheme, SecretKey};
use crate::error::{Error, Result, in_file, mismatch};
use crate::filter::{Content, Filter, MAX_INSERTED, MAX_TEXT, Texts, View, check_auto_clear};
use crate::foreign::ForeignHash;
use crate::kind::Kind;
use crate::plan::{Plan, Span};
use crate::storage::{Cells, Order, words};

/// The first eight bytes of every file. Like PNG's, they show damage by programs that take bytes for
/// text: a byte above 127, a line end of each kind, and the end-of-file mark of DOS.
pub const MAGIC: [u8; 8] = *b"\x89IBF\r\n\x1a\n";
/// The version that is written, and the newest that is read.
pub const VERSION: u16 = 1;

/// The fixed part of the header; the section table follows.
const FIXED: usize = 128;
/// One entry of the section table.
const ENTRY: usize = 32;
/// Far more than any version writes: caps what is read before the header's checksum is known.
const MAX_SECTIONS: usize = 1024;
/// Where the header's own checksum is.
const CHECKSUM: std::ops::Range<usize> = 120..128;

/// The layout of a sparse bitmap; a kind says its own (`Kind::layout`). Numbers are on disk: they are
/// never reused.
const LAYOUT_ROARING: u16 = 1;

/// Units of a window. Numbers are on disk: they are never reused.
const SPAN_MILLIS: u8 = 1;
const SPAN_ITEMS: u8 = 2;

/// Hash schemes. Numbers are on disk: they are never reused.
const HASH_XXH3: u16 = 1;
const HASH_SIP13: u16 = 2;
const HASH_INTEGERS: u16 = 3;

/// Section tags. As in PNG, an upper-case first letter means that a reader which does not know the
/// section cannot use the file, and a lower-case one that it can.
const BITS: [u8; 4] = *b"BITS";
const NOTE: [u8; 4] = *b"note";
const NORMALIZATION: [u8; 4] = *b"norm";
/// The encoding of keys, by its name. A reader that does not know it would report keys given as
/// text as absent.
const KEYS: [u8; 4] = *b"KEYS";
/// What a file of another program has beside its filter.
const DATA: [u8; 4] = *b"data";
/// The keys that were added to a static filter later, or that are in the growing part of another
/// one, as a whole file of a scalable filter.
const MORE: [u8; 4] = *b"MORE";
/// Of a static filter: the excluded digests.
const GONE: [u8; 4] = *b"GONE";

/// The remedy for something unknown in a header with the right checksum, which is not damaged.
pub const NEWER: &str = "a newer inbloom wrote the file; upgrade inbloom";

/// The remedy for a layout that a kind had before its present one.
pub const RETIRED: &str =
    "this inbloom no longer reads that layout; build the filter again from its keys";

/// What is copied at once of a filter that is in use, and so the memory that its file takes.
const PIECE: u64 = 1 << 20;
/// What is checked at once, so that the next reader finds it in the nearest caches.
const LOOK: usize = 32 << 10;

fn unknown(what: &'static str, expected: impl Display, got: impl Display) -> Error {
    Error::Format { what, expected: expected.to_string(), got: got.to_string(), remedy: NEWER }
}

/// One entry of the section table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Section {
    tag: [u8; 4],
    offset: u64,
    length: u64,
    checksum: u64,
}

impl Section {
    fn name(&self) -> String {
        self.tag.escape_ascii().to_string()
    }

    /// Checks the bytes of the section.
    fn check(&self, bytes: &[u8]) -> Result<()> {
        self.check_sum(xxh3_64(bytes))
    }

    fn check_sum(&self, sum: u64) -> Result<()> {
        if sum == self.checksum {
            return Ok(());
        }
        let what = match self.tag {
            BITS => "checksum of the payload",
            NOTE | NORMALIZATION | KEYS => "checksum of a text",
            _ => "checksum of a section",
        };
        Err(mismatch(what, format_args!("{:016x}", self.checksum), format_args!("{sum:016x}")))
    }
}

/// What a header says: one that was read and checked, or is to be written.
struct Header {
    plan: Plan,
    /// The number of the hash scheme, and its seed or the check of its key.
    hash: (u16, u64),
    inserted: u64,
    ones: u64,
    auto_clear: Option<f64>,
    /// In ascending order, without overlap, the last one ending the file.
    sections: Vec<Section>,
    file_length: u64,
}

// ---------------------------------------------------------------------------------------- writing

/// From this length on a payload starts on a page, so that it can be mapped apart from the header; a
/// smaller one on a cache line.
pub(crate) const LARGE: u64 = 1 << 20;
const PAGE: u64 = 4096;

fn alignment(length: u64) -> u64 {
    if length >= LARGE { PAGE } else { 64 }
}

pub(crate) fn write(filter: &Filter, writer: impl Write) -> Result<()> {
    let state = filter.content.state();
    state.expect(Order::Ascending);
    let result = write_all(filter, writer);
    state.expect(Order::Random);
    result
}

fn write_all(filter: &Filter, mut writer: impl Write) -> Result<()> {
    let payload = filter.content.measured().payload();
    let texts = texts_of(filter).map(|(tag, text)| (tag, Cow::Borrowed(text)));
    let mut contents: Vec<([u8; 4], Cow<'_, [u8]>)> = texts.collect();
    let living = filter.as_overlay();
    if let Some(denied) = living.map(Overlay::excluded_part).filter(|denied| !denied.is_empty()) {
        contents.push((GONE, denied));
    }
    let growing = filter.as_grown().map(Grown::growing_part);
    if let Some(added) = living.and_then(Overlay::added_part).or(growing) {
        let mut file = Vec::new();
        write_all(added, &mut file)?;
        contents.push((MORE, Cow::Owned(file)));
    }
    contents.push((BITS, payload));

    let mut end = (FIXED + ENTRY * contents.len()) as u64;
    let sections: Vec<Section> = contents
        .iter()
        .map(|(tag, bytes)| {
            let length = bytes.len() as u64;
            let is_text = matches!(*tag, NOTE | NORMALIZATION | KEYS | DATA);
            let align = if is_text { 8 } else { alignment(length) };
            let offset = end.next_multiple_of(align);
            end = offset + length;
            Section { tag: *tag, offset, length, checksum: xxh3_64(bytes) }
        })
        .collect();

    let failed = |cause| Error::Io { action: "cannot write the filter".to_owned(), cause };
    let header = Header {
        plan: *filter.plan(),
        hash: hash_of(&filter.hasher),
        inserted: filter.inserted,
        ones: filter.occupied(),
        auto_clear: filter.auto_clear,
        sections,
        file_length: end,
    };
    let encoded = header.encode();
    writer.write_all(&encoded).map_err(failed)?;
    let mut written = encoded.len() as u64;
    for (section, (_, bytes)) in header.sections.iter().zip(&contents) {
        let padding = [0; 4096];
        writer.write_all(&padding[..(section.offset - written) as usize]).map_err(failed)?;
        writer.write_all(bytes).map_err(failed)?;
        written = section.offset + section.length;
    }
    writer.flush().map_err(failed)
}

/// Returns the texts of a filter that are not empty.
fn texts_of(filter: &Filter) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    let texts = [
        (NOTE, filter.texts.get(Texts::NOTE).as_bytes()),
        (NORMALIZATION, filter.texts.get(Texts::NORMALIZATION).as_bytes()),
        (KEYS, filter.texts.get(Texts::ENCODING).as_bytes()),
        (DATA, filter.texts.attached()),
    ];
    texts.into_iter().filter(|(_, text)| !text.is_empty())
}

/// A payload that was written to a file before its header.
pub(crate) struct Written {
    pub length: u64,
    pub checksum: u64,
    /// What the header says of it.
    pub inserted: u64,
    pub ones: u64,
}

/// Returns what stands before a large payload that is written first, because its length is not
/// known: the header, the hash and texts of `filter`, and zeros up to a page. It is as long
/// whatever was written.
pub(crate) fn before(filter: &Filter, plan: Plan, written: &Written) -> Vec<u8> {
    let texts: Vec<([u8; 4], &[u8])> = texts_of(filter).collect();
    let mut end = (FIXED + ENTRY * (texts.len() + 1)) as u64;
    let mut sections: Vec<Section> = Vec::new();
    for (tag, text) in &texts {
        let (offset, length) = (end.next_multiple_of(8), text.len() as u64);
        end = offset + length;
        sections.push(Section { tag: *tag, offset, length, checksum: xxh3_64(text) });
    }
    let offset = end.next_multiple_of(PAGE);
    let Written { length, checksum, inserted, ones } = *written;
    sections.push(Section { tag: BITS, offset, length, checksum });
    let header = Header {
        plan,
        hash: hash_of(&filter.hasher),
        inserted,
        ones,
        auto_clear: filter.auto_clear,
        sections,
        file_length: offset + length,
    };
    let mut bytes = header.encode();
    for (section, (_, text)) in header.sections.iter().zip(texts) {
        bytes.resize(section.offset as usize, 0);
        bytes.extend_from_slice(text);
    }
    bytes.resize(offset as usize, 0);
    bytes
}

/// Returns the header's own checksum, of a file that begins so.
pub(crate) fn header_checksum(start: &[u8]) -> u64 {
    u64::from_le_bytes(start[CHECKSUM].try_into().expect("8 bytes of the header"))
}

/// Writes a filter whose cells others may be changing, in pieces as they are copied, so that it takes
/// no second copy of them: `copy` gives the bytes of the payload from an offset on. `put` gets
/// bytes and where in the file they belong: all of it in ascending order, with zeros for the
/// header, and then the header, which tells the checksum of what was copied.
pub(crate) fn write_in_pieces(
    plan: Plan,
    hasher: &Hasher,
    inserted: u64,
    copy: impl Fn(u64, &mut [u8]),
    mut put: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> Result<()> {
    let failed = |cause| Error::Io { action: "cannot write the filter".to_owned(), cause };
    let length = plan.bytes();
    let offset = ((FIXED + ENTRY) as u64).next_multiple_of(alignment(length));
    put(0, &vec![0; offset as usize]).map_err(failed)?;
    let mut buffer = vec![0; length.min(PIECE) as usize];
    let (mut sum, mut ones, mut done) = (Xxh3Default::new(), 0, 0);
    while done < length {
        let piece = &mut buffer[..(length - done).min(PIECE) as usize];
        copy(done, piece);
        sum.update(piece);
        ones += words(piece).map(|word| u64::from(word.count_ones())).sum::<u64>();
        put(offset + done, piece).map_err(failed)?;
        done += piece.len() as u64;
    }
    let section = Section { tag: BITS, offset, length, checksum: sum.digest() };
    let header = Header {
        plan,
        hash: hash_of(hasher),
        inserted,
        ones,
        auto_clear: None,
        sections: vec![section],
        file_length: offset + length,
    };
    put(0, &header.encode()).map_err(failed)
}

/// Returns the number of a hash scheme, and its seed or the check of its key.
#[must_use]
pub fn hash_of(hasher: &Hasher) -> (u16, u64) {
    match &hasher.0 {
        Scheme::Xxh3 { seed } => (HASH_XXH3, *seed),
        Scheme::Sip13 { key } => (HASH_SIP13, key.check()),
        Scheme::Integers => (HASH_INTEGERS, 0),
        Scheme::Foreign { hash, seed } => (hash.id, *seed),
    }
}

/// Returns the hash of which [`hash_of`] returned this, under its secret key if it has one.
///
/// # Errors
///
/// Refuses unknown numbers, and a key that is missing or is another one.
pub fn hasher_of(hash: (u16, u64), key: Option<&SecretKey>) -> Result<Hasher> {
    match (hash, key) {
        ((HASH_XXH3, seed), _) => Ok(Hasher::xxh3(seed)),
        ((HASH_INTEGERS, _), _) => Ok(Hasher::integers()),
        ((HASH_SIP13, _), None) => Err(Error::Key { problem: "no secret key was given" }),
        ((HASH_SIP13, check), Some(key)) if key.check() != check => {
            Err(Error::Key { problem: "a different one was given" })
        }
        ((HASH_SIP13, _), Some(key)) => Ok(Hasher::sip13(*key)),
        ((other, seed), _) => match ForeignHash::from_id(other) {
            Some(hash) => Ok(Hasher::foreign(hash, seed)),
            None => Err(unknown("hash scheme", "1 to 3, or one of another program", other)),
        },
    }
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let (plan, sections, (hash, seed)) = (&self.plan, &self.sections, self.hash);
        let layout = if plan.is_sparse() { LAYOUT_ROARING } else { plan.kind().layout() };
        let mut header = Vec::with_capacity(FIXED + ENTRY * sections.len());
        header.extend(MAGIC);
        header.extend(VERSION.to_le_bytes());
        header.extend(plan.kind().id().to_le_bytes());
        header.extend((sections.len() as u32).to_le_bytes());
        header.extend(self.file_length.to_le_bytes());
        header.extend(plan.items().to_le_bytes());
        header.extend(plan.rate().to_bits().to_le_bytes());
        header.extend(plan.bits().to_le_bytes());
        header.extend(plan.probes().to_le_bytes());
        header.extend((plan.lines() as u16).to_le_bytes());
        header.extend(layout.to_le_bytes());
        header.extend(hash.to_le_bytes());
        // 1 is left out, as it was before there were others.
        header.extend((if plan.width == 1 { 0 } else { plan.width as u16 }).to_le_bytes());
        header.extend((plan.generations as u16).to_le_bytes());
        let (unit, span) = match plan.span {
            None => (0, 0),
            Some(Span::Millis(span)) => (SPAN_MILLIS, span),
            Some(Span::Items(span)) => (SPAN_ITEMS, span),
        };
        header.extend([plan.growth as u8, unit]);
        header.extend(seed.to_le_bytes());
        header.extend(self.inserted.min(MAX_INSERTED).to_le_bytes());
        header.extend(self.ones.to_le_bytes());
        header.extend(self.auto_clear.unwrap_or(0.0).to_bits().to_le_bytes());
        header.extend(span.to_le_bytes());
        header.extend(plan.tightening.to_bits().to_le_bytes());
        let (shard, shards) = plan.shard().unwrap_or((0, 0));
        header.extend(shard.to_le_bytes());
        header.extend(shards.to_le_bytes());
        header.resize(FIXED, 0);
        for section in sections {
            header.extend(section.tag);
            header.extend([0; 4]);
            header.extend(section.offset.to_le_bytes());
            header.extend(section.length.to_le_bytes());
            header.extend(section.checksum.to_le_bytes());
        }
        let checksum = xxh3_64(&header);
        header[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        header
    }
}

// ---------------------------------------------------------------------------------------- reading

/// Returns a field that is beyond the end of the header, whose length was checked: no file leads
/// here.
fn cut() -> Error {
    mismatch("header", "all of its fields", "fewer bytes")
}

/// Returns the length of the whole header, from its first bytes: all that can be said before its
/// checksum is.
fn header_length(start: &[u8]) -> Result<usize> {
    if start.len() < MAGIC.len() || start[..MAGIC.len()] != MAGIC {
        let start = start[..start.len().min(MAGIC.len())].escape_ascii().to_string();
        return Err(Error::NotAFilter { start });
    }
    if start.len() < FIXED {
        return Err(mismatch("header", "128 bytes", format_args!("{} bytes", start.len())));
    }
    let mut fields = Decoder(&start[8..FIXED]);
    let version = fields.u16().ok_or_else(cut)?;
    if version > VERSION {
        return Err(Error::NewerVersion { got: version, supported: VERSION });
    }
    if version == 0 {
        return Err(mismatch("version", "1", version));
    }
    let _kind = fields.u16().ok_or_else(cut)?;
    let sections = fields.u32().ok_or_else(cut)? as usize;
    if !(1..=MAX_SECTIONS).contains(&sections) {
        return Err(mismatch("number of sections", format_args!("1 to {MAX_SECTIONS}"), sections));
    }
    Ok(FIXED + ENTRY * sections)
}

/// Reads a whole header, of the length that [`header_length`] returned.
fn decode_header(header: &[u8]) -> Result<Header> {
    let stored = u64::from_le_bytes(header[CHECKSUM].try_into().expect("eight bytes"));
    let mut hash = Xxh3Default::new();
    hash.update(&header[..CHECKSUM.start]);
    hash.update(&[0; 8]);
    hash.update(&header[CHECKSUM.end..]);
    let computed = hash.digest();
    if stored != computed {
        let (expected, got) = (format_args!("{stored:016x}"), format_args!("{computed:016x}"));
        return Err(mismatch("checksum of the header", expected, got));
    }

    let mut fields = Decoder(&header[10..]);
    let kind_id = fields.u16().ok_or_else(cut)?;
    let kind = Kind::from_id(kind_id).ok_or_else(|| {
        let names = Kind::offered().map(|kind| format!("{} ({kind})", kind.id()));
        unknown("kind", names.collect::<Vec<_>>().join(", "), kind_id)
    })?;
    let _sections = fields.u32().ok_or_else(cut)?;
    let file_length = fields.u64().ok_or_else(cut)?;
    let (items, rate, bits) = (
        fields.u64().ok_or_else(cut)?,
        fields.f64().ok_or_else(cut)?,
        fields.u64().ok_or_else(cut)?,
    );
    let (probes, lines, layout) = (
        fields.u32().ok_or_else(cut)?,
        fields.u16().ok_or_else(cut)?,
        fields.u16().ok_or_else(cut)?,
    );
    let hash_id = fields.u16().ok_or_else(cut)?;
    let (width, generations) = (fields.u16().ok_or_else(cut)?, fields.u16().ok_or_else(cut)?);
    let [growth, unit] = fields.array().ok_or_else(cut)?;
    let (seed, inserted, ones, auto_clear) = (
        fields.u64().ok_or_else(cut)?,
        fields.u64().ok_or_else(cut)?,
        fields.u64().ok_or_else(cut)?,
        fields.f64().ok_or_else(cut)?,
    );
    let (span, tightening) = (fields.u64().ok_or_else(cut)?, fields.f64().ok_or_else(cut)?);
    let (shard, shards) = (fields.u32().ok_or_else(cut)?, fields.u32().ok_or_else(cut)?);
    let _checksum = fields.u64().ok_or_else(cut)?;

    let sparse = layout == LAYOUT_ROARING && kind.is_exact();
    if !sparse && layout != kind.layout() {
        let or_sparse = if kind.is_exact() { " or 1" } else { "" };
        let expected = format!("{}{or_sparse} in a filter of kind {kind}", kind.layout());
        let remedy = if layout < kind.layout() { RETIRED } else { NEWER };
        return Err(Error::Format { what: "layout", expected, got: layout.to_string(), remedy });
    }
    let span = match unit {
        0 if span == 0 => None,
        SPAN_MILLIS => Some(Span::Millis(span)),
        SPAN_ITEMS => Some(Span::Items(span)),
        _ => return Err(unknown("unit of the window", "1 (milliseconds) or 2 (items)", unit)),
    };
    if width == 1 {
        return Err(mismatch("width of a cell", "0, or 2 and more", width));
    }
    if shards == 1 || (shards == 0 && shard != 0) {
        return Err(mismatch("number of shards", "0, or 2 and more", shards));
    }
    let plan = Plan {
        kind,
        items,
        rate,
        bits,
        probes,
        lines: u32::from(lines),
        sparse,
        width: if width == 0 { 1 } else { u32::from(width) },
        growth: u32::from(growth),
        tightening,
        span,
        generations: u32::from(generations),
        shard,
        shards: shards.max(1),
    };
    let plan = plan.check().map_err(in_file)?;
    check_hash(kind, hash_id, seed)?;
    if hash_id == HASH_INTEGERS && seed != 0 {
        return Err(mismatch("hash seed", "0 for a bitmap", seed));
    }
    if inserted > MAX_INSERTED {
        return Err(mismatch("number of inserted keys", "at most 2^63", inserted));
    }
    let auto_clear = if auto_clear == 0.0 { None } else { Some(auto_clear) };
    if let Some(share) = auto_clear {
        check_auto_clear(&plan, share).map_err(in_file)?;
    }
    if plan.has_fixed_size() && ones > plan.cells() {
        let expected = format!("at most {}", plan.cells());
        return Err(mismatch("number of set bits", expected, ones));
    }

    let sections = header[FIXED..]
        .chunks_exact(ENTRY)
        .map(|entry| {
            let mut fields = Decoder(entry);
            let tag = fields.array().ok_or_else(cut)?;
            check_reserved(fields.array::<4>().ok_or_else(cut)?)?;
            let (offset, length, checksum) = (
                fields.u64().ok_or_else(cut)?,
                fields.u64().ok_or_else(cut)?,
                fields.u64().ok_or_else(cut)?,
            );
            Ok(Section { tag, offset, length, checksum })
        })
        .collect::<Result<Vec<Section>>>()?;
    let hash = (hash_id, seed);
    let header = Header { plan, hash, inserted, ones, auto_clear, sections, file_length };
    header.check_sections()?;
    Ok(header)
}

/// Refuses a hash that is not known, or is not that of the kind.
fn check_hash(kind: Kind, id: u16, seed: u64) -> Result<()> {
    if kind.is_foreign() {
        let hash = ForeignHash::from_id(id).filter(|hash| hash.kinds.contains(&kind));
        let hash = hash.ok_or_else(|| unknown("hash", format_args!("one of kind {kind}"), id))?;
        if seed != 0 && !hash.seeded {
            return Err(mismatch("hash seed", format_args!("0 for hash {}", hash.name), seed));
        }
        return Ok(());
    }
    if kind.is_exact() == (id == HASH_INTEGERS) && (HASH_XXH3..=HASH_INTEGERS).contains(&id) {
        return Ok(());
    }
    Err(unknown("hash", "1 (xxh3) or 2 (siphash), or 3 (integers) for a bitmap", id))
}

fn check_reserved<const N: usize>(bytes: [u8; N]) -> Result<()> {
    if bytes == [0; N] { Ok(()) } else { Err(unknown("reserved bytes", "zeros", "other bytes")) }
}

impl Header {
    fn check_sections(&self) -> Result<()> {
        let mut end = (FIXED + ENTRY * self.sections.len()) as u64;
        for (index, section) in self.sections.iter().enumerate() {
            let next = section.offset.checked_add(section.length);
            if section.offset < end || section.offset - end >= 4096 || next.is_none() {
                let expected = format!("an offset from {end} on, within a page");
                return Err(mismatch("place of a section", expected, section.offset));
            }
            end = section.offset + section.length;
            match section.tag {
                NOTE | NORMALIZATION | KEYS if section.length > MAX_TEXT as u64 => {
                    let expected = format!("at most {MAX_TEXT} bytes");
                    return Err(mismatch("length of a text", expected, section.length));
                }
                BITS if self.plan.has_fixed_size() && section.length != self.plan.bytes() => {
                    return Err(mismatch(
                        "length of the payload",
                        self.plan.bytes(),
                        section.length,
                    ));
                }
                BITS if !section.length.is_multiple_of(8) => {
                    return Err(mismatch(
                        "length of the payload",
                        "a multiple of 8",
                        section.length,
                    ));
                }
                MORE if !self.can_have_more() => return Err(self.unexpected(section)),
                GONE if !self.plan.kind().is_static() => return Err(self.unexpected(section)),
                MORE if !section.length.is_multiple_of(8) => {
                    return Err(mismatch(
                        "length of section MORE",
                        "a multiple of 8",
                        section.length,
                    ));
                }
                GONE if !section.length.is_multiple_of(LISTED as u64) => {
                    return Err(mismatch(
                        "length of section GONE",
                        "a multiple of 16",
                        section.length,
                    ));
                }
                tag @ (BITS | NOTE | NORMALIZATION | KEYS | DATA | MORE | GONE) => {
                    if self.sections[..index].iter().any(|earlier| earlier.tag == tag) {
                        let expected = format!("one section {}", section.name());
                        return Err(mismatch("section", expected, "several"));
                    }
                }
                tag if tag[0].is_ascii_lowercase() => {}
                _ => {
                    let expected = "BITS, KEYS, note or norm (or MORE or GONE, in some kinds)";
                    return Err(unknown("section", expected, section.name()));
                }
            }
        }
        if end != self.file_length {
            return Err(mismatch("length of the file", end, self.file_length));
        }
        if !self.sections.iter().any(|section| section.tag == BITS) {
            return Err(mismatch("section", "one section BITS", "none"));
        }
        Ok(())
    }

    /// Returns whether there may be keys beside the payload: a shard would have other shards' keys
    /// there, and a filter that clears itself would keep what it forgets.
    fn can_have_more(&self) -> bool {
        let kind = self.plan.kind();
        let grows = kind.can_outgrow() && self.plan.shard().is_none() && self.auto_clear.is_none();
        kind.is_static() || grows
    }

    fn unexpected(&self, section: &Section) -> Error {
        let more = if self.can_have_more() { ", MORE" } else { "" };
        let expected = format!("BITS{more}, note or norm in kind {}", self.plan.kind());
        unknown("section", expected, section.name())
    }

    fn section(&self, tag: [u8; 4]) -> Option<&Section> {
        self.sections.iter().find(|section| section.tag == tag)
    }

    fn payload(&self) -> &Section {
        self.section(BITS).expect("checked when read")
    }

    /// Checks the header of the file in section MORE, whose filter is asked with the same digests.
    fn check_added(&self, added: &Header) -> Result<()> {
        let (plan, what) = (added.plan, "filter in section MORE");
        if !plan.kind().can_grow() || plan.shard().is_some() {
            return Err(unknown(what, "a whole one of kind scalable", plan.kind()));
        }
        if added.hash != self.hash {
            let named = |(hash, seed): (u16, u64)| format!("hash {hash} with seed {seed:016x}");
            return Err(mismatch(what, named(self.hash), named(added.hash)));
        }
        Ok(())
    }

    fn hasher(&self, key: Option<&SecretKey>) -> Result<Hasher> {
        hasher_of(self.hash, key)
    }

    /// Returns the state of the filter, from a payload that is in these cells.
    fn any(&self, cells: Cells) -> Result<Content> {
        if self.plan.is_sparse() {
            self.payload().check(cells.bytes())?;
        }
        let content = Content::from_cells(self.plan, cells, self.ones)?;
        let measured = content.measured();
        if measured.bits().is_none() && measured.occupied() != self.ones {
            return Err(mismatch("number of set bits", self.ones, measured.occupied()));
        }
        Ok(content)
    }

    /// Checks that cells which no key uses are not in use, and how many others are.
    fn check_cells(&self, content: &Content) -> Result<()> {
        match content.measured().recount() {
            Some(ones) if ones == self.ones => Ok(()),
            Some(ones) => Err(mismatch("number of set bits", self.ones, ones)),
            None => Err(mismatch("unused bits", "zeros", "set bits")),
        }
    }
}

/// Reads and checks the texts, which are small.
fn read_text(texts: &mut Texts, section: &Section, bytes: &[u8]) -> Result<()> {
    let which = match section.tag {
        NOTE => Texts::NOTE,
        NORMALIZATION => Texts::NORMALIZATION,
        KEYS => Texts::ENCODING,
        DATA => {
            section.check(bytes)?;
            texts.attach(bytes.to_vec());
            return Ok(());
        }
        _ => return Ok(()),
    };
    section.check(bytes)?;
    let text = std::str::from_utf8(bytes)
        .map_err(|error| mismatch("text", "UTF-8", format_args!("other bytes ({error})")))?;
    texts.set(which, text.to_owned());
    Ok(())
}

/// What is found in the bytes of a whole file: everything but the payload, and where that is.
pub(crate) struct Parsed {
    header: Header,
    texts: Texts,
    /// The offset and length of the payload; with sections MORE and GONE, of all three and of what
    /// is between them.
    pub payload: (usize, usize),
    /// What is found in section MORE.
    added: Option<Box<Parsed>>,
}

/// Checks the header and the texts of a whole file, and the header of the file in section MORE.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed> {
    let mut parsed = parse_one(bytes)?;
    if let Some(section) = parsed.header.section(MORE) {
        let added = parse_one(in_section(bytes, section))?;
        // A scalable filter has no such section: so there is no end of them to follow.
        parsed.header.check_added(&added.header)?;
        parsed.added = Some(Box::new(added));
    }
    Ok(parsed)
}

/// As [`parse`], without looking into section MORE.
fn parse_one(bytes: &[u8]) -> Result<Parsed> {
    let length = header_length(bytes)?;
    if bytes.len() < length {
        let got = format!("{} bytes", bytes.len());
        return Err(mismatch("header", format_args!("{length} bytes"), got));
    }
    let header = decode_header(&bytes[..length])?;
    if header.file_length != bytes.len() as u64 {
        return Err(mismatch("length of the file", header.file_length, bytes.len()));
    }
    let mut texts = Texts::default();
    for section in &header.sections {
        read_text(&mut texts, section, in_section(bytes, section))?;
    }
    let mut queried = header.sections.iter().filter(|one| matches!(one.tag, BITS | MORE | GONE));
    let first = queried.next().expect("there is a payload");
    let last = queried.next_back().unwrap_or(first);
    let length = last.offset + last.length - first.offset;
    let payload = (first.offset as usize, length as usize);
    Ok(Parsed { header, texts, payload, added: None })
}

fn in_section<'a>(bytes: &'a [u8], section: &Section) -> &'a [u8] {
    &bytes[section.offset as usize..][..section.length as usize]
}

impl Parsed {
    pub(crate) fn plan(&self) -> &Plan {
        &self.header.plan
    }

    /// Checks the payload against its checksum, in the same pass as `look`, which is given the
    /// pieces, each of whole cache lines.
    pub(crate) fn check_payload(
        &self,
        payload: &[u8],
        look: impl Fn(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut sum = Xxh3Default::new();
        for piece in payload.chunks(LOOK) {
            sum.update(piece);
            look(piece)?;
        }
        self.header.payload().check_sum(sum.digest())
    }

    /// Returns the filter over these cells, which hold the payload.
    pub(crate) fn into_filter(self, cells: Cells, key: Option<&SecretKey>) -> Result<Filter> {
        let (header, hasher) = (&self.header, self.header.hasher(key)?);
        let content = match (header.section(MORE), header.section(GONE)) {
            (None, None) => header.any(cells)?,
            (more, gone) => {
                let within = |section: &Section| {
                    let start = section.offset as usize - self.payload.0;
                    start..start + section.length as usize
                };
                let parts = [Some(header.payload()), more, gone];
                let [bits, more, gone] = cells.cut(parts.map(|part| part.map_or(0..0, within)));
                let added = self.added.map(|added| added.into_added(more, key)).transpose()?;
                header.any(bits)?.with_parts(hasher, added, gone, header.inserted)?
            }
        };
        let Header { inserted, auto_clear, .. } = self.header;
        Ok(Filter { hasher, content, inserted, auto_clear, texts: self.texts })
    }

    /// Returns the filter of section MORE, which these cells hold.
    fn into_added(self, section: Cells, key: Option<&SecretKey>) -> Result<Filter> {
        let (offset, length) = self.payload;
        let payload = offset..offset + length;
        let [payload] = section.cut([payload]);
        self.into_filter(payload, key)
    }
}

pub(crate) fn view<'a>(bytes: &'a [u8], key: Option<&SecretKey>) -> Result<View<'a>> {
    let parsed = parse(bytes)?;
    let (offset, length) = parsed.payload;
    // SAFETY: the cells go into a filter that the view ties to the lifetime of `bytes`.
    let cells = unsafe { Cells::lent(&bytes[offset..][..length]) };
    Ok(View::new(parsed.into_filter(cells, key)?, bytes))
}

/// Checks every byte of a file: header, texts, payload, padding, and the count of set bits. A filter
/// with a secret key is checked without it.
///
/// [`Filter::view`] and [`Filter::open`] check only what they must, so they do not read a large
/// file completely.
///
/// # Errors
///
/// Fails if the bytes are not a filter, or are damaged.
pub fn verify(bytes: &[u8]) -> Result<()> {
    let Parsed { header, added, .. } = parse(bytes)?;
    verify_one(bytes, &header)?;
    let part = |tag| header.section(tag).map(|section| in_section(bytes, section));
    if let (Some(added), Some(file)) = (added, part(MORE)) {
        verify_one(file, &added.header)?;
    }
    part(GONE).map_or(Ok(()), check_order)
}

/// Checks every byte of a file but those within section MORE, of which only their sum.
fn verify_one(bytes: &[u8], header: &Header) -> Result<()> {
    let mut end = header_length(bytes)?;
    for section in &header.sections {
        check_padding(&bytes[end..section.offset as usize])?;
        section.check(in_section(bytes, section))?;
        end = (section.offset + section.length) as usize;
    }
    // SAFETY: dropped before `bytes` can be.
    let cells = unsafe { Cells::lent(in_section(bytes, header.payload())) };
    header.check_cells(&header.any(cells)?)
}

/// Checks that all digests of section GONE are found there.
fn check_order(gone: &[u8]) -> Result<()> {
    if is_in_order(gone) {
        return Ok(());
    }
    Err(mismatch("digests in section GONE", "ascending order", "another order"))
}

fn check_padding(bytes: &[u8]) -> Result<()> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    Err(mismatch("padding", "zeros", "other bytes"))
}

/// Reads shards that were written one after the other: see [`Filter::read_shards_from`].
pub(crate) fn read_shards(mut reader: impl Read, key: Option<&SecretKey>) -> Result<Filter> {
    let first = read(&mut reader, key)?;
    let (_, count) = first.plan().shard().unwrap_or((0, 1));
    // The number is untrusted: no memory is taken before a shard has arrived.
    let mut shards = vec![first];
    for _ in 1..count {
        shards.push(read(&mut reader, key)?);
    }
    Filter::from_shards(shards)
}

/// Reads a filter from a stream, up to its last byte and not further.
pub(crate) fn read(mut reader: impl Read, key: Option<&SecretKey>) -> Result<Filter> {
    let mut header = Vec::new();
    append(&mut reader, &mut header, FIXED as u64)?;
    let length = header_length(&header)?;
    append(&mut reader, &mut header, (length - FIXED) as u64)?;
    if header.len() < length {
        let got = format!("{} bytes", header.len());
        return Err(mismatch("header", format_args!("{length} bytes"), got));
    }
    let header = decode_header(&header)?;
    let hasher = header.hasher(key)?;

    let mut texts = Texts::default();
    let (mut content, mut added, mut denied) = (None, None, None);
    let mut position = length as u64;
    for section in &header.sections {
        let mut padding = Vec::new();
        append(&mut reader, &mut padding, section.offset - position)?;
        check_padding(&padding)?;
        match section.tag {
            BITS => {
                let cells = read_payload(&mut reader, section.length)?;
                section.check(cells.bytes())?;
                let state = header.any(cells)?;
                header.check_cells(&state)?;
                content = Some(state);
            }
            MORE => {
                let cells = read_payload(&mut reader, section.length)?;
                section.check(cells.bytes())?;
                let parsed = parse_one(cells.bytes())?;
                header.check_added(&parsed.header)?;
                verify_one(cells.bytes(), &parsed.header)?;
                added = Some(parsed.into_added(cells, key)?);
            }
            GONE => {
                let cells = read_payload(&mut reader, section.length)?;
                section.check(cells.bytes())?;
                check_order(cells.bytes())?;
                denied = Some(cells);
            }
            NOTE | NORMALIZATION | KEYS | DATA => {
                let mut text = Vec::new();
                append(&mut reader, &mut text, section.length)?;
                check_complete(section.length, text.len() as u64)?;
                read_text(&mut texts, section, &text)?;
            }
            _ => {
                let mut sum = Sum(Xxh3Default::new());
                let copied = io::copy(&mut reader.by_ref().take(section.length), &mut sum);
                check_complete(section.length, copied.map_err(read_failed)?)?;
                section.check_sum(sum.0.digest())?;
            }
        }
        position = section.offset + section.length;
    }
    let mut content: Content = content.expect("a header has one payload");
    if added.is_some() || denied.is_some() {
        let denied = denied.map_or_else(|| Cells::zeroed(0), Ok)?;
        content = content.with_parts(hasher, added, denied, header.inserted)?;
    }
    let Header { inserted, auto_clear, .. } = header;
    Ok(Filter { hasher, content, inserted, auto_clear, texts })
}

/// Takes bytes for their checksum only.
struct Sum(Xxh3Default);

impl Write for Sum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn read_failed(cause: io::Error) -> Error {
    Error::Io { action: "cannot read the filter".to_owned(), cause }
}

fn check_complete(expected: u64, got: u64) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(mismatch("part of the file", format_args!("{expected} bytes"), format_args!("{got} bytes")))
}

/// Reads up to `length` bytes; fewer if the stream ends.
fn append(reader: &mut impl Read, bytes: &mut Vec<u8>, length: u64) -> Result<()> {
    reader.by_ref().take(length).read_to_end(bytes).map(drop).map_err(read_failed)
}

/// Reads the payload into memory of our own.
///
/// The length is untrusted. So the first MiB must have arrived before memory is asked for,
/// and that memory is only reserved then: pages become resident as bytes come in to fill them.
fn read_payload(reader: &mut impl Read, length: u64) -> Result<Cells> {
    let mut first = Vec::new();
    append(reader, &mut first, length.min(1 << 20))?;
    if (first.len() as u64) < length.min(1 << 20) {
        check_complete(length, first.len() as u64)?;
    }
    let mut cells = Cells::zeroed(length)?;
    let (head, tail) = cells.bytes_mut()?.split_at_mut(first.len());
    head.copy_from_slice(&first);
    let mut filled = 0;
    while filled < tail.len() {
        match reader.read(&mut tail[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(read_failed(error)),
        }
    }
    check_complete(length, (first.len() + filled) as u64)?;
    Ok(cells)
}
