//! Filters on a real Redis: the subcommands by address, and servers in front of a store.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use inbloom_testing::redis::{Redis, RedisCluster};

use crate::clients::{Server, check, clients, script};

const PROGRAM: &str = "redis-server";

/// What the command prints, with lines on its standard input.
fn inbloom(words: &[&str], input: &str) -> Output {
    inbloom_with(words, input, &[])
}

fn inbloom_with(words: &[&str], input: &str, environment: &[(&str, &str)]) -> Output {
    let mut process = Command::new(env!("CARGO_BIN_EXE_inbloom"))
        .args(words)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, input) = (process.stdin.take().unwrap(), input.to_owned());
    // A command that fails at once reads nothing.
    let feed = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = process.wait_with_output().unwrap();
    feed.join().unwrap();
    output
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines(prefix: &str, count: usize) -> String {
    (0..count).map(|number| format!("{prefix}{number}\n")).collect()
}

fn probes(address: &str) -> u64 {
    let info = out(&inbloom(&["info", "--json", address], ""));
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    info["probes"].as_u64().unwrap()
}

/// Every subcommand that takes a filter's name takes its address.
fn drive(server: &str) {
    let seen = &format!("{server}/seen");
    let keys = &lines("key:", 20_000);
    let absent = &lines("absent:", 20_000);
    // No filter yet: an error that says so.
    let missing = inbloom(&["check", seen], keys);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("no filter is named \"seen\""), "{missing:?}");
    // dedup makes it.
    let unsized_ = inbloom(&["dedup", "--filter", seen], keys);
    assert!(text(&unsized_.stderr).contains("pass -n"), "{unsized_:?}");
    let dedup = &["dedup", "--filter", seen, "-n", "50k", "-p", "0.001"];
    let twice = format!("{keys}{keys}");
    let printed = out(&inbloom(dedup, &twice));
    let count = printed.lines().count();
    assert!((19_960..=20_000).contains(&count), "{count} of 20,000 lines were printed");
    assert_eq!(out(&inbloom(&["dedup", "--filter", seen], keys)), "", "all are known by now");
    // No false negative, and a rate within the target: 20 of 20,000, with five deviations of chance.
    assert_eq!(out(&inbloom(&["check", "-c", seen], keys)), "20000\n");
    let found = text(&inbloom(&["check", "-c", seen], absent).stdout);
    let found: u32 = found.trim().parse().unwrap();
    assert!(found <= 42, "{found} of 20,000 absent keys");
    let named = out(&inbloom(&["check", seen, "-F", seen], "key:1\n"));
    assert_eq!(named, format!("{seen},{seen}:key:1\n"));
    // add.
    assert_eq!(out(&inbloom(&["add", seen], "key:1\nmore\n")), "1 new of 2 keys\n");
    assert_eq!(out(&inbloom(&["check", seen], "more\nless\n")), "more\n");
    let full = inbloom(&["add", seen], &lines("further:", 60_000));
    assert_eq!(full.status.code(), Some(2));
    assert!(
        text(&full.stderr).contains("the filter is full: it was planned for 50,000 keys"),
        "{full:?}"
    );
    // info, measure.
    let info = out(&inbloom(&["info", seen], ""));
    assert!(info.contains("planned keys    50,000\n"), "{info}");
    assert!(info.contains("normalization   none\n"), "{info}");
    let info = out(&inbloom(&["info", "--json", seen], ""));
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["planned_items"], 50_000);
    let estimated = info["estimated_items"].as_f64().unwrap();
    assert!((estimated - 50_000.0).abs() < 500.0, "{estimated} keys in a full filter for 50,000");
    // The names are those of a filter in a file.
    let occupied = info["occupied"].as_u64().expect("a number");
    let bits = info["bits"].as_f64().expect("a number");
    assert!((occupied as f64 / bits - info["fill"].as_f64().unwrap()).abs() < 0.01, "{info}");
    let measured = out(&inbloom(&["measure", "--queries", "50k", seen], ""));
    assert!(measured.contains("verdict         met"), "{measured}");
    let listed = out(&inbloom(&["info", server], ""));
    assert!(listed.starts_with("seen\t50,000 keys planned\trate 0.100%\t"), "{listed}");
    // A filter that is made on Redis has few probes, unless they are asked for.
    for make in [["dedup", "--filter"], ["build", "-o"]] {
        for (options, expected) in [(&[][..], 4), (&["--probes", "8"], 8)] {
            let few = &format!("{server}/few");
            let sizes = ["-n", "1000", "-p", "0.01"];
            out(&inbloom(&[&make[..], &[few], &sizes, options].concat(), "a\n"));
            assert_eq!(probes(few), expected, "{make:?} {options:?}");
            out(&inbloom(&["delete", few], ""));
        }
    }
    // delete: now, later, never.
    out(&inbloom(&["delete", "--after", "100s", seen], ""));
    let info = out(&inbloom(&["info", "--json", seen], ""));
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let left = info["expires_in_seconds"].as_f64().unwrap();
    assert!(left > 50.0 && left <= 100.0, "{left}");
    out(&inbloom(&["delete", "--cancel", seen], ""));
    assert!(out(&inbloom(&["info", seen], "")).contains("expires         never\n"));
    out(&inbloom(&["delete", seen], ""));
    let gone = inbloom(&["delete", seen], "");
    assert_eq!(gone.status.code(), Some(2));
    assert_eq!(out(&inbloom(&["info", server], "")), "");
}

