//! Overlay lists: what a static filter that is changed after all owes to its keys, to those that
//! were taken out of it, and to whoever reads its file.

use std::collections::HashSet;

use crate::common::{digest, digests, file_of, reopened};
use inbloom::internals::compose::overlay::BASE_SHARE;
use inbloom::internals::format;
use inbloom::{Digest, Error, Filter, Hasher, Kind, OpenOptions, Paging, Plan, SecretKey};
use inbloom_testing::mix;
use xxhash_rust::xxh3::xxh3_64;

const KEY: SecretKey = SecretKey::new(*b"sixteen byte key");

/// A filter of these numbers, planned for a share of the rate.
fn base(numbers: std::ops::Range<u64>, rate: f64) -> Filter {
    let items = numbers.end - numbers.start;
    let plan = Plan::builder(Kind::Ribbon).items(items).rate(rate * BASE_SHARE).build().unwrap();
    Filter::build(plan, Hasher::default(), &digests(numbers)).unwrap()
}

fn living(numbers: std::ops::Range<u64>, rate: f64) -> Filter {
    base(numbers, rate).into_overlay(rate).unwrap()
}

fn found(filter: &Filter, digests: &[Digest]) -> Vec<bool> {
    let mut found = Vec::new();
    filter.contains_digests(digests, &mut found);
    for (digest, found) in digests.iter().zip(&found) {
        assert_eq!(filter.contains_digest(*digest), *found, "one by one it is another answer");
    }
    found
}

fn all(answers: &[bool]) -> bool {
    answers.iter().all(|answer| *answer)
}

#[test]
fn members_are_found_and_removed_keys_denied_whatever_was_done() {
    const UNIVERSE: u64 = 6000;
    let mut list = living(0..3000, 0.01);
    let mut members: HashSet<u64> = (0..3000).collect();
    for step in 0..20_000 {
        let number = mix(step) % UNIVERSE;
        if mix(step ^ 1 << 50).is_multiple_of(2) {
            let claimed = list.contains_digest(digest(number));
            assert_eq!(list.insert_digest(digest(number)).unwrap(), !claimed);
            members.insert(number);
        } else {
            let was_in = members.remove(&number);
            assert!(list.remove_digest(digest(number)).unwrap() || !was_in);
            assert!(!list.contains_digest(digest(number)), "{number} was just removed");
        }
        if step % 4000 == 3999 {
            for list in reopened(&list) {
                check_against(&list, &members, UNIVERSE);
            }
            // And on from a file, whose parts are mapped.
            list = reopened(&list).swap_remove(0).into_overlay(0.01).unwrap();
        }
    }
}

/// Members are in; and of the others few are claimed, since of those that were removed none is.
fn check_against(list: &Filter, members: &HashSet<u64>, universe: u64) {
    let answers = found(list, &digests(0..universe));
    let mut claimed = 0;
    for (number, found) in (0..universe).zip(answers) {
        assert!(found || !members.contains(&number), "member {number} is denied");
        claimed += u64::from(found && !members.contains(&number));
    }
    assert!(claimed < universe / 50, "{claimed} of {universe} are claimed");
}

#[test]
fn inserts_in_a_batch_give_the_answers_and_the_list_of_single_ones() {
    let (mut single, mut batch) = (living(0..2000, 0.01), living(0..2000, 0.01));
    for number in 500..900 {
        assert!(single.remove_digest(digest(number)).unwrap());
        assert!(batch.remove_digest(digest(number)).unwrap());
    }
    let keys: Vec<_> = digests(700..3000).into_iter().chain(digests(2500..3500)).collect();
    let new: Vec<bool> = keys.iter().map(|key| single.insert_digest(*key).unwrap()).collect();
    let mut answers = Vec::new();
    batch.insert_digests(&keys, &mut answers).unwrap();
    assert_eq!(answers, new);
    assert!(all(&new[..200]) && !new[200..1300].iter().any(|new| *new), "back, and in before");
    assert!(single == batch);
    assert_eq!(single.inserted(), batch.inserted());
    assert!(file_of(&single) == file_of(&batch));
}

