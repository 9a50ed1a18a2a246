//! Every size in inbloom is computed here, and nowhere else.
//!
//! A [`Plan`] fixes the shape of a filter before a byte is allocated: its kind, how many keys it is
//! for, the rate promised at that number, how many bits it takes and how many of them a key sets.
//! Give [`PlanBuilder`] any sufficient subset and it finds the rest:
//!
//! | given                         | found                                   |
//! |-------------------------------|-----------------------------------------|
//! | items, rate                   | the fewest bits, and their probes       |
//! | items, bytes or bits per key  | the probes with the lowest rate         |
//! | bytes, rate                   | how many items fit                      |
//! | any of these, and probes      | the same with the probes fixed          |
//!
//! The formulas for a classic filter of m bits, n keys and k probes are m = -n ln p / (ln 2)^2,
//! k = (m/n) ln 2 and p = (1 - e^(-kn/m))^k; they hold for large filters. [`model`] has the ones that
//! hold for all. Whatever is rounded is rounded towards a lower rate.
//!
//! The plan is also the file header, what `inbloom info` prints, and what two filters must share to
//! be merged.

mod builder;
pub(crate) mod cuckoo;
mod model;
pub(crate) mod ribbon;
mod shards;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::digest::Hasher;
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::kinds::buckets::{MAX_WIDTH, SLOTS, Slots};
pub use builder::PlanBuilder;
pub(crate) use model::{Lines, Rounds, mean_of_growth, missed_per_key};
use model::{classic_fill, classic_items, classic_rate};
pub(crate) use shards::cannot_shard;

/// The structure behind a filter. Numbers are on disk: they are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// One bit per possible integer: exact, ordered.
    Bitmap = 1,
    /// A Bloom filter: k probes anywhere in m bits. The fewest bits of the kinds that can grow full
    /// one key at a time, and k cache misses per key.
    Classic = 2,
    /// A Bloom filter whose probes share one cache line (or two, from about 2 * 10^-5 down). The default.
    Blocked = 3,
    /// A blocked filter of counters instead of bits: keys can be removed and counted.
    Counting = 4,
    /// Fingerprints in buckets, each in one of two: keys can be removed, in less than half of the bits
    /// that counters take.
    Cuckoo = 5,
    /// Fingerprints in tables that grow with the keys, at the promised rate whatever their number.
    Scalable = 6,
    /// Forgets: a key is found for as long as the window, in time or in keys, and little longer.
    Window = 7,
    /// Solved equations: the fewest bits, built once from all keys and not to be changed.
    Ribbon = 8,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: &'static [Kind] = &[
        Kind::Bitmap,
        Kind::Classic,
        Kind::Blocked,
        Kind::Counting,
        Kind::Cuckoo,
        Kind::Scalable,
        Kind::Window,
        Kind::Ribbon,
    ];

    /// The kind's name on the command line and in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bitmap => "bitmap",
            Kind::Classic => "classic",
            Kind::Blocked => "blocked",
            Kind::Counting => "counting",
            Kind::Cuckoo => "cuckoo",
            Kind::Scalable => "scalable",
            Kind::Window => "window",
            Kind::Ribbon => "ribbon",
        }
    }

    /// Whether keys can be taken out again.
    #[must_use]
    pub fn can_remove(self) -> bool {
        match self {
            Kind::Bitmap | Kind::Counting | Kind::Cuckoo => true,
            Kind::Classic | Kind::Blocked | Kind::Scalable | Kind::Window | Kind::Ribbon => false,
        }
    }

    /// Whether two filters of one plan can be merged into one that has what either has.
    #[must_use]
    pub fn can_merge(self) -> bool {
        match self {
            Kind::Bitmap | Kind::Classic | Kind::Blocked | Kind::Counting => true,
            Kind::Cuckoo | Kind::Scalable | Kind::Window => true,
            Kind::Ribbon => false,
        }
    }

    /// Whether it is built once from all its keys, by [`Filter::build`](crate::Filter::build), and never
    /// changed: it takes no insert, unless [`Filter::into_overlay`](crate::Filter::into_overlay) lets it.
    #[must_use]
    pub fn is_static(self) -> bool {
        self == Kind::Ribbon
    }

    /// Whether it keeps its rate beyond the planned items, by growing.
    #[must_use]
    pub fn can_grow(self) -> bool {
        self == Kind::Scalable
    }

    /// Whether a filter of this kind can go on past its planned items, in a growing part beside it:
    /// see [`Filter::into_growing`](crate::Filter::into_growing).
    #[must_use]
    pub fn can_outgrow(self) -> bool {
        matches!(self, Kind::Classic | Kind::Blocked)
    }

    /// Whether an insert adds a copy of a key that is there, so that it takes as many removals.
    #[must_use]
    pub fn counts(self) -> bool {
        matches!(self, Kind::Counting | Kind::Cuckoo)
    }

    /// The hash of a filter that is given none.
    pub(crate) fn default_hasher(self) -> Hasher {
        if self == Kind::Bitmap { Hasher::integers() } else { Hasher::default() }
    }

    pub(crate) fn from_id(id: u16) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| *kind as u16 == id)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.name() == text).ok_or_else(|| Error::Parameter {
            name: "kind",
            got: text.to_owned(),
            expected: one_of(Kind::ALL.iter().map(|kind| kind.name())),
        })
    }
}

