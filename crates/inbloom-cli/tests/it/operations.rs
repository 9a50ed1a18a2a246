//! What an operator does to the real server: signals, settings, log, HTTP, systemd, Docker.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use inbloom_testing::program;

/// Nothing here takes so long unless it never happens.
const LONG: Duration = Duration::from_secs(30);

/// The real server, on free ports of the loopback, ended when dropped.
struct Server {
    process: Child,
    address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
    /// Reads the log until the server ends.
    reader: Option<JoinHandle<()>>,
}

impl Server {
    fn start(options: &[&str]) -> Server {
        let mut command = inbloom(&["serve", "--listen", "127.0.0.1:0"]);
        command.args(options).env("INBLOOM_LOG", "info");
        Server::of(command)
    }

    fn of(mut command: Command) -> Server {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (lines, kept) = (BufReader::new(process.stderr.take().unwrap()).lines(), log.clone());
        let reader = std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| kept.lock().unwrap().push(line));
        });
        let any = "0.0.0.0:0".parse().unwrap();
        let mut server = Server { process, address: any, log, reader: Some(reader) };
        let ready = server.wait_for_line("inbloom: ready at ");
        server.address = ready.rsplit(' ').next().unwrap().parse().unwrap();
        server
    }

    /// The first line of the log with a text in it, when it has come.
    fn wait_for_line(&self, text: &str) -> String {
        wait_for(&format!("a line with {text:?}"), || {
            self.lines().into_iter().find(|line| line.contains(text))
        })
    }

    fn lines(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    fn http(&self) -> SocketAddr {
        let line = self.wait_for_line(" http=\"");
        line.split(" http=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
    }

    fn signal(&self, name: &str) {
        let process = self.process.id().to_string();
        assert!(Command::new("kill").args([name, &process]).status().unwrap().success());
    }

    /// Waits until it has ended, and all of its log is read.
    fn wait(&mut self) -> ExitStatus {
        let status = wait_for("its end", || self.process.try_wait().unwrap());
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        status
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { reader: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    /// The value of a setting.
    fn config(&self, name: &str) -> String {
        let mut client = self.connect();
        client.send(&format!("CONFIG GET {name}\r\n"));
        let reply: Vec<String> = (0..5).map(|_| client.line()).collect();
        assert_eq!((&*reply[0], &*reply[2]), ("*2", name));
        reply[4].clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    /// The next line of replies, empty at the end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(&format!("{line}\r\n"));
        self.line()
    }
}

fn inbloom(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inbloom"));
    // What the machine is set to is not what is tested.
    for name in ["LISTEN", "HTTP", "CONFIG", "LOG", "PASSWORD", "USER", "TLS_CA"] {
        command.env_remove(format!("INBLOOM_{name}"));
    }
    command.args(words);
    command
}

fn run(words: &[&str]) -> Output {
    inbloom(words).stdin(Stdio::null()).output().unwrap()
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + LONG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The status and the text of a page.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    request(address, &format!("GET {path} HTTP/1.1"))
}

fn request(address: SocketAddr, line: &str) -> (u16, String) {
    let (head, text) = exchange(address, line, "application/openmetrics-text");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), text)
}

/// The head and the text of an answer.
fn exchange(address: SocketAddr, line: &str, accept: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    write!(stream, "{line}\r\nhost: test\r\naccept: {accept}\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, text) = reply.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), text.to_owned())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

// Figures and health.

/// A page of figures whose every line is as OpenMetrics has it.
#[derive(Debug)]
struct Figures {
    /// Kinds by name, `_total` of counters included.
    kinds: BTreeMap<String, String>,
    /// Values by name and labels, as they stand in the line.
    values: BTreeMap<String, f64>,
}

impl Figures {
    fn parse(text: &str) -> Figures {
        let mut figures = Figures { kinds: BTreeMap::new(), values: BTreeMap::new() };
        let body = text.strip_suffix("# EOF\n").expect("the end is marked");
        let (mut described, mut family) = (String::new(), String::new());
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# ") {
                let [word, name, value] = rest.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                    panic!("{line}")
                };
                match word {
                    "HELP" => described = name.to_owned(),
                    "TYPE" => {
                        assert_eq!(described, name, "HELP stands before TYPE");
                        let end = if value == "counter" { "_total" } else { "" };
                        family = format!("{name}{end}");
                        let other = figures.kinds.insert(family.clone(), value.to_owned());
                        assert_eq!(other, None, "{name} is there once");
                    }
                    "UNIT" => assert!(name == described && name.ends_with(value), "{line}"),
                    _ => panic!("{line}"),
                }
                continue;
            }
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert_eq!(name.split('{').next().unwrap(), family, "{line}");
            if let Some((_, labels)) = name.split_once('{') {
                let (label, value) = labels.strip_suffix("\"}").unwrap().split_once("=\"").unwrap();
                assert!(label.bytes().all(|byte| byte.is_ascii_lowercase()), "{line}");
                assert!(!value.is_empty() && !value.contains(['"', '\\', '\n']), "{line}");
            }
            let number: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert_eq!(figures.values.insert(name.to_owned(), number), None, "{line}");
        }
        figures
    }

    fn value(&self, name: &str) -> f64 {
        *self.values.get(name).unwrap_or_else(|| panic!("no {name} in {self:#?}"))
    }
}

