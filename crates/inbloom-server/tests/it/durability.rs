//! What was acknowledged is there after a loss of power, at whatever moment it comes.
//!
//! A workload of one client runs on a disk that dies after so many operations, for every number of them.
//! After each command all filters are looked at. What is found when the power is back must be what they
//! were after one of the commands: no earlier one than was promised.

mod disk;
mod every_change;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use disk::{Loss, Plan, Staged};
use inbloom::internals::format::MAGIC;
use inbloom_server::persist::disk::Disk;
use inbloom_server::persist::log::Fsync;
use inbloom_server::persist::recovery::{self, Access, Found};
use inbloom_server::persist::{Error, Store};
use inbloom_server::session::Place;
use inbloom_server::{Config, Server, Session};
use inbloom_testing::Random;
use xxhash_rust::xxh3::xxh3_64;

/// A server on a disk, with one client.
struct Machine {
    server: Server,
    store: Arc<Store>,
    session: Option<Session>,
}

fn start(disk: &Staged, fsync: Fsync) -> Result<(Machine, Found), Error> {
    let mut config = Config::default();
    config.settings.fsync = fsync;
    start_with(disk, config)
}

fn start_with(disk: &Staged, config: Config) -> Result<(Machine, Found), Error> {
    let server = Server::new(config);
    let (store, found) = recovery::open(&server, Arc::new(disk.clone()), Access::Use)?;
    let store = Arc::new(store.expect("opened to be used"));
    server.set_store(Arc::clone(&store));
    let client = server.clients.enter("127.0.0.1:1".into(), "127.0.0.1:2".into());
    let session = Some(Session::new(client, &server));
    Ok((Machine { server, store, session }, found))
}

/// One client of a server.
struct Client<'a> {
    server: &'a Server,
    store: &'a Store,
    /// There unless it is lent to somebody.
    session: Option<Session>,
}

impl Machine {
    fn client<R>(&mut self, talk: impl FnOnce(&mut Client<'_>) -> R) -> R {
        let session = self.session.take();
        let mut client = Client { server: &self.server, store: &self.store, session };
        let result = talk(&mut client);
        self.session = client.session;
        result
    }

    fn say(&mut self, line: &str) -> (Vec<u8>, Option<bool>) {
        self.client(|client| client.say(line))
    }

    fn state(&mut self) -> State {
        self.client(|client| client.state())
    }
}

impl Client<'_> {
    /// Asks, and tells whether what was changed, if anything, is kept.
    fn ask(&mut self, words: &[&[u8]]) -> (Vec<u8>, Option<bool>) {
        let mut input = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            input.extend(format!("${}\r\n", word.len()).bytes());
            input.extend_from_slice(word);
            input.extend(b"\r\n");
        }
        let mut out = Vec::new();
        let server = self.server;
        let progress = self.session().process(server, &input, &mut out, Place::Own);
        assert_eq!(progress.consumed, input.len());
        let Some(sequence) = progress.commit else { return (out, None) };
        match self.store.log.commit_here(sequence) {
            Ok(()) => (out, Some(true)),
            Err(failure) => {
                self.session().withdraw(server, &mut out, &failure).expect("little is held");
                (out, Some(false))
            }
        }
    }

    fn say(&mut self, line: &str) -> (Vec<u8>, Option<bool>) {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.ask(&words)
    }

    /// What clients can see of all filters.
    fn state(&mut self) -> State {
        let names = String::from_utf8(self.say("KEYS *").0).expect("these names are text");
        let names: Vec<&str> = names.lines().filter(|line| line.starts_with('f')).collect();
        let mut state = State::new();
        for name in names {
            let mut seen = self.say(&format!("PEXPIRETIME {name}")).0;
            seen.extend(self.say(&format!("DUMP {name}")).0);
            state.insert(name.to_owned(), seen);
        }
        state
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("not lent")
    }

    /// One command of a workload. Whether what it has changed is kept.
    fn command(&mut self, random: &mut Random) -> Option<bool> {
        let name = |random: &mut Random| format!("f{}", random.below(6));
        let item = |random: &mut Random| format!("i{}", random.below(ITEMS));
        let items = |random: &mut Random| {
            let count = 1 + random.below(12);
            (0..count).map(|_| item(random)).collect::<Vec<_>>().join(" ")
        };
        let key = name(random);
        let line = match random.below(24) {
            0..=3 => {
                let form = RESERVATIONS[random.below(RESERVATIONS.len() as u64) as usize];
                form.replace("{}", &key)
            }
            4..=10 => format!("BF.INSERT {key} NOCREATE ITEMS {}", items(random)),
            11..=13 => format!("CF.INSERT {key} NOCREATE ITEMS {}", items(random)),
            14 => format!("CF.DEL {key} {}", item(random)),
            15 => format!("IB.DEL {key} {}", items(random)),
            16 => format!("DEL {key}"),
            17 => format!("RENAME {key} {}", name(random)),
            18 => format!("PEXPIREAT {key} {}", 4_000_000_000_000 + random.below(1000)),
            19 => format!("PERSIST {key}"),
            20 => format!("IB.MERGE {} {key}", name(random)),
            21 => format!("CF.COMPACT {key}"),
            _ => {
                let (dump, _) = self.say(&format!("DUMP {key}"));
                let at = dump.windows(2).position(|two| two == b"\r\n")?;
                if dump.len() < at + 4 {
                    return None;
                }
                let payload = &dump[at + 2..dump.len() - 2];
                let to = name(random);
                return self.ask(&[b"RESTORE", to.as_bytes(), b"0", payload, b"REPLACE"]).1;
            }
        };
        self.say(&line).1
    }
}

