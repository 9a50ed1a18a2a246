//! A real cluster of three masters with a replica each.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use inbloom_redis::{Added, Durability, Error, Found, Options, Reads, RedisFilter};
use inbloom_testing::redis::{RedisCluster, Reply};

use crate::support::{connect, connect_with, plan};

/// How often a node has run a command for its clients.
fn calls(cluster: &RedisCluster, node: usize, command: &str) -> u64 {
    let statistics = cluster.nodes[node].ask(&["INFO", "commandstats"]).text();
    let line = statistics.lines().find_map(|line| {
        line.strip_prefix(&format!("cmdstat_{command}:calls="))?.split(',').next()?.parse().ok()
    });
    line.unwrap_or(0)
}

/// Adds and checks keys through a cluster: what [`inbloom_redis`] says of layout and round trips.
fn keys_through_a_cluster(cluster: &RedisCluster, keys: u64, items: u64, rate: f64) {
    let client = connect(&cluster.address());
    assert!(client.is_cluster());
    assert_eq!(client.masters(), 3);
    let filter = RedisFilter::create(&client, "many", plan(items, rate)).expect("created");
    let before: Vec<_> = (0..6).map(|node| calls(cluster, node, "bitfield")).collect();
    let batch = 50_000;
    let (mut added, mut found) = (Vec::new(), Vec::new());
    let mut new = 0;
    for first in (0..keys).step_by(batch as usize) {
        let batch: Vec<u64> = (first..keys.min(first + batch)).collect();
        filter.insert_many(&batch, &mut added).expect("inserted");
        new += added.iter().filter(|added| **added == Added::New).count() as u64;
        assert!(!added.contains(&Added::Unknown) && !added.contains(&Added::Failed));
    }
    // A key that is taken for present when it comes is a false positive, at less than the rate.
    assert!(new <= keys && new as f64 >= keys as f64 * (1.0 - rate), "{new} of {keys} were new");

    // One command to one master for each key.
    let masters = cluster.masters();
    let adds: u64 = masters.iter().map(|n| calls(cluster, *n, "bitfield") - before[*n]).sum();
    assert_eq!(adds, keys);

    let before: u64 = masters.iter().map(|node| calls(cluster, *node, "getrange")).sum();
    let mut wrong = 0;
    for first in (0..keys).step_by(batch as usize) {
        let batch: Vec<u64> = (first..keys.min(first + batch)).collect();
        filter.contains_many(&batch, &mut found).expect("answered");
        assert!(found.iter().all(|found| *found == Found::Present), "a false negative");
        let absent: Vec<u64> = batch.iter().map(|key| key + (1 << 40)).collect();
        filter.contains_many(&absent, &mut found).expect("answered");
        wrong += found.iter().filter(|found| **found == Found::Present).count();
    }
    let queries: u64 = masters.iter().map(|node| calls(cluster, *node, "getrange")).sum();
    assert_eq!(queries - before, 2 * keys * u64::from(filter.plan().lines()));
    let expected = keys as f64 * rate;
    let bound = expected + 5.0 * expected.sqrt();
    assert!(
        wrong as f64 <= bound,
        "{wrong} false positives of {keys}, at most {bound:.0} expected"
    );

    // Chunks are small, and lie evenly over the masters.
    let mut shares = BTreeMap::new();
    for master in &masters {
        let Reply::Array(chunks) = cluster.nodes[*master].ask(&["KEYS", "ib:{*"]) else {
            panic!("keys")
        };
        for chunk in &chunks {
            let bytes = cluster.nodes[*master].ask(&["STRLEN", &chunk.text()]).text();
            assert!(bytes.parse::<u64>().expect("a number") <= (1 << 20) + 64);
        }
        shares.insert(*master, chunks.len());
    }
    let (least, most) = (shares.values().min(), shares.values().max());
    assert!(most.expect("some") - least.expect("some") <= 1, "{shares:?}");
    assert_eq!(shares.values().sum::<usize>() as u64, filter.chunks());
    assert!(filter.delete().expect("deleted"));
    for master in masters {
        assert_eq!(cluster.nodes[master].ask(&["DBSIZE"]), Reply::Int(0));
    }
    println!("{keys} keys at {rate}: {wrong} false positives, chunks by master {shares:?}");
}

#[test]
fn keys_take_one_round_trip_to_one_node_and_lie_evenly() {
    let Some(cluster) = RedisCluster::start("redis-server") else { return };
    keys_through_a_cluster(&cluster, 300_000, 300_000, 0.01);
    keys_through_a_cluster(&cluster, 50_000, 5_000_000, 1e-6);
}

