//! Who is let in, who may do what, and what nobody may see.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::{Client, request};
use crate::sockets::{Answer, Running};
use inbloom::SecretKey;
use inbloom_server::command_table::{self, commands};
use inbloom_server::session::Place;
use inbloom_server::tls::TlsError;
use inbloom_server::users::{Class, UsersError};
use inbloom_server::{Config, Listeners, Server, Tls, Users};
use inbloom_testing::program;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

const USERS: &str = "\
# name  role        password
default off
reader  read-only   password:r
writer  read-write  password:w
boss    admin       sha256:d6f6ba45c8f02c878f7bc40f60f7d1eb7c9f2e1ae5e6cd8b7a6ef5b6f9e7b3ad
owner   admin       password:o
";

fn users_file(folder: &TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("users");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

fn config(folder: &TempDir) -> Config {
    let users = Users::load(&users_file(folder, USERS)).unwrap();
    Config { threads: 1, users, ..Config::default() }
}

/// A connection of a user whose password is the first letter of its name.
fn login<'s>(server: &'s Server, user: &str) -> Client<'s> {
    let mut client = Client::new(server);
    assert_eq!(client.say(&format!("AUTH {user} {}", &user[..1])), "+OK\r\n");
    client
}

#[test]
fn nobody_may_do_anything_before_auth() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(config(&folder));
    let mut client = Client::new(&server);
    client.check(&[
        ("BF.ADD f x", "-NOAUTH Authentication required./"),
        ("PING", "-NOAUTH Authentication required./"),
        ("ACL WHOAMI", "-NOAUTH Authentication required./"),
        ("AUTH r", "-WRONGPASS invalid username-password pair or user is disabled./"),
        ("AUTH default r", "-WRONGPASS invalid username-password pair or user is disabled./"),
        ("AUTH reader w", "-WRONGPASS invalid username-password pair or user is disabled./"),
        ("AUTH nobody r", "-WRONGPASS invalid username-password pair or user is disabled./"),
        ("AUTH reader r", "+OK/"),
        ("ACL WHOAMI", "$6/reader/"),
        ("AUTH writer x", "-WRONGPASS invalid username-password pair or user is disabled./"),
        ("ACL WHOAMI", "$6/reader/"),
        ("AUTH writer w", "+OK/"),
        ("ACL WHOAMI", "$6/writer/"),
        ("RESET", "+RESET/"),
        ("PING", "-NOAUTH Authentication required./"),
    ]);
    assert!(client.say("HELLO 3 AUTH owner o").starts_with("%7\r\n"));
    let info = client.say("INFO stats");
    assert!(info.contains("acl_access_denied_auth:5\r\n"), "{info}");
    assert!(client.say("CLIENT LIST").contains(" user=owner "));
}

#[test]
fn a_role_runs_the_commands_of_its_class_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(config(&folder));
    let rows = commands().flat_map(|row| match row.subcommands {
        [] => std::slice::from_ref(row),
        rows => rows,
    });
    let mut refused = 0;
    for row in rows {
        let mut words: Vec<&str> = row.name.split('|').collect();
        words.resize(words.len().max(row.arity.unsigned_abs() as usize), "1");
        for (user, most) in [("reader", Class::Read), ("writer", Class::Write)] {
            let mut client = login(&server, user);
            let mut out = Vec::new();
            client.session.process(&server, &request(&words), &mut out, Place::Own);
            let reply = String::from_utf8_lossy(&out);
            let text = format!(
                "-NOPERM User {user} has no permissions to run the '{}' command\r\n",
                row.name
            );
            assert_eq!(reply == text, row.class() > most, "{user} said {words:?}: {reply}");
            refused += usize::from(reply == text);
        }
    }
    assert!(refused > 60, "{refused}");
    let info = login(&server, "owner").say("INFO stats");
    assert!(info.contains(&format!("acl_access_denied_cmd:{refused}\r\n")), "{refused} {info}");
}

