//! Which URLs are seen for the first time, in this run of the program or in an earlier one? With
//! fastbloom, to compare with inbloom's example `crawl_with_inbloom.rs`; docs/compare-code.md shows
//! both.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use fastbloom::BloomFilter;

fn first_seen(urls: &[&str], path: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut seen: BloomFilter = match path.exists() {
        true => bincode::deserialize(&fs::read(path)?)?,
        false => BloomFilter::with_false_pos(0.001).expected_items(1_000_000),
    };
    let mut new = Vec::new();
    for url in urls {
        if !seen.insert(url) {
            new.push(url.to_string());
        }
    }
    fs::write(path, bincode::serialize(&seen)?)?;
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