/// Accuracy by name, as bits per key.
///
/// The rates are those of the classic kind: about 15%, 2.2%, 0.05% and 2 in ten million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tier {
    /// 4 bits per key.
    VerySmall,
    /// 8 bits per key.
    Small,
    /// 16 bits per key.
    #[default]
    Middle,
    /// 32 bits per key.
    High,
}

impl Tier {
    /// Every tier, from the smallest.
    pub const ALL: &'static [Tier] = &[Tier::VerySmall, Tier::Small, Tier::Middle, Tier::High];

    /// The tier's bits per key.
    #[must_use]
    pub fn bits_per_key(self) -> f64 {
        match self {
            Tier::VerySmall => 4.0,
            Tier::Small => 8.0,
            Tier::Middle => 16.0,
            Tier::High => 32.0,
        }
    }

    /// The tier's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Tier::VerySmall => "very-small",
            Tier::Small => "small",
            Tier::Middle => "middle",
            Tier::High => "high",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Tier {
    type Err = Error;

    fn from_str(text: &str) -> Result<Tier> {
        Tier::ALL.iter().copied().find(|tier| tier.name() == text).ok_or_else(|| Error::Parameter {
            name: "tier",
            got: text.to_owned(),
            expected: one_of(Tier::ALL.iter().map(|tier| tier.name())),
        })
    }
}

fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    format!("one of {}", names.collect::<Vec<_>>().join(", "))
}

/// The lowest rate that is offered. Below it a filter's answers are less reliable than the memory
/// that holds it, and no test here could tell.
pub const MIN_RATE: f64 = 1e-12;
/// The most items that a plan is made for.
pub const MAX_ITEMS: u64 = 1_000_000_000_000_000;
/// The most bits of a filter: 8 PiB.
pub const MAX_BITS: u64 = 1 << 56;
/// The most probes of a classic filter. 40 serve a rate of 10^-12.
pub const MAX_CLASSIC_PROBES: u32 = 64;

/// Bits of a block: one cache line.
pub(crate) const BLOCK_BITS: u64 = 512;
/// Blocks of a range at most. Both lines of a two-line key lie in one range, so that a range can be
/// one value of a Redis string: just below 1 MiB, because 2^20 itself costs 25% more there.
pub(crate) const RANGE_BLOCKS: u64 = 16_383;
/// A second line costs a second cache miss, so it has to save this share of the bits.
const SECOND_LINE_SAVES: f64 = 1.15;
/// Bits that a counter can have, and has unless told.
const COUNTERS: [u32; 3] = [2, 4, 8];
const DEFAULT_COUNTER: u32 = 4;
/// Factors by which a part of a scalable filter can grow; 0 is not at all.
const GROWTHS: [u32; 4] = [0, 2, 4, 8];
/// The share of the unspent rate that a growth leaves to later ones, unless told.
const DEFAULT_TIGHTENING: f64 = 0.8;
const TIGHTENINGS: RangeInclusive<f64> = 0.5..=0.99;
/// Steps in which a window forgets, at most, and unless told.
const MAX_GENERATIONS: u32 = 64;
const DEFAULT_GENERATIONS: u32 = 4;
/// The most shards that a filter is divided into.
pub(crate) const MAX_SHARDS: u32 = 1 << 20;
/// Up to this many possible values a bitmap of unknown content is kept dense: 1 GiB.
const DENSE_UNIVERSE: u64 = 1 << 33;

