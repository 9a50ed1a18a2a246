//! What was seen, kept in a filter on Redis that several programs share.
//!
//! The rule of `dedup` holds here too: a line is recorded only after it has been delivered. So a line is
//! looked up first and printed if it is absent, and its digest waits until all lines so far have been
//! delivered. Then those that wait are inserted, about once a second. In between another program may look
//! up the same line and print it too: at least once, never never.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use inbloom::Digest;
use inbloom_redis::{Address, Error, Found, RedisFilter, Spec};

use super::{Args, sizing};
use crate::normalize::Normalization;
use crate::numbers;
use crate::output::{Problem, problem};
use crate::overfull::Overfull;
use crate::remote;

/// Lines are recorded at least this often.
const OFTEN: Duration = Duration::from_secs(1);
/// So many lines wait at most.
const MANY: usize = 50_000;

/// A filter on Redis, and the lines that are not sent to it yet.
pub struct SharedMemory {
    pub filter: RedisFilter,
    address: Address,
    /// Lines that were printed and are not in the filter yet.
    waiting: HashSet<Digest>,
    saved_at: Instant,
    /// New lines that it has room for.
    room: u64,
    pub is_full: bool,
    pub new: u64,
    found: Vec<Found>,
}

impl SharedMemory {
    /// Opens the filter of an address, or creates it as the options say.
    pub fn open(
        args: &Args,
        address: Address,
        normalization: Normalization,
    ) -> Result<SharedMemory> {
        check_options(args)?;
        let client = args.redis.connect(address.server())?;
        let key = args.hash.key.key()?;
        let filter = match RedisFilter::open_keyed(&client, address.name(), key.as_ref()) {
            Ok(filter) => {
                check_found(args, &filter, normalization).with_context(|| address.to_string())?;
                filter
            }
            Err(Error::Missing { .. }) => {
                let spec = new_spec(args, normalization)?;
                RedisFilter::open_or_create(&client, address.name(), spec)?
            }
            Err(error) => return Err(error).with_context(|| address.to_string()),
        };
        let room = match args.overfull {
            Some(Overfull::Continue) => u64::MAX,
            _ => remote::room(&filter)?,
        };
        Ok(SharedMemory {
            filter,
            address,
            waiting: HashSet::new(),
            saved_at: Instant::now(),
            room,
            is_full: false,
            new: 0,
            found: Vec::new(),
        })
    }

    /// Tells of each line whether it is new. There are fewer answers than lines if the filter is full:
    /// then the first one without an answer is new.
    pub fn look_up(&mut self, digests: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        new.clear();
        let looked_up = self.filter.contains_digests(digests, &mut self.found);
        looked_up.with_context(|| self.address.to_string())?;
        for (digest, found) in digests.iter().zip(&self.found) {
            let is_known = *found == Found::Present || self.waiting.contains(digest);
            if !is_known {
                if self.room == 0 {
                    self.is_full = true;
                    return Ok(());
                }
                self.room -= 1;
                self.new += 1;
                self.waiting.insert(*digest);
            }
            new.push(!is_known);
        }
        Ok(())
    }

    pub fn is_due(&self) -> bool {
        let is_long_ago = self.saved_at.elapsed() >= OFTEN;
        !self.waiting.is_empty() && (is_long_ago || self.waiting.len() >= MANY)
    }

    /// Inserts what waits. To be called only when all of it has been delivered.
    pub fn save(&mut self) -> Result<()> {
        let digests: Vec<Digest> = self.waiting.iter().copied().collect();
        let saved = self.filter.insert_digests(&digests, &mut Vec::new());
        saved.with_context(|| self.address.to_string())?;
        self.waiting.clear();
        self.saved_at = Instant::now();
        Ok(())
    }

    /// How many of the lines that were taken for seen are expected to be new ones, at most, in words.
    pub fn mistakes(&self) -> String {
        let expected = self.new as f64 * self.filter.plan().rate();
        match expected < 0.001 {
            true => "below 0.001".to_owned(),
            false => format!("at most {}", numbers::expected(expected)),
        }
    }

    /// Why it took no more than so many lines.
    pub fn full(&self, read: u64) -> Problem {
        problem(
            format!(
                "{} is full: it was planned for {}, and record {} is new; the records before it \
                 were printed and saved, the others were not",
                self.address,
                numbers::lines(self.filter.plan().items()),
                numbers::exact(read + 1)
            ),
            "begin again with another name and a larger -n",
        )
    }
}

/// Refuses options that a filter on Redis cannot follow.
fn check_options(args: &Args) -> Result<()> {
    ensure!(
        !args.wait.is_given(),
        problem(
            "--wait only works for files: several programs can use a filter on Redis at once",
            "leave --wait out"
        )
    );
    ensure!(
        args.kind.is_none_or(|kind| kind == inbloom_redis::KIND) && args.sizing.window.is_none(),
        problem(
            "a filter on Redis is of kind blocked",
            "leave --kind and --window out, or keep the filter in a file"
        )
    );
    ensure!(
        args.auto_clear.is_none(),
        problem(
            "a filter on Redis does not empty itself",
            "leave --auto-clear out, or keep the filter in a file"
        )
    );
    ensure!(
        args.overfull != Some(Overfull::Grow),
        problem(
            "a filter on Redis has a fixed size and cannot grow",
            "pass --overfull stop or continue"
        )
    );
    Ok(())
}

/// The options that make a filter must be those that it was made with, where they are given.
fn check_found(args: &Args, filter: &RedisFilter, normalization: Normalization) -> Result<()> {
    for (option, asked, found) in args.sizing.against(filter.plan()) {
        ensure!(
            asked == found,
            problem(
                format!("the filter already exists, with {option} {found}, not {asked}"),
                "leave the options for its size out, or choose another name"
            )
        );
    }
    args.hash.check_hasher(filter.hasher())?;
    ensure!(
        normalization.is_none() || normalization.to_string() == filter.normalization(),
        problem(
            format!(
                "the filter already exists, with the normalization \"{}\", not \"{normalization}\"",
                filter.normalization()
            ),
            "leave --normalize and --crlf out, or choose another name"
        )
    );
    Ok(())
}

fn new_spec(args: &Args, normalization: Normalization) -> Result<Spec> {
    let (kind, sizing) = sizing(args);
    if kind != inbloom_redis::KIND {
        bail!(problem(
            "there is no filter of this name yet, and a filter on Redis cannot grow",
            "pass -n, the number of lines to expect"
        ));
    }
    let mut spec = Spec::new(remote::plan(&sizing)?);
    spec.hasher = args.hash.hasher(kind)?;
    spec.normalization = normalization.to_string();
    Ok(spec)
}
