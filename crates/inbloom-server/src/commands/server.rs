//! What operators and tools ask of the server itself.
//!
//! | file | commands |
//! |---|---|
//! | `server/info.rs` | INFO |
//! | `server/config.rs` | CONFIG |
//! | `server/introspection.rs` | COMMAND, and HELP of every command that has subcommands |
//! | `server/syntax.rs` | the arguments of a command, from the line that documents them |
//! | `server/observation.rs` | MEMORY, SLOWLOG, LATENCY, MODULE, ACL |
//! | `server/operation.rs` | TIME, SAVE and its like, SHUTDOWN, WAIT, ROLE, REPLICAOF, DEBUG |
//!
//! Tools that were written for Redis look at these answers, so their form is that of Redis 7. Their
//! figures are ours: what is not measured here is left out, and what is not done is an error.

pub mod config;
pub mod info;
pub mod introspection;
pub mod observation;
mod operation;
mod syntax;

use super::glob;
use crate::command::{Command, OnStore};

/// The rows, each beside its function.
pub static COMMANDS: &[Command] = &[
    operation::BGREWRITEAOF,
    operation::BGSAVE,
    operation::DEBUG,
    operation::LASTSAVE,
    operation::REPLICAOF,
    operation::ROLE,
    operation::SAVE,
    operation::SHUTDOWN,
    operation::SLAVEOF,
    operation::TIME,
    operation::WAIT,
    operation::WAITAOF,
    config::CONFIG,
    info::INFO,
    introspection::COMMAND,
    observation::ACL,
    observation::LATENCY,
    observation::MEMORY,
    observation::MODULE,
    observation::SLOWLOG,
];

/// The version of Redis whose answers we give: clients decide by it what they may ask for.
pub const REDIS_VERSION: &str = "7.4.0";
/// The module that BF.* and CF.* are of, as tools look for it, and the version of it that we answer
/// like.
pub const MODULE_NAME: &str = "bf";
/// As major * 10,000 + minor * 100 + patch.
pub const MODULE_VERSION: i64 = 80_800;

const SERVER: Command = Command { group: "server", on_store: OnStore::Same, ..Command::NONE };

/// Returns whether a name is as a pattern says, in upper or lower case: names of ours are in lower.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    glob::matches(&pattern.to_ascii_lowercase(), name)
}
