use std::collections::HashMap;

use super::*;
use crate::digest::Hasher;
use crate::kinds::buckets::MAX_WIDTH;
use crate::kinds::cuckoo::plan::{MIN_WIDTH, buckets_for, capacity, narrowest, rate, shape_for};
use crate::plan::{MAX_ITEMS, MIN_RATE};

fn planned(shape: CuckooShape) -> Cuckoo {
    let (items, bits, width) = (capacity(shape.buckets), shape.bits(), shape.width);
    Cuckoo::new(Plan { items, bits, width, ..Plan::blank(Kind::Cuckoo) }).unwrap()
}

/// Digests of one series; those of others are independent of them.
fn digest(series: u64, key: u64) -> Digest {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&series.to_le_bytes());
    bytes[8..].copy_from_slice(&key.to_le_bytes());
    Hasher::default().digest(bytes)
}

fn empty(buckets: u64, width: u32) -> Cuckoo {
    planned(CuckooShape { buckets, width })
}

fn holding(buckets: u64, width: u32, digests: impl IntoIterator<Item = Digest>) -> Cuckoo {
    let mut filter = empty(buckets, width);
    for digest in digests {
        filter.insert(digest).unwrap();
    }
    filter
}

fn bytes(filter: &Cuckoo) -> Vec<u8> {
    filter.bits.cells.bytes().to_vec()
}

fn is_full<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Full { .. }))
}

fn is_copied_too_often<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Copies { .. }))
}

fn is_refused<T>(result: &Result<T>) -> bool {
    is_full(result) || is_copied_too_often(result)
}

#[test]
fn the_other_of_the_other_bucket_is_the_first() {
    let large = [65_537, (1 << 33) - 1, (1 << 40) + 15, (1 << 52) - 3, (1 << 52) - 2];
    for buckets in (1..=3000).chain(large) {
        let table = BucketTable::new(CuckooShape { buckets, width: 40 });
        for key in 0..50 {
            let draw = digest(1, key);
            let print = if key < 20 { key + 1 } else { table.entry(draw).print };
            for bucket in [0, buckets / 2, buckets - 1, draw.pick(buckets).0] {
                let other = table.other(bucket, print);
                assert!(other < buckets);
                assert_eq!(table.other(other, print), bucket, "{buckets} buckets");
                assert!(buckets % 2 == 1 || other % 2 != bucket % 2, "{buckets} buckets");
            }
        }
    }
}

#[test]
fn of_an_odd_number_one_bucket_is_its_own_other() {
    for buckets in (1..300).step_by(2) {
        let table = BucketTable::new(CuckooShape { buckets, width: 20 });
        for print in 1..40 {
            let own = (0..buckets).filter(|bucket| table.other(*bucket, print) == *bucket);
            assert_eq!(own.count(), 1, "{buckets} buckets");
        }
    }
}

#[test]
fn fingerprints_take_every_value_but_zero() {
    for width in MIN_WIDTH..=MAX_WIDTH {
        let table = BucketTable::new(CuckooShape { buckets: 10, width });
        let print = |print| table.entry(Digest { place: 0, print }).print;
        assert_eq!((print(0), print(u64::MAX)), (1, (1 << width) - 1), "{width} bits");
    }
    let table = BucketTable::new(CuckooShape { buckets: 10, width: 6 });
    let mut times = [0; 64];
    (0..63_000).for_each(|key| times[table.entry(digest(2, key)).print as usize] += 1);
    assert_eq!(times[0], 0);
    // 1000 each, give or take 32.
    assert!(times[1..].iter().all(|times| (860..1140).contains(times)), "{times:?}");
}

/// The entries that files depend on, from a second implementation in Python.
#[test]
fn a_known_digest_is_a_known_entry() {
    for (buckets, width, place, print, expected, pair) in [
        (1, 2, 0xffffffffffffffff, 0xffffffffffffffff, 3, [0, 0]),
        (2, 8, 0x8000000000000000, 0x0000010000000000, 1, [1, 0]),
        (1000, 12, 0x0123456789abcdef, 0xfedcba9876543210, 4077, [4, 269]),
        (1001, 17, 0x9e3779b97f4a7c15, 0x243f6a8885a308d3, 18559, [618, 595]),
        (
            1099511627776,
            33,
            0x5555555555555555,
            0xaaaaaaaaaaaaaaaa,
            5726623061,
            [366503875925, 219793591078],
        ),
        (
            1125899906842625,
            56,
            0xc000000000000000,
            0xab54a98ceb1f0ad2,
            48225308207947531,
            [844424930131968, 97479774102709],
        ),
    ] {
        let entry = BucketTable::new(CuckooShape { buckets, width }).entry(Digest { place, print });
        assert_eq!(entry, Entry { print: expected, buckets: pair });
    }
}

