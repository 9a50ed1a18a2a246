//! Membership filters whose bits are in a stock Redis or Valkey server, or in a cluster of them.
//!
//! The server needs no module and no scripts. A filter is divided into values of at most 1 MiB,
//! spread evenly over all nodes, and all bits of a key are in one value. So a query or an insert is
//! one round trip to one node, whatever the size of the filter. Its bits are those of a local
//! filter of kind [blocked](inbloom::Kind::Blocked), so a file can be pushed to a cluster and
//! pulled back.
//!
//! ```no_run
//! use inbloom_redis::{Added, Client, Options, RedisFilter};
//!
//! let client = Client::connect(&"redis://localhost:7000".parse()?, Options::default())?;
//! let plan = inbloom_redis::plan(10_000_000_000, 1e-4)?;
//! let seen = RedisFilter::open_or_create(&client, "seen", plan)?;
//! match seen.insert("https://example.org/")? {
//!     Added::New => println!("fetch it"),
//!     Added::Present => println!("skip it"),
//!     Added::Unknown => println!("fetch it, perhaps a second time"),
//!     Added::Failed => unreachable!("the call would have failed"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What holds when servers fail
//!
//! - An insert is idempotent, and atomic for each key. Clients reconnect and follow redirections
//!   and failovers automatically, until a deadline.
//! - After a broken connection the client repeats the command. It then cannot know whether the key
//!   was new, and returns [`Added::Unknown`].
//! - Every block has a bit that marks it as present. If a server has lost a block, because it was
//!   flushed, evicted or restarted empty, the client reports [`Error::Lost`], never an absent key.
//! - Redis copies changes to replicas after it has replied. [`Durability::Replicas`] waits for
//!   them. Without it, a failover may silently lose inserts that were acknowledged.
//! - A filter that is deleted and created again shares no Redis key with the earlier one, so a late
//!   insert cannot reach the new filter.
//! - The description of a filter has two copies, on two nodes of a cluster. If one of them loses
//!   its copy, the client reports [`Error::LostDescription`], never a missing filter. Only if both
//!   copies are lost, for example when a single server restarts empty, is there no trace of the
//!   filter.
//!
//! # Filters of others
//!
//! [`PyreBloom`] reads and adds to filters of the Python module pyreBloom in place. Filters of Redisson
//! are not read: the bytes that it hashes depend on the codec of the program that wrote them.

#![warn(missing_debug_implementations)]

mod address;
mod chunk_job;
mod client;
mod command;
mod description;
mod error;
mod filter;
mod lane;
mod layout;
mod metadata;
mod options;
mod pyrebloom;
mod retry;
mod slots;
mod topology;
mod transfer;
mod wire;

pub use address::{Address, Server};
pub use client::Client;
pub use error::{Error, Result};
pub use filter::{Added, Found, Listed, RedisFilter, Spec};
pub use layout::{KIND, plan};
pub use options::{Durability, Eviction, Options, Reads};
pub use pyrebloom::PyreBloom;
