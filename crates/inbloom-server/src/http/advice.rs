//! What to do about a filter, as codes and numbers: a page puts them into words of any language.

use inbloom::Kind;
use serde_json::{Value, json};

use crate::calculator::Question;
use crate::history::Growth;
use crate::value::summary::{BitScan, Summary};

/// How urgent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// All is well.
    Ok,
    /// Good to know.
    Info,
    /// To be done soon.
    Warn,
    /// To be done now.
    Bad,
}

impl Urgency {
    fn name(self) -> &'static str {
        match self {
            Urgency::Ok => "ok",
            Urgency::Info => "info",
            Urgency::Warn => "warn",
            Urgency::Bad => "bad",
        }
    }
}

/// A filter that will be full within so many seconds is full soon: a week.
const SOON: f64 = 7.0 * 86_400.0;
/// Above this share of its capacity a filter is nearly full.
const NEARLY: f64 = 0.9;

/// Returns what the counts of a filter give reason for.
fn from_counts(summary: &Summary, rate: Option<f64>) -> Vec<(Urgency, &'static str)> {
    let mut found = Vec::new();
    if rate.is_some_and(|rate| summary.is_over_target(rate)) {
        found.push((Urgency::Bad, "over_target"));
    }
    let used = summary.used().unwrap_or(0.0);
    if summary.is_fixed || summary.forgets {
        return found;
    }
    match summary.grows {
        true if used > 1.0 => found.push((Urgency::Info, "grown")),
        false if summary.is_full() => found.push((Urgency::Bad, "full")),
        false if used > NEARLY => found.push((Urgency::Warn, "nearly_full")),
        _ => {}
    }
    found
}

/// Returns how urgent the counts of a filter are.
pub fn level(summary: &Summary, rate: Option<f64>) -> &'static str {
    let levels = from_counts(summary, rate).into_iter().map(|(level, _)| level);
    levels.max().unwrap_or(Urgency::Ok).name()
}

/// Returns what all that is known of a filter gives reason for, the most urgent first. Never empty. Each has
/// a code, a level, and all numbers that a sentence about it could name.
pub fn advise(summary: &Summary, scan: &BitScan, growth: Option<Growth>, now: f64) -> Vec<Value> {
    let slices = scan.slices.iter().filter(|slice| slice.stands_out()).count();
    let left = full_in(summary, growth);
    let found = from_all(summary, scan.rate, left, slices);
    let is_about_size = |code| matches!(code, "full" | "full_soon" | "nearly_full" | "grown");
    let (mut reserve, mut reserve_bytes) = (None, None);
    if found.iter().any(|(_, code)| is_about_size(*code)) {
        let capacity = twice(summary);
        (reserve, reserve_bytes) = (Some(capacity), bytes_for(summary, capacity));
    }
    let as_json = |(level, code): (Urgency, &str)| {
        json!({
            "code": code,
            "level": level.name(),
            "keys": summary.keys,
            "capacity": summary.capacity,
            "used": summary.used(),
            "rate": scan.rate,
            "target_rate": summary.target_rate,
            "full_in_seconds": left,
            "full_at": left.map(|left| now + left),
            "reserve": reserve,
            "reserve_bytes": reserve_bytes,
            "slices": slices,
        })
    };
    found.into_iter().map(as_json).collect()
}

fn from_all(
    summary: &Summary,
    rate: f64,
    left: Option<f64>,
    slices: usize,
) -> Vec<(Urgency, &'static str)> {
    let mut found = from_counts(summary, Some(rate));
    if left.is_some_and(|seconds| seconds < SOON) {
        found.retain(|(_, code)| *code != "nearly_full");
        // A filter that grows goes on, slower and in more memory.
        found.push((if summary.grows { Urgency::Info } else { Urgency::Warn }, "full_soon"));
    }
    if slices > 0 {
        found.push((Urgency::Warn, "uneven"));
    }
    if found.is_empty() {
        found.push((Urgency::Ok, "healthy"));
    }
    found.sort_by_key(|(level, _)| std::cmp::Reverse(*level));
    found
}

/// Returns the seconds until a filter has as many keys as it is for, at the speed of late; None if
/// it has them, or does not get there.
pub fn full_in(summary: &Summary, growth: Option<Growth>) -> Option<f64> {
    let takes = !summary.forgets && !summary.is_fixed;
    let speed = growth?.keys_per_second;
    let left = summary.capacity?.checked_sub(summary.keys).filter(|left| *left > 0)?;
    (takes && speed > 0.0).then(|| left as f64 / speed)
}

/// Returns a capacity for twice the keys.
fn twice(summary: &Summary) -> u64 {
    summary.keys.max(summary.capacity.unwrap_or(0)).saturating_mul(2)
}

/// Returns the memory of a filter like this one for so many keys.
fn bytes_for(summary: &Summary, items: u64) -> Option<u64> {
    let question =
        Question { items: Some(items), rate: summary.target_rate, ..Question::default() };
    let kind = Kind::offered().find(|kind| kind.name() == summary.kind)?;
    Some(question.plan(kind).ok()?.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMARY: Summary = Summary {
        kind: "blocked",
        keys: 500,
        capacity: Some(1000),
        target_rate: Some(0.01),
        grows: false,
        forgets: false,
        is_fixed: false,
    };

    fn codes(summary: Summary, rate: f64, keys_per_second: Option<f64>) -> Vec<&'static str> {
        let growth = keys_per_second.map(|it| Growth { keys_per_second: it, seconds: 60 });
        let found = from_all(&summary, rate, full_in(&summary, growth), 0);
        found.into_iter().map(|(_, code)| code).collect()
    }

    #[test]
    fn advice_fits_the_filter() {
        assert_eq!(codes(SUMMARY, 0.001, None), ["healthy"]);
        assert_eq!(codes(SUMMARY, 0.02, None), ["over_target"]);
        let full = Summary { keys: 1000, ..SUMMARY };
        assert_eq!(codes(full, 0.01, Some(1.0)), ["full"]);
        assert_eq!(codes(Summary { grows: true, ..full }, 0.01, Some(1.0)), ["healthy"]);
        let grown = Summary { keys: 3000, grows: true, ..SUMMARY };
        assert_eq!(codes(grown, 0.01, Some(1.0)), ["grown"]);
        let nearly = Summary { keys: 950, ..SUMMARY };
        assert_eq!(codes(nearly, 0.01, None), ["nearly_full"]);
        assert_eq!(codes(nearly, 0.01, Some(1.0)), ["full_soon"]);
        assert_eq!(codes(nearly, 0.01, Some(-1.0)), ["nearly_full"]);
        assert_eq!(codes(SUMMARY, 0.001, Some(1e-9)), ["healthy"], "in 16,000 years");
        let file = Summary { keys: 5000, is_fixed: true, ..SUMMARY };
        assert_eq!(codes(file, 0.01, None), ["healthy"]);
        let window = Summary { keys: 5000, forgets: true, ..SUMMARY };
        assert_eq!(codes(window, 0.05, Some(9.0)), ["over_target"]);
    }

    #[test]
    fn the_forecast_is_when_the_last_key_fits() {
        let growth = Growth { keys_per_second: 2.0, seconds: 60 };
        assert_eq!(full_in(&SUMMARY, Some(growth)), Some(250.0));
        assert_eq!(full_in(&Summary { keys: 1000, ..SUMMARY }, Some(growth)), None);
        assert_eq!(full_in(&SUMMARY, None), None);
    }
}