/// What a filter should hold: entries, under the smaller of their buckets, and how often.
type Model = HashMap<(u64, u64), u64>;

fn class(Entry { print, buckets: [first, second] }: Entry) -> (u64, u64) {
    (first.min(second), print)
}

fn check(filter: &Cuckoo, model: &Model, context: &str) {
    assert_eq!(filter.len(), model.values().sum::<u64>(), "{context}");
    assert_eq!(filter.count_cells().unwrap(), filter.len(), "{context}");
    for ((bucket, print), copies) in model {
        let entry = filter.table.entry_at(*bucket, *print);
        let found = filter.table.count(filter.bits.cells.bytes(), entry);
        assert_eq!(found, *copies, "{context}");
    }
}

/// Random inserts, removals and merges against an exact multiset, up to the brim and beyond.
#[test]
fn entries_are_those_of_an_exact_multiset() {
    let mut refusals = 0;
    for (series, (buckets, width)) in [
        (1, 2),
        (1, 9),
        (2, 2),
        (2, 17),
        (3, 3),
        (3, 33),
        (4, 12),
        (5, 8),
        (6, 4),
        (7, 56),
        (10, 8),
        (16, 12),
        (33, 5),
        (64, 31),
        (100, 10),
    ]
    .into_iter()
    .enumerate()
    {
        let context = format!("{buckets} buckets of {width} bits");
        let mut filter = empty(buckets, width);
        let mut model = Model::new();
        let keys = 6 * buckets; // Half as many again as there are slots, some of them twice.
        for step in 0..60 * buckets.max(10) {
            let draw = digest(1000 + series as u64, step);
            let key = digest(series as u64, draw.print % keys);
            let entry = class(filter.table.entry(key));
            let before = bytes(&filter);
            let copies = model.get(&entry).copied().unwrap_or(0);
            assert_eq!(filter.count(key), copies, "{context}");
            assert_eq!(filter.contains(key), copies > 0, "{context}");
            // Waves of growing and shrinking, so that it is full again and again.
            let inserts = if step / (10 * buckets.max(10)) % 2 == 0 { 9 } else { 4 };
            match draw.place % 12 {
                0 => {
                    let others: Vec<_> =
                        (0..2).map(|i| digest(series as u64, (draw.print + i) % keys)).collect();
                    let other = holding(buckets, width, others.iter().copied());
                    let united = filter.add_all(&other);
                    if united.is_ok() {
                        for other in others {
                            *model.entry(class(filter.table.entry(other))).or_default() += 1;
                        }
                    } else {
                        assert!(is_refused(&united) && bytes(&filter) == before, "{context}");
                        refusals += 1;
                    }
                }
                draw if draw <= inserts => match filter.insert(key) {
                    Ok(new) => {
                        assert_eq!(new, copies == 0, "{context}");
                        *model.entry(entry).or_default() += 1;
                    }
                    refused => {
                        assert!(is_refused(&refused) && bytes(&filter) == before, "{context}");
                        // Where all keys have the same buckets, only the last slot is the last.
                        assert!(buckets > 2 || filter.len() == 4 * buckets, "{context}");
                        check(&filter, &model, &context);
                        refusals += 1;
                    }
                },
                _ => {
                    assert_eq!(filter.remove(key).unwrap(), copies > 0, "{context}");
                    if copies > 0 {
                        model.insert(entry, copies - 1);
                    } else {
                        assert!(bytes(&filter) == before, "{context}");
                    }
                }
            }
            if step % 16 == 0 {
                check(&filter, &model, &context);
            }
        }
        check(&filter, &model, &context);
    }
    assert!(refusals > 1000, "{refusals} refusals");
}

