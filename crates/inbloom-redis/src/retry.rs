//! What a failed attempt means, and how long to wait before the next.
//!
//! | the server says or does | it was | then |
//! |---|---|---|
//! | MOVED | not run | ask the node it names; read the map of slots anew |
//! | ASK | not run | ask the node it names, once, with ASKING |
//! | TRYAGAIN, LOADING, BUSY, CLUSTERDOWN, MASTERDOWN, NOREPLICAS | not run | wait, try again |
//! | READONLY, UNBLOCKED | not run | read the map of slots anew, try again |
//! | it closes the connection, or does not answer in time | perhaps run | connect again |
//! | another error | not run | the call fails |
//!
//! What was perhaps run is run again: every command here can be repeated. Only whether a key was new
//! cannot be known then, and the answer says so.

use std::time::{Duration, Instant};

use redis::ServerError;

use crate::error::Error;
use crate::topology::Node;
use crate::wire::text_of;

/// Why an item has to be tried again, though it was certainly not run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Setback {
    /// Another node has the slot for good.
    Moved { slot: u16, node: Node },
    /// Another node has the key already, while the slot is on its way there.
    Ask(Node),
    /// The server cannot do it now.
    Later(String),
    /// The server is no master any more.
    Demoted(String),
}

/// Says what an error of a server means.
pub(crate) fn judge(error: &ServerError, from: &Node) -> Result<Setback, Error> {
    let text = || format!("{from}: {}", text_of(error));
    let details = error.details().unwrap_or_default();
    let redirection = || {
        let (slot, node) = details.split_once(' ')?;
        Some((slot.parse::<u16>().ok()?, Node::redirected(node, from)?))
    };
    match (error.code(), redirection()) {
        ("MOVED", Some((slot, node))) => Ok(Setback::Moved { slot, node }),
        ("ASK", Some((_, node))) => Ok(Setback::Ask(node)),
        ("TRYAGAIN" | "LOADING" | "BUSY" | "CLUSTERDOWN" | "MASTERDOWN" | "NOREPLICAS", _) => {
            Ok(Setback::Later(text()))
        }
        ("READONLY" | "UNBLOCKED", _) => Ok(Setback::Demoted(text())),
        _ => Err(Error::Server { node: from.to_string(), text: text_of(error) }),
    }
}

/// The time that a call may take without getting further, and its waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// When the call began, or last got further.
    since: Instant,
    limit: Duration,
    /// The next wait is between a half of it and all of it.
    wait: Duration,
}

/// The first wait and the longest. A failover takes seconds, and a slot that moves milliseconds.
const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(500);

impl Patience {
    pub fn new(limit: Duration) -> Patience {
        Patience { since: Instant::now(), limit, wait: FIRST }
    }

    /// Returns how long the call has been trying in vain.
    pub fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// Returns the time that is left.
    pub fn left(&self) -> Duration {
        self.limit.saturating_sub(self.waited())
    }

    pub fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// Begins anew after progress: a call that moves gigabytes may take longer than its limit, and a
    /// failure near its end gets as much time, and as short a first wait, as one at its beginning.
    pub fn reset(&mut self) {
        (self.since, self.wait) = (Instant::now(), FIRST);
    }

    /// Waits, longer from time to time, and not always equally long: clients that failed together
    /// do not come back together.
    pub fn pause(&mut self) {
        std::thread::sleep(jittered(self.wait, random()).min(self.left()));
        self.wait = (self.wait * 2).min(LONGEST);
    }
}

/// Returns between a half and all of a time.
fn jittered(wait: Duration, random: u64) -> Duration {
    let half = wait / 2;
    half + half.mul_f64((random >> 11) as f64 / (1_u64 << 53) as f64)
}

/// Returns a random number. Where the system has none, the clock must do.
pub(crate) fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        inbloom::internals::splitmix::finalize(now.map_or(0, |since| since.as_nanos() as u64))
    })
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn node(host: &str, port: u16) -> Node {
        Node { host: host.to_owned(), port }
    }

    fn error(line: &str) -> ServerError {
        match redis::parse_redis_value(format!("-{line}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn errors_of_servers_mean_what_the_table_says() {
        let from = node("a", 1);
        let judged = |line: &str| judge(&error(line), &from);
        let moved = Setback::Moved { slot: 3999, node: node("127.0.0.1", 6381) };
        assert_eq!(judged("MOVED 3999 127.0.0.1:6381").expect("again"), moved);
        assert_eq!(judged("ASK 5 :7").expect("again"), Setback::Ask(node("a", 7)));
        for line in [
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "LOADING Redis is loading the dataset in memory",
            "BUSY Redis is busy running a script.",
            "CLUSTERDOWN The cluster is down",
            "MASTERDOWN Link with MASTER is down",
            "NOREPLICAS Not enough good replicas to write.",
        ] {
            assert_eq!(judged(line).expect("again"), Setback::Later(format!("a:1: {line}")));
        }
        let line = "READONLY You can't write against a read only replica.";
        assert!(matches!(judged(line), Ok(Setback::Demoted(_))));
        let line = "UNBLOCKED force unblock from blocking operation";
        assert!(matches!(judged(line), Ok(Setback::Demoted(_))));
        for line in ["ERR no", "NOPERM no", "WRONGTYPE no", "OOM no", "MOVED x y", "MOVED 1"] {
            let error = judged(line).expect_err("no retry helps").to_string();
            assert!(error.contains(line), "{error}");
        }
    }

    #[test]
    fn waits_grow_and_vary_within_bounds() {
        let wait = Duration::from_millis(100);
        assert_eq!(jittered(wait, 0), wait / 2);
        assert!(jittered(wait, u64::MAX) <= wait && jittered(wait, u64::MAX) > wait * 99 / 100);
        let mut patience = Patience::new(Duration::from_millis(30));
        while !patience.is_over() {
            patience.pause();
        }
        assert!(patience.wait > FIRST && patience.waited() >= Duration::from_millis(30));
        patience.reset();
        assert_eq!(patience.wait, FIRST);
        assert!(!patience.is_over(), "progress gives the call its time again");
    }
}
