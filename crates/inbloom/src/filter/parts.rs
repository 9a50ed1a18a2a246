//! Filters with a second part: an overlay over a static filter, and a growing part.

use core::any::Any;

use super::{Content, Filter};
use crate::compose::grown::{self, Grown};
use crate::compose::overlay::Overlay;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::plan::cannot_grow;

impl Filter {
    /// Adds an overlay to a filter of a static kind, so that it takes inserts and removals: see
    /// [`Overlay`](crate::Overlay). Other kinds need none.
    ///
    /// `rate` is the new target rate of filter and overlay together: that of the plan, or more.
    /// Added keys take a tenth of it at most. Plan a filter that will change for nine tenths of the
    /// rate.
    ///
    /// After the filter is saved and opened again, call this again to change it.
    ///
    /// # Errors
    ///
    /// Refuses other kinds, a rate below that of the plan, and a rate of 1 or more.
    ///
    /// # Examples
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
    pub fn into_overlay(mut self, rate: f64) -> Result<Filter> {
        if !self.plan().kind().is_static() {
            return Err(Error::Unsupported {
                kind: self.plan().kind(),
                verb: "have an overlay",
                remedy: "insert into it, and remove if the kind can",
            });
        }
        self.content = Content::other(Overlay::open(self.content.into_state(), self.hasher, rate)?);
        Ok(self)
    }

    /// Lets a filter grow past its planned keys, at its target rate. Further keys go into a growing
    /// part beside it, see [`Grown`](crate::Grown). After the filter is saved and opened again, it
    /// still grows.
    ///
    /// Plan the filter with [`PlanBuilder::growing`](crate::PlanBuilder::growing), which leaves the
    /// growing part its share of the rate. A filter that was planned without it grows as long as
    /// its keys have not used up the rate. A scalable filter grows without this call.
    ///
    /// # Errors
    ///
    /// Refuses kinds other than blocked, classic and scalable, shards, filters that clear
    /// themselves, and filters whose keys have used up the rate.
    ///
    /// # Examples
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
    pub fn into_growing(mut self) -> Result<Filter> {
        self.check_growing_kind()?;
        if self.plan().growth() == 0 && self.as_grown().is_none() {
            let state = self.content.into_state();
            self.content = Content::other(Grown::open(state, self.hasher, self.inserted)?);
        }
        Ok(self)
    }

    /// Checks whether [`Filter::into_growing`] would succeed, without consuming the filter.
    ///
    /// # Errors
    ///
    /// Returns the error of [`Filter::into_growing`].
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

    /// Excludes those of these keys that are reported as present, and returns their number. Use it
    /// for keys that were never inserted and must not be false positives.
    ///
    /// For queries this is the same as removing the keys. But [`Filter::inserted`] and
    /// [`Filter::estimated_items`] do not count them as removed. For a key that was inserted, use
    /// [`Filter::remove`].
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Unsupported`] if the filter has no overlay: see
    /// [`Filter::into_overlay`].
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::{Filter, Hasher, Kind, Plan};
    ///
    /// let hasher = Hasher::default();
    /// let digests: Vec<_> = (0..2000_u64).map(|key| hasher.digest(key.to_le_bytes())).collect();
    /// let (members, foreign) = digests.split_at(1000);
    /// let plan = Plan::builder(Kind::Ribbon).items(1000).rate(0.1).build()?;
    /// let mut list = Filter::build(plan, hasher, members)?.into_overlay(0.1)?;
    /// assert!(list.exclude_digests(foreign)? > 0);
    /// assert!(!foreign.iter().any(|digest| list.contains_digest(*digest)));
    /// assert_eq!(list.inserted(), 1000);
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn exclude_digests(&mut self, digests: &[Digest]) -> Result<u64> {
        let kind = self.plan().kind();
        let Some(list) = self.as_overlay_mut() else {
            let remedy = "create an overlay with Filter::into_overlay";
            return Err(Error::Unsupported { kind, verb: "exclude keys", remedy });
        };
        list.exclude(digests, "exclude keys")
    }

    /// Returns the overlay of a static filter, if it has one: see [`Filter::into_overlay`].
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
