//! Two web proxies tell each other what they have cached, as in "Summary cache" (Fan, Cao, Almeida,
//! Broder, 2000): each sends a digest now and then, and a miss asks the other one only if its
//! digest says "probably". Entries are evicted, so that the filter at home counts: it can remove.
//! Run it with `cargo run --release -p inbloom --example cache_digests`.

use std::collections::{HashSet, VecDeque};

use inbloom::{Filter, Kind, Plan};

const PAGES: f64 = 100_000.0;
const CACHED: usize = 4_000;
/// New entries between two digests: a twentieth of the cache.
const RENEWED: usize = CACHED / 20;
const REQUESTS: u64 = 100_000;
const RATE: f64 = 0.01;

struct Proxy {
    cached: HashSet<String>,
    oldest_first: VecDeque<String>,
    summary: Filter,
    renewed: usize,
    /// What was sent to the other proxy last.
    digest: Vec<u8>,
}

impl Proxy {
    fn new() -> inbloom::Result<Proxy> {
        let plan = Plan::builder(Kind::Counting).items(CACHED as u64).rate(RATE).build()?;
        let mut digest = Vec::new();
        let summary = Filter::new(plan)?;
        summary.write_to(&mut digest)?;
        let (cached, oldest_first) = (HashSet::new(), VecDeque::new());
        Ok(Proxy { cached, oldest_first, summary, renewed: 0, digest })
    }

    /// Caches a page, in the place of the oldest. Only what was inserted is ever removed.
    fn store(&mut self, url: String, outcome: &mut Outcome) -> inbloom::Result<()> {
        if self.oldest_first.len() == CACHED
            && let Some(evicted) = self.oldest_first.pop_front()
        {
            self.cached.remove(&evicted);
            self.summary.remove(&evicted)?;
        }
        self.summary.insert(&url)?;
        self.oldest_first.push_back(url.clone());
        self.cached.insert(url);
        self.renewed += 1;
        if self.renewed.is_multiple_of(RENEWED) {
            self.digest.clear();
            self.summary.write_to(&mut self.digest)?;
            outcome.digest_bytes += self.digest.len() as u64;
            outcome.list_bytes += self.cached.iter().map(|url| url.len() as u64 + 1).sum::<u64>();
        }
        Ok(())
    }
}

#[derive(Default)]
struct Outcome {
    misses: u64,
    /// Misses that the other proxy could have answered.
    held_by_peer: u64,
    queries: u64,
    useful: u64,
    digest_bytes: u64,
    list_bytes: u64,
}

fn run() -> inbloom::Result<Outcome> {
    let mut outcome = Outcome::default();
    let (mut here, mut there) = (Proxy::new()?, Proxy::new()?);
    for request in 0..2 * REQUESTS {
        // Zipf's law: the page of rank r is asked for in proportion to 1 / r.
        let page = PAGES.powf(mix(request) as f64 / u64::MAX as f64) as u64;
        let url = format!("http://www.example.org/pages/{page}.html");
        if !here.cached.contains(&url) {
            let held = there.cached.contains(&url);
            let asked = Filter::view(&there.digest)?.contains(&url); // in place, not copied
            outcome.misses += 1;
            outcome.held_by_peer += u64::from(held);
            outcome.queries += u64::from(asked);
            outcome.useful += u64::from(asked && held);
            here.store(url, &mut outcome)?;
        }
        std::mem::swap(&mut here, &mut there);
    }
    assert!(here.cached.iter().all(|url| here.summary.contains(url)), "none is ever denied");
    Ok(outcome)
}

fn main() -> inbloom::Result<()> {
    let outcome = run()?;
    let Outcome { misses, held_by_peer, queries, useful, digest_bytes, list_bytes } = outcome;
    println!("{misses} misses, of which the other proxy holds {held_by_peer}");
    println!("without digests it is asked {misses} times, with digests {queries} times");
    println!("useful queries: {useful}, {:.0}%", 100.0 * useful as f64 / queries as f64);
    println!("digests sent: {digest_bytes} bytes; lists of URLs would be {list_bytes}");
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
    fn most_queries_are_useful_and_few_chances_missed() {
        let outcome = run().unwrap();
        // A digest is half of RENEWED entries old on average: so many are missed, and so many gone.
        let (held, absent) = (outcome.held_by_peer, outcome.misses - outcome.held_by_peer);
        let stale = held as f64 / 40.0;
        let (missed, in_vain) = (held - outcome.useful, outcome.queries - outcome.useful);
        assert!((missed as f64) < 1.5 * stale, "{missed} of {held} missed");
        assert!((in_vain as f64) < 1.5 * (stale + absent as f64 * RATE), "{in_vain} in vain");
        assert!(outcome.digest_bytes * 5 < outcome.list_bytes);
    }
}
