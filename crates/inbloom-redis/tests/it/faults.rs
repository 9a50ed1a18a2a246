//! Servers that fail while keys are added.
//!
//! Four threads add distinct keys, and now and then one of theirs a second time, while something happens
//! to the cluster. They go on until it is over, so that it happens to somebody. Afterwards all keys are
//! looked up. What must hold in every case, if every change must be on a replica before it counts:
//!
//! - No key that was acknowledged is absent. It may be reported as lost, if the server lost it.
//! - No acknowledged key is new a second time.
//! - Keys that come for the first time are present at most at the rate; where it cannot be known,
//!   the answer is Unknown.
//!
//! If changes count as soon as the master has them, the same holds, but for faults in which a replica is
//! promoted: Redis may have acknowledged what was not copied, and nobody can know. How many keys that
//! concerned is printed.

use std::collections::HashMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use inbloom_redis::{Added, Durability, Error, Found, Options, RedisFilter};
use inbloom_testing::Random;
use inbloom_testing::redis::{RedisCluster, Reply};

use crate::support::{connect_with, plan};

const THREADS: u64 = 4;
const BATCH: u64 = 500;
const RATE: f64 = 0.01;

fn options(durability: Durability) -> Options {
    let mut options = Options::default();
    options.durability = durability;
    options.response_timeout = Duration::from_secs(1);
    options.deadline = Duration::from_secs(60);
    options
}

/// What the threads saw.
#[derive(Debug, Default)]
struct Tally {
    acknowledged: Vec<u64>,
    new: u64,
    present: u64,
    unknown: u64,
    failed: u64,
    /// Acknowledged keys that were new again, or present only perhaps.
    new_again: u64,
    unknown_again: u64,
    errors: HashMap<String, u64>,
    slowest: Duration,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.acknowledged.extend(other.acknowledged);
        self.new += other.new;
        self.present += other.present;
        self.unknown += other.unknown;
        self.failed += other.failed;
        self.new_again += other.new_again;
        self.unknown_again += other.unknown_again;
        self.slowest = self.slowest.max(other.slowest);
        for (error, count) in other.errors {
            *self.errors.entry(error).or_default() += count;
        }
    }
}

/// How far the threads are, and whether they may stop.
#[derive(Default)]
struct Progress {
    keys: AtomicU64,
    is_over: AtomicBool,
}

/// Adds keys of one thread: so many, and on until the fault is over.
fn add_keys(filter: &RedisFilter, first: u64, keys: u64, progress: &Progress) -> Tally {
    let mut tally = Tally::default();
    let mut random = Random(first);
    let mut answers = Vec::new();
    for start in (first..).step_by(BATCH as usize) {
        if start >= first + keys && progress.is_over.load(Ordering::Relaxed) {
            break;
        }
        let mut batch: Vec<u64> = (start..start + BATCH).collect();
        let fresh = batch.len();
        // A tenth is known already.
        for _ in 0..fresh / 10 {
            batch.extend(random.pick(&tally.acknowledged).copied());
        }
        let began = Instant::now();
        let result = filter.insert_many(&batch, &mut answers);
        tally.slowest = tally.slowest.max(began.elapsed());
        if let Err(error) = result {
            let name = format!("{error:?}").split([' ', '{']).next().unwrap_or_default().to_owned();
            *tally.errors.entry(name).or_default() += 1;
        }
        for (index, (key, answer)) in batch.iter().zip(&answers).enumerate() {
            match (answer, index < fresh) {
                (Added::Failed, _) => tally.failed += 1,
                (Added::New, true) => tally.new += 1,
                (Added::Present, true) => tally.present += 1,
                (Added::Unknown, true) => tally.unknown += 1,
                (Added::New, false) => tally.new_again += 1,
                (Added::Unknown, false) => tally.unknown_again += 1,
                (Added::Present, false) => {}
            }
            if index < fresh && *answer != Added::Failed {
                tally.acknowledged.push(*key);
            }
        }
        progress.keys.fetch_add(fresh as u64, Ordering::Relaxed);
    }
    tally
}

/// What a fault may do to keys that were acknowledged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// Nothing.
    None,
    /// A server loses them, and the client says so.
    Reported,
    /// A replica is promoted. What it does not have yet is lost without a trace, unless it had to have it.
    Promotion,
}

