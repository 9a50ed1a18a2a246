//! What can go wrong: with parameters and untrusted input, with an insert, with a chunk.

use super::memory::Short;

/// Describes why a filter could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForeignError {
    /// A parameter outside its range.
    #[error("{name} is {got}, but must be {expected}")]
    Parameter {
        /// The parameter's name.
        name: &'static str,
        /// The value given.
        got: String,
        /// The range, in words.
        expected: &'static str,
    },
    /// The filter is larger than the caller's limit. Nothing was allocated.
    #[error(
        "the filter needs {needed} bytes, the limit is {limit}: raise the limit, or use a smaller filter"
    )]
    Limit {
        /// Bytes needed. `u64::MAX` means more than can be counted.
        needed: u64,
        /// The limit given.
        limit: u64,
    },
    /// A sub-filter of a cuckoo filter that RedisBloom could not address.
    #[error(
        "a sub-filter would have {bytes} bytes, the limit is {most}: reserve fewer items, or use a smaller expansion"
    )]
    TooLarge {
        /// Bytes of the sub-filter. The largest number stands for more than can be counted.
        bytes: u64,
        /// The most there can be: [`MAX_SUB_FILTER`](super::MAX_SUB_FILTER).
        most: u64,
    },
    /// There is not enough memory.
    #[error("could not allocate {bytes} bytes of memory: free memory, or use a smaller filter")]
    Memory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The bytes are not a header or payload of RedisBloom, or are damaged.
    #[error("{what}: expected {expected}, got {got}; dump the filter again from its server")]
    Damaged {
        /// The part of the dump.
        what: &'static str,
        /// What should be there.
        expected: String,
        /// What is there.
        got: String,
    },
    /// An RDB file has a value of an unknown type. The end of such a value cannot be found.
    #[error(
        "the RDB file has a value of type {kind}{}, which this inbloom cannot skip; upgrade inbloom, or dump the filter alone with BF.SCANDUMP, CF.SCANDUMP or DUMP",
        of_key(.key)
    )]
    UnknownType {
        /// The number of the type.
        kind: u8,
        /// The key of the value. Empty if the type is not that of a value.
        key: String,
    },
    /// A log changes a filter by other commands than LOADCHUNK.
    #[error(
        "the log changes a filter by {command}, and inbloom reads only loaded filters: rewrite the log with BGREWRITEAOF, or use an RDB file"
    )]
    Changed {
        /// The command.
        command: String,
    },
    /// A payload of a later RedisBloom.
    #[error(
        "payload of encoding {got}, this inbloom reads up to {supported}: upgrade inbloom, or copy the filter with SCANDUMP and LOADCHUNK"
    )]
    NewerEncoding {
        /// The encoding version in the payload.
        got: u16,
        /// The newest that is read.
        supported: u16,
    },
}

fn of_key(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!(" (key \"{key}\")") }
}

/// Describes why an item was not added. The filter is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// There is no room, and the filter does not grow.
    #[error("the filter is full and does not grow: reserve a larger one, or one that grows")]
    Full,
    /// The next link's rate would be zero, after about a thousand halvings.
    #[error(
        "the filter cannot grow further, because the rate of the next link would be zero: reserve a larger one"
    )]
    Exhausted,
    /// The grown filter would be larger than the caller's limit.
    #[error("the filter needs {needed} bytes to grow, the limit is {limit}: raise the limit")]
    Memory {
        /// Bytes that the filter would take. The largest number stands for more than can be
        /// counted.
        needed: u64,
        /// The limit given.
        limit: u64,
    },
    /// The next sub-filter would be too large for RedisBloom to address.
    #[error(
        "the next sub-filter would have {bytes} bytes, the limit is {most}: reserve a filter with a smaller expansion"
    )]
    TooLarge {
        /// Bytes of the sub-filter. The largest number stands for more than can be counted.
        bytes: u64,
        /// The most there can be: [`MAX_SUB_FILTER`](super::MAX_SUB_FILTER).
        most: u64,
    },
    /// There is not enough memory.
    #[error("could not allocate {bytes} bytes of memory for the filter to grow: free memory")]
    Allocation {
        /// Bytes asked for.
        bytes: u64,
    },
}

/// Describes why a chunk was not loaded. The filter is unchanged.
///
/// `BF.LOADCHUNK` and `CF.LOADCHUNK` have three errors each. Each is a variant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Bloom: an iterator that no chunk of this length can have.
    #[error(
        "a chunk of {length} bytes cannot have iterator {iterator}: pass both as SCANDUMP returned them"
    )]
    BadData {
        /// The iterator given.
        iterator: u64,
        /// Bytes in the chunk.
        length: u64,
    },
    /// Bloom: an iterator behind the last link.
    #[error(
        "iterator {iterator} is beyond the filter's {bytes} bytes: load the header of this dump first"
    )]
    NoLink {
        /// The iterator given.
        iterator: u64,
        /// Bytes in all links.
        bytes: u64,
    },
    /// Bloom: a chunk that reaches beyond its link.
    #[error(
        "the chunk has {length} bytes, and its link has room for {room}: load the header of this dump first"
    )]
    TooBig {
        /// Bytes in the chunk.
        length: u64,
        /// Bytes of the link from the chunk's place on.
        room: u64,
    },
    /// Cuckoo: a header of another length.
    #[error(
        "the header has {length} bytes, expected {expected}: pass the reply of SCANDUMP for position 0"
    )]
    BadHeader {
        /// Bytes in the header given.
        length: u64,
        /// Bytes in every header.
        expected: u64,
    },
    /// Cuckoo: a header that describes no filter, or one that there is no memory for.
    #[error(transparent)]
    CannotCreate(#[from] ForeignError),
    /// Cuckoo: an empty chunk, or one that is not within one sub-filter.
    #[error(
        "a chunk of {length} bytes at position {position} does not fit: pass both as SCANDUMP returned them"
    )]
    CannotLoad {
        /// The position given.
        position: u64,
        /// Bytes in the chunk.
        length: u64,
    },
}

impl ForeignError {
    /// The bytes are not what they should be.
    pub(super) fn damaged(
        what: &'static str,
        expected: impl Into<String>,
        got: impl ToString,
    ) -> ForeignError {
        ForeignError::Damaged { what, expected: expected.into(), got: got.to_string() }
    }
}

impl From<Short> for ForeignError {
    fn from(short: Short) -> ForeignError {
        match short {
            Short::Limit { needed, limit } => ForeignError::Limit { needed, limit },
            Short::TooLarge { bytes, most } => ForeignError::TooLarge { bytes, most },
            Short::System { bytes } => ForeignError::Memory { bytes },
        }
    }
}

impl From<Short> for Refused {
    fn from(short: Short) -> Refused {
        match short {
            Short::Limit { needed, limit } => Refused::Memory { needed, limit },
            Short::TooLarge { bytes, most } => Refused::TooLarge { bytes, most },
            Short::System { bytes } => Refused::Allocation { bytes },
        }
    }
}
