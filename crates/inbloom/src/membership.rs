//! What a kind must do, and the batch pipeline, which is written once over all of them.

use alloc::vec::Vec;
use core::ops::Range;

use crate::digest::{Digest, Hasher};
use crate::error::Result;
use crate::kernels::{Towards, prefetch};
use crate::key::AsKey;

/// A set of digests that never denies a member. Every kind is one.
///
/// The verbs of this trait take digests; [`Filter`](crate::Filter) takes keys. Where two digests stand
/// for a key ([`Hasher::digests_per_key`]), the verbs for many digests take them in pairs and answer
/// once for each, and those for one digest cannot tell. The last two do whole
/// batches, and are by far the fastest way in: while one run of keys is being worked on, the memory
/// of the next is already on its way.
pub trait Membership {
    /// Whether the digest may have been inserted: false is certain, true is probable.
    fn contains_digest(&self, digest: Digest) -> bool;

    /// Inserts, and tells whether the digest is certainly new.
    fn insert_digest(&mut self, digest: Digest) -> Result<bool>;

    /// Asks for the memory that a run of digests will touch. A hint: it may do nothing.
    fn prefetch(&self, digests: &[Digest]);

    /// Answers [`contains_digest`](Membership::contains_digest) for a run, with as many answers as
    /// digests, and asks meanwhile for the memory of the next run (which may be empty).
    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]);

    /// Does [`insert_digest`](Membership::insert_digest) for a run in its order, appends the answers,
    /// and asks meanwhile for the memory of the next run (which may be empty). On an error, the
    /// answers say how many were inserted before.
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

    /// Does [`insert_digest`](Membership::insert_digest) for every digest, in order. On an error, the
    /// answers say how many were inserted before.
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
const RUN: usize = 128;
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
    if hasher.digests_per_key() != 1 {
        return contains_wide_keys(members, hasher, keys, found);
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
    if hasher.digests_per_key() != 1 {
        return in_wide_runs(hasher, keys, |run, _| members.insert_run(run, NONE, new));
    }
    hash_ahead(hasher, keys, |run, next| members.insert_run(run, next, new))
}

/// As [`contains_keys`], where several digests stand for a key. Apart, so that the loop of the
/// other hashes stays as it is.
#[inline(never)]
fn contains_wide_keys<K: AsKey>(
    members: &dyn Membership,
    hasher: &Hasher,
    keys: &[K],
    found: &mut [bool],
) {
    let all_answered = in_wide_runs(hasher, keys, |run, keys| {
        members.contains_run(run, NONE, &mut found[keys]);
        Ok(())
    });
    all_answered.expect("a query is never refused");
}

/// Hashes keys of several digests run by run. Their filters ask for the lines of a run themselves.
fn in_wide_runs<K: AsKey>(
    hasher: &Hasher,
    keys: &[K],
    mut step: impl FnMut(&[Digest], Range<usize>) -> Result<()>,
) -> Result<()> {
    let mut digests = Vec::with_capacity(RUN * hasher.digests_per_key());
    for (number, run) in keys.chunks(RUN).enumerate() {
        digests.clear();
        run.iter().for_each(|key| hasher.append_digests(key, &mut digests));
        step(&digests, number * RUN..number * RUN + run.len())?;
    }
    Ok(())
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
            // The key itself may be far away too.
            let later = keys.get(number * RUN + at + KEYS_AHEAD);
            if let Some(bytes) = later.and_then(AsKey::held_bytes) {
                prefetch(bytes.as_ptr(), Towards::Near);
            }
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
