//! RedisBloom's two filters, bit for bit: what `BF.*` and `CF.*` commands have built, and what
//! `SCANDUMP`, `LOADCHUNK`, `DUMP` and `RESTORE` carry from one server to another.
//!
//! ```
//! use inbloom::interop::redisbloom::{Bloom, CHUNK};
//!
//! let mut filter = Bloom::new(0.01, 1000, 2, 1 << 20)?; // at most a MiB
//! assert!(filter.insert(b"alice", 1 << 20)?);
//!
//! // As BF.SCANDUMP gives it out and BF.LOADCHUNK takes it in.
//! let mut copy = Bloom::from_header(&filter.header(), 1 << 20)?;
//! let mut position = 1;
//! while let Some((next, data)) = filter.chunk(position, CHUNK) {
//!     copy.load(next, data)?;
//!     position = next;
//! }
//! assert!(copy.contains(b"alice") && copy == filter);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Both types are the structure alone: no names, no commands, no configuration. Ranges that a
//! server sets for its users (a rate of at most 0.25, 2^30 items, 32 sub-filters) are not theirs.
//!
//! Memory is bounded by a `limit` that each call which may allocate is given: the bytes that the
//! whole filter may take after it. A call that fails leaves the filter as it was.

mod bloom;
mod commands;
mod content;
mod cuckoo;
mod error;
mod lzf;
mod memory;
mod murmur;
pub mod payload;
mod plan;
mod rdb;
mod row;
mod stored;

pub use bloom::{Bloom, Link};
pub use commands::load_commands;
pub use cuckoo::{CuckooChain, Hash, MAX_FILTERS, MAX_SUB_FILTER};
pub use error::{ForeignError, LoadError, Refused};
pub use memory::OVERHEAD;
pub use murmur::{Pair, murmur2_32, murmur64a};
pub(super) use row::ROW;
pub use stored::{Stored, from_chunks, is_chunks, missing_behind_header, stored};

/// The most bytes that RedisBloom puts into a chunk.
pub const CHUNK: usize = 16 << 20;

/// The most items that a filter counts. Servers report the number as a signed integer.
const MAX_COUNT: u64 = i64::MAX as u64;