#[test]
fn dangerous_commands_are_for_admins() {
    let lines = [
        "BF.LOADCHUNK f 1 x",
        "CF.LOADCHUNK f 1 x",
        "RESTORE f 0 x",
        "IB.OPEN f x",
        "IB.SAVE f x",
        "SHUTDOWN",
        "CONFIG SET timeout 1",
        "FLUSHALL",
        "FLUSHDB",
        "CLIENT KILL ID 1",
        "CLIENT LIST",
        "DEBUG SLEEP 0",
        "SLOWLOG RESET",
        "SAVE",
        "BGSAVE",
        "ACL LIST",
    ];
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(config(&folder));
    for line in lines {
        let reply = login(&server, "writer").say(line);
        assert!(reply.starts_with("-NOPERM User writer has no permissions"), "{line}: {reply}");
        let reply = login(&server, "owner").say(line);
        assert!(!reply.starts_with("-NOPERM"), "{line}: {reply}");
    }
    // Who is not told apart from others may do everything, as in Redis.
    let open = Server::new(Config::default());
    for line in ["FLUSHALL", "CONFIG SET timeout 1", "SLOWLOG RESET"] {
        assert_eq!(Client::new(&open).say(line), "+OK\r\n", "{line}");
    }
}

#[test]
fn a_reader_adds_nothing_alone_in_a_pipeline_or_in_a_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(config(&folder));
    login(&server, "writer").check(&[("BF.ADD f x", ":1/")]);
    let mut reader = login(&server, "reader");
    let add = "-NOPERM User reader has no permissions to run the 'bf.add' command\r\n";
    let mut pipeline = Vec::new();
    for words in [["BF.EXISTS", "f", "x"], ["BF.ADD", "f", "y"], ["BF.ADD", "f", "z"]] {
        pipeline.extend(request(&words));
    }
    assert_eq!(reader.send(&pipeline).0, format!(":1\r\n{add}{add}"));
    reader.check(&[
        ("MULTI", "+OK/"),
        ("BF.EXISTS f y", "+QUEUED/"),
        ("BF.ADD f y", &add.replace("\r\n", "/")),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors./"),
        ("BF.CARD f", ":1/"),
    ]);
    let stats = login(&server, "owner").say("INFO commandstats");
    let line = stats.lines().find(|line| line.starts_with("cmdstat_bf.add:")).unwrap();
    assert!(line.starts_with("cmdstat_bf.add:calls=1,"), "{line}");
    assert!(line.ends_with(",rejected_calls=3,failed_calls=0"), "{line}");
}

#[test]
fn acl_tells_the_users_and_what_they_may_and_no_password() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(&folder);
    config.settings.require_pass = String::new();
    let server = Server::new(config);
    let mut owner = login(&server, "owner");
    let list = owner.say("ACL LIST");
    for line in [
        "user default off ~* &* -@all\r\n",
        "user reader on ~* &* -@all +@read-only\r\n",
        "user writer on ~* &* -@all +@read-write\r\n",
        "user owner on ~* &* +@all\r\n",
    ] {
        assert!(list.contains(line), "{line} {list}");
    }
    assert!(!list.contains("d6f6ba45"), "{list}");
    assert_eq!(owner.say("ACL USERS").matches('$').count(), 5);
    assert!(!owner.say("ACL GETUSER boss").contains("d6f6ba45"));
    let may = owner.say("ACL CAT read-only");
    assert!(may.contains("\r\nbf.exists\r\n") && !may.contains("\r\nbf.add\r\n"), "{may}");

    let mut config = Config::default();
    config.settings.require_pass = "hunter2".into();
    let server = Server::new(config);
    let mut client = Client::new(&server);
    assert_eq!(client.say("AUTH hunter2"), "+OK\r\n");
    client.say("CONFIG SET slowlog-log-slower-than 0");
    client.say("AUTH hunter2");
    client.say("HELLO 2 AUTH default hunter2");
    client.say("CONFIG SET requirepass hunter2");
    for line in ["CONFIG GET *", "SLOWLOG GET", "ACL LIST", "ACL GETUSER default", "CLIENT LIST"] {
        let reply = client.say(line);
        assert!(reply.len() > 20 && !reply.contains("hunter2"), "{line}: {reply}");
    }
}

#[test]
fn a_users_file_that_others_can_read_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = users_file(&folder, USERS);
    for mode in [0o644, 0o602, 0o620, 0o604] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let error = Users::load(&path).unwrap_err();
        assert!(matches!(error, UsersError::Mode { .. }), "{error}");
        assert!(error.to_string().contains("run 'chmod 600"), "{error}");
    }
    for mode in [0o600, 0o400, 0o640] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert!(Users::load(&path).is_ok(), "{mode:o}");
    }
}

/// Whether the server ends a connection within some seconds.
fn is_ended(client: &mut crate::sockets::Client) -> bool {
    client.stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    matches!(client.stream.read(&mut [0; 64]), Ok(0))
}

