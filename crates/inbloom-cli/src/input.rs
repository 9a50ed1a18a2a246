//! Where records come from: files and standard input, plain or compressed.
//!
//! Gzip, zstd, xz and bzip2 are recognized by their first bytes, not by the name: `zcat` is never
//! needed, and a misnamed file is read all the same. Members, frames and streams that follow one
//! another are read on, as `zcat` and `xzcat` do. What is certainly not a list of keys (a filter, a
//! zip archive) is refused by its name: its bytes would be read as lines, and nobody would notice.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Chain, Cursor, IsTerminal, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail};
use bzip2::read::MultiBzDecoder;
use flate2::bufread::GzDecoder;
use inbloom::internals::format::MAGIC;
use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

use crate::column_values::ColumnValues;
use crate::output::problem;
use crate::{output, pipes};

/// One input named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    Stdin,
    File(PathBuf),
    /// The values of a column of a Parquet file, with a terminator behind each.
    Column {
        path: PathBuf,
        name: String,
        terminator: u8,
    },
}

/// Whether inputs that look compressed are decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    ByMagic,
    Plain,
}

/// What precedes the time of its last change in the version of an input.
pub const CHANGED: &str = ", changed at ";

/// What an input is, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Plain,
    Gzip,
    Zstd,
    Xz,
    Bzip2,
    Filter,
    Parquet,
    /// Another format, which is not read.
    Foreign(&'static str),
}

/// How each begins. A bzip2 file has the size of its blocks as a digit, which is any here, and then
/// the first block, or the end if it is empty. (Text may begin with "BZh".)
const BEGINNINGS: [(&[u8], Content); 13] = [
    (&[0x1f, 0x8b, 0x08], Content::Gzip),
    (&[0x28, 0xb5, 0x2f, 0xfd], Content::Zstd),
    // A frame that is to be skipped, with which `pzstd` begins; its first byte is 0x50 to 0x5f.
    (&[0x50, 0x2a, 0x4d, 0x18], Content::Zstd),
    (b"\xfd7zXZ\0", Content::Xz),
    (b"BZh1\x31\x41\x59\x26\x53\x59", Content::Bzip2),
    (b"BZh1\x17\x72\x45\x38\x50\x90", Content::Bzip2),
    (&MAGIC, Content::Filter),
    (b"PK\x03\x04", Content::Foreign("a zip archive")),
    (b"7z\xbc\xaf\x27\x1c", Content::Foreign("a 7z archive")),
    (&[0x04, 0x22, 0x4d, 0x18], Content::Foreign("lz4")),
    (b"LZIP\x01", Content::Foreign("lzip")),
    (&[0x1f, 0x9d, 0x90], Content::Foreign("compressed by 'compress'")),
    (b"PAR1", Content::Parquet),
];
/// The most bytes that it takes to tell.
const LONGEST: usize = 10;
/// Bytes that are asked for first.
const BUFFER: usize = 64 << 10;
/// The memory that xz data may ask for. `xz -9` takes 65 MiB.
const XZ_MEMORY: u64 = 512 << 20;

/// What data that begins so is; or None if so few bytes may still become anything.
fn recognize(first: &[u8]) -> Option<Content> {
    let mut masked = [0; LONGEST];
    let masked = &mut masked[..first.len().min(LONGEST)];
    masked.copy_from_slice(&first[..masked.len()]);
    if let Some(byte) = masked.first_mut()
        && matches!(*byte, 0x51..=0x5f)
        && first.get(1).is_none_or(|second| *second == 0x2a)
    {
        *byte = 0x50;
    }
    if masked.starts_with(b"BZh") && matches!(masked.get(3), Some(b'1'..=b'9')) {
        masked[3] = b'1';
    }
    if let Some((_, content)) = BEGINNINGS.iter().find(|(magic, _)| masked.starts_with(magic)) {
        return Some(*content);
    }
    let undecided = BEGINNINGS.iter().any(|(magic, _)| magic.starts_with(masked));
    (!undecided).then_some(Content::Plain)
}

