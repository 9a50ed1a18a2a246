use super::*;
use crate::digest::Hasher;
use crate::error::mismatch;
use crate::plan::MAX_ITEMS;
use crate::storage::Cells;

const GROWING: Plan =
    Plan { items: 100, rate: 0.01, growth: 2, tightening: 0.8, ..Plan::blank(Kind::Scalable) };
/// Keys of queries start here, and those that are inserted end before.
const FOREIGN: u64 = 1 << 40;

fn digest(key: u64) -> Digest {
    Hasher::default().digest(key.to_le_bytes())
}

fn grown(params: Plan, keys: std::ops::Range<u64>) -> Scalable {
    let mut filter = Scalable::new(params).unwrap();
    for key in keys {
        filter.insert(digest(key)).unwrap();
    }
    filter
}

fn measured(filter: &Scalable, queries: u64) -> f64 {
    let found = (FOREIGN..FOREIGN + queries).filter(|key| filter.contains(digest(*key)));
    found.count() as f64 / queries as f64
}

fn counts_hold(filter: &Scalable) {
    assert!(filter.recount().is_some());
}

fn read(plan: Plan, bytes: &[u8]) -> Result<Scalable> {
    let mut cells = Cells::zeroed(bytes.len().next_multiple_of(8) as u64)?;
    cells.bytes_mut()?[..bytes.len()].copy_from_slice(bytes);
    let read = Scalable::from_cells(plan, cells)?;
    read.recount().map(|_| read).ok_or_else(|| mismatch("cells", "fingerprints", "others"))
}

#[test]
fn no_false_negatives_through_many_expansions() {
    // Slots of every width; and so many doublings that old fingerprints run out of bits.
    for (rate, growth, keys) in [
        (0.5, 2, 1_500_000),
        (0.1, 8, 1_500_000),
        (1e-3, 2, 100_000),
        (1e-8, 2, 100_000),
        (1e-12, 2, 100_000),
    ] {
        let params = Plan { items: 1, rate, growth, tightening: 0.8, ..GROWING };
        let mut filter = Scalable::new(params).unwrap();
        for key in 0..keys {
            filter.insert(digest(key)).unwrap();
            if (key + 1).is_power_of_two() {
                assert!((0..=key).all(|key| filter.contains(digest(key))), "{rate} {key}");
            }
        }
        assert!((0..keys).all(|key| filter.contains(digest(key))), "{rate}");
        let least = 13;
        assert!(filter.expansions() >= least, "{rate}: {}", filter.expansions());
        let entries: u64 = filter.shards().map(|shard| shard.entries).sum();
        let expected = filter.len() * 99 / 100..filter.len() * 5 / 4;
        assert!(expected.contains(&entries), "{entries} for {}", filter.len());
        counts_hold(&filter);
    }
}

#[test]
fn the_compound_rate_is_kept_and_known() {
    const QUERIES: u64 = 1_000_000;
    for rate in [0.1, 0.01, 0.001] {
        for items in [1, 10, 100] {
            let mut filter = Scalable::new(Plan { items, rate, ..GROWING }).unwrap();
            let mut keys = 0;
            let last = if (items, rate) == (1, 0.01) { 17 } else { 12 };
            for expansions in [0, 1, 5, 12, last] {
                while filter.expansions() < expansions || keys < items {
                    filter.insert(digest(keys)).unwrap();
                    keys += 1;
                }
                let (known, measured) = (filter.rate(), measured(&filter, QUERIES));
                let deviation = |rate: f64| (rate / QUERIES as f64).sqrt();
                let message = format!(
                    "{keys} keys from {items}, {expansions} expansions: promised {rate}, \
                     known {known}, measured {measured}"
                );
                assert!(known <= rate, "{message}");
                assert!(measured <= rate + 4.0 * deviation(rate), "{message}");
                // A rate of less than one in all queries is not seen.
                let seen = deviation(known.max(1.0 / QUERIES as f64));
                assert!((measured - known).abs() <= 4.0 * seen, "{message}");
            }
        }
    }
}

