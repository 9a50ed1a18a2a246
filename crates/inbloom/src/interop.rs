//! Filters of other programs, alive: their bytes, their hashes, their answers.
//!
//! A filter cannot be turned from one hash into another without its keys. So to take over another
//! program's filter is to answer, grow and write as that program does.

pub mod redisbloom;
