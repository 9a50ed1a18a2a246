//! The law of [`Filter::estimated_items`]: the true number of distinct keys is within two of its
//! deviations in 19 of 20 filters, and the deviations are no larger than that takes.
//!
//! Every run has a hash seed and keys of its own. Some keys come twice, and count once.

use std::time::Duration;

use inbloom::{Digest, Filter, Hasher, Kind, Plan, PlanBuilder};
use inbloom_testing::mix;

const RUNS: u64 = 40;

/// Digests of so many distinct keys, with every tenth of them once more at the end.
fn digests(hasher: Hasher, series: u64, keys: u64) -> Vec<Digest> {
    let numbers = (0..keys).chain((0..keys).step_by(10));
    numbers.map(|number| hasher.digest(mix(series << 40 | number).to_le_bytes())).collect()
}

/// Makes a filter of so many keys in each of [`RUNS`] runs, and compares the estimates with the
/// truth.
fn check(name: &str, keys: u64, make: impl Fn(Hasher, &[Digest]) -> Filter) {
    let runs: Vec<(f64, f64)> = (0..RUNS)
        .map(|run| {
            let hasher = Hasher::xxh3(mix(keys << 8 | run));
            let filter = make(hasher, &digests(hasher, run, keys));
            let estimate = filter.estimated_items();
            (estimate.items - keys as f64, estimate.error)
        })
        .collect();
    // A number of keys is whole, and an estimate is not: within a half is right.
    let right = |(off, error): &&(f64, f64)| off.abs() <= 2.0 * error + 0.5;
    let within = runs.iter().filter(right).count();
    let squares: f64 = runs.iter().map(|(off, _)| off * off).sum();
    let (off, error) = runs.iter().fold((0.0, 0.0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
    let (off, error) = (off / RUNS as f64, error / RUNS as f64);
    let deviation = (squares / RUNS as f64).sqrt();
    let report = format!(
        "{name}, {keys} keys: {within} of {RUNS} within two deviations; off by {off:+.1} on \
         average and by {deviation:.1} at the root of the mean square; the error is {error:.1}"
    );
    println!("{report}");
    // 38 are expected; 34 or fewer come in 1 of 70 such series, if all is well.
    assert!(within >= 34, "{report}");
    // The error of a series' own deviation is 11%.
    assert!(deviation <= 1.5 * error + 0.5, "{report}");
    assert!(deviation >= 0.6 * error - 0.5, "{report}");
}

fn filled(plan: PlanBuilder) -> impl Fn(Hasher, &[Digest]) -> Filter {
    let plan = plan.build().unwrap();
    move |hasher, digests| {
        let mut filter = Filter::with_hasher(plan, hasher).unwrap();
        filter.insert_digests(digests, &mut Vec::new()).unwrap();
        filter
    }
}

#[test]
fn a_filter_that_grows_counts_the_keys_that_it_took_for_others() {
    for rate in [0.1, 0.01, 0.001] {
        for keys in [3_000, 20_000, 150_000, 1_000_000] {
            // A million keys at a high rate make the error small beside what it has to cover.
            if keys == 1_000_000 && rate != 0.01 {
                continue;
            }
            let plan = Plan::builder(Kind::Scalable).rate(rate);
            check(&format!("scalable at {rate}"), keys, filled(plan));
        }
        let plan = Plan::builder(Kind::Scalable).rate(rate).items(50_000);
        check(&format!("scalable from 50,000 at {rate}"), 200_000, filled(plan));
        let plan = Plan::builder(Kind::Scalable).rate(rate).items(50_000).growth(0);
        check(&format!("scalable without growth at {rate}"), 50_000, filled(plan));
        let plan = Plan::builder(Kind::Scalable).rate(rate).growth(4);
        check(&format!("scalable by 4 at {rate}"), 100_000, filled(plan));
    }
}

#[test]
fn an_overlay_counts_the_keys_that_it_took_for_others() {
    for (rate, keys) in [(0.1, 30_000), (0.01, 30_000), (0.01, 300_000)] {
        let plan = Plan::builder(Kind::Ribbon).items(keys / 2).rate(rate * 0.9).build().unwrap();
        check(&format!("overlay at {rate}"), keys, |hasher, digests| {
            let (first, later) = digests.split_at((keys / 2) as usize);
            let mut list = Filter::build(plan, hasher, first).unwrap().into_overlay(rate).unwrap();
            list.insert_digests(later, &mut Vec::new()).unwrap();
            list
        });
    }
}

#[test]
fn filters_of_bits_and_counters_know_their_deviation() {
    for rate in [0.1, 0.01, 1e-4] {
        for keys in [1_000, 30_000] {
            for kind in [Kind::Blocked, Kind::Classic, Kind::Counting] {
                let plan = Plan::builder(kind).items(keys).rate(rate);
                check(&format!("{kind} at {rate}"), keys, filled(plan));
            }
            let plan = Plan::builder(Kind::Blocked).items(keys).rate(rate).lines(2);
            check(&format!("blocked with two lines at {rate}"), keys, filled(plan));
        }
    }
}

#[test]
fn a_cuckoo_filter_counts_keys_and_not_their_copies() {
    for rate in [0.1, 0.01, 1e-4] {
        for keys in [1_000, 30_000] {
            let plan = Plan::builder(Kind::Cuckoo).items(keys * 6 / 5).rate(rate).build().unwrap();
            check(
                &format!("cuckoo at {rate}"),
                keys,
                filled(Plan::builder(Kind::Cuckoo).items(keys * 6 / 5).rate(rate)),
            );
            check(&format!("cuckoo, once each, at {rate}"), keys, |hasher, digests| {
                let mut filter = Filter::with_hasher(plan, hasher).unwrap();
                for digest in digests {
                    if !filter.contains_digest(*digest) {
                        filter.insert_digest(*digest).unwrap();
                    }
                }
                filter
            });
        }
    }
}

#[test]
fn a_merged_cuckoo_filter_counts_common_keys_once() {
    let plan = Plan::builder(Kind::Cuckoo).items(60_000).rate(0.01).build().unwrap();
    check("cuckoo, merged", 30_000, |hasher, digests| {
        let of = |digests: &[Digest]| {
            let mut filter = Filter::with_hasher(plan, hasher).unwrap();
            filter.insert_digests(digests, &mut Vec::new()).unwrap();
            filter
        };
        let mut merged = of(&digests[..20_000]);
        merged.merge(&of(&digests[10_000..])).unwrap();
        merged
    });
}

#[test]
fn a_window_knows_the_deviation_of_its_generations() {
    for rate in [0.1, 0.01] {
        let plan =
            Plan::builder(Kind::Window).items(20_000).window(Duration::from_secs(4)).rate(rate);
        let plan = plan.build().unwrap();
        check(&format!("window at {rate}"), 20_000, |hasher, digests| {
            let mut filter = Filter::with_hasher(plan, hasher).unwrap();
            // What comes again later would count in both of its generations.
            for (second, digests) in digests[..20_000].chunks(5_000).enumerate() {
                filter.advance(1000 * second as u64).unwrap();
                filter.insert_digests(digests, &mut Vec::new()).unwrap();
            }
            filter
        });
    }
}

#[test]
fn a_ribbon_counts_exactly() {
    let hasher = Hasher::xxh3(7);
    let plan = Plan::builder(Kind::Ribbon).items(11_000).rate(0.01).build().unwrap();
    let estimate =
        Filter::build(plan, hasher, &digests(hasher, 1, 10_000)).unwrap().estimated_items();
    assert_eq!((estimate.items, estimate.error), (10_000.0, 0.0));
}
