//! `inbloom top` against a running server: once into a pipe, and live in a terminal.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

use inbloom_testing::program;

use crate::web::Server;

/// Sends commands, a line each, and waits until all are answered.
fn send(server: &Server, commands: &[String]) {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{}", server.port)).unwrap();
    stream.write_all((commands.join("\r\n") + "\r\nPING\r\n").as_bytes()).unwrap();
    let mut replies = Vec::new();
    while !replies.ends_with(b"+PONG\r\n") {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "the server closed the connection");
        replies.extend_from_slice(&bytes[..count]);
    }
    let text = String::from_utf8_lossy(&replies);
    assert!(!text.lines().any(|line| line.starts_with('-')), "{text}");
}

/// Two filters: `small` is nearly full, `large` takes more memory.
fn fill(server: &Server) {
    let keys: Vec<String> = (0..95).map(|key| key.to_string()).collect();
    send(
        server,
        &[
            "BF.RESERVE small 0.01 100 NONSCALING".into(),
            format!("BF.MADD small {}", keys.join(" ")),
            "BF.RESERVE large 0.001 100000".into(),
            "BF.ADD large x".into(),
        ],
    );
}

fn top(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_inbloom")).arg("top").args(arguments).output().unwrap()
}

fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn top_prints_the_list_once_where_there_is_no_terminal() {
    let server = Server::start(&[]);
    fill(&server);
    let text = |arguments: &[&str]| {
        let output = top(arguments);
        assert_eq!(said(&output), (Some(0), String::new()));
        String::from_utf8(output.stdout).unwrap()
    };
    let list = text(&[&server.http]);
    let line = |name: &str| list.lines().position(|line| line.contains(&format!(" {name} ")));
    assert!(line("small").is_some() && line("small") < line("large"), "{list}");
    for part in ["used \u{25bc}", "95.0%", "memory only", "1-2 of 2"] {
        assert!(list.contains(part), "{part} in {list}");
    }
    let list = text(&["--sort", "memory", "--rows", "1", &server.http]);
    assert!(list.contains(" large ") && !list.contains(" small "), "{list}");
    let list = text(&["--search", "MAL", &server.http]);
    assert!(list.contains(" small ") && !list.contains(" large "), "{list}");
    assert!(text(&["--db", "3", &server.http]).contains("no filters in this database"));
}

#[test]
fn top_reports_what_is_wrong_with_an_address_or_a_password() {
    let server = Server::start(&["--password", "secret"]);
    for (arguments, reason) in [
        (vec!["127.0.0.1:1"], "connection refused"),
        (vec!["nonsense"], "not an address like 127.0.0.1:7380"),
        (vec!["https://127.0.0.1"], "does not speak TLS"),
        (vec![&server.http], "login failed"),
        (vec!["--password", "wrong", &server.http], "login failed"),
        (vec!["--user", "default", &server.http], "needs a password"),
    ] {
        let (code, text) = said(&top(&arguments));
        assert!(code == Some(2) && text.contains(reason), "{arguments:?}: {code:?} {text}");
    }
    let resp = format!("127.0.0.1:{}", server.port);
    let (code, text) = said(&top(&[&resp]));
    assert!(code == Some(2) && text.contains("name the --http address"), "{code:?} {text}");
    let output = top(&["--password", "secret", &server.http]);
    assert_eq!(said(&output), (Some(0), String::new()));
}

/// Runs a program in a terminal of 100 columns and 30 rows. Each pair of arguments is a text to wait for, and
/// the keys to press then; a line on standard output follows. Fails if a text does not come, if the program does not end with 0, or if the
/// terminal is not left as it was.
const IN_TERMINAL: &str = r"
import fcntl, os, pty, select, struct, subprocess, sys, termios, time
program, script = sys.argv[1:3], sys.argv[3:]
address = program.pop()
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', 30, 100, 0, 0))
before = termios.tcgetattr(slave)
child = subprocess.Popen([program[0], 'top', address], stdin=slave, stdout=slave, stderr=slave)
seen = ''
for text, keys in zip(script[::2], script[1::2]):
    end = time.monotonic() + 60
    while text not in seen:
        assert time.monotonic() < end, f'no {text!r} in {seen!r}'
        if select.select([master], [], [], 1)[0]:
            seen += os.read(master, 65536).decode()
    # What comes after the keys is what they did.
    seen = ''
    os.write(master, keys.encode())
    print(text, flush=True)
assert child.wait(60) == 0, child.returncode
assert termios.tcgetattr(slave) == before, 'the terminal is changed'
while select.select([master], [], [], 0)[0]:
    seen += os.read(master, 65536).decode()
assert seen.endswith('\x1b[?25h\x1b[?1049l'), seen
";

#[test]
fn top_is_live_in_a_terminal_and_leaves_it_as_it_was() {
    let Some(mut python) = program("python3", "python3") else { return };
    let server = Server::start(&[]);
    fill(&server);
    let script = [
        ("1-2 of 2", "m"),
        ("memory \u{25bc}", "/sma"),
        ("Search: sma", "\r"),
        ("1-1 of 1", "\r"),
        ("95 of 100, 95.0% used", "t"),
        ("24 hours", "\x1b"),
        ("with 'sma'", "h"),
        ("commands by time", "h"),
        ("with 'sma'", "q"),
    ];
    let words = script.iter().flat_map(|(text, keys)| [*text, *keys]);
    let output = python
        .args(["-c", IN_TERMINAL, env!("CARGO_BIN_EXE_inbloom"), &server.http])
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn top_shows_a_filter_changing_and_ends_with_control_c() {
    let Some(mut python) = program("python3", "python3") else { return };
    let server = Server::start(&[]);
    fill(&server);
    let mut terminal = python
        .args(["-c", IN_TERMINAL, env!("CARGO_BIN_EXE_inbloom"), &server.http])
        .args(["1-2 of 2", "", "2.00k", "", "no reply for", "\x03"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut steps = BufReader::new(terminal.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(steps.next().as_deref(), Some("1-2 of 2"));
    let keys: Vec<String> = (0..1999).map(|key| key.to_string()).collect();
    send(&server, &[format!("BF.MADD large {}", keys.join(" "))]);
    let _ = steps.next();
    drop(server);
    let output = terminal.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
