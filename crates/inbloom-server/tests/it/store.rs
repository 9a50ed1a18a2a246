//! Commands where filters are on a store, over one in memory that can fail on demand.

pub mod double;

use std::collections::HashSet;
use std::sync::Arc;

use inbloom_server::command::{Command, OnStore};
use inbloom_server::command_table::commands;
use inbloom_server::filter_store::StoredFilters;
use inbloom_server::session::{Next, Place};
use inbloom_server::{Config, Server};

use crate::client::{Client, request};
use double::{Double, Fault};

/// Items of a filter that nobody gave a size.
const ITEMS: u64 = 1000;

fn server_of(store: &Arc<Double>) -> Server {
    let server = Server::new(Config::default());
    server.set_stored(StoredFilters::new(Arc::clone(store) as _, ITEMS));
    server
}

/// A call of every command that works on a store, in this order, and its reply: `/` stands for the end of
/// a line, `*` for anything.
const DIALOGUE: &[(&str, &str)] = &[
    ("bf.reserve seen 0.01 500", "+OK/"),
    ("bf.reserve seen 0.01 500", "-ERR item exists/"),
    ("bf.add seen a", ":1/"),
    ("bf.add seen a", ":0/"),
    ("bf.madd seen a b c", "*3/:0/:1/:1/"),
    ("bf.insert seen items c d", "*2/:0/:1/"),
    ("bf.insert other capacity 10 error 0.001 nonscaling items x", "*1/:1/"),
    ("bf.insert third nocreate items x", "-ERR not found/"),
    ("bf.exists seen a", ":1/"),
    ("bf.exists seen z", ":0/"),
    ("bf.exists missing a", ":0/"),
    ("bf.mexists seen a z d", "*3/:1/:0/:1/"),
    ("bf.mexists missing a z", "*2/:0/:0/"),
    ("bf.card seen", ":4/"),
    ("bf.card missing", ":0/"),
    ("bf.info seen capacity", "*1/:500/"),
    ("bf.info seen expansion", "*1/$-1/"),
    (
        "bf.info seen",
        "*10/+Capacity/:500/+Size/*/+Number of items inserted/:4/+Expansion rate/$-1/",
    ),
    ("bf.info missing", "-ERR not found/"),
    ("ib.estimate seen", "*12/+Kind/$7/blocked/+Items added/:4/+Items estimated/:4/*"),
    ("ib.estimate missing", "-ERR not found/"),
    ("ib.checkany a missing seen other", "*1/$4/seen/"),
    ("exists seen other missing seen", ":3/"),
    ("touch seen", ":1/"),
    ("type seen", "+MBbloom--/"),
    ("type missing", "+none/"),
    ("memory usage missing", "$-1/"),
    ("memory usage seen", ":*/"),
    ("keys *e*", "*2/$5/other/$4/seen/"),
    ("keys s*", "*1/$4/seen/"),
    ("scan 0 count 1", "*2/$1/0/*2/$5/other/$4/seen/"),
    ("scan 0 match o* type mbbloom--", "*2/$1/0/*1/$5/other/"),
    ("scan 0 type string", "*2/$1/0/*0/"),
    ("scan 7", "*2/$1/0/*0/"),
    ("dbsize", ":2/"),
    ("randomkey", "$*/"),
    ("ttl seen", ":-1/"),
    ("ttl missing", ":-2/"),
    ("expire missing 100", ":0/"),
    ("expire seen 100", ":1/"),
    ("expire seen 100 nx", ":0/"),
    ("ttl seen", ":100/"),
    ("pttl seen", ":*/"),
    ("expiretime seen", ":*/"),
    ("pexpiretime seen", ":*/"),
    ("pexpire seen 200000", ":1/"),
    ("expireat seen 4000000000", ":1/"),
    ("pexpireat seen 4000000000000", ":1/"),
    ("persist seen", ":1/"),
    ("persist seen", ":0/"),
    ("ttl seen", ":-1/"),
    ("select 0", "+OK/"),
    (
        "select 1",
        "-ERR SELECT does not work with --store: the store's address chooses the database/",
    ),
    ("del seen missing", ":1/"),
    ("unlink other", ":1/"),
    ("expire seen -1", ":0/"),
    ("dbsize", ":0/"),
    ("randomkey", "$-1/"),
];

