//! What a kind must do, and the batch pipeline, which is written once over all of them.

use alloc::vec::Vec;

use crate::digest::{Digest, Hasher};
use crate::error::Result;
use crate::kernels::{Towards, prefetch};
use crate::key::AsKey;

/// A set of digests that never reports a member as absent. Every kind is one.
///
/// The verbs of this trait take digests; [`Filter`](crate::Filter) takes keys. If two digests stand
/// for a key ([`Hasher::digests_per_key`]), the verbs for many digests take them in pairs and
/// answer once for each pair. The verbs for one digest cannot serve such a hash.
///
/// The last two verbs do whole batches, and are by far the fastest. While they work on one run of
/// keys, the memory of the next run is being fetched.
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

    /// Answers [`contains_digest`](Membership::contains_digest) for a run, with as many results as
    /// digests. Meanwhile it prefetches the memory of the next run, which may be empty.
    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]);

    /// Does [`insert_digest`](Membership::insert_digest) for a run in its order, and appends the
    /// results. Meanwhile it prefetches the memory of the next run, which may be empty.
    ///
    /// # Errors
    ///
    /// Fails as [`insert_digest`](Membership::insert_digest) does. The number of results is then
    /// the number of inserted digests.
    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()>;

    /// Answers [`contains_digest`](Membership::contains_digest) for every digest, in order.
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

    /// Does [`insert_digest`](Membership::insert_digest) for every digest, in order.
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

/// Keys that are in flight together. Enough to hide a DRAM miss, few enough that the lines of two
/// runs (16 KiB) stay in L2.
pub(crate) const RUN: usize = 128;
/// No next run.
const NONE: &[Digest] = &[];

/// The pipeline from keys on: each is hashed once, and its line asked for at once.
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

/// As [`contains_keys`], for inserts.
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

/// As [`contains_keys`], for hashes of other programs, where several digests may stand for a key.
/// Apart, so that the loop of our own hashes stays as it is.
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

/// As [`hash_ahead`], for hashes of other programs.
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

/// Asks for the bytes of a key that is hashed soon: they may be far away too.
#[inline(always)]
fn ask_for_key<K: AsKey>(keys: &[K], at: usize) {
    if let Some(bytes) = keys.get(at).and_then(AsKey::held_bytes) {
        prefetch(bytes.as_ptr(), Towards::Near);
    }
}

/// Hashes keys run by run and calls `step` with a run and the next one, just hashed, so that the
/// memory of the next can travel while the run is worked on. The first call has an empty run and
/// the first one as its next; the last has no next.
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

/// How many keys ahead a key's bytes are asked for.
const KEYS_AHEAD: usize = 12;
/// Keys that are hashed at once under hashes of other programs; those two times as far ahead are asked
/// for meanwhile.
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
