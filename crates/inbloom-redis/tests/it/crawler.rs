//! The crawler that shares one filter: `examples/crawler_worker.rs`, in processes of their own.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use inbloom_testing::Random;
use inbloom_testing::redis::RedisCluster;

#[path = "../../examples/crawler_worker.rs"]
#[expect(dead_code, reason = "its main is not called here")]
mod crawler_worker;

/// The variable that has the arguments of a worker: this program is started again to be one.
const ARGUMENTS: &str = "INBLOOM_TEST_CRAWLER";

/// Is a worker, if it was started as one; else it passes.
#[test]
fn worker_process() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let [address, urls, done, fetched] = arguments.split('\n').collect::<Vec<_>>()[..] else {
        panic!("{arguments}")
    };
    let output = File::options().append(true).create(true).open(fetched).expect("a file");
    crawler_worker::crawl(address, urls, done, output).expect("it crawls");
}

fn start(address: &str, folder: &Path, worker: &str) -> Child {
    let file = |kind: &str| folder.join(format!("{worker}.{kind}")).display().to_string();
    let arguments = [address.to_owned(), file("urls"), file("done"), file("fetched")].join("\n");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "crawler::worker_process"]).env(ARGUMENTS, arguments);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a worker")
}

#[test]
fn two_workers_skip_no_url_when_a_node_and_a_worker_die() {
    const URLS: usize = 40_000;
    const RATE: f64 = 1e-4;
    let Some(mut cluster) = RedisCluster::start("redis-server") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let address = format!("{}/seen", cluster.address());
    // Both have all URLs, in different orders.
    let mut urls: Vec<String> = (0..URLS).map(|i| format!("https://example.org/{i}")).collect();
    let mut random = Random(18);
    for worker in ["a", "b"] {
        for last in (1..urls.len()).rev() {
            urls.swap(last, random.index(last + 1));
        }
        fs::write(folder.path().join(format!("{worker}.urls")), urls.join("\n")).expect("written");
    }
    let read = |file: &str| fs::read_to_string(folder.path().join(file)).unwrap_or_default();
    let done = |worker: &str| read(&format!("{worker}.done")).trim().parse().unwrap_or(0_usize);
    let wait_until = |worker: &str, lines: usize| {
        let began = Instant::now();
        while done(worker) < lines {
            assert!(
                began.elapsed() < Duration::from_secs(120),
                "{worker} stands at {}",
                done(worker)
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let mut a = start(&address, folder.path(), "a");
    let mut b = start(&address, folder.path(), "b");
    wait_until("a", URLS / 8);
    cluster.nodes[1].kill();
    std::thread::sleep(Duration::from_millis(300));
    a.kill().expect("it is killed");
    a.wait().expect("it ends");
    std::thread::sleep(Duration::from_secs(5));
    cluster.nodes[1].run();
    let mut a = start(&address, folder.path(), "a");
    for worker in [&mut a, &mut b] {
        assert!(worker.wait().expect("it ends").success());
    }

    let mut fetched: HashMap<String, (u32, u32)> = HashMap::new();
    for line in [read("a.fetched"), read("b.fetched")].concat().lines() {
        let (kind, url) = line.split_once(' ').expect("two words");
        let (new, again) = fetched.entry(url.to_owned()).or_default();
        *(if kind == "new" { new } else { again }) += 1;
    }
    let all: HashSet<&String> = urls.iter().collect();
    assert!(fetched.keys().all(|url| all.contains(url)));
    let skipped = URLS - fetched.len();
    let twice = fetched.values().filter(|(new, _)| *new > 1).count();
    let again: u32 = fetched.values().map(|(_, again)| again).sum();
    println!("{URLS} URLs: {skipped} skipped, {twice} new twice, {again} fetched again");
    let expected = URLS as f64 * RATE;
    assert!((skipped as f64) <= expected + 5.0 * expected.sqrt(), "{skipped} URLs were skipped");
    assert_eq!(twice, 0, "URLs that were new twice");
    // Not more than what was under way when something failed.
    assert!(again < URLS as u32 / 10, "{again} URLs were fetched again");
}
