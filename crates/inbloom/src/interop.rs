//! Filters of other programs: read, query, change and write them.
//!
//! A filter cannot change its hash without its keys. So a filter of another program keeps that
//! program's hash and positions, as a [`Kind`] of its own behind the same [`Filter`].
//! [`OpenOptions`](crate::OpenOptions) recognizes the formats by their content, and
//! [`Filter::save`] writes a filter in the format that it was read from. inbloom's own file format
//! holds such filters too.
//!
//! **To add a format**, write its file or folder here and its line in `FORMATS`. The row says how
//! the format is recognized, read, written and sized, which hash it has, and which kinds.

mod base64;
mod bit_array;
mod datasketches;
mod dcso;
mod encoding;
mod fnv;
mod go;
mod guava;
mod gzip;
pub mod parquet;
pub mod redisbloom;
mod spark;

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use crate::digest::Hasher;
use crate::error::{Error, Result, in_file, mismatch};
use crate::filter::{Content, Filter};
use crate::foreign::ForeignHash;
pub use crate::foreign::{Container, Format};
use crate::kind::Kind;
use crate::kinds;
use crate::plan::{Plan, one_of};
use crate::storage::{Bits, Cells};
pub use encoding::KeyEncoding;

/// Every format.
static FORMATS: &[&FormatRow] = &[
    &guava::ROW,
    &spark::ROW,
    &go::ROW,
    &dcso::ROW,
    &redisbloom::ROW,
    &parquet::ROW,
    &datasketches::ROW,
];

/// Everything that is known about a format.
struct FormatRow {
    /// The name on the command line and in messages.
    name: &'static str,
    /// The program and type that the format belongs to.
    title: &'static str,
    /// Variants that writers can choose, or that the bytes do not show. They are bits of a set, in
    /// this order.
    variants: &'static [Variant],
    /// The structures of its filters.
    kinds: &'static [&'static kinds::Row],
    hashes: &'static [&'static ForeignHash],
    /// The usual encodings of keys, the most common one first.
    encodings: &'static [KeyEncoding],
    /// Whether its files record the planned number of keys and the target rate.
    records_plan: bool,
    recognize: fn(&[u8]) -> Likeness,
    read: ReadFilter,
    /// None if a file holds one filter at most.
    read_part: Option<ReadPart>,
    /// None if it is only read.
    write: Option<WriteFilter>,
    /// None if filters for it cannot be made here.
    plan: Option<PlanFilter>,
}

/// Reads a whole file. The argument has the variants that the caller gives, the result those that
/// the file has.
type ReadFilter = fn(&[u8], u32) -> Result<(Filter, u32)>;
/// Reads one of the filters of a file that may hold several, by its name.
type ReadPart = fn(&[u8], &str) -> Result<Filter>;
/// Plans a filter for a number of keys and a rate, as its program does.
type PlanFilter = fn(u64, f64, u32) -> Result<(Plan, Hasher)>;
/// Writes a filter of one of the format's kinds.
type WriteFilter = fn(&Filter, u32, &mut dyn Write) -> Result<()>;

/// A variant of a format.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Variant {
    /// The name on the command line.
    pub name: &'static str,
    /// What it means, in a few words.
    pub help: &'static str,
}

/// How likely bytes are of a format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    No,
    /// All fields and the length are right, but there is no magic.
    Possible,
    Certain,
}

impl kinds::Row {
    /// Returns the row of a kind of another program, by its number.
    pub(crate) fn foreign(id: u16) -> Option<&'static kinds::Row> {
        let mut rows = FORMATS.iter().flat_map(|format| format.kinds);
        rows.find(|row| row.kind.id() == id).copied()
    }
}

impl ForeignHash {
    /// Returns the hash of another program that has this number.
    pub(crate) fn from_id(id: u16) -> Option<&'static ForeignHash> {
        let mut hashes = FORMATS.iter().flat_map(|format| format.hashes);
        hashes.find(|hash| hash.id == id).copied()
    }
}

impl Format {
    /// Returns every format.
    pub fn all() -> impl Iterator<Item = Format> {
        FORMATS.iter().map(|row| Format(row.name))
    }

