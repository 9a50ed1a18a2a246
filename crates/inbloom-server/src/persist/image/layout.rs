//! The bytes of an image. All numbers are little-endian.
//!
//! ```text
//!   image   u8 1, of BF.*        | u32 expansion, 0: it does not grow | u64 items | base | rest
//!           u8 2, any filter     | part, in our file format
//!           u8 3, an opened file | u32 length | its path below --import-dir
//!           u8 4, of RedisBloom  | u32 length | its header | part, its body
//!           u8 5, of CF.*        | u32 length | its header | part, its body
//!
//!   base    u8 0 | u64 capacity | f64 rate | u8 probes | u8 lines
//!                | u32 check of the hash | u32 length | cells
//!           u8 1 | file, in our file format
//!
//!   rest    u8 2, there is none
//!           part, in our file format
//!
//!   part    u8 0 | u64 length | bytes
//!           u8 1 | file
//!
//!   file    u8 length | the name of a file in the data folder
//! ```
//!
//! The *base* and the *rest* of a filter of BF.* are what `value/bloom.rs` calls so. The header and
//! the body of RedisBloom's filters are what SCANDUMP gives, without the division into chunks. A
//! base in the image is five numbers instead of a file's header, which would take as much
//! as the cells of a small one: they tell its plan whatever a later inbloom would plan.
//!
//! For example, BF.RESERVE f 0.01 100, never added to, is 41 bytes and 192 of cells:
//!
//! ```text
//!   01 | 02 00 00 00 | 00 00 00 00 00 00 00 00                of BF.*, expansion 2, no items
//!   00 | 64 00 00 00 00 00 00 00 | fc a9 f1 d2 4d 62 50 3f       base here, 100 keys at 0.001
//!      | 08 | 02 | check of the hash | c0 00 00 00 | 192 zeros   8 probes in 2 lines
//!   02                                                        no rest
//! ```
//!
//! The keeper of an image has a checksum of it. What is in files of its own has one there: our file
//! format has, and a body is kept in sealed pieces (`sealed.rs`).

use std::borrow::Cow;
use std::num::NonZeroU32;

use inbloom::internals::codec::Decoder;

use super::ImageError;
use super::shapes::Outline;

/// Kinds of images. Numbers are on disk: they are never reused.
const BLOOM: u8 = 1;
const FILTER: u8 = 2;
const OPENED: u8 = 3;
const REDISBLOOM: u8 = 4;
const CUCKOO: u8 = 5;

/// Where a part is. Numbers are on disk: they are never reused.
const HERE: u8 = 0;
const IN_FILE: u8 = 1;
const NONE: u8 = 2;

