//! A column of keys in the memory of another program, read where it lies, a few thousand at a time.
//!
//! `arrow.rs` and `buffer.rs` make columns and check what can be checked beforehand. Others own the
//! memory. Arrow's columns never change. A numpy array must not be changed during the call, as with
//! numpy's own functions that release the interpreter's lock: otherwise answers are about a mixture of
//! old and new bytes. Lengths and places are read once and fixed, so that no change of the array's
//! content leads outside of it.

use std::slice;

use inbloom::AsKey;

use crate::key::{Form, Width};

/// What is done with the keys of a batch, in their order.
pub trait Visitor {
    /// Takes some keys, all of one type.
    fn keys<K: AsKey>(&mut self, keys: &[K]) -> Result<(), Problem>;

    /// Tells, of the last rows, which had a key: as many as there were keys are true.
    fn spread(&mut self, has_key: &[bool]);
}

/// Why a batch was given up.
pub enum Problem {
    /// The filter refused a key.
    Refused(inbloom::Error),
    /// The column is not what it says.
    Column(String),
    /// The filter is closed.
    Closed,
}

/// So many keys are taken at once: enough for the batch pipeline, few enough for the nearer caches.
const CHUNK: usize = 1024;

/// The same for integers that are keys as they lie. Nothing is made of them beforehand, and every call
/// fills the pipeline anew; but others wait for the filter's lock meanwhile.
const PLAIN_CHUNK: usize = 16_384;

/// Keys of equal type, somewhere in memory.
pub struct Column {
    pub layout: Layout,
    pub rows: usize,
    pub validity: Option<Validity>,
}

/// Where the keys are. A stride is the distance from a row to the next in bytes, and may be negative.
#[derive(Clone, Copy)]
pub enum Layout {
    /// Integers of 1, 2, 4 or 8 bytes in the machine's order, which are keys in a form of their own.
    Integers { start: *const u8, stride: isize, size: usize, is_signed: bool, form: Form },
    /// Bytes of equal number; without the zeros at the end if `is_padded`, as numpy has them.
    Fixed { start: *const u8, stride: isize, size: usize, is_padded: bool },
    /// Text of equal length in UTF-32, without the zeros at its end: numpy's.
    Utf32 { start: *const u8, stride: isize, characters: usize },
    /// Bytes of which the first offset says where they begin, and the next where they end. `end` is the
    /// last offset: no byte behind it is read.
    Offsets { offsets: *const u8, data: *const u8, wide: bool, end: u64 },
    /// Arrow's views: short ones lie in the view itself, others in one of several buffers.
    Views { views: *const u8, buffers: *const *const u8, lengths: *const u8, count: usize },
}

/// A bit for each row: whether it has a key.
#[derive(Clone, Copy)]
pub struct Validity {
    /// Null if no row has a key.
    pub bits: *const u8,
    /// The bit of the first row.
    pub first: usize,
}

// SAFETY: pointers to memory that its owner keeps as it is (see above) may be used by any thread.
unsafe impl Send for Column {}
// SAFETY: as above; nothing is written through them.
unsafe impl Sync for Column {}

impl Validity {
    pub const NONE: Validity = Validity { bits: std::ptr::null(), first: 0 };

    fn has_key(self, row: usize) -> bool {
        if self.bits.is_null() {
            return false;
        }
        let bit = self.first + row;
        // SAFETY: the column has a bit for each of its rows (checked or required where it was made).
        let byte = unsafe { *self.bits.add(bit / 8) };
        byte >> (bit % 8) & 1 == 1
    }
}

impl Column {
    /// Hands all keys to a visitor.
    pub fn visit<V: Visitor>(&self, visitor: &mut V) -> Result<(), Problem> {
        if let Some(integers) = self.plain_integers() {
            return integers.chunks(PLAIN_CHUNK).try_for_each(|keys| visitor.keys(keys));
        }
        let mut has_key = Vec::new();
        for start in (0..self.rows).step_by(CHUNK) {
            let end = self.rows.min(start + CHUNK);
            let mut has_all = true;
            if let Some(validity) = self.validity {
                has_key.clear();
                has_key.extend((start..end).map(|row| validity.has_key(row)));
                has_all = !has_key.contains(&false);
            }
            match has_all {
                true => self.visit_rows(start..end, end - start, visitor)?,
                false => {
                    let rows = (start..end).filter(|row| has_key[row - start]);
                    self.visit_rows(rows, end - start, visitor)?;
                    visitor.spread(&has_key);
                }
            }
        }
        Ok(())
    }

