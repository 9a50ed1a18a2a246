//! Where records come from: files and standard input, plain or compressed.
//!
//! Gzip and zstd are recognised by their first bytes, not by the name: `zcat` is never needed, and
//! a misnamed file is read all the same. Members and frames that follow one another are read on, as
//! `zcat` and `zstdcat` do.

use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, IsTerminal, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail};
use flate2::read::MultiGzDecoder;

use crate::output;

/// One input named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    Stdin,
    File(PathBuf),
}

/// Whether inputs that look compressed are decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    ByMagic,
    Plain,
}

/// How compressed data begins.
const GZIP: [u8; 3] = [0x1f, 0x8b, 0x08];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// A frame of zstd that is to be skipped, with which `pzstd` begins; its first byte is 0x50 to
/// 0x5f.
const ZSTD_SKIPPED: [u8; 4] = [0x50, 0x2a, 0x4d, 0x18];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    Gzip,
    Zstd,
}

/// What data that begins so is compressed by; or None if so few bytes may still become anything.
fn recognise(first: &[u8]) -> Option<Option<Compression>> {
    let masked: Vec<u8> = match first.split_first() {
        Some((byte, rest)) if byte >> 4 == 5 => [&[0x50], rest].concat(),
        _ => first.to_vec(),
    };
    let begins = |magic: &[u8]| masked.starts_with(magic);
    let may_begin = |magic: &[u8]| magic.starts_with(&masked);
    if begins(&GZIP) {
        Some(Some(Compression::Gzip))
    } else if begins(&ZSTD) || begins(&ZSTD_SKIPPED) {
        Some(Some(Compression::Zstd))
    } else if may_begin(&GZIP) || may_begin(&ZSTD) || may_begin(&ZSTD_SKIPPED) {
        None
    } else {
        Some(None)
    }
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
            Input::File(path) => path.as_os_str().as_encoded_bytes(),
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
            Input::Stdin => false,
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
            Input::File(_) => self.file_size(),
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
                    output::say("reading keys from the terminal, one per line; Ctrl-D ends");
                }
                if stdin_file().is_ok_and(|file| output::is_stdout(&file)) {
                    bail!("standard input is the output too: print to another file");
                }
                Box::new(io::stdin())
            }
            Input::File(path) => Box::new(open_file(path)?),
        };
        let counted = Counted { raw, progress: Arc::clone(progress) };
        match encoding {
            Encoding::Plain => Ok(Box::new(counted)),
            Encoding::ByMagic => decoded(counted).with_context(|| self.cannot_read()),
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
            && (encoding == Encoding::Plain || !self.is_compressed()?)
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
            bail!("{} is shorter than it was: build anew", self.shown());
        }
        Ok(reader)
    }

    /// What tells one state of an input from another.
    pub fn version(&self) -> String {
        let Input::File(path) = self else { return self.shown() };
        let Ok(metadata) = fs::metadata(path) else { return self.shown() };
        let modified = metadata.modified().ok();
        let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let nanos = since.unwrap_or_default().as_nanos();
        format!("{} of {} bytes, changed at {nanos}", self.shown(), metadata.len())
    }

    /// Whether a file begins as compressed ones do.
    pub fn is_compressed(&self) -> Result<bool> {
        let Input::File(path) = self else { return Ok(false) };
        let mut first = Vec::new();
        let read = open_file(path)?.take(ZSTD.len() as u64).read_to_end(&mut first);
        read.with_context(|| self.cannot_read())?;
        Ok(recognise(&first).flatten().is_some())
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
            bail!(
                "{} is a directory without files: name the files to read, or another folder",
                folder.display(),
            );
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
        bail!("{} is a directory: name the files in it", path.display());
    }
    // As with grep: what is read would be printed and read again, until the disk is full.
    if output::is_stdout(&file) {
        bail!("{} is input and output: print to another file", path.display());
    }
    Ok(file)
}

/// Looks at the first bytes, and puts a decoder before the reader if they ask for one.
fn decoded(mut raw: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let mut first = [0; ZSTD.len()];
    let mut filled = 0;
    // No more is waited for than it takes to tell: one line of a slow pipe goes straight through.
    let compression = loop {
        if let Some(compression) = recognise(&first[..filled]) {
            break compression;
        }
        match raw.read(&mut first[filled..]) {
            Ok(0) => break None,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    };
    let whole = Cursor::new(first[..filled].to_vec()).chain(raw);
    Ok(match compression {
        Some(Compression::Gzip) => {
            Box::new(Named { reader: MultiGzDecoder::new(BufReader::new(whole)), name: "gzip" })
        }
        Some(Compression::Zstd) => {
            Box::new(Named { reader: zstd::Decoder::new(whole)?, name: "zstd" })
        }
        None => Box::new(whole),
    })
}

/// Says in its errors which decoder it was: "corrupt deflate stream" alone puzzles whoever does
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
        decoded(Trickle(bytes.to_vec()))?.read_to_end(&mut text)?;
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

    #[test]
    fn compressed_input_is_read_as_what_was_compressed() {
        for text in [b"".as_slice(), b"a", b"alice\nbob\n"] {
            for compressed in [gzip(text), zstd(text)] {
                assert_eq!(read(&compressed).expect("it is whole"), text);
                let twice = [compressed.clone(), compressed].concat();
                assert_eq!(read(&twice).expect("members are joined"), [text, text].concat());
            }
        }
    }

    #[test]
    fn zstd_that_begins_with_a_skipped_frame_is_recognised() {
        // As pzstd writes it: four bytes that are to be skipped, and then the data.
        for first in [0x50, 0x5d] {
            let skipped = [&[first, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], b"skip"].concat();
            let text = read(&[skipped, zstd(b"alice\n")].concat()).expect("it is whole");
            assert_eq!(text, b"alice\n");
        }
    }

    #[test]
    fn what_only_begins_like_compressed_data_is_plain() {
        for text in
            [b"".as_slice(), b"\x1f", b"\x1f\x8b", b"\x1f\x8ba", b"\x28\xb5\x2f", b"(x", b"P*x"]
        {
            assert_eq!(read(text).expect("it is plain"), text);
        }
    }

    #[test]
    fn damaged_compressed_data_is_an_error_that_names_the_format() {
        for (name, whole) in [("gzip", gzip(&[7; 5000])), ("zstd", zstd(&[7; 5000]))] {
            for end in 5..whole.len() {
                let error = read(&whole[..end]).expect_err("it is cut off").to_string();
                assert!(error.contains(name), "{error}");
            }
            // The checksum of gzip, the block header of zstd.
            let at = if name == "gzip" { whole.len() - 6 } else { 6 };
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            let error = read(&damaged).expect_err("it is damaged").to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
