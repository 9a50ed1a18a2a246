//! The integers of a sparse bitmap: a roaring treemap, or nothing without the feature `sparse-bitmap`.

#[cfg(not(feature = "sparse-bitmap"))]
pub(crate) use left_out::Sparse;
#[cfg(feature = "sparse-bitmap")]
pub(crate) use roaring_treemap::Sparse;

#[cfg(feature = "sparse-bitmap")]
mod roaring_treemap {
    use core::fmt::Display;

    use roaring::RoaringTreemap;

    use crate::error::Result;
    use crate::error::mismatch;

    /// Integers, of which few are near each other.
    #[derive(Clone, PartialEq)]
    pub(crate) struct Sparse(RoaringTreemap);

    impl Sparse {
        pub(crate) fn new() -> Result<Sparse> {
            Ok(Sparse(RoaringTreemap::new()))
        }

        /// Reads the portable format, from untrusted input: checks that all members are below `universe`,
        /// and that nothing but padding to a whole word follows.
        pub(crate) fn read(mut bytes: &[u8], universe: u64) -> Result<Sparse> {
            let wrong = |how: &dyn Display| mismatch("payload", "a roaring bitmap", how);
            let treemap =
                RoaringTreemap::deserialize_from(&mut bytes).map_err(|error| wrong(&error))?;
            if !bytes.iter().all(|byte| *byte == 0) || bytes.len() >= 8 {
                return Err(wrong(&"bytes after the end of the roaring bitmap"));
            }
            if treemap.max().is_some_and(|max| max >= universe) {
                return Err(wrong(&"a member outside the universe"));
            }
            Ok(Sparse(treemap))
        }

        /// Writes the portable format, padded to whole words.
        pub(crate) fn write(&self) -> Vec<u8> {
            let mut bytes = Vec::with_capacity(self.0.serialized_size().next_multiple_of(8));
            self.0.serialize_into(&mut bytes).expect("a Vec takes every byte");
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            bytes
        }

        pub(crate) fn contains(&self, value: u64) -> bool {
            self.0.contains(value)
        }

        pub(crate) fn insert(&mut self, value: u64) -> bool {
            self.0.insert(value)
        }

        pub(crate) fn remove(&mut self, value: u64) -> bool {
            self.0.remove(value)
        }

        pub(crate) fn len(&self) -> u64 {
            self.0.len()
        }

        /// Returns the number of members below a value.
        pub(crate) fn below(&self, value: u64) -> u64 {
            value.checked_sub(1).map_or(0, |last| self.0.rank(last))
        }

        pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
            self.0.iter()
        }

        pub(crate) fn clear(&mut self) {
            self.0.clear();
        }

        pub(crate) fn unite(&mut self, other: &Sparse) {
            self.0 |= &other.0;
        }

        pub(crate) fn intersect(&mut self, other: &Sparse) {
            self.0 &= &other.0;
        }
    }
}

#[cfg(not(feature = "sparse-bitmap"))]
mod left_out {
    use alloc::vec::Vec;

    use crate::error::{Error, Result};

    /// There is none.
    #[derive(Clone, PartialEq)]
    pub(crate) enum Sparse {}

    const LEFT_OUT: Error = Error::LeftOut { what: "sparse bitmaps", feature: "sparse-bitmap" };

    impl Sparse {
        pub(crate) fn new() -> Result<Sparse> {
            Err(LEFT_OUT)
        }

        pub(crate) fn read(_bytes: &[u8], _universe: u64) -> Result<Sparse> {
            Err(LEFT_OUT)
        }

        pub(crate) fn write(&self) -> Vec<u8> {
            match *self {}
        }

        pub(crate) fn contains(&self, _value: u64) -> bool {
            match *self {}
        }

        pub(crate) fn insert(&mut self, _value: u64) -> bool {
            match *self {}
        }

        pub(crate) fn remove(&mut self, _value: u64) -> bool {
            match *self {}
        }

        pub(crate) fn len(&self) -> u64 {
            match *self {}
        }

        pub(crate) fn below(&self, _value: u64) -> u64 {
            match *self {}
        }

        pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
            core::iter::empty()
        }

        pub(crate) fn clear(&mut self) {
            match *self {}
        }

        pub(crate) fn unite(&mut self, _other: &Sparse) {
            match *self {}
        }

        pub(crate) fn intersect(&mut self, _other: &Sparse) {
            match *self {}
        }
    }
}