type State = BTreeMap<String, Vec<u8>>;

/// Different items of a workload.
const ITEMS: u64 = 60;

/// What a workload has done until the power was gone.
#[derive(Default)]
struct History {
    /// All filters, after so many commands.
    states: Vec<State>,
    /// The last command that was acknowledged,
    acknowledged: usize,
    /// and that must have survived a loss of power.
    promised: usize,
    /// Whether a change was withdrawn.
    has_failed: bool,
}

/// Reservations of every kind that behaves differently.
const RESERVATIONS: [&str; 9] = [
    "BF.RESERVE {} 0.00001 20",
    "BF.RESERVE {} 0.00001 1000 NONSCALING",
    "BF.RESERVE {} 0.0001 100 KIND counting",
    "BF.RESERVE {} 0.0001 100 KIND cuckoo",
    "BF.RESERVE {} 0.0001 100 KIND classic",
    "BF.RESERVE {} 0.0001 100 WINDOW 1h",
    "BF.RESERVE {} 0.0001 100 AUTOCLEAR 0.4",
    "BF.RESERVE {} 0.0001 10 KIND redisbloom",
    "CF.RESERVE {} 16",
];

/// Runs a workload until its end, or until the disk is dead.
fn run(disk: &Staged, fsync: Fsync, seed: u64, commands: usize) -> History {
    let mut history = History::default();
    history.states.push(State::new());
    let Ok((mut machine, _)) = start(disk, fsync) else { return history };
    let mut random = Random(seed);
    for step in 1..=commands {
        let is_kept = match random.below(20) {
            0 => {
                if machine.store.snapshot(&machine.server).is_ok() {
                    history.promised = step - 1;
                }
                None
            }
            1 => {
                // What happens every second, or twice a second in trouble.
                machine.store.log.settle();
                if machine.store.log.is_distrusted() {
                    let _ = machine.store.snapshot(&machine.server);
                }
                if machine.store.log.sync().is_ok() && machine.server.trouble().is_none() {
                    history.promised = step - 1;
                }
                None
            }
            _ => machine.client(|client| client.command(&mut random)),
        };
        history.states.push(machine.state());
        if is_kept == Some(true) {
            history.acknowledged = step;
            if fsync == Fsync::Always {
                history.promised = step;
            }
        }
        history.has_failed |= is_kept == Some(false);
    }
    history
}

/// Opens what is left of a disk, and sees that it is what the history had, and stays so.
fn check(disk: &Staged, history: &History, least: usize, what: &str) {
    let (mut machine, found) = match start(disk, Fsync::Always) {
        Ok(started) => started,
        Err(error) => panic!("{what}: the folder cannot be used: {error}"),
    };
    // Sectors that came to the disk out of order look like damage of the log.
    let is_torn = |what: &String| what.starts_with("log-");
    assert!(found.damaged.iter().all(is_torn), "{what}: {:?}", found.damaged);
    let state = machine.state();
    let states = history.states.iter().enumerate();
    let is_one = states.skip(least).any(|(_, expected)| *expected == state);
    if !is_one {
        let earlier = history.states.iter().rposition(|expected| *expected == state);
        let differing = |expected: &State| -> Vec<String> {
            let names: BTreeSet<&String> = state.keys().chain(expected.keys()).collect();
            let names = names.into_iter().filter(|name| state.get(*name) != expected.get(*name));
            names.cloned().collect()
        };
        let (nearest, expected) = history
            .states
            .iter()
            .enumerate()
            .skip(least)
            .min_by_key(|(_, expected)| differing(expected).len())
            .expect("the last one");
        let differing = differing(expected);
        let name = differing.first().expect("they differ");
        let shown = |seen: Option<&Vec<u8>>| seen.map(|seen| seen.escape_ascii().to_string());
        panic!(
            "{what}: of {} commands {least} were promised, found is that of {earlier:?}, nearest is \
             {nearest}, which differs in {differing:?}\n  expected {:?}\n  found    {:?}",
            history.states.len() - 1,
            shown(expected.get(name)),
            shown(state.get(name)),
        );
    }
    // And once more, by a snapshot: what was recovered can be recovered.
    machine.store.snapshot(&machine.server).expect("this disk works");
    let (mut again, _) = start(disk, Fsync::Always).expect("it was written a moment ago");
    assert!(again.state() == state, "{what}: a snapshot of what was found has something else");
}

/// Runs workloads with every loss at every operation of the disk, or every so manieth.
fn stage(fsync: Fsync, seeds: Range<u64>, commands: usize, stride: u64) -> u64 {
    let mut points = 0;
    for seed in seeds {
        let whole = Staged::new(Plan::default());
        let history = run(&whole, fsync, seed, commands);
        assert!(!history.has_failed, "seed {seed}: nothing goes wrong here");
        let mut point = 1 + seed % stride;
        while point < whole.operations() {
            let disk = Staged::new(Plan { dies_after: Some(point), ..Plan::default() });
            let history = run(&disk, fsync, seed, commands);
            for loss in [Loss::Nothing, Loss::Tail, Loss::Anything, Loss::All] {
                let least =
                    if loss == Loss::Nothing { history.acknowledged } else { history.promised };
                let what = format!("{fsync:?}, seed {seed}, operation {point}, loss {loss:?}");
                check(&disk.after(loss, point), &history, least, &what);
                points += 1;
            }
            point += stride;
        }
    }
    points
}

/// Seeds of workloads.
const SEEDS: Range<u64> = 1..7;

#[test]
fn always_loses_nothing_at_any_moment() {
    let points = stage(Fsync::Always, SEEDS, 80, 1);
    assert!(points > 1500, "{points} crash points");
}