#[test]
fn figures_are_well_formed_those_of_info_and_only_rise() {
    let server = Server::start(&["--http", "127.0.0.1:0", "--max-clients", "77"]);
    let http = server.http();
    let mut client = server.connect();
    assert_eq!(client.ask("BF.ADD seen alice"), ":1");
    assert_eq!(client.ask("BF.EXISTS seen bob"), ":0");
    assert_eq!(client.ask("CF.ADD others carol"), ":1");
    assert_eq!(client.ask("BF.EXISTS none alice"), ":0");
    assert!(client.ask("BF.ADD seen").starts_with("-ERR wrong number"));
    assert!(client.ask("BF.RESERVE seen 0.01 100").starts_with("-ERR item exists"));
    let first = Figures::parse(&get(http, "/metrics").1);
    for (name, value) in [
        ("inbloom_build_info{version=\"0.1.0\"}", 1.0),
        ("inbloom_healthy", 1.0),
        ("inbloom_clients", 1.0),
        ("inbloom_clients_limit", 77.0),
        ("inbloom_connections_total", 1.0),
        ("inbloom_keys{db=\"0\"}", 2.0),
        ("inbloom_key_hits_total", 1.0),
        ("inbloom_key_misses_total", 1.0),
        ("inbloom_items_added_total", 2.0),
        ("inbloom_items_asked_total", 1.0),
        ("inbloom_commands_total{command=\"bf.exists\"}", 2.0),
        ("inbloom_commands_rejected_total{command=\"bf.add\"}", 1.0),
        ("inbloom_commands_failed_total{command=\"bf.reserve\"}", 1.0),
        ("inbloom_errors_total{code=\"ERR\"}", 2.0),
    ] {
        assert_eq!(first.value(name), value, "{name}");
    }
    assert!(first.value("inbloom_uptime_seconds") > 0.0);
    assert!(first.value("inbloom_memory_resident_bytes") > 1e6);
    assert!(first.value("inbloom_commands_seconds_total{command=\"bf.add\"}") > 0.0);

    // INFO tells the same, from the same counters.
    client.send("INFO everything\r\n");
    let mut info = BTreeMap::new();
    client.line();
    loop {
        let line = client.line();
        if let Some((name, value)) = line.split_once(':') {
            info.insert(name.to_owned(), value.to_owned());
        }
        if line.starts_with("db0:") {
            break;
        }
    }
    for (field, name) in [
        ("used_memory", "inbloom_memory_used_bytes"),
        ("maxmemory", "inbloom_memory_limit_bytes"),
        ("keyspace_hits", "inbloom_key_hits_total"),
        ("keyspace_misses", "inbloom_key_misses_total"),
        ("total_connections_received", "inbloom_connections_total"),
        ("rejected_connections", "inbloom_connections_rejected_total"),
        ("expired_keys", "inbloom_expired_keys_total"),
    ] {
        assert_eq!(info[field].parse::<f64>().unwrap(), first.value(name), "{field}");
    }

    let second = Figures::parse(&get(http, "/metrics").1);
    for (name, kind) in &first.kinds {
        if kind == "counter" {
            for (sample, before) in first.values.range(name.clone()..format!("{name}~")) {
                assert!(second.value(sample) >= *before, "{sample} fell");
            }
        }
    }
    assert_eq!(second.value("inbloom_commands_total{command=\"info\"}"), 1.0);
    let received = "inbloom_received_bytes_total";
    assert_eq!(second.value(received), first.value(received) + "INFO everything\r\n".len() as f64);
}

