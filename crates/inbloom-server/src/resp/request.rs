//! Requests: from bytes as they arrive to the places of arguments in them.
//!
//! [`Parser`] is a state machine over a growing buffer. It remembers what it has understood, be it
//! half a number: no byte is looked at more than twice, even if they arrive one by one. An argument
//! costs 8 bytes of the parser's memory and no allocation of its own; its bytes stay where they
//! are. Memory grows with the bytes that have arrived (an argument takes at least six), never with
//! the numbers that announce more.
//!
//! It is stricter than Redis in four points. No client library sends such requests.
//!
//! - `\n` must follow the `\r` behind a number. Redis skips two bytes, whatever they are.
//! - `\r\n` must follow an argument. Redis skips two bytes here too.
//! - `*-1` is the only negative count.
//! - A wrong number is refused at its first wrong byte. Redis reads to the end of the line first.
//!
//! It is more lenient in one point: a zero byte in a line is a byte like any other. Redis drops the
//! rest of the line.
//!
//! Cost: 18 ns for each of 1,000 pipelined `BF.EXISTS` with a key of 20 bytes, 28 ns with one of
//! 120; 5.5 ns for each of 1,000 keys of a `BF.MADD` (2026-11-16, a virtual machine of two cores).

use std::fmt;
use std::iter::FusedIterator;
use std::ops::Index;
use std::slice;

use memchr::memchr;

/// How much one request may take. What exceeds it is refused when it is announced, before it
/// arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Arguments of a request, its command included. Lines are bounded by their bytes alone.
    pub arguments: usize,
    /// Bytes of one argument.
    pub argument_bytes: usize,
    /// Bytes of a whole request, numbers and line ends included. At most 4 GiB - 1, also where more
    /// is given.
    pub request_bytes: usize,
    /// Bytes of a request that is a line, without its line end.
    pub inline_bytes: usize,
}

impl Limits {
    /// For clients of which nothing is known yet: enough for `AUTH` and `HELLO`, and little enough
    /// that ten thousand clients do not fill the memory. Under exactly these limits, refusals say
    /// `unauthenticated`, as those of Redis do, so that the reader knows the remedy.
    pub const fn before_auth() -> Limits {
        Limits {
            arguments: 10,
            argument_bytes: 16 << 10,
            request_bytes: 64 << 10,
            inline_bytes: 16 << 10,
        }
    }
}

impl Default for Limits {
    /// 1,048,576 arguments of up to 64 MiB, 256 MiB a request, 64 KiB a line.
    fn default() -> Limits {
        Limits {
            arguments: 1 << 20,
            argument_bytes: 64 << 20,
            request_bytes: 256 << 20,
            inline_bytes: 64 << 10,
        }
    }
}

/// Why a client cannot be understood, or not be served. The text is what Redis sends behind
/// `-ERR Protocol error: `, so that clients that compare it find it. Where the next request begins
/// is unknown after it: the connection replies this, and closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Behind `*` stands no number, or none that Redis would write.
    #[error("invalid multibulk length")]
    Count,
    /// Behind `*` stand more digits than any count has.
    #[error("too big mbulk count string")]
    CountDigits,
    /// More arguments than a request may have.
    #[error("invalid multibulk length: {got} arguments, the limit is {limit}")]
    Arguments {
        /// Arguments announced.
        got: u64,
        /// [`Limits::arguments`].
        limit: usize,
    },
    /// More arguments than a request may have before the client has said who it is.
    #[error("unauthenticated multibulk length: {got} arguments, the limit before AUTH is {limit}")]
    UnauthenticatedArguments {
        /// Arguments announced.
        got: u64,
        /// [`Limits::arguments`].
        limit: usize,
    },
    /// An argument begins with something else than `$`.
    #[error("expected '$', got '{}'", Shown(*got))]
    Dollar {
        /// The byte in its place.
        got: u8,
    },
    /// Behind `$` stands no number, or none that Redis would write.
    #[error("invalid bulk length")]
    Length,
    /// Behind `$` stand more digits than any length has.
    #[error("too big bulk count string")]
    LengthDigits,
    /// An argument is longer than one may be.
    #[error("invalid bulk length: {got} bytes, the limit of --max-argument is {limit}")]
    ArgumentBytes {
        /// Bytes announced.
        got: u64,
        /// [`Limits::argument_bytes`].
        limit: usize,
    },
    /// An argument is longer than one may be before the client has said who it is.
    #[error("unauthenticated bulk length: {got} bytes, the limit before AUTH is {limit}")]
    UnauthenticatedArgumentBytes {
        /// Bytes announced.
        got: u64,
        /// [`Limits::argument_bytes`].
        limit: usize,
    },
    /// With an argument, a request is longer than one may be.
    #[error(
        "invalid bulk length: the request takes {got} bytes or more, the limit of --max-request is \
         {limit}"
    )]
    RequestBytes {
        /// Bytes up to the end of the argument announced.
        got: u64,
        /// [`Limits::request_bytes`].
        limit: usize,
    },
    /// With an argument, a request is longer than one may be before the client has said who it is.
    #[error(
        "unauthenticated bulk length: the request takes {got} bytes or more, the limit before AUTH is {limit}"
    )]
    UnauthenticatedRequestBytes {
        /// Bytes up to the end of the argument announced.
        got: u64,
        /// [`Limits::request_bytes`].
        limit: usize,
    },
    /// An argument is longer or shorter than announced.
    #[error("expected CRLF after an argument")]
    ArgumentEnd,
    /// A line is longer than one may be.
    #[error("too big inline request: no end of line within {limit} bytes")]
    InlineBytes {
        /// [`Limits::inline_bytes`].
        limit: usize,
    },
    /// In a line, a quote is not closed, or more than a blank follows where it is.
    #[error("unbalanced quotes in request")]
    Quotes,
}

