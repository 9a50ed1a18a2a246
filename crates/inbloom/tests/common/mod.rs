//! What the test files share: reproducible randomness, keys, and every shape that a filter has.

#![allow(dead_code, reason = "each test file uses the part that it needs")]

use inbloom::{Filter, Hasher, Kind, Plan};

/// Splitmix64: one state, one output, no surprises.
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The possible values of the bitmaps below.
pub const UNIVERSE: u64 = 1 << 20;

/// A key that every kind takes: eight bytes that are, for a bitmap, an integer of its universe.
/// Different numbers below [`UNIVERSE`] give different keys, in no order.
pub fn key(number: u64) -> [u8; 8] {
    assert!(number < UNIVERSE);
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % UNIVERSE).to_le_bytes()
}

/// The keys of a range of numbers.
pub fn keys(numbers: std::ops::Range<u64>) -> Vec<[u8; 8]> {
    numbers.map(key).collect()
}

/// Every shape that a filter has, planned for `items` keys, with a name for messages.
pub fn shapes(items: u64) -> Vec<(String, Plan)> {
    let built = |builder: inbloom::PlanBuilder| builder.build().expect("a plan that can be built");
    let mut shapes = vec![
        ("dense bitmap".to_owned(), built(Plan::new(Kind::Bitmap).universe(UNIVERSE))),
        ("sparse bitmap".to_owned(), built(Plan::new(Kind::Bitmap).universe(1 << 40).items(items))),
    ];
    for probes in [1, 7, 20] {
        let plan = Plan::new(Kind::Classic).items(items).bits_per_key(20.0).probes(probes);
        shapes.push((format!("classic with {probes} probes"), built(plan)));
    }
    for (lines, probes) in line_shapes() {
        let plan = Plan::new(Kind::Blocked).items(items).bits_per_key(24.0);
        let plan = built(plan.lines(lines).probes(lines * probes));
        shapes.push((format!("blocked with {lines} lines of {probes} probes"), plan));
    }
    shapes
}

/// Lines per key and probes per line of every blocked shape.
pub fn line_shapes() -> impl Iterator<Item = (u32, u32)> {
    [1, 2].into_iter().flat_map(|lines| [4, 8, 12, 16].map(|probes| (lines, probes)))
}

/// The shapes whose state is an array of bits, which are those that threads can share.
pub fn dense_shapes(items: u64) -> Vec<(String, Plan)> {
    shapes(items).into_iter().filter(|(_, plan)| !plan.is_sparse()).collect()
}

/// An empty filter; `seed` varies the hash where there is one.
pub fn seeded(plan: Plan, seed: u64) -> Filter {
    match plan.kind() {
        Kind::Bitmap => Filter::new(plan),
        _ => Filter::with_hasher(plan, Hasher::xxh3(seed)),
    }
    .expect("memory for a small filter")
}

/// The bytes that hold a filter's bits in its file.
pub fn payload(filter: &Filter) -> Vec<u8> {
    let mut file = Vec::new();
    filter.write_to(&mut file).expect("a Vec takes every byte");
    // A file without notes ends with its payload; that of a sparse bitmap is no array of bits.
    assert!(!filter.plan().is_sparse() && filter.note().is_empty());
    file.split_off(file.len() - filter.plan().bytes() as usize)
}

/// The number of set bits in bytes, counted the plain way.
pub fn count_ones(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(byte.count_ones())).sum()
}

/// Mean and standard deviation of a sample.
pub fn mean_and_deviation(sample: &[f64]) -> (f64, f64) {
    let count = sample.len() as f64;
    let mean = sample.iter().sum::<f64>() / count;
    let variance = sample.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (count - 1.0);
    (mean, variance.sqrt())
}

/// How far a count of events per cell lies from equal shares, in standard deviations of the
/// chi-square statistic.
pub fn unevenness(counts: &[u64]) -> f64 {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let statistic: f64 =
        counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum();
    let freedom = counts.len() as f64 - 1.0;
    (statistic - freedom) / (2.0 * freedom).sqrt()
}
