//! A blocked filter for many threads. It suits a million filters of a few keys as well as one of
//! gigabytes.
//!
//! **Idea.** Every line of a blocked filter has a bit that no key sets, its last. Here it is the
//! line's lock. An insert that finds its key missing locks the key's line by one locked
//! instruction, looks again, stores the line with its bits, and unlocks. All threads that insert
//! the same key need the same lock, so exactly one of them finds the key missing and returns "new".
//! The lock is in the line itself, so the filter needs no other lock and is hardly larger than its
//! bits.
//!
//! ```text
//! SharedBlocked, 40 bytes      Shape, one for all filters of a plan
//! +----------------+           +--------------------------------+
//! | shape ---------+---------> | plan, geometry, kernel         |
//! | cells ---------+--+        +--------------------------------+
//! +----------------+  |        block 0                   block 1
//!                     +------> | 511 bits of keys | lock | 511 bits of keys | lock | ...
//! ```
//!
//! **An insert, step by step.** Threads A and B insert a key whose bits are 3, 70 and 400 of block
//! 5, and bit 70 is set already. Both look without a lock, and miss two bits. A sets bit 511 of the
//! block and finds that it was not set: the lock is A's. B tries the same, finds the bit set, and
//! waits. A loads the line again, still misses 3 and 400, stores the line with them, and stores the
//! last word without bit 511: A gets "new". B gets the lock, loads the line again, misses nothing,
//! unlocks, and gets "not new". An insert of a key with two lines locks both before it looks, the
//! lower one first, so no two threads wait for each other.
//!
//! **What holds.** Once an insert has returned, with either result, every later query finds the
//! key, and every later copy of the bytes has it. Queries and copies never wait, and locks have no
//! effect on them: no key tests the reserved bit (`kernels/scalar.rs`, `for_each_bit`), and copies
//! clear it. The bits depend only on plan and digests, so they are those of
//! [`Blocked`](super::Blocked) for the same keys. An insert waits for another one only if both
//! change the same line in the same few nanoseconds, or if a thread was stopped while it held the
//! lock.
//!
//! **Cost.** One locked instruction for each line of a new key, none for a present key. Setting bit
//! by bit takes one for every probe. At 0.1% (one line, 8 probes, AVX2), a new key in a batch takes
//! 16 ns instead of 23 with 100,000 keys, and 27 ns instead of 59 with ten million. (One thread,
//! November 2026, best rounds on a busy machine: only the ratios are meaningful.) **When not.** For
//! one thread, [`Blocked`](super::Blocked) needs no lock and keeps the number of set bits; here
//! they must be counted. Keys cannot be removed: create a new filter.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::{check_reserved, positions_of};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::kernels::lock::{Locked, RESERVED, SharedLine, has_all, set_locked};
use crate::kernels::{Geometry, Kernel, Run};
use crate::kind::Kind;
use crate::membership::Membership;
use crate::plan::Plan;
use crate::plan::lines::BLOCK_BITS;
use crate::profile::{Count, Slice, Spread, divide, slices_of};
use crate::storage::{self, Cells, Order, Shared};
use crate::sync::{AtomicU64, Ordering};

/// What filters of one plan have in common, so that they can have it once.
pub struct Shape {
    plan: Plan,
    geometry: Geometry,
    kernel: &'static Kernel,
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shape").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl Shape {
    /// Creates the shape of the filters of a plan.
    ///
    /// # Errors
    ///
    /// Refuses another kind, and a shard, which sees only some of its digests.
    pub fn new(plan: Plan) -> Result<Arc<Shape>> {
        let refused = |verb, remedy| Err(Error::Unsupported { kind: plan.kind(), verb, remedy });
        if plan.kind() != Kind::Blocked {
            return refused("be shared line by line", "use kind blocked, or Filter::into_shared");
        }
        if plan.shard().is_some() {
            return refused("share one shard line by line", "use Filter::into_shared");
        }
        let geometry = Geometry::new(&plan);
        Ok(Arc::new(Shape { plan, geometry, kernel: Kernel::select(&geometry) }))
    }

    /// Returns the plan that it was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the instruction set in use: "avx512", "avx2" or "scalar".
    #[must_use]
    pub fn kernel(&self) -> &'static str {
        self.kernel.name
    }

    #[inline]
    pub(crate) fn contains(&self, words: &[AtomicU64], digest: Digest) -> bool {
        self.kernel.racing_contains(words, &self.geometry, digest)
    }

    /// Sets the digest's bits, and returns how many of them this call has set.
    #[inline]
    pub(crate) fn insert(&self, words: &[AtomicU64], digest: Digest) -> u32 {
        self.kernel.racing_insert(words, &self.geometry, digest)
    }

    pub(crate) fn contains_run(&self, words: &[AtomicU64], run: Run<'_>, found: &mut [bool]) {
        self.kernel.racing_contains_all(words, &self.geometry, run, found);
    }

    /// Inserts a run, appends which were new, and returns how many bits this call has set.
    pub(crate) fn insert_run(&self, words: &[AtomicU64], run: Run<'_>, new: &mut Vec<bool>) -> u64 {
        let before = new.len();
        new.resize(before + run.keys.len(), false);
        self.kernel.racing_insert_all(words, &self.geometry, run, &mut new[before..])
    }

    /// Clears every line while it is locked, and returns how many bits were set.
    pub(crate) fn clear(&self, words: &[AtomicU64]) -> u64 {
        let clear = |line: &SharedLine| {
            let _lock = Locked::new(line);
            let ones = read(line).map(|word| u64::from(word.count_ones())).iter().sum::<u64>();
            line[..7].iter().for_each(|word| word.store(0, Ordering::Relaxed));
            line[7].store(RESERVED, Ordering::Relaxed);
            ones
        };
        words.as_chunks().0.iter().map(clear).sum()
    }
}