#[test]
fn figures_are_told_in_the_format_that_is_asked_for() {
    let server = Server::start(&["--http", "127.0.0.1:0"]);
    let get = |accept: &str| exchange(server.http(), "GET /metrics HTTP/1.1", accept);
    let (head, text) = get("text/plain;version=0.0.4");
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    assert!(text.contains("\n# TYPE inbloom_connections_total counter\n"), "{text}");
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
    let (head, text) = get("application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    // Prometheus's own judgment; scripts/clients fetches its tool.
    let plain = get("text/plain").1;
    let fetched = root().join("target/clients/promtool");
    let name = if fetched.exists() { fetched.to_str().unwrap() } else { "promtool" };
    let Some(mut promtool) = program(name, "prometheus") else { return };
    promtool.args(["check", "metrics"]);
    promtool.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(plain.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn the_documented_figures_are_those_there_are() {
    let server = Server::start(&["--http", "127.0.0.1:0"]);
    let figures = Figures::parse(&get(server.http(), "/metrics").1);
    let document = fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let documented: BTreeMap<&str, &str> = document
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `inbloom_")?.split(" | ");
            Some((cells.next()?.trim_end_matches('`').split('{').next()?, cells.next()?))
        })
        .collect();
    let there: BTreeMap<&str, &str> = figures
        .kinds
        .iter()
        .map(|(name, kind)| (name.strip_prefix("inbloom_").unwrap(), kind.as_str()))
        .collect();
    assert_eq!(documented, there);
}

#[test]
fn http_tells_and_changes_nothing() {
    let server = Server::start(&["--http", "127.0.0.1:0"]);
    let http = server.http();
    assert_eq!(get(http, "/healthz"), (200, "ok\n".into()));
    // The host is one that the page is not reached by: see the API's own tests.
    assert_eq!((get(http, "/").0, get(http, "/nosuch").0), (421, 421));
    assert_eq!(request(http, "POST /metrics HTTP/1.1").0, 405);
    assert_eq!(request(http, "HEAD /healthz HTTP/1.1"), (200, String::new()));
    assert_eq!(request(http, "nonsense").0, 400);
    // And it is not there unless it is asked for.
    let other = Server::start(&[]);
    assert!(!other.wait_for_line(" ready ").contains("http"));
}

#[test]
fn an_address_of_http_that_is_taken_is_an_error() {
    let server = Server::start(&["--http", "127.0.0.1:0"]);
    let output = run(&["serve", "--listen", "127.0.0.1:0", "--http", &server.http().to_string()]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && text.contains("--http"), "{text}");
    let output = run(&["serve", "--listen", "127.0.0.1:0", "--http", "17680"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("--http is \"17680\", which is not an address like"), "{text}");
}

// Signals.

#[test]
fn what_was_sent_before_sigterm_is_answered_in_full() {
    let mut server = Server::start(&[]);
    let mut client = server.connect();
    assert_eq!(client.ask("PING"), "+PONG", "the server has taken the connection");
    // The server is busy with the first when the signal comes, and has not looked at the others.
    let mut batch = "DEBUG SLEEP 20\r\n".to_owned();
    (0..50_000).for_each(|item| batch += &format!("BF.EXISTS none item:{item}\r\n"));
    client.send(&batch);
    server.signal("-TERM");
    assert_eq!(client.line(), "+OK");
    for item in 0..50_000 {
        assert_eq!(client.line(), ":0", "reply {item}");
    }
    assert_eq!(client.line(), "", "then it ends");
    assert_eq!(server.wait().code(), Some(0));
    let lines = server.lines().join("\n");
    assert!(lines.contains("stopping signal=\"SIGTERM\" clients=1"), "{lines}");
    assert!(lines.ends_with("inbloom: stopped"), "{lines}");
}

/// A client that never stops asking, until it is told to or sent away.
fn ask_on(server: &Server, until: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (mut client, until) = (server.connect(), Arc::clone(until));
    assert_eq!(client.ask("PING"), "+PONG");
    std::thread::spawn(move || {
        while !until.load(Ordering::Relaxed) {
            let asked = client.stream.write_all(b"PING\r\n");
            let mut line = String::new();
            if asked.is_err() || client.reader.read_line(&mut line).unwrap_or(0) == 0 {
                break;
            }
        }
    })
}

#[test]
fn while_it_stops_it_is_not_healthy() {
    let mut server = Server::start(&["--http", "127.0.0.1:0"]);
    let http = server.http();
    let until = Arc::new(AtomicBool::new(false));
    let client = ask_on(&server, &until);
    server.signal("-TERM");
    wait_for("503", || (get(http, "/healthz") == (503, "stopping\n".into())).then_some(()));
    let figures = Figures::parse(&get(http, "/metrics").1);
    assert_eq!(figures.value("inbloom_healthy"), 0.0);
    until.store(true, Ordering::Relaxed);
    client.join().unwrap();
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut server = Server::start(&[]);
        let until = Arc::new(AtomicBool::new(false));
        let client = ask_on(&server, &until);
        server.signal(signal);
        server.wait_for_line("stopping signal=");
        assert_eq!(server.process.try_wait().unwrap(), None, "its client is not done");
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(code));
        client.join().unwrap();
    }
}

#[test]
fn a_command_that_does_not_end_does_not_keep_the_server_from_ending() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let files = tempfile::tempdir().unwrap();
    let import_dir = files.path().to_str().unwrap();
    let mut server = Server::start(&["--dir", dir, "--fsync", "no", "--import-dir", import_dir]);
    assert_eq!(server.connect().ask("BF.ADD seen alice"), ":1");
    let pipe = files.path().join("pipe.ib");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut stuck = server.connect();
    assert_eq!(stuck.ask("PING"), "+PONG");
    // To open a pipe is to wait until somebody writes to it. It is carried out although the signal
    // may come first.
    stuck.send("IB.OPEN list pipe.ib\r\n");
    server.signal("-TERM");
    assert_eq!(server.wait().code(), Some(2));
    server.wait_for_line("did not end within 15 seconds");
    let again = Server::start(&["--dir", dir]);
    assert_eq!(again.connect().ask("BF.EXISTS seen alice"), ":1");
}

