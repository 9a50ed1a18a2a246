//! Removal, and counts of copies.

use super::*;

#[test]
fn what_is_removed_leaves_what_would_be_there_without_it() {
    for (name, plan) in shapes(1000) {
        let mut filter = with_keys(plan, &keys(0..1000));
        if !plan.kind().can_remove() {
            let expected = format!(
                "kind {} cannot remove keys; build it with kind counting, cuckoo or bitmap, which can",
                plan.kind()
            );
            assert_eq!(filter.remove(key(1)).expect_err("a refusal").to_string(), expected);
            assert_members(&filter, &keys(0..1000), &name);
            let shared = filter.into_shared().unwrap();
            assert_eq!(shared.remove(key(1)).expect_err("a refusal").to_string(), expected);
            assert_members(&shared.into_exclusive(), &keys(0..1000), &name);
            continue;
        }
        for key in keys(0..500) {
            assert!(filter.remove(key).unwrap(), "{name}");
            // What is still claimed has others' cells, and is not ours to remove.
            assert!(filter.contains(key) || !filter.remove(key).unwrap(), "{name}: it is gone");
        }
        assert_members(&filter, &keys(500..1000), &name);
        // Counters of two or three bits may have reached their maximum here and there, and stay.
        let expected = with_keys(plan, &keys(500..1000));
        let exact = plan.kind() != Kind::Counting || plan.width() > 3;
        assert!(filter == expected || !exact, "{name}: other cells than without them");
        assert!(filter.occupied() >= expected.occupied(), "{name}");
        let off = filter.inserted().abs_diff(500) as f64;
        assert!(off <= 500.0 * (3.0 * plan.rate() + 12.0 * plan.saturation()), "{name}: off {off}");
        // What was removed can come again.
        filter.insert_many(&keys(0..500), &mut Vec::new()).unwrap();
        assert_members(&filter, &keys(0..1000), &name);
    }
}

#[test]
fn a_key_is_there_as_often_as_it_was_inserted_and_not_removed() {
    for (name, plan) in shapes_for(1000, 4000) {
        let mut filter = with_keys(plan, &keys(0..500));
        let one = key(7);
        if !plan.kind().counts() {
            assert_eq!(filter.count(one), 1, "{name}");
            filter.insert(one).unwrap();
            assert_eq!(filter.count(one), 1, "{name}: it knows 0 and 1");
            let claimed = |key: &[u8; 8]| filter.count(key) == u64::from(filter.contains(key));
            assert!(keys(0..1000).iter().all(claimed), "{name}");
            continue;
        }
        let most = max_count(&plan);
        for copies in 2..=most {
            assert!(!filter.insert(one).unwrap(), "{name}: it was there");
            assert!((copies..=most).contains(&filter.count(one)), "{name}: {copies} copies");
        }
        assert_eq!(filter.count(one), most, "{name}");
        let shared = filter.into_shared().unwrap();
        assert_eq!(shared.count(one), most, "{name}");
        filter = shared.into_exclusive();
        match plan.kind() {
            Kind::Cuckoo => {
                let before = file_of(&filter);
                let error = filter.insert(one).expect_err("there is room for 8");
                assert!(matches!(error, Error::Copies { copies: 8 }), "{error:?}");
                assert!(file_of(&filter) == before, "{name}: a refusal changes nothing");
                for copies in (0..most).rev() {
                    assert!(filter.remove(one).unwrap(), "{name}");
                    assert!(filter.count(one) >= copies, "{name}");
                }
                assert_eq!(filter.count(one), 0, "{name}: nobody else looks like it");
            }
            _ => {
                // At its maximum a counter stays, whatever is removed.
                for _ in 0..most + 3 {
                    assert!(filter.remove(one).unwrap(), "{name}");
                    assert_eq!(filter.count(one), most, "{name}");
                }
            }
        }
        let others: Vec<[u8; 8]> = keys(0..500).into_iter().filter(|key| *key != one).collect();
        assert_members(&filter, &others, &name);
    }
}

#[test]
fn a_full_filter_is_left_as_it_was() {
    for items in [1, 2, 10, 100, 3000] {
        for (name, plan) in cuckoos(items) {
            let mut filter = Filter::new(plan).unwrap();
            let mut number = 0;
            let error = loop {
                let before = file_of(&filter);
                match filter.insert(key(number)) {
                    Ok(_) => number += 1,
                    Err(error) => {
                        assert!(file_of(&filter) == before, "{name}: changed, to the byte");
                        break error;
                    }
                }
            };
            let name = format!("{name} for {items}, refused after {number}");
            assert!(number >= items, "{name}");
            assert_eq!(
                error.to_string(),
                format!(
                    "the filter is full: it holds {number} items, planned for {items}; \
                     plan for more items, or use kind counting to remove keys, or scalable to grow"
                )
            );
            assert_members(&filter, &keys(0..number), &name);
            // Nor does a batch, beyond what it says it has recorded; nor a merge; nor another
            // thread.
            let (before, mut new) = (filter.clone(), Vec::new());
            let batch = keys(number..number + 50);
            let result = filter.insert_many(&batch, &mut new);
            assert!(matches!(result, Err(Error::Full { .. })), "{name}");
            let mut single = before.clone();
            for key in &batch[..new.len()] {
                single.insert(key).unwrap();
            }
            assert!(file_of(&filter) == file_of(&single), "{name}: a batch");
            assert_eq!(filter.inserted(), single.inserted(), "{name}: a batch");
            let bytes = file_of(&filter);
            assert!(matches!(filter.merge(&before), Err(Error::Full { .. })), "{name}");
            assert!(file_of(&filter) == bytes, "{name}: a merge");
            let shared = filter.into_shared().unwrap();
            assert!(matches!(shared.insert(batch[new.len()]), Err(Error::Full { .. })), "{name}");
            assert!(file_of(&shared.into_exclusive()) == bytes, "{name}: shared");
        }
    }
}
