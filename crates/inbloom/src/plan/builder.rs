//! From what is known of a plan to the rest of it.

use std::time::Duration;

use super::{
    BLOCK_BITS, BLOCKED_PROBES, COUNTERS, DEFAULT_COUNTER, DEFAULT_GENERATIONS, DEFAULT_TIGHTENING,
    DENSE_UNIVERSE, GROWTHS, Kind, MAX_BITS, MAX_CLASSIC_PROBES, MAX_GENERATIONS, MAX_ITEMS,
    MIN_RATE, Plan, RATE_RANGE, Rounds, SECOND_LINE_SAVES, Span, TIGHTENINGS, Tier, cuckoo,
    largest, ranges, ribbon, sparse_bytes,
};
use crate::compose::grown::base_share;
use crate::error::{Error, Result};
use crate::filter::cannot_grow;
use crate::kinds::scalable;
use crate::plan::model::{Lines, classic_rate};

/// Collects what is known of a plan; [`PlanBuilder::build`] finds the rest.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct PlanBuilder {
    kind: Kind,
    items: Option<u64>,
    rate: Option<f64>,
    bytes: Option<u64>,
    bits_per_key: Option<f64>,
    probes: Option<u32>,
    lines: Option<u32>,
    universe: Option<u64>,
    width: Option<u32>,
    growth: Option<u32>,
    tightening: Option<f64>,
    span: Option<Span>,
    generations: Option<u32>,
    growing: bool,
}

