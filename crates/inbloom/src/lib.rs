//! Have I seen this key? inbloom answers for thousands to tens of billions of keys, in a small
//! fraction of the memory that the keys take. "No" is always right. "Yes" is wrong at most at the
//! rate that you choose.
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
//! "No" stops being right in two cases only: when a key is removed that was never inserted, and in
//! a file that was damaged after it was saved. [`file::verify`](fn@file::verify) finds damage.
//!
//! # Which type
//!
//! | you want | type |
//! |---|---|
//! | a Bloom filter from two numbers, without errors | [`BloomFilter`] |
//! | another kind, or the filter of another program | [`Filter`] with a [`Plan`] |
//! | many threads | [`SharedFilter`] |
//! | a file: changed, checked, or with a secret key | [`OpenOptions`] |
//! | keys that others choose | [`Hasher`] with a [`SecretKey`] |
//! | several filters per key | [`Digest`]: hash once |
//! | a filter of Guava, Go, Spark, Parquet or RedisBloom | [`interop`](mod@interop) |
//! | a test of the false-positive rate | [`measure`](fn@measure) |
//!
//! # Which kind
//!
//! | kind | bits per key at 1%, 0.1%, 0.01% | a query waits for | use it |
//! |---|---|---|---|
//! | [`Blocked`](Kind::Blocked) | 10.1, 15.8, 22.2 | one cache line | by default |
//! | [`Classic`](Kind::Classic) | 9.6, 14.4, 19.2 | up to k lines | for few bits, and never full |
//! | [`Cuckoo`](Kind::Cuckoo) | 10.5, 13.7, 17.9 | two lines at once | to remove keys |
//! | [`Ribbon`](Kind::Ribbon) | 7.0, 10.0, 14.0 | 3 or 4 lines at once | for keys known beforehand |
//! | [`Counting`](Kind::Counting) | 33.5, 46.8, 67.0 | one line or two | to remove and count keys |
//! | [`Scalable`](Kind::Scalable) | 18, 22.5, 27 when grown | two lines | for an unknown number of keys |
//! | [`Window`](Kind::Window) | 17.4, 25.2, 29.8 | 5 lines at once, or 10 | for the last days, or keys |
//! | [`Bitmap`](Kind::Bitmap) | 1 per possible value | one word | for small integers: exact, ordered |
//!
//! # Plan, and choose a kind: `Filter`
//!
//! A [`Plan`] computes every size before a byte is allocated. [`Filter`] is any kind of filter,
//! from any source, and returns an error where a call can fail.
//!
//! ```
//! use inbloom::{Filter, Kind, Plan};
//!
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
//! # Keys known beforehand: ribbon
//!
//! A ribbon filter takes the fewest bits. It is built once, from all keys.
//!
//! ```
//! # use inbloom::{Filter, Hasher, Kind, Plan};
//! let blocked_pages: Vec<String> = (0..1000).map(|n| format!("/page/{n}")).collect();
//! let plan = Plan::builder(Kind::Ribbon).items(1000).rate(0.001).build()?;
//! let list = Filter::build_from(plan, Hasher::default(), &blocked_pages)?;
//! assert!(list.contains("/page/7"));
//! # Ok::<(), inbloom::Error>(())
//! ```
//!
//! # An unknown number of keys: scalable
//!
//! A scalable filter grows, and keeps its target rate at any size. A plan without items begins with
//! 100.
//!
//! ```
//! # use inbloom::{Filter, Kind, Plan};
//! let mut seen = Filter::new(Plan::builder(Kind::Scalable).rate(0.01).build()?)?;
//! for key in 0..100_000 {
//!     seen.insert(key)?;
//! }
//! assert!(seen.contains(99_999));
//! # Ok::<(), inbloom::Error>(())
//! ```
//!
//! If you know about how many keys will come, plan a blocked filter that may grow:
//! [`PlanBuilder::growing`](PlanBuilder::growing) and [`Filter::into_growing`]. It takes fewer bits.
//!
//! # Only the last hours, or the last keys: window
//!
//! In a window, keys expire. It has no clock of its own: call [`Filter::advance`] with the time in
//! milliseconds. Use Unix time if the filter is saved. A key stays for the length of the window, and
//! up to one step longer. With the default of 4 steps per window, that is 60 to 75 minutes here:
//!
//! ```
//! use std::time::{Duration, UNIX_EPOCH};
//! # use inbloom::{Filter, Kind, Plan};
//!
//! let hour = Duration::from_secs(3600);
//! let plan = Plan::builder(Kind::Window).items(1_000_000).window(hour).build()?; // keys per hour
//! let mut requests = Filter::new(plan)?;
//! let now = UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
//! requests.advance(now)?; // before each insert and query
//! assert!(requests.insert("request 7")?);
//! requests.advance(now + 60 * 60_000)?;
//! assert!(requests.contains("request 7"));
//! requests.advance(now + 75 * 60_000)?;
//! assert!(!requests.contains("request 7"));
//! # Ok::<(), inbloom::Error>(())
//! ```
//!
//! [`PlanBuilder::last`] makes a window of the last inserts, which needs no clock.
//!
//! # Many keys at once
//!
//! [`Filter::insert_many`] and [`Filter::contains_many`] are several times as fast as single calls
//! on filters larger than the processor's cache. The memory of one key is fetched while others are
//! worked on.
//!
//! ```
//! # use inbloom::BloomFilter;
//! let mut seen = BloomFilter::new(1_000_000, 0.001);
//! let (mut new, mut found) = (Vec::new(), Vec::new());
//! seen.insert_many(&["alice", "bob", "alice"], &mut new);
//! assert_eq!(new, [true, true, false]);
//! seen.contains_many(&["bob", "carol"], &mut found);
//! assert_eq!(found, [true, false]);
//! ```
//!
//! # Many threads: `SharedFilter`
//!
//! ```
//! # use inbloom::{Filter, Kind, Plan};
//! let plan = Plan::builder(Kind::Blocked).items(1_000_000).rate(0.001).build()?;
//! let seen = Filter::new(plan)?.into_shared()?;
//! let firsts = std::thread::scope(|scope| {
//!     let threads = [(); 4].map(|()| scope.spawn(|| seen.insert("alice").unwrap()));
//!     threads.into_iter().map(|thread| thread.join().unwrap()).filter(|new| *new).count()
//! });
//! assert_eq!(firsts, 1); // exactly one thread was the first
//! # Ok::<(), inbloom::Error>(())
//! ```
//!
//! Classic and counting filters need [`SharedFilter::insert_if_absent`] for that: their `insert` may
//! report one key as new to several threads. [`SharedFilter`] lists what holds for which kind.
//!
//! # Files: `OpenOptions`
//!
//! ```
//! use inbloom::{Filter, Hasher, Kind, OpenOptions, Plan, SecretKey};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("phones.ib");
//! let key = SecretKey::new([7; 16]); // from a random source: nobody without it can test guesses
//! let plan = Plan::builder(Kind::Blocked).items(1000).build()?;
//! let mut phones = Filter::with_hasher(plan, Hasher::sip13(key))?;
//! phones.insert("+49 30 123456")?;
//! phones.save(&path)?;
//!
//! let mut phones = OpenOptions::new().secret(&key).writable(true).verify(true).open(&path)?;
//! phones.insert("+49 30 654321")?;
//! phones.save(&path)?;
//! # Ok::<(), inbloom::Error>(())
//! ```
//!
//! # Several filters: `Digest`
//!
//! A [`Digest`] stands for a key: 128 bits, hashed once. Shards, filters and files see only
//! digests. The bits of a filter are a function of plan, hash and digest, so they are the same in
//! memory, in a file and on another machine. If your program hashes its keys already, use
//! [`Digest::from_u64`] or [`Digest::from_u128`].
//!
//! ```
//! # use inbloom::BloomFilter;
//! let mut days = [BloomFilter::new(1000, 0.001), BloomFilter::new(1000, 0.001)];
//! days[1].insert("alice");
//! let alice = days[0].digest("alice");
//! assert!(days.iter().any(|day| day.contains_digest(alice)));
//! ```
//!
//! # Features
//!
//! | feature | default | brings |
//! |---|---|---|
//! | `std` | yes | streams, views, threads, `interop`, `measure`; without it: an allocator alone |
//! | `file` | yes | [`file`](mod@file): mapping, saving and watching; memory in huge pages |
//! | `sparse-bitmap` | yes | bitmaps of few among many values, in Roaring's format |
//! | `serde` | no | [`Filter`] and [`BloomFilter`] with serde, as the bytes of the file |
//!
//! With `default-features = false` the library is `no_std`: all kinds work in memory, and nothing is
//! saved or opened.

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
