//! Many filters that answer as one.

pub mod grown;
pub mod living;
pub mod sharded;
pub mod window;