#[test]
fn a_file_that_is_cut_while_it_is_asked_does_not_end_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list.ib");
    let mut build = inbloom(&["build", "-n", "2000000", "-o", path.to_str().unwrap()]);
    let mut build = build.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let keys: String = (0..200_000).map(|key| format!("{key}\n")).collect();
    build.stdin.take().unwrap().write_all(keys.as_bytes()).unwrap();
    assert!(build.wait().unwrap().success());
    let whole = fs::read(&path).unwrap();
    for round in 0..3 {
        fs::write(&path, &whole).unwrap();
        let server = Server::start(&["--import-dir", folder.path().to_str().unwrap()]);
        assert_eq!(server.connect().ask("IB.OPEN list list.ib"), "+OK");
        let is_cut = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let (server, is_cut) = (&server, &is_cut);
                scope.spawn(move || {
                    let mut client = server.connect();
                    for at in 0.. {
                        let key = (at * 7919 + thread) % 200_000;
                        let was_cut = is_cut.load(Ordering::Acquire);
                        let reply = client.ask(&format!("BF.EXISTS list {key}"));
                        match &*reply {
                            ":1" => assert!(!was_cut, "an answer of a file that is gone"),
                            error => {
                                assert!(error.contains("has changed since"), "{key}: {error}");
                                if was_cut {
                                    break;
                                }
                            }
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(200));
            // As `cp` begins, and what a disk does that fails in the middle of it.
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len([0, 4096, whole.len() as u64 / 2][round]).unwrap();
            is_cut.store(true, Ordering::Release);
        });
        let mut client = server.connect();
        assert_eq!(client.ask("BF.ADD other x"), ":1");
        assert_eq!(client.ask("DEL list"), ":1");
    }
}

#[test]
fn shutdown_lets_others_finish() {
    let mut server = Server::start(&[]);
    let (mut one, mut other) = (server.connect(), server.connect());
    assert_eq!(other.ask("PING"), "+PONG");
    other.send("DEBUG SLEEP 20\r\nBF.ADD seen alice\r\n");
    one.send("SHUTDOWN NOSAVE\r\n");
    assert_eq!(one.line(), "");
    assert_eq!((other.line(), other.line()), ("+OK".into(), ":1".into()));
    assert_eq!(server.wait().code(), Some(0));
}

