//! One server: what a filter does, and what is said when it cannot.

use std::time::{Duration, SystemTime};

use inbloom::{Filter, Hasher, Kind, Plan, SecretKey};
use inbloom_redis::{Added, Durability, Error, Eviction, Found, Options, RedisFilter, Spec};
use inbloom_testing::redis::Reply;

use crate::support::{cluster_of_one, connect, connect_with, in_front_of, plan, server};

#[test]
fn keys_are_new_once_and_found_by_every_client() {
    let Some(server) = server() else { return };
    let (one, other) = (connect(&server.address()), connect(&server.address()));
    for (name, rate) in [("one line", 0.01), ("two lines", 1e-7)] {
        let filter = RedisFilter::create(&one, name, plan(200_000, rate)).expect("created");
        let keys: Vec<u64> = (0..20_000).collect();
        let mut answers = Vec::new();
        filter.insert_many(&keys, &mut answers).expect("inserted");
        let mut local = Filter::new(*filter.plan()).expect("memory");
        let expected = |new| if new { Added::New } else { Added::Present };
        for (key, answer) in keys.iter().zip(&answers) {
            assert_eq!(*answer, expected(local.insert(*key).expect("writable")), "key {key}");
        }
        filter.insert_many(&keys, &mut answers).expect("inserted");
        assert!(answers.iter().all(|answer| *answer == Added::Present));

        let found = RedisFilter::open(&other, name).expect("opened");
        assert_eq!((found.plan(), found.hasher()), (filter.plan(), filter.hasher()));
        let mut answers = Vec::new();
        found.contains_many(&keys, &mut answers).expect("answered");
        assert!(answers.iter().all(|answer| *answer == Found::Present));
        let absent: Vec<u64> = (1_000_000..1_020_000).collect();
        found.contains_many(&absent, &mut answers).expect("answered");
        for (key, answer) in absent.iter().zip(&answers) {
            let expected = if local.contains(*key) { Found::Present } else { Found::Absent };
            assert_eq!(*answer, expected, "key {key}");
        }
        assert_eq!(found.occupied().expect("counted"), local.occupied());
        let estimate = found.estimate().expect("estimated");
        assert_eq!(estimate, local.estimated_items());
        assert!((estimate.items - 20_000.0).abs() < 5.0 * estimate.error, "{estimate:?}");
    }
}

#[test]
fn a_key_that_comes_twice_in_a_call_is_new_once() {
    let Some(server) = server() else { return };
    let filter =
        RedisFilter::create(&connect(&server.address()), "f", plan(1000, 0.01)).expect("created");
    let mut answers = Vec::new();
    filter.insert_many(&["a", "b", "a", "b", "a"], &mut answers).expect("inserted");
    use Added::{New, Present};
    assert_eq!(answers, [New, New, Present, Present, Present]);
    filter.insert_many::<&str>(&[], &mut answers).expect("nothing to do");
    assert!(answers.is_empty());
}

#[test]
fn filters_are_listed_and_deleted_without_a_trace() {
    let Some(server) = server() else { return };
    let client = connect(&server.address());
    let plans = [plan(10, 0.01), plan(3_000_000, 0.001)];
    let filters: Vec<_> = ["a", "b/\u{e9}*"]
        .iter()
        .zip(plans)
        .map(|(name, plan)| RedisFilter::create(&client, name, plan).expect("created"))
        .collect();
    // What others keep there is none of ours.
    server.ask(&["SET", "ib:m", "x"]);
    server.ask(&["SET", "ib:mine", "x"]);
    server.ask(&["SET", "ib:m:broken", "{}"]);
    server.ask(&["RPUSH", "ib:m:list", "x"]);
    let listed = RedisFilter::list(&client).expect("listed");
    let names: Vec<_> = listed.iter().map(|one| String::from_utf8_lossy(&one.name)).collect();
    assert_eq!(names, ["a", "b/\u{e9}*"]);
    assert_eq!((listed[0].plan, listed[1].plan), (plans[0], plans[1]));
    assert!(listed[0].created.elapsed().expect("past") < Duration::from_secs(60));

    let found = RedisFilter::names(&client).expect("listed");
    assert_eq!(found, [&b"a"[..], b"b/\xc3\xa9*", b"broken", b"list"]);

    server.ask(&["DEL", "ib:m", "ib:mine", "ib:m:broken", "ib:m:list"]);
    for filter in filters {
        assert!(filter.delete().expect("deleted"));
        assert!(!filter.delete().expect("deleted before"));
        assert!(matches!(filter.insert("x"), Err(Error::Deleted { .. })));
        assert!(matches!(filter.contains("x"), Err(Error::Deleted { .. })));
        assert!(matches!(filter.estimate(), Err(Error::Deleted { .. })));
    }
    assert_eq!(server.ask(&["DBSIZE"]), Reply::Int(0));
}

