//! What inbloom adds to RedisBloom, and where it promises more: bytes in, bytes out.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::client::{Client, request, server};
use inbloom::{Filter, Hasher, Kind, Plan, file};
use inbloom_server::session::{Next, Place};
use inbloom_server::{Config, Server};

const FULL: &str = "-ERR non scaling filter is full/";

/// `word0`, `word1`, and so on.
fn names(word: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{word}{at}")).collect()
}

/// Sends a command with items, some thousand at a time, and counts the answers that are yes. An
/// error among them fails the test.
fn count_yes(client: &mut Client<'_>, command: &str, key: &str, items: &[String]) -> usize {
    let mut yes = 0;
    for piece in items.chunks(4096) {
        let mut words = vec![command, key];
        words.extend(piece.iter().map(String::as_str));
        let reply = client.say_words(&words);
        let (head, answers) = reply.split_once("\r\n").expect("a reply has a line");
        assert_eq!(head, format!("*{}", piece.len()), "{command} {key}: {reply}");
        let answers: Vec<&str> = answers.split_terminator("\r\n").collect();
        let strange = answers.iter().find(|answer| !matches!(**answer, ":0" | ":1"));
        assert_eq!(strange, None, "{command} {key}");
        yes += answers.iter().filter(|answer| **answer == ":1").count();
    }
    yes
}

/// Adds items and tells how many were new.
fn add(client: &mut Client<'_>, key: &str, items: &[String]) -> usize {
    count_yes(client, "BF.MADD", key, items)
}

/// How many of the items a filter claims to have.
fn claimed(client: &mut Client<'_>, key: &str, items: &[String]) -> usize {
    count_yes(client, "BF.MEXISTS", key, items)
}

/// The reply to a command, which must be an error.
fn refusal(client: &mut Client<'_>, line: &str) -> String {
    let reply = client.say(line);
    assert!(reply.starts_with("-ERR "), "{line} was not refused: {reply}");
    reply
}

/// A command is refused with a text that has these words in it.
fn assert_refused(client: &mut Client<'_>, line: &str, words: &str) {
    let reply = refusal(client, line);
    assert!(reply.contains(words), "{line}: {reply:?} does not say {words:?}");
}

/// What IB.ESTIMATE tells, by name.
struct Figures(BTreeMap<String, String>);

impl Figures {
    fn of(client: &mut Client<'_>, key: &str) -> Figures {
        let reply = client.say_words(&["IB.ESTIMATE", key]);
        assert!(reply.starts_with('*'), "IB.ESTIMATE {key}: {reply}");
        // The lengths of byte strings are lines of their own, which tell nothing here.
        let lines = reply.split_terminator("\r\n").skip(1).filter(|line| !line.starts_with('$'));
        let values: Vec<&str> = lines.map(|line| line.trim_start_matches(['+', ':'])).collect();
        Figures(values.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect())
    }

    fn number(&self, name: &str) -> f64 {
        let text = self.0.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.0));
        text.parse().unwrap_or_else(|error| panic!("{name} is {text}: {error}"))
    }

    /// The items that the bits speak for are those added, but for 5%, and the promise is kept.
    fn assert_true_of(&self, items: usize) {
        let estimate = self.number("Items estimated");
        let error = (estimate - items as f64).abs();
        assert!(error <= 0.05 * items as f64, "{items} items: {:?}", self.0);
        let added = self.number("Items added");
        assert!((added - items as f64).abs() <= 0.05 * items as f64, "{items}: {:?}", self.0);
        let (now, promised) = (self.number("Current rate"), self.number("Target rate"));
        assert!(now <= promised, "{items} items: {:?}", self.0);
    }
}

/// All that a filter tells of itself.
fn portrait(client: &mut Client<'_>, key: &str, items: &[String]) -> Vec<String> {
    let mut words = vec!["BF.MEXISTS", key];
    words.extend(items.iter().map(String::as_str));
    let facts = [format!("BF.INFO {key}"), format!("IB.ESTIMATE {key}"), format!("BF.DEBUG {key}")];
    let mut portrait = vec![client.say_words(&words)];
    portrait.extend(facts.iter().map(|line| client.say(line)));
    portrait
}

// IB.MERGE

#[test]
fn a_merge_has_the_items_of_all_its_sources() {
    let server = server();
    let mut client = Client::new(&server);
    for options in ["", "NONSCALING", "KIND classic", "KIND counting", "KIND cuckoo", "WINDOW 7d"] {
        for key in ["a", "b", "old"] {
            let reply = client.say(&format!("BF.RESERVE {key} 0.01 1000 {options}"));
            assert_eq!(reply, "+OK\r\n", "{options}");
            add(&mut client, key, &names(key, 100));
        }
        client.check(&[("IB.MERGE new a b", "+OK/"), ("IB.MERGE old a b", "+OK/")]);
        for (key, count) in [("new", 200), ("old", 300)] {
            for source in ["a", "b"] {
                assert_eq!(claimed(&mut client, key, &names(source, 100)), 100, "{options} {key}");
            }
            let foreign = claimed(&mut client, key, &names("foreign", 1000));
            // 10 and five times the root of it.
            assert!(foreign <= 25, "{options} {key}: {foreign} of 1000 at a rate of 0.01");
            let card = client.say(&format!("BF.CARD {key}"));
            let card: usize = card.trim_start_matches(':').trim_end().parse().expect("a count");
            assert!(card.abs_diff(count) * 20 <= count, "{options} {key}: {card} of {count}");
        }
        assert_eq!(claimed(&mut client, "old", &names("old", 100)), 100, "{options}");
        // The sources have what they had.
        assert!(claimed(&mut client, "a", &names("b", 100)) <= 6, "{options}");
        assert_eq!(client.say("DEL a b old new"), ":4\r\n");
    }
    assert_eq!(server.keyspace.used(), 0);
}

#[test]
fn a_filter_merged_into_itself_stays_as_it_is() {
    let server = server();
    let mut client = Client::new(&server);
    for options in ["", "KIND counting", "KIND cuckoo"] {
        client.say(&format!("BF.RESERVE f 0.01 1000 {options}"));
        add(&mut client, "f", &names("f", 100));
        let before = portrait(&mut client, "f", &names("f", 200));
        assert_eq!(client.say("IB.MERGE f f"), "+OK\r\n");
        assert_eq!(portrait(&mut client, "f", &names("f", 200)), before, "{options}");
        client.say("DEL f");
    }
}

#[test]
fn a_merge_does_not_double_counts() {
    let server = server();
    let mut client = Client::new(&server);
    for kind in ["counting", "cuckoo"] {
        for key in ["c", "empty"] {
            client.say(&format!("BF.RESERVE {key} 0.01 100 KIND {kind}"));
        }
        client.check(&[
            ("BF.MADD c a b", "*2/:1/:1/"),
            ("IB.MERGE new c", "+OK/"),
            ("IB.MERGE empty c", "+OK/"),
            ("IB.DEL new a", "*1/:1/"),
            ("IB.DEL empty a", "*1/:1/"),
            ("BF.MEXISTS new a b", "*2/:0/:1/"),
            ("BF.MEXISTS empty a b", "*2/:0/:1/"),
            ("BF.MEXISTS c a b", "*2/:1/:1/"),
            // What two sources have counts twice, so that neither's removal denies the other's.
            ("IB.MERGE empty c", "+OK/"),
            ("IB.DEL empty b", "*1/:1/"),
            ("BF.EXISTS empty b", ":1/"),
            ("IB.DEL empty b", "*1/:1/"),
            ("BF.EXISTS empty b", ":0/"),
            ("DEL c empty new", ":3/"),
        ]);
    }
}

