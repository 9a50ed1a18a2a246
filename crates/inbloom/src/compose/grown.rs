//! A filter that grows past its planned number of keys, at the same target rate.
//!
//! **Idea.** A blocked or classic filter takes the fewest bits for a known number of keys, and its
//! rate rises past that number. A scalable filter takes any number of keys, in about twice the
//! bits. So keys go first into a *base* of the planned size. When it holds its planned keys, it is
//! closed and does not change any more. Further keys go into a *growing part*, a scalable filter
//! beside it.
//!
//!   answer = base or growing part
//!
//! **Rates add up.** A non-member is reported present by the base or by the growing part, so both
//! share the target rate: the base takes [`base_share`] of it, the growing part the rest.
//! [`PlanBuilder::growing`] plans a base for its share. The sum stays at most the target, however
//! many keys come. A filter that was planned without that share can grow too, as long as its base
//! has not spent it: the base is closed early, at the number of keys that its share allows.
//!
//! **Cost.** Half of the target rate costs the base one or two bits per key. A key in the growing
//! part takes 18 bits at 10% to 27 at 0.01%, and a query looks into both parts. If the base is far
//! too small, build the filter again.
//!
//! **In a file** the growing part is section MORE, drawn in docs/format.md. The section exists from
//! the beginning, and is empty at first. So a filter that may grow does so in every program that
//! opens it to insert.
//!
//! [`PlanBuilder::growing`]: crate::PlanBuilder::growing

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

use crate::digest::{Digest, Hasher};
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::filter::Filter;
use crate::kind::Kind;
use crate::kinds::scalable::FIRST_ITEMS;
use crate::math;
use crate::membership::Membership;
use crate::paging::Paging;
pub use crate::plan::base_share;
use crate::plan::{MIN_RATE, Plan, missed_per_key};
use crate::profile::Slice;
use crate::state::{
    Clocked, Intersecting, Measured, Positioned, Removable, State, has_no_positions,
};
use crate::storage::{self, Bits, Order};

/// The smallest share of the target rate with which a growing part is useful. With less, a key
/// would take far more bits than in a filter that is built again.
const LEAST_LEFT: f64 = 0.1;

/// The growing part is planned for this fraction of the base's keys when the base is closed. Most
/// filters that outgrow their plan do so by little.
const FIRST_FRACTION: u64 = 8;

/// Returns the keys that a base takes: those that it was planned for, or as many as its share of
/// the rate allows if that is fewer.
fn base_capacity(plan: &Plan) -> u64 {
    // A product of a share and its inverse may be off by a rounding.
    let share = plan.rate() * base_share(plan.items()) * (1.0 + 1e-9);
    plan.items().min(plan.items_at(share))
}

/// Returns how many keys a filter holds, of which so many were new. That count comes from a file
/// that may be wrong; the bits tell the least.
fn held(base: &dyn State, inserted: u64) -> u64 {
    let estimate = base.measured().estimate(Some(inserted));
    inserted.max((estimate.items - 3.0 * estimate.error) as u64)
}

fn growing_plan(rate: f64, items: u64) -> Result<Plan> {
    Plan::builder(Kind::Scalable).items(items).rate(rate).build()
}

/// Returns the target rate of the growing part of a filter of which so many keys were new. Fails if
/// too little is left for one.
pub(crate) fn rate_left(base: &dyn State, inserted: u64) -> Result<f64> {
    let (target, share) = (base.plan().rate(), base_share(base.plan().items()));
    let left = match held(base, inserted) <= base_capacity(base.plan()) {
        // By plan, not by the bits: so that filters of one plan have parts of one rate, which can
        // be merged.
        true => target * (1.0 - share),
        false => (target - base.measured().rate()).min(target * (1.0 - share)),
    };
    if left < target * LEAST_LEFT || left < MIN_RATE {
        return Err(Error::Unsupported {
            kind: base.plan().kind(),
            verb: "grow",
            remedy: "its rate is used up: build it again for more keys, or planned to grow ('inbloom build --overfull \
                     grow', PlanBuilder::growing)",
        });
    }
    Ok(left)
}

