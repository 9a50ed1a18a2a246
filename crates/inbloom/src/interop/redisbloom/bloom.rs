//! RedisBloom's Bloom filter: one link, or a chain of links that grows.
//!
//! **Idea.** A link is a plain Bloom filter for a number of items. When it is full, the next item
//! opens another link, `growth` times as large and with half the rate. The rates of all links
//! together therefore stay below the target rate: the first link has half of it, the second a
//! quarter, and so on. (A filter that does not grow has the whole rate.) An item is present if any
//! link has it. It is added to the newest link if none has it.
//!
//! **A link.** With a rate p for n entries:
//!
//!   bits per entry = -ln p / (ln 2)^2,  hashes = ceil(ln 2 * bits per entry)
//!   bits = trunc(n * bits per entry), at least 1, rounded up to whole 64-bit words
//!
//! Probe i is (a + i b) mod 2^64, modulo the bits: see [`Pair`]. Position x is bit x % 8 of byte
//! x / 8. For 1000 entries at 1%, growing: p = 0.005, 11.03 bits per entry, 8 hashes, 11,072 bits.
//! Links of RedisBloom 1 and 2.0 have a power of two of bits, which is then the modulus.
//!
//! **Header**, little-endian and packed, 20 bytes and 53 more for each link:
//!
//!   0 u64 items, 8 u32 links, 12 u32 options, 16 u32 growth; of each link
//!   0 u64 bytes, 8 u64 bits, 16 u64 size, 24 f64 rate, 32 f64 bits per entry, 40 u32 hashes,
//!   44 u64 entries, 52 u8 log2 of the modulus, or 0 if that is `bits`
//!
//! The links' bytes follow in chunks.
//!
//! **Cost.** A query looks into every link, the newest first. Each miss waits for about two cache
//! lines, a hit for as many as there are hashes. Opening a link takes no time, because the system
//! zeroes its memory when it is first written.
//!
//! **When not.** In small links the arithmetic sequence of probes collapses: at capacity 100 and
//! rate 10^-6 the measured rate is 60 times as high. Use another kind, unless RedisBloom reads or
//! wrote the filter.

use std::fmt;
use std::io::{self, Read, Write};

use super::error::{ForeignError, LoadError, Refused};
use super::memory::{self, Short, ZeroedArray};
use super::murmur::Pair;
use super::{MAX_COUNT, memory::check};
use crate::codec::Decoder;
use crate::kernels::{FITS_IN_L2, Towards, prefetch};

/// Options of the header. `NO_ROUND` says that links are no powers of two. `ENTRIES_ARE_BITS` is
/// known and kept, but says nothing about a filter that is already made.
const NO_ROUND: u32 = 1;
const ENTRIES_ARE_BITS: u32 = 2;
const HASH_64: u32 = 4;
const NO_SCALING: u32 = 8;

/// What the growth field of a filter that does not grow says, in RedisBloom's own dumps.
const DEFAULT_GROWTH: u32 = 2;

/// As RedisBloom has them, digit by digit: the bits per entry are compared to the last place.
#[expect(clippy::approx_constant, reason = "the number of hashes is computed with this one")]
const LN_2: f64 = 0.693_147_180_559_945;
const LN_2_SQUARED: f64 = 0.480_453_013_918_201;

/// The smallest rate that a double holds takes 1075 hashes. A link with more would only
/// take up the time of its queries.
const MAX_HASHES: u32 = 1100;

pub(super) const HEADER: usize = 20;
pub(super) const HEADER_OF_LINK: usize = 53;

/// How many items' cache lines are asked for before the first is looked at: with some ten lines
/// each, more would not fit into L1.
const RUN: usize = 16;
/// Of an older link, how many probes' lines are asked for: a miss looks at two on average.
const PROBES_AHEAD: usize = 2;

