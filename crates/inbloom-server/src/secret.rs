//! The secret under which keys are hashed, kept in the data directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use inbloom::SecretKey;

use crate::users::open_to_others;

/// The file's name in the data directory.
pub const FILE: &str = "secret";

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The file cannot be read.
    #[error("cannot read the secret key of --keyed in {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A new file cannot be written.
    #[error("cannot create the secret key of --keyed in {}: {error}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Others than its owner can read or change it.
    #[error(
        "{} has mode {mode:04o}, and other users can read or change the secret key: run 'chmod 600 \
         {}'", path.display(), path.display()
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is not as it was written.
    #[error(
        "{} holds {length} characters instead of the 32 hexadecimal digits of a secret key: \
         restore it from a backup, since no other key finds the members of these filters", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How much there is.
        length: usize,
    },
    /// There is data, and no secret.
    #[error(
        "{} is missing, and the folder has data: restore the secret key from a backup if the \
         server used --keyed, otherwise start without --keyed", path.display()
    )]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// The system gave no randomness.
    #[error("cannot create a secret key, since the system has no random numbers: {0}")]
    Randomness(getrandom::Error),
}

/// What becomes of a directory without a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It is new, and gets one.
    Made,
    /// It has data already.
    Refused,
}

/// The secret of a data directory: the one that is there, or a new one. It is written as
/// `--key-file` of the command line reads it, so that `inbloom check --key-file DIR/secret` reads
/// files of IB.SAVE.
///
/// # Errors
///
/// A secret that others can read, one that is damaged, and a folder that cannot be written to.
pub fn secret_in(dir: &Path, missing: Missing) -> Result<SecretKey, SecretError> {
    let path = dir.join(FILE);
    let failed = |error| SecretError::File { path: path.clone(), error };
    match File::open(&path) {
        Ok(file) => read(file, &path),
        Err(error) if error.kind() == io::ErrorKind::NotFound && missing == Missing::Refused => {
            Err(SecretError::Missing { path })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create(dir, &path)?;
            // What counts is what is there: another process may have been faster.
            read(File::open(&path).map_err(failed)?, &path)
        }
        Err(error) => Err(failed(error)),
    }
}

fn read(file: File, path: &Path) -> Result<SecretKey, SecretError> {
    let failed = |error| SecretError::File { path: path.into(), error };
    if let Some(mode) = open_to_others(&file).map_err(failed)? {
        return Err(SecretError::Mode { path: path.into(), mode });
    }
    let text = io::read_to_string(file).map_err(failed)?;
    let digits = text.trim();
    let is_key = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(digits, 16).ok().filter(|_| is_key);
    let damaged = || SecretError::Damaged { path: path.into(), length: digits.chars().count() };
    Ok(SecretKey::new(number.ok_or_else(damaged)?.to_be_bytes()))
}

/// Makes a secret beside its place, and links it there: it is whole or not there, and never
/// replaces another.
fn create(dir: &Path, path: &Path) -> Result<(), SecretError> {
    let failed = |error| SecretError::Create { path: path.into(), error };
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(SecretError::Randomness)?;
    let text = format!("{:032x}\n", u128::from_be_bytes(bytes));
    let temporary = dir.join(format!("{FILE}.{}.new", std::process::id()));
    let _ = fs::remove_file(&temporary); // Of a process of this number that was killed.
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&temporary).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let linked = written.and_then(|()| match fs::hard_link(&temporary, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    let removed = fs::remove_file(&temporary);
    linked.and(removed).map_err(failed)?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_that_cannot_be_written_is_not_one_that_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let error = secret_in(&dir.path().join("none"), Missing::Made).unwrap_err();
        assert!(error.to_string().starts_with("cannot create the secret key"), "{error}");
    }

    #[test]
    fn a_directory_keeps_its_secret_and_no_two_have_the_same() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let secret = secret_in(one.path(), Missing::Made).unwrap();
        assert_eq!(secret_in(one.path(), Missing::Made).unwrap(), secret);
        assert_ne!(secret_in(other.path(), Missing::Made).unwrap(), secret);
        let mode = fs::metadata(one.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        let names: Vec<_> = fs::read_dir(one.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "nothing is left beside it: {names:?}");
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        secret_in(dir.path(), Missing::Made).unwrap();
        let path = dir.path().join(FILE);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = secret_in(dir.path(), Missing::Made).unwrap_err().to_string();
        assert!(error.contains("mode 0644") && error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_damaged_secret_is_refused_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        secret_in(dir.path(), Missing::Made).unwrap();
        let path = dir.path().join(FILE);
        for text in ["", "00112233", "+0112233445566778899aabbccddeeff", "xx"] {
            fs::write(&path, text).unwrap();
            let error = secret_in(dir.path(), Missing::Made).unwrap_err().to_string();
            assert!(error.contains("restore it from a backup"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = secret_in(&dir.path().join("none"), Missing::Made).unwrap_err().to_string();
        assert!(error.contains("none/secret"), "{error}");
    }
}
