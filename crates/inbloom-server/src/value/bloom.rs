//! The Bloom filter of BF.*: as large as it was reserved for, and then it grows.
//!
//! Two structures at most. The *base* is a blocked filter for as many keys as were reserved: one
//! cache line per key, queries that never wait, about half the memory of anything that can grow.
//! Most filters never get beyond it. When it has what it is for, a scaling filter goes on in an
//! expandable one (`Kind::Scalable`), which is asked after the base; the base is closed and stays.
//! RedisBloom opens one layer after another instead: from 100 keys to 10 million that is 17, each
//! asked by every query.
//!
//! **Rate.** The target rate is divided as in the library's filters that grow: the base takes
//! [`base_share`] of it, and what comes after takes the rest. A filter that may not grow has all of
//! it for its base.
//!
//! **Racing adds.** Exactly one of several clients that add a new key at once gets "new":
//! inside the base its blocks see to it, and when the base is closed, `gate` makes sure that nobody
//! is still adding to it. A place in the count is reserved before keys are added, so that a filter
//! that may not grow never takes one more than it is for.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use inbloom::internals::compose::grown::base_share;
use inbloom::internals::kinds::blocked::{Shape, SharedBlocked};
use inbloom::internals::kinds::scalable::SharedScalable;
use inbloom::internals::memory::allocated;
use inbloom::{Digest, Error, Hasher, Kind, Plan};
use parking_lot::{RwLock, RwLockWriteGuard};

use super::change::Refusal;

/// A filter of BF.*.
pub struct Bloom {
    base: SharedBlocked,
    /// Keys that were new; while some are being added, also those that may turn out to be.
    items: AtomicU64,
    /// Held by those who add to the base, and taken by the one who closes it.
    gate: RwLock<()>,
    /// What comes after the base, once that is closed.
    rest: OnceLock<Box<SharedScalable>>,
    /// None: it does not grow.
    expansion: Option<NonZeroU32>,
}

const BOTH_GROWN: Error = Error::Unsupported {
    kind: Kind::Scalable,
    verb: "merge in another filter that has grown, while it is in use",
    remedy: "merge both into a new key",
};

/// What the shape of a base depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wish {
    /// Keys.
    pub capacity: u64,
    rate: u64,
    /// Whether and by what it grows, as BF.INFO tells it.
    pub expansion: Option<NonZeroU32>,
}

impl Wish {
    /// A filter for so many keys at this rate.
    pub fn new(rate: f64, capacity: u64, expansion: Option<NonZeroU32>) -> Wish {
        Wish { capacity, rate: rate.to_bits(), expansion }
    }

    /// The rate of the whole.
    pub fn rate(self) -> f64 {
        f64::from_bits(self.rate)
    }

    /// The filter whose base is for so many keys at this rate.
    pub fn of_base(rate: f64, capacity: u64, expansion: Option<NonZeroU32>) -> Wish {
        Wish::new(rate / base_part(expansion, capacity), capacity, expansion)
    }

    /// Checks that a filter can work as asked. Every filter passes here, whether a client reserves
    /// it or a dump, a snapshot or the log describes it.
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] names the number that is out of range.
    pub fn check(self) -> Result<(), Error> {
        if !(1..=MOST_ITEMS).contains(&self.capacity) {
            return Err(wrong("capacity", self.capacity, "from 1 to 2^62"));
        }
        let rate = self.rate();
        if !(rate > 0.0 && rate < 1.0) {
            return Err(wrong("rate", rate, "above 0 and below 1"));
        }
        match self.expansion {
            Some(growth) if growth > MOST_EXPANSION => {
                Err(wrong("expansion", growth, "from 1 to 32768, or none"))
            }
            _ => Ok(()),
        }
    }

    /// The rate that the base may have.
    fn base_rate(self) -> f64 {
        self.rate() * base_part(self.expansion, self.capacity)
    }

    /// Computes the shape of the base: up to milliseconds, so that it is worth keeping.
    pub fn shape(self) -> Result<Arc<Shape>, Error> {
        let plan =
            Plan::builder(Kind::Blocked).items(self.capacity).rate(self.base_rate()).build()?;
        Shape::new(plan)
    }
}