/// A Bloom filter of RedisBloom.
pub struct Bloom {
    options: u32,
    growth: u32,
    items: u64,
    /// At least one.
    layers: Vec<LinkBits>,
}

/// One link of a [`Bloom`], in numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Bytes of its bit array.
    pub bytes: u64,
    /// Its bits.
    pub bits: u64,
    /// Bits that an item sets.
    pub hashes: u32,
    /// Items that it is planned for.
    pub entries: u64,
    /// Items that it holds.
    pub size: u64,
    /// Its target rate.
    pub rate: f64,
    /// Bits per entry.
    pub bpe: f64,
    /// If not 0, probes are modulo 2 to this power, as in RedisBloom 1 and 2.0.
    pub log2_bits: u8,
}

/// A link and its bits.
struct LinkBits {
    link: Link,
    modulus: u64,
    array: ZeroedArray,
}

impl Link {
    /// The link that RedisBloom makes for so many entries. None if its bits cannot be counted.
    pub(super) fn plan(entries: u64, rate: f64) -> Option<Link> {
        // The system's logarithm, as RedisBloom takes it, and not that of `math`.
        let bpe = -rate.ln() / LN_2_SQUARED;
        let bits = (entries as f64 * bpe).trunc().max(1.0);
        // 2^63: far more than any memory, and well before the conversion would saturate.
        if bits > 9.2e18 {
            return None;
        }
        let bits = (bits as u64).next_multiple_of(64);
        let hashes = hashes(bpe);
        Some(Link { bytes: bits / 8, bits, hashes, entries, size: 0, rate, bpe, log2_bits: 0 })
    }

    /// The number that probes are taken modulo, if the link is one that can be asked.
    pub(super) fn modulus(&self) -> Result<u64, ForeignError> {
        let Link { bytes, bits, entries, size, rate, bpe, log2_bits, .. } = *self;
        if !(rate > 0.0 && rate < 1.0) {
            return Err(ForeignError::damaged("rate of a link", "between 0 and 1", rate));
        }
        // So that the number of hashes below is one: NaN and infinities are caught here too.
        if !(bpe > 0.0 && bpe < 1e4) {
            return Err(ForeignError::damaged(
                "bits per entry of a link",
                "above 0, below 10,000",
                bpe,
            ));
        }
        if self.hashes != hashes(bpe) || self.hashes > MAX_HASHES {
            let expected = format!("{} for {bpe} bits per entry", hashes(bpe).min(MAX_HASHES));
            return Err(ForeignError::damaged("hashes of a link", expected, self.hashes));
        }
        if entries == 0 {
            return Err(ForeignError::damaged("entries of a link", "at least 1", 0));
        }
        if size > MAX_COUNT {
            return Err(ForeignError::damaged(
                "items of a link",
                format!("at most {MAX_COUNT}"),
                size,
            ));
        }
        let modulus = match log2_bits {
            0 => bits,
            1..64 => 1 << log2_bits,
            _ => {
                return Err(ForeignError::damaged(
                    "log2 of a link's bits",
                    "at most 63",
                    log2_bits,
                ));
            }
        };
        if modulus == 0 || modulus > bits || bits.div_ceil(8) > bytes {
            let expected = format!("from 1 to {bits} in {bytes} bytes");
            return Err(ForeignError::damaged("modulus of a link", expected, modulus));
        }
        Ok(modulus)
    }
}

/// Never 0 for bits per entry above 0.
fn hashes(bpe: f64) -> u32 {
    (LN_2 * bpe).ceil() as u32
}

impl LinkBits {
    fn new(link: Link) -> Result<LinkBits, Short> {
        let modulus = if link.log2_bits == 0 { link.bits } else { 1 << link.log2_bits };
        Ok(LinkBits { link, modulus, array: ZeroedArray::zeroed(link.bytes)? })
    }

    #[inline]
    fn contains(&self, pair: Pair) -> bool {
        let bytes = self.array.bytes();
        let mut probes = pair.probes(self.link.hashes, self.modulus);
        probes.all(|at| bytes[(at / 8) as usize] & 1 << (at % 8) != 0)
    }