#[test]
fn a_refused_merge_leaves_the_destination_as_it_was() {
    let server = server();
    let mut client = Client::new(&server);
    client.check(&[
        ("BF.RESERVE f 0.01 1000", "+OK/"),
        ("BF.RESERVE larger 0.01 100000", "+OK/"),
        ("BF.RESERVE stricter 0.0001 1000", "+OK/"),
        ("BF.RESERVE classic 0.01 1000 KIND classic", "+OK/"),
        ("BF.RESERVE counting 0.01 1000 KIND counting", "+OK/"),
        ("BF.RESERVE window 0.01 1000 WINDOW 7d", "+OK/"),
    ]);
    let keys = ["f", "larger", "stricter", "classic", "counting", "window"];
    for key in keys {
        add(&mut client, key, &names(key, 500));
    }
    for into in keys {
        for from in keys.into_iter().filter(|from| *from != into) {
            let before = portrait(&mut client, into, &names(from, 500));
            assert_refused(&mut client, &format!("IB.MERGE {into} {from}"), "differ in");
            let after = portrait(&mut client, into, &names(from, 500));
            assert_eq!(after, before, "{from} into {into}");
            refusal(&mut client, &format!("IB.MERGE new {into} {from}"));
            assert_eq!(client.say("EXISTS new"), ":0\r\n", "{into} and {from}");
        }
    }
    assert_refused(&mut client, "IB.MERGE new f absent", "no filter absent");
    assert_refused(&mut client, "IB.MERGE new absent", "no filter absent");
    assert_eq!(client.say("EXISTS new absent"), ":0\r\n");
}

#[test]
fn a_merge_of_which_one_source_is_refused_adds_none_of_them() {
    let server = server();
    let mut client = Client::new(&server);
    for options in ["", "KIND counting"] {
        for (key, capacity) in [("f", 1000), ("good", 1000), ("bad", 100_000)] {
            client.say(&format!("BF.RESERVE {key} 0.01 {capacity} {options}"));
            add(&mut client, key, &names(key, 500));
        }
        let before = portrait(&mut client, "f", &names("good", 500));
        assert_refused(&mut client, "IB.MERGE f good bad", "differ in");
        let claims = claimed(&mut client, "f", &names("good", 500));
        assert!(claims <= 20, "{options}: {claims} of 500 of the first source were added");
        assert_eq!(portrait(&mut client, "f", &names("good", 500)), before, "{options}");
        client.say("DEL f good bad");
    }
}

#[test]
fn a_grown_filter_can_be_merged_into_a_new_key() {
    let server = server();
    let mut client = Client::new(&server);
    let items = names("grown", 5000);
    add(&mut client, "grown", &items);
    assert_eq!(client.say("IB.MERGE new grown"), "+OK\r\n");
    assert_eq!(claimed(&mut client, "new", &items), items.len());
    let questions = names("foreign", 5000);
    let grown = portrait(&mut client, "grown", &questions);
    assert_eq!(portrait(&mut client, "new", &questions), grown);
    // It is a filter of its own, which goes on growing.
    add(&mut client, "new", &names("more", 5000));
    assert_eq!(claimed(&mut client, "new", &items), items.len());
    assert_eq!(portrait(&mut client, "grown", &questions), grown);
    // One that has not grown takes in one that has.
    add(&mut client, "small", &names("small", 50));
    assert_eq!(client.say("IB.MERGE small grown"), "+OK\r\n");
    assert_eq!(claimed(&mut client, "small", &items), items.len());
    assert_eq!(claimed(&mut client, "small", &names("small", 50)), 50);
    Figures::of(&mut client, "small").assert_true_of(5050);
    // Two that have both grown are refused, and nothing changes.
    let before = portrait(&mut client, "new", &questions);
    assert_refused(&mut client, "IB.MERGE new grown", "merge both into a new key");
    assert_eq!(portrait(&mut client, "new", &questions), before);
}

#[test]
fn the_form_of_redisbloom_is_not_merged() {
    let server = server();
    let mut client = Client::new(&server);
    client.check(&[
        ("BF.RESERVE theirs 0.01 100 KIND redisbloom", "+OK/"),
        ("BF.ADD theirs a", ":1/"),
        ("CF.ADD cuckoo a", ":1/"),
        ("BF.ADD ours b", ":1/"),
    ]);
    for line in [
        "IB.MERGE new theirs",
        "IB.MERGE new ours theirs",
        "IB.MERGE ours theirs",
        "IB.MERGE theirs ours",
        "IB.MERGE new cuckoo",
        "IB.MERGE ours cuckoo",
        "IB.MERGE cuckoo ours",
    ] {
        assert_refused(
            &mut client,
            line,
            "(CF.*, KIND redisbloom, or loaded from RedisBloom) cannot be merged",
        );
    }
    client.check(&[
        ("EXISTS new", ":0/"),
        ("BF.MEXISTS ours a b", "*2/:0/:1/"),
        ("BF.MEXISTS theirs a b", "*2/:1/:0/"),
        ("CF.MEXISTS cuckoo a b", "*2/:1/:0/"),
    ]);
}

// IB.DEL

#[test]
fn what_can_remove_removes_and_keeps_the_others() {
    let server = server();
    let mut client = Client::new(&server);
    for (reserve, insert, ask) in [
        ("BF.RESERVE f 0.0001 1000 KIND counting", "BF.MADD", "BF.MEXISTS"),
        ("BF.RESERVE f 0.0001 1000 KIND cuckoo", "BF.MADD", "BF.MEXISTS"),
        ("CF.RESERVE f 1000", "CF.INSERT", "CF.MEXISTS"),
    ] {
        assert_eq!(client.say(reserve), "+OK\r\n");
        let (kept, removed) = (names("kept", 300), names("removed", 300));
        for items in [&kept, &removed] {
            let mut words = vec![insert, "f"];
            words.extend((insert == "CF.INSERT").then_some("ITEMS"));
            words.extend(items.iter().map(String::as_str));
            assert!(!client.say_words(&words).contains('-'), "{reserve}");
        }
        assert_eq!(count_yes(&mut client, "IB.DEL", "f", &removed), 300, "{reserve}");
        assert_eq!(count_yes(&mut client, ask, "f", &kept), 300, "{reserve}");
        let left = count_yes(&mut client, ask, "f", &removed);
        // CF.* has fingerprints of 8 bits: a foreign item meets one of 255 in 4 slots, 30% taken.
        assert!(left <= 12, "{reserve}: {left} of 300 are still claimed");
        let removed_again = client.say_words(&["IB.DEL", "f", "absent", "kept7", "kept7"]);
        assert_eq!(removed_again, "*3\r\n:0\r\n:1\r\n:0\r\n", "{reserve}");
        client.say("DEL f");
    }
    assert_refused(&mut client, "IB.DEL f a", "no filter f");
}

#[test]
fn what_cannot_remove_says_which_kind_can_and_keeps_its_items() {
    let server = server();
    let mut client = Client::new(&server);
    for options in [
        "",
        "NONSCALING",
        "KIND blocked",
        "KIND redisbloom",
        "KIND classic",
        "WINDOW 7d",
        "AUTOCLEAR 0.9",
    ] {
        client.say(&format!("BF.RESERVE f 0.01 100 {options}"));
        assert_eq!(client.say("BF.MADD f a b"), "*2\r\n:1\r\n:1\r\n");
        let reply = refusal(&mut client, "IB.DEL f a b");
        assert_eq!(client.say("BF.MEXISTS f a b"), "*2\r\n:1\r\n:1\r\n", "{options}");
        assert!(reply.contains("KIND counting"), "{options:?}: {reply:?}");
        client.say("DEL f");
    }
}

