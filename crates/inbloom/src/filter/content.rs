//! What a filter holds: one of the kinds, or a composition of filters.

use alloc::boxed::Box;
use core::any::Any;

use super::Filter;
use crate::compose::grown::Grown;
use crate::compose::overlay::Overlay;
use crate::compose::shard::OneShard;
use crate::digest::Hasher;
use crate::error::Result;
use crate::kinds::blocked::Blocked;
use crate::membership::Membership;
use crate::plan::Plan;
use crate::state::{Measured, State};
use crate::storage::{Bits, Cells};

/// One of the kinds: the default one in line, so that a query of it is no call, the others behind one.
pub(crate) enum Content {
    Blocked(Blocked),
    Other(Box<dyn State>),
}

impl Content {
    pub(super) fn new(plan: Plan) -> Result<Content> {
        if plan.shard().is_some() {
            return Ok(Content::shard(plan, Content::new(plan.without_shard())?));
        }
        (plan.kind().row().new)(plan).map(Content::from_state)
    }

    /// Returns a kind from the payload of a file, which may hold anything, and its count of cells
    /// in use.
    pub(crate) fn from_cells(plan: Plan, cells: Cells, ones: u64) -> Result<Content> {
        if plan.shard().is_some() {
            let inner = Content::from_cells(plan.without_shard(), cells, ones)?;
            return Ok(Content::shard(plan, inner));
        }
        (plan.kind().row().read)(plan, cells, ones).map(Content::from_state)
    }

    /// Returns a kind whose state is an array of cells.
    pub(crate) fn with_bits(plan: Plan, bits: Bits) -> Content {
        Content::from_cells(plan, bits.cells, bits.ones)
            .expect("an array of cells is taken as it is")
    }

    /// Returns a filter with the parts that a file has beside it: a static kind with what was added
    /// to it and excluded keys, another one with its growing part. So many keys were new.
    pub(crate) fn with_parts(
        self,
        hasher: Hasher,
        added: Option<Filter>,
        denied: Cells,
        inserted: u64,
    ) -> Result<Content> {
        let state = self.into_state();
        Ok(match added {
            Some(growing) if !state.plan().kind().is_static() => {
                Content::other(Grown::from_parts(state, growing, inserted))
            }
            added => Content::other(Overlay::from_parts(state, hasher, added, denied)?),
        })
    }

    fn shard(plan: Plan, inner: Content) -> Content {
        Content::other(OneShard::new(plan, inner.into_state()))
    }

    pub(crate) fn other(state: impl State) -> Content {
        Content::Other(Box::new(state))
    }

    pub(crate) fn state(&self) -> &dyn State {
        match self {
            Content::Blocked(blocked) => blocked,
            Content::Other(other) => other.as_ref(),
        }
    }

    pub(crate) fn measured(&self) -> &dyn Measured {
        self.state().measured()
    }

    pub(crate) fn state_mut(&mut self) -> &mut dyn State {
        match self {
            Content::Blocked(blocked) => blocked,
            Content::Other(other) => other.as_mut(),
        }
    }

    pub(crate) fn into_state(self) -> Box<dyn State> {
        match self {
            Content::Blocked(blocked) => Box::new(blocked),
            Content::Other(other) => other,
        }
    }

    /// Returns the way back from [`Content::into_state`].
    pub(crate) fn from_state(state: Box<dyn State>) -> Content {
        if !(state.as_ref() as &dyn Any).is::<Blocked>() {
            return Content::Other(state);
        }
        let state: Box<dyn Any> = state;
        Content::Blocked(*state.downcast().expect("just seen"))
    }

    pub(crate) fn members(&self) -> &dyn Membership {
        match self {
            Content::Blocked(blocked) => blocked,
            Content::Other(other) => other.as_ref(),
        }
    }

    pub(super) fn members_mut(&mut self) -> &mut dyn Membership {
        match self {
            Content::Blocked(blocked) => blocked,
            Content::Other(other) => other.as_mut(),
        }
    }
}