/// The shape of a filter, and what it promises.
///
/// ```
/// use inbloom::{Kind, Plan};
///
/// // Ten billion keys at one error in ten thousand, in a Bloom filter: 19.17 bits per key.
/// let plan = Plan::builder(Kind::Classic).items(10_000_000_000).rate(1e-4).build()?;
/// assert_eq!(format!("{:.2}", plan.bits_per_key()), "19.17");
/// assert_eq!(plan.probes(), 13);
/// assert!(plan.rate_at(10e9) <= 1e-4);
/// # Ok::<(), inbloom::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    pub(crate) kind: Kind,
    pub(crate) items: u64,
    pub(crate) rate: f64,
    pub(crate) bits: u64,
    pub(crate) probes: u32,
    pub(crate) lines: u32,
    pub(crate) sparse: bool,
    /// Bits of a cell.
    pub(crate) width: u32,
    /// Of the scalable kind.
    pub(crate) growth: u32,
    pub(crate) tightening: f64,
    /// Of the window kind.
    pub(crate) span: Option<Span>,
    pub(crate) generations: u32,
    /// Which shard of how many it is a plan of; the first of one if it is for a whole filter.
    pub(crate) shard: u32,
    pub(crate) shards: u32,
}

/// How far back a window reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// As many milliseconds of the clock that [`Filter::advance`](crate::Filter::advance) moves.
    Millis(u64),
    /// As many inserts; repetitions within one step do not count.
    Items(u64),
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Span::Items(items) => write!(f, "the last {items} keys"),
            Span::Millis(millis) => {
                let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")];
                match units.into_iter().find(|(unit, _)| millis.is_multiple_of(*unit)) {
                    Some((unit, name)) => write!(f, "{} {name}", millis / unit),
                    None => write!(f, "{millis} ms"),
                }
            }
        }
    }
}

impl Plan {
    /// Starts a plan for a kind. The rate is 0.01 unless it is given or follows from the rest.
    pub fn builder(kind: Kind) -> PlanBuilder {
        PlanBuilder::new(kind)
    }

    /// A plan from its bits and probes, as other programs state theirs (m and k).
    ///
    /// It is taken to be for the number of items at which half of the bits are set, and promises the
    /// rate at that number.
    ///
    /// ```
    /// use inbloom::{Kind, Plan};
    /// let plan = Plan::exact(Kind::Classic, 1_000_000, 7)?;
    /// assert_eq!((plan.bits(), plan.probes()), (1_000_000, 7));
    /// assert_eq!(plan.items(), 99_020); // about m/k ln 2
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn exact(kind: Kind, bits: u64, probes: u32) -> Result<Plan> {
        match kind {
            Kind::Bitmap => return Plan::builder(kind).universe(bits).build(),
            Kind::Classic | Kind::Blocked | Kind::Counting => {}
            Kind::Cuckoo | Kind::Scalable | Kind::Window | Kind::Ribbon => {
                return Err(Error::Unsupported {
                    kind,
                    verb: "be planned from bits and probes",
                    remedy: "give items and rate",
                });
            }
        }
        let one_line = kind == Kind::Classic || Rounds::PROBES.contains(&probes);
        let lines = if one_line { 1 } else { 2 };
        let mut plan = Plan { bits, probes, lines, ..Plan::blank(kind) };
        plan.check_shape()?;
        plan.items = (plan.items_at_fill(0.5).0 as u64).max(1);
        plan.rate = plan.rate_at(plan.items as f64);
        Ok(plan)
    }

