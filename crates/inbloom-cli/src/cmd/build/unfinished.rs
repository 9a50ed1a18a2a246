//! What is kept of a build that is larger than memory until it is finished, so that it can go on
//! after a kill.
//!
//! A folder beside the output, or in `--tmp`, named after it:
//!
//! ```text
//! lock      held by whoever works on it
//! spill-NN  the places of the keys, see `spill.rs`
//! chunks    what tells of the chunks in them        both grow only; the state tells
//! shards    what tells of the shards of the file    how much of them counts
//! state     how far it has come, as JSON; replaced as a whole
//! ```
//!
//! The unfinished file itself is beside the output, with `.partial` behind its name: what is renamed
//! must be on the same disk. Where a link is the output, all that is of what it leads to.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};

/// Where to go on reading: so many bytes of an input, as they are when decompressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub input: usize,
    pub bytes: u64,
}

/// How far a build has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub position: Position,
    /// Whether all keys were read.
    pub all_read: bool,
    /// Different keys, if they were counted.
    pub different: Option<u64>,
    /// The checksum of the finished file's header, from when it is complete until it has its name.
    pub complete: Option<u64>,
    /// Bytes of the lists of chunks and of shards.
    chunks: u64,
    shards: u64,
}

pub struct Unfinished {
    folder: PathBuf,
    /// Locked for as long as it is open.
    _lock: File,
    /// What the build was asked for, by the name of the option.
    asked: BTreeMap<&'static str, String>,
    pub state: State,
}

impl Unfinished {
    /// The folder for a build of this output, in `tmp` or beside it.
    pub fn folder_for(output: &Path, tmp: Option<&Path>) -> PathBuf {
        let mut name = output.file_name().unwrap_or_default().to_owned();
        name.push(".building");
        match tmp {
            Some(tmp) => tmp.join(name),
            None => output.with_file_name(name),
        }
    }

    /// The unfinished file.
    pub fn partial(output: &Path) -> PathBuf {
        beside(output, ".partial")
    }

    /// The finished file, where something is still to be done to it.
    pub fn base(output: &Path) -> PathBuf {
        beside(output, ".base")
    }

    /// Whether there is a build to go on with.
    pub fn is_there(folder: &Path) -> bool {
        folder.join(STATE).exists()
    }

    /// Removes what a build has left that is not to go on. Refused while somebody works on it.
    pub fn clear(folder: &Path) -> Result<()> {
        if !folder.is_dir() {
            return Ok(());
        }
        let _lock = lock(folder)?;
        remove_folder(folder)
    }

    /// Makes the folder, for a build that was asked for this.
    pub fn begin(folder: &Path, asked: BTreeMap<&'static str, String>) -> Result<Unfinished> {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create folder {}", folder.display()))?;
        let lock = lock(folder)?;
        // A folder is on disk only once that above it is.
        if let Some(Ok(above)) = folder.parent().map(File::open) {
            above.sync_all().with_context(|| format!("cannot sync {}", folder.display()))?;
        }
        for list in [CHUNKS, SHARDS] {
            let path = folder.join(list);
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        }
        Ok(Unfinished { folder: folder.to_owned(), _lock: lock, asked, state: State::default() })
    }