// IB.ESTIMATE

#[test]
fn an_estimate_is_true_of_empty_half_full_and_grown_filters() {
    let server = server();
    let mut client = Client::new(&server);
    for options in ["", "NONSCALING", "KIND classic", "KIND counting", "KIND cuckoo", "WINDOW 7d"] {
        client.say(&format!("BF.RESERVE f 0.01 10000 {options}"));
        let empty = Figures::of(&mut client, "f");
        for name in ["Items added", "Items estimated", "Fill", "Current rate"] {
            assert_eq!(empty.number(name), 0.0, "{options} {name}");
        }
        assert!((empty.number("Target rate") / 0.01 - 1.0).abs() < 1e-9, "{options}");
        // A step of the window is for a quarter of its items.
        let half = if options.starts_with("WINDOW") { 2500 } else { 5000 };
        add(&mut client, "f", &names("f", half));
        let figures = Figures::of(&mut client, "f");
        figures.assert_true_of(half);
        let fill = figures.number("Fill");
        assert!(fill > 0.0 && fill < 0.6, "{options}: {fill}");
        client.say("DEL f");
    }
    for count in [100, 101, 300, 5000, 100_000] {
        add(&mut client, "grown", &names("grown", count));
        Figures::of(&mut client, "grown").assert_true_of(count);
    }
    assert_eq!(Figures::of(&mut client, "grown").0["Kind"], "blocked and scalable");
}

#[test]
fn an_estimate_is_true_of_filters_in_the_form_of_redisbloom() {
    let server = server();
    let mut client = Client::new(&server);
    client.say("BF.RESERVE f 0.01 10000 KIND redisbloom");
    for count in [5000, 50_000] {
        add(&mut client, "f", &names("f", count));
        Figures::of(&mut client, "f").assert_true_of(count);
    }
    // Nothing was promised for CF.*.
    client.say("CF.RESERVE cf 1000");
    for item in names("cf", 500) {
        client.say_words(&["CF.ADD", "cf", &item]);
    }
    let figures = Figures::of(&mut client, "cf");
    assert_eq!(figures.number("Items estimated"), 500.0);
    assert!(!figures.0.contains_key("Target rate"));
    let foreign = count_yes(&mut client, "CF.MEXISTS", "cf", &names("foreign", 100_000)) as f64;
    let expected = figures.number("Current rate") * 1e5;
    // The seats of 500 items vary from filter to filter: one in ten, besides the five deviations.
    let bound = 0.1 * expected + 5.0 * expected.sqrt();
    assert!((foreign - expected).abs() <= bound, "{foreign}, expected {expected}");
}

// IB.OPEN and IB.SAVE

/// A folder that clients may use, and one beside it that they may not.
struct Folders {
    _both: tempfile::TempDir,
    inside: PathBuf,
    outside: PathBuf,
}

impl Folders {
    fn new() -> Folders {
        let both = tempfile::tempdir().expect("a folder for temporary files");
        let root = both.path().canonicalize().expect("it is there");
        let (inside, outside) = (root.join("inside"), root.join("outside"));
        for folder in [&inside, &outside] {
            fs::create_dir(folder).expect("a new folder");
        }
        Folders { _both: both, inside, outside }
    }

    fn server(&self) -> Server {
        Server::new(Config { import_dir: Some(self.inside.clone()), ..Config::default() })
    }
}

/// Saves a filter that has `a`, `b` and `c`.
fn build(kind: Kind, hasher: Hasher, path: &Path) {
    let plan = Plan::builder(kind).items(100).rate(0.0001).build().expect("a plan");
    let digests: Vec<_> = ["a", "b", "c"].iter().map(|item| hasher.digest(item)).collect();
    let filter = Filter::build(plan, hasher, &digests).expect("a filter");
    filter.save(path).expect("a file");
}

#[test]
fn files_are_refused_unless_a_folder_was_set_aside() {
    let folders = Folders::new();
    build(Kind::Blocked, Hasher::default(), &folders.inside.join("f.ib"));
    let server = server();
    let mut client = Client::new(&server);
    client.say("BF.ADD f a");
    let absolute = folders.inside.join("f.ib");
    for path in ["f.ib", absolute.to_str().expect("plain letters")] {
        for line in [format!("IB.OPEN new {path}"), format!("IB.SAVE f {path}")] {
            assert_refused(&mut client, &line, "start the server with --import-dir");
        }
    }
    assert_eq!(client.say("EXISTS new"), ":0\r\n");
}

#[test]
fn a_file_built_with_the_library_answers() {
    let folders = Folders::new();
    let server = folders.server();
    let mut client = Client::new(&server);
    fs::create_dir(folders.inside.join("below")).expect("a new folder");
    for kind in [Kind::Blocked, Kind::Classic, Kind::Counting, Kind::Cuckoo, Kind::Ribbon] {
        // A file may have a hash of its own.
        for hasher in [Hasher::default(), Hasher::xxh3(7)] {
            build(kind, hasher, &folders.inside.join("below/f.ib"));
            client.check(&[
                ("IB.OPEN f below/f.ib", "+OK/"),
                ("IB.OPEN f below/f.ib", "-ERR item exists/"),
                ("BF.MEXISTS f a b c d", "*4/:1/:1/:1/:0/"),
                ("BF.EXISTS f a", ":1/"),
                ("BF.CARD f", ":3/"),
                ("IB.CHECKANY c f", "*1/$1/f/"),
                ("IB.CHECKANY d f", "*0/"),
                ("DEL f", ":1/"),
            ]);
        }
    }
    assert_refused(&mut client, "IB.OPEN f below/absent.ib", "absent.ib");
    fs::write(folders.inside.join("text.ib"), "no filter").expect("a file");
    refusal(&mut client, "IB.OPEN f text.ib");
    assert_eq!(client.say("EXISTS f"), ":0\r\n");
}

#[test]
fn a_list_that_has_changed_since_it_was_built_answers_as_a_whole() {
    let folders = Folders::new();
    let path = folders.inside.join("list.ib");
    build(Kind::Ribbon, Hasher::xxh3(7), &path);
    let list = Filter::open(&path).expect("a list");
    let mut list = list.into_overlay(0.001).expect("a ribbon can be changed");
    assert!(list.insert("new").expect("it grows") && list.remove("b").expect("it was in"));
    list.save(&path).expect("a file");

    let server = folders.server();
    let mut client = Client::new(&server);
    client.check(&[
        ("IB.OPEN f list.ib", "+OK/"),
        ("BF.MEXISTS f a b c d new", "*5/:1/:0/:1/:0/:1/"),
        ("BF.EXISTS f b", ":0/"),
        ("BF.EXISTS f new", ":1/"),
        ("BF.CARD f", ":3/"),
        ("IB.CHECKANY new f", "*1/$1/f/"),
        ("IB.CHECKANY b f", "*0/"),
    ]);
    assert_refused(&mut client, "BF.ADD f newer", "read-only");
    refusal(&mut client, "IB.DEL f a");
    client.check(&[
        ("IB.SAVE f copy.ib", "+OK/"),
        ("IB.OPEN copy copy.ib", "+OK/"),
        ("BF.MEXISTS copy a b c d new", "*5/:1/:0/:1/:0/:1/"),
    ]);
    assert!(Filter::open(folders.inside.join("copy.ib")).expect("what was saved") == list);
}