#[test]
fn subcommands_take_addresses_of_a_server() {
    let Some(redis) = Redis::start(PROGRAM, &[]) else { return };
    drive(&redis.address());
}

#[test]
fn subcommands_take_addresses_of_a_cluster() {
    let Some(cluster) = RedisCluster::start(PROGRAM) else { return };
    drive(&cluster.address());
}

#[test]
fn a_password_is_taken_from_the_environment_or_a_file_and_never_printed() {
    let Some(redis) = Redis::start(PROGRAM, &[]) else { return };
    let _ = redis.ask(&["CONFIG", "SET", "requirepass", "s3cret"]);
    let address = &format!("{}/seen", redis.address());
    let refused = inbloom(&["info", address], "");
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("NOAUTH"), "{refused:?}");
    let dedup = &["dedup", "-q", "--filter", address, "-n", "1000"];
    let environment = &[("INBLOOM_REDIS_PASSWORD", "s3cret")];
    assert_eq!(out(&inbloom_with(dedup, "a\na\n", environment)), "a\n");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "s3cret\n").unwrap();
    let path = file.path().to_str().unwrap();
    let by_file = inbloom(&["check", "--redis-password-file", path, address], "a\nb\n");
    assert_eq!(out(&by_file), "a\n");
    // In the address it works too, and is not shown, right or wrong.
    for (password, code) in [("s3cret", 0), ("wr0ng", 2)] {
        let with = address.replace("redis://", &format!("redis://:{password}@"));
        for command in ["info", "check", "add", "measure"] {
            let output = inbloom(&[command, &with], "a\n");
            assert_eq!(output.status.code(), Some(code), "{command}: {output:?}");
            let printed = text(&output.stdout) + &text(&output.stderr);
            assert!(!printed.contains(password), "{command}: {printed}");
        }
    }
}

#[test]
fn addresses_that_name_no_filter_are_errors_that_say_what_to_write() {
    for (address, expected) in [
        ("redis://localhost/7", "write /7/NAME or /0/7"),
        ("redis://localhost/a/b", "database \"a\" is not a number"),
        ("redis://:1/seen", "the host is missing"),
    ] {
        let output = inbloom(&["check", address], "a\n");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
    }
    // Nobody listens there.
    let refused = "cannot connect to 127.0.0.1:1: ";
    let output = inbloom(&["check", "redis://127.0.0.1:1/seen"], "a\n");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains(refused), "{output:?}");
    let output = inbloom(&["serve", "--store", "redis://127.0.0.1:1"], "");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains(refused), "{output:?}");
    let output = inbloom(&["serve", "--store", "redis://127.0.0.1:1", "--dir", "x"], "");
    assert!(text(&output.stderr).contains("cannot be used with"), "{output:?}");
}