    /// The rows themselves, if each is a key: integers of 8 bytes, one behind the other.
    fn plain_integers(&self) -> Option<&[u64]> {
        let Layout::Integers { start, stride: 8, size: 8, form: Form::EIGHT, .. } = self.layout
        else {
            return None;
        };
        let start = start.cast::<u64>();
        if self.validity.is_some() || !start.is_aligned() {
            return None;
        }
        // SAFETY: the column has so many integers, whose place is aligned. Their memory is read only
        // during the call, in which nobody changes it (see above).
        Some(unsafe { slice::from_raw_parts(start, self.rows) })
    }

    fn visit_rows<V: Visitor>(
        &self,
        rows: impl Iterator<Item = usize>,
        most: usize,
        visitor: &mut V,
    ) -> Result<(), Problem> {
        match self.layout {
            Layout::Integers { form, .. } => {
                let mut bits = Vec::with_capacity(most);
                self.integers(rows, &mut bits);
                self.check_range(&bits)?;
                match (form.width, form.is_big_endian) {
                    (Width::Eight, false) => visitor.keys(&bits),
                    (Width::Eight, true) => visitor.keys(&arranged::<8>(form, &bits)),
                    (Width::Four, _) => visitor.keys(&arranged::<4>(form, &bits)),
                }
            }
            Layout::Utf32 { start, stride, characters } => {
                let (mut text, mut ends) = (String::new(), Vec::with_capacity(most));
                for row in rows {
                    // SAFETY: the row is one of the column's, which has so many characters in each.
                    unsafe { append_utf32(at(start, stride, row), characters, &mut text)? };
                    ends.push(text.len());
                }
                let begins = std::iter::once(0).chain(ends.iter().copied());
                let ranges = begins.zip(&ends).map(|(begin, end)| &text.as_bytes()[begin..*end]);
                visitor.keys(&ranges.collect::<Vec<_>>())
            }
            Layout::Offsets { offsets, data, wide, end } => {
                let mut keys = Vec::with_capacity(most);
                // SAFETY: the rows are the column's, and it has such offsets.
                unsafe {
                    match wide {
                        true => between::<i64>(offsets, data, end, rows, &mut keys)?,
                        false => between::<i32>(offsets, data, end, rows, &mut keys)?,
                    }
                }
                visitor.keys(&keys)
            }
            Layout::Fixed { .. } | Layout::Views { .. } => {
                let mut keys: Vec<&[u8]> = Vec::with_capacity(most);
                for row in rows {
                    keys.push(self.bytes(row)?);
                }
                visitor.keys(&keys)
            }
        }
    }

    /// The bytes of a row.
    #[inline]
    fn bytes(&self, row: usize) -> Result<&[u8], Problem> {
        match self.layout {
            Layout::Fixed { start, stride, size, is_padded } => {
                // SAFETY: the row is one of the column's, which has so many bytes in each.
                let bytes = unsafe { slice::from_raw_parts(at(start, stride, row), size) };
                let used = match is_padded {
                    true => bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1),
                    false => size,
                };
                Ok(&bytes[..used])
            }
            Layout::Views { views, buffers, lengths, count } => {
                // SAFETY: there is a view of 16 bytes for each row.
                let view = unsafe { views.add(row * 16) };
                // SAFETY: it is within the view, and so are the other two below.
                let length = unsafe { view.cast::<i32>().read_unaligned() };
                let damaged = || {
                    Problem::Column(format!(
                        "the Arrow column is damaged: the view of row {row} is outside its buffers"
                    ))
                };
                let length = usize::try_from(length).map_err(|_| damaged())?;
                if length <= 12 {
                    // SAFETY: twelve bytes of the view are for a short key.
                    return Ok(unsafe { slice::from_raw_parts(view.add(4), length) });
                }
                // SAFETY: as above.
                let (buffer, offset) = unsafe {
                    (
                        view.add(8).cast::<i32>().read_unaligned(),
                        view.add(12).cast::<i32>().read_unaligned(),
                    )
                };
                let buffer = usize::try_from(buffer).map_err(|_| damaged())?;
                let offset = usize::try_from(offset).map_err(|_| damaged())?;
                if buffer >= count {
                    return Err(damaged());
                }
                // SAFETY: there are so many buffers, and a length of each.
                let (start, size) = unsafe {
                    (*buffers.add(buffer), lengths.cast::<i64>().add(buffer).read_unaligned())
                };
                if start.is_null() || size < 0 || (offset + length) as u64 > size as u64 {
                    return Err(damaged());
                }
                // SAFETY: just checked to be within the buffer.
                Ok(unsafe { slice::from_raw_parts(start.add(offset), length) })
            }
            Layout::Integers { .. } | Layout::Utf32 { .. } | Layout::Offsets { .. } => {
                unreachable!("taken together")
            }
        }
    }

    /// Appends the bits of integers, with their sign continued.
    fn integers(&self, rows: impl Iterator<Item = usize>, bits: &mut Vec<u64>) {
        let Layout::Integers { start, stride, size, is_signed, .. } = self.layout else { return };
        // SAFETY: the rows are the column's, with an integer of this size in each; reads need no
        // alignment.
        unsafe {
            match (size, is_signed) {
                (8, _) if stride == 8 => {
                    let start = start.cast::<u64>();
                    bits.extend(rows.map(|row| start.add(row).read_unaligned()));
                }
                (8, _) => bits.extend(rows.map(|row| read::<u64>(start, stride, row))),
                (4, true) => {
                    bits.extend(rows.map(|row| i64::from(read::<i32>(start, stride, row)) as u64));
                }
                (4, false) => {
                    bits.extend(rows.map(|row| u64::from(read::<u32>(start, stride, row))))
                }
                (2, true) => {
                    bits.extend(rows.map(|row| i64::from(read::<i16>(start, stride, row)) as u64));
                }
                (2, false) => {
                    bits.extend(rows.map(|row| u64::from(read::<u16>(start, stride, row))))
                }
                (_, true) => {
                    bits.extend(rows.map(|row| i64::from(read::<i8>(start, stride, row)) as u64));
                }
                (_, false) => {
                    bits.extend(rows.map(|row| u64::from(read::<u8>(start, stride, row))))
                }
            }
        }
    }

    /// Refuses integers that do not fit into four bytes, with or without a sign.
    fn check_range(&self, bits: &[u64]) -> Result<(), Problem> {
        let Layout::Integers { form: Form { width: Width::Four, .. }, is_signed, .. } = self.layout
        else {
            return Ok(());
        };
        let fits = |bits: &&u64| match is_signed {
            true => (-(1 << 31)..1 << 32).contains(&(**bits as i64)),
            false => **bits < 1 << 32,
        };
        match bits.iter().all(|bits| fits(&bits)) {
            true => Ok(()),
            false => Err(Problem::Column(
                "an integer key of this filter has 32 bits, with or without a sign".to_string(),
            )),
        }
    }
}

