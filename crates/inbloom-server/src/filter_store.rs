//! Filters that are kept outside the server: what `serve --store` needs of the place that keeps them.
//!
//! [`FilterStore`] is the interface. The server knows no store; the program that starts it brings
//! one, and the command line brings Redis. The bits of all filters are there, so that any number of
//! servers can serve the same filters, and one that is killed takes nothing with it.
//!
//! [`StoredFilters`] is what the commands use. It adds what every store needs:
//!
//! * **A filter that is full takes no more.** A filter on a store has a fixed size. A store does not count
//!   items; it can only estimate them from the bits, which reads the whole filter. So the server estimates
//!   now and then, adds up what it inserted since, and refuses new items when the sum reaches the capacity.
//!   Other servers may add meanwhile: see [`FRESH`] for how far a filter can go past its capacity.
//! * **Figures**: requests, failures, and whether the last request reached the store.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use inbloom::Plan;
use parking_lot::Mutex;

/// A place that keeps blocked filters under names, and that several servers use at once.
///
/// Calls block until the store has answered or the store's own deadline has passed. They come from many
/// threads at once.
pub trait FilterStore: Send + Sync {
    /// Returns where it is, for people: never with a password.
    fn address(&self) -> &str;

    /// Asks for a sign of life.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    fn ping(&self) -> Result<(), StoreError>;

    /// Plans a blocked filter for so many items at a rate, as it is cheapest for the store.
    ///
    /// # Errors
    ///
    /// As [`PlanBuilder::build`](inbloom::PlanBuilder::build).
    fn plan_for(&self, items: u64, rate: f64) -> inbloom::Result<Plan>;

    /// Creates an empty filter. Returns false if the name is taken, by whatever filter.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    fn create(&self, name: &[u8], plan: &Plan) -> Result<bool, StoreError>;

    /// Adds items. `answers` is emptied first, and has an answer for each item afterwards, in order.
    ///
    /// # Errors
    ///
    /// See [`StoreError`]. There is an answer for each item then too: [`Added::Failed`] for those that
    /// failed for this reason. After [`StoreError::Unavailable`] these may have been added or not.
    fn add(&self, name: &[u8], items: &[&[u8]], answers: &mut Vec<Added>)
    -> Result<(), StoreError>;

    /// Looks items up. `answers` is emptied first, and has an answer for each item afterwards, in order.
    ///
    /// # Errors
    ///
    /// See [`StoreError`]. There is an answer for each item then too: [`Lookup::Failed`] for those that
    /// failed for this reason.
    fn contains(
        &self,
        name: &[u8],
        items: &[&[u8]],
        answers: &mut Vec<Lookup>,
    ) -> Result<(), StoreError>;

    /// Returns what a filter was made for, as the store has it now: other servers create and delete too.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    fn plan(&self, name: &[u8]) -> Result<Plan, StoreError>;

    /// Estimates how many items a filter holds. This may read all of its bits.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    fn estimate(&self, name: &[u8]) -> Result<f64, StoreError>;

    /// Deletes a filter. Returns false if there is none.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    fn delete(&self, name: &[u8]) -> Result<bool, StoreError>;

    /// Returns when a filter expires, in milliseconds since 1970, or None if it does not.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    fn expiry(&self, name: &[u8]) -> Result<Option<u64>, StoreError>;

    /// Sets when a filter expires, in milliseconds since 1970, or that it does not.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    fn set_expiry(&self, name: &[u8], at: Option<u64>) -> Result<(), StoreError>;

    /// Lists the names of all filters, in no order.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    fn names(&self) -> Result<Vec<Vec<u8>>, StoreError>;
}

/// What became of an item that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The item is in the filter, and was not before.
    New,
    /// The item was probably in the filter before.
    Present,
    /// The item is in the filter. Whether it was before is not known: a request was sent twice because
    /// its first answer did not arrive.
    Unknown,
    /// The call failed for this item.
    Failed,
    /// The filter holds as many items as it was made for, and this one is not among them.
    Full,
}

/// What a filter answers about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The item is certainly not in the filter.
    Absent,
    /// The item is probably in the filter.
    Present,
    /// The call failed for this item.
    Failed,
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// There is no filter of this name.
    Missing,
    /// The store did not answer in time, or cannot be reached.
    Unavailable(String),
    /// The store has lost bits of the filter, and the request needs them.
    Lost(String),
    /// The store answered that it cannot do this.
    Refused(String),
}

impl Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Missing => f.write_str("no filter of this name"),
            StoreError::Unavailable(why) | StoreError::Lost(why) | StoreError::Refused(why) => {
                f.write_str(why)
            }
        }
    }
}

impl std::error::Error for StoreError {}

/// An estimate is used for so long, while the server's own adds are counted on top of it. Items that
/// other servers add within this time are not seen, and can take the filter past its capacity.
pub const FRESH: Duration = Duration::from_secs(10);
/// A full filter is estimated again after so long: it may have been deleted and created anew.
const FRESH_WHEN_FULL: Duration = Duration::from_secs(1);
/// An estimate is used for at least so many times as long as it took: a large filter is not read more
/// than a fiftieth of the time.
const SHARE: u32 = 50;
/// No estimate is used for longer.
const STALE: Duration = Duration::from_secs(600);
/// Filters whose level is remembered. When there are more, all are estimated anew.
const MOST_LEVELS: usize = 1 << 16;