#[test]
fn memory_grows_without_a_cliff() {
    let mut filter = grown(GROWING, 0..1_000_000);
    let (mut least, mut most) = (f64::INFINITY, 0f64);
    for key in 1_000_000..4_000_000 {
        filter.insert(digest(key)).unwrap();
        let per_key = filter.bytes() as f64 * 8.0 / (key + 1) as f64;
        (least, most) = (least.min(per_key), most.max(per_key));
    }
    assert!(most < 1.1 * least && most < 18.6, "{least} to {most} bits per key");
}

#[test]
fn small_filters_are_small() {
    assert!(Scalable::new(GROWING).unwrap().bytes() <= 448);
    let one = Plan { items: 1, ..GROWING };
    assert!(Scalable::new(one).unwrap().bytes() <= 64);
}

#[test]
fn a_repeated_key_takes_no_room() {
    let mut filter = Scalable::new(GROWING).unwrap();
    assert!(filter.insert(digest(1)).unwrap());
    let before = filter.payload().into_owned();
    assert!((0..1000).all(|_| !filter.insert(digest(1)).unwrap()));
    assert_eq!((filter.len(), filter.payload().into_owned()), (1, before));
}

#[test]
fn batches_do_as_single_calls() {
    let digests: Vec<Digest> = (0..300_000).map(|key| digest(key % 200_000)).collect();
    let mut batched = Scalable::new(GROWING).unwrap();
    let (mut new, mut found) = (Vec::new(), Vec::new());
    batched.insert_digests(&digests, &mut new).unwrap();
    let mut single = Scalable::new(GROWING).unwrap();
    let one_by_one: Vec<bool> = digests.iter().map(|d| single.insert(*d).unwrap()).collect();
    assert!(new == one_by_one && batched.same(&single));
    let queries: Vec<Digest> = (100_000..400_000).map(digest).collect();
    batched.contains_digests(&queries, &mut found);
    assert!(queries.iter().zip(&found).all(|(d, found)| single.contains(*d) == *found));
}

/// Buckets of 16, 20, 24 and more bytes, and lanes of 32 bits, each of which has a loop of its own.
#[test]
fn batches_of_every_shape_answer_as_single_calls() {
    let keys: Vec<Digest> = (0..250_000).map(digest).collect();
    let queries: Vec<Digest> = (125_000..375_000).map(digest).collect();
    for (rate, stride) in [(0.01, 16), (0.001, 20), (0.0001, 24), (1e-5, 28), (1e-8, 36)] {
        let mut filter = Scalable::new(Plan { rate, ..GROWING }).unwrap();
        let (mut new, mut found) = (Vec::new(), Vec::new());
        filter.insert_digests(&keys, &mut new).unwrap();
        assert_eq!(filter.narrow_bytes(), Some(stride), "{rate}");
        for is_widened in [false, true] {
            filter.contains_digests(&queries, &mut found);
            let right = |(digest, found): (&Digest, &bool)| filter.contains(*digest) == *found;
            assert!(queries.iter().zip(&found).all(right), "{rate}, widened: {is_widened}");
            assert!(found[..125_000].iter().all(|found| *found), "{rate}");
            filter.widen(3).unwrap();
            assert_eq!(filter.narrow_bytes(), None);
        }
    }
}

/// What is planned fits at once, and keeps the rate.
#[test]
fn planned_items_fit_without_expansion() {
    for items in [100, 5000, 20_000, 300_000] {
        let filter = grown(Plan { items, ..GROWING }, 0..items);
        let first = Scalable::new(Plan { items, ..GROWING }).unwrap();
        assert!(filter.bytes() <= first.bytes() * 5 / 4, "{items}: {}", filter.bytes());
        assert_eq!(filter.expansions(), 0);
        assert!(filter.rate() <= 0.01);
    }
}

/// The entries are counted in a sample of the buckets, in which there may be none.
#[test]
fn few_keys_in_a_large_plan_are_estimated_with_a_finite_error() {
    for keys in [0, 1, 10] {
        let filter = grown(Plan { items: 10_000_000, ..GROWING }, 0..keys);
        let estimate = filter.estimate(None);
        assert!(estimate.error.is_finite() && estimate.items >= keys as f64, "{estimate:?}");
    }
}

