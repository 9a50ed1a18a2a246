//! The sizes of a window: those of a blocked filter for each of its generations.

use core::time::Duration;

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::math;
use crate::plan::lines::{self, BLOCK_BITS, round_up_to_ranges};
use crate::plan::planner::Planner;
use crate::plan::search::DEFAULT_RATE;
use crate::plan::{MIN_RATE, Plan, PlanBuilder, Span, parameter};

/// Steps in which keys expire: at most, and by default.
const MAX_GENERATIONS: u32 = 64;
const DEFAULT_GENERATIONS: u32 = 4;

impl Plan {
    /// Returns the plan of one generation of a window.
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

    /// Returns the generations that a window keeps: one for each step, and the one that is being
    /// filled.
    pub(crate) fn kept_generations(&self) -> u64 {
        u64::from(self.generations) + 1
    }
}

pub(crate) struct WindowPlan;

impl Planner for WindowPlan {
    fn check(&self, plan: &Plan) -> Result<()> {
        lines::check(plan)?;
        check_generations(plan.generations)?;
        let length = match plan.span {
            Some(Span::Millis(length) | Span::Items(length)) => length,
            None => 0,
        };
        if length < u64::from(plan.generations) {
            return parameter("window", length, "at least as long as it has generations");
        }
        Ok(())
    }

    fn check_given(&self, given: &PlanBuilder) -> Result<()> {
        given.generations.map_or(Ok(()), check_generations)?;
        lines::check_given(given)
    }

    fn solve(&self, given: &PlanBuilder) -> Result<Plan> {
        let needs = "the window: a time, or a number of keys";
        let Some(span) = given.span else {
            return Err(Error::Underspecified { kind: given.kind, needs });
        };
        let generations = given.generations.unwrap_or(DEFAULT_GENERATIONS);
        let (steps, kept) = (u64::from(generations), f64::from(generations + 1));
        let items = match span {
            Span::Items(items) => Some(items),
            Span::Millis(_) => given.items,
        };
        if let (Span::Items(last), Some(given)) = (span, given.items)
            && last != given
        {
            return parameter(
                "items",
                given,
                format_args!("{last}, the length of the window, or left out"),
            );
        }
        if let Some(got) = given.rate.filter(|rate| rate / kept < MIN_RATE) {
            let reason = "must be at least 1e-12 for each generation of a window and one more";
            return Err(Error::Rate { got, reason });
        }
        let of_one = PlanBuilder {
            kind: Kind::Blocked,
            items: items.map(|items| items.div_ceil(steps)),
            rate: match (given.rate, given.bytes, given.bits_per_key) {
                (None, None, None) => Some(DEFAULT_RATE / kept),
                (given, ..) => given.map(|rate| rate / kept),
            },
            bytes: given.bytes.map(|bytes| bytes / (steps + 1)),
            bits_per_key: given.bits_per_key.map(|bits| bits * steps as f64 / kept),
            span: None,
            generations: None,
            ..*given
        }
        .build()
        .map_err(|error| match error {
            Error::Underspecified { needs, .. } => {
                Error::Underspecified { kind: given.kind, needs }
            }
            other => other,
        })?;
        Plan {
            kind: given.kind,
            items: items.unwrap_or(of_one.items.saturating_mul(steps)),
            rate: given.rate.unwrap_or((of_one.rate * kept).min(1.0)),
            span: Some(span),
            generations,
            ..of_one
        }
        .check()
    }

    fn shard(&self, plan: &Plan, shards: u32) -> Result<Plan> {
        match plan.span {
            // It begins the next generation after so many keys of its own. That must not be too
            // soon: a key would be forgotten before as many as the window came to all shards.
            Some(Span::Items(_)) => shard_for(plan, plan.most_of_a_share(shards), shards),
            // Generations fill one by one, and unevenly each.
            _ => {
                let plan_for = |items| shard_for(plan, items, shards);
                plan.roomy_shard(shards, plan.generations, plan_for, Plan::generation)
            }
        }
    }

    fn bytes(&self, plan: &Plan) -> u64 {
        plan.generation().bytes().saturating_mul(plan.kept_generations())
    }

    fn has_fixed_size(&self, _plan: &Plan) -> bool {
        false
    }

    fn all_bits(&self, plan: &Plan) -> f64 {
        plan.bits as f64 * plan.kept_generations() as f64
    }

    fn cells(&self, plan: &Plan) -> u64 {
        plan.generation().cells().saturating_mul(plan.kept_generations())
    }

    fn cache_lines(&self, plan: &Plan) -> u32 {
        plan.lines * (plan.generations + 1)
    }

    fn rate_at(&self, plan: &Plan, items: f64) -> f64 {
        let generations = f64::from(plan.generations);
        let of_one = plan.generation().rate_at(items / generations);
        (of_one * (generations + 1.0)).min(1.0)
    }

    fn fill_at(&self, plan: &Plan, items: f64) -> f64 {
        plan.generation().fill_at(items / f64::from(plan.generations))
    }

    fn items_at_fill(&self, plan: &Plan, fill: f64) -> (f64, f64) {
        let all = plan.kept_generations() as f64;
        let (items, error) = plan.generation().items_at_fill(fill);
        (items * all, error * math::sqrt(all))
    }
}

/// Returns the fewest bits for a shard of so many items, but no fewer than its share.
fn shard_for(plan: &Plan, items: u64, shards: u32) -> Result<Plan> {
    let builder = Plan::builder(plan.kind)
        .rate(plan.offered_rate())
        .probes(plan.probes)
        .lines(plan.lines)
        .generations(plan.generations);
    let fewest = match plan.span {
        None => builder.items(items),
        Some(Span::Items(_)) => builder.last(items.max(u64::from(plan.generations))),
        Some(Span::Millis(millis)) => builder.items(items).window(Duration::from_millis(millis)),
    };
    let fewest = fewest.build()?;
    let share = plan.bits.div_ceil(u64::from(shards));
    let share = match plan.lines {
        1 => share.next_multiple_of(BLOCK_BITS),
        _ => round_up_to_ranges(share.div_ceil(BLOCK_BITS).max(2)) * BLOCK_BITS,
    };
    Ok(Plan { bits: fewest.bits.max(share), ..fewest })
}

fn check_generations(generations: u32) -> Result<()> {
    match (1..=MAX_GENERATIONS).contains(&generations) {
        true => Ok(()),
        false => parameter("generations", generations, "1 to 64"),
    }
}