/// A large table, whose searches do not see all of it.
#[test]
fn a_full_filter_is_left_as_it_was_and_has_all_its_keys() {
    let mut filter = empty(5000, 12);
    let mut members = Vec::new();
    let mut refusals = 0;
    for key in 0..20_000 {
        let before = bytes(&filter);
        match filter.insert(digest(3, key)) {
            Ok(_) => members.push(digest(3, key)),
            refused => {
                assert!(is_full(&refused) && bytes(&filter) == before);
                assert!(members.iter().all(|member| filter.contains(*member)));
                refusals += 1;
                if refusals == 20 {
                    break;
                }
            }
        }
    }
    assert_eq!(refusals, 20);
    assert_eq!(filter.len(), members.len() as u64);
    for member in &members {
        assert!(filter.remove(*member).unwrap());
    }
    assert!(filter.is_empty() && bytes(&filter).iter().all(|byte| *byte == 0));
}

#[test]
fn a_key_fits_eight_times_and_no_more() {
    for (buckets, others) in [(2, 0), (40, 60), (100, 200), (100, 340), (10_000, 30_000)] {
        let mut filter = holding(buckets, 33, (0..others).map(|key| digest(4, key)));
        let key = digest(5, 0);
        for copies in 0..8 {
            assert_eq!(filter.count(key), copies);
            assert_eq!(filter.insert(key).unwrap(), copies == 0);
        }
        let before = bytes(&filter);
        assert!(is_copied_too_often(&filter.insert(key)));
        assert!(bytes(&filter) == before && filter.count(key) == 8);
        assert!((0..others).all(|key| filter.contains(digest(4, key))));
        (0..8).for_each(|_| assert!(filter.remove(key).unwrap()));
        assert!(!filter.contains(key) && !filter.remove(key).unwrap());
        assert_eq!(filter.len(), others);
    }
}

#[test]
fn a_key_fits_four_times_where_its_buckets_coincide() {
    let mut filter = holding(1, 12, [digest(6, 0); 4]);
    assert!(is_copied_too_often(&filter.insert(digest(6, 0))) && filter.count(digest(6, 0)) == 4);
    let table = BucketTable::new(CuckooShape { buckets: 3, width: 12 });
    let own = |key: &Digest| {
        let [first, second] = table.entry(*key).buckets;
        first == second
    };
    let key = (0..).map(|key| digest(6, key)).find(own).unwrap();
    let mut filter = holding(3, 12, [key; 4]);
    assert!(is_copied_too_often(&filter.insert(key)));
    assert!(filter.count(key) == 4 && filter.len() == 4);
}

#[test]
fn a_refusal_says_what_to_do() {
    let mut filter = holding(1, 12, (0..4).map(|key| digest(7, key)));
    let text = filter.insert(digest(7, 4)).unwrap_err().to_string();
    let expected = "the filter is full: it holds 4 items, planned for 4; \
                    plan for more items, or use kind counting to remove keys, or scalable to grow";
    assert_eq!(text, expected);
    let mut filter = holding(100, 12, [digest(7, 0); 8]);
    let text = filter.insert(digest(7, 0)).unwrap_err().to_string();
    let expected = "the filter holds this key 8 times, and has no room for another copy; \
                    use insert_if_absent, which keeps one copy, or kind counting";
    assert_eq!(text, expected);
}

#[test]
fn a_merge_adds_copies_or_changes_nothing() {
    let mut left = holding(50, 12, (0..60).map(|key| digest(8, key)));
    let right = holding(50, 12, (40..120).map(|key| digest(8, key)));
    let both = (0..60).chain(40..120).map(|key| digest(8, key));
    left.add_all(&right).unwrap();
    assert!(left.equals(&holding(50, 12, both)));
    assert_eq!((left.len(), left.count(digest(8, 50))), (140, 2));
    // 140 and 80 are more than 200.
    let before = bytes(&left);
    assert!(is_full(&left.add_all(&right)));
    assert!(bytes(&left) == before && left.len() == 140);
    // These would be few enough, but 5 and 4 copies of a key are too many.
    let mut left = holding(50, 12, std::iter::repeat_n(digest(8, 0), 5));
    let right = holding(50, 12, (1..30).chain([0, 0, 0, 0]).map(|key| digest(8, key)));
    let before = bytes(&left);
    assert!(is_copied_too_often(&left.add_all(&right)));
    assert!(bytes(&left) == before && left.len() == 5);
}

