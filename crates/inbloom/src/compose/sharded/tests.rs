use crate::digest::{Digest, Hasher, SecretKey};
use crate::error::{Error, Result};
use crate::filter::{Content, Filter};
use crate::kind::Kind;
use crate::membership::Membership;
use crate::plan::Plan;
use crate::{OpenOptions, file, format};

fn keys(range: std::ops::Range<u64>) -> Vec<[u8; 8]> {
    range.map(u64::to_le_bytes).collect()
}

fn plan(kind: Kind, items: u64, rate: f64) -> Plan {
    match kind {
        Kind::Window => Plan::builder(kind).last(items).rate(rate),
        _ => Plan::builder(kind).items(items).rate(rate),
    }
    .build()
    .unwrap()
}

const KINDS: [Kind; 6] =
    [Kind::Classic, Kind::Blocked, Kind::Counting, Kind::Cuckoo, Kind::Window, Kind::Scalable];

fn full(plan: Plan, shards: u32, seed: u64) -> Filter {
    let hasher = Hasher::xxh3(seed);
    build(plan, shards, hasher, &keys(0..plan.items()), 1)
}

fn build(plan: Plan, shards: u32, hasher: Hasher, keys: &[[u8; 8]], threads: usize) -> Filter {
    let mut sharded = Filter::sharded_with_hasher(plan, shards, hasher).unwrap();
    sharded.insert_many_parallel(keys, threads).unwrap();
    sharded
}

fn payload(filter: &Filter) -> Vec<u8> {
    filter.content.measured().payload().into_owned()
}

fn written(sharded: &Filter) -> Vec<u8> {
    let mut bytes = Vec::new();
    sharded.write_to(&mut bytes).unwrap();
    bytes
}

#[test]
fn shards_of_blocks_are_ranges_of_the_whole() {
    let plans = [
        Plan::builder(Kind::Blocked).items(20_000).rate(0.01),
        Plan::builder(Kind::Blocked).items(20_000).rate(1e-4).lines(1),
        Plan::builder(Kind::Blocked).items(5000).rate(1e-6),
        Plan::builder(Kind::Blocked).items(1_200_000).rate(1e-8).lines(2),
        Plan::builder(Kind::Blocked).items(10).rate(0.01),
        Plan::builder(Kind::Counting).items(20_000).rate(0.01),
    ];
    let mut two_lines = 0;
    for plan in plans.map(|plan| plan.build().unwrap()) {
        let added = keys(0..plan.items().min(20_000));
        for shards in [1, 2, 7, 16] {
            let sharded = build(plan, shards, Hasher::default(), &added, 2);
            two_lines += u32::from(shards > 1 && sharded.plan().lines() == 2);
            let mut whole = Filter::new(*sharded.plan()).unwrap();
            whole.insert_many(&added, &mut Vec::new()).unwrap();
            let bytes: Vec<u8> = sharded.shards().iter().flat_map(payload).collect();
            assert!(bytes == payload(&whole), "{plan:?} in {shards} shards");
            assert_eq!(sharded.inserted(), whole.inserted());

            let cut = whole.cut_into(shards).unwrap();
            assert!(cut == sharded, "{plan:?} cut into {shards}");
            assert_eq!(cut.occupied(), whole.occupied());
            assert_eq!(cut.inserted(), whole.inserted());
            let joined = sharded.into_whole().unwrap();
            assert!(joined == whole);
            assert_eq!(
                (joined.occupied(), joined.inserted()),
                (whole.occupied(), whole.inserted())
            );
            assert_eq!(joined.plan(), whole.plan());
        }
    }
    assert!(two_lines > 0, "large plans keep their two lines");
}