// The settings file.

#[test]
fn a_size_means_the_same_as_an_option_in_the_settings_file_and_in_config_set() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("inbloom.conf");
    for (text, bytes) in [("1GB", "1073741824"), ("1g", "1000000000"), ("1.5GiB", "1610612736")] {
        let option = Server::start(&["--max-memory", text]);
        assert_eq!(option.config("max-memory"), bytes, "--max-memory {text}");
        fs::write(&file, format!("max-memory {text}\n")).unwrap();
        let setting = Server::start(&["--config", file.to_str().unwrap()]);
        assert_eq!(setting.config("max-memory"), bytes, "max-memory {text}");
        assert_eq!(option.connect().ask("CONFIG SET max-memory 7"), "+OK");
        assert_eq!(option.connect().ask(&format!("CONFIG SET max-memory {text}")), "+OK");
        assert_eq!(option.config("max-memory"), bytes, "CONFIG SET max-memory {text}");
    }
}

#[test]
fn sighup_reads_the_settings_file_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("inbloom.conf");
    fs::write(&file, "# Few.\nmax-clients 50\nTimeout\t300\nbf-error-rate 0.001\n").unwrap();
    let server = Server::start(&["--config", file.to_str().unwrap(), "--max-memory", "64MiB"]);
    assert_eq!(server.config("maxclients"), "50");
    assert_eq!(server.config("max-clients"), "50", "options' names are known too");
    assert_eq!(server.config("timeout"), "300");
    assert_eq!(server.config("bf-error-rate"), "0.001");

    // Changed, taken away, new, overridden by the command line, and fixed until the next start.
    let text = "maxclients 60\nbf-error-rate 0.001\nbf-initial-size 500\nmax-memory 1gb\n\
                threads 1\nrequirepass \"\"\n";
    fs::write(&file, text).unwrap();
    server.connect().ask("CONFIG SET cf-bucket-size 4");
    server.signal("-HUP");
    server.wait_for_line("reloaded");
    for (name, value) in [
        ("maxclients", "60"),
        ("timeout", "0"),
        ("bf-error-rate", "0.001"),
        ("bf-initial-size", "500"),
        ("maxmemory", "67108864"),
        ("cf-bucket-size", "4"),
    ] {
        assert_eq!(server.config(name), value, "{name}");
    }
    let log = server.lines().join("\n");
    for line in [
        "changed by the settings file setting=\"max-clients\" value=\"60\"",
        "changed by the settings file setting=\"timeout\" value=\"0\"",
        "changed by the settings file setting=\"bf-initial-size\" value=\"500\"",
        "restart the server to apply it setting=\"threads\"",
    ] {
        assert!(log.contains(line), "{line} is missing:\n{log}");
    }
    assert!(!log.contains("setting=\"bf-error-rate\""), "it was not changed:\n{log}");

    // A mistake changes nothing at all.
    fs::write(&file, "max-clients 70\ntimeuot 5\n").unwrap();
    server.signal("-HUP");
    let line = server.wait_for_line("reload failed");
    assert!(
        line.contains("line 2")
            && line.contains(r#"no setting \"timeuot\"; did you mean \"timeout\"?"#),
        "{line}"
    );
    assert_eq!(server.config("maxclients"), "60");

    // Passwords are not logged.
    fs::write(&file, "requirepass open-sesame\n").unwrap();
    server.signal("-HUP");
    server.wait_for_line("setting=\"password\" value=\"(not shown)\"");
    assert!(server.connect().ask("BF.CARD seen").starts_with("-NOAUTH"));
    assert!(!server.lines().join("\n").contains("sesame"));
}

#[test]
fn a_mistake_in_the_settings_file_is_an_error_that_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("inbloom.conf");
    let path = file.to_str().unwrap();
    for (text, words) in [
        ("\nmaxmemroy 1gb", ["line 2", "no setting \"maxmemroy\"\nhelp: did you mean \"max"]),
        ("lisen 127.0.0.1:0", ["line 1", "did you mean \"listen\""]),
        ("qqqqq 1", ["line 1", "no setting \"qqqqq\""]),
        ("timeout soon", ["line 1", "integer"]),
        ("threads 0", ["inbloom.conf", "threads"]),
        ("port 6379", ["'port'", "cannot be changed"]),
        ("timeout 1\ntimeout 2", ["line 2", "also in line 1"]),
        ("maxclients 1\nmax-clients 2", ["line 2", "also in line 1"]),
        ("config other.conf", ["line 1", "another"]),
    ] {
        fs::write(&file, text).unwrap();
        let output = run(&["serve", "--listen", "127.0.0.1:0", "--config", path]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}: {error}");
        assert!(words.iter().all(|word| error.contains(word)), "{text}: {error}");
    }
    let output = run(&["serve", "--config", "/no/such/file"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("/no/such/file"));
}

