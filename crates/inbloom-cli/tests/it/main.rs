//! The command `inbloom` from outside. One program for all files: it links once, and keeps all cores
//! busy.

mod cli;
mod clients;
mod crash;
mod docs;
mod foreign;
mod house;
#[cfg(target_os = "linux")]
mod memory;
mod on_redis;
mod operations;
mod pages;
#[cfg(unix)]
mod top;
#[cfg(unix)]
mod web;