/// Also that the shard and the block are independent: if both came from the same bits, the rate
/// would be near 1 from 16 shards on. The bound is four deviations of the mean over filters of
/// 20 seeds.
#[test]
fn shards_keep_the_rate() {
    let (seeds, probes) = (20, 10_000);
    for kind in KINDS {
        for (shards, items) in
            [(1, 100), (3, 100), (16, 100), (1, 10_000), (3, 10_000), (16, 10_000)]
        {
            let plan = plan(kind, items, 0.01);
            let rates: Vec<f64> = (0..seeds)
                .map(|seed| {
                    let sharded = full(plan, shards, seed);
                    let mut found = Vec::new();
                    sharded.contains_many(&keys(1 << 40..(1 << 40) + probes), &mut found);
                    let hits = found.iter().filter(|found| **found).count();
                    hits as f64 / probes as f64
                })
                .collect();
            let mean = rates.iter().sum::<f64>() / seeds as f64;
            let variance =
                rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (seeds - 1) as f64;
            let bound = 0.01 + 4.0 * (variance / seeds as f64).sqrt();
            assert!(mean <= bound, "{kind}, {items} in {shards}: {mean} above {bound}");
            // A hundred keys in 16 blocks are hardly ever false positives, nor are those of a
            // filter that keeps its rate for when it has grown.
            let spends = items > 100 && kind != Kind::Scalable;
            assert!(mean > 0.001 || !spends, "{kind}, {items} in {shards}: {mean}");
        }
    }
}

#[test]
fn shards_deny_no_member_and_answer_alike_in_every_way() {
    for kind in KINDS {
        for (shards, items) in [(1, 1000), (3, 10), (16, 20_000), (40, 100)] {
            let plan = plan(kind, items, 0.001);
            let (added, asked) = (keys(0..items), keys(0..items * 2));
            let mut one_by_one = Filter::sharded(plan, shards).unwrap();
            let singly: Vec<bool> =
                added.iter().map(|key| one_by_one.insert(key).unwrap()).collect();
            let mut at_once = Filter::sharded(plan, shards).unwrap();
            let mut new = Vec::new();
            at_once.insert_many(&added, &mut new).unwrap();
            assert_eq!(new, singly, "{kind}");
            assert!(one_by_one == at_once);
            let mut as_members = Filter::sharded(plan, shards).unwrap();
            let digests: Vec<Digest> = added.iter().map(|key| at_once.digest(key)).collect();
            for run in digests.chunks(100) {
                as_members.insert_run(run, &digests, &mut Vec::new()).unwrap();
            }
            assert!(as_members == at_once);

            let singly: Vec<bool> = asked.iter().map(|key| at_once.contains(key)).collect();
            assert!(singly[..items as usize].iter().all(|found| *found), "{kind}");
            let mut found = Vec::new();
            at_once.contains_many(&asked, &mut found);
            assert_eq!(found, singly, "{kind}");
            let mut run = vec![false; digests.len()];
            at_once.contains_run(&digests, &[], &mut run);
            assert!(run.iter().all(|found| *found));
            assert!(at_once.rate() <= 0.002 && at_once.fill() > 0.0);
            let estimate = at_once.estimated_items();
            let off = (estimate.items - items as f64).abs();
            assert!(off < 6.0 * estimate.error + 0.02 * items as f64 + 2.0, "{kind}: {off}");
            at_once.clear().unwrap();
            assert_eq!((at_once.occupied(), at_once.inserted()), (0, 0));
        }
    }
}

#[test]
fn a_parallel_build_is_the_same_on_any_number_of_threads() {
    let added = keys(0..30_000);
    for kind in KINDS {
        let plan = plan(kind, 30_000, 0.01);
        let build = |threads| build(plan, 7, Hasher::xxh3(5), &added, threads);
        let alone = written(&build(1));
        for threads in [2, 5, 50, 0] {
            assert!(written(&build(threads)) == alone, "{kind} on {threads}");
        }
        let mut in_order = Filter::sharded_with_hasher(plan, 7, Hasher::xxh3(5)).unwrap();
        in_order.insert_many(&added, &mut Vec::new()).unwrap();
        assert!(written(&in_order) == alone, "{kind} in order");
        let nothing: [&str; 0] = [];
        in_order.insert_many_parallel(&nothing, 3).unwrap();
    }
}