    /// The plan of a blocked filter that was made before, from the numbers that tell it: for those
    /// who keep many small filters beside less than a file's header of 192 bytes. It is what it
    /// was, whatever [`Plan::builder`] would plan now.
    ///
    /// ```
    /// use inbloom::{Kind, Plan};
    /// let plan = Plan::builder(Kind::Blocked).items(1000).rate(0.001).build()?;
    /// let numbers = (plan.items(), plan.rate(), plan.bits(), plan.probes(), plan.lines());
    /// let (items, rate, bits, probes, lines) = numbers;
    /// assert_eq!(Plan::blocked(items, rate, bits, probes, lines)?, plan);
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn blocked(items: u64, rate: f64, bits: u64, probes: u32, lines: u32) -> Result<Plan> {
        Plan { items, rate, bits, probes, lines, ..Plan::blank(Kind::Blocked) }.check()
    }

    /// A plan of which nothing is known but the kind.
    pub(crate) const fn blank(kind: Kind) -> Plan {
        Plan {
            kind,
            items: 0,
            rate: 0.0,
            bits: 0,
            probes: 1,
            lines: 1,
            sparse: false,
            width: if matches!(kind, Kind::Counting) { DEFAULT_COUNTER } else { 1 },
            growth: 0,
            tightening: 0.0,
            span: None,
            generations: 0,
            shard: 0,
            shards: 1,
        }
    }

    /// Refuses fields that are out of range or do not fit the kind: they may come from a file header,
    /// which can hold anything.
    pub(crate) fn check(self) -> Result<Plan> {
        self.check_shape()?;
        if self.kind == Kind::Bitmap {
            if self.rate != 0.0 {
                let reason = "a bitmap is exact, its rate is 0";
                return Err(Error::Rate { got: self.rate, reason });
            }
        } else if !(0.0..=1.0).contains(&self.rate) {
            return Err(Error::Rate { got: self.rate, reason: RATE_RANGE });
        }
        Ok(self)
    }

