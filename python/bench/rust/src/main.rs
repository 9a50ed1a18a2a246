//! The batches of `bench.py` in Rust alone: what Python's batches are compared with.
//!
//! `inbloom-python-bench KEYS urls|integers` prints the nanoseconds per key of an insert and of a query,
//! hashing included, in batches of 10,000 keys.

use std::time::Instant;

use inbloom::{AsKey, Filter, Kind, Plan};

const BATCH: usize = 10_000;

/// A URL as bench.py makes them.
fn url(number: u64) -> String {
    format!("https://example.org/{}/{}/page.html", number % 1000, number * 7919)
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (Some(keys), Some(kind)) =
        (arguments.get(1).and_then(|n| n.parse().ok()), arguments.get(2))
    else {
        eprintln!("usage: inbloom-python-bench KEYS urls|integers");
        std::process::exit(2);
    };
    let times = match kind.as_str() {
        "urls" => measure(keys, |number| url(number)),
        _ => measure(keys, |number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    };
    println!("{:.2} {:.2}", times.0, times.1);
}

fn measure<K: AsKey>(keys: u64, key: impl Fn(u64) -> K) -> (f64, f64) {
    let plan = Plan::builder(Kind::Blocked).items(keys).rate(0.01).build().expect("a plan");
    let mut filter = Filter::new(plan).expect("memory");
    let batch = |start: u64| (start..start + BATCH as u64).map(&key).collect::<Vec<K>>();
    let mut answers = Vec::new();
    let (mut insert, mut query) = (0.0, 0.0);
    let mut batches = 0.0;
    for start in (0..keys).step_by(BATCH) {
        let keys = batch(start);
        let began = Instant::now();
        filter.insert_many(&keys, &mut answers).expect("a filter that takes keys");
        insert += began.elapsed().as_nanos() as f64;
        batches += 1.0;
    }
    let queried = 100.0_f64.min(batches);
    for number in 0..queried as u64 {
        // Half of them were inserted.
        let keys = batch(number * BATCH as u64 * (2 * keys / BATCH as u64 / queried as u64));
        let began = Instant::now();
        filter.contains_many(&keys, &mut answers);
        query += began.elapsed().as_nanos() as f64;
    }
    (insert / batches / BATCH as f64, query / queried / BATCH as f64)
}
