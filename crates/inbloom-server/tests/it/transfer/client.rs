//! A client without a socket.

use std::sync::Arc;

use inbloom_server::session::{Next, Place};
use inbloom_server::{Config, Server, Session};

/// A reply, as it is on the wire.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Nil(&'static str),
    Truth(bool),
    Array(Vec<Answer>),
    Map(Vec<(Answer, Answer)>),
}

pub use Answer::{Array, Bulk, Integer};

impl Answer {
    /// The elements of an array.
    #[track_caller]
    pub fn elements(self) -> Vec<Answer> {
        match self {
            Array(elements) => elements,
            other => panic!("no array: {other:?}"),
        }
    }

    /// The text of an error.
    #[track_caller]
    pub fn error(self) -> String {
        match self {
            Answer::Error(text) => text,
            other => panic!("no error: {other:?}"),
        }
    }

    /// The bytes of a bulk string.
    #[track_caller]
    pub fn bulk(self) -> Vec<u8> {
        match self {
            Bulk(bytes) => bytes,
            other => panic!("no string: {other:?}"),
        }
    }
}

pub fn ok() -> Answer {
    Answer::Simple("OK".into())
}

/// A server that filters may take so many bytes of.
pub fn server(max_memory: u64) -> Arc<Server> {
    let mut config = Config::default();
    config.settings.max_memory = max_memory;
    Arc::new(Server::new(config))
}

/// One client of a server.
pub struct Client {
    pub server: Arc<Server>,
    pub session: Session,
}

impl Client {
    pub fn new(server: &Arc<Server>) -> Client {
        let client = server.clients.enter("here:1".into(), "here:2".into());
        Client { server: Arc::clone(server), session: Session::new(client, server) }
    }

    /// Of a server of its own, with a GiB.
    pub fn alone() -> Client {
        Client::new(&server(1 << 30))
    }

    /// Sends a command whose words have no blanks in them.
    #[track_caller]
    pub fn say(&mut self, line: &str) -> Answer {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.send(&words)
    }

    /// Sends a command.
    #[track_caller]
    pub fn send(&mut self, words: &[&[u8]]) -> Answer {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).into_bytes());
            request.extend_from_slice(word);
            request.extend(b"\r\n");
        }
        let mut out = Vec::new();
        let mut progress = self.session.process(&self.server, &request, &mut out, Place::Shared);
        if progress.next == Next::Work {
            progress = self.session.process(&self.server, &request, &mut out, Place::Own);
        }
        assert_eq!(progress.consumed, request.len());
        let mut rest = &out[..];
        let answer = read(&mut rest);
        assert!(rest.is_empty(), "more than one reply");
        answer
    }

    /// Copies as redis-py's users do: every piece first, then all of them loaded.
    #[track_caller]
    pub fn copy(&mut self, family: &str, from: &str, to: &str) -> Answer {
        let mut pieces = Vec::new();
        let mut iterator = 0;
        loop {
            let answer = self.say(&format!("{family}.SCANDUMP {from} {iterator}"));
            if let Answer::Error(_) = answer {
                return answer;
            }
            let [Integer(next), data] = &answer.elements()[..] else { panic!("not two") };
            if *next == 0 {
                break;
            }
            iterator = *next;
            pieces.push((iterator, data.clone().bulk()));
        }
        for (iterator, data) in pieces {
            let answer = self.load(family, to, iterator, &data);
            if answer != ok() {
                return answer;
            }
        }
        ok()
    }

    /// LOADCHUNK.
    #[track_caller]
    pub fn load(&mut self, family: &str, name: &str, iterator: i64, data: &[u8]) -> Answer {
        let command = format!("{family}.LOADCHUNK");
        self.send(&[command.as_bytes(), name.as_bytes(), iterator.to_string().as_bytes(), data])
    }

    /// All pieces of a dump, the header first.
    #[track_caller]
    pub fn pieces(&mut self, family: &str, name: &str) -> Vec<(i64, Vec<u8>)> {
        let mut pieces: Vec<(i64, Vec<u8>)> = Vec::new();
        loop {
            let iterator = pieces.last().map_or(0, |(iterator, _)| *iterator);
            let answer = self.say(&format!("{family}.SCANDUMP {name} {iterator}"));
            let [Integer(next), data] = &answer.elements()[..] else { panic!("not two") };
            match next {
                0 => return pieces,
                next => pieces.push((*next, data.clone().bulk())),
            }
        }
    }

    /// Adds `name:0` to `name:count - 1` by the command, in batches.
    #[track_caller]
    pub fn fill(&mut self, command: &[&str], key: &str, count: usize) {
        for first in (0..count).step_by(1000) {
            let items: Vec<String> =
                (first..count.min(first + 1000)).map(|at| format!("{key}:{at}")).collect();
            let mut words: Vec<&[u8]> = vec![command[0].as_bytes(), key.as_bytes()];
            words.extend(command[1..].iter().map(|word| word.as_bytes()));
            words.extend(items.iter().map(|item| item.as_bytes()));
            assert!(matches!(self.send(&words), Array(_)));
        }
    }

    /// The answers for `from:0` to `from:count - 1`.
    #[track_caller]
    pub fn ask(&mut self, command: &str, key: &str, from: &str, count: usize) -> Vec<Answer> {
        if count == 0 {
            return Vec::new();
        }
        let items: Vec<String> = (0..count).map(|at| format!("{from}:{at}")).collect();
        let mut words: Vec<&[u8]> = vec![command.as_bytes(), key.as_bytes()];
        words.extend(items.iter().map(|item| item.as_bytes()));
        self.send(&words).elements()
    }
}

fn line<'a>(rest: &mut &'a [u8]) -> &'a str {
    let end = rest.windows(2).position(|pair| pair == b"\r\n").expect("a whole reply");
    let line = std::str::from_utf8(&rest[..end]).expect("lines are text");
    *rest = &rest[end + 2..];
    line
}

fn read(rest: &mut &[u8]) -> Answer {
    let line = line(rest);
    let number = || line[1..].parse::<i64>().expect("a number");
    match line.as_bytes()[0] {
        b'+' => Answer::Simple(line[1..].into()),
        b'-' => Answer::Error(line[1..].into()),
        b':' => Integer(number()),
        b'_' => Answer::Nil("resp3"),
        b'#' => Answer::Truth(line == "#t"),
        b'$' if line == "$-1" => Answer::Nil("bulk"),
        b'$' => {
            let (bytes, after) = rest.split_at(number() as usize);
            *rest = after.strip_prefix(b"\r\n").expect("the end of a string");
            Bulk(bytes.to_vec())
        }
        b'*' => Array((0..number()).map(|_| read(rest)).collect()),
        b'%' => Answer::Map((0..number()).map(|_| (read(rest), read(rest))).collect()),
        other => panic!("a reply that begins with {:?}", char::from(other)),
    }
}
