//! The protocol of Redis, from the server's side: requests are read, replies are written.
//!
//! # Requests
//!
//! A request is a list of byte strings, the first of which names the command. Programs send the
//! number of arguments behind a `*`, then each argument behind a `$` and its length:
//!
//! ```text
//!   *3\r\n $9\r\nBF.EXISTS\r\n $4\r\ncode\r\n $2\r\n42\r\n        (blanks only here, to be read)
//!   |      |   |               |              |
//!   |      |   9 bytes, any    |              third argument: 42
//!   |      length of the first second argument: code
//!   three arguments follow
//! ```
//!
//! People who type into `nc` or `telnet` send a line instead, divided at blanks, with quotes around
//! an argument that contains blanks: `BF.EXISTS code "forty two"`. Every request that does not
//! begin with `*` is such a line. There are no other requests. The protocol allows arrays within
//! arrays, but not in requests, so [`Parser`] needs no recursion, and untrusted input cannot
//! exhaust the stack.
//!
//! Requests may follow each other without waiting for replies (a pipeline), and arrive in pieces
//! of any size. The connection keeps the bytes; [`Parser`] keeps only where in them the arguments
//! are, and where it stopped.
//!
//! # Replies
//!
//! The first byte of a reply is its type. A connection begins in RESP2 with five types, and clients
//! must know their meaning for each command. `HELLO 3` changes to RESP3, which has more types:
//!
//! | [`Reply`] | RESP2 | RESP3 |
//! |---|---|---|
//! | `simple`, `ok` | `+OK` | the same |
//! | `error` | `-ERR what is wrong` | the same |
//! | `integer` | `:42` | the same |
//! | `bulk`, `text` | `$2` and two bytes | the same |
//! | `array` | `*2` and two replies | the same |
//! | `truth` | `:1` or `:0` | `#t` or `#f` |
//! | `null` | `$-1` | `_` |
//! | `null_array` | `*-1` | `_` |
//! | `double` | as `bulk` | `,0.01` |
//! | `map` of 2 pairs | `*4` and four replies | `%2` and four replies |
//! | `set`, `push` | as `array` | `~2`, `>2` and two replies |
//! | `verbatim` | as `bulk` | `=6`, `txt:` and two bytes |
//!
//! Sources: <https://redis.io/docs/latest/develop/reference/protocol-spec/>, and for what it leaves
//! open (inline quoting, limits, texts of errors, spelling of doubles) what Redis 7.2 does.

mod reply;
mod request;

pub use reply::{Allowance, Protocol, Reply};
pub use request::{Arguments, Iter, Limits, Parser, ProtocolError};
