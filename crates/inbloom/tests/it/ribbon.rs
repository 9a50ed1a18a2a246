//! The ribbon: what a filter that is built once owes to its keys, whatever they are and however
//! many.

use crate::common::{count_ones, file_of, payload, unevenness};
use inbloom::{Digest, Filter, Hasher, Kind, OpenOptions, Paging, Plan, file};

type MakeKey = fn(u64) -> Vec<u8>;

/// Sorts of keys, of which each number gives another.
const SORTS: [(&str, MakeKey); 3] = [
    ("random bytes", |number| {
        [inbloom_testing::mix(number), inbloom_testing::mix(number ^ 1 << 40)]
            .map(u64::to_le_bytes)
            .concat()
    }),
    ("sequential integers", |number| number.to_le_bytes().to_vec()),
    ("URLs with a common prefix", |number| {
        format!("https://www.example.org/articles/{number:012}.html").into_bytes()
    }),
];

fn digests(key: MakeKey, numbers: std::ops::Range<u64>) -> Vec<Digest> {
    let hasher = Hasher::default();
    numbers.map(|number| hasher.digest(key(number))).collect()
}

/// A plan whose fingerprints have so many bits.
fn plan(items: u64, width: i32) -> Plan {
    let plan = Plan::builder(Kind::Ribbon).items(items).rate(2f64.powi(-width)).build().unwrap();
    assert_eq!(plan.width(), width as u32);
    plan
}

fn build(plan: Plan, digests: &[Digest]) -> Filter {
    Filter::build(plan, Hasher::default(), digests).unwrap()
}

/// Asks one by one and at once.
fn assert_all_found(filter: &Filter, digests: &[Digest], context: &str) {
    let mut found = Vec::new();
    filter.contains_digests(digests, &mut found);
    assert!(found.iter().all(|found| *found), "{context}: a key is denied in a batch");
    let denied = digests.iter().position(|digest| !filter.contains_digest(*digest));
    assert_eq!(denied, None, "{context}: a key is denied");
}

#[test]
fn no_key_is_denied_in_filters_of_every_small_number() {
    for (name, key) in SORTS {
        let all = digests(key, 0..2000);
        for count in 0..=2000 {
            let width = 1 + count as i32 % 32;
            let filter = build(plan(count, width), &all[..count as usize]);
            assert_all_found(&filter, &all[..count as usize], &format!("{count} {name}"));
            assert_eq!((filter.occupied(), filter.inserted()), (count, count));
        }
    }
}

/// Through the sizes at which layers come and go, with steps in between.
#[test]
fn no_key_is_denied_in_filters_of_up_to_twenty_thousand() {
    assert_none_is_denied((0..=20_000).step_by(37));
}

#[test]
#[ignore = "a minute: a filter of every number of keys"]
fn no_key_is_denied_in_filters_of_every_number_up_to_twenty_thousand() {
    assert_none_is_denied(0..=20_000);
}

/// Builds filters of so many keys, of which no two begin with the same key.
fn assert_none_is_denied(counts: impl Iterator<Item = usize>) {
    let all = digests(SORTS[0].1, 0..40_000);
    for count in counts {
        let width = 1 + count as i32 % 32;
        let members = &all[20_000 - count..][..count];
        let filter = build(plan(count as u64, width), members);
        assert_all_found(&filter, members, &format!("{count} keys, {width} bits"));
        assert_eq!((filter.occupied(), filter.inserted()), (count as u64, count as u64));
    }
}

#[test]
fn no_key_is_denied_and_the_rate_is_that_of_the_fingerprints() {
    for (name, key) in SORTS {
        let foreign = digests(key, 10_000_000..12_000_000);
        for (items, widths) in [
            (1, &[8, 14][..]),
            (10, &[8, 14]),
            (100, &[8, 14]),
            (1000, &[8, 14]),
            (10_000, &[1, 2, 7, 8, 14, 20]),
            (100_000, &[7, 14, 20]),
            (1_000_000, &[8]),
        ] {
            let members = digests(key, 0..items);
            for width in widths {
                let filter = build(plan(items, *width), &members);
                let context = format!("{items} {name}, {width} bits");
                assert_all_found(&filter, &members, &context);
                assert_rate(&filter, &foreign, *width, &context);
            }
        }
    }
}

