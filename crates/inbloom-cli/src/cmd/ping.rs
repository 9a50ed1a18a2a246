//! `inbloom ping`: does a server answer?

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use inbloom_server::tls::client;

use crate::login::{Login, LoginArgs};
use crate::output::{self, problem};

/// Check that a server replies.
///
/// For scripts and health checks: prints PONG and exits with 0 if the server replies in time, as
/// `redis-cli ping` does.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The server's address
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:7379")]
    address: String,

    /// Seconds to wait, in all
    #[arg(long, value_name = "SECONDS", default_value_t = 3,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,

    #[command(flatten)]
    login: LoginArgs,

    /// Speak TLS
    #[arg(long)]
    tls: bool,

    /// Certificates to trust, in PEM: the server's own, or those of its authorities; implies --tls
    /// [default: those that this system trusts]
    #[arg(long, value_name = "FILE", env = "INBLOOM_TLS_CA")]
    tls_ca: Option<PathBuf>,

    /// Name in the server's certificate [default: the host of ADDRESS]
    #[arg(long, value_name = "NAME", env = "INBLOOM_TLS_NAME")]
    tls_name: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  inbloom ping                        the server at 127.0.0.1:7379
  inbloom ping 10.0.0.5:7379 && ...   continue if it replies
  inbloom ping --user monitor --password-file secret.txt --tls-ca cert.pem

Exit status:
  0  the server replied
  1  it did not reply, or refused; standard error has the reason";

pub fn run(args: &Args) -> Result<ExitCode> {
    match ping(args) {
        Ok(()) => {
            output::print(b"PONG\n")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            output::report(&error.context(args.address.clone()));
            Ok(ExitCode::FAILURE)
        }
    }
}

fn ping(args: &Args) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(args.timeout);
    let left = || match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => bail!("no reply within {} s", args.timeout),
        left => Ok(left),
    };
    let mut addresses =
        args.address.to_socket_addrs().context("not an address like 127.0.0.1:7379")?;
    let address = addresses.next().context("no such host")?;
    let socket = TcpStream::connect_timeout(&address, left()?).context("cannot connect")?;
    let mut stream = args.secured(socket.try_clone()?)?;
    let mut request = Vec::new();
    let login = args.login.read()?;
    if let Some(Login { user, password }) = &login {
        // By lengths, as a password may have any character.
        let mut words = vec!["AUTH", password];
        words.splice(1..1, user.as_deref());
        write!(request, "*{}\r\n", words.len())?;
        for word in words {
            write!(request, "${}\r\n{word}\r\n", word.len())?;
        }
    }
    request.extend_from_slice(b"PING\r\n");
    socket.set_write_timeout(Some(left()?))?;
    socket.set_read_timeout(Some(left()?))?;
    stream.write_all(&request).map_err(explained).context("cannot send")?;
    stream.flush().map_err(explained).context("cannot send")?;
    let mut reply = Vec::new();
    let wanted = if login.is_some() { "+OK\r\n+PONG\r\n" } else { "+PONG\r\n" };
    // Up to an error's line: untrusted input may go on forever.
    while reply.len() < wanted.len() || (reply[0] != b'+' && !reply.ends_with(b"\r\n")) {
        socket.set_read_timeout(Some(left()?))?;
        let mut bytes = [0; 512];
        let count = match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(explained(error)).context("no reply"),
        };
        reply.extend_from_slice(&bytes[..count]);
        if reply.len() > 4096 {
            break;
        }
    }
    if reply == wanted.as_bytes() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&reply);
    let line = text.lines().find(|line| *line != "+OK").unwrap_or("nothing");
    let shown: String = line.trim_start_matches('-').chars().take(200).collect();
    let problem_is = format!("the server replied \"{shown}\"");
    match help(line) {
        Some(help) => bail!(problem(problem_is, help)),
        None => bail!(problem_is),
    }
}

/// Returns what to do about a reply. Errors other than those of a login name their own reason.
fn help(line: &str) -> Option<&'static str> {
    match line.strip_prefix('-') {
        Some(error) if error.starts_with("NOAUTH") || error.starts_with("WRONGPASS") => {
            Some("check the user and password: --user, --password-file")
        }
        Some(_) => None,
        None => Some("check that the address is that of an inbloom or Redis server"),
    }
}

/// An error of a socket, with what to do about a certificate that is not trusted.
fn explained(error: std::io::Error) -> anyhow::Error {
    let is_about_trust = client::is_about_trust(&error);
    let error = anyhow::Error::from(error);
    match is_about_trust {
        true => error.context(problem(
            "its certificate is not trusted",
            "pass --tls-ca with a certificate to trust, or --tls-name with the name in it",
        )),
        false => error,
    }
}

/// A connection, in the clear or not.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

impl Args {
    /// Puts TLS over a socket, if it is asked for.
    fn secured(&self, socket: TcpStream) -> Result<Box<dyn Stream>> {
        if !self.tls && self.tls_ca.is_none() {
            return Ok(Box::new(socket));
        }
        let trusted = match &self.tls_ca {
            Some(path) => path.clone(),
            None => client::system_authorities().with_context(|| {
                problem("this system has no trusted certificates", "name some with --tls-ca")
            })?,
        };
        let host = self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = self.tls_name.as_deref().unwrap_or(host);
        Ok(Box::new(client::connect(socket, name, &trusted)?))
    }
}
