//! The sizes of a counting filter: an array of lines of counters, see [`lines`].

use crate::error::Result;
use crate::kind::Kind;
use crate::plan::planner::Planner;
use crate::plan::{Plan, PlanBuilder, lines, parameter, search};

/// Bits that a counter can have, and has by default.
const COUNTERS: [u32; 4] = [2, 3, 4, 8];
const DEFAULT_COUNTER: u32 = 3;

pub(crate) struct CountingPlan;

impl Planner for CountingPlan {
    fn check(&self, plan: &Plan) -> Result<()> {
        lines::check(plan)?;
        check_width(plan.width)
    }

    fn check_given(&self, given: &PlanBuilder) -> Result<()> {
        given.width.map_or(Ok(()), check_width)?;
        lines::check_given(given)
    }

    fn solve(&self, given: &PlanBuilder) -> Result<Plan> {
        search::solve(given, &lines::shapes(given, given.width.unwrap_or(DEFAULT_COUNTER)))
    }

    fn exact(&self, kind: Kind, bits: u64, probes: u32) -> Result<Plan> {
        lines::exact(kind, bits, probes, DEFAULT_COUNTER)
    }

    fn shard(&self, plan: &Plan, shards: u32) -> Result<Plan> {
        lines::shard(plan, shards)
    }

    fn concatenates(&self, plan: &Plan) -> bool {
        lines::concatenates(plan)
    }

    /// Counters that a word has no room for are none.
    fn positions(&self, plan: &Plan) -> u64 {
        plan.bits / 64 * u64::from(64 / plan.width)
    }

    fn cache_lines(&self, plan: &Plan) -> u32 {
        plan.lines
    }

    fn rate_at(&self, plan: &Plan, items: f64) -> f64 {
        plan.as_lines().rate(items)
    }

    fn fill_at(&self, plan: &Plan, items: f64) -> f64 {
        plan.as_lines().fill(items)
    }

    fn items_at_fill(&self, plan: &Plan, fill: f64) -> (f64, f64) {
        plan.as_lines().items(fill)
    }

    fn saturation(&self, plan: &Plan) -> f64 {
        plan.as_lines().overflow(plan.items as f64, (1 << plan.width) - 1)
    }
}

fn check_width(width: u32) -> Result<()> {
    match COUNTERS.contains(&width) {
        true => Ok(()),
        false => parameter("width", width, "2, 3, 4 or 8 for kind counting"),
    }
}