/// Five deviations of the binomial above: what chance does in one test of a million.
#[test]
fn rates_add_up_to_the_promise_and_no_more() {
    let foreign = digests(100_000_000..104_000_000);
    for rate in [0.02, 0.001, 1e-4] {
        let base = base(0..100_000, rate);
        let base_rate = base.rate();
        let mut list = base.into_overlay(rate).unwrap();
        list.insert_digests(&digests(200_000..220_000), &mut Vec::new()).unwrap();
        assert!(all(&found(&list, &digests(0..100_000))));
        assert!(all(&found(&list, &digests(200_000..220_000))));
        assert!(list.rate() > base_rate && list.rate() <= rate, "{} of {rate}", list.rate());
        let mut answers = Vec::new();
        list.contains_digests(&foreign, &mut answers);
        let claimed = answers.iter().filter(|found| **found).count() as f64;
        let expected = list.rate() * foreign.len() as f64;
        assert!(
            (claimed - expected).abs() <= 5.0 * expected.sqrt() + 0.02 * expected,
            "{claimed} claimed, {expected:.0} expected at {rate}"
        );
    }
}

#[test]
fn a_base_that_was_planned_for_all_of_the_rate_says_so() {
    // Fingerprints of 7 bits, which is all that the rate allows.
    let rate = 2f64.powi(-7);
    let plan = Plan::builder(Kind::Ribbon).items(1000).rate(rate).build().unwrap();
    let base = Filter::build(plan, Hasher::default(), &digests(0..1000)).unwrap();
    let mut list = base.into_overlay(rate).unwrap();
    list.insert_digests(&digests(5000..6000), &mut Vec::new()).unwrap();
    assert!(list.rate() > rate && list.rate() <= 1.1 * rate, "{} of {rate}", list.rate());
}

#[test]
fn what_is_denied_is_no_others_loss() {
    let mut list = living(0..5000, 0.1);
    let foreign: Vec<Digest> =
        digests(10_000..20_000).into_iter().filter(|key| list.contains_digest(*key)).collect();
    assert!(foreign.len() > 300, "{} are claimed by accident", foreign.len());
    for key in &foreign {
        assert!(list.remove_digest(*key).unwrap());
        assert!(!list.remove_digest(*key).unwrap(), "a second time there is nothing to remove");
    }
    for list in reopened(&list) {
        assert!(!found(&list, &foreign).contains(&true));
        assert!(all(&found(&list, &digests(0..5000))));
        assert_eq!(list.as_overlay().unwrap().excluded(), foreign.len() as u64);
    }
}

#[test]
fn only_what_was_removed_counts_as_gone() {
    let mut list = living(0..100, 0.1);
    let foreign = digests(10_000..20_000);
    let denied = list.exclude_digests(&foreign).unwrap();
    assert!(denied > 100, "{denied} of 10,000 are claimed by accident: more than there are keys");
    assert_eq!(list.exclude_digests(&foreign).unwrap(), 0, "all of them are denied already");
    assert_eq!(list.remove_digests(&digests(0..10)).unwrap(), 10);
    assert_eq!(list.remove_digests(&[digest(20), digest(0), digest(20)]).unwrap(), 1);
    for list in reopened(&list) {
        assert!(!found(&list, &foreign).contains(&true));
        assert!(all(&found(&list, &digests(21..100))));
        assert_eq!(list.as_overlay().unwrap().excluded(), denied + 11);
        assert_eq!((list.inserted(), list.estimated_items().items), (89, 89.0));
        let shared = list.into_shared().unwrap();
        assert_eq!((shared.inserted(), shared.estimated_items().items), (89, 89.0));
    }
}

