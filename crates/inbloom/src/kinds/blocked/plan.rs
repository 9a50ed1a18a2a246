//! The sizes of a blocked filter: an array of lines of bits, see [`lines`].

use crate::error::Result;
use crate::kind::Kind;
use crate::plan::planner::Planner;
use crate::plan::{Plan, PlanBuilder, lines, search};

impl Plan {
    /// Returns the plan of an existing blocked filter from the numbers that determine it. It is the
    /// same plan in every version, whatever [`Plan::builder`] would plan now. Use it to store many
    /// small filters without the file header of 192 bytes.
    ///
    /// # Errors
    ///
    /// Refuses numbers that no blocked filter has.
    ///
    /// # Examples
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
}

pub(crate) struct BlockedPlan;

impl Planner for BlockedPlan {
    fn check(&self, plan: &Plan) -> Result<()> {
        lines::check(plan)
    }

    fn check_given(&self, given: &PlanBuilder) -> Result<()> {
        lines::check_given(given)
    }

    fn solve(&self, given: &PlanBuilder) -> Result<Plan> {
        search::solve(given, &lines::shapes(given, 1))
    }

    fn exact(&self, kind: Kind, bits: u64, probes: u32) -> Result<Plan> {
        lines::exact(kind, bits, probes, 1)
    }

    fn shard(&self, plan: &Plan, shards: u32) -> Result<Plan> {
        lines::shard(plan, shards)
    }

    fn concatenates(&self, plan: &Plan) -> bool {
        lines::concatenates(plan)
    }

    /// One bit of each block is reserved.
    fn cells(&self, plan: &Plan) -> u64 {
        plan.bits - plan.blocks()
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
}
