//! The structures themselves, one file each. They hold digests and know nothing of keys.

pub mod bitmap;
pub mod blocked;
pub(crate) mod buckets;
pub mod classic;
pub mod counting;
pub mod cuckoo;
pub mod ribbon;
pub mod scalable;
pub mod window;