#[test]
fn everysec_loses_nothing_older_than_the_last_sync() {
    let points = stage(Fsync::EverySecond, SEEDS, 80, 1);
    assert!(points > 1000, "{points} crash points");
}

#[test]
fn no_loses_nothing_older_than_the_last_snapshot_and_nothing_by_a_kill() {
    let points = stage(Fsync::No, SEEDS, 80, 1);
    assert!(points > 1000, "{points} crash points");
}

#[test]
#[ignore = "minutes"]
fn nothing_is_lost_at_thousands_of_moments_more() {
    for fsync in [Fsync::Always, Fsync::EverySecond, Fsync::No] {
        println!("{fsync:?}: {} crash points", stage(fsync, 100..160, 120, 1));
    }
}

/// Whatever a sync that has failed was to save is not trusted: it is saved anew, or not acknowledged.
#[test]
fn after_a_failed_sync_nothing_acknowledged_is_lost() {
    let mut failures = 0;
    for seed in SEEDS {
        let whole = Staged::new(Plan::default());
        run(&whole, Fsync::Always, seed, 80);
        for sync in 1..=whole.syncs() {
            let plan = Plan { failing_sync: Some(sync), ..Plan::default() };
            let disk = Staged::new(plan);
            let history = run(&disk, Fsync::Always, seed, 80);
            failures += usize::from(history.has_failed);
            for loss in [Loss::Nothing, Loss::Tail, Loss::Anything, Loss::All] {
                let what = format!("seed {seed}, sync {sync} fails, loss {loss:?}");
                check(&disk.after(loss, sync), &history, history.promised, &what);
            }
        }
    }
    assert!(failures > 50, "{failures} of the workloads have noticed");
}

/// A full disk refuses changes, answers queries, and takes changes again when there is room.
#[test]
fn a_full_disk_loses_nothing_and_recovers() {
    let (mut failures, mut recoveries) = (0, 0);
    for seed in SEEDS {
        let whole = Staged::new(Plan::default());
        run(&whole, Fsync::EverySecond, seed, 80);
        for from in (5..whole.operations()).step_by(3) {
            let full = Some((from, from + 12));
            let disk = Staged::new(Plan { full, ..Plan::default() });
            let history = run(&disk, Fsync::EverySecond, seed, 80);
            failures += usize::from(history.has_failed);
            recoveries += usize::from(history.has_failed && history.acknowledged > 70);
            for loss in [Loss::Nothing, Loss::Tail, Loss::All] {
                let least = match loss {
                    Loss::Nothing => history.acknowledged,
                    _ => history.promised,
                };
                let what = format!("seed {seed}, full from operation {from}, loss {loss:?}");
                check(&disk.after(loss, from), &history, least, &what);
            }
        }
    }
    assert!(failures > 30 && recoveries > 10, "{failures} noticed, {recoveries} recovered");
}

/// A kill, a start under another policy, and then a loss of power: what was acknowledged before the kill
/// is not on the disk yet.
#[test]
fn what_a_kill_left_to_the_system_is_safe_after_the_next_start() {
    for seed in SEEDS {
        let disk = Staged::new(Plan::default());
        let history = run(&disk, Fsync::No, seed, 60);
        let killed = disk.after(Loss::Nothing, seed);
        let (mut machine, _) = start(&killed, Fsync::Always).expect("nothing is lost");
        assert_eq!(machine.say("BF.ADD later item").1, Some(true));
        for loss in [Loss::Tail, Loss::Anything, Loss::All] {
            let (mut again, found) = start(&killed.after(loss, seed), Fsync::Always)
                .unwrap_or_else(|error| panic!("seed {seed}, loss {loss:?}: {error}"));
            assert!(found.damaged.is_empty(), "{:?}", found.damaged);
            assert!(again.say("BF.EXISTS later item").0.starts_with(b":1"));
            assert!(again.state() == history.states[history.states.len() - 1], "seed {seed}");
        }
    }
}

/// Others go on while a snapshot is written: whenever it writes, a command is done. All are acknowledged.
#[test]
fn changes_during_a_snapshot_are_neither_lost_nor_made_twice() {
    let mut commands = 0;
    for seed in 1..60 {
        let disk = Staged::new(Plan::default());
        let history = run(&disk, Fsync::Always, seed, 40);
        assert!(!history.has_failed);
        let (machine, _) = start(&disk, Fsync::Always).expect("sound");
        let Machine { server, store, session } = machine;
        let server = Arc::new(server);
        let (here, its_store) = (Arc::clone(&server), Arc::clone(&store));
        let machine = Arc::new(Mutex::new((session, Random(seed), 0)));
        let inner = Arc::clone(&machine);
        disk.meanwhile(Some(Box::new(move || {
            let (session, random, count) = &mut *inner.lock().expect("no panic");
            let mut busy = Client { server: &here, store: &its_store, session: session.take() };
            for _ in 0..1 + random.below(4) {
                assert_ne!(busy.command(random), Some(false));
                *count += 1;
            }
            *session = busy.session;
        })));
        for _ in 0..3 {
            store.snapshot(&*server).expect("a disk that works");
            // Power is lost, or the process killed, right after; or much later.
            let expected = {
                let (session, _, _) = &mut *machine.lock().expect("no panic");
                let mut client = Client { server: &server, store: &store, session: session.take() };
                let expected = client.state();
                *session = client.session;
                expected
            };
            for loss in [Loss::Nothing, Loss::Tail, Loss::All] {
                let (mut again, found) = start(&disk.after(loss, seed), Fsync::Always)
                    .unwrap_or_else(|error| panic!("seed {seed}, loss {loss:?}: {error}"));
                assert!(found.damaged.is_empty(), "seed {seed}: {:?}", found.damaged);
                let found = again.state();
                let differing: Vec<&String> = expected
                    .keys()
                    .chain(found.keys())
                    .filter(|name| expected.get(*name) != found.get(*name))
                    .collect();
                assert!(differing.is_empty(), "seed {seed}, loss {loss:?}: {differing:?}");
            }
        }
        disk.meanwhile(None);
        commands += machine.lock().expect("no panic").2;
    }
    assert!(commands > 1000, "{commands} commands");
}

