//! Has this user read this article? A small filter for every user, thousands of them in one map: no
//! article is recommended that was read, and hardly any is left out that was not. Run it with
//! `cargo run --release -p inbloom --example articles_read`.
//!
//! One filter over pairs of user and article would do as well. A filter each can be dropped with
//! its user, moved to another server, or sent to the user's telephone.

use std::collections::{HashMap, HashSet};

use inbloom::BloomFilter;

const USERS: u64 = 2_000;
const ARTICLES: u64 = 100_000;
const READ_AT_MOST: u64 = 500;
const CANDIDATES: u64 = 100;
const RATE: f64 = 0.01;

struct Outcome {
    filter_bytes: u64,
    set_bytes: u64,
    /// Recommendations of articles that were read.
    repeated: u64,
    /// Candidates that were not read, and how many of them were taken for read.
    unread: u64,
    withheld: u64,
}

fn run() -> Outcome {
    let mut read: HashMap<u64, BloomFilter> = HashMap::new();
    let mut exact: HashMap<u64, HashSet<u64>> = HashMap::new(); // to compare
    for user in 0..USERS {
        let empty = || BloomFilter::new(READ_AT_MOST as usize, RATE);
        let (filter, set) =
            (read.entry(user).or_insert_with(empty), exact.entry(user).or_default());
        for nth in 0..READ_AT_MOST / 2 + mix(user) % (READ_AT_MOST / 2) {
            let article = mix(user << 32 | nth) % ARTICLES;
            filter.insert(article);
            set.insert(article);
        }
    }

    let (mut repeated, mut unread, mut withheld) = (0, 0, 0);
    for (user, filter) in &read {
        for candidate in 0..CANDIDATES {
            let article = match candidate % 2 {
                0 => mix(user << 32 | candidate) % ARTICLES, // one that the user has read
                _ => mix(user << 32 | 1 << 31 | candidate) % ARTICLES,
            };
            let recommended = !filter.contains(article);
            if exact[user].contains(&article) {
                repeated += u64::from(recommended);
            } else {
                unread += 1;
                withheld += u64::from(!recommended);
            }
        }
    }

    // What the map of users takes is the same on both sides. A set of integers takes 9 bytes for
    // each of its slots, which are 8/7 of its capacity.
    let set_bytes = |set: &HashSet<u64>| size_of_val(set) + set.capacity() * 8 / 7 * 9;
    Outcome {
        filter_bytes: read.values().map(|each| size_of_val(each) as u64 + each.bytes()).sum(),
        set_bytes: exact.values().map(|set| set_bytes(set) as u64).sum(),
        repeated,
        unread,
        withheld,
    }
}

fn main() {
    let outcome = run();
    let share = 100.0 * outcome.withheld as f64 / outcome.unread as f64;
    println!("{USERS} users who have read up to {READ_AT_MOST} articles each");
    println!("as filters: {} bytes per user", outcome.filter_bytes / USERS);
    println!("as sets:    {} bytes per user", outcome.set_bytes / USERS);
    println!("articles recommended that were read: {}", outcome.repeated);
    println!("not recommended though not read: {share:.2}% of {} candidates", outcome.unread);
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
    fn no_article_is_repeated_and_few_are_withheld() {
        let outcome = run();
        assert_eq!(outcome.repeated, 0);
        let expected = outcome.unread as f64 * RATE;
        let most = expected + 5.0 * expected.sqrt();
        assert!((outcome.withheld as f64) < most, "{} withheld", outcome.withheld);
        // What the README says.
        let per_user = |bytes: u64| bytes / USERS;
        assert!(per_user(outcome.filter_bytes) < 1000, "{}", per_user(outcome.filter_bytes));
        assert_eq!(per_user(outcome.set_bytes), 5598);
    }
}