fn assert_rate(filter: &Filter, foreign: &[Digest], width: i32, context: &str) {
    assert_claims(filter, foreign, 2f64.powi(-width), context);
    assert_eq!(filter.rate(), 2f64.powi(-width), "{context}");
}

/// Five deviations of the binomial, and one claim: what chance does in one test of a million.
fn assert_claims(filter: &Filter, foreign: &[Digest], rate: f64, context: &str) {
    let mut found = Vec::new();
    filter.contains_digests(foreign, &mut found);
    let claimed = found.iter().filter(|found| **found).count() as f64;
    let expected = foreign.len() as f64 * rate;
    let deviation = (expected * (1.0 - rate)).sqrt();
    assert!(
        (claimed - expected).abs() <= 5.0 * deviation + 1.0,
        "{context}: {claimed} claimed, {expected:.1} +- {deviation:.1} expected"
    );
}

/// Of a million keys: 0.3% above the fingerprints themselves, and two bits for 128 slots.
#[test]
fn a_million_keys_take_little_more_than_their_fingerprints() {
    let members = digests(SORTS[0].1, 0..1_000_000);
    for width in [1, 7, 14, 32] {
        let plan = plan(1_000_000, width);
        let filter = build(plan, &members);
        let bits = filter.bytes() as f64 * 8.0 / 1e6;
        let most = f64::from(width) * 1.003 + 1.0 / 64.0;
        assert!(bits <= most, "{bits:.4} bits per key of {width}, {most:.4} expected");
        assert!(width < 7 || bits <= 1.01 * f64::from(width), "{bits:.4} of {width}");
        assert!(filter.bytes() <= plan.bytes(), "{bits:.4} of {:.4}", plan.bits_per_key());
        assert!(plan.bits_per_key() <= bits * 1.01, "{bits:.4} of {:.4}", plan.bits_per_key());
    }
}

/// With the thresholds and the directory, without the header of a file.
#[test]
#[ignore = "two minutes: ten million keys, several times"]
fn ten_million_keys_take_little_more_than_their_fingerprints() {
    for (name, key) in SORTS {
        let members = digests(key, 0..10_000_000);
        let foreign = digests(key, 10_000_000..30_000_000);
        for (width, most) in [(8, 1.008), (14, 1.005), (20, 1.005)] {
            let context = format!("{name}, {width} bits");
            let filter = build(plan(10_000_000, width), &members);
            assert_all_found(&filter, &members, &context);
            let bits = filter.bytes() as f64 * 8.0 / 1e7 / f64::from(width);
            println!("{context}: {bits:.5} times its fingerprints");
            assert!(bits <= most, "{context}: {bits:.5} times its fingerprints");
            assert_rate(&filter, &foreign, width, &context);
        }
    }
}

/// One in ten thousand is 13.29 bits, and no whole number of them.
#[test]
#[ignore = "ten seconds: ten million keys"]
fn ten_million_keys_at_one_in_ten_thousand_take_13_6_bits() {
    assert_exact(10_000_000, 13.6);
}

#[test]
#[ignore = "a minute and 4 GB of memory: a hundred million keys"]
fn a_hundred_million_keys_at_one_in_ten_thousand_take_13_45_bits() {
    assert_exact(100_000_000, 13.45);
}

/// A filter that claims one in ten thousand of the foreign keys, and not more, in so many bits.
fn assert_exact(items: u64, most: f64) {
    let plan = Plan::builder(Kind::Ribbon).items(items).rate(1e-4).build().unwrap();
    assert!(plan.rate_at(items as f64) <= 1e-4, "{}", plan.rate_at(items as f64));
    let members = digests(SORTS[0].1, 0..items);
    let filter = build(plan, &members);
    for part in members.chunks(1 << 20) {
        assert_all_found(&filter, part, "one in ten thousand");
    }
    drop(members);
    let bits = filter.bytes() as f64 * 8.0 / items as f64;
    println!("{items} keys: {bits:.4} bits each, at a rate of {}", filter.rate());
    assert!(bits <= most, "{bits:.4} bits per key");
    assert!(filter.bytes() <= plan.bytes(), "{bits:.4} of {:.4}", plan.bits_per_key());
    let foreign = digests(SORTS[0].1, 1 << 32..(1 << 32) + 20_000_000);
    assert_claims(&filter, &foreign, filter.rate(), "one in ten thousand");
}

