//! The tests of the crate, in one program, against real servers.

mod cluster;
mod crawler;
mod faults;
mod patience;
mod pyrebloom;
mod races;
mod single;
mod speed;
mod support;
mod tls;
mod transfer;