#[test]
fn a_full_shard_is_reported_the_same_on_any_number_of_threads() {
    let plan = plan(Kind::Cuckoo, 1000, 0.01);
    let states = [1, 2, 5].map(|threads| {
        let mut sharded = Filter::sharded(plan, 4).unwrap();
        let error = sharded.insert_many_parallel(&keys(0..10_000), threads).unwrap_err();
        assert!(matches!(error, Error::Full { .. }));
        (written(&sharded), error.to_string())
    });
    assert!(states.iter().all(|state| *state == states[0]));
    let mut sharded = Filter::sharded(plan, 4).unwrap();
    let mut new = Vec::new();
    let all = keys(0..10_000);
    assert!(sharded.insert_many(&all, &mut new).is_err());
    assert!(sharded.insert(all[new.len()]).is_err(), "the answers end where it was refused");
    assert!(all[..new.len()].iter().all(|key| sharded.contains(key)));
}

#[test]
fn a_shard_refuses_keys_of_others_and_is_left_as_it_was() {
    for kind in KINDS {
        let sharded = full(plan(kind, 1000, 0.01), 5, 0);
        let (mine, other) = (keys(0..1000), keys(1000..1200));
        for (at, shard) in (0..).zip(sharded.shards()) {
            let mut changed = shard.clone();
            let foreign = other.iter().find(|key| sharded.shard_of(key) != at).unwrap();
            let key_shard = sharded.shard_of(foreign);
            let error = changed.insert(foreign).unwrap_err();
            let text = format!("belongs to shard {key_shard} of 5, but this is shard {at}");
            assert!(error.to_string().contains(&text), "{error}");
            let refused = |result: Result<bool>| matches!(result, Err(Error::OtherShard { .. }));
            assert!(refused(changed.remove(foreign)) || !kind.can_remove());
            assert!(changed.positions(foreign).is_err());
            assert!(!changed.contains(foreign));
            assert_eq!(changed.count(foreign), 0);
            // A batch ends at the first of them.
            let mut new = Vec::new();
            let before = mine.iter().take_while(|key| sharded.shard_of(key) == at).count();
            let result = changed.insert_many(&mine, &mut new);
            assert!(refused(result.map(|()| true)));
            assert_eq!(new.len(), before);
            if before == 0 || !kind.counts() && kind != Kind::Window {
                assert!(changed == *shard, "{kind}");
            }
            let mut found = Vec::new();
            shard.contains_many(&mine, &mut found);
            for (key, found) in mine.iter().zip(found) {
                assert_eq!(found, sharded.shard_of(key) == at);
            }
        }
    }
}

#[test]
fn a_shard_is_written_read_mapped_shared_and_merged_alone() {
    let folder = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let plan = plan(kind, 2000, 0.01);
        let mut here = Filter::sharded(plan, 4).unwrap();
        here.insert_many_parallel(&keys(0..1000), 2).unwrap();
        let mut there = Filter::sharded(plan, 4).unwrap();
        there.insert_many_parallel(&keys(1000..2000), 2).unwrap();
        let path = folder.path().join("shard.ib");
        let merged = here.shards().iter().zip(there.shards()).map(|(here, there)| {
            let mut bytes = Vec::new();
            there.write_to(&mut bytes).unwrap();
            format::verify(&bytes).unwrap();
            let read = Filter::read_from(bytes.as_slice()).unwrap();
            assert!(read == *there && read.plan() == there.plan());
            assert!(Filter::view(&bytes).unwrap().clone() == *there);
            here.save(&path).unwrap();
            let mut mapped = OpenOptions::new().writable(true).open(&path).unwrap();
            mapped.merge(&read).unwrap();
            mapped.into_shared().unwrap().into_exclusive()
        });
        let merged = Filter::from_shards(merged.collect()).unwrap();
        assert!(keys(0..2000).iter().all(|key| merged.contains(key)), "{kind}");
        here.merge(&there).unwrap();
        assert!(here == merged, "{kind}");

        let shard = here.shards()[1].clone().into_shared().unwrap();
        for key in keys(0..100) {
            assert_eq!(shard.contains(key), here.shard_of(key) == 1);
            assert_eq!(shard.insert(key).is_ok(), here.shard_of(key) == 1);
        }
        let error = here.shards()[0].clone().merge(&there.shards()[1]).unwrap_err().to_string();
        assert!(error.contains("shard: 0 of 4 here, 1 of 4 there"), "{error}");
        let other = Filter::sharded(plan, 5).unwrap();
        let error = here.merge(&other).unwrap_err().to_string();
        assert!(error.contains("number of shards: 4 here, 5 there"), "{error}");
    }
}