/// The plan says beforehand what a filter takes at most, however few the keys are.
#[test]
fn no_filter_is_larger_than_planned() {
    let mut larger = 0;
    for count in (0..3000).chain([10_000, 30_000, 100_000, 300_000]) {
        for seed in 0..if count < 3000 { 5 } else { 2 } {
            let first = 1_000_000 * seed + 1000 * count;
            let plan = plan(count, 8);
            let filter = build(plan, &digests(SORTS[1].1, first..first + count));
            larger += u64::from(filter.bytes() > plan.bytes());
        }
    }
    assert!(larger <= 2, "{larger} of 15,000 filters are larger than planned");
}

/// If the payload could be compressed, there would be a smaller filter.
#[test]
fn the_bits_are_those_of_noise() {
    let filter = build(plan(300_000, 14), &digests(SORTS[2].1, 0..300_000));
    // Without thresholds and directory.
    let bytes = payload(&filter);
    let bytes = &bytes[..300_000 * 14 / 8 * 97 / 100];
    let mut counts = vec![0; 256];
    bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    assert!(unevenness(&counts) < 6.0, "{} deviations from even", unevenness(&counts));
    let set = count_ones(bytes) as f64 / (bytes.len() as f64 * 8.0);
    assert!((set - 0.5).abs() < 0.002, "{set} of the bits are set");
}

#[test]
fn neither_order_nor_repetition_changes_a_bit() {
    let members = digests(SORTS[0].1, 0..20_000);
    let filter = build(plan(20_000, 9), &members);
    let backwards: Vec<Digest> = members.iter().rev().copied().collect();
    assert!(file_of(&build(plan(20_000, 9), &backwards)) == file_of(&filter));
    let twice = [&members[..], &members[5000..], &backwards[..7]].concat();
    assert!(file_of(&build(plan(20_000, 9), &twice)) == file_of(&filter));
    let same = vec![members[0]; 1000];
    assert_eq!(build(plan(1000, 9), &same).occupied(), 1);
}

/// More keys than planned, or fewer, and shards without any.
#[test]
fn the_number_of_keys_need_not_be_the_planned_one() {
    let members = digests(SORTS[0].1, 0..50_000);
    for (items, count) in [(10, 50_000), (0, 300), (5_000_000, 50_000), (20_000_000, 3)] {
        let filter = build(plan(items, 10), &members[..count]);
        assert_all_found(&filter, &members[..count], &format!("{count} of {items}"));
        let foreign = members[count..].iter().filter(|digest| filter.contains_digest(**digest));
        let foreign = foreign.count();
        assert!(foreign < 150, "{foreign} claimed of {}", members.len() - count);
    }
    let none = build(plan(20_000_000, 10), &[]);
    assert!(!members.iter().any(|digest| none.contains_digest(*digest)));
    assert_eq!((none.rate(), none.occupied()), (0.0, 0));
}

/// Digests are hashes. What is not is bumped until it is, takes more bits, and is found all the
/// same.
#[test]
fn places_that_are_no_hashes_are_found_too() {
    let digest = |place: u64| Digest { place, print: 0 };
    let places: [fn(u64) -> u64; 4] =
        [|i| i, |i| i << 44, |i| u64::MAX - i, |i| i % 3 * (1 << 62) + i / 3 * 5];
    for place in places {
        let members: Vec<Digest> = (0..20_000).map(|i| digest(place(i))).collect();
        let filter = build(plan(20_000, 12), &members);
        assert_all_found(&filter, &members, "no hashes");
        assert!(filter.bytes() < 20_000 * 12 / 8 * 4, "{} bytes", filter.bytes());
    }
}

