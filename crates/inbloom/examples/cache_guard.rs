//! A guard against cache penetration: keys that do not exist are never in the cache, so that every
//! request for one reaches the back end. A filter of the keys that exist turns nearly all of them
//! away. Run it with `cargo run --release -p inbloom --example cache_guard`.

use std::collections::HashMap;

use inbloom::BloomFilter;

const ROWS: u64 = 10_000;
const PUTS: u64 = 2_000;
const REQUESTS: u64 = 200_000;
const RATE: f64 = 0.01;

/// The back end with its cache, and perhaps a guard before it.
struct Shop {
    guard: Option<BloomFilter>,
    cache: HashMap<u64, String>,
    back_end: HashMap<u64, String>,
    calls: u64,
}

impl Shop {
    fn get(&mut self, id: u64) -> Option<String> {
        if let Some(row) = self.cache.get(&id) {
            return Some(row.clone());
        }
        if self.guard.as_ref().is_some_and(|guard| !guard.contains(id)) {
            return None; // certainly not there
        }
        self.calls += 1;
        let row = self.back_end.get(&id)?.clone();
        self.cache.insert(id, row.clone());
        Some(row)
    }

    /// The guard learns of a row before the back end has it: it must never report one that is there as absent.
    fn put(&mut self, id: u64, row: String) {
        if let Some(guard) = &mut self.guard {
            guard.insert(id);
        }
        self.back_end.insert(id, row);
    }
}

struct Outcome {
    calls: u64,
    for_absent: u64,
    denied: u64,
}

fn run(guard: Option<BloomFilter>) -> Outcome {
    let (cache, back_end) = (HashMap::new(), HashMap::new());
    let mut shop = Shop { guard, cache, back_end, calls: 0 };
    for number in 0..ROWS {
        shop.put(mix(number), format!("row {number}"));
    }
    let (mut rows, mut for_absent, mut denied) = (ROWS, 0, 0);
    for request in 0..REQUESTS {
        if request % (REQUESTS / PUTS) == 0 {
            shop.put(mix(rows), format!("row {rows}"));
            rows += 1;
        }
        if request % 10 == 0 {
            let existing = mix(mix(request) % rows);
            denied += u64::from(shop.get(existing).is_none());
        } else {
            let calls = shop.calls;
            assert_eq!(shop.get(mix(1_000_000 + request)), None, "nobody has put this one");
            for_absent += shop.calls - calls;
        }
    }
    Outcome { calls: shop.calls, for_absent, denied }
}

fn guard() -> BloomFilter {
    BloomFilter::new((ROWS + PUTS) as usize, RATE)
}

fn main() {
    let (without, with) = (run(None), run(Some(guard())));
    println!("{REQUESTS} requests, 90% of them for keys that do not exist");
    println!("without guard: {} calls, {} in vain", without.calls, without.for_absent);
    println!("with guard:    {} calls, {} in vain", with.calls, with.for_absent);
    println!("the guard takes {} bytes; existing keys denied: {}", guard().bytes(), with.denied);
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
    fn nearly_no_call_is_in_vain_and_no_existing_key_is_denied() {
        let (without, with) = (run(None), run(Some(guard())));
        assert_eq!((without.denied, with.denied), (0, 0));
        let absent = REQUESTS / 10 * 9;
        assert_eq!(without.for_absent, absent);
        let expected = absent as f64 * RATE;
        let most = expected + 5.0 * expected.sqrt();
        assert!((with.for_absent as f64) < most, "{} calls in vain", with.for_absent);
        assert_eq!(with.calls - with.for_absent, without.calls - without.for_absent);
    }
}
