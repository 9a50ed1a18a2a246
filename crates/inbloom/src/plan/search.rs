//! The search for a plan: from items, rate and memory, of which one is unknown, to that one.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::lines::{BLOCK_BITS, round_down_to_ranges, round_up_to_ranges};
use super::model::{Lines, Rounds, classic_rate};
use super::{MAX_BITS, MAX_ITEMS, Plan, PlanBuilder, largest, parameter};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::math;

/// The rate of a plan that is given none.
pub(crate) const DEFAULT_RATE: f64 = 0.01;
/// A second line costs a second cache miss, so it has to save this share of the bits.
const SECOND_LINE_SAVES: f64 = 1.15;

/// A kind whose size follows from its items and its rate.
pub(crate) trait Search {
    /// Items and rate to the fewest bits.
    fn fewest_bits(&self, items: u64, rate: f64) -> Result<Plan>;

    /// Items and bits to the lowest rate; if a rate was given too, it must be met.
    fn lowest_rate(&self, given: &PlanBuilder, items: u64, bits: u64) -> Result<Plan>;

    /// Bits and rate to the most items.
    fn most_items(&self, given: &PlanBuilder, bits: u64, rate: f64) -> Result<Plan>;

    /// Bits per key is a wish, not a limit: it is rounded up to what the kind can use, so that the
    /// rate is lower.
    fn round_up(&self, bits: u64) -> u64 {
        bits
    }
}

/// Finds what is unknown.
pub(crate) fn solve(given: &PlanBuilder, kind: &impl Search) -> Result<Plan> {
    let asked = given.rate.unwrap_or(DEFAULT_RATE);
    match (given.items, given.bytes, given.bits_per_key) {
        (Some(items), None, None) => kind.fewest_bits(items, asked),
        (Some(items), Some(bytes), None) => kind.lowest_rate(given, items, bytes.saturating_mul(8)),
        (Some(items), None, Some(per_key)) => {
            let bits = math::ceil(items.max(1) as f64 * per_key);
            if bits > MAX_BITS as f64 {
                return Err(Error::TooLarge { bits, max: MAX_BITS });
            }
            kind.lowest_rate(given, items, kind.round_up(bits as u64))
        }
        (None, Some(bytes), None) => kind.most_items(given, bytes.saturating_mul(8), asked),
        (None, Some(bytes), Some(per_key)) => {
            let bits = bytes.saturating_mul(8);
            let items = (bits as f64 / per_key) as u64;
            super::builder::check_items(items)?;
            kind.lowest_rate(given, items, bits)
        }
        (Some(_), Some(_), Some(_)) => parameter(
            "bits per key",
            "given beside items and bytes",
            "left out, since it follows from them",
        ),
        (None, None, _) => Err(Error::Underspecified {
            kind: given.kind,
            needs: "the number of keys, or the bytes it may take",
        }),
    }
}

/// Returns the rate that was asked for, or the one that is reached if none was. Fails if it is not
/// reached.
pub(crate) fn reached(given: &PlanBuilder, items: u64, bits: u64, reached: f64) -> Result<f64> {
    match given.rate {
        Some(rate) if reached > rate => {
            Err(Error::Unreachable { items, bytes: bits / 8, rate, reachable: reached, lines: 1 })
        }
        rate => Ok(rate.unwrap_or(reached)),
    }
}

/// Refuses memory into which not even the smallest filter fits.
pub(crate) fn too_few_bytes<T>(bits: u64, needed: u64, items: Option<u64>) -> Result<T> {
    let of = items.map_or(String::new(), |items| format!(" for {items} keys"));
    parameter("bytes", bits / 8, format_args!("at least {needed}{of}"))
}

/// The shapes among which a plan is searched, of a kind of which keys set bits.
pub(crate) struct Shapes {
    kind: Kind,
    shapes: Vec<ProbeLayout>,
}

impl Shapes {
    /// Those that were not excluded by what was given.
    pub(crate) fn new(given: &PlanBuilder, all: impl IntoIterator<Item = ProbeLayout>) -> Shapes {
        let shapes = all
            .into_iter()
            .filter(|shape| given.lines.is_none_or(|lines| lines == shape.lines()))
            .filter(|shape| given.probes.is_none_or(|probes| probes == shape.probes()))
            .collect();
        Shapes { kind: given.kind, shapes }
    }

