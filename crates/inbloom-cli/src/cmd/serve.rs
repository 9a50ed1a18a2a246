//! `inbloom serve`: filters for every Redis client.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args as _;
use inbloom_server::health;
use inbloom_server::persist::log::Fsync;
use inbloom_server::persist::{self, Access, Found};
use inbloom_server::{Config, Server};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::settings_file::SettingsFile;
use crate::{log, numbers};

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

    /// Address at which monitors are answered over HTTP: /metrics, /healthz [default: none]
    #[arg(long, value_name = "ADDRESS", env = "INBLOOM_HTTP")]
    http: Option<String>,

    /// File of settings, a name and a value in each line; read again on SIGHUP
    ///
    /// Names are those of these options, without the dashes, and those of CONFIG SET. What is given
    /// here or in the environment wins over the file.
    #[arg(long, value_name = "FILE", env = "INBLOOM_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    log: log::Options,
}

const EXAMPLES: &str = "\
Examples:
  inbloom serve                                  at 127.0.0.1:7379
  inbloom serve --dir /var/lib/inbloom           filters survive: a log, and snapshots
  inbloom serve --listen 127.0.0.1:6379          where Redis would be
  inbloom serve --import-dir /var/lib/filters    IB.OPEN key list.ib opens a file built by `build`

Then, from another terminal:
  redis-cli -p 7379 bf.add code user1

Signals:
  SIGTERM, SIGINT  answer what was received, then stop; a second one stops at once
  SIGHUP           read the settings file again

Exit status:
  0    stopped by SHUTDOWN, SIGINT or SIGTERM
  2    an error, described on standard error
  130  stopped at once by a second signal, SIGINT; 143 if that was SIGTERM";

pub fn run(args: &Args) -> Result<ExitCode> {
    let Some(path) = &args.config else { return serve(args, None) };
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let options = Args::augment_args(clap::Command::new("inbloom serve"));
    let file = SettingsFile::read(path, options, &words)?;
    let args: Args = file.options(&words)?;
    serve(&args, Some(file))
}

fn serve(args: &Args, file: Option<SettingsFile>) -> Result<ExitCode> {
    args.log.start();
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
    config.settings.fsync = Fsync::parse(&args.fsync).expect("one of those that are allowed");
    config.settings.log_limit = args.log_limit;
    let base = config.settings.clone();
    if let Some(file) = &file {
        file.apply(&mut config.settings)?;
    }
    let server = Arc::new(Server::new(config));
    if let Some(file) = file {
        file.follow(&server, base);
    }
    let http = match &args.http {
        Some(address) => Some(serve_http(address, &server)?),
        None => None,
    };
    if let Some(folder) = &args.dir {
        load(folder, &server, args)?;
    }
    heed_signals(&server)?;
    args.log.say(&format!("ready at {address}"));
    log_start(&server, address, http);
    tell_service_manager(&[NotifyState::Ready]);
    inbloom_server::run(listener, &server, std::future::pending())?;
    if let Some(store) = server.store() {
        store.close(&server).context("what was not synced yet may not be safe")?;
    }
    tracing::info!("stopped");
    args.log.say("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Fills the server with what its data folder has. Monitors are told that it is not ready yet.
fn load(folder: &Path, server: &Arc<Server>, args: &Args) -> Result<()> {
    let access = if args.repair { Access::Repair } else { Access::Use };
    server.health.suffer(health::LOADING, "the data folder is being read");
    let found = persist::open_folder(server, folder, access)
        .with_context(|| format!("cannot use the data folder {}", folder.display()))?;
    server.health.recover(health::LOADING);
    report(folder, &found, args);
    Ok(())
}

/// Says what was found in a data folder.
fn report(folder: &Path, found: &Found, args: &Args) {
    let Found { filters, records, cut, millis, damaged } = found;
    let folder = folder.display();
    args.log
        .say(&format!("{folder}: {filters} filters, {records} changes of the log, in {millis} ms"));
    if *cut > 0 {
        args.log.say(&format!(
            "the log ended in {cut} bytes that are no whole change, and were not acknowledged or not \
             synced: cut off"
        ));
    }
    for what in damaged {
        args.log.say(&format!("damaged, and set aside: {what}"));
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
    report(folder, &found, args);
    if !found.damaged.is_empty() {
        bail!("{} parts are damaged: they would be set aside", found.damaged.len());
    }
    args.log.say("sound");
    Ok(ExitCode::SUCCESS)
}

/// Answers monitors, and tells where.
fn serve_http(address: &str, server: &Arc<Server>) -> Result<SocketAddr> {
    let listener = TcpListener::bind(address)
        .with_context(|| format!("cannot listen at {address}, as --http asks"))?;
    let address = listener.local_addr().context("cannot tell the address of --http")?;
    inbloom_server::http::start(listener, server).context("cannot start --http")?;
    Ok(address)
}

/// Stops the server at the first signal that asks for it, and the process at the second; reads
/// settings again at SIGHUP.
fn heed_signals(server: &Arc<Server>) -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot listen for signals")?;
    let server = Arc::clone(server);
    let heed = move || {
        for signal in signals.forever() {
            if signal == SIGHUP {
                reload(&server);
                continue;
            }
            if server.is_stopping() {
                signal_hook::low_level::exit(128 + signal);
            }
            let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
            tracing::info!(signal = name, clients = server.clients.count(), "stopping");
            tell_service_manager(&[NotifyState::Stopping]);
            server.shut_down();
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(heed)?;
    Ok(())
}

fn reload(server: &Server) {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        tell_service_manager(&[NotifyState::Reloading, now]);
    }
    server.reload();
    tell_service_manager(&[NotifyState::Ready]);
}

/// Does nothing unless systemd, or somebody like it, has started the server.
fn tell_service_manager(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot tell the service manager");
    }
}

fn log_start(server: &Server, address: SocketAddr, http: Option<SocketAddr>) {
    let settings = server.settings();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        %address,
        http = http.map(|address| address.to_string()),
        threads = server.config.threads,
        max_memory = settings.max_memory,
        max_clients = settings.max_clients,
        "ready"
    );
}