#[test]
fn a_full_disk_is_told_and_queries_are_answered() {
    let disk = Staged::new(Plan { full: Some((8, 30)), ..Plan::default() });
    let (mut machine, _) = start(&disk, Fsync::EverySecond).expect("room for a beginning");
    let mut replies = Vec::new();
    for item in 0..10 {
        let (reply, _) = machine.say(&format!("BF.ADD f i{item}"));
        replies.push(String::from_utf8(reply).expect("text"));
    }
    let refused: Vec<&String> =
        replies.iter().filter(|reply| reply.starts_with("-MISCONF")).collect();
    assert!(!refused.is_empty(), "{replies:?}");
    assert!(refused[0].contains("--dir") && refused[0].contains("queries"), "{}", refused[0]);
    assert!(machine.say("BF.EXISTS f i0").0.starts_with(b":1"));
    // What every half second does, until there is room.
    (0..40).for_each(|_| machine.store.log.settle());
    assert_eq!(machine.say("BF.ADD f again").1, Some(true));
    let (mut again, _) = start(&disk.after(Loss::Nothing, 1), Fsync::No).expect("sound");
    for (item, reply) in replies.iter().enumerate().filter(|(_, reply)| reply.starts_with(':')) {
        let found = again.say(&format!("BF.EXISTS f i{item}")).0;
        assert!(found.starts_with(b":1"), "item {item} was acknowledged with {reply:?}");
    }
}

#[test]
fn errors_in_the_place_of_replies_count_as_held_by_the_client() {
    let disk = Staged::new(Plan { full: Some((8, 30)), ..Plan::default() });
    let mut config = Config::default();
    config.settings.fsync = Fsync::Always;
    config.settings.max_client_memory = 1 << 20;
    let (mut machine, _) = start_with(&disk, config).expect("room for a beginning");
    let mut withdrawn = None;
    machine.client(|client| {
        for round in 0..20 {
            let lines = (0..20_000).map(|item| format!("BF.ADD f {round}:{item}\r\n"));
            let (input, mut out) = (lines.collect::<String>(), Vec::new());
            let server = client.server;
            let progress = client.session().process(server, input.as_bytes(), &mut out, Place::Own);
            let sequence = progress.commit.expect("items were added");
            if let Err(failure) = client.store.log.commit_here(sequence) {
                let result = client.session().withdraw(server, &mut out, &failure);
                withdrawn = Some((result, out));
                break;
            }
        }
    });
    let (result, out) = withdrawn.expect("the disk is full");
    let error = result.expect_err("20,000 errors take more than a MiB").to_string();
    assert!(error.contains("--max-client-memory"), "{error}");
    assert!(out.capacity() <= 1 << 20, "{} bytes were built", out.capacity());
}

/// A folder with two snapshots and a log, of 40 filters.
fn sound() -> (Staged, State) {
    let disk = Staged::new(Plan::default());
    let (mut machine, _) = start(&disk, Fsync::Always).expect("empty");
    for round in 0..3 {
        for key in 0..40 {
            let (_, kept) = machine.say(&format!("BF.MADD f{key} i{round} i{}", 10 + round));
            assert_eq!(kept, Some(true));
        }
        if round < 2 {
            machine.store.snapshot(&machine.server).expect("a disk that works");
        }
    }
    let state = machine.state();
    (disk, state)
}

#[test]
fn a_damaged_image_keeps_no_other_filter_from_starting() {
    let (disk, state) = sound();
    let packs: Vec<String> =
        disk.names().expect("names").into_iter().filter(|name| name.starts_with("pack-")).collect();
    let pack = packs.last().expect("two snapshots");
    let length = disk.bytes(pack).len();
    let mut worst = 0;
    for at in (32..length).step_by(37) {
        let damaged = disk.after(Loss::Nothing, 1);
        damaged.damage(pack, at);
        let (mut machine, found) = start(&damaged, Fsync::Always).expect("others start");
        assert!(!found.damaged.is_empty(), "byte {at} is damaged, and nobody says so");
        let left = machine.state();
        let lost = state.iter().filter(|(name, _)| !left.contains_key(*name)).count();
        let differing = left.iter().filter(|(name, seen)| state.get(*name) != Some(seen)).count();
        assert_eq!(differing, 0, "byte {at}: what starts is as it was");
        worst = worst.max(lost);
        let names = damaged.names().expect("names");
        assert!(names.iter().any(|name| name.starts_with("damaged-")), "byte {at}: {names:?}");
        // The next snapshot builds on nothing that was damaged.
        machine.store.snapshot(&machine.server).expect("a disk that works");
        let (mut again, found) = start(&damaged, Fsync::Always).expect("sound again");
        assert!(found.damaged.is_empty(), "byte {at}: {:?}", found.damaged);
        assert!(again.state() == left, "byte {at}");
    }
    assert!(worst >= 1, "some byte belongs to a filter");
}