    /// Opens the folder of a build that must have been asked for the same.
    pub fn resume(folder: &Path, asked: BTreeMap<&'static str, String>) -> Result<Unfinished> {
        let lock = lock(folder)?;
        let path = folder.join(STATE);
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        let damaged = || {
            anyhow!("{} is damaged: remove {}, and build anew", path.display(), folder.display())
        };
        let state: Value = serde_json::from_str(&text).map_err(|_| damaged())?;
        for (option, now) in &asked {
            let before = state["asked"][option].as_str().ok_or_else(damaged)?;
            ensure!(
                before == now,
                "--resume goes on with the build in {}, which has another {option}: '{before}', \
                 and not '{now}'; give the same, or remove the folder and build anew",
                folder.display(),
            );
        }
        let number = |value: &Value| value.as_u64().ok_or_else(damaged);
        let state = State {
            position: Position {
                input: number(&state["input"])? as usize,
                bytes: number(&state["bytes"])?,
            },
            all_read: state["all_read"].as_bool().ok_or_else(damaged)?,
            different: state["different"].as_u64(),
            complete: state["complete"].as_u64(),
            chunks: number(&state["chunks"])?,
            shards: number(&state["shards"])?,
        };
        Ok(Unfinished { folder: folder.to_owned(), _lock: lock, asked, state })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether there is something to go on with.
    pub fn was_saved(&self) -> bool {
        Unfinished::is_there(&self.folder)
    }

    /// What tells of all chunks, and of all shards.
    pub fn lists(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        let read = |list: &str, length: u64| {
            let path = self.folder.join(list);
            let mut bytes = vec![0; length as usize];
            let read = File::open(&path).and_then(|file| file.read_exact_at(&mut bytes, 0));
            read.with_context(|| format!("cannot read {}", path.display()))?;
            anyhow::Ok(bytes)
        };
        Ok((read(CHUNKS, self.state.chunks)?, read(SHARDS, self.state.shards)?))
    }

    /// Has the state on disk, together with more of both lists. What they tell of must be there
    /// already.
    pub fn save(&mut self, chunks: &[u8], shards: &[u8]) -> Result<()> {
        let append = |list: &str, at: &mut u64, bytes: &[u8]| {
            if bytes.is_empty() {
                return Ok(());
            }
            let file = File::options().write(true).open(self.folder.join(list))?;
            file.write_all_at(bytes, *at)?;
            file.sync_data()?;
            *at += bytes.len() as u64;
            std::io::Result::Ok(())
        };
        let state = &mut self.state;
        let saved = append(CHUNKS, &mut state.chunks, chunks)
            .and_then(|()| append(SHARDS, &mut state.shards, shards));
        let text = json!({
            "asked": self.asked,
            "input": state.position.input,
            "bytes": state.position.bytes,
            "all_read": state.all_read,
            "different": state.different,
            "complete": state.complete,
            "chunks": state.chunks,
            "shards": state.shards,
        });
        let saved = saved.and_then(|()| {
            let (new, path) = (self.folder.join("state.new"), self.folder.join(STATE));
            let mut file = File::create(&new)?;
            file.write_all(text.to_string().as_bytes())?;
            file.sync_data()?;
            fs::rename(new, path)?;
            File::open(&self.folder)?.sync_all()
        });
        saved.with_context(|| format!("cannot keep the state in {}", self.folder.display()))
    }

    /// Removes the folder, and the unfinished file of an output.
    pub fn remove(self, output: &Path) -> Result<()> {
        let partial = Unfinished::partial(output);
        if partial.exists() {
            fs::remove_file(&partial)
                .with_context(|| format!("cannot remove {}", partial.display()))?;
        }
        remove_folder(&self.folder)
    }
}

/// First what tells that there is something to go on with: a kill meanwhile leaves only litter.
fn remove_folder(folder: &Path) -> Result<()> {
    let state = folder.join(STATE);
    let removed = if state.exists() { fs::remove_file(state) } else { Ok(()) };
    removed
        .and_then(|()| fs::remove_dir_all(folder))
        .with_context(|| format!("cannot remove folder {}", folder.display()))
}

/// What is going to be replaced: where the output is a link, what it leads to.
pub fn target_of(output: &Path) -> PathBuf {
    match output.is_symlink() {
        true => fs::canonicalize(output).unwrap_or_else(|_| output.to_owned()),
        false => output.to_owned(),
    }
}

/// The files that a build of this output may be in, at one time or another.
pub fn files_of(output: &Path) -> [PathBuf; 3] {
    let output = target_of(output);
    [Unfinished::partial(&output), Unfinished::base(&output), output]
}

const STATE: &str = "state";
const CHUNKS: &str = "chunks";
const SHARDS: &str = "shards";

fn beside(output: &Path, ending: &str) -> PathBuf {
    let mut path = OsString::from(output);
    path.push(ending);
    path.into()
}

fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            bail!("another program builds in {}: wait for it, or give another -o", folder.display())
        }
        // Where files cannot be locked, as on some network drives, care has to do.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}
