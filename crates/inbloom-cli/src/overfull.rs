//! `--overfull`: what happens when more keys come than a filter was planned for.
//!
//! Past that number the false-positive rate rises above its target, and `dedup` would take new
//! lines for repeated ones. So a filter grows, or the command stops, or it goes on and says so.
//!
//! **When a filter is full**: when it has counted as many new keys as it was planned for, or as its
//! target rate has room for if that is more, and another one comes. Keys that were taken for others
//! are not counted, and set no bits. So a filter that was planned for n keys takes any n different
//! ones, also where chance has set a few bits more than expected.

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use inbloom::{Digest, Error, Estimate, Filter, Kind, Plan};

use crate::output::problem;
use crate::sizing::kinds_that;
use crate::{filter_file, numbers, output};

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overfull {
    /// Put further keys into a growing part, which keeps the rate
    Grow,
    /// Stop with an error before the rate exceeds its target
    Stop,
    /// Take further keys at a higher rate, with a warning
    Continue,
}

impl Overfull {
    fn name(self) -> &'static str {
        match self {
            Overfull::Grow => "grow",
            Overfull::Stop => "stop",
            Overfull::Continue => "continue",
        }
    }

    /// Decides for a new filter. Refuses an option that the kind cannot follow or never needs.
    /// Without the option, a kind that cannot grow stops, because no key is lost then. So does a
    /// scalable filter of `growth` 0.
    pub fn decide(
        asked: Option<Overfull>,
        default: Overfull,
        kind: Kind,
        growth: Option<u32>,
        clears_itself: bool,
    ) -> Result<Overfull> {
        let is_fixed = kind.can_grow() && growth == Some(0);
        let never = match is_fixed {
            _ if clears_itself => Some("empties itself (--auto-clear)"),
            true => None,
            false => kind.labels().never_overfull,
        };
        match (never, asked) {
            (Some(_), None) => Ok(Overfull::Continue),
            (Some(_), Some(Overfull::Grow)) if kind.can_grow() => Ok(Overfull::Continue),
            (Some(reason), Some(asked)) => bail!(problem(
                format!(
                    "--overfull {} has no meaning here: a filter of kind {kind} {reason}",
                    asked.name()
                ),
                "leave it out"
            )),
            (None, Some(Overfull::Grow)) if is_fixed => bail!(problem(
                format!("--growth 0 and --overfull grow contradict each other for kind {kind}"),
                "leave one of them out"
            )),
            (None, Some(Overfull::Grow)) if !kind.can_outgrow() => bail!(problem(
                format!("kind {kind} cannot grow"),
                format!(
                    "choose kind {}, or pass --overfull stop or continue",
                    kinds_that(Kind::can_outgrow)
                )
            )),
            (None, None) if default == Overfull::Grow && !kind.can_outgrow() => Ok(Overfull::Stop),
            (None, asked) => Ok(asked.unwrap_or(default)),
        }
    }

    /// Decides for an existing filter. A filter that was made to grow does so, unless the option is
    /// `stop`. A filter that has used up its rate cannot grow: that is an error if the option is
    /// `grow`, and without the option it stops. A filter that was made to grow may have used up its
    /// rate by a merge.
    pub fn decide_for(
        filter: &Filter,
        asked: Option<Overfull>,
        default: Overfull,
    ) -> Result<Overfull> {
        if filter.as_grown().is_some() {
            return match (filter_file::exceeds_promise(filter), asked) {
                (_, Some(Overfull::Stop)) | (true, None) => Ok(Overfull::Stop),
                (true, Some(Overfull::Continue)) => Ok(Overfull::Continue),
                (false, _) => Ok(Overfull::Grow),
                (true, Some(Overfull::Grow)) => bail!(problem(
                    format!(
                        "the filter cannot grow: its rate is {}, above the target of {}",
                        numbers::rate(filter.rate()),
                        numbers::rate(filter.plan().rate()),
                    ),
                    "pass --overfull stop or continue",
                )),
            };
        }
        if !filter_file::has_target(filter) && asked.is_none() {
            return Ok(Overfull::Continue);
        }
        let (plan, clears_itself) = (filter.plan(), filter.auto_clear().is_some());
        let growth = Some(plan.growth());
        let decided = Overfull::decide(asked, default, plan.kind(), growth, clears_itself)?;
        match (decided, filter.check_growth()) {
            (Overfull::Grow, Err(Error::Unsupported { .. }))
                if asked.is_some() && plan.kind().can_outgrow() && plan.shard().is_none() =>
            {
                bail!(problem(
                    "the filter cannot grow: it was not built to, and its rate is used up",
                    "build it again with 'inbloom build --overfull grow', or pass --overfull stop or \
                     continue",
                ))
            }
            (Overfull::Grow, Err(error)) if asked.is_some() => Err(error).with_context(|| {
                problem("the filter cannot grow", "pass --overfull stop or continue")
            }),
            (Overfull::Grow, Err(_)) => Ok(Overfull::Stop),
            _ => Ok(decided),
        }
    }

    /// Returns the number of new keys at which a filter is full, or `u64::MAX` if it does not stop.
    pub fn limit(self, filter: &Filter) -> u64 {
        match self {
            // Whatever it has counted: it may have been merged from several.
            Overfull::Stop if filter_file::exceeds_promise(filter) => filter.inserted(),
            Overfull::Stop if filter.as_grown().is_some() => filter.plan().items(),
            Overfull::Stop => limit_of(filter.plan()),
            Overfull::Grow | Overfull::Continue => u64::MAX,
        }
    }
}

