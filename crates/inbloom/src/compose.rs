//! Many filters that answer as one.

pub mod grown;
pub mod overlay;
pub mod sharded;