#[test]
fn a_fixed_filter_takes_what_was_planned_and_then_says_full() {
    for (items, rate) in [(1, 0.01), (100, 0.1), (1000, 1e-6), (50_000, 0.01)] {
        let params = Plan { items, rate, growth: 0, tightening: 0.8, ..GROWING };
        let mut filter = Scalable::new(params).unwrap();
        let bytes = filter.bytes();
        let mut keys = 0;
        let error = loop {
            match filter.insert(digest(keys)) {
                Ok(_) => keys += 1,
                Err(error) => break error,
            }
        };
        let len = filter.len();
        assert!(len >= items && len < items * 2 + 40, "{len} of {items}");
        let Error::Full { items: named, planned } = error else { panic!("{error}") };
        assert_eq!((named, planned), (len, items));
        assert_eq!((filter.bytes(), filter.expansions()), (bytes, 0));
        assert!((0..keys).all(|key| filter.contains(digest(key))));
        let (known, measured) = (filter.rate(), measured(&filter, 100_000));
        assert!(known <= rate && measured <= rate + 4.0 * (rate / 1e5).sqrt(), "{measured}");
    }
}

/// The planes of a small filter that cannot grow are enough for its wide lanes only.
#[test]
fn a_fixed_filter_keeps_its_rate_when_chance_crowds_its_keys() {
    let plan = Plan { items: 7000, rate: 1e-6, growth: 0, ..GROWING };
    let mut filter = grown(plan, 0..6900);
    assert!(filter.rate() <= plan.rate, "{}", filter.rate());
    // More keys of one pair of buckets than there are slots in it, also when it was split twice.
    let crowd = |n: u64| Digest { place: n << 60 | 3 << 55, print: n << 14 | 5 };
    for n in 0..90 {
        filter.insert(crowd(n)).unwrap();
    }
    assert!(filter.rate() <= plan.rate, "{} in {} tables", filter.rate(), filter.tables.len());
    assert!((0..6900).all(|key| filter.contains(digest(key))));
    assert!((0..90).all(|n| filter.contains(crowd(n))));
    assert!(read(plan, &filter.payload()).unwrap().same(&filter));
}

#[test]
fn keys_that_are_no_hashes_do_not_exhaust_memory() {
    for shift in [0, 20, 32, 40] {
        let bad = |key: u64| Digest { place: key, print: key << shift };
        let mut filter = Scalable::new(GROWING).unwrap();
        let refused = (0..100_000).find(|key| filter.insert(bad(*key)).is_err());
        assert!(filter.bytes() < 4 << 20, "{} bytes", filter.bytes());
        let kept = refused.unwrap_or(100_000);
        assert!((0..kept).all(|key| filter.contains(bad(key))), "{shift}: {kept}");
    }
}

#[test]
fn a_merged_filter_has_what_either_has() {
    let sizes = [50, 3000, 20_000, 150_000];
    for left in sizes {
        for right in sizes {
            let mut filter = grown(GROWING, 0..left);
            let mut other = grown(Plan { rate: 0.002, ..GROWING }, left / 2..left / 2 + right);
            // Entries that know less make it err more often than it promises, or they fit in.
            if other.unite(&filter).is_ok() {
                assert!((0..left).all(|key| other.contains(digest(key))), "{left}, {right}");
                counts_hold(&other);
                other = grown(Plan { rate: 0.002, ..GROWING }, left / 2..left / 2 + right);
            }
            filter.unite(&other).unwrap();
            let keys = left.max(left / 2 + right);
            assert!((0..keys).all(|key| filter.contains(digest(key))), "{left}, {right}");
            assert!(filter.rate() <= 0.01 && filter.len() <= left + right);
            counts_hold(&filter);
        }
    }
}

#[test]
fn a_filter_merged_with_itself_is_the_same() {
    for keys in [50, 3000, 100_000] {
        let mut filter = grown(GROWING, 0..keys);
        let before = filter.duplicate().unwrap();
        filter.unite(&before).unwrap();
        assert!(filter.same(&before), "{keys}");
    }
}