#[test]
fn a_file_that_has_grown_answers_as_a_whole_and_does_not_grow_here() {
    let folders = Folders::new();
    let plan =
        Plan::builder(Kind::Blocked).items(100).rate(1e-6).growing().build().expect("a plan");
    let mut filter = Filter::new(plan).and_then(Filter::into_growing).expect("a filter");
    filter.insert_many(&names("item", 5000), &mut Vec::new()).expect("it grows");
    filter.save(folders.inside.join("grown.ib")).expect("a file");

    let server = folders.server();
    let mut client = Client::new(&server);
    client.check(&[
        ("IB.OPEN f grown.ib", "+OK/"),
        ("BF.MEXISTS f item0 item99 item4999 item5000", "*4/:1/:1/:1/:0/"),
        ("BF.EXISTS f item4999", ":1/"),
        ("BF.CARD f", ":5000/"),
        ("IB.CHECKANY item4999 f", "*1/$1/f/"),
        ("IB.SAVE f copy.ib", "+OK/"),
        ("IB.OPEN copy copy.ib", "+OK/"),
        ("BF.MEXISTS copy item0 item4999 item5000", "*3/:1/:1/:0/"),
    ]);
    assert_refused(&mut client, "BF.ADD f newer", "read-only");
    assert!(Filter::open(folders.inside.join("copy.ib")).expect("what was saved") == filter);
    // Its image goes through DUMP and RESTORE like that of any other filter.
    let mut say = |words: &[&[u8]]| {
        let (mut input, mut reply) = (format!("*{}\r\n", words.len()).into_bytes(), Vec::new());
        for word in words {
            input.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            input.extend_from_slice(&[word, &b"\r\n"[..]].concat());
        }
        client.session.process(&server, &input, &mut reply, Place::Own);
        reply
    };
    let dump = say(&[b"DUMP", b"f"]);
    let start = dump.iter().position(|byte| *byte == b'\n').expect("a bulk string") + 1;
    assert_eq!(say(&[b"RESTORE", b"g", b"0", &dump[start..dump.len() - 2]]), b"+OK\r\n");
    client.check(&[
        ("BF.MEXISTS g item0 item4999 item5000", "*3/:1/:1/:0/"),
        // A filter of a file takes no memory that nobody has granted.
        ("BF.ADD g item4999", ":0/"),
        ("BF.ADD g newer", "-ERR non scaling filter is full/"),
        ("BF.CARD g", ":5000/"),
    ]);
}

#[test]
fn a_list_larger_than_max_memory_is_served_from_its_file() {
    let folders = Folders::new();
    let (path, hasher) = (folders.inside.join("list.ib"), Hasher::default());
    let digests: Vec<_> = names("item", 100_000).iter().map(|item| hasher.digest(item)).collect();
    let plan = Plan::builder(Kind::Ribbon).items(100_000).rate(1e-6).build().expect("a plan");
    let plain = Filter::build(plan, hasher, &digests).expect("a filter");
    let mut changed = plain.clone().into_overlay(2e-6).expect("a ribbon can be changed");
    assert!(changed.insert("new").expect("it grows") && changed.remove("item1").expect("it was"));
    for list in [plain, changed] {
        list.save(&path).expect("a file");
        let mut config = Config { import_dir: Some(folders.inside.clone()), ..Config::default() };
        config.settings.max_memory = 100_000;
        assert!(list.bytes() > 2 * config.settings.max_memory, "{} bytes", list.bytes());
        let server = Server::new(config);
        let mut client = Client::new(&server);
        client.check(&[
            ("IB.OPEN list list.ib", "+OK/"),
            ("BF.MEXISTS list item0 item99999 foreign", "*3/:1/:1/:0/"),
            // It is on no account, so that there is room for others; but not for a copy of it.
            ("BF.ADD other a", ":1/"),
        ]);
        assert!(server.limits.in_use() < 10_000, "{} bytes", server.limits.in_use());
        assert_refused(&mut client, "DUMP list", "Insufficient memory");
        assert_refused(&mut client, "IB.SAVE list copy.ib", "Insufficient memory");
        // Queries may wait for the disk, which an event loop must not.
        let place = |client: &mut Client<'_>, name| {
            let input = request(&["BF.EXISTS", name, "a"]);
            client.session.process(&server, &input, &mut Vec::new(), Place::Shared).next
        };
        assert_eq!(place(&mut client, "list"), Next::Work);
        assert_eq!(place(&mut Client::new(&server), "other"), Next::Read);
    }
}

#[test]
fn an_opened_file_is_not_changed() {
    let folders = Folders::new();
    let server = folders.server();
    let mut client = Client::new(&server);
    for kind in [Kind::Blocked, Kind::Classic, Kind::Counting, Kind::Cuckoo] {
        let path = folders.inside.join("f.ib");
        build(kind, Hasher::default(), &path);
        let bytes = fs::read(&path).expect("the file");
        assert_eq!(client.say("IB.OPEN f f.ib"), "+OK\r\n");
        assert_refused(&mut client, "BF.ADD f new", "read-only");
        let reply = client.say("BF.MADD f new newer");
        assert!(
            reply.starts_with("*1\r\n-ERR the filter is a file opened read-only by IB.OPEN"),
            "{reply}"
        );
        refusal(&mut client, "IB.DEL f a");
        // A copy can be changed; and the copy, which is larger now, is not taken in.
        client.check(&[
            ("IB.MERGE copy f", "+OK/"),
            ("BF.ADD copy new", ":1/"),
            ("BF.MEXISTS copy a b c new", "*4/:1/:1/:1/:1/"),
        ]);
        assert_refused(&mut client, "IB.MERGE f copy", "read-only");
        client.check(&[("BF.MEXISTS f a b c new", "*4/:1/:1/:1/:0/"), ("DEL f copy", ":2/")]);
        assert!(fs::read(&path).expect("the file") == bytes, "{kind}: the file was changed");
    }
}

/// The golden files of the library's tests were made by the programs themselves.
#[test]
fn files_of_other_programs_are_served_and_not_changed() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../inbloom/tests/golden/foreign");
    let folders = Folders::new();
    let server = folders.server();
    let mut client = Client::new(&server);
    for (format, name, extension) in [
        ("guava", "mitz64-str-1k", "bin"),
        ("guava", "mitz32-str-1k", "bin"),
        ("spark", "v2-str-1k", "bin"),
        ("go", "bb371-str-1k", "bin"),
        ("go", "bb371-json-1k", "json"),
        ("dcso", "cli-str-1k", "bloom"),
    ] {
        let file = golden.join(format).join(format!("{name}.{extension}"));
        fs::copy(file, folders.inside.join("f")).expect("a copy of the file");
        assert_eq!(client.say("IB.OPEN f f"), "+OK\r\n", "{name}");
        let probes = fs::read_to_string(golden.join(format).join(format!("{name}.probes.txt")));
        let probes = probes.expect("a list of probes");
        let (mut words, mut expected) = (vec!["BF.MEXISTS", "f"], Vec::new());
        for line in probes.split_terminator('\n') {
            let (answer, rest) = line.split_once('\t').expect("an answer");
            words.push(rest.split_once('\t').expect("a key").1);
            expected.push(format!(":{answer}\r\n"));
        }
        let reply = client.say_words(&words);
        assert!(reply == format!("*2000\r\n{}", expected.concat()), "{name}");
        for (item, expected) in words[2..].iter().zip(&expected).step_by(40) {
            assert_eq!(client.say_words(&["BF.EXISTS", "f", item]), *expected, "{name}: {item}");
            let any = client.say_words(&["IB.CHECKANY", item, "f"]);
            assert_eq!(any.starts_with("*1"), expected == ":1\r\n", "{name}: {item}");
        }
        assert_refused(&mut client, "BF.ADD f new", "read-only");
        client.check(&[("IB.MERGE copy f", "+OK/")]);
        assert_refused(&mut client, "IB.MERGE f copy", "read-only");
        client.check(&[("DEL f copy", ":2/")]);
    }
}