/// The rate of a plan that is given none.
const DEFAULT_RATE: f64 = 0.01;

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

    /// The number of distinct keys that the filter is for.
    pub fn items(mut self, items: u64) -> PlanBuilder {
        self.items = Some(items);
        self
    }

    /// The share of foreign keys that may be answered "yes" when the filter holds its items.
    pub fn rate(mut self, rate: f64) -> PlanBuilder {
        self.rate = Some(rate);
        self
    }

    /// The memory that the filter may take.
    pub fn bytes(mut self, bytes: u64) -> PlanBuilder {
        self.bytes = Some(bytes);
        self
    }

    /// The memory per key.
    pub fn bits_per_key(mut self, bits: f64) -> PlanBuilder {
        self.bits_per_key = Some(bits);
        self
    }

    /// The memory per key, by name.
    pub fn tier(self, tier: Tier) -> PlanBuilder {
        self.bits_per_key(tier.bits_per_key())
    }

    /// The bits that a key sets. Found if not given, which is nearly always better.
    pub fn probes(mut self, probes: u32) -> PlanBuilder {
        self.probes = Some(probes);
        self
    }

    /// For the blocked kind, the cache lines that a key touches: 1 is fastest, 2 is smaller at low
    /// rates. Found if not given: 2 if that saves 15% of the bits, as it does from about 2 * 10^-5 down.
    pub fn lines(mut self, lines: u32) -> PlanBuilder {
        self.lines = Some(lines);
        self
    }

    /// For a bitmap, the number of possible values: it holds integers below this.
    pub fn universe(mut self, universe: u64) -> PlanBuilder {
        self.universe = Some(universe);
        self
    }

    /// For the counting kind, the bits of a counter: 2, 4 (the default) or 8.
    pub fn width(mut self, width: u32) -> PlanBuilder {
        self.width = Some(width);
        self
    }

    /// For the scalable kind, the factor by which a part of it grows when it is full: 2 (the default), 4
    /// or 8. 0 lets it not grow: it then refuses keys with [`Error::Full`].
    pub fn growth(mut self, growth: u32) -> PlanBuilder {
        self.growth = Some(growth);
        self
    }

    /// For the scalable kind, the share of the rate not yet spent that each growth leaves to later ones,
    /// 0.5 to 0.99, by default 0.8. Less makes it smaller while it has grown little, more when much.
    pub fn tightening(mut self, tightening: f64) -> PlanBuilder {
        self.tightening = Some(tightening);
        self
    }

    /// For the window kind, the time for which a key is found, on the clock that
    /// [`Filter::advance`](crate::Filter::advance) moves, to the millisecond. Items are then the distinct
    /// keys of that time; they should come evenly, or items be those of the busiest step times the
    /// generations.
    pub fn window(mut self, time: Duration) -> PlanBuilder {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.span = Some(Span::Millis(millis));
        self
    }

    /// For the window kind, the number of inserts for which a key is found after its own: the window is the
    /// last so many. (A key that comes again within one step of the window does not count again.)
    pub fn last(mut self, items: u64) -> PlanBuilder {
        self.span = Some(Span::Items(items));
        self
    }

    /// For the window kind, the steps in which it forgets: 1 to 64, by default 4. More forget more
    /// exactly, and make a query wait for more cache lines.
    pub fn generations(mut self, generations: u32) -> PlanBuilder {
        self.generations = Some(generations);
        self
    }

    /// For blocked and classic filters, leaves a share of the rate to a growing part, see
    /// [`Filter::into_growing`](crate::Filter::into_growing): the rate is then that of both
    /// together, and the bits are those of a lower one.
    ///
    /// Where items and memory decide the rate, the rate of the plan is what leaves the growing
    /// part its share.
    pub fn growing(mut self) -> PlanBuilder {
        self.growing = true;
        self
    }

    /// Checks what was given and finds the rest.
    ///
    /// Refuses with a reason what is contradictory, insufficient, out of range, or no number.
    pub fn build(self) -> Result<Plan> {
        self.check_given()?;
        if self.growing {
            return self.base();
        }
        match self.kind {
            Kind::Bitmap => return self.bitmap(),
            Kind::Scalable => return self.scalable(),
            Kind::Window => return self.of_window(),
            Kind::Classic | Kind::Blocked | Kind::Counting | Kind::Cuckoo | Kind::Ribbon => {}
        }
        let asked = self.rate.unwrap_or(DEFAULT_RATE);
        match (self.items, self.bytes, self.bits_per_key) {
            (Some(items), None, None) => self.fewest_bits(items, asked),
            (Some(items), Some(bytes), None) => self.lowest_rate(items, bytes.saturating_mul(8)),
            (Some(items), None, Some(per_key)) => {
                let bits = (items.max(1) as f64 * per_key).ceil();
                if bits > MAX_BITS as f64 {
                    return Err(Error::TooLarge { bits, max: MAX_BITS });
                }
                self.lowest_rate(items, self.whole_blocks(bits as u64))
            }
            (None, Some(bytes), None) => self.most_items(bytes.saturating_mul(8), asked),
            (None, Some(bytes), Some(per_key)) => {
                let bits = bytes.saturating_mul(8);
                let items = (bits as f64 / per_key) as u64;
                check_items(items)?;
                self.lowest_rate(items, bits)
            }
            (Some(_), Some(_), Some(_)) => Err(Error::Parameter {
                name: "bits per key",
                got: "given beside items and bytes".to_owned(),
                expected: "left out, since it follows from them".to_owned(),
            }),
            (None, None, _) => Err(Error::Underspecified {
                kind: self.kind,
                needs: "the number of items, or the bytes it may take",
            }),
        }
    }

    fn check_given(&self) -> Result<()> {
        let parameter = |name, got: String, expected: &str| {
            Err(Error::Parameter { name, got, expected: expected.to_owned() })
        };
        if let Some(rate) = self.rate {
            if !(rate > 0.0 && rate < 1.0) {
                return Err(Error::Rate { got: rate, reason: RATE_RANGE });
            }
            if rate < MIN_RATE {
                return Err(Error::Rate {
                    got: rate,
                    reason: "rates below 1e-12 are not offered, because memory and disks err more \
                             often than that; for no errors keep the keys themselves",
                });
            }
        }
        self.items.map_or(Ok(()), check_items)?;
        match self.bits_per_key {
            Some(bits) if !(bits > 0.0 && bits <= 4096.0) => {
                return parameter("bits per key", bits.to_string(), "above 0 and at most 4096");
            }
            _ => {}
        }
        if self.bytes == Some(0) {
            return parameter("bytes", "0".to_owned(), "at least 1");
        }
        if self.kind == Kind::Bitmap {
            let foreign = self.rate.is_some() || self.bits_per_key.is_some();
            if foreign || self.probes.is_some() || self.lines.is_some() {
                return Err(Error::Unsupported {
                    kind: self.kind,
                    verb: "take a rate, bits per key, probes or lines",
                    remedy: "it is exact; give the universe, the number of possible integers",
                });
            }
        }
        self.check_options()?;
        if let Some(lines) = self.lines.filter(|lines| !(1..=2).contains(lines)) {
            return parameter(
                "lines",
                lines.to_string(),
                &format!("1 or 2 for kind {}", self.kind),
            );
        }
        if let Some(probes) = self.probes {
            let shapes = self.shapes();
            if !shapes.iter().any(|shape| shape.probes() == probes) {
                let expected = match self.kind {
                    Kind::Classic => "1 to 64",
                    _ => BLOCKED_PROBES,
                };
                return parameter("probes", probes.to_string(), expected);
            }
        }
        Ok(())
    }

    /// Refuses options of other kinds, and values out of range.
    fn check_options(&self) -> Result<()> {
        let kind = self.kind;
        let lines = matches!(kind, Kind::Blocked | Kind::Counting | Kind::Window);
        let (grows, forgets) = (kind == Kind::Scalable, kind == Kind::Window);
        let probed = lines || kind == Kind::Classic || kind == Kind::Bitmap;
        let span = self.span.is_some() || self.generations.is_some();
        let growth = self.growth.is_some() || self.tightening.is_some();
        let universe = "only a bitmap has one; give items";
        let width = "only counters have one to choose; a fingerprint's follows from the rate";
        let two_lines = self.lines.is_some_and(|lines| lines != 1);
        let fits = [
            (self.universe.is_some(), kind == Kind::Bitmap, "take a universe", universe),
            (two_lines, lines, "choose its cache lines", "blocked, counting and window can"),
            (self.probes.is_some(), probed, "choose its probes", "its cells follow from the rate"),
            (self.width.is_some(), kind == Kind::Counting, "choose a width", width),
            (growth, grows, "grow", "only the scalable kind does"),
            (span, forgets, "forget", "only the window kind does"),
        ];
        if let Some((_, _, verb, remedy)) = fits.into_iter().find(|(given, has, ..)| *given && !has)
        {
            return Err(Error::Unsupported { kind, verb, remedy });
        }
        let parameter = |name, got: String, expected: &str| {
            Err(Error::Parameter { name, got, expected: expected.to_owned() })
        };
        if let Some(width) = self.width.filter(|width| !COUNTERS.contains(width)) {
            return parameter("width", width.to_string(), "2, 4 or 8 for kind counting");
        }
        if let Some(growth) = self.growth.filter(|growth| !GROWTHS.contains(growth)) {
            return parameter("growth", growth.to_string(), "2, 4 or 8, or 0 for none");
        }
        if let Some(share) = self.tightening.filter(|share| !TIGHTENINGS.contains(share)) {
            return parameter("tightening", share.to_string(), "0.5 to 0.99");
        }
        let range = 1..=MAX_GENERATIONS;
        if let Some(generations) = self.generations.filter(|given| !range.contains(given)) {
            return parameter("generations", generations.to_string(), "1 to 64");
        }
        Ok(())
    }

    /// The plan of a base for its share of the rate, with the rate of base and growing part.
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
            let reason = "a filter that grows divides it between two parts, and none can be below \
                          1e-12";
            return Err(Error::Rate { got: rate, reason });
        }
        let at = |share: f64| alone.rate((rate * share).max(MIN_RATE)).build();
        let mut base = at(base_share(self.items.unwrap_or(u64::MAX)))?;
        if self.items.is_none() && base_share(base.items) != base_share(u64::MAX) {
            base = at(base_share(base.items))?;
        }
        Ok(Plan { rate, ..base })
    }

    fn scalable(&self) -> Result<Plan> {
        if self.bytes.is_some() || self.bits_per_key.is_some() {
            return Err(Error::Unsupported {
                kind: self.kind,
                verb: "be planned from its memory",
                remedy: "it grows; give the items to start with, and the rate",
            });
        }
        let items = self.items.unwrap_or(scalable::FIRST_ITEMS).max(1);
        let plan = Plan {
            items,
            rate: self.rate.unwrap_or(DEFAULT_RATE),
            growth: self.growth.unwrap_or(2),
            tightening: self.tightening.unwrap_or(DEFAULT_TIGHTENING),
            ..Plan::blank(self.kind)
        };
        Plan { bits: scalable::first_bytes(&plan)? * 8, ..plan }.check()
    }

    fn of_window(&self) -> Result<Plan> {
        let needs = "the window: a time, or a number of keys";
        let Some(span) = self.span else {
            return Err(Error::Underspecified { kind: self.kind, needs });
        };
        let generations = self.generations.unwrap_or(DEFAULT_GENERATIONS);
        let (steps, kept) = (u64::from(generations), f64::from(generations + 1));
        let items = match span {
            Span::Items(items) => Some(items),
            Span::Millis(_) => self.items,
        };
        if let (Span::Items(last), Some(given)) = (span, self.items)
            && last != given
        {
            return Err(Error::Parameter {
                name: "items",
                got: given.to_string(),
                expected: format!("{last} as the window is, or left out"),
            });
        }
        if let Some(got) = self.rate.filter(|rate| rate / kept < MIN_RATE) {
            let reason =
                "each generation of a window has its part of it, and none can be below 1e-12";
            return Err(Error::Rate { got, reason });
        }
        let of_one = PlanBuilder {
            kind: Kind::Blocked,
            items: items.map(|items| items.div_ceil(steps)),
            rate: match (self.rate, self.bytes, self.bits_per_key) {
                (None, None, None) => Some(DEFAULT_RATE / kept),
                (given, ..) => given.map(|rate| rate / kept),
            },
            bytes: self.bytes.map(|bytes| bytes / (steps + 1)),
            bits_per_key: self.bits_per_key.map(|bits| bits * steps as f64 / kept),
            span: None,
            generations: None,
            ..*self
        }
        .build()
        .map_err(|error| match error {
            Error::Underspecified { needs, .. } => Error::Underspecified { kind: self.kind, needs },
            other => other,
        })?;
        Plan {
            kind: Kind::Window,
            items: items.unwrap_or(of_one.items.saturating_mul(steps)),
            rate: self.rate.unwrap_or((of_one.rate * kept).min(1.0)),
            span: Some(span),
            generations,
            ..of_one
        }
        .check()
    }

    fn bitmap(&self) -> Result<Plan> {
        let universe = match (self.universe, self.bytes) {
            (Some(universe), _) => universe,
            (None, Some(bytes)) => bytes.saturating_mul(8),
            (None, None) => {
                return Err(Error::Underspecified {
                    kind: self.kind,
                    needs: "the universe, which is the number of possible integers",
                });
            }
        };
        if let Some(items) = self.items.filter(|items| *items > universe) {
            return Err(Error::Parameter {
                name: "items",
                got: items.to_string(),
                expected: format!("at most the universe, {universe}"),
            });
        }
        let dense = universe.div_ceil(64).saturating_mul(8);
        let sparse = match self.items {
            Some(items) => sparse_bytes(items, universe) < dense,
            None => universe > DENSE_UNIVERSE,
        };
        let items = self.items.unwrap_or(universe);
        let plan = Plan { items, bits: universe, sparse, ..Plan::blank(self.kind) };
        plan.check_shape()?;
        match self.bytes {
            Some(limit) if plan.bytes() > limit => Err(Error::Limit { bytes: plan.bytes(), limit }),
            _ => Ok(plan),
        }
    }

    /// The shapes that the kind and what was given allow.
    fn shapes(&self) -> Vec<Shape> {
        let all: Vec<Shape> = match self.kind {
            Kind::Blocked | Kind::Counting | Kind::Window => {
                let counter = self.width.unwrap_or(DEFAULT_COUNTER);
                let width = if self.kind == Kind::Counting { counter } else { 1 };
                let lines = |lines| {
                    Rounds::PROBES.map(move |per_line| Shape::Lines { lines, per_line, width })
                };
                (1..=2).flat_map(lines).collect()
            }
            _ => (1..=MAX_CLASSIC_PROBES).map(Shape::Anywhere).collect(),
        };
        all.into_iter()
            .filter(|shape| self.lines.is_none_or(|lines| lines == shape.lines()))
            .filter(|shape| self.probes.is_none_or(|probes| probes == shape.probes()))
            .collect()
    }

    /// Items and rate to the fewest bits.
    fn fewest_bits(&self, items: u64, rate: f64) -> Result<Plan> {
        if self.kind == Kind::Cuckoo {
            return buckets_plan(items, rate, cuckoo::shape_for(items, rate));
        }
        if self.kind == Kind::Ribbon {
            return ribbon::plan(items, rate, ribbon::width_for(items, rate)?);
        }
        let n = items.max(1) as f64;
        let mut best: Option<(Shape, u64)> = None;
        let mut needed = f64::INFINITY;
        for shape in self.shapes() {
            // What a filter without blocks and without variance would take: a lower bound, and near
            // the truth. It also tells the shapes that are not worth the search.
            let k = f64::from(shape.probes());
            let bound = f64::from(shape.width()) * -k * n / (-rate.powf(1.0 / k)).ln_1p();
            needed = needed.min(bound);
            if best.is_some_and(|(_, bits)| bound > bits as f64 * SECOND_LINE_SAVES) {
                continue;
            }
            if bound > MAX_BITS as f64 {
                continue;
            }
            if let Some(bits) = shape.fewest_bits(n, rate, bound) {
                let better = best.is_none_or(|(other, other_bits)| {
                    let handicap = f64::from(shape.lines()) - f64::from(other.lines());
                    let scaled = bits as f64 * SECOND_LINE_SAVES.powf(handicap);
                    scaled < other_bits as f64
                });
                if better {
                    best = Some((shape, bits));
                }
            }
        }
        match best {
            Some((shape, bits)) => Ok(shape.plan(self.kind, items, rate, bits)),
            None => Err(Error::TooLarge { bits: needed, max: MAX_BITS }),
        }
    }

    /// Items and bits to the lowest rate; if a rate was given too, it must be met.
    fn lowest_rate(&self, items: u64, bits: u64) -> Result<Plan> {
        if self.kind == Kind::Cuckoo {
            let Some(shape) = cuckoo::widest(items, bits) else {
                let needed = cuckoo::narrowest_shape(items).bytes();
                return Err(Error::Parameter {
                    name: "bytes",
                    got: (bits / 8).to_string(),
                    expected: format!("at least {needed} for {items} items"),
                });
            };
            let reached = cuckoo::rate(items.max(1) as f64, shape.buckets, shape.width);
            return match self.rate {
                Some(rate) if reached > rate => {
                    Err(Error::Unreachable { items, bytes: bits / 8, rate, reachable: reached })
                }
                given => buckets_plan(items, given.unwrap_or(reached), shape),
            };
        }
        if self.kind == Kind::Ribbon {
            let Some(width) = ribbon::widest(items, bits) else {
                let needed = ribbon::bits(items, 1, 0).div_ceil(8);
                return Err(Error::Parameter {
                    name: "bytes",
                    got: (bits / 8).to_string(),
                    expected: format!("at least {needed} for {items} items"),
                });
            };
            let reached = ribbon::rate(items.max(1) as f64, width);
            return match self.rate {
                Some(rate) if reached > rate => {
                    Err(Error::Unreachable { items, bytes: bits / 8, rate, reachable: reached })
                }
                given => ribbon::plan(items, given.unwrap_or(reached), width),
            };
        }
        let n = items.max(1) as f64;
        let mut best: Option<(Shape, u64, f64)> = None;
        let mut lowest = best;
        for shape in self.shapes() {
            let Some(bits) = shape.round_down(bits) else { continue };
            let rate = shape.rate(n, bits);
            if lowest.is_none_or(|(_, _, other)| rate < other) {
                lowest = Some((shape, bits, rate));
            }
            let better = match best {
                None => true,
                // A second line must do what 15% more bits would have done.
                Some((other, other_bits, _)) if shape.lines() > other.lines() => {
                    let more = (other_bits as f64 * SECOND_LINE_SAVES) as u64;
                    other.round_down(more).is_none_or(|more| rate < other.rate(n, more))
                }
                Some((_, _, other_rate)) => rate < other_rate,
            };
            if better {
                best = Some((shape, bits, rate));
            }
        }
        // Where only a second line reaches the rate, it need not save anything.
        let missed = |(_, _, reached): &(Shape, u64, f64)| self.rate.is_some_and(|r| *reached > r);
        if best.as_ref().is_some_and(missed) {
            best = lowest;
        }
        let Some((shape, bits, reached)) = best else { return Err(self.wrong_bytes(bits)) };
        match self.rate {
            Some(rate) if reached > rate => {
                let bytes = self.bytes.unwrap_or(bits.div_ceil(8));
                Err(Error::Unreachable { items, bytes, rate, reachable: reached })
            }
            given => Ok(shape.plan(self.kind, items, given.unwrap_or(reached), bits)),
        }
    }

    /// Bits and rate to the most items.
    fn most_items(&self, bits: u64, rate: f64) -> Result<Plan> {
        if self.kind == Kind::Cuckoo {
            let fits = |items| cuckoo::shape_for(items, rate).bytes() <= bits / 8;
            return match largest(MAX_ITEMS, fits) {
                0 => {
                    let needed = cuckoo::shape_for(1, rate).bytes();
                    let (got, expected) = ((bits / 8).to_string(), format!("at least {needed}"));
                    Err(Error::Parameter { name: "bytes", got, expected })
                }
                items => buckets_plan(items, rate, cuckoo::shape_for(items, rate)),
            };
        }
        if self.kind == Kind::Ribbon {
            let width = ribbon::width_for(1, rate)?;
            let planned = |items| ribbon::plan(items, rate, ribbon::width_for(items, rate)?);
            let fits = |items| planned(items).is_ok_and(|plan| plan.bits <= bits);
            // Where widths begin to be mixed, more keys may take fewer bits.
            let mixed_fit = fits(ribbon::MIXED_ITEMS);
            let fits = |items| items < ribbon::MIXED_ITEMS && mixed_fit || fits(items);
            return match largest(MAX_ITEMS, fits) {
                0 => {
                    let needed = ribbon::bits(1, width, 0).div_ceil(8);
                    let (got, expected) = ((bits / 8).to_string(), format!("at least {needed}"));
                    Err(Error::Parameter { name: "bytes", got, expected })
                }
                items => planned(items),
            };
        }
        let mut best: Option<(Shape, u64, u64)> = None;
        for shape in self.shapes() {
            let Some(bits) = shape.round_down(bits) else { continue };
            let items = largest(MAX_ITEMS, |n| shape.rate(n as f64, bits) <= rate);
            let better = best.is_none_or(|(other, _, other_items)| {
                let handicap = f64::from(shape.lines()) - f64::from(other.lines());
                items as f64 > other_items as f64 * SECOND_LINE_SAVES.powf(handicap)
            });
            if better {
                best = Some((shape, bits, items));
            }
        }
        match best {
            Some((shape, bits, items)) if items > 0 => Ok(shape.plan(self.kind, items, rate, bits)),
            Some((shape, bits, _)) => Err(Error::Unreachable {
                items: 1,
                bytes: self.bytes.unwrap_or(bits / 8),
                rate,
                reachable: shape.rate(1.0, bits),
            }),
            None => Err(self.wrong_bytes(bits)),
        }
    }

    /// Why no shape fits into so many bits.
    fn wrong_bytes(&self, bits: u64) -> Error {
        let expected = match self.two_lines_only() {
            _ if bits > MAX_BITS => "at most 2^53 (8 PiB)",
            true => "at least 128, two blocks",
            false => "at least 64, one block",
        };
        Error::Parameter {
            name: "bytes",
            got: self.bytes.unwrap_or(bits / 8).to_string(),
            expected: expected.to_owned(),
        }
    }

    /// Whether what was given leaves only shapes of two lines.
    fn two_lines_only(&self) -> bool {
        self.shapes().iter().all(|shape| shape.lines() == 2)
    }

    /// Bits per key is a wish, not a limit: it is rounded up to blocks, so that the rate is lower.
    fn whole_blocks(&self, bits: u64) -> u64 {
        match self.kind {
            Kind::Blocked | Kind::Counting => {
                let blocks = bits.div_ceil(BLOCK_BITS);
                let two = self.two_lines_only();
                (if two { round_up_to_ranges(blocks.max(2)) } else { blocks }) * BLOCK_BITS
            }
            _ => bits,
        }
    }
}