/// A number that no filter has.
fn wrong(name: &'static str, got: impl ToString, expected: &str) -> Error {
    Error::Parameter { name, got: got.to_string(), expected: expected.to_owned() }
}

/// The part of the rate that the base of a filter for so many keys may have; what comes after it has the
/// rest.
fn base_part(expansion: Option<NonZeroU32>, capacity: u64) -> f64 {
    match expansion {
        None => 1.0,
        Some(_) => base_share(capacity),
    }
}

/// No server counts more items or keys, so that sums of two such numbers do not overflow.
const MOST_ITEMS: u64 = 1 << 62;
/// The largest EXPANSION of BF.RESERVE, as RedisBloom has it.
const MOST_EXPANSION: NonZeroU32 = NonZeroU32::new(32_768).expect("not zero");

impl Bloom {
    /// An empty filter. The shape is that of the wish.
    pub fn new(wish: Wish, shape: &Arc<Shape>) -> Result<Bloom, Error> {
        wish.check()?;
        Ok(Bloom {
            base: SharedBlocked::new(shape)?,
            items: AtomicU64::new(0),
            gate: RwLock::new(()),
            rest: OnceLock::new(),
            expansion: wish.expansion,
        })
    }

    /// Which of these may have been added: false is certain, true is probable.
    pub fn contains(&self, digests: &[Digest], found: &mut Vec<bool>) {
        self.base.contains_digests(digests, found);
        if let Some(rest) = self.rest.get() {
            let missing: Vec<usize> = (0..digests.len()).filter(|at| !found[*at]).collect();
            let asked: Vec<Digest> = missing.iter().map(|at| digests[*at]).collect();
            let mut answers = Vec::new();
            rest.contains_digests(&asked, &mut answers);
            for (at, answer) in missing.into_iter().zip(answers) {
                found[at] = answer;
            }
        }
    }

    /// Adds, in order, and tells which were new. If one is refused, the answers say how many were
    /// done before. `limit`: the bytes that it may take in all when it grows. What was added is given to
    /// `note`, with the number of new ones, before anybody can take the filter to be at rest.
    pub(super) fn insert(
        &self,
        digests: &[Digest],
        new: &mut Vec<bool>,
        limit: u64,
        note: impl FnOnce(&[Digest], u64),
    ) -> Result<(), Refusal> {
        new.clear();
        let mut result = Ok(());
        let mut gate = self.gate.read();
        if self.rest.get().is_none() && self.claim(digests.len() as u64) {
            self.base.insert_digests(digests, new);
            let known = new.iter().filter(|new| !**new).count();
            self.items.fetch_sub(known as u64, Ordering::Relaxed);
        } else {
            if self.rest.get().is_none() {
                drop(gate);
                // Nobody else adds now, so no reservation is under way that may still be given
                // back.
                let alone = self.gate.write();
                if self.rest.get().is_none() && self.insert_last(digests, new) < digests.len() {
                    result = self.open_rest(limit);
                }
                gate = RwLockWriteGuard::downgrade(alone);
            }
            if result.is_ok() && new.len() < digests.len() {
                result = self.insert_rest(&digests[new.len()..], new, limit);
            }
        }
        if !new.is_empty() {
            note(&digests[..new.len()], new.iter().filter(|new| **new).count() as u64);
        }
        drop(gate);
        result
    }

