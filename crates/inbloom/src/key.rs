//! What can be a key: bytes, text, and integers.

use alloc::borrow::{Cow, ToOwned};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A value whose bytes are a key.
///
/// Bytes and text are keys as they are. An integer of up to 64 bits is hashed as the 8
/// little-endian bytes of its value, so its type does not matter:
///
/// ```
/// use inbloom::Hasher;
///
/// let hasher = Hasher::default();
/// assert_eq!(hasher.digest("alice"), hasher.digest(vec![b'a', b'l', b'i', b'c', b'e']));
/// assert_eq!(hasher.digest(42u64), hasher.digest(42i32));
/// assert_eq!(hasher.digest(42u64), hasher.digest(42u64.to_le_bytes()));
/// assert_ne!(hasher.digest(42u64), hasher.digest("42"));
/// ```
///
/// `u128` and `i128` do not implement this trait, because their 16 bytes would make `42u128`
/// another key than `42u64`. Pass `value.to_le_bytes()`. The same holds for `char`, `bool` and
/// floating-point numbers, which have several byte forms in use.
///
/// # Implement it for your own type
///
/// ```
/// use inbloom::{AsKey, Hasher};
///
/// struct UserId(u64);
///
/// impl AsKey for UserId {
///     fn as_key(&self) -> impl AsRef<[u8]> {
///         self.0.to_le_bytes()
///     }
/// }
///
/// let hasher = Hasher::default();
/// assert_eq!(hasher.digest(UserId(7)), hasher.digest(7u64));
/// ```
///
/// A key of several parts must include the length of each part that varies. Otherwise `("ab", "c")`
/// and `("a", "bc")` are the same key:
///
/// ```
/// # use inbloom::{AsKey, Hasher};
/// struct Visit {
///     user: String,
///     page: String,
/// }
///
/// impl AsKey for Visit {
///     fn as_key(&self) -> impl AsRef<[u8]> {
///         let length = self.user.len() as u64;
///         [&length.to_le_bytes(), self.user.as_bytes(), self.page.as_bytes()].concat()
///     }
/// }
///
/// # let visit = |user: &str, page: &str| Visit { user: user.to_owned(), page: page.to_owned() };
/// let hasher = Hasher::default();
/// assert_ne!(hasher.digest(visit("ab", "c")), hasher.digest(visit("a", "bc")));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key",
    note = "keys are bytes, text, integers up to 64 bits, and references to them; of another type, \
            pass its bytes or implement `AsKey`"
)]
pub trait AsKey {
    /// Returns the bytes of the key, borrowed from the value or as an array.
    fn as_key(&self) -> impl AsRef<[u8]>;

    /// Returns the bytes of the key if the value holds them already, and `None` if they must be
    /// computed. Batches use it only to prefetch the memory of keys: [`as_key`](AsKey::as_key) is
    /// still called once for each key.
    #[inline]
    fn held_bytes(&self) -> Option<&[u8]> {
        None
    }
}

impl AsKey for [u8] {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        self
    }

    #[inline]
    fn held_bytes(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl<const N: usize> AsKey for [u8; N] {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        self
    }

    #[inline]
    fn held_bytes(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl AsKey for Vec<u8> {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        self
    }

    #[inline]
    fn held_bytes(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl AsKey for str {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        self
    }

    #[inline]
    fn held_bytes(&self) -> Option<&[u8]> {
        Some(self.as_bytes())
    }
}

impl AsKey for String {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        self
    }

    #[inline]
    fn held_bytes(&self) -> Option<&[u8]> {
        Some(self.as_bytes())
    }
}

impl<K: AsKey + ?Sized> AsKey for &K {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        (**self).as_key()
    }

    #[inline]
    fn held_bytes(&self) -> Option<&[u8]> {
        (**self).held_bytes()
    }
}

impl<K: AsKey + ?Sized> AsKey for &mut K {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        (**self).as_key()
    }

    #[inline]
    fn held_bytes(&self) -> Option<&[u8]> {
        (**self).held_bytes()
    }
}

impl<K: AsKey + ?Sized> AsKey for Box<K> {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        (**self).as_key()
    }

    #[inline]
    fn held_bytes(&self) -> Option<&[u8]> {
        (**self).held_bytes()
    }
}

impl<K: AsKey + ?Sized> AsKey for Rc<K> {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        (**self).as_key()
    }

    #[inline]
    fn held_bytes(&self) -> Option<&[u8]> {
        (**self).held_bytes()
    }
}

impl<K: AsKey + ?Sized> AsKey for Arc<K> {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        (**self).as_key()
    }

    #[inline]
    fn held_bytes(&self) -> Option<&[u8]> {
        (**self).held_bytes()
    }
}

