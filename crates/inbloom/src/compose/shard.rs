//! One shard of a filter, by itself: the kind, behind the pick of the shard.
//!
//! It takes only keys that belong to it, and answers every question as the kind within it would.
//! How keys are divided among shards is described in `sharded.rs`.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::membership::Membership;
use crate::paging::Paging;
use crate::plan::Plan;
use crate::state::{
    Clocked, Intersecting, Measured, Positioned, Removable, State, cannot_intersect, cannot_remove,
    has_no_positions,
};
use crate::storage::{Bits, Order};

/// What the filter of one shard holds.
pub(crate) struct OneShard {
    /// That of the kind, and which shard this is.
    plan: Plan,
    shard: u64,
    shards: u64,
    /// Sees what the pick has left of digests.
    inner: Box<dyn State>,
}

impl OneShard {
    /// The plan says which shard it is, and is otherwise that of the state.
    pub(crate) fn new(plan: Plan, inner: Box<dyn State>) -> OneShard {
        debug_assert_eq!(plan.without_shard(), *inner.plan());
        let (shard, shards) = plan.shard().expect("a plan for a shard");
        OneShard { plan, shard: shard.into(), shards: shards.into(), inner }
    }

    /// Returns what the kind sees of a digest; None if it belongs to another shard.
    #[inline]
    fn ours(&self, digest: Digest) -> Option<Digest> {
        let (shard, rest) = digest.pick(self.shards);
        (shard == self.shard).then_some(rest)
    }

    fn own(&self, digest: Digest) -> Result<Digest> {
        self.ours(digest).ok_or_else(|| Error::OtherShard {
            key_shard: digest.pick(self.shards).0 as u32,
            shard: self.shard as u32,
            shards: self.shards as u32,
        })
    }

    /// Returns what the kind would see of digests, if all were ours.
    fn rests(&self, digests: &[Digest]) -> Vec<Digest> {
        digests.iter().map(|digest| digest.pick(self.shards).1).collect()
    }
}

impl Membership for OneShard {
    fn contains_digest(&self, digest: Digest) -> bool {
        self.ours(digest).is_some_and(|rest| self.inner.contains_digest(rest))
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        let rest = self.own(digest)?;
        self.inner.insert_digest(rest)
    }

    fn prefetch(&self, digests: &[Digest]) {
        if let [digest] = digests {
            self.inner.prefetch(&[digest.pick(self.shards).1]);
        } else {
            self.inner.prefetch(&self.rests(digests));
        }
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        self.inner.contains_run(&self.rests(run), &self.rests(next), found);
        for (digest, found) in run.iter().zip(found) {
            *found &= self.ours(*digest).is_some();
        }
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        let foreign = run.iter().position(|digest| self.ours(*digest).is_none());
        let ours = &run[..foreign.unwrap_or(run.len())];
        let (rests, next) = (self.rests(ours), self.rests(next));
        self.inner.insert_run(&rests, &next, new)?;
        foreign.map_or(Ok(()), |at| self.own(run[at]).map(drop))
    }
}

impl State for OneShard {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn measured(&self) -> &dyn Measured {
        self.inner.measured()
    }

    fn clear(&mut self) -> Result<()> {
        self.inner.clear()
    }

    fn copy(&self) -> Result<Box<dyn State>> {
        Ok(Box::new(OneShard { inner: self.inner.copy()?, ..*self }))
    }

    fn same(&self, other: &dyn State) -> bool {
        self.inner.same(other.of::<OneShard>().inner.as_ref())
    }

    fn unite(&mut self, other: &dyn State) -> Result<()> {
        self.inner.unite(other.of::<OneShard>().inner.as_ref())
    }

    fn count(&self, digest: Digest) -> u64 {
        self.ours(digest).map_or(0, |rest| self.inner.count(rest))
    }

    fn check(&self, digest: Digest) -> Result<()> {
        self.inner.check(self.own(digest)?)
    }

    fn into_bits(self: Box<Self>) -> Option<Bits> {
        self.inner.into_bits()
    }

    fn expect(&self, order: Order) {
        self.inner.expect(order);
    }

    fn set_paging(&mut self, paging: Paging) {
        self.inner.set_paging(paging);
    }

    fn removable(&mut self) -> Option<&mut dyn Removable> {
        match self.inner.removable() {
            Some(_) => Some(self),
            None => None,
        }
    }

    fn intersecting(&mut self) -> Option<&mut dyn Intersecting> {
        match self.inner.intersecting() {
            Some(_) => Some(self),
            None => None,
        }
    }

    fn clocked(&mut self) -> Option<&mut dyn Clocked> {
        self.inner.clocked()
    }

    fn positioned(&self) -> Option<&dyn Positioned> {
        self.inner.positioned().map(|_| self as &dyn Positioned)
    }
}

impl Removable for OneShard {
    fn remove(&mut self, digest: Digest) -> Result<bool> {
        let rest = self.own(digest)?;
        self.inner.removable().ok_or_else(|| cannot_remove(&self.plan))?.remove(rest)
    }
}

impl Intersecting for OneShard {
    fn intersect(&mut self, other: &dyn State) -> Result<()> {
        let inner = self.inner.intersecting().ok_or_else(|| cannot_intersect(&self.plan))?;
        inner.intersect(other.of::<OneShard>().inner.as_ref())
    }
}

impl Positioned for OneShard {
    fn positions(&self, digest: Digest) -> Result<Vec<u64>> {
        let rest = self.own(digest)?;
        self.inner.positioned().ok_or_else(|| has_no_positions(&self.plan))?.positions(rest)
    }

    fn is_set(&self, position: u64) -> bool {
        self.inner.positioned().is_some_and(|inner| inner.is_set(position))
    }
}