#[test]
fn keys_are_denied_by_an_open_list_only_and_removed_in_batches_by_others_too() {
    let mut counting =
        Filter::new(Plan::builder(Kind::Counting).items(100).build().unwrap()).unwrap();
    counting.insert_digests(&digests(0..10), &mut Vec::new()).unwrap();
    assert_eq!(counting.remove_digests(&digests(0..10)).unwrap(), 10);
    assert_eq!((counting.inserted(), counting.occupied()), (0, 0));
    for mut filter in [counting, base(0..10, 0.1)] {
        let text = filter.exclude_digests(&digests(0..10)).unwrap_err().to_string();
        assert!(text.contains("Filter::into_overlay"), "{text}");
    }
    let mut list = living(0..10, 0.1);
    assert!(list.remove_digest(digest(0)).unwrap());
    let mut closed = reopened(&list).swap_remove(0);
    assert!(closed.exclude_digests(&digests(0..10)).is_err());
    assert!(closed.remove_digests(&digests(0..10)).is_err());
    assert!(all(&found(&closed, &digests(1..10))));
}

#[test]
fn what_is_mapped_to_read_says_so_until_it_takes_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list.ib");
    let base = base(0..1000, 1e-6);
    let mut changed = base.clone().into_overlay(1e-6).unwrap();
    assert!(changed.insert("new").unwrap() && changed.remove_digest(digest(1)).unwrap());
    for list in [base, changed] {
        assert!(!list.is_read_only());
        list.save(&path).unwrap();
        let bytes = file_of(&list);
        assert!(Filter::view(&bytes).unwrap().is_read_only());
        assert!(!Filter::read_from(&bytes[..]).unwrap().is_read_only());
        assert!(!OpenOptions::new().writable(true).open(&path).unwrap().is_read_only());
        let opened = Filter::open(&path).unwrap();
        assert!(opened.is_read_only() && !opened.clone().is_read_only());
        // Threads share what is mapped: it takes no inserts, so that a copy would be for nothing.
        let shared = Filter::open(&path).unwrap().into_shared().unwrap();
        assert!(shared.into_exclusive().is_read_only());
        let mut open = opened.into_overlay(1e-6).unwrap();
        assert!(!open.is_read_only());
        assert!(open.insert("newer").unwrap() && open.contains("newer"));
    }
}

#[test]
fn a_mapped_list_answers_alike_however_its_pages_come() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list.ib");
    let mut list = living(0..50_000, 0.001);
    list.insert_digests(&digests(60_000..61_000), &mut Vec::new()).unwrap();
    assert_eq!(list.remove_digests(&digests(0..500)).unwrap(), 500);
    list.save(&path).unwrap();
    // In no order.
    let keys: Vec<Digest> = (0..70_000).map(|number| digest(mix(number) % 70_000)).collect();
    let expected = found(&list, &keys);
    for paging in [Paging::OnDemand, Paging::Sampled, Paging::Ahead] {
        let mut opened = Filter::open(&path).unwrap();
        opened.set_paging(paging);
        assert!(found(&opened, &keys) == expected, "{paging:?}");
        let mut swept = Vec::new();
        opened.sweep_digests(&keys, &mut swept);
        assert!(swept == expected, "{paging:?}");
        // It goes on as before, also when it takes changes.
        assert!(found(&opened, &keys) == expected, "{paging:?}");
        let mut open = opened.into_overlay(0.001).unwrap();
        open.set_paging(paging);
        assert!(found(&open, &keys) == expected, "{paging:?}");
    }
}

#[test]
fn a_key_that_comes_back_is_in_and_denied_no_more() {
    let mut list = living(0..100, 1e-6);
    assert!(list.insert("new").unwrap());
    for (key, part) in [(digest(7), "base"), (list.digest("new"), "added")] {
        assert!(list.remove_digest(key).unwrap(), "{part}");
        assert!(!list.contains_digest(key), "{part}");
        assert!(list.insert_digest(key).unwrap(), "{part}: it was denied, so it is new");
        assert!(!list.insert_digest(key).unwrap(), "{part}");
        assert!(list.contains_digest(key), "{part}");
    }
    let parts = list.as_overlay().unwrap();
    assert_eq!((parts.added(), parts.excluded()), (1, 0));
    assert_eq!((list.inserted(), list.occupied()), (101, 100));
}

