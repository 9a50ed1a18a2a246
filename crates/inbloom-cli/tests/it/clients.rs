//! Real clients talk to the real server: redis-cli, redis-py, node-redis, ioredis and redis-rs, each in
//! its newest version and with its defaults. `scripts/clients` installs them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

/// A server of its own for each test, on a free port of the loopback, ended when dropped.
pub struct Server {
    process: Child,
    pub port: u16,
}

impl Server {
    pub fn start(options: &[&str]) -> Server {
        let mut process = Command::new(env!("CARGO_BIN_EXE_inbloom"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let line = lines.next().expect("a line when it is ready").unwrap();
        let port = line.rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("expected an address, got {line:?}"));
        // Nobody may be kept waiting by a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Server { process, port }
    }

    /// What redis-cli prints for a line of words.
    pub fn cli(&self, line: &str) -> String {
        let words = line.split(' ');
        let output = Command::new("redis-cli")
            .args(["-p", &self.port.to_string()])
            .args(words)
            .output()
            .expect("redis-cli, which scripts/clients installs");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The folder of the installed clients. Tests run at once, and one installs for all.
pub fn clients() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let ran = Command::new(root().join("scripts/clients")).output().unwrap();
        assert!(ran.status.success(), "scripts/clients: {}", String::from_utf8_lossy(&ran.stderr));
        root().join("target/clients")
    })
}

pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

pub fn check(output: Output, expected: &str) {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains(expected), "{out}\n{err}");
}

/// The dialogue that people begin with.
#[test]
fn redis_cli_talks_as_it_does_to_redisbloom() {
    clients();
    let server = Server::start(&[]);
    let dialogue = [
        ("bf.add code user1", "1"),
        ("bf.add code user2", "1"),
        ("bf.add code user3", "1"),
        ("bf.exists code user1", "1"),
        ("bf.exists code user4", "0"),
        ("bf.madd code user4 user5 user6", "1\n1\n1"),
        ("bf.mexists code user4 user5 user6 user7", "1\n1\n1\n0"),
        ("bf.madd code user7 user8 user9", "1\n1\n1"),
        ("bf.mexists code user7 user9 user10", "1\n1\n0"),
        ("type code", "MBbloom--"),
        ("bf.reserve code 0.001 50000", "ERR item exists"),
        ("del code", "1"),
        ("bf.reserve code 0.001 50000", "OK"),
        ("bf.info code capacity", "50000"),
        ("set code x", "ERR unknown command 'set', with args beginning with: 'code' 'x'"),
    ];
    for (line, expected) in dialogue {
        assert_eq!(server.cli(line), expected, "{line}");
    }
    // Its own RESP3, its pipe mode, and what it does for --bigkeys and --stat.
    assert_eq!(server.cli("-3 bf.add code user1"), "(true)");
    let mut pipe = Command::new("redis-cli")
        .args(["-p", &server.port.to_string(), "--pipe"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: String = (0..1000).map(|i| format!("BF.ADD piped key:{i}\r\n")).collect();
    pipe.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    check(pipe.wait_with_output().unwrap(), "errors: 0, replies: 1000");
    assert!(server.cli("--bigkeys").contains("Sampled 2 keys in the keyspace"));
    assert!(server.cli("--memkeys").contains("Sampled 2 keys in the keyspace"));
    assert!(server.cli("command docs bf.add").contains("Adds an item to a filter"));
}

#[test]
fn redis_py_works_with_its_defaults() {
    let python = clients().join("python/bin/python");
    let server = Server::start(&[]);
    let script = script("redis_py.py");
    let output = Command::new(python).arg(script).arg(server.port.to_string()).output().unwrap();
    check(output, "ok");
}

#[test]
fn node_redis_and_ioredis_work_with_their_defaults() {
    let folder = clients();
    let server = Server::start(&[]);
    for name in ["node_redis.mjs", "ioredis.mjs"] {
        let output = Command::new("node")
            .arg(script(name))
            .arg(server.port.to_string())
            .current_dir(folder)
            .output()
            .unwrap();
        check(output, "ok");
    }
}

#[test]
fn redis_rs_works_in_both_protocols() {
    let server = Server::start(&[]);
    for protocol in ["resp2", "resp3"] {
        let url = format!("redis://127.0.0.1:{}/?protocol={protocol}", server.port);
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let key = format!("rs:{protocol}");
        let reserved: String =
            redis::cmd("BF.RESERVE").arg(&key).arg(0.001).arg(1000).query(&mut connection).unwrap();
        assert_eq!(reserved, "OK");
        let added: Vec<bool> =
            redis::cmd("BF.MADD").arg(&key).arg(&["a", "b", "a"]).query(&mut connection).unwrap();
        assert_eq!(added, [true, true, false]);
        let mut pipeline = redis::pipe();
        for i in 0..1000 {
            pipeline.cmd("BF.ADD").arg(&key).arg(format!("key:{i}"));
        }
        let added: Vec<bool> = pipeline.query(&mut connection).unwrap();
        assert!(added.iter().filter(|new| **new).count() >= 990);
        let (found, count): (bool, u64) = redis::pipe()
            .atomic()
            .cmd("BF.EXISTS")
            .arg(&key)
            .arg("a")
            .cmd("BF.CARD")
            .arg(&key)
            .query(&mut connection)
            .unwrap();
        assert!(found && count > 990);
    }
}

/// The replayer of the recordings, against a server with sockets; the list of improvements is kept by the
/// test of the command layer.
#[test]
fn the_replayer_finds_only_improvements() {
    let server = Server::start(&[]);
    let folder = root().join("crates/inbloom-server/tests/redisbloom");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder.join("transcripts"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let output = Command::new("python3")
        .arg(folder.join("replay.py"))
        .args(["--port", &server.port.to_string()])
        .args(files)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let improvements = std::fs::read_to_string(folder.join("improvements.txt")).unwrap();
    let listed: usize = improvements
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let range = line.split(' ').nth(1).unwrap();
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            last.parse::<usize>().unwrap() - first.parse::<usize>().unwrap() + 1
        })
        .sum();
    assert!(text.contains(&format!("TOTAL 1332 commands, {listed} differ")), "{text}");
}

/// Parquet files that pyarrow writes: inbloom and DuckDB exclude the same row groups.
#[test]
fn row_groups_of_parquet_files_are_those_that_duckdb_finds() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(clients().join("python/bin/python"))
        .arg(script("parquet.py"))
        .arg(env!("CARGO_BIN_EXE_inbloom"))
        .arg(folder.path())
        .output()
        .unwrap();
    check(output, "45 keys");
}