    /// Does something while nobody adds, and all that was added is noted.
    pub fn at_rest<R>(&self, work: impl FnOnce() -> R) -> R {
        /// A tenth of a second; somebody may add half a million keys at once.
        const PATIENCE: u32 = 1000;
        // Who waits for the gate keeps out those who come later: so it is tried first.
        for _ in 0..PATIENCE {
            if let Some(_alone) = self.gate.try_write() {
                return work();
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        let _alone = self.gate.write();
        work()
    }

    /// Adds once more what was added before a crash, when so many were new, whether or not it is there.
    /// Nothing is refused but for want of memory.
    pub(super) fn replay(
        &self,
        digests: &[Digest],
        new: u64,
        answers: &mut Vec<bool>,
    ) -> Result<(), Refusal> {
        let items = self.items().saturating_add(new);
        if !self.has_room(digests.len()) && self.rest.get().is_none() {
            // A base that was copied while these were added has bits of them, but its number of
            // items is older. They count now: else as many others would get into a full base.
            let mut there = Vec::new();
            self.base.contains_digests(digests, &mut there);
            let there = there.iter().filter(|is_there| **is_there).count() as u64;
            let early = there.saturating_sub((digests.len() as u64).saturating_sub(new));
            self.items.fetch_add(early, Ordering::Relaxed);
        }
        let mut result = self.insert(digests, answers, u64::MAX, |_, _| ());
        if let Err(Refusal::Full) = result {
            // It was taken when it was added first, so that it must not be missing now.
            self.base.insert_digests(&digests[answers.len()..], &mut Vec::new());
            result = Ok(());
        }
        self.set_items(items);
        result
    }

    /// Sets the number of its keys to what it was before a crash.
    fn set_items(&self, items: u64) {
        self.items.store(items, Ordering::Relaxed);
    }

    /// Adds to a base that has little room, one by one, until there is a new one too many.
    fn insert_last(&self, digests: &[Digest], new: &mut Vec<bool>) -> usize {
        for (done, digest) in digests.iter().enumerate() {
            if self.base.contains(*digest) {
                new.push(false);
            } else if self.claim(1) {
                let is_new = self.base.insert(*digest);
                if !is_new {
                    self.items.fetch_sub(1, Ordering::Relaxed);
                }
                new.push(is_new);
            } else {
                return done;
            }
        }
        digests.len()
    }

    /// Adds to what comes after the base, which is there.
    fn insert_rest(
        &self,
        digests: &[Digest],
        new: &mut Vec<bool>,
        limit: u64,
    ) -> Result<(), Refusal> {
        let rest = self.rest.get().expect("opened before");
        rest.set_limit(limit.saturating_sub(self.base.bytes()));
        let mut known = Vec::new();
        self.base.contains_digests(digests, &mut known);
        let (mut at, mut answers) = (0, Vec::new());
        while at < digests.len() {
            let strangers = known[at..].iter().take_while(|known| !**known).count();
            if strangers > 0 {
                let run = &digests[at..at + strangers];
                let result = rest.insert_digests(run, &mut answers);
                let added = answers.iter().filter(|new| **new).count();
                self.items.fetch_add(added as u64, Ordering::Relaxed);
                new.extend_from_slice(&answers);
                result.map_err(|error| self.not_grown(error))?;
                at += strangers;
            } else {
                new.push(false);
                at += 1;
            }
        }
        Ok(())
    }

    /// Closes the base for good, if the filter may grow. The gate is held for writing.
    fn open_rest(&self, limit: u64) -> Result<(), Refusal> {
        if self.expansion.is_none() {
            return Err(Refusal::Full);
        }
        let rest = self.first_rest().map_err(|error| self.not_grown(error))?;
        let bytes = self.base.bytes() + rest.bytes();
        if bytes > limit {
            return Err(Refusal::Limit { has: self.bytes() });
        }
        let _ = self.rest.set(Box::new(rest));
        Ok(())
    }

    /// Why it has not grown.
    fn not_grown(&self, error: Error) -> Refusal {
        match error {
            Error::Limit { .. } => Refusal::Limit { has: self.bytes() },
            // Of our limit, and not of the system: that has numbers, and no texts inside.
            Error::Memory { cause, .. } if cause.get_ref().is_some() => {
                Refusal::Limit { has: self.bytes() }
            }
            error => Refusal::Failed(error),
        }
    }

    /// An empty filter for what comes after the base, for as many keys at first as it had.
    fn first_rest(&self) -> Result<SharedScalable, Error> {
        let base = self.base.plan();
        let rate = self.rate() * (1.0 - base_part(self.expansion, base.items()));
        let plan = Plan::builder(Kind::Scalable).items(base.items()).rate(rate).build()?;
        SharedScalable::new(plan)
    }

    /// Counts keys that are about to be added, if the base may take them.
    fn claim(&self, count: u64) -> bool {
        let capacity = self.base.plan().items();
        let claim = |items: u64| items.checked_add(count).filter(|sum| *sum <= capacity);
        self.items.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim).is_ok()
    }

    /// Whether so many more keys cannot make it grow.
    pub fn has_room(&self, count: usize) -> bool {
        let room = self.reserved().saturating_sub(self.items());
        self.rest.get().is_none() && count as u64 <= room
    }

    /// Keys that were new: exact whenever none is being added.
    pub fn items(&self) -> u64 {
        self.items.load(Ordering::Relaxed)
    }

    /// The bytes of its cells, without memory for those to come: the same in every copy. Looks at
    /// every table of a filter that has grown.
    pub fn size(&self) -> u64 {
        self.base.bytes() + self.rest.get().map_or(0, |rest| rest.bucket_bytes())
    }

    /// The bytes of its cells, and of memory for those to come. Takes no lock.
    pub fn bytes(&self) -> u64 {
        self.base.bytes() + self.rest.get().map_or(0, |rest| rest.bytes())
    }

    /// The memory that it takes beside its entry and its shape.
    pub fn memory(&self) -> u64 {
        let rest = self
            .rest
            .get()
            .map_or(0, |rest| allocated(size_of::<SharedScalable>() as u64) + rest.memory());
        self.base.memory() + rest
    }

    /// The keys that it was reserved for.
    pub fn reserved(&self) -> u64 {
        self.base.plan().items()
    }

    /// By what it grows, as RedisBloom counts layers; None if it does not.
    pub fn expansion(&self) -> Option<NonZeroU32> {
        self.expansion
    }

    /// Returns the target rate.
    pub fn rate(&self) -> f64 {
        let base = self.base.plan();
        base.rate() / base_part(self.expansion, base.items())
    }

    /// Whether adding may take milliseconds, because a part of it has to be rebuilt.
    pub fn may_pause(&self) -> bool {
        self.rest.get().is_some_and(|rest| rest.may_pause())
    }

    /// A copy, while others may add: what was added before is in it.
    pub fn copy(&self, hasher: Hasher) -> Result<Bloom, Error> {
        // At this moment nobody adds to the base, and no reservation is under way.
        let items = {
            let _gate = self.gate.write();
            self.items()
        };
        // The rest first: what moves on to it meanwhile is then in neither, but came too late.
        let rest = match self.rest.get() {
            Some(rest) => Some(SharedScalable::from_filter(rest.snapshot(hasher)?)?),
            None => None,
        };
        let base = SharedBlocked::new(self.base.shape())?;
        base.merge(&self.base)?;
        Bloom::from_parts(base, rest, items, self.expansion)
    }

    /// Adds all that another filter of the same reservation has, while others may add to both.
    /// Refused if it would have more than it was reserved for, or if both have grown. On an error
    /// nothing was added. `note` is given the number of its items afterwards, as far as it is
    /// known.
    pub(super) fn unite(
        &self,
        other: &Bloom,
        hasher: Hasher,
        note: impl FnOnce(u64),
    ) -> Result<(), Error> {
        let rest = match other.rest.get() {
            Some(_) if self.rest.get().is_some() => return Err(BOTH_GROWN),
            Some(_) if self.expansion.is_none() => {
                return Err(Error::Full { items: other.items(), planned: self.reserved() });
            }
            Some(rest) => Some(SharedScalable::from_filter(rest.snapshot(hasher)?)?),
            None => None,
        };
        self.check_union(other)?;
        let Some(rest) = rest else {
            self.add_base(other)?;
            // Without those that somebody is just adding, and will note.
            self.at_rest(|| note(self.items()));
            return Ok(());
        };
        // What others add goes to the rest from now on, and is noted after this.
        let _gate = self.gate.write();
        if self.rest.set(Box::new(rest)).is_err() {
            return Err(BOTH_GROWN);
        }
        self.add_base(other)?;
        note(self.items());
        Ok(())
    }

    /// The same for a filter that nobody else has: also where both have grown. Then what has come after
    /// their bases is put together in new memory. `recorded`: the items after a merge that was done
    /// before a crash, and is done once more. It is not checked again, as the filter may have items
    /// already that came after it.
    pub(super) fn unite_alone(
        &mut self,
        other: &Bloom,
        hasher: Hasher,
        recorded: Option<u64>,
    ) -> Result<(), Error> {
        if recorded.is_none() {
            self.check_union(other)?;
        }
        if let Some(there) = other.rest.get() {
            let mut both = there.snapshot(hasher)?;
            if let Some(here) = self.rest.get() {
                both.merge(&here.snapshot(hasher)?)?;
            }
            self.rest = OnceLock::from(Box::new(SharedScalable::from_filter(both)?));
        }
        self.add_base(other)?;
        if let Some(items) = recorded {
            self.set_items(items);
        }
        Ok(())
    }

    /// Returns whether both together keep the target rate: on a copy of the bases, since what is
    /// added cannot be taken back.
    fn check_union(&self, other: &Bloom) -> Result<(), Error> {
        let both = SharedBlocked::new(self.base.shape())?;
        both.merge(&self.base)?;
        both.merge(&other.base)?;
        let items = both.plan().estimate(both.occupied()).items;
        let rest = |bloom: &Bloom| bloom.rest.get().map_or(0.0, |rest| rest.rate());
        let rate = both.plan().rate_at(items) + rest(self) + rest(other);
        // An estimate of a thousand items is right within some percent, of few within some items.
        if rate > self.rate() * 1.05 && items > self.reserved() as f64 + 5.0 {
            return Err(Error::Full { items: items as u64, planned: self.reserved() });
        }
        Ok(())
    }

    fn add_base(&self, other: &Bloom) -> Result<(), Error> {
        let (before, added) = (self.items(), other.items());
        self.base.merge(&other.base)?;
        // Items that both have count once: as far as the bits can tell.
        let estimate = self.estimate().round() as u64;
        let items = estimate.clamp(before.max(added), before.saturating_add(added));
        self.items.fetch_max(items, Ordering::Relaxed);
        Ok(())
    }

    /// How many distinct items were added, as far as the bits tell: reads the whole base. Of those
    /// that came after the base was full, it took some for its own, at its rate.
    pub fn estimate(&self) -> f64 {
        let in_base = self.base.plan().estimate(self.base.occupied()).items;
        let rest = self.rest.get().map_or(0.0, |rest| rest.estimated_items().items);
        in_base + rest / (1.0 - self.base.plan().rate_at(in_base)).max(f64::EPSILON)
    }

    /// Returns the current false-positive rate. It reads the whole base.
    pub fn rate_now(&self) -> f64 {
        let in_base = self.base.plan().estimate(self.base.occupied()).items;
        let base = self.base.plan().rate_at(in_base);
        let rest = self.rest.get().map_or(0.0, |rest| rest.rate());
        base + rest - base * rest
    }

    /// The blocked filter that holds the keys it was reserved for.
    pub fn base(&self) -> &SharedBlocked {
        &self.base
    }

    /// What came after the base, if it has grown.
    pub fn rest(&self) -> Option<&SharedScalable> {
        self.rest.get().map(|rest| &**rest)
    }

    /// Puts a filter together again from what was saved.
    ///
    /// # Errors
    ///
    /// Numbers that no filter has: see [`Wish::check`].
    pub fn from_parts(
        base: SharedBlocked,
        rest: Option<SharedScalable>,
        items: u64,
        expansion: Option<NonZeroU32>,
    ) -> Result<Bloom, Error> {
        Wish::of_base(base.plan().rate(), base.plan().items(), expansion).check()?;
        if items > MOST_ITEMS {
            return Err(wrong("items", items, "at most 2^62"));
        }
        if rest.is_some() && expansion.is_none() {
            return Err(wrong("expansion", "none", "one, as the filter has grown"));
        }
        let bloom = Bloom {
            base,
            items: AtomicU64::new(items),
            gate: RwLock::new(()),
            rest: OnceLock::new(),
            expansion,
        };
        if let Some(rest) = rest {
            let _ = bloom.rest.set(Box::new(rest));
        }
        Ok(bloom)
    }
}

/// How many layers RedisBloom would have for so many keys, and the keys that all of them are for. The
/// capacity is at least 1 (see [`Wish::check`]), so that the layers double at least: 64 of them are
/// enough for any number of items.
pub fn layers(capacity: u64, expansion: Option<NonZeroU32>, items: u64) -> (u64, u64) {
    let Some(expansion) = expansion.map(|expansion| u64::from(expansion.get())) else {
        return (1, capacity);
    };
    if expansion == 1 {
        let count = items.div_ceil(capacity.max(1)).max(1);
        return (count, capacity.saturating_mul(count));
    }
    let (mut count, mut layer, mut total) = (1, capacity, capacity);
    while total < items && count < 64 {
        layer = layer.saturating_mul(expansion);
        total = total.saturating_add(layer);
        count += 1;
    }
    (count, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_any_numbers_are_counted() {
        let numbers = [0, 1, 2, 100, 1 << 40, u64::MAX];
        for capacity in numbers {
            for expansion in [0, 1, 2, 32_768, u32::MAX] {
                for items in numbers {
                    let (count, total) = layers(capacity, NonZeroU32::new(expansion), items);
                    assert!(count >= 1 && total >= capacity, "{capacity} {expansion} {items}");
                }
            }
        }
    }

    /// A snapshot copies a base while clients go on adding: it may have bits of what the log has
    /// after it.
    #[test]
    fn what_an_image_has_early_does_not_overfill_its_base() {
        let wish = Wish::new(0.01, 1000, NonZeroU32::new(2));
        let shape = wish.shape().unwrap();
        let digest = |number: u64| inbloom::Hasher::default().digest(number);
        let digests: Vec<Digest> = (0..1400).map(digest).collect();
        let (before, record) = digests.split_at(800);
        let (mut answers, live) = (Vec::new(), Bloom::new(wish, &shape).unwrap());
        live.insert(before, &mut answers, u64::MAX, |_, _| ()).unwrap();
        let items = live.items();
        let mut new = 0;
        live.insert(record, &mut answers, u64::MAX, |_, count| new = count).unwrap();
        assert!(live.rest().is_some());

        let recovered = Bloom::new(wish, &shape).unwrap();
        recovered.insert(before, &mut answers, u64::MAX, |_, _| ()).unwrap();
        recovered.insert(&record[..200], &mut answers, u64::MAX, |_, _| ()).unwrap();
        recovered.set_items(items);
        recovered.replay(record, new, &mut answers).unwrap();
        assert_eq!(recovered.items(), live.items());
        let (copied, whole) = (recovered.base().occupied(), live.base().occupied());
        assert!(copied <= whole + 16, "{copied} bits in a base of {whole}");
        recovered.contains(&digests, &mut answers);
        assert!(answers.iter().all(|found| *found));
    }

    #[test]
    fn numbers_that_no_filter_has_are_refused_by_name() {
        let check = |rate, capacity, expansion| {
            let checked = Wish::new(rate, capacity, NonZeroU32::new(expansion)).check();
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(check(0.01, 1, 32_768), Ok(()));
        let wrong = |text: &str| Err(text.to_owned());
        assert_eq!(check(0.01, 0, 2), wrong("capacity is 0, but must be from 1 to 2^62"));
        assert_eq!(check(1.5, 9, 2), wrong("rate is 1.5, but must be above 0 and below 1"));
        assert!(check(f64::NAN, 9, 2).is_err());
        let text = "expansion is 32769, but must be from 1 to 32768, or none";
        assert_eq!(check(0.01, 9, 32_769), wrong(text));
    }
}
