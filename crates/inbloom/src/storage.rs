//! Where bits live: in memory of our own, in a mapped file, or in bytes that somebody lends us.
//!
//! [`Cells`] is a run of bytes with an owner. Kinds read it as one slice with any owner, so that
//! one implementation serves all of them. Memory of our own starts on a cache line (unless it is
//! small), and from 2 MiB up on a huge page: a random access into gigabytes otherwise costs a page
//! walk on top of the miss (20 to 40% of the time of a query, measured).
//!
//! [`Shared`] is the same memory, turned over to many threads: from then on it is only touched
//! through atomics (or through vector loads written in assembly, see `kernels`), until it is turned back.
//!
//! Without the feature `file` there are no mappings: all memory comes from the allocator.
//!
//! This is one of the few places with `unsafe`; the others are `kernels/`, the mapping calls in
//! `file.rs`, the signal handler in `file/watch.rs`, and the loans in `format.rs` and
//! `filter/view.rs`.

#[cfg(feature = "file")]
mod mapped;

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::ptr::NonNull;

#[cfg(feature = "file")]
use memmap2::{Mmap, MmapMut};

use crate::error::{Error, Result, no_memory};
use crate::profile::{Count, divide};

/// Alignment of memory of our own: a cache line, so that a block never straddles two.
const LINE: usize = 64;
/// The size of a huge page on x86-64 and on most ARM systems.
#[cfg(feature = "file")]
const HUGE_PAGE: usize = 2 << 20;
/// From this size on the system is advised in which order a mapped file is read. Keys jump about,
/// and reading ahead would bring in 16 pages or more for each one that is asked for (93 times the
/// memory, measured); but a whole pass without reading ahead waits for every page (23 s instead of
/// 2 for a GiB that is not in memory, measured). A smaller file is best brought in at once.
pub(crate) const LARGE: usize = 16 << 20;

/// The order in which the bytes of a mapped file are going to be read.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// Wherever keys point.
    Random,
    /// All of them, one after the other.
    Ascending,
}

/// A run of bytes, a multiple of 8 long, and who owns it.
pub(crate) struct Cells {
    start: NonNull<u8>,
    len: usize,
    owner: Owner,
}

/// Keeps the bytes alive. The maps are never read through these handles, only advised and dropped.
/// They are boxed: a small filter, of which there may be millions, has none, and would carry room
/// for one.
enum Owner {
    /// `alloc_zeroed`, to be freed with the same layout.
    Heap,
    /// Anonymous pages.
    #[cfg(feature = "file")]
    Pages { _map: Box<MmapMut> },
    /// A private (copy-on-write) mapping of a file: ours to write.
    #[cfg(feature = "file")]
    Private { map: Box<MmapMut> },
    /// A shared mapping of a file: to read only.
    #[cfg(feature = "file")]
    File { map: Box<Mmap> },
    /// Bytes lent for a while: to read only.
    Lender,
    /// A part of other cells, which no other part overlaps.
    Part { whole: Arc<Cells>, is_writable: bool },
    /// Other cells, of which all may only be read.
    #[cfg(feature = "std")]
    Frozen { _whole: Box<Cells> },
}

// SAFETY: `Cells` has the meaning of a `Box<[u8]>`, a mapping, or a `&[u8]`, all of which are Send
// and Sync; `start` is not handed out for writing except through `&mut self`.
unsafe impl Send for Cells {}
// SAFETY: as above; through `&self` the bytes are only read.
unsafe impl Sync for Cells {}

impl Cells {
    /// Zeroed memory of our own. Where it is pages of the system, nothing of it is resident until it is
    /// written.
    pub(crate) fn zeroed(len: u64) -> Result<Cells> {
        let too_long = || no_memory(len, "address space");
        let size = usize::try_from(len).map_err(|_| too_long())?;
        debug_assert!(size.is_multiple_of(8));
        #[cfg(feature = "file")]
        if size >= HUGE_PAGE {
            return Cells::pages(size).map_err(|cause| Error::Memory { bytes: len, cause });
        }
        if size == 0 {
            return Ok(Cells::new(NonNull::<u64>::dangling().cast(), 0, Owner::Lender));
        }
        let layout = heap_layout(size).ok_or_else(too_long)?;
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Ok(Cells::new(start, size, Owner::Heap)),
            None => Err(no_memory(len, "out of memory")),
        }
    }

    /// Turns the memory over to many threads. Bytes that are not ours to write are copied first;
    /// so is a mapping whose start is not aligned for atomics.
    pub(crate) fn into_shared(self) -> Result<Shared> {
        let aligned = self.start.cast::<u64>().is_aligned();
        Shared::new(if self.is_writable() && aligned { self } else { self.copy()? })
    }
}

