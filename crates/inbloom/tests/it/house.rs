//! The structure of the house: who may name a kind, and which module may use which. Both tests read the
//! sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use inbloom::Kind;

/// The most functions outside `kinds/` that may name a kind. All others ask what a kind can do.
const MOST_THAT_NAME_A_KIND: usize = 15;

/// The modules of the library from the lowest layer to the highest. A module uses modules of its own
/// layer and of those before it.
const LAYERS: &[&[&str]] = &[
    &["error", "kind", "estimate", "sync", "memory", "codec", "splitmix", "math"],
    &["key", "digest", "foreign"],
    &["plan"],
    &["profile", "storage", "paging"],
    &["kernels"],
    &["membership", "state"],
    &["kinds"],
    &["filter", "compose", "shared", "measured", "bloom"],
    &["interop"],
    &["format", "file"],
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("beside the other crates").to_owned()
}

/// Every source file under a folder, and its code: without comments, texts, and what is compiled for
/// tests only.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    for path in entries.map(|entry| entry.expect("a readable folder").path()) {
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
        if is_test {
            continue;
        }
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a readable file");
            files.push((path, without_tests(&code_of(&text))));
        }
    }
    files.sort();
    files
}

/// The code of a file, with blanks in the place of comments, texts and characters.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    let blank = |code: &mut String, part: &str| {
        code.extend(part.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
    };
    while let Some(first) = rest.chars().next() {
        let end = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            raw.find("\"#").map_or(rest.len(), |at| at + 5)
        } else if first == '"' {
            text_end(rest)
        } else if first == '\'' {
            character_end(rest)
        } else {
            0
        };
        if end == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            blank(&mut code, &rest[..end]);
            rest = &rest[end..];
        }
    }
    code
}

/// Where a text ends that begins here.
fn text_end(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Where a character ends that begins here; 0 if it is a lifetime.
fn character_end(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), _) => rest[2..].find('\'').map_or(0, |at| at + 3).max(4),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

/// Without the items behind `#[cfg(test)]` and its like.
fn without_tests(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(") {
        let condition = &rest[at..rest[at..].find(']').map_or(rest.len(), |end| at + end)];
        let is_test = condition.contains("test") && !condition.contains("not(test");
        if !is_test {
            kept.push_str(&rest[..at + 6]);
            rest = &rest[at + 6..];
            continue;
        }
        kept.push_str(&rest[..at]);
        rest = &rest[at + item_end(&rest[at..])..];
    }
    kept.push_str(rest);
    kept
}

/// Where an item ends: behind its block, or its semicolon.
fn item_end(item: &str) -> usize {
    let mut depth = 0;
    for (at, c) in item.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    item.len()
}

/// The words of some code, and its braces: a word is what a name is made of, with its path.
fn words(code: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut words = Vec::new();
    let mut start = None;
    for (at, c) in code.char_indices() {
        if is_name(c) {
            start.get_or_insert(at);
            continue;
        }
        words.extend(start.take().map(|start| &code[start..at]));
        if matches!(c, '{' | '}' | ';') {
            words.push(&code[at..at + 1]);
        }
    }
    words.extend(start.map(|start| &code[start..]));
    words
}

/// The functions in which one of the constants is named, or the file if it is outside of any.
fn naming(code: &str, constants: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut functions: Vec<(&str, usize)> = Vec::new();
    let (mut depth, mut next) = (0, None);
    let words = words(code);
    for (at, word) in words.iter().enumerate() {
        match *word {
            "fn" => next = words.get(at + 1).copied(),
            "{" => {
                depth += 1;
                functions.extend(next.take().map(|name| (name, depth)));
            }
            "}" => {
                functions.pop_if(|(_, opened)| *opened == depth);
                depth -= 1;
            }
            ";" => next = None,
            word if constants.iter().any(|constant| word.ends_with(constant.as_str())) => {
                let function = functions.last().map_or("outside of functions", |(name, _)| *name);
                found.insert(function.to_owned());
            }
            _ => {}
        }
    }
    found
}

#[test]
fn few_functions_outside_kinds_name_a_kind() {
    let constants: Vec<String> = Kind::ALL.iter().map(|kind| format!("Kind::{kind:?}")).collect();
    let mut found = Vec::new();
    for name in ["inbloom", "inbloom-cli", "inbloom-server"] {
        let folder = crates().join(name).join("src");
        // A package of the library alone has not the others.
        if !folder.is_dir() {
            continue;
        }
        for (path, code) in sources(&folder) {
            let path = path.strip_prefix(&folder).expect("under the folder");
            if name == "inbloom" && path.starts_with("kinds") {
                continue;
            }
            let naming = naming(&code, &constants).into_iter();
            found.extend(naming.map(|function| format!("{name} {}: {function}", path.display())));
        }
    }
    assert!(
        found.len() <= MOST_THAT_NAME_A_KIND,
        "{} functions name a kind, and {MOST_THAT_NAME_A_KIND} may:\n{}\nask for an ability \
         (kind.rs), or take the word from its row",
        found.len(),
        found.join("\n")
    );
    assert!(
        found.iter().any(|one| one.contains("integers.rs")),
        "the search finds some: {found:?}"
    );
}

#[test]
fn the_search_sees_code_and_not_comments_texts_and_tests() {
    let text = r##"
        // Kind::Window
        const DEFAULT: Kind = Kind::Window;
        fn one() { let _ = ("Kind::Window", '"', r#"Kind::Window"#); }
        fn two<'a>(a: &'a str) { if a == "{" { each(|kind| kind == Kind::Window) } }
        fn three() { Kind::name(); }
        #[cfg(test)]
        mod tests { fn four() { Kind::Window } }
    "##;
    let found = naming(&without_tests(&code_of(text)), &["Kind::Window".to_owned()]);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["outside of functions", "two"]);
}

#[test]
fn no_module_uses_one_of_a_higher_layer() {
    let folder = crates().join("inbloom").join("src");
    let layer = |module: &str| LAYERS.iter().position(|layer| layer.contains(&module));
    let mut wrong = Vec::new();
    for (path, code) in sources(&folder) {
        let path = path.strip_prefix(&folder).expect("under the folder");
        let first = path.iter().next().expect("a file has a name").to_str().expect("ASCII");
        let module = first.trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let Some(own) = layer(module) else {
            wrong.push(format!("{} is in no layer", path.display()));
            continue;
        };
        for used in words(&code).iter().filter_map(|word| word.strip_prefix("crate::")) {
            let used = used.split(':').next().unwrap_or_default();
            if layer(used).is_none_or(|layer| layer > own) {
                wrong.push(format!("{} uses crate::{used}", path.display()));
            }
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "back edges:\n{}", wrong.join("\n"));
}
