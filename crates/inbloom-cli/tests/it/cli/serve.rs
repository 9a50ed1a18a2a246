//! `inbloom serve`: options about access and limits, as they reach the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStderr};

use crate::cli::folder::Folder;

/// A running server, ended when dropped.
struct Server {
    process: Child,
    /// What it said up to the line that tells that it is ready.
    said: String,
    port: u16,
    _errors: BufReader<ChildStderr>,
}

impl Server {
    fn start(folder: &Folder, options: &str) -> Server {
        let mut process = folder.command(&format!("serve {options}")).spawn().unwrap();
        let mut errors = BufReader::new(process.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("inbloom: ready") {
            assert_ne!(errors.read_line(&mut said).unwrap(), 0, "it ended: {said}");
        }
        let port = said.trim_end().rsplit(':').next().unwrap().parse().unwrap();
        Server { process, said, port, _errors: errors }
    }

    /// What it answers to lines, `/` for the ends of lines.
    fn say(&self, lines: &[&str]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        for line in lines {
            stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        }
        stream.write_all(b"QUIT\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply.replace("\r\n", "/")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write_secret(folder: &Folder, name: &str, text: &str, mode: u32) {
    folder.write(name, text);
    std::fs::set_permissions(folder.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn every_limit_of_the_options_is_that_of_config_get() {
    let folder = Folder::new();
    let server = Server::start(
        &folder,
        "--listen 127.0.0.1:0 --max-memory 64MiB --max-filter 1MiB --max-clients 7 \
         --max-client-memory 2MiB --max-argument 3MiB --max-request 4MiB --max-multi 5000 \
         --timeout 300 --write-timeout 9 --no-protected-mode",
    );
    for (name, value) in [
        ("maxmemory", "67108864"),
        ("max-filter", "1048576"),
        ("maxclients", "7"),
        ("maxmemory-clients", "2097152"),
        ("proto-max-bulk-len", "3145728"),
        ("client-query-buffer-limit", "4194304"),
        ("max-multi", "5000"),
        ("timeout", "300"),
        ("write-timeout", "9"),
        ("protected-mode", "no"),
    ] {
        let expected = format!("*2/${}/{name}/${}/{value}/+OK/", name.len(), value.len());
        assert_eq!(server.say(&[&format!("CONFIG GET {name}")]), expected);
    }
    for options in ["--max-argument 1000", "--max-request 5GiB", "--timeout -1", "--max-clients 0"]
    {
        let refused = folder.run(&format!("serve --listen 127.0.0.1:0 {options}"));
        assert_eq!(refused.code, 2, "{options}: {}", refused.stderr);
    }
}

#[test]
fn users_of_a_file_log_in_and_what_is_wrong_with_it_is_said_at_the_start() {
    let folder = Folder::new();
    write_secret(&folder, "users", "default off\nann read-only password:a b\n", 0o600);
    let server = Server::start(&folder, "--listen 127.0.0.1:0 --users users");
    assert_eq!(
        server.say(&["PING", "AUTH ann 'a b'", "PING", "BF.ADD f x"]),
        "-NOAUTH Authentication required./+OK/+PONG/-NOPERM User ann has no permissions to run the \
         'bf.add' command/+OK/"
    );
    for (text, mode, options, expected) in [
        ("ann admin nopass", 0o644, "", "chmod 600"),
        ("ann", 0o600, "", "line 1: user 'ann' has no role"),
        ("default admin password:x", 0o600, "--password y", "leave one of them out"),
        ("default off\nann admin nopass", 0o600, "--password y", "leave one of them out"),
    ] {
        write_secret(&folder, "wrong", text, mode);
        let refused = folder.run(&format!("serve --listen 127.0.0.1:0 --users wrong {options}"));
        assert_eq!(refused.code, 2);
        assert!(refused.stderr.contains(expected), "{expected}: {}", refused.stderr);
    }
}

#[test]
fn keyed_hashing_needs_a_secret_that_lasts() {
    let folder = Folder::new();
    let refused = folder.run("serve --listen 127.0.0.1:0 --keyed");
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("--key-file"), "{}", refused.stderr);
    folder.write("key", "000102030405060708090a0b0c0d0e0f\n");
    folder.write("keys", "alice\n");
    folder.run("build --key-file key -o keyed.ib keys").expect(0);
    // The same secret finds what the command line has built, and another one is refused.
    let open = "IB.OPEN f keyed.ib";
    let options = "--listen 127.0.0.1:0 --import-dir . --keyed --key-file";
    let server = Server::start(&folder, &format!("{options} key"));
    assert_eq!(server.say(&[open, "BF.EXISTS f alice", "BF.EXISTS f bob"]), "+OK/:1/:0/+OK/");
    folder.write("other", "ff0102030405060708090a0b0c0d0e0f\n");
    let server = Server::start(&folder, &format!("{options} other"));
    assert!(server.say(&[open]).starts_with("-ERR "), "{}", server.say(&[open]));
}

#[test]
fn tls_needs_a_certificate_and_its_key() {
    let folder = Folder::new();
    folder.write("text", "no PEM");
    for (options, expected) in [
        ("--tls-cert text", "--tls-key"),
        ("--tls-key text", "--tls-cert"),
        ("--tls-listen 127.0.0.1:0", "--tls-cert"),
        ("--tls-cert text --tls-key text", "BEGIN CERTIFICATE"),
        ("--tls-cert none --tls-key text", "--tls-cert none"),
    ] {
        let refused = folder.run(&format!("serve --listen 127.0.0.1:0 {options}"));
        assert_eq!(refused.code, 2, "{options}");
        assert!(refused.stderr.contains(expected), "{options}: {}", refused.stderr);
    }
}

#[test]
fn an_address_for_other_machines_is_warned_of_unless_there_is_a_password() {
    let folder = Folder::new();
    for (options, expected) in [
        ("", "refused (protected mode)\nhelp: set --password or --users"),
        ("--no-protected-mode", "need no password\nhelp: set --password or --users"),
    ] {
        let server = Server::start(&folder, &format!("--listen 0.0.0.0:0 {options}"));
        assert!(server.said.contains(expected), "{options}: {}", server.said);
    }
    for options in ["--listen 0.0.0.0:0 --password x", "--listen 127.0.0.1:0"] {
        let server = Server::start(&folder, options);
        assert!(!server.said.contains("warning"), "{options}: {}", server.said);
    }
}

/// Returns the path of the only file of the log.
fn log_of(folder: &Folder, dir: &str) -> std::path::PathBuf {
    let files = std::fs::read_dir(folder.path(dir)).unwrap().map(|entry| entry.unwrap().path());
    let is_log =
        |path: &std::path::PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("log-");
    files.filter(is_log).max().unwrap()
}

#[test]
fn a_check_says_what_a_start_would_do_and_never_asks_for_a_repair_that_is_not_needed() {
    let folder = Folder::new();
    let server = Server::start(&folder, "--listen 127.0.0.1:0 --dir data --fsync always");
    assert_eq!(server.say(&["BF.ADD f a", "BF.ADD f b"]), ":1/:1/+OK/");
    drop(server); // Killed.
    let log = log_of(&folder, "data");
    let sound = std::fs::read(&log).unwrap();

    std::fs::write(&log, [&sound, &b"\x10\0\0\0x"[..]].concat()).unwrap();
    let torn = folder.run("serve --check data");
    let text = "log: would drop 5 trailing bytes (an incomplete record, not acknowledged or not yet \
                synced)";
    assert_eq!(torn.code, 0, "{}", torn.stderr);
    assert!(torn.stderr.contains(text), "{}", torn.stderr);

    // Whole records behind the tear.
    std::fs::write(&log, [&sound, &b"\x10\0\0\0x"[..], &sound[32..]].concat()).unwrap();
    let damaged = folder.run("serve --check data");
    assert_eq!(damaged.code, 2, "{}", damaged.stderr);
    assert!(damaged.stderr.contains("damaged (would be set aside): log-"), "{}", damaged.stderr);
    assert!(!damaged.stderr.contains("trailing"), "{}", damaged.stderr);
    assert!(damaged.stderr.contains("start the server without --repair"), "{}", damaged.stderr);
    // As it says.
    let server = Server::start(&folder, "--listen 127.0.0.1:0 --dir data");
    assert!(server.said.contains("damaged (set aside): log-"), "{}", server.said);
    assert_eq!(server.say(&["BF.EXISTS f b"]), ":1/+OK/");
}