#[test]
fn shards_make_a_whole_only_if_all_are_there_once() {
    let make = |seed| full(plan(Kind::Classic, 1000, 0.01), 4, seed);
    let sharded = make(1);
    let text = |shards: Vec<Filter>| Filter::from_shards(shards).unwrap_err().to_string();
    let pick = |which: &[usize]| which.iter().map(|at| sharded.shards()[*at].clone()).collect();

    assert!(Filter::from_shards(pick(&[2, 0, 3, 1])).unwrap() == sharded);
    assert!(text(pick(&[])).contains("shards is none"));
    assert!(text(pick(&[3, 1])).contains("of 4 shards, missing: 0, 2"));
    assert!(text(pick(&[3, 1, 0, 2, 1, 1])).contains("of 4 shards, given twice: 1"));
    let both = text(pick(&[3, 3, 0]));
    assert!(
        both.contains("missing: 1, 2; given twice: 3; give each shard from 0 to 3 once"),
        "{both}"
    );

    let mut foreign: Vec<Filter> = pick(&[0, 1, 2]);
    foreign.push(make(2).shards()[3].clone());
    assert!(text(foreign).contains("hash seed: 1 here, 2 there"));
    let mut foreign: Vec<Filter> = pick(&[0, 1, 2]);
    foreign.push(full(plan(Kind::Classic, 5000, 0.01), 4, 1).shards()[3].clone());
    assert!(text(foreign).contains("differ in bits"));
    let mut foreign: Vec<Filter> = pick(&[0, 1, 2]);
    foreign.push(full(plan(Kind::Classic, 1000, 0.01), 5, 1).shards()[3].clone());
    assert!(text(foreign).contains("number of shards: 4 here, 5 there"));
    let whole = Filter::new(plan(Kind::Classic, 1000, 0.01)).unwrap();
    assert!(Filter::from_shards(vec![whole]).is_ok());
    let bitmap = Filter::new(Plan::builder(Kind::Bitmap).universe(9).build().unwrap()).unwrap();
    assert!(Filter::sharded(*bitmap.plan(), 3).is_err());
    assert!(Filter::from_shards(vec![bitmap]).unwrap().shards().len() == 1);
}

#[test]
fn what_is_no_range_of_one_filter_does_not_become_one() {
    let sharded = full(plan(Kind::Cuckoo, 1000, 0.01), 4, 0);
    let text = sharded.into_whole().unwrap_err().to_string();
    assert!(text.contains("cuckoo cannot become one array"), "{text}");
    let classic = Filter::new(plan(Kind::Classic, 1000, 0.01)).unwrap();
    assert!(classic.cut_into(4).is_err());
    let blocked = Filter::new(Plan::exact(Kind::Blocked, 512 * 9, 8).unwrap()).unwrap();
    assert!(blocked.cut_into(3).is_ok());
    let text = blocked.cut_into(4).unwrap_err().to_string();
    assert!(text.contains("a divisor of the filter's 9 blocks"), "{text}");
}

