//! What was acknowledged is there after kill -9, at whatever instant it came.
//!
//! Each round starts the real server on the folder that the rounds before have left, compares all
//! that it has with what it must have, loads it from four connections, and kills it in the middle;
//! now and then also at the next start, while it recovers. Once for each policy of `--fsync`: a
//! killed process loses none of what it has written, so that all of them keep the same promise
//! here.
//!
//! - `INBLOOM_CRASH_ROUNDS`: rounds for each policy, instead of 10, or 300 of the ignored tests.
//! - `INBLOOM_CRASH_SEED`: the seed, as a failure has printed it. It decides which commands are
//!   sent, but not when the kill comes, which the machine has a part in.
//!
//! `faults.rs` proves that the checker finds what it is for.

mod chance;
mod check;
mod client;
mod faults;
mod load;
mod process;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Shutdown;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chance::Tally;
use check::Question;
use client::{Client, Reply};
use inbloom_testing::Random;
use load::{CONNECTIONS, Families, now, own_database};
use process::Server;
use world::{Filter, Key, Kind, Operation, Shape, World};

#[test]
fn nothing_acknowledged_is_lost_by_a_kill_under_always() {
    survive("always", 10);
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill_under_everysec() {
    survive("everysec", 10);
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill_under_no() {
    survive("no", 10);
}

#[test]
#[ignore = "minutes"]
fn nothing_acknowledged_is_lost_by_300_kills_under_always() {
    survive("always", 300);
}

#[test]
#[ignore = "minutes"]
fn nothing_acknowledged_is_lost_by_300_kills_under_everysec() {
    survive("everysec", 300);
}

#[test]
#[ignore = "minutes"]
fn nothing_acknowledged_is_lost_by_300_kills_under_no() {
    survive("no", 300);
}

fn survive(policy: &str, rounds: u32) {
    let rounds = number_of("INBLOOM_CRASH_ROUNDS").map_or(rounds, |rounds| rounds as u32);
    // Kept whatever goes wrong, a panic included, and removed when nothing has.
    let folder = tempfile::Builder::new().prefix("inbloom-crash-").tempdir().expect("a folder");
    let folder: PathBuf = folder.keep();
    let path = folder.display().to_string();
    let options = ["--dir", &path, "--fsync", policy].map(str::to_owned).to_vec();
    let mut trial = Trial::new(options, End::Kill);
    println!("INBLOOM_CRASH_SEED={}, the folder is {path}", trial.seed);
    if let Err(text) = trial.rounds(rounds) {
        panic!("{text}\nthe folder is kept: {path}");
    }
    println!("--fsync {policy}: {}", trial.report());
    assert!(trial.saves > 0 || rounds < 10, "no BGSAVE was taken on: snapshots were not tested");
    drop(trial);
    std::fs::remove_dir_all(folder).expect("a folder of ours");
}

/// A number from the environment.
fn number_of(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not '{text}'")))
}

/// How a round ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The server is killed, and started again.
    Kill,
    /// The connections are cut, and the server lives: it can have lost nothing.
    Cut,
}

/// A server, or one after another on the same folder, and what it must have.
struct Trial {
    options: Vec<String>,
    end: End,
    seed: u64,
    random: Random,
    server: Option<Server>,
    connections: Vec<Connection>,
    /// When the load has ended.
    ended: u64,
    /// Databases of keys with a short time to live, and when each ends at the latest.
    doomed: Vec<(u32, u64)>,
    tally: Tally,
    round: u32,
    acknowledged: BTreeMap<String, u64>,
    in_flight: u64,
    saves: u64,
    most_items: usize,
    restarts: Vec<Duration>,
}

/// What a connection has done.
struct Connection {
    number: u32,
    world: World,
    in_flight: Vec<Operation>,
    /// The last ones that were acknowledged, for a message.
    last: Vec<Operation>,
    families: Families,
}

/// Filters that all connections add to.
const SHARED: [(&str, Shape); 3] = [
    ("shared:grows", Shape::DEFAULT),
    ("shared:fixed", Shape::of(Kind::Fixed, 0.00001, 400_000)),
    ("shared:buckets", Shape { bucket_size: 4, ..Shape::of(Kind::Buckets, 0.0, 1 << 19) }),
];

impl Trial {
    fn new(options: Vec<String>, end: End) -> Trial {
        let seed = number_of("INBLOOM_CRASH_SEED").unwrap_or_else(now);
        let connection = |number| Connection {
            number,
            world: World::default(),
            in_flight: Vec::new(),
            last: Vec::new(),
            families: Families { connection: number, used: 0 },
        };
        Trial {
            options,
            end,
            seed,
            random: Random(seed),
            server: None,
            connections: (0..CONNECTIONS).map(connection).collect(),
            ended: 0,
            doomed: Vec::new(),
            tally: Tally::default(),
            round: 0,
            acknowledged: BTreeMap::new(),
            in_flight: 0,
            saves: 0,
            most_items: 0,
            restarts: Vec::new(),
        }
    }

    /// So many rounds, and a last look.
    fn rounds(&mut self, rounds: u32) -> Result<(), String> {
        self.step(Trial::begin)?;
        for round in 0..rounds {
            self.round = round;
            self.step(Trial::load)?;
            self.step(Trial::check)?;
        }
        Ok(())
    }

    /// Does something, and tells all about where it went wrong.
    fn step(&mut self, work: fn(&mut Trial) -> Result<(), String>) -> Result<(), String> {
        work(self).map_err(|text| {
            let words = self.server.as_ref().map_or(String::new(), Server::last_words);
            format!(
                "round {}, INBLOOM_CRASH_SEED={}: {text}\nthe server's last words:\n{words}",
                self.round, self.seed
            )
        })
    }

    fn server(&mut self) -> Result<&mut Server, String> {
        if self.server.is_none() {
            // Also while it recovers.
            if self.end == End::Kill && self.random.one_in(4) {
                let pause = Duration::from_micros(self.random.below(30_000));
                Server::start_in_vain(&self.options, pause);
            }
            let server = Server::start(&self.options)?;
            self.restarts.push(server.restart);
            self.server = Some(server);
        }
        Ok(self.server.as_mut().expect("started above"))
    }

    fn client(&mut self) -> Result<Client, String> {
        Ok(self.server()?.connect())
    }

    /// Makes the filters that all add to.
    fn begin(&mut self) -> Result<(), String> {
        let mut client = self.client()?;
        for (name, shape) in SHARED {
            let reply = client.call_all(&[shape.reserve(name)]).remove(0);
            if reply != Reply::Simple("OK".to_owned()) {
                return Err(format!("reserving {name} was answered with {reply:?}"));
            }
            for connection in &mut self.connections {
                let filter = Filter::new(shape, connection.families.draw());
                let key = Key { filter: Arc::new(filter), deadline: None };
                connection.world.databases[0].insert(name.to_owned(), key);
            }
        }
        Ok(())
    }

    /// Sends commands from all connections for a while, and ends it at once.
    fn load(&mut self) -> Result<(), String> {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            clients.push(self.client()?);
        }
        let streams: Vec<_> =
            clients.iter().map(|client| client.stream.try_clone().expect("a socket")).collect();
        let pause = Duration::from_micros(5_000 + self.random.below(145_000));
        let seeds: Vec<u64> = (0..CONNECTIONS).map(|_| self.random.next()).collect();
        let is_over = AtomicBool::new(false);
        let (end, server) = (self.end, self.server.as_mut().expect("it has clients"));
        let connections = &mut self.connections;
        let ended: Vec<load::Ended> = std::thread::scope(|scope| {
            let threads: Vec<_> = connections
                .iter_mut()
                .zip(&mut clients)
                .zip(seeds)
                .map(|((connection, client), seed)| {
                    let is_over = &is_over;
                    let world = std::mem::take(&mut connection.world);
                    let families = &mut connection.families;
                    let mut random = Random(seed);
                    scope.spawn(move || load::drive(client, world, families, &mut random, is_over))
                })
                .collect();
            std::thread::sleep(pause);
            is_over.store(true, Ordering::SeqCst);
            match end {
                End::Kill => server.kill(),
                End::Cut => streams.iter().for_each(|stream| {
                    // It may have ended by itself, which the thread tells.
                    let _ = stream.shutdown(Shutdown::Both);
                }),
            }
            threads.into_iter().map(|thread| thread.join().expect("no panic there")).collect()
        });
        self.ended = now();
        drop(clients);
        let mut failure = None;
        for (connection, ended) in self.connections.iter_mut().zip(ended) {
            self.tally.add_all(&ended.tally);
            for (name, count) in ended.acknowledged {
                *self.acknowledged.entry(name).or_default() += count;
            }
            self.in_flight += ended.in_flight.len() as u64;
            self.saves += ended.saves;
            connection.world = ended.world;
            connection.in_flight = ended.in_flight.into();
            connection.last = ended.last.into();
            let number = connection.number;
            let own = own_database(number);
            let doomed = ended.doomed.iter();
            self.doomed.extend(doomed.map(|(at, until)| (if *at == 0 { 0 } else { own }, *until)));
            failure = failure.or(ended.failure.map(|text| format!("connection {number}: {text}")));
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        match self.end {
            End::Kill => self.server = None,
            End::Cut => self.wait_until_quiet()?,
        }
        Ok(())
    }

    /// Waits until the server has done what it had read from connections that are cut.
    fn wait_until_quiet(&mut self) -> Result<(), String> {
        let mut client = self.client()?;
        for _ in 0..6000 {
            if client.call("CLIENT LIST").text()?.lines().count() == 1 {
                self.ended = now();
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err("connections that were cut are still there after 30 s".to_owned())
    }

    /// Compares all that the server has with what it must have, and settles what was in flight.
    fn check(&mut self) -> Result<(), String> {
        let mut client = self.client()?;
        let families = self.families();
        let shared = self.shared_families();
        for connection in &mut self.connections {
            let question = Question {
                connection: connection.number,
                acknowledged: &connection.world,
                in_flight: &connection.in_flight,
                ended: self.ended,
                families: &families,
                shared: &shared,
            };
            let world = check::check(&mut client, &question, &mut self.random, &mut self.tally);
            connection.world = world.map_err(|text| {
                let last: Vec<String> = connection.last.iter().map(Operation::to_string).collect();
                format!("{text}\nacknowledged last: {}", last.join("; "))
            })?;
            connection.in_flight.clear();
            let keys = connection.world.databases[0].values();
            let most = keys.map(|key| key.filter.size()).max().unwrap_or(0);
            self.most_items = self.most_items.max(most);
        }
        self.check_shared(&mut client)?;
        self.check_names(&mut client)?;
        self.tally.check()
    }

    /// All families that were ever drawn, and how many items of them may be somewhere.
    fn families(&self) -> Vec<(u32, u32)> {
        let mut families: BTreeMap<u32, u32> = BTreeMap::new();
        for connection in &self.connections {
            // Of those that are deleted, the first items.
            let drawn = (1..=connection.families.used)
                .map(|used| (used * CONNECTIONS + connection.number, 20));
            families.extend(drawn);
        }
        let keys = self.connections.iter().flat_map(|it| it.world.databases.iter().flatten());
        for (family, counts) in keys.flat_map(|(_, key)| &key.filter.families) {
            let length = families.entry(*family).or_default();
            *length = (*length).max(counts.len() as u32);
        }
        families.into_iter().collect()
    }

    fn shared_families(&self) -> BTreeSet<u32> {
        let names = SHARED.iter().map(|(name, _)| *name);
        let keys = names.flat_map(|name| {
            self.connections.iter().filter_map(move |it| it.world.databases[0].get(name))
        });
        keys.map(|key| key.filter.own).collect()
    }

    /// Filters that all add to count what all have added.
    fn check_shared(&mut self, client: &mut Client) -> Result<(), String> {
        for (name, shape) in SHARED {
            let info = if shape.is_buckets() { "CF.INFO" } else { "BF.INFO" };
            let found = check::facts(&client.call(&format!("{info} {name}")));
            let found = found.get("Number of items inserted").copied().flatten().unwrap_or(-1);
            let filters = self.connections.iter_mut().map(|it| {
                let key = it.world.databases[0].get_mut(name).expect("it is never deleted");
                Arc::make_mut(&mut key.filter)
            });
            let mut filters: Vec<&mut Filter> = filters.collect();
            let card = filters.iter().map(|filter| filter.card).sum();
            let loose = filters.iter().map(|filter| filter.loose).sum();
            let doubt = filters.iter().map(|filter| filter.doubt).sum();
            let claims = check::judge_card(card, loose, doubt, found, filters[0]);
            let claims =
                claims.map_err(|text| format!("key {name}, of all connections: {text}"))?;
            self.tally.add(&claims);
            // Whose item it was that changed no count is not known, and does not matter for the
            // sum.
            filters[0].card += found - card;
            filters.iter_mut().for_each(|filter| (filter.loose, filter.doubt) = (0, 0));
        }
        Ok(())
    }

    fn report(&self) -> String {
        let mut restarts = self.restarts.clone();
        restarts.sort();
        let commands = self.acknowledged.iter().map(|(name, count)| format!("{name} {count}"));
        let at = |share: f64| restarts[((restarts.len() - 1) as f64 * share) as usize];
        format!(
            "{} rounds, {} commands acknowledged, {} in flight at the end, {} snapshots begun, up \
             to {} items in a filter\n  from start to first answer: median {:.1?}, longest \
             {:.1?}\n  acknowledged: {}\nfalse positives:\n{}",
            self.round + 1,
            self.acknowledged.values().sum::<u64>(),
            self.in_flight,
            self.saves,
            self.most_items,
            at(0.5),
            at(1.0),
            commands.collect::<Vec<_>>().join(", "),
            self.tally.report()
        )
    }

    /// SCAN and DBSIZE tell of the keys that there must be, and of no others.
    fn check_names(&mut self, client: &mut Client) -> Result<(), String> {
        let now = now();
        self.doomed.retain(|(_, deadline)| deadline + UNCLEARED > now);
        let own = self.connections.iter().map(|it| (own_database(it.number), vec![(it, 1)]));
        let all = self.connections.iter().map(|it| (it, 0)).collect();
        for (database, parts) in own.chain([(0, all)]) {
            client.call(&format!("SELECT {database}"));
            let found = scan(client)?;
            let size = client.call("DBSIZE").integer()?;
            let keys = parts.iter().flat_map(|(it, at)| &it.world.databases[*at]);
            let keys: BTreeMap<&String, &Key> = keys.collect();
            if let Some(name) = found.iter().find(|name| !keys.contains_key(name)) {
                return Err(format!(
                    "SCAN of database {database} tells of {name}, which is not there"
                ));
            }
            let is_certain = |key: &Key| !key.is_doomed();
            let missing =
                keys.iter().find(|(name, key)| is_certain(key) && !found.contains(**name));
            if let Some((name, _)) = missing {
                return Err(format!("SCAN of database {database} does not tell of {name}"));
            }
            let certain = keys.values().filter(|key| is_certain(key)).count() as i64;
            let doomed = self.doomed.iter().filter(|(place, _)| *place == database).count() as i64;
            if size < certain || size > certain + doomed {
                return Err(format!(
                    "DBSIZE of database {database} is {size}, expected {certain}, and at most \
                     {doomed} more that have just expired"
                ));
            }
        }
        client.call("SELECT 0");
        Ok(())
    }
}

/// Milliseconds in which a key that has expired is cleared away. Until then DBSIZE counts it, as
/// that of Redis does.
const UNCLEARED: u64 = 5000;

/// All names of the selected database.
fn scan(client: &mut Client) -> Result<BTreeSet<String>, String> {
    let (mut names, mut cursor) = (BTreeSet::new(), "0".to_owned());
    loop {
        let reply = client.call(&format!("SCAN {cursor} COUNT 1000"));
        let Reply::Array(parts) = &reply else { return Err(format!("SCAN: {reply:?}")) };
        let [next, Reply::Array(found)] = &parts[..] else {
            return Err(format!("SCAN: {reply:?}"));
        };
        for name in found {
            names.insert(name.text()?.to_owned());
        }
        cursor = next.text()?.to_owned();
        if cursor == "0" {
            return Ok(names);
        }
    }
}