#[test]
fn what_changes_a_filter_is_refused_with_a_remedy() {
    let members = digests(SORTS[1].1, 0..100);
    let mut filter = build(plan(100, 8), &members);
    let other = build(plan(100, 8), &members[..50]);
    let remedy = "build it again from all its keys, or keep the changes in an overlay ('inbloom build \
                  --base', Filter::into_overlay)";
    let text = |error: inbloom::Error| error.to_string();
    let refused = |verb: &str| format!("kind ribbon cannot {verb}; {remedy}");
    let mut answers = Vec::new();
    assert_eq!(text(filter.insert("a").unwrap_err()), refused("insert"));
    assert_eq!(text(filter.insert_many(&["a"], &mut answers).unwrap_err()), refused("insert"));
    assert_eq!(text(filter.remove("a").unwrap_err()), refused("remove keys"));
    assert_eq!(text(filter.clear().unwrap_err()), refused("clear"));
    assert_eq!(text(filter.merge(&other).unwrap_err()), refused("merge"));
    assert!(text(filter.intersect(&other).unwrap_err()).contains("query both filters instead"));
    assert!(filter.set_auto_clear(Some(0.5)).is_err());
    assert!(filter.insert_many::<&str>(&[], &mut answers).is_ok());
    assert_eq!(
        text(Filter::new(plan(100, 8)).unwrap_err()),
        "kind ribbon cannot start empty; call Filter::build with the digests of all its keys"
    );
    assert!(text(plan(100, 8).for_shard(0, 4).unwrap_err()).contains("shards of its own"));
    assert_all_found(&filter, &members, "after refusals");
    let shared = filter.into_shared().unwrap();
    assert!(shared.insert("a").is_err() && shared.contains(0_u64.to_le_bytes()));
    assert_all_found(&shared.into_exclusive(), &members, "after it was shared");
}

#[test]
fn a_mapped_filter_answers_as_it_did() {
    let members = digests(SORTS[2].1, 0..100_000);
    let built = build(plan(5_000_000, 11), &members);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ribbon.ib");
    built.save(&path).unwrap();
    file::verify(&path).unwrap();
    let opened = Filter::open(&path).unwrap();
    assert!(opened == built && opened.clone() == built);
    assert_eq!((opened.rate(), opened.bytes()), (built.rate(), built.bytes()));
    assert_eq!(opened.estimated_items().items, 100_000.0);
    assert_all_found(&opened, &members, "mapped");
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let foreign = digests(SORTS[2].1, 200_000..300_000);
    opened.contains_digests(&foreign, &mut there);
    built.contains_digests(&foreign, &mut here);
    assert_eq!(here, there);
}

#[test]
fn other_kinds_become_ribbons_from_their_keys() {
    let keys: Vec<Vec<u8>> = (0..3000).map(SORTS[2].1).collect();
    let mut blocked =
        Filter::new(Plan::builder(Kind::Blocked).items(3000).rate(1e-4).build().unwrap()).unwrap();
    blocked.insert_many(&keys, &mut Vec::new()).unwrap();
    blocked.set_note("May").unwrap();
    let compact = blocked.rebuild(plan(3000, 14), &keys).unwrap();
    assert!(keys.iter().all(|key| compact.contains(key)));
    assert!(compact.bytes() * 4 < blocked.bytes() * 3);
    assert_eq!(compact.note(), "May");
    assert!(blocked.rebuild(plan(3000, 14), ["no such key"]).is_err());
}

#[test]
fn plans_find_the_widest_fingerprint_and_the_most_items() {
    let of = |bytes| Plan::builder(Kind::Ribbon).items(1_000_000).bytes(bytes).build();
    let from_bytes = of(1_800_000).unwrap();
    assert_eq!((from_bytes.width(), from_bytes.rate()), (14, 2f64.powi(-14)));
    assert!(from_bytes.bytes() <= 1_800_000);
    assert!(of(100_000).unwrap_err().to_string().contains("at least"));
    let per_key = Plan::builder(Kind::Ribbon).items(1000).bits_per_key(16.0).build().unwrap();
    assert!(per_key.bits_per_key() <= 16.0 && per_key.width() >= 11);
    let most = Plan::builder(Kind::Ribbon).bytes(1 << 20).rate(1e-3).build().unwrap();
    assert!(most.bytes() <= 1 << 20 && most.items() > 830_000, "{}", most.items());
    assert!(most.rate_at(most.items() as f64) <= 1e-3);
    let unreachable = Plan::builder(Kind::Ribbon).items(1000).bytes(1000).rate(1e-6).build();
    assert!(unreachable.unwrap_err().to_string().contains("allow more bytes"));
    for (items, rate) in [(1000, 1e-10), (10_000_000_000, 5e-10)] {
        let refused = Plan::builder(Kind::Ribbon).items(items).rate(rate).build().unwrap_err();
        assert!(refused.to_string().contains("kind ribbon reaches 2.4e-10 at best"), "{refused}");
    }
    // What 64 bits leave of 10^10 keys is counted.
    let many =
        Plan::builder(Kind::Ribbon).items(10_000_000_000).rate(2f64.powi(-26)).build().unwrap();
    assert_eq!(many.width(), 27);
    assert!(many.bytes() < 34_000_000_000);
    let urls = Plan::builder(Kind::Ribbon).items(10_000_000_000).rate(1e-4).build().unwrap();
    assert_eq!(format!("{:.1} GB", urls.bytes() as f64 / 1e9), "16.8 GB");
}

