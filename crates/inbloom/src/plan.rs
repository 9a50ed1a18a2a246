//! Every size in inbloom is computed here and in the `plan.rs` of each kind, and nowhere else.
//!
//! A [`Plan`] fixes the shape of a filter before a byte is allocated: its kind, how many keys it is
//! for, the target rate at that number, how many bits it takes, and how many of them a key sets.
//! [`PlanBuilder`] takes any sufficient subset and computes the rest:
//!
//! | given                         | computed                                |
//! |-------------------------------|-----------------------------------------|
//! | items, rate                   | the fewest bits, and their probes       |
//! | items, bytes or bits per key  | the probes with the lowest rate         |
//! | bytes, rate                   | the number of items that fit            |
//! | any of these, and probes      | the same with the probes fixed          |
//!
//! The formulas for a classic filter of m bits, n keys and k probes are m = -n ln p / (ln 2)^2, k =
//! (m/n) ln 2 and p = (1 - e^(-kn/m))^k; they hold for large filters. [`model`] has formulas that
//! hold for filters of any size. All rounding is towards a lower rate.
//!
//! The plan is also the file header, what `inbloom info` prints, and what two filters must share to
//! be merged.

mod builder;
pub(crate) mod lines;
pub(crate) mod model;
pub(crate) mod planner;
pub(crate) mod search;
mod shards;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Display};
use core::str::FromStr;

use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::kind::Kind;
pub use builder::PlanBuilder;
pub(crate) use model::{Rounds, mean_of_growth, missed_per_key};

/// Accuracy by name, as bits per key.
///
/// The rates are those of the classic kind: about 15%, 2.2%, 0.05% and 2 in ten million.
///
/// ```
/// use inbloom::{Kind, Plan, Tier};
///
/// let plan = Plan::builder(Kind::Classic).items(1_000_000).tier(Tier::Small).build()?;
/// assert_eq!(plan.bytes(), 1_000_000); // 8 bits per key
/// assert_eq!("small".parse::<Tier>()?, Tier::Small);
/// # Ok::<(), inbloom::Error>(())
/// ```
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

    /// Returns the tier's bits per key.
    #[must_use]
    pub fn bits_per_key(self) -> f64 {
        match self {
            Tier::VerySmall => 4.0,
            Tier::Small => 8.0,
            Tier::Middle => 16.0,
            Tier::High => 32.0,
        }
    }

    /// Returns the tier's name on the command line.
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

/// Lists the names to choose from.
pub(crate) fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    format!("one of {}", names.collect::<Vec<_>>().join(", "))
}

/// The lowest rate that is offered. At a lower rate, memory errors would be more likely than false
/// positives, and no test could measure it.
pub const MIN_RATE: f64 = 1e-12;
/// The largest number of items of a plan.
pub const MAX_ITEMS: u64 = 1_000_000_000_000_000;
/// The largest number of bits of a filter: 8 PiB.
pub const MAX_BITS: u64 = 1 << 56;
/// The largest number of shards of a filter.
pub(crate) const MAX_SHARDS: u32 = 1 << 20;

/// The sizes of a filter, and its target rate.
///
/// ```
/// use inbloom::{Kind, Plan};
///
/// // Ten billion keys, one false positive in 10,000 absent keys: 19.17 bits per key.
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
    /// The growth factor of a scalable filter.
    pub(crate) growth: u32,
    pub(crate) tightening: f64,
    /// The length of a window.
    pub(crate) span: Option<Span>,
    pub(crate) generations: u32,
    /// The shard that the plan is for, and the number of shards: 0 of 1 for a whole filter.
    pub(crate) shard: u32,
    pub(crate) shards: u32,
}