/// A filter with a growing part: see [`Filter::into_growing`] and [`Filter::as_grown`].
///
/// ```
/// use inbloom::{Filter, Kind, Plan};
///
/// let plan = Plan::builder(Kind::Blocked).items(1000).rate(0.01).growing().build()?;
/// let mut seen = Filter::new(plan)?.into_growing()?;
/// seen.insert_many(&Vec::from_iter(0..3000_u64), &mut Vec::new())?;
/// assert!(seen.as_grown().is_some_and(|grown| grown.beyond() > 1000));
/// # Ok::<(), inbloom::Error>(())
/// ```
pub struct Grown {
    /// The plan of the base, with the target rate of both parts together.
    plan: Plan,
    base: Box<dyn State>,
    /// How many keys of both parts were new when it was opened.
    inserted: u64,
    /// How many more keys the base takes; found when the first one comes, since it takes a
    /// millisecond.
    room: Option<u64>,
    /// Keys that came after the base was closed, and whether it is.
    growing: Filter,
    closed: bool,
}

impl fmt::Debug for Grown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::state::debug("Grown", self, f)
    }
}

impl Grown {
    /// Returns the parts as a file has them.
    pub(crate) fn from_parts(base: Box<dyn State>, growing: Filter, inserted: u64) -> Grown {
        let (plan, closed) = (*base.plan(), growing.occupied() > 0);
        Grown { plan, base, inserted, room: None, growing, closed }
    }

    /// Lets a filter of which so many keys were new grow.
    pub(crate) fn open(base: Box<dyn State>, hasher: Hasher, inserted: u64) -> Result<Grown> {
        let rate = rate_left(base.as_ref(), inserted)?;
        let growing = Filter::with_hasher(growing_plan(rate, FIRST_ITEMS)?, hasher)?;
        Ok(Grown::from_parts(base, growing, inserted))
    }

    /// Returns how many keys are in the growing part.
    #[must_use]
    pub fn beyond(&self) -> u64 {
        self.growing.inserted()
    }

    /// Returns the growing part, which is the file in section MORE.
    pub(crate) fn growing_part(&self) -> &Filter {
        &self.growing
    }

    /// Returns how many more keys the base takes.
    fn room(&mut self) -> u64 {
        match (self.closed, self.room) {
            (true, _) => 0,
            (false, Some(room)) => room,
            (false, None) => {
                let held = held(self.base.as_ref(), self.inserted);
                let room = base_capacity(&self.plan).saturating_sub(held);
                self.room = Some(room);
                room
            }
        }
    }

    /// Notes that so many keys were new to the base.
    fn took(&mut self, new: u64) {
        self.room = self.room.map(|room| room.saturating_sub(new));
    }

    /// Closes the base, which has all that it is for.
    fn close(&mut self) -> Result<()> {
        // Not by the planned items, which a file may have wrong: its bits bound the capacity.
        let items = (base_capacity(&self.plan) / FIRST_FRACTION).max(FIRST_ITEMS);
        let plan = growing_plan(self.growing.plan().rate(), items)?;
        self.growing = Filter::with_hasher(plan, *self.growing.hasher())?;
        self.closed = true;
        Ok(())
    }

