//! `inbloom serve`: filters for every Redis client.

mod access;
mod limits;
mod store;

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args as _;
use inbloom_server::persist::log::Fsync;
use inbloom_server::persist::{self, Access, Found};
use inbloom_server::units;
use inbloom_server::{Config, Ended, HttpAccess, Listeners, Server, health};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::settings_file::SettingsFile;
use crate::{log, memory};
use access::AccessArgs;
use limits::LimitArgs;
use store::StoreArgs;

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

    /// Folder in which filters are kept; without it they are gone when the server stops
    #[arg(long, value_name = "FOLDER", env = "INBLOOM_DIR")]
    dir: Option<PathBuf>,

    /// When the disk is asked to keep what was acknowledged: `always` before, `everysec` within a second
    /// (lost only if the machine fails), `no` when the system likes
    #[arg(long, value_name = "WHEN", default_value = "everysec", value_parser = ["always", "everysec", "no"])]
    fsync: String,

    /// Bytes of the log at which a snapshot is taken
    #[arg(long, value_name = "BYTES", default_value = "512MiB", value_parser = units::parse_bytes)]
    log_limit: u64,

    /// Start although acknowledged changes are lost by damage: what comes after it is set aside
    #[arg(long, requires = "dir")]
    repair: bool,

    /// Verify a data folder and exit; nothing is changed, no server must be using it
    #[arg(long, value_name = "FOLDER", conflicts_with = "repair")]
    check: Option<PathBuf>,

    /// Folder whose filter files IB.OPEN may open and to which IB.SAVE may save
    #[arg(long, value_name = "FOLDER")]
    import_dir: Option<PathBuf>,

    #[command(flatten)]
    access: AccessArgs,

    /// Address of the web page, its JSON API, and what monitors read: /metrics, /healthz [default: none]
    #[arg(long, value_name = "ADDRESS", env = "INBLOOM_HTTP")]
    http: Option<String>,

    /// Let users who have logged in add keys over HTTP, if their role allows it
    #[arg(long)]
    http_write: bool,

    /// Name by which browsers may reach --http, beside its address and localhost; may be repeated
    #[arg(long, value_name = "NAME")]
    http_host: Vec<String>,

    /// File of settings, a name and a value in each line; read again on SIGHUP
    ///
    /// Names are those of these options, without the dashes, and those of CONFIG SET. What is given
    /// here or in the environment wins over the file.
    #[arg(long, value_name = "FILE", env = "INBLOOM_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    log: log::Options,

    #[command(flatten)]
    limits: LimitArgs,

    // Last: its heading holds for all options that follow.
    #[command(flatten)]
    store: StoreArgs,
}

const EXAMPLES: &str = "\
Examples:
  inbloom serve                                  at 127.0.0.1:7379
  inbloom serve --dir /var/lib/inbloom           filters survive: a log, and snapshots
  inbloom serve --listen 127.0.0.1:6379          where Redis would be
  inbloom serve --import-dir /var/lib/filters    IB.OPEN key list.ib opens a file built by `build`
  inbloom serve --listen 0.0.0.0:7379 --users users.txt --tls-cert cert.pem --tls-key key.pem
                                                 for other machines, under TLS

Then, from another terminal:
  redis-cli -p 7379 bf.add code user1

Signals:
  SIGTERM, SIGINT  answer what was received, then stop, within 15 seconds and the time that a
                   snapshot takes; a second one stops at once
  SIGHUP           read the settings file and the file of users again

Exit status:
  0    stopped by SHUTDOWN, SIGINT or SIGTERM
  2    an error, described on standard error; also if a command did not end when the server stopped
  130  stopped at once by a second signal, SIGINT; 143 if that was SIGTERM";

