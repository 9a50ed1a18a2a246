//! Collects the given numbers of a plan, and applies the rules that hold for every kind.

use core::time::Duration;

use super::search::DEFAULT_RATE;
use super::{
    MAX_ITEMS, MIN_RATE, Plan, RATE_RANGE, Span, Tier, base_share, cannot_grow, parameter,
};
use crate::error::{Error, Result};
use crate::kind::Kind;

/// Collects what you know about a filter. [`PlanBuilder::build`] computes the rest.
///
/// For most kinds, one of these is enough:
///
/// | given | computed |
/// |---|---|
/// | items, rate | the fewest bytes |
/// | items, and bytes or bits per key | the lowest rate, which may be near 1 |
/// | bytes, rate | the number of items that fit |
/// | bytes, bits per key | the number of items, and the lowest rate |
/// | items, rate, and bytes or bits per key | an error if the rate cannot be reached |
/// | items alone, or bytes alone | as with a rate of 0.01 |
///
/// Some kinds need other numbers:
///
/// | kind | needs |
/// |---|---|
/// | bitmap | the universe, or bytes; with items it is sparse if that is smaller |
/// | scalable | nothing; by default it begins with 100 items, at a rate of 0.01 |
/// | window of a time | [`window`](PlanBuilder::window), and one line of the first table |
/// | window of keys | [`last`](PlanBuilder::last), which is also the items |
///
/// ```
/// use inbloom::{Kind, Plan};
/// # use std::time::Duration;
///
/// let by_rate = Plan::builder(Kind::Blocked).items(1_000_000).rate(0.001).build()?;
/// let by_size = Plan::builder(Kind::Classic).items(1_000_000).bytes(1 << 20).build()?;
/// assert!(by_rate.bytes() < 2_000_000 && by_size.rate() < 0.02);
/// let week = Plan::builder(Kind::Window).items(1_000_000).window(Duration::from_secs(604_800));
/// assert!(week.build().is_ok());
/// let ids = Plan::builder(Kind::Bitmap).universe(10_000_000).build()?;
/// assert_eq!(ids.bytes(), 1_250_000);
/// # Ok::<(), inbloom::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct PlanBuilder {
    pub(crate) kind: Kind,
    pub(crate) items: Option<u64>,
    pub(crate) rate: Option<f64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) bits_per_key: Option<f64>,
    pub(crate) probes: Option<u32>,
    pub(crate) lines: Option<u32>,
    pub(crate) universe: Option<u64>,
    pub(crate) width: Option<u32>,
    pub(crate) growth: Option<u32>,
    pub(crate) tightening: Option<f64>,
    pub(crate) span: Option<Span>,
    pub(crate) generations: Option<u32>,
    pub(crate) growing: bool,
}

impl PlanBuilder {
    pub(super) fn new(kind: Kind) -> PlanBuilder {
        PlanBuilder {
            kind,
            items: None,
            rate: None,
            bytes: None,
            bits_per_key: None,
            probes: None,
            lines: None,
            universe: None,
            width: None,
            growth: None,
            tightening: None,
            span: None,
            generations: None,
            growing: false,
        }
    }

    /// Sets the number of distinct keys that the filter is for.
    pub fn items(mut self, items: u64) -> PlanBuilder {
        self.items = Some(items);
        self
    }

    /// Sets the target rate: the share of absent keys that may be reported as present when the
    /// filter holds its items.
    pub fn rate(mut self, rate: f64) -> PlanBuilder {
        self.rate = Some(rate);
        self
    }

    /// Sets the memory that the filter may take.
    ///
    /// With items and without a rate, any memory makes a plan: a million items in 1,000 bytes have a
    /// rate of almost 1. Give a rate as well to get an error instead.
    pub fn bytes(mut self, bytes: u64) -> PlanBuilder {
        self.bytes = Some(bytes);
        self
    }

