//! What a filter holds: one of the kinds, or a composition of filters.

use super::Filter;
use crate::compose::grown::Grown;
use crate::compose::overlay::Overlay;
use crate::compose::sharded::Piece;
use crate::digest::Hasher;
use crate::error::{Error, Result};
use crate::kinds::bitmap::{Bitmap, Store};
use crate::kinds::blocked::Blocked;
use crate::kinds::classic::Classic;
use crate::kinds::counting::Counting;
use crate::kinds::cuckoo::Cuckoo;
use crate::kinds::ribbon::Ribbon;
use crate::kinds::scalable::Scalable;
use crate::kinds::window::Window;
use crate::membership::Membership;
use crate::plan::{Kind, Plan};
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
            return Ok(Content::piece(plan, Content::new(plan.without_shard())?));
        }
        Ok(match plan.kind() {
            Kind::Blocked => Content::Blocked(Blocked::new(plan)?),
            Kind::Bitmap => Content::other(Bitmap::new(plan)?),
            Kind::Classic => Content::other(Classic::new(plan)?),
            Kind::Counting => Content::other(Counting::new(plan)?),
            Kind::Cuckoo => Content::other(Cuckoo::new(plan)?),
            Kind::Scalable => Content::other(Scalable::new(plan)?),
            Kind::Window => Content::other(Window::new(plan)?),
            kind @ Kind::Ribbon => {
                return Err(Error::Unsupported {
                    kind,
                    verb: "start empty",
                    remedy: "it is built once from all its keys; call Filter::build with their digests",
                });
            }
        })
    }

    /// A kind from the payload of a file, which may hold anything, and its count of cells in use.
    pub(crate) fn from_cells(plan: Plan, cells: Cells, ones: u64) -> Result<Content> {
        if plan.shard().is_some() {
            let inner = Content::from_cells(plan.without_shard(), cells, ones)?;
            return Ok(Content::piece(plan, inner));
        }
        Ok(match plan.kind() {
            Kind::Bitmap if plan.is_sparse() => Content::other(Bitmap::read_sparse(plan, &cells)?),
            Kind::Scalable => Content::other(Scalable::from_cells(plan, cells)?),
            Kind::Window => Content::other(Window::from_cells(plan, cells)?),
            Kind::Ribbon => Content::other(Ribbon::from_cells(plan, cells)?),
            _ => Content::with_bits(plan, Bits { cells, ones }),
        })
    }

    /// A kind whose state is an array of cells.
    pub(crate) fn with_bits(plan: Plan, bits: Bits) -> Content {
        if plan.shard().is_some() {
            return Content::piece(plan, Content::with_bits(plan.without_shard(), bits));
        }
        match plan.kind() {
            Kind::Blocked => Content::Blocked(Blocked::with_bits(plan, bits)),
            Kind::Bitmap => Content::other(Bitmap::with_store(plan, Store::Dense(bits))),
            Kind::Classic => Content::other(Classic::with_bits(plan, bits)),
            Kind::Counting => Content::other(Counting::with_bits(plan, bits)),
            Kind::Cuckoo => Content::other(Cuckoo::with_bits(plan, bits)),
            Kind::Scalable | Kind::Window | Kind::Ribbon => {
                unreachable!("more than an array of cells")
            }
        }
    }

    /// A filter with the parts that a file has beside it: a static kind with what was added to it
    /// and what it denies, another one with its growing part. So many keys were new.
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

    fn piece(plan: Plan, inner: Content) -> Content {
        Content::other(Piece::new(plan, inner.into_state()))
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

    /// The way back from [`Content::into_state`].
    pub(crate) fn from_state(state: Box<dyn State>) -> Content {
        let plan = *state.plan();
        let is_blocked = plan.kind() == Kind::Blocked && plan.shard().is_none();
        match is_blocked && state.measured().bits().is_some() {
            true => Content::with_bits(plan, state.into_bits().expect("just seen")),
            false => Content::Other(state),
        }
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
