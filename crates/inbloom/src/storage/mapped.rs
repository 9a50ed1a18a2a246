//! Cells in the system's pages: large memory of our own, and mapped files.

use core::ops::Range;
use core::ptr::NonNull;
use std::io;

#[cfg(unix)]
use memmap2::Advice;
use memmap2::{Mmap, MmapMut};

use super::{Cells, HUGE_PAGE, LARGE, Order, Owner};

impl Cells {
    /// Zeroed pages of our own, which begin at a huge page.
    pub(super) fn pages(size: usize) -> io::Result<Cells> {
        // One page more than needed, so that the start can be moved to a page boundary.
        let mut map = MmapMut::map_anon(size.saturating_add(HUGE_PAGE))?;
        // A refusal costs speed only; kernels without huge pages answer EINVAL.
        let _ = advise_huge(&map);
        let skip = map.as_ptr().align_offset(HUGE_PAGE);
        let start = NonNull::from(&mut map[skip..]).cast();
        Ok(Cells::new(start, size, Owner::Pages { _map: Box::new(map) }))
    }

    /// Returns a part of a file that is mapped to read.
    pub(crate) fn mapped(map: Mmap, offset: usize, len: usize) -> Cells {
        let start = NonNull::from(&map[offset..][..len]).cast();
        let cells = Cells::new(start, len, Owner::File { map: Box::new(map) });
        cells.expect(Order::Random);
        cells
    }

    /// Returns a part of a file that is mapped copy-on-write.
    pub(crate) fn private(mut map: MmapMut, offset: usize, len: usize) -> Cells {
        let start = NonNull::from(&mut map[offset..][..len]).cast();
        let cells = Cells::new(start, len, Owner::Private { map: Box::new(map) });
        cells.expect(Order::Random);
        cells
    }

    /// Tells the system in which order the file is going to be read, if it is large. A refusal costs
    /// speed only.
    pub(super) fn advise(&self, order: Order) {
        #[cfg(unix)]
        if self.len >= LARGE {
            let advice = match order {
                Order::Random => Advice::Random,
                Order::Ascending => Advice::Normal,
            };
            let _ = match &self.owner {
                Owner::File { map } => map.advise(advice),
                Owner::Private { map } => map.advise(advice),
                _ => Ok(()),
            };
        }
        #[cfg(not(unix))]
        let _ = order;
    }

    /// Asks for a part of the file. A refusal costs speed only.
    pub(super) fn will_need(&self, part: Range<usize>) {
        #[cfg(unix)]
        {
            let offset = |base: *const u8| self.start.addr().get() - base.addr() + part.start;
            let (will_need, length) = (Advice::WillNeed, part.len());
            let _ = match &self.owner {
                Owner::File { map } => map.advise_range(will_need, offset(map.as_ptr()), length),
                Owner::Private { map } => map.advise_range(will_need, offset(map.as_ptr()), length),
                _ => Ok(()),
            };
        }
        #[cfg(not(unix))]
        let _ = part;
    }
}

#[cfg(unix)]
fn advise_huge(map: &MmapMut) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    map.advise(Advice::HugePage)?;
    Ok(())
}

#[cfg(not(unix))]
fn advise_huge(_map: &MmapMut) -> io::Result<()> {
    Ok(())
}

#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn is_page_resident(byte: &u8) -> bool {
    // SAFETY: only asks for a number.
    let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let page = core::ptr::from_ref(byte).map_addr(|address| address & !(page_size - 1));
    let mut state = 0;
    // SAFETY: for a range of one byte, which is within one page, one byte of state is written. The
    // page is not touched, and mapped memory is mapped by whole pages.
    let told = unsafe { libc::mincore(page.cast_mut().cast(), 1, &raw mut state) } == 0;
    !told || state & 1 == 1
}

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(super) fn is_page_resident(_byte: &u8) -> bool {
    true
}
