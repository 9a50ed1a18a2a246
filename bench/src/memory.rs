//! Cache lines in memory of a known page size, and the prefetches that reach them.
//!
//! The page size decides as much as the layout does: at 384 MiB a random line costs 1.7 times as
//! much through 4 KiB pages as through 2 MiB ones, because the page walk misses the caches too.
//! The limit is therefore measured on the same kind of memory as a filter has.

use inbloom::Digest;
use memmap2::MmapMut;

/// One cache line of eight words.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Line(pub(crate) [u64; 8]);

/// Which pages the kernel is asked for; it may give smaller ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    /// 2 MiB, as filters ask for.
    Huge,
    /// 4 KiB, what an ordinary allocation gets.
    Small,
}

/// The size of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// An array of zeroed lines, all of them touched.
pub(crate) struct Lines {
    map: MmapMut,
    /// Bytes of the mapping before the first line, which is at the start of a huge page.
    skip: usize,
    count: usize,
}

impl Lines {
    /// Maps `count` lines.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "only Linux is asked"))]
    pub(crate) fn new(count: u64, pages: Pages) -> Lines {
        assert!(count > 0, "an array needs a line");
        let count = usize::try_from(count).expect("the array fits the address space");
        let mut map = MmapMut::map_anon(count * 64 + HUGE_PAGE).expect("memory for the array");
        #[cfg(target_os = "linux")]
        {
            use memmap2::Advice;
            let advice = match pages {
                Pages::Huge => Advice::HugePage,
                Pages::Small => Advice::NoHugePage,
            };
            // Refused by kernels built without huge pages: then both kinds measure alike.
            let _ = map.advise(advice);
        }
        map.fill(0);
        let skip = map.as_ptr().align_offset(HUGE_PAGE);
        Lines { map, skip, count }
    }

    /// All lines.
    pub(crate) fn get(&self) -> &[Line] {
        let start = self.map[self.skip..].as_ptr().cast();
        // SAFETY: `start` is aligned to a huge page, hence to a line; the mapping is a huge page
        // longer than the lines, of which less than one was skipped; every bit pattern is a
        // `Line`; and the result borrows the mapping.
        unsafe { std::slice::from_raw_parts(start, self.count) }
    }

    /// All lines, to be written.
    pub(crate) fn get_mut(&mut self) -> &mut [Line] {
        let start = self.map[self.skip..].as_mut_ptr().cast();
        // SAFETY: as in `get`, and the mapping is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start, self.count) }
    }
}

/// The line that a digest chooses: a multiply-shift, as in the library.
#[inline(always)]
pub(crate) fn pick(lines: &[Line], digest: Digest) -> &Line {
    let index = scale(digest.place, lines.len());
    // SAFETY: `scale` yields less than the length, or 0 for an empty slice, which `Lines` excludes.
    unsafe { lines.get_unchecked(index) }
}

/// The line that a digest chooses, to be written.
#[inline(always)]
pub(crate) fn pick_mut(lines: &mut [Line], digest: Digest) -> &mut Line {
    let index = scale(digest.place, lines.len());
    // SAFETY: as in `pick`.
    unsafe { lines.get_unchecked_mut(index) }
}

#[inline(always)]
fn scale(place: u64, count: usize) -> usize {
    ((u128::from(place) * count as u128) >> 64) as usize
}

/// The digests from the one `distance` keys ahead on, in step with a walk from the first.
#[inline(always)]
pub(crate) fn ahead(digests: &[Digest], distance: usize) -> &[Digest] {
    digests.get(distance..).unwrap_or_default()
}

/// Brings a line into the second-level cache: to be used a long way ahead, where the many
/// outstanding misses of that level are what counts.
#[inline(always)]
pub(crate) fn prefetch_far(line: &Line) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address has no effect that a program can observe.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(line).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Brings a line from the second-level cache into the first, shortly before use.
#[inline(always)]
pub(crate) fn prefetch_near(line: &Line) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address has no effect that a program can observe.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