#[test]
fn options_of_the_start_can_stand_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("inbloom.conf");
    let import = folder.path().display();
    fs::write(&file, format!("http 127.0.0.1:0\nthreads 1\nimport-dir {import}\nmaxclients 9\n"))
        .unwrap();
    let server = Server::start(&["--config", file.to_str().unwrap(), "--max-clients", "8"]);
    assert_eq!(get(server.http(), "/healthz").0, 200);
    assert_eq!(server.config("io-threads"), "1");
    assert_eq!(server.config("maxclients"), "8", "the command line wins");
}

// The log.

#[test]
fn the_log_can_be_read_by_programs() {
    let mut command = inbloom(&["serve", "--listen", "127.0.0.1:0", "--log-format", "json"]);
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let ready: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&ready["level"], &ready["message"]), (&"INFO".into(), &"ready".into()));
    let address: SocketAddr = ready["address"].as_str().unwrap().parse().unwrap();
    TcpStream::connect(address).unwrap().write_all(b"SHUTDOWN\r\n").unwrap();
    let rest: Vec<serde_json::Value> =
        lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert!(process.wait().unwrap().success());
    assert_eq!(rest.last().unwrap()["message"], "stopped");
}

#[test]
fn what_is_logged_is_chosen() {
    let mut quiet = Server::start(&["--log-level", "error"]);
    assert_eq!(quiet.connect().ask("CONFIG SET timeout 5"), "+OK");
    quiet.signal("-TERM");
    quiet.wait();
    let ready = format!("inbloom: ready at {}", quiet.address);
    assert_eq!(quiet.lines(), [&ready, "inbloom: stopped"]);

    let mut command = inbloom(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("INBLOOM_LOG", "debug");
    let server = Server::of(command);
    let mut client = server.connect();
    assert_eq!(client.ask("CONFIG SET slowlog-log-slower-than 0 requirepass hush"), "+OK");
    let line = server.wait_for_line("changed by CONFIG SET setting=\"slowlog-log-slower-than\"");
    assert!(line.contains("value=\"0\""), "{line}");
    assert_eq!(client.ask("TIME"), "*2");
    server.wait_for_line("slow command command=\"time\"");
    let log = server.lines().join("\n");
    assert!(log.contains("setting=\"requirepass\" value=\"(not shown)\"") && !log.contains("hush"));
}

#[test]
fn refused_clients_do_not_fill_the_log() {
    let server = Server::start(&["--max-clients", "1"]);
    let mut client = server.connect();
    assert_eq!(client.ask("PING"), "+PONG");
    for _ in 0..100 {
        assert!(server.connect().line().contains("max number of clients"));
    }
    let line = server.wait_for_line("refused clients");
    assert!(line.contains("WARN") && line.contains("--max-clients"), "{line}");
    let lines = server.lines();
    assert_eq!(lines.iter().filter(|line| line.contains("refused")).count(), 1, "{lines:#?}");
}

// What ships with it.

#[test]
fn ping_says_whether_a_server_answers() {
    let server = Server::start(&[]);
    let address = server.address.to_string();
    let output = run(&["ping", &address]);
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"PONG\n"[..]));
    assert_eq!(server.connect().ask("CONFIG SET requirepass hush"), "+OK");
    let refused = |words: &[&str], reason: &str| {
        let output = run(words);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && text.contains(reason), "{text}");
        assert!(text.contains(words[1]) && !text.contains("wrong-one"), "{text}");
    };
    refused(&["ping", &address], "NOAUTH");
    refused(&["ping", &address, "--password", "wrong-one"], "WRONGPASS");
    assert!(run(&["ping", &address, "--password", "hush"]).status.success());
    // Nobody there, and somebody who says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let free = silent.local_addr().unwrap();
    refused(&["ping", &free.to_string(), "--timeout", "1"], "no reply");
    drop(silent);
    refused(&["ping", &free.to_string()], "cannot connect");
}