    fn set(&mut self, pair: Pair) {
        let bytes = self.array.bytes_mut();
        for at in pair.probes(self.link.hashes, self.modulus) {
            bytes[(at / 8) as usize] |= 1 << (at % 8);
        }
    }

    fn prefetch(&self, pair: Pair, probes: usize) {
        let base = self.array.bytes().as_ptr();
        for at in pair.probes(self.link.hashes, self.modulus).take(probes) {
            prefetch(base.wrapping_add((at / 8) as usize), Towards::Near);
        }
    }
}

impl Bloom {
    /// Creates an empty filter for `capacity` items. Each further link is `growth` times as large;
    /// with 0 the filter does not grow. The rate is between 0 and 1; RedisBloom 8 takes at most
    /// 0.25.
    ///
    /// # Errors
    ///
    /// Refuses values out of range, and a filter of more than `limit` bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::interop::redisbloom::Bloom;
    ///
    /// let filter = Bloom::new(0.01, 1000, 2, 1 << 20)?;
    /// let link = filter.links().next().unwrap();
    /// assert_eq!((link.rate, link.hashes, link.bits), (0.005, 8, 11_072));
    /// # Ok::<(), inbloom::interop::redisbloom::ForeignError>(())
    /// ```
    pub fn new(rate: f64, capacity: u64, growth: u32, limit: u64) -> Result<Bloom, ForeignError> {
        let wrong = |name, got: &dyn ToString, expected| ForeignError::Parameter {
            name,
            got: got.to_string(),
            expected,
        };
        // The half of the smallest rate is zero.
        let own_rate = if growth == 0 { rate } else { rate * 0.5 };
        if !(own_rate > 0.0 && rate < 1.0) {
            return Err(wrong("rate", &rate, "between 0 and 1"));
        }
        if capacity == 0 || capacity > MAX_COUNT {
            return Err(wrong("capacity", &capacity, "from 1 to 2^63 - 1"));
        }
        let link = Link::plan(capacity, own_rate);
        check(1, link.map(|link| link.bytes), limit)?;
        let link = link.expect("what cannot be counted is above every limit");
        let mut layers = Vec::new();
        memory::reserve(&mut layers, 1)?;
        layers.push(LinkBits::new(link)?);
        Ok(match growth {
            0 => {
                let options = NO_ROUND | HASH_64 | NO_SCALING;
                Bloom { options, growth: DEFAULT_GROWTH, items: 0, layers }
            }
            growth => Bloom { options: NO_ROUND | HASH_64, growth, items: 0, layers },
        })
    }

    /// Returns the hash of an item for this filter. Filters of RedisBloom 1 have another hash.
    #[inline]
    #[must_use]
    pub fn pair(&self, item: &[u8]) -> Pair {
        if self.options & HASH_64 != 0 { Pair::of(item) } else { Pair::of_32(item) }
    }

    /// Returns whether the item may be present: false is certain, true is probable.
    #[must_use]
    pub fn contains(&self, item: &[u8]) -> bool {
        self.contains_pair(self.pair(item))
    }

    /// Does the same as [`contains`](Bloom::contains), for an item that was hashed by
    /// [`pair`](Bloom::pair).
    #[inline]
    #[must_use]
    pub fn contains_pair(&self, pair: Pair) -> bool {
        self.layers.iter().rev().any(|layer| layer.contains(pair))
    }

    /// Queries many items. `found` is emptied first, and then has a result for each. The memory of
    /// one item is fetched while others are worked on.
    pub fn contains_many(&self, items: &[impl AsRef<[u8]>], found: &mut Vec<bool>) {
        found.clear();
        let ahead = self.bytes() > FITS_IN_L2 as u64;
        let mut pairs = [Pair { a: 0, b: 0 }; RUN];
        for run in items.chunks(RUN) {
            for (pair, item) in pairs.iter_mut().zip(run) {
                *pair = self.pair(item.as_ref());
                if ahead {
                    self.prefetch(*pair);
                }
            }
            found.extend(pairs[..run.len()].iter().map(|pair| self.contains_pair(*pair)));
        }
    }

