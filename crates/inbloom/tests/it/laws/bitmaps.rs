//! Bitmaps: integers, in order.

use super::*;

#[test]
fn integers_come_out_sorted_and_once() {
    for items in [None, Some(1)] {
        let mut plan = Plan::builder(Kind::Bitmap).universe(100_000);
        if let Some(items) = items {
            plan = plan.items(items);
        }
        let plan = plan.build().unwrap();
        assert_eq!(plan.is_sparse(), items.is_some());
        let mut filter = Filter::new(plan).unwrap();
        for value in [4, 7, 2, 5, 3, 7_u64] {
            filter.insert(value.to_le_bytes()).unwrap();
        }
        let sorted: Vec<u64> = filter.as_bitmap().unwrap().iter().collect();
        assert_eq!(sorted, [2, 3, 4, 5, 7]);
        for value in [0, 63, 64, 99_999_u64] {
            filter.insert(value.to_le_bytes()).unwrap();
        }
        let sorted: Vec<u64> = filter.as_bitmap().unwrap().iter().collect();
        assert_eq!(sorted, [0, 2, 3, 4, 5, 7, 63, 64, 99_999]);
        assert_eq!(filter.as_bitmap().unwrap().len(), 9);
    }
}

#[test]
fn an_integer_is_the_same_in_any_number_of_bytes() {
    let mut filter =
        Filter::new(Plan::builder(Kind::Bitmap).universe(300).build().unwrap()).unwrap();
    assert!(filter.insert([7]).unwrap());
    for bytes in [&7_u16.to_le_bytes()[..], &7_u32.to_le_bytes(), &7_u64.to_le_bytes()] {
        assert!(filter.contains(bytes) && !filter.insert(bytes).unwrap());
    }
    assert!(!filter.contains(""), "nothing is 0");
}

#[test]
fn values_outside_the_universe_are_refused_and_never_found() {
    for plan in [
        Plan::builder(Kind::Bitmap).universe(1000).build().unwrap(),
        Plan::builder(Kind::Bitmap).universe(1000).items(1).build().unwrap(),
    ] {
        let mut filter = Filter::new(plan).unwrap();
        for value in [1000, u64::MAX] {
            assert!(!filter.contains(value.to_le_bytes()));
            assert_eq!(
                filter.insert(value.to_le_bytes()).expect_err("a refusal").to_string(),
                format!("the bitmap holds integers below 1000, got {value}")
            );
            assert!(!filter.remove(value.to_le_bytes()).unwrap());
        }
        assert!(!filter.contains("nine bytes"));
        assert!(!filter.remove("nine bytes").unwrap());
        assert_eq!(
            filter.insert("nine bytes").expect_err("a refusal").to_string(),
            "the bitmap holds integers below 1000, got a key of more than 8 bytes"
        );
        // In a batch, what comes before the refusal is recorded, and the answers tell how much.
        let batch = [1, 2, 1000, 3_u64].map(u64::to_le_bytes);
        let mut new = Vec::new();
        assert!(filter.insert_many(&batch, &mut new).is_err());
        assert_eq!(new, [true, true]);
        assert_eq!((filter.inserted(), filter.occupied()), (2, 2));
        let shared = filter.into_shared().unwrap();
        assert!(!shared.contains(1000_u64.to_le_bytes()));
        assert!(shared.insert(1000_u64.to_le_bytes()).is_err());
        assert!(!shared.remove(1000_u64.to_le_bytes()).unwrap());
        assert!(shared.insert_many(&batch, &mut new).is_err());
        assert_eq!(new, [false, false]);
        assert_eq!((shared.inserted(), shared.occupied()), (2, 2));
    }
}
