//! The layers of the server: a module uses only the modules above it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of the crate, each below those that it may use.
const LAYERS: &[&str] = &[
    "clock",
    "log_throttle",
    "parse",
    "reply_error",
    "units",
    "calculator",
    "resp",
    "value",
    "keyspace",
    "users",
    "secret",
    "import",
    "persist",
    "settings",
    "limits",
    "transfers",
    "clients",
    "statistics",
    "rates",
    "health",
    "filter_store",
    "history",
    "over_target",
    "server",
    "session_state",
    "command",
    "commands",
    "session",
    "tls",
    "connection",
    "metrics",
    "http",
];

#[test]
fn a_module_uses_only_modules_above_it() {
    let mut wrong = Vec::new();
    for (module, files) in modules() {
        let own = place(&module);
        for file in files {
            for used in used_modules(&read(&file)) {
                if used != module && place(&used) > own {
                    wrong.push(format!("{}: {module} uses {used}", file.display()));
                }
            }
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "back edges:\n{}", wrong.join("\n"));
}

#[test]
fn every_module_has_its_place_among_the_layers() {
    let found: Vec<String> = modules().into_keys().collect();
    let mut listed: Vec<&str> = LAYERS.to_vec();
    listed.sort_unstable();
    assert_eq!(found, listed);
}

#[test]
fn used_modules_are_read_from_code_alone() {
    let code = "use crate::value::{Value, bloom};\n/// See [`crate::session`].\nlet now = \
                crate::clock::now(); // crate::http\nuse crate::{resp, keyspace};\nuse \
                crate::{users::{Class, Users}, parse,\n};\nfn f(a: A, b: B) {}\n#[cfg(test)]\nmod \
                tests { use crate::connection; }\n";
    let used = ["value", "clock", "resp", "keyspace", "users", "parse"];
    assert_eq!(used_modules(code), used);
}

fn place(module: &str) -> usize {
    let place = LAYERS.iter().position(|layer| *layer == module);
    place.unwrap_or_else(|| panic!("'{module}' is not in LAYERS: give it its place"))
}

/// The files of each module, but for those of unit tests.
fn modules() -> BTreeMap<String, Vec<PathBuf>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut modules = BTreeMap::new();
    for entry in fs::read_dir(&source).expect("the crate has sources") {
        let path = entry.expect("a folder can be read").path();
        let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        if name != "lib" {
            collect(&path, modules.entry(name).or_default());
        }
    }
    modules
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a folder can be read") {
            collect(&entry.expect("a folder can be read").path(), files);
        }
    } else if path.file_name().is_some_and(|name| name != "tests.rs") {
        files.push(path.to_owned());
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("sources are text")
}

/// The modules that `crate::` paths of a file lead to. Unit tests are at the end of a file, and may use
/// anything.
fn used_modules(code: &str) -> Vec<String> {
    let code = code.split("\n#[cfg(test)]\nmod ").next().unwrap_or(code);
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or(line));
    let code: String = lines.collect::<Vec<_>>().join("\n");
    let name = |text: &str| -> String {
        text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
    };
    let mut used = Vec::new();
    for path in code.split("crate::").skip(1) {
        match path.strip_prefix('{') {
            // Only the first name of each is a module: `crate::{resp, value::Value}`.
            Some(list) => {
                used.extend(items_of(list).iter().map(|item| name(item.trim())));
            }
            None => used.push(name(path)),
        }
    }
    used
}

/// The items of a list in braces, of which the opening one is left out. Lists within it are not taken apart.
fn items_of(list: &str) -> Vec<&str> {
    let (mut items, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                items.push(&list[start..at]);
                start = at + 1;
                if letter == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    // Nothing is between a last comma and the brace.
    items.retain(|item| !item.trim().is_empty());
    items
}
