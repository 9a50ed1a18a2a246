//! The state of an unfinished build that is larger than memory. It lets the build continue after a
//! kill.
//!
//! A folder beside the output, or in `--tmp`, named after it:
//!
//! ```text
//! lock      held by the program that works on it
//! spill-NN  the places or digests of the keys, see `spill.rs`
//! chunks    a list of the chunks in them             both only grow; the state has
//! parts     a list of the parts of the output        the lengths that count
//! state     the progress, as JSON; replaced as a whole
//! ```
//!
//! Only its user can use the folder (mode 700). An existing folder is used only if it has our files
//! and nothing else: see `check_folder`. No file in it is opened through a link.
//!
//! The unfinished file itself, or those of shards, are beside the output, with `.partial` after the
//! name, because a renamed file must be on the same disk. If the output is a link, its target
//! counts as the output.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use inbloom::internals::file;
use serde_json::{Value, json};

use crate::input::CHANGED;
use crate::keys::GIVEN;
use crate::output::problem;
use crate::{filter_file, spill};

/// Where to go on reading: so many bytes of an input, as they are when decompressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub input: usize,
    pub bytes: u64,
}

/// The option of which more may be found to be needed when all keys were read, so that a build that
/// goes on may have another number.
pub const NUMBER_OF_SHARDS: &str = "--shards";

/// The options that decide on the hash. Their value is a hash of them: a secret key is not kept.
pub const HASH: &str = "--hash-seed or --key-file";

/// What `asked` says of the inputs.
pub const INPUT: &str = "input";

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
    /// What the build was asked for, by the name of the option; nothing for one that was not given.
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
            anyhow!(problem(
                format!("{} is damaged", path.display()),
                format!("remove {}, and build again", folder.display())
            ))
        };
        let another_version = || {
            let folder = folder.display();
            anyhow!(problem(
                format!(
                    "the build in {folder} was begun by another version of inbloom or with other \
                     options"
                ),
                format!("remove {folder}, and build again")
            ))
        };
        let state: Value = serde_json::from_str(&text).map_err(|_| damaged())?;
        ensure!(state.is_object(), damaged());
        let field = |name: &str| state.get(name).ok_or_else(another_version);
        let before = field("asked")?.as_object().ok_or_else(damaged)?;
        let is_same =
            before.len() == asked.len() && asked.keys().all(|it| before.contains_key(*it));
        ensure!(is_same, another_version());
        let mut differing = Vec::new();
        for (option, now) in &asked {
            // Until parts are written there may be more of them: see [`NUMBER_OF_SHARDS`].
            if *option == NUMBER_OF_SHARDS && state["parts"] == 0 {
                continue;
            }
            let before = before[*option].as_str().ok_or_else(damaged)?;
            if before != now {
                differing.push(difference(option, before, now));
            }
        }
        ensure!(
            differing.is_empty(),
            problem(
                format!(
                    "the build in {} was started with {}",
                    folder.display(),
                    differing.join(", and with ")
                ),
                "pass the same options with --resume, or remove the folder and build again"
            )
        );
        let number = |name: &str| field(name)?.as_u64().ok_or_else(damaged);
        let state = State {
            position: Position { input: number("input")? as usize, bytes: number("bytes")? },
            missing: number("missing")?,
            all_read: field("all_read")?.as_bool().ok_or_else(damaged)?,
            different: state["different"].as_u64(),
            complete: state["complete"].as_u64(),
            chunks: number("chunks")?,
            parts: number("parts")?,
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
        saved.with_context(|| format!("cannot save the state in {}", self.folder.display()))
    }

    /// Removes the folder.
    pub fn remove(self) -> Result<()> {
        remove_folder(&self.folder)
    }
}

/// Returns in which value of an option a build differs from one that is to continue it.
fn difference(option: &str, before: &str, now: &str) -> String {
    let typed = |value: &str| match value {
        "" => format!("no {option}"),
        GIVEN => option.to_owned(),
        value => format!("{option} {value}"),
    };
    match option {
        HASH => format!("another {option}"),
        INPUT => match (without_times(before), without_times(now)) {
            (before, now) if before == now => format!("other input: {before}, changed since"),
            (before, now) => format!("other input: {before}, now {now}"),
        },
        _ => format!("{}, now {}", typed(before), typed(now)),
    }
}