/// The length of a window.
///
/// ```
/// use inbloom::{Kind, Plan, Span};
/// # use std::time::Duration;
///
/// let hour = Plan::builder(Kind::Window).items(1000).window(Duration::from_secs(3600)).build()?;
/// assert_eq!(hour.span(), Some(Span::Millis(3_600_000)));
/// let last = Plan::builder(Kind::Window).last(1000).build()?;
/// assert_eq!(last.span(), Some(Span::Items(1000)));
/// # Ok::<(), inbloom::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// A number of milliseconds, by the clock that [`Filter::advance`](crate::Filter::advance)
    /// sets.
    Millis(u64),
    /// A number of inserts. Repetitions of a key within one step do not count.
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
    /// Starts a plan for a kind. The rate is 0.01 unless it is given or follows from other numbers.
    pub fn builder(kind: Kind) -> PlanBuilder {
        PlanBuilder::new(kind)
    }

    /// Makes a plan from its bits and probes, as other programs give them (m and k).
    ///
    /// The plan is for the number of items at which half of the bits are set. Its target rate is
    /// the rate at that number.
    ///
    /// # Errors
    ///
    /// Refuses numbers that the kind cannot have.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::{Kind, Plan};
    /// let plan = Plan::exact(Kind::Classic, 1_000_000, 7)?;
    /// assert_eq!((plan.bits(), plan.probes()), (1_000_000, 7));
    /// assert_eq!(plan.items(), 99_020); // about m/k ln 2
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn exact(kind: Kind, bits: u64, probes: u32) -> Result<Plan> {
        kind.planner().exact(kind, bits, probes)
    }

    /// Returns this plan for the number of items at which half of its cells are in use.
    pub(crate) fn half_full(mut self) -> Result<Plan> {
        self.check_shape()?;
        self.items = (self.items_at_fill(0.5).0 as u64).max(1);
        self.rate = self.rate_at(self.items as f64);
        Ok(self)
    }

    /// Returns a plan with a kind and no other values.
    pub(crate) const fn blank(kind: Kind) -> Plan {
        Plan {
            kind,
            items: 0,
            rate: 0.0,
            bits: 0,
            probes: 1,
            lines: 1,
            sparse: false,
            width: 1,
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
        if self.kind.is_exact() {
            if self.rate != 0.0 {
                let reason = "must be 0 for kind bitmap, which is exact";
                return Err(Error::Rate { got: self.rate, reason });
            }
        } else if !(0.0..=1.0).contains(&self.rate) {
            return Err(Error::Rate { got: self.rate, reason: RATE_RANGE });
        }
        Ok(self)
    }

    /// Refuses sizes that no filter can have.
    fn check_shape(&self) -> Result<()> {
        self.kind.planner().check(self)?;
        self.check_absent()?;
        if !(1..=MAX_SHARDS).contains(&self.shards) {
            return parameter("shards", self.shards, "at most 2^20");
        }
        if self.shard >= self.shards {
            return parameter("shard", self.shard, "below the number of shards");
        }
        if self.shards > 1 { self.kind.check_divisible() } else { Ok(()) }
    }

    /// Refuses fields that the kind does not have.
    fn check_absent(&self) -> Result<()> {
        let (kind, blank) = (self.kind, Plan::blank(self.kind));
        // As bits, so that no number differs from itself.
        let growth = |plan: &Plan| (plan.growth, plan.tightening.to_bits());
        let window = |plan: &Plan| (plan.span, plan.generations);
        let probes = |plan: &Plan| (plan.probes, plan.lines);
        let fits = (kind.has_wide_cells() || self.width == blank.width)
            && (kind.can_grow() || growth(self) == growth(&blank))
            && (kind.forgets() || window(self) == window(&blank))
            && (kind.has_probes() || probes(self) == probes(&blank))
            && (kind.is_exact() || !self.sparse);
        if fits { Ok(()) } else { parameter("kind", kind, "one that has the other fields") }
    }

    /// Returns the kind: the structure behind the filter.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the number of distinct keys that the filter is for. It takes more keys, at a higher
    /// rate.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Returns the target rate: the false-positive rate at [`Plan::items`] keys. It is 0 for exact
    /// kinds.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns the bits of the filter. For a bitmap it is the number of possible values.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// Returns the bytes that hold the bits, in memory and in a file. A file adds a header, the
    /// texts, and up to a page of padding. For a sparse bitmap this is an upper estimate from the
    /// planned items. For a ribbon filter it is a bound, and the filter is about 1% smaller.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.kind.planner().bytes(self)
    }

    /// Returns the bits per planned key.
    #[must_use]
    pub fn bits_per_key(&self) -> f64 {
        self.kind.planner().all_bits(self) / self.items.max(1) as f64
    }

    /// Returns the number of bits that a key sets and a query tests.
    #[must_use]
    pub fn probes(&self) -> u32 {
        self.probes
    }

    /// Returns the cache lines that a key of a blocked filter touches: 1 or 2.
    #[must_use]
    pub fn lines(&self) -> u32 {
        self.lines
    }

    /// Returns the cache lines that a query of a member touches, beyond the cache.
    #[must_use]
    pub fn cache_lines(&self) -> u32 {
        self.kind.planner().cache_lines(self)
    }

    /// Returns the bits of a slot: 1, unless slots are counters or fingerprints. Some slots of a
    /// large ribbon filter are one bit narrower.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Returns the factor by which a shard of a scalable filter grows when it is full. The result
    /// is 0 if it does not grow.
    #[must_use]
    pub fn growth(&self) -> u32 {
        self.growth
    }

    /// Returns the share of the unused rate that each growth of a scalable filter leaves to later
    /// ones.
    #[must_use]
    pub fn tightening(&self) -> f64 {
        self.tightening
    }

    /// Returns the length of a window.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        self.span
    }

    /// Returns the number of steps in which keys of a window expire. A key expires at most one step
    /// late.
    #[must_use]
    pub fn generations(&self) -> u32 {
        self.generations
    }

    /// Returns the shard, from 0, and the number of shards, if the plan is not for a whole filter.
    #[must_use]
    pub fn shard(&self) -> Option<(u32, u32)> {
        (self.shards > 1).then_some((self.shard, self.shards))
    }

    /// Returns whether [`Plan::bytes`] is exactly the size of the payload.
    pub(crate) fn has_fixed_size(&self) -> bool {
        self.kind.planner().has_fixed_size(self)
    }

    /// Returns the largest number of keys that certainly fit. The result is `None` for a kind that
    /// takes any number of keys.
    #[must_use]
    pub fn capacity(&self) -> Option<u64> {
        self.kind.planner().capacity(self)
    }

    /// Returns whether keys may be refused with this number of occupied slots.
    #[must_use]
    pub fn is_full(&self, occupied: u64) -> bool {
        self.kind.planner().is_full(self, occupied)
    }

    /// Returns the share of counters that is expected at their maximum with the planned items.
    /// Those are never lowered again. The result is 0 for kinds without counters.
    #[must_use]
    pub fn saturation(&self) -> f64 {
        self.kind.planner().saturation(self)
    }

    /// Returns whether a bitmap is kept compressed.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        self.sparse
    }

    /// Returns the number of positions: of cells, used by keys or not.
    pub(crate) fn positions(&self) -> u64 {
        self.kind.planner().positions(self)
    }

    /// Returns the number of cells that keys can use. One bit of each block of a blocked filter is
    /// reserved.
    pub(crate) fn cells(&self) -> u64 {
        self.kind.planner().cells(self)
    }

    /// Returns the share of cells in use, from 0 to 1, when this number of cells is in use.
    pub(crate) fn fill_of(&self, ones: u64) -> f64 {
        // A damaged file may have counted wrong; more than all is never set.
        (ones as f64 / self.cells() as f64).min(1.0)
    }

    /// Estimates the number of distinct keys from the number of occupied slots. A cuckoo filter has
    /// an entry for every insert, so copies of a key count as keys here.
    #[must_use]
    pub fn estimate(&self, ones: u64) -> Estimate {
        let (items, error) = self.kind.planner().estimate(self, ones);
        Estimate { items, error }
    }

    /// Returns the false-positive rate of a filter that holds `items` distinct keys.
    ///
    /// # Examples
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
        self.kind.planner().rate_at(self, items)
    }

    /// Returns the largest number of items at which the rate is at most `rate`.
    #[must_use]
    pub fn items_at(&self, rate: f64) -> u64 {
        self.kind.planner().items_at(self, rate)
    }

    /// Returns the expected share of set bits when the filter holds `items` distinct keys.
    #[must_use]
    pub fn fill_at(&self, items: f64) -> f64 {
        if items <= 0.0 { 0.0 } else { self.kind.planner().fill_at(self, items) }
    }

    /// Estimates the number of keys from a share of set bits, with one standard deviation.
    ///
    /// If all bits are set, the number has no upper bound. The result is then that for half a bit
    /// short of full.
    pub(crate) fn items_at_fill(&self, fill: f64) -> (f64, f64) {
        let usable = self.cells() as f64;
        let fill = fill.min((usable - 0.5) / usable);
        self.kind.planner().items_at_fill(self, fill)
    }

    /// Returns the rate when this share of bits is set.
    pub(crate) fn rate_at_fill(&self, fill: f64) -> f64 {
        self.kind.planner().rate_at_fill(self, fill)
    }

    /// Returns the first field in which two plans differ, with both values. It compares only fields
    /// that must agree before bits are combined. Items and rate may differ, because the bits do not
    /// depend on them.
    pub(crate) fn difference(&self, other: &Plan) -> Option<(&'static str, String, String)> {
        let layout = |plan: &Plan| if plan.sparse { "sparse" } else { "dense" }.to_owned();
        let span = |plan: &Plan| plan.span.map_or("none".to_owned(), |span| span.to_string());
        let shard = |plan: &Plan| format!("{} of {}", plan.shard, plan.shards);
        // The content of one that grows depends on its rate; the others' only on their shape.
        let scales = self.kind.can_grow();
        let promise = |plan: &Plan| if scales { plan.rate.to_string() } else { String::new() };
        // Most callers chose keys and a rate, and never saw the bits that follow from them.
        let bits = |plan: &Plan| match plan.items {
            _ if scales || self.bits == other.bits => String::new(),
            items if items > 0 && plan.rate > 0.0 => {
                format!("{} ({items} keys at {:.2e})", plan.bits, plan.rate)
            }
            _ => plan.bits.to_string(),
        };
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

pub(crate) const BITS_RANGE: &str = "at least 1 and at most 2^56";
pub(crate) const RATE_RANGE: &str = "must be above 0 and below 1";

/// Refuses a value that is out of its range.
pub(crate) fn parameter<T>(
    name: &'static str,
    got: impl Display,
    expected: impl Display,
) -> Result<T> {
    Err(Error::Parameter { name, got: got.to_string(), expected: expected.to_string() })
}

/// Returns the error for a filter that cannot have a growing part.
pub(crate) fn cannot_grow(plan: &Plan) -> Error {
    let kind = plan.kind();
    let remedy = if kind.is_static() {
        "keep added keys in an overlay ('inbloom build --base', Filter::into_overlay)"
    } else if kind.can_outgrow() {
        "divide the keys among more shards"
    } else {
        "use kind blocked or classic, which can, or scalable, which always does"
    };
    Error::Unsupported { kind, verb: "grow", remedy }
}

/// Up to this number of keys, a base counts as small.
const SMALL: u64 = 10_000;

/// Returns the share of the target rate that a base for this number of keys takes. The growing part
/// has the rest.
///
/// A small base takes a tenth. That costs it a few hundred bytes. Most keys will be in the growing
/// part, and the rate that is left decides their bits: 20.4 per key at 0.9%, 28.3 at 0.5%. A large
/// base takes half.
#[must_use]
pub fn base_share(items: u64) -> f64 {
    if items <= SMALL { 0.1 } else { 0.5 }
}

/// Returns the largest n in 0..=max for which `fits` holds; `fits` must hold up to some n and not
/// after.
pub(crate) fn largest(max: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, max + 1); // fits(low), and not fits(high)
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        *(if fits(middle) { &mut low } else { &mut high }) = middle;
    }
    low
}
