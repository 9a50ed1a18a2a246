//! The compression of strings in Redis: LZF, by Marc Lehmann. Only to read.
//!
//! A stream of two things, which differ in their first byte c:
//!
//!   c < 32    c + 1 bytes follow, to be taken as they are
//!   c >= 32   repeat what was written before: c / 32 + 2 bytes, or if c / 32 is 7 as many more as
//!             the next byte says, from 1 + (c % 32) * 256 + (the byte after that) bytes back

use crate::codec::Decoder;

/// Three bytes give at most 264: no stream is longer than this many times its compressed bytes.
pub(super) const MOST: u64 = 88;

/// Fills `out` with what the stream says. False if the stream says anything else than exactly that.
#[must_use]
pub(super) fn decompress(stream: &[u8], out: &mut [u8]) -> bool {
    fill(Decoder(stream), out).is_some()
}

fn fill(mut stream: Decoder<'_>, out: &mut [u8]) -> Option<()> {
    let mut end = 0;
    while let Some(control) = stream.u8() {
        if control < 32 {
            let bytes = stream.take(u64::from(control) + 1)?;
            out.get_mut(end..end + bytes.len())?.copy_from_slice(bytes);
            end += bytes.len();
        } else {
            let mut length = usize::from(control >> 5) + 2;
            if length == 9 {
                length += usize::from(stream.u8()?);
            }
            let back = usize::from(control & 31) << 8 | usize::from(stream.u8()?);
            let start = end.checked_sub(back + 1)?;
            if end + length > out.len() {
                return None;
            }
            // Byte by byte: a repetition may repeat itself.
            for at in 0..length {
                out[end + at] = out[start + at];
            }
            end += length;
        }
    }
    (end == out.len()).then_some(())
}