    /// Refuses what no filter can be built from.
    fn check_shape(&self) -> Result<()> {
        let parameter = |name, got: u64, expected: &str| {
            Err(Error::Parameter { name, got: got.to_string(), expected: expected.to_owned() })
        };
        let plain = Plan { bits: self.bits, ..Plan::blank(self.kind) };
        match self.kind {
            Kind::Bitmap => {
                if self.bits == 0 || (!self.sparse && self.bits > MAX_BITS) {
                    return parameter("bits", self.bits, BITS_RANGE);
                }
                if self.probes != 1 || self.lines != 1 {
                    return parameter("probes", u64::from(self.probes), "1 for kind bitmap");
                }
            }
            Kind::Classic => {
                if !(1..=MAX_BITS).contains(&self.bits) {
                    return parameter("bits", self.bits, BITS_RANGE);
                }
                if !(1..=MAX_CLASSIC_PROBES).contains(&self.probes) {
                    return parameter("probes", u64::from(self.probes), "1 to 64 for kind classic");
                }
                if self.lines != 1 {
                    return parameter("lines", u64::from(self.lines), "1 for kind classic");
                }
            }
            Kind::Blocked | Kind::Counting | Kind::Window => {
                if !self.bits.is_multiple_of(BLOCK_BITS) {
                    return parameter("bits", self.bits, "a multiple of 512, which is a block");
                }
                if !(BLOCK_BITS..=MAX_BITS).contains(&self.bits) {
                    return parameter("bits", self.bits, BITS_RANGE);
                }
                if !(1..=2).contains(&self.lines) {
                    return parameter("lines", u64::from(self.lines), "1 or 2");
                }
                if !self.probes.is_multiple_of(self.lines)
                    || !Rounds::PROBES.contains(&(self.probes / self.lines))
                {
                    return parameter("probes", u64::from(self.probes), BLOCKED_PROBES);
                }
                let blocks = self.blocks();
                if self.lines == 2 && (blocks < 2 || !blocks.is_multiple_of(ranges(blocks))) {
                    return parameter("bits", self.bits, TWO_LINE_BITS);
                }
            }
            Kind::Cuckoo => {
                if !(cuckoo::MIN_WIDTH..=MAX_WIDTH).contains(&self.width) {
                    return parameter("width", u64::from(self.width), "2 to 56 for kind cuckoo");
                }
                let bucket = u64::from(self.width) * SLOTS as u64;
                if !self.bits.is_multiple_of(bucket) || !(bucket..=MAX_BITS).contains(&self.bits) {
                    return parameter("bits", self.bits, "whole buckets of four fingerprints");
                }
            }
            Kind::Ribbon => {
                if !(1..=ribbon::MAX_WIDTH).contains(&self.width) {
                    return parameter("width", u64::from(self.width), "1 to 32 for kind ribbon");
                }
                if !(1..=MAX_BITS).contains(&self.bits) {
                    return parameter("bits", self.bits, BITS_RANGE);
                }
            }
            Kind::Scalable => {
                if !(1..=MAX_ITEMS).contains(&self.items) {
                    return parameter("items", self.items, "1 to 10^15 for kind scalable");
                }
                if !(MIN_RATE..1.0).contains(&self.rate) {
                    return Err(Error::Rate { got: self.rate, reason: RATE_RANGE });
                }
                if !GROWTHS.contains(&self.growth) {
                    return parameter("growth", u64::from(self.growth), "2, 4 or 8, or 0 for none");
                }
                if !TIGHTENINGS.contains(&self.tightening) {
                    return Err(Error::Parameter {
                        name: "tightening",
                        got: self.tightening.to_string(),
                        expected: "0.5 to 0.99".to_owned(),
                    });
                }
            }
        }
        match self.kind {
            Kind::Counting if !COUNTERS.contains(&self.width) => {
                return parameter("width", u64::from(self.width), "2, 4 or 8 for kind counting");
            }
            Kind::Window => {
                if !(1..=MAX_GENERATIONS).contains(&self.generations) {
                    return parameter("generations", u64::from(self.generations), "1 to 64");
                }
                let length = match self.span {
                    Some(Span::Millis(length) | Span::Items(length)) => length,
                    None => 0,
                };
                if length < u64::from(self.generations) {
                    return parameter("window", length, "at least as long as it has generations");
                }
            }
            _ => {}
        }
        // What the kind does not have must be absent.
        let strange = |plan: &Plan| {
            let kind = plan.kind;
            let wide = matches!(kind, Kind::Counting | Kind::Cuckoo | Kind::Ribbon);
            let width = if wide { 0 } else { plan.width };
            // As bits, so that no number differs from itself.
            let growth = (plan.growth, plan.tightening.to_bits());
            let growth = if kind == Kind::Scalable { (0, 0) } else { growth };
            let window = (plan.span, plan.generations);
            let window = if kind == Kind::Window { (None, 0) } else { window };
            let fingerprints = matches!(kind, Kind::Cuckoo | Kind::Scalable | Kind::Ribbon);
            let probes = if fingerprints { (plan.probes, plan.lines) } else { (1, 1) };
            (width, growth, window, probes, plan.sparse && kind != Kind::Bitmap)
        };
        if strange(self) != strange(&plain) {
            return Err(Error::Parameter {
                name: "kind",
                got: self.kind.to_string(),
                expected: "one that has the other fields".to_owned(),
            });
        }
        if !(1..=MAX_SHARDS).contains(&self.shards) {
            return parameter("shards", u64::from(self.shards), "at most 2^20");
        }
        if self.shard >= self.shards {
            return parameter("shard", u64::from(self.shard), "below the number of shards");
        }
        if self.shards > 1 && matches!(self.kind, Kind::Bitmap | Kind::Ribbon) {
            return Err(cannot_shard(self.kind));
        }
        Ok(())
    }

