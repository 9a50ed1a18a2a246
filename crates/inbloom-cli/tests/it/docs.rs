//! Every command shown in the documentation is run, and must print what is shown.
//!
//! An example is a fenced block tagged `console`, in a Markdown file or in a doc comment:
//!
//! ````text
//! ```console
//! $ printf 'alice\nbob\n' > names.txt       a command; `> ` continues it on the next line
//! $ inbloom build -o names.ib names.txt
//! inbloom: 2 keys read, [..]                [..] stands for any text
//! ...                                       stands for any lines
//! ```
//! ````
//!
//! The blocks of one document are one bash session in an empty folder, with this build's `inbloom`
//! on the path, also in place of `cargo run --release --`. Output is stdout and stderr, as they
//! come.
//!
//! Ports from 7300 to 7499 are replaced by free ones, and back again in what is compared. `inbloom
//! serve` listens at the one that stands for 7379, logs warnings only, unless the command says
//! otherwise (other lines come when they come), and ends with the session. After a command that
//! starts servers, `inbloom serve &` or `redis-server ... &`, the next one waits until they answer.
//! `redis-cli` prints as it does on a terminal. What bash says of a job that was killed is left out:
//! it comes with this command or with the next one, as the signal falls. A session that does not end
//! is ended after [`LONGEST`] seconds; the examples that it did not come to are reported.
//!
//! A block tagged `console,not-run` is only shown; which ones may be is listed in `NOT_RUN`. (Not
//! `no-run`: rustdoc reads the README too, takes that for a misspelt `no_run`, and warns.)

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

/// Documents and first commands of the blocks that are not run, because they run the tests
/// themselves or take minutes.
const NOT_RUN: &[(&str, &str)] = &[("README.md", "./test"), ("README.zh-CN.md", "./test")];

/// The seconds that all examples of a document may take together.
const LONGEST: u32 = 300;

/// The documents whose examples run at the same time.
const AT_ONCE: usize = 3;

#[test]
fn every_example_prints_what_the_documentation_shows() {
    let sessions: Vec<(String, Vec<Example>)> = documents()
        .into_iter()
        .map(|document| {
            let run = document.blocks().into_iter().filter(|block| block.run);
            (document.name, run.flat_map(|block| block.examples).collect())
        })
        .collect();
    let run: usize = sessions.iter().map(|(_, examples)| examples.len()).sum();
    assert!(run > 0, "no example found: is the README where this test looks for it?");
    // Sessions mostly wait for servers and pauses of their own.
    let next = AtomicUsize::new(0);
    let problems = Mutex::new(String::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((name, examples)) = sessions.get(next.fetch_add(1, Relaxed)) {
                    let found = mismatches(name, examples);
                    problems.lock().expect("no session panicked").push_str(&found);
                }
            });
        }
    });
    let problems = problems.into_inner().expect("no session panicked");
    assert!(problems.is_empty(), "\n{problems}");
}

#[test]
fn the_blocks_that_are_not_run_are_those_listed() {
    for document in documents() {
        for block in document.blocks().into_iter().filter(|block| !block.run) {
            let first = block.examples.first().map_or("", |example| &example.command);
            assert!(
                NOT_RUN.contains(&(&document.name, first)),
                "{}:{}: block '{first}' is tagged not-run, but NOT_RUN does not list it",
                document.name,
                block.line,
            );
        }
    }
}

#[test]
fn commands_are_shown_in_console_blocks_only() {
    for document in documents() {
        for (number, line) in document.text.lines().enumerate() {
            let tag = line.trim().strip_prefix("```").unwrap_or("").split(',').next().unwrap_or("");
            assert!(
                !["sh", "bash", "shell", "shell-session", "text-console"].contains(&tag),
                "{}:{}: tag the block ```console, so that it is run",
                document.name,
                number + 1,
            );
        }
    }
}