/// What an image says.
#[derive(Debug, PartialEq)]
pub enum Image<'a> {
    /// A filter of BF.*.
    Bloom {
        /// By what it grows.
        expansion: Option<NonZeroU32>,
        /// Keys that were new.
        items: u64,
        /// What was reserved.
        base: ImageBase<'a>,
        /// What it has grown by.
        rest: Option<ImagePart<'a>>,
    },
    /// A filter in our file format.
    Filter(ImagePart<'a>),
    /// A file below --import-dir.
    Opened(Cow<'a, str>),
    /// RedisBloom's Bloom filter.
    RedisBloom(ForeignDump<'a>),
    /// A filter of CF.*.
    Cuckoo(ForeignDump<'a>),
}

/// A filter in RedisBloom's form.
#[derive(Debug, PartialEq)]
pub struct ForeignDump<'a> {
    /// What SCANDUMP gives first.
    pub header: Cow<'a, [u8]>,
    /// What it gives afterwards.
    pub body: ImagePart<'a>,
}

/// Bytes, or where they are.
#[derive(Debug, PartialEq)]
pub enum ImagePart<'a> {
    /// In the image.
    Here(Cow<'a, [u8]>),
    /// In a file of its own.
    File(Cow<'a, str>),
}

/// The base of a filter of BF.*.
#[derive(Debug, PartialEq)]
pub enum ImageBase<'a> {
    /// In the image.
    Here {
        /// What its plan is.
        outline: Outline,
        /// What tells the hash of its keys from others.
        hash: u32,
        /// Its bits.
        cells: Cow<'a, [u8]>,
    },
    /// In a file of its own.
    File(Cow<'a, str>),
}

impl<'a> Image<'a> {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Image::Bloom { expansion, items, base, rest } => {
                out.push(BLOOM);
                out.extend(expansion.map_or(0, NonZeroU32::get).to_le_bytes());
                out.extend(items.to_le_bytes());
                base.encode(out);
                match rest {
                    Some(rest) => rest.encode(out),
                    None => out.push(NONE),
                }
            }
            Image::Filter(part) => {
                out.push(FILTER);
                part.encode(out);
            }
            Image::Opened(path) => {
                out.push(OPENED);
                encode_short(path.as_bytes(), out);
            }
            Image::RedisBloom(dump) => {
                out.push(REDISBLOOM);
                dump.encode(out);
            }
            Image::Cuckoo(dump) => {
                out.push(CUCKOO);
                dump.encode(out);
            }
        }
    }

    /// Reads what [`encode`](Image::encode) wrote, all of it.
    pub fn parse(bytes: &'a [u8]) -> Result<Image<'a>, ImageError> {
        let mut fields = NamedFields(Decoder(bytes));
        let image = match fields.u8("kind")? {
            BLOOM => {
                let expansion = NonZeroU32::new(fields.u32("expansion")?);
                let items = fields.u64("items")?;
                let base = ImageBase::parse(&mut fields)?;
                let rest = match fields.u8("place of the rest")? {
                    NONE => None,
                    place => Some(ImagePart::parse(place, &mut fields)?),
                };
                Image::Bloom { expansion, items, base, rest }
            }
            FILTER => Image::Filter(fields.part()?),
            OPENED => {
                let path = fields.short("path")?;
                let path = std::str::from_utf8(path)
                    .map_err(|error| ImageError::damaged("path", "UTF-8", error))?;
                Image::Opened(Cow::Borrowed(path))
            }
            REDISBLOOM => Image::RedisBloom(ForeignDump::parse(&mut fields)?),
            CUCKOO => Image::Cuckoo(ForeignDump::parse(&mut fields)?),
            other => return Err(ImageError::damaged("kind", "1 to 5", other)),
        };
        match fields.0.0.len() {
            0 => Ok(image),
            rest => Err(ImageError::damaged("end", "no more bytes", rest)),
        }
    }

    /// Returns the names of the files that it refers to.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let (first, second) = match self {
            Image::Bloom { base, rest, .. } => {
                (base.file(), rest.as_ref().and_then(ImagePart::file))
            }
            Image::Filter(part) => (part.file(), None),
            Image::Opened(_) => (None, None),
            Image::RedisBloom(dump) | Image::Cuckoo(dump) => (dump.body.file(), None),
        };
        first.into_iter().chain(second)
    }
}

impl<'a> ForeignDump<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_short(&self.header, out);
        self.body.encode(out);
    }

    fn parse(fields: &mut NamedFields<'a>) -> Result<ForeignDump<'a>, ImageError> {
        let header = Cow::Borrowed(fields.short("header")?);
        Ok(ForeignDump { header, body: fields.part()? })
    }
}

impl<'a> ImagePart<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ImagePart::Here(bytes) => {
                out.push(HERE);
                out.extend((bytes.len() as u64).to_le_bytes());
                out.extend_from_slice(bytes);
            }
            ImagePart::File(name) => encode_name(name, out),
        }
    }

    fn parse(place: u8, fields: &mut NamedFields<'a>) -> Result<ImagePart<'a>, ImageError> {
        match place {
            HERE => {
                let length = fields.u64("length of a part")?;
                Ok(ImagePart::Here(Cow::Borrowed(fields.take("part", length)?)))
            }
            IN_FILE => Ok(ImagePart::File(Cow::Borrowed(fields.name()?))),
            other => Err(ImageError::damaged("place of a part", "0 or 1", other)),
        }
    }

    fn file(&self) -> Option<&str> {
        match self {
            ImagePart::Here(_) => None,
            ImagePart::File(name) => Some(name),
        }
    }
}