#[test]
fn a_merge_that_breaks_the_promise_is_refused_and_changes_nothing() {
    let mut filter = grown(Plan { rate: 1e-5, ..GROWING }, 0..20_000);
    let before = filter.duplicate().unwrap();
    let coarse = grown(Plan { rate: 0.1, ..GROWING }, 20_000..40_000);
    let error = filter.unite(&coarse).unwrap_err();
    assert!(matches!(error, Error::MergedRate { rate, target } if rate > target));
    assert!(filter.same(&before));
}

#[test]
fn the_payload_is_the_filter() {
    for keys in [0, 1, 100, 5000, 30_000] {
        let filter = grown(GROWING, 0..keys);
        let bytes = filter.payload().into_owned();
        assert!(bytes.len().is_multiple_of(64));
        let mut read = read(GROWING, &bytes).unwrap();
        assert!(read.same(&filter) && read.payload().into_owned() == bytes);
        assert_eq!(read.expansions(), filter.expansions());
        for key in keys..2 * keys {
            read.insert(digest(key)).unwrap();
        }
        assert!((0..2 * keys).all(|key| read.contains(digest(key))));
    }
}

#[test]
fn damaged_payloads_are_refused_or_harmless() {
    for keys in [20, 9000] {
        let params = Plan { items: 20, ..GROWING };
        let bytes = grown(params, 0..keys).payload().into_owned();
        let step = if keys < 100 { 1 } else { 997 };
        for len in (0..bytes.len()).step_by(step) {
            assert!(read(params, &bytes[..len / 8 * 8]).is_err(), "{len}");
        }
        for bit in (0..bytes.len() * 8).step_by(step) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(mut filter) = read(params, &flipped) {
                (0..300).for_each(|key| drop(filter.insert(digest(key))));
                assert!(filter.contains(digest(299)));
            }
        }
    }
}

#[test]
fn clear_forgets_and_starts_anew() {
    let mut filter = grown(GROWING, 0..30_000);
    filter.clear().unwrap();
    assert_eq!((filter.len(), filter.expansions(), filter.rate()), (0, 0, 0.0));
    assert_eq!(measured(&filter, 1000), 0.0);
}

/// A filter from a stranger's payload: one table or 16, each with these claims.
fn strangers(plan: Plan, slots: SlotShape, buckets: u64, claims: &[Claim]) -> Scalable {
    let table = |_| {
        let mut table = Table::new(slots, buckets, Cells::zeroed).unwrap();
        assert!(claims.iter().all(|claim| table.absorb(*claim)));
        table
    };
    let count = if slots.is_tagged { 1 } else { SHARDS };
    let filter = Scalable::of(plan, (0..count).map(table).collect(), 1);
    read(plan, &filter.payload()).unwrap()
}

/// Claims of all hashes that have one of `heads` heads, as entries without any bits of their own.
fn without_bits(level: u32, heads: u8) -> Vec<Claim> {
    let claim = |address, head| Claim { tag: 0, head, extra: 0, address, known: level };
    let claims = (0..1 << level).flat_map(|address| (0..heads).map(move |head| (address, head)));
    claims.map(|(address, head)| claim(address, head)).collect()
}

const SHAPES: [SlotShape; 3] = [
    SlotShape { is_wide: true, planes: 0, is_tagged: false },
    SlotShape { is_wide: false, planes: 0, is_tagged: false },
    SlotShape { is_wide: true, planes: 0, is_tagged: true },
];

