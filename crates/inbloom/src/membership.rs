//! The trait that every kind implements, and the batch pipeline, which is written once for all
//! kinds.

use alloc::vec::Vec;

use crate::digest::{Digest, Hasher};
use crate::error::Result;
use crate::kernels::{Towards, prefetch};
use crate::key::AsKey;

/// A set of digests that never reports a member as absent. Every kind implements it.
///
/// The methods of this trait take digests; those of [`Filter`](crate::Filter) take keys. For a hash
/// with two digests per key ([`Hasher::digests_per_key`]), the methods for many digests take them
/// in pairs, and return one result per pair. The methods for one digest do not work with such a
/// hash.
///
/// The last two methods take whole batches, and are by far the fastest. While they work on one run
/// of keys, the processor fetches the memory of the next.
///
/// ```
/// use inbloom::{Filter, Kind, Membership, Plan};
///
/// fn count_present(set: &impl Membership, digests: &[inbloom::Digest]) -> usize {
///     let mut found = Vec::new();
///     set.contains_digests(digests, &mut found);
///     found.iter().filter(|found| **found).count()
/// }
///
/// let mut seen = Filter::new(Plan::builder(Kind::Blocked).items(1000).build()?)?;
/// seen.insert("alice")?;
/// let digests = ["alice", "bob"].map(|name| seen.digest(name));
/// assert_eq!(count_present(&seen, &digests), 1);
/// # Ok::<(), inbloom::Error>(())
/// ```
pub trait Membership {
    /// Returns whether the digest may have been inserted: false is certain, true is probable.
    fn contains_digest(&self, digest: Digest) -> bool;

    /// Inserts a digest, and returns whether it is certainly new.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::insert`](crate::Filter::insert) does.
    fn insert_digest(&mut self, digest: Digest) -> Result<bool>;

    /// Prefetches the memory that a run of digests will touch. It is a hint, and may do nothing.
    fn prefetch(&self, digests: &[Digest]);

    /// Queries a run of digests, with one result of
    /// [`contains_digest`](Membership::contains_digest) for each. Meanwhile it prefetches the
    /// memory of the next run, which may be empty.
    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]);

    /// Inserts a run of digests in order, and appends the results of
    /// [`insert_digest`](Membership::insert_digest). Meanwhile it prefetches the memory of the next
    /// run, which may be empty.
    ///
    /// # Errors
    ///
    /// Fails as [`insert_digest`](Membership::insert_digest) does. The number of results is then
    /// the number of inserted digests.
    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()>;

    /// Queries every digest, in order, and appends the results of
    /// [`contains_digest`](Membership::contains_digest) to an emptied `found`.
    fn contains_digests(&self, digests: &[Digest], found: &mut Vec<bool>) {
        found.clear();
        found.resize(digests.len(), false);
        let mut answers = found.chunks_mut(RUN);
        let mut runs = digests.chunks(RUN).peekable();
        if let Some(first) = runs.peek() {
            self.prefetch(first);
        }
        while let (Some(run), Some(answers)) = (runs.next(), answers.next()) {
            self.contains_run(run, runs.peek().unwrap_or(&NONE), answers);
        }
    }

    /// Inserts every digest, in order. `new` is emptied first, and then has the result of
    /// [`insert_digest`](Membership::insert_digest) for each.
    ///
    /// # Errors
    ///
    /// Fails as [`insert_digest`](Membership::insert_digest) does. The number of results is then
    /// the number of inserted digests.
    fn insert_digests(&mut self, digests: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        new.clear();
        new.reserve(digests.len());
        let mut runs = digests.chunks(RUN).peekable();
        if let Some(first) = runs.peek() {
            self.prefetch(first);
        }
        while let Some(run) = runs.next() {
            self.insert_run(run, runs.peek().unwrap_or(&NONE), new)?;
        }
        Ok(())
    }
}

/// The number of keys in a run: enough to hide a DRAM miss, and few enough that the lines of two
/// runs (16 KiB) stay in L2.
pub(crate) const RUN: usize = 128;
/// The empty run that follows the last one.
const NONE: &[Digest] = &[];

/// Queries keys: hashes each once, and prefetches its line at once.
pub(crate) fn contains_keys<K: AsKey>(
    members: &dyn Membership,
    hasher: &Hasher,
    keys: &[K],
    found: &mut Vec<bool>,
) {
    found.clear();
    found.resize(keys.len(), false);
    if hasher.is_foreign() {
        return contains_foreign_keys(members, hasher, keys, found);
    }
    let mut answers = found.chunks_mut(RUN).peekable();
    let all_answered = hash_ahead(hasher, keys, |run, next| {
        match answers.next_if(|answers| answers.len() == run.len()) {
            Some(answers) => members.contains_run(run, next, answers),
            None => members.prefetch(next), // There is no run before the first.
        }
        Ok(())
    });
    all_answered.expect("a query is never refused");
}