    /// Sets the memory per key.
    pub fn bits_per_key(mut self, bits: f64) -> PlanBuilder {
        self.bits_per_key = Some(bits);
        self
    }

    /// Sets the memory per key, by name.
    pub fn tier(self, tier: Tier) -> PlanBuilder {
        self.bits_per_key(tier.bits_per_key())
    }

    /// Sets the number of bits that a key sets. Without it the planner chooses the best number.
    pub fn probes(mut self, probes: u32) -> PlanBuilder {
        self.probes = Some(probes);
        self
    }

    /// Sets the number of cache lines that a key of a blocked filter touches: 1 is fastest, 2 is
    /// smaller at low rates. The default is 2 if that saves 15% of the bits, which is the case at
    /// rates below about 2 * 10^-5.
    pub fn lines(mut self, lines: u32) -> PlanBuilder {
        self.lines = Some(lines);
        self
    }

    /// Sets the number of possible values of a bitmap, which holds integers below this.
    pub fn universe(mut self, universe: u64) -> PlanBuilder {
        self.universe = Some(universe);
        self
    }

    /// Sets the bits of a counter of a counting filter: 2, 3 (the default), 4 or 8. A counter ends at
    /// 3, 7, 15 or 255 copies.
    pub fn width(mut self, width: u32) -> PlanBuilder {
        self.width = Some(width);
        self
    }

    /// Sets the factor by which a shard of a scalable filter grows when it is full: 2 (the
    /// default), 4 or 8. With 0 the filter does not grow, and refuses keys with [`Error::Full`].
    pub fn growth(mut self, growth: u32) -> PlanBuilder {
        self.growth = Some(growth);
        self
    }

    /// Sets the share of the unused rate that each growth of a scalable filter leaves to later
    /// ones: 0.5 to 0.99, by default 0.8. A small share saves memory in a filter that grows little.
    /// A large share saves memory in a filter that grows much.
    pub fn tightening(mut self, tightening: f64) -> PlanBuilder {
        self.tightening = Some(tightening);
        self
    }

    /// Sets the length of a window as a time, to the millisecond, on the clock that
    /// [`Filter::advance`](crate::Filter::advance) sets. Items are then the distinct keys of that
    /// time. If keys come unevenly, set items to the keys of the busiest step times the number of
    /// generations.
    ///
    /// A key stays for this time, and up to one step longer: in a window of an hour with 4
    /// [`generations`](PlanBuilder::generations), for 60 to 75 minutes.
    pub fn window(mut self, time: Duration) -> PlanBuilder {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.span = Some(Span::Millis(millis));
        self
    }

    /// Sets the length of a window as a number of inserts. A key that comes again within one step
    /// of the window does not count again.
    pub fn last(mut self, items: u64) -> PlanBuilder {
        self.span = Some(Span::Items(items));
        self
    }

    /// Sets the number of steps in which keys of a window expire: 1 to 64, by default 4. With more
    /// steps keys expire more exactly, and a query waits for more cache lines.
    pub fn generations(mut self, generations: u32) -> PlanBuilder {
        self.generations = Some(generations);
        self
    }

    /// Leaves a share of the rate to a growing part, for blocked and classic filters: see
    /// [`Filter::into_growing`](crate::Filter::into_growing). The target rate then holds for both
    /// parts together, so the base is planned for a lower rate.
    ///
    /// If items and memory determine the rate, the plan's rate is that of both parts together.
    pub fn growing(mut self) -> PlanBuilder {
        self.growing = true;
        self
    }

    /// Checks the given numbers, and computes the rest.
    ///
    /// # Errors
    ///
    /// Refuses numbers that contradict each other, are too few, or are out of range. The error
    /// gives the reason.
    pub fn build(self) -> Result<Plan> {
        self.check_given()?;
        if self.growing {
            return self.base();
        }
        self.kind.planner().solve(&self)
    }