#[test]
fn ping_advises_only_what_may_help() {
    const LOGIN: &str = "help: check the user and password";
    const ADDRESS: &str = "help: check that the address";
    for (reply, help) in [
        ("-NOAUTH Authentication required.", Some(LOGIN)),
        ("-WRONGPASS invalid username-password pair or user is disabled.", Some(LOGIN)),
        ("HTTP/1.1 400 Bad Request", Some(ADDRESS)),
        ("SSH-2.0-OpenSSH_9.6", Some(ADDRESS)),
        ("-LOADING Redis is loading the dataset in memory", None),
        ("-DENIED Redis is running in protected mode", None),
        ("-ERR max number of clients reached", None),
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; b"PING\r\n".len()]).unwrap();
            stream.write_all(format!("{reply}\r\n").as_bytes()).unwrap();
        });
        let output = run(&["ping", &address]);
        server.join().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(reply.trim_start_matches('-')), "{text}");
        match help {
            Some(help) => assert!(text.contains(help), "{text}"),
            None => assert!(!text.contains("help:"), "{text}"),
        }
    }
}

#[test]
fn ping_speaks_for_a_user_and_under_tls() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let key = rcgen::KeyPair::generate().unwrap();
    // As `openssl req -x509` makes them: of an authority that is the server.
    let mut parameters = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = parameters.self_signed(&key).unwrap();
    fs::write(file("cert.pem"), certificate.pem()).unwrap();
    fs::write(file("key.pem"), key.serialize_pem()).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    fs::write(file("other.pem"), other.cert.pem()).unwrap();
    fs::write(file("users"), "monitor read-only password:m n\n").unwrap();
    fs::write(file("password"), "m n\n").unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file("users"), fs::Permissions::from_mode(0o600)).unwrap();
    let (users, cert, key) = (file("users"), file("cert.pem"), file("key.pem"));
    let server = Server::start(&[
        "--users",
        &users,
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--tls-listen",
        "127.0.0.1:0",
    ]);
    let tls = server.wait_for_line("inbloom: TLS at ");
    let tls = tls.rsplit(' ').next().unwrap();
    let plain = server.address.to_string();
    let (password, other) = (file("password"), file("other.pem"));
    let who = ["--user", "monitor", "--password-file", &password];
    let ping = |address: &str, options: &[&str]| {
        let output = run(&[&["ping", address], &who[..], options].concat());
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(ping(&plain, &[]).0, Some(0));
    assert_eq!(ping(tls, &["--tls-ca", &cert]), (Some(0), String::new()));
    assert_eq!(ping(tls, &["--tls-ca", &cert, "--tls-name", "localhost"]).0, Some(0));
    let (code, text) = ping(tls, &["--tls-ca", &other, "--tls-name", "localhost"]);
    assert!(code == Some(1) && text.contains("--tls-ca"), "{text}");
    let (code, text) = ping(tls, &["--tls-ca", &users]);
    assert!(code == Some(1) && text.contains("no certificate in it"), "{text}");
    assert_eq!(ping(tls, &[]).0, Some(1), "it speaks TLS only");
    assert_eq!(run(&["ping", &plain, "--user", "monitor"]).status.code(), Some(1));
    // As the image's health check is told: by the environment.
    let mut check = inbloom(&["ping", tls]);
    check.env("INBLOOM_USER", "monitor").env("INBLOOM_PASSWORD_FILE", &password);
    assert!(check.env("INBLOOM_TLS_CA", &cert).output().unwrap().status.success());
}

