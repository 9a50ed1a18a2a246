//! The arrays of a filter: where their memory comes from, how much they may take, and how their
//! bytes are counted through in a dump.

use crate::memory::allocated;
use crate::storage::{self, Cells};

/// What a link or a sub-filter is taken to need beside its bytes: its record, and what rounding up
/// to cache lines adds. Counted in every limit, so that a header of 38 bytes cannot ask for a
/// billion sub-filters of one byte.
pub const OVERHEAD: u64 = 128;

/// Why there is no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Short {
    /// Of the caller.
    Limit {
        needed: u64,
        limit: u64,
    },
    /// Of a sub-filter.
    TooLarge {
        bytes: u64,
        most: u64,
    },
    System {
        bytes: u64,
    },
}

/// Whether so many arrays of so many bytes in all are allowed. None stands for more bytes than can
/// be counted.
pub(super) fn check(arrays: u64, bytes: Option<u64>, limit: u64) -> Result<(), Short> {
    let overhead = arrays.checked_mul(OVERHEAD);
    let needed = bytes.zip(overhead).and_then(|(bytes, overhead)| bytes.checked_add(overhead));
    match needed {
        Some(needed) if needed <= limit => Ok(()),
        needed => Err(Short::Limit { needed: needed.unwrap_or(u64::MAX), limit }),
    }
}

/// Makes room for so many more elements, or says that there is no memory for them.
pub(super) fn reserve<T>(vector: &mut Vec<T>, more: usize) -> Result<(), Short> {
    let bytes = (more as u64).saturating_mul(size_of::<T>() as u64);
    // Most filters never have a second array: they have no room for three more.
    let reserved = match vector.is_empty() {
        true => vector.try_reserve_exact(more),
        false => vector.try_reserve(more),
    };
    reserved.map_err(|_| Short::System { bytes })
}

/// The memory that a list of arrays takes.
pub(super) fn of<T>(list: &Vec<T>, array: impl Fn(&T) -> &ZeroedArray) -> u64 {
    let places = allocated((list.capacity() * size_of::<T>()) as u64);
    places + list.iter().map(|each| storage::allocated(array(each).len as u64)).sum::<u64>()
}

/// Zeroed bytes. From 2 MiB on the system gives them out page by page as they are written, so that
/// a filter of any size grows at once.
pub(super) struct ZeroedArray {
    /// Rounded up to whole words.
    cells: Cells,
    len: usize,
}

impl ZeroedArray {
    pub(super) fn zeroed(bytes: u64) -> Result<ZeroedArray, Short> {
        let refused = Short::System { bytes };
        let len = usize::try_from(bytes).map_err(|_| refused)?;
        // Beyond isize no allocation exists, and the rounding below could overflow.
        let words = isize::try_from(len).map_err(|_| refused)?.unsigned_abs().next_multiple_of(8);
        let cells = Cells::zeroed(words as u64).map_err(|_| refused)?;
        Ok(ZeroedArray { cells, len })
    }

    pub(super) fn copy(&self) -> Result<ZeroedArray, Short> {
        let mut copy = ZeroedArray::zeroed(self.len as u64)?;
        copy.bytes_mut().copy_from_slice(self.bytes());
        Ok(copy)
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.cells.bytes()[..self.len]
    }

    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let cells = self.cells.writable().expect("memory of our own");
        &mut cells[..self.len]
    }
}

/// Finds a byte of the arrays as they follow each other in a dump: which array, and where in it.
/// None if it is behind the last one.
pub(super) fn locate<'a>(
    arrays: impl Iterator<Item = &'a [u8]>,
    offset: u64,
) -> Option<(usize, usize)> {
    let mut rest = offset;
    for (at, array) in arrays.enumerate() {
        if rest < array.len() as u64 {
            return Some((at, rest as usize));
        }
        rest -= array.len() as u64;
    }
    None
}

/// The chunk at a position of SCANDUMP, and the position that comes with it: that of the next.
/// Position 1 is the first byte of the first array; a chunk ends with its array at the latest.
pub(super) fn chunk<'a>(
    mut arrays: impl Iterator<Item = &'a [u8]> + Clone,
    position: u64,
    most: usize,
) -> Option<(u64, &'a [u8])> {
    assert!(most > 0, "a dump by chunks of no bytes never ends");
    let (at, start) = locate(arrays.clone(), position.checked_sub(1)?)?;
    let rest = &arrays.nth(at)?[start..];
    let data = &rest[..rest.len().min(most)];
    Some((position + data.len() as u64, data))
}
