//! What was logged is what was applied: every kind of change is made on a live server, and what is
//! recovered from its log alone is the same to the byte.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use inbloom_server::keyspace::journal::{Journal, Record};
use inbloom_server::persist::log::{Fsync, Log};
use inbloom_server::persist::recovery::{self, Access};
use inbloom_server::value::change::{Effect, Items};
use inbloom_server::{Config, Server, Session};

use super::disk::{Loss, Plan, Staged};
use super::{Machine, start};

/// Notes which kinds of records a log is given.
struct Witness {
    log: Arc<Log>,
    seen: Mutex<BTreeSet<&'static str>>,
}

impl Journal for Witness {
    fn record(&self, record: &Record<'_>) {
        self.seen.lock().expect("no panic").insert(kind_of(record));
        self.log.record(record);
    }
}

/// Every kind of record has an arm here, its name in [`KINDS`], and a command in [`COMMANDS`].
fn kind_of(record: &Record<'_>) -> &'static str {
    match record {
        Record::Create { replaced: 0, .. } => "create",
        Record::Create { .. } => "replace",
        Record::Remove { .. } => "remove",
        Record::Rename { replaced: 0, .. } => "rename",
        Record::Rename { .. } => "rename over another",
        Record::Expire { at: Some(_), .. } => "expire",
        Record::Expire { at: None, .. } => "persist",
        Record::Change { effect: Effect::Merge { .. }, .. } => "merge",
        Record::Change { effect: Effect::Items { items, .. }, .. } => match items {
            Items::Add(_) => "add",
            Items::Insert { .. } => "insert",
            Items::Remove(_) => "remove items",
            Items::AddPairs(_) => "add pairs",
            // What comes of adding new ones is that they are added.
            Items::AddHashes(_) | Items::AddNewHashes(_) => "add hashes",
            Items::RemoveHashes(_) => "remove hashes",
            Items::Compact(_) => "compact",
        },
    }
}

const KINDS: [&str; 15] = [
    "create",
    "replace",
    "remove",
    "rename",
    "rename over another",
    "expire",
    "persist",
    "merge",
    "add",
    "insert",
    "remove items",
    "add pairs",
    "add hashes",
    "remove hashes",
    "compact",
];

/// `{n}` stands for n items.
const COMMANDS: [&str; 55] = [
    // Batches that fill the base, and what comes after it.
    "BF.RESERVE grows 0.001 20",
    "BF.MADD grows {15}",
    "BF.MADD grows {90}",
    "BF.ADD grows one",
    "BF.RESERVE fixed 0.001 50 NONSCALING",
    "BF.MADD fixed {60}",
    "BF.ADD fixed i1",
    "BF.MADD default {10}",
    "BF.RESERVE counting 0.001 100 KIND counting",
    "BF.MADD counting {90}",
    "IB.DEL counting {7} absent",
    "BF.RESERVE cuckoo 0.001 100 KIND cuckoo",
    "BF.MADD cuckoo {90}",
    "IB.DEL cuckoo {7} absent",
    "BF.RESERVE classic 0.001 20 KIND classic",
    "BF.MADD classic {30}",
    "BF.RESERVE window 0.001 100 WINDOW 1h",
    "BF.MADD window {90}",
    "BF.RESERVE clears 0.001 100 AUTOCLEAR 0.1",
    "BF.MADD clears {90}",
    "BF.RESERVE foreign 0.001 10 KIND redisbloom",
    "BF.MADD foreign {60}",
    "CF.RESERVE foreigncuckoo 16",
    "CF.INSERT foreigncuckoo ITEMS {60}",
    "CF.INSERTNX foreigncuckoo ITEMS {90}",
    "CF.ADD foreigncuckoo i1",
    "CF.ADDNX foreigncuckoo i1",
    "CF.DEL foreigncuckoo i1",
    "CF.DEL foreigncuckoo absent",
    "IB.DEL foreigncuckoo {40} absent",
    "CF.COMPACT foreigncuckoo",
    "CF.RESERVE full 4 EXPANSION 0",
    "CF.INSERT full ITEMS {20}",
    // Merges into filters that are there, and into a new one.
    "BF.RESERVE left 0.001 1000",
    "BF.RESERVE right 0.001 1000",
    "BF.MADD left {40}",
    "BF.MADD right one two three",
    "IB.MERGE left right",
    "BF.ADD left four",
    "BF.RESERVE countingtoo 0.001 100 KIND counting",
    "BF.MADD countingtoo one two three",
    "IB.MERGE counting countingtoo",
    "IB.MERGE both counting countingtoo",
    // Names.
    "BF.ADD gone i1",
    "DEL gone",
    "BF.ADD old i1",
    "RENAME old new",
    "BF.ADD old i2",
    "RENAME old new",
    "PEXPIREAT new 4000000000000",
    "PEXPIREAT left 4000000000000",
    "PERSIST left",
    "BF.ADD copy i1",
    "COPY classic copy REPLACE",
    "BF.ADD flushed i1",
];

impl Machine {
    /// All keys of a database: when they expire, and what DUMP returns.
    fn dumps(&mut self) -> Vec<(String, Vec<u8>)> {
        let names = String::from_utf8(self.say("KEYS *").0).expect("these names are text");
        let is_name = |line: &&str| line.starts_with(|first: char| first.is_ascii_alphabetic());
        let mut names: Vec<&str> = names.lines().filter(is_name).collect();
        names.sort_unstable();
        let mut all = Vec::new();
        for name in names {
            let mut seen = self.say(&format!("PEXPIRETIME {name}")).0;
            seen.extend(self.say(&format!("DUMP {name}")).0);
            all.push((name.to_owned(), seen));
        }
        all
    }
}

#[test]
fn what_was_logged_is_what_was_applied_for_every_kind_of_change() {
    let disk = Staged::new(Plan::default());
    let server = Server::new(Config::default());
    let opened = recovery::open(&server, Arc::new(disk.clone()), Access::Use);
    let store = Arc::new(opened.expect("a disk that works").0.expect("opened to be used"));
    let witness = Arc::new(Witness { log: Arc::clone(&store.log), seen: Mutex::default() });
    // The first journal stays.
    server.keyspace.set_journal(Arc::clone(&witness) as _);
    server.set_store(Arc::clone(&store));
    let client = server.clients.enter("127.0.0.1:1".into(), "127.0.0.1:2".into());
    let session = Some(Session::new(client, &server));
    let mut live = Machine { server, store, session };
    for command in COMMANDS {
        let items =
            |count: u64| (0..count).map(|at| format!("i{at}")).collect::<Vec<_>>().join(" ");
        let command = match command.split_once('{').zip(command.split_once('}')) {
            Some(((before, count), (_, after))) => {
                let count = count.split('}').next().expect("a number");
                format!("{before}{}{after}", items(count.parse().expect("a number")))
            }
            None => command.to_owned(),
        };
        live.say(&command);
    }
    let payload = live.say("DUMP grows").0;
    let start = payload.windows(2).position(|two| two == b"\r\n").expect("a length") + 2;
    let payload = &payload[start..payload.len() - 2];
    live.client(|it| it.ask(&[b"RESTORE", b"copy", b"0", payload, b"REPLACE"]));
    live.say("SELECT 1");
    live.say("BF.MADD flushed i1 i2");
    live.say("FLUSHDB");
    live.say("BF.MADD other i1 i2");
    let other = live.dumps();
    live.say("SELECT 0");

    let seen = witness.seen.lock().expect("no panic").clone();
    assert_eq!(seen, BTreeSet::from(KINDS), "a kind of change was not made, or is not known here");
    let expected = live.dumps();
    assert!(expected.len() >= 18, "{} keys", expected.len());
    let (mut back, found) = start_again(&disk);
    assert_eq!(found.damaged, Vec::<String>::new());
    let recovered = back.dumps();
    for ((name, expected), (other, found)) in expected.iter().zip(&recovered) {
        assert_eq!(name, other);
        assert!(expected == found, "{name} was recovered as another filter");
    }
    assert_eq!(recovered.len(), expected.len());
    back.say("SELECT 1");
    assert!(back.dumps() == other, "the second database");
}

fn start_again(disk: &Staged) -> (Machine, recovery::Found) {
    start(&disk.after(Loss::Nothing, 1), Fsync::Always).expect("nothing was lost")
}