#[test]
fn an_intersection_keeps_the_smaller_number_of_copies() {
    for (buckets, width) in [(100, 33), (101, 33), (100, 4), (3000, 12)] {
        let mut left = empty(buckets, width);
        let mut right = empty(buckets, width);
        let (mut here, mut there) = (Model::new(), Model::new());
        for key in 0..3 * buckets {
            let draw = digest(9, key);
            let key = digest(10, draw.print % buckets);
            let (filter, model) = if draw.place.is_multiple_of(2) {
                (&mut left, &mut here)
            } else {
                (&mut right, &mut there)
            };
            if filter.insert(key).is_ok() {
                *model.entry(class(filter.table.entry(key))).or_default() += 1;
            }
        }
        left.keep_common(&right).unwrap();
        for (class, copies) in &mut here {
            *copies = (*copies).min(there.get(class).copied().unwrap_or(0));
        }
        check(&left, &here, &format!("{buckets} buckets of {width} bits"));
    }
}

#[test]
fn filters_are_the_same_whatever_the_order() {
    let keys = || (0..3700).map(|key| digest(11, key));
    let (left, mut right) = (holding(1000, 12, keys()), holding(1000, 12, keys().rev()));
    assert!(bytes(&left) != bytes(&right) && left.equals(&right) && right.equals(&left));
    right.remove(digest(11, 5)).unwrap();
    assert!(!left.equals(&right) && !right.equals(&left));
    right.insert(digest(11, 4000)).unwrap();
    assert!(!left.equals(&right) && !right.equals(&left));
    assert!(!left.equals(&empty(1000, 13)));
    let (once, twice) = (holding(4, 12, [digest(0, 0)]), holding(4, 12, [digest(0, 0); 2]));
    assert!(!once.equals(&twice) && !twice.equals(&once));
}

#[test]
fn batches_do_as_single_calls_do() {
    for (buckets, items) in [(1, 3), (100, 300), (120_000, 440_000)] {
        let keys: Vec<_> = (0..items).map(|key| digest(12, key)).collect();
        let others: Vec<_> = (items / 2..2 * items).map(|key| digest(12, key)).collect();
        let (mut at_once, mut one_by_one) = (empty(buckets, 12), empty(buckets, 12));
        let (mut new, mut found) = (Vec::new(), Vec::new());
        at_once.insert_digests(&keys, &mut new).unwrap();
        let expected: Vec<_> = keys.iter().map(|key| one_by_one.insert(*key).unwrap()).collect();
        assert!(new == expected && bytes(&at_once) == bytes(&one_by_one));
        at_once.contains_digests(&others, &mut found);
        assert!(others.iter().zip(&found).all(|(key, found)| at_once.contains(*key) == *found));
    }
}

#[test]
fn a_batch_that_does_not_fit_says_how_far_it_came() {
    let keys: Vec<_> = (0..1000).map(|key| digest(13, key)).collect();
    let mut filter = empty(100, 12);
    let mut new = Vec::new();
    assert!(is_full(&filter.insert_digests(&keys, &mut new)));
    assert_eq!(new.len() as u64, filter.len());
    assert!(keys[..new.len()].iter().all(|key| filter.contains(*key)));
    assert!(filter.len() > 370);
}

/// Means at the top of this file; the least of 2000 tables of 250 buckets was 94.5%, of 1000
/// tables of 1000 buckets 96.4%.
#[test]
fn tables_fill_to_95_percent_and_more() {
    for (buckets, tables) in [(262, 30), (1000, 20), (10_000, 4), (263_158, 1)] {
        for width in [7, 8, 12, 17, 33] {
            let slots = 4 * buckets;
            let filled: u64 = (0..tables)
                .map(|table| {
                    let mut filter = empty(buckets, width);
                    let series = table << 32 | slots << 8 | u64::from(width);
                    let refused = |key: &u64| filter.insert(digest(series, *key)).is_err();
                    let filled = (0..).find(refused).unwrap();
                    assert!(filled >= capacity(buckets));
                    filled
                })
                .sum();
            let load = filled as f64 / (tables * slots) as f64;
            assert!((0.965..0.99).contains(&load), "{buckets} buckets, {width} bits: {load}");
        }
    }
}