    fn row(self) -> &'static FormatRow {
        let row = FORMATS.iter().find(|row| row.name == self.0);
        row.expect("a format is made from its row")
    }

    /// Returns the name on the command line and in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Returns the program and type that the format belongs to.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.row().title
    }

    /// Returns the variants of the format.
    #[must_use]
    pub fn variants(self) -> &'static [Variant] {
        self.row().variants
    }

    /// Returns the usual encodings of keys, the most common one first. No format records them.
    #[must_use]
    pub fn key_encodings(self) -> &'static [KeyEncoding] {
        self.row().encodings
    }

    /// Returns whether its files record the planned number of keys and the target rate. For other
    /// formats the plan is that of a filter with half of its bits set.
    #[must_use]
    pub fn records_plan(self) -> bool {
        self.row().records_plan
    }

    /// Returns whether inbloom can create filters for it.
    #[must_use]
    pub fn can_build(self) -> bool {
        self.row().plan.is_some()
    }

    /// Returns the format of a whole file's bytes, if it is one of these.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Ambiguous`] if several formats are possible.
    pub fn recognize(bytes: &[u8]) -> Result<Option<Format>> {
        let likely = FORMATS.iter().map(|row| (row.name, (row.recognize)(bytes)));
        let likely: Vec<_> = likely.filter(|(_, likeness)| *likeness != Likeness::No).collect();
        let most = likely.iter().map(|(_, likeness)| *likeness).max();
        let best = likely.iter().filter(|(_, likeness)| Some(*likeness) == most);
        let candidates: Vec<&str> = best.map(|(name, _)| *name).collect();
        match candidates[..] {
            [] => Ok(None),
            [name] => Ok(Some(Format(name))),
            _ => Err(Error::Ambiguous { candidates: candidates.join(", ") }),
        }
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Format> {
        Format::all().find(|format| format.name() == text).ok_or_else(|| Error::Parameter {
            name: "format",
            got: text.to_owned(),
            expected: one_of(FORMATS.iter().map(|row| row.name)),
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

/// A format without any of its variants.
impl From<Format> for Container {
    fn from(format: Format) -> Container {
        Container { format, variants: 0 }
    }
}

impl Container {
    /// Creates a container from a format and the names of its variants.
    ///
    /// # Errors
    ///
    /// Refuses a variant that the format does not have.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::interop::Container;
    ///
    /// let old = Container::new("guava".parse()?, ["mitz32"])?;
    /// assert_eq!(old.to_string(), "guava mitz32");
    /// assert!(Container::new("guava".parse()?, ["gzip"]).is_err());
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn new<'a>(
        format: Format,
        variants: impl IntoIterator<Item = &'a str>,
    ) -> Result<Container> {
        let known = format.variants();
        let mut chosen = Container::from(format);
        for name in variants {
            let at = known.iter().position(|variant| variant.name == name);
            let at = at.ok_or_else(|| Error::Parameter {
                name: "variant",
                got: name.to_owned(),
                expected: match known {
                    [] => format!("left out: {format} has none"),
                    _ => one_of(known.iter().map(|variant| variant.name)),
                },
            })?;
            chosen.variants |= 1 << at;
        }
        Ok(chosen)
    }

    /// Returns the format.
    #[must_use]
    pub fn format(self) -> Format {
        self.format
    }

    /// Returns the names of the variants that are chosen.
    pub fn variants(self) -> impl Iterator<Item = &'static str> {
        let known = self.format.variants().iter().enumerate();
        known.filter(move |(at, _)| self.variants >> at & 1 == 1).map(|(_, variant)| variant.name)
    }

    /// Returns the plan and the hash of a filter for this number of keys and this rate, as the
    /// other program would choose them: see [`Filter::for_format`].
    ///
    /// # Errors
    ///
    /// Refuses what the other program refuses, and formats that inbloom only reads.
    pub fn plan(self, items: u64, rate: f64) -> Result<(Plan, Hasher)> {
        let row = self.format.row();
        let Some(plan) = row.plan else {
            return Err(Error::Parameter {
                name: "format",
                got: row.name.to_owned(),
                expected: one_of(Format::all().filter(|one| one.can_build()).map(Format::name)),
            });
        };
        if !(0.0..1.0).contains(&rate) {
            return Err(Error::Rate { got: rate, reason: "it must be below 1, and not negative" });
        }
        let (plan, hasher) = plan(items, rate, self.variants)?;
        Ok((plan.check()?, hasher))
    }

    /// Reads a filter from the bytes of a whole file.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a filter of this format.
    pub fn read(self, bytes: &[u8]) -> Result<Filter> {
        let read = (self.format.row().read)(bytes, self.variants);
        let (mut filter, variants) = read.map_err(in_file)?;
        filter.texts.set_container(Some(Container { variants, ..self }));
        Ok(filter)
    }

    /// Reads one filter of a file that may hold several, by its name: see
    /// [`OpenOptions::open`](crate::OpenOptions::open). The filter is read-only, because saving it
    /// would replace the whole file.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Part`] if there is no such filter.
    pub fn read_part(self, bytes: &[u8], part: &str) -> Result<Filter> {
        let Some(read) = self.format.row().read_part else {
            return Err(Error::Part { part: part.to_owned(), names: Vec::new() });
        };
        let mut filter = read(bytes, part)?;
        filter.texts.set_container(Some(self));
        Ok(filter)
    }

    /// Refuses a filter that this format cannot hold.
    fn check(self, filter: &Filter) -> Result<WriteFilter> {
        let row = self.format.row();
        let is_its_own = row.kinds.iter().any(|kind| kind.kind == filter.plan().kind());
        match row.write {
            Some(write) if is_its_own => Ok(write),
            write => Err(Error::OtherScheme {
                kind: filter.plan().kind(),
                format: row.name,
                read_only: write.is_none(),
            }),
        }
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format.name())?;
        self.variants().try_for_each(|variant| write!(f, " {variant}"))
    }
}

impl Kind {
    /// Returns the format that the kind belongs to, if it is a kind of another program.
    #[must_use]
    pub fn format(self) -> Option<Format> {
        let mut rows = FORMATS.iter();
        let row = rows.find(|row| row.kinds.iter().any(|kind| kind.kind == self))?;
        Some(Format(row.name))
    }
}

impl Filter {
    /// Creates an empty filter for another program, with the size that the program would choose.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::Filter;
    /// use inbloom::interop::Format;
    ///
    /// // As BloomFilter.create(Funnels.stringFunnel(UTF_8), 1000, 0.01) in Java.
    /// let guava: Format = "guava".parse()?;
    /// let mut filter = Filter::for_format(guava.into(), 1000, 0.01)?;
    /// filter.insert("alice")?;
    /// let mut bytes = Vec::new();
    /// filter.write_as(guava.into(), &mut bytes)?; // What BloomFilter.readFrom reads.
    /// assert_eq!(bytes.len(), 1206);
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refuses what the other program refuses, and formats that inbloom only reads.
    pub fn for_format(container: Container, items: u64, rate: f64) -> Result<Filter> {
        let (plan, hasher) = container.plan(items, rate)?;
        let mut filter = Filter::with_hasher(plan, hasher)?;
        filter.texts.set_container(Some(container));
        Ok(filter)
    }

    /// Returns the format that [`Filter::save`] writes: that of another program, if the filter was
    /// read from it or created for it, or `None` for inbloom's own format.
    #[must_use]
    pub fn container(&self) -> Option<Container> {
        self.texts.container()
    }

    /// Sets the format that [`Filter::save`] writes: `None` for inbloom's own format, which holds
    /// every filter.
    ///
    /// # Errors
    ///
    /// [`Error::OtherScheme`] if the format belongs to another hash than that of the filter.
    pub fn set_container(&mut self, container: Option<Container>) -> Result<()> {
        if let Some(container) = container {
            container.check(self)?;
        }
        self.texts.set_container(container);
        Ok(())
    }

    /// Writes the filter in a format of another program, whatever [`Filter::container`] is.
    ///
    /// # Errors
    ///
    /// [`Error::OtherScheme`] if the format belongs to another hash than that of the filter.
    pub fn write_as(&self, container: Container, mut writer: impl Write) -> Result<()> {
        container.check(self)?(self, container.variants, &mut writer)
    }

    /// Returns a filter whose content is one array of bits, from its words, in order.
    fn from_words_of(
        plan: Plan,
        hasher: Hasher,
        words: impl ExactSizeIterator<Item = u64>,
    ) -> Result<Filter> {
        let mut cells = Cells::zeroed(plan.bytes())?;
        let (places, _) = cells.bytes_mut()?.as_chunks_mut::<8>();
        debug_assert_eq!(places.len(), words.len());
        let mut ones = 0;
        // Bits behind the last one are dropped: no query reads them, and our own format has zeros there.
        let mut left = plan.bits();
        for (place, word) in places.iter_mut().zip(words) {
            let word = if left < 64 { word & ((1 << left) - 1) } else { word };
            left = left.saturating_sub(64);
            *place = word.to_le_bytes();
            ones += u64::from(word.count_ones());
        }
        let content = Content::with_bits(plan, Bits { cells, ones });
        let inserted = content.measured().estimate(None).rounded();
        Ok(Filter::from_parts(hasher, content, inserted))
    }
}

/// Returns the words of these bytes, whose length is a multiple of 8.
fn words_from(bytes: &[u8], word: fn([u8; 8]) -> u64) -> impl ExactSizeIterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(move |bytes| word(*bytes))
}

