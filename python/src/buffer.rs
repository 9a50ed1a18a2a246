//! Columns that come through the buffer protocol: numpy's arrays, `array.array` and others.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::column::{Column, Layout};
use crate::key::Keys;

/// A column, and the buffer that keeps its memory.
pub struct Buffered {
    column: Option<Column>,
    _buffer: PyUntypedBuffer,
}

impl Buffered {
    /// The column of an object with the buffer protocol. None if it has not got it, or holds
    /// Python's objects.
    pub fn of(object: &Bound<'_, PyAny>, keys: &Keys) -> PyResult<Option<Buffered>> {
        let Ok(buffer) = PyUntypedBuffer::get(object) else { return Ok(None) };
        if buffer.format().to_bytes() == b"O" {
            return Ok(None); // numpy's array of any objects: its elements are taken one by one.
        }
        let column = column(&buffer, keys)?;
        Ok(Some(Buffered { column, _buffer: buffer }))
    }

    pub fn columns(&self) -> &[Column] {
        self.column.as_slice()
    }
}

fn column(buffer: &PyUntypedBuffer, keys: &Keys) -> PyResult<Option<Column>> {
    let format = buffer.format().to_string_lossy();
    let size = buffer.item_size();
    let refused = |problem: &str| {
        Err(PyTypeError::new_err(format!(
            "an array of format \"{format}\" cannot be keys: {problem}"
        )))
    };
    let (is_native, kind) = match format.as_bytes() {
        [b'@' | b'=', kind @ ..] => (true, kind),
        [b'<', kind @ ..] => (cfg!(target_endian = "little"), kind),
        [b'>' | b'!', kind @ ..] => (cfg!(target_endian = "big"), kind),
        kind => (true, kind),
    };
    if buffer.suboffsets().is_some() {
        return refused("its rows are pointers");
    }
    let start = buffer.buf_ptr().cast::<u8>().cast_const();
    let (shape, strides) = (buffer.shape(), buffer.strides());
    let letter = kind.last().copied().unwrap_or(b'B');
    let (&[rows, ..], &[stride, ..]) = (shape, strides) else {
        return refused("it has no dimension");
    };
    // A row of bytes in an array of two dimensions is a key.
    if let (&[_, width], &[_, step]) = (shape, strides) {
        if size != 1 || !matches!(letter, b'B' | b'b' | b'c') {
            return refused("only bytes may have two dimensions, one row for each key");
        }
        if step != 1 && width > 1 {
            return refused("the bytes of a row do not follow each other");
        }
        let layout = Layout::Fixed { start, stride, size: width, is_padded: false };
        return Ok((rows > 0).then_some(Column { layout, rows, validity: None }));
    }
    if shape.len() != 1 {
        return refused("it has more than two dimensions");
    }
    let layout = match letter {
        b'B' | b'b' | b'c' if size == 1 && kind.len() <= 1 && keys.integers.is_none() => {
            return refused("each byte would be a key: pass rows of bytes, or a list");
        }
        b'b' | b'h' | b'i' | b'l' | b'q' | b'n' | b'B' | b'H' | b'I' | b'L' | b'Q' | b'N'
            if kind.len() == 1 && matches!(size, 1 | 2 | 4 | 8) =>
        {
            if !is_native && size > 1 {
                return refused("its integers are in the other byte order");
            }
            let is_signed = letter.is_ascii_lowercase();
            Layout::Integers { start, stride, size, is_signed, form: keys.form()? }
        }
        b's' => Layout::Fixed { start, stride, size, is_padded: true },
        b'x' => Layout::Fixed { start, stride, size, is_padded: false },
        b'w' if size.is_multiple_of(4) => {
            if !is_native {
                return refused("its text is in the other byte order");
            }
            keys.check_text()?;
            Layout::Utf32 { start, stride, characters: size / 4 }
        }
        _ => return refused("give integers, bytes or text"),
    };
    Ok((rows > 0).then_some(Column { layout, rows, validity: None }))
}