#[test]
fn systemd_is_told_when_it_is_ready_reloads_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let listener = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    listener.set_read_timeout(Some(LONG)).unwrap();
    let heard = || {
        let mut bytes = [0; 1000];
        let length = listener.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut command = inbloom(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", &socket);
    let mut server = Server::of(command);
    assert_eq!(heard().trim(), "READY=1");
    server.signal("-HUP");
    let reloading = heard();
    assert!(reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="));
    assert_eq!(heard().trim(), "READY=1");
    server.signal("-TERM");
    assert_eq!(heard().trim(), "STOPPING=1");
    assert!(server.wait().success());
}

#[test]
fn the_unit_is_one_that_systemd_takes() {
    let Some(mut analyze) = program("systemd-analyze", "systemd") else { return };
    let version = Command::new("systemd-analyze").arg("--version").output().unwrap();
    let unit = fs::read_to_string(root().join("packaging/inbloom.service")).unwrap();
    assert_eq!(unit.matches("/usr/bin/inbloom serve").count(), 1);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("inbloom.service");
    // It wants to see the program.
    let here =
        unit.replace("/usr/bin/inbloom serve", concat!(env!("CARGO_BIN_EXE_inbloom"), " serve"));
    fs::write(&file, here).unwrap();
    let output = analyze.arg("verify").arg(&file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let version = String::from_utf8_lossy(&version.stdout);
    assert!(output.status.success() && text.is_empty(), "{text}\n{version}");
}

/// Options in files that nobody here can run: the program must know them.
#[test]
fn the_unit_starts_a_server() {
    let unit = fs::read_to_string(root().join("packaging/inbloom.service")).unwrap();
    let start =
        unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/inbloom ")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = root().join("packaging/inbloom.conf");
    let words: Vec<String> = start
        .split(' ')
        .map(|word| match word {
            "/etc/inbloom/inbloom.conf" => config.display().to_string(),
            "/var/lib/inbloom" => folder.path().display().to_string(),
            word => word.to_owned(),
        })
        .collect();
    let mut command = inbloom(&words.iter().map(String::as_str).collect::<Vec<_>>());
    command.env("INBLOOM_LISTEN", "127.0.0.1:0");
    assert_eq!(Server::of(command).connect().ask("PING"), "+PONG");
}

#[test]
fn every_setting_shown_in_the_sample_file_is_one() {
    let sample = fs::read_to_string(root().join("packaging/inbloom.conf")).unwrap();
    // Settings stand in lines of two words; what explains them is longer.
    let shown: Vec<&str> = sample
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .filter(|line| line.split(' ').count() == 2)
        .collect();
    assert!(shown.len() > 10, "{shown:#?}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("inbloom.conf");
    fs::write(&file, shown.join("\n").replace(":7380", ":0")).unwrap();
    let server = Server::start(&["--config", file.to_str().unwrap()]);
    let named: BTreeSet<&str> = shown.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert!(named.contains("listen") && named.contains("max-memory"));
    // The values shown are the defaults, but for those that depend on the machine.
    let plain = Server::start(&[]);
    for line in shown {
        let (name, value) = line.split_once(' ').unwrap();
        if !["listen", "http", "threads", "max-memory", "log-level", "log-format"].contains(&name) {
            assert_eq!((server.config(name), plain.config(name)), (value.into(), value.into()));
        }
    }
}

#[test]
fn the_container_starts_a_server_that_its_health_check_finds() {
    let text = fs::read_to_string(root().join("packaging/Dockerfile")).unwrap();
    let words = |instruction: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(instruction)).unwrap();
        serde_json::from_str(&line[line.find('[').unwrap()..]).unwrap()
    };
    let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start)).unwrap();
    assert_eq!(words("ENTRYPOINT "), ["inbloom"]);
    let volume = line("VOLUME ");
    let listen = format!("0.0.0.0:{}", line("EXPOSE "));
    assert!(line("USER ") != "root");
    // What the build takes from the sources, and where it leaves the program.
    assert!(line("RUN cargo build ").contains("--release --locked --package inbloom-cli"));
    assert!(root().join("Cargo.lock").exists() && root().join("crates/inbloom-cli").exists());
    assert!(line("COPY --from=build ").starts_with("/source/target/release/inbloom "));

    let folder = tempfile::tempdir().unwrap();
    let command: Vec<String> = words("CMD ");
    assert!(command.contains(&listen) && command.iter().any(|word| word == volume), "{command:?}");
    let replaced: Vec<String> = command
        .into_iter()
        .map(|word| if word == listen { "127.0.0.1:0".into() } else { word })
        .map(|word| word.replace(volume, folder.path().to_str().unwrap()))
        .collect();
    let server = Server::of(inbloom(&replaced.iter().map(String::as_str).collect::<Vec<_>>()));
    let check = words("HEALTHCHECK ");
    let [program, ping, address] = &check[..] else { panic!("{check:?}") };
    assert_eq!((&**program, address.rsplit(':').next()), ("inbloom", listen.rsplit(':').next()));
    assert!(run(&[ping, &server.address.to_string()]).status.success());
}
