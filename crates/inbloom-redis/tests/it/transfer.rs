//! Whole filters between a server and files.

use std::fs;
use std::time::{Duration, SystemTime};

use inbloom::{Filter, Hasher, SecretKey};
use inbloom_redis::{Error, Found, RedisFilter, Spec};
use inbloom_testing::redis::{RedisCluster, Reply};

use crate::support::{connect, plan, server};

#[test]
fn what_is_pushed_is_pulled_to_the_byte() {
    let Some(server) = server() else { return };
    let client = connect(&server.address());
    let folder = tempfile::tempdir().expect("a folder");
    for (name, items, keys, rate) in [
        ("small", 1000, 1000, 0.01),
        ("large", 3_000_000, 50_000, 1e-4),
        ("two lines", 2_000_000, 50_000, 1e-7),
        ("empty", 1, 0, 0.1),
    ] {
        let hasher = Hasher::sip13(SecretKey::new([3; 16]));
        let mut local = Filter::with_hasher(plan(items, rate), hasher).expect("memory");
        for key in 0..keys {
            local.insert(key).expect("writable");
        }
        local.set_note("a note").expect("short");
        local.set_normalization("url").expect("short");
        let [saved, pulled] = ["saved", "pulled"].map(|file| folder.path().join(file));
        local.save(&saved).expect("saved");
        let (seen, mut last) = (std::cell::Cell::new(0), 0);
        let remote = RedisFilter::push(&client, name, &local, |done, all| {
            assert!(done <= all);
            seen.set(done);
        });
        let remote = remote.expect("pushed");
        assert_eq!(seen.get(), remote.chunks());
        assert_eq!(remote.occupied().expect("counted"), local.occupied());
        remote.pull(&pulled, |done, _| last = done).expect("pulled");
        assert_eq!(last, remote.chunks());
        assert!(fs::read(&pulled).expect("it is there") == fs::read(&saved).expect("it is there"));

        // What was inserted on the server is in the file; how many keys were new is estimated.
        remote.insert("another").expect("inserted");
        local.insert("another").expect("writable");
        remote.pull(&pulled, |_, _| ()).expect("pulled");
        let open = |path| inbloom::OpenOptions::new().secret(hasher.key().expect("one")).open(path);
        let pulled = open(&pulled).expect("opened");
        assert!(pulled == local, "{name}");
        assert_eq!((pulled.note(), pulled.normalization()), ("a note", "url"));
        let estimate = local.estimated_items();
        assert_eq!(pulled.inserted(), estimate.items.round() as u64);
        let names: Vec<_> = fs::read_dir(folder.path()).expect("a folder").collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }
}

#[test]
fn merged_filters_hold_the_keys_of_both() {
    let Some(cluster) = RedisCluster::start("redis-server") else { return };
    let client = connect(&cluster.address());
    for rate in [0.01, 1e-7] {
        let plan = plan(3_000_000, rate);
        let remote = RedisFilter::create(&client, format!("f{rate}"), plan).expect("created");
        let mut local = Filter::new(plan).expect("memory");
        let mut union = Filter::new(plan).expect("memory");
        let (here, there): (Vec<u64>, Vec<u64>) =
            ((0..30_000).collect(), (20_000..50_000).collect());
        remote.insert_many(&there, &mut Vec::new()).expect("inserted");
        for key in &here {
            local.insert(*key).expect("writable");
        }
        for key in here.iter().chain(&there) {
            union.insert(*key).expect("writable");
        }
        remote.merge(&local, |_, _| ()).expect("merged");
        remote.merge(&local, |_, _| ()).expect("merged again");
        assert_eq!(remote.occupied().expect("counted"), union.occupied());
        let mut found = Vec::new();
        remote.contains_many(&(0..50_000_u64).collect::<Vec<_>>(), &mut found).expect("answered");
        assert!(found.iter().all(|found| *found == Found::Present));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pulled.ib");
        remote.pull(&path, |_, _| ()).expect("pulled");
        assert!(Filter::open(&path).expect("opened") == union);
        // Nothing is left of what was sent.
        let chunks = cluster.masters().into_iter().map(|master| {
            match cluster.nodes[master].ask(&["KEYS", "ib:*"]) {
                Reply::Array(keys) => keys.len() as u64,
                other => panic!("{other:?}"),
            }
        });
        assert_eq!(chunks.sum::<u64>(), remote.chunks() + 2);
        remote.delete().expect("deleted");
    }
}

#[test]
fn a_filter_that_expires_does_so_after_a_merge_too() {
    let Some(server) = server() else { return };
    let client = connect(&server.address());
    let plan = plan(3_000_000, 0.01);
    let mut spec = Spec::new(plan);
    spec.expires = Some(SystemTime::now() + Duration::from_secs(100));
    let remote = RedisFilter::create(&client, "f", spec).expect("created");
    let mut local = Filter::new(plan).expect("memory");
    for key in 0..1000_u64 {
        local.insert(key).expect("writable");
    }
    remote.merge(&local, |_, _| ()).expect("merged");
    let Reply::Array(chunks) = server.ask(&["KEYS", "ib:{*"]) else { panic!("keys") };
    assert_eq!(chunks.len(), 4);
    for chunk in chunks {
        let left: i64 = server.ask(&["TTL", &chunk.text()]).text().parse().expect("a number");
        assert!((120..=161).contains(&left), "{left} s");
    }
    remote.persist().expect("kept");
    remote.merge(&local, |_, _| ()).expect("merged");
    assert_eq!(remote.time_to_live().expect("answered"), None);
}

#[test]
fn a_merge_into_a_lost_chunk_is_reported_and_does_not_make_it_look_whole() {
    let Some(server) = server() else { return };
    let client = connect(&server.address());
    let plan = plan(1000, 0.01);
    let remote = RedisFilter::create(&client, "f", plan).expect("created");
    remote.insert("lost").expect("inserted");
    let Reply::Array(chunks) = server.ask(&["KEYS", "ib:{*"]) else { panic!("keys") };
    server.ask(&["DEL", &chunks[0].text()]);
    let mut local = Filter::new(plan).expect("memory");
    local.insert("x").expect("writable");
    assert!(matches!(remote.merge(&local, |_, _| ()), Err(Error::Lost { .. })));
    assert!(matches!(remote.contains("lost"), Err(Error::Lost { .. })));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pulled.ib");
    assert!(matches!(remote.pull(&path, |_, _| ()), Err(Error::Lost { .. })));
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn only_filters_of_one_shape_and_hash_are_merged() {
    let Some(server) = server() else { return };
    let client = connect(&server.address());
    let remote = RedisFilter::create(&client, "f", plan(1000, 0.01)).expect("created");
    let other = Filter::new(plan(2000, 0.01)).expect("memory");
    let error = remote.merge(&other, |_, _| ()).expect_err("another size").to_string();
    assert!(error.contains("differ in bits"), "{error}");
    let other = Filter::with_hasher(plan(1000, 0.01), Hasher::xxh3(5)).expect("memory");
    let error = remote.merge(&other, |_, _| ()).expect_err("another seed").to_string();
    assert!(error.contains("differ in hash seed"), "{error}");
    let classic = inbloom::Plan::builder(inbloom::Kind::Classic).items(1000).build();
    let classic = Filter::new(classic.expect("a plan")).expect("memory");
    for error in [
        remote.merge(&classic, |_, _| ()).expect_err("another kind"),
        RedisFilter::push(&client, "g", &classic, |_, _| ()).expect_err("another kind"),
    ] {
        assert!(error.to_string().contains("kind classic cannot be kept in Redis"), "{error}");
    }
}
