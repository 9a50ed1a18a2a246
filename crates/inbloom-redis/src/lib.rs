//! Membership filters whose bits are in a stock Redis or Valkey server, or in a cluster of them.
//!
//! The server needs no module and no scripts. A filter is cut into values of at most 1 MiB that lie
//! evenly over all nodes, and all bits of a key are in one of them: a query or an insert is one round
//! trip to one node, whatever the size of the filter. Its bits are those of a local filter of kind
//! [blocked](inbloom::Kind::Blocked), so that a file can be pushed to a cluster and pulled back.
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
//! - An insert is idempotent, and atomic for each key. Clients reconnect and follow redirections and
//!   failovers by themselves, until a deadline.
//! - After a broken connection the command is repeated. Whether the key was new cannot be known then,
//!   and the answer is [`Added::Unknown`].
//! - Every block has a bit that says that it is there. A block that a server has lost, because it was
//!   flushed, evicted or restarted empty, is reported as [`Error::Lost`], never as an absent key.
//! - Redis copies to replicas after it has answered. [`Durability::Replicas`] waits for them; without
//!   it, a failover may lose inserts that were answered, and nothing shows it.
//! - A filter that is deleted and created again shares no key with the one before: an insert that comes
//!   late cannot reach the new one.
//! - The description of a filter is kept twice, on two nodes of a cluster. If one of them loses it, the
//!   filter is reported as [`Error::LostDescription`], never as missing. Only a server that loses both
//!   copies, as a single one that restarts empty, has no trace of a filter.
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
