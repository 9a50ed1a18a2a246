//! Files that clients may name: those below the folder that the operator has set aside for it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use inbloom::file::Watch;
use inbloom::internals::codec::Decoder;
use inbloom::internals::format::MAGIC;
use inbloom::interop::parquet::Metadata;
use inbloom::{Filter, OpenOptions, SecretKey};

use crate::reply_error::{ReplyError, excerpt};

/// A path below the folder.
pub struct Imported {
    /// Where that is.
    pub path: PathBuf,
    /// Which filter of the file is meant, if it holds several.
    part: Option<String>,
    /// As the client gave it: the client has no business with the rest.
    shown: String,
}

impl Imported {
    /// Finds a path below the folder of `--import-dir`. Whatever it is made of, it must not lead
    /// out of there: neither by `..` nor through a link.
    pub fn below(folder: Option<&Path>, word: &[u8]) -> Result<Imported, ReplyError> {
        let Some(folder) = folder else {
            return Err(ReplyError::new(
                "ERR files cannot be opened or saved: start the server with --import-dir",
            ));
        };
        let shown = excerpt(word, 256);
        let refused = || {
            ReplyError::with(format!(
                "ERR '{shown}' is not a path below --import-dir: pass one that is relative to it"
            ))
        };
        let path = Path::new(std::str::from_utf8(word).map_err(|_| refused())?);
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_plain || path.as_os_str().is_empty() {
            return Err(refused());
        }
        let full = folder.join(path);
        let parent = full.parent().ok_or_else(refused)?.canonicalize().map_err(|error| {
            ReplyError::with(format!(
                "ERR cannot open the folder of '{shown}' below --import-dir: {error}"
            ))
        })?;
        let target = match full.canonicalize() {
            Ok(target) => target,
            // To save there would make what the link leads to.
            Err(_) if full.is_symlink() => return Err(refused()),
            Err(_) => parent.join(path.file_name().unwrap_or_default()),
        };
        if !parent.starts_with(folder) || !target.starts_with(folder) {
            return Err(refused());
        }
        Ok(Imported { path: target, part: None, shown })
    }

    /// As [`Imported::below`], for a filter that is there: of a file that holds several, `FILE#NAME`
    /// stands for one.
    pub fn existing(folder: Option<&Path>, word: &[u8]) -> Result<Imported, ReplyError> {
        let whole = Imported::below(folder, word);
        if whole.as_ref().is_ok_and(|whole| whole.path.exists()) {
            return whole;
        }
        let text = std::str::from_utf8(word).unwrap_or_default();
        let cuts = text.match_indices('#').map(|(at, _)| (&text[..at], &text[at + 1..]));
        for (file, part) in cuts.filter(|(_, part)| !part.is_empty()) {
            let file = Imported::below(folder, file.as_bytes());
            if let Some(file) = file.ok().filter(|file| file.path.is_file()) {
                return Ok(Imported { part: Some(part.to_owned()), ..file });
            }
        }
        whole
    }

    /// Why the file could not be opened or saved, without the path of the folder.
    pub fn failed(&self, error: &inbloom::Error) -> ReplyError {
        let mut text = error.to_string().replace(&self.path.display().to_string(), &self.shown);
        if let Some(folder) = self.path.parent() {
            // A temporary file beside it.
            text = text.replace(&format!("{}/", folder.display()), "");
        }
        ReplyError::with(format!("ERR {text}"))
    }

    /// Returns how many bytes of the file are read into memory to find the filter in it: the footer
    /// of a Parquet file, and what is made of it.
    pub fn bytes_to_find(&self) -> Result<u64, ReplyError> {
        Ok(parquet_footer(&mut self.file()?).unwrap_or(0).saturating_mul(2))
    }

    /// Returns how many bytes opening the filter takes into memory. A file of ours is mapped: none.
    /// Of a Parquet file the filter is read, and copied once. Other files are read as a whole, since
    /// only that shows where in them a filter is.
    pub fn bytes_to_read(&self) -> Result<u64, ReplyError> {
        let mut file = self.file()?;
        let length = file.metadata().map_err(|cause| self.not_opened(cause))?.len();
        let mut start = [0; MAGIC.len()];
        if file.read_exact(&mut start).is_ok() && start == MAGIC {
            return Ok(0);
        }
        if parquet_footer(&mut file).is_none() {
            return Ok(length);
        }
        let filter = parquet_filter(&mut file, self.part.as_deref());
        filter.map(|bytes| bytes.saturating_mul(2)).map_err(|error| self.failed(&error))
    }

