//! Many keys at once, from whatever has them.
//!
//! Columns are read where they lie, all of them with the interpreter's lock released. Of lists and
//! other collections a few keys at a time are taken: their elements are held, the lock is released, and
//! their bytes are hashed where they lie. So elements come into the processor's cache once, and
//! an iterator of any length takes little memory.

use pyo3::exceptions::{PyImportError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyIterator, PyList, PyString, PyTuple};

use crate::arrow::Chunks;
use crate::buffer::Buffered;
use crate::column::{Problem, Visitor};
use crate::key::{Keys, Other, utf8};

/// Many keys.
pub enum Batch<'py> {
    List(Bound<'py, PyList>),
    Iterator(Bound<'py, PyIterator>, usize),
    Arrow(Chunks),
    Buffer(Buffered),
}

/// Why a batch was given up: for what is in it, or for an element that is no key.
pub enum Stopped {
    Problem(Problem),
    Raised(PyErr),
}

/// So many elements are taken at once: few enough for the nearer caches, and enough that to release the
/// interpreter's lock for them costs nothing.
const ELEMENTS: usize = 2048;

impl<'py> Batch<'py> {
    /// The keys of anything that has several: lists and tuples, columns of Arrow, buffers, and at
    /// last whatever can be iterated over.
    pub fn of(object: &Bound<'py, PyAny>, keys: &Keys) -> PyResult<Batch<'py>> {
        if let Ok(list) = object.cast::<PyList>() {
            return Ok(Batch::List(list.clone()));
        }
        if let Ok(tuple) = object.cast::<PyTuple>() {
            return Ok(Batch::List(tuple.to_list()));
        }
        let is_key = object.is_instance_of::<PyString>()
            || object.is_instance_of::<PyBytes>()
            || object.is_instance_of::<PyByteArray>();
        if is_key {
            let name = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "expected many keys, got a single {name}: pass a list, or use the call \
                 for one key"
            )));
        }
        match Chunks::of(object, keys) {
            Ok(Some(chunks)) => return Ok(Batch::Arrow(chunks)),
            // pandas has the interface in name, and needs pyarrow for it.
            Err(error) if error.is_instance_of::<PyImportError>(object.py()) => {}
            Err(error) => return Err(error),
            Ok(None) => {}
        }
        if let Some(buffered) = Buffered::of(object, keys)? {
            return Ok(Batch::Buffer(buffered));
        }
        Ok(Batch::Iterator(object.try_iter()?, object.len().unwrap_or(0)))
    }

    /// How many rows there are, keys or not; of an iterator, as far as it is known.
    pub fn rows(&self) -> usize {
        match self {
            Batch::List(list) => list.len(),
            Batch::Iterator(_, rows) => *rows,
            Batch::Arrow(chunks) => chunks.columns().iter().map(|column| column.rows).sum(),
            Batch::Buffer(buffered) => buffered.columns().iter().map(|column| column.rows).sum(),
        }
    }

    /// Hands all keys to a visitor, in order, with the interpreter's lock released.
    pub fn visit<V: Visitor + Send>(
        &self,
        py: Python<'py>,
        takes: &Keys,
        visitor: &mut V,
    ) -> Result<(), Stopped> {
        let columns = match self {
            Batch::List(list) => {
                let mut start = 0;
                // If another thread shortens the list, what is left of it is taken.
                while start < list.len() {
                    let elements = list.get_slice(start, start + ELEMENTS);
                    visit_elements(py, &elements, takes, visitor)?;
                    start += ELEMENTS;
                }
                return Ok(());
            }
            Batch::Iterator(iterator, _) => loop {
                let elements = PyList::empty(py);
                for element in iterator.clone().take(ELEMENTS) {
                    elements.append(element?)?;
                }
                if elements.is_empty() {
                    return Ok(());
                }
                visit_elements(py, &elements, takes, visitor)?;
            },
            Batch::Arrow(chunks) => chunks.columns(),
            Batch::Buffer(buffered) => buffered.columns(),
        };
        py.detach(|| columns.iter().try_for_each(|column| column.visit(visitor)))?;
        Ok(())
    }
}

impl From<Problem> for Stopped {
    fn from(problem: Problem) -> Stopped {
        Stopped::Problem(problem)
    }
}

impl From<PyErr> for Stopped {
    fn from(error: PyErr) -> Stopped {
        Stopped::Raised(error)
    }
}

/// Hands the elements of a list to a visitor. Nobody else has the list.
fn visit_elements<V: Visitor + Send>(
    py: Python<'_>,
    elements: &Bound<'_, PyList>,
    takes: &Keys,
    visitor: &mut V,
) -> Result<(), Stopped> {
    let mut keys: Vec<&[u8]> = Vec::with_capacity(ELEMENTS);
    // The bytes of integers, which do not move: there is room for all. And copies of what others may
    // change.
    let mut integers: Vec<[u8; 8]> = Vec::new();
    let mut copies: Vec<Vec<u8>> = Vec::new();
    for index in 0..elements.len() {
        // SAFETY: the list has so many elements. What is borrowed from it lives as long as it does,
        // because nobody else can take elements out of it.
        let element = unsafe {
            let element = ffi::PyList_GetItem(elements.as_ptr(), index as ffi::Py_ssize_t);
            Borrowed::from_ptr(py, element)
        };
        let bytes: *const [u8] = if let Ok(text) = element.cast_exact::<PyString>() {
            takes.check_text()?;
            utf8(&text)?
        } else if let Ok(bytes) = element.cast_exact::<PyBytes>() {
            bytes.as_bytes()
        } else {
            let any = match takes.plain_integer(&element) {
                Some((bytes, width)) => Any::Made(Other::Integer(bytes, width)),
                None => takes.any(&element)?,
            };
            match any {
                Any::Kept(bytes) => bytes,
                Any::Made(Other::Integer(bytes, width)) => {
                    if integers.is_empty() {
                        integers.reserve_exact(elements.len());
                    }
                    integers.push(bytes);
                    &raw const integers.last().expect("just pushed")[..width.bytes()]
                }
                Any::Made(Other::Bytes(bytes)) => {
                    copies.push(bytes);
                    &raw const **copies.last().expect("just pushed")
                }
            }
        };
        // SAFETY: the bytes of a str (see `utf8`) and of a bytes object stay where and as they are
        // while the object lives, which the list sees to. Those of integers stay because their vector
        // never grows, and those of a copy wherever the copy is moved. All outlive the keys.
        keys.push(unsafe { &*bytes });
    }
    py.detach(|| visitor.keys(&keys))?;
    Ok(())
}

/// The bytes of an element.
enum Any {
    /// In the memory of the element.
    Kept(*const [u8]),
    Made(Other),
}

impl Keys {
    /// The bytes of any key.
    #[inline(never)]
    fn any(&self, element: &Bound<'_, PyAny>) -> PyResult<Any> {
        if let Ok(text) = element.cast::<PyString>() {
            self.check_text()?;
            return Ok(Any::Kept(utf8(text)?));
        }
        if let Ok(bytes) = element.cast::<PyBytes>() {
            return Ok(Any::Kept(bytes.as_bytes()));
        }
        self.other(element).map(Any::Made)
    }
}
