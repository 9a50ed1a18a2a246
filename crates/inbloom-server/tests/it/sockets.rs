//! A server with sockets inside the test, and a client that knows nothing but bytes.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use inbloom_server::{Config, Listeners, Server};

/// A server on a free port of the loopback, stopped when dropped.
pub struct Running {
    pub server: Arc<Server>,
    pub address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub fn start(config: Config) -> Running {
        Running::listen(config, TcpListener::bind("127.0.0.1:0").unwrap())
    }

    pub fn listen(config: Config, listener: TcpListener) -> Running {
        let address = listener.local_addr().unwrap();
        Running::listen_all(config, Listeners { plain: Some(listener), tls: None }, address)
    }

    pub fn listen_all(config: Config, listeners: Listeners, address: SocketAddr) -> Running {
        let server = Arc::new(Server::new(config));
        let shared = Arc::clone(&server);
        let work = move || {
            let ended = inbloom_server::run_all(listeners, &shared, std::future::pending());
            assert_eq!(ended.unwrap(), inbloom_server::Ended::All);
        };
        Running { server, address, thread: Some(std::thread::spawn(work)) }
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server.shut_down();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// What a server replied.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Answer>),
}

impl Answer {
    pub fn integer(&self) -> i64 {
        match self {
            Answer::Integer(number) => *number,
            other => panic!("expected a number, got {other:?}"),
        }
    }

    pub fn integers(&self) -> Vec<i64> {
        match self {
            Answer::Array(answers) => answers.iter().map(Answer::integer).collect(),
            other => panic!("expected an array, got {other:?}"),
        }
    }
}

pub struct Client {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Client { stream, reader }
    }

    /// Sends a line of words, and reads the reply.
    pub fn call(&mut self, line: &str) -> Answer {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.stream.write_all(&request(&words)).unwrap();
        self.read()
    }

    pub fn read(&mut self) -> Answer {
        let line = self.line();
        let text = || line[1..].to_owned();
        match line.as_bytes()[0] {
            b'+' => Answer::Simple(text()),
            b'-' => Answer::Error(text()),
            b':' => Answer::Integer(line[1..].parse().unwrap()),
            b'$' if &line[1..] == "-1" => Answer::Null,
            b'$' => {
                let mut data = vec![0; line[1..].parse::<usize>().unwrap() + 2];
                self.reader.read_exact(&mut data).unwrap();
                data.truncate(data.len() - 2);
                Answer::Bulk(data)
            }
            b'*' if &line[1..] == "-1" => Answer::Null,
            b'*' => Answer::Array((0..line[1..].parse().unwrap()).map(|_| self.read()).collect()),
            other => panic!("no reply of RESP2 begins with {:?}", char::from(other)),
        }
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.reader.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        line.truncate(line.len() - 2);
        String::from_utf8(line).unwrap()
    }
}

/// The bytes of a request.
pub fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