    /// Answers for a run of items that are hashed already, as [`contains_many`](Bloom::contains_many)
    /// does.
    pub(super) fn contains_pairs(
        &self,
        pairs: impl Iterator<Item = Pair> + Clone,
        found: &mut [bool],
    ) {
        if self.bytes() > FITS_IN_L2 as u64 {
            pairs.clone().for_each(|pair| self.prefetch(pair));
        }
        for (pair, found) in pairs.zip(found) {
            *found = self.contains_pair(pair);
        }
    }

    fn prefetch(&self, pair: Pair) {
        let mut newest_first = self.layers.iter().rev();
        if let Some(newest) = newest_first.next() {
            newest.prefetch(pair, usize::MAX);
        }
        newest_first.for_each(|layer| layer.prefetch(pair, PROBES_AHEAD));
    }

    /// Adds an item, and returns whether it is certainly new. The filter may grow, to at most
    /// `limit` bytes.
    ///
    /// An item that is probably present is never refused.
    ///
    /// # Errors
    ///
    /// Fails if the item is new and there is no room for it.
    pub fn insert(&mut self, item: &[u8], limit: u64) -> Result<bool, Refused> {
        self.insert_pair(self.pair(item), limit)
    }

    /// Does the same as [`insert`](Bloom::insert), for an item that was hashed by
    /// [`pair`](Bloom::pair).
    ///
    /// # Errors
    ///
    /// Fails as [`insert`](Bloom::insert) does.
    pub fn insert_pair(&mut self, pair: Pair, limit: u64) -> Result<bool, Refused> {
        if self.contains_pair(pair) {
            return Ok(false);
        }
        if self.items >= MAX_COUNT {
            return Err(Refused::Full);
        }
        if self.newest().link.size >= self.newest().link.entries {
            self.grow(limit)?;
        }
        let newest = self.layers.last_mut().expect("at least one");
        newest.set(pair);
        newest.link.size += 1;
        self.items += 1;
        Ok(true)
    }

    fn grow(&mut self, limit: u64) -> Result<(), Refused> {
        let growth = self.growth().ok_or(Refused::Full)?;
        let Link { entries, rate, .. } = self.newest().link;
        if rate * 0.5 == 0.0 {
            return Err(Refused::Exhausted);
        }
        // Of the present form even behind links of an old one, whose hash it shares: every server
        // reads both.
        let link = entries
            .checked_mul(u64::from(growth))
            .filter(|entries| *entries <= MAX_COUNT)
            .and_then(|entries| Link::plan(entries, rate * 0.5));
        let bytes = link.and_then(|link| self.bytes().checked_add(link.bytes));
        check(self.layers.len() as u64 + 1, bytes, limit)?;
        let link = link.expect("what cannot be counted is above every limit");
        memory::reserve(&mut self.layers, 1)?;
        self.layers.push(LinkBits::new(link)?);
        Ok(())
    }

    fn newest(&self) -> &LinkBits {
        self.layers.last().expect("at least one")
    }

    /// Removes every item, and all links but the first.
    pub fn clear(&mut self) {
        self.layers.truncate(1);
        self.layers[0].array.bytes_mut().fill(0);
        self.layers[0].link.size = 0;
        self.items = 0;
    }

    /// Copies the filter.
    ///
    /// # Errors
    ///
    /// Fails if there is not enough memory.
    pub fn try_clone(&self) -> Result<Bloom, ForeignError> {
        let mut layers = Vec::new();
        memory::reserve(&mut layers, self.layers.len())?;
        for LinkBits { link, modulus, array } in &self.layers {
            layers.push(LinkBits { link: *link, modulus: *modulus, array: array.copy()? });
        }
        Ok(Bloom { options: self.options, growth: self.growth, items: self.items, layers })
    }