#[test]
fn reading_the_users_again_ends_the_connections_of_those_who_changed() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(config(&folder));
    let mut clients: Vec<crate::sockets::Client> = ["reader r", "writer w", "owner o"]
        .map(|user| {
            let mut client = running.connect();
            assert_eq!(client.call(&format!("AUTH {user}")), Answer::Simple("OK".into()));
            client
        })
        .into();
    // What is wrong changes nothing.
    users_file(&folder, "reader");
    let error = running.server.reload_users().unwrap_err().to_string();
    assert!(error.contains("line 1: user 'reader' has no role"), "{error}");
    for client in &mut clients {
        assert_eq!(client.call("PING"), Answer::Simple("PONG".into()));
    }
    users_file(
        &folder,
        "writer read-only password:w\nowner admin password:o # new\nnew admin nopass",
    );
    assert_eq!(running.server.reload_users().unwrap(), 3, "one is gone, one demoted, one renamed");
    for client in &mut clients {
        assert!(is_ended(client));
    }
    users_file(&folder, "writer read-only password:w\nnew admin nopass");
    let mut client = running.connect();
    assert_eq!(client.call("AUTH writer w"), Answer::Simple("OK".into()));
    assert_eq!(running.server.reload_users().unwrap(), 0);
    assert_eq!(client.call("PING"), Answer::Simple("PONG".into()));
    assert!(matches!(running.connect().call("AUTH reader r"), Answer::Error(_)));
    let error = Server::new(Config::default()).reload_users().unwrap_err().to_string();
    assert!(error.contains("--users"), "{error}");
}

#[test]
fn protected_mode_is_for_strangers_where_nobody_needs_a_password() {
    let (here, there): (IpAddr, IpAddr) =
        ("127.0.0.1".parse().unwrap(), "198.51.100.7".parse().unwrap());
    let open = Server::new(Config::default());
    assert!(open.is_protected_from(there, None));
    for address in [here, "127.8.9.1".parse().unwrap(), "::1".parse().unwrap()] {
        assert!(!open.is_protected_from(address, None));
    }
    let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
    assert!(!open.is_protected_from(mapped, None), "a mapped loopback");
    assert!(open.is_protected_from("2001:db8::1".parse().unwrap(), None));
    // The machine's own address at both ends, also if one is written as a mapped one.
    assert!(!open.is_protected_from(there, Some(there)));
    assert!(!open.is_protected_from("::ffff:198.51.100.7".parse().unwrap(), Some(there)));
    assert!(open.is_protected_from(there, Some("198.51.100.8".parse().unwrap())));
    let mut client = Client::new(&open);
    for (line, is_protected) in [
        ("CONFIG SET protected-mode no", false),
        ("CONFIG SET protected-mode yes", true),
        ("CONFIG SET requirepass x", false),
    ] {
        assert_eq!(client.say(line), "+OK\r\n");
        assert_eq!(open.is_protected_from(there, None), is_protected, "{line}");
    }
    let folder = tempfile::tempdir().unwrap();
    assert!(!Server::new(config(&folder)).is_protected_from(there, None));
}

/// The address by which this machine reaches others, if it has one. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.7:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn protected_mode_serves_clients_of_this_machine_only() {
    // A machine without a network has only loopback addresses, which are served by a simpler rule. The
    // rule for others has a test of its own, above.
    let outside = own_address().unwrap_or([127, 0, 0, 2].into());
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let running = Running::listen(Config { threads: 1, ..Config::default() }, listener);
    let port = running.address.port();
    // By another address of the machine, which is the address of both ends.
    let mut own = crate::sockets::Client::connect((outside, port).into());
    assert_eq!(own.call("PING"), Answer::Simple("PONG".into()));
    // As from another machine: the two ends have different addresses.
    let text = running.server.refusal([198, 51, 100, 7].into(), Some(outside)).unwrap();
    let text = String::from_utf8(text.into_owned()).unwrap();
    assert!(text.starts_with("-DENIED ") && text.ends_with("\r\n"), "{text}");
    for option in ["--password", "--users", "--no-protected-mode"] {
        assert!(text.contains(option), "{option}: {text}");
    }
    assert_eq!(text.matches("\r\n").count(), 1, "one line: {text}");
    let mut here = crate::sockets::Client::connect(([127, 0, 0, 1], port).into());
    assert_eq!(here.call("CONFIG SET protected-mode no"), Answer::Simple("OK".into()));
    assert_eq!(running.server.refusal([198, 51, 100, 7].into(), Some(outside)), None);
}

/// A certificate for localhost, and its files.
struct Certificate {
    folder: TempDir,
    made: CertifiedKey<KeyPair>,
}