#[test]
fn a_filter_of_a_file_that_holds_several_is_served_by_its_name() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../inbloom/tests/golden");
    let folders = Folders::new();
    let server = folders.server();
    let mut client = Client::new(&server);
    for (file, part, case, column) in [
        ("foreign/parquet/rust-str-1k.parquet", "k/1", "foreign/parquet/rust-str-1k", 1),
        ("foreign/parquet/rust-str-10.parquet", "k", "foreign/parquet/rust-str-10", 0),
        (
            "redisbloom/server-7.0-rb2.6.28.rdb",
            "bf-scaled-str-1k",
            "redisbloom/bf-scaled-str-1k",
            0,
        ),
    ] {
        fs::copy(golden.join(file), folders.inside.join("f")).expect("a copy of the file");
        assert_eq!(client.say(&format!("IB.OPEN f f#{part}")), "+OK\r\n", "{file}");
        let probes = fs::read_to_string(golden.join(format!("{case}.probes.txt")));
        for line in probes.expect("a list of probes").split_terminator('\n').step_by(7) {
            let (answers, rest) = line.split_once('\t').expect("answers");
            let key = rest.split_once('\t').expect("a key").1;
            let answer = client.say_words(&["BF.EXISTS", "f", key]);
            assert_eq!(answer, format!(":{}\r\n", &answers[column..=column]), "{file}: {key}");
        }
        client.check(&[("DEL f", ":1/")]);
        assert_refused(&mut client, "IB.OPEN f f#another", "name one of");
        assert_refused(&mut client, &format!("IB.OPEN f none#{part}"), "none");
        assert_refused(&mut client, &format!("IB.OPEN f ../inside/f#{part}"), "below --import-dir");
    }
}

#[test]
fn one_filter_of_a_parquet_file_takes_no_memory_for_the_rest_of_the_file() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../inbloom/tests/golden/foreign");
    let bytes = fs::read(golden.join("parquet/rust-str-1k.parquet")).expect("the file");
    let folders = Folders::new();
    // 64 MiB more between the filters and the footer, which has the places of the filters.
    let tail = &bytes[bytes.len() - 8..];
    let footer = u32::from_le_bytes(tail[..4].try_into().expect("4 bytes")) as usize;
    let (start, end) = bytes.split_at(bytes.len() - 8 - footer);
    let mut file = fs::File::create(folders.inside.join("f")).expect("a file");
    file.write_all(start).expect("room");
    file.seek(SeekFrom::Current(64 << 20)).expect("a sparse file");
    file.write_all(end).expect("room");
    let mut config = Config { import_dir: Some(folders.inside.clone()), ..Config::default() };
    config.settings.max_memory = 8 << 20;
    let server = Server::new(config);
    let mut client = Client::new(&server);
    client.check(&[("IB.OPEN f f#k/1", "+OK/"), ("DEL f", ":1/")]);
    assert_refused(&mut client, "IB.OPEN f f", "name one of");
    assert_refused(&mut client, "IB.OPEN f f#k/9", "name one of");

    // It is granted before it is read.
    assert_eq!(client.say("CONFIG SET maxmemory 1000"), "+OK\r\n");
    assert_refused(&mut client, "IB.OPEN f f#k/1", "Insufficient memory");
}

#[test]
fn a_file_of_a_retired_layout_is_refused_by_name() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../inbloom/tests/golden/retired");
    let folders = Folders::new();
    let server = folders.server();
    let mut client = Client::new(&server);
    for name in ["ribbon-layout-0.ib", "ribbon-overlay-layout-0.ib"] {
        fs::copy(golden.join(name), folders.inside.join("f")).expect("a copy of the file");
        let expected = "layout: expected 1 in a filter of kind ribbon, got 0; this inbloom no \
                        longer reads that layout; build the filter again from its keys";
        assert_refused(&mut client, "IB.OPEN f f", expected);
    }
}

#[test]
fn a_saved_filter_opens_again_here_and_by_the_library() {
    let folders = Folders::new();
    let server = folders.server();
    let mut client = Client::new(&server);
    for options in ["", "NONSCALING", "KIND classic", "KIND counting", "KIND cuckoo", "WINDOW 7d"] {
        client.say(&format!("BF.RESERVE f 0.01 1000 {options}"));
        let items = names("f", 500);
        let new = add(&mut client, "f", &items) as u64;
        client.check(&[("IB.SAVE f f.ib", "+OK/"), ("IB.OPEN again f.ib", "+OK/")]);
        let questions: Vec<String> = items.iter().cloned().chain(names("foreign", 1000)).collect();
        let filter = Filter::open(folders.inside.join("f.ib")).expect("a filter of ours");
        file::verify(folders.inside.join("f.ib")).expect("a whole file");
        assert_eq!(filter.inserted(), new, "{options}");
        for question in &questions {
            let here = client.say_words(&["BF.EXISTS", "f", question]);
            let again = client.say_words(&["BF.EXISTS", "again", question]);
            assert_eq!(again, here, "{options} {question}");
            let by_library = format!(":{}\r\n", u8::from(filter.contains(question)));
            assert_eq!(by_library, here, "{options} {question}");
        }
        assert_eq!(claimed(&mut client, "again", &items), items.len(), "{options}");
        client.say("DEL f again");
    }
}

#[test]
fn what_has_no_file_of_ours_is_not_saved() {
    let folders = Folders::new();
    let server = folders.server();
    let mut client = Client::new(&server);
    add(&mut client, "grown", &names("grown", 1000));
    client.say("BF.RESERVE theirs 0.01 100 KIND redisbloom");
    client.say("CF.ADD cuckoo a");
    assert_refused(&mut client, "IB.SAVE grown f.ib", "was reserved for 100 items and has grown");
    let theirs = "(CF.*, KIND redisbloom, or loaded from RedisBloom) cannot be saved";
    assert_refused(&mut client, "IB.SAVE theirs f.ib", theirs);
    assert_refused(&mut client, "IB.SAVE cuckoo f.ib", theirs);
    assert_refused(&mut client, "IB.SAVE absent f.ib", "no filter absent");
    assert_eq!(fs::read_dir(&folders.inside).expect("the folder").count(), 0);
}

