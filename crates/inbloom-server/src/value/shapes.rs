//! The shapes of filters of BF.*, which filters of one wish share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use inbloom::internals::kinds::blocked::Shape;
use parking_lot::Mutex;

use super::bloom::Wish;
use crate::reply_error::ReplyError;

/// Shapes that count as nothing: a megabyte of them.
const FREE_SHAPES: usize = 4096;
/// What a shape takes, with its place in the table: two thirds of that are in use on average.
const SHAPE: u64 = (size_of::<Shape>() + 16 + (size_of::<Wish>() + 8) * 3 / 2) as u64;

/// Shapes by the wish that they are for. To be shared by all threads.
#[derive(Default)]
pub struct Shapes {
    table: Mutex<ShapeTable>,
    /// The bytes of those that are not a constant's worth.
    bytes: AtomicU64,
}

/// One that a filter has is never dropped, so that there is one for each wish; the others go now and
/// then.
#[derive(Default)]
struct ShapeTable {
    all: HashMap<Wish, Arc<Shape>>,
    /// How many there may be before it is looked which of them no filter has.
    most: usize,
}

impl Shapes {
    /// Whether the shape of a filter is at hand.
    pub fn has(&self, wish: Wish) -> bool {
        self.table.lock().all.contains_key(&wish)
    }

    /// Returns the shape of a filter, computed once: a blocked plan takes up to some milliseconds.
    ///
    /// # Errors
    ///
    /// There is no filter for so many items at this rate.
    pub fn get(&self, wish: Wish) -> Result<Arc<Shape>, ReplyError> {
        if let Some(shape) = self.table.lock().all.get(&wish) {
            return Ok(Arc::clone(shape));
        }
        let shape = wish.shape().map_err(|error| {
            let (rate, capacity) = (wish.rate(), wish.capacity);
            ReplyError::with(format!(
                "ERR a rate of {rate} for {capacity} items is too low for a filter that may grow \
                 ({error}): reserve a higher rate, or pass NONSCALING"
            ))
        })?;
        let mut table = self.table.lock();
        let shape = table.share(wish, shape);
        let counted = table.all.len().saturating_sub(FREE_SHAPES) as u64 * SHAPE;
        self.bytes.store(counted, Ordering::Relaxed);
        Ok(shape)
    }

    /// The bytes that they take.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl ShapeTable {
    /// Keeps a shape, unless another thread was faster. Returns the one that is kept.
    fn share(&mut self, wish: Wish, shape: Arc<Shape>) -> Arc<Shape> {
        if self.all.len() >= self.most.max(FREE_SHAPES) {
            self.all.retain(|_, shape| Arc::strong_count(shape) > 1);
            self.most = 2 * self.all.len();
        }
        Arc::clone(self.all.entry(wish).or_insert(shape))
    }
}