impl Args {
    /// The folder of --import-dir, whatever leads to it.
    fn import_dir(&self) -> Result<Option<PathBuf>> {
        match &self.import_dir {
            Some(folder) if !folder.is_dir() => {
                bail!("--import-dir: {} is no folder", folder.display())
            }
            Some(folder) => Ok(Some(folder.canonicalize().context("cannot resolve --import-dir")?)),
            None => Ok(None),
        }
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let Some(path) = &args.config else { return serve(args, None) };
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let options = Args::augment_args(clap::Command::new("inbloom serve"));
    let file = SettingsFile::read(path, options, &words)?;
    let args: Args = file.options(&words)?;
    serve(&args, Some(file))
}

fn serve(args: &Args, file: Option<SettingsFile>) -> Result<ExitCode> {
    memory::give_back_soon();
    args.log.start();
    if let Some(folder) = &args.check {
        return check(folder, args);
    }
    let listener = bind("--listen", &args.listen)?;
    let address = listener.local_addr().context("cannot tell the address")?;
    let import_dir = args.import_dir()?;
    let lock = args.dir.as_deref().map(persist::take_folder).transpose()?;
    let (users, key) = (args.access.users()?, args.access.key(args.dir.as_deref())?);
    let listeners = args.access.listeners(listener, |address| bind("--tls-listen", address))?;
    let dir = args.dir.clone();
    let http = HttpAccess { can_write: args.http_write, hosts: args.http_host.clone() };
    let mut config = Config { dir, import_dir, users, key, http, ..Config::default() };
    if let Some(threads) = args.threads {
        config.threads = usize::from(threads);
    }
    args.limits.apply(&mut config.settings);
    config.settings.require_pass = args.access.password.clone().unwrap_or_default();
    config.settings.protected_mode = !args.access.no_protected_mode;
    config.settings.fsync = Fsync::parse(&args.fsync).expect("one of those that are allowed");
    config.settings.log_limit = args.log_limit;
    let base = config.settings.clone();
    if let Some(file) = &file {
        file.apply(&mut config.settings)?;
    }
    let server = Arc::new(Server::new(config));
    args.store.attach(&server)?;
    if let Some(file) = file {
        file.follow(&server, base);
    }
    warn_of_strangers(&server, &listeners);
    if args.access.users.is_some() {
        server.reloads.add("users", |server| {
            server.reload_users().map(|_| ()).map_err(|error| error.to_string())
        });
    }
    let http = match &args.http {
        Some(address) => Some(serve_http(address, &server)?),
        None => None,
    };
    heed_signals(&server)?;
    if let Some(folder) = &args.dir {
        load(folder, &server, args, lock)?;
    }
    match (&listeners.plain, &listeners.tls) {
        (Some(_), Some((tls, _))) => {
            let tls = tls.local_addr().context("cannot tell the address")?;
            args.log.say(&format!("TLS at {tls}"));
            args.log.say(&format!("ready at {address}"));
        }
        (None, Some(_)) => args.log.say(&format!("ready under TLS at {address}")),
        _ => args.log.say(&format!("ready at {address}")),
    }
    log_start(&server, address, http);
    tell_service_manager(&[NotifyState::Ready]);
    let ended = inbloom_server::run_all(listeners, &server, std::future::pending())?;
    if let Ended::Stuck(threads) = ended {
        return leave_behind(&server, &threads);
    }
    if let Some(store) = server.store() {
        store.close(&*server).context("the last changes may not be safe")?;
    }
    tracing::info!("stopped");
    args.log.say("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Ends while threads are busy with something that does not end: what was acknowledged is safe, and the
/// next start replays the log.
fn leave_behind(server: &Server, threads: &[String]) -> Result<ExitCode> {
    let threads = threads.join(", ");
    tracing::error!(threads, "threads did not end: stopping without a snapshot");
    if let Some(store) = server.store() {
        store.abandon().context("the last changes may not be safe")?;
    }
    bail!(
        "stopped, but commands on the threads {threads} did not end within 15 seconds: no snapshot was \
         taken, and the next start replays the log"
    )
}

/// Fills the server with what its data folder has. Monitors are told that it is not ready yet.
fn load(
    folder: &Path,
    server: &Arc<Server>,
    args: &Args,
    lock: Option<persist::Lock>,
) -> Result<()> {
    let access = if args.repair { Access::Repair } else { Access::Use };
    server.health.suffer(health::LOADING, "the data folder is being read");
    let found = server
        .open_folder(folder, access, lock)
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
            "the log ends in {cut} bytes that are no whole change: not acknowledged, or not synced"
        ));
    }
    let is_check = args.check.is_some();
    let fate = if is_check { "would be set aside" } else { "set aside" };
    for what in damaged {
        args.log.say(&format!("damaged, {fate}: {what}"));
    }
}

/// Verifies a data folder.
fn check(folder: &Path, args: &Args) -> Result<ExitCode> {
    if !folder.join("MANIFEST").exists() {
        bail!("{} is no data folder: it has no MANIFEST", folder.display());
    }
    let (import_dir, key) = (args.import_dir()?, args.access.key(Some(folder))?);
    let server = Arc::new(Server::new(Config { import_dir, key, ..Config::default() }));
    let lock = persist::look_at_folder(folder)?;
    let found = server
        .open_folder(folder, Access::Check, Some(lock))
        .with_context(|| format!("the data folder {} cannot be used", folder.display()))?;
    report(folder, &found, args);
    if !found.damaged.is_empty() {
        bail!("{} parts are damaged: they would be set aside", found.damaged.len());
    }
    args.log.say("sound");
    Ok(ExitCode::SUCCESS)
}

/// Answers browsers and monitors, and tells where.
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

/// Listens at the address that an option has.
fn bind(option: &str, address: &str) -> Result<TcpListener> {
    let addresses: Vec<SocketAddr> = address
        .to_socket_addrs()
        .with_context(|| format!("{option} takes an address as 127.0.0.1:7379, not {address:?}"))?
        .collect();
    TcpListener::bind(&*addresses)
        .with_context(|| format!("cannot listen at {address}: is another server there?"))
}

/// Says what clients of other machines may expect, where they can come in without a password.
fn warn_of_strangers(server: &Server, listeners: &Listeners) {
    let tls = listeners.tls.as_ref().map(|(listener, _)| listener);
    for listener in listeners.plain.iter().chain(tls) {
        let Ok(address) = listener.local_addr() else { continue };
        if address.ip().is_loopback() {
            continue;
        }
        // Any address but a loopback one.
        if server.is_protected_from([192, 0, 2, 1].into(), None) {
            eprintln!(
                "inbloom: warning: {address} can be reached from other machines, but their clients \
                 are refused (protected mode): set --password or --users, or listen at 127.0.0.1"
            );
        } else if server.users().stranger(&server.settings().require_pass).is_some() {
            eprintln!(
                "inbloom: warning: {address} can be reached from other machines, and clients need \
                 no password: set --password or --users, or listen at 127.0.0.1"
            );
        }
    }
}