#[test]
fn what_was_created_again_is_not_touched_by_the_old_handle() {
    let Some(server) = server() else { return };
    let client = connect(&server.address());
    let old = RedisFilter::create(&client, "f", plan(1000, 0.01)).expect("created");
    old.insert("x").expect("inserted");
    RedisFilter::open(&client, "f").expect("opened").delete().expect("deleted");
    let new = RedisFilter::create(&client, "f", plan(1000, 0.01)).expect("created");
    assert!(matches!(old.insert("y"), Err(Error::Replaced { .. })));
    assert!(matches!(old.contains("x"), Err(Error::Replaced { .. })));
    assert!(matches!(old.persist(), Err(Error::Replaced { .. })));
    assert!(!old.delete().expect("it is gone already"));
    assert!(!new.contains("x").expect("answered"));
    assert!(!new.contains("y").expect("answered"));
    new.delete().expect("deleted");
    assert_eq!(server.ask(&["DBSIZE"]), Reply::Int(0));
}

#[test]
fn a_taken_name_is_refused_with_both_plans() {
    let Some(server) = server() else { return };
    let client = connect(&server.address());
    let first = plan(1000, 0.01);
    RedisFilter::create(&client, "f", first).expect("created");
    let error = RedisFilter::create(&client, "f", plan(2000, 0.001)).expect_err("taken");
    let text = error.to_string();
    assert!(text.contains("1000 items at rate 0.01"), "{text}");
    assert!(text.contains("2000 items at rate 0.001"), "{text}");
    let error = RedisFilter::open_or_create(&client, "f", plan(2000, 0.001)).expect_err("taken");
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    let mut seeded = Spec::new(first);
    seeded.hasher = Hasher::xxh3(1);
    let error = RedisFilter::open_or_create(&client, "f", seeded).expect_err("another hash");
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    RedisFilter::open_or_create(&client, "f", first).expect("the same");
    RedisFilter::open_or_create(&client, "g", first).expect("a new one");
    assert!(matches!(RedisFilter::open(&client, "h"), Err(Error::Missing { .. })));
    let cuckoo = Plan::builder(Kind::Cuckoo).items(1000).build().expect("a plan");
    let error = RedisFilter::create(&client, "h", cuckoo).expect_err("another kind");
    assert!(error.to_string().contains("kind cuckoo cannot be kept in chunks"), "{error}");
}

#[test]
fn texts_and_secret_keys_come_back() {
    let Some(server) = server() else { return };
    let client = connect(&server.address());
    let (key, wrong) = (SecretKey::new([7; 16]), SecretKey::new([8; 16]));
    let mut spec = Spec::new(plan(1000, 0.01));
    spec.hasher = Hasher::sip13(key);
    spec.note = "a \"note\"".to_owned();
    spec.normalization = "url".to_owned();
    RedisFilter::create(&client, "f", spec).expect("created").insert("x").expect("inserted");
    let opened = RedisFilter::open_keyed(&client, "f", Some(&key)).expect("opened");
    assert_eq!((opened.note(), opened.normalization()), ("a \"note\"", "url"));
    assert!(opened.contains("x").expect("answered"));
    for key in [None, Some(&wrong)] {
        let error = RedisFilter::open_keyed(&client, "f", key).expect_err("no key, or another");
        assert!(error.to_string().contains("built with a secret key"), "{error}");
    }
    let json = server.ask(&["GET", "ib:m:f"]).text();
    assert!(!json.contains("0707"), "{json}");
}

