//! What can go wrong: with parameters and untrusted input, with an insert, with a chunk.

use super::memory::Short;

/// Why a filter was not made.
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
    /// Larger than the caller allows. Nothing was allocated.
    #[error(
        "the filter needs {needed} bytes, the limit is {limit}: raise the limit or take a smaller filter"
    )]
    Limit {
        /// Bytes needed. The largest number there is stands for more than can be counted.
        needed: u64,
        /// The limit given.
        limit: u64,
    },
    /// A sub-filter of a cuckoo filter that RedisBloom could not address.
    #[error(
        "a sub-filter of {bytes} bytes, but at most {most} can be addressed: take fewer items or a smaller expansion"
    )]
    TooLarge {
        /// Bytes of the sub-filter. The largest number stands for more than can be counted.
        bytes: u64,
        /// The most there can be: [`MAX_SUB_FILTER`](super::MAX_SUB_FILTER).
        most: u64,
    },
    /// The system did not give the memory.
    #[error("could not get {bytes} bytes of memory: take a smaller filter or free memory")]
    Memory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// Bytes that are no header or payload of RedisBloom, or that are damaged.
    #[error("{what}: expected {expected}, got {got}; dump the filter again from its server")]
    Damaged {
        /// The part of the dump.
        what: &'static str,
        /// What should be there.
        expected: String,
        /// What is there.
        got: String,
    },
    /// A value in an RDB file of a type that is not known, so that its end is not.
    #[error(
        "type {kind} in the RDB file{}: this inbloom does not know where such a value ends; upgrade inbloom, or dump the filter alone with BF.SCANDUMP, CF.SCANDUMP or DUMP",
        of_key(.key)
    )]
    UnknownType {
        /// The number of the type.
        kind: u8,
        /// The key of the value. Empty if it is no value.
        key: String,
    },
    /// A log that changes a filter by other commands than those that load it.
    #[error(
        "{command} in the log changes a filter, and only loading is read: rewrite the log with BGREWRITEAOF, or take an RDB file"
    )]
    Changed {
        /// The command.
        command: String,
    },
    /// A payload of a later RedisBloom.
    #[error(
        "payload of encoding {got}, this inbloom reads up to {supported}: upgrade inbloom, or copy the filter by SCANDUMP and LOADCHUNK"
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

/// Why an item was not added. The filter is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// There is no room, and the filter does not grow.
    #[error("the filter is full and does not grow: reserve a larger one, or one that grows")]
    Full,
    /// The next link's rate would be zero: halved some thousand times, it is no number any more.
    #[error("the filter cannot grow further, its rate has come down to zero: reserve a larger one")]
    Exhausted,
    /// To grow would take more than the caller allows.
    #[error("the filter needs {needed} bytes to grow, the limit is {limit}: raise the limit")]
    Memory {
        /// Bytes that the filter would take. The largest number stands for more than can be
        /// counted.
        needed: u64,
        /// The limit given.
        limit: u64,
    },
    /// To grow would take a sub-filter that RedisBloom could not address.
    #[error(
        "the next sub-filter would have {bytes} bytes, but at most {most} can be addressed: reserve a filter with a smaller expansion"
    )]
    TooLarge {
        /// Bytes of the sub-filter. The largest number stands for more than can be counted.
        bytes: u64,
        /// The most there can be: [`MAX_SUB_FILTER`](super::MAX_SUB_FILTER).
        most: u64,
    },
    /// The system did not give the memory.
    #[error("could not get {bytes} bytes of memory for the filter to grow: free memory")]
    Allocation {
        /// Bytes asked for.
        bytes: u64,
    },
}

/// Why a chunk was not taken. The filter is as it was.
///
/// `BF.LOADCHUNK` and `CF.LOADCHUNK` have three errors each; the variants are these.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Bloom: an iterator that no chunk of this length can have.
    #[error("a chunk of {length} bytes cannot have iterator {iterator}: give both as SCANDUMP did")]
    BadData {
        /// The iterator given.
        iterator: u64,
        /// Bytes in the chunk.
        length: u64,
    },
    /// Bloom: an iterator behind the last link.
    #[error(
        "iterator {iterator} is not within the filter's {bytes} bytes: load its own header first"
    )]
    NoLink {
        /// The iterator given.
        iterator: u64,
        /// Bytes in all links.
        bytes: u64,
    },
    /// Bloom: a chunk that reaches beyond its link.
    #[error("a chunk of {length} bytes where the link has {room} left: load its own header first")]
    TooBig {
        /// Bytes in the chunk.
        length: u64,
        /// Bytes of the link from the chunk's place on.
        room: u64,
    },
    /// Cuckoo: a header of another length.
    #[error("a header of {length} bytes, not {expected}: give what SCANDUMP gave for position 0")]
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
        "a chunk of {length} bytes at position {position} does not fit: give both as SCANDUMP did"
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
