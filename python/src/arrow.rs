//! Columns that come through Arrow's C interface: pyarrow's, polars', pandas' and others', without a copy.
//!
//! The structures are those of https://arrow.apache.org/docs/format/CDataInterface.html and
//! CStreamInterface.html. Their producer guarantees that buffers are as long as their number of rows
//! says: the interface has no lengths. Everything else is checked: the type, the number of buffers,
//! signs, and every offset and view when it is read.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::column::{Column, Layout, Validity};
use crate::key::Keys;

#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

/// A structure of the interface that is ours: released when it is dropped.
trait Released: Sized {
    /// A structure that is released already, for others to fill in.
    fn empty() -> Self;
    /// SAFETY: calls the structure's own function, once.
    unsafe fn release(&mut self);
    fn is_released(&self) -> bool;
    fn mark_released(&mut self);
}

macro_rules! released {
    ($name:ident) => {
        impl Released for $name {
            fn empty() -> $name {
                // SAFETY: pointers, numbers and optional functions may all be zero.
                unsafe { std::mem::zeroed() }
            }

            unsafe fn release(&mut self) {
                if let Some(release) = self.release {
                    // SAFETY: the structure has not been released, and is where it was filled in
                    // or moved to, as the interface allows.
                    unsafe { release(self) };
                }
            }

            fn is_released(&self) -> bool {
                self.release.is_none()
            }

            fn mark_released(&mut self) {
                self.release = None;
            }
        }
    };
}

released!(ArrowSchema);
released!(ArrowArray);
released!(ArrowArrayStream);

/// A structure that we release.
struct Owned<T: Released>(T);

impl<T: Released> Owned<T> {
    /// Takes the structure out of a capsule, which is left with a released one.
    fn taken(capsule: &Bound<'_, PyAny>, name: &CStr) -> PyResult<Owned<T>> {
        let capsule = capsule.cast::<PyCapsule>()?;
        let place = capsule.pointer_checked(Some(name))?.as_ptr().cast::<T>();
        // SAFETY: a capsule of this name points to such a structure, by the interface. Nobody else
        // uses it now: this thread is attached, and the capsule was made for this call.
        let taken = unsafe { ptr::read(place) };
        if taken.is_released() {
            return Err(PyValueError::new_err("the Arrow data were released already"));
        }
        // SAFETY: as above. From now on only the structure that was read is to be released.
        unsafe { (*place).mark_released() };
        Ok(Owned(taken))
    }
}

impl<T: Released> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: it is released here and nowhere else.
        unsafe { self.0.release() };
    }
}

/// All chunks of a column, and what keeps their memory.
pub struct Chunks {
    columns: Vec<Column>,
    _arrays: Vec<Owned<ArrowArray>>,
}

// SAFETY: Arrow's data do not change, and the interface allows to release them on any thread.
unsafe impl Send for Chunks {}
// SAFETY: as above.
unsafe impl Sync for Chunks {}

impl Chunks {
    /// The column of an object that has the interface. None if it has not.
    pub fn of(object: &Bound<'_, PyAny>, keys: &Keys) -> PyResult<Option<Chunks>> {
        let py = object.py();
        let mut chunks = Chunks { columns: Vec::new(), _arrays: Vec::new() };
        if object.hasattr(intern!(py, "__arrow_c_array__"))? {
            let pair =
                object.call_method0(intern!(py, "__arrow_c_array__"))?.cast_into::<PyTuple>()?;
            let schema = Owned::<ArrowSchema>::taken(&pair.get_item(0)?, c"arrow_schema")?;
            let array = Owned::<ArrowArray>::taken(&pair.get_item(1)?, c"arrow_array")?;
            chunks.push(&Type::of(&schema.0)?, array, keys)?;
        } else if object.hasattr(intern!(py, "__arrow_c_stream__"))? {
            let capsule = object.call_method0(intern!(py, "__arrow_c_stream__"))?;
            let mut stream = Owned::<ArrowArrayStream>::taken(&capsule, c"arrow_array_stream")?;
            chunks.read(&mut stream.0, keys)?;
        } else {
            return Ok(None);
        }
        Ok(Some(chunks))
    }