impl<'a> ImageBase<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ImageBase::Here { outline, hash, cells } => {
                out.push(HERE);
                out.extend(outline.capacity.to_le_bytes());
                out.extend(outline.rate.to_le_bytes());
                out.extend([outline.probes, outline.lines]);
                out.extend(hash.to_le_bytes());
                encode_short(cells, out);
            }
            ImageBase::File(name) => encode_name(name, out),
        }
    }

    fn parse(fields: &mut NamedFields<'a>) -> Result<ImageBase<'a>, ImageError> {
        match fields.u8("place of the base")? {
            HERE => {
                let (capacity, rate) = (fields.u64("capacity")?, fields.u64("rate")?);
                let (probes, lines) = (fields.u8("probes")?, fields.u8("lines")?);
                let hash = fields.u32("check of the hash")?;
                let cells = fields.short("cells")?;
                let bits = cells.len() as u64 * 8;
                let outline = Outline { capacity, rate, bits, probes, lines };
                Ok(ImageBase::Here { outline, hash, cells: Cow::Borrowed(cells) })
            }
            IN_FILE => Ok(ImageBase::File(Cow::Borrowed(fields.name()?))),
            other => Err(ImageError::damaged("place of the base", "0 or 1", other)),
        }
    }

    fn file(&self) -> Option<&str> {
        match self {
            ImageBase::Here { .. } => None,
            ImageBase::File(name) => Some(name),
        }
    }
}

/// Bytes that are far fewer than 2^32: cells below [`LARGE`](super::LARGE), a path, the header of a
/// filter that has some thousand layers at most.
fn encode_short(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn encode_name(name: &str, out: &mut Vec<u8>) {
    out.extend([IN_FILE, name.len() as u8]);
    out.extend_from_slice(name.as_bytes());
}

/// Returns whether it can be the name of a file of ours, which leads nowhere else.
pub fn is_name(name: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_".contains(byte);
    name.len() <= 255
        && name.first().is_some_and(|first| *first != b'.')
        && name.iter().all(is_plain)
}

/// Untrusted bytes, whose fields have names in errors.
struct NamedFields<'a>(Decoder<'a>);

impl<'a> NamedFields<'a> {
    /// Takes a field of this length, or reports that it is not there.
    fn field<T>(
        &mut self,
        what: &'static str,
        length: u64,
        take: impl FnOnce(&mut Decoder<'a>) -> Option<T>,
    ) -> Result<T, ImageError> {
        take(&mut self.0).ok_or_else(|| {
            let got = format!("{} that are left", self.0.0.len());
            ImageError::damaged(what, format_args!("{length} bytes"), got)
        })
    }

    fn take(&mut self, what: &'static str, length: u64) -> Result<&'a [u8], ImageError> {
        self.field(what, length, |fields| fields.take(length))
    }

    fn u8(&mut self, what: &'static str) -> Result<u8, ImageError> {
        self.field(what, 1, Decoder::u8)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, ImageError> {
        self.field(what, 4, Decoder::u32)
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, ImageError> {
        self.field(what, 8, Decoder::u64)
    }

    fn short(&mut self, what: &'static str) -> Result<&'a [u8], ImageError> {
        let length = self.u32(what)?;
        self.take(what, u64::from(length))
    }

    fn part(&mut self) -> Result<ImagePart<'a>, ImageError> {
        ImagePart::parse(self.u8("place of a part")?, self)
    }

    fn name(&mut self) -> Result<&'a str, ImageError> {
        let length = self.u8("name of a file")?;
        let name = self.take("name of a file", u64::from(length))?;
        let text = std::str::from_utf8(name).ok().filter(|_| is_name(name));
        let expected = "letters, digits, dots, lines";
        text.ok_or_else(|| ImageError::damaged("name of a file", expected, name.escape_ascii()))
    }
}
