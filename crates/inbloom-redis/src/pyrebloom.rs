//! Filters of pyreBloom, read and written where they are.
//!
//! pyreBloom (<https://github.com/seomoz/pyreBloom>, MIT) is a Python module that keeps classic
//! Bloom filters in plain Redis. Nothing on the server says what a filter was made for: the program
//! that opens one gives its capacity and error, and other numbers give other bits. From its C
//! source:
//!
//! ```text
//! bits    m = floor(-ln(error) * capacity / ln(2)^2)
//! hashes  k = ceil(ln(2) * m / capacity)
//! seeds   s(0) = 314159265, s(i + 1) = 1664525 * s(i) + 1013904223 mod 2^32
//! bit i   d = MurmurHash64A(key, s(i)) mod m
//! kept    bit d mod (2^32 - 1) of the string NAME.(d / (2^32 - 1))
//! ```
//!
//! Its filters have no sentinels: one that the server has lost looks like an empty one. A filter of more
//! than 2^32 - 1 bits is in several strings, and an insert is atomic only in each of them. For
//! filters of your own, use [`RedisFilter`](crate::RedisFilter).

use std::collections::BTreeMap;
use std::fmt;

use inbloom::interop::redisbloom::murmur64a;
use redis::Value;

use crate::client::{Client, Job, unexpected};
use crate::command::{Commands, NumberedKey};
use crate::error::{Error, Result};
use crate::filter::{Added, Found};
use crate::lane::Access;
use crate::slots::slot_of;

const STRING_BITS: u64 = 0xffff_ffff;

/// The most hashes: those of an error of 10^-38.
const MAX_HASHES: f64 = 128.0;

/// A filter that pyreBloom made, or could have made.
///
/// ```no_run
/// use inbloom_redis::{Client, Options, PyreBloom};
///
/// let client = Client::connect(&"redis://localhost".parse()?, Options::default())?;
/// // In Python: pyreBloom.pyreBloom('seen', 100000, 0.01)
/// let seen = PyreBloom::open(&client, "seen", 100_000, 0.01)?;
/// let mut found = Vec::new();
/// seen.contains_many(&["https://example.org/"], &mut found)?;
/// # Ok::<(), inbloom_redis::Error>(())
/// ```
#[derive(Clone)]
pub struct PyreBloom {
    client: Client,
    /// What the keys of its strings begin with.
    stem: String,
    bits: u64,
    seeds: Vec<u64>,
}

impl fmt::Debug for PyreBloom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PyreBloom")
            .field("stem", &self.stem)
            .field("bits", &self.bits)
            .field("hashes", &self.seeds.len())
            .finish_non_exhaustive()
    }
}

impl PyreBloom {
    /// Opens a filter by the numbers it was made with. Nothing is read: a filter without keys is not on
    /// the server.
    ///
    /// # Errors
    ///
    /// Refuses a capacity of 0, an error that is not between 0 and 1, and what together leaves no bits.
    pub fn open(client: &Client, name: &str, capacity: u32, error: f64) -> Result<PyreBloom> {
        if capacity == 0 {
            let (got, expected) = (capacity.to_string(), "at least 1");
            return Err(Error::Parameter { name: "capacity", got, expected });
        }
        let ln_2 = std::f64::consts::LN_2;
        // In the order of operations of the C source: both are rounded to whole numbers.
        let bits = (-(error.ln() * f64::from(capacity)) / (ln_2 * ln_2)).floor();
        let hashes = (ln_2 * bits / f64::from(capacity)).ceil();
        let is_error = error > 0.0 && error < 1.0;
        if !is_error || bits < 1.0 || !(1.0..=MAX_HASHES).contains(&hashes) {
            let (got, expected) =
                (error.to_string(), "above 0, below 1, and low enough for at least one bit");
            return Err(Error::Parameter { name: "error", got, expected });
        }
        let next = |seed: &u32| Some(seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        let seeds = std::iter::successors(Some(314_159_265), next).map(u64::from);
        Ok(PyreBloom {
            client: client.clone(),
            stem: format!("{name}."),
            bits: bits as u64,
            seeds: seeds.take(hashes as usize).collect(),
        })
    }

    /// Returns its bits.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// Returns how many bits stand for a key.
    #[must_use]
    pub fn hashes(&self) -> usize {
        self.seeds.len()
    }

    /// Returns the bits that stand for a key.
    #[must_use]
    pub fn positions(&self, key: impl AsRef<[u8]>) -> Vec<u64> {
        let position = |seed: &u64| murmur64a(key.as_ref(), *seed) % self.bits;
        self.seeds.iter().map(position).collect()
    }

    /// Adds many keys. `answers` is emptied first, and has an answer for each key afterwards, also if
    /// the call fails: then [`Added::Failed`] for the keys that it failed for.
    ///
    /// # Errors
    ///
    /// Fails if the deadline passes, or if the strings hold something else.
    pub fn insert_many<K: AsRef<[u8]>>(&self, keys: &[K], answers: &mut Vec<Added>) -> Result<()> {
        answers.clear();
        answers.resize(keys.len(), Added::Present);
        let mut job = self.job(keys, Verb::Set);
        let items = job.parts.len();
        let outcome = self.client.run(&mut job, items, Access::Write);
        for (index, part) in job.parts.iter().enumerate() {
            let answer = &mut answers[part.key];
            match job.all_set[index] {
                false => *answer = Added::New,
                true if job.ours[index] && *answer != Added::New => *answer = Added::Unknown,
                true => {}
            }
        }
        for part in &outcome.failed {
            answers[job.parts[*part].key] = Added::Failed;
        }
        outcome.into_result()
    }

    /// Looks many keys up. `answers` is emptied first, and has an answer for each key afterwards, also
    /// if the call fails: then [`Found::Failed`] for the keys that it failed for.
    ///
    /// # Errors
    ///
    /// As [`PyreBloom::insert_many`].
    pub fn contains_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        answers: &mut Vec<Found>,
    ) -> Result<()> {
        answers.clear();
        answers.resize(keys.len(), Found::Present);
        let mut job = self.job(keys, Verb::Get);
        let items = job.parts.len();
        let outcome = self.client.run(&mut job, items, Access::Read);
        for (part, all_set) in job.parts.iter().zip(&job.all_set) {
            if !all_set {
                answers[part.key] = Found::Absent;
            }
        }
        for part in &outcome.failed {
            let answer = &mut answers[job.parts[*part].key];
            // A bit that is not set is certain, whatever the others are.
            if *answer == Found::Present {
                *answer = Found::Failed;
            }
        }
        outcome.into_result()
    }