/// Turns cells over to many threads, unless the reserved bit of a block is set, as it may be in a
/// file that nobody has verified: it would lock its line forever.
pub(crate) fn share(cells: Cells) -> Result<Shared> {
    cells.expect(Order::Ascending);
    let checked = check_reserved(0, cells.bytes());
    cells.expect(Order::Random);
    checked?;
    cells.into_shared()
}

/// A blocked filter that many threads insert into and query at once. Of several that insert a new
/// key, exactly one gets true.
///
/// ```
/// use inbloom::internals::kinds::blocked::{Shape, SharedBlocked};
/// use inbloom::{Hasher, Kind, Plan};
///
/// let shape = Shape::new(Plan::builder(Kind::Blocked).items(100).build()?)?;
/// let filters = [SharedBlocked::new(&shape)?, SharedBlocked::new(&shape)?];
/// let alice = Hasher::default().digest("alice");
/// let told_new: usize = std::thread::scope(|scope| {
///     let threads = [(); 4].map(|()| scope.spawn(|| filters[0].insert(alice)));
///     threads.map(|thread| usize::from(thread.join().unwrap())).iter().sum()
/// });
/// assert_eq!(told_new, 1);
/// assert!(filters[0].contains(alice) && !filters[1].contains(alice));
/// # Ok::<(), inbloom::Error>(())
/// ```
pub struct SharedBlocked {
    shape: Arc<Shape>,
    cells: Shared,
}

impl fmt::Debug for SharedBlocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBlocked").field("plan", &self.shape.plan).finish_non_exhaustive()
    }
}

impl SharedBlocked {
    /// Returns the bytes of memory beside its own and its shape's: the array, as an allocator
    /// rounds it up.
    #[must_use]
    pub fn memory(&self) -> u64 {
        storage::allocated(self.bytes())
    }

    /// Creates an empty filter.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Memory`] if there is not enough memory.
    pub fn new(shape: &Arc<Shape>) -> Result<SharedBlocked> {
        let cells = Cells::zeroed(shape.plan.bytes())?.into_shared()?;
        Ok(SharedBlocked { shape: Arc::clone(shape), cells })
    }

    pub(crate) fn with_cells(shape: Arc<Shape>, cells: Shared) -> SharedBlocked {
        SharedBlocked { shape, cells }
    }

    /// Replaces its own shape by that of others, if it is of the same plan.
    pub fn share_shape(&mut self, shape: &Arc<Shape>) {
        if self.shape.plan == shape.plan {
            self.shape = Arc::clone(shape);
        }
    }