#[test]
fn no_path_leads_out_of_the_folder() {
    let folders = Folders::new();
    let server = folders.server();
    let mut client = Client::new(&server);
    let secret = folders.outside.join("secret.ib");
    build(Kind::Blocked, Hasher::default(), &secret);
    build(Kind::Blocked, Hasher::default(), &folders.inside.join("f.ib"));
    fs::create_dir(folders.inside.join("below")).expect("a new folder");
    let bytes = fs::read(&secret).expect("the file");
    client.say("BF.ADD mine x");
    let absolute = folders.inside.join("f.ib");
    let mut paths = vec![
        "../outside/secret.ib".to_owned(),
        "below/../../outside/secret.ib".to_owned(),
        "below/../f.ib".to_owned(),
        "./../outside/secret.ib".to_owned(),
        "..".to_owned(),
        ".".to_owned(),
        "/".to_owned(),
        String::new(),
        "absent/f.ib".to_owned(),
        secret.to_str().expect("plain letters").to_owned(),
        absolute.to_str().expect("plain letters").to_owned(),
    ];
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        symlink(&secret, folders.inside.join("link.ib")).expect("a link");
        symlink("../outside/secret.ib", folders.inside.join("relative.ib")).expect("a link");
        symlink(&folders.outside, folders.inside.join("folder")).expect("a link");
        symlink("link.ib", folders.inside.join("twice.ib")).expect("a link");
        let links = ["link.ib", "relative.ib", "folder/secret.ib", "folder/new.ib", "twice.ib"];
        paths.extend(links.map(str::to_owned));
    }
    for path in &paths {
        for words in [["IB.OPEN", "new", path], ["IB.SAVE", "mine", path]] {
            let reply = client.say_words(&words);
            let is_refused = reply.starts_with("-ERR ") && reply.contains("below --import-dir");
            assert!(is_refused, "{words:?}: {reply}");
        }
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        // A link to what is not there yet: nothing is written out there.
        symlink(folders.outside.join("later.ib"), folders.inside.join("later.ib")).expect("a link");
        let reply = client.say("IB.SAVE mine later.ib");
        assert!(reply.contains("below --import-dir"), "{reply}");
        // A link that stays inside is a path like others.
        symlink("f.ib", folders.inside.join("stays.ib")).expect("a link");
        client.check(&[("IB.OPEN stays stays.ib", "+OK/"), ("BF.EXISTS stays a", ":1/")]);
    }
    assert_eq!(client.say("EXISTS new"), ":0\r\n");
    assert!(fs::read(&secret).expect("the file") == bytes, "the file outside was changed");
    assert_eq!(fs::read_dir(&folders.outside).expect("the folder").count(), 1);
}

// IB.CHECKANY

#[test]
fn one_question_to_many_filters_names_those_that_have_it() {
    let server = server();
    let mut client = Client::new(&server);
    client.check(&[
        ("BF.ADD bloom a", ":1/"),
        ("BF.RESERVE window 0.01 100 WINDOW 7d", "+OK/"),
        ("BF.MADD window a b", "*2/:1/:1/"),
        ("CF.ADD cuckoo a", ":1/"),
        ("CF.ADD cuckoo c", ":1/"),
        ("BF.RESERVE theirs 0.01 100 KIND redisbloom", "+OK/"),
        ("BF.ADD theirs d", ":1/"),
        ("IB.CHECKANY a missing cuckoo bloom theirs window", "*3/$6/cuckoo/$5/bloom/$6/window/"),
        ("IB.CHECKANY b missing bloom window cuckoo theirs", "*1/$6/window/"),
        ("IB.CHECKANY c missing bloom window cuckoo theirs", "*1/$6/cuckoo/"),
        ("IB.CHECKANY d missing bloom window cuckoo theirs", "*1/$6/theirs/"),
        ("IB.CHECKANY e missing bloom window cuckoo theirs", "*0/"),
        ("IB.CHECKANY a missing", "*0/"),
        ("IB.CHECKANY a bloom bloom", "*2/$5/bloom/$5/bloom/"),
        ("EXISTS missing", ":0/"),
    ]);
    // A grown filter is asked as a whole.
    let items = names("grown", 1000);
    add(&mut client, "grown", &items);
    for item in &items {
        let reply = client.say_words(&["IB.CHECKANY", item, "missing", "grown"]);
        assert_eq!(reply, "*1\r\n$5\r\ngrown\r\n", "{item}");
    }
}

// KIND, WINDOW and AUTOCLEAR

#[test]
fn every_kind_is_reserved_added_to_and_asked() {
    let server = server();
    let mut client = Client::new(&server);
    for kind in ["classic", "blocked", "counting", "cuckoo", "redisbloom", "Classic", "REDISBLOOM"]
    {
        let reserve = format!("BF.RESERVE f 0.01 1000 KIND {kind}");
        client.check(&[(&reserve, "+OK/"), (&reserve, "-ERR item exists/")]);
        let items = names("f", 1000);
        let new = add(&mut client, "f", &items);
        assert!(new >= 980, "{kind}: {new} of 1000 were new");
        assert_eq!(add(&mut client, "f", &items[..10]), 0, "{kind}");
        assert_eq!(claimed(&mut client, "f", &items), 1000, "{kind}");
        assert_eq!(client.say("BF.CARD f"), format!(":{new}\r\n"), "{kind}");
        let foreign = claimed(&mut client, "f", &names("foreign", 10_000));
        // 100 and five times the root of it.
        assert!(foreign <= 150, "{kind}: {foreign} of 10000 at a rate of 0.01");
        client.check(&[("TYPE f", "+MBbloom--/"), ("DEL f", ":1/")]);
    }
}

#[test]
fn what_does_not_grow_is_full_at_its_capacity() {
    let server = server();
    let mut client = Client::new(&server);
    for options in [
        "NONSCALING",
        "EXPANSION 0",
        "KIND blocked NONSCALING",
        "KIND redisbloom NONSCALING",
        "KIND classic",
        "KIND counting",
        "KIND cuckoo",
    ] {
        for capacity in [1, 2, 50, 1000] {
            client.say(&format!("BF.RESERVE f 0.01 {capacity} {options}"));
            let mut new = 0;
            let refused = names("f", 2 * capacity + 10).iter().find_map(|item| {
                let reply = client.say_words(&["BF.ADD", "f", item]).replace("\r\n", "/");
                new += usize::from(reply == ":1/");
                (!matches!(&*reply, ":0/" | ":1/")).then_some((item.clone(), reply))
            });
            let (item, reply) = refused.unwrap_or_else(|| panic!("{options} {capacity}: not full"));
            assert_eq!((&*reply, new), (FULL, capacity), "{options} {capacity}");
            let words = ["BF.MADD", "f", "f0", &item, "f0"];
            let reply = client.say_words(&words).replace("\r\n", "/");
            assert_eq!(reply, format!("*2/:0/{FULL}"), "{options} {capacity}");
            assert_eq!(client.say_words(&["BF.EXISTS", "f", &item]), ":0\r\n", "{options}");
            assert_eq!(client.say("BF.CARD f"), format!(":{capacity}\r\n"), "{options}");
            client.say("DEL f");
        }
    }
}

#[test]
fn an_item_that_is_in_is_never_refused() {
    let server = server();
    let mut client = Client::new(&server);
    for options in
        ["NONSCALING", "KIND redisbloom NONSCALING", "KIND classic", "KIND counting", "KIND cuckoo"]
    {
        client.say(&format!("BF.RESERVE f 0.0001 100 {options}"));
        add(&mut client, "f", &names("f", 50));
        for round in 0..20 {
            for item in names("f", 50) {
                let reply = client.say_words(&["BF.ADD", "f", &item]);
                assert_eq!(reply, ":0\r\n", "{options}: {item} in round {round}");
            }
        }
        assert_eq!(client.say("BF.CARD f"), ":50\r\n", "{options}");
        client.say("DEL f");
    }
}

/// An item that is claimed before it was added is one that BF.ADD calls known. Who adds it may
/// remove it, and the others must not suffer.
#[test]
fn removing_what_was_added_denies_no_other_item() {
    let server = server();
    let mut client = Client::new(&server);
    for kind in ["counting", "cuckoo"] {
        for added in [40, 50] {
            client.say(&format!("BF.RESERVE f 0.1 50 KIND {kind}"));
            let mut items = names("f", 200);
            let mut left = added;
            // Only what is new counts, up to the capacity.
            items.retain(|item| {
                let is_new = left > 0 && client.say_words(&["BF.ADD", "f", item]) == ":1\r\n";
                left -= usize::from(is_new);
                is_new
            });
            assert_eq!((items.len(), claimed(&mut client, "f", &items)), (added, added), "{kind}");
            let candidates = names("foreign", 1000);
            let foreign = candidates
                .iter()
                .find(|item| client.say_words(&["BF.EXISTS", "f", item]) == ":1\r\n")
                .expect("one of a thousand at a rate of 0.1");
            if client.say_words(&["BF.ADD", "f", foreign]) == ":0\r\n" {
                assert_eq!(client.say_words(&["IB.DEL", "f", foreign]), "*1\r\n:1\r\n", "{kind}");
            }
            let claims = claimed(&mut client, "f", &items);
            assert_eq!(claims, added, "{kind} with {added} of 50: an item is denied");
            client.say("DEL f");
        }
    }
}