#[test]
fn a_log_that_is_damaged_before_its_end_is_refused_unless_repaired() {
    let (disk, state) = sound();
    // A second file of the log follows.
    let (mut machine, _) = start(&disk, Fsync::Always).expect("sound");
    machine.say("BF.ADD f0 later");
    let mut logs: Vec<String> =
        disk.names().expect("names").into_iter().filter(|name| name.starts_with("log-")).collect();
    logs.sort();
    assert_eq!(logs.len(), 2, "{logs:?}");
    disk.damage(&logs[0], disk.bytes(&logs[0]).len() / 2);
    let error = start(&disk, Fsync::Always).err().expect("records are lost");
    let text = error.to_string();
    assert!(text.contains(&logs[0]) && text.contains("--repair"), "{text}");
    // To look changes nothing.
    let server = Server::new(Config::default());
    let looked = recovery::open(&server, Arc::new(disk.clone()), Access::Check);
    assert!(matches!(looked, Err(Error::Damaged { .. })));
    let server = Server::new(Config::default());
    let (store, found) =
        recovery::open(&server, Arc::new(disk.clone()), Access::Repair).expect("told");
    assert_eq!(found.filters, state.len() as u64);
    assert!(!found.damaged.is_empty());
    drop(store);
    // What was given up does not come back, however many changes follow.
    for _ in 0..3 {
        let (mut machine, found) = start(&disk, Fsync::Always).expect("repaired");
        assert!(found.damaged.iter().all(|what| !what.contains("after it")), "{:?}", found.damaged);
        for item in 0..100 {
            assert_eq!(machine.say(&format!("BF.ADD new i{item}")).1, Some(true));
        }
        assert!(machine.say("BF.EXISTS f0 later").0.starts_with(b":0"));
    }
}

#[test]
fn damage_inside_the_last_file_of_the_log_is_told_and_kept() {
    let (disk, state) = sound();
    let mut logs = disk.names().expect("names");
    logs.retain(|name| name.starts_with("log-"));
    let log = &logs[0];
    disk.damage(log, disk.bytes(log).len() / 2);
    let (mut machine, found) = start(&disk, Fsync::Always).expect("it may be a loss of power");
    assert_eq!(found.damaged.len(), 1, "{:?}", found.damaged);
    assert!(found.damaged[0].contains(log), "{:?}", found.damaged);
    assert_eq!(found.cut, 0, "what is damaged is reported once");
    assert!(disk.names().expect("names").iter().any(|name| name.starts_with("damaged-log-")));
    assert_eq!(machine.state().len(), state.len(), "what the snapshot has is there");
}

#[test]
fn a_folder_belongs_to_its_hash() {
    let (disk, _) = sound();
    let key = inbloom::SecretKey::new([7; 16]);
    let server = Server::new(Config { key: Some(key), ..Config::default() });
    let error = recovery::open(&server, Arc::new(disk), Access::Use).err().expect("another hash");
    assert!(error.to_string().contains("without --keyed"), "{error}");
}

/// A filter that is opened by IB.OPEN is kept by its path.
#[test]
fn a_file_that_was_opened_is_opened_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().canonicalize().expect("a path");
    let plan = inbloom::Plan::builder(inbloom::Kind::Blocked).items(100).rate(0.001);
    let mut filter = inbloom::Filter::new(plan.build().expect("a plan")).expect("small");
    filter.insert("alice").expect("room");
    filter.save(folder.join("list.ib")).expect("a file");
    let disk = Staged::new(Plan::default());
    let config = || Config { import_dir: Some(folder.clone()), ..Config::default() };
    let (mut machine, _) = start_with(&disk, config()).expect("empty");
    assert_eq!(machine.say("IB.OPEN f list.ib").1, Some(true));
    let (mut machine, _) = start_with(&disk, config()).expect("by the log");
    assert!(machine.say("BF.EXISTS f alice").0.starts_with(b":1"));
    machine.store.snapshot(&machine.server).expect("a disk that works");
    let error = start_with(&disk, Config::default()).err().expect("where should it look?");
    assert!(error.to_string().contains("--import-dir"), "{error}");
    let (mut machine, _) = start_with(&disk, config()).expect("by the snapshot");
    assert!(machine.say("BF.EXISTS f alice").0.starts_with(b":1"));
}

/// Also if it is a list that takes no changes: 17 GB of it would be copied.
#[test]
fn a_list_that_was_opened_is_kept_by_its_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().canonicalize().expect("a path");
    let hasher = inbloom::Hasher::default();
    let digests: Vec<_> = (0..100_000).map(|key: u64| hasher.digest(key.to_string())).collect();
    let plan = inbloom::Plan::builder(inbloom::Kind::Ribbon).items(100_000).rate(0.001);
    let plain = inbloom::Filter::build(plan.build().expect("a plan"), hasher, &digests);
    let plain = plain.expect("a filter");
    let mut changed = plain.clone().into_overlay(0.001).expect("a list");
    assert!(changed.remove("7").expect("an open list"));
    let disk = Staged::new(Plan::default());
    let on_disk = || {
        let names = disk.names().expect("names").into_iter();
        names.map(|name| disk.bytes(&name).len()).sum::<usize>()
    };
    let config = || Config { import_dir: Some(folder.clone()), ..Config::default() };
    for (name, list, other) in [("f1", &plain, &changed), ("f2", &changed, &plain)] {
        list.save(folder.join(name)).expect("a file");
        let (mut machine, _) = start_with(&disk, config()).expect("sound");
        let before = on_disk();
        assert_eq!(machine.say(&format!("IB.OPEN {name} {name}")).1, Some(true));
        machine.store.snapshot(&machine.server).expect("a disk that works");
        let more = on_disk().saturating_sub(before);
        assert!(more < 10_000, "{more} bytes of a file of {}", list.bytes());
        // It is the file that answers after a start, whichever is there then.
        other.save(folder.join(name)).expect("a file");
        let (mut machine, _) = start_with(&disk, config()).expect("by the snapshot");
        let expected = format!("*2\r\n:1\r\n:{}\r\n", u8::from(other.contains("7")));
        let answers = machine.say(&format!("BF.MEXISTS {name} 6 7")).0;
        assert_eq!(String::from_utf8(answers).expect("text"), expected, "{name}");
    }
}

