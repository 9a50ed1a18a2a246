//! Filters exchanged with the real programs, both ways: built here and asked there, built there and
//! asked here, and the same file to the byte either way. Guava runs on the Java that is here, willf/bloom
//! on the Go that is here (`scripts/clients` installs them from Debian's packages).

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use inbloom_testing::{program, skip};

/// Where Debian has Guava, and sources of Go.
const GUAVA: &str = "/usr/share/java/guava.jar";
const GO: &str = "/usr/share/gocode";
const JDK: [&str; 2] = ["javac", "java"];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop").join(name)
}

/// Runs a command with lines on its standard input and returns what it prints.
fn run(mut command: Command, lines: &str) -> String {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a program that is here");
    let (mut stdin, lines) = (child.stdin.take().expect("it is piped"), lines.to_owned());
    let writer = thread::spawn(move || drop(stdin.write_all(lines.as_bytes())));
    let output = child.wait_with_output().expect("the program ends");
    writer.join().expect("writing does not panic");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// The program in this language that docs/interop.md shows.
pub fn documented(language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/interop.md");
    let page = fs::read_to_string(page).expect("the page");
    let (_, from) = page.split_once(&format!("```{language}\n")).expect("a program in the page");
    from.split_once("```").expect("the end of the program").0.to_owned()
}

/// A documented program reads a filter of alice and bob that was built here, finds who is in it, and
/// adds carol.
fn assert_as_documented(command: Command, format: &str, file: &Path) {
    let build = format!("build -o FILE --format {format} -n 1000 -p 0.01");
    inbloom(&build, file, "alice\nbob\n");
    assert_eq!(run(command, ""), "true false\n", "{format}");
    let found = inbloom("check FILE", file, "alice\nbob\ncarol\ndave\n");
    assert_eq!(found, "alice\nbob\ncarol\n", "{format}");
}

fn inbloom(arguments: &str, file: &Path, lines: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inbloom"));
    let words = arguments.split_whitespace();
    command.args(words.map(|word| if word == "FILE" { file.as_os_str() } else { word.as_ref() }));
    run(command, lines)
}

/// A program that builds filters in files and asks them.
struct Peer<'a> {
    command: &'a dyn Fn() -> Command,
    /// What it calls the encoding or the form of its files.
    form: &'static str,
    /// What `inbloom` is told.
    format: &'static str,
    encoding: &'static str,
}

impl Peer<'_> {
    fn exchange(&self, members: &str, others: &str) {
        let folder = tempfile::tempdir().expect("a folder");
        let [ours, theirs] = ["ours", "theirs"].map(|name| folder.path().join(name));
        let count = members.lines().count();
        let Peer { form, format, encoding, .. } = self;
        let build = format!("build -o FILE --format {format} -n {count} -p 0.01 {encoding}");
        inbloom(&build, &ours, members);
        let mut command = (self.command)();
        command.args(["build", form]).arg(&theirs).args([count.to_string(), "0.01".to_owned()]);
        run(command, members);
        let (here, there) = (fs::read(&ours).expect("a file"), fs::read(&theirs).expect("a file"));
        assert!(here == there, "{format} {form}: other bytes from the same keys");

        let asked = format!("{members}{others}");
        let mut command = (self.command)();
        command.args(["ask", form]).arg(&ours);
        let answers = run(command, &asked);
        let found: String = asked
            .lines()
            .zip(answers.lines())
            .filter(|(_, answer)| *answer == "1")
            .map(|(key, _)| format!("{key}\n"))
            .collect();
        assert_eq!(answers.lines().count(), asked.lines().count(), "{format} {form}");
        assert!(found.starts_with(members), "{format} {form}: a member is absent there");
        let false_positives = found.lines().count() - count;
        let most = others.lines().count() / 50;
        assert!((1..most).contains(&false_positives), "{format} {form}: {false_positives}");
        let here = inbloom(&format!("check FILE {encoding}"), &theirs, &asked);
        assert!(here == found, "{format} {form}: other answers here than there");
    }
}

/// Texts with letters of one to four bytes.
fn texts(from: u32, to: u32) -> String {
    let letters = ["a", "\u{e9}", "\u{5e03}", "\u{1f600}"];
    (from..to).map(|number| format!("{}{number}\n", letters[number as usize % 4])).collect()
}

fn numbers(from: i64, to: i64) -> String {
    (from..to).map(|number| format!("{}\n", number * 1001 - 500_000)).collect()
}

#[test]
fn guava_and_inbloom_exchange_filters() {
    if JDK.iter().any(|name| program(name, "default-jdk-headless").is_none()) {
        return;
    }
    if !Path::new(GUAVA).exists() {
        return skip("no Guava here: apt-get install libguava-java");
    }
    let classes = tempfile::tempdir().expect("a folder");
    let compiled = Command::new("javac")
        .args(["-cp", GUAVA, "-d"])
        .arg(classes.path())
        .arg(source("Guava.java"))
        .output()
        .expect("javac");
    let warnings = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{warnings}");
    let command = || {
        let mut command = Command::new("java");
        command.args(["-cp", &format!("{GUAVA}:{}", classes.path().display()), "Guava"]);
        command
    };
    for (form, encoding, members, others) in [
        ("utf8", "", texts(0, 5000), texts(5000, 15_000)),
        ("utf16le", "--key-encoding utf16le", texts(0, 5000), texts(5000, 15_000)),
        ("i32le", "--key-encoding i32le", numbers(0, 5000), numbers(5000, 15_000)),
        ("i64le", "--key-encoding i64le", numbers(0, 5000), numbers(5000, 15_000)),
    ] {
        Peer { command: &command, form, format: "guava", encoding }.exchange(&members, &others);
    }
    let program = classes.path().join("Names.java");
    fs::write(&program, documented("java")).expect("a file");
    let mut command = Command::new("java");
    command.args(["-cp", GUAVA]).arg(&program).current_dir(classes.path());
    assert_as_documented(command, "guava", &classes.path().join("names.bloom"));
}

#[test]
fn go_and_inbloom_exchange_filters() {
    if program("go", "golang-go").is_none() {
        return;
    }
    if !Path::new(GO).join("src/github.com/willf/bloom").exists() {
        return skip("no willf/bloom here: apt-get install golang-github-willf-bloom-dev");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let compile = |source: &Path, program: &Path| {
        let compiled = Command::new("go")
            .args(["build", "-o"])
            .arg(program)
            .arg(source)
            .envs([("GO111MODULE", "off"), ("GOPATH", GO), ("GOFLAGS", "")])
            .env("GOCACHE", folder.path().join("cache"))
            .output()
            .expect("go");
        let errors = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{errors}");
    };
    let program = folder.path().join("willf");
    compile(&source("willf.go"), &program);
    let command = || Command::new(&program);
    let (members, others) = (texts(0, 5000), texts(5000, 15_000));
    for (form, format) in
        [("binary", "go"), ("json", "go --variant json"), ("gob", "go --variant gob")]
    {
        Peer { command: &command, form, format, encoding: "" }.exchange(&members, &others);
    }
    let shown = folder.path().join("names.go");
    fs::write(&shown, documented("go")).expect("a file");
    let program = folder.path().join("names");
    compile(&shown, &program);
    let mut command = Command::new(&program);
    command.current_dir(folder.path());
    assert_as_documented(command, "go", &folder.path().join("names.bin"));
}
