//! Many filters that answer as one.

pub mod living;
pub mod sharded;
pub mod window;
