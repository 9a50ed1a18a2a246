//! Windows: what is forgotten, and when.

use super::*;

/// A window of the last so many keys, in so many steps, at a rate that no test here sees.
fn last(keys: u64, generations: u32) -> Plan {
    Plan::builder(Kind::Window).last(keys).generations(generations).rate(1e-9).build().unwrap()
}

fn of_time(millis: u64, generations: u32) -> Plan {
    let plan = Plan::builder(Kind::Window).window(Duration::from_millis(millis)).items(1000);
    plan.generations(generations).rate(1e-9).build().unwrap()
}

#[test]
fn a_key_that_comes_again_starts_anew_whatever_the_call() {
    let inserts: [fn(&SharedFilter, [u8; 8]) -> bool; 2] = [
        |filter, key| filter.insert(key).unwrap(),
        |filter, key| {
            let mut new = Vec::new();
            filter.insert_many(&[key], &mut new).unwrap();
            new[0]
        },
    ];
    for (way, insert) in inserts.iter().enumerate() {
        let shared = Filter::new(of_time(1000, 4)).unwrap().into_shared().unwrap();
        shared.advance(0).unwrap();
        assert!(insert(&shared, key(1)) && insert(&shared, key(2)), "way {way}");
        shared.advance(900).unwrap();
        assert!(!insert(&shared, key(1)), "way {way}: it was there");
        shared.advance(1800).unwrap();
        assert!(shared.contains(key(1)), "way {way}: it came again 900 ms ago");
        assert!(!shared.contains(key(2)), "way {way}: it came 1800 ms ago");
    }
}

#[test]
fn a_merge_lets_no_key_be_forgotten_before_its_time() {
    for generations in [1, 2, 4, 10] {
        let plan = last(100, generations);
        for count in (0..=250).step_by(13) {
            let mut merged = with_keys(plan, &keys(0..count));
            // Of the same keys, so that what is counted twice is there once.
            merged.merge(&merged.clone()).unwrap();
            let name = format!("{generations} steps, merged after {count} keys");
            for later in count..count + 200 {
                merged.insert(key(later)).unwrap();
                let first = (later + 1).saturating_sub(100);
                assert_members(&merged, &keys(first..later + 1), &name);
            }
        }
    }
    // By time: the two begin their steps at different moments, and one of them may sleep for long.
    for (here, there) in [(0, 0), (0, 130), (130, 0), (70, 400), (400, 70)] {
        for merged_at in [400, 700, 1100, 1300] {
            let (mut left, mut right) =
                (Filter::new(of_time(1000, 4)).unwrap(), Filter::new(of_time(1000, 4)).unwrap());
            for (filter, number, moment) in [(&mut left, 1, here), (&mut right, 2, there)] {
                filter.advance(moment).unwrap();
                filter.insert(key(number)).unwrap();
            }
            right.advance(merged_at).unwrap();
            left.merge(&right).unwrap();
            for now in (merged_at..4000).step_by(10) {
                left.advance(now).unwrap();
                for (number, moment) in [(1, here), (2, there)] {
                    let (found, age) = (left.contains(key(number)), now - moment);
                    let name = format!("{number} from {moment}, merged at {merged_at}, now {now}");
                    assert!(found || age > 1000, "{name}: forgotten");
                }
            }
            assert_eq!(left.occupied(), 0, "{here}, {there}: it forgets in the end");
        }
    }
}
