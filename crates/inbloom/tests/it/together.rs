//! Filters whose answers are combined by "and": how often two of them are wrong about one key.
//!
//! One has n keys, the other these and n more, both at a rate of 0.05. If they err independently,
//! both are wrong about a non-member at the product of their rates.

use inbloom::{Filter, Hasher, Kind, Plan};
use inbloom_testing::mix;

const KEYS: u64 = 20_000;
const PAIRS: u64 = 16;
const QUERIES: u64 = 250_000;

fn filter(kind: Kind, hasher: Hasher, series: u64, keys: u64) -> Filter {
    let plan = Plan::builder(kind).items(keys).rate(0.05).build().unwrap();
    let mut filter = Filter::with_hasher(plan, hasher).unwrap();
    let keys: Vec<[u8; 8]> = (0..keys).map(|number| key(series, number)).collect();
    filter.insert_many(&keys, &mut Vec::new()).unwrap();
    filter
}

fn key(series: u64, number: u64) -> [u8; 8] {
    mix(series << 40 | number).to_le_bytes()
}

/// How often both filters of a pair were wrong, and how often it would be if they erred
/// independently.
fn measure(kind: Kind, hashers: impl Fn(u64) -> [Hasher; 2]) -> (f64, f64) {
    let (mut both, mut expected) = (0, 0.0);
    for pair in 0..PAIRS {
        let [first, second] = hashers(pair);
        let filters = [filter(kind, first, pair, KEYS), filter(kind, second, pair, 2 * KEYS)];
        let others = 2 * KEYS..2 * KEYS + QUERIES;
        let others: Vec<[u8; 8]> = others.map(|number| key(pair, number)).collect();
        let [found, too] = filters.map(|filter| {
            let mut found = Vec::new();
            filter.contains_many(&others, &mut found);
            found
        });
        let count = |found: &[bool]| found.iter().filter(|found| **found).count() as f64;
        both += found.iter().zip(&too).filter(|(one, other)| **one && **other).count();
        expected += count(&found) * count(&too) / QUERIES as f64;
    }
    (both as f64, expected)
}

#[test]
fn filters_of_one_seed_err_together_and_of_two_seeds_independently() {
    for (kind, at_least) in [(Kind::Blocked, 4.0), (Kind::Classic, 3.0), (Kind::Cuckoo, 8.0)] {
        let (both, expected) = measure(kind, |pair| [Hasher::xxh3(pair); 2]);
        println!("{kind}, one seed: {both} times both, {:.2} times the product", both / expected);
        assert!(both > at_least * expected, "{kind}: {both} times both, expected {expected:.0}");
        for step in [1, mix(1)] {
            let hashers = |pair| [Hasher::xxh3(pair), Hasher::xxh3(step.wrapping_add(pair))];
            let (both, expected) = measure(kind, hashers);
            let ratio = both / expected;
            println!("{kind}, seeds {step} apart: {both} times both, {ratio:.3} times the product");
            let off = (both - expected) / expected.sqrt();
            assert!(
                off.abs() < 4.0,
                "{kind}: {both}, expected {expected:.0}, {off:+.1} deviations"
            );
        }
    }
}
