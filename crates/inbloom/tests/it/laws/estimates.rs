//! Estimates of the number of keys, and the current rate.

use super::*;

#[test]
fn the_estimate_of_items_is_off_by_what_it_says() {
    const ITEMS: u64 = 4000;
    const FILTERS: u64 = 200;
    let mut broken = Vec::new();
    for (name, plan) in shapes_for(ITEMS, 2 * ITEMS) {
        for load in [0.5, 1.0, 2.0] {
            let items = (ITEMS as f64 * load) as u64;
            let (mut off, mut stated) = (Vec::new(), Vec::new());
            for seed in 0..FILTERS {
                let mut filter = seeded(plan, seed);
                filter.insert_many(&keys(0..items), &mut Vec::new()).unwrap();
                let estimate = filter.estimated_items();
                off.push(estimate.items - items as f64);
                stated.push(estimate.error);
            }
            if plan.kind() == Kind::Bitmap {
                assert!(off.iter().chain(&stated).all(|error| *error == 0.0), "{name} is exact");
                continue;
            }
            let (bias, deviation) = mean_and_deviation(&off);
            let (error, _) = mean_and_deviation(&stated);
            // Kinds that keep an entry for each key lack whole keys. Of less than one, the
            // deviation says little.
            if matches!(plan.kind(), Kind::Cuckoo | Kind::Scalable) && error < 1.0 {
                assert!(off.iter().all(|off| off.abs() < 5.0), "{name}, {items} items: {off:?}");
                continue;
            }
            // The deviation of 200 values is itself known to 5%, and their mean to 7% of it.
            if (deviation / error - 1.0).abs() > 0.2 || bias.abs() > 0.3 * error {
                broken.push(format!(
                    "{name}, {items} items: stated {error:.2}, is {deviation:.2}, mean {bias:+.2}"
                ));
            }
            // Of 6600 estimates, none is expected this far off.
            let worst = off.iter().map(|off| off.abs() / error).fold(0.0, f64::max);
            if worst > 4.5 {
                broken.push(format!("{name}, {items} items: off by {worst:.1} stated errors"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_rate_of_a_filter_follows_from_the_bits_that_are_set() {
    for (name, plan) in shapes(4000) {
        let mut filter = Filter::new(plan).unwrap();
        insert_over_time(&mut filter, &keys(0..4000));
        // Of a window's generations one more is planned for than as many keys fill.
        let filled = f64::from(plan.generations()) / f64::from(plan.generations() + 1);
        let filled = if plan.kind() == Kind::Window { filled } else { 1.0 };
        let expected = plan.rate_at(4000.0) * filled;
        if plan.kind() == Kind::Bitmap {
            assert_eq!(filter.rate(), 0.0);
        } else if plan.kind() == Kind::Scalable {
            // Most of the rate is kept for when it has grown.
            assert!(filter.rate() > 0.0 && filter.rate() <= expected, "{name}: {}", filter.rate());
        } else {
            let share = filter.rate() / expected;
            assert!((0.6..1.6).contains(&share), "{name}: {} for {expected}", filter.rate());
        }
        assert_eq!(Filter::new(plan).unwrap().rate(), 0.0, "{name}");
    }
}

#[test]
fn what_was_told_new_is_counted() {
    for shape in every_shape(2000, 6000) {
        let name = &shape.name;
        let mut filter = shape.filter();
        let (before, mut told) = (filter.inserted(), 0);
        for key in keys(0..2000).iter().chain(&keys(0..2000)) {
            told += u64::from(filter.insert(key).unwrap());
        }
        assert_eq!(filter.inserted(), before + told, "{name}");
        assert!(told <= 2000, "{name}: a lower bound");
    }
}