impl Input {
    /// The inputs named on a command line: `-` is standard input, and so is naming none.
    pub fn from_arguments(files: &[PathBuf]) -> Vec<Input> {
        if files.is_empty() {
            return vec![Input::Stdin];
        }
        let input = |path: &PathBuf| match path.as_os_str() == "-" {
            true => Input::Stdin,
            false => Input::File(path.clone()),
        };
        files.iter().map(input).collect()
    }

    /// What `-H` calls it: the bytes of its path, which need not be UTF-8.
    pub fn name(&self) -> &[u8] {
        match self {
            Input::Stdin => b"(standard input)",
            Input::File(path) | Input::Column { path, .. } => path.as_os_str().as_encoded_bytes(),
        }
    }

    /// What messages call it.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(self.name()).into_owned()
    }

    /// Whether it can be read twice: once to count its records, once to use them.
    pub fn is_regular_file(&self) -> bool {
        self.file_size().is_some()
    }

    /// Whether it can be read again from the middle, which an empty one can too.
    pub fn is_file(&self) -> bool {
        match self {
            Input::Stdin | Input::Column { .. } => false,
            Input::File(path) => fs::metadata(path).is_ok_and(|metadata| metadata.is_file()),
        }
    }

    /// Whether what is read of it comes at once: of a file, but not of a pipe or a terminal.
    pub fn never_waits(&self) -> bool {
        self.bytes_at_hand().is_some()
    }

    /// The bytes of a regular file, as they are on disk. Those of the system that only look like
    /// files, in /proc, say that they have none.
    pub fn file_size(&self) -> Option<u64> {
        let Input::File(path) = self else { return None };
        let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        (metadata.len() > 0).then_some(metadata.len())
    }

    /// The bytes, as they are on disk, of what never waits.
    pub fn bytes_at_hand(&self) -> Option<u64> {
        match self {
            Input::Stdin => {
                let metadata = stdin_file().and_then(|file| file.metadata()).ok()?;
                metadata.is_file().then_some(metadata.len())
            }
            Input::File(_) | Input::Column { .. } => self.file_size(),
        }
    }

    /// Starts reading; `progress` counts the bytes that come, before they are decompressed. On a
    /// terminal, says that input is awaited: silence would look like a hang.
    pub fn open(
        &self,
        encoding: Encoding,
        progress: &Arc<AtomicU64>,
    ) -> Result<Box<dyn Read + Send>> {
        let raw: Box<dyn Read + Send> = match self {
            Input::Stdin => {
                if io::stdin().is_terminal() {
                    output::say(
                        "reading keys from the terminal, one per line; press Ctrl-D to end",
                    );
                }
                if stdin_file().is_ok_and(|file| output::is_stdout(&file)) {
                    bail!(problem("standard input is also the output", "print to another file"));
                }
                pipes::enlarge(io::stdin());
                Box::new(io::stdin())
            }
            Input::File(path) => Box::new(open_file(path)?),
            Input::Column { path, name, terminator } => {
                return Ok(Box::new(ColumnValues::open(path, name, *terminator)?));
            }
        };
        let counted = Counted { raw, progress: Arc::clone(progress) };
        match encoding {
            Encoding::Plain => Ok(Box::new(counted)),
            Encoding::ByMagic => match decoded(counted).with_context(|| self.cannot_read())? {
                Decoded::Reader(reader) => Ok(reader),
                Decoded::Filter => bail!(problem(
                    format!("{} is an inbloom filter, not a list of keys", self.shown()),
                    "query it too with 'inbloom check -F', unite filters with 'inbloom merge', or \
                     read its bytes as lines with --plain",
                )),
                Decoded::Parquet => bail!(problem(
                    format!("{} is a Parquet file, not a list of keys", self.shown()),
                    "take the values of a column as keys with 'inbloom build --column NAME', or \
                     read its bytes as lines with --plain"
                )),
                Decoded::Foreign(what) => bail!(problem(
                    format!("{} is {what}, which inbloom cannot read", self.shown()),
                    "unpack it and pipe the lines in, or read its bytes as lines with --plain"
                )),
            },
        }
    }

    /// As `open`, but starts behind so many bytes, as they are when decompressed.
    pub fn open_behind(
        &self,
        skipped: u64,
        encoding: Encoding,
        progress: &Arc<AtomicU64>,
    ) -> Result<Box<dyn Read + Send>> {
        if let Input::File(path) = self
            && skipped > 0
            && (encoding == Encoding::Plain || !self.is_special()?)
        {
            let mut file = open_file(path)?;
            file.seek(SeekFrom::Start(skipped)).with_context(|| self.cannot_read())?;
            progress.fetch_add(skipped, Ordering::Relaxed);
            return Ok(Box::new(Counted { raw: file, progress: Arc::clone(progress) }));
        }
        let mut reader = self.open(encoding, progress)?;
        let mut wanted = reader.by_ref().take(skipped);
        let read = io::copy(&mut wanted, &mut io::sink()).with_context(|| self.cannot_read())?;
        if read < skipped {
            bail!(problem(
                format!("{} is shorter than it was when the build began", self.shown()),
                "build again"
            ));
        }
        Ok(reader)
    }

    /// What tells one state of an input from another.
    pub fn version(&self) -> String {
        if let Input::Column { name, .. } = self {
            return format!("column {name} of {}", self.shown());
        }
        let Input::File(path) = self else { return self.shown() };
        let Ok(metadata) = fs::metadata(path) else { return self.shown() };
        let modified = metadata.modified().ok();
        let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let nanos = since.unwrap_or_default().as_nanos();
        format!("{} of {} bytes{CHANGED}{nanos}", self.shown(), metadata.len())
    }

    /// Whether a file begins as compressed ones do, or those that are refused.
    pub fn is_special(&self) -> Result<bool> {
        let Input::File(path) = self else { return Ok(false) };
        let mut first = Vec::new();
        let read = open_file(path)?.take(LONGEST as u64).read_to_end(&mut first);
        read.with_context(|| self.cannot_read())?;
        Ok(recognize(&first).is_some_and(|content| content != Content::Plain))
    }

    pub fn cannot_open(&self) -> String {
        format!("cannot open {}", self.shown())
    }

    pub fn cannot_read(&self) -> String {
        format!("cannot read {}", self.shown())
    }
}

