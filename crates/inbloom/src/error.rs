//! The errors of the library: what happened, and what to do about it.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Display, Formatter};
#[cfg(feature = "std")]
use std::io;

use crate::kind::Kind;

/// The result of a call that can fail.
pub type Result<T> = core::result::Result<T, Error>;

/// Describes why a call failed. Programs read the fields, people read the text.
///
/// The text describes what happened. If there is something to do about it, that follows after `; `,
/// and [`Error::help`] returns it alone.
///
/// The text includes the system's reason, if there is one, which is also the
/// [`source`](std::error::Error::source). A program that prints the chain of causes would print
/// that reason twice. It should skip a cause that the text before contains.
///
/// ```
/// use inbloom::{Error, Filter, Kind, Plan};
///
/// let mut seen = Filter::new(Plan::builder(Kind::Blocked).items(1000).build()?)?;
/// let error = seen.remove("alice").unwrap_err();
/// assert!(matches!(error, Error::Unsupported { .. }));
/// assert_eq!(
///     error.to_string(),
///     "kind blocked cannot remove keys; build it with kind counting, cuckoo or bitmap, which can"
/// );
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The rate is not between 0 and 1, or is below the lowest rate that is offered.
    Rate {
        /// The given rate.
        got: f64,
        /// What it must be.
        reason: &'static str,
    },
    /// A parameter is out of its range.
    Parameter {
        /// The parameter's name, as in [`PlanBuilder`](crate::PlanBuilder).
        name: &'static str,
        /// The value given.
        got: String,
        /// The range, in words.
        expected: String,
    },
    /// The parameters are too few to compute the others.
    Underspecified {
        /// The kind of the plan.
        kind: Kind,
        /// The parameters that are sufficient.
        needs: &'static str,
    },
    /// The parameters contradict each other.
    Unreachable {
        /// The given number of items.
        items: u64,
        /// The given number of bytes.
        bytes: u64,
        /// The given rate.
        rate: f64,
        /// The lowest rate with these items and bytes.
        reachable: f64,
        /// The cache lines per key at that rate. A plan that is given no rate may have fewer, and a
        /// slightly higher rate.
        lines: u32,
    },
    /// The filter would have more bits than this version addresses.
    TooLarge {
        /// The number of bits needed.
        bits: f64,
        /// The limit.
        max: u64,
    },
    /// There is not enough memory.
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
    /// The filter would be larger than the caller's limit.
    Limit {
        /// Bytes needed.
        bytes: u64,
        /// The caller's limit.
        limit: u64,
    },
    /// Two filters differ in a field that must be the same.
    Mismatch {
        /// The first field in which they differ.
        field: &'static str,
        /// Its value in the filter that was called.
        left: String,
        /// Its value in the argument.
        right: String,
    },
    /// The merge would raise the rate of a scalable filter above its target. Nothing was changed.
    MergedRate {
        /// The rate after the merge.
        rate: f64,
        /// The target rate.
        target: f64,
    },
    /// The kind cannot do this.
    Unsupported {
        /// The kind of the filter.
        kind: Kind,
        /// The operation, as a verb.
        verb: &'static str,
        /// The kinds that can do it, or what to do instead.
        remedy: &'static str,
    },
    /// The filter was opened read-only, and the call would change it.
    ReadOnly,
    /// The filter has no room for another key. Nothing was changed.
    Full {
        /// Items in the filter, copies included.
        items: u64,
        /// Items that the filter is planned for.
        planned: u64,
    },
    /// The filter has no room for another copy of this key. Nothing was changed.
    Copies {
        /// Copies of the key, and of keys with the same fingerprint.
        copies: u64,
    },
    /// The key belongs to another shard. Nothing was changed.
    OtherShard {
        /// The key's shard, from 0.
        key_shard: u32,
        /// The shard that was called.
        shard: u32,
        /// How many there are.
        shards: u32,
    },
    /// The shards are not a whole filter.
    Shards {
        /// How many there are.
        shards: u32,
        /// The missing shards.
        missing: Vec<u32>,
        /// The shards that were given more than once.
        twice: Vec<u32>,
    },
    /// The bitmap cannot hold this key.
    NotInUniverse {
        /// One more than the largest integer.
        universe: u64,
        /// The integer, or a description of the key.
        got: String,
    },
    /// The bytes are not a filter of inbloom.
    NotAFilter {
        /// The first bytes, escaped. Empty if there are no bytes.
        start: String,
    },
    /// The bytes are damaged, or have a value that this version does not know.
    Format {
        /// The part of the file.
        what: &'static str,
        /// The expected value, in words.
        expected: String,
        /// The value found.
        got: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The bytes could be a filter of several programs.
    Ambiguous {
        /// The names of the formats.
        candidates: String,
    },
    /// The file has several filters and none was named, or it has no filter of the given name.
    Part {
        /// The given name, or an empty text.
        part: String,
        /// The names of the filters in the file.
        names: Vec<String>,
    },
    /// The filter cannot be written in a format, because the format belongs to another hash.
    OtherScheme {
        /// The kind of the filter.
        kind: Kind,
        /// The format.
        format: &'static str,
        /// Whether inbloom only reads the format.
        read_only: bool,
    },
    /// A newer version of inbloom wrote the file.
    NewerVersion {
        /// The version in the file.
        got: u16,
        /// The newest version that this inbloom reads.
        supported: u16,
    },
    /// The filter was built with a secret key, and no key or another one was given.
    Key {
        /// What is wrong with the given key.
        problem: &'static str,
    },
    /// This build lacks a feature that the call needs.
    LeftOut {
        /// What is missing.
        what: &'static str,
        /// The feature of the crate that adds it.
        feature: &'static str,
    },
    /// Reading or writing failed.
    #[cfg(feature = "std")]
    Io {
        /// The failed operation, with the path if there is one.
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
    /// Returns what to do about the error, if there is something to do. It is the end of the text.
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
            Error::Unreachable { items, bytes, rate, reachable, lines } => {
                let with = if *lines == 2 { " with two lines per key" } else { "" };
                write!(
                    f,
                    "{items} keys in {bytes} bytes reach a rate of {reachable:.3e}{with}, not \
                     {rate:.3e}"
                )
            }
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

/// Returns the error for an allocation that failed, with the reason.
pub(crate) fn no_memory(bytes: u64, reason: impl Into<String>) -> Error {
    #[cfg(feature = "std")]
    let cause = io::Error::new(io::ErrorKind::OutOfMemory, reason.into());
    #[cfg(not(feature = "std"))]
    let cause = reason.into();
    Error::Memory { bytes, cause }
}

/// Returns the error for damaged bytes.
pub(crate) fn mismatch(what: &'static str, expected: impl Display, got: impl Display) -> Error {
    Error::Format { what, expected: expected.to_string(), got: got.to_string(), remedy: DAMAGED }
}

/// Turns the error of a plan into that of a damaged file, for a plan that was read from a file.
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
    /// The largest number of names in the message.
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

/// Describes which shards are missing or given twice.
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
