//! Many filters that answer as one.

pub mod window;