#[test]
fn a_wrong_example_is_noticed() {
    let examples = |text: &str| {
        let document = Document { name: "sample".to_string(), text: text.to_string() };
        document.blocks().into_iter().flat_map(|block| block.examples).collect::<Vec<_>>()
    };
    for good in [
        "```console\n$ echo a; echo b >&2\na\nb\n```",
        "```console\n$ false\n$ echo $?\n1\n\n$ true\n```",
        "```console\n$ x=1\n```\ntext\n```console\n$ echo $x\n1\n```",
        "```console\n$ for i in 1 2 3; do\n>   echo $i\n> done\n1\n...\n3\n```",
        "```console\n$ echo one two three\none [..] th[..]e\n```",
        "```console\n$ inbloom --version\ninbloom [..]\n```",
        "```console\n$ cargo run --release -- --version\ninbloom [..]\n```",
        "```console\n$ pwd > here; ls\nhere\n```",
        "```console\n$ sleep 60 &\n$ kill -9 %1; sleep 0.1\n$ echo a; wait; echo b\na\nb\n```",
        "```console\n$ sleep 60 &\n$ kill -9 %1; wait; echo a\na\n$ true\n```",
        "```console\n$ echo localhost:7411 x7412 7 | tr x :\nlocalhost:7411 :7412 7\n```",
        "```console\n$ for port in 7411 7412; do [ $port -gt 7500 ] && echo ::$port; done\n::7411\n::7412\n```",
    ] {
        assert_eq!(mismatches("sample", &examples(good)), "", "{good}");
    }
    for bad in [
        "```console\n$ echo a\n```",
        "```console\n$ echo a\nb\n```",
        "```console\n$ true\na\n```",
        "```console\n$ printf 'a\\nb\\n'\nb\na\n```",
        "```console\n$ printf 'a\\nb\\n'\na\n...\nc\n```",
        "```console\n$ echo one two\none [..] two\n```",
        "```console\n$ exit 3\n$ echo a\na\n```",
        "```console\n$ if\n```",
    ] {
        let problems = mismatches("sample", &examples(bad));
        assert!(problems.contains("sample:"), "{bad}\n{problems}");
    }
}

struct Document {
    name: String,
    /// Markdown; of Rust sources the doc comments, with all other lines left empty.
    text: String,
}

/// A fenced block of commands.
struct Block {
    line: usize,
    run: bool,
    examples: Vec<Example>,
}

/// A command and the output shown for it.
struct Example {
    line: usize,
    command: String,
    expected: Vec<String>,
}

fn documents() -> Vec<Document> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["", "docs", "bench"] {
        files.extend(list(&root.join(folder)).into_iter().filter(|path| has_extension(path, "md")));
    }
    for package in list(&root.join("crates")) {
        sources_below(&package.join("src"), &mut files);
    }
    files.sort();
    let document = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("documents are UTF-8");
        let name = path.strip_prefix(&root).expect("it was found there").display().to_string();
        Document { name, text: if has_extension(path, "rs") { doc_comments(&text) } else { text } }
    };
    files.iter().map(document).collect()
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.expect("the folder can be read").path()).collect()
}

fn sources_below(folder: &Path, files: &mut Vec<PathBuf>) {
    for path in list(folder) {
        if path.is_dir() {
            sources_below(&path, files);
        } else if has_extension(&path, "rs") {
            files.push(path);
        }
    }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// The text of `//!` and `///` comments, each on the line it had.
fn doc_comments(source: &str) -> String {
    let text = |line: &str| {
        let line = line.trim_start();
        let comment = line.strip_prefix("//!").or_else(|| line.strip_prefix("///")).unwrap_or("");
        format!("{}\n", comment.strip_prefix(' ').unwrap_or(comment))
    };
    source.lines().map(text).collect()
}

impl Document {
    fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        // The fence that ends the block we are in, and whether that block holds commands.
        let mut inside: Option<(&str, bool)> = None;
        for (line, text) in self.text.lines().enumerate().map(|(index, text)| (index + 1, text)) {
            let ticks = text.trim_start();
            let ticks = &ticks[..ticks.len() - ticks.trim_start_matches('`').len()];
            match inside {
                None if ticks.len() >= 3 => {
                    let tag = text.trim_start().trim_start_matches('`').trim();
                    let console = tag.split(',').next() == Some("console");
                    if console {
                        let run = !tag.contains("not-run");
                        blocks.push(Block { line, run, examples: Vec::new() });
                    }
                    inside = Some((ticks, console));
                }
                Some((fence, _)) if ticks == fence && text.trim() == fence => inside = None,
                Some((_, true)) => {
                    let block = blocks.last_mut().expect("it was pushed when the block began");
                    block.push(line, text, &self.name);
                }
                _ => {}
            }
        }
        blocks
    }
}