#[test]
fn every_command_that_works_on_a_store_answers_as_redis_clients_expect() {
    let (store, mut said) = (Arc::new(Double::default()), HashSet::new());
    let server = server_of(&store);
    let mut client = Client::new(&server);
    for (line, expected) in DIALOGUE {
        let reply = client.say(line).replace("\r\n", "/");
        assert!(is_like(expected, &reply), "{line}: expected {expected}, got {reply}");
        let words: Vec<&str> = line.split(' ').collect();
        said.extend([words[0].to_owned(), words[..2.min(words.len())].join("|")]);
    }
    for row in rows().filter(|row| matches!(row.on_store, OnStore::By(_))) {
        assert!(said.contains(row.name), "the dialogue has no call of {}", row.name);
    }
}

/// Whether a reply is as a pattern says, in which `*/` at other places than a line's begin stands for
/// anything.
fn is_like(pattern: &str, reply: &str) -> bool {
    match pattern.split_once("*/").filter(|(before, _)| !before.is_empty()) {
        Some((before, after)) => {
            reply.starts_with(before) && reply.len() > before.len() && reply.ends_with(after)
        }
        None => match pattern.strip_suffix('*').filter(|before| !before.is_empty()) {
            Some(before) => reply.starts_with(before),
            None => pattern == reply,
        },
    }
}

fn rows() -> impl Iterator<Item = &'static Command> {
    commands().flat_map(|row| std::iter::once(row).chain(row.subcommands))
}

/// As few words as a command takes.
fn shortest_call(row: &Command) -> Vec<String> {
    let mut words: Vec<String> = row.name.split('|').map(str::to_owned).collect();
    words.resize((row.arity.unsigned_abs() as usize).max(words.len()), "0".to_owned());
    words
}

#[test]
fn every_command_that_does_not_work_on_a_store_is_refused_by_its_name_and_with_a_reason() {
    let store = Arc::new(Double::default());
    let server = server_of(&store);
    let mut refused = Vec::new();
    for row in rows() {
        let OnStore::Refused(reason) = row.on_store else { continue };
        let words = shortest_call(row);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let reply = Client::new(&server).say_words(&words);
        let name = row.name.to_uppercase().replace('|', " ");
        assert_eq!(reply, format!("-ERR {name} does not work with --store: {reason}\r\n"));
        assert!(!reason.ends_with('.') && reason.len() > 10, "{name}: {reason}");
        refused.push(row.name);
    }
    for name in ["cf.add", "cf.reserve", "bf.scandump", "bf.loadchunk", "dump", "restore", "multi"]
    {
        assert!(refused.contains(&name), "{name} is refused");
    }
    for name in ["flushall", "flushdb", "ib.merge", "ib.open", "rename", "watch", "save"] {
        assert!(refused.contains(&name), "{name} is refused");
    }
    assert_eq!(store.requests(), 0);
}

#[test]
fn a_command_that_does_the_same_on_a_store_does_not_ask_it() {
    let store = Arc::new(Double::default());
    let server = server_of(&store);
    let mut same = 0;
    for row in rows().filter(|row| matches!(row.on_store, OnStore::Same)) {
        let words = shortest_call(row);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if row.name == "shutdown" {
            continue;
        }
        let reply = Client::new(&server).say_words(&words);
        assert!(!reply.contains("--store"), "{words:?}: {reply}");
        same += 1;
    }
    assert!(same > 60, "{same} commands");
    assert_eq!(store.requests(), 0);
}

#[test]
fn options_that_a_store_cannot_follow_are_refused_by_name() {
    let store = Arc::new(Double::default());
    let server = server_of(&store);
    let mut client = Client::new(&server);
    for (option, name) in [
        ("KIND counting", "KIND"),
        ("KIND redisbloom", "KIND"),
        ("WINDOW 1h", "WINDOW"),
        ("AUTOCLEAR 0.8", "AUTOCLEAR"),
        ("EXPANSION 2", "EXPANSION"),
    ] {
        let reply = client.say(&format!("bf.reserve key 0.01 1000 {option}"));
        assert!(reply.starts_with(&format!("-ERR {name} does not work with --store")), "{reply}");
    }
    let reply = client.say("bf.insert key EXPANSION 4 ITEMS a");
    assert!(reply.starts_with("-ERR EXPANSION does not work with --store"), "{reply}");
    for option in ["KIND blocked", "NONSCALING", "EXPANSION 0"] {
        let name = option.replace(' ', "");
        let reply = client.say(&format!("bf.reserve {name} 0.01 1000 {option}"));
        assert_eq!(reply, "+OK\r\n", "{option}");
    }
}