    /// Reads all arrays of a stream.
    fn read(&mut self, stream: &mut ArrowArrayStream, keys: &Keys) -> PyResult<()> {
        let missing = || PyValueError::new_err("the Arrow stream has no functions");
        let get_schema = stream.get_schema.ok_or_else(missing)?;
        let get_next = stream.get_next.ok_or_else(missing)?;
        let mut schema = Owned(ArrowSchema::empty());
        // SAFETY: the stream's own function, for a schema to fill in.
        let code = unsafe { get_schema(stream, &raw mut schema.0) };
        check_stream(stream, code)?;
        let kind = Type::of(&schema.0)?;
        loop {
            let mut array = Owned(ArrowArray::empty());
            // SAFETY: as above, for an array.
            let code = unsafe { get_next(stream, &raw mut array.0) };
            check_stream(stream, code)?;
            if array.0.is_released() {
                return Ok(()); // The end.
            }
            self.push(&kind, array, keys)?;
        }
    }

    fn push(&mut self, kind: &Type, array: Owned<ArrowArray>, keys: &Keys) -> PyResult<()> {
        if let Some(column) = column(kind, &array.0, keys)? {
            self.columns.push(column);
        }
        self._arrays.push(array);
        Ok(())
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }
}

fn check_stream(stream: &mut ArrowArrayStream, code: c_int) -> PyResult<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the stream's own function, after an error.
    let text = stream.get_last_error.map(|function| unsafe { function(stream) });
    let text = match text {
        // SAFETY: a text that lives until the stream is used again.
        Some(text) if !text.is_null() => unsafe { CStr::from_ptr(text) }.to_string_lossy().into(),
        _ => format!("error {code}"),
    };
    Err(PyValueError::new_err(format!("the Arrow stream failed: {text}")))
}

/// The types that can be keys.
enum Type {
    Text {
        wide: bool,
        is_utf8: bool,
    },
    View {
        is_utf8: bool,
    },
    Fixed {
        size: usize,
    },
    Integer {
        size: usize,
        is_signed: bool,
    },
    /// A column of nothing but missing values.
    Null,
}

impl Type {
    fn of(schema: &ArrowSchema) -> PyResult<Type> {
        if schema.is_released() || schema.format.is_null() {
            return Err(PyValueError::new_err("the Arrow schema has no format"));
        }
        // SAFETY: a text that lives as long as the schema.
        let format = unsafe { CStr::from_ptr(schema.format) }.to_string_lossy();
        if !schema.dictionary.is_null() {
            return Err(PyTypeError::new_err(
                "the Arrow column is dictionary-encoded: cast it to text first",
            ));
        }
        Ok(match &*format {
            "u" => Type::Text { wide: false, is_utf8: true },
            "U" => Type::Text { wide: true, is_utf8: true },
            "z" => Type::Text { wide: false, is_utf8: false },
            "Z" => Type::Text { wide: true, is_utf8: false },
            "vu" => Type::View { is_utf8: true },
            "vz" => Type::View { is_utf8: false },
            "c" => Type::Integer { size: 1, is_signed: true },
            "C" => Type::Integer { size: 1, is_signed: false },
            "s" => Type::Integer { size: 2, is_signed: true },
            "S" => Type::Integer { size: 2, is_signed: false },
            "i" => Type::Integer { size: 4, is_signed: true },
            "I" => Type::Integer { size: 4, is_signed: false },
            "l" => Type::Integer { size: 8, is_signed: true },
            "L" => Type::Integer { size: 8, is_signed: false },
            "n" => Type::Null,
            other => match other.strip_prefix("w:").and_then(|size| size.parse().ok()) {
                Some(size) => Type::Fixed { size },
                None => {
                    return Err(PyTypeError::new_err(format!(
                        "an Arrow column of format \"{other}\" cannot be keys: pass text, binary or \
                         integers"
                    )));
                }
            },
        })
    }

    fn is_utf8(&self) -> bool {
        matches!(self, Type::Text { is_utf8: true, .. } | Type::View { is_utf8: true })
    }
}

