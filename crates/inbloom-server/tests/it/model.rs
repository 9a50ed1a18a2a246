//! Random commands from several connections at once, checked against exact sets: no false negative,
//! false positives within the rate, counts that add up, and one winner where clients race.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sockets::{Answer, Running, request};
use inbloom_server::Config;
use inbloom_testing::Random;

const CONNECTIONS: u64 = 8;
const COMMANDS: u64 = 25_000;
const RATE: f64 = 0.01;

/// A filter of BF.* that one client alone uses.
#[derive(Default)]
struct Bloom {
    items: HashSet<u64>,
    /// Adds that were told to be new.
    new: i64,
    exists: bool,
}

/// What a command must have been answered, checked when the answer is there.
enum Expect {
    Add { filter: usize, items: Vec<u64> },
    Exists { filter: usize, items: Vec<u64> },
    Card { filter: usize },
    Delete { filter: usize },
    CuckooAdd { item: u64 },
    CuckooDelete { item: u64 },
    CuckooExists { item: u64 },
    CuckooCount { item: u64, least: i64 },
    SharedAdd { filter: u64, item: u64 },
    SharedExists { filter: u64, item: u64 },
    Pong,
}

#[derive(Default)]
struct Tally {
    absent: AtomicU64,
    claimed: AtomicU64,
    winners: Mutex<HashMap<(u64, u64), u32>>,
}

#[test]
fn random_commands_of_eight_clients_agree_with_exact_sets() {
    let running = Running::start(Config { threads: 2, ..Config::default() });
    let tally = Tally::default();
    std::thread::scope(|scope| {
        for number in 0..CONNECTIONS {
            let (running, tally) = (&running, &tally);
            scope.spawn(move || drive(running, tally, number));
        }
    });
    let (absent, claimed) =
        (tally.absent.load(Ordering::Relaxed), tally.claimed.load(Ordering::Relaxed));
    assert!(absent > 50_000, "{absent} queries of absent items say little");
    // Filters that are not full err less: the rate is a bound, with five deviations of chance.
    let most = absent as f64 * RATE + 5.0 * (absent as f64 * RATE).sqrt();
    assert!((claimed as f64) < most, "{claimed} of {absent} absent items were claimed");
    let winners = tally.winners.into_inner().unwrap();
    let double = winners.values().filter(|count| **count > 1).count();
    assert_eq!(double, 0, "of {} items, so many were new twice", winners.len());
}

fn drive(running: &Running, tally: &Tally, number: u64) {
    let mut random = Random(0x1b10_0000 + number);
    let mut client = running.connect();
    let mut blooms: Vec<Bloom> = (0..4).map(|_| Bloom::default()).collect();
    let mut cuckoo: HashMap<u64, i64> = HashMap::new();
    let mut shared: HashSet<(u64, u64)> = HashSet::new();
    let mut sent = 0;
    while sent < COMMANDS {
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for _ in 0..1 + random.below(50) {
            let (words, expect) = command(&mut random, number, &mut cuckoo);
            let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
            bytes.extend_from_slice(&request(&words));
            expected.push(expect);
        }
        sent += expected.len() as u64;
        client.stream.write_all(&bytes).unwrap();
        for expect in expected {
            let answer = client.read();
            check(expect, &answer, tally, &mut blooms, &mut shared);
        }
    }
}