#[test]
fn a_list_without_changes_is_its_base_to_the_byte() {
    let plan = Plan::builder(Kind::Ribbon).items(100).rate(0.01).build().unwrap();
    let base = Filter::build(plan, Hasher::default(), &digests(0..100)).unwrap();
    let mut list = base.clone().into_overlay(0.01).unwrap();
    let same = |list: &Filter, base: &Filter| {
        let (one_way, other_way) = (list == base, base == list);
        assert_eq!(one_way, other_way);
        one_way
    };
    assert!(same(&list, &base));
    assert!(file_of(&list) == file_of(&base));
    // What changes and changes back leaves nothing behind.
    assert!(list.remove_digest(digest(1)).unwrap() && !same(&list, &base));
    assert!(list.insert_digest(digest(1)).unwrap() && same(&list, &base));
    assert!(list.insert("new").unwrap() && !same(&list, &base));
    assert!(!same(&list, &base.into_overlay(0.01).unwrap()));
}

#[test]
fn changes_are_counted_and_shown() {
    let mut list = living(0..1000, 1e-4);
    list.insert_digests(&digests(5000..5100), &mut Vec::new()).unwrap();
    (0..30).for_each(|number| assert!(list.remove_digest(digest(number)).unwrap()));
    for list in reopened(&list) {
        let parts = list.as_overlay().unwrap();
        assert_eq!((parts.added(), parts.excluded(), list.occupied()), (100, 30, 1000));
        assert_eq!(list.inserted(), 1070);
        let estimate = list.estimated_items();
        assert!((estimate.items - 1070.0).abs() <= 3.0 * estimate.error, "{estimate:?}");
        let details = list.details();
        let of = |name| details.iter().find(|(shown, _)| *shown == name).map(|(_, value)| value);
        assert!(of("added").unwrap().starts_with("100 keys, in "), "{details:?}");
        assert_eq!(of("excluded").unwrap(), "30 keys");
        assert_eq!(list.plan().rate(), 1e-4);
        assert!(list.bytes() > 30 * 16 + base(0..1000, 1e-4).bytes());
    }
    assert!(base(0..10, 0.1).as_overlay().is_none());
}

#[test]
fn only_a_list_that_was_opened_for_it_takes_changes() {
    let mut list = living(0..100, 0.01);
    list.insert("new").unwrap();
    for mut closed in reopened(&list).into_iter().take(5) {
        for refused in [closed.insert("newer"), closed.remove("new")] {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("inbloom build --base"), "{text}");
        }
        assert!(closed.insert_many(&["newer"], &mut Vec::new()).is_err());
        assert!(closed.clear().is_err() && closed.merge(&list).is_err());
        assert!(closed.contains("new") && !closed.contains("newer"));
        let mut open = closed.into_overlay(0.01).unwrap();
        assert!(open.insert("newer").unwrap() && open.contains("newer"));
        assert!(open.remove("new").unwrap() && !open.contains("new"));
        assert!(open.clear().is_err() && open.merge(&list).is_err());
        assert!(open.set_auto_clear(Some(0.5)).is_err());
    }
}

#[test]
fn what_is_no_static_filter_or_no_promise_is_refused() {
    for kind in [Kind::Blocked, Kind::Cuckoo, Kind::Scalable] {
        let filter =
            Filter::new(Plan::builder(kind).items(10).rate(0.01).build().unwrap()).unwrap();
        let text = filter.into_overlay(0.01).unwrap_err().to_string();
        assert!(text.contains("insert into it"), "{text}");
    }
    for promise in [0.0, -1.0, 0.005, 1.0, 2.0, f64::NAN, f64::INFINITY] {
        let error = base(0..10, 0.01).into_overlay(promise).unwrap_err();
        assert!(matches!(error, Error::Parameter { name: "rate", .. }), "{error}");
    }
}