#[test]
fn lost_blocks_are_reported_and_never_absent() {
    let Some(server) = server() else { return };
    let client = connect(&server.address());
    let filter = RedisFilter::create(&client, "f", plan(3_000_000, 0.01)).expect("created");
    let keys: Vec<u64> = (0..1000).collect();
    let (mut added, mut found) = (Vec::new(), Vec::new());
    filter.insert_many(&keys, &mut added).expect("inserted");
    let Reply::Array(chunks) = server.ask(&["KEYS", "ib:{*"]) else { panic!("keys") };
    assert_eq!(chunks.len() as u64, filter.chunks());
    server.ask(&["DEL", &chunks[0].text()]);

    let error = filter.contains_many(&keys, &mut found).expect_err("a chunk is gone");
    assert!(matches!(&error, Error::Lost { lost, .. } if lost.len() == 1), "{error}");
    assert!(!found.contains(&Found::Absent));
    let failed = found.iter().filter(|found| **found == Found::Failed).count();
    assert!((100..500).contains(&failed), "{failed} of 1000 in one of {} chunks", chunks.len());

    // An insert makes the chunk again, without its sentinels.
    let error = filter.insert_many(&keys, &mut added).expect_err("a chunk is gone");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert_eq!(added.iter().filter(|added| **added == Added::Failed).count(), failed);
    assert!(!added.contains(&Added::New));
    assert_eq!(server.ask(&["EXISTS", &chunks[0].text()]), Reply::Int(1));
    let error = filter.contains_many(&keys, &mut found).expect_err("still");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert!(!found.contains(&Found::Absent));
    assert!(matches!(filter.occupied(), Err(Error::Lost { .. })));
    assert!(filter.delete().expect("deleted"));
    assert_eq!(server.ask(&["DBSIZE"]), Reply::Int(0));
}

/// Without the one copy the filter is lost for everybody, and not missing. It can be deleted.
#[test]
fn a_filter_without_a_copy_of_its_description_is_lost_and_never_missing() {
    let Some(server) = server() else { return };
    let client = connect(&server.address());
    let is_lost = |error: Error| {
        assert!(matches!(error, Error::LostDescription { .. }), "{error}");
        assert!(error.to_string().contains("delete the filter, then build it again"), "{error}");
    };
    for copy in ["ib:m:f", "ib:c:{*}:f"] {
        let small = plan(1000, 0.01);
        let filter = RedisFilter::create(&client, "f", small).expect("created");
        filter.insert("x").expect("inserted");
        let Reply::Array(keys) = server.ask(&["KEYS", copy]) else { panic!("keys") };
        let [key] = &keys[..] else { panic!("{keys:?}") };
        assert_eq!(server.ask(&["DEL", &key.text()]), Reply::Int(1));

        is_lost(RedisFilter::open(&client, "f").expect_err("lost"));
        is_lost(RedisFilter::create(&client, "f", small).expect_err("lost"));
        is_lost(RedisFilter::open_or_create(&client, "f", small).expect_err("lost"));
        let local = inbloom::Filter::new(small).expect("memory");
        is_lost(RedisFilter::push(&client, "f", &local, |_, _| ()).expect_err("lost"));
        is_lost(filter.expire_at(SystemTime::now() + Duration::from_secs(100)).expect_err("lost"));
        is_lost(filter.persist().expect_err("lost"));
        let listed = RedisFilter::list(&client).expect("listed");
        assert_eq!(listed.len(), 1);
        assert!(listed[0].is_lost && listed[0].plan == small, "{listed:?}");
        // Its bits are there, and a client that has opened it goes on.
        assert!(filter.contains("x").expect("answered"));
        let Reply::Array(chunks) = server.ask(&["KEYS", "ib:{*"]) else { panic!("keys") };
        server.ask(&["DEL", &chunks[0].text()]);
        is_lost(filter.contains("x").expect_err("lost"));
        is_lost(filter.insert("x").expect_err("lost"));

        assert!(RedisFilter::delete_named(&client, "f").expect("deleted"));
        assert_eq!(server.ask(&["DBSIZE"]), Reply::Int(0));
        assert!(!RedisFilter::delete_named(&client, "f").expect("there is none"));
        assert!(matches!(RedisFilter::open(&client, "f"), Err(Error::Missing { .. })));
    }
}