/// A byte of untrusted input in a message: as it is where that can be printed, else as `\xHH`.
struct Shown(u8);

impl fmt::Display for Shown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            byte @ b' '..=b'~' => write!(formatter, "{}", char::from(byte)),
            byte => write!(formatter, "{}", byte.escape_ascii()),
        }
    }
}

/// Finds the requests in what a client sends, however it is cut into pieces.
///
/// ```
/// use inbloom_server::resp::{Limits, Parser};
///
/// let mut parser = Parser::new(Limits::default());
/// let mut buffer = b"*2\r\n$7\r\nBF.CARD\r\n$4\r\nco".to_vec();
/// assert_eq!(parser.next(&buffer), Ok(None)); // more is to come
///
/// buffer.extend_from_slice(b"de\r\nPING\r\n");
/// assert_eq!(parser.next(&buffer), Ok(Some(27)));
/// let arguments = parser.arguments(&buffer);
/// assert_eq!((&arguments[0], &arguments[1]), (&b"BF.CARD"[..], &b"code"[..]));
///
/// buffer.drain(..27);
/// assert_eq!(parser.next(&buffer), Ok(Some(6)));
/// assert_eq!(&parser.arguments(&buffer)[0], b"PING");
/// ```
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    stage: Stage,
    /// The bytes before this one are understood.
    position: usize,
    /// Arguments of the request that are still to come.
    missing: usize,
    /// The arguments found: where they are in the buffer, or in `unquoted` if that is not empty.
    spans: Vec<Span>,
    /// The arguments of a line, one after the other, with quotes and escapes resolved.
    unquoted: Vec<u8>,
}

/// What the byte at `position` is.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The first of a request.
    Start,
    /// One of a request that is a line, whose end is not among the bytes before.
    Line,
    /// One of the number behind `*`.
    Count(Number),
    /// The `$` of an argument, if any argument is missing.
    Dollar,
    /// One of the number behind `$`.
    Length(Number),
    /// The first of an argument of `length` bytes.
    Argument { length: usize },
    /// None of ours any more.
    Refused(ProtocolError),
}

/// Where an argument is. Requests are shorter than 4 GiB, so that eight bytes suffice.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The caller knows that both are below [`Limits::request_bytes`], which fits.
    fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }
}

/// Arguments for which room is kept from one request to the next: 64 KiB of it. A client that once
/// sent a million does not hold the 8 MiB forever; one that sends 100,000 each time pays 5 ns an
/// argument for growing anew (measured: 16 ns instead of 11).
const SPANS_KEPT: usize = 8192;

impl Parser {
    /// Returns a parser for a new connection.
    pub fn new(limits: Limits) -> Parser {
        let mut parser = Parser {
            limits,
            stage: Stage::Start,
            position: 0,
            missing: 0,
            spans: Vec::new(),
            unquoted: Vec::new(),
        };
        parser.set_limits(limits);
        parser
    }

    /// Changes the limits, for whatever is announced from here on.
    pub fn set_limits(&mut self, limits: Limits) {
        let request_bytes = limits.request_bytes.min(u32::MAX as usize);
        self.limits = Limits { request_bytes, ..limits };
    }

