//! Compressed files. They need the feature `file`, as its dependencies are.

use std::io::{Read, Write};

use crate::error::Result;

/// The first bytes of a gzip stream.
pub(super) const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The bytes as they come out of the stream.
#[cfg(feature = "file")]
pub(super) fn reader(bytes: &[u8]) -> Result<impl Read> {
    Ok(flate2::read::GzDecoder::new(bytes))
}

/// Compresses what `write` writes.
#[cfg(feature = "file")]
pub(super) fn compressed(
    writer: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let mut encoder = flate2::write::GzEncoder::new(writer, flate2::Compression::default());
    write(&mut encoder)?;
    encoder.finish().map(drop).map_err(super::write_failed)
}

#[cfg(not(feature = "file"))]
const LEFT_OUT: crate::error::Error =
    crate::error::Error::LeftOut { what: "gzip", feature: "file" };

#[cfg(not(feature = "file"))]
pub(super) fn reader(_bytes: &[u8]) -> Result<std::io::Empty> {
    Err(LEFT_OUT)
}

#[cfg(not(feature = "file"))]
pub(super) fn compressed(
    _writer: &mut dyn Write,
    _write: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    Err(LEFT_OUT)
}
