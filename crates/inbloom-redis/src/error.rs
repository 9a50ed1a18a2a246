//! Everything that can go wrong: what happened, and what to do about it.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// The result of a call that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Describes why a call failed.
///
/// The text says what happened. If there is something to do about it, that follows after `; `, and
/// [`Error::help`] returns it alone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address that cannot be read.
    Address {
        /// The address, without its password.
        address: String,
        /// What is wrong, and what is expected.
        problem: String,
    },
    /// What the library refuses: a plan that cannot be kept in Redis, a file, a secret key.
    Filter(#[from] inbloom::Error),
    /// An option that is out of its range.
    Parameter {
        /// The option.
        name: &'static str,
        /// Its value.
        got: String,
        /// What it may be.
        expected: &'static str,
    },
    /// No filter has this name.
    Missing {
        /// The name asked for.
        name: String,
    },
    /// A filter has this name already.
    Exists {
        /// The name asked for.
        name: String,
        /// The plan that was to be created.
        wanted: String,
        /// The plan that is there.
        existing: String,
    },
    /// The filter was deleted, or it expired, after it was opened.
    Deleted {
        /// Its name.
        name: String,
    },
    /// The filter was deleted after it was opened, and another one has its name.
    Replaced {
        /// Its name.
        name: String,
    },
    /// The server has lost blocks of the filter. Keys in them cannot be looked up.
    Lost {
        /// The filter's name.
        name: String,
        /// The chunks that are gone, or that miss a block, in ascending order.
        lost: Vec<u64>,
        /// All chunks of the filter.
        chunks: u64,
    },
    /// The server has lost one of the two copies of the filter's description, and so perhaps its keys.
    LostDescription {
        /// The filter's name.
        name: String,
    },
    /// What the server holds under a filter's name is no description of one.
    Metadata {
        /// The filter's name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// A key of the filter holds something else than a string.
    WrongType {
        /// The key on the server.
        key: String,
        /// The type that the server reports.
        found: String,
    },
    /// The server turns bitmaps into another type, which cannot be read by ranges.
    Roaring {
        /// The key on the server.
        key: String,
    },
    /// The server may evict blocks of the filter when its memory is full.
    Eviction {
        /// The server.
        node: String,
        /// Its `maxmemory-policy`.
        policy: String,
    },
    /// A change is on its master, but not on as many replicas or disks as were asked for. It may
    /// be lost in a failover.
    NotReplicated {
        /// The copies asked for.
        wanted: u32,
        /// Those that confirmed.
        got: u32,
        /// How long the call waited.
        waited: Duration,
    },
    /// The deadline passed while the server could not be reached, or could not answer.
    Unavailable {
        /// How long the call tried in vain: not at all for the first connection.
        waited: Duration,
        /// What happened last.
        last: String,
    },
    /// The server refused a command.
    Server {
        /// The server.
        node: String,
        /// Its words.
        text: String,
    },
    /// A database that a cluster does not have.
    Database {
        /// The database of the address.
        database: u32,
        /// The server's words.
        problem: String,
    },
    /// The server answered what the command cannot answer.
    Reply {
        /// The server.
        node: String,
        /// The command.
        command: &'static str,
        /// The reply, shortened.
        reply: String,
    },
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Error::Filter(error) = self {
            return error.fmt(f);
        }
        self.write_what(f)?;
        match self.help() {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

impl Error {
    /// Returns what to do about it, if there is something: the end of the text.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        let help = match self {
            Error::Filter(error) => return error.help(),
            Error::Missing { .. } => "create it first, or check the name",
            Error::Exists { .. } => "open it, or choose another name",
            Error::Deleted { .. } => "create it again",
            Error::Replaced { .. } => "open it again",
            Error::Lost { .. } | Error::LostDescription { .. } => {
                "delete the filter, then build it again or push a copy of it"
            }
            Error::WrongType { .. } => {
                "find the program that wrote to it, then delete the filter and build it again"
            }
            Error::Roaring { .. } => {
                "set bitmap-default-roaring no, then delete the filter and build it again"
            }
            Error::Eviction { .. } => "set maxmemory-policy noeviction",
            Error::NotReplicated { .. } => "check the replicas, then repeat the call",
            Error::Unavailable { waited, .. } if waited.is_zero() => {
                "check the address, and that the server runs"
            }
            Error::Database { .. } => "leave the database out of the address",
            _ => return None,
        };
        Some(Cow::Borrowed(help))
    }

    fn write_what(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Error::Address { address, problem } => write!(f, "address {address:?}: {problem}"),
            Error::Filter(error) => error.fmt(f),
            Error::Parameter { name, got, expected } => {
                write!(f, "{name} is {got:?}, but must be {expected}")
            }
            Error::Missing { name } => write!(f, "no filter is named {name:?} on this server"),
            Error::Exists { name, wanted, existing } => {
                write!(f, "a filter named {name:?} already exists, with {existing}")?;
                match wanted == existing {
                    true => Ok(()),
                    false => write!(f, ", not {wanted}"),
                }
            }
            Error::Deleted { name } => write!(f, "the filter {name:?} was deleted or has expired"),
            Error::Replaced { name } => {
                write!(f, "the filter {name:?} was deleted and created again")
            }
            Error::Lost { name, lost, chunks } => {
                let first = lost.first().copied().unwrap_or_default();
                let lost = lost.len();
                write!(
                    f,
                    "the server lost {lost} of {chunks} chunks of the filter {name:?} (first: chunk \
                     {first})"
                )
            }
            Error::LostDescription { name } => write!(
                f,
                "the server lost a part of the filter {name:?}, one of the two copies of its \
                 description"
            ),
            Error::Metadata { name, problem } => {
                write!(f, "the description of the filter {name:?} is not valid: {problem}")
            }
            Error::WrongType { key, found } => {
                write!(f, "the key {key:?} holds a {found}, but a filter needs a string")
            }
            Error::Roaring { key } => {
                write!(f, "this server turns bitmaps into its bitmap type (key {key:?})")
            }
            Error::Eviction { node, policy } => write!(
                f,
                "{node} evicts keys when its memory is full (maxmemory-policy {policy:?}), and the \
                 filter would lose members"
            ),
            Error::NotReplicated { wanted, got, waited } => write!(
                f,
                "asked for {wanted} confirmed copies, got {got} within {:.1} s",
                waited.as_secs_f64()
            ),
            Error::Unavailable { waited, last } if waited.is_zero() => {
                write!(f, "cannot connect to {last}")
            }
            Error::Unavailable { waited, last } => {
                write!(f, "no reply within {:.1} s (last problem: {last})", waited.as_secs_f64())
            }
            Error::Server { node, text } => write!(f, "{node} refused a command: {text}"),
            Error::Database { database, problem } => {
                write!(f, "cannot select database {database}: {problem}")
            }
            Error::Reply { node, command, reply } => {
                write!(f, "{node} sent an unexpected reply to {command}: {reply}")
            }
        }
    }
}
