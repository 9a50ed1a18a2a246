//! The image of one filter: its bytes in a snapshot.
//!
//! **Idea.** A small filter is completely in its image, with some 40 bytes beside its cells, so a
//! million of them fit into one pack. A part of [`LARGE`] bytes or more goes into a file of its
//! own, which the image names. Such a file is mapped copy-on-write, so it is available at once and
//! stays as it is.
//!
//! **Moments.** An image has the content of one moment, at which `fix` is called: `fix` notes which
//! changes the image includes. A filter behind a lock does not change until it is read, because the
//! reader holds the lock. A filter of BF.* does change: its bits are copied while other threads add
//! keys. So the image has all earlier keys, and some bits of later keys, which do no harm when
//! replay adds these keys again. Only its count is that of `fix`, not that of the time of copying.
//!
//! **Cost.** The base of a filter of BF.* is copied 1 MiB at a time. Its growing part is copied as
//! a whole, and again for its file, so it takes three times its memory for a while. Other filters
//! are written directly, under their lock, which is released before the file is synced. Reading
//! checks everything: the image while it is read, and each file by its checksums, a mapped base in
//! one pass at the speed of memory.
//!
//! The layout is drawn in `image/layout.rs`.

mod layout;
mod sealed;
mod shapes;

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, BufWriter, Cursor, Read, Write};
use std::path::Path;

use inbloom::internals::file;
use inbloom::internals::format::{NEWER, RETIRED};
use inbloom::internals::kinds::blocked::SharedBlocked;
use inbloom::internals::kinds::scalable::SharedScalable;
use inbloom::interop::redisbloom;
use inbloom::{Filter, Hasher, OpenOptions};
use xxhash_rust::xxh3::xxh3_64;

use self::layout::{ForeignDump, Image, ImageBase, ImagePart};
use self::sealed::{Sealing, Unsealing};
pub use self::shapes::{Outline, OutlineShapes};
use super::disk::{Disk, DiskFile};
use crate::import::Imported;
use crate::reply_error::ReplyError;
use crate::value::Value;
use crate::value::bloom::Bloom;
use crate::value::dump_format;

/// What has so many bytes is in a file of its own.
pub const LARGE: u64 = 1 << 20;

/// What is noted at the moment whose content an image has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// The number of the last change that is in it.
    pub sequence: u64,
    /// The items of a filter of BF.*; of other filters it is not used.
    pub items: u64,
}

/// What came of writing an image.
#[derive(Debug)]
pub struct WrittenImage {
    /// What `fix` returned.
    pub fixed: Fixed,
    /// The files that the image refers to: synced, but their names are not.
    pub files: Vec<String>,
}

/// What images are read with.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// The hash of the server.
    pub hasher: &'a Hasher,
    /// Where the files are.
    pub disk: &'a dyn Disk,
    /// Shapes that filters share.
    pub shapes: &'a OutlineShapes,
    /// Where files that were opened are.
    pub import_dir: Option<&'a Path>,
}

/// Why there is no image, or no filter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The bytes of an image are no image.
    #[error("the stored filter is damaged: {what}: expected {expected}, got {got}")]
    Damaged {
        /// Which of its fields.
        what: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        got: String,
    },
    /// A file could not be written or read.
    #[error("{action} {name}: {cause}")]
    Io {
        /// What was done.
        action: &'static str,
        /// The file.
        name: String,
        /// What the system says.
        cause: io::Error,
    },
    /// What is in a file is not what was written there, or is not to be had.
    #[error("{name}: {cause}")]
    File {
        /// The file.
        name: String,
        /// What is wrong.
        cause: inbloom::Error,
    },
    /// What is in an image makes no filter, or there is no memory for it.
    #[error("the stored filter: {0}")]
    Filter(#[from] inbloom::Error),
    /// The same, of RedisBloom's filters.
    #[error("the stored filter of KIND redisbloom: {0}")]
    RedisBloom(#[from] redisbloom::ForeignError),
    /// The same, of those of CF.*.
    #[error("the stored cuckoo filter: {0}")]
    Cuckoo(#[from] redisbloom::LoadError),
    /// A file that IB.OPEN had opened.
    #[error("cannot open '{path}' below --import-dir again: {reason}")]
    Import {
        /// Its path.
        path: String,
        /// As IB.OPEN would say it.
        reason: String,
        /// Which inbloom reads the file, if this one does not.
        reader: Option<NeededVersion>,
    },
    /// The keys of a filter were hashed otherwise.
    #[error(
        "the filter was built with another secret key than this server has: start the server with \
         that key"
    )]
    Hash,
}

