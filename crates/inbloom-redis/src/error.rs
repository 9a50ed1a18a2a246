//! Everything that can go wrong, each with what happened and what to do next.

use std::time::Duration;

/// The result of a call that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address that cannot be read.
    #[error("address {address:?}: {problem}")]
    Address {
        /// The address, without its password.
        address: String,
        /// What is wrong, and what is expected.
        problem: String,
    },
    /// What the library refuses: a plan that cannot be kept in Redis, a file, a secret key.
    #[error(transparent)]
    Filter(#[from] inbloom::Error),
    /// An option that is out of its range.
    #[error("{name} is {got:?}, but must be {expected}")]
    Parameter {
        /// The option.
        name: &'static str,
        /// Its value.
        got: String,
        /// What it may be.
        expected: &'static str,
    },
    /// No filter has this name.
    #[error("no filter is named {name:?} on this server; create it first")]
    Missing {
        /// The name asked for.
        name: String,
    },
    /// A filter has this name already.
    #[error(
        "a filter is named {name:?} already, with {existing}; this one has {wanted}: open it, or choose another name"
    )]
    Exists {
        /// The name asked for.
        name: String,
        /// The plan that was to be created.
        wanted: String,
        /// The plan that is there.
        existing: String,
    },
    /// The filter was deleted, or it expired, after it was opened.
    #[error("the filter {name:?} was deleted or has expired; create it again")]
    Deleted {
        /// Its name.
        name: String,
    },
    /// The filter was deleted after it was opened, and another one has its name.
    #[error("the filter {name:?} was deleted and created again; open it anew")]
    Replaced {
        /// Its name.
        name: String,
    },
    /// The server has lost blocks of the filter. Keys in them cannot be looked up.
    #[error(
        "the server lost {} of {chunks} chunks of the filter {name:?} (first: chunk {}): delete the filter and build it again, or push a copy of it",
        .lost.len(), .lost.first().copied().unwrap_or_default()
    )]
    Lost {
        /// The filter's name.
        name: String,
        /// The chunks that are gone, or that miss a block, in ascending order.
        lost: Vec<u64>,
        /// All chunks of the filter.
        chunks: u64,
    },
    /// The server has lost one of the two copies of the filter's description, and so perhaps its keys.
    #[error(
        "the server lost a part of the filter {name:?}, one of the two copies of its description: delete the filter, then build it again or push a copy of it"
    )]
    LostDescription {
        /// The filter's name.
        name: String,
    },
    /// What the server holds under a filter's name is no description of one.
    #[error("the description of the filter {name:?} is not valid: {problem}")]
    Metadata {
        /// The filter's name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// A key of the filter holds something else than a string.
    #[error(
        "the key {key:?} holds a {found}, but a filter needs a string: another program wrote to it"
    )]
    WrongType {
        /// The key on the server.
        key: String,
        /// The type that the server reports.
        found: String,
    },
    /// The server turns bitmaps into another type, which cannot be read by ranges.
    #[error(
        "this server turns bitmaps into its bitmap type (key {key:?}): set bitmap-default-roaring no, delete the filter and build it again"
    )]
    Roaring {
        /// The key on the server.
        key: String,
    },
    /// The server may evict blocks of the filter when its memory is full.
    #[error(
        "{node} evicts keys under the policy {policy:?} when its memory is full, and the filter would lose keys: set maxmemory-policy noeviction"
    )]
    Eviction {
        /// The server.
        node: String,
        /// Its `maxmemory-policy`.
        policy: String,
    },
    /// A change is on its master, but not on as many replicas or disks as were asked for. It may
    /// be lost in a failover.
    #[error(
        "asked for {wanted} confirmed copies, got {got} within {:.1} s: check the replicas, then repeat the call",
        .waited.as_secs_f64()
    )]
    NotReplicated {
        /// The copies asked for.
        wanted: u32,
        /// Those that confirmed.
        got: u32,
        /// How long the call waited.
        waited: Duration,
    },
    /// The deadline passed while the server could not be reached, or could not answer.
    #[error("{}", unavailable(*.waited, last))]
    Unavailable {
        /// How long the call tried in vain: not at all for the first connection.
        waited: Duration,
        /// What happened last.
        last: String,
    },
    /// The server refused a command.
    #[error("{node} refused a command: {text}")]
    Server {
        /// The server.
        node: String,
        /// Its words.
        text: String,
    },
    /// A database that a cluster does not have.
    #[error("database {database} cannot be selected: {problem}; leave it out of the address")]
    Database {
        /// The database of the address.
        database: u32,
        /// The server's words.
        problem: String,
    },
    /// The server answered what the command cannot answer.
    #[error("{node} gave an unexpected reply to {command}: {reply}")]
    Reply {
        /// The server.
        node: String,
        /// The command.
        command: &'static str,
        /// The reply, shortened.
        reply: String,
    },
}

fn unavailable(waited: Duration, last: &str) -> String {
    if waited.is_zero() {
        return format!("cannot connect to {last}: check the address, and that the server runs");
    }
    format!("no answer within {:.1} s; the last problem: {last}", waited.as_secs_f64())
}