/// Adds keys while `fault` happens, after a quarter of them, and checks what must hold.
fn with_fault(
    name: &str,
    keys: u64,
    durability: Durability,
    loss: Loss,
    fault: impl FnOnce(&mut RedisCluster),
) {
    let loss = match (loss, durability) {
        (Loss::Promotion, Durability::Replicas(_)) => Loss::None,
        _ => loss,
    };
    let name = format!("{name}, {durability:?}");
    let options = || options(durability);
    let Some(mut cluster) = RedisCluster::start("redis-server") else { return };
    let client = connect_with(&cluster.address(), options());
    // 25 chunks: each master has eight, and 3000 slots have four.
    let filter = RedisFilter::create(&client, "f", plan(20_000_000, RATE)).expect("created");
    let progress = Progress::default();
    let each = keys / THREADS;
    let mut tally = Tally::default();
    std::thread::scope(|scope| {
        let (filter, progress) = (&filter, &progress);
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || add_keys(filter, thread << 32, each, progress)))
            .collect();
        while progress.keys.load(Ordering::Relaxed) < keys / 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        fault(&mut cluster);
        progress.is_over.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| tally.add(worker.join().expect("a worker")));
    });
    cluster.wait_until_whole();

    let client = connect_with(&cluster.address(), options());
    let mut counts = HashMap::new();
    match RedisFilter::open(&client, "f") {
        // The node had the description too.
        Err(error @ Error::LostDescription { .. }) => {
            assert!(loss == Loss::Reported, "{name}: {error}");
        }
        Err(error) => panic!("{name}: {error}"),
        Ok(filter) => {
            for batch in tally.acknowledged.chunks(10_000) {
                let mut found = Vec::new();
                let result = filter.contains_many(batch, &mut found);
                assert!(result.is_ok() || loss == Loss::Reported, "{name}: {result:?}");
                for found in found {
                    *counts.entry(found).or_insert(0_u64) += 1;
                }
            }
        }
    }
    let keys = progress.keys.load(Ordering::Relaxed);
    let count = |found| counts.get(&found).copied().unwrap_or(0);
    println!(
        "{name}: {} of {keys} acknowledged; {} new, {} present, {} unknown; {} failed {:?}; \
         slowest batch {:.1} s; again: {} new, {} unknown; afterwards {} absent, {} lost",
        tally.acknowledged.len(),
        tally.new,
        tally.present,
        tally.unknown,
        tally.failed,
        tally.errors,
        tally.slowest.as_secs_f64(),
        tally.new_again,
        tally.unknown_again,
        count(Found::Absent),
        count(Found::Failed),
    );
    if loss != Loss::Promotion {
        assert_eq!(count(Found::Absent), 0, "{name}: false negatives");
        assert_eq!(tally.new_again, 0, "{name}: keys that were new twice");
    }
    // At the end, a part of the planned keys is in: the rate is far below the target.
    let bound = keys as f64 * RATE / 10.0;
    assert!(tally.present as f64 <= bound, "{name}: {} present, at most {bound}", tally.present);
    if loss != Loss::Reported {
        assert_eq!(count(Found::Failed), 0, "{name}: keys that cannot be looked up");
        assert!(tally.acknowledged.len() as u64 >= keys / 2, "{name}: too few acknowledged");
    }
}

fn seconds(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds));
}

fn kill_a_master(cluster: &mut RedisCluster) {
    cluster.nodes[0].kill();
    seconds(6.0);
    cluster.nodes[0].run();
}

fn cut_connections(cluster: &mut RedisCluster) {
    for _ in 0..20 {
        for node in &cluster.nodes {
            // The command's own connection is spared.
            let _ = node.try_ask(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
        seconds(0.05);
    }
}

fn reshard(cluster: &RedisCluster, slots: u32) {
    let id = |node: usize| cluster.nodes[node].ask(&["CLUSTER", "MYID"]).text();
    let mut command = Command::new("redis-cli");
    command.args(["--cluster", "reshard", &format!("127.0.0.1:{}", cluster.nodes[0].port())]);
    command.args(["--cluster-from", &id(0), "--cluster-to", &id(1)]);
    command.args(["--cluster-slots", &slots.to_string(), "--cluster-yes"]);
    let chunks = || match cluster.nodes[0].ask(&["KEYS", "ib:{*"]) {
        Reply::Array(keys) => keys.len(),
        other => panic!("{other:?}"),
    };
    let before = chunks();
    let output = command.output().expect("redis-cli runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    // Chunks that were in use have moved, and clients were told.
    let errors = cluster.nodes[0].ask(&["INFO", "errorstats"]).text();
    println!("{before} chunks before, {} after; {}", chunks(), errors.replace("\r\n", " "));
    assert!(chunks() < before);
    assert!(errors.contains("errorstat_MOVED") || errors.contains("errorstat_ASK"), "{errors}");
}

#[test]
fn no_acknowledged_key_is_lost_when_connections_are_cut() {
    for durability in [Durability::Master, Durability::Replicas(1)] {
        with_fault("connections cut 20 times", 40_000, durability, Loss::None, cut_connections);
    }
}

#[test]
fn no_acknowledged_key_is_lost_when_a_master_is_killed() {
    let durability = Durability::Replicas(1);
    with_fault("kill -9 of a master", 40_000, durability, Loss::Promotion, kill_a_master);
}

fn faults_while_400000_keys_are_added(durability: Durability) {
    let with_fault = |name, loss, fault: fn(&mut RedisCluster)| {
        with_fault(name, 400_000, durability, loss, fault);
    };
    with_fault("connections cut 20 times", Loss::None, cut_connections);
    with_fault("kill -9 of a master", Loss::Promotion, kill_a_master);
    with_fault("replica stalled, then master killed", Loss::Promotion, |cluster| {
        let replica = cluster.replica_of(0);
        cluster.nodes[replica].freeze();
        seconds(1.2);
        cluster.nodes[0].kill();
        cluster.nodes[replica].thaw();
        seconds(6.0);
        cluster.nodes[0].run();
    });
    with_fault("master frozen past the failover", Loss::Promotion, |cluster| {
        cluster.nodes[0].freeze();
        seconds(6.0);
        cluster.nodes[0].thaw();
    });
    with_fault("resharding 3000 slots", Loss::None, |cluster| reshard(cluster, 3000));
    with_fault("FLUSHALL on one master", Loss::Reported, |cluster| {
        cluster.nodes[0].ask(&["FLUSHALL"]);
    });
    with_fault("master restarting empty", Loss::Reported, |cluster| {
        cluster.nodes[0].kill();
        cluster.nodes[0].run();
    });
}

#[test]
#[ignore = "minutes"]
fn faults_while_400000_keys_are_added_to_masters_and_replicas() {
    faults_while_400000_keys_are_added(Durability::Replicas(1));
}

#[test]
#[ignore = "minutes"]
fn faults_while_400000_keys_are_added_to_masters() {
    faults_while_400000_keys_are_added(Durability::Master);
}
