//! One Python object becomes the bytes of a key.
//!
//! Text is its UTF-8 form, and bytes are themselves. An integer has no bytes by itself: 42 may be one
//! byte, four or eight, in two orders. It is a key only of a filter that says its form, which the file
//! records as its key encoding, by the name that the command line has for it.

use inbloom::interop::KeyEncoding;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString};

/// The bytes of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    pub width: Width,
    pub is_big_endian: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Four,
    Eight,
}

impl Width {
    pub fn bytes(self) -> usize {
        match self {
            Width::Four => 4,
            Width::Eight => 8,
        }
    }
}

impl Form {
    pub const EIGHT: Form = Form { width: Width::Eight, is_big_endian: false };

    /// The form of this many bytes, little-endian, and its name.
    pub fn of_width(width: u32) -> Option<(Form, KeyEncoding)> {
        match width {
            4 => {
                let form = Form { width: Width::Four, is_big_endian: false };
                Some((form, KeyEncoding::I32le))
            }
            8 => Some((Form::EIGHT, KeyEncoding::U64le)),
            _ => None,
        }
    }

    /// The bytes of an integer, of which the first `width` count. None if it does not fit, with or
    /// without a sign.
    pub fn encode(self, value: i128) -> Option<[u8; 8]> {
        let bits = match self.width {
            Width::Four => {
                (-(1 << 31)..1 << 32).contains(&value).then_some(u64::from(value as u32))?
            }
            Width::Eight => (-(1 << 63)..1 << 64).contains(&value).then_some(value as u64)?,
        };
        Some(self.arrange(bits))
    }

    /// The bytes of an integer that fits.
    #[inline]
    pub fn arrange(self, bits: u64) -> [u8; 8] {
        match (self.is_big_endian, self.width) {
            (false, _) => bits.to_le_bytes(),
            (true, Width::Eight) => bits.to_be_bytes(),
            (true, Width::Four) => (bits << 32).to_be_bytes(),
        }
    }
}

/// What a filter takes for keys.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    pub integers: Option<Form>,
    text: Text,
}

/// What text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Utf8,
    /// As in Java: only bytes can be meant.
    Utf16,
    /// No key: the filter holds integers, and the bytes of "7" are the integer 55.
    Refused,
}

impl Keys {
    /// What the filter's recorded encoding says.
    pub fn of(filter: &inbloom::Filter) -> Keys {
        let plain = |width| Some(Form { width, is_big_endian: false });
        let reversed = |width| Some(Form { width, is_big_endian: true });
        if filter.plan().kind().is_exact() {
            return Keys { integers: plain(Width::Eight), text: Text::Refused };
        }
        let integers = match filter.key_encoding() {
            "i32le" => plain(Width::Four),
            "i64le" | "u64le" => plain(Width::Eight),
            "u32be" => reversed(Width::Four),
            "u64be" => reversed(Width::Eight),
            _ => None,
        };
        let text = match filter.key_encoding() == KeyEncoding::Utf16le.name() {
            true => Text::Utf16,
            false => Text::Utf8,
        };
        Keys { integers, text }
    }

    /// The form of integers, or the reason why there is none.
    pub fn form(&self) -> PyResult<Form> {
        self.integers.ok_or_else(|| {
            PyTypeError::new_err(
                "this filter takes no integers as keys: make it with int_width=8, or pass text or \
                 bytes",
            )
        })
    }

    /// Refuses text if its UTF-8 form is no key.
    #[inline]
    pub fn check_text(&self) -> PyResult<()> {
        let problem = match self.text {
            Text::Utf8 => return Ok(()),
            Text::Utf16 => {
                "the text keys of this filter are UTF-16: pass key.encode(\"utf-16-le\")"
            }
            Text::Refused => "a bitmap holds only integers, not text: pass int(key)",
        };
        Err(PyTypeError::new_err(problem))
    }

    /// Calls a function with the bytes of a key.
    #[inline]
    pub fn with<R>(
        &self,
        key: &Bound<'_, PyAny>,
        call: impl FnOnce(&[u8]) -> PyResult<R>,
    ) -> PyResult<R> {
        if let Ok(text) = key.cast_exact::<PyString>() {
            self.check_text()?;
            return call(utf8(text)?);
        }
        if let Ok(bytes) = key.cast_exact::<PyBytes>() {
            return call(bytes.as_bytes());
        }
        if let Some((bytes, width)) = self.plain_integer(key) {
            return call(&bytes[..width.bytes()]);
        }
        self.with_other(key, call)
    }