/// Items that a store is asked for at once. A store may need some hundred bytes for each.
const BATCH: usize = 1 << 14;

/// The filters of a store, as commands use them.
pub struct StoredFilters {
    store: Arc<dyn FilterStore>,
    /// The items that a filter is for if nobody says.
    items: u64,
    /// How full filters are, by name.
    levels: Mutex<HashMap<Box<[u8]>, FillLevel>>,
    figures: Figures,
    /// Why the last request did not reach the store, if it did not.
    trouble: Mutex<Option<String>>,
}

/// How full a filter is, as far as this server knows.
#[derive(Clone, Copy)]
struct FillLevel {
    capacity: u64,
    estimate: u64,
    /// Items that this server added since.
    added: u64,
    at: Instant,
    /// How long the estimate is used.
    fresh: Duration,
}

impl FillLevel {
    /// Of a filter that was estimated just now, which took some time.
    fn new(capacity: u64, estimate: f64, took: Duration) -> FillLevel {
        let fresh = took.saturating_mul(SHARE).clamp(FRESH, STALE);
        let estimate = estimate.round() as u64;
        FillLevel { capacity, estimate, added: 0, at: Instant::now(), fresh }
    }

    fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.estimate.saturating_add(self.added))
    }

    fn is_fresh(&self) -> bool {
        let limit = if self.room() > 0 { self.fresh } else { FRESH_WHEN_FULL };
        self.at.elapsed() < limit
    }
}

/// Counts of what was asked of the store.
#[derive(Debug, Default)]
pub struct Figures {
    /// Requests.
    pub requests: AtomicU64,
    /// Those that failed: the store was not reached, or has lost bits, or refused.
    pub failures: AtomicU64,
    /// The time that all requests took together, in nanoseconds.
    pub nanos: AtomicU64,
}

impl StoredFilters {
    /// The filters of a store, where a filter that is created without a size is for so many items.
    pub fn new(store: Arc<dyn FilterStore>, items: u64) -> StoredFilters {
        StoredFilters {
            store,
            items,
            levels: Mutex::default(),
            figures: Figures::default(),
            trouble: Mutex::default(),
        }
    }

    /// Returns the items that a filter is for if nobody says.
    pub fn default_items(&self) -> u64 {
        self.items
    }

    /// Returns where the store is, for people.
    pub fn address(&self) -> &str {
        self.store.address()
    }

