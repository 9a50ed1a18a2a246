//! Errors of the library become exceptions of `inbloom.exceptions`, which are written in Python.

use std::io;

use inbloom::Error;
use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// The exception for an error of the library.
pub fn raised(py: Python<'_>, error: Error) -> PyErr {
    raised_with(py, error, "")
}

/// The same, with more to say behind the text.
pub fn raised_with(py: Python<'_>, error: Error, more: &str) -> PyErr {
    let text = || format!("{error}{more}");
    match &error {
        Error::Memory { .. } => PyMemoryError::new_err(text()),
        Error::Io { action, cause } => match number(cause) {
            // Python makes a FileNotFoundError, a PermissionError and so on of the number.
            Some(number) => PyOSError::new_err((number, format!("{action}: {cause}{more}"))),
            None if cause.kind() == io::ErrorKind::UnexpectedEof => {
                exception(py, "FormatError", text())
            }
            None => PyErr::from(io::Error::new(cause.kind(), text())),
        },
        Error::ReadOnly => {
            let text = "the filter was opened read-only; open it with writable=True, change it, \
                        and save it";
            exception(py, "ReadOnlyError", format!("{text}{more}"))
        }
        Error::Copies { copies } => {
            let text = format!(
                "the filter holds this key {copies} times, and has no room for another copy; use \
                 add_if_absent, which keeps one copy, or kind=\"counting\"{more}"
            );
            exception(py, "FullError", text)
        }
        Error::Full { .. } => exception(py, "FullError", text()),
        Error::Unsupported { .. } | Error::LeftOut { .. } => {
            exception(py, "UnsupportedError", text())
        }
        Error::Mismatch { .. } | Error::MergedRate { .. } => exception(py, "MismatchError", text()),
        Error::Key { .. } => exception(py, "SecretError", text()),
        Error::NotAFilter { .. }
        | Error::Format { .. }
        | Error::Ambiguous { .. }
        | Error::Part { .. }
        | Error::OtherScheme { .. }
        | Error::NewerVersion { .. }
        | Error::Shards { .. } => exception(py, "FormatError", text()),
        _ => exception(py, "ParameterError", text()),
    }
}

/// The number of an error of the system, also where only its kind has come through the layers between:
/// `OSError.errno`, which programs compare.
fn number(cause: &io::Error) -> Option<i32> {
    // The same on Linux, macOS and Windows.
    let of_kind = match cause.kind() {
        io::ErrorKind::NotFound => Some(2),
        io::ErrorKind::PermissionDenied => Some(13),
        io::ErrorKind::AlreadyExists => Some(17),
        io::ErrorKind::NotADirectory => Some(20),
        io::ErrorKind::IsADirectory => Some(21),
        io::ErrorKind::StorageFull => Some(28),
        io::ErrorKind::ReadOnlyFilesystem => Some(30),
        _ => None,
    };
    cause.raw_os_error().or(of_kind)
}

/// A parameter that cannot be what it is.
pub fn bad_parameter(py: Python<'_>, text: impl Into<String>) -> PyErr {
    exception(py, "ParameterError", text.into())
}

/// A call of a filter that was closed.
pub fn closed(py: Python<'_>) -> PyErr {
    exception(py, "ClosedError", "the filter is closed: open it again".to_string())
}

/// The exception of this name.
pub fn exception(py: Python<'_>, name: &str, text: String) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE
        .get_or_try_init(py, || py.import("inbloom.exceptions").map(Bound::unbind))
        .and_then(|module| Ok(module.bind(py).getattr(name)?.cast_into::<PyType>()?));
    match module {
        Ok(class) => PyErr::from_type(class, text),
        Err(error) => error,
    }
}