/// Writes a header, and the words of a filter behind it.
fn write_words(
    filter: &Filter,
    header: &[u8],
    word: fn(u64) -> [u8; 8],
    writer: &mut dyn Write,
) -> Result<()> {
    /// The bytes that are converted in one step.
    const PIECE: usize = 64 << 10;
    writer.write_all(header).map_err(write_failed)?;
    let payload = filter.content.measured().payload();
    let mut turned = Vec::with_capacity(PIECE.min(payload.len()));
    for piece in payload.chunks(PIECE) {
        turned.clear();
        turned.extend(words_from(piece, u64::from_le_bytes).flat_map(word));
        writer.write_all(&turned).map_err(write_failed)?;
    }
    writer.flush().map_err(write_failed)
}

fn write_failed(cause: io::Error) -> Error {
    Error::Io { action: "cannot write the filter".to_owned(), cause }
}

/// Returns the error for bytes that end within a part of the file.
fn short(what: &'static str, expected: usize, bytes: &[u8]) -> Error {
    mismatch(what, format_args!("{expected} bytes"), format_args!("{} bytes", bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::tests::runs_of_eight;

    #[test]
    fn numbers_and_names_of_formats_are_their_own() {
        let mut kinds: Vec<u16> =
            FORMATS.iter().flat_map(|row| row.kinds).map(|row| row.kind.id()).collect();
        let mut hashes: Vec<u16> =
            FORMATS.iter().flat_map(|row| row.hashes).map(|hash| hash.id).collect();
        let mut names: Vec<&str> = FORMATS.iter().map(|row| row.name).collect();
        let counts = (kinds.len(), hashes.len(), names.len());
        kinds.sort_unstable();
        kinds.dedup();
        hashes.sort_unstable();
        hashes.dedup();
        names.sort_unstable();
        names.dedup();
        assert_eq!((kinds.len(), hashes.len(), names.len()), counts);
        assert!(kinds.iter().chain(&hashes).all(|id| (64..0xf000).contains(id)));
        assert!(kinds.iter().all(|id| Kind::new(*id).is_foreign()));
        for row in FORMATS {
            assert!(row.variants.len() <= 32, "{}", row.name);
            for hash in row.hashes {
                assert!(hash.kinds.iter().all(|kind| kind.is_foreign()), "{}", hash.name);
            }
        }
    }

    #[test]
    fn keys_hashed_together_have_the_digests_of_each() {
        for hash in FORMATS.iter().flat_map(|row| row.hashes) {
            let hasher = Hasher::foreign(hash, if hash.seeded { 9 } else { 0 });
            for (keys, _) in runs_of_eight() {
                // One run, one key less, and one more.
                let more: Vec<&[u8]> = keys.iter().chain(&keys[..1]).map(|key| &key[..]).collect();
                for count in 7..=9 {
                    let [mut together, mut each] = [const { Vec::new() }; 2];
                    hasher.append_all(&more[..count], &mut together);
                    more[..count].iter().for_each(|key| hasher.append_digests(*key, &mut each));
                    assert_eq!(together, each, "{}: {keys:?}", hash.name);
                }
            }
        }
    }

    /// Batches of all lengths, in filters that fit into a cache and in one that does not, with few
    /// probes and with more than are worked on together.
    #[test]
    fn batches_answer_as_single_calls() {
        let keys: Vec<Vec<u8>> = runs_of_eight().flat_map(|(keys, _)| keys).step_by(5).collect();
        let (held, absent) = keys.split_at(keys.len() / 2);
        let mut tried = 0;
        for hash in FORMATS.iter().flat_map(|row| row.hashes) {
            let bit_arrays = hash.kinds.iter().filter(|kind| Plan::exact(**kind, 64, 1).is_ok());
            for (kind, bits) in bit_arrays.flat_map(|kind| [(*kind, 9600), (*kind, 9_600_000)]) {
                for probes in [1, 2, 7, 1500] {
                    let Ok(plan) = Plan::exact(kind, bits, probes) else { continue };
                    let [mut single, mut batch] = [(); 2]
                        .map(|()| Filter::with_hasher(plan, Hasher::foreign(hash, 0)).unwrap());
                    let each: Vec<bool> =
                        held.iter().map(|key| single.insert(key).unwrap()).collect();
                    let [mut new, mut found] = [const { Vec::new() }; 2];
                    batch.insert_many(held, &mut new).unwrap();
                    assert_eq!(new, each, "{kind}: {bits} bits, {probes} probes");
                    assert!(batch.fill() == single.fill(), "{kind}: {bits} bits, {probes} probes");
                    for some in [&keys[..], held, absent, &keys[..1], &keys[..9], &keys[..0]] {
                        batch.contains_many(some, &mut found);
                        let each: Vec<bool> = some.iter().map(|key| single.contains(key)).collect();
                        assert_eq!(found, each, "{kind}: {bits} bits, {probes} probes");
                    }
                    batch.contains_many(held, &mut found);
                    assert!(found.iter().all(|found| *found), "{kind}: a key is lost");
                    tried += 1;
                }
            }
        }
        assert!(tried >= 8 * 2 * 4, "{tried} filters");
    }
}
