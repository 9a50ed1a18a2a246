//! Everything that can go wrong: what happened, and what to do about it.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Display, Formatter};
#[cfg(feature = "std")]
use std::io;

use crate::kind::Kind;

/// The result of a call that can be refused.
pub type Result<T> = core::result::Result<T, Error>;

/// Describes why a call was refused. Fields are for programs.
///
/// The text says what happened. If there is something to do about it, that follows after `; `, and
/// [`Error::help`] returns it alone.
///
/// The text includes the system's reason, if there is one, which is also the
/// [`source`](std::error::Error::source). Programs that print a whole chain of errors print it
/// twice, unless they skip a cause that the text before contains.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rate that is no probability strictly between 0 and 1, or below what is offered.
    Rate {
        /// The rate asked for.
        got: f64,
        /// What it must be.
        reason: &'static str,
    },
    /// A parameter outside its range.
    Parameter {
        /// The parameter's name, as in [`PlanBuilder`](crate::PlanBuilder).
        name: &'static str,
        /// The value given.
        got: String,
        /// The range, in words.
        expected: String,
    },
    /// Too few parameters to compute the others.
    Underspecified {
        /// The kind that was to be planned.
        kind: Kind,
        /// What would be sufficient.
        needs: &'static str,
    },
    /// The parameters contradict each other.
    Unreachable {
        /// Items asked for.
        items: u64,
        /// Bytes allowed.
        bytes: u64,
        /// Rate asked for.
        rate: f64,
        /// Best rate with these items and bytes.
        reachable: f64,
    },
    /// More bits than this version addresses.
    TooLarge {
        /// Bits that would be needed.
        bits: f64,
        /// The limit.
        max: u64,
    },
    /// The system did not give the memory.
    Memory {
        /// Bytes asked for.
        bytes: u64,
        /// The system's reason.
        #[cfg(feature = "std")]
        #[source]
        cause: io::Error,
        /// The reason.
        #[cfg(not(feature = "std"))]
        cause: String,
    },
    /// The plan is larger than the caller's own limit.
    Limit {
        /// Bytes needed.
        bytes: u64,
        /// The limit given.
        limit: u64,
    },
    /// Two filters that do not fit together.
    Mismatch {
        /// The first field in which they differ.
        field: &'static str,
        /// Its value in the filter that was called.
        left: String,
        /// Its value in the argument.
        right: String,
    },
    /// A merge that would raise the rate of a filter that grows above its target. Nothing was changed.
    MergedRate {
        /// The rate after the merge.
        rate: f64,
        /// The target rate.
        target: f64,
    },
    /// The kind cannot do this.
    Unsupported {
        /// The kind that was asked.
        kind: Kind,
        /// What it was asked to do.
        verb: &'static str,
        /// Which kinds can, or what to do instead.
        remedy: &'static str,
    },
    /// A change to a filter that was opened read-only.
    ReadOnly,
    /// No room for one more key. Nothing was changed.
    Full {
        /// Items in the filter, copies included.
        items: u64,
        /// Items that the filter is for.
        planned: u64,
    },
    /// No room for one more copy of a key. Nothing was changed.
    Copies {
        /// Copies of the key, and of others that look the same.
        copies: u64,
    },
    /// A key of another shard. Nothing was changed.
    OtherShard {
        /// The key's shard, from 0.
        key_shard: u32,
        /// The shard that was asked.
        shard: u32,
        /// How many there are.
        shards: u32,
    },
    /// Shards that do not make up a whole filter.
    Shards {
        /// How many there are.
        shards: u32,
        /// Those that are not there.
        missing: Vec<u32>,
        /// Those that came more than once.
        twice: Vec<u32>,
    },
    /// A key that a bitmap cannot hold.
    NotInUniverse {
        /// One more than the largest integer.
        universe: u64,
        /// The integer that came, or a description of the key.
        got: String,
    },
    /// The bytes are not a filter of inbloom.
    NotAFilter {
        /// The first bytes, escaped; nothing for no bytes.
        start: String,
    },
    /// The bytes are damaged, or have something that is not known.
    Format {
        /// The part of the file.
        what: &'static str,
        /// What should be there.
        expected: String,
        /// What is there.
        got: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Bytes that could be filters of several programs.
    Ambiguous {
        /// The names of the formats.
        candidates: String,
    },
    /// A file with several filters, or none, of which one was to be opened.
    Part {
        /// The name that was asked for, or nothing.
        part: String,
        /// The names of those that there are.
        names: Vec<String>,
    },
    /// A filter that is to be written in the format of another hash.
    OtherScheme {
        /// What the filter is.
        kind: Kind,
        /// The format that was asked for.
        format: &'static str,
        /// Whether the format is written at all.
        read_only: bool,
    },
    /// A file of a later version of inbloom.
    NewerVersion {
        /// The version in the file.
        got: u16,
        /// The newest version that this inbloom reads.
        supported: u16,
    },
    /// The file was written under a secret key, and it is missing or is another one.
    Key {
        /// What is wrong with the key that was given.
        problem: &'static str,
    },
    /// Something that this build does not have.
    LeftOut {
        /// What is missing.
        what: &'static str,
        /// The feature of the crate that brings it.
        feature: &'static str,
    },
    /// Reading or writing failed.
    #[cfg(feature = "std")]
    Io {
        /// What was being done, with the path where there is one.
        action: String,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
}

const DAMAGED: &str = "the file is damaged or cut short; restore it from a copy, or build it again";

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
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
            Error::Unreachable { .. } => "allow more bytes, fewer keys or a higher rate",
            Error::TooLarge { .. } => "plan for fewer keys or a higher rate",
            Error::Memory { .. } => "plan a smaller filter, or free memory",
            Error::Limit { .. } => "raise the limit, or plan a smaller filter",
            Error::Mismatch { .. } => "build both from the same plan with the same hash",
            Error::MergedRate { .. } => "build one filter from the keys of both",
            Error::Unsupported { remedy, .. } | Error::Format { remedy, .. } => *remedy,
            Error::ReadOnly => {
                "open it with OpenOptions::writable, change it, and save it as a new file"
            }
            Error::Full { .. } => {
                "plan for more items, or use kind counting to remove keys, or scalable to grow"
            }
            Error::Copies { .. } => "use insert_if_absent, which keeps one copy, or kind counting",
            Error::OtherShard { .. } => {
                "insert it into that shard, or into all shards together (Filter::from_shards)"
            }
            Error::Shards { shards, .. } => {
                return Some(Cow::Owned(format!("give each shard from 0 to {} once", shards - 1)));
            }
            Error::NotAFilter { .. } => {
                "check the path; if another program wrote the filter, name its format \
                 (OpenOptions::format, --from on the command line)"
            }
            Error::Ambiguous { .. } => {
                "say which one it is (OpenOptions::format, --from on the command line)"
            }
            Error::Part { names, .. } if !names.is_empty() => "name one of them as FILE#NAME",
            Error::OtherScheme { read_only: false, .. } => {
                "build it from its keys ('inbloom build --format', Filter::for_format)"
            }
            Error::NewerVersion { .. } => {
                "upgrade inbloom, or write the file again with an older one"
            }
            Error::Key { .. } => {
                "open it with the secret key that it was built with (OpenOptions::secret, \
                 --key-file on the command line)"
            }
            Error::LeftOut { feature, .. } => {
                return Some(Cow::Owned(format!("compile inbloom with the feature {feature:?}")));
            }
            _ => return None,
        };
        Some(Cow::Borrowed(help))
    }

    fn write_what(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Error::Rate { got, reason } => write!(f, "rate {got} is out of range: {reason}"),
            Error::Parameter { name, got, expected } => {
                write!(f, "{name} is {got}, but must be {expected}")
            }
            Error::Underspecified { kind, needs } => {
                write!(f, "a plan for kind {kind} needs {needs}")
            }
            Error::Unreachable { items, bytes, rate, reachable } => write!(
                f,
                "{items} keys in {bytes} bytes reach a rate of {reachable:.3e}, not {rate:.3e}"
            ),
            Error::TooLarge { bits, max } => {
                write!(f, "the plan needs about {bits:.3e} bits, the limit is {max}")
            }
            Error::Memory { bytes, cause } => {
                write!(f, "could not allocate {bytes} bytes of memory for the filter ({cause})")
            }
            Error::Limit { bytes, limit } => {
                write!(f, "the filter needs {bytes} bytes, the limit is {limit}")
            }
            Error::Mismatch { field, left, right } => {
                write!(f, "the filters differ in {field}: {left} here, {right} there")
            }
            Error::MergedRate { rate, target } => write!(
                f,
                "the merged filter would have a rate of {rate:.3e}, above the target of \
                 {target:.3e}"
            ),
            Error::Unsupported { kind, verb, .. } => write!(f, "kind {kind} cannot {verb}"),
            Error::ReadOnly => f.write_str("the filter was opened read-only"),
            Error::Full { items, planned } => {
                write!(f, "the filter is full: it holds {items} items, planned for {planned}")
            }
            Error::Copies { copies } => write!(
                f,
                "the filter holds this key {copies} times, and has no room for another copy"
            ),
            Error::OtherShard { key_shard, shard, shards } => write!(
                f,
                "the key belongs to shard {key_shard} of {shards}, but this is shard {shard}"
            ),
            Error::Shards { shards, missing, twice } => {
                write!(f, "of {shards} shards, {}", problem(missing, twice))
            }
            Error::NotInUniverse { universe, got } => {
                write!(f, "the bitmap holds integers below {universe}, got {got}")
            }
            Error::NotAFilter { start } => match start.as_str() {
                "" => f.write_str("not an inbloom file (it is empty)"),
                start => write!(f, "not an inbloom file (starts with \"{start}\")"),
            },
            Error::Format { what, expected, got, .. } => {
                write!(f, "{what}: expected {expected}, got {got}")
            }
            Error::Ambiguous { candidates } => {
                write!(f, "the file could be a filter of {candidates}")
            }
            Error::Part { part, names } => f.write_str(&part_problem(part, names)),
            Error::OtherScheme { kind, format, read_only } => {
                let why = match read_only {
                    true => "inbloom only reads that format",
                    false => "its keys are hashed in another way",
                };
                write!(f, "a filter of kind {kind} cannot be written as {format}: {why}")
            }
            Error::NewerVersion { got, supported } => {
                write!(f, "file version {got}, this inbloom reads up to version {supported}")
            }
            Error::Key { problem } => {
                write!(f, "the filter was built with a secret key, and {problem}")
            }
            Error::LeftOut { what, .. } => write!(f, "this build has no {what}"),
            #[cfg(feature = "std")]
            Error::Io { action, cause } => write!(f, "{action}: {cause}"),
        }
    }
}

