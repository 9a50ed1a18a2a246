//! What it costs a server to keep its filters, and how soon they are back.
//!
//! ```text
//! throughput  BF.MADD and BF.ADD without --dir and under each --fsync     durability/throughput.rs
//! restart     from exec to the first right answers                       durability/restart.rs
//! snapshot    what others notice of a snapshot under full write load     durability/snapshot.rs
//! ```
//!
//! The disk decides more of this than the program does, and so do other guests on a shared machine:
//! each table has a control that does without our server.

mod restart;
mod snapshot;
mod throughput;

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::process::Server;

/// What servers are started with.
pub(crate) struct Durability<'a> {
    pub(crate) binary: PathBuf,
    /// Further arguments of 'serve'.
    pub(crate) arguments: &'a str,
    /// Where they say what they say.
    pub(crate) words: &'a Path,
    /// Where they keep their filters, each in a folder of its own. Absolute.
    pub(crate) data: PathBuf,
}

/// How much is run.
pub(crate) struct Sizes {
    pub(crate) rounds: usize,
    /// How long each load lasts: seconds, as `everysec` syncs once in each.
    pub(crate) load: Duration,
    /// Items that the filter is reserved for to which it adds.
    pub(crate) capacity: u64,
    /// Large filters of a restart,
    pub(crate) large_filters: u64,
    /// and the bytes of each.
    pub(crate) large_bytes: u64,
    /// Small filters of a restart.
    pub(crate) small_filters: u64,
    /// Items in the log of a restart without a snapshot.
    pub(crate) log_items: u64,
    /// Bytes of the filter that is saved under load.
    pub(crate) snapshot_bytes: u64,
}

/// When a server asks the disk to keep what it acknowledges.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    /// Never: it was started without --dir.
    Memory,
    No,
    EverySecond,
    Always,
}

impl Policy {
    const ALL: [Policy; 4] = [Policy::Memory, Policy::No, Policy::EverySecond, Policy::Always];

    fn name(self) -> &'static str {
        match self {
            Policy::Memory => "without --dir",
            Policy::No => "no",
            Policy::EverySecond => "everysec",
            Policy::Always => "always",
        }
    }
}

pub(crate) fn run(with: &Durability<'_>, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    throughput::run(with, sizes)?;
    restart::run(with, sizes)?;
    snapshot::run(with, sizes)
}

impl Durability<'_> {
    /// A server that keeps its filters in a folder of this name, and finds those that are there.
    fn server(&self, policy: Policy, folder: &str) -> Result<Server, Box<dyn Error>> {
        let mut arguments: Vec<OsString> =
            self.arguments.split_whitespace().map(OsString::from).collect();
        if policy != Policy::Memory {
            // Snapshots are taken when they are asked for, and not in the midst of a load.
            arguments.extend(["--log-limit", "1TiB"].map(OsString::from));
            arguments.extend(["--fsync", policy.name(), "--dir"].map(OsString::from));
            arguments.push(self.data.join(folder).into());
        }
        Server::inbloom(&self.binary, arguments, self.words)
    }

    /// Gives back the room of a folder whose server has ended.
    fn remove(&self, folder: &str) -> Result<(), Box<dyn Error>> {
        Ok(fs::remove_dir_all(self.data.join(folder))?)
    }
}
