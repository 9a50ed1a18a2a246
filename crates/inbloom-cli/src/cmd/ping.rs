//! `inbloom ping`: does a server answer?

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

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

    /// Password to give first; better kept in the environment
    #[arg(long, value_name = "PASSWORD", env = "INBLOOM_PASSWORD", hide_env_values = true)]
    password: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  inbloom ping                        the server at 127.0.0.1:7379
  inbloom ping 10.0.0.5:7379 && ...   go on if it is there

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
    let mut stream = TcpStream::connect_timeout(&address, left()?).context("cannot connect")?;
    let mut request = Vec::new();
    if let Some(password) = &args.password {
        // By lengths, as a password may have any character.
        write!(request, "*2\r\n$4\r\nAUTH\r\n${}\r\n{password}\r\n", password.len())?;
    }
    request.extend_from_slice(b"PING\r\n");
    stream.set_write_timeout(Some(left()?))?;
    stream.write_all(&request).context("cannot ask")?;
    let mut reply = Vec::new();
    let wanted = if args.password.is_some() { "+OK\r\n+PONG\r\n" } else { "+PONG\r\n" };
    // Up to an error's line: a stranger may send anything, for ever.
    while reply.len() < wanted.len() || (reply[0] != b'+' && !reply.ends_with(b"\r\n")) {
        stream.set_read_timeout(Some(left()?))?;
        let mut bytes = [0; 512];
        let count = match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error).context("no answer"),
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
