//! What a second of a server's processor time does, side by side with k times SETBIT and GETBIT.
//!
//! `cargo test --release -p inbloom-redis --test it speed -- --ignored --nocapture`

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

use inbloom::{Filter, Kind, Plan};
use inbloom_redis::{Found, RedisFilter};
use inbloom_testing::mix;
use inbloom_testing::redis::Redis;

use crate::support::{connect, plan};

const ITEMS: u64 = 1_000_000;
const PER_ROUND: u64 = 50_000;
const ROUNDS: u64 = 7;
/// Keys of a pipeline, as our client sends them.
const PIPELINE: usize = 500;

/// Seconds of processor time of the server's main thread.
fn cpu(server: &Redis) -> f64 {
    let seconds = |field: &str| server.info("cpu", field).trim().parse::<f64>().expect("a number");
    seconds("used_cpu_user_main_thread") + seconds("used_cpu_sys_main_thread")
}

/// Keys for each second of processor time that `work` takes of the server.
fn rate_of(server: &Redis, keys: u64, work: impl FnOnce()) -> f64 {
    let before = cpu(server);
    work();
    keys as f64 / (cpu(server) - before)
}

/// A classic filter in one string, with a command for every bit: what pyreBloom does.
struct BitByBit {
    stream: BufReader<TcpStream>,
    bits: u64,
    probes: u32,
}

impl BitByBit {
    fn new(server: &Redis, rate: f64) -> BitByBit {
        let plan = Plan::builder(Kind::Classic).items(ITEMS).rate(rate).build().expect("a plan");
        let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("connected");
        stream.set_nodelay(true).expect("set");
        BitByBit { stream: BufReader::new(stream), bits: plan.bits(), probes: plan.probes() }
    }

    /// Sends a command for every bit of every key, and returns how many of them were not set.
    fn run(&mut self, keys: &[u64], command: &str, value: &str) -> u64 {
        let mut unset = 0;
        for batch in keys.chunks(PIPELINE) {
            let mut request = String::new();
            for key in batch {
                for probe in 0..u64::from(self.probes) {
                    let offset = (mix(key * 64 + probe) % self.bits).to_string();
                    let count = if value.is_empty() { 3 } else { 4 };
                    // A key as long as those of our chunks.
                    request.push_str(&format!(
                        "*{count}\r\n$6\r\n{command}\r\n$26\r\nclassic-filter-bit-by-bit0\r\n${}\r\n{offset}\r\n{value}",
                        offset.len(),
                    ));
                }
            }
            self.stream.get_mut().write_all(request.as_bytes()).expect("sent");
            let mut replies = vec![0; batch.len() * self.probes as usize * 4];
            self.stream.read_exact(&mut replies).expect("replies");
            unset += replies.chunks(4).filter(|reply| reply == b":0\r\n").count() as u64;
        }
        unset
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[test]
#[ignore = "a measurement: it needs a machine to itself"]
fn speed_beside_bit_by_bit() {
    let Some(server) = Redis::start("redis-server", &[]) else { return };
    let client = connect(&server.address());
    // As they are planned for servers, and with the fewest bits.
    let for_servers = |rate| inbloom_redis::plan(ITEMS, rate).expect("a plan");
    for (rate, ours) in
        [(0.01, for_servers(0.01)), (0.01, plan(ITEMS, 0.01)), (1e-4, for_servers(1e-4))]
    {
        let filter = RedisFilter::create(&client, "f", ours).expect("created");
        let mut theirs = BitByBit::new(&server, rate);
        let (mut adds, mut queries) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for round in 0..ROUNDS {
            let keys: Vec<u64> = (round * PER_ROUND..(round + 1) * PER_ROUND).collect();
            let mut asked = keys[..keys.len() / 2].to_vec();
            asked.extend(keys[keys.len() / 2..].iter().map(|key| key + (1 << 40)));
            let mut found = Vec::new();
            adds[0].push(rate_of(&server, PER_ROUND, || {
                filter.insert_many(&keys, &mut Vec::new()).expect("added");
            }));
            adds[1].push(rate_of(&server, PER_ROUND, || {
                theirs.run(&keys, "SETBIT", "$1\r\n1\r\n");
            }));
            queries[0].push(rate_of(&server, PER_ROUND, || {
                filter.contains_many(&asked, &mut found).expect("answered");
            }));
            let present = found.iter().filter(|found| **found == Found::Present).count() as u64;
            assert!((PER_ROUND / 2..PER_ROUND * 52 / 100).contains(&present));
            queries[1].push(rate_of(&server, PER_ROUND, || {
                assert!(theirs.run(&asked, "GETBIT", "") > PER_ROUND / 2);
            }));
        }
        let [adds, queries] = [adds, queries].map(|rates| rates.map(median));
        println!(
            "rate {rate}, {} probes, {:.2} bits per key (bit by bit: {} probes, {:.2}): adds {:.0} k/s, \
             bit by bit {:.0} k/s, {:.2} times; queries {:.0} k/s, bit by bit {:.0} k/s, {:.2} times",
            ours.probes(),
            ours.bits_per_key(),
            theirs.probes,
            theirs.bits as f64 / ITEMS as f64,
            adds[0] / 1e3,
            adds[1] / 1e3,
            adds[0] / adds[1],
            queries[0] / 1e3,
            queries[1] / 1e3,
            queries[0] / queries[1],
        );
        filter.delete().expect("deleted");
        server.ask(&["DEL", "classic-filter-bit-by-bit0"]);
    }
    const BULK: u64 = 10_000_000;
    for rate in [0.01, 1e-4] {
        let mut local = Filter::new(plan(BULK, rate)).expect("memory");
        local.insert_many(&(0..BULK).collect::<Vec<_>>(), &mut Vec::new()).expect("writable");
        let filter = RedisFilter::create(&client, "bulk", *local.plan()).expect("created");
        let rates = (0..3)
            .map(|_| rate_of(&server, BULK, || filter.merge(&local, |_, _| ()).expect("merged")))
            .collect();
        assert_eq!(filter.occupied().expect("counted"), local.occupied());
        filter.delete().expect("deleted");
        let pushes = (0..3).map(|_| {
            let mut pushed = None;
            let rate = rate_of(&server, BULK, || {
                pushed =
                    Some(RedisFilter::push(&client, "bulk", &local, |_, _| ()).expect("pushed"));
            });
            let pushed = pushed.expect("pushed");
            assert_eq!(pushed.occupied().expect("counted"), local.occupied());
            pushed.delete().expect("deleted");
            rate
        });
        println!(
            "rate {rate}: bulk merge {:.0} M keys/s, push {:.0} M keys/s",
            median(rates) / 1e6,
            median(pushes.collect()) / 1e6,
        );
    }
}