/// Returns whether a filter that stopped could continue and grow.
pub fn can_grow(filter: &Filter) -> bool {
    filter.check_growth().is_ok() && !filter_file::exceeds_promise(filter)
}

/// Returns the number of keys that a plan has room for: the planned items, or as many as fit at its
/// target rate if that is more.
pub fn limit_of(plan: &Plan) -> u64 {
    plan.items().max(plan.items_at(plan.rate()))
}

/// Inserts keys into a filter that is saved only if all of them fit, or if the user accepts a
/// higher rate.
pub struct Filling {
    overfull: Overfull,
    limit: u64,
    is_over: bool,
    has_warned: bool,
}

impl Filling {
    pub fn new(overfull: Overfull, filter: &Filter) -> Filling {
        let limit = overfull.limit(filter);
        Filling { overfull, limit, is_over: false, has_warned: false }
    }

    /// Inserts keys and counts those that were new. Once there are too many, it only counts further
    /// keys.
    pub fn insert(
        &mut self,
        filter: &mut Filter,
        digests: &[Digest],
        new: &mut Vec<bool>,
    ) -> inbloom::Result<u64> {
        if self.is_over {
            return Ok(0);
        }
        match filter_file::insert_set(filter, digests, new) {
            Err(Error::Full { .. }) if self.overfull == Overfull::Stop => {
                self.is_over = true;
                return Ok(0);
            }
            result => result?,
        }
        self.is_over = filter.inserted() > self.limit;
        self.warn_if_passed(filter);
        Ok(filter_file::count_new(new))
    }

    /// Returns whether more keys came than the filter may hold. It must not be saved then.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    pub fn has_warned(&self) -> bool {
        self.has_warned
    }

    fn warn_if_passed(&mut self, filter: &Filter) {
        // A window is filled step by step: what is said in the end is said of the last one.
        let is_window = filter.plan().kind().forgets();
        let may_pass = self.overfull == Overfull::Continue && !self.has_warned && !is_window;
        if may_pass && has_passed(filter) {
            self.has_warned = true;
            output::warn(&problem(
                format!(
                    "more keys came than the {} that the filter was planned for, and its rate has \
                     passed the target of {}",
                    numbers::exact(filter.plan().items()),
                    numbers::rate(filter.plan().rate())
                ),
                "build a larger filter: its rate rises further with every key",
            ));
        }
    }
}

/// Returns whether a filter holds more keys than it was planned for, at a rate above its target.
pub fn has_passed(filter: &Filter) -> bool {
    let plan = filter.plan();
    let kind = plan.kind();
    if kind.forgets() {
        // Its rate tells, not how many keys it has: they may be spread unevenly.
        return filter_file::exceeds_promise(filter);
    }
    let has_target = filter_file::has_target(filter) && !kind.keeps_rate();
    has_target && filter.inserted() > plan.items() && filter.rate() > plan.rate()
}

/// Up to this rate, the number of keys can be estimated from the bits. Above it, most bits are set.
const TELLING: f64 = 0.5;

/// Returns the largest number of keys that a filter probably holds, or `None` if its bits do not
/// show it.
pub fn holds(inserted: u64, rate: f64, estimate: Estimate) -> Option<u64> {
    let most = (estimate.items + 3.0 * estimate.error).ceil() as u64;
    (rate <= TELLING).then_some(inserted.max(most))
}

/// Returns the option that plans for enough keys: the estimate from the bits or, if there is none,
/// the keys that it held before and those that came since.
pub fn larger(holds: Option<u64>, before: Option<u64>, read: u64) -> String {
    let came = before.map(|before| before.saturating_add(read));
    match (holds, came) {
        (Some(holds), Some(came)) => format!("-n {}", holds.min(came)),
        (Some(number), None) | (None, Some(number)) => format!("-n {number}"),
        (None, None) => "a larger -n".to_string(),
    }
}
