//! Servers: started for a run or running already, and what the kernel counts about them.

use std::error::Error;
use std::ffi::OsStr;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use super::client::{Client, Reply, wrong};

/// A started server that does not answer for so long has failed.
const START: Duration = Duration::from_secs(10);

/// A process of this machine.
#[derive(Clone, Copy)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn new(number: u32) -> Process {
        Process(number)
    }

    /// The processor time of all its threads so far, in the program and in the kernel, those
    /// included that have ended.
    ///
    /// The same sum as utime + stime of /proc/PID/stat, in nanoseconds instead of ticks of 10 ms:
    /// a run of a tenth of a second would be known to 10% only.
    pub(crate) fn worked(self) -> io::Result<Duration> {
        let process = libc::pid_t::try_from(self.0).map_err(io::Error::other)?;
        let mut clock = 0;
        // SAFETY: the pointer is to a variable of the type that is written.
        let error = unsafe { libc::clock_getcpuclockid(process, &mut clock) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a variable of the type that is written.
        if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // The types of the fields differ between systems; no process works for less than nothing.
        Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    /// The memory that it has in RAM, in bytes.
    pub(crate) fn resident(self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0))?;
        status
            .lines()
            .find_map(|line| {
                line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse().ok()
            })
            .map(|kibibytes: u64| kibibytes * 1024)
            .ok_or_else(|| io::Error::other(format!("process {} has no VmRSS", self.0)))
    }
}

/// A server that answers.
pub(crate) struct Server {
    /// What tables call it.
    pub(crate) name: String,
    pub(crate) process: Process,
    address: SocketAddr,
    /// None if it was running already.
    child: Option<Child>,
}

impl Server {
    /// A server that is running, and goes on when the benchmark ends.
    pub(crate) fn running(address: SocketAddr, process: Process) -> Result<Server, Box<dyn Error>> {
        process.worked().map_err(|error| format!("process {}: {error}", process.0))?;
        let server = Server { name: address.to_string(), process, address, child: None };
        server.ping().map_err(|error| format!("{address} does not answer: {error}"))?;
        Ok(server)
    }

    /// `inbloom serve` on a free port. What it says, it says in the folder.
    pub(crate) fn inbloom(
        binary: &Path,
        further: impl IntoIterator<Item: AsRef<OsStr>>,
        folder: &Path,
    ) -> Result<Server, Box<dyn Error>> {
        let address = free_address()?;
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", &address.to_string()]).args(further);
        Server::start("inbloom", command, address, folder)
    }

    /// A stock Redis on a free port, without persistence; None if it is not installed.
    pub(crate) fn redis(binary: &OsStr, folder: &Path) -> Result<Option<Server>, Box<dyn Error>> {
        Server::redis_with(binary, None, folder)
    }

    /// As [`Server::redis`], with a module of commands.
    pub(crate) fn redis_with(
        binary: &OsStr,
        module: Option<&Path>,
        folder: &Path,
    ) -> Result<Option<Server>, Box<dyn Error>> {
        let version = match Command::new(binary).arg("--version").output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(_) => return Ok(None),
        };
        let version =
            version.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or("?");
        let address = free_address()?;
        let mut command = Command::new(binary);
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
        command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
        let mut name = format!("redis {version}");
        if let Some(module) = module {
            command.arg("--loadmodule").arg(module);
            name = module.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        }
        Server::start(&name, command, address, folder).map(Some)
    }

    fn start(
        name: &str,
        mut command: Command,
        address: SocketAddr,
        folder: &Path,
    ) -> Result<Server, Box<dyn Error>> {
        let said = folder.join(format!("{}.stderr", address.port()));
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(&said)?);
        let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        let process = Process(child.id());
        let mut server = Server { name: name.to_string(), process, address, child: Some(child) };
        let start = Instant::now();
        while let Err(error) = server.ping() {
            let status = server.child.as_mut().expect("it was started").try_wait()?;
            if status.is_some() || start.elapsed() > START {
                let words = fs::read_to_string(said).unwrap_or_default();
                let words = words.lines().next().unwrap_or("no message").to_string();
                return Err(match status {
                    Some(status) => format!("{name} ended with {status}: {words}").into(),
                    None => format!("{name} does not answer: {error}; it said: {words}").into(),
                });
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    pub(crate) fn connect(&self) -> io::Result<Client> {
        Client::connect(self.address)
    }

    /// So many connections.
    pub(crate) fn connect_many(&self, count: usize) -> io::Result<Vec<Client>> {
        (0..count).map(|_| self.connect()).collect()
    }

    /// Ends a server that was started, as SHUTDOWN does, and waits for that.
    pub(crate) fn stop(mut self) -> io::Result<()> {
        // It closes the connection instead of answering; an answer says why it goes on. Then it is
        // killed, as it is dropped.
        if let Ok(reply) = self.connect()?.call(&[b"SHUTDOWN"]) {
            return Err(wrong(format!("SHUTDOWN was answered with {reply:?}")));
        }
        let status = self.child.as_mut().expect("it was started here").wait()?;
        self.child = None;
        if status.success() {
            return Ok(());
        }
        Err(wrong(format!("{} ended with {status}", self.name)))
    }

    fn ping(&self) -> io::Result<()> {
        match self.connect()?.ask("PING")? {
            Reply::Simple(text) if text == "PONG" => Ok(()),
            other => Err(io::Error::other(format!("PING was answered with {other:?}"))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child
            && let Err(error) = child.kill().and_then(|()| child.wait())
        {
            eprintln!("{}, process {}, is left running: {error}", self.name, self.process.0);
        }
    }
}

/// An address that nobody listens on. Another process could take it before the server does; then
/// the server says so and ends.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_a_process_is_counted_with_that_of_threads_that_have_ended() {
        let this = Process::new(std::process::id());
        let before = this.worked().expect("this process");
        let busy = Duration::from_millis(50);
        thread::spawn(move || {
            let (start, mut turns) = (Instant::now(), 0_u64);
            while start.elapsed() < 4 * busy {
                turns = std::hint::black_box(turns + 1);
            }
        })
        .join()
        .expect("it only counts");
        let worked = this.worked().expect("this process") - before;
        // On a busy machine the thread gets a part of the time only.
        assert!(worked >= busy, "{worked:?}");
    }

    #[test]
    fn resident_memory_grows_with_what_is_touched() {
        let this = Process::new(std::process::id());
        let before = this.resident().expect("this process");
        let touched = std::hint::black_box(vec![1_u8; 64 << 20]);
        let grown = this.resident().expect("this process").saturating_sub(before);
        assert!(grown >= touched.len() as u64 / 2, "{grown}");
    }
}
