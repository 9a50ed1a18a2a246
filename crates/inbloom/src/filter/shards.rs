//! Filters in shards: create, divide and join them.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::any::Any;
use core::slice;

use super::{Content, Filter};
use crate::compose::grown::is_not_its_bits;
use crate::compose::sharded::Sharded;
use crate::digest::Hasher;
use crate::error::{Error, Result, mismatch};
use crate::key::AsKey;
use crate::kind::Kind;
use crate::plan::Plan;
use crate::storage::{Bits, Cells};

impl Filter {
    /// Creates an empty filter whose keys are divided among shards. It hashes with XXH3-128 under
    /// seed 0. The plan is for all shards together: their keys, and their rate.
    ///
    /// It is used like any other filter. Each shard is itself a filter, which can be saved, sent,
    /// and merged with the same shard of another filter.
    ///
    /// # Errors
    ///
    /// Refuses bitmaps, whose integers are not hashed and would not spread, and ribbon filters,
    /// which have shards of their own.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::{Filter, Kind, Plan};
    ///
    /// let keys: Vec<String> = (0..10_000).map(|i| format!("key {i}")).collect();
    /// let plan = Plan::builder(Kind::Blocked).items(10_000).rate(0.001).build()?;
    /// let mut seen = Filter::sharded(plan, 16)?;
    /// seen.insert_many_parallel(&keys, 4)?; // on 4 threads
    /// assert!(keys.iter().all(|key| seen.contains(key)));
    /// assert!(seen.insert("another")?);
    ///
    /// // One shard alone knows its own keys, and refuses others.
    /// let shard = seen.shard_of("another") as usize;
    /// let mut shards = seen.into_shards();
    /// assert!(shards[shard].contains("another"));
    /// assert!(shards[(shard + 1) % 16].insert("another").is_err());
    ///
    /// // In any order they are the whole again; of this kind, even one array.
    /// shards.reverse();
    /// let whole = Filter::from_shards(shards)?.into_whole()?;
    /// assert!(whole.contains("another"));
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn sharded(plan: Plan, shards: u32) -> Result<Filter> {
        Filter::sharded_with_hasher(plan, shards, plan.kind().default_hasher())
    }