impl Block {
    fn push(&mut self, line: usize, text: &str, document: &str) {
        if let Some(command) = text.strip_prefix("$ ") {
            let command = command.to_string();
            self.examples.push(Example { line, command, expected: Vec::new() });
            return;
        }
        let Some(example) = self.examples.last_mut() else {
            panic!("{document}:{line}: a console block begins with a line '$ command'");
        };
        match text.strip_prefix("> ") {
            Some(more) if example.expected.is_empty() => {
                example.command.push('\n');
                example.command.push_str(more);
            }
            _ => example.expected.push(text.trim_end().to_string()),
        }
    }
}

/// Runs the examples in one session; what printed something else is described, ready to paste.
fn mismatches(document: &str, examples: &[Example]) -> String {
    let outputs = run(examples);
    let mut problems = String::new();
    for (index, example) in examples.iter().enumerate() {
        let actual: Vec<&str> = match outputs.get(index) {
            Some(output) => output.lines().map(str::trim_end).collect(),
            None => vec!["(not run: the session ended before)"],
        };
        let expected: Vec<&str> = example.expected.iter().map(String::as_str).collect();
        let (expected, actual) = (without_end_blanks(&expected), without_end_blanks(&actual));
        if !lines_match(expected, actual) {
            writeln!(
                problems,
                "{document}:{}: $ {}\n--- shown\n{}\n--- printed\n{}\n",
                example.line,
                example.command,
                expected.join("\n"),
                actual.join("\n"),
            )
            .expect("a String takes all text");
        }
    }
    problems
}

/// The output of each command, in one bash session in an empty folder.
fn run(examples: &[Example]) -> Vec<String> {
    if examples.is_empty() {
        return Vec::new();
    }
    // A record separator no document contains; the status survives it for a following `echo $?`.
    const SEPARATOR: char = '\x1e';
    let mut ports = Ports::default();
    let listen = ports.free("7379");
    let mut script = "exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n\
        redis-cli() { command redis-cli --no-raw \"$@\"; }\n"
        .to_string();
    for example in examples {
        let command = example.command.replace("cargo run --release --", "inbloom");
        let (command, named) = ports.replace(&command);
        script += &command;
        let started = match () {
            () if command.starts_with("inbloom serve") && command.ends_with('&') => {
                if command.contains("--listen") { named } else { vec![listen] }
            }
            () if command.contains("redis-server --port") => named,
            () => Vec::new(),
        };
        for port in started {
            // Half a minute at most: if it does not come, the examples tell.
            script += &format!(
                "\nfor i in {{1..600}}; do redis-cli -p {port} ping >/dev/null 2>&1 && break; \
                 sleep 0.05; done"
            );
        }
        script += "\n_status=$?; printf '\\036'; (exit $_status)\n";
    }
    let binaries = Path::new(env!("CARGO_BIN_EXE_inbloom")).parent().expect("it is in a folder");
    // `python3` is the one that scripts/clients gave redis-py to.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let clients =
        root.canonicalize().expect("the project's folder").join("target/clients/python/bin");
    let inherited = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{}:{inherited}", binaries.display(), clients.display());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = Command::new("timeout")
        .args([&LONGEST.to_string(), "bash", "--noprofile", "--norc", "-c", &script])
        .current_dir(folder.path())
        .env("PATH", path)
        .env("LC_ALL", "C")
        .env("INBLOOM_LISTEN", format!("127.0.0.1:{listen}"))
        .env("INBLOOM_LOG", "warn")
        .stdin(Stdio::null())
        .output()
        .expect("bash is needed to run the examples");
    // bash itself reports a command it cannot parse on its own stderr, before `exec`.
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let text = without_obituaries(&ports.restore(&text));
    let mut outputs: Vec<String> = text.split(SEPARATOR).map(str::to_string).collect();
    if outputs.last().is_some_and(String::is_empty) {
        outputs.pop();
    }
    // What a server says at its end comes after the last command.
    outputs.truncate(examples.len());
    outputs
}