    /// Adds the items of another filter, which must have the same links. An item of both counts
    /// twice.
    ///
    /// # Errors
    ///
    /// Fails if the filters differ. The error has the name of what differs, and both values.
    pub fn unite(&mut self, other: &Bloom) -> Result<(), (&'static str, String, String)> {
        let shape = |link: Link| Link { size: 0, ..link };
        let differs =
            |field, left: u64, right: u64| Err((field, left.to_string(), right.to_string()));
        if self.options & HASH_64 != other.options & HASH_64 {
            return differs("options", self.options.into(), other.options.into());
        }
        if self.layers.len() != other.layers.len() {
            return differs("links", self.layers.len() as u64, other.layers.len() as u64);
        }
        for (here, there) in self.links().zip(other.links()) {
            if shape(here) != shape(there) {
                return Err(("link", format!("{:?}", shape(here)), format!("{:?}", shape(there))));
            }
        }
        for (here, there) in self.layers.iter_mut().zip(&other.layers) {
            let bytes = here.array.bytes_mut().iter_mut().zip(there.array.bytes());
            bytes.for_each(|(here, there)| *here |= there);
            // The sum over all links stays within what can be counted.
            let more = there.link.size.min(MAX_COUNT - self.items);
            here.link.size += more;
            self.items += more;
        }
        Ok(())
    }

