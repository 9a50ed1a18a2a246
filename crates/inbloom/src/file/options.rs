//! The options for opening a filter from a file, a reader or bytes.

use std::io::{self, BufReader, Read};
use std::path::Path;

use super::{Watch, all_shards, foreign_format, map, open_file, privately, shards_of, stem_of};
use crate::bloom::BloomFilter;
use crate::digest::SecretKey;
use crate::error::{Error, Result};
use crate::filter::{Filter, View};
use crate::foreign::Container;
use crate::format;
use crate::storage::Cells;

/// Options for opening a saved filter: to query or to change it, with a secret key, with or without
/// a check of every byte.
///
/// [`Filter::open`], [`Filter::read_from`] and [`Filter::view`] are the short forms for a filter
/// without a secret key. `open` and `view` are read-only. What `read_from` reads can be changed.
///
/// ```
/// use inbloom::{Filter, Hasher, Kind, OpenOptions, Plan, SecretKey};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("seen.ib");
/// let secret = SecretKey::new([7; 16]);
/// let plan = Plan::builder(Kind::Blocked).items(1000).build()?;
/// let mut filter = Filter::with_hasher(plan, Hasher::sip13(secret))?;
/// filter.insert("alice")?;
/// filter.save(&path)?;
///
/// let mut filter = OpenOptions::new().secret(&secret).writable(true).verify(true).open(&path)?;
/// assert!(!filter.insert("alice")?);
/// assert!(Filter::open(&path).is_err()); // not without its key
/// # Ok::<(), inbloom::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    secret: Option<SecretKey>,
    writable: bool,
    verify: bool,
    format: Option<Container>,
}

