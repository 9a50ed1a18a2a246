//! Changes of a filter's content, and the one place that makes them.
//!
//! A command says what it wants as a [`Change`], which borrows the hashes of its items.
//! [`Value::apply`] locks the filter, changes it, and hands an [`Effect`] to the caller before anybody
//! else can change the filter again. The effect leaves out items that were refused or not found. Items
//! that were there already are left out for [`Items::AddNewHashes`], and recorded for the other
//! additions. A journal keeps effects, and recovery applies them again: items by [`Value::apply`] (see
//! [`Terms::Recorded`]), merges by [`Value::merge_alone`].

use inbloom::interop::redisbloom::{Bloom as ForeignBloom, CuckooChain, Hash, Pair, Refused};
use inbloom::{Digest, Error, Filter, Hasher};

use super::bloom::Bloom;
use super::{Guarded, Value, forgets, grows};

/// What is to be done with a filter.
#[derive(Clone, Copy)]
pub enum Change<'a> {
    /// Items come or go.
    Items {
        /// Which.
        items: Items<'a>,
        /// Whether they may be refused.
        terms: Terms<'a>,
    },
    /// All that another filter has comes to it. There is room for it.
    Merge {
        /// The other filter. If it is one with a lock, nobody else may have it: the lock is taken while
        /// that of the changed filter is held.
        from: &'a Value,
        /// What the journal keeps of it.
        image: &'a [u8],
        /// The hash of both.
        hasher: Hasher,
    },
}