/// Files of filters that were deleted, or have others by now, do not stay.
#[test]
fn files_are_removed_when_nothing_names_them() {
    let disk = Staged::new(Plan::default());
    let (mut machine, _) = start(&disk, Fsync::Always).expect("empty");
    let files = |disk: &Staged| {
        let names = disk.names().expect("names").into_iter();
        names.filter(|name| name.starts_with("filter-")).count()
    };
    machine.say("BF.RESERVE f 0.001 2000000");
    machine.say("BF.ADD f i1");
    machine.store.snapshot(&machine.server).expect("a disk that works");
    assert_eq!(files(&disk), 1, "it is large");
    machine.say("BF.ADD f i2");
    machine.store.snapshot(&machine.server).expect("a disk that works");
    assert_eq!(files(&disk), 1, "a newer one");
    machine.say("DEL f");
    // Two starts with the removal in the log alone: the snapshot still names the file.
    for _ in 0..2 {
        let (_, found) = start(&disk, Fsync::Always).expect("sound");
        assert!(found.damaged.is_empty(), "{:?}", found.damaged);
    }
    let (machine, _) = start(&disk, Fsync::Always).expect("sound");
    machine.store.snapshot(&machine.server).expect("a disk that works");
    assert_eq!(files(&disk), 0, "it is gone");
}

#[test]
fn a_torn_end_of_the_log_is_cut_and_reported() {
    let (disk, state) = sound();
    let mut logs: Vec<String> =
        disk.names().expect("names").into_iter().filter(|name| name.starts_with("log-")).collect();
    logs.sort();
    let log = logs.last().expect("one");
    let bytes = disk.bytes(log);
    for cut in (32..bytes.len()).step_by(11) {
        let torn = disk.after(Loss::Nothing, 1);
        torn.put(log, &bytes[..cut]);
        let (mut machine, found) = start(&torn, Fsync::Always).expect("a torn end is usual");
        assert!(found.damaged.is_empty());
        assert_eq!(machine.state().len(), state.len());
        assert!(found.cut < 60, "a record at most, not {} bytes", found.cut);
        assert_eq!(machine.say("BF.ADD f0 more").1, Some(true));
        let (mut again, _) = start(&torn, Fsync::Always).expect("and goes on");
        assert!(again.say("BF.EXISTS f0 more").0.starts_with(b":1"));
    }
}

#[test]
fn folders_that_are_not_ours_are_refused_with_the_remedy() {
    let (disk, _) = sound();
    let text = |disk: &Staged| match start(disk, Fsync::Always) {
        Ok(_) => panic!("it must not start"),
        Err(error) => error.to_string(),
    };
    let manifest = String::from_utf8(disk.bytes("MANIFEST")).expect("a text");

    let newer = disk.after(Loss::Nothing, 1);
    newer.put("MANIFEST", manifest.replace("inbloom data 1", "inbloom data 9").as_bytes());
    assert!(text(&newer).contains("upgrade"), "{}", text(&newer));

    let damaged = disk.after(Loss::Nothing, 1);
    damaged.damage("MANIFEST", 20);
    assert!(text(&damaged).contains("backup"), "{}", text(&damaged));

    let without = disk.after(Loss::Nothing, 1);
    without.remove("MANIFEST").expect("there");
    assert!(text(&without).contains("no MANIFEST"), "{}", text(&without));
}

#[test]
fn a_folder_is_for_one_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = inbloom_server::persist::lock(folder.path()).expect("free");
    let second = inbloom_server::persist::lock(folder.path()).expect_err("taken");
    assert!(second.to_string().contains("another process"), "{second}");
    drop(lock);
    inbloom_server::persist::lock(folder.path()).expect("free again");
}

#[test]
fn a_folder_without_its_lock_file_is_still_for_one_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = inbloom_server::persist::lock(folder.path()).expect("free");
    std::fs::remove_file(folder.path().join("LOCK")).expect("there");
    let second = inbloom_server::persist::lock(folder.path()).expect_err("taken");
    assert!(second.to_string().contains("another process"), "{second}");
    std::fs::remove_file(folder.path().join("LOCK")).expect("made by the second");
    let looked = inbloom_server::persist::look_at_folder(folder.path()).expect_err("taken");
    assert!(looked.to_string().contains("another process"), "{looked}");
    drop(lock);
    inbloom_server::persist::lock(folder.path()).expect("free again");
}

fn open(disk: &Staged, access: Access) -> Result<(Server, Option<Store>, Found), Error> {
    let server = Server::new(Config::default());
    let (store, found) = recovery::open(&server, Arc::new(disk.clone()), access)?;
    Ok((server, store, found))
}