    /// Creates an empty filter in shards with a hash of your choice: see [`Filter::sharded`].
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::sharded`] does.
    pub fn sharded_with_hasher(plan: Plan, shards: u32, hasher: Hasher) -> Result<Filter> {
        let plans = plan.for_shards(shards)?;
        let shards = plans.into_iter().map(|plan| Filter::with_hasher(plan, hasher));
        Ok(Filter::of_shards(shards.collect::<Result<_>>()?))
    }

    /// Joins all shards of one plan and hash, in any order, into a whole filter. It has the note,
    /// normalization and key encoding of the first shard. A filter that is not divided is returned
    /// unchanged.
    ///
    /// # Errors
    ///
    /// Fails if the shards differ, or if one is missing or given twice. The error names it.
    pub fn from_shards(mut shards: Vec<Filter>) -> Result<Filter> {
        let place = |filter: &Filter| filter.plan().shard().unwrap_or((0, 1));
        let Some(first) = shards.first() else {
            let (got, expected) = ("none".to_owned(), "given".to_owned());
            return Err(Error::Parameter { name: "shards", got, expected });
        };
        let (shard, count) = place(first);
        for other in &shards[1..] {
            let (_, their_count) = place(other);
            if their_count != count {
                return Err(other_number(count, their_count));
            }
            let same_shard = Plan { shard, ..*other.plan() };
            if let Some((field, left, right)) = first.plan().difference(&same_shard) {
                return Err(Error::Mismatch { field, left, right });
            }
            first.check_same_hash(other)?;
        }
        shards.sort_by_key(|filter| place(filter).0);
        let (mut missing, mut twice) = (Vec::new(), Vec::new());
        let mut next = 0;
        for (shard, _) in shards.iter().map(place) {
            missing.extend(next..shard);
            if shard < next && twice.last() != Some(&shard) {
                twice.push(shard);
            }
            next = shard + 1;
        }
        missing.extend(next..count);
        if !missing.is_empty() || !twice.is_empty() {
            return Err(Error::Shards { shards: count, missing, twice });
        }
        Ok(Filter::of_shards(shards))
    }

    /// Joins shards that the caller has checked to belong together.
    fn of_shards(mut shards: Vec<Filter>) -> Filter {
        if shards.len() == 1 {
            return shards.remove(0);
        }
        let (hasher, texts) = (shards[0].hasher, shards[0].texts.clone());
        let content = Content::other(Sharded::new(shards));
        Filter { texts, ..Filter::from_parts(hasher, content, 0) }
    }

    /// Returns the shards, in order. A filter that is not divided is its own only shard.
    #[must_use]
    pub fn shards(&self) -> &[Filter] {
        self.as_sharded().map_or(slice::from_ref(self), Sharded::shards)
    }

    /// Divides the filter into its shards, for example to put each on another thread or machine.
    #[must_use]
    pub fn into_shards(self) -> Vec<Filter> {
        if self.as_sharded().is_none() {
            return vec![self];
        }
        let state = self.content.into_state() as Box<dyn Any>;
        state.downcast::<Sharded>().expect("it was just seen to be one").into_shards()
    }

    /// Cuts a blocked or counting filter into shards, which are copies of ranges of its blocks.
    ///
    /// # Errors
    ///
    /// Refuses other kinds, filters that can grow, and numbers that do not divide the blocks
    /// evenly.
    pub fn cut_into(&self, shards: u32) -> Result<Filter> {
        let whole = self.plan();
        let plans = whole.for_shards(shards)?;
        if shards == 1 {
            return self.try_clone();
        }
        let part = plans[0];
        if !part.concatenates() {
            return Err(not_concatenated(whole.kind(), "be cut into shards"));
        }
        if Plan::of_shards(&plans).is_none_or(|sum| sum.difference(whole).is_some()) {
            return Err(Error::Parameter {
                name: "shards",
                got: shards.to_string(),
                expected: format!("a divisor of the filter's {} blocks and ranges", whole.blocks()),
            });
        }
        let bits = self.content.measured().bits();
        let bits = bits.ok_or_else(|| is_not_its_bits(whole.kind(), "be cut into shards"))?;
        let mut made = Vec::new();
        let (mut ones_before, mut inserted_before) = (0, 0);
        for (plan, bytes) in plans.iter().zip(bits.cells.bytes().chunks(part.bytes() as usize)) {
            let mut cells = Cells::zeroed(bytes.len() as u64)?;
            cells.bytes_mut()?.copy_from_slice(bytes);
            let uncounted = Content::with_bits(*plan, Bits { cells, ones: 0 });
            let ones = uncounted
                .measured()
                .recount()
                .ok_or_else(|| mismatch("unused bits", "zeros", "set bits"))?;
            let cells = uncounted.into_state().into_bits().expect("blocks").cells;
            // Nobody knows how many keys were inserted into this part: they are shared out by bits.
            ones_before += ones;
            let inserted = u128::from(self.inserted) * u128::from(ones_before);
            let inserted = (inserted / u128::from(bits.ones.max(1))) as u64;
            made.push(Filter {
                hasher: self.hasher,
                content: Content::with_bits(*plan, Bits { cells, ones }),
                inserted: inserted.saturating_sub(inserted_before),
                auto_clear: self.auto_clear,
                texts: self.texts.clone(),
            });
            inserted_before = inserted;
        }
        Ok(Filter::of_shards(made))
    }

    /// Joins the shards of a blocked or counting filter into one array. Its bytes are those of the
    /// shards one after the other. A filter that is not divided is returned as it is.
    ///
    /// # Errors
    ///
    /// Refuses shards of other kinds, because they are not ranges of one array.
    pub fn into_whole(self) -> Result<Filter> {
        let [first, _, ..] = self.shards() else { return Ok(self) };
        if !first.plan().concatenates() {
            return Err(not_concatenated(first.plan().kind(), "become one array"));
        }
        let (plan, auto_clear) = (self.plan().check()?, first.auto_clear);
        let mut cells = Cells::zeroed(plan.bytes())?;
        let mut rest = cells.bytes_mut()?;
        for shard in self.shards() {
            let bytes = shard.content.measured().payload();
            let (here, later) = rest.split_at_mut(bytes.len());
            here.copy_from_slice(&bytes);
            rest = later;
        }
        let content = Content::with_bits(plan, Bits { cells, ones: self.occupied() });
        Ok(Filter { content, inserted: self.inserted(), auto_clear, ..self })
    }

    /// Returns the number of the shard that a key belongs to, from 0.
    #[must_use]
    pub fn shard_of(&self, key: impl AsKey) -> u32 {
        let (_, count) = self.shards()[0].plan().shard().unwrap_or((0, 1));
        self.digest(key).pick(count.into()).0 as u32
    }

    /// Inserts many keys on several threads; 0 means one for each core that this process may use.
    ///
    /// Each thread first hashes some of the keys and sorts them by shard, and then fills whole
    /// shards. No locks are needed, and the result is that of [`Filter::insert_many`] to the byte,
    /// with any number of threads. Up to a million keys are under way at a time. More threads than
    /// shards are of little use: a filter that is not divided takes one.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::insert`] does. Some later keys may then have been inserted into other
    /// shards.
    #[cfg(feature = "std")]
    pub fn insert_many_parallel<K: AsKey + Sync>(
        &mut self,
        keys: &[K],
        threads: usize,
    ) -> Result<()> {
        let hasher = self.hasher;
        match self.as_sharded_mut() {
            Some(sharded) => sharded.insert_parallel(hasher, keys, threads),
            None => self.insert_many(keys, &mut Vec::new()),
        }
    }

    pub(super) fn as_sharded(&self) -> Option<&Sharded> {
        match &self.content {
            Content::Blocked(_) => None,
            Content::Other(state) => (state.as_ref() as &dyn Any).downcast_ref(),
        }
    }

    pub(super) fn as_sharded_mut(&mut self) -> Option<&mut Sharded> {
        match &mut self.content {
            Content::Blocked(_) => None,
            Content::Other(state) => (state.as_mut() as &mut dyn Any).downcast_mut(),
        }
    }
}

/// Returns the error for filters with different numbers of shards.
pub(super) fn other_number(here: u32, there: u32) -> Error {
    let (left, right) = (here.to_string(), there.to_string());
    Error::Mismatch { field: "number of shards", left, right }
}

fn not_concatenated(kind: Kind, verb: &'static str) -> Error {
    Error::Unsupported { kind, verb, remedy: "query its shards together with Filter::from_shards" }
}
