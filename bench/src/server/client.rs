//! A client of the Redis protocol with nothing in it that costs: one socket, one buffer, RESP2.
//!
//! What a library would do for its users (pools, futures, a value for every reply) would be
//! measured along with the server's throughput and latency. Answers of filters are read without
//! allocation; [`Client::call`] makes values of replies, and is for what is not measured.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// No reply for so long ends the run. The longest stall that is known, of RedisBloom, is 5 s.
const PATIENCE: Duration = Duration::from_secs(120);

/// A reply of RESP2.
#[derive(Debug, PartialEq)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    /// None is the null of RESP2.
    Bulk(Option<Vec<u8>>),
    Array(Vec<Reply>),
}

/// A connection.
pub(crate) struct Client {
    stream: TcpStream,
    /// Bytes that were read; those in `start..end` are not parsed yet.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Client { stream, buffer: vec![0; 1 << 16], start: 0, end: 0 })
    }

    pub(crate) fn send(&mut self, requests: &[u8]) -> io::Result<()> {
        self.stream.write_all(requests)
    }

    /// Sends one request and waits for its reply, which may be an error.
    pub(crate) fn call(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        let mut request = Vec::new();
        encode(&mut request, words);
        self.send(&request)?;
        self.reply()
    }

    /// As [`Client::call`], in words of text; an error of the server is one here too.
    pub(crate) fn ask(&mut self, line: &str) -> io::Result<Reply> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        match self.call(&words)? {
            Reply::Error(text) => Err(wrong(format!("'{line}' was answered with '{text}'"))),
            reply => Ok(reply),
        }
    }

    /// As [`Client::ask`], for commands that answer with a number.
    pub(crate) fn ask_number(&mut self, line: &str) -> io::Result<u64> {
        match self.ask(line)? {
            Reply::Integer(number) if number >= 0 => Ok(number.unsigned_abs()),
            other => Err(wrong(format!("'{line}' was answered with {other:?}"))),
        }
    }

    /// Whether the server knows a command: this call of it is answered with anything but "unknown".
    pub(crate) fn knows(&mut self, line: &str) -> io::Result<bool> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        Ok(match self.call(&words)? {
            Reply::Error(text) => !text.contains("unknown command"),
            _ => true,
        })
    }

    /// Reads any reply.
    pub(crate) fn reply(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_first().ok_or_else(|| wrong("an empty line".to_string()))?;
        let text = String::from_utf8_lossy(rest).into_owned();
        let number = || text.parse().map_err(|_| wrong(format!("'{text}' is no number")));
        Ok(match kind {
            b'+' => Reply::Simple(text),
            b'-' => Reply::Error(text),
            b':' => Reply::Integer(number()?),
            b'$' => match usize::try_from(number()?) {
                Ok(length) => Reply::Bulk(Some(self.bulk(length)?)),
                Err(_) => Reply::Bulk(None),
            },
            b'*' => Reply::Array((0..number()?).map(|_| self.reply()).collect::<Result<_, _>>()?),
            other => return Err(wrong(format!("a reply begins with '{}'", char::from(*other)))),
        })
    }

    /// Reads a reply that is `:1` or `:0`.
    pub(crate) fn truth(&mut self) -> io::Result<bool> {
        match self.line()? {
            b":1" => Ok(true),
            b":0" => Ok(false),
            other => Err(unexpected(other, ":1 or :0")),
        }
    }

    /// Reads a reply that is a number from zero on.
    pub(crate) fn number(&mut self) -> io::Result<u64> {
        let line = self.line()?;
        let digits = line.strip_prefix(b":").and_then(|digits| str::from_utf8(digits).ok());
        match digits.and_then(|digits| digits.parse().ok()) {
            Some(number) => Ok(number),
            None => Err(unexpected(line, "a number")),
        }
    }

    /// Reads the head of an array that must have so many elements.
    pub(crate) fn array(&mut self, length: usize) -> io::Result<()> {
        let line = self.line()?;
        let found =
            line.strip_prefix(b"*").and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
        if found == Some(length) {
            return Ok(());
        }
        Err(unexpected(line, &format!("*{length}")))
    }

    /// Reads a line that must be this one.
    pub(crate) fn exactly(&mut self, expected: &str) -> io::Result<()> {
        match self.line()? {
            line if line == expected.as_bytes() => Ok(()),
            other => Err(unexpected(other, expected)),
        }
    }

    /// The next line, without its end.
    fn line(&mut self) -> io::Result<&[u8]> {
        let mut seen = 0;
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(at) = unread[seen..].iter().position(|&byte| byte == b'\n') {
                let begin = self.start;
                let length = seen + at;
                self.start += length + 1;
                let line = &self.buffer[begin..begin + length];
                return line.strip_suffix(b"\r").ok_or_else(|| unexpected(line, "a line's end"));
            }
            seen = unread.len();
            self.fill()?;
        }
    }

    /// The next so many bytes, and the line's end behind them.
    fn bulk(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut content = Vec::with_capacity(length);
        while content.len() < length {
            if self.start == self.end {
                self.fill()?;
            }
            let part = (self.end - self.start).min(length - content.len());
            content.extend_from_slice(&self.buffer[self.start..self.start + part]);
            self.start += part;
        }
        self.exactly("")?;
        Ok(content)
    }

    /// Waits for more bytes.
    fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.end, 0);
        }
        let length = self.stream.read(&mut self.buffer[self.end..])?;
        if length == 0 {
            return Err(wrong("the server has closed the connection".to_string()));
        }
        self.end += length;
        Ok(())
    }
}