/// From 8 million planned keys on shards of two widths make up the rate. (The keys are fewer here.)
#[test]
fn a_large_filter_meets_its_rate_and_takes_no_bits_to_undercut_it() {
    let plan = Plan::builder(Kind::Ribbon).items(100_000_000).rate(0.003).build().unwrap();
    assert_eq!(plan.width(), 9);
    // 8.38 bits are the least that any filter takes; 9.06 it would be with 9 in all shards.
    assert!(plan.bits_per_key() < 8.56, "{}", plan.bits_per_key());
    assert!((0.00295..=0.003).contains(&plan.rate_at(1e8)), "{}", plan.rate_at(1e8));
    let members = digests(SORTS[0].1, 0..200_000);
    let filter = build(plan, &members);
    assert_all_found(&filter, &members, "two widths");
    assert!((filter.rate() - plan.rate_at(1e8)).abs() < 1e-9, "{}", filter.rate());
    assert!(filter.details()[0].1.starts_with("8 or 9 bits each"), "{:?}", filter.details());
    let foreign = digests(SORTS[0].1, 10_000_000..13_000_000);
    assert_claims(&filter, &foreign, filter.rate(), "two widths");
}

/// Widths are mixed from 2^23 planned keys on, among 16 shards at least; whole numbers of bits stay
/// as they are, and no plan promises more than it keeps.
#[test]
fn plans_of_ten_million_keys_mix_widths() {
    let planned =
        |items, rate| Plan::builder(Kind::Ribbon).items(items).rate(rate).build().unwrap();
    for (items, most) in [(1 << 23, 13.6), (10_000_000, 13.6), (100_000_000, 13.5)] {
        let plan = planned(items, 1e-4);
        assert!(plan.bits_per_key() <= most, "{items}: {:.4}", plan.bits_per_key());
        assert!((0.95e-4..=1e-4).contains(&plan.rate_at(items as f64)));
        let whole = planned(items, 2f64.powi(-14));
        assert_eq!(whole.rate_at(items as f64), 2f64.powi(-14));
        assert!(whole.bits_per_key() <= 1.011 * 14.0, "{items}: {:.4}", whole.bits_per_key());
    }
    let fewer = planned((1 << 23) - 1, 1e-4);
    assert_eq!(fewer.rate_at(8e6), 2f64.powi(-14));
    // More keys fit than could if all had the wider fingerprints, and the search finds them.
    let bytes = planned(1 << 23, 1e-4).bytes();
    let most = Plan::builder(Kind::Ribbon).bytes(bytes).rate(1e-4).build().unwrap();
    assert!(most.items() >= 1 << 23 && most.bytes() <= bytes, "{} keys", most.items());
    assert!(fewer.bytes() > bytes);
}

