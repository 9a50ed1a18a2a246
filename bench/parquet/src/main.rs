//! Queries of Parquet's split-block filter: inbloom in batches and one by one, against the `Sbbf` of the
//! Rust crate `parquet`, which has no batches. Both have the same bytes, and must give the same answers.
//!
//!   cargo run --release

use std::hint::black_box;
use std::time::Instant;

use inbloom::interop::{Container, Format};
use inbloom_testing::Random;
use parquet::bloom_filter::Sbbf;

/// Rounds, in which all take turns; the medians are printed.
const ROUNDS: usize = 15;
/// Keys that are asked for in a round.
const ASKED: usize = 1 << 20;

fn main() {
    println!(
        "ns for a key: median of {ROUNDS} rounds in turns, {ASKED} keys each, half of them in"
    );
    println!();
    println!(
        "| keys in | bytes | key | parquet | inbloom, single | inbloom, batch | ratio, batch |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (items, rate) in [(10_000, 0.01), (100_000, 0.01), (1_000_000, 0.01), (30_000_000, 0.01)] {
        measure(items, rate, "u64", |number| number.to_le_bytes().to_vec());
        measure(items, rate, "URL", |number| {
            format!("https://www.example.com/{:x}/{number:x}.html", number % 977).into_bytes()
        });
    }
}

fn measure(items: u64, rate: f64, kind: &str, key: impl Fn(u64) -> Vec<u8>) {
    let format: Format = "parquet".parse().expect("a format");
    let mut ours = inbloom::Filter::for_format(format.into(), items, rate).expect("memory");
    let mut theirs = Sbbf::new_with_ndv_fpp(items, rate).expect("a filter");
    let member = |number: u64| key(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for number in 0..items {
        let key = member(number);
        ours.insert(&key).expect("a filter of our own");
        theirs.insert(&key[..]);
    }
    let (mut here, mut there) = (Vec::new(), Vec::new());
    ours.write_as(Container::from(format), &mut here).expect("memory");
    theirs.write(&mut there).expect("memory");
    assert!(here == there, "the same keys give the same bytes");

    // Half of the keys are in; the others are numbers behind the last.
    let mut random = Random(items);
    let keys: Vec<Vec<u8>> = (0..ASKED).map(|_| member(random.below(2 * items))).collect();
    let mut times = [const { Vec::new() }; 3];
    let mut found = Vec::new();
    for _ in 0..ROUNDS {
        let mut answers = [0; 3];
        let start = Instant::now();
        answers[0] = keys.iter().filter(|key| theirs.check(&key[..])).count();
        times[0].push(start.elapsed());
        let start = Instant::now();
        answers[1] = keys.iter().filter(|key| ours.contains(key)).count();
        times[1].push(start.elapsed());
        let start = Instant::now();
        ours.contains_many(&keys, &mut found);
        times[2].push(start.elapsed());
        answers[2] = black_box(&found).iter().filter(|found| **found).count();
        assert!(answers.iter().all(|count| *count == answers[0]), "{answers:?}");
    }
    let [theirs, single, batch] = times.map(|mut times| {
        times.sort_unstable();
        times[ROUNDS / 2].as_secs_f64() * 1e9 / ASKED as f64
    });
    let ratio = theirs / batch;
    let bytes = here.len();
    println!(
        "| {items} | {bytes} | {kind} | {theirs:.1} | {single:.1} | {batch:.1} | {ratio:.2} |"
    );
}
