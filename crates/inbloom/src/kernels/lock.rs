//! The lock that every line of a shared blocked filter has: its reserved bit.
//!
//! Keys never set bit 511 of a line (see `kernels.rs`), so that while a filter is shared it is free
//! to say "a thread is changing this line". A thread that changes a line holds its lock; a thread
//! that only reads ignores the bit, since no key asks for it, and never waits. One locked
//! instruction takes the lock, and then the line is tested and set as a whole: of several threads
//! that insert one key, one finds it missing.
//!
//! The lock costs no memory, is in the line that is needed anyway, and there are as many as lines,
//! so that two threads hardly ever want the same one. A holder does nothing but look, or in bits,
//! and store.

use crate::sync::{AtomicU64, Ordering, pause};

/// The words of a line, little-endian.
pub(crate) type SharedLine = [AtomicU64; 8];

/// The reserved bit of a line, in its last word as it is in memory.
pub(crate) const RESERVED: u64 = (1_u64 << 63).to_le();

/// A line that only this thread changes, until this is dropped.
pub(crate) struct Locked<'a>(&'a SharedLine);

impl<'a> Locked<'a> {
    #[inline(always)]
    pub(crate) fn new(line: &'a SharedLine) -> Locked<'a> {
        let mut attempt = 0;
        loop {
            let last = line[7].load(Ordering::Relaxed);
            // Who waits only looks, so as not to take the line away from its holder. Acquires what
            // the last holder has released: the line as it left it.
            if last & RESERVED == 0 {
                let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
                let taken = line[7].compare_exchange(last, last | RESERVED, acquire, relaxed);
                if taken.is_ok() {
                    return Locked(line);
                }
            }
            pause(attempt);
            attempt = u32::saturating_add(attempt, 1);
        }
    }

    /// Locks two lines of one array, which are not one: always in the order of the array, so that
    /// two threads never wait for each other.
    #[inline(always)]
    pub(crate) fn both(one: &'a SharedLine, other: &'a SharedLine) -> (Locked<'a>, Locked<'a>) {
        debug_assert!(!core::ptr::eq(one, other), "a key's lines are two blocks");
        let (low, high) =
            if core::ptr::from_ref(one) < other { (one, other) } else { (other, one) };
        (Locked::new(low), Locked::new(high))
    }
}

impl Drop for Locked<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Nobody else has changed the word meanwhile.
        let last = self.0[7].load(Ordering::Relaxed);
        self.0[7].store(last & !RESERVED, Ordering::Release);
    }
}

/// Whether bits, given as words in memory, are all set.
#[inline]
pub(crate) fn has_all(line: &SharedLine, mask: &[u64; 8]) -> bool {
    line.iter().zip(mask).all(|(word, mask)| mask & !word.load(Ordering::Relaxed) == 0)
}

/// Sets bits, given as words in memory, in a line whose lock we hold, and returns how many were not
/// set before.
#[inline]
pub(crate) fn set_locked(line: &SharedLine, mask: &[u64; 8]) -> u32 {
    let mut changed = 0;
    for (word, mask) in line.iter().zip(mask) {
        let old = word.load(Ordering::Relaxed);
        // Stored even if nothing is new: a branch would guess wrong too often.
        word.store(old | mask, Ordering::Relaxed);
        changed += (mask & !old).count_ones();
    }
    changed
}
