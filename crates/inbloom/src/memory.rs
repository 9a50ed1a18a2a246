//! What allocators take for a piece of memory.

/// Returns the bytes that an allocator takes for so many. It rounds up to one of four sizes for
/// each power of two, as mimalloc and jemalloc do, and to 16 bytes at least.
///
/// ```
/// use inbloom::internals::memory::allocated;
///
/// assert_eq!([1, 16, 17, 100, 192, 513].map(allocated), [16, 16, 32, 112, 192, 640]);
/// ```
#[must_use]
pub fn allocated(bytes: u64) -> u64 {
    let step = match bytes {
        0 => return 0,
        1..=64 => 16,
        _ => (1 << (bytes - 1).ilog2()) / 4,
    };
    bytes.checked_next_multiple_of(step).unwrap_or(u64::MAX)
}