/// The numbers are those of pyreBloom itself: see inbloom-redis, tests/it/pyrebloom.rs.
#[test]
fn filters_of_pyrebloom_are_checked_and_added_to_in_place() {
    let Some(redis) = Redis::start(PROGRAM, &[]) else { return };
    let live = &format!("{}/live", redis.address());
    let size = ["--pyrebloom", "100000,0.001"];
    let run = |words: &[&str], input: &str| inbloom(&[words, &size[..], &[live]].concat(), input);
    let keys = &lines("key ", 5000);
    assert_eq!(run(&["check", "-q"], keys).status.code(), Some(1));
    assert_eq!(out(&run(&["add"], keys)), "5,000 new of 5,000 keys\n");
    assert_eq!(redis.ask(&["BITCOUNT", "live.0"]).text(), "49201");
    assert_eq!(out(&run(&["add"], keys)), "0 new of 5,000 keys\n");
    assert_eq!(out(&run(&["check", "-c"], keys)), "5000\n");
    assert_eq!(out(&run(&["check"], "key 17\nnone\n")), "key 17\n");
    assert_eq!(out(&run(&["check", "-v", "-n"], "key 17\nnone\n")), "2:none\n");
    // At a twentieth of its capacity it is far below its rate.
    let found = text(&run(&["check", "-c"], &lines("absent ", 5000)).stdout);
    assert!(found.trim().parse::<u32>().unwrap() <= 3, "{found} of 5,000 absent keys");
    // The key is a field, and the line is printed; a record without one has no key.
    let fields = run(&["check", "--csv", "-f", "2"], "a,key 1\nb,none\nc\nd,\"key 2\"\n");
    assert_eq!(out(&fields), "a,key 1\nd,\"key 2\"\n");
    assert_eq!(
        out(&run(&["add", "-f", "2", "-d", ","], "a,more\nb\n")).split(' ').next(),
        Some("1")
    );
    // Files are none of its filters.
    let own = &format!("{}/own", redis.address());
    out(&inbloom(&["dedup", "--filter", own, "-n", "1000"], "other\n"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.ib");
    let file = file.to_str().unwrap();
    out(&inbloom(&["pull", own, file], ""));
    for words in [&["check", live, "-F", file][..], &["add", file], &["check", file]] {
        let refused = inbloom(&[words, &size[..]].concat(), "other\n");
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(
            text(&refused.stderr).contains("--pyrebloom only works for filters on Redis"),
            "{refused:?}"
        );
    }
    for (size, expected) in [
        ("100000", "such as 100000,0.01"),
        ("5e9,0.01", "at most 2^32 - 1"),
        ("100000,2", "between 0 and 1"),
        ("1,0.9", "low enough for at least one bit"),
    ] {
        let refused = inbloom(&["check", "--pyrebloom", size, live], "a\n");
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains(expected), "{size}: {refused:?}");
    }
    // Options that would be without effect are refused, before anything is sent.
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef").expect("it is free");
    let key_file = ["--key-file", secret.to_str().unwrap()];
    for (command, options) in [
        ("add", &["--overfull", "stop"][..]),
        ("add", &["--wait"]),
        ("add", &key_file),
        ("check", &key_file),
        ("check", &["--column", "id"]),
    ] {
        let refused = run(&[&[command][..], options].concat(), "a\n");
        assert_eq!(refused.status.code(), Some(2), "{command} {options:?}: {refused:?}");
        let expected = format!("{} does not work for filters of pyreBloom", options[0]);
        assert!(text(&refused.stderr).contains(&expected), "{command}: {refused:?}");
    }
}

/// Files and filters on Redis become each other, and merge.
fn exchange(server: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (built, back, other) = (&file("built.ib"), &file("back.ib"), &file("other.ib"));
    let keys = &lines("key:", 200_000);
    // With as many probes as a filter has that is built on Redis.
    let sizes = ["-n", "300k", "-p", "0.0001", "--note", "of May", "--normalize", "trim"];
    let local = |output| [&["build", "-o", output, "--probes", "8"][..], &sizes].concat();
    out(&inbloom(&local(built), keys));
    out(&inbloom(&local(other), &lines("other:", 50_000)));
    // There and back: the same bytes.
    let seen = &format!("{server}/pushed");
    let pushed = inbloom(&["push", built, seen], "");
    out(&pushed);
    assert!(text(&pushed.stderr).contains(&format!("{built} pushed to {seen}: ")), "{pushed:?}");
    out(&inbloom(&["pull", seen, back], ""));
    assert_eq!(std::fs::read(built).unwrap(), std::fs::read(back).unwrap());
    let taken = inbloom(&["push", built, seen], "");
    assert_eq!(taken.status.code(), Some(2));
    assert!(text(&taken.stderr).contains("a filter named \"pushed\" already exists"), "{taken:?}");
    // build makes the same filter there.
    let direct = &format!("{server}/direct");
    out(&inbloom(&[&["build", "-o", direct][..], &sizes].concat(), keys));
    out(&inbloom(&["pull", direct, back], ""));
    assert_eq!(std::fs::read(built).unwrap(), std::fs::read(back).unwrap());
    let again = inbloom(&["build", "-o", direct], "a\n");
    assert!(text(&again.stderr).contains("already exists"), "{again:?}");
    // The note and the normalization came along.
    let info = out(&inbloom(&["info", direct], ""));
    assert!(info.contains("note            of May\n"), "{info}");
    assert_eq!(out(&inbloom(&["check", direct], "  key:1  \nnone\n")), "  key:1  \n");
    // merge: a file into a filter there, and a filter there into a file.
    out(&inbloom(&["merge", "-o", direct, other], ""));
    assert_eq!(out(&inbloom(&["check", "-c", direct], &lines("other:", 50_000))), "50000\n");
    assert_eq!(out(&inbloom(&["check", "-c", direct], keys)), "200000\n");
    let merged = &file("merged.ib");
    out(&inbloom(&["merge", "-o", merged, seen, other], ""));
    for of in ["key:", "other:"] {
        assert_eq!(out(&inbloom(&["check", "-c", merged], &lines(of, 50_000))), "50000\n");
    }
    let made = &format!("{server}/made");
    out(&inbloom(&["merge", "-o", made, seen, direct], ""));
    assert_eq!(out(&inbloom(&["check", "-c", made], &lines("other:", 50_000))), "50000\n");
    // What Redis cannot hold is refused, and said before anything is read.
    for (options, expected) in [
        (&["--kind", "ribbon"][..], "kind blocked"),
        (&["--shards", "4"], "'inbloom push'"),
        (&["--overfull", "grow", "-n", "10"], "fixed size"),
    ] {
        let free = &format!("{server}/free");
        let refused = inbloom(&[&["build", "-o", free][..], options].concat(), "a\n");
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains(expected), "{refused:?}");
    }
    let refused = inbloom(&["remove", seen], "a\n");
    assert!(text(&refused.stderr).contains("cannot remove keys"), "{refused:?}");
    out(&inbloom(&["delete", seen, direct, made], ""));
}