/// The inputs, with the files of a folder in its place: in the order of their names, without those
/// whose names begin with a dot, without folders, and without these.
pub fn in_folders(inputs: Vec<Input>, except: &[PathBuf]) -> Result<Vec<Input>> {
    let mut all = Vec::new();
    let real = |path: &Path| fs::canonicalize(path).ok();
    let except: Vec<PathBuf> = except.iter().filter_map(|path| real(path)).collect();
    for input in inputs {
        let Input::File(folder) = &input else {
            all.push(input);
            continue;
        };
        if !folder.is_dir() {
            all.push(input);
            continue;
        }
        let failed = || format!("cannot look into folder {}", folder.display());
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).with_context(failed)? {
            let path = entry.with_context(failed)?.path();
            let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
            let excepted = real(&path).is_some_and(|path| except.contains(&path));
            if !hidden && !excepted && !path.is_dir() {
                files.push(path);
            }
        }
        if files.is_empty() {
            bail!(problem(
                format!("{} is a directory without files", folder.display()),
                "name the files to read, or another folder"
            ));
        }
        files.sort_unstable();
        all.extend(files.into_iter().map(Input::File));
    }
    Ok(all)
}

/// Standard input under a descriptor of its own, which is closed with what looks at it.
fn stdin_file() -> io::Result<File> {
    io::stdin().as_fd().try_clone_to_owned().map(File::from)
}

fn open_file(path: &Path) -> Result<File> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    // Opening a directory succeeds and reading it fails with a number; say it in words, early.
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        bail!(problem(format!("{} is a directory", path.display()), "name the files in it"));
    }
    // As with grep: what is read would be printed and read again, until the disk is full.
    if output::is_stdout(&file) {
        bail!(problem(
            format!("{} is both input and output", path.display()),
            "print to another file"
        ));
    }
    Ok(file)
}