    /// The structure behind the filter.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The number of distinct keys that the filter is for. It takes more, at a higher rate.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// The rate promised at [`Plan::items`] keys; 0 for the exact kinds.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The bits of the filter. For a bitmap, the number of possible values.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// The bytes that hold the bits, in memory and in a file (which adds a header, the texts, and up
    /// to a page of padding). For a sparse bitmap an upper estimate from the planned items, and for a
    /// ribbon filter a bound, which it stays below by about 1%.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self.kind {
            Kind::Bitmap if self.sparse => sparse_bytes(self.items, self.bits),
            Kind::Cuckoo => Slots::new(self.width).bytes(self.buckets()),
            Kind::Window => self.generation().bytes().saturating_mul(self.kept_generations()),
            _ => self.bits.div_ceil(64) * 8,
        }
    }

    /// Bits per planned key.
    #[must_use]
    pub fn bits_per_key(&self) -> f64 {
        let bits = match self.kind {
            Kind::Bitmap if self.sparse => self.bytes() as f64 * 8.0,
            Kind::Window => self.bits as f64 * self.kept_generations() as f64,
            _ => self.bits as f64,
        };
        bits / self.items.max(1) as f64
    }

    /// The bits that a key sets and a query tests.
    #[must_use]
    pub fn probes(&self) -> u32 {
        self.probes
    }

    /// For the blocked kind, the cache lines that a key touches: 1 or 2.
    #[must_use]
    pub fn lines(&self) -> u32 {
        self.lines
    }

    /// The cache lines that a query of a member touches: what it waits for, beyond the cache.
    #[must_use]
    pub fn cache_lines(&self) -> u32 {
        match self.kind {
            Kind::Bitmap | Kind::Blocked | Kind::Counting => self.lines,
            Kind::Classic => self.probes,
            Kind::Cuckoo | Kind::Scalable => 2,
            // Two neighbouring blocks of a word for each column, and a threshold.
            Kind::Ribbon => (2 * self.width).div_ceil(8) + 1,
            Kind::Window => self.lines * (self.generations + 1),
        }
    }

    /// The bits of a cell: 1, unless cells are counters or fingerprints. Of a large ribbon filter some are one
    /// bit narrower.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    /// For the scalable kind, the factor by which a part of it grows when it is full; 0 if it does not
    /// grow and says "full".
    #[must_use]
    pub fn growth(&self) -> u32 {
        self.growth
    }

    /// For the scalable kind, the share of the rate not yet spent that each growth leaves to later ones.
    #[must_use]
    pub fn tightening(&self) -> f64 {
        self.tightening
    }

    /// For the window kind, how far back it reaches.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        self.span
    }

    /// For the window kind, the steps in which it forgets. What falls out of the window is forgotten
    /// within one step more.
    #[must_use]
    pub fn generations(&self) -> u32 {
        self.generations
    }

    /// Which shard, from 0, of how many the plan is for, if it is not for a whole filter.
    #[must_use]
    pub fn shard(&self) -> Option<(u32, u32)> {
        (self.shards > 1).then_some((self.shard, self.shards))
    }

    /// Whether [`Plan::bytes`] tells the bytes of the payload exactly.
    pub(crate) fn has_fixed_size(&self) -> bool {
        match self.kind {
            Kind::Bitmap => !self.sparse,
            Kind::Scalable | Kind::Window | Kind::Ribbon => false,
            Kind::Classic | Kind::Blocked | Kind::Counting | Kind::Cuckoo => true,
        }
    }

    /// The buckets of a cuckoo filter.
    pub(crate) fn buckets(&self) -> u64 {
        self.bits / (u64::from(self.width) * SLOTS as u64)
    }

    /// The plan of one generation of a window.
    pub(crate) fn generation(&self) -> Plan {
        let items = self.items.div_ceil(u64::from(self.generations.max(1)));
        Plan {
            items,
            rate: self.rate / f64::from(self.generations + 1),
            bits: self.bits,
            probes: self.probes,
            lines: self.lines,
            ..Plan::blank(Kind::Blocked)
        }
    }

    /// The generations that a window keeps: one for each step, and the one that is being filled.
    pub(crate) fn kept_generations(&self) -> u64 {
        u64::from(self.generations) + 1
    }

    /// The share of counters expected to have reached their maximum at the planned items: those are
    /// never lowered again. 0 for the kinds without counters.
    #[must_use]
    pub fn saturation(&self) -> f64 {
        match self.kind {
            Kind::Counting => self.as_lines().overflow(self.items as f64, (1 << self.width) - 1),
            _ => 0.0,
        }
    }

    /// Whether a bitmap is kept compressed.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        self.sparse
    }

    /// The number of 64-byte blocks of a blocked filter.
    pub(crate) fn blocks(&self) -> u64 {
        self.bits / BLOCK_BITS
    }

    /// The rounds of probes that a key of a blocked filter takes in each of its lines.
    pub(crate) fn rounds(&self) -> Rounds {
        Rounds::of(self.probes / self.lines)
    }

    /// Cells that keys can use: one bit of each block of a blocked filter is reserved.
    pub(crate) fn cells(&self) -> u64 {
        match self.kind {
            Kind::Blocked => self.bits - self.blocks(),
            Kind::Window => (self.bits - self.blocks()).saturating_mul(self.kept_generations()),
            Kind::Scalable => self.items,
            Kind::Bitmap | Kind::Classic | Kind::Counting | Kind::Cuckoo | Kind::Ribbon => {
                self.bits / u64::from(self.width)
            }
        }
    }

    fn as_lines(&self) -> Lines {
        Lines::new(self.blocks() as f64, self.lines, self.rounds(), self.width)
    }

    /// The share of cells in use, from 0 to 1, if so many are.
    pub(crate) fn fill_of(&self, ones: u64) -> f64 {
        // A damaged file may have counted wrong; more than all is never set.
        (ones as f64 / self.cells() as f64).min(1.0)
    }

    /// How many distinct keys so many cells in use speak for. A cuckoo filter has an entry for every
    /// insert, and from their number alone copies of a key count as keys.
    #[must_use]
    pub fn estimate(&self, ones: u64) -> Estimate {
        let (items, error) = match self.kind {
            // A fingerprint for every insert, also of a key that looks like one that was there.
            Kind::Bitmap | Kind::Cuckoo | Kind::Ribbon => (ones as f64, 0.0),
            // A fingerprint each, but for those that an insert took for one that was there: none
            // at first, and the share of the rate at most.
            Kind::Scalable => {
                let half = ones as f64 * self.rate / 2.0;
                (ones as f64 + half, half)
            }
            Kind::Classic | Kind::Blocked | Kind::Counting | Kind::Window => {
                self.items_at_fill(ones as f64 / self.cells() as f64)
            }
        };
        Estimate { items, error }
    }

    /// The rate when the filter holds `items` distinct keys.
    ///
    /// ```
    /// # use inbloom::{Kind, Plan};
    /// let plan = Plan::builder(Kind::Blocked).items(1000).rate(0.01).build()?;
    /// assert_eq!(plan.rate_at(0.0), 0.0);
    /// assert!(plan.rate_at(1000.0) <= 0.01);
    /// assert!(plan.rate_at(2000.0) > 0.05);
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    #[must_use]
    pub fn rate_at(&self, items: f64) -> f64 {
        match self.kind {
            Kind::Bitmap => 0.0,
            Kind::Classic => classic_rate(items, self.bits as f64, self.probes),
            Kind::Blocked | Kind::Counting => self.as_lines().rate(items),
            Kind::Cuckoo => cuckoo::rate(items, self.buckets(), self.width),
            Kind::Ribbon => ribbon::mean_rate(self, items),
            Kind::Scalable => {
                if items <= 0.0 {
                    0.0
                } else {
                    self.rate
                }
            }
            Kind::Window => {
                let generations = f64::from(self.generations);
                let of_one = self.generation().rate_at(items / generations);
                (of_one * (generations + 1.0)).min(1.0)
            }
        }
    }

    /// The most items at which the rate is still at most `rate`.
    #[must_use]
    pub fn items_at(&self, rate: f64) -> u64 {
        match self.kind {
            Kind::Bitmap => self.bits,
            Kind::Cuckoo => {
                let fits = largest(MAX_ITEMS, |items| self.rate_at(items as f64) <= rate);
                fits.min(cuckoo::capacity(self.buckets()))
            }
            Kind::Scalable if rate < self.rate => 0,
            Kind::Scalable if self.growth == 0 => self.items,
            _ => largest(MAX_ITEMS, |items| self.rate_at(items as f64) <= rate),
        }
    }

    /// The share of bits expected to be set when the filter holds `items` distinct keys.
    #[must_use]
    pub fn fill_at(&self, items: f64) -> f64 {
        if items <= 0.0 {
            return 0.0;
        }
        match self.kind {
            Kind::Bitmap => items / self.bits as f64,
            Kind::Classic => classic_fill(items, self.bits as f64, self.probes),
            Kind::Blocked | Kind::Counting => self.as_lines().fill(items),
            Kind::Cuckoo | Kind::Scalable | Kind::Ribbon => (items / self.cells() as f64).min(1.0),
            Kind::Window => self.generation().fill_at(items / f64::from(self.generations)),
        }
    }

    /// The number of keys that a share of set bits speaks for, with one standard deviation.
    ///
    /// A filter whose bits are all set says only "many": the answer is then that for half a bit
    /// short of full.
    pub(crate) fn items_at_fill(&self, fill: f64) -> (f64, f64) {
        let usable = self.cells() as f64;
        let fill = fill.min((usable - 0.5) / usable);
        match self.kind {
            Kind::Bitmap | Kind::Cuckoo | Kind::Scalable | Kind::Ribbon => (fill * usable, 0.0),
            Kind::Classic => classic_items(fill, self.bits as f64, self.probes),
            Kind::Blocked | Kind::Counting => self.as_lines().items(fill),
            Kind::Window => {
                let all = self.kept_generations() as f64;
                let (items, error) = self.generation().items_at_fill(fill);
                (items * all, error * all.sqrt())
            }
        }
    }

    /// The rate when this share of bits is set.
    pub(crate) fn rate_at_fill(&self, fill: f64) -> f64 {
        match self.kind {
            // Every probe falls on a set bit with this probability, and independently.
            Kind::Classic => fill.min(1.0).powi(self.probes as i32),
            _ => self.rate_at(self.items_at_fill(fill).0),
        }
    }

    /// The first field in which two plans differ that must not differ between filters whose bits are
    /// combined, with both values. Items and rate may differ: they say what was intended.
    pub(crate) fn difference(&self, other: &Plan) -> Option<(&'static str, String, String)> {
        let layout = |plan: &Plan| if plan.sparse { "sparse" } else { "dense" }.to_owned();
        let span = |plan: &Plan| plan.span.map_or("none".to_owned(), |span| span.to_string());
        let shard = |plan: &Plan| format!("{} of {}", plan.shard, plan.shards);
        // A scalable filter's content depends on what it promises; the others' only on their shape.
        let scales = self.kind == Kind::Scalable;
        let promise = |plan: &Plan| if scales { plan.rate.to_string() } else { String::new() };
        let bits = |plan: &Plan| if scales { String::new() } else { plan.bits.to_string() };
        [
            ("kind", self.kind.to_string(), other.kind.to_string()),
            ("bits", bits(self), bits(other)),
            ("probes", self.probes.to_string(), other.probes.to_string()),
            ("lines", self.lines.to_string(), other.lines.to_string()),
            ("layout", layout(self), layout(other)),
            ("width", self.width.to_string(), other.width.to_string()),
            ("window", span(self), span(other)),
            ("generations", self.generations.to_string(), other.generations.to_string()),
            ("rate", promise(self), promise(other)),
            ("growth", self.growth.to_string(), other.growth.to_string()),
            ("tightening", self.tightening.to_string(), other.tightening.to_string()),
            ("shard", shard(self), shard(other)),
        ]
        .into_iter()
        .find(|(_, left, right)| left != right)
    }
}

