//! Many filters that answer as one.

pub mod sharded;
pub mod window;
