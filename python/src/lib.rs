//! inbloom for Python.
//!
//! | file | what it has |
//! |---|---|
//! | `filter.rs` | the class `Filter`: a filter behind a lock, and its calls |
//! | `make.rs` | plans and filters from keyword arguments; `plan`, `open`, `build`, `from_bytes` |
//! | `key.rs` | one Python object becomes the bytes of a key |
//! | `batch.rs` | many keys at once: lists and tuples, or a column |
//! | `column.rs` | keys in the memory of another program, read where they lie |
//! | `arrow.rs` | columns that come through Arrow's C interface, where they lie |
//! | `buffer.rs` | columns that come through the buffer protocol, as numpy's do |
//! | `answers.rs` | the class `Answers`: a buffer of booleans |
//! | `clock.rs` | windows follow the clock of the system |
//! | `error.rs` | errors become exceptions of `inbloom.exceptions` |
//!
//! **Locks.** No thread waits for a filter's lock while it holds the interpreter's, and none takes
//! the interpreter's while it holds a filter's. So they cannot deadlock.

mod answers;
mod arrow;
mod batch;
mod buffer;
mod clock;
mod column;
mod error;
mod filter;
mod key;
mod make;

use pyo3::prelude::*;

/// The compiled part of the package inbloom. Import from inbloom instead.
#[pymodule]
mod _inbloom {
    #[pymodule_export]
    use crate::answers::Answers;
    #[pymodule_export]
    use crate::filter::Filter;
    #[pymodule_export]
    use crate::make::{build, from_bytes, open, plan};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
