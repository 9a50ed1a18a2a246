//! The memory that filters may take: `--max-memory` for all of them, `--max-filter` for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::keyspace::Keyspace;
use crate::reply_error::ReplyError;
use crate::settings::SharedSettings;
use crate::value::shapes::Shapes;
use crate::value::spec::Grants;

/// Knows what takes memory, and grants it.
pub struct MemoryLimits {
    settings: Arc<SharedSettings>,
    keyspace: Arc<Keyspace>,
    shapes: Arc<Shapes>,
    /// Bytes of filters that are being loaded, and of copies that are being dumped.
    transfers: Arc<AtomicU64>,
    /// Bytes that were granted to filters which are being made, and are not on an account yet.
    promised: Arc<AtomicU64>,
    /// The most bytes in use that were ever seen.
    most_used: AtomicU64,
    /// Held while bytes are granted.
    granting: Mutex<()>,
}

impl MemoryLimits {
    /// Of these settings, for filters of a keyspace and what belongs to them.
    pub fn new(
        settings: Arc<SharedSettings>,
        keyspace: Arc<Keyspace>,
        shapes: Arc<Shapes>,
        transfers: Arc<AtomicU64>,
    ) -> MemoryLimits {
        MemoryLimits {
            settings,
            keyspace,
            shapes,
            transfers,
            promised: Arc::default(),
            most_used: AtomicU64::new(0),
            granting: Mutex::default(),
        }
    }

    /// Grants bytes of the memory that filters may take, until what is returned is dropped: that is
    /// to be kept until they are on an account, or are not needed any more. Of two that ask at
    /// once, and for which there is room only one by one, the second is refused.
    pub fn make_room(&self, bytes: u64) -> Result<Room, ReplyError> {
        let limit = self.settings.get().max_memory;
        let _granting = self.granting.lock();
        let used = self.in_use();
        if bytes > limit.saturating_sub(used) {
            return Err(ReplyError::with(format!(
                "ERR Insufficient memory to create filter: it takes {bytes} bytes, and {used} of \
                 the {limit} bytes of --max-memory are in use; raise it, reserve a smaller \
                 capacity or a higher rate, or delete filters"
            )));
        }
        self.promised.fetch_add(bytes, Ordering::Relaxed);
        Ok(Room { promised: Arc::clone(&self.promised), bytes })
    }

    /// The same for a whole filter, which has a limit of its own.
    pub fn make_room_for_filter(&self, bytes: u64) -> Result<Room, ReplyError> {
        self.check_filter(bytes)?;
        self.make_room(bytes)
    }

    /// Refuses a filter of more bytes than one may have.
    pub fn check_filter(&self, bytes: u64) -> Result<(), ReplyError> {
        let limit = self.settings.get().max_filter;
        if bytes <= limit {
            return Ok(());
        }
        Err(ReplyError::with(format!(
            "ERR the filter would take {bytes} bytes, and the limit of --max-filter is {limit}; \
             raise it, reserve a smaller capacity or a higher rate, or use several filters"
        )))
    }

    /// The bytes that a filter which has some already may take in all. Filters that grow in the
    /// same instant may each get the same answer, and go beyond --max-memory by one step each;
    /// --max-filter holds always.
    pub fn limit_for(&self, has: u64) -> u64 {
        let settings = self.settings.get();
        let free = settings.max_memory.saturating_sub(self.in_use());
        free.saturating_add(has).min(settings.max_filter)
    }

    /// Why a filter that has some bytes was not let grow beyond [`limit_for`](MemoryLimits::limit_for).
    pub fn cannot_grow(&self, has: u64) -> ReplyError {
        let (settings, used) = (self.settings.get(), self.in_use());
        let (memory, filter) = (settings.max_memory, settings.max_filter);
        if filter <= memory.saturating_sub(used).saturating_add(has) {
            return ReplyError::with(format!(
                "ERR the filter has {has} bytes and cannot grow, and the limit of --max-filter is \
                 {filter}; raise it, or use several filters"
            ));
        }
        ReplyError::with(format!(
            "ERR Insufficient memory: the filter has {has} bytes and cannot grow, and {used} of \
             the {memory} bytes of --max-memory are in use; raise it, or delete filters"
        ))
    }

    /// The bytes of all keys, of filters that are being made or loaded, and of copies that are
    /// being dumped.
    pub fn in_use(&self) -> u64 {
        // First the grants, and then the accounts: what moves from one to the other meanwhile is
        // entered there before it is struck here, so that it is counted once or twice, and never
        // not at all.
        let promised = self.promised.load(Ordering::Acquire);
        let shapes = self.shapes.bytes();
        let keys = self.keyspace.used() + self.keyspace.calendar_bytes();
        let used = promised + keys + self.transfers.load(Ordering::Relaxed) + shapes;
        // Read first: it is asked for by every thread, and rises seldom.
        if used > self.most_used.load(Ordering::Relaxed) {
            self.most_used.fetch_max(used, Ordering::Relaxed);
        }
        used
    }

    /// The most bytes that were in use, as far as anybody looked: each request for memory looks,
    /// and ten times a second so does the server.
    pub fn peak(&self) -> u64 {
        self.in_use();
        self.most_used.load(Ordering::Relaxed)
    }
}

impl Grants for MemoryLimits {
    type Grant = Room;

    fn limit(&self) -> u64 {
        self.limit_for(0)
    }

    fn grant(&self, bytes: u64) -> Result<Room, ReplyError> {
        self.make_room_for_filter(bytes)
    }
}

/// Bytes granted by [`MemoryLimits::make_room`], given back when dropped.
#[must_use = "the bytes are free again as soon as this is dropped"]
pub struct Room {
    promised: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.promised.fetch_sub(self.bytes, Ordering::Release);
    }
}