    fn check_writable(&self) -> Result<()> {
        if self.base.measured().is_read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Inserts a run of which the base takes no more.
    fn insert_beyond(
        &mut self,
        run: &[Digest],
        next: &[Digest],
        new: &mut Vec<bool>,
    ) -> Result<()> {
        let mut in_base = vec![false; run.len()];
        self.base.contains_run(run, next, &mut in_base);
        let absent = run.iter().zip(&in_base).filter(|(_, in_base)| !**in_base);
        let absent: Vec<Digest> = absent.map(|(digest, _)| *digest).collect();
        let mut answers = Vec::with_capacity(absent.len());
        let result = self.growing.insert_digests(&absent, &mut answers);
        let mut answers = answers.into_iter();
        // On an error the answers end at the first digest that was refused.
        let in_order = in_base.iter().map_while(|in_base| match in_base {
            true => Some(false),
            false => answers.next(),
        });
        new.extend(in_order);
        result
    }
}

/// Estimates how many keys came to a part behind a base: those that the part had itself, and those
/// that the base took for its own, at its rate.
pub(crate) fn estimate_behind(base: &dyn State, part: &Filter) -> Estimate {
    let behind = part.estimated_items();
    let missed = behind.items * missed_per_key(|_| base.measured().rate());
    Estimate { items: behind.items + missed, error: math::hypot(behind.error, math::sqrt(missed)) }
}

/// Asks a second part for those of a run that a first one does not have.
pub(crate) fn also_ask(part: &Filter, run: &[Digest], next: &[Digest], found: &mut [bool]) {
    let mut in_part = vec![false; run.len()];
    part.content.members().contains_run(run, next, &mut in_part);
    found.iter_mut().zip(in_part).for_each(|(found, in_part)| *found |= in_part);
}

impl Membership for Grown {
    fn contains_digest(&self, digest: Digest) -> bool {
        self.base.contains_digest(digest) || (self.closed && self.growing.contains_digest(digest))
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        if self.room() > 0 {
            let new = self.base.insert_digest(digest)?;
            self.took(u64::from(new));
            return Ok(new);
        }
        self.check_writable()?;
        if self.base.contains_digest(digest) {
            return Ok(false);
        }
        if !self.closed {
            self.close()?;
        }
        self.growing.insert_digest(digest)
    }

    fn prefetch(&self, digests: &[Digest]) {
        self.base.prefetch(digests);
        if self.closed {
            self.growing.content.members().prefetch(digests);
        }
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        self.base.contains_run(run, next, found);
        if self.closed {
            also_ask(&self.growing, run, next, found);
        }
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        let mut run = run;
        if !self.closed && run.len() as u64 <= self.room() {
            let before = new.len();
            let result = self.base.insert_run(run, next, new);
            self.took(new[before..].iter().filter(|new| **new).count() as u64);
            return result;
        }
        // The run in which the base is closed, one by one.
        while !self.closed
            && let [first, rest @ ..] = run
        {
            new.push(self.insert_digest(*first)?);
            run = rest;
        }
        self.check_writable()?;
        self.insert_beyond(run, next, new)
    }
}

impl State for Grown {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn measured(&self) -> &dyn Measured {
        self
    }

    fn clear(&mut self) -> Result<()> {
        self.base.clear()?;
        self.growing.clear()?;
        (self.inserted, self.room, self.closed) = (0, None, false);
        Ok(())
    }

    fn copy(&self) -> Result<Box<dyn State>> {
        let (base, growing) = (self.base.copy()?, self.growing.try_clone()?);
        Ok(Box::new(Grown { base, growing, ..*self }))
    }

    /// A filter that has not grown is the filter it was made from.
    fn same(&self, other: &dyn State) -> bool {
        same(self, other)
    }

    /// Unites base with base, and growing part with growing part.
    fn unite(&mut self, other: &dyn State) -> Result<()> {
        let (base, growing) = parts(other);
        self.check_writable()?;
        if let Some(growing) = growing {
            // Refused, if it is, before anything has changed.
            self.growing.merge(growing)?;
            self.closed = true;
        }
        self.base.unite(base)?;
        // Known by the bits only, as far as it can be.
        (self.inserted, self.room) = (0, None);
        Ok(())
    }

    fn count(&self, digest: Digest) -> u64 {
        u64::from(self.contains_digest(digest))
    }

    fn check(&self, digest: Digest) -> Result<()> {
        self.base.check(digest)
    }

    /// Its bits are not all of it.
    fn into_bits(self: Box<Self>) -> Option<Bits> {
        None
    }

    fn expect(&self, order: Order) {
        self.base.expect(order);
    }

    fn set_paging(&mut self, paging: Paging) {
        self.base.set_paging(paging);
    }

    /// Keys of the base and of the growing part are not distinguished.
    fn removable(&mut self) -> Option<&mut dyn Removable> {
        None
    }

