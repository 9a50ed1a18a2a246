//! A crawler that is stopped and started again: what it has seen is in a filter, which it saves
//! with the URLs that are still to be fetched. Nobody knows how many URLs there will be, so that
//! the filter grows. Run it with `cargo run --release -p inbloom --example crawler_frontier`.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::path::Path;

use inbloom::{Filter, Kind, OpenOptions, Plan};

const PAGES: u64 = 40_000;
const PAGES_PER_RUN: usize = 9_000;
const RATE: f64 = 0.001;
/// The filter begins with room for 100 keys. What it begins with hardly matters, since it grows.
const KIND: (Kind, u64) = (Kind::Scalable, 100);

/// The synthetic web: every page links to eight others.
fn links(url: &str) -> [String; 8] {
    let page: u64 = url.rsplit('/').next().and_then(|end| end.parse().ok()).unwrap_or(0);
    let tree = [2 * page + 1, 2 * page + 2].map(|child| child % PAGES);
    std::array::from_fn(|at| {
        let next = *tree.get(at).unwrap_or(&(mix(page * 8 + at as u64) % PAGES));
        format!("https://example.org/archive/{next}")
    })
}

struct Outcome {
    runs: u64,
    /// URLs in the order in which they were fetched.
    fetched: Vec<String>,
    /// All URLs that were met: a crawler does not have this set, here it tells what is lost.
    met: HashSet<String>,
    filter_bytes: u64,
}

/// One life of the process: it opens what the last one saved, works for a while, saves and ends.
fn crawl(folder: &Path, outcome: &mut Outcome) -> inbloom::Result<bool> {
    let (seen_path, frontier_path) = (folder.join("seen.ib"), folder.join("frontier.txt"));
    let mut seen = if seen_path.exists() {
        OpenOptions::new().writable(true).open(&seen_path)?
    } else {
        Filter::new(Plan::builder(KIND.0).items(KIND.1).rate(RATE).build()?)?
    };
    let frontier = fs::read_to_string(&frontier_path).unwrap_or("https://example.org/0".into());
    let mut frontier: VecDeque<String> = frontier.lines().map(str::to_owned).collect();
    for _ in 0..PAGES_PER_RUN {
        let Some(url) = frontier.pop_front() else { break };
        for link in links(&url) {
            outcome.met.insert(link.clone());
            if seen.insert(&link)? {
                frontier.push_back(link); // certainly new
            }
        }
        outcome.fetched.push(url);
    }
    seen.save(&seen_path)?;
    let left: Vec<String> = frontier.into();
    fs::write(&frontier_path, left.join("\n")).expect("a folder to write to");
    (outcome.runs, outcome.filter_bytes) = (outcome.runs + 1, seen.bytes());
    Ok(!left.is_empty())
}

fn run() -> inbloom::Result<Outcome> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (fetched, met) = (Vec::new(), HashSet::new());
    let mut outcome = Outcome { runs: 0, fetched, met, filter_bytes: 0 };
    while crawl(folder.path(), &mut outcome)? {}
    outcome.fetched.remove(0); // the seed, which nobody met
    Ok(outcome)
}

fn main() -> inbloom::Result<()> {
    let Outcome { runs, fetched, met, filter_bytes } = run()?;
    let distinct: HashSet<&String> = fetched.iter().collect();
    let url_bytes: usize = met.iter().map(String::len).sum();
    println!("{} pages fetched in {runs} runs of the program", fetched.len());
    println!("fetched twice: {}", fetched.len() - distinct.len());
    println!("lost to false positives: {} of {}", met.len() - distinct.len(), met.len());
    println!("the filter takes {filter_bytes} bytes, the URLs {url_bytes}");
    Ok(())
}

/// Splitmix64: numbers that look random and are the same in every run.
fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_page_is_fetched_twice_and_none_lost_beyond_the_rate() {
        let Outcome { runs, fetched, met, .. } = run().unwrap();
        assert!(runs > 3, "{runs} runs");
        let distinct: HashSet<&String> = fetched.iter().collect();
        assert_eq!(distinct.len(), fetched.len(), "fetched twice");
        let expected = met.len() as f64 * RATE;
        let (lost, most) = (met.len() - distinct.len(), expected + 5.0 * expected.sqrt());
        assert!((lost as f64) < most, "{lost} of {} lost", met.len());
        assert!(met.len() as f64 > 0.99 * PAGES as f64, "a lost page costs hardly any other");
    }
}