    /// Reads on. `buffer` starts with the current request; between calls it may only have grown at
    /// its end.
    ///
    /// `Ok(Some(n))`: a request is complete and takes the first n bytes; [`arguments`] gives its
    /// arguments until the next call, which expects a buffer that starts behind it. An empty
    /// request (a blank line, `*0`, `*-1`) is complete with no arguments; Redis does not answer
    /// those. `Ok(None)`: more bytes are needed. A connection that reads until then holds little
    /// memory while it waits, whatever it has served.
    ///
    /// # Errors
    ///
    /// Bytes that are no request, or one beyond the limits. Every later call gives the same error.
    ///
    /// [`arguments`]: Parser::arguments
    #[inline]
    pub fn next(&mut self, buffer: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let read = self.read(buffer);
        if let Err(error) = read {
            self.stage = Stage::Refused(error);
        }
        read
    }

    /// Returns the arguments of the request that the last call of [`next`](Parser::next) found
    /// complete, in the buffer that was given to it.
    #[inline]
    pub fn arguments<'a>(&'a self, buffer: &'a [u8]) -> Arguments<'a> {
        let bytes = if self.unquoted.is_empty() { buffer } else { &self.unquoted };
        Arguments { bytes, spans: &self.spans }
    }

    /// Returns the bytes of memory that are reserved here, beyond the buffer.
    pub fn memory(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.unquoted.capacity()
    }

    fn read(&mut self, buffer: &[u8]) -> Result<Option<usize>, ProtocolError> {
        loop {
            match self.stage {
                Stage::Start => {
                    // First of all, so that asking an empty buffer gives memory back.
                    self.clear();
                    let Some(&first) = buffer.first() else { return Ok(None) };
                    if let [b'*', count @ b'1'..=b'9', b'\r', b'\n', ..] = *buffer {
                        // Nothing but speed: the next branch would come to the same, in 5 ns more.
                        self.position = 4;
                        self.missing = self.check_count(i64::from(count - b'0'))?;
                        self.stage = Stage::Dollar;
                    } else if first == b'*' {
                        self.position = 1;
                        self.stage = Stage::Count(Number::default());
                    } else {
                        self.stage = Stage::Line;
                    }
                }
                Stage::Line => return self.read_line(buffer),
                Stage::Count(mut number) => {
                    let count = number.read(buffer, &mut self.position);
                    match count.map_err(NumberError::of_count)? {
                        None => {
                            self.stage = Stage::Count(number);
                            return Ok(None);
                        }
                        Some(count) => self.missing = self.check_count(count)?,
                    }
                    self.stage = Stage::Dollar;
                }
                Stage::Dollar => {
                    self.read_short_arguments(buffer);
                    if self.missing == 0 {
                        self.stage = Stage::Start;
                        return Ok(Some(self.position));
                    }
                    match buffer.get(self.position) {
                        None => return Ok(None),
                        Some(b'$') => self.position += 1,
                        Some(&got) => return Err(ProtocolError::Dollar { got }),
                    }
                    self.stage = Stage::Length(Number::default());
                }
                Stage::Length(mut number) => {
                    let length = number.read(buffer, &mut self.position);
                    match length.map_err(NumberError::of_length)? {
                        None => {
                            self.stage = Stage::Length(number);
                            return Ok(None);
                        }
                        Some(length) => {
                            let length = self.check_length(length)?;
                            self.stage = Stage::Argument { length };
                        }
                    }
                }
                Stage::Argument { length } => {
                    let end = self.position + length;
                    match buffer.get(end..end + 2) {
                        None => return Ok(None),
                        Some(b"\r\n") => {}
                        Some(_) => return Err(ProtocolError::ArgumentEnd),
                    }
                    self.spans.push(Span::new(self.position, end));
                    self.position = end + 2;
                    self.missing -= 1;
                    self.stage = Stage::Dollar;
                }
                Stage::Refused(error) => return Err(error),
            }
        }
    }

    /// Forgets the last request.
    fn clear(&mut self) {
        self.position = 0;
        self.spans.clear();
        self.unquoted.clear();
        if self.spans.capacity() > SPANS_KEPT {
            self.spans.shrink_to(SPANS_KEPT);
        }
    }

    fn check_count(&self, count: i64) -> Result<usize, ProtocolError> {
        let limit = self.limits.arguments;
        match count {
            -1 => Ok(0),
            ..0 => Err(ProtocolError::Count),
            0.. => {
                let got = count.unsigned_abs();
                match usize::try_from(got) {
                    Ok(count) if count <= limit => Ok(count),
                    _ if self.is_before_auth() => {
                        Err(ProtocolError::UnauthenticatedArguments { got, limit })
                    }
                    _ => Err(ProtocolError::Arguments { got, limit }),
                }
            }
        }
    }

