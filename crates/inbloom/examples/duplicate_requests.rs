//! An interceptor of duplicate requests: an id that comes again within ten minutes is a retry and
//! is refused; after that it may come again. The clock is an argument: an hour passes here in less
//! than a second. Run it with `cargo run --release -p inbloom --example duplicate_requests`.

use std::time::Duration;

use inbloom::{Filter, Kind, Plan};

const WINDOW: Duration = Duration::from_secs(600);
/// The window forgets in four steps: an id is forgotten for certain a step after its time.
const FORGOTTEN: Duration = Duration::from_secs(600 + 150);
const MILLIS_PER_REQUEST: u64 = 30;
const REQUESTS: u64 = 120_000; // an hour
const RATE: f64 = 1e-5;

struct Interceptor {
    recent: Filter,
}

impl Interceptor {
    fn new() -> inbloom::Result<Interceptor> {
        // New requests, and the one in ten that comes again when it was forgotten.
        let items = in_requests(WINDOW) * 11 / 10;
        let plan = Plan::builder(Kind::Window).items(items).window(WINDOW).rate(RATE).build()?;
        Ok(Interceptor { recent: Filter::new(plan)? })
    }

    /// Whether to let a request pass. `insert` alone would tell, too; but it renews the id with
    /// every retry, and who retries every five minutes would never be let in again.
    fn accept(&mut self, now_ms: u64, id: u64) -> inbloom::Result<bool> {
        self.recent.advance(now_ms)?;
        self.recent.insert_if_absent(id)
    }
}

#[derive(Default)]
struct Outcome {
    retries: u64,
    retries_accepted: u64,
    late: u64,
    late_refused: u64,
    new_refused: u64,
    bytes: u64,
}

fn run() -> inbloom::Result<Outcome> {
    let mut interceptor = Interceptor::new()?;
    let mut outcome = Outcome::default();
    let mut accepted = Vec::new();
    for request in 0..REQUESTS {
        let now = request * MILLIS_PER_REQUEST;
        accepted.push(interceptor.accept(now, request)?);
        outcome.new_refused += u64::from(!accepted[request as usize]);
        // Every tenth request is followed by a retry of one within the window, ...
        let earlier = request.saturating_sub(mix(request) % in_requests(WINDOW));
        if request % 10 == 0 && accepted[earlier as usize] {
            outcome.retries += 1;
            outcome.retries_accepted += u64::from(interceptor.accept(now, earlier)?);
        }
        // ... and every other tenth by one that was accepted so long ago that it counts as new.
        if request % 10 == 5
            && let Some(earlier) = request.checked_sub(in_requests(FORGOTTEN))
        {
            outcome.late += 1;
            outcome.late_refused += u64::from(!interceptor.accept(now, earlier)?);
        }
    }
    outcome.bytes = interceptor.recent.bytes();
    Ok(outcome)
}

fn in_requests(time: Duration) -> u64 {
    time.as_millis() as u64 / MILLIS_PER_REQUEST
}

fn main() -> inbloom::Result<()> {
    let outcome = run()?;
    let exact = in_requests(WINDOW) * (8 + 8);
    println!(
        "retries within ten minutes: {}, accepted {}",
        outcome.retries, outcome.retries_accepted
    );
    println!("the same id later: {}, refused {}", outcome.late, outcome.late_refused);
    println!("new requests: {REQUESTS}, false positives {}", outcome.new_refused);
    println!("the window takes {} bytes, ids and times alone {exact}", outcome.bytes);
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
    fn retries_are_caught_within_the_window_and_accepted_after_it() {
        let outcome = run().unwrap();
        assert_eq!(outcome.retries_accepted, 0, "a retry was let in");
        assert!(outcome.retries > 10_000 && outcome.late > 9_000);
        let expected = (REQUESTS + outcome.late) as f64 * RATE;
        let refused = (outcome.new_refused + outcome.late_refused) as f64;
        assert!(refused < expected + 5.0 * expected.sqrt(), "{refused} refused by accident");
    }
}