const BITS_RANGE: &str = "at least 1 and at most 2^56";
const RATE_RANGE: &str = "it must lie strictly between 0 and 1";
const BLOCKED_PROBES: &str = "4, 8, 12 or 16, or 8, 16, 24 or 32 with two lines per key";
const TWO_LINE_BITS: &str = "two blocks or more that divide evenly into ranges of at most 16383 \
     blocks, for two lines per key";

/// The fewest ranges of at most [`RANGE_BLOCKS`] blocks.
pub(crate) fn ranges(blocks: u64) -> u64 {
    blocks.div_ceil(RANGE_BLOCKS)
}

/// The memory of a roaring bitmap of `items` integers that are scattered over the universe: three bytes
/// each (two, and the slack of growing vectors), and what it keeps for every range of 2^16 and of 2^32
/// values that has a member, a container and a bitmap in a tree. Measured, roaring 0.11, within 15%.
fn sparse_bytes(items: u64, universe: u64) -> u64 {
    let ranges = |size: u64, bytes: u64| universe.div_ceil(size).min(items).saturating_mul(bytes);
    items.saturating_mul(3).saturating_add(ranges(1 << 16, 72)).saturating_add(ranges(1 << 32, 184))
}

/// The largest n in 0..=max for which `fits` holds; `fits` must hold up to some n and not after.
fn largest(max: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, max + 1); // fits(low), and not fits(high)
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        *(if fits(middle) { &mut low } else { &mut high }) = middle;
    }
    low
}
