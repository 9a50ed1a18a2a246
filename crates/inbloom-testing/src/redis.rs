//! Real Redis servers and clusters for tests: started on free ports, in folders of their own, and
//! ended when they are dropped or when the test's process ends, however it does.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A simple string.
    Status(String),
    /// An error.
    Error(String),
    /// A number.
    Int(i64),
    /// A string, or none.
    Bulk(Option<Vec<u8>>),
    /// A list.
    Array(Vec<Reply>),
}

impl Reply {
    /// Returns a string, a status or an error as text, or a number in digits.
    ///
    /// # Panics
    ///
    /// If it is none of them.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Reply::Status(text) | Reply::Error(text) => text.clone(),
            Reply::Int(number) => number.to_string(),
            Reply::Bulk(Some(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("no text: {other:?}"),
        }
    }
}

/// A server process.
#[derive(Debug)]
pub struct Redis {
    program: String,
    arguments: Vec<String>,
    port: u16,
    folder: PathBuf,
    process: Option<Process>,
}

/// The process, behind a shell that ends it when our end of its input is closed: at the latest when
/// our own process is gone.
#[derive(Debug)]
struct Process {
    guard: Child,
    pid: u32,
}

/// How long a server may take to start, or a cluster to agree.
const PATIENCE: Duration = Duration::from_secs(30);

impl Redis {
    /// Starts a server without persistence, with further arguments. Reports a skip and returns None
    /// where the program is not installed.
    pub fn start(program: &str, arguments: &[&str]) -> Option<Redis> {
        crate::program(program, program)?;
        let port = free_port();
        let folder = folder_for(port);
        let mut server = Redis {
            program: program.to_owned(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            port,
            folder,
            process: None,
        };
        server.run();
        Some(server)
    }

    /// Starts it again, after [`Redis::kill`].
    ///
    /// # Panics
    ///
    /// If it does not answer in time.
    pub fn run(&mut self) {
        let mut script = Command::new("sh");
        // The server does not inherit the pipe, or it would keep it open.
        script.args([
            "-c",
            "\"$@\" </dev/null >server.log 2>&1 & echo $!; cat >/dev/null; kill -9 $! 2>/dev/null",
        ]);
        script.args(["sh", &self.program, "--port", &self.port.to_string()]);
        script.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        script.args(["--daemonize", "no", "--dir", &self.folder.display().to_string()]);
        script.args(&self.arguments).current_dir(&self.folder);
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut guard = script.spawn().expect("a shell");
        let mut pid = String::new();
        let mut output = BufReader::new(guard.stdout.take().expect("its output"));
        output.read_line(&mut pid).expect("the number of the process");
        let pid = pid.trim().parse().expect("a number");
        self.process = Some(Process { guard, pid });
        let began = Instant::now();
        while self.try_ask(&["PING"]).is_err() {
            assert!(
                began.elapsed() < PATIENCE,
                "{} does not answer:\n{}",
                self.program,
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Ends it at once, as a crash does.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            signal("-KILL", process.pid);
            drop(process.guard.stdin.take());
            let _ = process.guard.wait();
        }
    }

    /// Returns whether it was not killed.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Stops it without ending it; connections stay open.
    pub fn freeze(&self) {
        self.process.iter().for_each(|process| signal("-STOP", process.pid));
    }

    /// Lets it go on after [`Redis::freeze`].
    pub fn thaw(&self) {
        self.process.iter().for_each(|process| signal("-CONT", process.pid));
    }

    /// Runs a command.
    ///
    /// # Panics
    ///
    /// If there is no reply, or if it is an error.
    pub fn ask(&self, command: &[&str]) -> Reply {
        match self.try_ask(command) {
            Ok(Reply::Error(error)) => panic!("{command:?}: {error}"),
            Ok(reply) => reply,
            Err(error) => panic!("{command:?}: {error}\n{}", self.log()),
        }
    }

    /// Runs a command on a connection of its own.
    ///
    /// # Errors
    ///
    /// If there is no reply.
    pub fn try_ask(&self, command: &[&str]) -> io::Result<Reply> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut request = format!("*{}\r\n", command.len());
        for argument in command {
            request.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
        }
        stream.write_all(request.as_bytes())?;
        read_reply(&mut BufReader::new(stream))
    }

    /// Returns a field of INFO.
    ///
    /// # Panics
    ///
    /// If there is no such field.
    #[must_use]
    pub fn info(&self, section: &str, field: &str) -> String {
        let info = self.ask(&["INFO", section]).text();
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("no {field} in {info}")).to_owned()
    }

