//! Filters with a part beside what they were made of: an overlay over a static one, and a growing part.

use core::any::Any;

use super::{Content, Filter};
use crate::compose::grown::{self, Grown};
use crate::compose::overlay::Overlay;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::plan::cannot_grow;

impl Filter {
    /// Lets a filter of a static kind take inserts and removals after all: what changes is kept
    /// beside what was built, see [`Overlay`](crate::Overlay). The other kinds take them as
    /// they are.
    ///
    /// `promise` is the rate that all of it promises from now on: that of the plan, or more. What
    /// is added takes a tenth of it at most, so that a filter which is to be changed should be
    /// planned for nine tenths of it.
    ///
    /// Only the filter at hand takes changes, not what is read from its file again.
    ///
    /// ```
    /// use inbloom::{Filter, Hasher, Kind, Plan};
    ///
    /// let (keys, hasher) = (["alice", "bob", "carol"], Hasher::default());
    /// let plan = Plan::builder(Kind::Ribbon).items(3).rate(0.9e-6).build()?;
    /// let digests: Vec<_> = keys.iter().map(|key| hasher.digest(key)).collect();
    /// let mut list = Filter::build(plan, hasher, &digests)?.into_overlay(1e-6)?;
    /// assert!(list.insert("dave")? && list.remove("alice")?);
    /// assert!(list.contains("dave") && list.contains("bob") && !list.contains("alice"));
    /// assert!(list.rate() <= 1e-6);
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn into_overlay(mut self, promise: f64) -> Result<Filter> {
        if !self.plan().kind().is_static() {
            return Err(Error::Unsupported {
                kind: self.plan().kind(),
                verb: "have an overlay",
                remedy: "insert into it, and remove if the kind can",
            });
        }
        self.content =
            Content::other(Overlay::open(self.content.into_state(), self.hasher, promise)?);
        Ok(self)
    }

    /// Lets a filter go on past the keys that it was planned for, at its target rate: further keys
    /// go into a growing part beside it, see [`Grown`](crate::Grown). What is read from
    /// its file again grows too.
    ///
    /// Plan the filter with [`PlanBuilder::growing`](crate::PlanBuilder::growing), which leaves
    /// the growing part its share of the rate. A filter that was planned without it grows as long
    /// as its keys have not used up the rate. A scalable filter grows as it is.
    ///
    /// ```
    /// use inbloom::{Filter, Kind, Plan};
    ///
    /// let plan = Plan::builder(Kind::Blocked).items(1000).rate(0.01).growing().build()?;
    /// let mut seen = Filter::new(plan)?.into_growing()?;
    /// for key in 0..50_000_u64 {
    ///     seen.insert(key.to_le_bytes())?;
    /// }
    /// assert!(seen.contains(49_999_u64.to_le_bytes()));
    /// assert!(seen.rate() <= 0.01);
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refuses kinds that have no growing part, shards, filters that clear themselves, and those
    /// that have used up their rate.
    pub fn into_growing(mut self) -> Result<Filter> {
        self.check_growing_kind()?;
        if self.plan().growth() == 0 && self.as_grown().is_none() {
            let state = self.content.into_state();
            self.content = Content::other(Grown::open(state, self.hasher, self.inserted)?);
        }
        Ok(self)
    }

    /// Returns the error of [`Filter::into_growing`], if there is one: before the filter is given
    /// away.
    pub fn check_growth(&self) -> Result<()> {
        self.check_growing_kind()?;
        if self.plan().growth() == 0 && self.as_grown().is_none() {
            grown::rate_left(self.content.state(), self.inserted)?;
        }
        Ok(())
    }

    fn check_growing_kind(&self) -> Result<()> {
        let plan = self.plan();
        let can_grow = plan.growth() > 0
            || plan.kind().can_outgrow() && plan.shard().is_none() && self.shards().len() == 1;
        if !can_grow {
            return Err(cannot_grow(plan));
        }
        match self.auto_clear() {
            Some(_) => Err(grown::clears_itself(plan.kind())),
            None => Ok(()),
        }
    }

    /// Answers "no" from now on for those of these keys that are claimed, and tells how many there
    /// are: for keys that were never in, and must not be hit by accident. Only a list can that
    /// [`Filter::into_overlay`] has made.
    ///
    /// To queries it is the same as to remove them; but they do not count as keys that have left,
    /// in [`Filter::inserted`] and [`Filter::estimated_items`]. A key that is in should be removed.
    ///
    /// ```
    /// use inbloom::{Filter, Hasher, Kind, Plan};
    ///
    /// let hasher = Hasher::default();
    /// let digests: Vec<_> = (0..2000_u64).map(|key| hasher.digest(key.to_le_bytes())).collect();
    /// let (members, foreign) = digests.split_at(1000);
    /// let plan = Plan::builder(Kind::Ribbon).items(1000).rate(0.1).build()?;
    /// let mut list = Filter::build(plan, hasher, members)?.into_overlay(0.1)?;
    /// assert!(list.deny_digests(foreign)? > 0);
    /// assert!(!foreign.iter().any(|digest| list.contains_digest(*digest)));
    /// assert_eq!(list.inserted(), 1000);
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn deny_digests(&mut self, digests: &[Digest]) -> Result<u64> {
        let kind = self.plan().kind();
        let Some(list) = self.as_overlay_mut() else {
            let remedy = "create an overlay with Filter::into_overlay";
            return Err(Error::Unsupported { kind, verb: "exclude keys", remedy });
        };
        list.deny(digests, "exclude keys")
    }

    /// What was added to a static filter and what it denies, if there is such: see
    /// [`Filter::into_overlay`].
    #[must_use]
    pub fn as_overlay(&self) -> Option<&Overlay> {
        (self.content.state() as &dyn Any).downcast_ref()
    }

    /// Returns the growing part of a filter, if it can have one: see [`Filter::into_growing`].
    #[must_use]
    pub fn as_grown(&self) -> Option<&Grown> {
        (self.content.state() as &dyn Any).downcast_ref()
    }

    pub(super) fn as_overlay_mut(&mut self) -> Option<&mut Overlay> {
        (self.content.state_mut() as &mut dyn Any).downcast_mut()
    }
}