#[test]
fn keys_are_removed_and_counted_through_their_shard() {
    for kind in [Kind::Counting, Kind::Cuckoo] {
        let mut sharded = full(plan(kind, 1000, 1e-6), 6, 3);
        sharded.insert(7u64.to_le_bytes()).unwrap();
        assert_eq!(sharded.count(7u64.to_le_bytes()), 2, "{kind}");
        for key in keys(0..1000) {
            assert!(sharded.remove(key).unwrap());
        }
        assert_eq!(sharded.count(7u64.to_le_bytes()), 1);
        assert!(sharded.remove(7u64.to_le_bytes()).unwrap());
        assert_eq!((sharded.occupied(), sharded.inserted()), (0, 0), "{kind}");
        assert!(!sharded.remove(7u64.to_le_bytes()).unwrap());
    }
    let mut blocked = Filter::sharded(plan(Kind::Blocked, 1000, 0.01), 6).unwrap();
    assert!(blocked.remove("alice").is_err());
    assert!(blocked.advance(5).is_err());
}

#[test]
fn a_window_in_shards_reaches_as_far_back_as_the_whole() {
    let mut sharded = Filter::sharded(plan(Kind::Window, 1000, 1e-4), 8).unwrap();
    assert_eq!(sharded.plan().span(), Some(crate::Span::Items(1000)));
    for (at, key) in keys(0..20_000).into_iter().enumerate() {
        sharded.insert(key).unwrap();
        let oldest = (at as u64).saturating_sub(999);
        assert!(sharded.contains(oldest.to_le_bytes()), "{oldest} at {at}");
    }
    let old = keys(0..16_000).iter().filter(|key| sharded.contains(key)).count();
    assert!(old < 20, "{old} of 16000 long gone are still there");

    let timed = Plan::builder(Kind::Window).window(std::time::Duration::from_secs(4));
    let mut timed = Filter::sharded(timed.items(1000).build().unwrap(), 8).unwrap();
    timed.advance(0).unwrap();
    timed.insert_many(&keys(0..1000), &mut Vec::new()).unwrap();
    timed.advance(4000).unwrap();
    assert!(keys(0..1000).iter().all(|key| timed.contains(key)));
    timed.advance(9000).unwrap();
    assert_eq!(timed.occupied(), 0);
}

#[test]
fn shards_are_written_and_read_as_a_whole() {
    for kind in KINDS {
        for shards in [1, 3] {
            let sharded = full(plan(kind, 500, 0.01), shards, 9);
            let mut bytes = written(&sharded);
            bytes.extend(b"what follows");
            let mut rest = bytes.as_slice();
            let read = Filter::read_shards_from(&mut rest).unwrap();
            assert_eq!(rest, b"what follows");
            assert!(read == sharded);
            assert_eq!(read.plan(), sharded.plan());
        }
    }
    let bytes = written(&full(plan(Kind::Blocked, 500, 0.01), 3, 9));
    let cut = &bytes[..bytes.len() - bytes.len() / 3];
    assert!(Filter::read_shards_from(cut).is_err());
    let key = SecretKey::new([3; 16]);
    let keyed =
        Filter::sharded_with_hasher(plan(Kind::Blocked, 500, 0.01), 3, Hasher::sip13(key)).unwrap();
    assert!(Filter::read_shards_from(written(&keyed).as_slice()).is_err());
    assert!(
        OpenOptions::new().secret(&key).read_shards_from(written(&keyed).as_slice()).unwrap()
            == keyed
    );
}