/// How many full buckets a search may remember, by what has come before.
#[test]
fn searches_are_short_once_a_key_was_refused_above_the_plan_and_only_then() {
    let mut filter = empty(2000, 12);
    let mut keys = (0..).map(|key| digest(14, key));
    while filter.insert(keys.next().unwrap()).is_ok() {
        assert_eq!(filter.reach(), REACH);
    }
    let first = filter.len();
    assert!(first as f64 > 0.965 * 8000.0, "{first}: the first refusal comes as late as ever");
    assert_eq!(filter.reach(), SHORT_REACH);
    // What is found nearby is still taken.
    let more = keys.by_ref().take(2000).filter(|key| filter.insert(*key).is_ok()).count();
    assert!(more > 10 && filter.reach() == SHORT_REACH, "{more} more");
    let members: Vec<_> = (0..).map(|key| digest(14, key)).take(first as usize).collect();
    for member in &members[..more + 1] {
        assert!(filter.remove(*member).unwrap());
    }
    assert_eq!(filter.reach(), REACH, "there is room again");
    // Too many copies of a key say nothing about the others.
    let mut filter = holding(2000, 12, [digest(15, 0); 8]);
    assert!(is_copied_too_often(&filter.insert(digest(15, 0))) && filter.reach() == REACH);
}

#[test]
fn planned_items_fit() {
    for items in (1..=12).chain([15, 20, 33, 50, 73, 100, 103, 104, 200, 500, 1000]) {
        for rate in [0.2, 0.01, 1e-6] {
            let shape = shape_for(items, rate);
            for table in 0..100_000 / (items + 30) {
                let mut filter = planned(shape);
                let series = table << 32 | items << 8 | u64::from(shape.width);
                for key in 0..items {
                    let fits = filter.insert(digest(series, key)).is_ok();
                    assert!(fits, "{items} items, {shape:?}, table {table}");
                }
            }
        }
    }
}

#[test]
fn the_rate_is_that_of_the_model() {
    for items in [1, 2, 10, 100, 100_000] {
        for (width, odd) in [(8, 0), (12, 0), (17, 0), (8, 1), (12, 1)] {
            let buckets = (buckets_for(items) / 2 * 2 + odd).max(1);
            let tables = if items > 1000 { 1 } else { 200 };
            let queries = 2_000_000 / tables;
            let mut hits = 0;
            for table in 0..tables {
                let series = table << 40 | items << 8 | u64::from(width) << 1 | odd;
                let keys = (0..items).map(|key| digest(series, key));
                let mut filter = empty(buckets, width);
                // Of the odd tables few are refused a key; they count as what they hold.
                keys.for_each(|key| drop(filter.insert(key)));
                let foreign = (items..items + queries).map(|key| digest(series, key));
                hits += foreign.filter(|key| filter.contains(*key)).count();
            }
            let model = rate(items as f64, buckets, width);
            agree(model, hits, tables * queries, &format!("{items} items, {width} bits"));
        }
    }
}

/// At 33 bits no test would see a false positive. So only 255 of the fingerprints are used, all
/// over their range, and then the rate is that of 8 bits.
#[test]
fn the_rate_of_wide_fingerprints_is_that_of_the_model() {
    for items in [1, 2, 10, 100, 100_000] {
        let buckets = buckets_for(items).next_multiple_of(2);
        let tables = if items > 1000 { 1 } else { 100 };
        let queries = 1_000_000 / tables;
        let mut hits = 0;
        for table in 0..tables {
            let few = |key| {
                let Digest { place, print } = digest(table << 40 | items, key);
                Digest { place, print: print % 255 * (u64::MAX / 255) }
            };
            let filter = holding(buckets, 33, (0..items).map(few));
            hits += (items..items + queries).filter(|key| filter.contains(few(*key))).count();
            let all = |key: &u64| filter.contains(digest(table << 40 | items, *key));
            // 10^-9 a query.
            assert_eq!((items..items + queries).filter(all).count(), 0);
        }
        let model = rate(items as f64, buckets, 8);
        agree(model, hits, tables * queries, &format!("{items} items"));
    }
}

