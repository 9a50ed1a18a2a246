//! The crawler's question, across restarts: is this path new? Run it with
//! `cargo run --release -p inbloom --example add_if_absent`.

use std::path::Path;

use inbloom::BloomFilter;

const PAGES: [&str; 3] = ["/8/8217/5159455.html", "/8/8217/5159456.html", "/8/8217/5159457.html"];

fn empty() -> BloomFilter {
    BloomFilter::new(1_000_000, 1e-4)
}

/// One run of the program: opens the filter, if there is one, and saves it as a whole.
fn one_run(path: &Path) -> inbloom::Result<[bool; 3]> {
    let mut seen = if path.exists() { BloomFilter::open(path)? } else { empty() };
    let new = PAGES.map(|page| seen.insert(page));
    seen.save(path)?;
    Ok(new)
}

fn run() -> inbloom::Result<[[bool; 3]; 2]> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("seen.ib");
    Ok([one_run(&path)?, one_run(&path)?])
}

fn main() -> inbloom::Result<()> {
    println!("a million paths at one error in ten thousand take {} bytes", empty().bytes());
    for answers in run()? {
        for (page, new) in PAGES.iter().zip(answers) {
            println!("{page}: {}", if new { "new, crawl it" } else { "seen" });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_new_once() {
        assert_eq!(run().unwrap(), [[true; 3], [false; 3]]);
        assert!(empty().bytes() < 3_000_000);
    }
}
