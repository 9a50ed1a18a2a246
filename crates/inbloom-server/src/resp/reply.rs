//! Replies: values written behind each other into one buffer, in the protocol of the connection.
//!
//! A reply is written while it is computed, so an array's length comes first and its elements
//! follow. Where something goes wrong in between, [`Reply::mark`] and [`Reply::truncate`] take the
//! half-written part back.

use memchr::memchr2;

/// The version of the protocol that a connection speaks. It begins with RESP2; `HELLO 3` changes
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Five types: lines, errors, integers, byte strings, arrays.
    Resp2,
    /// Also truth values, nulls, doubles, maps, sets and pushes.
    Resp3,
}

/// What may stand around the bytes of a string: its type, its length, its format, line ends.
const MOST_FRAMING: usize = 32;
/// The bytes of the shortest value that a reply consists of: `:1` or `#t`, and the end of the line.
const SHORTEST: usize = 4;

/// Decides how much a reply may grow.
pub trait Allowance: std::fmt::Debug {
    /// Makes room for more bytes of the reply. False: the client may not hold them, and nothing that
    /// is longer than the room there is may be written.
    fn grow(&mut self, out: &mut Vec<u8>, more: usize) -> bool;

    /// Enters that the client holds so many bytes beside the reply from now on.
    fn set_others(&mut self, others: u64);
}

/// Appends replies to the bytes that the connection will send.
///
/// ```
/// use inbloom_server::resp::{Protocol, Reply};
///
/// let mut out = Vec::new();
/// let mut reply = Reply::new(&mut out, Protocol::Resp3);
/// reply.array(2);
/// reply.truth(true);
/// reply.text("seen");
/// assert_eq!(out, b"*2\r\n#t\r\n$4\r\nseen\r\n");
/// ```
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
    allowance: Option<&'a mut (dyn Allowance + 'a)>,
}