    /// Returns what it has in common with other filters of its plan.
    #[must_use]
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// Returns the plan that it was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.shape.plan
    }

    /// Returns whether the digest may have been inserted: false is certain, true is probable. It
    /// never waits.
    #[inline]
    #[must_use]
    pub fn contains(&self, digest: Digest) -> bool {
        self.shape.contains(self.words(), digest)
    }

    /// Inserts a digest, and returns whether it is certainly new. At most one of several threads
    /// that insert it at once gets true, and exactly one unless it is a false positive.
    #[inline]
    pub fn insert(&self, digest: Digest) -> bool {
        self.shape.insert(self.words(), digest) != 0
    }

    /// Does the same as [`SharedBlocked::contains`] for many digests, in order. `found` is emptied
    /// first.
    pub fn contains_digests(&self, digests: &[Digest], found: &mut Vec<bool>) {
        Membership::contains_digests(&self, digests, found);
    }

    /// Does the same as [`SharedBlocked::insert`] for many digests, in order. The second of two
    /// equal digests is not new. `new` is emptied first.
    pub fn insert_digests(&self, digests: &[Digest], new: &mut Vec<bool>) {
        Membership::insert_digests(&mut &*self, digests, new).expect("inserts are never refused");
    }

    /// Returns the bytes that the bits take. What it takes beside them is its own size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shape.plan.bytes()
    }

    /// Returns the number of bits that are set. It reads everything.
    #[must_use]
    pub fn occupied(&self) -> u64 {
        let words = self.lines().iter().flat_map(read);
        words.map(|word| u64::from(word.count_ones())).sum()
    }

    /// Returns how evenly the bits are set, as [`Filter::profile`](crate::Filter::profile) does: reads
    /// everything.
    #[must_use]
    pub fn profile(&self, slices: usize) -> Vec<Slice> {
        let lines = self.lines();
        let count = |slice: Range<u64>| {
            let lines = &lines[slice.start as usize..slice.end as usize];
            let words = lines.iter().flat_map(read);
            let used = words.map(|word| u64::from(word.count_ones())).sum();
            // One bit of a block is reserved, and no cell.
            Count { used, cells: lines.len() as u64 * (BLOCK_BITS - 1) }
        };
        let counts: Vec<Count> = divide(lines.len() as u64, slices).map(count).collect();
        slices_of(&counts, Spread::in_lines(self.plan(), counts.len()))
    }

    /// Returns the bits of a digest, and whether each is set.
    #[must_use]
    pub fn positions(&self, digest: Digest) -> Vec<(u64, bool)> {
        let is_set = |position: u64| {
            let (block, bit) = (position / BLOCK_BITS, position % BLOCK_BITS);
            let bytes = read(&self.lines()[block as usize]).map(u64::to_ne_bytes);
            bytes.as_flattened()[bit as usize / 8] >> (bit % 8) & 1 == 1
        };
        let positions = positions_of(&self.shape.geometry, digest).into_iter();
        positions.map(|position| (position, is_set(position))).collect()
    }

    /// Copies the bytes from `at` on, as many as there is room for, while others insert. They
    /// contain each key that an insert returned for before. Of later keys some bits may be there.
    ///
    /// # Panics
    ///
    /// Panics beyond the end.
    pub fn copy_to(&self, at: u64, out: &mut [u8]) {
        let at = self.range(at, out.len()).expect("a range within the filter");
        for (line, part, bytes) in lines_of(at, out.len()) {
            let line = read(&self.lines()[line]).map(u64::to_ne_bytes);
            out[bytes].copy_from_slice(&line.as_flattened()[part]);
        }
    }

    /// Sets the bits that are set in these bytes, which begin at `at`, while others insert. A copy
    /// is loaded in this way, chunk by chunk.
    ///
    /// # Errors
    ///
    /// Nothing is changed if the bytes do not fit, or have a reserved bit.
    pub fn or_from(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let at = self.range(at, bytes.len()).ok_or_else(|| Error::Parameter {
            name: "offset",
            got: format!("{at}, for {} bytes", bytes.len()),
            expected: format!("such that they end within the filter's {} bytes", self.bytes()),
        })?;
        check_reserved(at, bytes)?;
        for (line, part, range) in lines_of(at, bytes.len()) {
            let mut mask = [[0; 8]; 8];
            mask.as_flattened_mut()[part].copy_from_slice(&bytes[range]);
            or_line(&self.lines()[line], mask.map(u64::from_ne_bytes));
        }
        Ok(())
    }

    /// Keeps here what either filter has, while others insert into both. Keys that are inserted
    /// there meanwhile may be left out.
    ///
    /// # Errors
    ///
    /// Both must have the same plan, except for items and rate. The error names what differs.
    pub fn merge(&self, other: &SharedBlocked) -> Result<()> {
        if let Some((field, left, right)) = self.plan().difference(other.plan()) {
            return Err(Error::Mismatch { field, left, right });
        }
        for (here, there) in self.lines().iter().zip(other.lines()) {
            or_line(here, read(there));
        }
        Ok(())
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self.cells.words()
    }

    fn lines(&self) -> &[SharedLine] {
        self.words().as_chunks().0
    }

    /// Returns where a range of bytes begins, if all of it is in the filter.
    fn range(&self, at: u64, len: usize) -> Option<usize> {
        let end = at.checked_add(len as u64)?;
        (end <= self.bytes()).then_some(at as usize)
    }
}

/// A handle is enough to insert, as a `&File` is enough to write.
impl Membership for &SharedBlocked {
    fn contains_digest(&self, digest: Digest) -> bool {
        self.contains(digest)
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        Ok(self.insert(digest))
    }

    fn prefetch(&self, digests: &[Digest]) {
        self.contains_run(&[], digests, &mut []);
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        self.shape.contains_run(self.words(), Run { keys: run, next }, found);
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        self.shape.insert_run(self.words(), Run { keys: run, next }, new);
        Ok(())
    }
}

/// Returns a line as it is in memory, without its lock.
fn read(line: &SharedLine) -> [u64; 8] {
    let mut words = line.each_ref().map(|word| word.load(Ordering::Relaxed));
    words[7] &= !RESERVED;
    words
}

/// Sets bits of a line, given as words in memory, which may all be set already.
fn or_line(line: &SharedLine, mask: [u64; 8]) {
    if !has_all(line, &mask) {
        let _lock = Locked::new(line);
        set_locked(line, &mask);
    }
}

/// Cuts a range of bytes at the borders of lines: the line, which part of it, and where in the
/// range.
fn lines_of(
    at: usize,
    len: usize,
) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> + use<> {
    let end = at + len;
    (at / 64..end.div_ceil(64)).map(move |line| {
        let first = line * 64;
        let (from, to) = (at.max(first), end.min(first + 64));
        (line, from - first..to - first, from - at..to - at)
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