fn buckets_plan(items: u64, rate: f64, shape: cuckoo::Shape) -> Result<Plan> {
    let bits = shape.bits();
    if bits > MAX_BITS {
        return Err(Error::TooLarge { bits: bits as f64, max: MAX_BITS });
    }
    Ok(Plan { items, rate, bits, width: shape.width, ..Plan::blank(Kind::Cuckoo) })
}

fn check_items(items: u64) -> Result<()> {
    if items <= MAX_ITEMS {
        return Ok(());
    }
    let expected = "at most 10^15".to_owned();
    Err(Error::Parameter { name: "items", got: items.to_string(), expected })
}

/// How a key's probes lie: what the search for a plan goes through.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// That many probes anywhere in the bits.
    Anywhere(u32),
    /// That many lines with that many probes in each, of cells that have so many bits.
    Lines { lines: u32, per_line: u32, width: u32 },
}

impl Shape {
    fn probes(self) -> u32 {
        match self {
            Shape::Anywhere(probes) => probes,
            Shape::Lines { lines, per_line, .. } => lines * per_line,
        }
    }

    fn lines(self) -> u32 {
        match self {
            Shape::Anywhere(_) => 1,
            Shape::Lines { lines, .. } => lines,
        }
    }

    fn width(self) -> u32 {
        match self {
            Shape::Anywhere(_) => 1,
            Shape::Lines { width, .. } => width,
        }
    }

