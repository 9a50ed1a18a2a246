//! Which URLs are seen for the first time, in this run of the program or in an earlier one? The same
//! program with a hash set is `crawl_with_hash_set.rs`; docs/compare-code.md shows both. Run it with
//! `cargo run --release -p inbloom --example crawl_with_inbloom -- seen.ib https://example.org/a`.

use std::env;
use std::error::Error;
use std::path::Path;

use inbloom::BloomFilter;

fn first_seen(urls: &[&str], path: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut seen = match path.exists() {
        true => BloomFilter::open(path)?,
        false => BloomFilter::new(1_000_000, 0.001),
    };
    let mut new = Vec::new();
    for url in urls {
        if seen.insert(url) {
            new.push(url.to_string());
        }
    }
    seen.save(path)?;
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

    #[test]
    fn the_page_shows_the_three_programs_and_ours_is_not_longer() {
        let page = include_str!("../../../docs/compare-code.md");
        let lines = |source: &str| {
            let from = source.find("fn first_seen").expect("the function");
            let length = source[from..].find("\n}\n").expect("its end") + 3;
            let function = &source[from..from + length];
            assert!(page.contains(function), "the page does not show:\n{function}");
            function.lines().count()
        };
        let ours = lines(include_str!("crawl_with_inbloom.rs"));
        assert!(ours <= lines(include_str!("crawl_with_hash_set.rs")));
        assert!(ours <= lines(include_str!("../../../bench/examples/crawl_with_fastbloom.rs")));
    }
}