/// A random command. What it does to the cuckoo filter is entered at once, since it is certain.
fn command(
    random: &mut Random,
    number: u64,
    cuckoo: &mut HashMap<u64, i64>,
) -> (Vec<String>, Expect) {
    let filter = random.below(4) as usize;
    let name = format!("bloom:{number}:{filter}");
    let items = |random: &mut Random| -> Vec<u64> {
        (0..1 + random.below(20)).map(|_| random.below(20_000)).collect()
    };
    let words = |verb: &str, name: &str, items: &[u64]| -> Vec<String> {
        let items = items.iter().map(|item| format!("item:{item}"));
        [verb.to_owned(), name.to_owned()].into_iter().chain(items).collect()
    };
    let of_cuckoo = |verb: &str, item: u64| words(verb, &format!("cuckoo:{number}"), &[item]);
    match random.below(100) {
        0..20 => {
            let item = vec![random.below(20_000)];
            (words("BF.ADD", &name, &item), Expect::Add { filter, items: item })
        }
        20..30 => {
            let items = items(random);
            (words("BF.MADD", &name, &items), Expect::Add { filter, items })
        }
        30..50 => {
            let item = vec![random.below(20_000)];
            (words("BF.EXISTS", &name, &item), Expect::Exists { filter, items: item })
        }
        50..65 => {
            let items = items(random);
            (words("BF.MEXISTS", &name, &items), Expect::Exists { filter, items })
        }
        65..68 => (words("BF.CARD", &name, &[]), Expect::Card { filter }),
        68 if random.below(20) == 0 => (words("DEL", &name, &[]), Expect::Delete { filter }),
        69..76 => {
            let item = random.below(500);
            *cuckoo.entry(item).or_default() += 1;
            (of_cuckoo("CF.ADD", item), Expect::CuckooAdd { item })
        }
        76..82 => {
            // Only what was added may be removed.
            let item = random.below(500);
            let Some(count) = cuckoo.get_mut(&item).filter(|count| **count > 0) else {
                return (vec!["PING".into()], Expect::Pong);
            };
            *count -= 1;
            (of_cuckoo("CF.DEL", item), Expect::CuckooDelete { item })
        }
        82..86 => {
            let item = random.below(500);
            if *cuckoo.entry(item).or_default() == 0 {
                return (vec!["PING".into()], Expect::Pong);
            }
            (of_cuckoo("CF.EXISTS", item), Expect::CuckooExists { item })
        }
        86..88 => {
            let item = random.below(500);
            let least = cuckoo.get(&item).copied().unwrap_or(0);
            (of_cuckoo("CF.COUNT", item), Expect::CuckooCount { item, least })
        }
        88..94 => {
            let (filter, item) = (random.below(2), random.below(5_000));
            let name = format!("shared:{filter}");
            (words("BF.ADD", &name, &[item]), Expect::SharedAdd { filter, item })
        }
        94..99 => {
            let (filter, item) = (random.below(2), random.below(5_000));
            let name = format!("shared:{filter}");
            (words("BF.EXISTS", &name, &[item]), Expect::SharedExists { filter, item })
        }
        _ => (vec!["PING".into()], Expect::Pong),
    }
}

fn check(
    expect: Expect,
    answer: &Answer,
    tally: &Tally,
    blooms: &mut [Bloom],
    shared: &mut HashSet<(u64, u64)>,
) {
    let list = || match answer {
        Answer::Integer(number) => vec![*number],
        other => other.integers(),
    };
    match expect {
        Expect::Add { filter, items } => {
            let bloom = &mut blooms[filter];
            bloom.exists = true;
            let answers = list();
            assert_eq!(answers.len(), items.len());
            for (item, new) in items.into_iter().zip(answers) {
                let was_in = !bloom.items.insert(item);
                assert!(!(was_in && new == 1), "item {item} was added before and called new");
                if !was_in {
                    tally.absent.fetch_add(1, Ordering::Relaxed);
                    tally.claimed.fetch_add(u64::from(new == 0), Ordering::Relaxed);
                }
                bloom.new += new;
            }
        }
        Expect::Exists { filter, items } => {
            let bloom = &blooms[filter];
            for (item, found) in items.into_iter().zip(list()) {
                if bloom.items.contains(&item) {
                    assert_eq!(found, 1, "a false negative: item {item}");
                } else if bloom.exists {
                    tally.absent.fetch_add(1, Ordering::Relaxed);
                    tally.claimed.fetch_add(found as u64, Ordering::Relaxed);
                } else {
                    assert_eq!(found, 0, "no filter, but an answer");
                }
            }
        }
        Expect::Card { filter } => assert_eq!(answer.integer(), blooms[filter].new),
        Expect::Delete { filter } => {
            assert_eq!(answer.integer(), i64::from(blooms[filter].exists));
            blooms[filter] = Bloom::default();
        }
        Expect::CuckooAdd { item } => assert_eq!(answer.integer(), 1, "adding {item}"),
        Expect::CuckooDelete { item } => assert_eq!(answer.integer(), 1, "removing {item}"),
        Expect::CuckooExists { item } => {
            assert_eq!(answer.integer(), 1, "a false negative: item {item}");
        }
        Expect::CuckooCount { item, least } => {
            let count = answer.integer();
            assert!(
                count >= least,
                "item {item} was added {least} times more than removed: {count}"
            );
        }
        Expect::SharedAdd { filter, item } => {
            shared.insert((filter, item));
            if answer.integer() == 1 {
                *tally.winners.lock().unwrap().entry((filter, item)).or_default() += 1;
            }
        }
        Expect::SharedExists { filter, item } => {
            if shared.contains(&(filter, item)) {
                assert_eq!(answer.integer(), 1, "a false negative: shared item {item}");
            }
        }
        Expect::Pong => assert_eq!(*answer, Answer::Simple("PONG".into())),
    }
}
