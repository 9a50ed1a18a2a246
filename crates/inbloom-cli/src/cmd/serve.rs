//! `inbloom serve`: filters for every Redis client.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use inbloom_server::persist::log::Fsync;
use inbloom_server::persist::{self, Access, Found};
use inbloom_server::{Config, Server};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::numbers;

/// Serve filters to every Redis client: BF.* and CF.*.
///
/// Speaks the Redis protocol, so that redis-cli and the client libraries of every language work as
/// they are; docs/commands.md lists what it understands. Filters live in memory. With --dir, what was
/// acknowledged is also kept there: by a log of changes, and by snapshots.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Address to listen at; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", env = "INBLOOM_LISTEN", default_value = "127.0.0.1:7379")]
    listen: String,

    /// Threads that serve clients [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// Bytes that all filters together may take, as 64MiB or 8GB [default: three quarters of memory]
    #[arg(long, value_name = "BYTES", value_parser = numbers::parse_bytes)]
    max_memory: Option<u64>,

    /// Folder in which filters are kept; without it they are gone when the server stops
    #[arg(long, value_name = "FOLDER", env = "INBLOOM_DIR")]
    dir: Option<PathBuf>,

    /// When the disk is asked to keep what was acknowledged: `always` before, `everysec` within a second
    /// (lost only if the machine fails), `no` when the system likes
    #[arg(long, value_name = "WHEN", default_value = "everysec", value_parser = ["always", "everysec", "no"])]
    fsync: String,

    /// Bytes of the log at which a snapshot is taken
    #[arg(long, value_name = "BYTES", default_value = "512MiB", value_parser = numbers::parse_bytes)]
    log_limit: u64,

    /// Start although acknowledged changes are lost by damage: what comes after it is set aside
    #[arg(long, requires = "dir")]
    repair: bool,

    /// Verify a data folder and exit; nothing is changed, no server must be using it
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["dir", "repair"])]
    check: Option<PathBuf>,

    /// Folder whose filter files IB.OPEN may open and to which IB.SAVE may save
    #[arg(long, value_name = "FOLDER")]
    import_dir: Option<PathBuf>,

    /// Clients at once; more are refused
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    max_clients: u32,

    /// Password that clients have to give with AUTH or HELLO; better kept in the environment
    #[arg(long, value_name = "PASSWORD", env = "INBLOOM_PASSWORD", hide_env_values = true)]
    password: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  inbloom serve                                  at 127.0.0.1:7379
  inbloom serve --dir /var/lib/inbloom           filters survive: a log, and snapshots
  inbloom serve --listen 127.0.0.1:6379          where Redis would be
  inbloom serve --import-dir /var/lib/filters    IB.OPEN key list.ib opens a file built by `build`

Then, from another terminal:
  redis-cli -p 7379 bf.add code user1

Exit status:
  0  stopped by SHUTDOWN, SIGINT or SIGTERM
  2  an error, described on standard error";

pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(folder) = &args.check {
        return check(folder, args);
    }
    let addresses: Vec<SocketAddr> = args
        .listen
        .to_socket_addrs()
        .with_context(|| {
            format!("--listen takes an address as 127.0.0.1:7379, not {:?}", args.listen)
        })?
        .collect();
    let listener = TcpListener::bind(&*addresses)
        .with_context(|| format!("cannot listen at {}: is another server there?", args.listen))?;
    let address = listener.local_addr().context("cannot tell the address")?;
    let import_dir = match &args.import_dir {
        Some(folder) if !folder.is_dir() => {
            bail!("--import-dir: {} is no folder", folder.display())
        }
        Some(folder) => Some(folder.canonicalize().context("cannot resolve --import-dir")?),
        None => None,
    };
    let mut config = Config { import_dir, ..Config::default() };
    if let Some(threads) = args.threads {
        config.threads = usize::from(threads);
    }
    if let Some(bytes) = args.max_memory {
        config.settings.max_memory = bytes;
    }
    config.settings.max_clients = args.max_clients as usize;
    config.settings.require_pass = args.password.clone().unwrap_or_default();
    if !address.ip().is_loopback() && config.settings.require_pass.is_empty() {
        eprintln!(
            "inbloom: warning: {address} can be reached from other machines, and no password is set: \
             anybody there can read and delete filters; set --password, or listen at 127.0.0.1"
        );
    }
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_target(false)
        .init();
    config.settings.fsync = Fsync::parse(&args.fsync).expect("one of those that are allowed");
    config.settings.log_limit = args.log_limit;
    let server = Arc::new(Server::new(config));
    if let Some(folder) = &args.dir {
        let access = if args.repair { Access::Repair } else { Access::Use };
        let found = persist::open_folder(&server, folder, access)
            .with_context(|| format!("cannot use the data folder {}", folder.display()))?;
        report(folder, &found);
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen for signals")?;
    let stop = Arc::clone(&server);
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if signals.forever().next().is_some() {
            stop.shut_down();
        }
    })?;
    eprintln!("inbloom: ready at {address}");
    inbloom_server::run(listener, &server, std::future::pending())?;
    if let Some(store) = server.store() {
        store.close(&server).context("what was not synced yet may not be safe")?;
    }
    eprintln!("inbloom: stopped");
    Ok(ExitCode::SUCCESS)
}

/// Says what was found in a data folder.
fn report(folder: &Path, found: &Found) {
    let Found { filters, records, cut, millis, damaged } = found;
    eprintln!(
        "inbloom: {}: {filters} filters, {records} changes of the log, in {millis} ms",
        folder.display()
    );
    if *cut > 0 {
        eprintln!("inbloom: the log ended in {cut} bytes that are no whole change: cut off");
    }
    for what in damaged {
        eprintln!("inbloom: damaged, and set aside: {what}");
    }
}

/// Verifies a data folder.
fn check(folder: &Path, args: &Args) -> Result<ExitCode> {
    if !folder.join("MANIFEST").exists() {
        bail!("{} is no data folder: it has no MANIFEST", folder.display());
    }
    let import_dir = args.import_dir.clone();
    let server = Arc::new(Server::new(Config { import_dir, ..Config::default() }));
    let found = persist::open_folder(&server, folder, Access::Check)
        .with_context(|| format!("the data folder {} cannot be used", folder.display()))?;
    report(folder, &found);
    if !found.damaged.is_empty() {
        bail!("{} parts are damaged: they would be set aside", found.damaged.len());
    }
    eprintln!("inbloom: sound");
    Ok(ExitCode::SUCCESS)
}
