//! A client of the Redis protocol that has no opinion about connections that end: here they all do.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// No answer for so long is a server that hangs, which is a failure of its own.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a server replied, in RESP2.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(String),
    Null,
    Array(Vec<Reply>),
}

impl Reply {
    /// The numbers of an array of numbers, or the one number.
    pub fn integers(&self) -> Result<Vec<i64>, String> {
        match self {
            Reply::Integer(number) => Ok(vec![*number]),
            Reply::Array(replies) => {
                let numbers = replies.iter().map(Reply::integers).collect::<Result<Vec<_>, _>>()?;
                Ok(numbers.concat())
            }
            other => Err(format!("expected numbers, got {other:?}")),
        }
    }

    /// The number.
    pub fn integer(&self) -> Result<i64, String> {
        match self {
            Reply::Integer(number) => Ok(*number),
            other => Err(format!("expected a number, got {other:?}")),
        }
    }

    /// The text, however it was sent.
    pub fn text(&self) -> Result<&str, String> {
        match self {
            Reply::Simple(text) | Reply::Bulk(text) => Ok(text),
            other => Err(format!("expected a text, got {other:?}")),
        }
    }
}

/// A connection.
pub struct Client {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Client { stream, reader })
    }

    /// Sends a line of words, and reads the reply. The server is not going to be killed meanwhile.
    pub fn call(&mut self, line: &str) -> Reply {
        let words = line.split(' ').map(str::to_owned).collect();
        self.call_all(&[words]).remove(0)
    }

    /// Sends requests at once, and reads all replies. The server is not going to be killed
    /// meanwhile.
    pub fn call_all(&mut self, requests: &[Vec<String>]) -> Vec<Reply> {
        let mut replies = Vec::with_capacity(requests.len());
        // Some at a time, so that neither side's buffer is full while the other does not read.
        for run in requests.chunks(64) {
            let mut bytes = Vec::new();
            run.iter().for_each(|words| encode(words, &mut bytes));
            self.stream.write_all(&bytes).expect("a server that lives takes requests");
            replies.extend(run.iter().map(|_| self.read().expect("a server that lives answers")));
        }
        replies
    }

    /// Reads a reply.
    pub fn read(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("a reply of {line:?}"));
        let rest = line.get(1..).ok_or_else(wrong)?;
        let number = || rest.parse::<i64>().map_err(|_| wrong());
        Ok(match line.as_bytes()[0] {
            b'+' => Reply::Simple(rest.to_owned()),
            b'-' => Reply::Error(rest.to_owned()),
            b':' => Reply::Integer(number()?),
            b'$' => match usize::try_from(number()?) {
                Ok(length) => {
                    let mut data = vec![0; length + 2];
                    self.reader.read_exact(&mut data)?;
                    data.truncate(length);
                    Reply::Bulk(String::from_utf8(data).map_err(|_| wrong())?)
                }
                Err(_) => Reply::Null,
            },
            b'*' if number()? < 0 => Reply::Null,
            b'*' => Reply::Array((0..number()?).map(|_| self.read()).collect::<Result<_, _>>()?),
            _ => return Err(wrong()),
        })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        // A line that ends with the connection is one that was not acknowledged.
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Appends the bytes of a request.
pub fn encode(words: &[String], bytes: &mut Vec<u8>) {
    write!(bytes, "*{}\r\n", words.len()).expect("a vector takes all");
    for word in words {
        write!(bytes, "${}\r\n{word}\r\n", word.len()).expect("a vector takes all");
    }
}
