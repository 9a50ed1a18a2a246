//! Fields of bytes, little-endian: what files, dumps and logs are made of.
//!
//! The bytes may be anybody's. Each call takes a field off the front, or returns None and takes nothing if
//! too few bytes are left; the caller knows what the field was, and says so in its error. Nothing is
//! allocated: lengths are compared with the bytes that are there.

use alloc::vec::Vec;

/// What is left of some bytes.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a>(pub &'a [u8]);

impl<'a> Decoder<'a> {
    /// Takes so many bytes.
    pub fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes all that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }

    /// Takes as many bytes as the array has.
    #[inline]
    pub fn array<const LENGTH: usize>(&mut self) -> Option<[u8; LENGTH]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// Takes a byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// Takes a number of two bytes.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Takes a number of four bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Takes a number of eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes a number of sixteen bytes.
    #[inline]
    pub fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    /// Takes a floating-point number of eight bytes.
    #[inline]
    pub fn f64(&mut self) -> Option<f64> {
        self.array().map(f64::from_le_bytes)
    }

    /// Takes a number as [`put_varint`] writes it; None also for one above `u64::MAX`.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let before = self.0;
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let Some(byte) = self.u8() else { break };
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        self.0 = before;
        None
    }

    /// Takes bytes as [`put_bytes`] writes them.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let before = self.0;
        let taken = self.varint().and_then(|count| self.take(count));
        if taken.is_none() {
            self.0 = before;
        }
        taken
    }

    /// Takes a time as [`put_time`] writes it.
    pub fn time(&mut self) -> Option<Option<u64>> {
        self.varint().map(|number| number.checked_sub(1))
    }
}

/// Returns the number of eight bytes at an offset.
#[inline]
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Decoder(bytes.get(at..)?).u64()
}

/// Appends a number in groups of seven bits, the lowest first; all but the last have their top bit set.
pub fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends bytes and, before them, how many.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a time that may be none.
pub fn put_time(out: &mut Vec<u8>, time: Option<u64>) {
    put_varint(out, time.map_or(0, |time| time.saturating_add(1)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_taken_again() {
        let mut random = inbloom_testing::Random(1);
        for _ in 0..10_000 {
            let shift = random.below(64);
            let (number, time) = (random.next() >> shift, random.next() >> shift);
            let text = random.next().to_le_bytes();
            let mut out = Vec::new();
            put_varint(&mut out, number);
            put_bytes(&mut out, &text[..random.index(9)]);
            put_time(&mut out, random.one_in(2).then_some(time));
            out.extend(number.to_le_bytes());
            let mut fields = Decoder(&out);
            assert_eq!(fields.varint(), Some(number));
            assert!(text.starts_with(fields.bytes().unwrap()));
            assert!(fields.time().unwrap().is_none_or(|taken| taken == time));
            assert_eq!((fields.u64(), fields.0), (Some(number), &[][..]));
        }
    }

    #[test]
    fn too_few_bytes_are_no_field_and_none_is_taken() {
        let bytes = [0x80; 7];
        let mut fields = Decoder(&bytes);
        assert_eq!((fields.u64(), fields.u128(), fields.f64()), (None, None, None));
        assert_eq!((fields.varint(), fields.bytes(), fields.time()), (None, None, None));
        assert_eq!((fields.take(8), fields.take(u64::MAX)), (None, None));
        assert_eq!(Decoder(&[9, 1]).bytes(), None);
        assert_eq!(
            (fields.u16(), fields.u32(), fields.u8()),
            (Some(0x8080), Some(0x8080_8080), Some(0x80))
        );
        assert_eq!(
            (fields.u8(), fields.rest(), u64_at(&[0; 9], 2), u64_at(&[0; 9], 10)),
            (None, &[][..], None, None)
        );
        assert_eq!(u64_at(&[9, 1, 0, 0, 0, 0, 0, 0, 0], 1), Some(1));
    }

    #[test]
    fn a_number_above_64_bits_is_refused() {
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(Decoder(&most).varint(), Some(u64::MAX));
        let more = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert_eq!(Decoder(&more).varint(), None);
        assert_eq!(Decoder(&[0x80; 11]).varint(), None);
    }
}
