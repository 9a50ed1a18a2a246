//! Why a command was refused: the text that the client reads.

use std::borrow::Cow;
use std::fmt::Display;

/// The whole text of an error reply, with its code (`ERR`, `WRONGTYPE`) where there is one: some of
/// RedisBloom's have none, and clients compare texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyError(Cow<'static, str>);

impl ReplyError {
    /// Returns a text that is always the same.
    pub const fn new(text: &'static str) -> ReplyError {
        ReplyError(Cow::Borrowed(text))
    }

    /// Returns a text with figures.
    pub fn with(text: String) -> ReplyError {
        ReplyError(Cow::Owned(text))
    }

    /// Returns an error of another module, as ours: with the code ERR.
    pub fn because(error: impl Display) -> ReplyError {
        ReplyError(Cow::Owned(format!("ERR {error}")))
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The key holds something else.
    pub const WRONG_TYPE: ReplyError =
        ReplyError::new("WRONGTYPE Operation against a key holding the wrong kind of value");
    /// No such key.
    pub const NOT_FOUND: ReplyError = ReplyError::new("ERR not found");
    /// There is such a key already.
    pub const EXISTS: ReplyError = ReplyError::new("ERR item exists");
    /// An option is misspelt, or in the wrong place.
    pub const SYNTAX: ReplyError = ReplyError::new("ERR syntax error");
    /// Not a number, or too large a one.
    pub const NOT_AN_INTEGER: ReplyError =
        ReplyError::new("ERR value is not an integer or out of range");

    /// Too many or too few arguments of a command, whose name is in lower case.
    pub fn arity(name: &str) -> ReplyError {
        ReplyError::with(format!("ERR wrong number of arguments for '{name}' command"))
    }
}

/// Returns the beginning of bytes from a client, as text for an error.
pub fn excerpt(bytes: &[u8], most: usize) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(most)]).into_owned()
}
