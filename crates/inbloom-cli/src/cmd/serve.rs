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

use crate::output::{self, problem};
use crate::settings_file::SettingsFile;
use crate::{log, memory, numbers};
use access::AccessArgs;
use limits::LimitArgs;
use store::StoreArgs;

/// Serve filters to every Redis client: BF.* and CF.*.
///
/// Speaks the Redis protocol, so redis-cli and Redis clients of every language work unchanged.
/// docs/commands.md lists the commands. Filters are in memory. With --dir, a log and snapshots keep
/// them on disk too.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Address to listen at; port 0 chooses a free port
    #[arg(long, value_name = "ADDRESS", env = "INBLOOM_LISTEN", default_value = "127.0.0.1:7379")]
    listen: String,

    /// Threads that serve clients [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// Folder for the data; without it, filters are lost when the server stops
    #[arg(long, value_name = "FOLDER", env = "INBLOOM_DIR")]
    dir: Option<PathBuf>,

    /// When to sync the log to disk: `always` before a reply, `everysec` every second (a failure of the
    /// machine can lose the last second), `no` when the system does
    #[arg(long, value_name = "WHEN", default_value = "everysec", value_parser = ["always", "everysec", "no"])]
    fsync: String,

    /// Size of the log at which the server takes a snapshot
    #[arg(long, value_name = "BYTES", default_value = "512MiB", value_parser = units::parse_bytes)]
    log_limit: u64,

    /// Start with a damaged log: set aside what follows the damage, which loses acknowledged changes
    #[arg(long, requires = "dir")]
    repair: bool,

    /// Verify a data folder that no server is using, and exit; changes nothing
    #[arg(long, value_name = "FOLDER", conflicts_with = "repair")]
    check: Option<PathBuf>,

    /// Folder of filter files for IB.OPEN and IB.SAVE
    #[arg(long, value_name = "FOLDER")]
    import_dir: Option<PathBuf>,

    #[command(flatten)]
    access: AccessArgs,

    /// Address for the web page, the JSON API, /metrics and /healthz [default: none]
    #[arg(long, value_name = "ADDRESS", env = "INBLOOM_HTTP")]
    http: Option<String>,

    /// Let users who have logged in add keys over HTTP, if their role allows it
    #[arg(long)]
    http_write: bool,

    /// Host name that browsers may use for --http; may be given more than once
    #[arg(long, value_name = "NAME")]
    http_host: Vec<String>,

    /// File of settings, one name and value per line; read again on SIGHUP
    ///
    /// Names are those of the options without dashes, and those of CONFIG SET. Options and environment
    /// variables win over the file.
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
  inbloom serve --dir /var/lib/inbloom           keep filters in a log and snapshots
  inbloom serve --listen 127.0.0.1:6379          Redis' address
  inbloom serve --import-dir /var/lib/filters    IB.OPEN key list.ib opens a file built by `build`
  inbloom serve --listen 0.0.0.0:7379 --users users.txt --tls-cert cert.pem --tls-key key.pem
                                                 for other machines, with TLS

Then, from another terminal:
  redis-cli -p 7379 bf.add code user1

Signals:
  SIGTERM, SIGINT  reply to what was received, then stop, within 15 seconds and the time of a
                   snapshot; a second signal stops the server at once
  SIGHUP           read the settings file and the file of users again

Exit status:
  0    stopped by SHUTDOWN, SIGINT or SIGTERM
  2    an error, described on standard error, or a command did not end when the server stopped
  130  stopped at once by a second SIGINT; 143 for SIGTERM";

