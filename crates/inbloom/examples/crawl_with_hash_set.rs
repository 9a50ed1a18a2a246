//! Which URLs are seen for the first time, in this run of the program or in an earlier one? With a
//! hash set, to compare with `crawl_with_inbloom.rs`; docs/compare-code.md shows both.

use std::collections::HashSet;
use std::error::Error;
use std::path::Path;
use std::{env, fs};

fn first_seen(urls: &[&str], path: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut seen: HashSet<String> = match path.exists() {
        true => fs::read_to_string(path)?.lines().map(String::from).collect(),
        false => HashSet::new(),
    };
    let mut new = Vec::new();
    for url in urls {
        if seen.insert(url.to_string()) {
            new.push(url.to_string());
        }
    }
    let lines: Vec<String> = seen.into_iter().collect();
    fs::write(path, lines.join("\n"))?;
    Ok(new)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [path, urls @ ..] = &arguments[..] else { return Err("name a file, then URLs".into()) };
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    for url in first_seen(&urls, Path::new(path))? {
        println!("{url}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_first_seen_once_across_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seen");
        let [a, b, c] = ["https://example.org/a", "https://example.org/b", "https://example.org/c"];
        assert_eq!(first_seen(&[a, b, a], &path).unwrap(), [a, b]);
        assert_eq!(first_seen(&[c, b, a, c], &path).unwrap(), [c]);
    }
}