#[test]
fn the_least_rate_of_a_ribbon_takes_additions_too() {
    let plan = Plan::builder(Kind::Ribbon).items(100).rate(2.4e-10).build().unwrap();
    let base = Filter::build(plan, Hasher::default(), &digests(0..100)).unwrap();
    let mut list = base.into_overlay(2.4e-10).unwrap();
    list.insert_digests(&digests(1000..3000), &mut Vec::new()).unwrap();
    assert!(list.rate() <= 1.1 * 2.4e-10, "{}", list.rate());
    assert!(all(&found(&list, &digests(1000..3000))));
}

#[test]
fn an_empty_base_becomes_a_list_of_what_is_added() {
    let mut list = living(0..0, 0.01);
    assert!(!list.remove_digest(digest(1)).unwrap());
    list.insert_digests(&digests(0..1000), &mut Vec::new()).unwrap();
    assert!(list.remove_digest(digest(1)).unwrap());
    for list in reopened(&list) {
        assert!(all(&found(&list, &digests(2..1000))) && !list.contains_digest(digest(1)));
    }
}

#[test]
fn threads_may_share_a_list_and_change_it() {
    let list = living(0..1000, 1e-4);
    let shared = list.into_shared().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let shared = &shared;
            scope.spawn(move || {
                for number in 0..250 {
                    shared.insert_digest(digest(10_000 + thread * 250 + number)).unwrap();
                    assert!(shared.remove_digest(digest(thread * 250 + number)).unwrap());
                }
            });
        }
    });
    let list = shared.into_exclusive();
    assert!(all(&found(&list, &digests(10_000..11_000))));
    assert!(!found(&list, &digests(0..1000)).contains(&true));
}

#[test]
fn a_keyed_list_is_read_with_its_key_and_verified_without() {
    let hasher = Hasher::sip13(KEY);
    let plan = Plan::builder(Kind::Ribbon).items(3).rate(1e-6).build().unwrap();
    let keys: Vec<_> = ["alice", "bob"].iter().map(|key| hasher.digest(key)).collect();
    let mut list = Filter::build(plan, hasher, &keys).unwrap().into_overlay(1e-5).unwrap();
    assert!(list.insert("carol").unwrap() && list.remove("alice").unwrap());
    let bytes = file_of(&list);
    format::verify(&bytes).unwrap();
    assert!(matches!(Filter::view(&bytes), Err(Error::Key { .. })));
    assert!(matches!(Filter::read_from(&bytes[..]), Err(Error::Key { .. })));
    for list in [
        OpenOptions::new().secret(&KEY).read_from(&bytes[..]),
        OpenOptions::new().secret(&KEY).view(&bytes).map(|view| view.clone()),
    ] {
        let list = list.unwrap();
        assert!(list.contains("carol") && list.contains("bob") && !list.contains("alice"));
    }
}

#[test]
fn keys_rebuild_a_list_into_one_filter() {
    let mut list = living(0..2000, 0.01);
    list.insert_digests(&digests(5000..5500), &mut Vec::new()).unwrap();
    (0..100).for_each(|number| assert!(list.remove_digest(digest(number)).unwrap()));
    let keys = || (100..2000_u64).chain(5000..5500).map(u64::to_le_bytes);
    let plan = Plan::builder(Kind::Ribbon).items(2400).rate(0.01).build().unwrap();
    let rebuilt = list.rebuild(plan, keys()).unwrap();
    assert!(keys().all(|key| rebuilt.contains(key)) && rebuilt.bytes() < list.bytes());
    // A key that was removed is none of them.
    assert!(list.rebuild(plan, [5_u64.to_le_bytes()]).is_err());
}

// ----------------------------------------------------------------------------------- strangers

/// The place of an entry of the section table.
fn entry(bytes: &[u8], tag: &[u8; 4]) -> usize {
    let entries = (0..u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize)
        .map(|index| 128 + 32 * index);
    entries.clone().find(|at| &bytes[*at..at + 4] == tag).expect("the section is there")
}