#[test]
fn a_missing_filter_is_created_for_the_items_that_the_server_was_started_with() {
    let store = Arc::new(Double::default());
    let server = server_of(&store);
    let mut client = Client::new(&server);
    client.check(&[
        ("bf.add one a", ":1/"),
        ("bf.info one capacity", "*1/:1000/"),
        ("bf.madd two a b", "*2/:1/:1/"),
        ("bf.info two capacity", "*1/:1000/"),
        ("bf.insert three items a", "*1/:1/"),
        ("bf.info three capacity", "*1/:1000/"),
    ]);
}

#[test]
fn two_servers_serve_the_same_filters() {
    let store = Arc::new(Double::default());
    let (first, second) = (server_of(&store), server_of(&store));
    let (mut one, mut two) = (Client::new(&first), Client::new(&second));
    one.check(&[("bf.add seen a", ":1/")]);
    two.check(&[("bf.add seen a", ":0/"), ("bf.add seen b", ":1/")]);
    one.check(&[("bf.mexists seen a b c", "*3/:1/:1/:0/")]);
    two.check(&[("del seen", ":1/"), ("bf.exists seen a", ":0/")]);
    // What one server remembers of a filter that another has deleted does no harm.
    one.check(&[("bf.exists seen a", ":0/"), ("bf.add seen a", ":1/"), ("bf.card seen", ":1/")]);
}

#[test]
fn single_calls_in_a_row_are_sent_to_the_store_together() {
    let store = Arc::new(Double::default());
    let server = server_of(&store);
    let mut client = Client::new(&server);
    client.say("bf.reserve seen 0.01 100000");
    let call = |word: &str, item: u32| request(&[word, "seen", &item.to_string()]);
    let adds: Vec<u8> = (0..1000).flat_map(|item| call("bf.add", item)).collect();
    let before = store.requests();
    let (replies, _) = client.send(&adds);
    assert_eq!(replies.lines().count(), 1000);
    assert!(replies.lines().filter(|line| *line == ":1").count() > 980);
    assert_eq!(store.requests() - before, 1, "requests for 1,000 adds");
    let before = store.requests();
    let queries: Vec<u8> = (0..1000).flat_map(|item| call("bf.exists", item)).collect();
    let (replies, _) = client.send(&queries);
    assert_eq!(replies, ":1\r\n".repeat(1000), "no false negative");
    assert_eq!(store.requests() - before, 1, "requests for 1,000 queries");
}

#[test]
fn a_request_that_asks_the_store_is_not_done_on_a_thread_that_others_wait_for() {
    let store = Arc::new(Double::default());
    let server = server_of(&store);
    let mut client = Client::new(&server);
    let mut out = Vec::new();
    let input = [request(&["ping"]), request(&["bf.add", "seen", "a"])].concat();
    let progress = client.session.process(&server, &input, &mut out, Place::Shared);
    assert_eq!((&out[..], progress.next), (&b"+PONG\r\n"[..], Next::Work));
    assert_eq!(store.requests(), 0);
}

#[test]
fn an_answer_that_the_store_does_not_know_is_an_error_and_never_a_guess() {
    let store = Arc::new(Double::default());
    let server = server_of(&store);
    let mut client = Client::new(&server);
    client.check(&[("bf.madd seen a b", "*2/:1/:1/")]);
    store.set(Fault::Unknown);
    let reply = client.say("bf.add seen c");
    assert!(reply.starts_with("-UNKNOWN the item is in the filter, but "), "{reply}");
    let reply = client.say("bf.madd seen c a");
    assert_eq!(reply.matches("-UNKNOWN ").count(), 2, "{reply}");
    store.set(Fault::None);
    client.check(&[("bf.exists seen c", ":1/"), ("bf.add seen c", ":0/")]);
}

#[test]
fn lost_bits_are_an_error_and_never_absent() {
    let store = Arc::new(Double::default());
    let server = server_of(&store);
    let mut client = Client::new(&server);
    client.check(&[("bf.madd seen a kept", "*2/:1/:1/")]);
    store.set(Fault::Lost);
    for line in ["bf.exists seen a", "bf.exists seen z", "bf.add seen a", "ib.checkany a seen"] {
        let reply = client.say(line);
        assert!(reply.starts_with("-LOST "), "{line}: {reply}");
    }
    let reply = client.say("bf.mexists seen a z");
    assert!(reply.starts_with("*2\r\n-LOST ") && reply.matches("-LOST ").count() == 2, "{reply}");
    // What is left is still answered.
    client.check(&[
        ("bf.exists seen kept", ":1/"),
        ("bf.mexists seen kept z", "*2/:1/-LOST the bits are gone/"),
        ("bf.madd seen z kept", "*2/-LOST the bits are gone/:0/"),
    ]);
    for line in ["bf.card seen", "ib.estimate seen"] {
        assert!(client.say(line).starts_with("-LOST "), "{line}");
    }
}

