//! Rules about the sources of all crates, read from the sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Names that may stand for several types of a crate, and why.
const EXCEPTIONS: [(&str, &str, &str); 1] =
    [("inbloom-cli", "Args", "the options of a subcommand, which its module names")];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All source files below a folder, but those that hold only tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
    found
}

/// The types that a source defines in its modules, outside of tests.
fn types(source: &str) -> Vec<String> {
    let tests = source
        .lines()
        .position(|line| line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test"));
    let lines = source.lines().take(tests.unwrap_or(usize::MAX));
    let defined = lines.filter_map(|line| {
        let line = line
            .strip_prefix("pub ")
            .or_else(|| line.strip_prefix("pub(")?.split_once(") ").map(|it| it.1))
            .unwrap_or(line);
        let keywords = ["struct ", "enum ", "union ", "trait ", "type "];
        let rest = keywords.iter().find_map(|keyword| line.strip_prefix(keyword))?;
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        Some(rest[..end].to_owned())
    });
    defined.collect()
}

/// The names of a crate that stand for several types, public or private, and the files they are in.
fn ambiguous(name: &str) -> Vec<String> {
    let folder = crates().join(name).join("src");
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in sources(&folder) {
        let text = fs::read_to_string(&path).expect("a source is text");
        let place = path.strip_prefix(&folder).expect("below it").display().to_string();
        for defined in types(&text) {
            if !EXCEPTIONS.iter().any(|it| (it.0, it.1) == (name, &defined)) {
                places.entry(defined).or_default().push(place.clone());
            }
        }
    }
    assert!(places.len() > 20, "{name}: types are found");
    places.retain(|_, places| places.len() > 1);
    places.iter().map(|(defined, places)| format!("{defined}: {}", places.join(", "))).collect()
}

#[test]
fn a_type_name_has_one_meaning_in_a_crate() {
    for name in ["inbloom", "inbloom-cli", "inbloom-server"] {
        let ambiguous = ambiguous(name);
        assert!(ambiguous.is_empty(), "{name}:\n{}", ambiguous.join("\n"));
    }
}

#[test]
fn types_are_found_wherever_they_are_defined() {
    let source = "pub struct A;\npub(crate) enum B<T> {}\ntrait C: D {\n    type E;\n}\npub(super) type F = u8;\n\
                  // struct G\n#[cfg(test)]\nmod tests {\nstruct H;\n";
    assert_eq!(types(source), ["A", "B", "C", "F"]);
}