/// What came of the first bytes.
enum Decoded {
    Reader(Box<dyn Read + Send>),
    Filter,
    Parquet,
    Foreign(&'static str),
}

/// Looks at the first bytes, and puts a decoder before the reader if they ask for one.
fn decoded(mut raw: impl Read + Send + 'static) -> io::Result<Decoded> {
    // As much as comes at once: what is behind the first bytes is not cut off from them.
    let mut first = vec![0; BUFFER];
    let mut filled = 0;
    // No more is waited for than it takes to tell: one line of a slow pipe goes straight through.
    let content = loop {
        if let Some(content) = recognize(&first[..filled]) {
            break content;
        }
        match raw.read(&mut first[filled..]) {
            Ok(0) => break Content::Plain,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    };
    first.truncate(filled);
    let whole = Cursor::new(first).chain(raw);
    Ok(Decoded::Reader(match content {
        Content::Gzip => {
            Box::new(Named { reader: GzipMembers::new(BufReader::new(whole)), name: "gzip" })
        }
        Content::Zstd => Box::new(Named { reader: zstd::Decoder::new(whole)?, name: "zstd" }),
        Content::Xz => {
            let stream = Stream::new_stream_decoder(XZ_MEMORY, CONCATENATED)?;
            Box::new(Named { reader: XzDecoder::new_stream(whole, stream), name: "xz" })
        }
        Content::Bzip2 => Box::new(Named { reader: MultiBzDecoder::new(whole), name: "bzip2" }),
        Content::Plain => Box::new(whole),
        Content::Filter => return Ok(Decoded::Filter),
        Content::Parquet => return Ok(Decoded::Parquet),
        Content::Foreign(what) => return Ok(Decoded::Foreign(what)),
    }))
}

/// The members of gzip data, one after the other. The decoder of all members that the library has
/// takes other bytes behind them for a member that is cut off.
struct GzipMembers<R> {
    /// The member that is being read, behind the first bytes of it that were looked at; None behind
    /// the last one.
    member: Option<GzDecoder<Chain<Cursor<Vec<u8>>, R>>>,
}

impl<R: BufRead> GzipMembers<R> {
    /// How every member begins.
    const MAGIC: [u8; 2] = [0x1f, 0x8b];

    fn new(data: R) -> GzipMembers<R> {
        GzipMembers { member: Some(GzDecoder::new(Cursor::default().chain(data))) }
    }

    /// Goes on to the member behind this one, if there is one.
    fn next(&mut self) -> io::Result<()> {
        let Some(member) = self.member.take() else { return Ok(()) };
        let (_, mut rest) = member.into_inner().into_inner();
        let mut first = Vec::new();
        rest.by_ref().take(Self::MAGIC.len() as u64).read_to_end(&mut first)?;
        if first.is_empty() {
            return Ok(());
        }
        // A single byte that fits is a member that is cut off: its decoder says so.
        if !Self::MAGIC.starts_with(&first) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "other bytes follow the gzip data",
            ));
        }
        self.member = Some(GzDecoder::new(Cursor::new(first).chain(rest)));
        Ok(())
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            self.next()?;
        }
        Ok(0)
    }
}

/// Says in its errors which decoder it was: "corrupt deflate stream" alone puzzles a user who does
/// not know that the file is compressed.
struct Named<R> {
    reader: R,
    name: &'static str,
}

impl<R: Read> Read for Named<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(error.kind(), format!("the {} data ends too early", self.name))
            }
            kind => io::Error::new(kind, format!("invalid {} data: {error}", self.name)),
        })
    }
}

struct Counted<R> {
    raw: R,
    progress: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.raw.read(buffer)?;
        self.progress.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Hands out one byte per read: what a pipe may do.
    struct Trickle(Vec<u8>);