#[test]
fn files_and_filters_on_redis_become_each_other() {
    let Some(redis) = Redis::start(PROGRAM, &[]) else { return };
    exchange(&redis.address());
}

/// Two servers, one filter. One of the servers is killed, and the other has everything.
#[test]
fn redis_py_uses_two_servers_in_front_of_one_store() {
    let Some(cluster) = RedisCluster::start(PROGRAM) else { return };
    let python = clients().join("python/bin/python");
    let run = |words: &[&str]| {
        let script = script("redis_py_store.py");
        check(Command::new(&python).arg(script).args(words).output().unwrap(), "ok");
    };
    let store = cluster.address();
    let options = ["--store", store.as_str(), "--store-items", "2000"];
    let (first, second) = (Server::start(&options), Server::start(&options));
    run(&["fill", &first.port.to_string(), &second.port.to_string()]);
    drop(first); // Killed.
    run(&["check", &second.port.to_string()]);
    // A server that comes later has everything too, and so has the command line.
    let third = Server::start(&options);
    assert_eq!(third.cli("bf.mexists shared alice bob carol"), "1\n1\n1");
    let found = inbloom(&["check", "-c", &format!("{store}/shared")], &lines("key:", 5000));
    assert_eq!(out(&found), "5000\n");
}

#[test]
fn a_store_that_loses_a_filter_or_goes_away_is_an_error_and_never_an_absent_item() {
    let Some(mut redis) = Redis::start(PROGRAM, &[]) else { return };
    let address = redis.address();
    let server = Server::start(&["--store", &address, "--redis-timeout", "1s"]);
    assert_eq!(server.cli("bf.reserve seen 0.01 1000"), "OK");
    assert_eq!(probes(&format!("{address}/seen")), 4, "as many as are best for Redis");
    assert_eq!(server.cli("bf.madd seen a b"), "1\n1");
    // All values of the filter are gone, its description is not.
    let values = redis.ask(&["KEYS", "ib:{*"]);
    let inbloom_testing::redis::Reply::Array(values) = values else { panic!("{values:?}") };
    assert!(!values.is_empty());
    for value in values {
        let _ = redis.ask(&["DEL", &value.text()]);
    }
    for line in ["bf.exists seen a", "bf.exists seen z", "bf.add seen a"] {
        let reply = server.cli(line);
        assert!(reply.starts_with("LOST the server lost 1 of 1 chunks"), "{line}: {reply}");
    }
    let check = inbloom(&["check", &format!("{address}/seen")], "a\n");
    assert_eq!(check.status.code(), Some(2), "{check:?}");
    assert!(text(&check.stderr).contains("lost"), "{check:?}");
    assert_eq!(server.cli("del seen"), "1");
    assert_eq!(server.cli("bf.exists seen a"), "0");
    // A filter that another program deletes and creates is found anew.
    assert_eq!(server.cli("bf.add seen a"), "1");
    let second = Server::start(&["--store", &address]);
    assert_eq!(second.cli("del seen"), "1");
    assert_eq!(second.cli("bf.add seen b"), "1");
    assert_eq!(server.cli("bf.mexists seen a b"), "0\n1");
    // One of the two copies of its description is gone: lost, not absent, for both servers.
    redis.ask(&["DEL", "ib:m:seen"]);
    std::thread::sleep(std::time::Duration::from_millis(1100)); // So long it is not looked at.
    for line in ["bf.exists seen b", "bf.add seen b", "bf.card seen", "bf.reserve seen 0.01 9"] {
        for server in [&server, &second] {
            let reply = server.cli(line);
            assert!(reply.starts_with("LOST the server lost a part"), "{line}: {reply}");
        }
    }
    assert!(out(&inbloom(&["info", &address], "")).ends_with("\tlost: delete it\n"));
    let check = inbloom(&["check", &format!("{address}/seen")], "b\n");
    assert_eq!(check.status.code(), Some(2), "{check:?}");
    out(&inbloom(&["delete", &format!("{address}/seen")], ""));
    assert_eq!(server.cli("bf.add seen b"), "1");
    redis.kill();
    let reply = server.cli("bf.exists seen b");
    assert!(reply.starts_with("STOREDOWN no reply within"), "{reply}");
    assert!(server.cli("info persistence").contains("store_status:down"));
}