/// Which inbloom reads what this one does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeededVersion {
    /// One from before a layout was retired.
    Older,
    /// One that knows more layouts.
    Newer,
}

impl NeededVersion {
    /// Returns which inbloom reads a filter, if the error is that this one does not. The checksum of
    /// the filter's header was right then, so the filter is not damaged. (Of a newer version of the
    /// format nothing but its number is known.)
    fn of(error: &inbloom::Error) -> Option<NeededVersion> {
        match error {
            inbloom::Error::NewerVersion { .. } => Some(NeededVersion::Newer),
            inbloom::Error::Format { remedy, .. } if *remedy == NEWER => Some(NeededVersion::Newer),
            inbloom::Error::Format { remedy, .. } if *remedy == RETIRED => {
                Some(NeededVersion::Older)
            }
            _ => None,
        }
    }
}

impl ImageError {
    /// Returns which inbloom reads the filter, if this one does not.
    pub fn reader(&self) -> Option<NeededVersion> {
        match self {
            ImageError::Filter(cause) | ImageError::File { cause, .. } => NeededVersion::of(cause),
            ImageError::Import { reader, .. } => *reader,
            _ => None,
        }
    }

    fn damaged(what: &'static str, expected: impl Display, got: impl Display) -> ImageError {
        ImageError::Damaged { what, expected: expected.to_string(), got: got.to_string() }
    }

    fn io(action: &'static str, name: &str) -> impl FnOnce(io::Error) -> ImageError {
        move |cause| ImageError::Io { action, name: name.to_owned(), cause }
    }

    fn file(name: &str) -> impl FnOnce(inbloom::Error) -> ImageError {
        move |cause| ImageError::File { name: name.to_owned(), cause }
    }
}

/// Appends the image of a filter to `out`. What is large goes into files whose names begin with
/// `stem`, which consists of letters, digits, `-` and `_`; they are synced.
///
/// `fix` is called once, at the moment whose content the image has: under the lock of a filter that
/// has one, and before anything is read of one of BF.*, whose items are those that it returns.
///
/// On an error `out` is as it was, and no file is left.
pub fn write(
    value: &Value,
    hasher: &Hasher,
    disk: &dyn Disk,
    stem: &str,
    out: &mut Vec<u8>,
    fix: impl FnOnce() -> Fixed,
) -> Result<WrittenImage, ImageError> {
    write_with(Writer { hasher, disk, stem, large: LARGE, files: Vec::new() }, value, out, fix)
}

fn write_with(
    mut writer: Writer<'_>,
    value: &Value,
    out: &mut Vec<u8>,
    fix: impl FnOnce() -> Fixed,
) -> Result<WrittenImage, ImageError> {
    match writer.write(value, fix) {
        Ok((image, fixed)) => {
            image.encode(out);
            let files = image.files().map(str::to_owned).collect();
            Ok(WrittenImage { fixed, files })
        }
        Err(error) => {
            // What cannot be removed is removed with all other files that no image refers to.
            writer.files.iter().for_each(|(name, _)| drop(writer.disk.remove(name)));
            Err(error)
        }
    }
}

