//! What a batch returns: a buffer of booleans that needs no copy and no numpy.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use pyo3::exceptions::{PyBufferError, PyIndexError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList};

/// The answers of a batch, one boolean for each key, in the order of the keys.
///
/// It is a read-only sequence, and a buffer: numpy.asarray(answers) is an array of booleans over the
/// same memory, and memoryview(answers) works without numpy.
///
/// >>> import inbloom
/// >>> seen = inbloom.Filter(1000)
/// >>> answers = seen.add_many(["alice", "bob", "alice"])
/// >>> list(answers)
/// [True, True, False]
/// >>> answers == [True, True, False], answers.count(True), memoryview(answers).format
/// (True, 2, '?')
#[pyclass(frozen, module = "inbloom")]
pub struct Answers {
    answers: Box<[bool]>,
    /// What views of the buffer point to.
    shape: [ffi::Py_ssize_t; 1],
}

const FORMAT: &CStr = c"?";

impl Answers {
    pub fn new(answers: Vec<bool>) -> Answers {
        // At most isize::MAX bytes are ever allocated.
        Answers { shape: [answers.len() as ffi::Py_ssize_t], answers: answers.into_boxed_slice() }
    }
}

#[pymethods]
impl Answers {
    fn __len__(&self) -> usize {
        self.answers.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<bool> {
        let index = if index < 0 { index + self.shape[0] } else { index };
        let answer = usize::try_from(index).ok().and_then(|index| self.answers.get(index).copied());
        answer.ok_or_else(|| PyIndexError::new_err("index out of range"))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.tolist(py)?.try_iter()
    }

    /// Returns the answers as a list.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, &self.answers)
    }

    /// Returns how many answers are true, or how many are false.
    #[pyo3(signature = (value = true, /))]
    fn count(&self, value: bool) -> usize {
        self.answers.iter().filter(|answer| **answer == value).count()
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        match other.cast::<Answers>() {
            Ok(other) => Ok(self.answers == other.get().answers),
            Err(_) => self.tolist(py)?.eq(other),
        }
    }

    fn __repr__(&self) -> String {
        /// As many are shown.
        const SHOWN: usize = 10;
        let name = |answer: &bool| if *answer { "True" } else { "False" };
        let mut shown: Vec<&str> = self.answers.iter().take(SHOWN).map(name).collect();
        if self.answers.len() > SHOWN {
            shown.push("...");
        }
        format!("Answers([{}])", shown.join(", "))
    }

    /// SAFETY (of the caller, Python): `view` is a valid pointer, or null.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill in"));
        }
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("answers are read-only: copy them to change them"));
        }
        let answers = slf.get();
        let shape = answers.shape.as_ptr().cast_mut();
        let asks = |flag| flags & flag == flag;
        // SAFETY: the view is Python's to fill in. The memory and the shape belong to a frozen
        // object, which the view keeps alive by its reference, and are never changed: the buffer
        // is read-only.
        unsafe {
            (*view).buf = answers.answers.as_ptr().cast_mut().cast::<c_void>();
            (*view).len = answers.shape[0];
            (*view).readonly = 1;
            (*view).itemsize = 1;
            (*view).format = match asks(ffi::PyBUF_FORMAT) {
                true => FORMAT.as_ptr().cast_mut(),
                false => ptr::null_mut(),
            };
            (*view).ndim = 1;
            (*view).shape = if asks(ffi::PyBUF_ND) { shape } else { ptr::null_mut() };
            // One byte each: Python fills in such strides by itself.
            (*view).strides = match asks(ffi::PyBUF_STRIDES) {
                true => &raw mut (*view).itemsize,
                false => ptr::null_mut(),
            };
            (*view).suboffsets = ptr::null_mut();
            (*view).internal = ptr::null_mut();
            (*view).obj = slf.into_any().into_ptr();
        }
        Ok(())
    }
}