    fn rate(self, items: f64, bits: u64) -> f64 {
        match self {
            Shape::Anywhere(probes) => classic_rate(items, bits as f64, probes),
            Shape::Lines { lines, per_line, width } => {
                let blocks = (bits / BLOCK_BITS) as f64;
                Lines::new(blocks, lines, Rounds::of(per_line), width).rate(items)
            }
        }
    }

    /// The fewest bits at which `items` keys have at most `rate`; `bound` is known to be too few, or
    /// just enough.
    fn fewest_bits(self, items: f64, rate: f64, bound: f64) -> Option<u64> {
        match self {
            Shape::Anywhere(_) => {
                let low = (bound * 0.999) as u64;
                smallest(low.max(1), MAX_BITS, |bits| self.rate(items, bits) <= rate)
            }
            Shape::Lines { lines, .. } => {
                let low = (bound / BLOCK_BITS as f64) as u64;
                let high = MAX_BITS / BLOCK_BITS;
                let fits = |blocks| self.rate(items, blocks * BLOCK_BITS) <= rate;
                let blocks = smallest(low.max(u64::from(lines)), high, fits)?;
                let blocks = if lines == 2 { round_up_to_ranges(blocks) } else { blocks };
                (blocks <= high).then_some(blocks * BLOCK_BITS)
            }
        }
    }