    /// The share of bits that are set in each link, oldest first. Reads everything.
    pub(super) fn fills(&self) -> impl Iterator<Item = f64> + '_ {
        self.layers.iter().map(|layer| {
            let ones = layer.array.bytes().iter().map(|byte| u64::from(byte.count_ones()));
            ones.sum::<u64>() as f64 / layer.modulus as f64
        })
    }

    /// Returns the number of adds that returned "new".
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Returns the number of items that its links are planned for.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.links().fold(0, |sum, link| sum.saturating_add(link.entries))
    }

    /// Returns the bytes of all bit arrays.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.links().map(|link| link.bytes).sum()
    }

    /// Returns the bytes of memory on the heap: all bit arrays and their list, as an allocator
    /// rounds them up.
    #[must_use]
    pub fn memory(&self) -> u64 {
        memory::of(&self.layers, |layer| &layer.array)
    }

    /// Returns the links, oldest first.
    pub fn links(&self) -> impl DoubleEndedIterator<Item = Link> + ExactSizeIterator + '_ {
        self.layers.iter().map(|layer| layer.link)
    }

    /// Returns how many times as large as the last link the next one is, or `None` if the filter
    /// does not grow.
    #[must_use]
    pub fn growth(&self) -> Option<u32> {
        // No server writes a growth of 0 without the option, but it can mean nothing else.
        (self.options & NO_SCALING == 0 && self.growth > 0).then_some(self.growth)
    }

    /// Whether items are hashed to 64 bits, as everywhere but in RedisBloom 1.
    pub(super) fn has_wide_hash(&self) -> bool {
        self.options & HASH_64 != 0
    }

    /// The options field of the header.
    pub(super) fn options(&self) -> u32 {
        self.options
    }

    /// The growth field of the header, which has a value even if the filter does not grow.
    pub(super) fn growth_field(&self) -> u32 {
        self.growth
    }

    /// The bit arrays, oldest link first.
    pub(super) fn arrays(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.layers.iter().map(|layer| layer.array.bytes())
    }

    /// Returns the reply of `BF.SCANDUMP` for iterator 0.
    #[must_use]
    pub fn header(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER + HEADER_OF_LINK * self.layers.len());
        header.extend(self.items.to_le_bytes());
        header.extend((self.layers.len() as u32).to_le_bytes());
        header.extend(self.options.to_le_bytes());
        header.extend(self.growth.to_le_bytes());
        for link in self.links() {
            header.extend(link.bytes.to_le_bytes());
            header.extend(link.bits.to_le_bytes());
            header.extend(link.size.to_le_bytes());
            header.extend(link.rate.to_le_bytes());
            header.extend(link.bpe.to_le_bytes());
            header.extend(link.hashes.to_le_bytes());
            header.extend(link.entries.to_le_bytes());
            header.push(link.log2_bits);
        }
        header
    }

    /// Returns the reply of `BF.SCANDUMP` for an iterator from 1 on: the next iterator, and at most
    /// `most` bytes. The result is `None` at the end. RedisBloom returns at most
    /// [`CHUNK`](super::CHUNK) bytes.
    ///
    /// # Panics
    ///
    /// Panics if `most` is 0.
    #[must_use]
    pub fn chunk(&self, position: u64, most: usize) -> Option<(u64, &[u8])> {
        memory::chunk(self.arrays(), position, most)
    }

    /// Writes all bytes that `BF.SCANDUMP` returns in chunks.
    ///
    /// # Errors
    ///
    /// Fails if the writer fails.
    pub fn write_body(&self, mut writer: impl Write) -> io::Result<()> {
        self.arrays().try_for_each(|array| writer.write_all(array))
    }

    /// Replaces all bytes by those that [`write_body`](Bloom::write_body) has written for a filter
    /// of the same header.
    ///
    /// # Errors
    ///
    /// Fails if the reader fails or ends too early.
    pub fn read_body(&mut self, mut reader: impl Read) -> io::Result<()> {
        self.layers.iter_mut().try_for_each(|layer| reader.read_exact(layer.array.bytes_mut()))
    }

    /// Creates the filter that a header describes, without its bits. [`load`](Bloom::load) adds
    /// them.
    ///
    /// # Errors
    ///
    /// Refuses what RedisBloom refuses, and headers on which it would fail later: no links, a rate
    /// that is not between 0 and 1, a modulus beyond the bits, or too many hashes.
    pub fn from_header(header: &[u8], limit: u64) -> Result<Bloom, ForeignError> {
        let short = || ForeignError::damaged("header", "20 bytes and 53 per link", header.len());
        let mut fields = Decoder(header);
        let mut start = || Some((fields.u64()?, fields.u32()?, fields.u32()?, fields.u32()?));
        let (items, count, options, growth) = start().ok_or_else(short)?;
        if fields.0.len() as u64 != u64::from(count) * HEADER_OF_LINK as u64 {
            let expected = format!("20 + 53 * {count} bytes for {count} links");
            return Err(ForeignError::damaged("header", expected, header.len()));
        }
        let mut builder = BloomBuilder::new(items, options, growth, limit)?;
        for _ in 0..count {
            let link = link_of(&mut fields).ok_or_else(short)?;
            if link.bytes.checked_mul(8) != Some(link.bits) {
                let expected = format!("8 * {} bytes", link.bytes);
                return Err(ForeignError::damaged("bits of a link", expected, link.bits));
            }
            builder.claim(&link)?;
        }
        // All of them are known to be within the limit before the first is allocated.
        builder.reserve(count as usize)?;
        let mut fields = Decoder(&header[HEADER..]);
        while let Some(link) = link_of(&mut fields) {
            builder.push(link)?;
        }
        builder.finish()
    }

    /// Loads a chunk with its iterator, as `BF.SCANDUMP` returned them. Chunks may come in any
    /// order.
    ///
    /// # Errors
    ///
    /// Fails if the chunk does not fit the filter.
    pub fn load(&mut self, iterator: u64, data: &[u8]) -> Result<(), LoadError> {
        let length = data.len() as u64;
        if iterator == 0 || iterator < length {
            return Err(LoadError::BadData { iterator, length });
        }
        let place = (iterator - length).checked_sub(1);
        let Some((at, start)) = place.and_then(|place| memory::locate(self.arrays(), place)) else {
            return Err(LoadError::NoLink { iterator, bytes: self.bytes() });
        };
        let rest = &mut self.layers[at].array.bytes_mut()[start..];
        let room = rest.len() as u64;
        let place = rest.get_mut(..data.len()).ok_or(LoadError::TooBig { length, room })?;
        place.copy_from_slice(data);
        Ok(())
    }
}