/// None for more than can be addressed.
fn heap_layout(size: usize) -> Option<Layout> {
    // Memory that begins on a cache line costs allocators up to a line more. Where there are many small
    // filters that is a fifth of what they take, while all of such a filter is in the nearest cache
    // anyway, and every kernel takes any alignment.
    let align = if size < SMALL { align_of::<u128>() } else { LINE };
    Layout::from_size_align(size.checked_next_multiple_of(LINE)?, align).ok()
}

/// Cells of fewer bytes may begin within a cache line.
const SMALL: usize = 1024;

/// Returns the bytes of memory that cells of so many bytes take.
pub(crate) fn allocated(len: u64) -> u64 {
    #[cfg(feature = "file")]
    if len >= HUGE_PAGE as u64 {
        return len; // Pages of their own.
    }
    crate::memory::allocated(len.next_multiple_of(LINE as u64))
}

impl Cells {
    fn new(start: NonNull<u8>, len: usize, owner: Owner) -> Cells {
        Cells { start, len, owner }
    }

    /// Bytes that somebody lends us, at any alignment.
    ///
    /// # Safety
    ///
    /// The result must not outlive the loan: [`View`](crate::View) carries its lifetime, and lets
    /// go of nothing but copies.
    pub(crate) unsafe fn lent(bytes: &[u8]) -> Cells {
        Cells::new(NonNull::from(bytes).cast(), bytes.len(), Owner::Lender)
    }

    /// Makes the cells read-only. A copy can be written again.
    #[cfg(feature = "std")]
    pub(crate) fn frozen(self) -> Cells {
        Cells::new(self.start, self.len, Owner::Frozen { _whole: Box::new(self) })
    }

    /// Cuts the cells into parts of these lengths, one after the other, which own them together. Panics if
    /// they are longer than the whole, or no multiples of 8; what is left over is out of reach.
    pub(crate) fn split(self, lengths: impl IntoIterator<Item = usize>) -> Vec<Cells> {
        let (is_writable, whole) = (self.is_writable(), Arc::new(self));
        let mut offset = 0;
        let parts = lengths.into_iter().map(|len| {
            assert!(len.is_multiple_of(8) && len <= whole.len - offset, "parts within the whole");
            // SAFETY: the offset is within the whole, or just behind it.
            let start = unsafe { whole.start.add(offset) };
            offset += len;
            Cells::new(start, len, Owner::Part { whole: Arc::clone(&whole), is_writable })
        });
        parts.collect()
    }

    /// Cuts parts out of the cells, which own them together. Panics if a part is not within the
    /// whole, has no multiple of 8 bytes, or overlaps another; what is in none is out of reach.
    pub(crate) fn cut<const N: usize>(self, parts: [Range<usize>; N]) -> [Cells; N] {
        let (is_writable, whole) = (self.is_writable(), Arc::new(self));
        let apart = |one: &Range<usize>, other: &Range<usize>| {
            one.end <= other.start || other.end <= one.start || one.is_empty() || other.is_empty()
        };
        for (index, part) in parts.iter().enumerate() {
            assert!(part.start <= part.end && part.end <= whole.len, "parts within the whole");
            assert!(part.len().is_multiple_of(8), "parts of whole words");
            assert!(parts[..index].iter().all(|other| apart(part, other)), "parts that are apart");
        }
        parts.map(|part| {
            // SAFETY: the start is within the whole, or just behind it.
            let start = unsafe { whole.start.add(part.start) };
            Cells::new(start, part.len(), Owner::Part { whole: Arc::clone(&whole), is_writable })
        })
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the owner keeps `len` bytes from `start` alive as long as `self`, and writing
        // takes `&mut self`. Nobody reads or writes a whole after it was cut into parts.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Returns the bytes to change, or the error that says they are not ours to change.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.writable().ok_or(Error::ReadOnly)
    }