fn get(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Makes the header's checksum right, as a liar would.
fn seal_header(bytes: &mut [u8]) {
    let end = 128 + 32 * u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    put(bytes, 120, 0);
    let checksum = xxh3_64(&bytes[..end]);
    put(bytes, 120, checksum);
}

fn seal(bytes: &mut [u8]) {
    let sections = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    for at in (0..sections).map(|index| 128 + 32 * index) {
        let (offset, length) = (get(bytes, at + 8), get(bytes, at + 16));
        let checksum = xxh3_64(&bytes[offset..][..length]);
        put(bytes, at + 24, checksum);
    }
    seal_header(bytes);
}

/// A tag, and what is in the section.
type Section<'a> = (&'a [u8; 4], &'a [u8]);

/// A file with these sections before its payload.
fn with_sections(base: &Filter, more: &[Section<'_>]) -> Vec<u8> {
    let old = file_of(base);
    assert_eq!(old[12], 1, "the payload and no more");
    let payload = &old[get(&old, 136)..];
    let mut bytes = old[..128].to_vec();
    bytes[12] += more.len() as u8;
    let mut contents = more.to_vec();
    contents.push((b"BITS", payload));
    bytes.resize(128 + 32 * contents.len(), 0);
    for (index, (tag, content)) in contents.iter().enumerate() {
        let at = 128 + 32 * index;
        bytes[at..at + 4].copy_from_slice(*tag);
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        let offset = bytes.len() as u64;
        put(&mut bytes, at + 8, offset);
        put(&mut bytes, at + 16, content.len() as u64);
        bytes.extend_from_slice(content);
    }
    let length = bytes.len() as u64;
    put(&mut bytes, 16, length);
    seal(&mut bytes);
    bytes
}

fn assert_refused(bytes: &[u8], part: &str, context: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list.ib");
    std::fs::write(&path, bytes).unwrap();
    let ways = [
        Filter::read_from(bytes).map(drop),
        Filter::view(bytes).map(drop),
        format::verify(bytes),
        Filter::open(&path).map(drop),
        OpenOptions::new().writable(true).open(&path).map(drop),
    ];
    for (way, result) in ways.into_iter().enumerate() {
        match result {
            Err(error @ (Error::Format { .. } | Error::NotAFilter { .. })) => {
                let text = error.to_string();
                assert!(text.contains(part), "{context}, way {way}: no \"{part}\" in \"{text}\"");
            }
            other => panic!("{context}, way {way}: {other:?}"),
        }
    }
}

fn small(kind: Kind, hasher: Hasher) -> Vec<u8> {
    let plan = Plan::builder(kind).items(10).rate(0.01).build().unwrap();
    file_of(&Filter::build(plan, hasher, &[digest(1)]).unwrap())
}

#[test]
fn sections_that_do_not_belong_together_are_refused() {
    let base = base(0..10, 0.01);
    let more = small(Kind::Scalable, Hasher::default());
    let both = with_sections(&base, &[(b"GONE", &[0; 16]), (b"MORE", &more)]);
    format::verify(&both).expect("two sections that are right");
    assert!(Filter::view(&both).unwrap().contains_digest(digest(1)));

    let seeded = small(Kind::Scalable, Hasher::xxh3(7));
    let blocked = small(Kind::Blocked, Hasher::default());
    let nested = with_sections(&base, &[(b"MORE", &more)]);
    let lies: [(&str, &[Section<'_>], &str); 10] = [
        (
            "another kind",
            &[(b"MORE", &blocked)],
            "expected a whole one of kind scalable, got blocked",
        ),
        (
            "a ribbon within",
            &[(b"MORE", &nested)],
            "expected a whole one of kind scalable, got ribbon",
        ),
        (
            "another seed",
            &[(b"MORE", &seeded)],
            "filter in section MORE: expected hash 1 with seed",
        ),
        ("no filter", &[(b"MORE", &[7; 64])], "not an inbloom file"),
        ("nothing", &[(b"MORE", &[])], "(it is empty)"),
        ("half a filter", &[(b"MORE", &more[..more.len() - 64])], "length of the file"),
        ("no words", &[(b"MORE", &more[..more.len() - 3])], "length of section MORE"),
        (
            "half a digest",
            &[(b"GONE", &[0; 24])],
            "length of section GONE: expected a multiple of 16",
        ),
        ("two lists", &[(b"GONE", &[0; 16]), (b"GONE", &[0; 16])], "expected one section GONE"),
        ("two filters", &[(b"MORE", &more), (b"MORE", &more)], "expected one section MORE"),
    ];
    for (name, sections, part) in lies {
        assert_refused(&with_sections(&base, sections), part, name);
    }
}

#[test]
fn other_kinds_have_no_such_sections() {
    for (kind, tag, expected) in [
        (Kind::Counting, b"MORE", "BITS, note or norm in kind counting"),
        (Kind::Counting, b"GONE", "BITS, note or norm in kind counting"),
        (Kind::Cuckoo, b"MORE", "BITS, note or norm in kind cuckoo"),
        // Those that can have a growing part deny nothing either.
        (Kind::Blocked, b"GONE", "BITS, MORE, note or norm in kind blocked"),
        (Kind::Classic, b"GONE", "BITS, MORE, note or norm in kind classic"),
    ] {
        let filter = Filter::new(Plan::builder(kind).items(10).build().unwrap()).unwrap();
        let bytes = with_sections(&filter, &[(tag, &[0; 16])]);
        assert_refused(&bytes, &format!("section: expected {expected}"), kind.name());
    }
}

#[test]
fn a_growing_part_is_a_whole_scalable_filter_of_the_same_hash() {
    let filter = Filter::new(Plan::builder(Kind::Blocked).items(10).build().unwrap()).unwrap();
    let nested = small(Kind::Scalable, Hasher::default());
    let nested = with_sections(&filter, &[(b"MORE", &nested)]);
    for (more, expected) in [
        (small(Kind::Blocked, Hasher::default()), "a whole one of kind scalable, got blocked"),
        (small(Kind::Scalable, Hasher::xxh3(1)), "hash 1 with seed 0000000000000000, got hash 1"),
        (nested, "a whole one of kind scalable, got blocked"),
        (vec![0; 16], "not an inbloom file"),
    ] {
        let bytes = with_sections(&filter, &[(b"MORE", &more)]);
        assert_refused(&bytes, expected, expected);
    }
}

/// A file in a file in a file, deeper than a stack would bear.
#[test]
fn files_within_files_are_not_followed() {
    let base = base(0..10, 0.01);
    let mut bytes = small(Kind::Scalable, Hasher::default());
    for _ in 0..2000 {
        bytes = with_sections(&base, &[(b"MORE", &bytes)]);
    }
    assert_refused(&bytes, "expected a whole one of kind scalable, got ribbon", "nested");
}

/// Where it is not verified, a list in disorder is of no use; nothing worse.
#[test]
fn digests_in_disorder_are_found_by_those_who_look_at_all() {
    let base = base(0..100, 0.01);
    let listed = |numbers: &[u64]| -> Vec<u8> {
        let words =
            numbers.iter().flat_map(|number| [digest(*number).place, digest(*number).print]);
        words.flat_map(u64::to_le_bytes).collect()
    };
    let mut sorted: Vec<u64> = (0..50).collect();
    sorted.sort_by_key(|number| digest(*number).place);
    let right = with_sections(&base, &[(b"GONE", &listed(&sorted))]);
    format::verify(&right).unwrap();
    assert!(!Filter::view(&right).unwrap().contains_digest(digest(5)));

    let reversed: Vec<u64> = sorted.iter().rev().copied().collect();
    let twice: Vec<u64> = sorted.iter().flat_map(|number| [*number; 2]).collect();
    for numbers in [reversed, twice, vec![1, 0, 2, 3], vec![0, 0]] {
        let bytes = with_sections(&base, &[(b"GONE", &listed(&numbers))]);
        for refused in [format::verify(&bytes), Filter::read_from(&bytes[..]).map(drop)] {
            let text = refused.unwrap_err().to_string();
            assert!(
                text.starts_with("digests in section GONE: expected ascending order"),
                "{text}"
            );
        }
        let view = Filter::view(&bytes).unwrap();
        assert_eq!(found(&view, &digests(0..100)).len(), 100);
        // Whoever changes it has it in order.
        let mut list = view.clone().into_overlay(0.01).unwrap();
        assert!(!list.contains_digest(digest(numbers[0])));
        assert!(list.remove_digest(digest(99)).unwrap());
        format::verify(&file_of(&list)).unwrap();
    }
}

#[test]
fn sections_in_odd_places_are_queried_where_they_lie() {
    let mut list = living(0..100, 0.01);
    list.insert_digests(&digests(1000..1100), &mut Vec::new()).unwrap();
    (0..20).for_each(|number| assert!(list.remove_digest(digest(number)).unwrap()));
    let old = file_of(&list);
    let part = |tag| {
        let at = entry(&old, tag);
        old[get(&old, at + 8)..][..get(&old, at + 16)].to_vec()
    };
    // BITS first, a text between, and gaps of all sorts.
    for gap in [1, 3, 8, 61] {
        let mut bytes = old[..128].to_vec();
        let contents = [
            (b"BITS", part(b"BITS")),
            (b"note", b"n".to_vec()),
            (b"GONE", part(b"GONE")),
            (b"MORE", part(b"MORE")),
        ];
        bytes[12] = 4;
        bytes.resize(128 + 32 * 4, 0);
        for (index, (tag, content)) in contents.iter().enumerate() {
            let at = 128 + 32 * index;
            bytes[at..at + 4].copy_from_slice(*tag);
            bytes.resize(bytes.len() + gap, 0);
            let offset = bytes.len() as u64;
            put(&mut bytes, at + 8, offset);
            put(&mut bytes, at + 16, content.len() as u64);
            bytes.extend(content);
        }
        let length = bytes.len() as u64;
        put(&mut bytes, 16, length);
        seal(&mut bytes);
        format::verify(&bytes).unwrap();
        let read = Filter::read_from(&bytes[..]).unwrap();
        let view = Filter::view(&bytes).unwrap();
        assert!(*view == list && read == list && read.note() == "n", "gaps of {gap}");
        assert_eq!(found(&view, &digests(0..1100)), found(&list, &digests(0..1100)));
        for list in reopened(&view) {
            assert!(list == *view);
        }
    }
}

/// Sections that claim a terabyte take no memory for what has not come.
#[test]
fn a_claimed_terabyte_is_refused_at_once() {
    let mut list = living(0..100, 0.01);
    list.insert_digests(&digests(1000..1100), &mut Vec::new()).unwrap();
    assert!(list.remove_digest(digest(1)).unwrap());
    let whole = file_of(&list);
    for tag in [b"GONE", b"MORE"] {
        let mut bytes = whole.clone();
        let at = entry(&bytes, tag);
        let more = (1_u64 << 40) - get(&bytes, at + 16) as u64;
        put(&mut bytes, at + 16, 1 << 40);
        let sections = usize::from(bytes[12]);
        for later in (at + 32..128 + 32 * sections).step_by(32) {
            let offset = get(&bytes, later + 8) as u64 + more;
            put(&mut bytes, later + 8, offset);
        }
        let length = get(&bytes, 16) as u64 + more;
        put(&mut bytes, 16, length);
        seal_header(&mut bytes);
        assert!(matches!(Filter::view(&bytes), Err(Error::Format { .. })));
        let start = std::time::Instant::now();
        let error = Filter::read_from(&bytes[..]).unwrap_err();
        assert!(matches!(error, Error::Format { .. }), "{error}");
        assert!(start.elapsed().as_secs() < 2, "{:?}", start.elapsed());
    }
}