#[test]
fn a_file_that_the_manifest_names_must_be_there() {
    let (disk, _) = sound();
    // Three starts, each with a change: a file of the log each.
    for item in 0..3 {
        let (mut machine, _) = start(&disk, Fsync::Always).expect("sound");
        assert_eq!(machine.say(&format!("BF.ADD f0 later{item}")).1, Some(true));
    }
    let (mut machine, _) = start(&disk, Fsync::Always).expect("sound");
    let state = machine.state();
    drop(machine);
    let mut names = disk.names().expect("names");
    names.retain(|name| name.starts_with("log-") || name.starts_with("pack-"));
    assert_eq!(names.len(), 2 + 5, "{names:?}");
    for name in names {
        let without = disk.after(Loss::Nothing, 1);
        without.remove(&name).expect("there");
        for access in [Access::Use, Access::Check] {
            let error = open(&without, access).err().unwrap_or_else(|| panic!("{name} is missing"));
            let text = error.to_string();
            assert!(text.contains(&name) && text.contains("--repair"), "{access:?}: {text}");
        }
        let (server, store, found) = open(&without, Access::Repair).expect("told to");
        assert!(found.damaged.iter().any(|what| what.contains(&name)), "{:?}", found.damaged);
        let store = Arc::new(store.expect("to be used"));
        server.set_store(Arc::clone(&store));
        store.snapshot(&server).expect("a disk that works");
        drop((server, store));
        // From then on all is sound, and what is acknowledged then is kept.
        let (mut machine, found) = start(&without, Fsync::Always).expect("repaired");
        assert!(found.damaged.is_empty(), "{name}: {:?}", found.damaged);
        let repaired = machine.state();
        assert!(repaired.keys().all(|key| state.contains_key(key)), "{name}");
        for key in state.keys() {
            assert_eq!(machine.say(&format!("BF.ADD {key} i4")).1, Some(true), "{name}");
        }
        let (mut again, _) = start(&without, Fsync::Always).expect("sound");
        for key in state.keys() {
            let found = again.say(&format!("BF.EXISTS {key} i4")).0;
            assert!(found.starts_with(b":1"), "{name}: {key} was acknowledged");
        }
    }
}

#[test]
fn all_logs_gone_is_refused_also_in_a_folder_that_never_had_a_snapshot() {
    let disk = Staged::new(Plan::default());
    let (mut machine, _) = start(&disk, Fsync::Always).expect("empty");
    assert_eq!(machine.say("BF.ADD f x").1, Some(true));
    drop(machine);
    let mut logs = disk.names().expect("names");
    logs.retain(|name| name.starts_with("log-"));
    for log in &logs {
        disk.remove(log).expect("there");
    }
    for access in [Access::Use, Access::Check] {
        let text = open(&disk, access).err().expect("the log is gone").to_string();
        assert!(text.contains(&logs[0]) && text.contains("--repair"), "{text}");
    }
}

/// Gives all filters in a file of the log, or of a snapshot, another layout. Their checksums, and those
/// of the frames, are right.
fn set_layout(disk: &Staged, file: &str, layout: u16) {
    const LAYOUT: usize = 54;
    const CHECKSUM: usize = 120;
    let (mut bytes, mut at, mut patched) = (disk.bytes(file), 32, 0);
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().expect("4 bytes"));
    while at + 8 < bytes.len() {
        let length = number(&bytes[at..]) as usize;
        let Some(frame) = bytes.get_mut(at..at + 8 + length) else { break };
        let (head, body) = frame.split_at_mut(8);
        if let Some(start) = body.windows(8).position(|window| window == MAGIC) {
            let filter = &mut body[start..];
            filter[LAYOUT..LAYOUT + 2].copy_from_slice(&layout.to_le_bytes());
            filter[CHECKSUM..CHECKSUM + 8].fill(0);
            let header = 128 + 32 * number(&filter[12..]) as usize;
            let sum = xxh3_64(&filter[..header]);
            filter[CHECKSUM..CHECKSUM + 8].copy_from_slice(&sum.to_le_bytes());
            head[4..].copy_from_slice(&(xxh3_64(body) as u32).to_le_bytes());
            patched += 1;
        }
        at += 8 + length;
    }
    assert!(patched > 0, "no filter in {file}");
    disk.put(file, &bytes);
}

/// A server with a filter that has grown and one that has not.
fn grown(disk: &Staged) -> Machine {
    let (mut machine, _) = start(disk, Fsync::Always).expect("empty");
    machine.say("BF.ADD other x");
    machine.say("BF.RESERVE grown 0.01 100");
    let items: Vec<String> = (0..300).map(|item| format!("i{item}")).collect();
    machine.say(&format!("BF.MADD grown {}", items.join(" ")));
    machine
}

/// The last file with such a name.
fn last(disk: &Staged, start: &str) -> String {
    let mut names = disk.names().expect("names");
    names.retain(|name| name.starts_with(start));
    names.into_iter().max().expect("one")
}

#[test]
fn a_filter_of_another_layout_is_refused_by_name_and_not_set_aside() {
    // In a snapshot, or by the log.
    for (name, line, file) in [("grown", "PING", "pack-"), ("copy", "IB.MERGE copy grown", "log-")]
    {
        for (layout, remedy) in [(0, "older inbloom"), (9, "upgrade inbloom")] {
            let disk = Staged::new(Plan::default());
            let mut machine = grown(&disk);
            machine.store.snapshot(&machine.server).expect("a disk that works");
            machine.say(line);
            drop(machine);
            set_layout(&disk, &last(&disk, file), layout);
            let names = disk.names().expect("names");
            for access in [Access::Use, Access::Check] {
                let error = open(&disk, access).err().expect("a filter would be lost");
                let text = error.to_string();
                let expected = format!("expected 1 in a filter of kind scalable, got {layout}");
                assert!(matches!(error, Error::Unreadable { more: 0, .. }), "{text}");
                assert!(text.contains(&format!("the filter {name:?} of the")), "{text}");
                assert!(text.contains(&expected) && text.contains(remedy), "{text}");
            }
            assert_eq!(disk.names().expect("names"), names, "nothing is set aside");

            let (server, store, found) = open(&disk, Access::Repair).expect("told to");
            assert!(found.damaged.len() == 1 && found.damaged[0].contains(name), "{found:?}");
            let store = Arc::new(store.expect("to be used"));
            server.set_store(Arc::clone(&store));
            store.snapshot(&server).expect("a disk that works");
            drop((server, store));
            assert!(last(&disk, "damaged-").starts_with("damaged-"));
            let (mut machine, found) = start(&disk, Fsync::Always).expect("repaired");
            assert!(found.damaged.is_empty(), "{:?}", found.damaged);
            assert!(machine.say("BF.EXISTS other x").0.starts_with(b":1"));
            assert!(machine.say(&format!("EXISTS {name}")).0.starts_with(b":0"));
        }
    }
}