    /// Returns the bytes to change, if they are ours to change.
    #[inline]
    pub(crate) fn writable(&mut self) -> Option<&mut [u8]> {
        if !self.is_writable() {
            return None;
        }
        // SAFETY: as in `bytes`; the owner lets us write, and `&mut self` excludes other users.
        Some(unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) })
    }

    // No call and no loop: both would be in the way of every single insert.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        match self.owner {
            Owner::Heap => true,
            #[cfg(feature = "file")]
            Owner::Pages { .. } | Owner::Private { .. } => true,
            Owner::Part { is_writable, .. } => is_writable,
            _ => self.len == 0,
        }
    }

    /// Tells the system in which order a large mapped file is going to be read. A caller that
    /// announces a pass over all of it goes back to [`Order::Random`] afterwards.
    pub(crate) fn expect(&self, order: Order) {
        if let Owner::Part { whole, .. } = &self.owner {
            return whole.expect(order);
        }
        #[cfg(feature = "file")]
        self.advise(order);
        #[cfg(not(feature = "file"))]
        let _ = order;
    }

    /// Returns whether the bytes are those of a mapped file, of which the system keeps in memory
    /// what it sees fit.
    pub(crate) fn is_mapped(&self) -> bool {
        match &self.owner {
            #[cfg(feature = "file")]
            Owner::File { .. } | Owner::Private { .. } => true,
            Owner::Part { whole, .. } => whole.is_mapped(),
            _ => false,
        }
    }

    /// Asks the system for a part of a mapped file, and does not wait until it is in memory. One
    /// system call, also where it is there already.
    pub(crate) fn ask_for(&self, part: Range<usize>) {
        debug_assert!(part.start < part.end && part.end <= self.len);
        if let Owner::Part { whole, .. } = &self.owner {
            let offset = self.start.addr().get() - whole.start.addr().get();
            whole.ask_for(offset + part.start..offset + part.end);
        } else {
            #[cfg(feature = "file")]
            self.will_need(part);
        }
    }

    /// Returns whether the page of a byte is in memory, so that to touch it is not to wait for the
    /// disk. One system call. Yes where the system does not tell: Linux tells only those who own a
    /// file or may write to it.
    pub(crate) fn is_resident(&self, at: usize) -> bool {
        assert!(at < self.len, "a byte of these cells");
        #[cfg(feature = "file")]
        if self.is_mapped() {
            return mapped::is_page_resident(&self.bytes()[at]);
        }
        true
    }

    /// Returns a copy in memory of our own.
    pub(crate) fn copy(&self) -> Result<Cells> {
        self.copy_part(0..self.len)
    }

    /// Returns a copy of some of the bytes, a multiple of 8, in memory of our own.
    pub(crate) fn copy_part(&self, part: Range<usize>) -> Result<Cells> {
        let mut copy = Cells::zeroed(part.len() as u64)?;
        self.expect(Order::Ascending);
        copy.bytes_mut()?.copy_from_slice(&self.bytes()[part]);
        self.expect(Order::Random);
        Ok(copy)
    }

    /// Sets every byte to zero.
    pub(crate) fn clear(&mut self) -> Result<()> {
        self.bytes_mut()?.fill(0);
        Ok(())
    }

    /// Returns the number of set bits: reads everything.
    pub(crate) fn count_ones(&self) -> u64 {
        words(self.bytes()).map(|word| u64::from(word.count_ones())).sum()
    }
}

/// Cells of which it is known how many are set, at any time and at no cost.
pub(crate) struct Bits {
    pub cells: Cells,
    /// The number of set bits.
    pub ones: u64,
}

impl Bits {
    pub(crate) fn zeroed(len: u64) -> Result<Bits> {
        Ok(Bits { cells: Cells::zeroed(len)?, ones: 0 })
    }

    pub(crate) fn clear(&mut self) -> Result<()> {
        self.cells.clear()?;
        self.ones = 0;
        Ok(())
    }

    pub(crate) fn copy(&self) -> Result<Bits> {
        Ok(Bits { cells: self.cells.copy()?, ones: self.ones })
    }

    /// Counts the set bits anew. None if one is set after the first `used`.
    pub(crate) fn recount(&self, used: u64) -> Option<u64> {
        let last = words(self.cells.bytes()).next_back().unwrap_or(0);
        let stray = !used.is_multiple_of(64) && last >> (used % 64) != 0;
        (!stray).then(|| self.cells.count_ones())
    }

    /// Returns the set bits of slices of the first `used` bits.
    pub(crate) fn counts(&self, used: u64, slices: usize) -> Vec<Count> {
        let bytes = self.cells.bytes();
        let (words, _) = bytes.as_chunks::<8>();
        // The bits before a position, within its word.
        let before = |at: u64| match at % 64 {
            0 => 0,
            bits => {
                let word = u64::from_le_bytes(words[(at / 64) as usize]);
                u64::from((word << (64 - bits)).count_ones())
            }
        };
        self.cells.expect(Order::Ascending);
        let count = |slice: Range<u64>| {
            let (first, last) = ((slice.start / 64) as usize, (slice.end / 64) as usize);
            let whole: u64 = words[first..last]
                .iter()
                .map(|word| u64::from(u64::from_le_bytes(*word).count_ones()))
                .sum();
            let used = whole + before(slice.end) - before(slice.start);
            Count { used, cells: slice.end - slice.start }
        };
        let counts = divide(used, slices).map(count).collect();
        self.cells.expect(Order::Random);
        counts
    }

