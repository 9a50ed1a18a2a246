//! Everything that can go wrong, each with what was expected, what came, and what to do next.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Display;
#[cfg(feature = "std")]
use std::io;

use crate::kind::Kind;

/// The result of a call that can be refused.
pub type Result<T> = core::result::Result<T, Error>;

/// Why a call was refused. Texts are complete sentences for a user; fields are for programs.
///
/// A text includes the system's reason, if there is one, which is also the
/// [`source`](std::error::Error::source). Programs that print a whole chain of errors print it
/// twice, unless they skip a cause that the text before ends with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rate that is no probability strictly between 0 and 1, or below what is offered.
    #[error("rate {got} is out of reach: {reason}")]
    Rate {
        /// The rate asked for.
        got: f64,
        /// What is allowed.
        reason: &'static str,
    },
    /// A parameter outside its range.
    #[error("{name} is {got}, but must be {expected}")]
    Parameter {
        /// The parameter's name, as in [`PlanBuilder`](crate::PlanBuilder).
        name: &'static str,
        /// The value given.
        got: String,
        /// The range, in words.
        expected: String,
    },
    /// Too few parameters to compute the others.
    #[error("a plan for kind {kind} needs {needs}")]
    Underspecified {
        /// The kind that was to be planned.
        kind: Kind,
        /// What would be sufficient.
        needs: &'static str,
    },
    /// The parameters contradict each other.
    #[error(
        "{items} items in {bytes} bytes reach a rate of {reachable:.3e}, not {rate:.3e}: allow more bytes, fewer items or a higher rate"
    )]
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
    #[error(
        "the plan needs about {bits:.3e} bits, but at most {max} are supported: plan fewer items or a higher rate"
    )]
    TooLarge {
        /// Bits that would be needed.
        bits: f64,
        /// The limit.
        max: u64,
    },
    /// The system did not give the memory.
    #[error(
        "could not get {bytes} bytes of memory for the filter ({cause}): plan a smaller filter or free memory"
    )]
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
    #[error(
        "the filter needs {bytes} bytes, the limit is {limit}: raise the limit or plan a smaller filter"
    )]
    Limit {
        /// Bytes needed.
        bytes: u64,
        /// The limit given.
        limit: u64,
    },
    /// Two filters that do not fit together.
    #[error(
        "the filters differ in {field}: {left} here, {right} there; both must be made from the same plan and hash"
    )]
    Mismatch {
        /// The first field in which they differ.
        field: &'static str,
        /// Its value in the filter that was called.
        left: String,
        /// Its value in the argument.
        right: String,
    },
    /// A merge that would break the promise of a filter that grows. Nothing was changed.
    #[error(
        "merged, the filter would err at a rate of {rate:.3e}, above the promised {promised:.3e}: build one filter from the keys of both"
    )]
    MergedRate {
        /// The rate after the merge.
        rate: f64,
        /// The rate promised.
        promised: f64,
    },
    /// The kind cannot do this.
    #[error("kind {kind} cannot {verb}: {remedy}")]
    Unsupported {
        /// The kind that was asked.
        kind: Kind,
        /// What it was asked to do.
        verb: &'static str,
        /// Which kinds can, or what to do instead.
        remedy: &'static str,
    },
    /// A change to a filter that was opened read-only.
    #[error(
        "the filter was opened read-only: open it with OpenOptions::writable, change it, and save it as a new file"
    )]
    ReadOnly,
    /// No room for one more key. Nothing was changed.
    #[error(
        "the filter is full: it holds {items} items and is for {planned}; plan more items, or use the scalable kind"
    )]
    Full {
        /// Items in the filter, copies included.
        items: u64,
        /// Items that the filter is for.
        planned: u64,
    },
    /// No room for one more copy of a key. Nothing was changed.
    #[error(
        "the filter holds this key {copies} times, and no more copies of one key fit: insert it with insert_if_absent, which keeps one, or use the counting kind"
    )]
    Copies {
        /// Copies of the key, and of others that look the same.
        copies: u64,
    },
    /// A key of another shard. Nothing was changed.
    #[error(
        "the key belongs to shard {key_shard} of {shards}, this is shard {shard}: give it to that one, or to the whole of Filter::from_shards, which finds it"
    )]
    OtherShard {
        /// The key's shard, from 0.
        key_shard: u32,
        /// The shard that was asked.
        shard: u32,
        /// How many there are.
        shards: u32,
    },
    /// Shards that do not make up a whole filter.
    #[error(
        "of {shards} shards, {}: give each of 0 to {} once",
        problem(.missing, .twice),
        .shards - 1
    )]
    Shards {
        /// How many there are.
        shards: u32,
        /// Those that are not there.
        missing: Vec<u32>,
        /// Those that came more than once.
        twice: Vec<u32>,
    },
    /// A key that a bitmap cannot hold.
    #[error("the bitmap holds integers below {universe}, got {got}")]
    NotInUniverse {
        /// One more than the largest integer.
        universe: u64,
        /// The integer that came, or a description of the key.
        got: String,
    },
    /// The bytes are not an inbloom filter, or are damaged.
    #[error("{what}: expected {expected}, got {got}; {remedy}")]
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
    #[error(
        "the bytes could be a filter of {candidates}: say which of them it is (OpenOptions::format, --from on the command line)"
    )]
    Ambiguous {
        /// The names of the formats.
        candidates: String,
    },
    /// A file with several filters, or none, of which one was to be opened.
    #[error("{}", part_problem(.part, .names))]
    Part {
        /// The name that was asked for, or nothing.
        part: String,
        /// The names of those that there are.
        names: Vec<String>,
    },
    /// A filter that is to be written in the format of another hash.
    #[error(
        "a filter of kind {kind} cannot be written as {format}: {}",
        if *.read_only {
            "that format is only read"
        } else {
            "the hash of its keys is another one, and the keys are not in the filter; build it from them ('inbloom build --format', Filter::for_format)"
        }
    )]
    OtherScheme {
        /// What the filter is.
        kind: Kind,
        /// The format that was asked for.
        format: &'static str,
        /// Whether the format is written at all.
        read_only: bool,
    },
    /// A file of a later version of inbloom.
    #[error(
        "file version {got}, this inbloom reads up to {supported}: upgrade inbloom, or write the file again with an older one"
    )]
    NewerVersion {
        /// The version in the file.
        got: u16,
        /// The newest version that this inbloom reads.
        supported: u16,
    },
    /// The file was written under a secret key, and it is missing or is another one.
    #[error(
        "the filter is keyed (SipHash-1-3) and {problem}: open it with the key it was written under"
    )]
    Key {
        /// Missing or wrong.
        problem: &'static str,
    },
    /// Something that this build does not have.
    #[error("this build has no {what}: compile inbloom with the feature {feature:?}")]
    LeftOut {
        /// What is missing.
        what: &'static str,
        /// The feature of the crate that brings it.
        feature: &'static str,
    },
    /// Reading or writing failed.
    #[cfg(feature = "std")]
    #[error("{action}: {cause}")]
    Io {
        /// What was being done, with the path where there is one.
        action: String,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
}

const DAMAGED: &str = "the file is damaged or cut short: restore it from a copy, or build it again";

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

/// What is wrong with a set of shards, in words.
fn part_problem(part: &str, names: &[String]) -> String {
    /// So many names are listed.
    const LISTED: usize = 12;
    let mut listed = names[..names.len().min(LISTED)].join(", ");
    if names.len() > LISTED {
        listed.push_str(", ...");
    }
    match (part, names) {
        ("", []) => {
            String::from("the file holds no filter: it has keys or columns, but none with a filter")
        }
        ("", _) => {
            format!(
                "the file holds {} filters: name one of them as FILE#NAME: {listed}",
                names.len()
            )
        }
        (part, []) => format!("the file has no filter named \"{part}\", nor any other by name"),
        (part, _) => {
            format!(
                "the file has no filter named \"{part}\": name one of {} ({listed})",
                names.len()
            )
        }
    }
}

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