    impl Read for Trickle {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() || buffer.is_empty() {
                return Ok(0);
            }
            buffer[0] = self.0.remove(0);
            Ok(1)
        }
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        match decoded(Trickle(bytes.to_vec()))? {
            Decoded::Reader(mut reader) => reader.read_to_end(&mut text)?,
            _ => panic!("it is refused: {}", bytes.escape_ascii()),
        };
        Ok(text)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).expect("a Vec takes all bytes");
        encoder.finish().expect("a Vec takes all bytes")
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        zstd::encode_all(text, 1).expect("a Vec takes all bytes")
    }

    fn xz(text: &[u8]) -> Vec<u8> {
        liblzma::encode_all(text, 1).expect("a Vec takes all bytes")
    }

    fn bzip2(text: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(text).expect("a Vec takes all bytes");
        encoder.finish().expect("a Vec takes all bytes")
    }

    #[test]
    fn compressed_input_is_read_as_what_was_compressed() {
        for text in [b"".as_slice(), b"a", b"alice\nbob\n"] {
            for compressed in [gzip(text), zstd(text), xz(text), bzip2(text)] {
                assert_eq!(read(&compressed).expect("it is whole"), text);
                let twice = [compressed.clone(), compressed].concat();
                assert_eq!(read(&twice).expect("members are joined"), [text, text].concat());
            }
        }
    }

    #[test]
    fn bytes_behind_gzip_data_are_named() {
        for behind in [b"garbage and more of it".as_slice(), b"x", b"\0\0\0", b"\x1fx"] {
            let error = read(&[&gzip(b"alice\n"), behind].concat()).expect_err("it is no member");
            let expected = "invalid gzip data: other bytes follow the gzip data";
            assert_eq!(error.to_string(), expected, "{}", behind.escape_ascii());
        }
        for behind in [b"\x1f".as_slice(), b"\x1f\x8b", b"\x1f\x8b\x08"] {
            let error = read(&[&gzip(b"alice\n"), behind].concat()).expect_err("it is cut off");
            assert_eq!(error.to_string(), "the gzip data ends too early");
        }
    }

    #[test]
    fn zstd_that_begins_with_a_skipped_frame_is_recognized() {
        // As pzstd writes it: four bytes that are to be skipped, and then the data.
        for first in [0x50, 0x5d] {
            let skipped = [&[first, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], b"skip"].concat();
            let text = read(&[skipped, zstd(b"alice\n")].concat()).expect("it is whole");
            assert_eq!(text, b"alice\n");
        }
    }

    #[test]
    fn what_only_begins_like_compressed_data_is_plain() {
        for text in [
            b"".as_slice(),
            b"\x1f",
            b"\x1f\x8b",
            b"\x1f\x8ba",
            b"\x28\xb5\x2f",
            b"(x",
            b"P*x",
            b"S*M\n",
            b"Smith\n",
            b"\xfd7zX",
            b"BZh9\n",
            b"BZh91AY\n",
            b"BZh01AY&SY",
            b"PKZIP\n",
            b"7z\n",
            b"LZIP\n",
            b"\x89IBF\n",
        ] {
            assert_eq!(read(text).expect("it is plain"), text, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn filters_and_archives_are_refused_by_name() {
        let what = |bytes: &[u8]| match decoded(Trickle(bytes.to_vec())).expect("it is read") {
            Decoded::Reader(_) => "read",
            Decoded::Filter => "a filter",
            Decoded::Foreign(what) => what,
            Decoded::Parquet => "a Parquet file",
        };
        assert_eq!(what(&MAGIC), "a filter");
        assert_eq!(what(b"PK\x03\x04..."), "a zip archive");
        assert_eq!(what(b"\x04\x22\x4d\x18..."), "lz4");
    }

    #[test]
    fn damaged_compressed_data_is_an_error_that_names_the_format() {
        let text = [7; 5000];
        let all = [
            ("gzip", gzip(&text)),
            ("zstd", zstd(&text)),
            ("xz", xz(&text)),
            ("bzip2", bzip2(&text)),
        ];
        for (name, whole) in all {
            for end in 11..whole.len() {
                let error = read(&whole[..end]).expect_err("it is cut off").to_string();
                assert!(error.contains(name), "{error}");
            }
            // A checksum, or the block header of zstd.
            let at = match name {
                "gzip" => whole.len() - 6,
                "zstd" => 6,
                "xz" => 9,
                _ => 12,
            };
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            let error = read(&damaged).expect_err("it is damaged").to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