impl Certificate {
    fn new() -> Certificate {
        let folder = tempfile::tempdir().unwrap();
        let made =
            generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        Certificate { folder, made }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn tls(&self) -> Tls {
        Tls::from_files(&self.file("cert.pem"), &self.file("key.pem")).unwrap()
    }

    fn connect(&self, port: u16) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.made.cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(connection, TcpStream::connect(("127.0.0.1", port)).unwrap())
    }
}

/// A server in the clear and under TLS, and the port of the latter.
fn start_tls(certificate: &Certificate) -> (Running, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = plain.local_addr().unwrap();
    let listeners = Listeners { plain: Some(plain), tls: Some((listener, certificate.tls())) };
    let config = Config { threads: 1, ..Config::default() };
    (Running::listen_all(config, listeners, address), port)
}

#[test]
fn a_client_under_tls_is_answered_as_one_in_the_clear() {
    let certificate = Certificate::new();
    let (running, port) = start_tls(&certificate);
    let mut stream = certificate.connect(port);
    stream.write_all(&request(&["BF.ADD", "f", "x"])).unwrap();
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b":1\r\n");
    assert_eq!(running.connect().call("BF.EXISTS f x"), Answer::Integer(1));

    // Replies of many records, to a client that reads them late.
    let long = "x".repeat(3 << 20);
    let mut pipeline = request(&["ECHO", &long]);
    pipeline.extend(request(&["PING"]));
    stream.write_all(&pipeline).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let expected = format!("${}\r\n{long}\r\n+PONG\r\n", long.len());
    let mut reply = vec![0; expected.len()];
    stream.read_exact(&mut reply).unwrap();
    assert!(reply == expected.as_bytes());

    // It is told that the end is one.
    stream.write_all(&request(&["QUIT"])).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"+OK\r\n");
}

#[test]
fn garbage_instead_of_a_handshake_costs_one_connection() {
    let certificate = Certificate::new();
    let (running, port) = start_tls(&certificate);
    for garbage in
        [&request(&["PING"])[..], b"\x16\x03\x01\xff\xff", &[0; 4096], b"GET / HTTP/1.1\r\n"]
    {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut rest = Vec::new();
        // An alert, or nothing at all; never a reply in the clear.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty() || rest[0] == 0x15, "{rest:?}");
    }
    let mut stream = certificate.connect(port);
    stream.write_all(&request(&["PING"])).unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
    let end = Instant::now() + Duration::from_secs(5);
    while running.server.clients.count() > 1 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(running.server.clients.count(), 1, "those who failed are gone");
}

#[test]
fn redis_cli_speaks_tls() {
    if program("redis-cli", "redis-tools").is_none() {
        return;
    }
    let certificate = Certificate::new();
    let (_running, port) = start_tls(&certificate);
    let cli = |words: &[&str]| {
        let ran = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &port.to_string(), "--tls", "--cacert"])
            .arg(certificate.file("cert.pem"))
            .args(words)
            .output()
            .unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        format!("{out}{err}").trim_end().to_owned()
    };
    assert_eq!(cli(&["BF.ADD", "f", "x"]), "1");
    assert_eq!(cli(&["BF.EXISTS", "f", "x"]), "1");
    assert_eq!(cli(&["-3", "BF.EXISTS", "f", "x"]), "(true)");
}

#[test]
fn certificates_that_cannot_be_used_are_refused_by_name() {
    let (certificate, other) = (Certificate::new(), Certificate::new());
    let (cert, key) = (certificate.file("cert.pem"), certificate.file("key.pem"));
    let refused = |cert: &Path, key: &Path| Tls::from_files(cert, key).err().expect("refused");

    let error = refused(&cert, &other.file("key.pem"));
    assert!(matches!(error, TlsError::Pair { .. }), "{error}");
    assert!(error.to_string().contains("pass the key of this certificate"), "{error}");
    let error = refused(&key, &key);
    assert!(matches!(error, TlsError::NoCertificate { .. }), "{error}");
    assert!(error.to_string().contains("BEGIN CERTIFICATE"), "{error}");
    let error = refused(&cert, &cert);
    assert!(matches!(error, TlsError::Key { .. }) && error.to_string().contains("PEM"), "{error}");
    let none = certificate.file("none.pem");
    assert!(refused(&none, &key).to_string().contains("none.pem"));
    assert!(refused(&cert, &none).to_string().contains("none.pem"));
    let bad = certificate.file("bad.pem");
    std::fs::write(&bad, "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n").unwrap();
    assert!(refused(&bad, &key).to_string().contains("bad.pem"));
}

