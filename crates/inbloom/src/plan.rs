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
mod model;

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
pub use builder::PlanBuilder;
pub(crate) use model::Rounds;
use model::{Lines, classic_fill, classic_items, classic_rate};

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
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: &'static [Kind] = &[Kind::Bitmap, Kind::Classic, Kind::Blocked];

    /// The kind's name on the command line and in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bitmap => "bitmap",
            Kind::Classic => "classic",
            Kind::Blocked => "blocked",
        }
    }

    /// Whether keys can be taken out again.
    #[must_use]
    pub fn can_remove(self) -> bool {
        self == Kind::Bitmap
    }

    /// Whether two filters of one plan can be merged into one that has what either has.
    #[must_use]
    pub fn can_merge(self) -> bool {
        match self {
            Kind::Bitmap | Kind::Classic | Kind::Blocked => true,
        }
    }

    /// Whether it keeps its rate beyond the planned items, by growing. None of these does.
    #[must_use]
    pub fn can_grow(self) -> bool {
        match self {
            Kind::Bitmap | Kind::Classic | Kind::Blocked => false,
        }
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
/// Up to this many possible values a bitmap of unknown content is kept dense: 1 GiB.
const DENSE_UNIVERSE: u64 = 1 << 33;

/// The shape of a filter, and what it promises.
///
/// ```
/// use inbloom::{Kind, Plan};
///
/// // Ten billion keys at one error in ten thousand, in a Bloom filter: 19.17 bits per key.
/// let plan = Plan::new(Kind::Classic).items(10_000_000_000).rate(1e-4).build()?;
/// assert_eq!(format!("{:.2}", plan.bits_per_key()), "19.17");
/// assert_eq!(plan.probes(), 13);
/// assert!(plan.rate_at(10e9) <= 1e-4);
/// # Ok::<(), inbloom::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    kind: Kind,
    items: u64,
    rate: f64,
    bits: u64,
    probes: u32,
    lines: u32,
    sparse: bool,
}

impl Plan {
    /// Starts a plan for a kind. The rate is 0.01 unless it is given or follows from the rest.
    #[expect(clippy::new_ret_no_self, reason = "Plan::new(kind).items(n).build() is the plan")]
    pub fn new(kind: Kind) -> PlanBuilder {
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
        if kind == Kind::Bitmap {
            return Plan::new(kind).universe(bits).build();
        }
        let one_line = kind != Kind::Blocked || Rounds::PROBES.contains(&probes);
        let lines = if one_line { 1 } else { 2 };
        let mut plan = Plan { kind, items: 0, rate: 0.0, bits, probes, lines, sparse: false };
        plan.check_shape()?;
        plan.items = (plan.items_at_fill(0.5).0 as u64).max(1);
        plan.rate = plan.rate_at(plan.items as f64);
        Ok(plan)
    }

    /// A plan from the fields of a file header, which may hold anything.
    pub(crate) fn from_parts(
        kind: Kind,
        items: u64,
        rate: f64,
        bits: u64,
        probes: u32,
        lines: u32,
        sparse: bool,
    ) -> Result<Plan> {
        let plan = Plan { kind, items, rate, bits, probes, lines, sparse };
        plan.check_shape()?;
        if kind == Kind::Bitmap {
            if rate != 0.0 {
                return Err(Error::Rate { got: rate, reason: "a bitmap is exact, its rate is 0" });
            }
        } else if !(0.0..=1.0).contains(&rate) {
            return Err(Error::Rate { got: rate, reason: RATE_RANGE });
        }
        Ok(plan)
    }