    /// The bytes of an int that fits without a sign: what most are. Of others, `other` tells.
    #[inline]
    pub fn plain_integer(&self, key: &Bound<'_, PyAny>) -> Option<([u8; 8], Width)> {
        let form = self.integers?;
        key.cast_exact::<PyInt>().ok()?;
        // SAFETY: the object is an int, and the thread is attached.
        let value = unsafe { ffi::PyLong_AsUnsignedLongLong(key.as_ptr()) };
        if value == u64::MAX {
            // Perhaps an error, which the next call finds again.
            drop(PyErr::take(key.py()));
            return None;
        }
        match form.width {
            Width::Four if value >= 1 << 32 => None,
            width => Some((form.arrange(value), width)),
        }
    }

    #[inline(never)]
    fn with_other<R>(
        &self,
        key: &Bound<'_, PyAny>,
        call: impl FnOnce(&[u8]) -> PyResult<R>,
    ) -> PyResult<R> {
        if let Ok(text) = key.cast::<PyString>() {
            self.check_text()?;
            return call(utf8(text)?);
        }
        if let Ok(bytes) = key.cast::<PyBytes>() {
            return call(bytes.as_bytes());
        }
        match self.other(key)? {
            Other::Integer(bytes, width) => call(&bytes[..width.bytes()]),
            Other::Bytes(bytes) => call(&bytes),
        }
    }

    /// The bytes of a key that is neither text nor bytes.
    pub fn other(&self, key: &Bound<'_, PyAny>) -> PyResult<Other> {
        // SAFETY: any object may be asked whether it is an integer.
        if unsafe { ffi::PyIndex_Check(key.as_ptr()) } != 0 && !key.is_instance_of::<PyBool>() {
            let form = self.form()?;
            let value = integer(key)?;
            let bytes = value.and_then(|value| form.encode(value)).ok_or_else(|| {
                let bits = form.width.bytes() * 8;
                PyOverflowError::new_err(format!(
                    "an integer key of this filter has {bits} bits, with or without a sign"
                ))
            })?;
            return Ok(Other::Integer(bytes, form.width));
        }
        if let Ok(buffer) = PyUntypedBuffer::get(key)
            && buffer.dimensions() == 1
            && buffer.item_size() == 1
        {
            return Ok(Other::Bytes(buffer.into_typed::<u8>()?.to_vec(key.py())?));
        }
        let name = key.get_type().name()?;
        Err(PyTypeError::new_err(format!("a key is str, bytes or int, not {name}")))
    }
}

/// A key that is neither text nor bytes.
pub enum Other {
    Integer([u8; 8], Width),
    /// Copied: the buffer may be changed by others.
    Bytes(Vec<u8>),
}

/// The value of an integer, if it has at most 64 bits with or without a sign.
fn integer(key: &Bound<'_, PyAny>) -> PyResult<Option<i128>> {
    match key.extract::<u64>() {
        Ok(value) => return Ok(Some(i128::from(value))),
        Err(error) if !error.is_instance_of::<PyOverflowError>(key.py()) => return Err(error),
        Err(_) => {}
    }
    match key.extract::<i64>() {
        Ok(value) => Ok(Some(i128::from(value))),
        Err(error) if error.is_instance_of::<PyOverflowError>(key.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The UTF-8 form of text: of ASCII its own memory; of other text a copy that Python keeps with it.
#[inline]
pub fn utf8<'a>(text: &'a Bound<'_, PyString>) -> PyResult<&'a [u8]> {
    let mut length = 0;
    // SAFETY: the object is a str, and the thread is attached.
    let bytes = unsafe { ffi::PyUnicode_AsUTF8AndSize(text.as_ptr(), &raw mut length) };
    if bytes.is_null() {
        return Err(PyErr::fetch(text.py())); // A lone surrogate, or no memory.
    }
    // SAFETY: Python gave so many bytes, which live and stay as they are as long as the object does.
    Ok(unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length as usize) })
}