    /// Checks that an argument of this length, which begins at `position`, may follow.
    fn check_length(&self, length: i64) -> Result<usize, ProtocolError> {
        let got = u64::try_from(length).map_err(|_| ProtocolError::Length)?;
        let limit = self.limits.argument_bytes;
        let length = match usize::try_from(got) {
            Ok(length) if length <= limit => length,
            _ if self.is_before_auth() => {
                return Err(ProtocolError::UnauthenticatedArgumentBytes { got, limit });
            }
            _ => return Err(ProtocolError::ArgumentBytes { got, limit }),
        };
        // Numbers have at most 18 digits, so that nothing overflows here.
        let got = self.position as u64 + got + 2;
        let limit = self.limits.request_bytes;
        match got <= limit as u64 {
            true => Ok(length),
            false if self.is_before_auth() => {
                Err(ProtocolError::UnauthenticatedRequestBytes { got, limit })
            }
            false => Err(ProtocolError::RequestBytes { got, limit }),
        }
    }

    fn is_before_auth(&self) -> bool {
        self.limits == Limits::before_auth()
    }

    /// The fast way through the arguments that are there as a whole and shorter than 100 bytes,
    /// which are nearly all: 5 ns each instead of 22. It leaves the others, and whatever is wrong,
    /// to the stages of `read`.
    #[inline]
    fn read_short_arguments(&mut self, buffer: &[u8]) {
        while self.missing > 0 {
            let (length, start) = match buffer[self.position..] {
                [b'$', one @ b'0'..=b'9', b'\r', b'\n', ..] => {
                    (usize::from(one - b'0'), self.position + 4)
                }
                [b'$', ten @ b'1'..=b'9', one @ b'0'..=b'9', b'\r', b'\n', ..] => {
                    (usize::from(ten - b'0') * 10 + usize::from(one - b'0'), self.position + 5)
                }
                _ => return,
            };
            let end = start + length;
            if buffer.get(end..end + 2) != Some(b"\r\n")
                || length > self.limits.argument_bytes
                || end + 2 > self.limits.request_bytes
            {
                return;
            }
            self.spans.push(Span::new(start, end));
            self.position = end + 2;
            self.missing -= 1;
        }
    }

    /// Looks for the end of the line, and divides the line if it is there.
    fn read_line(&mut self, buffer: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let limit = self.limits.inline_bytes.min(self.limits.request_bytes);
        let searched = buffer.len().min(limit.saturating_add(1));
        // The limits may have been lowered below what was searched before.
        let new = buffer.get(self.position..searched).unwrap_or_default();
        let Some(end) = memchr(b'\n', new).map(|offset| self.position + offset) else {
            self.position = self.position.max(searched);
            return match buffer.len() > limit {
                true => Err(ProtocolError::InlineBytes { limit }),
                false => Ok(None),
            };
        };
        let line = &buffer[..end];
        self.divide(line.strip_suffix(b"\r").unwrap_or(line))?;
        self.stage = Stage::Start;
        Ok(Some(end + 1))
    }

    /// Divides a line at its blanks, and resolves quotes and escapes:
    ///
    /// ```text
    ///   "..."   may contain blanks; \n \r \t \b \a are what they are in C, \xHH is the byte HH,
    ///           a backslash before any other byte stands for that byte
    ///   '...'   may contain blanks; \' is a quote, and that is all
    /// ```
    ///
    /// A quote may open within an argument (`a"b c"` is one), and must be the argument's end.
    fn divide(&mut self, line: &[u8]) -> Result<(), ProtocolError> {
        let mut rest = line;
        loop {
            // All that C calls space separates arguments, but within one only these four end it.
            while let [b' ' | b'\t'..=b'\r', tail @ ..] = rest {
                rest = tail;
            }
            if rest.is_empty() {
                return Ok(());
            }
            let start = self.unquoted.len();
            loop {
                match rest {
                    [] | [b' ' | b'\n' | b'\r' | b'\t', ..] => break,
                    [b'"', tail @ ..] => {
                        rest = unquote_double(tail, &mut self.unquoted)?;
                        break;
                    }
                    [b'\'', tail @ ..] => {
                        rest = unquote_single(tail, &mut self.unquoted)?;
                        break;
                    }
                    [byte, tail @ ..] => {
                        self.unquoted.push(*byte);
                        rest = tail;
                    }
                }
            }
            self.spans.push(Span::new(start, self.unquoted.len()));
        }
    }
}

