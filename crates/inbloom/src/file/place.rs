//! Where files are written: which file a path leads to, files that nobody may have put there before
//! us, and files without a name.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile, TempPath};

use super::{failed, folder_of};
use crate::error::Result;
use crate::format;

/// Returns the file that a path leads to: through symbolic links, also one that leads to nothing
/// yet.
///
/// Saving under a link replaces what the link leads to, and the link stays.
///
/// # Errors
///
/// Fails if links lead in a circle.
pub fn destination(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    // As many as Linux follows.
    const MOST: usize = 40;
    let mut path = path.as_ref().to_owned();
    for _ in 0..MOST {
        match fs::read_link(&path) {
            // A relative link starts from its own folder; an absolute one replaces all.
            Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("symbolic links lead in a circle"))
}

/// Creates a file to write to, or opens an existing one as it is, such as one that a killed build
/// has left. It never follows a symbolic link: see [`open_without_links`].
///
/// # Errors
///
/// Fails as [`open_without_links`] does, except if the file is missing.
pub fn create_without_links(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    // This never follows a link, nor opens what is there.
    match File::options().read(true).write(true).create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => open_without_links(path),
        created => created,
    }
}

/// Opens a file to write to. Otherwise a user who can write into a folder could put a link there,
/// under a name that is going to be used, and have another file overwritten.
///
/// # Errors
///
/// Refuses a symbolic link, a file with a second name (a hard link), and what is not a file.
pub fn open_without_links(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    let refused =
        |what| Err(io::Error::other(format!("{what}; remove it, or choose another name")));
    // Looked at before, since to open a pipe may wait forever; and after, since it may have been
    // replaced meanwhile.
    let named = fs::symlink_metadata(path)?;
    if named.is_symlink() {
        return refused("it is a symbolic link");
    }
    if !named.is_file() {
        return refused("it is not a file");
    }
    let file = File::options().read(true).write(true).open(path)?;
    let (opened, named) = (file.metadata()?, fs::symlink_metadata(path)?);
    if !named.is_file() || !is_same_and_alone(&opened, &named) {
        return refused("it is a symbolic or hard link");
    }
    Ok(file)
}

/// Gives a finished file another name, in the same folder or on the same disk. It replaces the file
/// with that name. Permissions are kept, and a symbolic link is followed.
///
/// # Errors
///
/// Fails if the system cannot rename the file.
pub fn rename(from: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
    let (from, path) = (from.as_ref(), path.as_ref());
    let path = &destination(path).map_err(failed("cannot follow the link", path))?;
    if let Ok(existing) = fs::metadata(path) {
        let kept = fs::set_permissions(from, existing.permissions());
        kept.map_err(failed("cannot keep the permissions of", path))?;
    }
    fs::rename(from, path).map_err(failed("cannot replace", path))?;
    sync_folder(path)
}

/// Returns the checksum of a file's header. Two files with the same one are the same filter. It is
/// not checked against the file.
///
/// # Errors
///
/// Fails if the file cannot be read.
pub fn header_checksum(path: impl AsRef<Path>) -> Result<u64> {
    let path = path.as_ref();
    let mut start = [0; 128];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.map_err(failed("cannot read", path))?;
    Ok(format::header_checksum(&start))
}

/// A rename is on disk only once its folder is. A folder that may be written but not read cannot be
/// synced; the system will get to it.
pub(super) fn sync_folder(path: &Path) -> Result<()> {
    #[cfg(unix)]
    if let Ok(folder) = File::open(folder_of(path)) {
        folder.sync_all().map_err(failed("cannot sync the folder of", path))?;
    }
    Ok(())
}

#[cfg(unix)]
fn is_same_and_alone(opened: &Metadata, named: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (opened.dev(), opened.ino()) == (named.dev(), named.ino()) && opened.nlink() == 1
}

#[cfg(not(unix))]
fn is_same_and_alone(_opened: &Metadata, _named: &Metadata) -> bool {
    true
}

/// How temporary files are called.
fn builder() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".inbloom-").suffix(".tmp");
    // Without this the file would be readable by its owner only; with it the umask decides.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
}

/// Creates a temporary file with a name. A kill leaves it behind.
pub(super) fn named(folder: &Path) -> io::Result<NamedTempFile> {
    builder().tempfile_in(folder)
}

/// A temporary file without a name, which goes with the process, however that ends. It is given a
/// name for the instant before it gets its own: no system call puts a file without a name in the
/// place of another.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "there is none elsewhere"))]
pub(super) struct Unnamed {
    pub file: File,
    /// Under which it can be linked.
    #[cfg(target_os = "linux")]
    link: PathBuf,
}

#[cfg(target_os = "linux")]
impl Unnamed {
    /// None where the system or the file system cannot.
    pub fn new(folder: &Path) -> Option<Unnamed> {
        use std::os::fd::AsRawFd;

        use rustix::fs::{Mode, OFlags};
        if cfg!(miri) {
            return None; // It knows no such files.
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)).ok()?);
        let link = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        fs::symlink_metadata(&link).ok()?;
        Some(Unnamed { file, link })
    }

    /// Gives it a temporary name in its folder.
    pub fn name(&self, folder: &Path) -> io::Result<TempPath> {
        use rustix::fs::{AtFlags, CWD, linkat};
        let link = |path: &Path| {
            linkat(CWD, &self.link, CWD, path, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)
        };
        Ok(builder().make_in(folder, link)?.into_temp_path())
    }
}

#[cfg(not(target_os = "linux"))]
impl Unnamed {
    pub fn new(_folder: &Path) -> Option<Unnamed> {
        None
    }

    pub fn name(&self, _folder: &Path) -> io::Result<TempPath> {
        Err(ErrorKind::Unsupported.into())
    }
}