/// Clients that stopped between the two copies leave no filter that looks whole, and none that stays.
#[test]
fn what_a_client_left_that_stopped_between_both_copies_goes_away() {
    let Some(server) = server() else { return };
    let mut options = Options::default();
    options.deadline = Duration::from_millis(300);
    let client = connect_with(&server.address(), options);
    let small = plan(1000, 0.01);
    let filter = RedisFilter::create(&client, "f", small).expect("created");
    let Reply::Array(keys) = server.ask(&["KEYS", "ib:c:{*}:f"]) else { panic!("keys") };
    let copy = keys[0].text();
    // While it was deleted, before the first copy was: it is there, and can be deleted.
    server.ask(&["PEXPIRE", &copy, "60000"]);
    RedisFilter::open(&client, "f").expect("it is there");
    // While it was created, before the first copy was written; or deleted, after that.
    server.ask(&["DEL", "ib:m:f"]);
    assert!(matches!(RedisFilter::open(&client, "f"), Err(Error::Missing { .. })));
    assert_eq!(RedisFilter::list(&client).expect("listed"), []);
    let error = RedisFilter::create(&client, "f", small).expect_err("another may be at it");
    assert!(error.to_string().contains("try again in a minute"), "{error}");
    assert_eq!(server.ask(&["EXISTS", &copy]), Reply::Int(1), "it is not touched");
    // After the minute.
    server.ask(&["PEXPIRE", &copy, "100"]);
    let created = RedisFilter::open_or_create(&client, "f", small).expect("it is free");
    assert!(!filter.delete().expect("it was deleted before"));
    assert!(created.delete().expect("deleted"));
    assert_eq!(server.ask(&["DBSIZE"]), Reply::Int(0));
}

#[test]
fn other_types_and_damaged_descriptions_have_errors_of_their_own() {
    let Some(server) = server() else { return };
    let client = connect(&server.address());
    server.ask(&["RPUSH", "ib:m:list", "x"]);
    let error = RedisFilter::open(&client, "list").expect_err("a list");
    assert!(matches!(error, Error::WrongType { .. }), "{error}");
    server.ask(&["SET", "ib:m:text", "hello"]);
    let error = RedisFilter::open(&client, "text").expect_err("no description");
    assert!(matches!(error, Error::Metadata { .. }), "{error}");

    let filter = RedisFilter::create(&client, "f", plan(1000, 0.01)).expect("created");
    let Reply::Array(chunks) = server.ask(&["KEYS", "ib:{*"]) else { panic!("keys") };
    server.ask(&["DEL", &chunks[0].text()]);
    server.ask(&["RPUSH", &chunks[0].text(), "x"]);
    for error in [
        filter.insert("x").expect_err("a list"),
        filter.contains("x").expect_err("a list"),
        RedisFilter::open(&client, "f").expect_err("a list"),
    ] {
        assert!(error.to_string().contains("holds a list"), "{error}");
    }

    // The error names the chunk, whichever it is.
    let filter = RedisFilter::create(&client, "g", plan(3_000_000, 0.01)).expect("created");
    let Reply::Array(chunks) = server.ask(&["KEYS", "ib:{*}:2"]) else { panic!("keys") };
    server.ask(&["DEL", &chunks[0].text()]);
    server.ask(&["RPUSH", &chunks[0].text(), "x"]);
    let keys: Vec<u64> = (0..1000).collect();
    let error = filter.contains_many(&keys, &mut Vec::new()).expect_err("a list");
    let expected = format!("the key {:?} holds a list", chunks[0].text());
    assert!(error.to_string().starts_with(&expected), "{error}");
}

/// Redis 8.12 with bitmap-default-roaring, as its release notes describe it: a bitmap that is written to
/// becomes a value of type bitmap, on which string commands do not work.
#[test]
fn a_server_that_turns_bitmaps_into_its_own_type_has_an_error_of_its_own() {
    let Some(server) = server() else { return };
    let address = in_front_of(&server, |arguments| {
        let is_chunk = arguments.get(1).is_some_and(|key| key.starts_with(b"ib:{"));
        match (arguments.first().map(Vec::as_slice), is_chunk) {
            (Some(b"TYPE"), true) => Some("+bitmap\r\n"),
            (Some(b"GETRANGE"), true) => {
                Some("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n")
            }
            _ => None,
        }
    });
    let client = connect(&address);
    let filter = RedisFilter::create(&client, "f", plan(1000, 0.01)).expect("created");
    assert_eq!(filter.insert("x").expect("it is a bitmap from now on"), Added::New);
    for error in [
        filter.contains("x").expect_err("it cannot be read"),
        RedisFilter::open(&client, "f").expect_err("it cannot be read"),
    ] {
        assert!(matches!(error, Error::Roaring { .. }), "{error}");
        assert!(error.to_string().contains("set bitmap-default-roaring no"), "{error}");
    }
    assert!(filter.delete().expect("deleted"));
}

