//! What filters of other programs add: their hashes and their file formats.
//!
//! Each [`ForeignHash`] and each [`Format`] is declared in the folder of its format, under
//! `interop/`. The lower layers use only the types that are declared here.

use core::fmt;

use crate::digest::Digest;
use crate::kind::Kind;

/// A hash of another program.
pub(crate) struct ForeignHash {
    /// The number is on disk: it is never reused.
    pub id: u16,
    /// The name that `info` prints.
    pub name: &'static str,
    /// Whether a filter may choose its seed. The seed of the others is 0.
    pub seeded: bool,
    /// The kinds of filter that use this hash.
    pub kinds: &'static [Kind],
    pub function: Function,
    /// Hashes eight keys at once into their digests. Returns false if it cannot.
    pub eight: Option<EightAtOnce>,
}

pub(crate) type EightAtOnce = fn(&[&[u8]; 8], u64, &mut [Digest]) -> bool;

/// Makes the digests of a key under a seed.
pub(crate) enum Function {
    One(fn(&[u8], u64) -> Digest),
    /// For a hash of 256 bits.
    Two(fn(&[u8], u64) -> [Digest; 2]),
}

impl fmt::Debug for ForeignHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for ForeignHash {
    fn eq(&self, other: &ForeignHash) -> bool {
        self.id == other.id
    }
}

impl Eq for ForeignHash {}

/// A file format of another program: see [`interop`](crate::interop).
///
/// ```
/// use inbloom::interop::Format;
///
/// let guava: Format = "guava".parse()?;
/// assert!(guava.can_build() && !guava.records_plan());
/// let names: Vec<&str> = Format::all().map(Format::name).collect();
/// assert!(names.contains(&"guava") && names.contains(&"redisbloom"));
/// # Ok::<(), inbloom::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Format(pub(crate) &'static str);

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A [`Format`] with its variants: how [`Filter::save`](crate::Filter::save) writes a filter, and
/// how [`OpenOptions::format`](crate::OpenOptions::format) reads one. [`Container::new`] has an
/// example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Container {
    pub(crate) format: Format,
    /// A bit for each variant that is chosen, in the order of the format's list.
    pub(crate) variants: u32,
}
