//! What the test files share: keys, and every shape that a filter has.

use std::time::Duration;

use inbloom::{Filter, Hasher, Kind, Plan, PlanBuilder, Span};

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

/// Every shape that a filter has which takes inserts, planned for `items` keys, with a name for messages.
/// Static kinds are built instead: their laws are those of `ribbon.rs`.
pub fn shapes(items: u64) -> Vec<(String, Plan)> {
    shapes_for(items, items)
}

/// As [`shapes`], but those that would refuse or forget keys beyond their plan are planned for
/// `most`, so that they can hold as many, copies included.
pub fn shapes_for(items: u64, most: u64) -> Vec<(String, Plan)> {
    let built = |builder: PlanBuilder| builder.build().expect("a plan that can be built");
    let mut shapes = vec![
        ("dense bitmap".to_owned(), built(Plan::builder(Kind::Bitmap).universe(UNIVERSE))),
        (
            "sparse bitmap".to_owned(),
            built(Plan::builder(Kind::Bitmap).universe(1 << 40).items(items)),
        ),
    ];
    for probes in [1, 7, 20] {
        let plan = Plan::builder(Kind::Classic).items(items).bits_per_key(20.0).probes(probes);
        shapes.push((format!("classic with {probes} probes"), built(plan)));
    }
    for (lines, probes) in line_shapes() {
        let plan = Plan::builder(Kind::Blocked).items(items).bits_per_key(24.0);
        let plan = built(plan.lines(lines).probes(lines * probes));
        shapes.push((format!("blocked with {lines} lines of {probes} probes"), plan));
    }
    for width in [2, 4, 8] {
        for (lines, rate) in [(1, 1e-3), (2, 1e-5)] {
            let plan =
                Plan::builder(Kind::Counting).items(items).rate(rate).width(width).lines(lines);
            shapes.push((format!("counting with {lines} lines of {width} bits"), built(plan)));
        }
    }
    shapes.extend(cuckoos(most));
    for generations in [1, 4] {
        let plan = Plan::builder(Kind::Window).last(most).generations(generations);
        shapes.push((format!("window of keys in {generations} steps"), built(plan)));
    }
    let plan = Plan::builder(Kind::Window).window(SPAN).items(most);
    shapes.push(("window of time".to_owned(), built(plan)));
    let plan = |items| Plan::builder(Kind::Scalable).items(items).rate(1e-3);
    shapes.push(("scalable from 100 on".to_owned(), built(plan(100))));
    shapes.push(("scalable as planned".to_owned(), built(plan(items))));
    shapes.push(("scalable that does not grow".to_owned(), built(plan(most).growth(0))));
    shapes
}

/// The cuckoo filters among the shapes, for so many items and not for many more.
pub fn cuckoos(items: u64) -> Vec<(String, Plan)> {
    let of_rate = |rate| {
        let plan = Plan::builder(Kind::Cuckoo).items(items).rate(rate).build();
        (format!("cuckoo at {rate}"), plan.expect("a plan that can be built"))
    };
    [0.1, 0.001, 1e-6].map(of_rate).into()
}

/// The time that the window of time among the shapes reaches back.
pub const SPAN: Duration = Duration::from_millis(1000);

/// Inserts keys evenly over the time of a window that has a clock; at once into any other filter.
pub fn insert_over_time(filter: &mut Filter, keys: &[[u8; 8]]) {
    let steps = match filter.plan().span() {
        Some(Span::Millis(_)) => u64::from(filter.plan().generations()),
        _ => 1,
    };
    let each = keys.len().div_ceil(steps as usize).max(1);
    for (step, keys) in keys.chunks(each).enumerate() {
        if steps > 1 {
            let now = SPAN.as_millis() as u64 / steps * step as u64;
            filter.advance(now).expect("a window that has a clock");
        }
        filter.insert_many(keys, &mut Vec::new()).expect("an insert into memory");
    }
}

/// The most copies of a key that a count can tell; 1 if the kind does not count.
pub fn max_count(plan: &Plan) -> u64 {
    match plan.kind() {
        Kind::Counting => (1 << plan.width()) - 1,
        Kind::Cuckoo => 8,
        _ => 1,
    }
}

/// Lines per key and probes per line of every blocked shape.
pub fn line_shapes() -> impl Iterator<Item = (u32, u32)> {
    [1, 2].into_iter().flat_map(|lines| [4, 8, 12, 16].map(|probes| (lines, probes)))
}

/// An empty filter; `seed` varies the hash where there is one.
pub fn seeded(plan: Plan, seed: u64) -> Filter {
    match plan.kind() {
        Kind::Bitmap => Filter::new(plan),
        _ => Filter::with_hasher(plan, Hasher::xxh3(seed)),
    }
    .expect("memory for a small filter")
}

/// The bytes of a filter's file.
pub fn file_of(filter: &Filter) -> Vec<u8> {
    let mut file = Vec::new();
    filter.write_to(&mut file).expect("a Vec takes every byte");
    file
}

/// The bytes that hold a filter's cells in its file.
pub fn payload(filter: &Filter) -> Vec<u8> {
    let mut file = file_of(filter);
    let sections = u32::from_le_bytes(file[12..16].try_into().unwrap()) as usize;
    let entry = &file[128 + 32 * (sections - 1)..][..32];
    assert_eq!(&entry[..4], b"BITS", "the last section is the payload");
    let offset = u64::from_le_bytes(entry[8..16].try_into().unwrap());
    file.split_off(offset as usize)
}

/// The cells in use, by number, read the plain way from the payload: set bits, counters above zero,
/// fingerprints. Those of a window's generations are numbered through. Not for sparse bitmaps.
pub fn used_cells(filter: &Filter) -> Vec<u64> {
    let (plan, payload) = (filter.plan(), payload(filter));
    assert!(!plan.is_sparse(), "a roaring bitmap is no array of cells");
    let cells = match plan.kind() {
        Kind::Window => {
            // The directory is a count after the clock, and three words for each generation.
            let count = u64::from_le_bytes(payload[8..16].try_into().unwrap()) as usize;
            let directory = (16 + 24 * count).next_multiple_of(64);
            assert_eq!(payload.len(), directory + count * plan.bits() as usize / 8);
            &payload[directory..]
        }
        _ => &payload[..],
    };
    let width = u64::from(plan.width());
    let bit = |at: u64| cells[(at / 8) as usize] >> (at % 8) & 1 == 1;
    let used = |cell: &u64| (cell * width..(cell + 1) * width).any(bit);
    (0..cells.len() as u64 * 8 / width).filter(used).collect()
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
