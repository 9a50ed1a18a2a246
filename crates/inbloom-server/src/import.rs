//! Files that clients may name: those below the folder that the operator has set aside for it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use inbloom::file::Watch;
use inbloom::internals::format::MAGIC;
use inbloom::{Filter, OpenOptions, SecretKey};

use crate::reply_error::{ReplyError, excerpt};

/// A path below the folder.
pub struct Imported {
    /// Where that is.
    pub path: PathBuf,
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
        Ok(Imported { path: target, shown })
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

    /// Returns how many bytes opening the file takes into memory: none of a file of ours, which is
    /// mapped, and all of another one.
    pub fn bytes_to_read(&self) -> Result<u64, ReplyError> {
        let start = || {
            let (mut file, mut start) = (File::open(&self.path)?, [0; MAGIC.len()]);
            let length = file.metadata()?.len();
            let is_ours = file.read_exact(&mut start).is_ok() && start == MAGIC;
            Ok(if is_ours { 0 } else { length })
        };
        start().map_err(|cause: io::Error| {
            let action = format!("opening {}", self.path.display());
            self.failed(&inbloom::Error::Io { action, cause })
        })
    }

    /// Opens the filter that is there, to query it, if it is one for clients of the server.
    pub fn open(&self, key: Option<&SecretKey>) -> Result<(Filter, Option<Watch>), ReplyError> {
        let shown = &self.shown;
        let opened = OpenOptions::new().secret(key).open_watched(&self.path);
        let (filter, watch) = opened.map_err(|error| self.failed(&error))?;
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
        Ok((filter, watch))
    }
}