/// An entry that has no bits left becomes two when its bucket is split: a table full of them is as
/// full at any size.
#[test]
fn entries_that_double_with_their_table_do_not_make_it_grow_without_end() {
    for slots in SHAPES {
        for (level, missing) in [(0, 0), (4, 0), (6, 1)] {
            for rate in [0.01, 0.9] {
                let plan = Plan { rate, ..GROWING };
                let claims = without_bits(level, 8);
                let claims = &claims[missing..];
                let hostile = strangers(plan, slots, 1 << level, claims);
                let mut filter = hostile.duplicate().unwrap();
                let refused = (0..2000).filter(|key| filter.insert(digest(*key)).is_err()).count();
                let what = format!("{slots:?}, {level}, {rate}: {} bytes", filter.bytes());
                assert!(refused > 0 && filter.bytes() < 1 << 20, "{what}");
                let error = filter.insert(Digest { place: u64::MAX, print: 0 }).unwrap_err();
                assert!(matches!(error, Error::Full { .. }), "{what}: {error}");
                let honest = grown(plan, 0..2000);
                let mut merged = hostile.duplicate().unwrap();
                let error = merged.unite(&honest).unwrap_err();
                assert!(
                    matches!(error, Error::Full { .. } | Error::MergedRate { .. }),
                    "{what}: {error}"
                );
                let mut merged = honest.duplicate().unwrap();
                let _ = merged.unite(&hostile);
                assert!(merged.bytes() < 1 << 20, "{what}");
            }
        }
    }
}

/// All that is in the way of a key has no bits left, in a table that has room elsewhere.
#[test]
fn a_key_that_finds_no_room_doubles_its_table_once() {
    let slots = SlotShape { is_wide: false, planes: 1, is_tagged: false };
    // A quarter of the buckets, and with each the one that head 0 leads to from there.
    let is_full = |address: &u64| (address ^ address >> 1 | address >> 2 ^ address >> 3) & 1 == 0;
    let claims = (0..256).filter(is_full).flat_map(|address| {
        (0..8).map(move |extra| Claim { tag: 0, head: 0, extra, address, known: 8 })
    });
    let claims: Vec<Claim> = claims.collect();
    let mut filter = strangers(Plan { rate: 0.9, ..GROWING }, slots, 256, &claims);
    // Head 0, and extra bits that no entry has.
    let key = |n: u64| Digest { place: 3 << 60 | 15 << 51, print: n << 40 };
    let errors = (0..1000).filter_map(|n| filter.insert(key(n)).err()).collect::<Vec<_>>();
    assert!(errors.len() == 1000 && matches!(errors[999], Error::Full { .. }));
    let buckets = filter.tables[3].buckets();
    assert!((512..640).contains(&buckets), "{buckets} buckets");
}

#[test]
fn a_merge_into_one_table_divides_it_when_it_is_large() {
    let mut filter = grown(GROWING, 0..6000);
    for first in [6000, 12_000, 18_000] {
        filter.unite(&grown(GROWING, first..first + 6000)).unwrap();
    }
    assert_eq!(filter.tables.len(), SHARDS);
    assert!((0..24_000).all(|key| filter.contains(digest(key))));
    counts_hold(&filter);
}

/// New entries of a small table have more bits than those of a divided one, and its shard's number.
#[test]
fn a_merge_of_what_is_there_already_takes_no_room() {
    let mut filter = grown(GROWING, 0..20_000);
    let before = filter.duplicate().unwrap();
    for keys in [50, 3000, 6000] {
        filter.unite(&grown(GROWING, 0..keys)).unwrap();
        assert!(filter.same(&before), "{keys}: {} of {}", filter.occupied(), before.occupied());
    }
}

#[test]
fn a_merge_takes_each_table_by_its_own_planes() {
    let mut mixed = grown(Plan { rate: 2e-4, ..GROWING }, 0..20_000);
    assert_eq!(mixed.tables[3].slots().planes, 2);
    mixed.tables[3] = with_planes(&mixed.tables[3], 1).unwrap().unwrap();
    let mut filter = grown(Plan { rate: 1e-3, ..GROWING }, 20_000..21_000);
    assert_eq!(filter.tables[0].slots().planes, 1);
    filter.unite(&mixed).unwrap();
    assert!((0..21_000).all(|key| filter.contains(digest(key))));
    counts_hold(&filter);
}