fn agree(model: f64, hits: usize, queries: u64, context: &str) {
    let measured = hits as f64 / queries as f64;
    let deviation = (model * (1.0 - model) / queries as f64).sqrt();
    let off = (measured - model) / deviation;
    assert!(off.abs() < 4.0, "{context}: model {model:.3e}, measured {measured:.3e}, {off:+.1}");
}

#[test]
fn rates_have_their_limits() {
    assert_eq!(rate(0.0, 10, 8), 0.0);
    assert!((rate(1.0, 1, 8) - 1.0 / 255.0).abs() < 1e-15);
    assert!((rate(1.0, 2, 8) - 1.0 / 255.0).abs() < 1e-15);
    assert!((rate(1.0, 3, 2) - (2.0 / 3.0 * 2.0 + 1.0 / 3.0) / 9.0).abs() < 1e-15);
    assert!(rate(1e15, 10, 8) == 1.0 && rate(1e15, 1 << 48, 56) < 1e-15);
}

#[test]
fn capacity_grows_with_even_buckets_to_95_percent() {
    for buckets in 1..5000 {
        assert!(capacity(buckets) <= 4 * buckets);
        assert!(buckets % 2 == 1 || capacity(buckets + 2) >= capacity(buckets));
        // An odd number is worth no more than the even one below.
        assert!(buckets % 2 == 1 || capacity(buckets + 1) <= capacity(buckets));
    }
    assert_eq!((capacity(0), capacity(1), capacity(3), capacity(49)), (0, 4, 4, 154));
    assert_eq!(capacity(1_000_000), 3_799_972);
    assert!(capacity((1 << 53) + 1) > 1 << 54);
}

#[test]
fn buckets_are_the_fewest_that_take_the_items() {
    for items in (0..2000).chain([99_999, 1 << 40, MAX_ITEMS]) {
        let buckets = buckets_for(items);
        assert!(buckets == 1 || buckets.is_multiple_of(2));
        assert!(capacity(buckets) >= items, "{items}");
        let fewer = if buckets == 2 { 1 } else { buckets.saturating_sub(2) };
        assert!(capacity(fewer) < items || buckets == 1, "{items}");
    }
}

#[test]
fn shapes_keep_the_rate_in_the_fewest_bits() {
    for items in (0..130).chain([1000, 12_345]) {
        for target in [0.9, 0.3, 0.1, 0.035, 0.01, 0.001, 1e-4, 1e-6] {
            let shape = shape_for(items, target);
            let holds = |shape: CuckooShape| {
                let CuckooShape { buckets, width } = shape;
                width >= narrowest(buckets) && rate(items.max(1) as f64, buckets, width) <= target
            };
            assert!(holds(shape), "{items} at {target}: {shape:?}");
            assert!(capacity(shape.buckets) >= items);
            for width in MIN_WIDTH..=MAX_WIDTH {
                let most = (shape.bits() - 1) / (4 * u64::from(width));
                let fewest = buckets_for(items);
                // The rate falls with the buckets, so that the most of them are the best.
                let most = if most == 1 { 1 } else { most / 2 * 2 };
                let better = CuckooShape { buckets: most, width };
                let fits = most >= fewest && holds(better);
                assert!(!fits, "{items} at {target}: {shape:?}, but {better:?}");
            }
        }
    }
}

#[test]
fn shapes_are_found_at_the_limits() {
    for items in [0, 1, 4, 5, 1000, MAX_ITEMS] {
        for target in [MIN_RATE, 1e-9, 0.5, 0.999_999, 1.0 - f64::EPSILON] {
            let CuckooShape { buckets, width } = shape_for(items, target);
            assert!(rate(items as f64, buckets, width) <= target);
            assert!(capacity(buckets) >= items && (MIN_WIDTH..=MAX_WIDTH).contains(&width));
        }
    }
    let per_key = |rate| shape_for(10_000_000, rate).bits() as f64 / 1e7;
    let text = format!("{:.1}, {:.1}, {:.1}", per_key(0.01), per_key(1e-3), per_key(1e-4));
    assert_eq!(text, "10.5, 13.7, 17.9");
}