/// So that shards can be built apart, one after the other or on several machines, and put together.
#[test]
fn a_shard_is_built_from_its_own_digests_alone() {
    const SHARDS: u64 = 3;
    let members = digests(SORTS[0].1, 0..30_000);
    let of_shard = |shard: u64| {
        let here = |digest: &&Digest| digest.pick(SHARDS).0 == shard;
        members.iter().filter(here).copied().collect::<Vec<Digest>>()
    };
    let whole = payload(&build(plan(5_000_000, 8), &members));
    let alone: Vec<Vec<u8>> =
        (0..SHARDS).map(|shard| payload(&build(plan(5_000_000, 8), &of_shard(shard)))).collect();
    // The directory is at the end: 32 bytes for each shard, of which the last 20 count blocks.
    let entry = |payload: &[u8], shard: u64| {
        let at = payload.len() - 8 - 32 * (SHARDS - shard) as usize;
        payload[at..at + 32].to_vec()
    };
    let columns = |entry: &[u8]| {
        let blocks = entry[12..].as_chunks::<4>().0.iter();
        blocks.map(|blocks| u32::from_le_bytes(*blocks) as usize).sum::<usize>() * 8 * 8
    };
    let (mut put_together, mut thresholds) = (Vec::new(), Vec::new());
    for (shard, alone) in (0..SHARDS).zip(&alone) {
        assert_eq!(entry(alone, shard), entry(&whole, shard));
        let (here, rest) = alone.split_at(columns(&entry(alone, shard)));
        put_together.extend_from_slice(here);
        thresholds.extend_from_slice(&rest[..rest.len() - 32 * SHARDS as usize - 8]);
    }
    put_together.extend(thresholds);
    assert!(whole.starts_with(&put_together));
    assert_eq!(whole.len(), put_together.len() + 32 * SHARDS as usize + 8);
}

/// Of one shard and of several, with all layers and with few, and one whose file is large enough
/// that the system is told how it is read.
#[test]
fn answers_are_the_same_in_memory_and_by_every_way_through_a_file() {
    for (planned, count, width) in
        [(0, 0, 8), (1, 1, 8), (1000, 1000, 3), (9_000_000, 200_000, 5), (4_400_000, 4_400_000, 31)]
    {
        let members = digests(SORTS[0].1, 0..count);
        let filter = build(plan(planned, width), &members);
        // Some of them, and foreign keys, in no order.
        let mut asked: Vec<Digest> =
            members.iter().copied().step_by(1 + members.len() / 50_000).collect();
        let claimed = asked.len();
        asked.extend(digests(SORTS[0].1, 10_000_000..10_050_000));
        asked.sort_unstable_by_key(|digest| digest.print);
        let context = format!("{count} of {planned} keys, {width} bits");
        let expected: Vec<bool> = asked.iter().map(|key| filter.contains_digest(*key)).collect();
        assert!(expected.iter().filter(|found| **found).count() >= claimed, "{context}");
        assert_answers(&filter, &asked, &expected, &context);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ribbon.ib");
        filter.save(&path).unwrap();
        for paging in [Paging::OnDemand, Paging::Sampled, Paging::Ahead] {
            for mut mapped in [
                Filter::open(&path).unwrap(),
                OpenOptions::new().writable(true).open(&path).unwrap(),
            ] {
                mapped.set_paging(paging);
                assert_answers(&mapped, &asked, &expected, &format!("{context}, {paging:?}"));
            }
        }
        let copy = Filter::open(&path).unwrap().clone();
        assert!(copy == filter);
        assert_answers(&copy, &asked, &expected, &format!("{context}, copied"));
    }
}

/// Asks in batches of several lengths, by a sweep, and one by one.
fn assert_answers(filter: &Filter, asked: &[Digest], expected: &[bool], context: &str) {
    let mut found = Vec::new();
    for batch in [1, 127, 1000, asked.len()] {
        let few = asked.chunks(batch).zip(expected.chunks(batch)).take(20);
        for (asked, expected) in few {
            filter.contains_digests(asked, &mut found);
            assert!(found == expected, "{context}: a batch of {batch}");
            filter.sweep_digests(asked, &mut found);
            assert!(found == expected, "{context}: a sweep of {batch}");
        }
    }
    let mut each = asked.iter().zip(expected);
    assert!(each.all(|(asked, found)| filter.contains_digest(*asked) == *found), "{context}: one");
}

#[test]
fn a_sweep_answers_for_every_kind() {
    for (name, plan) in crate::common::shapes(1000) {
        let mut filter = Filter::new(plan).unwrap();
        for key in crate::common::keys(0..1000) {
            filter.insert(key).unwrap();
        }
        let asked: Vec<Digest> =
            crate::common::keys(0..3000).iter().map(|key| filter.digest(key)).collect();
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        filter.contains_digests(&asked, &mut expected);
        filter.sweep_digests(&asked, &mut found);
        assert_eq!(found, expected, "{name}");
    }
}