/// Inserts keys, as [`contains_keys`] queries them.
pub(crate) fn insert_keys<K: AsKey>(
    members: &mut dyn Membership,
    hasher: &Hasher,
    keys: &[K],
    new: &mut Vec<bool>,
) -> Result<()> {
    new.clear();
    new.reserve(keys.len());
    if keys.is_empty() {
        return Ok(());
    }
    if hasher.is_foreign() {
        return in_foreign_runs(hasher, keys, |run, next| members.insert_run(run, next, new));
    }
    hash_ahead(hasher, keys, |run, next| members.insert_run(run, next, new))
}

/// Does the same as [`contains_keys`] for hashes of other programs, which may have several digests
/// per key. It is a separate function to keep the loop of our own hashes simple.
#[inline(never)]
fn contains_foreign_keys<K: AsKey>(
    members: &dyn Membership,
    hasher: &Hasher,
    keys: &[K],
    found: &mut [bool],
) {
    let mut answers = found.chunks_mut(RUN);
    let all_answered = in_foreign_runs(hasher, keys, |run, next| {
        match run {
            [] => members.prefetch(next), // There is no run before the first.
            _ => members.contains_run(run, next, answers.next().expect("one for each run")),
        }
        Ok(())
    });
    all_answered.expect("a query is never refused");
}

/// Does the same as [`hash_ahead`] for hashes of other programs.
fn in_foreign_runs<K: AsKey>(
    hasher: &Hasher,
    keys: &[K],
    mut step: impl FnMut(&[Digest], &[Digest]) -> Result<()>,
) -> Result<()> {
    let [mut current, mut next] = [const { Vec::new() }; 2];
    for (number, run) in keys.chunks(RUN).enumerate() {
        next.clear();
        for (at, some) in run.chunks(KEYS_AT_ONCE).enumerate() {
            let later = number * RUN + (at + 2) * KEYS_AT_ONCE;
            (later..later + KEYS_AT_ONCE).for_each(|at| ask_for_key(keys, at));
            hasher.append_all(some, &mut next);
        }
        step(&current, &next)?;
        core::mem::swap(&mut next, &mut current);
    }
    step(&current, NONE)
}

/// Prefetches the bytes of a key that will be hashed soon. They may not be in the cache either.
#[inline(always)]
fn ask_for_key<K: AsKey>(keys: &[K], at: usize) {
    if let Some(bytes) = keys.get(at).and_then(AsKey::held_bytes) {
        prefetch(bytes.as_ptr(), Towards::Near);
    }
}

/// Hashes keys run by run, and calls `step` with a run and the next one. `step` can then prefetch
/// the memory of the next run while it works on this one. The first call has an empty run and the
/// first run as the next; the last call has no next run.
fn hash_ahead<K: AsKey>(
    hasher: &Hasher,
    keys: &[K],
    mut step: impl FnMut(&[Digest], &[Digest]) -> Result<()>,
) -> Result<()> {
    let mut buffers = [[Digest::default(); RUN]; 2];
    let [mut next, mut current] = buffers.each_mut();
    let mut in_current = 0;
    for (number, run) in keys.chunks(RUN).enumerate() {
        for (at, key) in run.iter().enumerate() {
            ask_for_key(keys, number * RUN + at + KEYS_AHEAD);
            next[at] = hasher.digest(key);
        }
        step(&current[..in_current], &next[..run.len()])?;
        core::mem::swap(&mut next, &mut current);
        in_current = run.len();
    }
    step(&current[..in_current], NONE)
}

/// How many keys ahead a key's bytes are prefetched.
const KEYS_AHEAD: usize = 12;
/// The number of keys that hashes of other programs take at once. Meanwhile the keys twice as far
/// ahead are prefetched.
const KEYS_AT_ONCE: usize = 8;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::{AsKey, BloomFilter};

    /// A key whose bytes have to be made, and that counts how often they are.
    struct Made<'a>(u64, &'a Cell<usize>);

    impl AsKey for Made<'_> {
        fn as_key(&self) -> impl AsRef<[u8]> {
            self.1.set(self.1.get() + 1);
            self.0.to_le_bytes()
        }
    }

    #[test]
    fn the_bytes_of_a_key_are_made_once_in_a_batch() {
        let count = Cell::new(0);
        let keys: Vec<_> = (0..1000).map(|key| Made(key, &count)).collect();
        let (mut filter, mut answers) = (BloomFilter::new(1000, 0.01), Vec::new());
        filter.insert_many(&keys, &mut answers);
        assert_eq!(count.get(), 1000);
        filter.contains_many(&keys, &mut answers);
        assert_eq!((count.get(), answers.iter().all(|found| *found)), (2000, true));
    }
}
