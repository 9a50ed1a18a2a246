//! Checks the pages as a whole: their links and their prose, both READMEs for the same content, and
//! the chart against the recorded runs.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the project's folder")
}

fn pages() -> Vec<PathBuf> {
    let folders = ["", "docs", "bench"];
    let entries = folders.iter().flat_map(|folder| {
        fs::read_dir(root().join(folder)).expect("the folder can be read").flatten()
    });
    let mut pages: Vec<_> = entries.map(|entry| entry.path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    pages
}

/// Returns the lines outside fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Returns the targets of `[text](target)` in a line, those in code excepted.
fn links(line: &str) -> Vec<&str> {
    let outside_code = line.split('`').step_by(2);
    let targets = outside_code.flat_map(|text| {
        text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
    });
    targets.collect()
}

/// Returns the anchor that a heading gets: lowercase, blanks as hyphens, no punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

fn anchors(page: &Path) -> HashSet<String> {
    let text = fs::read_to_string(page).expect("a page is UTF-8");
    let headings = prose(&text).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

#[test]
fn every_link_between_pages_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    let mut seen = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page is UTF-8");
        for target in prose(&text).flat_map(links) {
            if target.contains("://") {
                continue;
            }
            seen += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let folder = page.parent().expect("a page is in a folder");
            let file = if file.is_empty() { page.clone() } else { folder.join(file) };
            if !file.exists() || !heading.is_empty() && !anchors(&file).contains(heading) {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
    assert!(seen > 50, "only {seen} links found: is the pattern still right?");
}

#[test]
fn every_page_of_docs_is_in_the_index() {
    let index = fs::read_to_string(root().join("docs/README.md")).expect("the index is there");
    let listed: Vec<&str> = prose(&index).flat_map(links).collect();
    for page in pages().iter().filter(|page| page.starts_with(root().join("docs"))) {
        let name = page.file_name().and_then(|name| name.to_str()).expect("a name of letters");
        assert!(
            name == "README.md" || listed.contains(&name),
            "docs/README.md does not list {name}"
        );
    }
}

#[test]
fn the_readme_has_the_same_content_in_both_languages() {
    let read = |name: &str| fs::read_to_string(root().join(name)).expect("a README is UTF-8");
    let (english, chinese) = (read("README.md"), read("README.zh-CN.md"));
    let levels = |text: &str| -> Vec<usize> {
        let headings = prose(text).filter(|line| line.starts_with('#'));
        headings.map(|line| line.len() - line.trim_start_matches('#').len()).collect()
    };
    assert_eq!(levels(&english), levels(&chinese), "headings of README.md and README.zh-CN.md");
    let code = |text: &str| -> Vec<String> {
        text.split("```").skip(1).step_by(2).map(str::to_string).collect()
    };
    assert_eq!(code(&english), code(&chinese), "code blocks of README.md and README.zh-CN.md");
    let rows = |text: &str| prose(text).filter(|line| line.starts_with('|')).count();
    assert_eq!(rows(&english), rows(&chinese), "table rows of README.md and README.zh-CN.md");
    let targets = |text: &str| -> Vec<String> {
        let links = prose(text).flat_map(links).filter(|target| !target.starts_with("README"));
        links.map(str::to_string).collect()
    };
    assert_eq!(targets(&english), targets(&chinese), "links of README.md and README.zh-CN.md");
}

#[test]
fn the_chart_shows_the_recorded_runs() {
    let Some(mut python) = inbloom_testing::program("python3", "python3") else { return };
    let output = python.arg(root().join("scripts/chart")).arg("--check").output();
    let output = output.expect("python3 is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn sentences_are_short_and_words_are_those_of_the_list() {
    let Some(mut python) = inbloom_testing::program("python3", "python3") else { return };
    let output = python.arg(root().join("scripts/prose")).arg("--check").output();
    let output = output.expect("python3 is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_check_of_the_prose_notices_what_breaks_a_rule() {
    let Some(mut python) = inbloom_testing::program("python3", "python3") else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let page = folder.path().join("page.md");
    let long = "word ".repeat(31);
    let wide = "wide ".repeat(21);
    let text = format!(
        "# Title\n\nA key is denied.\n\n{long}\n\n| a |\n|---|\n| {} |\n\n{wide}\n",
        "x".repeat(61)
    );
    fs::write(&page, text).expect("the folder can be written to");
    let output = python.arg(root().join("scripts/prose")).arg(&page).output();
    let output = output.expect("python3 is there");
    let found = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{found}");
    for problem in [":3: \"denied\"", ":5: 31 words", "a cell of 61 characters", "columns"] {
        assert!(found.contains(problem), "{problem} is not among:\n{found}");
    }
}