/// Appends the bytes between the offset of each row and the next one. No byte behind `last` is read.
///
/// SAFETY: there must be an offset of this type for each row and one more, and data up to `last`.
#[inline]
unsafe fn between<T: Copy + Into<i64>>(
    offsets: *const u8,
    data: *const u8,
    last: u64,
    rows: impl Iterator<Item = usize>,
    keys: &mut Vec<&[u8]>,
) -> Result<(), Problem> {
    let offsets = offsets.cast::<T>();
    for row in rows {
        // SAFETY: the caller's.
        let [begin, end] = unsafe { [offsets.add(row), offsets.add(row + 1)] }
            // SAFETY: as above; reads need no alignment.
            .map(|offset| -> i64 { unsafe { offset.read_unaligned() }.into() });
        // As unsigned numbers, negative ones are beyond all memory.
        let (first, behind) = (begin as u64, end as u64);
        if first > behind || behind > last {
            return Err(Problem::Column(format!(
                "the Arrow column is damaged: row {row} is at {begin} to {end}, and its data end at \
                 {last}"
            )));
        }
        // SAFETY: the range is within the data.
        keys.push(unsafe {
            slice::from_raw_parts(data.add(first as usize), (behind - first) as usize)
        });
    }
    Ok(())
}

/// The first bytes of integers in their form.
fn arranged<const N: usize>(form: Form, bits: &[u64]) -> Vec<[u8; N]> {
    let first = |bits: &u64| *form.arrange(*bits).first_chunk().expect("4 or 8 of 8 bytes");
    bits.iter().map(first).collect()
}

/// SAFETY: the row must be within the memory.
unsafe fn at(start: *const u8, stride: isize, row: usize) -> *const u8 {
    // SAFETY: the caller's; no object is larger than isize::MAX bytes.
    unsafe { start.offset(stride * row as isize) }
}

/// SAFETY: as [`at`], and the row must have a T.
unsafe fn read<T: Copy>(start: *const u8, stride: isize, row: usize) -> T {
    // SAFETY: the caller's.
    unsafe { at(start, stride, row).cast::<T>().read_unaligned() }
}

/// Appends text in UTF-32 without the zeros at its end.
///
/// SAFETY: there must be so many characters of 4 bytes.
unsafe fn append_utf32(
    start: *const u8,
    characters: usize,
    text: &mut String,
) -> Result<(), Problem> {
    let before = text.len();
    let mut used = before;
    for place in 0..characters {
        // SAFETY: the caller's.
        let code = unsafe { start.cast::<u32>().add(place).read_unaligned() };
        let Some(character) = char::from_u32(code) else {
            return Err(Problem::Column(format!("a text of the array has the code {code:#x}")));
        };
        text.push(character);
        if code != 0 {
            used = text.len();
        }
    }
    text.truncate(used);
    Ok(())
}