/// The filter of an image.
///
/// The bytes may be anything: all are checked, and memory is taken for what is there only. Large
/// files are mapped, where the disk has a path to them.
pub fn read(bytes: &[u8], with: &Surroundings<'_>) -> Result<Value, ImageError> {
    match Image::parse(bytes)? {
        Image::Bloom { expansion, items, base, rest } => {
            let base = with.base(base)?;
            let rest = rest.map(|rest| with.rest(rest)).transpose()?;
            Ok(Value::Bloom(Bloom::from_parts(base, rest, items, expansion)?))
        }
        Image::Filter(part) => with.filter(part).map(Value::filter),
        Image::Opened(path) => {
            let failed = |failure: ReplyError, reader| {
                let reason = failure.text().trim_start_matches("ERR ").to_owned();
                ImageError::Import { path: path.clone().into_owned(), reason, reader }
            };
            let imported = Imported::existing(with.import_dir, path.as_bytes())
                .map_err(|failure| failed(failure, None))?;
            let (filter, watch) = imported
                .read(with.hasher.key())
                .map_err(|error| failed(imported.failed(&error), NeededVersion::of(&error)))?;
            imported.check(&filter).map_err(|failure| failed(failure, None))?;
            Ok(Value::opened(filter, &path, watch))
        }
        Image::RedisBloom(ForeignDump { header, body }) => {
            let body = with.body(&header, body)?;
            // Each takes many bytes of the header.
            let links = header.len() as u64;
            let mut bloom = redisbloom::Bloom::from_header(&header, body.limit(links))?;
            body.read(|reader| bloom.read_body(reader))?;
            Ok(Value::redisbloom(bloom))
        }
        Image::Cuckoo(ForeignDump { header, body }) => {
            let body = with.body(&header, body)?;
            let mut cuckoo =
                redisbloom::CuckooChain::from_header(&header, body.limit(redisbloom::MAX_FILTERS))?;
            body.read(|reader| cuckoo.read_body(reader))?;
            Ok(Value::cuckoo(cuckoo))
        }
    }
}

/// The names of the files that an image refers to, whether they are there or not.
pub fn files(bytes: &[u8]) -> Result<Vec<String>, ImageError> {
    Ok(Image::parse(bytes)?.files().map(str::to_owned).collect())
}

// ---------------------------------------------------------------------------------------- writing

struct Writer<'a> {
    hasher: &'a Hasher,
    disk: &'a dyn Disk,
    stem: &'a str,
    /// From how many bytes on a file is created.
    large: u64,
    /// What was created so far.
    files: Vec<(String, Box<dyn DiskFile>)>,
}