/// Redis 8.4 has DELEX, Valkey 9 has DELIFEQ, others neither.
#[test]
fn servers_that_compare_and_delete_are_let_do_it() {
    let Some(server) = server() else { return };
    for (address, command) in [
        (in_front_of(&server, |it| (it[0] == b"DELEX").then_some(":1\r\n")), "DELEX"),
        (
            in_front_of(&server, |it| match it[0].as_slice() {
                b"DELEX" => Some("-ERR unknown command 'DELEX'\r\n"),
                b"DELIFEQ" => Some(":1\r\n"),
                _ => None,
            }),
            "DELIFEQ",
        ),
    ] {
        let client = connect(&address);
        let filter = RedisFilter::create(&client, command, plan(1000, 0.01)).expect("created");
        assert!(filter.delete().expect("the server says that it did"), "{command}");
        // It did not: nothing else was sent that deletes the description, in either copy.
        let Reply::Array(copies) = server.ask(&["KEYS", "ib:[mc]:*"]) else { panic!("keys") };
        assert_eq!(copies.len(), 2, "{command}");
        for copy in copies {
            assert_eq!(server.ask(&["DEL", &copy.text()]), Reply::Int(1), "{command}");
        }
    }
    assert_eq!(server.ask(&["DBSIZE"]), Reply::Int(0));
}

#[test]
fn a_change_without_its_copies_fails_and_says_so() {
    let Some(server) = server() else { return };
    let mut options = Options::default();
    options.deadline = Duration::from_millis(300);
    let plain = connect(&server.address());
    RedisFilter::create(&plain, "f", plan(1000, 0.01)).expect("created");
    options.durability = Durability::Replicas(1);
    let client = connect_with(&server.address(), options.clone());
    let filter = RedisFilter::open(&client, "f").expect("opened");
    let mut answers = Vec::new();
    let error = filter.insert_many(&["a", "b"], &mut answers).expect_err("there is no replica");
    assert!(matches!(error, Error::NotReplicated { wanted: 1, got: 0, .. }), "{error}");
    assert_eq!(answers, [Added::Failed, Added::Failed]);
    assert!(filter.contains("a").expect("the master has it"));
    let pyre = inbloom_redis::PyreBloom::open(&client, "pyre", 1000, 0.01).expect("opened");
    let error = pyre.insert_many(&["a"], &mut answers).expect_err("there is no replica");
    assert!(matches!(error, Error::NotReplicated { .. }), "{error}");

    // On disk: only servers from Redis 7.2 on can say.
    options.durability = Durability::Disk(0);
    options.deadline = Duration::from_secs(10);
    let client = connect_with(&server.address(), options);
    let filter = RedisFilter::open(&client, "f").expect("opened");
    let error = filter.insert("c").expect_err("the server keeps nothing on disk");
    assert!(error.to_string().contains("WAITAOF"), "{error}");
    let Ok(Reply::Array(commands)) = server.try_ask(&["COMMAND", "INFO", "WAITAOF"]) else {
        panic!("no list of commands")
    };
    if matches!(&commands[0], Reply::Array(fields) if !fields.is_empty()) {
        server.ask(&["CONFIG", "SET", "appendonly", "yes"]);
        assert_eq!(filter.insert("d").expect("on disk"), Added::New);
        assert_eq!(filter.insert("d").expect("on disk"), Added::Present);
    }
}

#[test]
fn a_cluster_without_databases_refuses_one() {
    let Some(node) = cluster_of_one(&[]) else { return };
    let client = connect(&node.address());
    assert!(client.is_cluster());
    RedisFilter::create(&client, "f", plan(1000, 0.01)).expect("created");
    connect(&format!("{}/0", node.address()));
    let third = format!("{}/3", node.address()).parse().expect("an address");
    let error = inbloom_redis::Client::connect(&third, Options::default()).expect_err("no such");
    assert!(matches!(error, Error::Database { database: 3, .. }), "{error}");
    assert!(error.to_string().ends_with("leave the database out of the address"), "{error}");
}