    fn job<K: AsRef<[u8]>>(&self, keys: &[K], verb: Verb) -> Bits<'_> {
        let mut parts = Vec::with_capacity(keys.len());
        for (key, bytes) in keys.iter().enumerate() {
            let mut strings: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            for position in self.positions(bytes) {
                strings.entry(position / STRING_BITS).or_default().push(position % STRING_BITS);
            }
            parts.extend(strings.into_iter().map(|(string, offsets)| Part {
                key,
                string,
                offsets,
            }));
        }
        let slots = (0..=(self.bits - 1) / STRING_BITS)
            .map(|string| slot_of(format!("{}{string}", self.stem).as_bytes()))
            .collect();
        // What is not answered counts as present, until its failure is entered.
        let (all_set, ours) = (vec![true; parts.len()], vec![false; parts.len()]);
        Bits { stem: &self.stem, slots, verb, parts, all_set, ours }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Get,
    Set,
}

/// The bits of a key in one string.
struct Part {
    key: usize,
    string: u64,
    offsets: Vec<u64>,
}

/// Reads or sets bits.
struct Bits<'a> {
    stem: &'a str,
    /// The slots of the strings.
    slots: Vec<u16>,
    verb: Verb,
    parts: Vec<Part>,
    /// Of each part, whether all bits were set.
    all_set: Vec<bool>,
    /// Parts that an attempt of ours may have set before.
    ours: Vec<bool>,
}

impl Job for Bits<'_> {
    fn slot(&self, item: usize) -> u16 {
        self.slots[self.parts[item].string as usize]
    }

    fn write(&self, item: usize, commands: &mut Commands) {
        let Part { string, offsets, .. } = &self.parts[item];
        let each = if self.verb == Verb::Set { 4 } else { 3 };
        commands.begin(2 + each * offsets.len());
        commands.text("BITFIELD");
        commands.key(NumberedKey(self.stem, *string));
        for offset in offsets {
            match self.verb {
                Verb::Set => commands.set_bit(*offset),
                Verb::Get => {
                    commands.text("GET");
                    commands.text("u1");
                    commands.number(*offset);
                }
            }
        }
    }

    /// As for filters of our own: bits that were set before may be another client's, and not copied yet.
    fn mark(&self, item: usize, commands: &mut Commands) -> bool {
        commands.begin(3);
        commands.text("APPEND");
        commands.key(NumberedKey(self.stem, self.parts[item].string));
        commands.text("");
        true
    }

    fn accept(&mut self, item: usize, replies: &[Value]) -> Result<()> {
        let Value::Array(bits) = &replies[0] else {
            return Err(unexpected("the server", "BITFIELD", replies));
        };
        // Two hashes may choose one bit, which is set when it comes the second time.
        self.all_set[item] = bits.iter().all(|bit| *bit != Value::Int(0));
        self.ours[item] |= !self.all_set[item];
        Ok(())
    }

    fn unanswered(&mut self, item: usize) {
        self.ours[item] = true;
    }
}
