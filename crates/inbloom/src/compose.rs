//! Many filters that answer as one.

pub mod grown;
pub mod overlay;
pub(crate) mod shard;
pub(crate) mod sharded;