    /// Returns counts of what was asked of the store.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Returns why the last request did not reach the store, if it did not.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    /// Asks the store about a filter. What is remembered of one that turns out to be gone is forgotten.
    fn ask<T>(
        &self,
        name: &[u8],
        ask: impl FnOnce(&dyn FilterStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let answer = self.count(ask);
        if matches!(answer, Err(StoreError::Missing)) {
            self.forget(name);
        }
        answer
    }

    /// Asks the store something, and counts it.
    fn count<T>(
        &self,
        ask: impl FnOnce(&dyn FilterStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let begin = Instant::now();
        let answer = ask(&*self.store);
        let nanos = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.figures.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.figures.requests.fetch_add(1, Ordering::Relaxed);
        let failed = !matches!(answer, Ok(_) | Err(StoreError::Missing));
        self.figures.failures.fetch_add(u64::from(failed), Ordering::Relaxed);
        self.note(answer.as_ref().err());
        answer
    }

    /// Notes whether the store was reached, and logs when that changes.
    fn note(&self, error: Option<&StoreError>) {
        let mut trouble = self.trouble.lock();
        match error {
            Some(StoreError::Unavailable(why)) => {
                if trouble.is_none() {
                    tracing::warn!(store = self.address(), why, "store unavailable");
                }
                *trouble = Some(why.clone());
            }
            _ => {
                if trouble.take().is_some() {
                    tracing::info!(store = self.address(), "store available again");
                }
            }
        }
    }

    /// Asks whether the store can be reached, if the last request could not. For a thread that calls this
    /// now and then: monitors learn that a store is back even if no client asks.
    pub fn check(&self) {
        if self.trouble.lock().is_some() {
            let _ = self.count(|store| store.ping()); // The answer is noted.
        }
    }

    /// Plans a filter for so many items at a rate.
    ///
    /// # Errors
    ///
    /// See [`FilterStore::plan_for`].
    pub fn plan_for(&self, items: u64, rate: f64) -> inbloom::Result<Plan> {
        self.store.plan_for(items, rate)
    }

    /// Creates an empty filter. Returns false if the name is taken.
    ///
    /// # Errors
    ///
    /// See [`FilterStore::create`].
    pub fn create(&self, name: &[u8], plan: &Plan) -> Result<bool, StoreError> {
        let is_new = self.ask(name, |store| store.create(name, plan))?;
        match is_new {
            true => self.set_level(name, FillLevel::new(plan.items(), 0.0, Duration::ZERO)),
            false => self.forget(name),
        }
        Ok(is_new)
    }

    /// Adds items, as long as the filter has room for new ones. There is an answer for each, also on an
    /// error.
    ///
    /// # Errors
    ///
    /// See [`FilterStore::add`].
    pub fn add(
        &self,
        name: &[u8],
        items: &[&[u8]],
        answers: &mut Vec<Added>,
    ) -> Result<(), StoreError> {
        answers.clear();
        let result = self.add_while_there_is_room(name, items, answers);
        answers.resize(items.len(), Added::Failed);
        result
    }

    fn add_while_there_is_room(
        &self,
        name: &[u8],
        items: &[&[u8]],
        answers: &mut Vec<Added>,
    ) -> Result<(), StoreError> {
        let mut of_batch = Vec::new();
        while answers.len() < items.len() {
            let rest = &items[answers.len()..];
            let room = usize::try_from(self.room(name)?).unwrap_or(usize::MAX);
            if room == 0 {
                let mut found = Vec::new();
                let result = self.contains(name, rest, &mut found);
                answers.extend(found.into_iter().map(|found| match found {
                    Lookup::Absent => Added::Full,
                    Lookup::Present => Added::Present,
                    Lookup::Failed => Added::Failed,
                }));
                return result;
            }
            let batch = &rest[..rest.len().min(room).min(BATCH)];
            let result = self.ask(name, |store| store.add(name, batch, &mut of_batch));
            let is_more = |answer: &&Added| matches!(answer, Added::New | Added::Unknown);
            if let Some(level) = self.levels.lock().get_mut(name) {
                level.added += of_batch.iter().filter(is_more).count() as u64;
            }
            answers.append(&mut of_batch);
            result?;
        }
        Ok(())
    }

    /// Returns how many new items a filter may take.
    fn room(&self, name: &[u8]) -> Result<u64, StoreError> {
        let known = self.levels.lock().get(name).copied();
        if let Some(level) = known.filter(FillLevel::is_fresh) {
            return Ok(level.room());
        }
        let plan = self.plan(name)?;
        let begin = Instant::now();
        let estimate = self.estimate(name)?;
        let level = FillLevel::new(plan.items(), estimate, begin.elapsed());
        self.set_level(name, level);
        Ok(level.room())
    }

    fn set_level(&self, name: &[u8], level: FillLevel) {
        let mut levels = self.levels.lock();
        if levels.len() >= MOST_LEVELS && !levels.contains_key(name) {
            levels.clear();
        }
        levels.insert(name.into(), level);
    }

    fn forget(&self, name: &[u8]) {
        self.levels.lock().remove(name);
    }

    /// Looks items up. There is an answer for each, also on an error.
    ///
    /// # Errors
    ///
    /// See [`FilterStore::contains`].
    pub fn contains(
        &self,
        name: &[u8],
        items: &[&[u8]],
        answers: &mut Vec<Lookup>,
    ) -> Result<(), StoreError> {
        answers.clear();
        let mut of_batch = Vec::new();
        for batch in items.chunks(BATCH) {
            let result = self.ask(name, |store| store.contains(name, batch, &mut of_batch));
            answers.append(&mut of_batch);
            if result.is_err() {
                answers.resize(items.len(), Lookup::Failed);
                return result;
            }
        }
        Ok(())
    }

    /// Returns what a filter was made for.
    ///
    /// # Errors
    ///
    /// See [`FilterStore::plan`].
    pub fn plan(&self, name: &[u8]) -> Result<Plan, StoreError> {
        self.ask(name, |store| store.plan(name))
    }

    /// Estimates how many items a filter holds.
    ///
    /// # Errors
    ///
    /// See [`FilterStore::estimate`].
    pub fn estimate(&self, name: &[u8]) -> Result<f64, StoreError> {
        self.ask(name, |store| store.estimate(name))
    }

    /// Deletes a filter. Returns false if there is none.
    ///
    /// # Errors
    ///
    /// See [`FilterStore::delete`].
    pub fn delete(&self, name: &[u8]) -> Result<bool, StoreError> {
        self.forget(name);
        self.ask(name, |store| store.delete(name))
    }

    /// Returns when a filter expires, in milliseconds since 1970, or None if it does not.
    ///
    /// # Errors
    ///
    /// See [`FilterStore::expiry`].
    pub fn expiry(&self, name: &[u8]) -> Result<Option<u64>, StoreError> {
        self.ask(name, |store| store.expiry(name))
    }

    /// Sets when a filter expires, in milliseconds since 1970, or that it does not.
    ///
    /// # Errors
    ///
    /// See [`FilterStore::set_expiry`].
    pub fn set_expiry(&self, name: &[u8], at: Option<u64>) -> Result<(), StoreError> {
        self.ask(name, |store| store.set_expiry(name, at))
    }

    /// Lists the names of all filters, sorted.
    ///
    /// # Errors
    ///
    /// See [`FilterStore::names`].
    pub fn names(&self) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut names = self.count(|store| store.names())?;
        names.sort_unstable();
        Ok(names)
    }
}