impl OpenOptions {
    /// Returns the options of [`Filter::open`]: no secret key, read-only, and only the header is
    /// checked.
    #[must_use]
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Sets the secret key under which the filter's keys were hashed: `&key`, or an `Option` of it.
    #[must_use]
    pub fn secret<'a>(self, key: impl Into<Option<&'a SecretKey>>) -> OpenOptions {
        OpenOptions { secret: key.into().copied(), ..self }
    }

    /// Sets whether the filter can be changed. The file is then mapped privately: changed pages are
    /// copied, and the file stays as it is until [`Filter::save`] replaces it.
    #[must_use]
    pub fn writable(self, writable: bool) -> OpenOptions {
        OpenOptions { writable, ..self }
    }

    /// Sets whether every byte is checked first, as [`verify`](super::verify) does. That reads the
    /// whole file.
    #[must_use]
    pub fn verify(self, verify: bool) -> OpenOptions {
        OpenOptions { verify, ..self }
    }

    /// Sets the format of another program, for files that do not show their format: see
    /// [`interop`](crate::interop). Without it, formats are recognized by their content, and bytes
    /// of several possible formats are refused.
    ///
    /// # Examples
    ///
    /// ```
    /// use inbloom::{Filter, OpenOptions};
    /// use inbloom::interop::Format;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("seen.guava");
    /// let guava: Format = "guava".parse()?;
    /// let mut filter = Filter::for_format(guava.into(), 1000, 0.01)?;
    /// filter.insert("alice")?;
    /// filter.save(&path)?; // What Guava's BloomFilter.readFrom reads.
    ///
    /// assert!(Filter::open(&path)?.contains("alice")); // recognized
    /// assert!(OpenOptions::new().format(guava).open(&path)?.contains("alice"));
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    #[must_use]
    pub fn format(self, format: impl Into<Container>) -> OpenOptions {
        OpenOptions { format: Some(format.into()), ..self }
    }

    /// Opens a file.
    ///
    /// The file is mapped, not read. Opening therefore takes the same time for any size, and
    /// processes that open one file share one copy of it in memory. The file may be larger than
    /// memory: batches of queries request the pages that they will touch, see
    /// [`Filter::set_paging`] and [`Filter::sweep_digests`]. In a ribbon file, opening reads the
    /// index, a thousandth of the file, so a lookup waits for at most one page. The added and
    /// excluded keys of an overlay are only mapped, so a lookup may wait for their pages too.
    ///
    /// A sparse bitmap, a filter of another program, and a filter from a pipe are read into memory
    /// instead, and can be changed there.
    ///
    /// If the file does not exist, but files of its shards do, as [`Filter::save`] names them, they
    /// are opened together as one filter: `seen.ib` or `seen` stands for `seen.000-of-016.ib` and
    /// so on.
    ///
    /// ```
    /// use inbloom::{Filter, Kind, Plan, file};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("seen");
    /// let plan = Plan::builder(Kind::Blocked).items(1000).build()?;
    /// let mut seen = Filter::sharded(plan, 16)?;
    /// seen.insert("alice")?;
    /// seen.save(&path)?;
    /// assert!(Filter::open(&path)?.contains("alice"));
    ///
    /// // Each shard is a filter of its own.
    /// let shard = Filter::open(file::shard_path(&path, seen.shard_of("alice"), 16))?;
    /// assert!(shard.contains("alice"));
    /// # Ok::<(), inbloom::Error>(())
    /// ```
    ///
    /// A file of another program may hold several filters: an RDB file one for each key, a Parquet
    /// file one for each column and row group. `dump.rdb#seen` is the filter of the key `seen`, and
    /// `part.parquet#id/3` that of column `id` in row group 3. Such a filter is read-only, and
    /// [`Filter::save`] writes it alone.
    ///
    /// Do not overwrite or truncate the file in place while it is open. Replace it, as
    /// [`Filter::save`] does: an open filter then continues with the old file. If another program
    /// truncates it, the next query of a missing page ends the process by SIGBUS. Where that may
    /// happen, use [`OpenOptions::open_watched`] (on Linux), or read the file into memory by
    /// [`OpenOptions::read_from`].
    ///
    /// # Untrusted files
    ///
    /// Opening and using a damaged or forged file never panics and reads no memory outside of it,
    /// with and without [`OpenOptions::verify`]. Without it, though, the results may be wrong: a
    /// member can be absent. The check finds damage, but not forgery, because anybody can compute
    /// the checksums. A compressed file of another program takes more memory than its length. For
    /// files of unknown origin, limit the size, and read them into memory, where nobody can change
    /// them any more: see [`Filter::read_from`].
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is not a filter, is damaged where it was checked, or needs
    /// another secret key.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Filter> {
        let path = path.as_ref();
        let opened = self.open_file(path);
        let is_missing = |error: &Error| match error {
            Error::Io { cause, .. } => cause.kind() == io::ErrorKind::NotFound,
            _ => false,
        };
        if !opened.as_ref().is_err_and(is_missing) {
            return opened;
        }
        if let Some((file, part)) = split_part(path) {
            return self.open_part(file, part);
        }
        let stem = stem_of(path);
        match shards_of(&stem) {
            Ok(found) if !found.is_empty() => {
                let paths = all_shards(&stem, found)?;
                let shards = paths.iter().map(|path| self.open_file(path));
                Filter::from_shards(shards.collect::<Result<_>>()?)
            }
            _ => opened,
        }
    }

    /// Opens one filter of a file that holds several, as [`OpenOptions::open`] does for
    /// `FILE#NAME`. It is read-only.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Part`] if the file has no such filter, and otherwise as
    /// [`OpenOptions::open`] does.
    pub fn open_part(self, path: impl AsRef<Path>, part: &str) -> Result<Filter> {
        let path = path.as_ref();
        let missing = || Error::Part { part: part.to_owned(), names: Vec::new() };
        let map = map(&open_file(path)?, path)?.ok_or_else(missing)?;
        self.container_of(&map)?.ok_or_else(missing)?.read_part(&map, part)
    }

    /// Opens this one file, as [`OpenOptions::open`] does, and never shards in its place. Use it
    /// for a file that your program has written.
    ///
    /// # Errors
    ///
    /// Fails as [`OpenOptions::open`] does, and with [`Error::Io`] if there is no such file.
    pub fn open_file(self, path: impl AsRef<Path>) -> Result<Filter> {
        let path = path.as_ref();
        let file = open_file(path)?;
        // A pipe or an empty file cannot be mapped, but can be read.
        let Some(map) = map(&file, path)? else { return self.read_from(BufReader::new(file)) };
        if let Some(container) = self.container_of(&map)? {
            return container.read(&map);
        }
        if self.verify {
            format::verify(&map)?;
        }
        let parsed = format::parse(&map)?;
        let (offset, length) = parsed.payload;
        let cells = match self.writable {
            false => Cells::mapped(map, offset, length),
            true => privately(&file, path, &parsed, map.len())?,
        };
        parsed.into_filter(cells, self.secret.as_ref())
    }

    /// Returns the format of another program, if these bytes are in one.
    fn container_of(self, bytes: &[u8]) -> Result<Option<Container>> {
        match self.format {
            Some(container) => Ok(Some(container)),
            None => foreign_format(bytes),
        }
    }

    /// Opens a file to query it while other programs may write to it: see [`Watch::is_intact`].
    ///
    /// After the first call, this process handles SIGBUS for such files. Other faults go to the
    /// earlier handler.
    ///
    /// The watch is `None` if the file cannot be mapped. The filter is then in memory. A mapped
    /// filter is read-only, whatever the options are.
    ///
    /// # Errors
    ///
    /// Fails as [`OpenOptions::open`] does.
    pub fn open_watched(self, path: impl AsRef<Path>) -> Result<(Filter, Option<Watch>)> {
        let path = path.as_ref();
        let file = open_file(path)?;
        let Some(map) = map(&file, path)? else {
            return Ok((self.read_from(BufReader::new(file))?, None));
        };
        if let Some(container) = self.container_of(&map)? {
            return Ok((container.read(&map)?, None));
        }
        // After the map, which is of the length that is read then.
        let watch = Watch::new(file, &map);
        if self.verify {
            format::verify(&map)?;
        }
        let parsed = format::parse(&map)?;
        let (offset, length) = parsed.payload;
        let cells = Cells::mapped(map, offset, length);
        Ok((parsed.into_filter(cells, self.secret.as_ref())?, Some(watch)))
    }

    /// Reads a filter that [`Filter::write_to`] has written, and leaves the reader just behind it.
    /// The call checks every byte, and the filter is writable, whatever the options are.
    ///
    /// The bytes may be untrusted input: see [`Filter::read_from`].
    ///
    /// # Errors
    ///
    /// Fails if the reader fails, or the bytes are not a filter.
    pub fn read_from(self, reader: impl Read) -> Result<Filter> {
        format::read(reader, self.secret.as_ref())
    }

    /// Reads a filter in shards that [`Filter::write_to`] has written, one file after the other.
    /// The first file gives their number. Each is read as [`OpenOptions::read_from`] does.
    ///
    /// # Errors
    ///
    /// Fails as [`OpenOptions::read_from`] and [`Filter::from_shards`] do.
    pub fn read_shards_from(self, reader: impl Read) -> Result<Filter> {
        format::read_shards(reader, self.secret.as_ref())
    }

    /// Uses a filter in the bytes that it was written to, without copying them: see
    /// [`Filter::view`]. It is read-only, whatever the options are.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a filter.
    pub fn view(self, bytes: &[u8]) -> Result<View<'_>> {
        if self.verify {
            format::verify(bytes)?;
        }
        format::view(bytes, self.secret.as_ref())
    }
}

