//! What is kept of a build that is larger than memory until it is finished, so that it can go on
//! after a kill.
//!
//! A folder beside the output, or in `--tmp`, named after it:
//!
//! ```text
//! lock      held by whoever works on it
//! spill-NN  the places or digests of the keys, see `spill.rs`
//! chunks    what tells of the chunks in them         both grow only; the state tells
//! parts     what tells of the parts of the output    how much of them counts
//! state     how far it has come, as JSON; replaced as a whole
//! ```
//!
//! The folder is ours alone (mode 700), and one that is found there is taken for ours only if it has
//! our files and nothing else: see `check_folder`. No file in it is opened through a link.
//!
//! The unfinished file itself, or those of shards, are beside the output, with `.partial` behind the
//! name: what is renamed must be on the same disk. Where a link is the output, all that is of what it
//! leads to.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use inbloom::internals::file;
use serde_json::{Value, json};

use crate::{filter_file, spill};

/// Where to go on reading: so many bytes of an input, as they are when decompressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub input: usize,
    pub bytes: u64,
}

/// The option of which more may be found to be needed when all keys were read, so that a build that
/// goes on may have another number.
pub const NUMBER_OF_SHARDS: &str = "number of shards";

/// How far a build has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub position: Position,
    /// Lines before it that have no key.
    pub missing: u64,
    /// Whether all keys were read.
    pub all_read: bool,
    /// Different keys, if they were counted.
    pub different: Option<u64>,
    /// The checksum of the finished file's header, from when it is complete until it has its name.
    pub complete: Option<u64>,
    /// Bytes of the lists of chunks and of parts.
    chunks: u64,
    parts: u64,
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

    /// Whether there is a build to go on with.
    pub fn is_there(folder: &Path) -> bool {
        folder.join(STATE).exists()
    }

    /// Removes what a build has left that is not to go on. Refused while somebody works on it, and
    /// if there is something else.
    pub fn clear(folder: &Path) -> Result<()> {
        if fs::symlink_metadata(folder).is_err() {
            return Ok(());
        }
        check_folder(folder)?;
        let _lock = lock(folder)?;
        remove_folder(folder)
    }

    /// Makes the folder, for a build that was asked for this.
    pub fn begin(folder: &Path, asked: BTreeMap<&'static str, String>) -> Result<Unfinished> {
        // Nobody else is to read digests of keys, nor to put anything there.
        let made = DirBuilder::new().mode(0o700).create(folder);
        made.with_context(|| format!("cannot create folder {}", folder.display()))?;
        let lock = lock(folder)?;
        // A folder is on disk only once that above it is.
        let above = File::open(filter_file::folder_of(folder)).and_then(|above| above.sync_all());
        above.with_context(|| format!("cannot sync {}", folder.display()))?;
        for list in [CHUNKS, PARTS] {
            let path = folder.join(list);
            File::create_new(&path).with_context(|| format!("cannot create {}", path.display()))?;
        }
        Ok(Unfinished { folder: folder.to_owned(), _lock: lock, asked, state: State::default() })
    }

    /// Opens the folder of a build that must have been asked for the same.
    pub fn resume(folder: &Path, asked: BTreeMap<&'static str, String>) -> Result<Unfinished> {
        check_folder(folder)?;
        let lock = lock(folder)?;
        let path = folder.join(STATE);
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        let damaged = || {
            anyhow!("{} is damaged: remove {}, and build anew", path.display(), folder.display())
        };
        let state: Value = serde_json::from_str(&text).map_err(|_| damaged())?;
        for (option, now) in &asked {
            // Until parts are written there may be more of them: see [`NUMBER_OF_SHARDS`].
            if *option == NUMBER_OF_SHARDS && state["parts"] == 0 {
                continue;
            }
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
            missing: number(&state["missing"])?,
            all_read: state["all_read"].as_bool().ok_or_else(damaged)?,
            different: state["different"].as_u64(),
            complete: state["complete"].as_u64(),
            chunks: number(&state["chunks"])?,
            parts: number(&state["parts"])?,
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

    /// What tells of all chunks, and of all parts.
    pub fn lists(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        let read = |list: &str, length: u64| {
            let path = self.folder.join(list);
            let mut bytes = vec![0; length as usize];
            let read = File::open(&path).and_then(|file| file.read_exact_at(&mut bytes, 0));
            read.with_context(|| format!("cannot read {}", path.display()))?;
            anyhow::Ok(bytes)
        };
        Ok((read(CHUNKS, self.state.chunks)?, read(PARTS, self.state.parts)?))
    }

    /// Has the state on disk, together with more of both lists. What they tell of must be there
    /// already.
    pub fn save(&mut self, chunks: &[u8], parts: &[u8]) -> Result<()> {
        let append = |list: &str, at: &mut u64, bytes: &[u8]| {
            if bytes.is_empty() {
                return Ok(());
            }
            let file = file::open_without_links(self.folder.join(list))?;
            file.write_all_at(bytes, *at)?;
            file.sync_data()?;
            *at += bytes.len() as u64;
            io::Result::Ok(())
        };
        let state = &mut self.state;
        let saved = append(CHUNKS, &mut state.chunks, chunks)
            .and_then(|()| append(PARTS, &mut state.parts, parts));
        let text = json!({
            "asked": self.asked,
            "input": state.position.input,
            "bytes": state.position.bytes,
            "missing": state.missing,
            "all_read": state.all_read,
            "different": state.different,
            "complete": state.complete,
            "chunks": state.chunks,
            "parts": state.parts,
        });
        let saved = saved.and_then(|()| {
            let (new, path) = (self.folder.join(NEW_STATE), self.folder.join(STATE));
            if !path.exists() {
                // The files that it tells of have their names on disk before it has.
                File::open(&self.folder)?.sync_all()?;
            }
            // One that is there was left by a kill, and is not opened: it might be a link.
            remove_if_there(&new)?;
            let mut file = File::create_new(&new)?;
            file.write_all(text.to_string().as_bytes())?;
            file.sync_data()?;
            fs::rename(new, path)?;
            File::open(&self.folder)?.sync_all()
        });
        saved.with_context(|| format!("cannot keep the state in {}", self.folder.display()))
    }

    /// Removes the folder.
    pub fn remove(self) -> Result<()> {
        remove_folder(&self.folder)
    }
}

/// Removes what a build has made, and nothing else that may be there. First what tells that there is
/// something to go on with: a kill meanwhile leaves only litter.
fn remove_folder(folder: &Path) -> Result<()> {
    for name in names() {
        remove_if_there(&folder.join(&name)).with_context(|| format!("cannot remove {name}"))?;
    }
    fs::remove_dir(folder).with_context(|| {
        let folder = folder.display();
        format!("cannot remove {folder}: what else is in it is not of a build; move it elsewhere")
    })
}

/// The files of a build's folder, the lock last.
fn names() -> impl Iterator<Item = String> {
    let names = [STATE, NEW_STATE, CHUNKS, PARTS].map(str::to_owned);
    names.into_iter().chain(spill::file_names()).chain([LOCK.to_owned()])
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Refuses a folder that no build of ours has made, before anything in it is opened or removed. The
/// folder beside an output, or in `--tmp`, may be one that others can write to, where they could
/// have put links to other files.
fn check_folder(folder: &Path) -> Result<()> {
    let failed = || format!("cannot look into folder {}", folder.display());
    let refused = |what: &str| {
        let folder = folder.display();
        anyhow!("{folder} {what}: remove it, or give another --tmp, or -o another name")
    };
    let metadata = fs::symlink_metadata(folder).with_context(failed)?;
    ensure!(!metadata.is_symlink(), refused("is a symbolic link"));
    ensure!(metadata.is_dir(), refused("is not a folder"));
    // Not compared with the user: on some disks all files belong to one.
    let ours = tempfile::tempfile_in(filter_file::folder_of(folder)).and_then(|it| it.metadata());
    let ours = ours.with_context(failed)?.uid();
    ensure!(metadata.uid() == ours, refused("belongs to another user"));
    let names: Vec<OsString> = names().map(OsString::from).collect();
    for entry in fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let (name, metadata) = (entry.file_name(), entry.metadata().with_context(failed)?);
        let is_ours = names.contains(&name) && metadata.is_file() && metadata.nlink() == 1;
        ensure!(is_ours, refused(&format!("holds {}, which is not of a build", name.display())),);
    }
    Ok(())
}

/// What is going to be written, or replaced.
#[derive(Clone, Debug)]
pub enum Output {
    File(PathBuf),
    /// So many shards, each in a file of its own.
    Shards(PathBuf, u32),
}

impl Output {
    /// What a path means. Where it is a link, what it leads to.
    pub fn new(path: &Path, shards: Option<u32>) -> Output {
        match shards {
            Some(shards) => Output::Shards(path.to_owned(), shards),
            // Links in a circle are refused when it is saved.
            None => Output::File(file::destination(path).unwrap_or_else(|_| path.to_owned())),
        }
    }

    /// As it is named: shards have this name too, together.
    pub fn path(&self) -> &Path {
        match self {
            Output::File(path) | Output::Shards(path, _) => path,
        }
    }

    /// The files that it is.
    pub fn files(&self) -> Vec<PathBuf> {
        match self {
            Output::File(path) => vec![path.clone()],
            Output::Shards(path, shards) => {
                let stem = file::stem_of(path);
                (0..*shards).map(|shard| file::shard_path(&stem, shard, *shards)).collect()
            }
        }
    }

    /// The files that a build of it may be in, at one time or another.
    pub fn all_files(&self) -> Vec<PathBuf> {
        self.files().into_iter().flat_map(|file| [partial(&file), base(&file), file]).collect()
    }

    /// Refuses what cannot be written, and what would be taken for something else that is there: a
    /// name stands for the file, and only without one for its shards.
    pub fn check(&self) -> Result<()> {
        let files = self.files();
        filter_file::check_output(&files[0])?;
        let between = files.iter().flat_map(|file| [partial(file), base(file)]);
        if let Some(link) = between.into_iter().find(|path| path.is_symlink()) {
            let link = link.display();
            bail!("{link} is a symbolic link, and a build would write there: remove it");
        }
        let Output::Shards(path, shards) = self else { return Ok(()) };
        let (stem, another) = (file::stem_of(path), "or give -o another name");
        if let Some(file) = [path, &beside(&stem, ".ib")].into_iter().find(|path| path.exists()) {
            bail!("{} is there, and would hide its shards: remove it, {another}", file.display());
        }
        let found = file::shard_paths(stem).unwrap_or_default();
        if let Some(other) = found.iter().find(|file| !files.contains(file)) {
            let other = other.display();
            bail!("{other} is a shard of others than these {shards}: remove those, {another}");
        }
        let odd = files.iter().find(|file| file.is_symlink() || file.is_dir());
        match odd.map(|file| file.display()) {
            Some(odd) => bail!("{odd} is there and is not a file: remove it, {another}"),
            None => Ok(()),
        }
    }
}

/// An unfinished file.
pub fn partial(file: &Path) -> PathBuf {
    beside(file, ".partial")
}

/// A finished file, where something is still to be done to it.
pub fn base(file: &Path) -> PathBuf {
    beside(file, ".base")
}

const LOCK: &str = "lock";
const STATE: &str = "state";
const NEW_STATE: &str = "state.new";
const CHUNKS: &str = "chunks";
const PARTS: &str = "parts";

fn beside(output: &Path, ending: &str) -> PathBuf {
    let mut path = OsString::from(output);
    path.push(ending);
    path.into()
}

fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(LOCK);
    let file = file::create_without_links(&path);
    let file = file.with_context(|| format!("cannot create {}", path.display()))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            bail!("another program builds in {}: wait for it, or give another -o", folder.display())
        }
        // Where files cannot be locked, as on some network drives, care has to do.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}
