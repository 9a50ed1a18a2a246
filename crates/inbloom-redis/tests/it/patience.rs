//! How long calls go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use inbloom_redis::{Added, Error, Found, Options, RedisFilter};

use crate::support::{connect_with, plan, server};

/// A call that moves many keys takes longer than its deadline, and a connection breaks then: it goes
/// on, because it got further all the time.
#[test]
fn a_call_that_gets_on_outlasts_its_deadline() {
    let Some(server) = server() else { return };
    let mut options = Options::default();
    options.deadline = Duration::from_secs(1);
    let client = connect_with(&server.address(), options.clone());
    let filter = RedisFilter::create(&client, "f", plan(2_000_000, 0.01)).expect("created");
    let keys: Vec<u64> = (0..300_000).collect();
    let mut answers = Vec::new();
    let (began, is_over) = (Instant::now(), AtomicBool::new(false));
    server.ask(&["CLIENT", "PAUSE", "400", "WRITE"]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(450));
                server.ask(&["CLIENT", "PAUSE", "400", "WRITE"]);
            }
            std::thread::sleep(Duration::from_millis(450));
            assert!(!is_over.load(Ordering::Relaxed), "the call ended before it was disturbed");
            let killed = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).text();
            assert!(killed.parse::<u32>().expect("a number") > 0);
        });
        filter.insert_many(&keys, &mut answers).expect("it got on all the time");
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(began.elapsed() > options.deadline);
    assert!(!answers.contains(&Added::Failed));
    let mut found = Vec::new();
    filter.contains_many(&keys, &mut found).expect("answered");
    assert!(found.iter().all(|found| *found == Found::Present));
}

#[test]
fn a_call_that_does_not_get_on_ends_at_its_deadline() {
    let Some(server) = server() else { return };
    let mut options = Options::default();
    options.deadline = Duration::from_millis(500);
    options.response_timeout = Duration::from_millis(200);
    let client = connect_with(&server.address(), options);
    let filter = RedisFilter::create(&client, "f", plan(1000, 0.01)).expect("created");
    server.freeze();
    let began = Instant::now();
    let error = filter.insert("x").expect_err("nobody answers");
    let waited = began.elapsed();
    server.thaw();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().ends_with(": no reply in time)"), "{error}");
    assert!(waited >= Duration::from_millis(500) && waited < Duration::from_secs(20), "{waited:?}");
    assert!(filter.insert("x").is_ok(), "it is back");
}