    /// Refuses probes that none of them has.
    pub(crate) fn check_probes(&self, given: &PlanBuilder, expected: &str) -> Result<()> {
        match given.probes {
            Some(probes) if self.shapes.is_empty() => parameter("probes", probes, expected),
            _ => Ok(()),
        }
    }

    fn plan(&self, shape: ProbeLayout, items: u64, rate: f64, bits: u64) -> Plan {
        let (probes, lines, width) = (shape.probes(), shape.lines(), shape.width());
        Plan { items, rate, bits, probes, lines, width, ..Plan::blank(self.kind) }
    }

    /// Why no shape fits into so many bits.
    fn wrong_bytes(&self, given: &PlanBuilder, bits: u64) -> Error {
        let expected = match self.two_lines_only() {
            _ if bits > MAX_BITS => "at most 2^53 (8 PiB)",
            true => "at least 128, two blocks",
            false => "at least 64, one block",
        };
        Error::Parameter {
            name: "bytes",
            got: given.bytes.unwrap_or(bits / 8).to_string(),
            expected: expected.to_owned(),
        }
    }

    /// Returns whether what was given leaves only shapes of two lines.
    fn two_lines_only(&self) -> bool {
        self.shapes.iter().all(|shape| shape.lines() == 2)
    }
}

impl Search for Shapes {
    fn fewest_bits(&self, items: u64, rate: f64) -> Result<Plan> {
        let n = items.max(1) as f64;
        let mut best: Option<(ProbeLayout, u64)> = None;
        let mut needed = f64::INFINITY;
        for shape in &self.shapes {
            // What a filter without blocks and without variance would take: a lower bound, and near
            // the truth. It also tells the shapes that are not worth the search.
            let k = f64::from(shape.probes());
            let bits_per_cell = 64.0 / f64::from(64 / shape.width());
            let bound = bits_per_cell * -k * n / math::ln_1p(-math::powf(rate, 1.0 / k));
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
                    let scaled = bits as f64 * math::powf(SECOND_LINE_SAVES, handicap);
                    scaled < other_bits as f64
                });
                if better {
                    best = Some((*shape, bits));
                }
            }
        }
        match best {
            Some((shape, bits)) => Ok(self.plan(shape, items, rate, bits)),
            None => Err(Error::TooLarge { bits: needed, max: MAX_BITS }),
        }
    }

    fn lowest_rate(&self, given: &PlanBuilder, items: u64, bits: u64) -> Result<Plan> {
        let n = items.max(1) as f64;
        let mut best: Option<(ProbeLayout, u64, f64)> = None;
        let mut lowest = best;
        for shape in &self.shapes {
            let Some(bits) = shape.round_down(bits) else { continue };
            let rate = shape.rate(n, bits);
            if lowest.is_none_or(|(_, _, other)| rate < other) {
                lowest = Some((*shape, bits, rate));
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
                best = Some((*shape, bits, rate));
            }
        }
        // Where only a second line reaches the rate, it need not save anything.
        let missed =
            |(_, _, reached): &(ProbeLayout, u64, f64)| given.rate.is_some_and(|r| *reached > r);
        if best.as_ref().is_some_and(missed) {
            best = lowest;
        }
        let Some((shape, bits, reached)) = best else { return Err(self.wrong_bytes(given, bits)) };
        match given.rate {
            Some(rate) if reached > rate => {
                let bytes = given.bytes.unwrap_or(bits.div_ceil(8));
                let lines = shape.lines();
                Err(Error::Unreachable { items, bytes, rate, reachable: reached, lines })
            }
            rate => Ok(self.plan(shape, items, rate.unwrap_or(reached), bits)),
        }
    }

    fn most_items(&self, given: &PlanBuilder, bits: u64, rate: f64) -> Result<Plan> {
        let mut best: Option<(ProbeLayout, u64, u64)> = None;
        for shape in &self.shapes {
            let Some(bits) = shape.round_down(bits) else { continue };
            let items = largest(MAX_ITEMS, |n| shape.rate(n as f64, bits) <= rate);
            let better = best.is_none_or(|(other, _, other_items)| {
                let handicap = f64::from(shape.lines()) - f64::from(other.lines());
                items as f64 > other_items as f64 * math::powf(SECOND_LINE_SAVES, handicap)
            });
            if better {
                best = Some((*shape, bits, items));
            }
        }
        match best {
            Some((shape, bits, items)) if items > 0 => Ok(self.plan(shape, items, rate, bits)),
            Some((shape, bits, _)) => Err(Error::Unreachable {
                items: 1,
                bytes: given.bytes.unwrap_or(bits / 8),
                rate,
                reachable: shape.rate(1.0, bits),
                lines: shape.lines(),
            }),
            None => Err(self.wrong_bytes(given, bits)),
        }
    }

    fn round_up(&self, bits: u64) -> u64 {
        if self.shapes.iter().any(|shape| matches!(shape, ProbeLayout::Anywhere(_))) {
            return bits;
        }
        let blocks = bits.div_ceil(BLOCK_BITS);
        let two = self.two_lines_only();
        (if two { round_up_to_ranges(blocks.max(2)) } else { blocks }) * BLOCK_BITS
    }
}

