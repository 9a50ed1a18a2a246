//! How a client behaves.

use std::time::Duration;

use crate::error::{Error, Result};

/// How a client behaves. Start from `Options::default()` and set fields.
///
/// ```
/// use inbloom_redis::{Durability, Options};
///
/// let mut options = Options::default();
/// options.durability = Durability::Replicas(1);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// What the keys of all filters begin with: `ib`. Letters, digits and `.:_-`.
    pub prefix: String,
    /// How long a call goes on trying without getting further, through reconnects, redirections and
    /// failovers: 30 s. A call that gets on, such as a large push, may take longer.
    pub deadline: Duration,
    /// How long a server may take to answer before the connection is given up: 2 s.
    pub response_timeout: Duration,
    /// How long a connection may take to be made: 2 s.
    pub connect_timeout: Duration,
    /// When a change counts as done.
    pub durability: Durability,
    /// Which servers answer queries.
    pub reads: Reads,
    /// What to do about servers that evict keys when their memory is full.
    pub eviction: Eviction,
    /// The certificate authority of `rediss://` servers, in PEM. None trusts those of the system.
    pub root_certificate: Option<Vec<u8>>,
}

/// When a change counts as done.
///
/// Redis copies changes to replicas after it has answered. If a master fails before that, changes
/// that it has confirmed are gone, and nothing shows it. The other levels wait for copies; a call
/// that does not get them fails with [`Error::NotReplicated`]. They cannot help where the replica that is
/// promoted is not one of those that confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When its master has answered.
    #[default]
    Master,
    /// When so many replicas of its master have it in memory (`WAIT`).
    Replicas(u32),
    /// When its master and so many replicas have it on disk (`WAITAOF`, from Redis 7.2 on).
    Disk(u32),
}

/// Which servers answer queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// The master of a key. A key that was added is found.
    #[default]
    Masters,
    /// Any replica of it, or the master if there is none. A replica lags behind: a key that was just
    /// added may be reported as absent, unless it was added with [`Durability::Replicas`] of all
    /// replicas.
    Replicas,
}

/// What to do about servers that evict chunks when their memory is full: any under an `allkeys-` policy,
/// and those of filters that expire under a `volatile-` policy.
///
/// An evicted chunk is found to be lost when it is used next; it is never taken for an empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// Create no filter there, and let none expire that would be evicted then.
    #[default]
    Refuse,
    /// Do it all the same.
    Allow,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            prefix: "ib".to_owned(),
            deadline: Duration::from_secs(30),
            response_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(2),
            durability: Durability::default(),
            reads: Reads::default(),
            eviction: Eviction::default(),
            root_certificate: None,
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".:_-".contains(&byte);
        if self.prefix.is_empty() || self.prefix.len() > 64 || !self.prefix.bytes().all(allowed) {
            return Err(Error::Parameter {
                name: "prefix",
                got: self.prefix.clone(),
                expected: "1 to 64 letters, digits and .:_-",
            });
        }
        for (name, time) in
            [("response_timeout", self.response_timeout), ("connect_timeout", self.connect_timeout)]
        {
            if time.is_zero() {
                let (got, expected) = ("0".to_owned(), "above 0");
                return Err(Error::Parameter { name, got, expected });
            }
        }
        Ok(())
    }
}