/// Returns the versions of inputs without the times of their last changes, in nanoseconds.
fn without_times(versions: &str) -> String {
    let mut parts = versions.split(CHANGED);
    let first = parts.next().unwrap_or_default().to_owned();
    let is_digit = |character: char| character.is_ascii_digit();
    parts.fold(first, |shown, part| shown + part.trim_start_matches(is_digit))
}

/// Removes what a build has made, and nothing else that may be there. First what tells that there is
/// something to go on with: a kill meanwhile leaves only litter.
fn remove_folder(folder: &Path) -> Result<()> {
    for name in names() {
        remove_if_there(&folder.join(&name)).with_context(|| format!("cannot remove {name}"))?;
    }
    fs::remove_dir(folder).with_context(|| {
        let folder = folder.display();
        format!("cannot remove {folder}, which holds files of other programs")
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
        anyhow!(problem(format!("{folder} {what}"), "remove it, or choose another --tmp or -o"))
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
        ensure!(
            is_ours,
            refused(&format!("holds {}, which does not belong to a build", name.display())),
        );
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
            bail!(problem(
                format!("{link} is a symbolic link where the build would write"),
                "remove it"
            ));
        }
        let Output::Shards(path, shards) = self else { return Ok(()) };
        let (stem, another) = (file::stem_of(path), "or choose another name for -o");
        if let Some(file) = [path, &beside(&stem, ".ib")].into_iter().find(|path| path.exists()) {
            bail!(problem(
                format!("{} exists, and would hide its shards", file.display()),
                format!("remove it, {another}")
            ));
        }
        let found = file::shard_paths(stem).unwrap_or_default();
        if let Some(other) = found.iter().find(|file| !files.contains(file)) {
            let other = other.display();
            bail!(problem(
                format!("{other} is a shard of another set than these {shards}"),
                format!("remove that set, {another}")
            ));
        }
        let odd = files.iter().find(|file| file.is_symlink() || file.is_dir());
        match odd.map(|file| file.display()) {
            Some(odd) => bail!(problem(
                format!("{odd} exists and is not a file"),
                format!("remove it, {another}")
            )),
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
            bail!(problem(
                format!("another program is building in {}", folder.display()),
                "wait for it to end, or choose another name for -o"
            ))
        }
        // Where files cannot be locked, as on some network drives, care has to do.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_another_version_is_not_called_damaged() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("f.ib.building");
        let asked = || BTreeMap::from([("kind", "ribbon".to_owned()), ("hash", "1".to_owned())]);
        let mut unfinished = Unfinished::begin(&folder, asked()).unwrap();
        unfinished.save(b"chunks", b"").unwrap();
        drop(unfinished);
        let path = folder.join(STATE);
        let saved: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let resume = |text: String| {
            fs::write(&path, text).unwrap();
            Unfinished::resume(&folder, asked()).map(drop).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(resume(saved.to_string()), Ok(()));
        let renamed = |change: fn(&mut serde_json::Map<String, Value>)| {
            let mut state = saved.clone();
            change(state.as_object_mut().unwrap());
            state.to_string()
        };
        for other in [
            renamed(|state| drop(state.remove("missing"))),
            renamed(|state| drop(state.remove("asked"))),
            renamed(|state| state["asked"] = json!({ "kind": "ribbon", "hashing": "1" })),
            renamed(|state| state["asked"] = json!({ "kind": "ribbon" })),
            renamed(|state| state["asked"]["seed"] = json!("1")),
        ] {
            let error = resume(other).unwrap_err();
            assert!(error.contains("begun by another version of inbloom"), "{error}");
        }
        for damaged in [
            "{".to_owned(),
            "[]".to_owned(),
            renamed(|state| state["missing"] = json!("none")),
            renamed(|state| state["asked"]["kind"] = json!(1)),
        ] {
            let error = resume(damaged).unwrap_err();
            assert!(error.contains("is damaged"), "{error}");
        }
        let another = resume(renamed(|state| state["asked"]["kind"] = json!("classic")));
        assert!(another.unwrap_err().contains("was started with kind classic, now kind ribbon"));
    }

    #[test]
    fn differences_are_shown_as_they_are_typed() {
        assert_eq!(difference("-p", "1e-4", "1e-3"), "-p 1e-4, now -p 1e-3");
        assert_eq!(difference("-n", "", "1000"), "no -n, now -n 1000");
        assert_eq!(difference("--crlf", GIVEN, ""), "--crlf, now no --crlf");
        assert_eq!(difference(HASH, "0123", "4567"), "another --hash-seed or --key-file");
    }
}