/// The rows of an array. None if there are none.
fn column(kind: &Type, array: &ArrowArray, keys: &Keys) -> PyResult<Option<Column>> {
    let damaged = |what: &str| PyValueError::new_err(format!("the Arrow array is damaged: {what}"));
    let number = |value: i64, what| usize::try_from(value).map_err(|_| damaged(what));
    let rows = number(array.length, "its length is negative")?;
    let first = number(array.offset, "its offset is negative")?;
    let buffers = number(array.n_buffers, "its number of buffers is negative")?;
    // In bits, and 16 times in bytes, numbers are below isize::MAX then.
    if rows.checked_add(first).is_none_or(|end| end > isize::MAX as usize / 64) {
        return Err(damaged("its length is beyond all memory"));
    }
    if rows == 0 {
        return Ok(None);
    }
    if kind.is_utf8() {
        keys.check_text()?;
    }
    if let Type::Null = kind {
        return Ok(Some(all_missing(rows)));
    }
    let needed = match kind {
        Type::Integer { .. } | Type::Fixed { .. } => 2,
        Type::Text { .. } | Type::View { .. } => 3,
        Type::Null => 0,
    };
    let views = matches!(kind, Type::View { .. });
    if array.buffers.is_null() || buffers < needed || (buffers > needed && !views) {
        return Err(damaged("it has another number of buffers than its type"));
    }
    // SAFETY: there are so many pointers.
    let buffer = |index: usize| unsafe { *array.buffers.add(index) }.cast::<u8>();
    let present = |index: usize| match buffer(index) {
        pointer if pointer.is_null() => Err(damaged("a buffer is missing")),
        pointer => Ok(pointer),
    };
    let layout = match *kind {
        Type::Integer { size, is_signed } => Layout::Integers {
            // SAFETY: within the buffer, which has offset and length together.
            start: unsafe { present(1)?.add(first * size) },
            stride: size as isize,
            size,
            is_signed,
            form: keys.form()?,
        },
        Type::Fixed { size } => {
            if size.checked_mul(rows + first).is_none_or(|bytes| bytes > isize::MAX as usize) {
                return Err(damaged("its length is beyond all memory"));
            }
            // SAFETY: as above.
            let start = unsafe { present(1)?.add(first * size) };
            Layout::Fixed { start, stride: size as isize, size, is_padded: false }
        }
        Type::Text { wide, .. } => {
            let width = if wide { 8 } else { 4 };
            // SAFETY: the buffer has an offset for each row and one more.
            let (offsets, end) = unsafe {
                let offsets = present(1)?.add(first * width);
                let last = offsets.add(rows * width);
                let end = match wide {
                    true => last.cast::<i64>().read_unaligned(),
                    false => i64::from(last.cast::<i32>().read_unaligned()),
                };
                (offsets, end)
            };
            let end = u64::try_from(end).map_err(|_| damaged("an offset is negative"))?;
            // Of keys without a byte there may be no data at all.
            let data = match buffer(2) {
                pointer if !pointer.is_null() => pointer,
                _ if end == 0 => ptr::NonNull::dangling().as_ptr(),
                _ => return Err(damaged("a buffer is missing")),
            };
            Layout::Offsets { offsets, data, wide, end }
        }
        Type::View { .. } => {
            // Behind validity and views come the buffers of long keys, then the lengths of these.
            let count = buffers - 3;
            let lengths = match count {
                0 => ptr::null(),
                _ => present(buffers - 1)?,
            };
            Layout::Views {
                // SAFETY: the buffer has a view for each row.
                views: unsafe { present(1)?.add(first * 16) },
                // SAFETY: the pointer to the third of at least three.
                buffers: unsafe { array.buffers.add(2) }.cast_const().cast::<*const u8>(),
                lengths,
                count,
            }
        }
        Type::Null => unreachable!("returned above"),
    };
    let bits = buffer(0);
    let has_nulls = array.null_count != 0 && !bits.is_null();
    let validity = has_nulls.then_some(Validity { bits, first });
    Ok(Some(Column { layout, rows, validity }))
}

/// A column of rows without a key, of which none is ever read.
fn all_missing(rows: usize) -> Column {
    let start = ptr::NonNull::<u8>::dangling().as_ptr().cast_const();
    let layout = Layout::Fixed { start, stride: 0, size: 0, is_padded: false };
    Column { layout, rows, validity: Some(Validity::NONE) }
}