    fn check_given(&self) -> Result<()> {
        if let Some(rate) = self.rate {
            if !(rate > 0.0 && rate < 1.0) {
                return Err(Error::Rate { got: rate, reason: RATE_RANGE });
            }
            if rate < MIN_RATE {
                return Err(Error::Rate { got: rate, reason: "must be at least 1e-12" });
            }
        }
        self.items.map_or(Ok(()), check_items)?;
        if let Some(bits) = self.bits_per_key.filter(|bits| !(*bits > 0.0 && *bits <= 4096.0)) {
            return parameter("bits per key", bits, "above 0 and at most 4096");
        }
        if self.bytes == Some(0) {
            return parameter("bytes", 0, "at least 1");
        }
        if self.kind.is_exact() {
            let foreign = self.rate.is_some() || self.bits_per_key.is_some();
            if foreign || self.probes.is_some() || self.lines.is_some() {
                return Err(Error::Unsupported {
                    kind: self.kind,
                    verb: "take a rate, bits per key, probes or lines",
                    remedy: "give the universe, the number of possible integers",
                });
            }
        }
        self.check_options()?;
        self.kind.planner().check_given(self)
    }

    /// Refuses options of other kinds.
    fn check_options(&self) -> Result<()> {
        let kind = self.kind;
        let span = self.span.is_some() || self.generations.is_some();
        let growth = self.growth.is_some() || self.tightening.is_some();
        let universe = "give the number of keys";
        let width = "leave the width out; only kind counting has one to choose";
        let two_lines = self.lines.is_some_and(|lines| lines != 1);
        let lines = "use kind blocked, counting or window, which can";
        let probes = "leave the probes out; they follow from the rate";
        let fits = [
            (self.universe.is_some(), kind.is_exact(), "take a universe", universe),
            (two_lines, kind.has_lines(), "choose its cache lines", lines),
            (self.probes.is_some(), kind.has_probes(), "choose its probes", probes),
            (self.width.is_some(), kind.chooses_width(), "choose a width", width),
            (growth, kind.can_grow(), "grow", "use kind scalable, which does"),
            (span, kind.forgets(), "drop old keys", "use kind window, which does"),
        ];
        match fits.into_iter().find(|(given, has, ..)| *given && !has) {
            Some((_, _, verb, remedy)) => Err(Error::Unsupported { kind, verb, remedy }),
            None => Ok(()),
        }
    }

    /// Returns the plan of a base for its share of the rate, with the rate of base and growing
    /// part.
    fn base(self) -> Result<Plan> {
        if !self.kind.can_outgrow() {
            return Err(cannot_grow(&Plan::blank(self.kind)));
        }
        let alone = PlanBuilder { growing: false, ..self };
        let has_memory = self.bytes.is_some() || self.bits_per_key.is_some();
        let has_items = self.items.is_some() || (self.bytes.and(self.bits_per_key)).is_some();
        if self.rate.is_none() && has_memory && has_items {
            let base = alone.build()?;
            // A rate above one half leaves nothing worth having, and no part can be below the
            // lowest that is offered.
            let rate = (base.rate / base_share(base.items)).clamp(4.0 * MIN_RATE, 0.5);
            return Ok(Plan { rate: rate.max(base.rate), ..base });
        }
        let rate = self.rate.unwrap_or(DEFAULT_RATE);
        if rate < 2.0 * MIN_RATE {
            let reason = "must be at least 2e-12 for a filter that grows";
            return Err(Error::Rate { got: rate, reason });
        }
        let at = |share: f64| alone.rate((rate * share).max(MIN_RATE)).build();
        let mut base = at(base_share(self.items.unwrap_or(u64::MAX)))?;
        if self.items.is_none() && base_share(base.items) != base_share(u64::MAX) {
            base = at(base_share(base.items))?;
        }
        Ok(Plan { rate, ..base })
    }
}

pub(super) fn check_items(items: u64) -> Result<()> {
    match items <= MAX_ITEMS {
        true => Ok(()),
        false => parameter("items", items, "at most 10^15"),
    }
}