fn keyed(byte: u8, folder: &TempDir) -> Server {
    let key = Some(SecretKey::new([byte; 16]));
    let import_dir = Some(folder.path().canonicalize().unwrap());
    Server::new(Config { key, import_dir, ..Config::default() })
}

/// The bytes that a server answers to words of any bytes.
fn say(server: &Server, words: &[&[u8]]) -> Vec<u8> {
    let mut client = Client::new(server);
    let mut out = Vec::new();
    client.session.process(server, &crate::sockets::request(words), &mut out, Place::Own);
    out
}

/// What is inside a bulk string.
fn bulk(reply: &[u8]) -> &[u8] {
    let end = reply.iter().position(|byte| *byte == b'\n').unwrap();
    &reply[end + 1..reply.len() - 2]
}

#[test]
fn a_dump_is_loaded_under_the_same_secret_only() {
    let folder = tempfile::tempdir().unwrap();
    let (one, same, other) = (keyed(1, &folder), keyed(1, &folder), keyed(2, &folder));
    let open = Server::new(Config::default());
    for (name, reserve) in [("plain", ""), ("kind", "KIND counting"), ("window", "WINDOW 1h")] {
        let line = format!("BF.RESERVE {name} 0.001 1000 {reserve}");
        for server in [&one, &open] {
            assert_eq!(Client::new(server).say(&line), "+OK\r\n");
            assert_eq!(
                Client::new(server).say(&format!("BF.MADD {name} x y")),
                "*2\r\n:1\r\n:1\r\n"
            );
        }
        let dump = say(&one, &[b"DUMP", name.as_bytes()]);
        let restore: [&[u8]; 4] = [b"RESTORE", name.as_bytes(), b"0", bulk(&dump)];
        assert_eq!(say(&same, &restore), b"+OK\r\n", "{name}");
        assert_eq!(Client::new(&same).say(&format!("BF.EXISTS {name} x")), ":1\r\n");
        for server in [&other, &Server::new(Config::default())] {
            let refusal = String::from_utf8(say(server, &restore)).unwrap();
            assert!(refusal.contains("another hash"), "{name}: {refusal}");
            assert!(refusal.contains("--key-file"), "{name}: {refusal}");
        }
        let dump = say(&open, &[b"DUMP", name.as_bytes()]);
        let restore: [&[u8]; 4] = [b"RESTORE", b"unkeyed", b"0", bulk(&dump)];
        let refusal = String::from_utf8(say(&one, &restore)).unwrap();
        assert!(refusal.contains("another hash"), "{name}: {refusal}");
    }
    let header = say(&one, &[b"BF.SCANDUMP", b"plain", b"0"]);
    let header = bulk(&header[header.iter().position(|byte| *byte == b'$').unwrap()..]);
    let refusal = say(&other, &[b"BF.LOADCHUNK", b"plain", b"1", header]);
    assert!(String::from_utf8(refusal).unwrap().contains("another hash"));
    assert_eq!(say(&same, &[b"BF.LOADCHUNK", b"again", b"1", header]), b"+OK\r\n");
}

#[test]
fn a_saved_file_is_opened_under_the_same_secret_only() {
    let folder = tempfile::tempdir().unwrap();
    let (one, same, other) = (keyed(1, &folder), keyed(1, &folder), keyed(2, &folder));
    Client::new(&one).check(&[
        ("BF.RESERVE f 0.001 1000 NONSCALING", "+OK/"),
        ("BF.ADD f x", ":1/"),
        ("IB.SAVE f keyed.ib", "+OK/"),
    ]);
    Client::new(&same).check(&[
        ("IB.OPEN f keyed.ib", "+OK/"),
        ("BF.EXISTS f x", ":1/"),
        ("BF.EXISTS f y", ":0/"),
        ("IB.CHECKANY x f", "*1/$1/f/"),
    ]);
    let refusal = Client::new(&other).say("IB.OPEN f keyed.ib");
    assert!(refusal.contains("secret key"), "{refusal}");
    // A file without a secret says so, and is opened as what it is.
    let import_dir = Some(folder.path().canonicalize().unwrap());
    let open = Server::new(Config { import_dir, ..Config::default() });
    Client::new(&open).check(&[
        ("BF.RESERVE f 0.001 1000 NONSCALING", "+OK/"),
        ("BF.ADD f x", ":1/"),
        ("IB.SAVE f open.ib", "+OK/"),
    ]);
    Client::new(&one).check(&[
        ("IB.OPEN g open.ib", "+OK/"),
        ("BF.EXISTS g x", ":1/"),
        ("IB.CHECKANY x f g", "*2/$1/f/$1/g/"),
    ]);
}