    /// The most bits of this shape in at most `bits`; None if there are too few, or too many for us.
    fn round_down(self, bits: u64) -> Option<u64> {
        if bits > MAX_BITS {
            return None;
        }
        match self {
            Shape::Anywhere(_) => (bits > 0).then_some(bits),
            Shape::Lines { lines, .. } => {
                let blocks = bits / BLOCK_BITS;
                match lines {
                    _ if blocks < u64::from(lines) => None,
                    1 => Some(blocks * BLOCK_BITS),
                    _ => Some(round_down_to_ranges(blocks) * BLOCK_BITS),
                }
            }
        }
    }

    fn plan(self, kind: Kind, items: u64, rate: f64, bits: u64) -> Plan {
        let (probes, lines, width) = (self.probes(), self.lines(), self.width());
        Plan { items, rate, bits, probes, lines, width, ..Plan::blank(kind) }
    }
}

/// The fewest blocks, at least `blocks`, that divide evenly into their ranges.
pub(super) fn round_up_to_ranges(blocks: u64) -> u64 {
    blocks.next_multiple_of(ranges(blocks))
}

/// The most blocks, at most `blocks`, that divide evenly into their ranges; at least 2.
fn round_down_to_ranges(mut blocks: u64) -> u64 {
    while !blocks.is_multiple_of(ranges(blocks)) {
        blocks -= blocks % ranges(blocks); // which may make one range fewer do
    }
    blocks.max(2)
}

/// The smallest n in low..=high for which `fits` holds; `fits` must not hold up to some n and hold
/// after. None if it holds for none.
fn smallest(low: u64, high: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    // Sizes are usually near the lower end, and each trial costs: look there first.
    let mut step = 1;
    let (mut low, mut top) = (low, low);
    while top < high && !fits(top) {
        low = top + 1;
        top = top.saturating_add(step).min(high);
        step *= 2;
    }
    if !fits(top) {
        return None;
    }
    let mut high = top;
    while low < high {
        let middle = low + (high - low) / 2;
        if fits(middle) { high = middle } else { low = middle + 1 }
    }
    Some(low)
}