/// Returns the file and the name of a filter in it, for a path such as `dump.rdb#seen` that is not
/// itself a file: see [`OpenOptions::open`]. The name begins behind the first `#` that follows the
/// path of an existing file.
#[must_use]
pub fn split_part(path: &Path) -> Option<(&Path, &str)> {
    if path.exists() {
        return None;
    }
    let text = path.to_str()?;
    let mut cuts = text.match_indices('#').map(|(at, _)| (Path::new(&text[..at]), &text[at + 1..]));
    cuts.find(|(file, part)| !part.is_empty() && file.is_file())
}

impl BloomFilter {
    /// Opens a file that [`BloomFilter::save`] has written. The file is mapped: only pages that are
    /// used are read, and pages that inserts change are copied. The file itself changes only when
    /// the filter is saved. Unlike [`Filter::open`], which is read-only, the filter takes inserts.
    ///
    /// The call checks the header and not the bits, because that would read the whole file. In a
    /// damaged file, inserted keys may be reported as absent. [`file::verify`](crate::file::verify)
    /// checks every byte, and so does [`OpenOptions::verify`] with [`BloomFilter::from_filter`].
    ///
    /// If another program truncates the file while it is open, the next access to a missing page
    /// ends the process by SIGBUS. Where that may happen, read the file into memory, as also for
    /// [untrusted files](Filter::read_from): `BloomFilter::from_filter(Filter::read_from(file)?)`.
    /// [`OpenOptions::open_watched`] detects it, for a [`Filter`] that is only queried.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is not a filter, or is a filter of another kind.
    pub fn open(path: impl AsRef<Path>) -> Result<BloomFilter> {
        BloomFilter::from_filter(OpenOptions::new().writable(true).open_file(path)?)
    }
}