#[test]
fn a_filter_of_another_layout_that_the_log_deletes_keeps_no_server_from_starting() {
    for (name, line, file) in [("grown", "PING", "pack-"), ("copy", "IB.MERGE copy grown", "log-")]
    {
        let disk = Staged::new(Plan::default());
        let mut machine = grown(&disk);
        machine.store.snapshot(&machine.server).expect("a disk that works");
        machine.say(line);
        machine.say(&format!("DEL {name}"));
        drop(machine);
        set_layout(&disk, &last(&disk, file), 0);
        for _ in 0..2 {
            let (mut machine, found) = start(&disk, Fsync::Always).expect("nobody needs it");
            assert!(found.damaged.is_empty(), "{:?}", found.damaged);
            assert!(machine.say("BF.EXISTS other x").0.starts_with(b":1"));
            machine.store.snapshot(&machine.server).expect("a disk that works");
        }
    }
}

#[test]
fn a_file_of_a_retired_layout_that_was_opened_is_refused_by_name() {
    let retired = include_bytes!("../../../inbloom/tests/golden/retired/ribbon-layout-0.ib");
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().canonicalize().expect("a path");
    let plan = inbloom::Plan::builder(inbloom::Kind::Blocked).items(100).rate(0.001);
    let filter = inbloom::Filter::new(plan.build().expect("a plan")).expect("small");
    filter.save(folder.join("list.ib")).expect("a file");
    let disk = Staged::new(Plan::default());
    let config = || Config { import_dir: Some(folder.clone()), ..Config::default() };
    let (mut machine, _) = start_with(&disk, config()).expect("empty");
    assert_eq!(machine.say("IB.OPEN f list.ib").1, Some(true));
    for is_in_snapshot in [false, true] {
        if is_in_snapshot {
            machine.store.snapshot(&machine.server).expect("a disk that works");
        }
        // The older inbloom could open it.
        std::fs::write(folder.join("list.ib"), retired).expect("a file");
        let text = start_with(&disk, config()).err().expect("it cannot be read").to_string();
        let expected = "expected 1 in a filter of kind ribbon, got 0";
        assert!(text.contains("\"f\"") && text.contains("'list.ib'"), "{text}");
        assert!(text.contains(expected) && text.contains("older inbloom"), "{text}");
    }
}

#[test]
fn keys_are_not_on_the_disk() {
    let disk = Staged::new(Plan::default());
    let (mut machine, _) = start(&disk, Fsync::Always).expect("empty");
    for filter in ["BF.ADD f", "CF.ADD c", "BF.ADD r"] {
        if filter.ends_with('r') {
            machine.say("BF.RESERVE r 0.01 100 KIND redisbloom");
        }
        machine.say(&format!("{filter} alice@example.com"));
    }
    machine.store.snapshot(&machine.server).expect("a disk that works");
    machine.say("BF.ADD f bob@example.com");
    for name in disk.names().expect("names") {
        let bytes = disk.bytes(&name);
        let has_key = bytes.windows(11).any(|window| window == b"example.com");
        assert!(!has_key, "{name} has a key");
    }
}

/// The records since the last snapshot.
fn unsaved(machine: &mut Machine) -> u64 {
    let info = String::from_utf8(machine.say("INFO persistence").0).expect("a text");
    let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
    line.expect("a line").parse().expect("a number")
}

#[test]
fn a_flush_is_one_record_and_so_all_or_nothing() {
    for (line, left) in [("FLUSHDB", 50), ("FLUSHALL", 0)] {
        let disk = Staged::new(Plan::default());
        let (mut machine, _) = start(&disk, Fsync::Always).expect("empty");
        for key in 0..100 {
            machine.say(&format!("SELECT {}", key % 2));
            machine.say(&format!("BF.ADD f{key} x"));
        }
        let before = unsaved(&mut machine);
        machine.say(line);
        assert_eq!(unsaved(&mut machine) - before, 1, "{line}");
        machine.say(line);
        assert_eq!(unsaved(&mut machine) - before, 1, "{line} of nothing");
        let (again, _) = start(&disk, Fsync::Always).expect("sound");
        let keys = again.server.keyspace.len(0) + again.server.keyspace.len(1);
        assert_eq!(keys, left, "{line}");
    }
}

#[test]
fn changes_since_the_last_snapshot_are_counted() {
    let disk = Staged::new(Plan::default());
    let (mut machine, _) = start(&disk, Fsync::Always).expect("empty");
    assert_eq!(unsaved(&mut machine), 0);
    for item in 0..5 {
        machine.say(&format!("BF.ADD f i{item}"));
    }
    assert_eq!(unsaved(&mut machine), 6, "the filter, and five items");
    machine.store.snapshot(&machine.server).expect("a disk that works");
    assert_eq!(unsaved(&mut machine), 0);
    machine.say("BF.ADD f i9");
    assert_eq!(unsaved(&mut machine), 1);
    let (mut again, _) = start(&disk, Fsync::Always).expect("sound");
    assert_eq!(unsaved(&mut again), 1);
}
