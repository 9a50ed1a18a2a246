//! The tests of the crate, in one program, against real servers.

mod cluster;
mod single;
mod support;
mod transfer;