#[test]
fn shards_in_files_are_opened_together_or_say_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let stem = folder.path().join("seen");
    let text = |stem| Filter::open(stem).unwrap_err().to_string();
    assert!(text(&stem).contains("seen: "), "{}", text(&stem));
    for kind in KINDS {
        let sharded = full(plan(kind, 500, 0.01), 11, 0);
        sharded.save(&stem).unwrap();
        let mut open = Filter::open(&stem).unwrap();
        assert!(open == sharded);
        assert!(matches!(open.insert("alice"), Err(Error::ReadOnly)));
        assert!(matches!(open.insert_many(&["a"; 999], &mut Vec::new()), Err(Error::ReadOnly)));
        assert!(open.insert_many_parallel(&["a"], 2).is_err() && open.clear().is_err());
        let mut open = OpenOptions::new().writable(true).open(&stem).unwrap();
        open.insert("alice").unwrap();
        open.save(&stem).unwrap();
        assert!(Filter::open(&stem).unwrap().contains("alice"));
    }
    assert!(file::shard_path(&stem, 3, 11).ends_with("seen.003-of-011.ib"));
    std::fs::write(folder.path().join("seen.3-of-4.ib"), "somebody else's").unwrap();
    std::fs::remove_file(file::shard_path(&stem, 3, 11)).unwrap();
    assert!(text(&stem).contains("of 11 shards, missing: 3; give "), "{}", text(&stem));
    let other = Filter::sharded(plan(Kind::Blocked, 500, 0.01), 2).unwrap();
    other.save(&stem).unwrap();
    assert!(text(&stem).contains("number of shards: 2 here, 11 there"));
}

/// The time windows and low rates of small shards, where the margin of two deviations is too
/// little.
#[test]
fn small_shards_at_low_rates_keep_them_on_average() {
    for (items, shards, rate) in [(100, 16, 1e-9), (64, 64, 1e-4), (1000, 7, 1e-12)] {
        let sharded: Vec<f64> = (0..200)
            .map(|seed| full(plan(Kind::Classic, items, rate), shards, seed).rate())
            .collect();
        let mean = sharded.iter().sum::<f64>() / sharded.len() as f64;
        // The mean of a heavy tail: most of the time far below, so that twice is a wide bound.
        assert!(mean <= 2.0 * rate, "{items} in {shards}: {mean:e}");
    }
}

/// What a shard holds sees what the pick of the shard leaves of a digest. Given the same, the kind
/// alone answers every question as the shard does.
#[test]
fn a_shard_answers_every_question_as_the_kind_within_it() {
    for kind in KINDS {
        let whole = full(plan(kind, 3000, 0.01), 3, 7);
        let shard = &whole.shards()[1];
        let mut alone = Filter::with_hasher(shard.plan().without_shard(), *shard.hasher()).unwrap();
        let rest = |key: &[u8; 8]| {
            let (at, rest) = shard.digest(key).pick(3);
            (at == 1).then_some(rest)
        };
        for rest in keys(0..3000).iter().filter_map(rest) {
            alone.insert_digest(rest).unwrap();
        }
        assert_eq!(shard.occupied(), alone.occupied(), "{kind}");
        assert_eq!(shard.inserted(), alone.inserted(), "{kind}");
        assert_eq!(shard.fill(), alone.fill(), "{kind}");
        assert_eq!(shard.rate(), alone.rate(), "{kind}");
        assert_eq!(shard.bytes(), alone.bytes(), "{kind}");
        assert_eq!(shard.room(), alone.room(), "{kind}");
        assert_eq!(shard.next_growth(), alone.next_growth(), "{kind}");
        assert_eq!(shard.estimated_items(), alone.estimated_items(), "{kind}");
        assert_eq!(shard.details(), alone.details(), "{kind}");
        assert_eq!(shard.profile(16), alone.profile(16), "{kind}");
        assert_eq!(payload(shard), payload(&alone), "{kind}");
        assert_eq!(shard.is_read_only(), alone.is_read_only(), "{kind}");
        let cells = |filter: &Filter| match &filter.content {
            Content::Blocked(_) => filter.memory(),
            Content::Other(state) => {
                filter.memory() - crate::memory::allocated(size_of_val(&**state) as u64)
            }
        };
        assert_eq!(cells(shard), cells(&alone), "{kind}");
        for key in keys(0..200) {
            let Some(rest) = rest(&key) else { continue };
            assert_eq!(shard.count(key), alone.content.state().count(rest), "{kind}");
        }
    }
}