#[test]
fn filters_expire_as_a_whole() {
    let Some(server) = server() else { return };
    let client = connect(&server.address());
    let soon = || SystemTime::now() + Duration::from_secs(100);
    let mut spec = Spec::new(plan(1000, 0.01));
    spec.expires = Some(soon());
    let filter = RedisFilter::create(&client, "f", spec).expect("created");
    let left = filter.time_to_live().expect("answered").expect("it expires");
    assert!(left > Duration::from_secs(90) && left <= Duration::from_secs(100), "{left:?}");
    let Reply::Array(chunks) = server.ask(&["KEYS", "ib:{*"]) else { panic!("keys") };
    let chunk = chunks[0].text();
    let seconds = || server.ask(&["TTL", &chunk]).text().parse::<i64>().expect("a number");
    assert!((150..=160).contains(&seconds()), "{}", seconds());
    filter.persist().expect("kept");
    assert_eq!((filter.time_to_live().expect("answered"), seconds()), (None, -1));
    filter.expire_at(soon()).expect("set");
    assert!(filter.time_to_live().expect("answered").is_some() && seconds() > 150);
    filter.expire_at(SystemTime::now() - Duration::from_secs(100)).expect("set");
    assert!(matches!(filter.contains("x"), Err(Error::Deleted { .. })));
    assert_eq!(server.ask(&["DBSIZE"]), Reply::Int(0));
}

#[test]
fn servers_that_evict_anything_are_refused() {
    let Some(server) = server() else { return };
    server.ask(&["CONFIG", "SET", "maxmemory", "100mb"]);
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let client = connect(&server.address());
    let error = RedisFilter::create(&client, "f", plan(1000, 0.01)).expect_err("it evicts");
    assert!(error.to_string().contains("\"allkeys-lru\""), "{error}");
    let mut options = Options::default();
    options.eviction = Eviction::Allow;
    let client = connect_with(&server.address(), options);
    RedisFilter::create(&client, "f", plan(1000, 0.01)).expect("allowed");
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    let client = connect(&server.address());
    let lasting = RedisFilter::create(&client, "g", plan(1000, 0.01));
    let lasting = lasting.expect("it evicts only what expires");
    let soon = SystemTime::now() + Duration::from_secs(100);
    let mut spec = Spec::new(plan(1000, 0.01));
    spec.expires = Some(soon);
    for error in [
        RedisFilter::create(&client, "h", spec).expect_err("it would be evicted"),
        lasting.expire_at(soon).expect_err("it would be evicted"),
    ] {
        assert!(error.to_string().contains("\"volatile-lru\""), "{error}");
    }
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    lasting.expire_at(soon).expect("without a limit nothing is evicted");
}

#[test]
fn passwords_users_and_databases_are_used() {
    let Some(server) = server() else { return };
    server.ask(&["ACL", "SETUSER", "bloom", "on", ">p:w/d", "~ib:*", "+@all"]);
    server.ask(&["CONFIG", "SET", "requirepass", "hunter2"]);
    let place = format!("127.0.0.1:{}", server.port());
    for login in ["bloom:p%3Aw%2Fd@", ":hunter2@"] {
        let client = connect(&format!("redis://{login}{place}/3"));
        let filter = RedisFilter::open_or_create(&client, "f", plan(1000, 0.01)).expect("created");
        filter.insert(login).expect("inserted");
        let client = connect(&format!("redis://{login}{place}"));
        assert!(matches!(RedisFilter::open(&client, "f"), Err(Error::Missing { .. })));
    }
    let wrong = format!("redis://:nope@{place}").parse().expect("an address");
    let error = inbloom_redis::Client::connect(&wrong, Options::default()).expect_err("wrong");
    assert!(!error.to_string().contains("nope"), "{error}");
    assert!(matches!(error, Error::Server { .. }), "{error}");
    let far = format!("redis://:hunter2@{place}/99").parse().expect("an address");
    let error = inbloom_redis::Client::connect(&far, Options::default()).expect_err("no such");
    assert!(matches!(error, Error::Database { database: 99, .. }), "{error}");
}

#[test]
fn a_server_that_is_not_there_is_an_error_at_once() {
    let nobody = "redis://127.0.0.1:1".parse().expect("an address");
    let error = inbloom_redis::Client::connect(&nobody, Options::default()).expect_err("nobody");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().starts_with("cannot connect to 127.0.0.1:1: "), "{error}");
}