    /// With a growing part the base has not all keys.
    fn intersecting(&mut self) -> Option<&mut dyn Intersecting> {
        if self.closed { None } else { self.base.intersecting() }
    }

    fn clocked(&mut self) -> Option<&mut dyn Clocked> {
        None
    }

    fn positioned(&self) -> Option<&dyn Positioned> {
        self.base.positioned().map(|_| self as &dyn Positioned)
    }
}

impl Measured for Grown {
    /// Those of the base, which its file tells; the growing part has a file of its own within.
    fn occupied(&self) -> u64 {
        self.base.measured().occupied()
    }

    fn fill(&self) -> f64 {
        self.base.measured().fill()
    }

    fn recount(&self) -> Option<u64> {
        self.base.measured().recount()
    }

    fn profile(&self, slices: usize) -> Vec<Slice> {
        self.base.measured().profile(slices)
    }

    fn bytes(&self) -> u64 {
        self.base.measured().bytes() + self.growing.bytes()
    }

    fn memory(&self) -> u64 {
        storage::allocated(self.bytes())
    }

    fn rate(&self) -> f64 {
        (self.base.measured().rate() + self.growing.rate()).min(1.0)
    }

    fn estimate(&self, _inserted: Option<u64>) -> Estimate {
        let base = self.base.measured().estimate(None);
        let behind = estimate_behind(&*self.base, &self.growing);
        Estimate { items: base.items + behind.items, error: math::hypot(base.error, behind.error) }
    }

    fn room(&self) -> u64 {
        u64::MAX
    }

    fn next_growth(&self) -> Option<u64> {
        match self.closed {
            true => {
                let in_base = self.base.measured().estimate(None).rounded();
                self.growing.next_growth().map(|next| next.saturating_add(in_base))
            }
            false => Some(base_capacity(&self.plan)),
        }
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let mut details = self.base.measured().details();
        let (keys, bytes) = (self.growing.inserted(), self.growing.bytes());
        let rate = self.growing.rate();
        let text = format!("{keys} keys, in {bytes} bytes at a rate of {rate:.2e}");
        details.push(("growing part", text));
        details
    }

    fn bits(&self) -> Option<&Bits> {
        None
    }

    fn payload(&self) -> Cow<'_, [u8]> {
        self.base.measured().payload()
    }

    fn is_read_only(&self) -> bool {
        self.base.measured().is_read_only()
    }
}

impl Positioned for Grown {
    fn positions(&self, digest: Digest) -> Result<Vec<u64>> {
        match self.base.positioned() {
            Some(base) if !self.closed => base.positions(digest),
            _ => Err(has_no_positions(&self.plan)),
        }
    }

    /// With a growing part the base has not all keys: no position rules a key out.
    fn is_set(&self, position: u64) -> bool {
        self.closed || self.base.positioned().is_some_and(|base| base.is_set(position))
    }
}

/// Returns whether two filters of one plan have the same content.
pub(crate) fn same(one: &dyn State, other: &dyn State) -> bool {
    let ((base, growing), (other_base, other_growing)) = (parts(one), parts(other));
    base.same(other_base) && growing == other_growing
}

/// Why a filter with a growing part does not do what takes its array of bits for all of it.
pub(crate) fn is_not_its_bits(kind: Kind, verb: &'static str) -> Error {
    let remedy = "build it again from its keys, without a growing part";
    Error::Unsupported { kind, verb, remedy }
}

/// Why a filter does not both grow and clear itself.
pub(crate) fn clears_itself(kind: Kind) -> Error {
    let remedy = "choose one of the two";
    Error::Unsupported { kind, verb: "both grow and clear itself", remedy }
}

/// Returns the parts of a filter of any sort: one that has not grown yet is all base.
pub(crate) fn parts(state: &dyn State) -> (&dyn State, Option<&Filter>) {
    match (state as &dyn Any).downcast_ref::<Grown>() {
        Some(grown) => (grown.base.as_ref(), grown.closed.then_some(&grown.growing)),
        None => (state, None),
    }
}