/// The Parquet file of docs/interop.md, and the commands that the page has for it.
#[test]
fn the_documented_parquet_file_is_asked_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let python = clients().join("python/bin/python");
    let written = Command::new(python)
        .args(["-c", &crate::foreign::documented("python")])
        .current_dir(folder.path())
        .output()
        .unwrap();
    check(written, "");
    let run = |command: &str, input: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_inbloom"))
            .args(command.split(' '))
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{command}");
        String::from_utf8(output.stdout).unwrap()
    };
    let info = run("info part.parquet", "");
    assert!(info.starts_with("1,000 rows in 2 row groups, 2 columns, 4 filters"), "{info}");
    let found = run("check --column id -F *.parquet", "300\n");
    assert_eq!(found, "part.parquet: 1 of 2 row groups\n");
    run("build -o ids.ib --column id part.parquet", "");
    assert_eq!(run("check ids.ib", "300\n2997\n"), "300\n2997\n");
    run("build -o names.ib --column name part.parquet", "");
    assert_eq!(run("check names.ib", "user 0\nuser 999\n"), "user 0\nuser 999\n");
    run("convert part.parquet#id/0 id.sbbf --to parquet", "");
    assert_eq!(run("check id.sbbf --key-encoding i64le", "300\n"), "300\n");
}

/// A filter that was built here as a file of commands, loaded by redis-cli and asked over the protocol; and
/// back, as a payload of DUMP.
#[test]
fn redis_cli_loads_a_file_of_commands_and_dumps_it_again() {
    clients();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let run = |arguments: &[&str], input: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_inbloom"))
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let keys: String = (0..1000).map(|number| format!("key-{number}\n")).collect();
    let build = [
        "build",
        "--format",
        "redisbloom",
        "--variant",
        "commands",
        "-n",
        "1000",
        "-o",
        "seen.resp",
    ];
    assert!(run(&build, &keys).status.success());

    let server = Server::start(&[]);
    let port = server.port.to_string();
    let stream = std::fs::File::open(path("seen.resp")).unwrap();
    let piped =
        Command::new("redis-cli").args(["-p", &port, "--pipe"]).stdin(stream).output().unwrap();
    check(piped, "errors: 0");
    assert_eq!(server.cli("KEYS *"), "inbloom");
    assert_eq!(server.cli("BF.MEXISTS inbloom key-0 key-999 other"), "1\n1\n0");
    assert_eq!(server.cli("BF.ADD inbloom one-more"), "1");

    let dump =
        Command::new("redis-cli").args(["-p", &port, "--raw", "DUMP", "inbloom"]).output().unwrap();
    // redis-cli ends what it prints with a line feed.
    std::fs::write(path("seen.dump"), dump.stdout.strip_suffix(b"\n").unwrap()).unwrap();
    let found = run(&["check", "seen.dump"], "key-5\none-more\nother\n");
    check(found, "key-5\none-more\n");
}