/// What is behind the last bucket of a file is padding, and later a bucket.
#[test]
fn padding_behind_the_last_bucket_is_checked_and_never_used() {
    let plan = Plan { rate: 1e-3, items: 1, ..GROWING };
    let mut bytes = Scalable::new(plan).unwrap().payload().into_owned();
    let stride = first_tables(&plan).unwrap().0.stride();
    assert_eq!((bytes.len(), stride), (128, 36));
    for at in 64 + stride..bytes.len() {
        bytes[at] = 0xa5;
        assert!(read(plan, &bytes).is_err(), "{at}");
    }
    let mut cells = Cells::zeroed(bytes.len() as u64).unwrap();
    cells.bytes_mut().unwrap().copy_from_slice(&bytes);
    let mut filter = Scalable::from_cells(plan, cells).unwrap();
    for key in 0..100 {
        filter.insert(digest(key)).unwrap();
        if filter.tables[0].buckets() > 1 {
            counts_hold(&filter);
        }
    }
    assert!((0..100).all(|key| read(plan, &filter.payload()).unwrap().contains(digest(key))));
}

#[test]
fn tables_larger_than_any_of_ours_are_refused() {
    for (keys, most) in [(100, 1 << 14), (20_000, 1 << 38)] {
        let mut bytes = grown(GROWING, 0..keys).payload().into_owned();
        let mut refused = |buckets: u64| {
            bytes[24..32].copy_from_slice(&buckets.to_le_bytes());
            read(GROWING, &bytes).unwrap_err().to_string()
        };
        assert!(refused(most + 1).contains("shape of a table"), "{}", refused(most + 1));
        assert!(!refused(most).contains("shape of a table"), "{}", refused(most));
    }
}

/// A stranger's header may say that it is for any number of items, and of no bits at all.
#[test]
fn clear_takes_no_more_memory_than_there_was() {
    for keys in [20, 20_000] {
        let mut filter = grown(GROWING, 0..keys);
        let bytes = filter.bytes();
        for items in [7000, 10_000_000, 10_u64.pow(12), MAX_ITEMS] {
            filter.plan.items = items;
            filter.clear().unwrap();
            assert!(filter.bytes() <= bytes && filter.is_empty(), "{keys}, {items}");
        }
    }
}

#[test]
fn the_size_of_a_plan_is_known_at_once() {
    for _ in 0..1000 {
        let plan = Plan::builder(Kind::Scalable).items(30_000_000_000_000).build().unwrap();
        assert!(plan.bits > 8 * plan.items);
    }
}

#[test]
fn a_table_that_is_built_anew_asks_for_all_its_memory_first() {
    let filter = grown(GROWING, 0..1_000_000);
    let table = &filter.tables[0];
    let whole = SlotShape { is_wide: true, ..table.slots() }.bytes(table.buckets()).unwrap();
    assert!(whole > 64 << 10);
    let account = allowance::Account::new(100);
    account.set_limit(100 + whole - 1);
    let error = widened(table, &mut Allowance::of(&account)).err().unwrap();
    assert!(matches!(error, Error::Memory { bytes, .. } if bytes == whole), "{error}");
    assert_eq!(account.taken(), 100);
}

/// A key that made its table be divided is in another one.
#[test]
fn an_insert_that_divides_tells_where_the_key_went() {
    let slots = SlotShape { is_wide: true, planes: 0, is_tagged: true };
    let table = Table::new(slots, SMALL_BUCKETS, Cells::zeroed).unwrap();
    let mut filter = Scalable::of(GROWING, vec![table], 0);
    let refused = |filter: &mut Scalable, digest| {
        filter.tables[0].insert(spot(slots, digest)) == Inserted::Refused
    };
    let mut keys = (0..).map(digest);
    let last = keys.find(|key| refused(&mut filter, *key) && route(*key) != 0).unwrap();
    assert_eq!(filter.insert_otherwise(last).unwrap(), usize::from(route(last)));
    assert_eq!(filter.tables.len(), SHARDS);
}

#[test]
fn parameters_out_of_range_are_refused() {
    for params in [
        Plan { items: 0, ..GROWING },
        Plan { items: MAX_ITEMS + 1, ..GROWING },
        Plan { rate: 0.0, ..GROWING },
        Plan { rate: 1.0, ..GROWING },
        Plan { rate: f64::NAN, ..GROWING },
        Plan { growth: 1, ..GROWING },
        Plan { growth: 16, ..GROWING },
        Plan { tightening: 1.0, ..GROWING },
        Plan { tightening: f64::NAN, ..GROWING },
    ] {
        assert!(params.check().is_err(), "{params:?}");
    }
}