#[test]
fn blocked_filters_and_those_of_redisbloom_grow() {
    let server = server();
    let mut client = Client::new(&server);
    for options in ["", "KIND blocked", "KIND redisbloom", "KIND blocked EXPANSION 4"] {
        client.say(&format!("BF.RESERVE f 0.01 10 {options}"));
        let items = names("f", 5000);
        let new = add(&mut client, "f", &items);
        assert!(new >= 4900, "{options}: {new} of 5000 were new");
        assert_eq!(claimed(&mut client, "f", &items), 5000, "{options}");
        client.say("DEL f");
    }
}

/// The server has no word about this kind: it is a folder and a row of the library.
#[test]
#[cfg(feature = "example-kind")]
fn a_kind_that_is_only_a_row_is_reserved_by_its_name() {
    let server = server();
    let mut client = Client::new(&server);
    assert_eq!(client.say("BF.RESERVE f 0.0001 5000 KIND prints"), "+OK\r\n");
    let items = names("f", 5000);
    assert_eq!(add(&mut client, "f", &items), 5000);
    assert_eq!(claimed(&mut client, "f", &items), 5000);
    assert_eq!(claimed(&mut client, "f", &names("g", 5000)), 0);
    assert_eq!(client.say("BF.CARD f"), ":5000\r\n");
    assert_eq!(client.say("BF.INFO f CAPACITY"), "*1\r\n:5000\r\n");
    assert_refused(&mut client, "BF.RESERVE g 0.01 10 KIND nothing", "unknown KIND 'nothing'");
}

#[test]
fn wrong_words_are_errors_that_say_what_was_expected() {
    let server = server();
    let mut client = Client::new(&server);
    let kind = "': expected blocked, classic, counting, cuckoo or redisbloom";
    let window = "invalid WINDOW '";
    let clear = "invalid AUTOCLEAR ";
    let growth = "EXPANSION cannot be combined with KIND";
    let pairs = "WINDOW cannot be combined with KIND or AUTOCLEAR";
    for (options, expected) in [
        ("KIND bloom", kind),
        ("KIND scalable", kind),
        ("KIND ribbon", kind),
        ("KIND", kind),
        ("WINDOW 7", window),
        ("WINDOW 7y", window),
        ("WINDOW d", window),
        ("WINDOW 0d", window),
        ("WINDOW -1d", window),
        ("WINDOW 1.5ms", window),
        ("WINDOW 99999999999999999999w", window),
        ("WINDOW 9223372036854775807w", window),
        ("WINDOW", window),
        ("AUTOCLEAR 0", clear),
        ("AUTOCLEAR -0.5", clear),
        ("AUTOCLEAR 1.5", clear),
        ("AUTOCLEAR half", clear),
        ("AUTOCLEAR nan", clear),
        ("AUTOCLEAR", clear),
        ("KIND classic EXPANSION 2", growth),
        ("WINDOW 7d EXPANSION 2", growth),
        ("AUTOCLEAR 0.5 EXPANSION 2", growth),
        ("KIND classic WINDOW 7d", pairs),
        ("WINDOW 7d AUTOCLEAR 0.5", pairs),
        ("KIND redisbloom AUTOCLEAR 0.5", pairs),
        ("WINDOWS 7d", "unknown option 'WINDOWS': expected EXPANSION, NONSCALING, KIND, WINDOW"),
    ] {
        let line = format!("BF.RESERVE f 0.01 100 {options}");
        assert_refused(&mut client, &line, expected);
        let said = options.split(' ').nth(1).filter(|_| expected == kind);
        if let Some(word) = said {
            assert_refused(&mut client, &line, &format!("unknown KIND '{word}'"));
        }
        assert_eq!(client.say("EXISTS f"), ":0\r\n", "{options}");
    }
    // As long as it has steps, or longer.
    assert_refused(&mut client, "BF.RESERVE f 0.01 100 WINDOW 3ms", "window is 3, but must be");
}

#[test]
fn every_share_that_the_text_allows_is_taken() {
    let server = server();
    let mut client = Client::new(&server);
    let text = refusal(&mut client, "BF.RESERVE f 0.01 100 AUTOCLEAR 2");
    assert!(text.contains("above 0 and"), "{text}");
    for share in ["0.001", "0.5", "0.999"] {
        let line = format!("BF.RESERVE f 0.01 100 AUTOCLEAR {share}");
        client.check(&[(&line, "+OK/"), ("DEL f", ":1/")]);
    }
    let whole = client.say("BF.RESERVE f 0.01 100 AUTOCLEAR 1");
    assert_eq!(whole == "+OK\r\n", text.contains("at most 1"), "said {text:?}, and then {whole:?}");
}

#[test]
fn a_filter_that_clears_itself_forgets_all_but_the_newest() {
    let server = server();
    let mut client = Client::new(&server);
    for options in ["AUTOCLEAR 0.5", "KIND classic AUTOCLEAR 0.5", "KIND counting AUTOCLEAR 0.5"] {
        client.say(&format!("BF.RESERVE f 0.01 1000 {options}"));
        client.check(&[("BF.ADD f early", ":1/"), ("BF.ADD f early", ":0/")]);
        let mut added = 0;
        let cleared = names("f", 5000).into_iter().find(|item| {
            added += 1;
            client.say_words(&["BF.ADD", "f", item]);
            client.say("BF.EXISTS f early") == ":0\r\n"
        });
        let newest = cleared.unwrap_or_else(|| panic!("{options}: kept through 5000 adds"));
        // It was reserved for 1000, which set about half of its bits.
        assert!((700..1500).contains(&added), "{options}: cleared after {added}");
        assert_eq!(client.say_words(&["BF.EXISTS", "f", &newest]), ":1\r\n", "{options}");
        client.check(&[("BF.CARD f", ":1/"), ("BF.ADD f early", ":1/"), ("BF.CARD f", ":2/")]);
        // It goes on for good, and never says that it is full.
        add(&mut client, "f", &names("more", 20_000));
        let fill = Figures::of(&mut client, "f").number("Fill");
        assert!(fill > 0.0 && fill < 0.52, "{options}: {fill}");
        client.say("DEL f");
    }
}

#[test]
fn a_window_keeps_items_for_its_span_and_then_forgets_them() {
    let server = server();
    let mut client = Client::new(&server);
    client.check(&[
        ("BF.RESERVE long 0.01 1000 WINDOW 7d", "+OK/"),
        ("BF.RESERVE short 0.01 1000 WINDOW 40ms", "+OK/"),
        ("BF.RESERVE asked 0.01 1000 WINDOW 4ms", "+OK/"),
        ("BF.RESERVE any 0.01 1000 WINDOW 4ms", "+OK/"),
    ]);
    let items = names("w", 200);
    add(&mut client, "long", &items);
    let begin = Instant::now();
    for key in ["short", "asked", "any"] {
        assert_eq!(client.say(&format!("BF.ADD {key} a")), ":1\r\n");
    }
    let questions = [
        ("BF.EXISTS short a", ":0\r\n"),
        ("BF.MEXISTS asked a b", "*2\r\n:0\r\n:0\r\n"),
        ("IB.CHECKANY a any", "*0\r\n"),
    ];
    for (question, forgotten) in questions {
        while client.say(question) != forgotten {
            assert!(begin.elapsed() < Duration::from_secs(10), "{question}: not forgotten");
            std::thread::yield_now();
        }
        // The server counts whole milliseconds.
        let is_early = begin.elapsed() < Duration::from_millis(38);
        assert!(!(question.contains("short") && is_early), "forgotten after {:?}", begin.elapsed());
    }
    assert_eq!(client.say("BF.ADD short a"), ":1\r\n", "it is new again");
    assert_eq!(claimed(&mut client, "long", &items), 200);
    assert_eq!(add(&mut client, "long", &items), 0);
}

