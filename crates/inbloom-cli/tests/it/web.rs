//! The page in `web/`: rules that its files must keep, and the page of a running server in a real
//! browser. `scripts/browser` installs the browser; where it is missing, the test says so.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use inbloom::{Kind, Tier};
use inbloom_server::calculator::advice::Needs;
use inbloom_server::calculator::{Comparison, Question, rows_as_json};
use inbloom_server::units;
use inbloom_testing::{Random, program, skip};
use serde_json::{Value, json};

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
pub(crate) struct Server {
    process: Child,
    pub(crate) port: String,
    pub(crate) http: String,
}

impl Server {
    pub(crate) fn start(options: &[&str]) -> Server {
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
    if program("chromium", "chromium").is_none() {
        return;
    }
    if !root().join("target/browser/node_modules/playwright-core").is_dir() {
        return skip("playwright-core is not installed (run scripts/browser)");
    }
    in_node(script, arguments);
}

/// The same for a script that needs no browser.
fn in_node(script: &str, arguments: &[&str]) {
    let Some(mut node) = program("node", "nodejs") else { return };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/web").join(script);
    // A script finds its modules from the folder that it is started in.
    let modules = root().join("target/browser");
    let folder = if modules.is_dir() { modules } else { root() };
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

#[test]
fn the_calculator_works_as_a_single_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    let (path, inbloom) = (path.to_str().unwrap(), env!("CARGO_BIN_EXE_inbloom"));
    let status = Command::new(inbloom).args(["calculator", "-o", path]).status().unwrap();
    assert!(status.success());
    let size = fs::metadata(path).unwrap().len();
    assert!(size <= BUDGET, "the file takes {size} bytes, and may take {BUDGET}");
    in_browser("standalone.mjs", &[path, inbloom]);
}

/// A number of any size up to 10 to this power, all sizes alike.
fn of_any_size(random: &mut Random, power: u64) -> u64 {
    let below = 10_u64.pow(1 + random.below(power) as u32);
    1 + random.below(below)
}

/// What somebody may know of a filter: one of all combinations that the calculator takes, in any size.
fn any_question(random: &mut Random) -> Question {
    let mut items = Some(of_any_size(random, 13));
    let mut bytes = Some(of_any_size(random, 13));
    // From a half down to 10^-12, all sizes alike.
    let exponent = -0.3 - random.below(1_000_000) as f64 * 11.6e-6;
    let mut rate = Some(10_f64.powf(exponent));
    let mut probes = Some(1 + random.below(20) as u32);
    let mut bits_per_key = Some((1 + random.below(4000)) as f64 / 64.0);
    let tier = random.pick(Tier::ALL).copied();
    // A tier is bits per key by another name, and comes alone.
    let mut keep = |share: u64| random.one_in(share);
    for field in [&mut items, &mut bytes] {
        *field = field.filter(|_| keep(2));
    }
    rate = rate.filter(|_| keep(2));
    probes = probes.filter(|_| keep(4));
    bits_per_key = bits_per_key.filter(|_| keep(5));
    let tier = tier.filter(|_| bits_per_key.is_none() && keep(10));
    Question { items, rate, bytes, bits_per_key, probes, tier, ..Question::default() }
}

/// The parameters of a question, as the calculator writes them.
fn parameters(question: &Question) -> Value {
    let fields = [
        ("items", question.items.map(|it| it.to_string())),
        ("rate", question.rate.map(|it| it.to_string())),
        ("bytes", question.bytes.map(|it| it.to_string())),
        ("bits_per_key", question.bits_per_key.map(|it| it.to_string())),
        ("probes", question.probes.map(|it| it.to_string())),
        ("tier", question.tier.map(|it| it.name().to_owned())),
    ];
    let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    given.map(|(name, value)| (name, json!(value))).collect::<serde_json::Map<_, _>>().into()
}

#[test]
fn every_refusal_of_the_planner_has_a_translation() {
    let mut random = Random(22);
    let mut sentences = BTreeSet::new();
    for _ in 0..3000 {
        let mut question = any_question(&mut random);
        // Values of one kind each, in range and out of it.
        let mut small = |share| random.one_in(share).then(|| random.below(100) as u32);
        (question.generations, question.width) = (small(5), small(5));
        question.growth = small(5);
        question.tightening = small(5).map(|share| f64::from(share) / 100.0);
        question.universe = random.one_in(3).then(|| of_any_size(&mut random, 13));
        let window = |number: u64| units::parse_window(&format!("{number}")).unwrap();
        question.window = random.one_in(3).then(|| window(of_any_size(&mut random, 6)));
        // Beyond what is planned at all.
        let beyond = random.one_in(10);
        question.items =
            question.items.map(|items| if beyond { items + 10_u64.pow(16) } else { items });
        question.rate = question.rate.map(|rate| if beyond { rate * 1e-9 } else { rate });
        let refused = question.compare().rows.into_iter().filter_map(|row| row.plan.err());
        sentences.extend(refused.map(|error| error.to_string()));
    }
    for (universe, bytes) in [(0, None), (100, Some(1))] {
        let bitmap = Question { universe: Some(universe), bytes, ..Question::default() };
        let refused = bitmap.only(Kind::Bitmap).rows.into_iter().filter_map(|row| row.plan.err());
        sentences.extend(refused.map(|error| error.to_string()));
    }
    sentences.extend(Needs::parse("fly").err());
    // What the fields of the page are read by.
    for text in ["many", "-1", "1.5", "1e400", "0", "2", "7dd", "\u{663}"] {
        let parsers = [
            units::parse_keys(text).err(),
            units::parse_rate(text).err(),
            units::parse_bytes(text).err(),
            units::parse_count(text).err(),
            units::parse_window(text).err(),
        ];
        sentences.extend(parsers.into_iter().flatten().map(|error| error.to_string()));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sentences");
    fs::write(&path, sentences.into_iter().map(|line| line + "\n").collect::<String>()).unwrap();
    let module = root().join("web/i18n.js");
    in_node("refusals.mjs", &[module.to_str().unwrap(), path.to_str().unwrap()]);
}

#[test]
fn formulas_in_javascript_agree_with_the_planner() {
    compare_formulas(2000);
}

#[test]
#[ignore = "takes half a minute"]
fn formulas_in_javascript_agree_with_the_planner_on_10_000_inputs() {
    compare_formulas(10_000);
}

fn compare_formulas(cases: usize) {
    let mut random = Random(20);
    let mut lines = String::new();
    for _ in 0..cases {
        let question = any_question(&mut random);
        let [classic, blocked] = [Kind::Classic, Kind::Blocked].map(|kind| question.only(kind));
        let rows = classic.rows.into_iter().chain(blocked.rows).collect();
        let comparison = Comparison { scope: classic.scope, rows };
        let is_planned = comparison.rows.iter().any(|row| row.plan.is_ok());
        let kinds = is_planned.then(|| rows_as_json(&comparison));
        let line = json!({ "parameters": parameters(&question), "kinds": kinds });
        lines.push_str(&format!("{line}\n"));
    }
    let folder = tempfile::tempdir().unwrap();
    let cases = folder.path().join("cases");
    fs::write(&cases, lines).unwrap();
    let module = root().join("web/formulas.js");
    in_node("formulas.mjs", &[module.to_str().unwrap(), cases.to_str().unwrap()]);
}
