//! The sizes of a classic filter, from the models in [`model`](crate::plan::model).

use crate::error::Result;
use crate::kind::Kind;
use crate::math;
use crate::plan::model::{classic_fill, classic_items, classic_rate};
use crate::plan::planner::Planner;
use crate::plan::search::{self, ProbeLayout, Shapes};
use crate::plan::{BITS_RANGE, MAX_BITS, Plan, PlanBuilder, parameter};

/// The most probes of a classic filter. 40 serve a rate of 10^-12.
pub const MAX_CLASSIC_PROBES: u32 = 64;

pub(crate) struct ClassicPlan;

fn shapes(given: &PlanBuilder) -> Shapes {
    Shapes::new(given, (1..=MAX_CLASSIC_PROBES).map(ProbeLayout::Anywhere))
}

impl Planner for ClassicPlan {
    fn check(&self, plan: &Plan) -> Result<()> {
        if !(1..=MAX_BITS).contains(&plan.bits) {
            return parameter("bits", plan.bits, BITS_RANGE);
        }
        if !(1..=MAX_CLASSIC_PROBES).contains(&plan.probes) {
            return parameter("probes", plan.probes, "1 to 64 for kind classic");
        }
        if plan.lines != 1 {
            return parameter("lines", plan.lines, "1 for kind classic");
        }
        Ok(())
    }

    fn check_given(&self, given: &PlanBuilder) -> Result<()> {
        shapes(given).check_probes(given, "1 to 64")
    }

    fn solve(&self, given: &PlanBuilder) -> Result<Plan> {
        search::solve(given, &shapes(given))
    }

    fn exact(&self, kind: Kind, bits: u64, probes: u32) -> Result<Plan> {
        Plan { bits, probes, ..Plan::blank(kind) }.half_full()
    }

    fn shard(&self, plan: &Plan, shards: u32) -> Result<Plan> {
        let share = plan.bits.div_ceil(u64::from(shards));
        let plan_for = |items| {
            let builder = Plan::builder(plan.kind).rate(plan.offered_rate()).probes(plan.probes);
            let fewest = builder.items(items).build()?;
            Ok(Plan { bits: fewest.bits.max(share), ..fewest })
        };
        plan.roomy_shard(shards, 1, plan_for, |plan| *plan)
    }

    fn cache_lines(&self, plan: &Plan) -> u32 {
        plan.probes
    }

    fn rate_at(&self, plan: &Plan, items: f64) -> f64 {
        classic_rate(items, plan.bits as f64, plan.probes)
    }

    fn fill_at(&self, plan: &Plan, items: f64) -> f64 {
        classic_fill(items, plan.bits as f64, plan.probes)
    }

    fn items_at_fill(&self, plan: &Plan, fill: f64) -> (f64, f64) {
        classic_items(fill, plan.bits as f64, plan.probes)
    }

    /// Every probe falls on a set bit with this probability, and independently.
    fn rate_at_fill(&self, plan: &Plan, fill: f64) -> f64 {
        math::powi(fill.min(1.0), plan.probes as i32)
    }
}