impl Writer<'_> {
    fn write(
        &mut self,
        value: &Value,
        fix: impl FnOnce() -> Fixed,
    ) -> Result<(Image<'static>, Fixed), ImageError> {
        let (image, fixed) = match value {
            Value::Bloom(bloom) => {
                let fixed = fix();
                (self.bloom(bloom, fixed.items), fixed)
            }
            Value::Filter(guarded) => guarded.for_long(|guarded| {
                guarded.read(|filter| {
                    let fixed = fix();
                    let image = match guarded.origin().filter(|_| filter.is_read_only()) {
                        Some(path) => Ok(Image::Opened(Cow::Owned(path.to_owned()))),
                        None => self.filter("ib", filter).map(Image::Filter),
                    };
                    (image, fixed)
                })
            }),
            Value::RedisBloom(guarded) => guarded.for_long(|guarded| {
                guarded.read(|bloom| {
                    let fixed = fix();
                    let write = |writer: &mut dyn Write| bloom.write_body(writer);
                    let dump = self.dump(bloom.header(), bloom.bytes(), write);
                    (dump.map(Image::RedisBloom), fixed)
                })
            }),
            Value::Cuckoo(guarded) => guarded.for_long(|guarded| {
                guarded.read(|cuckoo| {
                    let fixed = fix();
                    let write = |writer: &mut dyn Write| cuckoo.write_body(writer);
                    let dump = self.dump(cuckoo.header(), cuckoo.bytes(), write);
                    (dump.map(Image::Cuckoo), fixed)
                })
            }),
        };
        let image = image?;
        for (name, file) in &self.files {
            file.sync().map_err(ImageError::io("cannot sync", name))?;
        }
        Ok((image, fixed))
    }

    fn bloom(&mut self, bloom: &Bloom, items: u64) -> Result<Image<'static>, ImageError> {
        // The rest first: what moves on to it meanwhile came too late, and is in neither.
        let rest = match bloom.rest() {
            Some(rest) => Some(self.filter("rest", &rest.snapshot(*self.hasher)?)?),
            None => None,
        };
        let base = self.base(bloom.base(), items)?;
        Ok(Image::Bloom { expansion: bloom.expansion(), items, base, rest })
    }

    fn base(&mut self, base: &SharedBlocked, items: u64) -> Result<ImageBase<'static>, ImageError> {
        if base.bytes() < self.large {
            let mut cells = vec![0; base.bytes() as usize];
            base.copy_to(0, &mut cells);
            let outline = Outline::of(base.plan());
            let hash = hash_check(self.hasher);
            return Ok(ImageBase::Here { outline, hash, cells: Cow::Owned(cells) });
        }
        let hasher = *self.hasher;
        let (name, file) = self.create("base")?;
        let mut end = 0;
        let put = |at: u64, bytes: &[u8]| {
            if at < end {
                return file.overwrite(at, bytes);
            }
            end = at + bytes.len() as u64;
            file.append(bytes)
        };
        base.write_in_pieces(hasher, items, put).map_err(ImageError::file(name))?;
        Ok(ImageBase::File(Cow::Owned(name.to_owned())))
    }

    /// A filter in our file format.
    fn filter(&mut self, ending: &str, filter: &Filter) -> Result<ImagePart<'static>, ImageError> {
        if filter.bytes() < self.large {
            let mut bytes = Vec::new();
            filter.write_to(&mut bytes)?;
            return Ok(ImagePart::Here(Cow::Owned(bytes)));
        }
        let (name, file) = self.create(ending)?;
        let writer = BufWriter::with_capacity(1 << 20, Appending(file));
        filter.write_to(writer).map_err(ImageError::file(name))?;
        Ok(ImagePart::File(Cow::Owned(name.to_owned())))
    }

    /// A filter in RedisBloom's form; `write` writes its body, of so many bytes.
    fn dump(
        &mut self,
        header: Vec<u8>,
        bytes: u64,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<ForeignDump<'static>, ImageError> {
        let body = if bytes < self.large {
            let mut body = Vec::with_capacity(bytes as usize);
            write(&mut body).expect("a vector takes all");
            ImagePart::Here(Cow::Owned(body))
        } else {
            let (name, file) = self.create("body")?;
            let mut writer = Sealing::new(file, xxh3_64(&header));
            let written = write(&mut writer).and_then(|()| writer.finish());
            written.map_err(ImageError::io("cannot write", name))?;
            ImagePart::File(Cow::Owned(name.to_owned()))
        };
        Ok(ForeignDump { header: Cow::Owned(header), body })
    }

    fn create(&mut self, ending: &str) -> Result<(&str, &dyn DiskFile), ImageError> {
        let name = format!("{}.{ending}", self.stem);
        assert!(layout::is_name(name.as_bytes()), "a stem of plain letters");
        let file = self.disk.create(&name).map_err(ImageError::io("cannot create", &name))?;
        self.files.push((name, file));
        let (name, file) = self.files.last().expect("just pushed");
        Ok((name, &**file))
    }
}

/// A file as what filters are written to.
struct Appending<'a>(&'a dyn DiskFile);

impl Write for Appending<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Enough to notice that the hash is another one.
fn hash_check(hasher: &Hasher) -> u32 {
    dump_format::hash_check(hasher) as u32
}

// ---------------------------------------------------------------------------------------- reading

