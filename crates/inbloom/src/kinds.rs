//! The structures themselves, one file each. They hold digests and know nothing of keys.

pub mod bitmap;
pub mod blocked;
pub mod classic;
