//! Combines two filters: the keys of either, or the keys of both.

use super::{Content, Filter, shards};
use crate::compose::grown::{self, Grown};
use crate::error::{Error, Result};
use crate::state::{State, cannot_change, cannot_intersect};

impl Filter {
    /// Adds the keys of another filter to this one.
    ///
    /// Both must have the same hash and the same plan, except for items and rate. Two scalable
    /// filters must have the same rate too. Counting and cuckoo filters add their counts.
    ///
    /// # Errors
    ///
    /// Nothing has changed after an error.
    ///
    /// - [`Error::Mismatch`] names what differs.
    /// - [`Error::Full`] or [`Error::Copies`] if a cuckoo filter has no room for both.
    /// - [`Error::MergedRate`] if a scalable filter would pass its target rate.
    /// - [`Error::ReadOnly`] if this filter is open read-only.
    pub fn merge(&mut self, other: &Filter) -> Result<()> {
        if !self.plan().kind().can_merge() {
            return Err(cannot_change(self.plan(), "merge"));
        }
        self.check_compatible(other)?;
        self.unite(other)?;
        let (here, there) = (self.inserted(), other.inserted());
        let distinct = self.content.measured().estimate(None).rounded();
        self.inserted = distinct.clamp(here.max(there), here.saturating_add(there));
        Ok(())
    }

    fn unite(&mut self, other: &Filter) -> Result<()> {
        if self.as_grown().is_some() {
            return self.content.state_mut().unite(other.content.state());
        }
        let (base, growing) = grown::parts(other.content.state());
        let Some(growing) = growing else { return self.content.state_mut().unite(base) };
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        if self.auto_clear.is_some() {
            return Err(grown::clears_itself(self.plan().kind()));
        }
        let (state, growing) = (self.content.state().copy()?, growing.try_clone()?);
        let mut united = Grown::from_parts(state, growing, self.inserted);
        united.unite(base)?;
        self.content = Content::other(united);
        Ok(())
    }

    /// Keeps in this filter the keys that both filters have.
    ///
    /// Every key that was inserted into both stays present. So do the false positives that both
    /// have in common: more than a filter of the common keys alone would have, and at most as many
    /// as the filter with the lower rate has.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Mismatch`] if the filters differ, and with [`Error::Unsupported`] for
    /// kinds that cannot be intersected.
    pub fn intersect(&mut self, other: &Filter) -> Result<()> {
        self.check_compatible(other)?;
        let plan = *self.plan();
        match (self.content.state_mut().intersecting(), grown::parts(other.content.state())) {
            (Some(here), (base, None)) => here.intersect(base)?,
            _ => return Err(cannot_intersect(&plan)),
        }
        let most = self.inserted.min(other.inserted);
        self.inserted = self.content.measured().estimate(None).rounded().min(most);
        Ok(())
    }

    pub(crate) fn check_compatible(&self, other: &Filter) -> Result<()> {
        let (here, there) = (self.shards(), other.shards());
        if here.len() != there.len() {
            return Err(shards::other_number(here.len() as u32, there.len() as u32));
        }
        if here.len() > 1 {
            return here[0].check_compatible(&there[0]);
        }
        if let Some((field, left, right)) = self.plan().difference(other.plan()) {
            return Err(Error::Mismatch { field, left, right });
        }
        self.check_same_hash(other)
    }

    pub(crate) fn check_same_hash(&self, other: &Filter) -> Result<()> {
        self.hasher.check_same(&other.hasher)
    }
}