    /// Returns the cells in use in slices of whole blocks. `marks` gives a bit for each cell of a
    /// word that is in use; a block has so many `cells`.
    pub(crate) fn block_counts(
        &self,
        slices: usize,
        cells: u64,
        marks: impl Fn(u64) -> u64,
    ) -> Vec<Count> {
        let (blocks, _) = self.cells.bytes().as_chunks::<LINE>();
        self.cells.expect(Order::Ascending);
        let count = |slice: Range<u64>| {
            let blocks = &blocks[slice.start as usize..slice.end as usize];
            let used = words(blocks.as_flattened()).map(|word| u64::from(marks(word).count_ones()));
            Count { used: used.sum(), cells: blocks.len() as u64 * cells }
        };
        let counts = divide(blocks.len() as u64, slices).map(count).collect();
        self.cells.expect(Order::Random);
        counts
    }

    /// Keeps what either has. Both must be of one plan.
    pub(crate) fn unite(&mut self, other: &Bits) -> Result<()> {
        self.combine(other, |here, there| here | there, |word| word)
    }

    /// Keeps what both have. Both must be of one plan.
    pub(crate) fn intersect(&mut self, other: &Bits) -> Result<()> {
        self.combine(other, |here, there| here & there, |word| word)
    }

    /// Combines word by word; `set` has a bit for each cell of a word that counts as set.
    pub(crate) fn combine(
        &mut self,
        other: &Bits,
        operation: impl Fn(u64, u64) -> u64,
        set: impl Fn(u64) -> u64,
    ) -> Result<()> {
        if !self.cells.is_writable() {
            return Err(Error::ReadOnly);
        }
        self.cells.expect(Order::Ascending);
        other.cells.expect(Order::Ascending);
        let (here, there) = (self.cells.bytes_mut()?, other.cells.bytes());
        assert_eq!(here.len(), there.len(), "one plan, one size");
        let mut ones = 0;
        for (chunk, there) in here.as_chunks_mut::<8>().0.iter_mut().zip(words(there)) {
            let word = operation(u64::from_le_bytes(*chunk), there);
            *chunk = word.to_le_bytes();
            ones += u64::from(set(word).count_ones());
        }
        self.ones = ones;
        self.cells.expect(Order::Random);
        other.cells.expect(Order::Random);
        Ok(())
    }
}

impl PartialEq for Bits {
    fn eq(&self, other: &Bits) -> bool {
        self.ones == other.ones && self.cells.bytes() == other.cells.bytes()
    }
}

/// Returns the bytes as little-endian words.
pub(crate) fn words(bytes: &[u8]) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + '_ {
    let (chunks, rest) = bytes.as_chunks::<8>();
    debug_assert!(rest.is_empty());
    chunks.iter().map(|chunk| u64::from_le_bytes(*chunk))
}

impl Drop for Cells {
    fn drop(&mut self) {
        if matches!(self.owner, Owner::Heap) {
            // SAFETY: `start` came from `alloc_zeroed` with this layout, and is freed only here.
            unsafe { dealloc(self.start.as_ptr(), heap_layout(self.len).expect("as allocated")) }
        }
    }
}

#[cfg(not(loom))]
mod shared {
    use core::sync::atomic::AtomicU64;

    use super::{Cells, Result};

    /// Memory that many threads read and write at once, 64 bits at a time.
    pub(crate) struct Shared(Cells);

    impl Shared {
        pub(super) fn new(cells: Cells) -> Result<Shared> {
            debug_assert!(cells.is_writable() && cells.start.cast::<u64>().is_aligned());
            Ok(Shared(cells))
        }

        /// Turns the memory back, which takes the only handle, so that no thread uses it any more.
        pub(crate) fn into_cells(self) -> Result<Cells> {
            Ok(self.0)
        }

        #[inline]
        pub(crate) fn words(&self) -> &[AtomicU64] {
            // SAFETY: `start` is aligned for a word and owns `len` bytes that are ours to write
            // (checked in `Cells::into_shared`). While `self` exists nobody makes a plain reference
            // to them: `into_cells` consumes it.
            unsafe { core::slice::from_raw_parts(self.0.start.as_ptr().cast(), self.0.len / 8) }
        }
    }
}

/// Under loom, which explores every interleaving, words are loom's own atomics: a copy of the cells.
#[cfg(loom)]
mod shared {
    use loom::sync::atomic::{AtomicU64, Ordering};

    use super::{Cells, Result};

    pub(crate) struct Shared(Vec<AtomicU64>);

    impl Shared {
        pub(super) fn new(cells: Cells) -> Result<Shared> {
            Ok(Shared(
                super::words(cells.bytes()).map(|word| AtomicU64::new(word.to_le())).collect(),
            ))
        }

        pub(crate) fn into_cells(self) -> Result<Cells> {
            let mut cells = Cells::zeroed(self.0.len() as u64 * 8)?;
            for (bytes, word) in cells.bytes_mut()?.chunks_exact_mut(8).zip(&self.0) {
                bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            Ok(cells)
        }

        pub(crate) fn words(&self) -> &[AtomicU64] {
            &self.0
        }
    }
}

pub(crate) use shared::Shared;