impl Surroundings<'_> {
    fn base(&self, base: ImageBase<'_>) -> Result<SharedBlocked, ImageError> {
        match base {
            ImageBase::Here { outline, hash, cells } => {
                if hash != hash_check(self.hasher) {
                    return Err(ImageError::Hash);
                }
                let base = SharedBlocked::new(&self.shapes.of(outline)?)?;
                base.or_from(0, &cells)?;
                Ok(base)
            }
            ImageBase::File(name) => {
                let opened = match self.disk.path(&name) {
                    Some(path) => file::open_shared(path, self.hasher),
                    None => SharedBlocked::from_filter(self.of_this_hash(self.filter_in(&name)?)?),
                };
                let mut base = opened.map_err(ImageError::file(&name))?;
                self.shapes.share(&mut base);
                Ok(base)
            }
        }
    }

    /// What a filter of BF.* has grown by.
    fn rest(&self, part: ImagePart<'_>) -> Result<SharedScalable, ImageError> {
        let filter = self.of_this_hash(self.filter(part)?)?;
        Ok(SharedScalable::from_filter(filter)?)
    }

    fn of_this_hash(&self, filter: Filter) -> Result<Filter, ImageError> {
        if filter.hasher() == self.hasher { Ok(filter) } else { Err(ImageError::Hash) }
    }

    /// A filter in our file format.
    fn filter(&self, part: ImagePart<'_>) -> Result<Filter, ImageError> {
        match part {
            ImagePart::Here(bytes) => self.read_filter(&*bytes).map_err(ImageError::Filter),
            ImagePart::File(name) => match self.disk.path(&name) {
                Some(path) => OpenOptions::new()
                    .secret(self.hasher.key())
                    .writable(true)
                    .verify(true)
                    .open_file(path)
                    .map_err(ImageError::file(&name)),
                None => self.filter_in(&name),
            },
        }
    }

    /// A filter in a file that cannot be mapped.
    fn filter_in(&self, name: &str) -> Result<Filter, ImageError> {
        let reader = self.disk.open(name).map_err(ImageError::io("cannot open", name))?;
        self.read_filter(reader).map_err(ImageError::file(name))
    }

    /// Reads a filter, and that nothing follows it.
    fn read_filter(&self, mut reader: impl Read) -> Result<Filter, inbloom::Error> {
        let filter = OpenOptions::new().secret(self.hasher.key()).read_from(&mut reader)?;
        match reader.read(&mut [0]) {
            Ok(0) => Ok(filter),
            Ok(_) => Err(inbloom::Error::Format {
                what: "end of the filter",
                expected: "no more bytes".to_owned(),
                got: "more bytes".to_owned(),
                remedy: "the file is damaged: restore it from a copy",
            }),
            Err(cause) => {
                Err(inbloom::Error::Io { action: "cannot read the filter".to_owned(), cause })
            }
        }
    }

    /// The body of a filter in RedisBloom's form.
    fn body<'b>(&self, header: &[u8], part: ImagePart<'b>) -> Result<Body<'b>, ImageError> {
        Ok(match part {
            ImagePart::Here(bytes) => {
                let length = bytes.len() as u64;
                Body { name: None, bytes: length, reader: Box::new(Cursor::new(bytes)) }
            }
            ImagePart::File(name) => {
                let bytes =
                    self.disk.length(&name).map_err(ImageError::io("cannot open", &name))?;
                let reader = self.disk.open(&name).map_err(ImageError::io("cannot open", &name))?;
                let reader = Box::new(Unsealing::new(reader, xxh3_64(header)));
                Body { name: Some(name), bytes, reader }
            }
        })
    }
}

/// The body of a filter in RedisBloom's form, to be read.
struct Body<'a> {
    /// Of its file, if it has one.
    name: Option<Cow<'a, str>>,
    /// At most so many are there.
    bytes: u64,
    reader: Box<dyn Read + 'a>,
}

impl Body<'_> {
    /// The memory that a filter with this body can take in so many arrays, of a byte at least.
    fn limit(&self, most_arrays: u64) -> u64 {
        self.bytes.saturating_add(most_arrays.min(self.bytes).saturating_mul(redisbloom::OVERHEAD))
    }

    /// Reads all of it, and that there is no more.
    fn read(
        mut self,
        read: impl FnOnce(&mut dyn Read) -> io::Result<()>,
    ) -> Result<(), ImageError> {
        let result = read(&mut self.reader).and_then(|()| self.reader.read(&mut [0]));
        let name = self.name.as_deref().unwrap_or("the image");
        match result {
            Ok(0) => Ok(()),
            Ok(_) => Err(ImageError::damaged("body", "as many bytes as its header says", "more")),
            Err(cause) => Err(ImageError::io("cannot read the filter in", name)(cause)),
        }
    }
}

#[cfg(test)]
mod tests;