    /// Refuses what no filter can be built from.
    fn check_shape(&self) -> Result<()> {
        let parameter = |name, got: u64, expected: &str| {
            Err(Error::Parameter { name, got: got.to_string(), expected: expected.to_owned() })
        };
        let in_range = match self.kind {
            Kind::Bitmap => self.bits >= 1 && (self.sparse || self.bits <= MAX_BITS),
            Kind::Classic => (1..=MAX_BITS).contains(&self.bits),
            Kind::Blocked => {
                if !self.bits.is_multiple_of(BLOCK_BITS) {
                    return parameter("bits", self.bits, "a multiple of 512 for kind blocked");
                }
                (BLOCK_BITS..=MAX_BITS).contains(&self.bits)
            }
        };
        if !in_range {
            return parameter("bits", self.bits, "at least 1 and at most 2^56");
        }
        match self.kind {
            Kind::Bitmap => {
                if self.probes != 1 || self.lines != 1 {
                    return parameter("probes", u64::from(self.probes), "1 for kind bitmap");
                }
            }
            Kind::Classic => {
                if !(1..=MAX_CLASSIC_PROBES).contains(&self.probes) {
                    return parameter("probes", u64::from(self.probes), "1 to 64 for kind classic");
                }
                if self.lines != 1 {
                    return parameter("lines", u64::from(self.lines), "1 for kind classic");
                }
            }
            Kind::Blocked => {
                if !(1..=2).contains(&self.lines) {
                    return parameter("lines", u64::from(self.lines), "1 or 2 for kind blocked");
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
    /// to a page of padding). For a sparse bitmap an upper estimate from the planned items.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        if self.sparse { sparse_bytes(self.items, self.bits) } else { self.bits.div_ceil(64) * 8 }
    }

    /// Bits per planned key.
    #[must_use]
    pub fn bits_per_key(&self) -> f64 {
        let bits = if self.sparse { self.bytes() as f64 * 8.0 } else { self.bits as f64 };
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
            Kind::Bitmap | Kind::Blocked => self.lines,
            Kind::Classic => self.probes,
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

    /// The number of contiguous ranges into which a blocked filter's blocks divide evenly.
    pub(crate) fn ranges(&self) -> u64 {
        if self.lines == 2 { ranges(self.blocks()) } else { 1 }
    }

    /// The rounds of probes that a key of a blocked filter takes in each of its lines.
    pub(crate) fn rounds(&self) -> Rounds {
        Rounds::of(self.probes / self.lines)
    }

    /// Bits that keys can set: one bit of each block is reserved.
    pub(crate) fn usable_bits(&self) -> u64 {
        match self.kind {
            Kind::Blocked => self.bits - self.blocks(),
            Kind::Bitmap | Kind::Classic => self.bits,
        }
    }

    fn as_lines(&self) -> Lines {
        Lines { blocks: self.blocks() as f64, lines: self.lines, rounds: self.rounds() }
    }

    /// The rate when the filter holds `items` distinct keys.
    ///
    /// ```
    /// # use inbloom::{Kind, Plan};
    /// let plan = Plan::new(Kind::Blocked).items(1000).rate(0.01).build()?;
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
            Kind::Blocked => self.as_lines().rate(items),
        }
    }

    /// The most items at which the rate is still at most `rate`.
    #[must_use]
    pub fn items_at(&self, rate: f64) -> u64 {
        match self.kind {
            Kind::Bitmap => self.bits,
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
            Kind::Blocked => self.as_lines().fill(items),
        }
    }

    /// The number of keys that a share of set bits speaks for, with one standard deviation.
    ///
    /// A filter whose bits are all set says only "many": the answer is then that for half a bit
    /// short of full.
    pub(crate) fn items_at_fill(&self, fill: f64) -> (f64, f64) {
        let usable = self.usable_bits() as f64;
        let fill = fill.min((usable - 0.5) / usable);
        match self.kind {
            Kind::Bitmap => (fill * usable, 0.0),
            Kind::Classic => classic_items(fill, self.bits as f64, self.probes),
            Kind::Blocked => self.as_lines().items(fill),
        }
    }

    /// The rate when this share of bits is set.
    pub(crate) fn rate_at_fill(&self, fill: f64) -> f64 {
        match self.kind {
            // Every probe falls on a set bit with this probability, and independently.
            Kind::Classic => fill.min(1.0).powi(self.probes as i32),
            Kind::Bitmap | Kind::Blocked => self.rate_at(self.items_at_fill(fill).0),
        }
    }

    /// The first field in which two plans differ that must not differ between filters whose bits are
    /// combined, with both values. Items and rate may differ: they say what was intended.
    pub(crate) fn difference(&self, other: &Plan) -> Option<(&'static str, String, String)> {
        let layout = |plan: &Plan| if plan.sparse { "sparse" } else { "dense" }.to_owned();
        [
            ("kind", self.kind.to_string(), other.kind.to_string()),
            ("bits", self.bits.to_string(), other.bits.to_string()),
            ("probes", self.probes.to_string(), other.probes.to_string()),
            ("lines", self.lines.to_string(), other.lines.to_string()),
            ("layout", layout(self), layout(other)),
        ]
        .into_iter()
        .find(|(_, left, right)| left != right)
    }
}

const RATE_RANGE: &str = "it must lie strictly between 0 and 1";
const BLOCKED_PROBES: &str =
    "4, 8, 12 or 16 for kind blocked, or 8, 16, 24 or 32 with two lines per key";
const TWO_LINE_BITS: &str = "two blocks or more that divide evenly into ranges of at most 16383 \
     blocks, for two lines per key";

/// The fewest ranges of at most [`RANGE_BLOCKS`] blocks.
fn ranges(blocks: u64) -> u64 {
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