#[test]
fn replicas_answer_queries_where_they_may() {
    let Some(cluster) = RedisCluster::start("redis-server") else { return };
    let mut options = Options::default();
    options.reads = Reads::Replicas;
    // A replica on a busy machine may take some 100 ms, and its master must not be asked for that.
    options.response_timeout = Duration::from_secs(3);
    options.durability = Durability::Replicas(1);
    let client = connect_with(&cluster.address(), options);
    let filter = RedisFilter::create(&client, "f", plan(5_000_000, 0.01)).expect("created");
    let (keys, mut found): (Vec<u64>, _) = ((0..5000).collect(), Vec::new());
    filter.insert_many(&keys, &mut Vec::new()).expect("on master and replica");
    let masters = cluster.masters();
    let of_masters = || masters.iter().map(|node| calls(&cluster, *node, "getrange")).sum::<u64>();
    let of_all = || (0..6).map(|node| calls(&cluster, node, "getrange")).sum::<u64>();
    let before = (of_masters(), of_all());
    filter.contains_many(&keys, &mut found).expect("answered");
    assert!(found.iter().all(|found| *found == Found::Present), "what was copied is found");
    assert_eq!((of_masters(), of_all()), (before.0, before.1 + 5000));
    // Where a replica does not answer, its master does.
    let of_first = || calls(&cluster, masters[0], "getrange");
    let before = of_first();
    cluster.nodes[cluster.replica_of(masters[0])].freeze();
    filter.contains_many(&keys, &mut found).expect("answered");
    assert!(found.iter().all(|found| *found == Found::Present));
    let asked = of_first() - before;
    // It has two or three of seven chunks, of which the last is small.
    assert!((500..2600).contains(&asked), "{asked} of 5000 keys");
}

/// The two copies of a description are on two masters: whichever loses its memory, the other knows.
#[test]
fn a_master_that_loses_a_description_makes_no_filter_look_missing() {
    let Some(cluster) = RedisCluster::start("redis-server") else { return };
    let client = connect(&cluster.address());
    let small = plan(1000, 0.01);
    for round in 0..12 {
        let name = format!("f{round}");
        let filter = RedisFilter::create(&client, &name, small).expect("created");
        filter.insert("x").expect("inserted");
        let has = |pattern: String| {
            let masters = cluster.masters();
            let mut having = masters.into_iter().filter(|master| {
                let keys = cluster.nodes[*master].ask(&["KEYS", &pattern]);
                matches!(keys, Reply::Array(keys) if !keys.is_empty())
            });
            having.next().expect("one has it")
        };
        let (first, second) = (has(format!("ib:m:{name}")), has(format!("ib:c:{{*}}:{name}")));
        assert_ne!(first, second, "{name}");
        cluster.nodes[if round % 2 == 0 { first } else { second }].ask(&["FLUSHALL"]);
        for error in [
            RedisFilter::open(&client, &name).expect_err("lost"),
            RedisFilter::open_or_create(&client, &name, small).expect_err("lost"),
        ] {
            assert!(matches!(error, Error::LostDescription { .. }), "{error}");
        }
        // The bits may be lost too, but no key is absent.
        match filter.contains("x") {
            Ok(found) => assert!(found),
            Err(error) => assert!(matches!(error, Error::LostDescription { .. }), "{error}"),
        }
        assert!(RedisFilter::delete_named(&client, &name).expect("deleted"));
        RedisFilter::open_or_create(&client, &name, small).expect("made again");
        assert!(RedisFilter::delete_named(&client, &name).expect("deleted"));
    }
    for master in cluster.masters() {
        assert_eq!(cluster.nodes[master].ask(&["DBSIZE"]), Reply::Int(0));
    }
}

/// A client that has not spoken to the cluster since then knows a master that is gone.
#[test]
fn a_client_that_missed_a_failover_lists_and_creates_filters() {
    let Some(mut cluster) = RedisCluster::start("redis-server") else { return };
    // The second node is asked, so that its address outlives the first.
    let client = connect(&cluster.nodes[1].address());
    let plan = plan(5_000_000, 0.01);
    let names: Vec<String> = (0..20).map(|number| format!("f{number:02}")).collect();
    for name in &names {
        let replicated = RedisFilter::create(&client, name, plan).expect("created");
        assert_eq!(replicated.chunks(), 7);
    }
    std::thread::sleep(Duration::from_secs(1)); // For the replicas.
    cluster.nodes[0].kill();
    let began = Instant::now();
    while cluster.masters().len() < 3 || !is_ok(&cluster) {
        assert!(began.elapsed() < Duration::from_secs(30), "no failover");
        std::thread::sleep(Duration::from_millis(50));
    }
    let listed = RedisFilter::names(&client).expect("listed");
    assert_eq!(listed, names.iter().map(|name| name.clone().into_bytes()).collect::<Vec<_>>());
    RedisFilter::create(&client, "another", plan).expect("created");
    client.ping().expect("all masters answer");
}

fn is_ok(cluster: &RedisCluster) -> bool {
    let state = cluster.nodes[1].try_ask(&["CLUSTER", "INFO"]);
    state.is_ok_and(|state| state.text().contains("cluster_state:ok"))
}

#[test]
#[ignore = "minutes"]
fn ten_million_keys_take_one_round_trip_each() {
    let Some(cluster) = RedisCluster::start("redis-server") else { return };
    keys_through_a_cluster(&cluster, 10_000_000, 10_000_000, 0.01);
}