/// How a key's probes lie: what the search for a plan goes through.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProbeLayout {
    /// That many probes anywhere in the bits.
    Anywhere(u32),
    /// That many lines with that many probes in each, of cells that have so many bits.
    Lines { lines: u32, per_line: u32, width: u32 },
}

impl ProbeLayout {
    fn probes(self) -> u32 {
        match self {
            ProbeLayout::Anywhere(probes) => probes,
            ProbeLayout::Lines { lines, per_line, .. } => lines * per_line,
        }
    }

    fn lines(self) -> u32 {
        match self {
            ProbeLayout::Anywhere(_) => 1,
            ProbeLayout::Lines { lines, .. } => lines,
        }
    }

    fn width(self) -> u32 {
        match self {
            ProbeLayout::Anywhere(_) => 1,
            ProbeLayout::Lines { width, .. } => width,
        }
    }

    fn rate(self, items: f64, bits: u64) -> f64 {
        match self {
            ProbeLayout::Anywhere(probes) => classic_rate(items, bits as f64, probes),
            ProbeLayout::Lines { lines, per_line, width } => {
                let blocks = (bits / BLOCK_BITS) as f64;
                Lines::new(blocks, lines, Rounds::of(per_line), width).rate(items)
            }
        }
    }

    /// Returns the fewest bits at which `items` keys have at most `rate`; `bound` is known to be
    /// too few, or just enough.
    fn fewest_bits(self, items: f64, rate: f64, bound: f64) -> Option<u64> {
        match self {
            ProbeLayout::Anywhere(_) => {
                let low = (bound * 0.999) as u64;
                smallest(low.max(1), MAX_BITS, |bits| self.rate(items, bits) <= rate)
            }
            ProbeLayout::Lines { lines, .. } => {
                let low = (bound / BLOCK_BITS as f64) as u64;
                let high = MAX_BITS / BLOCK_BITS;
                let fits = |blocks| self.rate(items, blocks * BLOCK_BITS) <= rate;
                let blocks = smallest(low.max(u64::from(lines)), high, fits)?;
                let blocks = if lines == 2 { round_up_to_ranges(blocks) } else { blocks };
                (blocks <= high).then_some(blocks * BLOCK_BITS)
            }
        }
    }

    /// Returns the most bits of this shape in at most `bits`; None if there are too few, or too
    /// many for us.
    fn round_down(self, bits: u64) -> Option<u64> {
        if bits > MAX_BITS {
            return None;
        }
        match self {
            ProbeLayout::Anywhere(_) => (bits > 0).then_some(bits),
            ProbeLayout::Lines { lines, .. } => {
                let blocks = bits / BLOCK_BITS;
                match lines {
                    _ if blocks < u64::from(lines) => None,
                    1 => Some(blocks * BLOCK_BITS),
                    _ => Some(round_down_to_ranges(blocks) * BLOCK_BITS),
                }
            }
        }
    }
}

/// Returns the smallest n in low..=high for which `fits` holds; `fits` must not hold up to some n
/// and hold after. None if it holds for none.
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