/// Appends what stands before the closing quote, and returns what stands behind it.
fn unquote_double<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [b'"', tail @ ..] => return check_quote_end(tail),
            [b'\\', b'x', high, low, tail @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                out.push(hex_digit(*high) << 4 | hex_digit(*low));
                tail
            }
            [b'\\', escaped, tail @ ..] => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                tail
            }
            [byte, tail @ ..] => {
                out.push(*byte);
                tail
            }
            [] => return Err(ProtocolError::Quotes),
        }
    }
}

/// Appends what stands before the closing quote, and returns what stands behind it.
fn unquote_single<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [b'\'', tail @ ..] => return check_quote_end(tail),
            [b'\\', b'\'', tail @ ..] => {
                out.push(b'\'');
                tail
            }
            [byte, tail @ ..] => {
                out.push(*byte);
                tail
            }
            [] => return Err(ProtocolError::Quotes),
        }
    }
}

/// Behind a closing quote, the line ends or a blank follows.
fn check_quote_end(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest {
        [] | [b' ' | b'\t'..=b'\r', ..] => Ok(rest),
        _ => Err(ProtocolError::Quotes),
    }
}

/// Returns the value of a digit that is known to be one.
fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// A number and its line end, as far as they have arrived. Only the one spelling that Redis itself
/// would write is taken: no blanks, no `+`, no zeros in front.
#[derive(Clone, Copy, Debug, Default)]
struct Number {
    value: i64,
    digits: u8,
    negative: bool,
    /// `\r` has been read.
    ended: bool,
}

/// What is wrong with a number.
enum NumberError {
    Spelling,
    Digits,
}

impl NumberError {
    fn of_count(self) -> ProtocolError {
        match self {
            NumberError::Spelling => ProtocolError::Count,
            NumberError::Digits => ProtocolError::CountDigits,
        }
    }

    fn of_length(self) -> ProtocolError {
        match self {
            NumberError::Spelling => ProtocolError::Length,
            NumberError::Digits => ProtocolError::LengthDigits,
        }
    }
}

impl Number {
    /// As many digits as never overflow, and far more than any limit has.
    const MAX_DIGITS: u8 = 18;

    /// Reads on from `position`, which moves past what was read. `None`: the line has not ended.
    fn read(&mut self, buffer: &[u8], position: &mut usize) -> Result<Option<i64>, NumberError> {
        for &byte in &buffer[*position..] {
            *position += 1;
            match byte {
                b'\n' if self.ended => {
                    return Ok(Some(if self.negative { -self.value } else { self.value }));
                }
                _ if self.ended => return Err(NumberError::Spelling),
                b'0'..=b'9' => {
                    if self.digits > 0 && self.value == 0 {
                        return Err(NumberError::Spelling);
                    }
                    if self.digits == Number::MAX_DIGITS {
                        return Err(NumberError::Digits);
                    }
                    self.value = self.value * 10 + i64::from(byte - b'0');
                    self.digits += 1;
                }
                b'-' if self.digits == 0 && !self.negative => self.negative = true,
                b'\r' if self.digits > 0 && (self.value > 0 || !self.negative) => self.ended = true,
                _ => return Err(NumberError::Spelling),
            }
        }
        Ok(None)
    }
}

/// The arguments of a request, the command's name among them: byte strings in the order sent.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Arguments<'a> {
    /// Returns how many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// One of them, counted from 0.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| slice_of(self.bytes, *span))
    }

    /// All of them in order.
    #[inline]
    pub fn iter(&self) -> Iter<'a> {
        Iter { bytes: self.bytes, spans: self.spans.iter() }
    }

    /// Those behind the first `count`; none if there are no more than that.
    #[inline]
    pub fn skip(&self, count: usize) -> Arguments<'a> {
        Arguments { bytes: self.bytes, spans: self.spans.get(count..).unwrap_or_default() }
    }
}

#[inline]
fn slice_of(bytes: &[u8], span: Span) -> &[u8] {
    &bytes[span.start as usize..span.end as usize]
}

impl Index<usize> for Arguments<'_> {
    type Output = [u8];

    /// # Panics
    ///
    /// If there are not so many arguments.
    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        slice_of(self.bytes, self.spans[index])
    }
}

impl<'a> IntoIterator for Arguments<'a> {
    type Item = &'a [u8];
    type IntoIter = Iter<'a>;

    #[inline]
    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Arguments<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.iter().map(|argument| argument.escape_ascii().to_string());
        formatter.debug_list().entries(shown).finish()
    }
}

/// The arguments of a request, one after the other.
#[derive(Clone)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    spans: slice::Iter<'a, Span>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.spans.next().map(|span| slice_of(self.bytes, *span))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.spans.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.spans.next_back().map(|span| slice_of(self.bytes, *span))
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl FusedIterator for Iter<'_> {}

#[cfg(test)]
mod tests;