/// Memory that was not given, and why.
pub(crate) fn no_memory(bytes: u64, reason: impl Into<String>) -> Error {
    #[cfg(feature = "std")]
    let cause = io::Error::new(io::ErrorKind::OutOfMemory, reason.into());
    #[cfg(not(feature = "std"))]
    let cause = reason.into();
    Error::Memory { bytes, cause }
}

/// Bytes that are not what they should be.
pub(crate) fn mismatch(what: &'static str, expected: impl Display, got: impl Display) -> Error {
    Error::Format { what, expected: expected.to_string(), got: got.to_string(), remedy: DAMAGED }
}

/// What a plan refuses is a mistake of its caller, unless it came from a file.
pub(crate) fn in_file(error: Error) -> Error {
    match error {
        Error::Parameter { name, got, expected } => mismatch(name, expected, got),
        Error::Rate { got, .. } => mismatch("rate", "0 to 1, and 0 for a bitmap", got),
        Error::Unsupported { kind, verb, .. } => {
            mismatch("fields", format_args!("what kind {kind} has"), format_args!("to {verb}"))
        }
        other => other,
    }
}

/// Returns what is wrong with the name of one filter in a file.
fn part_problem(part: &str, names: &[String]) -> String {
    /// So many names are listed.
    const LISTED: usize = 12;
    let mut listed = names[..names.len().min(LISTED)].join(", ");
    if names.len() > LISTED {
        listed.push_str(", ...");
    }
    match (part, names) {
        ("", []) => String::from("the file has keys or columns, but no filter"),
        ("", _) => format!("the file has {} filters: {listed}", names.len()),
        (part, []) => format!("the file has no filter named \"{part}\", and none by name"),
        (part, _) => {
            format!("the file has no filter named \"{part}\", but {}: {listed}", names.len())
        }
    }
}

/// What is wrong with a set of shards.
fn problem(missing: &[u32], twice: &[u32]) -> String {
    let named = |shards: &[u32], problem: &str| {
        const SHOWN: usize = 8;
        let shown: Vec<String> = shards.iter().take(SHOWN).map(u32::to_string).collect();
        let more = match shards.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{problem}: {}{more}", shown.join(", "))
    };
    match (missing, twice) {
        (missing, []) => named(missing, "missing"),
        ([], twice) => named(twice, "given twice"),
        _ => format!("{}; {}", named(missing, "missing"), named(twice, "given twice")),
    }
}