fn link_of(fields: &mut Decoder<'_>) -> Option<Link> {
    let (bytes, bits, size) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let (rate, bpe) = (fields.f64()?, fields.f64()?);
    let (hashes, entries, log2_bits) = (fields.u32()?, fields.u64()?, fields.u8()?);
    Some(Link { bytes, bits, hashes, entries, size, rate, bpe, log2_bits })
}

/// Makes a filter from what a header or a payload says of it.
pub(super) struct BloomBuilder {
    bloom: Bloom,
    claimed_links: u64,
    claimed_bytes: u64,
    claimed_items: u64,
    limit: u64,
}

impl BloomBuilder {
    pub(super) fn new(
        items: u64,
        options: u32,
        growth: u32,
        limit: u64,
    ) -> Result<BloomBuilder, ForeignError> {
        let known = NO_ROUND | ENTRIES_ARE_BITS | HASH_64 | NO_SCALING;
        if options & !known != 0 {
            let expected = format!("none but the bits of {known:#x}");
            return Err(ForeignError::damaged("options", expected, format!("{options:#x}")));
        }
        let bloom = Bloom { options, growth, items, layers: Vec::new() };
        Ok(BloomBuilder { bloom, claimed_links: 0, claimed_bytes: 0, claimed_items: 0, limit })
    }

    /// Checks a link, and that there may be memory for it beside those before.
    pub(super) fn claim(&mut self, link: &Link) -> Result<(), ForeignError> {
        link.modulus()?;
        self.claimed_links += 1;
        let bytes = self.claimed_bytes.checked_add(link.bytes);
        check(self.claimed_links, bytes, self.limit)?;
        self.claimed_bytes = bytes.expect("what cannot be counted is above every limit");
        // Each is below 2^63 and the sum so far is too, or the filter is refused in the end.
        self.claimed_items = self.claimed_items.saturating_add(link.size);
        Ok(())
    }

    pub(super) fn reserve(&mut self, links: usize) -> Result<(), ForeignError> {
        Ok(memory::reserve(&mut self.bloom.layers, links)?)
    }

    /// Adds a link that a header describes, and returns its bytes to be filled.
    pub(super) fn push(&mut self, link: Link) -> Result<&mut [u8], ForeignError> {
        self.reserve(1)?;
        self.bloom.layers.push(LinkBits::new(link)?);
        Ok(self.bloom.layers.last_mut().expect("just pushed").array.bytes_mut())
    }

    pub(super) fn finish(self) -> Result<Bloom, ForeignError> {
        if self.bloom.layers.is_empty() {
            return Err(ForeignError::damaged("number of links", "at least 1", 0));
        }
        let items = self.bloom.items;
        if items != self.claimed_items || items > MAX_COUNT {
            let expected = format!("{}, the sum of its links", self.claimed_items.min(MAX_COUNT));
            return Err(ForeignError::damaged("number of items", expected, items));
        }
        Ok(self.bloom)
    }
}

/// Equal are filters that dump the same bytes.
impl PartialEq for Bloom {
    fn eq(&self, other: &Bloom) -> bool {
        self.header() == other.header() && self.arrays().eq(other.arrays())
    }
}

impl fmt::Debug for Bloom {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links: Vec<Link> = self.links().collect();
        let mut fields = formatter.debug_struct("Bloom");
        fields.field("items", &self.items).field("growth", &self.growth()).field("links", &links);
        fields.finish_non_exhaustive()
    }
}