impl<'a> Reply<'a> {
    /// Replies that go behind what is in `out`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Reply<'a> {
        Reply { out, protocol, allowance: None }
    }

    /// Returns the same, as long as the client may hold them.
    pub fn within(
        out: &'a mut Vec<u8>,
        protocol: Protocol,
        allowance: &'a mut (dyn Allowance + 'a),
    ) -> Reply<'a> {
        Reply { out, protocol, allowance: Some(allowance) }
    }

    /// Enters that the client holds so many bytes beside the reply from now on.
    pub fn set_others(&mut self, others: u64) {
        if let Some(allowance) = &mut self.allowance {
            allowance.set_others(others);
        }
    }

    /// Returns the protocol that is written.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Changes the protocol, from the next value on.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Returns where the next value will begin, for [`truncate`](Reply::truncate).
    #[inline]
    pub fn mark(&self) -> usize {
        self.out.len()
    }

    /// Takes back what was written since the mark.
    pub fn truncate(&mut self, mark: usize) {
        self.out.truncate(mark);
    }

    /// Returns where replies go, for a reply that is made of those of other commands.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// `OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.put(b"+OK\r\n");
    }

    /// A line of text. CR and LF in it become blanks.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// An error: the whole text, its code (`ERR`, `WRONGTYPE`) included. CR and LF in it become
    /// blanks, so that what a client sent can be repeated in it.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text);
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.number(b':', value);
    }

    /// Yes or no: 1 or 0 in RESP2.
    #[inline]
    pub fn truth(&mut self, value: bool) {
        self.put(spell_truth(self.protocol, value));
    }

    /// Yes or no, as often as there are answers.
    #[inline]
    pub fn truths(&mut self, values: &[bool]) {
        if self.reserve(values.len() * SHORTEST) {
            let protocol = self.protocol;
            values
                .iter()
                .for_each(|value| self.out.extend_from_slice(spell_truth(protocol, *value)));
        }
    }

    /// A byte string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        if !self.reserve(bytes.len() + MOST_FRAMING) {
            return;
        }
        self.length(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A byte string that is text.
    #[inline]
    pub fn text(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    /// Nothing, where a byte string or a number could have been.
    pub fn null(&mut self) {
        self.put(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Nothing, where an array could have been.
    pub fn null_array(&mut self) {
        self.put(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// An array; its elements are the next `count` values.
    #[inline]
    pub fn array(&mut self, count: usize) {
        if self.reserve(count.saturating_mul(SHORTEST) + MOST_FRAMING) {
            self.length(b'*', count);
        }
    }

    /// Returns an array of as many elements as `write` writes and counts: it need not know before.
    pub fn array_of(&mut self, write: impl FnOnce(&mut Reply<'a>) -> usize) {
        let mark = self.mark();
        let count = write(self);
        self.put_before(mark, |reply| reply.length(b'*', count));
    }

    /// Puts what `write` writes before what was written since a mark.
    pub fn put_before(&mut self, mark: usize, write: impl FnOnce(&mut Reply<'a>)) {
        let end = self.mark();
        write(self);
        let length = self.mark() - end;
        self.out[mark..].rotate_right(length);
    }

    /// A map; a key and its value follow, `pairs` times. An array of both in RESP2.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', 2 * pairs),
            Protocol::Resp3 => self.length(b'%', pairs),
        }
    }

    /// A set; its elements are the next `count` values. An array in RESP2.
    pub fn set(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', count),
            Protocol::Resp3 => self.length(b'~', count),
        }
    }

    /// A message that no request asked for; its parts are the next `count` values. An array in
    /// RESP2.
    pub fn push(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', count),
            Protocol::Resp3 => self.length(b'>', count),
        }
    }

    /// A number with fractions: the fewest digits that are read back as the same value, `inf`,
    /// `-inf` or `nan`. A byte string in RESP2.
    pub fn double(&mut self, value: f64) {
        let text = spell(value);
        match self.protocol {
            Protocol::Resp2 => self.text(&text),
            Protocol::Resp3 => self.line(b',', &text),
        }
    }

    /// Text that is meant to be shown as it is, in a format of three letters: `txt`, or `mkd` for
    /// Markdown. A byte string in RESP2.
    ///
    /// # Panics
    ///
    /// If the format has not three bytes.
    pub fn verbatim(&mut self, format: &str, text: &str) {
        assert_eq!(format.len(), 3, "the format of a verbatim string has three letters");
        match self.protocol {
            Protocol::Resp2 => self.text(text),
            Protocol::Resp3 => {
                if !self.reserve(text.len() + MOST_FRAMING) {
                    return;
                }
                self.length(b'=', format.len() + 1 + text.len());
                self.out.extend_from_slice(format.as_bytes());
                self.out.push(b':');
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Returns whether so many more bytes may be written.
    #[inline]
    fn reserve(&mut self, more: usize) -> bool {
        self.out.capacity() - self.out.len() >= more || self.grow(more)
    }

    #[cold]
    fn grow(&mut self, more: usize) -> bool {
        match &mut self.allowance {
            Some(allowance) => allowance.grow(self.out, more),
            None => {
                self.out.reserve(more);
                true
            }
        }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        if self.reserve(bytes.len()) {
            self.out.extend_from_slice(bytes);
        }
    }

    fn line(&mut self, first: u8, text: &str) {
        if !self.reserve(text.len() + MOST_FRAMING) {
            return;
        }
        self.out.push(first);
        let mut rest = text.as_bytes();
        while let Some(end) = memchr2(b'\r', b'\n', rest) {
            self.out.extend_from_slice(&rest[..end]);
            self.out.push(b' ');
            rest = &rest[end + 1..];
        }
        self.out.extend_from_slice(rest);
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn length(&mut self, first: u8, length: usize) {
        self.number(first, i64::try_from(length).expect("no object has more than 2^63 - 1 bytes"));
    }

    #[inline]
    fn number(&mut self, first: u8, value: i64) {
        match value {
            // One write of four bytes for what nearly all integers and lengths are.
            0..=9 => self.put(&[first, b'0' + value as u8, b'\r', b'\n']),
            _ => self.long_number(first, value),
        }
    }

    fn long_number(&mut self, first: u8, value: i64) {
        // From the end: CR LF, up to 19 digits, a sign, the first byte.
        let mut line = *b"......................\r\n";
        let mut start = line.len() - 2;
        let mut rest = value.unsigned_abs();
        loop {
            start -= 1;
            line[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            start -= 1;
            line[start] = b'-';
        }
        start -= 1;
        line[start] = first;
        self.put(&line[start..]);
    }
}

#[inline]
fn spell_truth(protocol: Protocol, value: bool) -> &'static [u8; SHORTEST] {
    match (protocol, value) {
        (Protocol::Resp2, true) => b":1\r\n",
        (Protocol::Resp2, false) => b":0\r\n",
        (Protocol::Resp3, true) => b"#t\r\n",
        (Protocol::Resp3, false) => b"#f\r\n",
    }
}

/// Returns a double as Redis 7.2 spells it: integers up to 2^62 by all their digits, others by the
/// fewest digits that read back as the same value; plainly where that is not much longer than with
/// an exponent, which always has a sign: `0.01`, `12.5`, `1e-10`, `1e+100`.
fn spell(value: f64) -> String {
    const LARGEST_INTEGER: f64 = (1u64 << 62) as f64;
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() || value == 0.0 {
        return value.to_string(); // inf, -inf, 0, -0
    }
    if value.fract() == 0.0 && value.abs() <= LARGEST_INTEGER {
        return (value as i64).to_string();
    }
    // Rust finds the digits: value = d.ddd * 10^exponent.
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("{:e} writes an exponent");
    let exponent: i32 = exponent.parse().expect("{:e} writes an integer behind the e");
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count() as i32;
    // Without a point, the digits are an integer: value = dddd * 10^shift.
    let shift = exponent - (digits - 1);
    let plain = if shift >= 0 { shift < 8 } else { shift > -7 || exponent.abs() < 4 };
    if plain { value.to_string() } else { format!("{mantissa}e{exponent:+}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what a reply is in RESP2 and in RESP3.
    fn both(write: impl Fn(&mut Reply<'_>)) -> (String, String) {
        let spoken = |protocol| {
            let mut out = Vec::new();
            write(&mut Reply::new(&mut out, protocol));
            String::from_utf8(out).expect("the tests write text only")
        };
        (spoken(Protocol::Resp2), spoken(Protocol::Resp3))
    }

    #[track_caller]
    fn expect(write: impl Fn(&mut Reply<'_>), resp2: &str, resp3: &str) {
        assert_eq!(both(write), (resp2.to_owned(), resp3.to_owned()));
    }

    #[test]
    fn values_of_both_protocols_are_written_alike() {
        expect(|reply| reply.ok(), "+OK\r\n", "+OK\r\n");
        expect(|reply| reply.simple("PONG"), "+PONG\r\n", "+PONG\r\n");
        expect(|reply| reply.error("ERR no"), "-ERR no\r\n", "-ERR no\r\n");
        expect(|reply| reply.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n");
        expect(|reply| reply.bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n");
        expect(|reply| reply.text("code"), "$4\r\ncode\r\n", "$4\r\ncode\r\n");
        expect(|reply| reply.array(0), "*0\r\n", "*0\r\n");
        expect(|reply| reply.array(1_048_576), "*1048576\r\n", "*1048576\r\n");
    }

    #[test]
    fn values_of_resp3_become_the_nearest_of_resp2() {
        expect(|reply| reply.truth(true), ":1\r\n", "#t\r\n");
        expect(|reply| reply.truth(false), ":0\r\n", "#f\r\n");
        expect(|reply| reply.null(), "$-1\r\n", "_\r\n");
        expect(|reply| reply.null_array(), "*-1\r\n", "_\r\n");
        expect(|reply| reply.map(7), "*14\r\n", "%7\r\n");
        expect(|reply| reply.set(12), "*12\r\n", "~12\r\n");
        expect(|reply| reply.push(3), "*3\r\n", ">3\r\n");
        expect(|reply| reply.double(0.01), "$4\r\n0.01\r\n", ",0.01\r\n");
        expect(|reply| reply.double(f64::INFINITY), "$3\r\ninf\r\n", ",inf\r\n");
        expect(|reply| reply.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n");
        expect(|reply| reply.double(-f64::NAN), "$3\r\nnan\r\n", ",nan\r\n");
        expect(|reply| reply.verbatim("txt", "a b"), "$3\r\na b\r\n", "=7\r\ntxt:a b\r\n");
    }

    #[test]
    fn integers_have_their_digits() {
        let cases = [0, 1, 9, 10, 99, 100, 12_345, i64::MAX, -1, -9, -10, i64::MIN];
        for value in cases {
            let line = format!(":{value}\r\n");
            expect(|reply| reply.integer(value), &line, &line);
        }
    }

    #[test]
    fn a_line_stays_one_line() {
        let attack = "ERR unknown command 'a\r\n+OK\r\n\n\r'";
        let line = "-ERR unknown command 'a  +OK    '\r\n";
        expect(|reply| reply.error(attack), line, line);
        expect(|reply| reply.simple("\n"), "+ \r\n", "+ \r\n");
    }

    /// Worked out by hand from the rules of Redis 7.2 (its `d2string`).
    #[test]
    fn doubles_are_spelt_as_redis_spells_them() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-3.0, "-3"),
            (0.1, "0.1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (-1234.5678, "-1234.5678"),
            (0.000001, "0.000001"),
            (0.0000001, "1e-7"),
            (-1.5e-10, "-1.5e-10"),
            (0.00012345678, "1.2345678e-4"),
            (0.0012345678, "0.0012345678"),
            (1234.56789012, "1234.56789012"),
            (12345.6789012, "1.23456789012e+4"),
            (12345.678901, "12345.678901"),
            (1e15, "1000000000000000"),
            (4_611_686_018_427_387_904.0, "4611686018427387904"), // 2^62
            (1_152_921_504_606_846_976.0, "1152921504606846976"), // 2^60
            (9_223_372_036_854_775_808.0, "9223372036854776000"), // 2^63
            (1e19, "1e+19"),
            (1e100, "1e+100"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
        ];
        for (value, text) in cases {
            assert_eq!(spell(value), text);
            assert_eq!(text.parse::<f64>().map(f64::to_bits), Ok(value.to_bits()), "{text}");
        }
    }

    #[test]
    fn a_half_written_reply_can_be_taken_back() {
        let mut out = b"+OK\r\n".to_vec();
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        let mark = reply.mark();
        reply.array(2);
        reply.integer(1);
        reply.truncate(mark);
        reply.error("ERR out of memory");
        assert_eq!(out, b"+OK\r\n-ERR out of memory\r\n");
    }

    #[test]
    fn the_length_of_an_array_may_be_known_last() {
        let write = |reply: &mut Reply<'_>| {
            reply.ok();
            let mark = reply.mark();
            reply.array_of(|reply| {
                (0..3).for_each(|at| reply.integer(at));
                3
            });
            reply.put_before(mark, |reply| {
                reply.array(2);
                reply.text("17");
            });
            reply.ok();
        };
        let text = "+OK\r\n*2\r\n$2\r\n17\r\n*3\r\n:0\r\n:1\r\n:2\r\n+OK\r\n";
        expect(write, text, text);
    }

    #[test]
    fn a_connection_changes_its_protocol_between_values() {
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        reply.null();
        reply.set_protocol(Protocol::Resp3);
        assert_eq!(reply.protocol(), Protocol::Resp3);
        reply.null();
        assert_eq!(out, b"$-1\r\n_\r\n");
    }
}