/// Without bash's lines such as `bash: line 59: 18391 Killed    inbloom serve`, which may begin behind
/// a separator.
fn without_obituaries(text: &str) -> String {
    let told = |line: &str| line.find("bash: line ").filter(|_| line.contains(" Killed  "));
    let lines = text.split_inclusive('\n');
    lines.map(|line| told(line).map_or(line, |start| &line[..start])).collect()
}

/// Ports as documents show them, and the free ones that stand for them.
#[derive(Default)]
struct Ports(Vec<(String, u16)>);

impl Ports {
    /// The port that stands for the one of a document.
    fn free(&mut self, shown: &str) -> u16 {
        if let Some((_, port)) = self.0.iter().find(|(known, _)| known == shown) {
            return *port;
        }
        let port = (0..1000).map(|_| free_port(0)).find(|port| {
            let is_taken = self.0.iter().any(|(_, other)| other == port);
            // A node of a Redis cluster listens at a second port, so much above the first.
            !is_taken && port.checked_add(10_000).is_some_and(|bus| free_port(bus) == bus)
        });
        let port = port.expect("a free port");
        self.0.push((shown.to_string(), port));
        port
    }

    /// Replaces the ports of a command, and returns which ones there are now.
    fn replace(&mut self, command: &str) -> (String, Vec<u16>) {
        let (mut replaced, mut named) = (String::new(), Vec::new());
        let mut rest = command;
        while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric()) {
            let (before, word) = rest.split_at(start);
            let end = word.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(word.len());
            let (word, behind) = word.split_at(end);
            replaced += before;
            match word.parse() {
                Ok(7300..7500) => {
                    let port = self.free(word);
                    replaced += &port.to_string();
                    named.push(port);
                }
                _ => replaced += word,
            }
            rest = behind;
        }
        (replaced + rest, named)
    }

    /// Replaces the ports of an output's addresses by those of the document.
    fn restore(&self, output: &str) -> String {
        self.0.iter().fold(output.to_string(), |text, (shown, port)| {
            text.replace(&format!(":{port}"), &format!(":{shown}"))
        })
    }
}

/// The port, if it is free, or any that is for 0; otherwise 0.
fn free_port(port: u16) -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", port));
    listener.and_then(|listener| listener.local_addr()).map_or(0, |address| address.port())
}

fn without_end_blanks<'a, 'b>(mut lines: &'b [&'a str]) -> &'b [&'a str] {
    while let [rest @ .., ""] = lines {
        lines = rest;
    }
    lines
}

fn lines_match(expected: &[&str], actual: &[&str]) -> bool {
    match (expected, actual) {
        (["...", rest @ ..], _) => {
            (0..=actual.len()).any(|skip| lines_match(rest, &actual[skip..]))
        }
        ([first, rest @ ..], [line, more @ ..]) => {
            line_matches(first, line) && lines_match(rest, more)
        }
        ([], []) => true,
        _ => false,
    }
}

fn line_matches(expected: &str, actual: &str) -> bool {
    let Some((before, after)) = expected.split_once("[..]") else { return expected == actual };
    let Some(rest) = actual.strip_prefix(before) else { return false };
    let starts = rest.char_indices().map(|(index, _)| index).chain([rest.len()]);
    starts.into_iter().any(|start| line_matches(after, &rest[start..]))
}
