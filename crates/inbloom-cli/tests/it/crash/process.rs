//! The real binary, started on a free port and killed without a warning.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::crash::client::{Client, Reply};

/// A running server, ended when dropped.
pub struct Server {
    process: Child,
    pub address: SocketAddr,
    /// From the start of the process to its first answer.
    pub restart: Duration,
    said: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts one, and waits until it answers. Err: what it said instead.
    pub fn start(options: &[String]) -> Result<Server, String> {
        let started = Instant::now();
        let mut process = spawn(options, Stdio::piped()).map_err(|error| error.to_string())?;
        let mut lines = BufReader::new(process.stderr.take().expect("piped")).lines();
        let said = Arc::new(Mutex::new(Vec::new()));
        // What it found in its folder may come first.
        let address = loop {
            let Some(Ok(line)) = lines.next() else {
                let status = process.wait().map_err(|error| error.to_string())?;
                let said = said.lock().expect("no panic above").join("\n");
                return Err(format!("the server ended at its start, {status}:\n{said}"));
            };
            let address = line.split_once("ready at ").and_then(|(_, rest)| {
                rest.split_whitespace().next().and_then(|address| address.parse().ok())
            });
            said.lock().expect("no panic above").push(line);
            if let Some(address) = address {
                break address;
            }
        };
        // Nobody may be kept waiting by a full pipe.
        let sink = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                sink.lock().expect("no panic here").push(line);
            }
        });
        let mut server = Server { process, address, restart: Duration::ZERO, said };
        let pong = server.connect().call("PING");
        if pong != Reply::Simple("PONG".to_owned()) {
            return Err(format!("PING was answered with {pong:?}"));
        }
        server.restart = started.elapsed();
        Ok(server)
    }

    /// Starts one, and kills it before it may be ready: in the middle of what it does to its
    /// folder.
    pub fn start_in_vain(options: &[String], pause: Duration) {
        let mut process = spawn(options, Stdio::null()).expect("it starts");
        std::thread::sleep(pause);
        process.kill().expect("it is ours to kill");
        process.wait().expect("it is our child");
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address).expect("a server that lives takes connections")
    }

    /// SIGKILL: it learns nothing of it, and finishes nothing.
    pub fn kill(&mut self) {
        self.process.kill().expect("it is ours to kill");
        self.process.wait().expect("it is our child");
    }

    /// The last lines that it wrote.
    pub fn last_words(&self) -> String {
        let said = self.said.lock().expect("no panic above");
        said[said.len().saturating_sub(20)..].join("\n")
    }
}

fn spawn(options: &[String], errors: Stdio) -> std::io::Result<Child> {
    Command::new(env!("CARGO_BIN_EXE_inbloom"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(options)
        .stdin(Stdio::null())
        .stderr(errors)
        .spawn()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