#[test]
fn a_store_that_is_down_is_an_error_and_in_the_figures_until_it_is_back() {
    let store = Arc::new(Double::default());
    let server = Arc::new(server_of(&store));
    let mut client = Client::new(&server);
    client.check(&[("bf.add seen a", ":1/")]);
    assert_eq!(server.troubles(), None);
    assert!(client.say("info persistence").contains("\r\nstore_status:up\r\n"));
    store.set(Fault::Down);
    for line in ["bf.exists seen a", "bf.card seen", "del seen", "keys *", "ttl seen", "dbsize"] {
        let reply = client.say(line);
        assert!(reply.starts_with("-STOREDOWN the store is down"), "{line}: {reply}");
    }
    let reply = client.say("bf.add seen b");
    assert!(reply.ends_with("; the item may be in the filter\r\n"), "{reply}");
    assert_eq!(server.troubles().as_deref(), Some("store: the store is down"));
    let info = client.say("info persistence");
    assert!(info.contains("\r\nstore_status:down\r\n"), "{info}");
    assert!(info.contains("\r\nstore_trouble:the store is down\r\n"), "{info}");
    assert!(info.contains("\r\nstore:double://\r\n"), "{info}");
    let metrics =
        inbloom_server::metrics::text(&server, inbloom_server::metrics::Format::OpenMetrics);
    assert!(metrics.contains("\ninbloom_store_up 0\n"), "{metrics}");
    assert!(metrics.contains("\ninbloom_store_failures_total 7\n"), "{metrics}");
    let stored = server.stored().expect("it was given one");
    stored.check();
    assert!(stored.trouble().is_some());
    store.set(Fault::None);
    // Nobody asks: the check finds out.
    stored.check();
    assert_eq!(server.troubles(), None);
    client.check(&[("bf.exists seen a", ":1/")]);
}

#[test]
fn a_filter_that_is_full_takes_no_new_item_and_still_knows_its_own() {
    let store = Arc::new(Double::default());
    let server = server_of(&store);
    let mut client = Client::new(&server);
    client.say("bf.reserve small 0.001 100");
    let mut new = 0;
    while client.say(&format!("bf.add small item{new}")) == ":1\r\n" {
        new += 1;
        assert!(new <= 110, "{new} items in a filter for 100");
    }
    assert!(new >= 95, "{new} items in a filter for 100");
    client.check(&[
        ("bf.add small more", "-ERR non scaling filter is full/"),
        ("bf.add small item0", ":0/"),
        ("bf.madd small item1 more item2", "*3/:0/-ERR non scaling filter is full/:0/"),
        ("bf.exists small more", ":0/"),
    ]);
    // Another server finds out by itself.
    let second = server_of(&store);
    let mut other = Client::new(&second);
    assert_eq!(other.say("bf.add small more"), "-ERR non scaling filter is full\r\n");
    // A batch that goes past the capacity is taken up to there.
    client.say("bf.reserve batch 0.001 100");
    let items: Vec<String> = (0..150).map(|item| item.to_string()).collect();
    let reply = client.say(&format!("bf.madd batch {}", items.join(" ")));
    let taken = reply.lines().filter(|line| *line == ":1").count();
    assert!((95..=110).contains(&taken), "{taken} of 150 items in a filter for 100");
    assert!(reply.matches("is full").count() >= 40, "{reply}");
}

#[test]
fn rights_hold_on_a_store_too() {
    let store = Arc::new(Double::default());
    let mut config = Config::default();
    config.settings.require_pass = "secret".to_owned();
    let server = Server::new(config);
    server.set_stored(StoredFilters::new(Arc::clone(&store) as _, ITEMS));
    let mut client = Client::new(&server);
    for line in ["bf.add seen a", "cf.add seen a", "multi"] {
        assert_eq!(client.say(line), "-NOAUTH Authentication required.\r\n", "{line}");
    }
    assert_eq!(store.requests(), 0);
    client.check(&[("auth secret", "+OK/"), ("bf.add seen a", ":1/")]);
}

#[test]
fn a_filter_larger_than_one_may_be_is_refused_before_the_store_is_asked() {
    let store = Arc::new(Double::default());
    let server = server_of(&store);
    let mut client = Client::new(&server);
    client.check(&[("config set max-filter 1mb", "+OK/"), ("bf.reserve seen 0.01 500000", "+OK/")]);
    let before = store.requests();
    let reply = client.say("bf.reserve large 0.01 5000000");
    assert!(reply.contains("the limit of --max-filter is 1048576"), "{reply}");
    assert_eq!(store.requests(), before);
}
