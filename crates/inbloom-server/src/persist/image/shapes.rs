//! The shapes of filters that are read: a million filters of one reservation have one.

use std::collections::HashMap;
use std::sync::Arc;

use inbloom::Plan;
use inbloom::internals::kinds::blocked::{Shape, SharedBlocked};
use parking_lot::Mutex;

/// A server with more different ones than this has no use for old ones.
const MOST: usize = 4096;

/// Shapes by what tells them. To be shared by all threads that read images.
#[derive(Default)]
pub struct OutlineShapes(Mutex<HashMap<Outline, Arc<Shape>>>);

/// What tells a plan of a blocked filter from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outline {
    /// Keys that it is for.
    pub capacity: u64,
    /// The bits of its rate, an f64.
    pub rate: u64,
    /// Bits of all cells.
    pub bits: u64,
    /// Bits that a key sets.
    pub probes: u8,
    /// Lines that they are in.
    pub lines: u8,
}

impl Outline {
    /// Of a plan of the blocked kind.
    pub fn of(plan: &Plan) -> Outline {
        Outline {
            capacity: plan.items(),
            rate: plan.rate().to_bits(),
            bits: plan.bits(),
            // The blocked kind has at most 32 and 2.
            probes: plan.probes() as u8,
            lines: plan.lines() as u8,
        }
    }

    fn plan(self) -> Result<Plan, inbloom::Error> {
        let rate = f64::from_bits(self.rate);
        Plan::blocked(self.capacity, rate, self.bits, self.probes.into(), self.lines.into())
    }
}

impl OutlineShapes {
    /// Returns the shape of an outline, which may be untrusted.
    pub fn of(&self, outline: Outline) -> Result<Arc<Shape>, inbloom::Error> {
        if let Some(shape) = self.0.lock().get(&outline) {
            return Ok(Arc::clone(shape));
        }
        let shape = Shape::new(outline.plan()?)?;
        self.keep(outline, &shape);
        Ok(shape)
    }

    /// Lets a filter that came with a shape of its own share one.
    pub fn share(&self, filter: &mut SharedBlocked) {
        let outline = Outline::of(filter.plan());
        let found = self.0.lock().get(&outline).map(Arc::clone);
        match found {
            Some(shape) => filter.share_shape(&shape),
            None => self.keep(outline, filter.shape()),
        }
    }

    fn keep(&self, outline: Outline, shape: &Arc<Shape>) {
        let mut shapes = self.0.lock();
        if shapes.len() >= MOST {
            shapes.clear();
        }
        shapes.insert(outline, Arc::clone(shape));
    }
}