/// Appends a request.
pub(crate) fn encode(request: &mut Vec<u8>, words: &[&[u8]]) {
    encode_head(request, words.len());
    for word in words {
        encode_word(request, word);
    }
}

/// Appends the head of a request of so many words, which must follow.
pub(crate) fn encode_head(request: &mut Vec<u8>, words: usize) {
    write!(request, "*{words}\r\n").expect("a vector takes all");
}

pub(crate) fn encode_word(request: &mut Vec<u8>, word: &[u8]) {
    write!(request, "${}\r\n", word.len()).expect("a vector takes all");
    request.extend_from_slice(word);
    request.extend_from_slice(b"\r\n");
}

/// A server that answers what it must not.
pub(crate) fn wrong(what: String) -> io::Error {
    io::Error::other(what)
}

fn unexpected(line: &[u8], expected: &str) -> io::Error {
    wrong(format!("the server answered '{}', expected {expected}", line.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A client to which these bytes are sent one by one.
    fn receiving(bytes: &'static [u8]) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the client below");
            stream.set_nodelay(true).expect("a socket");
            for byte in bytes {
                stream.write_all(&[*byte]).expect("the client reads");
            }
        });
        Client::connect(address).expect("the listener above")
    }

    #[test]
    fn replies_are_read_in_whatever_pieces_they_come() {
        let mut client =
            receiving(b":1\r\n:0\r\n*2\r\n+OK\r\n$4\r\na\r\nb\r\n$-1\r\n-ERR no\r\n*1\r\n:7\r\n");
        assert!(client.truth().expect("1"));
        assert!(!client.truth().expect("0"));
        let nested = Reply::Array(vec![
            Reply::Simple("OK".to_string()),
            Reply::Bulk(Some(b"a\r\nb".to_vec())),
        ]);
        assert_eq!(client.reply().expect("an array"), nested);
        assert_eq!(client.reply().expect("null"), Reply::Bulk(None));
        assert_eq!(client.reply().expect("an error"), Reply::Error("ERR no".to_string()));
        client.array(1).expect("its head");
        assert!(client.truth().is_err(), "7 is no truth");
        assert!(client.truth().is_err(), "the connection has ended");
    }

    #[test]
    fn an_array_of_another_length_is_an_error() {
        let mut client = receiving(b"*99\r\n");
        let error = client.array(100).expect_err("one is missing").to_string();
        assert!(error.contains("*99") && error.contains("*100"), "{error}");
    }
}
