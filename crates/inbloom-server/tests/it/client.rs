//! A client without a socket: words in, bytes out.

use inbloom_server::session::{Next, Place, Progress, Session};
use inbloom_server::{Config, Server};

/// A server that asks for no password.
pub fn server() -> Server {
    Server::new(Config::default())
}

/// One connection.
pub struct Client<'s> {
    pub server: &'s Server,
    pub session: Session,
}

impl<'s> Client<'s> {
    pub fn new(server: &'s Server) -> Client<'s> {
        let client = server.clients.enter("127.0.0.1:1000".into(), "127.0.0.1:7379".into());
        Client { server, session: Session::new(client, server) }
    }

    /// What a server answers to bytes, on a thread that may take its time.
    pub fn send(&mut self, input: &[u8]) -> (String, Progress) {
        let mut out = Vec::new();
        let progress = self.session.process(self.server, input, &mut out, Place::Own);
        (String::from_utf8(out).expect("these replies are text"), progress)
    }

    /// What it answers to a command, whose words have no blanks in them.
    pub fn say(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.say_words(&words)
    }

    /// What it answers to a command of any words.
    pub fn say_words(&mut self, words: &[&str]) -> String {
        let input = request(words);
        let (reply, progress) = self.send(&input);
        if progress.next != Next::Close {
            assert_eq!(progress.consumed, input.len(), "{words:?} was not read to its end");
        }
        reply
    }

    /// Says commands, one after another, and compares the replies: `/` stands for the end of a line.
    pub fn check(&mut self, dialogue: &[(&str, &str)]) {
        for (at, (line, expected)) in dialogue.iter().enumerate() {
            let reply = self.say(line).replace("\r\n", "/");
            assert_eq!(reply, *expected, "line {at} of the dialogue: {line}");
        }
    }
}

/// A command as programs send it.
pub fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}
