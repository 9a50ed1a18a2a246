//! A scalable filter while it grows: what each insert takes, and what it has come to at each size.
//!
//! Every insert is timed by the processor time of the thread, so that a busy machine adds nothing.
//! The clock itself takes a few hundred nanoseconds, which a line of its own shows. The rate is
//! measured on keys that were never inserted, after one doubling, and after 5, 12 and 17.

use std::error::Error;
use std::hint::black_box;

use clap::Args;
use inbloom::{Digest, Kind};

use crate::clock::Clock;
use crate::ours;
use crate::report;
use crate::sizing::absent_keys;
use crate::table;
use crate::workload::{Key, absent_runs};

/// Keys that the filter is planned for.
const FIRST: u64 = 100;
/// Doublings after which the rate is measured, beside the end.
const DOUBLINGS: [u32; 4] = [1, 5, 12, 17];

/// Options of `growth`.
#[derive(Args)]
pub(crate) struct Options {
    /// Keys to insert.
    #[arg(short, value_parser = table::count, default_value = "100M")]
    n: u64,
    /// Target rates of false positives.
    #[arg(long, value_delimiter = ',', default_value = "0.01,0.001,0.0001")]
    rates: Vec<f64>,
}

/// Grows a filter for each rate.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let mut clock = Times::new();
    (0..1_000_000).for_each(|_| clock.add(Clock::Thread.time(|| black_box(())).1.as_nanos()));
    println!("the clock alone: {}", clock.summary());
    for rate in &options.rates {
        grow(options.n, *rate)?;
    }
    Ok(())
}

fn grow(items: u64, target: f64) -> Result<(), Box<dyn Error>> {
    let mut filter = ours::filter(Kind::Scalable, FIRST, target);
    let mut times = Times::new();
    println!("\nscalable, grown from {FIRST}, target {}%", target * 100.0);
    let mut sizes: Vec<u64> = DOUBLINGS.iter().map(|doublings| FIRST << doublings).collect();
    sizes.retain(|size| *size < items);
    sizes.push(items);
    let (mut next, mut memory, mut most) = (0, filter.memory(), 0);
    for size in sizes {
        for digest in (next..size).map(Digest::of) {
            let (inserted, time) = Clock::Thread.time(|| filter.insert_digest(digest));
            black_box(inserted?);
            times.add(time.as_nanos());
            let now = filter.memory();
            most = most.max(now.saturating_sub(memory));
            memory = now;
        }
        next = size;
        let absent = absent_keys(target);
        let mut found = 0;
        absent_runs(absent, |keys: &[Digest]| {
            found += keys.iter().filter(|&&digest| filter.contains_digest(digest)).count();
        });
        let measured = found as f64 / absent as f64;
        println!(
            "{:>10} keys: rate {:.4}% measured, {:.4}% counted; {:.2} bits per key, {:.2} with all \
             memory",
            report::count(size),
            measured * 100.0,
            filter.rate() * 100.0,
            filter.bytes() as f64 * 8.0 / size as f64,
            filter.memory() as f64 * 8.0 / size as f64,
        );
        assert!(filter.rate() <= target, "above the target rate");
    }
    println!("one insert: {}", times.summary());
    println!("memory grows by at most {most} bytes at once");
    Ok(())
}

/// Times in nanoseconds, counted in classes that are a 16th wide.
struct Times {
    classes: Vec<u64>,
    count: u64,
    longest: u128,
}

impl Times {
    fn new() -> Times {
        Times { classes: vec![0; 64 * 16], count: 0, longest: 0 }
    }

    fn add(&mut self, time: u128) {
        let time_or_16 = time.max(16);
        let power = time_or_16.ilog2();
        let class = power as usize * 16 + (time_or_16 >> (power - 4)) as usize % 16;
        self.classes[class] += 1;
        self.count += 1;
        self.longest = self.longest.max(time);
    }

    /// The end of the class in which this share of all times ends.
    fn quantile(&self, share: f64) -> u64 {
        let mut left = (self.count as f64 * share) as u64;
        let class = self.classes.iter().position(|count| {
            let is_here = *count > left;
            left = left.saturating_sub(*count);
            is_here
        });
        let class = class.unwrap_or(0);
        ((17 + class as u64 % 16) << (class / 16)) / 16
    }

    fn summary(&self) -> String {
        let [half, p999, p99999] = [0.5, 0.999, 0.99999].map(|share| self.quantile(share));
        format!(
            "median {half} ns, p99.9 {p999} ns, p99.999 {p99999} ns, longest {} ns",
            self.longest
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_at_most_a_16th_too_long() {
        let mut times = Times::new();
        (1..=100_000).for_each(|time| times.add(time));
        for (share, exact) in [(0.5, 50_000.0), (0.999, 99_900.0)] {
            let found = times.quantile(share) as f64;
            assert!(found >= exact && found <= exact * 1.07, "{share}: {found}");
        }
        assert_eq!(times.longest, 100_000);
    }
}