#[test]
fn under_a_secret_other_keys_collide() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other, open) = (keyed(1, &folder), keyed(2, &folder), Server::new(Config::default()));
    // Keys that one server takes for members are crafted by asking it; the others deny them.
    let mut collisions = [0; 3];
    for server in [&one, &other, &open] {
        let mut client = Client::new(server);
        client.check(&[("BF.RESERVE f 0.2 1000 NONSCALING", "+OK/")]);
        for key in 0..1000 {
            client.say(&format!("BF.ADD f member:{key}"));
        }
    }
    let found = |server, key: u32| Client::new(server).say(&format!("BF.EXISTS f stranger:{key}"));
    let crafted: Vec<u32> = (0..2000).filter(|key| found(&open, *key) == ":1\r\n").collect();
    for (at, server) in [&open, &one, &other].into_iter().enumerate() {
        collisions[at] = crafted.iter().filter(|key| found(server, **key) == ":1\r\n").count();
    }
    let [all, first, second] = collisions;
    assert_eq!(all, crafted.len());
    // A fifth by chance; 300 or so are asked for, of which half would be 15 deviations away.
    assert!(all > 100 && first < all / 2 && second < all / 2, "{collisions:?}");
}

#[test]
fn the_table_names_the_class_of_subcommands_apart() {
    let class = |words: &[&str]| {
        let row = command_table::find(words[0].as_bytes()).unwrap();
        let name = words.join("|");
        row.subcommands.iter().find(|row| row.name == name).unwrap().class()
    };
    assert_eq!(class(&["client", "kill"]), Class::Admin);
    assert_eq!(class(&["client", "setname"]), Class::Read);
    assert_eq!(class(&["config", "set"]), Class::Admin);
    assert_eq!(class(&["acl", "whoami"]), Class::Read);
}

/// Sends bytes in two parts, reads until the connection ends, and returns what was replied.
fn exchange(running: &Running, first: &[u8], second: &[u8]) -> String {
    let mut stream = TcpStream::connect(running.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(first).unwrap();
    if !second.is_empty() {
        // So that the server reads the parts one by one, most of the time.
        std::thread::sleep(Duration::from_millis(1));
        // It may have hung up.
        let _ = stream.write_all(second);
    }
    let mut replies = Vec::new();
    let _ = stream.read_to_end(&mut replies);
    String::from_utf8_lossy(&replies).into_owned()
}

#[test]
fn a_request_of_http_is_not_carried_out() {
    let running = Running::start(Config { threads: 1, ..Config::default() });
    let mut client = running.connect();
    assert_eq!(client.call("BF.ADD f x"), Answer::Integer(1));
    let body = "FLUSHALL\r\nQUIT\r\n";
    for head in [
        "POST / HTTP/1.1\r\n",
        "post / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHOST: x\r\n",
        "PUT / HTTP/1.1\r\nAccept: *\r\nHost: x\r\n",
        "*1\r\n$4\r\nPOST\r\n",
    ] {
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        for cut in 0..request.len() {
            let replies =
                exchange(&running, &request.as_bytes()[..cut], &request.as_bytes()[cut..]);
            assert!(!replies.contains("+OK"), "{head:?} cut at {cut}: {replies}");
        }
        assert_eq!(client.call("BF.EXISTS f x"), Answer::Integer(1), "{head:?}");
    }
    // A filter may have that name, and items.
    assert_eq!(client.call("BF.ADD POST Host:"), Answer::Integer(1));
}

#[test]
fn curl_empties_no_server() {
    let running = Running::start(Config { threads: 1, ..Config::default() });
    let mut client = running.connect();
    assert_eq!(client.call("BF.ADD f x"), Answer::Integer(1));
    let url = format!("http://{}/", running.address);
    for method in ["POST", "PUT", "GET"] {
        let Some(mut curl) = program("curl", "curl") else { return };
        curl.args(["-s", "-m", "20", "-X", method, "--data-binary", "FLUSHALL\r\nQUIT\r\n", &url]);
        let output = curl.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!text.contains("+OK"), "{method}: {text}");
        assert_eq!(client.call("BF.EXISTS f x"), Answer::Integer(1), "{method}");
    }
}