/// Items that come to a filter or go, as the hashes that its kind knows them by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Items<'a> {
    /// BF.ADD to a filter of ours that grows.
    Add(&'a [Digest]),
    /// BF.ADD to a filter of another kind, one after another.
    Insert {
        /// The items.
        digests: &'a [Digest],
        /// Milliseconds since 1970: a window forgets by it.
        time: u64,
    },
    /// IB.DEL.
    Remove(&'a [Digest]),
    /// BF.ADD to a filter in RedisBloom's form.
    AddPairs(&'a [Pair]),
    /// CF.ADD.
    AddHashes(&'a [Hash]),
    /// CF.ADDNX. Its effect is that of [`Items::AddHashes`] for those that were not there.
    AddNewHashes(&'a [Hash]),
    /// CF.DEL.
    RemoveHashes(&'a [Hash]),
    /// A step of CF.COMPACT, which looks at so many slots.
    Compact(u64),
}

impl Items<'_> {
    /// Whether items come: their answers say which were new.
    pub fn are_added(&self) -> bool {
        match self {
            Items::Add(_)
            | Items::Insert { .. }
            | Items::AddPairs(_)
            | Items::AddHashes(_)
            | Items::AddNewHashes(_) => true,
            Items::Remove(_) | Items::RemoveHashes(_) | Items::Compact(_) => false,
        }
    }
}

/// Whether a change of items may be refused.
#[derive(Clone, Copy)]
pub enum Terms<'a> {
    /// A client asks for it. The function returns the bytes that a filter which has some already may
    /// take in all. For [`Items::Add`] and [`Items::Insert`] it is called only if the filter might grow,
    /// for items in RedisBloom's form whenever they are added.
    Asked(&'a dyn Fn(u64) -> u64),
    /// A journal has it: memory was granted when the change was made first. An item that is refused
    /// now does not keep those after it out.
    Recorded {
        /// As the effect had it.
        new: u64,
    },
}

impl Terms<'_> {
    fn limit(self, has: u64) -> u64 {
        match self {
            Terms::Asked(limit) => limit(has),
            Terms::Recorded { .. } => u64::MAX,
        }
    }
}

/// What a change has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    /// Items came or went.
    Items {
        /// Those that did, and those of an addition that were there already: see the top of this file.
        items: Items<'a>,
        /// How many of them a filter of BF.* counts as new: its bits alone do not tell, once they are
        /// there. 0 for other filters.
        new: u64,
    },
    /// All of another filter came.
    Merge {
        /// The image of that filter.
        image: &'a [u8],
        /// The items that the changed filter counts now.
        count: u64,
    },
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The filter has all the items that it is for, and does not grow.
    #[error("the filter is full and does not grow")]
    Full,
    /// The filter would have to grow beyond its limit.
    #[error("the filter has {has} bytes, and its limit does not let it grow")]
    Limit {
        /// The bytes that it has.
        has: u64,
    },
    /// A filter in RedisBloom's form cannot take it.
    #[error(transparent)]
    Foreign(#[from] Refused),
    /// The kind of filter takes no items once it is built.
    #[error("the filter is static")]
    Static,
    /// The filter is a file that was opened.
    #[error("the filter is a file that was opened read-only")]
    ReadOnly,
    /// The library has refused.
    #[error(transparent)]
    Failed(#[from] Error),
    /// Filters in RedisBloom's form cannot be merged.
    #[error("filters in RedisBloom's format cannot be merged")]
    Unmergeable,
    /// The filters differ in kind.
    #[error("the filters differ in kind")]
    OtherKind,
    /// The value is of a kind that has no such items.
    #[error("the filter is of another kind")]
    OtherType,
}

impl Value {
    /// Changes a filter. The answers are one for each item that was done, in order: whether it was new,
    /// or was there to be removed; of [`Items::Compact`], whether that was the last step. On an error
    /// they are those of the items before the one that was refused.
    ///
    /// `note` is called once if anything was done, before anybody can change the filter again where the
    /// order of changes matters.
    ///
    /// # Errors
    ///
    /// What was refused, and why.
    pub fn apply(
        &self,
        change: &Change<'_>,
        answers: &mut Vec<bool>,
        note: impl FnOnce(Effect<'_>),
    ) -> Result<(), Refusal> {
        answers.clear();
        if let Value::Filter(guarded) = self
            && guarded.is_foreign_file()
        {
            return Err(Refusal::ReadOnly);
        }
        match *change {
            Change::Items { items, terms } => self.apply_items(items, terms, answers, note),
            Change::Merge { from, image, hasher } => {
                self.merge(from, hasher, |count| note(Effect::Merge { image, count }))
            }
        }
    }

    fn apply_items(
        &self,
        items: Items<'_>,
        terms: Terms<'_>,
        answers: &mut Vec<bool>,
        note: impl FnOnce(Effect<'_>),
    ) -> Result<(), Refusal> {
        let done = |items: Items<'_>, new| note(Effect::Items { items, new });
        match (self, items) {
            (Value::Bloom(bloom), Items::Add(digests)) => {
                let done = |digests: &[Digest], new| done(Items::Add(digests), new);
                add(bloom, digests, terms, answers, done)
            }
            (Value::Filter(guarded), Items::Insert { digests, time }) => {
                let has = self.memory();
                let insert = |filter: &mut Filter| {
                    let result = insert(filter, digests, time, has, terms, answers);
                    if !answers.is_empty() {
                        done(Items::Insert { digests: &digests[..answers.len()], time }, 0);
                    }
                    result
                };
                guarded.change(insert, Filter::memory)
            }
            (Value::Filter(guarded), Items::Remove(digests)) => {
                let remove = |filter: &mut Filter| {
                    let result = each(digests, terms, answers, |it| Ok(filter.remove_digest(it)?));
                    note_those(digests, answers, |gone| done(Items::Remove(gone), 0));
                    result
                };
                guarded.change(remove, Filter::memory)
            }
            (Value::RedisBloom(guarded), Items::AddPairs(pairs)) => {
                let limit = terms.limit(self.memory());
                let add = |bloom: &mut ForeignBloom| {
                    let result =
                        each(pairs, terms, answers, |pair| Ok(bloom.insert_pair(pair, limit)?));
                    if !answers.is_empty() {
                        done(Items::AddPairs(&pairs[..answers.len()]), 0);
                    }
                    result
                };
                guarded.change(add, ForeignBloom::memory).map_err(|it| self.without_room(it))
            }
            (Value::Cuckoo(guarded), Items::AddHashes(hashes) | Items::AddNewHashes(hashes)) => {
                let is_once = matches!(items, Items::AddNewHashes(_));
                let limit = terms.limit(self.memory());
                let add = |cuckoo: &mut CuckooChain| {
                    let add_one = |cuckoo: &mut CuckooChain, hash| match is_once {
                        true => cuckoo.insert_unique_hash(hash, limit),
                        false => cuckoo.insert_hash(hash, limit).map(|()| true),
                    };
                    let result = cuckoo.try_each(hashes, |cuckoo, hash| {
                        answer(terms, answers, add_one(cuckoo, hash).map_err(Refusal::from))
                    });
                    note_those(hashes, answers, |added| done(Items::AddHashes(added), 0));
                    result
                };
                guarded.change(add, CuckooChain::memory).map_err(|it| self.without_room(it))
            }
            (Value::Cuckoo(guarded), Items::RemoveHashes(hashes)) => {
                let remove = |cuckoo: &mut CuckooChain| {
                    let result = cuckoo.try_each(hashes, |cuckoo, hash| {
                        answer(terms, answers, Ok(cuckoo.remove_hash(hash)))
                    });
                    note_those(hashes, answers, |gone| done(Items::RemoveHashes(gone), 0));
                    result
                };
                guarded.change(remove, CuckooChain::memory)
            }
            (Value::Cuckoo(guarded), Items::Compact(slots)) => {
                let compact = |cuckoo: &mut CuckooChain| {
                    answers.push(cuckoo.compact_step(slots as usize));
                    done(items, 0);
                };
                guarded.change(compact, CuckooChain::memory);
                Ok(())
            }
            (Value::Bloom(_) | Value::Filter(_) | Value::RedisBloom(_) | Value::Cuckoo(_), _) => {
                Err(Refusal::OtherType)
            }
        }
    }

    fn without_room(&self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::Foreign(Refused::Memory { .. }) => Refusal::Limit { has: self.memory() },
            other => other,
        }
    }

    fn merge(&self, from: &Value, hasher: Hasher, note: impl FnOnce(u64)) -> Result<(), Refusal> {
        match (self, from) {
            (Value::Bloom(into), Value::Bloom(from)) => Ok(into.unite(from, hasher, note)?),
            (Value::Filter(into), Value::Filter(from)) => {
                let merge = |filter: &mut Filter| {
                    from.read(|from| filter.merge(from))?;
                    note(filter.inserted());
                    Ok(())
                };
                into.for_long(|into: &Guarded<Filter>| into.change(merge, Filter::memory))
            }
            (Value::RedisBloom(_) | Value::Cuckoo(_), _)
            | (_, Value::RedisBloom(_) | Value::Cuckoo(_)) => Err(Refusal::Unmergeable),
            (Value::Bloom(_), Value::Filter(_)) | (Value::Filter(_), Value::Bloom(_)) => {
                Err(Refusal::OtherKind)
            }
        }
    }

    /// Merges as [`Change::Merge`] does into a filter that nobody else has: also where both have
    /// grown. `recorded` is the count of an [`Effect::Merge`] that is applied again: then the merge was
    /// checked before, and the filter may have some of it already.
    ///
    /// # Errors
    ///
    /// See [`Value::apply`].
    pub fn merge_alone(
        &mut self,
        from: &Value,
        hasher: Hasher,
        recorded: Option<u64>,
    ) -> Result<(), Refusal> {
        if let (Value::Bloom(into), Value::Bloom(from)) = (&mut *self, from) {
            let have_grown = into.rest().is_some() && from.rest().is_some();
            if have_grown || recorded.is_some() {
                return Ok(into.unite_alone(from, hasher, recorded)?);
            }
        }
        self.merge(from, hasher, |_| ())
    }
}

/// Does something with one item after another, until one is refused.
fn each<T: Copy>(
    all: &[T],
    terms: Terms<'_>,
    answers: &mut Vec<bool>,
    mut one: impl FnMut(T) -> Result<bool, Refusal>,
) -> Result<(), Refusal> {
    all.iter().try_for_each(|item| answer(terms, answers, one(*item)))
}

/// Takes in what became of an item.
fn answer(
    terms: Terms<'_>,
    answers: &mut Vec<bool>,
    result: Result<bool, Refusal>,
) -> Result<(), Refusal> {
    match result {
        Ok(answer) => answers.push(answer),
        Err(_) if matches!(terms, Terms::Recorded { .. }) => answers.push(false),
        Err(refusal) => return Err(refusal),
    }
    Ok(())
}

/// Notes the items whose answers are true, if there are any.
fn note_those<T: Copy>(all: &[T], answers: &[bool], note: impl FnOnce(&[T])) {
    if answers.len() == all.len() && answers.iter().all(|answer| *answer) {
        if !all.is_empty() {
            note(all);
        }
        return;
    }
    let those = all.iter().zip(answers).filter(|(_, answer)| **answer);
    let those: Vec<T> = those.map(|(item, _)| *item).collect();
    if !those.is_empty() {
        note(&those);
    }
}

fn add(
    bloom: &Bloom,
    digests: &[Digest],
    terms: Terms<'_>,
    answers: &mut Vec<bool>,
    note: impl FnOnce(&[Digest], u64),
) -> Result<(), Refusal> {
    let limit = match terms {
        Terms::Recorded { new } => return bloom.replay(digests, new, answers),
        // Looked up only when it may grow, which a filter that has room does not.
        Terms::Asked(_) if bloom.has_room(digests.len()) => u64::MAX,
        Terms::Asked(limit) => limit(bloom.bytes()),
    };
    bloom.insert(digests, answers, limit, note)
}

fn insert(
    filter: &mut Filter,
    digests: &[Digest],
    time: u64,
    has: u64,
    terms: Terms<'_>,
    answers: &mut Vec<bool>,
) -> Result<(), Refusal> {
    // A window follows the clock whenever it is written to. A clock that goes back refuses what clients
    // add, but not what was added before.
    match advance(filter, time) {
        Err(_) if matches!(terms, Terms::Recorded { .. }) => {}
        advanced => advanced?,
    }
    let most = grows(filter).then(|| {
        let spare = terms.limit(has).saturating_sub(has);
        filter.bytes().saturating_add(spare)
    });
    each(digests, terms, answers, |digest| {
        let is_at_limit = most.is_some_and(|most| filter.bytes() >= most);
        if is_at_limit && !filter.contains_digest(digest) {
            return Err(Refusal::Limit { has });
        }
        insert_one(filter, digest)
    })
}

fn advance(filter: &mut Filter, now: u64) -> Result<(), Error> {
    if filter.plan().kind().forgets() { filter.advance(now) } else { Ok(()) }
}

/// Inserts into a filter that does not grow: it is full when it has what it is for, unless it forgets.
fn insert_one(filter: &mut Filter, digest: Digest) -> Result<bool, Refusal> {
    if filter.plan().kind().is_static() {
        return Err(Refusal::Static);
    }
    if filter.is_read_only() {
        return Err(Refusal::ReadOnly);
    }
    let is_known = || filter.contains_digest(digest);
    if !forgets(filter) && filter.inserted() >= filter.plan().items() && !is_known() {
        return Err(Refusal::Full);
    }
    // Also if it seems to be in: what is taken for it may be removed, and it must stay.
    match filter.insert_digest(digest) {
        Ok(new) => Ok(new),
        Err(Error::Copies { .. }) => Ok(false),
        Err(Error::Full { .. }) if filter.contains_digest(digest) => Ok(false),
        Err(Error::Full { .. }) => Err(Refusal::Full),
        Err(other) => Err(Refusal::Failed(other)),
    }
}
