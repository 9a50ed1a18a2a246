//! Filters that clear themselves.

use super::*;

/// The share of cells in use after so many keys, and half a cell more.
fn share_at(plan: Plan, items: u64) -> f64 {
    let filter = with_keys(plan, &keys(0..items));
    filter.fill() * (1.0 + 0.5 / filter.occupied() as f64)
}

#[test]
fn past_its_share_a_filter_empties_itself_and_keeps_the_key_of_that_insert() {
    for (name, plan) in shapes_for(300, 1000) {
        if plan.is_sparse() || plan.kind() == Kind::Scalable {
            continue;
        }
        let share = share_at(plan, 250);
        let mut filter = Filter::new(plan).unwrap();
        filter.set_auto_clear(Some(share)).unwrap();
        assert_eq!(filter.auto_clear(), Some(share));
        let mut number = 0;
        while filter.fill() <= share {
            filter.insert(key(number)).unwrap();
            number += 1;
        }
        let older = keys(0..number);
        assert_members(&filter, &older, &name);
        assert!(filter.insert(key(number)).unwrap(), "{name}: new, whatever was there");
        let only = with_keys(plan, &[key(number)]);
        assert!(filter == only, "{name}: only the last key is left");
        assert_eq!(filter.inserted(), 1, "{name}");
        let mut afresh = only.clone();
        for key in &older[..older.len() / 2] {
            assert_eq!(filter.insert(key).unwrap(), afresh.insert(key).unwrap(), "{name}");
        }
        filter.set_auto_clear(None).unwrap();
        filter.insert_many(&keys(0..2 * number), &mut Vec::new()).unwrap();
        assert_members(&filter, &keys(0..2 * number), &name);
    }
}

#[test]
fn batches_clear_where_single_inserts_would() {
    for (name, plan) in shapes_for(300, 2000) {
        if plan.kind() == Kind::Scalable {
            let refused = Filter::new(plan).unwrap().set_auto_clear(Some(0.5)).unwrap_err();
            assert!(
                refused.to_string().contains("use another kind, or clear it yourself"),
                "{refused}"
            );
            continue;
        }
        let share = share_at(plan, 250);
        let mut single = Filter::new(plan).unwrap();
        single.set_auto_clear(Some(share)).unwrap();
        let (mut of_keys, mut of_digests) = (single.clone(), single.clone());
        let (mut new, mut new_too) = (Vec::new(), Vec::new());
        let (mut first, mut cleared) = (0, 0);
        for size in [0, 1, 127, 128, 129, 1000, 3, 500] {
            let keys = keys(first..first + size);
            first += size;
            let mut expected = Vec::new();
            for key in &keys {
                let before = single.inserted();
                expected.push(single.insert(key).unwrap());
                cleared += u32::from(single.inserted() < before);
            }
            of_keys.insert_many(&keys, &mut new).unwrap();
            let digests: Vec<Digest> = keys.iter().map(|key| of_digests.digest(key)).collect();
            of_digests.insert_digests(&digests, &mut new_too).unwrap();
            assert_eq!((&new, &new_too), (&expected, &expected), "{name}, batch of {size}");
            for filter in [&of_keys, &of_digests] {
                assert!(*filter == single, "{name}, batch of {size}: bits differ");
                assert_eq!(filter.inserted(), single.inserted(), "{name}");
            }
        }
        assert!(cleared >= 3, "{name} cleared itself {cleared} times");
    }
}

#[test]
fn a_key_that_is_refused_clears_nothing() {
    let mut filter =
        Filter::new(Plan::builder(Kind::Bitmap).universe(100).build().unwrap()).unwrap();
    filter.set_auto_clear(Some(0.5)).unwrap();
    let values: Vec<[u8; 8]> = (0..60_u64).map(u64::to_le_bytes).collect();
    filter.insert_many(&values[..51], &mut Vec::new()).unwrap();
    assert!(filter.fill() > 0.5);
    assert!(filter.insert(100_u64.to_le_bytes()).is_err());
    assert!(filter.insert_many(&[100_u64.to_le_bytes()], &mut Vec::new()).is_err());
    assert_members(&filter, &values[..51], "after the refusal");
}

#[test]
fn a_share_that_is_no_share_is_refused() {
    let mut filter = Filter::new(Plan::builder(Kind::Blocked).items(10).build().unwrap()).unwrap();
    for (share, shown) in
        [(0.0, "0"), (1.0, "1"), (-0.5, "-0.5"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")]
    {
        assert_eq!(
            filter.set_auto_clear(Some(share)).expect_err("a refusal").to_string(),
            format!("auto-clear is {shown}, but must be a share strictly between 0 and 1")
        );
    }
    assert_eq!(filter.auto_clear(), None);
}
