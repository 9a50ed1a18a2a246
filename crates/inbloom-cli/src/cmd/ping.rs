//! `inbloom ping`: does a server answer?

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use inbloom_server::tls::client;

use crate::login::{Login, LoginArgs};
use crate::output;

/// Ask a server whether it is there.
///
/// For scripts and health checks: prints PONG and exits with 0 if a server answers in time, as it
/// would answer `redis-cli ping`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where the server listens
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

    /// Certificates to trust, in PEM: the server's own, or those of its authorities; speaks TLS
    /// [default: those that this system trusts]
    #[arg(long, value_name = "FILE", env = "INBLOOM_TLS_CA")]
    tls_ca: Option<PathBuf>,

    /// Name that the server's certificate has to have [default: the host of ADDRESS]
    #[arg(long, value_name = "NAME", env = "INBLOOM_TLS_NAME")]
    tls_name: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  inbloom ping                        the server at 127.0.0.1:7379
  inbloom ping 10.0.0.5:7379 && ...   go on if it is there
  inbloom ping --user monitor --password-file secret.txt --tls-ca cert.pem

Exit status:
  0  it answered
  1  it did not, or refused; standard error says why";

pub fn run(args: &Args) -> Result<ExitCode> {
    match ping(args) {
        Ok(()) => {
            output::print(b"PONG\n")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            eprintln!("inbloom: {}: {error:#}", args.address);
            Ok(ExitCode::FAILURE)
        }
    }
}

fn ping(args: &Args) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(args.timeout);
    let left = || match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => bail!("no answer within {} s", args.timeout),
        left => Ok(left),
    };
    let mut addresses = args.address.to_socket_addrs().context("no address as 127.0.0.1:7379")?;
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
    stream.write_all(&request).map_err(explained).context("cannot ask")?;
    stream.flush().map_err(explained).context("cannot ask")?;
    let mut reply = Vec::new();
    let wanted = if login.is_some() { "+OK\r\n+PONG\r\n" } else { "+PONG\r\n" };
    // Up to an error's line: a stranger may send anything, for ever.
    while reply.len() < wanted.len() || (reply[0] != b'+' && !reply.ends_with(b"\r\n")) {
        socket.set_read_timeout(Some(left()?))?;
        let mut bytes = [0; 512];
        let count = match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(explained(error)).context("no answer"),
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
    bail!("it answered: {}", line.trim_start_matches('-').chars().take(200).collect::<String>());
}

/// An error of a socket, with what to do about a certificate that is not trusted.
fn explained(error: std::io::Error) -> anyhow::Error {
    let is_about_trust = client::is_about_trust(&error);
    let error = anyhow::Error::from(error);
    match is_about_trust {
        true => error.context("its certificate is not trusted: see --tls-ca and --tls-name"),
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
            None => client::system_authorities()
                .context("no certificates are known on this system: name some with --tls-ca")?,
        };
        let host = self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = self.tls_name.as_deref().unwrap_or(host);
        Ok(Box::new(client::connect(socket, name, &trusted)?))
    }
}
