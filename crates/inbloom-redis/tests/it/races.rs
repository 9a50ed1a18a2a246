//! Clients that create and delete one filter at once.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use inbloom_redis::{Error, Found, RedisFilter, Spec};
use inbloom_testing::redis::{Redis, RedisCluster};

use crate::support::{connect, plan, server};

/// Keys on all masters.
fn keys_on(masters: &[&Redis]) -> u64 {
    let keys = |master: &&Redis| master.ask(&["DBSIZE"]).text().parse::<u64>().expect("a number");
    masters.iter().map(keys).sum()
}

fn masters_of(cluster: &RedisCluster) -> Vec<&Redis> {
    cluster.masters().into_iter().map(|master| &cluster.nodes[master]).collect()
}

#[test]
fn of_two_clients_that_create_one_filter_one_wins() {
    let Some(server) = server() else { return };
    two_clients_create_one_filter(&[&server]);
}

#[test]
fn of_two_clients_that_create_one_filter_on_a_cluster_one_wins() {
    let Some(cluster) = RedisCluster::start("redis-server") else { return };
    two_clients_create_one_filter(&masters_of(&cluster));
}

fn two_clients_create_one_filter(masters: &[&Redis]) {
    let server = masters[0];
    let plans = [plan(1000, 0.01), plan(2_000_000, 0.001)];
    let clients = [connect(&server.address()), connect(&server.address())];
    for round in 0..20 {
        let (name, start) = (format!("f{round}"), Barrier::new(2));
        let results = std::thread::scope(|scope| {
            let race = [0, 1].map(|index| {
                let (name, start, client) = (&name, &start, &clients[index]);
                scope.spawn(move || {
                    start.wait();
                    RedisFilter::create(client, name, plans[index])
                })
            });
            race.map(|one| one.join().expect("a thread"))
        });
        let (winner, loser) = match &results {
            [Ok(_), Err(error)] => (0, error),
            [Err(error), Ok(_)] => (1, error),
            other => panic!("not one winner: {other:?}"),
        };
        let text = loser.to_string();
        assert!(text.contains("1000 items at rate 0.01 "), "{text}");
        assert!(text.contains("2000000 items at rate 0.001 "), "{text}");
        let filter = RedisFilter::open(&clients[0], &name).expect("opened");
        assert_eq!(*filter.plan(), plans[winner]);
        assert!(!filter.contains("x").expect("answered"));
        assert_eq!(keys_on(masters), 2 + filter.chunks());
        assert!(filter.delete().expect("deleted"));
    }
    assert_eq!(keys_on(masters), 0);
}

#[test]
fn no_late_insert_lands_in_a_filter_that_was_created_again() {
    let Some(server) = server() else { return };
    delete_and_create_under_writers(&[&server]);
}

#[test]
fn no_late_insert_lands_in_a_filter_that_was_created_again_on_a_cluster() {
    let Some(cluster) = RedisCluster::start("redis-server") else { return };
    delete_and_create_under_writers(&masters_of(&cluster));
}

/// Every writer adds keys that carry the number of the incarnation it has opened.
fn delete_and_create_under_writers(masters: &[&Redis]) {
    const ROUNDS: u64 = 30;
    let server = masters[0];
    let create = |round: u64| {
        let mut spec = Spec::new(plan(200_000, 1e-7));
        spec.note = round.to_string();
        RedisFilter::create(&connect(&server.address()), "f", spec).expect("created")
    };
    let first = create(0);
    let (done, writes) = (AtomicBool::new(false), AtomicU64::new(0));
    let write = &|writer: u64| {
        let client = connect(&server.address());
        let mut written: Vec<(u64, String)> = Vec::new();
        while !done.load(Ordering::Relaxed) {
            let filter = match RedisFilter::open(&client, "f") {
                Ok(filter) => filter,
                Err(Error::Missing { .. }) => continue,
                Err(error) => panic!("{error}"),
            };
            let round = filter.note().parse().expect("a number");
            while !done.load(Ordering::Relaxed) {
                let key = format!("{writer}/{round}/{}", written.len());
                written.push((round, key.clone()));
                match filter.insert(key) {
                    Ok(_) => writes.fetch_add(1, Ordering::Relaxed),
                    Err(Error::Deleted { .. } | Error::Replaced { .. }) => break,
                    Err(error) => panic!("{error}"),
                };
            }
        }
        written
    };
    let (last, written) = std::thread::scope(|scope| {
        let writers = [0, 1, 2].map(|writer| scope.spawn(move || write(writer)));
        let mut filter = first;
        for round in 1..=ROUNDS {
            let before = writes.load(Ordering::Relaxed);
            while writes.load(Ordering::Relaxed) < before + 50 {
                std::thread::yield_now();
            }
            assert!(filter.delete().expect("deleted"));
            filter = create(round);
        }
        done.store(true, Ordering::Relaxed);
        (filter, writers.map(|writer| writer.join().expect("a writer")).concat())
    });
    // No key of another incarnation is in the last one: at this rate not one by chance.
    let (own, others): (Vec<_>, Vec<_>) =
        written.into_iter().partition(|(round, _)| *round == ROUNDS);
    assert!(others.len() as u64 >= 50 * ROUNDS);
    let mut found = Vec::new();
    let keys =
        |written: Vec<(u64, String)>| written.into_iter().map(|(_, key)| key).collect::<Vec<_>>();
    last.contains_many(&keys(others), &mut found).expect("answered");
    assert!(found.iter().all(|found| *found == Found::Absent));
    last.contains_many(&keys(own), &mut found).expect("answered");
    assert!(found.iter().all(|found| *found == Found::Present));
    last.delete().expect("deleted");
    // What late inserts have made of deleted chunks is gone too.
    assert_eq!(keys_on(masters), 0);
}