impl<K: AsKey + ToOwned + ?Sized> AsKey for Cow<'_, K> {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        (**self).as_key()
    }

    #[inline]
    fn held_bytes(&self) -> Option<&[u8]> {
        (**self).held_bytes()
    }
}

impl AsKey for u64 {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        self.to_le_bytes()
    }
}

/// Sign-extended: `-1i8` and `-1i64` are one key.
impl AsKey for i64 {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        self.to_le_bytes()
    }
}

impl AsKey for u8 {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        u64::from(*self).to_le_bytes()
    }
}

impl AsKey for u16 {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        u64::from(*self).to_le_bytes()
    }
}

impl AsKey for u32 {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        u64::from(*self).to_le_bytes()
    }
}

impl AsKey for usize {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        (*self as u64).to_le_bytes()
    }
}

impl AsKey for i8 {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        i64::from(*self).to_le_bytes()
    }
}

impl AsKey for i16 {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        i64::from(*self).to_le_bytes()
    }
}

impl AsKey for i32 {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        i64::from(*self).to_le_bytes()
    }
}

impl AsKey for isize {
    #[inline]
    fn as_key(&self) -> impl AsRef<[u8]> {
        (*self as i64).to_le_bytes()
    }
}

#[cfg(test)]
#[expect(clippy::needless_borrows_for_generic_args, reason = "that references are keys is tested")]
mod tests {
    use super::*;

    #[test]
    fn held_bytes_are_the_key() {
        fn is_held(key: impl AsKey) -> bool {
            key.held_bytes().is_some_and(|held| held == key.as_key().as_ref())
        }
        let text = "alice".to_owned();
        assert!(is_held("alice") && is_held(&text) && is_held(&&text) && is_held(text.clone()));
        assert!(is_held(b"alice") && is_held(b"alice".to_vec()) && is_held(&b"alice"[..]));
        assert!(is_held(Box::<str>::from("alice")) && is_held(Rc::<str>::from("alice")));
        assert!(is_held(Arc::<str>::from("alice")) && is_held(Cow::Borrowed("alice")));
        assert!(!is_held(7_u64) && !is_held(&7_i32));
    }

    fn bytes(key: impl AsKey) -> Vec<u8> {
        key.as_key().as_ref().to_vec()
    }

    #[test]
    fn text_and_bytes_are_one_key_however_they_are_held() {
        let text = "al\u{ef}ce";
        let expected = text.as_bytes();
        assert_eq!(bytes(text), expected);
        assert_eq!(bytes(String::from(text)), expected);
        assert_eq!(bytes(&&String::from(text)), expected);
        assert_eq!(bytes(&mut String::from(text)), expected);
        assert_eq!(bytes(Box::<str>::from(text)), expected);
        assert_eq!(bytes(Rc::<str>::from(text)), expected);
        assert_eq!(bytes(Arc::<str>::from(text)), expected);
        assert_eq!(bytes(Cow::Borrowed(text)), expected);
        assert_eq!(bytes(Cow::<str>::Owned(text.to_owned())), expected);
        assert_eq!(bytes(expected), expected);
        assert_eq!(bytes(expected.to_vec()), expected);
        assert_eq!(bytes(Box::<[u8]>::from(expected)), expected);
        assert_eq!(bytes(Rc::<[u8]>::from(expected)), expected);
        assert_eq!(bytes(Arc::new(expected.to_vec())), expected);
        assert_eq!(bytes(Cow::Borrowed(expected)), expected);
        assert_eq!(bytes(*b"alice"), b"alice");
        assert_eq!(bytes(b"alice"), b"alice");
        assert_eq!(bytes(""), b"");
    }

    #[test]
    fn integers_of_one_value_are_one_key() {
        let expected = 42u64.to_le_bytes();
        for key in [bytes(42u8), bytes(42u16), bytes(42u32), bytes(42u64), bytes(42usize)] {
            assert_eq!(key, expected);
        }
        for key in [bytes(42i8), bytes(42i16), bytes(42i32), bytes(42i64), bytes(42isize)] {
            assert_eq!(key, expected);
        }
        let negative = (-42i64).to_le_bytes();
        for key in [bytes(-42i8), bytes(-42i16), bytes(-42), bytes(-42i64), bytes(-42isize)] {
            assert_eq!(key, negative);
        }
        assert_eq!(bytes(u64::MAX), bytes(-1));
        assert_eq!(bytes(&42), expected);
        assert_eq!(bytes(Box::new(42u32)), expected);
    }
}
