//! A server with small limits, and the highest resident size that it ever had.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `--max-memory` of nearly all these tests.
pub const MAX_MEMORY: u64 = 64 << 20;
/// `--max-client-memory` of all these tests.
pub const MAX_CLIENT_MEMORY: u64 = 32 << 20;
/// What a server with two threads takes beside: its code, threads and their buffers, huge pages of
/// which each thread uses a part, and memory that the allocator has not yet given back. The last is
/// most of it where replies have 8 MB: six servers flooded at once on two cores took from 115 to 160 MB
/// each, in 18 runs, and one in a run of all tests 169 MB.
const CONSTANT: u64 = 64 << 20;

/// A running server, ended when dropped.
pub struct Server {
    process: Child,
    pub address: SocketAddr,
    max_memory: u64,
    _folder: tempfile::TempDir,
}

impl Server {
    pub fn start() -> Server {
        Server::start_with(MAX_MEMORY)
    }

    /// With another `--max-memory`.
    pub fn start_with(max_memory: u64) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let users = folder.path().join("users");
        let lines = "default off\nreader read-only password:r\nwriter read-write password:w\n\
                     operator admin password:o\n";
        std::fs::write(&users, lines).unwrap();
        std::fs::set_permissions(&users, PermissionsExt::from_mode(0o600)).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_inbloom"))
            .args(["serve", "--listen", "127.0.0.1:0", "--max-memory", &max_memory.to_string()])
            .args(["--max-client-memory", &MAX_CLIENT_MEMORY.to_string(), "--threads", "2"])
            .arg("--users")
            .arg(&users)
            .env_remove("INBLOOM_CONFIG")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| line.split("ready at ").nth(1)?.split(' ').next()?.parse().ok())
            .expect("a server that says where it is");
        // A full pipe would stop the server.
        std::thread::spawn(move || lines.for_each(drop));
        Server { process, address, max_memory, _folder: folder }
    }

    /// Connects as one of the users above.
    pub fn connect(&self, user: &str) -> Client {
        let mut client = Client::connect(self.address);
        assert_eq!(client.ask(&["AUTH", user, &user[..1]]), "+OK");
        client
    }

    /// A number of bytes from the system's account of the process.
    fn status(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(path).expect("the server lives");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Its resident size now.
    pub fn resident(&self) -> u64 {
        self.status("VmRSS")
    }

    /// The highest resident size that it ever had.
    pub fn peak(&self) -> u64 {
        self.status("VmHWM")
    }

    /// Fails if it ever took more than its limits allow, or does not serve any more.
    #[track_caller]
    pub fn check(&self, what: &str) {
        let limit = (self.max_memory + MAX_CLIENT_MEMORY) * 115 / 100 + CONSTANT;
        let peak = self.peak();
        assert!(peak <= limit, "{what}: {peak} bytes resident, the limits allow {limit}");
        assert_eq!(self.connect("reader").ask(&["PING"]), "+PONG", "{what}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A client that knows nothing but bytes.
pub struct Client {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client { reader: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    /// The first line of the reply to a command; empty if the connection ended instead.
    pub fn ask(&mut self, words: &[&str]) -> String {
        if self.stream.write_all(&request(words)).is_err() {
            return String::new();
        }
        self.line()
    }

    /// The next line that the server has sent.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        let _ = self.reader.read_until(b'\n', &mut line);
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    /// The byte string behind a line that has announced it.
    pub fn bulk(&mut self, announced: &str) -> Vec<u8> {
        let length: usize = announced[1..].parse().expect("the length of a byte string");
        let mut bytes = vec![0; length + 2];
        self.reader.read_exact(&mut bytes).unwrap();
        bytes.truncate(length);
        bytes
    }
}

/// A command as programs send it.
pub fn request(words: &[&str]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    request_of(&words)
}

/// The same of any bytes.
pub fn request_of(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Sends bytes over many connections at once, and reads nothing. Ends when all is sent, or when the
/// server has taken nothing for a while: it waits for its replies to be read, or has closed.
pub fn flood(clients: &[Client], bytes: &[Vec<u8>]) {
    const QUIET: Duration = Duration::from_millis(150);
    let mut sent = vec![0; clients.len()];
    clients.iter().for_each(|client| client.stream.set_nonblocking(true).unwrap());
    let mut last = Instant::now();
    while last.elapsed() < QUIET {
        let mut moved = false;
        for (at, client) in clients.iter().enumerate() {
            let rest = &bytes[at][sent[at]..];
            if let Ok(count) = (&client.stream).write(&rest[..rest.len().min(1 << 18)]) {
                sent[at] += count;
                moved |= count > 0;
            }
        }
        if moved {
            last = Instant::now();
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    clients.iter().for_each(|client| client.stream.set_nonblocking(false).unwrap());
}
