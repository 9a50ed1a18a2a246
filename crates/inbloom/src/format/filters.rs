//! Filters to bytes and back, as their own verbs.

use std::io::{self, Read, Write};

use crate::digest::Hasher;
use crate::error::Result;
use crate::filter::{Filter, View, check_hasher};
use crate::format;
use crate::kinds::blocked::SharedBlocked;

impl Filter {
    /// Writes the filter in the file format of docs/format.md. Shards are written one after the
    /// other, each as a whole file: [`Filter::read_shards_from`] reads them.
    ///
    /// # Errors
    ///
    /// Fails with [`crate::Error::Io`] if the writer fails.
    pub fn write_to(&self, mut writer: impl Write) -> Result<()> {
        self.shards().iter().try_for_each(|shard| format::write(shard, &mut writer))
    }

    /// Reads a filter that [`Filter::write_to`] has written, checks all of it, and leaves the reader
    /// just behind it. The filter can be changed.
    ///
    /// The bytes may be untrusted input. The call never panics, and uses memory only for bytes that
    /// have arrived. Limit their number with [`take`](Read::take). The check finds damage, but not
    /// forgery: anybody can compute the checksums, and a forged filter may report any key as
    /// present or absent.
    ///
    /// It reads inbloom's own format. [`OpenOptions`](crate::OpenOptions) and
    /// [`interop`](mod@crate::interop) read those of other programs.
    ///
    /// # Errors
    ///
    /// Fails if the reader fails, or the bytes are not a filter.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::fs::File;
    /// use std::io::{BufReader, Read};
    /// use inbloom::{BloomFilter, Filter};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("upload.ib");
    /// # BloomFilter::new(1000, 0.01).save(&path)?;
    /// let limit = 1 << 20; // bytes that a filter may have
    /// let uploaded = Filter::read_from(BufReader::new(File::open(&path).unwrap().take(limit)))?;
    /// assert!(!uploaded.contains("alice"));
    /// assert!(Filter::read_from(File::open(&path).unwrap().take(1000)).is_err()); // cut short
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn read_from(reader: impl Read) -> Result<Filter> {
        format::read(reader, None)
    }

    /// Reads a filter in shards that [`Filter::write_to`] has written: the number of files that the
    /// first one gives, one after the other. [`Filter::read_from`] reads one file, and of a shard
    /// this shard alone.
    ///
    /// # Errors
    ///
    /// Fails as [`Filter::read_from`] and [`Filter::from_shards`] do.
    pub fn read_shards_from(reader: impl Read) -> Result<Filter> {
        format::read_shards(reader, None)
    }

    /// Uses a filter in the bytes that it was written to, without copying them. A database can keep
    /// a filter with every block in this way.
    ///
    /// It takes the same time at any size. The header is checked, the payload is not
    /// ([`Filter::read_from`] does that). The bytes may be at any alignment.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a filter.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::{Filter, Kind, Plan};
    ///
    /// let mut filter = Filter::new(Plan::builder(Kind::Blocked).items(100).build()?)?;
    /// filter.insert("alice")?;
    /// let mut bytes = Vec::new();
    /// filter.write_to(&mut bytes)?;
    ///
    /// let view = Filter::view(&bytes)?;
    /// assert!(view.contains("alice"));
    /// assert!(!view.contains("bob"));
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn view(bytes: &[u8]) -> Result<View<'_>> {
        format::view(bytes, None)
    }
}

impl SharedBlocked {
    /// Writes it in the file format of docs/format.md while others insert, with the hash and the
    /// count that [`SharedBlocked::snapshot`] takes, as [`SharedBlocked::copy_to`] copies: without
    /// a second copy, 1 MiB at a time.
    ///
    /// `put` is given bytes and where in the file they belong: the file from its beginning to its
    /// end, then the header once more, since that has a checksum of all that follows. Until then
    /// there are zeros in its place, and nobody takes the file for a filter.
    ///
    /// ```
    /// use inbloom::internals::kinds::blocked::{Shape, SharedBlocked};
    /// use inbloom::{Filter, Hasher, Kind, Plan};
    ///
    /// let shape = Shape::new(Plan::builder(Kind::Blocked).items(100).build()?)?;
    /// let shared = SharedBlocked::new(&shape)?;
    /// shared.insert(Hasher::default().digest("alice"));
    /// let mut file = Vec::new();
    /// shared.write_in_pieces(Hasher::default(), 1, |at, bytes| {
    ///     file.resize(file.len().max(at as usize + bytes.len()), 0);
    ///     file[at as usize..][..bytes.len()].copy_from_slice(bytes);
    ///     Ok(())
    /// })?;
    /// assert!(Filter::read_from(&file[..])?.contains("alice"));
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    pub fn write_in_pieces(
        &self,
        hasher: Hasher,
        inserted: u64,
        put: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<()> {
        check_hasher(self.plan(), &hasher)?;
        let copy = |at, out: &mut [u8]| self.copy_to(at, out);
        format::write_in_pieces(*self.plan(), &hasher, inserted, copy, put)
    }
}
