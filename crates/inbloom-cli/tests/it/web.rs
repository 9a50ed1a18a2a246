//! The page in `web/`: rules that its files must keep, and the page of a running server in a real
//! browser. `scripts/browser` installs the browser; where it is missing, the test says so.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use inbloom_testing::{program, skip};

/// What all files of the page may take together.
const BUDGET: u64 = 300_000;

/// Ways to turn text into markup or code. Names and keys are untrusted, so the page uses none of them.
const FORBIDDEN: [&str; 9] = [
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "DOMParser",
    "setHTMLUnsafe",
    "srcdoc",
    "eval(",
    "new Function",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The files of the page, with their names and texts.
fn files() -> Vec<(String, String)> {
    let entries = fs::read_dir(root().join("web")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<(String, String)> = entries
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn the_page_keeps_to_its_budget() {
    let size: u64 = files().iter().map(|(_, text)| text.len() as u64).sum();
    assert!(size <= BUDGET, "the page takes {size} bytes, and may take {BUDGET}");
}

#[test]
fn the_page_turns_no_text_into_markup_or_code() {
    for (name, text) in files() {
        for way in FORBIDDEN {
            assert!(!text.contains(way), "{name} uses {way}");
        }
    }
}

/// The content security policy would refuse both, and a page without a network would miss the second.
#[test]
fn the_page_has_no_inline_code_and_no_foreign_address() {
    for (name, text) in files() {
        // The name of a format, which nobody fetches.
        let text = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!text.contains("://"), "{name} has an address of another place");
        let inline = ["<script>", "<style", " style="].iter().any(|it| text.contains(it));
        assert!(!name.ends_with(".html") || !inline, "{name} has inline script or style");
    }
}

/// The keys of a file of texts, each with the names of the values in it.
fn texts(language: &str) -> Vec<(String, BTreeSet<String>)> {
    let path = root().join("web").join(format!("{language}.js"));
    let source = fs::read_to_string(path).unwrap();
    // An entry may be on two lines: key, then text.
    let mut entries: Vec<(String, BTreeSet<String>)> = Vec::new();
    for line in source.lines().map(str::trim) {
        let key = line.strip_prefix('"').and_then(|rest| rest.split_once("\":"));
        let text = match key {
            Some((key, text)) => {
                entries.push((key.to_owned(), BTreeSet::new()));
                text
            }
            None => line,
        };
        if let Some((_, values)) = entries.last_mut() {
            let names = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
            values.extend(names.map(|(name, _)| name.to_owned()));
        }
    }
    entries
}

#[test]
fn both_languages_have_the_same_texts_with_the_same_values() {
    let (english, chinese) = (texts("en"), texts("zh"));
    assert!(english.len() > 300, "only {} texts found", english.len());
    assert_eq!(english.len(), chinese.len());
    for (ours, theirs) in english.iter().zip(&chinese) {
        assert_eq!(ours, theirs, "en.js and zh.js differ in keys, their order or their values");
    }
}

/// A server with a page, on free ports of the loopback, ended when dropped.
struct Server {
    process: Child,
    port: String,
    http: String,
}

impl Server {
    fn start(options: &[&str]) -> Server {
        // The port of the page is known before the server has one: the kernel's choice, given back.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let http = free.local_addr().unwrap().to_string();
        drop(free);
        let mut process = Command::new(env!("CARGO_BIN_EXE_inbloom"))
            .args(["serve", "--listen", "127.0.0.1:0", "--http", &http])
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let ready = lines.find_map(|line| {
            let line = line.unwrap();
            line.contains("ready at").then_some(line)
        });
        let ready = ready.expect("a line when it is ready");
        let port = ready.rsplit(':').next().unwrap().to_owned();
        // Nobody may be kept waiting by a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Server { process, port, http }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a script of `tests/web` in the folder that has its modules, and fails if it does; skips where
/// there is no browser.
fn in_browser(script: &str, arguments: &[&str]) {
    let folder = root().join("target/browser");
    let (Some(_), Some(mut node)) = (program("chromium", "chromium"), program("node", "nodejs"))
    else {
        return;
    };
    if !folder.join("node_modules/playwright-core").is_dir() {
        return skip("playwright-core is not installed (run scripts/browser)");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/web").join(script);
    let output = node
        .arg(path)
        .args(arguments)
        .env("CHROMIUM", "/usr/bin/chromium")
        .current_dir(folder)
        .output()
        .unwrap();
    let [out, err] =
        [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(output.status.success() && out.contains("all cases passed"), "{out}\n{err}");
}

#[test]
fn the_page_works_in_a_browser() {
    let server = Server::start(&[]);
    in_browser("page.mjs", &[&server.http, &server.port, env!("CARGO_BIN_EXE_inbloom")]);
}

#[test]
fn the_page_asks_for_a_password_and_adds_keys() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    let lines =
        "default off nopass\nwriter read-write password:secret\nreader read-only password:secret\n";
    fs::write(&users, lines).unwrap();
    fs::set_permissions(&users, fs::Permissions::from_mode(0o600)).unwrap();
    let server = Server::start(&["--users", users.to_str().unwrap(), "--http-write"]);
    in_browser("login.mjs", &[&server.http, &server.port]);
}