impl Args {
    /// The folder of --import-dir, whatever leads to it.
    fn import_dir(&self) -> Result<Option<PathBuf>> {
        match &self.import_dir {
            Some(folder) if !folder.is_dir() => {
                bail!(problem(
                    format!("--import-dir {} is not a folder", folder.display()),
                    "create it, or name another"
                ))
            }
            Some(folder) => {
                Ok(Some(folder.canonicalize().context("cannot resolve the path of --import-dir")?))
            }
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
    let address = listener.local_addr().context("cannot read the address of --listen")?;
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
            let tls = tls.local_addr().context("cannot read the address of --tls-listen")?;
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
        store.close(&*server).context("cannot save the last changes")?;
    }
    tracing::info!("stopped");
    args.log.say("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Ends while threads are busy with something that does not end: what was acknowledged is safe, and the
/// next start replays the log.
fn leave_behind(server: &Server, threads: &[String]) -> Result<ExitCode> {
    let threads = threads.join(", ");
    tracing::error!(threads, "threads did not end, stopping without a snapshot");
    if let Some(store) = server.store() {
        store.abandon().context("cannot save the last changes")?;
    }
    bail!(problem(
        format!(
            "commands on the threads {threads} did not end within 15 seconds, so no snapshot was \
             taken"
        ),
        "start the server again: it replays the log"
    ))
}

/// Fills the server with what its data folder has. Monitors see that it is not ready yet.
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
    args.log.say(&format!(
        "{folder}: loaded {} and {} in {millis} ms",
        numbers::counted(*filters, "filter"),
        numbers::counted(*records, "log record"),
    ));
    let is_check = args.check.is_some();
    let (dropped, fate) = match is_check {
        true => ("would drop", "would be set aside"),
        false => ("dropped", "set aside"),
    };
    if *cut > 0 {
        args.log.say(&format!(
            "log: {dropped} {cut} trailing bytes (an incomplete record, not acknowledged or not \
             yet synced)"
        ));
    }
    for what in damaged {
        args.log.say(&format!("damaged ({fate}): {what}"));
    }
}

/// Verifies a data folder.
fn check(folder: &Path, args: &Args) -> Result<ExitCode> {
    if !folder.join("MANIFEST").exists() {
        bail!(problem(
            format!("{} is not a data folder (it has no MANIFEST)", folder.display()),
            "name the folder that was given to --dir"
        ));
    }
    let (import_dir, key) = (args.import_dir()?, args.access.key(Some(folder))?);
    let server = Arc::new(Server::new(Config { import_dir, key, ..Config::default() }));
    let lock = persist::look_at_folder(folder)?;
    let found = server
        .open_folder(folder, Access::Check, Some(lock))
        .with_context(|| format!("the data folder {} cannot be used", folder.display()))?;
    report(folder, &found, args);
    if !found.damaged.is_empty() {
        bail!(problem(
            format!("{} parts of the data folder are damaged", found.damaged.len()),
            "restore a copy of the folder, or start the server without --repair: it sets them \
             aside as damaged-... and serves the rest"
        ));
    }
    args.log.say("no damage found");
    Ok(ExitCode::SUCCESS)
}

/// Answers browsers and monitors, and tells where.
fn serve_http(address: &str, server: &Arc<Server>) -> Result<SocketAddr> {
    let listener = bind("--http", address)?;
    let address = listener.local_addr().context("cannot read the address of --http")?;
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
        tracing::warn!(%error, "cannot notify the service manager");
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
        .with_context(|| {
            format!("{option} is {address:?}, which is not an address like 127.0.0.1:7379")
        })?
        .collect();
    TcpListener::bind(&*addresses).with_context(|| {
        problem(
            format!("cannot listen at {address} ({option})"),
            "check that no other server uses the address, or choose another port",
        )
    })
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
            output::warn(&problem(
                format!(
                    "{address} can be reached from other machines, and their clients are refused \
                     (protected mode)"
                ),
                "set --password or --users, or listen at 127.0.0.1",
            ));
        } else if server.users().stranger(&server.settings().require_pass).is_some() {
            output::warn(&problem(
                format!(
                    "{address} can be reached from other machines, and their clients need no \
                     password"
                ),
                "set --password or --users, or listen at 127.0.0.1",
            ));
        }
    }
}
