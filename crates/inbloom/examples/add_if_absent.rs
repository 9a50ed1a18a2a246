//! The crawler's question, across restarts: is this path new? Run it with
//! `cargo run --release -p inbloom --example add_if_absent`.

use std::path::Path;

use inbloom::{Filter, Kind, OpenOptions, Plan};

const PAGES: [&str; 3] = ["/8/8217/5159455.html", "/8/8217/5159456.html", "/8/8217/5159457.html"];

fn plan() -> inbloom::Result<Plan> {
    Plan::builder(Kind::Blocked).items(1_000_000).rate(1e-4).build()
}

/// One run of the program: open the filter to change it, if there is one, and save it as a whole.
fn one_run(path: &Path) -> inbloom::Result<Vec<bool>> {
    let mut seen = if path.exists() {
        OpenOptions::new().writable(true).open(path)?
    } else {
        Filter::new(plan()?)?
    };
    let mut new = Vec::new();
    for page in PAGES {
        new.push(seen.insert(page)?);
    }
    seen.save(path)?;
    Ok(new)
}

fn run() -> inbloom::Result<[Vec<bool>; 2]> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("seen.ib");
    Ok([one_run(&path)?, one_run(&path)?])
}

fn main() -> inbloom::Result<()> {
    println!("a million paths at one error in ten thousand take {} bytes", plan()?.bytes());
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
        assert_eq!(run().unwrap(), [vec![true; 3], vec![false; 3]]);
        assert!(plan().unwrap().bytes() < 3_000_000);
    }
}