    /// Returns what it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("server.log")).unwrap_or_default()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A cluster: first the masters, then as many replicas.
#[derive(Debug)]
pub struct RedisCluster {
    /// Its servers.
    pub nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts three masters with a replica each, of a node timeout of two seconds. Reports a skip and
    /// returns None where the programs are not installed.
    ///
    /// # Panics
    ///
    /// If the nodes do not agree in time.
    #[must_use]
    pub fn start(program: &str) -> Option<RedisCluster> {
        crate::program("redis-cli", "redis-tools")?;
        let mut nodes = Vec::new();
        for _ in 0..6 {
            let bus = free_port().to_string();
            let arguments = [
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                "2000",
                "--cluster-port",
                &bus,
            ];
            nodes.push(Redis::start(program, &arguments)?);
        }
        let cluster = RedisCluster { nodes };
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]);
        create.args(cluster.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())));
        create.args(["--cluster-replicas", "1", "--cluster-yes"]);
        let output = create.output().expect("redis-cli runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        cluster.wait_until_whole();
        Some(cluster)
    }

    /// Returns the address of the cluster: that of its first node.
    #[must_use]
    pub fn address(&self) -> String {
        self.nodes[0].address()
    }

    /// Waits until every node that runs says that all is well, and knows the replicas of all masters.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn wait_until_whole(&self) {
        let began = Instant::now();
        let is_whole = |node: &Redis| {
            // A replica is listed only once it has copied something, and every node learns of that by
            // itself. Clients take the map of slots from any node, so all of them have to know.
            let state = node.try_ask(&["CLUSTER", "INFO"]).map(|reply| reply.text());
            let slots = node.try_ask(&["CLUSTER", "SLOTS"]);
            let has_replica =
                |range: &Reply| matches!(range, Reply::Array(range) if range.len() > 3);
            let replication = node.try_ask(&["INFO", "replication"]).map(|reply| reply.text());
            state.is_ok_and(|state| state.contains("cluster_state:ok"))
                && matches!(slots, Ok(Reply::Array(ranges)) if ranges.len() >= 3
                    && ranges.iter().all(has_replica))
                && replication.is_ok_and(|text| {
                    text.contains("role:master") || text.contains("master_link_status:up")
                })
        };
        while !self.nodes.iter().filter(|node| node.is_running()).all(is_whole) {
            assert!(began.elapsed() < PATIENCE, "the cluster does not agree");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the indexes of the nodes that are masters now.
    #[must_use]
    pub fn masters(&self) -> Vec<usize> {
        let is_master = |node: &Redis| {
            node.try_ask(&["ROLE"]).is_ok_and(
                |role| matches!(role, Reply::Array(parts) if parts[0].text() == "master"),
            )
        };
        (0..self.nodes.len()).filter(|index| is_master(&self.nodes[*index])).collect()
    }

    /// Returns the index of the replica of a master.
    ///
    /// # Panics
    ///
    /// If it has none.
    #[must_use]
    pub fn replica_of(&self, master: usize) -> usize {
        let port = self.nodes[master].port().to_string();
        let follows = |node: &Redis| {
            node.try_ask(&["INFO", "replication"])
                .is_ok_and(|info| info.text().contains(&format!("master_port:{port}\r\n")))
        };
        let index = self.nodes.iter().position(follows);
        index.unwrap_or_else(|| panic!("node {master} has no replica"))
    }
}

fn read_reply(reader: &mut impl BufRead) -> io::Result<Reply> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).ok_or_else(invalid)?;
    let number = || rest.parse::<i64>().map_err(|_| invalid());
    Ok(match kind {
        "+" => Reply::Status(rest.to_owned()),
        "-" => Reply::Error(rest.to_owned()),
        ":" => Reply::Int(number()?),
        "$" => match usize::try_from(number()?) {
            Err(_) => Reply::Bulk(None),
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                reader.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Reply::Bulk(Some(bytes))
            }
        },
        "*" => {
            let count = usize::try_from(number()?).unwrap_or(0);
            Reply::Array((0..count).map(|_| read_reply(reader)).collect::<io::Result<_>>()?)
        }
        _ => return Err(invalid()),
    })
}

fn signal(signal: &str, pid: u32) {
    let _ = Command::new("kill").args([signal, &pid.to_string()]).status();
}

/// Returns a port that nobody listens on.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

fn folder_for(port: u16) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("inbloom-redis-{}-{number}-{port}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}