// Rates

/// How the items of the filters are named.
#[derive(Clone, Copy, Debug)]
enum Naming {
    Words,
    /// 0, 1, 2 and so on: what hashes of little care stumble over.
    Integers,
}

impl Naming {
    /// Items of one of many filters: those added, and others.
    fn items(self, filter: usize, added: usize, absent: usize) -> (Vec<String>, Vec<String>) {
        match self {
            Naming::Words => (
                names(&format!("filter {filter}, item "), added),
                names(&format!("filter {filter}, absent "), absent),
            ),
            Naming::Integers => {
                let first = filter * (added + absent);
                let integers = |from: usize, count| (from..from + count).map(|at| at.to_string());
                (integers(first, added).collect(), integers(first + added, absent).collect())
            }
        }
    }
}

/// Claims of absent items, of which there were so many, are no more than the rate allows, and five
/// deviations.
fn assert_rate(claims: usize, asked: usize, rate: f64, what: &str) {
    let expected = asked as f64 * rate;
    let bound = expected + 5.0 * (expected * (1.0 - rate)).sqrt();
    assert!(claims as f64 <= bound, "{what}: {claims} of {asked}, at most {bound:.0} expected");
}

/// Many filters, each asked little: the rates of single ones, whose bits fall as they fall, differ
/// by more than their questions do.
#[test]
fn rates_hold_for_tiny_filters() {
    const FILTERS: usize = 2000;
    const ABSENT: usize = 50;
    let server = server();
    let mut client = Client::new(&server);
    for options in ["NONSCALING", "", "KIND classic", "KIND counting", "KIND cuckoo"] {
        let sizes = [1, 2, 10, 100].map(|capacity| [0.1, 0.01, 0.001].map(|rate| (capacity, rate)));
        for (capacity, rate) in sizes.into_iter().flatten() {
            // Planning the other kinds anew for each filter takes its time.
            let filters = if options.starts_with("KIND") { FILTERS / 10 } else { FILTERS };
            for naming in [Naming::Words, Naming::Integers] {
                let mut claims = 0;
                for filter in 0..filters {
                    let reserve = format!("BF.RESERVE f {rate} {capacity} {options}");
                    assert_eq!(client.say(&reserve), "+OK\r\n");
                    let (items, absent) = naming.items(filter, capacity, ABSENT);
                    add(&mut client, "f", &items);
                    assert_eq!(claimed(&mut client, "f", &items), capacity, "{reserve}");
                    claims += claimed(&mut client, "f", &absent);
                    client.say("DEL f");
                }
                let what = format!("capacity {capacity}, rate {rate}, {options} {naming:?}");
                assert_rate(claims, filters * ABSENT, rate, &what);
            }
        }
    }
}

#[test]
fn rates_hold_after_growth() {
    let server = server();
    let mut client = Client::new(&server);
    // Doublings of a filter that is created by its first item, for 100 at 0.01.
    for (doublings, filters, absent) in [(1, 200, 500), (5, 20, 5000), (12, 1, 200_000)] {
        let added = 100 * ((1 << (doublings + 1)) - 1);
        for naming in [Naming::Words, Naming::Integers] {
            let mut claims = 0;
            for filter in 0..filters {
                let (items, absent) = naming.items(filter, added, absent);
                add(&mut client, "f", &items);
                let layers = format!("*1\r\n:{}\r\n", doublings + 1);
                assert_eq!(client.say("BF.INFO f FILTERS"), layers);
                claims += claimed(&mut client, "f", &absent);
                if filter == 0 {
                    assert_eq!(claimed(&mut client, "f", &items), added);
                    Figures::of(&mut client, "f").assert_true_of(added);
                }
                client.say("DEL f");
            }
            let what = format!("{doublings} doublings, {naming:?}");
            assert_rate(claims, filters * absent, 0.01, &what);
        }
    }
}

#[test]
fn no_error_tells_where_the_folder_is() {
    let folders = Folders::new();
    let server = folders.server();
    let mut client = Client::new(&server);
    assert_eq!(client.say("BF.ADD f a"), ":1\r\n");
    fs::create_dir(folders.inside.join("taken")).expect("a new folder");
    fs::write(folders.inside.join("text.ib"), "no filter").expect("a file");
    let inside = folders.inside.display().to_string();
    for line in [
        "IB.SAVE f taken",
        "IB.SAVE f none/f.ib",
        "IB.OPEN g taken",
        "IB.OPEN g none/f.ib",
        "IB.OPEN g text.ib",
        "IB.OPEN g absent.ib",
    ] {
        let reply = refusal(&mut client, line);
        assert!(!reply.contains(&inside), "{line}: {reply}");
    }
    fs::remove_dir_all(&folders.inside).expect("it was there");
    let reply = refusal(&mut client, "IB.SAVE f f.ib");
    assert!(!reply.contains(&inside), "{reply}");
}

const CHANGED: &str = "has changed since IB.OPEN";

#[test]
fn a_file_that_was_written_to_answers_nothing_any_more() {
    let folders = Folders::new();
    let server = folders.server();
    let mut client = Client::new(&server);
    for kind in [Kind::Blocked, Kind::Ribbon, Kind::Counting, Kind::Window] {
        let path = folders.inside.join("f.ib");
        if kind == Kind::Window {
            let plan =
                Plan::builder(kind).items(100).window(Duration::from_secs(60)).build().unwrap();
            Filter::new(plan).unwrap().save(&path).unwrap();
        } else {
            build(kind, Hasher::default(), &path);
        }
        assert_eq!(client.say("IB.OPEN f f.ib"), "+OK\r\n");
        assert_eq!(client.say("BF.EXISTS f zzz"), ":0\r\n");
        // Times of files advance in steps of some milliseconds.
        std::thread::sleep(Duration::from_millis(50));
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes).unwrap();
        for line in [
            "BF.EXISTS f a",
            "BF.MEXISTS f a b",
            "BF.INFO f",
            "BF.CARD f",
            "BF.DEBUG f",
            "BF.SCANDUMP f 0",
            "DUMP f",
            "IB.ESTIMATE f",
            "IB.CHECKANY a f",
            "IB.SAVE f copy.ib",
            "IB.MERGE new f",
        ] {
            assert_refused(&mut client, line, CHANGED);
        }
        assert!(!folders.inside.join("copy.ib").exists(), "nothing is made of it");
        client.check(&[
            ("EXISTS new", ":0/"),
            ("MULTI", "+OK/"),
            ("BF.EXISTS f a", "+QUEUED/"),
            ("PING", "+QUEUED/"),
        ]);
        let reply = client.say("EXEC");
        assert!(reply.starts_with("*2\r\n-ERR ") && reply.ends_with("+PONG\r\n"), "{reply}");
        client.check(&[("DEL f", ":1/"), ("IB.OPEN f f.ib", "+OK/"), ("DEL f", ":1/")]);
    }
}