    fn file(&self) -> Result<File, ReplyError> {
        File::open(&self.path).map_err(|cause| self.not_opened(cause))
    }

    fn not_opened(&self, cause: io::Error) -> ReplyError {
        let action = format!("cannot open {}", self.path.display());
        self.failed(&inbloom::Error::Io { action, cause })
    }

    /// Opens the filter that is there, to query it, if it is one for clients of the server.
    pub fn open(&self, key: Option<&SecretKey>) -> Result<(Filter, Option<Watch>), ReplyError> {
        let (filter, watch) = self.read(key).map_err(|error| self.failed(&error))?;
        self.check(&filter)?;
        Ok((filter, watch))
    }

    /// Opens the filter that is there, to query it.
    pub fn read(&self, key: Option<&SecretKey>) -> inbloom::Result<(Filter, Option<Watch>)> {
        let options = OpenOptions::new().secret(key);
        match &self.part {
            None => options.open_watched(&self.path),
            Some(part) => options.open_part(&self.path, part).map(|filter| (filter, None)),
        }
    }

    /// Refuses a filter that is not for clients of the server.
    pub fn check(&self, filter: &Filter) -> Result<(), ReplyError> {
        let shown = &self.shown;
        if !filter.normalization().is_empty() {
            return Err(ReplyError::with(format!(
                "ERR '{shown}' was built with --normalize {}, which the server does not apply: \
                 build it without --normalize, or members would be reported absent",
                filter.normalization()
            )));
        }
        if filter.plan().kind().is_exact() {
            return Err(ReplyError::with(format!(
                "ERR '{shown}' is a bitmap of integers, and the server's keys are strings: build \
                 it as another kind"
            )));
        }
        Ok(())
    }
}

/// Returns the length of the footer, if this is a Parquet file.
fn parquet_footer(file: &mut File) -> Option<u64> {
    let (mut start, mut tail) = ([0; 4], [0; 8]);
    file.rewind().ok()?;
    file.read_exact(&mut start).ok()?;
    file.seek(SeekFrom::End(-8)).ok()?;
    file.read_exact(&mut tail).ok()?;
    let [l0, l1, l2, l3, magic @ ..] = tail;
    let footer = u64::from(u32::from_le_bytes([l0, l1, l2, l3]));
    (start == *b"PAR1" && magic == *b"PAR1").then_some(footer)
}

/// Returns the bytes of a filter in a Parquet file: of the one that this part names, or else of the
/// largest. A name that no filter has is refused when the filter is opened.
fn parquet_filter(file: &mut File, part: Option<&str>) -> inbloom::Result<u64> {
    let metadata = Metadata::read(&mut *file)?;
    let mut most = 0;
    for (number, group) in metadata.row_groups.iter().enumerate() {
        for (column, chunk) in metadata.columns.iter().zip(&group.chunks) {
            let is_meant = part.is_none_or(|part| {
                part.strip_prefix(&*column.path)
                    .is_some_and(|rest| rest.is_empty() || rest == format!("/{number}"))
            });
            if let Some(offset) = chunk.filter.filter(|_| is_meant) {
                most = most.max(split_block_bytes(file, offset).unwrap_or(LARGEST_SPLIT_BLOCK));
            }
        }
    }
    Ok(most)
}

/// The largest filter that a Parquet file may hold.
const LARGEST_SPLIT_BLOCK: u64 = 128 << 20;

/// Returns the bytes of the filter at this place: the first field of its header, in the compact
/// protocol of Thrift. None: it does not begin with that field.
fn split_block_bytes(file: &mut File, offset: u64) -> Option<u64> {
    /// Field 1, of 32 bits.
    const FIELD: u8 = 0x15;
    let mut start = [0; 6];
    file.seek(SeekFrom::Start(offset)).ok()?;
    file.read_exact(&mut start).ok()?;
    let number = Decoder(start.strip_prefix(&[FIELD])?).varint()?;
    // Zigzag: twice the number, if it is positive.
    (number % 2 == 0).then_some((number / 2).min(LARGEST_SPLIT_BLOCK))
}
