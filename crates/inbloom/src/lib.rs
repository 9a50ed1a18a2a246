//! Have I seen this key? For thousands to tens of billions of keys, in a fraction of the memory that
//! storing them takes, with one kind of error only, and that one chosen in advance: "certainly not"
//! is always true, "probably yes" is wrong at most at the rate you asked for.
//!
//! ```
//! use inbloom::BloomFilter;
//!
//! let mut seen = BloomFilter::new(1_000_000, 0.001); // 1 million keys, 0.1% false positives
//! assert!(seen.insert("https://example.org/a")); // true: certainly new
//! assert!(!seen.insert("https://example.org/a")); // false: probably seen before
//! assert!(!seen.contains("https://example.org/b")); // false is certain, true is probable
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("seen.ib");
//! seen.save(&path)?; // the old file or the new one, never half of it
//! assert!(BloomFilter::open(&path)?.contains("https://example.org/a")); // mapped, not read
//! # Ok::<(), inbloom::Error>(())
//! ```
//!
//! # Two levels
//!
//! [`BloomFilter`] takes two numbers and cannot fail: what most programs need. [`Filter`] is any kind
//! of filter, from any source, and returns an error where a call can fail:
//!
//! ```
//! use inbloom::{Filter, Kind, Plan};
//!
//! // Plan first: how many keys, at which rate? The plan tells what that takes.
//! let plan = Plan::builder(Kind::Cuckoo).items(1_000_000).rate(0.001).build()?;
//! assert!(plan.bytes() < 1_800_000);
//!
//! let mut sessions = Filter::new(plan)?;
//! sessions.insert(42)?; // keys are text, bytes or integers
//! assert!(sessions.remove(42)?); // this kind can
//! assert!(!sessions.contains(42));
//! # Ok::<(), inbloom::Error>(())
//! ```
//!
//! [`OpenOptions`] opens files of any kind: to query or to change them, with a secret key, checked or
//! as they are. [`SharedFilter`] is for many threads.
//!
//! # Which kind
//!
//! | kind | bits per key at 1%, 0.1%, 0.01% | a query waits for | use it |
//! |---|---|---|---|
//! | [`Blocked`](Kind::Blocked) | 10.1, 15.8, 22.2 | one cache line | unless you know better |
//! | [`Classic`](Kind::Classic) | 9.6, 14.4, 19.2 | up to k lines | when bits matter most |
//! | [`Cuckoo`](Kind::Cuckoo) | 10.5, 13.7, 17.9 | two lines at once | to remove keys; fewest bits below 1% |
//! | [`Ribbon`](Kind::Ribbon) | 7.0, 10.0, 14.0 | 3 or 4 lines at once | fewest bits of all, for keys known beforehand |
//! | [`Counting`](Kind::Counting) | 45.7, 62.3, 91.5 | one line or two | to remove keys, and never be full |
//! | [`Scalable`](Kind::Scalable) | 18, 22.5, 27 when grown | two lines | when the number of keys is unknown |
//! | [`Window`](Kind::Window) | 17.4, 25.2, 29.8 | 5 lines at once, or 10 | to forget what is old |
//! | [`Bitmap`](Kind::Bitmap) | 1 per possible value | one word | for small integers: exact, ordered |
//!
//! # Three ideas
//!
//! A [`Digest`] stands for a key: it is hashed once, and shards, filters and files see only its 128
//! bits. A [`Plan`] computes every size before a byte is allocated. And a filter's bits are a pure
//! function of the two, so that memory, a file and a socket are only places to keep them.
//!
//! # Many keys at once
//!
//! [`Filter::insert_many`] and [`Filter::contains_many`] are the fast way in: on filters larger than
//! the processor's cache they are several times as fast as single calls, because the memory that
//! one key needs travels while others are worked on. [`Filter::into_shared`] gives a handle that any
//! number of threads insert into and query at once.
//!
//! # Features
//!
//! | feature | default | brings |
//! |---|---|---|
//! | `std` | yes | files, streams, threads; without it the library needs only an allocator |
//! | `file` | yes | [`file`](mod@file): mapping, saving and watching; memory in huge pages |
//! | `sparse-bitmap` | yes | bitmaps of few among many values, in Roaring's format |
//! | `serde` | no | `Serialize` and `Deserialize` for [`Filter`], over the bytes of the file |

#![cfg_attr(not(feature = "std"), no_std)]
#![warn(missing_debug_implementations)]
// A build with fewer features has no callers for some functions. The full one has these lints.
#![cfg_attr(not(all(feature = "file", feature = "internals")), allow(dead_code, unused_imports))]
#![cfg_attr(not(feature = "sparse-bitmap"), allow(unreachable_code))]
// What a processor has is a constant there, which lints take for a mistake.
#![cfg_attr(not(feature = "std"), allow(clippy::eq_op, clippy::nonminimal_bool))]

extern crate alloc;

mod bloom;
#[cfg_attr(
    not(feature = "internals"),
    allow(dead_code, reason = "some of it is for our other crates")
)]
mod codec;
mod compose;
mod digest;
mod error;
mod estimate;
#[cfg(feature = "file")]
pub mod file;
mod filter;
mod foreign;
#[cfg(feature = "std")]
mod format;
#[cfg(feature = "std")]
pub mod interop;
mod kernels;
mod key;
mod kind;
mod kinds;
mod math;
#[cfg(feature = "std")]
mod measured;
mod membership;
mod memory;
mod paging;
mod plan;
mod profile;
#[cfg(feature = "std")]
mod shared;
mod splitmix;
mod state;
mod storage;
mod sync;

pub use bloom::BloomFilter;
pub use compose::{grown::Grown, overlay::Overlay};
pub use digest::{Digest, Hasher, SecretKey};
pub use error::{Error, Result};
pub use estimate::Estimate;
#[cfg(feature = "file")]
pub use file::OpenOptions;
pub use filter::{Filter, View};
pub use key::AsKey;
pub use kind::{Kind, Labels};
pub use kinds::{bitmap::Bitmap, classic::MAX_CLASSIC_PROBES, window::WindowStep};
#[cfg(feature = "std")]
pub use measured::{Measurement, measure, measure_absent};
pub use membership::Membership;
pub use paging::Paging;
pub use plan::{MAX_BITS, MAX_ITEMS, MIN_RATE, Plan, PlanBuilder, Span, Tier};
pub use profile::Slice;
#[cfg(feature = "std")]
pub use shared::SharedFilter;

/// What our other crates share with this one. Not for others: it changes without notice.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals {
    pub mod chunks {
        pub use crate::filter::blocked_bytes;
        pub use crate::kinds::blocked::chunks::{ChunkLine, Chunks};
    }
    pub mod codec {
        pub use crate::codec::*;
    }
    pub mod compose {
        pub use crate::compose::*;
    }
    #[cfg(feature = "file")]
    pub mod file {
        pub use crate::file::blocked::BlockedWriter;
        pub use crate::file::place::{
            create_without_links, destination, header_checksum, open_without_links, rename,
        };
        pub use crate::file::ribbon::RibbonWriter;
        pub use crate::file::shared::open_shared;
        pub use crate::file::*;
    }
    #[cfg(feature = "std")]
    pub mod format {
        pub use crate::format::*;
    }
    pub mod kinds {
        pub use crate::kinds::*;
    }
    pub mod memory {
        pub use crate::memory::*;
    }
    pub mod splitmix {
        pub use crate::splitmix::*;
    }
}

/// The README's examples are compiled and run, and those of the library guide.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/library.md")]
struct Readme;
