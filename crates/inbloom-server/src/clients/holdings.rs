//! What clients hold of the memory that `--max-client-memory` allows to all of them together.
//!
//! A client holds its connection, the beginning of a request, the places of its arguments, the queue
//! of MULTI, the keys of WATCH, the names that it gave itself, what a command takes while it runs,
//! and replies that it has not read. [`Clients::hold`] enters these bytes before they are taken. Only
//! buffers up to some ten kilobytes, and those that a thread lends, are entered afterwards or not at
//! all.
//!
//! The client that passes the limit is disconnected, unless it holds no more than `LITTLE`. In that
//! case the client that holds the most goes: a client with a huge request cannot keep others from
//! sending small ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Client, Clients};
use crate::resp::Allowance;

/// A client that holds no more is not disconnected because of what the others hold.
const LITTLE: u64 = 64 << 10;
/// Buffers of replies up to here are not entered while a command runs.
const SMALL: usize = 64 << 10;
/// What a connection takes that does nothing: 1,000 and 5,000 idle ones were measured at 2.1 kB each.
/// What TLS keeps beside it does not count.
pub const CONNECTION: u64 = 4 << 10;

/// Why a client is disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "all clients together hold {all} bytes of requests and replies, this one {own} of them, and \
     the limit of --max-client-memory is {limit}: it is disconnected; send smaller requests, read \
     replies sooner, or raise the limit"
)]
pub struct Excess {
    own: u64,
    all: u64,
    limit: u64,
}

impl Clients {
    /// Enters that a client holds so many bytes from now on.
    ///
    /// # Errors
    ///
    /// All clients together would hold too much, and this one more than a little. Its account is as
    /// before then, and it is to be disconnected.
    pub fn hold(&self, client: &Client, own: u64) -> Result<(), Excess> {
        // Nobody but the client's own thread changes it, until the client leaves.
        let before = client.held.load(Ordering::Relaxed);
        if own == before {
            return Ok(());
        }
        client.held.store(own, Ordering::Relaxed);
        let held = &self.held;
        if own < before {
            held.fetch_sub(before - own, Ordering::Relaxed);
            return Ok(());
        }
        let all = held.fetch_add(own - before, Ordering::Relaxed) + (own - before);
        let limit = self.settings.get().max_client_memory;
        if all <= limit {
            return Ok(());
        }
        if own <= LITTLE {
            if self.evict_largest(all - limit) {
                self.count_evicted();
            }
            return Ok(());
        }
        client.held.store(before, Ordering::Relaxed);
        held.fetch_sub(own - before, Ordering::Relaxed);
        self.count_evicted();
        Err(Excess { own, all, limit })
    }

    fn count_evicted(&self) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
        self.evictions.warn("disconnected clients over --max-client-memory");
    }

    /// Ends the connection of the client that holds the most, unless enough is about to be freed by
    /// clients that are to disconnect.
    fn evict_largest(&self, excess: u64) -> bool {
        let held = |client: &Arc<Client>| client.held.load(Ordering::Relaxed);
        let (going, staying): (Vec<_>, Vec<_>) =
            self.list().into_iter().partition(|client| client.is_killed());
        if going.iter().map(held).sum::<u64>() >= excess {
            return false;
        }
        let largest = staying.iter().max_by_key(|client| held(client));
        largest.inspect(|client| client.kill()).is_some()
    }
}

/// Lets a reply grow as long as its client may hold it.
pub struct Budget<'a> {
    clients: &'a Clients,
    client: &'a Client,
    /// What the client holds beside the reply.
    others: u64,
    excess: Option<Excess>,
}

impl<'a> Budget<'a> {
    /// For a client that holds some bytes beside the reply.
    pub fn new(clients: &'a Clients, client: &'a Client, others: u64) -> Budget<'a> {
        Budget { clients, client, others, excess: None }
    }

    /// Why something could not be written, if so. Then all of the reply is worthless, and the client is
    /// to be disconnected.
    pub fn excess(&self) -> Option<Excess> {
        self.excess
    }
}

impl Allowance for Budget<'_> {
    fn set_others(&mut self, others: u64) {
        self.others = others;
    }

    fn grow(&mut self, out: &mut Vec<u8>, more: usize) -> bool {
        if self.excess.is_some() {
            return false;
        }
        let grown = (out.capacity() + out.capacity() / 2).max(out.len().saturating_add(more));
        if grown > SMALL {
            // Both are there while one is copied to the other.
            let both = self.others + out.capacity() as u64 + grown as u64;
            if let Err(excess) = self.clients.hold(self.client, both) {
                self.excess = Some(excess);
                return false;
            }
        }
        out.reserve_exact(grown - out.len());
        if grown > SMALL {
            // Less than before: that is never refused.
            let _ = self.clients.hold(self.client, self.others + out.capacity() as u64);
        }
        true
    }
}

impl std::fmt::Debug for Budget<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Budget").field("others", &self.others).finish_non_exhaustive()
    }
}
